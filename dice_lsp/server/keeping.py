"""A fill that the user has taken: its kernel is checked as it stands now, and the fill is kept as a CuKe record if wanted.

Kept is only what the user asked for (`dataset_keep`), was taken by hand, was certainly at least twice as fast when it was
timed beside the text before it, and is verified once more in its place by the check that follows. The file of records is
the user's own and leaves the machine by nobody but the user.
"""

import asyncio
import logging

import attrs
from lsprotocol import types

from dice_lsp.dataset import store
from dice_lsp.dataset.cuke import MIN_SPEEDUP, CukeError, CukeRecord, has_code, make_record
from dice_lsp.dataset.licence import project_licence
from dice_lsp.jobs import Fill
from dice_lsp.records import CandidateReport, Faster, Judged, KernelReport, Region, Verified
from dice_lsp.server.directive_line import directive_lines
from dice_lsp.server.documents import Snapshot
from dice_lsp.server.on_save import start_check
from dice_lsp.server.session import DiceServer
from dice_lsp.source.directives import Directive
from dice_lsp.source.selection import relocate

log = logging.getLogger(__name__)


async def check_taken(server: DiceServer, fill: Fill, candidate: CandidateReport) -> None:
    """Check the kernel of a fill of which a candidate was taken, and keep that one where it is worth it."""
    kernel = fill.region.kernel
    if kernel is None:
        return
    await start_check(server, fill.uri, kernels=(kernel.id,))
    if not server.settings_of(fill.uri).dataset_keep or not is_worth_it(candidate):
        return
    if not await _until_checked(server, fill.uri):
        return
    snapshot = await server.documents.exact(fill.uri)
    report = None if snapshot is None else server.results.report(fill.uri, kernel.id, snapshot.keys.get(kernel.id))
    if snapshot is None or report is None:
        return
    record = await server.documents.in_thread(_worthy, server, fill, candidate, snapshot, report)
    # The file may be locked by another editor for a while, and texts have to be read meanwhile.
    told = await asyncio.to_thread(_stored, record) if isinstance(record, CukeRecord) else record
    if told:
        log.info("%s", told)
        server.window_log_message(types.LogMessageParams(types.MessageType.Info, told))


def is_worth_it(candidate: CandidateReport) -> bool:
    """Whether a candidate passes the filter of CuKe: verified, and certainly twice as fast."""
    faster = candidate.comparison
    return isinstance(candidate.verdict, Verified) and isinstance(faster, Faster) and faster.low >= MIN_SPEEDUP


async def _until_checked(server: DiceServer, uri: str) -> bool:
    """Wait for the check of a document, and for one that takes it over, as a save's does. False if it failed."""
    while (job := server.jobs.at(f"check {uri}")) is not None and job.end is None:
        try:
            await job
        except asyncio.CancelledError:
            if job.end is None:
                raise
        except Exception:
            # Who asked for the check is told of its failure.
            return False
    return True


def _worthy(
    server: DiceServer, fill: Fill, candidate: CandidateReport, snapshot: Snapshot, report: KernelReport
) -> CukeRecord | str | None:
    """The record of a taken candidate, or what to say of it; None where it is no longer there."""
    taken, kernel = server.taken.get(fill.number), snapshot.kernel(report.name)
    place = None if taken is None else relocate(taken, snapshot.document.text)
    if taken is None or place is None or kernel is None:
        return None
    region = attrs.evolve(taken, document=snapshot.document, start=place[0], end=place[1], kernel=kernel)
    if region.middle.split() != candidate.candidate.text.split():
        # Another candidate of the same fill was taken meanwhile.
        return None
    verdict = report.verdict
    if not isinstance(verdict, Verified) or not isinstance(candidate.verdict, Verified):
        return f"{kernel.name} is not kept: the check of the file did not verify it"
    if verdict.device != candidate.verdict.device:
        return f"{kernel.name} is not kept: it was checked on {verdict.device} and timed on {candidate.verdict.device}"
    return _record(region, candidate, snapshot, report, fill.region.middle)


def _stored(record: CukeRecord) -> str:
    """Add a record to the user's file; returns what to say of it."""
    try:
        added = store.add((record,))
    except CukeError as error:
        return f"{record.kernel} is not kept: {error}"
    if not added.new:
        return f"{record.kernel} is not kept again: a record with the same code is there"
    return f"{record.kernel} is kept as record {added.total} of {store.dataset_file()} ({record.speedup:.2f}x or more)"


def _record(
    region: Region, candidate: CandidateReport, snapshot: Snapshot, report: KernelReport, before: str
) -> CukeRecord | str:
    kernel = region.kernel
    assert kernel is not None
    judged = Judged(report.build, report.verdict, candidate.timing, candidate.comparison, report.evidence, report.spec)
    given = snapshot.directives.get(kernel.id, Directive())
    written = "\n".join(directive_lines(kernel, report.spec, given, marks=False))
    record: CukeRecord | str = ""
    # What the text says already is not said again; a launch that other files tell of is written down.
    for directive in dict.fromkeys(("", written)):
        record = make_record(
            region,
            region.middle,
            judged,
            report.spec,
            origin="editor",
            source=snapshot.path,
            licence=project_licence(snapshot.path, snapshot.document.shown),
            directive=directive,
            rival=before if has_code(before) else "",
        )
        if isinstance(record, CukeRecord):
            break
    return record
