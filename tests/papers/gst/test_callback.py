"""Laws of group-sparse training from fixed data: blocks, the shift, scores asked anew, stacks and sessions."""

import numpy as np
import pytest
import torch

from lib import pruners
from lib.base import BadInput
from lib.kernels.block_circulant import circulant, expand, project
from lib.papers.gst.experiments.algorithm import Compression, GroupSparseTraining, begin
from lib.papers.gst.experiments.callback import GroupSparseCallback
from lib.pruners import groups as gs
from lib.training import offline
from lib.training.agents import Transitions
from lib.training.bc import BC, BCSettings, PlainBC, PlainBCSettings
from lib.training.bcq import BCQ, BCQSettings
from lib.training.offline import Run

LAYER = "actor.layers.1.weight"
SINGLE, BLOCKS = Compression((LAYER,)), Compression((LAYER,), block=4, shift=0.5)
RUNS = [Run(0), Run(0, "snip", 0.75), Run(1, "magnitude", 0.75), Run(1, "random", 0.25)]
SCORING = offline.Pruning(snip_batch=8, batches=2)


def data() -> Transitions:
    draw = torch.Generator().manual_seed(0)
    seen = torch.randn(200, 4, generator=draw)
    none = torch.zeros(200, 1)
    return Transitions(seen, torch.tanh(seen[:, :2]), none, seen, none)


DATA = data()


def agent(runs=RUNS) -> PlainBC:
    settings = PlainBCSettings(hidden=(8, 8), batch=8, learning_rate=0.01)
    return PlainBC(4, [1.0, 1.0], [run.seed for run in runs], settings)


def begun(runs=RUNS, compression=BLOCKS, **how) -> GroupSparseCallback:
    schedules = [pruners.Gradual(run.sparsity, every=4, times=5) for run in runs]
    return GroupSparseCallback(agent(runs), DATA, runs, compression, schedules, SCORING, **how)


def trained(
    sparse: GroupSparseCallback, steps=40, state=None, look=lambda: None, on_progress=lambda: None
) -> list[dict]:
    def evaluate(act):
        seen = DATA.observations[:4].numpy()[None].repeat(len(sparse.runs), 0)
        return {"action": act(seen).mean((1, 2)).tolist(), "saved": sparse.algorithm.saved["weights"].tolist()}

    class Looking:
        """Calls `look` after each step."""

        def __getattr__(self, name):
            return getattr(sparse, name)

        def step(self, step):
            sparse.step(step)
            look()

    return offline.train(
        sparse.agent,
        DATA,
        sparse.runs,
        steps,
        4,
        evaluate,
        state,
        on_progress=on_progress,
        stop_every=2,
        callback=Looking(),
    )


def weight(sparse: GroupSparseCallback) -> torch.Tensor:
    return {layer.name: layer.weight for layer in pruners.prunable(sparse.agent.networks)}[LAYER].detach()


def test_blocks_are_held_until_the_shift_of_each_run_and_every_run_ends_at_its_sparsity():
    sparse, history = begun(), []
    trained(
        sparse, look=lambda: history.append((sparse.algorithm.sparsity, sparse.algorithm.phase.copy(), weight(sparse)))
    )
    for sparsity, phase, now in history:
        for run in range(len(RUNS)):
            assert phase[run] == (sparsity[run] >= 0.5)
            assert float((now[run] == 0).float().mean()) == sparsity[run]
            if not phase[run]:
                assert torch.equal(expand(project(now[run], circulant(4)), circulant(4), (8, 8)), now[run])
    assert sparse.algorithm.sparsity.tolist() == [0, 0.75, 0.75, 0.25]
    assert sparse.algorithm.phase.tolist() == [0, 1, 1, 0]


def test_what_is_removed_stays_removed_although_snip_is_asked_anew():
    sparse = begun([Run(seed, "snip", 0.9) for seed in range(4)], SINGLE)
    gone = [torch.zeros(4, 8, 8, dtype=torch.bool)]

    def look():
        now = weight(sparse) == 0
        assert (now | ~gone[-1]).all()
        gone.append(now)

    trained(sparse, look=look)
    counts = [int(now.sum()) for now in gone]
    assert len(set(counts)) > 3
    assert counts[-1] == 4 * round(0.9 * 64)


