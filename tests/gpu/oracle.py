"""The kernels of the timing table as others time them, each in a process of its own.

`python -m tests.gpu.oracle plain` prints figures of plain events and of Triton's `do_bench` and `do_bench_cudagraph`,
`nvbench FILE` those of NVIDIA's `cuda-bench` (the medians of its cold and the means of its batched runs), and
`cupti` those of CUPTI's activity records, which see start and end of each launch on the card. `swept` and `rotated` only
launch each kernel, `LAUNCHES` times between profiler marks, for `ncu` to watch: after a sweep of the L2 by reading, or on
sets of buffers in turn that are together five times as large. Every answer is one line of JSON, in
microseconds.
"""

import ctypes
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from cuda.bindings import driver as cu

from tests.gpu.support import TIMED, compile_plain

M = 1 << 20
TABLE = (
    ("empty", "spin", 0, 33_792), ("spin 3k", "spin", 3_000, 33_792), ("spin 8k", "spin", 8_000, 33_792),
    ("spin 18k", "spin", 18_000, 33_792), ("spin 90k", "spin", 90_000, 33_792), ("spin 950k", "spin", 950_000, 33_792),
    ("saxpy 64K", "saxpy", M // 16, M // 16), ("saxpy 1M", "saxpy", M, M), ("saxpy 2M", "saxpy", 2 * M, 2 * M),
    ("saxpy 8M", "saxpy", 8 * M, 8 * M), ("saxpy 64M", "saxpy", 64 * M, 64 * M),
)  # fmt: skip
"""Label, kernel, its first argument (clocks to wait, or elements), elements: 132 blocks of 256 threads for the waits."""
LAUNCHES = 7
ALL_BYTES = 3 * 4 * 64 * M
SWEEP = r"""
extern "C" __global__ void sweep(const float4* from, long long count, float* sink) {
    float sum = 0;
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < count; i += gridDim.x * (long long)blockDim.x) {
        float4 v = __ldcg(from + i);
        sum += v.x + v.y + v.z + v.w;
    }
    if (sum == 12345.f) *sink = sum;
}
"""


def ask(call: Callable[..., Any], *arguments: Any) -> Any:
    status, *values = call(*arguments)
    if int(status):
        raise RuntimeError(f"{call.__name__}: {status}")
    return values[0] if len(values) == 1 else tuple(values)


class Card:
    """The device with the kernels of the table loaded and their buffers filled, all through the driver alone."""

    def __init__(self) -> None:
        ask(cu.cuInit, 0)
        device = ask(cu.cuDeviceGet, 0)
        ask(cu.cuCtxSetCurrent, ask(cu.cuDevicePrimaryCtxRetain, device))
        attribute = cu.CUdevice_attribute
        major = ask(cu.cuDeviceGetAttribute, attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device)
        minor = ask(cu.cuDeviceGetAttribute, attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device)
        self.l2_bytes = int(ask(cu.cuDeviceGetAttribute, attribute.CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, device))
        self.multiprocessors = int(
            ask(cu.cuDeviceGetAttribute, attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device)
        )
        module = ask(cu.cuModuleLoadData, compile_plain(TIMED + SWEEP, f"sm_{major}{minor}"))
        self.functions = {n: ask(cu.cuModuleGetFunction, module, n.encode()) for n in ("saxpy", "spin", "sweep")}
        self.stream = int(ask(cu.cuStreamCreate, 1))
        self.swept = int(ask(cu.cuMemAlloc, 2 * self.l2_bytes))
        ask(cu.cuMemsetD8, self.swept, 0, 2 * self.l2_bytes)
        self.buffers = int(ask(cu.cuMemAlloc, ALL_BYTES))
        block = np.random.default_rng(1).standard_normal(4 * M).astype(np.float32)
        for offset in range(0, ALL_BYTES, block.nbytes):
            ask(cu.cuMemcpyHtoD, self.buffers + offset, block.ctypes.data, block.nbytes)
        for row in TABLE:
            self.launch(row)
        self.sweep()
        self.wait()

    def _launch(self, name: str, grid: int, block: int, stream: int, *values: Any) -> None:
        pointers = (ctypes.c_void_p * len(values))(*[ctypes.addressof(value) for value in values])
        ask(cu.cuLaunchKernel, self.functions[name], grid, 1, 1, block, 1, 1, 0, stream, ctypes.addressof(pointers), 0)

    def launch(self, row: tuple[str, str, int, int], stream: int | None = None, index: int = 0) -> None:
        _, name, n, elements = row
        places = [ctypes.c_uint64(self.buffers + (3 * index + i) * 4 * elements) for i in range(3)]
        where = self.stream if stream is None else stream
        self._launch(name, -(-elements // 256), 256, where, ctypes.c_int(n), ctypes.c_float(2.0), *places)

    def sweep(self) -> None:
        place, count = ctypes.c_uint64(self.swept), ctypes.c_int64(2 * self.l2_bytes // 16)
        self._launch("sweep", 4 * self.multiprocessors, 512, self.stream, place, count, place)

    def wait(self) -> None:
        ask(cu.cuStreamSynchronize, self.stream)


def plain() -> dict[str, dict[str, float]]:
    import torch
    from triton.testing import do_bench, do_bench_cudagraph

    card = Card()
    answer: dict[str, dict[str, float]] = {}
    for row in TABLE:

        def go(row: tuple[str, str, int, int] = row) -> None:
            card.launch(row, torch.cuda.current_stream().cuda_stream)

        pairs = [[ask(cu.cuEventCreate, 0) for _ in range(2)] for _ in range(50)]
        for start, end in pairs:
            ask(cu.cuEventRecord, start, card.stream)
            card.launch(row)
            ask(cu.cuEventRecord, end, card.stream)
        card.wait()
        answer[row[0]] = {
            "events": float(np.median([ask(cu.cuEventElapsedTime, *pair) for pair in pairs])) * 1000,
            "do_bench": float(do_bench(go, warmup=5, rep=30, return_mode="median")) * 1000,
            "do_bench_cudagraph": float(do_bench_cudagraph(go, return_mode="median")) * 1000,
        }
    return answer


def launches(swept: bool) -> None:
    """Each launch of the table between profiler marks: after a sweep of the L2, or on sets of buffers in turn."""
    card = Card()
    for row in TABLE:
        set_bytes = 12 * row[3]
        sets = 1 if swept else max(1, min(ALL_BYTES // set_bytes, 5 * card.l2_bytes // set_bytes + 2))
        for index in range(sets if sets > 1 else 0):
            card.launch(row, index=index)
        for number in range(LAUNCHES):
            if swept:
                card.sweep()
            card.wait()
            cu.cuProfilerStart()
            card.launch(row, index=number % sets)
            card.wait()
            cu.cuProfilerStop()


def cupti() -> dict[str, dict[str, float]]:
    """What NVIDIA's activity records say: start and end of each launch by the card's own clock."""
    from cupti import cupti as records

    seen: list[tuple[str, float]] = []

    def completed(activities: list[Any]) -> None:
        seen.extend((activity.name, (activity.end - activity.start) / 1000) for activity in activities)

    records.activity_register_callbacks(lambda: (8 << 20, 0), completed)
    records.activity_enable(records.ActivityKind.CONCURRENT_KERNEL)
    card = Card()
    answer = {}
    for row in TABLE:
        records.activity_flush_all(1)
        seen.clear()
        for _ in range(50):
            card.sweep()
            card.launch(row)
        card.wait()
        records.activity_flush_all(1)
        answer[row[0]] = {"cupti": float(np.median([time_us for name, time_us in seen if name == row[1]]))}
    return answer


def nvbench(path: Path) -> dict[str, dict[str, float]]:
    """Its cold runs (a fill of the L2 before each, one pair of events around it), and its batches, which are hot."""
    from cuda import bench

    card = Card()

    def register(row: tuple[str, str, int, int]) -> None:
        def body(state: Any) -> None:
            state.exec(lambda launch: card.launch(row, launch.get_stream().addressof()))

        body.__name__ = row[0].replace(" ", "_")
        bench.register(body).set_name(row[0])

    for row in TABLE:
        register(row)
    bench.run_all_benchmarks(
        ["nvbench", "--json", str(path), "--quiet", "--min-time", "0.05", "--batch-target-time", "0.1"]
    )
    answer = {}
    for made in json.loads(path.read_text())["benchmarks"]:
        found = {one["tag"]: one["data"][0]["value"] for one in made["states"][0]["summaries"] if one.get("data")}
        answer[made["name"]] = {
            "nvbench cold": float(found["nv/cold/time/gpu/median"]) * 1e6,
            "nvbench batch": float(found["nv/batch/time/gpu/mean"]) * 1e6,
        }
    return answer


def main() -> None:
    mode = sys.argv[1]
    if mode in ("swept", "rotated"):
        launches(mode == "swept")
        return
    answer = nvbench(Path(sys.argv[2])) if mode == "nvbench" else {"plain": plain, "cupti": cupti}[mode]()
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
