"""Matrix products of any layout and operation, and transpositions."""

from attrs import evolve

from dice_lsp.training.maker import Argument, Maker, Task, finish
from dice_lsp.training.reductions import Reduction
from dice_lsp.training.walks import loops, over_2d

# ruff: noqa: E501 - a template of a kernel is read as one line of C


def matrix_product(maker: Maker) -> Task:
    """Sums over an inner dimension, plain or with another operation, any layout, perhaps tiled."""
    rng = maker.rng
    if rng.random() < 0.9:
        maker.element = maker.grammar.element = rng.choice(["float", "float", "float", "double"])
    f, element = maker.f, maker.element
    m, n, k = rng.choice(
        [
            ("M", "N", "K"),
            ("M", "N", "K"),
            ("m", "n", "k"),
            ("rows", "cols", "inner"),
            ("N", "N", "N"),
            ("n", "n", "n"),
            ("width", "width", "width"),
        ]
    )
    for name in dict.fromkeys([m, n, k]):
        maker.taken.add(name)
        maker.arguments.append(Argument(name, "int", "scalar"))
        maker.sizes[name] = rng.randrange(4, 22)
    plain = rng.random() < 0.55
    a_transposed, b_transposed = (rng.random() < 0.15, rng.random() < 0.2) if m != n else (False, rng.random() < 0.1)
    rare = maker.rare
    a = maker.buffer("in", *((k, m) if a_transposed else (m, k)), pool=["A", "a", "X", "Q", "left"])
    b = maker.buffer("in", *((n, k) if b_transposed else (k, n)), pool=["B", "b", "W", "K_", "right"])
    maker.rare = rare
    inner = rng.choice(["k", "p", "kk", "l", "t", "i"])
    if inner in maker.taken:
        inner = next(name for name in ("p", "kk", "e", "l") if name not in maker.taken)
    cell_a = f"{a}[{inner} * {m} + @r]" if a_transposed else f"{a}[@r * {k} + {inner}]"
    cell_b = f"{b}[@c * {k} + {inner}]" if b_transposed else f"{b}[{inner} * {n} + @c]"
    scalars = [maker.scalar(pool=["alpha", "beta", "scale"]) for _ in range(rng.choice([0, 0, 0, 1, 2]))]
    bias = [f"{maker.buffer('in', n, pool=['bias', 'b0', 'bvec'])}[@c]"] if rng.random() < 0.2 else []
    accumulates = rng.random() < 0.12
    out = maker.buffer("io" if accumulates else "out", m, n, pool=["C", "c", "out", "Y", "P"])
    name = maker.local()
    target = f"{out}[@r * {n} + @c]"
    torch = None
    if plain or element not in ("float", "double"):
        reduction = Reduction("sum", maker.zero, f"{cell_a} * {cell_b}")
        if not scalars and not bias and not accumulates:
            left, right = (f"{a}.t()" if a_transposed else a), (f"{b}.t()" if b_transposed else b)
            torch = rng.choice([f"{left} @ {right}", f"torch.matmul({left}, {right})", f"torch.mm({left}, {right})"])
    else:
        term = maker.expr([cell_a, cell_b], rng.choice([2, 2, 3]))
        reduction = Reduction(rng.choice(["sum", "sum", "max", "min"]), "", term)
        limit = "FLT_MAX" if element == "float" else "DBL_MAX"
        reduction = evolve(reduction, start={"sum": f"0.0{f}", "max": f"-{limit}", "min": limit}[reduction.kind])
    value = name
    ends = [name, *scalars, *bias, *([target] if accumulates else [])]
    if len(ends) > 1:
        value = maker.expr(ends, len(ends))
        if accumulates or rng.random() < 0.5:
            parts = [f"{scalars[0]} * {name}" if scalars else name]
            parts += [f"{scalars[1]} * {target}" if len(scalars) > 1 else target] if accumulates else []
            value = " + ".join(parts + bias)
    elif rng.random() < 0.12 and element == "float":
        value = maker.expr([name], 2)
        torch = None
    start = reduction.start
    if bias and plain and not scalars and not accumulates and rng.random() < 0.5:
        start, value = bias[0], name
    text = f"{element} {name} = {start}; for (int {inner} = 0; {inner} < {k}; {inner}++) {{ {reduction.join(name, reduction.term, f)} }} {target} = {value};"
    cpu = loops(maker, text, ("@r", "0", m), ("@c", "0", n))
    tiled = (
        plain
        and start == reduction.start
        and not a_transposed
        and not b_transposed
        and element == "float"
        and rng.random() < 0.15
        and not accumulates
    )
    topic = "matmul" if plain else ""
    if tiled:
        tile = str(rng.choice([8, 16, 16, 32]))
        macro = rng.random() < 0.5 and "TILE" not in maker.taken
        t = "TILE" if macro else tile
        if macro:
            maker.declarations += f"#define TILE {tile}\n"
        names = ("As", "Bs") if not {"As", "Bs"} & maker.taken else ("tile_a", "tile_b")
        end = value.replace("@r", "row").replace("@c", "col")
        body = (
            f"__shared__ float {names[0]}[{t}][{t}]; __shared__ float {names[1]}[{t}][{t}]; int row = blockIdx.y * {t} + threadIdx.y; int col = blockIdx.x * {t} + threadIdx.x; float {name} = 0.0f; "
            f"for (int t0 = 0; t0 < {k}; t0 += {t}) {{ {names[0]}[threadIdx.y][threadIdx.x] = row < {m} && t0 + threadIdx.x < {k} ? {a}[row * {k} + t0 + threadIdx.x] : 0.0f; "
            f"{names[1]}[threadIdx.y][threadIdx.x] = t0 + threadIdx.y < {k} && col < {n} ? {b}[(t0 + threadIdx.y) * {n} + col] : 0.0f; __syncthreads(); "
            f"for (int q0 = 0; q0 < {t}; q0++) {{ {name} += {names[0]}[threadIdx.y][q0] * {names[1]}[q0][threadIdx.x]; }} __syncthreads(); }} "
            f"if (row < {m} && col < {n}) {{ {out}[row * {n} + col] = {end}; }}"
        )
        return finish(
            maker,
            "matrix_product",
            body,
            cpu,
            f"{{cdiv({n}, {t}), cdiv({m}, {t})}}, {{{t}, {t}}}",
            torch=torch,
            topic="tiled matmul",
            needs_launch=True,
        )
    body, launch, needs = over_2d(maker, m, n, text)
    return finish(maker, "matrix_product", body, cpu, launch, torch=torch, topic=topic, needs_launch=needs)


