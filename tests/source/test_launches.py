"""How kernels are launched, from directives, launches in the file, and bodies; and what is honestly not known."""

# ruff: noqa: E501 -- a case is one row, its kernel on one line
import pytest

from dice_lsp.records import Origin
from dice_lsp.source.kernels import parse
from dice_lsp.source.launches import launch_spec

GID = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
VADD = "__global__ void vadd(const float* a, const float* b, float* c, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) c[i] = a[i] + b[i]; }\n"
CHECKS = (1 << 20, 1, 31, 33, 1000, 4097)


def spec_of(text, name=None):
    model = parse(text)
    kernel = next(kernel for kernel in model.kernels if name in (None, kernel.name))
    return launch_spec(text, kernel, model)


def buffers(spec):
    return [
        f"{b.role.value} {b.name}[{', '.join(b.extents)}]{'' if b.init == 'normal' else ': ' + b.init}"
        for b in spec.buffers
    ]


def dims(spec):
    return {dim.name: dim.values for dim in spec.dims}


def kernel(parameters, body):
    return f"__global__ void k({parameters}) {{ {body} }}\n"


INFERRED = {
    "a guard": ("const float* x, float* y, int n", f"{GID} if (i < n) y[i] = x[i];", ["in x[n]", "out y[n]"], ("cdiv(n, 256)", "1", "1"), ("256", "1", "1")),
    "an early return": (
        "const float* __restrict__ x, float* y, size_t n",
        "const size_t i = threadIdx.x + (size_t)blockDim.x * blockIdx.x; if (i >= n) { return; } y[i] = __ldg(&x[i]);",
        ["in x[n]", "out y[n]"], ("cdiv(n, 256)", "1", "1"), ("256", "1", "1"),
    ),
    "a grid-stride loop": (
        "float a, const float* x, float* y, int n",
        "for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) y[i] = a * x[i] + y[i];",
        ["in x[n]", "io y[n]"], ("64", "1", "1"), ("256", "1", "1"),
    ),
    "a stride in a local": (
        "float* y, int n",
        "int stride = gridDim.x * blockDim.x; for (int i = blockDim.x * blockIdx.x + threadIdx.x; i < n; i = i + stride) y[i] = 1;",
        ["out y[n]"], ("64", "1", "1"), ("256", "1", "1"),
    ),
    "two dimensions": (
        "const float* A, const float* B, float* C, int M, int N, int K",
        "int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x; if (row < M && col < N) {"
        " float s = 0; for (int k = 0; k < K; ++k) s += A[row * K + k] * B[k * N + col]; C[row * N + col] = s; }",
        ["in A[M, K]", "in B[K, N]", "out C[M, N]"], ("cdiv(N, 16)", "cdiv(M, 16)", "1"), ("16", "16", "1"),
    ),
    "a negated or": (
        "const float* x, float* y, int w, int h",
        "int c = blockIdx.x * blockDim.x + threadIdx.x; int r = blockIdx.y * blockDim.y + threadIdx.y; if (c >= w || r >= h) return; y[c * h + r] = x[r * w + c];",
        ["in x[h, w]", "out y[w, h]"], ("cdiv(w, 16)", "cdiv(h, 16)", "1"), ("16", "16", "1"),
    ),
    "a row a thread": (
        "const float* x, float* y, int rows, int cols",
        "int r = blockIdx.x * blockDim.x + threadIdx.x; if (r >= rows) return; const float* row = x + r * cols; float m = row[0];"
        " for (int j = 1; j < cols; j++) m = fmaxf(m, row[j]); y[r] = m;",
        ["in x[rows, cols]", "out y[rows]"], ("cdiv(rows, 256)", "1", "1"), ("256", "1", "1"),
    ),
    "a row a block": (
        "const float* x, float* y, int rows, int d",
        "int r = blockIdx.x; if (r >= rows) return; for (int j = threadIdx.x; j < d; j += blockDim.x) y[r * d + j] = x[r * d + j];",
        ["in x[rows, d]", "out y[rows, d]"], ("rows", "1", "1"), ("256", "1", "1"),
    ),
    "an interior guard": (
        "const float* x, float* y, int n", f"{GID} if (i > 0 && i < n - 1) y[i] = x[i - 1] + x[i] + x[i + 1];",
        ["in x[n]", "io y[n]"], ("cdiv(n, 256)", "1", "1"), ("256", "1", "1"),
    ),
    "a clamp": (
        "const float* x, float* y, int n", f"{GID} if (i < n) {{ int l = max(i - 1, 0), r = min(i + 1, n - 1); y[i] = x[l] + x[r]; }}",
        ["in x[n]", "out y[n]"], ("cdiv(n, 256)", "1", "1"), ("256", "1", "1"),
    ),
    "a condition on data": (
        "const float* x, float* y, int n", f"{GID} if (i < n) if (x[i] > 0) y[i] = x[i];", ["in x[n]", "io y[n]"],
        ("cdiv(n, 256)", "1", "1"), ("256", "1", "1"),
    ),
    "both branches": (
        "const float* x, float* y, int n", f"{GID} if (i < n) {{ if (x[i] > 0) {{ y[i] = x[i]; }} else y[i] = 0; }}",
        ["in x[n]", "out y[n]"], ("cdiv(n, 256)", "1", "1"), ("256", "1", "1"),
    ),
    "every second element": ("float* y, int n", f"{GID} if (i < n) y[2 * i] = 1;", ["io y[2 * n - 1]"], ("cdiv(n, 256)", "1", "1"), ("256", "1", "1")),
    "a histogram of bytes": (
        "const unsigned char* x, unsigned* h, int n", f"{GID} if (i < n) atomicAdd(&h[x[i]], 1u);", ["in x[n]", "io h[256]: zeros"],
        ("cdiv(n, 256)", "1", "1"), ("256", "1", "1"),
    ),
    "a block reduction": (
        "const float* x, float* out, int n",
        "__shared__ float s[128]; float v = 0; for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) v += x[i];"
        " s[threadIdx.x] = v; __syncthreads(); for (int t = blockDim.x / 2; t > 0; t >>= 1) { if (threadIdx.x < t) s[threadIdx.x] += s[threadIdx.x + t];"
        " __syncthreads(); } if (threadIdx.x == 0) atomicAdd(out, s[0]);",
        ["in x[n]", "io out[1]: zeros"], ("64", "1", "1"), ("128", "1", "1"),
    ),
    "a flat index taken apart": (
        "const float* x, const float* bias, float* y, int rows, int cols",
        f"{GID} if (i < rows * cols) {{ int c = i % cols; y[i] = x[i] + bias[c]; }}",
        ["in x[cols * rows]", "in bias[cols]", "out y[cols * rows]"], ("cdiv(cols * rows, 256)", "1", "1"), ("256", "1", "1"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", INFERRED)
def test_inference_without_a_launch(case):
    parameters, body, expected, grid, block = INFERRED[case]
    spec = spec_of(kernel(parameters, body))
    assert spec.unknown == () and spec.launchable
    got = buffers(spec)
    if case == "a flat index taken apart":
        # More than is read is no harm to an input; the product is as good as the factor.
        assert got[0] == expected[0] and got[2] == expected[2] and got[1] in (expected[1], "in bias[cols * rows]")
    else:
        assert got == expected
    assert (spec.grid, spec.block) == (grid, block)
    assert all(len(dim.values) > 3 and dim.origin is Origin.DEFAULT for dim in spec.dims)


@pytest.mark.parametrize(
    ("parameters", "body", "sentence"),
    [
        ("float* y, int n", "", "the size of y is not known: the kernel's body is empty"),
        ("float* y, int n", f"{GID} y[i] = 1;", "nothing bounds the index of a thread in x"),
        (
            "const float* x, const int* idx, float* y, int n",
            f"{GID} if (i < n) y[i] = x[idx[i] * idx[i]];",
            "the values of idx decide",
        ),
        (
            "const int* p, const float* v, float* y, int n",
            f"{GID} if (i < n) for (int j = p[i]; j < p[i + 1]; j++) y[i] += v[j];",
            "the values of p decide",
        ),
        ("float* y, int n, int shift", f"{GID} if (i < n) y[i] = 1 << shift;", "the value of shift is not known"),
        (
            "float* y, int n",
            f"{GID} extern __shared__ float s[]; fill(s); if (i < n) y[i] = s[0];",
            "the size of the dynamic shared memory is not known",
        ),
        ("float** y, int n", f"{GID} if (i < n) y[i][0] = 1;", "y is a pointer to pointers"),
        ("float* y, Params p, int n", f"{GID} if (i < n) y[i] = p.a;", "p is a Params by value"),
        (
            "float* y, int n",
            f"{GID} float* p = y; swap(p); if (i < n) p[i] = 1;",
            "the size of y is not known: it is passed on as a pointer",
        ),
        ("float* y, int n", f"{GID} if (i < n) fill(y, i);", "it is passed on as a pointer"),
        ("float* y, int n", f"{GID} if (i < n) y[i = 1;", "the kernel's body cannot be read"),
        (
            "float* y, int n",
            f"{GID} int j = i; if (n > 3) j = 7; if (i < n) y[j] = 1;",
            "a subscript is not understood",
        ),
        ("float* y, int n", f"{GID} while (i < n) {{ y[i] = 1; i += 3; }}", "the grid is not known"),
        ("float* y, int n", f"{GID} while (y[i] < n) {{ y[i] = 1; i += 3; }}", "the size of y is not known"),
        (
            "float* y, int n, int d",
            "int r = blockIdx.x; if (r < n && threadIdx.x < d) y[r * d + threadIdx.x] = 1;",
            "a guard compares threadIdx with `d`",
        ),
        (
            "const float* x, float* y, int w, int h",
            "__shared__ float t[64][65]; int c = blockIdx.x * blockDim.x + threadIdx.x; int r = blockIdx.y * blockDim.y + threadIdx.y; if (c < w && r < h) t[threadIdx.y][threadIdx.x] = x[r * w + c]; __syncthreads(); if (c < w && r < h) y[r * w + c] = t[threadIdx.y][threadIdx.x];",
            "the shared memory is made for one size of block",
        ),
        (
            "float* y, int n",
            "auto g = cooperative_groups::this_grid(); int i = g.thread_rank(); if (i < n) y[i] = 1; g.sync();",
            "a grid-wide barrier",
        ),
        ("const float* x, float* m, int n", f"{GID} if (i < n) atomicMax((int*)m, 3);", "the size of m is not known"),
    ],
)
def test_what_is_not_certain_is_said_and_not_guessed(parameters, body, sentence):
    spec = spec_of(kernel(parameters, body))
    assert not spec.launchable
    assert any(sentence in reason for reason in spec.unknown), spec.unknown
    assert all(not reason.endswith(".") and "\n" not in reason for reason in spec.unknown)


def test_every_part_keeps_where_it_comes_from():
    spec = spec_of(
        "void vadd_cpu(const float* a, const float* b, float* c, int n) { for (int i = 0; i < n; i++) c[i] = a[i] + b[i]; }\n//dice: n = 1000 | 7; tol 1e-3\n"
        + VADD
    )
    assert dims(spec) == {"n": (1000, 7)} and spec.dims[0].origin is Origin.DIRECTIVE
    assert {b.origin for b in spec.buffers} == {Origin.INFERRED}
    assert (spec.origins["grid"], spec.origins["block"]) == (Origin.INFERRED, Origin.DEFAULT)
    assert (spec.reference.text, spec.reference.origin) == ("vadd_cpu", Origin.INFERRED)
    assert spec.tolerances[0].rtol == 1e-3


def host(body, above="", parameters=""):
    return f"{above}{VADD}void run({parameters}) {{\n{body}\n}}\n"


ALLOCATIONS = "float *a, *b, *c; cudaMalloc(&a, bytes); cudaMalloc((void**)&b, N * sizeof(float)); CHECK(cudaMallocManaged(&c, N * 4));"
SITES = {
    "literals": (
        host(
            f"const int N = 4096; size_t bytes = N * sizeof(float); {ALLOCATIONS} vadd<<<(N + 255) / 256, 256>>>(a, b, c, N);"
        ),
        4096,
        "cdiv(n, 256)",
        "n",
    ),
    "a macro": (
        host(
            f"size_t bytes = N * sizeof(float); {ALLOCATIONS} vadd<<<(N + B - 1) / B, B>>>(a, b, c, N);",
            "#define N (1 << 14)\n#define B 128\n",
        ),
        1 << 14,
        "cdiv(n, 128)",
        "n",
    ),
    "a constexpr": (
        host(
            f"int bytes = sizeof(float) * N; {ALLOCATIONS} vadd<<<ceil_div(N, B), dim3(B)>>>(a, b, c, N);",
            "constexpr int B = 64, N = B * 100;\n",
        ),
        6400,
        "cdiv(n, 64)",
        "n",
    ),
    "dim3 locals": (
        host(
            f"int N = 5000; int bytes = N * 4; {ALLOCATIONS} dim3 block(256, 1, 1); dim3 grid = dim3((N + block.x - 1) / block.x); vadd<<<grid, block, 0, stream>>>(a, b, c, N);"
        ),
        5000,
        "cdiv(n, 256)",
        "n",
    ),
    "casts and ceil": (
        host(
            f"int N = 777; size_t bytes = (size_t)N * sizeof(float); {ALLOCATIONS} vadd<<<(int)ceil((float)N / 256), 256>>>((const float*)a, b, static_cast<float*>(c), N);"
        ),
        777,
        "cdiv(n, 256)",
        "n",
    ),
    "a helper": (
        host(
            f"int N = 9; int bytes = N * 4; {ALLOCATIONS} vadd<<<blocks(N, 32), 32>>>(a, b, c, N);",
            "static int blocks(int total, int width) { return (total + width - 1) / width; }\n",
        ),
        9,
        "cdiv(n, 32)",
        "n",
    ),
    "a function-like macro": (
        host(
            f"int N = 9; int bytes = N * 4; {ALLOCATIONS} vadd<<<CEIL(N, 32), 32>>>(a, b, c, N);",
            "#define CEIL(x, y) (((x) + (y) - 1) / (y))\n",
        ),
        9,
        "cdiv(n, 32)",
        "n",
    ),
    "thrust": (
        host(
            "int N = 100; thrust::device_vector<float> a(N), b(N); thrust::device_vector<float> c(N); vadd<<<(N + 31) / 32, 32>>>(thrust::raw_pointer_cast(a.data()), thrust::raw_pointer_cast(&b[0]), c.data().get(), N);"
        ),
        100,
        "cdiv(n, 32)",
        "n",
    ),
}


@pytest.mark.parametrize("case", SITES)
def test_a_launch_in_the_file(case):
    text, first, grid, extent = SITES[case]
    spec = spec_of(text)
    assert spec.unknown == () and spec.launchable
    assert spec.grid[0].replace(" ", "") == grid.replace(" ", "") and spec.origins["grid"] is Origin.LAUNCH_SITE
    assert dims(spec)["n"][0] == first and spec.dims[0].origin is Origin.LAUNCH_SITE
    assert [b.extents for b in spec.buffers] == [(extent,)] * 3 and {b.origin for b in spec.buffers} == {
        Origin.LAUNCH_SITE
    }
    assert [b.role.value for b in spec.buffers] == ["in", "in", "out"]


def test_a_size_that_only_the_run_decides_is_free_where_a_guard_bounds_it():
    text = host(
        "vadd<<<(count + 255) / 256, 256>>>(a, b, c, count);",
        parameters="const float* a, const float* b, float* c, int count",
    )
    spec = spec_of(text)
    assert spec.launchable and dims(spec) == {"n": CHECKS} and spec.grid[0] == "cdiv(n, 256)"
    assert {b.origin for b in spec.buffers} == {Origin.INFERRED}


def test_a_kernel_without_a_guard_is_run_at_its_own_size_only():
    unguarded = "__global__ void k(const float* x, float* y, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; y[i] = x[i] * n; }\n"
    spec = spec_of(
        unguarded
        + "int main() { int n = 1024; float *x, *y; cudaMalloc(&x, n * 4); cudaMalloc(&y, n * 4); k<<<n / 256, 256>>>(x, y, n); }"
    )
    assert spec.launchable and dims(spec) == {"n": (1024,)}


def test_a_grid_that_rounds_down_is_not_blamed_on_the_kernel():
    text = host("int N = 1024; vadd<<<N / 256, 256>>>(a, b, c, N);", parameters="float* a, float* b, float* c")
    assert dims(spec_of(text)) == {"n": (1024,)}


def test_a_constant_that_the_kernel_has_built_in_stays_fixed():
    text = "#define N 512\n__global__ void k(float* y, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n && i < N) y[i] = 1; }\nint main() { float* y; cudaMalloc(&y, N * 4); k<<<2, 256>>>(y, N); }"
    spec = spec_of(text)
    assert spec.launchable and dims(spec) == {"n": (512,)}


def test_of_two_launches_the_larger_counts():
    text = host(
        "const int N = 100; vadd<<<(N + 31) / 32, 32>>>(a, b, c, N); { const int M = 5000; vadd<<<(M + 31) / 32, 32>>>(a, b, c, M); }",
        parameters="float* a, float* b, float* c",
    )
    assert dims(spec_of(text))["n"][:3] == (5000, 100, 1)


def test_a_variable_that_changes_has_no_value():
    text = host(
        "int N = 100; if (argc > 1) N = atoi(argv[1]); vadd<<<(N + 255) / 256, 256>>>(a, b, c, N);",
        parameters="int argc, char** argv, float* a, float* b, float* c",
    )
    assert dims(spec_of(text)) == {"n": CHECKS}


def test_an_empty_body_takes_sizes_from_its_launch_and_roles_from_the_reference():
    text = """void add_cpu(const float* x, float* y, int n) { for (int i = 0; i < n; i++) y[i] = x[i] + 1; }
__global__ void add(const float* x, float* y, int n) {
}
int main() { const int n = 2048; float *x, *y; cudaMalloc(&x, n * sizeof(float)); cudaMalloc(&y, n * sizeof(float)); add<<<(n + 127) / 128, 128>>>(x, y, n); }
"""
    spec = spec_of(text)
    assert spec.launchable and buffers(spec) == ["in x[n]", "out y[n]"] and dims(spec)["n"][:2] == (2048, 1)
    assert spec.reference.text == "add_cpu"


@pytest.mark.parametrize(
    ("above", "launch", "template"),
    [
        ("", "k<float, 64><<<1, 64>>>(x);", {"T": "float", "N": "64"}),
        ("constexpr int W = 32;\n", "k<double, W><<<1, W>>>(x);", {"T": "double", "N": "32"}),
        ("//dice: with T = int, N = 8; n = 3\n", "k<float, 64><<<1, 64>>>(x);", {"T": "int", "N": "8"}),
        ("", "float* x; k<<<1, 64>>>(x);", {"T": "float", "N": "128"}),
    ],
)
def test_template_arguments(above, launch, template):
    text = f"{above}template <typename T, int N = 128> __global__ void k(T* x) {{ }}\nvoid run() {{ {launch} }}\n"
    assert spec_of(text).template == template


def test_a_template_without_arguments_is_not_guessed():
    text = (
        "template <typename T> __global__ void k(T* x) {}\ntemplate <class U> void run(U* x) { k<U><<<1, 64>>>(x); }\n"
    )
    assert any(
        "the template argument T is not known: write `with T = float`" in reason for reason in spec_of(text).unknown
    )


def test_an_explicit_instantiation_counts():
    text = "template <typename T> __global__ void k(T* x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] = 1; }\ntemplate __global__ void k<double>(double* x, int n);\n"
    spec = spec_of(text)
    assert spec.template == {"T": "double"} and spec.launchable


@pytest.mark.parametrize(
    ("function", "found"),
    [
        ("void vadd_cpu(const float* a, const float* b, float* c, int n) {}", "vadd_cpu"),
        ("static void cpu_vadd(float* a, float* b, float* c, int n) {}", "cpu_vadd"),
        ("void vaddCPU(const float* x, const float* y, float* z, int count) {}", "vaddCPU"),
        ("void vadd_gold(float const* a, const float* b, float* c, int n) {}", "vadd_gold"),
        ("void add(const float* a, const float* b, float* c, int n) { c[0] = 1; }", "add"),
        ("void vadd_cpu(const double* a, const float* b, float* c, int n) {}", None),
        ("float vadd_cpu(const float* a, int n) { return 0; }", None),
        ("void run(const float* a, const float* b, float* c, int n) { vadd<<<1, 2>>>(a, b, c, n); }", None),
        ("__device__ void vadd_ref(const float* a, const float* b, float* c, int n) {}", None),
        ("void other(const float* a, float* c, int n) {}", None),
    ],
)
def test_references(function, found):
    spec = spec_of(function + "\n" + VADD)
    assert (spec.reference.text if spec.reference else None) == found


@pytest.mark.parametrize(
    ("name", "found"), [("square", None), ("relu_tiled", "relu_cpu"), ("k_relu", "relu_cpu"), ("RELU2", "relu_cpu")]
)
def test_the_reference_of_one_kernel_is_not_taken_for_another(name, found):
    """A right kernel was said to be wrong because its parameters are those of another one's CPU function."""
    parameters = "(const float* x, float* y, int n)"
    text = f"""void relu_cpu{parameters} {{ for (int i = 0; i < n; i++) y[i] = x[i] > 0 ? x[i] : 0; }}
__global__ void relu{parameters} {{ int i = threadIdx.x; if (i < n) y[i] = x[i] > 0 ? x[i] : 0; }}
__global__ void {name}{parameters} {{ int i = threadIdx.x; if (i < n) y[i] = x[i] * x[i]; }}
"""
    reference = spec_of(text, name).reference
    assert (reference.text if reference else None) == found


def test_kernel_suffixes_are_no_part_of_the_name():
    text = "void vadd_cpu(const float* a, float* c, int n) {}\n__global__ void vadd_kernel(const float* a, float* c, int n) {}\n"
    assert spec_of(text).reference.text == "vadd_cpu"


def test_an_error_in_the_directive_stops_the_launch():
    spec = spec_of("//dice: n = 3; ot c[n]\n" + VADD)
    assert not spec.launchable and "unknown word `ot`" in spec.unknown[0]


def test_directive_constants_and_skip():
    spec = spec_of("#define B 64\n//dice: n = 3; launch <<<cdiv(n, B), B>>>; skip\n" + VADD)
    assert spec.skip and not spec.launchable and spec.constants == {"B": 64} and spec.unknown == ()


def test_an_index_buffer_holds_indices():
    text = kernel(
        "const float* x, const int* idx, float* y, int n", f"{GID} if (i < n) {{ int j = idx[i]; y[i] = x[j]; }}"
    )
    spec = spec_of(
        text
        + "int main() { const int n = 100; float *x, *y; int* idx; cudaMalloc(&x, 50 * sizeof(float)); cudaMalloc(&y, n * sizeof(float)); cudaMalloc(&idx, n * sizeof(int)); k<<<1, 128>>>(x, idx, y, n); }"
    )
    assert spec.launchable and buffers(spec) == ["in x[50]", "in idx[n]: int(0,50)", "out y[n]"]


def test_a_size_that_one_block_must_hold_is_not_made_larger():
    """The launch of llm.c's `global_norm_aggregate`: one block, its threads beyond `count` idle."""
    text = (
        kernel(
            "float* out, int count",
            "float v = threadIdx.x < count ? out[threadIdx.x] : 0.0f; if (threadIdx.x == 0) out[0] = v;",
        )
        + "void run(float* out, int grid) { k<<<1, 1024>>>(out, grid); }\n"
    )
    spec = spec_of(text)
    assert spec.launchable and max(dims(spec)["count"]) == 1024 and spec.block == ("1024", "1", "1")


TILED = """void k_cpu(const float* A, float* C, int n) { for (int i = 0; i < n; i++) for (int j = 0; j < n; j++) C[i * n + j] = A[i * n + j]; }
__global__ void k(const float* A, float* C, int n) {
    int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
    %s
}
int main() { const int N = 64; float *a, *c; cudaMalloc(&a, N * N * 4); cudaMalloc(&c, N * N * 4); dim3 t(16, 16), b(%s, %s); k<<<b, t>>>(a, c, N); }
"""


@pytest.mark.parametrize(
    ("body", "blocks", "free"),
    [
        ("C[row * n + col] = A[row * n + col];", "N / 16", False),
        ("if (row < n && col < n) C[row * n + col] = A[row * n + col];", "N / 16", False),
        ("if (row < n && col < n) C[row * n + col] = A[row * n + col];", "(N + 15) / 16", True),
        (
            "float s = 0; for (int m = 0; m < n / 16; m++) s += m; if (row < n && col < n) C[row * n + col] = A[row * n + col] + s;",
            "(N + 15) / 16",
            False,
        ),
        (
            "float s = 0; for (int m = 0; m < (n + 15) / 16; m++) s += m; if (row < n && col < n) C[row * n + col] = A[row * n + col] + s;",
            "(N + 15) / 16",
            True,
        ),
    ],
)
def test_a_kernel_that_relies_on_whole_tiles_is_run_at_its_own_size_only(body, blocks, free):
    spec = spec_of(TILED % (body, blocks, blocks))
    assert spec.launchable and spec.reference is not None
    assert dims(spec)["n"][0] == 64 and (len(spec.dims[0].values) > 1) == free


def test_a_tile_constant_in_an_array_is_still_a_constant():
    body = "__shared__ float s[TILE][TILE + 1]; int row = blockIdx.y * TILE + threadIdx.y; int col = blockIdx.x * TILE + threadIdx.x; if (row < n && col < n) y[row * n + col] = s[0][0];"
    spec = spec_of("#define TILE 8\n" + kernel("float* y, int n", body))
    assert spec.launchable and buffers(spec) == ["out y[n, n]"]
    assert (spec.grid, spec.block) == (("cdiv(n, 8)", "cdiv(n, 8)", "1"), ("8", "8", "1"))


def test_a_host_variable_of_the_name_of_a_parameter_is_no_constant_that_the_kernel_has_built_in():
    text = (
        VADD
        + "int main() { const int n = 4096; float *a, *b, *c; cudaMalloc(&a, n * 4); cudaMalloc(&b, n * 4); cudaMalloc(&c, n * 4); vadd<<<(n + 255) / 256, 256>>>(a, b, c, n); }"
    )
    assert dims(spec_of(text)) == {"n": (4096, 1, 31, 33, 1000, 4097)}
