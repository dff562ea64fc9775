"""Completion inside of `//dice:` comments, and nowhere else: what is C++ is for a C++ server to complete.

It is asked at every space that is typed in a file, so a line that holds no such comment is answered without a look at
anything else. A text that takes long to read is read around the cursor only.
"""

import asyncio
import re
from collections.abc import Sequence

from attrs import frozen
from lsprotocol import types

from dice_lsp.records import Document, Kernel, LaunchSpec
from dice_lsp.server import from_lsp, to_lsp
from dice_lsp.server.directive_completion import Completion, Item, Known, complete
from dice_lsp.server.documents import Snapshot
from dice_lsp.server.patched_pygls import LspTextDocument
from dice_lsp.server.session import DiceServer
from dice_lsp.source.directives import Directive, directive_comments, directive_ranges, parse_directives
from dice_lsp.source.embedded import document_of, written
from dice_lsp.source.kernels import SourceModel, parse
from dice_lsp.source.positions import Encoding, LineIndex

TRIGGERS = (" ", ":", "[", "<")
"""What a clause, an initial value, a size and a launch begin behind. A letter asks by itself where the editor has it so,
and in comments VS Code has not."""
PATIENCE_S = 0.3
SPEC_PATIENCE_S = 1.0
TURNS = 20
"""Of the loop that a change is waited for which the protocol has taken and no handler yet."""
LINES_BEFORE, LINES_AFTER = 60, 400
"""What is read of a text that is still being read as a whole."""
_MARK = re.compile(r"//+[!/]?\s*dice:")
_KINDS = {
    "word": types.CompletionItemKind.Keyword,
    "found": types.CompletionItemKind.Snippet,
    "parameter": types.CompletionItemKind.Variable,
    "size": types.CompletionItemKind.Variable,
    "constant": types.CompletionItemKind.Constant,
    "function": types.CompletionItemKind.Function,
    "type": types.CompletionItemKind.Class,
    "value": types.CompletionItemKind.Value,
    "file": types.CompletionItemKind.File,
}


def register(server: DiceServer) -> None:
    @server.feature(
        types.TEXT_DOCUMENT_COMPLETION,
        types.CompletionOptions(trigger_characters=list(TRIGGERS), resolve_provider=False),
    )
    async def completion(params: types.CompletionParams) -> types.CompletionList | None:
        uri, position = params.text_document.uri, params.position
        shown = server.workspace.text_documents.get(uri)
        if not isinstance(shown, LspTextDocument) or not in_directive(shown, position):
            return None
        around = await _around(server, shown, position.line)
        at = around.offset(position, server.encoding)
        comment = next(((a, b) for a, b in directive_comments(around.model) if a <= at <= b), None)
        if comment is None:
            return None
        kernel, directive = around.kernel(comment)
        spec = None if kernel is None else await _spec(server, around, kernel)
        captures = await _captures(uri, around.model.text[comment[0] : at])
        known = Known(around.model, kernel, directive, spec, captures)
        found = complete(around.model.text, at, comment, known)
        return None if found is None else _answer(server, around, found, at)


def in_directive(document: LspTextDocument, position: types.Position) -> bool:
    """Whether the cursor stands behind the mark of a `//dice:` comment, as far as its line and those it goes on from tell."""
    at = document.offset_at(position)
    line = position.line
    start = document.offset_at(types.Position(line, 0))
    while line > 0 and document.line_at(line - 1).rstrip("\r\n").endswith("\\"):
        line -= 1
        start = document.offset_at(types.Position(line, 0))
    return _MARK.search(document.source, start, at) is not None


