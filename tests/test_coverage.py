"""The coverage report: its own count of kernels, nvcc asked once per text, rows taken over, kinds of reasons."""

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import attrs
import pytest

from dice_lsp.config import Settings
from tests.coverage import __main__ as command
from tests.coverage import measure as measuring
from tests.coverage.baseline import Baseline, ByNvcc, by_includers
from tests.coverage.counting import count_in_python, count_kernels
from tests.coverage.measure import File, Row, includers_of, measure, product_digest, read_tree
from tests.coverage.page import kind_of, nvcc_takes, render, weakest_confidence, weakest_origin

KNOWN = """
#include "part.cuh"
__global__ void scale(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = twice(x[i]);
}
void scale_ref(const float* x, float* y, int n) { for (int i = 0; i < n; ++i) y[i] = 2.0f * x[i]; }
"""
UNKNOWN = "__global__ void walk(float** rows, int n) { if (threadIdx.x < n) rows[threadIdx.x][0] = 1.0f; }\n"
PART = (
    "#pragma once\n__device__ inline float twice(float x) { return 2.0f * x; }\n"
    "__global__ void zero(float* x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] = 0; }\n"
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "project" / ".git").mkdir(parents=True)
    folder = tmp_path / "project"
    (folder / "known.cu").write_text(KNOWN)
    (folder / "unknown.cu").write_text(UNKNOWN)
    (folder / "part.cuh").write_text(PART)
    (folder / "text.md").write_text("__global__ void no() { }")
    return folder


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("__global__ void a() { }\ntemplate <class T>\n__global__ void b(T* x) { }", ["a", "b"]),
        ("__global__ void a();\nextern __global__ void b(int*);", []),
        ("// __global__ void a() { }\n/* __global__ void b() { } */ const char* s = \"__global__ void c() { }\";", []),
        ('const char* s = R"cu(__global__ void a() { })cu"; __global__ void b() { }', ["b"]),
        ("#if 0\n__global__ void a() { }\n#else\n__global__ void b() { }\n#endif", ["b"]),
        ("#ifdef X\n__global__ void a() { }\n#else\n__global__ void a(int) { }\n#endif", ["a", "a"]),
        ("__global__ __launch_bounds__(256, 2) void a(int n) { }\n__global__ void __launch_bounds__(64) b() { }", ["a", "b"]),
        ("#define KERNEL __global__ void\nKERNEL a(int n) { }", ["a"]),
        ("template <> __global__ void a<float, 4>(float* x) { }", ["a"]),
        ("void f() { char c = '\"'; }\n__global__ void a() { char c = '\\''; }", ["a"]),
        ("__global__ void a(void (*f)(int)) { f(1); }", ["a"]),
    ],
)  # fmt: skip
def test_kernels_are_counted_by_characters_alone(text: str, names: Sequence[str]) -> None:
    assert [one.name for one in count_kernels(text).kernels] == list(names)


def test_macros_that_make_kernels_are_named_apart() -> None:
    count = count_kernels("#define MAKE(n) \\\n  __global__ void k_##n() { }\nMAKE(1)\n__global__ void a() { }\n")
    assert [one.name for one in count.kernels] == ["a"] and count.macros == ("MAKE",)


def test_kernels_of_python_strings_are_counted() -> None:
    text = 's = """__global__ void a() { }"""\nt = f"""__global__ void b() {{ }} {s}"""\nd = "no kernel"\n'
    assert [one.name for one in count_in_python(text).kernels] == ["a", "b"]
    assert count_in_python("def f(:").kernels == ()


def test_what_was_counted_and_not_found_is_named(tree: Path) -> None:
    files = read_tree(tree)
    assert [file.path for file in files] == ["known.cu", "part.cuh", "unknown.cu"]
    assert not any(file.missed for file in files)
    known = files[0]
    assert attrs.evolve(known, kernels=()).missed == ("scale:3",)
    assert [file.path for file in read_tree(tree, ["part"])] == ["part.cuh"]


def test_who_includes_a_header(tree: Path) -> None:
    assert includers_of(tree, ["part.cuh", "known.cu"]) == {"part.cuh": ("known.cu",)}


def run(tree: Path, files: Sequence[File], state: Path | None, **wanted: bool) -> tuple[Row, ...]:
    settings = attrs.evolve(Settings(), backend="host", benchmark=False)
    wanted = {"compile_kernels": False, "verify": False, **wanted}
    return asyncio.run(measure(tree, files, settings=settings, jobs=1, state=state, **wanted))


def test_a_tree_through_the_product(tree: Path, tmp_path: Path) -> None:
    files = read_tree(tree)
    rows = run(tree, files, tmp_path / "state", compile_kernels=True, verify=True)
    by_name = {row.kernel: row for row in rows}
    assert {name: (row.built, row.launch, row.verdict) for name, row in by_name.items()} == {
        "scale": ("nvrtc", True, "verified"),
        "zero": ("nvrtc", True, "safe"),
        "walk": ("nvrtc", False, ""),
    }
    assert by_name["scale"].site == "nowhere" and by_name["walk"].launch_reasons
    page = render(
        "project", files, rows, {"known.cu": ByNvcc(True), "part.cuh": None, "unknown.cu": ByNvcc(True)}, details=True
    )
    assert "| kernels counted | 3 |" in page and "| found | 3 of 3 (100.0 %) |" in page
    assert "| compiled, of what nvcc compiles | 2 of 2 (100.0 %) |" in page
    assert "| launch known without a directive | 2 of 3 (66.7 %) |" in page
    assert "unknown.cu:1 walk" in page


