"""The host emulation with a real compiler: right kernels agree with numpy in every order, wrong ones are told apart."""

import re
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

from dice_lsp.records import Compiled, CompileFailed
from dice_lsp.source.kernels import parse
from dice_lsp.worker.host import HostBackend, HostKernel
from dice_lsp.worker.launch import (
    BlockOrder,
    BufferArgument,
    Faulted,
    Guard,
    Launch,
    NotSupported,
    Ran,
    RunResult,
    ScalarArgument,
    Source,
)

COMPILED = Compiled("sm_90", "nvrtc", "k", 16, 0, 0, 0, 0, 256, 1.0, "none", 1.0)
DATA = Path(__file__).parent.parent / "data" / "host"
RIGHT = (DATA / "right.cu").read_text()
ALL_WAYS = [
    (BlockOrder.ASCENDING, Guard.RIGHT),
    (BlockOrder.DESCENDING, Guard.LEFT),
    (BlockOrder.RANDOM, Guard.RIGHT),
]


@pytest.fixture(scope="module")
def backend() -> Any:
    host = HostBackend()
    assert "missing" not in host.describe(), host.describe()
    yield host
    host.close()


def source(text: str, name: str | None = None, **more: Any) -> Source:
    kernel = next(k for k in parse(text).kernels if name is None or k.name == name)
    return Source(text, more.pop("path", "/nowhere/kernel.cu"), kernel, compiled=more.pop("compiled", COMPILED), **more)


def launch(
    grid: Any,
    block: Any,
    values: Mapping[str, Any],
    outs: Sequence[str] = (),
    itemsizes: Mapping[str, int] = {},
    **more: Any,
) -> Launch:
    def three(size: Any) -> tuple[int, int, int]:
        size = size if isinstance(size, tuple) else (size,)
        return (*size, *(1,) * (3 - len(size)))

    arguments = tuple(
        BufferArgument(name, value, itemsizes.get(name, value.dtype.itemsize), name in outs)
        if isinstance(value, np.ndarray)
        else ScalarArgument(name, np.asarray(value).tobytes())
        for name, value in values.items()
    )
    return Launch(three(grid), three(block), more.pop("smem_bytes", 0), arguments, **more)


def run(backend: HostBackend, text: str, one: Launch, name: str | None = None, **more: Any) -> RunResult:
    prepared = backend.prepare(source(text, name, **more))
    if not isinstance(prepared, HostKernel):
        assert isinstance(prepared, NotSupported), prepared
        return prepared
    return prepared.run([one])[0]


def outputs(backend: HostBackend, name: str, *where: Any, template: Any = {}, **more: Any) -> list[Mapping[str, Any]]:
    """What a kernel of `right.cu` gives in each order and with each guard, in one child."""
    prepared = backend.prepare(source(RIGHT, name, template=template))
    assert isinstance(prepared, HostKernel), prepared
    results = prepared.run([launch(*where, **more, order=o, guard=g, seed=7) for o, g in ALL_WAYS])
    assert len(results) == len(ALL_WAYS)
    for result in results:
        assert isinstance(result, Ran), result
    return [result.outputs for result in results if isinstance(result, Ran)]


def floats(*shape: int, seed: int = 1) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def poisoned(n: int, dtype: Any = np.float32) -> Any:
    return np.frombuffer(b"\xff" * (n * np.dtype(dtype).itemsize), dtype).copy()


def test_vector_add(backend: HostBackend) -> None:
    n = 1003
    a, b = floats(n), floats(n, seed=2)
    for out in outputs(backend, "vadd", 4, 256, dict(a=a, b=b, c=poisoned(n), n=np.int32(n)), ["c"]):
        np.testing.assert_array_equal(out["c"], a + b)
        np.testing.assert_array_equal(out["a"], a)


def test_reduction_with_shuffles_shared_memory_and_atomics(backend: HostBackend) -> None:
    x = floats(10_000)
    for out in outputs(backend, "total", 5, 256, dict(x=x, out=np.zeros(1, "f"), n=np.int32(x.size)), ["out"]):
        np.testing.assert_allclose(out["out"][0], x.sum(dtype=np.float64), rtol=1e-4)


def test_transpose_with_a_tile(backend: HostBackend) -> None:
    w, h = 100, 77
    x = floats(h, w)
    values = {"in": x.ravel(), "out": poisoned(w * h), "width": np.int32(w), "height": np.int32(h)}
    for out in outputs(backend, "transpose", (4, 3), (32, 8), values, ["out"]):
        np.testing.assert_array_equal(out["out"].reshape(w, h), x.T)


def test_threads_may_leave_before_a_barrier(backend: HostBackend) -> None:
    n = 150
    x = floats(n)
    for out in outputs(backend, "leaves_early", 3, 64, dict(x=x, out=poisoned(n), n=np.int32(n)), ["out"]):
        np.testing.assert_array_equal(out["out"], np.concatenate([x[at : at + 64][::-1] for at in range(0, n, 64)]))


@pytest.mark.parametrize(("kind", "dtype"), [("float", np.float32), ("double", np.float64), ("int", np.int32)])
def test_tiled_matrix_product_template(backend: HostBackend, kind: str, dtype: Any) -> None:
    m, n, k = 50, 37, 41
    generator = np.random.default_rng(3)
    a, b = (generator.integers(-9, 9, shape).astype(dtype) for shape in ((m, k), (k, n)))
    values = dict(A=a.ravel(), B_=b.ravel(), C=poisoned(m * n, dtype), M=np.int32(m), N=np.int32(n), K=np.int32(k))
    for out in outputs(backend, "gemm", (3, 4), (16, 16), values, ["C"], template={"T": kind, "B": "16"}):
        np.testing.assert_array_equal(out["C"].reshape(m, n), a @ b)


def test_softmax_with_dynamic_shared_memory(backend: HostBackend) -> None:
    n, d = 9, 1000
    x = floats(n, d)
    expected = np.exp(x - x.max(1, keepdims=True))
    expected /= expected.sum(1, keepdims=True)
    values = dict(x=x.ravel(), y=poisoned(n * d), d=np.int32(d))
    for out in outputs(backend, "softmax", n, 128, values, ["y"], smem_bytes=512):
        np.testing.assert_allclose(out["y"].reshape(n, d), expected, rtol=1e-5)


def test_stencil_in_double(backend: HostBackend) -> None:
    nx, ny = 45, 33
    x = np.random.default_rng(1).standard_normal((ny, nx))
    expected = x.copy()
    expected[1:-1, 1:-1] = 0.2 * (x[1:-1, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:] + x[:-2, 1:-1] + x[2:, 1:-1])
    values = {"in": x.ravel(), "out": poisoned(nx * ny, np.float64), "nx": np.int32(nx), "ny": np.int32(ny)}
    for out in outputs(backend, "stencil", (2, 5), (32, 8), values, ["out"]):
        np.testing.assert_allclose(out["out"].reshape(ny, nx), expected, rtol=1e-12)


def test_histogram_with_shared_atomics(backend: HostBackend) -> None:
    x = np.random.default_rng(1).integers(0, 256, 5000).astype(np.uint8)
    values = dict(x=x, h=np.zeros(256, np.uint32), n=np.int32(x.size))
    for out in outputs(backend, "histogram", 3, 128, values, ["h"]):
        np.testing.assert_array_equal(out["h"], np.bincount(x, minlength=256))


