"""First contact with a card: each path of a back end once, printed raw. `python -m tests.gpu.smoke [pycuda|cuda-core ...]`."""

import sys
import time
import traceback

import numpy as np
from cuda.bindings import nvrtc

from attrs import evolve
from dice_lsp.records import BufferSpec, Compiled, Dim, JudgeJob, Kernel, LaunchSpec, Origin, Role
from dice_lsp.source.kernels import parse
from dice_lsp.worker.benchmark import benchmark
from dice_lsp.worker.device import TimedBuffer, TimedScalar, TimingOrder, open_backend
from dice_lsp.worker.launch import BufferArgument, Guard, Launch, ScalarArgument, Source

TEXT = r"""
extern "C" __global__ void saxpy(int n, float a, const float* x, const float* y, float* z)
{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) z[i] = a * x[i] + y[i]; }
extern "C" __global__ void over(int n, float a, const float* x, const float* y, float* z)
{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i <= n) z[i] = a; }
extern "C" __global__ void overread(int n, float a, const float* x, const float* y, float* z)
{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) z[i] = x[i + 64]; }
extern "C" __global__ void under(int n, float a, const float* x, const float* y, float* z)
{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) z[i - 1] = a; }
extern "C" __global__ void wild(int n, float a, const float* x, const float* y, float* z)
{ *(float*)(size_t)(threadIdx.x * 4 + 16) = a; }
extern "C" __global__ void mutate(int n, float a, float* x, const float* y, float* z)
{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) { z[i] = a; if (i == 3) x[i] = 0; } }
extern "C" __global__ void hang(int n, float a, const float* x, const float* y, float* z)
{ volatile float* v = z; while (v[0] != 12345.0f) { } }
extern "C" __global__ void trap(int n, float a, const float* x, const float* y, float* z)
{ asm("trap;"); }
extern "C" __global__ void accumulate(int n, float a, const float* x, const float* y, float* z)
{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) z[i] += a * x[i] + y[i]; }
extern "C" __global__ void dynamic(int n, float a, const float* x, const float* y, float* z)
{ extern __shared__ float s[]; int i = blockIdx.x * blockDim.x + threadIdx.x; s[threadIdx.x + 20000] = a; __syncthreads(); if (i < n) z[i] = s[threadIdx.x + 20000]; }
extern "C" __global__ void cached(int n, float a, const float* x, const float* y, float* z)
{ static __device__ int done; int i = blockIdx.x * blockDim.x + threadIdx.x; if (done > 1000) return; if (i == 0) done += 1; if (i < n) z[i] = a * x[i] + y[i]; }
"""


def compile_text(text: str, arch: str) -> bytes:
    options = [f"--gpu-architecture={arch}".encode(), b"--std=c++17", b"-default-device"]
    _, program = nvrtc.nvrtcCreateProgram(text.encode(), b"smoke.cu", 0, [], [])
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


def source_of(cubin: bytes, arch: str, name: str) -> Source:
    kernel = Kernel(name, name, (), 0, 0, 0, 0, 0, extern_c=True)
    compiled = Compiled(arch, "nvrtc", name, 0, 0, 0, 0, 0, 256, 1.0, "none", 0.0, cubin=cubin)
    return Source("", "smoke.cu", kernel, compiled=compiled)


