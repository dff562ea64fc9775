"""Compiling with the real NVRTC, and with the real nvcc where one is on PATH."""

import os
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from dice_lsp.process import Cancelled
from dice_lsp.records import Build, Compiled, CompileFailed, NotCompiled
from dice_lsp.source.kernels import parse
from dice_lsp.worker.compile import (
    CompileJob,
    Compiler,
    bad_name_expressions,
    build_keys,
    find_nvcc,
    nvrtc_flags,
    template_arguments,
    wheel_include_dirs,
)
from dice_lsp.worker.scratch import HELD
from dice_lsp.workspace import workspace_root

DATA = Path(__file__).parent.parent / "data" / "compile"
NO_NVCC = "/nonexistent/nvcc"


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compiler]:
    """NVRTC alone, as on a machine without a toolkit: its headers are bundled, or came with pip beside an older one."""
    made = Compiler(nvcc=NO_NVCC, cache_dir=tmp_path_factory.mktemp("cache"))
    made._toolkit = () if made._bundled is not None else wheel_include_dirs()
    assert made.nvrtc_version is not None, made.nvrtc_missing
    yield made
    made.close()


def build_all(
    compiler: Compiler, text: str, path: Path | str = "kernels.cu", *, templates: Mapping[str, Mapping[str, str]] | None = None,
    **options: object,
) -> dict[str, Build]:  # fmt: skip
    job = CompileJob(text, str(path), parse(text).kernels, templates=templates or {}, **options)  # type: ignore[arg-type]
    return compiler.compile(job)


def build_one(compiler: Compiler, text: str, path: Path | str = "kernels.cu", **options: object) -> Build:
    (build,) = build_all(compiler, text, path, **options).values()  # type: ignore[arg-type]
    return build


def failed(build: Build) -> CompileFailed:
    assert isinstance(build, CompileFailed), build
    assert build.errors and build.messages[0].severity == "error"
    return build


def compiled(build: Build) -> Compiled:
    assert isinstance(build, Compiled), build
    return build


# The two files of the issue, and one with everything


def test_a_file_with_its_host_program_compiles_without_a_toolkit(compiler: Compiler) -> None:
    build = compiled(build_one(compiler, (DATA / "vector_add.cu").read_text(), DATA / "vector_add.cu"))
    assert build.registers > 4 and build.occupancy == 1.0 and build.limiter == "none"
    assert build.compiler == f"nvrtc {compiler.nvrtc_version}" and build.arch == "sm_90"
    assert build.cubin.startswith(b"\x7fELF") and build.symbol.encode() in build.cubin
    assert build.messages == ()


def test_iostream_cooperative_groups_and_cub_compile(compiler: Compiler) -> None:
    text = (DATA / "block_sum.cu").read_text()
    builds = build_all(compiler, text, DATA / "block_sum.cu", templates={"sumWithCub": {"BLOCK": "128"}})
    for build in map(compiled, builds.values()):
        assert build.registers > 8 and build.smem_bytes > 0 and 0 < build.occupancy <= 1
    # Edited, the same headers are not read again.
    started = time.monotonic()
    edited = text.replace("total += partial[w]", "total += 2 * partial[w]")
    compiled(
        build_all(compiler, edited, DATA / "block_sum.cu", templates={"sumWithCub": {"BLOCK": "128"}})["sumWithCub"]
    )
    assert compiler._pch_sets and any(folder.glob("*.pch") for folder in compiler._pch_sets.values())
    assert time.monotonic() - started < 120


def test_everything_a_file_can_hold(compiler: Compiler) -> None:
    text = (DATA / "many.cu").read_text()
    builds = build_all(compiler, text, DATA / "many.cu", templates={"generic": {"T": "float"}})
    assert list(builds) == ["plain", "nested", "generic", "dynamic", "scaled", "clamped"]
    assert compiled(builds["plain"]).symbol == "plain"
    assert "5outer5inner6nested" in compiled(builds["nested"]).symbol
    assert compiled(builds["generic"]).smem_bytes == 64
    assert len({compiled(build).symbol for build in builds.values()}) == 6
    assert len({compiled(build).cubin for build in builds.values()}) == 1, "one compile for all of them"


