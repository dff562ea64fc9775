"""compute-sanitizer without a card: its real reports are read, its program is driven, and only what it found counts."""

import json
import os
import shutil
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from dice_lsp import process
from dice_lsp.lease import Lease
from dice_lsp.process import Finished
from dice_lsp.records import Compiled, Finding, JudgeJob, Sanitized, from_wire, to_wire
from dice_lsp.source.kernels import parse
from dice_lsp.source.launches import launch_spec
from dice_lsp.worker import __main__ as worker_main
from dice_lsp.worker import sanitized_run, sanitizer
from dice_lsp.worker.__main__ import Worker
from dice_lsp.worker.compile import CompileJob, Compiler
from dice_lsp.worker.device import DeviceInfo, GpuBackend
from dice_lsp.worker.launch import Source
from dice_lsp.worker.sanitizer import TOOLS, Tool, find_tool, parse_report, sanitize, small_cases

DATA = Path(__file__).parents[1] / "data" / "sanitizer"
KERNELS = (DATA / "kernels.cu").read_text()
LINES = KERNELS.splitlines()
RECORDED = {
    "racecheck.late": ("race", "if (threadIdx.x == 0) first = x[0];", "read at `if (i < n) y[i] = v + first;` by another"),
    "initcheck.unset": ("uninitialized", "__float_as_uint(tmp[i])", "reads 4 bytes of memory that nothing has written"),
    "memcheck.pastshared": ("out_of_bounds", "if (t < 44) s[t]", "writes 4 bytes of shared memory that is not its own"),
    "memcheck.pastlocal": ("out_of_bounds", "a[k] =", "writes 4 bytes of local memory that is not its own"),
    "memcheck.pastend": ("out_of_bounds", "x[i + 1]", "reads 4 bytes of global memory that is not its own"),
    "memcheck.lanesync": ("fault", "__syncwarp(0xffff0000u)", "illegal instruction, thread ("),
    "synccheck.halfsync": ("divergent_barrier", "if (t < 128) __syncthreads();", "divergent thread(s) in block, thread ("),
    "synccheck.lanesync": ("divergent_barrier", "__syncwarp(0xffff0000u)", "barrier error: invalid arguments, thread ("),
}  # fmt: skip


def line_of(file: str, line: int) -> int | None:
    """The recorded kernels were compiled behind one line of ours."""
    return line - 2 if file.endswith("/dice_document.cu") else None


@pytest.mark.parametrize("version", ["2025.3", "2026.4"])
@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_report_is_one_finding_at_its_line(name: str, version: str) -> None:
    tool, (hazard, code, words) = name.split(".")[0], RECORDED[name]
    (finding,) = parse_report(tool, (DATA / f"{version}.{name}.xml").read_bytes(), "n=1000", line_of, LINES)
    assert (finding.tool, finding.hazard, finding.case) == (tool, hazard, "n=1000")
    assert finding.line is not None and code in LINES[finding.line]
    assert words in finding.text


@pytest.mark.parametrize("name", ["memcheck.saxpy", "racecheck.warptree"])
def test_no_report_and_mere_warnings_are_no_finding(name: str) -> None:
    assert parse_report(name.split(".")[0], (DATA / f"2026.4.{name}.xml").read_bytes(), "n=1", line_of) == ()


def test_a_report_that_was_cut_off_counts_as_far_as_it_goes() -> None:
    whole = (DATA / "2026.4.initcheck.unset.xml").read_bytes()
    first_end = whole.index(b"</record>") + len(b"</record>")
    assert parse_report("initcheck", whole[: first_end - 20], "n=1", line_of) == ()
    assert len(parse_report("initcheck", whole[: first_end + 30], "n=1", line_of)) == 1
    assert parse_report("memcheck", b"", "n=1", line_of) == parse_report("memcheck", b"no XML", "n=1", line_of) == ()


def test_a_finding_outside_of_the_document_has_no_line() -> None:
    xml = (DATA / "2026.4.racecheck.late.xml").read_bytes()
    (finding,) = parse_report("racecheck", xml, "n=1", lambda file, line: None)
    assert finding.line is None and finding.text.startswith("written here and read here by another thread")


