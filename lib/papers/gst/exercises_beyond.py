"""Check exercises of paper 5 beyond MuJoCo: notebooks 54 and 55."""

from __future__ import annotations

import math

import torch

from lib.companion.exercises.checkers import Checker, function, number
from lib.kernels import block_circulant
from lib.models.game_player import PlayerSizes
from lib.papers.gst.experiments.compression import ratio
from lib.training import actor_critic


def _returns(rewards: list[float], ended: list[float], last: float, discount: float) -> list[float]:
    settings = actor_critic.ActorCriticSettings(discount=discount, trace=1.0, network=PlayerSizes())
    values = torch.zeros(len(rewards) + 1, 1, dtype=torch.float64)
    values[-1] = last
    columns = (torch.tensor(column, dtype=torch.float64)[:, None] for column in (rewards, ended))
    return actor_critic.returns(*columns, values, settings)[:, 0].tolist()


def _returns_across(rewards: list[float], ended: list[float], last: float, discount: float) -> list[float]:
    """Goes on after an episode's end: a typical mistake."""
    return _returns(rewards, [0.0] * len(rewards), last, discount)


def _returns_alone(rewards: list[float], ended: list[float], last: float, discount: float) -> list[float]:
    """Forgets what is expected after the last step: a typical mistake."""
    return _returns(rewards, ended, 0.0, discount)


def _returns_undiscounted(rewards: list[float], ended: list[float], last: float, discount: float) -> list[float]:
    """Does not discount: a typical mistake."""
    return _returns(rewards, ended, last, 1.0)


def _numbers(out: int, inputs: int, kernel: int, block: int, sparsity: float) -> int:
    return round(out * inputs * kernel**2 / block * (1 - sparsity))


def _ppo_term(ratio: float, advantage: float, clip: float) -> float:
    return round(min(ratio * advantage, min(max(ratio, 1 - clip), 1 + clip) * advantage), 9)


def _kernel_matrix(coefficients: list[list[list[float]]]) -> list[list[float]]:
    blocks = torch.tensor(coefficients, dtype=torch.float64)
    size = (blocks.shape[0] * blocks.shape[2], blocks.shape[1] * blocks.shape[2])
    return block_circulant.expand(blocks, block_circulant.circulant(blocks.shape[2]), size).tolist()


def _turned(coefficients: list[list[list[float]]]) -> list[list[float]]:
    """Takes (j - i) for (i - j): a typical mistake, which turns every block over."""
    return _kernel_matrix([[[c[-k % len(c)] for k in range(len(c))] for c in line] for line in coefficients])


