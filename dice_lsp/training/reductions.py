"""Shapes that fold many elements into one: along rows, columns, segments, or over everything."""

import random
import re

from attrs import evolve, frozen

from dice_lsp.training.expressions import torch_of
from dice_lsp.training.maker import Maker, Task, finish, named_constant
from dice_lsp.training.walks import loops, over_1d, over_2d

# ruff: noqa: E501 - a template of a kernel is read as one line of C


@frozen
class Reduction:
    """One associative reduction: how it starts, how a term joins, how two partial results join."""

    kind: str
    start: str
    term: str

    def join(self, accumulator: str, other: str, f: str) -> str:
        if self.kind == "sum":
            return f"{accumulator} += {other};"
        if self.kind == "product":
            return f"{accumulator} *= {other};"
        return f"{accumulator} = f{self.kind}{f}({accumulator}, {other});"

    def merged(self, a: str, b: str, f: str) -> str:
        if self.kind in ("sum", "product"):
            return f"{a} {'+' if self.kind == 'sum' else '*'} {b}"
        return f"f{self.kind}{f}({a}, {b})"


def draw_reduction(maker: Maker, atoms: list[str], kinds: list[str] | None = None) -> Reduction:
    rng, f = maker.rng, maker.f
    kind = rng.choice(kinds or ["sum", "sum", "sum", "max", "min", "product"])
    term = atoms[0] if rng.random() < 0.3 else maker.expr(atoms, rng.choice([1, 2, 2, 3]))
    limit = {"float": "FLT_MAX", "double": "DBL_MAX"}.get(maker.element, "FLT_MAX")
    start = {
        "sum": f"0.0{f}", "product": f"1.0{f}",
        "max": rng.choice([f"-{limit}", f"-1e30{f}", "-INFINITY"]), "min": rng.choice([limit, f"1e30{f}", "INFINITY"]),
    }[kind]  # fmt: skip
    return Reduction(kind, start, term)


def _tree(maker: Maker, reduction: Reduction, shared: str, thread: str) -> str:
    """The shared-memory tree over a block whose size is a power of two."""
    s = _stride(maker)
    join = reduction.join(f"{shared}[{thread}]", f"{shared}[{thread} + {s}]", maker.f)
    if reduction.kind not in ("sum", "product"):
        join = f"{shared}[{thread}] = {reduction.merged(f'{shared}[{thread}]', f'{shared}[{thread} + {s}]', maker.f)};"
    return f"for (int {s} = blockDim.x / 2; {s} > 0; {s} >>= 1) {{ if ({thread} < {s}) {{ {join} }} __syncthreads(); }}"


def _stride(maker: Maker) -> str:
    """A name for the step of a tree that no accumulator or parameter has."""
    return next(name for name in ("s", "offset", "step", "stride_") if name not in maker.taken)


def _shuffles(maker: Maker, reduction: Reduction, accumulator: str) -> str:
    s = _stride(maker)
    join = reduction.join(accumulator, f"__shfl_down_sync(0xffffffff, {accumulator}, {s})", maker.f)
    return f"for (int {s} = 16; {s} > 0; {s} >>= 1) {{ {join} }}"


