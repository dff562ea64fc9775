"""The model process over its real pipes."""

import asyncio
import gc
import importlib
import os
import signal
import sys
import weakref
from unittest import mock

import attrs
import psutil
import pytest
import torch

from dice_lsp.config import Settings
from dice_lsp.diffusion.client import DiffusionClient, FillUnavailable
from dice_lsp.lease import Lease
from dice_lsp.process import Job
from dice_lsp.records import Candidate, DecodeSettings, to_wire
from tests.diffusion.small import saxpy_request, write_checkpoint


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("psm") / "small", layout="psm")


@pytest.fixture
async def client(folder):
    client = DiffusionClient(Settings(model=str(folder), model_device="cpu"))
    yield client
    await client.close()


async def test_fill_streams_distinct_candidates_and_repeats_for_a_seed(client):
    streamed, progress = [], []
    candidates, stats = await client.fill(
        saxpy_request(candidates=4), on_candidate=streamed.append, on_progress=progress.append
    )
    assert 1 < len(candidates) <= 4 and tuple(streamed) == candidates
    assert len({candidate.text for candidate in candidates}) == len(candidates)
    assert all(candidate.tokens > 0 and candidate.forwards > 0 and candidate.logprob < 0 for candidate in candidates)
    assert stats.checkpoint.endswith("small") and stats.device == "cpu"
    assert stats.forwards > 0 and stats.tokens >= sum(candidate.tokens for candidate in candidates)
    assert progress[-1].done == len(candidates) and progress[-1].total == 4
    info = client.info()
    assert info is not None and info.layout == "psm" and info.device == "cpu"
    again, warm = await client.fill(saxpy_request(candidates=4))
    assert [candidate.text for candidate in again] == [candidate.text for candidate in candidates]
    # The prompt is still in the cache, so that only its passes are missing.
    assert warm.forwards < stats.forwards
    other, _ = await client.fill(saxpy_request(candidates=4, seed=2))
    assert other != candidates


async def test_crlf_documents_keep_their_line_ends(client):
    request = saxpy_request()
    changes = {
        name: getattr(request, name).replace("\n", "\r\n")
        for name in ("kernel_prefix", "kernel_suffix", "file_prefix", "middle")
    }
    candidates, _ = await client.fill(attrs.evolve(request, **changes))
    assert all("\n" not in candidate.text.replace("\r\n", "") for candidate in candidates)
    assert any("\r\n" in candidate.text for candidate in candidates)


async def test_cancel_ends_a_fill_at_once_and_kills_nothing(client):
    await client.start()
    pid = client.pid
    # No end token can come: the fill would take minutes.
    decode = DecodeSettings(strategy="sequential", max_new_tokens=4000, temperature=0.0)
    started = asyncio.Event()
    task = asyncio.create_task(client.fill(saxpy_request(), decode, on_progress=lambda _: started.set()))
    if task.done():
        await task
    done, _ = await asyncio.wait([task, asyncio.create_task(started.wait())], return_when="FIRST_COMPLETED", timeout=60)
    assert done
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    # The child answers the next call only once the cancelled one has ended there.
    assert (await client._child.call("hello", {}, deadline_s=60))["pid"] == pid
    assert client.pid == pid


async def test_a_crash_is_one_sentence_and_the_next_fill_works(client):
    await client.start()
    decode = DecodeSettings(strategy="sequential", max_new_tokens=4000, temperature=0.0)
    progressed = asyncio.Event()
    task = asyncio.create_task(client.fill(saxpy_request(), decode, on_progress=lambda _: progressed.set()))
    await asyncio.wait_for(progressed.wait(), 60)
    os.kill(client.pid, signal.SIGKILL)
    with pytest.raises(FillUnavailable, match="the model process was ended by SIGKILL: .*doctor"):
        await task
    candidates, _ = await client.fill(saxpy_request(candidates=2))
    assert candidates


async def test_close_leaves_no_process(folder):
    client = DiffusionClient(Settings(model=str(folder)))
    await client.start()
    pid = client.pid
    await client.close()
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


