"""What the user reads: one short label per kernel or fill, and the evidence behind it as markdown.

Labels are plain words of at most 40 characters, because VS Code cuts a row of hints at 43. Nothing is rounded in the
user's favour: a result that is not current says `stale`, a comparison that is not settled says `ambiguous`.
"""

from collections.abc import Callable, Mapping, Sequence

import attrs

from dice_lsp import sparkline
from dice_lsp.baseline import changes
from dice_lsp.records import (
    Ambiguous,
    Baseline,
    Build,
    CandidateReport,
    Cheating,
    Comparison,
    Compiled,
    CompileFailed,
    Confidence,
    Faster,
    FillReport,
    Finding,
    Hint,
    KernelReport,
    LaunchSpec,
    Measurement,
    NotCompared,
    NotCompiled,
    NotTimed,
    Origin,
    Same,
    Slower,
    Timing,
    Unsafe,
    Unverified,
    Verdict,
    Verified,
    Wrong,
)
from dice_lsp.wording import BEING_CHECKED as BEING_CHECKED
from dice_lsp.wording import count, day
from dice_lsp.wording import duration as duration
from dice_lsp.wording import refusal as refusal
from dice_lsp.worker.checks import CHECKS

MAX_LABEL = 40
CASES_SHOWN = 8


def checking_hint(line: int) -> Hint:
    """Shown from the moment a check starts until its first figure."""
    return Hint(line, "checking", "The kernel is being compiled, run and compared")


def filling_hint(line: int) -> Hint:
    """Shown at a region from the moment its fill starts until its first candidate."""
    return Hint(line, "filling", "The model is writing candidates")


def kernel_hint(report: KernelReport, *, stale: bool = False, history: str = "") -> Hint:
    """The hint of one checked kernel; `stale` when its text has changed since."""
    label = stale_label(report) if stale else kernel_label(report)
    tooltip = evidence_table(report, history)
    if stale:
        tooltip = "**The text has changed since this was measured.** Save to check it again.\n\n" + tooltip
    return Hint(report.line, label, tooltip)


def kernel_label(report: KernelReport) -> str:
    build, verdict, timing = report.build, report.verdict, report.timing
    if isinstance(build, CompileFailed):
        return f"does not compile: {count(len(build.errors), 'error')}"
    if isinstance(build, NotCompiled):
        return shorten(f"not compiled: {build.reason}")
    if isinstance(verdict, Unsafe):
        # The access is enough at the line; the thread and the source line are in the hover.
        return shorten(refusal(attrs.evolve(verdict, where=verdict.where.partition(",")[0])))
    if isinstance(verdict, (Wrong, Cheating)):
        return shorten(refusal(verdict))
    if isinstance(timing, Timing):
        told = _comparison_words(report.comparison) or _not_compared_words(report.comparison) or _roof_words(timing)
        return _fit([duration(timing.median_us), told, verdict_words(verdict, report.spec)])
    return _static_label(report, build)


def _static_label(report: KernelReport, build: Compiled) -> str:
    """What the compiler alone says, with the registers that came or went since the baseline."""
    registers, words = f"{build.registers} regs", verdict_words(report.verdict, report.spec)
    if report.baseline is None or not any(change.what == "registers" for change in changes(report.baseline, report)):
        return _fit([registers, _pressure(build), words])
    parts = [f"{registers} ({build.registers - report.baseline.build.registers:+d})", _pressure(build), words]
    if _spill_bytes(build) and len("  ".join(parts)) > MAX_LABEL:
        # Spills cost more than registers do, so it is the difference of registers that goes.
        parts[0] = registers
    return _fit(parts)


def stale_label(report: KernelReport) -> str:
    if isinstance(report.timing, Timing):
        return f"stale: {duration(report.timing.median_us)}"
    if isinstance(report.build, Compiled):
        return f"stale: {report.build.registers} regs"
    return "stale"


