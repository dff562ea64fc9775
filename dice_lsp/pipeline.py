"""The story: select, mask, fill, compile, verify, benchmark, rank. Everything that an editor shows comes through here.

`Engine.fill` and `Engine.check` are the two things this tool does. The model and the judge are other processes; this
file only says in which order they are asked, and it works the same for an editor and for the command line. That they
do not use one GPU at the same time is their own affair, see `lease`.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import PurePath
from types import MappingProxyType
from typing import Protocol

import attrs
from attrs import frozen

from dice_lsp.baseline import mismatch
from dice_lsp.config import Settings
from dice_lsp.diffusion.client import DiffusionClient, FillUnavailable
from dice_lsp.flag_finder import FoundFlags, shared_finder
from dice_lsp.process import ChildDied, ChildError, Readiness
from dice_lsp.project_files import project_at
from dice_lsp.records import (
    Baseline,
    Build,
    Candidate,
    CandidateReport,
    Cheating,
    Compiled,
    CompileFailed,
    DecodeSettings,
    DecodeStats,
    Document,
    Evidence,
    Faster,
    FillReport,
    FillRequest,
    Judged,
    JudgeJob,
    Kernel,
    KernelReport,
    LaunchSpec,
    NotCompared,
    NotCompiled,
    NotTimed,
    Region,
    Same,
    Sanitized,
    Slower,
    Timing,
    Unsafe,
    Unverified,
    Verified,
    Wrong,
)
from dice_lsp.source.closing import close_blocks
from dice_lsp.source.embedded import unit
from dice_lsp.source.flags import DeviceFlags
from dice_lsp.source.kernels import SourceModel, comment_start, parse
from dice_lsp.source.launches import launch_spec
from dice_lsp.source.python_calls import calls_of
from dice_lsp.source.screen import screen_fill
from dice_lsp.source.slice import device_slice, kernel_slice_key
from dice_lsp.wording import BEING_CHECKED
from dice_lsp.worker.client import OnEvent, WorkerClient

_COMMENT = re.compile(r"//[^\r\n]*|/\*.*?\*/", re.DOTALL)


@frozen
class FillProgress:
    """How far a fill is. `report` holds the candidates so far, best first."""

    phase: str
    """`model` while it is denoised, `judge` while candidates are compiled and compared, `time` while they are timed."""
    done: int
    total: int
    message: str
    report: FillReport


@frozen
class EngineStatus:
    """How far the two children of an engine are, and what they work with."""

    model: str
    """The checkpoint's name: as loaded, before that as asked for."""
    model_device: str
    model_readiness: Readiness
    device: str
    """Where kernels run: a GPU's name, `host`, or empty while that is not known."""
    driver: str
    compiler: str
    judge_readiness: Readiness


OnFillProgress = Callable[[FillProgress], None]
OnReport = Callable[[KernelReport, bool], None]
NOT_CHECKED = "not checked"
NO_BASELINES: Mapping[str, Baseline] = MappingProxyType({})


MOST_CANDIDATES = 64
"""Of a fill that has a time budget."""

CHILD_SETTINGS = ("model", "model_device", "model_precision", "prompt_template", "backend", "device", "nvcc", "cxx")
"""Settings that the children are started with; all others are taken anew for each fill and check."""