def row_reduction(maker: Maker) -> Task:
    """Each row to one value, by one thread, one warp or one block per row."""
    rng = maker.rng
    named_constant(maker)
    if not maker.grammar.floating:
        maker.element = maker.grammar.element = "float"
    f, element = maker.f, maker.element
    rows = maker.size(3, 40, ["rows", "M", "n", "n_rows", "R", "batch", "N", "B"])
    cols = maker.size(3, 70, ["cols", "N", "d", "n_cols", "C", "dim", "K", "D", "len"])
    x = maker.buffer("in", rows, cols)
    at = f"@r * {cols} + @c"
    atoms = [f"{x}[{at}]"]
    second = rng.random() < 0.35
    if second:
        kind = rng.choice(["full", "col", "col"])
        name = maker.buffer(
            "in", *((rows, cols) if kind == "full" else (cols,)), pool=["w", "b", "y", "v", "weight", "ref_"]
        )
        atoms.append(f"{name}[{at}]" if kind == "full" else f"{name}[@c]")
    scalars = [maker.scalar() for _ in range(rng.choice([0, 0, 1]))]
    per_row = (
        [f"{maker.buffer('in', rows, pool=['bias', 's', 'off', 'shift', 'center'])}[@r]"] if rng.random() < 0.15 else []
    )
    out = maker.buffer("out", rows)
    reductions = [draw_reduction(maker, [*atoms, *scalars, *per_row]) for _ in range(rng.choices([1, 2], [82, 18])[0])]
    names = [maker.local() for _ in reductions]
    count = f"({element}){cols}"
    final_atoms = list(names) + ([count] if rng.random() < 0.3 else []) + (scalars[:1] if rng.random() < 0.3 else [])
    averaged = False
    plain_end = len(names) == 1 and rng.random() < 0.4
    value = names[0] if plain_end else maker.expr(final_atoms, max(2, len(final_atoms)))
    if not all(re.search(rf"\b{name}\b", value) for name in names):
        value = " + ".join(names) if len(names) > 1 else names[0]
    if rng.random() < 0.15 and len(names) == 1 and reductions[0].kind == "sum":
        value = f"{names[0]} / {cols}"
        averaged = True
    strategy = rng.choices(["thread", "block", "warp", "blockwarp"], [52, 32, 8, 8])[0]
    if len(reductions) > 1 and strategy != "thread":
        strategy = "block" if strategy == "blockwarp" else strategy
    c = rng.choice(["c", "j", "k", "i"])
    if c in maker.taken or any(re.search(rf"\b{c}\b", text) for text in [*names, value]):
        c = "jj"
    update = " ".join(
        reduction.join(name, reduction.term, f) for reduction, name in zip(reductions, names, strict=True)
    )
    starts = " ".join(
        f"{element} {name} = {reduction.start};" for reduction, name in zip(reductions, names, strict=True)
    )
    update_c = update.replace("@c", c)
    row_pointer = rng.random() < 0.15
    serial = f"{starts} for (int {c} = 0; {c} < {cols}; {c}++) {{ {update_c} }} {out}[@r] = {value};"
    if strategy == "thread" and len(reductions) == 1:
        cell = atoms[0].replace("@c", c)
        only, single = reductions[0], names[0]
        if only.term == atoms[0] and only.kind in ("max", "min") and rng.random() < 0.4:
            serial = serial.replace(f"{single} = {only.start};", f"{single} = {x}[@r * {cols}];", 1)
            serial = serial.replace(f"{c} = 0;", f"{c} = 1;", 1)
        elif rng.random() < 0.25:
            copy = maker.local()
            serial = serial.replace(update_c, f"{element} {copy} = {cell}; {update_c.replace(cell, copy)}")
    if row_pointer:
        pointer = maker.local()
        serial = f"const {element}* {pointer} = {x} + @r * {cols}; " + serial.replace(
            f"{x}[@r * {cols} + {c}]", f"{pointer}[{c}]"
        )
    r = rng.choice(["r", "row", "i"]) if c != "i" else rng.choice(["r", "row"])
    if r in maker.taken or re.search(rf"\b{r}\b", serial):
        r = "row_id"
    cpu_serial = serial
    if element == "float" and rng.random() < 0.1:
        for reduction, name in zip(reductions, names, strict=True):
            cpu_serial = cpu_serial.replace(
                f"float {name} = {reduction.start};", f"double {name} = {reduction.start.removesuffix('f')};"
            )
        if "INFINITY" in cpu_serial or "fmaxf" in cpu_serial or "fminf" in cpu_serial:
            cpu_serial = serial
    cpu = f"for (int {r} = 0; {r} < {rows}; {r}++) {{ {cpu_serial.replace('@r', r)} }}"
    if strategy == "thread":
        body, launch, _ = over_1d(maker, rows, serial.replace("@r", "@i"))
        needs = False
        if launch.startswith("cdiv") is False:
            needs = True
    else:
        body, launch = cooperative(maker, strategy, reductions, names, rows, cols, c, f"{out}[@r] = {value};")
        needs = True
    torch = None
    if (
        len(reductions) == 1
        and not per_row
        and plain_end
        and reductions[0].kind != "product"
        and not maker.declarations
    ):
        torch = _torch_rows(maker, reductions[0], x, rng)
    if averaged and not per_row and not maker.declarations:
        torch = _torch_rows(maker, reductions[0], x, rng)
        torch = torch.replace("sum(", "mean(") if torch else None
    return finish(
        maker,
        "row_reduction",
        body,
        cpu,
        launch,
        torch=torch,
        needs_launch=needs,
        topic="row sum" if plain_end and reductions[0].kind == "sum" and reductions[0].term == atoms[0] else "",
    )