def test_scan_of_a_block(backend: HostBackend) -> None:
    x = np.arange(500, dtype=np.int32)
    values = dict(x=x, y=poisoned(500, np.int32), n=np.int32(500))
    for out in outputs(backend, "block_scan", 1, 512, values, ["y"], smem_bytes=2048):
        np.testing.assert_array_equal(out["y"], np.cumsum(x))


def test_vector_types(backend: HostBackend) -> None:
    x = floats(400)
    values = dict(x=x, y=poisoned(400), a=np.float32(3), n4=np.int32(100))
    for out in outputs(backend, "scale4", 1, 128, values, ["y"], {"x": 16, "y": 16}):
        np.testing.assert_array_equal(out["y"], 3 * x)


def test_a_vectorised_kernel_with_a_tail_finds_aligned_buffers(backend: HostBackend) -> None:
    x = floats(1003)
    values = dict(x=x, y=poisoned(1003), a=np.float32(3), n=np.int32(1003))
    for out in outputs(backend, "scale_vector_and_tail", 1, 256, values, ["y"]):
        np.testing.assert_array_equal(out["y"], 3 * x)


def test_64_bit_integers(backend: HostBackend) -> None:
    x = np.arange(1000, dtype=np.int64) << 33
    values = dict(x=x, out=np.zeros(1, np.uint64), n=np.int64(1000))
    for out in outputs(backend, "long_sum", 1, 64, values, ["out"]):
        assert out["out"][0] == x.sum()


def test_half_precision_is_bit_exact(backend: HostBackend) -> None:
    x, y = floats(2000).astype(np.float16), floats(2000, seed=2).astype(np.float16)
    x[:6] = [65504, 6e-8, 0, -0.0, np.inf, np.nan]
    values = dict(x=x, y=y, a=np.float32(1.5), n=np.int32(2000))
    with np.errstate(over="ignore", invalid="ignore"):
        expected = (np.float64(1.5) * x.astype(np.float64) + y.astype(np.float64)).astype(np.float16)
    for out in outputs(backend, "half_axpy", 8, 256, values, ["y"]):
        np.testing.assert_array_equal(out["y"], expected)


def test_bfloat16(backend: HostBackend) -> None:
    x = floats(100)
    bits = (x.view(np.uint32) >> 16).astype(np.uint16)
    values = dict(x=bits, y=poisoned(100), n=np.int32(100))
    for out in outputs(backend, "bf16_double", 1, 128, values, ["y"]):
        np.testing.assert_array_equal(out["y"], 2 * (bits.astype(np.uint32) << 16).view(np.float32))


def test_cooperative_groups(backend: HostBackend) -> None:
    x = floats(1000)
    values = dict(x=x, out=np.zeros(1, np.float32), n=np.int32(1000))
    for out in outputs(backend, "tile_reduce", 4, 256, values, ["out"]):
        np.testing.assert_allclose(out["out"][0], x.sum(dtype=np.float64), rtol=1e-4)
    values = dict(x=x, out=np.zeros(1, np.int32), n=np.int32(1000))
    for out in outputs(backend, "count_positive", 4, 256, values, ["out"]):
        assert out["out"][0] == (x > 0).sum()


def test_three_dimensions(backend: HostBackend) -> None:
    nx, ny, nz = 10, 7, 5
    values = dict(out=poisoned(nx * ny * nz, np.int32), nx=np.int32(nx), ny=np.int32(ny), nz=np.int32(nz))
    z, y, x = np.meshgrid(np.arange(nz), np.arange(ny), np.arange(nx), indexing="ij")
    for out in outputs(backend, "three_dimensions", (3, 2, 2), (4, 4, 4), values, ["out"]):
        np.testing.assert_array_equal(out["out"].reshape(nz, ny, nx), x + 100 * y + 10000 * z)


def test_device_and_constant_variables_start_afresh_in_every_launch(backend: HostBackend) -> None:
    x = floats(64)
    i = np.arange(64)
    for out in outputs(backend, "globals", 1, 64, dict(x=x, y=poisoned(64), n=np.int32(64)), ["y"]):
        # Thread 0 changes the factor for threads that run after it, so only the others' first value is asked for.
        expected = [x * (i % 4 + 1) * f + np.where(i % 2, 20, 10) for f in (3, 5)]
        assert np.isclose(out["y"], expected[0]).sum() + np.isclose(out["y"], expected[1]).sum() >= 64
        assert np.isclose(out["y"][0], expected[0][0])


STATE = """
namespace cache { __device__ float kept[4]; }
__device__ unsigned counter;
__device__ int untouched = 7;
struct Slots { static __device__ int slot; };
__device__ int Slots::slot;
__global__ void k(const float* x, float* y, int n, int mode) {
    if (mode == 1) cache::kept[2] = x[0];
    if (mode == 2) { unsigned old = atomicInc(&counter, 31); y[threadIdx.x] = old + untouched; }
    if (mode == 3) atomicAdd(&counter, 1u);
    if (mode == 4) cache::kept[1] = 1.0f, Slots::slot = 2;
    if (mode == 5) cache::kept[1] = 0.0f;
    if (threadIdx.x < n) y[threadIdx.x] = x[threadIdx.x];
}
"""


@pytest.mark.parametrize(
    "mode, changed", [(0, ()), (1, ("kept",)), (2, ()), (3, ("counter",)), (4, ("kept", "slot")), (5, ())]
)
def test_device_variables_that_a_launch_changes_are_named(
    backend: HostBackend, mode: int, changed: tuple[str, ...]
) -> None:
    one = launch(1, 32, dict(x=floats(32), y=poisoned(32), n=np.int32(32), mode=np.int32(mode)), ["y"])
    result = run(backend, STATE, one)
    assert isinstance(result, Ran), result
    assert tuple(sorted(result.changed_state)) == changed