# The line information


TEXT = """#include <cuda_fp16.h>

__device__ float twice(float v) {
    return 2.0f * v;
}

//dice: n = 64K | 1000 | 33; in x[n]; out y[n]; io z[n]; launch <<<cdiv(n, 256), 256>>>
__global__ void scale(int n, const float* x, float* y, float* z, float a) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = twice(x[i]) + a + z[i];
}
"""


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    return Compiler()


def built(compiler: Compiler, text: str, *flags: str) -> tuple[CompileJob, Compiled]:
    job = CompileJob(text, "/nowhere/scale.cu", tuple(parse(text).kernels), arch="sm_90", flags=flags, alone=True)
    (build,) = compiler.compile(job).values()
    assert isinstance(build, Compiled), build
    return job, build


def instructions(build: Compiled) -> bytes:
    """The kernel's own section of a cubin, which is a 64-bit ELF file."""
    cubin = build.cubin
    (start,), (count, names) = struct.unpack_from("<Q", cubin, 0x28), struct.unpack_from("<HH", cubin, 0x3C)
    heads = [struct.unpack_from("<IIQQQQ", cubin, start + 64 * number) for number in range(count)]
    wanted = f".text.{build.symbol}".encode() + b"\0"
    (found,) = (head for head in heads if cubin[heads[names][4] + head[0] :].startswith(wanted))
    return cubin[found[4] : found[4] + found[5]]


def test_line_information_changes_no_code_and_leads_back_to_the_document(compiler: Compiler) -> None:
    _, plain = built(compiler, TEXT)
    job, build = built(compiler, TEXT, "-lineinfo")
    assert instructions(plain) == instructions(build)
    program = compiler.program(job)
    before = compiler._nvrtc_text(program)[1]
    place = lambda file, line: compiler.document_line(job, program, build, file, line)  # noqa: E731
    assert [place("/tmp/x/dice_document.cu", before + n) for n in (1, 10, 11)] == [0, 9, 10]
    assert place("dice_document.cu", before) is None and place("dice_document.cu", before + 99) is None
    assert place("/usr/include/cuda_fp16.h", 10) is None


def test_a_line_of_a_header_is_that_of_its_include(compiler: Compiler, tmp_path: Path) -> None:
    (tmp_path / "twice.cuh").write_text("__device__ float twice(float v) { return 2.0f * v; }\n")
    text = '\n#include "twice.cuh"\n__global__ void f(float* x) { x[0] = twice(x[0]); }\n'
    job = CompileJob(text, str(tmp_path / "a.cu"), tuple(parse(text).kernels), arch="sm_90", flags=("-lineinfo",))
    (build,) = compiler.compile(job).values()
    assert isinstance(build, Compiled)
    program = compiler.program(job)
    assert compiler.document_line(job, program, build, str(tmp_path / "twice.cuh"), 1) == 1


# Which cases


def spec_of(text: str) -> tuple[Any, Any]:
    model = parse(text)
    return launch_spec(text, model.kernels[0], model), model.kernels[0]


def test_small_cases_are_few_and_small() -> None:
    bounds = small_cases(*spec_of(TEXT), 0, None)
    assert not isinstance(bounds, str) and 2 <= len(bounds) <= 3
    sizes = [bound.dims["n"] for bound in bounds]
    assert sizes == sorted(sizes) and sizes[0] < 256 < sizes[-1] <= sanitizer.SMALL.elements


def test_a_kernel_without_a_small_case_says_so() -> None:
    text = """//dice: in x[16M]; out y[16M]; launch <<<64K, 256>>>
__global__ void copy(const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[i];
}
"""
    said = small_cases(*spec_of(text), 0, None)
    assert isinstance(said, str) and "too large" in said, said


# The run


RACE = (DATA / "2026.4.racecheck.late.xml").read_bytes()