def _torch_rows(maker: Maker, reduction: Reduction, x: str, rng: random.Random) -> str | None:
    method = {"sum": "sum", "max": "amax", "min": "amin"}[reduction.kind]
    dim = rng.choice(["dim=1", "dim=1", "dim=-1", "1"])
    if re.fullmatch(rf"{x}\[[^\]]*\]", reduction.term):
        return rng.choice([f"{x}.{method}({dim})", f"torch.{method}({x}, {dim})"])
    if re.fullmatch(r"(\w+)\[[^\]]*\] \* (\w+)\[[^\]]*\]", reduction.term):
        inner = re.sub(r"\[[^\]]*\]", "", reduction.term)
        return rng.choice([f"({inner}).{method}({dim})", f"torch.{method}({inner}, {dim})"])
    return None


def cooperative(
    maker: Maker, strategy: str, reductions: list[Reduction], names: list[str], rows: str, cols: str, c: str, store: str
) -> tuple[str, str]:
    """One block or warp per row; `store` uses `@r` and the accumulators' names."""
    rng, f, element = maker.rng, maker.f, maker.element
    block = 32 if strategy == "warp" else rng.choice([64, 128, 256, 256, 512])
    used = " ".join([*names, store, *(reduction.term for reduction in reductions)])
    thread = next(
        name
        for name in [*rng.sample(["tid", "t", "lane" if strategy == "warp" else "tx"], 3), "th_id"]
        if not re.search(rf"\b{name}\b", used) and name not in maker.taken
    )
    row = next(name for name in ("row", "r", "blk") if not re.search(rf"\b{name}\b", used) and name not in maker.taken)
    starts = " ".join(
        f"{element} {name} = {reduction.start};" for reduction, name in zip(reductions, names, strict=True)
    )
    update = (
        " ".join(reduction.join(name, reduction.term, f) for reduction, name in zip(reductions, names, strict=True))
        .replace("@c", c)
        .replace("@r", row)
    )
    guard = f"if ({row} >= {rows}) return; " if rng.random() < 0.3 else ""
    head = f"int {row} = blockIdx.x; int {thread} = threadIdx.x; "
    loop = f"for (int {c} = {thread}; {c} < {cols}; {c} += blockDim.x) {{ {update} }}"
    store = store.replace("@r", row)
    if strategy == "warp":
        fold = " ".join(_shuffles(maker, reduction, name) for reduction, name in zip(reductions, names, strict=True))
        return f"{head}{guard}{starts} {loop} {fold} if ({thread} == 0) {{ {store} }}", f"{rows}, 32"
    shared = [
        next(
            name
            for name in (["smem", "sdata", "cache", "buf", "partial"] if at == 0 else ["smem2", "sdata2", "buf2"])
            if name not in maker.taken and not re.search(rf"\b{name}\b", used)
        )
        for at in range(len(names))
    ]
    if strategy == "blockwarp":
        reduction, name = reductions[0], names[0]
        fold = _shuffles(maker, reduction, name)
        text = (
            f"{head}{guard}__shared__ {element} {shared[0]}[32]; {starts} {loop} {fold} "
            f"if (({thread} & 31) == 0) {{ {shared[0]}[{thread} >> 5] = {name}; }} __syncthreads(); "
            f"if ({thread} < 32) {{ {name} = {thread} < blockDim.x / 32 ? {shared[0]}[{thread}] : {reduction.start}; {fold} if ({thread} == 0) {{ {store} }} }}"
        )
        return text, f"{rows}, {block}"
    arrays = " ".join(f"__shared__ {element} {name}[{block}];" for name in shared)
    puts = " ".join(f"{array}[{thread}] = {name};" for array, name in zip(shared, names, strict=True))
    if len(names) == 1:
        tree = _tree(maker, reductions[0], shared[0], thread)
    else:
        s = _stride(maker)
        joins = []
        for reduction, array in zip(reductions, shared, strict=True):
            here, there = f"{array}[{thread}]", f"{array}[{thread} + {s}]"
            plain = reduction.kind in ("sum", "product")
            joins.append(reduction.join(here, there, f) if plain else f"{here} = {reduction.merged(here, there, f)};")
        tree = f"for (int {s} = blockDim.x / 2; {s} > 0; {s} >>= 1) {{ if ({thread} < {s}) {{ {' '.join(joins)} }} __syncthreads(); }}"
    final = store
    for array, name in zip(shared, names, strict=True):
        final = re.sub(rf"\b{name}\b", f"{array}[0]", final)
    return (
        f"{arrays} {head}{guard}{starts} {loop} {puts} __syncthreads(); {tree} if ({thread} == 0) {{ {final} }}",
        f"{rows}, {block}",
    )


