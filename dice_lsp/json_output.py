"""What `--json` prints, and the schema of it, which is made from the records so that the two cannot differ.

Lines are one-based here, as compilers and people count; inside the package they are zero-based, as LSP counts.
"""

import types
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import attrs

from dice_lsp.checked import Checked, CheckedFile, CheckedKernel
from dice_lsp.records import (
    Baseline,
    Build,
    CandidateReport,
    Comparison,
    DecodeStats,
    Evidence,
    FillReport,
    KernelReport,
    LaunchSpec,
    Region,
    Sanitized,
    Timing,
    TimingResult,
    Verdict,
    kind_of,
    to_wire,
)

_HIDDEN = {"cubin"}
_STRING, _INTEGER = {"type": "string"}, {"type": "integer"}
_STRINGS = {"type": "array", "items": _STRING}
_BASELINE: dict[str, Any] = {
    **dict.fromkeys(("origin", "when", "device", "driver", "arch", "compiler"), _STRING),
    **dict.fromkeys(("registers", "spill_bytes", "smem_bytes"), _INTEGER),
    "occupancy": {"type": "number"},
    "verdict": {"enum": [kind_of(kind) for kind in get_args(Verdict)]},
    "median_us": {"type": ["number", "null"]},
}
_PARTS: dict[str, Any] = {"build": Build, "verdict": Verdict, "timing": TimingResult, "comparison": Comparison}


def fill_document(
    path: Path, region: Region, spec: LaunchSpec, report: FillReport, applied: str | None
) -> dict[str, Any]:
    """The object that `dice-lsp infill --json` prints."""
    before = region.document.text
    return {
        "file": str(path),
        "kernel": region.kernel.name if region.kernel else None,
        "lines": [before.count("\n", 0, region.start) + 1, before.count("\n", 0, region.end) + 1],
        "spec": to_wire(spec),
        "decode": None if report.decode is None else to_wire(report.decode),
        "reason": report.reason,
        "candidates": [_candidate(item) for item in report.candidates],
        "applied": applied,
    }


def check_document(checked: Checked) -> dict[str, Any]:
    """The object that `dice-lsp check --json` prints: that of its one file, or `files` with one for each."""
    files = [_file(file) for file in checked.files]
    if len(files) == 1:
        return {**files[0], "notes": [*checked.notes, *files[0]["notes"]]}
    return {"files": files, "notes": list(checked.notes)}


def fill_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of `fill_document`."""
    definitions: dict[str, Any] = {}
    candidate = _object(
        {
            "label": {"type": "string"},
            "text": {"type": "string"},
            "logprob": {"type": "number"},
            "tokens": {"type": "integer"},
            "forwards": {"type": "integer"},
            **{name: _schema(kind, definitions) for name, kind in _PARTS.items()},
        }
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "dice-lsp infill --json",
        **_object(
            {
                "file": {"type": "string"},
                "kernel": {"type": ["string", "null"]},
                "lines": {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2},
                "spec": _schema(LaunchSpec, definitions),
                "decode": _schema(Union[DecodeStats, None], definitions),
                "reason": {"type": ["string", "null"]},
                "candidates": {"type": "array", "items": candidate},
                "applied": {"type": ["string", "null"]},
            }
        ),
        "$defs": definitions,
    }


def check_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of `check_document`."""
    definitions: dict[str, Any] = {}
    change = _object({"what": _STRING, "before": _STRING, "now": _STRING, "worse": {"type": "boolean"}})
    kernel = _object(
        {
            "name": _STRING,
            "line": {"type": "integer", "minimum": 1},
            "spec": _schema(LaunchSpec, definitions),
            **{name: _schema(kind, definitions) for name, kind in _PARTS.items()},
            "evidence": _schema(Evidence, definitions),
            "sanitized": _schema(Union[Sanitized, None], definitions),
            "baseline": {"anyOf": [_object(_BASELINE), {"type": "null"}]},
            "changes": {"type": "array", "items": change},
            "regression": {"type": ["string", "null"]},
            "failed": {"type": "boolean"},
            "flags": _STRING,
        }
    )
    file = _object(
        {
            "file": _STRING,
            "kernels": {"type": "array", "items": kernel},
            **dict.fromkeys(("new", "gone", "notes"), _STRINGS),
        }
    )
    files = _object({"files": {"type": "array", "items": {"$ref": "#/$defs/File"}}, "notes": _STRINGS})
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "dice-lsp check --json",
        "anyOf": [{"$ref": "#/$defs/File"}, files],
        "$defs": {**definitions, "File": file},
    }


