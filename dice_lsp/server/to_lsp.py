"""Our results in the client's terms: code points become positions, records become JSON."""

import hashlib
from typing import Any

import attrs
from lsprotocol import types

from dice_lsp.records import CandidateReport, Compiled, FillReport, Hint, KernelReport, to_wire
from dice_lsp.source.positions import Encoding, LineIndex


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


def versioned_edit(
    uri: str, version: int, index: LineIndex, start: int, end: int, text: str, encoding: Encoding
) -> types.WorkspaceEdit:
    """Replace `start:end` of exactly this version: a client refuses the edit once its text has moved on."""
    return types.WorkspaceEdit(
        document_changes=[
            types.TextDocumentEdit(
                text_document=types.OptionalVersionedTextDocumentIdentifier(uri=uri, version=version),
                edits=[types.TextEdit(range=range_of(index, start, end, encoding), new_text=text)],
            )
        ]
    )


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
    if isinstance(report.build, Compiled):
        return attrs.evolve(report, build=attrs.evolve(report.build, cubin=b""))
    return report


def like_document(text: str, document_text: str) -> str:
    """A candidate with the line ends of the document that it goes into."""
    line_end = "\r\n" if "\r\n" in document_text else "\n"
    return text.replace("\r\n", "\n").replace("\n", line_end)


def same_text(one: str, other: str) -> bool:
    """Equal but for line ends, which editors make uniform on their own."""
    return one == other or one.replace("\r\n", "\n") == other.replace("\r\n", "\n")
