"""An editor without a screen: it keeps texts and versions, takes edits and undoes them, over pytest-lsp's client.

It behaves as the two real editors do where they differ: VS Code speaks UTF-16 and refuses an edit of an old version,
Neovim speaks UTF-8 and says that it applied one that it skipped.
"""

import asyncio
import json
import re
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from lsprotocol import converters
from lsprotocol import types as t
from pygls.exceptions import JsonRpcException
from pytest_lsp import LanguageClient, client_capabilities

from dice_lsp.source.positions import LineIndex
from tests.stdio.raw import PATIENCE_S

HERE = Path(__file__).resolve().parent
WHOLE = t.Range(t.Position(0, 0), t.Position(2**31 - 1, 0))


def capabilities(
    name: str,
    experimental: Mapping[str, bool] | None = None,
    ghost_text: bool = False,
    snippets: bool = False,
) -> t.ClientCapabilities:
    """What Neovim 0.11.4 says of itself (recorded), or VS Code with languageclient 10; and what an extension adds."""
    if name == "neovim":
        recorded = json.loads((HERE / "neovim_0.11.4.json").read_text())
        recorded["experimental"] = experimental or {"dice": True}
        if ghost_text:
            recorded["textDocument"]["inlineCompletion"] = {}
        return converters.get_converter().structure(recorded, t.ClientCapabilities)
    given = client_capabilities("visual_studio_code")
    assert given.text_document and given.workspace and given.general and given.text_document.code_action
    given.experimental = experimental
    given.text_document.inline_completion = t.InlineCompletionClientCapabilities()
    assert given.workspace.workspace_edit is not None
    given.workspace.workspace_edit.change_annotation_support = t.ChangeAnnotationsSupportOptions()
    given.workspace.workspace_edit.snippet_edit_support = snippets
    given.text_document.publish_diagnostics = t.PublishDiagnosticsClientCapabilities(
        tag_support=t.ClientDiagnosticsTagOptions([t.DiagnosticTag.Unnecessary])
    )
    given.general.position_encodings = [t.PositionEncodingKind.Utf16]
    given.text_document.inlay_hint = t.InlayHintClientCapabilities(dynamic_registration=True)
    given.text_document.code_action.tag_support = t.CodeActionTagOptions([t.CodeActionTag.LlmGenerated])
    given.text_document.code_action.disabled_support = True
    given.workspace.inlay_hint = t.InlayHintWorkspaceClientCapabilities(refresh_support=True)
    given.workspace.code_lens = t.CodeLensWorkspaceClientCapabilities(refresh_support=True)
    return given


def plain(value: Any) -> Any:
    """Dicts and lists again, out of pygls' nested named tuples."""
    if hasattr(value, "_asdict"):
        return {key: plain(item) for key, item in value._asdict().items()}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def without_placeholders(snippet: str) -> str:
    """What a snippet leaves in the text when none of its placeholders is touched."""
    text = re.sub(r"(?<!\\)\$\{\d+:((?:[^\\}]|\\.)*)\}|(?<!\\)\$\d+", lambda match: match[1] or "", snippet)
    return re.sub(r"\\([\\$}])", r"\1", text)