@frozen
class _Around:
    """A text that holds the cursor, or the lines of it from `first_line` on, and what it says."""

    document: Document
    index: LineIndex
    model: SourceModel
    first_line: int
    snapshot: Snapshot | None
    """The last one; of this very text where `first_line` is 0."""

    def offset(self, position: types.Position, encoding: Encoding) -> int:
        return from_lsp.offset(
            self.index, types.Position(position.line - self.first_line, position.character), encoding
        )

    def range(self, start: int, end: int, encoding: Encoding) -> types.Range:
        places = [to_lsp.position(self.index, at, encoding) for at in (start, end)]
        first, last = (types.Position(place.line + self.first_line, place.character) for place in places)
        return types.Range(first, last)

    def kernel(self, comment: tuple[int, int]) -> tuple[Kernel | None, Directive]:
        """The kernel that a directive is about, and what its directives say."""
        for kernel in self.model.kernels:
            if comment in directive_ranges(self.model.text, kernel):
                return kernel, parse_directives(self.model.text, kernel)
        return None, Directive()


async def _around(server: DiceServer, shown: LspTextDocument, line: int) -> _Around:
    version = shown.version or 0
    for _ in range(TURNS):
        # The change that has asked for this may not have come to the documents yet.
        if server.documents.version(shown.uri) == version:
            break
        await asyncio.sleep(0)
    snapshot = await server.documents.fresh(shown.uri, PATIENCE_S)
    if snapshot is not None and snapshot.document.version == version == (shown.version or 0):
        return _Around(snapshot.document, snapshot.index, snapshot.model, 0, snapshot)
    first = max(line - LINES_BEFORE, 0)
    text = "".join(shown.line_at(each) for each in range(first, line + LINES_AFTER))
    document = document_of(shown.uri, shown.version or 0, text)
    return _Around(document, LineIndex(text), parse(document.text), first, snapshot)


async def _spec(server: DiceServer, around: _Around, kernel: Kernel) -> LaunchSpec | None:
    """What is known of the launch without the directive, which is being written; soon or not at all."""
    snapshot = around.snapshot
    if snapshot is None:
        return None
    if around.document is not snapshot.document:
        before = snapshot.kernel(kernel.name)
        return None if before is None else server.specs.known(snapshot, before, bare=True)
    try:
        return await asyncio.wait_for(server.specs.of(snapshot, kernel, bare=True), SPEC_PATIENCE_S)
    except TimeoutError:
        return None


async def _captures(uri: str, before: str) -> Sequence[tuple[str, str]]:
    """The recorded runs, where the clause is about them."""
    path = from_lsp.file_path(uri)
    if path is None or not re.search(r"\bref\s+captured\b[^;]*$", before):
        return ()
    return await asyncio.to_thread(_listing, path)


def _listing(path: str) -> Sequence[tuple[str, str]]:
    # Loaded when it is asked for: most sessions never record.
    from dice_lsp.capture.store import listing

    return listing(path)


def _answer(server: DiceServer, around: _Around, found: Completion, at: int) -> types.CompletionList:
    before, whole = (around.range(found.start, end, server.encoding) for end in (at, found.end))
    items = []
    for number, item in enumerate(found.items):
        made = _item(server, around.document, found.start, item, number, before, whole)
        if made is not None:
            items.append(made)
    return types.CompletionList(is_incomplete=False, items=items)


def _item(
    server: DiceServer,
    document: Document,
    at: int,
    item: Item,
    number: int,
    before: types.Range,
    whole: types.Range,
) -> types.CompletionItem | None:
    with_places = item.snippet is not None and server.client.snippets
    held = written(document, at, item.snippet or "" if with_places else item.text)
    if held is None:
        return None
    edit: types.TextEdit | types.InsertReplaceEdit = types.TextEdit(before, held.in_file)
    if server.client.insert_replace:
        edit = types.InsertReplaceEdit(new_text=held.in_file, insert=before, replace=whole)
    kind = types.MarkupKind.Markdown if server.client.markdown_completion else types.MarkupKind.PlainText
    return types.CompletionItem(
        label=item.label,
        kind=_KINDS[item.kind],
        detail=item.detail or None,
        documentation=types.MarkupContent(kind, item.help) if item.help else None,
        # Best first, in the order that they have here and not in that of the alphabet.
        sort_text=f"{number:03d}",
        filter_text=item.label,
        insert_text_format=types.InsertTextFormat.Snippet if with_places else types.InsertTextFormat.PlainText,
        text_edit=edit,
    )
