"""The commands as a user runs them: real model, real compilers, exit codes, and no file touched unless asked."""

import json
import os
import shutil
import sys
from pathlib import Path

import jsonschema
import pytest

from dice_lsp import process
from dice_lsp.json_output import check_schema, fill_schema

ROOT = Path(__file__).parent.parent
SAXPY = ROOT / "tests" / "data" / "saxpy.cu"
TWINS = ROOT / "tests" / "data" / "twins.cu"


def dice(*arguments: object, cwd: Path = ROOT, stdin: bytes = b"") -> process.Finished:
    argv = [sys.executable, "-m", "dice_lsp", *map(str, arguments)]
    return process.run(argv, deadline_s=150, cwd=str(cwd), env=dict(os.environ), limits=process.Limits(), stdin=stdin)


def copy_of(path: Path, folder: Path) -> Path:
    return Path(shutil.copy(path, folder / path.name))


def test_infill_prints_one_object_that_fits_its_schema_and_leaves_the_file_alone(tmp_path):
    source = copy_of(SAXPY, tmp_path)
    before = source.read_bytes()
    done = dice("infill", source, "--kernel", "saxpy", "--candidates", 8, "--backend", "host", "--json")
    found = json.loads(done.stdout)
    jsonschema.validate(found, fill_schema())
    assert done.returncode == 0, done.stderr.decode()
    assert found["decode"]["forwards"] > 0 and found["decode"]["tokens"] > 0 and found["decode"]["elapsed_ms"] > 0
    assert 1 <= len(found["candidates"]) <= 8
    assert found["candidates"][0]["verdict"]["kind"] == "verified"
    assert found["candidates"][0]["build"]["kind"] == "compiled" and found["candidates"][0]["build"]["registers"] > 0
    assert found["applied"] is None and source.read_bytes() == before


def test_apply_writes_a_verified_candidate_that_checks_clean(tmp_path):
    source = copy_of(SAXPY, tmp_path)
    source.chmod(0o640)
    text = source.read_text()
    done = dice("infill", source, "--lines", "13:14", "--candidates", 4, "--backend", "host", "--apply")
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
    written = source.read_text()
    assert source.stat().st_mode & 0o777 == 0o640
    # Only the region may differ: everything before line 13 and after line 14 is as it was.
    assert written.splitlines()[:12] == text.splitlines()[:12]
    assert written.endswith("\n".join(text.splitlines()[14:]) + "\n")
    assert dice("check", source, "--backend", "host").returncode == 0


@pytest.mark.parametrize("comment", [b"// caf\xe9 \xff\n", "// 归约 ✅\n".encode()])
def test_apply_keeps_the_bytes_around_the_region(tmp_path, comment):
    source = tmp_path / "saxpy.cu"
    source.write_bytes(comment + SAXPY.read_bytes())
    done = dice("infill", source, "--kernel", "saxpy", "--candidates", 1, "--backend", "host", "--apply")
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
    assert source.read_bytes().startswith(comment + b"#include")


def test_check_prints_one_object_that_fits_its_schema():
    done = dice("check", SAXPY, "--backend", "host", "--json")
    found = json.loads(done.stdout)
    jsonschema.validate(found, check_schema())
    assert done.returncode == 0, done.stderr.decode()
    (kernel,) = found["kernels"]
    assert (kernel["name"], kernel["line"]) == ("saxpy", 10)
    assert kernel["verdict"]["kind"] == "verified" and kernel["verdict"]["device"] == "host"
    assert kernel["timing"]["kind"] == "not_timed" and kernel["comparison"]["kind"] == "not_compared"
    assert kernel["spec"]["origins"]["grid"] == "launch_site" and kernel["spec"]["reference"]["text"] == "saxpy_cpu"