def row_normalise(maker: Maker) -> Task:
    """One or two reductions over a row, then a pass that writes the row: softmax and anything like it."""
    rng = maker.rng
    if not maker.grammar.floating:
        maker.element = maker.grammar.element = "float"
    f, element = maker.f, maker.element
    rows = maker.size(3, 40, ["rows", "M", "n", "n_rows", "R", "batch", "N", "B"])
    cols = maker.size(3, 70, ["cols", "N", "d", "n_cols", "C", "dim", "K", "D", "len"])
    x = maker.buffer("in", rows, cols)
    scalars = [maker.scalar() for _ in range(rng.choice([0, 0, 1]))]
    out = maker.buffer("out", rows, cols)
    c = rng.choice(["c", "j", "k"])
    if c in maker.taken:
        c = "jj"
    cell = f"{x}[@r * {cols} + @c]"
    softmax = rng.random() < 0.35
    if softmax:
        m, s = maker.local(), maker.local()
        start = rng.choice(["-FLT_MAX", f"-1e30{f}", "-INFINITY"]) if element == "float" else "-DBL_MAX"
        if rng.random() < 0.2:
            start = f"{x}[@r * {cols}]"
        first = Reduction("max", start, cell)
        temperature = f" * {scalars[0]}" if scalars and rng.random() < 0.5 else ""
        scalars = [] if not temperature else scalars
        shifted = f"exp{f}({cell} - {m})" if not temperature else f"exp{f}(({cell} - {m}){temperature})"
        second = Reduction("sum", f"0.0{f}", shifted)
        passes = [(m, first), (s, second)]
        final = f"{out}[@r * {cols} + @c] = {shifted} / {s};"
        torch = f"torch.softmax({x}, dim={rng.choice(['1', '-1'])})" if not temperature else None
    else:
        first_name = maker.local()
        first = draw_reduction(maker, [cell, *scalars])
        passes = [(first_name, first)]
        atoms = [cell, first_name]
        if rng.random() < 0.3:
            second_name = maker.local()
            passes.append((second_name, draw_reduction(maker, [cell, first_name])))
            atoms.append(second_name)
        final = f"{out}[@r * {cols} + @c] = {maker.expr([*atoms, *scalars])};"
        torch = None
        if len(passes) == 1 and first.term == cell and first.kind in ("sum", "max", "min") and rng.random() < 0.4:
            node = maker.grammar.expression(["@A", "@B"], rng.choice([2, 2, 3]))
            shown = torch_of(node, rng)
            if shown and "@A" in shown and "@B" in shown:
                method = {"sum": "sum", "max": "amax", "min": "amin"}[first.kind]
                value = first_name
                if first.kind == "sum" and rng.random() < 0.5:
                    method, value = "mean", f"({first_name} / {cols})"
                shown_value = maker.grammar.text(node).replace("@A", cell).replace("@B", value)
                final = f"{out}[@r * {cols} + @c] = {shown_value};"
                torch = shown.replace("@A", x).replace("@B", f"{x}.{method}(dim=1, keepdim=True)")
    if scalars and not any(
        re.search(rf"\b{scalars[0]}\b", text) for text in (final, *(reduction.term for _, reduction in passes))
    ):
        maker.arguments[:] = [argument for argument in maker.arguments if argument.name != scalars[0]]
    store_first = softmax and rng.random() < 0.3

    def serial() -> str:
        parts = []
        for name, reduction in passes:
            update = reduction.join(name, reduction.term, f)
            if reduction.kind in ("max", "min") and rng.random() < 0.25 and reduction.term == cell:
                update = f"if ({cell} {'>' if reduction.kind == 'max' else '<'} {name}) {name} = {cell};"
            if store_first and name == passes[-1][0]:
                e = "e" if "e" not in maker.taken else "ev"
                update = f"{element} {e} = {reduction.term}; {out}[@r * {cols} + @c] = {e}; {name} += {e};"
            begin = "1" if reduction.start == f"{x}[@r * {cols}]" else "0"
            parts.append(
                f"{element} {name} = {reduction.start}; for (int @c = {begin}; @c < {cols}; @c++) {{ {update} }}"
            )
        last = f"{out}[@r * {cols} + @c] /= {passes[-1][0]};" if store_first else final
        parts.append(f"for (int @c = 0; @c < {cols}; @c++) {{ {last} }}")
        return " ".join(parts).replace("@c", c)

    text = serial()
    if rng.random() < 0.18:
        pointer = maker.local()
        cells = text.replace(f"{x}[@r * {cols} + {c}]", f"{pointer}[{c}]").replace(f"{x}[@r * {cols}]", f"{pointer}[0]")
        text = f"const {element}* {pointer} = {x} + @r * {cols}; {cells}"
    r = rng.choice(["r", "row", "i"])
    if r in maker.taken or re.search(rf"\b{r}\b", text):
        r = "row_id"
    cpu = f"for (int {r} = 0; {r} < {rows}; {r}++) {{ {text.replace('@r', r)} }}"
    topic = "row softmax" if softmax else ""
    if rng.random() < 0.6:
        body, launch, needs = over_1d(maker, rows, text.replace("@r", "@i"))
        return finish(maker, "row_normalise", body, cpu, launch, torch=torch, topic=topic, needs_launch=needs)
    block = rng.choice([64, 128, 256, 256, 512])
    used = text + final
    thread = next(
        name for name in ("tid", "t", "tx", "th_id") if not re.search(rf"\b{name}\b", used) and name not in maker.taken
    )
    row = next(name for name in ("row", "r", "blk") if not re.search(rf"\b{name}\b", used) and name not in maker.taken)
    shared = next(
        name
        for name in ("smem", "sdata", "cache", "buf_")
        if name not in maker.taken and not re.search(rf"\b{name}\b", used)
    )
    parts = [f"__shared__ {element} {shared}[{block}]; int {row} = blockIdx.x; int {thread} = threadIdx.x;"]
    partial = next(
        name
        for name in ("v", "part", "mine_")
        if not any(re.search(rf"\b{name}{at}\b", used) or f"{name}{at}" in maker.taken for at in (0, 1))
    )
    for at, (name, reduction) in enumerate(passes):
        start = f"-1e30{f}" if reduction.start.startswith(x) else reduction.start
        parts.append(
            f"{element} {partial}{at} = {start}; for (int {c} = {thread}; {c} < {cols}; {c} += blockDim.x) {{ {reduction.join(f'{partial}{at}', reduction.term, f)} }}".replace(
                "@c", c
            )
        )
        parts.append(
            f"{shared}[{thread}] = {partial}{at}; __syncthreads(); {_tree(maker, reduction, shared, thread)} {element} {name} = {shared}[0]; __syncthreads();"
        )
    parts.append(f"for (int {c} = {thread}; {c} < {cols}; {c} += blockDim.x) {{ {final} }}".replace("@c", c))
    body = " ".join(parts).replace("@r", row)
    return finish(maker, "row_normalise", body, cpu, f"{rows}, {block}", torch=torch, topic=topic, needs_launch=True)


