"""An inferred launch is tried on the host before a GPU runs it, and never held against the kernel."""

import contextlib

import attrs
import pytest

from dice_lsp.records import (
    BufferSpec,
    CapturedLaunch,
    Compiled,
    Confidence,
    Dim,
    Judged,
    JudgeJob,
    LaunchCase,
    LaunchSpec,
    NotCompared,
    NotTimed,
    Origin,
    Reference,
    Role,
    Unsafe,
    Unverified,
    Verdict,
    Verified,
    Wrong,
    to_wire,
)
from dice_lsp.source.kernels import parse
from dice_lsp.worker.__main__ import Here, Worker
from dice_lsp.worker.compile import CompileJob, Compiler
from dice_lsp.worker.device import GpuBackend
from dice_lsp.worker.guess import is_guess, refuted, softened
from dice_lsp.worker.host import HostBackend
from dice_lsp.worker.launch import Source
from dice_lsp.worker.recorded import Recordings
from dice_lsp.worker.verify import verify

pytestmark = pytest.mark.timeout(120)

UNGUARDED = """__global__ void copy(const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[i];
}
"""
SHARED = """__global__ void flip(const float* x, float* y) {
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = s[63 - threadIdx.x];
}
"""
ASSEMBLY = """__global__ void lane(float* y) {
    int id;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(id));
    y[id] = 1;
}
"""


def spec_of(
    kernel: str, extent: str, grid: str = "4", block: str = "64", sure: Confidence = Confidence.LIKELY
) -> LaunchSpec:
    buffers = tuple(
        BufferSpec(name, role, (extent,), "normal", Origin.LAUNCH_SITE)
        for name, role in ((("x", Role.IN), ("y", Role.OUT)) if kernel != "lane" else (("y", Role.OUT),))
    )
    fields = ("grid", "block", "buffers.x", "buffers.y")
    return LaunchSpec(
        kernel,
        buffers=buffers,
        grid=(grid, "1", "1"),
        block=(block, "1", "1"),
        origins={"grid": Origin.LAUNCH_SITE, "block": Origin.LAUNCH_SITE},
        confidence=dict.fromkeys(fields, sure),
    )


def job_of(text: str, spec: LaunchSpec) -> JudgeJob:
    return JudgeJob(text, "/nowhere/text.cu", parse(text).kernels[0], spec)


def source_of(compiler: Compiler, job: JudgeJob) -> Source:
    order = CompileJob(job.text, job.path, (job.kernel,))
    (build,) = compiler.compile(order).values()
    assert isinstance(build, Compiled), build
    return Source(compiler.program(order).device_text, job.path, job.kernel, {}, build)


@pytest.mark.parametrize(
    ("text", "kernel", "extent", "block", "said"),
    [
        (UNGUARDED, "copy", "256", "64", None),
        (UNGUARDED, "copy", "200", "64", "is out of bounds with"),
        (SHARED, "flip", "64", "64", None),
        (SHARED, "flip", "128", "128", "the launch was inferred and is not right"),
        (ASSEMBLY, "lane", "32", "32", "cannot be tried on the host"),
    ],
)
def test_a_guess_is_run_with_every_access_checked(
    compiler: Compiler, host: HostBackend, text: str, kernel: str, extent: str, block: str, said: str | None
) -> None:
    job = job_of(text, spec_of(kernel, extent, "4" if kernel == "copy" else "1", block))
    reason = refuted(job, source_of(compiler, job), host)
    assert reason is None if said is None else (reason is not None and said in reason and "//dice:" in reason)


def test_without_a_host_a_guess_is_not_run(compiler: Compiler) -> None:
    job = job_of(UNGUARDED, spec_of("copy", "256"))
    assert "there is no C++ compiler" in str(refuted(job, source_of(compiler, job), None))


def test_what_needs_no_run() -> None:
    guess = spec_of("copy", "256")
    assert is_guess(guess, UNGUARDED)
    assert not is_guess(spec_of("copy", "256", sure=Confidence.CERTAIN), UNGUARDED)
    # Sizes that are the body's own subscripts, in a launch whose threads share nothing, hold whatever the sizes are.
    inferred = attrs.evolve(
        guess,
        dims=(Dim("n", (7,), Origin.DEFAULT),),
        buffers=tuple(attrs.evolve(b, origin=Origin.INFERRED) for b in guess.buffers),
        origins={"grid": Origin.INFERRED, "block": Origin.DEFAULT},
        confidence={**guess.confidence, "dims.n": Confidence.GUESS},
    )
    assert not is_guess(inferred, UNGUARDED)
    assert is_guess(inferred, SHARED)
    drawn = attrs.evolve(inferred, buffers=tuple(attrs.evolve(b, init="int(0,9)") for b in inferred.buffers))
    assert is_guess(drawn, UNGUARDED)


