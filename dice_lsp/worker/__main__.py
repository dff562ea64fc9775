"""The worker child: it compiles, verifies and times, one job after another, and may be killed at any moment.

    hello    {"settings": {...}}                    -> what this machine can do, see `Worker.hello`
    warm     {"settings": {...}}                    -> {}, the compiler is loaded
    compile  {"settings": {...}, "job": CompileJob} -> {kernel: Build}
    judge    {"settings": {...}, "job": JudgeJob}   -> Judged; events "here", "build", "progress", "verdict", "timing"
    sanitize {"settings": {...}, "job": JudgeJob}   -> Sanitized; event "progress", the tool that runs

`here` (arch, device, driver) is what a result is measured on. A worker that only compiles is told it with each job, as
`"here"` beside `"job"`, so that it opens no device and its answers have the evidence of the worker that has one.

The settings are those of `config.Settings` that concern it; back ends and compilers are opened when they are first
needed, and again when their settings change.
"""

import collections
import contextlib
import functools
import hashlib
import importlib.util
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from attrs import asdict, evolve, frozen

from dice_lsp import process
from dice_lsp.capture.store import stores_of
from dice_lsp.lease import InUse
from dice_lsp.records import (
    Build,
    Cheating,
    Comparison,
    Compiled,
    CompileFailed,
    Evidence,
    Judged,
    JudgeJob,
    Kernel,
    LaunchSpec,
    NotCompared,
    NotCompiled,
    NotTimed,
    Sanitized,
    Timing,
    TimingResult,
    Unsafe,
    Unverified,
    Verdict,
    Verified,
    Wrong,
    from_wire,
    to_wire,
)
from dice_lsp.source import architectures
from dice_lsp.source.expressions import ExpressionError, evaluate
from dice_lsp.source.kernels import parse
from dice_lsp.source.slice import device_slice, kernel_slice_key
from dice_lsp.worker import confine
from dice_lsp.worker.benchmark import benchmark, downgraded
from dice_lsp.worker.checks import in_order
from dice_lsp.worker.code_notes import own_text
from dice_lsp.worker.compile import Compiler
from dice_lsp.worker.device import GpuBackend, open_backend
from dice_lsp.worker.guess import own_guess, refuted, softened
from dice_lsp.worker.host import HostBackend
from dice_lsp.worker.instantiations import Instantiation, merged, others
from dice_lsp.worker.launch import Backend, Source
from dice_lsp.worker.layouts import laid_out
from dice_lsp.worker.program import CompileJob, Program, build_keys
from dice_lsp.worker.recorded import Recordings, own_label, with_recordings
from dice_lsp.worker.sanitizer import Tool, find_tool, sanitize
from dice_lsp.worker.verify import verify

log = logging.getLogger(__name__)

BACKEND_VARIABLE = "DICE_LSP_BACKEND"
"""Environment variable that overrides the setting `backend`; `host` keeps a run off the GPU."""
MAX_KILLED_RUNS = 2
MAX_TRIED = 256
"""Inferred launches whose trial on the host is remembered."""
LEASE_WAIT_S = 60.0
"""How long a job waits for a GPU that others use; a step of a model is over in a moment, a session's timing in seconds."""
MEMORY_LIMIT_BYTES = 8 << 30
MEMORY_EXIT = 71
"""Exit code after a compile took more than `MEMORY_LIMIT_BYTES`."""


@frozen
class Here:
    """Where kernels run: what `auto` compiles for, and what the evidence says."""

    arch: str
    device: str
    driver: str


