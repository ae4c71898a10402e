"""Check exercises of paper 2: notebooks 20 to 22.

Those of 23 and 24 are in `workflow_exercises`, 25 and 27 in `phases_`, 26 in `tasks_`, 28 in `beyond_`, 29 in
`translation_exercises`.
"""

from __future__ import annotations

import math

import torch

from lib import pruners
from lib.companion.exercises.checkers import Checker, function, number
from lib.kernels import storage
from lib.papers.two_four import (
    beyond_exercises,
    phases_exercises,
    tasks_exercises,
    translation_exercises,
    workflow_exercises,
)
from lib.pruners import permutation


def _one_of_two(row: list[float]) -> list[bool]:
    return pruners.n_of_m({"w": torch.tensor([row]).abs()}, 1, 2)["w"][0].tolist()


def _one_of_two_by_value(row: list[float]) -> list[bool]:
    """As `_one_of_two`, by the weights instead of their magnitudes: a typical mistake."""
    smallest = min(row)
    return _one_of_two([weight - smallest for weight in row])


def _packed(row: list[float]) -> tuple[list[float], list[int]]:
    groups = torch.tensor([row]).reshape(-1, 4)
    places = (groups == 0).int().argsort(dim=-1, stable=True)[:, :2].sort(dim=-1).values
    return groups.gather(1, places).flatten().tolist(), places.flatten().tolist()


def _only_nonzero(row: list[float]) -> tuple[list[float], list[int]]:
    """Packs what is not zero, so that groups differ in length: a typical mistake."""
    kept = [i for i, weight in enumerate(row) if weight != 0]
    return [row[i] for i in kept], [i % 4 for i in kept]


