"""A server as on a machine with a card: every check is verified at once, and compute-sanitizer says what it is told to.

`python -m tests.stdio.card_server FOLDER` keeps what its engine is asked in `FOLDER/log`. What compute-sanitizer answers of
a kernel is in `FOLDER/NAME.json`, in the wire form of `Sanitized`; where there is no such file it runs until it is stopped.
"""

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dice_lsp.config import Settings
from dice_lsp.pipeline import EngineStatus, OnReport
from dice_lsp.process import Readiness
from dice_lsp.records import (
    Baseline,
    Compiled,
    Document,
    Evidence,
    FillReport,
    KernelReport,
    NotCompared,
    NotTimed,
    Sanitized,
    Verified,
    from_wire,
)
from dice_lsp.server.app import serve_stdio
from dice_lsp.source.kernels import parse
from dice_lsp.source.launches import launch_spec
from dice_lsp.source.slice import device_slice, kernel_slice_key

FOLDER = Path(sys.argv[1])
BUILD = Compiled("sm_90", "nvrtc 13.5", "f", 40, 0, 0, 0, 0, 256, 1.0, "none", 90.0, cubin=b"code")


def log(*words: str) -> None:
    with (FOLDER / "log").open("a") as file:
        print(*words, file=file)


class CardEngine:
    """Answers as `pipeline.Engine` would, without its children."""

    def __init__(self, settings: Settings) -> None:
        self.on_status: Any = None
        ready = Readiness("ready")
        self.status = EngineStatus("tiny", "cpu", ready, "NVIDIA H200", "580", "nvrtc 13.5", ready)

    async def start(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def fill(self, *arguments: Any, **options: Any) -> FillReport:
        return FillReport(None, (), "this engine fills nothing")

    async def code(self, *arguments: Any, **options: Any) -> Compiled:
        return BUILD

    async def check(
        self,
        document: Document,
        path: str,
        *,
        kernels: Sequence[str] | None = None,
        baselines: Mapping[str, Baseline],
        on_report: OnReport,
        **options: Any,
    ) -> tuple[KernelReport, ...]:
        model = parse(document.text)
        reports = []
        for kernel in model.kernels:
            if kernels is not None and kernel.id not in kernels:
                continue
            log("check", kernel.id)
            key = kernel_slice_key(device_slice(document.text).text, kernel, model.kernels)
            evidence = Evidence(f"evidence {key}", key, "NVIDIA H200", "580", "nvrtc 13.5", "2026-11-30T12:00:00+00:00")
            verdict = Verified(5, 0.1, "NVIDIA H200", f"{kernel.id}_cpu", ("bounds",))
            spec = launch_spec(document.text, kernel, model)
            not_timed, not_compared = NotTimed("not timed here"), NotCompared("not timed here")
            baseline = baselines.get(kernel.id)
            report = KernelReport(
                kernel.id, kernel.line, spec, BUILD, verdict, not_timed, not_compared, evidence, baseline
            )
            on_report(report, True)
            reports.append(report)
        return tuple(reports)

    async def sanitize(self, document: Document, path: str, kernel_id: str, **options: Any) -> Sanitized | None:
        log("sanitize", kernel_id)
        try:
            while not (answer := FOLDER / f"{kernel_id}.json").exists():
                await asyncio.sleep(0.02)
        except asyncio.CancelledError:
            log("stopped", kernel_id)
            raise
        told = json.loads(answer.read_text())
        return None if told is None else from_wire(told, Sanitized)


if __name__ == "__main__":
    serve_stdio(make_engine=CardEngine)
