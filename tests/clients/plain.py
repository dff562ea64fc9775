"""Clients that know nothing of us: each says of itself what a real editor says, and does what that editor does.

The capabilities are in the `.json` files beside this one, each with the revision of the editor they come from.
"""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

from attrs import frozen

from dice_lsp.source.positions import LineIndex
from tests.stdio.raw import PATIENCE_S, RawClient

HERE = Path(__file__).resolve().parent
NOT_FOUND = {"code": -32601, "message": "method not found"}


@frozen
class Manners:
    """How an editor goes about what the protocol leaves open."""

    resolves: bool = False
    """Every chosen action is resolved first, also one that has its command."""
    holds_changes: bool = False
    """A change is told of only before the next request: Eglot's timer for it does not run while a command does."""
    whole_texts: bool = False
    """Changes are sent as whole texts."""
    asks_user_s: float = 0.0
    """The user is asked before an edit from the server, and takes this long."""
    takes_edits: bool = True
    """`workspace/applyEdit` is answered, whatever the capabilities say."""
    only_changes: bool = False
    """An edit's `documentChanges` are not looked at."""


MANNERS = {
    "helix": Manners(resolves=True),
    "eglot": Manners(holds_changes=True),
    "lsp_mode": Manners(),
    "sublime": Manners(resolves=True),
    "kate": Manners(),
    "vim_lsp": Manners(whole_texts=True),
}


def recorded(name: str) -> dict[str, Any]:
    """What a real editor says of itself: `client`, `origin`, `languageId`, `capabilities`."""
    return json.loads((HERE / f"{name}.json").read_text())


def _given(capabilities: dict[str, Any], path: str) -> Any:
    value: Any = capabilities
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


DECLARED_BY = {
    "window/workDoneProgress/create": "window.workDoneProgress",
    "workspace/configuration": "workspace.configuration",
    "workspace/inlayHint/refresh": "workspace.inlayHint.refreshSupport",
    "workspace/codeLens/refresh": "workspace.codeLens.refreshSupport",
    "workspace/applyEdit": "workspace.applyEdit",
    "client/registerCapability": "workspace.didChangeConfiguration.dynamicRegistration",
}