def _places_in_the_row(row: list[float]) -> tuple[list[float], list[int]]:
    """Counts places from the beginning of the row: a typical mistake."""
    values, places = _packed(row)
    return values, [4 * (i // 2) + place for i, place in enumerate(places)]


def _kept_of_a_gaussian(n: int, m: int) -> float:
    """Percent of the magnitude that n of m keeps of the matrix of notebook 20."""
    weight = torch.randn(256, 512, generator=torch.Generator().manual_seed(0)).abs()
    return 100 * float((weight * pruners.n_of_m({"w": weight}, n, m)["w"]).sum() / weight.sum())


def _saved(value_bits: int) -> float:
    dense = storage.bits("dense", 1, 4, 2, value_bits)
    return 100 * (1 - storage.bits("two_four", 1, 4, 2, value_bits) / dense)


def _examples_at_the_ridge(side: int, ridge: float) -> float:
    """For how many examples a layer of side x side at 16 bit does as many operations a byte as the ridge says.

    2 side^2 N operations, and two bytes for each of side^2 + 2 side N numbers: side N / (side + 2 N) = ridge.
    """
    return side * ridge / (side - 2 * ridge)


def _roofline(intensity: float, peak: float, bandwidth: float) -> float:
    """The roofline of notebook 21: operations a second at most, for a product with so many operations a byte."""
    return min(peak, intensity * bandwidth)


def _memory_limit() -> float:
    """By the roofline of notebook 21, for 64 examples: everything that is moved, dense over 2:4, at 8 bit."""
    side, examples, bits = 4096, 64, 8
    weight = storage.bits("dense", side, side, side**2, bits), storage.bits("two_four", side, side, side**2 // 2, bits)
    return (weight[0] + 2 * side * examples * bits) / (weight[1] + 2 * side * examples * bits)


def _magnitude_kept(rows: list[list[float]]) -> float:
    return permutation.kept_magnitude(torch.tensor(rows))


def _half_of_each_row(rows: list[list[float]]) -> float:
    """Keeps the larger half of each row, without a pattern: a typical mistake."""
    return float(sum(sum(sorted(map(abs, row))[len(row) // 2 :]) for row in rows))


def _kept_by_value(rows: list[list[float]]) -> float:
    """Keeps the two largest of four by value: a typical mistake."""
    return float(sum(sum(map(abs, sorted(row[i : i + 4])[2:])) for row in rows for i in range(0, len(row), 4)))


def _inverse(order: list[int]) -> list[int]:
    return torch.tensor(order).argsort().tolist()


RIDGE = 312e12 / 1.555e12  # of the A100 at 16 bit, operations a byte

EXERCISES: dict[str, Checker] = (
    {
        "20.1": number(
            _saved(32),
            "Do for 32 bits what the text does for 16: one group of four dense, and the same group compressed.",
            tolerance=1e-3,
            wrong={
                50.0: "that leaves the metadata out: each kept value has two bits.",
                43.75: "that is for 16-bit values; two bits weigh less beside 32.",
                53.125: "that is what the compressed group takes, not what it saves.",
            },
            second="Dense: 4 x 32 bits. Compressed: 2 x 32 + 2 x 2 bits.",
            learned="The wider the values, the less their places weigh: the saving tends to one half.",
        ),
        "20.2": number(
            math.ceil(4 * math.log2(math.comb(4, 2))),
            "Count the patterns of a row first (how many groups, how many ways in each?); n bits tell 2^n apart.",
            wrong={
                math.log2(1296): "bits are whole: round up.",
                12: "that rounds each group up for itself (three bits a group); take the row as a whole.",
                10: "2^10 is 1,024; are there not more patterns than that?",
                16: "that is what the format spends; fewer bits are enough.",
            },
            second="Four groups with six ways each: 6^4 = 1,296 patterns.",
            learned="The format spends 16 bits where 11 would do, so that a place is read without decoding others.",
        ),
        "20.3": function(
            _one_of_two,
            [([3.0, -4.0, 1.0, 0.5],), ([-1.0, 1.0],), ([0.0, 0.1, -7.0, 2.0, 5.0, -6.0],)],
            "Go through the row in pairs and keep the larger magnitude of each; of two equal ones keep the first.",
            wrong=[
                (
                    lambda row: [i % 2 == 0 for i in range(len(row))],
                    "you keep the first of each pair, whatever they are.",
                ),
                (_one_of_two_by_value, "you compare the weights; a weight of -7 matters more than one of 2."),
                (
                    lambda row: [not one for one in _one_of_two(row)],
                    "True means kept; yours is True where one is removed.",
                ),
            ],
            second="For a pair a, b: (True, False) if abs(a) >= abs(b), else (False, True).",
            learned="1:2 has two ways in a pair, so four weights have four patterns where 2:4 has six.",
        ),
        "20.4": function(
            _packed,
            [
                ([4.0, 0.0, 0.0, 3.0, 0.0, -2.0, 5.0, 0.0],),
                ([0.0, 0.0, 2.0, 0.0],),
                ([0.0, 0.0, 0.0, 0.0, 1.0, 2.0, 0.0, 0.0],),
            ],
            "Go through the row in groups of four; take what is not zero, fill up with the earliest zeros, sort.",
            wrong=[
                (
                    _only_nonzero,
                    "a group with more than two zeros stores two values too, so that all groups take the same room.",
                ),
                (lambda row: _packed(row)[::-1], "the pair is (values, places), in this order."),
                (_places_in_the_row, "a place is counted within its group, from 0 to 3: two bits."),
            ],
            second="places = sorted(sorted(range(4), key=lambda i: group[i] == 0)[:2]) ; Python's sort is stable.",
            learned="Every group takes the same room: so the n-th value is found without looking at others.",
        ),
        "20.5": number(
            _kept_of_a_gaussian(4, 8),
            "pruners.n_of_m(scores, 4, 8) gives the mask; add up the magnitudes that it keeps, over those of all.",
            tolerance=1.0,
            wrong={
                74.4: "that is 2:4; use n=4, m=8.",
                79.6: "that is the free choice of half of the weights.",
                50: "that is the share of weights; the question is about their magnitude.",
            },
            second="mask = pruners.n_of_m(scores, 4, 8)['w']; 100 * random[mask].abs().sum() / random.abs().sum()",
            learned="A larger group has more freedom: 70 ways in eight places, where two groups of four have 36.",
        ),
        "21.1": number(
            2 * 1024**3 / 2 / 1e9,
            "Count the operations of the dense product, 2 M N K; the pattern lets half of them be skipped.",
            tolerance=0.005,
            wrong={
                2.15: "that is the dense product; half of its operations do nothing.",
                0.54: "a multiplication and an addition count as two.",
                1073.74: "in units of 10^9, please.",
            },
            second="M N K = 1024^3 = 1.0737 x 10^9.",
            learned=f"An A100 could do this in {2 * 1024**3 / 624e12 * 1e6:.1f} millionths of a second, "
            "if memory let it.",
        ),
        "21.2": number(
            _memory_limit(),
            "So few examples lie left of the ridge: bytes moved by the dense product over those of the sparse one.",
            tolerance=0.005,
            wrong={
                2.0: "that is the limit of arithmetic; with 64 examples memory is the limit.",
                1.6: "that is the weight alone; activations and result are moved too, and do not shrink.",
                1.74: "that is for 16 bits, where metadata weigh less.",
                0.64: "that is the sparse time over the dense one; turn it around.",
            },
            second="Divide both by 4,096 bytes: (4,096 + 2 x 64) / (5/8 x 4,096 + 2 x 64).",
            learned="A layer that waits for memory gains less than its storage shrinks: activations stay as they are.",
        ),
        "21.3": number(
            math.ceil(_examples_at_the_ridge(1024, RIDGE)) + 0.5,  # the ridge's rounded 201 gives one more
            "2 x 1,024^2 x N operations; how many bytes have weight, activations and result? Their quotient counts.",
            tolerance=0.5,
            wrong={
                _examples_at_the_ridge(1024, RIDGE): "there it lies on the ridge and not right of it: round up.",
                201: "that is the ridge in operations a byte; how many examples does it take?",
                250: "activations and result are both moved: 2 x 1,024 x N numbers beside the weight.",
                125: "a number of 16 bits has two bytes; they cancel the two operations.",
            },
            second="The intensity is 1,024 N / (1,024 + 2 N); set it to 312 / 1.555 and solve for N.",
            learned="The narrower the layer, the more examples it takes before fewer multiplications save time.",
        ),
        "21.4": function(
            _roofline,
            [(1.0, 312e12, 1.555e12), (200.0, 312e12, 1.555e12), (5000.0, 624e12, 1.555e12), (2.0, 10.0, 5.0)],
            "The smaller of two limits: the peak, and the bytes a second times the operations a byte.",
            wrong=[
                (
                    lambda intensity, peak, bandwidth: intensity * bandwidth,
                    "arithmetic is a limit too: the slope ends in a roof.",
                ),
                (lambda intensity, peak, bandwidth: peak, "memory is a limit too, for products of low intensity."),
                (
                    lambda intensity, peak, bandwidth: max(peak, intensity * bandwidth),
                    "the slower of the two decides, not the faster.",
                ),
            ],
            second="min(peak, intensity * bandwidth)",
            learned="This one line is the roofline: it says before any kernel is written which of them can pay.",
        ),
        "21.5": number(
            _examples_at_the_ridge(4096, RIDGE / 2),
            "The limit is lowest where the dense product reaches the ridge. Where does a doubled bandwidth move it?",
            tolerance=2.0,
            wrong={
                222.4: "that is the A100 as it is; BANDWIDTH stands for one number of it.",
                499.1: "more bandwidth moves the ridge to the left, not to the right.",
                100.3: "that is the new ridge in operations a byte; the question is for N.",
            },
            second="many = np.arange(1, 1001); many[predicted(4096, many, 4096, 16).argmin()]",
            learned="With more bandwidth arithmetic becomes the limit earlier, so 2:4 pays from fewer examples on.",
        ),
        "22.1": number(
            math.factorial(16) / (math.factorial(4) ** 4 * math.factorial(4)),
            "The formula for C = 16: four groups, and neither the order in a group nor the order of groups matters.",
            wrong={
                math.factorial(16): "that counts orders; many of them give the same groups.",
                math.factorial(16) / math.factorial(4) ** 4: "the order of the four groups does not matter either.",
                math.comb(16, 4): "that is how many ways there are for the first group alone.",
            },
            second="16! / (4!^4 x 4!)",
            learned="Two and a half million are still tried in seconds; 24 columns have "
            f"{math.factorial(24) / (24**6 * math.factorial(6)) / 1e12:.1f} million million.",
        ),
        "22.2": number(
            100 * (8 - 7) / (10 - 7),
            "First what the new order keeps by 2:4; then how much more than before, of how much more there could be.",
            tolerance=0.05,
            wrong={
                80.0: "that is what is kept of the best; the efficacy is what is won back of the loss.",
                66.7: "that is what is still lost of the excess.",
                14.3: "that is relative to what the given order keeps.",
            },
            second="The new order keeps 4 + 3 + 1 + 0 = 8.",
            learned="100 % would be the best half without a pattern, which one order for all rows can seldom reach.",
        ),
        "22.3": function(
            _magnitude_kept,
            [
                ([[4.0, -3.0, 2.0, 1.0]],),
                ([[0.0, 1.0, 0.0, -5.0], [2.0, 2.0, 2.0, 2.0]],),
                ([[5.0, 3.0, -2.0, 2.0, 0.0, 0.0, 1.0, 0.0]],),
            ],
            "In each row and each group of four add up the two largest |w|.",
            wrong=[
                (_half_of_each_row, "you take the larger half of the whole row; take two of every four neighbours."),
                (_kept_by_value, "you rank the weights themselves; rank their magnitudes."),
                (lambda rows: _magnitude_kept(rows[:1]), "you look at the first row only."),
            ],
            second="sorted(map(abs, row[i:i + 4]))[2:] are the two that stay.",
            learned="This sum is all that a search over orders needs to know of a matrix.",
        ),
        "22.4": function(
            _inverse,
            [([2, 0, 1],), ([0, 1, 2, 3],), ([3, 1, 0, 2, 4],), ([1, 2, 3, 0],)],
            "Where does column 0 stand in the permuted row? Its place is the first number of the answer.",
            wrong=[
                (lambda order: order[::-1], "that reverses the order; it does not undo it."),
                (lambda order: order, "the same order again leads further away, but for swaps."),
                (lambda order: list(range(len(order))), "that leaves the permuted row as it is."),
                (
                    lambda order: [order[c] for c in order],
                    "that takes the order twice; ask where each column stands in the permuted row.",
                ),
            ],
            second="[order.index(c) for c in range(len(order))]",
            learned="A network is permuted so that each layer undoes the order of the one before it.",
        ),
        "22.5": number(
            5.2,
            "For each seed: 100 x (kept_magnitude(matrix[:, order]) / kept_magnitude(matrix) - 1), from permutation.",
            tolerance=1.2,
            wrong={
                17.9: "that is the matrix of figure 6, whose large columns stand together.",
                0.052: "this is the share; the question is for percent.",
                105.2: "subtract 1 before you turn it into percent.",
            },
            second="generator = torch.Generator().manual_seed(seed); matrix = torch.randn(8, 16, generator=generator)",
            learned="Where columns are alike the order gains little; it pays when some are larger than others.",
        ),
    }
    | workflow_exercises.EXERCISES
    | phases_exercises.EXERCISES
    | tasks_exercises.EXERCISES
)
EXERCISES |= beyond_exercises.EXERCISES | translation_exercises.EXERCISES
