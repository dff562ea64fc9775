"""An editor that fills kernels and takes what it is offered, to see what of that is kept."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from dice_lsp.dataset.cuke import CukeRecord, read_records
from dice_lsp.source.positions import LineIndex
from tests.stdio.raw import SERVER, RawClient

HEAD = "\n    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < n) y[i] = "
A, B = f"{HEAD}2.0f * x[i];\n", f"{HEAD}x[i] + x[i];\n"
PLAIN = "\n    if (blockIdx.x == 0)\n        for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = 2.0f * x[i];\n"
DIRECTIVE = "//dice: n = 1000 | 33; in x[n]; out y[n]; launch <<<cdiv(n, 256), 256>>>\n"
EDITS = {"workspace": {"applyEdit": True, "workspaceEdit": {"documentChanges": True}},
         "textDocument": {"inlineCompletion": {}}, "experimental": {"dice": True}}  # fmt: skip


def text_of(name: str, body: str = PLAIN, top: str = "", directive: str = DIRECTIVE) -> str:
    return (
        f"{top}{directive}__global__ void {name}(int n, const float* x, float* y) {{{body}}}\n\n"
        f"void {name}_cpu(int n, const float* x, float* y) {{\n    for (int i = 0; i < n; i++) y[i] = 2.0f * x[i];\n}}\n"
    )


class Session:
    """An editor that makes every edit that it is asked for."""

    def __init__(self, client: RawClient, folder: Path) -> None:
        self.client, self.folder = client, folder
        self.texts: dict[str, str] = {}
        self.versions: dict[str, int] = {}
        client.answer = self._answer

    @property
    def records(self) -> tuple[CukeRecord, ...]:
        path = self.folder / "data" / "dice-lsp" / "dataset" / "cuke.jsonl"
        return read_records(path) if path.exists() else ()

    @property
    def told(self) -> list[str]:
        return [n["params"]["message"] for n in self.client.notifications if n["method"] == "window/logMessage"]

    def open(self, name: str, whole: str | None = None, **text: str) -> str:
        path = self.folder / "src" / f"{name}.cu"
        path.write_text(text_of(name, **text) if whole is None else whole)
        uri = path.as_uri()
        self.texts[uri], self.versions[uri] = path.read_text(), 1
        self.client.open(uri, self.texts[uri])
        return uri

    def change(self, uri: str, text: str) -> None:
        self.texts[uri], self.versions[uri] = text, self.versions[uri] + 1
        document = {"uri": uri, "version": self.versions[uri]}
        self.client.notify("textDocument/didChange", {"textDocument": document, "contentChanges": [{"text": text}]})

    def replaced(self, uri: str, span: dict[str, Any], new: str) -> str:
        text, index = self.texts[uri], LineIndex(self.texts[uri])
        start, end = (index.line_start(at["line"]) + at["character"] for at in (span["start"], span["end"]))
        return text[:start] + new + text[end:]

    def _answer(self, request: dict[str, Any]) -> Any:
        if request["method"] != "workspace/applyEdit":
            return None
        (change,) = request["params"]["edit"]["documentChanges"]
        (edit,) = change["edits"]
        uri = change["textDocument"]["uri"]
        asyncio.get_running_loop().call_soon(self.change, uri, self.replaced(uri, edit["range"], edit["newText"]))
        return {"applied": True}

    async def command(self, name: str, **argument: Any) -> Any:
        return await self.client.ask("workspace/executeCommand", {"command": name, "arguments": [argument]})

    async def fill(self, uri: str, kernel: str) -> int:
        return int((await self.command("dice.fill", uri=uri, kernel=kernel))["fill"])

    async def take(self, name: str, label: str = "A", **text: str) -> str:
        uri = self.open(name, **text)
        number = await self.fill(uri, name)
        assert (await self.command("dice.apply", fill=number, candidate=label))["applied"]
        return uri

    def checks(self, kernel: str) -> int:
        path = self.folder / "log"
        return path.read_text().splitlines().count(f"check {kernel}") if path.exists() else 0


@asynccontextmanager
async def session(folder: Path, *, card: bool = False, **options: Any) -> AsyncIterator[Session]:
    """A session with `tests.stdio.dataset_server`; with `card` with the real one, which has the real model and judge."""
    (folder / "src").mkdir()
    (folder / "bodies.json").write_text(json.dumps([A, B]))
    argv: Sequence[str] = SERVER if card else [sys.executable, "-m", "tests.stdio.dataset_server", str(folder)]
    client = await RawClient.start(list(argv), {"XDG_DATA_HOME": str(folder / "data")})
    try:
        there = Session(client, folder)
        folders = [{"uri": (folder / "src").as_uri(), "name": "src"}]
        given = {"sanitize": False, "checkOnOpen": False, **options}
        await client.initialize(EDITS, workspaceFolders=folders, initializationOptions=given)
        yield there
    finally:
        await client.close()
