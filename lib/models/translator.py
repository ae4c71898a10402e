"""Build networks that translate: an encoder reads a sentence, a decoder writes another one token after the other.

Paper 2 prunes two of them in table 6: one of attention alone (Vaswani et al. 2017) and GNMT, an LSTM with attention
(Wu et al. 2016). Here they are small and written out of Linear layers, so that every matrix product with weights is one
that pruners find. One table of embeddings serves source, target and, as the head, the choice of the next token
(Press and Wolf 2017; the paper's fairseq shares it, too). It is one weight, and it is left dense (section 5.4).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lib.base import BadInput
from lib.models.recurrent import Cell
from lib.models.transformer import Block, attend

PAD, UNKNOWN, BEGIN, END = range(4)  # tokens that are no piece of a word; PAD fills sentences up to one length

State = tuple[Tensor, ...]  # what a decoder knows, each with an axis of sentences first, so that they can be picked


class Translator(nn.Module):
    """Share what both have: the table of embeddings, and what teacher forcing and step-by-step decoding ask for."""

    def __init__(self, symbols: int, width: int, dropout: float):
        super().__init__()
        self.tokens = nn.Embedding(symbols, width)
        nn.init.normal_(self.tokens.weight, std=width**-0.5)
        self.head = nn.Linear(width, symbols, bias=False)
        self.head.weight = self.tokens.weight
        self.dropout = nn.Dropout(dropout)

    def forward(self, source: Tensor, written: Tensor) -> Tensor:
        """Foresee each next token of a translation that is known.

        Args:
            source: [N, S], filled up with PAD.
            written: BEGIN and the translation, [N, T].

        Returns:
            Logits of the token after each, [N, T, symbols].
        """
        raise NotImplementedError

    def start(self, source: Tensor) -> State:
        """Read sentences [N, S] and return what the decoder knows before it writes."""
        raise NotImplementedError

    def step(self, state: State, tokens: Tensor) -> tuple[Tensor, State]:
        """Write one token more, [N]; return logits of the next, [N, symbols], and what the decoder knows then."""
        raise NotImplementedError


class DecoderBlock(Block):
    """Read what has been written, then the source by a second attention, then think."""

    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__(width, heads, dropout)
        self.norm3 = nn.LayerNorm(width)
        self.ask, self.source_key, self.source_value, self.told = (nn.Linear(width, width) for _ in range(4))

    def forward(
        self, states: Tensor, memory: tuple[Tensor, Tensor], allowed: Tensor, past: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Map states [N, T, width] to the same, and return the keys and values of all that has been written.

        Args:
            memory: keys and values of the source, [N, S, width] each.
            allowed: where the source is no filling, [N, 1, 1, S].
            past: keys and values of what was written before, when states are of the one token after it.
        """
        query, key, value = self.projected(states)
        if past is not None:
            key, value = (torch.cat(parts, 1) for parts in zip(past, (key, value), strict=True))
        states = self.read(states, query, key, value, causal=past is None)
        read = attend(self.ask(self.norm3(states)), *memory, self.heads, allowed)
        return self.think(states + self.dropout(self.told(read))), (key, value)


class Transformer(Translator):
    """Translate by attention alone; norms come before the layers, as in `lib.models.transformer`.

    Args:
        symbols: how many different tokens there are.
        window: the longest sentence, in tokens.
        blocks: of the encoder, and of the decoder.
    """

    def __init__(self, symbols: int, window: int, width: int, blocks: int, heads: int, dropout: float = 0.0):
        super().__init__(symbols, width, dropout)
        if width % heads:
            raise BadInput(f"width={width} is not a multiple of heads={heads}")
        self.places = nn.Embedding(window, width)
        nn.init.normal_(self.places.weight, std=width**-0.5)
        self.encoder = nn.ModuleList(Block(width, heads, dropout) for _ in range(blocks))
        self.decoder = nn.ModuleList(DecoderBlock(width, heads, dropout) for _ in range(blocks))
        self.source_norm, self.norm = nn.LayerNorm(width), nn.LayerNorm(width)

    def embed(self, tokens: Tensor, first: int = 0) -> Tensor:
        """Add the embeddings of tokens [N, T] and of their places, which begin at `first`; [N, T, width].

        Raises:
            BadInput: they reach beyond the window.
        """
        last = first + tokens.shape[1]
        if last > len(self.places.weight):
            raise BadInput(f"a sentence of {last} tokens is longer than the window, {len(self.places.weight)}")
        return self.dropout(self.tokens(tokens) + self.places.weight[first:last])

    def read(self, source: Tensor) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """Read sentences [N, S]: where they are no filling, and for each decoder block keys and values."""
        allowed = (source != PAD)[:, None, None]
        states = self.embed(source)
        for block in self.encoder:
            states = block.think(block.read(states, *block.projected(states), allowed=allowed))
        states = self.source_norm(states)
        return allowed, [(block.source_key(states), block.source_value(states)) for block in self.decoder]

    def forward(self, source: Tensor, written: Tensor) -> Tensor:
        """Return the logits of each next token, see `Translator.forward`."""
        allowed, memories = self.read(source)
        states = self.embed(written)
        for block, memory in zip(self.decoder, memories, strict=True):
            states, _ = block(states, memory, allowed)
        return self.head(self.norm(states))

    def start(self, source: Tensor) -> State:
        """Read the source and return the state before the first token, see `Translator.start`."""
        allowed, memories = self.read(source)
        nothing = memories[0][0][:, :0]
        return (allowed, *(part for memory in memories for part in memory), *[nothing] * (2 * len(memories)))

    def step(self, state: State, tokens: Tensor) -> tuple[Tensor, State]:
        """Return the logits after these tokens and the new state, see `Translator.step`."""
        allowed, *parts = state
        pairs = list(zip(parts[::2], parts[1::2], strict=True))
        memories, pasts = pairs[: len(self.decoder)], pairs[len(self.decoder) :]
        states, seen = self.embed(tokens[:, None], first=pasts[0][0].shape[1]), []
        for block, memory, past in zip(self.decoder, memories, pasts, strict=True):
            states, now = block(states, memory, allowed, past)
            seen += now
        return self.head(self.norm(states))[:, 0], (*state[: 1 + 2 * len(memories)], *seen)


