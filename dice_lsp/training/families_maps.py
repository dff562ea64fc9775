"""Families in which each output is on its own: maps, stencils, transpositions. Slow is how they walk through memory."""

from dice_lsp.training.maker import Maker
from dice_lsp.training.pair import Fast, Sketch

_ROWS = ["rows", "M", "height", "h", "n_rows", "H"]
_COLS = ["cols", "N", "width", "w", "n_cols", "W"]
LINE = "8M | 4099 | 37"
PLANE = ("4096 | 129 | 33", "4096 | 70 | 65")


def walk(maker: Maker, n: str, statement: str, first: str = "0", last: str = "") -> tuple[str, str, tuple[Fast, ...]]:
    """A statement of `@i` over a line: `(launch, plain, fast)`.

    Plain is a piece of the line for each thread, whose neighbours then read far apart; fast is neighbours side by side.
    """
    last = last or n
    grid, block = maker.rng.choice([1024, 2048, 4096]), maker.rng.choice([128, 256, 512])
    count = last if first == "0" else f"({last} - {first})"
    start = "" if first == "0" else f" + {first}"
    lines = statement.replace("@i", "i").split("\n")
    inside = "\n".join("    " + line for line in lines)
    plain = maker.rng.choice(
        [
            f"""
int per = ({count} + gridDim.x * blockDim.x - 1) / (gridDim.x * blockDim.x);
int first = (blockIdx.x * blockDim.x + threadIdx.x) * per{start};
for (int i = first; i < first + per && i < {last}; i++) {{
{inside}
}}""",
            f"""
int t = blockIdx.x * blockDim.x + threadIdx.x;
int per = ({count} + gridDim.x * blockDim.x - 1) / (gridDim.x * blockDim.x);
int begin = t * per{start};
int end = min(begin + per, {last});
for (int i = begin; i < end; i++) {{
{inside}
}}""",
        ]
    )
    stride = f"""
for (int i = blockIdx.x * blockDim.x + threadIdx.x{start}; i < {last}; i += gridDim.x * blockDim.x) {{
{inside}
}}"""
    return f"{grid}, {block}", plain, (Fast("neighbouring threads take neighbouring elements", stride),)


def pointwise_map(maker: Maker) -> Sketch:
    """One random formula of one to three inputs."""
    n = maker.size(20, 200)
    inputs = [maker.buffer("in", n) for _ in range(maker.rng.choice([1, 2, 2, 3]))]
    scalars = [maker.scalar() for _ in range(maker.rng.choice([0, 1, 1]))]
    out = maker.buffer("out", n)
    formula = maker.expr([*(f"{name}[@i]" for name in inputs), *scalars], maker.rng.choice([2, 3, 4]))
    statement = f"{out}[@i] = {formula};"
    launch, plain, fast = walk(maker, n, statement)
    cpu = f"for (int i = 0; i < {n}; i++) {{ {statement.replace('@i', 'i')} }}"
    return Sketch(cpu, launch, plain, fast, {n: LINE}, "element wise map")


def axpy(maker: Maker) -> Sketch:
    """A scaled vector added to another, in place or not."""
    n = maker.size(20, 200)
    alpha = maker.scalar(pool=["a", "alpha", "scale"])
    x = maker.buffer("in", n, pool=["x", "X", "src", "in"])
    y = maker.buffer("io", n, pool=["y", "Y", "dst"])
    launch, plain, fast = walk(maker, n, f"{y}[@i] = {alpha} * {x}[@i] + {y}[@i];")
    cpu = f"for (int i = 0; i < {n}; i++) {{ {y}[i] = {alpha} * {x}[i] + {y}[i]; }}"
    return Sketch(cpu, launch, plain, fast, {n: LINE}, "saxpy", f"{alpha} * {x} + {y}")


