"""Texts that editors really send: long ones, line ends of every kind, characters of every width, broken files."""

import asyncio
import random
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from lsprotocol import types as t
from pygls.workspace import PositionCodec

from dice_lsp.server.patched_pygls import LspTextDocument
from dice_lsp.source.positions import LineIndex
from tests.stdio.conftest import started
from tests.stdio.editor import Editor
from tests.stdio.raw import NO_MODEL, PATIENCE_S, ROOT, RawClient

in_one_session = pytest.mark.asyncio(loop_scope="module")
SAXPY = (ROOT / "tests/data/saxpy.cu").read_text()
BODY = "int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < n)\n        z[i] = a * x[i] + y[i];"
LONG_LINES = 100_000


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["neovim", "vscode"])
async def session(request: pytest.FixtureRequest) -> AsyncIterator[Editor]:
    async with started(request.param, candidates=1) as editor:
        yield editor


@in_one_session
async def test_carriage_returns_emoji_chinese_and_form_feeds(editor: Editor, tmp_path: Path) -> None:
    path = tmp_path / "saxpy.cu"
    shutil.copy(ROOT / "tests/data/saxpy.cu", path)
    uri = path.as_uri()
    text = "// 归约 共享内存 ✅ 😋\n\f\n" + SAXPY.replace("    int i = ", "    /* 😋 */ int i = ", 1)
    text = text.replace("\n", "\r\n")
    editor.open(uri, text)
    line = text[: text.index("__global__")].count("\n")
    await editor.until_hint(uri, line, lambda label: "  verified" in label)
    body = BODY.replace("\n", "\r\n")
    report = await editor.take((await editor.actions(uri, body))["DICE: fill selection"])
    assert report["candidates"], report
    # One character is typed in front of the region, on its line, between offering and accepting.
    editor.edit(uri, "/* 😋 */ int", "/* 😋😋 */ int")
    assert (await editor.run("dice.apply", {"fill": report["fill"], "candidate": "A"}))["applied"]
    filled = report["candidates"][0]["text"].replace("\r\n", "\n").replace("\n", "\r\n")
    assert editor.texts[uri] == text.replace(body, filled).replace("/* 😋 */", "/* 😋😋 */")
    assert "\n" not in editor.texts[uri].replace("\r\n", "")


@in_one_session
async def test_kernels_of_one_name_never_show_each_others_verdict(editor: Editor, tmp_path: Path) -> None:
    path = tmp_path / "twins.cu"
    shutil.copy(ROOT / "tests/data/twins.cu", path)
    text = path.read_text()
    editor.open(path.as_uri(), text)
    lines = [number for number, line in enumerate(text.splitlines()) if "__global__" in line]
    for line, words in zip(lines, ("verified on host", "wrong: y[0]", "out of bounds: x[1]"), strict=True):
        await editor.until_hint(path.as_uri(), line, lambda label, words=words: words in label)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
def test_incremental_changes_keep_the_text_and_its_lines(encoding: Any) -> None:
    document = LspTextDocument("file:///x.cu", "a\r\nb\n", 1, position_codec=PositionCodec(encoding))

    def change(start: tuple[int, int], end: tuple[int, int], text: str) -> str:
        given = t.Range(t.Position(*start), t.Position(*end))
        document.apply_change(t.TextDocumentContentChangePartial(range=given, text=text))
        assert list(document._line_starts()) == LineIndex(document.source)._starts
        return document.source

    assert change((1, 0), (1, 0), "😋\f二") == "a\r\n😋\f二b\n"
    wide = {"utf-8": 8, "utf-16": 4, "utf-32": 3}[encoding]
    assert change((1, wide), (1, wide), "|") == "a\r\n😋\f二|b\n"
    assert change((0, 1), (1, 0), "\r") == "a\r😋\f二|b\n"
    assert change((1, 0), (1, 0), "\n") == "a\r\n😋\f二|b\n", "the new line end joins the one before it"
    assert change((0, 99), (0, 99), "!") == "a!\r\n😋\f二|b\n"
    assert change((9, 9), (9, 9), "end") == "a!\r\n😋\f二|b\nend"
    document.apply_change(t.TextDocumentContentChangeWholeDocument(text="new"))
    assert document.source == "new" and document.lines == ("new",)


KERNEL = """__global__ void k{0}(const float* x, float* y, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * {0};
}}
"""
HOST = """static int helper_{0}(int a, int b) {{
    int c = a + b;
    for (int i = 0; i < c; ++i) a += helper(i, c);
    return a;
}}
"""