class Engine:
    """The model and the judges of one session. Both start at first use; `start` warms them."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._model = DiffusionClient(settings)
        self._worker = WorkerClient(settings)
        self._model.on_readiness = self._worker.on_readiness = self._tell_status
        self.on_status: Callable[[], None] | None = None
        """Called on the loop whenever `status` changes."""

    def _tell_status(self) -> None:
        if self.on_status is not None:
            self.on_status()

    @property
    def status(self) -> EngineStatus:
        """What the children are doing, as far as it is known without asking them."""
        model, machine = self._model.info(), self._worker.info() or {}
        nvrtc, nvcc = machine.get("nvrtc"), machine.get("nvcc")
        return EngineStatus(
            model=self.settings.model if model is None else model.checkpoint,
            model_device="" if model is None else model.device,
            model_readiness=self._model.readiness,
            device=str(machine.get("device") or ""),
            driver=str(machine.get("driver") or ""),
            compiler=f"nvrtc {nvrtc}" if nvrtc else f"nvcc {str(nvcc).split()[0]}" if nvcc else "",
            judge_readiness=self._worker.readiness,
        )

    async def start(self) -> None:
        """Start both children, so that the first request finds them warm."""
        await asyncio.gather(self._model.start(), self._worker.start(), return_exceptions=True)

    async def close(self) -> None:
        """End both children and everything they started."""
        await asyncio.gather(self._model.close(), self._worker.close(), return_exceptions=True)

    # Fill

    async def fill(
        self,
        region: Region,
        path: str,
        *,
        candidates: int | None = None,
        baseline: Baseline | None = None,
        settings: Settings | None = None,
        on_progress: OnFillProgress | None = None,
    ) -> FillReport:
        """Fill a region with candidates and judge each one. Cancelling it stops the model and the judge at once.

        Candidates are timed beside the kernel that stands there, and where none does that can be a rival, such as in a
        body that is still blank, beside the kept `baseline`. `settings` are those of the document's folder, as for `check`.
        """
        self._worker.interrupt()
        settings = settings or self.settings
        budget_s = None if candidates else settings.fill_budget_s
        count = candidates or (settings.candidates if budget_s is None else MOST_CANDIDATES)
        model, spec = await asyncio.to_thread(_read_for_fill, region, path, settings)
        flags = await asyncio.to_thread(shared_finder().find, path, settings)
        fill = _Fill(region, path, spec, flags, count, settings, on_progress)
        arrived: asyncio.Queue[Candidate | None] = asyncio.Queue()

        async def decode() -> DecodeStats | None:
            try:
                fill.tell("model", "denoising")
                _, stats = await self._model.fill(
                    attrs.evolve(fill_request(region, model, spec, count, settings.seed), budget_s=budget_s),
                    _decode_settings(settings),
                    on_candidate=arrived.put_nowait,
                )
                return stats
            finally:
                arrived.put_nowait(None)

        async with _cancelled_together(asyncio.create_task(decode())) as decoding:
            accepted = await self._accepted(fill)
            while (candidate := await arrived.get()) is not None:
                candidate = attrs.evolve(candidate, text=close_blocks(region, candidate.text))
                if fill.knows(candidate):
                    continue
                fill.add(await self._judge_candidate(fill, candidate, accepted))
                fill.tell("judge", f"{len(fill.reports)} judged")
            try:
                fill.decode = await decoding
            except FillUnavailable as refusal:
                fill.reason = str(refusal)
        if not fill.reports and fill.reason is None:
            fill.reason = "the model wrote nothing for this place; select less, or a whole kernel body"
        await self._time_candidates(fill, accepted, baseline)
        return fill.report()

    async def _accepted(self, fill: "_Fill") -> Document | None:
        """The document as it is, if its kernel is complete and safe: the rival, and the reference when there is no other."""
        if not _COMMENT.sub("", fill.region.middle).strip():
            return None
        kernel = fill.region.kernel
        assert kernel is not None
        document = unit(fill.region.document, kernel.start)
        job = self._job(document, fill.path, kernel, fill.spec, fill.flags, fill.settings, verify=fill.settings.verify)
        judged = await self._worker.judge(job)
        right = isinstance(judged.verdict, Verified) or (
            isinstance(judged.verdict, Unverified) and fill.spec.reference is None and bool(judged.verdict.checks)
        )
        return document if isinstance(judged.build, Compiled) and right else None

    async def _judge_candidate(self, fill: "_Fill", candidate: Candidate, accepted: Document | None) -> CandidateReport:
        refused = screen_fill(fill.region, candidate.text)
        if refused is not None:
            return _report(candidate, NotCompiled(f"the fill {refused}"))
        job = self._candidate_job(fill, candidate, accepted, verify=fill.settings.verify, benchmark=False)
        judged = await self._worker.judge(job)
        fill.evidence, fill.launched = judged.evidence, judged.spec or fill.spec
        return CandidateReport("?", candidate, judged.build, judged.verdict, judged.timing, judged.comparison)

    async def _time_candidates(self, fill: "_Fill", accepted: Document | None, baseline: Baseline | None) -> None:
        """Time the verified candidates once the model is silent. A candidate that fails under the stopwatch is downgraded."""
        if not fill.settings.benchmark:
            return
        verified = [
            item for item in fill.reports if isinstance(item.verdict, Verified) and item.verdict.device != "host"
        ]
        kept = baseline if accepted is None else None
        problem = None
        if kept is not None and fill.evidence is not None:
            problem = mismatch(kept, fill.evidence.device, fill.evidence.driver, fill.launched)
        for done, item in enumerate(verified):
            fill.tell("time", f"timing {done + 1} of {len(verified)}")
            job = self._candidate_job(fill, item.candidate, accepted, verify=False, benchmark=True)
            if kept is not None and problem is None:
                job = attrs.evolve(job, baseline_build=kept.build, baseline_kernel=kept.kernel)
            judged = await self._worker.judge(job)
            if problem is not None and isinstance(judged.comparison, NotCompared):
                judged = attrs.evolve(judged, comparison=problem)
            verdict = item.verdict if isinstance(judged.verdict, (Verified, Unverified)) else judged.verdict
            fill.replace(item, attrs.evolve(item, verdict=verdict, timing=judged.timing, comparison=judged.comparison))

    def _candidate_job(
        self, fill: "_Fill", candidate: Candidate, accepted: Document | None, *, verify: bool, benchmark: bool
    ) -> JudgeJob:
        text, kernel = splice(fill.region, candidate.text)
        before = unit(fill.region.document, kernel.start)
        job = self._job(
            attrs.evolve(before, text=text),
            fill.path,
            kernel,
            fill.spec,
            fill.flags,
            fill.settings,
            verify=verify,
            benchmark=benchmark,
        )
        job = attrs.evolve(job, reference_text=before.text)
        if accepted is not None:
            job = attrs.evolve(job, baseline_text=accepted.text, baseline_kernel=fill.region.kernel)
        return job

    # Check

    async def check(
        self,
        document: Document,
        path: str,
        *,
        kernels: Sequence[str] | None = None,
        baselines: Mapping[str, Baseline] = NO_BASELINES,
        budget_s: float | None = None,
        settings: Settings | None = None,
        on_report: OnReport | None = None,
    ) -> tuple[KernelReport, ...]:
        """Check the kernels of a document, all or those named, and hold them against their baselines.

        `on_report(report, final)` is called twice a kernel: all are compiled first, because registers and occupancy are
        there at once, and then each is judged. Once the work on them has taken `budget_s`, the rest is not judged and
        says so. `settings` are those of the document's folder, where they differ from the engine's in what a job says.
        """
        settings = settings or self.settings
        chosen, specs = await asyncio.to_thread(_read_for_check, document, path, settings, kernels)
        flags = await asyncio.to_thread(shared_finder().find, path, settings)
        budget = _Budget(budget_s)

        def job(kernel: Kernel, spec: LaunchSpec, *, verify: bool = False, benchmark: bool = False) -> JudgeJob:
            return self._job(document, path, kernel, spec, flags, settings, verify=verify, benchmark=benchmark)

        early: dict[str, Judged] = {}
        for kernel, spec in zip(chosen, specs, strict=True):
            if on_report is None and kernel.id not in baselines:
                continue
            judged = await budget.within(self._worker.judge, job(kernel, spec))
            if judged is None:
                break
            early[kernel.id] = judged
            if on_report is not None:
                early_report = _kernel_report(kernel, spec, _not_judged_yet(judged), baselines.get(kernel.id), flags)
                on_report(early_report, False)
        reports = []
        for kernel, spec in zip(chosen, specs, strict=True):
            known, baseline = early.get(kernel.id), baselines.get(kernel.id)
            order = job(kernel, spec, verify=settings.verify, benchmark=settings.benchmark)
            problem = None
            if baseline is not None and known is not None:
                # What was recorded of the kernel may say how it is launched.
                problem = mismatch(baseline, known.evidence.device, known.evidence.driver, known.spec or spec)
                if problem is None:
                    order = attrs.evolve(order, baseline_build=baseline.build, baseline_kernel=baseline.kernel)
            judged = await budget.within(self._worker.judge, order)
            if judged is None:
                judged = _out_of_budget(unit(document, kernel.start).text, kernel, known, budget.seconds or 0.0)
            elif problem is not None and isinstance(judged.comparison, NotCompared):
                judged = attrs.evolve(judged, comparison=problem)
            reports.append(_kernel_report(kernel, spec, judged, baseline, flags))
            if on_report is not None:
                on_report(reports[-1], True)
        return tuple(reports)

    async def specs(
        self, document: Document, path: str, kernels: Sequence[str] | None = None
    ) -> tuple[tuple[Kernel, LaunchSpec], ...]:
        """The kernels of a document, all or those named, with their launches as `check` takes them; nothing is compiled."""
        chosen, specs = await asyncio.to_thread(_read_for_check, document, path, self.settings, kernels)
        return tuple(zip(chosen, specs, strict=True))

    async def code(
        self, document: Document, path: str, kernel_id: str, *, settings: Settings | None = None
    ) -> Compiled | str:
        """A kernel's machine code, to be kept as a baseline; or one sentence on why there is none."""
        chosen, specs = await asyncio.to_thread(_read_for_check, document, path, settings or self.settings, [kernel_id])
        if not chosen:
            return f"there is no kernel {kernel_id} in this file"
        settings = settings or self.settings
        flags = await asyncio.to_thread(shared_finder().find, path, settings)
        job = self._job(document, path, chosen[0], specs[0], flags, settings, verify=False)
        build = (await self._worker.judge(attrs.evolve(job, keep_code=True))).build
        if isinstance(build, Compiled):
            return build if build.cubin else "its machine code was not kept; check it again and accept it then"
        return f"it was not compiled: {build.reason}" if isinstance(build, NotCompiled) else "it does not compile"

    async def sanitize(
        self, document: Document, path: str, kernel_id: str, *, settings: Settings | None = None
    ) -> Sanitized | None:
        """What compute-sanitizer says of a kernel. None when there was or came something else to do: ask again later.

        It may take many seconds, and ends at once when a fill or a check begins.
        """
        chosen, specs = await asyncio.to_thread(_read_for_check, document, path, settings or self.settings, [kernel_id])
        if not chosen:
            return Sanitized((), (), f"there is no kernel {kernel_id} in this file")
        settings = settings or self.settings
        flags = await asyncio.to_thread(shared_finder().find, path, settings)
        job = self._job(document, path, chosen[0], specs[0], flags, settings, verify=False)
        return await self._worker.sanitize(job)

    async def why_not_sanitized(self) -> str | None:
        """Why compute-sanitizer cannot be run on this machine, in one sentence; None when it can."""
        try:
            info = await self._worker.hello()
        except (ChildDied, ChildError, TimeoutError) as error:
            return f"{error}; run `dice-lsp doctor`"
        return str(info["sanitizer_missing"]) or None

    def _job(
        self,
        document: Document,
        path: str,
        kernel: Kernel,
        spec: LaunchSpec,
        found: FoundFlags,
        settings: Settings,
        *,
        verify: bool,
        benchmark: bool = False,
    ) -> JudgeJob:
        text = unit(document, kernel.start).text
        return judge_job(text, path, kernel, spec, found.flags, settings, verify=verify, benchmark=benchmark)


