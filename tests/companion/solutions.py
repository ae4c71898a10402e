"""Worked solutions of every exercise: the tests run them, and the answer key prints them."""

import importlib
import math

import numpy as np
from scipy import stats

from lib import base
from lib.companion.exercises import start_here

MODULES = (
    start_here,
    *(
        importlib.import_module(f"lib.papers.{path.parent.name}.exercises")
        for path in base.PAPERS.glob("*/exercises.py")
    ),
)
MODULE = {exercise: module for module in MODULES for exercise in module.EXERCISES}
EXERCISES = {name: exercise for module in MODULES for name, exercise in module.EXERCISES.items()}


def kept(weights, sparsity):
    order = sorted(range(len(weights)), key=lambda i: abs(weights[i]))
    removed = set(order[: round(sparsity * len(weights))])
    return [i not in removed for i in range(len(weights))]


def cubic(step, final, start, every, times):
    done = min(max((step - start) // every, 0), times)
    return final + (0 - final) * (1 - done / times) ** 3


def of_cells(verdicts):
    found = set(verdicts)
    if found == {"reproduced"} or "reproduced" not in found:
        return "differs" if "differs" in found else found.pop()
    return "partly"


def one_of_two(row):
    pairs = [row[i : i + 2] for i in range(0, len(row), 2)]
    return [keep for a, b in pairs for keep in ((True, False) if abs(a) >= abs(b) else (False, True))]


def pack(row):
    values, places = [], []
    for start in range(0, len(row), 4):
        group = row[start : start + 4]
        kept = [i for i in range(4) if group[i] != 0]
        kept = sorted(kept + [i for i in range(4) if group[i] == 0][: 2 - len(kept)])
        values, places = values + [group[i] for i in kept], places + kept
    return values, places


def judge(differences, margin):
    n = len(differences)
    half = stats.t.ppf(0.975, n - 1) * np.std(differences, ddof=1) / math.sqrt(n)
    low, high = np.mean(differences) - half, np.mean(differences) + half
    return "reproduced" if low >= -margin else "differs" if high < -margin else "undecided"


def magnitude_kept(rows):
    return sum(sum(sorted(map(abs, row[i : i + 4]))[2:]) for row in rows for i in range(0, len(row), 4))


def divergence(p, q):
    p, q = np.asarray(p) / np.sum(p), np.asarray(q) / np.sum(q)
    return round(float(stats.entropy(p, q)), 9)


def bound_of(block, n, rows, columns):
    excess = [max(0, block[i][j] - rows[i] - columns[j]) for i in range(len(rows)) for j in range(len(columns))]
    return n * (sum(rows) + sum(columns)) + sum(excess)


def is_certificate(block, mask, rows, columns):
    kept = sum(block[i][j] for i in range(len(rows)) for j in range(len(columns)) if mask[i][j])
    return abs(bound_of(block, sum(mask[0]), rows, columns) - kept) < 1e-9


def circulant_block(c):
    return [[c[(i - j) % len(c)] for j in range(len(c))] for i in range(len(c))]


def sparsities(rewards):
    highest, pruned, found = 0, 0, []
    for reward in rewards:
        if reward > highest:
            highest, pruned = reward, pruned + 5
        found.append(pruned)
    return found


def average_ratio(sparsities, block, shift):
    return np.mean([1 - (1 - s) / block if s < shift else s for s in sparsities])


def errors(scores, same, threshold):
    ones = [score for score, one in zip(scores, same, strict=True) if one]
    twos = [score for score, one in zip(scores, same, strict=True) if not one]
    return sum(s < threshold for s in ones) / len(ones), sum(s >= threshold for s in twos) / len(twos)


def soft_cross_entropy(student, teacher):
    return round(-sum(q * math.log(p) for p, q in zip(student, teacher, strict=True)), 4)


def speaker(values, between, within):
    precision = 1 / between + len(values) / within
    return round(sum(value / within for value in values) / precision, 6), round(1 / precision, 6)


def kernel_matrix(coefficients):
    b = len(coefficients[0][0])
    rows, columns = range(b * len(coefficients)), range(b * len(coefficients[0]))
    return [[coefficients[r // b][k // b][(r - k) % b] for k in columns] for r in rows]


def seeds_needed(mean, sd, margin):
    seeds = 2
    while mean - stats.t.ppf(0.975, seeds - 1) * sd / math.sqrt(seeds) < -margin:
        seeds += 1
    return seeds


def may_wake(awake, open_now):
    pairs = list(zip(awake, open_now, strict=True))
    return (False, False) in pairs and (True, False) not in pairs


def hardened(first, last, values):
    gates = np.array(values)
    return np.array(first)[gates > 0].tolist(), (np.array(last) * gates)[:, gates > 0].tolist()


def arm_of_a_table(losses, pi, u):
    one = losses[u[0] > 1 - pi[0]][u[1] > 1 - pi[1]]
    other = losses[u[0] < pi[0]][u[1] < pi[1]]
    return [(one - other) * (u_j - 0.5) for u_j in u]


def saved_alexnet_weights(widths, layer):
    a, b, c, d, e, f, g, h = widths
    return [27 + 9 * b, 9 * (a + c), 9 * (b + d), 9 * (c + e), 9 * d, g, f + h, g + 10][layer]


def n_step_returns(rewards, ended, last, discount):
    found, total = [], last
    for reward, end in zip(reversed(rewards), reversed(ended), strict=True):
        total = reward + discount * (1 - end) * total
        found.insert(0, total)
    return found


def sr_ste_step(weights, gradients, mask, rate, decay):
    return [w - rate * (g + decay * w * (not kept)) for w, g, kept in zip(weights, gradients, mask, strict=True)]


def flip_rate(masks):
    steps = len(masks) - 1
    changed = sum(a != b for k in range(steps) for a, b in zip(masks[k], masks[k + 1], strict=True))
    return 100 * changed / steps / len(masks[0])


def overlap_of_boxes(one, other):
    width = max(0, min(one[2], other[2]) - max(one[0], other[0]))
    height = max(0, min(one[3], other[3]) - max(one[1], other[1]))
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)]
    return round(width * height / (sum(areas) - width * height), 6)


def strongest_apart(boxes, scores):
    kept = []
    for one in sorted(range(len(boxes)), key=lambda one: -scores[one]):
        if all(overlap_of_boxes(boxes[one], boxes[other]) <= 0.5 for other in kept):
            kept.append(one)
    return sorted(kept)


def penalty(translations, references):
    c, r = (len(" ".join(lines).split()) for lines in (translations, references))
    return round(1 if c > r else math.exp(1 - r / c), 6)


def best_of_beam(first, second, width):
    beam = sorted(range(len(first)), key=first.__getitem__, reverse=True)[:width]
    pairs = {(one, two): first[one] * share for one in beam for two, share in enumerate(second[one])}
    return list(max(pairs, key=pairs.get))


def snip_mask(weights, gradients, sparsity):
    return kept([w * g for w, g in zip(weights, gradients, strict=True)], sparsity)


def bcq_target(reward, ended, first, second):
    mixed = [0.75 * min(pair) + 0.25 * max(pair) for pair in zip(first, second, strict=True)]
    return round(reward + (0 if ended else 0.99 * max(mixed)), 6)


def scaled_column(column):
    return [round(float((x - np.mean(column)) / (np.std(column) + 0.001)), 6) for x in column]


def greedy_mask(block, n):
    mask = np.zeros((len(block), len(block)), dtype=bool)
    for place in np.argsort(np.ravel(block))[::-1]:
        i, j = divmod(int(place), len(block))
        mask[i, j] = mask[i].sum() < n and mask[:, j].sum() < n
    return mask.tolist()


SOLUTIONS = {
    "00.1": 218,
    "00.2": 0.9 + (0 - 0.9) * (1 - 2 / 5) ** 3,
    "00.3": kept,
    "00.4": cubic,
    "00.5": 67.8,
    "10.1": 0.1,
    "10.2": lambda theta, h: [-t * (c * (c * t)) for t, c in zip(theta, h, strict=True)],
    "10.3": 2,  # the scores are -1, -0.64 and -2.25
    "10.4": snip_mask,
    "10.5": 100,  # ten times the gradient, and ten times the Hessian
    "11.1": 50.0,
    "11.2": 6.0,
    "11.3": bcq_target,
    "11.4": lambda mean, log_std: round((mean**2 + math.exp(log_std) ** 2 - 1) / 2 - log_std, 6),
    "11.5": 80.3,
    "12.1": lambda scores: np.mean(sorted(scores)[len(scores) // 4 : len(scores) - len(scores) // 4]),
    "12.2": 1,
    "12.3": 77.6,
    "12.4": scaled_column,
    "12.5": 3.2,
    "13.1": 66.7,
    "13.2": lambda weights, sparsity: 20 * round((1 - sparsity) * weights),
    "13.3": 79.8,
    "13.4": 76.2,
    "13.5": 9.7,
    "20.1": 100 * (1 - (2 * 32 + 2 * 2) / (4 * 32)),
    "20.2": 11,  # 2^10 < 6^4 = 1296 <= 2^11
    "20.3": one_of_two,
    "20.4": pack,
    "20.5": 76.8,
    "21.1": 1.0737,
    "21.2": 1.57,
    "21.3": 330,  # 1,024 N / (1,024 + 2 N) = 312 / 1.555 at N = 329.9
    "21.4": lambda intensity, peak, bandwidth: min(peak, intensity * bandwidth),
    "21.5": 105.5,
    "22.1": 2_627_625,  # 16! / (4!^4 x 4!)
    "22.2": 33.3,
    "22.3": magnitude_kept,
    "22.4": lambda order: [order.index(column) for column in range(len(order))],
    "22.5": 5.2,
    "23.1": 0.40,
    "23.2": 0.63,
    "23.3": judge,
    "23.4": lambda weights, gradients, mask, rate: [
        keep * (w - rate * g) for w, g, keep in zip(weights, gradients, mask, strict=True)
    ],
    "23.5": 1.6,
    "24.1": 0.05,
    "24.2": 3,
    "24.3": lambda values, amax: [max(-127, min(127, round(value / (amax / 127)))) for value in values],
    "24.4": divergence,
    "24.5": 30,
    "25.1": lambda places: [[seen <= reader for seen in range(places)] for reader in range(places)],
    "25.2": 6.02,
    "25.3": 228,  # nineteen updates an epoch: eighteen full batches and one of twelve
    "25.4": lambda shares: round(-sum(map(math.log2, shares)) / len(shares), 6),
    "25.5": 22,
    "26.1": 18,
    "26.2": 64,
    "26.3": overlap_of_boxes,
    "26.4": strongest_apart,
    "26.5": 1,
    "27.1": 7,  # 2^6 < 90 <= 2^7
    "27.2": is_certificate,
    "27.3": 9.1,
    "27.4": greedy_mask,
    "27.5": 50.3,
    "28.1": 1.5,
    "28.2": 1.5,
    "28.3": sr_ste_step,
    "28.4": flip_rate,
    "28.5": 100,
    "29.1": 0.7165,
    "29.2": 36.44,
    "29.3": penalty,
    "29.4": best_of_beam,
    "29.5": 1,
    "30.1": 198,
    "30.2": errors,
    "30.3": 0.598,
    "30.4": speaker,
    "30.5": 0.333,
    "31.1": 0.6,
    "31.2": soft_cross_entropy,
    "31.3": 950,
    "31.4": 3,
    "31.5": 1.0297,
    "32.1": 23.6,
    "32.2": (8 - 4) ** 2,
    "32.3": lambda student, teacher, pretrained: 3 * (student + teacher) + (teacher if pretrained else 0),
    "32.4": lambda own, rival: round(sum(100 - 100 * a / b for a, b in zip(own, rival, strict=True)) / len(own), 6),
    "32.5": 70.7,
    "33.1": 100 * 3.45 / 5.98 * (2 * 32 + 2 * 2) / (4 * 32),
    "33.2": lambda errors: 100 * (errors["retrained"] - errors["dense_twice"]) / errors["dense_twice"],
    "33.3": lambda layers: sum(out * inner * (17 if inner % 16 == 0 else 32) for out, inner in layers) / 8,
    "33.4": 63.5,
    "33.5": 53.83,
    "40.1": 7 * 0.8 * 0.2 * -2,
    "40.2": 0.002,
    "40.3": arm_of_a_table,
    "40.4": lambda losses, pi: round(
        float(np.array([1 - pi[0], pi[0]]) @ np.array(losses) @ np.array([1 - pi[1], pi[1]])), 9
    ),
    "40.5": 10,
    "41.1": sum(3 <= 3300 / n <= 102 and 3300 % n == 0 for n in range(1, 81)),
    "41.2": 47 * 6,
    "41.3": may_wake,
    "41.4": lambda losses, layers, patience, tolerance: (
        len(losses) > patience
        and bool(np.ptp(losses[-patience - 1 :]) <= tolerance)
        and not any(may_wake(*layer) for layer in layers)
    ),
    "41.5": 3.7,
    "42.1": 250,
    "42.2": 8.48,
    "42.3": lambda a, b, c, d: 25 * a + 25 * a * b + c * d + 100 * d,
    "42.4": hardened,
    "42.5": 1.9,
    "43.1": 10.24,
    "43.2": 0.504,
    "43.3": saved_alexnet_weights,
    "43.4": lambda widths, lambdas: round(
        float(np.dot(np.array(widths) * [27, 864, 2304, 3456, 3456, 4096, 4096, 10], lambdas)), 6
    ),
    "43.5": 17.2,
    "50.1": 16_384,
    "50.2": 79.1,
    "50.3": circulant_block,
    "50.4": lambda c, x: [sum(c[(i - j) % len(c)] * x[j] for j in range(len(x))) for i in range(len(c))],
    "50.5": 81.3,
    "51.1": 58.9,  # 0.76 x 47.5 + 0.24 x 95
    "51.2": 48.3,
    "51.3": sparsities,
    "51.4": lambda returns, size: [float(np.mean(returns[: i + 1][-size:])) for i in range(len(returns))],
    "51.5": 62,
    "52.1": 59.8,
    "52.2": 37.5,
    "52.3": average_ratio,
    "52.4": lambda numbers, kept: [[numbers[(i - j) % 4] * kept[(i - j) % 4] for j in range(4)] for i in range(4)],
    "52.5": 60,
    "53.1": 60,
    "53.2": 0.25,
    "53.3": lambda weights, gradients: abs(weights[0] * sum(gradients)),
    "53.4": lambda a, b: round(float(stats.spearmanr(a, b).statistic), 9),
    "53.5": 28,
    "54.1": 3.75,
    "54.2": 57.8,
    "54.3": n_step_returns,
    "54.4": lambda ratio, advantage, clip: round(
        min(ratio, 1 + clip) * advantage if advantage > 0 else max(ratio, 1 - clip) * advantage, 9
    ),
    "54.5": 10,
    "55.1": 56.25,
    "55.2": 0.424,
    "55.3": lambda out, inputs, kernel, block, sparsity: round(out * inputs * kernel**2 / block * (1 - sparsity)),
    "55.4": kernel_matrix,
    "55.5": -0.4,
    "61.1": 0.85,
    "61.2": 1,
    "61.3": of_cells,
    "61.4": seeds_needed,
    "61.5": 75,
    "62.1": 17_408,
    "62.2": 56.25,
    "62.3": lambda row, n, m: not any(sum(map(bool, row[i : i + m])) > n for i in range(0, len(row), m)),
    "62.4": lambda values, bitmap: [values[sum(bitmap[:i])] if bit else 0.0 for i, bit in enumerate(bitmap)],
    "62.5": 48.0,
}