def test_warp_functions(backend: HostBackend) -> None:
    v = np.random.default_rng(5).integers(0, 500, 32).astype(np.int32)
    lane = np.arange(32)
    for out in outputs(backend, "warp_functions", 1, 32, dict(x=v, out=poisoned(11 * 32, np.uint32)), ["out"]):
        got = out["out"].reshape(11, 32)
        assert (got[0] == sum(1 << int(i) for i in lane if v[i] & 1)).all()
        assert (got[1] == 2).all()
        np.testing.assert_array_equal(got[2], v[lane ^ 1])
        np.testing.assert_array_equal(got[3], np.where(lane % 8 >= 3, v[lane - 3], v))
        np.testing.assert_array_equal(got[4], v[lane // 16 * 16 + 5])
        np.testing.assert_array_equal(got[5], [sum(1 << j for j in range(32) if (v[j] ^ x) & 3 == 0) for x in v])
        assert (got[6] == v.max()).all() and (got[7] == v.sum()).all()
        assert (got[8][:10] == 0x3FF).all()
        np.testing.assert_array_equal(got[8][10:31], v[11:])
        np.testing.assert_array_equal(got[9], np.where(lane < 28, v[(lane + 4) % 32], v))
        assert (got[10] == (v & 1).sum() * 100 + 1).all()


def test_integer_intrinsics(backend: HostBackend) -> None:
    v = np.array([0, 1, 2, 0x80000000, 0xFFFFFFFF, 0x12345678, 0xDEADBEEF, 7], np.uint32)
    n = len(v)
    ints = [int(x) for x in v]

    def byte(x: int, selector: int) -> int:
        return ((0x01020304 << 32 | x) >> (8 * selector)) & 255

    for out in outputs(
        backend, "intrinsics", 1, 32, dict(x=v, out=poisoned(10 * n, np.uint32), n=np.int32(n)), ["out"]
    ):
        got = out["out"].reshape(10, n).tolist()
        assert got[0] == [x.bit_count() for x in ints]
        assert got[1] == [32 - x.bit_length() for x in ints]
        assert got[2] == [(x & -x).bit_length() for x in ints]
        assert got[3] == [int(f"{x:032b}"[::-1], 2) for x in ints]
        assert got[4] == [byte(x, 6) | byte(x, 5) << 8 | byte(x, 4) << 16 | byte(x, 3) << 24 for x in ints]
        assert got[5] == [(x << 7 | x >> 25) & 0xFFFFFFFF for x in ints]
        assert got[6] == [x * 0x9E3779B9 >> 32 for x in ints]
        assert got[7] == [5 + sum(x.to_bytes(4, "little")) for x in ints]
        assert got[8] == ints
        assert got[9] == [min(x, 1) + min(x, 7) + 3 for x in ints]


HOSTILE = (DATA / "hostile.cu").read_text()


def hostile(
    backend: HostBackend, name: str, n: int = 64, block: int = 64, size: int = 64, grid: int = 1, **more: Any
) -> RunResult:
    values = dict(x=floats(size), y=poisoned(size), n=np.int32(n))
    if name in ("no_barrier", "hidden_from_the_watch"):
        values = {"in": floats(64), "out": poisoned(64), "n": np.int32(64)}
    if name == "counts_without_atomics":
        values["y"] = np.zeros(size, np.float32)
    outs = ["out" if "out" in values else "y"]
    return run(backend, HOSTILE, launch(grid, block, values, outs, **more), name)


def test_what_is_not_written_keeps_its_poison(backend: HostBackend) -> None:
    result = hostile(backend, "writes_nothing")
    assert isinstance(result, Ran) and result.outputs["y"].tobytes() == poisoned(64).tobytes()


@pytest.mark.parametrize(
    ("name", "guard", "where"),
    [
        ("reads_past_the_end", Guard.RIGHT, "x[60] of 60, read, line 8"),
        ("reads_before_the_start", Guard.LEFT, "x[-1] of 60, read, line 12"),
        ("writes_past_the_end", Guard.RIGHT, "y[60] of 60, written, line 16"),
        ("writes_before_the_start", Guard.LEFT, "y[-1] of 60, written, line 20"),
        ("writes_past_the_end", Guard.LEFT, "y[60] of 60, written"),
        ("writes_before_the_start", Guard.RIGHT, "y[-1] of 60, written"),
    ],
)
def test_one_element_out_of_bounds(backend: HostBackend, name: str, guard: Guard, where: str) -> None:
    result = hostile(backend, name, n=60, size=60, guard=guard)
    assert isinstance(result, Faulted), result
    assert (result.hazard, result.where[: len(where)]) == ("out_of_bounds", where)


def test_an_endless_kernel_ends_at_its_deadline_and_keeps_earlier_results(backend: HostBackend) -> None:
    prepared = backend.prepare(source(HOSTILE, "endless"))
    assert isinstance(prepared, HostKernel)
    ends = launch(1, 1, dict(x=floats(4), y=np.full(4, 12345, "f"), n=np.int32(4)), ["y"])
    never = launch(1, 1, dict(x=floats(4), y=np.zeros(4, "f"), n=np.int32(4)), ["y"], deadline_s=0.3)
    started = time.monotonic()
    results = prepared.run([ends, never, ends])
    assert time.monotonic() - started < 120
    assert len(results) == 2 and isinstance(results[0], Ran)
    assert isinstance(results[1], Faulted) and results[1].hazard == "timeout"
    assert results[1].where.startswith("no end within 0.3 s, line 24, block (0,0,0)")


@pytest.mark.parametrize(
    ("name", "hazard", "where", "more"),
    [
        ("changes_its_input", "mutated_input", r"x\[3\], line 28", {}),
        ("divergent", "divergent_barrier", r"16 of 64 threads wait at a barrier that the others never reach, line 35", {}),
        ("two_barriers", "divergent_barrier", r"threads of a block wait at different barriers, lines 40 and 42", {}),
        ("waits_for_ever", "deadlock", r"31 threads wait at a barrier, 1 in a warp operation of line 45", {"block": 32}),
        ("shared_overrun", "shared_memory", r"index 64 of tile \(float \[64\]\), line 50", {"n": 1}),
        ("dynamic_overrun", "shared_memory", r"byte 256 of 256 bytes of dynamic shared memory, line 56", {"n": 1, "smem_bytes": 256}),
        ("deep", "fault", r"stack overflow: more than 256 KiB of local memory in a thread, line 6\d", {}),
        ("asserts", "fault", r"assert\(threadIdx.x \+ 1 < blockDim.x\) failed, line 67", {}),
        ("divides", "fault", r"integer division by zero, line 70", {}),
        ("null_pointer", "fault", r"a null pointer, line 71", {}),
        ("wild", "fault", r"an address far from every buffer, line 72", {}),
        ("bad_mask", "fault", r"a warp operation's mask 0x1 does not name the calling lane 1, line 88", {}),
        ("local_overrun", "out_of_bounds", r"index 4 of acc \(float \[4\]\), line 91", {"n": 4}),
    ],
)  # fmt: skip
def test_faults_say_what_and_where(backend: HostBackend, name: str, hazard: str, where: str, more: Any) -> None:
    result = hostile(backend, name, **more)
    assert isinstance(result, Faulted), result
    assert result.hazard == hazard and re.match(where, result.where), result


@pytest.mark.parametrize(
    ("name", "where", "blocks"),
    [
        ("no_barrier", "shared memory tile: this thread", 1),
        (
            "counts_without_atomics",
            r"y\[\d\]: this thread reads what thread \(\d+,0,0\) wrote, with nothing to order the two",
            1,
        ),
        ("sets_then_adds", r"y\[0\]: ", 1),
        ("shared_counts", "shared memory bins: this thread", 1),
        ("no_second_barrier", "shared memory tile: this thread", 1),
        ("warp_without_sync", "shared memory s: this thread", 1),
        (
            "blocks_overlap",
            r"y\[\d+\]: another block wrote it too|y\[\d+\]: this thread reads what another block wrote",
            2,
        ),
    ],
)
@pytest.mark.parametrize("order", BlockOrder)
def test_races_are_found_in_every_order(
    backend: HostBackend, name: str, where: str, blocks: int, order: BlockOrder
) -> None:
    result = hostile(backend, name, order=order, grid=blocks)
    assert isinstance(result, Faulted) and result.hazard == "race" and re.match(where, result.where), result


@pytest.mark.parametrize("order", BlockOrder)
def test_what_is_ordered_or_harmless_is_no_race(backend: HostBackend, order: BlockOrder) -> None:
    x = floats(64)
    result = hostile(backend, "same_value", order=order)
    assert isinstance(result, Ran), result
    result = hostile(backend, "warp_with_sync", order=order)
    assert isinstance(result, Ran) and np.isclose(result.outputs["y"][0], x.sum(), atol=1e-4), result
    result = hostile(backend, "last_block_adds_up", order=order, grid=20)
    assert isinstance(result, Ran) and np.isclose(result.outputs["y"][0], x[:20].sum(), atol=1e-4), result
    result = hostile(backend, "bytes_side_by_side", order=order)
    assert isinstance(result, Ran) and result.outputs["y"].view(np.uint8)[:64].tolist() == list(range(63, -1, -1))


ORDERED = """
__global__ void ticket_of_a_block(float* y, int* turn) {
    // The threads of a block take turns by a volatile number.
    volatile int* now = turn;
    while (*now != threadIdx.x) {}
    __threadfence();
    y[0] += threadIdx.x + 1;
    __threadfence();
    *now = threadIdx.x + 1;
}
__global__ void lock(float* y, int* turn) {
    if (threadIdx.x) return;
    while (atomicCAS(turn, 0, 1) != 0) {}
    y[0] += blockIdx.x + 1;
    __threadfence();
    atomicExch(turn, 0);
}
__global__ void lock_without_fence(float* y, int* turn) {
    if (threadIdx.x) return;
    while (atomicCAS(turn, 0, 1) != 0) {}
    y[0] += blockIdx.x + 1;
    atomicExch(turn, 0);
}
__global__ void lock_with_a_fence_of_the_block(float* y, int* turn) {
    if (threadIdx.x) return;
    while (atomicCAS(turn, 0, 1) != 0) {}
    y[0] += blockIdx.x + 1;
    __threadfence_block();
    atomicExch(turn, 0);
}
__global__ void last_block(float* y, int* turn) {
    if (threadIdx.x) return;
    y[blockIdx.x + 1] = blockIdx.x + 1;
    __threadfence();
    if (atomicAdd(turn, 1) != gridDim.x - 1) return;
    for (int b = 0; b < gridDim.x; ++b) y[0] += static_cast<volatile float*>(y)[b + 1];
}
__global__ void last_block_without_fence(float* y, int* turn) {
    if (threadIdx.x) return;
    y[blockIdx.x + 1] = blockIdx.x + 1;
    if (atomicAdd(turn, 1) != gridDim.x - 1) return;
    for (int b = 0; b < gridDim.x; ++b) y[0] += static_cast<volatile float*>(y)[b + 1];
}
__global__ void lock_without_atomics(float* y, int* turn) {
    if (threadIdx.x) return;
    volatile int* lock = turn;
    while (*lock != 0) {}
    *lock = blockIdx.x + 1;
    __threadfence();
    y[0] += blockIdx.x + 1;
    __threadfence();
    *lock = 0;
}
__global__ void volatile_and_fences(float* y, int* turn) {
    volatile float* sum = y;
    for (int i = 0; i < 3; ++i) {
        sum[0] = sum[0] + 1;
        __threadfence();
    }
    if (threadIdx.x == 0) atomicAdd(turn, 1);
}
__global__ void halves(float* y, int* turn) {
    // Lanes 0 to 15 meet, and so do lanes 16 to 31.
    __shared__ float s[32];
    s[threadIdx.x] = threadIdx.x + 1;
    __syncwarp(threadIdx.x < 16 ? 0xffffu : 0xffff0000u);
    s[threadIdx.x ^ 1] += 0.5f;
    __syncwarp(threadIdx.x < 16 ? 0xffffu : 0xffff0000u);
    y[threadIdx.x] = s[threadIdx.x ^ 15];
}
__global__ void across_halves(float* y, int* turn) {
    __shared__ float s[32];
    s[threadIdx.x] = threadIdx.x + 1;
    __syncwarp(threadIdx.x < 16 ? 0xffffu : 0xffff0000u);
    y[threadIdx.x] = s[threadIdx.x ^ 16];
}
__global__ void three_meetings(float* y, int* turn) {
    // Lane 0 meets lane 1, then lane 1 meets lane 2: so lane 2 knows what lane 0 wrote.
    __shared__ float s[32];
    s[threadIdx.x] = threadIdx.x + 1;
    if (threadIdx.x < 2) __syncwarp(3u);
    if (threadIdx.x == 1 || threadIdx.x == 2) __syncwarp(6u);
    y[threadIdx.x] = threadIdx.x == 2 ? s[0] : s[threadIdx.x];
}
__global__ void shuffle_is_no_fence(float* y, int* turn) {
    __shared__ float s[32];
    s[threadIdx.x] = threadIdx.x + 1;
    float other = __shfl_xor_sync(0xffffffffu, 0.0f, 1);
    y[threadIdx.x] = s[threadIdx.x ^ 1] + other;
}
__global__ void neighbour_times_zero(float* y, int* turn) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = y[i] + 0.0f * y[(i + 1) % 64];
}
__global__ void marks_of_a_graph(float* y, int* turn) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (turn[(i + 1) % 64] == 0) turn[i] = 0;
    turn[(7 * i) % 64] = 0;
    if (turn[(i + 1) % 64] == 0) turn[i] = 0;
}
"""


def ordered(backend: HostBackend, name: str, order: BlockOrder, grid: int, block: int) -> RunResult:
    values = dict(y=np.zeros(64, np.float32), turn=np.zeros(64, np.int32))
    return run(backend, ORDERED, launch(grid, block, values, ["y", "turn"], order=order), name)


@pytest.mark.parametrize("order", BlockOrder)
def test_locks_tickets_and_meetings_of_lanes_order_memory(backend: HostBackend, order: BlockOrder) -> None:
    result = ordered(backend, "ticket_of_a_block", order, 1, 8)
    assert isinstance(result, Ran) and result.outputs["y"][0] == 36, result
    result = ordered(backend, "lock", order, 8, 64)
    assert isinstance(result, Ran) and result.outputs["y"][0] == 36, result
    result = ordered(backend, "last_block", order, 8, 64)
    assert isinstance(result, Ran) and result.outputs["y"][0] == 36, result
    result = ordered(backend, "halves", order, 1, 32)
    assert isinstance(result, Ran) and result.outputs["y"][0] == 16.5, result
    result = ordered(backend, "three_meetings", order, 1, 32)
    assert isinstance(result, Ran) and result.outputs["y"][2] == 1, result


@pytest.mark.parametrize(
    "name, grid, block",
    [
        ("lock_without_fence", 8, 64), ("lock_with_a_fence_of_the_block", 8, 64), ("lock_without_atomics", 8, 64),
        ("last_block_without_fence", 8, 64),
        ("volatile_and_fences", 1, 64), ("volatile_and_fences", 4, 1), ("across_halves", 1, 32),
        ("shuffle_is_no_fence", 1, 32), ("neighbour_times_zero", 1, 64), ("neighbour_times_zero", 2, 32),
        ("neighbour_times_zero", 64, 1),
    ],
)  # fmt: skip
def test_what_only_seems_ordered_is_a_race(backend: HostBackend, name: str, grid: int, block: int) -> None:
    hazards = []
    for order in (BlockOrder.ASCENDING, BlockOrder.DESCENDING):
        result = ordered(backend, name, order, grid, block)
        hazards.append(result.hazard if isinstance(result, Faulted) else None)
    assert "race" in hazards


def test_integers_that_are_read_while_others_write_them_are_told(backend: HostBackend) -> None:
    result = ordered(backend, "marks_of_a_graph", BlockOrder.ASCENDING, 2, 32)
    assert isinstance(result, Ran), result
    assert "`turn` is read while other threads may write it, and nothing orders the two" in result.notes


def test_a_missing_barrier_gives_wrong_results_in_every_order(backend: HostBackend) -> None:
    x = floats(64)
    for order in BlockOrder:
        result = hostile(backend, "hidden_from_the_watch", order=order)
        assert isinstance(result, Ran) and not np.array_equal(result.outputs["out"], x[::-1]), result


def test_shared_memory_is_poisoned_before_each_block(backend: HostBackend) -> None:
    result = hostile(backend, "uninitialised")
    assert isinstance(result, Ran) and np.isnan(result.outputs["y"]).all()


def test_code_that_leaves_the_text_gets_nowhere(backend: HostBackend) -> None:
    result = hostile(backend, "jumps")
    assert isinstance(result, Faulted) and result.hazard == "fault", result


def test_grid_wide_synchronisation_is_no_pass(backend: HostBackend) -> None:
    assert hostile(backend, "grid_sync") == NotSupported("grid-wide synchronisation is not supported on the host")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ('asm volatile("mov.u32 %0, %laneid;" : "=r"(n));', "inline PTX is"),
        ("nvcuda::wmma::fill_fragment(x, 0);", "tensor core operations (wmma, mma) are"),
        ("x[0] = tex2D<float>(t, 0, 0);", "textures and surfaces are"),
        ("__pipeline_memcpy_async(x, x, 4);", "asynchronous copies (cp.async, TMA, cuda::pipeline) are"),
        ("k<<<1, 1>>>(x, n);", "dynamic parallelism is"),
        ("auto c = cooperative_groups::this_cluster();", "thread block clusters are"),
        ("typedef cub::BlockReduce<float, 32> R;", "CUB, Thrust and CUTLASS are"),
        ("static int calls; ++calls;", "static variables in device functions are"),
        ("#if __GNUC__ > 3\nx[0] = 1;\n#endif", "code that looks at the host's compiler is"),
    ],
)
def test_what_cannot_be_emulated_is_refused_with_its_reason(backend: HostBackend, body: str, reason: str) -> None:
    text = f"__global__ void k(float* x, int n) {{\n{body}\n}}\n"
    assert backend.prepare(source(text)) == NotSupported(f"{reason} not supported on the host")
    # The same in a function that the kernel calls, and not when the kernel does not reach it.
    helper = f"__device__ void helper(float* x, int n) {{\n{body}\n}}\n"
    calls = helper + "__global__ void k(float* x, int n) { helper(x, n); }\n"
    assert backend.prepare(source(calls, "k")) == NotSupported(f"{reason} not supported on the host")
    beside = helper + "__global__ void k(float* x, int n) { x[threadIdx.x] = n; }\n"
    assert isinstance(backend.prepare(source(beside, "k")), HostKernel)