def judge_job(
    text: str,
    path: str,
    kernel: Kernel,
    spec: LaunchSpec,
    flags: DeviceFlags,
    settings: Settings,
    *,
    verify: bool,
    benchmark: bool,
) -> JudgeJob:
    """What the worker is asked about a kernel, compiled with these flags and judged as the settings say."""
    return JudgeJob(
        text=text,
        path=path,
        kernel=kernel,
        spec=spec,
        arch=settings.arch,
        flags=flags.flags,
        include_dirs=flags.include_dirs,
        pre_includes=flags.pre_includes,
        includer=flags.includer,
        architectures=flags.architectures,
        seed=settings.seed,
        verify=verify,
        benchmark=benchmark,
        compile_deadline_s=settings.compile_deadline_s,
        run_deadline_s=settings.run_deadline_s,
    )


def _decode_settings(settings: Settings) -> DecodeSettings:
    return DecodeSettings(
        strategy=None if settings.decode_strategy == "auto" else settings.decode_strategy,
        block_size=settings.decode_block_size,
        threshold=settings.decode_threshold,
        temperature=settings.decode_temperature,
        max_new_tokens=settings.decode_max_new_tokens,
    )


# Reading a long text takes longer than the loop may stand still, so these two run on a thread.


def _read_for_fill(region: Region, path: str, settings: Settings) -> tuple[SourceModel, LaunchSpec]:
    assert region.kernel is not None, "a region comes from source.selection, which refuses places outside kernels"
    model = parse(region.document.text)
    text, project = region.document.text, project_at(path, settings)
    return model, launch_spec(text, region.kernel, model, calls=calls_of(region.document), project=project, path=path)


