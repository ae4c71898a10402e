"""Build a transformer that reads characters from left to right, of plain Linear layers (Vaswani et al. 2017).

Section 5.4 of paper 2 prunes every matrix product with weights inside a transformer's blocks: queries, keys, values,
what attention hands on, and the two layers of the perceptron. Attention's own products have no weights. Embeddings are
left dense (section 4.2: they are look-ups), and so is the head, which stands outside the blocks; where it serves in
training only, section 4.2 names it among what is not pruned. Norms come before the layers, as they do in GPT-2.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lib.base import BadInput

LEFT_DENSE = {"head": "outside the transformer's blocks (section 5.4)"}  # for `pruners.layer_rule`


def attend(
    query: Tensor, key: Tensor, value: Tensor, heads: int, allowed: Tensor | None = None, causal: bool = False
) -> Tensor:
    """Mix values by how well their keys match each query (Vaswani et al. 2017, equation 1), head by head.

    Args:
        query: [N, T, width].
        key, value: [N, S, width].
        allowed: which keys each query may see, bool, as [N, heads, T, S] or with axes of length 1; None: all.
        causal: the query at place t sees keys 0 to t alone.

    Returns:
        [N, T, width].
    """
    if torch.is_autocast_enabled("cpu") and query.device.type == "cpu":  # attention in bfloat16 is slower there
        with torch.autocast("cpu", enabled=False):
            return attend(query.float(), key.float(), value.float(), heads, allowed, causal)
    query, key, value = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in (query, key, value))
    read = F.scaled_dot_product_attention(query, key, value, attn_mask=allowed, is_causal=causal)
    return read.transpose(1, 2).flatten(2)


class Block(nn.Module):
    """Add attention over what has been read to the input, then a perceptron's output."""

    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, states: Tensor) -> Tensor:
        """Map [N, T, width] to the same; place t depends on places 0 to t."""
        return self.think(self.read(states, *self.projected(states), causal=True))

    def projected(self, states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Compute queries, keys and values of states [N, T, width], each of that shape."""
        seen = self.norm1(states)
        return self.query(seen), self.key(seen), self.value(seen)

    def read(self, states: Tensor, query: Tensor, key: Tensor, value: Tensor, **seen: object) -> Tensor:
        """Add to states what attention reads; `seen` says what it may see (`attend`)."""
        return states + self.dropout(self.out(attend(query, key, value, self.heads, **seen)))

    def think(self, states: Tensor) -> Tensor:
        """Add to states the perceptron's output."""
        return states + self.dropout(self.narrow(F.gelu(self.wide(self.norm2(states)))))


class Decoder(nn.Module):
    """Turn tokens into states: embeddings of tokens and places, blocks, a norm.

    Args:
        symbols: how many different tokens there are.
        window: the longest text it reads at a time.
    """

    def __init__(self, symbols: int, window: int, width: int, blocks: int, heads: int, dropout: float = 0.0):
        super().__init__()
        if width % heads:
            raise BadInput(f"width={width} is not a multiple of heads={heads}")
        self.tokens, self.places = nn.Embedding(symbols, width), nn.Embedding(window, width)
        nn.init.normal_(self.tokens.weight, std=0.02)
        nn.init.normal_(self.places.weight, std=0.02)
        self.blocks = nn.Sequential(*(Block(width, heads, dropout) for _ in range(blocks)))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map tokens [N, T] to states [N, T, width].

        Raises:
            BadInput: more tokens than the window has places.
        """
        if tokens.shape[1] > len(self.places.weight):
            raise BadInput(f"a text of {tokens.shape[1]} tokens is longer than the window, {len(self.places.weight)}")
        return self.norm(self.blocks(self.tokens(tokens) + self.places.weight[: tokens.shape[1]]))


class LanguageModel(nn.Module):
    """Add to a decoder a head that says which token may come next."""

    def __init__(self, decoder: Decoder):
        super().__init__()
        self.decoder = decoder
        self.head = nn.Linear(decoder.tokens.embedding_dim, decoder.tokens.num_embeddings)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map tokens [N, T] to logits of each next token, [N, T, symbols]."""
        return self.head(self.decoder(tokens))


class TextClassifier(nn.Module):
    """Copy a language model's decoder, with its masks, and add a new head that says of what class a passage is."""

    def __init__(self, model: LanguageModel, classes: int):
        super().__init__()
        self.decoder = copy.deepcopy(model.decoder)
        self.head = nn.Linear(model.head.in_features, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map passages [N, T] to logits of each class, [N, classes], from the state at the last token."""
        return self.head(self.decoder(tokens)[:, -1])


def decoder(symbols: int, window: int) -> LanguageModel:
    """Build five blocks of width 128, with 983,040 weights in them; 1,024,705 parameters at 65 symbols, window 128."""
    return LanguageModel(Decoder(symbols, window, width=128, blocks=5, heads=4, dropout=0.1))


def small_decoder(symbols: int, window: int) -> LanguageModel:
    """Build two blocks of width 32: 24,576 weights in the blocks."""
    return LanguageModel(Decoder(symbols, window, width=32, blocks=2, heads=2))
