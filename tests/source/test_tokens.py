"""The lexer loses nothing and is never surprised."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dice_lsp.source.tokens import Kind, code, lex, split_top_level, without_comments

PIECES = st.lists(
    st.sampled_from(
        [
            "<<<",
            "<< <",
            ">>>",
            ">>",
            '"',
            "'",
            "\\",
            "\n",
            "\r\n",
            "//",
            "/*",
            "*/",
            "#",
            "%:",
            "??=",
            'R"(',
            ')"',
            "x",
            "1'000",
            "u8",
            " ",
            "\t",
            "\f",
            "é",
            "😀",
            "{",
            "}",
            "(",
            ")",
            ";",
            "0x1p-3",
            "@",
            "\x00",
            "::",
            "->",
        ]
    ),
    max_size=30,
).map("".join)


@given(PIECES)
def test_the_tokens_of_a_text_are_the_text(text):
    tokens = list(lex(text))
    assert "".join(text[t.start : t.end] for t in tokens) == text
    assert all(t.start < t.end for t in tokens)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("k<<<1, 2>>>(x);", ["k", "<<<", "1", ",", "2", ">>>", "(", "x", ")", ";"]),
        ("k< < <1, 2> > >();", ["k", "< < <", "1", ",", "2", "> > >", "(", ")", ";"]),
        ("a <<= b >>= c << d", ["a", "<<=", "b", ">>=", "c", "<<", "d"]),
        ("1'000'000u + 0x1.8p-3f", ["1'000'000u", "+", "0x1.8p-3f"]),
        ('R"x(a " ) // b)x" c', ['R"x(a " ) // b)x"', "c"]),
        ("\"a // b\" '\\'' // c", ['"a // b"', "'\\''"]),
        ('"open\nnext', ['"open', "next"]),
        ("a /* b\n * c */ d", ["a", "d"]),
        ("a // b \\\n still b\nc", ["a", "c"]),
        ("  # define X { \\\n  y\nz", ["# define X { \\\n  y", "z"]),
        ("a # b", ["a", "#", "b"]),
        ("x->y::z...", ["x", "->", "y", "::", "z", "..."]),
        ("/* open", []),
    ],
)
def test_tokens(text, expected):
    assert [text[t.start : t.end] for t in code(text)] == expected


def test_a_partial_range_knows_whether_its_line_was_blank():
    text = "int a; # no directive\n  # directive"
    kinds = [t.kind for t in lex(text, 7)]
    assert Kind.DIRECTIVE not in kinds[:3] and kinds[-1] is Kind.DIRECTIVE


def test_split_and_comments():
    text = "T<a, b> x, f(c, d), {1, 2}"
    assert [text[a:b].strip() for a, b in split_top_level(text, angles=True)] == ["T<a, b> x", "f(c, d)", "{1, 2}"]
    assert split_top_level("  ") == []
    assert without_comments('a /* b */ c // d\n "e // f"') == 'a c "e // f"'


@pytest.mark.parametrize(
    "text", ["/*" * 100_000, '"\\' * 100_000, "//\\\n" * 100_000, "#" * 200_000, "<" * 200_000, "'" * 200_000]
)
def test_hostile_text_takes_linear_time(text):
    start = time.process_time()
    assert sum(t.end - t.start for t in lex(text)) == len(text)
    assert time.process_time() - start < 3