@pytest.mark.parametrize(
    "condition, refused",
    [
        ("#ifdef __EDG__", "__EDG__"), ("#if !defined(__x86_64__)", "__x86_64__"), ("#ifndef RAND_MAX", "RAND_MAX"),
        ("#if __has_include(<stdio.h>)", "__has_include"), ("#if FLT_EVAL_METHOD == 0", "FLT_EVAL_METHOD"),
        ("#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800 // not __EDG__", ""), ("#ifndef USE_SLOW_PATH", ""),
        ("#if __CUDACC_VER_MAJOR__ >= 12", ""), ("#ifndef M_PI\n#define M_PI 3.14159\n#endif\n#if 1", ""),
        ("#ifdef _WIN32\n#endif\n#if 1", ""), ("#if !defined(_WIN32) && !defined(__HIP__)", ""),
        ("#ifdef __linux__", "__linux__"),
    ],
)  # fmt: skip
def test_a_text_may_not_ask_whether_it_is_emulated(backend: HostBackend, condition: str, refused: str) -> None:
    text = f"""
{condition}
#define RIGHT 1
#else
#define RIGHT 0
#endif
__global__ void k(const float* x, float* y) {{ y[threadIdx.x] = RIGHT * x[threadIdx.x]; }}
"""
    answer = backend.prepare(source(text, compiled=attrs.evolve(COMPILED, compiler="nvrtc 13.1")))
    if refused:
        assert answer == NotSupported(f"code that asks whether {refused} is defined is not supported on the host")
    else:
        assert isinstance(answer, HostKernel), answer
        (result,) = answer.run([launch(1, 32, dict(x=floats(32), y=poisoned(32)), ["y"])])
        assert isinstance(result, Ran) and result.outputs["y"].tolist() == floats(32).tolist()


