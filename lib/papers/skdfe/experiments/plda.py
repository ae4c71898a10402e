"""Score pairs by probabilistic linear discriminant analysis: are two embeddings one speaker's or two speakers'?

The two-covariance model (Brümmer and de Villiers 2010; Ioffe 2006 for the idea): an embedding is x = m + y + e, where
y ~ N(0, B) belongs to the speaker and e ~ N(0, W) to the utterance. B and W are fitted by expectation maximisation.

Before that (`Backend.fit`): the training mean is subtracted; linear discriminant analysis keeps half as many directions
as there are speakers, because B has no more than that to be estimated from, and no more than there are utterances
beyond the first of each speaker, which W is estimated from; each vector is scaled to length sqrt(dimensions)
(Garcia-Romero and Espy-Wilson 2011); the training mean of those is subtracted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh
from sklearn.covariance import ledoit_wolf

from lib.base import BadInput


@dataclass(frozen=True, eq=False)
class Plda:
    """Hold the two covariances of centred vectors.

    Attributes:
        between: B, [d, d].
        within: W, [d, d].
    """

    between: np.ndarray
    within: np.ndarray

    def log_likelihood_ratio(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Return log p(left, right | one speaker) - log p(left, right | two speakers). [n, d], [n, d] -> [n]

        In the basis in which W is the identity and B diagonal every dimension is a pair of its own, with variance
        t = b + 1 and, for one speaker, covariance b.
        """
        between, basis = eigh(self.between, self.within)
        u, v = left @ basis, right @ basis
        total = between + 1
        rest = total**2 - between**2
        apart = (u**2 + v**2) / total
        together = (total * (u**2 + v**2) - 2 * between * u * v) / rest
        return 0.5 * (apart - together + np.log(total**2 / rest)).sum(1)


@dataclass(frozen=True, eq=False)
class SpeakerStatistics:
    """Hold the sufficient statistics of centred training vectors: all that the likelihood needs.

    Attributes:
        counts: utterances of each speaker, [s].
        means: [s, d].
        scatter: sum over all vectors of their outer product about their speaker's mean, [d, d].
    """

    counts: np.ndarray
    means: np.ndarray
    scatter: np.ndarray

    @classmethod
    def of(cls, vectors: np.ndarray, speakers: np.ndarray) -> SpeakerStatistics:
        """Compute them of vectors [n, d] with a label each [n]. BadInput: no speaker has two vectors."""
        names, index, counts = np.unique(speakers, return_inverse=True, return_counts=True)
        means = np.zeros((len(names), vectors.shape[1]))
        np.add.at(means, index, vectors)
        means /= counts[:, None]
        rest = vectors - means[index]
        if counts.max() < 2:
            raise BadInput("how much utterances of one speaker differ needs a speaker with two; each here has one")
        return cls(counts, means, rest.T @ rest)


def log_likelihood(model: Plda, data: SpeakerStatistics) -> float:
    """Return the logarithm of the density of all training vectors.

    A speaker's mean is normal with covariance B + W / n; the deviations from it have n - 1 degrees of freedom.
    """
    d, n = len(model.within), data.counts
    _, log_within = np.linalg.slogdet(model.within)
    total = -0.5 * np.trace(np.linalg.solve(model.within, data.scatter))
    total -= 0.5 * ((n - 1) * (d * np.log(2 * np.pi) + log_within) + d * np.log(n)).sum()
    for count in np.unique(n):
        means = data.means[n == count]
        covariance = model.between + model.within / count
        _, log_covariance = np.linalg.slogdet(covariance)
        squares = (means * np.linalg.solve(covariance, means.T).T).sum()
        total -= 0.5 * (len(means) * (d * np.log(2 * np.pi) + log_covariance) + squares)
    return float(total)


def em_step(model: Plda, data: SpeakerStatistics) -> Plda:
    """Take one step of expectation maximisation; the likelihood never falls.

    Given a speaker's n vectors with mean x, y is normal with mean G x, G = B (B + W / n)^-1, and covariance B - G B.
    """
    d, n = len(model.within), data.counts
    between, within = np.zeros((d, d)), data.scatter.copy()
    for count in np.unique(n):
        means = data.means[n == count]
        gain = np.linalg.solve(model.between + model.within / count, model.between).T
        spread = len(means) * (model.between - gain @ model.between)
        y, rest = means @ gain.T, means - means @ gain.T
        between += y.T @ y + spread
        within += count * (rest.T @ rest + spread)
    return Plda(_symmetric(between / len(n)), _symmetric(within / n.sum()))


