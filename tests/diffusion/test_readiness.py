"""A checkpoint that takes long to load: who waits may leave, the load goes on, and what is said of it is true."""

import asyncio
import sys
import textwrap
from pathlib import Path

import pytest

from dice_lsp.config import Settings
from dice_lsp.diffusion.client import DiffusionClient, FillUnavailable
from dice_lsp.records import FillRequest

REQUEST = FillRequest("", "", "", "", None, None, "", "", 1)
CHILD = """
    import os, time
    from dice_lsp.process import serve

    def load(params, job):
        open({loads!r}, "a").write("x")
        time.sleep({seconds})
        if params["model"] == "broken":
            os._exit(3)
        if params["model"] == "missing":
            return {{"refused": "there is no such model; pull it first"}}
        return {{"checkpoint": "slow", "layout": "", "device": "cpu", "precision": "fp32", "parameters": 1, "message": ""}}

    def fill(params, job):
        stats = {{"elapsed_ms": 1.0, "forwards": 1, "tokens": 1, "checkpoint": "slow", "device": "cpu"}}
        return {{"candidates": [{{"text": "x", "logprob": 0.0, "tokens": 1, "forwards": 1}}], "stats": stats}}

    serve({{"load": load, "fill": fill}})
"""


def client(tmp_path: Path, model: str = "tiny", seconds: float = 1.0) -> tuple[DiffusionClient, Path]:
    loads = tmp_path / "loads"
    script = textwrap.dedent(CHILD).format(loads=str(loads), seconds=seconds)
    made = DiffusionClient(Settings(model=model), [sys.executable, "-c", script])
    # Far less than the load takes: a load that is waited for as a call would be ended by a cancel.
    made._child.grace_s = 0.1
    return made, loads


async def test_a_cancel_does_not_end_a_load(tmp_path: Path) -> None:
    slow, loads = client(tmp_path)
    heard: list[str] = []
    slow.on_readiness = lambda: heard.append(slow.readiness.state)
    try:
        first = asyncio.create_task(slow.fill(REQUEST))
        while not loads.exists():
            await asyncio.sleep(0.01)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert slow.readiness.state == "loading", "it was answered before the load had ended"
        await asyncio.sleep(0.3)
        candidates, _ = await slow.fill(REQUEST)
        assert (
            [item.text for item in candidates] == ["x"] and loads.read_text() == "x" and heard == ["loading", "ready"]
        )
    finally:
        await slow.close()
    assert slow.readiness.state == "off"


@pytest.mark.parametrize(("model", "said"), [("missing", "pull it first"), ("broken", "dice-lsp doctor")])
async def test_a_load_that_fails_says_why_and_is_tried_again(tmp_path: Path, model: str, said: str) -> None:
    failing, loads = client(tmp_path, model, 0.0)
    try:
        for times in (1, 2):
            with pytest.raises(FillUnavailable, match=said):
                await failing.fill(REQUEST)
            assert failing.readiness.state == "failed" and said in failing.readiness.reason
            assert len(loads.read_text()) == times
    finally:
        await failing.close()


async def test_a_process_that_ends_by_itself_is_noticed_and_replaced(tmp_path: Path) -> None:
    idle, loads = client(tmp_path, seconds=0.0)
    try:
        await idle.start()
        died = asyncio.Event()
        idle.on_readiness = lambda: died.set() if idle.readiness.state == "failed" else None
        process = idle._child._process
        assert process is not None
        process.kill()
        await asyncio.wait_for(died.wait(), 30)
        assert "SIGKILL" in idle.readiness.reason and "the next fill starts it again" in idle.readiness.reason
        await idle.fill(REQUEST)
        assert idle.readiness.state == "ready" and loads.read_text() == "xx"
    finally:
        await idle.close()
