"""The same kernels timed by others, for the table: plain events, Triton's do_bench, and one pass for Nsight Compute.

`python -m tests.gpu.oracle` prints one JSON object; with `--once` it launches each kernel three times, each after a
flush of the L2, for `ncu` to watch.
"""

import json
import sys
from collections.abc import Callable

import numpy as np
import torch
from cuda.bindings import driver as cu

from tests.gpu.support import TIMED, compile_plain
from tests.gpu.test_timing import TABLE


def launcher(module: object, name: str, n: int, elements: int) -> Callable[[], None]:
    import ctypes

    _, function = cu.cuModuleGetFunction(module, name.encode())
    x, y, z = (torch.randn(elements, device="cuda") for _ in range(3))
    values = [ctypes.c_int(n), ctypes.c_float(2.0), *(ctypes.c_void_p(t.data_ptr()) for t in (x, y, z))]
    pointers = (ctypes.c_void_p * 5)(*(ctypes.addressof(value) for value in values))
    keep = (x, y, z, values)

    def launch() -> None:
        stream = torch.cuda.current_stream().cuda_stream
        (status,) = cu.cuLaunchKernel(
            function, -(-elements // 256), 1, 1, 256, 1, 1, 0, stream, ctypes.addressof(pointers), 0
        )
        assert int(status) == 0 and keep

    return launch


def events_us(launch: Callable[[], None]) -> float:
    """One pair of events around each of 50 launches, all queued before the first is read."""
    for _ in range(5):
        launch()
    torch.cuda.synchronize()
    pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(50)]
    for start, end in pairs:
        start.record()
        launch()
        end.record()
    torch.cuda.synchronize()
    return float(np.median([start.elapsed_time(end) for start, end in pairs])) * 1000


def main() -> None:
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    major, minor = torch.cuda.get_device_capability()
    _, module = cu.cuModuleLoadData(compile_plain(TIMED, f"sm_{major}{minor}"))
    answer: dict[str, dict[str, float]] = {}
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    for label, name, clocks, elements in TABLE:
        launch = launcher(module, name, elements if clocks is None else clocks, elements)
        if "--once" in sys.argv:
            for _ in range(3):
                flush.zero_()
                launch()
            torch.cuda.synchronize()
            continue
        from triton.testing import do_bench, do_bench_cudagraph

        answer[label] = {
            "events": events_us(launch),
            "do_bench": float(do_bench(launch, return_mode="median")) * 1000,
            "do_bench_cudagraph": float(do_bench_cudagraph(launch, return_mode="median")) * 1000,
        }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
