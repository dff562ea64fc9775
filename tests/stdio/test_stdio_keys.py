"""What makes evidence stale and what does not; and that a directive line which we write is one that we read."""

import asyncio
import threading
from pathlib import Path

import attrs
import pytest

from dice_lsp.config import Settings
from dice_lsp.include_graph import Headers
from dice_lsp.records import Document
from dice_lsp.server.directive_line import directive_line
from dice_lsp.server.documents import Documents
from dice_lsp.server.keys import KernelKeys, settings_context
from dice_lsp.source.directives import parse_directives
from dice_lsp.source.embedded import document_of
from dice_lsp.source.kernels import parse
from dice_lsp.source.launches import launch_spec

TEXT = """#include <cstdio>
#define SCALE 2.0f
__device__ float twice(float x) { return SCALE * x; }
void first_cpu(const float* x, float* y, int n) {
    for (int i = 0; i < n; ++i) y[i] = 2.0f * x[i];
}
//dice: n = 1M | 1000003
__global__ void first(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = twice(x[i]);
}
__global__ void second(float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 0;
}
int main() {
    float *x, *y;
    first<<<4096, 256>>>(x, y, 1 << 20);
    second<<<4096, 256>>>(y, 1 << 20);
    printf("done");
}
"""


def keys(text: str) -> dict[str, str]:
    return dict(KernelKeys().of(parse(text), ""))


@pytest.mark.parametrize(
    ("old", "new", "stale"),
    [
        ("#include <cstdio>\n", "#include <cstdio>\n\n\n// a comment\n", set()),
        ('printf("done")', 'printf("all done")', set()),
        ("    if (i < n) y[i] = twice(x[i]);", "    if (i < n)   // in range\n        y[i] = twice( x[i] );", set()),
        ("y[i] = twice(x[i]);", "y[i] = twice(x[i]) + 1;", {"first"}),
        ("y[i] = 0;", "y[i] = 1;", {"second"}),
        ("return SCALE * x;", "return SCALE * x + 0;", {"first", "second"}),
        ("#define SCALE 2.0f", "#define SCALE 3.0f", {"first", "second"}),
        ("1M | 1000003", "1M | 1000004", {"first"}),
        ("2.0f * x[i]", "3.0f * x[i]", {"first"}),
    ],
)
def test_a_key_changes_exactly_with_what_decides_the_evidence(old: str, new: str, stale: set[str]) -> None:
    assert TEXT.count(old) == 1
    before, after = keys(TEXT), keys(TEXT.replace(old, new))
    assert {name for name in before if before[name] != after[name]} == stale


def test_keys_are_the_same_whether_computed_afresh_or_kept() -> None:
    kept = KernelKeys()
    edited = TEXT.replace("y[i] = 0;", "y[i] = 1;")
    assert [dict(kept.of(parse(text), "")) for text in (TEXT, edited, TEXT)] == [keys(TEXT), keys(edited), keys(TEXT)]


def test_settings_that_change_a_check_are_part_of_the_context() -> None:
    base = Settings()
    assert settings_context(base) == settings_context(attrs.evolve(base, candidates=3, code_lens=False))
    for changed in ({"arch": "sm_80"}, {"compile_flags": ("-DN=4",)}, {"backend": "host"}, {"seed": 1}):
        assert settings_context(base) != settings_context(attrs.evolve(base, **changed))


