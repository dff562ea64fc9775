"""What a text may make a compiler do: read headers of its workspace, and nothing else of the machine.

Each line of the table is a way to another file that the real NVRTC takes, or took in some version; the word is what the
text is refused with, or `ignored` where it compiles and nothing is read.
"""

import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from dice_lsp.config import Settings
from dice_lsp.records import Build, Compiled, CompileFailed, JudgeJob, NotCompiled
from dice_lsp.source import slice as slices
from dice_lsp.source.flags import device_flags
from dice_lsp.source.kernels import parse
from dice_lsp.source.launches import launch_spec
from dice_lsp.worker.client import WorkerClient
from dice_lsp.worker.compile import CompileJob, Compiler, find_nvcc, nvrtc_flags

KERNEL = "__global__ void k(float* x) { x[0] = 1; }\n"
INSIDE = "__global__ void k(float* x) {{\n{}\nx[0] = 1; }}\n"
LEAVES, HIDES, PLAINLY, PROBES = (
    "leaves the workspace",
    "hides an #include",
    "does not name a file plainly",
    "asks about",
)
BEHIND = "stands behind other code"
IF_THERE = "\n#error it is there\n#endif"
# SECRET stands for the path of a file outside of the workspace.
FILES = {
    "an absolute path": ('#include "SECRET"', LEAVES),
    "an absolute path in angles": ("#include <SECRET>", LEAVES),
    "a path upwards": ('#include "../../out/secret.h"', LEAVES),
    "a path upwards in angles": ("#include <../../out/secret.h>", "not found"),
    "a link to a file": ('#include "link.h"', "by a link"),
    "a link to a folder": ('#include "linked/secret.h"', "by a link"),
    "a header that includes it": ('#include "evil.h"', LEAVES),
    "a device": ('#include "/dev/zero"', "it is no header"),
    "the process": ('#include "/proc/self/environ"', "it is no header"),
    "a descriptor": ('#include "//dev///stdin"', "it is no header"),
    "in code that is left out": ('#if 0\n#include "SECRET"\n#endif', LEAVES),
    "a macro": ('#define H "SECRET"\n#include H', PLAINLY),
    "a prefixed string": ('#include u8"SECRET"', PLAINLY),
    "next": ('#include_next "SECRET"', "#include_next is not allowed"),
    "import": ('#import "SECRET"', "#import is not allowed"),
    "a module": ('import "SECRET";', "ignored"),
    "embed": ('#embed "SECRET"', "#embed is not allowed"),
    "embed in angles": ("#embed <SECRET>", "#embed is not allowed"),
    "a digraph": ('%:include "SECRET"', LEAVES),
    "a trigraph": ('??=include "SECRET"', LEAVES),
    "a continued word": ('#inc\\\nlude "SECRET"', LEAVES),
    "a continued sign": ('#\\\ninclude "SECRET"', LEAVES),
    "a comment within": ('#/**/include/**/"SECRET"', LEAVES),
    "a comment before": ('/* */ #include "SECRET"', LEAVES),
    "a comment of two lines before": ('/*\n*/#include "SECRET"', LEAVES),
    "a comment of two lines within": ('# /*\n*/ include "SECRET"', LEAVES),
    "two comments of two lines within": ('# /*\n*//*\n*/include "SECRET"', LEAVES),
    "a comment of two lines behind code": ('int a; /*\n*/ # include "SECRET"', LEAVES),
    "an end of a comment on two lines": ('/* *\\\n/\n#include "SECRET"\n/* */', HIDES),
    "no raw string": ('#define xR\nconst char* s = x\\\nR"(";\n#include "SECRET"\nconst char* t = ")";', HIDES),
    "a trigraph that continues": ('/* *??/\n/\n#include "SECRET"\n/* */', HIDES),
    "a raw string before": ('const char* s = R"x(\n/* )x";\n#include "SECRET"\n// */', LEAVES),
    "behind code that is cut away": ('int host;#include "SECRET"', BEHIND),
    "behind a word that is cut away": ('x#include "SECRET"', BEHIND),
    "behind a word, on two lines": ('x#inc\\\nlude "SECRET"', BEHIND),
    "other white space": ('#\v\finclude "SECRET"', LEAVES),
    "a universal name": ('#incl\\u0075de "SECRET"', "ignored or an error"),
    "has_include": ('#if __has_include("SECRET")' + IF_THERE, PROBES),
    "has_include in angles": ("#if __has_include(<SECRET>)" + IF_THERE, PROBES),
    "has_include upwards": ('#if __has_include("../../out/secret.h")' + IF_THERE, PROBES),
    "has_include in an elif": ('#if 0\n#elif __has_include("SECRET")' + IF_THERE, PROBES),
    "has_include in a macro": ('#define A __has_include("SECRET")\n#if A' + IF_THERE, PROBES),
    "has_include of a macro": ('#define P "SECRET"\n#if __has_include(P)' + IF_THERE, PLAINLY),
    "has_include of pieces": ('#define C(a, b) a##b\n#if C(__has_, include)("SECRET")' + IF_THERE, PLAINLY),
    "has_include on two lines": ('#if __has_\\\ninclude("SECRET")' + IF_THERE, PROBES),
    "has_include in code": ('__device__ int there = __has_include("SECRET");', PROBES),
    "has_embed": ('#if __has_embed("SECRET")' + IF_THERE, PROBES),
    "a line number in another file": ('#line 1 "SECRET"', "ignored"),
    "a marker of a line": ('# 1 "SECRET"', "ignored"),
    "a dependency": ('#pragma GCC dependency "SECRET"', "ignored"),
    "a dependency as an operator": ('_Pragma("GCC dependency \\"SECRET\\"")', "ignored"),
    "a precompiled header": ('#pragma GCC pch_preprocess "SECRET"', "ignored"),
    "another name of a header": ('#pragma include_alias("v.h", "SECRET")\n#include "v.h"', "ignored"),
    "a plugin": ('#pragma plugin "SECRET"', "ignored"),
    "the assembler's include": ('asm(".include \\"SECRET\\"");', "ignored or an error"),
    "the assembler's bytes": ('asm(".incbin \\"SECRET\\"");', "ignored or an error"),
}  # fmt: skip
ALLOWED = {
    "a header beside it": '#include "v.h"',
    "a link within the workspace": '#include "inner.h"',
    "a path upwards within": '#include "../include/w.h"',
    "has_include of the system's": "#if __has_include(<cuda_fp16.h>)\n#include <cuda_fp16.h>\n#endif",
    "has_include is tested": '#ifdef __has_include\n#endif\n#if defined(__has_include) && 1\n#endif',
    "has_include in a string": '__device__ const char* s = "__has_include";',
    "a long macro": "#define A(x) \\\n    do { \\\n    } while (0)\n#include \"v.h\"",
    "a comment over lines": '/* \\\n * #include "/etc/passwd" \\\n */\n#include "v.h"',
    "a comment that goes on": '// once \\\n#include "/etc/passwd"\n#include "v.h"',
}  # fmt: skip


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compiler]:
    made = Compiler(nvcc="/nonexistent/nvcc", cache_dir=tmp_path_factory.mktemp("cache"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`project/src/a.cu` of a workspace, with a secret beside the workspace."""
    root = tmp_path_factory.mktemp("machine")
    (root / "out").mkdir()
    (root / "out" / "secret.h").write_text("SECRETWORD 1 2 3\n")
    folder = root / "project" / "src"
    folder.mkdir(parents=True)
    (root / "project" / ".git").mkdir()
    (root / "project" / "include").mkdir()
    (root / "project" / "include" / "w.h").write_text("#define W 1\n")
    (folder / "v.h").write_text("#define V 7\n")
    (folder / "inner.h").symlink_to("v.h")
    (folder / "link.h").symlink_to(root / "out" / "secret.h")
    (folder / "linked").symlink_to(root / "out")
    (folder / "evil.h").write_text(f'/*\n*/#include "{root}/out/secret.h"\n')
    return folder / "a.cu"


def build(compiler: Compiler, text: str, path: Path, **options: object) -> Build:
    kernels = parse(text).kernels
    assert kernels, text
    (made,) = compiler.compile(CompileJob(text, str(path), kernels, arch="sm_90", **options)).values()  # type: ignore[arg-type]
    return made


def said(made: Build) -> str:
    return made.reason if isinstance(made, NotCompiled) else " | ".join(message.text for message in made.messages)


def judge(made: Build, expected: str) -> None:
    words = said(made)
    assert "SECRETWORD" not in words and "it is there" not in words and "no storage class" not in words, words
    if expected == "ignored":
        assert isinstance(made, Compiled), words
    elif expected != "ignored or an error" and expected != "not found":
        assert isinstance(made, CompileFailed) and expected in made.errors[0].text, words


@pytest.mark.parametrize("standard", ["-std=c++14", "-std=c++17"])
@pytest.mark.parametrize("way", FILES)
def test_a_way_to_another_file_is_refused(compiler: Compiler, source: Path, way: str, standard: str) -> None:
    line, expected = FILES[way]
    line = line.replace("SECRET", str(source.parents[2] / "out" / "secret.h"))
    judge(build(compiler, line + "\n" + KERNEL, source, flags=(standard,)), expected)
    if not line.startswith(("import", "asm", "__device__", "int host", "x#")):
        judge(build(compiler, INSIDE.format(line), source, flags=(standard,)), expected)


@pytest.mark.parametrize("what", ALLOWED)
def test_what_honest_code_does_is_allowed(compiler: Compiler, source: Path, what: str) -> None:
    made = build(compiler, ALLOWED[what] + "\n" + KERNEL, source)
    assert isinstance(made, Compiled), said(made)


def test_a_folder_that_was_named_may_lie_elsewhere(compiler: Compiler, source: Path) -> None:
    out = source.parents[2] / "elsewhere"
    out.mkdir()
    (out / "far.h").write_text("#define FAR 3\n")
    (source.parent / "far.h").symlink_to(out / "far.h")
    text = '#include "far.h"\n__global__ void k(float* x) { x[0] = FAR; }\n'
    assert "by a link" in said(build(compiler, text, source))
    assert isinstance(build(compiler, text, source, include_dirs=(str(out),)), Compiled)


NVCC_WAYS = ("an absolute path", "a link to a file", "a link to a folder", "a comment of two lines before",
             "an end of a comment on two lines", "no raw string", "a macro", "embed", "has_include")  # fmt: skip


@pytest.mark.parametrize("way", NVCC_WAYS)
def test_nvcc_is_not_given_a_way_to_another_file(tmp_path: Path, source: Path, way: str) -> None:
    if find_nvcc() is None:
        pytest.skip("there is no nvcc on this machine, so the fallback is not tried")
    made = Compiler(cache_dir=tmp_path)
    made._nvrtc = None
    line, expected = FILES[way]
    line = line.replace("SECRET", str(source.parents[2] / "out" / "secret.h"))
    judge(build(made, line + "\n" + KERNEL, source), expected)


@pytest.mark.parametrize(
    "flag",
    [
        "-Xcompiler=-fplugin=/tmp/x.so", "-o=/tmp/x", "--output-file=/tmp/x", "--pre-include=/etc/passwd", "-include=/etc/passwd",
        "-ccbin=/tmp/x", "--compiler-bindir=/tmp/x", "@/tmp/flags", "-optf=/tmp/flags", "--options-file=/tmp/x", "-keep",
        "--device-int128;-o", "-DA=1\n#include \"/etc/passwd\"", "-UA\n#include \"/etc/passwd\"", "-Xptxas=-v", "-run", "-L/tmp",
        "--pch-dir=/tmp", "-I/tmp\n-o", "--dlink-trace", "-time=/tmp/x", "-fdevice-time-trace=/tmp/x", "-std=c++17;touch /tmp/x",
    ],
)  # fmt: skip
def test_flags_are_those_of_a_list(compiler: Compiler, source: Path, flag: str) -> None:
    taken, problem = nvrtc_flags([flag])
    assert taken == [] and problem is not None and "is not allowed" in problem
    assert isinstance(build(compiler, KERNEL, source, flags=(flag,)), NotCompiled)
    assert flag not in device_flags("/a/b.cu", Settings(compile_flags=(flag,))).flags


@pytest.mark.parametrize("where", ["a macro", "a macro of settings", "an include folder", "the folder of the file"])
def test_nvccs_shell_is_given_nothing_to_run(tmp_path: Path, where: str) -> None:
    """Its parts are started with `sh -c`: nvcc puts macros and folders between double quotes, where `$(...)` is run."""
    if find_nvcc() is None:
        pytest.skip("there is no nvcc on this machine, so the fallback is not tried")
    mark = tmp_path / "mark"
    folder = tmp_path / "src"
    folder.mkdir()
    job: dict[str, tuple[str, ...]] = {}
    if where == "the folder of the file":
        folder = tmp_path / "$(touch mark)"
        folder.mkdir()
    elif where == "an include folder":
        job["include_dirs"] = (str(tmp_path / "$(touch mark)"),)
    elif where == "a macro":
        job["flags"] = (f"-DA=$(touch {mark})",)
    else:
        job["flags"] = device_flags(str(folder / "k.cu"), Settings(compile_flags=(f"-DA=`touch {mark}`",))).flags
        assert job["flags"]
    made = Compiler(cache_dir=tmp_path / "cache")
    made._nvrtc = None
    assert "would have a shell read" in said(build(made, KERNEL, folder / "k.cu", **job))
    assert not mark.exists() and not (folder / "mark").exists()


def test_a_header_that_is_included_first(compiler: Compiler, source: Path, tmp_path: Path) -> None:
    first = source.parent / "first.h"
    first.write_text('#include "second.h"\n')
    (source.parent / "second.h").write_text("#define FIRST 3.0f\n")
    text = "__global__ void k(float* x) { x[0] = FIRST; }\n"
    assert isinstance(build(compiler, text, source, pre_includes=(str(first),)), Compiled)
    wrong = build(compiler, "\n" + text.replace("FIRST", "NEVER"), source, pre_includes=(str(first),))
    assert isinstance(wrong, CompileFailed) and wrong.errors[0].line == 1, "lines keep their numbers"
    out = tmp_path / "elsewhere.h"
    out.write_text("#define FIRST 1\n")
    for place in (out, source.parent / "none.h", source.parent, Path("/dev/zero")):
        assert "includes first, is not there or not in the workspace" in said(
            build(compiler, text, source, pre_includes=(str(place),))
        )
    if find_nvcc() is None:
        pytest.skip("there is no nvcc on this machine, so the fallback is not tried")
    made = Compiler(cache_dir=tmp_path / "cache")
    made._nvrtc = None
    assert isinstance(build(made, text, source, pre_includes=(str(first),), flags=("-DF(a,b)=a",)), Compiled)


def test_includes_are_seen_as_compilers_see_them() -> None:
    assert not slices.hides_includes('#define A(x) \\\n  x\n#include "a.h"\n')
    assert not slices.hides_includes('// what?? /\n#include "a.h"\n')
    assert slices.hides_includes('/* *\\\r\n/\r\n#include "a.h"\r\n/* */')
    assert slices.hides_includes('/* *\\\n\\\n/\n#include "a.h"\n/* */')
    assert slices.hides_includes('/* *\\ \n/\n#include "a.h"\n/* */')
    assert slices.hides_includes('const char* s = x\\\nR"(";\n#include "a.h"\nchar t = ")";')
    assert slices.probes_of('#if __has_include("a.h") || __has_include(<cuda/b.h>)\n#endif') == ()
    assert slices.probes_of("\n\n#if __has_include(A)\n#endif") == ((2, ""),)


BOMBS = {
    "macros that double": "\n".join(
        ["#define A0 x[0] += 1;", *(f"#define A{i} A{i - 1} A{i - 1}" for i in range(1, 40))]
    ) + "\n__global__ void k(float* x) { A39 }\n",
    "templates that double": (
        "template <int N, int M> struct F { static constexpr int v = F<N - 1, 2 * M>::v + F<N - 1, 2 * M + 1>::v; };\n"
        "template <int M> struct F<0, M> { static constexpr int v = 1; };\n"
        "__global__ void k(float* x) { x[0] = F<29, 1>::v; }\n"
    ),
    "a constant that is never done": (
        "constexpr int f(int n) { return n < 2 ? n : f(n - 1) + f(n - 2); }\n"
        "__global__ void k(float* x) { constexpr int v = f(60); x[0] = v; }\n"
    ),
    "templates without end": (
        "template <int N> struct F { static constexpr int v = F<N + 1>::v; };\n"
        "__global__ void k(float* x) { x[0] = F<0>::v; }\n"
    ),
}  # fmt: skip


@pytest.fixture
async def client() -> AsyncIterator[WorkerClient]:
    made = WorkerClient(Settings(backend="host"))
    await made.start()
    yield made
    await made.close()


@pytest.mark.parametrize("bomb", BOMBS)
async def test_a_text_that_would_fill_the_machine_is_ended(client: WorkerClient, bomb: str) -> None:
    def job(text: str, deadline_s: float) -> JudgeJob:
        model = parse(text)
        kernel = model.kernels[0]
        spec = launch_spec(text, kernel, model)
        limits = {"verify": False, "benchmark": False, "compile_deadline_s": deadline_s}
        return JudgeJob(text, "/nowhere/a.cu", kernel, spec, arch="sm_90", **limits)  # type: ignore[arg-type]

    assert isinstance((await client.judge(job(KERNEL, 60.0))).build, Compiled)
    started = time.monotonic()
    ended = (await client.judge(job(BOMBS[bomb], 3.0))).build
    assert not isinstance(ended, Compiled) and said(ended)
    assert time.monotonic() - started < 30
    after = (await client.judge(job(KERNEL.replace("1", "2"), 60.0))).build
    assert isinstance(after, Compiled), said(after)
