"""What host code launches: claimed by the interpreter, and done by the same programs compiled and run with a CUDA that logs."""

# ruff: noqa: E501 -- programs stand as they would be written

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from dice_lsp.source.host_program import host_program
from dice_lsp.source.host_values import Number, Pointer
from dice_lsp.source.kernels import parse

FAKE_CUDA = r"""
#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <type_traits>
#include <vector>
#define __global__
#define __host__
#define __device__
#define __forceinline__ inline
#define __restrict__
struct dim3 { unsigned x, y, z; dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {} };
using std::max;
using cudaError_t = int;
using cudaStream_t = void*;
const int cudaSuccess = 0, cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2;
std::map<char*, size_t> blocks;
int allocate(void** p, size_t n) { *p = malloc(n + 1); blocks[(char*)*p] = n; return 0; }
template <class T> int cudaMalloc(T** p, size_t n) { return allocate((void**)p, n); }
template <class T> int cudaMallocManaged(T** p, size_t n) { return allocate((void**)p, n); }
template <class T> int cudaMallocHost(T** p, size_t n) { return allocate((void**)p, n); }
int cudaFree(void*) { return 0; }
int cudaMemset(void*, int, size_t) { return 0; }
int cudaMemcpy(void* d, const void* s, size_t n, int) { memcpy(d, s, n); return 0; }
int cudaDeviceSynchronize() { return 0; }
int cudaGetLastError() { return 0; }
const char* cudaGetErrorString(int) { return ""; }
struct Config { dim3 grid, block; size_t smem; Config(dim3 g, dim3 b, size_t s = 0, void* = nullptr) : grid(g), block(b), smem(s) {} };
std::string shown(std::nullptr_t) { return "\"null\""; }
std::string shown(bool v) { return v ? "1" : "0"; }
template <class T> std::enable_if_t<std::is_integral_v<T>, std::string> shown(T v) { return std::to_string((long long)v); }
template <class T> std::enable_if_t<std::is_floating_point_v<T>, std::string> shown(T v) { char b[64]; snprintf(b, 64, "%.9g", (double)v); return b; }
template <class T> std::string shown(T* p) {
    if (!p) return "\"null\"";
    auto at = blocks.upper_bound((char*)p);
    if (at == blocks.begin()) return "\"?\"";
    --at;
    return "\"" + std::to_string((long long)at->second - ((char*)p - at->first)) + " bytes\"";
}
template <class T> std::enable_if_t<std::is_class_v<T>, std::string> shown(const T&) { return "\"struct\""; }
template <class... A> void launched(const char* name, Config c, A... args) {
    std::string list;
    ((list += (list.empty() ? "" : ",") + shown(args)), ...);
    printf("[\"%s\",[%u,%u,%u],[%u,%u,%u],%zu,[%s]]\n", name, c.grid.x, c.grid.y, c.grid.z, c.block.x, c.block.y, c.block.z, c.smem, list.c_str());
}
"""

