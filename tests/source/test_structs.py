"""The members of plain structs, and None for what is not plain."""

import pytest
from attrs import evolve

from dice_lsp.records import Role
from dice_lsp.source.kernels import parse
from dice_lsp.source.launches import _Builder, launch_spec
from dice_lsp.source.structs import leaves


def read(text: str, name: str = "P", **constants: int) -> list[str] | None:
    found = leaves([text], name, constants)
    return None if found is None else [
        f"{leaf.designator}: {'const ' * leaf.const * leaf.pointer}{leaf.element}{'*' * leaf.pointer}" for leaf in found
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("struct P { const float* x; float *y; int n; };", ["x: const float*", "y: float*", "n: int"]),
        ("struct P { unsigned int a, b[2]; float *p, *q; };",
         ["a: unsigned int", "b[0]: unsigned int", "b[1]: unsigned int", "p: float*", "q: float*"]),
        ("typedef struct { int n; } P;", ["n: int"]),
        ("typedef struct tag { int n; } P;", ["n: int"]),
        ("#define N 2\nstruct P { int a[N][2]; // int hidden;\n };", ["a[0][0]: int", "a[0][1]: int", "a[1][0]: int", "a[1][1]: int"]),
        ("using real = float;\ntypedef real scalar;\nstruct P { scalar s; real* p; };", ["s: float", "p: float*"]),
        ("struct In { int stride; };\nstruct P { In in, two[2]; };", ["in.stride: int", "two[0].stride: int", "two[1].stride: int"]),
        ("struct P { struct In { int k; }; In in; };", ["in.k: int"]),
        ("struct P { float3 v; dim3 d; };",
         ["v.x: float", "v.y: float", "v.z: float", "d.x: unsigned int", "d.y: unsigned int", "d.z: unsigned int"]),
        ("enum Mode { A, B };\nstruct P { Mode mode; double d = 1.0; int e{3}; };", ["mode: int", "d: double", "e: int"]),
        ("struct alignas(16) P { int n; };", ["n: int"]),
        ("struct __align__(8) P { int n; __device__ int twice() const { return 2 * n; } P(int m) : n(m) {} static int c; };",
         ["n: int"]),
        ("struct P { public: int n; using T = int; enum { K = 3 } ; };", None),
        ("struct P { using T = int; enum Kind { K = 3 }; T n; };", ["n: int"]),
        ("struct P;\nstruct P { const char tag; volatile int n; float* __restrict__ p; };", ["tag: char", "n: int", "p: float*"]),
    ],
)  # fmt: skip
def test_members(text, expected):
    assert read(text, N=2) == expected


def test_a_template_with_its_arguments():
    text = "template <typename T, int N>\nstruct Work { T* data; T scale[N]; };"
    assert read(text, "ours::Work<float, 2>") == ["data: float*", "scale[0]: float", "scale[1]: float"]
    assert read(text, "Work<const double, 1>") == ["data: const double*", "scale[0]: double"]


@pytest.mark.parametrize(
    "text",
    [
        "struct Q { int n; };",
        "struct P : Q { int n; };",
        "class P { int n; };",
        "union P { int n; float f; };",
        "struct P { int n : 3; };",
        "struct P { int& n; };",
        "struct P { float** rows; };",
        "struct P { int a[M]; };",
        "struct P { virtual int f(); int n; };",
        "struct P { union { int a; float b; }; };",
        "struct P { void (*callback)(int); };",
        "struct P { private: int n; };",
        "struct P { int n; };\nnamespace other { struct P { int m; }; }",
        "template <class T> struct P { int n; };\ntemplate <> struct P<int> { int m; };",
        "struct P { P* next; int n }",
        "struct P { int a[100][100]; };",
        "struct P { };",
    ],
)
def test_what_is_not_plain_is_nothing(text):
    assert read(text) is None


def test_a_pointer_to_its_own_kind_is_a_pointer():
    assert read("struct P { P* next; int n; };") == ["next: P*", "n: int"]


PROGRAM = """
struct Work { const float* in; float* out; int n; float scale; };
__global__ void work(Work w) { int i = threadIdx.x; if (i < w.n) w.out[i] = w.in[i] * w.scale; }
int main() {
    const int n = 1 << 16;
    Work w;
    cudaMalloc((void**)&w.in, n * sizeof(float));
    cudaMalloc((void**)&w.out, n * sizeof(float));
    w.n = n;
    w.scale = 2.5f;
    work<<<n / 256, 256>>>(w);
}
"""


def spec_of(text):
    model = parse(text)
    return launch_spec(text, model.kernels[0], model)


def test_a_launch_fills_the_members_of_a_struct():
    spec = spec_of(PROGRAM)
    assert spec.launchable, spec.unknown
    assert [(buffer.name, buffer.role, buffer.extents) for buffer in spec.buffers] == [
        ("w.in", Role.IN, ("65536",)), ("w.out", Role.IO, ("65536",)),
    ]  # fmt: skip
    assert set(spec.scalars) == {"w.n", "w.scale"}
    assert spec.scalars["w.n"] == "65536" and float(spec.scalars["w.scale"]) == 2.5


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("w.scale = 2.5f;", ""), "the value of w.scale is not known"),
        (("cudaMalloc((void**)&w.out, n * sizeof(float));", ""), "the size of w.out is not known"),
        (("const float* in;", "const int* in;"), "the values of w.in may decide which memory is used"),
        (("struct Work {", "struct Base {}; struct Work : Base {"), "w is a Work by value"),
    ],
)
def test_a_member_that_is_not_known_is_named(change, words):
    spec = spec_of(PROGRAM.replace(*change))
    assert not spec.launchable and any(sentence.startswith(words) for sentence in spec.unknown), spec.unknown


def test_a_directive_fills_members():
    line = (
        "//dice: n = 1000 | 33; in w.in[n]; out w.out[n]; launch <<<cdiv(n, 256), 256>>>\n"
        "//dice: set w.n = n, w.scale = 2\n"
    )
    spec = spec_of(PROGRAM.partition("int main")[0].replace("__global__", line + "__global__"))
    assert spec.launchable, spec.unknown
    assert [(b.name, b.role) for b in spec.buffers] == [("w.in", Role.IN), ("w.out", Role.OUT)]
    assert spec.scalars["w.n"] == "n" and spec.dims[0].values == (1000, 33)


def test_made_up_sizes_are_no_case_beside_those_of_the_program(monkeypatch):
    text = """
    __global__ void k(float* x, int n) { int i = threadIdx.x; if (i < n) x[i] = 1; }
    int main() {
        float* x;
        cudaMalloc(&x, 64 * sizeof(float));
        k<<<1, 64>>>(x, 64);
        k<<<1, 32>>>(x, 32);
    }
    """
    assert [case.label for case in spec_of(text).cases] == ["launch at line 7"]
    found = _Builder.launches

    def second_made_up(builder):
        first, second = found(builder)
        return [first, evolve(second, free=frozenset({"n"}))]

    monkeypatch.setattr(_Builder, "launches", second_made_up)
    spec = spec_of(text)
    assert spec.launchable and spec.label == "launch at line 6" and spec.cases == ()
