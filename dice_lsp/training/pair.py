"""A kernel twice: a plain body and one or more fast ones for the same signature, launch and reference.

A family (see `families`) sketches one kernel with names of its own choice; `compose` makes a file of the sketch, in one
of the usual ways of writing it. Plain and fast bodies share the launch, so a fill of the body alone can be the fast one,
and how much faster it is can be measured by timing both in the same case.
"""

import keyword
import random
import re
from collections.abc import Callable, Mapping

from attrs import evolve, field, frozen

from dice_lsp.records import Document, Region
from dice_lsp.source.kernels import parse
from dice_lsp.source.selection import body_region
from dice_lsp.training.examples import FLOAT_CALL, kernel_text, reference_text
from dice_lsp.training.maker import Maker, Task, finish
from dice_lsp.training.tasks import EXCLUDED_CLASSES

HELD_OUT_SEED = 1 << 40
"""Seeds from here on judge, those below train."""


@frozen
class Fast:
    """A fast body and how it became fast, in words: `coalesced`, `one block per row, shuffles`."""

    technique: str
    body: str


@frozen
class Sketch:
    """What a family says of one kernel. Bodies are templates: lines of C with four spaces for each level."""

    cpu: str
    launch: str
    plain: str
    fast: tuple[Fast, ...]
    sizes: Mapping[str, str]
    """Size parameter -> its values in a directive; the first is the case that is timed."""
    topic: str
    torch: str | None = None
    inits: Mapping[str, str] = field(factory=dict)
    """Buffer -> how it is filled, as in a directive, where numbers of the normal distribution will not do."""
    tolerance: str = ""


@frozen
class Family:
    """A family of kernels. `held_out`: a class that judges, so no training may draw from it."""

    name: str
    sketch: Callable[[Maker], Sketch]
    held_out: bool = False


@frozen
class Pair:
    """One kernel of a family as a file whose kernel has no body yet, and the bodies that are known to be right."""

    family: str
    name: str
    """Unique within the families: `transpose-17`."""
    text: str
    """The file. The kernel's body is one line break between its braces."""
    kernel: str
    launch: str
    torch: str | None
    plain: str
    fast: tuple[Fast, ...]

    def region(self) -> Region:
        """The empty body, as the server would make a region of it."""
        return empty_region(self.text, self.kernel, f"file:///generated/{self.name}.cu")

    def file(self, body: str) -> str:
        """The file with a body in the place of the empty one."""
        region = self.region()
        return self.text[: region.start] + body + self.text[region.end :]


def empty_region(text: str, kernel: str, uri: str) -> Region:
    """The body of a kernel of a file that has none yet. Raises `ValueError` if there is no such kernel."""
    found = [item for item in parse(text).kernels if item.name == kernel]
    if len(found) != 1:
        raise ValueError(f"{uri} has {len(found)} kernels called {kernel}, it must have one")
    return body_region(Document(uri, 0, text), found[0])


LOCALS = """acc bid blk c col d e first i idx j k lane last m mine n0 o offset p p0 p1 per q r row s smem sum t t0 tid tile tx ty u v
v0 v1 v2 v3 vec warp w0 wid As Bs begin end got a4 b4 z x0 y0 best at lo hi part""".split()
"""Names that the templates of bodies use for their own variables; no parameter may have one."""

_ADDED_TO = re.compile(r"(?<![\w\]])(\w+(?:\[[\w +]+\])*) = \1 \+ ")

_SPELLINGS: dict[str, tuple[str, ...]] = {
    "acc": ("acc", "acc", "sum", "total", "v"),
    "i": ("i", "i", "i", "idx", "gid"),
    "tid": ("tid", "tid", "t", "tx"),
    "lane": ("lane", "lane", "lane_id"),
    "row": ("row", "row", "r"),
    "col": ("col", "col", "c"),
    "smem": ("smem", "smem", "sdata", "cache", "shared"),
    "tile": ("tile", "tile", "buf"),
    "offset": ("offset", "offset", "s", "step"),
    "warp": ("warp", "warp", "wid"),
}


def spelled(body: str, taken: set[str], rng: random.Random) -> str:
    """A template with its local variables called as somebody else would; parameters keep their names."""
    words = set(re.findall(r"[A-Za-z_]\w*", body))
    renamed: dict[str, str] = {}
    for name, spellings in _SPELLINGS.items():
        if name in words and name not in taken:
            chosen = rng.choice(spellings)
            if chosen != name and chosen not in words | taken | set(renamed.values()):
                renamed[name] = chosen
    return re.sub(r"(?<![.\w])[A-Za-z_]\w*", lambda match: renamed.get(match.group(), match.group()), body)


def laid_out(body: str, unit: str, allman: bool) -> str:
    """Lines of a template with another indentation, and perhaps opening braces on lines of their own."""
    lines: list[str] = []
    for line in body.strip("\n").splitlines():
        depth = (len(line) - len(line.lstrip())) // 4
        code, pad = line.strip(), unit * depth
        if allman and code.startswith("} else"):
            lines.append(pad + "}")
            code = code[2:]
        if allman and code.endswith(" {"):
            lines += [pad + code[:-2], pad + "{"]
        elif code:
            lines.append(pad + code)
    return "\n" + "\n".join(unit + line for line in lines) + "\n"


def compose(family: Family, seed: int) -> Pair:
    """The kernel of a seed: the same for ever in one version of the families."""
    for attempt in range(100):
        pair = _composed(family, seed, random.Random(f"{family.name} {seed} {attempt}"))
        # A name may be a random word, and for training none of those that stand for a class which is kept for judging.
        if family.held_out or not any(word in pair.kernel.lower() for word in EXCLUDED_CLASSES):
            return pair
    raise RuntimeError(f"the family {family.name} has no name that is allowed")


