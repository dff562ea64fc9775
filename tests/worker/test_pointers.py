"""Structs with pointers, pointers into the middle of buffers, and variables that a launch sets, on the host."""

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from dice_lsp.records import Compiled
from dice_lsp.source.kernels import parse
from dice_lsp.worker import gpu_driver
from dice_lsp.worker.host import HostBackend, HostKernel
from dice_lsp.worker.launch import (
    BlockOrder,
    BufferArgument,
    Faulted,
    Guard,
    Launch,
    NotSupported,
    Pointer,
    Ran,
    RunResult,
    ScalarArgument,
    Source,
)

COMPILED = Compiled("sm_90", "nvrtc", "k", 16, 0, 0, 0, 0, 256, 1.0, "none", 1.0)
TEXT = """
struct Row { const float* data; int n; double scale; };
struct Work { Row in; float* out; char tag; };
__constant__ float coef[4];
__device__ int offset = 5;
namespace ours { __constant__ int steps; }
__global__ void scale(Work w, float* whole) {
  int i = threadIdx.x;
  if (i < w.in.n) w.out[i] = w.in.data[i] * float(w.in.scale) + coef[i & 3] + offset + ours::steps;
  if (i == 0) whole[0] = w.tag;
}
__global__ void shifted(const float* x, float* y, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = x[i] + 1;
}
__global__ void maybe(float* y, const float* bias) { y[threadIdx.x] = bias ? bias[threadIdx.x] : 7; }
__global__ void counts() { offset = offset + 1; }
"""


@pytest.fixture(scope="module")
def backend() -> Any:
    host = HostBackend()
    assert "missing" not in host.describe(), host.describe()
    yield host
    host.close()


def run(backend: HostBackend, name: str, *launches: Launch) -> list[RunResult]:
    kernel = next(k for k in parse(TEXT).kernels if k.name == name)
    prepared = backend.prepare(Source(TEXT, "/nowhere/kernel.cu", kernel, compiled=COMPILED))
    assert isinstance(prepared, HostKernel), prepared
    return prepared.run(launches)


def buffer(name: str, values: Any, writable: bool = False, passed: bool = False) -> BufferArgument:
    return BufferArgument(name, np.asarray(values, np.float32), 4, writable, passed=passed)


def work(n: int, size: int, variables: Mapping[str, bytes] = {}, **more: Any) -> Launch:
    data = struct.pack("<QixxxxdQcxxxxxxx", 0, n, 2.0, 0, b"!")
    pointers = (Pointer(0, "w.in.data", 4), Pointer(24, "w.out"))
    arguments = (
        ScalarArgument("w", data, pointers),
        # Out of the parameters' order: the back end knows which are passed.
        buffer("w.in.data", np.arange(8)),
        buffer("whole", [0], writable=True, passed=True),
        buffer("w.out", np.zeros(size), writable=True),
    )
    return Launch((1, 1, 1), (32, 1, 1), 0, arguments, variables=variables, **more)


SET = {
    "coef": np.array([10, 20, 30, 40], np.float32).tobytes(),
    "_ZN4ours5stepsE": struct.pack("<i", 100),
}


@pytest.mark.parametrize("guard", list(Guard))
def test_a_struct_by_value_with_pointers_inside(backend: HostBackend, guard: Guard) -> None:
    plain, first, second = run(
        backend,
        "scale",
        work(7, 7, guard=guard, order=BlockOrder.RANDOM),
        work(7, 7, SET, guard=guard),
        work(7, 7, {"offset": struct.pack("<i", 0)}),
    )
    assert isinstance(plain, Ran) and isinstance(first, Ran) and isinstance(second, Ran)
    x = np.arange(1, 8, dtype=np.float32)
    assert (plain.outputs["w.out"] == 2 * x + 5).all() and plain.outputs["whole"][0] == ord("!")
    coef = np.array([10, 20, 30, 40], np.float32)[np.arange(7) & 3]
    assert (first.outputs["w.out"] == 2 * x + coef + 105).all() and first.changed_state == ()
    assert any("coef is zero" in note for note in plain.notes)
    assert not any("is zero" in note for note in first.notes)
    # What a launch sets is gone in the next.
    assert (second.outputs["w.out"] == 2 * x).all()


