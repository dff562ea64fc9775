"""A fill that stops a brace early is closed; nothing else is touched."""

import pytest

from dice_lsp.records import Document
from dice_lsp.source.closing import close_blocks
from dice_lsp.source.kernels import parse
from dice_lsp.source.screen import screen_fill
from dice_lsp.source.selection import body_region, lines_region

EMPTY = "__global__ void k(float* x, int n) {\n}\n"
PARTIAL = "__global__ void k(float* x, int n) {\n    if (n > 0) {\n        x[0] = 1;\n    }\n}\n"


def body(text=EMPTY):
    return body_region(Document("file:///k.cu", 0, text), parse(text).kernels[0])


@pytest.mark.parametrize(
    ("fill", "closed"),
    [
        ("\n    if (n) {\n        x[0] = 1;\n", "\n    if (n) {\n        x[0] = 1;\n    }\n"),
        (
            "\n  if (n) {\n    if (x) {\n      x[0] = 1;\n    }\n",
            "\n  if (n) {\n    if (x) {\n      x[0] = 1;\n    }\n  }\n",
        ),
        (
            "\n\tfor (;;) {\n\t\tif (n) {\n\t\t\tbreak; // {\n",
            "\n\tfor (;;) {\n\t\tif (n) {\n\t\t\tbreak; // {\n\t\t}\n\t}\n",
        ),
    ],
)
def test_missing_braces_are_added_where_their_blocks_began(fill, closed):
    assert close_blocks(body(), fill) == closed
    assert screen_fill(body(), closed) is None


@pytest.mark.parametrize(
    "fill",
    [
        "\n    x[0] = 1;\n",
        "\n    if (n) {\n        x[0] = 1;\n    }\n",
        "\n    x[0] = f(1;\n",
        "\n    }\n    {\n",
        "\n    x[(0] = 1;\n    {\n",
        "",
        "\n" + "{" * 9 + "\n",
    ],
)
def test_everything_else_stays(fill):
    assert close_blocks(body(), fill) == fill


def test_the_text_around_decides_what_is_missing():
    document = Document("file:///k.cu", 0, PARTIAL)
    opened = lines_region(document, 2, 3)
    # The suffix closes one block, so a fill that opens one is whole, and one that opens two lacks a brace.
    assert close_blocks(opened, "if (n > 1) {\n        x[0] = 2;") == "if (n > 1) {\n        x[0] = 2;"
    assert close_blocks(opened, "if (n) {\n        if (x) {\n            x[0] = 2;").endswith("x[0] = 2;\n        }")


def test_carriage_returns_are_kept():
    text = EMPTY.replace("\n", "\r\n")
    assert close_blocks(body(text), "\r\n    if (n) {\r\n        x[0] = 1;\r\n") == (
        "\r\n    if (n) {\r\n        x[0] = 1;\r\n    }\r\n"
    )