def column_reduction(maker: Maker) -> Task:
    rng = maker.rng
    if not maker.grammar.floating:
        maker.element = maker.grammar.element = "float"
    f, element = maker.f, maker.element
    rows = maker.size(3, 40, ["rows", "M", "n", "n_rows", "R", "batch"])
    cols = maker.size(3, 70, ["cols", "N", "d", "n_cols", "C", "dim"])
    x = maker.buffer("in", rows, cols)
    scalars = [maker.scalar() for _ in range(rng.choice([0, 0, 1]))]
    out = maker.buffer("out", cols)
    reduction = draw_reduction(maker, [f"{x}[@r * {cols} + @i]", *scalars])
    name = maker.local()
    r = "r" if not re.search(r"\br\b", name) and "r" not in maker.taken else "row_i"
    value = name if rng.random() < 0.5 else maker.expr([name, f"({element}){rows}"], 2)
    value = value if re.search(rf"\b{name}\b", value) else name
    text = f"{element} {name} = {reduction.start}; for (int {r} = 0; {r} < {rows}; {r}++) {{ {reduction.join(name, reduction.term, f).replace('@r', r)} }} {out}[@i] = {value};"
    body, launch, needs = over_1d(maker, cols, text)
    torch = None
    if value == name and re.fullmatch(rf"{x}\[[^\]]*\]", reduction.term) and reduction.kind != "product":
        torch = f"{x}.{ {'sum': 'sum', 'max': 'amax', 'min': 'amin'}[reduction.kind] }(dim=0)"
    return finish(
        maker, "column_reduction", body, loops(maker, text, ("@i", "0", cols)), launch, torch=torch, needs_launch=needs
    )


