"""Our results in the client's terms: code points become positions, records become JSON."""

import hashlib
from collections.abc import Sequence
from typing import Any

import attrs
from lsprotocol import types

from dice_lsp.records import (
    Baseline,
    CandidateReport,
    Compiled,
    FillReport,
    Hint,
    KernelReport,
    Measurement,
    Timing,
    to_wire,
)
from dice_lsp.source.positions import Encoding, LineIndex

ANNOTATION = "dice"


def position(index: LineIndex, offset: int, encoding: Encoding) -> types.Position:
    line, character = index.position(offset, encoding)
    return types.Position(line, character)


def range_of(index: LineIndex, start: int, end: int, encoding: Encoding) -> types.Range:
    return types.Range(position(index, start, encoding), position(index, end, encoding))


def inlay_hint(index: LineIndex, hint: Hint, encoding: Encoding) -> types.InlayHint:
    """A hint at the end of its line."""
    return types.InlayHint(
        position=position(index, index.line_end(hint.line), encoding),
        label=hint.label,
        tooltip=types.MarkupContent(types.MarkupKind.Markdown, hint.tooltip) if hint.tooltip else None,
        padding_left=True,
    )


LONG_COMMANDS = frozenset({"dice.fill", "dice.check", "dice.capture"})


def command(title: str, name: str, arguments: dict[str, Any], *, background: bool) -> types.Command:
    """An entry of a menu. `background`: a command that takes long answers at once."""
    if background and name in LONG_COMMANDS:
        arguments = {**arguments, "background": True}
    return types.Command(title=title, command=name, arguments=[arguments])


Replacement = tuple[int, int, str]
"""`(start, end, text)`: `start:end` of a document, and what takes its place."""


def versioned_edit(
    uri: str,
    version: int,
    index: LineIndex,
    replacements: Sequence[Replacement],
    encoding: Encoding,
    asking: str | None = None,
    snippets: bool = False,
) -> types.WorkspaceEdit:
    """Replace parts of exactly this version: a client refuses the edit once its text has moved on.

    With `asking` the client shows the edit under these words, and the user must confirm it. With `snippets` the texts
    have placeholders.
    """
    edits: list[types.TextEdit | types.AnnotatedTextEdit | types.SnippetTextEdit] = []
    for start, end, text in replacements:
        place = range_of(index, start, end, encoding)
        if asking is not None:
            edits.append(types.AnnotatedTextEdit(annotation_id=ANNOTATION, range=place, new_text=text))
        elif snippets:
            edits.append(types.SnippetTextEdit(range=place, snippet=types.StringValue(value=text)))
        else:
            edits.append(types.TextEdit(range=place, new_text=text))
    annotations = None
    if asking is not None:
        annotations = {
            ANNOTATION: types.ChangeAnnotation(label="DICE candidate", needs_confirmation=True, description=asking)
        }
    document = types.OptionalVersionedTextDocumentIdentifier(uri=uri, version=version)
    return types.WorkspaceEdit(
        document_changes=[types.TextDocumentEdit(text_document=document, edits=edits)], change_annotations=annotations
    )


def plain_edit(
    uri: str, index: LineIndex, replacements: Sequence[Replacement], encoding: Encoding
) -> types.WorkspaceEdit:
    """The same for a client that knows no versions of documents. Never both: Kate applies each of them."""
    edits = [types.TextEdit(range_of(index, start, end, encoding), text) for start, end, text in replacements]
    return types.WorkspaceEdit(changes={uri: edits})


def candidate_key(report: CandidateReport) -> str:
    """Names a candidate for good: its label is its present rank, which changes while others are being judged."""
    return hashlib.sha256(report.candidate.text.encode("utf-8", "replace")).hexdigest()[:16]


def fill_report(number: int | None, report: FillReport) -> dict[str, Any]:
    """A fill as JSON: its number, and candidates as `dice-lsp infill --json` has them, each with its key."""
    return {
        "fill": number,
        "decode": None if report.decode is None else to_wire(report.decode),
        "candidates": [_candidate(item) for item in report.candidates],
        "reason": report.reason,
    }


def _candidate(report: CandidateReport) -> dict[str, Any]:
    wire: dict[str, Any] = to_wire(_without_cubin(report))
    text = wire.pop("candidate")
    return {"label": report.label, "key": candidate_key(report), **text, **wire}


def kernel_report(report: KernelReport) -> dict[str, Any]:
    """A check as JSON, without machine code."""
    wire: dict[str, Any] = to_wire(_without_cubin(report))
    return wire


def _without_cubin(report: CandidateReport | KernelReport) -> Any:
    if isinstance(report, KernelReport) and report.baseline is not None:
        baseline = report.baseline
        report = attrs.evolve(report, baseline=attrs.evolve(baseline, build=attrs.evolve(baseline.build, cubin=b"")))
    if isinstance(report.build, Compiled):
        return attrs.evolve(report, build=attrs.evolve(report.build, cubin=b""))
    return report


def history(
    kernel: str, baseline: Baseline | None, measurements: Sequence[Measurement], problem: str | None
) -> dict[str, Any]:
    """The answer to `dice/history`."""
    return {
        "kernel": kernel,
        "baseline": None
        if baseline is None
        else {
            "when": baseline.when,
            "origin": baseline.origin,
            "device": baseline.evidence.device,
            "median_us": baseline.timing.median_us if isinstance(baseline.timing, Timing) else None,
            "registers": baseline.build.registers,
        },
        "measurements": [to_wire(measurement) for measurement in measurements],
        "problem": problem,
    }


def like_document(text: str, document_text: str) -> str:
    """A candidate with the line ends of the document that it goes into."""
    line_end = "\r\n" if "\r\n" in document_text else "\n"
    return text.replace("\r\n", "\n").replace("\n", line_end)


def same_text(one: str, other: str) -> bool:
    """Equal but for line ends, which editors make uniform on their own."""
    return one == other or one.replace("\r\n", "\n") == other.replace("\r\n", "\n")
