"""What is found in CUDA text, finished or not."""

import pytest

from dice_lsp.source.headers import read_parameters, template_defaults, template_names
from dice_lsp.source.kernels import comment_start, parse
from dice_lsp.source.slice import device_slice

LLM_C_HEADER = """\
#pragma once
#include "common.cuh"
__global__ void scale_kernel(float* __restrict__ out, const float* inp, float s, size_t n) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) { out[i] = inp[i] * s; }
}
"""


def names(text):
    return [kernel.name for kernel in parse(text).kernels]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("__global__ void k() {}", ["k"]),
        ("void __global__ k() {}", ["k"]),
        ("static __global__ void k() {} inline __global__ void j() {}", ["k", "j"]),
        ("__global__ static inline void k(int n) {}", ["k"]),
        ('extern "C" __global__ void k() {}', ["k"]),
        ('extern "C" {\n__global__ void k() {}\n}\n__global__ void j() {}', ["k", "j"]),
        ("template <typename T> __global__ void k(T* x) {}", ["k"]),
        ("template <int A, int B = (A > 2 ? 1 : 2)>\n__global__ void k(int* x) {}", ["k"]),
        (
            "template <template <class> class V, class T = std::vector<std::vector<int>>>\n__global__ void k(V<T> x) {}",
            ["k"],
        ),
        ("template <> __global__ void k<float>(float* x) {}", ["k"]),
        ("__global__ void __launch_bounds__(256, 2) k() {}", ["k"]),
        ("__global__ __launch_bounds__(Traits<T>::N, 2) void k() {}", ["k"]),
        ("__launch_bounds__(128) __global__ void k() {}", ["k"]),
        ("[[maybe_unused]] __global__ void k() {}", ["k"]),
        ("__attribute__((used)) __global__ void k() {}", ["k"]),
        ("__global__ __cluster_dims__(2, 1, 1) void k() {}", ["k"]),
        ("API MACRO(3) __global__ void k() {}", ["k"]),
        ("#define KERNEL __global__ void\nKERNEL k(int n) {}", ["k"]),
        ("namespace a { namespace b::c {\n__global__ void k() {} } }", ["k"]),
        ("namespace { __global__ void k() {} }", ["k"]),
        ("__global__ void k(int n);\n__global__ void k(int n) {}", ["k"]),
        ("__global__ void k(float4 a = {1, 2, 3, 4}, int n = f(3)) {}", ["k"]),
        ("struct S { int a; };\n__global__ void k(S s) {}", ["k"]),
        (
            "struct __align__(16) S { float x[4]; __device__ float f() const { return x[0]; } };\n__global__ void k() {}",
            ["k"],
        ),
        ("// __global__ void no() {}\n/* __global__ void no() {} */\n__global__ void k() {}", ["k"]),
        ('const char* s = "__global__ void no() {}";\n__global__ void k() {}', ["k"]),
        ('const char* s = R"(__global__ void no() {)";\n__global__ void k() {}', ["k"]),
        ("#define X __global__ void no() {}\n__global__ void k() {}", ["k"]),
        ("#if 0\n__global__ void no() {\n#endif\n__global__ void k() {}", ["k"]),
        (
            "#ifdef A\n__global__ void k(float* x) {\n#else\n__global__ void k(double* x) {\n#endif\n x[0] = 1; }\n__global__ void j() {}",
            ["k", "j"],
        ),
        (
            "__global__ void k() {\n#ifdef A\n if (1) {\n#else\n if (2) {\n#endif\n }\n}\n__global__ void j() {}",
            ["k", "j"],
        ),
        ("__global__ void k() {\n#if A\n}\n#else\n f(); }\n#endif\n__global__ void j() {}", ["k", "j"]),
        ("__global__ void k() { char c = '{'; int n = 1'000; char d = '\\''; }\n__global__ void j() {}", ["k", "j"]),
        ("__global__ void k(\n    const float* x, // the input {\n    int n /* size ( */) {\n}", ["k"]),
        ("extern __shared__ float smem[];\n__global__ void k() { extern __shared__ S sh; }", ["k"]),
        ("auto f = [](int i) { return i; };\n__global__ void k() {}", ["k"]),
        ("int table[] = {1, 2, 3};\nenum E { A, B };\n__global__ void k() {}", ["k"]),
        ("class A { public: A(int x) : a{x}, b(2) { } int a, b; };\n__global__ void k() {}", ["k"]),
        ("template <class T> requires std::floating_point<T>\n__global__ void k(T* x) {}", ["k"]),
        ("\ufeff__global__ void k() {}", ["k"]),
        ("__global__ void k() {\r\n}\r\n\f\r\n__global__ void j() {}", ["k", "j"]),
        ("__global__ void größe(float* ✅) {}", ["größe"]),
        ("", []),
        ("void host() {}", []),
    ],
)
def test_definitions_are_found(text, expected):
    assert names(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("__global__ void k(int n) {\n  if (n < 3) {\n\n__global__ void j() {}", ["k", "j"]),
        ('__global__ void k(int n) {\n  x = "open;\n}\n__global__ void j() {}', ["k", "j"]),
        ("void host() {\n  foo(;\n\n//dice: n = 3\ntemplate <int N>\n__global__ void j() {}", ["j"]),
        ("int x = foo(\n__global__ void j() {}", ["j"]),
        ("__global__ void k(int n\n\n__global__ void j() {}", ["j"]),
        ("}}}\n__global__ void j() {}", ["j"]),
        ("namespace a {\n__global__ void j() {", ["j"]),
        ("__global__ void j(float* x) {", ["j"]),
        ("__global__ void k() { a[ }\n__global__ void j() { ( }\n__global__ void i() {}", ["k", "j", "i"]),
        ("struct S { int a;\n__global__ void j() {}", ["j"]),
        ("/* open\n__global__ void j() {}", []),
        ("__global__", []),
        ("__global__ void", []),
        ("__global__ void k", []),
        ("__global__ {", []),
        ("template <typename T\n__global__ void j(T* x) {}\n__global__ void i() {}", ["i"]),
    ],
)
def test_a_broken_part_does_not_lose_the_kernels_after_it(text, expected):
    assert [name for name in names(text) if name in expected] == expected


