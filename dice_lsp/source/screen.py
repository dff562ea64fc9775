"""Reasons to refuse a model's fill as text, before any compiler sees it.

A fill is data from a stranger. It may only be statements of the body it was asked for: no preprocessor, no inline
assembly, no way out of the body, nothing that reaches the machine when the text is compiled for the host.
"""

import re

from dice_lsp.records import Region
from dice_lsp.source.kernels import parse
from dice_lsp.source.tokens import CLOSING, OPENING, Kind, Token, lex

_FORBIDDEN = {
    "asm": "inline assembly", "__asm": "inline assembly", "__asm__": "inline assembly",
    "_Pragma": "a pragma", "__pragma": "a pragma", "import": "an import", "__import": "an import",
    "__attribute__": "an attribute", "__attribute": "an attribute", "__declspec": "an attribute",
    "__global__": "a kernel of its own", "__device__": "a function of its own", "__host__": "a function of its own",
    "template": "a template", "namespace": "a namespace", "co_await": "a coroutine", "co_yield": "a coroutine",
}  # fmt: skip
# No device function has these names; compiled for the host they would reach the machine.
_MACHINE = {
    "system", "popen", "fork", "vfork", "execl", "execlp", "execle", "execv", "execvp", "execve", "fexecve", "posix_spawn",
    "syscall", "ptrace", "dlopen", "dlsym", "mmap", "munmap", "mprotect", "openat", "creat", "fopen", "freopen", "unlink",
    "rmdir", "mkdir", "sigaction", "setjmp", "longjmp", "_setjmp", "_exit", "_Exit", "quick_exit", "atexit", "getenv",
    "setenv", "putenv", "prctl", "ioctl", "ifstream", "ofstream", "fstream", "filesystem", "jthread", "pthread_create",
}  # fmt: skip
# The same, but people also call their variables so: refused where they are called, qualified or not declared.
_MACHINE_OR_VARIABLE = {
    "open", "remove", "rename", "socket", "connect", "kill", "raise", "signal", "exit", "clone", "thread", "async", "environ",
    "stdin", "stdout", "stderr", "accept", "bind", "listen", "send", "recv", "read", "write", "close", "link", "abort", "select",
}  # fmt: skip
_BUILTINS = re.compile(
    r"__builtin_(?:expect|assume|assume_aligned|unreachable|fabsf?|sqrtf?|fminf?|fmaxf?|fmaf?|popcountl?l?|clzl?l?|ctzl?l?|"
    r"ffsl?l?|bswap\d+|isnan|isinf|inff?|huge_valf?|nanf?|is_constant_evaluated|add_overflow|mul_overflow)$"
)
_DIGRAPH = re.compile(r"%:|<%|%>|<:(?!:)|:>|\?\?[=/'()!<>\-]")
_DEFINE = re.compile(r"[ \t]*#[ \t]*define[ \t]+(\w+)(?:\([^()]*\))?([\s\S]*)")
_MACRO_DEPTH, _MACRO_BRACKETS = 32, 4096
_CONTROL = {
    "if",
    "for",
    "while",
    "switch",
    "catch",
    "constexpr",
    "return",
    "else",
    "do",
    "sizeof",
    "alignof",
    "decltype",
}


def screen_fill(region: Region, middle: str) -> str | None:
    """Why `middle` must not stand in `region`, as the rest of a sentence that begins with "the fill"; None if it may."""
    control = re.search(r"[\x00-\x08\x0e-\x1f\x7f]", middle)
    if control is not None:
        return f"holds the control character {ord(control.group()):#04x}"
    text = region.prefix + middle + region.suffix
    start, end = region.start, region.start + len(middle)
    floor, ceiling = _body(region)
    ceiling += len(middle) - (region.end - region.start)
    fill = [token for token in lex(text, start, end) if token.kind is not Kind.SPACE]
    reason = _bad_token(text, fill) or _unfinished(text, fill, end)
    if reason is not None:
        return reason
    before, after = list(lex(text, floor, start)), list(lex(text, end, ceiling))
    known = {text[token.start : token.end] for token in (*before, *after) if token.kind is Kind.NAME}
    known |= {parameter.name for parameter in (region.kernel.parameters if region.kernel else ())}
    reason = (
        _reaches_the_machine(text, fill, known) or _macro(region, text, fill) or _calls_a_kernel(region, text, fill)
    )
    if reason is not None:
        return reason
    return _brackets(text, before, fill, after) or _function_definition(text, fill)