def test_a_template_without_arguments_concerns_itself_alone(compiler: Compiler) -> None:
    builds = build_all(compiler, (DATA / "many.cu").read_text(), DATA / "many.cu")
    assert builds["generic"] == NotCompiled(
        "template arguments of generic are unknown; add `with T=float` to its //dice: line"
    )
    assert all(isinstance(build, Compiled) for name, build in builds.items() if name != "generic")


def test_only_a_template_without_arguments(compiler: Compiler) -> None:
    text = "template <typename T, int N> __global__ void k(T* x) { x[N] = T(1); }\n"
    build = build_one(compiler, text)
    assert isinstance(build, NotCompiled) and "add `with T=float`" in build.reason
    half = build_one(compiler, text, templates={"k": {"T": "float"}})
    assert isinstance(half, NotCompiled) and "add `with N=1`" in half.reason
    assert "k" in compiled(build_one(compiler, text, templates={"k": {"T": "double", "N": "3"}})).symbol
    # What is outside of it is read all the same.
    failed(build_one(compiler, "__device__ int broken(;\n" + text))


def test_template_arguments_that_do_not_fit(compiler: Compiler) -> None:
    text = "template <int N> __global__ void t(float* x) { x[N] = 1; }\n__global__ void k(float* x) { x[0] = 1; }\n"
    builds = build_all(compiler, text, templates={"t": {"N": "nonsense"}})
    assert "nonsense" in failed(builds["t"]).errors[0].text and failed(builds["t"]).errors[0].line == 0
    compiled(builds["k"])


def test_template_kernels_of_several_forms(compiler: Compiler) -> None:
    text = (
        "template <class A, class B = float, bool C = true> __global__ void k(A* a, B* b) { if (C) a[0] = A(b[0]); }\n"
        "template <typename... T> __global__ void pack(T*... p) {}\n"
        "template <int N>\n__launch_bounds__(N)\n__global__ void bounds(float* x) { x[threadIdx.x] = N; }\n"
        "struct Op { __device__ float operator()(float v) const { return v * 2; } };\n"
        "template <typename F> __global__ void apply(float* x, F f) { x[0] = f(x[0]); }\n"
    )
    builds = build_all(
        compiler, text, templates={"k": {"A": "int"}, "bounds": {"N": "64"}, "apply": {"F": "Op"}}, alone=False
    )
    compiled(builds["k"])
    compiled(builds["bounds"])
    assert "2Op" in compiled(builds["apply"]).symbol
    assert not isinstance(builds["pack"], CompileFailed)


# Names


def test_overloads_and_namespaces_have_keys_of_their_own(compiler: Compiler) -> None:
    text = (
        "__global__ void k(float* x) { x[0] = 1; }\n__global__ void k(int* x) { x[0] = 2; }\n"
        "namespace n { __global__ void k(float* x) { x[0] = 3; } __global__ void only(float* x) { x[0] = 4; } }\n"
        "namespace { __global__ void hidden(float* x) { x[0] = 5; } }\nstatic __global__ void inside(float* x) { x[0] = 6; }\n"
    )
    kernels = parse(text).kernels
    assert build_keys(kernels) == ("k@1", "k@2", "n::k", "only", "hidden", "inside")
    builds = build_all(compiler, text)
    assert [compiled(b).symbol for b in builds.values()][:4] == ["_Z1kPf", "_Z1kPi", "_ZN1n1kEPf", "_ZN1n4onlyEPf"]
    assert all(map(compiled, builds.values()))


def test_a_kernel_under_a_false_condition_concerns_itself_alone(compiler: Compiler) -> None:
    text = "#ifdef NOT_HERE\n__global__ void absent(float* x) { x[0] = 1; }\n#endif\n__global__ void k(float* x) { x[0] = 1; }\n"
    builds = build_all(compiler, text)
    assert builds["absent"] == NotCompiled("absent is not in this build: an #if leaves it out")
    compiled(builds["k"])
    assert all(map(compiled, build_all(compiler, text, flags=("-DNOT_HERE",)).values()))


def test_name_expressions_of_a_log() -> None:
    log = (
        '__nv_name_map(2): error: identifier "k" is undefined\n   k\n   ^\n\n'
        '__nv_name_map(2): error: Error in parsing name expression for lowered name lookup. Input name expression was: " k < 1 >"\n'
    )
    assert bad_name_expressions(log) == {"k<1>": 'identifier "k" is undefined'}
    assert bad_name_expressions(log + "dice_document.cu(4): error: expected a declaration\n") == {}


