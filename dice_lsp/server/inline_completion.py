"""Ghost text: the best verified candidate of a fill whose place is still blank, at the cursor. Nothing is computed for it.

An editor shows an item only where its range lies on the cursor's line. So of a blank region of several lines the line
with the cursor is replaced, and the blank lines around it stay as they are.
"""

import re

from lsprotocol import types

from dice_lsp.jobs import Fill
from dice_lsp.records import CandidateReport, Document, Verified
from dice_lsp.server import fills, from_lsp, to_lsp
from dice_lsp.server.documents import Snapshot
from dice_lsp.server.keeping import check_taken
from dice_lsp.server.session import DiceServer
from dice_lsp.source.embedded import written

_BLANK_LINES = re.compile(r"(?:[ \t]*(?:\r\n|\r|\n))+")


def register(server: DiceServer) -> None:
    @server.feature(types.TEXT_DOCUMENT_INLINE_COMPLETION, types.InlineCompletionOptions())
    async def inline_completion(params: types.InlineCompletionParams) -> types.InlineCompletionList:
        return types.InlineCompletionList(items=await _items(server, params))

    server.on_snapshot.append(lambda old, new: _note_taken(server, new))


async def _items(server: DiceServer, params: types.InlineCompletionParams) -> list[types.InlineCompletionItem]:
    uri = params.text_document.uri
    if params.context.selected_completion_info is not None or not server.results.fills(uri):
        return []
    document = await server.documents.present(uri)
    if document is None:
        return []
    offers, index = await fills.offers(server, document)
    if server.documents.version(uri) != document.version:
        return []
    at = from_lsp.offset(index, params.position, server.encoding)
    for fill, place in offers:
        best = next((item for item in fill.report.candidates if isinstance(item.verdict, Verified)), None)
        if best is None or place.taken or not place.start <= at <= place.end:
            continue
        found = _at_cursor(fill, best, document, place, at)
        if found is not None:
            start, end, text = found
            held = written(document, start, text)
            if held is None:
                continue
            server.ghosts[fill.number] = (document.text, place.start, place.end)
            return [
                types.InlineCompletionItem(
                    insert_text=held.in_file, range=to_lsp.range_of(index, start, end, server.encoding)
                )
            ]
    return []


def _at_cursor(
    fill: Fill, best: CandidateReport, document: Document, place: fills.Place, at: int
) -> tuple[int, int, str] | None:
    """What to replace on the cursor's line, and by what; None where the place is not blank or not as it was."""
    text, region = document.text, fill.region
    if text[place.start : place.end].strip():
        return None
    before, after = _rest_of_line(text, place.start, place.end)
    if (before, after) != _rest_of_line(region.document.text, region.start, region.end):
        return None
    line_start = max(place.start, text.rfind("\n", place.start, at) + 1, text.rfind("\r", place.start, at) + 1)
    line_end = next((each for each in range(at, place.end) if text[each] in "\r\n"), place.end)
    inserted = to_lsp.like_document(best.candidate.text, text)
    if line_start > place.start:
        inserted = inserted[blank.end() :] if (blank := _BLANK_LINES.match(inserted)) else inserted
        if not inserted[:1].isspace():
            inserted = text[line_start:line_end] + inserted
    if line_end < place.end:
        inserted = inserted.rstrip()
    return (line_start, line_end, inserted) if inserted.strip() else None


def _rest_of_line(text: str, start: int, end: int) -> tuple[str, str]:
    """What stands on the region's first line before it and on its last line behind it."""
    first = max(text.rfind("\n", 0, start), text.rfind("\r", 0, start)) + 1
    ends = [at for at in (text.find("\n", end), text.find("\r", end)) if at >= 0]
    return text[first:start], text[end : min(ends, default=len(text))]


def _note_taken(server: DiceServer, new: Snapshot) -> None:
    """Recognise a candidate that the user took from the ghost text: no client says so, but its text stands there now."""
    document = new.document
    for fill in server.results.fills(document.uri):
        ghost = server.ghosts.get(fill.number)
        if ghost is None or fill.number in server.taken:
            continue
        text, start, end = ghost
        front, tail = text[:start], text[end:]
        if len(document.text) < len(front) + len(tail) or document.text == text:
            continue
        if not (document.text.startswith(front) and document.text.endswith(tail)):
            continue
        stop = len(document.text) - len(tail)
        words = document.text[start:stop].replace("\r\n", "\n").strip()
        taken = (item for item in fill.report.candidates if item.candidate.text.replace("\r\n", "\n").strip() == words)
        candidate = next(taken, None)
        if candidate is None:
            continue
        del server.ghosts[fill.number]
        fills.take(server, fill, document, start, stop)
        server.spawn(check_taken(server, fill, candidate), "check after a candidate was taken")
        server.refresh()