def full_reduction(maker: Maker) -> Task:
    """A sum over everything, or over each block's part, with shared memory or shuffles."""
    rng = maker.rng
    if not maker.grammar.floating:
        maker.element = maker.grammar.element = "float"
    f, element = maker.f, maker.element
    n = maker.size(40, 300)
    atoms = [f"{maker.buffer('in', n)}[@i]"]
    dot = rng.random() < 0.4
    if dot or rng.random() < 0.3:
        atoms.append(f"{maker.buffer('in', n)}[@i]")
    if rng.random() < 0.2 and not dot:
        atoms.append(maker.scalar())
    block = rng.choice([64, 128, 256, 256, 512])
    term = " * ".join(atoms) if dot else maker.expr(atoms, None)
    reduction = Reduction("sum", f"0.0{f}", term)
    partial = rng.random() < 0.35
    name = maker.local()
    shared = next(candidate for candidate in ("smem", "sdata", "cache", "buf_") if candidate not in maker.taken)
    thread = next(
        candidate for candidate in ("tid", "t", "tx", "th_id") if candidate not in maker.taken and candidate != name
    )
    i = "i" if "i" not in maker.taken and name != "i" else "idx"
    tree = _tree(maker, reduction, shared, thread)
    loop_variable = "i" if name != "i" and "i" not in maker.taken else "k"
    if partial:
        per_block = rng.random() < 0.5
        out = maker.buffer("out", f"cdiv({n}, {block})", pool=["partial", "partials", "block_sums", "out", "sums"])
        cpu = f"for (int b = 0; b * {block} < {n}; b++) {{ {element} {name} = 0.0{f}; for (int {loop_variable} = b * {block}; {loop_variable} < {n} && {loop_variable} < (b + 1) * {block}; {loop_variable}++) {{ {name} += {term.replace('@i', loop_variable)}; }} {out}[b] = {name}; }}"
        load = (
            f"{shared}[{thread}] = {i} < {n} ? {term.replace('@i', i)} : 0.0{f};"
            if per_block
            else f"{element} {name} = 0.0{f}; if ({i} < {n}) {{ {name} = {term.replace('@i', i)}; }} {shared}[{thread}] = {name};"
        )
        if "?" in term and per_block:
            load = load.replace(term.replace("@i", i), f"({term.replace('@i', i)})")
        body = f"__shared__ {element} {shared}[{block}]; int {thread} = threadIdx.x; int {i} = blockIdx.x * blockDim.x + threadIdx.x; {load} __syncthreads(); {tree} if ({thread} == 0) {{ {out}[blockIdx.x] = {shared}[0]; }}"
        launch = f"cdiv({n}, {block}), {block}"
        if "b" in maker.taken:
            cpu = re.sub(r"\bb\b(?! *\[)", "blk", cpu) if not re.search(r"\bb\[", cpu) else cpu
            if re.search(r"\bb\b", " ".join(argument.name for argument in maker.arguments)):
                return full_reduction(Maker.new(rng, element))
    else:
        out = maker.buffer("io", "1", pool=["out", "result", "res", "total", "sum_out", "acc_out"])
        target = rng.choice([f"*{out}", f"{out}[0]"])
        cpu_type = rng.choice([element, element, "double"])
        start = "0.0" if cpu_type == "double" else f"0.0{f}"
        cpu = f"{cpu_type} {name} = {start}; for (int {loop_variable} = 0; {loop_variable} < {n}; {loop_variable}++) {{ {name} += {term.replace('@i', loop_variable)}; }} {rng.choice([f'{out}[0] = {name};', f'*{out} = {name};', f'{out}[0] += {name};'])}"
        address = out if target == f"*{out}" or rng.random() < 0.5 else f"&{out}[0]"
        style = rng.choices(["tree", "shuffle", "plain"], [70, 12, 18])[0]
        grid = rng.choice([f"cdiv({n}, {block})", str(rng.choice([1, 2, 4, 32]))])
        stride = f"for (int {i} = blockIdx.x * blockDim.x + threadIdx.x; {i} < {n}; {i} += blockDim.x * gridDim.x) {{ {name} += {term.replace('@i', i)}; }}"
        if style == "tree":
            body = f"__shared__ {element} {shared}[{block}]; int {thread} = threadIdx.x; {element} {name} = 0.0{f}; {stride} {shared}[{thread}] = {name}; __syncthreads(); {tree} if ({thread} == 0) {{ atomicAdd({address}, {shared}[0]); }}"
        elif style == "shuffle":
            body = f"{element} {name} = 0.0{f}; {stride} {_shuffles(maker, reduction, name)} if ((threadIdx.x & 31) == 0) {{ atomicAdd({address}, {name}); }}"
        else:
            body = f"{element} {name} = 0.0{f}; {stride} atomicAdd({address}, {name});"
        launch = f"{grid}, {block}"
    return finish(
        maker,
        "full_reduction",
        body,
        cpu,
        launch,
        topic="block dot product" if dot else "sum reduce",
        needs_launch=partial or True,
    )


