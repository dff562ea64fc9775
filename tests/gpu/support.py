"""How the GPU tests compile, verify and time a text: the worker's own rooms, called directly."""

import functools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from attrs import evolve, frozen

from dice_lsp.records import (
    Build,
    Comparison,
    Compiled,
    JudgeJob,
    Kernel,
    LaunchSpec,
    NotCompared,
    NotTimed,
    TimingResult,
    Verdict,
    kind_of,
)
from dice_lsp.source.directives import parse_directives
from dice_lsp.source.kernels import parse
from dice_lsp.worker.benchmark import benchmark
from dice_lsp.worker.compile import CompileJob, Compiler, build_keys
from dice_lsp.worker.device import GpuBackend, TimedBuffer, TimedScalar, TimingOrder
from dice_lsp.worker.host import HostBackend
from dice_lsp.worker.launch import BufferArgument, Launch, ScalarArgument, Source
from dice_lsp.worker.verify import verify

KINDS = ("pycuda", "cuda-core")
ROWS: list[tuple[str, ...]] = []
"""What the tests measured, for the tables: (table, column, column, ...)."""


def record(table: str, *columns: object) -> None:
    ROWS.append((table, *(str(column) for column in columns)))


def rows(table: str) -> Iterator[tuple[str, ...]]:
    return (row[1:] for row in ROWS if row[0] == table)


@frozen
class Outcome:
    build: Build
    verdict: Verdict
    timing: TimingResult
    comparison: Comparison


class Bench:
    """A back end with a compiler and, for CPU references, the host beside it."""

    def __init__(self, backend: GpuBackend) -> None:
        self.backend = backend
        self.compiler = Compiler()
        self.host = HostBackend()

    def close(self) -> None:
        self.backend.close()
        self.host.close()
        self.compiler.close()

    def source(self, text: str, kernel: Kernel, spec: LaunchSpec) -> Source:
        key = build_keys((kernel,))[0]
        job = CompileJob(text, "/nowhere/test.cu", (kernel,), {key: spec.template}, arch=self.backend.arch)
        build = self.compiler.compile(job)[key]
        assert isinstance(build, Compiled), build
        device_text = self.compiler.program(job).device_text
        return Source(device_text, job.path, kernel, spec.template, build)

    def job(
        self, text: str, name: str, baseline: str | None = None, **more: Any
    ) -> tuple[JudgeJob, Source, Source | None]:
        kernel, spec = parsed(text, name)
        rival, rival_source = None, None
        if baseline is not None:
            rival, rival_spec = parsed(baseline, name)
            rival_source = self.source(baseline, rival, rival_spec)
        job = JudgeJob(text, "/nowhere/test.cu", kernel, spec, baseline, rival, **more)
        return job, self.source(text, kernel, spec), rival_source

    def judge(self, text: str, name: str, baseline: str | None = None, time: bool = True, **more: Any) -> Outcome:
        """Compile, verify and, if the verdict allows it, time one kernel."""
        job, source, rival = self.job(text, name, baseline, **more)
        verdict = verify(job, source, self.backend, self.host, baseline_source=rival)
        timing: TimingResult = NotTimed("not asked for")
        comparison: Comparison = NotCompared("not asked for")
        if time and kind_of(type(verdict)) == "verified":
            timing, comparison = benchmark(job, source, rival, self.backend)
        assert source.compiled is not None
        return Outcome(source.compiled, verdict, timing, comparison)


def parsed(text: str, name: str) -> tuple[Kernel, LaunchSpec]:
    model = parse(text)
    kernel = next(kernel for kernel in model.kernels if kernel.name == name)
    said = parse_directives(text, kernel)
    assert not said.problems, said.problems
    spec = LaunchSpec(
        name, said.dims, said.buffers, said.scalars, said.grid, said.block, said.smem_bytes or "0", said.template,
        said.reference, said.tolerances, said.bytes, said.flops, said.peak, said.cache, constants=model.values,
    )  # fmt: skip
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
    return [tuple(rng.standard_normal(elements, np.float32) for _ in range(seeds)) for _ in range(3)]


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
        peak_bytes_per_us=4.8e6,
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
