"""What a workspace decides: settings of its own file and of its folder in the client; and what a save costs at most."""

import asyncio
import json
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
KERNEL_LINE = SAXPY[: SAXPY.index("__global__")].count("\n")
LINE = "z[i] = a * x[i] + y[i];\n}\n\nint"
WHOLE = {"start": {"line": 0, "character": 0}, "end": {"line": 1000, "character": 0}}
SLOW = """
void slow_cpu(const float* x, float* y, int n) {
    for (int i = 0; i < n; ++i) { float s = 0; for (int k = 0; k < 60000; ++k) s = s * 0.5f + x[i]; y[i] = s; }
}
//dice: n = 1M | 1000003; ref slow_cpu
__global__ void slow(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { float s = 0; for (int k = 0; k < 60000; ++k) s = s * 0.5f + x[i]; y[i] = s; }
}
"""


def settled(label: str) -> bool:
    return "regs" in label and "stale" not in label and "checking" not in label


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["neovim", "vscode"])
async def session(request: pytest.FixtureRequest) -> AsyncIterator[Editor]:
    """One session, to which each test adds folders of its own."""
    async with started(request.param) as editor:
        yield editor


def project(folder: Path, settings: str | None = None, text: str = SAXPY) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "saxpy.cu").write_text(text)
    if settings is not None:
        (folder / ".dice").mkdir(exist_ok=True)
        (folder / ".dice/settings.toml").write_text(settings)
    return (folder / "saxpy.cu").as_uri()


async def quiet(editor: Editor, uri: str) -> bool:
    """Nothing is checked: looked at after the server has answered requests that came later."""
    for _ in range(10):
        status = await editor.status()
        if status["checks"]:
            return False
        await asyncio.sleep(0.05)
    return await editor.hint_at(uri, KERNEL_LINE) is None


async def test_a_workspace_decides_whether_it_is_checked(editor: Editor, tmp_path: Path) -> None:
    uri = project(tmp_path / "one", "check_on_save = false\ncheck_on_open = false\n")
    other = project(tmp_path / "two")
    editor.open_folder(tmp_path / "one")
    editor.open_folder(tmp_path / "two")
    editor.open(uri, SAXPY)
    editor.save(uri)
    editor.open(other, SAXPY)
    await editor.until_hint(other, KERNEL_LINE, settled)
    assert await quiet(editor, uri)
    # What is asked for is done all the same, and what is saved is never edited.
    (report,) = (await editor.run("dice.check", {"uri": uri, "kernel": "saxpy"}))["kernels"]
    assert report["verdict"]["kind"] == "verified"
    # The file is read again when something is saved.
    editor.edit(uri, LINE, "z[i] = y[i] + a * x[i];\n}\n\nint")
    editor.save(uri)
    assert (await editor.hint_at(uri, KERNEL_LINE) or "").startswith("stale")
    (tmp_path / "one/.dice/settings.toml").write_text("check_on_save = true\n")
    editor.save(uri)
    await editor.until_hint(uri, KERNEL_LINE, settled)
    assert editor.texts[uri] == SAXPY.replace(LINE, "z[i] = y[i] + a * x[i];\n}\n\nint") and not editor.messages


async def test_a_workspace_without_hints_has_the_state_in_a_lens(editor: Editor, tmp_path: Path) -> None:
    uri = project(tmp_path, "inlay_hints = false\n")
    editor.open_folder(tmp_path)
    editor.open(uri, SAXPY)
    while "verified in" not in (
        await editor.hover(uri, "saxpy(int n, float a, const float* x, const float* y, float* z) {\n    int") or ""
    ):
        await asyncio.sleep(0.05)
    assert await editor.hints(uri) == []
    params = t.CodeLensParams(t.TextDocumentIdentifier(uri))
    if editor.name == "vscode":
        lenses = await editor._again(lambda: editor.client.text_document_code_lens_async(params))
        # Without a hint, the lens says how the kernel is.
        assert [lens.command.title for lens in lenses][2].endswith("verified on host")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ('model = "evil"\ncheck_on_open = false\n', "model is not for a workspace to set"),
        ('nvcc = "/tmp/evil"\ncompile_flags = ["-DX"]\n', "nvcc is not for a workspace to set"),
        ("check_budget_s = -1\n", "check_budget_s must be between 1.0 and 86400.0, not -1.0; 120.0 is used"),
        ("check_on_save = maybe\n", "is not TOML"),
        ("x" * 100_000, "is longer than 65536 bytes"),
    ],
)
async def test_a_workspace_must_not_choose_what_is_executed(
    editor: Editor, tmp_path: Path, settings: str, said: str
) -> None:
    uri = project(tmp_path, settings)
    editor.open_folder(tmp_path)
    editor.open(uri, SAXPY)
    await editor.until(lambda: any(said in message for message in editor.messages))
    assert (await editor.status())["model"]["name"].startswith("tiny")
    messages = len(editor.messages)
    editor.save(uri)
    (report,) = (await editor.run("dice.check", {"uri": uri}))["kernels"]
    assert report["verdict"]["kind"] == "verified" and len(editor.messages) == messages, "said once"


