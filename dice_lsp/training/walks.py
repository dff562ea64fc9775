"""One body, walked twice: by the threads of a launch and by the loops of a reference."""

import re

from dice_lsp.training.maker import Maker

BLOCKS = (64, 128, 256, 512)


def over_1d(maker: Maker, count: str, body: str, first: str = "0") -> tuple[str, str, bool]:
    """A body of `@i` in `[first, count)` as kernel text, launch and whether the kernel needs that launch."""
    rng = maker.rng
    block = rng.choice([32, 64, 128, 128, 256, 256, 256, 512, 1024])
    total = count
    launch = f"cdiv({count}, {block}), {block}"
    style = rng.choices(["if", "return", "stride"], [74, 10, 16])[0]
    index = rng.choices(["i", "idx", "tid", "gid", "index", "id", "t"], [80, 10, 4, 2, 2, 1, 1])[0]
    if index in maker.taken or re.search(rf"\b{index}\b", body):
        index = next(
            name
            for name in ("i", "idx", "gid", "thread_id", "g_index")
            if name not in maker.taken and not re.search(rf"\b{name}\b", body)
        )
    body = body.replace("@i", index).replace("@continue", "continue" if style == "stride" else "return")
    type_ = rng.choices(["int", "const int", "unsigned int", "size_t"], [95, 2, 2, 1])[0]
    if first != "0" or "-" in body:
        type_ = "int"
    global_index = rng.choices(
        [
            "blockIdx.x * blockDim.x + threadIdx.x",
            "threadIdx.x + blockIdx.x * blockDim.x",
            "blockDim.x * blockIdx.x + threadIdx.x",
        ],
        [94, 3, 3],
    )[0]
    head = f"{type_} {index} = {global_index};"
    if style == "stride":
        launch = f"{rng.choice([1, 2, 4, 32, 64, 128])}, {block}"
        start = global_index if first == "0" else f"{global_index} + {first}"
        return (
            f"for (int {index} = {start}; {index} < {count}; {index} += blockDim.x * gridDim.x) {{ {body} }}",
            launch,
            True,
        )
    condition = f"{index} < {total}" if first == "0" else f"{index} >= {first} && {index} < {total}"
    if style == "return":
        away = f"{index} >= {total}" if first == "0" else f"{index} < {first} || {index} >= {total}"
        return f"{head} if ({away}) return; {body}", launch, False
    return f"{head} if ({condition}) {{ {body} }}", launch, False


def over_2d(maker: Maker, rows: str, cols: str, body: str, border: int = 0) -> tuple[str, str, bool]:
    """A body of `@r`, `@c` over a grid of threads: two-dimensional, or flat with a division."""
    rng = maker.rng
    r, c = rng.choices([("row", "col"), ("r", "c"), ("y", "x"), ("i", "j"), ("iy", "ix")], [76, 6, 8, 6, 4])[0]
    if {r, c} & (maker.taken) or re.search(rf"\b(?:{r}|{c})\b", body):
        r, c = next(
            pair
            for pair in (("row", "col"), ("r_i", "c_i"), ("rr", "cc"), ("g_r", "g_c"))
            if not re.search(rf"\b(?:{pair[0]}|{pair[1]})\b", body) and not set(pair) & (maker.taken)
        )
    inside = body.replace("@continue", "return").replace("@r", r).replace("@c", c)
    guard = (
        f"{r} < {rows} && {c} < {cols}"
        if not border
        else f"{r} >= {border} && {r} < {rows} - {border} && {c} >= {border} && {c} < {cols} - {border}"
    )
    if rng.random() < 0.35:
        block = rng.choice(BLOCKS)
        index = next(
            name
            for name in ("i", "idx", "gid", "flat_index")
            if not re.search(rf"\b{name}\b", inside) and name not in maker.taken
        )
        head = f"int {index} = blockIdx.x * blockDim.x + threadIdx.x;"
        split = f"int {r} = {index} / {cols}; int {c} = {index} % {cols};"
        launch = f"cdiv({rows} * {cols}, {block}), {block}"
        if border:
            return f"{head} {split} if ({guard}) {{ {inside} }}", launch, True
        if rng.random() < 0.3:
            return f"{head} if ({index} >= {rows} * {cols}) return; {split} {inside}", launch, True
        return f"{head} if ({index} < {rows} * {cols}) {{ {split} {inside} }}", launch, True
    bx, by = rng.choice([(16, 16), (16, 16), (32, 8), (32, 32), (8, 8), (32, 4)])
    across = f"int {c} = blockIdx.x * blockDim.x + threadIdx.x;"
    down = f"int {r} = blockIdx.y * blockDim.y + threadIdx.y;"
    head = f"{across} {down}" if rng.random() < 0.85 else f"{down} {across}"
    launch = f"{{cdiv({cols}, {bx}), cdiv({rows}, {by})}}, {{{bx}, {by}}}"
    if rng.random() < 0.25 and not border:
        return f"{head} if ({r} >= {rows} || {c} >= {cols}) return; {inside}", launch, True
    return f"{head} if ({guard}) {{ {inside} }}", launch, True


def loops(maker: Maker, body: str, *dims: tuple[str, str, str]) -> str:
    """Nested C loops over `(placeholder, first, bound)`, with the placeholders replaced by loop variables."""
    rng = maker.rng
    usual = {
        "@i": ["i", "i", "i", "idx"],
        "@r": ["r", "i", "row", "y"],
        "@c": ["c", "j", "col", "x"],
        "@b": ["b", "n", "z"],
    }
    names: list[str] = []
    body = body.replace("@continue", "continue")
    for placeholder, _, _ in dims:
        options = [
            name
            for name in usual[placeholder]
            if name not in maker.taken and name not in names and not re.search(rf"\b{name}\b", body)
        ]
        name = rng.choice(options) if options else f"{placeholder[1:]}{len(names)}_"
        names.append(name)
        body = body.replace(placeholder, name)
    text = body
    braces = rng.random() < 0.7 or text.count(";") != 1
    for name, (_, first, bound) in reversed(list(zip(names, dims, strict=True))):
        type_ = rng.choices(["int", "size_t", "unsigned int"], [94, 4, 2])[0] if "-" not in text else "int"
        head = f"for ({type_} {name} = {first}; {name} < {bound}; {rng.choice([name + '++', '++' + name])})"
        text = f"{head} {{ {text} }}" if braces else f"{head} {text}"
    return text
