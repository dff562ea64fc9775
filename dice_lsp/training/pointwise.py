"""Shapes in which every output element is on its own: elementwise, neighbours, bins, bits, records."""

import re

from attrs import evolve

from dice_lsp.training.expressions import Node, torch_of
from dice_lsp.training.maker import Maker, Task, finish, host_device_function, named_constant
from dice_lsp.training.statements import accumulate, statements
from dice_lsp.training.walks import BLOCKS, loops, over_1d, over_2d

# ruff: noqa: E501 - a template of a kernel is read as one line of C


def elementwise_1d(maker: Maker) -> Task:
    rng = maker.rng
    named_constant(maker)
    atoms: list[str] = []
    variant = rng.choices(
        ["same", "strided", "indexed", "block", "flat", "scattered", "strided_out"], [60, 10, 9, 7, 6, 3, 5]
    )[0]
    if variant == "flat":
        return _flat(maker)
    n = maker.size(20, 90)
    count, first = n, "0"
    plain = True
    for _ in range(rng.choices([1, 2, 3], [45, 40, 15])[0]):
        index, extent = "@i", (n,)
        roll = rng.random()
        if variant == "strided" and roll < 0.7:
            factor = rng.choice([2, 2, 3, 4])
            offset = rng.randrange(factor)
            index = (
                rng.choice([f"{factor} * @i + {offset}", f"@i * {factor} + {offset}"])
                if offset
                else rng.choice([f"{factor} * @i", f"@i * {factor}"])
            )
            extent, plain = (f"{factor} * {n}",), False
        elif variant == "block" and roll < 0.6:
            factor = rng.choice([2, 3, 4, 8, 10])
            index = rng.choice([f"@i / {factor}", f"@i % {factor}", f"@i % {factor}"])
            plain = False
        elif variant == "same" and roll < 0.06:
            index, plain = f"{n} - 1 - @i", False
        elif variant == "same" and roll < 0.1:
            shift = rng.choice(["1", "2", str(rng.randrange(3, 9))])
            index, plain = f"(@i + {shift}) % {n}", False
        name = maker.buffer("in", *extent)
        atoms.append(f"{name}[{index}]")
    if variant == "indexed":
        indices = maker.buffer(
            "in",
            n,
            type_="int",
            low=0,
            high=maker.sizes[n],
            pool=["idx_", "indices", "order", "perm", "map", "ids", "ptr", "nbr"],
        )
        source = maker.buffer("in", n)
        atoms.append(f"{source}[{indices}[@i]]")
        plain = False
    for _ in range(rng.choices([0, 1, 2, 3], [40, 32, 20, 8])[0]):
        atoms.append(maker.scalar())
    integers = ["@i"] if rng.random() < 0.12 else []
    targets: list[tuple[str, bool]] = []
    if variant == "strided_out":
        factor = rng.choice([2, 2, 3])
        out = maker.buffer("out", f"{factor} * {n}")
        style = rng.random() < 0.5
        for at in range(factor):
            base = f"{factor} * @i" if style else f"@i * {factor}"
            targets.append((f"{out}[{base} + {at}]" if at else f"{out}[{base}]", False))
        plain = False
    if variant == "scattered":
        order = maker.buffer("in", n, type_="int", low=-2, high=-2, pool=["perm", "order", "idx_", "map", "dest_of"])
        out = maker.buffer("out", n)
        targets.append((f"{out}[{order}[@i]]", False))
        plain = False
    for _ in range(rng.choices([1, 2], [90, 10])[0] if not targets else 0):
        accumulates = rng.random() < 0.1
        out = maker.buffer("io" if accumulates or rng.random() < 0.08 else "out", n)
        if maker.arguments[-1].role == "io" and not accumulates:
            atoms.append(f"{out}[@i]")
        targets.append((f"{out}[@i]", accumulates))
    helper = host_device_function(maker)
    if helper:
        chosen = rng.randrange(len(atoms))
        atoms[chosen] = f"{helper}({atoms[chosen]})"
        plain = False
    text, node = statements(maker, targets, atoms, integers)
    if helper and helper not in text:
        maker.declarations = ""
    body, launch, needs = over_1d(maker, count, text, first)
    cpu = loops(maker, text, ("@i", first, count))
    torch = formula = None
    if node is not None and plain and not integers:
        torch = torch_of(_whole(node), rng)
        if torch and (maker.element in ("int", "unsigned") or maker.declarations):
            torch = None
    if node is not None and not helper:
        formula = f"{targets[0][0].replace('@i', 'i')} = {maker.grammar.text(node).replace('@i', 'i')}"
    return finish(maker, "elementwise_1d", body, cpu, launch, torch=torch, formula=formula, needs_launch=needs)


