"""The loop's side of the worker: asks one thing at a time, watches the deadlines, replaces a worker that died.

NVRTC runs inside the worker and cannot be interrupted, and a kernel may hang; so this side gives every stage of a job
its time and kills the worker when the time is up. What was being judged gets values that say why; whatever waits its
turn is judged by the next worker.

Registers and occupancy are wanted at once, while a judgement may take many seconds. So there is a second worker that
only compiles: it is asked what needs no run while the first is busy. It is a process of its own and not a thread
of the first, because a compile that must be ended ends its process, and a judgement should not die of that.
"""

import asyncio
import contextlib
import functools
import hashlib
import logging
import os
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from attrs import evolve

from dice_lsp.config import Settings
from dice_lsp.process import ChildDied, ChildError, FramedChild, Limits, Readiness, module_command
from dice_lsp.records import (
    Build,
    Compiled,
    Evidence,
    Judged,
    JudgeJob,
    NotCompared,
    NotCompiled,
    NotTimed,
    Sanitized,
    TimingResult,
    Unverified,
    Verdict,
    from_wire,
    to_wire,
)
from dice_lsp.source.slice import device_slice, kernel_slice_key

log = logging.getLogger(__name__)

OnEvent = Callable[[str, Any], None]
"""Gets ("build", Build), ("progress", str), ("verdict", Verdict), ("timing", TimingResult)."""

START_ALLOWANCE_S = 30.0
"""What a fresh worker may need on top: loading, and unpacking the compiler's headers for the first time."""
HELLO_DEADLINE_S = 120.0
RUN_ALLOWANCE_S = 60.0
SANITIZE_DEADLINE_S = 300.0
"""For all tools of compute-sanitizer, each of which has a deadline of its own inside the worker."""
RUNS_BETWEEN_SIGNS = 24
"""Most runs between two signs of life, each of which has a deadline of its own inside the worker."""
AFTERMATH_S = 5.0
"""A death this soon after a cancelled call is put down to that call."""
MAX_DEATHS = 2
"""A text that ended the worker this often is not sent again."""
_SETTINGS = ("backend", "device", "nvcc", "cxx")
_EXITS = {"71": "the compiler took more memory than it may"}


class _Lane:
    """One worker process, which is asked one thing at a time."""

    def __init__(self, name: str, env: Mapping[str, str] | None) -> None:
        # Compilers and emulated kernels use what the server and the editor leave of the cores.
        self.child = FramedChild(module_command("dice_lsp.worker"), name=name, limits=Limits(niceness=5), env=env)
        self.fresh = True
        self.cancelled_at = float("-inf")
        self._turn = asyncio.Lock()
        self._asked = 0

    @property
    def busy(self) -> bool:
        """Something runs or waits there."""
        return self._asked > 0

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        self._asked += 1
        try:
            async with self._turn:
                yield
        finally:
            self._asked -= 1

    def start_allowance(self) -> float:
        return START_ALLOWANCE_S if self.fresh or self.child.pid is None else 0.0


