"""What checkers of paper 2's exercises say to answers that a student has computed."""

import torch

from lib import pruners
from lib.papers.two_four.exercises import EXERCISES


def test_two_decimals_do_for_the_brevity_penalty():
    assert EXERCISES["29.1"](0.72) is None
    assert EXERCISES["29.1"](0.71) is not None


def test_who_chooses_half_of_a_gaussian_freely_is_told_so():
    random = torch.randn(256, 512, generator=torch.Generator().manual_seed(0))
    mask = pruners.unstructured({"w": random.abs()}, 0.5)["w"]
    kept = 100 * float(random[mask].abs().sum() / random.abs().sum())
    assert EXERCISES["20.5"](kept) == "that is the free choice of half of the weights."
