"""Laws of `lib.training.offline`: what is drawn, how runs are pruned, and that stopping changes nothing."""

import pytest
import torch

from lib import pruners
from lib.base import BadInput
from lib.training.agents import SCORING, SHUFFLING, TRAINING, Draws, draw_batch
from lib.training.offline import Pruning, Run, prune, score_of, train
from lib.training.seeds import seed_of
from tests.training.small_agents import DATA, RUNS, SETTINGS, agent, bundle, mean_action, same


def masks_of(agent):
    """{name of a pruned weight: its mask}."""
    return {name: agent.masks[weight] for name, weight in agent.networks.named_parameters() if weight in agent.masks}


# Data and draws


def test_a_bundle_becomes_columns_in_which_a_timeout_is_no_end():
    given = bundle()
    assert [tuple(column.shape) for column in DATA] == [(40, 4), (40, 2), (40, 1), (40, 4), (40, 1)]
    assert DATA.terminals.flatten().tolist() == given.terminals.astype(float).tolist()
    assert {column.dtype for column in DATA} == {torch.float32}
    batch = DATA.batch(torch.tensor([[3, 3], [7, 0]]))
    assert torch.equal(batch.observations[0, 1], torch.from_numpy(given.observations[3]))
    assert batch.rewards[1].flatten().tolist() == given.rewards[[7, 0]].tolist()


def test_runs_of_one_seed_draw_alike_whatever_else_is_in_the_stack():
    draws, alone = Draws([5, 3, 5]), Draws([3])
    for draw in (
        lambda draws: draws.restart(1, 2).integers(1000, 50),
        lambda draws: draws.restart(1, 2).normals(50, 2, like=torch.zeros(())),
    ):
        drawn = draw(draws)
        assert torch.equal(drawn[0], drawn[2])
        assert not torch.equal(drawn[0], drawn[1])
        assert torch.equal(drawn[1], draw(alone)[0])
    again, other = draws.restart(1, 2).integers(1000, 50), draws.restart(1, 3).integers(1000, 50)
    assert torch.equal(draws.restart(1, 2).integers(1000, 50), again)
    assert not torch.equal(again, other)
    numbers = draws.restart(0).normals(5000, like=torch.zeros((), dtype=torch.float64))
    assert numbers.dtype == torch.float64
    assert abs(numbers.mean()) < 0.03
    assert abs(numbers.std() - 1) < 0.03


def test_runs_that_differ_in_sparsity_alone_see_the_same_batches_and_noise():
    ours = agent(runs=[Run(2), Run(2, "snip", 0.9), Run(3)])
    batch, noise = draw_batch(ours, DATA, Draws(ours.seeds), 4, 2, 1)
    assert [tuple(drawn.shape) for drawn in noise] == [(3, 4, 4), (3, 8, 4), (3, 4, 4)]
    for tensor in (*batch, *noise):
        assert torch.equal(tensor[0], tensor[1])
        assert not torch.equal(tensor[0], tensor[2]) or tensor is batch.terminals


# Pruning


def test_what_is_removed_at_random_differs_from_network_to_network_of_an_agent():
    masks = masks_of(agent("bcq", [Run(1, "random", 0.5)]))
    firsts = [mask[0].flatten()[:40] for mask in masks.values()]
    assert len({tuple(first.tolist()) for first in firsts}) == len(firsts)


@pytest.mark.parametrize("kind", SETTINGS)
def test_each_run_is_pruned_by_its_own_pruner_and_starts_from_its_seed(kind):
    ours, dense = agent(kind), agent(kind, pruned=False)
    assert pruners.sparsity_per_run(ours.networks) == pytest.approx([0, 0.75, 0.75, 0.5], abs=0.01)
    for kept, first in zip(pruners.prunable(ours.networks), pruners.prunable(dense.networks), strict=True):
        assert torch.equal(kept.weight, first.weight * masks_of(ours)[kept.name])
    for run, pruner in enumerate(["snip", "grasp", "random"], 1):
        alone = agent(kind, [RUNS[run]])
        masks = masks_of(alone)
        assert all(torch.equal(mask[run], masks[name][0]) for name, mask in masks_of(ours).items())
        other = agent(kind, [Run(RUNS[run].seed, "magnitude", RUNS[run].sparsity)])
        assert any(not torch.equal(mask, masks[name]) for name, mask in masks_of(other).items()), pruner


