"""Models in the hands of torch's other tools: optimizers' checkpoints, parallel wrappers, nested tensors."""

import copy
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import parametrizations, parametrize

from lib import pruners
from lib.base import BadInput
from lib.kernels.block_circulant import circulant
from lib.pruners import calibration, gates, groups
from lib.pruners.one_shot import second_moments
from lib.pruners.permutation import permute
from lib.pruners.permutation.search import greedy

INPUTS = torch.randn(6, 5, 16, generator=torch.Generator().manual_seed(0))


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    found = model(INPUTS)
    (found[0] if isinstance(found, tuple) else found).square().mean().backward()
    optimizer.step()


# The order of parameters, by which optimizers store their state


def names(model: nn.Module) -> list[str]:
    return [name for name, _ in model.named_parameters()]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_detached_layer_has_its_parameters_in_their_old_order(order: tuple[int, int]):
    model, weights = nn.LSTM(16, 16), ("weight_ih_l0", "weight_hh_l0")
    before = names(model)
    scores = pruners.magnitude(model)
    for place in order:  # one after the other: the second finds the layer without the first weight
        pruners.attach(model, pruners.unstructured(scores, 0.5, select=weights[place]))
    assert names(model) != before
    pruners.detach(model)
    assert names(model) == before


@pytest.mark.parametrize(
    "change",
    [
        lambda model: pruners.attach(model, pruners.two_four(model)),
        lambda model: pruners.learn(model, pruners.n_of_m),
        lambda model: groups.group(model, {"0.weight": circulant(4)}),
    ],
)
def test_whatever_computes_a_weight_gives_it_back_at_its_place(change):
    model = net()
    before = names(model)
    change(model)
    if pruners.flip_rate(model) == 0:
        pruners.settle(model)
    pruners.detach(model)
    assert names(model) == before


def test_a_checkpoint_of_a_detached_network_is_resumed_in_a_fresh_one():
    """Without biases all shapes agree, so that nobody would notice moments that have gone to another weight."""

    def build():
        torch.manual_seed(0)
        return nn.LSTM(16, 16, bias=False)

    model, fresh = build(), build()
    pruners.attach(model, pruners.unstructured(pruners.magnitude(model), 0.5, select="weight_ih_l0"))
    pruners.detach(model)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    step(model, optimizer)
    fresh.load_state_dict(model.state_dict())
    other = torch.optim.Adam(fresh.parameters(), 0.01)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))  # torch would share the moments
    step(model, optimizer)
    step(fresh, other)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), fresh.parameters(), strict=True))


# Wrappers


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[None]:
    """A group of one process, as DistributedDataParallel needs one."""
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def masked() -> nn.Sequential:
    model = net()
    pruners.attach(model, pruners.two_four(model))
    return model


def learning() -> nn.Sequential:
    model = net()
    pruners.learn(model, pruners.n_of_m)
    return model


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    ("made", "change"),
    [
        (net, lambda model: pruners.attach(model, pruners.two_four(model))),
        (net, lambda model: pruners.learn(model, pruners.n_of_m)),
        (net, lambda model: groups.group(model, {"module.0.weight": circulant(4)})),
        (masked, pruners.detach),
        (masked, pruners.sparse),
        (learning, pruners.settle),
        (lambda: pruners.sparse(masked()), pruners.dense),
    ],
)
def test_weights_of_replicas_are_not_computed_otherwise_behind_their_back(made, change):
    model = DistributedDataParallel(made())
    before = model.state_dict().keys()
    line = r"^DistributedDataParallel has wrapped module\.0\.weight already .* wrap that anew$"
    with pytest.raises(BadInput, match=line):
        change(model)
    assert model.state_dict().keys() == before


@pytest.mark.usefixtures("alone")
def test_a_file_without_masks_takes_none_off_replicas(tmp_path: Path):
    pruners.save(DistributedDataParallel(net()), tmp_path / "a")
    model = DistributedDataParallel(masked())
    with pytest.raises(BadInput, match=r"^DistributedDataParallel has wrapped module\.0\.weight already"):
        pruners.load(tmp_path / "a", model)
    assert pruners.attached(model).keys() == {"module.0.weight", "module.2.weight"}


