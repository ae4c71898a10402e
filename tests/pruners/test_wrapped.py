"""Models in the hands of torch's other tools: optimizers' checkpoints, parallel wrappers, nested tensors."""

import copy
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import parametrizations

from lib import pruners
from lib.base import BadInput
from lib.kernels.block_circulant import circulant
from lib.pruners import calibration, gates, groups
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


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    "change",
    [
        lambda model: pruners.attach(model, pruners.two_four(model)),
        lambda model: pruners.learn(model, pruners.n_of_m),
        lambda model: groups.group(model, {"module.0.weight": circulant(4)}),
        pruners.detach,
        pruners.settle,
    ],
)
def test_weights_of_replicas_are_not_computed_otherwise_behind_their_back(change):
    model = DistributedDataParallel(net())
    before = model.state_dict().keys()
    with pytest.raises(BadInput, match=r"^DistributedDataParallel has wrapped Sequential already .* wrap that anew$"):
        change(model)
    assert model.state_dict().keys() == before


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
def test_padded_examples_are_calibrated_on_and_computed_in_int8():
    model = Encoder().eval()
    nested = []
    watch = model.layers.layers[0].linear1.register_forward_pre_hook(
        lambda layer, args: nested.append(args[0].is_nested)
    )
    with torch.no_grad():
        expected = model(INPUTS, PADDED)
    watch.remove()
    assert nested == [True]  # or this test would test nothing
    small = calibration.simulated(model, [(INPUTS, PADDED)])
    with torch.no_grad():
        found = small(INPUTS, PADDED)
        plain = Encoder().eval()
        plain.layers.enable_nested_tensor = False
        same = calibration.simulated(plain, [(INPUTS, PADDED)])(INPUTS, PADDED)
    assert (found - expected).abs().max() < 0.1 * expected.abs().max()
    assert torch.allclose(found[~PADDED], same[~PADDED], atol=1e-5)
    pruned = pruners.one_shot(model, [(INPUTS, PADDED)], pruners.Wanda(partial(pruners.n_of_m, n=2, m=4)))
    assert len(pruners.attached(pruned)) >= 4
    with warnings.catch_warnings(action="ignore"):
        assert pruners.wanda(model, [(INPUTS, PADDED)]).keys() >= pruners.attached(pruned).keys()
