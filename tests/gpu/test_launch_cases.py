"""On the card: structs by value, several launches and instantiations, and recorded launches, verified and timed."""

import struct
from typing import Any

import attrs
import numpy as np
import pytest

from dice_lsp.capture.store import RecordedSymbol
from dice_lsp.records import (
    Judged,
    JudgeJob,
    LaunchSpec,
    NotTimed,
    Origin,
    Reference,
    Same,
    Timing,
    Unsafe,
    Unverified,
    Verified,
    Wrong,
    from_wire,
    to_wire,
)
from dice_lsp.source.kernels import parse
from dice_lsp.worker import __main__ as worker
from dice_lsp.worker import recorded
from tests.gpu.support import Bench
from tests.worker.test_launch_cases import IN_DOUBLE, MOVE, OTHER, SCALE, TEXT, TWICE, WORK
from tests.worker.test_recorded import TEXT as RECORDED
from tests.worker.test_recorded import UNKNOWN, Store, X, address, float_, int_

LARGE = 1 << 20


def judged(bench: Bench, text: str, name: str, spec: LaunchSpec, **more: Any) -> Judged:
    kernel = next(kernel for kernel in parse(text).kernels if kernel.name == name)
    job = JudgeJob(text, "/nowhere/a.cu", kernel, spec, **more)
    answer = bench.worker.judge({"settings": {"backend": bench.backend.kind}, "job": to_wire(job)}, bench.call())
    return from_wire(answer, Judged)


def accepted(name: str, text: str = TEXT) -> dict[str, Any]:
    return {"baseline_text": text, "baseline_kernel": next(k for k in parse(text).kernels if k.name == name)}


def large(spec: LaunchSpec) -> LaunchSpec:
    return attrs.evolve(spec, dims=(attrs.evolve(spec.dims[0], values=(LARGE, 2000)),))


def test_a_struct_by_value(bench: Bench) -> None:
    same = TEXT.replace("float(w.scale) + w.size[1]", "float(w.scale) + 3")
    right = judged(bench, same, "work", large(WORK), **accepted("work"))
    assert isinstance(right.verdict, Verified), right.verdict
    assert isinstance(right.timing, Timing) and right.timing.case == f"n={LARGE}", right.timing
    wrong = judged(bench, same.replace("+ 3", "+ 7"), "work", WORK, **accepted("work")).verdict
    assert isinstance(wrong, Wrong) and wrong.buffer == "w.out"
    past = judged(bench, TEXT.replace("i < w.n", "i <= w.n"), "work", WORK).verdict
    assert isinstance(past, Unsafe) and past.hazard == "out_of_bounds"
    mutated = TEXT.replace("if (i < w.n) w", "if (i == 5) const_cast<float*>(w.in)[i] = 1; if (i < w.n) w")
    verdict = judged(bench, mutated, "work", WORK).verdict
    assert isinstance(verdict, Unsafe) and verdict.hazard == "mutated_input" and verdict.where.startswith("w.in[5]")


def test_vectors_by_value_and_structs_behind_a_pointer(bench: Bench) -> None:
    same = TEXT.replace("+= step.y", "+= -2.0f")
    right = judged(bench, same, "move", large(MOVE), **accepted("move"))
    assert isinstance(right.verdict, Verified) and isinstance(right.timing, Timing), (right.verdict, right.timing)


def test_several_launches_and_instantiations(bench: Bench) -> None:
    spec = attrs.evolve(large(SCALE), cases=(OTHER,))
    right = judged(bench, TEXT, "scale", spec)
    assert isinstance(right.verdict, Verified) and isinstance(right.timing, Timing), (right.verdict, right.timing)
    assert right.timing.case == f"launch at line 90: n={LARGE}"
    other = TEXT.replace("y[i] = 2 * x[i];\n", "y[i] = blockDim.x == 100 ? 3 * x[i] : 2 * x[i];\n")
    wrong = judged(bench, other, "scale", spec).verdict
    assert isinstance(wrong, Wrong) and wrong.case.startswith("launch at line 210")
    both = attrs.evolve(TWICE, cases=(IN_DOUBLE,))
    assert isinstance(judged(bench, TEXT, "twice", both).verdict, Verified)
    only_float = TEXT.replace("x[i] + x[i]", "sizeof(T) == 8 ? x[i] : x[i] + x[i]")
    double = judged(bench, only_float, "twice", both).verdict
    assert isinstance(double, Wrong) and double.case.endswith("T=double")


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    made = Store()
    monkeypatch.setattr(recorded, "store", made)
    monkeypatch.setattr(worker, "stores_of", lambda path: ["here"])
    return made


