"""Which compiler flags reach the device compiler."""

import pytest

from dice_lsp.config import Settings
from dice_lsp.source.flags import BuildFlags, device_flags
from dice_lsp.source.nvcc_flags import read_flags


def flags(*given, command=None, is_cuda=True, **settings):
    build = None
    if command is not None:
        build = BuildFlags(read_flags(command.split()), "compile_commands.json", "its entry", is_cuda)
    return device_flags("/src/a/k.cu", Settings(compile_flags=given, **settings), build)


@pytest.mark.parametrize(
    ("given", "expected", "folders"),
    [
        (["-DN=3", "-D", "M", "--define-macro=Q=f(x)", "-U N"], ("-DM", "-DQ=f(x)", "-UN"), ()),
        (
            ["-Iinc", "-I", "/abs", "--include-path=../up", "-isystem", "/sys"],
            (),
            ("/src/a/inc", "/abs", "/src/a/../up", "/sys"),
        ),
        (["-std=c++17", "--std", "c++20"], ("-std=c++20",), ()),
        (["--use_fast_math", "-use_fast_math"], ("--use_fast_math",), ()),
        (
            ["-maxrregcount", "32", "-lineinfo", "-arch=sm_90a", "--gpu-architecture=compute_80"],
            ("-maxrregcount=32", "-lineinfo", "-arch=compute_80"),
            (),
        ),
        (["-ftz=true", "--fmad=false", "-prec-div=true"], ("-ftz=true", "-fmad=false", "-prec-div=true"), ()),
        (["-rdc=true", "-G"], ("-rdc=true", "-G"), ()),
        (["--extended-lambda", "--expt-relaxed-constexpr"], ("--extended-lambda", "--expt-relaxed-constexpr"), ()),
        ([], (), ()),
    ],
)
def test_allowed_flags(given, expected, folders):
    found = flags(*given)
    assert (found.flags, found.include_dirs, found.complaints) == (expected, folders, ())


@pytest.mark.parametrize(
    "flag",
    [
        "-o",
        "-Xcompiler=-fplugin=x.so",
        "--pre-include=x",
        "-ccbin=/tmp/x",
        "--options-file=x",
        "@x",
        "-keep-dir",
        "--run",
        "-L/x",
        "-lfoo",
        "-std=c++99",
        "-maxrregcount=9999",
        "-arch=sm_",
        "-D3=4",
        "-U a b",
        "-ftz=maybe",
        "-DN=1\n#include <x>",
        "; rm -rf ~",
        "",
    ],
)
def test_other_flags_are_left_out_with_a_sentence(flag):
    found = flags("-DN=1", flag)
    assert found.flags == ("-DN=1",) and found.include_dirs == ()
    assert len(found.complaints) == 1 and not found.complaints[0].endswith(".")


def test_a_compile_command_is_filtered_silently_and_the_settings_win():
    command = (
        "nvcc -c -Xcompiler -fPIE -O3 -I/opt/lib/include -m64 -rdc=true -gencode arch=compute_86,code=sm_86 -DN=1 -DM "
        "-o b/main.o -std=c++20 k.cu"
    )
    found = flags("-std=c++17", "-DN=2", command=command)
    assert (found.flags, found.include_dirs, found.complaints) == (
        ("-rdc=true", "-DM", "-std=c++17", "-DN=2"),
        ("/opt/lib/include",),
        (),
    )
    assert found.architectures == ("sm_86",)
    assert flags("-arch=sm_80", command=command).architectures == ()
    assert flags(command=command, arch="sm_80").architectures == ()


@pytest.mark.parametrize(
    ("command", "is_cuda", "expected"),
    [
        ("nvcc -std=c++11", True, ("-std=c++17",)),
        ("nvcc -std=c++03", True, ("-std=c++17",)),
        ("clang++ -std=gnu++2a", True, ("-std=gnu++20",)),
        ("nvcc -std=c++23", True, ("-std=c++23",)),
        ("g++ -std=c++2b", False, ("-std=c++20",)),
        ("g++ -std=c17 -O2", False, ()),
        ("nvcc -G -g --use_fast_math", True, ("--use_fast_math",)),
        ("g++ -w -DA -UB", False, ("-DA", "-UB")),
    ],
)
def test_flags_of_a_project_are_translated(command, is_cuda, expected):
    found = flags(command=command, is_cuda=is_cuda)
    assert found.flags == expected and found.complaints == ()
    assert {row.source for row in found.rows} == {"compile_commands.json"}


def test_a_header_that_stands_in_for_the_toolkit_is_not_included_before_the_real_one():
    assert flags(command="clang++ -xcuda -include /p/own.h").pre_includes == ("/p/own.h",)
    found = flags(command="clang++ -xcuda -nocudainc -include /p/own.h")
    assert found.pre_includes == ()
    assert any("stands in" in row.fate for row in found.rows)
