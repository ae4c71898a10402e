"""Simulated int8: exact products, thresholds from what a layer sees, zeros that stay, and accuracy that holds."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from lib import pruners
from lib.base import BadInput
from lib.data import vision
from lib.kernels.int8 import quantise, weight_scales
from lib.kernels.two_four import compress, decompress, has_pattern
from lib.models.lenet import small_lenet
from lib.pruners import calibration
from lib.pruners.layers import as_matrix
from lib.training.examples import Examples
from lib.training.supervised import Training, accuracy, train
from tests.pruners.by_keyword import ByKeyword


@pytest.fixture(scope="module")
def digits() -> Examples:
    torch.set_num_threads(1)
    return Examples.of(vision.load("digits"))


@pytest.fixture(scope="module")
def trained(digits: Examples) -> nn.Module:
    """A LeNet with 2:4 masks attached, trained for seconds; the first convolution stays dense, as section 4.2 says."""
    torch.manual_seed(0)
    model = small_lenet()
    scores = pruners.magnitude(model).only(["conv2.weight", "fc1.weight", "fc2.weight"])
    pruners.attach(model, pruners.n_of_m(scores))
    train(model, digits, Training(epochs=12, batch=64, learning_rate=0.1), seed=0)
    return model


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_simulation_that_is_cast_to_a_narrow_type_still_adds_up_exactly(dtype: torch.dtype):
    torch.manual_seed(0)
    inputs = torch.rand(8, 512).to(dtype)
    model = nn.Sequential(nn.Linear(512, 4))
    nn.init.uniform_(model[0].weight, 0.9, 1)  # sums of codes pass float16's largest number
    simulated = calibration.simulated(model, [inputs.float()])
    expected = simulated(inputs.float())
    assert torch.equal(simulated.to(dtype)(inputs), expected.to(dtype))


def filled(layer: nn.Module, seed: int = 0) -> nn.Module:
    """Integer weights up to 127 in every channel and no bias: every scale is 1, so outputs are integers."""
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        layer.weight.copy_(torch.randint(-127, 128, layer.weight.shape, generator=draw))
        layer.weight.flatten(1)[:, 0] = 127
    return layer


def integers(*shape: int) -> torch.Tensor:
    return torch.randint(-127, 128, shape, generator=torch.Generator().manual_seed(1)).float()


@pytest.mark.parametrize("inner", [8, 1000, 5000])
def test_a_linear_layer_is_numpys_int32_product(inner: int):
    """Random codes, and the largest sums there can be; 5000 x 127 x 127 is beyond what float32 counts exactly."""
    layer = filled(nn.Linear(inner, 6, bias=False))
    with torch.no_grad():
        layer.weight[0] = 127.0
    inputs = integers(5, inner)
    inputs[0] = 127.0
    inputs[1] = 127.0 - torch.arange(inner) % 2
    simulated = calibration.Int8(copy.deepcopy(layer), 127.0)
    codes = inputs.numpy().astype(np.int8)
    exact = codes.astype(np.int32) @ layer.weight.detach().numpy().astype(np.int32).T
    sums = simulated.layer(torch.from_numpy(codes).to(simulated.layer.weight.dtype))
    assert np.array_equal(sums.detach().numpy().astype(np.int64), exact)
    assert np.array_equal(simulated(inputs).numpy(), exact.astype(np.float32))


def test_sums_are_in_the_fastest_type_that_is_exact():
    """127 x 127 x 1040 is the last below 2^24."""
    for inner, dtype in [(1040, torch.float32), (1041, torch.float64)]:
        layer = nn.Linear(inner, 1)
        nn.init.ones_(layer.weight)
        assert calibration.Int8(layer, 1.0).layer.weight.dtype == dtype
    uneven = nn.Linear(1041, 2)  # the fullest row decides, not the emptiest
    nn.init.ones_(uneven.weight)
    uneven.weight.data[0] = 0
    assert calibration.Int8(uneven, 1.0).layer.weight.dtype == torch.float64


def test_sums_stay_exact_when_other_codes_are_loaded():
    full, light = nn.Linear(1041, 1), nn.Linear(1041, 1)
    nn.init.ones_(full.weight)
    nn.init.zeros_(light.weight)
    full, light = calibration.Int8(full, 1.0), calibration.Int8(light, 1.0)
    model = nn.Sequential(light)
    assert light.layer.weight.dtype == torch.float32
    model.load_state_dict(nn.Sequential(full).state_dict())
    assert light.layer.weight.dtype == torch.float64
    assert torch.equal(light.codes, full.codes)
    inputs = torch.linspace(-1, 1, 1041)
    assert torch.equal(model(inputs), full(inputs))


@pytest.mark.parametrize("options", [{}, {"stride": 2, "padding": 1}, {"groups": 2}, {"dilation": 2, "padding": 2}])
def test_a_convolution_is_numpys_int32_product(options: dict):
    layer = filled(nn.Conv2d(4, 6, 3, bias=False, **options))
    inputs = integers(2, 4, 9, 9)
    window = {name: value for name, value in options.items() if name != "groups"}
    groups = options.get("groups", 1)
    columns = nn.functional.unfold(inputs, 3, **window).numpy().astype(np.int32)  # [N, 4 x 9, positions]
    weight = layer.weight.detach().numpy().astype(np.int32).reshape(groups, 6 // groups, -1)
    parts = np.split(columns, groups, axis=1)
    exact = np.concatenate([w @ part for w, part in zip(weight, parts, strict=True)], axis=1)
    found = calibration.Int8(copy.deepcopy(layer), 127.0)(inputs)
    assert np.array_equal(found.flatten(2).numpy(), exact.astype(np.float32))


@pytest.mark.parametrize("layer", [nn.Linear(7, 3), nn.Conv2d(7, 3, 1)], ids=["Linear", "Conv2d"])
def test_scales_and_bias_return_the_codes_to_values(layer: nn.Module):
    """The definition in float64: (codes x step) times (codes x step), plus the bias."""
    values = torch.randn(5, 7, generator=torch.Generator().manual_seed(0)).reshape(
        5, 7, *[1] * (layer.weight.dim() - 2)
    )
    weight = layer.weight.detach()
    scales, step = weight_scales(weight), torch.tensor(1.5 / 127)
    coded = quantise(values, step).double() * step
    expected = coded.flatten(1) @ (quantise(weight, scales).double() * scales).flatten(1).T + layer.bias.detach()
    found = calibration.Int8(copy.deepcopy(layer), 1.5)(values)
    torch.testing.assert_close(found.flatten(1).double(), expected, rtol=1e-5, atol=1e-6)
    with torch.autocast("cpu", torch.bfloat16):  # whose products would not be exact
        assert torch.equal(calibration.Int8(copy.deepcopy(layer), 1.5)(values), found)


def test_sums_of_a_transposed_convolution_are_exact_where_many_of_its_products_meet():
    """Each output adds up to 16 x 512 products, which pass 2^24."""
    torch.manual_seed(0)
    layer = nn.ConvTranspose2d(512, 1, 4, bias=False)
    nn.init.uniform_(layer.weight, 0.5, 1)
    coded = calibration.quantised(nn.Sequential(layer), {"0.weight": 1.0})[0].layer
    codes = torch.randint(64, 128, (1, 512, 8, 8)).double()
    assert torch.equal(coded(codes.to(coded.weight.dtype)).double(), copy.deepcopy(coded).double()(codes))


def test_a_layer_that_is_called_by_keyword_is_simulated_as_any_other():
    layer, batch = filled(nn.Linear(4, 3)), torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    found = calibration.simulated(ByKeyword(layer), [batch])
    assert isinstance(found.layer, calibration.Int8)
    assert torch.equal(found(batch), calibration.simulated(layer, [batch])(batch))


def test_a_layer_that_runs_twice_has_one_threshold_over_both_its_inputs():
    layer = nn.Linear(1, 1, bias=False)
    nn.init.constant_(layer.weight, 10.0)
    model = nn.Sequential(layer, nn.ReLU(), layer)
    seen = calibration.observe(model, [torch.tensor([[1.0], [2.0]])])
    assert list(seen) == ["0.weight"]
    assert seen["0.weight"].max == 20.0
    assert seen["0.weight"].counts.sum() == 4
    simulated = calibration.quantised(model, {"0.weight": 20.0})
    assert simulated[0] is simulated[2]
    assert simulated(torch.tensor([[2.0]])).item() == pytest.approx(200, rel=0.05)


def test_observing_counts_every_input_of_every_batch_the_first_layers_too(digits: Examples):
    model = small_lenet().train()
    batches = list(digits.sample(count=100, batch=30))
    assert [len(batch) for batch in batches] == [30, 30, 30, 10]
    seen = calibration.observe(model, batches)
    assert [int(histogram.counts.sum()) for histogram in seen.values()] == [6400, 16 * 16 * 100, 12800, 6400]
    assert seen["conv1.weight"].max == max(float(batch.abs().max()) for batch in batches)
    whole = calibration.observe(model, [torch.cat(batches)])["conv1.weight"]
    assert np.array_equal(whole.counts, seen["conv1.weight"].counts)


def test_observing_is_done_in_evaluation_mode():
    """Dropout would double what the next layer sees, and the batch norm would learn from the calibration batches."""
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Dropout(0.5), nn.Linear(3, 2)).train()
    batch = torch.full((2, 3), 4.0)
    seen = calibration.observe(model, [batch])["2.weight"]
    assert seen.max == pytest.approx(4, rel=1e-4)
    assert not model[0].running_mean.any()


def test_calibration_inputs_are_training_inputs_drawn_by_the_seed(digits: Examples):
    first, again, other = (torch.cat([*digits.sample(count=64, seed=seed)]) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    known = {row.numpy().tobytes() for row in digits.scaled(digits.train_inputs).flatten(1)}
    assert {row.numpy().tobytes() for row in first.flatten(1)} <= known
    assert sum(len(batch) for batch in digits.sample(count=10**6)) == len(digits.train_labels)


def test_the_model_is_left_as_it_was_and_masks_may_be_attached_or_baked_in(digits: Examples, trained: nn.Module):
    trained.train()
    before = copy.deepcopy(trained.state_dict())
    batches = [*digits.sample(count=128)]
    simulated = calibration.simulated(trained, batches)
    assert trained.training
    assert not simulated.training
    assert all(torch.equal(before[name], value) for name, value in trained.state_dict().items())
    assert not trained.conv1._forward_pre_hooks
    assert len(pruners.attached(trained)) == 3
    plain = copy.deepcopy(trained)
    pruners.detach(plain)
    assert torch.equal(calibration.simulated(plain, batches)(batches[0]), simulated(batches[0]))


def test_zeros_of_a_mask_stay_and_the_compressed_format_takes_the_codes(digits: Examples, trained: nn.Module):
    simulated = calibration.simulated(trained, digits.sample(count=128))
    for name, mask in pruners.attached(trained).items():
        codes = simulated.get_submodule(name.removesuffix(".weight")).codes
        assert codes.dtype == torch.int8
        assert not codes[~mask].any()
        matrix = as_matrix(codes)
        assert has_pattern(matrix)
        assert torch.equal(decompress(*compress(matrix)), matrix)


@pytest.mark.parametrize("method", ["entropy", "max", "percentile"])
def test_accuracy_stays_within_a_point_and_bad_thresholds_lose_it(digits: Examples, trained: nn.Module, method: str):
    whole = accuracy(trained, digits)
    assert whole > 95
    assert abs(accuracy(calibration.simulated(trained, digits.sample(), method), digits) - whole) <= 1
    assert abs(accuracy(calibration.simulated(trained, digits.sample(), method), digits, "bfloat16") - whole) <= 1
    seen = calibration.observe(trained, digits.sample())
    poor = calibration.quantised(trained, {name: histogram.max / 20 for name, histogram in seen.items()})
    assert accuracy(poor, digits) < whole - 20


def test_the_report_names_each_layers_ranges_and_what_is_clipped(digits: Examples, trained: nn.Module):
    seen = calibration.observe(trained, digits.sample())
    table = calibration.report(trained, seen, {name: histogram.max / 2 for name, histogram in seen.items()})
    assert list(table) == ["layer", "weight_amax", "input_amax", "input_max", "clipped"]
    assert list(table.layer) == ["conv1.weight", "conv2.weight", "fc1.weight", "fc2.weight"]
    assert table.weight_amax[0] == float(trained.conv1.weight.detach().abs().max())
    pixels = torch.cat([*digits.sample()]).abs()
    assert table.input_max[0] == float(pixels.max())
    assert table.clipped[0] == pytest.approx(float((pixels > pixels.max() / 2).double().mean()), abs=1e-3)


class Parts(nn.Module):
    """Layers of several kinds, one of which may be left out."""

    def __init__(self, use_spare: bool):
        super().__init__()
        self.embed, self.rnn, self.norm = nn.Embedding(5, 4), nn.LSTM(4, 6, batch_first=True), nn.LayerNorm(6)
        self.head, self.spare, self.use_spare = nn.Linear(6, 3), nn.Linear(6, 3), use_spare

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(self.rnn(self.embed(tokens))[0])
        return self.head(hidden) + (self.spare(hidden) if self.use_spare else 0)


def test_other_layers_stay_in_floating_point():
    torch.manual_seed(0)
    model, tokens = Parts(use_spare=True), torch.randint(5, (8, 7))
    simulated = calibration.simulated(model, [tokens])
    assert isinstance(simulated.head, calibration.Int8)
    assert isinstance(simulated.rnn, nn.LSTM)
    assert torch.equal(simulated.rnn.weight_ih_l0, model.rnn.weight_ih_l0)
    torch.testing.assert_close(simulated(tokens), model.eval()(tokens), atol=0.03, rtol=0)


def test_a_layer_that_no_batch_reaches_is_left_out_or_if_asked_for_refused_by_name():
    batches = [torch.zeros(1, 2, dtype=torch.long)] * 2
    with pytest.raises(BadInput, match=r"spare\.weight: never reached by the calibration data"):
        calibration.observe(Parts(use_spare=False), batches, select=["head.weight", "spare.weight"])
    with pytest.warns(pruners.LeftOut, match=r"spare\.weight is left out: never reached by the calibration data"):
        simulated = calibration.simulated(Parts(use_spare=False), batches)
    assert [type(simulated.head), type(simulated.spare)] == [calibration.Int8, nn.Linear]


def test_no_batches_inputs_that_are_not_finite_and_wrong_names_are_refused():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    with pytest.raises(BadInput, match="no batches to calibrate on"):
        calibration.simulated(model, [])
    nn.init.constant_(model[0].bias, float("nan"))
    with pytest.raises(BadInput, match=r"the input of 1\.weight: 2 of 2 values are NaN or infinite"):
        calibration.simulated(model, [torch.zeros(1, 2)])
    with pytest.raises(BadInput, match=r"amax is given for 9\.weight; int8 can take 0\.weight, 1\.weight"):
        calibration.quantised(model, {"9.weight": 1.0})


def test_all_zero_weights_and_inputs_give_the_bias():
    model = nn.Linear(4, 3)
    nn.init.zeros_(model.weight)
    simulated = calibration.simulated(model, [torch.zeros(2, 4)])
    assert isinstance(simulated, calibration.Int8)
    assert torch.equal(simulated(torch.ones(2, 4)), model.bias.detach().expand(2, 3))


def test_a_quantised_layer_stands_for_its_layer_where_a_model_asks_more_of_it():
    """Skip connections give a transposed convolution the size of what comes out; some models ask for a width."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.fc = nn.ConvTranspose2d(2, 2, 3, stride=2), nn.Linear(8, 3)

        def forward(self, images):
            wide = self.up(images, output_size=(8, 8))
            return self.fc(wide.reshape(-1, self.fc.in_features))

    torch.manual_seed(0)
    model, images = Net(), torch.randn(2, 2, 3, 3)
    found = calibration.simulated(model, [images])(images)
    assert torch.allclose(found, model(images), atol=0.1)