def _composed(family: Family, seed: int, rng: random.Random) -> Pair:
    maker = Maker.new(rng, "float")
    maker.rare = rng.choice([0.0, 0.0, 0.3, 0.6])
    maker.taken |= set(LOCALS)
    sketch = family.sketch(maker)
    if rng.random() < 0.15:
        sketch = _in_double(sketch, maker)
    cpu = _ADDED_TO.sub(r"\1 += ", sketch.cpu)
    task = finish(maker, family.name, sketch.plain, cpu, sketch.launch, topic=sketch.topic, torch=sketch.torch)
    parameters = {argument.name for argument in task.arguments}
    unit, allman = rng.choice(["    ", "    ", "  ", "\t"]), rng.random() < 0.12
    commented = rng.random() < 0.3

    def body(template: str, comment: str) -> str:
        said = f"// {comment}\n" if commented and comment else ""
        template = _ADDED_TO.sub(r"\1 += ", template)
        return laid_out(said + spelled(template.strip("\n"), parameters, rng), unit, allman)

    plain = body(sketch.plain, "")
    fast = tuple(Fast(item.technique, body(item.body, item.technique)) for item in sketch.fast)
    head = kernel_text(task, rng).partition(" {\n")[0]
    return Pair(
        family=family.name,
        name=f"{family.name.replace(' ', '_')}-{seed}",
        text=_file(task, sketch, head, rng, unit),
        kernel=task.name,
        launch=sketch.launch,
        torch=sketch.torch,
        plain=plain,
        fast=fast,
    )


def _in_double(sketch: Sketch, maker: Maker) -> Sketch:
    """The same in double precision; a sketch that loads four floats at once stays as it is."""
    if any("float4" in fast.body for fast in sketch.fast) or not any(item.type == "float" for item in maker.arguments):
        return sketch

    def doubled(text: str) -> str:
        text = re.sub(r"\bfloat\b", "double", FLOAT_CALL.sub(lambda match: f"{match.group(1)}(", text))
        return re.sub(r"\b(\d+\.\d+(?:e-?\d+)?|\d+e-?\d+)f\b", r"\1", text)

    maker.element = "double"
    maker.arguments[:] = [
        evolve(item, type="double" if item.type == "float" else item.type) for item in maker.arguments
    ]
    return evolve(
        sketch,
        cpu=doubled(sketch.cpu),
        plain=doubled(sketch.plain),
        fast=tuple(Fast(item.technique, doubled(item.body)) for item in sketch.fast),
    )


def _file(task: Task, sketch: Sketch, head: str, rng: random.Random, unit: str) -> str:
    """Includes, reference, directive and the kernel without its body, in one of a few orders."""
    # A parameter may be called `in`, which no expression of Python can name.
    nameable = not any(keyword.iskeyword(argument.name) for argument in task.arguments)
    by_torch = sketch.torch is not None and rng.random() < 0.3 and nameable
    name = task.name + rng.choice(["_cpu", "_cpu", "_ref", "_host"])
    code = reference_text(task, rng, name).replace("std::", "")
    reference = "\n".join(_broken(code, unit)) + "\n"
    clause = f"ref torch: {sketch.torch}" if by_torch else f"ref {name}"
    listed: dict[str, list[str]] = {"in": [], "out": [], "io": []}
    for argument in task.arguments:
        if argument.extents:
            init = f": {sketch.inits[argument.name]}" if argument.name in sketch.inits else ""
            listed[argument.role].append(f"{argument.name}[{', '.join(argument.extents)}]{init}")
    sizes = ", ".join(f"{size} = {values}" for size, values in sketch.sizes.items())
    buffers = [f"{role} {', '.join(items)}" for role, items in listed.items() if items]
    clauses = [sizes, *buffers, f"launch <<<{sketch.launch}>>>", clause]
    clauses += [f"tol {sketch.tolerance}"] if sketch.tolerance else []
    at = rng.randrange(1, len(clauses)) if rng.random() < 0.5 else len(clauses)
    directive = "".join(f"//dice: {'; '.join(part)}\n" for part in (clauses[:at], clauses[at:]) if part)
    said = f"// {sketch.topic}\n" if rng.random() < 0.4 else ""
    kernel = f"{said}{directive}{head} {{\n}}\n"
    parts = (
        [kernel] if by_torch else [reference, kernel] if rng.random() < 0.8 else [_prototype(code), kernel, reference]
    )
    includes = rng.choice(["", "#include <cuda_runtime.h>\n\n", "#include <cuda_runtime.h>\n#include <math.h>\n\n"])
    return includes + task.declarations + "\n".join(parts)


def _prototype(code: str) -> str:
    return code.partition(" {")[0] + ";\n"


def _broken(code: str, unit: str) -> list[str]:
    """One-line C as lines: after each brace and each semicolon that no parenthesis holds."""
    lines: list[str] = []
    current, depth, parentheses = "", 0, 0
    for character in " ".join(code.split()):
        parentheses += {"(": 1, ")": -1}.get(character, 0)
        current += character
        if parentheses == 0 and character in ";{}":
            code_line = current.strip()
            depth -= code_line.startswith("}")
            lines.append(unit * depth + code_line)
            depth += code_line.endswith("{")
            current = ""
    return lines + ([current.strip()] if current.strip() else [])
