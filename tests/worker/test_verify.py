"""Verdicts: hostile kernels are refused with their own reason, honest ones pass, and what is not known is said."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs
import numpy as np
import pytest

from dice_lsp.records import (
    Cheating,
    Compiled,
    JudgeJob,
    LaunchSpec,
    Origin,
    Role,
    Unsafe,
    Unverified,
    Verdict,
    Verified,
    Wrong,
)
from dice_lsp.source.kernels import parse
from dice_lsp.source.launches import launch_spec
from dice_lsp.worker.code_notes import kept_state
from dice_lsp.worker.compile import Compiler
from dice_lsp.worker.host import HostBackend
from dice_lsp.worker.launch import BufferArgument, Launch, NotSupported, Ran, RunResult, Source
from dice_lsp.worker.verify import verify
from tests.hostile_table import judge

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def judged(compiler: Compiler, host: HostBackend, tmp_path: Path) -> Callable[..., Verdict]:
    """The verdict on a text, and on one that is to replace another."""

    def judged(text: str, baseline: str | None = None) -> Verdict:
        path = tmp_path / "honest" / "text.cu"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        row = judge(path, compiler, host, baseline=baseline)
        assert row.verdict is not None, row.build
        return row.verdict

    return judged


ADD = """
void add_cpu(const float* x, const float* y, float* z, int n) {
    for (int i = 0; i < n; ++i) z[i] = x[i] + y[i];
}
//dice: n = 1M | 1000; in x[n], y[n]; out z[n]; launch <<<cdiv(n, 256), 256>>>; REF
__global__ void add(const float* x, const float* y, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    BODY
}
"""
RIGHT = "if (i < n) z[i] = x[i] + y[i];"


def add(body: str = RIGHT, ref: str = "ref add_cpu", cpu: str | None = None) -> str:
    text = ADD if cpu is None else re.sub(r"    for .*\n", cpu + "\n", ADD)
    return text.replace("REF", ref).replace("BODY", body)


def without_function(text: str) -> str:
    return text.replace("void add_cpu", "static int add_other").replace("n) {\n    for", "n, int m) {\n    for", 1)


def test_without_a_reference_safety_is_still_checked(judged: Callable[..., Verdict]) -> None:
    verdict = judged(without_function(add(ref="bytes 12*n")))
    assert isinstance(verdict, Unverified) and "no reference" in verdict.reason
    assert {"bounds", "unwritten", "inputs", "block_order"} <= set(verdict.checks)
    assert not {"cases", "distributions", "fp64", "scaling"} & set(verdict.checks)
    unsafe = judged(without_function(add("z[i] = x[i];", ref="bytes 12*n")))
    assert isinstance(unsafe, Unsafe) and unsafe.hazard == "out_of_bounds"
    some = judged(without_function(add("if (i < n && i % 5) z[i] = x[i];", ref="bytes 12*n")))
    assert isinstance(some, Unsafe) and some.hazard == "unwritten_output"
    nothing = judged(without_function(add("", ref="bytes 12*n")))
    assert isinstance(nothing, Unsafe) and nothing.hazard == "never_launched"


def test_the_accepted_kernel_is_a_reference(judged: Callable[..., Verdict]) -> None:
    accepted = without_function(add(ref="ref accepted"))
    verdict = judged(accepted.replace(RIGHT, "if (i < n) z[i] = y[i] + x[i];"), accepted)
    assert isinstance(verdict, Verified) and verdict.reference == "accepted kernel"
    wrong = judged(accepted.replace(RIGHT, "if (i < n) z[i] = x[i] - y[i];"), accepted)
    assert isinstance(wrong, Wrong) and wrong.buffer == "z"


def test_a_kernel_is_no_reference_for_itself(judged: Callable[..., Verdict]) -> None:
    accepted = without_function(add(ref="ref accepted"))
    verdict = judged(accepted + "// a comment\n", accepted)
    assert isinstance(verdict, Unverified)


def test_an_accepted_kernel_that_writes_nothing_is_no_reference(judged: Callable[..., Verdict]) -> None:
    empty = without_function(add("", ref="ref accepted"))
    verdict = judged(empty.replace("    \n}", f"    {RIGHT}\n}}"), empty)
    assert isinstance(verdict, Unverified) and "writes nothing" in verdict.reason


def test_the_judged_text_cannot_bring_its_own_reference(judged: Callable[..., Verdict]) -> None:
    cheat = add("if (i < n) z[i] = 0.0f;", cpu="    for (int i = 0; i < n; ++i) z[i] = 0.0f;")
    assert isinstance(judged(cheat), Verified)
    assert isinstance(judged(cheat, add()), Wrong)


@pytest.mark.parametrize(
    "text, said",
    [
        (add(ref="ref torch: torch.foo(x)"), "torch.foo is not understood here"),
        (add(ref="ref torch: x[:-1]"), "`z` has"),
        (add(ref="ref torch: (x, y)"), "2 results for 1 outputs"),
        (add(ref="ref py:kernels.py:add"), "not executed"),
        (add(cpu="    for (int i = 0; i < n; ++i) z[i + 100000] = x[i];"), "add_cpu itself fails"),
        (add(cpu="    for (int i = 0; i < n; ++i) undeclared(z[i]);"), "cannot be compiled"),
        (add(cpu="    n = 0;"), "add_cpu writes nothing to `z`"),
    ],
)  # fmt: skip
def test_a_bad_reference_is_never_the_kernels_fault(judged: Callable[..., Verdict], text: str, said: str) -> None:
    verdict = judged(text)
    assert isinstance(verdict, Unverified) and said in verdict.reason, verdict
    assert not verdict.reason.endswith(".") and "\n" not in verdict.reason


@pytest.mark.parametrize("half", ["", "int i = ;", "if (i < n) { z[i] = ", "for (;;) {{{ "])
def test_half_a_kernel_does_not_hide_its_reference(compiler: Compiler, host: HostBackend, half: str) -> None:
    function, kernel = add().split("//dice", 1)
    text = f"//dice{kernel}{function}"
    model = parse(text)
    spec = launch_spec(text, model.kernels[0], model)
    verdict = by_hand(text, spec, compiler, host, before=text.replace(RIGHT, half))
    assert isinstance(verdict, Verified) and verdict.reference == "add_cpu"


def test_a_guessed_reference_gives_way_to_the_accepted_kernel(judged: Callable[..., Verdict]) -> None:
    accepted = GUESSED.replace("z[i] = x[i] + 1.0f; }", "z[i] = x[i] + undeclared; }", 1)
    verdict = judged(accepted.replace("z[i] = x[i] + 1.0f;", "z[i] = 1.0f + x[i];"), accepted)
    assert isinstance(verdict, Verified) and verdict.reference == "accepted kernel"


def test_an_index_array_of_unknown_range_is_told(judged: Callable[..., Verdict]) -> None:
    text = """
