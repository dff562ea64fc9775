"""What bodies do with their pointer parameters: sizes, roles, the launch they are made for; sound or silent."""

# ruff: noqa: E501 -- a case is one row, its kernel on one line
import itertools
import random

import pytest

from dice_lsp.source.accesses import Launched, extents
from dice_lsp.source.body import read_accesses
from dice_lsp.source.device_code import context_for, expanded, models_around
from dice_lsp.source.expressions import evaluate
from dice_lsp.source.kernels import parse
from dice_lsp.source.launches import launch_spec
from dice_lsp.source.polynomials import ONE, at_least, ceiling, floor, name, number, parsed

GID = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
GUARD = "if (i >= n) return;"
CG = "namespace cg = cooperative_groups; cg::thread_block block = cg::this_thread_block(); cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);"


def accesses_of(parameters, body, above="", constants=None):
    text = f"{above}\n__global__ void k({parameters}) {{ {body} }}\n"
    model = parse(text)
    kernel = next(kernel for kernel in model.kernels if kernel.name == "k")
    body = text[kernel.body_start : kernel.body_end]
    found = read_accesses(
        body,
        kernel.parameters,
        {**model.values, **(constants or {})},
        is_kernel=True,
        context=context_for(body, (model,)),
    )
    return kernel, found


def sizes(parameters, body, above="", launched=None, constants=None):
    """`out y[n]` and the like; `?` where no size is known."""
    kernel, found = accesses_of(parameters, body, above, constants)
    pointers = [p for p in kernel.parameters if p.pointer]
    said = extents(found, pointers, launched, constants)
    return [
        f"{said[p.name].role} {p.name}[{s.spelled() if (s := said[p.name].size) is not None else '?'}]"
        for p in pointers
    ]


def spec_of(parameters, body, above=""):
    text = f"{above}\n__global__ void k({parameters}) {{ {body} }}\n"
    model = parse(text)
    return launch_spec(text, next(kernel for kernel in model.kernels if kernel.name == "k"), model)


