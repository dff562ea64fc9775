"""Directives over stdio, as each of two editors has them: completion, hovers, fixes, and lines that are written."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from lsprotocol import types as t

from tests.stdio.conftest import started
from tests.stdio.editor import Editor
from tests.stdio.raw import NO_MODEL, PATIENCE_S, RawClient

pytestmark = pytest.mark.asyncio(loop_scope="module")
COMMENT = "// 归约 共享内存 ✅ 😋\n"
KERNEL = """void gold(const float* x, float* y, int n) {
    for (int i = 0; i < n; i++) y[i] = 2 * x[i];
}
@
/* 😋 */ __global__ void twice(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2 * x[i];
}
void run(float* x, float* y, int n) {
    twice<<<(n + 127) / 128, 128>>>(x, y, n);
}
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["neovim", "vscode"])
async def session(request: pytest.FixtureRequest) -> AsyncIterator[Editor]:
    async with started(request.param, checkOnOpen=False, checkOnSave=False, **NO_MODEL) as editor:
        yield editor


def marked(line: str, line_end: str = "\n", kernel: str = KERNEL) -> tuple[str, int]:
    """A file with a directive, and the offset of the mark ¦ in it."""
    text = (COMMENT + kernel.replace("@", line)).replace("\n", line_end)
    at = text.index("¦")
    return text.replace("¦", ""), at


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("line", "label", "after"),
    [
        ("\t//dice: /* 😋✅ */ la¦", "launch", "\t//dice: /* 😋✅ */ launch "),
        ("//dice: n = 4 | 5; in ¦ // 😋", "x", "//dice: n = 4 | 5; in x[n] // 😋"),
        ("//dice: launch <¦", "<<<cdiv(n, 128), 128>>>", "//dice: launch <<<cdiv(n, 128), 128>>>"),
        ("//dice: ref g¦", "gold", "//dice: ref gold"),
        ("//dice: n = 4; \\\n  in x[¦", "n", "//dice: n = 4; \\\n  in x[n"),
        ("//dice: in xx¦yy[n]", "x", "//dice: in x[n]"),
        ("//dice: out y[n]: uni¦", "uniform(a, b)", "//dice: out y[n]: uniform(0, 1)"),
    ],
)
async def test_an_item_goes_where_the_cursor_is(
    editor: Editor, tmp_path: Path, line: str, label: str, after: str, line_end: str
) -> None:
    uri = (tmp_path / "twice.cu").as_uri()
    text, at = marked(line, line_end)
    editor.open(uri, text)
    items = {item.label: item for item in await editor.completions(uri, at)}
    editor.choose(uri, items[label])
    if "xxyy" in line.replace("¦", "") and editor.name == "neovim":
        # An editor that cannot tell the two apart gets the item before the rest of the word.
        after = after.replace("x[n]", "xyy[n]")
    assert editor.texts[uri] == text.replace(
        line.replace("¦", "").replace("\n", line_end), after.replace("\n", line_end)
    )


async def test_nothing_is_said_about_what_is_no_directive(editor: Editor, tmp_path: Path) -> None:
    uri = (tmp_path / "twice.cu").as_uri()
    for line in ("¦//dice: hot", "// dice ¦", "int value = ¦;", "/* //dice: */ int ¦", "//dice: hot ¦"):
        text, at = marked(line)
        editor.open(uri, text)
        assert await editor.completions(uri, at) == [], line
        editor.close(uri)


async def test_what_is_typed_is_completed_at_once(editor: Editor, tmp_path: Path) -> None:
    uri = (tmp_path / "twice.cu").as_uri()
    text, at = marked("¦")
    editor.open(uri, text)
    for number, character in enumerate("//dice: in x[n]; out "):
        editor.replace(uri, at + number, at + number, character)
    items = await editor.completions(uri, at + len("//dice: in x[n]; out "))
    assert [item.label for item in items] == ["y"]
    editor.choose(uri, items[0])
    assert "//dice: in x[n]; out y[n]\n" in editor.texts[uri]


