"""compute-sanitizer in idle time: kernels that were verified on a GPU are looked at while nothing else is done.

One kernel after the other, those of the open documents, and only once for what has the same evidence. An edit or a check
stops it, and it goes on after a while of quiet. What it finds makes a verdict worse and marks the line; nothing that it
does is waited for.
"""

import asyncio
import logging
from collections.abc import Iterator

import attrs

from dice_lsp.dataset import store
from dice_lsp.dataset.cuke import CukeError
from dice_lsp.history import measurement_of
from dice_lsp.jobs import SanitizedText
from dice_lsp.pipeline import may_be_sanitized, with_sanitized
from dice_lsp.records import Kernel, KernelReport, Sanitized
from dice_lsp.server import diagnostics
from dice_lsp.server.documents import Snapshot
from dice_lsp.server.session import DiceServer

log = logging.getLogger(__name__)
PLACE = "sanitize"
QUIET_S = 1.0
"""How long nothing must have happened before it begins."""


def register(server: DiceServer) -> None:
    def follow(old: Snapshot | None, new: Snapshot) -> None:
        if old is None or old.document.text != new.document.text:
            wake(server)

    server.on_snapshot.append(follow)


def wake(server: DiceServer) -> None:
    """Stop what runs, and begin after a while of quiet if a kernel is to be looked at."""
    server.cancel_at(PLACE)
    if not server.closing and next(_waiting(server), None) is not None:
        server.jobs.start(PLACE, lambda: _work(server), queue=PLACE)


def known(server: DiceServer, snapshot: Snapshot, report: KernelReport) -> KernelReport:
    """A new report, with what was found before of a kernel with the same evidence."""
    found = server.results.sanitized(report.evidence.key) if may_be_sanitized(report) else None
    if found is None or not server.settings_of(snapshot.document.uri).sanitize:
        return report
    moved = [
        attrs.evolve(finding, line=_moved(snapshot, finding.line, report.line - found.kernel_line, found))
        for finding in found.sanitized.findings
    ]
    return with_sanitized(report, attrs.evolve(found.sanitized, findings=tuple(moved)))


def _moved(snapshot: Snapshot, line: int | None, by: int, found: SanitizedText) -> int | None:
    return None if line is None else diagnostics.find_line(snapshot, line + by, found.lines.get(line))


def _waiting(server: DiceServer) -> Iterator[tuple[Snapshot, Kernel, KernelReport]]:
    """Kernels of the present texts that were verified on a GPU and not looked at yet."""
    for uri in server.documents.uris():
        snapshot = server.documents.last(uri)
        if snapshot is None or not server.documents.is_current(snapshot) or not server.settings_of(uri).sanitize:
            continue
        for kernel in snapshot.model.kernels:
            report = server.results.report(uri, kernel.id, snapshot.keys[kernel.id])
            if report is not None and report.sanitized is None and may_be_sanitized(report):
                yield snapshot, kernel, report


async def _work(server: DiceServer) -> None:
    while next(_waiting(server), None) is not None:
        await asyncio.sleep(QUIET_S)
        found = next(_waiting(server), None)
        if found is None or server.checking or server.filling or server.preparing:
            continue
        snapshot, kernel, report = found
        sanitized = await server.engine.sanitize(
            snapshot.document, snapshot.path, kernel.id, settings=server.settings_of(snapshot.document.uri)
        )
        if sanitized is not None:
            await _take(server, snapshot, report, sanitized)


async def _take(server: DiceServer, snapshot: Snapshot, report: KernelReport, sanitized: Sanitized) -> None:
    """Keep what was found for all reports with this evidence, and show it."""
    uri = snapshot.document.uri
    if sanitized.tools or sanitized.findings:
        lines = {finding.line for finding in sanitized.findings if finding.line is not None}
        texts = {line: diagnostics.line_text(snapshot, line) for line in lines}
        server.results.put_sanitized(report.evidence.key, SanitizedText(sanitized, report.line, texts))
    changed = with_sanitized(report, sanitized)
    server.results.change_reports(
        uri, report.name, lambda _, each: changed if each.evidence.key == report.evidence.key else each
    )
    diagnostics.remember(server, snapshot, changed)
    diagnostics.publish(server, uri)
    server.refresh()
    if not sanitized.findings:
        return
    log.info("compute-sanitizer on %s: %s", report.name, sanitized.findings[0].text)
    try:
        await asyncio.to_thread(store.refute, report.evidence.key, f"compute-sanitizer: {sanitized.findings[0].text}")
    except CukeError as error:
        log.warning("the record of %s, if there is one, stays: %s", report.name, error)
    baseline = server.ledger.known(uri, report.name).baseline
    if baseline is not None and baseline.origin == "first" and baseline.evidence.key == report.evidence.key:
        # Nobody chose it, and nothing should be held against what is wrong.
        await server.ledger.forget_baseline(uri, report.name)
    if (measurement := measurement_of(changed)) is not None:
        await server.ledger.put(uri, report.name, measurement)