class Steps:
    """A schedule with these targets, one a step from 0 on."""

    def __init__(self, *targets):
        self.targets = targets

    def target(self, step, reward=None):
        return self.targets[step]


def of(*schedules, compression=SINGLE, score=pruners.magnitude, hidden=(8, 8)) -> GroupSparseTraining:
    """A stack of plain actors, its blocks in place."""
    networks = PlainBC(4, [1.0, 1.0], range(len(schedules)), PlainBCSettings(hidden=hidden)).networks
    begin(networks, compression)
    return GroupSparseTraining(networks, compression, schedules, [], score=score)


@pytest.mark.parametrize("less", [0.0, 20.0])  # scores such as GraSP's may be negative
def test_what_is_removed_stays_removed_even_if_a_score_would_have_it_back(less: float):
    def score(networks):
        found = pruners.magnitude(networks)
        found[LAYER] = torch.where(found[LAYER] == 0, 9.0, found[LAYER]) - less
        return found

    algorithm = of(Steps(0.25, 0.5), score=score)
    algorithm.step(0)
    gone = pruners.magnitude(algorithm.networks)[LAYER] == 0
    assert int(gone.sum()) == 16
    algorithm.step(1)
    now = pruners.magnitude(algorithm.networks)[LAYER] == 0
    assert int(now.sum()) == 32
    assert bool(now[gone].all())


def test_snip_chooses_the_coefficients_whose_removal_changes_the_loss_least():
    sparse = begun([Run(0, "snip", 0.5)])
    scores = sparse.score("snip")(sparse.agent.networks, 7)[LAYER][0]
    objective = sparse.agent.objectives["actor"]
    draws = offline.Draws([0])
    batches = [offline.draw_batch(sparse.agent, DATA, draws, 8, offline.SCORING, place, 7) for place in range(2)]
    loss = lambda: sum(objective.loss(*pair).sum() for pair in batches) / 2  # noqa: E731
    parameter = sparse.agent.networks["actor"].layers[1].parametrizations.weight.original
    table, small = circulant(4), 1e-3
    with torch.no_grad():
        for block in ((0, 0), (1, 0)):
            for coefficient in range(4):  # of the room for 16 only these four are used
                value = parameter[0, *block, coefficient].clone()
                ends = []
                for factor in (1 + small, 1 - small):  # the derivative by a mask of the whole coefficient
                    parameter[0, *block, coefficient] = factor * value
                    ends.append(float(loss()))
                parameter[0, *block, coefficient] = value
                rows, columns = (slice(4 * place, 4 * place + 4) for place in block)
                found = scores[rows, columns][table == coefficient]
                assert found == pytest.approx([abs(ends[0] - ends[1]) / (2 * small)] * 4, rel=0.02, abs=1e-4)


def test_a_dense_run_among_single_weights_is_behaviour_cloning_itself():
    rows = trained(begun(compression=SINGLE))
    plain = agent()
    offline.train(plain, DATA, RUNS, 40, 4)
    sparse = begun(compression=SINGLE)
    trained(sparse)
    assert torch.equal(weight(sparse)[0], plain.networks["actor"].layers[1].weight[0])
    assert {row["saved"] < 0 for row in rows if row["run"] == 0} == {True}  # a bitmap of nothing


def test_a_run_does_not_depend_on_its_stack():
    rows = trained(begun())
    for place, run in enumerate(RUNS):
        alone = trained(begun([run]))
        mine = [{**row, "run": 0} for row in rows if row["run"] == place]
        assert mine == alone


@pytest.mark.parametrize("stop", [6, 30])  # before and after the shift
def test_a_stopped_session_goes_on_bit_for_bit(stop, tmp_path):
    whole, state = begun(), tmp_path / "stack.pt"
    rows, done = trained(whole), []

    class Stopped(Exception):
        pass

    def on_progress():
        done.append(None)
        if len(done) == stop // 2:
            raise Stopped

    with pytest.raises(Stopped):
        trained(begun(), state=state, on_progress=on_progress)
    again = begun()
    assert trained(again, state=state) == rows
    assert torch.equal(weight(again), weight(whole))
    assert np.array_equal(again.algorithm.saved["weights"], whole.algorithm.saved["weights"])
    with pytest.raises(BadInput, match=r"other settings \(.*compression"):
        trained(begun(compression=Compression((LAYER,), block=4, shift=0.75)), state=state)


