"""Real programs, built by nvcc, recorded on the card: what is recorded is what they do."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from dice_lsp import process
from dice_lsp.capture import session, store
from dice_lsp.capture.session import CaptureReport
from dice_lsp.capture.store import Recorded
from dice_lsp.command_line import read_document
from dice_lsp.records import Judged, JudgeJob, Kernel, Verified, from_wire, to_wire
from dice_lsp.source.kernels import parse
from dice_lsp.source.launches import launch_spec
from dice_lsp.source.slice import device_slice, kernel_slice_key
from tests.gpu.support import record

PROGRAMS = Path(__file__).parent.parent / "data" / "capture" / "programs"
RUNTIMES = ("static", "shared")


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every program with the CUDA runtime linked statically, as nvcc does, and as a shared library."""
    folder = tmp_path_factory.mktemp("programs")
    (folder / ".git").mkdir()
    running = []
    for source in PROGRAMS.glob("*.cu"):
        shutil.copy(source, folder)
        for runtime in RUNTIMES:
            target = folder / f"{source.stem}_{runtime}"
            command = [
                "nvcc",
                "-arch=sm_90",
                "-std=c++17",
                "-cudart",
                runtime,
                str(folder / source.name),
                "-o",
                str(target),
            ]
            running.append(subprocess.Popen(command))
    assert [done.wait() for done in running] == [0] * len(running)
    return folder


def captured(folder: Path, program: str, runtime: str = "static", **more: int) -> CaptureReport:
    path = folder / f"{program}.cu"
    source = session.source_of(str(path), read_document(path))
    wish = session.Wish((source,), (f"./{program}_{runtime}",), str(folder), str(folder), **more)
    output = bytearray()

    def start(argv, environment, where):
        return process.attended(argv, env=environment, cwd=where, on_output=output.extend, deadline_s=60)

    report = session.record(wish, start)
    assert report.reason is None and report.exit_code == 0, (report, output.decode())
    return report


def launches(folder: Path, program: str, name: str) -> tuple[Kernel, tuple[Recorded, ...]]:
    path = folder / f"{program}.cu"
    model = parse(path.read_text())
    kernel = next(kernel for kernel in model.kernels if kernel.name == name)
    key = kernel_slice_key(device_slice(model.text).text, kernel, model.kernels)
    found = store.find(str(path), kernel, key)
    assert found and not any(recorded.launch.stale for recorded in found)
    return kernel, found


def scalar(recorded: Recorded, index: int) -> int:
    return int.from_bytes(recorded.parameters[index].data, "little")


def behind(recorded: Recorded, address: int, dtype: type, count: int, *, after: bool) -> np.ndarray:
    """What a pointer leads to."""
    (at,) = [i for i, of in enumerate(recorded.allocations) if 0 <= address - of.address < of.nbytes]
    data = store.after(recorded, at) if after else store.before(recorded, at)
    assert data is not None
    start = address - recorded.allocations[at].address
    return data[start : start + count * np.dtype(dtype).itemsize].view(dtype)


def counted(recorded: Recorded) -> list[int]:
    """`steps_done` of the device, before and after a launch."""
    (at,) = [i for i, symbol in enumerate(recorded.symbols) if symbol.name == "steps_done"]
    return [int(read(recorded, at).view(np.uint32)[0]) for read in (store.symbol_before, store.symbol_after)]


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_dynamic_shared_memory_and_each_size(built, runtime):
    report = captured(built, "row_sums", runtime)
    assert report.kernels == {"row_sums": 3}
    _, found = launches(built, "row_sums", "row_sums")
    seen = [(recorded.grid, recorded.block, recorded.smem_bytes, scalar(recorded, 2)) for recorded in found]
    assert seen == [
        ((37, 1, 1), (64, 1, 1), 256, 64), ((37, 1, 1), (256, 1, 1), 1024, 1000), ((37, 1, 1), (256, 1, 1), 1024, 333),
    ]  # fmt: skip
    for recorded in found:
        columns = scalar(recorded, 2)
        x = behind(recorded, scalar(recorded, 0), np.float32, 37 * columns, after=False)
        assert np.array_equal(x, np.arange(37 * columns, dtype=np.float32) % 101 * np.float32(0.25))
        sums = behind(recorded, scalar(recorded, 1), np.float32, 37, after=True)
        assert np.allclose(sums, x.reshape(37, columns).sum(1), rtol=1e-5)
        assert recorded.problems == ()