def launch_of(n: int, guard: Guard = Guard.RIGHT, deadline_s: float = 3.0, smem_bytes: int = 0) -> Launch:
    rng = np.random.default_rng(n)
    x, y = (rng.standard_normal(n).astype(np.float32) for _ in range(2))
    return Launch(
        (-(-n // 256), 1, 1),
        (256, 1, 1),
        smem_bytes,
        (
            ScalarArgument("n", np.int32(n).tobytes()),
            ScalarArgument("a", np.float32(2).tobytes()),
            BufferArgument("x", x, 4, False),
            BufferArgument("y", y, 4, False),
            BufferArgument("z", np.full(n, np.nan, np.float32), 4, True),
        ),
        guard=guard,
        deadline_s=deadline_s,
    )


def order_of(sources: list[Source], n: int, z_role: str = "out", seeds: int = 2, **more: object) -> TimingOrder:
    launch = launch_of(n)
    rng = np.random.default_rng(1)
    data = [tuple(rng.standard_normal(n).astype(np.float32) for _ in range(seeds)) for _ in range(3)]
    return TimingOrder(
        tuple(sources),
        launch.grid,
        launch.block,
        0,
        (
            TimedScalar("n", (np.int32(n).tobytes(),) * seeds),
            TimedScalar("a", (np.float32(2).tobytes(),) * seeds),
            TimedBuffer("x", "in", 4 * n, data[0]),
            TimedBuffer("y", "in", 4 * n, data[1]),
            TimedBuffer("z", z_role, 4 * n, data[2] if z_role == "io" else ()),
        ),
        seeds,
        peak_bytes_per_us=4.8e6,
        **more,
    )


def short(result: object) -> str:
    text = repr(result)
    return text if len(text) < 400 else text[:400] + "..."


def main() -> None:
    started = time.monotonic()

    def say(*parts: object) -> None:
        print(f"{time.monotonic() - started:7.2f}", *parts, flush=True)

    for kind in sys.argv[1:] or ["pycuda", "cuda-core"]:
        backend = open_backend(kind)
        say(kind, short(backend))
        if isinstance(backend, str):
            continue
        say(backend.info)
        cubin = compile_text(TEXT, backend.arch)
        try:
            for name in ("saxpy", "over", "wild", "hang", "saxpy", "dynamic"):
                launch = launch_of(1000, Guard.RIGHT, 1.0, 90_000 if name == "dynamic" else 0)
                (result,) = backend.prepare(source_of(cubin, backend.arch, name)).run([launch])
                say(name, short(result), "runners", backend.runners_started)
            for n in (1 << 16, 1 << 20, 1 << 23):
                for names, role in ((("saxpy", "saxpy"), "out"), (("accumulate",), "io"), (("cached",), "out")):
                    sources = [source_of(cubin, backend.arch, name) for name in names]
                    before = time.monotonic()
                    samples = backend.time(order_of(sources, n, role))
                    took = time.monotonic() - before
                    if not hasattr(samples, "programs"):
                        say("time", n, names, short(samples))
                        continue
                    medians = [round(float(np.median(column)), 3) for column in samples.programs]
                    spreads = [
                        round(float(np.subtract(*np.percentile(c, [75, 25])) / np.median(c)), 4)
                        for c in samples.programs
                    ]
                    say(
                        "time", n, names, "medians", medians, "spread", spreads, "gap", np.median(samples.gap_us), "floor",
                        samples.floor_us, "overhead", samples.overhead_us, "K", samples.launches, "R", samples.sets,
                        samples.cold, "clock", set(samples.clock_mhz), "throttle", set(samples.throttle), samples.busy,
                        "outputs", [(o.program, o.seed, o.index) for o in samples.outputs], f"{took:.2f} s",
                    )  # fmt: skip
            text = "__global__ void saxpy(int n, float a, const float* x, const float* y, float* z) { }"
            spec = LaunchSpec(
                "saxpy", (Dim("n", (1 << 20, 33), Origin.DIRECTIVE),),
                tuple(BufferSpec(b, r, ("n",), "normal", Origin.DIRECTIVE) for b, r in (("x", Role.IN), ("y", Role.IN), ("z", Role.OUT))),
                grid=("cdiv(n, 256)", "1", "1"), block=("256", "1", "1"),
            )  # fmt: skip
            kernel = parse(text).kernels[0]
            for name in ("saxpy", "cached", "mutate"):
                source = evolve(source_of(cubin, backend.arch, name), kernel=kernel)
                rival = evolve(source_of(cubin, backend.arch, "saxpy"), kernel=kernel)
                before = time.monotonic()
                say(name, benchmark(JudgeJob(text, "a.cu", kernel, spec), source, rival, backend), time.monotonic() - before)
        except Exception:
            traceback.print_exc()
            if backend._child is not None:
                print(backend._child.stderr_tail)
        backend.close()


if __name__ == "__main__":
    main()
