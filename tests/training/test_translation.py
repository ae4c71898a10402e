"""Laws of `lib.training.translation`: the best sequence is found, log-probabilities agree, BLEU of itself is 100."""

import itertools
import math

import pytest
import torch
from torch import nn

from lib.base import BadInput
from lib.data.subwords import Subwords
from lib.models import translator
from lib.models.translator import BEGIN, END, PAD, UNKNOWN
from lib.training.steps import StepTraining, fit
from lib.training.translation import (
    Pairs,
    batches,
    beam_search,
    bleu,
    smoothed,
    surprise,
    translate,
    weight_of_length,
)

SYMBOLS = 7
BUILDERS = {"transformer": translator.small_transformer, "recurrent": translator.small_recurrent}
SIDES = (("eins zwei", "drei", "zwei eins drei"), ("one two", "three", "two one three"))


@pytest.fixture(scope="module")
def subwords():
    return Subwords.train([line for side in SIDES for line in side] * 5, 30)


@pytest.fixture(scope="module")
def pairs(subwords):
    return Pairs.of(SIDES, subwords, longest=16)


@pytest.fixture(params=BUILDERS)
def model(request):
    torch.manual_seed(2)
    model = BUILDERS[request.param](SYMBOLS, 8).eval()
    with torch.no_grad():
        model.tokens.weight.mul_(4)  # so that some sequences are far more likely than others
    return model


def log_probability(model, source, sequence):
    """Of a sequence that ends with END, by teacher forcing."""
    steps = model(source, torch.tensor([[BEGIN, *sequence[:-1]]])).log_softmax(-1)[0]
    return float(sum(steps[place, token] for place, token in enumerate(sequence)))


@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.5])
def test_a_beam_as_wide_as_the_vocabulary_finds_the_best_short_sequence(model, penalty):
    """Two tokens and END at most: a beam of all pairs keeps whatever can become best."""
    sources = torch.randint(END + 1, SYMBOLS, (4, 3), generator=torch.Generator().manual_seed(0))
    words = [UNKNOWN, *range(END + 1, SYMBOLS)]
    sequences = [[*some, END] for count in range(3) for some in itertools.product(words, repeat=count)]
    with torch.no_grad():
        found, scores = beam_search(model, sources, longest=3, beam=SYMBOLS**2, penalty=penalty)
        for source, tokens, score in zip(sources, found, scores, strict=True):
            values = [log_probability(model, source[None], s) / weight_of_length(len(s), penalty) for s in sequences]
            best = max(range(len(values)), key=values.__getitem__)
            assert [*tokens, END] == sequences[best]
            assert float(score) == pytest.approx(values[best], abs=1e-4)


def test_a_width_of_the_vocabulary_suffices_for_one_token_and_end(model):
    source = torch.tensor([[4, 5, END]])
    words = [UNKNOWN, *range(END + 1, SYMBOLS)]
    with torch.no_grad():
        found, scores = beam_search(model, source, longest=2, beam=SYMBOLS, penalty=0.0)
        values = {(*some,): log_probability(model, source, [*some, END]) for some in [[], *([w] for w in words)]}
    assert tuple(found[0]) == max(values, key=values.get)
    assert float(scores[0]) == pytest.approx(max(values.values()), abs=1e-4)