HEAP = """
__global__ void k(const float* x, float* y, int n, int mode) {
    int i = threadIdx.x;
    float* p = mode < 5 ? new float[n] : static_cast<float*>(malloc(n * sizeof(float)));
    for (int j = 0; j < n; ++j) p[j] = x[j];
    y[i] = p[i];
    if (mode == 1 || mode == 6) p[n + i] = x[i], y[i] = p[n + i];
    if (mode == 2) y[i] = p[n];
    if (mode == 3 || mode == 7) { p[-1 - i] = x[i]; __syncthreads(); y[i] = p[-1 - i]; }
    if (mode == 8) { free(p); y[i] = p[i]; return; }
    if (mode == 4) delete[] p;
    if (mode == 4 || mode == 9) return;
    if (mode < 5) delete[] p; else free(p);
}
"""


@pytest.mark.parametrize(
    "mode, hazard, where",
    [
        (0, "", ""), (5, "", ""), (1, "out_of_bounds", "byte 128 of 128 bytes from malloc or new, line 7"),
        (2, "out_of_bounds", "byte 128 of 128 bytes from malloc or new, line 8"),
        (3, "out_of_bounds", r"byte -\d+ of 128 bytes from malloc or new"), (4, "", ""),
        (6, "out_of_bounds", "byte 128 of 128 bytes from malloc or new, line 7"),
        (7, "out_of_bounds", r"byte -\d+ of 128 bytes from malloc or new"),
        (8, "fault", "memory is used after it was freed, line 10"), (9, "", ""),
    ],
)  # fmt: skip
def test_memory_that_a_kernel_takes_is_guarded(backend: HostBackend, mode: int, hazard: str, where: str) -> None:
    values = dict(x=floats(32), y=poisoned(32), n=np.int32(32), mode=np.int32(mode))
    result = run(backend, HEAP, launch(1, 32, values, ["y"]))
    if hazard:
        assert isinstance(result, Faulted) and result.hazard == hazard and re.match(where, result.where), result
    else:
        assert isinstance(result, Ran) and result.outputs["y"].tolist() == floats(32).tolist(), result


