"""CUDA in Python strings: which strings count, and that positions are the same in the view and in the file."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dice_lsp.source.embedded import (
    cuda_strings,
    cuda_view,
    document_of,
    is_python,
    literal,
    section,
    unit,
    view_of_literal,
)
from dice_lsp.source.kernels import parse

KERNEL = "__global__ void {name}(const float* x, float* y, int n) {{\n    int i = threadIdx.x;\n    if (i < n) y[i] = x[i];\n}}\n"
ONE = f'# 归约 ✅\nfrom pycuda.compiler import SourceModule\n\nmod = SourceModule("""\n{KERNEL.format(name="copy")}""")\nprint("done")\n'


def test_a_view_has_the_same_lines_and_places() -> None:
    view = cuda_view(ONE)
    assert len(view) == len(ONE) and view.count("\n") == ONE.count("\n")
    (kernel,) = parse(view).kernels
    assert kernel.name == "copy"
    assert ONE[kernel.start : kernel.end] == view[kernel.start : kernel.end]
    assert "SourceModule" not in view and "print" not in view and "归" not in view


def test_two_strings_are_two_translation_units() -> None:
    text = f"a = '''{KERNEL.format(name='f')}'''\nb = r'''{KERNEL.format(name='f')}'''\n"
    view = cuda_view(text)
    kernels = parse(view).kernels
    assert [kernel.name for kernel in kernels] == ["f", "f"]
    for kernel in kernels:
        alone = section(view, kernel.start)
        assert len(alone) == len(text)
        (only,) = parse(alone).kernels
        assert (only.start, only.end) == (kernel.start, kernel.end)


@pytest.mark.parametrize(
    "text",
    [
        'a = f"""__global__ void f({T}* x) {{ }}"""',
        'T = "float"\nT = "int"\na = f"""__global__ void f({T}* x) {{ }}"""',
        'N = 123456\na = f"""__global__ void f(int* x) {{ x[0] = {N}; }}"""',
        'N = 4\na = f"""__global__ void f(int* x) {{ x[0] = {N + 1}; }}"""',
        'a = """__global__ void f(int* x) { x[0] = SIZE; }""".replace("SIZE", size)',
        'a = other + """__global__ void f() { }"""',
        'a = "//" "__global__ void f() { }"',
        'b = "int" \na = b + """__global__ void f() { }"""',
        'a = """__global__ void f(%s* x) { }""" % "float"',
        'a = """__global__ void f({0}* x) { }""".format("float")',
        'a = """__global__ void f(%(t)s* x) { }"""',
        'a = """__global__ void f(${T}* x) { }"""',
        'a = """__global__ void f({{ T }}* x) { }"""',
        'a = "__global__ void f() { " "}"',
        'a = "__global__ void f() {\\n}"',
        'a = b"""__global__ void f() { }"""',
        "# __global__ void f() { }",
        'a = """no kernel"""',
        'a = """__global__ void never_closed() { }',
    ],
)
def test_what_the_compiler_would_not_read_as_it_stands_is_left_out(text: str) -> None:
    assert cuda_strings(text) == ()
    assert not parse(cuda_view(text)).kernels


def test_two_backslashes_are_one_for_the_compiler() -> None:
    text = 'a = """#define ADD(a, b) \\\\\n  ((a) + (b))\n__global__ void f(int* x) { printf("%d\\\\n", ADD(*x, 1)); }\n"""\n'
    view = cuda_view(text)
    assert len(view) == len(text)
    assert "#define ADD(a, b)  \\\n" in view
    assert '"%d \\n"' in view


def test_strip_does_not_change_a_kernel() -> None:
    assert len(cuda_strings('a = """\n__global__ void f() { }\n""".strip()')) == 1


def test_what_is_written_reads_as_it_was_meant() -> None:
    plain, raw = cuda_strings(f'a = """{KERNEL.format(name="f")}"""\nb = r"""{KERNEL.format(name="g")}"""\n')
    assert literal('printf("\\n");', raw) == 'printf("\\n");'
    written = literal('printf("\\n");', plain)
    assert written == 'printf("\\\\n");' and view_of_literal(written, plain) == 'printf(" \\n");'
    assert literal('a """ b', plain) is None
    (single,) = cuda_strings("a = '__global__ void f() { }'")
    assert literal("x\ny", single) is None


def test_which_files_are_python() -> None:
    assert is_python("file:///a/kernels.py") and not is_python("file:///a/kernels.cu")


@given(st.lists(st.sampled_from([*"\"'\\\n\r#rfb(){}%$é✅ \t\f", "__global__", '"""', "\x00"])).map("".join))
def test_any_text_has_a_view_of_its_length(text: str) -> None:
    view = cuda_view(text)
    assert len(view) == len(text)
    assert [i for i, c in enumerate(view) if c in "\r\n"] == [i for i, c in enumerate(text) if c in "\r\n"]
    for string in cuda_strings(text):
        assert text[string.end : string.end + len(string.quote)] == string.quote


def test_what_a_program_fills_in_is_seen_where_it_fits() -> None:
    text = """
BLOCK, KIND = 256, "float"
KIND = "float"
a = f'''__global__ void f(float* x) {{ x[threadIdx.x] = {BLOCK}; }}'''
b = '''__global__ void g({TYPE}* x) {{ x[{COUNT}] = 0; }}'''.format(TYPE="int", COUNT=BLOCK)
c = '''__global__ void h(int* x) { x[0] = SIZE; }'''.replace("SIZE", str(BLOCK)).strip()
"""
    view = cuda_view(text)
    assert len(view) == len(text)
    assert [kernel.name for kernel in parse(view).kernels] == ["f", "g", "h"]
    assert "{ x[threadIdx.x] = 256    ;  }" in view
    assert "void g(int   * x)  { x[256    ] = 0;  }" in view
    assert "x[0] = 256 ;" in view
    first, _, third = cuda_strings(text)
    written = literal("if (x) { y(); }", first)
    assert written == "if (x) {{ y(); }}" and view_of_literal(written, first) == "if (x)  { y();  }"
    assert literal("SIZE", third) is None and literal("size", third) == "size"


def test_strings_that_are_joined_are_one_translation_unit() -> None:
    helper = "common = '''\n__device__ float twice(float x) { return 2 * x; }\n'''\n"
    first = "a = common + '''\n__global__ void f(float* x) { x[0] = twice(x[0]); }\n'''\n"
    second = "b = '''\n__global__ void g(float* x) { x[0] = twice(x[0]); }\n'''\n"
    text = helper + first + second + "m = load_inline(name='m', cpp_sources='', cuda_sources=[common, b])\n"
    document = document_of("file:///p.py", 0, text)
    f, g = parse(document.text).kernels
    alone = unit(document, f.start).text
    assert "twice(float x)" in alone and "void f" in alone and "void g" not in alone and len(alone) == len(text)
    alone = unit(document, g.start).text
    assert "twice(float x)" in alone and "void g" in alone and "void f" not in alone


def test_a_kernel_that_is_torn_between_strings_is_left_out() -> None:
    assert cuda_strings('a = ("__global__ void f() { "\n  "}")') == ()
