"""What --json prints fits its schema, and every member of every union is in it."""

import json
import re
from pathlib import Path
from typing import get_args

import attrs
import jsonschema
import pytest

from dice_lsp.baseline import make
from dice_lsp.checked import Checked, CheckedFile, CheckedKernel, held_against_baseline
from dice_lsp.json_output import check_document, check_schema, fill_schema
from dice_lsp.records import (
    Build,
    Comparison,
    Compiled,
    CompileFailed,
    CompileMessage,
    Evidence,
    Kernel,
    KernelReport,
    LaunchSpec,
    NotCompared,
    NotCompiled,
    NotTimed,
    TimingResult,
    Unverified,
    Verdict,
    Verified,
    from_wire,
    kind_of,
    to_wire,
)


@pytest.mark.parametrize("schema", [check_schema(), fill_schema()])
def test_the_schemas_are_schemas(schema):
    jsonschema.Draft202012Validator.check_schema(schema)
    for union in (Build, Verdict, TimingResult, Comparison):
        for record in get_args(union):
            assert schema["$defs"][record.__name__]["properties"]["kind"] == {"const": kind_of(record)}


EVIDENCE = Evidence("k", "s", "host", "", "nvrtc 13.5", "2026-11-30T12:00:00+00:00")


def found(name: str, line: int, build: Build, verdict: Verdict) -> KernelReport:
    spec = LaunchSpec(name, grid=("1", "1", "1"), unknown=("the block is not known",))
    return KernelReport(name, line, spec, build, verdict, NotTimed("x"), NotCompared("x"), EVIDENCE)


def printed(*files: CheckedFile) -> dict:
    document = json.loads(json.dumps(check_document(Checked(files, ("no GPU here",)))))
    jsonschema.validate(document, check_schema())
    return document


def test_a_document_fits_and_counts_lines_from_one():
    failed = CompileFailed("nvrtc 13.5", (CompileMessage(8, 4, "error", 'identifier "q" is undefined'),))
    file = CheckedFile(Path("a.cu"), (CheckedKernel(found("f", 7, failed, Unverified("x"))),), notes=("f is new",))
    document = printed(file)
    (kernel,) = document["kernels"]
    assert kernel["line"] == 8 and kernel["failed"] and kernel["baseline"] is None and kernel["regression"] is None
    assert kernel["build"]["messages"][0]["line"] == 9 and kernel["build"]["kind"] == "compile_failed"
    assert document["notes"] == ["no GPU here", "f is new"]
    kernel["verdict"]["kind"] = "verified"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, check_schema())


def test_a_document_of_several_files_fits():
    failed = NotCompiled("no device compiler was found")
    files = [CheckedFile(Path(name), (CheckedKernel(found("f", 7, failed, Unverified("x"))),)) for name in "ab"]
    document = printed(*files)
    assert [file["file"] for file in document["files"]] == ["a", "b"] and document["notes"] == ["no GPU here"]
    document["files"][0]["kernels"][0]["colour"] = "red"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, check_schema())


def test_a_kernel_has_its_baseline_the_changes_and_the_regression():
    build = Compiled("sm_90", "nvrtc 13.5", "f", 40, 0, 0, 0, 0, 256, 1.0, "none", 12.0, cubin=b"code")
    before = found("f", 7, build, Verified(4, 0.1, "host", "f_cpu", ("bounds",)))
    baseline = make(Kernel("f", "f", (), 0, 9, 5, 8, 7), before, build, "accepted")
    worse = attrs.evolve(build, registers=64, spill_load_bytes=16)
    now = attrs.evolve(found("f", 9, worse, before.verdict), baseline=baseline)
    kernel = held_against_baseline(now, 2.0)
    (kernel,) = printed(CheckedFile(Path("a.cu"), (kernel,), gone=("g",)))["kernels"]
    assert kernel["baseline"]["registers"] == 40 and kernel["baseline"]["device"] == "host"
    assert kernel["baseline"]["median_us"] is None and kernel["baseline"]["verdict"] == "verified"
    assert {change["what"]: (change["before"], change["now"], change["worse"]) for change in kernel["changes"]} == {
        "registers": ("40", "64", False),
        "spills": ("0 B", "16 B", True),
    }
    assert "spills" in kernel["regression"] and kernel["failed"]
    assert "cubin" not in json.dumps(kernel)


def test_the_readme_names_every_part_of_a_checked_kernel():
    readme = (Path(__file__).parent.parent / "README.md").read_text()
    start = readme.index("`check` has `kernels[]`")
    told = set(re.findall(r"`(\w+)`", readme[start : readme.index("\n\n", start)]))
    file = check_schema()["$defs"]["File"]["properties"]
    assert told - {"check", "kind"} == {*file["kernels"]["items"]["properties"], *file} - {"file", "kernels"}


def test_the_wire_is_lossless():
    spec = LaunchSpec("f", scalars={"n": "4"}, template={"T": "float"})
    assert from_wire(json.loads(json.dumps(to_wire(spec))), LaunchSpec) == spec