class Recurrent(Translator):
    """Translate by LSTMs with attention, as GNMT does with eight layers a side.

    The encoder reads in both directions. Of the decoder's two layers the first asks the source what matters now; both
    read the answer, and the first reads the one before. As in the code that the paper trained, the decoder starts from
    zeros. Attention is a scaled dot product, where GNMT has a small perceptron.

    Args:
        symbols: how many different tokens there are.
        hidden: length of each layer's state.
    """

    def __init__(self, symbols: int, width: int, hidden: int, dropout: float = 0.0):
        super().__init__(symbols, width, dropout)
        self.hidden = hidden
        self.forwards, self.backwards = Cell(width, hidden), Cell(width, hidden)
        self.source_key, self.source_value = (nn.Linear(2 * hidden, hidden) for _ in range(2))
        self.first = Cell(width + hidden, hidden)
        self.ask = nn.Linear(hidden, hidden)
        self.second = Cell(2 * hidden, hidden)
        self.narrow = nn.Linear(2 * hidden, width)

    def _read(self, cell: Cell, embedded: Tensor, real: Tensor, places: range) -> Tensor:
        """Outputs of one direction, [N, S, hidden]; filling leaves the state as it is."""
        entering = cell.input(embedded)
        output = state = embedded.new_zeros(len(embedded), self.hidden)
        outputs = {}
        for place in places:
            new, cells = cell.step(entering[:, place], output, state)
            output, state = torch.where(real[:, place], new, output), torch.where(real[:, place], cells, state)
            outputs[place] = output
        return torch.stack([outputs[place] for place in sorted(outputs)], 1)

    def start(self, source: Tensor) -> State:
        """Read the source and return the state before the first token, see `Translator.start`."""
        real, embedded = (source != PAD)[..., None], self.dropout(self.tokens(source))
        along = range(source.shape[1])
        ways = self._read(self.forwards, embedded, real, along), self._read(self.backwards, embedded, real, along[::-1])
        read = self.dropout(torch.cat(ways, -1))
        zeros = read.new_zeros(len(read), self.hidden)
        return (real[:, None, None, :, 0], self.source_key(read), self.source_value(read), *[zeros] * 5)

    def step(self, state: State, tokens: Tensor) -> tuple[Tensor, State]:
        """Return the logits after these tokens and the new state, see `Translator.step`."""
        allowed, key, value, told, *layers = state
        embedded = self.dropout(self.tokens(tokens))
        first, first_cell = self.first.step(self.first.input(torch.cat([embedded, told], 1)), *layers[:2])
        told = attend(self.ask(first)[:, None], key, value, 1, allowed)[:, 0]
        entering = self.second.input(self.dropout(torch.cat([first, told], 1)))
        second, second_cell = self.second.step(entering, *layers[2:])
        narrow = self.narrow(self.dropout(torch.cat([second, told], 1))).tanh()
        return self.head(narrow), (allowed, key, value, told, first, first_cell, second, second_cell)

    def forward(self, source: Tensor, written: Tensor) -> Tensor:
        """Return the logits of each next token, see `Translator.forward`."""
        state, logits = self.start(source), []
        for tokens in written.T:
            found, state = self.step(state, tokens)
            logits.append(found)
        return torch.stack(logits, 1)


def transformer(symbols: int, window: int) -> Transformer:
    """Build three blocks a side of width 128: 1,376,256 weights in them, 512,000 in the table of 4,000 symbols."""
    return Transformer(symbols, window, width=128, blocks=3, heads=4, dropout=0.2)


def recurrent(symbols: int, window: int) -> Recurrent:
    """Build LSTMs of 192, with embeddings of 128, for sentences of any length; about as many weights."""
    return Recurrent(symbols, width=128, hidden=192, dropout=0.2)


def small_transformer(symbols: int, window: int) -> Transformer:
    """Build a block a side of width 32."""
    return Transformer(symbols, window, width=32, blocks=1, heads=2)


def small_recurrent(symbols: int, window: int) -> Recurrent:
    """Build LSTMs of 32, with embeddings of 32, for sentences of any length."""
    return Recurrent(symbols, width=32, hidden=32)
