"""Whether the model and the judge are there is told as it is: while they start, after they died, and when they cannot start."""

import random
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.stdio.raw import PATIENCE_S, ROOT, RawClient, fill_of

SAXPY = (ROOT / "tests/data/saxpy.cu").read_text()
QUIET = {"checkOnOpen": False}
CAPABILITIES = {
    "window": {"workDoneProgress": True},
    "workspace": {"applyEdit": True},
    "textDocument": {"inlayHint": {}, "hover": {"contentFormat": ["markdown"]}},
    "experimental": {"dice": True},
}
STATES = {"off", "loading", "ready", "failed"}


@pytest.fixture
def uri(tmp_path: Path) -> str:
    path = tmp_path / "saxpy.cu"
    path.write_text(SAXPY)
    return path.as_uri()


def told(client: RawClient) -> list[dict[str, Any]]:
    return [item["params"] for item in client.notifications if item["method"] == "dice/status"]


async def until_status(client: RawClient, condition: Any, timeout_s: float = PATIENCE_S) -> dict[str, Any]:
    await client.until(lambda: told(client) and condition(told(client)[-1]), timeout_s)
    return told(client)[-1]


def child(client: RawClient, room: str) -> psutil.Process | None:
    for process in psutil.Process(client.process.pid).children():
        if f"dice_lsp.{room}" in process.cmdline():
            return process
    return None


def ready(status: dict[str, Any]) -> bool:
    return status["model"]["state"] == status["judge"]["state"] == "ready" and status["state"] == "idle"


async def test_the_status_is_what_the_children_are(client: RawClient, uri: str) -> None:
    await client.initialize(CAPABILITIES, initializationOptions=QUIET)
    last = await until_status(client, ready)
    assert await client.ask("dice/status") == last
    assert last["judge"]["device"] and last["judge"]["compiler"] and last["model"]["device"] and last["message"]
    first = told(client)[0]
    assert first["state"] == "starting" and first["model"]["name"] == "tiny" and first["message"]
    client.open(uri, SAXPY)
    client.notify("textDocument/didSave", {"textDocument": {"uri": uri}})
    await until_status(client, lambda status: status["state"] == "checking" and status["checks"] == 1)
    await until_status(client, lambda status: ready(status) and status["checks"] == 0)
    running = fill_of(client, uri, 1)
    await until_status(client, lambda status: status["state"] == "filling" and status["fills"] == 1)
    assert (await client.response(running))["result"]["candidates"]
    await until_status(client, lambda status: ready(status) and status["fills"] == 0)
    for status in told(client):
        assert {status["model"]["state"], status["judge"]["state"]} <= STATES
    assert all(one != other for one, other in zip(told(client), told(client)[1:], strict=False)), "no news is not told"
    assert await client.stop() == 0


@pytest.mark.parametrize("room", ["diffusion", "worker"])
async def test_a_child_that_was_killed_is_said_and_comes_back(client: RawClient, uri: str, room: str) -> None:
    await client.initialize(CAPABILITIES, initializationOptions=QUIET)
    await until_status(client, ready)
    client.open(uri, SAXPY)
    part = "model" if room == "diffusion" else "judge"
    victim = child(client, room)
    assert victim is not None
    victim.kill()
    status = await until_status(client, lambda status: status["state"] == "failed")
    assert status[part]["state"] == "failed" and "SIGKILL" in status[part]["reason"]
    assert "starts it again" in status[part]["reason"] and status["message"] == status[part]["reason"]
    assert (await client.response(fill_of(client, uri, 1)))["result"]["candidates"]
    await until_status(client, ready)
    assert await client.stop() == 0


async def test_the_status_does_not_stay_filling_when_the_model_dies(client: RawClient, uri: str) -> None:
    await client.initialize(CAPABILITIES, initializationOptions=QUIET)
    await until_status(client, ready)
    client.open(uri, SAXPY)
    running = fill_of(client, uri, 64)
    await until_status(client, lambda status: status["state"] == "filling")
    await client.until_fills(1)
    victim = child(client, "diffusion")
    assert victim is not None
    victim.kill()
    result = (await client.response(running))["result"]
    assert "SIGKILL" in result["reason"]
    status = await until_status(client, lambda status: status["state"] == "failed" and status["fills"] == 0)
    assert status["model"]["state"] == "failed" and "SIGKILL" in status["model"]["reason"]
    assert (await client.response(fill_of(client, uri, 1)))["result"]["candidates"]
    await until_status(client, ready)
    assert await client.stop() == 0


