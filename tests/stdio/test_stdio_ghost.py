"""Ghost text and the preview of an edit: candidates that are shown in their place, and moved or dropped with the text.

Neovim 0.11 has no ghost text; its session stands for a client that speaks UTF-8 and has it, as 0.12 does.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from lsprotocol import types as t

from tests.stdio.conftest import started
from tests.stdio.editor import Editor
from tests.stdio.raw import NO_MODEL, ROOT, RawClient

pytestmark = pytest.mark.asyncio(loop_scope="module")
SAXPY = (ROOT / "tests/data/saxpy.cu").read_text()
BODY = "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < n)\n        z[i] = a * x[i] + y[i];\n"
COMMENT = "// 归约 共享内存 ✅ 😋\n"
HEAD = "__global__ void saxpy(int n, float a, const float* x, const float* y, float* z) {\n    "
BLANK = COMMENT + SAXPY.replace(HEAD + BODY.lstrip(), HEAD + "\n", 1)
"""The kernel with one blank line, indented, for its body."""


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["neovim", "vscode"])
async def session(request: pytest.FixtureRequest) -> AsyncIterator[Editor]:
    experimental = {"dice": True, "dicePreview": True}
    async with started(request.param, candidates=8, ghost_text=True, experimental=experimental) as editor:
        yield editor


async def filled(editor: Editor, tmp_path: Path, text: str) -> tuple[str, dict[str, Any]]:
    path = tmp_path / "saxpy.cu"
    path.write_bytes(text.encode())
    uri = path.as_uri()
    editor.open(uri, text)
    report = await editor.run("dice.fill", {"uri": uri, "version": 1, "kernel": "saxpy"})
    best = report["candidates"][0]
    assert best["verdict"]["kind"] == "verified", best
    return uri, best


def cursor_in(text: str) -> int:
    """The end of the blank line of the body."""
    head = HEAD.replace("\n", "\r\n") if "\r\n" in text else HEAD
    return text.index(head) + len(head)


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
async def test_the_best_verified_candidate_stands_at_a_blank_cursor(
    editor: Editor, tmp_path: Path, line_end: str
) -> None:
    blank = BLANK.replace("\n", line_end)
    uri, best = await filled(editor, tmp_path, blank)
    item = await editor.ghost(uri, cursor_in(blank))
    assert item is not None
    assert await editor.ghost(uri, 0) is None, "the cursor is elsewhere"
    editor.accept_ghost(uri, item)
    written = best["text"].replace("\r\n", "\n").strip().replace("\n", line_end)
    head = HEAD.rstrip().replace("\n", line_end)
    assert f"{head}{line_end}    {written}{line_end}}}{line_end}" in editor.texts[uri]
    assert line_end == "\n" or "\n" not in editor.texts[uri].replace("\r\n", "")
    # Its text is what was offered, so the fill counts as taken: checked, hinted no more, and replaceable by another one.
    line = editor.texts[uri][: editor.texts[uri].index("__global__")].count("\n")
    await editor.until_hint(uri, line, lambda label: "  verified" in label and "stale" not in label)
    assert not [label for _, label in await editor.hints(uri) if label.startswith("A ")]
    assert await editor.ghost(uri, cursor_in(blank)) is None
    (offered,) = await editor.candidates(uri)
    assert offered["text"].strip() == written
    start, end = editor.offsets(uri, t.Range(*(t.Position(**offered["range"][key]) for key in ("start", "end"))))
    assert editor.texts[uri][start:end] == offered["text"]


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
async def test_text_that_changes_moves_the_ghost_or_drops_it(editor: Editor, tmp_path: Path, line_end: str) -> None:
    """neovim/neovim#36529: one more character was typed, and the completion was inserted as if it was not there."""
    blank = BLANK.replace("\n", line_end)
    uri, _ = await filled(editor, tmp_path, blank)
    first = await editor.ghost(uri, cursor_in(blank))
    assert first is not None
    # Edits in front of it, of characters of every width, move it.
    editor.edit(uri, "归约 ", "归约😋 ")
    editor.edit(uri, "#include <cstdio>", f"// more ✅{line_end}#include <cstdio>")
    at = cursor_in(editor.texts[uri])
    moved = await editor.ghost(uri, at)
    assert moved is not None and moved.insert_text == first.insert_text
    assert editor.offsets(uri, moved.range) == (at - 4, at)
    # One character typed at the cursor drops it, and taking that back brings it again.
    editor.replace(uri, at, at, "i")
    for place in (at - 4, at, at + 1):
        assert await editor.ghost(uri, place) is None
    editor.undo(uri)
    again = await editor.ghost(uri, at)
    assert again == moved
    # The line that it would end in front of has changed: nothing.
    editor.replace(uri, at, at, f"{line_end}    int k = 0;")
    assert await editor.ghost(uri, at) is None
    editor.undo(uri)
    editor.accept_ghost(uri, moved)
    assert blank.split("saxpy(int")[0].count("\n") + 1 == editor.texts[uri].split("saxpy(int")[0].count("\n")