def test_a_template_is_recorded_with_its_arguments(built):
    captured(built, "tiled")
    _, found = launches(built, "tiled", "transposed")
    assert [recorded.kernel.partition("(")[0] for recorded in found] == [
        "void ours::transposed<float, 16>",
        "void ours::transposed<double, 8>",
    ]
    for recorded, dtype in zip(found, (np.float32, np.float64), strict=True):
        rows, columns = scalar(recorded, 2), scalar(recorded, 3)
        a = behind(recorded, scalar(recorded, 0), dtype, rows * columns, after=False)
        b = behind(recorded, scalar(recorded, 1), dtype, rows * columns, after=True)
        assert np.array_equal(a.reshape(rows, columns).T, b.reshape(columns, rows))


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_managed_memory_a_struct_and_variables_of_the_device(built, runtime):
    report = captured(built, "heat", runtime)
    assert report.kept is not None and [count.seen for count in report.kept.kernels] == [40, 40]
    _, found = launches(built, "heat", "heat")
    assert found[0].order == 1 and 2 <= len(found) <= session.DEFAULT_LAUNCHES
    for recorded in found:
        struct = recorded.parameters[0].data
        n, now, following = (int.from_bytes(struct[at : at + size], "little") for at, size in ((0, 4), (8, 8), (16, 8)))
        assert n == 5000 and {of.kind for of in recorded.allocations} == {"managed"}
        before = behind(recorded, now, np.float32, n, after=False)
        after = behind(recorded, following, np.float32, n, after=True)
        padded = np.pad(before, 1)
        weights = np.float32([0.25, 0.5, 0.25])
        mixed = weights[0] * padded[:-2] + weights[1] * padded[1:-1] + weights[2] * padded[2:]
        expected = (mixed.astype(np.float64) * 0.999).astype(np.float32) - np.float32(0.001)
        assert np.allclose(after, expected, rtol=1e-6, atol=1e-6)
        symbols = {symbol.name: at for at, symbol in enumerate(recorded.symbols)}
        assert np.array_equal(store.symbol_before(recorded, symbols["weights"]).view(np.float32), weights)
        assert counted(recorded) == [recorded.order, recorded.order]
    _, steps = launches(built, "heat", "count_step")
    assert steps[0].parameters == () and all(counted(step) == [step.order - 1, step.order] for step in steps)


def test_every_way_to_launch(built):
    report = captured(built, "ways", launches=8)
    assert any("CUDA graphs" in note for note in report.notes)
    _, added = launches(built, "ways", "add")
    shapes = [(recorded.grid[0], recorded.cluster[0], bool(recorded.problems)) for recorded in added]
    assert (16, 1, False) in shapes and (16, 2, False) in shapes, "streams, and a launch with a cluster"
    assert (32, 1, True) in shapes and (64, 1, False) in shapes, "within a graph, and from another thread"
    for recorded in added:
        if not recorded.problems:
            x, by = scalar(recorded, 2), np.frombuffer(recorded.parameters[1].data, np.float32)[0]
            before, after = (behind(recorded, x, np.float32, 4096, after=when) for when in (False, True))
            assert np.array_equal(before + by, after)
    _, (ring,) = launches(built, "ways", "spread")
    assert ring.cooperative
    _, (pinned,) = launches(built, "ways", "from_host")
    assert [of.kind for of in pinned.allocations] == ["host", "device"]
    assert np.array_equal(
        behind(pinned, scalar(pinned, 0), np.float32, 4096, after=False), np.arange(4096, dtype=np.float32)
    )


@pytest.mark.parametrize(
    ("program", "name"), [("row_sums", "row_sums"), ("tiled", "transposed"), ("heat", "heat"), ("ways", "from_host")]
)
def test_a_recorded_launch_runs_again_to_the_same_bits(built, bench, program, name):
    captured(built, program)
    path = built / f"{program}.cu"
    model = parse(path.read_text())
    kernel = next(kernel for kernel in model.kernels if kernel.name == name)
    job = JudgeJob(model.text, str(path), kernel, launch_spec(model.text, kernel, model), benchmark=False)
    settings = {"backend": bench.backend.kind}
    judged = from_wire(bench.worker.judge({"settings": settings, "job": to_wire(job)}, bench.call()), Judged)
    assert isinstance(judged.verdict, Verified), judged.verdict
    assert judged.verdict.reference.startswith("what the program left"), judged.verdict
    assert judged.verdict.max_error == 0.0
    record("capture", bench.backend.kind, f"{name} of {program}.cu", judged.verdict.cases, judged.verdict.reference)
