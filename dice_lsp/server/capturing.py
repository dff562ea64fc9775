"""The command that records what the user's own program launches: asked for by the user, shown before it runs.

The command line may come from a comment of the file, which is somebody's text: without the user's word for exactly that
line nothing is started. What is recorded then serves the kernels' checks.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from lsprotocol import types
from pygls.exceptions import JsonRpcInvalidParams

from dice_lsp.records import Document
from dice_lsp.server.arguments import CaptureArguments, KernelArguments, required
from dice_lsp.server.directive_hover import bytes_text
from dice_lsp.server.documents import Snapshot
from dice_lsp.server.on_save import start_check
from dice_lsp.server.progress import WorkDone
from dice_lsp.server.session import DiceServer

log = logging.getLogger(__name__)
RUN = "Run"
HOW = 'write `//dice: run "./program arguments"` above a kernel, or name the command'


def register(server: DiceServer) -> None:
    @server.command("dice.capture")
    async def capture(ls: DiceServer, arguments: CaptureArguments | None = None) -> dict[str, Any]:
        return await _capture(ls, required(arguments, "dice.capture"))

    @server.command("dice.captureLine")
    async def capture_line(ls: DiceServer, arguments: KernelArguments | None = None) -> dict[str, Any]:
        given = required(arguments, "dice.captureLine")
        snapshot = await ls.documents.exact(given.uri)
        if snapshot is None:
            raise JsonRpcInvalidParams(f"{given.uri} is not open")
        return {"run": run_line(snapshot, given.kernel)}


async def record(document: Document, path: str, line: str, **options: Any) -> Any:
    """Run a program and record its launches, see `capture.session.capture`."""
    # Loaded when it is asked for: most sessions never record.
    from dice_lsp.capture.session import capture

    return await capture(document, path, line, **options)


def run_line(snapshot: Snapshot, kernel: str | None = None) -> str | None:
    """The command of the kernel's `run` clause, else of the first one in the file."""
    own = None if kernel is None else snapshot.kernel(kernel)
    named = [snapshot.directives[own.id]] if own is not None and own.id in snapshot.directives else []
    found = (directive.run for directive in (*named, *snapshot.directives.values()))
    return next((line for line in found if line), None)


async def _capture(server: DiceServer, given: CaptureArguments) -> dict[str, Any]:
    snapshot = await server.documents.exact(given.uri)
    if snapshot is None:
        raise JsonRpcInvalidParams(f"{given.uri} is not open")
    if given.kernel is not None and snapshot.kernel(given.kernel) is None:
        raise JsonRpcInvalidParams(f"there is no kernel {given.kernel!r} in {given.uri}")
    line = (given.run or "").strip()
    if not line:
        found = run_line(snapshot, given.kernel)
        if found is None:
            return _nothing(server, f"there is no command to run: {HOW}")
        if not await _agreed(server, found):
            return _result(reason="the command was not confirmed")
        line = found
    place = f"capture {given.uri}"
    bar = WorkDone(server, "DICE: recording launches", lambda: server.cancel_at(place))
    kernels = None if given.kernel is None else (given.kernel,)

    def tell(words: str) -> None:
        bar.report(0, words)

    async def work() -> Any:
        return await record(snapshot.document, snapshot.path, line, kernels=kernels, on_progress=tell)

    job = server.jobs.start(place, work, queue="capture")

    async def end() -> dict[str, Any]:
        async with bar:
            try:
                report = await job
            except asyncio.CancelledError:
                if job.end is None:
                    job.cancel()
                    raise
                bar.end("cancelled")
                return _result(reason="cancelled")
            except Exception as error:
                log.exception("a recording failed")
                return _nothing(server, f"the recording failed: {error}; see the server's log")
            return await _told(server, given.uri, report, bar)

    if given.background:
        server.spawn(end(), f"end of {place}")
        return _result() | {"running": True}
    return await end()


async def _agreed(server: DiceServer, line: str) -> bool:
    """Whether the user says that this very command is to be run."""
    question = types.ShowMessageRequestParams(
        type=types.MessageType.Info,
        message=f"Run `{line}` and record what it launches? It runs with your rights, as in a terminal",
        actions=[types.MessageActionItem(title=RUN), types.MessageActionItem(title="Cancel")],
    )
    try:
        answer = await server.window_show_message_request_async(question)
    except Exception as error:
        log.info("the client cannot ask its user: %r", error)
        return False
    return answer is not None and answer.title == RUN


async def _told(server: DiceServer, uri: str, report: Any, bar: WorkDone) -> dict[str, Any]:
    """Say what came of a run, and have the kernels that were recorded checked with it."""
    recorded = {name: count for name, count in report.kernels.items() if count}
    if report.reason is not None or not recorded:
        reason = report.reason or "the program launched no kernel of this file"
        bar.end("nothing was recorded")
        return _nothing(server, _with_notes(reason, report.notes))
    said = ", ".join(f"{count} of {name}" for name, count in recorded.items())
    message = f"recorded launches: {said}, {bytes_text(report.nbytes)}"
    bar.end(message)
    server.show(f"DICE: {_with_notes(message, report.notes)}", types.MessageType.Info)
    server.spawn(start_check(server, uri, kernels=tuple(recorded), asked=True), "check after a recording")
    return _result(recorded, report.nbytes, report.path, None, report.notes)


def _with_notes(sentence: str, notes: Sequence[str]) -> str:
    return "; ".join([sentence, *notes])


def _nothing(server: DiceServer, reason: str) -> dict[str, Any]:
    server.show(f"Nothing recorded: {reason}")
    return _result(reason=reason)


def _result(
    kernels: dict[str, int] | None = None,
    nbytes: int = 0,
    path: str = "",
    reason: str | None = None,
    notes: Sequence[str] = (),
) -> dict[str, Any]:
    return {"kernels": kernels or {}, "nbytes": nbytes, "path": path, "reason": reason, "notes": list(notes)}
