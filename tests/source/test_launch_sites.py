"""Launch specs from whole programs: wrappers with free sizes, several launches, the files around a text, how sure each field is."""

# ruff: noqa: E501 -- programs stand as they would be written
import pytest

from dice_lsp.project_files import ProjectFiles
from dice_lsp.records import Confidence, Origin
from dice_lsp.source.kernels import parse
from dice_lsp.source.launches import launch_spec

SCALE = "__global__ void scale(float* x, float a, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] *= a; }\n"
WIDE = "__global__ void wide(float4* x) { int i = blockIdx.x * blockDim.x + threadIdx.x; float4 v = x[i]; v.x += 1; x[i] = v; }\n"


def spec_of(text, name=None, **around):
    model = parse(text)
    kernel = next(kernel for kernel in model.kernels if name in (None, kernel.name))
    return launch_spec(text, kernel, model, **around)


def dims(spec):
    return {dim.name: dim.values for dim in spec.dims}


def test_what_main_does_is_certain_and_what_is_read_from_bodies_is_likely():
    program = "int main() { int n = 1000; float* x; cudaMalloc(&x, n * sizeof(float)); scale<<<(n + 127) / 128, 128>>>(x, 2.0f, n); }"
    spec = spec_of(SCALE + program)
    assert spec.label == "launch at line 2" and spec.scalars == {"a": "2.0"}
    assert set(spec.confidence.values()) == {Confidence.CERTAIN}
    alone = spec_of(SCALE)
    assert alone.launchable and set(alone.confidence.values()) == {Confidence.LIKELY} and alone.label == ""


def test_a_function_that_nobody_calls_has_free_sizes():
    wrapper = "void run(float* x, int rows, int cols, float a) { int block = 64; scale<<<(rows * cols + block - 1) / block, block>>>(x, a, rows * cols); }"
    spec = spec_of(SCALE + wrapper)
    assert spec.grid == ("cdiv(n, 64)", "1", "1") and spec.block == ("64", "1", "1")
    assert spec.confidence["grid"] is Confidence.LIKELY and spec.dims[0].origin is Origin.DEFAULT
    assert dims(spec)["n"][0] == 1 << 20


def test_a_size_that_the_kernel_is_not_given_is_a_dim_of_its_own():
    rows = "__global__ void rows(float* x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] += 1; }\n"
    spec = spec_of(rows + "void run(float* x, int S, int K) { rows<<<S, K>>>(x, S * K); }")
    assert spec.launchable and spec.grid == ("S", "1", "1") and spec.block == ("K", "1", "1")
    assert spec.scalars["n"] in ("S * K", "K * S")
    first = {name: values[0] for name, values in dims(spec).items()}
    assert first.keys() == {"S", "K"} and first["K"] <= 1024


@pytest.mark.parametrize(
    ("check", "holds"),
    [
        ("assert(n % 96 == 0);", lambda n: n % 96 == 0),
        ('if (n % 32 != 0) { fprintf(stderr, "no"); exit(1); }', lambda n: n % 32 == 0),
        ("if (n > 5000) return;", lambda n: n <= 5000),
        ("if (n < 64 || n & 1) throw 1;", lambda n: n >= 64 and n % 2 == 0),
    ],
)
def test_sizes_are_those_that_the_wrapper_lets_pass(check, holds):
    spec = spec_of(SCALE + f"void run(float* x, int n) {{ {check} scale<<<(n + 255) / 256, 256>>>(x, 1.0f, n); }}")
    if spec.launchable:
        assert all(holds(n) for n in dims(spec)["n"])
    else:
        assert "no size was found that the program would launch" in spec.unknown[0]


def test_within_a_case_the_size_is_the_one_of_the_case():
    text = "template <int T> __global__ void k(float* x, int n) { int i = blockIdx.x * T + threadIdx.x; if (i < n) x[i] = 1; }\n"
    text += "void run(float* x, int rows, int width) { switch (width) { case 64: k<64><<<rows, width>>>(x, rows * width); break; case 128: k<128><<<rows, width>>>(x, rows * width); break; default: throw 1; } }"
    spec = spec_of(text)
    width = int(spec.template["T"])
    assert spec.launchable and spec.block == (str(width), "1", "1") and width in (64, 128)
    assert [case.template["T"] for case in spec.cases] == [str(192 - width)]