def activation(maker: Maker) -> Sketch:
    """A nonlinearity of a network, with float4 loads as a second fast way."""
    n = maker.size(20, 200)
    x = maker.buffer("in", n, pool=["x", "in", "input", "src"])
    y = maker.buffer("out", n, pool=["y", "out", "output", "dst"])
    name, formula, torch = maker.rng.choice(
        [
            ("relu", "fmaxf(@v, 0.0f)", f"torch.relu({x})"),
            ("sigmoid", "1.0f / (1.0f + expf(-@v))", f"torch.sigmoid({x})"),
            ("tanh", "tanhf(@v)", f"torch.tanh({x})"),
            ("leaky", "@v > 0.0f ? @v : 0.1f * @v", None),
            ("swish", "@v / (1.0f + expf(-@v))", None),
        ]
    )
    launch, plain, fast = walk(maker, n, f"{y}[@i] = {formula.replace('@v', f'{x}[@i]')};")
    each = "\n".join(f"    vec.{part} = {formula.replace('@v', f'vec.{part}')};" for part in "xyzw")
    vector = f"""
int t = blockIdx.x * blockDim.x + threadIdx.x;
for (int i = t; i < {n} / 4; i += gridDim.x * blockDim.x) {{
    float4 vec = reinterpret_cast<const float4*>({x})[i];
{each}
    reinterpret_cast<float4*>({y})[i] = vec;
}}
for (int i = {n} / 4 * 4 + t; i < {n}; i += gridDim.x * blockDim.x) {{
    {y}[i] = {formula.replace("@v", f"{x}[i]")};
}}"""
    cpu = f"for (int i = 0; i < {n}; i++) {{ {y}[i] = {formula.replace('@v', f'{x}[i]')}; }}"
    return Sketch(cpu, launch, plain, (*fast, Fast("four floats at a time", vector)), {n: LINE}, name, torch)


def channel_affine(maker: Maker) -> Sketch:
    """A scale and a bias for each column of a matrix."""
    rows, cols = maker.size(3, 40, _ROWS), maker.size(3, 40, _COLS)
    x = maker.buffer("in", rows, cols, pool=["x", "in", "input"])
    scale = maker.buffer("in", cols, pool=["scale", "gain", "weight", "w"])
    bias = maker.buffer("in", cols, pool=["bias", "shift", "b"])
    y = maker.buffer("out", rows, cols, pool=["y", "out", "output"])
    return plane(
        maker, rows, cols, f"{y}[@r * {cols} + @c] = {x}[@r * {cols} + @c] * {scale}[@c] + {bias}[@c];",
        "scale bias", f"{x} * {scale} + {bias}",
    )  # fmt: skip


def plane(maker: Maker, rows: str, cols: str, statement: str, topic: str, torch: str | None = None) -> Sketch:
    """A statement of `@r`, `@c`: plain with rows along `threadIdx.x`, fast with columns along it."""
    threads = maker.rng.choice([(32, 8), (16, 16), (32, 4)])
    inside = "\n".join("    " + line for line in statement.replace("@r", "row").replace("@c", "col").split("\n"))
    side = max(threads)
    launch = f"{{cdiv({cols}, {side}), cdiv({rows}, {side})}}, {{{threads[0]}, {threads[1]}}}"
    block_rows, across = side, threads[0]
    # One block covers a square tile, so that either way of giving the tile's elements to threads fits the launch.
    body = f"""
for (int i = threadIdx.y * blockDim.x + threadIdx.x; i < {side * block_rows}; i += blockDim.x * blockDim.y) {{
    int row = blockIdx.y * {side} + @ROW;
    int col = blockIdx.x * {side} + @COL;
    if (row < {rows} && col < {cols}) {{
{chr(10).join("    " + line for line in inside.splitlines())}
    }}
}}"""
    slow = body.replace("@ROW", f"i % {side}").replace("@COL", f"i / {side}")
    fast = body.replace("@ROW", f"i / {side}").replace("@COL", f"i % {side}")
    rows_loop = f"""
int col = blockIdx.x * {side} + threadIdx.x;
for (int row = blockIdx.y * {side} + threadIdx.y; row < min((int)(blockIdx.y + 1) * {side}, {rows}); row += blockDim.y) {{
    if (col < {cols}) {{
{chr(10).join("    " + line for line in inside.splitlines())}
    }}
}}"""
    ways = [Fast("columns along threadIdx.x", fast)]
    if across == side:
        ways.insert(0, Fast("one column a thread, a few rows each", rows_loop))
    cpu_text = statement.replace("@r", "row").replace("@c", "col").replace("\n", " ")
    cpu = f"for (int row = 0; row < {rows}; row++) {{ for (int col = 0; col < {cols}; col++) {{ {cpu_text} }} }}"
    return Sketch(cpu, launch, slow, tuple(ways), {rows: PLANE[0], cols: PLANE[1]}, topic, torch)


