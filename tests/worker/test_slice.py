"""The device part of a text: what stays, what goes, and that nothing moves."""

import re
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dice_lsp.source.kernels import parse
from dice_lsp.source.slice import IncludeKind, device_slice, kernel_slice_key, mask, slice_together

DATA = Path(__file__).parent.parent / "data" / "compile"


def kept(text: str, **options: object) -> str:
    """The slice with white space squeezed; a semicolon that stands alone says nothing."""
    return " ".join(device_slice(text, **options).text.split()).removeprefix("; ")  # type: ignore[arg-type]


def same_places(text: str, sliced: str) -> None:
    assert len(sliced) == len(text)
    for before, after in zip(text, sliced, strict=True):
        assert after == before or (after == " " and before not in "\r\n")


@pytest.mark.parametrize("name", ["vector_add.cu", "block_sum.cu", "many.cu", "many.cuh"])
def test_every_line_and_column_stays(name: str) -> None:
    text = (DATA / name).read_text()
    same_places(text, device_slice(text).text)


def test_host_code_goes_and_device_code_stays() -> None:
    sliced = device_slice((DATA / "many.cu").read_text())
    for word in ("hostOnly", "perThread", "launch(", "<<<", "record", "<limits>"):
        assert word not in sliced.text, word
    for word in (
        "nested",
        "generic",
        "weights",
        "counter",
        "kTile",
        "rounded",
        "Pair_t",
        "MODE_TWICE",
        "#define KERNEL",
    ):
        assert word in sliced.text, word
    assert {"launch", "hostOnly", "perThread", "record"} <= set(sliced.dropped)
    assert "KERNEL(scaled, *)" in sliced.text


KERNEL = "__global__ void k(float* x) { x[0] = BODY; }\n"


@pytest.mark.parametrize(
    ("host", "body"),
    [
        ("int main() { k<<<1, 2>>>(nullptr); auto f = [=] __device__ (int x) { return x; }; }", "1"),
        ("std::vector<int> v(10);", "1"),
        ('static std::map<std::string, std::function<void(int)>> table = {{"a", [](int) {}}};', "1"),
        ("class Host { std::string s; public: Host(); virtual ~Host() {} };", "1"),
        ("template <class T> std::unique_ptr<T> make(T t) { return std::make_unique<T>(t); }", "1"),
        ("using Strings = std::vector<std::string>;", "1"),
        ("typedef std::vector<float> Floats;", "1"),
        ("namespace fs = std::filesystem;", "1"),
        ("using namespace std;", "1"),
        ("using std::vector;", "1"),
        ('const int limit = std::atoi("12");', "1"),
        ("TEST(Suite, name) { EXPECT_EQ(1, 1); }", "1"),
        ('PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("k", &launch_k); }', "1"),
        ("#include <torch/extension.h>\ntorch::Tensor run(torch::Tensor x) { return x; }", "1"),
        ("#pragma omp parallel\n", "1"),
        ("extern int shared_with_main;", "1"),
        ("int helper(int);", "1"),
        ("static_assert(sizeof(std::string) == 32);", "1"),
        ("template class std::vector<int>;", "1"),
    ],
)
def test_host_items_go(host: str, body: str) -> None:
    text = f"{host}\n{KERNEL.replace('BODY', body)}"
    same_places(text, device_slice(text).text)
    assert kept(text) == " ".join(KERNEL.replace("BODY", body).split())