async def test_a_region_that_holds_text_has_no_ghost(editor: Editor, tmp_path: Path) -> None:
    uri, _ = await filled(editor, tmp_path, SAXPY)
    start = SAXPY.index("int i = ")
    for at in (start, start + 4, SAXPY.index("{\n    int i") + 1):
        assert await editor.ghost(uri, at) is None


async def test_a_ghost_in_the_middle_of_a_line(editor: Editor, tmp_path: Path) -> None:
    """A fill at a cursor: nothing was selected, so its place is empty."""
    text = SAXPY.replace("        z[i] = a * x[i] + y[i];\n}\n\nint", "        \n}\n\nint", 1)
    path = tmp_path / "saxpy.cu"
    path.write_text(text)
    uri = path.as_uri()
    editor.open(uri, text)
    at = text.index("if (i < n)\n        ") + len("if (i < n)\n        ")
    report = await editor.run("dice.fill", {"uri": uri, "version": 1, "range": editor.range(uri, at, at)})
    best = next((item for item in report["candidates"] if item["verdict"]["kind"] == "verified"), None)
    assert best is not None, [item["text"] for item in report["candidates"]]
    item = await editor.ghost(uri, at)
    assert item is not None and item.insert_text == best["text"]
    assert editor.offsets(uri, item.range) == (at, at)
    editor.replace(uri, at, at, "z")
    for place in (at, at + 1):
        assert await editor.ghost(uri, place) is None


async def test_a_preview_is_applied_only_when_it_is_confirmed(editor: Editor, tmp_path: Path) -> None:
    uri, best = await filled(editor, tmp_path, SAXPY)
    actions = await editor.actions(uri, BODY.strip())
    previews = [title for title in actions if title.endswith("(preview)")]
    if editor.name == "neovim":
        assert not previews, "it does not say that it asks before an edit, so it is not asked"
        (fill,) = await editor.candidates(uri)
        answer = await editor.run("dice.apply", {"fill": fill["fill"], "candidate": "A", "preview": True})
        assert not answer["applied"] and "no preview" in answer["reason"] and editor.texts[uri] == SAXPY
        return
    plain = [title for title in actions if title.startswith("DICE: apply ") and title not in previews]
    assert previews and len(plain) >= len(previews)
    action = actions[previews[0]]
    assert list(action.tags or ()) == [t.CodeActionTag.LlmGenerated]
    editor.confirms = False
    answer = await editor.take(action)
    assert answer == {"applied": False, "reason": "it was not confirmed in the preview"}
    assert editor.texts[uri] == SAXPY and not editor.messages, "the user has said no, and is told nothing more"
    (asked,) = editor.asked_about
    assert asked.needs_confirmation and asked.description and "verified" in asked.description
    editor.confirms = True
    assert await editor.take(action) == {"applied": True, "reason": None}
    assert best["text"].strip() in editor.texts[uri]
    line = editor.texts[uri][: editor.texts[uri].index("__global__")].count("\n")
    await editor.until_hint(uri, line, lambda label: "  verified" in label and "stale" not in label)


async def test_ghost_text_is_offered_only_to_those_who_have_it(tmp_path: Path) -> None:
    for text_document, offered in (({}, False), ({"inlineCompletion": {}}, True)):
        client = await RawClient.start()
        try:
            result = await client.initialize({"textDocument": text_document}, initializationOptions=NO_MODEL)
            assert ("inlineCompletionProvider" in result["capabilities"]) is offered
            client.open((tmp_path / "saxpy.cu").as_uri(), SAXPY)
            if offered:
                params = {
                    "textDocument": {"uri": (tmp_path / "saxpy.cu").as_uri()},
                    "position": {"line": 3, "character": 0},
                    "context": {"triggerKind": 2},
                }
                assert (await client.ask("textDocument/inlineCompletion", params))["items"] == []
            assert await client.stop() == 0
        finally:
            await client.close()
