"""Check exercises of notebook 29: networks that translate."""

from __future__ import annotations

import math

from lib.companion.exercises.checkers import Checker, function, number

BLOCKS, TABLE = 1_376_256, 512_000  # weights of `lib.models.translator.transformer` with 4,000 pieces


def _count(lines: list[str]) -> int:
    return sum(len(line.split()) for line in lines)


def _penalty(translations: list[str], references: list[str]) -> float:
    return round(min(1.0, math.exp(1 - _count(references) / _count(translations))), 6)


def _unbounded(translations: list[str], references: list[str]) -> float:
    """Rewards what is too long: a typical mistake."""
    return round(math.exp(1 - _count(references) / _count(translations)), 6)


def _by_sentence(translations: list[str], references: list[str]) -> float:
    """Means the penalties of the sentences: a typical mistake."""
    each = [_penalty([one], [other]) for one, other in zip(translations, references, strict=True)]
    return round(sum(each) / len(each), 6)


def _turned(translations: list[str], references: list[str]) -> float:
    return _penalty(references, translations)


def _best(first: list[float], second: list[list[float]], width: int) -> list[int]:
    kept = sorted(range(len(first)), key=lambda one: -first[one])[:width]
    pairs = [(first[one] * second[one][other], one, other) for one in kept for other in range(len(second[one]))]
    return [*max(pairs)[1:]]


def _greedy(first: list[float], second: list[list[float]], width: int) -> list[int]:
    return _best(first, second, 1)


def _everything(first: list[float], second: list[list[float]], width: int) -> list[int]:
    return _best(first, second, len(first))


def _of_the_last(first: list[float], second: list[list[float]], width: int) -> list[int]:
    """Forget what the first token cost."""
    kept = sorted(range(len(first)), key=lambda one: -first[one])[:width]
    return [*max((second[one][other], one, other) for one in kept for other in range(len(second[one])))[1:]]


TREE = [0.5, 0.4, 0.1], [[0.4, 0.3, 0.3], [0.9, 0.05, 0.05], [0.1, 0.1, 0.8]]

EXERCISES: dict[str, Checker] = {
    "29.1": number(
        math.exp(1 - 12 / 9),
        "The translation is shorter than the reference, so BLEU is multiplied by exp(1 - reference / translation).",
        tolerance=0.005,
        wrong={
            1: "only translations that are at least as long as the reference lose nothing.",
            9 / 12: "the penalty is not the ratio of lengths but an exponential of it.",
            math.exp(1 - 9 / 12): "that is above 1: the reference's length goes over the translation's.",
        },
        second="exp(1 - 12 / 9) = exp(-1 / 3).",
        learned="Without it a translation of one sure word would have the best precision.",
    ),
    "29.2": number(
        100 * BLOCKS / 2 / (BLOCKS + TABLE),
        "Half of the weights in the blocks are zero; the table is counted once, and none of it is pruned.",
        tolerance=0.05,
        wrong={
            50: "the table of embeddings serves as the head, so it is a matrix that multiplies, too, and it is dense.",
            100 * BLOCKS / 2 / (BLOCKS + 2 * TABLE): "embeddings and head are one weight: count it once.",
            100 * BLOCKS / 2 / (BLOCKS + 3 * TABLE): "source, target and head share one table: count it once.",
        },
        second="688,128 zeros among 1,888,256 weights.",
        learned="The larger the vocabulary of a small network, the less of it the workflow of section 5.4 prunes.",
    ),
    "29.3": function(
        _penalty,
        [
            (["the cat", "a dog runs fast"], ["the cat sat down", "a dog runs"]),
            (["a b c"], ["a b c d"]),
            (["a b c d e", "a"], ["a b", "a b"]),
        ],
        "Add up the words of all translations and of all references first; the penalty is never above 1. "
        "Round to six digits.",
        wrong=[
            (_unbounded, "a corpus that is longer than its reference is not rewarded: the penalty is at most 1."),
            (
                _by_sentence,
                "lengths are added up over the corpus first; a short sentence may be made up by a long one.",
            ),
            (_turned, "the reference's length goes over the translation's, not the other way round."),
        ],
        second="min(1, math.exp(1 - r / c)), with the words of all references over those of all translations.",
        learned="The penalty is of the corpus: BLEU of single sentences, averaged, is another number.",
    ),
    "29.4": function(
        _best,
        [
            (*TREE, 1),
            (*TREE, 2),
            ([0.35, 0.33, 0.32], [[0.4, 0.3, 0.3], [0.5, 0.3, 0.2], [0.05, 0.05, 0.9]], 2),
            ([0.6, 0.3, 0.1], [[0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.9, 0.05, 0.05]], 2),
            ([0.5, 0.3, 0.2], [[0.5, 0.3, 0.2], [0.3, 0.3, 0.4], [0.9, 0.05, 0.05]], 3),
        ],
        "Keep the `width` likeliest first tokens; of their continuations return the pair with the largest product.",
        wrong=[
            (_greedy, "a width of 1 is greedy search: keep as many first tokens as the width says."),
            (_everything, "that looks at every pair; a beam has forgotten those that began unlikely."),
            (_of_the_last, "the probability of both tokens is the product, not that of the last alone."),
        ],
        second="kept = sorted(range(len(first)), key=lambda i: -first[i])[:width]; then the max over pairs.",
        learned="A beam as wide as the vocabulary looks at every pair; a narrow one can miss the best.",
    ),
    "29.5": number(
        1,
        "Train Subwords with 60 pieces instead of 160 on the same lines, and count the tokens of a sentence.",
        wrong={
            0: "with fewer pieces long words are not in the vocabulary, so they are cut more often.",
            -1: "fewer pieces are shorter ones, so a sentence needs more of them.",
            60: "the answer is a sign: 1, 0 or -1.",
        },
        second="sum(len(Subwords.train(lines, 60).encode(line)) for line in lines)",
        learned="A vocabulary trades the size of the table against the length of sentences.",
    ),
}