@pytest.mark.parametrize(
    ("item", "body"),
    [
        ("const int n = 4;", "n"),
        ("static constexpr float pi = 3.14f;", "pi"),
        ("constexpr int twice(int v) { return 2 * v; }", "twice(2)"),
        ("enum { A, B = 3 };", "B"),
        ("enum class Color : int { Red };", "int(Color::Red)"),
        ("struct P { float a; };", "P{1}.a"),
        ("typedef float real;", "real(1)"),
        ("using real = float;", "real(1)"),
        ("template <class T> struct Traits { static constexpr int n = 1; };", "Traits<int>::n"),
        ("template <> struct Traits<float> { static constexpr int n = 2; };", "Traits<float>::n"),
        ("namespace cg = cooperative_groups;", "cg::one()"),
        ("__device__ float f(float v) { return v; }", "f(1)"),
        ("#define DEV __device__ __forceinline__\nDEV float g(float v) { return v; }", "g(1)"),
        ("__constant__ float table[3] = {1, 2, 3};", "table[1]"),
        ("typedef struct { float a; } Q;", "Q{1}.a"),
        ("union U { int i; float f; };", "U{1}.f"),
        ("extern __shared__ float buffer[];", "buffer[0]"),
        ("template <typename T> __device__ T h(T v) { return v; }", "h(1.f)"),
        ("struct Op { __device__ float operator()(float v) const { return v; } };", "1"),
        ("__device__ float4 operator+(float4 a, float4 b) { return a; }", "1"),
    ],
)
def test_what_a_kernel_needs_stays(item: str, body: str) -> None:
    text = f"{item}\n{KERNEL.replace('BODY', body)}"
    assert kept(text) == " ".join(text.split())


def test_needs_are_followed_through_macros_and_types() -> None:
    text = (
        "constexpr int base = 3;\n#define SIZE (base * 2)\nstruct Inner { int a[SIZE]; };\nusing Alias = Inner;\n"
        "constexpr int unused = 9;\n" + KERNEL.replace("BODY", "sizeof(Alias)")
    )
    result = kept(text)
    assert "constexpr int base" in result and "struct Inner" in result and "unused" not in result


def test_the_variable_of_a_needed_type_goes_alone() -> None:
    text = "struct S { int a; } hostVariable;\n" + KERNEL.replace("BODY", "S{1}.a")
    assert kept(text).startswith("struct S { int a; } ; __global__")


def test_functions_to_keep_stay_with_what_they_need() -> None:
    text = (
        "#include <vector>\n#include <cuda_runtime.h>\nusing namespace std;\nstatic float step(float v) { return v + 1; }\n"
        "void reference(const float* x, float* y, int n) { vector<float> t(n); for (int i = 0; i < n; ++i) y[i] = step(x[i]); }\n"
        "int main() { return 0; }\n" + KERNEL.replace("BODY", "1")
    )
    result = kept(text, keep_functions=("reference",))
    assert "void reference" in result and "float step" in result and "#include <vector>" in result
    assert "using namespace std" in result and "main" not in result and "cuda_runtime" not in result
    assert "reference" not in kept(text)


def test_constexpr_functions_are_pointed_at() -> None:
    text = "constexpr int two() { return 2; }\n__device__ constexpr int four() { return 4; }\n" + KERNEL.replace(
        "BODY", "two() + four()"
    )
    marks = device_slice(text).constexpr_at
    assert [text[at : at + 9] for at in marks] == ["constexpr"] and marks == (0,)


def test_includes_are_sorted_out() -> None:
    text = (
        '#include <cuda_fp16.h>\n#include <cub/block/block_reduce.cuh>\n#include <vector>\n#include "mine.cuh"\n'
        "#include <cuda_runtime.h>\n#include <thrust/sort.h>\n#if 0\n#include <cuda/barrier>\n#endif\n"
        '#include </dev/zero>\n#include MACRO\n#embed "x"\n%:include "digraph.h"\n#/**/include /**/ <mma.h> // why\n'
    )
    includes = device_slice(text).includes
    kinds = {include.name: include.kind for include in includes}
    assert kinds["cuda_fp16.h"] is IncludeKind.DEVICE and kinds["mma.h"] is IncludeKind.DEVICE
    assert kinds["vector"] is IncludeKind.STANDARD and kinds["mine.cuh"] is IncludeKind.USER
    assert kinds["cuda_runtime.h"] is IncludeKind.BUILT_IN and kinds["thrust/sort.h"] is IncludeKind.HOST
    assert kinds["/dev/zero"] is kinds["MACRO"] is kinds['"x"'] is IncludeKind.REFUSED
    assert kinds.get("digraph.h", IncludeKind.USER) is IncludeKind.USER
    barrier = next(include for include in includes if include.name == "cuda/barrier")
    assert not barrier.unconditional and barrier.line == 7
    assert includes[0].unconditional
    assert "vector" not in device_slice(text).text and "mine.cuh" in device_slice(text).text