class FakeTool:
    """Stands in for compute-sanitizer: answers with recorded reports, and keeps what it was asked."""

    def __init__(self, reports: dict[str, bytes], *, fails: Sequence[str] = (), hangs: Sequence[str] = ()) -> None:
        self.reports, self.fails, self.hangs = reports, fails, hangs
        self.asked: list[tuple[str, list[dict[str, Any]]]] = []

    def __call__(self, argv: Sequence[str], **options: Any) -> Finished:
        name, folder = argv[argv.index("--tool") + 1], Path(argv[-1])
        plan = json.loads((folder / sanitized_run.PLAN).read_text())
        self.asked.append((name, plan["launches"]))
        assert (folder / sanitized_run.CODE).read_bytes() and (folder / sanitized_run.INPUTS).stat().st_size
        if options["cancelled"] is not None and options["cancelled"].is_set():
            raise process.Cancelled
        report = self.reports.get(name, b"")
        if report == RACE and plan["launches"][-1]["grid"][0] == 1:
            report = b""  # one block alone does not race
        if name not in self.fails and name not in self.hangs:
            (folder / sanitized_run.ENDED).touch()
            (folder / sanitizer.REPORT).write_bytes(report)
        code = 1 if name in self.fails else 0
        return Finished(code, b"", b"cuInit answered CUDA_ERROR_NO_DEVICE" if code else b"", name in self.hangs, 0.5)


def run(tool: FakeTool, text: str = TEXT, **more: Any) -> Sanitized:
    spec, kernel = spec_of(text)
    compiled = Compiled("sm_90", "nvrtc", "scale", 8, 0, 0, 0, 0, 256, 1.0, "none", 0.0, cubin=b"code")
    job = JudgeJob(text, "/nowhere/scale.cu", kernel, spec)
    source = Source("", job.path, kernel, spec.template, compiled)
    return sanitize(job, source, Tool("/opt/compute-sanitizer", "2026.4"), 0, line_of, run=tool, **more)


def test_a_clean_kernel_is_looked_at_by_every_tool() -> None:
    tool, told = FakeTool({}), []
    assert run(tool, on_tool=told.append) == Sanitized(TOOLS, (), "")
    assert [name for name, _ in tool.asked] == list(TOOLS) == told


def test_outputs_are_left_alone_and_inputs_are_copied_in() -> None:
    tool = FakeTool({})
    run(tool, tools=("initcheck",))
    for launch in tool.asked[0][1]:
        n, x, y, z, a = launch["arguments"]
        assert "data" in n and "data" in a
        assert x["offset"] is not None and z["offset"] is not None and y["offset"] is None
        assert x["nbytes"] == y["nbytes"] == 4 * int.from_bytes(bytes.fromhex(n["data"]), "little")


def test_a_finding_ends_it_and_names_the_smallest_case_that_shows_it() -> None:
    tool = FakeTool({"racecheck": RACE})
    found = run(tool)
    assert found.tools == ("memcheck", "racecheck") and found.reason == ""
    (finding,) = found.findings
    sizes = [bound.label for bound in small_cases(*spec_of(TEXT), 0, None)]  # type: ignore[union-attr]
    assert finding.case == sizes[1] and finding.hazard == "race"
    # All cases at once, then one by one up to the first that shows it.
    assert [(name, len(launches)) for name, launches in tool.asked] == [
        ("memcheck", 3), ("racecheck", 3), ("racecheck", 1), ("racecheck", 1),
    ]  # fmt: skip


def test_a_tool_that_did_not_get_through_is_not_named_and_says_why() -> None:
    found = run(FakeTool({}, fails=("memcheck",), hangs=("synccheck",)))
    assert found.tools == ("racecheck", "initcheck") and not found.findings
    assert found.reason == (
        "memcheck did not look at every launch: cuInit answered CUDA_ERROR_NO_DEVICE; synccheck did not end within 60 s"
    )


def test_what_keeps_all_tools_from_running_is_said_once() -> None:
    found = run(FakeTool({}, fails=TOOLS))
    assert found == Sanitized(
        (), (), f"{', '.join(TOOLS)} did not look at every launch: cuInit answered CUDA_ERROR_NO_DEVICE"
    )


