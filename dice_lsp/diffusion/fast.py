"""The same network at the speed of the memory: one CUDA graph a pass, few kernels a layer, the weights read once.

`FastNetwork` wraps a loaded network and answers `forward_rows` from graphs, one for each bucket of rows and of slots. A
graph works on static buffers; a pass copies its numbers there and replays. Passes that are too large for a graph (the
prompt) go through the network as it is.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from attrs import define, field, frozen
from torch import Tensor

from dice_lsp.diffusion.model import SDAR, Layer
from dice_lsp.diffusion.rows import SPANS, Rows, Seen, SlotCache
from dice_lsp.diffusion.sizes import SDARConfig

_log = logging.getLogger(__name__)

ROW_BUCKETS = (4, 8, 16, 32, 48, 64, 80, 96)
"""Rows that a graph is made for; a pass takes the next one that it fits in. Few, for each takes a while to make."""

ROWS = 96
"""Rows of the static buffers."""

WANTED = 3 + 2 * SPANS
END = WANTED + 1
WRITTEN_FROM = END + 1
"""Where these lie in the numbers of a pass."""

SLOT_BUCKET = 512
"""Slots that a graph reads are rounded up to this, and to an eighth of the power of two below."""

MAX_SHARES = 32
"""Programs that share the slots of one key head, at most."""

FEW_QUERIES = 32
SLOTS_OF_FEW = 64
SLOTS_OF_MANY = 128
"""Slots that a program looks at at once. What each share of the slots says of each query is written and read again, so many
queries have fewer shares."""

QUERIES = 64
"""Queries that a program looks at at once, at most."""

GROUPS = {4: (16, 0), 8: (16, 0), 16: (16, 0), 32: (32, 0), 48: (32, 16), 64: (64, 0), 80: (64, 16), 96: (64, 32)}
"""Rows that a tensor core instruction takes at once, for each bucket: widths are powers of two, and 96 is 64 and 32."""

VOCABULARY_SHARE = 4096
"""Tokens of the vocabulary that one program looks at."""

SOME = 32
MANY = 48
"""From these buckets on layers are cut differently."""


@frozen
class Tiling:
    """How one linear layer is cut up for the programs of a kernel."""

    weight_rows: int
    inner: int
    shares: int
    """Programs along the inner dimension; more than 1 leave their sums to the next kernel."""
    stages: int
    late: bool
    """The next kernel is let in after the last weights were asked for, and not at once."""
    warps: int = 4
    ahead: int = 2
    """Lines of 64 elements of each weight row that are asked for before the kernel before has ended."""


def tiling(
    layer: str,
    outputs: int,
    inputs: int,
    bucket: int,
    processors: int = 132,
    smem_bytes: int = 232448,
) -> Tiling:
    """A cut that keeps every multiprocessor reading, as measured on an H200 for `qkv`, `o`, `gate_up`, `down` and `head`.

    `smem_bytes` is the shared memory that a block may have; where it is short there are fewer stages, or shorter ones.
    """
    gated, many = layer == "gate_up", bucket >= MANY
    tiles = outputs // 64
    inner = 64 if inputs % 128 else 128
    if gated and (many or processors < tiles < 1.3 * processors or (bucket >= SOME and tiles > processors)):
        inner = 64
    rows = 64 * (1 + gated) + (ROWS if many else 32)
    if 2 * 2 * rows * inner > 0.9 * smem_bytes:
        inner = 64
    stages = min(4, int(0.9 * smem_bytes // (2 * rows * inner)))
    if layer == "head" or (gated and inner == 128 and tiles > processors):
        # Two programs share a multiprocessor.
        stages = min(3, stages)
    shares = 1
    if not gated and layer != "head":
        # Sums of shares are written and read again for every row: more of them only where tiles alone are too few.
        choices = [count for count in (1, 2, 4) if inputs % (count * inner) == 0]
        if many:
            # One program fills a multiprocessor, so all should run at once; where that leaves many idle, two smaller ones.
            shares = max(count for count in choices if count == 1 or tiles * count <= processors)
            if tiles * shares < 0.7 * processors and shares < choices[-1]:
                shares, stages = 2 * shares, min(3, stages)
        else:
            most = 2 if layer == "qkv" else 4
            shares = next((c for c in choices if tiles * c >= 1.9 * processors or c == most), choices[-1])
    return Tiling(64, inner, shares, stages, late=not many and layer in ("o", "gate_up", "down"))


@define
class _Buffers:
    """What every graph of a network reads and writes."""

    numbers: Tensor
    """`[WRITTEN_FROM + 1, ROWS]` int32: those of `Rows`, the rows wanted, where the slots that are read end, and the first slot
    that is written."""
    x: Tensor
    normed: Tensor
    queries: Tensor
    attended: Tensor
    inner: Tensor
    partial: Tensor
    sums: Tensor
    peaks: Tensor
    totals: Tensor
    parts: Tensor


@define
class _Graph:
    graph: Any
    seen: Seen


@define(eq=False)
class FastNetwork:
    """See the module. Construct it with `fast_network`, which says when it cannot be had."""

    network: SDAR
    kernels: Any
    buffers: _Buffers
    staging: Tensor
    """`numbers` on the host, where a pass is put together; page-locked for a GPU."""
    tilings: dict[tuple[str, int], Tiling]
    """By layer and bucket."""
    launch_options: dict[str, Any]
    capture: bool = True
    """Off for Triton's interpreter: the kernels run one by one."""
    refused: str = ""
    """Why the kernels turned out not to run on this GPU; the network itself answers then."""
    _graphs: dict[tuple[int, int, int], _Graph] = field(factory=dict)
    _pool: Any = None
    _sent: Any = None
    """The event after which `staging`, which a graph reads, may be written again."""

    @property
    def config(self) -> SDARConfig:
        return self.network.config

    @property
    def device(self) -> torch.device:
        return self.network.device

    @property
    def dtype(self) -> torch.dtype:
        return self.network.dtype

    def slot_cache(self, slots: int) -> SlotCache:
        """An empty cache. Graphs of the cache before are given up: they hold its addresses."""
        self._graphs.clear()
        self._pool = None
        return self.network.slot_cache(slots, spare=1, multiple=SLOT_BUCKET)

    def forward_rows(self, rows: Rows, cache: SlotCache, wanted: Sequence[int]) -> Seen:
        """See `rows.RowNetwork`."""
        count, asked = rows.count, len(wanted)
        if count > ROW_BUCKETS[-1] or not asked or self.refused:
            return self.network.forward_rows(rows, cache, wanted)
        with torch.inference_mode():
            bucket = next(size for size in ROW_BUCKETS if size >= count)
            end = min(_rounded(rows.end), cache.keys.shape[2])
            self._fill(rows, cache, wanted, bucket)
            if not self.capture:
                return _first(self._run(cache, bucket, end), asked)
            key = (bucket, end, id(cache))
            made = self._graphs.get(key)
            if made is None:
                try:
                    made = self._graphs[key] = self._captured(cache, bucket, end)
                except self.kernels.CANNOT as error:
                    self._refuse(error)
                    return self.network.forward_rows(rows, cache, wanted)
            made.graph.replay()
            self._mark_sent()
            return _first(made.seen, asked)

    def warm(self, bucket: int) -> None:
        """Compile and load what passes of up to this many rows need, which takes seconds the first time on a machine."""
        if self.refused:
            return
        with torch.inference_mode():
            cache = self.network.slot_cache(SLOT_BUCKET, multiple=SLOT_BUCKET)
            numbers = range(bucket)
            self._fill(Rows.of([0] * bucket, numbers, numbers, [[(0, bucket)]] * bucket), cache, (), bucket)
            try:
                self._run(cache, bucket, SLOT_BUCKET)
                self._mark_sent()
            except self.kernels.CANNOT as error:
                self._refuse(error)

    def _mark_sent(self) -> None:
        self._sent = self._sent or torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._sent.record()

    def _refuse(self, error: Exception) -> None:
        self.refused = str(error).partition("\n")[0]
        _log.warning("the fast kernels do not run on this GPU, fills go on without them: %s", self.refused)

    def _fill(self, rows: Rows, cache: SlotCache, wanted: Sequence[int], bucket: int) -> None:
        count = rows.count
        if self._sent is not None:
            self._sent.synchronize()
        staging = self.staging.numpy()
        staging[:WANTED, :count] = rows.numbers.numpy()
        staging[WANTED, : len(wanted)] = wanted
        staging[WANTED, len(wanted) :] = 0
        staging[END] = rows.end
        staging[WRITTEN_FROM] = rows.numbers[2].min()
        if count < bucket:
            # Rows that are there for nothing write to the spare slot and see the first one.
            unused = staging[:WANTED, count:bucket]
            unused[:] = 0
            unused[2] = cache.keys.shape[2] - 1
            unused[4] = 1

    def _captured(self, cache: SlotCache, bucket: int, end: int) -> _Graph:
        stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            # Kernels are compiled and loaded outside the capture.
            self._run(cache, bucket, end)
        torch.cuda.current_stream(self.device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            seen = self._run(cache, bucket, end)
        self._pool = graph.pool()
        return _Graph(graph, seen)

    def layers(self) -> Iterator[Layer]:
        yield from self.network.model.layers  # type: ignore[misc]

    def _linear(
        self, name: str, weight: Tensor, scales: Tensor | None, rows: Tensor, out: Tensor, bucket: int, kind: Any
    ) -> None:
        cut = self.tilings[name, bucket]
        outputs, inputs = weight.shape
        if kind is self.kernels.GATED:
            outputs //= 2
        share = inputs // cut.shares
        width, more = GROUPS[bucket]
        ahead = min(cut.ahead, 1 << ((share // 64).bit_length() - 1))
        self.kernels.linear_kernel[(outputs // cut.weight_rows, cut.shares)](
            weight, scales, rows, out, bucket, ROWS, outputs, inputs, share, width, more, cut.weight_rows, cut.inner, kind, ahead,
            cut.stages, cut.late, scales is not None, bool(self.launch_options), num_warps=cut.warps, **self.launch_options,
        )  # fmt: skip

    def _norm(self, partial: Tensor | None, weight: Tensor, bucket: int, last: bool = False) -> None:
        hidden, eps = self.config.hidden_size, self.config.rms_norm_eps
        splits = 0 if partial is None else partial.shape[0]
        block = 1 << (hidden - 1).bit_length()
        self.kernels.norm_kernel[(bucket,)](
            self.buffers.x, self.buffers.partial, weight, self.buffers.numbers[WANTED], self.buffers.normed, eps, ROWS, hidden,
            block, splits, last, bool(self.launch_options), num_warps=min(32, max(1, block // 128)), **self.launch_options,
        )  # fmt: skip

    def _partial(self, name: str, outputs: int, bucket: int) -> Tensor:
        shares = self.tilings[name, bucket].shares
        return self.buffers.partial[: shares * ROWS * outputs].view(shares, ROWS, outputs)

    def _run(self, cache: SlotCache, bucket: int, end: int) -> Seen:
        config, buffers, kernels = self.config, self.buffers, self.kernels
        heads, kv, dim, hidden = (
            config.num_attention_heads,
            config.num_key_value_heads,
            config.head_dim,
            config.hidden_size,
        )
        options, on = self.launch_options, bool(self.launch_options)
        physical = cache.keys.shape[2]
        queries = bucket * (heads // kv)
        tile = min(QUERIES, max(16, 1 << (queries - 1).bit_length()))
        at_once = SLOTS_OF_FEW if queries <= FEW_QUERIES else SLOTS_OF_MANY
        chunk = max(at_once, -(-end // MAX_SHARES // at_once) * at_once)
        shares = -(-end // chunk)
        buffers.numbers.copy_(self.staging, non_blocking=True)
        ids, positions, slots = buffers.numbers[:3]
        spans, ends, written_from = buffers.numbers[3:], buffers.numbers[END], buffers.numbers[WRITTEN_FROM]
        torch.index_select(self.network.model.embed_tokens.weight, 0, ids[:bucket], out=buffers.x[:bucket])
        partial: Tensor | None = None
        cos, sin = self.network.rope_cos, self.network.rope_sin
        for index, layer in enumerate(self.layers()):
            attention, mlp = layer.self_attn, layer.mlp
            assert attention.qkv is not None and attention.qk_norm is not None and mlp.gate_up is not None
            self._norm(partial, layer.input_layernorm.weight, bucket)
            joined = self._partial("qkv", attention.qkv.shape[0], bucket)
            self._linear("qkv", attention.qkv, attention.qkv_scale, buffers.normed, joined, bucket, kernels.PARTIAL)
            keys, values = cache.keys[index], cache.values[index]
            kernels.heads_kernel[(bucket, heads + 2 * kv)](
                joined, attention.qk_norm, cos, sin, positions, slots, buffers.queries, keys, values,
                config.rms_norm_eps, physical, ROWS, heads, kv, dim, joined.shape[0], on, num_warps=1, **options,
            )  # fmt: skip
            kernels.attention_kernel[(kv, shares, -(-queries // tile))](
                buffers.queries, keys, values, spans, ends, written_from, buffers.sums, buffers.peaks, buffers.totals, bucket,
                dim**-0.5, physical, heads, kv, dim, chunk, tile, at_once, ROWS * (heads // kv), SPANS,
                chunk == at_once == SLOTS_OF_FEW, on, num_warps=4, **options,
            )  # fmt: skip
            kernels.combine_kernel[(bucket, heads)](
                buffers.sums, buffers.peaks, buffers.totals, buffers.attended, shares, heads, kv, dim,
                1 << (shares - 1).bit_length(), ROWS * (heads // kv), on, num_warps=1, **options,
            )  # fmt: skip
            partial = self._partial("o", hidden, bucket)
            self._linear(
                "o",
                attention.o_proj.weight,
                attention.o_proj.weight_scale,
                buffers.attended,
                partial,
                bucket,
                kernels.PARTIAL,
            )
            self._norm(partial, layer.post_attention_layernorm.weight, bucket)
            self._linear(
                "gate_up", mlp.gate_up, mlp.gate_up_scale, buffers.normed, buffers.inner, bucket, kernels.GATED
            )
            partial = self._partial("down", hidden, bucket)
            self._linear(
                "down",
                mlp.down_proj.weight,
                mlp.down_proj.weight_scale,
                buffers.inner,
                partial,
                bucket,
                kernels.PARTIAL,
            )
        self._norm(partial, self.network.model.norm.weight, bucket, last=True)
        head = self.network.model.embed_tokens if self.network.lm_head is None else self.network.lm_head
        vocabulary = config.vocab_size
        logits = buffers.normed.new_empty(bucket, vocabulary)
        self._linear("head", head.weight, None, buffers.normed, logits, bucket, kernels.DIRECT)
        chunk = min(VOCABULARY_SHARE, 1 << (vocabulary - 1).bit_length())
        shares = -(-vocabulary // chunk)
        kernels.likeliest_kernel[(bucket, shares)](
            logits, buffers.parts, vocabulary, config.mask_token_id, chunk, on, num_warps=4, **options
        )
        summary = buffers.parts.new_empty(bucket, 4)
        kernels.summary_kernel[(bucket,)](
            buffers.parts, summary, shares, 1 << (shares - 1).bit_length(), on, num_warps=1, **options
        )
        return Seen(logits, summary)


def _first(seen: Seen, count: int) -> Seen:
    return Seen(seen.logits[:count], seen.summary[:count])


def _rounded(slots: int) -> int:
    """The slots that a graph for this many reads: some more, so that few graphs are made."""
    step = max(SLOT_BUCKET, (1 << slots.bit_length()) // 8)
    return -(-slots // step) * step


def fast_network(network: SDAR) -> FastNetwork | str:
    """The fast form of a network that is on a CUDA device, or why there is none."""
    if network.device.type != "cuda":
        return "the network is not on a CUDA device"
    if torch.cuda.get_device_capability(network.device) < (8, 0):
        return "the GPU is older than sm_80"
    if network.dtype not in (torch.bfloat16, torch.float16):
        return f"its weights are {str(network.dtype).removeprefix('torch.')}, not bfloat16"
    if (reason := unsuitable(network.config)) is not None:
        return reason
    joined = network.layers()[0].self_attn.qkv
    if joined is None or type(joined) is not Tensor:
        return "its weights are int4, which torchao multiplies"
    try:
        from dice_lsp.diffusion import kernels
    except ImportError:
        return "triton is not installed"
    options = {"launch_pdl": True} if torch.cuda.get_device_capability(network.device) >= (9, 0) else {}
    return assemble(network, kernels, options)


def unsuitable(config: SDARConfig) -> str | None:
    """Why the kernels cannot take a network of these sizes, if they cannot."""
    dim = config.head_dim
    sizes = (config.hidden_size, config.intermediate_size, config.vocab_size, config.num_attention_heads * dim)
    if any(size % 64 for size in (*sizes, config.num_key_value_heads * dim)):
        return "its sizes are not multiples of 64"
    if dim & (dim - 1) or dim < 16:
        return f"a head of {dim} is no power of two"
    return None


def assemble(network: SDAR, kernels: Any, options: dict[str, Any], capture: bool = True) -> FastNetwork:
    config, device, dtype = network.config, network.device, network.dtype
    heads, kv, dim = config.num_attention_heads, config.num_key_value_heads, config.head_dim
    hidden, inner = config.hidden_size, config.intermediate_size
    limits: dict[str, int] = {}
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        limits = {
            "processors": properties.multi_processor_count,
            "smem_bytes": getattr(properties, "shared_memory_per_block_optin", 101376),
        }
    shapes = {"qkv": ((heads + 2 * kv) * dim, hidden), "o": (hidden, heads * dim), "down": (hidden, inner)}
    tilings = {
        (name, bucket): tiling(name, *sizes, bucket, **limits)
        for bucket in ROW_BUCKETS
        for name, sizes in {**shapes, "gate_up": (inner, hidden), "head": (config.vocab_size, hidden)}.items()
    }
    partial = max(
        tilings[name, bucket].shares * outputs for name, (outputs, _) in shapes.items() for bucket in ROW_BUCKETS
    )
    shared = kv * MAX_SHARES * ROWS * (heads // kv)

    def zeros(*shape: int, of: torch.dtype = dtype) -> Tensor:
        return torch.zeros(shape, device=device, dtype=of)

    buffers = _Buffers(
        numbers=zeros(WRITTEN_FROM + 1, ROWS, of=torch.int32),
        x=zeros(ROWS, hidden),
        normed=zeros(ROWS, hidden),
        queries=zeros(ROWS, heads, dim),
        attended=zeros(ROWS, heads * dim),
        inner=zeros(ROWS, inner),
        partial=zeros(partial * ROWS, of=torch.float32),
        sums=zeros(shared, dim, of=torch.float32),
        peaks=zeros(shared, of=torch.float32),
        totals=zeros(shared, of=torch.float32),
        parts=zeros(ROWS * -(-config.vocab_size // min(VOCABULARY_SHARE, config.vocab_size)) * 5, of=torch.float32),
    )
    staging = torch.zeros(buffers.numbers.shape, dtype=torch.int32, pin_memory=device.type == "cuda")
    return FastNetwork(network, kernels, buffers, staging, tilings, options, capture)
