"""compute-sanitizer on a card: hostile kernels that only it sees, one per tool, and honest ones that it lets pass."""

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dice_lsp import process
from dice_lsp.__main__ import main
from dice_lsp.config import Settings
from dice_lsp.pipeline import Engine, may_be_sanitized
from dice_lsp.records import Compiled, Document, JudgeJob, Sanitized, Verified, from_wire, to_wire
from dice_lsp.source.kernels import parse
from dice_lsp.source.launches import launch_spec
from dice_lsp.worker import sanitized_run
from dice_lsp.worker.__main__ import compile_job
from dice_lsp.worker.launch import Source
from dice_lsp.worker.sanitizer import TOOLS, Tool, sanitize
from tests.gpu.support import HISTOGRAM, KINDS, REDUCTION, TRANSPOSE, Bench, parsed, record, saxpy

COPY = """
void NAME_cpu(int n, const float* x, float* y) {
    for (int i = 0; i < n; i++) y[i] = x[i];
}
//dice: n = 64K | 1000 | 33; in x[n]; out y[n]; launch <<<cdiv(n, 256), 256>>>
//dice: ref NAME_cpu
__global__ void NAME(int n, const float* x, float* y) {
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    BODY
}
"""
PAST_SHARED = COPY.replace("NAME", "past_shared").replace(
    "BODY",
    """__shared__ float s[40];
    if (t < 44) s[t] = i < n ? x[i] : 0.0f;
    __syncthreads();
    if (i < n) y[i] = t < 40 ? s[t] : x[i];""",
)
"""The four elements past the end lie in what the card rounds a block's shared memory up to."""
LATE = (
    COPY.replace("y[i] = x[i];", "y[i] = x[i] + x[0];")
    .replace("NAME", "late")
    .replace(
        "BODY",
        """__shared__ float first[2];
    if (t == 0) {
        first[0] = x[0];
        __threadfence_block();
    }
    float v = 1.0f + t;
    for (int k = 0; k < 3000; k++) v = fmaf(v, 0.5f, 0.5f * v);
    if (i < n) y[i] = x[i] + first[v < 0.0f];""",
    )
)
"""No barrier stands between the write and the reads, which come so late that they always find the value."""
UNSET = COPY.replace("NAME", "unset").replace(
    "BODY", "if (i < n) y[i] = __float_as_uint(y[i]) == 0x12345678u ? 0.0f : x[i];"
)
"""A value that nothing has written decides, and no pattern that memory is filled with is the one that matters."""
HALVES = COPY.replace("NAME", "halves").replace(
    "BODY",
    """__shared__ float s[256];
    s[t] = i < n ? x[i] : 0.0f;
    if (t < 128) __syncthreads();
    else __syncthreads();
    if (i < n) y[i] = s[255 - (255 - t)];""",
)
"""Two barriers, each reached by half of the block: this card lets them meet, the language does not."""
HOSTILE = {
    "past_shared": (PAST_SHARED, "memcheck", "out_of_bounds", "if (t < 44) s[t]"),
    "late": (LATE, "racecheck", "race", "first["),
    "unset": (UNSET, "initcheck", "uninitialized", "__float_as_uint(y[i])"),
    "halves": (HALVES, "synccheck", "divergent_barrier", "__syncthreads();"),
}
HONEST_FILES = tuple(sorted((Path(__file__).parents[1] / "honest").glob("*.cu")))
EVERY = 3
"""One in so many of the honest suite is looked at: each start of a tool opens the card anew."""
HONEST = {"saxpy": saxpy(), "block_sum": REDUCTION, "transpose": TRANSPOSE, "histogram": HISTOGRAM}


@pytest.fixture(scope="module")
def one() -> Iterator[Bench]:
    """One back end is enough: the tools start a program of their own."""
    bench = Bench(KINDS[-1])
    assert not isinstance(bench.worker.sanitizer, str), bench.worker.sanitizer
    yield bench
    bench.close()


class Asked:
    """One call of the worker, with the seconds that each tool took."""

    def __init__(self, bench: Bench, text: str, name: str) -> None:
        kernel, spec = parsed(text, name)
        job = JudgeJob(text, "/nowhere/test.cu", kernel, spec)
        started: list[tuple[str, float]] = []
        call = process.Job(1, lambda message: started.append((message["data"], time.monotonic())))
        answer = bench.worker.sanitize({"settings": {"backend": bench.backend.kind}, "job": to_wire(job)}, call)
        ends = [*(at for _, at in started[1:]), time.monotonic()]
        self.sanitized = from_wire(answer, Sanitized)
        self.seconds = {tool: end - at for (tool, at), end in zip(started, ends, strict=True)}

    def record(self, name: str, found: str) -> None:
        took = ", ".join(f"{tool} {seconds:.1f}" for tool, seconds in self.seconds.items())
        record("sanitizer", name, found, took, f"{sum(self.seconds.values()):.1f}")


