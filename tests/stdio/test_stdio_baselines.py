"""Baselines and the history over stdio, with the real engine: what later versions of a kernel are held against."""

import asyncio
import base64
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
import pytest_asyncio
from lsprotocol import types as t
from pygls.exceptions import JsonRpcException

from tests.stdio.conftest import started
from tests.stdio.editor import Editor
from tests.stdio.raw import NO_MODEL, PATIENCE_S, ROOT

pytestmark = pytest.mark.asyncio(loop_scope="module")
SAXPY = (ROOT / "tests/data/saxpy.cu").read_text()
KERNEL_LINE = SAXPY[: SAXPY.index("__global__")].count("\n")
LINE = "z[i] = a * x[i] + y[i];\n}\n\nint"
WRONG = "z[i] = a * x[i] - y[i];\n}\n\nint"
OTHER = "z[i] = y[i] + a * x[i];\n}\n\nint"
FEWER_BLOCKS = (
    "{ __shared__ float kept[12000]; kept[threadIdx.x] = x[i]; z[i] = a * kept[threadIdx.x] + y[i]; }\n}\n\nint"
)
"""Correct, but its shared memory leaves room for fewer blocks."""
SIGNATURE = "saxpy(int n, float a, const float* x, const float* y, float* z) {\n    int"


def settled(label: str) -> bool:
    return "regs" in label and "stale" not in label and "checking" not in label


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["neovim", "vscode"])
async def session(request: pytest.FixtureRequest) -> AsyncIterator[Editor]:
    """One session, to which each test adds a folder of its own."""
    experimental = {"dice": True, "diceSvg": request.param == "vscode"}
    async with started(request.param, experimental=experimental, **NO_MODEL) as editor:
        yield editor


@pytest.fixture(params=["neovim", "vscode"])
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def uri(tmp_path: Path) -> str:
    (tmp_path / "src").mkdir()
    path = tmp_path / "src/saxpy.cu"
    path.write_text(SAXPY)
    return path.as_uri()


def said(folder: Path, settings: str) -> None:
    """What a workspace says of itself."""
    (folder / ".dice").mkdir()
    (folder / ".dice/settings.toml").write_text(settings + "\n")


async def save(editor: Editor, uri: str, old: str, new: str) -> str:
    """Change the kernel, save, and wait for what is said of it."""
    before = len((await editor.history(uri, "saxpy"))["measurements"])
    editor.edit(uri, old, new)
    editor.save(uri)
    await until_measured(editor, uri, before + 1)
    return await editor.until_hint(uri, KERNEL_LINE, lambda label: "checking" not in label and "stale" not in label)


