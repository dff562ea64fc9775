"""Recorded launches as cases and as a reference, on the host; what a launch holds is written here by hand."""

import struct
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import pytest

from dice_lsp.capture.recording import CaptureError
from dice_lsp.capture.store import Recorded, RecordedAllocation, RecordedParameter, RecordedSymbol
from dice_lsp.records import (
    BufferSpec,
    CapturedLaunch,
    Compiled,
    Dim,
    JudgeJob,
    LaunchSpec,
    Origin,
    Reference,
    Role,
    Tolerance,
    Unsafe,
    Unverified,
    Verdict,
    Verified,
    Wrong,
)
from dice_lsp.source.kernels import parse
from dice_lsp.worker import recorded as module
from dice_lsp.worker import roofline, sanitizer
from dice_lsp.worker.compile import Compiler
from dice_lsp.worker.host import HostBackend
from dice_lsp.worker.launch import Source
from dice_lsp.worker.layouts import laid_out
from dice_lsp.worker.program import CompileJob
from dice_lsp.worker.recorded import RecordedCase, bind_recorded, is_only_recorded, near, template_of, with_recordings
from dice_lsp.worker.verify import verify

FILE = "/home/me/run.capture"
TEXT = """
struct Work { const float* in; float* out; int n; float scale; };
__constant__ float coef[4];
__global__ void add(const float* x, float* y, int n, float a) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] + a;
}
__global__ void work(Work w) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < w.n) w.out[i] = w.in[i] * w.scale + coef[i & 3];
}
template <typename T, int N> __global__ void fill(T* y) { y[threadIdx.x] = T(N); }
__global__ void count(const float* x, int* hits, int n) {
  int i = threadIdx.x;
  if (i < n && x[i] > 0.5f) atomicAdd(hits, 1);
}
__global__ void rows(float** x, float* y) { y[0] = x[0][0]; }
"""
X = np.linspace(-1, 1, 40, dtype=np.float32)


class Store:
    """What `capture.store` gives, from launches that are at hand."""

    def __init__(self) -> None:
        self.launches: list[Recorded] = []
        self.memory: dict[int, list[tuple[np.ndarray, np.ndarray | None]]] = {}
        self.variables: list[np.ndarray] = []

    def find(self, path: str, kernel: Any, text_key: str) -> tuple[Recorded, ...]:
        return tuple(launch for launch in self.launches if self.matches(launch, kernel))

    def read_file(self, file: str) -> tuple[Recorded, ...]:
        if file != FILE:
            raise CaptureError(f"{file} cannot be read")
        return tuple(self.launches)

    def resolve(self, name: str, path: str) -> str | None:
        return FILE if name == "run.capture" else None

    def matches(self, launch: Recorded, kernel: Any) -> bool:
        return kernel.name in launch.kernel

    def before(self, launch: Recorded, index: int) -> np.ndarray:
        return self.memory[launch.launch.index][index][0]

    def after(self, launch: Recorded, index: int) -> np.ndarray | None:
        return self.memory[launch.launch.index][index][1]

    def symbol_before(self, launch: Recorded, index: int) -> np.ndarray:
        return self.variables[index]

    def add(
        self, kernel: str, grid: int, block: int, arguments: Sequence[bytes],
        memory: Sequence[tuple[int, np.ndarray, np.ndarray]], **more: Any,
    ) -> Recorded:  # fmt: skip
        index = len(self.launches)
        launch = CapturedLaunch(FILE, index, f"digest {index}", more.pop("stale", False))
        self.memory[index] = [(before.view(np.uint8), after.view(np.uint8)) for _, before, after in memory]
        allocations = [RecordedAllocation(at, before.nbytes, "device", True, False) for at, before, _ in memory]
        parameters = [RecordedParameter(0, len(data), data) for data in arguments]
        self.launches.append(
            Recorded(
                launch,
                kernel,
                "_Z",
                (grid, 1, 1),
                (block, 1, 1),
                0,
                (1, 1, 1),
                False,
                tuple(parameters),
                tuple(allocations),
                more.pop("symbols", ()),
                more.pop("problems", ()),
                index + 1,
                "first",
                True,
                "H200",
            )  # fmt: skip
        )
        self.launches[-1] = attrs.evolve(self.launches[-1], **more)
        return self.launches[-1]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    made = Store()
    monkeypatch.setattr(module, "store", made)
    return made


