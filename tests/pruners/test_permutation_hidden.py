"""What an example does not show, or `torch.fx` does not see, moves no channel to a wrong place."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lib.base import BadInput
from lib.pruners.permutation import channels, greedy, network


@dataclass
class Answer:
    logits: Tensor
    hidden: Tensor


class Bare(nn.Module):
    """The weight is read beside its layer, where the output hides it at first."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.gate = nn.Linear(16, 32), nn.Linear(32, 16), nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.a(x).relu()) + self.gate * F.linear(x, self.a.weight[:16])


class Two(nn.Module):
    """Two linear layers, with something between them."""

    def __init__(self, between):
        super().__init__()
        self.__dict__["between"] = between  # a plain function
        self.a, self.b = nn.Linear(16, 32), nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor | Answer:
        return self.between(self, self.a(x))


def part_in_place(net, h):
    h[:, :16].relu_()
    return net.b(h)


def half_in_place(net, h):
    first, second = h[:, :16], h[:, 16:]
    F.relu(first, inplace=True)
    return net.b(torch.cat([first, second], 1))


def a_number(net, h):
    return net.b(h) + h.abs().sum(0)[3].item()


HIDDEN = {
    "a weight read beside its layer": (Bare, "a.weight is used by itself too"),
    "an object of its own as output": (
        lambda: Two(lambda net, h: Answer(net.b(h.relu()), h)),
        "Answer takes numbers out",
    ),
    "a number as such": (lambda: Two(a_number), "item takes numbers out of tensors"),
    "a part changed in place": (lambda: Two(part_in_place), "relu_ changes a part of a tensor in place"),
    "a half changed in place": (lambda: Two(half_in_place), "relu changes a part of a tensor in place"),
}


@pytest.mark.parametrize("case", HIDDEN)
def test_what_these_inputs_do_not_show_is_respected_too(case: str):
    make, reason = HIDDEN[case]
    torch.manual_seed(0)
    model = make()
    nn.init.zeros_(model.a.bias)
    shown = torch.randn(2, 16) if case.startswith("a weight") else torch.zeros(2, 16)
    ties = channels.read(model, (shown,))
    assert any(why.startswith(reason) for why in ties.fixed.values())
    permuted, _ = network.permute(model, shown, search=greedy)
    others = torch.randn(5, 16)
    for one in (model, permuted):
        if hasattr(one, "gate"):
            nn.init.ones_(one.gate)
    expected, found = model(others), permuted(others)
    parts = ("logits", "hidden") if isinstance(expected, Answer) else ()
    for one, other in [(getattr(expected, n), getattr(found, n)) for n in parts] or [(expected, found)]:
        assert torch.allclose(one, other, rtol=0, atol=1e-5)


def test_a_type_taken_from_another_tensor_ties_nothing():
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(16, 32), nn.Linear(32, 4)

        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            return self.b(self.a(x)) * mask.to(x).unsqueeze(-1)

    _, report = network.permute(Masked(), (torch.randn(2, 5, 16), torch.ones(2, 5)), search=greedy)
    assert report.set_index("layer").permuted["b.weight"]


def test_a_part_in_torchscript_keeps_its_channels_in_order():
    model = nn.Sequential(nn.Linear(16, 32), torch.jit.script(nn.ReLU()), nn.Linear(32, 16))
    _, report = network.permute(model, torch.randn(3, 16), search=greedy)
    assert report.why.iloc[1].startswith("there is no rule for forward")


@pytest.mark.filterwarnings("error")
def test_a_network_that_the_graph_does_not_show_is_refused_and_a_hook_that_only_looks_is_not():
    def added(net, h):
        h[:, :16] += 1.0  # the graph adds to a copy
        return net.b(h)

    def sliced(net, h):
        first = h[:, :16]
        first += 1.0  # here too
        return net.b(h)

    with pytest.raises(BadInput, match=r"torch\.fx sees another function than Two computes"):
        network.permute(Two(sliced), torch.randn(3, 16), search=greedy)
    with pytest.raises(BadInput, match=r"torch\.fx cannot trace Two"):
        network.permute(Two(added), torch.randn(3, 16), search=greedy)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))
    model.register_forward_hook(lambda module, inputs, output: seen.append(output))
    seen: list[Tensor] = []
    _, report = network.permute(model, torch.randn(3, 16), search=greedy)
    assert report.permuted.iloc[1]
    assert seen
    model.register_forward_hook(lambda module, inputs, output: output + module[0](inputs[0])[:, :16])
    with pytest.raises(BadInput, match=r"as of .* or a hook on the whole network"):
        network.permute(model, torch.randn(3, 16), search=greedy)


def test_an_output_that_refers_to_itself_ends():
    class Round:
        def __init__(self, logits: Tensor):
            self.logits, self.root = logits, self

    class Circular(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(16, 32), nn.Linear(32, 4)

        def forward(self, x: Tensor) -> Round:
            return Round(self.b(self.a(x)))

    with pytest.raises(BadInput, match=r"torch\.fx cannot trace Circular"):
        network.permute(Circular(), torch.randn(3, 16), search=greedy)


def test_inputs_that_a_network_changes_in_place_stay_as_they_are():
    inputs = torch.randn(3, 16)
    before = inputs.clone()
    network.permute(nn.Sequential(nn.ReLU(inplace=True), nn.Linear(16, 32), nn.Linear(32, 4)), inputs, search=greedy)
    assert torch.equal(inputs, before)
