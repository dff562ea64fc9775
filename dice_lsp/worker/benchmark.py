"""How fast a kernel is, and whether it is faster than another: `benchmark` measures, `compare` decides.

The device times launches on rotated buffers (`stopwatch.Stopwatch`), the kernel, its rival and an empty kernel in
turn, each program on each other's buffers too, so that drifts of the clock and the places of buffers hit all alike.
Two kernels of one machine code are not raced at all. Everything from there on is arithmetic on the samples and lives
here: medians, quartiles, and a bootstrap interval of the paired ratios (Efron, Tibshirani: An Introduction to the
Bootstrap, chapter 13), in time and in clock cycles. Samples are left out for named reasons only, never for being slow,
and the timing says how many.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from attrs import evolve, frozen

from dice_lsp.records import (
    Ambiguous,
    Cheating,
    Comparison,
    Faster,
    JudgeJob,
    Kernel,
    NotCompared,
    NotTimed,
    Same,
    Slower,
    Timing,
    TimingResult,
    Unsafe,
    Verdict,
)
from dice_lsp.wording import count
from dice_lsp.worker import roofline
from dice_lsp.worker.arguments import BadSpec, Bound, bind
from dice_lsp.worker.cases import given_dims
from dice_lsp.worker.device import (
    Declined,
    GpuBackend,
    Samples,
    TimedBuffer,
    TimedOutput,
    TimedScalar,
    TimeResult,
    TimingOrder,
    Unloadable,
)
from dice_lsp.worker.launch import Backend, Faulted, NotSupported, Prepared, Ran, Source
from dice_lsp.worker.machine_code import same_machine_code
from dice_lsp.worker.recorded import RecordedCase, bind_recorded, is_only_recorded, near, own_label
from dice_lsp.worker.tolerance import MAX_SLACK, choose
from dice_lsp.worker.tolerance import compare as compare_outputs

NO_GPU = "no GPU: times need one"
OUTPUTS_CHANGED = "outputs changed during timing"
"""How the reason of a `NotTimed` begins when a timed run did not compute what the checked run did."""
REMEMBERS = "results are remembered"
"""How it begins when a launch is fast only on numbers that the kernel has seen before."""
TOO_FAST = "physically impossible"
"""How it begins when not even the results can be written in that time."""
TIMED_RUN_FAILED = "a timed run failed"
"""How the reason of a `NotTimed` begins when the kernel broke a rule in the benchmark's case."""
SAME_CODE = "the machine code is the same"
RESOLUTION = 0.005
"""Half a percent: no smaller difference is called one."""
RESOLUTION_US = {"graph": 0.03, "single": 0.15}
"""Nor is one of less than this, by the method of timing: a step of the card's timer (32 ns on an H200), and what the gaps
between single kernels of a graph differ by from graph to graph (0.06 us there)."""
MAX_SPREAD = 0.1
"""Interquartile range over median from which samples are too scattered to settle anything."""
LOW_CLOCK = 0.9
LAUNCH_BOUND = 2.0
ENOUGH_L2 = 5
"""A set of buffers of so many times the L2 takes long to make: then there is one of known numbers and one of new ones."""
SLOWDOWN_BITS = 0x8 | 0x20 | 0x40 | 0x80
"""NVML's reasons hardware slowdown, software thermal, hardware thermal and power brake. The power cap is none of
them: heavy kernels run at it for good."""
_BOOTSTRAPS = 2000
_SEED_STEP = 7919
"""Timed inputs are other ones than the verifier's."""

Check = Callable[[], None]
Progress = Callable[[str], None]


@frozen
class Summary:
    """Median and quartiles, in the unit of the samples."""

    median: float
    q1: float
    q3: float

    @property
    def spread(self) -> float:
        return (self.q3 - self.q1) / self.median if self.median > 0 else float("inf")


def summarize(values: Sequence[float]) -> Summary:
    q1, median, q3 = np.percentile(np.asarray(values, float), [25, 50, 75])
    return Summary(float(median), float(q1), float(q3))


@frozen
class Kept:
    """The samples that count, by index, and one phrase for each kind that does not."""

    indices: tuple[int, ...]
    left_out: tuple[str, ...]