VECTORS = (
    "#define F4(v) (reinterpret_cast<float4 *>(&(v))[0])\n#define CF4(v) (reinterpret_cast<const float4 *>(&(v))[0])"
)
HELPERS = """
__device__ int place() { return blockIdx.x * blockDim.x + threadIdx.x; }
__device__ int flat(int row, int column, int width) { return row * width + column; }
__device__ float total(const float* row, int count) { float s = 0; for (int j = 0; j < count; j++) s += row[j]; return s; }
__device__ void put(float* to, int at, float v) { to[at] = v; }
template <typename T> __device__ void twice(T* to, int at) { put(to, 2 * at, 1.0f); put(to, 2 * at + 1, 2.0f); }
__device__ void add(float* to, float v) { atomicAdd(to, v); }
"""
FOUND = {
    "vectors by a macro": (VECTORS, "const float* x, float* y, int n", "int i = 4 * (blockIdx.x * blockDim.x + threadIdx.x); if (i < n) { float4 v = CF4(x[i]); F4(y[i]) = v; }", ["in x[4 * cdiv(n, 4)]", "out y[4 * cdiv(n, 4)]"]),
    "vectors by a cast": ("", "const float* x, float* y, int n", f"{GID} if (i < n) ((float4*)y)[i] = ((const float4*)x)[i];", ["in x[4 * n]", "out y[4 * n]"]),
    "halves by pairs": ("", "const __half* x, __half* y, int n", f"{GID} if (i < n) *reinterpret_cast<__half2*>(y + 2 * i) = *reinterpret_cast<const __half2*>(x + 2 * i);", ["in x[2 * n]", "out y[2 * n]"]),
    "a whole vector below the end": (VECTORS, "const float* x, float* y, int n", "int i = 4 * (blockIdx.x * blockDim.x + threadIdx.x); if (i + 3 < n) F4(y[i]) = CF4(x[i]);", ["in x[4 * (n / 4)]", "out y[4 * (n / 4)]"]),
    "an alias": ("", "const float* x, float* y, int n, int d", f"{GID} if (i < n) {{ const float* row = x + i * d; float* out = &y[i]; for (int j = 0; j < d; j++) *out += row[j]; }}", ["in x[d * n]", "io y[n]"]),
    "a pointer that moves": ("", "const float* x, float* y, int n, int d", f"{GID} {GUARD} x += i * d; y += i; float s = 0; for (int j = 0; j < d; j++) s += x[j]; *y = s;", ["in x[d * n]", "out y[n]"]),
    "a pointer that a loop moves": ("", "const float* x, float* y, int n, int d", f"{GID} {GUARD} const float* p = x + i; float s = 0; for (int j = 0; j < d; j++) {{ s += *p; p += n; }} y[i] = s;", ["in x[d * n]", "out y[n]"]),
    "a counter beside a loop": ("", "const float* x, float* y, int n, int d", f"{GID} {GUARD} int at = 0; float s = 0; for (int j = 0; j < d; j++) {{ s += x[at]; at += 3; }} y[i] = s;", ["in x[3 * d - 2]", "out y[n]"]),
    "a local that changes": ("", "const float* x, float* y, int b, int t, int c", f"{GID} if (i < b * t * c) {{ int r = i % (t * c); int u = r / c; r = r % c; int v = i / (t * c); y[i] = x[(v * c + r) * t + u]; }}", ["in x[b * c * t]", "out y[b * c * t]"]),
    "either of two values": ("", "float* y, int n", f"{GID} {GUARD} int j = i; if (y[i] > 0) j = 0; y[j] = 1;", ["io y[n]"]),
    "a function for the index": (HELPERS, "float* y, int n", "int i = place(); if (i < n) y[i] = 1;", ["out y[n]"]),
    "a function of two indices": (HELPERS, "float* y, int h, int w", "int c = place(); int r = blockIdx.y * blockDim.y + threadIdx.y; if (r < h && c < w) y[flat(r, c, w)] = 1;", ["out y[h * w]"]),
    "a function that reads": (HELPERS, "const float* x, float* y, int n, int d", f"{GID} if (i < n) y[i] = total(x + i * d, d);", ["in x[d * n]", "out y[n]"]),
    "functions in functions": (HELPERS, "float* y, int n", f"{GID} if (i < n) twice(y, i);", ["io y[2 * n]"]),
    "a function that adds": (HELPERS, "float* y, int n", f"{GID} if (i < n) add(&y[i], 1.0f);", ["io y[n]"]),
    "a reference": ("", "float* y, int n", f"{GID} {GUARD} float& v = y[i]; v = 2;", ["out y[n]"]),
    "is there a buffer": ("", "const float* bias, float* y, int n", f"{GID} {GUARD} float v = bias != nullptr ? bias[i] : 0; if (bias) v += bias[i]; if (!bias) v = 1; y[i] = v;", ["in bias[n]", "out y[n]"]),
    "a warp a row": (CG and "", "const float* x, float* y, int n, int d", f"{CG} int row = blockIdx.x * warp.meta_group_size() + warp.meta_group_rank(); if (row >= n) return; float s = 0; for (int j = warp.thread_rank(); j < d; j += warp.size()) s += x[row * d + j]; if (warp.thread_rank() == 0) y[row] = s;", ["in x[d * n]", "io y[n]"]),
    "a lower triangle": ("", "const float* x, float* y, int n", f"{GID} {GUARD} float s = 0; for (int j = 0; j <= i; j++) s += x[i * n + j]; y[i] = s;", ["in x[n * n]", "out y[n]"]),
    "downwards": ("", "const float* x, float* y, int n, int d", f"{GID} {GUARD} float s = 0; for (int j = d - 1; j >= 0; j--) s += x[i * d + j]; y[i] = s;", ["in x[d * n]", "out y[n]"]),
    "a loop that is a while": ("", "float* y, int n", f"{GID} while (i < n) {{ y[i] = 1; i += gridDim.x * blockDim.x; }}", ["out y[n]"]),
    "vectors in a grid-stride loop": ("", "const float* x, float* y, int n", "for (int i = (blockIdx.x * blockDim.x + threadIdx.x) * 4; i < n; i += blockDim.x * gridDim.x * 4) *(float4*)&y[i] = *(const float4*)&x[i];", ["in x[4 * cdiv(n, 4)]", "out y[4 * cdiv(n, 4)]"]),
    "bits": ("", "const float* x, float* y, int n", f"{GID} if (i < n) y[(i & 31) * 4 + ((i >> 5) & 3)] = x[i & 15];", ["in x[16]", "io y[128]"]),
    "what is left by a mask": ("", "float* y, int n, int m", f"{GID} if (i < n) {{ int low = i & (m - 1); y[2 * i - low] = 1; }}", ["io y[2 * n - 1]"]),
    "labels beside a row": ("", "const float* x, const int* label, float* y, int n, int d", "int r = blockIdx.x; if (r >= n) return; for (int j = threadIdx.x; j < d; j += blockDim.x) y[r * d + j] = x[r * d + j] - x[r * d + label[r]];", ["in x[d * n]", "in label[n]", "out y[d * n]"]),
    "indices in a vector": ("", "const int* x, unsigned* h, int n", f"{GID} if (i < n) {{ int4 v = reinterpret_cast<const int4*>(x)[i]; atomicAdd(&h[v.x], 1u); atomicAdd(&h[v.w], 1u); }}", ["in x[4 * n]", "io h[1024]"]),
    "a guard on another value": ("", "const float* x, float* y, int w, int h, int r", "int c = blockIdx.x * blockDim.x + threadIdx.x; int v = blockIdx.y * blockDim.y + threadIdx.y; if (c - r >= 0 && c + r < w && v < h) y[v * w + c] = x[v * w + c - r] + x[v * w + c + r];", ["in x[h * w]", "io y[h * w]"]),
    "sizes that only numbers compare": ("", "const float* x, float* y, int n, int m", f"{GID} if (i < n) y[i] = x[i]; if (i < m) y[i] = x[2 * i];", ["in x[max(2 * m - 1, n)]", "io y[max(m, n)]"]),
    "a copy in the background": ("", "const float* x, float* y, int n", f"{GID} __shared__ float s[64]; if (4 * i < n) {{ unsigned to = __cvta_generic_to_shared(s); asm volatile(\"cp.async.cg.shared.global [%0], [%1], %2;\" :: \"r\"(to), \"l\"(&x[4 * i]), \"n\"(16)); }} if (i < n) y[i] = 1;", ["in x[4 * cdiv(n, 4)]", "out y[n]"]),
}  # fmt: skip


