"""Families of the classes that are kept for judging (`tasks.EXCLUDED_CLASSES`). No training may draw from them."""

from dice_lsp.training.families_folds import ADDED, folded, indented, row_passes, rows_to_one
from dice_lsp.training.families_maps import LINE, PLANE, plane, walk
from dice_lsp.training.maker import Maker
from dice_lsp.training.pair import Fast, Sketch

_ROWS = ["rows", "M", "n_rows", "batch", "B"]
_COLS = ["cols", "N", "n_cols", "dim", "D"]


def matrix_vector(maker: Maker) -> Sketch:
    """A matrix times a vector."""
    rows, cols = maker.size(3, 40, _ROWS), maker.size(3, 40, _COLS)
    a, x = maker.buffer("in", rows, cols, pool=["A", "mat", "W"]), maker.buffer("in", cols, pool=["x", "vec_in", "b"])
    y = maker.buffer("out", rows, pool=["y", "out"])
    return rows_to_one(
        maker, rows, cols, "0.0f", f"{a}[@r * {cols} + @c] * {x}[@c]", ADDED, f"{y}[@r] = @v;", "matvec", f"{a} @ {x}"
    )


def row_norm(maker: Maker) -> Sketch:
    """Euclidean length of each row."""
    rows, cols = maker.size(3, 40, _ROWS), maker.size(3, 40, _COLS)
    x, y = maker.buffer("in", rows, cols, pool=["x", "A", "in"]), maker.buffer("out", rows, pool=["y", "out", "norms"])
    cell = f"{x}[@r * {cols} + @c]"
    return rows_to_one(maker, rows, cols, "0.0f", f"{cell} * {cell}", ADDED, f"{y}[@r] = sqrtf(@v);", "row l2 norm")


def row_argmax(maker: Maker) -> Sketch:
    """Where the largest element of each row is; the first of equal ones."""
    rows, cols = maker.size(3, 40, _ROWS), maker.size(3, 40, _COLS)
    x = maker.buffer("in", rows, cols, pool=["x", "in", "scores"])
    y = maker.buffer("out", rows, type_="int", pool=["out", "y", "idx_out"])
    cpu = (
        f"for (int row = 0; row < {rows}; row++) {{ float best = {x}[row * {cols}]; int at = 0; "
        f"for (int col = 1; col < {cols}; col++) {{ if ({x}[row * {cols} + col] > best) {{ "
        f"best = {x}[row * {cols} + col]; at = col; }} }} {y}[row] = at; }}"
    )
    plain = f"""
int row = blockIdx.x * blockDim.x + threadIdx.x;
if (row < {rows}) {{
    float best = {x}[row * {cols}];
    int at = 0;
    for (int col = 1; col < {cols}; col++) {{
        if ({x}[row * {cols} + col] > best) {{
            best = {x}[row * {cols} + col];
            at = col;
        }}
    }}
    {y}[row] = at;
}}"""
    warps = f"""
int lane = threadIdx.x % 32;
int first = blockIdx.x * blockDim.x + threadIdx.x / 32 * 32;
for (int row = first; row < first + 32 && row < {rows}; row++) {{
    float best = {x}[row * {cols}];
    int at = 0;
    for (int col = lane; col < {cols}; col += 32) {{
        if ({x}[row * {cols} + col] > best) {{
            best = {x}[row * {cols} + col];
            at = col;
        }}
    }}
    for (int offset = 16; offset > 0; offset >>= 1) {{
        float v = __shfl_down_sync(0xffffffff, best, offset);
        int k = __shfl_down_sync(0xffffffff, at, offset);
        if (v > best || (v == best && k < at)) {{
            best = v;
            at = k;
        }}
    }}
    if (lane == 0) {{
        {y}[row] = at;
    }}
}}"""
    return Sketch(
        cpu, f"cdiv({rows}, 128), 128", plain, (Fast("a warp reads one row after another", warps),),
        {rows: "16384 | 70 | 33", cols: "1024 | 65 | 37"}, "row argmax", tolerance="exact",
    )  # fmt: skip


def row_variance(maker: Maker) -> Sketch:
    """Mean square distance of each row's elements from their mean, written beside each element's distance."""
    rows, cols = maker.size(3, 40, _ROWS), maker.size(3, 40, _COLS)
    x = maker.buffer("in", rows, cols, pool=["x", "in", "A"])
    y = maker.buffer("out", rows, cols, pool=["y", "out", "B"])
    cell = f"{x}[@r * {cols} + @c]"
    passes = [
        ("sum", "0.0f", cell, ADDED),
        ("v", "0.0f", f"({cell} - sum / {cols}) * ({cell} - sum / {cols})", ADDED),
    ]
    return row_passes(maker, rows, cols, passes, f"{y}[@r * {cols} + @c] = v / {cols};", "row variance")