def test_an_include_guard_is_no_condition() -> None:
    text = "#ifndef H\n#define H\n#include <cuda_fp16.h>\n#ifdef X\n#include <mma.h>\n#endif\n#endif\n"
    first, second = device_slice(text).includes
    assert first.unconditional and not second.unconditional


def test_conditions_around_functions_stay_balanced() -> None:
    text = (
        '#ifdef A\nvoid host(int a) {\n#else\nvoid host() {\n#endif\n#if B\n  puts("");\n#endif\n}\n'
        "#ifndef C\n" + KERNEL.replace("BODY", "1") + "#endif\n"
    )
    result = device_slice(text).text
    same_places(text, result)
    opened = len(re.findall(r"#\s*if", result))
    assert opened == len(re.findall(r"#\s*endif", result)) > 0
    assert "__global__" in result


@pytest.mark.parametrize(
    "broken",
    [
        "__global__ void k(float* x) { if (x) { x[0] = 1; }\nint main() { return 0; }\n",
        "__global__ void k(float* x) { x[0] = 1; } x[1] = 2; }\n",
        "__global__ void k(float* x) { x[0] = ; }\n",
        "__global__ void k(float* x { x[0] = 1; }\n",
        "int main() { if (1) {\n}\n__global__ void k(float* x) { x[0] = 1; }\n",
        "__global__ void k(float* x) { x[0] = 1; }\n}\n",
        "__device__ float f( { return 1; }\n__global__ void k(float* x) { x[0] = f(); }\n",
    ],
)
def test_broken_device_code_is_not_lost(broken: str) -> None:
    """A compiler must see what is broken, else a broken text would pass."""
    result = device_slice(broken).text
    same_places(broken, result)
    tokens = " ".join(result.split())
    assert "__global__ void k" in tokens
    if "x[1] = 2" in broken:
        assert "x[1] = 2; }" in tokens
    if broken.endswith("}\n}\n"):
        assert tokens.count("}") == 2


def test_half_a_file_of_host_code_does_not_hide_a_kernel() -> None:
    text = "int f(std::vector<int> v) { return v.size(\n\n" + KERNEL.replace("BODY", "1") + "int main() { return 0; }\n"
    assert "__global__ void k(float* x) { x[0] = 1; }" in kept(text)


def test_line_ends_and_characters_of_all_kinds() -> None:
    text = (
        '// ünïcödé 𝛼\r\nint main() { puts("𝛼\f\u2028é"); }\r__global__ void k(float* x) { x[0] = 1; /* 𝛼 */ }\r\n'
        "void höst() { throw 1; }\r\n"
    )
    result = device_slice(text).text
    same_places(text, result)
    assert result.count("\r\n") == 3 and "main" not in result and "throw" not in result
    assert "x[0] = 1; /* 𝛼 */ }" in result


def test_headers_and_text_need_each_other() -> None:
    text = '#include "h.cuh"\n' + KERNEL.replace("BODY", "fromHeader() * size")
    header = "constexpr int size = 3;\nconstexpr int unused = 1;\nDEV int fromHeader();\nvoid host();\n"
    macros = "#define DEV __device__\n"
    parts = slice_together([text, header, macros])
    assert "size = 3" in parts[1].text and "DEV int fromHeader" in parts[1].text
    assert "unused" not in parts[1].text and "host" not in parts[1].text


def test_masking_knows_comments_and_literals() -> None:
    text = 'a /* b */ "c // d" \'e\' R"x(f" ) )x" 1\'000 // g \\\n h\ni'
    masked = mask(text)
    assert len(masked) == len(text)
    for hidden in "bcdefgh":
        assert hidden not in masked
    assert "1'000" in masked and masked.startswith("a ") and masked.endswith("\ni")


