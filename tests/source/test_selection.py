"""Selections become regions: snapped outward, refused with a sentence, found again after edits."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dice_lsp.records import Document, Region
from dice_lsp.source.kernels import parse
from dice_lsp.source.selection import body_region, lines_region, region, relocate
from dice_lsp.source.tokens import Kind, lex

KERNEL = "__global__ void k(float* x, int n) {"


def document(text):
    return Document("file:///a.cu", 1, text)


def select(marked):
    """The region for a text whose selection stands between « and »."""
    start = marked.index("«")
    end = marked.index("»") - 1
    return region(document(marked.replace("«", "").replace("»", "")), start, end)


@pytest.mark.parametrize(
    ("body", "middle"),
    [
        ("  «x[0]» = 1;", "x[0]"),
        ("  x«[0» + 1] = 1;", "[0"),
        ("  va«l»ue = 1;", "value"),
        ("  x[0] «  = 1;\n» y;", "= 1;"),
        ("  f(1.5«e-3f);»", "1.5e-3f);"),
        ("  a «<<» b;", "<<"),
        ("  a <«<= b»;", "<<= b"),
        ('  s = "a «b» c";', '"a b c"'),
        ("  // a «comment» here\n  y;", "// a comment here"),
        ("  /* a\n «b» */ y;", "/* a\n b */"),
        ("  /* « */ y» = 1;", "/*  */ y"),
        ("  child<«<<1, »2>>>(x);", "<<<1, 2>>>"),
        ("  «child<<<1,» 2>>>(x);", "child<<<1, 2>>>"),
        ("  child<<<1, 2>«>>(x)»;", "<<<1, 2>>>(x)"),
        ("  child<<<«1», 2>>>(x);", "1"),
        ("  «child<<<1, 2>>>(x);»", "child<<<1, 2>>>(x);"),
        ("  c< «< <1, 2> >» >(x);", "< < <1, 2> > >"),
        ("\n#if«de»f A\n  y;\n#endif\n", "#ifdef A"),
        ("  a -«> b»;", "-> b"),
        ("  N«:»:m;", "::"),
        ("  «/* ✅ 😀 */ x»[0];", "/* ✅ 😀 */ x"),
        ('  R"(«a)"» ;', 'R"(a)"'),
        ("  x = 'a«'»;", "'a'"),
        ("\r\n\ty«;\r\n\tz»;\r\n", ";\r\n\tz"),
        ("\f  «y;\f z;»\f", "y;\f z;"),
        ("  x = 1'0«00»;", "1'000"),
        ("  «x[i] = \\\n  3;»", "x[i] = \\\n  3;"),
    ],
)
def test_a_selection_is_widened_to_whole_tokens(body, middle):
    found = select(f"{KERNEL}{body}\n}}\n")
    assert isinstance(found, Region), found
    assert found.middle == middle
    assert found.kernel.name == "k"
    assert found.prefix + found.middle + found.suffix == found.document.text


@pytest.mark.parametrize(
    ("marked", "middle", "before"),
    [
        (KERNEL + "«»}", "", "{"),
        (KERNEL + " \n «» \n}", " \n  \n", "{"),
        (KERNEL + "\n  a;\n  «»\n  b;\n}", "", "\n  a;\n  "),
        (KERNEL + "\n  a;\n«    \n»  b;\n}", "    ", "a;\n"),
        (KERNEL + "\r\n  a;\r«»\n}", "", "a;"),
        (KERNEL + "\n  lon«»ger;\n}", "", "longer"),
        (KERNEL + "\n  // com«»ment\n  a;\n}", "", "// comment"),
        (KERNEL + "\n  k2<«»<<1, 2>>>();\n}", "", "k2<<<"),
        (KERNEL + "\n  a;«»\n}", "", "a;"),
        (KERNEL + "\n  a;\n«»}", "", "a;\n"),
        (KERNEL + "\n  «\n\n»  a;\n}", "", "{\n  "),
    ],
)
def test_an_empty_selection_is_the_empty_body_or_a_place(marked, middle, before):
    found = select(marked)
    assert isinstance(found, Region), found
    assert found.middle == middle and found.prefix.endswith(before)


@pytest.mark.parametrize(
    "marked",
    [KERNEL[:-1] + "«{ a; b; }»", KERNEL + "« a; b; »}", KERNEL[:-1] + "«{ a; b; »}", KERNEL + " «a; b; }\n»"],
)
def test_the_braces_of_the_body_may_be_selected(marked):
    assert select(marked).middle == "a; b;"


@pytest.mark.parametrize(
    ("marked", "sentence"),
    [
        ("void host() { «a;» }\n" + KERNEL + "}", "host is a host function: select lines inside a kernel's body"),
        (
            "__device__ float f() { «return 1»; }\n" + KERNEL + "}",
            "f is a device function: select lines inside a kernel's body",
        ),
        ("int «a»;\n" + KERNEL + "}", "the selection is outside of every kernel: select lines inside a kernel's body"),
        ("«int a;»", "there is no kernel in this file: write a __global__ function first"),
        ("«»", "there is no kernel in this file: write a __global__ function first"),
        ("__global__ void k(«int n») { a; }", "the selection covers the signature of k: select lines inside its body"),
        ("«__global__» void k(int n) { a; }", "the selection covers the signature of k: select lines inside its body"),
        ("__global__ void k(int «n) { a»; }", "the selection covers the signature of k: select lines inside its body"),
        ("«__global__ void k(int n) { a; }»", "the selection covers the signature of k: select lines inside its body"),
        (
            KERNEL + " «a; }\n__global__ void j() { b;» }",
            "the selection spans k and j: select lines inside one of them",
        ),
        (KERNEL + " «a; }\nint b;» ", "the selection reaches outside of k: select lines inside its body"),
        ("«int b;\n" + KERNEL + " a;» }", "the selection reaches outside of k: select lines inside its body"),
        (
            "«//dice: n = 3»\n" + KERNEL + " a; }",
            "the selection is outside of every kernel: select lines inside a kernel's body",
        ),
    ],
)
def test_absurd_selections_are_refused_with_the_next_step(marked, sentence):
    assert select(marked) == sentence


@pytest.mark.parametrize(
    "marked", [KERNEL + "\n  «»", KERNEL + "\n  a«", KERNEL + "\n  if (n) {\n  «»\n\n__global__ void j() {}"]
)
def test_an_unfinished_kernel_can_be_filled_at_its_end(marked):
    found = select(marked if "»" in marked else marked + "»")
    assert isinstance(found, Region) and found.kernel.name == "k", found


def test_ranges_outside_the_text_and_reversed_ones_are_taken():
    text = KERNEL + " a; }"
    assert region(document(text), len(text) + 50, text.index(" a;")).middle == "a;"
    assert isinstance(region(document(text), -5, 10_000), str)


@pytest.mark.parametrize(
    ("text", "indent"),
    [
        ("__global__ void k() {\n    a;\n}", "    "),
        ("__global__ void k() {\n\ta;\n}", "\t"),
        ("__global__ void k() {\n\n\n  a;\n}", "  "),
        ("__global__ void k() {\n}", "    "),
        ("namespace a {\n  __global__ void k() {\n  }\n}", "      "),
        ("__global__ void k() { a; }", "    "),
        ("\t__global__ void k() {}", "\t\t"),
        ("int f() {\n\treturn 1;\n}\n__global__ void k() {}", "\t"),
        ("__global__ void k()\n{\n  a;\n}", "  "),
    ],
)
def test_the_indent_of_a_body(text, indent):
    (kernel,) = parse(text).kernels
    found = body_region(document(text), kernel)
    assert (found.start, found.end, found.indent) == (kernel.body_start, kernel.body_end, indent)


def test_lines():
    text = KERNEL + "\n  a;\n  b;\n  c;\n}\n"
    assert lines_region(document(text), 2, 3).middle == "a;\n  b;"
    assert lines_region(document(text), 3, 2).middle == "a;\n  b;"
    assert lines_region(document(text), 4, 5).middle == "c;"
    assert lines_region(document(text), 2, 99) == "lines 2:99 are not in the file: it has 6 lines"
    assert "lines 0:1 are not" in lines_region(document(text), 0, 1)


PIECES = st.lists(
    st.sampled_from(
        [
            "x[i]",
            " ",
            "\r\n",
            "\t",
            "<<<",
            ">>>",
            ">>",
            "1.5f",
            '"a b"',
            "// c ✅\n",
            "/* d\n😀 */",
            ";",
            "(",
            ")",
            "{",
            "}",
            "'c'",
            "\f",
            "->",
            "n",
            "\n#if A\n",
            "\n#endif\n",
        ]
    ),
    max_size=14,
).map("".join)


@settings(max_examples=150)
@given(body=PIECES, data=st.data())
def test_regions_keep_every_token_whole(body, data):
    text = f"int 归;\n{KERNEL}\n{body}\n}}\n__global__ void after() {{}}\n"
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(0, len(text)))
    found = region(document(text), start, end)
    if isinstance(found, str):
        assert found and not found.endswith(".")
        return
    assert found.prefix + found.middle + found.suffix == text
    kernel = found.kernel
    for offset in (found.start, found.end):
        assert text[offset - 1 : offset + 1] != "\r\n"
    for token in lex(text, kernel.body_start, max(kernel.body_end, found.end)):
        if token.kind is not Kind.SPACE:
            assert not token.start < found.start < token.end and not token.start < found.end < token.end


BASE = (
    "// 归约 共享内存 ✅\r\nint a;\r\n"
    + KERNEL
    + "\r\n\tx[0] = 1;\r\n\tx[1] = 2;\r\n}\r\n__global__ void j(int n) {\r\n\tn = 2;\r\n}\r\n"
)


def base_region():
    start = BASE.index("x[0] = 1")
    return region(document(BASE), start, start + len("x[0] = 1;"))


@pytest.mark.parametrize(
    ("edit", "kept"),
    [
        (lambda t: t, True),
        (lambda t: "// new\n" + t, True),
        (lambda t: t.replace("✅", "😀 ok"), True),
        (lambda t: t + "int b;\n", True),
        (lambda t: t.replace("int a", "long aa").replace("n = 2", "n = 33"), True),
        (lambda t: t.replace("x[0] = 1", "x[0] = 11"), False),
        (lambda t: t.replace("x[0] = 1;", "x[0] = 1;y"), True),
        (lambda t: t.replace("\tx[0] = 1;\r\n", ""), False),
        (lambda t: "", False),
        (lambda t: t.replace("void k(", "void renamed("), False),
        (lambda t: t.replace("x[0]", "xx[0]"), False),
        (lambda t: t.replace("__global__ void k", "void k"), False),
        (lambda t: "/*" + t, False),
        (lambda t: "/" + "/" + t.replace("\r\n", " "), False),
        (lambda t: t.replace("x[1] = 2;", "x[1] = 2; // b"), True),
        (lambda t: t.replace("\r\n\tx[0]", "\r\n\tx[0] = 1;\r\n\tx[0]"), True),
    ],
)
def test_a_region_is_found_again_only_where_it_still_stands(edit, kept):
    old = base_region()
    found = relocate(old, edit(BASE))
    assert (found is not None) == kept
    if found is not None:
        assert edit(BASE)[found[0] : found[1]] == old.middle


@pytest.mark.parametrize("typed", ["y", "_", "1"])
def test_text_that_grew_together_with_the_region_is_no_place(typed):
    """neovim/neovim#36529: one more character is typed right beside the selection, then the candidate is accepted."""
    start = BASE.index("x[0] = 1")
    assert relocate(base_region(), BASE[:start] + typed + BASE[start:]) is None


def test_two_equal_places_are_none():
    block = KERNEL + "\n  x[0] = 1;\n}\n"
    old = region(document(block), len(KERNEL) + 3, len(KERNEL) + 12)
    assert old.middle == "x[0] = 1;"
    assert relocate(old, "int a;\n" + block + block + "int b;\n") is None


@settings(max_examples=150)
@given(
    before=st.text(alphabet="ab \n/;{}✅😀\r", max_size=12),
    after=st.text(alphabet="ab \n/;{}✅😀\r", max_size=12),
    cut=st.integers(0, 30),
    data=st.data(),
)
def test_relocation_is_right_or_none(before, after, cut, data):
    old = base_region()
    at = data.draw(st.integers(0, old.start))
    until = min(at + cut, old.start)
    later = data.draw(st.integers(old.end, len(BASE)))
    text = BASE[:at] + before + BASE[until:later] + after + BASE[later:]
    found = relocate(old, text)
    if found is not None:
        assert text[found[0] : found[1]] == old.middle
        assert any(
            k.name == "k" and k.body_start <= found[0] and found[1] <= max(k.body_end, found[1])
            for k in parse(text).kernels
        )