def test_memory_that_is_freed_twice_is_a_fault(backend: HostBackend) -> None:
    text = "__global__ void k(float* y) { int* p = new int[4]; p[1] = 3; delete[] p; delete[] p; y[0] = 1; }"
    result = run(backend, text, launch(1, 1, dict(y=poisoned(1)), ["y"]))
    assert isinstance(result, Faulted) and result.where.startswith("memory is freed twice"), result


def test_no_more_memory_than_a_gpu_gives(backend: HostBackend) -> None:
    text = """
__global__ void k(float* y, int n) {
    y[0] = malloc(9 * n) == nullptr;
    void* p = malloc(7 * n);
    y[1] = p != nullptr;
    free(p);
}
"""
    result = run(backend, text, launch(1, 1, dict(y=poisoned(2), n=np.int32(1 << 20)), ["y"]))
    assert isinstance(result, Ran) and result.outputs["y"].tolist() == [1.0, 1.0], result


def test_what_the_host_compiler_does_not_know_is_refused(backend: HostBackend) -> None:
    refused = backend.prepare(source("__global__ void k(float* x) {\n  x[0] = __some_new_intrinsic(x[0]);\n}"))
    assert isinstance(refused, NotSupported)
    assert re.match(r"the host compiler does not take it: .*__some_new_intrinsic.* \(line 2\)", refused.reason)
    with_cub = "#include <cub/block/block_reduce.cuh>\n__global__ void k(float* x) { Reduce r; x[0] = r(x[0]); }"
    assert backend.prepare(source(with_cub)) == NotSupported("cub/block/block_reduce.cuh is not supported on the host")


def test_a_function_without_a_body_is_refused(backend: HostBackend) -> None:
    text = 'extern "C" __device__ int system(const char*);\n__device__ int nowhere(int);\n'
    text += "__global__ void k(int* x) { x[0] = nowhere(1); }"
    result = run(backend, text, launch(1, 1, dict(x=np.zeros(1, np.int32)), ["x"]))
    assert isinstance(result, NotSupported) and "nowhere" in result.reason, result
    if backend.toolchain().confinement != "seccomp":
        pytest.skip("this kernel does not let a child filter its system calls")
    calls = run(
        backend, text.replace("nowhere(1)", 'system("true")'), launch(1, 1, dict(x=np.zeros(1, np.int32)), ["x"])
    )
    assert isinstance(calls, Faulted) and calls.hazard == "fault" and "is not allowed" in calls.where, calls


def test_only_what_the_device_compiler_took_is_run(backend: HostBackend) -> None:
    refused = backend.prepare(source("__global__ void k(float* x) { x[0] = 1; }", compiled=None))
    assert refused == NotSupported("the kernel must compile for the device first")


def test_an_impossible_launch_is_refused(backend: HostBackend) -> None:
    for grid, block, smem in ((1, 1025, 0), ((1, 65536), 1, 0), (1, 32, 300_000), (0, 32, 0)):
        values = dict(x=floats(60), y=poisoned(60), n=np.int32(60))
        result = run(backend, HOSTILE, launch(grid, block, values, ["y"], smem_bytes=smem), "writes_nothing")
        assert isinstance(result, Faulted) and result.where.startswith("the launch is invalid"), result


REFERENCES = """
#include <cmath>
#include <iostream>
#include <vector>
#include <sys/socket.h>
#include <unistd.h>
#include <fcntl.h>
using namespace std;

void axpy_cpu(float a, const float* x, float* y, int n) {
    vector<float> copy(x, x + n);
    for (int i = 0; i < n; ++i) y[i] = a * copy[i] + 0.1f + expf(0.0f) + std::max(y[i], 0.0f) * 0;
}
double sum_cpu(float a, const float* x, float* y, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; ++i) sum += x[i];
    y[0] = sum;
    return sum;
}
void past_cpu(float a, const float* x, float* y, int n) { for (int i = 0; i <= n; ++i) y[i] = x[i]; }
void broken_cpu(float a, const float* x, float* y, int n) { y[0] = undefined_thing; }
void opens_cpu(float a, const float* x, float* y, int n) { y[0] = open("/etc/passwd", O_RDONLY); }
void connects_cpu(float a, const float* x, float* y, int n) { y[0] = socket(AF_INET, SOCK_STREAM, 0); }
void forks_cpu(float a, const float* x, float* y, int n) { y[0] = fork(); }
void runs_cpu(float a, const float* x, float* y, int n) { execl("/bin/true", "true", nullptr); }
void exits_cpu(float a, const float* x, float* y, int n) { exit(0); }
void three_cpu(const float* x, float* y, int n) { y[0] = 1; }
__global__ void axpy(float a, const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + 0.1f + 1.0f;
}
"""


def reference(backend: HostBackend, name: str, fp64: bool = False) -> Any:
    n, kind = 1000, np.float64 if fp64 else np.float32
    one = launch(1, 1, dict(a=kind(2), x=floats(n).astype(kind), y=np.zeros(n, kind), n=np.int32(n)), ["y"])
    prepared = backend.prepare(source(REFERENCES, function=name, fp64=fp64, compiled=None))
    return prepared.run([one])[0] if isinstance(prepared, HostKernel) else prepared


def test_a_reference_function_is_called_with_the_kernels_arguments(backend: HostBackend) -> None:
    result = reference(backend, "axpy_cpu")
    assert isinstance(result, Ran), result
    np.testing.assert_array_equal(result.outputs["y"], 2 * floats(1000) + np.float32(0.1) + np.float32(1))
    # Its integer type may differ from the kernel's.
    result = reference(backend, "sum_cpu")
    assert isinstance(result, Ran) and np.isclose(result.outputs["y"][0], floats(1000).sum(dtype=np.float64))


def test_a_reference_function_in_double_precision(backend: HostBackend) -> None:
    n = 1000
    one = launch(1, 1, dict(a=np.float64(2), x=floats(n).astype(np.float64), y=np.zeros(n), n=np.int32(n)), ["y"])
    text = REFERENCES.replace("std::max(y[i], 0.0f)", "std::max(y[i], 0.0f + 0.0)")
    prepared = backend.prepare(source(text, function="axpy_cpu", fp64=True, compiled=None))
    assert isinstance(prepared, HostKernel), prepared
    result = prepared.run([one])[0]
    assert isinstance(result, Ran), result
    expected = 2 * floats(n).astype(np.float64) + float(np.float32(0.1)) + 1
    np.testing.assert_allclose(result.outputs["y"], expected, rtol=1e-15)


def test_double_precision_is_refused_where_bits_matter(backend: HostBackend) -> None:
    text = REFERENCES.replace("undefined_thing", "__float_as_int(a)")
    refused = backend.prepare(source(text, function="broken_cpu", fp64=True, compiled=None))
    assert refused == NotSupported("double precision is not supported for code with __float_as_int")