def test_a_broken_kernel_ends_before_the_comments_of_the_next():
    text = "__global__ void k(int n) {\n  if (n < 3) {\n    n++;\n\n//dice: n = 3\n__global__ void j() {}"
    k, j = parse(text).kernels
    assert text[k.body_start : k.body_end] == "\n  if (n < 3) {\n    n++;"
    assert comment_start(text, j) == text.index("//dice")


@pytest.mark.parametrize(
    ("text", "spelling"),
    [
        ("int a;\n\n// note\ntemplate <int N>\n__global__ void k() { }", "template <int N>\n__global__ void k() { }"),
        ('extern "C" __global__ void k() { } int b;', 'extern "C" __global__ void k() { }'),
        ('extern "C" { int a; __global__ void k() { } }', "__global__ void k() { }"),
        (
            "#include <a>\n[[nodiscard]] static\n__global__\nvoid\nk()\n{\n}\n",
            "[[nodiscard]] static\n__global__\nvoid\nk()\n{\n}",
        ),
        ("int x;;__global__ void k() {};", "__global__ void k() {}"),
    ],
)
def test_a_kernel_begins_with_its_template_and_attributes(text, spelling):
    (kernel,) = parse(text).kernels
    assert text[kernel.start : kernel.end] == spelling
    assert text[kernel.body_start - 1] == "{" and text[kernel.body_end] == "}"


def test_the_record_of_a_kernel():
    text = """namespace ours { namespace {
template <typename T, int BS = 256>
__global__ void __launch_bounds__(BS, Traits<T>::blocks) // two blocks
scale(const T* __restrict__ x, T *y,
      float z[], const float4 s, int n = 3) {
}
} }
extern "C" __global__ void plain(unsigned long long* const p, float const* const* q, std::pair<int, int> r, int (&a)[3]) {}
"""
    scale, plain = parse(text).kernels
    assert (scale.qualified_name, scale.line, scale.template, scale.template_spelling) == (
        "ours::scale",
        3,
        ("T", "BS"),
        "typename T, int BS = 256",
    )
    assert scale.launch_bounds == "BS, Traits<T>::blocks" and not scale.extern_c and plain.extern_c
    assert [(p.name, p.spelling, p.element, p.pointer, p.const, p.indirections) for p in scale.parameters] == [
        ("x", "const T* __restrict__", "T", True, True, 1),
        ("y", "T *", "T", True, False, 1),
        ("z", "float[]", "float", True, False, 1),
        ("s", "const float4", "float4", False, True, 0),
        ("n", "int", "int", False, False, 0),
    ]
    assert [(p.name, p.element, p.pointer, p.const, p.indirections) for p in plain.parameters] == [
        ("p", "unsigned long long", True, False, 1),
        ("q", "float", True, True, 2),
        ("r", "std::pair<int, int>", False, False, 0),
        ("a", "int", True, False, 2),
    ]


