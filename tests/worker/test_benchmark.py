"""The arithmetic of timings: what is claimed from samples, what is left out, and what a device could do at best."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from attrs import evolve

from dice_lsp.records import (
    Ambiguous,
    BufferSpec,
    Cheating,
    Compiled,
    Dim,
    Faster,
    JudgeJob,
    Kernel,
    LaunchSpec,
    NotCompared,
    NotTimed,
    Origin,
    Parameter,
    Role,
    Same,
    Slower,
    Timing,
    Unsafe,
)
from dice_lsp.source.kernels import parse
from dice_lsp.worker import roofline
from dice_lsp.worker.arguments import Bound, bind
from dice_lsp.worker.benchmark import (
    NO_GPU,
    OUTPUTS_CHANGED,
    REMEMBERS,
    SAME_CODE,
    TIMED_RUN_FAILED,
    TOO_FAST,
    benchmark,
    changed_output,
    compare,
    downgraded,
    keep,
    net,
    ratio_interval,
    summarize,
)
from dice_lsp.worker.compile import CompileJob, Compiler
from dice_lsp.worker.device import (
    DeviceInfo,
    GpuBackend,
    Samples,
    TimedBuffer,
    TimedOutput,
    TimingOrder,
    Unloadable,
)
from dice_lsp.worker.launch import BufferArgument, Launch, NotSupported, Ran, Source
from dice_lsp.worker.stopwatch import Costs, plan_samples

H200 = {
    "capability": [9, 0],
    "multiprocessors": 132,
    "sm_clock_khz": 1_980_000,
    "memory_clock_khz": 3_201_000,
    "bus_bits": 6016,
    "l2_bytes": 62_914_560,
}
PLAN = {
    "target_us": 1000.0,
    "most_launches": 64,
    "budget_s": 1.0,
    "most_budget_s": 10.0,
    "least_samples": 20,
    "most_samples": 40,
}


def times(median_us: float, count: int = 30, noise: float = 0.002, seed: int = 0) -> list[float]:
    rng = np.random.default_rng(seed)
    return list(median_us * (1 + noise * rng.standard_normal(count)))


def test_a_clear_difference_is_named_with_its_interval() -> None:
    verdict = compare(times(10.0, seed=1), times(14.2, seed=2), floor_us=0.8)
    assert isinstance(verdict, Faster)
    assert verdict.low < 1.42 < verdict.high and verdict.ratio == pytest.approx(1.42, rel=0.005)
    verdict = compare(times(14.2, seed=1), times(10.0, seed=2), floor_us=0.8)
    assert isinstance(verdict, Slower) and verdict.ratio == pytest.approx(1 / 1.42, rel=0.005)


def test_three_percent_are_found_and_none_are_invented() -> None:
    assert all(
        isinstance(compare(times(30, seed=s), times(30.9, seed=s + 99), floor_us=0.8), Faster) for s in range(20)
    )
    assert all(isinstance(compare(times(30, seed=s), times(30, seed=s + 99), floor_us=0.8), Same) for s in range(30))


def test_a_difference_at_the_resolution_is_not_settled() -> None:
    verdict = compare(times(30, noise=0.004, seed=3), times(30.15, noise=0.004, seed=4), floor_us=0.8)
    assert isinstance(verdict, Ambiguous) and "too close" in verdict.reason


def test_no_difference_below_a_step_of_the_timer_is_one() -> None:
    """20 ns of 2 us are one percent, and less than the card's timer tells apart."""
    assert isinstance(compare(times(2.0, noise=5e-4), times(2.02, noise=5e-4, seed=1), floor_us=0.5), Same)
    assert isinstance(compare(times(2.0, noise=5e-4), times(2.06, noise=5e-4, seed=1), floor_us=0.5), Faster)
    assert isinstance(compare(times(2.06, noise=5e-4), times(2.0, noise=5e-4, seed=1), floor_us=0.5), Slower)
    assert isinstance(compare(times(2.0, noise=0.01), times(2.025, noise=0.01, seed=1), floor_us=0.5), Ambiguous)


