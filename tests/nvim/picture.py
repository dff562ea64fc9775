"""Draws the README's pictures from the cells of a real Neovim's screen: `python -m tests.nvim.picture`.

An SVG of text in a monospace font is small, sharp at any size, and needs no font on this machine. Each run of cells
that look alike is one element with its exact width, so that a reader's own font cannot shift columns.
"""

import itertools
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from tests.nvim.neovim import ROOT
from tests.nvim.picture_screen import run_drawn

IMAGES = ROOT / "docs/images"
CELL_WIDTH, CELL_HEIGHT, BASELINE, MARGIN = 8.0, 18.0, 13.0, 12.0


def svg(screen: dict[str, Any], title: str) -> str:
    """A screen `{"rows": [[[text, foreground, background, style], ...], ...], ...}` as an SVG document."""
    rows = screen["rows"]
    while rows and all(cell[0].strip() == "" and cell[2] == screen["background"] for cell in rows[-1]):
        rows = rows[:-1]
    width = len(rows[0]) * CELL_WIDTH + 2 * MARGIN
    height = len(rows) * CELL_HEIGHT + 2 * MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(title)}">',
        f"<title>{escape(title)}</title>",
        f'<rect width="100%" height="100%" rx="6" fill="{_colour(screen["background"])}"/>',
        '<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, \'DejaVu Sans Mono\', monospace" font-size="13">',
    ]
    for row, cells in enumerate(rows):
        top = MARGIN + row * CELL_HEIGHT
        for column, run in _runs(cells):
            left, wide = MARGIN + column * CELL_WIDTH, len(run) * CELL_WIDTH
            if run[0][2] != screen["background"]:
                lines.append(
                    f'<rect x="{left:g}" y="{top:g}" width="{wide:g}" height="{CELL_HEIGHT:g}" fill="{_colour(run[0][2])}"/>'
                )
        for column, run in _runs(cells):
            style = ' font-weight="bold"' if "b" in run[0][3] else ""
            style += ' font-style="italic"' if "i" in run[0][3] else ""
            # Readers do not agree on spaces in a row: the words between them stand on their own, each at its place.
            for words in re.finditer(r"\S+(?: \S+)*", "".join(cell[0] or " " for cell in run)):
                left, wide = MARGIN + (column + words.start()) * CELL_WIDTH, len(words.group()) * CELL_WIDTH
                lines.append(
                    f'<text x="{left:g}" y="{top + BASELINE:g}" textLength="{wide:g}" fill="{_colour(run[0][1])}"{style}>'
                    f"{escape(words.group())}</text>"
                )
    return "\n".join([*lines, "</g>", "</svg>", ""])


def _runs(cells: list[list[Any]]) -> Iterator[tuple[int, list[list[Any]]]]:
    """Neighbours of one look, with the column of the first."""
    column = 0
    for _, group in itertools.groupby(cells, key=lambda cell: cell[1:]):
        run = list(group)
        yield column, run
        column += len(run)


def _colour(value: int) -> str:
    return f"#{value:06x}"


def text_of(screen: dict[str, Any]) -> list[str]:
    return ["".join(cell[0] for cell in row).rstrip() for row in screen["rows"]]


def draw(folder: Path, *, only: str = "") -> dict[str, dict[str, Any]]:
    """The screens of one session; Neovim's files go to `folder`. `only="menu"` ends it after the first."""
    (folder / ".git").mkdir()
    file = folder / "kernels.cu"
    shutil.copy(ROOT / "tests/nvim/picture.cu", file)
    return run_drawn(ROOT / "tests/nvim/picture.lua", folder, DICE_TEST_FILE=str(file), DICE_TEST_ONLY=only)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        screens = draw(Path(folder))
    IMAGES.mkdir(parents=True, exist_ok=True)
    titles = {
        "menu": "The actions on a selection in Neovim: fill it, or the whole body of its kernel",
        "hints": "Neovim after a save: what each kernel is worth stands beside it, and a wrong one is also an error",
        "hover": "The hover of a kernel in Neovim: the evidence, the baseline, and the history as a small chart",
        "history": "The history of a kernel in Neovim, newest first",
        "filling": "A fill in Neovim: the list of candidates grows while they are judged",
        "candidates": "The diff of a candidate in Neovim above the list of all, with the keys to take one",
    }
    for name, title in titles.items():
        path = IMAGES / f"nvim-{name}.svg"
        path.write_text(svg(screens[name], title), encoding="utf-8")
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size // 1024} kB")


if __name__ == "__main__":
    main()
