"""Families that fold many elements into few: rows, columns, everything, bins, segments, products of matrices."""

from attrs import evolve

from dice_lsp.training.maker import Maker
from dice_lsp.training.pair import Fast, Sketch

_ROWS = ["rows", "M", "n_rows", "batch", "B"]
_COLS = ["cols", "N", "n_cols", "dim", "D"]
TALL = ("16384 | 70 | 33", "1024 | 65 | 37")
LINE = "8M | 4099 | 37"


def folded(name: str, joined: str, width: int = 16) -> str:
    """Lines that fold `name` over a warp; `joined` is how `@a` and `@b` become one."""
    both = joined.replace("@a", name).replace("@b", f"__shfl_down_sync(0xffffffff, {name}, offset)")
    return f"for (int offset = {width}; offset > 0; offset >>= 1) {{\n    {name} = {both};\n}}"


def shared_fold(name: str, joined: str, block: int, type_: str = "float") -> str:
    """Lines that fold `name` over a block through shared memory; the result is `smem[0]` for every thread."""
    both = joined.replace("@a", "smem[tid]").replace("@b", "smem[tid + offset]")
    return (
        f"__shared__ {type_} smem[{block}];\nsmem[tid] = {name};\n__syncthreads();\n"
        f"for (int offset = {block // 2}; offset > 0; offset >>= 1) {{\n    if (tid < offset) {{\n"
        f"        smem[tid] = {both};\n    }}\n    __syncthreads();\n}}"
    )


def indented(text: str, levels: int = 1) -> str:
    return "\n".join("    " * levels + line for line in text.split("\n"))


def rows_to_one(
    maker: Maker, rows: str, cols: str, start: str, term: str, joined: str, end: str, topic: str,
    torch: str | None = None, type_: str = "float", sizes: tuple[str, str] = TALL,
) -> Sketch:  # fmt: skip
    """Each row to one value. `term` speaks of `@r` and `@c`, `joined` of `@a` and `@b`, `end` of `@r` and `@v`.

    Either one thread walks a row and its neighbours walk other rows far away, or a warp or block shares a row.
    """

    def at(text: str, row: str, col: str) -> str:
        return text.replace("@r", row).replace("@c", col)

    def update(name: str, row: str, col: str) -> str:
        return f"{name} = {joined.replace('@a', name).replace('@b', at(term, row, col))};"

    cpu = (
        f"for (int row = 0; row < {rows}; row++) {{ {type_} acc = {start}; for (int col = 0; col < {cols}; col++) {{ "
        f"{update('acc', 'row', 'col')} }} {end.replace('@r', 'row').replace('@v', 'acc')} }}"
    )
    kind = maker.rng.choice(["thread", "thread", "block"])
    if kind == "thread":
        block = maker.rng.choice([128, 256])
        plain = f"""
int row = blockIdx.x * blockDim.x + threadIdx.x;
if (row < {rows}) {{
    {type_} acc = {start};
    for (int col = 0; col < {cols}; col++) {{
        {update("acc", "row", "col")}
    }}
    {end.replace("@r", "row").replace("@v", "acc")}
}}"""
        warps = f"""
int lane = threadIdx.x % 32;
int first = blockIdx.x * blockDim.x + threadIdx.x / 32 * 32;
for (int row = first; row < first + 32 && row < {rows}; row++) {{
    {type_} acc = {start};
    for (int col = lane; col < {cols}; col += 32) {{
        {update("acc", "row", "col")}
    }}
{indented(folded("acc", joined))}
    if (lane == 0) {{
        {end.replace("@r", "row").replace("@v", "acc")}
    }}
}}"""
        return Sketch(
            cpu, f"cdiv({rows}, {block}), {block}", plain, (Fast("a warp reads one row after another", warps),),
            {rows: sizes[0], cols: sizes[1]}, topic, torch,
        )  # fmt: skip
    block = maker.rng.choice([128, 256])
    plain = f"""
int row = blockIdx.x;
if (threadIdx.x == 0) {{
    {type_} acc = {start};
    for (int col = 0; col < {cols}; col++) {{
        {update("acc", "row", "col")}
    }}
    {end.replace("@r", "row").replace("@v", "acc")}
}}"""
    shares = f"""
int row = blockIdx.x;
int tid = threadIdx.x;
{type_} acc = {start};
for (int col = tid; col < {cols}; col += blockDim.x) {{
    {update("acc", "row", "col")}
}}"""
    tree = f"""{shares}
{shared_fold("acc", joined, block, type_)}
if (tid == 0) {{
    {end.replace("@r", "row").replace("@v", "smem[0]")}
}}"""
    shuffles = f"""{shares}
{folded("acc", joined)}
__shared__ {type_} smem[32];
if (tid % 32 == 0) {{
    smem[tid / 32] = acc;
}}
__syncthreads();
if (tid == 0) {{
    for (int k = 1; k < blockDim.x / 32; k++) {{
        acc = {joined.replace("@a", "acc").replace("@b", "smem[k]")};
    }}
    {end.replace("@r", "row").replace("@v", "acc")}
}}"""
    return Sketch(
        cpu, f"{rows}, {block}", plain,
        (Fast("a block shares a row, tree in shared memory", tree), Fast("a block shares a row, shuffles", shuffles)),
        {rows: sizes[0], cols: sizes[1]}, topic, torch,
    )  # fmt: skip