def _flat(maker: Maker) -> Task:
    """Two dimensions walked as one, with rows and columns found by division."""
    rng = maker.rng
    rows = maker.size(4, 14, ["rows", "M", "batch", "B", "h", "n", "N", "R"])
    cols = maker.size(4, 14, ["cols", "N", "C", "channels", "w", "d", "D", "dim"])
    atoms = [f"{maker.buffer('in', rows, cols)}[@i]"]
    for kind in rng.sample(["row", "col", "full"], rng.choice([1, 1, 2])):
        if kind == "full":
            atoms.append(f"{maker.buffer('in', rows, cols)}[@i]")
        else:
            name = maker.buffer("in", rows if kind == "row" else cols, pool=["bias", "scale", "b", "g", "w", "mean"])
            atoms.append(f"{name}[@i / {cols}]" if kind == "row" else f"{name}[@i % {cols}]")
    atoms += [maker.scalar() for _ in range(rng.choice([0, 0, 1]))]
    out = maker.buffer("out", rows, cols)
    text, _ = statements(maker, [(f"{out}[@i]", False)], atoms, [])
    count = f"{rows} * {cols}"
    body, launch, needs = over_1d(maker, count, text)
    return finish(maker, "elementwise_1d", body, loops(maker, text, ("@i", "0", count)), launch, needs_launch=needs)


def _whole(node: Node) -> Node:
    """Atoms `x[@i]` as whole tensors `x`."""
    if node[0] == "atom":
        return ("atom", re.sub(r"\[.*\]", "", str(node[1])))
    return tuple(_whole(part) if isinstance(part, tuple) else part for part in node)


def elementwise_2d(maker: Maker) -> Task:
    rng = maker.rng
    named_constant(maker)
    rows = maker.size(5, 24, ["rows", "M", "h", "height", "H", "m", "n_rows", "R", "ny"])
    cols = maker.size(5, 24, ["cols", "N", "w", "width", "W", "n", "n_cols", "C", "nx"])
    atoms: list[str] = []
    shapes: dict[str, str] = {}
    plain = True
    for _ in range(rng.choices([1, 2, 3], [35, 45, 20])[0]):
        kind = rng.choices(["full", "row", "col", "transposed", "flip", "shift", "indexed"], [48, 16, 16, 9, 4, 3, 4])[
            0
        ]
        if not atoms and kind in ("row", "col") and rng.random() < 0.7:
            kind = "full"
        if kind == "full":
            name = maker.buffer("in", rows, cols)
            atoms.append(f"{name}[@r * {cols} + @c]")
        elif kind == "row":
            name = maker.buffer("in", rows, pool=["bias", "row_scale", "b", "v", "u", "s", "a"])
            atoms.append(f"{name}[@r]")
            shapes[name] = "row"
        elif kind == "col":
            name = maker.buffer("in", cols, pool=["bias", "col_scale", "b", "v", "u", "w", "g"])
            atoms.append(f"{name}[@c]")
            shapes[name] = "col"
        elif kind == "transposed":
            name = maker.buffer("in", cols, rows)
            atoms.append(f"{name}[@c * {rows} + @r]")
            shapes[name] = "transposed"
        elif kind == "flip":
            name = maker.buffer("in", rows, cols)
            atoms.append(
                rng.choice([f"{name}[@r * {cols} + ({cols} - 1 - @c)]", f"{name}[({rows} - 1 - @r) * {cols} + @c]"])
            )
            plain = False
        elif kind == "shift":
            name = maker.buffer("in", rows, cols)
            atoms.append(
                rng.choice([f"{name}[@r * {cols} + (@c + 1) % {cols}]", f"{name}[((@r + 1) % {rows}) * {cols} + @c]"])
            )
            plain = False
        else:
            index = maker.buffer(
                "in",
                rows,
                type_="int",
                low=0,
                high=maker.sizes[rows],
                pool=["ids", "indices", "perm", "row_map", "labels"],
            )
            name = maker.buffer("in", rows, cols)
            atoms.append(f"{name}[{index}[@r] * {cols} + @c]")
            plain = False
    for _ in range(rng.choices([0, 1, 2], [50, 35, 15])[0]):
        atoms.append(maker.scalar())
    integers = ["@r", "@c"] if rng.random() < 0.15 else []
    transposed = rng.random() < 0.1
    accumulates = rng.random() < 0.08
    out = maker.buffer("io" if accumulates else "out", *((cols, rows) if transposed else (rows, cols)))
    target = f"{out}[@c * {rows} + @r]" if transposed else f"{out}[@r * {cols} + @c]"
    index_name = None
    text, node = statements(maker, [(target, accumulates)], atoms, integers)
    flat = f"@r * {cols} + @c"
    if text.count(flat) > 1 and rng.random() < 0.3:
        index_name = next(
            name
            for name in ("k", "p", "off", "at", "flat")
            if name not in maker.taken and not re.search(rf"\b{name}\b", text)
        )
        text = f"int {index_name} = {flat}; " + text.replace(flat, index_name)
    body, launch, needs = over_2d(maker, rows, cols, text)
    cpu = loops(maker, text, ("@r", "0", rows), ("@c", "0", cols))
    if rng.random() < 0.1:
        r, c = (maker.name(["r", "row", "y", "i0", "rr"]) for _ in range(2))
        walked = text.replace("@r", r).replace("@c", c)
        cpu = loops(maker, f"int {r} = @i / {cols}; int {c} = @i % {cols}; {walked}", ("@i", "0", f"{rows} * {cols}"))
    torch = formula = None
    if (
        node is not None
        and plain
        and not transposed
        and not integers
        and maker.grammar.floating
        and not maker.declarations
    ):
        torch = torch_of(_whole(node), rng)
        for name, kind in shapes.items():
            if torch:
                spelled = {"row": f"{name}[:, None]", "col": name, "transposed": f"{name}.t()"}[kind]
                torch = re.sub(rf"\b{name}\b", spelled, torch)
        if "full" not in [shapes.get(re.split(r"\[", atom)[0], "full") for atom in atoms if "[" in atom]:
            torch = None
    if node is not None and index_name is None:
        formula = f"{target} = {maker.grammar.text(node)}".replace("@r", "r").replace("@c", "c")
    return finish(maker, "elementwise_2d", body, cpu, launch, torch=torch, formula=formula, needs_launch=needs)


