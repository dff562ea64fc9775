"""What the compilers say, at the lines and columns of the document, and the figures that `ptxas -v` gives.

NVRTC and nvcc name a file and a line, and show columns as carets under a quoted line, in bytes; g++ behind nvcc writes
`file:line:column:`. A message about a header is one at the include that leads to it.
"""

import os
import re
from collections import OrderedDict
from collections.abc import Sequence

from attrs import evolve, frozen

from dice_lsp.records import CompileMessage, Kernel
from dice_lsp.source.slice import IncludeKind
from dice_lsp.worker.libraries import next_step
from dice_lsp.worker.program import DOCUMENT, DOCUMENT_HEADER, CompileJob, Program


@frozen
class Resources:
    """The figures of `ptxas -v` for one kernel, bytes per thread for the stack and spills, per block for shared memory."""

    registers: int = 0
    smem_bytes: int = 0
    stack_bytes: int = 0
    spill_store_bytes: int = 0
    spill_load_bytes: int = 0


def bad_name_expressions(output: str) -> dict[str, str]:
    """Name expressions (white space removed) that NVRTC could not resolve -> why; empty if the text has errors of its own.

    NVRTC appends the expressions to the text in a file of its own, `__nv_name_map`, and reports their errors there.
    """
    bad: dict[str, str] = {}
    first: dict[str, str] = {}
    for line in output.splitlines():
        match = _HEAD.match(line)
        if match is None or "error" not in match["severity"]:
            continue
        if match["file"] != "__nv_name_map":
            return {}
        named = re.search(r'Input name expression was: "(.*)"', match["text"])
        if named is not None:
            bad[re.sub(r"\s", "", named[1])] = first.get(match["line"], match["text"].partition(". Input")[0])
        else:
            first.setdefault(match["line"], match["text"])
    return bad


class Places:
    """From a compiler's file names and lines to the document's lines and columns."""

    def __init__(self, job: CompileJob, program: Program, prefix_lines: int) -> None:
        self.prefix_lines = prefix_lines
        self.text = job.text
        self.lines = re.split(r"\r\n|\r|\n", job.text)
        self.headers = {header.path: header for header in program.headers}
        self.includes = [i for i in program.sliced.includes if i.kind is IncludeKind.DEVICE]
        self.kernels = job.kernels
        self.first_line = min((kernel.line for kernel in job.kernels), default=0)
        self.includer = program.includer
        self.document = os.path.normpath(os.path.abspath(job.path)) if program.includer else DOCUMENT
        if program.includer:
            # The lines before it stand before the includer's text.
            self.prefix_lines = 0

    def line(self, number: int) -> int:
        return min(max(number - 1 - self.prefix_lines, 0), len(self.lines) - 1)

    def is_document(self, file: str) -> bool:
        return file == DOCUMENT if not self.includer else os.path.normpath(file) in (self.document, DOCUMENT_HEADER)

    def place(self, file: str, number: int) -> tuple[int, str]:
        """(line of the document, what to say before the message when it is about another file)."""
        if self.is_document(file):
            if number <= self.prefix_lines:
                return self.first_include(), ""
            return self.line(number), ""
        name = os.path.normpath(self.includer if file == DOCUMENT else file)
        if name == self.includer:
            return self.first_line, f"{os.path.basename(name)}: "
        header = self.headers.get(name) or self.headers.get(file)
        if header is not None:
            return max(header.included_at, 0), f"{os.path.basename(name)}({number}): "
        return self.first_include(name), f"{os.path.basename(name)}({number}): "

    def first_include(self, path: str = "") -> int:
        """The include that most likely led to a system header: the one it is named by, else one of the same family."""
        for include in self.includes:
            if path.endswith("/" + include.name):
                return include.line
        for include in self.includes:
            if f"/{include.name.split('/')[0].removesuffix('.h')}/" in path:
                return include.line
        return self.includes[0].line if self.includes else self.first_line

    def column(self, line: int, quoted: str | None, caret: int | None) -> int:
        """Code points before the caret, which stands under the byte of the quoted line."""
        text = self.lines[line]
        if caret is None or quoted is None:
            return len(text) - len(text.lstrip())
        return min(len(text.encode("utf-8", "replace")[:caret].decode("utf-8", "ignore")), len(text))

    def assembly_line(self) -> int:
        """The first line of inline assembly of a kernel, else the first kernel's."""
        for kernel in self.kernels:
            end = self.end_line(kernel)
            for line in range(kernel.line, end + 1):
                if re.search(r"\basm\b", self.lines[line]):
                    return line
        return self.first_line

    def end_line(self, kernel: Kernel) -> int:
        return kernel.line + len(re.findall(r"\r\n|\r|\n", self.text[kernel.body_start : kernel.end]))

    @property
    def last_line(self) -> int:
        """The last line that holds code."""
        return next((i for i in reversed(range(len(self.lines))) if self.lines[i].strip()), 0)

    def kernel_line(self, symbol: str) -> int:
        for kernel in self.kernels:
            if symbol == kernel.name or f"{len(kernel.name)}{kernel.name}" in symbol:
                return kernel.line
        return self.first_line


