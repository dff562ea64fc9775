"""Baselines on a card: what a save and a check say of a kernel that became slower, faster, or moved to another device."""

import asyncio
import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.support import record
from tests.stdio.raw import ROOT, RawClient

SAXPY = (ROOT / "tests/data/saxpy.cu").read_text()
HEAD = SAXPY.index("{", SAXPY.index("__global__")) + 1
KERNEL_LINE = SAXPY[: SAXPY.index("__global__")].count("\n")
# Each thread waits for 20000 cycles, which no cache or clock makes up for.
SLOW = SAXPY[:HEAD] + "\n    for (long long until = clock64() + 20000; clock64() < until;) {}\n" + SAXPY[HEAD:]
WHOLE = {"start": {"line": 0, "character": 0}, "end": {"line": 1000, "character": 0}}
CAPABILITIES = {
    "experimental": {"dice": True},
    "textDocument": {"inlayHint": {}, "hover": {"contentFormat": ["markdown"]}},
    "workspace": {"inlayHint": {"refreshSupport": True}},
}


def check(folder: Path, *options: object) -> tuple[int, Any]:
    argv = [sys.executable, "-m", "dice_lsp", "check", "saxpy.cu", *map(str, options)]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, json.loads(done.stdout) if "--json" in options else done.stdout


def test_check_times_a_kernel_beside_its_baseline(tmp_path: Path) -> None:
    source, baseline = tmp_path / "saxpy.cu", tmp_path / "baseline.json"
    source.write_text(SAXPY)
    assert check(tmp_path, "--save-baseline", baseline)[0] == 0
    code, found = check(tmp_path, "--baseline", baseline, "--json")
    (kernel,) = found["kernels"]
    assert code == 0 and kernel["comparison"]["kind"] == "same", kernel["comparison"]
    source.write_text(SLOW)
    code, found = check(tmp_path, "--baseline", baseline, "--json")
    (kernel,) = found["kernels"]
    assert code == 1 and kernel["comparison"]["kind"] == "slower" and "slower" in kernel["regression"], kernel
    record("baselines", "check --baseline, a wait of 20000 cycles added", kernel["regression"])
    # The same file as if it had been made elsewhere.
    other = baseline.read_text().replace(kernel["evidence"]["device"], "NVIDIA Another")
    assert "NVIDIA Another" in other
    baseline.write_text(other)
    code, found = check(tmp_path, "--baseline", baseline, "--json")
    (kernel,) = found["kernels"]
    assert code == 0 and kernel["comparison"]["kind"] == "not_compared", kernel
    assert "NVIDIA Another" in kernel["comparison"]["reason"]
    record("baselines", "the same with a baseline of another device", kernel["comparison"]["reason"])


class Session(RawClient):
    """An editor with one file open."""

    uri = ""
    version = 1

    def write(self, path: Path, text: str) -> None:
        """Change the text as a whole and save it."""
        path.write_text(text)
        self.version += 1
        document = {"uri": self.uri, "version": self.version}
        self.notify("textDocument/didChange", {"textDocument": document, "contentChanges": [{"text": text}]})
        self.notify("textDocument/didSave", {"textDocument": {"uri": self.uri}})

    async def until_hint(self, said: Callable[[str], bool]) -> str:
        deadline = time.monotonic() + 60
        label = ""
        while time.monotonic() < deadline:
            asked = self.request("textDocument/inlayHint", {"textDocument": {"uri": self.uri}, "range": WHOLE})
            hints = (await self.response(asked)).get("result") or []
            label = next((hint["label"] for hint in hints if hint["position"]["line"] == KERNEL_LINE), "")
            if said(label):
                return label
            await asyncio.sleep(0.1)
        raise AssertionError(f"the hint stays {label!r}")

    async def hover(self) -> str:
        column = SAXPY.splitlines()[KERNEL_LINE].index("saxpy")
        position = {"line": KERNEL_LINE, "character": column}
        answer = await self.ask("textDocument/hover", {"textDocument": {"uri": self.uri}, "position": position})
        return str(answer["contents"]["value"])

    def diagnostics(self) -> list[tuple[str, str]]:
        sent = [n for n in self.notifications if n["method"] == "textDocument/publishDiagnostics"]
        return [(item["code"], item["message"]) for item in sent[-1]["params"]["diagnostics"]] if sent else []