def fill_hint(report: FillReport, line: int) -> Hint:
    """The hint at a region with candidates: each label with its worth, as many as fit."""
    if not report.candidates:
        return Hint(line, shorten(report.reason or "no candidate"), report.reason or "")
    words = [f"{candidate.label} {candidate_words(candidate)}" for candidate in report.candidates]
    label = words[0]
    for shown, word in enumerate(words[1:], start=1):
        more = f"  +{len(words) - shown}"
        if len(label) + 2 + len(word) + (len(more) if shown + 1 < len(words) else 0) > MAX_LABEL:
            label += more
            break
        label += "  " + word
    return Hint(line, shorten(label), fill_table(report))


def candidate_words(report: CandidateReport) -> str:
    """A candidate's worth in one or two words, as the hint and the picker show it."""
    if isinstance(report.build, CompileFailed):
        return "no compile"
    if isinstance(report.build, NotCompiled):
        return "refused"
    verdict = report.verdict
    if isinstance(verdict, Verified):
        return _comparison_words(report.comparison, short=True) or "verified"
    if isinstance(verdict, Wrong):
        return "wrong"
    if isinstance(verdict, (Unsafe, Cheating)):
        return "refused"
    return "unverified"


def candidate_title(report: CandidateReport) -> str:
    """One line for a menu: `A  1.42x faster  12.3 us  verified  40 regs`, or `B  refused: z: 32 of 1000 elements ...`."""
    if isinstance(report.build, CompileFailed):
        first = report.build.errors[0].text if report.build.errors else "no message"
        return f"{report.label}  does not compile: {first}"
    if isinstance(report.build, NotCompiled):
        return f"{report.label}  refused: {report.build.reason}"
    if isinstance(report.verdict, (Wrong, Unsafe, Cheating)):
        return f"{report.label}  {refusal(report.verdict)}"
    parts = [report.label]
    if isinstance(report.timing, Timing):
        if told := _comparison_words(report.comparison):
            parts.append(told)
        parts.append(duration(report.timing.median_us))
    parts.append(_verdict_phrase(report.verdict))
    parts.append(f"{report.build.registers} regs")
    return "  ".join(parts)


def verdict_words(verdict: Verdict, spec: LaunchSpec) -> str:
    if isinstance(verdict, Verified):
        return "verified on host" if verdict.device == "host" else "verified"
    if isinstance(verdict, Unverified):
        if verdict.reason == BEING_CHECKED:
            return "checking"
        if spec.skip:
            return "skipped"
        if spec.unknown:
            return "launch unknown"
        if verdict.reason.startswith("not checked"):
            return "not checked"
        return "no reference" if verdict.reason.startswith("no reference") else "not verified"
    return refusal(verdict)


def evidence_table(report: KernelReport, history: str = "") -> str:
    """Everything known of a kernel, for the hover: figures, checks, where each part of the launch comes from.

    `history` is the chart of `history_markdown`; it stands between the figures and the launch.
    """
    before = {} if report.baseline is None else {item.what: item.before for item in changes(report.baseline, report)}
    rows = [
        *_build_rows(report.build, before),
        *_flag_rows(report),
        *_verdict_rows(report.verdict),
        *_sanitizer_rows(report),
        *_timing_rows(report.timing),
        *_baseline_rows(report),
    ]
    text = f"**{report.name}**\n\n" + markdown_table(("", ""), rows)
    if history:
        text += f"\n\n{history}"
    if launch := launch_table(report.spec):
        text += f"\n\n{launch}"
    evidence = report.evidence
    text += f"\n\n{evidence.device}, {evidence.toolkit}" + (f", driver {evidence.driver}" if evidence.driver else "")
    text += f", {evidence.when}"
    return text + (f"; it ran under {evidence.isolation}" if evidence.isolation else "")


