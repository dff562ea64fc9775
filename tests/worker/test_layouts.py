"""The compiler says where the members of a kernel's structs lie; what text and compiler do not agree on has no layout."""

from collections.abc import Mapping

import pytest

from dice_lsp.records import Kernel, Parameter
from dice_lsp.source.kernels import parse
from dice_lsp.worker.compile import CompileJob, Compiler
from dice_lsp.worker.layouts import laid_out


def laid(compiler: Compiler, text: str, template: Mapping[str, str] = {}) -> Kernel:
    kernel = parse(text).kernels[0]
    return laid_out(compiler, CompileJob(text, "/nowhere/a.cu", (kernel,), alone=True), kernel, template, {})


def places(parameter: Parameter) -> dict[str, tuple[int, int]]:
    return {field.name: (field.offset, field.size_bytes) for field in parameter.fields}


def test_a_struct_in_a_namespace_of_a_template(compiler: Compiler) -> None:
    text = """
    namespace ours {
    struct Row { const float* data; int n; double scale; bool on; };
    template <class T> struct Work { Row in; T* out; char tag; T size[2]; };
    template <class T> __global__ void scale(Work<T> w, int n) { broken(w); }
    __global__ void other(Row r) { does not compile }
    }
    """
    work, n = laid(compiler, text, {"T": "double"}).parameters
    assert places(work) == {
        "in.data": (0, 8), "in.n": (8, 4), "in.scale": (16, 8), "in.on": (24, 1), "out": (32, 8), "tag": (40, 1),
        "size[0]": (48, 8), "size[1]": (56, 8),
    }  # fmt: skip
    assert work.size_bytes == 64 and n.fields == ()
    kinds = {field.name: (field.element, field.pointer, field.const) for field in work.fields}
    assert kinds["in.data"] == ("float", True, True) and kinds["out"] == ("double", True, False)
    assert kinds["size[1]"] == ("double", False, False)


def test_structs_behind_a_pointer(compiler: Compiler) -> None:
    text = "struct Body { float x, y, z; int id; };\n__global__ void move(Body* bodies, const float* dt) { }"
    bodies, dt = laid(compiler, text).parameters
    assert bodies.size_bytes == 16 and places(bodies)["id"] == (12, 4) and dt.fields == ()


@pytest.mark.parametrize(
    "text",
    [
        # A member that the reader of the text does not see, and one that it sees in another type.
        "#define MORE int more;\nstruct P { int n; MORE };",
        "#define int long long\nstruct P { int n; };\n#undef int",
        "struct P { int n; float& r; };",
        "struct Q { int q; }; struct P : Q { int n; };",
        "struct P;",
    ],
)
def test_what_is_not_certain_has_no_layout(compiler: Compiler, text: str) -> None:
    (p,) = laid(compiler, f"{text}\n__global__ void k(P p) {{ }}").parameters
    assert p.fields == () and p.size_bytes == 0


def test_an_alignment_of_its_own(compiler: Compiler) -> None:
    text = "struct __align__(16) P { float v[3]; };\n__global__ void k(int n, const P p) { }"
    assert laid(compiler, text).parameters[1].size_bytes == 16


def test_names_that_the_text_gives_to_types(compiler: Compiler) -> None:
    text = """
    #include <cuda_fp16.h>
    #if defined(WIDE)
    typedef double real;
    #else
    typedef float real;
    #endif
    typedef unsigned int uint;
    typedef uint data_t;
    using quad = float4;
    struct Opaque { union { int a; float b; }; };
    template <class T> __global__ void k(const data_t* x, real* y, half* h, quad q, Opaque* o, T t, const T* u, real a) { }
    """
    x, y, h, q, o, t, u, a = laid(compiler, text, {"T": "real"}).parameters
    assert (x.element, x.alias, x.type_name, x.pointer) == ("unsigned int", "data_t", "data_t", True)
    assert (y.element, a.element, q.element) == ("float", "float", "float4")
    assert h.alias == "" and (o.element, o.alias) == ("Opaque", "")
    # A template's own parameter is what its arguments say.
    assert (t.element, u.element) == ("T", "T")