def test_a_recorded_launch_whose_arguments_lead_into_one_allocation(bench: Bench, store: Store) -> None:
    n, base, shift = 100_000, 0x7F0000000000, 400_064
    pool = np.random.default_rng(1).standard_normal(2 * n + 64, np.float32)
    left = pool.copy()
    left[shift // 4 : shift // 4 + n] = pool[4 : 4 + n] + np.float32(2)
    arguments = (address(base + 16), address(base + shift), int_(n), float_(2))
    store.add("add(float const*, float*, int, float)", -(-n // 256), 256, arguments, [(base, pool, left)])
    right = judged(bench, RECORDED, "add", UNKNOWN)
    assert isinstance(right.verdict, Verified) and right.verdict.max_error == 0.0, right.verdict
    assert right.verdict.reference == "what the program left in captured 1"
    assert isinstance(right.timing, Timing) and right.timing.case == "captured 1" and right.timing.bytes is None
    assert right.spec is not None and right.spec.captured == store.launches[0].launch
    other = judged(bench, RECORDED.replace("x[i] + a", "x[i] - a"), "add", UNKNOWN).verdict
    assert isinstance(other, Unverified) and "the program's run left" in other.reason
    stale = attrs.evolve(store.launches[0].launch, stale=True)
    store.launches[0] = attrs.evolve(store.launches[0], launch=stale)
    named = attrs.evolve(UNKNOWN, reference=Reference("captured", "", Origin.DIRECTIVE))
    wrong = judged(bench, RECORDED.replace("x[i] + a", "x[i] - a"), "add", named)
    assert isinstance(wrong.verdict, Wrong) and isinstance(wrong.timing, NotTimed)
    again = judged(bench, RECORDED, "add", named, **accepted("add", RECORDED))
    assert isinstance(again.verdict, Verified) and isinstance(again.comparison, Same), again


@pytest.mark.parametrize(("word", "symbol"), [("", "coef"), ("static ", "_ZL4coef")])
def test_a_recorded_struct_with_variables_of_the_module(bench: Bench, store: Store, word: str, symbol: str) -> None:
    text = RECORDED.replace("__constant__ float coef", f"{word}__constant__ float coef")
    n, base, to = 50_000, 0x7F0000000000, 0x7F0000200000
    x = np.random.default_rng(2).standard_normal(n + 2, np.float32)
    coef = np.array([10, 20, 30, 40], np.float32)
    left = np.float32(3) * x[2:] + coef[np.arange(n) & 3]
    data = struct.pack("<QQif", base + 8, to, n, 3.0)
    store.variables = [coef.view(np.uint8)]
    symbols = (RecordedSymbol(symbol, coef.nbytes, True, False),)
    memory = [(base, x, x), (to, np.zeros(n, np.float32), left)]
    store.add("work(Work)", -(-n // 256), 256, (data,), memory, symbols=symbols)
    right = judged(bench, text, "work", UNKNOWN)
    assert isinstance(right.verdict, Verified), right.verdict
    assert isinstance(right.timing, Timing) and right.timing.case == "captured 1", right.timing
    past = judged(bench, text.replace("i < w.n", "i <= w.n"), "work", UNKNOWN).verdict
    assert isinstance(past, Unsafe) and past.hazard == "out_of_bounds"


def test_recorded_integers_by_atomics(bench: Bench, store: Store) -> None:
    hits = np.array([100], np.int32)
    left = hits + np.int32((X > 0.5).sum())
    memory = [(0x7F0000000000, X, X), (0x7F0000100000, hits, left)]
    arguments = (address(memory[0][0]), address(memory[1][0]), int_(40))
    store.add("count(float const*, int*, int)", 1, 64, arguments, memory)
    right = judged(bench, RECORDED, "count", UNKNOWN)
    assert isinstance(right.verdict, Verified), right.verdict
    assert isinstance(right.timing, Timing) and right.timing.case == "captured 1", right.timing