def history_markdown(measurements: Sequence[Measurement], baseline: Baseline | None, svg: bool) -> str:
    """The last 30 checks as a small chart and one line, for the hover; empty when there are none.

    `measurements` are oldest first. Only those of the newest one's device and launch are shown, because others have no
    common scale; without a time among them it is their registers.
    """
    if not measurements:
        return ""
    newest = measurements[-1]
    shown = [m for m in measurements if (m.device, m.launch_key) == (newest.device, newest.launch_key)]
    shown = shown[-sparkline.MAX_VALUES :]
    timed = [m for m in shown if m.median_us is not None]
    timed = [m for m in timed if m.cold == timed[-1].cold]
    times = [m.median_us for m in timed if m.median_us is not None]
    level: float | None = None
    words: Callable[[float], str]
    if times:
        values, words, best = times, duration, f"{duration(min(times))} best"
        now = f"{duration(newest.median_us)} now" if newest.median_us is not None else "not timed now"
        alike = baseline is not None and (baseline.evidence.device, baseline.launch_key) == (
            newest.device,
            newest.launch_key,
        )
        if baseline is not None and alike and isinstance(baseline.timing, Timing):
            level = baseline.timing.median_us if baseline.timing.cold == timed[-1].cold else None
    else:
        shown = [m for m in shown if (m.arch, m.toolkit) == (newest.arch, newest.toolkit)]
        values, words = [float(m.registers) for m in shown], _registers
        best, now = f"{_registers(min(values))} fewest", f"{_registers(newest.registers)} now"
        if baseline is not None and (baseline.build.arch, baseline.evidence.toolkit) == (newest.arch, newest.toolkit):
            level = float(baseline.build.registers)
    if newest.verdict in ("wrong", "unsafe", "cheating"):
        now = f"{newest.verdict} now"
    line = f"{now}, {best}, {count(len(shown), 'check')} since {day(shown[0].when)}"
    if not times:
        line += "; registers, because nothing was timed here"
    if not svg:
        return f"{sparkline.text(values)}  {line}"
    picture = sparkline.svg(values, baseline=level, title=line, words=words)
    dashed = "" if level is None else f"; dashed: the baseline, {words(level)}"
    return f"![the last checks]({sparkline.data_uri(picture)})\n\n{line}{dashed}"


def _registers(number: float) -> str:
    return f"{number:.0f} regs"


def fill_table(report: FillReport) -> str:
    """The candidates of a fill as a markdown table."""
    rows = []
    for item in report.candidates:
        registers = str(item.build.registers) if isinstance(item.build, Compiled) else ""
        time = duration(item.timing.median_us) if isinstance(item.timing, Timing) else ""
        told = candidate_title(item).removeprefix(item.label).strip()
        rows.append((item.label, told, registers, time))
    text = markdown_table(("", "worth", "regs", "time"), rows)
    if report.decode is not None:
        decode = report.decode
        text += (
            f"\n\n{decode.checkpoint}: {decode.tokens} tokens, {decode.forwards} forwards, "
            f"{decode.elapsed_ms:.0f} ms on {decode.device}"
        )
    return text


def shorten(label: str) -> str:
    """At most 40 characters; what is cut is marked with two dots."""
    label = " ".join(label.split("\n")).strip()
    return label if len(label) <= MAX_LABEL else label[: MAX_LABEL - 2].rstrip() + ".."


def _fit(parts: Sequence[str]) -> str:
    """Join with two spaces; when that is too long, the middle parts go first, never the first or the verdict."""
    kept = [part for part in parts if part]
    while len("  ".join(kept)) > MAX_LABEL and len(kept) > 2:
        kept.pop(-2)
    return shorten("  ".join(kept))


def _pressure(build: Compiled) -> str:
    spill_bytes = _spill_bytes(build)
    if spill_bytes >= 1000:
        # All digits, which are in the hover, would push the word out of a hint that ends with `verified on host`.
        return f"spills {spill_bytes / 1000:.0f} KB"
    return f"spills {spill_bytes} B" if spill_bytes else f"occ {build.occupancy:.0%}"


