"""Offsets and positions in the three encodings of LSP."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dice_lsp.source.positions import LineIndex, decode_bytes, encode_text, encoding_of

UNITS = {
    "utf-8": lambda s: len(s.encode("utf-8", "surrogatepass")),
    "utf-16": lambda s: len(s.encode("utf-16-le", "surrogatepass")) // 2,
    "utf-32": len,
}
TEXTS = st.text(alphabet=st.sampled_from("ab \t\f\v\x85\u2028é归✅𝛼😀{}\n\r"), max_size=60)


@pytest.mark.parametrize("encoding", UNITS)
@given(text=TEXTS)
def test_every_offset_outside_a_line_end_comes_back(encoding, text):
    index = LineIndex(text)
    for offset in range(len(text) + 1):
        line, character = index.position(offset, encoding)
        start = index.line_start(line)
        if offset <= index.line_end(line):
            assert index.offset(line, character, encoding) == offset
            assert character == UNITS[encoding](text[start:offset])
        else:  # within CRLF
            assert text[offset - 1 : offset + 1] == "\r\n"
            assert index.offset(line, character, encoding) == offset - 1


@given(text=TEXTS)
def test_lines_end_where_lsp_says_and_nowhere_else(text):
    index = LineIndex(text)
    lines = [text[index.line_start(n) : index.line_end(n)] for n in range(index.line_count)]
    assert lines == text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


@pytest.mark.parametrize("encoding", UNITS)
@given(text=TEXTS, line=st.integers(-2, 80), character=st.integers(-2, 90))
def test_any_position_is_clamped_into_its_line(encoding, text, line, character):
    index = LineIndex(text)
    offset = index.offset(line, character, encoding)
    assert 0 <= offset <= len(text)
    if 0 <= line < index.line_count:
        assert index.line_start(line) <= offset <= index.line_end(line)


def test_a_position_inside_a_surrogate_pair_is_before_its_character():
    index = LineIndex("a😀b")
    assert [index.offset(0, n, "utf-16") for n in range(6)] == [0, 1, 1, 2, 3, 3]
    assert [index.offset(0, n, "utf-8") for n in range(7)] == [0, 1, 1, 1, 1, 2, 3]


def test_a_form_feed_is_no_line_end():
    index = LineIndex("int a;\f\nint b;")
    assert index.line_count == 2
    assert index.position(7) == (0, 7)


@pytest.mark.parametrize(
    ("data", "codec", "text"),
    [
        (b"int a; // \xe2\x9c\x85", "utf-8", "int a; // ✅"),
        (b"int a; // caf\xe9\r\n", "latin-1", "int a; // café\r\n"),
        (b"\xff\xfea\x00\n\x00", "utf-16", "a\n"),
        (b"\xfe\xff\x00a", "utf-16", "a"),
        (b"\xff\xfe\xff", "latin-1", "ÿþÿ"),
        (b"", "utf-8", ""),
    ],
)
def test_bytes_are_read_and_written_back_unchanged(data, codec, text):
    assert encoding_of(data) == codec
    assert decode_bytes(data) == text
    assert encode_text(text, data) == data


@given(st.binary(max_size=40))
def test_any_bytes_become_a_text_that_can_be_written(data):
    text = decode_bytes(data)
    assert decode_bytes(encode_text(text + " ", data)).rstrip(" ") == text.rstrip(" ")


def test_a_character_that_the_file_cannot_hold_makes_it_utf8():
    assert encode_text("café ✅", b"caf\xe9") == "café ✅".encode()
