"""A check as SARIF 2.1.0 and as JUnit XML: what code scanning and test reports of a CI read."""

import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

from attrs import frozen

from dice_lsp import __version__
from dice_lsp.checked import Checked, CheckedFile, CheckedKernel, comparison_words, figures_problem
from dice_lsp.records import (
    Ambiguous,
    Cheating,
    Compiled,
    CompileFailed,
    CompileMessage,
    NotCompared,
    NotCompiled,
    NotTimed,
    Timing,
    Unsafe,
    Verified,
    Wrong,
)
from dice_lsp.wording import count, day, duration

SARIF_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
FINGERPRINT = "diceKernel/v1"
ROOT_ID = "%SRCROOT%"


@frozen
class Rule:
    """One kind of fault. Its id is the code of the editor's diagnostic where there is one."""

    id: str
    level: str
    short: str
    help: str


RULES = (
    Rule(
        "compile",
        "error",
        "The kernel does not compile",
        "The device compiler (NVRTC, or nvcc where it is set) reports an error at this place.",
    ),
    Rule(
        "not-compiled",
        "error",
        "The kernel was not compiled",
        "Nothing is known of the kernel: no compiler was found, it was stopped, or a flag is not allowed.",
    ),
    Rule(
        "wrong",
        "error",
        "An output differs from the reference",
        "The kernel was run with its launch, and an element differs from the reference by more than the tolerance.",
    ),
    Rule(
        "unsafe",
        "error",
        "The kernel breaks a rule whatever its outputs are",
        "An access out of bounds, a race, memory that is never written, a barrier that not all threads reach, "
        "a result that differs from run to run, or a run without end.",
    ),
    Rule(
        "cheating",
        "error",
        "The kernel passes without doing the work",
        "The outputs are right for a reason that has nothing to do with the computation.",
    ),
    Rule(
        "regression",
        "warning",
        "The kernel is worse than its baseline",
        "Slower in one interleaved run by more than `regression_percent`; or, where no time was compared, it spills more "
        "or its occupancy is lower. A slower kernel that is wanted becomes the baseline with --save-baseline.",
    ),
)
_RULE_INDEX = {rule.id: number for number, rule in enumerate(RULES)}


def fault_rule(kernel: CheckedKernel) -> str | None:
    """The id of the rule that a kernel breaks; None when it passes."""
    report = kernel.report
    if isinstance(report.build, CompileFailed):
        return "compile"
    if isinstance(report.build, NotCompiled):
        return "not-compiled"
    for kind, rule in ((Wrong, "wrong"), (Unsafe, "unsafe"), (Cheating, "cheating")):
        if isinstance(report.verdict, kind):
            return rule
    return "regression" if kernel.regression is not None else None


def _fault_line(kernel: CheckedKernel) -> int:
    """The line that compute-sanitizer names, else the kernel's."""
    findings = kernel.report.sanitized.findings if kernel.report.sanitized is not None else ()
    named = (finding.line for finding in findings if finding.line is not None)
    return next(named, kernel.report.line)


# SARIF


def sarif(checked: Checked, root: Path) -> dict[str, Any]:
    """A SARIF log. Files below `root`, which should be the top of the repository, are named relative to it."""
    results: list[dict[str, Any]] = []
    for file in checked.files:
        results += _results(file, artifact(file.path, root))
    return {
        "$schema": SARIF_SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "dice-lsp",
                        "version": __version__,
                        "rules": [_sarif_rule(rule) for rule in RULES],
                    }
                },
                "automationDetails": {"id": "dice-lsp/"},
                # Columns count code points, as everywhere in this package.
                "columnKind": "unicodeCodePoints",
                "invocations": [
                    {
                        "executionSuccessful": True,
                        "exitCode": checked.exit_code,
                        "toolExecutionNotifications": [
                            *({"level": "note", "message": {"text": sentence}} for sentence in checked.notes),
                            *(_notification(file, sentence, root) for file in checked.files for sentence in file.notes),
                        ],
                    }
                ],
                "artifacts": [{"location": artifact(file.path, root)} for file in checked.files],
                "results": results,
            }
        ],
    }


def repository_root(folder: Path) -> Path:
    """The nearest folder at or above `folder` that is a repository's, else `folder` itself."""
    folder = folder.resolve()
    return next((place for place in (folder, *folder.parents) if (place / ".git").exists()), folder)


def artifact(path: Path, root: Path) -> dict[str, str]:
    """A file's location: relative to the root below it, else an absolute URI."""
    path = path.resolve()
    if path.is_relative_to(root):
        # A file name's bytes need not be UTF-8; a URI's must.
        return {"uri": quote(os.fsencode(path.relative_to(root).as_posix())), "uriBaseId": ROOT_ID}
    return {"uri": path.as_uri()}


