"""The commands: fill a region, take or drop a candidate, check, stop, write a directive.

Each takes one object. An edit leaves here only as a versioned `workspace/applyEdit` of text found in its place, and is
believed only once the document says so: Neovim reports a stale edit that it skipped as applied.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from attrs import frozen
from lsprotocol import types
from pygls.exceptions import JsonRpcInvalidParams, JsonRpcMethodNotFound, JsonRpcRequestCancelled

from dice_lsp.hint import candidate_title, kernel_label
from dice_lsp.jobs import Fill, Job, JobEnd
from dice_lsp.pipeline import FillProgress
from dice_lsp.process import ChildDied, ChildError
from dice_lsp.records import CandidateReport, Document, FillReport, KernelReport, Region
from dice_lsp.server import fills, from_lsp, to_lsp
from dice_lsp.server.arguments import (
    CandidateArguments,
    CandidatesParams,
    CandidatesRequest,
    DiscardArguments,
    FillArguments,
    KernelArguments,
    required,
)
from dice_lsp.server.directive_line import directive_lines, directive_snippet
from dice_lsp.server.documents import Snapshot
from dice_lsp.server.keeping import check_taken
from dice_lsp.server.on_save import start_check
from dice_lsp.server.progress import WorkDone
from dice_lsp.server.session import CLIENT_PATIENCE_S, DiceServer
from dice_lsp.source.directives import Directive, insertion_point
from dice_lsp.source.embedded import written
from dice_lsp.source.positions import LineIndex
from dice_lsp.source.selection import body_region, region, relocate

log = logging.getLogger(__name__)
MAX_CANDIDATES = 64
KERNELS_NAMED = 3
HELD_CHANGE_S = 0.2
"""Emacs tells of a change only once the command that made it was answered, so that is not waited for any longer."""
LATE_CHANGE_S = 60.0
NOT_IN_STRING = "the string that holds this kernel cannot hold the candidate; write the string with three quotes"
UNCHANGED = "the editor made no change, though it says so; look at the text and try again"
PREVIEW_PATIENCE_S = 1.0
"""A change that a user has confirmed in a preview is made before the client answers, so that it has mostly come by then."""


def register(server: DiceServer) -> None:
    @server.command("dice.fill")
    async def fill(ls: DiceServer, arguments: FillArguments | None = None) -> dict[str, Any]:
        return await _fill(ls, required(arguments, "dice.fill"))

    @server.command("dice.apply")
    async def apply(ls: DiceServer, arguments: CandidateArguments | None = None) -> dict[str, Any]:
        return await _apply(ls, required(arguments, "dice.apply"))

    @server.command("dice.discard")
    async def discard(ls: DiceServer, arguments: DiscardArguments | None = None) -> dict[str, Any]:
        return _discard(ls, required(arguments, "dice.discard"))

    @server.command("dice.check")
    async def check(ls: DiceServer, arguments: KernelArguments | None = None) -> dict[str, Any]:
        return await _check(ls, required(arguments, "dice.check"))

    @server.command("dice.cancel")
    async def cancel(ls: DiceServer, arguments: KernelArguments | None = None) -> dict[str, Any]:
        given = required(arguments, "dice.cancel")
        if given.kernel is not None:
            return {"cancelled": ls.cancel_fills(given.uri, given.kernel)}
        places = (f"check {given.uri}", f"capture {given.uri}")
        return {"cancelled": ls.cancel_fills(given.uri, None) + sum(ls.cancel_at(place) for place in places)}

    @server.command("dice.writeDirective")
    async def write_directive(ls: DiceServer, arguments: KernelArguments | None = None) -> dict[str, Any]:
        return await _write_directive(ls, required(arguments, "dice.writeDirective"))

    server.protocol.request_types["dice/candidates"] = CandidatesRequest

    @server.feature("dice/candidates")
    async def candidates(params: CandidatesParams) -> list[dict[str, Any]]:
        return await _candidates(server, params)


# Fill


async def _fill(server: DiceServer, given: FillArguments) -> dict[str, Any]:
    mark = object()
    server.preparing[mark] = (given.uri, given.kernel)
    try:
        snapshot, target = await _prepare(server, given)
        if mark not in server.preparing:
            return to_lsp.fill_report(None, FillReport(None, (), "cancelled"))
    finally:
        server.preparing.pop(mark, None)
    if isinstance(target, str):
        server.show(target)
        return to_lsp.fill_report(None, FillReport(None, (), target))
    if server.closing:
        raise JsonRpcRequestCancelled("the session is over")
    assert target.kernel is not None
    number = server.results.put_fill(target, FillReport(None, (), None)).number
    title = f"DICE: filling {target.kernel.name}"
    place = f"fill {given.uri} {target.kernel.id}"

    bar = WorkDone(server, title, lambda: server.cancel_at(place))
    job = server.jobs.start(
        place, lambda: _run_fill(server, number, target, snapshot.path, given.candidates, bar), queue="model"
    )
    server.filling.add(number)
    job.on_end(lambda end: _fill_ended(server, number, end))
    server.refresh()
    server.tell_status()

    async def end() -> dict[str, Any]:
        async with bar:
            report = await _until_end(job, number, server)
            bar.end(_last_word(report))
        if report.candidates:
            count = f"{len(report.candidates)} candidate" + ("s" if len(report.candidates) > 1 else "")
            server.tell_if_blind(
                f"{place.split()[-1]}: {count}, best {_last_word(report)}; apply one by the code actions"
            )
        return to_lsp.fill_report(number if report.candidates else None, report)

    if given.background:
        server.spawn(end(), f"end of {place}")
        return to_lsp.fill_report(number, FillReport(None, (), None)) | {"running": True}
    return await end()


async def _prepare(server: DiceServer, given: FillArguments) -> tuple[Snapshot, Region | str]:
    """The text as it was when the fill was asked for, and the place in it, or why there is none."""
    snapshot = await server.documents.exact(given.uri)
    if snapshot is None:
        raise JsonRpcInvalidParams(f"{given.uri} is not open")
    if given.candidates is not None and not 1 <= given.candidates <= MAX_CANDIDATES:
        raise JsonRpcInvalidParams(f"candidates must be between 1 and {MAX_CANDIDATES}, not {given.candidates}")
    return snapshot, await _target(server, snapshot, given)


async def _target(server: DiceServer, snapshot: Snapshot, given: FillArguments) -> Region | str:
    """The region that is meant, in the present text; or one sentence that says why there is none."""
    document = snapshot.document
    if given.range is None:
        kernel = snapshot.kernel(given.kernel) if given.kernel else None
        if kernel is None:
            return f"there is no kernel {given.kernel!r} in this file; give a range or the name of a kernel"
        return await server.documents.in_thread(body_region, document, kernel)
    if given.version is None or given.version == document.version:
        start, end = from_lsp.span(snapshot.index, given.range, server.encoding)
        return _in_kernel(await server.documents.in_thread(region, document, start, end))
    # The selection was made in an earlier text: find the same words in the present one.
    earlier = await server.documents.at_version(given.uri, given.version)
    if earlier is None:
        return "the text has changed since it was selected; select again"
    start, end = from_lsp.span(LineIndex(earlier.shown), given.range, server.encoding)
    meant = await server.documents.in_thread(region, earlier, start, end)
    if isinstance(meant, str):
        return meant
    found = await server.documents.in_thread(relocate, meant, document.text)
    if found is None:
        return "the selected text has changed meanwhile; select again"
    return _in_kernel(await server.documents.in_thread(region, document, *found))


def _in_kernel(target: Region | str) -> Region | str:
    if isinstance(target, Region) and target.kernel is None:
        return "only kernels can be filled, not other device functions: select lines inside a kernel's body"
    return target


async def _run_fill(
    server: DiceServer, number: int, target: Region, path: str, candidates: int | None, bar: WorkDone
) -> FillReport:
    def on_progress(progress: FillProgress) -> None:
        bar.report(100 * progress.done // max(progress.total, 1), progress.message)
        known = server.results.fill(number)
        news = known is None or progress.report != known.report
        if news and progress.report.candidates:
            server.results.put_fill(target, progress.report, number)
            server.refresh()
            server.tell("dice/candidate", to_lsp.fill_report(number, progress.report) | {"uri": target.document.uri})

    kernel = target.kernel
    assert kernel is not None
    await server.ledger.load(target.document.uri, [kernel.id])
    try:
        report = await server.engine.fill(
            target,
            path,
            candidates=candidates,
            baseline=server.ledger.known(target.document.uri, kernel.id).baseline,
            settings=server.settings_of(target.document.uri),
            on_progress=on_progress,
        )
    except (ChildDied, ChildError, TimeoutError) as error:
        kept = server.results.fill(number)
        reason = f"the fill was not finished: {error}; try again"
        report = FillReport(None, kept.report.candidates if kept else (), reason)
    server.results.put_fill(target, report, number)
    if report.candidates:
        fills.drop_older(server, number)
    return report


async def _until_end(job: Job[FillReport], number: int, server: DiceServer) -> FillReport:
    """The report of a fill, however it ended. A request that is cancelled by its sender cancels the fill."""
    try:
        report = await job
    except asyncio.CancelledError:
        if job.end is None:
            job.cancel()
            # The answer goes out before the job has ended; who asks for the status then is told of no fill.
            server.filling.discard(number)
            raise
        kept = server.results.fill(number)
        report = FillReport(None, kept.report.candidates if kept else (), "cancelled")
    except Exception as error:
        log.exception("a fill failed")
        report = FillReport(None, (), f"the fill failed: {error}; see the server's log")
    if report.reason is not None and report.reason != "cancelled":
        server.show(report.reason)
    return report


def _fill_ended(server: DiceServer, number: int, end: JobEnd) -> None:
    server.filling.discard(number)
    known = server.results.fill(number)
    if known is not None and not known.report.candidates:
        server.results.drop_fill(number)
    log.info("fill %d ended: %s", number, end)
    server.refresh()
    server.tell_status()


def _last_word(report: FillReport) -> str:
    if report.candidates:
        return candidate_title(report.candidates[0])
    return report.reason or "no candidate"


# Candidates


async def _apply(server: DiceServer, given: CandidateArguments) -> dict[str, Any]:
    fill = server.results.fill(given.fill)
    candidate = None if fill is None else _candidate(fill, given)
    if fill is None or candidate is None:
        return _not_applied(server, f"candidate {given.candidate} of fill {given.fill} is no longer there; fill again")
    document = await server.documents.present(fill.uri)
    if document is None:
        return _not_applied(server, "the file was closed; open it and fill again")
    place = await server.documents.in_thread(fills.place_of, server, fill, document)
    if place is None:
        return _not_applied(server, "the text that was filled has changed; undo that or fill again")
    text = to_lsp.like_document(candidate.candidate.text, document.text)
    held = written(document, place.start, text)
    if held is None:
        return _not_applied(server, NOT_IN_STRING)
    label = f"DICE candidate {candidate.label}"
    if given.preview:
        if not server.client.change_annotations:
            return _not_applied(server, "this editor has no preview of a server's edits; apply it without one")
        asking = candidate_title(candidate)
        outcome = await _edit(server, document, place.start, place.end, text, label, asking)
        if isinstance(outcome, str):
            # The user has said no, or has seen in the preview what became of it.
            return {"applied": False, "reason": outcome}
    else:
        outcome = await _edit(server, document, place.start, place.end, text, label)
        if isinstance(outcome, str):
            return _not_applied(server, outcome)

    async def taken() -> None:
        present = await server.documents.present(fill.uri)
        if present is not None:
            fills.take(server, fill, present, place.start, place.start + len(held.in_view))
            server.spawn(check_taken(server, fill, candidate), "check after apply")
        server.refresh()

    if outcome is None:
        await taken()
    else:
        server.spawn(_when_late(server, outcome, taken), "an edit that is told of later")
    return {"applied": True, "reason": None}


def _candidate(fill: Fill, given: CandidateArguments) -> CandidateReport | None:
    if given.key is None:
        return fill.candidate(given.candidate)
    return next((item for item in fill.report.candidates if to_lsp.candidate_key(item) == given.key), None)


def _not_applied(server: DiceServer, reason: str) -> dict[str, Any]:
    server.show(f"Not applied: {reason}")
    return {"applied": False, "reason": reason}


async def _edit(
    server: DiceServer, document: Document, start: int, end: int, text: str, label: str, asking: str | None = None
) -> "_Edit | str | None":
    """Replace `start:end` of exactly `document`, see `edit_document`."""
    return await edit_document(server, document, ((start, end, text),), label, asking)


async def edit_document(
    server: DiceServer,
    document: Document,
    replacements: Sequence[to_lsp.Replacement],
    label: str,
    asking: str | None = None,
    snippets: Sequence[str] | None = None,
) -> "_Edit | str | None":
    """Replace parts of exactly `document` in the client, which may ask its user first, however long that takes.

    Returns None once its text is what was meant, else why not; an `_Edit` where the client says that it made the edit
    but does not tell of the change yet. With `asking` the client shows the edit under these words for confirmation.
    `snippets` are the same texts with placeholders, for a client that takes those in its edits.
    """
    in_file, meant = [], document.text
    for start, end, text in sorted(replacements, reverse=True):
        held = written(document, start, text)
        if held is None:
            return NOT_IN_STRING
        in_file.append((start, end, held.in_file))
        meant = meant[:start] + held.in_view + meant[end:]
    in_file.reverse()
    if snippets is not None:
        in_file = [(start, end, text) for (start, end, _), text in zip(sorted(replacements), snippets, strict=True)]
    index = await server.documents.in_thread(LineIndex, document.shown)
    edit = to_lsp.versioned_edit(
        document.uri, document.version, index, in_file, server.encoding, asking, snippets is not None
    )
    if not server.client.document_changes:
        edit = to_lsp.plain_edit(document.uri, index, in_file, server.encoding)
    try:
        answer = await server.workspace_apply_edit_async(types.ApplyWorkspaceEditParams(edit=edit, label=label))
    except JsonRpcMethodNotFound:
        return "this editor does not take edits from a server (workspace/applyEdit)"
    except Exception as error:
        return f"the editor did not take the edit: {str(error) or type(error).__name__}"
    if answer is None or not answer.applied:
        reason = None if answer is None else answer.failure_reason
        if asking:
            return reason or "it was not confirmed in the preview"
        return reason or "the editor refused the edit because the text has changed; try again"
    waiting = _Edit(document, meant)
    patience_s = PREVIEW_PATIENCE_S if asking else HELD_CHANGE_S if server.holds_up else CLIENT_PATIENCE_S
    refused = await waiting.outcome(server, patience_s)
    if refused == UNCHANGED and asking:
        # An entry that is not ticked is no refusal to VS Code: it says that the edit was applied, and changes nothing.
        return "it was not confirmed in the preview"
    return waiting if refused == UNCHANGED and server.holds_up else refused


@frozen
class _Edit:
    """An edit that the client says it made."""

    before: Document
    meant: str

    async def outcome(self, server: DiceServer, patience_s: float) -> str | None:
        """None once the text is what was meant, else why not: `UNCHANGED` if no change was told of in time."""
        present = await _after(server, self.before, patience_s)
        if present is None:
            return "the file was closed"
        if to_lsp.same_text(present.text, self.meant):
            return None
        if present.version == self.before.version:
            return UNCHANGED
        return "the text changed at the same moment; look at it and try again"


async def _when_late(server: DiceServer, edit: _Edit, done: Callable[[], Awaitable[None]]) -> None:
    """Follow an edit whose command was answered before the client told of the change."""
    refused = await edit.outcome(server, LATE_CHANGE_S)
    if refused is None:
        await done()
    else:
        server.show(f"Not applied: {refused}")


async def _after(server: DiceServer, document: Document, patience_s: float) -> Document | None:
    """The text once the client has told of a version after `document`; after a while, the text as it is."""
    deadline = asyncio.get_running_loop().time() + patience_s
    while (version := server.documents.version(document.uri)) is not None:
        if version != document.version or asyncio.get_running_loop().time() > deadline:
            return await server.documents.present(document.uri)
        await asyncio.sleep(0.01)
    return None


def _discard(server: DiceServer, given: DiscardArguments) -> dict[str, Any]:
    numbers = [fill.number for fill in server.results.fills(given.uri)] if given.uri else []
    if given.fill is not None:
        numbers.append(given.fill)
    dropped = sum(fills.drop(server, number) for number in numbers if number not in server.filling)
    server.refresh()
    return {"discarded": dropped}


async def _candidates(server: DiceServer, params: CandidatesParams) -> list[dict[str, Any]]:
    """Every fill on offer with its place in the present text, what stands there, and the candidates' texts."""
    found = []
    uris = [params.uri] if params.uri is not None else server.documents.uris()
    for uri in uris:
        document = await server.documents.present(uri)
        if document is None:
            continue
        offers, index = await fills.offers(server, document)
        for fill, place in offers:
            if params.fill is not None and fill.number != params.fill:
                continue
            wire = to_lsp.fill_report(fill.number, fill.report)
            for item, report in zip(wire["candidates"], fill.report.candidates, strict=True):
                item["title"] = candidate_title(report)
                text = to_lsp.like_document(report.candidate.text, document.text)
                held = written(document, place.start, text)
                item["newText"] = text if held is None else held.in_file
            found.append(
                wire
                | {
                    "uri": uri,
                    "version": document.version,
                    "range": to_lsp.range_of(index, place.start, place.end, server.encoding),
                    "text": document.shown[place.start : place.end],
                    "kernel": fill.region.kernel.name if fill.region.kernel else None,
                    "running": fill.number in server.filling,
                }
            )
    return found