COMPILED = Compiled("sm_90", "nvrtc", "k", 16, 0, 0, 0, 0, 256, 1.0, "none", 1.0)
UNKNOWN = LaunchSpec("k", unknown=("the grid is not known",))
CAPTURED = Reference("captured", "", Origin.DIRECTIVE)


def kernel_of(name: str, text: str = TEXT) -> Any:
    return next(kernel for kernel in parse(text).kernels if kernel.name == name)


def address(value: int) -> bytes:
    return struct.pack("<Q", value)


def int_(value: int) -> bytes:
    return struct.pack("<i", value)


def float_(value: float) -> bytes:
    return struct.pack("<f", value)


def record_add(store: Store, n: int = 40, wrong: bool = False, **more: Any) -> Recorded:
    y = np.full(n, 5, np.float32)
    left = X[:n] + np.float32(1.5) + np.float32(wrong)
    memory = [(0x7F0000000000, X[:n].copy(), X[:n].copy()), (0x7F0000100000, y, left)]
    arguments = (address(memory[0][0]), address(memory[1][0]), int_(n), float_(1.5))
    return store.add("add(float const*, float*, int, float)", 2, 32, arguments, memory, **more)


def check(
    host: HostBackend, name: str, spec: LaunchSpec = UNKNOWN, text: str = TEXT, compiled: Compiled = COMPILED,
    baseline: str | None = None, kernel: Any = None,
) -> Verdict:  # fmt: skip
    kernel = kernel or kernel_of(name, text)
    found = with_recordings(spec, kernel, "/home/me/a.cu", "key")
    job = JudgeJob(text, "/home/me/a.cu", kernel, found.spec)
    source = Source(text, "/home/me/a.cu", kernel, found.spec.template, compiled)
    accepted = None
    if baseline is not None:
        accepted = Source(baseline, "/home/me/a.cu", kernel_of(name, baseline), found.spec.template, compiled)
    return verify(job, source, host, host, notes=found.notes, baseline_source=accepted)


def test_a_kernel_that_nothing_else_knows_how_to_launch(store: Store, host: HostBackend) -> None:
    record_add(store)
    verdict = check(host, "add")
    assert isinstance(verdict, Verified) and verdict.reference == "what the program left in captured 1"
    assert {"bounds", "inputs", "addresses", "block_order", "cases"} <= set(verdict.checks)
    # Its outputs hold what the program put there, so that nobody can tell whether all are written.
    assert not {"unwritten", "seeds", "distributions", "nan"} & set(verdict.checks)
    spec = with_recordings(UNKNOWN, kernel_of("add"), "/home/me/a.cu", "key").spec
    assert spec.launchable and is_only_recorded(spec) and spec.captured == store.launches[0].launch
    assert (spec.grid, spec.block, spec.label) == (("2", "1", "1"), ("32", "1", "1"), "captured 1")
    assert spec.scalars == {"n": "40", "a": "1.5"} and spec.origins["grid"] is Origin.CAPTURED
    assert [(b.name, b.role, b.extents) for b in spec.buffers] == [("x", Role.IN, ("40",)), ("y", Role.IO, ("40",))]


def test_what_breaks_a_rule_is_refused_whatever_is_left(store: Store, host: HostBackend) -> None:
    record_add(store)
    for old, new, hazard in (
        ("if (i < n) y", "y", "out_of_bounds"),
        ("y[i] = x[i] + a", "{ const_cast<float*>(x)[i] = 1; y[i] = x[i] + a; }", "mutated_input"),
        ("y[i] = x[i] + a", "y[i & 7] = x[i] + a", "race"),
    ):
        verdict = check(host, "add", text=TEXT.replace(old, new, 1))
        assert isinstance(verdict, Unsafe) and verdict.hazard == hazard and verdict.case == "captured 1", verdict