class PlainClient(RawClient):
    """One editor with one document. `start_as` starts the server and the session."""

    capabilities: dict[str, Any]
    manners = Manners()
    settings: dict[str, Any]
    offered: dict[str, Any]
    encoding = "utf-16"
    uri = ""
    text = ""
    version = 0

    @classmethod
    async def start_as(
        cls,
        capabilities: dict[str, Any],
        manners: Manners = Manners(),
        *,
        settings: dict[str, Any] | None = None,
        **params: Any,
    ) -> "PlainClient":
        client = await cls.start()
        assert isinstance(client, PlainClient)
        client.capabilities, client.manners, client.settings = capabilities, manners, settings or {}
        client.undeclared: list[str] = []
        client.held: list[dict[str, Any]] = []
        client.undo_stack: list[str] = []
        client.edits: list[dict[str, Any]] = []
        client.pending: set[asyncio.Task[None]] = set()
        result = await client.initialize(capabilities, **params)
        client.offered = result["capabilities"]
        client.encoding = client.offered.get("positionEncoding", "utf-16")
        offers = _given(capabilities, "general.positionEncodings") or ["utf-16"]
        assert client.encoding in offers, f"{client.encoding} is none of {offers}"
        return client

    # What the server asks

    def _take(self, message: dict[str, Any]) -> None:
        if "method" not in message or "id" not in message:
            super()._take(message)
            return
        self.requests.append(message)
        method = message["method"]
        declared = DECLARED_BY.get(method)
        if declared is None or not _given(self.capabilities, declared):
            self.undeclared.append(method)
        task = asyncio.get_running_loop().create_task(self._answer(message["id"], method, message.get("params")))
        self.pending.add(task)
        task.add_done_callback(self.pending.discard)

    async def _answer(self, number: Any, method: str, params: Any) -> None:
        if method == "workspace/applyEdit" and self.manners.takes_edits:
            await asyncio.sleep(self.manners.asks_user_s)
            self.send({"id": number, "result": self._apply(params["edit"])})
        elif method == "workspace/configuration" and _given(self.capabilities, "workspace.configuration"):
            self.send({"id": number, "result": [self.settings.get(item["section"]) for item in params["items"]]})
        elif method in DECLARED_BY and method not in ("workspace/applyEdit", "workspace/configuration"):
            self.send({"id": number, "result": None})
        else:
            self.send({"id": number, "error": NOT_FOUND})

    def _apply(self, edit: dict[str, Any]) -> dict[str, Any]:
        self.edits.append(edit)
        if self.manners.only_changes:
            parts = [({"uri": uri, "version": None}, edits) for uri, edits in edit.get("changes", {}).items()]
        else:
            parts = [(item["textDocument"], item["edits"]) for item in edit.get("documentChanges", ())]
            parts = parts or [({"uri": uri, "version": None}, edits) for uri, edits in edit.get("changes", {}).items()]
        for document, edits in parts:
            assert document["uri"] == self.uri
            if document["version"] is not None and document["version"] != self.version:
                return {"applied": False, "failureReason": "the document has another version"}
            for item in edits:
                assert set(item) == {"range", "newText"}, "neither snippets nor annotations"
                start, end = self.offsets(item["range"])
                self.replace(start, end, item["newText"])
        return {"applied": True}

    # Texts

    def open(self, uri: str, text: str, version: int = 1, language: str = "cuda") -> None:
        self.uri, self.text, self.version = uri, text, version
        document = {"uri": uri, "languageId": language, "version": version, "text": text}
        self.notify("textDocument/didOpen", {"textDocument": document})

    def replace(self, start: int, end: int, new: str) -> None:
        self.undo_stack.append(self.text)
        change = {"text": new, "range": self.range(start, end)}
        self.text = self.text[:start] + new + self.text[end:]
        self._changed({"text": self.text} if self.manners.whole_texts else change)

    def undo(self) -> None:
        self.text = self.undo_stack.pop()
        self._changed({"text": self.text})

    def save(self) -> None:
        self.tell_changes()
        self.notify("textDocument/didSave", {"textDocument": {"uri": self.uri}})

    def _changed(self, change: dict[str, Any]) -> None:
        self.version += 1
        document = {"uri": self.uri, "version": self.version}
        self.held.append({"textDocument": document, "contentChanges": [change]})
        if not self.manners.holds_changes:
            self.tell_changes()

    def tell_changes(self) -> None:
        for params in self.held:
            self.notify("textDocument/didChange", params)
        self.held.clear()

    def range(self, start: int, end: int) -> dict[str, Any]:
        index = LineIndex(self.text)
        places = (index.position(at, self.encoding) for at in (start, end))
        first, last = ({"line": line, "character": character} for line, character in places)
        return {"start": first, "end": last}

    def offsets(self, given: dict[str, Any]) -> tuple[int, int]:
        index = LineIndex(self.text)
        places = (given["start"], given["end"])
        start, end = (index.offset(at["line"], at["character"], self.encoding) for at in places)
        return start, end

    def range_of(self, words: str) -> dict[str, Any]:
        start = self.text.index(words)
        return self.range(start, start + len(words))

    # What the user does

    async def of_document(self, method: str, **params: Any) -> Any:
        """A request about the document, sent again while the server says that the text has moved on."""
        self.tell_changes()
        while True:
            answer = await self.response(self.request(method, {"textDocument": {"uri": self.uri}, **params}))
            if answer.get("error", {}).get("code") == -32801:
                await asyncio.sleep(0.02)
                continue
            assert "error" not in answer, answer
            return answer["result"]

    async def actions(self, words: str) -> dict[str, dict[str, Any]]:
        """The menu at these words, by title, without what the editor would not show or could not run."""
        context: dict[str, Any] = {"diagnostics": []}
        found = await self.of_document("textDocument/codeAction", range=self.range_of(words), context=context)
        return {item["title"]: item for item in found or () if "disabled" not in item}

    async def choose(self, action: dict[str, Any]) -> Any:
        """What the editor does with the chosen entry of the menu: an action, or a bare command."""
        if isinstance(action.get("command"), str):
            return await self.run(action)
        if self.manners.resolves:
            action = await self.ask("codeAction/resolve", action)
        if action.get("edit"):
            self._apply(action["edit"])
        return await self.run(action["command"]) if action.get("command") else None

    async def run(self, command: dict[str, Any]) -> Any:
        self.tell_changes()
        params = {"command": command["command"], "arguments": command.get("arguments", [])}
        return await self.ask("workspace/executeCommand", params)

    async def hover(self, words: str) -> str:
        found = await self.of_document("textDocument/hover", position=self.range_of(words)["start"])
        return found["contents"]["value"] if found else ""

    async def hints(self) -> dict[int, str]:
        whole = self.range(0, len(self.text))
        found = await self.of_document("textDocument/inlayHint", range=whole)
        return {hint["position"]["line"]: hint["label"] for hint in found or ()}

    async def lenses(self) -> list[str]:
        return [lens["command"]["title"] for lens in await self.of_document("textDocument/codeLens") or ()]

    async def until_hover(self, words: str, part: str) -> str:
        deadline = time.monotonic() + PATIENCE_S
        while part not in (said := await self.hover(words)):
            assert time.monotonic() < deadline, f"the hover still says {said!r}"
            await asyncio.sleep(0.05)
        return said

    async def until_offered(self, words: str) -> dict[str, dict[str, Any]]:
        """The entries that apply a candidate, once the fill at these words has ended."""
        deadline = time.monotonic() + PATIENCE_S
        while not (on_offer := await self.ask("dice/candidates", {"uri": self.uri})) or on_offer[0]["running"]:
            assert time.monotonic() < deadline, f"the fill has not ended: {on_offer}"
            await asyncio.sleep(0.05)
        found = await self.actions(words)
        return {title: action for title, action in found.items() if title.startswith("DICE: apply ")}