def test_headers_are_followed_and_count_by_content(tmp_path: Path) -> None:
    headers = Headers()
    (tmp_path / "inner.h").write_text("int a;\n")
    (tmp_path / "outer.h").write_text('#include "inner.h"\n#include "outer.h"\n')
    text, path = '#include <vector>\n#include "outer.h"\n#include "none.h"\n', str(tmp_path / "x.cu")
    first = headers.of(text, path, ())
    assert {Path(name).name for name in first.paths} == {"inner.h", "outer.h"}
    assert {Path(name).name for name in first.missing} == {"none.h"} and first.folders == {str(tmp_path)}
    (tmp_path / "inner.h").write_text("int aa;\n")
    second = headers.of(text, path, ())
    assert second.digest != first.digest
    (tmp_path / "inner.h").write_text("int a;\n")
    assert headers.of(text, path, ()).digest == first.digest
    (tmp_path / "none.h").write_text("")
    assert headers.of(text, path, ()).digest != first.digest
    elsewhere = headers.of('#include <inner.h>\n"', "/nowhere/x.cu", (str(tmp_path),))
    assert elsewhere.paths == {str(tmp_path / "inner.h")}


async def test_a_text_that_cannot_be_read_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    documents = Documents(lambda old, new: read.append(new), Settings)

    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(documents, "_take", fail)
    documents.put("file:///x.cu", 1, TEXT)
    assert await documents.exact("file:///x.cu") is None and not read
    monkeypatch.undo()
    documents.put("file:///x.cu", 2, TEXT)
    snapshot = await documents.exact("file:///x.cu")
    assert snapshot is not None and snapshot.document == Document("file:///x.cu", 2, TEXT) and read == [snapshot]
    documents.close("file:///x.cu")
    assert await documents.exact("file:///x.cu") is None


async def test_the_loop_is_free_while_the_cuda_of_a_python_file_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    go_on = threading.Event()

    def slow(uri: str, version: int, text: str) -> Document:
        read.append(version)
        assert go_on.wait(60)
        return document_of(uri, version, text)

    monkeypatch.setattr("dice_lsp.server.documents.document_of", slow)
    documents = Documents(lambda old, new: None, Settings)
    uri, other = "file:///x.py", "file:///x.cu"
    program = f'from cupy import RawModule\n\nmodule = RawModule(r"""{TEXT}""")\n'
    documents.put(uri, 1, program)
    asked = asyncio.create_task(documents.present(uri))
    while not read:
        await asyncio.sleep(0.01)
    # The text is being looked at, and all this is answered meanwhile; of what is typed, only the newest is read.
    for version in range(2, 12):
        documents.put(uri, version, program + "\n" * version)
    documents.put(other, 1, TEXT)
    assert (await documents.present(other)) == Document(other, 1, TEXT)
    assert documents.version(uri) == 11 and documents.last(uri) is None and not asked.done()
    assert await documents.at_version(uri, 3) is None, "that was too many versions ago"
    go_on.set()
    snapshot = await documents.exact(uri)
    assert snapshot is not None and snapshot.document.version == 11
    assert snapshot.document.file_text == program + "\n" * 11 and len(snapshot.model.kernels) == len(
        parse(TEXT).kernels
    )
    assert await asked is snapshot.document is await documents.present(uri)
    assert read == [1, 11], "one reading of each text that was looked at"
    earlier = await documents.at_version(uri, 10)
    assert earlier is not None and earlier.shown == program + "\n" * 10


@pytest.mark.parametrize(
    ("template", "signature"),
    [
        ("template <typename T, int TILE> ", "const T* x, T* y, int n"),
        ("", "const float* x, float* y, int n"),
        ("", "float* y"),
        ("", "const double* __restrict__ a, const double* b, double* c, size_t count, float s"),
        ("", "int w, int h, const unsigned char* image, unsigned char* out"),
        ("", "float4* v, int n"),
    ],
)
def test_the_directive_line_that_we_write_can_be_read(template: str, signature: str) -> None:
    text = f"{template}__global__ void k({signature}) {{ }}\n"
    model = parse(text)
    for spec in (None, launch_spec(text, model.kernels[0], model)):
        line = directive_line(model.kernels[0], spec)
        written = f"{line}\n{text}"
        kernel = parse(written).kernels[0]
        directive = parse_directives(written, kernel)
        assert not directive.problems, (line, directive.problems)
        found = launch_spec(written, kernel, parse(written))
        assert found.grid is not None and found.block is not None and not found.unknown, (line, found.unknown)