ADDED = "@a + @b"


def row_sum(maker: Maker) -> Sketch:
    """Sum of each row."""
    rows, cols = maker.size(3, 40, _ROWS), maker.size(3, 40, _COLS)
    x, y = maker.buffer("in", rows, cols, pool=["x", "A", "in"]), maker.buffer("out", rows, pool=["y", "out", "sums"])
    return rows_to_one(
        maker, rows, cols, "0.0f", f"{x}[@r * {cols} + @c]", ADDED, f"{y}[@r] = @v;", "row sum", f"{x}.sum(dim=1)"
    )


def row_mean(maker: Maker) -> Sketch:
    """Mean of each row."""
    rows, cols = maker.size(3, 40, _ROWS), maker.size(3, 40, _COLS)
    x, y = maker.buffer("in", rows, cols, pool=["x", "A", "in"]), maker.buffer("out", rows, pool=["y", "out", "means"])
    return rows_to_one(
        maker, rows, cols, "0.0f", f"{x}[@r * {cols} + @c]", ADDED, f"{y}[@r] = @v / {cols};", "row mean",
        f"{x}.mean(dim=1)",
    )  # fmt: skip


def row_extreme(maker: Maker) -> Sketch:
    """Largest or smallest of each row."""
    rows, cols = maker.size(3, 40, _ROWS), maker.size(3, 40, _COLS)
    x, y = maker.buffer("in", rows, cols, pool=["x", "A", "in"]), maker.buffer("out", rows, pool=["y", "out", "peaks"])
    kind, start = maker.rng.choice([("max", "-INFINITY"), ("min", "INFINITY")])
    return rows_to_one(
        maker, rows, cols, start, f"{x}[@r * {cols} + @c]", f"f{kind}f(@a, @b)", f"{y}[@r] = @v;", f"row {kind}",
        f"{x}.a{kind}(dim=1)",
    )  # fmt: skip


def row_formula(maker: Maker) -> Sketch:
    """Sum along each row of a function of the element."""
    rows, cols = maker.size(3, 40, _ROWS), maker.size(3, 40, _COLS)
    x, y = maker.buffer("in", rows, cols, pool=["x", "A", "in"]), maker.buffer("out", rows, pool=["y", "out", "res"])
    cell = f"{x}[@r * {cols} + @c]"
    form = maker.rng.choice(["fabsf(@x)", "tanhf(@x)", "1.0f / (1.0f + expf(-@x))", "fmaxf(@x, 0.0f)", "cosf(@x)"])
    return rows_to_one(maker, rows, cols, "0.0f", form.replace("@x", cell), ADDED, f"{y}[@r] = @v;", "row reduce")


def row_count(maker: Maker) -> Sketch:
    """How many of each row are above a threshold."""
    rows, cols = maker.size(3, 40, _ROWS), maker.size(3, 40, _COLS)
    x = maker.buffer("in", rows, cols, pool=["x", "A", "in"])
    y = maker.buffer("out", rows, type_="int", pool=["y", "out", "counts"])
    limit = maker.scalar(pool=["thr", "limit", "cut"])
    term = f"({x}[@r * {cols} + @c] {maker.rng.choice(['>', '<'])} {limit} ? 1 : 0)"
    return rows_to_one(maker, rows, cols, "0", term, ADDED, f"{y}[@r] = @v;", "row count", type_="int")