REFUSALS = [
    (
        {"model": "nobody/nothing"},
        {},
        "nobody/nothing is not on this machine: run `dice-lsp model pull nobody/nothing`",
    ),
    ({"model": "no such thing"}, {}, "there is no checkpoint 'no such thing': `dice-lsp model list` shows"),
    ({"model_device": "tpu"}, {}, "the model device 'tpu' is unknown: use auto, cpu, cuda or cuda:N"),
    ({}, {"block_size": 5}, "block size 5 is not one that .* was trained with: choose from 4, 8, 16"),
    ({}, {"strategy": "best"}, "strategy 'best' is unknown: choose one of sequential"),
    ({}, {"max_new_tokens": 8190}, "8190 new tokens leave no room for a prompt"),
]


async def test_what_a_user_can_mend_is_said(client):
    settings = client.settings
    for changes, decode, sentence in REFUSALS:
        client.settings = attrs.evolve(settings, **changes)
        with pytest.raises(FillUnavailable, match=sentence) as caught:
            await client.fill(saxpy_request(), DecodeSettings(**decode))
        assert "\n" not in str(caught.value) and not str(caught.value).endswith(".")
    client.settings = settings
    assert (await client.fill(saxpy_request(candidates=1)))[0]


async def test_a_time_budget_ends_a_fill_with_what_is_whole(client):
    request = attrs.evolve(saxpy_request(candidates=64), budget_s=30.0)
    first: list[Candidate] = []
    candidates, _ = await client.fill(request, DecodeSettings(max_new_tokens=16), on_candidate=first.append)
    assert len(candidates) == 64, "half a minute is more than small fills need"
    decode = DecodeSettings(strategy="sequential", max_new_tokens=4000, temperature=0.0)
    with pytest.raises(FillUnavailable, match="no candidate was whole within 0.3 s: raise dice.fillBudgetS"):
        await client.fill(attrs.evolve(request, budget_s=0.3), decode)


async def test_int8_on_the_cpu(client):
    client.settings = attrs.evolve(client.settings, model_precision="int8")
    candidates, _ = await client.fill(saxpy_request(candidates=2))
    assert candidates


async def test_what_the_next_fill_would_wait_for_is_prepared_in_idle_time(folder, tmp_path):
    """Each number of rows once, while nothing else is asked; a card that is in use is left alone."""
    script = """
import sys
import dice_lsp.diffusion.__main__ as child
from dice_lsp.lease import Lease

child._lease_of = lambda device: Lease("13", sys.argv[1])

class Cold(child.Models):
    def _read(self, params, place):
        resident = super()._read(params, place)
        resident.cold.extend([8, 4])
        resident.network.warm = lambda rows: open(sys.argv[2], "a").write(f"{rows} ")
        return resident

child.Models = Cold
child.main()
"""
    leases, seen = str(tmp_path / "leases"), tmp_path / "seen"
    client = DiffusionClient(
        Settings(model=str(folder), model_device="cpu"), [sys.executable, "-c", script, leases, str(seen)]
    )
    lease = Lease("13", leases)
    try:
        with lease.hold("a test", wait_s=1):
            await client.start()
            assert (await client._child.call("hello", {}, deadline_s=60))["pid"] == client.pid
            assert not seen.exists()
        await until(lambda: seen.exists() and seen.read_text() == "4 8 ")
        assert (await client.fill(saxpy_request(candidates=1)))[0]
        assert seen.read_text() == "4 8 "
    finally:
        await client.close()


async def test_a_gpu_that_is_not_there_falls_back_with_a_word(client):
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    client.settings = attrs.evolve(client.settings, model_device="cuda")
    info = await client.start()
    assert info.device == "cpu" and "no CUDA device can be used by torch" in info.message


async def test_dice_layout_over_the_pipes(tmp_path):
    folder = write_checkpoint(tmp_path / "dice", layout="dice")
    template = tmp_path / "prompt.txt"
    template.write_text("Fill it.\n$architecture\n$prefix\nGAP\n$suffix\n")
    settings = Settings(model=str(folder), model_device="cpu", prompt_template=str(template))
    client = DiffusionClient(settings)
    try:
        candidates, stats = await client.fill(saxpy_request(candidates=3), DecodeSettings(max_new_tokens=64))
        assert candidates and stats.tokens > 0
        assert all("```" not in candidate.text for candidate in candidates)
        template.write_text("$prefix $nonsense")
        with pytest.raises(FillUnavailable, match=r"unknown placeholder \$nonsense"):
            await client.fill(saxpy_request())
    finally:
        await client.close()