# Errors and their places


def test_an_error_stands_where_it_is_after_blanked_code(compiler: Compiler) -> None:
    text = (
        '#include <iostream>\r\n// ünï 𝛼\r\nint main() {\r\n    std::cout << "𝛼";\r\n}\r\n'
        "__global__ void k(float* x) { /* é𝛼 */ x[0] = missing; }\r\n"
    )
    (error,) = failed(build_one(compiler, text)).errors
    assert (error.line, error.text) == (5, 'identifier "missing" is undefined')
    line = text.split("\r\n")[5]
    assert line[error.column :].startswith("missing")


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_lines_end_in_all_three_ways(compiler: Compiler, ending: str) -> None:
    text = ending.join(["", "void host() {", "}", "\t__global__ void k(float* x) {", "\t\tx[0] = nothing;", "}", ""])
    (error,) = failed(build_one(compiler, text)).errors
    assert (error.line, error.column) == (4, 9)


def test_broken_syntax(compiler: Compiler) -> None:
    for text in (
        "__global__ void k(float* x) {\n  x[0] = ;\n}\n",
        "__global__ void k(float* x) {\n  x[0] = 1\n}\n",
        "__global__ void k(float* x) {\n  if (x) {\n  x[0] = 1;\n}\n",
        "__global__ void k(float* x) {\n  x[0] = 1; }\n  x[1] = 2;\n}\n",
    ):
        assert failed(build_one(compiler, text)).errors[0].line in (1, 2, 3, 4), text


def test_a_host_function_called_from_a_kernel_is_named_as_such(compiler: Compiler) -> None:
    text = "float helper(float v) { return v; }\n__global__ void k(float* x) { x[0] = helper(x[0]); }\n"
    (error,) = failed(build_one(compiler, text)).errors
    assert error.line == 1 and "it is a host function" in error.text


def test_the_place_that_asked_for_an_instance_is_noted(compiler: Compiler) -> None:
    text = (
        "template <class T> __device__ T twice(T v) {\n  return v.none;\n}\n"
        "__global__ void k(float* x) {\n  x[0] = twice(x[0]);\n}\n"
    )
    build = failed(build_one(compiler, text))
    assert build.errors[0].line == 1
    assert any(m.severity == "note" and m.line == 4 for m in build.messages)


def test_what_the_assembler_refuses_is_at_its_kernel(compiler: Compiler) -> None:
    text = (
        "__global__ void fine(float* x) { x[0] = 1; }\n"
        "__global__ void big(float* x) {\n  __shared__ float s[20000];\n  s[threadIdx.x] = x[0];\n  __syncthreads();\n"
        "  x[0] = s[threadIdx.x ^ 1];\n}\n"
    )
    errors = failed(build_all(compiler, text)["big"]).errors
    assert any(error.line == 1 and "too much shared data" in error.text for error in errors)
    assembly = '__global__ void k(float* x) {\n  x[0] = 1;\n  asm("foo.bar %r1;");\n}\n'
    assert failed(build_one(compiler, assembly)).errors[0].line == 2


def test_the_device_runtime_is_named(compiler: Compiler) -> None:
    text = "__global__ void c(int* x) { *x = 1; }\n__global__ void k(int* x) {\n  c<<<1, 1>>>(x);\n}\n"
    assert "need nvcc" in failed(build_all(compiler, text)["k"]).errors[0].text


def test_one_kernel_alone_does_not_suffer_from_the_others(compiler: Compiler) -> None:
    text = "__global__ void bad(float* x) { x[0] = missing; }\n__global__ void k(float* x) { x[0] = 1; }\n"
    bad, good = parse(text).kernels
    assert all(isinstance(b, CompileFailed) for b in build_all(compiler, text).values())
    compiled(compiler.compile(CompileJob(text, "k.cu", (good,), alone=True))["k"])
    failed(compiler.compile(CompileJob(text, "k.cu", (bad,), alone=True))["bad"])


# Figures