async def test_directives_in_the_strings_of_a_python_file(editor: Editor, tmp_path: Path) -> None:
    uri = (tmp_path / "module.py").as_uri()
    for quote in ('"""', "'''"):
        program = f"# ✅\nsource = r{quote}{KERNEL}{quote}\nname = 'x'\n"
        text, at = marked("//dice: in ¦", kernel=program)
        text = text.removeprefix(COMMENT)
        at -= len(COMMENT)
        editor.open(uri, text)
        items = {item.label: item for item in await editor.completions(uri, at)}
        editor.choose(uri, items["x"])
        assert editor.texts[uri] == text.replace("//dice: in ", "//dice: in x[n]")
        editor.close(uri)
    program = "'//dice: in ' # //dice: "
    editor.open(uri, program)
    assert await editor.completions(uri, program.index("in ") + 3) == []
    assert await editor.completions(uri, len(program)) == []


async def test_a_client_without_snippets_gets_plain_text(tmp_path: Path) -> None:
    client = await RawClient.start()
    try:
        answer = await client.initialize(
            {"textDocument": {"completion": {}}}, initializationOptions={"checkOnOpen": False, **NO_MODEL}
        )
        assert set(answer["capabilities"]["completionProvider"]["triggerCharacters"]) == {" ", ":", "[", "<"}
        text, at = marked("//dice: ¦")
        uri = (tmp_path / "a.cu").as_uri()
        client.open(uri, text)
        line = text[:at].count("\n")
        place = {"textDocument": {"uri": uri}, "position": {"line": line, "character": len("//dice: ")}}
        found = await client.ask("textDocument/completion", place)
        assert found["items"] and all(item.get("insertTextFormat", 1) == 1 for item in found["items"])
        assert not any("$" in item["textEdit"]["newText"] for item in found["items"])
        assert await client.stop() == 0
    finally:
        await client.close()


async def test_a_long_text_that_is_being_read_is_completed_around_the_cursor(tmp_path: Path) -> None:
    """The directive stands at line 60 000 of a text whose reading takes seconds."""
    client = await RawClient.start()
    try:
        await client.initialize(
            {"textDocument": {"completion": {"completionItem": {"snippetSupport": True}}}},
            initializationOptions={"checkOnOpen": False, **NO_MODEL},
        )
        host = "static int helper(int a) {\n    return a + 1;\n}\n" * 20_000
        text = f"{host}//dice: in \n__global__ void k(const float* x, int n) {{}}\n{host}"
        uri = (tmp_path / "long.cu").as_uri()
        client.open(uri, text)
        place = {"textDocument": {"uri": uri}, "position": {"line": 60_000, "character": len("//dice: in ")}}
        found = await client.ask("textDocument/completion", place, PATIENCE_S)
        assert [item["label"] for item in found["items"]] == ["x"]
        (range_,) = {repr(item["textEdit"]["range"]) for item in found["items"]}
        assert "60000" in range_
        elsewhere = place | {"position": {"line": 4, "character": 8}}
        assert await client.ask("textDocument/completion", elsewhere) is None
        assert await client.stop() == 0
    finally:
        await client.close()


UNKNOWN = """__global__ void first(const float* x, float* y, int width) {
    y[threadIdx.y * width] = 2 * x[threadIdx.x];
}
namespace ours {
    /* 😋 */ __global__ void second(float* y, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] = 1;
    }
}
"""


async def applied(editor: Editor, action: t.CodeAction) -> None:
    """What an editor does with a quick fix: the edit that it carries."""
    assert action.edit is not None
    assert editor._apply(t.ApplyWorkspaceEditParams(edit=action.edit)).applied


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
async def test_what_was_inferred_is_written_for_a_kernel_and_for_all(
    editor: Editor, tmp_path: Path, line_end: str
) -> None:
    uri = (tmp_path / "unknown.cu").as_uri()
    text = (COMMENT + UNKNOWN).replace("\n", line_end)
    editor.open(uri, text)
    actions = await editor.actions(uri, "void second")
    action = actions["DICE: write what was inferred"]
    assert action.kind == "refactor.rewrite" and not action.tags, "no model has a part in it"
    assert (await editor.take(action))["applied"]
    line = editor.texts[uri].split(line_end)[5]
    assert line.startswith("    //dice: n = ") and "out y[n]" in line and "guessed" not in line
    editor.undo(uri)
    everything = actions["DICE: write what was inferred, for all kernels of the file"]
    assert everything.kind == "refactor.rewrite", "a source action would be run at every save"
    assert (await editor.take(everything))["applied"]
    written = editor.texts[uri]
    assert written.count("//dice: ") == 2 + written.count("//dice: launch") and "// guessed: " in written
    assert "\n" not in written.replace(line_end, "")
    assert [each for each in written.split(line_end) if "//dice:" not in each] == text.split(line_end)
    result = await editor.run("dice.writeDirective", {"uri": uri, "kernel": "second"})
    assert not result["applied"] and "written there already" in result["reason"]
    await editor.until(lambda: not editor.client.diagnostics.get(uri))