def test_another_result_of_the_same_text_is_not_held_against_it(store: Store, host: HostBackend) -> None:
    record_add(store, wrong=True)
    verdict = check(host, "add")
    assert isinstance(verdict, Unverified) and "the program's run left" in verdict.reason


def test_what_another_text_left_counts_where_the_directive_says_so(store: Store, host: HostBackend) -> None:
    record_add(store, stale=True)
    silent = check(host, "add")
    assert isinstance(silent, Unverified) and "write `ref captured`" in silent.reason and "bounds" in silent.checks
    named = attrs.evolve(UNKNOWN, reference=CAPTURED)
    right = check(host, "add", named)
    assert isinstance(right, Verified)
    assert any("recorded with another text" in note for note in right.notes)
    wrong = check(host, "add", named, TEXT.replace("x[i] + a", "x[i] - a"))
    assert isinstance(wrong, Wrong) and (wrong.buffer, wrong.index, wrong.case) == ("y", 0, "captured 1")
    file = check(host, "add", attrs.evolve(UNKNOWN, reference=attrs.evolve(CAPTURED, text="run.capture")))
    assert isinstance(file, Verified)
    gone = check(host, "add", attrs.evolve(UNKNOWN, reference=attrs.evolve(CAPTURED, text="gone.capture")))
    assert isinstance(gone, Unverified)


def test_inputs_of_another_text_serve_with_the_accepted_kernel(store: Store, host: HostBackend) -> None:
    record_add(store, stale=True, wrong=True)
    right = check(host, "add", text=TEXT.replace("x[i] + a", "a + x[i]"), baseline=TEXT)
    assert isinstance(right, Verified) and right.reference == "accepted kernel"
    wrong = check(host, "add", text=TEXT.replace("x[i] + a", "a - x[i]"), baseline=TEXT)
    assert isinstance(wrong, Wrong) and wrong.case == "captured 1"


def test_what_is_learned_by_heart_is_found_out(store: Store, host: HostBackend) -> None:
    record_add(store, stale=True)
    named = attrs.evolve(UNKNOWN, reference=CAPTURED)
    honest = check(host, "add", named, TEXT.replace("x[i] + a", "a + x[i]"), baseline=TEXT)
    assert isinstance(honest, Verified) and "seeds" in honest.checks
    by_heart = TEXT.replace("y[i] = x[i] + a;", "y[i] = x[0] == -1.0f ? x[i] + a : 0;")
    assert isinstance(check(host, "add", named, by_heart), Verified), "the recorded numbers alone cannot tell"
    wrong = check(host, "add", named, by_heart, baseline=TEXT)
    assert isinstance(wrong, Wrong) and wrong.case == "captured 1, numbers never seen before"


def test_exact_means_bit_for_bit(store: Store, host: HostBackend) -> None:
    launch = record_add(store)
    left = store.memory[0][1][1]
    assert left is not None
    left.view(np.uint32)[7] += 1
    named = attrs.evolve(UNKNOWN, reference=CAPTURED)
    store.launches[0] = attrs.evolve(launch, launch=attrs.evolve(launch.launch, stale=True))
    assert isinstance(check(host, "add", named), Verified)
    exact = check(host, "add", attrs.evolve(named, tolerances=(Tolerance("", exact=True),)))
    assert isinstance(exact, Wrong) and exact.index == 7


def test_arguments_that_lead_into_one_allocation(store: Store, host: HostBackend) -> None:
    pool = np.concatenate([np.zeros(3, np.float32), X, np.full(50, 9, np.float32)])
    left = pool.copy()
    left[50:90] = X + 2
    base = 0x7F0000000000
    arguments = (address(base + 12), address(base + 200), int_(40), float_(2))
    store.add("add(float const*, float*, int, float)", 2, 32, arguments, [(base, pool, left)])
    assert isinstance(check(host, "add"), Verified)
    beside = check(host, "add", text=TEXT.replace("y[i] = x[i] + a;", "{ y[i] = x[i] + a; y[40] = 0; }"))
    assert isinstance(beside, Unsafe) or (isinstance(beside, Unverified) and "x[90] is 0" in beside.reason), beside


