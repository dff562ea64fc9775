"""Several launches of one kernel in a spec: they survive the wire, and a change of any changes the keys that it should."""

import json

import attrs
import jsonschema
import pytest

from dice_lsp.baseline import launch_key
from dice_lsp.json_output import check_schema
from dice_lsp.records import (
    BufferSpec,
    CapturedLaunch,
    Confidence,
    Dim,
    LaunchCase,
    LaunchSpec,
    Origin,
    Reference,
    Role,
    from_wire,
    to_wire,
)

RECORDED = CapturedLaunch("/home/me/.captures/saxpy", 3, "f00d", stale=True)
CASES = (
    LaunchCase(
        "launch at line 210", ("cdiv(n, B)", "1", "1"), ("B", "1", "1"), "4 * B", {"n": 1000}, {"p.n": "n"},
        {"x": ("n", "4")}, {"B": "128"},
    ),
    LaunchCase("captured 3", ("8", "1", "1"), ("256", "1", "1"), captured=RECORDED),
)  # fmt: skip
SPEC = LaunchSpec(
    "saxpy",
    dims=(Dim("n", (1 << 20,), Origin.LAUNCH_SITE),),
    buffers=(BufferSpec("p.data", Role.IO, ("n",), "normal", Origin.LAUNCH_SITE),),
    scalars={"p.n": "n"},
    grid=("cdiv(n, 256)", "1", "1"),
    block=("256", "1", "1"),
    reference=Reference("captured", "run.capture", Origin.DIRECTIVE),
    confidence={"grid": Confidence.LIKELY, "dims.n": Confidence.GUESS},
    label="launch at line 90",
    cases=CASES,
)


def test_a_spec_with_several_launches_survives_the_wire():
    sent = json.loads(json.dumps(to_wire(SPEC)))
    assert from_wire(sent, LaunchSpec) == SPEC
    assert sent["confidence"] == {"grid": "likely", "dims.n": "guess"}
    assert sent["cases"][1]["captured"]["index"] == 3


def test_a_spec_of_a_time_before_cases_is_read():
    old = {
        key: value for key, value in to_wire(SPEC).items() if key not in ("cases", "confidence", "label", "captured")
    }
    assert from_wire(old, LaunchSpec) == attrs.evolve(SPEC, cases=(), confidence={}, label="")


def test_the_schema_of_the_output_knows_cases():
    definitions = check_schema()["$defs"]
    schema = {**definitions["LaunchSpec"], "$defs": definitions}
    sent = json.loads(json.dumps(to_wire(SPEC)))
    jsonschema.validate(sent, schema)
    del sent["cases"][0]["label"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(sent, schema)


def test_what_is_timed_has_the_same_key_whatever_else_is_checked():
    assert launch_key(attrs.evolve(SPEC, cases=())) == launch_key(SPEC)
    recorded = attrs.evolve(SPEC, captured=RECORDED)
    other = attrs.evolve(SPEC, captured=attrs.evolve(RECORDED, digest="beef"))
    assert len({launch_key(SPEC), launch_key(recorded), launch_key(other)}) == 3
    assert launch_key(attrs.evolve(SPEC, captured=attrs.evolve(RECORDED, path="/elsewhere"))) == launch_key(recorded)
