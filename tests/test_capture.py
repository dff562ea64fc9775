"""`dice-lsp capture` with the real library in a real program, over a driver and a CUPTI of our own that need no GPU."""

import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from attrs import evolve, field, frozen

from dice_lsp import process
from dice_lsp.__main__ import main
from dice_lsp.capture import keeping, library, recording, session, store
from dice_lsp.capture.names import demangled, device_variables, kernels_called, parts_of
from dice_lsp.capture.recording import CaptureError
from dice_lsp.capture.session import CaptureReport
from dice_lsp.capture.store import Recorded
from dice_lsp.command_line import read_document
from dice_lsp.records import Kernel
from dice_lsp.source.kernels import parse
from dice_lsp.source.slice import device_slice, kernel_slice_key

ROOT = Path(__file__).parent.parent
DATA = ROOT / "tests" / "data" / "capture"
X = np.arange(1000, dtype=np.float32)


@frozen
class Machine:
    """A machine with a driver, CUPTI, a compiler and a cache, as the environment of a program says it."""

    folder: Path
    environment: dict[str, str]


@frozen
class Project:
    """A project with a file of kernels and a program."""

    folder: Path
    file: Path
    output: bytearray = field(factory=bytearray)

    def run(self, *words: str, **more: object) -> CaptureReport:
        """Record `./program words...`."""
        source = session.source_of(str(self.file), read_document(self.file))
        wish = session.Wish((source,), ("./program", *words), str(self.folder), str(self.folder), wait_s=1)

        def start(argv, environment, where):
            return process.attended(argv, env=environment, cwd=where, on_output=self.output.extend, deadline_s=60)

        return session.record(evolve(wish, **more), start)

    def kernel(self, name: str) -> Kernel:
        return next(kernel for kernel in parse(self.file.read_text()).kernels if kernel.name == name)

    def found(self, name: str) -> tuple[Recorded, ...]:
        """What the worker finds of a kernel."""
        model = parse(self.file.read_text())
        kernel = self.kernel(name)
        return store.find(
            str(self.file), kernel, kernel_slice_key(device_slice(model.text).text, kernel, model.kernels)
        )


