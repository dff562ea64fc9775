"""From a task to what the model learns: a file around the kernel, a region cut out of it, prompt and middle as words."""

import random
import re

from attrs import evolve, frozen

from dice_lsp.diffusion.layout_psm import Prompt, compose, lex, loop_names, loop_variables, middle_words, words_of
from dice_lsp.records import FillRequest
from dice_lsp.training.maker import Argument, Task
from dice_lsp.training.tasks import make_task

SPAN_KINDS = ("body", "block", "lines", "tail", "rhs", "tokens")


@frozen
class Example:
    """One training example: the request as the server would send it, and the text that belongs in the region."""

    request: FillRequest
    middle: str
    span: str

    @property
    def prompt(self) -> Prompt:
        return compose(self.request)

    def words(self, prompt: Prompt) -> list[str]:
        """The middle in the model's words."""
        return middle_words(self.middle, prompt)


def kernel_text(task: Task, rng: random.Random | None = None) -> str:
    """The kernel as a definition. With `rng`, spelled in one of the usual ways."""
    parameters = ", ".join(_parameter(argument, rng) for argument in task.arguments)
    head = f"__global__ void {task.name}({parameters})"
    if task.template:
        head = f"template <typename T>\n{head}"
    elif rng is not None and rng.random() < 0.1:
        head = f'extern "C" {head}'
    return f"{head} {{\n{task.body}\n}}"


def reference_text(task: Task, rng: random.Random | None = None, name: str | None = None) -> str:
    """The CPU reference as a function. With `rng`, in one of the usual ways of writing mathematics on a host."""
    parameters = ", ".join(_parameter(argument, None) for argument in task.arguments)
    body = task.cpu
    if rng is not None:
        body = _host_style(body, rng)
    head = f"void {name or task.name + '_cpu'}({parameters})"
    if task.template:
        head = f"template <typename T>\n{head}"
    return f"{head} {{\n{body}\n}}"


def _parameter(argument: Argument, rng: random.Random | None) -> str:
    if not argument.extents:
        const = "const " if rng is not None and rng.random() < 0.08 else ""
        return f"{const}{_type(argument.type)} {argument.name}"
    const = "const " if argument.role == "in" and (rng is None or rng.random() < 0.93) else ""
    restrict = "__restrict__ " if rng is not None and rng.random() < 0.2 else ""
    return f"{const}{_type(argument.type)}* {restrict}{argument.name}"


def _type(name: str) -> str:
    return "unsigned int" if name == "unsigned" else name


FLOAT_CALL = re.compile(
    r"\b(exp|log|sqrt|tanh|sin|cos|floor|ceil|trunc|round|fabs|fmax|fmin|pow|fmod|erf|rint|expm1|log1p|log2|log10|exp2|atan|atan2|hypot|cbrt|sinh|copysign|fdim|fma)f\("
)


def _host_style(body: str, rng: random.Random) -> str:
    """Spell mathematics as host code does: `expf`, `std::exp`, or plain `exp`; `std::max` for `fmaxf`."""
    style = rng.choices(["f", "std", "plain"], [55, 30, 15])[0]
    if style == "std":
        body = FLOAT_CALL.sub(lambda match: f"std::{match.group(1)}(", body)
        if rng.random() < 0.8:
            body = (
                body.replace("std::fmax(", "std::max(")
                .replace("std::fmin(", "std::min(")
                .replace("std::fabs(", rng.choice(["std::fabs(", "std::abs("]))
            )
        body = re.sub(r"(?<!std::)\b(max|min)\(", r"std::\1(", body)
    elif style == "plain":
        body = FLOAT_CALL.sub(lambda match: f"{match.group(1)}(", body)
        if rng.random() < 0.5:
            body = re.sub(r"\b(\d+\.\d+|\d+e-?\d+)f\b", r"\1", body)
    return body


def _template_of(task: Task, rng: random.Random) -> Task:
    """Perhaps the same task for any type, where nothing in it speaks of `float`."""
    simple = (
        task.element == "float"
        and not task.declarations
        and not re.search(r"\df\b|f\(|FLT_MAX|__shared__", task.body + task.cpu)
    )
    if not simple or rng.random() > 0.3 or any(argument.type not in ("float", "int") for argument in task.arguments):
        return task
    arguments = tuple(
        evolve(argument, type="T" if argument.type == "float" else argument.type) for argument in task.arguments
    )
    return evolve(
        task,
        arguments=arguments,
        body=re.sub(r"\bfloat\b", "T", task.body),
        cpu=re.sub(r"\bfloat\b", "T", task.cpu),
        template=True,
        torch=None,
    )


