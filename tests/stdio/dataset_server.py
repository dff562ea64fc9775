"""A server as on a machine with a card, whose fills are written here: `python -m tests.stdio.dataset_server FOLDER`.

Every fill has the candidates of `FOLDER/bodies.json`, A and B, that are verified and timed beside the text before them.
Kernels with `slow` in their name are less than twice as fast, and those with `refuted` fail the check that follows. How a
kernel with `elsewhere` in its name is launched is told by another file.
"""

import json
from typing import Any

import attrs

from dice_lsp.dataset.cuke import with_directive
from dice_lsp.pipeline import OnReport
from dice_lsp.records import (
    Candidate,
    CandidateReport,
    Document,
    Faster,
    FillReport,
    KernelReport,
    LaunchSpec,
    NotTimed,
    Region,
    Verified,
    Wrong,
)
from dice_lsp.server.app import serve_stdio
from dice_lsp.source.kernels import parse
from dice_lsp.source.launches import launch_spec
from tests.stdio.card_server import BUILD, FOLDER, CardEngine


class FillingEngine(CardEngine):
    async def fill(self, region: Region, *arguments: Any, **options: Any) -> FillReport:
        assert region.kernel is not None
        fast = Faster(1.95, 1.9, 2.1) if "slow" in region.kernel.name else Faster(2.5, 2.25, 2.75)
        verdict = Verified(5, 0.1, "NVIDIA H200", f"{region.kernel.name}_cpu", ("bounds",))
        return FillReport(
            None,
            tuple(
                CandidateReport(label, Candidate(body, -0.1, 40, 10), BUILD, verdict, NotTimed("not timed here"), fast)
                for label, body in zip("AB", json.loads((FOLDER / "bodies.json").read_text()), strict=True)
            ),
        )

    async def check(
        self, document: Document, path: str, *, on_report: OnReport, **options: Any
    ) -> tuple[KernelReport, ...]:
        def judged(report: KernelReport) -> KernelReport:
            if "refuted" in report.name:
                return attrs.evolve(report, verdict=Wrong("y", 0, "0", "1", "n=33", 1, 33))
            return attrs.evolve(report, spec=told_elsewhere(document.text)) if "elsewhere" in report.name else report

        reports = await super().check(
            document, path, on_report=lambda report, final: on_report(judged(report), final), **options
        )
        return tuple(map(judged, reports))


def told_elsewhere(text: str) -> LaunchSpec:
    (kernel,) = parse(text).kernels
    told = with_directive(text, kernel, "//dice: n = 4096 | 33; in x[n]; out y[n]; launch <<<cdiv(n, 64), 64>>>")
    model = parse(told)
    return launch_spec(told, model.kernels[0], model)


if __name__ == "__main__":
    serve_stdio(make_engine=FillingEngine)