def test_spills_and_stack_are_counted(compiler: Compiler) -> None:
    text = (
        "__global__ void k(const float* x, float* y) {\n  float v[200];\n"
        "#pragma unroll\n  for (int i = 0; i < 200; ++i) v[i] = x[threadIdx.x + i * 256];\n  __syncthreads();\n"
        "#pragma unroll\n  for (int i = 0; i < 200; ++i) y[threadIdx.x + i * 256] = v[199 - i] * v[(i * 7) % 200];\n}\n"
    )
    build = compiled(build_one(compiler, text, flags=("-maxrregcount=32",)))
    assert (
        build.registers <= 32 and build.spill_store_bytes > 0 and build.spill_load_bytes > 0 and build.stack_bytes > 0
    )


def test_occupancy_is_of_the_launch(compiler: Compiler) -> None:
    text = "extern __shared__ float s[];\n__global__ void k(float* x) { s[threadIdx.x] = x[0]; __syncthreads(); x[0] = s[0]; }\n"
    whole = compiled(build_one(compiler, text))
    assert (whole.block_threads, whole.occupancy) == (256, 1.0)
    build = compiled(build_one(compiler, text, block_threads={"k": 128}, smem_bytes={"k": 100 << 10}))
    assert (build.block_threads, build.limiter) == (128, "shared memory") and build.occupancy == 8 / 64
    bounded = compiled(build_one(compiler, text.replace("void k", "void __launch_bounds__(512) k")))
    assert bounded.block_threads == 512


def test_architectures(compiler: Compiler) -> None:
    text = "__global__ void k(float* x) { x[0] = __CUDA_ARCH__; }\n"
    assert compiled(build_one(compiler, text, arch="sm_80")).arch == "sm_80"
    assert compiled(build_one(compiler, text, flags=("-arch=compute_86",))).arch == "sm_86"
    for arch, word in (("sm_35", "is not supported by NVRTC"), ("hopper", "is no architecture")):
        build = build_one(compiler, text, arch=arch)
        assert isinstance(build, NotCompiled) and word in build.reason and "dice.arch" in build.reason


def test_warnings_come_with_a_build(compiler: Compiler) -> None:
    build = compiled(build_one(compiler, "__global__ void k(float* x) {\n  int unused;\n  x[0] = 1;\n}\n"))
    assert [(m.line, m.severity) for m in build.messages] == [(1, "warning")]


# What the compiler is given besides


def test_the_prelude_stands_in_for_the_c_headers(compiler: Compiler) -> None:
    names = "INFINITY NAN FLT_MAX FLT_EPSILON DBL_MAX INT_MAX UINT_MAX M_PI M_SQRT2 SIZE_MAX UINT8_MAX CUDART_VERSION".split()
    body = " ".join(f"x[{i}] = (float)({name});" for i, name in enumerate(names))
    text = (
        "#include <math.h>\n#include <float.h>\n#include <cstdint>\n#include <cassert>\n#include <cstdio>\n"
        "using namespace std;\n"
        f"__global__ void k(float* x) {{ {body} uint8_t a = 1; int64_t b = 2; size_t c = 3; uintptr_t d = (uintptr_t)x; uint e = 4;\n"
        '  assert(a < b); printf("%d", (int)(a + b + c + d + e)); x[0] += std::sqrt(x[1]) + std::max(1.0f, x[2]) + std::size_t(3); }\n'
    )
    compiled(build_one(compiler, text))


def test_the_standard_librarys_types_come_from_libcudacxx(compiler: Compiler) -> None:
    text = (
        "#include <type_traits>\n#include <limits>\nusing namespace std;\n"
        'template <class T> struct Zero { static_assert(std::is_floating_point<T>::value, ""); };\n'
        "__global__ void k(float* x) { Zero<float> z; (void)z; x[0] = numeric_limits<float>::lowest(); }\n"
    )
    compiled(build_one(compiler, text))


def test_half_precision_and_a_librarys_types(compiler: Compiler) -> None:
    compiled(
        build_one(compiler, "#include <cuda_fp16.h>\n__global__ void k(__half* x) { x[0] = __hadd(x[0], x[1]); }\n")
    )
    text = "#include <cublas_v2.h>\n__global__ void k(__nv_bfloat16* x) { x[0] = __float2bfloat16(1.0f); }\n"
    compiled(build_one(compiler, text))
    assert failed(build_one(compiler, text.replace("#include <cublas_v2.h>", "")))