def compiled(*words: object) -> None:
    subprocess.run(["cc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", *map(str, words)], check=True)


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fake driver, the fake CUPTI and the program, built once."""
    folder = tmp_path_factory.mktemp("machine")
    (folder / "lib64").mkdir()
    driver = folder / "lib64" / "libcuda.so.1"
    compiled("-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", DATA / "fake_cuda.c", "-o", driver, "-ldl", "-lpthread")
    compiled("-shared", "-fPIC", DATA / "fake_cupti.c", "-o", folder / "lib64" / "libcupti.so.13")
    compiled(DATA / "program.c", "-o", folder / "program", driver, "-lpthread")
    compiled("-c", DATA / "cubin.c", "-o", folder / "cubin.o")
    return folder


@pytest.fixture
def machine(parts: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    environment = {
        "LD_LIBRARY_PATH": str(parts / "lib64"), "CUDA_HOME": str(parts), "FAKE_CUBIN": str(parts / "cubin.o"),
        "XDG_CACHE_HOME": str(parts / "cache"),
    }  # fmt: skip
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv(session.INJECTION, raising=False)
    return Machine(parts, environment)


@pytest.fixture
def project(machine: Machine, tmp_path: Path) -> Project:
    (tmp_path / ".git").mkdir()
    shutil.copy(DATA / "kernels.cu", tmp_path)
    # The program is newer than the text, as after a build.
    os.utime(tmp_path / "kernels.cu", (1, 1))
    shutil.copy(machine.folder / "program", tmp_path)
    return Project(tmp_path, tmp_path / "kernels.cu")


def address(recorded: Recorded, index: int) -> int:
    return int.from_bytes(recorded.parameters[index].data, "little")


def behind(recorded: Recorded, pointer: int, dtype: type, count: int, *, after: bool = False) -> np.ndarray:
    (at,) = [i for i, of in enumerate(recorded.allocations) if 0 <= pointer - of.address < of.nbytes]
    data = store.after(recorded, at) if after else store.before(recorded, at)
    assert data is not None and data.size == recorded.allocations[at].nbytes
    start = pointer - recorded.allocations[at].address
    return data[start : start + count * np.dtype(dtype).itemsize].view(dtype)


# What is recorded


def test_what_was_recorded_is_case_and_reference_of_a_check(project, monkeypatch):
    """From the program to the verdict, over the host; wrong text is wrong by what the program left."""
    project.run("plain")
    # A check needs no driver, and the real one may be there.
    monkeypatch.delenv("LD_LIBRARY_PATH")

    def verdict() -> dict[str, object]:
        argv = [
            sys.executable,
            "-m",
            "dice_lsp",
            "check",
            "kernels.cu",
            "--kernel",
            "scale",
            "--backend",
            "host",
            "--json",
        ]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = process.run(argv, deadline_s=100, cwd=str(project.folder), env=environment, limits=process.Limits())
        return json.loads(done.stdout)["kernels"][0]["verdict"]

    good = verdict()
    assert good["kind"] == "verified" and good["reference"] == "what the program left in captured 1"
    text = project.file.read_text()
    project.file.write_text(text.replace("y[i] = factor * x[i]", "y[i] = factor + x[i]"))
    assert verdict()["kind"] != "verified", "what another text left is no evidence for this one"


def test_a_launch_with_its_memory_before_and_after(project):
    report = project.run("plain")
    assert report.reason is None and report.exit_code == 0 and b"runs plain" in project.output
    assert report.kernels == {"bump": 1, "scale": 1, "apply": 0, "hang": 0, "fault": 0}
    assert Path(report.path).stat().st_mode & 0o777 == 0o600, "a program's data are nobody else's"
    assert report.kept.others == ("empty", "library(int)")
    (scale,) = project.found("scale")
    assert (scale.grid, scale.block, scale.smem_bytes, scale.cluster) == ((4, 1, 1), (256, 1, 1), 0, (1, 1, 1))
    assert scale.kernel == "scale(int, float, float const*, float*)" and scale.symbol == "_Z5scaleifPKfPf"
    assert [(p.offset, p.size) for p in scale.parameters] == [(0, 4), (4, 4), (8, 8), (16, 8)]
    assert struct.unpack("<if", scale.parameters[0].data + scale.parameters[1].data) == (1000, 2.0)
    assert scale.problems == () and scale.finished and not scale.launch.stale and scale.device == 'Fake "GPU" 0'
    assert np.array_equal(behind(scale, address(scale, 2), np.float32, 1000), X)
    assert np.array_equal(behind(scale, address(scale, 2), np.float32, 1000, after=True), X)
    # The output lies in the middle of an allocation, of which the rest is as it was.
    y = [of for of in scale.allocations if of.nbytes == 8000][0]
    assert address(scale, 3) - y.address == 4000 and y.complete and y.kind == "device"
    assert not store.before(scale, scale.allocations.index(y)).any()
    assert np.array_equal(behind(scale, address(scale, 3), np.float32, 1000, after=True), 2 * X)
    assert not behind(scale, y.address, np.float32, 1000, after=True).any()
    (bump,) = project.found("bump")
    assert bump.kernel == "void ours::bump<4>(int*)" and bump.smem_bytes == 1024 and bump.block == (32, 2, 1)
    assert [of.kind for of in bump.allocations] == ["managed"]
    assert (behind(bump, address(bump, 0), np.int32, 10, after=True) == [1] * 8 + [0, 0]).all()


def test_variables_of_the_module_and_pointers_in_a_struct(project):
    project.run("struct")
    (found,) = project.found("apply")
    n, _, data, weight = struct.unpack("<iiQd", found.parameters[0].data)
    assert (n, weight) == (16, 0.5) and np.array_equal(behind(found, data, np.float32, 1000), X)
    expected = X.copy()
    expected[:16] = X[:16] * 0.5 + np.resize(np.float32([1, 2, 3, 4]), 16)
    assert np.array_equal(behind(found, data, np.float32, 1000, after=True), expected)
    assert [(s.name, s.nbytes, s.constant) for s in found.symbols] == [("_ZN4ours12coefficientsE", 16, True)]
    assert list(store.symbol_before(found, 0).view(np.float32)) == [1, 2, 3, 4]
    assert list(store.symbol_after(found, 0).view(np.float32)) == [1, 2, 3, 4]


@pytest.mark.parametrize("how", ["buffer", "extended"])
@pytest.mark.parametrize("handles", ["", "1"])
def test_arguments_however_they_are_given(project, monkeypatch, how, handles):
    if handles:
        monkeypatch.setenv("FAKE_KERNEL_HANDLES", handles)
    project.run(how)
    (found,) = project.found("scale")
    factor = struct.unpack("<f", found.parameters[1].data)[0]
    assert factor == (3 if how == "buffer" else 2)
    assert np.array_equal(behind(found, address(found, 3), np.float32, 1000, after=True), np.float32(factor) * X)
    if how == "extended":
        assert found.cluster == (2, 1, 1) and found.cooperative and found.smem_bytes == 64
        (bump,) = project.found("bump")
        assert bump.cooperative and bump.cluster == (1, 1, 1)


def test_pinned_memory_is_read_and_memory_that_cuda_does_not_know_is_said(project):
    project.run("host")
    pinned, plain = project.found("scale")
    assert [of.kind for of in pinned.allocations] == ["host", "device"] and pinned.problems == ()
    assert np.array_equal(behind(pinned, address(pinned, 2), np.float32, 1000), X)
    assert plain.problems == ("`x` leads to memory that CUDA does not know, so it was not recorded",)


def test_the_first_the_largest_and_some_of_each_shape_are_kept(project):
    report = project.run("many", launches=4)
    assert [(count.id, count.seen, count.kept) for count in report.kept.kernels[:2]] == [
        ("bump", 40, 3),
        ("scale", 100, 4),
    ]
    found = project.found("scale")
    assert found[0].order == 1 and found[-1].order == 61 and found[-1].grid == (4, 1, 1)
    assert {address(recorded, 0) for recorded in found} == {100, 101, 102, 1000}
    for recorded in project.found("bump"):
        # Each was recorded with what the launches before had left.
        for after, value in ((False, recorded.order - 1), (True, recorded.order)):
            assert list(behind(recorded, address(recorded, 0), np.int32, 4, after=after)) == [value] * 4


@pytest.mark.parametrize(("how", "code"), [("crash", -signal.SIGSEGV), ("exit", 3), ("kill", -signal.SIGKILL)])
def test_what_was_recorded_outlives_any_end_of_the_program(project, how, code):
    report = project.run(how)
    assert report.exit_code == code and report.kernels["scale"] == 1
    ending = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
    assert report.notes == (f"the program {ending}; what it launched before is recorded",)
    (found,) = project.found("scale")
    assert np.array_equal(behind(found, address(found, 3), np.float32, 1000, after=True), 2 * X)


def test_a_kernel_that_does_not_end_is_let_go_on(project):
    report = project.run("hang")
    (found,) = project.found("hang")
    assert found.problems == ("the kernel did not end in time: it may wait for the host or for another kernel",)
    assert not found.finished and store.after(found, 0) is None and not store.before(found, 0).any()
    assert {count.id: count.unfinished for count in report.kept.kernels}["hang"] == 1
    assert project.found("bump")[0].problems == ()


def test_a_kernel_that_fails_and_what_comes_after_it(project):
    project.run("fault")
    assert project.found("fault")[0].problems == ("the kernel failed with CUDA error 700",)
    (bump,) = project.found("bump")
    assert bump.problems == ("the driver refused to copy its memory (CUDA error 700)",) and not bump.finished
    with pytest.raises(CaptureError):
        store.before(bump, 0)


def test_a_launch_that_is_refused(project):
    assert project.run("refused").exit_code == 0
    assert project.found("bump")[0].problems == ("the launch was refused with CUDA error 1",)


@pytest.mark.parametrize("old", ["", "1"])
def test_within_cuda_graphs_only_the_arguments_are_recorded(project, monkeypatch, old):
    if old:
        monkeypatch.setenv("FAKE_OLD_DRIVER", old)
    report = project.run("graph")
    assert report.notes == (
        "2 launches of CUDA graphs were not recorded: the kernels within are only known as they were captured",
    )
    (inside,) = project.found("scale")
    assert inside.grid == (4, 1, 1) and inside.problems == (
        "the launch is part of a CUDA graph, of which only the arguments are recorded",
    )
    beside, later = project.found("bump")
    assert "a stream was being captured" in beside.problems[0] and later.problems == ()
    assert {count.id: count.in_graph for count in report.kept.kernels}["scale"] == 1


def test_launches_of_many_threads(project):
    report = project.run("threads", launches=6)
    assert {count.id: count.seen for count in report.kept.kernels}["bump"] == 200
    for recorded in project.found("bump"):
        before, after = (behind(recorded, address(recorded, 0), np.int32, 8, after=when) for when in (False, True))
        assert np.array_equal(before + 1, after), "another launch came between"


def test_processes_that_the_program_starts(project):
    report = project.run("children")
    assert report.kernels["scale"] == 2 and report.kernels["bump"] == 1


# A card's own


@pytest.fixture
def recorded_on_a_card(tmp_path: Path) -> Path:
    """A project with two programs and what an H200 recorded of them, as the files were written there."""
    (tmp_path / ".dice" / "captures").mkdir(parents=True)
    for recorded in (DATA / "recorded").glob("*.capture"):
        shutil.copy(recorded, tmp_path / ".dice" / "captures")
    for source in (DATA / "programs").glob("*.cu"):
        shutil.copy(source, tmp_path)
    return tmp_path


def test_a_recording_of_a_real_card_is_read(recorded_on_a_card):
    sums = Project(recorded_on_a_card, recorded_on_a_card / "row_sums.cu").found("row_sums")
    assert [(found.block[0], found.smem_bytes, address(found, 2)) for found in sums] == [
        (64, 256, 64), (256, 1024, 1000), (256, 1024, 333),
    ]  # fmt: skip
    for found in sums:
        x = behind(found, address(found, 0), np.float32, 37 * address(found, 2)).reshape(37, -1)
        assert np.array_equal(x.ravel(), np.arange(x.size, dtype=np.float32) % 101 * np.float32(0.25))
        assert np.allclose(behind(found, address(found, 1), np.float32, 37, after=True), x.sum(1), rtol=1e-6)
        assert found.device == "NVIDIA H200" and found.problems == ()


def test_every_way_to_launch_on_a_real_card(recorded_on_a_card):
    ways = Project(recorded_on_a_card, recorded_on_a_card / "ways.cu")
    first, second, clustered, in_graph, threaded = ways.found("add")
    assert clustered.cluster == (2, 1, 1) and first.cluster == (1, 1, 1) and threaded.grid == (64, 1, 1)
    assert in_graph.problems == ("the launch is part of a CUDA graph, of which only the arguments are recorded",)
    assert first.allocations[0].nbytes == 32768 and address(second, 2) - address(first, 2) == 16384, (
        "halves of one allocation"
    )
    for found in (first, second, clustered, threaded):
        by = np.frombuffer(found.parameters[1].data, np.float32)[0]
        before, after = (behind(found, address(found, 2), np.float32, 4096, after=when) for when in (False, True))
        assert np.array_equal(before + by, after)
    assert ways.found("spread")[0].cooperative
    assert [of.kind for of in ways.found("from_host")[0].allocations] == ["host", "device"]


# Limits


def test_the_limit_leaves_launches_out_and_says_so(project):
    report = project.run("noisy", limit_mb=50)
    found = project.found("scale")
    left_out = [recorded for recorded in found if recorded.problems]
    assert len(found) == 6 and 1 <= len(left_out) <= 4 and found[0].problems == ()
    assert {recorded.problems for recorded in left_out} == {
        ("its memory is over the limit of the recording: give a larger --limit-mb",)
    }
    assert {address(recorded, 0) for recorded in found} == {(3 << 19) - at for at in range(6)}, (
        "the arguments are there"
    )
    assert {count.id: count.over_limit for count in report.kept.kernels}["scale"] == len(left_out)
    assert report.nbytes < 50 << 20


def test_equal_memory_is_stored_once_and_compressed(project):
    report = project.run("big")
    found = project.found("scale")[0]
    words = (np.arange(3 << 20, dtype=np.uint64) * 2654435761 % (1 << 32)).astype(np.uint32)
    assert np.array_equal(behind(found, address(found, 2), np.uint32, 3 << 20), words)
    # Two buffers of 12 MiB before and after: the noise is there once, and the zeros are next to nothing.
    assert len(words) * 4 < report.nbytes < 2.2 * len(words) * 4
    chunks = recording.read_log(Path(report.path)).chunks
    assert any(stored.codec == 1 for stored in chunks.values()) and any(stored.codec == 0 for stored in chunks.values())


def test_of_a_large_allocation_a_share_from_each_pointer_on_is_recorded(project):
    project.run("arena", limit_mb=64)
    (found,) = project.found("scale")
    (arena,) = found.allocations
    assert arena.nbytes == 64 << 20 and not arena.complete and "only a part was recorded" in found.problems[0]
    assert store.pieces(found, 0) == ((1 << 20, 8 << 20), (32 << 20, 8 << 20))
    assert np.array_equal(behind(found, address(found, 2), np.float32, 1000), X)
    assert np.array_equal(behind(found, address(found, 3), np.float32, 1000, after=True), 2 * X)


def test_a_full_disk_ends_the_recording_and_not_the_program(project):
    limited = "import os, resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000));"
    limited += (
        " import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); os.execv('./program', ['./program', 'big'])"
    )
    report = project.run(command=(sys.executable, "-c", limited))
    assert report.exit_code == 0 and any("the recording stopped early" in note for note in report.notes)


# The store


def test_another_text_makes_a_recording_stale_and_undo_makes_it_good(project):
    project.run("plain")
    text = project.file.read_text()
    project.file.write_text(text.replace("factor * x[i]", "factor + x[i]"))
    (found,) = project.found("scale")
    assert found.launch.stale and project.found("bump")[0].launch.stale is False, "the other kernel is as it was"
    assert np.array_equal(behind(found, address(found, 2), np.float32, 1000), X)
    project.file.write_text("// moved\n\n" + text)
    assert not project.found("scale")[0].launch.stale


def test_a_program_that_is_older_than_its_text_is_no_evidence(project):
    os.utime(project.file)
    os.utime(project.folder / "program", (1, 1))
    report = project.run("plain")
    assert report.notes == (
        "./program is older than kernels.cu: build it again, else what it does is no evidence for this text",
    )
    assert project.found("scale")[0].launch.stale


def test_the_newest_recording_of_a_kernel_is_found_and_the_oldest_goes(project):
    first = project.run("plain")
    second = project.run("exit")
    assert project.found("scale")[0].launch.path == second.path
    assert project.found("bump")[0].launch.path == first.path, "the second run launched no bump"
    names = [name for name, _ in store.listing(str(project.file))]
    assert names == [Path(second.path).name, Path(first.path).name]
    assert store.resolve(names[1], str(project.file)) == first.path
    assert store.remove_oldest(Path(first.path).parent, limit_bytes=1) == 1 and not Path(first.path).exists()
    assert (project.folder / ".dice" / ".gitignore").read_text() == "*\n"


def test_a_recording_beside_the_document_may_be_named_and_none_outside(project, tmp_path_factory):
    report = project.run("plain")
    (project.folder / "golden").mkdir()
    shutil.copy(report.path, project.folder / "golden" / "run.capture")
    shutil.copy(report.path, tmp_path_factory.getbasetemp() / "outside.capture")
    named = store.resolve("golden/run.capture", str(project.file))
    assert named == str(project.folder / "golden" / "run.capture")
    scale = [found for found in store.read_file(named) if store.matches(found, project.kernel("scale"))]
    assert len(scale) == 1 and not store.matches(scale[0], project.kernel("bump"))
    assert (
        store.resolve(
            os.path.relpath(tmp_path_factory.getbasetemp() / "outside.capture", project.folder), str(project.file)
        )
        is None
    )


def test_kernels_in_the_strings_of_a_python_file(project, monkeypatch):
    """As PyCUDA and PyTorch take them: two strings are two texts, and each kernel is bound to its own."""
    text = project.file.read_text()
    path = project.folder / "kernels.py"
    path.write_text(f'A = r"""\n{text}"""\nB = """\n__global__ void other(int* x) {{ x[0] = 1; }}\n"""\n')
    os.utime(path, (1, 1))
    report = Project(project.folder, path).run("plain")
    assert report.kernels["scale"] == 1 and report.kernels["other"] == 0
    monkeypatch.delenv("LD_LIBRARY_PATH")
    argv = [sys.executable, "-m", "dice_lsp", "check", "kernels.py", "--kernel", "scale", "--backend", "host", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = process.run(argv, deadline_s=100, cwd=str(project.folder), env=environment, limits=process.Limits())
    verdict = json.loads(done.stdout)["kernels"][0]["verdict"]
    assert verdict["kind"] == "verified" and verdict["reference"] == "what the program left in captured 1", verdict


def test_what_a_killed_command_left_is_kept_by_the_next(project):
    source = session.source_of(str(project.file), read_document(project.file))
    wish = session.Wish((source,), ("./program", "exit"), str(project.folder), str(project.folder))

    def start(argv, environment, where):
        # As after a kill of the command: the program has ended, and nobody has made a recording of its log.
        process.attended(argv, env=environment, cwd=where, on_output=project.output.extend)
        folder = Path(environment["DICE_CAPTURE_FOLDER"])
        shutil.copytree(folder, folder.with_name(".running-killed"))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        session.record(wish, start)
    place = project.folder / ".dice" / "captures"
    assert store.clear(place) == 1, "a run that was stopped keeps what there was"
    assert keeping.recover(place) == [], "it may have an owner who is about to lock it"
    (kept,) = keeping.recover(place, young_s=0)
    assert kept.notes == ("dice-lsp ended before the program did",) and not (place / ".running-killed").exists()
    assert len(project.found("scale")) == 1 and keeping.recover(place, young_s=0) == []


def test_a_damaged_recording_is_told_of_and_gives_nothing(project):
    report = project.run("plain")
    path = Path(report.path)
    whole = path.read_bytes()
    log = recording.read_log(path)
    for stored in log.chunks.values():
        damaged = bytearray(whole)
        for at in range(stored.offset + 2, stored.offset + stored.stored_bytes):
            damaged[at] ^= 0x55
        path.write_bytes(damaged)
        store._cached_log.cache_clear()
        with pytest.raises(CaptureError, match="damaged"):
            for found in store.read_file(str(path)):
                for at in range(len(found.allocations)):
                    store.before(found, at), store.after(found, at)
                for at in range(len(found.symbols)):
                    store.symbol_before(found, at), store.symbol_after(found, at)
    for length in range(0, len(whole), 97):
        path.write_bytes(whole[:length])
        store._cached_log.cache_clear()
        for found in project.found("scale"):
            assert store.matches(found, project.kernel("scale"))
    path.unlink()
    path.symlink_to(project.file)
    assert project.found("scale") == ()


@pytest.mark.parametrize(
    "change", [{"grid": [1]}, {"grid": None}, {"parameters": [{"data": "zz"}]}, {"allocations": [7]}, {"order": 1e400}]
)
def test_a_recording_of_nonsense_is_refused(project, change):
    report = project.run("plain")
    log = recording.read_log(Path(report.path))
    path = Path(report.path).with_name("9-crafted.capture")
    with path.open("wb") as file, recording.opened(log.path) as source:
        recording.Writer(file, log.run).launch({**log.launches[0], **change}, log, source)
    with pytest.raises(CaptureError, match="damaged"):
        store.read_file(str(path))
    assert project.found("bump"), "the older one is still read"


def test_a_store_that_leads_elsewhere_is_refused(project, tmp_path_factory):
    (project.folder / ".dice").symlink_to(tmp_path_factory.mktemp("elsewhere"))
    with pytest.raises(CaptureError, match="leads out of"):
        project.run("plain")


# What keeps it from working, each in one sentence


def test_without_a_gpu(project, monkeypatch):
    monkeypatch.setenv("FAKE_CUINIT", "100")
    with pytest.raises(CaptureError, match=r"finds no GPU \(cuInit says 100\)"):
        project.run("plain")
    monkeypatch.setenv("LD_LIBRARY_PATH", "")
    with pytest.raises(CaptureError, match="no NVIDIA driver is here|finds no GPU"):
        project.run("plain")


def test_without_cupti_without_a_compiler_and_with_another_tool(project, monkeypatch, tmp_path):
    monkeypatch.setattr(library, "find_cupti", lambda *arguments: None)
    with pytest.raises(CaptureError, match="pip install nvidia-cuda-cupti"):
        project.run("plain")
    with pytest.raises(CaptureError, match="no C compiler is here"):
        monkeypatch.setattr(library, "COMPILERS", ())
        library.build(tmp_path)
    monkeypatch.setenv(session.INJECTION, "/opt/profiler.so")
    with pytest.raises(CaptureError, match=r"set already to /opt/profiler.so"):
        project.run("plain")


def test_cupti_that_another_profiler_has(project, monkeypatch):
    monkeypatch.setenv("FAKE_CUPTI_REFUSES", "1")
    report = project.run("plain")
    assert report.path == "" and report.exit_code == 0
    assert report.reason == (
        "CUPTI refuses to tell of launches (CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED): end other profilers,"
        " and check the driver's permissions"
    )


def test_a_program_that_is_not_there_or_launches_nothing(project):
    with pytest.raises(CaptureError, match=r"\./nothing is not there: build it first"):
        project.run(command=("./nothing",))
    with pytest.raises(CaptureError, match=r"program is not on PATH: write \./program"):
        project.run(command=("program",))
    with pytest.raises(CaptureError, match=r"kernels.cu may not be executed: chmod \+x"):
        project.run(command=("./kernels.cu",))
    assert project.run("none").reason == "the program started no CUDA in any process that may be recorded"
    assert project.run("nothing").reason == "the program launched no kernel at all"
    project.file.write_text("__global__ void other(int* x) { x[0] = 1; }\n")
    assert project.run("plain").reason == (
        "the program launched no kernel of kernels.cu, only scale(int, float, float const*, float*), void ours::bump<4>(int*),"
        " empty, library(int)"
    )
    assert list((project.folder / ".dice" / "captures").iterdir()) == [], "nothing is left"


def test_a_compiler_that_fails_says_why(tmp_path, monkeypatch):
    broken = tmp_path / "broken.c"
    broken.write_text("int main(void) { return undeclared; }\n")
    monkeypatch.setattr(library, "SOURCE", broken)
    with pytest.raises(CaptureError, match="could not compile the library that records: .*undeclared"):
        library.build(tmp_path)
    assert not list((tmp_path / "capture").glob("*.so")) and not list((tmp_path / "capture").glob(".build*"))


# For an editor


async def test_an_editor_records_and_a_cancel_ends_the_program(project):
    text = read_document(project.file)
    said: list[str] = []
    report = await session.capture(text, str(project.file), "FAKE=1 ./program exit", on_progress=said.append)
    assert report.kernels["scale"] == 1 and said[-1] == "running ./program exit"
    assert report.notes[-1] == "the program said last: runs exit"
    report = await session.capture(text, str(project.file), "./program plain && rm -rf x")
    assert report.reason and "write `sh -c" in report.reason
    report = await session.capture(text, str(project.file), "./program plain", kernels=["nobody"])
    assert report.reason and "has no kernel nobody" in report.reason


def test_a_run_that_is_cancelled_ends_the_program(project):
    cancelled = threading.Event()
    threading.Timer(1.5, cancelled.set).start()
    with pytest.raises(process.Cancelled):
        session.capture_now(
            read_document(project.file), str(project.file), "sh -c './program exit; exec sleep 60'", cancelled=cancelled
        )
    assert len(project.found("scale")) == 1


@pytest.mark.parametrize(
    ("line", "words", "environment"),
    [
        ("./a.out 1 'two words'", ("./a.out", "1", "two words"), {}),
        ("N=4 M= ./a.out --x=1", ("./a.out", "--x=1"), {"N": "4", "M": ""}),
        ('sh -c "cd x && ./a"', ("sh", "-c", "cd x && ./a"), {}),
        ("./a.out *.bin # 1", ("./a.out", "*.bin", "#", "1"), {}),
    ],
)
def test_words_of_a_command(line, words, environment):
    assert session.words_of(line) == (words, environment)


@pytest.mark.parametrize("line", ["", "A=1", "./a | tee x", "./a > x", "./a; b", "./a 'b", "./a &"])
def test_what_only_a_shell_understands_is_refused(line):
    with pytest.raises(CaptureError):
        session.words_of(line)


# The command


Answer = tuple[int, str, str]


@pytest.fixture
def dice(project: Project, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """The command as it is run in the project's folder: its code, and what it and the program wrote."""
    monkeypatch.chdir(project.folder)

    def run(*words: object) -> Answer:
        capfd.readouterr()
        code = main(["capture", *map(str, words)])
        out, err = capfd.readouterr()
        return code, out, " ".join(err.split())

    return run


