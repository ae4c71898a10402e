"""Laws of compression ratios: the paper's equations and networks, and bytes that are really there."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from lib import pruners
from lib.base import BadInput
from lib.kernels import storage
from lib.kernels.block_circulant import circulant, expand
from lib.models.mlp import MLP, generators, plain
from lib.papers.gst.definitions import changed_by_conversion, csr_crossover, packed_gap, weight_share
from lib.papers.gst.experiments.compression import pack, packed_ratio, ratio, unpack
from lib.pruners import blocks
from lib.pruners import groups as gs


def test_equations_2_and_3_by_hand():
    assert ratio(0.0, 1, bitmap="none") == 0
    assert ratio(0.0, 4, bitmap="none") == 0.75
    assert ratio(0.5, 2, share=0.5, bitmap="none") == 0.375
    assert ratio(0.5, 4) == 1 - 1 / 8 - 1 / 16
    assert ratio(0.5, 4, bitmap="coefficients") == 1 - 1 / 8 - 1 / 64
    assert ratio(0.6, 1) == pytest.approx(0.6 - 1 / 16)
    assert ratio(np.array([0, 0.5]), np.array([1, 2])).tolist() == [-1 / 16, 0.6875]


def test_the_papers_shares_are_of_the_actors_weights():
    """91.7 and 97.4 % (section 4): the weights of 256-256 actors of HalfCheetah's and Humanoid's sizes."""
    for sizes, chosen, printed in (((17, 256, 256, 6), [1], 91.7), ((376, 256, 256, 17), [0, 1], 97.4)):
        assert weight_share(list(pairwise(sizes)), chosen) == pytest.approx(printed, abs=0.06)
    assert weight_share([[2, 3, 2, 2], [3, 8, 3]], [1]) == 75


@pytest.mark.parametrize("bitmap", ["weights", "coefficients"])
def test_halfcheetahs_actor_takes_the_bytes_that_the_equation_says(bitmap):
    assert packed_gap(4, 0.5, bitmap) == pytest.approx(0, abs=1e-9)
    assert packed_gap(2, 0.3, bitmap) == pytest.approx(0, abs=0.01)  # a share of coefficients is a whole number of them


def test_only_a_projection_changes_weights():
    assert changed_by_conversion("block4_friendly_block2") == 0
    assert changed_by_conversion("block2_friendly_block4") == 0
    assert changed_by_conversion("projection") > 1


@pytest.mark.parametrize(
    "table", [circulant(1), circulant(2), circulant(4), blocks.halved(circulant(4)), blocks.friendly(4, 2)]
)
@pytest.mark.parametrize("bitmap", ["weights", "coefficients"])
@pytest.mark.parametrize("sparsity", [0.0, 0.25, 0.9])
def test_packed_bytes_are_what_the_equation_says_and_unpack_to_the_weights(table, bitmap, sparsity):
    network = plain(MLP((16, 64, 32, 4), generators([0])))
    gs.group(network, {"2.weight": table})
    masks = gs.whole_groups(pruners.magnitude(network).only(["2.weight"]), sparsity, gs.tables(network))
    pruners.attach(network, masks)
    weights = {layer.name: layer.weight for layer in pruners.prunable(network)}
    weight, block = weights["2.weight"], blocks.group_size(table)
    content = pack(weight, table, bitmap)
    removed = 1 - float((gs.coefficients(network)["2.weight"] != 0).float().mean())
    assert removed == pytest.approx(sparsity, abs=1 / 512)
    assert len(content) == round(weight.numel() * 2 * (1 - ratio(removed, block, bitmap=bitmap)))
    assert torch.equal(unpack(content, weight.shape, table, bitmap), weight.half())
    share = 64 * 32 / (16 * 64 + 64 * 32 + 32 * 4)
    found = packed_ratio(weights, {"2.weight": table}, bitmap)
    assert found == pytest.approx(ratio(removed, block, share, bitmap))


def test_convolutions_are_packed_too():
    torch.manual_seed(0)
    layer = torch.nn.Conv2d(4, 8, 3)
    gs.group(layer, {"weight": circulant(4)})
    content = pack(layer.weight, circulant(4))
    assert len(content) == 72 * 2 + 9
    assert torch.equal(unpack(content, (8, 4, 3, 3), circulant(4)), layer.weight.half())


def test_coefficients_of_float64_that_three_weights_share_are_packed():
    made = torch.randn(4, 4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    weight = expand(made, circulant(3), (12, 12))
    assert torch.equal(unpack(pack(weight, circulant(3)), (12, 12), circulant(3)), weight.half())


def test_above_the_crossover_csr_is_smaller_than_a_bitmap():
    sparsity = csr_crossover(256, 256)
    assert sparsity == pytest.approx(1 - (1 - 257 * 32 / 65536) / 16)  # 94.5 %
    kept = round((1 - sparsity) * 256 * 256)
    sizes = {more: [storage.bits(form, 256, 256, kept + more, 16) for form in ("csr", "bitmap")] for more in (-10, 10)}
    assert sizes[-10][0] < sizes[-10][1]
    assert sizes[10][0] > sizes[10][1]
    assert csr_crossover(256, 256, index_bits=8, pointer_bits=16) == pytest.approx(1 - (1 - 257 * 16 / 65536) / 8)


def test_what_cannot_be_is_refused():
    for wrong, line in (
        ({"sparsity": 1.1}, r"sparsity=1.1 is not in \[0, 1\]"),
        ({"share": -1}, "share=-1 is not in"),
        ({"block": 0.5}, "block=0.5 must be at least 1"),
        ({"bitmap": "csr"}, "bitmap 'csr': known are none, weights, coefficients"),
    ):
        with pytest.raises(BadInput, match=line):
            ratio(**{"sparsity": 0.5, "block": 2} | wrong)
    weight = torch.arange(16.0).reshape(4, 4)
    with pytest.raises(BadInput, match="weights of a group differ"):
        pack(weight, circulant(2))
    with pytest.raises(BadInput, match="bitmap 'none': bytes need one of weights, coefficients"):
        pack(weight, circulant(1), "none")


def test_a_coefficient_that_float16_cannot_hold_is_refused():
    weight = torch.tensor([[1e6, 1.0], [1.0, 1e6]])
    with pytest.raises(BadInput, match="beyond float16, whose largest number is 65,504"):
        pack(weight, circulant(2))
