"""The pictures of the README: drawn from screen cells, well-formed, and of what the screen says."""

import xml.etree.ElementTree as ElementTree

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
    given = screen(["a<b & c", "  kernel", "", ""])
    given["rows"][1][2][3] = "b"
    document = svg(given, "a title")
    assert texts(document) == ["a<b & c", "k", "ernel"]
    assert text_of(given)[:2] == ["a<b & c", "  kernel"]
    assert "a title" in document and 'font-weight="bold"' in document


def test_the_pictures_in_the_repository_show_hints_and_candidates() -> None:
    hints = texts((ROOT / "docs/images/nvim-hints.svg").read_text())
    assert any(text.startswith("A verified") for text in hints) and any(text.startswith("wrong: ") for text in hints)
    diff = texts((ROOT / "docs/images/nvim-candidates.svg").read_text())
    assert any("verified on host" in text for text in diff) and any("[a] apply" in text for text in diff)