def batched_row_sum(maker: Maker) -> Sketch:
    """Sums over the last of three dimensions, weighted by a vector."""
    batch, rows, cols = (maker.size(3, 20, pool) for pool in (["batch", "B", "heads"], ["rows", "M", "seq"], _COLS))
    x = maker.buffer("in", batch, rows, cols, pool=["x", "A", "in"])
    y = maker.buffer("out", batch, rows, pool=["y", "out", "res"])
    sketch = rows_to_one(
        maker, f"{batch} * {rows}", cols, "0.0f", f"{x}[@r * {cols} + @c]", ADDED, f"{y}[@r] = @v;", "reduce sum",
        f"{x}.sum(dim=2)",
    )  # fmt: skip
    return evolve(sketch, sizes={batch: "16 | 3", rows: "1024 | 25 | 11", cols: TALL[1]})


def column_sum(maker: Maker) -> Sketch:
    """Sum of each column: one thread a column, or a slice of rows for each of several, joined in shared memory."""
    rows, cols = maker.size(3, 40, _ROWS), maker.size(3, 40, _COLS)
    x, y = maker.buffer("in", rows, cols, pool=["x", "A", "in"]), maker.buffer("out", cols, pool=["y", "out", "sums"])
    kind, start, joined = maker.rng.choice(
        [("sum", "0.0f", ADDED), ("sum", "0.0f", ADDED), ("amax", "-INFINITY", "fmaxf(@a, @b)")]
    )

    def join(a: str, b: str) -> str:
        return f"{a} = {joined.replace('@a', a).replace('@b', b)};"

    cpu = (
        f"for (int col = 0; col < {cols}; col++) {{ float acc = {start}; for (int row = 0; row < {rows}; row++) {{ "
        f"{join('acc', f'{x}[row * {cols} + col]')} }} {y}[col] = acc; }}"
    )
    plain = f"""
int col = blockIdx.x * 32 + threadIdx.x;
if (threadIdx.y == 0 && col < {cols}) {{
    float acc = {start};
    for (int row = 0; row < {rows}; row++) {{
        {join("acc", f"{x}[row * {cols} + col]")}
    }}
    {y}[col] = acc;
}}"""
    shared = f"""
__shared__ float smem[16][33];
int col = blockIdx.x * 32 + threadIdx.x;
float acc = {start};
if (col < {cols}) {{
    for (int row = threadIdx.y; row < {rows}; row += 16) {{
        {join("acc", f"{x}[row * {cols} + col]")}
    }}
}}
smem[threadIdx.y][threadIdx.x] = acc;
__syncthreads();
if (threadIdx.y == 0 && col < {cols}) {{
    for (int k = 1; k < 16; k++) {{
        {join("acc", "smem[k][threadIdx.x]")}
    }}
    {y}[col] = acc;
}}"""
    return Sketch(
        cpu, f"cdiv({cols}, 32), {{32, 16}}", plain, (Fast("sixteen slices of rows, joined in shared memory", shared),),
        {rows: "4096 | 70 | 33", cols: "4096 | 65 | 37"}, "column reduce", f"{x}.{kind}(dim=0)",
    )  # fmt: skip