# Check


async def _check(server: DiceServer, given: KernelArguments) -> dict[str, Any]:
    if server.documents.version(given.uri) is None:
        raise JsonRpcInvalidParams(f"{given.uri} is not open")
    kernels = None if given.kernel is None else (given.kernel,)

    async def end() -> dict[str, Any]:
        async with WorkDone(server, "DICE: checking", lambda: server.cancel_at(f"check {given.uri}")) as bar:
            reports = await _checked(server, given.uri, kernels)
            bar.end(f"{len(reports)} checked")
        if reports:
            said = [f"{report.name}: {kernel_label(report)}" for report in reports[:KERNELS_NAMED]]
            more = f"; and {len(reports) - KERNELS_NAMED} more" if len(reports) > KERNELS_NAMED else ""
            server.tell_if_blind("; ".join(said) + more)
        return {"kernels": [to_lsp.kernel_report(report) for report in reports]}

    if given.background:
        server.spawn(end(), f"check {given.uri} in the background")
        return {"kernels": [], "running": True}
    return await end()


async def _checked(server: DiceServer, uri: str, kernels: tuple[str, ...] | None) -> tuple[KernelReport, ...]:
    """The reports of a check that the user has asked for. A check that takes it over, as a save's does, is waited for too."""
    job = await start_check(server, uri, kernels=kernels, asked=True)
    wanted = set(server.checking.get(uri, ()))
    reports: tuple[KernelReport, ...] = ()
    taken_over = False
    while job is not None:
        try:
            reports = await job
            break
        except asyncio.CancelledError:
            if job.end is None:
                job.cancel()
                raise
            job, taken_over = server.jobs.at(f"check {uri}"), True
    if not taken_over:
        return reports
    snapshot = server.documents.last(uri)
    keys = {} if snapshot is None else snapshot.keys
    known = (server.results.report(uri, name, keys[name]) for name in keys if name in wanted)
    return tuple(report for report in known if report is not None)