def layer_norm(maker: Maker) -> Sketch:
    """Each row moved to mean 0 and scaled to variance 1."""
    rows, cols = maker.size(3, 40, _ROWS), maker.size(3, 40, _COLS)
    x = maker.buffer("in", rows, cols, pool=["x", "in", "inp"])
    w, b = (
        maker.buffer("in", cols, pool=["weight", "scale", "g_in"]),
        maker.buffer("in", cols, pool=["bias", "beta", "b"]),
    )
    y = maker.buffer("out", rows, cols, pool=["y", "out"])
    cell = f"{x}[@r * {cols} + @c]"
    passes = [
        ("sum", "0.0f", cell, ADDED),
        ("v", "0.0f", f"({cell} - sum / {cols}) * ({cell} - sum / {cols})", ADDED),
    ]
    final = f"{y}[@r * {cols} + @c] = ({cell} - sum / {cols}) / sqrtf(v / {cols} + 1e-5f) * {w}[@c] + {b}[@c];"
    return row_passes(maker, rows, cols, passes, final, "layernorm")


def log_sum_exp(maker: Maker) -> Sketch:
    """Logarithm of the sum of exponentials of a row, taken from each element (log softmax)."""
    rows, cols = maker.size(3, 40, _ROWS), maker.size(3, 40, _COLS)
    x = maker.buffer("in", rows, cols, pool=["x", "in", "logits"])
    y = maker.buffer("out", rows, cols, pool=["y", "out", "logp"])
    cell = f"{x}[@r * {cols} + @c]"
    passes = [("m", "-INFINITY", cell, "fmaxf(@a, @b)"), ("sum", "0.0f", f"expf({cell} - m)", ADDED)]
    return row_passes(
        maker, rows, cols, passes, f"{y}[@r * {cols} + @c] = {cell} - m - logf(sum);", "logsumexp",
        f"torch.log_softmax({x}, dim=1)",
    )  # fmt: skip


def prefix_sum(maker: Maker) -> Sketch:
    """Running sum of each row: a thread for each row, or a warp that scans 32 at a time."""
    rows, cols = maker.size(3, 40, _ROWS), maker.size(3, 40, _COLS)
    x = maker.buffer("in", rows, cols, pool=["x", "in", "series"], type_="int")
    y = maker.buffer("out", rows, cols, pool=["y", "out", "sums"], type_="int")
    cpu = (
        f"for (int row = 0; row < {rows}; row++) {{ int acc = 0; for (int col = 0; col < {cols}; col++) {{ "
        f"acc += {x}[row * {cols} + col]; {y}[row * {cols} + col] = acc; }} }}"
    )
    plain = f"""
int row = blockIdx.x * blockDim.x + threadIdx.x;
if (row < {rows}) {{
    int acc = 0;
    for (int col = 0; col < {cols}; col++) {{
        acc += {x}[row * {cols} + col];
        {y}[row * {cols} + col] = acc;
    }}
}}"""
    scan = f"""
int lane = threadIdx.x % 32;
int first = blockIdx.x * blockDim.x + threadIdx.x / 32 * 32;
for (int row = first; row < first + 32 && row < {rows}; row++) {{
    int acc = 0;
    for (int k = 0; k < {cols}; k += 32) {{
        int col = k + lane;
        int v = col < {cols} ? {x}[row * {cols} + col] : 0;
        for (int offset = 1; offset < 32; offset <<= 1) {{
            int got = __shfl_up_sync(0xffffffff, v, offset);
            if (lane >= offset) {{
                v += got;
            }}
        }}
        v += acc;
        if (col < {cols}) {{
            {y}[row * {cols} + col] = v;
        }}
        acc = __shfl_sync(0xffffffff, v, 31);
    }}
}}"""
    return Sketch(
        cpu, f"cdiv({rows}, 128), 128", plain, (Fast("a warp scans one row after another", scan),),
        {rows: "16384 | 70 | 33", cols: "1024 | 65 | 37"}, "prefix_sum", f"{x}.cumsum(dim=1)", tolerance="exact",
    )  # fmt: skip


