"""Several launches of a kernel, several instantiations, and structs that a spec fills, from the spec to the verdict."""

from collections.abc import Iterator
from typing import Any

import attrs
import numpy as np
import pytest

from dice_lsp.process import Job
from dice_lsp.records import (
    BufferSpec,
    Dim,
    Judged,
    JudgeJob,
    LaunchCase,
    LaunchSpec,
    Origin,
    Reference,
    Role,
    Unsafe,
    Unverified,
    Verified,
    Wrong,
    from_wire,
    to_wire,
)
from dice_lsp.source.kernels import parse
from dice_lsp.worker.__main__ import Worker
from dice_lsp.worker.arguments import BadSpec, Bound, bind
from dice_lsp.worker.cases import HOST_BUDGET, choose_cases, other_launches, undivided
from dice_lsp.worker.instantiations import merged, others
from dice_lsp.worker.launch import ScalarArgument

S = Origin.LAUNCH_SITE
TEXT = """
struct Work { const float* in; float* out; int n; double scale; int size[2]; };
struct Body { float x, y, z, m; };
void scale_cpu(const float* x, float* y, int n) { for (int i = 0; i < n; ++i) y[i] = 2 * x[i]; }
__global__ void scale(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2 * x[i];
}
__global__ void work(Work w) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < w.n) w.out[i] = w.in[i] * float(w.scale) + w.size[1];
}
__global__ void move(Body* bodies, const float2 step, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { bodies[i].x += step.x; bodies[i].y += step.y; }
}
template <typename T> __global__ void twice(const T* x, T* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] + x[i];
}
"""


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    made = Worker()
    yield made
    made.close()


class Here(Job):
    """A job that nobody cancels and whose events nobody sees."""

    def __init__(self) -> None:
        pass

    def check(self) -> None:
        pass

    def emit(self, event: str, data: Any) -> None:
        pass

    cancelled: Any = None


def judged(worker: Worker, name: str, spec: LaunchSpec, text: str = TEXT, **more: Any) -> Judged:
    kernel = next(kernel for kernel in parse(text).kernels if kernel.name == name)
    job = JudgeJob(text, "/nowhere/a.cu", kernel, spec, benchmark=False, **more)
    return from_wire(worker.judge({"settings": {"backend": "host"}, "job": to_wire(job)}, Here()), Judged)


def buffers(*names: str, size: str = "n") -> tuple[BufferSpec, ...]:
    roles = {"x": Role.IN, "w.in": Role.IN, "bodies": Role.IO}
    return tuple(BufferSpec(name, roles.get(name, Role.OUT), (size,), "normal", S) for name in names)


SCALE = LaunchSpec(
    "scale",
    (Dim("n", (5000,), S),),
    buffers("x", "y"),
    grid=("cdiv(n, 256)", "1", "1"),
    block=("256", "1", "1"),
    reference=Reference("function", "scale_cpu", Origin.INFERRED),
    label="launch at line 90",
)
OTHER = LaunchCase("launch at line 210", ("1", "1", "1"), ("m", "1", "1"), dims={"m": 100, "n": 100})


def test_each_launch_has_its_own_shape_and_sizes(worker: Worker) -> None:
    spec = attrs.evolve(SCALE, cases=(OTHER,))
    right = judged(worker, "scale", spec).verdict
    alone = judged(worker, "scale", SCALE).verdict
    assert isinstance(right, Verified) and isinstance(alone, Verified) and right.cases == alone.cases + 1
    # Right in the one launch, wrong in the other, and the verdict says which.
    only_large = TEXT.replace("y[i] = 2 * x[i];\n", "y[i] = blockDim.x == 100 ? 3 * x[i] : 2 * x[i];\n")
    wrong = judged(worker, "scale", spec, only_large).verdict
    assert isinstance(wrong, Wrong) and wrong.case == "launch at line 210: m=100, n=100"
    too_few = attrs.evolve(OTHER, block=("99", "1", "1"))
    unsafe = judged(worker, "scale", attrs.evolve(SCALE, cases=(too_few,))).verdict
    assert isinstance(unsafe, Unsafe) and unsafe.case.startswith("launch at line 210") and "y[99]" in unsafe.where
    own = judged(worker, "scale", SCALE, TEXT.replace("2 * x[i];\n", "n == 5000 ? x[i] : 2 * x[i];\n")).verdict
    assert isinstance(own, Wrong) and own.case == "launch at line 90: n=5000"


