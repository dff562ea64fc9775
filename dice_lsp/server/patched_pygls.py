"""pygls with the properties that this server promises, in one place so that each can go when pygls has it.

- Every request gets exactly one response: malformed parameters are answered with -32602, requests after `shutdown`
  with -32600, text that is no JSON with -32700. pygls 2.1 leaves all three without an answer.
- Cancelling `workspace/executeCommand` reaches the command's coroutine. pygls runs it as a separate task.
- Our own requests have numbers: Vim's channel cannot answer the UUIDs that pygls gives them.
- Lines end at `\\n`, `\\r\\n` and `\\r` only, as LSP says. `str.splitlines` also splits at form feeds and U+2028.
- Reading and writing have threads of their own, so neither a slow client nor a busy pool stops the loop.
- The exit code is 0 after `shutdown` and 1 without it, and no thread can keep the process alive.
"""

import asyncio
import inspect
import itertools
import json
import logging
import os
import queue
import re
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import Future
from typing import Any, BinaryIO, NoReturn

from lsprotocol import types
from pygls.exceptions import (
    JsonRpcContentModified,
    JsonRpcException,
    JsonRpcInvalidParams,
    JsonRpcInvalidRequest,
    JsonRpcMethodNotFound,
    JsonRpcParseError,
    JsonRpcRequestCancelled,
)
from pygls.lsp.server import LanguageServer
from pygls.protocol import LanguageServerProtocol, lsp_method
from pygls.protocol.language_server import _prepare_command_arguments
from pygls.workspace import TextDocument, Workspace

log = logging.getLogger(__name__)

_LINE_END = re.compile(r"\r\n|\n|\r")
_CONTENT_LENGTH = re.compile(rb"content-length\s*:\s*(\d+)", re.IGNORECASE)
MAX_MESSAGE_BYTES = 1 << 28
FIRST_OWN_ID = 1 << 30
"""pygls keeps our requests and the client's in one table, and clients count from zero."""
_EXPECTED = (JsonRpcContentModified, JsonRpcInvalidParams, JsonRpcMethodNotFound, JsonRpcRequestCancelled)


class _LineStarts:
    """Where the lines of a text begin. An edit moves all that follow: by how far is kept once, and not in each of them."""

    def __init__(self, text: str) -> None:
        self._starts = [0, *(match.end() for match in _LINE_END.finditer(text))]
        self._moved_from, self._moved_by = len(self._starts), 0

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, line: int) -> int:
        return self._starts[line] + (self._moved_by if line >= self._moved_from else 0)

    def replace(self, first: int, last: int, starts: list[int], moved: int) -> None:
        """Put `starts` in the place of those of the lines `first:last`, and move all that follow by `moved`."""
        # What an earlier edit has moved is settled as far as this one: typing goes on where it was.
        here, known = self._moved_from, self._starts
        if here < last:
            known[here:last] = [start + self._moved_by for start in known[here:last]]
        elif here > last:
            known[last:here] = [start - self._moved_by for start in known[last:here]]
        known[first:last] = starts
        self._moved_from, self._moved_by = first + len(starts), self._moved_by + moved


