"""Records for the tests: of kernels that are right, wrong or slow, with evidence as a card would give it."""

from typing import Any

from dice_lsp.dataset.cuke import CukeRecord, make_record
from dice_lsp.records import (
    Comparison,
    Document,
    Evidence,
    Faster,
    Judged,
    NotCompiled,
    NotTimed,
    Verdict,
    Verified,
)
from dice_lsp.source.kernels import parse
from dice_lsp.source.launches import launch_spec
from dice_lsp.source.selection import body_region

CARD = Evidence("key", "slice", "NVIDIA H200", "580", "nvrtc 13.5", "2026-11-30T12:00:00+00:00")
VERIFIED = Verified(5, 0.1, "NVIDIA H200", "twice_cpu", ("bounds",))
BODY = "\n    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < n) y[i] = 2.0f * x[i];\n"
RIVAL = "\n    for (int i = threadIdx.x; i < n; i += blockDim.x)\n        if (blockIdx.x == 0) y[i] = 2.0f * x[i];\n"
DIRECTIVE = "//dice: n = 1000 | 33; in x[n]; out y[n]; launch <<<cdiv(n, 128), 128>>>"
REFERENCE = """
void twice_cpu(int n, const float* x, float* y) {
    for (int i = 0; i < n; i++) y[i] = 2.0f * x[i];
}
"""


def source(
    body: str, *, name: str = "twice", directive: str = DIRECTIVE, top: str = "", reference: str = REFERENCE
) -> str:
    head = f"{top}{directive}\n" if directive else top
    reference = reference.replace("twice", name)
    return f"{head}__global__ void {name}(int n, const float* x, float* y) {{{body}}}\n{reference}"


def made(body: str = BODY, *, rival: str = RIVAL, verdict: Verdict = VERIFIED,
         comparison: Comparison = Faster(2.5, 2.3, 2.7), origin: str = "generated", licence: str = "",
         extra: str = "", measured: str | None = None, **text: Any) -> CukeRecord | str:  # fmt: skip
    """What `make_record` makes of a kernel's body; `extra` is its directive, `measured` the text that was judged."""
    there = source(body, **text)
    model = parse(there)
    (kernel,) = model.kernels
    other = parse(measured or there)
    spec = launch_spec(other.text, other.kernels[0], other)
    judged = Judged(NotCompiled("not kept"), verdict, NotTimed("not kept"), comparison, CARD, spec)
    region = body_region(Document("file:///a.cu", 0, there), kernel)
    return make_record(region, body, judged, spec, origin=origin, source="family:7", licence=licence,
                       directive=extra, rival=rival)  # fmt: skip


def record(*arguments: Any, **options: Any) -> CukeRecord:
    found = made(*arguments, **options)
    assert isinstance(found, CukeRecord), found
    return found
