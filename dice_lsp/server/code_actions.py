"""Code actions: entries of a menu and nothing more. The work is in the commands that they name.

They carry no edit, because a client applies a code action's edit without looking at the version of the text. The
exception is what is wrong with a directive, which is replaced by what is known the moment the menu is opened.
"""

from collections.abc import Sequence
from typing import Any

from lsprotocol import types

from dice_lsp.hint import candidate_title
from dice_lsp.jobs import Fill
from dice_lsp.pipeline import is_left_out, rank
from dice_lsp.records import CandidateReport, Kernel
from dice_lsp.server import from_lsp, to_lsp
from dice_lsp.server.baselines import can_accept
from dice_lsp.server.capturing import run_line
from dice_lsp.server.directive_line import directive_lines
from dice_lsp.server.documents import Snapshot
from dice_lsp.server.fills import on_offer
from dice_lsp.server.session import DiceServer
from dice_lsp.source.directives import Directive
from dice_lsp.source.embedded import written
from dice_lsp.source.kernels import comment_start

PATIENCE_S = 0.01
FIRST_PATIENCE_S = 2.0
KINDS = [types.CodeActionKind.RefactorRewrite, types.CodeActionKind.QuickFix]


def register(server: DiceServer) -> None:
    @server.feature(
        types.TEXT_DOCUMENT_CODE_ACTION, types.CodeActionOptions(code_action_kinds=KINDS, resolve_provider=True)
    )
    async def code_action(params: types.CodeActionParams) -> list[types.CodeAction | types.Command]:
        uri = params.text_document.uri
        snapshot = await server.documents.fresh(uri, PATIENCE_S)
        if snapshot is None:
            # An editor keeps an empty menu until its cursor moves, so the first reading of a text is waited for.
            snapshot = await server.current_snapshot(uri, FIRST_PATIENCE_S)
        if snapshot is None:
            return []
        start, end = from_lsp.span(snapshot.index, params.range, server.encoding)
        only = params.context.only
        actions = [
            *_fill_actions(server, snapshot, params.range, start, end),
            *_candidate_actions(server, snapshot, start, end),
            *_kernel_actions(server, snapshot, start, end),
            *_directive_actions(server, snapshot, start, end),
            *_directive_fixes(server, snapshot, start, end),
        ]
        wanted = [action for action in actions if only is None or any(_is_kind(action.kind, kind) for kind in only)]
        if server.client.action_literals:
            return list(wanted)
        return [action.command for action in wanted if action.command is not None]

    @server.feature(types.CODE_ACTION_RESOLVE)
    async def resolve(action: types.CodeAction) -> types.CodeAction:
        # Nothing is left to add, but clients resolve every action of a server that can resolve any.
        return action


def _is_kind(kind: str | types.CodeActionKind | None, wanted: str | types.CodeActionKind) -> bool:
    """Kinds are a hierarchy: `refactor` asks for `refactor.rewrite` too."""
    have, want = (str(getattr(item, "value", item)) for item in (kind, wanted))
    return not want or have == want or have.startswith(want + ".")


def _action(
    server: DiceServer,
    title: str,
    command: str,
    arguments: dict[str, Any],
    kind: types.CodeActionKind = types.CodeActionKind.RefactorRewrite,
    disabled: str | None = None,
    by_model: bool = True,
) -> types.CodeAction:
    return types.CodeAction(
        title=title,
        kind=kind,
        command=None if disabled else to_lsp.command(title, command, arguments, background=server.holds_up),
        disabled=None if disabled is None else types.CodeActionDisabled(reason=disabled),
        data={"command": command, **arguments},
        tags=[types.CodeActionTag.LlmGenerated]
        if server.client.llm_tag and by_model and kind is types.CodeActionKind.RefactorRewrite
        else None,
    )


def _fill_actions(
    server: DiceServer, snapshot: Snapshot, given: types.Range, start: int, end: int
) -> list[types.CodeAction]:
    kernel = snapshot.kernel_at(start, end)
    if kernel is None:
        return []
    uri, version = snapshot.document.uri, snapshot.document.version
    actions = []
    if snapshot.document.text[start:end].strip():
        wire = server.protocol._converter.unstructure(given)
        named = {"uri": uri, "version": version, "range": wire}
        actions.append(_action(server, "DICE: fill selection", "dice.fill", named))
    body = {"uri": uri, "version": version, "kernel": kernel.id}
    actions.append(_action(server, "DICE: fill kernel body", "dice.fill", body))
    return actions


def _candidate_actions(server: DiceServer, snapshot: Snapshot, start: int, end: int) -> list[types.CodeAction]:
    actions = []
    for fill, place in on_offer(server, snapshot.document):
        kernel = snapshot.kernel_at(place.start, place.end)
        if _touches(start, end, place.start, place.end) or _in_kernel(kernel, start, end):
            actions += [action for item in fill.report.candidates for action in _candidate_action(server, fill, item)]
    return actions


def _candidate_action(server: DiceServer, fill: Fill, item: CandidateReport) -> list[types.CodeAction]:
    title = f"DICE: apply {candidate_title(item)}"
    arguments = {"fill": fill.number, "candidate": item.label, "key": to_lsp.candidate_key(item)}
    if rank(item)[0] < 3:
        actions = [_action(server, title, "dice.apply", arguments)]
        if server.client.dice_preview and server.client.change_annotations:
            actions.append(_action(server, f"{title} (preview)", "dice.apply", {**arguments, "preview": True}))
        return actions
    # A refused candidate is no offer; where the client can show why it was refused, it does.
    if server.client.disabled_actions:
        return [_action(server, title, "dice.apply", arguments, disabled=candidate_title(item))]
    return []


