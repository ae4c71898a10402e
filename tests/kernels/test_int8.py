"""Int8: exact codes, a histogram that loses nothing, and thresholds on distributions whose best one is known."""

import math

import numpy as np
import pytest
import torch

from lib.base import BadInput
from lib.kernels.int8 import (
    BINS,
    METHODS,
    Histogram,
    dequantise,
    divergences,
    entropy_threshold,
    percentile_threshold,
    quantise,
    scale_of,
    threshold,
    weight_scales,
)


def histogram(*batches: np.ndarray) -> Histogram:
    seen = Histogram()
    for batch in batches:
        seen.add(torch.as_tensor(batch))
    return seen


def test_codes_are_rounded_half_to_even_and_clipped_symmetrically():
    values = torch.tensor([0.0, 0.25, 0.75, -0.25, -0.75, 1.0, 63.5, 64.0, -64.0, 1e9])
    codes = quantise(values, torch.tensor(0.5))
    assert codes.dtype == torch.int8
    assert codes.tolist() == [0, 0, 2, 0, -2, 2, 127, 127, -127, 127]


def test_the_error_is_at_most_half_a_step_inside_the_range_and_the_ends_are_exact():
    values = torch.linspace(-3, 3, 10_001, dtype=torch.float64)
    scale = scale_of(values.abs().max())
    error = (dequantise(quantise(values, scale), scale) - values).abs()
    assert error.max() <= scale / 2 * (1 + 1e-9)
    assert error[[0, -1]].max() < 1e-12
    assert set(quantise(values, scale).tolist()) == set(range(-127, 128))


def test_codes_survive_being_turned_into_values_and_back():
    codes = torch.arange(-127, 128).to(torch.int8)
    scale = torch.tensor(0.0123)
    assert torch.equal(quantise(dequantise(codes, scale), scale), codes)


@pytest.mark.parametrize("shape", [(5, 7), (4, 3, 2, 2)], ids=["Linear", "Conv2d"])
def test_each_output_channel_reaches_code_127_by_its_largest_weight(shape: tuple[int, ...]):
    draw = torch.Generator().manual_seed(0)
    weight = torch.randn(shape, generator=draw) * 10.0 ** torch.arange(shape[0]).reshape(-1, *[1] * (len(shape) - 1))
    weight[1] = 0.0
    scales = weight_scales(weight)
    assert scales.shape == (shape[0], *[1] * (len(shape) - 1))
    codes = quantise(weight, scales)
    assert codes.abs().flatten(1).amax(1).tolist() == [127, 0, *[127] * (shape[0] - 2)]
    assert scales[1].item() == 1.0
    assert torch.equal(dequantise(codes, scales)[1], weight[1])


def test_channels_of_their_own_are_never_coded_in_larger_steps_than_together():
    """No error bound is larger, and where rows differ in size the errors are far smaller."""
    weight = torch.randn(6, 50, generator=torch.Generator().manual_seed(0)) * 4.0 ** torch.arange(6)[:, None]
    own, common = weight_scales(weight), scale_of(weight.abs().max())
    assert (own <= common).all()
    errors = [(dequantise(quantise(weight, s), s) - weight).abs().amax(1) for s in (own, common)]
    assert (errors[0][:4] < errors[1][:4] / 2).all()
    assert errors[0].max() <= common / 2 * (1 + 1e-6)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_has_neither_code_nor_bin(bad: float):
    values = torch.tensor([1.0, bad, 2.0])
    for refuse in (lambda: quantise(values, torch.tensor(1.0)), lambda: Histogram().add(values)):
        with pytest.raises(BadInput, match="1 of 3 values are NaN or infinite"):
            refuse()


def test_a_histogram_grows_without_losing_a_count_and_does_not_depend_on_order():
    draw = np.random.default_rng(0)
    batches = [draw.normal(size=1000) * size for size in (1e-9, 1.0, 3e4, 0.1)] + [np.zeros((2, 5)), np.zeros(0)]
    once = histogram(np.concatenate([batch.ravel() for batch in batches]))
    for order in ([0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0], [2, 4, 0, 1, 5, 3]):
        grown = histogram(*[batches[at] for at in order])
        assert (grown.max, grown.width) == (once.max, once.width)
        assert np.array_equal(grown.counts, once.counts)
    everything = np.abs(np.concatenate([batch.ravel() for batch in batches]))
    theirs, _ = np.histogram(everything, bins=BINS, range=(0, BINS * once.width))
    assert np.array_equal(once.counts, theirs)
    assert once.counts.sum() == 4010


