"""A project's flags in an editor: public reports about other tools as tests, and databases that come, change and go.

The reports are clangd/clangd#1938 (the command of xmake), #1815 (`malloc` in a file for `sm_52`) and #2294 (a `.cuh`
without an entry), with kernels of our own.
"""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from lsprotocol import types as t

from tests.stdio.conftest import started
from tests.stdio.editor import Editor
from tests.stdio.raw import NO_MODEL

pytestmark = pytest.mark.asyncio(loop_scope="module")
MAIN = """\
#include <cstdlib>
#include "scale.cuh"

void scale_cpu(const float* x, float* y, int n) { for (int i = 0; i < n; ++i) y[i] = FACTOR * x[i]; }
//dice: n = 1000 | 33; ref scale_cpu
__global__ void scale_twice(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = scaled(x[i]);
}

int main() {
    void* host = malloc(1);
    free(host);
    scale_twice<<<4, 256>>>(nullptr, nullptr, 1000);
}
"""
HEADER = """\
#pragma once
#ifndef FACTOR
#error the factor comes from the build
#endif
__device__ inline float scaled(float value) { return FACTOR * value; }
__global__ void scale(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = scaled(x[i]);
}
"""
MAIN_LINE, HEADER_LINE = 5, 5
XMAKE = (
    "/usr/local/cuda/bin/nvcc -c -Xcompiler -fPIE -O3 -Iinclude -I/usr/local/cuda/include -m64 -rdc=true {factor} "
    "-gencode arch=compute_{arch},code=sm_{arch} -o build/.objs/main.cu.o src/main.cu"
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def session() -> AsyncIterator[Editor]:
    async with started("neovim", backend="host", **NO_MODEL) as editor:
        yield editor


class Project:
    """What the reports are about: `src/main.cu`, `include/scale.cuh`, and a database in the form of xmake."""

    def __init__(self, editor: Editor, root: Path) -> None:
        self.editor, self.root = editor, root
        (root / ".git").mkdir()
        self.main, self.header = self.put("src/main.cu", MAIN), self.put("include/scale.cuh", HEADER)
        editor.open_folder(root)

    def put(self, name: str, text: str) -> str:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path.as_uri()

    def build(self, arch: int = 86, factor: str = "-DFACTOR=2.0f", place: str = "compile_commands.json") -> None:
        arguments = XMAKE.format(arch=arch, factor=factor).split()
        entry = {"directory": str(self.root), "arguments": arguments, "file": "src/main.cu"}
        self.put(place, json.dumps([entry]))

    async def settled(self, uri: str, line: int, *words: str) -> str:
        """The hint once the check is done and it has these words."""
        self.editor.open(uri, MAIN if uri == self.main else HEADER)
        return await self.until(uri, line, *words)

    async def until(self, uri: str, line: int, *words: str) -> str:
        return await self.editor.until_hint(
            uri, line, lambda label: "checking" not in label and "stale" not in label and all(w in label for w in words)
        )


async def hover(editor: Editor, uri: str, kernel: str) -> str:
    return await editor.hover(uri, f"void {kernel}(") or ""


def faults(editor: Editor, uri: str) -> list[str]:
    """What diagnostics say, but for hints about directives."""
    found = editor.client.diagnostics.get(uri, ())
    return [
        item.message for item in found if item.severity in (t.DiagnosticSeverity.Error, t.DiagnosticSeverity.Warning)
    ]


@pytest.mark.parametrize(("arch", "compiled_for"), [(86, "sm_86"), (52, "sm_75")])
async def test_t1_the_command_of_xmake(editor: Editor, tmp_path: Path, arch: int, compiled_for: str) -> None:
    project = Project(editor, tmp_path)
    project.build(arch)
    await project.settled(project.main, MAIN_LINE, "regs", "verified")
    told = await hover(editor, project.main, "scale_twice")
    assert f"{compiled_for} by nvrtc" in told and "compile_commands.json, entry of this file" in told
    # Nothing is wrong with the program: no diagnostic, and one message only where another architecture was taken.
    assert not faults(editor, project.main)
    differ = [message for message in editor.messages if "the project builds for" in message]
    if arch == 52:
        assert len(differ) <= 1 and "which nvrtc" in told and "kernels are compiled for sm_75" in told
        assert editor.messages == differ
    else:
        assert editor.messages == []


async def test_s4_malloc_on_the_host_is_no_error(editor: Editor, tmp_path: Path) -> None:
    project = Project(editor, tmp_path)
    uri = project.put("src/main.cu", "#include <cstdlib>\n" + "\n" * 4 + MAIN[MAIN.index("__global__") :])
    project.build(52, "-Dscaled(x)=(2*(x))")
    text = (tmp_path / "src/main.cu").read_text()
    editor.open(uri, text)
    await project.until(uri, MAIN_LINE, "regs")
    assert not faults(editor, uri)


async def test_t2_a_header_alone_and_with_its_includer(editor: Editor, tmp_path: Path) -> None:
    project = Project(editor, tmp_path)
    project.put("include/plain.cuh", "#pragma once\n__global__ void plain(float* x) { x[threadIdx.x] = 1.0f; }\n")
    plain = (tmp_path / "include/plain.cuh").as_uri()
    # Alone: nothing in the project knows it.
    editor.open(plain, (tmp_path / "include/plain.cuh").read_text())
    await project.until(plain, 1, "regs")
    assert not faults(editor, plain)
    # One that cannot stand alone says who includes it.
    await project.settled(project.header, HEADER_LINE, "does not compile")
    told = await hover(editor, project.header, "scale")
    assert "no flags of a build; src/main.cu includes this file" in told
    assert "this header does not compile on its own: main.cu includes it" in told
    # With a build it has the flags of that file, without having been touched.
    project.build()
    await project.until(project.header, HEADER_LINE, "regs")
    told = await hover(editor, project.header, "scale")
    assert "compile_commands.json, entry of src/main.cu, which includes this file" in told and "sm_86 by nvrtc" in told
    assert not faults(editor, project.header)
    assert not any("pragma once" in message for message in editor.messages)


async def test_a_database_comes_changes_and_goes(editor: Editor, tmp_path: Path) -> None:
    project = Project(editor, tmp_path)
    await project.settled(project.main, MAIN_LINE, "does not compile")
    # In a build folder that was not there before.
    project.build(place="build/compile_commands.json")
    await project.until(project.main, MAIN_LINE, "verified")
    assert "build/compile_commands.json" in await hover(editor, project.main, "scale_twice")
    project.build(place="build/compile_commands.json", factor="-DFACTOR=undefined_name")
    await project.until(project.main, MAIN_LINE, "does not compile")
    project.build(place="build/compile_commands.json")
    await project.until(project.main, MAIN_LINE, "verified")
    (tmp_path / "build/compile_commands.json").unlink()
    await project.until(project.main, MAIN_LINE, "does not compile")
    project.put(".clangd", "CompileFlags:\n  Add: [-DFACTOR=3.0f, -Iinclude]\n")
    await project.until(project.main, MAIN_LINE, "verified")
    assert ".clangd" in await hover(editor, project.main, "scale_twice")


async def test_a_hostile_database_starts_nothing_and_reads_nothing(editor: Editor, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.h").write_text("#error the secret was read\n")
    (outside / "secret.rsp").write_text("-DSECRET")
    (tmp_path / "p").mkdir()
    project = Project(editor, tmp_path / "p")
    mark = tmp_path / "mark"
    project.put("evil", f"#!/bin/sh\ntouch {mark}\n")
    (tmp_path / "p/evil").chmod(0o755)
    words = [
        str(tmp_path / "p/evil"), "-ccbin", str(tmp_path / "p/evil"), f"-Xcompiler=-fplugin={mark}.so", f"-DX=$(touch {mark})",
        f"-I$(touch {mark})", "-o", str(mark), "-keep", f"-keep-dir={outside}", "-run", f"-I{outside}", f"@{outside}/secret.rsp",
        f"-include={outside}/secret.h", f"-Xptxas=-o,{mark}", f"-time={mark}", "-Iinclude", "-DFACTOR=2.0f", "src/main.cu",
    ]  # fmt: skip
    entry = {"directory": str(project.root), "arguments": words, "file": "src/main.cu", "output": str(mark)}
    project.put("compile_commands.json", json.dumps([entry]))
    await project.settled(project.main, MAIN_LINE, "verified")
    assert not mark.exists() and sorted(path.name for path in outside.iterdir()) == ["secret.h", "secret.rsp"]
    assert any("lies outside of the workspace" in message for message in editor.messages)
    assert not faults(editor, project.main)
