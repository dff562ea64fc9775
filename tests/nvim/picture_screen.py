"""A user interface of Neovim that keeps the cells: what a user's terminal would show, the message area included."""

import os
import select
import subprocess
import time
from pathlib import Path
from typing import Any

import msgpack

from tests.nvim.neovim import ROOT, outcome, prepared

COLUMNS, LINES = 114, 28
# Neovim draws in several steps, such as a menu and the lines it pushes up: a picture is taken when it has finished.
STILL_S = 0.4


class Screen:
    """The one grid of a Neovim that draws with `ext_linegrid` (`:help ui-linegrid`)."""

    def __init__(self) -> None:
        self._rows: list[list[tuple[str, int]]] = []
        self._looks: dict[int, dict[str, Any]] = {0: {}}
        self._foreground, self._background = 0xFFFFFF, 0x000000

    def draw(self, event: str, arguments: list[Any]) -> None:
        """Take one event of a `redraw`; those that change no cell are of no interest."""
        if event == "default_colors_set":
            self._foreground, self._background = arguments[:2]
        elif event == "hl_attr_define":
            self._looks[arguments[0]] = arguments[1]
        elif event == "grid_resize":
            _, columns, lines = arguments
            self._rows = [[(" ", 0)] * columns for _ in range(lines)]
        elif event == "grid_clear":
            self._rows = [[(" ", 0)] * len(row) for row in self._rows]
        elif event == "grid_line":
            self._line(*arguments[1:4])
        elif event == "grid_scroll":
            self._scroll(*arguments[1:6])

    def _line(self, row: int, column: int, cells: list[list[Any]]) -> None:
        look = 0
        for text, *more in cells:
            look = more[0] if more else look
            times = more[1] if len(more) > 1 else 1
            self._rows[row][column : column + times] = [(text, look)] * times
            column += times

    def _scroll(self, top: int, bottom: int, left: int, right: int, by: int) -> None:
        before = [row[left:right] for row in self._rows]
        for row in range(max(top, top - by), min(bottom, bottom - by)):
            self._rows[row][left:right] = before[row + by]

    def cells(self) -> dict[str, Any]:
        """The screen as `tests.nvim.picture.svg` takes it: each cell is its text, colours and style."""
        rows = [[[text, *self._look(look)] for text, look in row] for row in self._rows]
        return {"rows": rows, "foreground": self._foreground, "background": self._background}

    def _look(self, number: int) -> tuple[int, int, str]:
        look = self._looks[number]
        front, back = look.get("foreground", self._foreground), look.get("background", self._background)
        if look.get("reverse"):
            front, back = back, front
        return front, back, ("b" if look.get("bold") else "") + ("i" if look.get("italic") else "")

    def text(self) -> str:
        return "\n".join("".join(text for text, _ in row).rstrip() for row in self._rows)


def run_drawn(
    script: Path, folder: Path, *, deadline_s: float = 540.0, **environment: str
) -> dict[str, dict[str, Any]]:
    """Run a Lua script in a Neovim that draws for a user; returns the screens it asked for, by name.

    The script says `vim.rpcnotify(1, "picture", {name, words, keys})`: the screen is kept once it shows the words and
    holds still, then the keys are typed and `vim.g.dice_picture` names the picture. `"resize"` takes columns and lines.
    """
    command, surroundings = prepared(script, folder, "--embed", **environment)
    errors = folder / "stderr.txt"
    with (
        errors.open("wb") as stderr,
        subprocess.Popen(
            command, cwd=ROOT, env=surroundings, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr
        ) as process,
    ):
        session = _Session(process)
        try:
            session.follow(time.monotonic() + deadline_s)
        finally:
            process.kill()
    outcome(folder, process.returncode, f"{errors.read_text(errors='replace')}\n{session.screen.text()}")
    return session.pictures


class _Session:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.screen = Screen()
        self.pictures: dict[str, dict[str, Any]] = {}
        self._process = process
        self._wanted: dict[str, str] | None = None
        self._messages = msgpack.Unpacker(strict_map_key=False, unicode_errors="surrogateescape")
        self._call("nvim_ui_attach", COLUMNS, LINES, {"rgb": True, "ext_linegrid": True})

    def _call(self, method: str, *arguments: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(msgpack.packb([2, method, arguments]))
        self._process.stdin.flush()

    def follow(self, deadline: float) -> None:
        """Draw what Neovim says until it ends."""
        assert self._process.stdout is not None
        output = self._process.stdout.fileno()
        drawn = time.monotonic()
        while True:
            now = time.monotonic()
            assert now < deadline, f"Neovim did not end in time; its screen:\n{self.screen.text()}"
            if self._wanted is not None and now - drawn > STILL_S and self._wanted["words"] in self.screen.text():
                self._take(self._wanted)
            if not select.select([output], [], [], 0.1)[0]:
                continue
            given = os.read(output, 1 << 16)
            if not given:
                self._process.wait(max(deadline - time.monotonic(), 1.0))
                return
            self._messages.feed(given)
            for kind, *rest in self._messages:
                if kind != 2:
                    continue
                method, arguments = rest
                if method == "redraw":
                    drawn = time.monotonic()
                self._hear(method, arguments)

    def _hear(self, method: str, arguments: list[Any]) -> None:
        if method == "redraw":
            for event, *calls in arguments:
                for call in calls:
                    self.screen.draw(event, call)
        elif method == "picture":
            self._wanted = arguments[0]
        elif method == "resize":
            self._call("nvim_ui_try_resize", *arguments)
        elif method == "nvim_error_event":
            raise AssertionError(f"Neovim refused a call: {arguments}")

    def _take(self, wanted: dict[str, str]) -> None:
        self.pictures[wanted["name"]] = self.screen.cells()
        self._wanted = None
        self._call("nvim_input", wanted["keys"])
        self._call("nvim_set_var", "dice_picture", wanted["name"])