def test_the_command_runs_a_program_and_shows_what_it_launched(dice):
    code, out, said = dice("--launches", 2, "--", "./program", "many")
    assert code == 0 and out == "runs many\n", said
    assert "recorded on Fake" in said and "running ./program many" in said
    shown = dice("--show")[1]
    assert "scale(int, float, float const*, float*)  <<<4, 256>>>  launch 61 (larger)" in shown
    assert "4000 bytes of device memory" in shown
    assert "./program many  (bump 2, scale 2)" in dice("--list")[1]
    assert dice("--clear")[1] == "1 recording removed\n", "those that are here"
    assert dice("--show")[0] == 2


def test_the_command_takes_the_line_of_a_file(dice, project):
    code, _, said = dice("kernels.cu", "--kernels", "apply")
    assert code == 0 and "running ./program struct" in said, said
    assert project.found("apply")[0].problems == ()


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["--", "./program", "exit"], 1, "the program ended with code 3; what it launched before is recorded"),
        (["--", "./program", "none"], 1, "the program started no CUDA in any process that may be recorded"),
        (["--file", "kernels.cu", "--kernels", "x", "--", "./program"], 2, "kernels.cu has no kernel x; it has bump"),
        ([], 2, "nothing to run: write `dice-lsp capture --file FILE.cu -- ./program`"),
        (["--file", "none.cu", "--", "./program"], 2, "none.cu does not exist"),
    ],
)
def test_the_command_says_what_went_wrong(dice, words, code, sentence):
    answer = dice(*words)
    assert answer[0] == code and sentence in answer[2]