def everything(
    maker: Maker, n: str, out: str, term: str, topic: str, type_: str = "float", joined: str = ADDED,
    atomic: str = "atomicAdd", start: str = "0.0f",
) -> Sketch:  # fmt: skip
    """All elements to one: an atomic for each, or one for each block after a fold. `term` speaks of `@i`."""
    grid, block = maker.rng.choice([512, 1024]), maker.rng.choice([128, 256])

    def join(name: str) -> str:
        return f"{name} = {joined.replace('@a', name).replace('@b', term.replace('@i', 'i'))};"

    begun = f"{out}[0]"
    ending = f"{begun} = {joined.replace('@a', begun).replace('@b', 'acc')};"
    cpu = f"{type_} acc = {start}; for (int i = 0; i < {n}; i++) {{ {join('acc')} }} {ending}"
    walk = f"for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < {n}; i += gridDim.x * blockDim.x) {{"
    plain = f"""
{walk}
    {atomic}({out}, {term.replace("@i", "i")});
}}"""
    tree = f"""
int tid = threadIdx.x;
{type_} acc = {start};
{walk}
    {join("acc")}
}}
{shared_fold("acc", joined, block, type_)}
if (tid == 0) {{
    {atomic}({out}, smem[0]);
}}"""
    shuffles = f"""
{type_} acc = {start};
{walk}
    {join("acc")}
}}
{folded("acc", joined)}
if (threadIdx.x % 32 == 0) {{
    {atomic}({out}, acc);
}}"""
    return Sketch(
        cpu, f"{grid}, {block}", plain,
        (Fast("one atomic a block, tree in shared memory", tree), Fast("one atomic a warp, shuffles", shuffles)),
        {n: "4M | 4099 | 37"}, topic, inits={out: "zeros"},
    )  # fmt: skip


def full_sum(maker: Maker) -> Sketch:
    """Sum of a function of all elements."""
    n = maker.size(20, 200)
    x = maker.buffer("in", n, pool=["x", "in", "data", "values"])
    out = maker.buffer("io", "1", pool=["out", "result", "res"])
    form = maker.rng.choice(["@x", "@x", "fabsf(@x)", "@x * @x", "fmaxf(@x, 0.0f)"])
    return everything(maker, n, out, form.replace("@x", f"{x}[@i]"), "sum reduce")


def dot(maker: Maker) -> Sketch:
    """Dot product."""
    n = maker.size(20, 200)
    x, y = maker.buffer("in", n, pool=["x", "A", "in1", "a"]), maker.buffer("in", n, pool=["y", "B", "in2", "b"])
    out = maker.buffer("io", "1", pool=["out", "result", "res"])
    return everything(maker, n, out, f"{x}[@i] * {y}[@i]", "dot product")


def full_extreme(maker: Maker) -> Sketch:
    """Largest or smallest of all whole numbers."""
    n = maker.size(20, 200)
    x = maker.buffer("in", n, type_="int", pool=["x", "in", "data", "keys"])
    out = maker.buffer("io", "1", type_="int", pool=["out", "result", "res"])
    kind, start = maker.rng.choice([("Max", "-2147483647"), ("Min", "2147483647")])
    return everything(
        maker, n, out, f"{x}[@i]", f"{kind.lower()} reduce", "int", f"{kind.lower()}(@a, @b)", f"atomic{kind}", start
    )


def count_if(maker: Maker) -> Sketch:
    """How many of all elements lie between two bounds."""
    n = maker.size(20, 200)
    x = maker.buffer("in", n, pool=["x", "in", "data", "values"])
    low = maker.scalar(pool=["low", "thr", "cut"])
    out = maker.buffer("io", "1", type_="int", pool=["out", "result", "count"])
    return everything(maker, n, out, f"({x}[@i] > {low} ? 1 : 0)", "count", "int", start="0")


def block_sums(maker: Maker) -> Sketch:
    """Each piece of a fixed length to its sum, one block a piece."""
    n, block = maker.size(20, 200), maker.rng.choice([128, 256])
    x = maker.buffer("in", n, pool=["x", "in", "data"])
    y = maker.buffer("out", f"cdiv({n}, {4 * block})", pool=["out", "partials", "sums"])
    piece = 4 * block
    cpu = (
        f"for (int k = 0; k * {piece} < {n}; k++) {{ float acc = 0.0f; "
        f"for (int i = k * {piece}; i < {n} && i < (k + 1) * {piece}; i++) {{ acc += {x}[i]; }} {y}[k] = acc; }}"
    )
    plain = f"""
int first = blockIdx.x * {piece};
if (threadIdx.x == 0) {{
    float acc = 0.0f;
    for (int i = first; i < {n} && i < first + {piece}; i++) {{
        acc += {x}[i];
    }}
    {y}[blockIdx.x] = acc;
}}"""
    tree = f"""
int tid = threadIdx.x;
int first = blockIdx.x * {piece};
float acc = 0.0f;
for (int i = first + tid; i < {n} && i < first + {piece}; i += {block}) {{
    acc += {x}[i];
}}
{shared_fold("acc", ADDED, block)}
if (tid == 0) {{
    {y}[blockIdx.x] = smem[0];
}}"""
    return Sketch(
        cpu, f"cdiv({n}, {piece}), {block}", plain, (Fast("a block shares a piece, tree in shared memory", tree),),
        {n: LINE}, "block sum",
    )  # fmt: skip


