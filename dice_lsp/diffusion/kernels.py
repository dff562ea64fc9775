"""Triton kernels of one pass over few rows, where reading the weights once is what takes the time.

A linear layer is computed transposed: the weights are the tall operand of the tensor cores and the rows of the pass the
narrow one, so that 4 rows waste little and 80 cost hardly more. Sums run in one order whatever the number of rows is, and
none goes through atomics: a row's result does not depend on its company, and runs are equal to the bit.

With `DEPENDENT` every kernel begins by letting the next one start (programmatic dependent launch, from sm_90 on), asks for its
weights, and only then waits for the kernel before it.
"""

import triton
import triton.language as tl
from triton.compiler.errors import CompilationError
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait
from triton.runtime.errors import OutOfResources

CANNOT = (OutOfResources, CompilationError)
"""What Triton raises where a kernel does not fit a GPU, or not its own version."""

PARTIAL = tl.constexpr(0)
"""Store fp32 sums of one share of the inner dimension, `[split, row, N]`."""
DIRECT = tl.constexpr(1)
"""Store the result in bf16, `[row, N]`."""
GATED = tl.constexpr(2)
"""Store silu(gate) * up in bf16, where the weight's first half of rows is the gate."""


@triton.jit
def _prefetch(pointers):
    """Ask the L2 for the lines of these addresses."""
    tl.inline_asm_elementwise(
        "{ prefetch.global.L2 [$1]; mov.u32 $0, 0; }", "=r,l", [pointers], dtype=tl.int32, is_pure=False, pack=1
    )