def _symmetric(matrix: np.ndarray) -> np.ndarray:
    return (matrix + matrix.T) / 2


def fit(vectors: np.ndarray, speakers: np.ndarray, steps: int = 20) -> Plda:
    """Fit both covariances to centred vectors [n, d] of speakers [n]; EM starts from the sample covariances.

    Raises:
        BadInput: no speaker has two vectors, or those of one speaker differ in too few directions for W.
    """
    data = SpeakerStatistics.of(vectors, speakers)
    if (rank := np.linalg.matrix_rank(data.scatter)) < len(data.scatter):
        few = f"utterances of one speaker differ in {rank} of {len(data.scatter)} directions"
        raise BadInput(f"{few}: expected more speakers with utterances that differ")
    model = Plda(np.cov(data.means.T, ddof=0).reshape(2 * data.means.shape[1:]), data.scatter / len(vectors))
    for _ in range(steps):
        model = em_step(model, data)
    return model


@dataclass(frozen=True, eq=False)
class Backend:
    """Turn embeddings into scores, as the module says.

    Attributes:
        mean: of the training embeddings, [size].
        basis: the directions of the discriminant analysis, [size, d].
        centre: mean of the training vectors after scaling, [d].
    """

    mean: np.ndarray
    basis: np.ndarray
    centre: np.ndarray
    plda: Plda

    @classmethod
    def fit(cls, embeddings: np.ndarray, speakers: np.ndarray) -> Backend:
        """Fit it to training embeddings [n, size] and who spoke them [n].

        Raises:
            BadInput: embeddings that are not finite, or too few speakers or utterances for two directions: in one,
                vectors scaled to one length are all 1 or -1.
        """
        (count, size), people = embeddings.shape, len(np.unique(speakers))
        if not np.isfinite(embeddings).all() or people < 2:
            raise BadInput("a back end needs finite embeddings of two speakers or more")
        mean = embeddings.mean(0)
        basis = lda_directions(embeddings - mean, speakers, min(size, people // 2, count - people))
        if basis.shape[1] < 2:
            given = f"{count} utterances of {people} speakers in {size} dimensions"
            raise BadInput(f"{given}: expected 4 speakers, 2 more utterances than speakers and 2 dimensions, or more")
        scaled = _length_normalised((embeddings - mean) @ basis)
        return cls(mean, basis, scaled.mean(0), fit(scaled - scaled.mean(0), speakers))

    def vectors(self, embeddings: np.ndarray) -> np.ndarray:
        """Project embeddings, scale them to one length and centre them. [n, size] -> [n, d]"""
        return _length_normalised((embeddings - self.mean) @ self.basis) - self.centre

    def score(self, embeddings: np.ndarray, pairs: np.ndarray) -> np.ndarray:
        """Return the log-likelihood ratio of each pair. [n, size], [trials, 2] -> [trials]"""
        vectors = self.vectors(embeddings)
        return self.plda.log_likelihood_ratio(vectors[pairs[:, 0]], vectors[pairs[:, 1]])


def _length_normalised(vectors: np.ndarray) -> np.ndarray:
    return vectors * (np.sqrt(vectors.shape[1]) / np.linalg.norm(vectors, axis=1, keepdims=True))


def lda_directions(vectors: np.ndarray, speakers: np.ndarray, count: int) -> np.ndarray:
    """Find the directions in which speakers differ most for how much each varies, [size, count]; W is about 1 there.

    W is shrunk towards a multiple of the identity by Ledoit and Wolf's rule: there may be fewer utterances than it has
    entries.

    Raises:
        BadInput: the embeddings of each speaker are all the same.
    """
    data = SpeakerStatistics.of(vectors, speakers)
    _, index = np.unique(speakers, return_inverse=True)
    within, _ = ledoit_wolf(vectors - data.means[index], assume_centered=True)
    between = (data.means.T * data.counts) @ data.means / len(vectors)
    try:
        _, basis = eigh(between, within)
    except np.linalg.LinAlgError as error:
        raise BadInput("the embeddings of each speaker are all the same: nothing tells how much they differ") from error
    return basis[:, ::-1][:, :count]
