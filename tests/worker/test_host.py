"""The host emulation with a real compiler: right kernels agree with numpy in every order, wrong ones are told apart."""

import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

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


# ---- right kernels ----------------------------------------------------------------------------------------------------


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
