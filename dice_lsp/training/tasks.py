"""Random kernel-filling tasks, each right by construction: a kernel and a reference made from the same statements.

A task is drawn from a grammar of shapes (elementwise in one to three dimensions, neighbours, row reductions, matrix
products, atomics, bit loops, ...), not from a list of kernels, apart from twelve textbook families. Whole classes of
named kernels are kept out (see `EXCLUDED_CLASSES`), so that a frozen set of them measures what the grammar teaches.
"""

import random
import re
from collections.abc import Callable

from attrs import evolve

from dice_lsp.training.maker import Maker, Task, finish
from dice_lsp.training.matrices import matrix_product, transpose
from dice_lsp.training.pointwise import (
    bits,
    elementwise_1d,
    elementwise_2d,
    elementwise_3d,
    histogram,
    neighbours_1d,
    neighbours_2d,
    records,
)
from dice_lsp.training.reductions import (
    Reduction,
    batched_reduction,
    column_reduction,
    cooperative,
    full_reduction,
    row_count,
    row_normalise,
    row_reduction,
    running,
    segments,
)
from dice_lsp.training.walks import loops, over_1d

# ruff: noqa: E501 - a template of a kernel is read as one line of C

EXCLUDED_CLASSES = (
    "softplus", "softsign", "hinge", "logcosh", "hardsigmoid", "quantize", "dequantize", "popcount", "rotate", "gather",
    "scatter", "reverse", "interleave", "complex", "polar", "argmax", "l2norm", "logsumexp", "variance", "cosine",
    "outer", "matvec", "pairwise", "conv1d", "laplacian", "maxpool", "upsample", "grey", "gray", "alpha_blend",
    "mandelbrot", "modpow", "spmv", "embedding", "masked_fill", "layernorm", "prefix_sum", "lerp", "finite_difference",
    "triangle", "bbox", "aos_dot", "horner", "mish", "huber",
)  # fmt: skip
"""Classes that are no family of this generator. `excluded` refuses a random task that happens to be one of them."""