def test_a_score_is_the_log_probability_of_what_was_found(model):
    sources = torch.randint(END + 1, SYMBOLS, (5, 4), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        found, scores = beam_search(model, sources, longest=8, beam=4)
        for source, tokens, score in zip(sources, found, scores, strict=True):
            if len(tokens) < 8:
                expected = log_probability(model, source[None], [*tokens, END]) / weight_of_length(len(tokens) + 1)
                assert float(score) == pytest.approx(expected, abs=1e-4)


def test_a_sentence_is_translated_alike_alone_and_among_others(model):
    sources = torch.randint(END + 1, SYMBOLS, (6, 4), generator=torch.Generator().manual_seed(4))
    with torch.no_grad():
        together, _ = beam_search(model, sources, longest=7)
        assert together == [beam_search(model, source[None], longest=7)[0][0] for source in sources]


def test_surprise_is_the_mean_of_what_steps_were_given(model):
    draw = torch.Generator().manual_seed(5)
    source = torch.randint(END + 1, SYMBOLS, (3, 4), generator=draw)
    target = torch.tensor([[BEGIN, 4, END, PAD], [BEGIN, 5, 6, END], [BEGIN, END, PAD, PAD]])
    total, count = 0.0, 0
    with torch.no_grad():
        for own, tokens in zip(source, target, strict=True):
            state = model.start(own[None])
            for before, after in itertools.pairwise(tokens[tokens != PAD].tolist()):
                logits, state = model.step(state, torch.tensor([before]))
                total, count = total - float(logits.log_softmax(-1)[0, after]), count + 1
    assert surprise(model, Pairs(source, target)) == pytest.approx(total / count, rel=1e-5)


def test_pairs_are_cut_and_filled_and_targets_come_one_token_later(pairs, subwords):
    (source, written), foreseen = pairs.batch(torch.tensor([1, 0]))
    assert source.shape[1] == max(len(subwords.encode(line)) + 1 for line in SIDES[0][:2])
    assert source[1, -1] == END or source[0, -1] == END
    assert written[:, 0].tolist() == [BEGIN, BEGIN]
    real = foreseen[:, :-1] != PAD
    assert torch.equal(written[:, 1:][real], foreseen[:, :-1][real])
    assert (foreseen == END).sum(1).tolist() == [1, 1]
    short = Pairs.of(SIDES, subwords, longest=3)
    assert short.source.shape[1] == 3
    assert (short.source == END).sum(1).tolist() == [1, 1, 1]
    with pytest.raises(BadInput, match="no pairs"):
        Pairs.of(((), ()), subwords, 3)
    with pytest.raises(BadInput, match=r"^1 sentences and 3 translations: expected one each$"):
        Pairs.of((SIDES[0][:1], SIDES[1][:3]), subwords, 16)
    for longest in (-1, 0, 1):
        with pytest.raises(BadInput, match=f"longest={longest} must be at least 2: a token and END"):
            Pairs.of(SIDES, subwords, longest)


def test_filling_costs_nothing():
    logits, targets = torch.randn(2, 3, 5), torch.tensor([[1, 2, PAD], [3, PAD, PAD]])
    alone = smoothed(torch.stack([logits[0, 0], logits[0, 1], logits[1, 0]])[None], torch.tensor([[1, 2, 3]]))
    assert torch.allclose(smoothed(logits, targets), alone)


def test_labels_are_smoothed_by_a_tenth():
    logits = torch.tensor([[[1.0, 2.0, -1.0, 0.5]]])
    surprises = -logits.log_softmax(-1)[0, 0]
    expected = 0.9 * surprises[UNKNOWN] + 0.1 * surprises.mean()
    assert float(smoothed(logits, torch.tensor([[UNKNOWN]]))) == pytest.approx(float(expected))


def test_a_long_translation_may_overtake_one_that_has_ended():
    class Late(nn.Module):
        """Ends at once with 0.6; else surely after six more tokens, 0.4 in all: ln 0.4 / 2 > ln 0.6."""

        def start(self, source):
            return (torch.zeros(len(source), dtype=torch.int64),)

        def step(self, state, tokens):
            chances = torch.full((len(tokens), 7), 1e-9)
            for row, place in enumerate(state[0].tolist()):
                chances[row, END] = {0: 0.6, 6: 1.0}.get(place, 1e-9)
                chances[row, 5] = {0: 0.4, 6: 1e-9}.get(place, 1.0)
            return chances.log(), (state[0] + 1,)

    found, scores = beam_search(Late(), torch.tensor([[4, END]]), longest=7, beam=2, penalty=1.0)
    assert found == [[5] * 6]
    assert float(scores[0]) == pytest.approx(math.log(0.4) / 2, abs=1e-4)


def test_it_learns_three_sentences_by_heart_and_bleu_of_itself_is_100(pairs, subwords):
    torch.manual_seed(0)
    model = translator.small_transformer(len(subwords), 17)
    schedule = StepTraining(steps=80, every=80, batch=3, learning_rate=0.01)
    (row,) = fit(model, batches(pairs, 3), schedule, 0, measure=lambda model: surprise(model, pairs), loss=smoothed)
    found = translate(model, pairs.source, subwords, longest=16)
    assert found == list(SIDES[1])
    assert row["measured"] < 0.5 < math.log(len(subwords))


def test_bleu():
    sentences = ["a man in a blue shirt is standing on a ladder .", "two dogs run ."]
    assert bleu(sentences, sentences) == pytest.approx(100)
    assert bleu(["nothing at all like that", "so what"], sentences) < 5
    assert 5 < bleu(["a man in a red shirt is standing on a ladder .", "two cats run ."], sentences) < 95
    with pytest.raises(BadInput, match="1 translations of 2 sentences"):
        bleu(sentences[:1], sentences)


def test_a_model_that_never_ends_gives_what_it_has_written():
    class Endless(nn.Module):
        def start(self, source):
            return (source,)

        def step(self, state, tokens):
            logits = torch.zeros(len(tokens), SYMBOLS)
            logits[:, END] = -torch.inf
            logits[:, 5] = 3.0
            return logits, state

    found, scores = beam_search(Endless(), torch.tensor([[4, END]]), longest=4)
    assert found == [[5, 5, 5, 5]]
    assert scores.isfinite().all()


def test_a_longer_translation_is_forgiven_as_in_wu_et_al():
    """Equation 14 at alpha = 0.6, as the paper's two networks have it: (5 + 25)^0.6 / 6^0.6."""
    assert weight_of_length(25) == pytest.approx(5**0.6)
