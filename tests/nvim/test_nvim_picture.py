"""The pictures of the README: drawn from screen cells, well-formed, and of what the screen says."""

import xml.etree.ElementTree as ElementTree

import pytest

from tests.nvim.neovim import ROOT
from tests.nvim.picture import svg, text_of


def screen(rows: list[str]) -> dict[str, object]:
    width = max(map(len, rows))
    cells = [[[character, 0xFFFFFF, 0x000000, ""] for character in row.ljust(width)] for row in rows]
    return {"rows": cells, "foreground": 0xFFFFFF, "background": 0x000000}


def texts(document: str) -> list[str]:
    return [
        "".join(element.itertext())
        for element in ElementTree.fromstring(document).iter()
        if element.tag.endswith("text")
    ]


def test_cells_become_text_at_their_columns() -> None:
    given = screen(["a<b & c", "  kernel  far", "", ""])
    given["rows"][1][2][3] = "b"
    document = svg(given, "a title")
    assert texts(document) == ["a<b & c", "k", "ernel", "far"]
    assert text_of(given)[:2] == ["a<b & c", "  kernel  far"]
    assert "a title" in document and 'font-weight="bold"' in document
    far = next(element for element in ElementTree.fromstring(document).iter() if element.text == "far")
    assert float(far.attrib["x"]) == 12 + 10 * 8 and float(far.attrib["textLength"]) == 3 * 8


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("hints", ["14 regs (+4)", "wrong: y[0]", "out of bounds: x[1]", "DICE: host"]),
        ("hover", ["registers", "first verified version", "checks since"]),
        ("history", ["Baseline: 10 regs", "verified", "██"]),
        ("filling", ["DICE: filling relu", "more are being judged", "[c] stop"]),
        ("candidates", ["verified on host", "[a] apply", "present"]),
    ],
)
def test_the_pictures_in_the_repository_show_what_they_are_about(name: str, words: list[str]) -> None:
    shown = texts((ROOT / f"docs/images/nvim-{name}.svg").read_text())
    for word in words:
        assert any(word in text for text in shown), f"{word!r} is not in the picture of {name}"