def test_single_launches_tell_less_apart_than_rows() -> None:
    own, rival = times(20.0, noise=5e-4), times(20.12, noise=5e-4, seed=1)
    assert isinstance(compare(own, rival, floor_us=0.5, method="single"), Same)
    assert isinstance(compare(own, rival, floor_us=0.5, method="graph"), Faster)
    assert isinstance(compare(own, times(20.6, noise=5e-4, seed=1), floor_us=0.5, method="single"), Faster)


def test_drifts_that_hit_both_do_not_hide_a_difference() -> None:
    drift = np.linspace(1.0, 1.08, 40)
    own, rival = np.array(times(20, 40)) * drift, np.array(times(21, 40, seed=9)) * drift
    assert isinstance(compare(own, rival, floor_us=0.8), Faster)


def test_launch_bound_and_scattered_times_claim_nothing() -> None:
    verdict = compare(times(1.2), times(1.5, seed=2), floor_us=0.8)
    assert isinstance(verdict, Ambiguous) and verdict.reason.startswith("launch-bound") and verdict.ratio is not None
    verdict = compare(times(10, noise=0.2), times(14, noise=0.2, seed=1), floor_us=0.8)
    assert isinstance(verdict, Ambiguous) and "scatter" in verdict.reason
    # One of the two beyond the floor is a real difference.
    assert isinstance(compare(times(1.2), times(9.0, seed=2), floor_us=0.8), Faster)


def test_a_clock_that_moved_more_than_the_times_differ_settles_nothing() -> None:
    clocks = [1980.0] * 15 + [1600.0] * 15
    assert isinstance(compare(times(20), times(20.6, seed=5), floor_us=0.8, clock_mhz=clocks), Ambiguous)
    assert isinstance(compare(times(20), times(40, seed=5), floor_us=0.8, clock_mhz=clocks), Faster)


def test_a_difference_has_to_be_one_of_clock_cycles_too() -> None:
    own, rival = times(20.0, seed=1), times(20.6, seed=2)
    level, slower = [1980.0] * 30, [1980.0 / 1.03] * 30
    assert isinstance(compare(own, rival, floor_us=0.8, speeds_mhz=(level, level)), Faster)
    # The rival ran at a lower clock: it is its clock that takes longer.
    doubt = compare(own, rival, floor_us=0.8, speeds_mhz=(level, slower))
    assert isinstance(doubt, Ambiguous) and "1.030x in time but 1.000x in clock cycles" in doubt.reason
    doubt = compare(rival, own, floor_us=0.8, speeds_mhz=(slower, level))
    assert isinstance(doubt, Ambiguous) and "clock cycles" in doubt.reason
    assert isinstance(compare(rival, own, floor_us=0.8, speeds_mhz=(level, level)), Slower)
    # A clock that falls for both in the same way is none of a reason.
    falling = list(np.linspace(1980.0, 1500.0, 30))
    stretched = [
        [time * 1980.0 / clock for time, clock in zip(column, falling, strict=True)] for column in (own, rival)
    ]
    assert isinstance(compare(*stretched, floor_us=0.8, clock_mhz=falling, speeds_mhz=(falling, falling)), Ambiguous)
    gently = list(np.linspace(1980.0, 1900.0, 30))
    stretched = [[time * 1980.0 / clock for time, clock in zip(column, gently, strict=True)] for column in (own, rival)]
    assert isinstance(compare(*stretched, floor_us=0.8, clock_mhz=gently, speeds_mhz=(gently, gently)), Faster)
    # A card that does not tell its clocks is believed as before.
    nothing: list[float | None] = [None] * 30
    assert isinstance(compare(own, rival, floor_us=0.8, speeds_mhz=(nothing, nothing)), Faster)


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    hits = 0
    for seed in range(200):
        _, low, high = ratio_interval(times(10.4, 25, 0.02, seed), times(10.0, 25, 0.02, seed + 5000), seed)
        hits += low <= 1.04 <= high
    assert 175 <= hits <= 200


def test_samples_are_left_out_for_named_reasons_only() -> None:
    kept = keep([1980.0] * 20, [0] * 18 + [0x20, 0x40])
    assert not isinstance(kept, str) and len(kept.indices) == 18 and "slowed itself down" in kept.left_out[0]
    kept = keep([1980.0] * 17 + [900.0] * 3, [0x4] * 20)
    assert not isinstance(kept, str) and len(kept.indices) == 17 and "usual clock" in kept.left_out[0]
    # Without figures nothing is left out, and the power cap is no fault.
    assert keep([None] * 5, [None] * 5).indices == (0, 1, 2, 3, 4)  # type: ignore[union-attr]
    assert "slows itself down" in str(keep([1980.0] * 20, [0x40] * 15 + [0] * 5))