@pytest.mark.parametrize("largest", [1e-40, 0.999, 1.0, 1.001, 6.0, 3e38])
def test_at_least_2048_bins_lie_below_the_largest_value(largest: float):
    seen = histogram(np.array([largest, 0.0]))
    assert BINS / 2 <= seen.max / seen.width < BINS
    assert seen.counts[0] == seen.counts[int(seen.max / seen.width)] == 1


def plain_divergence(counts: list[int], i: int) -> float:
    """The published pseudo-code for one number of kept bins, step by step."""
    reference = counts[:i]
    reference[i - 1] += sum(counts[i:])
    candidate = [0.0] * i
    for level in range(128):
        inside = [j for j in range(i) if 128 * j // i == level and counts[j] > 0]
        for j in inside:
            candidate[j] = sum(counts[k] for k in inside) / len(inside)
    result = 0.0
    for p, q in zip(reference, candidate, strict=True):
        if p > 0:
            p, q = p / sum(reference), q / sum(candidate)
            result += p * math.log(p / q) if q > 0 else math.inf
    return result


@pytest.mark.parametrize("seed", range(4))
def test_divergences_are_those_of_the_pseudo_code(seed: int):
    """Dense and sparse histograms, falling and flat, the last bin always filled."""
    draw = np.random.default_rng(seed)
    counts = draw.poisson(30 * np.exp(-np.arange(170) / [10, 40, 200, 1000][seed]))
    counts[draw.random(170) < [0, 0.3, 0.7, 0][seed]] = 0
    counts[-1] = 1
    candidates, found = divergences(counts)
    plain = {i: plain_divergence(counts.tolist(), i) for i in range(128, 171)}
    assert candidates.tolist() == [i for i, value in plain.items() if value < math.inf]
    assert found == pytest.approx([plain[i] for i in candidates], abs=1e-11)
    assert candidates[found.argmin()] == min(plain, key=plain.get)


def test_a_histogram_that_128_levels_represent_has_no_divergence_and_is_not_clipped():
    """One filled bin a level, whatever they hold; and levels whose bins are all alike."""
    draw = np.random.default_rng(0)
    lone = np.zeros(BINS, dtype=np.int64)
    lone[np.arange(128) * 32 + draw.integers(0, 32, 128)] = draw.integers(1, 1000, 128)
    lone[-32:] = [0] * 31 + [5]
    steps = np.repeat(draw.integers(1, 1000, 128), 32)
    for counts in (lone, steps):
        candidates, found = divergences(counts)
        assert candidates[-1] == BINS
        assert found[-1] == 0
        assert (found[:-1] > 0).all()


def test_of_a_uniform_distribution_nothing_is_clipped():
    """Exactly for evenly spread values; within 1 % for a sample, whose bins are not exactly alike."""
    assert entropy_threshold(histogram(np.linspace(-3, 3, 400_000))) == 3.0
    sample = np.random.default_rng(0).uniform(-3, 3, 100_000)
    assert entropy_threshold(histogram(sample)) == pytest.approx(3, rel=0.01)


def test_a_far_outlier_is_clipped_and_the_levels_before_it_are_not():
    """100 levels up to 0.995, unequal, and a single 4: keeping it would merge the levels by threes."""
    levels = np.repeat((np.arange(100) + 0.5) / 100, 500 + 300 * (-1) ** np.arange(100))
    seen = histogram(levels, np.array([4.0]))
    assert 0.995 <= entropy_threshold(seen) <= 0.995 + seen.width
    assert threshold(seen, "max") == 4.0
    assert entropy_threshold(histogram(levels)) == 0.995


def test_a_laplace_distribution_is_clipped_within_its_tail():
    """Entropy keeps the bulk: between what 99 % and all of the values need."""
    magnitudes = np.random.default_rng(0).laplace(size=200_000)
    seen = histogram(magnitudes)
    assert percentile_threshold(seen, 99) < entropy_threshold(seen) < seen.max
    assert seen.share_above(entropy_threshold(seen)) < 0.01


def test_the_first_bin_counts_as_much_as_the_second():
    """The values' own first bin is the fullest; a first bin of 0 in its place would clip less, at 32.2."""
    seen = Histogram()
    seen.add(torch.tensor(np.random.default_rng(1).exponential(size=3000) ** 2))
    assert entropy_threshold(seen) == 26.0


def test_a_channel_of_the_smallest_numbers_has_steps_above_0():
    weight = torch.tensor([[1e-44, -1e-44], [1.0, 0.5]])
    scales = weight_scales(weight)
    assert (scales > 0).all()
    assert quantise(weight, scales)[1].tolist() == [127, 64]


def test_zeros_do_not_move_the_threshold_unless_they_are_asked_to():
    """A ReLU's zeros are coded exactly by any threshold; counted, they drive the pseudo-code to clip."""
    draw = np.random.default_rng(0)
    positive = np.abs(draw.normal(size=100_000))
    alone, half = histogram(positive), histogram(positive, np.zeros(100_000))
    assert threshold(half, "entropy") == threshold(alone, "entropy")
    assert threshold(half, "entropy_with_zeros") < 0.8 * threshold(half, "entropy")


def test_a_percentile_is_the_first_edge_below_which_so_many_lie():
    seen = histogram(np.arange(10_000) / 1000)
    assert seen.width == 1 / 256
    for percent in (10.0, 50.0, 99.0):
        exact = np.quantile(np.arange(10_000) / 1000, percent / 100)
        assert exact <= percentile_threshold(seen, percent) <= exact + 2 * seen.width
    assert percentile_threshold(seen, 100) == 9.999
    assert threshold(seen, "percentile") == percentile_threshold(seen, 99.99)


def test_a_percentage_of_a_whole_number_of_values_is_that_number():
    """99.9 / 100 * 1000 is 999.0000000000001 in floating point, and the thousandth value is the outlier."""
    seen = histogram(np.append(np.arange(999) / 1000, 100.0))
    assert percentile_threshold(seen, 99.9) == 1.0
    assert percentile_threshold(histogram(np.append(np.zeros(7), np.full(93, 1.0))), 7) < 0.001


def test_the_clipped_share_is_what_lies_beyond_the_threshold():
    values = np.random.default_rng(0).normal(size=50_000)
    seen = histogram(values)
    edge = 700 * seen.width
    assert seen.share_above(edge) == np.mean(np.abs(values) >= edge)
    assert seen.share_above(seen.max) == 0
    assert histogram(np.array([1.0, 2.0])).share_above(2.0) == 0  # the maximum lies on an edge


def test_of_equally_good_thresholds_the_one_that_clips_least_is_taken():
    """Two values apart: with either number of bins each value is in a level of its own."""
    assert entropy_threshold(histogram(np.repeat([0.3, 3.0], [5, 1]))) == 3.0


@pytest.mark.parametrize("method", METHODS)
def test_values_that_are_all_zero_or_all_alike(method: str):
    assert threshold(histogram(np.zeros(10)), method) == 0
    assert scale_of(torch.tensor(threshold(histogram(np.zeros(10)), method))).item() == 1
    assert threshold(histogram(np.full(10, -0.3)), method) == 0.3


def test_what_makes_no_sense_is_refused():
    with pytest.raises(BadInput, match="calibration 'mse': known are entropy"):
        threshold(histogram(np.ones(1)), "mse")
    with pytest.raises(BadInput, match="an empty histogram has no threshold"):
        threshold(Histogram())
    with pytest.raises(BadInput, match="percentile 0: it must be above 0"):
        percentile_threshold(histogram(np.ones(1)), 0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_small_weights_in_a_narrow_type_reach_code_127_too(dtype):
    weight = (1e-5 * torch.randn(4, 64, generator=torch.Generator().manual_seed(0))).to(dtype)
    scales = weight_scales(weight)
    assert scales.dtype == torch.float32
    assert quantise(weight, scales).abs().amax(1).tolist() == [127] * 4


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_values_get_the_nearest_codes_too(dtype):
    values = torch.randn(5000, generator=torch.Generator().manual_seed(0)).to(dtype)
    scale = scale_of(values.float().abs().max())
    expected = (values.double() / scale.double()).round().to(torch.int8)
    assert torch.equal(quantise(values, scale), expected)
    assert torch.equal(quantise(values, float(scale)), expected)


def test_a_bin_that_amax_divides_is_not_clipped():
    histogram = Histogram()
    histogram.add(torch.tensor([0.5, 1.0, 1.5, 2.0]))
    width = histogram.width
    assert histogram.share_above(1.0) == 0.75  # an edge: the bins from 1.0 on
    assert histogram.share_above(1.0 + width / 2) == 0.5  # within a bin: only those beyond it