@pytest.mark.parametrize("name", HOSTILE)
def test_what_only_the_sanitizer_sees(one: Bench, name: str) -> None:
    text, tool, hazard, code = HOSTILE[name]
    verdict = one.judge(text, name, benchmark=False).verdict
    asked = Asked(one, text, name)
    sanitized = asked.sanitized
    assert sanitized.findings, sanitized
    finding = sanitized.findings[0]
    asked.record(name, f"{finding.tool}: {finding.text}")
    assert (finding.tool, finding.hazard) == (tool, hazard) and sanitized.tools[-1] == tool
    assert finding.line is not None and code in text.splitlines()[finding.line], finding
    assert finding.case in ("n=33", "n=1000") or finding.case.startswith("n="), finding
    assert isinstance(verdict, Verified), verdict


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_kernel_has_no_finding(one: Bench, name: str) -> None:
    asked = Asked(one, HONEST[name], name)
    asked.record(name, "; ".join(f.text for f in asked.sanitized.findings) or asked.sanitized.reason or "no finding")
    assert asked.sanitized == Sanitized(TOOLS, (), "")


def looked_at(one: Bench, path: Path) -> Callable[[], Sanitized]:
    """A file's kernel, built and ready to be looked at on any thread."""
    text = path.read_text()
    model = parse(text)
    kernel = model.kernels[-1]
    spec = launch_spec(text, kernel, model)
    job = JudgeJob(text, str(path), kernel, spec, flags=("-lineinfo",))
    compiler = one.worker.compiler
    order = compile_job(job, text, kernel, one.backend.arch)
    (build,) = compiler.compile(order).values()
    assert isinstance(build, Compiled), (path.name, build)
    program = compiler.program(order)
    source, tool = Source("", str(path), kernel, spec.template, build), one.worker.sanitizer
    assert isinstance(tool, Tool)

    def place(file: str, line: int) -> int | None:
        return compiler.document_line(order, program, build, file, line)

    return lambda: sanitize(job, source, tool, one.backend.device_index, place)


def test_the_honest_suite_has_no_finding(one: Bench) -> None:
    started = time.monotonic()
    ready = {path.stem: looked_at(one, path) for path in HONEST_FILES[::EVERY]}
    with ThreadPoolExecutor(8) as threads:
        found = dict(zip(ready, threads.map(lambda look: look(), ready.values()), strict=True))
    bad = {name: said for name, said in found.items() if said.findings}
    partly = {name: said.reason for name, said in found.items() if said.reason}
    told = f"{len(bad)} with a finding, {len(partly)} not by every tool: {'; '.join(sorted(set(partly.values())))}"
    record(
        "sanitizer",
        f"{len(found)} of the {len(HONEST_FILES)} honest kernels, 8 at once",
        told,
        "",
        f"{time.monotonic() - started:.0f}",
    )
    assert not bad, bad
    assert len(partly) <= len(found) // 10, partly


def test_a_cancel_ends_it_and_leaves_nothing_on_the_card(one: Bench) -> None:
    kernel, spec = parsed(REDUCTION, "block_sum")
    job = JudgeJob(REDUCTION, "/nowhere/test.cu", kernel, spec)
    call = process.Job(1, lambda message: None)
    threading.Timer(0.6, call.cancelled.set).start()
    with pytest.raises(process.Cancelled):
        one.worker.sanitize({"settings": {"backend": one.backend.kind}, "job": to_wire(job)}, call)
    deadline = time.monotonic() + 10.0
    while left := [line for line in command_lines() if sanitized_run.__file__ in line]:
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def test_check_sanitize_fails_for_what_a_check_alone_lets_pass(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "late.cu"
    path.write_text(LATE)
    arguments = ["check", str(path), "--json", "--no-benchmark", "--backend", KINDS[-1]]
    assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out)["kernels"][0]["verdict"]["kind"] == "verified"
    assert main([*arguments, "--sanitize"]) == 1
    (kernel,) = json.loads(capsys.readouterr().out)["kernels"]
    assert kernel["verdict"]["kind"] == "unsafe" and kernel["verdict"]["hazard"] == "race"
    (finding,) = kernel["sanitized"]["findings"]
    assert "first[0] = x[0];" in LATE.splitlines()[finding["line"] - 1]


async def test_a_check_comes_before_it(tmp_path: Path) -> None:
    engine = Engine(Settings(backend=KINDS[-1]))  # type: ignore[arg-type]
    document = Document("file:///nowhere/block_sum.cu", 1, REDUCTION)
    path = str(tmp_path / "block_sum.cu")
    try:
        (report,) = await engine.check(document, path)
        assert may_be_sanitized(report)
        looking = asyncio.create_task(engine.sanitize(document, path, "block_sum"))
        async with asyncio.timeout(60):
            while not any(sanitized_run.__file__ in line for line in command_lines()):
                await asyncio.sleep(0.01)
        started = time.monotonic()
        (again,) = await engine.check(document, path)
        took_s = time.monotonic() - started
        assert await looking is None and isinstance(again.verdict, Verified)
        record("sanitizer", "block_sum", "given up for a check, which took", "", f"{took_s:.1f}")
        whole = await engine.sanitize(document, path, "block_sum")
        assert whole == Sanitized(TOOLS, (), "")
    finally:
        await engine.close()


def command_lines() -> list[str]:
    """Those of all processes of this machine."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return found
