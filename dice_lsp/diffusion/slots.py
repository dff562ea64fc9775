"""Who uses which slots of the cache: the prompt's, which the next fill of the document may find again, and the candidates'."""

from collections.abc import Callable, Sequence

from dice_lsp.diffusion.rows import RowNetwork, Rows, SlotCache

PREFILL_TOKENS = 256
"""Tokens of one prefill pass: a cancel is seen between passes."""

SLOT_STEP = 1024
"""Caches are made in multiples of this."""

KEPT_BYTES = 2 << 30
"""A cache larger than this is given up after its fill instead of kept for the next one."""


class Arena:
    """Slots `[first, end)`, handed out in runs, the lowest that is long enough first, so that passes read few slots."""

    def __init__(self, first: int, end: int) -> None:
        self.free = [(first, end)] if end > first else []
        self.end = end

    def take(self, count: int) -> int:
        """The first of `count` slots. Raises `MemoryError` when no run is that long."""
        for at, (first, end) in enumerate(self.free):
            if end - first >= count:
                self.free[at : at + 1] = [(first + count, end)] if end - first > count else []
                return first
        raise MemoryError(f"no {count} slots of the cache are free in one run")

    def give(self, first: int, count: int) -> None:
        """Take back what `take` handed out."""
        runs = sorted([*self.free, (first, first + count)])
        merged = runs[:1]
        for start, end in runs[1:]:
            if start == merged[-1][1]:
                merged[-1] = (merged[-1][0], end)
            else:
                merged.append((start, end))
        self.free = merged


class PromptCache:
    """The slots of a fill, kept for the next one, which reads only what of its prompt is new.

    Keys and values of a token depend on the tokens before it and on the cut into blocks, and on nothing else: whole blocks
    that both prompts begin with are taken over as they are.
    """

    def __init__(self, network: RowNetwork) -> None:
        self.network = network
        self.cache: SlotCache | None = None
        self.tokens: list[int] = []
        """Whose keys and values lie in the first slots."""
        self.block_size = 0

    def prepare(
        self, prompt: Sequence[int], block_size: int, slots: int, check: Callable[[], None]
    ) -> tuple[SlotCache, int]:
        """A cache of at least `slots` with the whole blocks of `prompt` in its first slots, and the passes that it took.

        `check` is called between passes and may raise: what was read until then stays.
        """
        known = self._common(prompt, block_size)
        if self.cache is None or self.cache.slots < slots:
            old = self.cache
            # More than this prompt needs, so that the next longer one does not need another cache.
            self.cache = self.network.slot_cache(-(-slots // SLOT_STEP) * SLOT_STEP)
            if old is not None and known:
                self.cache.keys[:, :, :known] = old.keys[:, :, :known]
                self.cache.values[:, :, :known] = old.values[:, :, :known]
        self.tokens, self.block_size = list(prompt[:known]), block_size
        passes = 0
        chunk = max(PREFILL_TOKENS // block_size, 1) * block_size
        for start in range(known, len(prompt), chunk):
            check()
            end = min(start + chunk, len(prompt))
            self.network.forward_rows(self._rows(prompt, start, end), self.cache, ())
            self.tokens = list(prompt[:end])
            passes += 1
        return self.cache, passes

    def _common(self, prompt: Sequence[int], block_size: int) -> int:
        if self.cache is None or block_size != self.block_size:
            return 0
        same = next((at for at, (a, b) in enumerate(zip(self.tokens, prompt, strict=False)) if a != b), None)
        return (min(len(self.tokens), len(prompt)) if same is None else same) // block_size * block_size

    def _rows(self, prompt: Sequence[int], start: int, end: int) -> Rows:
        at = range(start, end)
        return Rows.of(
            prompt[start:end], at, at, [[(0, (slot // self.block_size + 1) * self.block_size)] for slot in at]
        )

    def give_up_if_large(self) -> None:
        """Do not hold memory between fills that the user would miss."""
        if self.cache is not None and 2 * self.cache.keys.numel() * self.cache.keys.element_size() > KEPT_BYTES:
            self.cache, self.tokens = None, []
