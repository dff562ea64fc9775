"""Which flags a file gets from its project: where they are looked for, whose they are, and what a stranger cannot do."""

import json
import os
import time
from pathlib import Path

import pytest

from dice_lsp import flag_finder
from dice_lsp.config import Settings
from dice_lsp.flag_finder import FlagFinder, FoundFlags, shared_finder
from dice_lsp.project_files import project_at
from dice_lsp.records import Confidence
from dice_lsp.source.kernels import parse
from dice_lsp.source.launches import launch_spec
from dice_lsp.source.nvcc_flags import Kind


class Project:
    """A workspace with files; each question is asked of a finder that has seen nothing yet."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / ".git").mkdir(parents=True)

    def put(self, name: str, text: str = "") -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def database(self, name: str, *entries: dict[str, object], age_s: float = 0.0) -> Path:
        path = self.put(name, json.dumps(list(entries)))
        when = time.time() - age_s
        os.utime(path, (when, when))
        return path

    def entry(self, file: str, flags: str, **more: object) -> dict[str, object]:
        return {"directory": str(self.root), "file": file, "command": f"nvcc -c {flags} {file}", **more}

    def find(self, file: str, **settings: object) -> FoundFlags:
        return FlagFinder().find(str(self.root / file), Settings(**settings))  # type: ignore[arg-type]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "p")


def test_without_anything_there_are_only_the_settings(project: Project) -> None:
    project.put("k.cu")
    found = project.find("k.cu", compile_flags=("-DN=1",))
    assert (found.flags.flags, found.flags.origin, found.notes, found.read) == (("-DN=1",), "", (), frozenset())
    assert str(project.root / "compile_commands.json") in found.missing
    assert all(Path(folder).is_relative_to(project.root) for folder in found.folders)


def test_the_nearest_database_upwards_that_has_the_file(project: Project) -> None:
    project.put("lib/src/k.cu")
    project.database("compile_commands.json", project.entry("lib/src/k.cu", "-DTOP"), project.entry("x.cu", "-DX"))
    assert project.find("lib/src/k.cu").flags.flags == ("-DTOP",)
    project.database("lib/compile_commands.json", project.entry("lib/src/other.cu", "-DOTHER"))
    found = project.find("lib/src/k.cu").flags
    assert found.flags == ("-DTOP",), "a nearer database without the file says less than a farther one with it"
    assert found.origin.endswith("compile_commands.json, entry of this file")
    project.database("lib/compile_commands.json", project.entry("lib/src/k.cu", "-DNEAR"))
    assert project.find("lib/src/k.cu").flags.flags == ("-DNEAR",)


@pytest.mark.parametrize(
    "place", ["build", "build-release", "out", "cmake-build-debug", ".vscode", "builddir", "out/build/x64-debug"]
)
def test_build_folders(project: Project, place: str) -> None:
    project.put("src/k.cu")
    project.database(f"{place}/compile_commands.json", project.entry("src/k.cu", "-DB"))
    found = project.find("src/k.cu")
    assert found.flags.flags == ("-DB",) and found.flags.origin.startswith(f"{place}/compile_commands.json, entry of")


def test_the_newest_wins(project: Project) -> None:
    project.put("k.cu")
    project.database("compile_commands.json", project.entry("k.cu", "-DOLD"), age_s=500)
    project.database("build/compile_commands.json", project.entry("k.cu", "-DNEW"), age_s=5)
    project.database("cmake-build-debug/compile_commands.json", project.entry("k.cu", "-DOLDER"), age_s=900)
    assert project.find("k.cu").flags.flags == ("-DNEW",)


def test_of_several_entries_the_first_that_compiles_cuda_is_used_and_that_is_said(project: Project) -> None:
    project.put("k.cpp")
    host = {"directory": str(project.root), "file": "k.cpp", "arguments": ["g++", "-DHOST", "k.cpp"]}
    project.database(
        "compile_commands.json", host, project.entry("k.cpp", "-x cu -DONE"), project.entry("k.cpp", "-DTWO")
    )
    found = project.find("k.cpp").flags
    assert found.flags == ("-DONE",) and found.origin.endswith("one of 3 entries of this file")


def test_a_file_behind_a_link_is_found(project: Project) -> None:
    real = project.put("real/k.cu")
    (project.root / "linked").symlink_to(real.parent)
    project.database("compile_commands.json", project.entry("real/k.cu", "-DA"))
    assert project.find("linked/k.cu").flags.flags == ("-DA",)
    project.database("compile_commands.json", project.entry("linked/k.cu", "-DB"))
    assert project.find("real/k.cu").flags.flags == ("-DB",)


# Headers and files without an entry


def test_a_header_gets_the_flags_of_the_file_that_includes_it(project: Project) -> None:
    project.put("include/inner.cuh", "")
    project.put("include/outer.cuh", '#include "inner.cuh"\n')
    project.put("src/inner.cu", "// of the same name, and does not include it\n")
    project.put("src/main.cu", "#include <outer.cuh>\n")
    project.database(
        "build/compile_commands.json",
        project.entry("src/inner.cu", "-DWRONG"),
        project.entry("src/main.cu", "-Iinclude -DRIGHT -gencode arch=compute_86,code=sm_86"),
    )
    found = project.find("include/inner.cuh")
    assert found.flags.flags == ("-DRIGHT",) and found.flags.architectures == ("sm_86",)
    assert found.flags.include_dirs == (str(project.root / "include"),)
    assert found.flags.includer == str(project.root / "src/main.cu")
    assert found.flags.origin == "build/compile_commands.json, entry of src/main.cu, which includes this file"
    assert str(project.root / "src/main.cu") in found.read, "it is watched"


def test_of_a_cpp_file_that_includes_it_a_header_gets_macros_and_folders_only(project: Project) -> None:
    project.put("scale.h")
    project.put("bind.cpp", '#include "scale.h"\n')
    project.put("pch.h")
    arguments = "g++ -O3 -ffast-math -DBIND -Iinc -std=c++20 -w -Winvalid-pch -include pch.h bind.cpp".split()
    project.database(
        "compile_commands.json", {"directory": str(project.root), "file": "bind.cpp", "arguments": arguments}
    )
    found = project.find("scale.h").flags
    assert found.flags == ("-DBIND", "-std=c++20") and found.include_dirs == (str(project.root / "inc"),)
    assert found.pre_includes == ()


def test_a_file_without_an_entry_gets_those_of_the_nearest_one(project: Project) -> None:
    project.put("a/new.cu")
    project.database("compile_commands.json", project.entry("b/x.cu", "-DB"), project.entry("a/y.cu", "-DA"))
    found = project.find("a/new.cu").flags
    assert found.flags == ("-DA",) and not found.includer
    assert found.origin == "compile_commands.json, entry of a/y.cu, the nearest one, since this file has none"


def test_without_a_database_it_is_said_who_includes_a_header(project: Project) -> None:
    project.put("include/k.cuh")
    project.put("src/main.cu", '#include "../include/k.cuh"\n')
    found = project.find("include/k.cuh").flags
    assert found.origin == "no flags of a build; src/main.cu includes this file" and found.flags == ()
    assert found.includer == str(project.root / "src/main.cu")


def test_headers_that_include_each_other_end_the_search(project: Project) -> None:
    project.put("a.cuh", '#include "b.cuh"\n')
    project.put("b.cuh", '#include "a.cuh"\n#include "b.cuh"\n')
    project.put("main.cu", '#include "b.cuh"\n')
    project.put("other.cu", '#include "c.cuh"\n')
    project.put("c.cuh")
    project.database("compile_commands.json", project.entry("main.cu", "-DM"), project.entry("other.cu", "-DO"))
    assert project.find("a.cuh").flags.flags == ("-DM",) and project.find("c.cuh").flags.flags == ("-DO",)


# Forms


def test_response_files_of_cmake(project: Project) -> None:
    project.put("k.cu")
    project.put(
        "build/CMakeFiles/app.dir/includes_CUDA.rsp", '-I../inc -isystem "/opt/x y/include" -DR\n--options-file more'
    )
    project.put("build/more", "-DMORE --options-file more")
    command = (
        "/usr/bin/ccache /usr/local/cuda/bin/nvcc -forward-unknown-to-host-compiler -DA --options-file "
        'CMakeFiles/app.dir/includes_CUDA.rsp -O3 "--generate-code=arch=compute_80,code=[compute_80,sm_80]" -std=c++11 '
        "-x cu -rdc=true -c ../k.cu -o CMakeFiles/app.dir/k.cu.o"
    )
    entry = {"directory": str(project.root / "build"), "command": command, "file": str(project.root / "k.cu")}
    project.database("build/compile_commands.json", entry)
    found = project.find("k.cu")
    assert found.flags.flags == ("-DA", "-DR", "-DMORE", "-std=c++17", "-rdc=true")
    assert found.flags.include_dirs == (str(project.root / "inc"), "/opt/x y/include")
    assert (
        found.flags.project_dirs[0] == str(project.root / "inc") and "/opt/x y/include" not in found.flags.project_dirs
    )
    assert found.flags.architectures == ("sm_80",) and found.notes == ()
    assert str(project.root / "build/more") in found.read
    (project.root / "build/more").unlink()
    assert "cannot be read; build the project once" in project.find("k.cu").notes[0]


def test_at_files_and_meson(project: Project) -> None:
    project.put("src/k.cu")
    project.put("builddir/args.rsp", "-DFROM_FILE")
    command = (
        "ccache nvcc -Iscale.p -I. -I../include -O0 -g -std=c++17 '-gencode arch=compute_90,code=sm_90' "
        "-Xcompiler=-fPIC,-Wall -DX='1 + 2' @args.rsp -MD -MQ scale.p/k.cu.o -MF scale.p/k.d -o scale.p/k.cu.o -c ../src/k.cu"
    )
    entry = {"directory": str(project.root / "builddir"), "command": command, "file": "../src/k.cu", "output": "k.o"}
    project.database("builddir/compile_commands.json", entry)
    found = project.find("src/k.cu").flags
    assert found.flags == ("-std=c++17", "-DX=1 + 2", "-DFROM_FILE") and found.architectures == ("sm_90",)
    assert found.include_dirs == tuple(str(project.root / name) for name in ("builddir/scale.p", "builddir", "include"))


def test_bazel(project: Project) -> None:
    project.put("src/k.cu")
    project.put("external/lib/include/lib.cuh")
    arguments = ["external/nvcc", "-x", "cu", "-iquote", ".", "-isystem", "external/lib/include", "-DBAZEL", "src/k.cu"]
    gone = "/home/nobody/.cache/bazel/_bazel_nobody/0af3/execroot/_main"
    project.database("compile_commands.json", {"directory": gone, "file": "src/k.cu", "arguments": arguments})
    found = project.find("src/k.cu").flags
    assert found.flags == ("-DBAZEL",)
    assert found.include_dirs == (str(project.root), str(project.root / "external/lib/include"))
    # An execroot that is there has links to the workspace.
    execroot = project.root / "cache/execroot/_main"
    execroot.mkdir(parents=True)
    (execroot / "src").symlink_to(project.root / "src")
    project.database("compile_commands.json", {"directory": str(execroot), "file": "src/k.cu", "arguments": arguments})
    assert project.find("src/k.cu").flags.flags == ("-DBAZEL",)


def test_flag_files_and_their_order(project: Project) -> None:
    project.put("sub/k.cu")
    project.put("compile_flags.txt", "-DALL\n-Iinc\n--cuda-gpu-arch=sm_80\n")
    found = project.find("sub/k.cu").flags
    assert found.flags == ("-DALL",) and found.include_dirs == (str(project.root / "inc"),)
    assert found.architectures == ("sm_80",) and found.origin == "compile_flags.txt, for all files below it"
    project.database("sub/compile_commands.json", project.entry("sub/k.cu", "-DOWN"))
    assert project.find("sub/k.cu").flags.flags == ("-DOWN",)


def test_clangd_adds_removes_and_names_the_database(project: Project) -> None:
    project.put("kernels/k.cu")
    project.put("other/k.cu")
    project.put(
        ".clangd",
        "CompileFlags:\n  CompilationDatabase: special/place\n  Add: [-DADDED, -Iinc]\n  Remove: [-DGONE]\n"
        "---\nIf: {PathMatch: other/.*}\nCompileFlags: {Add: -DOTHER}\n",
    )
    project.database("special/place/compile_commands.json", project.entry("kernels/k.cu", "-DGONE -DSTAYS"))
    project.database("compile_commands.json", project.entry("kernels/k.cu", "-DNOT"))
    found = project.find("kernels/k.cu")
    assert found.flags.flags == ("-DSTAYS", "-DADDED") and found.flags.include_dirs == (str(project.root / "inc"),)
    assert "-DOTHER" in project.find("other/k.cu").flags.flags
    project.put("kernels/.clangd", "CompileFlags: {Add: [-DINNER, -DADDED=2], CompilationDatabase: None}\n")
    found = project.find("kernels/k.cu")
    assert found.flags.flags == ("-DINNER", "-DADDED=2"), "the inner file wins, and it wants no database"
    project.put("kernels/.clangd", "CompileFlags: [\n")
    assert any("kernels/.clangd: it is not YAML" in note for note in project.find("kernels/k.cu").notes)


def test_presets_tell_where_the_database_is_and_which_architectures(project: Project) -> None:
    project.put("src/k.cu")
    preset = {"name": "gpu", "binaryDir": "${sourceDir}/bin/${presetName}",
              "cacheVariables": {"CMAKE_CUDA_ARCHITECTURES": "80;90a", "CMAKE_CUDA_FLAGS": "-DFLAG"}}  # fmt: skip
    project.put("CMakePresets.json", json.dumps({"version": 3, "configurePresets": [preset]}))
    found = project.find("src/k.cu").flags
    assert found.architectures == ("sm_80", "sm_90a") and found.flags == ("-DFLAG",)
    assert found.origin == "preset gpu of CMakePresets.json"
    project.database("bin/gpu/compile_commands.json", project.entry("src/k.cu", "-DBUILT"))
    found = project.find("src/k.cu").flags
    assert found.flags == ("-DBUILT",) and found.architectures == ("sm_80", "sm_90a")
    project.database("bin/gpu/compile_commands.json", project.entry("src/k.cu", "-arch=sm_75"))
    assert project.find("src/k.cu").flags.architectures == ("sm_75",)


def test_a_setting_names_the_database_or_wants_none(project: Project, tmp_path: Path) -> None:
    project.put("k.cu")
    project.database("compile_commands.json", project.entry("k.cu", "-DHERE"))
    there = tmp_path / "elsewhere"
    there.mkdir()
    (there / "compile_commands.json").write_text(json.dumps([project.entry("k.cu", "-DTHERE")]))
    for place in (there, there / "compile_commands.json"):
        assert project.find("k.cu", compile_commands=str(place)).flags.flags == ("-DTHERE",)
    assert project.find("k.cu", compile_commands="off").flags.flags == ()
    # Flags of the settings come last, so they win.
    assert project.find("k.cu", compile_flags=("-UHERE",)).flags.flags == ("-UHERE",)


def test_a_python_file_has_no_flags_of_a_build(project: Project) -> None:
    project.put("k.py")
    project.put("compile_flags.txt", "-DALL\n")
    assert project.find("k.py").flags.flags == ()


def test_what_has_changed_is_read_again(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.put("k.cu")
    finder, path = FlagFinder(), str(project.root / "k.cu")
    assert finder.find(path, Settings()).flags.flags == ()
    project.database("compile_commands.json", project.entry("k.cu", "-DA"), age_s=9)
    monkeypatch.setattr(flag_finder, "FRESH_S", 1e9)
    assert finder.find(path, Settings()).flags.flags == ()
    finder.forget()
    assert finder.find(path, Settings()).flags.flags == ("-DA",)
    monkeypatch.setattr(flag_finder, "FRESH_S", -1.0)
    before = finder.find(path, Settings()).digest
    project.database("compile_commands.json", project.entry("k.cu", "-DB"), age_s=5)
    after = finder.find(path, Settings())
    assert after.flags.flags == ("-DB",) and after.digest != before
    os.utime(project.root / "compile_commands.json")
    assert finder.find(path, Settings()).digest == after.digest
    (project.root / "compile_commands.json").unlink()
    assert finder.find(path, Settings()).flags.flags == ()


def test_a_long_database_is_read_once(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [project.entry(f"src/{number}.cu", f"-DN={number}") for number in range(5000)]
    project.database("compile_commands.json", *entries)
    read = []
    real = flag_finder.read_database
    monkeypatch.setattr(flag_finder, "read_database", lambda *given: read.append(given[1]) or real(*given))
    finder = FlagFinder()
    for number in range(0, 5000, 100):
        assert finder.find(str(project.root / f"src/{number}.cu"), Settings()).flags.flags == (f"-DN={number}",)
    assert len(read) == 1


# What a stranger's project cannot do


def test_a_database_in_a_folder_that_anybody_may_write_to_is_not_looked_at(project: Project) -> None:
    project.put("open/mine/k.cu")
    (project.root / "open").chmod(0o1777)
    project.database("open/compile_commands.json", project.entry("open/mine/k.cu", "-DEVIL"))
    assert project.find("open/mine/k.cu").flags.flags == ()


@pytest.mark.parametrize(
    "folder",
    ["/", "/etc", "/root", "/proc/self", "/dev", "/run", "/var/lib", "/sys", "/home", "../..", "../secret", "/tmp",
     "/etc/include", "/proc/self/root/usr/include/../../etc"],
)  # fmt: skip
def test_folders_outside_of_the_workspace_are_left_out_with_a_sentence(project: Project, folder: str) -> None:
    project.put("k.cu")
    project.database(
        "compile_commands.json", project.entry("k.cu", f"-I{folder} -isystem {folder} -include {folder}/a.h")
    )
    found = project.find("k.cu")
    assert found.flags.include_dirs == () and found.flags.pre_includes == ()
    assert any("lies outside of the workspace" in note for note in found.notes)
    assert {row.fate for row in found.flags.rows if row.written.startswith("-i") or "-I" in row.written} == {
        Kind.OUTSIDE.value
    }


def test_folders_of_keys_are_left_out_in_a_workspace_too(project: Project) -> None:
    project.put("k.cu")
    project.put(".ssh/id.h")
    project.database("compile_commands.json", project.entry("k.cu", "-I.ssh -include .ssh/id.h -Iinc/../.ssh/x"))
    found = project.find("k.cu").flags
    assert found.include_dirs == () and found.pre_includes == ()


def test_a_link_out_of_the_workspace_is_seen_through(project: Project, tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "s.h").write_text("")
    (project.root / "include").symlink_to(tmp_path / "secret")
    project.put("k.cu")
    project.database("compile_commands.json", project.entry("k.cu", "-Iinclude -include include/s.h"))
    found = project.find("k.cu").flags
    assert found.include_dirs == () and found.pre_includes == ()


def test_folders_of_headers_outside_are_taken_and_those_of_cuda_are_not_needed(
    project: Project, tmp_path: Path
) -> None:
    library = tmp_path / "cutlass" / "include"
    library.mkdir(parents=True)
    (library / "first.h").write_text("")
    toolkit = tmp_path / "cuda" / "include"
    toolkit.mkdir(parents=True)
    (toolkit / "cuda_runtime.h").write_text("")
    project.put("k.cu")
    flags = f"-I{library} -I{toolkit} -I/usr/include -I/opt/x -include {library}/first.h"
    project.database("compile_commands.json", project.entry("k.cu", flags))
    found = project.find("k.cu")
    assert found.flags.include_dirs == (str(library), "/opt/x") and found.notes == ()
    assert found.flags.pre_includes == (str(library / "first.h"),)
    assert set(found.flags.project_dirs) == {str(project.root)}


def test_folders_of_headers_that_no_flag_places_are_followed_but_given_to_no_compiler(project: Project) -> None:
    project.put("kernels/mma/k.cu", '#include "utils.h"\n#include "cuda_runtime.h"\n')
    project.put("kernels/utils/utils.h", '#include "deep/more.h"\n')
    project.put("lib/deep/more.h")
    project.put("include/any.h")
    found = project.find("kernels/mma/k.cu").flags
    places = {str(project.root / name) for name in ("kernels/mma", "kernels", "", "include", "kernels/utils", "lib")}
    assert {place.rstrip("/") for place in found.project_dirs} == {place.rstrip("/") for place in places}
    assert found.include_dirs == () and found.origin == ""


@pytest.mark.parametrize("file", ["/etc/passwd", "../secret.rsp", "/proc/self/environ", "/dev/zero"])
def test_a_response_file_elsewhere_is_not_read(project: Project, tmp_path: Path, file: str) -> None:
    (tmp_path / "secret.rsp").write_text("-DSECRET")
    project.put("k.cu")
    project.database("compile_commands.json", project.entry("k.cu", f"@{file} --options-file {file} -DA"))
    found = project.find("k.cu")
    assert found.flags.flags == ("-DA",) and not any("secret" in path for path in found.read)
    assert "lies outside of the workspace and its build folder" in found.notes[0]


def test_response_files_that_name_themselves_end(project: Project) -> None:
    project.put("k.cu")
    project.put("r", "-DA @r @r @r\n")
    project.database("compile_commands.json", project.entry("k.cu", "@r"))
    assert project.find("k.cu").flags.flags == ("-DA",)


MACROS = [
    "-D__CUDA_ARCH__=1", "-D__global__=", "-Ddice_x=1", "-DthreadIdx=x", "-D__has_include(x)=1", "-Ddefined=1",
    '-DA=__has_include("/etc/passwd")', '-DA=_Pragma("once")', '-DA=asm("nop")', "-DA=%:include", "-DA=x#include",
    "-DA=$(touch /tmp/x)", "-DA=`touch /tmp/x`", "-DA=\\", "-D__CUDACC_RTC__", "-U__CUDA_ARCH__", "-U__device__",
]  # fmt: skip


@pytest.mark.parametrize("macro", MACROS)
def test_macros_that_would_change_what_was_looked_through_are_left_out(project: Project, macro: str) -> None:
    project.put("k.cu")
    entry = {"directory": str(project.root), "file": "k.cu", "arguments": ["nvcc", "-DOK=f(1)", macro, "k.cu"]}
    project.database("compile_commands.json", entry)
    assert project.find("k.cu").flags.flags == ("-DOK=f(1)",)


def test_files_that_are_no_files_are_passed_over(project: Project) -> None:
    project.put("k.cu")
    for name in ("compile_commands.json", ".clangd", "CMakePresets.json"):
        (project.root / name).mkdir()
    os.mkfifo(project.root / "compile_flags.txt")
    assert project.find("k.cu").flags.flags == ()


def test_nonsense_in_a_database_is_a_sentence(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.put("k.cu")
    project.put("compile_commands.json", "{")
    assert "is no list of commands" in project.find("k.cu").notes[0]
    project.database("compile_commands.json", project.entry("k.cu", "'-DA"))
    found = project.find("k.cu")
    assert "has an open quote" in found.notes[0] and found.flags.flags == ()
    monkeypatch.setattr(flag_finder, "MAX_DATABASE_BYTES", 10)
    assert "so it is left out" in project.find("k.cu").notes[0]


PROGRAM = """\
#include <cuda_runtime.h>
__global__ void k(float* x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] = 1.0f; }
#ifdef WIDE
#define THREADS 512
#else
#define THREADS 128
#endif
int main() {
    float* x;
    cudaMalloc(&x, COUNT * sizeof(float));
    k<<<(COUNT + THREADS - 1) / THREADS, THREADS>>>(x, COUNT);
}
"""


@pytest.mark.parametrize(
    ("flags", "threads", "count"), [("-DWIDE -DCOUNT=4096", "512", 4096), ("-DCOUNT=1000", "128", 1000)]
)
def test_macros_of_the_build_decide_a_launch(project: Project, flags: str, threads: str, count: int) -> None:
    path = project.put("k.cu", PROGRAM)
    project.database("compile_commands.json", project.entry("k.cu", flags))
    shared_finder().forget()
    model = parse(PROGRAM)
    spec = launch_spec(PROGRAM, model.kernels[0], model, project=project_at(str(path), Settings()), path=str(path))
    assert spec.block == (threads, "1", "1") and spec.confidence.get("block", Confidence.CERTAIN) is Confidence.CERTAIN
    assert spec.buffers[0].extents == (str(count),)