def _notification(file: CheckedFile, sentence: str, root: Path) -> dict[str, Any]:
    location = {"physicalLocation": {"artifactLocation": artifact(file.path, root)}}
    return {"level": "note", "message": {"text": sentence}, "locations": [location]}


def _sarif_rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "shortDescription": {"text": rule.short},
        "fullDescription": {"text": rule.help},
        "help": {"text": rule.help},
        "defaultConfiguration": {"level": rule.level},
        "properties": {"tags": ["cuda", "performance" if rule.id == "regression" else "correctness"]},
    }


def _results(file: CheckedFile, location: dict[str, str]) -> list[dict[str, Any]]:
    # Kernels that share broken code report the same error: it is one result that names them all.
    errors: dict[tuple[int, int, str], tuple[CompileMessage, list[str]]] = {}
    found: list[tuple[str, str, str, dict[str, int], list[str], dict[str, Any]]] = []
    for kernel in file.kernels:
        rule, report = fault_rule(kernel), kernel.report
        if rule is None:
            continue
        if isinstance(report.build, CompileFailed) and report.build.errors:
            for message in report.build.errors:
                place = (message.line, message.column, message.text)
                errors.setdefault(place, (message, []))[1].append(report.name)
            continue
        region = {"startLine": _fault_line(kernel) + 1}
        found.append((rule, f"{report.name}: {kernel.fault}", report.name, region, [report.name], _figures(kernel)))
    for _, (message, names) in sorted(errors.items()):
        region = {"startLine": message.line + 1, "startColumn": message.column + 1}
        found.append(("compile", message.text, message.text, region, names, {}))
    results, seen = [], Counter[str]()
    for rule, text, identity, region, names, figures in found:
        # The line is left out, so that a result stays the same one when lines move above it.
        digest = hashlib.sha256("\0".join((rule, location["uri"], identity)).encode("utf-8", "surrogatepass"))
        fingerprint = digest.hexdigest()[:32]
        seen[fingerprint] += 1
        result: dict[str, Any] = {
            "ruleId": rule,
            "ruleIndex": _RULE_INDEX[rule],
            "level": RULES[_RULE_INDEX[rule]].level,
            "message": {"text": text},
            "locations": [
                {
                    "physicalLocation": {"artifactLocation": location, "region": region},
                    "logicalLocations": [{"name": name, "kind": "function"} for name in dict.fromkeys(names)],
                }
            ],
            "partialFingerprints": {FINGERPRINT: f"{fingerprint}:{seen[fingerprint]}"},
        }
        if figures:
            result["properties"] = figures
        results.append(result)
    return results


def _figures(kernel: CheckedKernel) -> dict[str, Any]:
    """The figures of a kernel by name, as properties of a result or a test case."""
    report = kernel.report
    figures: dict[str, Any] = {}
    if isinstance(report.build, Compiled):
        build = report.build
        figures = {
            "arch": build.arch,
            "compiler": build.compiler,
            "registers": build.registers,
            "spillBytes": build.spill_store_bytes + build.spill_load_bytes,
            "occupancy": round(build.occupancy, 4),
        }
    if report.evidence.device:
        figures["device"] = report.evidence.device
    if isinstance(report.timing, Timing):
        figures["medianUs"] = report.timing.median_us
    ratio = getattr(report.comparison, "ratio", None)
    if report.baseline is not None and ratio is not None:
        figures["timeOfBaselineOverTime"] = ratio
    return figures


# JUnit


def junit(checked: Checked) -> str:
    """JUnit XML: a suite for each file, a case for each kernel.

    A kernel of which nothing is proved, because its launch or reference is not known, counts as skipped unless it was
    held against a baseline: a green case would say more than is known.
    """
    suites = ElementTree.Element("testsuites", name="dice-lsp check")
    totals = Counter[str]()
    for file in checked.files:
        suite = ElementTree.SubElement(suites, "testsuite", name=_xml(str(file.path)))
        counts = Counter[str](tests=len(file.kernels), failures=0, errors=0, skipped=0)
        for kernel in file.kernels:
            if kind := _junit_case(suite, file, kernel):
                counts[kind] += 1
        for name, number in counts.items():
            suite.set(name, str(number))
        totals.update(counts)
        if notes := (*checked.notes, *file.notes):
            ElementTree.SubElement(suite, "system-out").text = _xml("\n".join(notes))
    for name in ("tests", "failures", "errors", "skipped"):
        suites.set(name, str(totals[name]))
    ElementTree.indent(suites)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suites, encoding="unicode") + "\n"