def _spill_bytes(build: Compiled) -> int:
    return build.spill_store_bytes + build.spill_load_bytes


def _comparison_words(comparison: Comparison, *, short: bool = False) -> str:
    if isinstance(comparison, Faster):
        return f"{comparison.ratio:.2f}x" + ("" if short else " faster")
    if isinstance(comparison, Slower):
        return f"{comparison.ratio:.2f}x" if short else f"{1 / comparison.ratio:.2f}x slower"
    if isinstance(comparison, Same):
        return "same"
    return "ambiguous" if isinstance(comparison, Ambiguous) else ""


def _not_compared_words(comparison: Comparison) -> str:
    return comparison.label if isinstance(comparison, NotCompared) else ""


def _roof_words(timing: Timing) -> str:
    if timing.roof is None or timing.roof_fraction is None:
        return ""
    return "launch-bound" if timing.roof == "launch" else f"{timing.roof_fraction:.0%} of {timing.roof} roof"


def _verdict_phrase(verdict: Verdict) -> str:
    if isinstance(verdict, Verified):
        return "verified on host" if verdict.device == "host" else "verified"
    if isinstance(verdict, Unverified):
        return f"not verified: {verdict.reason}"
    return refusal(verdict)


def _build_rows(build: Build, before: Mapping[str, str]) -> list[tuple[str, str]]:
    """The compiler's figures; `before` has the baseline's of those that have changed."""
    if isinstance(build, CompileFailed):
        return [("compile", f"failed with {build.compiler}: {count(len(build.errors), 'error')}")]
    if isinstance(build, NotCompiled):
        return [("compile", build.reason)]
    figures = {
        "registers": str(build.registers),
        "spills": f"{build.spill_store_bytes} B stores, {build.spill_load_bytes} B loads",
        "shared memory": f"{build.smem_bytes} B static",
        "occupancy": f"{build.occupancy:.0%} at {build.block_threads} threads a block, limited by {build.limiter}",
    }
    rows = [(what, f"{now}, was {before[what]}" if what in before else now) for what, now in figures.items()]
    rows.append(("compiled", f"{build.arch} by {build.compiler} in {build.elapsed_ms:.0f} ms"))
    return rows + [("note on the build", note) for note in build.notes]


def _flag_rows(report: KernelReport) -> list[tuple[str, str]]:
    """Whose flags of the project the kernel was compiled with, and what else is to be known of them."""
    rows = [("flags", report.flags_origin)] if report.flags_origin else []
    return rows + [("note on the build", note) for note in report.notes]


def _verdict_rows(verdict: Verdict) -> list[tuple[str, str]]:
    if isinstance(verdict, Verified):
        return [
            ("verdict", f"verified in {count(verdict.cases, 'case')} on {verdict.device}"),
            ("reference", verdict.reference),
            ("largest error", f"{verdict.max_error:.3g} of the tolerance"),
            *(("note", note) for note in verdict.notes),
            *_check_rows(verdict.checks),
        ]
    if isinstance(verdict, Wrong):
        share = f"{verdict.wrong_elements} of {verdict.total_elements} elements"
        return [("verdict", refusal(verdict)), ("case", f"{verdict.case}: {share}")]
    if isinstance(verdict, Unsafe):
        return [("verdict", refusal(verdict)), ("case", verdict.case)]
    if isinstance(verdict, Cheating):
        return [("verdict", refusal(verdict))]
    return [("verdict", f"not verified: {verdict.reason}"), *_check_rows(verdict.checks)]


def _check_rows(names: Sequence[str]) -> list[tuple[str, str]]:
    """What a verdict has been through, one line for each check."""
    words = [CHECKS[name].what if name in CHECKS else name for name in names]
    return [("checked" if number == 0 else "", what) for number, what in enumerate(words)]