def test_structs_and_variables(store: Store, host: HostBackend, compiler: Compiler) -> None:
    text, kernel = TEXT, kernel_of("work")
    order = CompileJob(text, "/home/me/a.cu", (kernel,), alone=True)
    compiled = compiler.compile(order)["work"]
    assert isinstance(compiled, Compiled)
    coef = np.array([10, 20, 30, 40], np.float32)
    base, to = 0x7F0000000000, 0x7F0000200000
    data = struct.pack("<QQif", base + 8, to, 38, 3.0)
    left = X[2:] * np.float32(3) + coef[np.arange(38) & 3]
    y = np.zeros(38, np.float32)
    symbols = tuple(RecordedSymbol(name, coef.nbytes, True, False) for name in ("coef", "unused"))
    store.variables = [coef.view(np.uint8), coef.view(np.uint8)]
    store.add("work(Work)", 2, 32, (data,), [(base, X, X), (to, y, left)], symbols=symbols)
    # Without a layout the addresses are found by what they are, but not what lies there.
    blind = check(host, "work", compiled=compiled)
    assert isinstance(blind, Unverified) and "cannot be compared as numbers" in blind.reason
    known = laid_out(compiler, order, kernel, {}, {})
    verdict = check(host, "work", compiled=compiled, kernel=known)
    assert isinstance(verdict, Verified), verdict
    assert not any("coef is zero" in note for note in verdict.notes)
    past = check(host, "work", text=text.replace("i < w.n", "i <= w.n"), compiled=compiled, kernel=known)
    assert isinstance(past, Unsafe) and past.where.startswith("w.")
    unset = check(host, "work", compiled=COMPILED, kernel=known)
    assert isinstance(unset, Unverified), "without the variable something else comes out"
    case = bind_recorded(store.launches[0].launch, "captured 1", UNKNOWN, known, compiled)
    assert isinstance(case, RecordedCase) and case.bound.hidden == ("w.in", "w.out") and case.bound.passed == ()
    assert set(case.bound.variables) == {"coef"}


def test_what_a_directive_says_of_the_launch_stays(store: Store, host: HostBackend) -> None:
    record_add(store)
    spec = LaunchSpec(
        "add",
        (Dim("n", (1000, 33), Origin.DIRECTIVE),),
        tuple(BufferSpec(name, role, ("n",), "normal", Origin.DIRECTIVE) for name, role in (("x", Role.IN), ("y", Role.OUT))),
        grid=("cdiv(n, 256)", "1", "1"),
        block=("256", "1", "1"),
        origins={"grid": Origin.DIRECTIVE},
    )  # fmt: skip
    found = with_recordings(spec, kernel_of("add"), "/home/me/a.cu", "key").spec
    assert found.captured is None and [case.label for case in found.cases] == ["captured 1"]
    verdict = check(host, "add", spec)
    assert isinstance(verdict, Verified) and {"unwritten", "cases"} <= set(verdict.checks) and verdict.cases > 3
    assert "other sizes than the recorded ones were run without a reference" in verdict.notes
    read = attrs.evolve(
        spec, origins={"grid": Origin.LAUNCH_SITE}, dims=tuple(attrs.evolve(d, origin=Origin.LAUNCH_SITE) for d in spec.dims)
    )  # fmt: skip
    timed = with_recordings(read, kernel_of("add"), "/home/me/a.cu", "key").spec
    assert timed.captured == store.launches[0].launch and not is_only_recorded(timed)
    unwritten = check(host, "add", spec, TEXT.replace("if (i < n) y", "if (i < n && n == 40) y"))
    assert isinstance(unwritten, Unsafe) and unwritten.hazard == "unwritten_output"


