"""The first baseline of a kernel: what becomes of it while it is compiled, and what is said when it cannot be kept."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from dice_lsp.config import Settings
from dice_lsp.records import Compiled, Document, KernelReport
from dice_lsp.server.app import build
from dice_lsp.server.arguments import HistoryParams, KernelArguments
from dice_lsp.server.baselines import record
from dice_lsp.server.session import DiceServer
from tests.reports import BUILD, CUBIN, report

TEXT = "__global__ void saxpy(float* x, int n) {\n    x[threadIdx.x] = n;\n}\n"
KEPT = attrs.evolve(BUILD, cubin=CUBIN)


class Compiler:
    """An engine whose compiles end when the test says so, with what the test says."""

    def __init__(self) -> None:
        self.on_status: Callable[[], None] | None = None
        self.asked: list[asyncio.Future[Compiled | str]] = []

    async def code(self, document: Document, path: str, kernel_id: str, *, settings: Any = None) -> Compiled | str:
        self.asked.append(asyncio.get_running_loop().create_future())
        return await self.asked[-1]

    async def asked_for(self, count: int) -> None:
        async with asyncio.timeout(60):
            while len(self.asked) < count:
                await asyncio.sleep(0.01)


@pytest.fixture
def compiler() -> Compiler:
    return Compiler()


@pytest.fixture
async def server(compiler: Compiler, tmp_path: Path) -> DiceServer:
    (tmp_path / ".git").mkdir()
    server = build(Settings(), lambda settings: compiler)  # type: ignore[arg-type,return-value]
    server.documents.put(uri_of(tmp_path), 1, TEXT)
    return server


def uri_of(folder: Path) -> str:
    return (folder / "saxpy.cu").as_uri()


async def checked(server: DiceServer, uri: str) -> tuple[KernelReport, "asyncio.Task[None]"]:
    """A check of the kernel ends; the task that keeps its report, as the server starts one."""
    snapshot = await server.documents.exact(uri)
    assert snapshot is not None
    found = report()
    server.results.put_report(uri, found, snapshot.keys["saxpy"])
    return found, asyncio.create_task(record(server, snapshot, found))


async def history(server: DiceServer, uri: str) -> dict[str, Any]:
    found: dict[str, Any] = await server.protocol.fm.features["dice/history"](HistoryParams(uri, "saxpy"))
    return found


async def test_an_accepted_baseline_outlives_a_first_one_that_was_still_being_compiled(
    server: DiceServer, compiler: Compiler, tmp_path: Path
) -> None:
    uri = uri_of(tmp_path)
    _, keeping = await checked(server, uri)
    await compiler.asked_for(1)
    accept = server.protocol.fm.commands["dice.acceptBaseline"]
    accepting = asyncio.create_task(accept(KernelArguments(uri, "saxpy")))
    await compiler.asked_for(2)
    compiler.asked[1].set_result(attrs.evolve(KEPT, registers=41))
    assert await accepting == {"accepted": True, "reason": None}
    compiler.asked[0].set_result(KEPT)
    await keeping
    snapshot = await server.documents.exact(uri)
    assert snapshot is not None
    shown = server.results.report(uri, "saxpy", snapshot.keys["saxpy"])
    at_hand = server.ledger.known(uri, "saxpy").baseline
    server.ledger.close_document(uri)
    for each in (
        at_hand,
        shown and shown.baseline,
        (await history(server, uri)) and server.ledger.known(uri, "saxpy").baseline,
    ):
        assert each is not None and each.origin == "accepted" and each.build.registers == 41
    await server.ledger.close()


async def test_a_first_baseline_that_is_refused_says_why_until_a_check_brings_one(
    server: DiceServer, compiler: Compiler, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    uri = uri_of(tmp_path)
    caplog.set_level(logging.INFO, "dice_lsp.server.baselines")
    _, keeping = await checked(server, uri)
    await compiler.asked_for(1)
    compiler.asked[0].set_result("it was not compiled: the worker died")
    await keeping
    assert len(compiler.asked) == 1, "a compile that was cut short counts against its text: it is not tried again"
    said = "the verified version was not kept as the first baseline: it was not compiled: the worker died; check the kernel again"
    assert [item.getMessage() for item in caplog.records] == [
        "saxpy is no first baseline: it was not compiled: the worker died"
    ]
    for _ in range(2):
        found = await history(server, uri)
        assert found["baseline"] is None and found["problem"] == said and len(found["measurements"]) == 1
    _, keeping = await checked(server, uri)
    await compiler.asked_for(2)
    compiler.asked[1].set_result(KEPT)
    await keeping
    found = await history(server, uri)
    assert found["problem"] is None and found["baseline"]["origin"] == "first"
    await server.ledger.close()
