"""compute-sanitizer in idle time over stdio: when it runs, what stops it, and what a finding does to what the user sees."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dice_lsp.records import Finding, Sanitized, to_wire
from tests.stdio.raw import RawClient

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
CLEAN = Sanitized(TOOLS)
TEXT = """//dice: n = 1000; in x[n]; out y[n]; launch <<<cdiv(n, 256), 256>>>
__global__ void late(int n, const float* x, float* y) {
    __shared__ float first;
    if (threadIdx.x == 0) first = x[0];
    y[threadIdx.x] = first;
}

//dice: n = 1000; in x[n]; out y[n]; launch <<<cdiv(n, 256), 256>>>
__global__ void plain(int n, const float* x, float* y) {
    y[threadIdx.x] = x[threadIdx.x];
}
"""
WRITE_LINE = 3
RACE = Sanitized(
    TOOLS[:2],
    (Finding("racecheck", "race", "written here and read at `y[..]`, no barrier between", WRITE_LINE, "n=33"),),
)
CAPABILITIES = {
    "textDocument": {"inlayHint": {}, "hover": {"contentFormat": ["markdown"]}},
    "experimental": {"dice": True},
}
WHOLE = {"start": {"line": 0, "character": 0}, "end": {"line": 1000, "character": 0}}


class Session:
    """One document, and what the engine was asked of it."""

    def __init__(self, client: RawClient, folder: Path) -> None:
        self.client, self.folder = client, folder
        path = folder / "src" / "late.cu"
        path.parent.mkdir()
        path.write_text(TEXT)
        self.uri, self.version = path.as_uri(), 1
        self.document = {"uri": self.uri}

    async def open(self, **options: Any) -> None:
        folders = [{"uri": (self.folder / "src").as_uri(), "name": "src"}]
        await self.client.initialize(CAPABILITIES, workspaceFolders=folders, initializationOptions=options)
        self.client.open(self.uri, TEXT)

    def change(self, text: str) -> None:
        self.version += 1
        document = {"uri": self.uri, "version": self.version}
        self.client.notify("textDocument/didChange", {"textDocument": document, "contentChanges": [{"text": text}]})

    def answers(self, kernel: str, sanitized: Sanitized | None) -> None:
        whole = self.folder / "new"
        whole.write_text(json.dumps(None if sanitized is None else to_wire(sanitized)))
        whole.rename(self.folder / f"{kernel}.json")

    def log(self) -> list[str]:
        path = self.folder / "log"
        return path.read_text().splitlines() if path.exists() else []

    def times(self, line: str) -> int:
        return self.log().count(line)

    async def hover(self, line: int = 1) -> str:
        position = {"line": line, "character": 18}
        found = await self.client.ask("textDocument/hover", {"textDocument": self.document, "position": position})
        return found["contents"]["value"] if found else ""

    async def hints(self) -> list[str]:
        found = await self.client.ask("textDocument/inlayHint", {"textDocument": self.document, "range": WHOLE})
        return ["".join(part["value"] for part in hint["label"]) if isinstance(hint["label"], list) else hint["label"]
                for hint in found]  # fmt: skip

    def diagnostics(self) -> list[dict[str, Any]]:
        told = [n["params"] for n in self.client.notifications if n["method"] == "textDocument/publishDiagnostics"]
        return told[-1]["diagnostics"] if told else []

    async def until_hover(self, words: str, line: int = 1) -> str:
        async with asyncio.timeout(60):
            while words not in (text := await self.hover(line)):
                await asyncio.sleep(0.05)
        return text


@pytest.fixture
async def session(tmp_path: Path) -> AsyncIterator[Session]:
    client = await RawClient.start([sys.executable, "-m", "tests.stdio.card_server", str(tmp_path)])
    yield Session(client, tmp_path)
    await client.close()


async def test_a_clean_kernel_is_looked_at_once_and_the_hover_says_by_what(session: Session) -> None:
    session.answers("late", CLEAN)
    session.answers("plain", CLEAN)
    await session.open()
    await session.until_hover("| memcheck, racecheck, initcheck, synccheck: no finding")
    await session.until_hover("no finding", line=8)
    assert session.diagnostics() == [] and all("verified" in hint for hint in await session.hints())
    # Checked again because the user asks: what is known of the same evidence is not asked again.
    for _ in range(2):
        await session.client.ask(
            "workspace/executeCommand", {"command": "dice.check", "arguments": [{"uri": session.uri}]}
        )
    assert "no finding" in await session.hover() and session.times("check late") == 3
    assert session.times("sanitize late") == session.times("sanitize plain") == 1


async def test_a_finding_makes_the_verdict_worse_and_marks_its_line(session: Session) -> None:
    session.answers("late", RACE)
    session.answers("plain", CLEAN)
    await session.open()
    hover = await session.until_hover("written here and read")
    assert "| verdict" in hover and "race: line 4: written here" in hover and "racecheck, line 4" in hover
    (diagnostic,) = await session.client.until(session.diagnostics)
    assert (diagnostic["source"], diagnostic["code"], diagnostic["severity"]) == ("dice", "race", 1)
    assert diagnostic["range"] == {
        "start": {"line": WRITE_LINE, "character": 4},
        "end": {"line": WRITE_LINE, "character": len("    if (threadIdx.x == 0) first = x[0];")},
    }
    assert "says compute-sanitizer racecheck" in diagnostic["message"] and "(n=33)" in diagnostic["message"]
    first, second = await session.hints()
    assert first.strip().startswith("race: line 4") and "verified" in second
    told = await session.client.ask("dice/history", {"uri": session.uri, "kernel": "late"})
    assert told["baseline"] is None, "what is wrong is nothing to hold others against"
    assert [m["verdict"] for m in told["measurements"]] == ["verified", "unsafe"]


async def test_the_mark_goes_with_its_line_and_with_its_text(session: Session) -> None:
    session.answers("late", RACE)
    session.answers("plain", CLEAN)
    await session.open()
    await session.client.until(session.diagnostics)
    session.change("\n\n" + TEXT)
    await session.client.until(lambda: [d["range"]["start"]["line"] for d in session.diagnostics()] == [WRITE_LINE + 2])
    session.change(TEXT.replace("first = x[0]", "first = x[1]"))
    await session.client.until(lambda: session.diagnostics() == [])
    # Back again and checked: the same evidence, so the finding stands there without being looked for.
    session.change("\n" + TEXT)
    asked = {"command": "dice.check", "arguments": [{"uri": session.uri}]}
    answer = await session.client.ask("workspace/executeCommand", asked)
    reports = {report["name"]: report for report in answer["kernels"]}
    await session.client.until(lambda: [d["range"]["start"]["line"] for d in session.diagnostics()] == [WRITE_LINE + 1])
    assert session.times("sanitize late") == 1
    assert reports["late"]["verdict"]["kind"] == "unsafe" and reports["plain"]["verdict"]["kind"] == "verified"
    assert reports["late"]["sanitized"]["findings"][0]["line"] == WRITE_LINE + 1


async def test_an_edit_stops_it_and_it_begins_again_when_all_is_quiet(session: Session) -> None:
    await session.open()
    await session.client.until(lambda: session.log()[-1:] == ["sanitize late"])
    session.change(TEXT.replace("y[threadIdx.x] = x[threadIdx.x];", "y[threadIdx.x] = 2 * x[threadIdx.x];"))
    await session.client.until(lambda: "stopped late" in session.log())
    await session.client.until(lambda: session.log()[-1] == "sanitize late" and session.times("sanitize late") == 2)
    session.answers("late", RACE)
    await session.client.until(session.diagnostics)
    assert session.times("sanitize plain") == 0, "the kernel that was edited has to be checked first"


async def test_a_check_stops_it(session: Session) -> None:
    await session.open()
    await session.client.until(lambda: "sanitize late" in session.log())
    asked = {"command": "dice.check", "arguments": [{"uri": session.uri, "kernel": "plain"}]}
    await session.client.ask("workspace/executeCommand", asked)
    await session.client.until(lambda: session.log().count("sanitize late") == 2)
    log = session.log()
    assert log.index("stopped late") < len(log) - 1 - log[::-1].index("sanitize late")


async def test_an_answer_that_was_cut_short_is_asked_for_again(session: Session) -> None:
    session.answers("late", None)
    session.answers("plain", CLEAN)
    await session.open()
    await session.client.until(lambda: session.times("sanitize late") >= 2)
    session.answers("late", CLEAN)
    await session.until_hover("no finding")


async def test_what_keeps_it_from_running_is_said_in_the_hover(session: Session) -> None:
    reason = "compute-sanitizer is not installed: pip install 'dice-lsp[sanitizer]'"
    session.answers("late", Sanitized((), (), reason))
    session.answers("plain", CLEAN)
    await session.open()
    text = await session.until_hover("not installed")
    assert f"| {reason}" in text and session.diagnostics() == []


async def test_it_can_be_switched_off(session: Session) -> None:
    session.answers("plain", CLEAN)
    await session.open(sanitize=False)
    await session.client.until(lambda: "check plain" in session.log())
    session.change(TEXT + "\n")
    await session.client.ask("workspace/executeCommand", {"command": "dice.check", "arguments": [{"uri": session.uri}]})
    await asyncio.sleep(2.0)  # twice what it waits for before it begins
    assert not any(line.startswith("sanitize") for line in session.log())
