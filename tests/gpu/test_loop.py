"""Compile, verify and time on a card: right kernels pass with both back ends, wrong and broken ones are refused by name."""

import time

import numpy as np
import pytest

from dice_lsp.records import Cheating, NotTimed, Same, Timing, Unsafe, Verified, Wrong, kind_of
from dice_lsp.worker.benchmark import OUTPUTS_CHANGED
from dice_lsp.worker.launch import Faulted, Guard, Ran
from tests.gpu.support import (
    HISTOGRAM,
    REDUCTION,
    SAXPY_BODY,
    TIMED,
    TRANSPOSE,
    Bench,
    plain_launch,
    plain_source,
    record,
    saxpy,
)

KERNELS = {"saxpy": saxpy(), "block_sum": REDUCTION, "transpose": TRANSPOSE, "histogram": HISTOGRAM}


@pytest.mark.parametrize("name", KERNELS)
def test_the_loop_of_a_right_kernel(bench: Bench, name: str) -> None:
    started = time.monotonic()
    outcome = bench.judge(KERNELS[name], name, baseline=KERNELS[name])
    took_s = time.monotonic() - started
    timing = outcome.timing
    shown = f"{timing.median_us:.2f} us" if isinstance(timing, Timing) else str(timing)
    record("loop", bench.backend.kind, name, kind_of(type(outcome.verdict)), shown, kind_of(type(outcome.comparison)),
           getattr(timing, "roof", ""), f"{getattr(timing, 'roof_fraction', None) or 0:.0%}", f"{took_s:.2f} s")  # fmt: skip
    assert isinstance(outcome.verdict, Verified), outcome.verdict
    assert isinstance(timing, Timing), timing
    assert timing.cold and timing.samples >= 20 and timing.q1_us <= timing.median_us <= timing.q3_us
    assert 0 < timing.gap_us < timing.median_us and 300 < timing.sm_clock_mhz < 3000
    assert not isinstance(outcome.comparison, (type(None),)) and kind_of(type(outcome.comparison)) in (
        "same",
        "ambiguous",
    )


INDEX = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
BROKEN = {
    "writes past the end": (f"{INDEX} if (i <= n) z[i] = a * x[i < n ? i : 0] + y[i < n ? i : 0];", "out_of_bounds"),
    "writes before the start": (
        f"{INDEX} if (i < n) {{ z[i] = a * x[i] + y[i]; if (i == 0) z[-1] = 0; }}",
        "out_of_bounds",
    ),
    "reads past the end": (f"{INDEX} if (i < n) z[i] = a * x[i] + y[i] + 0 * x[i + 64];", "out_of_bounds"),
    "follows a wild pointer": (f"{INDEX} if (i < n) z[i] = *(float*)16;", "out_of_bounds"),
    "traps": ('asm volatile("trap;");', "fault"),
    "never ends": ("volatile float* v = z; while (v[0] != 12345.0f) { }", "timeout"),
    "mutates an input": (f"{INDEX} if (i < n) {{ z[i] = a * x[i] + y[i]; ((float*)x)[i] = 0; }}", "mutated_input"),
    "leaves an element unwritten": (f"{INDEX} if (i < n && i != n - 1) z[i] = a * x[i] + y[i];", "unwritten_output"),
    "writes nothing": ("", "never_launched"),
    "is off by a factor": (f"{INDEX} if (i < n) z[i] = 1.001f * a * x[i] + y[i];", "wrong"),
    "gives zeros": (f"{INDEX} if (i < n) z[i] = 0;", "wrong"),
    "gives NaN": (f'{INDEX} if (i < n) z[i] = nanf("");', "wrong"),
    "forgets every hundredth": (f"{INDEX} if (i < n) z[i] = i % 100 == 99 ? y[i] : a * x[i] + y[i];", "wrong"),
}


def small(body: str) -> str:
    return saxpy(body).replace("1M | 1000003 | 33 | 1", "4096 | 1000 | 33")


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_kernel_is_refused_with_its_own_reason(bench: Bench, what: str) -> None:
    body, expected = BROKEN[what]
    started = time.monotonic()
    verdict = bench.judge(small(body), "saxpy", benchmark=False, run_deadline_s=2.0).verdict
    took_s = time.monotonic() - started
    found = verdict.hazard if isinstance(verdict, Unsafe) else kind_of(type(verdict))
    where = verdict.where if isinstance(verdict, Unsafe | Cheating) else ""
    if isinstance(verdict, Wrong):
        where = f"z[{verdict.index}] is {verdict.got}, expected {verdict.expected}"
    started = time.monotonic()
    after = bench.judge(small(SAXPY_BODY), "saxpy", benchmark=False).verdict
    record(
        "broken",
        bench.backend.kind,
        what,
        found,
        where,
        f"{took_s:.2f} s",
        kind_of(type(after)),
        f"{time.monotonic() - started:.2f} s",
    )
    assert found == expected, verdict
    assert isinstance(after, Verified), after


