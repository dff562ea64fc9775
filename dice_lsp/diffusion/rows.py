"""One pass of the network as a flat list of tokens, whatever they are there for.

Every pass of decoding is M tokens, each with a position, a slot of the cache for its keys and values, and a few spans of
slots that it sees. A block of one candidate, a batch of candidates of different lengths, a commit together with the next
block, and the many states of a block that speculation checks at once differ only in these numbers. All rows read the
weights once, and the slots of a shared prompt once.

Shapes: M rows, S slots of the cache, L layers, K key-value heads, D head_dim.
"""

from typing import Protocol

import torch
from attrs import frozen
from torch import Tensor

from dice_lsp.diffusion.sizes import SDARConfig

SPANS = 4
"""Spans of slots that a row sees at most: the prompt, the candidate's own slots, what a draft assumes, its own state."""


@frozen
class Rows:
    """The tokens of one pass. All tensors lie on the network's device; unused spans are `(0, 0)`."""

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

    def visible(self) -> Tensor:
        """Boolean `[M, end]`: which slots each row sees."""
        slot = torch.arange(self.end, device=self.spans.device)
        first, end = self.spans[..., :1], self.spans[..., 1:]
        return ((slot >= first) & (slot < end)).any(1)


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

    def forward_rows(self, rows: Rows, cache: SlotCache, wanted: Tensor | None) -> Tensor:
        """Logits `[W, V]` of the rows that `wanted` `[W]` numbers, in the network's dtype; all rows' keys and values are kept.

        None asks for no logits and gets an empty tensor. The result may be overwritten by the next pass.
        """
        ...
