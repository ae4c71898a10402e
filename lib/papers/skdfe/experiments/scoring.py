"""Measure how well embeddings tell speakers apart: scores of trials, error rates, and intervals over speakers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import nn

from lib.base import BadInput, refuse_outside, refuse_uncounted
from lib.data.speech.utterances import SpeechData, Trials, Utterances
from lib.papers.skdfe.experiments.plda import Backend

BATCH = 32  # utterances embedded together


def embeddings(network: nn.Module, utterances: Utterances, device: str = "cpu") -> np.ndarray:
    """Embed each whole utterance, float64 [n, size]; the network is left in evaluation mode.

    Utterances of the same length are embedded together: padding would change the statistics.
    """
    network.eval()
    lengths = utterances.lengths
    found: dict[int, np.ndarray] = {}
    with torch.no_grad():
        for length in np.unique(lengths):
            alike = np.flatnonzero(lengths == length)
            for start in range(0, len(alike), BATCH):
                chosen = alike[start : start + BATCH]
                features = torch.from_numpy(np.stack([utterances[i] for i in chosen])).to(device)
                found |= dict(zip(chosen.tolist(), network(features).double().cpu().numpy(), strict=True))
    return np.stack([found[i] for i in range(len(utterances))])


def cosine(embeddings: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Return the cosine of the angle between the embeddings of each pair. [n, size], [trials, 2] -> [trials]"""
    unit = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    return (unit[pairs[:, 0]] * unit[pairs[:, 1]]).sum(1)


def det_curve(scores: np.ndarray, same: np.ndarray, weights: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return the miss and false alarm rates at every threshold, from accepting all to accepting none.

    A trial is accepted when its score is at least the threshold.

    Args:
        scores, same: [n]; `same` is true where one speaker spoke both.
        weights: [n], how often each trial counts; None: once.

    Returns:
        Shares of the trials of one speaker that are rejected, and of two that are accepted, [distinct scores + 1].

    Raises:
        BadInput: scores that are not finite, or no trial of one kind.
    """
    if scores.ndim != 1 or same.shape != scores.shape or same.dtype != bool:
        raise BadInput(
            f"{list(scores.shape)} scores need as many answers, bool; these are {same.dtype} {list(same.shape)}"
        )
    if weights is not None and (weights.shape != scores.shape or not (weights >= 0).all()):
        raise BadInput("trials count never or more often: expected a weight of 0 or more for each score")
    if not np.isfinite(scores).all():
        raise BadInput(f"{(~np.isfinite(scores)).sum()} of {len(scores)} scores are not finite")
    weights = np.ones(len(scores)) if weights is None else weights
    order = np.argsort(scores, kind="stable")  # quick for scores that are in order already
    scores, ones, twos = scores[order], (weights * same)[order], (weights * ~same)[order]
    if ones.sum() == 0 or twos.sum() == 0:
        raise BadInput("error rates need trials of one speaker and trials of two")
    last = np.append(scores[1:] != scores[:-1], True)  # a threshold cannot part equal scores
    miss = np.append(0.0, np.cumsum(ones)[last]) / ones.sum()
    false_alarm = np.append(0.0, np.cumsum(twos)[last]) / twos.sum()
    return miss, 1 - false_alarm


def equal_error_rate(miss: np.ndarray, false_alarm: np.ndarray) -> float:
    """Find the rate at which misses and false alarms are equally frequent, in percent.

    Between two neighbouring thresholds both are taken to be linear.
    """
    above = int(np.argmax(miss >= false_alarm))  # never 0: accepting all misses nobody
    before, after = (miss - false_alarm)[above - 1 : above + 1]
    part = before / (before - after)
    return float(100 * (miss[above - 1] + part * (miss[above] - miss[above - 1])))


def min_dcf(
    miss: np.ndarray, false_alarm: np.ndarray, prior: float = 0.01, cost_miss: float = 1.0, cost_alarm: float = 1.0
) -> float:
    """Find the least detection cost over all thresholds, as a share of what deciding without scores would cost.

    Args:
        prior: probability that one speaker spoke both.

    Raises:
        BadInput: a prior outside (0, 1).
    """
    refuse_outside("(0, 1)", prior=prior)
    cost = cost_miss * prior * miss + cost_alarm * (1 - prior) * false_alarm
    return float(cost.min() / min(cost_miss * prior, cost_alarm * (1 - prior)))


def bootstrap_weights(trials: Trials, speakers: np.ndarray, draw: int) -> np.ndarray | None:
    """Count how often each trial counts when the test speakers are drawn again with replacement. [n]

    A trial of one speaker counts as often as the speaker was drawn, a trial of two as often as pairs of them were.
    Trials are not drawn: those that share a speaker are not independent. The draw depends on its number and on who
    the speakers are, so two systems are compared on the same draws.

    Of few speakers some draws leave no trial of one kind, of which there are no error rates: such a draw is drawn
    again. Each draw has random numbers of its own, so the others stay as they are. Of two speakers every draw then is
    the two as they are, which says nothing of how much others differ.

    Args:
        speakers: of each test utterance.
        draw: from 1; 0 is the speakers as they are (None: every trial counts once).
    """
    if draw == 0:
        return None
    count = int(speakers.max()) + 1
    random, (first, second) = np.random.default_rng([0, draw]), speakers[trials.pairs].T
    while True:  # it ends: a trial of each kind takes three speakers or fewer, and a fifth of the draws has these
        drawn = random.multinomial(count, np.full(count, 1 / count))
        weights = np.where(trials.same, drawn[first], drawn[first] * drawn[second])
        if weights[trials.same].any() and weights[~trials.same].any():
            return weights.astype(float)


def bootstrap_det_curves(
    scores: np.ndarray, trials: Trials, speakers: np.ndarray, draws: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the `det_curve` of the speakers as they are, then of each of so many draws of them.

    Raises:
        BadInput: a number of draws that is no count.
    """
    refuse_uncounted(0, draws=draws)
    order = np.argsort(scores, kind="stable")
    scores, ordered = scores[order], Trials(trials.pairs[order], trials.same[order])
    for draw in range(draws + 1):
        yield det_curve(scores, ordered.same, bootstrap_weights(ordered, speakers, draw))


def error_rates(network: nn.Module, data: SpeechData, draws: int, device: str = "cpu") -> list[dict]:
    """Measure how well a network tells the test speakers apart, on every list of trials and for each draw of speakers.

    Scores are PLDA's, and the cosine's for comparison, both after the mean of the training embeddings is subtracted.

    Returns:
        Rows with trials (name of the list), draw (0: the speakers as they are), eer and eer_cosine (percent), min_dcf.
    """
    learned, tested = (embeddings(network, part, device) for part in (data.train, data.test))
    backend, mean = Backend.fit(learned, data.train.speakers), learned.mean(0)
    rows = []
    for name, trials in data.trials.items():
        plda, angle = backend.score(tested, trials.pairs), cosine(tested - mean, trials.pairs)
        both = (bootstrap_det_curves(scores, trials, data.test.speakers, draws) for scores in (plda, angle))
        for draw, (of_plda, of_cosine) in enumerate(zip(*both, strict=True)):
            errors = {"eer": equal_error_rate(*of_plda), "min_dcf": min_dcf(*of_plda)}
            rows.append({"trials": name, "draw": draw, **errors, "eer_cosine": equal_error_rate(*of_cosine)})
    return rows
