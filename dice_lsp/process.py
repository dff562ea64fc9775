"""Every child process starts here: in its own session, with limits and a deadline, and gone as a group when it ends.

Two kinds of children exist. `run` starts a short one (a compiler, an emulated kernel) and waits for it. `FramedChild`
holds a long-lived one that speaks frames over its pipes; `serve` is the other end of those pipes. A frame is a
4-byte big-endian length and that many bytes of UTF-8 JSON.

    parent -> child   {"id": 7, "op": "compile", "params": {...}}      {"id": 7, "op": "cancel"}
    child -> parent   {"id": 7, "event": "build", "data": {...}}       any number of times
                      {"id": 7, "result": ...}  or  {"id": 7, "error": "..."}  or  {"id": 7, "cancelled": true}

Every call ends in exactly one of result, error, cancelled, or `ChildDied`.
"""

import asyncio
import collections
import contextlib
import ctypes
import json
import logging
import os
import queue
import resource
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, BinaryIO

from attrs import frozen

log = logging.getLogger(__name__)

PR_SET_PDEATHSIG = 1
PR_SET_NO_NEW_PRIVS = 38
MAX_FRAME_BYTES = 1 << 30
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


@frozen
class Limits:
    """What a child may use. `None` leaves a limit as it is."""

    address_space_bytes: int | None = None
    cpu_s: int | None = None
    file_bytes: int | None = None
    open_files: int | None = None
    niceness: int = 0


COMPILER_LIMITS = Limits(address_space_bytes=8 << 30, cpu_s=120, file_bytes=1 << 30, open_files=512, niceness=5)
"""Compilers read text that a model wrote, so they are bounded like everything else."""


@frozen
class Finished:
    """How a short child ended. `returncode` is negative for a signal; `timed_out` means we killed it at its deadline."""

    returncode: int
    stdout: bytes
    stderr: bytes
    timed_out: bool
    elapsed_s: float


class ChildDied(Exception):
    """A long-lived child ended, or was killed, while a call was waiting for it."""


class ChildError(Exception):
    """A long-lived child answered a call with an error: the message is one sentence for the log."""


class Cancelled(Exception):
    """Raised inside a child's handler by `Job.check` once its parent has cancelled the call."""


def module_command(module: str, *arguments: str) -> list[str]:
    """How to run one of our own modules in a child: with this Python and this copy of the package, installed or not.

    `-P` keeps the current folder, which may be a stranger's project with a `torch.py` in it, off the path of imports.
    """
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    start = (
        "import runpy, sys; root, module = sys.argv[1:3]; del sys.argv[1:3]; "
        "root in sys.path or sys.path.insert(0, root); "
        "runpy.run_module(module, run_name='__main__', alter_sys=True)"
    )
    return [sys.executable, "-P", "-c", start, root, module, *arguments]


def _before_exec(limits: Limits, parent: int, confine: Callable[[], None] | None = None) -> Callable[[], None]:
    def set_limit(kind: int, value: int | None) -> None:
        if value is not None:
            hard = resource.getrlimit(kind)[1]
            value = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(kind, (value, value))

    def apply() -> None:
        if _libc is not None:
            # The child goes with its parent, even if the parent is killed before it can clean up.
            _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            _libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            if os.getppid() != parent:
                os._exit(127)
        set_limit(resource.RLIMIT_CORE, 0)
        set_limit(resource.RLIMIT_AS, limits.address_space_bytes)
        set_limit(resource.RLIMIT_CPU, limits.cpu_s)
        set_limit(resource.RLIMIT_FSIZE, limits.file_bytes)
        set_limit(resource.RLIMIT_NOFILE, limits.open_files)
        if limits.niceness:
            os.nice(limits.niceness)
        if confine is not None:
            confine()

    return apply