# Directive


async def _write_directive(server: DiceServer, given: KernelArguments) -> dict[str, Any]:
    """Write what is known of a launch above its kernel, of every kernel if none is named; what is guessed says so."""
    snapshot = await server.documents.exact(given.uri)
    kernel = None if snapshot is None or given.kernel is None else snapshot.kernel(given.kernel)
    if snapshot is None or (kernel is None and given.kernel is not None):
        raise JsonRpcInvalidParams(f"there is no kernel {given.kernel!r} in {given.uri}")
    kernels = snapshot.model.kernels if kernel is None else (kernel,)
    document = snapshot.document
    replacements: list[to_lsp.Replacement] = []
    snippets: list[str] = []
    # Placeholders ask for what is guessed; without them it is marked in the text.
    client = server.client
    asks = kernel is not None and client.snippet_edits and client.document_changes and document.file_text is None
    for each in kernels:
        if each.macro:
            continue
        report = server.results.report(given.uri, each.id, snapshot.keys[each.id])
        spec = await server.specs.of(snapshot, each) if report is None else report.spec
        directive = snapshot.directives.get(each.id, Directive())
        lines = directive_lines(each, spec, directive, marks=not asks)
        if lines:
            at, lead, indent = insertion_point(document.text, each)
            plain, with_places = (
                to_lsp.like_document(lead + "".join(f"{indent}{line}\n" for line in found), document.text)
                for found in (lines, directive_snippet(each, spec, directive))
            )
            replacements.append((at, at, plain))
            snippets.append(with_places)
    if not replacements:
        what = "the kernels of this file" if kernel is None else kernel.name
        return _not_applied(server, f"all that is known of {what} is written there already")
    places = snippets if asks and "${" in snippets[0] else None
    outcome = await edit_document(server, document, replacements, "DICE directive", snippets=places)
    if isinstance(outcome, str):
        return _not_applied(server, outcome)
    return {"applied": True, "reason": None}