def _read_for_check(
    document: Document, path: str, settings: Settings, names: Sequence[str] | None
) -> tuple[list[Kernel], list[LaunchSpec]]:
    model = parse(document.text)
    chosen = [kernel for kernel in model.kernels if names is None or kernel.id in names or kernel.name in names]
    calls, project = calls_of(document), project_at(path, settings)
    return chosen, [
        launch_spec(document.text, kernel, model, calls=calls, project=project, path=path) for kernel in chosen
    ]


def fill_request(region: Region, model: SourceModel, spec: LaunchSpec, candidates: int, seed: int) -> FillRequest:
    """What the model is told about a region: the kernel around it, the file around the kernel, and the reference."""
    kernel = region.kernel
    assert kernel is not None
    text = unit(region.document, kernel.start).text
    start = comment_start(text, kernel)
    reference, reference_text, expression = spec.reference, None, None
    if reference is not None and reference.via == "function":
        function = next((item for item in model.functions if item.name == reference.text), None)
        reference_text = None if function is None else text[function.start : function.end]
    elif reference is not None and reference.via == "torch":
        expression = reference.text
    return FillRequest(
        kernel_prefix=text[start : region.start],
        kernel_suffix=text[region.end : kernel.end],
        # A view of a Python file has blank lines where the program is; the model is spared them.
        file_prefix=text[:start] if region.document.file_text is None else text[:start].strip() + "\n",
        file_suffix=text[kernel.end :] if region.document.file_text is None else "\n" + text[kernel.end :].strip(),
        reference_text=reference_text,
        torch_expression=expression,
        middle=region.middle,
        indent=region.indent,
        candidates=candidates,
        seed=seed,
    )