def test_out_of_bounds_of_a_size_that_is_not_sure_is_no_verdict_on_the_kernel(
    compiler: Compiler, host: HostBackend
) -> None:
    verdicts: dict[Confidence, Verdict] = {}
    for sure in (Confidence.LIKELY, Confidence.CERTAIN):
        reference = Reference("torch", "x", Origin.DIRECTIVE)
        job = job_of(UNGUARDED, attrs.evolve(spec_of("copy", "200", sure=sure), reference=reference))
        verdicts[sure] = verify(job, source_of(compiler, job), host, host)
    assert isinstance(verdicts[Confidence.LIKELY], Unverified) and "guessed size" in verdicts[Confidence.LIKELY].reason
    assert getattr(verdicts[Confidence.CERTAIN], "hazard", "") == "out_of_bounds"


def test_what_happens_at_sizes_that_were_made_up_is_not_held_against_a_kernel() -> None:
    spec = attrs.evolve(
        spec_of("copy", "n"), dims=(Dim("n", (32,), Origin.DEFAULT),), confidence={"dims.n": Confidence.GUESS}
    )
    for verdict in (Unsafe("race", "out[32]", "n=32"), Wrong("y", 3, "1", "2", "n=32", 1, 32)):
        soft = softened(verdict, spec)
        assert isinstance(soft, Unverified) and "n=32" in soft.reason and "write `n = ...`" in soft.reason
        sure = attrs.evolve(spec, confidence={"dims.n": Confidence.LIKELY}, dims=(Dim("n", (32,), Origin.DIRECTIVE),))
        assert softened(verdict, sure) is verdict
        recorded = attrs.evolve(verdict, case="captured 2")
        assert softened(recorded, spec) is recorded
    right = Verified(3, 0.0, "a card", "", (), ())
    assert softened(right, spec) is right


def test_a_recorded_launch_is_judged_when_a_guess_beside_it_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch that the host was too slow for kept eight recorded ones from being judged."""
    worker = Worker()
    card = GpuBackend.__new__(GpuBackend)
    monkeypatch.setattr(Worker, "backend", lambda self: card)
    monkeypatch.setattr(Worker, "_isolation", lambda self, wanted: "")
    monkeypatch.setattr(Worker, "_card", lambda self, wanted, job: contextlib.nullcontext())
    monkeypatch.setattr("dice_lsp.worker.__main__.refuted", lambda *rest: "the launch was inferred and is too large")
    launch = CapturedLaunch("/nowhere/run.capture", 1, "digest", False)
    recorded = LaunchCase("captured 1", ("4", "1", "1"), ("64", "1", "1"), captured=launch)
    guess = attrs.evolve(spec_of("copy", "200"), cases=(recorded,), captured=launch)
    alone = attrs.evolve(spec_of("copy", "256"), cases=(recorded,), captured=launch, origins={"grid": Origin.CAPTURED})

    def recordings(self: Worker, wanted: JudgeJob) -> Recordings:
        assert not wanted.spec.launchable and wanted.spec.captured is None and wanted.spec.cases == ()
        return Recordings(alone)

    ran: list[tuple[LaunchSpec, tuple[str, ...]]] = []

    def run(self: Worker, wanted: JudgeJob, *rest: object) -> tuple[Verdict, NotTimed, NotCompared]:
        ran.append((wanted.spec, tuple(rest[-1])))  # type: ignore[arg-type]
        return Unverified("as the test says"), NotTimed(""), NotCompared("")

    monkeypatch.setattr(Worker, "_recorded", recordings)
    monkeypatch.setattr(Worker, "_run", run)
    try:
        job = attrs.evolve(job_of(UNGUARDED, guess), verify=True, benchmark=False)
        judged = worker._judge(job, Here("sm_90", "a card", "1"), Silent())  # type: ignore[arg-type]
        assert ran == [(alone, ("the launch was inferred and is too large",))]
        assert judged.spec == alone and judged.verdict == Unverified("as the test says")
        assert not is_guess(alone, SHARED)
    finally:
        worker.close()


class Silent:
    """What a worker's job is told."""

    def __init__(self) -> None:
        self.said: list[object] = []

    def emit(self, event: str, data: object) -> None:
        self.said.append(data)

    def check(self) -> None:
        """Nobody cancels."""

    cancelled = None


def test_a_worker_tries_a_guess_once_a_text_and_never_a_sure_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker()
    card = GpuBackend.__new__(GpuBackend)
    monkeypatch.setattr(Worker, "backend", lambda self: card)
    tried: list[str] = []

    def trial(job: JudgeJob, *rest: object) -> str | None:
        tried.append(job.text)
        return "the launch was inferred and is not right"

    monkeypatch.setattr("dice_lsp.worker.__main__.refuted", trial)
    try:
        guess = attrs.evolve(job_of(UNGUARDED, spec_of("copy", "200")), verify=True, benchmark=False)
        here = Here("sm_90", "a card", "1")
        for job in (guess, guess, attrs.evolve(guess, text=UNGUARDED + "// the same\n")):
            judged = worker._judge(job, here, Silent())  # type: ignore[arg-type]
            assert isinstance(judged, Judged) and judged.verdict == Unverified(
                "the launch was inferred and is not right"
            )
            assert to_wire(judged) and isinstance(judged.build, Compiled)
        assert len(tried) == 1, "a comment is no other text"
        source = Source(UNGUARDED, guess.path, guess.kernel)
        candidate = attrs.evolve(
            guess, text=UNGUARDED.replace("y[i] = x[i]", "y[i] = 2 * x[i]"), reference_text=UNGUARDED
        )
        assert worker._refuted(candidate, source, "another text", Silent()) is not None  # type: ignore[arg-type]
        assert len(tried) == 1, "a candidate has the launch of the text that it is to replace"
        sure = attrs.evolve(guess, spec=spec_of("copy", "256", sure=Confidence.CERTAIN))
        assert worker._refuted(sure, source, "key", Silent()) is None and len(tried) == 1  # type: ignore[arg-type]
        monkeypatch.setattr(Worker, "backend", lambda self: HostBackend())
        assert worker._refuted(guess, source, "key", Silent()) is None and len(tried) == 1  # type: ignore[arg-type]
    finally:
        worker.close()