def test_several_launches_are_cases():
    program = """int main() {
    float *x, *y;
    cudaMalloc(&x, 4096 * sizeof(float));
    cudaMalloc(&y, 100 * sizeof(float));
    scale<<<1, 128>>>(y, 3.0f, 100);
    int n = 4096;
    scale<<<n / 64, 64>>>(x, 2.0f, n);
}"""
    spec = spec_of(SCALE + program)
    assert (spec.label, spec.block, spec.scalars["a"]) == ("launch at line 8", ("64", "1", "1"), "2.0")
    (case,) = spec.cases
    assert (case.label, case.grid, case.block) == ("launch at line 6", ("1", "1", "1"), ("128", "1", "1"))
    assert case.scalars["a"] == "3.0" and case.scalars["n"] == "100" and case.extents["x"] == ("100",)


def test_a_size_that_the_gpu_decides_is_not_certain():
    program = """int main() {
    cudaDeviceProp prop; cudaGetDeviceProperties(&prop, 0);
    float* x; cudaMalloc(&x, 4000);
    scale<<<prop.multiProcessorCount * 2, 256>>>(x, 1.0f, 1000);
}"""
    spec = spec_of(SCALE + program)
    assert spec.grid is not None and int(spec.grid[0]) % 2 == 0 and spec.confidence["grid"] is Confidence.LIKELY


def test_what_the_occupancy_calculator_says_is_not_made_up():
    program = """int main() {
    int blocks, threads; float* x; cudaMalloc(&x, 64);
    cudaOccupancyMaxPotentialBlockSize(&blocks, &threads, wide);
    wide<<<blocks, threads>>>(x);
}"""
    spec = spec_of(WIDE + program)
    assert spec.label == "" and spec.origins.get("grid") is not Origin.LAUNCH_SITE


@pytest.mark.parametrize(
    "launch",
    [
        "void* args[] = {&x, &a, (void*)&n}; cudaLaunchKernel((const void*)scale, dim3(4), dim3(250), args, 16, 0);",
        "void* args[] = {&x, &a, &n}; cudaLaunchCooperativeKernel((void*)&scale, 4, 250, args, 16);",
        "cudaLaunchConfig_t config = {}; config.gridDim = dim3(4); config.blockDim = 250; config.dynamicSmemBytes = 16; cudaLaunchKernelEx(&config, scale, x, a, n);",
        "auto f = &scale; f<<<4, 250, 16>>>(x, a, n);",
    ],
)
def test_ways_to_start_a_kernel(launch):
    spec = spec_of(SCALE + f"int main() {{ float* x; int n = 1000; float a = 1.5f; cudaMalloc(&x, n * 4); {launch} }}")
    assert (spec.grid, spec.block, spec.smem_bytes) == (("4", "1", "1"), ("250", "1", "1"), "16")
    assert spec.scalars["a"] == "1.5" and dims(spec)["n"][0] == 1000 and spec.buffers[0].extents == ("n",)


def project(folder, files):
    (folder / ".git").mkdir()
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return ProjectFiles(str(folder), (str(folder / "common"),))


MAIN = """#include "sizes.h"
#include <check.h>
void launch_scale(float* x, int n);
int main() { float* x; CHECK(cudaMalloc(&x, SIZE * sizeof(float))); launch_scale(x, SIZE); }
"""
FILES = {
    "src/main.cpp": MAIN,
    "src/scale.cu": SCALE
    + '#include "sizes.h"\nvoid launch_scale(float* x, int n) { scale<<<(n + THREADS - 1) / THREADS, THREADS>>>(x, 1.0f, n); }\n',
    "src/sizes.h": "#pragma once\n#define SIZE (3 * 1000)\nenum { THREADS = 96 };\n",
    "common/check.h": "#define CHECK(call) check((call), #call)\ninline void check(int status, const char* text) { if (status) exit(1); }\n",
}


def test_the_program_of_the_folder_says_how_a_kernel_is_launched(tmp_path):
    texts = project(tmp_path, FILES)
    path = str(tmp_path / "src/scale.cu")
    spec = spec_of(FILES["src/scale.cu"], project=texts, path=path)
    assert (spec.grid[0], spec.block[0]) == ("cdiv(n, 96)", "96") and dims(spec)["n"][0] == 3000
    assert spec.buffers[0].extents == ("n",) and set(spec.confidence.values()) == {Confidence.CERTAIN}
    without = spec_of(FILES["src/scale.cu"])
    assert without.launchable and without.confidence["grid"] is not Confidence.CERTAIN