def segments(maker: Maker) -> Task:
    """A loop per output over a range that depends on it: offsets from an array, triangles, fixed chunks, scans of pairs."""
    rng = maker.rng
    if not maker.grammar.floating:
        maker.element = maker.grammar.element = "float"
    element, f = maker.element, maker.f
    n = maker.size(8, 30)
    form = rng.choice(["offsets", "chunk", "triangle", "all", "all"])
    bounds = ""
    j = rng.choice(["j", "k", "p"])
    if j in maker.taken:
        j = "jj"
    maker.taken.add(j)
    scalars = [maker.scalar() for _ in range(rng.choice([0, 0, 1]))]
    if form == "offsets":
        offsets = maker.buffer(
            "in", f"{n} + 1", type_="int", low=-1, high=-1, pool=["offsets", "ptr", "starts", "indptr", "begin", "seg"]
        )
        x = maker.buffer("in", f"3 * {n} + 3", pool=["vals", "values", "x", "data", "v"])
        span = (f"{offsets}[@i]", f"{offsets}[@i + 1]")
        atoms = [f"{x}[{j}]"]
        if rng.random() < 0.5:
            low = maker.name(["begin", "start", "lo", "b", "first"])
            high = maker.name(["end", "stop", "hi", "e", "last"])
            bounds = f"int {low} = {span[0]}; int {high} = {span[1]}; "
            if rng.random() < 0.4:
                bounds = f"int {low} = {span[0]}, {high} = {span[1]}; "
            span = (low, high)
    elif form == "chunk":
        size = maker.size(2, 9, ["chunk", "len", "width", "stride_", "per", "group"])
        x = maker.buffer("in", n, size)
        span = (f"@i * {size}", f"(@i + 1) * {size}")
        atoms = [f"{x}[{j}]"]
        if rng.random() < 0.5:
            span, atoms = ("0", size), [f"{x}[@i * {size} + {j}]"]
    elif form == "triangle":
        x = maker.buffer("in", n)
        span = ("@i", n) if rng.random() < 0.4 else ("0", "@i")
        atoms = [f"{x}[{j}]", f"{x}[@i]"]
    else:
        m = maker.size(5, 40, ["m", "M", "k_", "num_pts", "taps", "terms"])
        x, y = maker.buffer("in", n), maker.buffer("in", m)
        span = ("0", m)
        atoms = [f"{x}[@i]", f"{y}[{j}]"]
        if rng.random() < 0.3:
            atoms.append(f"{maker.buffer('in', m)}[{j}]")
    reductions = [draw_reduction(maker, [*atoms, *scalars]) for _ in range(rng.choice([1, 1, 2]))]
    if rng.random() < 0.3:
        names = [maker.local()]
        start = rng.choice([f"0.0{f}", f"1.0{f}", maker.grammar.number()[1]])
        update = f"{names[0]} = {maker.expr([names[0], *atoms], rng.choice([2, 3, 3]))};"
        starts = f"{element} {names[0]} = {start};"
    else:
        names = [maker.local() for _ in reductions]
        starts = " ".join(
            f"{element} {name} = {reduction.start};" for reduction, name in zip(reductions, names, strict=True)
        )
        update = " ".join(
            reduction.join(name, reduction.term, f) for reduction, name in zip(reductions, names, strict=True)
        )
        if rng.random() < 0.2:
            update = f"if ({maker.cond(atoms)}) {{ {update} }}"
    out = maker.buffer("out", n)
    value = names[0] if len(names) == 1 and rng.random() < 0.6 else maker.expr([*names, *scalars], None)
    text = f"{bounds}{starts} for (int {j} = {span[0]}; {j} < {span[1]}; {j}++) {{ {update} }} {out}[@i] = {value};"
    body, launch, needs = over_1d(maker, n, text)
    return finish(maker, "segments", body, loops(maker, text, ("@i", "0", n)), launch, needs_launch=needs)


def row_count(maker: Maker) -> Task:
    """How many elements of each row meet a condition."""
    rng = maker.rng
    if not maker.grammar.floating:
        maker.element = maker.grammar.element = "float"
    rows = maker.size(3, 40, ["rows", "M", "n", "n_rows", "R", "batch", "N"])
    cols = maker.size(3, 60, ["cols", "N", "d", "n_cols", "C", "dim", "K"])
    x = maker.buffer("in", rows, cols)
    scalars = [maker.scalar() for _ in range(rng.choice([0, 1, 1]))]
    out = maker.buffer("out", rows, type_="int")
    count, c = maker.local(), next(name for name in ("c", "j", "k", "cc") if name not in maker.taken)
    condition = maker.cond([f"{x}[@i * {cols} + {c}]", *scalars])
    change = rng.choice(
        [
            f"if ({condition}) {count}++;",
            f"if ({condition}) {{ {count} += 1; }}",
            f"{count} += ({condition}) ? 1 : 0;",
            f"if ({condition}) {{ {count}++; }} else {{ {count}--; }}",
        ]
    )
    text = f"int {count} = 0; for (int {c} = 0; {c} < {cols}; {c}++) {{ {change} }} {out}[@i] = {count};"
    body, launch, needs = over_1d(maker, rows, text)
    return finish(maker, "row_count", body, loops(maker, text, ("@i", "0", rows)), launch, needs_launch=needs)


