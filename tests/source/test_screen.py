"""Fills that are refused as text, and honest ones that are not."""

import pytest

from dice_lsp.records import Document
from dice_lsp.source.kernels import parse
from dice_lsp.source.screen import screen_fill
from dice_lsp.source.selection import body_region, region

TEXT = "__global__ void k(float* x, int n) {\n    int i = threadIdx.x;\n    if (i < n) {\n        x[i] = 1;\n    }\n}\nint main() {}\n"


def screened(middle, marked=None):
    if marked is None:
        (kernel,) = parse(TEXT).kernels
        return screen_fill(body_region(Document("u", 1, TEXT), kernel), middle)
    start, end = marked.index("«"), marked.index("»") - 1
    found = region(Document("u", 1, marked.replace("«", "").replace("»", "")), start, end)
    return screen_fill(found, middle)


@pytest.mark.parametrize(
    "middle",
    [
        "\n    x[threadIdx.x] = 1.0f;\n",
        "",
        "// nothing\n",
        "/* } */ x[0] = '}' + \"{ # asm\"[0];",
        "\n#pragma unroll\n".replace("#pragma unroll", ""),
        "extern __shared__ float s[]; __shared__ int t[4]; __syncthreads();",
        "auto f = [](int i) { return i; }; x[0] = f(1);",
        "struct P { int a; } p = {1}; if (n) { for (;;) { break; } } else if (n > 1) { x[0] = (float)n; }",
        "a ? b : c; x[a < b ? 1 : 0] = 2;",
        "while (n) { switch (n) { case 1: break; default: n--; } }",
        'float y = __ldg(&x[0]); atomicAdd(&x[0], y); printf("%f\\n", y);',
        "const float2 v = make_float2(1.0f, 2.0f); reinterpret_cast<float4*>(x)[0] = {};",
        "int a = 1 % 2; x[a%n] = 5; bool b = !a;",
        "do { n--; } while (n); return;",
        "x[0] = __builtin_fabsf(x[0]);",
        "int thread = threadIdx.x; float open = x[thread], signal[2] = {open, 1}; x[0] = signal[0]; s.read(1);",
        "float open_count = 1; int system_id = 2;",
        "x[n?1:0] = 1; unsigned u = 3u >> 1;",
    ],
)
def test_honest_fills_pass(middle):
    assert screened(middle) is None


@pytest.mark.parametrize(
    ("middle", "reason"),
    [
        ("\n#include <cstdlib>\n", "preprocessor line: `#include <cstdlib>`"),
        ("x[0] = 1;\n  #define n 3\n", "preprocessor line"),
        ("a # b", "preprocessor"),
        ("\n%:include <x>\n", "preprocessor"),
        ("\n??=include <x>\n", "preprocessor"),
        ("x<:0:> = 1;", "digraph or trigraph `<:`"),
        ("if (n) <% x[0] = 1; %>", "digraph or trigraph `<%`"),
        ("x[0] = 1 ??! 2;", "digraph or trigraph `??!`"),
        ('asm volatile("trap;");', "inline assembly: `asm`"),
        ('__asm__("exit;");', "inline assembly"),
        ('_Pragma("once")', "a pragma"),
        ("}\nint evil() { return 1;", "closes the kernel's body early"),
        ("} int main() {", "closes the kernel's body early"),
        ("if (n) {", "leaves a `{` open"),
        ("x[0] = (1;", "leaves a `(` open"),
        ("x[0) = 1;", "closes another kind"),
        ("x[0]] = 1;", "closes a `]`"),
        ("/* open", "ends inside a comment"),
        ('printf("open);\n', "unfinished string"),
        ("char c = 'a;\n", "unfinished character"),
        ('R"(open', "unfinished string"),
        ("float f(float a) { return a; }", "defines a function of its own: `f`"),
        ("auto* g() { return x; }", "function of its own: `g`"),
        ("std::vector<int> h(int a) { return {}; }", "function of its own: `h`"),
        ("__device__ int q;", "function of its own: `__device__`"),
        ("template <int N> struct A {};", "a template"),
        ("x[0] = 1;\x00", "control character 0x00"),
        ("x[0]\x1b = 1;", "control character 0x1b"),
        ("x[0] = 1; \\", "line continuation"),
        ("x[0] = 1; // c \\\n y", "line continuation"),
        ("a \\\n b", "line continuation"),
        ('system("rm -rf ~");', "`system`"),
        ("std::system(0);", "`system`"),
        ('open("/etc/passwd", 0);', "`open`"),
        ("auto f = remove; f(0);", "`remove`"),
        ("std::thread t;", "`thread`"),
        ("x[0] = ::read(0, 0, 0);", "`read`"),
        ("auto f = system;", "`system`"),
        ("::execve(0, 0, 0);", "`execve`"),
        ("__builtin_trap();", "builtin `__builtin_trap`"),
        ("__attribute__((constructor)) int z;", "an attribute"),
        ("namespace a = b;", "a namespace"),
        ("std::ofstream o;", "`ofstream`"),
    ],
)
def test_fills_that_are_more_than_a_body_are_refused(middle, reason):
    answer = screened(middle)
    assert answer is not None and reason in answer
    assert not answer.endswith(".") and len(answer) < 120


@pytest.mark.parametrize(
    ("marked", "middle", "refused"),
    [
        ("__global__ void k() { «a;» }", "b; // done", "hides the rest of the line"),
        ("__global__ void k() { «a;» \n}", "b; // done", None),
        ("__global__ void k() { if (1) { «a;» } }", "} b; {", None),
        ("__global__ void k() { «if (1) {» a; } }", "if (2) {", None),
        ("__global__ void k() { «if (1) {» a; } }", "{ if (2) {", "open"),
        ("__global__ void k() { f«(1)»; }", "(2", "open"),
        ("__global__ void k() { f«(1)»; }", "(2))", "closes"),
        ("__global__ void k() { if (1) { «a;» \n\n__global__ void j() {}", "b;", None),
        ("__global__ void k() { if (1) { «a;» \n\n__global__ void j() {}", "} }", "closes"),
        ("__global__ void k() { x[«0»] = 1; }", "1] = x[2", None),
    ],
)
def test_brackets_are_judged_in_their_place(marked, middle, refused):
    answer = screened(middle, marked)
    assert (answer is None) if refused is None else (answer is not None and refused in answer)


MACROS = """
#define FOR(i, n) for (int i = 0; i < (n); ++i) {
#define END_FOR }
#define ENDING END_FOR
#define SQUARE(v) ((v) * (v))
__global__ void square(float* x, int n) { «;» }
"""


@pytest.mark.parametrize(
    ("middle", "refused"),
    [
        ("x[0] = SQUARE(x[0]);", None),
        ("END_FOR void g() FOR(i, 3)", "the macro `END_FOR`, whose brackets do not match"),
        ("FOR(i, 3) x[i] = 1; END_FOR", None),
        ("FOR(i, 3) x[i] = 1; }", "closes the kernel's body early"),
        ("FOR(i, 3) x[i] = 1;", "the macro `FOR`"),
        ("x[0] = 1; ENDING", "the macro `ENDING`"),
        ("float square = 1; x[0] = square < 2 ? square(3) : square;", None),
        ("if (n == 0) square(x, n - 1);", "calls the kernel `square`"),
        ("if (n == 0) square(x + max(1, 2), n);", "calls the kernel `square`"),
    ],
)
def test_macros_and_kernels_of_the_document(middle, refused):
    answer = screened(middle, MACROS)
    assert (answer is None) if refused is None else (answer is not None and refused in answer)