def test_what_is_not_written_at_a_size_that_the_body_says_is_not_held_against_a_kernel_of_the_program() -> None:
    """`if (i > n) return;` reads as n + 1 elements, and no thread that the program launches writes the last one."""
    spec = attrs.evolve(spec_of("copy", "n + 1"), origins={"grid": Origin.LAUNCH_SITE})
    verdict = Unsafe("unwritten_output", "y: 1 of 33 elements, first y[32]", "n=32")
    read = attrs.evolve(spec, buffers=tuple(attrs.evolve(b, origin=Origin.INFERRED) for b in spec.buffers))
    soft = softened(verdict, read)
    assert isinstance(soft, Unverified) and "write `out y[...]`" in soft.reason
    allocated = attrs.evolve(spec, buffers=tuple(attrs.evolve(b, origin=Origin.LAUNCH_SITE) for b in spec.buffers))
    assert softened(verdict, allocated) is verdict


def test_what_only_a_small_size_of_ours_does_is_not_held_against_a_kernel() -> None:
    """`assert(n % 8 == 0)` fails at n = 1, which no program asks for; at a size like those of programs it would count."""
    spec = attrs.evolve(
        spec_of("copy", "n"), dims=(Dim("n", (4096, 1), Origin.DEFAULT),), confidence={"dims.n": Confidence.LIKELY}
    )
    for hazard in ("fault", "race", "divergent_barrier"):
        soft = softened(Unsafe(hazard, "line 7", "n=1"), spec)
        assert isinstance(soft, Unverified) and "sizes that were made up, n=1: write `n = ...`" in soft.reason
        large = Unsafe(hazard, "line 7", "n=4096")
        assert softened(large, spec) is large
    guard = Unsafe("out_of_bounds", "y[1] of 1", "n=1")
    assert softened(guard, spec) is guard, "a guard that is missing is missing at every size"
    said = attrs.evolve(spec, dims=(Dim("n", (4096, 1), Origin.DIRECTIVE),))
    asked = Unsafe("fault", "line 7", "n=1")
    assert softened(asked, said) is asked


def test_what_the_emulation_is_too_slow_for_is_no_hang() -> None:
    spec = attrs.evolve(spec_of("copy", "n"), dims=(Dim("n", (1 << 17,), Origin.DEFAULT),), origins={})
    verdict = Unsafe("timeout", "no end within 2 s, line 49", "n=131072")
    soft = softened(verdict, spec, on_host=True)
    assert isinstance(soft, Unverified) and "no end on the host" in soft.reason and "`n = ...`" in soft.reason
    assert softened(verdict, spec) is verdict, "a card is not slow"
    said = attrs.evolve(spec, origins={"grid": Origin.DIRECTIVE})
    assert softened(verdict, said, on_host=True) is verdict


def test_a_kernel_that_writes_down_the_time_is_no_race() -> None:
    spec = spec_of("copy", "n")
    verdict = Unsafe("race", "timer[0] depends on the order of the threads", "the only case")
    soft = softened(verdict, spec, "__global__ void f(clock_t* timer) { timer[0] = clock(); }")
    assert isinstance(soft, Unverified) and "reads the clock" in soft.reason
    assert softened(verdict, spec, "__global__ void f(int* timer) { timer[0] = 1; }") is verdict


def test_what_only_we_took_for_an_input_may_be_written() -> None:
    spec = spec_of("copy", "n")
    name = spec.buffers[0].name
    read = attrs.evolve(spec, buffers=tuple(attrs.evolve(b, origin=Origin.LAUNCH_SITE) for b in spec.buffers))
    verdict = Unsafe("mutated_input", f"{name}[0], line 201", "the only case")
    soft = softened(verdict, read, f"__global__ void copy(float* {name}, const float* other)")
    assert isinstance(soft, Unverified) and f"write `io {name}[...]`" in soft.reason
    assert softened(verdict, read, f"__global__ void copy(const float* __restrict__ {name})") is verdict
    said = attrs.evolve(spec, buffers=tuple(attrs.evolve(b, origin=Origin.DIRECTIVE) for b in spec.buffers))
    assert softened(verdict, said, f"__global__ void copy(float* {name})") is verdict
