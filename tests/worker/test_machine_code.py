"""Two builds are told to be the same machine code only if they are: real device code, straight from NVRTC."""

from collections.abc import Iterator

import pytest
from attrs import evolve

from dice_lsp.records import Compiled
from dice_lsp.source.kernels import parse
from dice_lsp.worker import elf
from dice_lsp.worker.compile import CompileJob, Compiler
from dice_lsp.worker.machine_code import called, narrow_instructions, reads_clock, same_machine_code, writable_variables

ALLOCATED = 2
"""ELF's flag of a section that is loaded."""
SCALE = """
__global__ void scale(const float* x, const float* y, float* z, int n) {
    __shared__ float part[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) part[threadIdx.x] = x[i] * 2.0f - y[i];
    __syncthreads();
    if (i < n) z[i] = part[threadIdx.x ^ 1];
}
"""


@pytest.fixture(scope="module")
def compiler():
    compiler = Compiler()
    yield compiler
    compiler.close()


@pytest.fixture
def build(compiler: Compiler):
    def build(text: str, *flags: str) -> Compiled:
        (made,) = compiler.compile(CompileJob(text, "/nowhere/a.cu", parse(text).kernels, flags=flags)).values()
        assert isinstance(made, Compiled), made
        return made

    return build


SAME = {
    "as it is": SCALE,
    "comments and layout": "// a remark\n\n" + SCALE.replace("    if", "\n        if"),
    "another variable name": SCALE.replace("int i =", "int me =").replace("i < n", "me < n").replace("[i]", "[me]"),
    "other parameter names": SCALE.replace("float* x", "float* u").replace("x[i]", "u[i]"),
    "another kernel name": SCALE.replace("void scale", "void rescaled"),
    "another name of shared memory": SCALE.replace("part", "shared_part"),
    "the same sum written otherwise": SCALE.replace("x[i] * 2.0f", "2.0f * x[i]"),
}
DIFFERENT = {
    "another constant": SCALE.replace("2.0f", "2.5f"),
    "another order of parameters": SCALE.replace("const float* x, const float* y", "const float* y, const float* x"),
    "another type of a parameter": SCALE.replace("int n", "long long n"),
    "a parameter more": SCALE.replace("int n", "int n, int unused"),
    "more shared memory": SCALE.replace("part[256]", "part[512]"),
    "launch bounds": SCALE.replace("__global__ void", "__global__ void __launch_bounds__(64)"),
    "a barrier more": SCALE.replace("__syncthreads();", "__syncthreads(); __syncthreads();"),
}


@pytest.mark.parametrize("what", SAME)
def test_what_the_card_does_not_see_is_no_difference(build, what: str) -> None:
    assert same_machine_code(build(SCALE), build(SAME[what]))


@pytest.mark.parametrize("what", DIFFERENT)
def test_any_difference_to_the_card_is_one(build, what: str) -> None:
    assert not same_machine_code(build(SCALE), build(DIFFERENT[what]))


def test_lines_of_the_text_in_the_code_are_no_difference(build) -> None:
    first, second = build(SCALE, "-lineinfo"), build('\n\n\n#line 7 "elsewhere.cu"\n' + SCALE, "-lineinfo")
    assert first.cubin != second.cubin and b"elsewhere.cu" in second.cubin
    assert same_machine_code(first, second)


def test_values_in_memory_and_what_relocations_go_to_count(build) -> None:
    table = "__constant__ float table[4] = {1, 2, 3, 4};\n" + SCALE.replace("2.0f", "table[n & 3]")
    assert same_machine_code(build(table), build(table))
    assert not same_machine_code(build(table), build(table.replace("3, 4", "3, 5")))
    two = "__device__ float one[4], two[4];\n" + SCALE.replace("2.0f", "one[n & 3]").replace("y[i]", "two[n & 3]")
    swapped = two.replace("one[n", "NAME[n").replace("two[n", "one[n").replace("NAME[n", "two[n")
    assert same_machine_code(build(two), build(two)) and not same_machine_code(build(two), build(swapped))
    said = SCALE.replace("if (i < n) z", 'if (i == 0) printf("first"); if (i < n) z')
    assert not same_machine_code(build(said), build(said.replace("first", "other")))


def test_another_architecture_or_other_figures_differ(build) -> None:
    made = build(SCALE)
    assert not same_machine_code(made, build(SCALE, "-arch=sm_80"))
    assert not same_machine_code(made, evolve(made, registers=made.registers + 1))
    assert not same_machine_code(made, evolve(made, stack_bytes=8))


def test_every_byte_that_the_card_loads_counts(build) -> None:
    made = build(SCALE)
    header = elf.HEADER.unpack_from(made.cubin)
    sections_at, count = header[6], header[12]
    tried = 0
    for number in range(count):
        _, kind, flags, _, offset, size, *_ = elf.SECTION.unpack_from(made.cubin, sections_at + number * 64)
        if not flags & ALLOCATED or kind == elf.SHT_NOBITS:
            continue
        for at in range(offset, offset + size, 3):
            changed = made.cubin[:at] + bytes([made.cubin[at] ^ 1]) + made.cubin[at + 1 :]
            assert not same_machine_code(made, evolve(made, cubin=changed)), at
            tried += 1
    assert tried > 200