class Worker:
    """What the child holds between calls."""

    def __init__(self) -> None:
        self._settings: dict[str, Any] = {}
        self._compiler: Compiler | None = None
        self._host: HostBackend | None = None
        self._gpu: GpuBackend | str | None = None
        self._killed: collections.Counter[str] = collections.Counter()
        self._tried: dict[str, str | None] = {}
        """Spec, alone and with a text -> what the host said of a launch that was inferred."""

    def handlers(self) -> Mapping[str, process.Handler]:
        return {
            "hello": self.hello,
            "warm": self.warm,
            "compile": self.compile,
            "judge": self.judge,
            "sanitize": self.sanitize,
        }

    def close(self) -> None:
        for part in (self._compiler, self._host, self._gpu):
            if part is not None and not isinstance(part, str):
                part.close()

    # Calls

    def hello(self, params: Any, job: process.Job) -> dict[str, Any]:
        """What is here: `nvrtc`, `nvcc` (versions or None), `headers`, `host`, `devices`, `no_device`, `backends`, `backend`.

        `archs` are the compute capabilities that are compiled for, `toolkit` is the compiler's name as in the evidence.

        `sanitizer` is where compute-sanitizer lies and its version, or None; `sanitizer_missing` says why it cannot be run.
        """
        self._configure(params)
        compiler = self.compiler
        host = {**self.host.describe(), "isolation": self._host_isolation()}
        devices, driver = _devices()
        backend = self.backend()
        tool = self.sanitizer
        usable = [name for name, package in (("pycuda", "pycuda"), ("cuda-core", "cuda.core")) if _importable(package)]
        return {
            "pid": os.getpid(),
            "python": sys.version.split()[0],
            "nvrtc": compiler.nvrtc_version,
            "nvrtc_missing": compiler.nvrtc_missing,
            "headers": bool(compiler.include_dirs),
            "archs": sorted(compiler.archs),
            "toolkit": compiler.toolkit,
            "nvcc": None if compiler.nvcc_version is None else f"{compiler.nvcc_version} ({compiler.nvcc_path})",
            "host": host,
            "devices": devices,
            "driver": driver,
            "no_device": self._gpu if isinstance(self._gpu, str) else "",
            "backends": usable,
            "backend": backend.kind,
            "device": backend.name,
            "sanitizer": None if isinstance(tool, str) else f"{tool.version} ({tool.path})".strip(),
            "sanitizer_missing": self._no_sanitizer() or "",
            "isolation": backend.isolation if isinstance(backend, GpuBackend) else "",
            "here": asdict(self._here()),
        }

    def warm(self, params: Any, job: process.Job) -> dict[str, Any]:
        """Load the compiler, and compile a line: the first compile of a process takes the longest."""
        self._configure(params)
        text = "__global__ void warm() { }"
        self.compiler.compile(CompileJob(text, "warm.cu", parse(text).kernels), job.cancelled)
        return {}

    def compile(self, params: Any, job: process.Job) -> dict[str, Any]:
        self._configure(params)
        wanted = from_wire(params["job"], CompileJob)
        if wanted.arch == "auto":
            wanted = evolve(wanted, arch=self._told(params).arch)
        builds = self.compiler.compile(wanted, job.cancelled)
        return {name: to_wire(build, Build) for name, build in builds.items()}

    def judge(self, params: Any, job: process.Job) -> Any:
        self._configure(params)
        here = self._told(params)
        job.emit("here", asdict(here))
        wanted = from_wire(params["job"], JudgeJob)
        choice = self._architecture(wanted, here.arch)
        found = self._recorded(wanted)
        judged = self._judge(evolve(wanted, spec=found.spec), evolve(here, arch=choice.arch), job, found.notes)
        if found.spec != wanted.spec and judged.spec is None:
            judged = evolve(judged, spec=found.spec)
        return to_wire(evolve(judged, notes=(*judged.notes, choice.note)) if choice.note else judged)

    def sanitize(self, params: Any, job: process.Job) -> Any:
        """The kernel under compute-sanitizer, see `worker.sanitizer`; None when others keep the GPU for long."""
        self._configure(params)
        try:
            return to_wire(self._sanitize(from_wire(params["job"], JudgeJob), job))
        except InUse as refusal:
            log.info("compute-sanitizer has to wait: %s", refusal)
            return None

    # Judging

    def _recorded(self, wanted: JudgeJob) -> Recordings:
        """The job's launch spec with what was recorded of the kernel."""
        named = wanted.spec.reference is not None and wanted.spec.reference.via == "captured"
        if not named and not stores_of(wanted.path):
            return Recordings(wanted.spec)
        return with_recordings(wanted.spec, wanted.kernel, wanted.path, _slice_key(wanted))

    def _sanitize(self, wanted: JudgeJob, job: process.Job) -> Sanitized:
        wanted = evolve(wanted, spec=self._recorded(wanted).spec)
        backend, tool = self.backend(), self.sanitizer
        if (why_not := self._no_sanitizer()) is not None:
            return Sanitized((), (), why_not)
        assert isinstance(backend, GpuBackend) and isinstance(tool, Tool)
        with_lines = evolve(wanted, flags=(*wanted.flags, "-lineinfo"))
        order = compile_job(with_lines, wanted.text, wanted.kernel, self._architecture(wanted, backend.arch).arch)
        build = self._build(order, job)
        if not isinstance(build, Compiled):
            return Sanitized((), (), "it does not compile with line information")
        program = self.compiler.program(order)
        wanted = evolve(wanted, kernel=self._laid_out(order, wanted.kernel, program))
        source = _source(with_lines, wanted.kernel, program, build)
        lease, purpose = backend.lease, f"compute-sanitizer on {wanted.kernel.id}"

        def next_tool(name: str) -> None:
            job.check()
            job.emit("progress", name)
            if lease is not None:
                lease.give_way(purpose, wait_s=LEASE_WAIT_S, before=lambda: None, check=job.check)

        with contextlib.nullcontext() if lease is None else lease.hold(purpose, wait_s=LEASE_WAIT_S, check=job.check):
            return sanitize(
                wanted, source, tool, backend.device_index,
                lambda file, line: self.compiler.document_line(order, program, build, file, line),
                cancelled=job.cancelled, on_tool=next_tool,
            )  # fmt: skip

    def _architecture(self, wanted: JudgeJob, device: str) -> architectures.Choice:
        """What to compile for: what the job says, else what fits the project's build, the GPU and the compiler."""
        if wanted.arch != "auto" or not wanted.architectures:
            return architectures.Choice(device)
        return architectures.choose(wanted.architectures, device, self.compiler.archs, self.compiler.toolkit)

    def _no_sanitizer(self) -> str | None:
        """Why compute-sanitizer cannot be run, in one sentence."""
        if not isinstance(self.backend(), GpuBackend):
            return "compute-sanitizer needs a GPU, and kernels run on the host here"
        return self.sanitizer if isinstance(self.sanitizer, str) else None

    def _laid_out(self, order: CompileJob, kernel: Kernel, program: Program) -> Kernel:
        """The kernel with the layouts of the structs that it takes."""
        template = order.templates[build_keys((kernel,))[0]]
        return laid_out(self.compiler, order, kernel, template, program.header_texts)

    def _judge(self, wanted: JudgeJob, here: Here, job: process.Job, notes: Sequence[str] = ()) -> Judged:
        order = compile_job(wanted, wanted.text, wanted.kernel, here.arch)
        build = self._build(order, job)
        answered = build if wanted.keep_code else _light(build)
        job.emit("build", to_wire(_light(build), Build))
        program = self.compiler.program(order)
        evidence = self._evidence(wanted, program, here)
        if not isinstance(build, Compiled):
            reason = "it does not compile" if isinstance(build, CompileFailed) else build.reason
            return Judged(build, Unverified(reason), NotTimed(reason), NotCompared(reason), evidence)
        key = evidence.slice_key
        if self._killed[key] >= MAX_KILLED_RUNS:
            reason = f"{self._killed[key]} runs of this text had to be killed, so it is not run again: change it first"
            return Judged(answered, Unverified(reason), NotTimed(reason), NotCompared(reason), evidence)
        if wanted.verify or wanted.benchmark:
            wanted = evolve(wanted, kernel=self._laid_out(order, wanted.kernel, program))
        source = _source(wanted, wanted.kernel, program, build)
        doubted = False
        if (doubt := self._refuted(wanted, source, key, job)) is not None:
            alone = self._recorded_alone(wanted, doubt)
            if not alone.spec.launchable:
                return Judged(answered, Unverified(doubt), NotTimed(doubt), NotCompared(doubt), evidence)
            # What was recorded is what the program does, whatever became of a guess beside it.
            wanted, notes, doubted = evolve(wanted, spec=alone.spec), (*notes, doubt), True
        baseline = self._baseline(wanted, here, job) if wanted.verify or wanted.benchmark else None
        try:
            with self._card(wanted, job):
                verdict, timing, comparison = self._run(wanted, source, baseline, key, job, here, notes)
        except InUse as refusal:
            reason = str(refusal)
            verdict, timing, comparison = Unverified(reason), NotTimed(reason), NotCompared(reason)
        judged = Judged(answered, verdict, timing, comparison, evolve(evidence, isolation=self._isolation(wanted)))
        return evolve(judged, spec=wanted.spec) if doubted else judged

    def _recorded_alone(self, wanted: JudgeJob, doubt: str) -> Recordings:
        """The spec with nothing but recorded launches, in the place of one that is not used."""
        cases = tuple(case for case in wanted.spec.cases if case.captured is None)
        if len(cases) == len(wanted.spec.cases) and wanted.spec.captured is None:
            return Recordings(evolve(wanted.spec, unknown=(doubt,)))
        unknown = evolve(wanted.spec, cases=cases, captured=None, unknown=(doubt,))
        return self._recorded(evolve(wanted, spec=unknown))

    def _refuted(self, wanted: JudgeJob, source: Source, key: str, job: process.Job) -> str | None:
        """Why the launch that was inferred for a text is not used; tried once a text, and only where a GPU would run it.

        A candidate is judged by the launch of the text that it is to replace, so that one's trial counts for it too.
        """
        if not (wanted.verify or wanted.benchmark) or not isinstance(self.backend(), GpuBackend):
            return None
        if not own_guess(wanted, source):
            return None
        spec = json.dumps(to_wire(wanted.spec), sort_keys=True)
        of_spec, of_text = (hashlib.sha256(text.encode()).hexdigest() for text in (spec, key + spec))
        if wanted.reference_text is not None and of_spec in self._tried:
            return self._tried[of_spec]
        if of_text not in self._tried:
            job.emit("progress", "trying the launch on the host")
            while len(self._tried) >= MAX_TRIED:
                self._tried.pop(next(iter(self._tried)))
            self._tried[of_text] = refuted(wanted, source, self._reference_host(), job.check)
        if wanted.reference_text is None:
            self._tried[of_spec] = self._tried[of_text]
        return self._tried[of_text]

    @contextlib.contextmanager
    def _card(self, wanted: JudgeJob, job: process.Job) -> Iterator[None]:
        """Hold the GPU, if kernels run on one, for all runs of one job. Raises `InUse`."""
        backend = self.backend() if wanted.verify or wanted.benchmark else None
        if not isinstance(backend, GpuBackend) or backend.lease is None:
            yield
            return
        doing = "timing" if wanted.benchmark else "verifying"
        with backend.lease.hold(
            f"{doing} {wanted.kernel.id}", wait_s=LEASE_WAIT_S, check=job.check,
            on_wait=lambda words: job.emit("progress", words),
        ):  # fmt: skip
            yield

    def _isolation(self, wanted: JudgeJob) -> str:
        """How the process was confined that ran the kernel; empty where none ran."""
        if not (wanted.verify or wanted.benchmark):
            return ""
        backend = self.backend()
        if isinstance(backend, GpuBackend):
            return backend.isolation
        return self._host_isolation()

    def _host_isolation(self) -> str:
        held = self.host.describe().get("confinement", "")
        return confine.words(confine.landlock_abi() > 0, held == "seccomp") if held else ""

    def _run(
        self, wanted: JudgeJob, source: Source, baseline: Source | None, key: str, job: process.Job, here: Here,
        notes: Sequence[str],
    ) -> tuple[Verdict, TimingResult, Comparison]:  # fmt: skip
        """Compare the kernel with its reference and time it, as far as the job wants it."""
        verdict: Verdict = Unverified("not run: verifying is switched off")
        on_host = isinstance(self.backend(), HostBackend)
        soft = functools.partial(softened, spec=wanted.spec, text=own_text(source), on_host=on_host)
        if wanted.verify:
            verdict = soft(self._verified(wanted, source, baseline, job, notes))
            if isinstance(verdict, (Verified, Unverified)):
                verdict = self._with_instantiations(wanted, verdict, here, job)
            job.emit("verdict", to_wire(verdict, Verdict))
        timing, comparison = self._timed(wanted, source, baseline or _kept_baseline(wanted), verdict, job)
        sizes = ", ".join(f"{dim.name}={dim.values[0]}" for dim in wanted.spec.dims)
        own = wanted.spec.label if wanted.spec.captured is None else own_label(wanted.spec)
        first = ": ".join(part for part in (own, sizes) if part) or "the only case"
        verdict = soft(downgraded(timing, first) or _with_timed_checks(verdict, timing))
        if isinstance(verdict, Unsafe) and verdict.hazard == "timeout":
            self._killed[key] += 1
        job.emit("timing", to_wire(timing, TimingResult))
        return verdict, timing, comparison

    def _verified(
        self, wanted: JudgeJob, source: Source, baseline: Source | None, job: process.Job, notes: Sequence[str] = ()
    ) -> Verdict:
        return verify(
            wanted, source, self.backend(), self._reference_host(), check_cancelled=job.check,
            on_progress=lambda words: job.emit("progress", words), baseline_source=baseline, notes=notes,
        )  # fmt: skip

    def _with_instantiations(self, wanted: JudgeJob, own: Verdict, here: Here, job: process.Job) -> Verdict:
        """The verdict with those of the other instantiations that the program launches, each built by itself."""
        found, notes = others(wanted.spec)
        judged: list[tuple[Instantiation, Verdict]] = []
        for other in found:
            job.emit("progress", f"checking {other.words}")
            mine = evolve(wanted, spec=other.spec)
            order = compile_job(mine, wanted.text, wanted.kernel, here.arch)
            build = self._build(order, job)
            if not isinstance(build, Compiled):
                reason = (
                    build.errors[0].text if isinstance(build, CompileFailed) and build.errors else "it does not compile"
                )
                judged.append((other, Unverified(build.reason if isinstance(build, NotCompiled) else reason)))
                continue
            program = self.compiler.program(order)
            mine = evolve(mine, kernel=self._laid_out(order, wanted.kernel, program))
            source = _source(mine, mine.kernel, program, build)
            judged.append((other, self._verified(mine, source, self._baseline(mine, here, job), job)))
        return merged(own, judged, notes)

    def _build(self, order: CompileJob, job: process.Job) -> Build:
        job.check()
        return self.compiler.compile(order, job.cancelled)[build_keys(order.kernels)[0]]

    def _baseline(self, wanted: JudgeJob, here: Here, job: process.Job) -> Source | None:
        """The accepted kernel of the text, compiled; None when there is none or it does not compile."""
        if wanted.baseline_text is None or wanted.baseline_kernel is None:
            return None
        order = compile_job(wanted, wanted.baseline_text, wanted.baseline_kernel, here.arch)
        build = self._build(order, job)
        if not isinstance(build, Compiled):
            return None
        program = self.compiler.program(order)
        return _source(wanted, self._laid_out(order, wanted.baseline_kernel, program), program, build)

    def _timed(
        self, wanted: JudgeJob, source: Source, baseline: Source | None, verdict: Verdict, job: process.Job
    ) -> tuple[TimingResult, Comparison]:  # fmt: skip
        reason = None
        if not wanted.benchmark:
            reason = "timing is switched off"
        elif isinstance(verdict, (Wrong, Unsafe, Cheating)):
            reason = "only kernels that are not known to be wrong are timed"
        elif not wanted.spec.launchable:
            reason = wanted.spec.unknown[0] if wanted.spec.unknown else "the launch is not known"
        elif wanted.verify and isinstance(verdict, Unverified) and not verdict.checks:
            reason = verdict.reason
        if reason is not None:
            return NotTimed(reason), NotCompared(reason)
        return benchmark(
            wanted, source, baseline, self.backend(), check_cancelled=job.check,
            on_progress=lambda words: job.emit("progress", words),
        )  # fmt: skip

    def _evidence(self, wanted: JudgeJob, program: Program, here: Here) -> Evidence:
        sliced = _slice_key(wanted)
        toolkit = self.compiler.toolkit
        reference = ""
        if wanted.spec.reference is not None and wanted.spec.reference.via == "function":
            home = _text_of(wanted.spec.reference.path) if wanted.spec.reference.path else wanted.text
            functions = [f for f in parse(home).functions if f.name == wanted.spec.reference.text]
            reference = " ".join(home[f.start : f.end] for f in functions)
        digest = hashlib.sha256()
        for part in (
            sliced, json.dumps(to_wire(without_places(wanted.spec)), sort_keys=True), reference, repr(wanted.flags),
            here.arch, here.device, here.driver, toolkit, *(f"{name}\n{text}" for name, text in program.header_texts.items()),
        ):  # fmt: skip
            digest.update(part.encode("utf-8", "surrogatepass") + b"\0")
        now = datetime.now(UTC).isoformat(timespec="seconds")
        return Evidence(digest.hexdigest()[:32], sliced, here.device, here.driver, toolkit, now)

    # What is opened when it is needed

    def _configure(self, params: Any) -> None:
        settings = dict((params or {}).get("settings") or {})
        if forced := os.environ.get(BACKEND_VARIABLE):
            settings["backend"] = forced
        before, self._settings = self._settings, settings

        def changed(*names: str) -> bool:
            return any(before.get(name) != settings.get(name) for name in names)

        if self._compiler is not None and changed("nvcc"):
            self._compiler.close()
            self._compiler = None
        if self._host is not None and changed("cxx"):
            self._host.close()
            self._host = None
        if self._gpu is not None and changed("backend", "device"):
            if not isinstance(self._gpu, str):
                self._gpu.close()
            self._gpu = None

    @property
    def compiler(self) -> Compiler:
        if self._compiler is None:
            self._compiler = Compiler(nvcc=self._settings.get("nvcc"))
        return self._compiler

    @functools.cached_property
    def sanitizer(self) -> Tool | str:
        """compute-sanitizer, or one sentence on why there is none."""
        return find_tool()

    @property
    def host(self) -> HostBackend:
        if self._host is None:
            self._host = HostBackend(self._settings.get("cxx"))
        return self._host

    def _reference_host(self) -> HostBackend | None:
        return None if "missing" in self.host.describe() else self.host

    def backend(self) -> Backend:
        """Where kernels run: the GPU if one can be used and is wanted, else this machine."""
        wanted = self._settings.get("backend") or "auto"
        if wanted == "host":
            self._gpu = self._gpu or "the host was chosen"
        elif self._gpu is None:
            self._gpu = open_backend(wanted, int(self._settings.get("device") or 0))
            if isinstance(self._gpu, str):
                log.info("kernels run on the host: %s", self._gpu)
        return self.host if isinstance(self._gpu, str) or self._gpu is None else self._gpu

    def _told(self, params: Any) -> Here:
        """What the caller says of the device, or else what is found here."""
        told = params.get("here")
        return self._here() if told is None else Here(**told)

    def _here(self) -> Here:
        """`auto` compiles for the GPU's architecture, else for the default."""
        backend = self.backend()
        if isinstance(backend, GpuBackend):
            return Here(backend.arch, backend.name, "" if backend.info is None else backend.info.driver)
        return Here("auto", backend.name, self.host.describe().get("version", ""))


