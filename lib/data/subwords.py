"""Cut words into pieces: a vocabulary small enough for a network, in which every sentence can be written.

Frequent words are one piece, rare ones several (byte pair encoding, Sennrich et al. 2016, by sentencepiece). Merges are
found by counting whole numbers, so the same sentences give the same pieces on every machine.
"""

from __future__ import annotations

import io
from collections.abc import Iterable

from lib.base import BadInput
from lib.models.translator import BEGIN, END, PAD, UNKNOWN


class Subwords:
    """Turn sentences into tokens and back.

    Args:
        content: a vocabulary that sentencepiece has trained, as bytes.
    """

    def __init__(self, content: bytes):
        from sentencepiece import SentencePieceProcessor  # imported here: only whoever translates needs it

        self._processor = SentencePieceProcessor(model_proto=content)

    @classmethod
    def train(cls, sentences: Iterable[str], pieces: int) -> Subwords:
        """Find the vocabulary of so many pieces for these sentences, those of both languages together.

        Raises:
            BadInput: more pieces than the sentences hold, or fewer than they have letters.
        """
        from sentencepiece import SentencePieceTrainer

        content = io.BytesIO()
        try:
            SentencePieceTrainer.train(
                sentence_iterator=iter(sentences),
                model_writer=content,
                model_type="bpe",
                vocab_size=pieces,
                character_coverage=1.0,
                pad_id=PAD,
                unk_id=UNKNOWN,
                bos_id=BEGIN,
                eos_id=END,
                num_threads=1,
                minloglevel=2,
            )
        except RuntimeError as error:
            raise BadInput(f"pieces={pieces}: sentencepiece finds no such vocabulary in these sentences") from error
        return cls(content.getvalue())

    def __len__(self) -> int:
        """Count the pieces, with the four tokens that are none."""
        return self._processor.get_piece_size()

    def encode(self, sentence: str) -> list[int]:
        """Turn a sentence into tokens, without BEGIN and END."""
        return self._processor.encode(sentence)

    def decode(self, tokens: Iterable[int]) -> str:
        """Turn tokens back into a sentence."""
        return self._processor.decode(list(tokens))

    def pieces(self, sentence: str) -> list[str]:
        """Cut a sentence into its pieces, as they are written in the vocabulary; "▁" begins a word."""
        return self._processor.encode(sentence, out_type=str)