@pytest.mark.parametrize("guard", Guard)
@pytest.mark.parametrize("elements", [1, 1000, 1021, 524_288])
def test_an_access_past_either_end_is_found(bench: Bench, elements: int, guard: Guard) -> None:
    text = """
    extern "C" __global__ void at(int n, float a, const float* x, const float* y, float* z) { z[n] = a; }
    """
    source = plain_source(text, bench.backend.arch, "at")
    prepared = bench.backend.prepare(source)
    (inside,) = prepared.run([plain_launch(elements - 1, elements, guard=guard)])
    assert isinstance(inside, Ran) and inside.outputs["z"][-1] == 2.0
    for index in (elements, -1):
        (result,) = prepared.run([plain_launch(index, elements, guard=guard)])
        assert isinstance(result, Faulted) and result.hazard == "out_of_bounds", result
        assert result.where == f"z[{index}] of {elements}"


def test_a_hang_is_ended_in_time_and_the_card_is_free_again(bench: Bench) -> None:
    pid = bench.backend.runner_pid
    text = TIMED.replace("clock64() - start < n", "true")
    prepared = bench.backend.prepare(plain_source(text, bench.backend.arch, "spin"))
    started = time.monotonic()
    (result,) = prepared.run([plain_launch(1, 1024, deadline_s=1.0)])
    took_s = time.monotonic() - started
    assert isinstance(result, Faulted) and result.hazard == "timeout"
    assert took_s < 4.0
    assert bench.backend.runner_pid != pid
    started = time.monotonic()
    right = bench.backend.prepare(plain_source(TIMED, bench.backend.arch, "saxpy"))
    launch = plain_launch(1000, 1000)
    (after,) = right.run([launch])
    record(
        "recovery",
        bench.backend.kind,
        "endless loop, deadline 1 s",
        f"{took_s:.2f} s",
        f"{time.monotonic() - started:.2f} s",
    )
    assert isinstance(after, Ran)
    np.testing.assert_allclose(
        after.outputs["z"], 2 * launch.arguments[2].initial + launch.arguments[3].initial, rtol=1e-5, atol=1e-6
    )
    # Twice killed, the text is not run again; another kernel is.
    prepared.run([plain_launch(1, 1024, deadline_s=1.0)])
    started = time.monotonic()
    (third,) = prepared.run([plain_launch(1, 1024, deadline_s=1.0)])
    assert isinstance(third, Faulted) and "not run again" in third.where and time.monotonic() - started < 0.1
    assert isinstance(right.run([launch])[0], Ran)


def test_a_kernel_that_keeps_its_answer_is_found_out_when_timed(bench: Bench) -> None:
    body = f"static __device__ int runs; {INDEX} if (runs > 500) return; if (i == 0) runs += 1; {SAXPY_BODY.split(';', 1)[1]}"
    judged = bench.judge(saxpy(body), "saxpy")
    record(
        "broken",
        bench.backend.kind,
        "keeps its answer",
        kind_of(type(judged.verdict)),
        getattr(judged.verdict, "where", ""),
        "",
        "",
        "",
    )
    assert isinstance(judged.verdict, Cheating), judged
    assert isinstance(judged.timing, NotTimed) and judged.timing.reason.startswith(OUTPUTS_CHANGED), judged.timing
    assert kind_of(type(judged.comparison)) == "not_compared"


def test_the_same_verdicts_whichever_library_runs_them(bench: Bench) -> None:
    """Runs after the tests above have judged the same texts with both back ends."""
    from tests.gpu.support import rows

    verdicts: dict[str, set[str]] = {}
    for kind, name, verdict, *_ in rows("loop"):
        verdicts.setdefault(name, set()).add(verdict)
    for kind, what, found, *_ in rows("broken"):
        verdicts.setdefault(what, set()).add(found)
    assert verdicts and all(len(found) == 1 for found in verdicts.values()), verdicts


def test_more_shared_memory_than_the_default(bench: Bench) -> None:
    text = """
    extern "C" __global__ void far(int n, float a, const float* x, const float* y, float* z) {
        extern __shared__ float s[];
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        s[20000 + threadIdx.x] = a;
        __syncthreads();
        if (i < n) z[i] = s[20000 + (threadIdx.x ^ 1)];
    }
    """
    prepared = bench.backend.prepare(plain_source(text, bench.backend.arch, "far"))
    (result,) = prepared.run([plain_launch(1000, 1000, smem_bytes=90_000)])
    assert isinstance(result, Ran) and (result.outputs["z"] == 2.0).all()
    (result,) = prepared.run([plain_launch(1000, 1000, smem_bytes=300_000)])
    assert isinstance(result, Faulted) and "launch refused" in result.where, result


