"""A client that speaks LSP frames itself: for messages that no honest client sends, and to count every response."""

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SERVER = [sys.executable, "-m", "dice_lsp", "serve"]
PATIENCE_S = 120.0
"""How long anything is waited for. It only bounds a failure: a machine may be busy with other tests."""
NO_MODEL = {"model": "/nowhere/none"}
"""Of a session that fills nothing: loading a model takes longer than most tests."""


class RawClient:
    """Sends what it is told and keeps everything that comes back. Requests of the server are answered with null."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.responses: dict[Any, list[dict[str, Any]]] = {}
        self.notifications: list[dict[str, Any]] = []
        self.requests: list[dict[str, Any]] = []
        self.answer: Callable[[dict[str, Any]], Any] = lambda request: None
        self.sent_at: dict[Any, float] = {}
        self.latency_s: dict[Any, float] = {}
        self._waiting: dict[Any, asyncio.Future[dict[str, Any]]] = {}
        self._next_id = 0
        self._reader = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, argv: list[str] | None = None, env: dict[str, str] | None = None) -> "RawClient":
        process = await asyncio.create_subprocess_exec(
            *(argv or SERVER),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, **(env or {})},
            limit=1 << 26,
        )
        return cls(process)

    def send_bytes(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)

    def send(self, message: dict[str, Any], header: str = "Content-Length") -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.send_bytes(f"{header}: {len(body)}\r\n\r\n".encode() + body)

    def notify(self, method: str, params: Any = None) -> None:
        self.send({"method": method, "params": params})

    def request(self, method: str, params: Any = None, header: str = "Content-Length") -> int:
        """Send a request and return its number; `response` waits for its answer."""
        self._next_id += 1
        number = self._next_id
        self._waiting[number] = asyncio.get_running_loop().create_future()
        self.sent_at[number] = time.monotonic()
        self.send({"id": number, "method": method, "params": params}, header)
        return number

    async def response(self, number: int, timeout_s: float = PATIENCE_S) -> dict[str, Any]:
        return await asyncio.wait_for(asyncio.shield(self._waiting[number]), timeout_s)

    async def ask(self, method: str, params: Any = None, timeout_s: float = PATIENCE_S) -> Any:
        """The result of a request; raises AssertionError for an error answer."""
        answer = await self.response(self.request(method, params), timeout_s)
        assert "error" not in answer, answer
        return answer["result"]

    async def initialize(self, capabilities: dict[str, Any] | None = None, **params: Any) -> dict[str, Any]:
        result = await self.ask(
            "initialize",
            {"processId": os.getpid(), "rootUri": None, "capabilities": capabilities or {}, **params},
        )
        self.notify("initialized", {})
        return result

    def open(self, uri: str, text: str, version: int = 1) -> None:
        document = {"uri": uri, "languageId": "cuda", "version": version, "text": text}
        self.notify("textDocument/didOpen", {"textDocument": document})

    async def until(self, condition: Callable[[], Any], timeout_s: float = PATIENCE_S) -> Any:
        deadline = time.monotonic() + timeout_s
        while not (value := condition()):
            assert time.monotonic() < deadline, f"still not so after {timeout_s} s"
            await asyncio.sleep(0.02)
        return value

    def messages(self) -> list[str]:
        return [item["params"]["message"] for item in self.notifications if item["method"] == "window/showMessage"]

    async def until_fills(self, count: int) -> None:
        """So many fills, those that have ended included, have told that the model writes."""
        await self.until(
            lambda: len({each["token"] for each in self._progress() if each["value"]["kind"] == "report"}) >= count
        )

    def _progress(self) -> list[dict[str, Any]]:
        return [item["params"] for item in self.notifications if item["method"] == "$/progress"]

    async def stop(self) -> int:
        """`shutdown`, `exit`, and the exit code."""
        await self.ask("shutdown")
        self.notify("exit")
        return await self.ended()

    async def ended(self) -> int:
        """The exit code of the server, which ends by itself."""
        return await asyncio.wait_for(self.process.wait(), PATIENCE_S)

    async def close(self) -> None:
        """End the server whatever state it is in."""
        if self.process.returncode is None:
            self.process.kill()
            await self.process.wait()
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)

    async def _read(self) -> None:
        stream = self.process.stdout
        assert stream is not None
        while True:
            length = 0
            while (line := await stream.readline()).strip():
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            if not line:
                return
            self._take(json.loads(await stream.readexactly(length)))

    def _take(self, message: dict[str, Any]) -> None:
        if "method" not in message:
            number = message["id"]
            self.responses.setdefault(number, []).append(message)
            if number in self.sent_at:
                self.latency_s.setdefault(number, time.monotonic() - self.sent_at[number])
            future = self._waiting.get(number)
            if future is not None and not future.done():
                future.set_result(message)
        elif "id" in message:
            self.requests.append(message)
            self.send({"id": message["id"], "result": self.answer(message)})
        else:
            self.notifications.append(message)


def fill_of(client: RawClient, uri: str, candidates: int) -> int:
    """Ask for a fill of the kernel `saxpy`; the number of the request."""
    arguments = [{"uri": uri, "kernel": "saxpy", "candidates": candidates}]
    return client.request("workspace/executeCommand", {"command": "dice.fill", "arguments": arguments})