def test_a_program_that_cannot_be_started_is_a_reason() -> None:
    def broken(argv: Sequence[str], **options: Any) -> Finished:
        raise PermissionError(13, "Permission denied")

    assert run(broken, tools=("memcheck",)) == Sanitized((), (), "memcheck could not be started: Permission denied")  # type: ignore[arg-type]


def test_a_kernel_that_cannot_be_launched_is_a_reason() -> None:
    tool = FakeTool({})
    found = run(tool, "extern __shared__ float s[];\n__global__ void f(float* x, int n) { x[n] = s[threadIdx.x]; }\n")
    assert not found.tools and not found.findings and found.reason and not tool.asked


def test_a_cancel_is_not_swallowed() -> None:
    cancelled = threading.Event()
    cancelled.set()
    with pytest.raises(process.Cancelled):
        run(FakeTool({}), cancelled=cancelled)


def test_a_cancel_kills_a_program_that_runs(tmp_path: Path) -> None:
    slow = tmp_path / "compute-sanitizer"
    slow.write_text("#!/bin/sh\nsleep 600\n")
    slow.chmod(0o755)
    cancelled = threading.Event()
    threading.Timer(0.3, cancelled.set).start()
    spec, kernel = spec_of(TEXT)
    compiled = Compiled("sm_90", "nvrtc", "scale", 8, 0, 0, 0, 0, 256, 1.0, "none", 0.0, cubin=b"code")
    source = Source("", "/nowhere/scale.cu", kernel, spec.template, compiled)
    with pytest.raises(process.Cancelled):
        sanitize(
            JudgeJob(TEXT, "/nowhere/scale.cu", kernel, spec), source, Tool(str(slow), ""), 0, line_of,
            cancelled=cancelled,
        )  # fmt: skip


# Finding the program