def test_flags(compiler: Compiler) -> None:
    text = "__global__ void k(float* x) { x[0] = VALUE; }\n"
    compiled(
        build_one(compiler, text, flags=("-DVALUE=3", "--use_fast_math", "-std=gnu++20", "-lineinfo", "-I/nowhere"))
    )
    for flag in (
        "-o/tmp/x",
        "--pre-include=/etc/passwd",
        "-Xcompiler=-fplugin=x",
        "-run",
        "@file",
        "--options-file=x",
        "-ccbin=x",
    ):
        build = build_one(compiler, text, flags=("-DVALUE=3", flag))
        assert build == NotCompiled(f"the flag {flag} is not allowed: see dice.compile_flags for those that are")
    assert nvrtc_flags(("--expt-relaxed-constexpr",)) == ([], None)


# Headers


def test_headers_are_found_sliced_and_named(compiler: Compiler, tmp_path: Path) -> None:
    (tmp_path / "include" / "sub").mkdir(parents=True)
    (tmp_path / "include" / "a.cuh").write_text(
        '#pragma once\n#include "sub/b.cuh"\n#include <vector>\nstd::vector<int> host();\n'
    )
    (tmp_path / "include" / "sub" / "b.cuh").write_text(
        '#pragma once\n#include "../a.cuh"\nvoid print() { puts("x"); }\n__device__ inline float b(float v) { return v * 2; }\n'
    )
    text = '#include "a.cuh"\nint main() {}\n__global__ void k(float* x) { x[0] = b(x[0]); }\n'
    path = tmp_path / "k.cu"
    compiled(build_one(compiler, text, path, include_dirs=("include",)))
    (tmp_path / "include" / "sub" / "b.cuh").write_text(
        "#pragma once\n\n__device__ inline float b(float v) { return missing; }\n"
    )
    (error,) = failed(build_one(compiler, text, path, include_dirs=("include",))).errors
    assert (error.line, error.text) == (0, 'b.cuh(3): identifier "missing" is undefined')
    # The usual folders are looked into without being named.
    (tmp_path / ".git").mkdir()
    failed(build_one(compiler, text, path))


def test_a_missing_header_is_a_warning_until_it_matters(compiler: Compiler) -> None:
    text = '#include "absent.h"\n__global__ void k(float* x) { x[0] = 1; }\n'
    build = compiled(build_one(compiler, text))
    del build
    missing = failed(build_one(compiler, text.replace("= 1", "= fromThere()")))
    assert missing.errors[0].line == 1
    warning = next(m for m in missing.messages if m.severity == "warning")
    assert warning.line == 0 and "the header absent.h was not found" in warning.text and "-I" in warning.text


def test_an_include_loop_ends(compiler: Compiler, tmp_path: Path) -> None:
    (tmp_path / "a.h").write_text('#include "b.h"\n')
    (tmp_path / "b.h").write_text('#include "a.h"\n')
    text = '#include "a.h"\n__global__ void k(float* x) { x[0] = 1; }\n'
    error = failed(build_one(compiler, text, tmp_path / "k.cu")).errors[0]
    assert error.line == 0


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("#include </etc/passwd>", "not found"),
        ('#include "/etc/passwd"', "leaves the workspace"),
        ('#include "../../../../../../../../etc/passwd"', "leaves the workspace"),
        ("#include </dev/zero>", "it is no header"),
        ('#include "//dev///stdin"', "it is no header"),
        ('#include "/proc/self/environ"', "it is no header"),
        ('#embed "/etc/passwd"', "#embed is not allowed"),
        ('%:include "/dev/zero"', "it is no header"),
        ("#include_next <stdio.h>", "#include_next is not allowed"),
        ("#define H </etc/passwd>\n#include H", "does not name a file plainly"),
        ('#inc\\\nlude "/dev/zero"', "it is no header"),
        ('#/* */include "/dev/zero"', "it is no header"),
        ('??=include "/dev/zero"', "it is no header"),
    ],
)
@pytest.mark.parametrize("inside", [False, True])
def test_hostile_includes_are_refused(compiler: Compiler, line: str, word: str, inside: bool) -> None:
    kernel = "__global__ void k(float* x) {\nBODY\nx[0] = 1; }\n"
    text = kernel.replace("BODY", line) if inside else f"{line}\n{kernel.replace('BODY', '')}"
    build = build_one(compiler, text)
    said = " ".join(m.text for m in build.messages) if isinstance(build, (CompileFailed, Compiled)) else ""
    assert "root:" not in said
    if word == "not found":
        assert "/etc/passwd" not in " ".join(compiler.program(CompileJob(text, "k.cu", ())).nvrtc_text.split()[:1])
        return
    assert word in failed(build).errors[0].text
    assert failed(build).errors[0].line == (1 if inside else 0) + line.startswith("#define")