class Editor:
    """One session. `name` is `neovim` or `vscode`."""

    def __init__(self, client: LanguageClient, name: str) -> None:
        self.client = client
        self.name = name
        self.texts: dict[str, str] = {}
        self.versions: dict[str, int] = {}
        self.undo_stack: dict[str, list[str]] = {}
        self.refreshes = 0
        self.notifications: list[tuple[str, Any]] = []
        self.take_edits = True
        self.confirms = True
        """Whether the user ticks an edit that is shown for confirmation."""
        self.takes_snippets = False
        self.snippets: list[str] = []
        self.asked_about: list[t.ChangeAnnotation] = []

        @client.feature(t.WORKSPACE_INLAY_HINT_REFRESH)
        def inlay_refresh(params: None) -> None:
            self.refreshes += 1

        @client.feature(t.WORKSPACE_CODE_LENS_REFRESH)
        def lens_refresh(params: None) -> None: ...

        @client.feature(t.CLIENT_REGISTER_CAPABILITY)
        def register(params: t.RegistrationParams) -> None: ...

        @client.feature("dice/status")
        def status(params: Any) -> None:
            self.notifications.append(("dice/status", plain(params)))

        @client.feature("dice/candidate")
        def candidate(params: Any) -> None:
            self.notifications.append(("dice/candidate", params))

        @client.feature(t.WORKSPACE_APPLY_EDIT)
        def apply_edit(params: t.ApplyWorkspaceEditParams) -> t.ApplyWorkspaceEditResult:
            return self._apply(params)

    @property
    def encoding(self) -> str:
        return "utf-8" if self.name == "neovim" else "utf-16"

    async def start(
        self,
        *folders: Path,
        experimental: Mapping[str, bool] | None = None,
        ghost_text: bool = False,
        snippets: bool = False,
        **options: Any,
    ) -> t.InitializeResult:
        self.takes_snippets = snippets
        return await self.client.initialize_session(
            t.InitializeParams(
                capabilities=capabilities(self.name, experimental, ghost_text, snippets),
                initialization_options=options,
                workspace_folders=[t.WorkspaceFolder(folder.as_uri(), folder.name) for folder in folders] or None,
            )
        )

    def open_folder(self, folder: Path) -> None:
        """Add a folder to the workspace."""
        added = [t.WorkspaceFolder(folder.as_uri(), folder.name)]
        event = t.WorkspaceFoldersChangeEvent(added=added, removed=[])
        self.client.workspace_did_change_workspace_folders(t.DidChangeWorkspaceFoldersParams(event))

    # Texts

    def open(self, uri: str, text: str) -> None:
        self.texts[uri], self.versions[uri], self.undo_stack[uri] = text, 1, []
        self.client.text_document_did_open(t.DidOpenTextDocumentParams(t.TextDocumentItem(uri, "cuda", 1, text)))

    def close(self, uri: str) -> None:
        self.client.text_document_did_close(t.DidCloseTextDocumentParams(t.TextDocumentIdentifier(uri)))
        del self.texts[uri]

    def save(self, uri: str) -> None:
        self.client.text_document_did_save(t.DidSaveTextDocumentParams(t.TextDocumentIdentifier(uri)))

    def edit(self, uri: str, old: str, new: str) -> None:
        """Replace the only occurrence of `old`, as one incremental change."""
        text = self.texts[uri]
        assert text.count(old) == 1, f"{old!r} occurs {text.count(old)} times"
        start = text.index(old)
        self.replace(uri, start, start + len(old), new)

    def replace(self, uri: str, start: int, end: int, new: str) -> None:
        text = self.texts[uri]
        self.undo_stack[uri].append(text)
        change = t.TextDocumentContentChangePartial(range=self.range(uri, start, end), text=new)
        self._send(uri, text[:start] + new + text[end:], change)

    def undo(self, uri: str) -> None:
        text = self.undo_stack[uri].pop()
        self._send(uri, text, t.TextDocumentContentChangeWholeDocument(text=text))

    def _send(self, uri: str, text: str, change: t.TextDocumentContentChangeEvent) -> None:
        self.texts[uri] = text
        self.versions[uri] += 1
        identifier = t.VersionedTextDocumentIdentifier(version=self.versions[uri], uri=uri)
        self.client.text_document_did_change(t.DidChangeTextDocumentParams(identifier, [change]))

    def _apply(self, params: t.ApplyWorkspaceEditParams) -> t.ApplyWorkspaceEditResult:
        (change,) = params.edit.document_changes or []
        assert isinstance(change, t.TextDocumentEdit)
        uri, version = change.text_document.uri, change.text_document.version
        assert version is not None, "an edit must name its version"
        if not self.take_edits or version != self.versions[uri]:
            return t.ApplyWorkspaceEditResult(applied=self.name == "neovim")
        replacements = []
        for edit in change.edits:
            if isinstance(edit, t.AnnotatedTextEdit):
                assert params.edit.change_annotations is not None
                annotation = params.edit.change_annotations[edit.annotation_id]
                self.asked_about.append(annotation)
                if annotation.needs_confirmation and not self.confirms:
                    # VS Code says so when its preview is left by Apply with nothing ticked.
                    return t.ApplyWorkspaceEditResult(applied=True)
            snippet = isinstance(edit, t.SnippetTextEdit)
            assert not snippet or self.takes_snippets, "this client has no snippets in edits"
            text = without_placeholders(edit.snippet.value) if snippet else edit.new_text
            self.snippets += [edit.snippet.value] if snippet else []
            replacements.append((*self.offsets(uri, edit.range), text))
        # The positions of all are those of the text before.
        for start, end, text in sorted(replacements, reverse=True):
            self.replace(uri, start, end, text)
        return t.ApplyWorkspaceEditResult(applied=True)

    # Positions

    def range(self, uri: str, start: int, end: int) -> t.Range:
        index = LineIndex(self.texts[uri])
        return t.Range(*(t.Position(*index.position(at, self.encoding)) for at in (start, end)))

    def offsets(self, uri: str, given: t.Range) -> tuple[int, int]:
        index = LineIndex(self.texts[uri])
        start, end = (index.offset(at.line, at.character, self.encoding) for at in (given.start, given.end))
        return start, end

    def range_of(self, uri: str, words: str) -> t.Range:
        start = self.texts[uri].index(words)
        return self.range(uri, start, start + len(words))

    # Requests

    async def hints(self, uri: str) -> list[tuple[int, str]]:
        """`(line, label)` of every hint; each must stand at the end of its line."""
        params = t.InlayHintParams(t.TextDocumentIdentifier(uri), WHOLE)
        index = LineIndex(self.texts[uri])
        found = []
        for hint in await self._again(lambda: self.client.text_document_inlay_hint_async(params)) or ():
            at = index.offset(hint.position.line, hint.position.character, self.encoding)
            assert at == index.line_end(hint.position.line)
            assert isinstance(hint.label, str) and len(hint.label) <= 40
            found.append((hint.position.line, hint.label))
        return found

    async def _again(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        """Ask again while the server says that the text has moved on (-32801), as editors do."""
        while True:
            try:
                return await ask()
            except JsonRpcException as error:
                if error.code != -32801:
                    raise
                await asyncio.sleep(0.02)

    async def hint_at(self, uri: str, line: int) -> str | None:
        return next((label for at, label in await self.hints(uri) if at == line), None)

    async def until_hint(self, uri: str, line: int, said: Callable[[str], bool], timeout_s: float = PATIENCE_S) -> str:
        deadline = time.monotonic() + timeout_s
        while True:
            label = await self.hint_at(uri, line)
            if label is not None and said(label):
                return label
            assert time.monotonic() < deadline, f"line {line} still says {label!r}"
            await asyncio.sleep(0.05)

    async def actions(self, uri: str, words: str) -> dict[str, t.CodeAction]:
        params = t.CodeActionParams(
            t.TextDocumentIdentifier(uri), self.range_of(uri, words), t.CodeActionContext(diagnostics=[])
        )
        # Asked for without a result type: lsprotocol takes every action with a command for a bare Command.
        protocol = self.client.protocol
        number = str(uuid.uuid4())
        answer = protocol.send_request(t.TEXT_DOCUMENT_CODE_ACTION, params, msg_id=number)
        protocol._result_types[number] = None
        actions = plain(await asyncio.wrap_future(answer)) or ()
        structure = converters.get_converter().structure
        return {action["title"]: structure(action, t.CodeAction) for action in actions}

    async def run(self, command: str, arguments: dict[str, Any]) -> Any:
        return plain(await self.client.workspace_execute_command_async(t.ExecuteCommandParams(command, [arguments])))

    async def take(self, action: t.CodeAction) -> Any:
        """What an editor does with a chosen action: resolve it, then run its command."""
        resolved = await self.client.code_action_resolve_async(action)
        assert resolved.command is not None and resolved.edit is None
        (arguments,) = resolved.command.arguments or ()
        answer = await self.run(resolved.command.command, arguments)
        if not answer.get("running"):
            return answer
        # What goes on in the background is seen in the editor's hints and menus; here it is waited for.
        while True:
            found = [item for item in await self.candidates(arguments["uri"]) if item["fill"] == answer["fill"]]
            if not found or not found[0]["running"]:
                return found[0] if found else answer
            await asyncio.sleep(0.05)

    async def hover(self, uri: str, words: str) -> str | None:
        at = self.range_of(uri, words).start
        found = await self.client.text_document_hover_async(t.HoverParams(t.TextDocumentIdentifier(uri), at))
        assert found is None or isinstance(found.contents, t.MarkupContent)
        return None if found is None else found.contents.value

    async def completions(self, uri: str, at: int) -> list[t.CompletionItem]:
        """What is offered at a cursor; each item must replace a part of one line that the cursor touches."""
        place = self.range(uri, at, at).start
        params = t.CompletionParams(t.TextDocumentIdentifier(uri), place)
        found = await self.client.text_document_completion_async(params)
        assert found is None or isinstance(found, t.CompletionList)
        items = list(found.items) if found is not None else []
        for item in items:
            for range_ in self._replaced(item):
                assert range_.start.line == range_.end.line == place.line
                assert range_.start.character <= place.character <= range_.end.character
        return items

    def _replaced(self, item: t.CompletionItem) -> list[t.Range]:
        if isinstance(item.text_edit, t.InsertReplaceEdit):
            return [item.text_edit.replace, item.text_edit.insert]
        assert item.text_edit is not None
        return [item.text_edit.range]

    def choose(self, uri: str, item: t.CompletionItem) -> None:
        """Take an item as an editor does; what a placeholder holds is left as it is."""
        assert item.text_edit is not None
        text = item.text_edit.new_text
        if item.insert_text_format is t.InsertTextFormat.Snippet:
            text = without_placeholders(text)
        self.replace(uri, *self.offsets(uri, self._replaced(item)[0]), text)

    async def status(self) -> Any:
        return plain(await self.client.protocol.send_request_async("dice/status", None))

    async def history(self, uri: str, kernel: str) -> Any:
        return plain(await self.client.protocol.send_request_async("dice/history", {"uri": uri, "kernel": kernel}))

    async def ghost(self, uri: str, at: int) -> t.InlineCompletionItem | None:
        """The ghost text at a cursor."""
        place = self.range(uri, at, at).start
        context = t.InlineCompletionContext(t.InlineCompletionTriggerKind.Automatic)
        params = t.InlineCompletionParams(context, t.TextDocumentIdentifier(uri), place)
        found = await self.client.text_document_inline_completion_async(params)
        assert isinstance(found, t.InlineCompletionList) and len(found.items) <= 1
        return found.items[0] if found.items else None

    def accept_ghost(self, uri: str, item: t.InlineCompletionItem) -> None:
        """Put it into the text, as an editor does: without a word to the server but the change."""
        assert item.range is not None and isinstance(item.insert_text, str)
        assert item.range.start.line == item.range.end.line, "editors show only items of one line"
        self.replace(uri, *self.offsets(uri, item.range), item.insert_text)

    async def candidates(self, uri: str) -> list[Any]:
        return plain(await self.client.protocol.send_request_async("dice/candidates", {"uri": uri}))

    async def until(self, condition: Callable[[], Any], timeout_s: float = PATIENCE_S) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, f"still not so after {timeout_s} s"
            await asyncio.sleep(0.02)

    @property
    def messages(self) -> list[str]:
        return [message.message for message in self.client.messages]
