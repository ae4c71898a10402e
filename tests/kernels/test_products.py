"""The rivals of 2:4: int8 and CSR products against sums in float64, and padding that changes no product."""

import pytest
import torch

from lib.base import BadInput
from lib.kernels.products import csr, csr_linear, int8_linear, int_linear, padded, quantised


def matrices(m: int, n: int, k: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Activations [n, k] and a weight [m, k]."""
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(n, k, generator=draw), torch.randn(m, k, generator=draw)


def test_padding_adds_zeros_below_and_to_the_right_and_no_more_than_needed():
    ones = torch.ones(3, 5)
    assert padded(ones, 2, 4).shape == (4, 8)
    assert torch.equal(padded(ones, 2, 4)[:3, :5], ones)
    assert padded(ones, 2, 4).sum() == 15
    assert padded(ones, 3, 5) is ones
    assert padded(ones, 1, 5) is ones
    assert padded(torch.ones(0, 5), 8, 8).shape == (0, 8)


def test_int8_times_int8_is_exact_where_pairs_of_products_overflow_16_bits():
    x, weight = torch.full((2, 3000), 127, dtype=torch.int8), torch.full((3, 3000), -127, dtype=torch.int8)
    found = int_linear(x, weight)
    assert found.dtype == torch.int32
    assert found.tolist() == [[-127 * 127 * 3000] * 3] * 2


@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (7, 1, 30), (33, 5, 64), (16, 65, 130)])
def test_a_dynamically_quantised_product_is_the_product_of_the_rounded_values(m: int, n: int, k: int):
    x, weight = matrices(m, n, k)
    found = int8_linear(x, quantised(weight))
    x, weight = x.double(), weight.double()
    step, steps = x.abs().max() / 63, weight.abs().amax(1, keepdim=True) / 127
    expected = (x / step).round() * step @ ((weight / steps).round() * steps).t()
    assert found.dtype == torch.float32
    assert torch.allclose(found.double(), expected, rtol=1e-5, atol=1e-5 * float(expected.abs().max()))


def test_quantised_products_of_extreme_values_are_right_on_any_processor():
    """Every code at its limit: without VNNI this overflows unless activations have seven bits."""
    x, weight = torch.full((3, 512), 2.0), torch.full((5, 512), -3.0)
    assert torch.allclose(int8_linear(x, quantised(weight)), torch.full((3, 5), -6.0 * 512))
    assert torch.equal(int8_linear(torch.zeros(2, 512), quantised(weight)), torch.zeros(2, 5))


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
def test_values_that_have_no_code_are_refused(wrong: float):
    x, weight = matrices(2, 2, 8)
    x[1, 3] = wrong
    with pytest.raises(BadInput, match="an activation is NaN, infinite or beyond float32"):
        int8_linear(x, quantised(weight))


@pytest.mark.parametrize("n", [1, 2, 40])
@pytest.mark.parametrize("sparsity", [0.0, 0.7, 1.0])
def test_a_csr_product_is_the_dense_product(n: int, sparsity: float):
    x, weight = matrices(30, n, 50)
    weight *= torch.rand(30, 50, generator=torch.Generator().manual_seed(1)) >= sparsity
    sparse = csr(weight)
    assert sparse.col_indices().dtype == sparse.crow_indices().dtype == torch.int32
    assert len(sparse.values()) == int((weight != 0).sum())
    found = csr_linear(x, sparse)
    assert found.shape == (n, 30)
    assert torch.allclose(found, x @ weight.t(), atol=1e-5)


def test_a_weight_that_is_not_csr_or_does_not_fit_is_refused():
    x, weight = matrices(3, 2, 8)
    with pytest.raises(
        BadInput, match=r"made by csr, these are \[2, 8\] of torch.float32 and \[3, 8\] of torch.float32 in torch"
    ):
        csr_linear(x, weight)
    with pytest.raises(BadInput, match=r"these are \[2, 7\] of torch.float32 and \[3, 8\] of"):
        csr_linear(x[:, :7], csr(weight))


def test_int8_of_a_transposed_weight_is_that_of_a_copy():
    """`Prunable.matrix` of a transposed convolution is such a view."""
    weight, inputs = torch.randn(16, 32, generator=torch.Generator().manual_seed(0)).t(), torch.randn(8, 16)
    assert torch.equal(
        int8_linear(inputs, quantised(weight)),
        int8_linear(inputs, quantised(weight.contiguous())),
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_a_dynamically_quantised_product_has_the_type_of_its_activations_and_their_nearest_codes(dtype):
    x, weight = matrices(7, 40, 30)
    x, codes = x.to(dtype), quantised(weight)
    found = int8_linear(x, codes)
    assert found.dtype == dtype
    assert torch.equal(found, int8_linear(x.float(), codes).to(dtype))