def _kernel_actions(server: DiceServer, snapshot: Snapshot, start: int, end: int) -> list[types.CodeAction]:
    """About the kernel's baseline, and to check a kernel that a check did not come to."""
    kernel = snapshot.kernel_at(start, end)
    if kernel is None:
        return []
    actions = []
    named = {"uri": snapshot.document.uri, "kernel": kernel.id}
    found = server.report(snapshot, kernel.id)
    if found is not None and not found[1] and is_left_out(found[0]):
        actions.append(_action(server, "DICE: check this kernel", "dice.check", named, types.CodeActionKind.QuickFix))
    if kernel.body_start <= start < end:
        # Who selects code of a body wants it filled, and VS Code puts what a model makes below everything else.
        return actions
    if can_accept(server, snapshot, kernel):
        title = "DICE: accept as baseline"
        actions.append(_action(server, title, "dice.acceptBaseline", named, by_model=False))
    known = server.ledger.known(snapshot.document.uri, kernel.id).baseline
    if known is not None and known.origin == "accepted":
        title = "DICE: forget the baseline"
        actions.append(_action(server, title, "dice.forgetBaseline", named, by_model=False))
    return actions


def _directive_actions(server: DiceServer, snapshot: Snapshot, start: int, end: int) -> list[types.CodeAction]:
    """To write what is known of a launch, for the kernel at the cursor or below the comment there, and for all."""
    uri, actions = snapshot.document.uri, []
    kernel = _kernel_or_comment(snapshot, start, end)
    if kernel is not None and not kernel.macro and _says_less_than_all(server, snapshot, kernel):
        found = server.report(snapshot, kernel.id)
        unknown = found is not None and bool(found[0].spec.unknown)
        title = "DICE: write //dice: line" if unknown else "DICE: write what was inferred"
        kind = types.CodeActionKind.QuickFix if unknown else types.CodeActionKind.RefactorRewrite
        named = {"uri": uri, "kernel": kernel.id}
        if unknown or not kernel.body_start <= start < end:
            actions.append(_action(server, title, "dice.writeDirective", named, kind, by_model=False))
    line = None if kernel is None else run_line(snapshot, kernel.id)
    if kernel is not None and line is not None and not kernel.body_start <= start < end:
        title = f"DICE: record what `{line}` launches"
        actions.append(_action(server, title, "dice.capture", {"uri": uri}, by_model=False))
    if len(snapshot.model.kernels) > 1 and kernel is not None and not kernel.body_start <= start < end:
        # No `source` action: editors run those at every save if they are told to, and a save edits nothing.
        title = "DICE: write what was inferred, for all kernels of the file"
        actions.append(_action(server, title, "dice.writeDirective", {"uri": uri}, by_model=False))
    return actions


def _kernel_or_comment(snapshot: Snapshot, start: int, end: int) -> Kernel | None:
    """The kernel at `start:end`, or the one whose comments are there."""
    kernel = snapshot.kernel_at(start, end)
    if kernel is not None:
        return kernel
    for name, directive in snapshot.directives.items():
        if any(_touches(start, end, *comment) for comment in directive.comments):
            return snapshot.kernel(name)
    below = next((kernel for kernel in snapshot.model.kernels if kernel.start >= end), None)
    text = snapshot.document.text
    return below if below is not None and comment_start(text, below) <= start else None


def _says_less_than_all(server: DiceServer, snapshot: Snapshot, kernel: Kernel) -> bool:
    """Whether there is something that the kernel's directive does not say yet."""
    report = server.results.report(snapshot.document.uri, kernel.id, snapshot.keys[kernel.id])
    spec = server.specs.known(snapshot, kernel) if report is None else report.spec
    return bool(directive_lines(kernel, spec, snapshot.directives.get(kernel.id, Directive())))


def _directive_fixes(server: DiceServer, snapshot: Snapshot, start: int, end: int) -> list[types.CodeAction]:
    actions = []
    for problem in (*snapshot.problems, *server.reviews.of(snapshot)):
        if not _touches(start, end, problem.start, problem.end):
            continue
        if problem.fix is not None:
            replacement = (problem.start, problem.end, problem.fix)
            actions.append(_fix(server, snapshot, f"DICE: change to {problem.fix}", (replacement,)))
        actions += [_fix(server, snapshot, f"DICE: {fix.title}", fix.edits) for fix in problem.fixes]
    unique = {action.title: action for action in actions if action is not None}
    return list(unique.values())


def _fix(
    server: DiceServer, snapshot: Snapshot, title: str, replacements: Sequence[to_lsp.Replacement]
) -> types.CodeAction | None:
    """A quick fix with its edit; None where the string of a Python file cannot hold it."""
    document, in_file = snapshot.document, []
    for start, end, text in replacements:
        held = written(document, start, to_lsp.like_document(text, document.text))
        if held is None:
            return None
        in_file.append((start, end, held.in_file))
    edit = to_lsp.versioned_edit(document.uri, document.version, snapshot.index, in_file, server.encoding)
    if not server.client.document_changes:
        edit = to_lsp.plain_edit(document.uri, snapshot.index, in_file, server.encoding)
    return types.CodeAction(title=title, kind=types.CodeActionKind.QuickFix, edit=edit)


def _touches(start: int, end: int, first: int, last: int) -> bool:
    return start <= last and first <= end


def _in_kernel(kernel: Kernel | None, start: int, end: int) -> bool:
    return kernel is not None and kernel.start <= start and end <= kernel.end
