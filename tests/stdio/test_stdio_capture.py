"""The command that records what the user's program launches: nothing runs without the user's word for the very line."""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.stdio.raw import NO_MODEL, ROOT, RawClient

SCALE = """//dice: n = 1000; run "./bench --small"
__global__ void scale(float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2 * y[i];
}
__global__ void other(float* y) { y[0] = 1; }
"""
Starter = Callable[..., Awaitable[tuple[RawClient, str]]]


@pytest.fixture
async def started(tmp_path: Path) -> AsyncIterator[Starter]:
    clients = []

    async def start(text: str = SCALE, answer: str | None = None, real: bool = False) -> tuple[RawClient, str]:
        script = [sys.executable, str(ROOT / "tests/stdio/capture_server.py"), str(tmp_path / "log")]
        client = await RawClient.start(None if real else script, env={"PYTHONPATH": str(ROOT)})
        clients.append(client)
        client.answer = lambda request: {"title": answer} if request["method"] == "window/showMessageRequest" else None
        options = {"checkOnOpen": False, "checkOnSave": False, **NO_MODEL}
        await client.initialize(
            {"experimental": {"dice": True}, "window": {"workDoneProgress": True}}, initializationOptions=options
        )
        file = tmp_path / "scale.cu"
        file.write_text(text)
        client.open(file.as_uri(), text)
        return client, file.as_uri()

    yield start
    for client in clients:
        await client.close()


def ran(tmp_path: Path) -> list[str]:
    log = tmp_path / "log"
    return log.read_text().splitlines() if log.exists() else []


def command(client: RawClient, name: str, **given: Any) -> int:
    return client.request("workspace/executeCommand", {"command": name, "arguments": [given]})


async def test_the_line_of_a_file_is_shown_before_it_runs(started: Starter, tmp_path: Path) -> None:
    client, uri = await started(answer="Run")
    assert await client.ask(
        "workspace/executeCommand", {"command": "dice.captureLine", "arguments": [{"uri": uri}]}
    ) == {"run": "./bench --small"}
    result = (await client.response(command(client, "dice.capture", uri=uri)))["result"]
    assert result["kernels"] == {"scale": 3} and result["reason"] is None and result["nbytes"] == 3 << 20
    (question,) = [item for item in client.requests if item["method"] == "window/showMessageRequest"]
    assert "`./bench --small`" in question["params"]["message"]
    assert ran(tmp_path) == ["./bench --small None"]
    (said,) = client.messages()
    assert said == "DICE: recorded launches: 3 of scale, 3 MiB; one launch was too large"
    assert await client.stop() == 0


async def test_without_a_word_nothing_runs(started: Starter, tmp_path: Path) -> None:
    for answer in ("Cancel", None):
        client, uri = await started(answer=answer)
        result = (await client.response(command(client, "dice.capture", uri=uri)))["result"]
        assert result["reason"] == "the command was not confirmed" and not result["kernels"]
    assert ran(tmp_path) == [] and client.messages() == []


async def test_a_line_that_the_user_has_typed_is_taken_as_it_is(started: Starter, tmp_path: Path) -> None:
    client, uri = await started()
    given = {"uri": uri, "kernel": "scale", "run": "./other 5"}
    result = (await client.response(command(client, "dice.capture", **given)))["result"]
    assert result["path"] == "/x/run.capture"
    assert ran(tmp_path) == ["./other 5 ('scale',)"]
    assert not [item for item in client.requests if item["method"] == "window/showMessageRequest"]


async def test_it_is_stopped_by_the_cancel_command_and_by_the_progress(started: Starter, tmp_path: Path) -> None:
    client, uri = await started()
    for number, stop in enumerate(("dice.cancel", "progress"), start=1):
        asked = command(client, "dice.capture", uri=uri, run="wait")
        await client.until(lambda number=number: ran(tmp_path).count("wait None") == number)
        begun = await client.until(
            lambda number=number: [
                item["params"]["token"]
                for item in client.notifications
                if item["method"] == "$/progress" and item["params"]["value"].get("title", "").startswith("DICE: rec")
            ][number - 1 :]
        )
        if stop == "dice.cancel":
            await client.response(command(client, "dice.cancel", uri=uri))
        else:
            client.notify("window/workDoneProgress/cancel", {"token": begun[0]})
        assert (await client.response(asked))["result"]["reason"] == "cancelled"
        assert ran(tmp_path).count("stopped") == number
    assert await client.stop() == 0


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("fail", "Nothing recorded: no NVIDIA driver is here: launches are recorded on a machine with a GPU"),
        ("burst", "Nothing recorded: the recording failed: a bug; see the server's log"),
    ],
)
async def test_a_failure_is_one_sentence(started: Starter, line: str, words: str) -> None:
    client, uri = await started()
    result = (await client.response(command(client, "dice.capture", uri=uri, run=line)))["result"]
    assert client.messages() == [words] and result["reason"] == words.removeprefix("Nothing recorded: ")


async def test_where_there_is_no_command_the_next_step_is_said(started: Starter) -> None:
    client, uri = await started("__global__ void k(float* y) { y[0] = 1; }\n", real=True)
    result = (await client.response(command(client, "dice.capture", uri=uri)))["result"]
    assert "there is no command to run" in result["reason"] and "//dice: run" in client.messages()[0]
    answer = await client.response(command(client, "dice.capture", uri=uri, kernel="nothing", run="x"))
    assert answer["error"]["code"] == -32602
    # The real recorder, where a program is not there: whatever this machine has, one sentence says what is missing.
    result = (await client.response(command(client, "dice.capture", uri=uri, run="./not/there")))["result"]
    assert result["reason"] and "\n" not in result["reason"]