def test_a_header_that_is_no_file_or_too_large(compiler: Compiler, tmp_path: Path) -> None:
    (tmp_path / "folder.h").mkdir()
    with (tmp_path / "huge.h").open("wb") as file:
        file.truncate(5 << 20)
    kernel = "__global__ void k(float* x) { x[0] = 1; }\n"
    compiled(build_one(compiler, f'#include "folder.h"\n{kernel}', tmp_path / "k.cu"))
    assert (
        "too many to compile"
        in failed(build_one(compiler, f'#include "huge.h"\n{kernel}', tmp_path / "k.cu")).errors[0].text
    )


def test_the_workspace_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "project" / ".git").mkdir(parents=True)
    (tmp_path / "project" / "src" / "deep").mkdir(parents=True)
    assert workspace_root(tmp_path / "project" / "src" / "deep") == tmp_path / "project"
    assert workspace_root(Path("/tmp")) == Path("/tmp")


# Size, time, memory


def test_a_huge_file(compiler: Compiler) -> None:
    host = "".join(f"void host{i}() {{ std::cout << {i}; }}\n" for i in range(20000))
    build = compiled(build_one(compiler, host + "__global__ void k(float* x) { x[0] = 1; }\n"))
    assert build.registers > 0
    huge = "// " + "x" * (17 << 20)
    (nothing,) = build_all(compiler, "__global__ void k(float* x) {}\n" + huge).values()
    assert isinstance(nothing, NotCompiled) and "characters" in nothing.reason


def test_the_same_text_is_compiled_once(compiler: Compiler) -> None:
    text = "__global__ void once(float* x) { x[0] = 12345; }\n"
    first = compiled(build_one(compiler, text))
    assert compiled(build_one(compiler, text + "\n", block_threads={"once": 64})).block_threads == 64
    again = compiled(build_one(compiler, text))
    assert again == first, "even to the milliseconds that the compile took"


def test_a_compile_is_cancelled(compiler: Compiler) -> None:
    text = "#include <cub/block/block_radix_sort.cuh>\n#include <cooperative_groups.h>\n__global__ void k(float* x) { x[0] = 1; }\n"
    event = threading.Event()
    threading.Timer(0.3, event.set).start()
    with pytest.raises(Cancelled):
        compiler.compile(CompileJob(text, "k.cu", parse(text).kernels), event)
    compiled(build_one(compiler, "__global__ void after(float* x) { x[0] = 1; }\n"))


def test_nothing_is_left_on_the_disk(tmp_path: Path) -> None:
    made = Compiler(nvcc=NO_NVCC, cache_dir=tmp_path)
    text = "#include <cuComplex.h>\n__global__ void k(cuComplex* x) { x[0] = cuCaddf(x[0], x[1]); }\n"
    compiled(build_one(made, text))
    assert list(tmp_path.rglob("*.pch"))
    stale = tmp_path / "compile" / "pch" / "dice-pch-killed"
    stale.mkdir()
    (stale / HELD).touch()
    os.utime(stale / HELD, (0, 0))
    other = Compiler(nvcc=NO_NVCC, cache_dir=tmp_path)
    assert not stale.exists(), "what a killed process left is removed by the next one"
    assert list(tmp_path.rglob("*.pch")), "another process's folder is held"
    other.close()
    made.close()
    assert not list(tmp_path.rglob("*.pch"))


def test_without_any_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Compiler(nvcc=NO_NVCC, cache_dir=tmp_path)
    monkeypatch.setattr(made, "_nvrtc", None)
    monkeypatch.setattr(made, "_nvrtc_missing", "NVRTC could not be loaded: no such library")
    build = build_one(made, "__global__ void k(float* x) { x[0] = 1; }\n")
    assert isinstance(build, NotCompiled) and "pip install nvidia-cuda-nvrtc" in build.reason and made.toolkit == "none"


