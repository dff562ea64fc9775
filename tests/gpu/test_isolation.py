"""On a card: how its runner is confined, and that a model there and a stopwatch take turns."""

import asyncio
import glob
import os
from pathlib import Path

import pytest

from dice_lsp.config import Settings
from dice_lsp.diffusion.client import DecodeProgress, DiffusionClient
from dice_lsp.lease import Lease
from dice_lsp.records import DecodeSettings, Timing, Verified
from dice_lsp.worker import confine
from tests.diffusion.small import saxpy_request, write_checkpoint
from tests.gpu.support import Bench, record, saxpy


def test_the_runner_is_confined_by_all_that_this_kernel_has(bench: Bench) -> None:
    assert isinstance(bench.judge(saxpy(), "saxpy", benchmark=False).verdict, Verified)
    said, pid = bench.backend.isolation, bench.backend.runner_pid
    status = dict(
        line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line
    )
    written = sorted(
        os.readlink(path)
        for path in glob.glob(f"/proc/{pid}/fd/*")
        if int(Path(path.replace("/fd/", "/fdinfo/")).read_text().split("flags:")[1].split()[0], 8) & 3
    )
    files = sorted({path for path in written if path.startswith("/")})
    record("isolation", bench.backend.kind, said, f"seccomp {status['Seccomp'].strip()}", ", ".join(files))
    assert said == confine.words(confine.landlock_abi() > 0, confine.seccomp_usable())
    assert status["NoNewPrivs"].strip() == "1"
    assert (status["Seccomp"].strip() == "2") == confine.seccomp_usable()
    assert all(path.startswith(("/dev/nvidia", "/dev/null", "/memfd:")) for path in files), files


async def test_a_fill_and_a_timing_on_one_card_take_turns(bench: Bench, tmp_path: Path) -> None:
    """The model's steps stop while a kernel is judged and go on afterwards; the figure is as without it."""
    alone = bench.judge(saxpy(), "saxpy").timing
    assert isinstance(alone, Timing), alone
    folder = write_checkpoint(tmp_path / "small", layout="psm")
    client = DiffusionClient(Settings(model=str(folder), model_device="cuda"))
    steps: list[DecodeProgress] = []
    decode = DecodeSettings(strategy="sequential", max_new_tokens=6000, temperature=0.0)
    assert bench.backend.lease is not None
    try:
        info = await client.start()
        assert info.device.startswith("cuda"), info
        task = asyncio.create_task(client.fill(saxpy_request(), decode, on_progress=steps.append))
        while not steps:
            await asyncio.sleep(0.02)
            assert not task.done(), task.result()
        beside = (await asyncio.to_thread(bench.judge, saxpy(), "saxpy")).timing
        assert isinstance(beside, Timing), beside
        before = len(steps)
        while len(steps) < before + 3:
            await asyncio.sleep(0.02)
            assert not task.done(), "the fill ended before it could go on"
        other = Lease(bench.backend.info.attributes["uuid"])  # type: ignore[union-attr]
        await asyncio.to_thread(other.acquire, "a test", wait_s=60)
        await asyncio.sleep(0.3)
        held = len(steps)
        await asyncio.sleep(0.7)
        during = len(steps) - held
        other.release()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    finally:
        await client.close()
    record("turns", bench.backend.kind, f"{alone.median_us:.2f}", f"{beside.median_us:.2f}", during)
    assert during == 0