@pytest.mark.parametrize("case", FOUND)
def test_sizes_and_roles(case):
    above, parameters, body, expected = FOUND[case]
    assert sizes(parameters, body, above) == expected


SILENT = {
    "an unknown function": ("float* y, int n", f"{GID} if (i < n) fill(&y[i], i);"),
    "a row that an unknown function gets": ("float* y, int n", f"{GID} if (i < n) fill(y + i * n, i);"),
    "one of two pointers": ("float* y, float* z, int n", f"{GID} if (i < n) {{ float* p = i > 3 ? y : z; p[i] = 1; }}"),
    "a pointer that depends": ("float* y, float* z, int n", f"{GID} float* p = y; if (n > 3) p = z; if (i < n) p[i] = 1;"),
    "a lambda": ("float* y, int n", f"{GID} auto f = [&](int j) {{ y[j] = 1; }}; if (i < n) f(i);"),
    "an address that is taken": ("float* y, int n", f"{GID} int j = i; int* p = &j; *p = n * n; if (i < n) y[j] = 1;"),
    "a type that is not known": ("float* y, int n", f"{GID} if (i < n) reinterpret_cast<Strange*>(y)[i] = {{}};"),
    "a byte pointer": ("float* y, int n", f"{GID} if (i < n) reinterpret_cast<char*>(y)[i] = 1;"),
    "assembly that stores": ("float* y, int n", f"{GID} if (i < n) asm volatile(\"st.global.f32 [%0], %1;\" :: \"l\"(y + i), \"f\"(1.0f));"),
    "a loop that may not end there": ("float* y, int n", f"{GID} int j = i; while (y[j] > 0) j += 3; if (i < n) y[j] = 1;"),
    "a narrow index": ("float* y, int n", f"{GID} unsigned char j = i; if (i < n) y[j + n] = 1;"),
    "a negative index": ("float* y, int n, int m", f"{GID} if (i < n) y[i - m] = 1;"),
}  # fmt: skip