def _body(region: Region) -> tuple[int, int]:
    if region.kernel is not None:
        return region.kernel.body_start, region.kernel.body_end
    for block in parse(region.document.text).skeleton.blocks:
        if block.body_start <= region.start <= region.end <= block.body_end:
            return block.body_start, block.body_end
    return region.start, region.end


def _bad_token(text: str, tokens: list[Token]) -> str | None:
    for token in tokens:
        piece = text[token.start : token.end]
        match token.kind:
            case Kind.DIRECTIVE:
                return f"holds a preprocessor line: `{piece.split(chr(10))[0].strip()[:40]}`"
            case Kind.PUNCTUATION if piece in ("#", "##"):
                return "holds a preprocessor line: `#`"
            case Kind.OTHER if piece == "\\":
                return "holds a line continuation"
            case Kind.NAME if piece in _FORBIDDEN:
                return f"holds {_FORBIDDEN[piece]}: `{piece}`"
            case Kind.NAME if piece.startswith("__builtin_") and not _BUILTINS.match(piece):
                return f"uses the compiler builtin `{piece}`"
            case _:
                continue
    for token in tokens:
        digraph = _DIGRAPH.match(text, token.start) if token.kind is Kind.PUNCTUATION else None
        if digraph is not None and digraph.end() <= tokens[-1].end:
            return f"holds the digraph or trigraph `{digraph.group()}`"
    # A continuation hides in white space too: the lexer takes `\` and a line end as one.
    last = 0
    for token in tokens:
        gap = text[last : token.start] if last else ""
        if "\\" in gap:
            return "holds a line continuation"
        if token.kind is Kind.COMMENT and text.startswith("//", token.start):
            body = text[token.start : token.end]
            if re.search(r"(?:\\|\?\?/)[ \t]*(?:\r?\n|$)", body):
                return "holds a comment with a line continuation"
        last = token.end
    return None


def _reaches_the_machine(text: str, tokens: list[Token], known: set[str]) -> str | None:
    """Names of the C library; `known` are those that the text around the fill uses for its own things."""
    code = [token for token in tokens if token.kind is not Kind.COMMENT]
    piece = [text[token.start : token.end] for token in code]
    declared = {
        piece[at]
        for at in range(1, len(piece) - 1)
        if (code[at - 1].kind is Kind.NAME or piece[at - 1] in ("*", "&", ","))
        and piece[at + 1] in ("=", ";", ",", "[", ":")
    }
    for at, word in enumerate(piece):
        if code[at].kind is not Kind.NAME:
            continue
        before, after = piece[at - 1] if at else "", piece[at + 1] if at + 1 < len(piece) else ""
        member = before in (".", "->")
        called = (after == "(" and not member) or before == "::"
        variable = word in _MACHINE_OR_VARIABLE and not called and (member or word in known | declared)
        if word in _MACHINE or (word in _MACHINE_OR_VARIABLE and not variable):
            return f"uses `{word}`, which is no device function"
    return None


def _macro(region: Region, text: str, tokens: list[Token]) -> str | None:
    """A macro of the document that holds one bracket of a pair may move the end of the body; a whole pair may not."""
    document = region.document.text
    bodies: dict[str, str] = {}
    for token in lex(document):
        if token.kind is Kind.DIRECTIVE and (define := _DEFINE.match(document[token.start : token.end])) is not None:
            bodies[define[1]] = define[2]
    brackets: dict[str, list[str]] = {}

    def expanded(piece: str, kind: Kind, depth: int = 0) -> list[str]:
        if kind is Kind.PUNCTUATION:
            return [piece] if piece in OPENING or piece in CLOSING else []
        if kind is not Kind.NAME or piece not in bodies or depth > _MACRO_DEPTH:
            return []
        if piece not in brackets:
            brackets[piece] = []  # a macro is not expanded within itself
            body = bodies[piece]
            found = [b for t in lex(body) for b in expanded(body[t.start : t.end], t.kind, depth + 1)]
            brackets[piece] = found[:_MACRO_BRACKETS]
        return brackets[piece]

    written = [bracket for token in tokens for bracket in expanded(text[token.start : token.end], token.kind)]
    for token in tokens:
        name = text[token.start : token.end]
        if token.kind is Kind.NAME and not _matched(brackets.get(name, [])) and not _matched(written):
            return f"uses the macro `{name}`, whose brackets do not match"
    return None


def _matched(brackets: list[str]) -> bool:
    stack: list[str] = []
    for bracket in brackets:
        if bracket in OPENING:
            stack.append(bracket)
        elif not stack or stack.pop() != CLOSING[bracket]:
            return False
    return not stack