def compile_job(wanted: JudgeJob, text: str, kernel: Kernel, arch: str) -> CompileJob:
    """The compile of one kernel of one text of a job; `arch` stands for `auto`."""
    key = build_keys((kernel,))[0]
    threads, smem_bytes = launch_figures(wanted)
    return CompileJob(
        text=text,
        path=wanted.path,
        kernels=(kernel,),
        templates={key: wanted.spec.template},
        arch=arch if wanted.arch == "auto" else wanted.arch,
        flags=wanted.flags,
        include_dirs=wanted.include_dirs,
        pre_includes=wanted.pre_includes,
        includer=wanted.includer,
        block_threads={} if threads is None else {key: threads},
        smem_bytes={} if smem_bytes is None else {key: smem_bytes},
        deadline_s=wanted.compile_deadline_s,
        alone=True,
    )


def launch_figures(wanted: JudgeJob) -> tuple[int | None, int | None]:
    """Threads of a block and dynamic shared memory of the benchmark case, as far as the spec says."""
    spec = wanted.spec
    names = dict(spec.constants)
    names.update({dim.name: dim.values[0] for dim in spec.dims if dim.values})
    for name, value in spec.template.items():
        if value.isdigit():
            names[name] = int(value)

    def value_of(expression: str) -> int | None:
        try:
            return evaluate(expression, names)
        except ExpressionError:
            return None

    threads: int | None = None
    if spec.block is not None:
        sides = [value_of(side) for side in spec.block]
        known = [side for side in sides if side is not None]
        if len(known) == 3 and 0 < known[0] * known[1] * known[2] <= 1024:
            threads = known[0] * known[1] * known[2]
    return threads, value_of(spec.smem_bytes)


