"""The checks that need a card: state, occupancy, places of buffers, sizes beyond 2 GB, and launches that never happen.

Each kernel here is caught by one check alone: it is refused, and it is not refused with that check switched off.
"""

import re
import time

import pytest

from dice_lsp.records import Cheating, Compiled, JudgeJob, Unsafe, Unverified, Verdict, Verified, Wrong
from dice_lsp.worker.compile import CompileJob, build_keys
from dice_lsp.worker.launch import Source
from dice_lsp.worker.verify import verify
from tests.gpu.support import Bench, parsed, record, saxpy

PATH = "/nowhere/test.cu"


def verdict(bench: Bench, text: str, name: str = "add", without: str = "") -> Verdict:
    kernel, spec = parsed(text, name)
    order = CompileJob(text, PATH, (kernel,), arch=bench.backend.arch, templates={name: spec.template})
    build = bench.worker.compiler.compile(order)[build_keys((kernel,))[0]]
    assert isinstance(build, Compiled), build
    source = Source(bench.worker.compiler.program(order).device_text, PATH, kernel, spec.template, build)
    job = JudgeJob(text, PATH, kernel, spec)
    return verify(job, source, bench.backend, bench.worker.host, without=frozenset({without} - {""}))


def kernel(
    body: str, *, sizes: str = "1000", before: str = "", ref: str = "ref torch: x + y", size: str = "int"
) -> str:
    return f"""
{before}
//dice: n = {sizes}; in x[n], y[n]; out z[n]; launch <<<cdiv(n, 256), 256>>>; {ref}
__global__ void add(const float* x, const float* y, float* z, {size} n) {{
    {size} i = ({size})blockIdx.x * blockDim.x + threadIdx.x;
    {body}
}}
"""


RIGHT = "if (i < n) z[i] = x[i] + y[i];"


@pytest.mark.parametrize(
    "declared, body, name",
    [
        ("__device__ int calls;", "if (i == 0) calls = n;", "calls"),
        ("namespace ours { __device__ float kept[100]; }", "if (i == 0) ours::kept[7] = n;", "kept"),
        ("static __device__ unsigned hidden;", "if (i == 0) atomicAdd(&hidden, 1u);", "hidden"),
        ("__device__ long long first = 3;", "if (i == 0) first++;", "first"),
    ],
)
def test_state_that_is_kept_is_told(bench: Bench, declared: str, body: str, name: str) -> None:
    text = kernel(f"{RIGHT} {body}", before=declared)
    found = verdict(bench, text)
    assert isinstance(found, Unverified) and found.reason == f"keeps state in `{name}` between launches", found
    passed = verdict(bench, text, without="state")
    assert isinstance(passed, Verified) and "state" not in passed.checks, passed
    record("checks", bench.backend.kind, "state", found.reason)


LAST_BLOCK = """
__device__ unsigned int done;
//dice: n = 100000 | 1000; in x[n]; tmp part[64]; out y[1]; launch <<<64, 256>>>; ref torch: x.sum()
__global__ void sum(const float* x, volatile float* part, float* y, int n) {
    __shared__ float s[256];
    __shared__ bool last;
    float own = 0;
    for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) own += x[i];
    s[threadIdx.x] = own;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (threadIdx.x < half) s[threadIdx.x] += s[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        part[blockIdx.x] = s[0];
        __threadfence();
        last = atomicInc(&done, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        float total = 0;
        for (int b = 0; b < gridDim.x; ++b) total += part[b];
        y[0] = total;
    }
}
"""


def test_a_counter_that_is_put_back_is_honest(bench: Bench) -> None:
    found = verdict(bench, LAST_BLOCK, "sum")
    assert isinstance(found, Verified) and "state" in found.checks, found
    assert "has the device variable `done`" in found.notes


def test_occupancy_a_result_that_depends_on_spare_shared_memory(bench: Bench) -> None:
    ask = 'unsigned room; asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(room));'
    text = kernel(f"{ask} if (i < n) z[i] = x[i] + y[i] + (room > 0);")
    found = verdict(bench, text)
    assert isinstance(found, Unsafe) and found.hazard == "occupancy_dependent", found
    passed = verdict(bench, text, without="occupancy")
    assert isinstance(passed, Verified) and "occupancy" not in passed.checks and "has inline PTX" in passed.notes, (
        passed
    )
    record("checks", bench.backend.kind, "occupancy", found.where)


BARRIER = """
//dice: n = BLOCKS; in x[n]; tmp here[1]: zeros; out y[n]; launch <<<n, 1024>>>; ref torch: 2 * x
__global__ void meet(const float* x, int* here, float* y, int n) {
    if (threadIdx.x == 0) {
        atomicAdd(here, 1);
        while (atomicAdd(here, 0) < n) { }
        y[blockIdx.x] = 2 * x[blockIdx.x];
    }
}
"""


def test_occupancy_a_barrier_of_the_grid_that_needs_every_block_resident(bench: Bench) -> None:
    assert bench.backend.info is not None
    blocks = 2 * int(bench.backend.info.attributes["multiprocessors"])
    text = BARRIER.replace("BLOCKS", str(blocks))
    found = verdict(bench, text, "meet")
    assert isinstance(found, Unsafe) and found.hazard == "occupancy_dependent", found
    assert "fewer blocks" in found.where
    # The card is free again, and nothing is left of it.
    assert isinstance(verdict(bench, saxpy(), "saxpy"), Verified)


