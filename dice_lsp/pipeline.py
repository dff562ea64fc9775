"""The story: select, mask, fill, compile, verify, benchmark, rank. Everything that an editor shows comes through here.

`Engine.fill` and `Engine.check` are the two things this tool does. The model and the judge are other processes; this
file only says in which order they are asked, and it works the same for an editor and for the command line.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable, Sequence

import attrs
from attrs import frozen

from dice_lsp.config import Settings
from dice_lsp.diffusion.client import DiffusionClient, FillUnavailable
from dice_lsp.hint import BEING_CHECKED
from dice_lsp.records import (
    Build,
    Candidate,
    CandidateReport,
    Cheating,
    Compiled,
    CompileFailed,
    DecodeSettings,
    DecodeStats,
    Document,
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
    Slower,
    Timing,
    Unsafe,
    Unverified,
    Verified,
    Wrong,
)
from dice_lsp.source.closing import close_blocks
from dice_lsp.source.flags import device_flags
from dice_lsp.source.kernels import SourceModel, comment_start, parse
from dice_lsp.source.launches import launch_spec
from dice_lsp.source.screen import screen_fill
from dice_lsp.worker.client import WorkerClient

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


OnFillProgress = Callable[[FillProgress], None]
OnReport = Callable[[KernelReport, bool], None]


class Engine:
    """The model and the judges of one session. Both start at first use; `start` warms them."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._model = DiffusionClient(settings)
        self._worker = WorkerClient(settings)
        # The stopwatch has the GPU to itself: no denoising step runs while a kernel is timed, and the other way round.
        self._device_turn = asyncio.Lock()

    async def start(self) -> None:
        """Start both children, so that the first request finds them warm."""
        await asyncio.gather(self._model.start(), self._worker.start(), return_exceptions=True)

    async def close(self) -> None:
        """End both children and everything they started."""
        await asyncio.gather(self._model.close(), self._worker.close(), return_exceptions=True)

    # Fill

    async def fill(
        self, region: Region, path: str, *, candidates: int | None = None, on_progress: OnFillProgress | None = None
    ) -> FillReport:
        """Fill a region with candidates and judge each one. Cancelling it stops the model and the judge at once."""
        count = candidates or self.settings.candidates
        model, spec = await asyncio.to_thread(_read_for_fill, region)
        fill = _Fill(region, path, spec, count, on_progress)
        arrived: asyncio.Queue[Candidate | None] = asyncio.Queue()

        async def decode() -> DecodeStats | None:
            try:
                async with self._device_turn:
                    fill.tell("model", "denoising")
                    _, stats = await self._model.fill(
                        fill_request(region, model, spec, count, self.settings.seed),
                        self._decode_settings(),
                        on_candidate=arrived.put_nowait,
                    )
                return stats
            finally:
                arrived.put_nowait(None)

        async with _cancelled_together(asyncio.create_task(decode())) as decoding:
            baseline = await self._baseline(fill)
            while (candidate := await arrived.get()) is not None:
                candidate = attrs.evolve(candidate, text=close_blocks(region, candidate.text))
                if fill.knows(candidate):
                    continue
                fill.add(await self._judge_candidate(fill, candidate, baseline))
                fill.tell("judge", f"{len(fill.reports)} judged")
            try:
                fill.decode = await decoding
            except FillUnavailable as refusal:
                fill.reason = str(refusal)
        if not fill.reports and fill.reason is None:
            fill.reason = "the model wrote nothing for this place; select less, or a whole kernel body"
        await self._time_candidates(fill, baseline)
        return fill.report()

    async def _baseline(self, fill: "_Fill") -> Document | None:
        """The document as it is, if its kernel is complete and safe: the rival, and the reference when there is no other."""
        if not _COMMENT.sub("", fill.region.middle).strip():
            return None
        document, kernel = fill.region.document, fill.region.kernel
        assert kernel is not None
        job = self._job(document.text, fill.path, kernel, fill.spec, verify=self.settings.verify)
        judged = await self._worker.judge(job)
        right = isinstance(judged.verdict, Verified) or (
            isinstance(judged.verdict, Unverified) and fill.spec.reference is None and bool(judged.verdict.checks)
        )
        return document if isinstance(judged.build, Compiled) and right else None

    async def _judge_candidate(self, fill: "_Fill", candidate: Candidate, baseline: Document | None) -> CandidateReport:
        refused = screen_fill(fill.region, candidate.text)
        if refused is not None:
            return _report(candidate, NotCompiled(f"the fill {refused}"))
        job = self._candidate_job(fill, candidate, baseline, verify=self.settings.verify, benchmark=False)
        judged = await self._worker.judge(job)
        return CandidateReport("?", candidate, judged.build, judged.verdict, judged.timing, judged.comparison)

    async def _time_candidates(self, fill: "_Fill", baseline: Document | None) -> None:
        """Time the verified candidates once the model is silent. A candidate that fails under the stopwatch is downgraded."""
        if not self.settings.benchmark:
            return
        verified = [
            item for item in fill.reports if isinstance(item.verdict, Verified) and item.verdict.device != "host"
        ]
        for done, item in enumerate(verified):
            fill.tell("time", f"timing {done + 1} of {len(verified)}")
            job = self._candidate_job(fill, item.candidate, baseline, verify=False, benchmark=True)
            async with self._device_turn:
                judged = await self._worker.judge(job)
            verdict = item.verdict if isinstance(judged.verdict, (Verified, Unverified)) else judged.verdict
            fill.replace(item, attrs.evolve(item, verdict=verdict, timing=judged.timing, comparison=judged.comparison))

    def _candidate_job(
        self, fill: "_Fill", candidate: Candidate, baseline: Document | None, *, verify: bool, benchmark: bool
    ) -> JudgeJob:
        text, kernel = splice(fill.region, candidate.text)
        job = self._job(text, fill.path, kernel, fill.spec, verify=verify, benchmark=benchmark)
        job = attrs.evolve(job, reference_text=fill.region.document.text)
        if baseline is not None:
            job = attrs.evolve(job, baseline_text=baseline.text, baseline_kernel=fill.region.kernel)
        return job

    def _decode_settings(self) -> DecodeSettings:
        settings = self.settings
        return DecodeSettings(
            strategy=None if settings.decode_strategy == "auto" else settings.decode_strategy,
            block_size=settings.decode_block_size,
            threshold=settings.decode_threshold,
            temperature=settings.decode_temperature,
            max_new_tokens=settings.decode_max_new_tokens,
        )

    # Check

    async def check(
        self,
        document: Document,
        path: str,
        *,
        kernels: Sequence[str] | None = None,
        on_report: OnReport | None = None,
    ) -> tuple[KernelReport, ...]:
        """Check the kernels of a document, all or those named.

        `on_report(report, final)` is called twice a kernel: all are compiled first, because registers and occupancy are
        there at once, and then each is judged.
        """
        chosen, specs = await asyncio.to_thread(_read_for_check, document, kernels)

        def job(kernel: Kernel, spec: LaunchSpec, *, verify: bool, benchmark: bool) -> JudgeJob:
            return self._job(document.text, path, kernel, spec, verify=verify, benchmark=benchmark)

        if on_report is not None:
            for kernel, spec in zip(chosen, specs, strict=True):
                judged = await self._worker.judge(job(kernel, spec, verify=False, benchmark=False))
                on_report(_kernel_report(kernel, spec, _not_judged_yet(judged)), False)
        reports = []
        for kernel, spec in zip(chosen, specs, strict=True):
            settings = self.settings
            judged = await self._judge_alone(job(kernel, spec, verify=settings.verify, benchmark=settings.benchmark))
            reports.append(_kernel_report(kernel, spec, judged))
            if on_report is not None:
                on_report(reports[-1], True)
        return tuple(reports)

    async def _judge_alone(self, job: JudgeJob) -> Judged:
        """Judge with the GPU to ourselves if the job will time something."""
        turn = self._device_turn if job.benchmark and self._model.on_gpu else contextlib.nullcontext()
        async with turn:
            return await self._worker.judge(job)

    def _job(
        self, text: str, path: str, kernel: Kernel, spec: LaunchSpec, *, verify: bool, benchmark: bool = False
    ) -> JudgeJob:
        flags = device_flags(path, self.settings)
        return JudgeJob(
            text=text,
            path=path,
            kernel=kernel,
            spec=spec,
            arch=self.settings.arch,
            flags=flags.flags,
            include_dirs=flags.include_dirs,
            seed=self.settings.seed,
            verify=verify,
            benchmark=benchmark,
            compile_deadline_s=self.settings.compile_deadline_s,
            run_deadline_s=self.settings.run_deadline_s,
        )