async def test_a_model_that_is_not_there_is_said_once_and_checks_go_on(
    client: RawClient, uri: str, tmp_path: Path
) -> None:
    missing = tmp_path / "no_such_model"
    await client.initialize(CAPABILITIES, initializationOptions={"model": str(missing)})
    client.open(uri, SAXPY)
    status = await until_status(
        client, lambda status: status["state"] == "failed" and status["judge"]["state"] == "ready"
    )
    assert str(missing) in status["model"]["reason"] and status["message"] == status["model"]["reason"]
    for _ in range(2):
        result = (await client.response(fill_of(client, uri, 1)))["result"]
        assert result["fill"] is None and result["reason"] == status["model"]["reason"]
    await until_status(client, lambda status: status["state"] == "failed" and not status["fills"])
    arguments = [{"uri": uri, "kernel": "saxpy"}]
    checked = await client.ask("workspace/executeCommand", {"command": "dice.check", "arguments": arguments})
    assert checked["kernels"][0]["verdict"]["kind"] == "verified"
    assert (await until_status(client, lambda status: not status["checks"]))["state"] == "failed"
    assert await client.stop() == 0


async def test_a_fill_that_is_cancelled_while_the_model_loads(client: RawClient, uri: str) -> None:
    await client.initialize(CAPABILITIES, initializationOptions=QUIET)
    client.open(uri, SAXPY)
    running = fill_of(client, uri, 8)
    await until_status(client, lambda status: status["fills"] == 1 and status["model"]["state"] == "loading")
    loading = await client.until(lambda: child(client, "diffusion"))
    client.notify("$/cancelRequest", {"id": running})
    answer = await client.response(running)
    assert answer["error"]["code"] == -32800
    status = await client.ask("dice/status")
    assert status["model"]["state"] == "loading" and status["fills"] == 0, "it was answered before the load had ended"
    # The load was not thrown away: the next fill has it.
    result = (await client.response(fill_of(client, uri, 1)))["result"]
    assert result["candidates"] and result["reason"] is None
    again = child(client, "diffusion")
    assert again is not None and again.pid == loading.pid
    assert await client.stop() == 0


async def test_a_burst_during_a_fill_is_answered_or_cancelled(client: RawClient, uri: str) -> None:
    """openlawlibrary/pygls#517: queued requests ran although their cancels were there already."""
    random.seed(3)
    await client.initialize(CAPABILITIES, initializationOptions=QUIET)
    await until_status(client, ready)
    client.open(uri, SAXPY)
    server = psutil.Process(client.process.pid)
    running = fill_of(client, uri, 8)
    await until_status(client, lambda status: status["state"] == "filling")
    kernel = {"line": SAXPY[: SAXPY.index("__global__")].count("\n"), "character": 18}
    hovers = []
    for number in range(30):
        hovers.append(client.request("textDocument/hover", {"textDocument": {"uri": uri}, "position": kernel}))
        client.notify("$/cancelRequest", {"id": hovers[-1]})
        if number < 20:
            change = {"range": {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 0}}, "text": " "}
            document = {"uri": uri, "version": number + 2}
            client.notify("textDocument/didChange", {"textDocument": document, "contentChanges": [change]})
    client.notify("$/cancelRequest", {"id": running})
    marker = client.request("dice/candidates", {"uri": uri})
    assert (await client.response(running))["error"]["code"] == -32800
    await client.response(marker)
    for number in hovers:
        answer = await client.response(number)
        assert "result" in answer or answer["error"]["code"] == -32800
    # Nothing comes late or twice, the fill's children are idle or gone, and the next fill works.
    counted = {number: len(answers) for number, answers in client.responses.items()}
    await until_status(client, lambda status: status["fills"] == 0 and status["state"] == "idle")
    assert {number: len(client.responses[number]) for number in counted} == counted
    assert set(counted.values()) == {1}
    children = server.children(recursive=True)
    assert (await client.response(fill_of(client, uri, 1)))["result"]["candidates"]
    children += server.children(recursive=True)
    assert await client.stop() == 0
    _, alive = psutil.wait_procs(children, timeout=PATIENCE_S)
    assert not alive