def elementwise_3d(maker: Maker) -> Task:
    rng = maker.rng
    batch = maker.size(2, 5, ["batch", "B", "C", "channels", "nz", "D", "depth"])
    rows = maker.size(3, 9, ["rows", "M", "h", "height", "H", "ny"])
    cols = maker.size(3, 9, ["cols", "N", "w", "width", "W", "nx"])
    flat = rng.choice([f"(@b * {rows} + @r) * {cols} + @c", f"@b * {rows} * {cols} + @r * {cols} + @c"])
    atoms = []
    for _ in range(rng.choice([1, 2])):
        name = maker.buffer("in", batch, rows, cols)
        atoms.append(f"{name}[{flat}]")
    for index, extent in rng.sample([("@b", batch), ("@r", rows), ("@c", cols)], rng.choice([0, 1, 1, 2])):
        name = maker.buffer("in", extent, pool=["bias", "scale", "g", "w", "mean", "gain"])
        atoms.append(f"{name}[{index}]")
    if rng.random() < 0.2:
        name = maker.buffer("in", rows, cols)
        atoms.append(f"{name}[@r * {cols} + @c]")
    if rng.random() < 0.4:
        atoms.append(maker.scalar())
    permuted = rng.random() < 0.15
    out = maker.buffer("out", *((rows, cols, batch) if permuted else (batch, rows, cols)))
    target = f"{out}[(@r * {cols} + @c) * {batch} + @b]" if permuted else f"{out}[{flat}]"
    text, _ = statements(maker, [(target, False)], atoms, [])
    if text.count(flat) > 1 and rng.random() < 0.4 and "@continue" not in text:
        at = maker.name(["at", "index_", "pos", "off", "p", "q", "e"])
        text = f"int {at} = {flat}; " + text.replace(flat, at)
    cpu = loops(maker, text, ("@b", "0", batch), ("@r", "0", rows), ("@c", "0", cols))
    names = next(
        names
        for names in (("b", "r", "c"), ("bz", "row", "col"), ("z_i", "y_i", "x_i"))
        if not set(names) & (maker.taken) and not any(re.search(rf"\b{name}\b", text) for name in names)
    )
    b, r, c = names
    inside = text.replace("@continue", "return").replace("@b", b).replace("@r", r).replace("@c", c)
    if rng.random() < 0.5:
        block = rng.choice(BLOCKS)
        index = next(
            name
            for name in ("i", "idx", "flat_index")
            if not re.search(rf"\b{name}\b", inside) and name not in maker.taken
        )
        total = f"{batch} * {rows} * {cols}"
        split = (
            f"int {c} = {index} % {cols}; int {r} = ({index} / {cols}) % {rows}; int {b} = {index} / ({rows} * {cols});"
        )
        body = f"int {index} = blockIdx.x * blockDim.x + threadIdx.x; if ({index} < {total}) {{ {split} {inside} }}"
        launch = f"cdiv({total}, {block}), {block}"
    else:
        bx, by = rng.choice([(16, 16), (8, 8), (32, 8)])
        depth = rng.random() < 0.6
        third = f"int {b} = blockIdx.z;" if depth else f"int {b} = blockIdx.z * blockDim.z + threadIdx.z;"
        guard = f"{c} < {cols} && {r} < {rows}" + ("" if depth else f" && {b} < {batch}")
        body = f"int {c} = blockIdx.x * blockDim.x + threadIdx.x; int {r} = blockIdx.y * blockDim.y + threadIdx.y; {third} if ({guard}) {{ {inside} }}"
        launch = (
            f"{{cdiv({cols}, {bx}), cdiv({rows}, {by}), {batch}}}, {{{bx}, {by}}}"
            if depth
            else f"{{cdiv({cols}, {bx}), cdiv({rows}, {by}), cdiv({batch}, 2)}}, {{{bx}, {by}, 2}}"
        )
    return finish(maker, "elementwise_3d", body, cpu, launch, needs_launch=True)