def transpose(maker: Maker) -> Task:
    """Transposition, plain or through a tile."""
    rng = maker.rng
    maker.element = maker.grammar.element = rng.choice(["float", "float", "float", "int", "double"])
    rows = maker.size(5, 40, ["rows", "M", "h", "height", "H", "m", "n_rows", "R"])
    cols = maker.size(5, 40, ["cols", "N", "w", "width", "W", "n", "n_cols", "C"])
    x = maker.buffer("in", rows, cols)
    out = maker.buffer("out", cols, rows)
    text = f"{out}[@c * {rows} + @r] = {x}[@r * {cols} + @c];"
    cpu = loops(maker, text, ("@r", "0", rows), ("@c", "0", cols))
    torch = rng.choice([f"{x}.t()", f"{x}.T", f"torch.transpose({x}, 0, 1)"])
    if rng.random() < 0.25:
        step = rng.choice([8, 8, 4, 32])
        taken = maker.taken
        names = ("x", "y") if not {"x", "y"} & taken else ("xo", "yo")
        tile = "tile" if "tile" not in taken else "tbuf"
        a, b = names
        body = (
            f"__shared__ {maker.element} {tile}[32][33]; int {a} = blockIdx.x * 32 + threadIdx.x; int {b} = blockIdx.y * 32 + threadIdx.y; "
            f"for (int j = 0; j < 32; j += {step}) {{ if ({a} < {cols} && {b} + j < {rows}) {{ {tile}[threadIdx.y + j][threadIdx.x] = {x}[({b} + j) * {cols} + {a}]; }} }} __syncthreads(); "
            f"{a} = blockIdx.y * 32 + threadIdx.x; {b} = blockIdx.x * 32 + threadIdx.y; "
            f"for (int j = 0; j < 32; j += {step}) {{ if ({a} < {rows} && {b} + j < {cols}) {{ {out}[({b} + j) * {rows} + {a}] = {tile}[threadIdx.x][threadIdx.y + j]; }} }}"
        )
        if "j" not in maker.taken:
            return finish(
                maker,
                "transpose",
                body,
                cpu,
                f"{{cdiv({cols}, 32), cdiv({rows}, 32)}}, {{32, {step}}}",
                torch=torch,
                topic="tiled transpose",
                needs_launch=True,
            )
    body, launch, needs = over_2d(maker, rows, cols, text)
    return finish(maker, "transpose", body, cpu, launch, torch=torch, topic="transpose", needs_launch=needs)