PROGRAMS = {
    "whole numbers out of fractions": """
__global__ void rows(float* x, int n) {}
int main() {
    float factor = 192.0f / (128 * (float)132), total = 4097.0f / (factor < 1.0f ? 1.0f : factor);
    int most = (int)(floor(sqrt(total)) * 32), n = most - most % 512, step = (int)(n * 0.75f);
    float* x;
    cudaMalloc(&x, n * sizeof(float));
    rows<<<n / 32, (step & 255) + 32, step >> 4>>>(x, most % 1000);
}
""",
    "wrappers": """
#define CHECK(call) do { cudaError_t status = (call); if (status != cudaSuccess) { printf("%s", cudaGetErrorString(status)); exit(1); } } while (0)
#define BLOCK 128
__global__ void scale(float* x, float a, int n) {}
template <class T> T ceil_div(T a, T b) { return (a + b - 1) / b; }
static void launch(float* x, int n, float a) { scale<<<ceil_div(n, BLOCK), BLOCK>>>(x, a, n); CHECK(cudaGetLastError()); }
int main(int argc, char** argv) {
    int n = 1 << 16;
    if (argc > 1) n = atoi(argv[1]);
    float* x = nullptr;
    CHECK(cudaMalloc(&x, n * sizeof(float)));
    launch(x, n, 0.5f);
    launch(x + 256, n - 256, 2);
    cudaFree(x);
    return 0;
}
""",
    "sizes": """
enum { WIDTH = 96, HEIGHT };
constexpr int TILE = 16;
struct Image { int width, height; size_t pitch; float* data; };
__global__ void blur(const float* in, float* out, int w, int h, size_t pitch) {}
static Image make(int w, int h) {
    Image image;
    image.width = w; image.height = h; image.pitch = (w + 31) / 32 * 32;
    cudaMallocManaged(&image.data, image.pitch * h * sizeof(float));
    return image;
}
int main() {
    Image a = make(WIDTH, HEIGHT), b = make(a.width, a.height);
    dim3 block(TILE, TILE / 2), grid;
    grid.x = (unsigned)ceil(a.width / (float)block.x);
    grid.y = a.height % block.y ? a.height / block.y + 1 : a.height / block.y;
    size_t bytes = 2 * block.x * block.y * sizeof(double);
    blur<<<grid, block, bytes>>>(a.data, b.data, a.width, a.height, a.pitch);
    return 0;
}
""",
    "a reduction in steps": """
__global__ void reduce(const int* in, int* out, int n) {}
int main() {
    const unsigned n = 1000000;
    int *in, *out;
    cudaMalloc((void**)&in, n * sizeof(int));
    cudaMalloc((void**)&out, (n + 255) / 256 * sizeof *out);
    unsigned left = n;
    while (left > 1) {
        unsigned blocks = std::min((left + 255) / 256, 1024u);
        reduce<<<blocks, 256, 256 * sizeof(int)>>>(in, out, left);
        left = blocks;
        std::swap(in, out);
    }
}
""",
    "a switch": """
__global__ void first(float* x, int n) {}
__global__ void second(float* x, int n) {}
void run(int which, float* x, int n, int block_size) {
    switch (which) {
        case 1: first<<<(n + block_size - 1) / block_size, block_size>>>(x, n); break;
        case 2: second<<<n / block_size, block_size, 0, 0>>>(x, n); break;
        default: exit(1);
    }
}
int main(int argc, const char** argv) {
    int B = 4, T = 128;
    float* x;
    cudaMalloc(&x, B * T * sizeof(float));
    int which = 2;
    if (argc > 1) which = atoi(argv[1]);
    int block_sizes[] = {32, 64, 128};
    for (int j = 0; j < sizeof(block_sizes) / sizeof(int); j++) {
        int block_size = block_sizes[j];
        run(which, x, B * T, block_size);
    }
}
""",
    "values that are read back": """
__global__ void count(int* out, int n) {}
__global__ void use(int* out, int n) {}
int main() {
    int n = 77, found = 5;
    int* out;
    cudaMalloc(&out, sizeof(int));
    count<<<1, 32>>>(out, n);
    cudaMemcpy(&found, out, sizeof(int), cudaMemcpyDeviceToHost);
    use<<<found + 1, 32>>>(out, found);
    int list[3] = {1, 2, 3};
    cudaMemcpy(list, out, sizeof(int), cudaMemcpyDeviceToHost);
    use<<<1, 64>>>(out, list[0]);
    use<<<1, 32>>>(out, list[2] * 0 + n);
}
""",
    "lambdas and pointers to functions": """
__global__ void add(float* x, int n) {}
__global__ void mul(float* x, int n) {}
static int rounded(int n) { return n < 64 ? 64 : n; }
int main() {
    std::vector<int> sizes = {100, 3000};
    float* x;
    cudaMalloc(&x, 4096 * sizeof(float));
    auto start = [&](int n, int threads) { add<<<(rounded(n) + threads - 1) / threads, threads>>>(x, n); };
    for (int n : sizes) start(n, 64);
    std::function<void(int)> other = [&](int n) { mul<<<n, 32>>>(x, n); };
    other(7);
    int total = 0;
    for (int i = 0; i < 10; ++i) total += i;
    mul<<<total, 32>>>(x, total);
}
""",
    "arithmetic": """
#define SQUARE(a) ((a) * (a))
typedef unsigned int uint;
__global__ void k(double* x, long n, uint m, bool flag, float f) {}
static const int SHIFT = 3;
int side = SQUARE(5) + 1;
int main() {
    long n = 1L << 20;
    uint m = 5u - 6u;
    int q = -7 / 2, r = -7 % 3;
    double* x = 0;
    cudaMalloc(&x, sizeof(double) * (size_t)pow(2.0, 10));
    int e = (int)log2((double)n);
    k<<<dim3(side, e, SHIFT), dim3{32, (uint)(r + 3), 1}>>>(x, n, m, q < 0 && n > 3, 1.5f * e);
    k<<<(int)sqrt((float)n), 1 << 5>>>(x + 24, n >> SHIFT, m / 2, !side, -0.25f);
    int i = 3;
    int j = i++ + ++i;
    j -= 2; j <<= 2; j |= 1; j ^= 8;
    k<<<j, i>>>(x, ~i, (uint)max(i, j), i == 5 ? true : false, (float)j / i);
}
template <class T> T max_of(T a, T b) { return a > b ? a : b; }
""",
    "branches that are joined": """
__global__ void k(float* x, int n, int mode) {}
static int pick(int n) { if (n > 1000) { return 256; } else if (n > 100) return 128; return 64; }
int main() {
    int ns[] = {50, 500, 5000};
    float* x;
    cudaMalloc(&x, 5000 * 4);
    for (int i = 0; i < 3; i++) {
        int n = ns[i], mode = 0;
        if (n % 8 == 0) { mode = 1; } else { mode = 2; if (n == 50) continue; }
        int t = pick(n);
        do { k<<<(n + t - 1) / t, t>>>(x, n, mode); t /= 2; } while (t >= 128);
        if (mode == 1 && n > 1000) break;
    }
    for (;;) { k<<<9, 9>>>(x, 9, 9); if (x) break; }
}
""",
    "classes": """
__global__ void k(int* x, int n) {}
struct Buffer {
    int* data = nullptr; int n;
    void resize(int count) { n = count; cudaMalloc(&data, n * sizeof(int)); }
    int size() const { return n; }
};
struct Options { int n = 300; int block = 32; bool verbose = false; };
static void parse(int argc, char** argv, Options& options) { for (int i = 1; i < argc; i++) options.n = atoi(argv[i]); if (argc == 1) options.block = 96; }
static void grow(int& n, int* m) { n += 5; *m = n * 2; }
int counter = 0;
static int next() { return ++counter; }
int main(int argc, char** argv) {
    Options options;
    parse(argc, argv, options);
    Buffer buffer;
    buffer.resize(options.n);
    k<<<(buffer.size() + options.block - 1) / options.block, options.block>>>(buffer.data, buffer.n);
    int n = 10, m = 0;
    grow(n, &m);
    k<<<n, m>>>(buffer.data + 10, next());
    next();
    int three = next();
    k<<<counter, 1>>>(nullptr, three);
    int sums[4];
    for (int i = 0; i < 4; i++) sums[i] = i * i;
    Options* p = new Options();
    p->n = sums[3];
    k<<<p->n, p->block>>>(buffer.data, sums[2]);
}
""",
    "captures and references": """
__global__ void k(float* x, int n) {}
#define STEP 10
static int first() { return STEP; }
#undef STEP
#define STEP 20
static int second() { return STEP; }
static void fill(int* list, int n) { for (int i = 0; i < n; i++) list[i] = 5 * (i + 1); }
int main() {
    float* x;
    cudaMalloc(&x, 64 * sizeof(float));
    int n = 3;
    auto by_value = [=](int add) { k<<<n, 1>>>(x, n + add); };
    auto by_reference = [&](int add) { n += add; k<<<n, 2>>>(x, n); };
    auto mixed = [n, &x]() { k<<<n, 3>>>(x, n); };
    n = 8;
    by_value(1);
    by_reference(2);
    mixed();
    std::vector<int> sizes{1, 2};
    for (auto& size : sizes) size *= 7;
    for (int size : sizes) k<<<size, 4>>>(x, size);
    int list[4];
    fill(list, 4);
    k<<<list[0], list[3]>>>(x, *(list + 1));
    k<<<second(), 5>>>(x, first());
    int& alias = n;
    alias = 30;
    int* pointer = &n;
    *pointer += 1;
    k<<<n, 6>>>(x, sizeof(list) / sizeof(list[0]));
}
""",
    "the preprocessor": """
#ifdef NEVER_DEFINED
#define THREADS 64
#else
#define THREADS 96
#endif
#if THREADS > 64 && !defined(OTHER)
#define LAUNCH(name, n, ...) name##_kernel<<<((n) + THREADS - 1) / THREADS, THREADS>>>(__VA_ARGS__)
#else
#error
#endif
__global__ void plain_kernel(float* x, int n) {}
__global__ void wide_kernel(double* x, int n) {}
#define DEFINE(name, type, per_thread) static void run_##name(type* x, int n) { LAUNCH(name, n / per_thread, x, n); }
DEFINE(plain, float, 1)
DEFINE(wide, double, 4)
int main() {
    float* x; double* y;
    cudaMalloc(&x, 1000 * sizeof(*x));
    cudaMalloc(&y, sizeof(y[0]) * 1000);
    run_plain(x, 1000);
    run_wide(y, 1000);
}
""",
}


