"""Lenses above a kernel, three at most: fill its body, check it, and a way to stop what runs.

Where no hints are shown, the third one is the kernel's state.
"""

from typing import Any

from lsprotocol import types

from dice_lsp.records import Kernel
from dice_lsp.server import to_lsp
from dice_lsp.server.documents import Snapshot
from dice_lsp.server.inlay_hints import PATIENCE_S, kernel_state
from dice_lsp.server.session import DiceServer


def register(server: DiceServer) -> None:
    @server.feature(types.TEXT_DOCUMENT_CODE_LENS, types.CodeLensOptions(resolve_provider=False))
    async def code_lens(params: types.CodeLensParams) -> list[types.CodeLens]:
        snapshot = await server.current_snapshot(params.text_document.uri, PATIENCE_S)
        if snapshot is None or not server.settings_of(snapshot.document.uri).code_lens:
            return []
        return [lens for kernel in snapshot.model.kernels for lens in _lenses(server, snapshot, kernel)]


def _lenses(server: DiceServer, snapshot: Snapshot, kernel: Kernel) -> list[types.CodeLens]:
    document = snapshot.document
    start = snapshot.index.line_start(kernel.line)
    place = to_lsp.range_of(snapshot.index, start, snapshot.index.line_end(kernel.line), server.encoding)
    named: dict[str, Any] = {"uri": document.uri, "kernel": kernel.id}

    def lens(title: str, command: str) -> types.CodeLens:
        return types.CodeLens(range=place, command=to_lsp.command(title, command, named, background=server.holds_up))

    lenses = [lens("Fill body", "dice.fill"), lens("Check", "dice.check")]
    if server.jobs.at(f"fill {document.uri} {kernel.id}") is not None:
        lenses.append(lens("Stop filling", "dice.cancel"))
    elif not _has_hints(server, document.uri) and (state := kernel_state(server, snapshot, kernel)) is not None:
        lenses.append(lens(state.label, "dice.check"))
    return lenses


def _has_hints(server: DiceServer, uri: str) -> bool:
    return server.client.inlay_hints and server.settings_of(uri).inlay_hints
