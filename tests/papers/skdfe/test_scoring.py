"""Laws of error rates and of PLDA: brute force, scipy's densities, EM's likelihood, known covariances."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from torch import nn

from lib.base import BadInput
from lib.data.speech.utterances import SpeechData, Trials, Utterances, all_trials
from lib.papers.skdfe.experiments import plda
from lib.papers.skdfe.experiments.scoring import (
    bootstrap_det_curves,
    bootstrap_weights,
    cosine,
    det_curve,
    embeddings,
    equal_error_rate,
    error_rates,
    min_dcf,
)


def some_scores(seed, ties=False):
    draw = np.random.default_rng(seed)
    same = draw.uniform(size=60) < 0.4
    scores = draw.normal(size=60) + 1.2 * same
    return np.round(2 * scores) / 2 if ties else scores, same


def brute_force(scores, same, weights):
    """(misses, false alarms) at each threshold, counted one by one."""
    found = []
    for threshold in [*np.unique(scores), np.inf]:
        miss = sum(w for s, t, w in zip(scores, same, weights, strict=True) if t and s < threshold)
        alarm = sum(w for s, t, w in zip(scores, same, weights, strict=True) if not t and s >= threshold)
        found.append((miss / (weights * same).sum(), alarm / (weights * ~same).sum()))
    return found


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_both_error_rates_are_those_of_all_thresholds(seed, ties, weighted):
    scores, same = some_scores(seed, ties)
    weights = np.random.default_rng(seed).integers(0, 3, 60).astype(float) if weighted else np.ones(60)
    points = brute_force(scores, same, weights)
    miss, alarm = det_curve(scores, same, weights)
    np.testing.assert_allclose(np.stack([miss, alarm], 1), points, atol=1e-12)
    crossing = [  # where the line between two neighbours meets misses = false alarms
        m0 + (m1 - m0) * (a0 - m0) / ((a0 - m0) + (m1 - a1))
        for (m0, a0), (m1, a1) in pairwise(points)
        if m0 < a0 and m1 >= a1
    ]
    assert equal_error_rate(miss, alarm) == pytest.approx(100 * crossing[0])
    least = min(0.01 * m + 0.99 * a for m, a in points) / 0.01
    assert min_dcf(miss, alarm) == pytest.approx(least)
    assert min_dcf(miss, alarm, prior=0.9, cost_alarm=2.0) == pytest.approx(
        min(0.9 * m + 0.2 * a for m, a in points) / 0.2
    )


def test_perfect_and_reversed_and_useless_scores():
    same = np.array([True, True, False, False])
    for scores, expected in ([4, 3, 2, 1], (0, 0)), ([1, 2, 3, 4], (100, 1)), ([1, 1, 1, 1], (50, 1)):
        both = det_curve(np.array(scores, float), same)
        assert (equal_error_rate(*both), min_dcf(*both)) == pytest.approx(expected)


def test_scores_that_say_nothing_are_refused():
    with pytest.raises(BadInput, match="1 of 2 scores are not finite"):
        det_curve(np.array([0.0, np.nan]), np.array([True, False]))
    with pytest.raises(BadInput, match="trials of one speaker and trials of two"):
        det_curve(np.array([0.0, 1.0]), np.array([True, True]))


def test_drawing_speakers_is_the_same_as_copying_their_trials():
    speakers = np.array([0, 0, 1, 1, 2, 2])
    first, second = np.triu_indices(6, 1)
    trials = Trials(np.stack([first, second], 1), speakers[first] == speakers[second])
    scores = np.random.default_rng(0).normal(size=15) + trials.same
    weights = bootstrap_weights(trials, speakers, 3)
    drawn = weights[trials.same]  # one pair of each speaker
    assert drawn.sum() == 3
    assert bootstrap_weights(trials, speakers, 0) is None
    copies = [
        (score, one)
        for score, one, (a, b) in zip(scores, trials.same, speakers[trials.pairs], strict=True)
        for _ in range(int(drawn[a] if one else drawn[a] * drawn[b]))
    ]
    copied = det_curve(*(np.array(column) for column in zip(*copies, strict=True)))
    by_weight = list(bootstrap_det_curves(scores, trials, speakers, 3))[3]
    assert equal_error_rate(*by_weight) == pytest.approx(equal_error_rate(*copied))
    assert min_dcf(*by_weight) == pytest.approx(min_dcf(*copied))


def test_a_trial_of_two_counts_as_often_as_pairs_of_its_speakers_were_drawn():
    speakers = np.array([0, 0, 1, 1, 2, 2])
    trials = Trials(np.array([[0, 1], [2, 3], [4, 5], [0, 2], [1, 4], [3, 5]]), np.array([True] * 3 + [False] * 3))
    for draw in range(1, 20):
        a, b, c, *of_two = bootstrap_weights(trials, speakers, draw).tolist()
        assert a + b + c == 3
        assert of_two == [a * b, a * c, b * c]


@pytest.mark.parametrize("people", [2, 3, 5, 10])
def test_a_draw_without_a_trial_of_one_kind_is_drawn_again_and_the_others_stay_as_they_are(people):
    speakers = np.repeat(np.arange(people), 4)
    groups = np.maximum(speakers, 1) if people == 10 else None  # only the first two make trials of two speakers
    trials, again = all_trials(speakers, groups=groups), 0
    for draw in range(1, 101):
        found = bootstrap_weights(trials, speakers, draw)
        assert found[trials.same].any()
        assert found[~trials.same].any()
        drawn = np.random.default_rng([0, draw]).multinomial(people, np.full(people, 1 / people))
        first, second = drawn[speakers[trials.pairs]].T
        weights = np.where(trials.same, first, first * second)
        if weights[trials.same].any() and weights[~trials.same].any():
            assert np.array_equal(found, weights)
        else:
            again += 1
    assert again
    assert len(list(bootstrap_det_curves(trials.same + 0.0, trials, speakers, 100))) == 101


def test_the_cosine_knows_directions_only():
    vectors = np.array([[1.0, 0], [3, 3], [0, 0.1], [-5, 0]])
    found = cosine(vectors, np.array([[0, 1], [0, 2], [0, 3], [1, 1]]))
    np.testing.assert_allclose(found, [2**-0.5, 0, -1, 1], atol=1e-12)


def test_utterances_of_any_length_are_embedded_in_their_order():
    class Sum(nn.Module):
        def forward(self, features):
            return features.sum(1)[:, :2]

    starts = np.array([0, 3, 5, 8, 9])
    features = np.random.default_rng(0).normal(size=(9, 40)).astype(np.float32)
    some = Utterances(features, starts, np.zeros(4, int), np.zeros((4, 40)))
    expected = [features[a:b, :2].sum(0) for a, b in pairwise(starts)]
    np.testing.assert_allclose(embeddings(Sum(), some), expected, rtol=1e-5)
    dropped = nn.Sequential(nn.Dropout(0.9), Sum())
    np.testing.assert_allclose(embeddings(dropped.train(), some), expected, rtol=1e-5)
    assert torch.is_grad_enabled()


def of_points(points, speakers):
    """Utterances of one frame each whose first two bands are these points."""
    features = np.zeros((len(points), 40), np.float32)
    features[:, :2] = points
    return Utterances(features, np.arange(len(points) + 1), speakers, np.zeros_like(features))


class FirstBands(nn.Module):
    def forward(self, features):
        return features[:, 0, :2]


@pytest.mark.parametrize("shift", [(0.0, 0.0), (3.0, -2.0)])
def test_cosine_scores_are_centred_by_the_training_mean_whatever_the_test_mean(shift):
    draw = np.random.default_rng(0)
    speakers = np.repeat(np.arange(8), 4)
    voices = draw.normal(size=(8, 2))[speakers]
    learned = (5 + voices + 0.5 * draw.normal(size=(32, 2))).astype(np.float32)
    tested = (5 + np.array(shift) + voices + 0.5 * draw.normal(size=(32, 2))).astype(np.float32)
    trials = all_trials(speakers)
    data = SpeechData("points", of_points(learned, speakers), of_points(tested, speakers), 8, {"all": trials})
    (row,) = error_rates(FirstBands(), data, 0)

    def errors(mean):
        one, other = (tested.astype(float) - mean)[trials.pairs.T]
        scores = (one * other).sum(1) / np.linalg.norm(one, axis=1) / np.linalg.norm(other, axis=1)
        return equal_error_rate(*det_curve(scores, trials.same))

    assert row["eer_cosine"] == pytest.approx(errors(learned.mean(0, dtype=float)))
    if shift != (0.0, 0.0):  # another mean gives another number, so it would show
        assert row["eer_cosine"] != pytest.approx(errors(tested.mean(0, dtype=float)), abs=1)
        assert row["eer_cosine"] != pytest.approx(errors(0.0), abs=1)


# PLDA

BETWEEN = np.array([[2.0, 0.5, 0], [0.5, 1, 0], [0, 0, 0.2]])
WITHIN = np.array([[1.0, -0.3, 0.1], [-0.3, 0.5, 0], [0.1, 0, 0.4]])


def drawn(counts, seed=0):
    """Vectors of speakers with so many utterances each."""
    draw, index = np.random.default_rng(seed), np.repeat(np.arange(len(counts)), counts)
    speakers = draw.multivariate_normal(np.zeros(3), BETWEEN, len(counts))
    return speakers[index] + draw.multivariate_normal(np.zeros(3), WITHIN, len(index)), index


def test_the_ratio_is_that_of_the_densities():
    left, right = (drawn([1] * 6, seed)[0] for seed in (0, 1))
    total = BETWEEN + WITHIN
    one = multivariate_normal(np.zeros(6), np.block([[total, BETWEEN], [BETWEEN, total]]))
    two = multivariate_normal(np.zeros(3), total)
    expected = one.logpdf(np.hstack([left, right])) - two.logpdf(left) - two.logpdf(right)
    np.testing.assert_allclose(plda.Plda(BETWEEN, WITHIN).log_likelihood_ratio(left, right), expected, atol=1e-10)


def test_the_likelihood_is_that_of_all_vectors_together_and_no_step_lowers_it():
    vectors, index = drawn([1, 3, 2, 3, 5] * 4)
    data = plda.SpeakerStatistics.of(vectors, index)
    model = plda.Plda(np.eye(3), np.diag([3.0, 1, 2]))
    expected = 0.0
    for speaker in range(20):
        mine = vectors[index == speaker]
        count = len(mine)
        covariance = np.kron(np.ones((count, count)), model.between) + np.kron(np.eye(count), model.within)
        expected += multivariate_normal(np.zeros(3 * count), covariance).logpdf(mine.ravel())
    assert plda.log_likelihood(model, data) == pytest.approx(expected)
    likelihoods = []
    for _ in range(30):
        likelihoods.append(plda.log_likelihood(model, data))
        model = plda.em_step(model, data)
    assert (np.diff(likelihoods) > -1e-9).all()
    assert likelihoods[-1] > likelihoods[0] + 10


def test_em_recovers_the_covariances():
    model = plda.fit(*drawn([2, 4, 9] * 1500), steps=50)
    np.testing.assert_allclose(model.within, WITHIN, atol=0.03)
    np.testing.assert_allclose(model.between, BETWEEN, atol=0.12)


def test_discriminants_whiten_within_and_come_in_order():
    vectors, index = drawn([10] * 300)
    basis = plda.lda_directions(vectors - vectors.mean(0), index, 3)
    np.testing.assert_allclose(basis.T @ WITHIN @ basis, np.eye(3), atol=0.15)
    between = np.diag(basis.T @ BETWEEN @ basis)
    assert (np.diff(between) < 0).all()
    assert plda.lda_directions(vectors, index, 2).shape == (3, 2)


def test_the_backend_ignores_where_and_in_which_units_embeddings_lie_and_finds_the_speakers():
    vectors, index = drawn([6] * 60)
    pairs = np.stack(np.triu_indices(60, 1), 1)
    backend = plda.Backend.fit(vectors, index)
    np.testing.assert_allclose(backend.vectors(vectors).mean(0), 0, atol=1e-10)  # the model has no mean of its own
    scores = backend.score(vectors[:60], pairs)
    moved = plda.Backend.fit(5 + 3 * vectors, index).score(5 + 3 * vectors[:60], pairs)
    np.testing.assert_allclose(moved, scores, atol=1e-6)
    same = index[pairs[:, 0]] == index[pairs[:, 1]]
    assert scores[same].mean() > scores[~same].mean() + 1


def test_fewer_speakers_than_dimensions_are_reduced_to_half_of_them():
    draw = np.random.default_rng(0)
    index = np.repeat(np.arange(10), 4)
    vectors = draw.normal(size=(10, 64))[index] + draw.normal(size=(40, 64))
    backend = plda.Backend.fit(vectors, index)
    assert backend.basis.shape == (64, 5)
    assert np.isfinite(backend.score(vectors, np.array([[0, 1], [0, 39]]))).all()


def test_one_utterance_a_speaker_is_not_enough():
    with pytest.raises(BadInput, match="needs a speaker with two"):
        plda.Backend.fit(np.eye(4), np.arange(4))


@pytest.mark.parametrize("counts", [[2] + [1] * 7, [2, 2], [2, 2, 2], [5, 1, 1]])
def test_too_few_speakers_or_repeated_utterances_for_two_directions_are_refused(counts):
    vectors, index = drawn(counts)
    line = (
        f"^{sum(counts)} utterances of {len(counts)} speakers in 3 dimensions: expected 4 speakers, 2 more utterances"
    )
    with pytest.raises(BadInput, match=line):
        plda.Backend.fit(vectors, index)


def test_repeated_utterances_limit_the_directions_and_must_differ_in_each():
    vectors, index = drawn([2, 2] + [1] * 6)
    backend = plda.Backend.fit(vectors, index)  # half of the speakers would be three directions
    assert backend.basis.shape == (3, 2)
    assert np.isfinite(backend.score(vectors, np.array([[0, 1], [0, 4]]))).all()
    vectors, index = drawn([2] * 8)
    vectors[3::2] = vectors[2::2]  # only the first speaker's two differ
    with pytest.raises(BadInput, match="utterances of one speaker differ in 1 of 3 directions: expected more speakers"):
        plda.Backend.fit(vectors, index)