def claimed(name):
    """What the interpreter says of a program, in the order of the program; None for a number that it does not know."""
    text = PROGRAMS[name]
    model = parse(text)
    launches = []
    for launch in host_program(model).launches:
        sizes = [[number.value for number in size] if size else None for size in (launch.grid, launch.block)]
        arguments = []
        for value in launch.arguments:
            if isinstance(value, Number):
                known = value.value
                arguments.append(None if known is None else float(f"{known:.9g}") if value.floating else int(known))
            elif isinstance(value, Pointer) and value.block is None:
                arguments.append("null")
            elif isinstance(value, Pointer) and value.block.nbytes is not None and value.block.nbytes.value is not None:
                arguments.append(f"{int(value.block.nbytes.value - value.offset.value)} bytes")
            else:
                arguments.append(None)
        launches.append(
            ([launch.kernel, *sizes, launch.smem.value if launch.smem else None, arguments], launch.certain)
        )
    return launches


def without_launches(text):
    """The program with each launch as a call of the logger, and everything in a namespace of its own."""
    text = re.sub(r"(\w+)(##_kernel)?<<<(.*?)>>>\(", lambda m: f"launched({_name(m)}, Config({m[3]}), ", text)
    return text.replace("int main(", "int program(")


def _name(match):
    return f'"{match[1]}"' if match[2] is None else f'#{match[1]} "_kernel"'


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """What the programs do: name -> launches in order, each once."""
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler is here")
    folder: Path = tmp_path_factory.mktemp("programs")
    source = [FAKE_CUDA]
    for number, text in enumerate(PROGRAMS.values()):
        macros = re.findall(r"#define (\w+)", text)
        source += [f"namespace program{number} {{", without_launches(text), "}", *(f"#undef {name}" for name in macros)]
    source.append('int main() { char name[] = "program"; char* argv[] = {name, nullptr};')
    for number, text in enumerate(PROGRAMS.values()):
        given = {
            "()": "",
            "(int argc, char** argv)": "1, argv",
            "(int argc, const char** argv)": "1, (const char**)argv",
        }
        signature = re.search(r"int main(\(.*?\))", text)[1]
        source.append(f'puts("= {number}"); program{number}::program({given[signature]});')
    source.append("}")
    (folder / "programs.cpp").write_text("\n".join(source))
    subprocess.run([compiler, "-std=c++17", "-w", "-O0", "-o", "programs", "programs.cpp"], cwd=folder, check=True)
    printed = subprocess.run([folder / "programs"], capture_output=True, text=True, check=True, timeout=60).stdout
    found = {}
    for line in printed.splitlines():
        if line.startswith("="):
            found[list(PROGRAMS)[int(line[1:])]] = launches = []
        elif (launch := json.loads(line)) not in launches:
            launches.append(launch)
    return found


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_claimed_is_what_the_program_does(name, done):
    launches = claimed(name)
    for launch, certain in launches:
        assert not certain or any(agrees(launch, real) for real in done[name]), (launch, done[name])
    for real in done[name]:
        assert any(agrees(launch, real) for launch, _ in launches), (real, launches)


def agrees(launch, real):
    """Whether a claim says nothing else than what was done; what it leaves open may be anything."""
    return all(
        mine is None or mine == theirs or (isinstance(mine, list) and agrees(mine, theirs))
        for mine, theirs in zip(launch, real, strict=True)
    )


KNOWN = [name for name in PROGRAMS if name not in ("values that are read back", "a switch", "captures and references")]


@pytest.mark.parametrize("name", KNOWN)
def test_programs_without_input_are_known_for_certain(name):
    assert all(certain for _, certain in claimed(name))
    assert "None" not in str(claimed(name))


def test_a_value_that_is_read_back_is_not_known():
    launches = claimed("values that are read back")
    assert [certain for _, certain in launches] == [True, False, False, True]
    assert launches[1][0][1] == [None, 1, 1] and launches[2][0][4][1] is None