def fake_program(path: Path, says: str = "Version 2026.4.0.0 (build 1)") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho 'NVIDIA (R) Compute Sanitizer'\necho '{says}'\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No program on PATH, in a toolkit or in a wheel."""
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    monkeypatch.delenv("CUDA_PATH", raising=False)
    monkeypatch.setattr(sanitizer, "_wheel_folders", lambda: [tmp_path / "site" / "nvidia"])
    monkeypatch.setattr(sanitizer, "TOOLKIT", str(tmp_path / "usr" / "local" / "cuda"))
    return tmp_path


def test_the_wheel_comes_first_then_path_then_the_toolkit(bare: Path) -> None:
    assert find_tool() == "compute-sanitizer is not installed: pip install 'dice-lsp[sanitizer]'"
    places = ["usr/local/cuda/bin", "cuda/bin", "path", "site/nvidia/cu13/compute-sanitizer"]
    for place in places:
        program = fake_program(bare / place / "compute-sanitizer")
        assert find_tool() == Tool(str(program), "2026.4.0")


def test_a_program_that_does_not_run_is_named(bare: Path) -> None:
    program = fake_program(bare / "path" / "compute-sanitizer")
    program.write_text("#!/bin/sh\nexit 3\n")
    assert find_tool() == f"{program} does not say its version; pip install 'dice-lsp[sanitizer]'"
    second = fake_program(bare / "cuda" / "bin" / "compute-sanitizer")
    assert find_tool() == Tool(str(second), "2026.4.0")


# The small program


DRIVER = r"""
#include <cstdio>
#include <cstdlib>
#include <cstring>
static bool launched = false;
static FILE* log_file() { static FILE* f = fopen(getenv("CALLS"), "w"); return f; }
#define SAY(...) (fprintf(log_file(), __VA_ARGS__), fflush(log_file()), 0)
extern "C" {
int cuInit(unsigned) { return SAY("init\n"); }
int cuDeviceGet(int* d, int n) { *d = n; return SAY("device %d\n", n); }
int cuDevicePrimaryCtxRetain(void** c, int) { *c = (void*)7; return 0; }
int cuCtxSetCurrent(void* c) { return c == (void*)7 ? 0 : 201; }
int cuModuleLoadData(void** m, const char* code) { *m = (void*)8; return SAY("code %.4s\n", code); }
int cuModuleGetFunction(void** f, void* m, const char* name) { *f = (void*)9; return SAY("function %s\n", name); }
int cuFuncSetAttribute(void*, int what, int value) { return SAY("attribute %d %d\n", what, value); }
int cuMemAlloc_v2(unsigned long long* p, size_t n) { *p = (unsigned long long)malloc(n); return SAY("alloc %zu\n", n); }
int cuMemcpyHtoD_v2(unsigned long long to, const void* from, size_t n) {
  memcpy((void*)to, from, n);
  return SAY("copy %zu %d\n", n, *(const int*)from);
}
int cuMemFree_v2(unsigned long long p) { free((void*)p); return SAY("free\n"); }
int cuCtxSynchronize() { return getenv("FAILS") && launched ? 719 : 0; }
int cuGetErrorName(int code, const char** word) { *word = code == 719 ? "CUDA_ERROR_LAUNCH_FAILED" : nullptr; return 0; }
int cuLaunchKernel(void* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned smem,
                   void* stream, void** values, void** extra) {
  launched = true;
  return SAY("launch %d %u %u %u %u %u %u %u n=%d x=%d\n", f == (void*)9 && !stream && !extra, gx, gy, gz, bx, by, bz, smem,
             *(int*)values[0], **(int**)values[1]) + SAY("inside %d\n", **(int**)((char*)values[3] + 8) - 42);
}
int cuModuleGetGlobal_v2(unsigned long long* p, size_t* n, void* m, const char* name) {
  static int table[2];
  *p = (unsigned long long)table, *n = sizeof table;
  return SAY("variable %d %s\n", m == (void*)8, name);
}
}
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a libcuda that writes down what it is asked."""
    folder = tmp_path_factory.mktemp("driver")
    (folder / "driver.cpp").write_text(DRIVER)
    compiler = shutil.which("g++") or shutil.which("clang++")
    assert compiler is not None
    subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / "libcuda.so.1", folder / "driver.cpp"], check=True)
    return folder


def child(folder: Path, driver: Path, **variables: str) -> tuple[subprocess.CompletedProcess[bytes], list[str]]:
    plan = {
        "device": 3,
        "symbol": "_Z5scalei",
        "launches": [
            {
                "grid": [4, 1, 1],
                "block": [256, 1, 1],
                "smem_bytes": 65536,
                "arguments": [
                    {"data": (1000).to_bytes(4, "little").hex(), "pointers": []},
                    {"name": "x", "nbytes": 4000, "offset": 64, "passed": True},
                    {"name": "y", "nbytes": 4000, "offset": None, "passed": True},
                    {"data": (7).to_bytes(16, "little").hex(), "pointers": [[8, "p.data", 400]]},
                    {"name": "p.data", "nbytes": 4000, "offset": 64, "passed": False},
                ],
                "variables": {"_ZN4ours5tableE": (5).to_bytes(8, "little").hex()},
            }
        ],
    }
    (folder / sanitized_run.PLAN).write_text(json.dumps(plan))
    (folder / sanitized_run.CODE).write_bytes(b"\x7fELF" + bytes(60))
    (folder / sanitized_run.INPUTS).write_bytes(bytes(64) + (42).to_bytes(4, "little") * 1000)
    calls = folder / "calls"
    environment = {**os.environ, "LD_LIBRARY_PATH": str(driver), "CALLS": str(calls), **variables}
    argv = [sys.executable, "-I", "-S", sanitized_run.__file__, str(folder)]
    done = subprocess.run(argv, capture_output=True, env=environment, timeout=60)
    return done, calls.read_text().splitlines()


def test_the_program_launches_what_the_plan_says(tmp_path: Path, driver: Path) -> None:
    done, calls = child(tmp_path, driver)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / sanitized_run.ENDED).exists()
    assert calls == [
        "init", "device 3", "code \x7fELF", "function _Z5scalei", "variable 1 _ZN4ours5tableE", "copy 8 5",
        "attribute 8 65536", "alloc 4000", "copy 4000 42", "alloc 4000", "alloc 4000", "copy 4000 42",
        "launch 1 4 1 1 256 1 1 65536 n=1000 x=42", "inside 0", "free", "free", "free",
    ]  # fmt: skip


def test_the_program_says_which_call_failed(tmp_path: Path, driver: Path) -> None:
    done, calls = child(tmp_path, driver, FAILS="1")
    assert done.returncode == sanitized_run.UNUSABLE and calls[-2].startswith("launch 1")
    assert done.stderr.decode().strip() == "cuCtxSynchronize answered CUDA_ERROR_LAUNCH_FAILED"
    assert not (tmp_path / sanitized_run.ENDED).exists()


def test_the_findings_of_one_line_are_one() -> None:
    xml = (DATA / "2026.4.memcheck.pastshared.xml").read_bytes()
    assert xml.count(b"<record>") > 1
    found = parse_report("memcheck", xml, "n=1", line_of, LINES)
    assert len(found) == 1 and evolve(found[0], text="") == Finding(
        "memcheck", "out_of_bounds", "", found[0].line, "n=1"
    )


# The worker's operation


class Asked:
    """A worker that believes in a card, and what it gave to `sanitize`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.worker = Worker()
        card = object.__new__(GpuBackend)
        attributes: dict[str, Any] = {"multiprocessors": 132}
        card.info = DeviceInfo("NVIDIA H200", "sm_90", "580", "13.0", "cuda-core 1", 0, 0, 0, attributes)
        card.name, card.kind, card.device_index = "NVIDIA H200", "cuda-core", 3
        card.lease = Lease("GPU-0", str(folder))
        self.worker._gpu = self.card = card
        self.worker.__dict__["sanitizer"] = Tool("/opt/compute-sanitizer", "2026.4")
        self.events: list[Any] = []
        self.given: list[Any] = []
        self.held: list[bool] = []
        monkeypatch.setattr(worker_main, "sanitize", self.sanitize)
        monkeypatch.setattr(worker_main, "LEASE_WAIT_S", 0.05)
        self.job = process.Job(1, self.events.append)

    def sanitize(
        self, wanted: JudgeJob, source: Source, tool: Tool, index: int, place: Any, **options: Any
    ) -> Sanitized:
        self.given.append((wanted, source, tool, index, place(sanitizer.REPORT, 1)))
        for name in TOOLS:
            options["on_tool"](name)
            assert self.card.lease is not None
            self.held.append(self.card.lease.held)
        return Sanitized(TOOLS)

    def __call__(self) -> Sanitized | None:
        spec, kernel = spec_of(TEXT)
        wanted = JudgeJob(TEXT, "/nowhere/scale.cu", kernel, spec)
        answer = self.worker.sanitize({"job": to_wire(wanted)}, self.job)
        return None if answer is None else from_wire(answer, Sanitized)