def keep(clock_mhz: Sequence[float | None], throttle: Sequence[int | None]) -> Kept | str:
    """Leave out samples taken while the card held its clock down. One sentence when fewer than half remain."""
    known = [clock for clock in clock_mhz if clock]
    usual = float(np.median(known)) if known else 0.0
    kept, slow, held = [], 0, 0
    for index, (clock, bits) in enumerate(zip(clock_mhz, throttle, strict=True)):
        if bits is not None and bits & SLOWDOWN_BITS:
            held += 1
        elif clock and clock < LOW_CLOCK * usual:
            slow += 1
        else:
            kept.append(index)
    if len(kept) < max(1, len(clock_mhz) // 2):
        return "the GPU slows itself down (heat or power): try again when it has cooled"
    reasons = []
    if held:
        reasons.append(f"{count(held, 'sample')} left out while the GPU slowed itself down")
    if slow:
        reasons.append(f"{count(slow, 'sample')} left out below {LOW_CLOCK:.0%} of the usual clock")
    return Kept(tuple(kept), tuple(reasons))


def net(samples: Sequence[float], overhead_us: float) -> list[float]:
    """Samples less what timing a single launch adds, as far as that is a plausible figure."""
    share = overhead_us if 0.0 < overhead_us < 50.0 else 0.0
    return [max(sample - share, sample / 20) for sample in samples]


def ratio_interval(rival: Sequence[float], own: Sequence[float], seed: int = 0) -> tuple[float, float, float]:
    """Median of the paired ratios rival/own and its 95 % bootstrap interval."""
    ratios = np.asarray(rival, float) / np.asarray(own, float)
    rng = np.random.default_rng(seed)
    medians = np.median(ratios[rng.integers(0, ratios.size, (_BOOTSTRAPS, ratios.size))], axis=1)
    low, high = np.percentile(medians, [2.5, 97.5])
    return float(np.median(ratios)), float(low), float(high)


def compare(
    own: Sequence[float],
    rival: Sequence[float],
    *,
    floor_us: float,
    clock_mhz: Sequence[float | None] = (),
    speeds_mhz: tuple[Sequence[float | None], Sequence[float | None]] | None = None,
    method: str = "graph",
) -> Comparison:
    """What paired samples say about `own` against `rival`, both in microseconds per launch.

    A difference must keep its whole interval beyond `RESOLUTION`, or for short kernels beyond `RESOLUTION_US`, in time and
    in clock cycles: `speeds_mhz` are the clocks that were measured while each of the two ran. Where the card does not tell
    them, its clock (`clock_mhz`, a reading per pair) must not have moved by more than the times differ. When both take
    less than twice the launch floor, what differs is mostly the launching, so that nothing is claimed.
    """
    ratio, low, high = ratio_interval(rival, own)
    mine, theirs = summarize(own), summarize(rival)
    if max(mine.median, theirs.median) < LAUNCH_BOUND * floor_us:
        return Ambiguous(
            f"launch-bound: {mine.median:.2f} us is within twice the {floor_us:.2f} us that any launch takes", ratio
        )
    spread = max(mine.spread, theirs.spread)
    if spread > MAX_SPREAD:
        return Ambiguous(f"the times scatter by {spread:.0%}: try again on a quiet GPU", ratio)
    least = max(RESOLUTION, RESOLUTION_US[method] / min(mine.median, theirs.median))
    if low > 1 + least or high < 1 - least:
        doubt = _clock_doubt(own, rival, (ratio, low, high), clock_mhz, speeds_mhz)
        if doubt is not None:
            return Ambiguous(doubt, ratio)
        return Faster(ratio, low, high) if low > 1 else Slower(ratio, low, high)
    if low >= 1 - least and high <= 1 + least:
        return Same(ratio, low, high)
    return Ambiguous(f"somewhere between {low:.3f}x and {high:.3f}x: too close to tell", ratio)


def _clock_doubt(
    own: Sequence[float],
    rival: Sequence[float],
    interval: tuple[float, float, float],
    clock_mhz: Sequence[float | None],
    speeds_mhz: tuple[Sequence[float | None], Sequence[float | None]] | None,
) -> str | None:
    """Why a difference in time may be one of the clock alone; None when it is not."""
    ratio, low, high = interval
    if speeds_mhz is not None and len(speeds_mhz[0]) == len(own):
        pairs = [
            (time * speed, other * other_speed)
            for time, speed, other, other_speed in zip(own, speeds_mhz[0], rival, speeds_mhz[1], strict=True)
            if speed and other_speed
        ]
        if 2 * len(pairs) > len(own):
            cycles, least, most = ratio_interval([theirs for _, theirs in pairs], [mine for mine, _ in pairs])
            if (least if low > 1 else 1 / most) > 1 + RESOLUTION:
                return None
            return f"{ratio:.3f}x in time but {cycles:.3f}x in clock cycles: the clock differed between the two"
    clocks = [clock for clock in clock_mhz if clock]
    moved = (max(clocks) - min(clocks)) / max(clocks) if clocks else 0.0
    if moved > MAX_SPREAD and max(low - 1, 1 - high) < moved:
        return f"the clock moved by {moved:.0%}, more than the times differ"
    return None


def benchmark(
    job: JudgeJob,
    source: Source,
    baseline_source: Source | None,
    backend: Backend,
    *,
    check_cancelled: Check = lambda: None,
    on_progress: Progress | None = None,
    race_same_code: bool = False,
) -> tuple[TimingResult, Comparison]:
    """Time `source`, beside `baseline_source` if there is one, in the spec's first case.

    A rival of the same machine code is the same, whatever a race would say; with `race_same_code` they run all the
    same, to see what the stopwatch makes of it. The caller has verified the kernel, and asks `downgraded` afterwards
    whether the verdict still holds. `on_progress` is told in a few words what is being done. Raises what
    `check_cancelled` raises.
    """

    def progress(done: int, of: int) -> None:
        if on_progress is not None:
            on_progress(f"timed {done} of {of} samples")

    if not isinstance(backend, GpuBackend) or backend.info is None:
        return NotTimed(NO_GPU), NotCompared(NO_GPU)
    rival: Comparison | None = None
    if baseline_source is None:
        rival = NotCompared("there is no accepted kernel to compare with")
    elif not _same_parameters(job.kernel, baseline_source.kernel):
        rival, baseline_source = NotCompared("the accepted kernel takes other parameters"), None
    prepared = backend.prepare(source)
    if isinstance(prepared, NotSupported):
        return _untimed(prepared.reason)
    if baseline_source is not None and isinstance(problem := backend.prepare(baseline_source), NotSupported):
        rival, baseline_source = NotCompared(f"the accepted kernel cannot run: {problem.reason}"), None
    if baseline_source is not None and not race_same_code and _same_code(source, baseline_source):
        rival, baseline_source = Same(1.0, 1.0, 1.0, SAME_CODE), None

    bounds = _bind(job, source, backend)
    if isinstance(bounds, BadSpec):
        return _untimed(bounds.reason)
    check_cancelled()
    expected = _run_checked(prepared, bounds, job.run_deadline_s)
    if isinstance(expected, str) and bounds[0].recorded:
        # Numbers near the recorded ones may be none that the program could have passed.
        bounds = [bounds[0]] * len(bounds)
        expected = _run_checked(prepared, bounds, job.run_deadline_s)
    if isinstance(expected, str):
        return _untimed(expected)
    check_cancelled()

    cold = job.spec.cache != "hot"
    peaks = roofline.peaks(backend.info.attributes)

    def timed(*sources: Source) -> TimeResult:
        order = _order(job, sources, bounds, cold)
        return backend.time(order, check=check_cancelled, on_progress=progress)

    result = timed(source) if baseline_source is None else timed(source, baseline_source)
    if baseline_source is not None and isinstance(result, Unloadable) and result.program == 1:
        rival = NotCompared(f"the accepted kernel's device code does not load here ({result.reason}); accept it again")
        result = timed(source)
    elif isinstance(result, Faulted) and baseline_source is not None:
        # Whose fault it was is not known: alone, the kernel answers for itself.
        rival = NotCompared(f"a timed run failed: {result.where}")
        result = timed(source)
    if not isinstance(result, Samples):
        return _untimed(_why(result))
    if result.busy is not None:
        return _untimed(result.busy)
    if (changed := changed_output(job, bounds, expected, result.outputs)) is not None:
        return _untimed(changed)
    if result.remembered_us is not None:
        unknown, known = result.remembered_us
        return _untimed(
            f"{REMEMBERS}: a launch on new numbers takes {unknown:.3g} us, the next one on the same {known:.3g} us"
        )
    kept = keep(result.clock_mhz, result.throttle)
    if isinstance(kept, str):
        return _untimed(kept)

    columns = [net([column[i] for i in kept.indices], result.overhead_us) for column in result.programs]
    clocks = [result.clock_mhz[i] for i in kept.indices]
    speeds = [[column[i] for i in kept.indices] for column in result.speeds_mhz]
    timing = _timing(job, bounds[0], result, columns[0], speeds[0] if speeds else clocks, kept, peaks)
    if isinstance(timing, NotTimed):
        return timing, NotCompared(timing.reason)
    if rival is None:
        both = (speeds[0], speeds[1]) if len(speeds) > 1 else None
        floor_us = launch_floor_us(result)
        rival = compare(
            columns[0], columns[1], floor_us=floor_us, clock_mhz=clocks, speeds_mhz=both, method=result.method
        )
    return timing, rival


def _untimed(reason: str) -> tuple[TimingResult, Comparison]:
    return NotTimed(reason), NotCompared(reason)


def _same_code(source: Source, rival: Source) -> bool:
    return (
        source.compiled is not None
        and rival.compiled is not None
        and same_machine_code(source.compiled, rival.compiled)
    )


def _why(result: Declined | Faulted | NotSupported | Unloadable) -> str:
    if isinstance(result, Unloadable):
        return f"the device code does not load on this GPU: {result.reason}"
    if isinstance(result, Faulted):
        return f"{TIMED_RUN_FAILED} ({result.hazard.replace('_', ' ')}): {result.where}"
    return result.reason


def _same_parameters(a: Kernel, b: Kernel) -> bool:
    return [(p.type_name, p.pointer, p.name) for p in a.parameters] == [
        (p.type_name, p.pointer, p.name) for p in b.parameters
    ]


def _bind(job: JudgeJob, source: Source, backend: GpuBackend) -> list[Bound] | BadSpec:
    """The first case with two sets of inputs, and a last one that is kept from the card until the timing is nearly done.

    Where a single set overflows the cache anyway, there is one and the last. A launch that was recorded is timed as it
    was, the other sets being numbers near the recorded ones.
    """
    assert backend.info is not None
    if job.spec.captured is not None:
        recorded = bind_recorded(job.spec.captured, own_label(job.spec), job.spec, job.kernel, source.compiled)
        if isinstance(recorded, RecordedCase):
            sets = 1 if recorded.bound.bytes >= ENOUGH_L2 * backend.info.l2_bytes else 2
            others = [near(recorded.bound, job.seed + number, _NEAR) for number in range(1, 1 + sets)]
            return [recorded.bound, *others]
        if is_only_recorded(job.spec):
            return recorded
    dims = given_dims(job.spec)[0]
    bounds: list[Bound] = []
    number, wanted = 0, 3
    while len(bounds) < wanted:
        number += 1
        folder = os.path.dirname(job.path) or None
        bound = bind(job.spec, job.kernel, dims, job.seed + number * _SEED_STEP, folder=folder)
        if isinstance(bound, BadSpec):
            return bound
        bounds.append(bound)
        if bound.bytes >= ENOUGH_L2 * backend.info.l2_bytes:
            wanted = 2
    return bounds


_NEAR = 2.0**-9
"""How far the numbers of the other sets of a recorded launch are from the recorded ones."""


def _run_checked(prepared: Prepared, bounds: Sequence[Bound], deadline_s: float) -> list[Ran] | str:
    """What the kernel computes from the timed inputs when it is not being timed."""
    ran: list[Ran] = []
    for bound in bounds:
        (result,) = prepared.run([bound.launch(deadline_s=deadline_s)])
        if not isinstance(result, Ran):
            return _why(result)
        ran.append(result)
    return ran


def _order(job: JudgeJob, sources: tuple[Source, ...], bounds: Sequence[Bound], cold: bool) -> TimingOrder:
    first = bounds[0]
    arguments: list[TimedBuffer | TimedScalar] = []

    def timed(name: str, passed: bool) -> TimedBuffer:
        buffers = [bound.buffers[name] for bound in bounds]
        initial = tuple(buffer.data for buffer in buffers if buffer.data is not None)
        nbytes = buffers[0].count * buffers[0].element.itemsize
        return TimedBuffer(name, str(buffers[0].spec.role), nbytes, initial, passed)

    for name in first.order:
        if name in first.passed:
            arguments.append(timed(name, True))
        else:
            values = [bound.by_value(name) for bound in bounds]
            arguments.append(TimedScalar(name, tuple(value.data for value in values), values[0].pointers))
    arguments += [timed(name, False) for name in first.hidden]
    return TimingOrder(
        sources=sources,
        grid=first.grid,
        block=first.block,
        smem_bytes=first.smem_bytes,
        arguments=tuple(arguments),
        seeds=len(bounds),
        cold=cold,
        hot=cold and job.spec.cache is None,
        deadline_s=job.run_deadline_s,
        variables=first.variables,
    )


_TRICKS = {OUTPUTS_CHANGED: "timed_outputs", REMEMBERS: "remembers_results", TOO_FAST: "physically_impossible"}


def downgraded(timing: TimingResult, case: str) -> Verdict | None:
    """What a timing says against a kernel that was found right before; None when it says nothing."""
    if not isinstance(timing, NotTimed):
        return None
    for beginning, trick in _TRICKS.items():
        if timing.reason.startswith(f"{beginning}: "):
            return Cheating(trick, timing.reason.removeprefix(f"{beginning}: "))
    failed = re.fullmatch(rf"{TIMED_RUN_FAILED} \(([\w ]+)\): (.*)", timing.reason, re.DOTALL)
    return None if failed is None else Unsafe(failed[1].replace(" ", "_"), failed[2], case)


def launch_floor_us(samples: Samples) -> float:
    """What a launch costs whatever it does: the empty kernel of this shape, as long as it is launching that it measures.

    An empty kernel of a hundred thousand blocks takes long because the card starts the blocks one after another. That
    is work that a kernel of another shape avoids, so it is no floor.
    """
    return min(gap_us(samples), 2 * samples.floor_us)


def gap_us(samples: Samples) -> float:
    """The empty kernel of the launch's own shape."""
    return summarize(samples.gap_us).median


def changed_output(
    job: JudgeJob, bounds: Sequence[Bound], expected: Sequence[Ran], outputs: Sequence[TimedOutput]
) -> str | None:
    """One sentence if a timed run did not give what the checked run of the same inputs gave.

    Equal bytes are equal; else the verifier's tolerance decides, at its widest, because sums made with atomics round
    differently every time.
    """
    for output in outputs:
        if output.program != 0:
            continue
        buffer = bounds[output.seed].buffers[output.buffer]
        wanted = expected[output.seed].outputs[output.buffer]
        got = output.data.view(wanted.dtype)
        if got.tobytes() == wanted.tobytes():
            continue
        terms = max([1, *(other.count for other in bounds[output.seed].buffers.values())])
        difference = compare_outputs(
            got,
            buffer.element.decode(wanted),
            buffer.element,
            accumulated=float(terms),
            tolerance=choose(job.spec.tolerances, output.buffer),
            slack=MAX_SLACK,
        )
        if not difference.agrees:
            return (
                f"{OUTPUTS_CHANGED}: {output.buffer}[{difference.index}] is {difference.got}, "
                f"was {difference.expected} when checked"
            )
    return None


def _timing(
    job: JudgeJob,
    bound: Bound,
    result: Samples,
    column: Sequence[float],
    clocks: Sequence[float | None],
    kept: Kept,
    peaks: roofline.Peaks,
) -> Timing | NotTimed:
    summary = summarize(column)
    needed = roofline.work(job.spec, bound)
    times = roofline.limits(needed, peaks, job.spec.peak)
    l2_bytes = int(peaks.l2_bytes)
    if result.cold and summary.median < 0.9 * needed.beyond(l2_bytes, reads=False) / peaks.bytes_per_us:
        return NotTimed(f"{TOO_FAST}: not even the results can be written within {summary.median:.3g} us")
    # Held against the fastest units, not those that the directive names: the kernel may use better ones. What is
    # written last may still lie in the cache when a launch ends.
    certain = evolve(needed, bytes=needed.beyond(l2_bytes))
    if (reason := roofline.impossible(summary.median, not result.cold, roofline.limits(certain, peaks))) is not None:
        return NotTimed(reason)
    if not result.cold:
        times = {name: limit for name, limit in times.items() if name != "memory"}
    roof = roofline.roof(summary.median, result.floor_us, times)
    known = [clock for clock in clocks if clock]
    notes = list(kept.left_out)
    if result.pauses:
        notes.append(f"paused {count(result.pauses, 'time')} for the GPU to cool: its clock was held down")
    return Timing(
        median_us=summary.median,
        q1_us=summary.q1,
        q3_us=summary.q3,
        samples=len(column),
        cold=result.cold,
        sm_clock_mhz=float(np.median(known)) if known else 0.0,
        gap_us=gap_us(result),
        case=bound.label,
        bytes=needed.bytes,
        flops=needed.flops,
        roof=None if roof is None else roof.name,
        roof_fraction=None if roof is None else min(1.0, roof.fraction),
        hot_median_us=summarize(result.hot_us).median if result.hot_us else None,
        method=result.method,
        notes=tuple(notes),
    )


def describe(samples: Samples) -> Mapping[str, object]:
    """How a timing was made, for logs and tables: launches per sample, rotated sets, and the fixed costs."""
    return {
        "launches": samples.launches,
        "sets": samples.sets,
        "cold": samples.cold,
        "floor_us": samples.floor_us,
        "overhead_us": samples.overhead_us,
        "gap_us": gap_us(samples),
    }
