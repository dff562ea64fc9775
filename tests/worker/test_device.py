"""The GPU's side of the worker as far as a machine without one can show it: the child, its pipes, its shared memory."""

import ctypes
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from attrs import evolve

from dice_lsp.lease import Lease
from dice_lsp.process import Cancelled, ChildDied, ChildError, Job, SyncFramedChild
from dice_lsp.records import Compiled, Judged, JudgeJob, Kernel, NotTimed, Unverified, from_wire, to_wire
from dice_lsp.source.kernels import parse
from dice_lsp.source.launches import launch_spec
from dice_lsp.worker import __main__ as worker_main
from dice_lsp.worker.device import Arena, GpuBackend, _loads_on, _places, open_backend
from dice_lsp.worker.gpu_driver import _packed
from dice_lsp.worker.launch import BufferArgument, Faulted, Launch, NotSupported, Ran, ScalarArgument, Source

CHILD = """
import os, sys, time
from dice_lsp.process import serve

def echo(params, job):
    job.emit("half", params)
    return params

def wait(params, job):
    for _ in range(100):
        job.check()
        time.sleep(0.05)

def stubborn(params, job):
    time.sleep(30)

def die(params, job):
    os._exit(3)

def fail(params, job):
    raise ValueError("no such thing")

def touch(params, job):
    import mmap
    memory = mmap.mmap(int(sys.argv[1]), params)
    memory[:5] = memory[5:10]
    memory.flush()

serve({"echo": echo, "wait": wait, "stubborn": stubborn, "die": die, "fail": fail, "touch": touch})
"""


def has_driver() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


@pytest.fixture
def child():
    child = SyncFramedChild([sys.executable, "-c", CHILD], name="test child", grace_s=0.5)
    yield child
    child.close()
    assert not child.alive


def test_calls_and_events_in_order(child: SyncFramedChild) -> None:
    events = []
    for number in range(3):
        answer = child.call("echo", {"n": number}, deadline_s=10, on_event=lambda e, d: events.append((e, d["n"])))
        assert answer == {"n": number}
    assert events == [("half", 0), ("half", 1), ("half", 2)]


def test_an_error_is_told_and_the_child_goes_on(child: SyncFramedChild) -> None:
    with pytest.raises(ChildError, match="no such thing"):
        child.call("fail", {}, deadline_s=10)
    assert child.call("echo", 1, deadline_s=10) == 1


def test_a_deadline_kills(child: SyncFramedChild) -> None:
    child.call("echo", 1, deadline_s=10)
    started = time.monotonic()
    with pytest.raises(TimeoutError, match="did not answer stubborn"):
        child.call("stubborn", {}, deadline_s=0.3)
    assert time.monotonic() - started < 25 and not child.alive
    with pytest.raises(ChildDied):
        child.call("echo", 1, deadline_s=10)


def test_death_is_told_with_its_code(child: SyncFramedChild) -> None:
    with pytest.raises(ChildDied, match="ended with code 3"):
        child.call("die", {}, deadline_s=10)


class GiveUp(Exception):
    pass


def giving_up_after(seconds: float):
    end = time.monotonic() + seconds

    def check() -> None:
        if time.monotonic() > end:
            raise GiveUp

    return check


def test_a_cancel_ends_the_call_and_keeps_a_child_that_listens(child: SyncFramedChild) -> None:
    child.call("echo", 1, deadline_s=10)
    with pytest.raises(GiveUp):
        child.call("wait", {}, deadline_s=10, check=giving_up_after(0.1))
    assert child.alive and child.call("echo", 2, deadline_s=10) == 2


def test_a_child_that_does_not_listen_to_a_cancel_is_killed(child: SyncFramedChild) -> None:
    child.call("echo", 1, deadline_s=10)
    started = time.monotonic()
    with pytest.raises(GiveUp):
        child.call("stubborn", {}, deadline_s=10, check=giving_up_after(0.1))
    assert time.monotonic() - started < 25 and not child.alive
    assert Cancelled  # the child's own word for it, which no caller of `check` sees


def test_the_arena_is_shared_grows_and_cannot_shrink() -> None:
    arena = Arena()
    arena.reserve(10)
    child = SyncFramedChild([sys.executable, "-c", CHILD, str(arena.fd)], name="test child", pass_fds=(arena.fd,))
    try:
        arena.put(5, np.frombuffer(b"hello", np.uint8))
        child.call("touch", arena.nbytes, deadline_s=20)
        assert arena.take(0, np.empty(5, np.uint8)).tobytes() == b"hello"
        arena.reserve(1 << 20)
        values = np.arange(1000, dtype=np.float64)
        arena.put(4096, values)
        np.testing.assert_array_equal(arena.take(4096, values), values)
        assert arena.take(0, np.empty(5, np.uint8)).tobytes() == b"hello"
        with pytest.raises(PermissionError):
            os.ftruncate(arena.fd, 0)
        arena.empty()
        assert not arena.take(4096, values).any()
    finally:
        child.close()
        arena.close()