@pytest.mark.asyncio(loop_scope="function")
async def test_folders_of_one_client_have_settings_of_their_own(client: RawClient, tmp_path: Path) -> None:
    uris = {name: project(tmp_path / name) for name in ("checked", "unchecked")}
    folders = [{"uri": (tmp_path / name).as_uri(), "name": name} for name in uris]

    def configuration(request: dict[str, Any]) -> Any:
        if request["method"] != "workspace/configuration":
            return None
        scopes = [item.get("scopeUri", "") for item in request["params"]["items"]]
        assert all(item["section"] == "dice" for item in request["params"]["items"])
        return [{"checkOnOpen": not scope.endswith("/unchecked")} if scope else None for scope in scopes]

    client.answer = configuration
    capabilities = {"workspace": {"configuration": True}, "textDocument": {"inlayHint": {}}}
    await client.initialize(capabilities, workspaceFolders=folders, initializationOptions=NO_MODEL)
    for uri in uris.values():
        client.open(uri, SAXPY)

    async def hints(uri: str) -> list[str]:
        while True:
            number = client.request("textDocument/inlayHint", {"textDocument": {"uri": uri}, "range": WHOLE})
            answer = await client.response(number)
            if "result" in answer:
                return [hint["label"] for hint in answer["result"]]

    while not any(map(settled, await hints(uris["checked"]))):
        await asyncio.sleep(0.05)
    assert await hints(uris["unchecked"]) == []
    # A folder that goes takes its settings along.
    change = {"event": {"added": [], "removed": [folders[1]]}}
    client.notify("workspace/didChangeWorkspaceFolders", change)
    client.notify("textDocument/didClose", {"textDocument": {"uri": uris["unchecked"]}})
    await client.until(lambda: sum(item["method"] == "workspace/configuration" for item in client.requests) >= 2)
    client.open(uris["unchecked"], SAXPY)
    while not any(map(settled, await hints(uris["unchecked"]))):
        await asyncio.sleep(0.05)
    assert await client.stop() == 0


async def test_a_kernel_that_a_check_does_not_come_to_says_so(editor: Editor, tmp_path: Path) -> None:
    uri = project(tmp_path, "check_budget_s = 1\n", SLOW + SAXPY)
    text = SLOW + SAXPY
    editor.open_folder(tmp_path)
    editor.open(uri, text)
    lines = {kernel: text[: text.index(f"__global__ void {kernel}(")].count("\n") for kernel in ("slow", "saxpy")}
    for line in lines.values():
        label = await editor.until_hint(uri, line, lambda label: "checking" not in label)
        assert "regs" in label and "not checked" in label, "the compiler's figures are there all the same"
    said = await editor.hover(uri, "saxpy(int n, float a, const float* x, const float* y, float* z) {\n    int") or ""
    assert "not checked: the budget of 1 s is used up" in said
    action = (await editor.actions(uri, "saxpy(int n, float a, const float* x, const float* y, float* z) {\n    int"))[
        "DICE: check this kernel"
    ]
    assert action.command is not None
    (report,) = (await editor.run("dice.check", {"uri": uri, "kernel": "saxpy"}))["kernels"]
    assert report["verdict"]["kind"] == "verified"
    told = editor.client.diagnostics.get(uri) or ()
    # A clause that says what is found anyway is only shown paler.
    assert all(d.severity == t.DiagnosticSeverity.Hint for d in told) and not editor.messages