def test_the_client_imports_no_torch():
    import subprocess
    import sys

    code = "import dice_lsp.diffusion.client, sys; print([m for m in ('torch', 'numpy', 'transformers') if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


LEASED = """
import sys
import dice_lsp.diffusion.__main__ as child
from dice_lsp.lease import Lease

child._lease_of = lambda device: Lease("12", sys.argv[1])
child.LEASE_WAIT_S = float(sys.argv[2])
child.main()
"""


async def until(condition) -> None:
    for _ in range(1200):
        if condition():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("it did not happen within a minute")


async def test_a_fill_pauses_between_two_steps_while_the_card_is_wanted_and_goes_on(folder, tmp_path):
    """The model computes on the CPU here, with the lock of a card as if it computed there."""
    settings = Settings(model=str(folder), model_device="cpu")
    leases = str(tmp_path / "leases")
    client = DiffusionClient(settings, [sys.executable, "-c", LEASED, leases, "60"])
    steps = []
    decode = DecodeSettings(strategy="sequential", max_new_tokens=4000, temperature=0.0)
    task = asyncio.create_task(client.fill(saxpy_request(), decode, on_progress=steps.append))
    try:
        await until(lambda: steps or task.done())
        lease = Lease("12", leases)
        told = []
        for _ in range(2):
            await asyncio.to_thread(lease.acquire, "timing saxpy", wait_s=60, on_wait=told.append)
            assert lease.holder().purpose == "timing saxpy"
            await asyncio.sleep(0.3)
            before = len(steps)
            await asyncio.sleep(1.0)
            assert len(steps) == before and not task.done()
            lease.release()
            await until(lambda before=before: len(steps) > before + 2)
        # A fill that waits can be cancelled, and leaves nothing held.
        await asyncio.to_thread(lease.acquire, "timing saxpy", wait_s=60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        lease.release()
        assert (await client._child.call("hello", {}, deadline_s=10))["pid"] == client.pid
        with lease.hold("timing saxpy", wait_s=5):
            pass
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await client.close()


async def test_a_fill_that_gets_no_turn_says_who_has_the_card(folder, tmp_path):
    leases = str(tmp_path / "leases")
    client = DiffusionClient(Settings(model=str(folder)), [sys.executable, "-c", LEASED, leases, "0.2"])
    try:
        await client.start()
        with Lease("12", leases).hold("timing saxpy", wait_s=0):
            words = rf"the GPU is in use by process {os.getpid()} \(dice-lsp, timing saxpy\): try again"
            with pytest.raises(FillUnavailable, match=words):
                await client.fill(saxpy_request())
        assert (await client.fill(saxpy_request(candidates=1)))[0]
    finally:
        await client.close()


def test_a_device_without_room_is_let_go_before_the_cpu_goes_on(tmp_path, monkeypatch):
    """What the failed pass held would stay reserved on the card, where kernels are judged."""
    # The process sets variables for itself when it is imported, which the hub's client reads when that is.
    importlib.import_module("huggingface_hub.constants")
    with mock.patch.dict(os.environ):
        from dice_lsp.diffusion.__main__ import Models
    models, messages = Models(), []
    job = Job(1, messages.append)
    decode, read = Models._decode, Models._read
    networks: list[weakref.ref] = []
    alive: list[bool] = []

    def no_room(self, resident, *rest):
        networks.append(weakref.ref(resident.loaded.network))
        if len(networks) == 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return decode(self, resident, *rest)

    def looking(self, *arguments):
        gc.collect()
        alive.extend(network() is not None for network in networks)
        return read(self, *arguments)

    monkeypatch.setattr(Models, "_decode", no_room)
    monkeypatch.setattr(Models, "_read", looking)
    params = {"model": str(write_checkpoint(tmp_path / "small")), "device": "cpu", "template": None}
    params |= {
        "precision": "auto",
        "request": to_wire(saxpy_request(candidates=2)),
        "decode": to_wire(DecodeSettings()),
    }
    answer = models.fill(params, job)
    assert answer["candidates"] and answer["stats"]["device"] == "cpu"
    assert alive == [False]
    loaded = [message["data"] for message in messages if message.get("event") == "loaded"]
    assert len(loaded) == 2 and "the GPU has too little free memory" in loaded[1]["message"]