def _sanitizer_rows(report: KernelReport) -> list[tuple[str, str]]:
    """What compute-sanitizer said, tool by tool, or why it was not run."""
    told = report.sanitized
    if told is None:
        on_host = isinstance(report.verdict, Verified) and report.verdict.device == "host"
        return [("compute-sanitizer", "not run: it needs a GPU")] if on_host else []
    rows = [("compute-sanitizer", finding_words(finding)) for finding in told.findings]
    if not rows and told.tools:
        rows.append(("compute-sanitizer", f"{', '.join(told.tools)}: no finding"))
    if told.reason:
        rows.append(("not run" if told.tools else "compute-sanitizer", told.reason))
    return rows


def finding_words(finding: Finding) -> str:
    """One finding of compute-sanitizer in a sentence: `racecheck, line 14: ... (n=1000)`."""
    where = "" if finding.line is None else f", line {finding.line + 1}"
    return f"{finding.tool}{where}: {finding.text}" + (f" ({finding.case})" if finding.case else "")


def _timing_rows(timing: Timing | NotTimed) -> list[tuple[str, str]]:
    if isinstance(timing, NotTimed):
        return [("time", timing.reason)]
    cache = "cold" if timing.cold else "hot"
    rows = [
        ("time", f"{duration(timing.median_us)} ({duration(timing.q1_us)} to {duration(timing.q3_us)}), {cache}"),
        ("case", f"{timing.case}, {timing.samples} samples, SM clock {timing.sm_clock_mhz:.0f} MHz"),
        ("launch floor", duration(timing.gap_us)),
    ]
    if words := _roof_words(timing):
        rows.append(("roofline", words))
    return rows + [("note on the time", note) for note in timing.notes]


def _baseline_rows(report: KernelReport) -> list[tuple[str, str]]:
    """Which version the kernel is held against, and how that went."""
    baseline, comparison, timing = report.baseline, report.comparison, report.timing
    note = comparison.note if isinstance(comparison, Same) else ""
    rows = []
    if baseline is not None:
        origin = "accepted" if baseline.origin == "accepted" else "first verified version,"
        evidence, words = baseline.evidence, f"{origin} {_minute(baseline.when)} on {baseline.evidence.device}"
        if evidence.driver and evidence.device != "host":
            words += f", driver {evidence.driver}"
        if isinstance(comparison, (Faster, Slower, Same, Ambiguous)) and not note:
            words += ", timed again beside this version"
            if comparison.ratio is not None and isinstance(timing, Timing):
                words += f": about {duration(timing.median_us * comparison.ratio)} now"
        rows.append(("baseline", words))
    if note:
        rows.append(("against the baseline", f"same: {note}"))
    elif isinstance(comparison, (Faster, Slower, Same)):
        interval = f"{comparison.low:.3f} to {comparison.high:.3f}"
        rows.append(("against the baseline", f"{_comparison_words(comparison)} (ratio {interval})"))
    elif isinstance(comparison, Ambiguous):
        rows.append(("against the baseline", f"ambiguous: {comparison.reason}"))
    elif baseline is not None:
        rows.append(("against the baseline", f"not compared: {comparison.reason}"))
    return rows


def _minute(when: str) -> str:
    """`2026-11-02T12:00:31+00:00` as a person writes it: `2026-11-02 12:00 UTC`."""
    date, _, time = when.partition("T")
    return f"{date} {time[:5]} UTC" if time else date


def launch_table(spec: LaunchSpec) -> str:
    """How a kernel is launched, as a markdown table: each part with where it comes from and how sure it is.

    Below it stands what is not known, each with what to do about it. Empty when there is nothing to say.
    """
    rows = _launch_rows(spec)
    parts = [markdown_table(("launch", "value", "from"), rows)] if rows else []
    if spec.unknown:
        parts.append("\n".join(_unknown_lines(spec.unknown)))
    return "\n\n".join(parts)


