"""The files that say how a project is compiled, as text: databases, `.clangd`, presets, response files."""

import json

import pytest

from dice_lsp.source.compile_commands import (
    Fragment,
    applies,
    cmake_architectures,
    edited,
    nearest,
    read_clangd,
    read_database,
    read_presets,
    words_of_flag_file,
    words_of_response_file,
)


def database(*entries, folder="/p"):
    return read_database(json.dumps(list(entries)), folder)


def test_both_forms_relative_folders_and_several_entries():
    found = database(
        {"directory": "build", "file": "../src/k.cu", "command": "nvcc '-DNAME=a b' -I\"x y\" -c ../src/k.cu"},
        {"directory": "/q", "file": "k.cu", "arguments": ["nvcc", "-DN=a b", "k.cu"], "output": "k.o"},
        {"directory": "/q", "file": "/q/./k.cu", "arguments": ["nvcc", "-DN=2"]},
        {"file": "alone.cu", "command": "nvcc alone.cu"},
    )
    assert found.complaints == ()
    assert found.entries.keys() == {"/p/src/k.cu", "/q/k.cu", "/p/alone.cu"}
    (entry,) = found.entries["/p/src/k.cu"]
    assert entry.arguments == ("nvcc", "-DNAME=a b", "-Ix y", "-c", "../src/k.cu") and entry.directory == "/p/build"
    assert [each.arguments[1] for each in found.entries["/q/k.cu"]] == ["-DN=a b", "-DN=2"]


def test_bad_entries_are_counted_and_what_is_cut_off_is_used_up_to_there():
    found = database({"file": "a.cu"}, 1, {"directory": 3, "file": "b.cu", "command": ""}, {"file": "", "command": "x"})
    assert not found.entries and found.complaints == (
        "4 of its 4 entries have no directory, file or command, or one that is too long, so they are left out",
    )
    assert not database({"file": "a.cu", "command": "x" * 300_000}).entries
    text = json.dumps([{"file": "a.cu", "command": "nvcc"}, {"file": "b.cu", "command": "nvcc"}])
    cut = read_database(text[:-10], "/p")
    assert cut.entries.keys() == {"/p/a.cu"} and "not JSON from line 1 on; the 1 commands before" in cut.complaints[0]
    for nonsense in ("", "{}", "nonsense", "[", "[1,", "\ufeff[]", "[" * 100_000, '[{"file": "\\ud800"}]'):
        assert not read_database(nonsense, "/p").entries


def test_an_open_quote_is_the_commands_own_fault():
    (entry,) = database({"file": "k.cu", "command": "nvcc '-DA"}).entries["/p/k.cu"]
    with pytest.raises(ValueError):
        entry.arguments  # noqa: B018


@pytest.mark.parametrize(
    "root", ["/home/u/.cache/bazel/_bazel_u/0af3/execroot/_main", "/x/execroot/ws", "__EXEC_ROOT__"]
)
def test_a_file_of_bazels_execroot_is_the_workspaces(root):
    found = database({"directory": root, "file": "src/k.cu", "arguments": ["nvcc", "-x", "cu", "-iquote", "."]})
    assert found.entries.keys() == {"/p/src/k.cu"}
    assert database({"directory": "/p", "file": "external/x/k.cu", "arguments": []}).entries.keys() == {
        "/p/external/x/k.cu"
    }


def test_response_and_flag_files():
    assert words_of_response_file('-Ia "-DB=c d"\n\t-I"e f" \\\n -DG\r\n') == ("-Ia", "-DB=c d", "-Ie f", "-DG")
    assert words_of_flag_file("-DA=1 2\n\n  -I inc  \n") == ("-DA=1 2", "-I inc")
    with pytest.raises(ValueError):
        words_of_response_file("'")


CLANGD = """\
CompileFlags:
  Add: [-DALL, "-Iinclude"]
  Remove: -W*
---
If:
  PathMatch: [.*\\.cuh, kernels/.*]
  PathExclude: kernels/old/.*
CompileFlags:
  Add: -DDEVICE
  Remove: [-std=*, --cuda-gpu-arch=*, -I]
  CompilationDatabase: build/cuda
  Compiler: /tmp/evil
"""


def test_clangd_fragments():
    (everywhere, some), complaints = read_clangd(CLANGD)
    assert complaints == () and everywhere.add == ("-DALL", "-Iinclude") and everywhere.remove == ("-W*",)
    assert some.database == "build/cuda" and some.add == ("-DDEVICE",)
    assert [applies(some, path) for path in ("a/b.cuh", "kernels/k.cu", "kernels/old/k.cu", "main.cu")] == [
        True,
        True,
        False,
        False,
    ]
    words = "nvcc -Wall -std=c++14 -I inc -Iinc2 --cuda-gpu-arch=sm_35 -DX k.cu".split()
    assert edited(words, [everywhere, some]) == ("nvcc", "-DX", "k.cu", "-DALL", "-DDEVICE")
    assert edited(["-DX=1", "-DY"], [Fragment((), (), (), ("-DX",), None)]) == ("-DY",)


