"""How the GPU tests compile, verify and time a text: the worker's own rooms, called directly."""

import functools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from attrs import evolve

from dice_lsp import process
from dice_lsp.records import Compiled, Judged, JudgeJob, Kernel, LaunchSpec, from_wire, to_wire
from dice_lsp.source.kernels import parse
from dice_lsp.source.launches import launch_spec
from dice_lsp.worker.__main__ import Worker
from dice_lsp.worker.device import GpuBackend, TimedBuffer, TimedScalar, TimingOrder
from dice_lsp.worker.launch import BufferArgument, Launch, ScalarArgument, Source

KINDS = ("pycuda", "cuda-core")
ROWS: list[tuple[str, ...]] = []
"""What the tests measured, for the tables: (table, column, column, ...)."""


def record(table: str, *columns: object) -> None:
    ROWS.append((table, *(str(column) for column in columns)))


def rows(table: str) -> Iterator[tuple[str, ...]]:
    return (row[1:] for row in ROWS if row[0] == table)


class Bench:
    """A worker on one back end, asked as its parent would ask it."""

    def __init__(self, kind: str) -> None:
        self.worker = Worker()
        self.worker.hello({"settings": {"backend": kind}}, self.call())
        backend = self.worker.backend()
        assert isinstance(backend, GpuBackend), self.worker._gpu
        assert backend.kind == kind
        self.backend = backend

    def close(self) -> None:
        self.worker.close()

    @staticmethod
    def call() -> process.Job:
        return process.Job(1, lambda message: None)

    def judge(self, text: str, name: str, baseline: str | None = None, **more: Any) -> Judged:
        """Compile, verify and, if the verdict allows it, time one kernel."""
        kernel, spec = parsed(text, name)
        if baseline is not None:
            more |= {"baseline_text": baseline, "baseline_kernel": parsed(baseline, name)[0]}
        job = JudgeJob(text, "/nowhere/test.cu", kernel, spec, **more)
        settings = {"backend": self.backend.kind}
        answer = self.worker.judge({"settings": settings, "job": to_wire(job)}, self.call())
        judged = from_wire(answer, Judged)
        assert isinstance(judged.build, Compiled), judged.build
        assert judged.evidence.device == self.backend.name
        return judged


def source_of(bench: Bench, text: str, name: str) -> Source:
    """A kernel as the worker compiles it."""
    kernel, spec = parsed(text, name)
    job = JudgeJob(text, "/nowhere/test.cu", kernel, spec, verify=False, benchmark=False, keep_code=True)
    answer = bench.worker.judge({"settings": {"backend": bench.backend.kind}, "job": to_wire(job)}, bench.call())
    build = from_wire(answer, Judged).build
    assert isinstance(build, Compiled) and build.cubin, build
    return Source("", job.path, kernel, spec.template, build)


def parsed(text: str, name: str) -> tuple[Kernel, LaunchSpec]:
    model = parse(text)
    kernel = next(kernel for kernel in model.kernels if kernel.name == name)
    spec = launch_spec(text, kernel, model)
    assert spec.launchable, spec.unknown
    return kernel, spec


SAXPY = """
void saxpy_cpu(int n, float a, const float* x, const float* y, float* z) {
    for (int i = 0; i < n; i++) z[i] = a * x[i] + y[i];
}
//dice: n = 1M | 1000003 | 33 | 1; in x[n], y[n]; out z[n]; launch <<<cdiv(n, 256), 256>>>
//dice: ref saxpy_cpu
__global__ void saxpy(int n, float a, const float* x, const float* y, float* z) {
    BODY
}
"""
SAXPY_BODY = "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) z[i] = a * x[i] + y[i];"
REDUCTION = """
void block_sum_cpu(int n, const float* x, float* sums) {
    for (int b = 0; b < (n + 255) / 256; b++) {
        float sum = 0;
        for (int i = b * 256; i < n && i < b * 256 + 256; i++) sum += x[i];
        sums[b] = sum;
    }
}
//dice: n = 1M | 100003 | 257 | 31; in x[n]; out sums[cdiv(n, 256)]; launch <<<cdiv(n, 256), 256>>>
//dice: ref block_sum_cpu
__global__ void block_sum(int n, const float* x, float* sums) {
    __shared__ float part[256];
    int i = blockIdx.x * 256 + threadIdx.x;
    part[threadIdx.x] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (int s = 128; s > 0; s >>= 1) {
        if (threadIdx.x < s) part[threadIdx.x] += part[threadIdx.x + s];
        __syncthreads();
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = part[0];
}
"""
TRANSPOSE = """
#define TILE 32
void transpose_cpu(int rows, int cols, const float* a, float* b) {
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < cols; c++) b[c * rows + r] = a[r * cols + c];
}
//dice: rows = 2048 | 1000 | 33 | 1, cols = 1024 | 777 | 65 | 1; in a[rows * cols]; out b[cols * rows]
//dice: launch <<<dim3(cdiv(cols, TILE), cdiv(rows, TILE)), dim3(TILE, 8)>>>; ref transpose_cpu
__global__ void transpose(int rows, int cols, const float* a, float* b) {
    __shared__ float tile[TILE][TILE + 1];
    int c = blockIdx.x * TILE + threadIdx.x;
    for (int j = threadIdx.y; j < TILE; j += 8) {
        int r = blockIdx.y * TILE + j;
        if (r < rows && c < cols) tile[j][threadIdx.x] = a[r * cols + c];
    }
    __syncthreads();
    int r = blockIdx.y * TILE + threadIdx.x;
    for (int j = threadIdx.y; j < TILE; j += 8) {
        int cc = blockIdx.x * TILE + j;
        if (cc < cols && r < rows) b[cc * rows + r] = tile[threadIdx.x][j];
    }
}
"""
HISTOGRAM = """
void histogram_cpu(int n, const int* x, int* bins) {
    for (int i = 0; i < n; i++) bins[x[i]] += 1;
}
//dice: n = 1M | 1000 | 33; in x[n] : int(0, 255); io bins[256] : zeros; launch <<<cdiv(n, 256), 256>>>
//dice: ref histogram_cpu
__global__ void histogram(int n, const int* x, int* bins) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&bins[x[i]], 1);
}
"""