@pytest.fixture
def interruptible():
    """What is started here minds an interrupt, though a shell has the tests of a background job ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_key_that_interrupts_the_program_does_not_lose_the_recording(project, interruptible):
    script = project.folder / "long.sh"
    script.write_text("#!/bin/sh\n./program exit\nkill -INT 0\nsleep 60\n")
    script.chmod(0o755)
    argv = [sys.executable, "-m", "dice_lsp", "capture", "--file", "kernels.cu", "--", "./long.sh"]
    done = process.run(
        argv,
        deadline_s=50,
        cwd=str(project.folder),
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        limits=process.Limits(),
    )
    assert done.returncode == 1 and b"was ended by SIGINT" in done.stderr, done.stderr.decode()
    assert len(project.found("scale")) == 1


# Names


@pytest.mark.parametrize(
    ("symbol", "parts", "template"),
    [
        ("plain", ("plain",), False),
        ("_Z4statPf", ("stat",), False),
        ("_ZL4statPf", ("stat",), False),
        ("_ZN4ours5scaleIfLi16EEEvPT_i", ("ours", "scale"), True),
        ("_ZN33_GLOBAL__N__89b8bf71_4_t_cu_plain4anonEPf", ("anon",), False),
        ("__nv_static_22__89b8bf71_4_t_cu_plain__Z4statPf", ("stat",), False),
        ("_ZN1a2v13inlEi", ("a", "v1", "inl"), False),
        ("_Z99short", ("_Z99short",), False),
        ("_Z", ("_Z",), False),
    ],
)
def test_parts_of_mangled_names(symbol, parts, template):
    assert parts_of(symbol) == (parts, template)


def test_a_mangled_name_finds_its_kernel_among_overloads():
    kernels = parse(
        "__global__ void k(int* x) {}\n__global__ void k(int* x, int n) {}\n"
        "namespace a { template <class T> __global__ void k(T* x) {} }\n"
    ).kernels
    assert kernels_called("_Z1kPi", 1, kernels) == [kernels[0]]
    assert kernels_called("_Z1kPii", 2, kernels) == [kernels[1]]
    assert kernels_called("_ZN1a1kIfEEvPT_", 1, kernels) == [kernels[2]]
    assert kernels_called("_Z2kkPi", 1, kernels) == []
    assert demangled("_ZN1a1kIfEEvPT_") == "void a::k<float>(float*)"


def test_variables_of_device_code():
    text = """
    __constant__ float a[3] = {1, 2, 3}, b; static __device__ const int c{3}; extern __device__ int d, e[2][N];
    __device__ float f(float x) { return x; } __managed__ int *g; __device__ __constant__ float h = sqrtf(2), i;
    """
    assert device_variables(text)[:8] == ("a", "b", "c", "d", "e", "g", "h")[:8]


# The toolkit


def test_cupti_of_the_drivers_version_is_chosen(tmp_path):
    def put(folder: str, name: str, link: str = "") -> Path:
        path = tmp_path / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(link) if link else path.write_bytes(b"")
        return path

    twelve = put("a", "libcupti.so.2025.1.1")
    put("a", "libcupti.so.12", "libcupti.so.2025.1.1")
    thirteen = put("b", "libcupti.so.13")
    eleven = put("c", "libcupti.so.2022.3.0")
    folders = [str(tmp_path / name) for name in "abc"]
    assert library.find_cupti(13000, {}, folders) == thirteen
    assert library.find_cupti(12040, {}, folders) == twelve
    assert library.find_cupti(11080, {}, folders) == eleven
    assert library.find_cupti(0, {}, folders) == thirteen
    assert library.find_cupti(13000, {}, []) is None


def test_the_numbers_and_layouts_are_those_of_the_toolkits_headers(tmp_path):
    include = next(
        (
            str(folder)
            for folder in (
                Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "include",
                Path("/usr/local/cuda/include"),
            )
            if (folder / "generated_cuda_meta.h").exists()
        ),
        None,
    )
    if include is None:
        pytest.skip("no toolkit with CUPTI's headers is here")
    pairs = {
        "CB_LAUNCH_KERNEL": "cuLaunchKernel", "CB_LAUNCH_KERNEL_PTSZ": "cuLaunchKernel_ptsz",
        "CB_LAUNCH_EX": "cuLaunchKernelEx", "CB_LAUNCH_EX_PTSZ": "cuLaunchKernelEx_ptsz",
        "CB_LAUNCH_COOPERATIVE": "cuLaunchCooperativeKernel",
        "CB_LAUNCH_COOPERATIVE_PTSZ": "cuLaunchCooperativeKernel_ptsz",
        "CB_LAUNCH_MULTI_DEVICE": "cuLaunchCooperativeKernelMultiDevice", "CB_LAUNCH_OLD": "cuLaunch",
        "CB_LAUNCH_GRID": "cuLaunchGrid", "CB_LAUNCH_GRID_ASYNC": "cuLaunchGridAsync",
        "CB_BEGIN_CAPTURE": "cuStreamBeginCapture", "CB_BEGIN_CAPTURE_PTSZ": "cuStreamBeginCapture_ptsz",
        "CB_BEGIN_CAPTURE_V2": "cuStreamBeginCapture_v2", "CB_BEGIN_CAPTURE_V2_PTSZ": "cuStreamBeginCapture_v2_ptsz",
        "CB_BEGIN_CAPTURE_TO_GRAPH": "cuStreamBeginCaptureToGraph",
        "CB_BEGIN_CAPTURE_TO_GRAPH_PTSZ": "cuStreamBeginCaptureToGraph_ptsz",
        "CB_END_CAPTURE": "cuStreamEndCapture", "CB_END_CAPTURE_PTSZ": "cuStreamEndCapture_ptsz",
        "CB_GRAPH_LAUNCH": "cuGraphLaunch", "CB_GRAPH_LAUNCH_PTSZ": "cuGraphLaunch_ptsz",
    }  # fmt: skip
    equal = [f"{ours} == CUPTI_DRIVER_TRACE_CBID_{theirs}" for ours, theirs in pairs.items()]
    equal += [
        "DOMAIN_DRIVER == CUPTI_CB_DOMAIN_DRIVER_API", "DOMAIN_RESOURCE == CUPTI_CB_DOMAIN_RESOURCE",
        "RESOURCE_MODULE_LOADED == CUPTI_CBID_RESOURCE_MODULE_LOADED", "SITE_ENTER == CUPTI_API_ENTER",
        "STATUS_NOT_READY == CUDA_ERROR_NOT_READY", "EVENT_WITHOUT_TIMING == CU_EVENT_DISABLE_TIMING",
        "STREAM_NON_BLOCKING == CU_STREAM_NON_BLOCKING", "CAPTURE_RELAXED == CU_STREAM_CAPTURE_MODE_RELAXED",
        "CAPTURE_ACTIVE == CU_STREAM_CAPTURE_STATUS_ACTIVE",
        "ATTRIBUTE_MEMORY_TYPE == CU_POINTER_ATTRIBUTE_MEMORY_TYPE", "ATTRIBUTE_IS_MANAGED == CU_POINTER_ATTRIBUTE_IS_MANAGED",
        "ATTRIBUTE_RANGE_START == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR",
        "ATTRIBUTE_RANGE_SIZE == CU_POINTER_ATTRIBUTE_RANGE_SIZE", "MEMORY_HOST == CU_MEMORYTYPE_HOST",
        "MEMORY_ARRAY == CU_MEMORYTYPE_ARRAY", "LAUNCH_COOPERATIVE == CU_LAUNCH_ATTRIBUTE_COOPERATIVE",
        "LAUNCH_CLUSTER == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION",
        "sizeof(LaunchAttribute) == sizeof(CUlaunchAttribute)", "sizeof(LaunchConfig) == sizeof(CUlaunchConfig)",
        "offsetof(LaunchAttribute, value) == offsetof(CUlaunchAttribute, value)",
        "offsetof(LaunchConfig, attributes) == offsetof(CUlaunchConfig, attrs)",
        "sizeof(LaunchArguments) == sizeof(cuLaunchKernel_params)",
        "offsetof(LaunchArguments, extra) == sizeof(cuLaunchCooperativeKernel_params)",
        "offsetof(LaunchArguments, parameters) == offsetof(cuLaunchKernel_params, kernelParams)",
        "sizeof(LaunchExArguments) == sizeof(cuLaunchKernelEx_params)",
        "offsetof(LaunchExArguments, parameters) == offsetof(cuLaunchKernelEx_params, kernelParams)",
        "sizeof(ApiCallback) == sizeof(CUpti_CallbackData)", "offsetof(ApiCallback, symbol) == offsetof(CUpti_CallbackData, symbolName)",
        "offsetof(ApiCallback, context) == offsetof(CUpti_CallbackData, context)",
        "sizeof(ModuleResource) == sizeof(CUpti_ModuleResourceData)", "sizeof(ResourceCallback) == sizeof(CUpti_ResourceData)",
    ]  # fmt: skip
    checks = "\n".join(f'_Static_assert({condition}, "{condition}");' for condition in equal)
    text = f'#include "{library.SOURCE}"\n#include <cuda.h>\n#include <cupti.h>\n{checks}\n'
    (tmp_path / "checks.c").write_text(text)
    done = subprocess.run(
        ["cc", "-std=gnu11", "-fsyntax-only", f"-I{include}", str(tmp_path / "checks.c")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[:2000]


def test_the_log_is_read_while_it_is_written(project):
    """Every prefix of a log is read up to its last whole record: a program may be killed anywhere."""
    source = session.source_of(str(project.file), read_document(project.file))
    wish = session.Wish((source,), ("./program", "many"), str(project.folder), str(project.folder))
    logs: list[bytes] = []

    def start(argv, environment, where):
        code = process.attended(argv, env=environment, cwd=where, on_output=project.output.extend)
        (log,) = Path(environment["DICE_CAPTURE_FOLDER"]).glob("*.log")
        logs.append(log.read_bytes())
        return code

    session.record(wish, start)
    whole, path = logs[0], project.folder / "cut.log"
    path.write_bytes(whole)
    most = len(recording.read_log(path).launches)
    counts = []
    for length in range(0, len(whole), max(1, len(whole) // 60)):
        path.write_bytes(whole[:length])
        if length < 8:
            with pytest.raises(CaptureError):
                recording.read_log(path)
        else:
            counts.append(len(recording.read_log(path).launches))
    assert counts == sorted(counts) and counts[0] == 0 and counts[-1] <= most and most > 8
    assert json.dumps(counts)
