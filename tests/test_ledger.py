"""The history at hand while readings, writings and the user's choice overtake each other."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from dice_lsp.history import History
from dice_lsp.server.ledger import Ledger
from dice_lsp.workspace import FOLDER, WorkspaceFile
from tests.reports import baseline

URI = "file:///work/saxpy.cu"


async def test_what_is_kept_during_a_reading_is_not_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger(lambda uri: WorkspaceFile(tmp_path / FOLDER, "saxpy.cu"))
    await ledger.accept(URI, "other", baseline())
    reading, go_on = threading.Event(), threading.Event()
    read = History.baselines

    def slow(history: History, file: str) -> Any:
        found = read(history, file)
        reading.set()
        assert go_on.wait(10)
        return found

    monkeypatch.setattr(History, "baselines", slow)
    loading = asyncio.create_task(ledger.load(URI, ["saxpy"]))
    await asyncio.to_thread(reading.wait, 10)
    accepting = asyncio.create_task(ledger.accept(URI, "saxpy", baseline()))
    await asyncio.sleep(0)
    assert ledger.known(URI, "saxpy").baseline is not None
    go_on.set()
    await asyncio.gather(loading, accepting)
    assert ledger.known(URI, "saxpy").baseline is not None
    await ledger.close()