async def test_a_client_with_snippets_in_its_edits_asks_for_what_is_guessed(tmp_path: Path) -> None:
    async with started("vscode", snippets=True, checkOnOpen=False, **NO_MODEL) as editor:
        uri = (tmp_path / "unknown.cu").as_uri()
        editor.open(uri, UNKNOWN)
        result = await editor.run("dice.writeDirective", {"uri": uri, "kernel": "first"})
        assert result["applied"], result
        (snippet,) = editor.snippets
        assert "launch <<<${" in snippet and "guessed" not in snippet
        assert editor.texts[uri].startswith("//dice: ") and editor.texts[uri].endswith(UNKNOWN)
        assert "$" not in editor.texts[uri]


async def test_a_directive_that_does_not_fit_is_told_of_and_mended(editor: Editor, tmp_path: Path) -> None:
    uri = (tmp_path / "twice.cu").as_uri()
    text, _ = marked("//dice: n = 1K; in x[n]; launch <<<cdiv(n, 256), {64, 64}>>>; hot; hot¦")
    editor.open(uri, text)

    def found() -> dict[str, t.Diagnostic]:
        return {item.message.split(":")[0]: item for item in editor.client.diagnostics.get(uri, [])}

    await editor.until(lambda: set(found()) == {"the block has 4096 threads", "hot or cold is given twice"})
    await applied(editor, (await editor.actions(uri, "hot; hot"))["DICE: remove the second one"])
    await editor.until(lambda: set(found()) == {"the block has 4096 threads", "this is found without the clause"})
    needless = found()["this is found without the clause"]
    assert needless.severity is t.DiagnosticSeverity.Hint
    assert needless.range == editor.range_of(uri, "in x[n]")
    assert needless.tags and t.DiagnosticTag.Unnecessary in needless.tags
    await applied(editor, (await editor.actions(uri, "in x[n]"))["DICE: remove the clause"])
    assert "//dice: n = 1K; launch <<<cdiv(n, 256), {64, 64}>>>; hot\n" in editor.texts[uri]
    await editor.until(lambda: set(found()) == {"the block has 4096 threads"})
    editor.edit(uri, "{64, 64}", "64")
    await editor.until(lambda: not found())


async def test_a_directive_above_no_kernel_is_told_of_and_moved(editor: Editor, tmp_path: Path) -> None:
    uri = (tmp_path / "module.py").as_uri()
    program = 'source = """__global__ void k(float* y) {\n    //dice: hot\n    y[0] = 1;\n}\n"""\n'
    editor.open(uri, program)
    await editor.until(lambda: editor.client.diagnostics.get(uri))
    (problem,) = editor.client.diagnostics[uri]
    assert "inside of k" in problem.message and problem.severity is t.DiagnosticSeverity.Warning
    await applied(editor, (await editor.actions(uri, "//dice"))["DICE: move it above k"])
    assert editor.texts[uri] == 'source = """\n//dice: hot\n__global__ void k(float* y) {\n    y[0] = 1;\n}\n"""\n'
    await editor.until(lambda: not editor.client.diagnostics[uri])


async def test_a_hover_explains_the_clause_and_the_launch(editor: Editor, tmp_path: Path) -> None:
    uri = (tmp_path / "twice.cu").as_uri()
    text, _ = marked("// 😋\n//dice: n = 1K | 33; in x[n]; launch <<<cdiv(n, 256), 256>>>¦")
    editor.open(uri, text)
    while (found := await editor.hover(uri, "x[n]; launch")) is None:
        await asyncio.sleep(0.05)  # the text is still being read
    assert "only reads" in found and "1024 x float, 4 KiB" in found
    assert "| n = 33" in found and "Without the clause: `in x[n]`" in found
    found = await editor.hover(uri, "launch <<<cdiv(n, 256)")
    assert found is not None and "grid `cdiv(n, 128)`, launch at line " in found
    found = await editor.hover(uri, "void twice")
    assert found is not None and "Not checked yet" in found and "| grid" in found and "directive" in found