//dice: n = 1M | 1000; in table[64], idx[n]; out y[n]; launch <<<cdiv(n, 256), 256>>>; ref torch: table[idx]
__global__ void gather(const float* table, const int* idx, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = table[idx[i]];
}
"""
    verdict = judged(text)
    assert isinstance(verdict, Unverified) and "`in idx[...]: int(0, n)`" in verdict.reason
    assert isinstance(judged(text.replace("idx[n]", "idx[n]: int(0, 64)")), Verified)


def test_no_blocks_for_a_given_size_is_told(judged: Callable[..., Verdict]) -> None:
    text = add().replace("n = 1M | 1000", "n = 1M | 3").replace("cdiv(n, 256)", "n / 4")
    verdict = judged(text)
    assert isinstance(verdict, Unverified) and "0 blocks" in verdict.reason and "n=3" in verdict.reason


def test_what_the_host_cannot_run_is_no_verdict(judged: Callable[..., Verdict]) -> None:
    verdict = judged(add('if (i < n) asm("add.f32 %0, %1, %2;" : "=f"(z[i]) : "f"(x[i]), "f"(y[i]));'))
    assert isinstance(verdict, Unverified) and "host" in verdict.reason


def test_skip_is_obeyed(judged: Callable[..., Verdict]) -> None:
    verdict = judged(add(ref="skip"))
    assert isinstance(verdict, Unverified) and "skipped" in verdict.reason


def test_an_unknown_launch_is_told(judged: Callable[..., Verdict]) -> None:
    verdict = judged("__global__ void k(float** x, int n) { x[0][n] = 1; }")
    assert isinstance(verdict, Unverified) and verdict.reason


def test_as_inexact_as_the_accepted_kernel_is_good_enough(judged: Callable[..., Verdict]) -> None:
    rough = add("if (i < n) z[i] = (x[i] + y[i]) * 1.000004f;")
    alone = judged(rough)
    assert isinstance(alone, Wrong)
    assert isinstance(judged(rough.replace("x[i] + y[i]) *", "y[i] + x[i]) *"), rough), Verified)
    far = judged(add("if (i < n) z[i] = (x[i] + y[i]) * 1.0001f;"), rough)
    assert isinstance(far, Wrong)


GUESSED = """
void add_cpu(const float* x, float* z, int n) { for (int i = 0; i < n; ++i) z[i] = x[i] + 1.0f; }
__global__ void add(const float* x, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) z[i] = x[i] + 1.0f;
}
"""


def test_a_guessed_size_is_never_the_kernels_fault(
    judged: Callable[..., Verdict], compiler: Compiler, host: HostBackend
) -> None:
    assert isinstance(judged(GUESSED), Verified)
    past = GUESSED.replace("if (i < n) z[i] = x[i]", "if (i < n) z[i] = x[i + 1] * 0.0f + x[i]")
    model = parse(GUESSED)
    spec = launch_spec(GUESSED, model.kernels[0], model)
    for baseline, expected in ((None, Unverified), (GUESSED, Unsafe)):
        verdict = by_hand(past, spec, compiler, host, baseline)
        assert isinstance(verdict, expected), verdict


GRAPH = """
void level_cpu(int* level, int n) { for (int i = 0; i < n; ++i) level[i] = 1; }
//dice: n = 1000 | 300; io level[n]: zeros; launch <<<cdiv(n, 128), 128>>>; ref level_cpu
__global__ void visit(int* level, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && level[i] >= 0) level[(i + 1) % n] = 1;
}
"""


def test_integers_that_race_without_a_consequence_are_told(judged: Callable[..., Verdict]) -> None:
    verdict = judged(GRAPH)
    assert isinstance(verdict, Verified), verdict
    assert "`level` is read while other threads may write it, and nothing orders the two" in verdict.notes


def test_an_access_out_of_bounds_is_the_kernels_own_where_the_accepted_one_stays_inside(
    judged: Callable[..., Verdict], compiler: Compiler, host: HostBackend
) -> None:
    text = """
