"""FLOPs against the numbers everyone knows and against counting by hand."""

from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

from lib import pruners
from lib.base import BadInput, type_of
from lib.kernels.block_circulant import circulant
from lib.models.lenet import lenet5
from lib.models.resnet import resnet20
from lib.papers.gst import measures
from lib.pruners import groups, kinds
from lib.pruners.inputs import duplicate
from lib.pruners.sizes import flops, operations_per_byte, parameters, sizes
from lib.pruners.uses import positions, uses
from tests.pruners.by_keyword import ByKeyword


def test_parameters_are_weights_biases_and_norms_whether_masked_or_not():
    model = nn.Sequential(nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8))
    assert parameters(model) == 8 * 4 * 9 + 8 + 2 * 8
    pruners.attach(model, pruners.n_of_m(pruners.magnitude(model)))
    assert parameters(model) == 8 * 4 * 9 + 8 + 2 * 8


def test_a_linear_layer_uses_each_weight_once():
    assert flops(nn.Linear(3, 5), (3,)) == 2 * 15


def test_a_convolution_uses_each_weight_at_every_output_position():
    assert flops(nn.Conv2d(3, 8, 3, stride=2, padding=1), (3, 10, 10)) == 2 * (8 * 3 * 9) * 5 * 5


@pytest.mark.parametrize(
    ("model", "shape", "millions"), [(lenet5(), (1, 28, 28), 2.293), (resnet20(), (3, 32, 32), 40.81)]
)
def test_known_networks_have_their_known_multiplications(model: nn.Module, shape: tuple, millions: float):
    assert flops(model, shape) / 2e6 == pytest.approx(millions, rel=1e-3)


def test_only_kept_weights_count_and_the_model_is_left_as_it_was():
    model = nn.Sequential(nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 4)).train()
    before = model[1].running_mean.clone()
    pruners.attach(model, pruners.n_of_m(pruners.magnitude(model)))
    model[1].eval()  # frozen, as in fine-tuning
    modes = [module.training for module in model.modules()]
    assert flops(model, (4, 4, 4)) == 2 * (72 * 4 + 32)
    assert [module.training for module in model.modules()] == modes
    assert model.training
    assert not model[1].training
    assert torch.equal(model[1].running_mean, before)
    assert not model[0]._forward_hooks


def test_a_layer_that_runs_twice_counts_twice():
    layer = nn.Linear(4, 4)
    assert flops(nn.Sequential(layer, layer), (4,)) == 2 * 2 * 16


def test_sizes_of_a_small_network_counted_by_hand():
    """Two layers, 8 x 16 pruned to 2:4 and 2 x 8 dense; 16-bit values, 16-bit indices, 32-bit row pointers."""
    model = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 2))
    scores = pruners.magnitude(model)
    pruners.attach(model, pruners.n_of_m(scores.only(["0.weight"])))
    assert sizes(model, (16,)) == {
        "parameters": 128 + 8 + 16 + 2,
        "weights": 144,
        "kept": 64 + 16,
        "bytes_dense": 2 * 154,
        "bytes_csr": 2 * 10 + (64 + 16) * (2 + 2) + 4 * (9 + 3),
        "bytes_bitmap": 2 * 10 + 2 * 80 + 144 // 8,
        "bytes_two_four": 2 * 10 + 64 * 2 + 64 * 2 // 8 + 16 * 2,
        "flops_dense": 2 * 144,
        "flops": 2 * 80,
    }


def test_operations_per_byte_counted_by_hand():
    network = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
    moved = (15 + 4 * 8) + (10 + 4 * 7)  # weights once; of each example what goes in and comes out
    assert operations_per_byte(network, (3,), batch=4, value_bits=16) == 2 * 4 * 25 / (2 * moved)
    assert operations_per_byte(network, (3,), batch=4, value_bits=32) == 2 * 4 * 25 / (4 * moved)
    convolution = nn.Conv2d(3, 8, 3)
    assert operations_per_byte(convolution, (3, 5, 5), batch=1) == 2 * 216 * 9 / (2 * (216 + 75 + 72))
    assert not convolution._forward_hooks


def test_a_layer_that_is_not_used_neither_computes_nor_moves_anything():
    class Net(nn.Sequential):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self[0](x)

    model = Net(nn.Linear(3, 5), nn.Linear(3, 5))
    assert operations_per_byte(model, (3,), batch=4) == operations_per_byte(model[0], (3,), batch=4)


