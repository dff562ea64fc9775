"""Checks: what a file's kernels are worth, on save, on open, after a fill was accepted, and when asked for.

Only kernels whose text has no report yet are checked, so saving an unchanged file costs nothing. A new check of a
document takes over what the one before it had still to do. Nothing is edited.
"""

import asyncio
import logging
from collections.abc import Sequence

import attrs
from lsprotocol import types

from dice_lsp.flag_finder import shared_finder
from dice_lsp.jobs import Job
from dice_lsp.pipeline import is_left_out
from dice_lsp.process import ChildDied, ChildError
from dice_lsp.records import KernelReport, NotCompiled
from dice_lsp.server import baselines, diagnostics, from_lsp, sanitizing
from dice_lsp.server.session import DiceServer, Pending

log = logging.getLogger(__name__)
MAX_KERNELS_UNASKED = 64
"""A file with more kernels than this is checked only as far on open and save; `dice.check` takes all."""


def register(server: DiceServer) -> None:
    @server.feature(types.TEXT_DOCUMENT_DID_SAVE, types.SaveOptions(include_text=False))
    async def did_save(params: types.DidSaveTextDocumentParams) -> None:
        uri = params.text_document.uri
        # What decides the flags may have been saved too, and not every file system tells of that.
        shared_finder().forget()
        await server.read_folder_settings(uri)
        _read_includers(server, uri)
        if server.settings_of(uri).check_on_save:
            await start_check(server, uri)


async def start_check(
    server: DiceServer, uri: str, *, kernels: Sequence[str] | None = None, asked: bool = False
) -> Job[tuple[KernelReport, ...]] | None:
    """Check the kernels of a document, or those named. `asked`: by the user, so all of them and even those with a report.

    Returns None when there is nothing to check.
    """
    snapshot = await server.documents.exact(uri)
    if snapshot is None or server.closing:
        return None
    chosen = [
        kernel.id
        for kernel in snapshot.model.kernels
        if kernels is None or kernel.id in kernels or kernel.name in kernels
    ]
    if not asked:
        chosen = [name for name in chosen if _is_open(server.results.report(uri, name, snapshot.keys[name]))]
        chosen = chosen[:MAX_KERNELS_UNASKED]
    left = {name: old for name, old in server.checking.get(uri, {}).items() if name in snapshot.keys}
    names = list(dict.fromkeys([*left, *chosen]))
    if not names:
        return None
    pending = {
        name: Pending(snapshot.keys[name], asked=(asked and name in chosen) or (name in left and left[name].asked))
        for name in names
    }
    server.checking[uri] = pending
    server.refresh()
    server.tell_status()
    # A queue of its own: the compile, whose figures come first, must not wait until another document is verified.
    place = f"check {uri}"
    job = server.jobs.start(place, lambda: _check(server, uri, pending), queue=place)

    def ended(_: object) -> None:
        if server.checking.get(uri) is pending:
            del server.checking[uri]
        server.refresh()
        server.tell_status()
        sanitizing.wake(server)

    job.on_end(ended)
    return job


def _is_open(report: KernelReport | None) -> bool:
    """Whether a kernel is still to be checked. A report without a device is of a worker that died: that says nothing."""
    if report is None or isinstance(report.build, NotCompiled) or not report.evidence.device:
        return True
    return is_left_out(report)


def _read_includers(server: DiceServer, uri: str) -> None:
    """Look again at what the open documents include, if the file that was saved is among it.

    The folders of headers are watched, but not every file system tells of changes.
    """
    saved = from_lsp.file_path(uri)
    for other in server.documents.uris():
        snapshot = server.documents.last(other)
        if snapshot is not None and saved in snapshot.headers.paths | snapshot.headers.missing:
            server.documents.read_again(other)


async def _check(server: DiceServer, uri: str, pending: dict[str, Pending]) -> tuple[KernelReport, ...]:
    snapshot = await server.documents.exact(uri)
    if snapshot is None:
        return ()
    pending.update((name, attrs.evolve(old, key=snapshot.keys.get(name, ""))) for name, old in list(pending.items()))
    asked = any(each.asked for each in pending.values())

    def on_report(report: KernelReport, final: bool) -> None:
        if final:
            pending.pop(report.name, None)
            report = sanitizing.known(server, snapshot, report)
            server.results.put_report(uri, report, snapshot.keys.get(report.name))
            server.complain(report.notes)
            diagnostics.remember(server, snapshot, report)
            diagnostics.publish(server, uri)
            server.spawn(baselines.record(server, snapshot, report), f"record {report.name}")
            server.tell_status()
        elif report.name in pending:
            pending[report.name] = attrs.evolve(pending[report.name], early=report)
        server.refresh()

    names = tuple(pending)
    await server.ledger.load(uri, names)
    try:
        reports = await server.engine.check(
            snapshot.document,
            snapshot.path,
            kernels=names,
            baselines=server.ledger.baselines(uri),
            budget_s=None if asked else server.settings_of(uri).check_budget_s,
            settings=server.settings_of(uri),
            on_report=on_report,
        )
        return tuple(sanitizing.known(server, snapshot, report) for report in reports)
    except asyncio.CancelledError:
        raise
    except (ChildDied, ChildError, TimeoutError) as error:
        server.show(f"The check was not finished: {error}; save to try again")
        return ()