_HEAD = re.compile(
    r"^(?P<file>[^\s(][^(\n]*?)\((?P<line>\d+)\): (?P<severity>catastrophic error|error|warning|remark|note)"
    r"(?: #(?P<number>[\w-]+))?: (?P<text>.*)$"
)
_AT_END = re.compile(r"^At end of source: (?:catastrophic )?error(?: #[\w-]+)?: (?P<text>.*)$")
_GCC_HEAD = re.compile(
    r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+):(?:(?P<column>\d+):)? (?P<severity>fatal error|error|warning|note): (?P<text>.*)$"
)
_PTXAS = re.compile(r"^ptxas\s+(?P<where>.*?)\s*(?:;|:)?\s*(?P<severity>error|fatal|warning)\s*: (?P<text>.*)$")
_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SMEM = re.compile(r"(\d+)(?:\+(\d+))? bytes smem")
_AT_LINE = re.compile(r"at line (\d+)(?: of (?:\"([^\"]+)\"|(\S+)))?")


def parse_log(output: str, places: Places) -> tuple[list[CompileMessage], dict[str, Resources]]:
    """Messages at lines of the document, errors first, and the figures of each entry function."""
    messages: list[CompileMessage] = []
    resources: dict[str, Resources] = {}
    entry: str | None = None
    lines = output.split("\n")
    index = 0
    while index < len(lines):
        line = lines[index].rstrip("\r")
        index += 1
        if line.lstrip().startswith("ptxas"):
            if (match := _ENTRY.search(line)) is not None:
                entry = match[1]
                resources.setdefault(entry, Resources())
            elif entry is not None and (match := _STACK.search(line)) is not None:
                resources[entry] = evolve(
                    resources[entry], stack_bytes=int(match[1]), spill_store_bytes=int(match[2]),
                    spill_load_bytes=int(match[3]),
                )  # fmt: skip
            elif entry is not None and (match := _USED.search(line)) is not None:
                smem = _SMEM.search(line)
                resources[entry] = evolve(
                    resources[entry], registers=int(match[1]), smem_bytes=int(smem[1]) if smem else 0
                )
            elif (match := _PTXAS.match(line.lstrip())) is not None and "info" not in match["where"]:
                if match["severity"] == "fatal":
                    continue
                named = re.search(r"function '([^']+)'", match["text"])
                severity = "warning" if match["severity"] == "warning" else "error"
                in_ptx = "ptx input" in match["where"] or "<stdin>" in match["where"]
                where = places.assembly_line() if in_ptx else places.kernel_line(named[1] if named else entry or "")
                messages.append(
                    CompileMessage(where, places.column(where, None, None), severity, match["text"].strip())
                )
            continue
        if entry is not None and (match := _STACK.search(line)) is not None:
            resources[entry] = evolve(
                resources[entry], stack_bytes=int(match[1]), spill_store_bytes=int(match[2]), spill_load_bytes=int(match[3])
            )  # fmt: skip
            continue
        gcc = False
        head = _HEAD.match(line)
        if head is None:
            head, gcc = _GCC_HEAD.match(line), True
        if head is None and (match := _AT_END.match(line)) is not None:
            last = places.last_line
            messages.append(CompileMessage(last, len(places.lines[last].rstrip()), "error", match["text"]))
            continue
        if head is None or head["severity"] == "remark" or "#pragma once in main file" in head["text"]:
            # A header that is open in an editor is what is compiled, and is right to say that.
            continue
        quoted, caret, trail = None, None, []
        while index < len(lines) and lines[index].strip() and not gcc:
            follow = lines[index].rstrip("\r")
            if _HEAD.match(follow):
                break
            index += 1
            if re.fullmatch(r"[ \t]*\^", follow):
                caret = len(follow) - 1 - 2
            elif _AT_LINE.search(follow) or (follow.startswith("      ") and caret is not None):
                trail.append(follow.strip())
            elif quoted is None:
                quoted = follow[2:]
        messages += _message(head, gcc, quoted, caret, trail, places)
    order = {"error": 0, "warning": 1, "note": 2}
    messages = list(OrderedDict.fromkeys(messages))
    first_errors = [m for m in messages if m.severity == "error"]
    return first_errors + sorted(
        (m for m in messages if m.severity != "error"), key=lambda m: order[m.severity]
    ), resources