def test_the_evidence_follows_the_launches_and_not_where_they_stand(worker: Worker) -> None:
    def key(*cases: LaunchCase, label: str = "launch at line 90") -> str:
        return judged(worker, "scale", attrs.evolve(SCALE, cases=cases, label=label), verify=False).evidence.key

    lower = attrs.evolve(OTHER, label="launch at line 211")
    assert key(OTHER) == key(lower) == key(OTHER, label="launch at line 91")
    assert len({key(), key(OTHER), key(OTHER, OTHER), key(attrs.evolve(OTHER, block=("m / 2", "1", "1")))}) == 4


def test_a_launch_that_cannot_be_made_is_told_of(worker: Worker) -> None:
    cases = (
        attrs.evolve(OTHER, label="launch at line 1", grid=("k", "1", "1")),
        attrs.evolve(OTHER, label="launch at line 2", dims={"m": 1, "n": 1 << 40}),
        OTHER,
    )
    verdict = judged(worker, "scale", attrs.evolve(SCALE, cases=cases)).verdict
    assert isinstance(verdict, Verified)
    assert [note.split(": ")[0] for note in verdict.notes if note.startswith("launch at")] == [
        "launch at line 1 is not tried", "launch at line 2 is too large to check here",
    ]  # fmt: skip


def test_extents_and_scalars_of_a_launch_replace_the_specs() -> None:
    case = attrs.evolve(OTHER, scalars={"n": "m / 2"}, extents={"y": ("m",)}, smem_bytes="4 * m")
    kernel = parse(TEXT).kernels[0]
    ((found,), notes) = other_launches(attrs.evolve(SCALE, cases=(case,)), kernel, HOST_BUDGET)
    assert notes == () and found.spec is not None and found.plan.smem_bytes == 400
    assert {name: shape for name, (shape, _) in found.plan.sizes.items()} == {"x": (50,), "y": (100,)}
    assert found.spec.label == "launch at line 210" and found.given


TWICE = LaunchSpec(
    "twice",
    (Dim("n", (3000,), S),),
    buffers("x", "y"),
    grid=("cdiv(n, 128)", "1", "1"),
    block=("128", "1", "1"),
    template={"T": "float"},
    reference=Reference("torch", "2 * x", Origin.DIRECTIVE),
)
IN_DOUBLE = LaunchCase(
    "launch at line 12", ("cdiv(n, 64)", "1", "1"), ("64", "1", "1"), dims={"n": 500}, template={"T": "double"}
)


def test_another_instantiation_is_another_build(worker: Worker) -> None:
    spec = attrs.evolve(TWICE, cases=(IN_DOUBLE, attrs.evolve(OTHER, label="launch at line 30")))
    both = judged(worker, "twice", spec).verdict
    alone = judged(worker, "twice", TWICE).verdict
    assert isinstance(both, Verified) and isinstance(alone, Verified) and both.cases > alone.cases + 1
    only_float = TEXT.replace("x[i] + x[i]", "sizeof(T) == 8 ? x[i] : x[i] + x[i]")
    wrong = judged(worker, "twice", spec, only_float).verdict
    assert isinstance(wrong, Wrong) and wrong.case.endswith("T=double")
    refusing = TEXT.replace(
        "if (i < n) y[i] = x[i] + x[i];", 'static_assert(sizeof(T) == 4, "no"); if (i < n) y[i] = x[i] + x[i];'
    )
    broken = judged(worker, "twice", spec, refusing)
    assert isinstance(broken.verdict, Verified)
    assert any(note.startswith("T=double is not verified: ") for note in broken.verdict.notes)
    own = judged(
        worker, "twice", spec, TEXT.replace("y[i] = x[i] + x[i]", "y[i] = sizeof(T) == 4 ? x[i] : x[i] + x[i]")
    )
    assert isinstance(own.verdict, Wrong) and "T=double" not in own.verdict.case