def test_a_damaged_file_is_an_answer_whichever_byte_is_hit(build) -> None:
    made = build(SCALE)
    answers = {
        same_machine_code(
            made, evolve(made, cubin=made.cubin[:at] + bytes([made.cubin[at] ^ 255]) + made.cubin[at + 1 :])
        )
        for at in range(0, len(made.cubin), 3)
    }
    assert answers == {True, False}  # True: a byte that only debuggers read


@pytest.mark.parametrize("cubin", [b"", b"\x7fELF", b"\x7fELF\x02\x01" + bytes(400), b"no code at all" * 50])
def test_what_cannot_be_read_is_never_the_same(build, cubin: bytes) -> None:
    odd = evolve(build(SCALE), cubin=cubin)
    assert not same_machine_code(odd, odd)
    half = evolve(odd, cubin=build(SCALE).cubin[: len(build(SCALE).cubin) // 2])
    assert not same_machine_code(half, half)
    unknown = evolve(build(SCALE), symbol="nobody")
    assert not same_machine_code(unknown, unknown)


READS = {
    "clock": "y[0] = clock64();",
    "timer": 'unsigned long long t; asm volatile("mov.u64 %0, %%global" "timer;" : "=l"(t)); y[0] = t;',
    "half": "y[0] = __half2float(__float2half(y[1]));",
    "bfloat16": "y[0] = __bfloat162float(__float2bfloat16(y[1]));",
    "plain": "y[threadIdx.x] = expf(y[blockIdx.x]) / sqrtf(y[1]) + sinf(y[2]) * 3.0f;",
}


@pytest.fixture(scope="module")
def reading() -> Iterator[dict[tuple[str, str], Compiled]]:
    """The kernels of `READS` for two architectures."""
    compiler = Compiler()
    builds = {}
    for arch in ("sm_80", "sm_90"):
        for name, body in READS.items():
            text = f"#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n__global__ void k(float* y) {{ {body} }}"
            kernels = parse(text).kernels
            (build,) = compiler.compile(CompileJob(text, "/nowhere/k.cu", kernels, arch=arch)).values()
            assert isinstance(build, Compiled), build
            builds[arch, name] = build
    yield builds
    compiler.close()


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_a_clock_is_found_in_the_code_however_it_is_spelled(
    reading: dict[tuple[str, str], Compiled], arch: str
) -> None:
    assert {name: reads_clock(reading[arch, name]) for name in READS} == {
        "clock": True, "timer": True, "half": False, "bfloat16": False, "plain": False,
    }  # fmt: skip
    other = evolve(reading[arch, "clock"], arch="sm_61")
    assert not reads_clock(other) and not reads_clock(evolve(other, cubin=b"no code", arch=arch))


def test_only_what_a_kernel_reaches_is_read() -> None:
    text = """
__device__ __noinline__ long long ticks(int i) { return clock64() + i; }
__device__ __noinline__ long long twice(int i) { return ticks(i) + ticks(i + 1); }
__global__ void timed(long long* y, int n) { y[0] = twice(n) + twice(n + 1); }
__global__ void plain(long long* y, int n) { y[0] = n; }
"""
    compiler = Compiler()
    kernels = parse(text).kernels
    builds = compiler.compile(CompileJob(text, "/nowhere/k.cu", kernels))
    compiler.close()
    found = {name: reads_clock(build) for name, build in builds.items() if isinstance(build, Compiled)}
    assert found == {"timed": True, "plain": False}


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_conversions_to_fewer_bits_are_found_in_the_code(reading: dict[tuple[str, str], Compiled], arch: str) -> None:
    assert narrow_instructions(reading[arch, "half"]) == {"F2FP"}
    assert narrow_instructions(reading[arch, "bfloat16"]) <= {"F2FP", "F2F"} and narrow_instructions(
        reading[arch, "bfloat16"]
    )
    assert not narrow_instructions(reading[arch, "plain"]) and not narrow_instructions(reading[arch, "clock"])


def test_variables_that_outlive_a_launch_are_found() -> None:
    text = """
namespace ours { __device__ float kept[100]; }
__device__ int counter = 3;
static __device__ unsigned hidden;
__constant__ float table[4];
__device__ int count(int i) { static int calls = 1; return calls += i; }
__global__ void k(float* x, int n) {
    ours::kept[threadIdx.x] = x[n]; counter++; hidden++; printf("%d", n);
    x[0] = table[n] + ours::kept[n] + counter + hidden + count(n);
}
"""
    compiler = Compiler()
    kernels = parse(text).kernels
    (build,) = compiler.compile(CompileJob(text, "/nowhere/k.cu", kernels)).values()
    compiler.close()
    assert isinstance(build, Compiled), build
    found = {variable.name: variable.size_bytes for variable in writable_variables(build.cubin)}
    assert found == {"kept": 400, "counter": 4, "hidden": 4, "calls": 4}
    assert writable_variables(b"no code") == ()
    assert "vprintf" in called(build) and build.symbol in called(build)
    assert called(evolve(build, cubin=b"no code")) == {build.symbol}