@pytest.mark.parametrize(
    ("inner", "expected"),
    [
        ("", []),
        ("void", []),
        (" ", []),
        ("int", [("", "int")]),
        ("unsigned n", [("n", "unsigned int")]),
        ("const float *", [("", "float")]),
        ("T", [("", "T")]),
        ("T x", [("x", "T")]),
        ("std::size_t n", [("n", "size_t")]),
        ("std::size_t", [("", "size_t")]),
        ("const int* __restrict__ const p", [("p", "int")]),
        ("float x[16][16]", [("x", "float")]),
        ("Vec<float, 4> v, Map<int, Map<int, int>> m", [("v", "Vec<float, 4>"), ("m", "Map<int, Map<int, int>>")]),
        ("struct S s, enum E e", [("s", "S"), ("e", "E")]),
        ("float /* in */ *a, // first\n float *b", [("a", "float"), ("b", "float")]),
        ("long long int n", [("n", "long long")]),
        ("int n = (1 < 2)", [("n", "int")]),
        ("void (*f)(int, int)", [("f", "void")]),
        ("const __grid_constant__ Params p", [("p", "Params")]),
        ("__half2 *h", [("h", "__half2")]),
        ("bool flag", [("flag", "bool")]),
        ("int n, ...", [("n", "int")]),
        ("typename A::type x", [("x", "A::type")]),
    ],
)
def test_parameters(inner, expected):
    assert [(p.name, p.element) for p in read_parameters(inner)] == expected


def test_template_parameters():
    spelling = "typename T, int N = 4, template <class> class V, class... Rest, bool B = (N > 2), typename = void"
    assert template_names(spelling)[:3] == ("T", "N", "V") and "Rest" in template_names(spelling)
    assert template_defaults("typename T = float, int N = (A > 2 ? 1 : 2)") == {"T": "float", "N": "(A > 2 ? 1 : 2)"}


def test_functions_that_are_no_kernels():
    text = """
__device__ float square(float x) { return x * x; }
__host__ __device__ inline float both(float x) { return x; }
void saxpy_cpu(int n, float a, const float* x, float* y) { for (;;) {} }
namespace n { template <class T> T id(T t) { return t; } struct S { __device__ void m() {} float operator()(int i) const { return i; } }; }
auto trailing(int n) -> float { return n; }
static inline int cdiv(int a, int b) { return (a + b - 1) / b; }
__global__ void k() {}
int main(int argc, char** argv) { return 0; }
"""
    functions = {f.qualified_name: f for f in parse(text).functions}
    assert list(functions) == [
        "square",
        "both",
        "saxpy_cpu",
        "n::id",
        "n::S::m",
        "n::S::operator",
        "trailing",
        "cdiv",
        "main",
    ]
    assert [(f.is_host, f.is_device) for f in list(functions.values())[:3]] == [
        (False, True),
        (True, True),
        (True, False),
    ]
    assert functions["trailing"].return_type == "float" and functions["saxpy_cpu"].return_type == "void"
    assert functions["cdiv"].return_type == "int"
    assert text[functions["saxpy_cpu"].body_start : functions["saxpy_cpu"].body_end] == " for (;;) {} "


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("k<<<1, 2>>>();", ("k", None, "1", "2", None, None, (), True)),
        (
            "ours::k<float, 4><<<g, b, 0, st>>>(x, (float*)y, f(a, b));",
            ("k", "float, 4", "g", "b", "0", "st", ("x", "(float*)y", "f(a, b)"), True),
        ),
        (
            "k<A<B<int>>><<<dim3(1, 2), dim3(3)>>>(x);",
            ("k", "A<B<int>>", "dim3(1, 2)", "dim3(3)", None, None, ("x",), True),
        ),
        ("foo< < < 1, 1 > > >();", ("foo", None, "1", "1", None, None, (), True)),
        (
            "k<<<{1, 2}, n > 3 ? 4 : 5>>>(x // the input\n, y);",
            ("k", None, "{1, 2}", "n > 3 ? 4 : 5", None, None, ("x", "y"), True),
        ),
        ("k<<<(n + 255) / 256, 256>>>", ("k", None, "(n + 255) / 256", "256", None, None, (), False)),
        ("k<<<1, ", ("k", None, "1", None, None, None, (), False)),
        ("if (n) k <<< 1, a[2] >>> (x)", ("k", None, "1", "a[2]", None, None, ("x",), True)),
    ],
)
def test_launches(text, expected):
    (site,) = parse(f"void run(int n) {{\n  {text}\n}}\n").launches
    assert (
        site.name,
        site.template_text,
        site.grid,
        site.block,
        site.smem,
        site.stream,
        site.arguments,
        site.complete,
    ) == expected
    assert site.function == "run"