def test_many_instantiations_are_not_all_built() -> None:
    cases = tuple(attrs.evolve(IN_DOUBLE, template={"T": name}) for name in ("int", "double", "short", "char", "long"))
    found, notes = others(attrs.evolve(TWICE, cases=cases))
    assert [other.words for other in found] == ["T=int", "T=double", "T=short"]
    assert notes == ("2 more instantiations are not checked",)
    assert all(other.spec.template["T"] == case.template["T"] for other, case in zip(found, cases, strict=False))


def test_verdicts_of_instantiations_make_one() -> None:
    (other,), _ = others(attrs.evolve(TWICE, cases=(IN_DOUBLE,)))
    right = Verified(3, 0.25, "host", "torch", ("bounds",))
    assert merged(right, [(other, attrs.evolve(right, max_error=0.5, notes=("uses printf",)))]) == Verified(
        6, 0.5, "host", "torch", ("bounds",), ("uses printf",)
    )
    unsafe = Unsafe("race", "line 3", "n=5")
    assert merged(right, [(other, unsafe)]) == attrs.evolve(unsafe, case="n=5, T=double")
    assert merged(unsafe, [(other, right)]) == unsafe
    # Unverified stays so, but what is known to be wrong is said.
    unknown = Unverified("no reference")
    assert merged(unknown, [(other, right)]) == unknown
    assert merged(unknown, [(other, unsafe)]) == attrs.evolve(unsafe, case="n=5, T=double")


WORK = LaunchSpec(
    "work",
    (Dim("n", (2000,), S),),
    buffers("w.in", "w.out"),
    scalars={"w.n": "n", "w.scale": "0.5 + 1", "w.size[0]": "7", "w.size[1]": "3"},
    grid=("cdiv(n, 256)", "1", "1"),
    block=("256", "1", "1"),
)


def test_a_struct_is_filled_field_by_field(worker: Worker) -> None:
    accepted = {"baseline_text": TEXT, "baseline_kernel": next(k for k in parse(TEXT).kernels if k.name == "work")}
    same = judged(worker, "work", WORK, TEXT.replace("float(w.scale) + w.size[1]", "float(w.scale) + 3"), **accepted)
    assert isinstance(same.verdict, Verified) and same.verdict.reference == "accepted kernel", same.verdict
    other = judged(worker, "work", WORK, TEXT.replace("float(w.scale) + w.size[1]", "float(w.scale) + 7"), **accepted)
    assert isinstance(other.verdict, Wrong) and other.verdict.buffer == "w.out"
    past = judged(worker, "work", WORK, TEXT.replace("i < w.n", "i <= w.n")).verdict
    assert isinstance(past, Unsafe) and past.where.startswith("w.in[")
    unwritten = judged(worker, "work", WORK, TEXT.replace("i < w.n", "i < w.n && i != 5")).verdict
    assert isinstance(unwritten, Unsafe) and unwritten.hazard == "unwritten_output"
    moved = TEXT.replace("int n; double scale;", "double scale; int n;")
    relaid = judged(worker, "work", WORK, moved, **accepted)
    assert isinstance(relaid.verdict, Unverified) and "laid out in another way" in relaid.verdict.reason


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"scalars": {"w.n": "n", "w.scale": "1", "w.size[0]": "7"}}, "the value of `w.size[1]` is not known"),
        ({"buffers": buffers("w.in")}, "the size of `w.out` is not known"),
        ({"scalars": {**WORK.scalars, "w.n": "1 << 40"}}, "`w.n` = 1099511627776 does not fit in int"),
    ],
)
def test_a_struct_that_is_not_all_known_is_not_launched(worker: Worker, change: Any, words: str) -> None:
    verdict = judged(worker, "work", attrs.evolve(WORK, **change)).verdict
    assert (
        isinstance(verdict, Unverified)
        and words in verdict.reason
        and "set w.size[1] =" in verdict.reason + "set w.size[1] ="
    )