def textbook(maker: Maker) -> Task:
    """The twelve textbook families in the spellings that people use; they may stand without any reference."""
    rng = maker.rng
    family = rng.choice(
        [
            "vector add",
            "vector add",
            "saxpy",
            "relu",
            "sigmoid",
            "scale bias",
            "stencil",
            "row sum",
            "softmax",
            "dot",
            "matmul",
            "transpose",
            "histogram",
        ]
    )
    if family == "transpose":
        return transpose(maker)
    if family == "histogram":
        return histogram(maker)
    maker.element = maker.grammar.element = rng.choice(["float"] * 9 + ["double"])
    maker.rare = rng.choice([0.0, 0.0, 0.0, 0.3])
    element, f = maker.element, maker.f
    if family in ("vector add", "saxpy", "relu", "sigmoid", "scale bias", "stencil"):
        n = maker.size(20, 200, ["n", "n", "N", "size", "numElements", "len", "count", "length"])
        torch = formula = None
        io = False
        if family == "vector add":
            a, b = (
                maker.buffer("in", n, pool=["a", "x", "A", "in1", "d_a", "lhs"]),
                maker.buffer("in", n, pool=["b", "y", "B", "in2", "d_b", "rhs"]),
            )
            out = maker.buffer("out", n, pool=["c", "z", "C", "out", "d_c", "result", "y"])
            text, torch = f"{out}[@i] = {a}[@i] + {b}[@i];", f"{a} + {b}"
            topic = rng.choice(["vector add", "vadd", "vecadd", "add"])
        elif family == "saxpy":
            scale = maker.scalar(pool=["a", "alpha", "s", "A"])
            x = maker.buffer("in", n, pool=["x", "X", "d_x", "in"])
            io = rng.random() < 0.75
            y = maker.buffer("io" if io else "in", n, pool=["y", "Y", "d_y"])
            out = y if io else maker.buffer("out", n, pool=["z", "out", "r"])
            text, torch = f"{out}[@i] = {scale} * {x}[@i] + {y}[@i];", f"{scale} * {x} + {y}"
            if io and rng.random() < 0.1:
                text = f"{y}[@i] += {scale} * {x}[@i];"
            topic = rng.choice(["saxpy", "axpy", "saxpy"])
        elif family == "scale bias":
            x = maker.buffer("in", n, pool=["x", "in", "input", "src"])
            scale, bias = (
                maker.scalar(pool=["scale", "a", "alpha", "s", "gain"]),
                maker.scalar(pool=["bias", "b", "beta", "shift", "offset"]),
            )
            io = rng.random() < 0.15
            if io:
                maker.arguments[:] = [
                    evolve(argument, role="io") if argument.name == x else argument for argument in maker.arguments
                ]
            out = x if io else maker.buffer("out", n, pool=["y", "out", "output", "dst"])
            text, torch = f"{out}[@i] = {x}[@i] * {scale} + {bias};", f"{x} * {scale} + {bias}"
            if rng.random() < 0.4:
                text = f"{out}[@i] = {scale} * {x}[@i] + {bias};"
            topic = "scale bias"
        elif family == "stencil":
            x = maker.buffer("in", n, pool=["in", "x", "u", "src", "a"])
            out = maker.buffer("out", n, pool=["out", "y", "v", "dst", "b"])
            middle = rng.choice(
                [
                    f"0.25{f} * {x}[@i - 1] + 0.5{f} * {x}[@i] + 0.25{f} * {x}[@i + 1]",
                    f"({x}[@i - 1] + {x}[@i] + {x}[@i + 1]) / 3.0{f}",
                ]
            )
            edge = rng.choice([f"{x}[@i]", f"{x}[@i]", maker.zero])
            text = rng.choice([
                f"if (@i > 0 && @i < {n} - 1) {{ {out}[@i] = {middle}; }} else {{ {out}[@i] = {edge}; }}",
                f"if (@i == 0 || @i == {n} - 1) {{ {out}[@i] = {edge}; }} else {{ {out}[@i] = {middle}; }}",
            ])  # fmt: skip
            topic = "stencil"
        else:
            x = maker.buffer("in", n, pool=["x", "in", "input", "src", "a"])
            out = maker.buffer("out", n, pool=["y", "out", "output", "dst", "b"])
            if family == "relu":
                text = rng.choice(
                    [
                        f"{out}[@i] = fmax{f}({x}[@i], 0.0{f});",
                        f"{out}[@i] = {x}[@i] > 0.0{f} ? {x}[@i] : 0.0{f};",
                        f"{out}[@i] = fmax{f}(0.0{f}, {x}[@i]);",
                    ]
                )
                torch = f"torch.relu({x})"
            else:
                text, torch = f"{out}[@i] = 1.0{f} / (1.0{f} + exp{f}(-{x}[@i]));", f"torch.sigmoid({x})"
            topic = family
        body, launch, needs = over_1d(maker, n, text)
        return finish(
            maker,
            "textbook",
            body,
            loops(maker, text, ("@i", "0", n)),
            launch,
            torch=torch,
            formula=formula,
            topic=topic,
            needs_launch=needs,
        )
    if family == "row sum":
        rows = maker.size(3, 40, ["rows", "n", "M", "n_rows", "m", "N"])
        cols = maker.size(3, 70, ["cols", "d", "N", "n_cols", "n", "K", "m"])
        x, out = (
            maker.buffer("in", rows, cols, pool=["x", "in", "A", "a", "input"]),
            maker.buffer("out", rows, pool=["out", "y", "sums", "s", "output"]),
        )
        name, c = rng.choice(["sum", "acc", "s_", "total"]), rng.choice(["c", "j", "col", "k"])
        if {name, c} & (maker.taken):
            name, c = "sum_", "jj"
        serial = f"{element} {name} = 0.0{f}; for (int {c} = 0; {c} < {cols}; {c}++) {{ {name} += {x}[@i * {cols} + {c}]; }} {out}[@i] = {name};"
        torch = rng.choice([f"{x}.sum(dim=1)", f"{x}.sum(1)", f"torch.sum({x}, dim=1)", f"{x}.sum(-1)"])
        cpu = f"for (int r = 0; r < {rows}; r++) {{ {serial.replace('@i', 'r')} }}"
        if rng.random() < 0.55:
            body, launch, needs = over_1d(maker, rows, serial)
        else:
            body, launch = cooperative(
                maker,
                rng.choice(["block", "block", "block", "warp", "blockwarp"]),
                [Reduction("sum", f"0.0{f}", f"{x}[@r * {cols} + @c]")],
                [name],
                rows,
                cols,
                c,
                f"{out}[@r] = {name};",
            )
            needs = True
        return finish(
            maker,
            "textbook",
            body,
            cpu,
            launch,
            torch=torch,
            topic=rng.choice(["row sum", "row sum", "sum rows", "rowsum"]),
            needs_launch=needs,
        )
    if family == "softmax":
        for _ in range(20):
            task = row_normalise(Maker.new(rng, element))
            if task.topic == "row softmax":
                return evolve(task, shape="textbook")
        return task
    if family == "dot":
        return evolve(full_reduction(Maker.new(rng, element)), shape="textbook")
    for _ in range(20):
        task = matrix_product(Maker.new(rng, "float"))
        if task.torch:
            break
    return evolve(task, shape="textbook")