def long_text() -> str:
    """Mostly host code, as long files are, and every hundredth function a kernel."""
    count = LONG_LINES // HOST.count("\n")
    return "".join((HOST if number % 100 else KERNEL).format(number) for number in range(count)) + "\n" * 500


def test_line_starts_are_right_after_edits_anywhere() -> None:
    chance = random.Random(5)
    document = LspTextDocument("file:///x.cu", "a\n" * 40, 1, position_codec=PositionCodec("utf-16"))
    for _ in range(600):
        lines = len(document.lines)
        first, last = sorted((chance.randrange(lines + 1), chance.randrange(lines + 1)))
        last = min(last, first + chance.randrange(4))
        given = t.Range(t.Position(first, chance.randrange(3)), t.Position(last, chance.randrange(3)))
        text = chance.choice(["", "x", "\n", "\r", "\r\n", "one\ntwo\r\n\n", "😋"])
        document.apply_change(t.TextDocumentContentChangePartial(range=given, text=text))
        assert list(document._line_starts()) == LineIndex(document.source)._starts
        assert "".join(document.lines) == document.source


async def test_a_hundred_thousand_lines_do_not_stop_the_loop(capsys: Any) -> None:
    client = await RawClient.start()
    try:
        await client.initialize(
            {"textDocument": {"inlayHint": {}, "hover": {"contentFormat": ["markdown"]}}},
            initializationOptions={"checkOnOpen": False, **NO_MODEL},
        )
        uri = "file:///nowhere/long.cu"
        client.open(uri, long_text())
        place = {"textDocument": {"uri": uri}, "position": {"line": 0, "character": 18}}
        slowest, answered, early = 0.0, None, 0
        began = time.monotonic()
        while answered is None:
            assert time.monotonic() < began + PATIENCE_S
            number = client.request("textDocument/hover", place)
            answered = (await client.response(number))["result"]
            slowest, early = max(slowest, client.latency_s[number]), early + (answered is None)
            await asyncio.sleep(0.01)
        assert early, "hovers are answered while the text is still being read, which takes seconds"
        read_s = time.monotonic() - began
        for version in range(2, 30):
            change = {
                "range": {"start": {"line": 50_000, "character": 0}, "end": {"line": 50_000, "character": 0}},
                "text": " ",
            }
            client.notify(
                "textDocument/didChange", {"textDocument": {"uri": uri, "version": version}, "contentChanges": [change]}
            )
            number = client.request("textDocument/hover", place)
            assert (await client.response(number))["result"] is not None
            slowest = max(slowest, client.latency_s[number])
        with capsys.disabled():
            print(f"\n{LONG_LINES} lines: read in {read_s:.1f} s, slowest hover {1000 * slowest:.0f} ms")
        assert await client.stop() == 0
    finally:
        await client.close()


BROKEN = (
    "",
    "\f\v\x00\u2028",
    "__global__",
    "__global__ void k(",
    "__global__ void k(int n) {{{{{{{{{{{{{{{",
    "}}}}}}}}}} __global__ void k(float* x) { x[0] = 1; } #define",
    "template <typename T, __global__ void k<<<<<<(",
    '#include "missing.h"\n#include <\n//dice: ;;;; n = = ; launch <<<\n__global__ void k(float *x) {}\n',
    '__global__ void k(float* x) { "unfinished\n } /* unfinished',
)


async def test_broken_files_are_answered(tmp_path: Path) -> None:
    client = await RawClient.start()
    try:
        capabilities = {"textDocument": {"inlayHint": {}, "codeLens": {}}}
        await client.initialize(capabilities, initializationOptions={"checkOnOpen": False, **NO_MODEL})
        place = {"start": {"line": 0, "character": 0}, "end": {"line": 7, "character": 99}}
        for number, text in enumerate(BROKEN):
            uri = (tmp_path / f"broken_{number}.cu").as_uri()
            client.open(uri, text)
            document = {"textDocument": {"uri": uri}}
            arguments = [{"uri": uri, "version": 1, "range": place, "candidates": 1}]
            asked = [
                client.request("textDocument/hover", document | {"position": {"line": 0, "character": 12}}),
                client.request("textDocument/inlayHint", document | {"range": place}),
                client.request("textDocument/codeLens", document),
                client.request("textDocument/codeAction", document | {"range": place, "context": {"diagnostics": []}}),
                client.request("workspace/executeCommand", {"command": "dice.fill", "arguments": arguments}),
            ]
            for request in asked:
                answer = await client.response(request)
                assert "error" not in answer or answer["error"]["code"] == -32801, (text, answer)
        assert await client.stop() == 0
    finally:
        await client.close()
