"""The table of nvcc's options against the nvcc of this machine, and how command lines of several compilers are read."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dice_lsp import process
from dice_lsp.source.nvcc_flags import OPTIONS, PASSED_ON, Kind, architectures, compiles_cuda, is_nvcc, read_flags
from dice_lsp.worker.compile import Compiler, find_nvcc, nvrtc_flags

NVCC = find_nvcc()
# What takes a value though the help shows none.
SILENT_VALUE = {"--dependency-output", "--qpp-config"}
# Lists that are passed on whole, because their parts are of one kind.
WHOLE_LISTS = {"--generate-code", "--diag-error", "--diag-suppress", "--diag-warn"}
_ROW = re.compile(r"^(--[\w-]+|-\w+)(?: ([^(\n]+?))?\s+(?:\((-[\w-]+)\)|(--[\w-]+))\s*$", re.MULTILINE)


def helped() -> dict[str, tuple[str, int]]:
    """Name -> short name and how many values, of every option in the help of the nvcc here."""
    if NVCC is None:
        pytest.skip("there is no nvcc on this machine, so its options cannot be looked at")
    text = process.run([NVCC, "--help"], deadline_s=60).stdout.decode()
    rows = {}
    for name, value, short, same in _ROW.findall(text):
        rows[name] = short or same, 0 if not value.strip() else 2 if ",..." in value else 1
    # Each option's name stands at the beginning of a line, and nothing else does that begins so.
    assert len(rows) == len(re.findall(r"^-", text, re.MULTILINE)) > 100
    return rows


def test_every_option_of_nvcc_is_classified():
    rows = helped()
    table = {option.name: option for option in OPTIONS}
    assert len(table) == len(OPTIONS)
    assert rows.keys() == table.keys()
    for name, (short, values) in rows.items():
        option = table[name]
        assert option.short == short, name
        if name not in SILENT_VALUE | WHOLE_LISTS:
            assert option.values == values, name


def test_what_is_passed_on_is_taken_by_nvrtc_and_nvcc(tmp_path):
    """Each device option of the table, given to both compilers for real."""
    written = []
    for option in OPTIONS:
        if option.kind is not Kind.DEVICE or option.name == "--ptxas-options":
            continue
        example = {"-std": "c++20", "-maxrregcount": "64", "-dopt": "on", "-jtd": "3"}.get(option.short)
        value = option.fixed or example or ("true" if option.value == "true|false" else "177" if option.value else "")
        written.append(f"{option.short}={value}" if option.values else option.short)
    flags = [flag.text for flag in read_flags(written) if flag.kind is Kind.DEVICE]
    assert len(flags) == len(written)
    passed, problem = nvrtc_flags(flags)
    assert problem is None
    compiler = Compiler(cache_dir=tmp_path)
    nvrtc = compiler._nvrtc
    _, program = nvrtc.nvrtcCreateProgram(b"__global__ void k(int* x) { *x = 1; }", b"k.cu", 0, [], [])
    words = [flag.encode() for flag in ["-arch=sm_90", *passed]]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(words), words)
    assert int(status) == 0, compiler._log(program)
    compiler.close()
    if NVCC is None:
        pytest.skip("there is no nvcc on this machine: NVRTC took all, nvcc was not asked")
    done = process.run([NVCC, "--dryrun", "-cubin", "-arch=sm_90", *flags, "k.cu"], deadline_s=60, cwd=str(tmp_path))
    assert b"Unknown option" not in done.stderr and b"fatal" not in done.stderr, done.stderr.decode()


def taken(line: str, dialect: str = "nvcc") -> list[str]:
    return [flag.text for flag in read_flags(line.split(), dialect) if flag.kind in (Kind.DEVICE, Kind.MACRO)]


def of_kind(line: str, kind: Kind, dialect: str = "nvcc") -> list[str]:
    return [flag.value for flag in read_flags(line.split(), dialect) if flag.kind is kind]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("-DA=1,B -D C -UX,Y", ["-DA=1", "-DB", "-DC", "-UX", "-UY"]),
        ("-DA=f(x\\,y)", ["-DA=f(x,y)"]),
        ("--define-macro=A -std c++20 --std=c++17", ["-DA", "-std=c++20", "-std=c++17"]),
        ("--use_fast_math -ftz true --fmad=false", ["--use_fast_math", "-ftz=true", "-fmad=false"]),
        ("-dc", ["-rdc=true"]),
        ("-rdc false", ["-rdc=false"]),
        ("--expt-extended-lambda -lineinfo", ["--extended-lambda", "-lineinfo"]),
        ("-Xptxas -v,-dlcm=ca,-O2 --ptxas-options=-dscm,cg", ["-Xptxas=-dlcm=ca", "-Xptxas=-O2", "-Xptxas=-dscm=cg"]),
        ("-Xcompiler -fPIE,-DHOST=1 -Xcompiler=-Wall", ["-DHOST=1"]),
        ("-Xlinker -DNOT -Xarchive=-DNOT --linker-options -DNOT", []),
        ("-t 4 -DA --threads=0", ["-DA"]),
        ("-MF -DNOT -o -DNOT -x cu -MT -DNOT", []),
        ("-DN=1\n", ["-DN=1"]),
        ("-nvcc_options=relaxed-constexpr -nvcc_options ftz=true", ["--expt-relaxed-constexpr", "-ftz=true"]),
    ],
)
def test_nvcc_lines(line, expected):
    assert taken(line) == expected


def test_lines_of_clang_and_of_a_c_compiler():
    clang = "clang++ -x cuda --cuda-gpu-arch=sm_80 --cuda-path=/evil -ffast-math -ffp-contract=off -fgpu-rdc -DA=f(x,y)"
    assert taken(clang, "clang") == ["--use_fast_math", "-fmad=false", "-rdc=true", "-DA=f(x,y)"]
    assert architectures(read_flags(clang.split(), "clang")) == ("sm_80",)
    assert of_kind(clang, Kind.TOOL, "clang") == ["", "/evil"]
    # What GCC is told of arithmetic concerns no kernel.
    assert taken("g++ -ffast-math -O3 -Wall -DA", "host") == ["-DA"]
    assert of_kind("-iquote a -isystem b -idirafter c -Id -I e", Kind.FOLDER, "host") == ["a", "b", "c", "d", "e"]
    assert of_kind("-Xclang -DNOT -mllvm -DNOT -isysroot /x", Kind.FOLDER, "clang") == []


def test_a_word_with_a_blank_is_an_option_with_its_value():
    (flag,) = read_flags(["-gencode arch=compute_80,code=[sm_80,compute_80]"])
    assert architectures([flag]) == ("sm_80",)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("-gencode arch=compute_86,code=sm_86", ("sm_86",)),
        ("-gencode=arch=compute_70,code=[compute_70,sm_70] --generate-code arch=compute_90a,code=sm_90a", ("sm_70", "sm_90a")),
        ('--generate-code=arch=compute_52,code="sm_52,compute_52"', ("sm_52",)),
        ("-arch=sm_75", ("sm_75",)),
        ("-arch compute_80 -code sm_80,sm_86", ("sm_80", "sm_86")),
        ("-arch=native", ("native",)),
        ("-arch=all-major -gencode arch=compute_90,code=sm_90", ("all-major", "sm_90")),
        ("-gencode arch=compute_80", ("sm_80",)),
        ("--offload-arch=sm_80,sm_90 --cuda-gpu-arch=sm_70 --no-offload-arch=sm_70", ("sm_80", "sm_90")),
        ("-arch=gfx90a", ()),
        ("-O3", ()),
    ],
)  # fmt: skip
def test_architectures(line, expected):
    assert architectures(read_flags(line.split())) == expected


@pytest.mark.parametrize(
    "word",
    [
        "-Xcompiler=-fplugin=/tmp/x.so", "-ccbin=/tmp/x", "--compiler-bindir=/tmp/x", "-fplugin=/tmp/x.so", "-o/tmp/x",
        "--output-file=/tmp/x", "-odir=/tmp", "-keep-dir=/tmp", "-time=/tmp/x", "-run", "--run-args=x", "-Xlinker=x",
        "-fdevice-time-trace=/tmp/x", "-ldir=/tmp", "-target-dir=/tmp", "-arbin=/tmp/x", "--cuda-path=/tmp", "-B/tmp",
        "--ptxas-path=/tmp/x", "-wrapper=/tmp/x", "-specs=/tmp/x", "-MF/tmp/x", "--qpp-config=x", "-Xptxas=-o,/tmp/x",
        "-Xptxas=--options-file,/tmp/x", "-Xptxas=-v;touch /tmp/x", "-sanitize=x", "-never-heard-of", "--never=1",
        "-DA\n#include </etc/passwd>", "-D3", "-Uf(x)", "-std=c++17;x", "-maxrregcount=1e3", "-ftz=1", "-I", "-include",
        "-I/tmp\n-o", "-include=/tmp/a\n/b", "-diag-suppress=1 -o x", "-include=a\"b", "$(touch /tmp/x)", "`x`", "&&", "/tmp/evil",
    ],
)  # fmt: skip
def test_a_hostile_word_is_nothing_that_reaches_a_compiler(word):
    found = read_flags(["-lineinfo", word])
    assert [flag.text for flag in found if flag.kind in (Kind.DEVICE, Kind.MACRO)] == ["-lineinfo"]
    assert not [flag for flag in found if flag.kind in (Kind.FOLDER, Kind.HEADER, Kind.FILE)]


def test_a_flag_that_is_passed_on_is_never_more_than_one_word_to_the_compilers():
    words = ["-DA=1 -o x", "-U A", "-std=c++20", "-Xptxas", "-O3", "-diag-warn=1,2"]
    assert [flag.text for flag in read_flags(words) if flag.kind is Kind.DEVICE] == [
        "-std=c++20",
        "-Xptxas=-O3",
        "-diag-warn=1,2",
    ]
    assert [flag.text for flag in read_flags(words) if flag.kind is Kind.MACRO] == ["-DA=1 -o x", "-UA"]


def test_which_lines_compile_cuda():
    assert is_nvcc(["/usr/bin/ccache", "/usr/local/cuda-13.0/bin/nvcc", "-c"]) and is_nvcc(["nvcc.exe"])
    assert not is_nvcc(["g++", "-DX=nvcc"])
    assert compiles_cuda(["clang++", "-x", "cuda", "k.cc"], "k.cc") and compiles_cuda(["nvcc", "-xcu"], "k.cpp")
    assert compiles_cuda(["anything"], "k.cu") and not compiles_cuda(["g++", "-c", "k.cpp"], "k.cpp")


_NAMES = sorted({name for option in OPTIONS for name in (option.name, option.short)})
_WORDS = st.one_of(
    st.sampled_from(_NAMES),
    st.tuples(st.sampled_from(_NAMES), st.sampled_from(["", "=", " ", ","]), st.text(max_size=12)).map("".join),
    st.sampled_from(["-DA=1", "-Xptxas=-O3", "-dlcm=ca", "true", "c++20", "sm_90", "-o", "/tmp/x", "@f", "arch=", "a,b\\,c", "\\"]),
    st.text(max_size=20),
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.lists(_WORDS, max_size=8), st.sampled_from(["nvcc", "clang", "host"]))
def test_whatever_the_words_are_only_what_the_compilers_list_allows_is_passed_on(words, dialect):
    found = read_flags(words, dialect)
    passed = [flag.text for flag in found if flag.kind in (Kind.DEVICE, Kind.MACRO)]
    for text in passed:
        assert nvrtc_flags([text])[1] is None, text
        assert text.startswith("-") and not re.search(r"[\0\r\n]", text)
    for flag in found:
        assert not re.search(r"[\0\r\n]", flag.value) or flag.kind not in PASSED_ON
    architectures(found)
    compiles_cuda(words, "a.cpp")