@pytest.mark.parametrize("case", SILENT)
def test_what_is_not_followed_gives_no_size(case):
    parameters, body = SILENT[case]
    said = sizes(parameters, body)
    assert said[0].endswith("y[?]") and not said[0].startswith("in"), said


def test_an_address_that_is_handed_on_is_no_mere_read():
    """Overloads that nobody can tell apart were taken for a read, and the result for an input."""
    overloads = "__device__ void add(float* a, float v) { atomicAdd(a, v); }\n__device__ void add(double* a, float v) { *a = v; }\ntemplate <typename T>"
    said = sizes("T* y, int n", f"{GID} if (i < n) add(&y[i], 1.0f);", overloads)
    assert said == ["io y[?]"]
    assert sizes("float* y, int n", f"{GID} if (i < n) add(&y[i], 1.0f);", overloads.rsplit("\n", 1)[0]) == ["io y[n]"]


def test_what_the_launch_bounds():
    body = "int r = blockIdx.y * 8 + threadIdx.x / 32, c = blockIdx.x * 32 + threadIdx.x % 32; y[r * w + c] = x[c];"
    parameters = "const float* x, float* y, int w, int h"
    assert sizes(parameters, body) == ["in x[?]", "io y[?]"]
    launched = Launched(("cdiv(w, 32)", "cdiv(h, 8)", "1"), ("256", "1", "1"))
    said = sizes(parameters, body, launched=launched)
    assert said[0] == "in x[32 * cdiv(w, 32)]"
    kernel, found = accesses_of(parameters, body)
    size = extents(found, kernel.parameters[:2], launched)["y"].size
    assert evaluate(size.spelled(), {"w": 64, "h": 16}) == 64 * 16


def test_a_launch_of_other_dimensions_than_ranks_were_read_for_bounds_nothing():
    body = f"{CG} y[block.thread_rank()] = 1;"
    assert sizes("float* y", body, launched=Launched(("1", "1", "1"), ("64", "1", "1"))) == ["out y[64]"]
    assert sizes("float* y", body, launched=Launched(("1", "1", "1"), ("8", "8", "1")))[0].endswith("y[?]")