def test_the_worker_builds_with_line_information_and_holds_the_card(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = Asked(monkeypatch, tmp_path)
    assert asked() == Sanitized(TOOLS)
    ((wanted, source, tool, index, elsewhere),) = asked.given
    assert wanted.flags == () and index == 3 and tool.path == "/opt/compute-sanitizer" and elsewhere is None
    assert source.compiled is not None and b".debug_line" in source.compiled.cubin
    assert asked.held == [True] * len(TOOLS) and asked.card.lease is not None and not asked.card.lease.held
    assert [event["data"] for event in asked.events] == list(TOOLS)


def test_a_card_that_others_keep_means_later(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = Asked(monkeypatch, tmp_path)
    with Lease("GPU-0", str(tmp_path)).hold("somebody else's timing", wait_s=1.0):
        assert asked() is None
    assert not asked.given and asked() == Sanitized(TOOLS)


def test_without_a_card_or_the_tool_the_worker_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = Asked(monkeypatch, tmp_path)
    asked.worker.__dict__["sanitizer"] = f"compute-sanitizer is not installed: {sanitizer.INSTALL}"
    assert asked() == Sanitized((), (), f"compute-sanitizer is not installed: {sanitizer.INSTALL}")
    asked.worker._gpu = "the host was chosen"
    said = asked()
    assert said is not None and said.reason == "compute-sanitizer needs a GPU, and kernels run on the host here"
    assert not asked.given