def neighbours_1d(maker: Maker) -> Task:
    rng = maker.rng
    n = maker.size(20, 80)
    x = maker.buffer("in", n)
    extra = [f"{maker.buffer('in', n)}[@i]"] if rng.random() < 0.25 else []
    scalars = [maker.scalar() for _ in range(rng.choice([0, 0, 1, 1, 2]))]
    out = maker.buffer("out", n)
    zero = maker.zero
    reach = rng.choice([1, 1, 1, 2])
    form = rng.choice(["interior", "guard", "guard", "zero", "clamp", "wrap", "window", "window"])
    left, here, right = f"{x}[@i - {reach}]", f"{x}[@i]", f"{x}[@i + {reach}]"
    element = maker.element
    if form == "interior":
        text, _ = statements(maker, [(f"{out}[@i]", False)], [left, here, right, *extra, *scalars], [])
        if rng.random() < 0.4:
            maker.arguments[:] = [
                evolve(argument, role="io") if argument.name == out else argument for argument in maker.arguments
            ]
            last = f"{n} - {reach}"
            body, launch, needs = over_1d(maker, last, text, str(reach))
            if needs:
                launch = re.sub(r"^\d+", "2", launch)
            else:
                launch = launch.replace(f"cdiv({last},", f"cdiv({n},")
            return finish(
                maker, "neighbours_1d", body, loops(maker, text, ("@i", str(reach), last)), launch, needs_launch=needs
            )
        other = rng.choice([here, zero])
        text = f"if (@i >= {reach} && @i < {n} - {reach}) {{ {text} }} else {{ {out}[@i] = {other}; }}"
    elif form == "guard":
        text, _ = statements(maker, [(f"{out}[@i]", False)], [left, here, right, *extra, *scalars], [])
        test = (
            rng.choice([f"@i == 0 || @i == {n} - 1", f"@i < 1 || @i >= {n} - 1"])
            if reach == 1
            else f"@i < {reach} || @i >= {n} - {reach}"
        )
        text = f"if ({test}) {{ {out}[@i] = {rng.choice([here, zero])}; }} else {{ {text} }}"
    elif form == "zero":
        a, b = maker.local(), maker.local()
        value, _ = statements(maker, [(f"{out}[@i]", False)], [a, b, here, *extra, *scalars], [])
        low = rng.choice(
            [f"@i > 0 ? {x}[@i - 1] : {zero}", f"(@i > 0) ? {x}[@i - 1] : {zero}", f"@i == 0 ? {zero} : {x}[@i - 1]"]
        )
        high = rng.choice(
            [f"@i < {n} - 1 ? {x}[@i + 1] : {zero}", f"(@i + 1 < {n}) ? {x}[@i + 1] : {rng.choice([zero, here])}"]
        )
        text = f"{element} {a} = {low}; {element} {b} = {high}; {value}"
    elif form == "clamp":
        a, b = maker.local(), maker.local()
        value, _ = statements(maker, [(f"{out}[@i]", False)], [f"{x}[{a}]", f"{x}[{b}]", here, *extra, *scalars], [])
        text = rng.choice([
            f"int {a} = @i > 0 ? @i - 1 : 0; int {b} = @i < {n} - 1 ? @i + 1 : {n} - 1; {value}",
            f"int {a} = max(@i - {reach}, 0); int {b} = min(@i + {reach}, {n} - 1); {value}",
        ])  # fmt: skip
    elif form == "wrap":
        a, b = maker.local(), maker.local()
        value, _ = statements(maker, [(f"{out}[@i]", False)], [f"{x}[{a}]", f"{x}[{b}]", here, *extra, *scalars], [])
        text = f"int {a} = (@i + {n} - {reach}) % {n}; int {b} = (@i + {reach}) % {n}; {value}"
    else:
        radius = str(rng.choice([1, 2, 3, 4]))
        if rng.random() < 0.4:
            maker.size(1, 5, ["radius", "r_", "R", "half", "k_half", "win"])
            radius = maker.arguments[-1].name
        accumulator, k, j = maker.local(), "k", maker.local()
        start, change = accumulate(maker, accumulator, [f"{x}[{j}]", here, *scalars[:1]])
        counted = rng.random() < 0.3
        count = maker.local() if counted else ""
        inside = f"{change}{f' {count}++;' if counted else ''}"
        loop = rng.choice([
            f"for (int {k} = -{radius}; {k} <= {radius}; {k}++) {{ int {j} = @i + {k}; if ({j} >= 0 && {j} < {n}) {{ {inside} }} }}",
            f"for (int {j} = max(0, @i - {radius}); {j} <= min({n} - 1, @i + {radius}); {j}++) {{ {inside} }}",
            f"for (int {j} = @i - {radius}; {j} <= @i + {radius}; {j}++) {{ if ({j} < 0 || {j} >= {n}) continue; {inside} }}",
        ])  # fmt: skip
        value = (
            f"{accumulator} / {count}"
            if counted and maker.grammar.floating
            else rng.choice([accumulator, maker.expr([accumulator, *scalars, *extra], None)])
        )
        text = (
            f"{element} {accumulator} = {start};{f' int {count} = 0;' if counted else ''} {loop} {out}[@i] = {value};"
        )
    body, launch, needs = over_1d(maker, n, text)
    return finish(maker, "neighbours_1d", body, loops(maker, text, ("@i", "0", n)), launch, needs_launch=needs)