void positive_cpu(const int* x, int* y, int n) { for (int i = 0; i < n; ++i) y[i] = x[i] > 0; }
//dice: n = 1000 | 300; in x[n]; out y[n]; launch <<<cdiv(n, 128), 128>>>; ref positive_cpu
__global__ void positive(const int* x, int* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] > 0;
}
"""
    model = parse(text)
    spec = launch_spec(text, model.kernels[0], model)
    astray = text.replace("y[i] = x[i] > 0;\n}", "y[x[i] > 0 ? i + n : i] = x[i] > 0;\n}")
    for baseline, expected in ((None, Unverified), (text, Unsafe)):
        verdict = by_hand(astray, spec, compiler, host, baseline)
        assert isinstance(verdict, expected), verdict


def by_hand(
    text: str,
    spec: LaunchSpec,
    compiler: Compiler,
    host: HostBackend,
    baseline: str | None = None,
    before: str | None = None,
) -> Verdict:
    from dice_lsp.worker.compile import CompileJob

    def source(of: str) -> Source:
        kernel = parse(of).kernels[-1]
        job = CompileJob(of, "/nowhere/text.cu", (kernel,))
        (build,) = compiler.compile(job).values()
        assert isinstance(build, Compiled), build
        return Source(compiler.program(job).device_text, "/nowhere/text.cu", kernel, {}, build)

    mine = source(text)
    job = JudgeJob(text, "/nowhere/text.cu", mine.kernel, spec, baseline_text=before or baseline)
    return verify(job, mine, host, host, baseline_source=None if baseline is None else source(baseline))


def test_a_guessed_input_that_is_written_is_told(compiler: Compiler, host: HostBackend) -> None:
    model = parse(GUESSED)
    spec = launch_spec(GUESSED, model.kernels[0], model)
    for origin, expected in ((Origin.INFERRED, Unverified), (Origin.DIRECTIVE, Unsafe)):
        buffers = tuple(attrs.evolve(b, role=Role.IN, origin=origin) for b in spec.buffers)
        verdict = by_hand(GUESSED, attrs.evolve(spec, buffers=buffers, reference=None), compiler, host)
        assert isinstance(verdict, expected) and "z" in str(verdict), verdict


class Stop(Exception):
    pass


def test_cancel_ends_it_between_two_steps(compiler: Compiler, host: HostBackend) -> None:
    text = add()
    model = parse(text)
    spec = launch_spec(text, model.kernels[0], model)
    source = Source(text, "/nowhere/text.cu", model.kernels[0])
    calls: list[int] = []

    def cancelled() -> None:
        calls.append(1)
        if len(calls) == 2:
            raise Stop

    with pytest.raises(Stop):
        verify(
            JudgeJob(text, "/nowhere/text.cu", model.kernels[0], spec), source, Adder(), host, check_cancelled=cancelled
        )


class Adder:
    """A back end that adds two buffers in numpy, and can be made to misbehave as only a GPU does."""

    name = "GPU of the test"
    kind = "cuda-core"

    def __init__(self, change: Callable[[int, Launch, np.ndarray], np.ndarray] | None = None) -> None:
        self.change = change or (lambda number, launch, z: z)
        self.calls = 0

    def prepare(self, source: Source) -> "Adder":
        return self

    def run(self, launches: Sequence[Launch]) -> list[RunResult]:
        self.calls += 1
        return [self._one(number, launch) for number, launch in enumerate(launches)]

    def _one(self, number: int, launch: Launch) -> RunResult:
        buffers = {a.name: np.array(a.initial) for a in launch.arguments if isinstance(a, BufferArgument)}
        buffers["z"] = self.change(number, launch, buffers["x"] + buffers["y"])
        return Ran(buffers, 0.1)

    def close(self) -> None:
        pass


def on_adder(adder: Adder, host: HostBackend, text: str | None = None) -> Verdict:
    text = text or add(ref="ref torch: x + y")
    model = parse(text)
    spec = attrs.evolve(launch_spec(text, model.kernels[0], model))
    source = Source(text, "/nowhere/text.cu", model.kernels[0])
    return verify(JudgeJob(text, "/nowhere/text.cu", model.kernels[0], spec), source, adder, host)


def test_all_runs_go_to_the_back_end_in_one_call(host: HostBackend) -> None:
    adder = Adder()
    verdict = on_adder(adder, host)
    assert isinstance(verdict, Verified) and adder.calls == 1
    assert (
        verdict.device == "GPU of the test" and "determinism" in verdict.checks and "block_order" not in verdict.checks
    )


def test_the_benchmarks_size_is_compared_too_where_there_is_a_gpu(host: HostBackend) -> None:
    def wrong_when_large(number: int, launch: Launch, z: np.ndarray) -> np.ndarray:
        z[-1] += z.size > 1 << 21
        return z

    text = add(ref="ref torch: x + y").replace("1M | 1000", "3M")
    verdict = on_adder(Adder(wrong_when_large), host, text)
    assert isinstance(verdict, Wrong) and verdict.case == "n=3145728" and verdict.wrong_elements == 1


def test_results_kept_from_an_earlier_launch_are_cheating(host: HostBackend) -> None:
    kept: dict[int, np.ndarray] = {}

    def stale(number: int, launch: Launch, z: np.ndarray) -> np.ndarray:
        if number == 0:
            kept.clear()  # a fresh process
        return kept.setdefault(z.size, z)

    verdict = on_adder(Adder(stale), host)
    assert isinstance(verdict, Cheating) and verdict.trick == "stale_result"


def test_results_that_change_from_run_to_run_are_refused(host: HostBackend) -> None:
    verdict = on_adder(Adder(lambda number, launch, z: z + np.float32(number == 2)), host)
    assert isinstance(verdict, Unsafe) and verdict.hazard == "non_deterministic"


def test_a_change_of_an_input_is_seen_without_the_back_ends_help(host: HostBackend) -> None:
    class Mutator(Adder):
        def _one(self, number: int, launch: Launch) -> RunResult:
            result = super()._one(number, launch)
            assert isinstance(result, Ran)
            result.outputs["x"][-1] += 1
            return result

    verdict = on_adder(Mutator(), host)
    assert isinstance(verdict, Unsafe) and verdict.hazard == "mutated_input" and "x[" in verdict.where


def test_a_launch_that_never_happened_is_not_a_pass(host: HostBackend) -> None:
    def nothing(number: int, launch: Launch, z: np.ndarray) -> np.ndarray:
        return next(np.array(a.initial) for a in launch.arguments if isinstance(a, BufferArgument) and a.name == "z")

    verdict = on_adder(Adder(nothing), host)
    assert isinstance(verdict, Unsafe) and verdict.hazard == "never_launched"


def test_a_back_end_that_gives_up_is_no_verdict(host: HostBackend) -> None:
    class Unable(Adder):
        def run(self, launches: Sequence[Launch]) -> list[RunResult]:
            return [NotSupported("the device is busy")]

    assert on_adder(Unable(), host) == Unverified("the device is busy")


@pytest.mark.parametrize(
    "text, name",
    [
        ("__device__ float kept[10]; __global__ void k(float* x) { kept[threadIdx.x] = x[0]; }", "kept"),
        ("__device__ int count; __global__ void k(int* x) { atomicAdd(&count, 1); x[0] = count; }", "count"),
        ("__device__ unsigned int done = 0; __global__ void k() { done++; }", "done"),
        ("static __device__ int2 p; __global__ void k() { p.x = 3; }", "p"),
        ("__device__ float table[4] = {1, 2, 3, 4}; __global__ void k(float* x) { x[0] = table[1]; }", None),
        ("__constant__ float table[4]; __global__ void k(float* x) { x[0] = table[1]; }", None),
        ("__device__ float kept[10]; __global__ void k(float* x) { float* p = kept; p[0] = x[0]; }", "kept"),
        ("__device__ float kept[10]; __global__ void k(float* x) { *(kept + 1) = x[0]; }", "kept"),
        ("__device__ float kept[10]; __global__ void k(float* x) { (kept)[1] = x[0]; }", "kept"),
        ("__device__ float kept[10]; __global__ void k(float* x) { auto&& c = kept[1]; c = x[0]; }", "kept"),
        ("__device__ float kept[9][9]; __global__ void k(float* x) { float& c{kept[1][2]}; c = x[0]; }", "kept"),
        ("__device__ int kept; __global__ void k(int* x) { int* p = true ? &kept : x; *p = 1; }", "kept"),
        ("__device__ int kept; __global__ void k(int* x) { (kept) += 1; ++(kept); }", "kept"),
        ("__device__ float t[4]; __global__ void k(float* x) { x[0] = t[1] == t[2] ? sizeof(t) : x[0] & t[3]; }", None),
        ("__device__ int n; __global__ void k(int* x) { if (n == 3 && x[0]) x[0] = n * 2 + (n); }", None),
        ("__device__ float twice(float v) { float kept = v; kept += v; return kept; }", None),
        ("__device__ const int n = 3; __global__ void k(int* x) { if (n == x[0]) x[0] = n; }", None),
        ("// __device__ int c; c = 3;\n__global__ void k(int* x) { x[0] = 1; }", None),
    ],
)  # fmt: skip
def test_state_that_outlives_a_launch_is_found(text: str, name: str | None) -> None:
    assert kept_state(text) == name