def _into_bins(maker: Maker, topic: str, type_: str, term: str, extra: str = "") -> Sketch:
    n, bins = maker.size(20, 200), str(maker.rng.choice([64, 128, 256]))
    keys = maker.buffer("in", n, type_="int", pool=["keys", "labels", "bins_in", "idx_in"])
    value = maker.buffer("in", n, pool=["vals", "x", "weight_in"]) if extra else ""
    h = maker.buffer("io", bins, type_=type_, pool=["hist", "out", "bins", "counts"])
    add = term.replace("@v", f"{value}[i]")
    block = maker.rng.choice([128, 256])
    cpu = f"for (int i = 0; i < {n}; i++) {{ {h}[{keys}[i]] += {add}; }}"
    walk = f"for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < {n}; i += gridDim.x * blockDim.x) {{"
    zero = "0" if type_ == "int" else "0.0f"
    plain = f"""
{walk}
    atomicAdd(&{h}[{keys}[i]], {add});
}}"""
    private = f"""
__shared__ {type_} smem[{bins}];
for (int k = threadIdx.x; k < {bins}; k += blockDim.x) {{
    smem[k] = {zero};
}}
__syncthreads();
{walk}
    atomicAdd(&smem[{keys}[i]], {add});
}}
__syncthreads();
for (int k = threadIdx.x; k < {bins}; k += blockDim.x) {{
    atomicAdd(&{h}[k], smem[k]);
}}"""
    return Sketch(
        cpu, f"{maker.rng.choice([264, 512])}, {block}", plain, (Fast("bins of each block in shared memory", private),),
        {n: "4M | 4099 | 37"}, topic, inits={keys: f"int(0, {bins})", h: "zeros"},
    )  # fmt: skip


def histogram(maker: Maker) -> Sketch:
    """Counts of keys."""
    return _into_bins(maker, "histogram", "int", "1")


def sum_by_key(maker: Maker) -> Sketch:
    """Values added up by their keys."""
    return _into_bins(maker, "bin sum", "float", "@v", "value")


def segmented_sum(maker: Maker) -> Sketch:
    """Sums over pieces of a line that each have a beginning and a length: a thread for each piece, or a warp."""
    n, total = maker.size(8, 30, ["n", "segments", "groups"]), maker.size(20, 90, ["total", "nnz", "length"])
    starts = maker.buffer("in", n, type_="int", pool=["starts", "offsets", "ptr"])
    lengths = maker.buffer("in", n, type_="int", pool=["lengths", "sizes", "counts"])
    x = maker.buffer("in", total, pool=["vals", "x", "data"])
    y = maker.buffer("out", n, pool=["out", "y", "sums"])
    cpu = (
        f"for (int i = 0; i < {n}; i++) {{ float acc = 0.0f; "
        f"for (int k = 0; k < {lengths}[i]; k++) {{ acc += {x}[{starts}[i] + k]; }} {y}[i] = acc; }}"
    )
    plain = f"""
int i = blockIdx.x * blockDim.x + threadIdx.x;
if (i < {n}) {{
    float acc = 0.0f;
    for (int k = 0; k < {lengths}[i]; k++) {{
        acc += {x}[{starts}[i] + k];
    }}
    {y}[i] = acc;
}}"""
    warps = f"""
int lane = threadIdx.x % 32;
int first = blockIdx.x * blockDim.x + threadIdx.x / 32 * 32;
for (int i = first; i < first + 32 && i < {n}; i++) {{
    float acc = 0.0f;
    for (int k = lane; k < {lengths}[i]; k += 32) {{
        acc += {x}[{starts}[i] + k];
    }}
{indented(folded("acc", ADDED))}
    if (lane == 0) {{
        {y}[i] = acc;
    }}
}}"""
    return Sketch(
        cpu, f"cdiv({n}, 128), 128", plain, (Fast("a warp sums one piece after another", warps),),
        {n: "16384 | 129 | 33", total: "4M | 1200 | 500"}, "segment sum",
        inits={starts: f"int(0, {total} - 400)", lengths: "int(0, 401)"},
    )  # fmt: skip