BLOCKS = {
    "a tile": ("const float* x, float* y, int n", "__shared__ float t[16][17]; int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y; if (r < n && c < n) t[threadIdx.y][threadIdx.x] = x[r * n + c]; __syncthreads(); if (r < n && c < n) y[r * n + c] = t[threadIdx.y][threadIdx.x];", "", ("16", "16", "1"), ("cdiv(n, 16)", "cdiv(n, 16)", "1")),
    "rows of a tile": ("const float* x, float* y, int n", "__shared__ float t[32][33]; int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 32 + threadIdx.y; for (int j = 0; j < 32; j += 8) if (c < n && r + j < n) t[threadIdx.y + j][threadIdx.x] = x[(r + j) * n + c]; __syncthreads(); for (int j = 0; j < 32; j += 8) if (c < n && r + j < n) y[(r + j) * n + c] = t[threadIdx.y + j][threadIdx.x];", "", ("32", "8", "1"), ("cdiv(n, 32)", "cdiv(n, 32)", "1")),
    "partial sums of warps": ("const float* x, float* y, int n", f"__shared__ float s[32]; {GID} float v = i < n ? x[i] : 0; if (threadIdx.x % 32 == 0) s[threadIdx.x / 32] = v; __syncthreads(); if (threadIdx.x == 0) y[blockIdx.x] = s[0];", "", ("256", "1", "1"), ("cdiv(n, 256)", "1", "1")),
    "a parameter of the template": ("const float* x, float* y, int n", f"__shared__ float s[NUM_THREADS]; {GID} s[threadIdx.x] = i < n ? x[i] : 0; __syncthreads(); if (i < n) y[i] = s[threadIdx.x];", "template <int NUM_THREADS = 64>", ("64", "1", "1"), ("cdiv(n, 64)", "1", "1")),
    "as long as the shared array": ("const float* x, float* y, int n", f"__shared__ float s[128]; {GID} s[threadIdx.x] = i < n ? x[i] : 0; __syncthreads(); if (i < n) y[i] = s[127 - threadIdx.x];", "", ("128", "1", "1"), ("cdiv(n, 128)", "1", "1")),
    "a function with shared memory": ("const float* x, float* y, int n", "int r = blockIdx.x; if (r >= n) return; float v = sum<BLOCK>(x[r]); if (threadIdx.x == 0) y[r] = v;", "template <int THREADS> __device__ float sum(float v) { constexpr int W = (THREADS + 31) / 32; static __shared__ float s[W]; int w = threadIdx.x / 32, l = threadIdx.x % 32; if (l == 0) s[w] = v; __syncthreads(); return l < W ? s[l] : 0; }\ntemplate <int BLOCK = 96>", ("96", "1", "1"), ("n", "1", "1")),
}  # fmt: skip


@pytest.mark.parametrize("case", BLOCKS)
def test_the_block_that_shared_memory_is_made_for(case):
    parameters, body, above, block, grid = BLOCKS[case]
    spec = spec_of(parameters, body, above)
    assert (spec.unknown, spec.block, spec.grid) == ((), block, grid)


@pytest.mark.parametrize(
    ("declared", "use", "size"),
    [
        ("float s[]", "s[threadIdx.x] = x[i];", "256 * 4"),
        ("double s[]", "s[threadIdx.x + blockDim.x] = x[i];", "512 * 8"),
        ("float s[]", "float* other = s + n; for (int j = threadIdx.x; j < n; j += blockDim.x) { s[j] = 1; other[j] = 2; }", "2 * n * 4"),
        ("float s[]", "fill(s);", None),
        ("Strange s[]", "s[threadIdx.x] = {};", None),
    ],
)  # fmt: skip
def test_dynamic_shared_memory_is_as_large_as_its_subscripts(declared, use, size):
    spec = spec_of(
        "const float* x, float* y, int n", f"extern __shared__ {declared}; {GID} if (i < n) {{ {use} y[i] = x[i]; }}"
    )
    assert spec.launchable == (size is not None)
    if size is not None:
        assert evaluate(spec.smem_bytes, {"n": 96}) == evaluate(size, {"n": 96})
    else:
        assert any("dynamic shared memory is not known" in sentence for sentence in spec.unknown)


def test_dynamic_shared_memory_that_a_helper_hides_is_not_taken_for_none():
    helper = "template <typename T> struct Pool { __device__ operator T*() { extern __shared__ int all[]; return (T*)all; } };\nstruct Other { int a; };"
    body = f"float* s = Pool<float>(); {GID} s[threadIdx.x] = 1; if (i < n) y[i] = s[threadIdx.x];"
    spec = spec_of("float* y, int n", body, helper)
    assert any("dynamic shared memory is not known" in sentence for sentence in spec.unknown)
    assert spec_of("float* y, int n", f"Other o; {GID} if (i < n) y[i] = o.a;", helper).launchable