def _file(file: CheckedFile) -> dict[str, Any]:
    return {
        "file": str(file.path),
        "kernels": [_checked_kernel(kernel) for kernel in file.kernels],
        "new": list(file.new),
        "gone": list(file.gone),
        "notes": list(file.notes),
    }


def _checked_kernel(kernel: CheckedKernel) -> dict[str, Any]:
    report = kernel.report
    return {
        "name": report.name,
        "line": report.line + 1,
        "spec": to_wire(report.spec),
        **_parts(report),
        "evidence": to_wire(report.evidence),
        "sanitized": None if report.sanitized is None else _sanitized(report.sanitized),
        "baseline": None if report.baseline is None else _baseline(report.baseline),
        "changes": [to_wire(change) for change in kernel.changes],
        "regression": kernel.regression,
        "failed": kernel.fault is not None,
        "flags": report.flags_origin,
    }


def _sanitized(sanitized: Sanitized) -> dict[str, Any]:
    wire: dict[str, Any] = to_wire(sanitized)
    for finding in wire["findings"]:
        finding["line"] = None if finding["line"] is None else finding["line"] + 1
    return wire


def _baseline(baseline: Baseline) -> dict[str, Any]:
    build, timing = baseline.build, baseline.timing
    return {
        "origin": baseline.origin,
        "when": baseline.when,
        "device": baseline.evidence.device,
        "driver": baseline.evidence.driver,
        "arch": build.arch,
        "compiler": build.compiler,
        "registers": build.registers,
        "spill_bytes": build.spill_store_bytes + build.spill_load_bytes,
        "smem_bytes": build.smem_bytes,
        "occupancy": build.occupancy,
        "verdict": kind_of(type(baseline.verdict)),
        "median_us": timing.median_us if isinstance(timing, Timing) else None,
    }


def _candidate(report: CandidateReport) -> dict[str, Any]:
    candidate = report.candidate
    return {
        "label": report.label,
        "text": candidate.text,
        "logprob": candidate.logprob,
        "tokens": candidate.tokens,
        "forwards": candidate.forwards,
        **_parts(report),
    }


def _parts(report: CandidateReport | KernelReport) -> dict[str, Any]:
    parts = {name: to_wire(getattr(report, name), kind) for name, kind in _PARTS.items()}
    for message in parts["build"].get("messages", ()):
        message["line"] += 1
        message["column"] += 1
    return {name: {key: value for key, value in part.items() if key not in _HIDDEN} for name, part in parts.items()}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _schema(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        tagged = len([item for item in arguments if item is not type(None)]) > 1 and all(map(attrs.has, arguments))
        return {
            "anyOf": [
                _reference(item, definitions, tagged) if tagged else _schema(item, definitions) for item in arguments
            ]
        }
    if origin is tuple:
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return {"type": "array", "items": _schema(arguments[0], definitions)}
        items = [_schema(item, definitions) for item in arguments]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
    if origin is Mapping or (isinstance(origin, type) and issubclass(origin, Mapping)):
        return {"type": "object", "additionalProperties": _schema(arguments[1], definitions)}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {"enum": [member.value for member in kind]}
    if attrs.has(kind):
        return _reference(kind, definitions, tagged=False)
    names = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
    return {"type": names[kind]}


def _reference(kind: Any, definitions: dict[str, Any], tagged: bool) -> dict[str, Any]:
    if kind.__name__ not in definitions:
        definitions[kind.__name__] = {}
        hints = get_type_hints(kind)
        properties = {
            field.name: _schema(hints[field.name], definitions)
            for field in attrs.fields(kind)
            if field.name not in _HIDDEN
        }
        if tagged:
            properties = {"kind": {"const": kind_of(kind)}, **properties}
        definitions[kind.__name__] = _object(properties)
    return {"$ref": f"#/$defs/{kind.__name__}"}