def test_an_honest_kernel_has_had_the_checks_of_a_card(bench: Bench) -> None:
    started = time.monotonic()
    found = verdict(bench, saxpy(), "saxpy")
    assert isinstance(found, Verified), found
    wanted = {
        "occupancy",
        "determinism",
        "addresses",
        "state",
        "launched",
        "bounds",
        "seeds",
        "distributions",
        "nan",
        "inf",
    }
    assert wanted <= set(found.checks) and "block_order" not in found.checks and not found.notes
    record("checks", bench.backend.kind, "honest saxpy", f"{time.monotonic() - started:.2f} s")


VECTORS = (
    "int v = 4 * i; if (v + 3 < n) *(float4*)(z + v) = *(const float4*)(x + v); "
    "for (int r = n / 4 * 4; i == 0 && r < n; ++r) z[r] = x[r];"
)
CAREFUL = f"if (((size_t)x | (size_t)z) % 16) {{ if (i < n) z[i] = x[i]; return; }} {VECTORS}"


def test_alignment_is_noted(bench: Bench) -> None:
    found = verdict(bench, kernel(VECTORS, ref="ref torch: x"))
    assert isinstance(found, Verified) and found.notes == ("assumes pointers aligned to 16 bytes",), found
    assert "alignment" in found.checks
    careful = verdict(bench, kernel(CAREFUL, ref="ref torch: x"))
    assert isinstance(careful, Verified) and not careful.notes and "alignment" in careful.checks, careful


def test_addresses_a_result_that_depends_on_where_a_buffer_lies(bench: Bench) -> None:
    text = kernel("if (i < n) z[i] = x[i] + y[i] + ((size_t)z % 4096 == 0);")
    found = verdict(bench, text)
    assert isinstance(found, Unsafe) and found.hazard == "address_dependent", found
    assert isinstance(verdict(bench, text, without="addresses"), Verified)


def test_determinism_a_result_that_changes_from_run_to_run(bench: Bench) -> None:
    ask = 'unsigned long long t; asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));'
    text = kernel(f"{ask} if (i < n) z[i] = x[i] + y[i] + (t / 1000 % 1000) * 1e-3f;")
    found = verdict(bench, text)
    assert isinstance(found, Unsafe) and found.hazard in ("non_deterministic", "occupancy_dependent"), found


FAR = "if (i < n) *(float*)((char*)z + OFFSET(4 * i)) = x[i] + y[i];"


def test_sizes_of_64_bits_are_tried_beyond_2_gb(bench: Bench) -> None:
    sizes = "1M | 4096"
    started = time.monotonic()
    honest = verdict(bench, kernel(FAR.replace("OFFSET", ""), sizes=sizes, size="long long"))
    took = time.monotonic() - started
    assert isinstance(honest, Verified) and any("beyond 2 GB" in note for note in honest.notes), honest
    text = kernel(FAR.replace("OFFSET", "(int)"), sizes=sizes, size="long long")
    found = verdict(bench, text)
    assert isinstance(found, (Unsafe, Wrong)) and "over and over again" in found.case, found
    assert isinstance(verdict(bench, text, without="cases"), Verified)
    narrow = verdict(bench, kernel(FAR.replace("OFFSET", "(int)"), sizes=sizes))
    assert isinstance(narrow, Verified) and not narrow.notes, narrow
    record("checks", bench.backend.kind, "beyond 2 GB", f"{took:.2f} s, {found}")


def test_a_size_that_only_the_stopwatch_runs_is_run_all_the_same(bench: Bench) -> None:
    cheat = "if (i < n) z[i] = x[i] + (n == SIZE ? x[i] : y[i]);"
    for size in (16 << 20, 256 << 20):
        found = verdict(bench, kernel(cheat.replace("SIZE", str(size)), sizes=f"{size} | 4096"))
        assert isinstance(found, Wrong) and f"n={size}" in found.case, found
    started = time.monotonic()
    honest = verdict(bench, kernel(RIGHT, sizes=f"{256 << 20} | 4096"))
    assert isinstance(honest, Verified) and not honest.notes, honest
    record("checks", bench.backend.kind, "benchmark of 256M", f"{time.monotonic() - started:.2f} s")


def test_a_launch_that_never_happens_is_not_a_pass(bench: Bench) -> None:
    small = kernel(RIGHT).replace("void add", "void __launch_bounds__(128) add")
    found = verdict(bench, small)
    assert isinstance(found, Unsafe) and found.hazard == "never_launched", found
    assert re.match("launch refused", found.where)
    nothing = verdict(bench, kernel("", ref="bytes 12*n"))
    assert isinstance(nothing, Unsafe) and nothing.hazard == "never_launched", nothing
    passed = verdict(bench, kernel("", ref="bytes 12*n"), without="launched")
    assert isinstance(passed, Unverified) and "no reference" in passed.reason, passed


def test_timed_launches_do_not_hide_a_kept_result(bench: Bench) -> None:
    kept = """
    if (!known && i < n) kept[i] = x[i] + y[i];
    if (i < n) z[i] = kept[i];
    __syncthreads();
    if (threadIdx.x == 0 && atomicAdd(&done, 1u) == gridDim.x - 1) { known = 1; done = 0; }
    """
    declared = "__device__ float kept[1 << 20]; __device__ unsigned done; __device__ volatile int known;"
    judged = bench.judge(kernel(kept, sizes="1M | 1000", before=declared), "add")
    assert isinstance(judged.verdict, Cheating) or (
        isinstance(judged.verdict, Unverified) and "keeps state in" in judged.verdict.reason
    ), judged.verdict
    record("checks", bench.backend.kind, "kept result", judged.verdict)
