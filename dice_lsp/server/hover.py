"""Hover on a kernel's name or signature shows all evidence, on a directive what it means, on a region its candidates."""

import asyncio

import attrs
from lsprotocol import types

from dice_lsp.hint import evidence_table, fill_table, history_markdown, kernel_hint, launch_table
from dice_lsp.server import from_lsp, to_lsp
from dice_lsp.server.directive_hover import clause_at, directive_text
from dice_lsp.server.documents import Snapshot
from dice_lsp.server.fills import on_offer
from dice_lsp.server.session import DiceServer

PATIENCE_S = 0.015
LAUNCH_PATIENCE_S = 0.2


def register(server: DiceServer) -> None:
    @server.feature(types.TEXT_DOCUMENT_HOVER)
    async def hover(params: types.HoverParams) -> types.Hover | None:
        snapshot = await server.documents.fresh(params.text_document.uri, PATIENCE_S)
        if snapshot is None:
            return None
        at = from_lsp.offset(snapshot.index, params.position, server.encoding)
        found = await _directive_text(server, snapshot, at)
        if found is None:
            await _read_launch(server, snapshot, at)
            found = _kernel_text(server, snapshot, at) or _fill_text(server, snapshot, at)
        if found is None:
            return None
        text, start, end = found
        kind = types.MarkupKind.Markdown if server.client.markdown_hover else types.MarkupKind.PlainText
        return types.Hover(
            contents=types.MarkupContent(kind, text),
            range=to_lsp.range_of(snapshot.index, start, end, server.encoding),
        )


def _kernel_text(server: DiceServer, snapshot: Snapshot, at: int) -> tuple[str, int, int] | None:
    kernel = snapshot.kernel_at(at, at)
    if kernel is None or at >= kernel.body_start:
        return None
    known = server.ledger.known(snapshot.document.uri, kernel.id)
    picture = server.client.dice_svg and server.client.markdown_hover
    history = history_markdown(known.measurements, known.baseline, picture)
    pending = server.checking.get(snapshot.document.uri, {}).get(kernel.id)
    found = server.report(snapshot, kernel.id)
    if pending is not None and pending.early is not None and pending.key == snapshot.keys[kernel.id]:
        text = "Still being checked.\n\n" + evidence_table(pending.early, history)
    elif found is None:
        text = f"**{kernel.name}**\n\nNot checked yet: save the file or run `dice.check`"
        spec = server.specs.known(snapshot, kernel)
        if spec is not None and (launch := launch_table(spec)):
            text += f"\n\n{launch}"
    else:
        report, stale = found
        report = attrs.evolve(report, line=kernel.line)
        text = kernel_hint(report, stale=stale, history=history).tooltip
    return text, kernel.start, kernel.body_start


async def _directive_text(server: DiceServer, snapshot: Snapshot, at: int) -> tuple[str, int, int] | None:
    for name, directive in snapshot.directives.items():
        found, kernel = clause_at(directive, at), snapshot.kernel(name)
        if found is None or kernel is None:
            continue
        clause, (start, end) = found
        given = await server.specs.of(snapshot, kernel)
        bare = await server.specs.of(snapshot, kernel, bare=True)
        return directive_text(kernel, clause, at, given, bare, snapshot.model.values), start, end
    return None


async def _read_launch(server: DiceServer, snapshot: Snapshot, at: int) -> None:
    """Have the launch of a kernel that was not checked read, if that is soon done."""
    kernel = snapshot.kernel_at(at, at)
    if kernel is None or at >= kernel.body_start or server.report(snapshot, kernel.id) is not None:
        return
    try:
        await asyncio.wait_for(server.specs.of(snapshot, kernel), LAUNCH_PATIENCE_S)
    except TimeoutError:
        return


def _fill_text(server: DiceServer, snapshot: Snapshot, at: int) -> tuple[str, int, int] | None:
    for fill, place in on_offer(server, snapshot.document):
        if place.start <= at <= place.end and not place.taken:
            return fill_table(fill.report), place.start, place.end
    return None