def test_the_cost_of_events_is_taken_off_only_where_plausible() -> None:
    assert net([7.0, 7.2], overhead_us=2.1) == pytest.approx([4.9, 5.1])
    assert net([2.0], overhead_us=-3.0) == [2.0]
    assert net([2.0], overhead_us=900.0) == [2.0]
    assert net([2.0], overhead_us=2.1) == [0.1]  # never nothing
    assert summarize([1, 2, 3, 4, 5]).spread == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("sets", "fastest", "slowest", "lead", "expected"),
    [
        (1, 10.0, 10.0, 0.0, ([50], 1)),  # hot: launches of the one set
        (6, 5.0, 6.0, 25.0, ([18], 1)),  # whole rounds of the sets: 3 x 6
        (6, 150.0, 160.0, 50.0, ([6], 1)),  # a round is 1.3 ms: still one replay
        (6, 900.0, 950.0, 50.0, ([1] * 6, 6)),  # a round is too long: samples take parts of it in turn
        (7, 240.0, 1_200.0, 0.0, ([3, 3, 3], 3)),  # the last part is filled up, so that all weigh the same
        (1, 300_000.0, 300_000.0, 0.0, ([1], 1)),
    ],
)
def test_launches_and_sets_are_chosen_together(
    sets: int, fastest: float, slowest: float, lead: float, expected: tuple[list[int], int]
) -> None:
    plan = plan_samples(sets, Costs(fastest, slowest, lead), 2, PLAN)
    assert ([len(chunk) for chunk in plan.chunks], len(plan.chunks)) == expected
    assert {index for chunk in plan.chunks for index in chunk} == set(range(sets))
    assert 5 <= plan.samples <= 40
    if len(plan.chunks) == 1:
        counts = np.bincount(plan.chunks[0])
        assert counts.min() == counts.max()  # every set equally often


def test_the_first_sample_after_the_exchange_takes_the_first_chunk() -> None:
    plan = plan_samples(6, Costs(1000.0, 1050.0, 50.0), 1, PLAN)
    assert plan.samples == 40 and plan.exchange_at == 34 and len(plan.chunks) == 6
    assert [plan.chunk_of(sample) for sample in (0, 5, 6, 33, 34, 39)] == [0, 5, 0, 3, 0, 5]
    few = plan_samples(1, Costs(2e6, 2e6, 0.0), 1, PLAN)
    assert few.samples == 5 and few.exchange_at == 4


def test_slow_kernels_get_fewer_samples_but_at_least_twenty_where_ten_seconds_allow() -> None:
    def samples(us: float, programs: int) -> int:
        return plan_samples(1, Costs(us, us, 0.5 * us), programs, PLAN).samples

    assert [samples(us, 1) for us in (10.0, 50_000.0, 2_000_000.0)] == [40, 20, 5]
    # A sample of two programs is the mean of two or four replays of each, so fewer say as much.
    assert [samples(us, 2) for us in (10.0, 50_000.0, 2_000_000.0)] == [40, 10, 3]


def test_peaks_of_a_known_card_are_its_datasheet() -> None:
    peaks = roofline.peaks(H200)
    assert peaks.bytes_per_us * 1e6 == pytest.approx(4.8e12, rel=0.01)
    assert peaks.flops_per_us["f32"] * 1e6 == pytest.approx(67e12, rel=0.01)
    assert peaks.flops_per_us["f64"] * 1e6 == pytest.approx(33.5e12, rel=0.01)
    assert peaks.flops_per_us["f16tc"] * 1e6 == pytest.approx(1.07e15, rel=0.01)  # at the highest clock
    a100 = roofline.peaks(
        {
            "capability": [8, 0],
            "multiprocessors": 108,
            "sm_clock_khz": 1_410_000,
            "memory_clock_khz": 1_215_000,
            "bus_bits": 5120,
        }
    )
    assert a100.bytes_per_us * 1e6 == pytest.approx(1.555e12, rel=0.01)
    assert a100.flops_per_us["f32"] * 1e6 == pytest.approx(19.5e12, rel=0.01)
    assert a100.flops_per_us["f16tc"] * 1e6 == pytest.approx(312e12, rel=0.01)