def test_places_are_aligned_and_apart() -> None:
    offsets, end = _places([1, 64, 0, 100], start=64)
    assert offsets == [64, 128, 192, 192] and end == 320


def test_arguments_are_packed_only_where_their_layout_is_certain() -> None:
    word, double = (7).to_bytes(4, "little"), bytes(8)
    assert _packed([word, word, 0x1000]) == word + word + (0x1000).to_bytes(8, "little")
    assert _packed([word, 0x1000]) == word + bytes(4) + (0x1000).to_bytes(8, "little")
    assert _packed([word, double]) is None  # a double begins at 8, a struct of two floats at 4
    assert _packed([bytes(12)]) is None
    assert _packed([]) == b""


@pytest.mark.parametrize(
    ("compiled_for", "device", "loads"),
    [
        ("sm_90", "sm_90", True), ("sm_90a", "sm_90", True), ("sm_80", "sm_86", True), ("sm_86", "sm_80", False),
        ("sm_80", "sm_90", False), ("sm_90a", "sm_100", False), ("sm_100", "sm_103", True), ("sm_100", "sm_120", False),
    ],
)  # fmt: skip
def test_device_code_runs_on_its_own_generation(compiled_for: str, device: str, loads: bool) -> None:
    assert _loads_on(compiled_for, device) is loads


@pytest.mark.skipif(has_driver(), reason="this machine has a driver, the answer without one cannot be seen")
def test_without_a_driver_the_answer_is_one_sentence_at_once() -> None:
    before = set(sys.modules)
    started = time.monotonic()
    for kind in ("auto", "pycuda", "cuda-core"):
        assert open_backend(kind) == "no NVIDIA driver: libcuda.so.1 is not there"
    assert time.monotonic() - started < 20
    assert not {"cuda.core", "pycuda.driver", "torch"} & (set(sys.modules) - before)


@pytest.mark.skipif(has_driver(), reason="this machine has a driver, so its runner starts")
def test_a_runner_that_finds_no_card_says_so() -> None:
    backend = GpuBackend("cuda-core", 0)
    reason = backend.start()
    assert reason is not None and reason.startswith("cuda-core cannot use the GPU: ") and "\n" not in reason
    assert backend.runner_pid is None


def test_what_cannot_run_on_a_gpu_is_said_before_anything_starts() -> None:
    backend = GpuBackend("cuda-core", 0)
    kernel = Kernel("k", "k", (), 0, 0, 0, 0, 0)
    not_compiled = backend.prepare(Source("", "a.cu", kernel))
    assert isinstance(not_compiled, NotSupported) and "not compiled" in not_compiled.reason
    compiled = Compiled("sm_90", "nvrtc", "k", 0, 0, 0, 0, 0, 256, 1.0, "none", 0.0, cubin=b"x")
    function = backend.prepare(Source("", "a.cu", kernel, compiled=compiled, function="k_cpu"))
    assert isinstance(function, NotSupported) and "host" in function.reason
    assert backend.runners_started == 0
    backend.close()


RUNNER = """
import json, os, sys
from pathlib import Path
from dice_lsp.process import serve

level, codes = sys.argv[2], set()

def told():
    return json.loads(Path(sys.argv[1]).read_text())

def hello(params, job):
    if level in told()["no_start"]:
        return {"unusable": f"no start under {level}"}
    device = {"name": "card", "bus_id": "", "uuid": "12", "capability": [9, 0], "cuda": "13.0", "library": "1"}
    return {**device, "l2_bytes": 1, "memory_bytes": 1, "smem_optin_bytes": 1, "isolation": level}

def run(params, job):
    if level in told()["no_context"]:
        return {"unopened": told()["do"]}
    codes.update([params["cubin_key"]] if params.get("cubin") else [])
    assert params["cubin_key"] in codes, "a new child is given the code"
    deadline_s = params["launch"]["deadline_s"]
    if told()["do"] == "hang":
        where = f"not done after {deadline_s:g} s"
        return {"fault": {"code": 0, "hazard": "timeout", "where": where, "sticky": True}}
    if told()["do"] == "die":
        os._exit(9)
    return {"elapsed_ms": float(told()["do"])}

serve({"hello": hello, "run": run})
"""