def saxpy(body: str = SAXPY_BODY) -> str:
    return SAXPY.replace("BODY", body)


TIMED = r"""
extern "C" __global__ void saxpy(int n, float a, const float* x, const float* y, float* z)
{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) z[i] = a * x[i] + y[i]; }
extern "C" __global__ void spin(int n, float a, const float* x, const float* y, float* z)
{ long long start = clock64(); while (clock64() - start < n) { } }
extern "C" __global__ void accumulate(int n, float a, const float* x, const float* y, float* z)
{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) z[i] += a * x[i] + y[i]; }
"""
"""Kernels of one signature, for the stopwatch alone."""


@functools.cache
def compile_plain(text: str, arch: str) -> bytes:
    """Device code of a text of `extern "C"` kernels, straight from NVRTC."""
    from cuda.bindings import nvrtc

    options = [f"--gpu-architecture={arch}".encode(), b"-default-device"]
    _, program = nvrtc.nvrtcCreateProgram(text.encode(), b"timed.cu", 0, [], [])
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    if int(status):
        _, size = nvrtc.nvrtcGetProgramLogSize(program)
        log = b" " * size
        nvrtc.nvrtcGetProgramLog(program, log)
        raise RuntimeError(log.decode())
    _, size = nvrtc.nvrtcGetCUBINSize(program)
    cubin = b" " * size
    nvrtc.nvrtcGetCUBIN(program, cubin)
    return cubin


def plain_source(text: str, arch: str, name: str) -> Source:
    kernel = Kernel(name, name, (), 0, 0, 0, 0, 0, extern_c=True)
    compiled = Compiled(arch, "nvrtc", name, 0, 0, 0, 0, 0, 256, 1.0, "none", 0.0, cubin=compile_plain(text, arch))
    return Source("", "timed.cu", kernel, compiled=compiled)


@functools.lru_cache(maxsize=1)
def _data(elements: int, seeds: int) -> list[tuple[np.ndarray, ...]]:
    rng = np.random.default_rng(1)
    some = min(elements, 1 << 22)
    return [tuple(np.resize(rng.standard_normal(some, np.float32), elements) for _ in range(seeds)) for _ in range(3)]


def timed_order(sources: Iterable[Source], n: int, elements: int, role: str = "out", **more: Any) -> TimingOrder:
    """`n` is the kernels' first argument, `elements` the size of their buffers and of the launch."""
    seeds = 1 if elements * 12 > 5 * (60 << 20) else 2
    data = _data(elements, seeds)
    return TimingOrder(
        tuple(sources),
        (-(-elements // 256), 1, 1),
        (256, 1, 1),
        0,
        (
            TimedScalar("n", (np.int32(n).tobytes(),) * seeds),
            TimedScalar("a", (np.float32(2).tobytes(),) * seeds),
            TimedBuffer("x", "in", 4 * elements, data[0]),
            TimedBuffer("y", "in", 4 * elements, data[1]),
            TimedBuffer("z", role, 4 * elements, data[2] if role == "io" else ()),
        ),
        seeds,
        **more,
    )


def plain_launch(n: int, elements: int, **more: Any) -> Launch:
    rng = np.random.default_rng(elements)
    x, y = (rng.standard_normal(elements, np.float32) for _ in range(2))
    launch = Launch(
        (-(-elements // 256), 1, 1),
        (256, 1, 1),
        0,
        (
            ScalarArgument("n", np.int32(n).tobytes()),
            ScalarArgument("a", np.float32(2).tobytes()),
            BufferArgument("x", x, 4, False),
            BufferArgument("y", y, 4, False),
            BufferArgument("z", np.full(elements, np.nan, np.float32), 4, True),
        ),
    )
    return evolve(launch, **more)