def neighbours_2d(maker: Maker) -> Task:
    rng = maker.rng
    rows = maker.size(6, 20, ["rows", "h", "height", "H", "ny", "M"])
    cols = maker.size(6, 20, ["cols", "w", "width", "W", "nx", "N"])
    x = maker.buffer("in", rows, cols)
    scalars = [maker.scalar() for _ in range(rng.choice([0, 0, 1, 2]))]
    out = maker.buffer("out", rows, cols)
    target = f"{out}[@r * {cols} + @c]"
    here = f"{x}[@r * {cols} + @c]"
    element = maker.element
    form = rng.choice(["interior", "window", "window", "clamped", "pooled"])
    pooled = form == "pooled"
    if form == "interior":
        around = [
            f"{x}[(@r - 1) * {cols} + @c]",
            f"{x}[(@r + 1) * {cols} + @c]",
            f"{x}[@r * {cols} + @c - 1]",
            f"{x}[@r * {cols} + @c + 1]",
            f"{x}[(@r + 1) * {cols} + @c + 1]",
            f"{x}[(@r - 1) * {cols} + @c - 1]",
        ]
        atoms = rng.sample(around, rng.choice([2, 3, 3]))
        text, _ = statements(maker, [(target, False)], [*atoms, *([here] if rng.random() < 0.5 else []), *scalars], [])
        if rng.random() < 0.35:
            maker.arguments[:] = [
                evolve(argument, role="io") if argument.name == out else argument for argument in maker.arguments
            ]
            body, launch, needs = over_2d(maker, rows, cols, text, border=1)
            cpu = loops(maker, text, ("@r", "1", f"{rows} - 1"), ("@c", "1", f"{cols} - 1"))
            return finish(maker, "neighbours_2d", body, cpu, launch, needs_launch=needs)
        inner = f"@r > 0 && @r < {rows} - 1 && @c > 0 && @c < {cols} - 1"
        outer = f"@r == 0 || @r == {rows} - 1 || @c == 0 || @c == {cols} - 1"
        fallback = f"{target} = {rng.choice([here, maker.zero])};"
        text = (
            f"if ({inner}) {{ {text} }} else {{ {fallback} }}"
            if rng.random() < 0.5
            else f"if ({outer}) {{ {fallback} }} else {{ {text} }}"
        )
    elif form == "clamped":
        up, down = maker.local(), maker.local()
        vertical = rng.random() < 0.5
        if vertical:
            head = f"int {up} = max(@r - 1, 0); int {down} = min(@r + 1, {rows} - 1);"
            atoms = [f"{x}[{up} * {cols} + @c]", f"{x}[{down} * {cols} + @c]"]
        else:
            head = f"int {up} = @c > 0 ? @c - 1 : 0; int {down} = @c + 1 < {cols} ? @c + 1 : {cols} - 1;"
            atoms = [f"{x}[@r * {cols} + {up}]", f"{x}[@r * {cols} + {down}]"]
        text, _ = statements(maker, [(target, False)], [*atoms, here, *scalars], [])
        text = f"{head} {text}"
    elif form == "window":
        accumulator, dy, dx = maker.local(), rng.choice(["dy", "di", "a_", "ky"]), rng.choice(["dx", "dj", "b_", "kx"])
        yy, xx = maker.local(), maker.local()
        radius = rng.choice(["1", "1", "2"])
        start, change = accumulate(
            maker, accumulator, [f"{x}[{yy} * {cols} + {xx}]", *rng.choice([[], [here]]), *scalars[:1]]
        )
        guard = f"{yy} >= 0 && {yy} < {rows} && {xx} >= 0 && {xx} < {cols}"
        away = f"{yy} < 0 || {yy} >= {rows} || {xx} < 0 || {xx} >= {cols}"
        inside = f"if ({guard}) {{ {change} }}" if rng.random() < 0.7 else f"if ({away}) continue; {change}"
        text = f"{element} {accumulator} = {start}; for (int {dy} = -{radius}; {dy} <= {radius}; {dy}++) {{ for (int {dx} = -{radius}; {dx} <= {radius}; {dx}++) {{ int {yy} = @r + {dy}; int {xx} = @c + {dx}; {inside} }} }} {target} = {rng.choice([accumulator, maker.expr([accumulator, here], None)])};"
    else:
        # Windows that do not overlap, with an operation of their own.
        k = str(rng.choice([2, 2, 3, 4]))
        out_rows, out_cols = rows, cols
        arguments = {argument.name: argument for argument in maker.arguments}
        maker.arguments[:] = [
            evolve(arguments[a.name], extents=(f"{rows} * {k}", f"{cols} * {k}")) if a.name == x else a
            for a in maker.arguments
        ]
        accumulator = maker.local()
        a, b = rng.choice([("a_", "b_"), ("dy", "dx"), ("u_i", "v_i"), ("ky", "kx")])
        cell = f"{x}[(@r * {k} + {a}) * ({cols} * {k}) + @c * {k} + {b}]"
        start, change = accumulate(maker, accumulator, [cell, *scalars[:1]], sums=True)
        text = f"{element} {accumulator} = {start}; for (int {a} = 0; {a} < {k}; {a}++) {{ for (int {b} = 0; {b} < {k}; {b}++) {{ {change} }} }} {target} = {maker.expr([accumulator], 2)};"
        rows, cols = out_rows, out_cols
    body, launch, needs = over_2d(maker, rows, cols, text)
    cpu = loops(maker, text, ("@r", "0", rows), ("@c", "0", cols))
    return finish(maker, "pooled" if pooled else "neighbours_2d", body, cpu, launch, needs_launch=needs)