def _slice_key(wanted: JudgeJob) -> str:
    return kernel_slice_key(device_slice(wanted.text).text, wanted.kernel, parse(wanted.text).kernels)


def without_places(spec: LaunchSpec) -> LaunchSpec:
    """The spec without where in a text its launches stand: a line that is put in above changes nothing of them."""
    return evolve(spec, label="", cases=tuple(evolve(case, label="") for case in spec.cases))


def _source(wanted: JudgeJob, kernel: Kernel, program: Program, build: Compiled) -> Source:
    return Source(
        device_text=program.device_text,
        path=wanted.path,
        kernel=kernel,
        template=wanted.spec.template,
        compiled=build,
        include_dirs=(*wanted.include_dirs, *map(str, program.folders)),
        pre_includes=program.pre_includes,
        flags=wanted.flags,
    )


def _kept_baseline(wanted: JudgeJob) -> Source | None:
    """The machine code of a version that was accepted once: it has no text any more, so that it can only be timed."""
    kernel, build = wanted.baseline_kernel, wanted.baseline_build
    if kernel is None or build is None or wanted.baseline_text is not None:
        return None
    return Source("", wanted.path, kernel, wanted.spec.template, build)


def _with_timed_checks(verdict: Verdict, timing: TimingResult) -> Verdict:
    """The verdict with the checks that a timing makes, where there was one."""
    if not isinstance(verdict, Verified) or not isinstance(timing, Timing):
        return verdict
    return evolve(verdict, checks=in_order((*verdict.checks, "timed_outputs", "physical_limit")))