def test_a_structure_by_value_arrives_whole(bench: Bench) -> None:
    from dice_lsp.worker.launch import BufferArgument, Launch, ScalarArgument

    text = """
    struct Big { double d; int i; float f[5]; };
    extern "C" __global__ void fields(char first, Big big, float* z)
    { z[0] = first; z[1] = big.d; z[2] = big.i; for (int k = 0; k < 5; k++) z[3 + k] = big.f[k]; }
    """
    big = np.float64(1.5).tobytes() + np.int32(7).tobytes() + np.arange(5, dtype=np.float32).tobytes()
    arguments = (
        ScalarArgument("first", np.int8(3).tobytes()),
        ScalarArgument("big", big),
        BufferArgument("z", np.zeros(8, np.float32), 4, True),
    )
    prepared = bench.backend.prepare(plain_source(text, bench.backend.arch, "fields"))
    (result,) = prepared.run([Launch((1, 1, 1), (1, 1, 1), 0, arguments)])
    assert isinstance(result, Ran), result
    assert result.outputs["z"].tolist() == [3, 1.5, 7, 0, 1, 2, 3, 4]


def test_same_is_said_of_the_same(bench: Bench) -> None:
    outcome = bench.judge(saxpy(), "saxpy", baseline=saxpy())
    assert isinstance(outcome.comparison, Same), outcome.comparison


DEEP = """
__device__ __noinline__ float deep(int n, volatile float* z) {
    volatile float kept[64];
    kept[n & 63] = z[0];
    return n > 0 ? deep(n - 1, z) + kept[n & 63] : kept[0];
}
"""
LARGE = "wants buffers larger than the card"
"""It is right, and compared in sizes that fit; only the size that is timed does not."""
STRESS = {
    "hangs": small("volatile float* v = z; while (v[0] != 12345.0f) { }"),
    "follows a wild pointer": small(f"{INDEX} if (i < n) z[i] = *(float*)16;"),
    "takes the heap until there is none": small(f"{INDEX} int k = 0; while (malloc(1 << 16)) k++; if (i < n) z[i] = k;"),
    "traps": small('asm volatile("trap;");'),
    "has half a megabyte of local arrays": small(
        f"{INDEX} volatile char kept[500000]; for (int k = 0; k < 500000; k += 4096) kept[k] = k; if (i < n) z[i] = kept[n];"
    ),
    "hangs at a barrier": small("if (threadIdx.x == 0) { while (*(volatile float*)z != 12345.0f) { } } __syncthreads();"),
    "calls itself without end": DEEP + small(f"{INDEX} if (i < n) z[i] = deep(1 << 24, z);"),
    LARGE: saxpy().replace("1M | 1000003 | 33 | 1", "40000000000").replace("int ", "long long "),
    "reads a misaligned address": small(f"{INDEX} if (i < n) z[i] = *(const float*)((const char*)x + 4 * (i / 2) + 1);"),
    "prints a hundred megabytes": small(
        f'{INDEX} for (int k = 0; k < 400; k++) printf("%d of a hundred thousand lines is this one\\n", k); z[i < n ? i : 0] = 0;'
    ),
}  # fmt: skip


def listed_on(bench: Bench) -> set[int]:
    """Processes that hold a context on the card, as NVML knows them."""
    import pynvml

    pynvml.nvmlInit()
    assert bench.backend.info is not None
    handle = pynvml.nvmlDeviceGetHandleByPciBusId(bench.backend.info.attributes["bus_id"].encode())
    return {process.pid for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)}


def test_ten_kernels_that_hang_fault_or_exhaust_in_a_row(bench: Bench) -> None:
    assert isinstance(bench.judge(small(SAXPY_BODY), "saxpy", benchmark=False).verdict, Verified)
    runners = {bench.backend.runner_pid}
    for what, text in STRESS.items():
        started = time.monotonic()
        judged = bench.judge(text, "saxpy", benchmark=what == LARGE, run_deadline_s=1.0)
        verdict = judged.timing if what == LARGE else judged.verdict
        took_s = time.monotonic() - started
        runners.add(bench.backend.runner_pid)
        started = time.monotonic()
        after = bench.judge(small(SAXPY_BODY), "saxpy", benchmark=False).verdict
        next_s = time.monotonic() - started
        runners.add(bench.backend.runner_pid)
        found = f"{verdict.hazard}: {verdict.where}" if isinstance(verdict, Unsafe) else str(verdict)[:80]
        record("stress", bench.backend.kind, what, found, f"{took_s:.2f} s", kind_of(type(after)), f"{next_s:.2f} s")
        assert not isinstance(verdict, (Verified, Timing)), (what, verdict)
        assert isinstance(after, Verified), (what, after)
        # The goal is 3 s and the table says what it was; a machine under load may take longer.
        assert next_s < 10, what
    orphans = listed_on(bench) & (runners - {bench.backend.runner_pid})
    record("stress", bench.backend.kind, "all ten", f"{len(runners)} runners", "", f"{len(orphans)} orphans", "")
    assert not orphans and bench.backend._held_by is None
