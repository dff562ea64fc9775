"""How many kernels a text has, counted in another way than the product does: by characters alone, with no parser.

It is here to be compared with, so it shares nothing with `dice_lsp.source`. Kernels under `#if 0` do not count, those of
the branches of any other condition do. A kernel that a macro makes has no text of its own; such macros are named apart.
"""

import ast
import re

from attrs import frozen

_NOT_CODE = re.compile(
    r"""//(?:\\\r?\n|[^\n])*|/\*.*?(?:\*/|\Z)|\b(?:u8|[uUL])?R"(?P<mark>[^()\\\s"]{0,16})\(.*?\)(?P=mark)"
    |"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])'|'\\[^'\n]*'""",
    re.DOTALL | re.VERBOSE,
)
_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(?P<word>\w+)(?P<rest>(?:[^\n\\]|\\\r?\n|\\.)*)", re.MULTILINE)
_ATTRIBUTE = {
    "__launch_bounds__",
    "__cluster_dims__",
    "__maxnreg__",
    "__align__",
    "__attribute__",
    "alignas",
    "__block_size__",
}


@frozen
class Counted:
    """One kernel with a body. `at` is where its `__global__`, or the macro that stands for it, begins."""

    name: str
    at: int
    line: int
    """One-based."""


@frozen
class Count:
    """The kernels of a text and the macros whose use makes more of them."""

    kernels: tuple[Counted, ...]
    macros: tuple[str, ...] = ()


def count_kernels(text: str) -> Count:
    """The kernels of CUDA text, in its order."""
    code = _NOT_CODE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    code = _without_dead(code)
    words, macros = ["__global__"], []
    for match in _DIRECTIVE.finditer(code):
        defined = re.match(r"\s+(\w+)(\()?", match["rest"]) if match["word"] == "define" else None
        if defined is None or "__global__" not in match["rest"]:
            continue
        (macros if "{" in match["rest"] else words).append(defined[1])
    code = _DIRECTIVE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), code)
    found = []
    for match in re.finditer(rf"\b(?:{'|'.join(map(re.escape, words))})\b", code):
        name = _defined_name(code, match.end())
        if name:
            found.append(Counted(name, match.start(), text.count("\n", 0, match.start()) + 1))
    # Two such words may mark one kernel: `extern __global__ KERNEL void f()`.
    alone = [one for place, one in enumerate(found) if not place or code[found[place - 1].at : one.at].count("(")]
    return Count(tuple(alone), tuple(macros))


def count_in_python(text: str) -> Count:
    """The kernels in the string literals of a Python text; `at` and `line` count in the literal's own text."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return Count(())
    kernels: list[Counted] = []
    macros: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "__global__" in node.value:
            count = count_kernels(node.value)
            kernels += count.kernels
            macros += count.macros
    return Count(tuple(kernels), tuple(macros))


def _without_dead(code: str) -> str:
    """Code with what stands between `#if 0` and its end or `#else` made white."""
    out, dead, depth = [], 0, 0
    for line in code.split("\n"):
        word = re.match(r"\s*#\s*(if|ifdef|ifndef|elif|else|endif)\b\s*(.*)", line)
        kept = not dead
        if word is not None:
            if word[1].startswith("if"):
                depth += 1
                if not dead and word[1] == "if" and re.fullmatch(r"0|false", word[2].strip()):
                    dead = depth
            elif dead == depth:
                dead = 0
            if word[1] == "endif":
                depth -= 1
        out.append(line if kept else " " * len(line))
    return "\n".join(out)


def _defined_name(code: str, at: int) -> str | None:
    """The name of the function whose head goes on at `at`; None for a declaration, or for what is no function."""
    depth, opened, groups = 0, 0, []
    while at < len(code):
        character = code[at]
        if character == "(":
            depth += 1
            opened = at if depth == 1 else opened
        elif character == ")":
            depth -= 1
            if depth < 0:
                return None
            if depth == 0:
                groups.append(opened)
        elif depth == 0 and character in ";{}":
            break
        at += 1
    if at >= len(code) or code[at] != "{":
        return None
    for opened in reversed(groups):
        before = code[:opened].rstrip()
        if before.endswith(">"):
            # A specialisation: `f<float>(`.
            before = re.sub(r"<(?:[^<>(){};]|<[^<>(){};]*>)*>$", "", before).rstrip()
        word = re.search(r"[A-Za-z_]\w*$", before[-200:])
        if word is not None and word[0] not in _ATTRIBUTE:
            return word[0]
    return None