def kill_group(pid: int) -> None:
    """Kill a child and everything it started. Quiet when it is gone already."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def run(
    argv: Sequence[str],
    *,
    deadline_s: float,
    stdin: bytes = b"",
    limits: Limits = COMPILER_LIMITS,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    cancelled: threading.Event | None = None,
    pass_fds: Sequence[int] = (),
    confine: Callable[[], None] | None = None,
) -> Finished:
    """Run a short child to its end, its deadline, or until `cancelled` is set, then kill its whole group.

    `confine` is called in the child just before its program starts, between fork and exec: it may do little more than
    system calls. Blocks; call it in a worker process or a thread, never on the server's loop. Raises
    `FileNotFoundError` when the program is not there, `OSError` when it cannot be started or confined, and
    `Cancelled` after a cancel.
    """
    started = time.monotonic()
    try:
        child = subprocess.Popen(
            list(argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=None if env is None else dict(env),
            start_new_session=True,
            pass_fds=pass_fds,
            preexec_fn=_before_exec(limits, os.getpid(), confine),
        )
    except subprocess.SubprocessError as error:
        raise OSError(f"{argv[0]} could not be limited and confined") from error
    timed_out = False
    try:
        data: bytes | None = stdin
        while True:
            left = started + deadline_s - time.monotonic()
            try:
                out, err = child.communicate(data, timeout=max(0.0, min(left, 0.02 if cancelled else left)))
                break
            except subprocess.TimeoutExpired:
                data = None
                if cancelled is not None and cancelled.is_set():
                    raise Cancelled from None
                if time.monotonic() >= started + deadline_s:
                    timed_out = True
                    kill_group(child.pid)
                    out, err = child.communicate()
                    break
    finally:
        kill_group(child.pid)
        if child.poll() is None:
            child.wait()
        for pipe in (child.stdin, child.stdout, child.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
    return Finished(child.returncode, out, err, timed_out, time.monotonic() - started)


def attended(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str,
    on_output: Callable[[bytes], None] | None = None,
    deadline_s: float | None = None,
    cancelled: threading.Event | None = None,
) -> int:
    """Run the user's own program to its end and return its exit code, negative for a signal.

    Without `on_output` it shares our terminal, and a key that interrupts it does not interrupt us. With it, what it
    writes is given to `on_output` piece by piece on another thread, it is in a session of its own, and it is killed at
    its deadline or once `cancelled` is set, which raises `Cancelled`. It has no limits and all rights of the user, but it
    goes when we go. Raises `OSError` when it cannot be started.
    """
    apart = on_output is not None
    parent = os.getpid()

    def before_exec() -> None:
        if _libc is not None:
            _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent:
                os._exit(127)

    child = subprocess.Popen(
        list(argv),
        stdin=subprocess.DEVNULL if apart else None,
        stdout=subprocess.PIPE if apart else None,
        stderr=subprocess.STDOUT if apart else None,
        cwd=cwd,
        env=dict(env),
        start_new_session=apart,
        preexec_fn=before_exec,
    )
    interrupt = None
    if not apart and threading.current_thread() is threading.main_thread():
        interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
    reader = threading.Thread(target=_hear, args=(child.stdout, on_output), name="output", daemon=True)
    if apart:
        reader.start()
    deadline = None if deadline_s is None else time.monotonic() + deadline_s
    try:
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return child.wait(0.05 if apart else None)
            if cancelled is not None and cancelled.is_set():
                raise Cancelled
            if deadline is not None and time.monotonic() > deadline:
                kill_group(child.pid)
    finally:
        if apart:
            kill_group(child.pid)
            child.wait()
            reader.join(timeout=1.0)
            assert child.stdout is not None
            child.stdout.close()
        if interrupt is not None:
            signal.signal(signal.SIGINT, interrupt)


def _hear(stream: Any, on_output: Callable[[bytes], None]) -> None:
    with contextlib.suppress(OSError, ValueError):
        while data := os.read(stream.fileno(), 65536):
            on_output(data)


def encode_frame(message: Any) -> bytes:
    body = json.dumps(message, separators=(",", ":")).encode()
    return struct.pack(">I", len(body)) + body


def read_frame(stream: BinaryIO) -> Any | None:
    """The next message of a blocking stream, or None at its end."""
    head = stream.read(4)
    if len(head) < 4:
        return None
    (length,) = struct.unpack(">I", head)
    if length > MAX_FRAME_BYTES:
        raise ValueError(f"a frame of {length} bytes is over the limit of {MAX_FRAME_BYTES}")
    body = stream.read(length)
    return json.loads(body) if len(body) == length else None


OnEvent = Callable[[str, Any], None]


@frozen
class Readiness:
    """How far a long-lived child is with what it is for."""

    state: str = "off"
    """`off` (it starts at its first use), `loading`, `ready` or `failed`."""
    reason: str = ""
    """One sentence with the next step, where there is something to say."""


class FramedChild:
    """The loop's side of a long-lived child. It starts at the first call and again at the first call after its death.

    Cancelling a call sends `cancel` and gives the child `grace_s` to end the call; a child that does not is killed,
    which ends its other calls with `ChildDied`. Nothing here blocks the loop.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        name: str,
        limits: Limits = Limits(),
        env: Mapping[str, str] | None = None,
        grace_s: float = 1.0,
    ) -> None:
        self.argv = list(argv)
        self.name = name
        self.limits = limits
        self.env = env
        self.grace_s = grace_s
        self.starts = 0
        self.on_exit: Callable[[str], None] | None = None
        """Called on the loop when the child has ended on its own account, with how: it was not we who ended it."""
        self._process: asyncio.subprocess.Process | None = None
        self._readers: tuple[asyncio.Task[None], ...] = ()
        self._calls: dict[int, tuple[asyncio.Future[Any], OnEvent | None, asyncio.subprocess.Process]] = {}
        self._doomed: asyncio.subprocess.Process | None = None
        self._next_id = 0
        self._start_lock = asyncio.Lock()
        self._stderr_tail: collections.deque[str] = collections.deque(maxlen=40)

    @property
    def pid(self) -> int | None:
        return None if self._process is None or self._process.returncode is not None else self._process.pid

    @property
    def stderr_tail(self) -> str:
        """The last lines that the child logged, for the message after its death."""
        return "\n".join(self._stderr_tail)

    async def start(self) -> None:
        """Start the child now, so that the first call finds it warm. Raises `ChildDied` when it cannot be started."""
        async with self._start_lock:
            if self._process is not None and self._process is self._doomed:
                # Killed but perhaps not gone yet: a call must not be written into a dying child's pipe.
                await self._process.wait()
            elif self.pid is not None:
                return
            try:
                self._process = await asyncio.create_subprocess_exec(
                    *self.argv,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                    env=None if self.env is None else dict(self.env),
                    start_new_session=True,
                    preexec_fn=_before_exec(self.limits, os.getpid()),
                )
            except OSError as error:
                raise ChildDied(f"the {self.name} could not be started: {error}") from error
            self.starts += 1
            self._readers = (
                asyncio.create_task(self._read_frames(self._process), name=f"{self.name} frames"),
                asyncio.create_task(self._read_log(self._process), name=f"{self.name} log"),
            )

    async def call(
        self, op: str, params: Any, *, on_event: OnEvent | None = None, deadline_s: float | None = None
    ) -> Any:
        """One request, its events, its one answer.

        Raises `ChildError` for an error answer, `ChildDied` when the child ends first, `TimeoutError` at the deadline
        (the child is killed then: it did not answer, so nothing is known of its state).
        """
        await self.start()
        process = self._process
        assert process is not None and process.stdin is not None
        self._next_id += 1
        number = self._next_id
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._calls[number] = (answer, on_event, process)
        try:
            with contextlib.suppress(ConnectionError):
                process.stdin.write(encode_frame({"id": number, "op": op, "params": params}))
                await process.stdin.drain()
            try:
                return await asyncio.wait_for(asyncio.shield(answer), deadline_s)
            except TimeoutError:
                self.kill()
                raise TimeoutError(f"the {self.name} did not answer {op} within {deadline_s} s") from None
        except asyncio.CancelledError:
            if not answer.done():
                with contextlib.suppress(ConnectionError, RuntimeError):
                    process.stdin.write(encode_frame({"id": number, "op": "cancel"}))
                asyncio.create_task(self._end_or_kill(process, answer))  # noqa: RUF006 - holds itself until done
            raise
        finally:
            if answer.done():
                self._calls.pop(number, None)
                if not answer.cancelled():
                    answer.exception()

    async def _end_or_kill(self, process: asyncio.subprocess.Process, answer: asyncio.Future[Any]) -> None:
        done, _ = await asyncio.wait([answer], timeout=self.grace_s)
        if not done and process.returncode is None:
            log.warning("the %s did not end a cancelled call within %.1f s and is killed", self.name, self.grace_s)
            self._doomed = process
            kill_group(process.pid)
        with contextlib.suppress(Exception, asyncio.CancelledError):
            await answer

    def kill(self) -> None:
        """End the child now; its waiting calls get `ChildDied`."""
        if self.pid is not None:
            self._doomed = self._process
            kill_group(self.pid)

    async def close(self) -> None:
        """End the child and wait until it is gone."""
        process = self._process
        self.kill()
        if process is not None:
            await process.wait()
            await asyncio.gather(*self._readers, return_exceptions=True)

    async def _read_frames(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        try:
            while True:
                (length,) = struct.unpack(">I", await process.stdout.readexactly(4))
                if length > MAX_FRAME_BYTES:
                    raise ValueError(f"frame of {length} bytes")
                self._deliver(json.loads(await process.stdout.readexactly(length)))
        except asyncio.IncompleteReadError:
            pass
        except Exception:
            log.exception("the %s sent something that is no frame and is killed", self.name)
            self._doomed = process
            kill_group(process.pid)
        returncode = await process.wait()
        kill_group(process.pid)
        why = f"ended with code {returncode}" if returncode >= 0 else f"was ended by {signal.Signals(-returncode).name}"
        mine = {number: call for number, call in self._calls.items() if call[2] is process}
        for number, (answer, _, _) in mine.items():
            self._calls.pop(number, None)
            if not answer.done():
                answer.set_exception(ChildDied(f"the {self.name} {why}"))
                answer.exception()
        if process is not self._doomed and self.on_exit is not None:
            self.on_exit(f"the {self.name} {why}")

    async def _read_log(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        while chunk := await process.stderr.read(65536):
            for line in chunk.decode(errors="replace").splitlines():
                self._stderr_tail.append(line)
                log.info("%s: %s", self.name, line)

    def _deliver(self, message: Mapping[str, Any]) -> None:
        call = self._calls.get(message["id"])
        if call is None or call[0].done():
            return
        answer, on_event, _ = call
        if "event" in message:
            if on_event is not None:
                try:
                    on_event(message["event"], message["data"])
                except Exception:
                    log.exception("an event handler failed")
            return
        self._calls.pop(message["id"], None)
        if "result" in message:
            answer.set_result(message["result"])
        elif message.get("cancelled"):
            answer.cancel()
        else:
            answer.set_exception(ChildError(message["error"]))
            answer.exception()


class SyncFramedChild:
    """A long-lived child that speaks frames, held by synchronous code: one call at a time, each with a deadline.

    The worker uses it for the process that owns a GPU context. Unlike `FramedChild` it does not start itself again:
    what a child held is gone when it dies, so its owner must know. Start it from a thread that lives as long as the
    child should: Linux ends a child with the thread that started it.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        name: str,
        limits: Limits = Limits(),
        env: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
        grace_s: float = 1.0,
    ) -> None:
        self.name = name
        self.grace_s = grace_s
        self._next_id = 0
        self._frames: queue.Queue[Any] = queue.Queue()
        self._stderr_tail: collections.deque[str] = collections.deque(maxlen=40)
        try:
            self._process = subprocess.Popen(
                list(argv),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=None if env is None else dict(env),
                start_new_session=True,
                pass_fds=pass_fds,
                preexec_fn=_before_exec(limits, os.getpid()),
            )
        except OSError as error:
            raise ChildDied(f"the {name} could not be started: {error}") from error
        self._threads = [
            threading.Thread(target=target, name=f"{name} {what}", daemon=True)
            for target, what in ((self._read_frames, "frames"), (self._read_log, "log"))
        ]
        for thread in self._threads:
            thread.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def stderr_tail(self) -> str:
        """The last lines that the child logged."""
        return "\n".join(self._stderr_tail)

    def call(
        self,
        op: str,
        params: Any,
        *,
        deadline_s: float,
        on_event: OnEvent | None = None,
        check: Callable[[], None] | None = None,
    ) -> Any:
        """One request, its events, its one answer.

        `check` is called every 50 ms while the answer is awaited; what it raises cancels the call (the child gets
        `grace_s` to end it, then it is killed) and is raised again. Raises `ChildError` for an error answer,
        `ChildDied` when the child ends first, `TimeoutError` at the deadline (the child is killed then).
        """
        self._next_id += 1
        number = self._next_id
        self._send({"id": number, "op": op, "params": params})
        deadline = time.monotonic() + deadline_s
        while True:
            try:
                message = self._frames.get(timeout=max(0.0, min(0.05, deadline - time.monotonic())))
            except queue.Empty:
                if time.monotonic() >= deadline:
                    self.kill()
                    raise TimeoutError(f"the {self.name} did not answer {op} within {deadline_s} s") from None
                if check is not None:
                    try:
                        check()
                    except BaseException:
                        self._cancel(number)
                        raise
                continue
            if message is None:
                self._frames.put(None)
                raise ChildDied(f"the {self.name} {self._how_it_ended()}")
            if message["id"] != number:
                continue
            if "event" in message:
                if on_event is not None:
                    on_event(message["event"], message["data"])
            elif "result" in message:
                return message["result"]
            elif message.get("cancelled"):
                raise Cancelled
            else:
                raise ChildError(message["error"])

    def _send(self, message: Any) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(encode_frame(message))
            self._process.stdin.flush()
        except (OSError, ValueError):
            pass  # it is gone: its end is found in the queue of its frames

    def _cancel(self, number: int) -> None:
        self._send({"id": number, "op": "cancel"})
        deadline = time.monotonic() + self.grace_s
        while (left := deadline - time.monotonic()) > 0:
            with contextlib.suppress(queue.Empty):
                message = self._frames.get(timeout=left)
                if message is None:
                    self._frames.put(None)
                    return
                if message["id"] == number and "event" not in message:
                    return
        self.kill()

    def kill(self) -> None:
        """End the child and everything it started, and wait up to 10 s until the operating system has taken it back.

        A child that waits inside a driver may not go at once: `alive` is still true then.
        """
        kill_group(self._process.pid)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=10.0)

    def close(self) -> None:
        """End the child; its pipes and threads are gone afterwards."""
        self.kill()
        for thread in self._threads:
            thread.join(timeout=1.0)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _how_it_ended(self) -> str:
        returncode = self._process.wait()
        return (
            f"ended with code {returncode}" if returncode >= 0 else f"was ended by {signal.Signals(-returncode).name}"
        )

    def _read_frames(self) -> None:
        assert self._process.stdout is not None
        stdout: Any = self._process.stdout
        try:
            while (message := read_frame(stdout)) is not None:
                self._frames.put(message)
        except (OSError, ValueError):
            log.warning("the %s sent something that is no frame and is killed", self.name)
        kill_group(self._process.pid)
        self._frames.put(None)

    def _read_log(self) -> None:
        assert self._process.stderr is not None
        with contextlib.suppress(OSError, ValueError):
            for line in self._process.stderr:
                text = line.decode(errors="replace").rstrip()
                self._stderr_tail.append(text)
                log.info("%s: %s", self.name, text)


class Job:
    """One call, as its handler in the child sees it."""

    def __init__(self, number: int, send: Callable[[Any], None]) -> None:
        self.number = number
        self.cancelled = threading.Event()
        self._send = send

    def emit(self, event: str, data: Any) -> None:
        """Send an event to the parent."""
        self._send({"id": self.number, "event": event, "data": data})

    def check(self) -> None:
        """Raise `Cancelled` if the parent no longer wants the answer. Call it between steps."""
        if self.cancelled.is_set():
            raise Cancelled


Handler = Callable[[Any, Job], Any]


def serve(handlers: Mapping[str, Handler], *, idle: Callable[[], bool] | None = None) -> None:
    """The child's main loop: answers calls one after another on the calling thread until stdin ends.

    A cancel is read while a handler runs. `idle`, when given, is called while nothing is waiting, and returns whether
    it has more to do; it should take well under a second. Whatever libraries print goes to stderr, never into frames.
    """
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    source = os.fdopen(os.dup(0), "rb")
    write_lock = threading.Lock()
    waiting: queue.Queue[tuple[str, Any, Job] | None] = queue.Queue()
    jobs: dict[int, Job] = {}

    def send(message: Any) -> None:
        frame = encode_frame(message)
        with write_lock:
            view = memoryview(frame)
            while view:
                view = view[out.write(view) :]

    def read() -> None:
        while (message := read_frame(source)) is not None:
            number, op = message["id"], message["op"]
            if op == "cancel":
                if (job := jobs.get(number)) is not None:
                    job.cancelled.set()
            else:
                jobs[number] = Job(number, send)
                waiting.put((op, message.get("params"), jobs[number]))
        for job in list(jobs.values()):
            job.cancelled.set()
        waiting.put(None)

    threading.Thread(target=read, name="frames", daemon=True).start()
    more_idle = idle is not None
    while True:
        try:
            item = waiting.get(block=not more_idle)
        except queue.Empty:
            assert idle is not None
            more_idle = idle()
            continue
        if item is None:
            return
        op, params, job = item
        try:
            job.check()
            handler = handlers.get(op)
            if handler is None:
                answer: dict[str, Any] = {"error": f"unknown operation {op!r}"}
            else:
                answer = {"result": handler(params, job)}
        except Cancelled:
            answer = {"cancelled": True}
        except Exception as error:
            logging.getLogger("dice_lsp").exception("%s failed", op)
            answer = {"error": f"{op} failed: {type(error).__name__}: {error}"}
        jobs.pop(job.number, None)
        more_idle = idle is not None
        try:
            send({"id": job.number, **answer})
        except (BrokenPipeError, OSError):
            return