def pointer(name: str, const: bool = True) -> Parameter:
    return Parameter(name, "const float*" if const else "float*", "float", True, const, 1)


KERNEL = Kernel(
    "saxpy", "saxpy",
    (Parameter("n", "int", "int", False, False), Parameter("a", "float", "float", False, False), pointer("x"), pointer("y", False)),
    0, 0, 0, 0, 0,
)  # fmt: skip
SPEC = LaunchSpec(
    "saxpy",
    dims=(Dim("n", (4096, 33), Origin.DIRECTIVE),),
    buffers=(
        BufferSpec("x", Role.IN, ("n",), "normal", Origin.DIRECTIVE),
        BufferSpec("y", Role.IO, ("n",), "normal", Origin.DIRECTIVE),
    ),
    grid=("cdiv(n, 256)", "1", "1"),
    block=("256", "1", "1"),
)


def bound(seed: int = 1) -> Bound:
    result = bind(SPEC, KERNEL, {"n": 4096}, seed)
    assert isinstance(result, Bound)
    return result


def test_compulsory_work_counts_a_read_and_written_buffer_twice() -> None:
    assert roofline.work(SPEC, bound()) == roofline.Work(3 * 4 * 4096, None, 4 * 4096)
    said = evolve(SPEC, bytes="8*n", flops="2*n")
    assert roofline.work(said, bound()) == roofline.Work(8 * 4096, 2 * 4096, 4 * 4096)
    assert roofline.work(evolve(SPEC, bytes="8*nobody"), bound()).bytes == 3 * 4 * 4096


def test_what_is_written_last_may_still_lie_in_the_cache() -> None:
    work = roofline.Work(bytes=96 << 20, flops=None, written_bytes=32 << 20)
    assert work.beyond(0) == 96 << 20 and work.beyond(0, reads=False) == 32 << 20
    assert work.beyond(20 << 20) == 76 << 20 and work.beyond(20 << 20, reads=False) == 12 << 20
    assert work.beyond(50 << 20) == 64 << 20 and work.beyond(50 << 20, reads=False) == 0
    assert roofline.Work(None, None).beyond(0) == 0


def test_the_roof_that_binds_and_times_that_cannot_be() -> None:
    peaks = roofline.peaks(H200)
    limits = roofline.limits(roofline.Work(12 << 20, 2 << 20), peaks)
    roof = roofline.roof(5.49, 0.77, limits)
    assert roof is not None and roof.name == "memory" and roof.fraction == pytest.approx(0.476, abs=0.005)
    roof = roofline.roof(1.28, 0.77, roofline.limits(roofline.Work(1 << 16, None), peaks))
    assert roof is not None and roof.name == "launch"
    assert roofline.impossible(5.49, False, limits) is None
    assert "faster than the memory limit" in str(roofline.impossible(1.0, False, limits))
    assert roofline.impossible(1.0, True, limits) is None  # in the cache
    compute = roofline.limits(roofline.Work(None, 10**9), peaks, "f32")
    assert compute["compute"] == pytest.approx(14.95, rel=0.01)


def job() -> JudgeJob:
    return JudgeJob("", "a.cu", KERNEL, SPEC)


def test_outputs_of_timed_runs_are_held_against_the_checked_run() -> None:
    cases = [bound(1), bound(2)]
    ran = [Ran({"y": np.asarray(case.buffers["y"].data) * 2}, 0.1) for case in cases]

    def output(seed: int, data: np.ndarray) -> TimedOutput:
        return TimedOutput(0, "y", seed, seed, np.ascontiguousarray(data).view(np.uint8))

    assert changed_output(job(), cases, ran, [output(s, ran[s].outputs["y"]) for s in (0, 1)]) is None
    almost = ran[1].outputs["y"] * np.float32(1 + 2.0**-22)
    assert changed_output(job(), cases, ran, [output(1, almost)]) is None  # an atomic sum may round otherwise
    wrong = ran[1].outputs["y"].copy()
    wrong[77] = 0.0
    reason = changed_output(job(), cases, ran, [output(1, wrong)])
    assert reason is not None and reason.startswith(OUTPUTS_CHANGED) and "y[77] is 0" in reason
    # The right outputs of other inputs are wrong ones: an answer that was kept is found.
    assert changed_output(job(), cases, ran, [output(1, ran[0].outputs["y"])]) is not None
    unwritten = np.full(4096, np.nan, np.float32)
    assert changed_output(job(), cases, ran, [output(0, unwritten)]) is not None