@pytest.mark.parametrize(
    "text",
    [
        "CompileFlags: [1, 2]\n", "- a\n", "CompileFlags:\n  Add: {a: b}\n  Remove: 3\n  CompilationDatabase: [x]\n",
        "If: x\nCompileFlags: y\n", "a: &a [*a]\n", "", "!!python/object/apply:os.system ['touch /tmp/x']\n", "a: b: c\n", "\t",
        "[" * 5000, "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: [*c, *c]\n",
    ],
)  # fmt: skip
def test_any_clangd_file_is_read_without_an_error(text):
    fragments, complaints = read_clangd(text)
    assert all(fragment.add == () and fragment.database is None for fragment in fragments)
    assert all("not YAML" in sentence or "is longer than" in sentence for sentence in complaints)


@pytest.mark.parametrize("pattern", ["(a+)+$", "(", "*", "(?P<n>a)(?P=n"])
def test_a_pattern_that_cannot_be_used_or_takes_for_ever_is_said_to_be_so(pattern):
    assert applies(Fragment((pattern,), (), (), (), None), "a" * 200 + "!") in (None, False)
    assert applies(Fragment(("(a|aa)+$",), (), (), (), None), "a" * 4000 + "!") in (None, False)


PRESETS = {
    "/w/p/CMakePresets.json": {
        "version": 6,
        "include": ["cmake/base.json", "/w/p/none.json"],
        "configurePresets": [
            {
                "name": "debug",
                "inherits": ["base", "other"],
                "binaryDir": "${sourceDir}/out/${presetName}",
                "cacheVariables": {"CMAKE_CUDA_FLAGS": "-DFOO='a b' --use_fast_math"},
            },
            {"name": "env", "binaryDir": "$env{HOME}/b"},
            {"name": "beside", "inherits": "env", "binaryDir": "${sourceParentDir}/build-${sourceDirName}"},
            {"name": "loop", "inherits": "loop"},
        ],
    },
    "/w/p/CMakeUserPresets.json": {"configurePresets": [{"name": "mine", "inherits": "base"}, 3, {"name": 4}]},
    "/w/p/cmake/base.json": {
        "configurePresets": [
            {
                "name": "base",
                "hidden": True,
                "binaryDir": "${sourceDir}/build",
                "cacheVariables": {
                    "CMAKE_CUDA_ARCHITECTURES": {"type": "STRING", "value": "80-real;90a"},
                    "CMAKE_CUDA_STANDARD": "20",
                },
            },
            {"name": "other", "hidden": True, "cacheVariables": {"CMAKE_CUDA_ARCHITECTURES": "52"}},
        ]
    },
}


def test_presets():
    texts = {path: json.dumps(value) for path, value in PRESETS.items()}
    found, complaints = read_presets("/w/p", texts.get)
    presets = {preset.name: preset for preset in found}
    assert complaints == () and presets.keys() == {"debug", "env", "beside", "loop", "mine"}
    assert presets["debug"].binary_folder == "/w/p/out/debug" and presets["mine"].binary_folder == "/w/p/build"
    assert presets["debug"].architectures == ("sm_80", "sm_90a") == presets["mine"].architectures
    assert presets["debug"].flags == ("-std=c++20", "-DFOO=a b", "--use_fast_math")
    assert presets["env"].binary_folder is None and presets["beside"].binary_folder == "/w/build-p"
    assert read_presets("/w/p", {"/w/p/CMakePresets.json": "{"}.get) == (
        (),
        ("/w/p/CMakePresets.json is not JSON, so it is left out",),
    )
    assert read_presets("/w/p", {"/w/p/CMakePresets.json": "[]"}.get) == ((), ())
    assert cmake_architectures("OFF") == () and cmake_architectures("native") == ("native",)
    assert cmake_architectures("75 86-virtual") == ("sm_75", "sm_86")


def test_the_nearest_file_has_the_same_name_or_lies_closest():
    others = ["/p/app/main.cu", "/p/lib/scan.cu", "/p/lib/deep/x.cu", "/p/tests/scan_test.cu"]
    assert nearest("/p/lib/scan.cuh", others, 9)[0] == "/p/lib/scan.cu"
    assert nearest("/p/include/scan.cuh", others, 9)[0] == "/p/lib/scan.cu"
    assert nearest("/p/lib/new.cu", others, 1)[0] == "/p/lib/scan.cu"
    assert nearest("/p/tests/new.cu", others, 1)[0] == "/p/tests/scan_test.cu"
    assert nearest("/p/x.cu", [], 1) == ()