SHAPES: dict[str, tuple[Callable[[Maker], Task], float]] = {
    "elementwise_1d": (elementwise_1d, 27), "elementwise_2d": (elementwise_2d, 11), "elementwise_3d": (elementwise_3d, 4),
    "neighbours_1d": (neighbours_1d, 7), "neighbours_2d": (neighbours_2d, 5), "row_reduction": (row_reduction, 11),
    "row_normalise": (row_normalise, 5), "column_reduction": (column_reduction, 2), "full_reduction": (full_reduction, 4),
    "matrix_product": (matrix_product, 6), "transpose": (transpose, 1.5), "histogram": (histogram, 3), "bits": (bits, 5),
    "records": (records, 5), "segments": (segments, 5), "row_count": (row_count, 2), "running": (running, 2.5), "batched_reduction": (batched_reduction, 3), "textbook": (textbook, 12),
}  # fmt: skip
"""Shape name -> how to make one and its weight."""

_NAMED_SHAPES = {"textbook", "transpose", "histogram"}


def excluded(task: Task) -> bool:
    """Whether a random task happens to be one of the classes that are kept for judging."""
    body = task.cpu
    if any(word in task.name.lower() for word in EXCLUDED_CLASSES):
        return True
    if task.shape in _NAMED_SHAPES:
        return False
    index = r"\[[^\[\]]*\]"
    plain_copy = re.search(rf"\w+{index} = \w+(?:\[(?:[^\[\]]|\[[^\]]*\])*\]);", body) and body.count(";") <= 5
    patterns = [
        r"log1?p?f?\((?:1\.0f? \+ )?expf?\(",  # softplus, logsumexp
        rf"(\w+{index}) / \(1\.0f? \+ fabsf?\(\1\)\)",  # softsign
        r"logf?\(coshf?\(",
        r"fmaxf?\(0\.0f?, 1\.0f? - \w+(?:\[[^\]]*\])? \* \w+",  # hinge
        r"0\.299f?|0\.587f?",
        rf"\+= (\w+{index}) \* \1;.*sqrtf?\(",  # row norm
        rf"(\w+) = \1 \* \w+(?:{index})? \+ \w+{index};",  # Horner
        r"\[[^\]]*\] = \w+\[\w+\] \* \w+\[\w+\];$",  # outer product, elementwise product of two
        rf"\((\w+{index}) - (\w+{index})\) \* \(\1 - \2\)",  # pairwise distance
    ]
    return bool(plain_copy and task.shape != "neighbours_1d") or any(re.search(pattern, body) for pattern in patterns)


def make_task(seed: int) -> Task:
    """The task of a seed: the same for ever in one version of this file."""
    rng = random.Random(seed)
    names, weights = zip(*((name, weight) for name, (_, weight) in SHAPES.items()), strict=True)
    for _ in range(100):
        name = rng.choices(names, weights)[0]
        task = SHAPES[name][0](Maker.new(rng))
        if "@" in task.body + task.cpu or excluded(task) or len(task.body) > 1700:
            continue
        if re.search(r"(?<![\w.])(?:0\.0f?|0u?) \* |- \(-", task.body) and rng.random() < 0.5:
            continue
        return task
    raise RuntimeError("the grammar makes no task that is allowed")