def gather_rows(maker: Maker) -> Sketch:
    """Rows of a table in the order of a list."""
    n, dim, table = (
        maker.size(3, 40, ["n", "tokens"]),
        maker.size(3, 40, ["dim", "D"]),
        maker.size(9, 40, ["vocab", "V"]),
    )
    ids = maker.buffer("in", n, type_="int", pool=["ids", "indices", "tokens_in"])
    x = maker.buffer("in", table, dim, pool=["table", "weight", "emb"])
    y = maker.buffer("out", n, dim, pool=["out", "y", "dst"])
    sketch = plane(maker, n, dim, f"{y}[@r * {dim} + @c] = {x}[{ids}[@r] * {dim} + @c];", "gather rows")
    return _changed(
        sketch, {n: "8192 | 129 | 33", dim: "1024 | 70 | 65", table: "8192 | 50 | 9"}, {ids: f"int(0, {table})"}
    )


def scatter_permuted(maker: Maker) -> Sketch:
    """Elements to the places that a permutation gives."""
    n = maker.size(20, 200)
    x, p = (
        maker.buffer("in", n, pool=["x", "in", "src"]),
        maker.buffer("in", n, type_="int", pool=["perm", "index_in", "to"]),
    )
    y = maker.buffer("out", n, pool=["out", "y", "dst"])
    launch, plain, fast = walk(maker, n, f"{y}[{p}[@i]] = {x}[@i];")
    cpu = f"for (int i = 0; i < {n}; i++) {{ {y}[{p}[i]] = {x}[i]; }}"
    return Sketch(
        cpu, launch, plain, fast, {n: "4M | 4099 | 37"}, "scatter", inits={p: f"perm({n})"}, tolerance="exact"
    )


def convolve_1d(maker: Maker) -> Sketch:
    """A few taps moved along a line, only where all of them are inside."""
    n, taps = maker.size(40, 200), maker.rng.choice([3, 5, 7])
    x, w = maker.buffer("in", n, pool=["x", "in", "signal"]), maker.buffer("in", str(taps), pool=["taps", "w", "coef"])
    y = maker.buffer("out", f"{n} - {taps - 1}", pool=["y", "out", "dst"])
    statement = (
        f"float acc = 0.0f;\nfor (int k = 0; k < {taps}; k++) {{\n    acc += {w}[k] * {x}[@i + k];\n}}\n{y}[@i] = acc;"
    )
    launch, plain, fast = walk(maker, n, statement, last=f"{n} - {taps - 1}")
    plain = plain.replace(f"({n} - {taps - 1} + gridDim", f"({n} - {taps - 1} + gridDim")
    cpu = f"for (int i = 0; i < {n} - {taps - 1}; i++) {{ {statement.replace('@i', 'i')} }}"
    return Sketch(cpu, launch, plain, fast, {n: LINE}, "conv1d")


def laplacian(maker: Maker) -> Sketch:
    """Four neighbours less four times the middle, zero on the border."""
    rows, cols = maker.size(4, 40, _ROWS), maker.size(4, 40, _COLS)
    x, y = (
        maker.buffer("in", rows, cols, pool=["u", "in", "x"]),
        maker.buffer("out", rows, cols, pool=["out", "lap", "y"]),
    )
    at = f"@r * {cols} + @c"
    value = f"{x}[{at} - 1] + {x}[{at} + 1] + {x}[{at} - {cols}] + {x}[{at} + {cols}] - 4.0f * {x}[{at}]"
    statement = (
        f"if (@r > 0 && @r < {rows} - 1 && @c > 0 && @c < {cols} - 1) {{\n    {y}[{at}] = {value};\n"
        f"}} else {{\n    {y}[{at}] = 0.0f;\n}}"
    )
    return plane(maker, rows, cols, statement, "laplacian")


def max_pool(maker: Maker) -> Sketch:
    """Largest of each two by two cells."""
    rows, cols = maker.size(4, 40, _ROWS), maker.size(4, 40, _COLS)
    x = maker.buffer("in", f"2 * {rows}", f"2 * {cols}", pool=["x", "in", "image"])
    y = maker.buffer("out", rows, cols, pool=["y", "out"])
    at = f"2 * @r * 2 * {cols} + 2 * @c"
    value = f"fmaxf(fmaxf({x}[{at}], {x}[{at} + 1]), fmaxf({x}[{at} + 2 * {cols}], {x}[{at} + 2 * {cols} + 1]))"
    sketch = plane(maker, rows, cols, f"{y}[@r * {cols} + @c] = {value};", "maxpool")
    return _changed(sketch, {rows: "2048 | 65 | 33", cols: "2048 | 35 | 32"}, {})


