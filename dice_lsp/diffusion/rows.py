"""One pass of the network as a flat list of tokens, whatever they are there for.

Every pass of decoding is M tokens, each with a position, a slot of the cache for its keys and values, and a few spans of
slots that it sees. A block of one candidate, a batch of candidates of different lengths, a commit together with the next
block, and the many states of a block that speculation checks at once differ only in these numbers. All rows read the
weights once, and the slots of a shared prompt once.

Shapes: M rows, S slots of the cache, L layers, K key-value heads, D head_dim.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Protocol

import numpy as np
import torch
from attrs import frozen
from torch import Tensor

from dice_lsp.diffusion.sizes import SDARConfig

SPANS = 4
"""Spans of slots that a row sees at most: the prompt, the candidate's own slots, what a draft assumes, its own state."""


@frozen
class Rows:
    """The tokens of one pass, on the host, where it is put together. Unused spans are `(0, 0)`."""

    numbers: Tensor
    """`[3 + 2 * SPANS, M]` int32: ids, positions, slots, then first and end of each span. Slots are all different.

    Positions count from the first token of the prompt. A row's keys and values are written to its slot before any row is
    attended; it sees the slots `[first, end)` of each of its spans, its own among them.
    """
    end: int
    """No span ends after this slot. Reading stops there."""

    @classmethod
    def of(
        cls,
        ids: Sequence[int],
        positions: Sequence[int],
        slots: Sequence[int],
        spans: Sequence[Sequence[tuple[int, int]]],
    ) -> "Rows":
        """Rows from as many numbers, and as many lists of up to SPANS spans."""
        unused = (0, 0)
        bounds = [[*chain(*seen), *unused * (SPANS - len(seen))] for seen in spans]
        numbers = np.array([ids, positions, slots, *zip(*bounds, strict=True)], dtype=np.int32)
        return cls(torch.from_numpy(numbers), int(numbers[4::2].max()))

    @property
    def count(self) -> int:
        return self.numbers.shape[1]

    def visible(self, device: torch.device) -> Tensor:
        """Boolean `[M, end]`: which slots each row sees."""
        slot = torch.arange(self.end, device=device)
        bounds = self.numbers[3:].to(device)[..., None]
        return ((slot >= bounds[::2]) & (slot < bounds[1::2])).any(0)


@frozen
class Seen:
    """What a pass says of the W rows that were asked for. It may be overwritten by the next pass."""

    logits: Tensor
    """`[W, V]` in the network's dtype."""
    summary: Tensor
    """`[W, 4]` fp32, see `summarize`."""


def summarize(logits: Tensor, mask_id: int) -> Tensor:
    """Of each row of `logits` `[W, V]`, as `[W, 4]` fp32: a token, its probability, the entropy in nats, the log of the sum.

    The token is the likeliest one but for the mask: a mask is no token of a text, and a network that predicts one would
    otherwise never finish its block. Probability and entropy are those of the full softmax, in fp32.
    """
    at = logits.float()
    total = at.logsumexp(-1)
    logs = at - total[:, None]
    entropy = -(logs.exp() * logs).sum(-1)
    logs[:, mask_id] = -torch.inf
    peak, best = logs.max(-1)
    return torch.stack([best.float(), peak.exp(), entropy, total], 1)


class SlotCache:
    """Keys and values `[L, K, S, D]` of numbered slots. Who uses which slot is the decoder's matter.

    There may be more slots than were asked for, which are the network's own.
    """

    def __init__(
        self, config: SDARConfig, slots: int, device: torch.device, dtype: torch.dtype, all_slots: int | None = None
    ) -> None:
        shape = (config.num_hidden_layers, config.num_key_value_heads, all_slots or slots, config.head_dim)
        self.keys = torch.zeros(shape, device=device, dtype=dtype)
        self.values = torch.zeros(shape, device=device, dtype=dtype)
        self.slots = slots


class RowNetwork(Protocol):
    """What decoding needs of a network."""

    @property
    def config(self) -> SDARConfig: ...

    @property
    def device(self) -> torch.device: ...

    @property
    def dtype(self) -> torch.dtype: ...

    @property
    def refused(self) -> str:
        """Why its kernels turned out not to run on this GPU, if they did not."""
        ...

    def warm(self, bucket: int) -> None:
        """Prepare passes of up to this many rows."""

    def slot_cache(self, slots: int) -> SlotCache: ...

    def forward_rows(self, rows: Rows, cache: SlotCache, wanted: Sequence[int]) -> Seen:
        """What is seen at the rows that `wanted` numbers, which may be none; all rows' keys and values are kept."""
        ...