def histogram(maker: Maker) -> Task:
    """Counts or sums into bins by atomics, direct or through shared memory."""
    rng = maker.rng
    kind = rng.choice(["uchar", "int", "float", "weighted"])
    count = maker.size(50, 300)
    bins_fixed = rng.random() < 0.4
    bins = str(rng.choice([16, 32, 64, 128, 256])) if bins_fixed or kind == "uchar" else ""
    if kind == "uchar":
        bins = "256"
        x = maker.buffer("in", count, type_="unsigned char")
    if not bins:
        bins = maker.size(4, 60, ["bins", "n_bins", "num_bins", "B", "nbins", "K"])
    limit = maker.sizes.get(bins, int(bins) if bins.isdigit() else 0)
    if kind in ("int", "weighted"):
        x = maker.buffer("in", count, type_="int", low=0, high=limit if rng.random() < 0.6 else limit * 3)
    if kind == "float":
        x = maker.buffer("in", count, type_="float")
    weight = (
        f"{maker.buffer('in', count, type_='float', pool=['w', 'weights', 'v'])}[@i]" if kind == "weighted" else "1"
    )
    out_type = "float" if kind == "weighted" else rng.choice(["int", "unsigned int", "int"])
    hist = maker.buffer("io", bins, type_=out_type, pool=["hist", "bins_out", "counts", "h", "out", "histogram"])
    if out_type == "unsigned int" and weight == "1":
        weight = rng.choice(["1", "1u"])
    b = maker.local()
    wide = kind == "int" and maker.arguments[-2 if kind != "weighted" else -3].high > limit
    if kind == "float":
        low, scale = rng.choice(
            [
                ("", f" * {bins}"),
                ("", f" * (float){bins}"),
                (f" + {rng.choice(['1.0f', '0.5f', '2.0f'])}", f" * {rng.choice(['4.0f', '8.0f', '2.5f'])}"),
            ]
        )
        value = f"(int)({f'({x}[@i]{low})' if low else f'{x}[@i]'}{scale})"
        clampings = [
            f"if ({b} < 0) {b} = 0; if ({b} >= {bins}) {b} = {bins} - 1;",
            f"{b} = max(0, min({b}, {bins} - 1));",
            f"{b} = min(max({b}, 0), {bins} - 1);",
        ]
        read = f"int {b} = {value}; {rng.choice(clampings)}"
        guard = ""
    elif kind == "uchar" or (not wide and kind != "weighted"):
        read, guard = rng.choice([("", ""), (f"int {b} = {x}[@i];", "")])
        b = b if read else f"{x}[@i]"
    elif rng.random() < 0.5:
        read, guard = f"int {b} = {x}[@i] % {bins};", ""
    else:
        read, guard = f"int {b} = {x}[@i];", f"if ({b} >= 0 && {b} < {bins}) "
    cpu_add = (
        f"{hist}[{b}] += {weight};"
        if weight not in ("1", "1u")
        else rng.choice([f"{hist}[{b}]++;", f"{hist}[{b}] += 1;"])
    )
    cpu = loops(maker, f"{read} {guard}{cpu_add}", ("@i", "0", count))
    address = f"&{hist}[{b}]"
    fill = rng.random()
    if bins.isdigit() and fill < 0.35 and out_type != "float":
        block = rng.choice([128, 256, 256])
        shared = next(name for name in ("local", "smem", "s_hist", "cache") if name not in maker.taken)
        i = "i" if "i" not in maker.taken else "idx"
        body = (
            f"__shared__ {out_type} {shared}[{bins}]; for (int {i} = threadIdx.x; {i} < {bins}; {i} += blockDim.x) {{ {shared}[{i}] = 0; }} __syncthreads(); "
            f"for (int {i} = blockIdx.x * blockDim.x + threadIdx.x; {i} < {count}; {i} += blockDim.x * gridDim.x) {{ {read.replace('@i', i)} {guard}atomicAdd(&{shared}[{b.replace('@i', i)}], {weight}); }} __syncthreads(); "
            f"for (int {i} = threadIdx.x; {i} < {bins}; {i} += blockDim.x) {{ atomicAdd(&{hist}[{i}], {shared}[{i}]); }}"
        )
        launch = f"{rng.choice(['2', '4', '32', f'cdiv({count}, {block})'])}, {block}"
        return finish(maker, "histogram", body, cpu, launch, topic="shared histogram", needs_launch=True)
    body, launch, needs = over_1d(maker, count, f"{read} {guard}atomicAdd({address}, {weight});")
    return finish(maker, "histogram", body, cpu, launch, topic="histogram", needs_launch=needs)


