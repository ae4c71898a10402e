"""Give a translator what it learns from, and judge it: pairs of sentences, beam search, BLEU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from lib.base import BadInput, refuse_uncounted
from lib.data.bitext import Sides
from lib.data.subwords import Subwords
from lib.models.translator import BEGIN, END, PAD
from lib.training.evaluation import measuring
from lib.training.steps import Draw

SMOOTHING = 0.1  # of labels, as both of the paper's networks have it
PENALTY = 0.6  # of length, as both have it: longer translations may be less likely (Wu et al. 2016, equation 14)
BEAM = 4
BATCH = 100


@dataclass(frozen=True, eq=False)
class Pairs:
    """Hold pairs of sentences as tokens, filled up with PAD.

    Attributes:
        source: each ends with END, int64 [N, S].
        target: each begins with BEGIN and ends with END, int64 [N, T].
    """

    source: Tensor
    target: Tensor

    @classmethod
    def of(cls, sides: Sides, subwords: Subwords, longest: int, device: str = "cpu") -> Pairs:
        """Encode sentences; one of more than `longest` tokens, END among them, loses its end.

        Raises:
            BadInput: no pairs, sides of different lengths, or no room for a token before END.
        """
        if longest < 2:
            raise BadInput(f"longest={longest} must be at least 2: a token and END")
        if not sides[0]:
            raise BadInput("no pairs of sentences")
        if len(sides[0]) != len(sides[1]):
            raise BadInput(f"{len(sides[0])} sentences and {len(sides[1])} translations: expected one each")
        cut = [[subwords.encode(sentence)[: longest - 1] for sentence in side] for side in sides]
        ends = [torch.tensor([*tokens, END]) for tokens in cut[0]], [torch.tensor([BEGIN, *t, END]) for t in cut[1]]
        return cls(*(pad_sequence(side, batch_first=True, padding_value=PAD).to(device) for side in ends))

    def batch(self, chosen: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
        """Return source and BEGIN ... of some pairs, and what is to be foreseen; without columns of mere filling."""
        source, target = (
            side[:, : int((side != PAD).sum(1).max())] for side in (self.source[chosen], self.target[chosen])
        )
        return (source, target[:, :-1]), target[:, 1:]

    def split(self, batch: int = BATCH) -> list[tuple[tuple[Tensor, Tensor], Tensor]]:
        """Return all pairs in batches, in their order."""
        return [self.batch(chosen) for chosen in torch.arange(len(self.source)).split(batch)]


def batches(pairs: Pairs, batch: int) -> Draw:
    """Draw batches of pairs for `lib.training.steps.fit`."""

    def draw(generator: torch.Generator) -> tuple[tuple[Tensor, Tensor], Tensor]:
        return pairs.batch(torch.randint(len(pairs.source), (batch,), generator=generator).to(pairs.source.device))

    return draw


def smoothed(logits: Tensor, targets: Tensor) -> Tensor:
    """Compute the mean cross-entropy of logits [N, T, symbols] with smoothed labels; filling does not count."""
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=PAD, label_smoothing=SMOOTHING)


def surprise(model: nn.Module, pairs: Pairs) -> float:
    """Measure the mean of -ln of the share that the model gave to each next token, END among them, in nats."""
    total = torch.zeros((), dtype=torch.float64)
    with measuring(model):
        for inputs, targets in pairs.split():
            lost = F.cross_entropy(model(*inputs).flatten(0, 1), targets.flatten(), ignore_index=PAD, reduction="sum")
            total += lost.double().cpu()
    return float(total) / int((pairs.target[:, 1:] != PAD).sum())


def weight_of_length(length: int, penalty: float = PENALTY) -> float:
    """Compute what a log-probability of so many tokens is divided by (Wu et al. 2016, equation 14)."""
    return ((5 + length) / 6) ** penalty


def beam_search(
    model: nn.Module, source: Tensor, longest: int, beam: int = BEAM, penalty: float = PENALTY
) -> tuple[list[list[int]], Tensor]:
    """Find a likely translation of each sentence, keeping the `beam` likeliest unfinished ones at every step.

    A sentence is done when none of its unfinished translations can become better than its best finished one.

    Args:
        source: [N, S].
        longest: tokens of a translation at most, END among them.

    Returns:
        The translations without END (unfinished where none has ended in time), and for each its log-probability
        divided by `weight_of_length`, [N].
    """
    count, device = len(source), source.device
    found: list[list[int]] = [[] for _ in range(count)]
    best = torch.full((count,), -torch.inf, device=device)
    state = tuple(part.repeat_interleave(beam, 0) for part in model.start(source))
    sums = torch.tensor([0.0] + [-torch.inf] * (beam - 1), device=device).repeat(count, 1)  # [open sentences, beam]
    written = torch.full((count, beam, 1), BEGIN, device=device)
    who = torch.arange(count, device=device)  # the sentences that are not done
    for length in range(1, longest + 1):
        logits, state = model.step(state, written[:, :, -1].flatten())
        steps = logits.float().log_softmax(-1).unflatten(0, (-1, beam))
        steps[..., [PAD, BEGIN]] = -torch.inf
        totals = sums[..., None] + steps
        ended, which = (totals[..., END] / weight_of_length(length, penalty)).max(1)
        for row in (ended > best[who]).nonzero()[:, 0].tolist():
            found[who[row]] = written[row, which[row], 1:].tolist()
        best[who] = torch.maximum(best[who], ended)
        totals[..., END] = -torch.inf
        sums, place = totals.flatten(1).topk(beam)
        parent, token = place // totals.shape[-1], place % totals.shape[-1]
        rows = (torch.arange(len(who), device=device)[:, None] * beam + parent).flatten()
        state = tuple(part[rows] for part in state)
        written = torch.cat([written.flatten(0, 1)[rows].unflatten(0, (-1, beam)), token[..., None]], -1)
        going_on = sums[:, 0] / weight_of_length(longest, penalty) > best[who]
        if not going_on.all():
            rows = going_on.repeat_interleave(beam)
            state = tuple(part[rows] for part in state)
            who, sums, written = who[going_on], sums[going_on], written[going_on]
        if not len(who):
            break
    for row, sentence in enumerate(who.tolist()):
        if best[sentence] == -torch.inf:
            found[sentence] = written[row, 0, 1:].tolist()
            best[sentence] = sums[row, 0] / weight_of_length(longest, penalty)
    return found, best


def translate(model: nn.Module, source: Tensor, subwords: Subwords, longest: int, beam: int = BEAM) -> list[str]:
    """Translate sentences, tokens [N, S] that are filled up with PAD, of any lengths.

    Raises:
        BadInput: no sentences, or a beam that counts nothing.
    """
    refuse_uncounted(beam=beam)
    if not source.numel():
        raise BadInput("translate: there are no sentences: expected tokens [N, S]")
    lengths = (source != PAD).sum(1)
    order = lengths.argsort(stable=True)  # sentences of about one length together
    found: dict[int, str] = {}
    with measuring(model):
        for chosen in order.split(BATCH):
            tokens, _ = beam_search(model, source[chosen, : int(lengths[chosen].max())], longest, beam)
            found |= dict(zip(chosen.tolist(), map(subwords.decode, tokens), strict=True))
    return [found[place] for place in range(len(source))]


def bleu(translations: Sequence[str], references: Sequence[str]) -> float:
    """Compute BLEU by sacrebleu, 0 to 100, as it is for one reference each: its own words, capitals count.

    Raises:
        BadInput: not as many translations as references, or none.
    """
    import sacrebleu  # imported here: whoever only trains does not need it

    if not references or len(translations) != len(references):
        raise BadInput(f"{len(translations)} translations of {len(references)} sentences: expected one each")
    return float(sacrebleu.corpus_bleu(list(translations), [list(references)], force=True).score)