BEYOND: dict[str, Checker] = {
    "54.1": number(
        3.75,
        "The first reward counts fully, the third a quarter, and the expected return of what follows an eighth.",
        wrong={
            4.25: "three steps lie between the first reward and what follows: its weight is 0.5^3.",
            3.25: "what is expected after the last step belongs to the return, too.",
            8.0: "every step discounts by a half.",
        },
        second="3 + 0.5 x 0 + 0.25 x 1 + 0.125 x 4.",
        learned="Who plays five steps at a time learns of later points only through the value that is expected.",
    ),
    "54.2": number(
        100 * 2 * (0.719 / 0.99 + 1 / 16 - 0.5),
        "Solve equation 3 for S: divide by the share, add the bitmap, subtract what blocks of 2 save, times 2.",
        tolerance=0.3,
        wrong={
            45.3: "the bitmap costs a sixteenth, which has to be saved first.",
            28.9: "that is S / 2: in blocks of two a removed coefficient saves half of its share.",
            78.9: "that is what single weights would need. Blocks of 2 save 50 points of it by themselves.",
        },
        second="0.719 / 0.99 = 0.726; plus 0.0625 minus 0.5 is 0.289; twice that.",
        learned="On average over the training more than half of the coefficients were gone, so pruning began early.",
    ),
    "54.3": function(
        _returns,
        [
            ([1.0, 0.0, 2.0], [0.0, 0.0, 0.0], 8.0, 0.5),
            ([1.0, 0.0, 2.0], [0.0, 1.0, 0.0], 8.0, 0.5),
            ([0.0, 3.0], [0.0, 1.0], 5.0, 0.9),
        ],
        "Go from the last step to the first: reward plus discount times what follows, and nothing follows an end.",
        wrong=[
            (_returns_across, "nothing that comes after the end of an episode counts for what was before."),
            (_returns_alone, "after the last step the expected return, `last`, still follows."),
            (_returns_undiscounted, "each step discounts what follows it."),
        ],
        second="total = last; for reward, end in zip(reversed(rewards), reversed(ended)): total = ...",
        learned="A2C and PPO learn from the same returns; they differ in how far one batch may move the network.",
    ),
    "54.4": function(
        _ppo_term,
        [(1.5, 2.0, 0.1), (1.5, -2.0, 0.1), (0.5, 2.0, 0.2), (0.5, -2.0, 0.2), (1.05, 1.0, 0.1)],
        "Compute ratio x advantage twice, once with the ratio held within 1 - clip and 1 + clip; take the smaller.",
        wrong=[
            (
                lambda ratio, advantage, clip: round(min(max(ratio, 1 - clip), 1 + clip) * advantage, 9),
                "that is the clipped product alone; an action that became worse has to be felt in full.",
            ),
            (lambda ratio, advantage, clip: round(ratio * advantage, 9), "nothing holds the ratio near 1 here."),
            (
                lambda ratio, advantage, clip: round(
                    max(ratio * advantage, min(max(ratio, 1 - clip), 1 + clip) * advantage), 9
                ),
                "you take the larger of the two; the cautious one is the smaller.",
            ),
        ],
        second="min(ratio * advantage, min(max(ratio, 1 - clip), 1 + clip) * advantage).",
        learned="The smaller of the two is a bound from below: moving further than the clip can only cost, never gain.",
    ),
    "54.5": number(
        10,
        "Where the critic expects exactly what follows, no step is a surprise. What is left of the return?",
        tolerance=0.01,
        wrong={
            8.784: "those are the twenty rewards alone; what is expected after the last step follows them.",
            20: "that is the plain sum; every step discounts by 0.9.",
            0: "those are the advantages, which are zero here; the return is the advantage plus what was expected.",
        },
        second="Each surprise is 1 + 0.9 x 10 - 10 = 0, so every return is 10.",
        learned="With a critic that is right, lambda changes nothing: it only says how far a wrong critic is trusted.",
    ),
    "55.1": number(
        100 * ratio(0.25, 2),
        "(1 - S) / B of the weights are left as numbers of 16 bits; each weight has a bit of mask besides.",
        tolerance=0.06,
        wrong={
            62.5: "that is without the mask, which costs a sixteenth.",
            43.75: "that is what blocks of 2 save before anything is removed.",
            18.75: "that is what pruning saves without blocks.",
        },
        second="1 - 0.75 / 2 - 1 / 16.",
        learned="The mask costs a sixteenth whatever is left: blocks of 2 pay more for it than for numbers beyond 7/8.",
    ),
    "55.2": number(
        100 * math.sqrt(0.9 * 0.1 / 5000),
        "The share of n independent right answers has a standard deviation of sqrt(p (1 - p) / n).",
        tolerance=0.01,
        wrong={
            0.0042: "that is the share; the question is for points.",
            0.707: "that is for an accuracy of one half; p (1 - p) is largest there.",
            1.342: "that is for 500 images.",
        },
        second="100 x sqrt(0.9 x 0.1 / 5000).",
        learned="A record by less than that may be luck, and reward-aware pruning prunes for it.",
    ),
    "55.3": function(
        _numbers,
        [(64, 64, 3, 4, 0.5), (32, 16, 3, 2, 0.25), (64, 64, 1, 1, 0.9), (8, 4, 5, 4, 0.0)],
        "All weights of the kernel, divided by the block size, times the share that stays.",
        wrong=[
            (lambda o, i, k, b, s: round(o * i * k**2 / b**2 * (1 - s)), "a block of B x B weights holds B numbers."),
            (lambda o, i, k, b, s: round(o * i * k / b * (1 - s)), "a kernel has side x side places."),
            (lambda o, i, k, b, s: round(o * i * k**2 / b * s), "those are the numbers that go."),
        ],
        second="round(out * inputs * kernel**2 / block * (1 - sparsity))",
        learned="For pruning a convolution is one matrix for each place of its kernel.",
    ),
    "55.4": function(
        _kernel_matrix,
        [
            ([[[1.0, 2.0], [3.0, 4.0]]],),
            ([[[1.0, 2.0, 3.0]]],),
            ([[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], [[7.0, 8.0, 9.0], [0.0, 1.0, 2.0]]],),
        ],
        "Row r lies in block row r // B, column k in block column k // B; inside the block it is (i - j) mod B.",
        wrong=[
            (_turned, "the number is (i - j) mod B, row minus column; yours is column minus row."),
            (
                lambda coefficients: [[number for block in line for number in block] for line in coefficients],
                "those are the numbers side by side; each of them stands at B places of its block.",
            ),
            (
                lambda coefficients: [list(column) for column in zip(*_kernel_matrix(coefficients), strict=True)],
                "rows and columns of the whole matrix have changed places: a block's row is an output channel.",
            ),
        ],
        second="coefficients[r // B][k // B][(r % B - k % B) % B] for each row r and column k.",
        learned="Nine such matrices are a kernel of 3 x 3, so a convolution needs no method of its own.",
    ),
    "55.5": number(
        -0.4,
        "Four weights share the number, and each brings its own gradient; the gradients add up.",
        tolerance=1e-4,
        wrong={
            0.4: "that is its size; SGD steps against the gradient, so the weight becomes smaller.",
            -0.1: "that is the step of a weight that is alone; a shared number hears four of them.",
            -0.025: "you averaged the gradients; the number's gradient is their sum.",
            -1.6: "a block has sixteen weights, but only four of them share a number.",
        },
        second="The gradient of a number is 4 x 1, and the rate 0.1.",
        learned="With SGD blocks take longer steps at the same rate; Adam scales every step and does not notice.",
    ),
}