def _junit_case(suite: ElementTree.Element, file: CheckedFile, kernel: CheckedKernel) -> str | None:
    report = kernel.report
    case = ElementTree.SubElement(
        suite,
        "testcase",
        name=_xml(report.name),
        classname=_xml(str(file.path)),
        file=_xml(str(file.path)),
        line=str(report.line + 1),
    )
    if figures := _figures(kernel):
        properties = ElementTree.SubElement(case, "properties")
        for name, value in figures.items():
            ElementTree.SubElement(properties, "property", name=name, value=_xml(str(value)))
    kind = None
    if kernel.fault is not None:
        # An error in JUnit's words is a test that could not be run.
        tag, kind = ("error", "errors") if isinstance(report.build, NotCompiled) else ("failure", "failures")
        element = ElementTree.SubElement(case, tag, message=_xml(kernel.fault), type=str(fault_rule(kernel)))
        element.text = _xml("\n".join([f"{file.path}:{report.line + 1}: {report.name}", *_details(file.path, kernel)]))
    elif kernel.doubt is not None and kernel.held is None:
        kind = "skipped"
        ElementTree.SubElement(case, "skipped", message=_xml(kernel.doubt))
    ElementTree.SubElement(case, "system-out").text = _xml("\n".join(evidence_lines(kernel)))
    return kind


def _details(path: Path, kernel: CheckedKernel) -> Sequence[str]:
    build, verdict = kernel.report.build, kernel.report.verdict
    if isinstance(build, CompileFailed):
        return [place(path, message) for message in build.messages]
    if isinstance(verdict, Wrong):
        return [f"case {verdict.case}: {verdict.wrong_elements} of {verdict.total_elements} elements differ"]
    return [f"case {verdict.case}"] if isinstance(verdict, Unsafe) else []


def place(path: Path, message: CompileMessage) -> str:
    """A compiler's message as compilers write it, `a.cu:3:12: error: ...`, so that editors and CIs find the place."""
    return f"{path}:{message.line + 1}:{message.column + 1}: {message.severity}: {message.text}"


def evidence_lines(kernel: CheckedKernel) -> Sequence[str]:
    """What is known of a kernel and how it was measured, a line each."""
    report = kernel.report
    lines = []
    if isinstance(report.build, Compiled):
        build = report.build
        spills = build.spill_store_bytes + build.spill_load_bytes
        lines.append(
            f"{build.registers} registers, {spills} B spilled, occupancy {build.occupancy:.0%} at {build.block_threads} "
            f"threads a block, {build.arch} by {build.compiler}"
        )
    if isinstance(report.verdict, Verified):
        verdict = report.verdict
        cases = count(verdict.cases, "case")
        lines.append(
            f"verified in {cases} on {verdict.device} against {verdict.reference}: {', '.join(verdict.checks)}"
        )
    elif kernel.doubt is not None:
        lines.append(kernel.doubt)
    if isinstance(report.timing, Timing):
        timing = report.timing
        spread = f"{duration(timing.q1_us)} to {duration(timing.q3_us)}"
        cache = "cold" if timing.cold else "hot"
        lines.append(f"{duration(timing.median_us)} ({spread}), {cache}, {timing.samples} samples, {timing.case}")
    elif isinstance(report.timing, NotTimed):
        lines.append(f"not timed: {report.timing.reason}")
    lines += _baseline_lines(kernel)
    evidence = report.evidence
    measured = ", ".join(part for part in (evidence.device, evidence.driver, evidence.toolkit, evidence.when) if part)
    return [*lines, f"measured on {measured}"] if measured else lines


def _baseline_lines(kernel: CheckedKernel) -> Iterable[str]:
    report, baseline = kernel.report, kernel.report.baseline
    if baseline is None:
        return
    yield f"baseline of {day(baseline.when)}, {baseline.evidence.device}: {kernel.against}"
    if isinstance(report.comparison, NotCompared):
        yield f"time not compared: {report.comparison.reason}"
    elif isinstance(report.comparison, Ambiguous):
        yield f"{comparison_words(report)}: {report.comparison.reason}"
    if problem := figures_problem(report):
        yield problem


_NOT_XML = re.compile("[^\\t\\n\\r\\x20-\\uD7FF\\uE000-\\uFFFD\\U00010000-\\U0010FFFF]")


def _xml(text: str) -> str:
    """Text with the characters that XML cannot hold replaced: compiler messages quote whatever a file contains."""
    return _NOT_XML.sub("�", text)