async def until_measured(editor: Editor, uri: str, count: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while len((await editor.history(uri, "saxpy"))["measurements"]) < count:
            await editor.until_hint(uri, KERNEL_LINE, lambda label: True)


async def until_baseline(editor: Editor, uri: str, origin: str | None) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            baseline = (await editor.history(uri, "saxpy"))["baseline"]
            if (None if baseline is None else baseline["origin"]) == origin:
                return
            await editor.until_hint(uri, KERNEL_LINE, lambda label: True)


async def test_the_first_verified_version_is_the_baseline_until_one_is_accepted(
    editor: Editor, uri: str, tmp_path: Path
) -> None:
    editor.open_folder(tmp_path)
    editor.open(uri, SAXPY.replace(LINE, WRONG))
    await editor.until_hint(uri, KERNEL_LINE, lambda label: label.startswith("wrong"))
    known = await editor.history(uri, "saxpy")
    assert known["baseline"] is None, "a wrong version is no baseline"
    assert "DICE: accept as baseline" not in await editor.actions(uri, SIGNATURE)
    assert await save(editor, uri, WRONG, LINE)
    await until_baseline(editor, uri, "first")
    known = await editor.history(uri, "saxpy")
    assert [m["verdict"] for m in known["measurements"]] == ["wrong", "verified"] and known["problem"] is None
    assert known["baseline"]["device"] == "host" and known["baseline"]["registers"] > 0

    # Fewer blocks at once is worse than the first version, and said so at the kernel's name.
    await save(editor, uri, LINE, FEWER_BLOCKS)
    await editor.until(lambda: editor.client.diagnostics.get(uri))
    (worse,) = editor.client.diagnostics[uri]
    assert worse.code == "regression" and worse.severity is t.DiagnosticSeverity.Warning and worse.source == "dice"
    assert worse.range == name_range(editor, uri) and "occupancy 50%, was 100%" in worse.message
    assert len((await editor.history(uri, "saxpy"))["measurements"]) == 3

    # The user says that this is the version to go by; it is worse than itself no more.
    action = (await editor.actions(uri, SIGNATURE))["DICE: accept as baseline"]
    assert action.kind == t.CodeActionKind.RefactorRewrite and action.tags is None
    assert await editor.take(action) == {"accepted": True, "reason": None}
    await editor.until(lambda: not editor.client.diagnostics[uri])
    assert (await editor.history(uri, "saxpy"))["baseline"]["origin"] == "accepted"
    actions = await editor.actions(uri, SIGNATURE)
    assert "DICE: accept as baseline" not in actions and "DICE: forget the baseline" in actions

    # What is verified later does not take its place.
    await save(editor, uri, FEWER_BLOCKS, OTHER)
    assert (await editor.history(uri, "saxpy"))["baseline"]["origin"] == "accepted"
    assert await editor.take((await editor.actions(uri, SIGNATURE))["DICE: forget the baseline"]) == {"forgotten": True}
    assert (await editor.history(uri, "saxpy"))["baseline"] is None
    assert await editor.run("dice.forgetBaseline", {"uri": uri, "kernel": "saxpy"}) == {"forgotten": False}
    assert not editor.messages


def name_range(editor: Editor, uri: str) -> t.Range:
    start = editor.texts[uri].index(SIGNATURE)
    return editor.range(uri, start, start + len("saxpy"))


async def test_a_baseline_outlives_its_session_and_a_wrong_version_is_held_against_it(
    name: str, uri: str, tmp_path: Path
) -> None:
    async with started(name, tmp_path, **NO_MODEL) as first:
        first.open(uri, SAXPY)
        await first.until_hint(uri, KERNEL_LINE, settled)
        assert (await first.run("dice.acceptBaseline", {"uri": uri, "kernel": "saxpy"}))["accepted"]
    assert (tmp_path / ".dice/history.sqlite").is_file() and (tmp_path / ".dice/.gitignore").read_text() == "*\n"

    async with started(name, tmp_path, **NO_MODEL) as editor:
        known = await editor.history(uri, "saxpy")
        assert known["baseline"]["origin"] == "accepted" and len(known["measurements"]) == 1
        editor.open(uri, SAXPY.replace(LINE, WRONG))
        await editor.until(lambda: editor.client.diagnostics.get(uri))
        (wrong,) = editor.client.diagnostics[uri]
        assert wrong.code == "wrong" and wrong.severity is t.DiagnosticSeverity.Error
        assert wrong.range == name_range(editor, uri)
        assert wrong.message.startswith("wrong: z[") and "was verified" in wrong.message
        # It is said of the text that was checked, and of no other.
        editor.edit(uri, WRONG, OTHER)
        await editor.until(lambda: not editor.client.diagnostics[uri])
        editor.undo(uri)
        await editor.until(lambda: editor.client.diagnostics[uri])


async def test_a_version_that_cannot_be_accepted_is_not(editor: Editor, uri: str, tmp_path: Path) -> None:
    said(tmp_path, "check_on_open = false")
    editor.open_folder(tmp_path)
    editor.open(uri, SAXPY)
    accept = {"uri": uri, "kernel": "saxpy"}

    async def refusal() -> str:
        answer = await editor.run("dice.acceptBaseline", accept)
        assert answer["accepted"] is False and editor.messages[-1] == f"No baseline: {answer['reason']}"
        return answer["reason"]

    assert "was not checked yet" in await refusal()
    editor.save(uri)
    await editor.until_hint(uri, KERNEL_LINE, settled)
    editor.edit(uri, LINE, WRONG)
    assert "has changed since it was checked" in await refusal()
    assert "DICE: accept as baseline" not in await editor.actions(uri, SIGNATURE)
    editor.save(uri)
    await editor.until_hint(uri, KERNEL_LINE, lambda label: label.startswith("wrong"))
    assert "known to be wrong" in await refusal()
    editor.edit(uri, WRONG, "z[i] = a * q[i];\n}\n\nint")
    editor.save(uri)
    await editor.until_hint(uri, KERNEL_LINE, lambda label: label.startswith("does not compile"))
    assert "does not compile" in await refusal()
    for command in ("dice.acceptBaseline", "dice.forgetBaseline"):
        with pytest.raises(JsonRpcException, match="there is no kernel 'nobody'"):
            await editor.run(command, {"uri": uri, "kernel": "nobody"})


async def test_the_hover_shows_the_history(editor: Editor, uri: str, tmp_path: Path) -> None:
    editor.open_folder(tmp_path)
    editor.open(uri, SAXPY)
    await editor.until_hint(uri, KERNEL_LINE, settled)
    await until_measured(editor, uri, 1)
    await save(editor, uri, LINE, OTHER)
    text = await editor.hover(uri, SIGNATURE) or ""
    assert "2 checks since" in text
    pictures = re.findall(r"!\[[^]]*\]\(data:image/svg\+xml;base64,([\w+/=]+)\)", text)
    if editor.name == "vscode":
        assert ElementTree.fromstring(base64.b64decode(pictures[0])).tag.endswith("svg")
    else:
        assert not pictures and re.search("[▁▂▃▄▅▆▇█]{2}  ", text)


async def test_a_check_in_json_holds_no_machine_code(editor: Editor, uri: str) -> None:
    editor.open(uri, SAXPY)
    await editor.until_hint(uri, KERNEL_LINE, settled)
    await until_baseline(editor, uri, "first")
    (report,) = (await editor.run("dice.check", {"uri": uri, "kernel": "saxpy"}))["kernels"]
    assert report["baseline"]["origin"] == "first" and not report["baseline"]["build"]["cubin"]
    assert not report["build"]["cubin"]


async def test_a_history_belongs_to_the_innermost_folder_and_else_to_the_user(editor: Editor, tmp_path: Path) -> None:
    outer, inner, outside = tmp_path / "outer", tmp_path / "outer/inner", tmp_path / "outside"
    for folder in (outer, inner, outside):
        folder.mkdir()
        (folder / "saxpy.cu").write_text(SAXPY)
    editor.open_folder(outer)
    editor.open_folder(inner)
    for folder in (inner, outside):
        uri = (folder / "saxpy.cu").as_uri()
        editor.open(uri, SAXPY)
        await editor.until_hint(uri, KERNEL_LINE, settled)
        await until_baseline(editor, uri, "first")
    assert (inner / ".dice/history.sqlite").is_file()
    assert not (outer / ".dice").exists() and not (outside / ".dice").exists()
    assert (Path(os.environ["XDG_STATE_HOME"]) / "dice-lsp/outside/history.sqlite").is_file()


async def test_without_a_history_nothing_is_written(name: str, uri: str, tmp_path: Path) -> None:
    async with started(name, tmp_path, history=False, **NO_MODEL) as editor:
        editor.open(uri, SAXPY)
        await editor.until_hint(uri, KERNEL_LINE, settled)
        await until_baseline(editor, uri, "first")
        known = await editor.history(uri, "saxpy")
        assert "switched off" in known["problem"] and len(known["measurements"]) == 1
        assert not (tmp_path / ".dice").exists()


async def test_no_first_baseline_where_that_is_switched_off(editor: Editor, uri: str, tmp_path: Path) -> None:
    said(tmp_path, "auto_baseline = false")
    editor.open_folder(tmp_path)
    editor.open(uri, SAXPY)
    await editor.until_hint(uri, KERNEL_LINE, settled)
    await until_measured(editor, uri, 1)
    (report,) = (await editor.run("dice.check", {"uri": uri, "kernel": "saxpy"}))["kernels"]
    await until_measured(editor, uri, 2)
    assert report["baseline"] is None and (await editor.history(uri, "saxpy"))["baseline"] is None