def bits(maker: Maker) -> Task:
    """Integer loops over the bits of a word and mixes of words."""
    rng = maker.rng
    maker.element = maker.grammar.element = rng.choice(["unsigned", "unsigned", "int"])
    element = "unsigned int" if maker.element == "unsigned" else "int"
    n = maker.size(20, 90)
    x = maker.buffer("in", n, type_=element)
    atoms = [f"{x}[@i]"]
    if rng.random() < 0.4:
        atoms.append(f"{maker.buffer('in', n, type_=element)}[@i]")
    if rng.random() < 0.3:
        atoms.append(maker.scalar(element))
    out = maker.buffer("out", n, type_=element)
    form = rng.choice(["loop", "while", "hash", "plain"])
    v, r = maker.local(), maker.local()
    zero, one = ("0u", "1u") if maker.element == "unsigned" else ("0", "1")
    start = (
        f"{element} {v} = {maker.expr(atoms, rng.choice([1, 2]))};"
        if rng.random() < 0.5
        else f"{element} {v} = {atoms[0]};"
    )
    if form == "loop":
        k = "k" if "k" not in maker.taken else "bit"
        count = rng.choice([4, 8, 16, 32])
        inner = rng.choice([
            f"{r} = ({r} << 1) ^ (({v} >> {k}) & {one});", f"{r} ^= ({v} >> {k}) & {rng.choice(['3', '7', '15'])};",
            f"if (({v} >> {k}) & {one}) {{ {r} ^= {maker.expr([v, k], 2)}; }}", f"{r} = {maker.expr([r, v, k])};",
            f"{v} = ({v} & {one}) ? ({v} >> 1) ^ {rng.choice(['0xEDB88320', '0xA001', '0x8408', hex(rng.getrandbits(31))])} : {v} >> 1; {r} += {v} & {rng.choice(['3', '7', '255'])};",
        ])  # fmt: skip
        text = f"{start} {element} {r} = {zero}; for (int {k} = 0; {k} < {count}; {k}++) {{ {inner} }} {out}[@i] = {rng.choice([r, maker.expr([r, v], 2)])};"
    elif form == "while" and maker.element == "unsigned":
        text = f"{start} {element} {r} = {zero}; while ({v} != 0) {{ {r} = {maker.expr([r, v], 2)}; {v} >>= {rng.choice([1, 2, 3, 4])}; }} {out}[@i] = {rng.choice([r, maker.expr([r, atoms[0]], 2)])};"
    elif form == "hash":
        steps = []
        for _ in range(rng.choice([2, 3, 4, 5])):
            shift = rng.randrange(1, 25)
            constant = hex(rng.getrandbits(32) | 1) + ("u" if rng.random() < 0.5 else "")
            steps.append(
                rng.choice(
                    [
                        f"{v} ^= {v} >> {shift};",
                        f"{v} ^= {v} << {shift};",
                        f"{v} *= {constant};",
                        f"{v} += {constant};",
                        f"{v} = ({v} << {shift}) + {v};",
                        f"{v} = {maker.expr([v, atoms[-1]], 2)};",
                    ]
                )
            )
        text = f"{start} {' '.join(steps)} {out}[@i] = {v};"
    else:
        text, _ = statements(maker, [(f"{out}[@i]", False)], atoms, [])
        text = re.sub(r"\bunsigned\b(?! int)", "unsigned int", text)
    body, launch, needs = over_1d(maker, n, text)
    return finish(maker, "bits", body, loops(maker, text, ("@i", "0", n)), launch, needs_launch=needs)


