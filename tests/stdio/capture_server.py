"""A server whose programs are not run: a recording says what it was asked for and ends as its command says."""

import asyncio
import sys
from pathlib import Path
from typing import Any

from dice_lsp.capture.session import CaptureReport
from dice_lsp.records import Document
from dice_lsp.server import capturing
from dice_lsp.server.app import serve_stdio

LOG = Path(sys.argv[1])


async def record(document: Document, path: str, line: str, **options: Any) -> CaptureReport:
    with LOG.open("a") as file:
        file.write(f"{line} {options['kernels']}\n")
    options["on_progress"](f"running {line}")
    if "wait" in line:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            with LOG.open("a") as file:
                file.write("stopped\n")
            raise
    if "fail" in line:
        return CaptureReport({}, 0, "", "no NVIDIA driver is here: launches are recorded on a machine with a GPU")
    if "burst" in line:
        raise RuntimeError("a bug")
    return CaptureReport({"scale": 3, "other": 0}, 3 << 20, "/x/run.capture", None, ("one launch was too large",))


capturing.record = record
serve_stdio()