def test_check_of_a_wrong_kernel_exits_with_1(tmp_path):
    source = copy_of(SAXPY, tmp_path)
    text = source.read_text()
    at = text.index("z[i] = a", text.index("__global__"))
    source.write_text(text[:at] + "z[i] = a - x[i] * y[i];" + text[text.index("\n", at) :])
    done = dice("check", source, "--backend", "host", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["kernels"][0]["verdict"]["kind"] == "wrong"


def test_kernels_of_one_name_are_told_apart():
    found = json.loads(dice("check", TWINS, "--backend", "host", "--json").stdout)["kernels"]
    assert {kernel["name"]: kernel["verdict"]["kind"] for kernel in found} == {
        "right::scale": "verified",
        "wrong::scale": "wrong",
        "scale@23": "unsafe",
    }


def test_check_of_a_broken_file_names_the_line(tmp_path):
    source = tmp_path / "broken.cu"
    source.write_text("// é✅\r\n__global__ void k(float* x) {\r\n    x[0] = undeclared;\r\n}\r\n", newline="")
    done = dice("check", source, "--backend", "host")
    assert done.returncode == 1
    assert b"broken.cu:3:12: error" in done.stdout and b"undeclared" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["infill", "no_such_file.cu"], "does not exist"),
        (["infill", "."], "is not a file"),
        (["infill", SAXPY, "--kernel", "nothing"], "has no kernel nothing; it has saxpy"),
        (
            ["infill", TWINS, "--kernel", "scale"],
            "has 3 kernels called scale: choose one of right::scale, wrong::scale, scale@23",
        ),
        (["infill", SAXPY, "--lines", "a:b"], "is not FIRST:LAST"),
        (["infill", SAXPY, "--lines", "1:2"], "kernel"),
        (["infill", SAXPY, "--lines", "9000:9001"], "line"),
        (["infill", SAXPY, "--candidates", "0"], "between 1 and 64"),
        (["infill", SAXPY, "--backend", "opencl"], "must be one of"),
        (["check", SAXPY, "--kernel", "nothing"], "no kernel nothing"),
        (["check", SAXPY, "--set", "colour=1"], "unknown setting"),
        (["check", SAXPY, "--set", "colour"], "has no value"),
    ],
)
def test_a_usage_error_is_one_sentence_and_exit_code_2(arguments, words):
    done = dice(*arguments)
    said = done.stderr.decode()
    assert done.returncode == 2 and done.stdout == b""
    assert words in said and said.count("\n") == 1 and said.startswith("dice-lsp: ")


def test_an_unknown_command_or_flag_exits_with_2():
    assert dice("fly").returncode == 2
    assert dice("check", SAXPY, "--no-such-flag").returncode == 2


def test_a_checkpoint_that_is_not_there_is_said_and_nothing_is_lost(tmp_path):
    done = dice("infill", SAXPY, "--kernel", "saxpy", "--model", tmp_path / "nowhere", "--json")
    found = json.loads(done.stdout)
    assert done.returncode == 1 and found["candidates"] == [] and "nowhere" in found["reason"]


def test_doctor_tells_what_is_there():
    done = dice("doctor", "--json")
    found = {item["what"]: item for item in json.loads(done.stdout)["findings"]}
    assert found["checkpoint"]["state"] == "ok" and "tiny" in found["checkpoint"]["found"]
    assert found["device compiler"]["state"] == "ok" and "nvrtc" in found["device compiler"]["found"]
    assert found["C++ compiler"]["state"] == "ok"
    assert done.returncode == 0


def test_the_list_of_checkpoints_is_printed_for_programs_too():
    models = json.loads(dice("model", "list", "--json").stdout)["models"]
    tiny = next(model for model in models if model["name"] == "tiny")
    assert tiny["problem"] is None and tiny["size_bytes"] > 10**6 and Path(tiny["path"]).is_dir()


def test_settings_and_schema_are_printed():
    assert b"| `candidates` | `8` |" in dice("settings", "--markdown").stdout
    assert json.loads(dice("schema", "check").stdout)["title"] == "dice-lsp check --json"
