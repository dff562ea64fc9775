"""What the features of one session share. A feature imports this file and the two translators, never another feature's insides."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from attrs import frozen
from lsprotocol import types
from pygls.exceptions import JsonRpcContentModified

from dice_lsp import __version__
from dice_lsp.config import Settings
from dice_lsp.jobs import Jobs, Results
from dice_lsp.pipeline import Engine, EngineStatus, OnFillProgress, OnReport
from dice_lsp.records import Baseline, Compiled, Document, FillReport, KernelReport, Region, Sanitized
from dice_lsp.server.documents import Documents, Snapshot
from dice_lsp.server.folders import Folders
from dice_lsp.server.launch_specs import LaunchSpecs
from dice_lsp.server.ledger import Ledger
from dice_lsp.server.patched_pygls import Server
from dice_lsp.server.reviews import Reviews
from dice_lsp.source.positions import Encoding

log = logging.getLogger(__name__)
REFRESH_INTERVAL_S = 0.1
"""Hints are asked for again at most this often: candidates come in bursts."""
CLIENT_PATIENCE_S = 5.0
"""How long an answer of the client is waited for."""


@frozen
class ClientSupport:
    """What the client said it can do, as far as that changes what we send."""

    document_changes: bool = False
    """Takes an edit that names its version. Otherwise it is sent without, and only the text afterwards tells."""
    action_literals: bool = False
    """Takes code actions, not only commands."""
    work_done_progress: bool = False
    configuration: bool = False
    configuration_registration: bool = False
    inlay_hints: bool = False
    inlay_hint_refresh: bool = False
    code_lenses: bool = False
    code_lens_refresh: bool = False
    llm_tag: bool = False
    disabled_actions: bool = False
    markdown_hover: bool = False
    inline_completion: bool = False
    change_annotations: bool = False
    completion: bool = False
    markdown_completion: bool = False
    snippets: bool = False
    """Takes completions with placeholders."""
    insert_replace: bool = False
    """Tells a completion that is put before the rest of a word from one that replaces it."""
    snippet_edits: bool = False
    """Takes placeholders in the edits of a server."""
    diagnostic_tags: bool = False
    dice_notifications: bool = False
    """`experimental: {dice: true}`: the client has handlers for `dice/status` and `dice/candidate`."""
    dice_svg: bool = False
    """Its hovers show an SVG that stands in a `data:` address."""
    dice_preview: bool = False
    """It has a view in which the user looks at an edit before it is made."""

    @classmethod
    def of(cls, capabilities: types.ClientCapabilities) -> "ClientSupport":
        workspace = capabilities.workspace or types.WorkspaceClientCapabilities()
        text = capabilities.text_document or types.TextDocumentClientCapabilities()
        window = capabilities.window or types.WindowClientCapabilities()
        action = text.code_action or types.CodeActionClientCapabilities()
        hover_formats = (text.hover.content_format if text.hover else None) or ()
        completion_item = (text.completion and text.completion.completion_item) or types.ClientCompletionItemOptions()
        changed = workspace.did_change_configuration
        annotations = workspace.workspace_edit and workspace.workspace_edit.change_annotation_support

        def experimental(name: str) -> bool:
            given = capabilities.experimental
            return (given.get(name) if isinstance(given, dict) else getattr(given, name, None)) is True

        return cls(
            # Neovim takes such edits and does not say so; it is known by our plug-in.
            document_changes=experimental("dice")
            or bool(workspace.workspace_edit and workspace.workspace_edit.document_changes),
            action_literals=action.code_action_literal_support is not None,
            work_done_progress=bool(window.work_done_progress),
            configuration=bool(workspace.configuration),
            configuration_registration=bool(changed and changed.dynamic_registration),
            # lsp-mode has lenses and says only that it can refresh them.
            inlay_hints=text.inlay_hint is not None or workspace.inlay_hint is not None,
            inlay_hint_refresh=bool(workspace.inlay_hint and workspace.inlay_hint.refresh_support),
            code_lenses=text.code_lens is not None or workspace.code_lens is not None,
            code_lens_refresh=bool(workspace.code_lens and workspace.code_lens.refresh_support),
            llm_tag=bool(action.tag_support and types.CodeActionTag.LlmGenerated in action.tag_support.value_set),
            disabled_actions=bool(action.disabled_support),
            markdown_hover=types.MarkupKind.Markdown in hover_formats,
            inline_completion=text.inline_completion is not None,
            change_annotations=annotations is not None,
            completion=text.completion is not None,
            markdown_completion=types.MarkupKind.Markdown in (completion_item.documentation_format or ()),
            snippets=bool(completion_item.snippet_support),
            insert_replace=bool(completion_item.insert_replace_support),
            snippet_edits=bool(workspace.workspace_edit and workspace.workspace_edit.snippet_edit_support),
            diagnostic_tags=bool(text.publish_diagnostics and text.publish_diagnostics.tag_support),
            dice_notifications=experimental("dice"),
            dice_svg=experimental("diceSvg"),
            dice_preview=experimental("dicePreview"),
        )


@frozen
class Pending:
    """A kernel that is being checked: the key of the text that is, and what is known so far."""

    key: str
    early: KernelReport | None = None
    asked: bool = False
    """By the user: then no budget holds."""


class EngineLike(Protocol):
    """What the server needs of `pipeline.Engine`."""

    on_status: Callable[[], None] | None

    @property
    def status(self) -> EngineStatus: ...

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def fill(
        self,
        region: Region,
        path: str,
        *,
        candidates: int | None = None,
        baseline: Baseline | None = None,
        settings: Settings | None = None,
        on_progress: OnFillProgress | None = None,
    ) -> FillReport: ...

    async def check(
        self,
        document: Document,
        path: str,
        *,
        kernels: Sequence[str] | None = None,
        baselines: Mapping[str, Baseline] = ...,
        budget_s: float | None = None,
        settings: Settings | None = None,
        on_report: OnReport | None = None,
    ) -> tuple[KernelReport, ...]: ...

    async def code(
        self, document: Document, path: str, kernel_id: str, *, settings: Settings | None = None
    ) -> Compiled | str: ...

    async def sanitize(
        self, document: Document, path: str, kernel_id: str, *, settings: Settings | None = None
    ) -> Sanitized | None: ...


class DiceServer(Server):
    """One editor's session."""

    def __init__(self, settings: Settings, make_engine: Callable[[Settings], EngineLike] = Engine) -> None:
        super().__init__("dice-lsp", __version__)
        self.make_engine = make_engine
        self.settings = settings
        self.on_status: Callable[[], None] = lambda: None
        """Called whenever what `dice/status` says may have changed."""
        self.engine: EngineLike = self.new_engine()
        self.client = ClientSupport()
        self.jobs = Jobs()
        self.results = Results()
        self.folders = Folders()
        self.documents = Documents(self._read, self.settings_of)
        self.specs = LaunchSpecs(self.documents)
        self.reviews = Reviews(self.documents, self.specs)
        self.ledger = Ledger(lambda uri: self.folders.file(uri) if self.settings_of(uri).history else None)
        self.checking: dict[str, dict[str, Pending]] = {}
        """URI -> kernels that are being checked or wait for it."""
        self.filling: set[int] = set()
        """Numbers of the fills that still run."""
        self.preparing: dict[object, tuple[str, str | None]] = {}
        """Fills that wait for the text to be read, with their document and kernel; a cancel takes them out of here."""
        self.taken: dict[int, Region] = {}
        """Number of a fill -> the place of its candidate that the user took, as it stands in the text after that."""
        self.ghosts: dict[int, tuple[str, int, int]] = {}
        """Number of a fill -> the text in which a client was last offered it inline, and its place there."""
        self.published: dict[str, tuple[types.Diagnostic, ...]] = {}
        """URI -> the diagnostics that the client has."""
        self.error_lines: dict[tuple[str, str, str], Mapping[int, str]] = {}
        """(URI, kernel, key) -> the text of each line that the compile errors of that report are about."""
        self.on_snapshot: list[Callable[[Snapshot | None, Snapshot], None]] = []
        """Features that follow the text."""
        self.ready = asyncio.Event()
        """Set once the settings are known."""
        self.complaints_waiting: Sequence[str] = ()
        """About the initialization options, to be shown once the client may be spoken to."""
        self.initialized = False
        """The client has said so, and may be sent notifications."""
        self.closing = False
        """No job may be started any more."""
        self._complaints_shown: set[str] = set()
        self._refused: set[str] = set()
        """Documents about which a client was told to ask again."""
        self._refresh_wanted = False
        self._refreshing = False

    @property
    def encoding(self) -> Encoding:
        agreed = self.workspace.position_encoding
        return {"utf-8": "utf-8", "utf-32": "utf-32"}.get(str(getattr(agreed, "value", agreed)), "utf-16")  # type: ignore[return-value]

    def new_engine(self) -> EngineLike:
        """An engine for the present settings; that of the settings before must be closed by the caller."""
        engine = self.make_engine(self.settings)
        engine.on_status = lambda: self.on_status() if self.engine is engine else None
        return engine

    def settings_of(self, uri: str) -> Settings:
        """The settings that hold for a document: the session's, its folder's from the client, its folder's own."""
        return self.folders.settings(uri, self.settings)

    def tell_status(self) -> None:
        """Tell the client, if what `dice/status` says is news."""
        self.on_status()

    async def read_folder_settings(self, uri: str) -> None:
        """Read again what the folder of a document says in its `.dice/settings.toml`, and follow it."""
        if (path := self.folders.of(uri)) is not None:
            await self.read_folder(path)

    async def read_folder(self, path: str) -> None:
        """The same for a workspace folder."""
        settings, complaints = await self.documents.in_thread(self.folders.read, path, self.settings)
        self.complain(complaints)
        if self.folders.put(path, settings):
            for other in self.documents.uris():
                if self.folders.of(other) == path:
                    self.documents.read_again(other)
            self.refresh()

    def _read(self, old: Snapshot | None, new: Snapshot) -> None:
        if new.document.uri in self._refused and self.documents.is_current(new):
            self._refused.discard(new.document.uri)
            self.refresh()
        for follow in self.on_snapshot:
            try:
                follow(old, new)
            except Exception:
                log.exception("%s failed", follow)

    # Reports

    def report(self, snapshot: Snapshot, kernel: str) -> tuple[KernelReport, bool] | None:
        """The report to show for a kernel of this text, and whether it is stale."""
        uri, key = snapshot.document.uri, snapshot.keys.get(kernel)
        current = self.results.report(uri, kernel, key)
        if current is not None:
            return current, False
        last = self.results.report(uri, kernel)
        return None if last is None else (last, True)

    async def current_snapshot(self, uri: str, patience_s: float) -> Snapshot | None:
        """A snapshot of the present text, for answers whose lines must be right; None for a document that is not open.

        Raises `JsonRpcContentModified` while the text is still being read: the client keeps what it shows, and is told
        to ask again once that is done.
        """
        snapshot = await self.documents.fresh(uri, patience_s)
        if self.documents.version(uri) is None or (snapshot is not None and self.documents.is_current(snapshot)):
            return snapshot
        self._refused.add(uri)
        raise JsonRpcContentModified("the text is still being read")

    @property
    def holds_up(self) -> bool:
        """The client may stand still until a command is answered, as Emacs does: long ones go on in the background."""
        return not self.client.dice_notifications

    def tell_if_blind(self, message: str) -> None:
        """A word about the end of what the user asked for, to a client that cannot be told to look at the hints again."""
        if not (self.client.inlay_hint_refresh or self.client.dice_notifications):
            self.show(message, types.MessageType.Info)

    def cancel_at(self, place: str) -> int:
        """Cancel the job at exactly this place; returns how many that were."""
        job = self.jobs.at(place)
        if job is not None:
            job.cancel()
        return int(job is not None)

    def cancel_fills(self, uri: str, kernel: str | None) -> int:
        """Cancel the fills of a document, or of one kernel of it, also those that have not begun yet."""
        early = [mark for mark, (its, name) in self.preparing.items() if its == uri and kernel in (None, name)]
        for mark in early:
            del self.preparing[mark]
        begun = self.jobs.cancel(f"fill {uri} ") if kernel is None else self.cancel_at(f"fill {uri} {kernel}")
        return begun + len(early)

    # Messages to the user

    def show(self, message: str, kind: types.MessageType = types.MessageType.Warning) -> None:
        """One sentence for the user, only about something they asked for."""
        self.window_show_message(types.ShowMessageParams(kind, message))

    def complain(self, sentences: Sequence[str]) -> None:
        """Name the settings that were not taken, each only once a session."""
        new = [sentence for sentence in sentences if sentence not in self._complaints_shown]
        self._complaints_shown.update(new)
        for sentence in new:
            self.show(sentence)

    def tell(self, method: str, params: dict[str, Any]) -> None:
        """Our own notification, for clients that asked for those."""
        if self.client.dice_notifications:
            self.protocol.notify(method, params)

    def refresh(self) -> None:
        """Have the client ask for hints and lenses again, soon."""
        self._refresh_wanted = True
        if not self._refreshing and (self.client.inlay_hint_refresh or self.client.code_lens_refresh):
            self._refreshing = True
            self.spawn(self._refresh(), "refresh")

    async def _refresh(self) -> None:
        try:
            while self._refresh_wanted:
                self._refresh_wanted = False
                asked = []
                if self.client.inlay_hint_refresh:
                    asked.append(self.workspace_inlay_hint_refresh_async(None))
                if self.client.code_lens_refresh and self.settings.code_lens:
                    asked.append(self.workspace_code_lens_refresh_async(None))
                for answer in await asyncio.gather(
                    *(asyncio.wait_for(future, CLIENT_PATIENCE_S) for future in asked), return_exceptions=True
                ):
                    if isinstance(answer, Exception):
                        log.info("the client did not refresh: %r", answer)
                await asyncio.sleep(REFRESH_INTERVAL_S)
        finally:
            self._refreshing = False