def test_each_layer_that_shares_a_weight_reads_it_and_a_look_up_moves_nothing_for_a_product():
    class Net(nn.Module):
        def __init__(self, tied: bool):
            super().__init__()
            self.embedding, self.a, self.b = nn.Embedding(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
            if tied:
                self.embedding.weight = self.b.weight = self.a.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.b(self.a(x + self.embedding(torch.tensor([0]))))

    assert operations_per_byte(Net(tied=True), (4,), batch=2) == operations_per_byte(Net(tied=False), (4,), batch=2)
    cell, layer = nn.LSTMCell(4, 4), nn.Linear(4, 16)
    cell.weight_hh = layer.weight
    with pytest.raises(BadInput, match=r"0\.weight is inside an LSTMCell$"):
        operations_per_byte(nn.ModuleList([layer, cell])[:1].append(cell), (4,), batch=2)


def test_the_papers_operations_per_byte_with_256_transitions_and_one_image():
    """Figure 1 prints 50 to 60 for TD3 and more than 100 for ResNet-34."""
    assert 50 < measures.operations_per_byte("critic of HalfCheetah", 256) < 60
    assert measures.operations_per_byte("ResNet-34", 1) > 100
    with pytest.raises(BadInput, match="network 'resnet': known are actor of HalfCheetah"):
        measures.operations_per_byte("resnet", 1)


def test_biases_are_stored_in_the_width_of_the_values():
    assert sizes(nn.Sequential(nn.Linear(16, 8)), (16,), 8)["bytes_dense"] == 136


@pytest.mark.parametrize("releasable", [False, True])
def test_weights_that_share_coefficients_have_no_sizes_until_they_are_detached(releasable: bool):
    model = nn.Sequential(nn.Linear(16, 8))
    groups.group(model, {"0.weight": circulant(4)}, releasable=releasable)
    with pytest.raises(BadInput, match=r"0\.weight shares coefficients, .* pruners.detach the model first"):
        sizes(model, (16,))
    pruners.detach(model)
    assert sizes(model, (16,))["parameters"] == 136


@pytest.mark.parametrize("layer", [nn.Linear(3, 5), nn.ConvTranspose1d(3, 5, 2)])
def test_a_layer_that_is_called_by_keyword_counts_as_any_other(layer: nn.Module):
    shape = (3, 4) if isinstance(layer, nn.ConvTranspose1d) else (3,)
    assert flops(ByKeyword(layer), shape) == flops(layer, shape)
    assert operations_per_byte(ByKeyword(layer), shape, batch=4) == operations_per_byte(layer, shape, batch=4)


def test_the_input_of_a_layer_is_told_from_other_arguments_by_its_name():
    class Net(nn.Module):
        def __init__(self, **sizes: list[int]):
            super().__init__()
            self.layer, self.sizes = nn.ConvTranspose2d(3, 5, 3), sizes

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(**self.sizes, input=x)

    assert flops(Net(output_size=[6, 6]), (3, 4, 4)) == flops(Net(), (3, 4, 4))


@pytest.mark.parametrize("layer", [nn.LSTM(4, 4), nn.MultiheadAttention(4, 2)])
def test_what_layers_of_several_weights_move_is_refused_by_name(layer: nn.Module):
    with pytest.raises(BadInput, match=rf"0\.(weight_ih_l0|in_proj_weight) is inside {type_of(layer)}$"):
        operations_per_byte(nn.Sequential(layer), (3, 4), batch=1)


def test_of_a_sparse_copy_all_is_counted_as_of_the_network_that_it_was_made_of():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention, self.fc = nn.MultiheadAttention(8, 2), nn.Linear(8, 4)

        def forward(self, inputs):
            return self.fc(self.attention(inputs, inputs, inputs)[0])

    torch.manual_seed(0)
    model = Net()
    pruners.attach(model, pruners.unstructured(pruners.magnitude(model), 0.5))
    small, gone = (
        pruners.sparse(model),
        int((model.attention.out_proj.weight == 0).sum() + (model.fc.weight == 0).sum()),
    )
    expected = sizes(model, (5, 8))
    assert sizes(small, (5, 8)) == expected | {"parameters": expected["parameters"] - gone}
    assert flops(small, (5, 8)) == flops(model, (5, 8))
    last = nn.Sequential(nn.Linear(8, 4))
    assert operations_per_byte(pruners.sparse(last), (8,), 2) == operations_per_byte(last, (8,), 2)


@pytest.mark.parametrize("count", [flops, sizes])
def test_products_that_are_not_counted_are_named(count):
    class Own(nn.Linear):
        def forward(self, inputs):
            return super().forward(inputs)

    with pytest.warns(
        pruners.Partial, match=r"this count of FLOPs speaks of 50 % .* not of 1\.weight \(Own is a Linear"
    ):
        count(nn.Sequential(nn.Linear(8, 8), Own(8, 8)), (8,))


@pytest.mark.parametrize("steps", [63, 64, 128])
def test_a_recurrent_layer_uses_its_weights_at_every_step_as_many_as_its_weights_have_numbers_too(steps: int):
    assert flops(nn.LSTM(16, 32, batch_first=True), (steps, 16)) == 2 * steps * 4 * 32 * (16 + 32)


def test_an_output_as_large_as_the_weight_is_no_copy_of_it(monkeypatch: pytest.MonkeyPatch):
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.kernel = nn.Parameter(torch.randn(4, 4, 3, 3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.conv2d(x, self.kernel, padding=1)

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.head = nn.Embedding(9, 4), nn.Linear(4, 9, bias=False)
            self.head.weight = self.words.weight

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return F.linear(self.words(tokens), self.words.weight)

    monkeypatch.setitem(kinds.KINDS, Own, kinds.fixed(kernel="oikk"))
    assert positions(Own(), (4, 6, 6)) == {"kernel": 36}
    assert uses(Tied(), torch.arange(9)) == {"head.weight": 9}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    "form", [parametrizations.spectral_norm, parametrizations.orthogonal, parametrizations.weight_norm]
)
def test_products_that_compute_a_weight_are_none_of_its_layers(form, training: bool):
    layer = nn.MultiheadAttention(4, 2)
    form(layer, "in_proj_weight")
    tokens = torch.randn(10, 1, 4)
    assert uses(layer, (tokens, tokens, tokens), training=training) == {"in_proj_weight": 10, "out_proj.weight": 10}


class Tied(nn.Module):
    """An autoencoder whose decoder reads the encoder's weight."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(self.encoder(x), self.encoder.weight.t())


class Broadcast(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        return (x[..., None, :] * self.layer.weight).sum(-1)


@pytest.mark.parametrize(("model", "name", "times"), [(Tied(), "encoder.weight", 2), (Broadcast(), "layer.weight", 1)])
def test_a_weight_counts_wherever_it_is_read(model: nn.Module, name: str, times: int):
    assert uses(model, torch.randn(7, 8)) == {name: 7 * times}


def test_instance_norms_keep_their_running_statistics_too():
    model = nn.Sequential(nn.Conv1d(4, 4, 1), nn.InstanceNorm1d(4, track_running_stats=True))
    before = model[1].running_mean.clone()
    uses(model, torch.randn(8, 4, 6), training=True)
    assert torch.equal(model[1].running_mean, before)


@pytest.mark.parametrize(
    "norm",
    [
        nn.BatchNorm1d(4),
        parametrizations.spectral_norm(nn.Linear(4, 4)),
    ],
)
def test_to_count_uses_in_training_mode_leaves_running_statistics_as_they_are(norm: nn.Module):
    model = nn.Sequential(nn.Linear(4, 4), norm, nn.Linear(4, 2))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    uses(model, torch.randn(8, 4), training=True)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("count", [flops, sizes, partial(operations_per_byte, batch=1)])
def test_a_shape_that_does_not_fit_is_refused_by_its_name(count):
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(144, 2))
    count(model, (1, 8, 8))
    with pytest.raises(BadInput, match=r"^shape=\(3, 8, 8\): Sequential cannot compute with this batch: .*3 channels"):
        count(model, (3, 8, 8))
    for shape in (8, (1, 8.0, 8), (1, 0, 8)):
        with pytest.raises(BadInput, match=r"^shape=.*: expected the sizes of an example without its batch"):
            count(model, shape)


class Keeping(nn.Module):
    """Keeps what it has computed, and a number that a parameter gave, as models do that are looked into."""

    def __init__(self):
        super().__init__()
        self.layer, self.kept = nn.Linear(8, 4), {}
        self.register_buffer("scale", self.layer.weight.mean())

    def forward(self, x: Tensor) -> Tensor:
        self.kept["hidden"] = [self.layer(x)]
        return self.kept["hidden"][0]


def test_a_model_that_keeps_what_it_computed_is_copied_all_the_same():
    model, x = Keeping(), torch.randn(3, 8)
    out = model(x)
    twin = duplicate(model)
    assert torch.equal(twin.kept["hidden"][0], out)
    assert torch.equal(twin(x), out)
    assert torch.equal(twin.scale, model.scale)


def test_of_a_weight_that_is_used_in_part_the_part_counts():
    class Part(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(8, 5, bias=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[..., :4] @ self.fc.weight[:, :4].T

    assert positions(Part(), (7, 8)) == {"fc.weight": 3.5}
    assert flops(Part(), (7, 8)) == sizes(Part(), (7, 8))["flops"] == 2 * 7 * 4 * 5


@pytest.mark.parametrize("count", [flops, sizes, lambda model, shape: operations_per_byte(model, shape, 1)])
def test_a_layer_without_a_shape_is_refused_until_it_has_been_run(count):
    model = nn.Sequential(nn.LazyLinear(4), nn.Linear(4, 2))
    with pytest.raises(BadInput, match=r"^0\.weight has no shape yet: run the model once$"):
        count(model, (8,))
    model(torch.zeros(1, 8))
    assert count(model, (8,)) == count(nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 2)), (8,))