def matrix_blend(maker: Maker) -> Sketch:
    """A random formula of two matrices of one shape."""
    rows, cols = maker.size(3, 40, _ROWS), maker.size(3, 40, _COLS)
    a, b = maker.buffer("in", rows, cols, pool=["a", "A", "x"]), maker.buffer("in", rows, cols, pool=["b", "B", "y"])
    out = maker.buffer("out", rows, cols, pool=["out", "C", "dst"])
    at = f"[@r * {cols} + @c]"
    formula = maker.expr([a + at, b + at, *([maker.scalar()] if maker.rng.random() < 0.4 else [])], 3)
    return plane(maker, rows, cols, f"{out}{at} = {formula};", "combine")


def row_scale(maker: Maker) -> Sketch:
    """Each row times a number of its own."""
    rows, cols = maker.size(3, 40, _ROWS), maker.size(3, 40, _COLS)
    x = maker.buffer("in", rows, cols, pool=["x", "A", "in"])
    d = maker.buffer("in", rows, pool=["scale", "diag", "weight"])
    y = maker.buffer("out", rows, cols, pool=["y", "out", "B"])
    return plane(
        maker, rows, cols, f"{y}[@r * {cols} + @c] = {d}[@r] * {x}[@r * {cols} + @c];", "row scale",
        f"{d}.unsqueeze(1) * {x}",
    )  # fmt: skip


def stencil_1d(maker: Maker) -> Sketch:
    """Three or five points of a line, the ends copied."""
    n = maker.size(20, 200)
    x = maker.buffer("in", n, pool=["in", "x", "u", "src"])
    y = maker.buffer("out", n, pool=["out", "y", "dst"])
    reach = maker.rng.choice([1, 1, 2])
    points = {
        1: f"0.25f * {x}[@i - 1] + 0.5f * {x}[@i] + 0.25f * {x}[@i + 1]",
        2: f"({x}[@i - 2] + {x}[@i - 1] + {x}[@i] + {x}[@i + 1] + {x}[@i + 2]) / 5.0f",
    }[reach]
    inner = f"@i >= {reach} && @i < {n} - {reach}"
    statement = f"if ({inner}) {{\n    {y}[@i] = {points};\n}} else {{\n    {y}[@i] = {x}[@i];\n}}"
    launch, plain, fast = walk(maker, n, statement)
    cpu = f"for (int i = 0; i < {n}; i++) {{ {statement.replace('@i', 'i')} }}"
    return Sketch(cpu, launch, plain, fast, {n: LINE}, "stencil")


def stencil_2d(maker: Maker) -> Sketch:
    """Five points of a plane averaged, the border copied."""
    rows, cols = maker.size(4, 40, _ROWS), maker.size(4, 40, _COLS)
    x = maker.buffer("in", rows, cols, pool=["in", "x", "u", "src"])
    y = maker.buffer("out", rows, cols, pool=["out", "y", "dst"])
    at = f"@r * {cols} + @c"
    mean = f"0.2f * ({x}[{at}] + {x}[{at} - 1] + {x}[{at} + 1] + {x}[{at} - {cols}] + {x}[{at} + {cols}])"
    statement = (
        f"if (@r > 0 && @r < {rows} - 1 && @c > 0 && @c < {cols} - 1) {{\n    {y}[{at}] = {mean};\n"
        f"}} else {{\n    {y}[{at}] = {x}[{at}];\n}}"
    )
    return plane(maker, rows, cols, statement, "stencil smooth")