def _calls_a_kernel(region: Region, text: str, tokens: list[Token]) -> str | None:
    """A kernel is launched, never called; compilers have been seen to crash on it. Other things may share its name."""
    kernels = parse(region.document.text).kernels
    code = [token for token in tokens if token.kind is not Kind.COMMENT]
    piece = [text[token.start : token.end] for token in code]
    for at, word in enumerate(piece[:-1]):
        lengths = {len(kernel.parameters) for kernel in kernels if kernel.name == word}
        if lengths and piece[at + 1] == "(" and _arguments(piece, at + 1) in lengths:
            return f"calls the kernel `{word}`"
    return None


def _arguments(piece: list[str], start: int) -> int:
    """How many arguments stand in the parentheses that open at `start`."""
    depth = commas = 0
    for at in range(start, len(piece)):
        depth += (piece[at] in OPENING) - (piece[at] in CLOSING)
        commas += piece[at] == "," and depth == 1
        if depth == 0:
            return commas + 1 if at > start + 1 else 0
    return 0


def _function_definition(text: str, tokens: list[Token]) -> str | None:
    """A name, parentheses and a `{` after another name define a function, unless the name is a control word."""
    code = [token for token in tokens if token.kind is not Kind.COMMENT]
    piece = [text[token.start : token.end] for token in code]
    for index in range(1, len(code) - 1):
        if piece[index + 1] != "(" or code[index].kind is not Kind.NAME or piece[index] in _CONTROL:
            continue
        before = piece[index - 1]
        typed = (code[index - 1].kind is Kind.NAME and before not in _CONTROL) or before in ("*", "&", ">")
        if not typed:
            continue
        depth = 0
        for after in range(index + 1, len(code)):
            depth += (piece[after] == "(") - (piece[after] == ")")
            if depth == 0:
                if piece[after + 1 : after + 2] == ["{"]:
                    return f"defines a function of its own: `{piece[index]}`"
                break
    return None


def _unfinished(text: str, tokens: list[Token], end: int) -> str | None:
    for token in tokens:
        piece = text[token.start : token.end]
        if token.kind is Kind.COMMENT and piece.startswith("/*") and (len(piece) < 4 or not piece.endswith("*/")):
            return "ends inside a comment"
        quote = '"' if token.kind is Kind.STRING else "'" if token.kind is Kind.CHARACTER else None
        if quote and (piece.count(quote) < 2 or not piece.endswith(quote) or _escaped_end(piece)):
            return f"holds an unfinished {token.kind}: `{piece[:30]}`"
    if tokens and tokens[-1].kind is Kind.COMMENT and text.startswith("//", tokens[-1].start) and tokens[-1].end == end:
        rest = re.match(r"[^\r\n]*", text[end:])
        if rest is not None and rest.group().strip():
            return "ends in a comment that hides the rest of the line"
    trailing = text[tokens[-1].end : end] if tokens else text[:0]
    return "ends in a line continuation" if "\\" in trailing else None


def _escaped_end(piece: str) -> bool:
    if 'R"' in piece[:4]:
        return False
    body = piece[:-1]
    return (len(body) - len(body.rstrip("\\"))) % 2 == 1


def _brackets(text: str, before: list[Token], fill: list[Token], after: list[Token]) -> str | None:
    """Whether the brackets of the whole body match; where the user's own do not, whether those of the fill do."""
    if _mismatch(text, [*before, *fill, *after]) is None:
        return None
    own = _mismatch(text, fill)
    if own is None and _mismatch(text, [*before, *after]) is not None:
        return None
    fault, bracket = own or _mismatch(text, [*before, *fill, *after]) or ("mismatch", "")
    if fault == "open":
        return f"leaves a `{bracket}` open"
    if fault == "close":
        return "closes the kernel's body early" if bracket == "}" else f"closes a `{bracket}` that it did not open"
    return f"has a `{bracket}` that closes another kind of bracket"


def _mismatch(text: str, tokens: list[Token]) -> tuple[str, str] | None:
    """The first bracket that does not fit: `close` for one that closes nothing, `wrong` kind, or left `open`."""
    stack: list[str] = []
    for token in tokens:
        if token.kind is not Kind.PUNCTUATION:
            continue
        piece = text[token.start : token.end]
        if piece in OPENING:
            stack.append(piece)
        elif piece in CLOSING:
            if not stack:
                return "close", piece
            if stack.pop() != CLOSING[piece]:
                return "wrong", piece
    return ("open", stack[-1]) if stack else None
