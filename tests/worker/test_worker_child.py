"""The worker as a child of the loop: it answers, it is cancelled, it hangs, it dies, and nothing else is lost."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from attrs import evolve

from dice_lsp import process
from dice_lsp.config import Settings
from dice_lsp.records import (
    Compiled,
    CompileFailed,
    Judged,
    JudgeJob,
    LaunchSpec,
    NotCompared,
    NotCompiled,
    NotTimed,
    Unsafe,
    Unverified,
    Verified,
    to_wire,
)
from dice_lsp.source.kernels import parse
from dice_lsp.source.launches import launch_spec
from dice_lsp.worker.__main__ import MEMORY_EXIT, launch_figures
from dice_lsp.worker.benchmark import NO_GPU
from dice_lsp.worker.client import _EXITS, MAX_DEATHS, WorkerClient, worker_environment
from dice_lsp.worker.compile import CompileJob

DATA = Path(__file__).parent.parent / "data" / "compile"

SCALE = """
void scale_cpu(const float* x, float* y, int n) {
    for (int i = 0; i < n; ++i) y[i] = 2.0f * x[i];
}
//dice: n = 1000 | 33; launch <<<cdiv(n, 128), 128>>>; ref scale_cpu
__global__ void scale(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2.0f * x[i];
}
"""
ENDLESS = SCALE.replace("if (i < n) y", "volatile int z = 0; while (z == 0) { }\n    if (i < n) y")
SLOW = (
    "__global__ void slow(float* x) {\n"
    + "".join(
        f"  x[{i}] = sinf(x[{i + 1}] * {i}.5f) / x[{i + 2}] + powf(x[{i + 3}], x[{i + 4}]);\n" for i in range(6000)
    )
    + "}\n"
)


@pytest.fixture
async def client() -> AsyncIterator[WorkerClient]:
    made = WorkerClient(Settings(backend="host"))
    await made.start()
    yield made
    await made.close()


def job(text: str, **options: Any) -> JudgeJob:
    model = parse(text)
    kernel = model.kernels[-1]
    return JudgeJob(text, "scale.cu", kernel, launch_spec(text, kernel, model), **options)


def compile_order(text: str, **options: Any) -> Any:
    return to_wire(CompileJob(text, "file.cu", parse(text).kernels, **options))


async def test_hello_says_what_is_here(client: WorkerClient) -> None:
    hello = await client.hello()
    assert hello["nvrtc"] and hello["headers"] and hello["backend"] == "host" and hello["pid"] == client.pid
    assert hello["host"]["compiler"] and isinstance(hello["devices"], list)
    assert hello["no_device"] == "the host was chosen" and client.starts == 1


async def test_a_kernel_is_judged_with_its_events(client: WorkerClient) -> None:
    events: list[tuple[str, Any]] = []
    judged = await client.judge(job(SCALE), lambda event, value: events.append((event, value)))
    assert isinstance(judged.build, Compiled) and judged.build.block_threads == 128 and judged.build.cubin == b""
    assert isinstance(judged.verdict, Verified) and judged.verdict.reference == "scale_cpu"
    assert isinstance(judged.timing, NotTimed)
    names = [name for name, _ in events if name != "progress"]
    assert names == ["build", "verdict", "timing"]
    assert dict(events)["build"] == judged.build and dict(events)["verdict"] == judged.verdict
    evidence = judged.evidence
    assert len(evidence.key) == len(evidence.slice_key) == 32 and evidence.device == "host"
    assert evidence.toolkit.startswith("nvrtc") and evidence.when.endswith("+00:00")


async def test_evidence_follows_the_text_and_the_launch(client: WorkerClient) -> None:
    first = (await client.judge(job(SCALE, verify=False))).evidence
    again = (await client.judge(job("// more\n" + SCALE + "int main() {}\n", verify=False))).evidence
    assert (again.key, again.slice_key) == (first.key, first.slice_key)
    launch = (await client.judge(job(SCALE.replace("33", "34"), verify=False))).evidence
    assert launch.slice_key == first.slice_key and launch.key != first.key
    reference = (await client.judge(job(SCALE.replace("i = 0; i < n", "i = 0; i != n"), verify=False))).evidence
    assert reference.slice_key == first.slice_key and reference.key != first.key
    text = (
        await client.judge(job(SCALE.replace("y[i] = 2.0f * x[i];\n}\n", "y[i] = x[i] * 2.0f;\n}\n"), verify=False))
    ).evidence
    assert text.slice_key == first.slice_key or text.key != first.key


async def test_a_text_that_does_not_compile_is_a_value(client: WorkerClient) -> None:
    judged = await client.judge(job(SCALE.replace("if (i < n) y", "if (i < m) y")))
    assert isinstance(judged.build, CompileFailed) and judged.build.errors[0].line == 7
    assert isinstance(judged.verdict, Unverified) and client.starts == 1


async def test_builds_of_a_whole_file(client: WorkerClient) -> None:
    text = (DATA / "vector_add.cu").read_text()
    builds = await client.compile(compile_order(text))
    (build,) = builds.values()
    assert list(builds) == ["addVectors"] and isinstance(build, Compiled) and build.cubin.startswith(b"\x7fELF")


async def test_a_compile_that_does_not_end_is_ended(client: WorkerClient) -> None:
    builds = await client.compile(compile_order(SLOW), deadline_s=0.3)
    assert builds == {"slow": NotCompiled("the compiler did not end within 0.3 s")}
    await client.hello()
    (kernel,) = parse(SLOW).kernels
    judged = await client.judge(JudgeJob(SLOW, "slow.cu", kernel, LaunchSpec("slow"), compile_deadline_s=0.3))
    assert judged.build == NotCompiled("the compiler did not end within 0.3 s")
    assert judged.verdict == Unverified("the compiler did not end within 0.3 s")
    assert isinstance((await client.judge(job(SCALE))).verdict, Verified)
    assert client.starts >= 2


async def test_a_text_that_ends_the_worker_is_not_tried_for_ever(client: WorkerClient) -> None:
    for _ in range(MAX_DEATHS):
        await client.hello()
        builds = await client.compile(compile_order(SLOW), deadline_s=0.2)
        assert isinstance(builds["slow"], NotCompiled)
    starts = client.starts
    (build,) = (await client.compile(compile_order(SLOW), deadline_s=0.2)).values()
    assert isinstance(build, NotCompiled) and "is not tried again" in build.reason
    assert client.starts == starts


async def test_a_killed_worker_leaves_values_and_is_replaced(client: WorkerClient) -> None:
    def kill(event: str, value: object) -> None:
        if event == "build":
            assert client.pid is not None
            os.kill(client.pid, signal.SIGKILL)

    lost, kept = await asyncio.gather(client.judge(job(SCALE), kill), client.judge(job(SCALE)))
    assert isinstance(lost.build, Compiled) and lost.verdict == Unverified("the worker was ended by SIGKILL")
    assert lost.evidence.slice_key == kept.evidence.slice_key and lost.evidence.key == ""
    assert isinstance(kept.verdict, Verified) and client.starts == 2


async def test_an_endless_kernel_is_refused_after_two_runs(client: WorkerClient) -> None:
    verdicts = [(await client.judge(job(ENDLESS, run_deadline_s=0.3))).verdict for _ in range(3)]
    assert [type(verdict) for verdict in verdicts] == [Unsafe, Unsafe, Unverified]
    assert isinstance(verdicts[0], Unsafe) and verdicts[0].hazard == "timeout"
    assert isinstance(verdicts[2], Unverified) and "2 runs of this text had to be killed" in verdicts[2].reason
    assert isinstance((await client.judge(job(SCALE))).verdict, Verified)


async def test_a_cancelled_judge_ends_and_the_next_one_is_answered(client: WorkerClient) -> None:
    started = asyncio.Event()

    def heard(event: str, value: object) -> None:
        started.set()

    task = asyncio.create_task(client.judge(job(ENDLESS, run_deadline_s=600.0), heard))
    await asyncio.wait_for(started.wait(), 120)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    # Before the run that was cancelled would have ended by itself.
    assert isinstance((await asyncio.wait_for(client.judge(job(SCALE)), 240)).verdict, Verified)


async def test_a_cancelled_compile_costs_no_other_job(client: WorkerClient) -> None:
    task = asyncio.create_task(client.compile(compile_order(SLOW)))
    await asyncio.sleep(0.3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert isinstance((await client.judge(job(SCALE))).verdict, Verified)


async def test_what_only_compiles_does_not_wait_for_what_runs(client: WorkerClient) -> None:
    alone = await client.judge(job(SCALE, verify=False, benchmark=False))
    running = asyncio.Event()
    long = asyncio.create_task(client.judge(job(ENDLESS, run_deadline_s=20.0), lambda *_: running.set()))
    try:
        await asyncio.wait_for(running.wait(), 120)
        beside = await client.judge(job(SCALE, verify=False, benchmark=False))
        builds = await client.compile(compile_order(SCALE))
        assert not long.done()
    finally:
        long.cancel()
        await asyncio.gather(long, return_exceptions=True)
    assert isinstance(beside.build, Compiled) and isinstance(alone.build, Compiled)
    assert isinstance(builds["scale"], Compiled) and builds["scale"].registers == alone.build.registers
    assert evolve(beside.build, elapsed_ms=0) == evolve(alone.build, elapsed_ms=0)
    assert evolve(beside.evidence, when="") == evolve(alone.evidence, when="")
    assert (beside.verdict, beside.timing) == (alone.verdict, alone.timing)


async def test_a_compile_that_is_ended_or_cancelled_costs_no_judgement_beside_it(client: WorkerClient) -> None:
    pid = client.pid
    async with client._judging.turn():  # as long as a judgement may take
        await client.compile(compile_order(SCALE))
        builds = await client.compile(compile_order(SLOW), deadline_s=0.3)
        assert builds == {"slow": NotCompiled("the compiler did not end within 0.3 s")}
        cancelled = asyncio.create_task(client.compile(compile_order(SLOW)))
        await asyncio.sleep(0.3)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        (build,) = (await client.compile(compile_order(SCALE))).values()
        assert isinstance(build, Compiled)
    assert client.pid == pid and client.starts == 1
    assert isinstance((await client.judge(job(SCALE))).verdict, Verified) and client.pid == pid


async def test_code_is_handed_out_only_to_those_who_keep_it(client: WorkerClient) -> None:
    kept = (await client.judge(job(SCALE, verify=False, benchmark=False, keep_code=True))).build
    light = (await client.judge(job(SCALE, verify=False, benchmark=False))).build
    assert isinstance(kept, Compiled) and kept.cubin.startswith(b"\x7fELF") and kept.symbol.encode() in kept.cubin
    assert evolve(kept, cubin=b"", elapsed_ms=0) == evolve(light, elapsed_ms=0)  # type: ignore[type-var]


async def test_kept_code_is_a_rival_and_never_a_reference(client: WorkerClient) -> None:
    kept = (await client.judge(job(SCALE, verify=False, benchmark=False, keep_code=True))).build
    assert isinstance(kept, Compiled)
    model = parse(SCALE)
    rival = {"baseline_build": kept, "baseline_kernel": model.kernels[-1]}
    judged = await client.judge(job(SCALE, **rival))
    assert isinstance(judged.verdict, Verified) and judged.verdict.reference == "scale_cpu"
    assert judged.comparison == NotCompared(NO_GPU) and isinstance(judged.build, Compiled)
    # Without a reference of its own a kernel stays unverified: machine code says nothing about what is right.
    alone = SCALE[SCALE.index("//dice") :].replace("; ref scale_cpu", "")
    unsure = await client.judge(job(alone, **rival))
    assert isinstance(unsure.verdict, Unverified) and unsure.verdict == (await client.judge(job(alone))).verdict


async def test_two_clients_do_not_meet(client: WorkerClient) -> None:
    other = WorkerClient(Settings(), env=worker_environment(DICE_LSP_BACKEND="host"))
    try:
        results = await asyncio.gather(*(c.judge(job(SCALE)) for c in (client, other) for _ in range(2)))
        assert all(isinstance(result.verdict, Verified) for result in results)
        assert client.pid != other.pid and other.starts == 1
        assert (await other.hello())["backend"] == "host"
    finally:
        await other.close()


async def test_nothing_is_left_after_closing() -> None:
    made = WorkerClient(Settings(backend="host"))
    await made.start()
    assert made._warming is not None
    await made._warming
    assert made.pid is not None and made._compiling.child.pid is not None
    children = [psutil.Process(pid) for pid in (made.pid, made._compiling.child.pid)]
    family = [*children, *(member for child in children for member in child.children(recursive=True))]
    await made.close()
    assert made.pid is None
    assert not any(member.is_running() and member.status() != psutil.STATUS_ZOMBIE for member in family)


async def test_a_client_that_is_closed_while_it_starts_ends_too() -> None:
    for delay_s in (0.0, 0.01, 0.3):
        made = WorkerClient(Settings(backend="host"))
        await made.start()
        await asyncio.sleep(delay_s)
        await asyncio.wait_for(made.close(), 120)
        assert made.pid is None and made._compiling.child.pid is None


async def test_a_worker_that_cannot_start_is_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    made = WorkerClient(Settings())
    made._judging.child.argv = ["/nonexistent/python", "-m", "dice_lsp.worker"]
    judged = await made.judge(job(SCALE))
    assert isinstance(judged, Judged) and isinstance(judged.build, NotCompiled)
    assert "could not be started" in judged.build.reason


def test_a_worker_that_grows_beyond_bounds_ends_itself() -> None:
    code = "import dice_lsp.worker.__main__ as m; m.MEMORY_LIMIT_BYTES = 1; m._watch_memory()"
    ended = process.run([sys.executable, "-c", code], deadline_s=60)
    assert ended.returncode == MEMORY_EXIT and b"MiB and ends" in ended.stderr
    assert str(MEMORY_EXIT) in _EXITS


def test_figures_of_a_launch() -> None:
    assert launch_figures(job(SCALE)) == (128, 0)
    text = SCALE.replace("128>>>", "{32, 8}, n * 4>>>")
    assert launch_figures(job(text)) == (256, 4000)
    assert launch_figures(job(SCALE.replace("128>>>", "4096>>>")))[0] is None