def test_sizes_that_cannot_be_run_leave_what_was_recorded(store: Store, host: HostBackend) -> None:
    record_add(store)
    spec = LaunchSpec(
        "add",
        (Dim("n", (1 << 30,), Origin.LAUNCH_SITE),),
        tuple(BufferSpec(name, role, ("n",), "normal", Origin.LAUNCH_SITE) for name, role in (("x", Role.IN), ("y", Role.OUT))),
        grid=("cdiv(n, 256)", "1", "1"),
        block=("256", "1", "1"),
        origins={"grid": Origin.LAUNCH_SITE},
    )  # fmt: skip
    verdict = check(host, "add", spec)
    assert isinstance(verdict, Verified) and "unwritten" not in verdict.checks
    assert any("only recorded launches were run: n=1073741824 is too large" in note for note in verdict.notes)
    store.launches.clear()
    alone = check(host, "add", spec)
    assert isinstance(alone, Unverified) and "is too large" in alone.reason


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cluster": (2, 1, 1)}, "thread block clusters"),
        ({"cooperative": True}, "cooperative launch"),
        ({"problems": ("its memory is over the limit",)}, "its memory is over the limit"),
        ({"parameters": ()}, "it has 0 parameters, the kernel has 4"),
    ],
)
def test_what_cannot_be_run_again_is_said(store: Store, host: HostBackend, change: Any, words: str) -> None:
    record_add(store)
    store.launches[0] = attrs.evolve(store.launches[0], **change)
    found = with_recordings(UNKNOWN, kernel_of("add"), "/home/me/a.cu", "key")
    assert (
        found.spec == UNKNOWN and words in found.notes[0] and found.notes[0].startswith("captured 1 is not run again")
    )


def test_memory_that_does_not_fit_the_text_is_refused(store: Store) -> None:
    launch = record_add(store)

    def refused(spec: LaunchSpec = UNKNOWN, name: str = "add", **change: Any) -> str:
        store.launches[0] = attrs.evolve(launch, **change)
        case = bind_recorded(launch.launch, "captured 1", spec, kernel_of(name), None)
        assert not isinstance(case, RecordedCase)
        return case.reason

    x, y, n, a = launch.parameters
    assert "had 8 bytes, `int` has 4" in refused(parameters=(x, y, attrs.evolve(n, data=bytes(8)), a))
    lost = attrs.evolve(y, data=address(0x1234))
    assert "`y` leads to memory that was not recorded" in refused(parameters=(x, lost, n, a))
    assert "pointer to pointers" in refused(name="rows", parameters=(x, y))
    store.launches[0] = launch
    case = bind_recorded(launch.launch, "captured 1", UNKNOWN, kernel_of("add"), None, memory_limit_bytes=100)
    assert not isinstance(case, RecordedCase) and case.too_large
    assert not isinstance(
        bind_recorded(CapturedLaunch(FILE, 7), "captured 8", UNKNOWN, kernel_of("add"), None), RecordedCase
    )


@pytest.mark.parametrize(
    ("name", "template"),
    [
        ("void fill<float, 16>(float*)", {"T": "float", "N": "16"}),
        ("void ours::fill<unsigned int, (int)4>(unsigned int*)", {"T": "unsigned int", "N": "4"}),
        ("void fill<ours::Pair<int, float>, 8u>(ours::Pair<int, float>*)", {"T": "ours::Pair<int, float>", "N": "8"}),
        ("void fill<__half, (bool)1>(__half*)", {"T": "__half", "N": "true"}),
        ("void fill<float>(float*)", None),
        ("fill", None),
    ],
)
def test_template_arguments_of_a_name(store: Store, name: str, template: dict[str, str] | None) -> None:
    launch = store.add(name, 1, 1, (), [])
    assert template_of(launch, kernel_of("fill")) == template


