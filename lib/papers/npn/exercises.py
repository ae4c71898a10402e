"""Check exercises of paper 4: notebooks 40 to 43."""

from __future__ import annotations

import math

import torch
from scipy import stats

from lib.companion.exercises.checkers import Checker, function, number
from lib.papers.npn import measures
from lib.pruners import gates


def _gate_slope(k: float, pi: float) -> float:
    return measures.slope("sigmoid", k, math.log(pi / (1 - pi)) / k)


def _arm(losses: list[list[float]], pi: list[float], u: list[float]) -> list[float]:
    units, drawn = gates.Gates(torch.tensor(pi).logit(), torch.ones(2), "sigmoid", 1.0, 0.5, 1), torch.tensor(u)
    (first, second), (one, other) = (z.int().tolist() for z in (units.antithetic(drawn), units.draw(drawn)))
    return ((losses[first][second] - losses[one][other]) * (drawn - 0.5)).tolist()


def _ar(losses: list[list[float]], pi: list[float], u: list[float]) -> list[float]:
    """Estimates with one loss: a typical confusion."""
    return [losses[u[0] < pi[0]][u[1] < pi[1]] * (1 - 2 * one) for one in u]


def _expected(losses: list[list[float]], pi: list[float]) -> float:
    chances = [(1 - one, one) for one in pi]
    return round(sum(losses[a][b] * chances[0][a] * chances[1][b] for a in (0, 1) for b in (0, 1)), 9)


def _not_improving(losses: list[float], patience: int, tolerance: float) -> bool:
    """Is true of a rising loss, too: the reading that this project had at first."""
    return len(losses) > patience and min(losses[-patience:]) > losses[-patience - 1] - tolerance


def _hardened(first: list[list], last: list[list], values: list[float]) -> tuple[list[list], list[list]]:
    kept = [number for number, value in enumerate(values) if value]
    return [first[number] for number in kept], [[row[number] * values[number] for number in kept] for row in last]


def _hardened_without_values(first: list[list], last: list[list], values: list[float]) -> tuple[list, list]:
    """Drops the values of open gates: a typical mistake."""
    return _hardened(first, last, [float(value > 0) for value in values])


def _hardened_first(first: list[list], last: list[list], values: list[float]) -> tuple[list, list]:
    """Writes the values into the first matrix: a typical confusion."""
    smaller, reading = _hardened_without_values(first, last, values)
    open_values = [value for value in values if value]
    return [[weight * value for weight in row] for row, value in zip(smaller, open_values, strict=True)], reading


SWITCHED = (27, 864, 2304, 3456, 3456, 4096, 4096, 10)  # by a gate of each layer of the whole AlexNet


def _priced(widths: list[int], layer: int) -> int:
    """What the gate pays for instead of what closing it saves: a typical confusion."""
    before = (3, *widths)
    return 9 * before[layer] if layer < 5 else (*widths, 10)[layer + 1]


def _price(widths: list[int], lambdas: list[float]) -> float:
    return round(sum(n * w * rate for n, w, rate in zip(widths, SWITCHED, lambdas, strict=True)), 6)


def _price_of_small(widths: list[int], lambdas: list[float]) -> float:
    """Counts the weights of the shrunk network: a typical confusion."""
    return round(sum(n * _priced(widths, i) * lambdas[i] for i, n in enumerate(widths)), 6)


def _seem_apart(accuracy: float, images: int, points: float) -> float:
    """How often, in percent, two networks of this accuracy are so many points apart, each on images of its own."""
    spread = math.sqrt(2 * images * accuracy * (1 - accuracy))
    return 200 * float(stats.norm.sf((points / 100 * images - 0.5) / spread))


def _may_wake(awake: list[bool], open_now: list[bool]) -> bool:
    phi = torch.where(torch.tensor(open_now), 1.0, -1.0)
    units = gates.Gates(phi, torch.tensor(awake), "sigmoid", 1.0, 0.5, 1)
    return bool(units.dormant().any()) and not bool(units.redundant().any())