@pytest.mark.usefixtures("alone")
def test_what_touches_no_replica_is_not_refused(tmp_path: Path):
    pruners.detach(DistributedDataParallel(net()))  # nothing to bake in
    assert pruners.settle(DistributedDataParallel(net())) == {}
    both = nn.ModuleDict({"teacher": DistributedDataParallel(net()), "student": net()})
    pruners.attach(both, {"student.0.weight": torch.eye(16) > 0})
    assert pruners.attached(both).keys() == {"student.0.weight"}
    batches = [INPUTS[:, 0]]
    assert calibration.simulated(DistributedDataParallel(net()), batches)(INPUTS[:, 0]).shape == (6, 4)  # a copy
    small = pruners.one_shot(DistributedDataParallel(net()), batches, pruners.Wanda(pruners.n_of_m))
    assert len(pruners.attached(small)) == 2
    pruners.save(DistributedDataParallel(pruners.sparse(masked())), tmp_path / "a")
    fresh = DistributedDataParallel(masked())
    pruners.load(tmp_path / "a", fresh)
    assert torch.allclose(fresh(INPUTS), masked()(INPUTS), atol=1e-6)


class Headed(nn.DataParallel):
    """Wraps a network, and does more than that."""

    def __init__(self):
        super().__init__(net())
        self.head = nn.Linear(4, 4)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(self.module(inputs))


def test_a_wrapper_with_a_forward_of_its_own_is_a_part_of_the_network():
    assert "head.weight" in {layer.name for layer in pruners.prunable(Headed())}
    assert type(gates.gated(Headed())) is Headed


@pytest.mark.usefixtures("alone")
def test_masks_that_replicas_were_made_with_are_replaced_and_hold():
    inner = net()
    pruners.attach(inner, pruners.two_four(inner))
    model = DistributedDataParallel(inner)
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    step(model, optimizer)
    within = pruners.attached(model)
    pruners.attach(model, pruners.unstructured(pruners.magnitude(model), 0.75, within=within, floor=0.1))
    step(model, optimizer)
    assert pruners.sparsity(model) == 0.75


def compiled(model: nn.Module) -> nn.Module:
    return torch.compile(model, backend="eager")


@pytest.mark.parametrize("wrap", [nn.DataParallel, compiled])
def test_a_file_of_a_wrapped_model_says_that_it_is_one(wrap, tmp_path: Path):
    model = wrap(net())
    pruners.attach(model, pruners.two_four(model))
    pruners.save(model, tmp_path / "a")
    with pytest.raises(BadInput, match=r"^a lacks 0\.bias: torch\.compile puts _orig_mod\. .* as the saved one was$"):
        pruners.load(tmp_path / "a", net())
    fresh = net()
    pruners.load(tmp_path / "a", wrap(fresh))
    assert torch.equal(fresh(INPUTS), model(INPUTS))


def masked_by_torch(model: nn.Module) -> None:
    nn.utils.prune.l1_unstructured(model[0], "weight", 0.5)


@pytest.mark.parametrize(
    ("change", "cure"),
    [
        (lambda model: pruners.learn(model, pruners.n_of_m), "a weight is computed in one alone"),
        (lambda model: groups.group(model, {"0.weight": circulant(4)}), "a weight is computed in one alone"),
        (lambda model: parametrizations.weight_norm(model[0]), "a weight is computed in one alone"),
        (masked_by_torch, r"torch\.nn\.utils\.prune holds a mask: pruners\.attach\(model, pruners\.attached"),
    ],
)
def test_a_file_that_does_not_fit_names_the_cure(change, cure: str, tmp_path: Path):
    model = net()
    change(model)
    pruners.save(model, tmp_path / "a")
    with pytest.raises(BadInput, match=f"^a lacks 0\\.weight: {cure}"):
        pruners.load(tmp_path / "a", net())