def test_instantiations_are_cases_of_their_own(store: Store) -> None:
    memory = [(0x7F0000000000, np.zeros(8, np.float32), np.full(8, 3, np.float32))]
    for name in ("void fill<float, 3>(float*)", "void fill<float, 4>(float*)", "void fill<float, 3>(float*)"):
        store.add(name, 1, 8, (address(0x7F0000000000),), memory)
    spec = attrs.evolve(UNKNOWN, template={"T": "float", "N": "THREE"}, constants={"THREE": 3})
    found = with_recordings(spec, kernel_of("fill"), "/home/me/a.cu", "key").spec
    assert found.template == {"T": "float", "N": "THREE"} and found.label == "captured 1"
    assert [(case.label, case.template["N"]) for case in found.cases] == [("captured 2", "4"), ("captured 3", "THREE")]


def test_many_launches_are_few_cases(store: Store) -> None:
    for number in range(40):
        record_add(store, n=8 + number % 3)
        store.launches[-1] = attrs.evolve(store.launches[-1], grid=(1 + (number == 33), 1, 1))
    spec = with_recordings(UNKNOWN, kernel_of("add"), "/home/me/a.cu", "key").spec
    assert spec.label == "captured 34" and len(spec.cases) == module.MOST_LAUNCHES - 1


def test_recorded_memory_is_bounded_as_a_whole(
    store: Store, host: HostBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in (8, 16, 24):
        record_add(store, n=n)
        store.launches[-1] = attrs.evolve(store.launches[-1], block=(32 + n, 1, 1))
    monkeypatch.setattr("dice_lsp.worker.verify._RECORDED_BYTES", 2 * 4 * (8 + 24))
    verdict = check(host, "add")
    assert isinstance(verdict, Verified) and verdict.reference == "what the program left in captured 1, captured 2"
    assert any("captured 3 is not run again: its buffers have" in note for note in verdict.notes)


def test_a_result_that_was_there_before_says_nothing(store: Store, host: HostBackend) -> None:
    left = X + np.float32(1.5)
    memory = [(0x7F0000000000, X, X), (0x7F0000100000, left.copy(), left)]
    arguments = (address(memory[0][0]), address(memory[1][0]), int_(40), float_(1.5))
    store.add("add(float const*, float*, int, float)", 2, 32, arguments, memory)
    verdict = check(host, "add")
    assert isinstance(verdict, Unverified) and "was right before the kernel ran" in verdict.reason


def test_integers_that_are_counted(store: Store, host: HostBackend) -> None:
    hits = np.array([100, -1], np.int32)
    left = hits + np.array([int((X > 0.5).sum()), 0], np.int32)
    memory = [(0x7F0000000000, X, X), (0x7F0000100000, hits, left)]
    arguments = (address(memory[0][0]), address(memory[1][0]), int_(40))
    store.add("count(float const*, int*, int)", 1, 64, arguments, memory)
    assert isinstance(check(host, "count"), Verified)
    named = attrs.evolve(UNKNOWN, reference=CAPTURED)
    store.launches[0] = attrs.evolve(store.launches[0], launch=attrs.evolve(store.launches[0].launch, stale=True))
    wrong = check(host, "count", named, TEXT.replace("x[i] > 0.5f", "x[i] > 0.6f"))
    assert isinstance(wrong, Wrong) and wrong.buffer == "hits"


def test_what_timing_and_the_sanitizer_make_of_it(store: Store) -> None:
    record_add(store)
    kernel = kernel_of("add")
    spec = with_recordings(UNKNOWN, kernel, "/home/me/a.cu", "key").spec
    case = bind_recorded(store.launches[0].launch, "captured 1", spec, kernel, None)
    assert isinstance(case, RecordedCase) and case.bound.label == "captured 1"
    # How much of the memory is used is not known, so that no time can be impossible.
    assert roofline.work(spec, case.bound) == roofline.Work(None, None)
    assert roofline.work(attrs.evolve(spec, bytes="8 * n"), case.bound).bytes == 320
    moved = near(case.bound, 1, 2**-9).buffers["x"].data
    assert moved is not None and (np.abs(moved) <= np.abs(X)).all() and np.allclose(moved, X, rtol=2**-8)
    assert (moved != X).any()
    small = sanitizer.small_cases(spec, kernel, 1, None)
    assert not isinstance(small, str) and [bound.label for bound in small] == ["captured 1"]