class LspTextDocument(TextDocument):
    """A document whose line starts are kept from change to change, so that an edit of a long file stays cheap."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._starts: _LineStarts | None = None

    @property
    def lines(self) -> tuple[str, ...]:
        text, starts = self.source, self._line_starts()
        return tuple(text[starts[line] : self._line_end(line)] for line in range(len(starts)))

    def _line_starts(self) -> _LineStarts:
        if self._starts is None:
            self._starts = _LineStarts(self.source)
        return self._starts

    def _line_end(self, line: int) -> int:
        """Where the next line begins, or the text ends."""
        starts = self._line_starts()
        return starts[line + 1] if line + 1 < len(starts) else len(self.source)

    def line_at(self, line: int) -> str:
        """One line with its line end; empty past the last one."""
        starts = self._line_starts()
        return self.source[starts[line] : self._line_end(line)] if 0 <= line < len(starts) else ""

    def offset_at(self, position: types.Position) -> int:
        """The code point at a client's position; past the end of a line is its end, past the last line the text's end."""
        starts, text = self._line_starts(), self.source
        if position.line >= len(starts):
            return len(text)
        start = starts[position.line]
        line = text[start : self._line_end(position.line)].rstrip("\r\n")
        if line.isascii() or self.position_codec.encoding == types.PositionEncodingKind.Utf32:
            return start + min(position.character, len(line))
        wide = self.position_codec.impl.code_units_for_char
        units = 0
        for column, character in enumerate(line):
            units += wide(character)
            if units > position.character:  # a position inside a character means the character's start
                return start + column
        return start + len(line)

    def apply_change(self, change: types.TextDocumentContentChangeEvent) -> None:
        if not isinstance(change, types.TextDocumentContentChangePartial):
            self._source, self._starts = change.text, None
            return
        text, starts = self.source, self._line_starts()
        start, end = sorted((self.offset_at(change.range.start), self.offset_at(change.range.end)))
        self._source = text[:start] + change.text + text[end:]
        # Whole lines are split again, and one more on either side, because an edit can join or part a "\r\n".
        first = max(0, min(change.range.start.line, len(starts) - 1) - 1)
        last = min(max(change.range.start.line, change.range.end.line) + 2, len(starts))
        moved = len(change.text) - (end - start)
        until = len(self._source) if last >= len(starts) else starts[last] + moved
        again = [starts[first]]
        again += [match.end() for match in _LINE_END.finditer(self._source, starts[first], until)]
        if last < len(starts):
            again.pop()
            if again[-1] > until:
                raise AssertionError("line starts out of order")
        starts.replace(first, last, again, moved)


class _Workspace(Workspace):
    def _create_text_document(
        self, doc_uri: str, source: str | None = None, version: int | None = None, language_id: str | None = None
    ) -> TextDocument:
        return LspTextDocument(
            doc_uri, source, version, language_id, sync_kind=self._sync_kind, position_codec=self._position_codec
        )


class Protocol(LanguageServerProtocol):
    """The protocol with one answer per request. `params_types` gives custom requests a type for their parameters."""

    exit_code = 1

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.request_types: dict[str, type[Any]] = {}
        self._own_ids = itertools.count(FIRST_OWN_ID)
        super().__init__(*args, **kwargs)

    def get_message_type(self, method: str) -> type[Any] | None:  # type: ignore[override]
        return self.request_types.get(method) or types.METHOD_TO_TYPES.get(method, (None,))[0]

    def send_request(
        self,
        method: str,
        params: Any | None = None,
        callback: Callable[[Any], None] | None = None,
        msg_id: str | int | None = None,
    ) -> Future[Any]:
        return super().send_request(method, params, callback, next(self._own_ids) if msg_id is None else msg_id)

    @lsp_method(types.INITIALIZE)
    def lsp_initialize(self, params: types.InitializeParams) -> Generator[Any, Any, types.InitializeResult]:
        inner = super().lsp_initialize(params)
        answer = None
        try:
            while True:
                step = inner.send(answer)
                self._own_workspace()
                answer = yield step
        except StopIteration as stop:
            self._own_workspace()
            result: types.InitializeResult = stop.value
            # Python files are read for the CUDA in their strings; an older server would take all of them for CUDA.
            result.capabilities.experimental = {"dicePython": True}
            return result

    def _own_workspace(self) -> None:
        given = self._workspace
        if given is not None and type(given) is Workspace:
            self._workspace = _Workspace(
                given.root_uri, given._sync_kind, list(given.folders.values()), given.position_encoding
            )

    @lsp_method(types.WORKSPACE_EXECUTE_COMMAND)
    async def lsp_workspace__execute_command(self, params: types.ExecuteCommandParams) -> Any:  # type: ignore[override]
        handler = self.fm.commands.get(params.command)
        if handler is None:
            raise JsonRpcInvalidParams(f"unknown command {params.command!r}")
        try:
            arguments, named = _prepare_command_arguments(handler, params, self._converter)
        except Exception as error:
            raise JsonRpcInvalidParams(f"arguments of {params.command}: {_innermost(error)}") from error
        result = handler(*arguments, **named)
        return await result if inspect.isawaitable(result) else result

    @lsp_method(types.SHUTDOWN)
    def lsp_shutdown(self, *args: Any) -> Generator[Any, Any, None]:
        if (handler := self.fm.features.get(types.SHUTDOWN)) is not None:
            yield handler, args, None
        self._shutdown = True

    async def end_requests(self) -> None:
        """Cancel what is not answered yet and wait until it is, so that `shutdown` is answered last."""
        # A copy, because a future that is cancelled takes itself out of the dict.
        waiting: list[Any] = list(self._request_futures.values())
        here = asyncio.current_task()
        tasks = [item for item in waiting if isinstance(item, asyncio.Task) and item is not here and not item.done()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=1.0)

    @lsp_method(types.EXIT)
    def lsp_exit(self, *args: Any) -> None:  # type: ignore[override]
        self.exit_code = 0 if self._shutdown else 1
        self._server.stop()  # type: ignore[attr-defined]

    def receive(self, body: bytes) -> None:
        """One message as it came. Called on the loop."""
        try:
            data = json.loads(body)
            if not isinstance(data, dict):
                raise ValueError(f"a message must be an object, not {type(data).__name__}")
        except ValueError as error:
            log.error("a message is not JSON: %s", error)
            self._send_data({"jsonrpc": self.VERSION, "id": None, "error": _error(JsonRpcParseError(str(error)))})
            return
        number, method = data.get("id"), data.get("method")
        is_request = method is not None and number is not None
        if is_request and self._shutdown:
            self._refuse(number, JsonRpcInvalidRequest("the server is shut down"))
            return
        try:
            message = self.structure_message(data)
            if message is data:
                raise JsonRpcInvalidRequest('a message must hold "jsonrpc": "2.0"')
        except Exception as error:
            if is_request:
                problem = error if type(error) is JsonRpcInvalidRequest else JsonRpcInvalidParams(_innermost(error))
                self._refuse(number, problem)
            log.error("%s is malformed: %s", method or "a message", _innermost(error))
            return
        self.handle_message(message)

    def _refuse(self, number: Any, error: JsonRpcException) -> None:
        self._send_data({"jsonrpc": self.VERSION, "id": number, "error": _error(error)})


def _error(error: JsonRpcException) -> dict[str, Any]:
    return {"code": error.code, "message": error.message}


def _innermost(error: BaseException) -> str:
    """The first leaf of cattrs' nested exception groups, with the path to it: what a client's author needs to read."""
    path = ""
    while True:
        if isinstance(error, BaseExceptionGroup):
            inner = error.exceptions[0]
        elif error.__cause__ is not None:
            inner = error.__cause__
        else:
            return f"{path}{type(error).__name__}: {error}"
        notes = getattr(inner, "__notes__", [])
        path += "".join(f"{note}: " for note in notes if isinstance(note, str))
        error = inner


class _Writer:
    """Writes on a thread of its own: a client that reads slowly must not stop the loop."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._waiting: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="stdout", daemon=True)
        self._thread.start()

    def write(self, data: bytes) -> None:
        self._waiting.put(data)

    def close(self) -> None:
        """Write what is waiting, for at most a second: the client may be gone."""
        self._waiting.put(None)
        self._thread.join(timeout=1.0)

    def _run(self) -> None:
        broken = False
        while (data := self._waiting.get()) is not None:
            if broken:
                continue
            try:
                self._stream.write(data)
                if self._waiting.empty():
                    self._stream.flush()
            except (OSError, ValueError) as error:
                log.info("the client no longer reads: %s", error)
                broken = True