def test_what_data_parallel_has_wrapped_is_permuted_and_gated_as_what_is_within():
    found, expected = (permute(one, INPUTS[:, 0], search=greedy)[0] for one in (nn.DataParallel(net()), net()))
    assert torch.equal(found[0].weight, expected[0].weight)
    assert type(gates.gated(nn.DataParallel(net()))) is nn.Sequential


# Nested tensors, as torch's encoder makes of padded examples


class Encoder(nn.Module):
    """Two layers of attention, which torch computes without the padding in evaluation."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.layers, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(16, 4)

    def forward(self, inputs: torch.Tensor, padded: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(inputs, src_key_padding_mask=padded))


PADDED = torch.arange(5) >= torch.tensor([5, 4, 3, 5, 2, 1])[:, None]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors", "ignore::lib.pruners.LeftOut")
def test_padded_examples_are_calibrated_on_without_their_padding_and_computed_in_int8():
    model = Encoder().eval()
    nested = []
    watch = model.layers.layers[0].linear1.register_forward_pre_hook(
        lambda layer, args: nested.append(args[0].is_nested)
    )
    with torch.no_grad():
        expected = model(INPUTS, PADDED)
    watch.remove()
    assert nested == [True]  # or this test would test nothing
    loud = torch.where(PADDED[..., None], 100.0, INPUTS)  # what nobody computes with
    alone = [(x[None, : int(n)], torch.zeros(1, int(n)) > 0) for x, n in zip(INPUTS, (~PADDED).sum(1), strict=True)]
    names = [f"layers.layers.{layer}.linear{place}.weight" for layer in (0, 1) for place in (1, 2)]
    found, bare = (calibration.ranges(model, batches, "max", names) for batches in ([(loud, PADDED)], alone))
    assert found == pytest.approx(bare, rel=1e-4)
    found, bare = (second_moments(model, batches, names) for batches in ([(loud, PADDED)], alone))
    assert all(torch.allclose(found[name], bare[name], atol=1e-4) for name in names)  # means: zeros would count
    with torch.no_grad():
        small = calibration.simulated(model, [(INPUTS, PADDED)])
        assert (small(INPUTS, PADDED) - expected).abs().max() < 0.1 * expected.abs().max()
    wanda = pruners.Wanda(partial(pruners.n_of_m, n=2, m=4))
    masks, others = (
        pruners.attached(pruners.one_shot(model, batches, wanda, names)) for batches in ([(loud, PADDED)], alone)
    )
    assert all(torch.equal(mask, others[name]) for name, mask in masks.items())


def test_jagged_examples_stay_jagged_in_int8():
    torch.manual_seed(0)
    small = calibration.simulated(nn.Linear(16, 16), [INPUTS])

    def residual(inputs: torch.Tensor) -> torch.Tensor:
        return inputs + small(inputs).relu()

    parts = [INPUTS[0, :3], INPUTS[1]]
    found = residual(torch.nested.nested_tensor(parts, layout=torch.jagged))
    assert all(torch.equal(one, residual(part)) for one, part in zip(found.unbind(), parts, strict=True))


class Symmetric(nn.Module):
    """A parametrization of somebody else's, which can be inverted to one tensor."""

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight.triu() + weight.triu(1).T

    def right_inverse(self, weight: torch.Tensor) -> torch.Tensor:
        return weight.triu()


def test_detach_leaves_alone_what_others_compute_without_a_mask():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    for layer in model:
        parametrize.register_parametrization(layer, "weight", Symmetric())
    pruners.attach(model, {"0.weight": torch.eye(4) > 0})
    pruners.detach(model)
    assert not parametrize.is_parametrized(model[0])
    assert parametrize.is_parametrized(model[1])
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model(torch.randn(3, 4)).square().sum().backward()
    optimizer.step()
    assert torch.equal(model[1].weight, model[1].weight.T)