def test_scores_come_from_the_dense_networks_and_from_each_loss_alone():
    ours = agent(runs=[Run(1, "grasp", 0.75)])
    dense = agent(runs=[Run(1)])
    pair = draw_batch(dense, DATA, Draws([1]), 8, SCORING, 0)
    for objective in dense.objectives.values():
        scores = pruners.grasp(objective.ranked, lambda model, loss=objective.loss: loss(*pair).sum())
        for name, mask in pruners.unstructured(scores, 0.75).items():
            assert torch.equal(mask, masks_of(ours)[name])


def test_alone_grasp_has_the_gradient_and_the_hessian_of_one_network_at_a_time():
    runs = [Run(1, "grasp", 0.75), Run(1, "snip", 0.75)]
    ours, apart = agent("bc", runs, ranked="alone"), agent("bc", runs)
    dense = agent("bc", [Run(1)])
    pair = draw_batch(dense, DATA, Draws([1]), 8, SCORING, 0)
    loss = dense.objectives["vae"].loss
    for network in ("encoder", "decoder"):
        weights = {layer.name: layer.module.weight for layer in pruners.prunable(dense.networks[network])}
        slopes = torch.autograd.grad(loss(*pair).sum(), list(weights.values()), create_graph=True)
        products = torch.autograd.grad(sum((slope.detach() * slope).sum() for slope in slopes), list(weights.values()))
        scores = {name: weight * product for (name, weight), product in zip(weights.items(), products, strict=True)}
        for name, mask in pruners.unstructured({name: one[0] for name, one in scores.items()}, 0.75).items():
            assert torch.equal(mask, masks_of(ours)[f"{network}.{name}"][0])
    same = [torch.equal(mask[0], masks_of(apart)[name][0]) for name, mask in masks_of(ours).items()]
    assert not all(same)
    assert all(torch.equal(mask[1], masks_of(apart)[name][1]) for name, mask in masks_of(ours).items())  # SNIP's


def test_the_number_and_size_of_batches_the_scope_and_the_floor_are_settings():
    runs = [Run(1, "snip", 0.8)]

    def kept(settings):
        ours = agent(runs=runs, pruned=False)
        prune(ours, DATA, runs, settings)
        return masks_of(ours), pruners.report(ours.networks)

    usual, _ = kept(Pruning(4, 8))
    for settings in (Pruning(4, 8, batches=3), Pruning(8, 8)):
        assert any(not torch.equal(mask, usual[name]) for name, mask in kept(settings)[0].items())
    assert all(torch.equal(mask, usual[name]) for name, mask in kept(Pruning(4, 99))[0].items())  # GraSP's batch alone
    by_layer = kept(Pruning(4, 8, scope="layer"))[1]
    assert by_layer.sparsity.tolist() == pytest.approx([0.8] * len(by_layer), abs=0.07)
    assert kept(Pruning(4, 8))[1].sparsity.max() > 0.9
    assert kept(Pruning(4, 8, floor=0.15))[1].sparsity.max() <= 0.85


def test_in_rounds_each_takes_its_share_by_scores_of_what_is_left():
    ours = agent(runs=[Run(1, "snip", 0.75, rounds=2)])
    half = agent(runs=[Run(1, "snip", 0.5)])  # two rounds to a quarter: half of it, and half of what is left
    pair = draw_batch(half, DATA, Draws([1]), 4, SCORING, 0, 1)
    for objective in half.objectives.values():
        layers = pruners.prunable(objective.ranked)
        scores = pruners.snip(objective.ranked, lambda model, loss=objective.loss: loss(*pair).sum())
        for network in dict.fromkeys(layer.network for layer in layers):
            names = [layer.name for layer in layers if layer.network == network]
            count = sum(scores[name].numel() for name in names)
            left = torch.cat([scores[name][masks_of(half)[name]] for name in names])
            least = left.sort(descending=True).values[count - round(0.75 * count) - 1]
            for name in names:
                assert torch.equal(masks_of(ours)[name], (scores[name] >= least) & masks_of(half)[name])
    once = agent(runs=[Run(1, "snip", 0.75)])
    assert any(not torch.equal(mask, masks_of(ours)[name]) for name, mask in masks_of(once).items())


