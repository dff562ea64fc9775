"""Our diagnostics, and no others: unreadable directives, errors of our own compiles, kernels that are wrong or slower.

C++ diagnostics are clangd's business. All of ours hold for the present text only: what is said of a kernel goes with
the text that was checked, and an error of a compile moves along with its line, found by the text of that line.
"""

import re
from collections.abc import Sequence

from lsprotocol import types

from dice_lsp.baseline import regression
from dice_lsp.hint import refusal
from dice_lsp.records import Cheating, CompileFailed, Kernel, KernelReport, Unsafe, Weight, Wrong
from dice_lsp.server import to_lsp
from dice_lsp.server.documents import Snapshot
from dice_lsp.server.session import DiceServer

SOURCE = "dice"
LINES_SEARCHED = 2000
_SEVERITIES = {
    "error": types.DiagnosticSeverity.Error,
    "warning": types.DiagnosticSeverity.Warning,
    "note": types.DiagnosticSeverity.Information,
}

_WEIGHTS = {
    Weight.ERROR: types.DiagnosticSeverity.Error,
    Weight.WARNING: types.DiagnosticSeverity.Warning,
    Weight.INFORMATION: types.DiagnosticSeverity.Information,
    Weight.HINT: types.DiagnosticSeverity.Hint,
}


def register(server: DiceServer) -> None:
    def follow(old: Snapshot | None, new: Snapshot) -> None:
        publish(server, new.document.uri)
        server.reviews.follow(new)

    server.on_snapshot.append(follow)
    server.reviews.on_news = lambda uri: publish(server, uri)


def remember(server: DiceServer, snapshot: Snapshot, report: KernelReport) -> None:
    """Keep the text of the lines that a report's compile errors or findings are about, to find them again."""
    lines = [finding.line for finding in report.sanitized.findings] if report.sanitized is not None else []
    if isinstance(report.build, CompileFailed):
        lines = [message.line for message in report.build.messages]
    if lines:
        key = (snapshot.document.uri, report.name, snapshot.keys.get(report.name, ""))
        server.error_lines[key] = {line: line_text(snapshot, line) for line in lines if line is not None}


def forget(server: DiceServer, uri: str) -> None:
    """Take back everything about a document that was closed."""
    server.reviews.forget(uri)
    for key in [key for key in server.error_lines if key[0] == uri]:
        del server.error_lines[key]
    if server.published.pop(uri, None):
        server.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri=uri, diagnostics=[]))


def publish(server: DiceServer, uri: str) -> None:
    """Send what holds for the present text, if it differs from what the client has."""
    snapshot = server.documents.last(uri)
    if snapshot is None or not server.documents.is_current(snapshot):
        return
    diagnostics = (
        *_directive_problems(server, snapshot),
        *_compile_errors(server, snapshot),
        *_judgements(server, snapshot),
    )
    if diagnostics == server.published.get(uri, ()):
        return
    server.published[uri] = diagnostics
    server.text_document_publish_diagnostics(
        types.PublishDiagnosticsParams(uri=uri, version=snapshot.document.version, diagnostics=list(diagnostics))
    )


def _directive_problems(server: DiceServer, snapshot: Snapshot) -> Sequence[types.Diagnostic]:
    return [
        types.Diagnostic(
            range=to_lsp.range_of(snapshot.index, problem.start, problem.end, server.encoding),
            message=problem.message,
            severity=_WEIGHTS[problem.weight],
            source=SOURCE,
            code="directive",
            tags=[types.DiagnosticTag.Unnecessary] if problem.unnecessary and server.client.diagnostic_tags else None,
            data={"fix": problem.fix} if problem.fix is not None else None,
        )
        for problem in (*snapshot.problems, *server.reviews.of(snapshot))
    ]