def directive(task: Task, rng: random.Random, launch: bool, buffers: bool, reference: str | None) -> str:
    """`//dice:` lines for a task, with the parts that were asked for."""
    clauses = []
    dims = ", ".join(
        f"{name} = {rng.choice(['1M', '4096', '16M', '1000'])} | {rng.randrange(3, 999)}" for name in task.sizes
    )
    if dims and rng.random() < 0.8:
        clauses.append(dims)
    if buffers:
        for role in ("in", "out", "io"):
            listed = []
            for argument in task.arguments:
                if argument.role == role and argument.extents:
                    init = f": int(0, {argument.high})" if argument.high > 0 else ""
                    listed.append(f"{argument.name}[{', '.join(argument.extents)}]{init}")
            if listed:
                clauses.append(f"{role} {', '.join(listed)}")
    if launch:
        clauses.append(f"launch <<<{task.launch}>>>")
    if reference:
        clauses.append(reference)
    if rng.random() < 0.3:
        clauses.append(rng.choice(["tol 1e-5", "tol 1e-4", "tol 1e-6 1e-6"]))
    if not clauses:
        return ""
    if rng.random() < 0.6 or len(clauses) < 3:
        return "//dice: " + "; ".join(clauses) + "\n"
    at = rng.randrange(1, len(clauses))
    return "//dice: " + "; ".join(clauses[:at]) + "\n//dice: " + "; ".join(clauses[at:]) + "\n"


def _launch_site(task: Task, rng: random.Random) -> str:
    """Host code that launches the kernel."""
    grid, block = grid_and_block(task.launch)
    arguments = ", ".join(
        rng.choice([argument.name, "d_" + argument.name]) if argument.extents else argument.name
        for argument in task.arguments
    )

    def host(expression: str, flat: bool) -> str:
        def divide(match: re.Match[str]) -> str:
            count, size = match.group(1), match.group(2)
            if re.search(r"[-+*/ ]", count) and rng.random() < 0.5:
                count = f"({count})"
            if rng.random() < 0.5 and size.isdigit():
                return f"({count} + {int(size) - 1}) / {size}"
            return f"({count} + {size} - 1) / {size}"

        return re.sub(r"cdiv\(([^,()]*), (\w+)\)", divide, expression)

    if grid.startswith("{"):
        a, b = host(grid[1:-1], False), block[1:-1]
        if rng.random() < 0.7:
            return f"void launch() {{\n    dim3 block({b});\n    dim3 grid({a});\n    {task.name}<<<grid, block>>>({arguments});\n}}\n"
        return f"void launch() {{\n    {task.name}<<<dim3({a}), dim3({b})>>>({arguments});\n}}\n"
    a = host(grid, True)
    if rng.random() < 0.5:
        names = rng.choice(
            [("block", "grid"), ("threads", "blocks"), ("threadsPerBlock", "blocksPerGrid"), ("BLOCK", "GRID")]
        )
        if block.isdigit() and rng.random() < 0.7:
            a = re.sub(rf"\b{block}\b", names[0], a)
        sizes = f"    int {names[0]} = {block};\n    int {names[1]} = {a};\n"
        return f"int main() {{\n{sizes}    {task.name}<<<{names[1]}, {names[0]}>>>({arguments});\n}}\n"
    return f"int main() {{\n    {task.name}<<<{a}, {block}>>>({arguments});\n}}\n"


def grid_and_block(launch: str) -> tuple[str, str]:
    """The two halves of a directive's launch."""
    depth = 0
    for at, character in enumerate(launch):
        depth += {"(": 1, "{": 1, ")": -1, "}": -1}.get(character, 0)
        if character == "," and depth == 0:
            return launch[:at].strip(), launch[at + 1 :].strip()
    return launch.strip(), "256"


def request_for(task: Task, rng: random.Random) -> tuple[FillRequest, str, str]:
    """A task as a request: `(request, middle, span kind)`."""
    task = _template_of(task, rng)
    modes = ["cpu"]
    weights = [1.0]
    if task.torch:
        modes.append("torch")
        weights.append(0.55)
    if task.formula:
        modes.append("formula")
        weights.append(0.18)
    if task.shape == "textbook" and task.topic:
        modes.append("none")
        weights.append(0.4)
    mode = rng.choices(modes, weights)[0]
    shown = "directive" if mode == "torch" or rng.random() < 0.6 else rng.choice(["site", "site", "none"])
    if task.needs_launch and shown == "none":
        shown = "site"
    launch = task.needs_launch or rng.random() < 0.75
    buffers = mode == "torch" or rng.random() < 0.75
    clause = None
    if mode == "torch":
        clause = f"ref torch: {task.torch}"
    elif mode == "cpu":
        clause = f"ref {task.name}_cpu" if rng.random() < 0.6 else None
    above = ""
    if mode == "formula":
        above += f"// {task.formula}\n"
    elif task.topic and rng.random() < 0.4:
        above += f"// {task.topic}\n"
    elif rng.random() < 0.08 and task.formula:
        above += f"// {task.formula}\n"
    if shown == "directive":
        above += directive(task, rng, launch, buffers, clause)
        if task.needs_launch and not launch:
            raise AssertionError("a launch that is needed is shown")
    text = kernel_text(task, rng)
    open_at = text.index("{\n") + 1
    start, end, kind = choose_span(text, open_at, text.rindex("}"), rng)
    reference = reference_text(task, rng) if mode == "cpu" else None
    middle = text[start:end]
    if mode == "cpu" and kind == "body":
        middle = _with_loop_names(middle, task)
    request = FillRequest(
        kernel_prefix=above + text[:start],
        kernel_suffix=text[end:],
        file_prefix=task.declarations,
        file_suffix=_launch_site(task, rng) if shown == "site" else "",
        reference_text=reference,
        torch_expression=task.torch if mode == "torch" else None,
        middle="",
        indent="    ",
        candidates=1,
    )
    return request, middle, kind