def test_a_timing_can_only_take_a_verdict_back() -> None:
    assert downgraded(NotTimed(NO_GPU), "n=1") is None
    assert downgraded(NotTimed("the GPU is busy: process 1 uses 90 % of it"), "n=1") is None
    changed = downgraded(NotTimed(f"{OUTPUTS_CHANGED}: z[0] is nan, was 1 when checked"), "n=1")
    assert changed == Cheating("timed_outputs", "z[0] is nan, was 1 when checked")
    kept = downgraded(NotTimed(f"{REMEMBERS}: a launch on new numbers takes 40 us"), "n=1")
    assert kept == Cheating("remembers_results", "a launch on new numbers takes 40 us")
    fast = downgraded(NotTimed(f"{TOO_FAST}: not even the results can be written within 1 us"), "n=1")
    assert fast == Cheating("physically_impossible", "not even the results can be written within 1 us")
    failed = downgraded(NotTimed(f"{TIMED_RUN_FAILED} (out of bounds): z[8] of 8"), "n=8")
    assert failed == Unsafe("out_of_bounds", "z[8] of 8", "n=8")


class HostLike:
    name = "host"
    kind = "host"

    def prepare(self, source: Source) -> NotSupported:
        return NotSupported("never asked")

    def close(self) -> None:
        pass


def test_without_a_gpu_nothing_is_timed_and_the_reason_is_said() -> None:
    source = Source("", "a.cu", KERNEL)
    assert benchmark(job(), source, source, HostLike()) == (NotTimed(NO_GPU), NotCompared(NO_GPU))


class PaperGpu(GpuBackend):
    """A backend whose times are given: what `benchmark` asks for, and what it says of the answers."""

    def __init__(self, unloadable: int | None = None, **more: Any) -> None:
        super().__init__("cuda-core", 0)
        self.more = more
        attributes = {**H200, "l2_bytes": 1 << 20}
        self.info = DeviceInfo("paper", "sm_90", "1", "13.0", "none", 1 << 20, 1 << 34, 1 << 17, attributes)
        self.unloadable = unloadable
        self.asked: list[int] = []

    def run_once(self, source: Source, launch: Launch) -> Ran:
        return Ran({a.name: np.array(a.initial) for a in launch.arguments if isinstance(a, BufferArgument)}, 0.1)

    def time(self, order: TimingOrder, **hooks: object) -> Samples | Unloadable:  # type: ignore[override]
        self.asked.append(len(order.sources))
        if self.unloadable is not None and self.unloadable < len(order.sources):
            return Unloadable(self.unloadable, "CUDA_ERROR_NO_BINARY_FOR_GPU")
        columns = tuple(tuple(times(20.0 * (1 + program), seed=program)) for program in range(len(order.sources)))
        none: tuple[None, ...] = (None,) * 30
        return Samples(columns, (0.6,) * 30, 0.5, 2.3, 50, 1, True, none, none, None, **self.more)


@pytest.fixture(scope="module")
def built() -> Iterator[Callable[[str], Source]]:
    compiler = Compiler()

    def build(expression: str) -> Source:
        text = f"__global__ void saxpy(int n, float a, const float* x, float* y) {{ if (n > 0) y[threadIdx.x] = {expression}; }}"
        kernels = parse(text).kernels
        (made,) = compiler.compile(CompileJob(text, "/nowhere/a.cu", kernels, arch="sm_90")).values()
        assert isinstance(made, Compiled), made
        return Source("", "a.cu", KERNEL, compiled=made)

    yield build
    compiler.close()