def test_the_file_that_includes_a_header_says_how_its_kernel_is_launched(tmp_path):
    files = {
        "kernels/scale.cuh": SCALE,
        "app.cu": '#include "kernels/scale.cuh"\nint main() { float* x; cudaMalloc(&x, 512 * 4); int n = 512; scale<<<2, 256>>>(x, 1.0f, n); }\n',
    }
    texts = project(tmp_path, files)
    spec = spec_of(SCALE, project=texts, path=str(tmp_path / "kernels/scale.cuh"))
    assert spec.grid == ("2", "1", "1") and dims(spec)["n"][0] == 512 and spec.label == "launch at app.cu:2"


def test_a_changed_file_of_the_project_is_read_again(tmp_path, monkeypatch):
    monkeypatch.setattr("dice_lsp.project_files.FRESH_S", 0.0)
    texts = project(tmp_path, FILES)
    path = str(tmp_path / "src/scale.cu")
    assert dims(spec_of(FILES["src/scale.cu"], project=texts, path=path))["n"][0] == 3000
    (tmp_path / "src/sizes.h").write_text("#define SIZE 70001\nenum { THREADS = 96 };\n")
    assert dims(spec_of(FILES["src/scale.cu"], project=texts, path=path))["n"][0] == 70001


def test_files_outside_of_the_project_are_not_read(tmp_path):
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "secret.h").write_text("#define SIZE 5\n")
    texts = project(inside, {"a.cu": SCALE})
    assert texts.text(str(tmp_path / "secret.h")) is None
    assert texts.resolve(str(inside / "a.cu"), "../secret.h", True) is None


def test_two_programs_of_one_folder_leave_it_open_which_is_meant(tmp_path):
    other = MAIN.replace("SIZE)", "SIZE * 2)")
    texts = project(tmp_path, {**FILES, "src/other.cpp": other})
    spec = spec_of(FILES["src/scale.cu"], project=texts, path=str(tmp_path / "src/scale.cu"))
    assert spec.launchable and dims(spec)["n"][0] in (3000, 6000)
    assert spec.confidence["grid"] is spec.confidence["dims.n"] is Confidence.LIKELY


@pytest.mark.parametrize(
    "text",
    [
        "int main() { scale<<<",
        "int main() { for (;;) { scale<<<1, 1>>>(0, 0, 0); } }",
        "int f(int n) { return f(n + 1); } int main() { scale<<<f(0), 1>>>(0, 0, 0); }",
        "#define A B\n#define B A\nint main() { int n = A; scale<<<A, 1>>>(0, 0, n); }",
        "#define F(x) F(F(x))\nint main() { scale<<<F(F(F(1))), 1>>>(0, 0, 0); }",
        "int main() { int n = 1; while (n) { n = n * 3 + 1; scale<<<n, 1>>>(0, 0, n); } }",
        "int main() { int x = 1 / 0; scale<<<x, 1 % 0>>>(0, 0, 1 << 200); }",
        "struct A { A a; int n = sizeof(A); }; int main() { A a; scale<<<a.n, 1>>>(0, 0, 0); }",
        "using T = T; typedef U U; int main() { T t; U u = sizeof(T); scale<<<u, 1>>>(0, 0, 0); }",
        "int main() { int a[1000000000]; scale<<<a[-1], 1>>>(a, 0, a[5]); }",
        '#if 1\n#include "itself.cu"\nint main() { goto end; end: scale<<<1, 1>>>(0, 0, 0); ',
        "int main() { auto f = [&](auto g) { g(g); }; f(f); scale<<<1, 1>>>(0, 0, 0); }",
        '\x00\x01é int main() { scale<<<1, 1>>>("é", 0, 0); }',
        "int main() {" + "if (x) {" * 400 + "scale<<<1, 1>>>(0, 0, 0);" + "}" * 400 + "}",
        "int main() { int n = " + "(" * 3000 + "1" + ")" * 3000 + "; scale<<<n, 1>>>(0, 0, 0); }",
    ],
)
def test_bad_and_endless_programs_are_read_to_an_end(text):
    spec = spec_of(SCALE + text)
    assert spec.kernel == "scale"
