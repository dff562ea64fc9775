"""Two builds are told to be the same machine code only if they are: real device code, straight from NVRTC."""

import pytest
from attrs import evolve

from dice_lsp.records import Compiled
from dice_lsp.source.kernels import parse
from dice_lsp.worker import machine_code
from dice_lsp.worker.compile import CompileJob, Compiler
from dice_lsp.worker.machine_code import same_machine_code

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
    header = machine_code._HEADER.unpack_from(made.cubin)
    sections_at, count = header[6], header[12]
    tried = 0
    for number in range(count):
        _, kind, flags, _, offset, size, *_ = machine_code._SECTION.unpack_from(made.cubin, sections_at + number * 64)
        if not flags & ALLOCATED or kind == machine_code._SHT_NOBITS:
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
