"""What one run of `check` found, each kernel held against its baseline where it has one: all output formats read this."""

from pathlib import Path

import attrs
from attrs import frozen

from dice_lsp.baseline import Change, changes, launch_key, regression
from dice_lsp.records import (
    Ambiguous,
    Cheating,
    Compiled,
    CompileFailed,
    Faster,
    KernelReport,
    NotCompared,
    NotCompiled,
    NotTimed,
    Same,
    Slower,
    Unsafe,
    Unverified,
    Wrong,
)
from dice_lsp.wording import count, refusal


@frozen
class CheckedKernel:
    """One kernel. `report.baseline` is its entry in the baseline file."""

    report: KernelReport
    changes: tuple[Change, ...] = ()
    """Figures of the compiler that differ from the baseline's."""
    regression: str | None = None
    """One sentence if the kernel is worse than its baseline."""

    @property
    def fault(self) -> str | None:
        """Why the kernel fails the check, in one sentence; None when it does not."""
        build, verdict = self.report.build, self.report.verdict
        if isinstance(build, CompileFailed):
            first = build.errors[0].text if build.errors else "no message"
            return f"does not compile: {count(len(build.errors), 'error')}, first: {first}"
        if isinstance(build, NotCompiled):
            return f"not compiled: {build.reason}"
        if self.regression is not None:
            return self.regression
        return refusal(verdict) if isinstance(verdict, (Wrong, Unsafe, Cheating)) else None

    @property
    def doubt(self) -> str | None:
        """Why nothing is proved of a kernel that does not fail; None when it fails or is verified."""
        report = self.report
        if self.fault is not None or not isinstance(report.verdict, Unverified):
            return None
        if report.spec.skip:
            return "skipped by its directive"
        return f"not verified: {report.spec.unknown[0] if report.spec.unknown else report.verdict.reason}"

    @property
    def held(self) -> str | None:
        """How the kernel was held against its baseline: `time`, `figures`, or None for not at all."""
        report = self.report
        if report.baseline is None or not isinstance(report.build, Compiled):
            return None
        if not isinstance(report.comparison, NotCompared):
            return "time"
        return None if figures_problem(report) else "figures"

    @property
    def against(self) -> str:
        """The outcome of the comparison in a few words; empty without a baseline."""
        if self.report.baseline is None:
            return ""
        if self.held is None:
            return "not compared"
        told = comparison_words(self.report)
        parts = ([told] if told else []) + [f"{c.what} {c.before} -> {c.now}" for c in self.changes]
        return ", ".join(parts) if parts else "no change"


@frozen
class CheckedFile:
    """One file, its kernels in order. `new` have no entry in the baseline file, `gone` have only that."""

    path: Path
    """As the user named it."""
    kernels: tuple[CheckedKernel, ...]
    new: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """A sentence for each thing that was not compared or not saved, and for kernels that are new or gone."""


@frozen
class Checked:
    """The whole run. `notes` are sentences about all of it: what was not done and why, what was written."""

    files: tuple[CheckedFile, ...]
    notes: tuple[str, ...] = ()

    @property
    def kernels(self) -> tuple[CheckedKernel, ...]:
        return tuple(kernel for file in self.files for kernel in file.kernels)

    @property
    def exit_code(self) -> int:
        return 1 if any(kernel.fault for kernel in self.kernels) else 0


def held_against_baseline(report: KernelReport, regression_percent: float) -> CheckedKernel:
    """A report with what differs from its baseline, and whether it is worse."""
    if report.baseline is None:
        return CheckedKernel(report)
    judged = report
    if isinstance(report.comparison, NotCompared):
        # Both may have a time without having been timed together; then the figures have to do.
        judged = attrs.evolve(report, timing=NotTimed(report.comparison.reason))
    return CheckedKernel(report, changes(report.baseline, report), regression(judged, regression_percent))


def figures_problem(report: KernelReport) -> str | None:
    """Why registers, spills and occupancy cannot be held against those of the baseline; None when they can."""
    baseline, build = report.baseline, report.build
    if baseline is None or not isinstance(build, Compiled):
        return None
    before = baseline.build
    if (before.arch, before.compiler) != (build.arch, build.compiler):
        return (
            f"not compared: the baseline was compiled for {before.arch} by {before.compiler}, this for {build.arch} by "
            f"{build.compiler}; give --arch {before.arch} and that compiler, or save the baseline again"
        )
    if launch_key(report.spec) != baseline.launch_key:
        return "not compared: the baseline has another launch (sizes, buffers, grid or block); save it again if this one is meant"
    return None


def comparison_words(report: KernelReport) -> str:
    """`1.13x slower (1.10x to 1.16x)`, `same`, `ambiguous`; empty when no time was compared."""
    comparison = report.comparison
    if isinstance(comparison, Faster):
        return f"{comparison.ratio:.2f}x faster ({comparison.low:.2f}x to {comparison.high:.2f}x)"
    if isinstance(comparison, Slower):
        low, high = 1 / comparison.high, 1 / comparison.low
        return f"{1 / comparison.ratio:.2f}x slower ({low:.2f}x to {high:.2f}x)"
    if isinstance(comparison, Same):
        return "same time" + (f" ({comparison.note})" if comparison.note else "")
    return "time ambiguous" if isinstance(comparison, Ambiguous) else ""
