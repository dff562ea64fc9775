"""Takes the README's pictures of VS Code: `python -m tests.vscode.pictures [NAME ...]`."""

import itertools
import shutil
import sys
import tempfile
from pathlib import Path

from tests.vscode.editor import ROOT, run_script, workspace

IMAGES = ROOT / "docs/images"
SOURCE = ROOT / "tests/nvim/picture.cu"
SIZE = {"width": 1000, "height": 600}
CALM = {
    "editor.lightbulb.enabled": "off",
    "editor.renderWhitespace": "none",
    "editor.occurrencesHighlight": "off",
    "editor.hover.delay": 100,
    "breadcrumbs.enabled": False,
    "explorer.autoReveal": False,
    "dice.candidates": 8,
}
"""What is not ours stays off the pictures."""
SAXPY = "    if (i < n) y[i] += a * x[i];"
LOADS = (4, 6, 8, 10, 12)


def heavier(loads: int) -> str:
    """A body whose registers grow with `loads`, in a branch that is never taken."""
    return f"""\
    if (n < 0) {{
        float t[{loads}];
        for (int k = 0; k < {loads}; k++) t[k] = x[i + k * n];
        for (int k = 0; k < {loads}; k++) y[i] += t[k] * t[{loads - 1} - k];
    }} else if (i < n) y[i] += a * x[i];"""


def take(folder: Path) -> dict[str, Path]:
    """Pictures by name, from one session."""
    file = workspace(folder, {"kernels.cu": SOURCE})["kernels.cu"]
    lines = SOURCE.read_text().splitlines()
    kernel = next(number for number, line in enumerate(lines, 1) if line.startswith("__global__ void relu"))
    bodies = [SAXPY, *map(heavier, LOADS)]
    seen = run_script(
        folder,
        "pictures",
        open=[str(file)],
        settings=CALM,
        viewport=SIZE,
        first=kernel + 1,
        last=kernel + 2,
        edits=list(itertools.pairwise(bodies)),
        cursor=4,
        hover="__global__ void saxpy",
    )
    return {path.stem: path for path in seen.folder.glob("vscode-*.png")}


def main(names: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, path in take(Path(folder)).items():
            if not names or name.removeprefix("vscode-") in names:
                shutil.copy(path, IMAGES / f"{name}.png")
                print(f"docs/images/{name}.png: {(IMAGES / f'{name}.png').stat().st_size // 1024} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
