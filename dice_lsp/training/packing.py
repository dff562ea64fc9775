"""Examples as rows of tokens for block-diffusion training.

A document is its clean tokens (prompt, middle, end tokens to the block's edge) followed by noisy copies of its last
blocks, those that hold the middle. A token sees the clean tokens of earlier blocks of its document, and its own block
in its own copy: exactly what decoding sees when the cache holds the earlier blocks. One mask rule says all of it, from
three numbers per token: document, copy (0 is clean) and block.
"""

import random
from collections.abc import Callable, Iterator

import numpy as np
import torch
from attrs import frozen
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from dice_lsp.diffusion.layout_psm import EOM, MASK, PAD, spell
from dice_lsp.training.examples import Example

Row = NDArray[np.int16]
"""`[6, T]`: token, position, document, copy, block, and for masked tokens 1 + the true token (0: no loss)."""

FIELDS = 6
IGNORED = 0


@frozen
class Packer:
    """Turns examples into rows of `length` tokens."""

    tokenizer: Tokenizer
    length: int = 1024
    prompt_limit: int = 420
    middle_limit: int = 256
    block_sizes: tuple[int, ...] = (4, 8, 16, 32)
    copies: int = 2

    def ids(self, example: Example) -> tuple[list[int], list[int]] | None:
        """Prompt and middle of an example as token ids, or None when one is too long for the model."""
        prompt = example.prompt
        words = example.words(prompt)
        if not words:
            return None
        encoded = self.tokenizer.encode(prompt.text, add_special_tokens=False).ids
        middle = self.tokenizer.encode(spell(words), add_special_tokens=False).ids
        if len(encoded) > self.prompt_limit or len(middle) > self.middle_limit:
            return None
        return encoded, middle

    def document(
        self, prompt: list[int], middle: list[int], block_size: int, rng: random.Random, ratio: float | None = None
    ) -> Row:
        """One document's tokens. `ratio` None draws a mask rate for each block: 15 % of blocks are masked whole."""
        eom, mask = self._id(EOM), self._id(MASK)
        used = len(prompt) + len(middle)
        fill = block_size - used % block_size
        tokens = prompt + middle + [eom] * fill
        first = len(prompt) // block_size * block_size
        count = len(tokens)
        columns: list[tuple[int, int, int, int, int]] = [
            (token, at, 0, at // block_size, 0) for at, token in enumerate(tokens)
        ]
        for copy in range(1, self.copies + 1):
            rate = 1.0
            for at in range(first, count):
                if at == first or at % block_size == 0:
                    rate = ratio if ratio is not None else (1.0 if rng.random() < 0.15 else rng.uniform(0.05, 1.0))
                token, target = tokens[at], 0
                if at >= len(prompt) and rng.random() < rate:
                    # The end is learned at its first token always, at the repeats that fill the block now and then.
                    target = token + 1 if at <= used or rng.random() < 0.25 else 0
                    token = mask
                columns.append((token, at, copy, at // block_size, target))
        row = np.zeros((FIELDS, len(columns)), np.int16)
        values = np.array(columns, np.int16).T
        row[0], row[1], row[3], row[4], row[5] = values
        return row

    def rows(
        self,
        examples: Callable[[], Example | None],
        rng: random.Random,
        block_size: int | None = None,
        ratio: float | None = None,
    ) -> Iterator[Row]:
        """Endless rows, each filled with documents until the next does not fit; the rest is padding."""
        pool: list[Row] = []
        while True:
            row = self._empty(self._id(PAD))
            filled = documents = 0
            while True:
                # The longest of a few waiting documents that still fits: little of a row stays empty.
                while len(pool) < 24:
                    example = examples()
                    encoded = None if example is None else self.ids(example)
                    if encoded is not None:
                        document = self.document(*encoded, block_size or rng.choice(self.block_sizes), rng, ratio)
                        if document.shape[1] <= self.length:
                            pool.append(document)
                fitting = [at for at, document in enumerate(pool) if filled + document.shape[1] <= self.length]
                if not fitting:
                    break
                chosen = fitting[0] if documents == 0 else max(fitting, key=lambda at: pool[at].shape[1])
                document = pool.pop(chosen)
                documents += 1
                document[2] = documents
                row[:, filled : filled + document.shape[1]] = document
                filled += document.shape[1]
            yield row

    def _id(self, special: str) -> int:
        found: int | None = self.tokenizer.token_to_id(special)
        if found is None:
            raise ValueError(f"the tokenizer lacks {special}")
        return found

    def _empty(self, pad: int) -> Row:
        row = np.zeros((FIELDS, self.length), np.int16)
        row[0] = pad
        return row


def visible(document: Tensor, copy: Tensor, block: Tensor) -> Tensor:
    """The mask rule as a boolean tensor `[N, 1, T, T]` from three `[N, T]` tensors, queries before keys."""
    same = document[:, :, None] == document[:, None, :]
    earlier = (copy[:, None, :] == 0) & (block[:, None, :] < block[:, :, None])
    own = (copy[:, :, None] == copy[:, None, :]) & (block[:, :, None] == block[:, None, :])
    return (same & (earlier | own))[:, None]


def as_tensors(rows: list[Row], device: torch.device | str = "cpu") -> Tensor:
    """Rows as one integer tensor `[6, N, T]`."""
    return torch.from_numpy(np.stack(rows, 1).astype(np.int64)).to(device)