def records(maker: Maker) -> Task:
    """Arrays of structures: interleaved values, structs and vector types."""
    rng = maker.rng
    maker.element = maker.grammar.element = rng.choice(["float", "float", "float", "int"])
    element = maker.element
    n = maker.size(20, 70)
    form = rng.choice(["interleaved", "interleaved", "struct", "image"])
    if form == "struct":
        kind = rng.choice(["Particle", "Body", "Point", "Item", "Cell", "Sample", "Vertex", "Agent"])
        fields = rng.sample(
            ["x", "y", "z", "w", "mass", "vx", "vy", "q", "id_", "age", "r", "weight"], rng.choice([2, 3, 4])
        )
        maker.declarations += f"struct {kind} {{ {' '.join(f'{element} {name};' for name in fields)} }};\n"
        source = maker.buffer("in", n, type_=kind, pool=["p", "items", "pts", "particles", "bodies", "a"])
        used = rng.sample(fields, rng.choice([1, 2, min(3, len(fields))]))
        atoms = [f"{source}[@i].{name}" for name in used]
        atoms += [maker.scalar() for _ in range(rng.choice([0, 0, 1]))]
        prologue = ""
        if rng.random() < 0.35:
            copy = maker.local()
            prologue = f"{kind} {copy} = {source}[@i]; "
            atoms = [atom.replace(f"{source}[@i]", copy) for atom in atoms]
        if rng.random() < 0.3:
            out = maker.buffer("out", n, type_=kind)
            targets = [(f"{out}[@i].{name}", False) for name in fields]
        else:
            targets = [(f"{maker.buffer('out', n)}[@i]", False)]
        text, _ = statements(maker, targets, atoms, [])
        text = prologue + text
    else:
        stride = rng.choice([2, 3, 3, 4])
        image = form == "image"
        type_ = "unsigned char" if image and rng.random() < 0.6 else element
        source = maker.buffer("in", f"{n} * {stride}", type_=type_, pool=["img", "in", "src", "pts", "data", "p"])
        offsets = rng.sample(range(stride), rng.choice([2, min(3, stride)]))
        cells = [
            f"{source}[@i * {stride} + {offset}]" if offset else f"{source}[@i * {stride}]"
            for offset in sorted(offsets)
        ]
        extra = [maker.scalar() for _ in range(rng.choice([0, 0, 1]))]
        if rng.random() < 0.5:
            names = [maker.local() for _ in cells]
            prologue = " ".join(f"{element} {name} = {cell};" for name, cell in zip(names, cells, strict=True)) + " "
            atoms = [*names, *extra]
        else:
            prologue, atoms = "", [*cells, *extra]
        if type_ == "unsigned char":
            value = maker.local()
            out = maker.buffer("out", n, type_="unsigned char")
            zero, high = ("0.0f", "255.0f") if element == "float" else ("0", "255")
            clamp = f"fminf(fmaxf({value}, {zero}), {high})" if element == "float" else f"min(max({value}, 0), 255)"
            text = f"{prologue}{element} {value} = {maker.expr(atoms)}; {out}[@i] = (unsigned char){clamp if rng.random() < 0.9 else f'({clamp})'};"
        elif rng.random() < 0.4:
            out = maker.buffer("out", f"{n} * {stride}")
            targets = [(f"{out}[@i * {stride}" + (f" + {at}]" if at else "]"), False) for at in range(stride)]
            text = prologue + statements(maker, targets, atoms, [])[0]
        else:
            text = prologue + statements(maker, [(f"{maker.buffer('out', n)}[@i]", False)], atoms, [])[0]
    body, launch, needs = over_1d(maker, n, text)
    return finish(maker, "records", body, loops(maker, text, ("@i", "0", n)), launch, needs_launch=needs)