def stencil_3d(maker: Maker) -> Sketch:
    """Six neighbours in space; fast is the innermost dimension along `threadIdx.x`."""
    nz, ny, nx = (
        maker.size(4, 20, pool) for pool in (["nz", "depth", "D"], ["ny", "height", "H"], ["nx", "width", "W"])
    )
    x = maker.buffer("in", nz, ny, nx, pool=["in", "x", "u", "src"])
    y = maker.buffer("out", nz, ny, nx, pool=["out", "y", "dst"])
    at = f"(z * {ny} + row) * {nx} + col"
    value = f"({x}[i - 1] + {x}[i + 1] + {x}[i - {nx}] + {x}[i + {nx}] + {x}[i - {nx} * {ny}] + {x}[i + {nx} * {ny}]) / 6.0f"
    inner = f"z > 0 && z < {nz} - 1 && row > 0 && row < {ny} - 1 && col > 0 && col < {nx} - 1"
    step = f"int i = {at}; if ({inner}) {{ {y}[i] = {value}; }} else {{ {y}[i] = {x}[i]; }}"
    cpu = (
        f"for (int z = 0; z < {nz}; z++) {{ for (int row = 0; row < {ny}; row++) {{ "
        f"for (int col = 0; col < {nx}; col++) {{ {step} }} }} }}"
    )
    body = f"""
int @A = blockIdx.x * 32 + threadIdx.x;
int @B = blockIdx.y * 32 + threadIdx.y;
for (int z = 0; z < {nz}; z++) {{
    for (int k = 0; k < 32; k += 8) {{
        @TURN
        if (row < {ny} && col < {nx}) {{
            int i = {at};
            if ({inner}) {{
                {y}[i] = {value};
            }} else {{
                {y}[i] = {x}[i];
            }}
        }}
    }}
}}"""
    # The grid is square in tiles, so both ways of laying a tile over the threads reach every element.
    launch = f"{{cdiv(max({nx}, {ny}), 32), cdiv(max({nx}, {ny}), 32)}}, {{32, 8}}"
    plain = body.replace("@A", "p").replace("@B", "q").replace("@TURN", "int row = p;\n        int col = q + k;")
    fast = body.replace("@A", "p").replace("@B", "q").replace("@TURN", "int row = q + k;\n        int col = p;")
    return Sketch(
        cpu, launch, plain, (Fast("the last dimension along threadIdx.x", fast),),
        {nz: "64 | 9 | 5", ny: "512 | 35 | 6", nx: "512 | 33 | 7"}, "stencil",
    )  # fmt: skip


def convolve_2d(maker: Maker) -> Sketch:
    """A small window of weights moved over a plane, zeros outside; fast reads the plane once, through shared memory."""
    rows, cols = maker.size(4, 40, _ROWS), maker.size(4, 40, _COLS)
    reach = maker.rng.choice([1, 2])
    side, pad = 2 * reach + 1, 16 + 2 * reach
    x = maker.buffer("in", rows, cols, pool=["in", "x", "image", "src"])
    w = maker.buffer("in", str(side), str(side), pool=["weights", "filter", "mask", "kern"])
    y = maker.buffer("out", rows, cols, pool=["out", "y", "dst"])
    window = (
        f"for (int j = -{reach}; j <= {reach}; j++) {{ for (int k = -{reach}; k <= {reach}; k++) {{ "
        f"if (row + j >= 0 && row + j < {rows} && col + k >= 0 && col + k < {cols}) {{ "
        f"acc += {w}[(j + {reach}) * {side} + k + {reach}] * {x}[(row + j) * {cols} + col + k]; }} }} }}"
    )
    cpu = (
        f"for (int row = 0; row < {rows}; row++) {{ for (int col = 0; col < {cols}; col++) {{ "
        f"float acc = 0.0f; {window} {y}[row * {cols} + col] = acc; }} }}"
    )
    sums = f"""
    float acc = 0.0f;
    for (int j = -{reach}; j <= {reach}; j++) {{
        for (int k = -{reach}; k <= {reach}; k++) {{
            if (row + j >= 0 && row + j < {rows} && col + k >= 0 && col + k < {cols}) {{
                acc += {w}[(j + {reach}) * {side} + k + {reach}] * {x}[(row + j) * {cols} + col + k];
            }}
        }}
    }}
    {y}[row * {cols} + col] = acc;"""
    plain = f"""
int row = blockIdx.y * 16 + threadIdx.x;
int col = blockIdx.x * 16 + threadIdx.y;
if (row < {rows} && col < {cols}) {{{sums}
}}"""
    coalesced = f"""
int row = blockIdx.y * 16 + threadIdx.y;
int col = blockIdx.x * 16 + threadIdx.x;
if (row < {rows} && col < {cols}) {{{sums}
}}"""
    tiled = f"""
__shared__ float tile[{pad}][{pad}];
int row = blockIdx.y * 16 + threadIdx.y;
int col = blockIdx.x * 16 + threadIdx.x;
for (int i = threadIdx.y * 16 + threadIdx.x; i < {pad * pad}; i += 256) {{
    int p = (int)blockIdx.y * 16 + i / {pad} - {reach};
    int q = (int)blockIdx.x * 16 + i % {pad} - {reach};
    tile[i / {pad}][i % {pad}] = p >= 0 && p < {rows} && q >= 0 && q < {cols} ? {x}[p * {cols} + q] : 0.0f;
}}
__syncthreads();
if (row < {rows} && col < {cols}) {{
    float acc = 0.0f;
    for (int j = 0; j < {side}; j++) {{
        for (int k = 0; k < {side}; k++) {{
            acc += {w}[j * {side} + k] * tile[threadIdx.y + j][threadIdx.x + k];
        }}
    }}
    {y}[row * {cols} + col] = acc;
}}"""
    return Sketch(
        cpu, f"{{cdiv({cols}, 16), cdiv({rows}, 16)}}, {{16, 16}}", plain,
        (Fast("columns along threadIdx.x", coalesced), Fast("a tile with its rim in shared memory", tiled)),
        {rows: "2048 | 65 | 33", cols: "2048 | 70 | 17"}, "filter blur",
    )  # fmt: skip


