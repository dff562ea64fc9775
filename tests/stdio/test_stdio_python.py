"""Kernels in the strings of a Python program, in an editor: hints at their lines, a fill that stays in its string."""

import ast
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from lsprotocol import types as t

from tests.stdio.conftest import started
from tests.stdio.editor import Editor
from tests.stdio.raw import ROOT

pytestmark = pytest.mark.asyncio(loop_scope="module")
PROGRAM = (ROOT / "tests/data/program.py").read_text()
EXTENSION = (ROOT / "tests/data/inline_extension.py").read_text()
WIDE = 'note = "归约 😋"; mod = SourceModule("""'
"""Characters of every width stand before the string on its own line."""


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["neovim", "vscode"])
async def session(request: pytest.FixtureRequest) -> AsyncIterator[Editor]:
    async with started(request.param, candidates=4) as editor:
        yield editor


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
async def test_a_kernel_in_a_string_is_checked_filled_and_put_back(
    editor: Editor, tmp_path: Path, line_end: str
) -> None:
    text = PROGRAM.replace('mod = SourceModule("""', WIDE).replace("\n", line_end)
    path = tmp_path / "program.py"
    path.write_bytes(text.encode())
    uri = path.as_uri()
    editor.open(uri, text)
    await editor.until_hint(uri, 6, lambda label: label.endswith("verified on host"))
    assert "saxpy" in (await editor.hover(uri, "saxpy(float a") or "")
    actions = await editor.actions(uri, "z[i] = a * x[i] + y[i];")
    await editor.take(actions["DICE: fill kernel body"])
    (offered,) = await editor.candidates(uri)
    start, end = editor.offsets(uri, t.Range(*(t.Position(**offered["range"][key]) for key in ("start", "end"))))
    assert text[start:end] == offered["text"] and "a * x[i]" in offered["text"]
    best = offered["candidates"][0]
    result = await editor.run("dice.apply", {"fill": offered["fill"], "candidate": best["label"], "key": best["key"]})
    assert result["applied"], result
    after = editor.texts[uri]
    assert after == text[:start] + best["newText"] + text[end:]
    ast.parse(after)
    await editor.until_hint(uri, 6, lambda label: label.endswith("verified on host"))
    editor.undo(uri)
    assert editor.texts[uri] == text


async def test_a_kernel_on_the_line_of_its_quotes_is_found_at_its_column(editor: Editor, tmp_path: Path) -> None:
    text = 'note = "归约 😋"; code = """__global__ void twice(float* x) { x[threadIdx.x] *= 2.0f; }"""\n'
    path = tmp_path / "one_line.py"
    path.write_text(text)
    uri = path.as_uri()
    editor.open(uri, text)
    await editor.until_hint(uri, 0, lambda label: "regs" in label)
    assert "twice" in (await editor.hover(uri, "twice(float") or "")
    assert await editor.hover(uri, "note =") is None


async def test_python_without_kernels_is_left_in_peace(editor: Editor, tmp_path: Path) -> None:
    path = tmp_path / "plain.py"
    text = "import sys\n\nTEMPLATE = f'''__global__ void f() {{ }}{sys.argv}'''\n"
    path.write_text(text)
    uri = path.as_uri()
    editor.open(uri, text)
    editor.save(uri)
    assert await editor.actions(uri, "__global__") == {}
    assert await editor.hints(uri) == []
    assert await editor.hover(uri, "__global__") is None


async def test_an_inline_extension_is_held_against_its_model(editor: Editor, tmp_path: Path) -> None:
    path = tmp_path / "extension.py"
    path.write_text(EXTENSION)
    uri = path.as_uri()
    editor.open(uri, EXTENSION)
    line = EXTENSION[: EXTENSION.index("void biased_softmax_kernel")].count("\n")
    await editor.until_hint(uri, line, lambda label: label.endswith("verified on host"))
    assert "torch.softmax(x * 0.5 + bias, dim=1)" in (await editor.hover(uri, "biased_softmax_kernel(const") or "")
    editor.edit(uri, "x * self.scale + bias", "x * self.scale - bias")
    editor.save(uri)
    await editor.until_hint(uri, line, lambda label: label.startswith("wrong"))