def _with_loop_names(body: str, task: Task) -> str:
    """A whole body with the loop variables that the layout gives to its reference."""
    cpu, own = words_of(task.cpu, reference=True), words_of(body)
    loops = loop_variables(cpu)
    taken = (set(cpu) | {argument.name for argument in task.arguments}) - set(loops)
    kernel_loops = loop_variables(own)
    names = {old: new for old, new in loop_names(cpu, taken).items() if old in kernel_loops}
    if any(new in own and new not in names for new in names.values()):
        return body
    return re.sub(r"(?<![.\w])[A-Za-z_]\w*", lambda match: names.get(match.group(), match.group()), body)


def choose_span(
    text: str, body_start: int, body_end: int, rng: random.Random, whole: float = 0.55
) -> tuple[int, int, str]:
    """A region inside `text[body_start:body_end]` as a user would select it: `(start, end, kind)`.

    `body` is everything between the kernel's braces, `block` between inner braces, `lines` whole statements, `tail` from
    a statement to the end, `rhs` the right side of an assignment, `tokens` any run of tokens.
    """
    if rng.random() < whole:
        return body_start, body_end, "body"
    tokens = []
    at = body_start
    for kind, spelling in lex(text[body_start:body_end]):
        begin = text.index(spelling, at)
        at = begin + len(spelling)
        if kind != "comment":
            tokens.append((spelling, begin, at))
    if len(tokens) < 6:
        return body_start, body_end, "body"
    kind = rng.choices(SPAN_KINDS[1:], [25, 25, 20, 20, 10])[0]
    if kind == "block":
        pairs = _brace_pairs(tokens)
        if pairs:
            opening, closing = rng.choice(pairs)
            if closing > opening + 1:
                return tokens[opening][2], tokens[closing][1], kind
        kind = "lines"
    if kind in ("lines", "tail"):
        starts = _statement_starts(tokens)
        first = rng.choice(starts)
        if kind == "tail":
            # To the end of the innermost block, so that what is cut out is whole statements.
            depth = 0
            for index in range(first, len(tokens)):
                depth += {"{": 1, "}": -1}.get(tokens[index][0], 0)
                if depth < 0:
                    return tokens[first][1], tokens[index - 1][2], kind
            return tokens[first][1], tokens[-1][2], kind
        wanted = rng.choice([1, 1, 2, 3])
        depth = parentheses = 0
        for index in range(first, len(tokens)):
            spelling = tokens[index][0]
            depth += {"{": 1, "}": -1}.get(spelling, 0)
            parentheses += {"(": 1, ")": -1}.get(spelling, 0)
            if depth < 0:
                return tokens[first][1], tokens[max(index - 1, first)][2], kind
            following = tokens[index + 1][0] if index + 1 < len(tokens) else ""
            if depth == 0 and parentheses == 0 and spelling in (";", "}") and following != "else":
                wanted -= 1
                if wanted == 0:
                    return tokens[first][1], tokens[index][2], kind
        return tokens[first][1], tokens[-1][2], kind
    if kind == "rhs":
        places = [index for index, token in enumerate(tokens) if token[0] in ("=", "+=", "*=", "-=")]
        rng.shuffle(places)
        for place in places:
            parentheses = 0
            for index in range(place + 1, len(tokens)):
                spelling = tokens[index][0]
                parentheses += {"(": 1, "[": 1, ")": -1, "]": -1}.get(spelling, 0)
                if parentheses == 0 and spelling == ";" and index > place + 2:
                    return tokens[place + 1][1], tokens[index - 1][2], kind
                if parentheses < 0 or spelling in "{}":
                    break
        kind = "tokens"
    first = rng.randrange(len(tokens) - 3)
    last = rng.randrange(first + 2, min(len(tokens), first + 40))
    return tokens[first][1], tokens[last][2], "tokens"


def _brace_pairs(tokens: list[tuple[str, int, int]]) -> list[tuple[int, int]]:
    pairs, stack = [], []
    for index, (spelling, _, _) in enumerate(tokens):
        if spelling == "{":
            stack.append(index)
        elif spelling == "}" and stack:
            pairs.append((stack.pop(), index))
    return pairs


def _statement_starts(tokens: list[tuple[str, int, int]]) -> list[int]:
    starts = [0]
    parentheses = 0
    for index, (spelling, _, _) in enumerate(tokens[:-1]):
        parentheses += {"(": 1, ")": -1}.get(spelling, 0)
        if parentheses == 0 and spelling in (";", "{", "}") and tokens[index + 1][0] not in ("}", "else"):
            starts.append(index + 1)
    return starts


def make_example(seed: int) -> Example:
    """The example of a seed: the same for ever in one version of the generator."""
    task = make_task(seed)
    request, middle, kind = request_for(task, random.Random(seed ^ 0x5DEECE66D))
    return Example(request, middle, kind)