def test_a_kernel_in_double_precision(backend: HostBackend) -> None:
    x = floats(3, 50).astype(np.float64)
    values = dict(x=x.ravel(), y=poisoned(150, np.float64), d=np.int32(50))
    text = RIGHT.replace("#include <cuda_fp16.h>", "").replace("#include <cuda_bf16.h>", "")
    text = re.sub(r"(?s)__global__ void half_axpy.*?(?=__global__ void tile_reduce)", "", text)
    result = run(backend, text, launch(3, 64, values, ["y"], smem_bytes=256), "softmax", fp64=True)
    assert isinstance(result, Ran), result
    expected = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(
        result.outputs["y"].reshape(3, 50), expected / expected.sum(1, keepdims=True), rtol=1e-13
    )


def test_a_reference_function_that_fails(backend: HostBackend) -> None:
    result = reference(backend, "past_cpu")
    assert isinstance(result, Faulted) and result.where.startswith("x[1000] of 1000, read, line 20"), result
    failed = reference(backend, "broken_cpu")
    assert isinstance(failed, CompileFailed)
    assert failed.messages[0].line == 20 and "undefined_thing" in failed.messages[0].text
    assert reference(backend, "three_cpu") == NotSupported("the function takes 3 arguments and gets 4")


@pytest.mark.parametrize(
    ("name", "call"),
    [("opens_cpu", "open"), ("connects_cpu", "socket"), ("forks_cpu", "(clone|fork)"), ("runs_cpu", "execve")],
)
def test_system_calls_are_blocked(backend: HostBackend, name: str, call: str) -> None:
    if backend.toolchain().confinement != "seccomp":
        pytest.skip("this kernel does not let a child filter its system calls")
    result = reference(backend, name)
    assert isinstance(result, Faulted), result
    assert re.fullmatch(rf"the system call {call}\w* is not allowed", result.where), result


def test_leaving_the_process_is_no_result(backend: HostBackend) -> None:
    result = reference(backend, "exits_cpu")
    assert result == Faulted("fault", "the process ended before the kernel did (exit code 0)")


def test_initialisers_of_the_text_are_confined_too(backend: HostBackend) -> None:
    if backend.toolchain().confinement != "seccomp":
        pytest.skip("this kernel does not let a child filter its system calls")
    text = REFERENCES.replace("using namespace std;", "using namespace std; static int early = fork();")
    prepared = backend.prepare(source(text, function="axpy_cpu", compiled=None))
    assert isinstance(prepared, HostKernel)
    n = 10
    one = launch(1, 1, dict(a=np.float32(2), x=floats(n), y=np.zeros(n, "f"), n=np.int32(n)), ["y"])
    result = prepared.run([one])[0]
    assert isinstance(result, Faulted) and "is not allowed" in result.where, result


def test_user_headers_are_taken_along(backend: HostBackend, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "inner.cuh").write_text(
        '#pragma once\n#include "../constants.h"\n__device__ int table[2] = {FIVE, 6};\n'
    )
    (tmp_path / "constants.h").write_text("#define FIVE 5\n#include <cstdio>\n")
    text = '#include "sub/inner.cuh"\n__global__ void k(int* x) { x[threadIdx.x] = table[threadIdx.x & 1]; }\n'
    one = launch(2, 4, dict(x=np.zeros(4, np.int32)), ["x"])
    result = run(backend, text, one, path=str(tmp_path / "kernel.cu"))
    assert isinstance(result, Ran) and result.outputs["x"].tolist() == [5, 6, 5, 6], result
    elsewhere = run(backend, text, one, path="/nowhere/kernel.cu", include_dirs=(str(tmp_path),))
    assert isinstance(elsewhere, Ran) and elsewhere.outputs["x"].tolist() == [5, 6, 5, 6], elsewhere


def test_defines_reach_the_text_and_other_flags_do_not(backend: HostBackend) -> None:
    text = "__global__ void k(int* x) { x[threadIdx.x] = SCALE + (__CUDA_ARCH__ == 900); }"
    flags = ("-D", "SCALE=40", "--use_fast_math", "-maxrregcount=32", "-fplugin=/tmp/evil.so")
    result = run(backend, text, launch(1, 2, dict(x=np.zeros(2, np.int32)), ["x"]), flags=flags)
    assert isinstance(result, Ran) and result.outputs["x"].tolist() == [41, 41], result


def test_notes_tell_what_was_left_out(backend: HostBackend) -> None:
    text = '__constant__ float c[4];\n__global__ void k(float* x) { printf("%f", x[0]); x[threadIdx.x] = c[0]; }'
    result = run(backend, text, launch(1, 2, dict(x=np.zeros(2, "f")), ["x"]))
    assert isinstance(result, Ran)
    assert "what the kernel prints is dropped" in result.notes
    assert "constant memory c is zero, because no host code is run to set it" in result.notes
    assert any(note.startswith("confined by ") for note in result.notes)


def test_without_a_compiler_it_says_so() -> None:
    host = HostBackend(cxx="no-such-compiler")
    refused = host.prepare(source(HOSTILE, "divides"))
    assert isinstance(refused, NotSupported) and "no-such-compiler was not found" in refused.reason
    assert set(host.describe()) == {"missing"}


def test_the_cache_is_made_once(tmp_path: Path, backend: HostBackend) -> None:
    host = HostBackend(cxx=backend.toolchain().cxx, cache_dir=tmp_path)
    first = host.toolchain()
    before = sorted(tmp_path.rglob("*"))
    again = HostBackend(cxx=first.cxx, cache_dir=tmp_path)
    assert again.toolchain() == first and sorted(tmp_path.rglob("*")) == before
    # It may be emptied under a running worker.
    prepared = again.prepare(source(HOSTILE, "writes_nothing"))
    assert isinstance(prepared, HostKernel)
    shutil.rmtree(first.folder)
    one = launch(1, 64, dict(x=floats(64), y=poisoned(64), n=np.int32(64)), ["y"])
    assert isinstance(prepared.run([one])[0], Ran)
    assert isinstance(again.prepare(source(HOSTILE, "divides")), HostKernel)
    again.close()


SPELLINGS = """
#include <cmath>
#include <cstdio>
#include FILE_OF_SECRETS
#pragma GCC optimize("fast-math")
using namespace std;
#define N 4
#define CONST_MEMORY __constant__
CONST_MEMORY float hidden[2] = {1.5f, 2.5f};
static constexpr __device__ int three = 3;
__device__ constexpr float pi_table[] = {3.0f, 1.0f};
struct Point { float x, y; };
struct Options { int scale; float shift; };
namespace deep { namespace er {
template <typename T> struct Tile {
    T* data;
    __device__ explicit Tile(T* p) : data(p) {}
    __device__ T& operator()(int i) { return data[i]; }
    __device__ T get(int i) const { return data[i]; }
};
template <class T> __device__ __noinline__ T twice(T v) { return v + v; }
__device__ __host__ inline float clampf(float v) { return min(max(v, 0.0f), 1.0f); }
extern "C" __global__ void __launch_bounds__(N * 8, 2) plain(float* out) { out[threadIdx.x] = hidden[1] + three + pi_table[0]; }
template <typename T = float, int K = 2, bool Flag = false>
static __global__ void spelled(T* __restrict__ out, const Point* points, Options options, bool flag, unsigned char c) {
    static __shared__ __align__(16) T first[N * 8], second[N][N + 1];
    extern __shared__ __align__(sizeof(T)) unsigned char raw[];
    T* dynamic = reinterpret_cast<T*>(raw);
    Tile<T> tile(first);
    auto add = [&](T a, T b) { return a + b; };
    int i = threadIdx.x;
    tile(i) = twice<T>(points[i].x) + clampf(points[i].y);
    second[i & 3][i >> 3] = 1;
    dynamic[i] = T(options.scale);
    __syncthreads();
    if (Flag) { out[i] = 0; return; }
    out[i] = add(tile.get(i ^ 1), second[0][0]) * K + dynamic[0] * options.shift + (flag ? c : 0);
}
} }
"""