class WorkerClient:
    """One worker that judges and one that only compiles, started at first use and again after their death."""

    def __init__(self, settings: Settings, env: Mapping[str, str] | None = None) -> None:
        self.settings = settings
        self._judging = _Lane("worker", env)
        self._compiling = _Lane("compiling worker", env)
        self._deaths: Counter[str] = Counter()
        self._here: dict[str, Any] | None = None
        self._judging.child.on_exit = self._ended
        self._info: dict[str, Any] | None = None
        self._readiness = Readiness()
        self.on_readiness: Callable[[], None] | None = None
        """Called on the loop whenever `readiness` or `info` changes."""
        self._warming: asyncio.Task[None] | None = None
        self._sanitizing: asyncio.Task[Sanitized | None] | None = None

    @property
    def pid(self) -> int | None:
        """The process of the worker that judges, when it runs."""
        return self._judging.child.pid

    @property
    def starts(self) -> int:
        """How many workers that judge there were."""
        return self._judging.child.starts

    async def start(self) -> None:
        """Start the worker and let it look around, so that the first job finds it warm. Raises `ChildDied`.

        The one that only compiles is started too, but not waited for.
        """
        await self.hello()
        if self._warming is None:
            self._warming = asyncio.create_task(self._warm(), name="warming the compiling worker")

    async def _warm(self) -> None:
        lane = self._compiling
        async with lane.turn():
            try:
                await lane.child.call("warm", self._params(lane), deadline_s=HELLO_DEADLINE_S)
                lane.fresh = False
            except (ChildDied, ChildError, TimeoutError) as error:
                log.info("the worker that only compiles did not start: %s", error)

    async def close(self) -> None:
        """End the workers and everything they started."""
        # Not cancelled: asyncio waits for ever when that happens while it starts a process.
        while self._warming is not None and not self._warming.done():
            self._compiling.child.kill()
            await asyncio.wait([self._warming], timeout=0.05)
        await asyncio.gather(self._judging.child.close(), self._compiling.child.close())
        self._become("off")

    @property
    def readiness(self) -> Readiness:
        """Whether a job would find the worker that judges warm; after a failure, why not."""
        return self._readiness

    def info(self) -> dict[str, Any] | None:
        """The last answer to `hello`, or None before the first."""
        return self._info

    async def hello(self) -> dict[str, Any]:
        """What the worker found on its machine. Raises `ChildDied`, `ChildError` or `TimeoutError`."""
        lane = self._judging
        async with lane.turn():
            self._starting(lane)
            try:
                info: dict[str, Any] = await lane.child.call("hello", self._params(lane), deadline_s=HELLO_DEADLINE_S)
            except (ChildDied, ChildError, TimeoutError) as error:
                self._become("failed", f"{error}; run `dice-lsp doctor`")
                raise
            lane.fresh = False
            self._info, self._here = info, info["here"]
            self._become("ready", _limits_of(info))
            return info

    async def compile(self, job: Mapping[str, Any], deadline_s: float | None = None) -> dict[str, Build]:
        """Builds by kernel of a compile job in its wire form (`to_wire` of `worker.compile.CompileJob`).

        A worker that dies or does not answer gives `NotCompiled` for each kernel.
        """
        self.interrupt()
        seconds = self.settings.compile_deadline_s if deadline_s is None else deadline_s
        names = [kernel.get("distinct_name") or kernel["name"] for kernel in job["kernels"]]
        key = _text_key(str(job["text"]), ",".join(names))
        if self._deaths[key] >= MAX_DEATHS:
            return dict.fromkeys(names, NotCompiled(_refused(self._deaths[key])))
        lane = self._lane(runs=False)
        async with lane.turn():
            reason = f"the compiler did not end within {seconds:g} s"
            answer = await self._ask(lane, "compile", {"job": dict(job)}, key, seconds, reason)
        if isinstance(answer, str):
            return dict.fromkeys(names, NotCompiled(answer))
        return {name: from_wire(build, Build) for name, build in answer.items()}  # type: ignore[arg-type]

    async def judge(self, job: JudgeJob, on_event: OnEvent | None = None) -> Judged:
        """Compile, verify and time one kernel. Always an answer; cancelling the task cancels the job in the worker.

        A job that neither verifies nor times does not wait for one that does.
        """
        self.interrupt()
        key = _text_key(job.text, job.kernel.qualified_name)
        if self._deaths[key] >= MAX_DEATHS:
            return _given_up(job, None, None, _refused(self._deaths[key]))
        build: Build | None = None
        verdict: Verdict | None = None
        lane = self._lane(runs=job.verify or job.benchmark)
        async with lane.turn():
            compile_s = job.compile_deadline_s * (2 if job.baseline_text is not None else 1)
            run_s = RUN_ALLOWANCE_S + RUNS_BETWEEN_SIGNS * job.run_deadline_s + compile_s

            def heard(event: str, data: Any, watch: "_Watch") -> None:
                nonlocal build, verdict
                if event == "here":
                    if lane is self._judging:
                        self._here = data
                    return
                watch.extend(run_s, f"the worker gave no sign of life for {run_s:g} s while the kernel ran")
                value = data
                if event == "build":
                    value = build = from_wire(data, Build)  # type: ignore[arg-type]
                elif event == "verdict":
                    value = verdict = from_wire(data, Verdict)  # type: ignore[arg-type]
                elif event == "timing":
                    value = from_wire(data, TimingResult)  # type: ignore[arg-type]
                if on_event is not None:
                    on_event(event, value)

            reason = f"the compiler did not end within {job.compile_deadline_s:g} s"
            answer = await self._ask(lane, "judge", {"job": to_wire(job)}, key, compile_s, reason, heard)
        return _given_up(job, build, verdict, answer) if isinstance(answer, str) else from_wire(answer, Judged)

    async def sanitize(self, job: JudgeJob) -> Sanitized | None:
        """What compute-sanitizer says of a kernel. None when the worker had or got something else to do: ask again later.

        It comes last: whatever else is asked of the worker ends it at once.
        """
        if self._judging.busy:
            return None
        task = self._sanitizing = asyncio.create_task(self._sanitize(job), name="compute-sanitizer")
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            task.cancel()
            raise
        return None if task.cancelled() else task.result()

    async def _sanitize(self, job: JudgeJob) -> Sanitized | None:
        key = f"sanitize {_text_key(job.text, job.kernel.qualified_name)}"
        if self._deaths[key] >= MAX_DEATHS:
            return Sanitized((), (), _refused(self._deaths[key]))
        lane = self._judging
        async with lane.turn():
            seconds = SANITIZE_DEADLINE_S + job.compile_deadline_s
            reason = f"compute-sanitizer did not end within {seconds:g} s"
            answer = await self._ask(lane, "sanitize", {"job": to_wire(job)}, key, seconds, reason)
        if answer is None:
            return None
        return Sanitized((), (), answer) if isinstance(answer, str) else from_wire(answer, Sanitized)

    def interrupt(self) -> None:
        """End what runs only because nothing else did."""
        if self._sanitizing is not None and not self._sanitizing.done():
            self._sanitizing.cancel()

    def _lane(self, runs: bool) -> _Lane:
        """Who is asked. The one that compiles must have been told where kernels run, or its evidence would be another."""
        aside = not runs and self._judging.busy and self._here is not None
        return self._compiling if aside else self._judging

    async def _ask(
        self,
        lane: _Lane,
        op: str,
        params: Mapping[str, Any],
        key: str,
        seconds: float,
        reason: str,
        heard: "Callable[[str, Any, _Watch], None] | None" = None,
    ) -> Any:
        """The answer, or one sentence on why there is none."""
        for attempt in (1, 2):
            watch = _Watch(lane.child, lane.start_allowance() + seconds, reason)
            on_event = None if heard is None else functools.partial(_heard, heard, watch)
            self._starting(lane)
            try:
                with watch:
                    answer = await lane.child.call(op, {**self._params(lane), **params}, on_event=on_event)
                lane.fresh = False
                if lane is self._judging:
                    self._become("ready", _limits_of(self._info or {}))
                return answer
            except asyncio.CancelledError:
                lane.cancelled_at = asyncio.get_running_loop().time()
                raise
            except (ChildDied, ChildError) as error:
                since = asyncio.get_running_loop().time() - lane.cancelled_at
                if isinstance(error, ChildDied) and watch.expired is None and attempt == 1 and since < AFTERMATH_S:
                    # It was killed for not ending the call that was cancelled before this one.
                    lane.fresh = True
                    continue
                return self._died(lane, error, watch, key)
        raise AssertionError("the second attempt returns or raises")

    def _params(self, lane: _Lane) -> dict[str, Any]:
        params: dict[str, Any] = {"settings": {name: getattr(self.settings, name) for name in _SETTINGS}}
        return {**params, "here": self._here} if lane is self._compiling else params

    def _starting(self, lane: _Lane) -> None:
        if lane is self._judging and lane.child.pid is None:
            self._become("loading")

    def _become(self, state: str, reason: str = "") -> None:
        before, self._readiness = self._readiness, Readiness(state, reason)
        if (before != self._readiness or state == "ready") and self.on_readiness is not None:
            self.on_readiness()

    def _ended(self, how: str) -> None:
        self._judging.fresh = True
        self._become("failed", f"{how}; the next check starts it again, or run `dice-lsp doctor`")

    def _died(self, lane: _Lane, error: Exception, watch: "_Watch", key: str) -> str:
        """Count the death and say what happened in one sentence."""
        if isinstance(error, ChildError):
            log.error("the worker failed: %s", error)
            return f"the worker failed: {error}"
        lane.fresh = True
        self._deaths[key] += 1
        if watch.expired is not None:
            # We ended it for what it was given, and the next call starts it again: that is no failure of the judge.
            if lane is self._judging:
                self._become("off")
            return watch.expired
        code = re.search(r"code (\d+)", str(error))
        if code is not None and code[1] in _EXITS:
            return _EXITS[code[1]]
        return str(error)