def row_passes(
    maker: Maker, rows: str, cols: str, passes: list[tuple[str, str, str, str]], final: str, topic: str,
    torch: str | None = None,
) -> Sketch:  # fmt: skip
    """Folds over a row, each `(name, start, term, joined)`, then `final` for each element, with `@r` and `@c`.

    Either the first thread of each block does the row alone, or the block shares it.
    """
    block = maker.rng.choice([128, 256])

    def at(text: str, row: str, col: str) -> str:
        return text.replace("@r", row).replace("@c", col)

    def loop(head: str, row: str, update: str) -> str:
        return f"{head} {{\n    {at(update, row, 'col')}\n}}"

    alone, shared = "", ""
    for number, (name, start, term, joined) in enumerate(passes):
        update = f"{name} = {joined.replace('@a', name).replace('@b', term)};"
        alone += f"float {name} = {start};\n" + loop(f"for (int col = 0; col < {cols}; col++)", "row", update) + "\n"
        fold = shared_fold(name, joined, block)
        if number:
            fold = fold.partition("\n")[2]
        shared += (
            f"float {name} = {start};\n"
            + loop(f"for (int col = tid; col < {cols}; col += blockDim.x)", "row", update)
            + f"\n{fold}\n{name} = smem[0];\n"
            + ("__syncthreads();\n" if number + 1 < len(passes) else "")
        )
    alone += loop(f"for (int col = 0; col < {cols}; col++)", "row", final)
    shared += loop(f"for (int col = tid; col < {cols}; col += blockDim.x)", "row", final)
    plain = f"\nint row = blockIdx.x;\nif (threadIdx.x == 0) {{\n{indented(alone)}\n}}"
    fast = f"\nint row = blockIdx.x;\nint tid = threadIdx.x;\n{shared}"
    cpu = f"for (int row = 0; row < {rows}; row++) {{ {' '.join(alone.split())} }}"
    return Sketch(
        cpu, f"{rows}, {block}", plain, (Fast("a block shares a row", fast),),
        {rows: "4096 | 65 | 33", cols: "1024 | 70 | 37"}, topic, torch,
    )  # fmt: skip


def softmax(maker: Maker) -> Sketch:
    """Softmax of each row."""
    rows, cols = maker.size(3, 40, _ROWS), maker.size(3, 40, _COLS)
    x = maker.buffer("in", rows, cols, pool=["x", "in", "logits", "scores"])
    y = maker.buffer("out", rows, cols, pool=["y", "out", "probs"])
    cell = f"{x}[@r * {cols} + @c]"
    passes = [("m", "-INFINITY", cell, "fmaxf(@a, @b)"), ("sum", "0.0f", f"expf({cell} - m)", ADDED)]
    return row_passes(
        maker, rows, cols, passes, f"{y}[@r * {cols} + @c] = expf({cell} - m) / sum;", "row softmax",
        f"torch.softmax({x}, dim=1)",
    )  # fmt: skip


def row_share(maker: Maker) -> Sketch:
    """Each element's share of its row's sum of magnitudes."""
    rows, cols = maker.size(3, 40, _ROWS), maker.size(3, 40, _COLS)
    x = maker.buffer("in", rows, cols, pool=["x", "in", "A"])
    y = maker.buffer("out", rows, cols, pool=["y", "out", "B"])
    cell = f"{x}[@r * {cols} + @c]"
    return row_passes(
        maker, rows, cols, [("sum", "0.0f", f"fabsf({cell})", ADDED)],
        f"{y}[@r * {cols} + @c] = {cell} / (sum + 1.0f);", "row normalize",
    )  # fmt: skip