def test_the_many_ways_to_write_cuda(backend: HostBackend) -> None:
    points = floats(32, 2)
    options = np.frombuffer(np.int32(3).tobytes() + np.float32(0.5).tobytes(), np.uint8)
    one = launch(
        1, 32,
        dict(out=poisoned(32), points=points.ravel(), options=np.int64(0), flag=np.bool_(True), c=np.uint8(200)),
        ["out"], {"points": 8}, smem_bytes=128,
    )  # fmt: skip
    arguments = tuple(ScalarArgument("options", options.tobytes()) if a.name == "options" else a for a in one.arguments)
    one = Launch(one.grid, one.block, one.smem_bytes, arguments)
    result = run(backend, SPELLINGS, one, "spelled", template={"T": "float", "K": "2"})
    assert isinstance(result, Ran), result
    tile = 2 * points[:, 0] + np.clip(points[:, 1], 0, 1)
    np.testing.assert_allclose(result.outputs["out"], (tile[np.arange(32) ^ 1] + 1) * 2 + 1.5 + 200, rtol=1e-6)
    result = run(backend, SPELLINGS, launch(3, 32, dict(out=poisoned(32)), ["out"]), "plain")
    assert isinstance(result, Ran) and (result.outputs["out"] == 8.5).all(), result


def test_a_namespace_scope_dynamic_array_and_a_misaligned_vector(backend: HostBackend) -> None:
    text = """extern __shared__ float pool[];
__global__ void k(float* x, int at) {
    pool[threadIdx.x] = threadIdx.x;
    __syncthreads();
    reinterpret_cast<float2*>(x + at)[threadIdx.x / 2] = make_float2(pool[0], pool[1]);
}"""
    good = run(backend, text, launch(1, 8, dict(x=poisoned(8), at=np.int32(0)), ["x"], smem_bytes=32))
    assert isinstance(good, Ran) and good.outputs["x"].tolist() == [0, 1] * 4, good
    bad = run(backend, text, launch(1, 4, dict(x=poisoned(8), at=np.int32(1)), ["x"], smem_bytes=32))
    assert isinstance(bad, Faulted) and "misaligned" in bad.where and "line 5" in bad.where, bad


def test_a_template_reference_function(backend: HostBackend) -> None:
    text = """template <typename T> void twice_cpu(const T* x, T* y, int n) { for (int i = 0; i < n; ++i) y[i] = x[i] + x[i]; }
template <typename T> __global__ void twice(const T* x, T* y, int n) { y[threadIdx.x] = 2 * x[threadIdx.x]; }"""
    one = launch(1, 8, dict(x=np.arange(8.0), y=np.zeros(8), n=np.int32(8)), ["y"])
    for name in ("twice_cpu", "twice_cpu<double>"):
        result = run(backend, text, one, template={"T": "double"}, function=name, compiled=None)
        assert isinstance(result, Ran) and result.outputs["y"].tolist() == [2.0 * i for i in range(8)], result


def test_other_kernels_of_the_file_do_not_matter(backend: HostBackend) -> None:
    text = """#include <mma.h>
using namespace nvcuda_is_not_here_either_but_unused;
""".replace("using namespace nvcuda_is_not_here_either_but_unused;\n", "")
    text += """__device__ unsigned lane() { unsigned r; asm("mov.u32 %0, %%laneid;" : "=r"(r)); return r; }
template <typename T> __global__ void other(T* x) { x[lane()] = undefined_here; }
__global__ void fine(float* x) { x[threadIdx.x] = 1.0f; }
"""
    result = run(backend, text, launch(1, 4, dict(x=poisoned(4)), ["x"]), "fine")
    assert isinstance(result, Ran) and (result.outputs["x"] == 1).all(), result
    assert run(
        backend, text, launch(1, 4, dict(x=poisoned(4)), ["x"]), "other", template={"T": "float"}
    ) == NotSupported("inline PTX is not supported on the host")


def test_a_long_file_is_read_quickly(backend: HostBackend) -> None:
    text = "".join(f"__device__ int f{i}(int x) {{ return x + {i}; }}\n" for i in range(5_000))
    text += "__global__ void k(int* x) { x[threadIdx.x] = f7(1); }\n"
    started = time.process_time()
    result = run(backend, text, launch(1, 4, dict(x=np.zeros(4, np.int32)), ["x"]))
    assert isinstance(result, Ran) and (result.outputs["x"] == 8).all(), result
    assert time.process_time() - started < 5


def test_a_thread_may_poll_for_another_of_its_block(backend: HostBackend) -> None:
    text = """__global__ void k(int* x) {
    __shared__ volatile int flag;
    if (threadIdx.x == 0) flag = 0;
    __syncthreads();
    if (threadIdx.x == 40) { while (flag == 0) { } x[0] = flag; }
    if (threadIdx.x == 3) flag = 7;
    if (threadIdx.x == 63) { while (atomicAdd(&x[1], 0) == 0) __nanosleep(100); }
    if (threadIdx.x == 1) atomicExch(&x[1], 5);
}"""
    for order in BlockOrder:
        result = run(backend, text, launch(1, 64, dict(x=np.zeros(2, np.int32)), ["x"], order=order))
        assert isinstance(result, Ran) and result.outputs["x"].tolist() == [7, 5], result


def test_the_switch_of_other_processors(backend: HostBackend, tmp_path: Path) -> None:
    host = HostBackend(cache_dir=tmp_path, runner_flags=["-DDICE_EMU_UCONTEXT"])
    x = floats(3000)
    for out in outputs(host, "total", 2, 256, dict(x=x, out=np.zeros(1, "f"), n=np.int32(x.size)), ["out"]):
        np.testing.assert_allclose(out["out"][0], x.sum(dtype=np.float64), rtol=1e-4)
    host.close()


def test_newer_standards_and_include_flags(backend: HostBackend, tmp_path: Path) -> None:
    (tmp_path / "size.cuh").write_text("#define SIZE 4\n")
    text = """#include <size.cuh>
template <typename T> concept Small = sizeof(T) <= SIZE;
template <Small T> __global__ void k(T* x) { x[threadIdx.x] = sizeof(T); }"""
    one = launch(1, 2, dict(x=np.zeros(2, np.int32)), ["x"])
    flags = ("-std=c++20", "-I", str(tmp_path))
    result = run(backend, text, one, flags=flags, template={"T": "int"})
    assert isinstance(result, Ran) and result.outputs["x"].tolist() == [4, 4], result