def test_arguments_of_a_template() -> None:
    (kernel,) = parse("template <typename T, int A, int B = 2, bool C = false> __global__ void k(T* x) {}").kernels
    assert template_arguments(kernel, {"T": "float", "A": "1"}) == (["float", "1"], "")
    assert template_arguments(kernel, {"A": "1"}) == ([], "T")
    assert template_arguments(kernel, {"T": "int", "A": "1", "C": "true"}) == (["int", "1"], "B")
    assert template_arguments(kernel, {"T": "int", "A": "1", "B": "3", "C": "true"}) == (["int", "1", "3", "true"], "")


# nvcc


@pytest.fixture(scope="module")
def with_nvcc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compiler]:
    if find_nvcc() is None:
        pytest.skip("there is no nvcc on this machine, so the fallback is not tried")
    made = Compiler(cache_dir=tmp_path_factory.mktemp("cache"))
    yield made
    made.close()


NEEDS_NVCC = """#include <tuple>
struct Thing { std::tuple<int, float> both; };
template <typename T> __global__ void t(T* x) { x[0] = T(1); }
__global__ void k(float* x, Thing thing) {
  x[0] = 1.0f;
}
namespace n { template <int N> __global__ void m(float* x) { x[0] = N; } }
int main() { t<double><<<1, 1>>>(nullptr); n::m<3><<<1, 1>>>(nullptr); }
"""


def test_nvcc_takes_what_nvrtc_cannot(with_nvcc: Compiler) -> None:
    text = NEEDS_NVCC.replace("#include <tuple>", "#include <map>").replace(
        "std::tuple<int, float>", "std::map<int, float>"
    )
    builds = build_all(with_nvcc, text, templates={"t": {"T": "float"}, "m": {"N": "3"}})
    for build in map(compiled, builds.values()):
        assert build.compiler == f"nvcc {with_nvcc.nvcc_version}" and build.registers > 4
    assert compiled(builds["t"]).symbol == "_Z1tIfEvPT_" and "1n1mILi3E" in compiled(builds["m"]).symbol


def test_nvcc_is_not_asked_about_plain_errors(with_nvcc: Compiler) -> None:
    build = failed(build_one(with_nvcc, "__global__ void k(float* x) { x[0] = missing; }\n"))
    assert build.compiler.startswith("nvrtc")


def test_nvcc_alone(with_nvcc: Compiler, tmp_path: Path) -> None:
    made = Compiler(cache_dir=tmp_path)
    made._nvrtc = None
    text = "// é\r\nint main() { }\r\n__global__ void k(float* x) {\r\n  x[0] = 1;\r\n}\r\n"
    assert compiled(build_one(made, text)).compiler.startswith("nvcc")
    (error,) = failed(build_one(made, text.replace("= 1", "= missing"))).errors
    assert (error.line, error.text) == (3, 'identifier "missing" is undefined')
    fatal = failed(build_one(made, '#include "absent.h"\n' + text)).errors[0]
    assert fatal.line == 0 and "absent.h" in fatal.text


@pytest.mark.parametrize(
    "name", ['"/etc/passwd"', '"../../../../../../etc/passwd"', "</etc/passwd>", "</dev/zero>", "H"]
)
def test_nvcc_reads_no_file_outside_the_workspace(with_nvcc: Compiler, tmp_path: Path, name: str) -> None:
    made = Compiler(cache_dir=tmp_path)
    made._nvrtc = None
    text = f"int main() {{\n#include {name}\n}}\n__global__ void k(float* x) {{ x[0] = 1; }}\n"
    build = failed(build_one(made, text, tmp_path / "k.cu"))
    assert build.errors[0].line == 1 and "root:" not in " ".join(m.text for m in build.messages)
    assert any(word in build.errors[0].text for word in ("leaves the workspace", "it is no header", "file plainly"))


def test_nvcc_has_a_deadline(with_nvcc: Compiler, tmp_path: Path) -> None:
    made = Compiler(cache_dir=tmp_path)
    made._nvrtc = None
    build = build_one(made, "__global__ void k(float* x) { x[0] = 1; }\n", deadline_s=0.05)
    assert build == NotCompiled("the compiler did not end within 0.05 s")
