"""What later versions of a kernel are held against: the version that the user accepted, or the first that was verified.

Each report that is final is kept as a measurement. A baseline keeps its machine code, which is compiled once more for
that from exactly the text that was measured.
"""

import logging
from typing import Any

import attrs
from pygls.exceptions import JsonRpcInvalidParams

from dice_lsp.baseline import make, why_not
from dice_lsp.history import measurement_of
from dice_lsp.records import Baseline, Kernel, KernelReport, NotCompared, Timing
from dice_lsp.server import diagnostics, to_lsp
from dice_lsp.server.arguments import HistoryParams, HistoryRequest, KernelArguments, required
from dice_lsp.server.documents import Snapshot
from dice_lsp.server.session import DiceServer

log = logging.getLogger(__name__)
ACCEPTED = NotCompared("this version is the baseline", "baseline")
NO_FIRST = "the verified version was not kept as the first baseline"
AGAIN = "check the kernel again"
NO_BASELINE = NotCompared("there is no baseline to compare it with")


def register(server: DiceServer) -> None:
    @server.command("dice.acceptBaseline")
    async def accept(ls: DiceServer, arguments: KernelArguments | None = None) -> dict[str, Any]:
        reason = await _accept(ls, required(arguments, "dice.acceptBaseline"))
        if reason is not None:
            ls.show(f"No baseline: {reason}")
        return {"accepted": reason is None, "reason": reason}

    @server.command("dice.forgetBaseline")
    async def forget(ls: DiceServer, arguments: KernelArguments | None = None) -> dict[str, Any]:
        given = required(arguments, "dice.forgetBaseline")
        _, kernel = await _kernel(ls, given)
        forgotten = await ls.ledger.forget_baseline(given.uri, kernel.id)
        ls.results.change_reports(
            given.uri, kernel.id, lambda _, report: attrs.evolve(report, baseline=None, comparison=NO_BASELINE)
        )
        diagnostics.publish(ls, given.uri)
        ls.refresh()
        return {"forgotten": forgotten}

    server.protocol.request_types["dice/history"] = HistoryRequest

    @server.feature("dice/history")
    async def history(params: HistoryParams) -> dict[str, Any]:
        problem = await server.ledger.load(params.uri, [params.kernel])
        known = server.ledger.known(params.uri, params.kernel)
        if server.documents.version(params.uri) is None:
            server.ledger.close_document(params.uri)
        return to_lsp.history(params.kernel, known.baseline, known.measurements, problem or known.problem)


async def record(server: DiceServer, snapshot: Snapshot, report: KernelReport) -> None:
    """Keep a final report as a measurement, and as the first baseline where there is none."""
    uri, settings = snapshot.document.uri, server.settings_of(snapshot.document.uri)
    measurement = measurement_of(report)
    if measurement is not None:
        await server.ledger.put(uri, report.name, measurement)
    kernel = snapshot.kernel(report.name)
    if not settings.auto_baseline or kernel is None or why_not(report, "first") is not None:
        return
    before = server.ledger.known(uri, report.name).baseline
    if before is None or (before.origin == "first" and _says_more(report, before)):
        refused = await _adopt(server, snapshot, kernel, report, "first")
        # It is not tried again here: a compile that is cut short counts against its text, which after two is refused.
        server.ledger.note(uri, report.name, None if refused is None else f"{NO_FIRST}: {refused}; {AGAIN}")
        if refused is not None:
            log.info("%s is no first baseline: %s", report.name, refused)


def can_accept(server: DiceServer, snapshot: Snapshot, kernel: Kernel) -> bool:
    """Whether the kernel, as it stands in this text, may become its own baseline and is not that already."""
    found = server.report(snapshot, kernel.id)
    if found is None or found[1] or why_not(found[0]) is not None:
        return False
    known = server.ledger.known(snapshot.document.uri, kernel.id).baseline
    return known is None or known.origin != "accepted" or known.evidence.key != found[0].evidence.key


def _says_more(report: KernelReport, before: Baseline) -> bool:
    """A first baseline that was made without a GPU gives way to one that is timed: nobody chose it."""
    return isinstance(report.timing, Timing) and not isinstance(before.timing, Timing)


async def _accept(server: DiceServer, given: KernelArguments) -> str | None:
    """Make the kernel's present version its baseline; one sentence if it cannot be."""
    snapshot, kernel = await _kernel(server, given)
    found = server.report(snapshot, kernel.id)
    pending = server.checking.get(given.uri, {}).get(kernel.id)
    if (found is None or found[1]) and pending is not None and pending.key == snapshot.keys[kernel.id]:
        being_checked = f"{kernel.name} is being checked: accept it when its verdict is there"
        return being_checked if pending.early is None else why_not(pending.early) or being_checked
    if found is None:
        return f"{kernel.name} was not checked yet: save the file or check the kernel, then accept it"
    report, stale = found
    if stale:
        return f"the text of {kernel.name} has changed since it was checked: save the file, then accept it"
    return why_not(report) or await _adopt(server, snapshot, kernel, report, "accepted")


async def _kernel(server: DiceServer, given: KernelArguments) -> tuple[Snapshot, Kernel]:
    snapshot = await server.documents.exact(given.uri)
    kernel = None if snapshot is None or given.kernel is None else snapshot.kernel(given.kernel)
    if snapshot is None or kernel is None:
        raise JsonRpcInvalidParams(f"there is no kernel {given.kernel!r} in {given.uri}")
    return snapshot, kernel


async def _adopt(
    server: DiceServer, snapshot: Snapshot, kernel: Kernel, report: KernelReport, origin: str
) -> str | None:
    uri, key = snapshot.document.uri, snapshot.keys[kernel.id]
    settings = server.settings_of(uri)
    build = await server.engine.code(snapshot.document, snapshot.path, kernel.id, settings=settings)
    if isinstance(build, str):
        return build
    known = server.ledger.known(uri, kernel.id).baseline
    if origin == "first" and known is not None and known.origin == "accepted":
        # The user has chosen while this was compiled.
        return None
    baseline = make(kernel, report, build, origin)
    problem = await server.ledger.accept(uri, kernel.id, baseline)
    if problem is not None:
        log.info("a baseline is kept in memory only: %s", problem)

    def change(of: str, known: KernelReport) -> KernelReport | None:
        if of == key:
            comparison = ACCEPTED if origin == "accepted" else known.comparison
            return attrs.evolve(known, baseline=baseline, comparison=comparison)
        # Other texts of the kernel were compared with what was the baseline before; without one, nothing was.
        return known if origin == "first" else None

    server.results.change_reports(uri, kernel.id, change)
    diagnostics.publish(server, uri)
    server.refresh()
    return None
