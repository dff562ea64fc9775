"""What --json prints fits its schema, and every member of every union is in it."""

import json
from typing import get_args

import jsonschema
import pytest

from dice_lsp.json_output import check_document, check_schema, fill_schema
from dice_lsp.records import (
    Build,
    Comparison,
    CompileFailed,
    CompileMessage,
    Evidence,
    KernelReport,
    LaunchSpec,
    NotCompared,
    NotTimed,
    TimingResult,
    Unverified,
    Verdict,
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


def test_a_document_fits_and_counts_lines_from_one():
    failed = CompileFailed("nvrtc 13.5", (CompileMessage(8, 4, "error", 'identifier "q" is undefined'),))
    evidence = Evidence("k", "s", "host", "", "nvrtc 13.5", "2026-11-30T12:00:00+00:00")
    spec = LaunchSpec("f", grid=("1", "1", "1"), unknown=("the block is not known",))
    found = KernelReport("f", 7, spec, failed, Unverified("x"), NotTimed("x"), NotCompared("x"), evidence)
    from pathlib import Path

    document = json.loads(json.dumps(check_document(Path("a.cu"), [found])))
    jsonschema.validate(document, check_schema())
    kernel = document["kernels"][0]
    assert (
        kernel["line"] == 8
        and kernel["build"]["messages"][0]["line"] == 9
        and kernel["build"]["kind"] == "compile_failed"
    )
    kernel["verdict"]["kind"] = "verified"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, check_schema())


def test_the_wire_is_lossless():
    spec = LaunchSpec("f", scalars={"n": "4"}, template={"T": "float"})
    assert from_wire(json.loads(json.dumps(to_wire(spec))), LaunchSpec) == spec