# Reading a long text takes longer than the loop may stand still, so these two run on a thread.


def _read_for_fill(region: Region) -> tuple[SourceModel, LaunchSpec]:
    assert region.kernel is not None, "a region comes from source.selection, which refuses places outside kernels"
    model = parse(region.document.text)
    return model, launch_spec(region.document.text, region.kernel, model)


def _read_for_check(document: Document, names: Sequence[str] | None) -> tuple[list[Kernel], list[LaunchSpec]]:
    model = parse(document.text)
    chosen = [kernel for kernel in model.kernels if names is None or kernel.id in names or kernel.name in names]
    return chosen, [launch_spec(document.text, kernel, model) for kernel in chosen]


def _read(text: str, kernels: Sequence[Kernel]) -> tuple[SourceModel, list[LaunchSpec]]:
    model = parse(text)
    return model, [launch_spec(text, kernel, model) for kernel in kernels]


def fill_request(region: Region, model: SourceModel, spec: LaunchSpec, candidates: int, seed: int) -> FillRequest:
    """What the model is told about a region: the kernel around it, the file around the kernel, and the reference."""
    kernel, text = region.kernel, region.document.text
    assert kernel is not None
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
        file_prefix=text[:start],
        file_suffix=text[kernel.end :],
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


class _Fill:
    """What is known while one fill runs."""

    def __init__(
        self, region: Region, path: str, spec: LaunchSpec, total: int, on_progress: OnFillProgress | None
    ) -> None:
        self.region, self.path, self.spec, self.total = region, path, spec, total
        self.reports: list[CandidateReport] = []
        self.decode: DecodeStats | None = None
        self.reason: str | None = None
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


def _kernel_report(kernel: Kernel, spec: LaunchSpec, judged: Judged) -> KernelReport:
    return KernelReport(
        kernel.id,
        kernel.line,
        spec,
        judged.build,
        judged.verdict,
        judged.timing,
        judged.comparison,
        judged.evidence,
    )


def _label(place: int) -> str:
    """0 -> A, 25 -> Z, 26 -> AA."""
    letters = ""
    place += 1
    while place:
        place, digit = divmod(place - 1, 26)
        letters = chr(ord("A") + digit) + letters
    return letters
