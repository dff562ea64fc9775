"""The pictures of the README: drawn from screen cells, well-formed, and of what the screen says."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.nvim.neovim import ROOT
from tests.nvim.picture import draw, svg, text_of
from tests.nvim.picture_screen import Screen


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


def test_a_screen_keeps_what_neovim_draws() -> None:
    screen = Screen()
    screen.draw("default_colors_set", [0xEEEEEE, 0x101010, 0, 0, 0])
    screen.draw("hl_attr_define", [7, {"foreground": 0xFF0000, "bold": True, "reverse": True}, {}, []])
    screen.draw("grid_resize", [1, 6, 4])
    screen.draw("grid_line", [1, 0, 0, [["a", 0], ["-", 0, 3], ["b", 7]], False])
    screen.draw("grid_line", [1, 1, 2, [["c", 7, 2], ["d"]], False])
    screen.draw("grid_line", [1, 3, 0, [["e", 0]], False])
    assert screen.text() == "a---b\n  ccd\n\ne"
    cells = screen.cells()["rows"]
    assert cells[0][0] == ["a", 0xEEEEEE, 0x101010, ""]
    assert cells[0][4] == ["b", 0x101010, 0xFF0000, "b"]
    assert cells[1][2:5] == [[text, 0x101010, 0xFF0000, "b"] for text in "ccd"]
    screen.draw("grid_scroll", [1, 0, 3, 0, 6, 1, 0])
    assert screen.text().splitlines()[0] == "  ccd" and screen.text().splitlines()[3] == "e"
    screen.draw("grid_scroll", [1, 0, 4, 0, 6, -2, 0])
    assert screen.text().splitlines()[2] == "  ccd"
    screen.draw("grid_clear", [1])
    assert screen.text().strip() == "" and len(screen.cells()["rows"]) == 4


@pytest.mark.timeout(600)
def test_neovim_draws_the_menu_of_actions_on_a_selection(tmp_path: Path) -> None:
    drawn = draw(tmp_path, only="menu")
    assert list(drawn) == ["menu"]
    lines = text_of(drawn["menu"])
    menu = lines[lines.index("Code actions:") :]
    assert menu[1:3] == ["1: DICE: fill selection", "2: DICE: fill kernel body"]
    assert menu[-1].startswith("Type number and <Enter>")
    code = lines[: lines.index("Code actions:")]
    assert any("wrong: y[0]" in line for line in code), "the hints stand beside the kernels"
    (chosen,) = (row for row, line in enumerate(code) if line.endswith("if (i < n) y[i] = x[i];"))
    selected = {
        row
        for row, cells in enumerate(drawn["menu"]["rows"][: len(code)])
        if any(cell[0] == ";" and cell[2] != drawn["menu"]["background"] for cell in cells)
    }
    assert selected == {chosen - 1, chosen}, "the two selected lines are marked, and only they"
    shown = texts(svg(drawn["menu"], "the menu"))
    assert "1: DICE: fill selection" in shown and "2: DICE: fill kernel body" in shown


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("menu", ["1: DICE: fill selection", "2: DICE: fill kernel body", "Type number and <Enter>", "wrong: y[0]"]),
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
