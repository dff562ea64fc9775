"""What must not go wrong when things go wrong: children that die, storms of edits, sessions that end in the middle."""

import asyncio
import random
import statistics
from typing import Any

import psutil
import pytest

from tests.stdio.raw import PATIENCE_S, ROOT, RawClient, fill_of

SAXPY = (ROOT / "tests/data/saxpy.cu").read_text()
CAPABILITIES = {
    "window": {"workDoneProgress": True},
    "workspace": {"applyEdit": True},
    "textDocument": {"inlayHint": {}, "codeLens": {}, "hover": {"contentFormat": ["markdown"]}},
}
WHOLE = {"start": {"line": 0, "character": 0}, "end": {"line": 1000, "character": 0}}
KERNEL = {"line": SAXPY[: SAXPY.index("__global__")].count("\n"), "character": 18}
STORM_EDITS = 200


@pytest.fixture
def uri(tmp_path: Any) -> str:
    path = tmp_path / "saxpy.cu"
    path.write_text(SAXPY)
    return path.as_uri()


async def fill(client: RawClient, uri: str, candidates: int = 1) -> Any:
    return (await client.response(fill_of(client, uri, candidates)))["result"]


def child(client: RawClient, room: str) -> psutil.Process | None:
    """The long-lived child of the server that runs this room's main loop."""
    for process in psutil.Process(client.process.pid).children():
        if f"dice_lsp.{room}" in process.cmdline():
            return process
    return None


def progress(client: RawClient) -> list[dict[str, Any]]:
    return [item["params"]["value"] for item in client.notifications if item["method"] == "$/progress"]


async def kill_workers(client: RawClient, running: int) -> psutil.Process:
    """Kill every worker that starts until the fill has ended, so that none of its candidates can be judged."""
    victim = None
    while running not in client.responses:
        if (found := child(client, "worker")) is not None:
            victim = found
            victim.kill()
        await asyncio.sleep(0.1)
    assert victim is not None
    return victim


@pytest.mark.parametrize("room", ["diffusion", "worker"])
async def test_a_child_that_is_killed_in_a_fill_is_said_and_replaced(client: RawClient, uri: str, room: str) -> None:
    await client.initialize(CAPABILITIES)
    client.open(uri, SAXPY)
    assert (await fill(client, uri))["candidates"], "the fill before works"
    running = fill_of(client, uri, 64)
    if room == "diffusion":
        victim = await client.until(lambda: child(client, room))
        await client.until_fills(2)
        victim.kill()
        result = (await client.response(running))["result"]
        assert "SIGKILL" in result["reason"] and "dice-lsp doctor" in result["reason"]
        assert [text for text in client.messages() if "SIGKILL" in text] == [result["reason"]]
    else:
        victim = await kill_workers(client, running)
        result = (await client.response(running))["result"]
        reasons = [item["build"].get("reason", "") for item in result["candidates"]]
        assert reasons and all("SIGKILL" in reason for reason in reasons), reasons
    again = await fill(client, uri)
    assert again["candidates"] and again["reason"] is None
    assert all(item["build"]["kind"] == "compiled" for item in again["candidates"])
    assert child(client, room) is not None and child(client, room).pid != victim.pid
    kinds = [item["kind"] for item in progress(client)]
    assert kinds.count("begin") == kinds.count("end") == 3
    assert await client.stop() == 0