def transpose(maker: Maker) -> Sketch:
    """Rows become columns; fast goes through a padded tile, so that both sides are read and written in order."""
    rows, cols = maker.size(5, 40, _ROWS), maker.size(5, 40, _COLS)
    type_ = maker.rng.choice(["float", "float", "int", "double"])
    x = maker.buffer("in", rows, cols, type_=type_, pool=["in", "x", "A", "src"])
    y = maker.buffer("out", cols, rows, type_=type_, pool=["out", "y", "B", "dst"])
    cpu = f"for (int i = 0; i < {rows}; i++) {{ for (int j = 0; j < {cols}; j++) {{ {y}[j * {rows} + i] = {x}[i * {cols} + j]; }} }}"
    plain = f"""
int col = blockIdx.x * 32 + threadIdx.x;
for (int k = 0; k < 32; k += 8) {{
    int row = blockIdx.y * 32 + threadIdx.y + k;
    if (row < {rows} && col < {cols}) {{
        {y}[col * {rows} + row] = {x}[row * {cols} + col];
    }}
}}"""
    tiled = f"""
__shared__ {type_} tile[32][33];
int col = blockIdx.x * 32 + threadIdx.x;
int row = blockIdx.y * 32 + threadIdx.y;
for (int k = 0; k < 32; k += 8) {{
    if (row + k < {rows} && col < {cols}) {{
        tile[threadIdx.y + k][threadIdx.x] = {x}[(row + k) * {cols} + col];
    }}
}}
__syncthreads();
col = blockIdx.y * 32 + threadIdx.x;
row = blockIdx.x * 32 + threadIdx.y;
for (int k = 0; k < 32; k += 8) {{
    if (row + k < {cols} && col < {rows}) {{
        {y}[(row + k) * {rows} + col] = tile[threadIdx.x][threadIdx.y + k];
    }}
}}"""
    return Sketch(
        cpu, f"{{cdiv({cols}, 32), cdiv({rows}, 32)}}, {{32, 8}}", plain, (Fast("a padded tile in shared memory", tiled),),
        {rows: PLANE[0], cols: PLANE[1]}, "transpose", f"{x}.t()", tolerance="exact",
    )  # fmt: skip


def permute_3d(maker: Maker) -> Sketch:
    """The last two of three dimensions change places."""
    batch, rows, cols = (maker.size(3, 20, pool) for pool in (["batch", "B", "heads"], _ROWS, _COLS))
    x = maker.buffer("in", batch, rows, cols, pool=["in", "x", "src"])
    y = maker.buffer("out", batch, cols, rows, pool=["out", "y", "dst"])
    cpu = (
        f"for (int z = 0; z < {batch}; z++) {{ for (int i = 0; i < {rows}; i++) {{ for (int j = 0; j < {cols}; j++) {{ "
        f"{y}[(z * {cols} + j) * {rows} + i] = {x}[(z * {rows} + i) * {cols} + j]; }} }} }}"
    )
    plain = f"""
int col = blockIdx.x * 32 + threadIdx.x;
for (int k = 0; k < 32; k += 8) {{
    int row = blockIdx.y * 32 + threadIdx.y + k;
    if (row < {rows} && col < {cols}) {{
        {y}[(blockIdx.z * {cols} + col) * {rows} + row] = {x}[(blockIdx.z * {rows} + row) * {cols} + col];
    }}
}}"""
    tiled = f"""
__shared__ float tile[32][33];
int col = blockIdx.x * 32 + threadIdx.x;
int row = blockIdx.y * 32 + threadIdx.y;
for (int k = 0; k < 32; k += 8) {{
    if (row + k < {rows} && col < {cols}) {{
        tile[threadIdx.y + k][threadIdx.x] = {x}[(blockIdx.z * {rows} + row + k) * {cols} + col];
    }}
}}
__syncthreads();
col = blockIdx.y * 32 + threadIdx.x;
row = blockIdx.x * 32 + threadIdx.y;
for (int k = 0; k < 32; k += 8) {{
    if (row + k < {cols} && col < {rows}) {{
        {y}[(blockIdx.z * {cols} + row + k) * {rows} + col] = tile[threadIdx.x][threadIdx.y + k];
    }}
}}"""
    return Sketch(
        cpu, f"{{cdiv({cols}, 32), cdiv({rows}, 32), {batch}}}, {{32, 8}}", plain,
        (Fast("a padded tile in shared memory", tiled),),
        {batch: "16 | 3", rows: "1024 | 65 | 33", cols: "1024 | 40 | 35"}, "transpose", tolerance="exact",
    )  # fmt: skip


