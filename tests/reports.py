"""Reports as the judge makes them, for tests of what is said about them."""

import attrs

from dice_lsp.baseline import make
from dice_lsp.records import (
    Baseline,
    BufferSpec,
    Compiled,
    Dim,
    Evidence,
    Kernel,
    KernelReport,
    LaunchSpec,
    Measurement,
    NotCompared,
    NotTimed,
    Origin,
    Parameter,
    Role,
    Timing,
    Verified,
)

BUILD = Compiled("sm_90", "nvrtc 13.5", "saxpy", 40, 0, 0, 0, 0, 256, 1.0, "none", 90.0)
CUBIN = b"\x7fELF" + bytes(5000) + b"code"
KERNEL = Kernel(
    "saxpy",
    "saxpy",
    (Parameter("x", "const float*", "float", True, True), Parameter("n", "int", "int", False, False)),
    start=10,
    end=200,
    body_start=60,
    body_end=199,
    line=7,
)
SPEC = LaunchSpec(
    "saxpy",
    dims=(Dim("n", (1 << 20, 1000), Origin.DIRECTIVE),),
    buffers=(BufferSpec("x", Role.IN, ("n",), "normal", Origin.INFERRED),),
    grid=("(n + 255) / 256", "1", "1"),
    block=("256", "1", "1"),
)
EVIDENCE = Evidence("key", "slice", "NVIDIA H200", "580", "nvrtc 13.5", "2026-11-30T12:00:00+00:00")
HOST_EVIDENCE = attrs.evolve(EVIDENCE, device="host", driver="g++ 12.2")
ON_GPU = Verified(6, 0.1, "NVIDIA H200", "saxpy_cpu", ("poison", "bounds"))
ON_HOST = attrs.evolve(ON_GPU, device="host")
TIMING = Timing(12.3, 12.2, 12.4, 30, True, 1980.0, 0.8, "n=1048576", roof="memory", roof_fraction=0.71)
NO_GPU = NotTimed("no GPU")


def report(
    build=BUILD,
    verdict=ON_GPU,
    timing=NO_GPU,
    comparison=NotCompared("no baseline"),
    spec=SPEC,
    evidence=EVIDENCE,
    baseline=None,
):
    return KernelReport("saxpy", 7, spec, build, verdict, timing, comparison, evidence, baseline)


def baseline(origin: str = "accepted", **parts) -> Baseline:
    """The baseline that a timed, verified report becomes, with `parts` of the report changed."""
    given = report(**{"timing": TIMING, **parts})
    return make(KERNEL, given, attrs.evolve(given.build, cubin=CUBIN), origin)


def measurement(number: int = 0, **fields) -> Measurement:
    """A check, `number` minutes after another."""
    values = {
        "when": f"2026-11-{2 + number // 60:02}T12:{number % 60:02}:00+00:00",
        "key": f"key{number}", "slice_key": "slice", "device": "NVIDIA H200", "driver": "580", "toolkit": "nvrtc 13.5",
        "arch": "sm_90", "launch_key": "launch", "registers": 40, "spill_bytes": 0, "smem_bytes": 0, "occupancy": 0.75,
        "verdict": "verified", "median_us": 12.3, "q1_us": 12.2, "q3_us": 12.4, "cold": True, "case": "n=1048576",
        "comparison": "slower", "ratio": 0.95,
    }  # fmt: skip
    return Measurement(**{**values, **fields})