def test_rounds_change_nothing_for_scores_that_ask_no_data_and_nothing_in_other_runs():
    rounds = [Run(0), Run(0, "snip", 0.75), Run(1, "grasp", 0.75, rounds=3), Run(1, "random", 0.5, rounds=3)]
    found, usual = masks_of(agent(runs=rounds)), masks_of(agent())
    for name, mask in found.items():
        assert torch.equal(mask[[0, 1, 3]], usual[name][[0, 1, 3]])
        assert torch.equal(mask[2], masks_of(agent(runs=[rounds[2]]))[name][0])
    assert any(not torch.equal(mask[2], usual[name][2]) for name, mask in found.items())
    share = pruners.sparsity_per_run(agent(runs=rounds).networks)
    assert share == pytest.approx(pruners.sparsity_per_run(agent().networks))


@pytest.mark.parametrize("kind", SETTINGS)
def test_a_later_round_of_grasp_scores_as_if_masks_held_what_has_gone(kind):
    """An agent holds it at 0 in plain parameters, whose gradients there are no part of what is to be preserved."""
    half = agent(kind, [Run(1, "grasp", 0.5)])
    found = score_of("grasp", DATA, Pruning(4, 8))(half, 1)
    masks = masks_of(half)
    pruners.attach(half.networks, masks)
    masked = score_of("grasp", DATA, Pruning(4, 8))(half, 1)
    for name, mask in masks.items():
        torch.testing.assert_close(found[name][mask], masked[name][mask])


@pytest.mark.parametrize("kind", SETTINGS)
def test_in_rounds_too_a_shuffled_mask_has_as_many_weights_of_each_layer_as_snips(kind):
    half = agent(kind, [Run(1, "snip", 0.5)])
    snip, other = (score_of(name, DATA, Pruning(4, 8))(half, 1) for name in ("snip", "snip_shuffled"))
    for name, mask in masks_of(half).items():
        assert not other[name][~mask].any(), name
        assert torch.equal(other[name][mask].sort().values, snip[name][mask].sort().values)


@pytest.mark.parametrize("kind", SETTINGS)
def test_a_shuffled_mask_has_as_many_weights_of_each_layer_as_snips_and_others(kind):
    stack = [Run(1, "snip", 0.75), Run(1, "snip_shuffled", 0.75), Run(2, "snip_shuffled", 0.75)]
    masks = masks_of(agent(kind, stack))
    for name, (snip, shuffled, _) in masks.items():
        assert snip.sum() == shuffled.sum(), name
    flat = torch.cat([mask.flatten(1) for mask in masks.values()], 1)
    assert float((flat[0] == flat[1]).double().mean()) < 0.8  # of a quarter by chance 0.625


@pytest.mark.parametrize("kind", SETTINGS)
def test_a_shuffled_mask_is_that_of_its_seed_in_every_stack(kind):
    stack = [Run(1, "snip_shuffled", 0.75), Run(0, "snip", 0.5), Run(2, "snip_shuffled", 0.75)]
    together = masks_of(agent(kind, stack))
    again, alone = masks_of(agent(kind, stack)), [masks_of(agent(kind, [run])) for run in stack]
    for name, mask in together.items():
        assert torch.equal(mask, again[name])
        assert all(torch.equal(mask[run], alone[run][name][0]) for run in range(3))
    # the place in a layer, not only how many: two seeds with the same first weights would still differ
    scores = pruners.magnitude(agent(kind, pruned=False).networks)
    one, other = (pruners.shuffled(scores, [seed] * 4) for seed in (5, 6))
    assert any(not torch.equal(one[name], other[name]) for name in scores)


def test_the_batches_of_a_shuffled_score_are_snips_and_its_order_has_a_stream_of_its_own():
    ours = agent("bc", [Run(3, "snip_shuffled", 0.5)], pruned=False)
    settings = Pruning(4, 8, batches=2)
    found = score_of("snip_shuffled", DATA, settings)(ours, 0)
    snip = score_of("snip", DATA, settings)(ours, 0)
    expected = pruners.shuffled(snip, [seed_of(3, SHUFFLING, 0)])
    assert all(torch.equal(found[name], score) for name, score in expected.items())
    for name, score in snip.items():
        assert torch.equal(found[name].flatten().sort().values, score.flatten().sort().values)