def running(maker: Maker) -> Task:
    """A state carried along each row or each column, written at every step."""
    rng = maker.rng
    if not maker.grammar.floating:
        maker.element = maker.grammar.element = "float"
    rows = maker.size(3, 30, ["rows", "n", "M", "batch", "N", "series"])
    cols = maker.size(3, 30, ["cols", "T_", "steps_n", "len", "C", "d", "length"])
    x = maker.buffer("in", rows, cols)
    scalars = [maker.scalar() for _ in range(rng.choice([0, 1, 1, 2]))]
    out = maker.buffer("out", rows, cols)
    down = rng.random() < 0.3
    count, inner = (cols, rows) if down else (rows, cols)
    k = next(name for name in [*rng.sample(["j", "k", "t"], 3), "kk"] if name not in maker.taken)
    maker.taken.add(k)
    at = f"{k} * {cols} + @i" if down else f"@i * {cols} + {k}"
    state = maker.local()
    start = rng.choice([maker.zero, maker.grammar.text(maker.grammar.one()), *scalars[:1]])
    update = f"{state} = {maker.expr([state, f'{x}[{at}]', *scalars], None)};"
    value = state if rng.random() < 0.6 else maker.expr([state, f"{x}[{at}]"], 2)
    text = f"{maker.element} {state} = {start}; for (int {k} = 0; {k} < {inner}; {k}++) {{ {update} {out}[{at}] = {value}; }}"
    body, launch, needs = over_1d(maker, count, text)
    return finish(maker, "running", body, loops(maker, text, ("@i", "0", count)), launch, needs_launch=needs)


def batched_reduction(maker: Maker) -> Task:
    """Three dimensions to two: each row of each batch to one value, with a second operand."""
    rng = maker.rng
    if not maker.grammar.floating:
        maker.element = maker.grammar.element = "float"
    batch = maker.size(2, 6, ["batch", "B", "heads", "n_batch", "b_"])
    rows = maker.size(3, 12, ["rows", "M", "m", "n", "N", "R"])
    cols = maker.size(3, 20, ["cols", "K", "d", "dim", "inner_", "C"])
    x = maker.buffer("in", batch, rows, cols)
    k = next(name for name in [*rng.sample(["j", "k", "c"], 3), "kk"] if name not in maker.taken)
    maker.taken.add(k)
    atoms = [
        f"{x}[(@r * {rows} + @c) * {cols} + {k}]"
        if rng.random() < 0.6
        else f"{x}[@r * {rows} * {cols} + @c * {cols} + {k}]"
    ]
    kind = rng.choice(["vector", "matrix", "batch", "none"])
    if kind == "vector":
        atoms.append(f"{maker.buffer('in', cols)}[{k}]")
    elif kind == "matrix":
        atoms.append(f"{maker.buffer('in', rows, cols)}[@c * {cols} + {k}]")
    elif kind == "batch":
        atoms.append(f"{maker.buffer('in', batch, cols)}[@r * {cols} + {k}]")
    out = maker.buffer("out", batch, rows)
    reduction = draw_reduction(maker, atoms)
    if kind in ("batch", "vector") and re.fullmatch(r"\S+\[[^\]]*\] \* \S+\[[^\]]*\]", reduction.term):
        reduction = evolve(reduction, term=f"fabs{maker.f}({reduction.term})")
    name = maker.local()
    value = name if rng.random() < 0.5 else maker.expr([name], 2)
    text = f"{maker.element} {name} = {reduction.start}; for (int {k} = 0; {k} < {cols}; {k}++) {{ {reduction.join(name, reduction.term, maker.f)} }} {out}[@r * {rows} + @c] = {value};"
    body, launch, needs = over_2d(maker, batch, rows, text)
    cpu = loops(maker, text, ("@r", "0", batch), ("@c", "0", rows))
    return finish(maker, "batched_reduction", body, cpu, launch, needs_launch=needs)