def test_the_same_machine_code_is_not_raced_and_says_so(built: Callable[[str], Source]) -> None:
    gpu = PaperGpu()
    timing, comparison = benchmark(job(), built("a * x[threadIdx.x]"), built("x[threadIdx.x] * a"), gpu)
    assert comparison == Same(1.0, 1.0, 1.0, SAME_CODE) and isinstance(timing, Timing) and gpu.asked == [1]
    timing, comparison = benchmark(job(), built("a * x[threadIdx.x]"), built("a + x[threadIdx.x]"), gpu)
    assert isinstance(comparison, Faster) and isinstance(timing, Timing) and gpu.asked == [1, 2]
    same = built("a")
    _, comparison = benchmark(job(), same, same, gpu, race_same_code=True)
    assert isinstance(comparison, Faster) and gpu.asked == [1, 2, 2]
    gpu.close()


def test_a_rival_that_does_not_load_leaves_the_kernel_its_time(built: Callable[[str], Source]) -> None:
    own, rival = built("a"), built("a * 3")
    gpu = PaperGpu(unloadable=1)
    timing, comparison = benchmark(job(), own, rival, gpu)
    assert isinstance(timing, Timing) and gpu.asked == [2, 1]
    assert isinstance(comparison, NotCompared) and "does not load here" in comparison.reason
    assert rival.compiled is not None
    for odd in (evolve(rival.compiled, arch="sm_70"), evolve(rival.compiled, cubin=b"")):
        timing, comparison = benchmark(job(), own, evolve(rival, compiled=odd), gpu)
        assert isinstance(timing, Timing) and isinstance(comparison, NotCompared)
        assert comparison.reason.startswith("the accepted kernel cannot run: ")
    alone = PaperGpu(unloadable=0)
    timing, comparison = benchmark(job(), own, None, alone)
    assert isinstance(timing, NotTimed) and "does not load on this GPU" in timing.reason
    gpu.close()
    alone.close()


def test_a_timing_says_how_it_was_made_and_what_was_left_out(built: Callable[[str], Source]) -> None:
    gpu = PaperGpu(pauses=2, speeds_mhz=((1980.0,) * 27 + (900.0,) * 3,))
    order = gpu.time
    timing, _ = benchmark(job(), built("a"), None, gpu)
    assert isinstance(timing, Timing) and timing.method == "graph" and timing.sm_clock_mhz == 1980.0
    assert timing.notes == ("paused 2 times for the GPU to cool: its clock was held down",)
    assert timing.median_us == pytest.approx(17.7, rel=0.01) and timing.gap_us == pytest.approx(0.6)

    def held(wanted: TimingOrder, **hooks: object) -> Samples:
        samples = order(wanted)
        assert isinstance(samples, Samples)
        return evolve(samples, throttle=(0,) * 28 + (0x40, 0x20), pauses=0)

    gpu.time = held  # type: ignore[method-assign, assignment]
    timing, _ = benchmark(job(), built("a"), None, gpu)
    assert isinstance(timing, Timing) and timing.samples == 28
    assert timing.notes == ("2 samples left out while the GPU slowed itself down",)
    gpu.close()


def test_results_that_are_remembered_are_no_time(built: Callable[[str], Source]) -> None:
    gpu = PaperGpu(remembered_us=(40.0, 2.0))
    timing, comparison = benchmark(job(), built("a"), built("a * 3"), gpu)
    assert isinstance(timing, NotTimed) and isinstance(comparison, NotCompared)
    assert downgraded(timing, "n=1") == Cheating(
        "remembers_results", "a launch on new numbers takes 40 us, the next one on the same 2 us"
    )
    gpu.close()


def test_the_last_inputs_of_a_timing_are_kept_back_and_checked_too(built: Callable[[str], Source]) -> None:
    gpu = PaperGpu()
    seen: list[TimingOrder] = []
    plain = gpu.time

    def noted(wanted: TimingOrder, **hooks: object) -> Samples | Unloadable:
        seen.append(wanted)
        return plain(wanted)

    gpu.time = noted  # type: ignore[method-assign, assignment]
    assert isinstance(benchmark(job(), built("a"), None, gpu)[0], Timing)
    buffers = [argument for argument in seen[0].arguments if isinstance(argument, TimedBuffer)]
    assert seen[0].seeds == 3 and all(len(buffer.initial) == 3 for buffer in buffers)
    assert len({data.tobytes() for buffer in buffers for data in buffer.initial}) == 6
    gpu.close()