@pytest.mark.parametrize(
    ("parameters", "body", "expected"),
    [
        ("const float* w, const int* idx, float* y, int n, int d", "int r = blockIdx.x; if (r < n) for (int j = threadIdx.x; j < d; j += blockDim.x) y[r * d + j] = w[idx[r] * d + j];", {"w": ("1024 * d",), "idx": "int(0,1024)"}),
        ("const float* x, const int* label, float* y, int n, int d", "int r = blockIdx.x; if (r < n) for (int j = threadIdx.x; j < d; j += blockDim.x) y[r * d + j] = x[r * d + j] + x[r * d + label[r]];", {"label": "int(0,d)"}),
        ("const float* x, const int* idx, float* y, int n", f"{GID} if (i < n) {{ int j = idx[i]; if (j >= 0 && j < n) y[i] = x[j]; }}", {"x": ("n",), "idx": "normal"}),
    ],
)  # fmt: skip
def test_integers_that_are_indices_are_drawn_from_what_there_is(parameters, body, expected):
    spec = spec_of(parameters, body)
    assert spec.unknown == ()
    for buffer in spec.buffers:
        wanted = expected.get(buffer.name)
        if isinstance(wanted, tuple):
            assert evaluate(" * ".join(f"({e})" for e in buffer.extents), {"n": 5, "d": 7}) == evaluate(
                wanted[0], {"n": 5, "d": 7}
            )
        elif wanted is not None:
            assert buffer.init == wanted


def test_an_index_whose_memory_the_launch_gives_stays_inside():
    text = """__global__ void k(const float* w, const int* idx, float* y, int d) { y[blockIdx.x * d + threadIdx.x] = w[idx[blockIdx.x] * d + threadIdx.x]; }
int main() { const int D = 64; float *w, *y; int* idx; cudaMalloc(&w, 50 * D * sizeof(float)); cudaMalloc(&y, 7 * D * sizeof(float)); cudaMalloc(&idx, 7 * sizeof(int)); k<<<7, D>>>(w, idx, y, D); }
"""
    model = parse(text)
    spec = launch_spec(text, model.kernels[0], model)
    assert spec.unknown == ()
    init = next(buffer.init for buffer in spec.buffers if buffer.name == "idx")
    names = {**spec.constants, **{dim.name: dim.values[0] for dim in spec.dims}}
    assert init.startswith("int(0,") and evaluate(init[6:-1], names) == 50


def test_what_is_not_used_may_be_anything():
    spec = spec_of(
        "const float* x, const float* spare, float* y, int n, int spare_size", f"{GID} if (i < n) y[i] = x[i];"
    )
    assert spec.unknown == () and spec.scalars == {"spare_size": "1"}
    assert [b.extents for b in spec.buffers if b.name == "spare"] == [("1",)]


class Around:
    """A project of three files."""

    generation = 0
    defines: dict[str, str] = {}

    def __init__(self, files):
        self.files = files

    def text(self, path):
        return self.files.get(path)

    def resolve(self, path, name, quoted):
        return f"/p/{name}" if f"/p/{name}" in self.files else None

    def includers(self, path):
        return ()

    def siblings(self, path):
        return ()