def row_to_unit(maker: Maker) -> Sketch:
    """Each row moved and scaled so that it lies between 0 and 1."""
    rows, cols = maker.size(3, 40, _ROWS), maker.size(3, 40, _COLS)
    x = maker.buffer("in", rows, cols, pool=["x", "in", "A"])
    y = maker.buffer("out", rows, cols, pool=["y", "out", "B"])
    cell = f"{x}[@r * {cols} + @c]"
    passes = [("lo", "INFINITY", cell, "fminf(@a, @b)"), ("hi", "-INFINITY", cell, "fmaxf(@a, @b)")]
    return row_passes(
        maker, rows, cols, passes, f"{y}[@r * {cols} + @c] = ({cell} - lo) / (hi - lo + 1.0f);", "row scale min max"
    )


def row_centre(maker: Maker) -> Sketch:
    """Each row less its mean."""
    rows, cols = maker.size(3, 40, _ROWS), maker.size(3, 40, _COLS)
    x = maker.buffer("in", rows, cols, pool=["x", "in", "A"])
    y = maker.buffer("out", rows, cols, pool=["y", "out", "B"])
    cell = f"{x}[@r * {cols} + @c]"
    return row_passes(
        maker, rows, cols, [("sum", "0.0f", cell, ADDED)], f"{y}[@r * {cols} + @c] = {cell} - sum / {cols};",
        "row mean sub", f"{x} - {x}.mean(dim=1, keepdim=True)",
    )  # fmt: skip


def running_max(maker: Maker) -> Sketch:
    """The largest so far along each row: a thread for each row, or a warp that scans 32 at a time."""
    rows, cols = maker.size(3, 40, _ROWS), maker.size(3, 40, _COLS)
    x = maker.buffer("in", rows, cols, pool=["x", "in", "series"])
    y = maker.buffer("out", rows, cols, pool=["y", "out", "peaks"])
    kind, start = maker.rng.choice([("fmaxf", "-INFINITY"), ("fminf", "INFINITY")])
    cpu = (
        f"for (int row = 0; row < {rows}; row++) {{ float acc = {start}; for (int col = 0; col < {cols}; col++) {{ "
        f"acc = {kind}(acc, {x}[row * {cols} + col]); {y}[row * {cols} + col] = acc; }} }}"
    )
    plain = f"""
int row = blockIdx.x * blockDim.x + threadIdx.x;
if (row < {rows}) {{
    float acc = {start};
    for (int col = 0; col < {cols}; col++) {{
        acc = {kind}(acc, {x}[row * {cols} + col]);
        {y}[row * {cols} + col] = acc;
    }}
}}"""
    scan = f"""
int lane = threadIdx.x % 32;
int first = blockIdx.x * blockDim.x + threadIdx.x / 32 * 32;
for (int row = first; row < first + 32 && row < {rows}; row++) {{
    float acc = {start};
    for (int k = 0; k < {cols}; k += 32) {{
        int col = k + lane;
        float v = col < {cols} ? {x}[row * {cols} + col] : {start};
        for (int offset = 1; offset < 32; offset <<= 1) {{
            float got = __shfl_up_sync(0xffffffff, v, offset);
            if (lane >= offset) {{
                v = {kind}(v, got);
            }}
        }}
        v = {kind}(v, acc);
        if (col < {cols}) {{
            {y}[row * {cols} + col] = v;
        }}
        acc = __shfl_sync(0xffffffff, v, 31);
    }}
}}"""
    return Sketch(
        cpu, f"cdiv({rows}, 128), 128", plain, (Fast("a warp scans one row after another", scan),),
        {rows: TALL[0], cols: TALL[1]}, "running max", tolerance="exact",
    )  # fmt: skip