def _message(
    head: "re.Match[str]", gcc: bool, quoted: str | None, caret: int | None, trail: Sequence[str], places: Places
) -> list[CompileMessage]:
    severity = "error" if "error" in head["severity"] else head["severity"]
    line, prefix = places.place(head["file"], int(head["line"]))
    if gcc and head["column"]:
        caret, quoted = int(head["column"]) - 1, ""
    column = places.column(line, quoted, caret) if not prefix and places.is_document(head["file"]) else 0
    text = head["text"].strip().removeprefix("#error directive: ")
    messages = [CompileMessage(line, column, severity, prefix + text)]
    for remark in trail if severity == "error" else ():
        # `detected during instantiation of "..." at line 12`: the line that asked for the instance is worth a note.
        if (at := _AT_LINE.search(remark)) is not None:
            file = at[2] or at[3] or places.document
            number = int(at[1])
            if places.is_document(file) and number > places.prefix_lines:
                where = places.line(number)
                said = (
                    remark[: at.start()]
                    .strip()
                    .removeprefix("detected during:")
                    .removeprefix("detected during")
                    .strip()
                )
                messages.append(
                    CompileMessage(where, places.column(where, None, None), "note", said or "instantiated here")
                )
    return messages


_RUNTIME_CALL = re.compile(
    r"cuda(?:Malloc|Free|Memcpy|Memset|Stream|Event|Device|Graph|GetLast|PeekAt|GetError|Func|Launch)\w*$"
)


_FOLLOWS = re.compile(
    r'^attribute "__global__" does not apply here$|^A namespace scope variable without memory space'
    r"|Input name expression was: "
)
"""What NVRTC says of a kernel whose parameters have a type that it does not know, beside that it does not know it."""


_UNKNOWN = re.compile(r'^identifier "[^"]+" is undefined|^name followed by "::" must be')


def explained(messages: list[CompileMessage], program: Program) -> list[CompileMessage]:
    """Messages with what only this tool knows: that a name is the host's, that a header was not found."""
    explained: list[CompileMessage] = []
    errors = [message for message in messages if message.severity == "error"]
    followed = [message for message in errors if _FOLLOWS.search(message.text)]
    if len(followed) < len(errors):
        messages = [message for message in messages if message not in followed]
    # A type that is not known brings errors about everything around it, some of which are said before it.
    first = min((message.line for message in errors), default=-1)
    messages = sorted(
        messages, key=lambda m: not (m.line == first and m.severity == "error" and _UNKNOWN.search(m.text))
    )
    for message in messages:
        match = re.search(r'identifier "([^"]+)" is undefined', message.text)
        if match is not None and match[1] in program.sliced.dropped_functions:
            message = evolve(message, text=f"{message.text}: it is a host function, which device code cannot call")
        elif "runtime APIs are not declared" in message.text or (match is not None and _RUNTIME_CALL.match(match[1])):
            message = evolve(message, text=f"{message.text}: kernels that use the device runtime need nvcc")
        explained.append(message)
    for include, line in zip(program.missing, program.missing_lines, strict=True):
        text = f"the header {include.name} was not found and was left out; {next_step(include.name)}"
        explained.append(CompileMessage(line, 0, "warning", text))
    return explained


def with_next_steps(messages: Sequence[CompileMessage]) -> list[CompileMessage]:
    """What nvcc says, with what to do about a header that it has not found."""
    return [
        evolve(message, text=f"the header {match[1]} was not found; {next_step(match[1])}")
        if (match := re.search(r"(\S+): No such file or directory$", message.text)) is not None
        else message
        for message in messages
    ]


def smells_of_host(messages: Sequence[CompileMessage], program: Program) -> bool:
    """Whether NVRTC may have failed only because it is not nvcc."""
    unknown_headers = bool(program.missing) or any(
        include.kind is IncludeKind.HOST and re.match(r"thrust/|torch/|ATen/|c10/", include.name)
        for include in program.sliced.includes
    )
    for message in messages:
        if message.severity != "error":
            continue
        if re.search(
            r"JIT mode|cannot open source file|namespace \"std|Broken module|dynamic initialization is not supported"
            r"|not supported when compiling with NVRTC|__host__ function|runtime APIs are not declared"
            r"|^[\w.+-]+\(\d+\): |qualified name is not allowed|no storage class or type specifier"
            r"|kernels that use the device runtime need nvcc",
            message.text,
        ):
            return True
        if re.search(
            r"is undefined|has no member|must be a (?:namespace|class)|is not a (?:class|template)", message.text
        ):
            named = re.search(r'identifier "([^"]+)"', message.text)
            if unknown_headers or (named is not None and named[1] in program.dropped):
                return True
    return False