def test_device_functions_and_types_of_headers():
    header = """#pragma once
#include "types.h"
template <class E> struct alignas(16) Pack { static constexpr int size = sizeof(int4) / sizeof(E); E item[size]; };
typedef Pack<real> pack;
template <class E> __device__ Pack<E> load(const E* at) { return Pack<E>{*reinterpret_cast<const int4*>(at)}; }
template <class E> __device__ void store(E* at, Pack<E> v) { *reinterpret_cast<int4*>(at) = v.bits(); }
"""
    types = "#ifdef WIDE\ntypedef double real;\n#else\ntypedef __half real;\n#endif\n"
    text = '#include "pack.h"\n__global__ void k(real* y, const real* x, int n) { int i = (blockIdx.x * blockDim.x + threadIdx.x) * pack::size; if (i < n) { pack v = load(x + i); store(y + i, v); } }\n'
    project = Around({"/p/pack.h": header, "/p/types.h": types})
    model = parse(text)
    kernel = model.kernels[0]
    body = text[kernel.body_start : kernel.body_end]
    context = context_for(body, (model, *models_around(model, "/p/k.cu", project)))
    found = read_accesses(body, kernel.parameters, {}, is_kernel=True, context=context)
    said = extents(found, kernel.parameters[:2])
    assert {label: extent.size.spelled() for label, extent in said.items()} == dict.fromkeys("yx", "8 * cdiv(n, 8)")
    # What the build defines decides which type is meant.
    wide = context_for(body, (model, *models_around(model, "/p/k.cu", project)), {"WIDE": "1"})
    found = read_accesses(body, kernel.parameters, {}, is_kernel=True, context=wide)
    assert extents(found, kernel.parameters[:2])["x"].size.spelled() == "2 * cdiv(n, 2)"
    assert models_around(model, "/p/k.cu", None) == ()


def test_macros_are_written_out_once():
    macros = context_for(
        "A(1)", (parse("#define A(x) (B(x) + A(x))\n#define B(x) ((x) * 2)\n#define C(x) #x\n"),)
    ).macros
    assert expanded("A(i) + A (j)", macros).replace(" ", "") == "(((i)*2)+A(i))+(((j)*2)+A(j))"
    assert expanded("A(i", macros) == "A(i" and expanded("C(i)", macros) == "C(i)"


def test_quotients():
    n, m = name("n"), name("m")
    assert ceiling(n * number(32), number(256)).spelled() == "cdiv(n, 8)" and ceiling(number(4) * n, number(4)) == n
    assert ceiling(n - number(3), number(4)) == floor(n, number(4)) and floor(n + number(3), number(4)) == ceiling(
        n, number(4)
    )
    assert at_least(number(4) * ceiling(n, number(4)), n) and not at_least(n, number(4) * ceiling(n, number(4)))
    assert at_least(n, number(4) * floor(n, number(4))) and at_least(n + number(3), number(4) * ceiling(n, number(4)))
    assert at_least(n * m, m) and not at_least(n, m) and not at_least(n - number(2), ONE)
    assert parsed("cdiv(n, 4) * 4 - n / 2", {}).spelled() == "4 * cdiv(n, 4) - (n / 2)" and parsed("n % 2", {}) is None


@pytest.mark.parametrize("seed", range(40))
def test_quotients_are_what_they_are_spelled_as(seed):
    """Rewriting a quotient, and saying that one size is at least another, must hold for numbers."""
    draw = random.Random(seed)
    names = ["n", "m", "k"]

    def anything(depth=0):
        if depth > 2 or draw.random() < 0.3:
            return number(draw.randint(0, 9)) if draw.random() < 0.4 else name(draw.choice(names))
        left, right = anything(depth + 1), anything(depth + 1)
        kind = draw.randint(0, 3)
        if kind == 0:
            return left + right
        if kind == 1:
            return left * right
        return (ceiling if kind == 2 else floor)(left, number(draw.choice([2, 4, 8, 32])))

    first, second = anything(), anything()
    claimed = at_least(first, second)
    for values in itertools.product((1, 2, 3, 7, 8, 33, 64), repeat=3):
        known = dict(zip(names, values, strict=True))
        a, b = (evaluate(p.spelled(), known) for p in (first, second))
        assert not claimed or a >= b, (first.spelled(), second.spelled(), known)
        read = parsed(first.spelled(), {})
        assert read is not None and evaluate(read.spelled(), known) == a


def test_a_body_without_end_is_read_in_time():
    body = GID + "".join(f"if (i < n) y[i + {k}] = x[i * {k % 7 + 1}];" for k in range(3000))
    found = sizes("const float* x, float* y, int n", body)
    assert found[1].startswith("io y[n + 2999]")
    deep = "for (int a = 0; a < n; a++) {" * 300 + "y[a] = 1;" + "}" * 300
    assert len(sizes("float* y, int n", deep)) == 1