@pytest.mark.parametrize(
    ("layers", "scope", "before", "shift"),
    [
        ((LAYER,), "layer", 0.34, 0.4),  # 6 of 16 coefficients are 0.375
        ((LAYER, "actor.layers.2.weight"), "layer", 0.34, 0.4),  # 6 of 16 in each
        ((LAYER, "actor.layers.2.weight"), "network", 0.39, 0.42),  # 13 of 32 are 0.406
        ((LAYER, "actor.layers.2.weight"), "global", 0.39, 0.42),
    ],
)
def test_the_shift_comes_with_the_pruning_to_its_sparsity_although_masks_round(layers, scope, before, shift):
    compression = Compression(layers, block=4, shift=shift, scope=scope)
    algorithm = of(Steps(before, shift), compression=compression, hidden=(8, 8, 8))
    algorithm.step(0)
    assert algorithm.phase.tolist() == [0]
    algorithm.step(1)
    assert algorithm.sparsity[0] < shift
    assert algorithm.phase.tolist() == [1]


def test_a_run_that_is_not_pruned_does_not_shift_with_its_stack():
    algorithm = of(Steps(0.0), Steps(0.25), compression=Compression((LAYER,), block=4, shift=0.02))  # of 16 none
    algorithm.step(0)
    assert algorithm.phase.tolist() == [0, 1]


DECODER = "decoder.layers.1.weight"
CHOSEN = [Run(0, pruner, 0.5) for pruner in ("snip", "grasp", "random", "magnitude")]


def of_a_vae(ranked: str, without: str = "") -> GroupSparseCallback:
    """Its decoder in blocks; one of its networks may be ranked by no objective."""
    vae = BC(4, [1.0, 1.0], [0] * len(CHOSEN), BCSettings(hidden=(8, 8), batch=8, ranked=ranked))
    if without:
        kept = torch.nn.ModuleDict({name: network for name, network in vae.vae.items() if name != without})
        vae.objectives["vae"] = vae.objectives["vae"]._replace(ranked=kept)
    schedules = [pruners.Once(run.sparsity) for run in CHOSEN]
    return GroupSparseCallback(vae, DATA, CHOSEN, Compression((DECODER,), block=4), schedules, SCORING)


def test_a_score_is_found_whatever_its_layer_is_called_among_those_ranked_with_it():
    sides = [of_a_vae(ranked) for ranked in ("apart", "together")]
    magnitude = pruners.magnitude(sides[1].agent.networks)[DECODER]
    for name in ("snip", "grasp", "random", "magnitude"):
        apart, together = (side.score(name)(side.agent.networks, 1) for side in sides)
        assert torch.equal(apart[DECODER], together[DECODER])
        assert apart.layers[DECODER].network == together.layers[DECODER].network == "decoder"
        assert torch.equal(together[DECODER], magnitude) == (name == "magnitude")


def test_a_layer_that_no_objective_ranks_is_refused():
    with pytest.raises(BadInput, match=f"grasp gives '{DECODER}' no score: no objective ranks it"):
        of_a_vae("apart", without="decoder")
    assert of_a_vae("apart", without="encoder").algorithm.phase.tolist() == [0] * 4


def test_an_agent_with_targets_is_refused_before_anything_is_changed():
    bcq = BCQ(4, [1.0, 1.0], [0], BCQSettings(hidden=(8, 8), vae_hidden=(8, 8)))
    with pytest.raises(
        BadInput, match=r"^BCQ has targets, which .* would not reach: expected an agent without, such as"
    ):
        GroupSparseCallback(bcq, DATA, [Run(0, "snip", 0.5)], BLOCKS, [pruners.Once(0.5)], SCORING)
    assert gs.tables(bcq.networks) == {}


def test_each_run_needs_a_schedule_and_the_layer_must_be_there():
    with pytest.raises(BadInput, match="1 schedules for 4 runs"):
        GroupSparseCallback(agent(), DATA, RUNS, BLOCKS, [pruners.Once(0.5)], SCORING)
    with pytest.raises(BadInput, match=r"no weight called 'actor.layers.9.weight'"):
        begun(compression=Compression(("actor.layers.9.weight",), block=4))
    assert gs.tables(begun(compression=SINGLE).agent.networks) == {}
