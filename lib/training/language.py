"""Train and measure a model of characters: stretches of a text, bits a character, passages."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lib.base import BadInput, refuse_uncounted
from lib.training.evaluation import measuring, predicted
from lib.training.steps import Draw


def windows(text: Tensor, window: int, batch: int) -> Draw:
    """Draw batches for a language model: as many stretches of the text as `batch`, begun anywhere, [N, window].

    The targets are the same stretches one token later.

    Raises:
        BadInput: a window or a batch of nothing, or a text that is no longer than the window.
    """
    refuse_uncounted(window=window, batch=batch)
    if len(text) <= window:
        raise BadInput(f"a text of {len(text)} tokens is too short for a window of {window}")
    along = torch.arange(window + 1, device=text.device)

    def draw(generator: torch.Generator) -> tuple[Tensor, Tensor]:
        begins = torch.randint(len(text) - window, (batch, 1), generator=generator).to(text.device)
        stretch = text[begins + along]
        return stretch[:, :-1], stretch[:, 1:]

    return draw


def bits(model: nn.Module, text: Tensor, window: int, batch: int = 64) -> float:
    """Measure a language model in bits a character: the mean of -log2 of the probability it gave to what came next.

    The text is read in windows that do not overlap, so a character is predicted from half a window on average; each but
    the first is predicted once.

    Raises:
        BadInput: a window or a batch of nothing, or a text in which nothing comes next.
    """
    refuse_uncounted(window=window, batch=batch)
    if len(text) < 2:
        raise BadInput(f"a text of {len(text)} tokens is too short to be foretold: expected two or more")
    total = torch.zeros((), dtype=torch.float64)
    count = len(text) - 1
    full = count // window * window
    inputs, targets = (tokens.view(-1, window).split(batch) for tokens in (text[:full], text[1 : full + 1]))
    parts = [*zip(inputs, targets, strict=True)]
    if full < count:
        parts.append((text[None, full:-1], text[None, full + 1 :]))
    with measuring(model):
        for inputs, targets in parts:
            logits = model(inputs)
            total += F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum").double().cpu()
    return float(total) / count / math.log(2)


def share_right(model: nn.Module, tokens: Tensor, labels: Tensor, batch: int = 64) -> float:
    """Measure the share of the passages whose largest logit is their label, in percent.

    Raises:
        FloatingPointError: the network gives what is no number.
    """
    with measuring(model):
        right = sum(
            int((predicted(model(inputs)) == own).sum())
            for inputs, own in zip(tokens.split(batch), labels.split(batch), strict=True)
        )
    return 100 * right / len(labels)