VADD_KERNEL = "__global__ void add_kernel3(const float* d_x, float* d_y, int n, int pitch) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) d_y[i] = d_x[i] + 1; }\n"


@pytest.mark.parametrize(
    ("name", "parameters", "found"),
    [
        ("add_cpu", "const float* h_x, float* h_y, int n", True),
        ("addOnHost", "const float* x, float* y, int n", True),
        ("serial_add", "const float* host_x, float* host_y, int n", True),
        ("compute_add_cpu", "const float* x, float* y, int n", True),
        ("compute_add", "const float* x, float* y, int n", False),
        ("add_cpu", "const double* x, float* y, int n", False),
        ("add_cpu", "const float* x, int n", False),
    ],
)
def test_a_cpu_function_by_its_name_and_where_its_memory_is(name, parameters, found):
    text = f"void {name}({parameters}) {{ }}\n" + VADD_KERNEL
    model = parse(text)
    reference = launch_spec(text, model.kernels[0], model).reference
    assert (reference.text if reference else None) == (name if found else None)


@pytest.mark.parametrize("place", ["header", "sibling"])
def test_a_cpu_function_of_a_file_beside(place):
    function = "void add_gold(const float* x, float* y, int n) { for (int i = 0; i < n; i++) y[i] = x[i] + 1; }\n"
    text = ('#include "gold.h"\n' if place == "header" else "") + VADD_KERNEL
    project = Around({"/p/gold.h": function, "/p/other.cpp": "void other(const float* x, float* y, int n) {}\n"})
    if place == "sibling":
        project.siblings = lambda path: ("/p/other.cpp", "/p/gold.h")
    model = parse(text)
    spec = launch_spec(text, model.kernels[0], model, project=project, path="/p/k.cu")
    assert spec.reference is not None and (spec.reference.text, spec.reference.path) == ("add_gold", "/p/gold.h")
    assert launch_spec(text, model.kernels[0], model).reference is None
    # What the function does with its parameters counts for a kernel whose own subscripts are not followed.
    blind = text.replace("d_y[i] = d_x[i] + 1", "put(d_y, d_x, i)")
    model = parse(blind)
    spec = launch_spec(blind, model.kernels[0], model, project=project, path="/p/k.cu")
    assert {buffer.name: (buffer.role.value, buffer.extents) for buffer in spec.buffers} == {
        "d_x": ("in", ("n",)),
        "d_y": ("out", ("n",)),
    }


def test_a_scatter_by_made_up_indices_is_not_guessed():
    """Two threads that write one place race: whether they do is up to the indices, which nobody knows."""
    scatter = f"{GID} if (i < n) y[idx[i]] = x[i];"
    spec = spec_of("const float* x, const int* idx, float* y, int n", scatter)
    assert any("the values of idx decide which memory is used" in sentence for sentence in spec.unknown)
    adds = spec_of("const float* x, const int* idx, float* y, int n", f"{GID} if (i < n) atomicAdd(&y[idx[i]], x[i]);")
    assert adds.unknown == ()
    assert {adds.confidence[f"buffers.{label}"].value for label in ("idx", "y")} == {"guess"}


def test_a_built_in_block_that_does_not_fit_its_shared_memory_is_not_guessed():
    body = "__shared__ float s[16]; int i = blockIdx.x * 64 + threadIdx.x; s[threadIdx.x] = i < n ? x[i] : 0; __syncthreads(); if (i < n) y[i] = s[threadIdx.x];"
    spec = spec_of("const float* x, float* y, int n", body)
    assert any("its shared memory is too small" in sentence for sentence in spec.unknown)
    assert spec_of("const float* x, float* y, int n", body.replace("s[16]", "s[64]")).block == ("64", "1", "1")
