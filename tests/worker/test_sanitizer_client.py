"""Whatever else is asked of the worker ends compute-sanitizer at once, and it never waits in front of anything."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dice_lsp.config import Settings
from dice_lsp.records import JudgeJob, Sanitized
from dice_lsp.source.kernels import parse
from dice_lsp.source.launches import launch_spec
from dice_lsp.worker.client import MAX_DEATHS, WorkerClient

TEXT = "//dice: n = 8; io x[n]; launch <<<1, 8>>>\n__global__ void f(int n, float* x) { x[threadIdx.x] = NAME; }\n"
WORKER = """
import os, sys, time
from dice_lsp import process

log = open(sys.argv[1], "a", buffering=1)

def sanitize(params, job):
    text = params["job"]["text"]
    print("sanitize", file=log)
    if "dies" in text:
        os._exit(3)
    if "busy" in text:
        return None
    if "slow" in text:
        while not job.cancelled.wait(0.02):
            pass
        print("cancelled", file=log)
        job.check()
    return {"tools": ["memcheck"], "findings": [], "reason": ""}

def judge(params, job):
    print("judge", file=log)
    raise ValueError("nothing is judged here")

process.serve({"sanitize": sanitize, "judge": judge, "hello": lambda params, job: {"here": {}}})
"""


def job(name: str) -> JudgeJob:
    text = TEXT.replace("NAME", name)
    model = parse(text)
    return JudgeJob(text, "/nowhere/f.cu", model.kernels[0], launch_spec(text, model.kernels[0], model))


class Client:
    def __init__(self, folder: Path) -> None:
        self.log = folder / "log"
        self.log.touch()
        (folder / "worker.py").write_text(WORKER)
        self.client = WorkerClient(Settings())
        self.client._judging.child.argv = [sys.executable, str(folder / "worker.py"), str(self.log)]

    def said(self) -> list[str]:
        return self.log.read_text().split()

    async def until(self, *words: str) -> None:
        async with asyncio.timeout(60):
            while self.said() != list(words):
                await asyncio.sleep(0.01)


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    made = Client(tmp_path)
    yield made
    await made.client.close()


async def test_what_the_worker_says_is_the_answer(client: Client) -> None:
    assert await client.client.sanitize(job("quick")) == Sanitized(("memcheck",), (), "")
    assert await client.client.sanitize(job("busy")) is None


async def test_a_judgement_ends_it_at_once_and_it_says_so(client: Client) -> None:
    running = asyncio.create_task(client.client.sanitize(job("slow")))
    await client.until("sanitize")
    judged = await client.client.judge(job("slow"))
    assert "nothing is judged here" in str(judged.build)
    assert await running is None
    await client.until("sanitize", "cancelled", "judge")
    assert client.client.starts == 1, "the worker ended the call itself and did not have to be killed"


async def test_it_does_not_wait_behind_others(client: Client) -> None:
    running = asyncio.create_task(client.client.sanitize(job("slow")))
    await client.until("sanitize")
    assert await client.client.sanitize(job("quick")) is None
    client.client.interrupt()
    assert await running is None


async def test_a_caller_that_is_cancelled_cancels_it_in_the_worker(client: Client) -> None:
    running = asyncio.create_task(client.client.sanitize(job("slow")))
    await client.until("sanitize")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await client.until("sanitize", "cancelled")
    assert await client.client.sanitize(job("quick")) == Sanitized(("memcheck",), (), "")


async def test_a_worker_that_dies_of_it_is_a_reason_and_is_not_asked_for_ever(client: Client) -> None:
    for _ in range(MAX_DEATHS):
        found = await client.client.sanitize(job("dies"))
        assert found is not None and not found.tools and "ended with code 3" in found.reason
    found = await client.client.sanitize(job("dies"))
    assert found is not None and "not tried again" in found.reason
    assert client.said() == ["sanitize"] * MAX_DEATHS
    assert await client.client.sanitize(job("quick")) == Sanitized(("memcheck",), (), "")