def _ended(losses: list[float], layers: list[tuple[list, list]], patience: int, tolerance: float) -> bool:
    return gates.plateaus(losses, patience, tolerance) and not any(_may_wake(*layer) for layer in layers)


def _pairs(weights: int, features: int, neurons: int) -> list[tuple[int, int]]:
    """All numbers of features and neurons, up to so many of each, that give the moons' network so many weights."""
    neuron_counts = (n for n in range(1, neurons + 1) if weights % n == 0)
    return [(weights // n - 2, n) for n in neuron_counts if 1 <= weights // n - 2 <= features]


def _saved(widths: list[int], layer: int) -> int:
    left = [width - (number == layer) for number, width in enumerate(widths)]
    before, after = (measures.weights("alexnet", "-".join(map(str, one))) for one in (widths, left))
    return before - after


EXERCISES: dict[str, Checker] = {
    "40.1": number(
        _gate_slope(7.0, 0.8) * (1 - 3),
        "The loss of open minus closed, times the slope of the sigmoid; the slope by phi has the factor k.",
        wrong={
            -0.32: "the slope by phi has the factor k.",
            2.24: "open minus closed is 1 - 3; opening lowers the loss.",
            -2.0: "that is the difference of the losses; times the slope of g.",
        },
        second="7 x 0.8 x 0.2 x (1 - 3).",
        learned="A steeper gate has a steeper gradient: that is the factor that the paper's equation leaves out.",
    ),
    "40.2": number(
        0.06 / 30,
        "Its price is 30 lambda; when is that more than what it gains?",
        tolerance=1e-5,
        wrong={
            0.06: "the price is counted for each of its 30 weights.",
            1.8: "30 lambda has to exceed 0.06: divide.",
            500: "that is the other way around.",
        },
        second="0.06 / 30.",
        learned="The same price closes wide layers first, for their gates stand in front of more weights.",
    ),
    "40.3": function(
        _arm,
        [
            ([[3.0, 1.0], [2.0, 5.0]], [0.75, 0.25], [0.5, 0.125]),
            ([[3.0, 1.0], [2.0, 5.0]], [0.75, 0.25], [0.875, 0.5]),
            ([[0.0, 1.0], [4.0, 2.0]], [0.5, 0.5], [0.25, 0.75]),
        ],
        "First loss: gates open where u > 1 - pi; second: where u < pi; their difference times u - 1/2, gate by gate.",
        wrong=[
            (lambda losses, pi, u: [-x for x in _arm(losses, pi, u)], "the sign: u > 1 - pi comes first."),
            (_ar, "that is AR: one loss times 1 - 2u. ARM takes the difference of two."),
            (lambda losses, pi, u: [2 * x for x in _arm(losses, pi, u)], "the factor is u - 1/2, not 2u - 1."),
        ],
        second="one = losses[u[0] > 1 - pi[0]][u[1] > 1 - pi[1]]; True counts as 1.",
        learned="The same two losses serve all gates: a thousand gates cost two forward passes.",
    ),
    "40.4": function(
        _expected,
        [
            ([[3.0, 1.0], [2.0, 5.0]], [0.75, 0.25]),
            ([[0.0, 1.0], [4.0, 2.0]], [0.5, 0.5]),
            ([[1.0, 2.0], [3.0, 4.0]], [1.0, 0.0]),
        ],
        "Four settings: each loss times the probability of both gates being so.",
        wrong=[
            (lambda losses, pi: round(sum(map(sum, losses)) / 4, 9), "that is the mean for gates at one half."),
            (lambda losses, pi: _expected(losses, [1 - p for p in pi]), "pi is the probability of being open, 1."),
            (lambda losses, pi: losses[round(pi[0])][round(pi[1])], "that is the loss of the likelier setting."),
        ],
        second="losses[1][0] has the probability pi[0] * (1 - pi[1]), and so on.",
        learned="With n gates these are 2^n terms, which is why one samples.",
    ),
    "40.5": number(
        10.0,
        "They agree where both are true or both false; compare them draw by draw.",
        tolerance=0.3,
        wrong={
            90: "that is how often they agree.",
            5: "they differ for u near 0 and for u near 1: both ends count.",
            9.5: "that is for independent draws; here both settings come from one u.",
        },
        second="u < 0.05 and u > 0.95: in the first case only u < pi holds, in the second only u > 1 - pi.",
        learned="A nearly decided gate's own settings differ in 2 min(pi, 1 - pi) of the draws; others give it noise.",
    ),
    "41.1": number(
        len(_pairs(3300, 100, 80)),
        "l1 (l0 + 2) = 3300, so l1 divides 3300; which divisors leave l0 at 100 or below?",
        wrong={
            len(_pairs(3300, 3300, 3300)): "those are all; there are 100 features and 80 neurons at most.",
            len(_pairs(3300, 3300, 80)): "at most 100 features can be open, too.",
            len(_pairs(3300, 100, 3300)): "at most 80 neurons can be open, too.",
        },
        second="sum(3300 % l1 == 0 and 1 <= 3300 // l1 - 2 <= 100 for l1 in range(1, 81)).",
        learned="So a number of weights alone does not say which architecture was found: 33 neurons, or 75.",
    ),
    "41.2": number(
        (50 - 3) * next(n for n in range(1, 99) if gates.plateaus([1.0] * n, 5, 0.0)),
        "How many neurons have to be woken, and how many epochs does each cost when nothing improves?",
        wrong={
            235: "each comparison needs one loss more than the patience: six.",
            300: "three neurons are open at the start.",
            47: "that is how many are woken; each takes several epochs.",
        },
        second="47 neurons, six epochs each.",
        learned="So patience and schedule bound the size of an expansion, whatever the data ask for.",
    ),
    "41.3": function(
        _may_wake,
        [
            ([True, True, False], [True, True, False]),
            ([True, True, False], [True, False, False]),
            ([True, True], [True, True]),
            ([False, False, True], [False, False, True]),
            ([True, True, True], [True, False, True]),
        ],
        "It needs one that sleeps (never open, closed now), and none to spare (once open, closed now).",
        wrong=[
            (
                lambda awake, open_now: not all(open_now),
                "one that has closed again is one to spare, it does not sleep.",
            ),
            (lambda awake, open_now: not all(awake), "you do not ask whether one has closed again."),
            (lambda awake, open_now: all(open_now), "if all are open none sleeps, so there is none to wake."),
        ],
        second="pairs = list(zip(awake, open_now)): (False, False) has to be among them, (True, False) must not.",
        learned="A layer that already wastes a neuron needs no other: that is what makes growth stop by itself.",
    ),
    "41.4": function(
        _ended,
        [
            (
                [0.9, 0.7, 0.6, 0.62, 0.61],
                [([True, True], [True, True]), ([True, True, False], [True, False, False])],
                2,
                0.05,
            ),
            ([0.6, 0.6, 0.6], [([True, True], [True, False]), ([True, False], [True, False])], 2, 0.1),
            ([0.6, 0.6, 0.6], [([True, False], [True, False]), ([True, True], [True, True])], 2, 0.1),
            ([0.5, 0.52, 0.54, 0.56], [([True, True, False], [True, False, False])], 3, 0.05),
            ([0.6, 0.6, 0.6], [([True, False], [True, False]), ([False, True], [False, True])], 2, 0.1),
            ([0.6, 0.6], [([True], [True])], 2, 0.1),
        ],
        "Two questions: is the loss at rest, and is there no layer that may wake a neuron?",
        wrong=[
            (
                lambda losses, layers, patience, tolerance: gates.plateaus(losses, patience, tolerance),
                "a loss at rest is when a neuron is woken; it ends when none can be.",
            ),
            (
                lambda losses, layers, patience, tolerance: not any(_may_wake(*layer) for layer in layers),
                "the loss has to be at rest as well.",
            ),
            (
                lambda losses, layers, patience, tolerance: (
                    gates.plateaus(losses, patience, tolerance) and not all(_may_wake(*layer) for layer in layers)
                ),
                "one layer that may wake a neuron is enough to go on.",
            ),
            (
                lambda losses, layers, patience, tolerance: (
                    _not_improving(losses, patience, tolerance) and not any(_may_wake(*layer) for layer in layers)
                ),
                "that takes a rising loss for one at rest; at rest means that it moves neither way.",
            ),
        ],
        second="plateaus(losses, patience, tolerance) and not any(may_wake(*layer) for layer in layers)",
        learned="Where no gate closes in time it ends all the same, when nothing is left to wake.",
    ),
    "41.5": number(
        100 / 27,
        "Draw three uniform numbers each time and ask whether all are below 1/3.",
        tolerance=0.3,
        wrong={
            33.3: "that is one seed; all three have to.",
            100: "a third three times is no certainty: multiply.",
            11.1: "that is two seeds.",
        },
        second="100 * (rng.random((100_000, 3)) < 1 / 3).all(axis=1).mean()",
        learned="And whoever tries many settings and shows the best one will meet such a triple.",
    ),
    "42.1": number(
        0.5 * 20 * 5 * 5,
        "How many weights does the gate switch? Each costs the second lambda.",
        wrong={
            12.5: "it has a kernel for each of 20 inputs.",
            0.5: "that is the price of one weight; the gate switches many.",
            5000: "the second lambda is 0.5, not 10.",
        },
        second="20 x 25 weights at 0.5 each.",
        learned="A channel of the first convolution costs as much: 25 weights at 10 each.",
    ),
    "42.2": number(
        53 * 8 / 50,
        "A position is live when its channel is open: which share of all positions belongs to open channels?",
        tolerance=0.05,
        wrong={
            53: "those of closed channels are always zero.",
            3.3: "each channel has 16 positions; the share of open channels is 8 of 50.",
            21.2: "20 channels are the first convolution's; positions belong to the second, which has 50.",
        },
        second="8 of 50 channels are open, so 8/50 of 53.",
        learned="A real network keeps far more of them live: gates of positions and channels agree.",
    ),
    "42.3": function(
        lambda a, b, c, d: measures.weights("lenet5", f"{a}-{b}-{c}-{d}") + 90 * d,
        [(20, 50, 800, 500), (7, 9, 109, 30), (1, 1, 1, 1)],
        "Take the formula at the top and change what the last layer counts.",
        wrong=[
            (lambda a, b, c, d: measures.weights("lenet5", f"{a}-{b}-{c}-{d}"), "that is for ten classes."),
            (
                lambda a, b, c, d: measures.weights("lenet5", f"{a}-{b}-{c}-{d}") + 100 * d,
                "the ten weights a neuron of the old last layer go away.",
            ),
            (
                lambda a, b, c, d: 10 * measures.weights("lenet5", f"{a}-{b}-{c}-{d}"),
                "only the last layer has a row for each class.",
            ),
        ],
        second="25 a + 25 a b + c d + 100 d.",
        learned="With a thousand classes the last layer would outweigh all the others of such a small network.",
    ),
    "42.4": function(
        _hardened,
        [
            ([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], [[1.0, 1.0, 2.0]], [0.5, 0.0, 1.0]),
            ([[1.0], [2.0]], [[3.0, 4.0], [5.0, 6.0]], [0.0, 0.75]),
            ([[1.0]], [[2.0]], [1.0]),
        ],
        "Leave out rows of `first` and columns of `last` whose value is 0; multiply the columns by their values.",
        wrong=[
            (_hardened_without_values, "open gates have a value, too: write it into the last matrix."),
            (_hardened_first, "the values belong into the last matrix, by the task."),
            (lambda first, last, values: (first, last), "nothing has been cut out."),
        ],
        second="kept = [i for i, v in enumerate(values) if v] names the rows and the columns that stay.",
        learned="With a ReLU between the two it would work as well, because the values are not negative.",
    ),
    "42.5": number(
        1.85,  # any seed gives a factor in this range, and rounding moves it, too
        "Change lambdas alone, read the last row's `parameters_live`, and divide by what it was with the whole prices.",
        tolerance=0.75,
        wrong={
            1 / 0.3: "that would be a size in inverse proportion to the price; measure it.",
            0.3: "gates that cost less stay open: there are more live weights, not fewer.",
            6000: "that is a number of weights; the question is for how many times as many there are.",
        },
        second="The penalty closes what is worth less than its price; how much is worth between 0.3 and 1 of it?",
        learned="A third of the price leaves less than three times the weights: few gates are worth just that much.",
    ),
    "43.1": number(
        0.02 * 4096 / (0.08 * 100),
        "A gate on the input of a fully connected layer pays lambda for each of its outgoing weights.",
        tolerance=0.06,
        wrong={
            409.6: "that is for ten classes and one lambda.",
            40.96: "the two lambdas differ, 0.02 and 0.08.",
            0.098: "that is the other way around.",
        },
        second="0.02 x 4096 against 0.08 x 100.",
        learned="On CIFAR-10 it is 410: there a neuron before the last layer is nearly free to keep.",
    ),
    "43.2": number(
        100 * math.sqrt(sum(p * (1 - p) for p in (0.8545, 0.8476)) / 10_000),
        "An accuracy p over n images has the variance p (1 - p) / n; variances of independent numbers add up.",
        tolerance=0.005,
        wrong={
            0.357: "that is the error of one accuracy; the difference has both.",
            0.714: "variances add up, not standard errors.",
            0.005: "in points, please.",
        },
        second="sqrt(0.8545 x 0.1455 + 0.8476 x 0.1524) / 100 x 100 points.",
        learned="The printed lead of 0.69 points is 1.4 such errors.",
    ),
    "43.3": function(
        _saved,
        [([89, 161, 131, 91, 57, 92, 299, 3486], layer) for layer in range(8)],
        "A layer loses the unit's weights, and so does the layer that reads it, but where fc1 has gates of its own.",
        wrong=[
            (_priced, "that is what the gate pays for; closing it saves the reader's weights, too."),
            (lambda widths, layer: _saved(widths, layer) + 1, "you count one too many."),
            (lambda widths, layer: widths[layer], "that is how many gates the layer has."),
        ],
        second="Change widths[layer] by one and take the difference of sum(by_layer(...)).",
        learned="A neuron before fc3 pays for ten weights and saves hundreds: the penalty counts no storage.",
    ),
    "43.4": function(
        _price,
        [
            ([96, 256, 384, 384, 256, 1024, 4096, 4096], [0.02] * 8),
            ([89, 161, 131, 91, 57, 92, 299, 3486], [0.01] * 6 + [0.02, 0.08]),
            ([1] * 8, [1, 0, 0, 0, 0, 0, 0, 0]),
        ],
        "Open gates times what each switches in the whole network (27, 864, 2304, ..., 4096, 10) times lambda.",
        wrong=[
            (lambda widths, lambdas: float(sum(lambdas)), "that is the price of one weight a layer."),
            (_price_of_small, "a gate pays for what it switches in the whole network, not in the shrunk one."),
            (lambda widths, lambdas: _price(widths, [1.0] * 8), "multiply by lambda."),
        ],
        second="round(sum(n * w * l for n, w, l in zip(widths, switched, lambdas)), 6)",
        learned="The whole network costs 9.7 on CIFAR-10 after dividing by N; a guess has a loss of 2.3.",
    ),
    "43.5": number(
        _seem_apart(0.85, 10_000, 0.69),
        "rng.binomial(10_000, 0.85, (100_000, 2)) / 100 are the two accuracies; how often are they 0.69 apart?",
        tolerance=1.5,
        wrong={
            8.5: "either one may be ahead: take the absolute difference.",
            5: "that would be at 0.99 points, two standard errors.",
            0.17: "this is the share; the question is for percent.",
        },
        second="The standard error of the difference is 0.505 points, so 0.69 are 1.37 of them.",
        learned="One in six pairs of equally good networks shows as much: a single run proves nothing.",
    ),
}
