"""Hints: one at the end of a kernel's first line, one at a region that has candidates."""

import attrs
from lsprotocol import types

from dice_lsp.hint import checking_hint, fill_hint, filling_hint, kernel_hint
from dice_lsp.records import Hint, Kernel
from dice_lsp.server import to_lsp
from dice_lsp.server.documents import Snapshot
from dice_lsp.server.fills import on_offer
from dice_lsp.server.session import DiceServer

PATIENCE_S = 0.015


def register(server: DiceServer) -> None:
    @server.feature(types.TEXT_DOCUMENT_INLAY_HINT, types.InlayHintOptions(resolve_provider=False))
    async def inlay_hint(params: types.InlayHintParams) -> list[types.InlayHint]:
        uri = params.text_document.uri
        snapshot = await server.current_snapshot(uri, PATIENCE_S)
        if snapshot is None or not server.settings_of(uri).inlay_hints:
            return []
        first, last = params.range.start.line, params.range.end.line
        hints = [*(kernel_state(server, snapshot, kernel) for kernel in snapshot.model.kernels)]
        hints += fill_states(server, snapshot)
        return [
            to_lsp.inlay_hint(snapshot.index, hint, server.encoding)
            for hint in hints
            if hint is not None and first <= hint.line <= last
        ]


def kernel_state(server: DiceServer, snapshot: Snapshot, kernel: Kernel) -> Hint | None:
    """What there is to say about a kernel now."""
    pending = server.checking.get(snapshot.document.uri, {}).get(kernel.id)
    if pending is not None and pending.key == snapshot.keys[kernel.id]:
        early = pending.early
        return checking_hint(kernel.line) if early is None else kernel_hint(attrs.evolve(early, line=kernel.line))
    found = server.report(snapshot, kernel.id)
    if found is None:
        return None
    report, stale = found
    return kernel_hint(attrs.evolve(report, line=kernel.line), stale=stale)


def fill_states(server: DiceServer, snapshot: Snapshot) -> list[Hint]:
    """The fills on offer, each at the first line of its region that holds something."""
    hints = []
    for fill, place in on_offer(server, snapshot.document):
        if not place.taken:
            text = snapshot.document.text[place.start : place.end]
            first = place.start + len(text) - len(text.lstrip())
            line = snapshot.index.line_of(min(first, place.end))
            running = fill.number in server.filling and not fill.report.candidates
            hints.append(filling_hint(line) if running else fill_hint(fill.report, line))
    return hints