def test_chevrons_elsewhere_are_no_launches():
    assert parse('// k<<<1, 1>>>()\nconst char* s = "k<<<1, 1>>>()";\nint f(int a) { return a <<= 3; }').launches == ()


def test_constants_fold_in_any_order():
    model = parse(
        "#define N (M * 2) // twice\n#define M 512\n#define F(x) x\n#define T float\n#define MULTI 1 + \\\n  2\n"
        "constexpr int K = N + 1, L = K * 2;\nstatic const unsigned BLOCK = 1 << 8;\nconst float pi = 3.14f;\nconst int a[] = {1, 2};\n"
        "enum { TILE = 16, NEXT };\n#ifdef X\n#define D 1\n#else\n#define D 2\n#endif\n#define U 3\n#undef U\nint global = 5;\n"
        "template <int Q> constexpr int twice = Q * 2;\nvoid f() { const int local = 3; }\n"
    )
    assert model.values == {"M": 512, "N": 1024, "K": 1025, "L": 2050, "BLOCK": 256, "TILE": 16, "NEXT": 17, "MULTI": 3}
    assert "D" not in model.constants and "U" not in model.constants


def test_includes():
    model = parse('#include <cuda_runtime.h>\n#  include "a/b.cuh" // note\n// #include <no>\n')
    assert [(i.text, i.quoted, i.line) for i in model.includes] == [("cuda_runtime.h", False, 0), ("a/b.cuh", True, 1)]


def test_declarations_and_instantiations():
    text = "__global__ void k(int n);\ntemplate <class T> __global__ void j(T* x);\ntemplate __global__ void j<float>(float* x);\n"
    found = [(d.name, d.template_arguments) for d in parse(text).declarations]
    assert found == [("k", None), ("j", None), ("j", "float")]


@pytest.mark.parametrize(
    ("above", "expected"),
    [
        ("// one\n// two\n", "// one\n"),
        ("int a; // not mine\n", "__global__"),
        ("// far\n\n", "__global__"),
        ("//dice: n = 3\n\n", "//dice"),
        ("/* block\n comment */\n", "/* block"),
        ("// a\n\n// b\n", "// b"),
        ("", "__global__"),
        ("}  // end\n// mine\r\n", "// mine"),
        ("    // indented\n    ", "// indented"),
    ],
)
def test_the_comment_block_above(above, expected):
    text = f"{above}__global__ void k() {{}}"
    (kernel,) = parse(text).kernels
    assert text[comment_start(text, kernel) :].startswith(expected)


def test_a_header_that_cannot_stand_alone_is_read_all_the_same():
    """clangd/clangd#2294: a `.cuh` has no compile command, and kernels in it are found and can be filled."""
    (kernel,) = parse(LLM_C_HEADER).kernels
    assert [p.element for p in kernel.parameters] == ["float", "float", "float", "size_t"]
    assert "scale_kernel" in device_slice(LLM_C_HEADER).text


def test_shared_struct_overlay_and_dependent_launch_bounds():
    """llvm/llvm-project#183879 and NVIDIA/warp#1968: nvcc takes both, so they are read."""
    text = """struct S { int a; };
template <typename T> struct Traits { static constexpr int N = 128; };
extern __shared__ S sh;
template <typename T>
__global__ void __launch_bounds__(Traits<T>::N, (sizeof(T) > 4 ? 1 : 2)) k(T* x) { extern __shared__ S sh; x[0] = sh.a; }
"""
    (kernel,) = parse(text).kernels
    assert kernel.launch_bounds == "Traits<T>::N, (sizeof(T) > 4 ? 1 : 2)" and kernel.template == ("T",)


def test_the_same_text_gives_the_same_model():
    assert parse("__global__ void k() {}") is parse("__global__ void k() " + "{}")


def test_kernels_of_one_name_have_ids_of_their_own() -> None:
    body = "__global__ void k(float* x) { x[0] = 1; }\n"
    text = "namespace a {\n" + body + "}\nnamespace b {\n" + body + "}\n" + body + body + body.replace("k(", "alone(")
    kernels = parse(text).kernels
    assert [kernel.id for kernel in kernels] == ["a::k", "b::k", "k@7", "k@8", "alone"]
    assert len({kernel.id for kernel in kernels}) == len(kernels)
    assert {kernel.name for kernel in kernels} == {"k", "alone"}


def test_comments_in_a_template_list_are_no_part_of_it() -> None:
    text = "template <const int A, // 16, M=16*4=64\n  int B = 2, /* x=1, */ typename T>\n__global__ void k(T* x) { }"
    (kernel,) = parse(text).kernels
    assert kernel.template == ("A", "B", "T")
    assert template_defaults("int A, // N=4, 5\n int B = 2") == {"B": "2"}