def test_an_ended_run_goes_on_where_it_was(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, state = read_tree(tree), tmp_path / "state"
    rows = run(tree, files, state)
    assert len(state.read_text().splitlines()) == 3

    class NoEngine:
        def __init__(self, settings: Settings) -> None: ...

        async def specs(self, *arguments: object) -> None:
            raise AssertionError("nothing is left to do")

        async def close(self) -> None: ...

    with monkeypatch.context() as patch:
        patch.setattr(measuring, "Engine", NoEngine)
        assert run(tree, files, state) == rows
    (tree / "unknown.cu").write_text(UNKNOWN.replace("1.0f", "2.0f"))
    run(tree, read_tree(tree), state)
    assert len(state.read_text().splitlines()) == 4, "one text has changed"
    monkeypatch.setattr(measuring, "product_digest", lambda: "another")
    run(tree, files, state)
    assert len(state.read_text().splitlines()) == 7, "the product has changed"
    assert product_digest() != "another"


NVCC = """#!{python}
import pathlib, sys
log = pathlib.Path({log!r})
log.write_text(log.read_text() + "asked\\n" if log.exists() else "asked\\n")
source = pathlib.Path(sys.argv[-1]).read_text()
if "far.h" in source and not any((pathlib.Path(a[2:]) / "far.h").is_file() for a in sys.argv if a.startswith("-I")):
    sys.exit("x.cu:1:10: fatal error: far.h: No such file or directory")
if "broken" in source:
    sys.exit('x.cu(3): error: identifier "broken" is undefined')
pathlib.Path(sys.argv[sys.argv.index("-o") + 1]).write_bytes(b"\\0.text._Z4walkPPfi\\0")
"""


@pytest.fixture
def nvcc(tmp_path: Path) -> tuple[str, Path]:
    path, log = tmp_path / "nvcc", tmp_path / "asked"
    path.write_text(NVCC.format(python=sys.executable, log=str(log)))
    path.chmod(0o755)
    return str(path), log


def test_nvcc_is_asked_once_for_a_text(tree: Path, tmp_path: Path, nvcc: tuple[str, Path]) -> None:
    baseline, path = Baseline(nvcc[0], tmp_path / "answers"), tree / "unknown.cu"
    assert baseline.of(path, UNKNOWN, only_known=True) is None
    answer = baseline.of(path, UNKNOWN)
    assert answer is not None and answer.ok and answer.entries == ("_Z4walkPPfi",)
    assert baseline.of(path, UNKNOWN) == answer == Baseline(nvcc[0], tmp_path / "answers").of(path, UNKNOWN)
    assert nvcc[1].read_text().count("asked") == 1
    baseline.of(path, UNKNOWN + " ")
    assert nvcc[1].read_text().count("asked") == 2


def test_nvcc_gets_the_folder_of_a_header_that_it_misses(tree: Path, tmp_path: Path, nvcc: tuple[str, Path]) -> None:
    (tree / "deep" / "er").mkdir(parents=True)
    (tree / "deep" / "er" / "far.h").write_text("")
    path = tree / "far.cu"
    path.write_text(f'#include "far.h"\n{UNKNOWN}')
    answer = Baseline(nvcc[0], tmp_path / "answers").of(path, path.read_text())
    assert answer is not None and answer.ok
    path.write_text(f"broken {UNKNOWN}")
    answer = Baseline(nvcc[0], tmp_path / "answers").of(path, path.read_text())
    assert answer is not None and not answer.ok and "broken" in answer.error


def test_a_header_compiles_by_way_of_its_includer() -> None:
    header, source = Path("a.cuh"), Path("a.cu")
    bad, good = ByNvcc(False, "no"), ByNvcc(True)
    assert by_includers({header: bad, source: good}, {header: (source,)}, header) == good
    assert by_includers({header: bad, source: bad}, {header: (source,)}, header) == bad


def test_a_kernel_that_an_if_leaves_out_is_not_what_nvcc_compiles() -> None:
    row = Row("a.cu", "f", 1, built="none", build_reason="f is not in this build: an #if leaves it out")
    assert nvcc_takes(row, {"a.cu": ByNvcc(True, entries=("_Z1gv",))}) is False
    assert nvcc_takes(row, {"a.cu": ByNvcc(True, entries=("_Z1fv",))}) is True
    assert nvcc_takes(row, {}) is None


def test_reasons_have_kinds() -> None:
    first = kind_of("the size of x is not known: a subscript has no known bound; write `in x[...]` in a //dice: line")
    assert first == kind_of("the size of weights is not known: a subscript has no known bound; write `in w[...]`")
    assert (
        kind_of("the size of the dynamic shared memory is not known")
        == "the size of the dynamic shared memory is not known"
    )
    assert (
        kind_of("n=4, m=5 is too large to check here: add a smaller size") == "the only size is too large to check here"
    )
    row = Row("a.cu", "f", 1, origins={"grid": "launch_site", "size of x": "inferred"}, confidence={"grid": "likely"})
    assert (weakest_origin(row), weakest_confidence(row)) == ("inferred", "likely")


def test_the_command_writes_what_it_found(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, details = tmp_path / "out.json", tmp_path / "details.md"
    monkeypatch.setattr(
        sys, "argv", ["coverage", str(tree), "--no-compile", "--json", str(out), "--details", str(details)]
    )
    assert command.main() == 0
    assert capsys.readouterr().out.startswith("## project")
    (data,) = json.loads(out.read_text())
    assert [row["kernel"] for row in data["kernels"]] == ["scale", "zero", "walk"]
    assert "unknown.cu:1 walk" in details.read_text()
    monkeypatch.setattr(sys, "argv", ["coverage", str(tmp_path / "project" / ".git")])
    assert command.main() == 2