@pytest.fixture
async def session(tmp_path: Path) -> AsyncIterator[Session]:
    path = tmp_path / "saxpy.cu"
    path.write_text(SAXPY)
    client = await Session.start()
    assert isinstance(client, Session)
    folder = {"uri": tmp_path.as_uri(), "name": "work"}
    await client.initialize(CAPABILITIES, workspaceFolders=[folder])
    client.uri = path.as_uri()
    client.open(client.uri, SAXPY)
    yield client
    await client.close()


def timed(label: str) -> bool:
    return " us" in label and not label.startswith("stale")


async def test_a_save_says_what_became_of_a_kernel(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "saxpy.cu"
    first = await session.until_hint(timed)
    record("baselines", "the file was opened: the first version becomes the baseline", first)
    session.write(path, SLOW)
    slower = await session.until_hint(lambda label: "slower" in label)
    await session.until(lambda: [code for code, _ in session.diagnostics()] == ["regression"])
    record("baselines", "saved with a wait of 20000 cycles", f"{slower}; {session.diagnostics()[0][1]}")
    assert "timed again beside this version" in await session.hover()
    # What is slow now is accepted; what it was then is faster.
    kernel = {"uri": session.uri, "kernel": "saxpy"}
    answer = await session.ask("workspace/executeCommand", {"command": "dice.acceptBaseline", "arguments": [kernel]})
    assert answer["accepted"], answer
    await session.until(lambda: not session.diagnostics())
    session.write(path, SAXPY)
    await session.until_hint(timed)
    await session.ask("workspace/executeCommand", {"command": "dice.check", "arguments": [kernel]}, 60)
    faster = await session.until_hint(lambda label: "faster" in label)
    record("baselines", "accepted, put back and saved", faster)
    history = await session.ask("dice/history", kernel)
    assert len(history["measurements"]) >= 3 and history["baseline"]["origin"] == "accepted", history


async def test_a_baseline_of_another_device_is_not_compared(session: Session, tmp_path: Path) -> None:
    await session.until_hint(timed)
    kernel = {"uri": session.uri, "kernel": "saxpy"}
    deadline = time.monotonic() + 30
    while (await session.ask("dice/history", kernel))["baseline"] is None:
        assert time.monotonic() < deadline, "the first version does not become the baseline"
        await asyncio.sleep(0.1)
    await session.stop()
    with sqlite3.connect(tmp_path / ".dice/history.sqlite") as store:
        device = store.execute("select device from measurement").fetchone()[0]
        tables = [name for (name,) in store.execute("select name from sqlite_master where type = 'table'")]
        changed = 0
        for name in tables:
            for _, column, *_ in store.execute(f"pragma table_info({name})").fetchall():
                if name.startswith("baseline"):
                    changed += store.execute(
                        f"update {name} set {column} = replace({column}, ?, 'NVIDIA Another') where {column} like ?",
                        (device, f"%{device}%"),
                    ).rowcount
    assert changed, tables
    again = await Session.start()
    assert isinstance(again, Session)
    try:
        await again.initialize(CAPABILITIES, workspaceFolders=[{"uri": tmp_path.as_uri(), "name": "work"}])
        again.uri = session.uri
        again.open(again.uri, SAXPY)
        label = await again.until_hint(lambda label: "other device" in label)
        record("baselines", "opened with a baseline of another device", label)
        assert "NVIDIA Another" in await again.hover()
        assert not again.diagnostics()
    finally:
        await again.close()