def _unknown_lines(sentences: Sequence[str]) -> list[str]:
    """One item for each part that is not known: the reason, and below it the next step."""
    lines = []
    for sentence in sentences:
        reason, _, step = sentence.partition("; write ")
        if not step:
            reason, _, step = sentence.partition(": write ")
        lines.append(f"- {reason}")
        if step:
            lines.append(f"  - next: write {step}")
    return lines


def origin_words(spec: LaunchSpec, field: str, origin: Origin | None) -> str:
    """Where a part of a spec comes from and how sure it is: `launch at line 210 (certain)`."""
    if origin is None or origin is Origin.DIRECTIVE:
        return "" if origin is None else "directive"
    words = {
        Origin.LAUNCH_SITE: spec.label or "launch in the file",
        Origin.CAPTURED: "recorded run",
        Origin.INFERRED: "inferred",
        Origin.DEFAULT: "default",
    }[origin]
    names = (field, field.rpartition(".")[2], field.partition(".")[0])
    usual = Confidence.GUESS if origin is Origin.DEFAULT else Confidence.CERTAIN
    sure = next((spec.confidence[name] for name in names if name in spec.confidence), usual)
    return f"{words} ({sure.value})"


def _launch_rows(spec: LaunchSpec) -> list[tuple[str, str, str]]:
    rows = [(d.name, " | ".join(map(str, d.values)), origin_words(spec, f"dims.{d.name}", d.origin)) for d in spec.dims]
    for name, value in spec.scalars.items():
        origin = spec.origins.get(f"scalars.{name}", spec.origins.get(name))
        rows.append((name, value, origin_words(spec, f"scalars.{name}", origin)))
    rows += [
        (
            f"{b.role.value} {b.name}",
            f"[{', '.join(b.extents)}]: {b.init}",
            origin_words(spec, f"buffers.{b.name}", b.origin),
        )
        for b in spec.buffers
    ]
    for field in ("grid", "block"):
        value = getattr(spec, field)
        if value is not None:
            rows.append((field, "(" + ", ".join(value) + ")", origin_words(spec, field, spec.origins.get(field))))
    if spec.smem_bytes not in ("", "0"):
        origin = spec.origins.get("smem_bytes")
        rows.append(("shared memory", f"{spec.smem_bytes} B", origin_words(spec, "smem_bytes", origin)))
    if spec.template:
        said = ", ".join(f"{name} = {value}" for name, value in spec.template.items())
        rows.append(("template", said, origin_words(spec, "template", spec.origins.get("template"))))
    if spec.reference is not None:
        said = f"{spec.reference.via} {spec.reference.text}".strip()
        rows.append(("reference", said, origin_words(spec, "reference", spec.reference.origin)))
    for case in spec.cases[:CASES_SHOWN]:
        sizes = "".join(f", {name} = {value}" for name, value in case.dims.items())
        grid, block = (" x ".join(_trimmed(size)) for size in (case.grid, case.block))
        rows.append(("also launched", f"<<<{grid}, {block}>>>{sizes}", case.label))
    if len(spec.cases) > CASES_SHOWN:
        rows.append(("also launched", f"{len(spec.cases) - CASES_SHOWN} more", ""))
    return rows


def _trimmed(sizes: Sequence[str]) -> list[str]:
    """A grid or a block without the dimensions that are 1."""
    kept = list(sizes)
    while len(kept) > 1 and kept[-1] == "1":
        kept.pop()
    return kept


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A markdown table whose columns stand straight: Neovim and other plain readers show it as it is."""
    lines = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in (head, *rows)]
    # The last column needs no width: nothing stands behind it.
    widths = [max(3, *map(len, column)) for column in zip(*lines, strict=True)][:-1]

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join([*map(str.ljust, cells, widths), cells[-1]]) + " |"

    return "\n".join([line(lines[0]), line(["-" * width for width in widths] + ["---"]), *map(line, lines[1:])])
