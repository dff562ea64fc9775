"""Files as projects have them: overlays of shared memory, bounds from template arguments, macros, headers with includers.

Everything goes through the real NVRTC, and through the real nvcc where the fallback is what is tried.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dice_lsp.records import Build, Compiled, CompileFailed, NotCompiled
from dice_lsp.source.kernels import parse
from dice_lsp.worker import libraries
from dice_lsp.worker.compile import Compiler, demangled, find_nvcc
from dice_lsp.worker.program import CompileJob, nearest_with

NO_NVCC = "/nonexistent/nvcc"


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compiler]:
    made = Compiler(nvcc=NO_NVCC, cache_dir=tmp_path_factory.mktemp("cache"))
    assert made.nvrtc_version is not None, made.nvrtc_missing
    yield made
    made.close()


@pytest.fixture(scope="module")
def with_nvcc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compiler]:
    if find_nvcc() is None:
        pytest.skip("there is no nvcc on this machine, so the fallback is not tried")
    made = Compiler(cache_dir=tmp_path_factory.mktemp("cache"))
    yield made
    made.close()


def build(compiler: Compiler, text: str, path: Path | str = "k.cu", name: str = "", **options: object) -> Build:
    kernels = [kernel for kernel in parse(text).kernels if name in ("", kernel.name)]
    job = CompileJob(text, str(path), tuple(kernels[:1]), alone=True, **options)  # type: ignore[arg-type]
    (made,) = compiler.compile(job).values()
    return made


def compiled(made: Build) -> Compiled:
    assert isinstance(made, Compiled), made
    return made


def project(root: Path, **files: str) -> Path:
    """A project under version control; `__` in a name is a folder."""
    (root / ".git").mkdir()
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_cuh", ".cuh").replace("_cu", ".cu").replace("_h", ".h")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


# Public reports


def test_a_struct_may_lie_over_the_dynamic_shared_memory(compiler: Compiler) -> None:
    """A report to another compiler: `extern __shared__` of a struct, which nvcc takes."""
    text = """
    struct Scratch { float sums[32]; int count; };
    extern __shared__ Scratch scratch;
    __device__ void add(float x) { scratch.sums[threadIdx.x % 32] += x; }
    __global__ void overlay(float* x) {
      extern __shared__ Scratch inner;
      add(x[0]); __syncthreads(); x[threadIdx.x] = scratch.sums[0] + inner.count;
    }
    int main() { overlay<<<1, 32, sizeof(Scratch)>>>(nullptr); }
    """
    made = compiled(build(compiler, text))
    assert made.compiler.startswith("nvrtc") and made.smem_bytes == 132, "one struct of 33 words, as nvcc has it"


@pytest.mark.parametrize("bounds", ["Config::kThreads", "Config::kThreads, Config::kBlocks", "(Config::kThreads * 2)"])
def test_launch_bounds_may_come_from_a_template_argument(compiler: Compiler, bounds: str) -> None:
    text = f"""
    template <int W> struct Warps {{ static constexpr int kThreads = W * 32, kBlocks = 2; }};
    template <typename Config>
    __global__ void __launch_bounds__({bounds}) bounded(float* x) {{ x[threadIdx.x] = Config::kThreads; }}
    int main() {{ bounded<Warps<4>><<<1, 128>>>(nullptr); }}
    """
    (kernel,) = parse(text).kernels
    assert kernel.name == "bounded" and kernel.launch_bounds is not None
    made = compiled(build(compiler, text, templates={"bounded": {"Config": "Warps<4>"}}))
    assert "bounded" in made.symbol and made.occupancy > 0


def test_malloc_in_a_main_is_no_error(compiler: Compiler) -> None:
    text = "__global__ void k(float* x) { x[0] = 1; }\nint main() { void* p = malloc(1); free(p); return p == NULL; }\n"
    made = compiled(build(compiler, text, "main.cu"))
    assert not made.messages and not made.notes


# Macros


def test_what_a_macro_writes_for_the_host_does_not_stop_the_device(compiler: Compiler) -> None:
    text = """#include <torch/extension.h>
#define LAUNCH(name, T) \\
  void name##_forward(torch::Tensor x) { name##_kernel<T><<<x.numel() / 256, 256>>>(x.data_ptr<T>()); }
