"""Speaker networks have the paper's sizes; the self-teacher joins what equations 1 to 5 say it joins."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lib.base import BadInput
from lib.models.bifpn import BiFPN, Fusion, SelfTeacher, resize, separable
from lib.models.speaker_resnet import NETWORKS, statistics


def parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(
    ("name", "millions", "exact"),
    [("resnet18", 3.45, 3450080), ("resnet34", 5.98, 5978976), ("resnet50", 8.51, 8509920)],
)
def test_parameters_are_those_of_table_3(name, millions, exact):
    network = NETWORKS[name]()
    assert parameters(network) == exact
    assert round(exact / 1e6, 2) == millions


def test_maps_have_the_sizes_of_table_1_for_any_number_of_frames():
    network = NETWORKS["resnet34"](width=4).eval()
    for frames, halves in ((300, (300, 150, 75, 38)), (201, (201, 101, 51, 26)), (9, (9, 5, 3, 2))):
        features = torch.randn(2, frames, 40)
        maps = network.maps(features)
        assert [tuple(hidden.shape[1:]) for hidden in maps] == [(4 * 2**i, 40 // 2**i, halves[i]) for i in range(4)]
        assert network(features).shape == (2, 256)
    assert NETWORKS["resnet50"](width=4).channels == [16, 32, 64, 128]


def test_statistics_are_mean_and_standard_deviation_over_time_alone():
    hidden = torch.tensor([[[[1.0, 3], [2, 2]]]])  # one channel, two bands, two frames
    torch.testing.assert_close(statistics(hidden), torch.tensor([[2.0, 2, 1, 1e-7**0.5]]))
    hidden = torch.zeros(1, 1, 1, 3, requires_grad=True)
    statistics(hidden).sum().backward()
    assert hidden.grad.isfinite().all()


@pytest.mark.parametrize(
    ("dtype", "wide"),
    [(torch.bfloat16, torch.float32), (torch.float32, torch.float32), (torch.float64, torch.float64)],
)
def test_statistics_are_computed_in_float32_or_wider(dtype, wide):
    hidden = torch.randn(2, 3, 4, 9, generator=torch.Generator().manual_seed(0)).to(dtype)
    found = statistics(hidden)
    assert found.dtype == wide
    assert torch.equal(found, statistics(hidden.to(wide)))


# The self-teacher


@pytest.mark.parametrize("reading", ["paper", "frskd"])
@pytest.mark.parametrize("frames", [300, 75, 38, 1])
def test_refined_maps_have_the_students_sizes_and_one_width(reading, frames):
    network = NETWORKS["resnet18"](width=2).eval()
    maps = network.maps(torch.randn(2, frames, 40))
    refined, embedding = SelfTeacher(network.channels, 6, reading=reading).eval()(maps)
    assert [hidden.shape[2:] for hidden in refined] == [hidden.shape[2:] for hidden in maps]
    assert {hidden.shape[1] for hidden in refined} == {6}
    assert embedding.shape == (2, 256)


def test_what_the_self_teacher_costs():
    """Laterals and six fusions of a depth-wise, a point-wise convolution and a norm; nine, ten weights; the head."""
    channels, width = [32, 64, 128, 256], 256
    laterals = sum(9 * c + c * width + 2 * width for c in channels)
    fusions = 6 * (9 * width + width * width + 2 * width) + 2 * 2 + 2 + 3 + 3 + 2
    assert parameters(SelfTeacher(channels)) == laterals + fusions + (2 * width * 5 * 256 + 256) == 1194990


@pytest.mark.parametrize(("reading", "raw"), [("paper", [0.0, 1.0, 2.0]), ("frskd", [1.0, -1.0, 3.0])])
def test_fusion_weighs_its_maps(reading, raw):
    fusion = Fusion(3, 2, reading).eval()
    fusion.convolution = nn.Identity()
    with torch.no_grad():
        fusion.weights.copy_(torch.tensor(raw))
    maps = [torch.randn(1, 2, 4, 6) for _ in range(3)]
    if reading == "paper":
        powers = torch.tensor(raw).exp()
        importance = powers / powers.sum()
    else:
        importance = torch.tensor([0.25, 0, 0.75])
    expected = importance[0] * maps[0] + importance[1] * maps[1] + importance[2] * maps[2]
    torch.testing.assert_close(fusion(*maps), expected)
    assert Fusion(2, 2, reading).importance().tolist() == pytest.approx([0.5, 0.5])


def test_a_separable_convolution_is_its_layers_written_out():
    torch.manual_seed(0)
    layer, x = separable(3, 5).eval(), torch.randn(1, 3, 4, 6)
    hidden = F.conv2d(F.conv2d(x, layer[0].weight, padding=1, groups=3), layer[1].weight) / (1 + 1e-5) ** 0.5
    torch.testing.assert_close(layer(x), hidden.relu())


def test_maps_grow_by_interpolation_and_shrink_by_their_maximum():
    row = torch.tensor([[[[0.0, 4, 8]]]])
    grown = resize(row, torch.zeros(1, 1, 2, 6))
    torch.testing.assert_close(grown[0, 0], torch.tensor([[0.0, 1, 3, 5, 7, 8]] * 2))
    square = torch.arange(10.0).view(1, 1, 2, 5)
    assert resize(square, torch.zeros(1, 1, 1, 3)).tolist() == [[[[6, 8, 9]]]]
    assert resize(square[:, :, 1:], torch.zeros(1, 1, 1, 3)).tolist() == [[[[6, 8, 9]]]]  # one band and its frames
    assert resize(square, torch.zeros(1, 7, 2, 5)) is square


def test_paths_go_down_and_up_as_table_2_says():
    """Every convolution replaced by nothing: what is left are the weighted sums, written out here."""
    bifpn = BiFPN([2, 2, 2, 2], 2)
    bifpn.lateral = nn.ModuleList(nn.Identity() for _ in range(4))
    for fusion in (*bifpn.down, *bifpn.up):
        fusion.convolution = nn.Identity()
    one, two, three, four = (torch.randn(1, 2, 8 // 2**i, 12 // 2**i) for i in range(4))
    p3 = (three + resize(four, three)) / 2
    p2 = (two + resize(p3, two)) / 2
    t1 = (one + resize(p2, one)) / 2
    t2 = (two + p2 + resize(t1, two)) / 3
    t3 = (three + p3 + resize(t2, three)) / 3
    t4 = (four + resize(t3, four)) / 2
    for found, expected in zip(bifpn([one, two, three, four]), (t1, t2, t3, t4), strict=True):
        torch.testing.assert_close(found, expected)


def test_an_unknown_reading_is_refused():
    with pytest.raises(BadInput, match="reading='fpn': known are paper, frskd"):
        BiFPN([2, 2, 2, 2], 2, "fpn")


def test_the_origins_reading_resizes_by_the_nearest():

    fusion, coarse = Fusion(2, 1, "frskd"), torch.randn(1, 1, 2, 2)
    fusion.convolution = nn.Identity()
    expected = coarse.repeat_interleave(2, 2).repeat_interleave(2, 3) / 2
    torch.testing.assert_close(fusion(torch.zeros(1, 1, 4, 4), coarse), expected, atol=1e-5, rtol=1e-5)