def _read_messages(stream: BinaryIO) -> Generator[bytes, None, None]:
    """The bodies of the messages on a blocking stream. Header names are matched without case, as HTTP has them."""
    while True:
        length = None
        while line := stream.readline():
            if not line.strip():
                break
            if match := _CONTENT_LENGTH.match(line):
                length = int(match[1])
        else:
            return
        if length is None:
            continue
        if length > MAX_MESSAGE_BYTES:
            log.error("a message of %d bytes is over the limit of %d", length, MAX_MESSAGE_BYTES)
            return
        body = stream.read(length)
        if len(body) < length:
            return
        yield body


class Server(LanguageServer):
    """A language server over stdio that keeps its tasks, ends when asked, and never shows internal errors as toasts."""

    protocol: Protocol

    def __init__(self, name: str, version: str) -> None:
        super().__init__(name, version, protocol_cls=Protocol)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._stopped: asyncio.Event | None = None
        self.on_stop: Callable[[], Awaitable[None]] | None = None
        """Awaited once when the server ends for any reason, for at most two seconds."""

    def report_server_error(self, error: Exception, source: Any) -> None:
        """To the log, never as a toast. That a text has moved on or a client asks for the unknown is no error of ours."""
        expected = isinstance(error, _EXPECTED)
        data = getattr(error, "data", None)
        log.log(logging.INFO if expected else logging.ERROR, "%s: %s %s", source.__name__, error, data or "")

    def spawn(self, work: Any, name: str) -> asyncio.Task[Any]:
        """Run a coroutine beside the handlers. Its failure is logged, which a bare task's is not."""
        task: asyncio.Task[Any] = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s failed", task.get_name(), exc_info=error)

    def stop(self) -> None:
        """End the server. Called on the loop."""
        if self._stopped is not None:
            self._stopped.set()

    def serve_stdio(self) -> NoReturn:
        """Serve stdin and stdout until `exit`, the end of stdin or a signal; does not return.

        Whatever else prints goes to stderr, because a stray line on stdout breaks the protocol.
        """
        source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
        os.dup2(2, 1)
        sys.stdout = sys.stderr
        writer = _Writer(sink)
        self.protocol.set_writer(writer)
        try:
            asyncio.run(self._serve(source))
        except Exception:
            log.exception("the server failed")
            self.protocol.exit_code = 1
        writer.close()
        logging.shutdown()
        os._exit(self.protocol.exit_code)  # a thread that is stuck in a read must not hold the process

    async def _serve(self, source: BinaryIO) -> None:
        loop = asyncio.get_running_loop()
        self._stopped = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self.stop)

        def read() -> None:
            try:
                for body in _read_messages(source):
                    loop.call_soon_threadsafe(self.protocol.receive, body)
                loop.call_soon_threadsafe(self.stop)
            except (OSError, ValueError, RuntimeError):
                log.exception("reading ended")

        threading.Thread(target=read, name="stdin", daemon=True).start()
        await self._stopped.wait()
        for task in list(self._tasks):
            task.cancel()
        if self.on_stop is not None:
            try:
                await asyncio.wait_for(self.on_stop(), timeout=2.0)
            except Exception:
                log.exception("closing failed")