def splice(region: Region, middle: str) -> tuple[str, Kernel]:
    """The document with a candidate in the region's place, and the kernel as it stands there."""
    assert region.kernel is not None
    grown = len(middle) - (region.end - region.start)
    kernel = region.kernel
    return region.prefix + middle + region.suffix, attrs.evolve(
        kernel, end=kernel.end + grown, body_end=kernel.body_end + grown
    )


def rank(report: CandidateReport) -> tuple[int, float, float]:
    """Sort key, best first: verified before unverified before refused; the fastest, then the likeliest first."""
    worth = {Verified: 0, Unverified: 1, Wrong: 3, Unsafe: 3, Cheating: 3}[type(report.verdict)]
    if not isinstance(report.build, Compiled):
        worth = 4 if isinstance(report.build, CompileFailed) else 5
    if isinstance(report.comparison, (Faster, Slower, Same)):
        speed = -report.comparison.ratio
    else:
        speed = report.timing.median_us if isinstance(report.timing, Timing) else 0.0
    return worth, speed, -report.candidate.logprob


def is_left_out(report: KernelReport) -> bool:
    """Whether a check did not come to this kernel, because its budget was used up."""
    return isinstance(report.verdict, Unverified) and report.verdict.reason.startswith(NOT_CHECKED)


def may_be_sanitized(report: KernelReport) -> bool:
    """Whether compute-sanitizer should look at a kernel: what was not verified on a GPU has nothing to lose."""
    verified = isinstance(report.build, Compiled) and isinstance(report.verdict, Verified)
    return verified and report.evidence.device != "host"


def with_sanitized(report: KernelReport, sanitized: Sanitized) -> KernelReport:
    """The report with what compute-sanitizer said. A finding makes the verdict `Unsafe`, and nothing makes it better.

    A verified kernel that every tool has let pass has had one check more.
    """
    verdict = report.verdict
    complete = bool(sanitized.tools) and not sanitized.findings and not sanitized.reason
    if complete and isinstance(verdict, Verified) and "sanitizer" not in verdict.checks:
        verdict = attrs.evolve(verdict, checks=(*verdict.checks, "sanitizer"))
    if sanitized.findings and isinstance(verdict, (Verified, Unverified)):
        first = sanitized.findings[0]
        where = first.text if first.line is None else f"line {first.line + 1}: {first.text}"
        verdict = Unsafe(first.hazard, where, first.case)
    return attrs.evolve(report, verdict=verdict, sanitized=sanitized)


class _Fill:
    """What is known while one fill runs."""

    def __init__(
        self,
        region: Region,
        path: str,
        spec: LaunchSpec,
        flags: FoundFlags,
        total: int,
        settings: Settings,
        on_progress: OnFillProgress | None,
    ) -> None:
        self.region, self.path, self.spec, self.total, self.settings = region, path, spec, total, settings
        self.flags = flags
        self.reports: list[CandidateReport] = []
        self.decode: DecodeStats | None = None
        self.reason: str | None = None
        self.launched = spec
        """How candidates are launched: what was recorded of the kernel may say that."""
        self.evidence: Evidence | None = None
        """Of a candidate: where they run."""
        self._on_progress = on_progress
        self._seen: set[str] = set()

    def knows(self, candidate: Candidate) -> bool:
        """Whether the same text, white space aside, was judged already."""
        words = " ".join(candidate.text.split())
        known = words in self._seen
        self._seen.add(words)
        return known

    def add(self, report: CandidateReport) -> None:
        self.reports.append(report)

    def replace(self, old: CandidateReport, new: CandidateReport) -> None:
        self.reports[next(i for i, item in enumerate(self.reports) if item is old)] = new

    def report(self) -> FillReport:
        ordered = sorted(self.reports, key=rank)
        labelled = tuple(attrs.evolve(item, label=_label(place)) for place, item in enumerate(ordered))
        return FillReport(self.decode, labelled, self.reason)

    def tell(self, phase: str, message: str) -> None:
        if self._on_progress is not None:
            self._on_progress(FillProgress(phase, len(self.reports), self.total, message, self.report()))