def _compile_errors(server: DiceServer, snapshot: Snapshot) -> Sequence[types.Diagnostic]:
    found: dict[tuple[int, int, str], types.Diagnostic] = {}
    uri, index = snapshot.document.uri, snapshot.index
    for kernel in snapshot.model.kernels:
        key = snapshot.keys[kernel.id]
        report = server.results.report(uri, kernel.id, key)
        if report is None or not isinstance(report.build, CompileFailed):
            continue
        texts = server.error_lines.get((uri, kernel.id, key), {})
        for message in report.build.messages:
            line = find_line(snapshot, kernel.line + message.line - report.line, texts.get(message.line))
            if line is None:
                continue
            start = min(index.line_start(line) + message.column, index.line_end(line))
            # Two kernels that use the same broken helper report the same error: it is shown once.
            found.setdefault(
                (line, message.column, message.text),
                types.Diagnostic(
                    range=to_lsp.range_of(index, start, _word_end(snapshot, start), server.encoding),
                    message=message.text,
                    severity=_SEVERITIES.get(message.severity, types.DiagnosticSeverity.Error),
                    source=SOURCE,
                    code="compile",
                ),
            )
    return [found[place] for place in sorted(found)]


def _judgements(server: DiceServer, snapshot: Snapshot) -> Sequence[types.Diagnostic]:
    """Kernels that are known to be wrong, and those that are worse than their baseline."""
    uri = snapshot.document.uri
    found: list[types.Diagnostic] = []
    percent = server.settings_of(uri).regression_percent
    for kernel in snapshot.model.kernels:
        report = server.results.report(uri, kernel.id, snapshot.keys[kernel.id])
        if report is None:
            continue
        if report.sanitized is not None and report.sanitized.findings:
            found += _findings(server, snapshot, kernel, report)
            continue
        worse = regression(report, percent)
        verdict = report.verdict
        if isinstance(verdict, (Wrong, Unsafe, Cheating)):
            message, code, severity = worse or refusal(verdict), "wrong", types.DiagnosticSeverity.Error
        elif worse is not None:
            message, code, severity = worse, "regression", types.DiagnosticSeverity.Warning
        else:
            continue
        start, end = _name(snapshot, kernel)
        found.append(
            types.Diagnostic(
                range=to_lsp.range_of(snapshot.index, start, end, server.encoding),
                message=message,
                severity=severity,
                source=SOURCE,
                code=code,
            )
        )
    return found


def _findings(
    server: DiceServer, snapshot: Snapshot, kernel: Kernel, report: KernelReport
) -> Sequence[types.Diagnostic]:
    """What compute-sanitizer found, each at its line; at the kernel's name where the line is not known."""
    texts = server.error_lines.get((snapshot.document.uri, kernel.id, snapshot.keys[kernel.id]), {})
    found: list[types.Diagnostic] = []
    for finding in () if report.sanitized is None else report.sanitized.findings:
        line = None
        if finding.line is not None:
            line = find_line(snapshot, kernel.line + finding.line - report.line, texts.get(finding.line))
        start, end = _name(snapshot, kernel)
        if line is not None:
            text = line_text(snapshot, line)
            end = snapshot.index.line_start(line) + len(text.rstrip())
            start = end - len(text.strip())
        case = f" ({finding.case})" if finding.case else ""
        found.append(
            types.Diagnostic(
                range=to_lsp.range_of(snapshot.index, start, end, server.encoding),
                message=f"{finding.text}{case}, says compute-sanitizer {finding.tool}",
                severity=types.DiagnosticSeverity.Error,
                source=SOURCE,
                code=finding.hazard,
            )
        )
    return found


def _name(snapshot: Snapshot, kernel: Kernel) -> tuple[int, int]:
    """Where the kernel's name stands: on its line, before the parameters."""
    text, line = snapshot.document.text, snapshot.index.line_start(kernel.line)
    match = re.compile(rf"\b{re.escape(kernel.name)}\b").search(text, line, snapshot.index.line_end(kernel.line))
    return match.span() if match else (line, snapshot.index.line_end(kernel.line))


def find_line(snapshot: Snapshot, expected: int, text: str | None) -> int | None:
    """The line of the snapshot nearest to `expected` with exactly this text."""
    for distance in range(LINES_SEARCHED):
        for line in (expected - distance, expected + distance):
            if 0 <= line < snapshot.index.line_count and line_text(snapshot, line) == text:
                return line
    return None


def line_text(snapshot: Snapshot, line: int) -> str:
    """A line without its end."""
    return snapshot.document.text[snapshot.index.line_start(line) : snapshot.index.line_end(line)]


def _word_end(snapshot: Snapshot, start: int) -> int:
    text, limit = snapshot.document.text, snapshot.index.line_end(snapshot.index.line_of(start))
    end = start
    while end < limit and (text[end].isalnum() or text[end] == "_"):
        end += 1
    return end if end > start else min(start + 1, limit)