def softplus(maker: Maker) -> Sketch:
    """A smooth version of the positive part."""
    n = maker.size(20, 200)
    x, y = maker.buffer("in", n, pool=["x", "in", "src"]), maker.buffer("out", n, pool=["y", "out", "dst"])
    statement = f"{y}[@i] = fmaxf({x}[@i], 0.0f) + log1pf(expf(-fabsf({x}[@i])));"
    launch, plain, fast = walk(maker, n, statement)
    cpu = f"for (int i = 0; i < {n}; i++) {{ {statement.replace('@i', 'i')} }}"
    return Sketch(cpu, launch, plain, fast, {n: LINE}, "softplus")


def reverse(maker: Maker) -> Sketch:
    """A line back to front."""
    n = maker.size(20, 200)
    x, y = maker.buffer("in", n, pool=["x", "in", "src"]), maker.buffer("out", n, pool=["y", "out", "dst"])
    launch, plain, fast = walk(maker, n, f"{y}[@i] = {x}[{n} - 1 - @i];")
    cpu = f"for (int i = 0; i < {n}; i++) {{ {y}[i] = {x}[{n} - 1 - i]; }}"
    return Sketch(cpu, launch, plain, fast, {n: LINE}, "reverse", f"torch.flip({x}, [0])", tolerance="exact")


def outer_product(maker: Maker) -> Sketch:
    """Every element of one vector times every element of another."""
    rows, cols = maker.size(3, 40, _ROWS), maker.size(3, 40, _COLS)
    a, b = maker.buffer("in", rows, pool=["a", "u_in", "x"]), maker.buffer("in", cols, pool=["b", "v_in", "y"])
    out = maker.buffer("out", rows, cols, pool=["out", "C"])
    sketch = plane(maker, rows, cols, f"{out}[@r * {cols} + @c] = {a}[@r] * {b}[@c];", "outer")
    return _changed(sketch, {rows: PLANE[0], cols: PLANE[1]}, {})


def sparse_rows(maker: Maker) -> Sketch:
    """A sparse matrix in ELL form times a vector: every row has the same number of entries."""
    rows, width = maker.size(3, 40, ["rows", "n"]), maker.size(2, 9, ["width", "per_row"])
    ids = maker.buffer("in", rows, width, type_="int", pool=["cols", "idx_in", "col_ids"])
    a, x = maker.buffer("in", rows, width, pool=["vals", "A"]), maker.buffer("in", rows, pool=["x", "b"])
    y = maker.buffer("out", rows, pool=["y", "out"])
    at = f"row * {width} + k"
    cpu = (
        f"for (int row = 0; row < {rows}; row++) {{ float acc = 0.0f; for (int k = 0; k < {width}; k++) {{ "
        f"acc += {a}[{at}] * {x}[{ids}[{at}]]; }} {y}[row] = acc; }}"
    )
    plain = f"""
int row = blockIdx.x * blockDim.x + threadIdx.x;
if (row < {rows}) {{
    float acc = 0.0f;
    for (int k = 0; k < {width}; k++) {{
        acc += {a}[{at}] * {x}[{ids}[{at}]];
    }}
    {y}[row] = acc;
}}"""
    warps = f"""
int lane = threadIdx.x % 32;
int first = blockIdx.x * blockDim.x + threadIdx.x / 32 * 32;
for (int row = first; row < first + 32 && row < {rows}; row++) {{
    float acc = 0.0f;
    for (int k = lane; k < {width}; k += 32) {{
        acc += {a}[{at}] * {x}[{ids}[{at}]];
    }}
{indented(folded("acc", ADDED))}
    if (lane == 0) {{
        {y}[row] = acc;
    }}
}}"""
    return Sketch(
        cpu, f"cdiv({rows}, 128), 128", plain, (Fast("a warp reads one row after another", warps),),
        {rows: "16384 | 129 | 33", width: "256 | 40 | 7"}, "spmv", inits={ids: f"int(0, {rows})"},
    )  # fmt: skip


def _changed(sketch: Sketch, sizes: dict[str, str], inits: dict[str, str]) -> Sketch:
    from attrs import evolve

    return evolve(sketch, sizes=sizes, inits=inits)