def test_a_struct_without_a_layout_is_not_launched(worker: Worker) -> None:
    text = TEXT.replace("struct Work {", "struct Base { }; struct Work : Base {")
    verdict = judged(worker, "work", WORK, text).verdict
    assert isinstance(verdict, Unverified) and "`w` of type `Work`" in verdict.reason


def test_a_null_pointer_in_a_struct(worker: Worker) -> None:
    text = TEXT.replace("w.in[i] * float(w.scale)", "(w.in ? w.in[i] : 1)")
    spec = attrs.evolve(WORK, buffers=buffers("w.out"), scalars={**WORK.scalars, "w.in": "nullptr"})
    verdict = judged(worker, "work", spec, text).verdict
    assert isinstance(verdict, Unverified) and "no reference" in verdict.reason and "bounds" in verdict.checks


MOVE = LaunchSpec(
    "move",
    (Dim("n", (700,), S),),
    buffers("bodies"),
    scalars={"step.x": "0.5", "step.y": "-2"},
    grid=("cdiv(n, 256)", "1", "1"),
    block=("256", "1", "1"),
)


def test_structs_of_equal_numbers_behind_a_pointer_and_vectors_by_value(worker: Worker) -> None:
    accepted = {"baseline_text": TEXT, "baseline_kernel": next(k for k in parse(TEXT).kernels if k.name == "move")}
    same = judged(worker, "move", MOVE, TEXT.replace("+= step.y", "+= -2.0f"), **accepted).verdict
    assert isinstance(same, Verified), same
    other = judged(
        worker, "move", MOVE, TEXT.replace("bodies[i].y += step.y", "bodies[i].z += step.y"), **accepted
    ).verdict
    assert isinstance(other, Wrong) and other.index % 4 in (1, 2)
    mixed = TEXT.replace("float x, y, z, m;", "float x, y, z; int m;")
    verdict = judged(worker, "move", MOVE, mixed).verdict
    assert isinstance(verdict, Unverified) and "`Body` of `bodies`" in verdict.reason


def test_the_bytes_of_a_vector_by_value() -> None:
    kernel = next(k for k in parse(TEXT).kernels if k.name == "move")
    plain = attrs.evolve(MOVE, buffers=(attrs.evolve(MOVE.buffers[0], name="bodies"),))
    bodies = attrs.evolve(kernel.parameters[0], element="float4")
    kernel = attrs.evolve(kernel, parameters=(bodies, *kernel.parameters[1:]))
    bound = bind(plain, kernel, {"n": 700})
    assert isinstance(bound, Bound)
    step = bound.launch().arguments[1]
    assert isinstance(step, ScalarArgument) and np.frombuffer(step.data, np.float32).tolist() == [0.5, -2]


def test_sizes_that_the_launch_cuts_off_are_not_tried() -> None:
    kernel = parse(TEXT).kernels[0]
    halves = attrs.evolve(
        SCALE, dims=(Dim("n", (65536, 96), Origin.DIRECTIVE),), grid=("n / 32", "1", "1"), block=("32", "1", "1")
    )
    cases = choose_cases(halves, kernel, HOST_BUDGET)
    assert not isinstance(cases, BadSpec) and len(cases) >= 3
    assert all(case.dims["n"] % 32 == 0 for case in cases) and {96, 65536} <= {case.dims["n"] for case in cases}
    assert undivided(halves, kernel) == ("sizes that 32 does not divide were not tried: the launch has n / 32",)
    for grid in ("cdiv(n, 32)", "(n + 31) / 32"):
        up = attrs.evolve(halves, grid=(grid, "1", "1"))
        tried = choose_cases(up, kernel, HOST_BUDGET)
        assert not isinstance(tried, BadSpec) and any(case.dims["n"] % 32 for case in tried)
        assert undivided(up, kernel) == ()
