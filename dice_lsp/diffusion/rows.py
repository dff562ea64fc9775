"""One pass of the network as a flat list of tokens, whatever they are there for.

Every pass of decoding is M tokens, each with a position, a slot of the cache for its keys and values, and a few spans of
slots that it sees. A block of one candidate, a batch of candidates of different lengths, a commit together with the next
block, and the many states of a block that speculation checks at once differ only in these numbers. All rows read the
weights once, and the slots of a shared prompt once.

Shapes: M rows, S slots of the cache, L layers, K key-value heads, D head_dim.
"""

from collections.abc import Sequence
from typing import Protocol

import torch
from attrs import frozen
from torch import Tensor

from dice_lsp.diffusion.sizes import SDARConfig

SPANS = 4
"""Spans of slots that a row sees at most: the prompt, the candidate's own slots, what a draft assumes, its own state."""


@frozen
class Rows:
    """The tokens of one pass. All tensors lie on the host, as a pass is put together there; unused spans are `(0, 0)`."""

    ids: Tensor
    """`[M]` int64."""
    positions: Tensor
    """`[M]` int64, counted from the first token of the prompt."""
    slots: Tensor
    """`[M]` int64, all different: where the keys and values of each row are written before any row is attended."""
    spans: Tensor
    """`[M, SPANS, 2]` int32: a row sees the slots of `[first, end)` of each of its spans, its own among them."""
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
        filled = [[*seen, *[unused] * (SPANS - len(seen))] for seen in spans]
        end = max(last for seen in spans for _, last in seen)
        numbers = torch.tensor([ids, positions, slots])
        return cls(numbers[0], numbers[1], numbers[2], torch.tensor(filled, dtype=torch.int32), end)

    def to(self, device: torch.device) -> "Rows":
        """The same rows on a device, sent in one piece."""
        if device.type == "cpu":
            return self
        count = len(self.ids)
        numbers = torch.stack([self.ids, self.positions, self.slots])
        sent = torch.cat([numbers, self.spans.reshape(count, -1).T]).to(device)
        spans = sent[3:].T.reshape(count, SPANS, 2).int()
        return Rows(sent[0], sent[1], sent[2], spans, self.end)

    def visible(self) -> Tensor:
        """Boolean `[M, end]`: which slots each row sees."""
        slot = torch.arange(self.end, device=self.spans.device)
        first, end = self.spans[..., :1], self.spans[..., 1:]
        return ((slot >= first) & (slot < end)).any(1)


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

    def slot_cache(self, slots: int) -> SlotCache: ...

    def forward_rows(self, rows: Rows, cache: SlotCache, wanted: Sequence[int]) -> Seen:
        """What is seen at the rows that `wanted` numbers, which may be none; all rows' keys and values are kept."""
        ...