def _text_of(path: str) -> str:
    """A file's text; empty for one that cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _light(build: Build) -> Build:
    """Without its device code, which nobody outside this process loads unless it is kept as a baseline."""
    return evolve(build, cubin=b"") if isinstance(build, Compiled) else build


def _importable(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        return False


def _devices() -> tuple[list[dict[str, Any]], str]:
    """The GPUs that the driver knows and the driver's version; nothing without a driver."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:
        return [], ""
    try:
        driver = str(pynvml.nvmlSystemGetDriverVersion())
        devices = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            memory = int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
            name, uuid = str(pynvml.nvmlDeviceGetName(handle)), str(pynvml.nvmlDeviceGetUUID(handle))
            devices.append({"index": index, "name": name, "uuid": uuid, "memory_bytes": memory, "driver": driver})
        return devices, driver
    finally:
        pynvml.nvmlShutdown()


def _watch_memory() -> None:
    """End this process when it grows beyond bounds: an in-process compile cannot be limited in another way.

    A limit on address space would also hold for the child that owns a CUDA context, which maps far more than it uses.
    """
    page = os.sysconf("SC_PAGE_SIZE")
    while True:
        try:
            with open("/proc/self/statm") as file:
                resident = int(file.read().split()[1]) * page
        except (OSError, ValueError, IndexError):
            return
        if resident > MEMORY_LIMIT_BYTES:
            print(f"the worker uses {resident >> 20} MiB and ends", file=sys.stderr, flush=True)
            os._exit(MEMORY_EXIT)
        time.sleep(0.25)


def main() -> None:
    logging.basicConfig(
        level=os.environ.get("DICE_LSP_LOG", "WARNING"), stream=sys.stderr, format="%(name)s: %(message)s"
    )
    threading.Thread(target=_watch_memory, name="memory", daemon=True).start()
    worker = Worker()
    try:
        process.serve(worker.handlers())
    finally:
        worker.close()


if __name__ == "__main__":
    main()