def test_layers_that_share_a_weight_or_are_sparse_stay_in_floating_point_with_a_warning():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2))
    model[1].weight = model[0].weight
    model = pruners.sparse(model, "2")
    with pytest.warns(pruners.LeftOut) as said:
        simulated = calibration.simulated(model, [torch.randn(3, 4)])
    assert [str(one.message) for one in said] == [
        "0.weight is left out: another layer shares its weight, so it stays in floating point",
        "2.weight is left out: pruners.sparse has made it and int8 codes are dense, so it stays in floating point",
    ]
    assert [isinstance(layer, calibration.Int8) for layer in simulated] == [False, False, False, True]


def test_what_attention_reads_stays_in_floating_point_for_the_reason_that_it_is_not_called():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention, self.head = nn.MultiheadAttention(8, 2), nn.Linear(8, 2)

        def forward(self, inputs):
            return self.head(self.attention(inputs, inputs, inputs)[0])

    model, batch = Net(), torch.randn(5, 8)
    with pytest.warns(
        pruners.LeftOut, match=r"out_proj\.weight is left out: a function reads its weight, as attention"
    ):
        seen = calibration.observe(model, [batch])
    assert seen["head.weight"].counts.sum() == batch.numel()  # it was asked after the calibration, and not counted


def test_a_layer_with_hooks_or_a_computed_bias_stays_in_floating_point_and_is_named():
    torch.manual_seed(0)
    model, inputs = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).eval(), torch.randn(64, 4)
    model[0].register_forward_hook(lambda module, arguments, output: output + 1.0)
    with pytest.warns(UserWarning, match=r"0\.weight.*it has hooks, which would see codes"):
        simulated = calibration.simulated(model, [inputs], "max")
    assert (simulated(inputs) - model(inputs)).abs().max() < 0.05
    with pytest.raises(BadInput, match="it has hooks"):
        calibration.quantised(model, {"0.weight": 1.0})


def test_a_method_that_is_not_known_is_refused_before_any_batch_is_seen():
    def batches():
        raise AssertionError("a batch was asked for")
        yield

    with pytest.raises(BadInput, match="calibration 'entrpy': known are entropy"):
        calibration.ranges(nn.Linear(4, 2), batches(), "entrpy")
    for amax in (["weight"], {"weight": "1"}):
        with pytest.raises(BadInput, match=r"expected \{parameter name: number\}"):
            calibration.quantised(nn.Linear(4, 2), amax)