def record_fields(maker: Maker) -> Sketch:
    """Four floats of a record folded into one; fast loads a record at once, and neighbours load neighbouring records."""
    n = maker.size(20, 200)
    x = maker.buffer("in", f"4 * {n}", pool=["rec", "pts", "quads", "in"])
    y = maker.buffer("out", n, pool=["out", "y", "dst"])
    parts = [f"{x}[4 * @i{f' + {k}' if k else ''}]" for k in range(4)]
    formula = maker.expr(parts, 5)
    if not all(part in formula for part in parts):
        formula = f"{parts[0]} * {parts[3]} - {parts[1]} * {parts[2]}"
    launch, plain, fast = walk(maker, n, f"{y}[@i] = {formula};")
    vector = formula
    for part, letter in zip(parts, "xyzw", strict=True):
        vector = vector.replace(part, f"vec.{letter}")
    wide = f"""
for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < {n}; i += gridDim.x * blockDim.x) {{
    float4 vec = reinterpret_cast<const float4*>({x})[i];
    {y}[i] = {vector};
}}"""
    cpu = f"for (int i = 0; i < {n}; i++) {{ {y}[i] = {formula.replace('@i', 'i')}; }}"
    return Sketch(
        cpu, launch, plain, (*fast, Fast("a record in one load", wide)), {n: "4M | 4099 | 37"}, "vector combine",
    )  # fmt: skip


def bit_mix(maker: Maker) -> Sketch:
    """Shifts and exclusive ors of whole numbers."""
    n = maker.size(20, 200)
    x = maker.buffer("in", n, type_="unsigned", pool=["keys", "x", "in", "bits"])
    y = maker.buffer("out", n, type_="unsigned", pool=["out", "hash", "y", "dst"])
    a, b = maker.rng.sample([3, 5, 7, 11, 13, 15, 16, 17], 2)
    factor = maker.rng.choice([2654435761, 2246822519, 3266489917])
    statement = f"unsigned v = {x}[@i];\nv = (v ^ (v >> {a})) * {factor}u;\n{y}[@i] = v ^ (v >> {b});"
    launch, plain, fast = walk(maker, n, statement)
    cpu = f"for (int i = 0; i < {n}; i++) {{ {statement.replace('@i', 'i')} }}"
    return Sketch(cpu, launch, plain, fast, {n: LINE}, "bits mix", tolerance="exact")


def polynomial_steps(maker: Maker) -> Sketch:
    """A logistic map stepped a fixed number of times: little memory, much arithmetic."""
    n, steps = maker.size(20, 200), str(maker.rng.choice([4, 8, 12]))
    x = maker.buffer("in", n, pool=["x0_in", "x", "init", "in"])
    y = maker.buffer("out", n, pool=["out", "y", "state"])
    r = maker.rng.choice(["0.5f", "0.25f", "0.75f"])
    statement = (
        f"float v = {x}[@i];\nfor (int k = 0; k < {steps}; k++) {{\n    v = v - {r} * v * tanhf(v);\n}}\n{y}[@i] = v;"
    )
    launch, plain, fast = walk(maker, n, statement)
    cpu = f"for (int i = 0; i < {n}; i++) {{ {statement.replace('@i', 'i')} }}"
    return Sketch(cpu, launch, plain, fast, {n: LINE}, "step update")