def test_runs_that_make_no_sense_are_refused():
    with pytest.raises(BadInput, match="pruner 'obd': known are dense, snip, grasp, random, magnitude"):
        Run(0, "obd", 0.5)
    with pytest.raises(BadInput, match=r"sparsity=1 is not in \[0, 1\)"):
        Run(0, "snip", 1)
    with pytest.raises(BadInput, match=r"a dense run has sparsity 0, this one 0\.5"):
        Run(0, sparsity=0.5)
    with pytest.raises(BadInput, match="rounds=0: expected a whole number, at least 1"):
        Run(0, "snip", 0.5, rounds=0)
    with pytest.raises(BadInput, match=r"rounds=1\.5: expected a whole number, at least 1"):
        Run(0, "snip", 0.5, rounds=1.5)
    with pytest.raises(BadInput, match=r"the agent has the seeds \[0, 0, 1, 1\], these runs \[4\]"):
        prune(agent(), DATA, [Run(4)])
    with pytest.raises(BadInput, match=r"the agent has the seeds \[0, 0, 1, 1\], these runs \[4\]"):
        train(agent(), DATA, [Run(4)], 1, 1)
    with pytest.raises(BadInput, match="pruning: batches=0: expected a whole number, at least 1"):
        Pruning(batches=0)
    with pytest.raises(BadInput, match=r"scope='net', floor=0\.0: expected row, layer, network, global, and a share"):
        Pruning(scope="net")
    with pytest.raises(BadInput, match="scope='network', floor=2"):
        Pruning(floor=2)


def test_layers_of_which_nothing_is_left_are_reported(caplog):
    stack = [Run(0), Run(0, "magnitude", 0.5), Run(1, "magnitude", 0.99)]
    found = agent("bc_mlp", stack, pruned=False)
    with caplog.at_level("WARNING"):
        prune(found, DATA, [stack[0], Run(0, "random", 0.1), Run(1, "random", 0.1)])
        assert caplog.messages == []
        prune(found, DATA, stack, Pruning(scope="network"))
    empty = pruners.empty_layers(found.networks)
    assert set(empty.layer)
    assert all(name in caplog.text for name in empty.layer)
    assert "(magnitude at 0.99): nothing passes such a layer" in caplog.text
    assert "0.5" not in caplog.text


# Training


@pytest.mark.parametrize("kind", SETTINGS)
def test_training_is_its_updates_one_after_the_other(kind):
    ours, by_hand = agent(kind), agent(kind)
    rows = train(ours, DATA, RUNS, steps=6, every=3, evaluate=mean_action)
    draws = Draws(by_hand.seeds)
    for first in (1, 4):
        losses = [
            by_hand.update(*draw_batch(by_hand, DATA, draws, 4, TRAINING, step)) for step in range(first, first + 3)
        ]
        found = rows[:4] if first == 1 else rows[4:]
        for name in losses[0]:
            mean = sum(loss[name] for loss in losses) / 3
            assert [row[f"{name}_loss"] for row in found] == mean.tolist()
        assert [row["action"] for row in found] == mean_action(by_hand.policy(first + 2))["action"]
    assert same(ours, by_hand)
    keys = ["run", "seed", "pruner", "sparsity", "step"]
    assert [[row[key] for key in keys] for row in rows[4:]] == [
        [0, 0, "dense", 0.0, 6],
        [1, 0, "snip", 0.75, 6],
        [2, 1, "grasp", 0.75, 6],
        [3, 1, "random", 0.5, 6],
    ]


def test_an_agents_masks_are_its_own():
    one = agent("bc", pruned=False)
    name, layer = next((layer.name, layer) for layer in pruners.prunable(one.networks))
    mask = torch.rand_like(layer.weight) > 0.5
    before = mask.clone()
    one.attach({name: mask})
    mask.zero_()
    one.attached()[name].zero_()
    assert torch.equal(one.attached()[name], before)
