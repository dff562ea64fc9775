"""A developer's session over stdio, as each of two editors would have it: the real engine, checkpoint and compilers."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from lsprotocol import types as t
from pygls.exceptions import JsonRpcException
from pytest_lsp import ClientServerConfig, LanguageClient
from pytest_lsp import fixture as lsp_fixture

from tests.stdio.editor import Editor
from tests.stdio.raw import PATIENCE_S, ROOT, SERVER

pytestmark = pytest.mark.asyncio(loop_scope="module")
SAXPY = (ROOT / "tests/data/saxpy.cu").read_text()
BODY = "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < n)\n        z[i] = a * x[i] + y[i];\n"
KERNEL_LINE = SAXPY[: SAXPY.index("__global__")].count("\n")
FIRST_BODY_LINE = KERNEL_LINE + 1


@lsp_fixture(
    params=["neovim", "vscode"], scope="module", config=ClientServerConfig(server_command=SERVER, server_env=None)
)
async def session(lsp_client: LanguageClient, request: pytest.FixtureRequest) -> AsyncIterator[None]:
    editor = Editor(lsp_client, request.param)
    lsp_client.editor = editor
    result = await editor.start(candidates=2)
    assert result.capabilities.position_encoding == editor.encoding
    yield
    await lsp_client.shutdown_session()
    assert lsp_client._server is not None and lsp_client._server.returncode == 0


@pytest.fixture
def editor(session: LanguageClient) -> Editor:
    editor: Editor = session.editor
    session.messages.clear()
    return editor


@pytest.fixture
def uri(tmp_path: Path) -> str:
    shutil.copy(ROOT / "tests/data/saxpy.cu", tmp_path / "saxpy.cu")
    return (tmp_path / "saxpy.cu").as_uri()


def checked(label: str) -> bool:
    return "regs" in label and "stale" not in label and "checking" not in label


async def test_open_fill_apply_undo_redo(editor: Editor, uri: str) -> None:
    editor.open(uri, SAXPY)
    first = await editor.until_hint(uri, KERNEL_LINE, lambda label: checked(label) and "  verified" in label)
    assert "registers" in (
        await editor.hover(uri, "saxpy(int n, float a, const float* x, const float* y, float* z) {\n    int") or ""
    )

    actions = await editor.actions(uri, BODY.strip())
    assert {"DICE: fill selection", "DICE: fill kernel body"} <= set(actions)
    fill = actions["DICE: fill selection"]
    assert fill.kind == t.CodeActionKind.RefactorRewrite and fill.edit is None
    assert (list(fill.tags or ()) == [t.CodeActionTag.LlmGenerated]) if editor.name == "vscode" else fill.tags is None

    report = await editor.take(fill)
    assert report["fill"] is not None and report["reason"] is None
    assert 1 <= len(report["candidates"]) <= 2
    assert all(item["text"] and item["build"]["kind"] for item in report["candidates"])
    assert report["decode"]["forwards"] > 0
    progress = next(iter(reversed(editor.client.progress_reports.values())))
    assert progress[0].kind == "begin" and progress[-1].kind == "end" and progress[0].cancellable
    await editor.until_hint(uri, FIRST_BODY_LINE, lambda label: label.startswith("A "))

    (offered,) = await editor.candidates(uri)
    assert offered["fill"] == report["fill"] and offered["text"] == BODY.strip()
    if editor.name == "neovim":
        assert any(method == "dice/candidate" for method, _ in editor.notifications)
    else:
        assert not editor.notifications, "a client that did not ask for our notifications must not get them"

    # Apply, and the text is what was offered; the fill's hint goes, the kernel is checked again.
    refreshes = editor.refreshes
    result = await editor.run("dice.apply", {"fill": report["fill"], "candidate": "A"})
    assert result == {"applied": True, "reason": None}
    text = report["candidates"][0]["text"]
    assert editor.texts[uri] == SAXPY.replace(BODY.strip(), text)
    assert not [label for _, label in await editor.hints(uri) if label.startswith("A ")]
    if editor.name == "vscode":
        await editor.until(lambda: editor.refreshes > refreshes)

    # Undo makes the report of the old text valid again at once, without a run.
    editor.undo(uri)
    assert editor.texts[uri] == SAXPY
    assert await editor.hint_at(uri, KERNEL_LINE) == first
    assert await editor.hint_at(uri, FIRST_BODY_LINE) is not None, "the candidates belong to the old text again"
    # And again: what was judged already needs no new fill.
    assert (await editor.run("dice.apply", {"fill": report["fill"], "candidate": "A"}))["applied"]
    assert await editor.run("dice.discard", {"fill": report["fill"]}) == {"discarded": 1}
    editor.close(uri)
    assert not editor.messages


async def test_text_that_changed_is_stale_at_once_and_undo_ends_that(editor: Editor, uri: str) -> None:
    editor.open(uri, SAXPY)
    first = await editor.until_hint(uri, KERNEL_LINE, lambda label: checked(label) and "  verified" in label)
    editor.edit(uri, "z[i] = a * x[i] + y[i];\n}\n\nint", "z[i] = a * x[i];\n}\n\nint")
    stale = await editor.hint_at(uri, KERNEL_LINE)
    assert stale is not None and stale.startswith("stale: ") and stale.removeprefix("stale: ") in first
    assert "changed since" in (
        await editor.hover(uri, "saxpy(int n, float a, const float* x, const float* y, float* z) {\n    int") or ""
    )
    editor.undo(uri)
    assert await editor.hint_at(uri, KERNEL_LINE) == first
    # A comment, white space and host code do not make evidence stale, and the hint moves with its kernel.
    editor.edit(uri, "#include <cstdio>\n", "#include <cstdio>\n\n// more\n")
    editor.edit(uri, "    if (i < n)", "    if (i < n)  // in range")
    assert await editor.hint_at(uri, KERNEL_LINE + 2) == first
    # A wrong kernel is called wrong after the save, and what was right before is right again after undo.
    editor.edit(uri, "z[i] = a * x[i] + y[i];\n}\n\nint", "z[i] = a * x[i] - y[i];\n}\n\nint")
    assert (await editor.hint_at(uri, KERNEL_LINE + 2) or "").startswith("stale")
    editor.save(uri)
    await editor.until_hint(uri, KERNEL_LINE + 2, lambda label: label.startswith("wrong: z["))
    editor.undo(uri)
    assert await editor.hint_at(uri, KERNEL_LINE + 2) == first
    editor.close(uri)


async def test_errors_stand_at_their_lines_until_the_kernel_changes(editor: Editor, uri: str) -> None:
    editor.open(uri, SAXPY.replace("z[i] = a * x[i] + y[i];\n}\n\nint", "z[i] = a * q[i] + y[i];\n}\n\nint"))
    await editor.until_hint(uri, KERNEL_LINE, lambda label: label.startswith("does not compile: 1 error"))
    await editor.until(lambda: editor.client.diagnostics.get(uri))
    (error,) = editor.client.diagnostics[uri]
    assert error.source == "dice" and '"q"' in error.message
    assert error.range.start == editor.range_of(uri, "q[i]").start
    editor.edit(uri, "#include <cstdio>\n", "// 换行 ✅\n#include <cstdio>\n")
    await editor.until(
        lambda: [item.range.start.line for item in editor.client.diagnostics[uri]] == [error.range.start.line + 1]
    )
    editor.edit(uri, "a * q[i]", "a * x[i]")
    await editor.until(lambda: not editor.client.diagnostics[uri])
    editor.close(uri)


async def test_a_directive_that_cannot_be_read_is_a_diagnostic(editor: Editor, uri: str) -> None:
    editor.open(uri, SAXPY.replace("__global__", "//dice: n = 1K; luanch <<<1, 2>>>\n__global__"))
    await editor.until(lambda: editor.client.diagnostics.get(uri))
    (problem,) = editor.client.diagnostics[uri]
    assert "luanch" in problem.message and problem.range.start == editor.range_of(uri, "luanch").start
    fixes = await editor.actions(uri, "luanch")
    editor.edit(uri, "luanch <<<1, 2>>>", "launch <<<cdiv(n, 256), 256>>>")
    await editor.until(lambda: not editor.client.diagnostics[uri])
    assert any("launch" in title for title in fixes), "the obvious fix is offered"
    editor.close(uri)


async def test_a_launch_that_is_not_known_can_be_written_down(editor: Editor, uri: str) -> None:
    kernel = "__global__ void twice(const float* x, float* y, int width) {\n    y[threadIdx.y * width] = 2 * x[threadIdx.x];\n}\n"
    editor.open(uri, kernel)
    await editor.until_hint(uri, 0, lambda label: "launch unknown" in label)
    action = (await editor.actions(uri, "twice"))["DICE: write //dice: line"]
    assert (await editor.take(action))["applied"]
    head, rest = editor.texts[uri].removesuffix(kernel), editor.texts[uri][-len(kernel) :]
    assert head.startswith("//dice: width = ") and "launch <<<" in head and "// guessed: " in head and rest == kernel
    assert not editor.client.diagnostics.get(uri), "what we write must be readable to us"
    editor.close(uri)


async def test_text_typed_meanwhile_moves_the_edit_or_drops_it(editor: Editor, uri: str) -> None:
    editor.open(uri, SAXPY)
    selection = editor.range_of(uri, BODY.strip())
    version = editor.versions[uri]
    # The selection is of version 1, but lines were added above it before the server looked.
    editor.edit(uri, "#include <cstdio>\n", "#include <cstdio>\n// one\n// two\n")
    report = await editor.run("dice.fill", {"uri": uri, "version": version, "range": selection})
    editor.edit(uri, "// two\n", "// 二\n// 三 😋\n")
    assert (await editor.run("dice.apply", {"fill": report["fill"], "candidate": "A"}))["applied"]
    text = report["candidates"][0]["text"]
    assert editor.texts[uri] == SAXPY.replace(
        "#include <cstdio>\n", "#include <cstdio>\n// one\n// 二\n// 三 😋\n"
    ).replace(BODY.strip(), text)
    editor.undo(uri)
    # The selected text itself is edited: the candidates have no place any more, and nothing is overwritten.
    editor.edit(uri, "    if (i < n)", "    if (i < n - 1)")
    before = editor.texts[uri]
    result = await editor.run("dice.apply", {"fill": report["fill"], "candidate": "A"})
    assert not result["applied"] and "has changed" in result["reason"] and editor.texts[uri] == before
    assert editor.messages and editor.messages[-1].startswith("Not applied: ")
    # An editor that does not take the edit: whatever it answers, we look at the text.
    editor.undo(uri)
    editor.take_edits = False
    result = await editor.run("dice.apply", {"fill": report["fill"], "candidate": "A"})
    editor.take_edits = True
    assert not result["applied"] and BODY.strip() in editor.texts[uri]
    editor.close(uri)


async def test_places_that_cannot_be_filled_say_why(editor: Editor, uri: str) -> None:
    editor.open(uri, SAXPY + "\n__global__ void half(")
    for words in ("int main() {", "saxpy_cpu", "#include <cstdio>", SAXPY[:500], "__global__ void half("):
        before = len(editor.messages)
        report = await editor.run("dice.fill", {"uri": uri, "version": 1, "range": editor.range_of(uri, words)})
        assert report["fill"] is None and not report["candidates"] and report["reason"]
        assert editor.messages[before:] == [report["reason"]]
    nowhere = {"start": {"line": 9999, "character": 9999}, "end": {"line": 3, "character": 1}}
    assert (await editor.run("dice.fill", {"uri": uri, "version": 1, "range": nowhere}))["reason"]
    assert (await editor.run("dice.fill", {"uri": uri, "kernel": "nobody"}))["reason"]
    with pytest.raises(JsonRpcException, match="not open"):
        await editor.run("dice.fill", {"uri": "file:///never.cu", "kernel": "saxpy"})
    editor.close(uri)


async def test_a_fill_is_cancelled_by_its_request_its_bar_or_the_command(editor: Editor, uri: str) -> None:
    editor.open(uri, SAXPY)
    arguments = {"uri": uri, "version": 1, "kernel": "saxpy", "candidates": 32}
    params = t.ExecuteCommandParams("dice.fill", [arguments])

    known = set(editor.client.progress_reports)

    async def until_it_runs() -> Any:
        """A new bar has been told something; its token."""
        reports = editor.client.progress_reports
        await editor.until(lambda: any(len(reports[token]) > 1 for token in set(reports) - known))
        (token,) = set(reports) - known
        known.add(token)
        return token

    sent = editor.client.protocol.send_request("workspace/executeCommand", params, msg_id="cancelled-1")
    await until_it_runs()
    editor.client.protocol.notify("$/cancelRequest", t.CancelParams("cancelled-1"))
    with pytest.raises(JsonRpcException) as refused:
        await asyncio.wait_for(asyncio.wrap_future(sent), PATIENCE_S)
    assert refused.value.code == -32800

    running = asyncio.ensure_future(editor.client.workspace_execute_command_async(params))
    token = await until_it_runs()
    editor.client.window_work_done_progress_cancel(t.WorkDoneProgressCancelParams(token))
    assert (await asyncio.wait_for(running, PATIENCE_S))["reason"] == "cancelled"
    await editor.until(lambda: editor.client.progress_reports[token][-1].kind == "end")

    running = asyncio.ensure_future(editor.client.workspace_execute_command_async(params))
    await until_it_runs()
    assert (await editor.run("dice.cancel", {"uri": uri}))["cancelled"] >= 1
    assert (await asyncio.wait_for(running, PATIENCE_S))["reason"] == "cancelled"
    # A newer fill of the same kernel ends the older one.
    older = asyncio.ensure_future(editor.client.workspace_execute_command_async(params))
    await until_it_runs()
    newer = await editor.run("dice.fill", {"uri": uri, "version": 1, "kernel": "saxpy", "candidates": 1})
    assert (await older)["reason"] == "cancelled" and newer["candidates"]
    editor.close(uri)


async def test_a_header_that_changes_outside_makes_its_kernels_stale(editor: Editor, uri: str, tmp_path: Path) -> None:
    header = tmp_path / "scale.h"
    header.write_text("#define SCALE 2.0f\n")
    kernel = (
        '#include "scale.h"\n'
        "__global__ void scale(const float* x, float* y, int n) {\n"
        "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < n) y[i] = SCALE * x[i];\n}\n"
    )
    editor.open(uri, kernel)
    first = await editor.until_hint(uri, 1, checked)

    async def write_until(value: str, said: Callable[[str], bool]) -> None:
        """Write the header, and again when nothing came of it: its folder may not have been watched yet."""
        for _ in range(60):
            header.write_text(f"#define SCALE {value}\n")
            for _ in range(20):
                if said(await editor.hint_at(uri, 1) or ""):
                    return
                await asyncio.sleep(0.1)
        raise AssertionError(f"the hint is still {await editor.hint_at(uri, 1)!r}")

    await write_until("undefined_name", lambda label: label.startswith("does not compile"))
    await write_until("2.0f", lambda label: label == first)
    editor.close(uri)


async def test_lenses_do_not_repeat_the_hint(editor: Editor, uri: str) -> None:
    editor.open(uri, SAXPY)
    await editor.until_hint(uri, KERNEL_LINE, checked)
    params = t.CodeLensParams(t.TextDocumentIdentifier(uri))
    if editor.name == "vscode" or editor.client.capabilities.text_document.code_lens:
        lenses = await editor._again(lambda: editor.client.text_document_code_lens_async(params))
        titles = [lens.command.title for lens in lenses]
        assert titles == ["Fill body", "Check"]
        (report,) = (await editor.run("dice.check", {"uri": uri, "kernel": "saxpy"}))["kernels"]
        assert report["build"]["kind"] == "compiled" and report["verdict"]["kind"] == "verified"
    editor.close(uri)