class PretendedCard(GpuBackend):
    """A back end whose runner is a script that answers as the real one would, without a card."""

    def __init__(self, told: Path) -> None:
        super().__init__("cuda-core", 0)
        self.told = told

    def tell(self, do: str, *, no_start: Sequence[str] = (), no_context: Sequence[str] = ()) -> None:
        self.told.write_text(json.dumps({"do": do, "no_start": no_start, "no_context": no_context}))

    def _new_child(self) -> SyncFramedChild:
        self.runners_started += 1
        return SyncFramedChild([sys.executable, "-c", RUNNER, str(self.told), self._levels[0]], name="pretended runner")


@pytest.fixture
def card(tmp_path: Path):
    card = PretendedCard(tmp_path / "told")
    yield card
    card.close()


def source(cubin: bytes) -> Source:
    compiled = Compiled("sm_90", "nvrtc", "k", 0, 0, 0, 0, 0, 256, 1.0, "none", 0.0, cubin=cubin)
    return Source("", "a.cu", Kernel("k", "k", (), 0, 0, 0, 0, 0), compiled=compiled)


def launch(n: int = 10, rounds: int = 1, deadline_s: float = 30.0) -> Launch:
    arguments = (
        ScalarArgument("rounds", rounds.to_bytes(4, "little")),
        BufferArgument("x", np.zeros(n, np.float32), 4, True),
    )
    return Launch((1, 1, 1), (32, 1, 1), 0, arguments, deadline_s=deadline_s)


def test_a_launch_that_is_known_gets_a_deadline_from_how_long_it_took(card: PretendedCard) -> None:
    def after(elapsed_ms: float, first: Launch, then: Launch) -> str:
        """What the runner says of `then`, which hangs after `first` has ended in this time."""
        text = source(repr((elapsed_ms, first.deadline_s, then.arguments)).encode())
        card.tell(str(elapsed_ms))
        assert isinstance(card.run_once(text, first), Ran)
        card.tell("hang")
        result = card.run_once(text, then)
        assert isinstance(result, Faulted) and result.hazard == "timeout"
        return result.where

    assert after(0.01, launch(), launch()) == "not done after 2 s"
    assert after(500.0, launch(), launch()) == "not done after 10 s"
    assert after(9000.0, launch(), launch()) == "not done after 30 s"
    assert after(0.01, launch(), launch(deadline_s=1.0)) == "not done after 1 s"
    assert after(0.01, launch(), launch(n=11)) == "not done after 30 s"
    assert after(0.01, launch(), launch(rounds=2)) == "not done after 30 s"


def test_a_text_that_was_killed_twice_is_not_run_again_and_others_are(card: PretendedCard) -> None:
    card.tell("hang")
    for _ in range(2):
        assert "not done" in card.run_once(source(b"bad"), launch()).where
    started = card.runners_started
    third = card.run_once(source(b"bad"), launch())
    assert isinstance(third, Faulted) and third.where == "not run again: it had to be killed 2 times"
    assert card.runners_started == started
    card.tell("0.1")
    assert isinstance(card.run_once(source(b"good"), launch()), Ran)


def test_what_takes_from_the_heap_leaves_it_to_nobody_else(card: PretendedCard) -> None:
    card.tell("0.1")
    pids = []
    for cubin in (
        b"plain",
        b"other",
        b"with malloc",
        b"with malloc",
        b"plain",
        b"other",
        b"malloc too",
        b"with malloc",
    ):
        assert isinstance(card.run_once(source(cubin), launch()), Ran)
        pids.append(card.runner_pid)
    assert [first == second for first, second in zip(pids, pids[1:], strict=False)] == [
        True, True, True, False, True, True, False,
    ]  # fmt: skip


def test_ten_deaths_in_a_row_cost_no_other_kernel(card: PretendedCard) -> None:
    pids = set()
    for number in range(10):
        card.tell("die" if number % 2 else "hang")
        result = card.run_once(source(bytes([number])), launch())
        assert isinstance(result, Faulted) and result.hazard == ("fault" if number % 2 else "timeout")
        card.tell("0.1")
        assert isinstance(card.run_once(source(b"good"), launch()), Ran)
        pids.add(card.runner_pid)
    assert len(pids) == 10
    card.close()
    assert not [pid for pid in pids if os.path.exists(f"/proc/{pid}")]