@triton.jit(do_not_specialize=["M"])
def linear_kernel(
    weight, scales, rows, out, M, ROWS: tl.constexpr, N: tl.constexpr, K: tl.constexpr, SHARE: tl.constexpr,
    BM: tl.constexpr, BM_MORE: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, KIND: tl.constexpr,
    AHEAD: tl.constexpr, STAGES: tl.constexpr, LATE: tl.constexpr, SCALED: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """`rows` `[ROWS, K]` times `weight` `[N, K]` (twice N when gated). Programs: (N // BN, K // SHARE).

    With `SCALED` the weight is int8 and each of its rows has a factor in `scales`, which is taken where the sum is whole.
    """
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    split = tl.program_id(1)
    k = split * SHARE + tl.arange(0, BK)
    m = tl.arange(0, BM)
    at = weight + n[:, None].to(tl.int64) * K + k[None, :]
    x_at = rows + m[None, :] * K + k[:, None]
    if DEPENDENT:
        if not LATE:
            gdc_launch_dependents()
        # 64 elements are one line of 128 bytes.
        lines = tl.arange(0, AHEAD)
        first = weight + n[:, None].to(tl.int64) * K + (split * SHARE + lines * 64)[None, :]
        _prefetch(first)
        if KIND == GATED:
            _prefetch(first + N * K)
        gdc_wait()
    acc = tl.zeros([BN, BM], tl.float32)
    if KIND == GATED:
        up = tl.zeros([BN, BM], tl.float32)
    if BM_MORE > 0:
        m_more = BM + tl.arange(0, BM_MORE)
        more_at = rows + m_more[None, :] * K + k[:, None]
        acc_more = tl.zeros([BN, BM_MORE], tl.float32)
        if KIND == GATED:
            up_more = tl.zeros([BN, BM_MORE], tl.float32)
    for _ in tl.range(0, SHARE // BK, num_stages=STAGES):
        # Of int8 every value is one of bf16 too.
        w = tl.load(at, eviction_policy="evict_first").to(rows.dtype.element_ty)
        x = tl.load(x_at)
        acc = tl.dot(w, x, acc)
        if KIND == GATED:
            u = tl.load(at + N * K, eviction_policy="evict_first").to(rows.dtype.element_ty)
            up = tl.dot(u, x, up)
        if BM_MORE > 0:
            x_more = tl.load(more_at)
            acc_more = tl.dot(w, x_more, acc_more)
            if KIND == GATED:
                up_more = tl.dot(u, x_more, up_more)
            more_at += BK
        at += BK
        x_at += BK
    if DEPENDENT:
        if LATE:
            gdc_launch_dependents()
    if SCALED:
        scale = tl.load(scales + n)[:, None]
        acc *= scale
        if KIND == GATED:
            up_scale = tl.load(scales + N + n)[:, None]
            up *= up_scale
        if BM_MORE > 0:
            acc_more *= scale
            if KIND == GATED:
                up_more *= up_scale
    if KIND == GATED:
        # Rounded as the layer's own output would be before they are multiplied.
        gate = acc.to(out.dtype.element_ty).to(tl.float32)
        acc = gate * tl.sigmoid(gate) * up.to(out.dtype.element_ty).to(tl.float32)
        if BM_MORE > 0:
            gate_more = acc_more.to(out.dtype.element_ty).to(tl.float32)
            acc_more = gate_more * tl.sigmoid(gate_more) * up_more.to(out.dtype.element_ty).to(tl.float32)
    target = out + n[:, None]
    if KIND == PARTIAL:
        target += split * ROWS * N
    tl.store(target + m[None, :] * N, acc.to(out.dtype.element_ty), mask=m[None, :] < M)
    if BM_MORE > 0:
        tl.store(target + m_more[None, :] * N, acc_more.to(out.dtype.element_ty), mask=m_more[None, :] < M)


@triton.jit
def norm_kernel(
    x, partial, weight, wanted, out, eps, ROWS: tl.constexpr, H: tl.constexpr, BLOCK: tl.constexpr, SPLITS: tl.constexpr,
    LAST: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Add the shares of a linear layer to the residual `x` `[row, H]`, and norm it into `out`. One program a row.

    The last norm of a pass takes only the rows that are `wanted`, in their order.
    """
    place = tl.program_id(0)
    row = place
    if LAST:
        row = tl.load(wanted + place)
    column = tl.arange(0, BLOCK)
    inside = column < H
    scale = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    if DEPENDENT:
        gdc_launch_dependents()
        gdc_wait()
    value = tl.load(x + row * H + column, mask=inside, other=0.0).to(tl.float32)
    if SPLITS > 0:
        total = tl.zeros([BLOCK], tl.float32)
        for split in tl.static_range(SPLITS):
            total += tl.load(partial + (split * ROWS + row) * H + column, mask=inside, other=0.0)
        # Rounded as the layer's own output would be.
        value = (value + total.to(x.dtype.element_ty).to(tl.float32)).to(x.dtype.element_ty)
        if not LAST:
            tl.store(x + row * H + column, value, mask=inside)
        value = value.to(tl.float32)
    mean = tl.sum(value * value, 0) / H
    normed = value * tl.rsqrt(mean + eps) * scale
    tl.store(out + place * H + column, normed.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _joined(partial, at, STRIDE: tl.constexpr, SPLITS: tl.constexpr, like):
    total = tl.load(partial + at)
    for split in tl.static_range(1, SPLITS):
        total += tl.load(partial + split * STRIDE + at)
    return total.to(like.dtype.element_ty).to(tl.float32)


@triton.jit
def heads_kernel(
    partial, norms, cos, sin, positions, slots, queries, keys, values, eps, all_slots, ROWS: tl.constexpr, H: tl.constexpr,
    KV: tl.constexpr, D: tl.constexpr, SPLITS: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Norm and rotate the heads of each row; keys and values go to the row's slot. Programs: (rows, H + 2 KV)."""
    row, head = tl.program_id(0), tl.program_id(1)
    d = tl.arange(0, D)
    turn = (d + D // 2) % D
    N: tl.constexpr = (H + 2 * KV) * D
    if DEPENDENT:
        gdc_launch_dependents()
    # What the pass was given, and what never changes, need not wait for the kernel before.
    place = tl.load(positions + row) * D + d
    slot = tl.load(slots + row)
    here_cos = tl.load(cos + place).to(tl.float32)
    here_sin = tl.load(sin + place).to(tl.float32)
    rotated = head < H + KV
    norm = tl.load(norms + head * D + d, mask=rotated, other=1.0).to(tl.float32)
    norm_turned = tl.load(norms + head * D + turn, mask=rotated, other=1.0).to(tl.float32)
    if DEPENDENT:
        gdc_wait()
    at = row * N + head * D
    value = _joined(partial, at + d, ROWS * N, SPLITS, queries)
    if rotated:
        other = _joined(partial, at + turn, ROWS * N, SPLITS, queries)
        size = tl.rsqrt(tl.sum(value * value, 0) / D + eps)
        # Rounded where the network rounds, before the rotation.
        value = (value * size * norm).to(queries.dtype.element_ty).to(tl.float32)
        other = (other * size * norm_turned).to(queries.dtype.element_ty).to(tl.float32)
        value = value * here_cos + other * here_sin
    result = value.to(queries.dtype.element_ty)
    if head < H:
        tl.store(queries + (row * H + head) * D + d, result)
    elif head < H + KV:
        tl.store(keys + ((head - H) * all_slots + slot) * D + d, result)
    else:
        tl.store(values + ((head - H - KV) * all_slots + slot) * D + d, result)


@triton.jit
def _visible(
    spans, row, inside, slot, ROWS: tl.constexpr, SPANS: tl.constexpr, BQ: tl.constexpr, BS: tl.constexpr
):  # fmt: skip
    """Which of the slots each row sees: `[BQ, BS]`."""
    visible = tl.zeros([BQ, BS], tl.int1)
    for span in tl.static_range(SPANS):
        first = tl.load(spans + 2 * span * ROWS + row, mask=inside, other=0)
        last = tl.load(spans + (2 * span + 1) * ROWS + row, mask=inside, other=0)
        visible = visible | ((slot[None, :] >= first[:, None]) & (slot[None, :] < last[:, None]))
    return visible


@triton.jit
def _attended(q, k, v, visible, scale, peak, total, acc):
    """One step of a softmax that goes over the slots: with the keys and values of some more of them."""
    scores = tl.where(visible, tl.dot(q, tl.trans(k)) * scale, float("-inf"))
    new = tl.maximum(peak, tl.max(scores, 1))
    safe = tl.where(new == float("-inf"), 0.0, new)
    weights = tl.exp(scores - safe[:, None])
    kept = tl.exp(tl.where(peak == float("-inf"), float("-inf"), peak - safe))
    total = total * kept + tl.sum(weights, 1)
    acc = acc * kept[:, None] + tl.dot(weights.to(v.dtype), v)
    return new, total, acc


@triton.jit(do_not_specialize=["M"])
def attention_kernel(
    queries, keys, values, spans, ends, written_from, sums, peaks, totals, M, scale, all_slots, H: tl.constexpr,
    KV: tl.constexpr, D: tl.constexpr, CHUNK: tl.constexpr, BQ: tl.constexpr, BS: tl.constexpr, QUERIES: tl.constexpr,
    SPANS: tl.constexpr, EARLY: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Attention of all rows to one share of the slots. Programs: (KV heads, shares, tiles of queries).

    A query is a row and one of the G heads that share a key head; `sums` `[KV, shares, QUERIES, D]` and the two others
    hold what `combine_kernel` joins. With `EARLY` a share is one step, and its slots are read before the kernel before has
    ended, unless this pass writes some of them.
    """
    head, share, tile = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    G: tl.constexpr = H // KV
    ROWS: tl.constexpr = QUERIES // G
    query = tile * BQ + tl.arange(0, BQ)
    row = query // G
    inside = row < M
    d = tl.arange(0, D)
    # A graph reads slots up to its bucket's end; shares beyond the pass's own end have nothing to read.
    end = tl.load(ends)
    first = share * CHUNK + tl.arange(0, BS)
    first_at = (head * all_slots + first)[:, None].to(tl.int64) * D + d[None, :]
    at_first = _visible(spans, row, inside, first, ROWS, SPANS, BQ, BS)
    if EARLY:
        # What earlier passes wrote is there already. What this one writes is not, until the kernel before has ended.
        old = share * CHUNK + BS <= tl.load(written_from)
        k = tl.load(keys + first_at, mask=(first < end)[:, None] & old, other=0.0)
        v = tl.load(values + first_at, mask=(first < end)[:, None] & old, other=0.0)
    if DEPENDENT:
        gdc_launch_dependents()
        if D % 64 == 0 and not EARLY:
            # A slot's keys are lines of 64 elements. Those that this pass writes are refreshed in the L2, not read stale.
            line = tl.arange(0, D // 64) * 64
            ahead = (head * all_slots + tl.minimum(first, all_slots - 1))[:, None].to(tl.int64) * D + line[None, :]
            if share * CHUNK < end:
                _prefetch(keys + ahead)
                _prefetch(values + ahead)
        gdc_wait()
    q = tl.load(queries + (row * H + head * G + query % G)[:, None] * D + d[None, :], mask=inside[:, None], other=0.0)
    peak = tl.full([BQ], float("-inf"), tl.float32)
    total = tl.zeros([BQ], tl.float32)
    acc = tl.zeros([BQ, D], tl.float32)
    if share * CHUNK < end:
        if EARLY:
            if not old:
                k = tl.load(keys + first_at, mask=(first < end)[:, None], other=0.0)
                v = tl.load(values + first_at, mask=(first < end)[:, None], other=0.0)
            peak, total, acc = _attended(q, k, v, at_first, scale, peak, total, acc)
        else:
            for start in tl.range(0, CHUNK, BS, num_stages=2):
                slot = share * CHUNK + start + tl.arange(0, BS)
                at = (head * all_slots + slot)[:, None].to(tl.int64) * D + d[None, :]
                k = tl.load(keys + at, mask=(slot < end)[:, None], other=0.0)
                v = tl.load(values + at, mask=(slot < end)[:, None], other=0.0)
                visible = at_first
                if CHUNK > BS:
                    visible = _visible(spans, row, inside, slot, ROWS, SPANS, BQ, BS)
                peak, total, acc = _attended(q, k, v, visible, scale, peak, total, acc)
    at_query = (head * tl.num_programs(1) + share) * QUERIES + query
    tl.store(peaks + at_query, peak, mask=inside)
    tl.store(totals + at_query, total, mask=inside)
    tl.store(sums + at_query[:, None] * D + d[None, :], acc, mask=inside[:, None])


@triton.jit
def combine_kernel(
    sums, peaks, totals, out, shares, H: tl.constexpr, KV: tl.constexpr, D: tl.constexpr,
    BLOCK: tl.constexpr, QUERIES: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Join the shares of each query in their order. Programs: (rows, H); `out` `[row, H * D]`."""
    row, head = tl.program_id(0), tl.program_id(1)
    G: tl.constexpr = H // KV
    share = tl.arange(0, BLOCK)
    inside = share < shares
    d = tl.arange(0, D)
    if DEPENDENT:
        gdc_launch_dependents()
        gdc_wait()
    at = ((head // G) * shares + share) * QUERIES + row * G + head % G
    peak = tl.load(peaks + at, mask=inside, other=float("-inf"))
    weight = tl.exp(peak - tl.max(peak, 0))
    total = tl.sum(weight * tl.load(totals + at, mask=inside, other=0.0), 0)
    values = tl.load(sums + at[:, None] * D + d[None, :], mask=inside[:, None], other=0.0)
    joined = tl.sum(values * weight[:, None], 0) / total
    tl.store(out + (row * H + head) * D + d, joined.to(out.dtype.element_ty))


@triton.jit
def likeliest_kernel(logits, parts, V: tl.constexpr, MASK: tl.constexpr, CHUNK: tl.constexpr, DEPENDENT: tl.constexpr):
    """What one share of the vocabulary says of a row, for `summary_kernel`. Programs: (rows, shares); `parts` `[row, share, 5]`."""
    row, share = tl.program_id(0), tl.program_id(1)
    token = share * CHUNK + tl.arange(0, CHUNK)
    if DEPENDENT:
        gdc_launch_dependents()
        gdc_wait()
    value = tl.load(logits + row.to(tl.int64) * V + token, mask=token < V, other=float("-inf")).to(tl.float32)
    top = tl.max(value, 0)
    weight = tl.exp(value - top)
    # No token is the mask; of equal ones the first is taken.
    allowed = tl.where(token == MASK, float("-inf"), value)
    peak = tl.max(allowed, 0)
    best = tl.min(tl.where(allowed == peak, token, V), 0)
    at = parts + (row * tl.num_programs(1) + share) * 5
    tl.store(at, top)
    tl.store(at + 1, tl.sum(weight, 0))
    tl.store(at + 2, tl.sum(tl.where(token < V, weight * value, 0.0), 0))
    tl.store(at + 3, peak)
    tl.store(at + 4, best.to(tl.float32))


@triton.jit
def summary_kernel(parts, summary, SHARES: tl.constexpr, BLOCK: tl.constexpr, DEPENDENT: tl.constexpr):
    """`rows.summarize` from the shares. One program a row; `summary` `[row, 4]`."""
    row = tl.program_id(0)
    share = tl.arange(0, BLOCK)
    inside = share < SHARES
    if DEPENDENT:
        gdc_launch_dependents()
        gdc_wait()
    at = parts + (row * SHARES + share) * 5
    tops = tl.load(at, mask=inside, other=float("-inf"))
    top = tl.max(tops, 0)
    scale = tl.exp(tops - top)
    total = tl.sum(scale * tl.load(at + 1, mask=inside, other=0.0), 0)
    mean = tl.sum(scale * tl.load(at + 2, mask=inside, other=0.0), 0) / total
    log_total = top + tl.log(total)
    peaks = tl.load(at + 3, mask=inside, other=float("-inf"))
    peak = tl.max(peaks, 0)
    best = tl.min(tl.where(peaks == peak, tl.load(at + 4, mask=inside, other=0.0), float("inf")), 0)
    tl.store(summary + row * 4, best)
    tl.store(summary + row * 4 + 1, tl.exp(peak - log_total))
    tl.store(summary + row * 4 + 2, log_total - mean)
    tl.store(summary + row * 4 + 3, log_total)