async def test_a_storm_of_edits_and_cancels_during_a_fill(client: RawClient, uri: str, capsys: Any) -> None:
    random.seed(7)
    await client.initialize(CAPABILITIES)
    client.open(uri, SAXPY)
    assert (await fill(client, uri))["candidates"]
    server = psutil.Process(client.process.pid)
    children = server.children(recursive=True)
    running = fill_of(client, uri, 64)
    await client.until_fills(2)
    asked: list[int] = []
    text_document = {"uri": uri}
    for edit in range(STORM_EDITS):
        change = {
            "range": {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 0}},
            "text": f"// {edit}\n",
        }
        client.notify(
            "textDocument/didChange",
            {"textDocument": {"uri": uri, "version": edit + 2}, "contentChanges": [change]},
        )
        place = {"line": KERNEL["line"] + edit + 1, "character": KERNEL["character"]}
        asked.append(client.request("textDocument/hover", {"textDocument": text_document, "position": place}))
        asked.append(client.request("textDocument/inlayHint", {"textDocument": text_document, "range": WHOLE}))
        asked.append(
            client.request(
                "textDocument/codeAction",
                {
                    "textDocument": text_document,
                    "range": {"start": place, "end": place},
                    "context": {"diagnostics": []},
                },
            )
        )
        if edit % 2:
            client.notify("$/cancelRequest", {"id": random.choice(asked[-6:])})
        if edit % 50 == 10:
            asked.append(fill_of(client, uri, 8))
            client.notify("$/cancelRequest", {"id": asked[-1]})
        await asyncio.sleep(random.choice([0, 0, 0.005, 0.02]))
    client.notify("$/cancelRequest", {"id": running})
    await client.response(running)
    for number in asked:
        await client.response(number)
    assert set(client.responses) >= {*asked, running}
    assert all(len(answers) == 1 for answers in client.responses.values()), "a request got two answers"
    codes = {answer[0]["error"]["code"] for answer in client.responses.values() if "error" in answer[0]}
    assert codes <= {-32800, -32801}, codes
    latencies = sorted(client.latency_s[number] for number in asked)
    # The text is what the edits made of it, and the fill after the storm works.
    result = await fill(client, uri)
    assert result["candidates"] and result["reason"] is None
    children += server.children(recursive=True)
    assert await client.stop() == 0
    _, alive = psutil.wait_procs(children, timeout=PATIENCE_S)
    assert not alive, "a child outlived the session"
    with capsys.disabled():
        print(
            f"\nstorm: {len(asked)} requests, median {1000 * statistics.median(latencies):.1f} ms, "
            f"worst {1000 * latencies[-1]:.1f} ms"
        )


async def test_a_session_that_ends_in_a_fill_leaves_no_child(client: RawClient, uri: str) -> None:
    await client.initialize(CAPABILITIES)
    client.open(uri, SAXPY)
    running = fill_of(client, uri, 64)
    await client.until(lambda: child(client, "diffusion") and child(client, "worker"))
    children = psutil.Process(client.process.pid).children(recursive=True)
    assert await client.stop() == 0
    # It is answered before the end: with what there was, or as a request that was cancelled.
    answer = await client.response(running)
    assert answer.get("error", {}).get("code") == -32800 or answer["result"]["reason"] == "cancelled"
    _, alive = psutil.wait_procs(children, timeout=PATIENCE_S)
    assert not alive


async def test_closing_the_document_ends_its_fill(client: RawClient, uri: str) -> None:
    await client.initialize(CAPABILITIES)
    client.open(uri, SAXPY)
    running = fill_of(client, uri, 64)
    await client.until_fills(1)
    client.notify("textDocument/didClose", {"textDocument": {"uri": uri}})
    assert (await client.response(running))["result"]["reason"] == "cancelled"
    client.open(uri, SAXPY)
    assert await client.ask("dice/candidates", {"uri": uri}) == []
    assert await client.stop() == 0


@pytest.mark.parametrize("kernel", [None, "saxpy"])
async def test_a_cancel_in_the_same_breath_as_the_fill_is_not_lost(
    client: RawClient, uri: str, kernel: str | None
) -> None:
    """The text is still being read when the cancel comes: the fill has not begun, and must not begin after it."""
    await client.initialize(CAPABILITIES)
    client.open(uri, SAXPY)
    running = fill_of(client, uri, 1)
    given = {"uri": uri} if kernel is None else {"uri": uri, "kernel": kernel}
    stopped = client.request("workspace/executeCommand", {"command": "dice.cancel", "arguments": [given]})
    assert (await client.response(stopped))["result"] == {"cancelled": 1}
    result = (await client.response(running))["result"]
    assert result["reason"] == "cancelled" and result["candidates"] == []
    assert (await fill(client, uri))["candidates"], "the next one is not cancelled"