def test_bounds_of_a_buffer_behind_a_struct(backend: HostBackend) -> None:
    (out,) = run(backend, "scale", work(7, 6))
    assert isinstance(out, Faulted) and out.hazard == "out_of_bounds" and out.where.startswith("w.out[6] of 6, written")
    (read,) = run(backend, "scale", work(9, 9))
    assert isinstance(read, Faulted) and read.where.startswith("w.in.data[8] of 8")


def test_two_pointers_into_one_buffer(backend: HostBackend) -> None:
    def launch(shift: int) -> Launch:
        arguments = (
            ScalarArgument("x", bytes(8), (Pointer(0, "x", 8),)),
            ScalarArgument("y", bytes(8), (Pointer(0, "x", shift),)),
            ScalarArgument("n", struct.pack("<i", 4)),
            buffer("x", np.arange(10), writable=True),
        )
        return Launch((1, 1, 1), (4, 1, 1), 0, arguments)

    (ran,) = run(backend, "shifted", launch(24))
    assert isinstance(ran, Ran)
    assert ran.outputs["x"].tolist() == [0, 1, 2, 3, 4, 5, 3, 4, 5, 6]
    (past,) = run(backend, "shifted", launch(28))
    assert isinstance(past, Faulted) and past.where.startswith("x[10] of 10")


def test_a_pointer_that_is_null_stays_null(backend: HostBackend) -> None:
    null, given = run(
        backend,
        "maybe",
        *(
            Launch((1, 1, 1), (2, 1, 1), 0, (buffer("y", [0, 0], True, True), ScalarArgument("bias", bytes(8), p), *b))
            for p, b in (((), ()), ((Pointer(0, "b", 4),), (buffer("b", [1, 2, 3]),)))
        ),
    )
    assert isinstance(null, Ran) and null.outputs["y"].tolist() == [7, 7]
    assert isinstance(given, Ran) and given.outputs["y"].tolist() == [2, 3]


def test_a_variable_that_changes_from_what_it_was_set_to(backend: HostBackend) -> None:
    (ran,) = run(backend, "counts", Launch((1, 1, 1), (1, 1, 1), 0, (), variables={"offset": struct.pack("<i", 9)}))
    assert isinstance(ran, Ran) and ran.changed_state == ("offset",)


def test_a_variable_that_is_not_there(backend: HostBackend) -> None:
    (refused,) = run(backend, "counts", Launch((1, 1, 1), (1, 1, 1), 0, (), variables={"_ZN4ours4goneE": b"\0"}))
    assert isinstance(refused, NotSupported) and "variable gone of the recorded launch" in refused.reason


@pytest.mark.parametrize(
    ("arguments", "pycuda", "core"),
    [
        ([], False, False),
        ([0, bytes(4), bytes(4), 0], False, False),
        # What a number of 8 bytes and a struct of two of 4 need of padding differs, and only the driver knows which it is.
        ([bytes(4), bytes(8)], True, False),
        ([0, bytes(24)], True, True),
    ],
)
def test_what_a_library_cannot_launch_is_loaded_before_variables_are_set(
    monkeypatch: pytest.MonkeyPatch, arguments: list[int | bytes], pycuda: bool, core: bool
) -> None:
    loaded: list[str] = []
    monkeypatch.setattr(gpu_driver, "_load_raw", lambda function, smem_bytes: loaded.append(function.symbol))
    pycuda_driver = object.__new__(gpu_driver.PycudaDriver)
    pycuda_driver.get_ready(gpu_driver.Function(None, None, b"", "pycuda"), arguments, 0)
    core_driver = object.__new__(gpu_driver.CoreDriver)
    core_driver._scalars = dict.fromkeys((1, 2, 4, 8))
    core_driver.get_ready(gpu_driver.Function(None, None, b"", "core"), arguments, 0)
    assert loaded == ["pycuda"] * pycuda + ["core"] * core


def test_addresses_are_filled_in_where_they_belong() -> None:
    travelling = [
        {"data": bytes(16).hex(), "pointers": [(8, "x", 4)]},
        {"name": "x", "passed": False},
        {"data": [bytes(4).hex()] * 3, "pointers": []},
        {"name": "y", "passed": True},
    ]
    assert gpu_driver.blank_arguments(travelling) == [bytes(16), bytes(4), 0]
    filled = gpu_driver.with_addresses(b"\1" * 16, [(8, "x", 4)], {"x": 0x7F0000000000})
    assert filled == b"\1" * 8 + struct.pack("<Q", 0x7F0000000004)