def test_a_driver_that_does_not_start_confined_gets_less_and_it_is_said(card: PretendedCard) -> None:
    card.tell("0.1")
    assert card.start() is None and card.isolation == "landlock" and card.runners_started == 1
    card.close()
    for refused, said in (
        (("landlock",), "seccomp (the driver does not work under landlock)"),
        (("landlock", "seccomp"), "limits (the driver does not work under landlock or seccomp)"),
    ):
        other = PretendedCard(card.told)
        other.tell("0.1", no_start=refused)
        assert other.start() is None and other.isolation == said
        other.close()
    hopeless = PretendedCard(card.told)
    hopeless.tell("0.1", no_start=("landlock", "seccomp", "limits"))
    assert hopeless.start() == "cuda-core cannot use the GPU: no start under landlock"
    assert hopeless.runner_pid is None


def test_a_driver_that_gives_no_context_confined_gets_less(card: PretendedCard) -> None:
    card.tell("0.1")
    assert card.start() is None
    card.tell("0.1", no_context=("landlock",))
    assert isinstance(card.run_once(source(b"good"), launch()), Ran)
    assert card.isolation == "seccomp (the driver does not work under landlock)"
    # What ran in a context cannot talk the next runner out of its confinement.
    card.tell("die")
    assert isinstance(card.run_once(source(b"bad"), launch()), Faulted)
    card.tell("cuCtxCreate failed", no_context=("seccomp",))
    refused = card.run_once(source(b"good"), launch())
    assert isinstance(refused, NotSupported) and refused.reason == "the GPU gives no context: cuCtxCreate failed"
    assert card.isolation == "seccomp (the driver does not work under landlock)"


def test_a_driver_that_works_with_limits_alone_is_found_so(card: PretendedCard) -> None:
    card.tell("0.1")
    assert card.start() is None
    card.tell("0.1", no_context=("landlock",), no_start=("seccomp",))
    assert isinstance(card.run_once(source(b"good"), launch()), Ran)
    assert card.isolation == "limits (the driver does not work under landlock or seccomp)"


def test_a_full_card_is_no_reason_to_confine_less(card: PretendedCard) -> None:
    card.tell("0.1")
    assert card.start() is None
    card.tell("cuCtxCreate failed with CUDA error 2 (CUDA_ERROR_OUT_OF_MEMORY)", no_context=("landlock",))
    assert isinstance(card.run_once(source(b"good"), launch()), NotSupported)
    assert card.isolation == "landlock"


def test_the_level_can_be_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DICE_LSP_CONFINE", "seccomp")
    card = PretendedCard(tmp_path / "told")
    card.tell("0.1")
    assert card.start() is None and card.isolation == "seccomp (DICE_LSP_CONFINE=seccomp)"
    card.close()


def test_a_job_waits_for_the_card_and_says_who_has_it(
    card: PretendedCard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DICE_LSP_LEASES", str(tmp_path / "leases"))
    monkeypatch.setattr(worker_main, "LEASE_WAIT_S", 0.5)
    card.tell("0.1")
    assert card.start() is None
    worker = worker_main.Worker()
    worker._gpu = card
    text = (
        "//dice: n = 33; out x[n]; launch <<<1, 64>>>\n"
        "__global__ void k(float* x, int n) { if (threadIdx.x < n) x[threadIdx.x] = 1.0f; }\n"
    )
    model = parse(text)
    order = JudgeJob(text, "/nowhere/a.cu", model.kernels[0], launch_spec(text, model.kernels[0], model), arch="sm_90")
    said: list[dict] = []

    def judged() -> Judged:
        return from_wire(worker.judge({"settings": {}, "job": to_wire(order)}, Job(1, said.append)), Judged)

    words = f"the GPU is in use by process {os.getpid()} (dice-lsp, a fill)"
    with Lease("12").hold("a fill", wait_s=0):
        refused = judged()
    assert isinstance(refused.build, Compiled), refused.build
    assert isinstance(refused.verdict, Unverified) and refused.verdict.reason == f"{words}: try again"
    assert isinstance(refused.timing, NotTimed) and refused.timing.reason == refused.verdict.reason
    assert f"waiting for the GPU, which is in use by {words.partition(' by ')[2]}" in [
        message["data"] for message in said if message["event"] == "progress"
    ]
    ran = judged()
    assert "in use" not in str(ran.verdict) and ran.evidence.isolation == "landlock"
    with Lease("12").hold("a fill", wait_s=0):
        only_compiled = from_wire(
            worker.judge(
                {"settings": {}, "job": to_wire(evolve(order, verify=False, benchmark=False))}, Job(2, said.append)
            ),
            Judged,
        )
    assert isinstance(only_compiled.build, Compiled) and only_compiled.evidence.isolation == ""