def key_of(text: str, name: str) -> str:
    kernels = parse(text).kernels
    kernel = next(k for k in kernels if k.name == name)
    return kernel_slice_key(device_slice(text).text, kernel, kernels)


TWO = "constexpr int n = 3;\n__global__ void a(float* x) { x[0] = n; }\n__global__ void b(float* x) { x[0] = 2; }\nint main() {}\n"


@pytest.mark.parametrize(
    ("change", "same"),
    [
        (lambda t: t.replace("x[0] = n;", "x[0]   =\n n; /* comment */"), True),
        (lambda t: t.replace("int main() {}", "int main() { a<<<1, 1>>>(0); return 1; }"), True),
        (lambda t: t.replace("x[0] = 2;", "x[0] = 3;"), True),
        (lambda t: "// head\n\n" + t, True),
        (lambda t: t.replace("x[0] = n;", "x[0] = n + 1;"), False),
        (lambda t: t.replace("n = 3", "n = 4"), False),
        (lambda t: "#define X 1\n" + t, False),
        (lambda t: "__device__ int g;\n" + t, False),
        (lambda t: t.replace("x[0] = n;", "x[0] = 'n';"), False),
    ],
)
def test_the_key_follows_what_the_kernel_depends_on(change: object, same: bool) -> None:
    assert (key_of(change(TWO), "a") == key_of(TWO, "a")) is same  # type: ignore[operator]


def test_kernels_of_one_text_have_keys_of_their_own() -> None:
    assert key_of(TWO, "a") != key_of(TWO, "b")


def test_a_kernel_that_launches_another_depends_on_it() -> None:
    text = "__global__ void child(float* x) { x[0] = 1; }\n__global__ void parent(float* x) { child<<<1, 1>>>(x); }\n"
    assert key_of(text, "parent") != key_of(text.replace("x[0] = 1", "x[0] = 2"), "parent")


def test_headers_count_for_the_key() -> None:
    kernel = parse(TWO).kernels[0]
    sliced = device_slice(TWO).text
    one = kernel_slice_key(sliced, kernel, headers={"h.cuh": "#define A 1\n"})
    assert one != kernel_slice_key(sliced, kernel, headers={"h.cuh": "#define A 2\n"})
    assert one == kernel_slice_key(sliced, kernel, headers={"h.cuh": "#define  A 1 // one\n"})


def test_a_directive_is_no_part_of_the_next_line() -> None:
    one = "#define A\n1\n__global__ void a(float* x) { x[0] = 1 A; }\n"
    other = "#define A 1\n\n__global__ void a(float* x) { x[0] = 1 A; }\n"
    assert key_of(one, "a") != key_of(other, "a")


def test_a_long_file_is_cut_in_time() -> None:
    part = "".join(
        f"void host{i}() {{ std::cout << {i}; }}\n__global__ void k{i}(float* x) {{ x[{i}] = {i}; }}\n"
        for i in range(3000)
    )
    started = time.monotonic()
    result = device_slice(part)
    assert time.monotonic() - started < 200
    assert "cout" not in result.text and result.text.count("__global__") == 3000


PIECES = st.sampled_from(
    [
        "__global__ void k(float* x) {",
        "}",
        "{",
        "#if A\n",
        "#endif\n",
        "#else\n",
        "int f() {",
        "struct S {",
        "};",
        ";",
        '"',
        "'",
        "/*",
    ]
    + [
        "*/",
        "//",
        "\\\n",
        "\r",
        "\n",
        "é",
        "𝛼",
        "<<<",
        ">>>",
        "template <class T>",
        "#include <vector>\n",
        "x = 1;",
        'R"(',
        ')"',
    ]
    + ["namespace n {", 'extern "C" {', "constexpr int c() {", "__device__ ", "\x00", "\u2028", "\ud800"]
)


@settings(max_examples=150, deadline=None)
@given(st.lists(PIECES, max_size=30).map("".join))
def test_no_text_breaks_it(text: str) -> None:
    result = device_slice(text)
    same_places(text, result.text)
    for kernel in parse(text).kernels:
        kernel_slice_key(result.text, kernel)
