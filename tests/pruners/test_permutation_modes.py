"""Laws of permuting what one pass in evaluation mode does not show: branches for training, layers that nobody calls."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lib.pruners.permutation import network, permute
from lib.pruners.permutation.same import Unchecked, difference, outputs
from lib.pruners.permutation.search import greedy


class Branched(nn.Module):
    """A convolutional network with a second head that speaks in training only, as GoogLeNet has two."""

    def __init__(self, flag: bool = False):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 32, 3, padding=1), nn.Conv2d(32, 32, 3, padding=1)
        self.head, self.auxiliary, self.flag = nn.Linear(32, 4), nn.Linear(32, 4), flag

    def forward(self, x: torch.Tensor, more: bool = False):
        between = F.dropout(self.first(x).relu(), 0.2, self.training)
        after = self.second(between).mean((2, 3))
        if self.training if not self.flag else more:
            return self.head(after), self.auxiliary(between.mean((2, 3)))
        return self.head(after)


def images() -> torch.Tensor:
    return torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(0))


def test_a_branch_for_training_moves_with_the_channels_it_reads():
    torch.manual_seed(0)
    model = Branched()
    before = torch.get_rng_state()
    permuted, report = permute(model, images(), search=greedy)
    assert torch.equal(torch.get_rng_state(), before)  # though dropout draws in training mode
    assert report.set_index("layer").permuted.to_dict() == {
        "first.weight": False,
        "second.weight": True,
        "head.weight": True,
        "auxiliary.weight": True,
    }
    assert difference(outputs(model, images(), True), outputs(permuted, images(), True)) == 0
    assert not torch.equal(model.auxiliary.weight, permuted.auxiliary.weight)


def test_what_these_inputs_never_reach_keeps_every_channel_where_it_is():
    model = Branched(flag=True)
    _, report = permute(model, images(), search=greedy)
    assert not report.permuted.any()
    line = (
        "auxiliary.weight: these inputs do not reach it, in neither mode, and it might read any channel: see `unused`"
    )
    assert report.set_index("layer").why["second.weight"] == line
    permuted, report = permute(model, ((images(),), {"more": True}), search=greedy)  # they do now
    assert report.permuted.sum() == 3
    assert difference(outputs(model, (images(), True)), outputs(permuted, (images(), True))) == 0
    _, report = permute(model, images(), search=greedy, unused=["auxiliary"])
    assert report.permuted.sum() == 2


def test_a_change_that_only_training_shows_is_noticed(monkeypatch: pytest.MonkeyPatch):
    """If the branch did not move, as before the search looked at both modes, the comparison would tell."""
    apply = network.apply

    def but_for_the_branch(model: nn.Module, ties: network.Ties, moves: network.Moves) -> None:
        axes = {name: axis for name, axis in ties.axes.items() if not name[0].startswith("auxiliary")}
        apply(model, network.Ties(axes, ties.fixed), moves)

    monkeypatch.setattr(network, "apply", but_for_the_branch)
    with pytest.raises(RuntimeError, match="in training mode an output changed by"):
        permute(Branched(), images(), search=greedy)


class Particular(Branched):
    def forward(self, x):
        if self.training:
            raise ValueError("targets are needed")
        return super().forward(x)


def test_a_network_that_cannot_run_in_training_mode_is_compared_in_one_and_says_so():
    torch.manual_seed(0)
    with pytest.warns(Unchecked, match=r"\(ValueError: targets are needed\) in training mode, so only evaluation mode"):
        _, report = permute(Particular(), images(), search=greedy, unused=["auxiliary"])
    assert report.permuted.sum() == 2
    with pytest.warns(Unchecked):
        _, report = permute(Particular(), images(), search=greedy)
    assert not report.permuted.any()
    assert "training mode cannot be followed" in report.set_index("layer").why["second.weight"]


class UNet(nn.Module):
    """Down, up by a transposed convolution, and a skip."""

    def __init__(self):
        super().__init__()
        self.a, self.norm = nn.Conv1d(2, 16, 3, padding=1), nn.BatchNorm1d(16)
        self.b, self.up, self.c = nn.Conv1d(16, 32, 3, padding=1), nn.ConvTranspose1d(32, 16, 2, 2), nn.Conv1d(32, 3, 1)

    def forward(self, x):
        skip = self.norm(self.a(x)).relu()
        up = self.up(self.b(F.max_pool1d(skip, 2)).relu())
        return self.c(torch.cat([skip, up.relu()], 1))


def test_channels_are_followed_through_convolutions_of_other_dimensions_and_transposed_ones():
    torch.manual_seed(0)
    model, x = UNet(), torch.randn(2, 2, 8)
    permuted, report = permute(model, x, search=greedy)
    report = report.set_index("layer")
    assert report.permuted.to_dict() == {
        "a.weight": False,
        "b.weight": True,
        "up.weight": True,
        "c.weight": True,
    }
    assert (report.kept_after[report.permuted] > report.kept_before[report.permuted]).all()
    assert not torch.equal(permuted.up.weight, model.up.weight)
