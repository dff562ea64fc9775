"""How fast a kernel could run at best on a device, and which limit that is.

Two numbers bound a kernel: the bytes it must move over the memory's peak rate, and the operations it must do over the
peak rate of the units that do them (Williams, Waterman, Patterson: Roofline, CACM 52(4), 2009). A third one is the
launch floor: what an empty kernel of the same launch takes.
"""

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from dice_lsp.records import LaunchSpec, Role
from dice_lsp.source.expressions import evaluate
from dice_lsp.worker.arguments import Bound

_FP32_LANES = {(7, 5): 64, (8, 0): 64}
"""FP32 units of a multiprocessor where they are not 128 (CUDA C++ programming guide, arithmetic instructions)."""
_FP64_LANES = {(8, 0): 32, (9, 0): 64, (10, 0): 64}
_TENSOR_F16_FLOPS = {(7, 5): 1024, (8, 0): 2048, (8, 6): 1024, (8, 7): 2048, (8, 9): 1024, (9, 0): 4096, (10, 0): 8192}
"""Dense FP16 operations of a multiprocessor's matrix units per clock."""


@frozen
class Peaks:
    """What a device can do at its highest clocks: bytes and operations per microsecond."""

    bytes_per_us: float
    flops_per_us: Mapping[str, float]
    """By unit, named as in a directive's `peak`: `f32`, `f64`, `f16`, `f16tc`, `tf32`, ..."""
    l2_bytes: int = 0


@frozen
class Roof:
    """The limit that binds: its name, the shortest possible time, and the part of it that was reached."""

    name: str
    """`memory`, `compute` or `launch`."""
    limit_us: float
    fraction: float


@frozen
class Work:
    """What one launch must at least move and compute. `flops` is None where nobody said."""

    bytes: int | None
    flops: int | None
    written_bytes: int = 0
    """How much of what is moved is results: the last of it may stay in the cache for a while."""

    def beyond(self, l2_bytes: int, reads: bool = True) -> int:
        """Bytes that must have passed the memory when a launch ends that found none of them in a cache of this size."""
        written = max(0, self.written_bytes - l2_bytes)
        return max(0, (self.bytes or 0) - self.written_bytes) + written if reads else written


def peaks(device: Mapping[str, Any]) -> Peaks:
    """Peak rates from a device's attributes.

    The memory's rate is clock x 2 (double data rate) x bus width, as the CUDA samples' deviceQuery computes it; the
    arithmetic rate is multiprocessors x units x 2 (a fused multiply-add) x clock.
    """
    capability = (int(device["capability"][0]), int(device["capability"][1]))
    per_clock = float(device["multiprocessors"]) * float(device["sm_clock_khz"]) / 1e3
    lanes32 = _FP32_LANES.get(capability, 128)
    flops = {
        "f32": 2 * lanes32 * per_clock,
        "f64": 2 * _FP64_LANES.get(capability, 2) * per_clock,
        "f16": 4 * lanes32 * per_clock,
        "bf16": 4 * lanes32 * per_clock,
    }
    if capability in _TENSOR_F16_FLOPS:
        flops["f16tc"] = flops["bf16tc"] = _TENSOR_F16_FLOPS[capability] * per_clock
        flops["tf32"] = flops["f16tc"] / 2
        flops["int8tc"] = flops["f16tc"] * 2
        if capability >= (8, 9):
            flops["f8tc"] = flops["f16tc"] * 2
    bytes_per_us = float(device["memory_clock_khz"]) / 1e3 * 2 * float(device["bus_bits"]) / 8
    return Peaks(bytes_per_us, flops, int(device.get("l2_bytes", 0)))


def work(spec: LaunchSpec, bound: Bound) -> Work:
    """Compulsory work of a case: the directive's `bytes` and `flops`, else every input read and output written once.

    A buffer that is read and written counts twice; scratch (`tmp`) counts as nothing, it may stay in a cache. Of a recorded
    launch only the memory is known and not how much of it is used, so nothing is said that the directive does not say.
    """
    if bound.recorded:
        return Work(
            None if spec.bytes is None else _evaluate(spec.bytes, bound.names, None),
            None if spec.flops is None else _evaluate(spec.flops, bound.names, None),
        )
    factors = {Role.IN: 1, Role.OUT: 1, Role.IO: 2, Role.TMP: 0}
    sizes = {name: b.count * b.element.itemsize for name, b in bound.buffers.items()}
    extents = sum(factors[b.spec.role] * sizes[name] for name, b in bound.buffers.items())
    return Work(
        extents if spec.bytes is None else _evaluate(spec.bytes, bound.names, extents),
        None if spec.flops is None else _evaluate(spec.flops, bound.names, None),
        sum(sizes[name] for name, b in bound.buffers.items() if b.spec.role in (Role.OUT, Role.IO)),
    )


def _evaluate(expression: str, names: Mapping[str, int], fallback: int | None) -> int | None:
    try:
        value = evaluate(expression, names)
    except (ValueError, ArithmeticError):
        return fallback
    return value if value > 0 else fallback


def limits(needed: Work, device: Peaks, unit: str | None = None) -> dict[str, float]:
    """The shortest possible times in microseconds, by roof.

    `unit` is the directive's `peak`: a key of `Peaks.flops_per_us`. Without it, operations are held against the
    fastest unit that there is, so that the limit is one that no code can beat.
    """
    times: dict[str, float] = {}
    if needed.bytes:
        times["memory"] = needed.bytes / device.bytes_per_us
    if needed.flops:
        rate = device.flops_per_us.get(unit or "", 0.0)
        times["compute"] = needed.flops / (rate or max(device.flops_per_us.values()))
    return times


def roof(median_us: float, gap_us: float, times: Mapping[str, float]) -> Roof | None:
    """Which limit binds a measured time; None when there is nothing to hold it against."""
    candidates = {**times, "launch": gap_us}
    name = max(candidates, key=lambda key: candidates[key])
    limit_us = candidates[name]
    return Roof(name, limit_us, limit_us / median_us) if limit_us > 0 and median_us > 0 else None


def impossible(median_us: float, hot: bool, times: Mapping[str, float]) -> str | None:
    """One sentence if a time beats what the device can do; 10 % of slack for clocks above the stated ones.

    Hot runs may find everything in the cache, so memory does not bound them.
    """
    for name, limit_us in times.items():
        if name == "memory" and hot:
            continue
        if median_us < 0.9 * limit_us:
            return (
                f"{median_us:.3g} us is faster than the {name} limit of {limit_us:.3g} us: the kernel skips work, "
                "or the //dice: line states too much of it"
            )
    return None