class _Watch(contextlib.AbstractContextManager["_Watch"]):
    """Kills the child when a stage takes too long; events extend it."""

    def __init__(self, child: FramedChild, seconds: float, reason: str) -> None:
        self._child = child
        self._seconds, self._reason = seconds, reason
        self._timer: asyncio.TimerHandle | None = None
        self.expired: str | None = None

    def __enter__(self) -> "_Watch":
        self._arm()
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def extend(self, seconds: float, reason: str) -> None:
        self._seconds, self._reason = seconds, reason
        self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._expire)

    def _expire(self) -> None:
        self.expired = self._reason
        log.warning("%s: the worker is killed", self._reason)
        self._child.kill()


def _limits_of(info: Mapping[str, Any]) -> str:
    """One sentence about what this machine cannot do, from the answer to `hello`; empty where it can do everything."""
    if info and not info.get("nvrtc") and not info.get("nvcc"):
        return f"no device compiler is there: {info.get('nvrtc_missing') or 'run `dice-lsp doctor`'}"
    return f"kernels run on this machine's processor: {info['no_device']}" if info.get("no_device") else ""


def _heard(handler: Callable[[str, Any, _Watch], None], watch: _Watch, event: str, data: Any) -> None:
    handler(event, data, watch)


def _text_key(text: str, kernels: str) -> str:
    return hashlib.sha256(f"{kernels}\0{text}".encode("utf-8", "surrogatepass")).hexdigest()


def _refused(deaths: int) -> str:
    return f"this text ended the worker {deaths} times, so it is not tried again: change it first"


def _given_up(job: JudgeJob, build: Build | None, verdict: Verdict | None, reason: str) -> Judged:
    """The answer about a job whose worker died: what was known, and the reason for the rest."""
    build = NotCompiled(reason) if build is None else build
    if isinstance(build, Compiled):
        build = evolve(build, cubin=b"")
    key = kernel_slice_key(device_slice(job.text).text, job.kernel)
    evidence = Evidence("", key, "", "", "", datetime.now(UTC).isoformat(timespec="seconds"))
    return Judged(build, verdict or Unverified(reason), NotTimed(reason), NotCompared(reason), evidence)


def worker_environment(**variables: str) -> dict[str, str]:
    """This process's environment with some variables set, for a worker that shall differ."""
    return {**os.environ, **variables}