def _product(maker: Maker, transposed: bool, batched: bool) -> Sketch:
    """A product of matrices: plain with rows along `threadIdx.x`, fast with columns along it, fastest by tiles."""
    m, n, k = (maker.size(4, 20, [a, b]) for a, b in (("M", "rows"), ("N", "cols"), ("K", "inner")))
    batch = maker.size(2, 5, ["batch", "heads"]) if batched else ""
    leading = (batch,) if batched else ()
    a = maker.buffer("in", *leading, m, k, pool=["A", "a", "X", "Q"])
    b = maker.buffer("in", *leading, *((n, k) if transposed else (k, n)), pool=["B", "b", "W", "Y"])
    c = maker.buffer("out", *leading, m, n, pool=["C", "c", "out", "P"])
    z = f"blockIdx.z * {m} * {k} + " if batched else ""
    zb = f"blockIdx.z * {k} * {n} + " if batched else ""
    zc = f"blockIdx.z * {m} * {n} + " if batched else ""

    def cell(row: str, inner: str, col: str) -> str:
        where = f"{col} * {k} + {inner}" if transposed else f"{inner} * {n} + {col}"
        return f"{b}[{zb}{where}]"

    sums = f"""
    float acc = 0.0f;
    for (int p = 0; p < {k}; p++) {{
        acc += {a}[{z}row * {k} + p] * {cell("row", "p", "col")};
    }}
    {c}[{zc}row * {n} + col] = acc;"""
    body = f"""
int @X = blockIdx.x * 16 + threadIdx.@x;
int @Y = blockIdx.y * 16 + threadIdx.@y;
if (row < {m} && col < {n}) {{{sums}
}}"""

    def turned(x: str, y: str) -> str:
        return body.replace("@X", "col").replace("@Y", "row").replace("@x", x).replace("@y", y)

    # Rows of B are read along the columns of C, so neighbours must have neighbouring columns; for B transposed neither
    # way is in order and only the tile helps.
    load_b = (
        f"Bs[threadIdx.x][threadIdx.y] = q + threadIdx.x < {k} && blockIdx.x * 16 + threadIdx.y < {n} ? "
        f"{cell('row', '(q + threadIdx.x)', '(blockIdx.x * 16 + threadIdx.y)')} : 0.0f;"
        if transposed
        else f"Bs[threadIdx.y][threadIdx.x] = q + threadIdx.y < {k} && col < {n} ? "
        f"{cell('row', '(q + threadIdx.y)', 'col')} : 0.0f;"
    )
    tiled = f"""
__shared__ float As[16][17];
__shared__ float Bs[16][17];
int col = blockIdx.x * 16 + threadIdx.x;
int row = blockIdx.y * 16 + threadIdx.y;
float acc = 0.0f;
for (int q = 0; q < {k}; q += 16) {{
    As[threadIdx.y][threadIdx.x] = row < {m} && q + threadIdx.x < {k} ? {a}[{z}row * {k} + q + threadIdx.x] : 0.0f;
    {load_b}
    __syncthreads();
    for (int p = 0; p < 16; p++) {{
        acc += As[threadIdx.y][p] * Bs[p][threadIdx.x];
    }}
    __syncthreads();
}}
if (row < {m} && col < {n}) {{
    {c}[{zc}row * {n} + col] = acc;
}}"""
    cpu = (
        f"for (int row = 0; row < {m}; row++) {{ for (int col = 0; col < {n}; col++) {{ {' '.join(sums.split())} }} }}"
    )
    if batched:
        cpu = f"for (int z = 0; z < {batch}; z++) {{ {cpu.replace('blockIdx.z', 'z')} }}"
    grid = f"cdiv({n}, 16), cdiv({m}, 16)" + (f", {batch}" if batched else "")
    fast = [Fast("tiles of both in shared memory", tiled)]
    if not transposed:
        fast.insert(0, Fast("columns along threadIdx.x", turned("x", "y")))
    right = f"{b}.t()" if transposed and not batched else b
    sizes = {m: "512 | 33 | 17", n: "512 | 35 | 19", k: "512 | 37 | 21"}
    if batched:
        sizes = {m: "256 | 33 | 17", n: "256 | 35 | 19", k: "256 | 37 | 21", batch: "8 | 2"}
    return Sketch(
        cpu, f"{{{grid}}}, {{16, 16}}", turned("y", "x"), tuple(fast), sizes, "matmul",
        None if batched else f"{a} @ {right}",
    )  # fmt: skip


def gemm(maker: Maker) -> Sketch:
    """A product of two matrices."""
    return _product(maker, False, False)


def gemm_transposed(maker: Maker) -> Sketch:
    """A product with the transpose of the second matrix."""
    return _product(maker, True, False)


def gemm_batched(maker: Maker) -> Sketch:
    """One product for each of a batch."""
    return _product(maker, False, True)