#define BOTH(name, T, value) \\
  __device__ T name##_value() { return value; } \\
  __global__ void name(T* x) { x[threadIdx.x] = name##_value(); } \\
  void name##_run(torch::Tensor x) { name<<<1, 32>>>(x.data_ptr<T>()); }
template <typename T> __global__ void scale_kernel(T* x) { x[threadIdx.x] *= T(2); }
LAUNCH(scale, float)
LAUNCH(scale, double)
BOTH(ones, float, 1.0f) BOTH(twos, double, 2.0)
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("scale", &scale_forward); }
__global__ void last(float* x) { x[0] = wrong; }
"""
    assert compiled(build(compiler, text, name="ones")).symbol == "_Z4onesPf"
    assert compiled(build(compiler, text, name="twos")).compiler.startswith("nvrtc")
    compiled(build(compiler, text, name="scale_kernel", templates={"scale_kernel": {"T": "float"}}))
    failed = build(compiler, text, name="last")
    assert isinstance(failed, CompileFailed)
    assert [(error.line, error.column, error.text) for error in failed.errors] == [
        (12, 40, 'identifier "wrong" is undefined')
    ]


def test_a_macro_of_a_header_is_known(compiler: Compiler, tmp_path: Path) -> None:
    root = project(
        tmp_path,
        bind_h="#define BIND(f) void f##_bound(Tensor& x) { f<<<1, 1>>>(x.data()); }\n#define HALF(x) ((x) / 2)\n",
        k_cu='#include "bind.h"\n__global__ void k(int* x) { x[0] = HALF(4); }\nBIND(k)\nBIND(k)\n'
        "__global__ void after(int* x) { x[0] = 1; }\n",
    )
    for name in ("k", "after"):
        compiled(build(compiler, (root / "k.cu").read_text(), root / "k.cu", name=name))


def test_a_mark_of_the_encoding_is_no_code(compiler: Compiler) -> None:
    made = build(compiler, "\ufeff#include <cuda_fp16.h>\n__global__ void k(__half* x) { x[0] = missing; }\n")
    assert isinstance(made, CompileFailed)
    assert [(e.line, e.column, e.text) for e in made.errors] == [(1, 38, 'identifier "missing" is undefined')]
    compiled(build(compiler, "\ufeff__global__ void k(float* x) { x[0] = 1; }\n"))


# Headers


HEADER = """#pragma once
template <int N> struct Tile { float values[N]; };
__global__ void tiled(REAL* x) {
  x[threadIdx.x] = SCALE * weights[threadIdx.x % TILE];
}
"""
INCLUDER = """#include <cstdio>
#define REAL float
constexpr int TILE = 8;
static const float SCALE = 3.0f;
__constant__ REAL weights[TILE];
#include "parts/tiled.cuh"
__global__ void other(float* x) { x[0] = 1; }
int main() { tiled<<<1, 8>>>(nullptr); printf("done\\n"); }
"""


def test_a_header_is_compiled_within_its_includer(compiler: Compiler, tmp_path: Path) -> None:
    root = project(tmp_path, parts__tiled_cuh=HEADER, main_cu=INCLUDER)
    path, includer = root / "parts/tiled.cuh", str(root / "main.cu")
    alone = build(compiler, HEADER, path)
    assert isinstance(alone, CompileFailed) and 'identifier "REAL" is undefined' in alone.errors[0].text
    made = compiled(build(compiler, HEADER, path, includer=includer))
    assert made.symbol == "_Z5tiledPf" and made.notes == ("compiled within main.cu, which includes this file",)
    # The text is the editor's, not the file's, and what compiles alone is compiled alone.
    changed = HEADER.replace("threadIdx.x % TILE", "threadIdx.x % TILE + 0 * missing")
    assert isinstance(build(compiler, changed, path, includer=includer), CompileFailed)
    plain = HEADER.replace("REAL", "float").replace("SCALE * weights[threadIdx.x % TILE]", "2")
    assert compiled(build(compiler, plain, path, includer=includer)).notes == ()


@pytest.mark.parametrize("includer", ["main.cu", "absent.cu", "/etc/hostname"])
def test_an_includer_that_is_none_changes_nothing(compiler: Compiler, tmp_path: Path, includer: str) -> None:
    root = project(tmp_path, parts__tiled_cuh=HEADER, main_cu="int main() { }\n")
    made = build(compiler, HEADER, root / "parts/tiled.cuh", includer=str(root / includer))
    assert isinstance(made, CompileFailed) and 'identifier "REAL" is undefined' in made.errors[0].text


def test_a_header_of_the_project_is_found_where_no_flag_says(compiler: Compiler, tmp_path: Path) -> None:
    root = project(
        tmp_path,
        near__utils__shared_h="#define WIDTH 4\n",
        far__utils__shared_h="#error the wrong one\n",
        near__deep__down__k_cu='#include "shared.h"\n__global__ void k(int* x) { x[0] = WIDTH; }\n',
        twice_cu='#include "shared.h"\n__global__ void k(int* x) { x[0] = WIDTH; }\n',
    )
    path = root / "near/deep/down/k.cu"
    made = compiled(build(compiler, path.read_text(), path))
    assert made.notes == ("shared.h was taken from near/utils, as no flag says where it lies; add -I for another",)
    assert nearest_with(root, root / "near/deep", "utils/shared.h") == root / "near"
    assert nearest_with(root, root, "shared.h") is None, "two are equally near"
    assert nearest_with(root, root, "../shared.h") is None and nearest_with(root, root, "none.h") is None
    both = build(compiler, (root / "twice.cu").read_text(), root / "twice.cu")
    assert isinstance(both, CompileFailed)
    assert "the header shared.h was not found and was left out; add its folder to the compile flags with -I" in [
        message.text for message in both.messages
    ]


def test_the_next_step_for_a_missing_header_is_its_own(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "_folders", lambda name: ())
    assert libraries.next_step("curand_kernel.h").startswith("`pip install nvidia-curand` brings it")
    assert libraries.next_step("cutlass/gemm/gemm.h").startswith("`pip install nvidia-cutlass` brings it")
    assert libraries.next_step("torch/extension.h").startswith("install torch beside this tool")
    assert libraries.next_step("mine.h") == "add its folder to the compile flags with -I"
    assert libraries.library_include_dirs(["torch/extension.h", "mine.h"]) == ()


def test_folders_of_an_installed_package_are_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "torch/include/torch/csrc/api/include").mkdir(parents=True)
    (tmp_path / "torch/__init__.py").write_text("raise ImportError('it is not imported')")
    monkeypatch.syspath_prepend(tmp_path)
    # Where it has been imported by another test, its place is not looked for again.
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    libraries._folders.cache_clear()
    found = libraries.library_include_dirs(["ATen/ATen.h", "ATen/ATen.h"])
    libraries._folders.cache_clear()
    assert found[:2] == (tmp_path / "torch/include", tmp_path / "torch/include/torch/csrc/api/include")


# nvcc


def test_an_instance_of_the_program_is_shown(with_nvcc: Compiler) -> None:
    text = """
    template <typename T, int N> __global__ void rows(T* x) { x[threadIdx.x] = T(N); }
    template <typename Real> void run(Real* x) { rows<Real, 4><<<1, 4>>>(x); rows<Real, 8><<<1, 8>>>(x); }
    int main() { run<double>(nullptr); }
    """
    made = compiled(build(with_nvcc, text))
    assert made.compiler.startswith("nvcc") and made.registers > 0
    shown = demangled(made.symbol)
    assert shown in ("rows<double, 4>", "rows<double, 8>")
    assert made.notes == (
        f"template arguments of rows are unknown; shown is {shown}, one of 2 that this file makes; "
        "add `with T=..., N=...` to its //dice: line",
    )
    # Arguments that mean nothing outside of the function that launches it.
    wrong = compiled(build(with_nvcc, text, templates={"rows": {"T": "Real", "N": "4"}}))
    assert 'rows<Real, 4>: identifier "Real" is undefined; shown is rows<double' in wrong.notes[0]
    unused = text.replace("int main() { run<double>(nullptr); }", "")
    assert isinstance(build(with_nvcc, unused), NotCompiled)


def test_kernels_that_launch_kernels_are_linked(with_nvcc: Compiler) -> None:
    text = """
    __global__ void child(int* x) { x[threadIdx.x]++; }
    __global__ void parent(int* x) { if (threadIdx.x == 0) child<<<1, 32>>>(x); }
    """
    made = compiled(build(with_nvcc, text, name="parent"))
    assert made.compiler.startswith("nvcc") and made.symbol == "_Z6parentPi" and made.cubin[:4] == b"\x7fELF"


def test_nvcc_compiles_a_header_within_its_includer(with_nvcc: Compiler, tmp_path: Path) -> None:
    root = project(tmp_path, parts__tiled_cuh=HEADER, main_cu=INCLUDER)
    text = HEADER.replace("__global__", "template <int N> __global__").replace("SCALE", "N * SCALE")
    (root / "main.cu").write_text(INCLUDER.replace("tiled<<<", "tiled<5><<<"))
    made = compiled(build(with_nvcc, text, root / "parts/tiled.cuh", includer=str(root / "main.cu")))
    assert demangled(made.symbol) == "tiled<5>" and made.notes[-1].startswith("compiled within main.cu")


def test_nvcc_names_the_next_step_for_a_header(with_nvcc: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(with_nvcc, "_nvrtc", None)
    made = build(with_nvcc, '#include "absent.h"\n__global__ void k(float* x) { x[0] = 1; }\n')
    assert isinstance(made, CompileFailed)
    assert [(error.line, error.text) for error in made.errors] == [
        (0, "the header absent.h was not found; add its folder to the compile flags with -I")
    ]


def test_names_are_demangled_without_their_parameters() -> None:
    assert demangled("_Z1tIfEvPT_") == "t<float>"
    assert demangled("_ZN1n1mILi3EEEvPf") == "n::m<3>"
    assert demangled("_ZN12_GLOBAL__N_11kEPf") == "(anonymous namespace)::k"
    assert demangled("plain") == "plain"


@pytest.mark.parametrize(
    "parameter", ["Unknown<T> x", "Unknown *x, T* y", "unknown::Info<T> x", "T* x, const Unknown<T>& y"]
)
def test_a_template_with_a_parameter_of_an_unknown_type_is_an_error(compiler: Compiler, parameter: str) -> None:
    """NVRTC 13.5 ends the process when it is asked for an instance of such a kernel."""
    text = f"template <typename T> __global__ void k({parameter}) {{ }}\n"
    made = build(compiler, text, templates={"k": {"T": "float"}})
    assert isinstance(made, CompileFailed) and made.errors[0].line == 0
    assert made.errors[0].text in (
        'identifier "Unknown" is undefined',
        "Unknown is not a template",
        'name followed by "::" must be a class or namespace name',
    )
    good = "template <typename T> struct Unknown { T x; }; namespace unknown { template <typename T> struct Info { T x; }; }\n"
    fine = text.replace("Unknown *x", "Unknown<T> *x")
    compiled(build(compiler, good + fine, templates={"k": {"T": "float"}}))


def test_a_library_made_for_device_code_is_read_by_the_compiler_itself(compiler: Compiler, tmp_path: Path) -> None:
    root = project(
        tmp_path, third__party__include__cutlass__twice_h="#pragma once\ninline int twice(int x) { return 2 * x; }\n"
    )
    text = "#include <cutlass/twice.h>\n__global__ void k(int* x) { x[0] = twice(x[1]); }\n"
    named = compiled(build(compiler, text, root / "k.cu", include_dirs=(str(root / "third/party/include"),)))
    assert compiled(build(compiler, text, root / "k.cu")).registers == named.registers, "found in the project too"
    absent = build(compiler, text.replace("twice.h", "none.h"), root / "k.cu")
    assert isinstance(absent, CompileFailed)
    assert any("none.h was not found" in m.text and "nvidia-cutlass" in m.text for m in absent.messages)


def test_members_that_only_their_type_is_asked_of_go_to_nvcc(with_nvcc: Compiler) -> None:
    text = """
    template <typename T> class HasScale {
      template <typename C> static char test(decltype(&C::scale));
      template <typename C> static long test(...);
     public:
      enum { value = sizeof(test<T>(0)) == sizeof(char) };
    };
    struct Plain { };
    __global__ void k(int* x) { x[0] = HasScale<Plain>::value; }
    """
    assert compiled(build(with_nvcc, text)).compiler.startswith("nvcc")