@pytest.mark.asyncio(loop_scope="function")
async def test_the_first_figures_do_not_wait_for_another_check(client: RawClient, tmp_path: Path) -> None:
    slow = project(tmp_path / "slow", text=SLOW)
    plain = project(tmp_path / "plain")
    capabilities = {"textDocument": {"hover": {"contentFormat": ["markdown"]}}, "experimental": {"dice": True}}
    await client.initialize(capabilities, initializationOptions={"checkOnOpen": False, "runDeadlineS": 60, **NO_MODEL})

    async def hover(uri: str, text: str, kernel: str) -> str:
        start = text.index(f"__global__ void {kernel}(")
        place = {"line": text[:start].count("\n"), "character": len("__global__ void ") + 1}
        found = await client.ask("textDocument/hover", {"textDocument": {"uri": uri}, "position": place})
        return found["contents"]["value"] if found else ""

    def check(uri: str) -> int:
        arguments = {"command": "dice.check", "arguments": [{"uri": uri}]}
        return client.request("workspace/executeCommand", arguments)

    client.open(slow, SLOW)
    client.open(plain, SAXPY)
    first = check(slow)
    while "Still being checked" not in await hover(slow, SLOW, "slow"):
        await asyncio.sleep(0.02)
    await asyncio.sleep(0.3)
    client.notify("textDocument/didSave", {"textDocument": {"uri": plain}})
    while "registers" not in await hover(plain, SAXPY, "saxpy"):
        assert first not in client.responses, "the figures came only after the other document's verdict"
        await asyncio.sleep(0.02)
    client.notify("$/cancelRequest", {"id": first})
    await client.response(first)
    while "verified in" not in await hover(plain, SAXPY, "saxpy"):
        await asyncio.sleep(0.05)
    assert await client.stop() == 0


async def test_a_header_that_is_saved_in_the_editor_checks_what_includes_it(editor: Editor, tmp_path: Path) -> None:
    header, source = tmp_path / "scale.cuh", tmp_path / "scale.cu"
    texts = {
        header: "#pragma once\n#define SCALE 2.0f\n",
        source: '#include "scale.cuh"\n__global__ void scale(const float* x, float* y, int n) {\n'
        "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < n) y[i] = SCALE * x[i];\n}\n",
    }
    editor.open_folder(tmp_path)
    for path, text in texts.items():
        path.write_text(text)
        editor.open(path.as_uri(), text)
    first = await editor.until_hint(source.as_uri(), 1, settled)
    # Typing into the header changes nothing on disk, where the compiler reads it.
    editor.edit(header.as_uri(), "2.0f", "undefined_name")
    assert await editor.hint_at(source.as_uri(), 1) == first
    header.write_text(editor.texts[header.as_uri()])
    editor.save(header.as_uri())
    await editor.until_hint(source.as_uri(), 1, lambda label: label.startswith("does not compile"))
    editor.edit(header.as_uri(), "undefined_name", "2.0f")
    header.write_text(editor.texts[header.as_uri()])
    editor.save(header.as_uri())
    assert await editor.until_hint(source.as_uri(), 1, settled) == first


async def test_the_newest_save_wins(editor: Editor, tmp_path: Path) -> None:
    uri = project(tmp_path, "check_on_open = false\n")
    editor.open_folder(tmp_path)
    editor.open(uri, SAXPY)
    last = LINE
    for number in range(5):
        new = f"z[i] = a * x[i] - {number}.0f;\n}}\n\nint"
        editor.edit(uri, last, new)
        editor.save(uri)
        last = new
        await asyncio.sleep(0.1 * (number % 2))
    editor.edit(uri, last, LINE)
    editor.save(uri)
    await editor.until_hint(uri, KERNEL_LINE, lambda label: "  verified" in label and settled(label))
    assert not [item for item in editor.client.diagnostics.get(uri, ()) if item.code == "wrong"]
    assert json.dumps(editor.texts[uri]) == json.dumps(SAXPY), "nothing is edited on save"


async def test_the_first_figures_do_not_wait_for_a_fill(editor: Editor, tmp_path: Path) -> None:
    project(tmp_path, "check_on_open = false\ncandidates = 64\n")
    filled, saved = project(tmp_path / "filled"), project(tmp_path / "saved")
    editor.open_folder(tmp_path)
    editor.open(filled, SAXPY)
    editor.open(saved, SAXPY)
    running = asyncio.ensure_future(editor.run("dice.fill", {"uri": filled, "version": 1, "kernel": "saxpy"}))
    while not (await editor.candidates(filled)) or not (await editor.candidates(filled))[0]["candidates"]:
        assert not running.done()
        await asyncio.sleep(0.02)
    editor.save(saved)
    await editor.until_hint(saved, KERNEL_LINE, lambda label: "regs" in label)
    assert not running.done(), "the figures came only after the fill"
    assert (await editor.run("dice.cancel", {"uri": filled}))["cancelled"] == 1
    assert (await running)["reason"] == "cancelled"
    await editor.until_hint(saved, KERNEL_LINE, settled)