class _Judge(Protocol):
    async def __call__(self, job: JudgeJob, on_event: OnEvent | None = None) -> Judged: ...


class _Budget:
    """The seconds that a check may work. Waiting for others' work does not count: the clock runs from a job's first event."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self._left = float("inf") if seconds is None else seconds

    async def within(self, judge: _Judge, job: JudgeJob) -> Judged | None:
        """The answer, or None once the budget is used up: before the job, or during it, which ends it."""
        if self._left <= 0:
            return None
        loop = asyncio.get_running_loop()
        started: float | None = None

        def on_event(event: str, data: object) -> None:
            nonlocal started
            if started is None:
                started = loop.time()
                if self._left != float("inf"):
                    clock.reschedule(started + self._left)

        try:
            async with asyncio.timeout(None) as clock:
                return await judge(job, on_event)
        except TimeoutError:
            if not clock.expired():
                raise
            return None
        finally:
            if started is not None:
                self._left -= loop.time() - started


@contextlib.asynccontextmanager
async def _cancelled_together(
    task: "asyncio.Task[DecodeStats | None]",
) -> AsyncIterator["asyncio.Task[DecodeStats | None]"]:
    """A task that does not outlive the block, however the block ends."""
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _report(candidate: Candidate, build: Build) -> CandidateReport:
    reason = build.reason if isinstance(build, NotCompiled) else "it does not compile"
    return CandidateReport("?", candidate, build, Unverified(reason), NotTimed(reason), NotCompared(reason))


def _not_judged_yet(judged: Judged) -> Judged:
    """What a compile alone says: the figures, and that the rest is on its way."""
    reason = BEING_CHECKED if isinstance(judged.build, Compiled) else "it does not compile"
    return attrs.evolve(judged, verdict=Unverified(reason), timing=NotTimed(reason), comparison=NotCompared(reason))


def _out_of_budget(text: str, kernel: Kernel, known: Judged | None, budget_s: float) -> Judged:
    """What is said of a kernel that a check did not come to."""
    reason = f"{NOT_CHECKED}: the budget of {budget_s:g} s is used up; check this kernel by itself"
    if known is None:
        key = kernel_slice_key(device_slice(text).text, kernel)
        evidence = Evidence("", key, "", "", "", datetime.now(UTC).isoformat(timespec="seconds"))
        return Judged(NotCompiled(reason), Unverified(reason), NotTimed(reason), NotCompared(reason), evidence)
    if not isinstance(known.build, Compiled):
        return _not_judged_yet(known)
    return attrs.evolve(known, verdict=Unverified(reason), timing=NotTimed(reason), comparison=NotCompared(reason))


def _kernel_report(
    kernel: Kernel, spec: LaunchSpec, judged: Judged, baseline: Baseline | None, flags: FoundFlags
) -> KernelReport:
    return KernelReport(
        kernel.id,
        kernel.line,
        judged.spec or spec,
        judged.build,
        judged.verdict,
        judged.timing,
        judged.comparison,
        judged.evidence,
        baseline,
        flags_origin=flags.flags.origin,
        notes=(*flags.notes, *flags.flags.complaints, *judged.notes, *_needs_its_includer(judged, flags)),
    )


def _needs_its_includer(judged: Judged, flags: FoundFlags) -> Sequence[str]:
    """A sentence for a header that does not compile alone: what it needs may stand in the file that includes it."""
    if not isinstance(judged.build, CompileFailed) or not flags.flags.includer:
        return ()
    name = PurePath(flags.flags.includer).name
    return (
        f"this header does not compile on its own: {name} includes it, and what stands there before may be missing",
    )


def _label(place: int) -> str:
    """0 -> A, 25 -> Z, 26 -> AA."""
    letters = ""
    place += 1
    while place:
        place, digit = divmod(place - 1, 26)
        letters = chr(ord("A") + digit) + letters
    return letters
