"""Laws of block-circulant matrices: the expanded product, Fourier's, least squares, and where gradients go."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from lib.base import BadInput
from lib.kernels import block_circulant as bc

BLOCKS = [1, 2, 3, 4, 5, 8]


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def dense(coefficients):
    """The whole matrix of circulant blocks."""
    rows, columns, block = coefficients.shape[-3:]
    return bc.expand(coefficients, bc.circulant(block), (rows * block, columns * block))


# Expansion and projection


def test_a_block_written_out():
    coefficients = torch.tensor([[[1.0, 2, 3], [4, 5, 6]]])  # one row of two blocks
    assert dense(coefficients).tolist() == [[1, 3, 2, 4, 6, 5], [2, 1, 3, 5, 4, 6], [3, 2, 1, 6, 5, 4]]
    assert bc.circulant(4).tolist() == [[0, 3, 2, 1], [1, 0, 3, 2], [2, 1, 0, 3], [3, 2, 1, 0]]
    assert torch.equal(bc.circulant(np.int64(4)), bc.circulant(4))


def test_each_run_of_a_stack_may_have_a_table_of_its_own_and_kernels_have_the_same():
    tables = torch.stack([bc.circulant(2), torch.tensor([[0, 1], [2, 3]])])
    coefficients = torch.tensor([[[[1.0, 2, 9, 9]]], [[[1, 2, 3, 4]]]])  # the circulant uses two places of its room
    assert bc.expand(coefficients, tables, (2, 2)).tolist() == [[[1, 2], [2, 1]], [[1, 2], [3, 4]]]
    kernel = random(3, 5, 2, 2, 4)
    found = bc.expand(kernel, bc.circulant(4), (8, 8))
    assert all(torch.equal(found[r, s], dense(kernel[r, s])) for r in range(3) for s in range(5))


@pytest.mark.parametrize("size", [(8, 12), (7, 9)])
def test_projection_is_the_nearest_in_least_squares(size):
    """The same minimum as of linear regression on the basis that the table spells out, borders included."""
    weight, table = random(*size), bc.circulant(4)
    found = bc.project(weight, table)
    basis = torch.stack(
        [bc.expand(one.reshape(found.shape), table, size).flatten() for one in torch.eye(found.numel()).double()], 1
    )
    # at a border a coefficient may have no weight; torch's default driver then depends on what memory held before
    expected = torch.linalg.lstsq(basis, weight.flatten()[:, None], driver="gelsd").solution
    torch.testing.assert_close(found.flatten(), expected.flatten())
    torch.testing.assert_close(found[0, 0, 1], (weight[1, 0] + weight[2, 1] + weight[3, 2] + weight[0, 3]) / 4)


def test_what_is_circulant_already_projects_onto_itself_exactly():
    for block in BLOCKS:
        coefficients = random(3, 2, block, seed=block).float()
        assert torch.equal(bc.project(dense(coefficients), bc.circulant(block)), coefficients)


def test_equal_weights_of_float64_keep_their_value_too_whatever_their_sum_rounds_to():
    for block in (*BLOCKS, 6, 7):
        table = bc.circulant(block)
        for size in ((8 * block, 8 * block), (8 * block - 1, 7 * block + 1)):
            weight = bc.expand(random(8, 8, block, seed=block), table, size)
            assert torch.equal(bc.expand(bc.project(weight, table), table, size), weight)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [(64, 64), (256, 376), (17, 6), (2, 5, 24, 24), (3, 3, 20, 50)])
def test_unequal_weights_get_their_mean_as_float64_rounds_it_and_no_other_bit(size, dtype):
    for block in (*BLOCKS, 6):
        weight, table = random(*size, seed=block).to(dtype), bc.circulant(block)
        pad = (0, -size[-1] % block, 0, -size[-2] % block)
        one_hot = F.one_hot(table.flatten(), block).double()
        blocks = F.pad(weight.double(), pad).unflatten(-1, (-1, block)).unflatten(-3, (-1, block)).transpose(-3, -2)
        means = blocks.flatten(-2) @ one_hot / bc.members(size[-2:], table).clamp(min=1)
        assert torch.equal(bc.project(weight, table), means.to(dtype))


def test_every_coefficient_of_a_circulant_has_b_weights_and_less_at_a_border():
    assert (bc.members((8, 8), bc.circulant(4)) == 4).all()
    assert bc.members((4, 5), bc.circulant(4))[0].tolist() == [[4] * 4, [1] * 4]


# Products


@pytest.mark.parametrize("block", BLOCKS)
def test_the_product_is_the_expanded_dense_one(block):
    coefficients, x = random(3, 5, block), random(2, 7, 5 * block, seed=1)
    found = bc.linear(x, bc.spectrum(coefficients))
    torch.testing.assert_close(found, x @ dense(coefficients).T)


@pytest.mark.parametrize("block", BLOCKS)
def test_a_whole_circulant_is_a_convolution_by_fft(block):
    coefficients, x = random(1, 1, block), random(6, block, seed=1)
    expected = torch.fft.ifft(torch.fft.fft(coefficients[0, 0]) * torch.fft.fft(x)).real
    torch.testing.assert_close(x @ dense(coefficients).T, expected)
    torch.testing.assert_close(bc.linear(x, bc.spectrum(coefficients)), expected)


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize(("stride", "padding"), [(1, 0), (2, 1)])
def test_a_convolution_is_the_expanded_dense_one(block, stride, padding):
    coefficients, images = random(3, 2, 3, 2, block), random(2, 2 * block, 7, 6, seed=1)
    kernel = dense(coefficients).movedim((0, 1), (2, 3))
    found = bc.conv2d(images, bc.spectrum(coefficients), stride, padding)
    torch.testing.assert_close(found, F.conv2d(images, kernel, None, stride, padding))


@pytest.mark.parametrize("block", BLOCKS)
def test_a_coefficients_gradient_is_the_sum_over_its_diagonal(block):
    coefficients, x = random(2, 3, block).requires_grad_(), random(7, 3 * block, seed=1)
    weight = dense(coefficients).detach().requires_grad_()
    goal = random(7, 2 * block, seed=2)
    (x @ weight.T - goal).square().sum().backward()
    sums = bc.project(weight.grad, bc.circulant(block)) * block
    for product in (lambda: x @ dense(coefficients).T, lambda: bc.linear(x, bc.spectrum(coefficients))):
        (gradient,) = torch.autograd.grad((product() - goal).square().sum(), coefficients)
        torch.testing.assert_close(gradient, sums)


@pytest.mark.parametrize("block", BLOCKS)
def test_the_transform_is_orthonormal_and_counts_the_limit(block):
    matrix = bc.transform(block, torch.float64)
    torch.testing.assert_close(matrix @ matrix.T, torch.eye(block).double())
    weight = bc.spectrum(random(6, 5, block))
    multiplications = weight.real.numel() + weight.pairs.numel()  # for one example
    assert bc.limit(block) == pytest.approx(6 * 5 * block**2 / multiplications)


def test_the_limits_of_the_papers_blocks():
    assert [bc.limit(block) for block in (1, 2, 4, 8)] == pytest.approx([1, 2, 16 / 6, 64 / 14])


# Bad input


def test_what_does_not_fit_is_refused():
    with pytest.raises(BadInput, match="block=0: expected a whole number, at least 1"):
        bc.circulant(0)
    weight = bc.spectrum(random(2, 3, 4))
    with pytest.raises(BadInput, match=r"multiplies activations \[\.\.\., 12\] of .*, these are \[5, 8\]"):
        bc.linear(random(5, 8), weight)
    with pytest.raises(BadInput, match=r"takes images \[n, 12, H, W\] of .*, these are \[5, 8, 3, 3\]"):
        bc.conv2d(random(5, 8, 3, 3), bc.spectrum(random(1, 1, 2, 3, 4)))
