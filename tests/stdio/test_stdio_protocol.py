"""The protocol's promises: every request one answer, exit codes, and no end but the right one."""

import asyncio
import os
import signal
import sys

import psutil
import pytest

from tests.stdio.raw import NO_MODEL, PATIENCE_S, RawClient

URI = "file:///nowhere/saxpy.cu"
SAXPY = """__global__ void saxpy(int n, float a, const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
"""
QUIET = {"checkOnOpen": False, "checkOnSave": False, **NO_MODEL}


async def code_of(client: RawClient, method: str, params: object) -> int:
    answer = await client.response(client.request(method, params))
    return answer["error"]["code"]


async def test_what_cannot_be_read_is_answered_too(client: RawClient) -> None:
    await client.initialize(initializationOptions=QUIET)
    assert await code_of(client, "textDocument/hover", {"position": "nowhere"}) == -32602
    assert await code_of(client, "textDocument/inlayHint", 7) == -32602
    assert await code_of(client, "no/such/method", {}) == -32601
    assert await code_of(client, "workspace/executeCommand", {"command": "no.such"}) == -32602
    assert await code_of(client, "workspace/executeCommand", {"command": "dice.fill"}) == -32602
    assert await code_of(client, "workspace/executeCommand", {"command": "dice.fill", "arguments": [1]}) == -32602
    assert await code_of(client, "workspace/executeCommand", {"command": "dice.fill", "arguments": [{}, {}]}) == -32602
    assert await code_of(client, "dice/candidates", {"fill": "one"}) == -32602
    client.open(URI, SAXPY)
    many = {"command": "dice.fill", "arguments": [{"uri": URI, "kernel": "saxpy", "candidates": 65}]}
    assert await code_of(client, "workspace/executeCommand", many) == -32602
    client.send_bytes(b"Content-Length: 7\r\n\r\n{not js")
    await client.until(lambda: None in client.responses)
    assert client.responses[None][0]["error"]["code"] == -32700
    # An object that holds the key "jsonrpc" deep inside is an argument like any other.
    nested = {"command": "dice.cancel", "arguments": [{"uri": URI, "x": {"jsonrpc": "2.0"}}]}
    assert (await client.ask("workspace/executeCommand", nested)) == {"cancelled": 0}
    # Header names have no case.
    answer = await client.response(client.request("dice/candidates", {}, header="content-length"))
    assert answer["result"] == []
    assert await client.stop() == 0
    assert all(len(answers) == 1 for answers in client.responses.values())
    assert not client.messages()


async def test_a_notification_that_makes_no_sense_is_survived(client: RawClient) -> None:
    await client.initialize(initializationOptions=QUIET)
    client.notify("textDocument/didChange", {"textDocument": {"uri": "file:///never/opened.cu", "version": 3},
                                             "contentChanges": [{"text": "x"}]})  # fmt: skip
    client.notify("textDocument/didOpen", {"textDocument": 3})
    client.notify("$/cancelRequest", {"id": 99})
    client.notify("window/workDoneProgress/cancel", {"token": "unknown"})
    client.open(URI, SAXPY)
    assert await client.ask("textDocument/codeAction", action_params(2)) is not None
    assert await client.stop() == 0
    assert not client.messages()


def action_params(line: int) -> dict[str, object]:
    place = {"start": {"line": line, "character": 4}, "end": {"line": line, "character": 20}}
    return {"textDocument": {"uri": URI}, "range": place, "context": {"diagnostics": []}}


async def test_shutdown_comes_before_exit(client: RawClient) -> None:
    await client.initialize(initializationOptions=QUIET)
    await client.ask("shutdown")
    assert await code_of(client, "textDocument/hover", {}) == -32600
    client.notify("exit")
    assert await client.ended() == 0


async def test_exit_without_shutdown_is_an_error(client: RawClient) -> None:
    await client.initialize(initializationOptions=QUIET)
    client.notify("exit")
    assert await client.ended() == 1


@pytest.mark.parametrize("way", ["end of stdin", "SIGTERM"])
async def test_the_server_ends_with_its_client_and_leaves_no_child(client: RawClient, way: str) -> None:
    await client.initialize(initializationOptions=QUIET)
    server = psutil.Process(client.process.pid)
    await client.until(lambda: len(server.children(recursive=True)) >= 2)
    children = server.children(recursive=True)
    if way == "SIGTERM":
        os.kill(client.process.pid, signal.SIGTERM)
    else:
        client.process.stdin.close()
    await client.ended()
    _, alive = psutil.wait_procs(children, timeout=PATIENCE_S)
    assert not alive


async def test_the_server_ends_when_the_editors_process_ends() -> None:
    editor = await asyncio.create_subprocess_exec(sys.executable, "-c", "import time; time.sleep(60)")
    client = await RawClient.start()
    try:
        await client.initialize(initializationOptions=QUIET, processId=editor.pid)
        editor.kill()
        await editor.wait()
        await client.ended()
    finally:
        await client.close()


async def test_only_what_the_client_can_show_is_offered(client: RawClient) -> None:
    result = await client.initialize(initializationOptions=QUIET)
    offered = result["capabilities"]
    assert offered["hoverProvider"] and offered["codeActionProvider"]["resolveProvider"]
    assert "inlayHintProvider" not in offered and "codeLensProvider" not in offered
    assert offered["positionEncoding"] == "utf-16"
    assert "dice.fill" in offered["executeCommandProvider"]["commands"]
    assert await client.stop() == 0


async def test_bad_settings_are_named_once_and_the_rest_is_taken(client: RawClient) -> None:
    client.answer = lambda request: [{"candidates": 0, "colour": 1}] if "configuration" in request["method"] else None
    await client.initialize(
        {"workspace": {"configuration": True}}, initializationOptions={"candidates": 2, "colour": 1}
    )
    await client.until(lambda: len(client.messages()) >= 2)
    client.notify("workspace/didChangeConfiguration", {"settings": {}})
    await client.until(lambda: len(client.requests) >= 2)
    await client.ask("dice/candidates", {})
    assert len(client.messages()) == 2
    assert any("dice.colour" in message for message in client.messages())
    assert any("dice.candidates must be between 1 and 64, not 0; 2 is used" in message for message in client.messages())
    assert await client.stop() == 0
