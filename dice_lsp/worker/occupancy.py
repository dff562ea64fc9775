"""Occupancy of a kernel from its resources, without a GPU.

The limits are those of the CUDA C++ Programming Guide, appendix "Compute Capabilities" (tables "Technical
Specifications per Compute Capability"); the arithmetic is the one that NVIDIA documents in `cuda_occupancy.h`:
warps, registers and shared memory are allocated in units, and the scarcest decides how many blocks are resident.
"""

import re

from attrs import frozen

WARP_THREADS = 32
REGISTER_UNIT = 256
"""Registers are given to a warp in units of this many (compute capability 3.0 and later)."""
MAX_BLOCK_THREADS = 1024
SUB_PARTITIONS = 4
"""Warps are spread over this many schedulers (2 on sm_60), and each has its own part of the register file."""


@frozen
class SmLimits:
    """What one multiprocessor of a compute capability has."""

    warps: int
    blocks: int
    registers: int
    registers_per_block: int
    registers_per_thread: int
    smem_bytes: int
    """Largest shared memory carve-out."""
    smem_per_block_bytes: int
    """Largest that one block can have, opted in where that is more than 48 KiB."""
    smem_unit_bytes: int
    smem_reserved_bytes: int
    """Taken by the system for each block (compute capability 8.0 and later)."""
    sub_partitions: int = SUB_PARTITIONS


KIB = 1024


def _limits(
    warps: int,
    blocks: int,
    smem_kib: int,
    block_kib: int,
    *,
    unit: int = 128,
    reserved: int = KIB,
    block_registers: int = 65536,
    partitions: int = SUB_PARTITIONS,
) -> SmLimits:
    return SmLimits(
        warps, blocks, 65536, block_registers, 255, smem_kib * KIB, block_kib * KIB, unit, reserved, partitions
    )


_BY_CAPABILITY: dict[int, SmLimits] = {
    50: _limits(64, 32, 64, 48, unit=256, reserved=0),
    52: _limits(64, 32, 96, 48, unit=256, reserved=0),
    53: _limits(64, 32, 64, 48, unit=256, reserved=0, block_registers=32768),
    60: _limits(64, 32, 64, 48, unit=256, reserved=0, partitions=2),
    61: _limits(64, 32, 96, 48, unit=256, reserved=0),
    62: _limits(64, 32, 64, 48, unit=256, reserved=0, block_registers=32768),
    70: _limits(64, 32, 96, 96, unit=256, reserved=0),
    72: _limits(64, 32, 96, 96, unit=256, reserved=0),
    75: _limits(32, 16, 64, 64, unit=256, reserved=0),
    80: _limits(64, 32, 164, 163),
    86: _limits(48, 16, 100, 99),
    87: _limits(48, 16, 164, 163),
    88: _limits(48, 24, 100, 99),
    89: _limits(48, 24, 100, 99),
    90: _limits(64, 32, 228, 227),
    100: _limits(64, 32, 228, 227),
    101: _limits(48, 24, 228, 227),
    103: _limits(64, 32, 228, 227),
    107: _limits(64, 32, 228, 227),
    110: _limits(48, 24, 228, 227),
    120: _limits(48, 24, 100, 99),
    121: _limits(48, 24, 100, 99),
}


def limits_of(arch: str) -> SmLimits:
    """The limits of an architecture such as `sm_90` or `sm_90a`; of one we do not know, those of its generation.

    Raises ValueError for a name that is no architecture.
    """
    match = re.fullmatch(r"(?:sm|compute|lto)_(\d{2,3})[af]?", arch)
    if match is None:
        raise ValueError(f"{arch!r} is no architecture such as sm_90")
    capability = int(match[1])
    known = [value for value in _BY_CAPABILITY if value <= capability]
    return _BY_CAPABILITY[max(known)] if known else _BY_CAPABILITY[50]


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def resident_blocks(arch: str, registers: int, smem_bytes: int, block_threads: int) -> tuple[int, str]:
    """How many blocks fit on a multiprocessor, and what decides it.

    `registers` is per thread; `smem_bytes` is static and dynamic together, per block; the largest carve-out is assumed.
    """
    limits = limits_of(arch)
    if not 0 < block_threads <= MAX_BLOCK_THREADS:
        return 0, "threads"
    warps = -(-block_threads // WARP_THREADS)
    by_threads = limits.warps // warps
    by_registers = limits.blocks
    if registers > limits.registers_per_thread:
        by_registers = 0
    elif registers > 0:
        per_warp = _up(registers * WARP_THREADS, REGISTER_UNIT)
        # A kernel that one member of the Pascal family cannot launch is refused on all of them, so sm_60 asks for both.
        by_registers = min(
            _blocks_by_registers(limits, per_warp, warps, partitions)
            if partitions == limits.sub_partitions
            else limits.blocks * min(1, _blocks_by_registers(limits, per_warp, warps, partitions))
            for partitions in {limits.sub_partitions, SUB_PARTITIONS}
        )
    by_smem = limits.blocks
    if smem_bytes > limits.smem_per_block_bytes:
        by_smem = 0
    elif smem_bytes + limits.smem_reserved_bytes > 0:
        by_smem = limits.smem_bytes // _up(smem_bytes + limits.smem_reserved_bytes, limits.smem_unit_bytes)
    # The order settles ties: what the kernel's text can change is named first.
    bounds = (
        (by_registers, "registers"),
        (by_smem, "shared memory"),
        (limits.blocks, "blocks"),
        (by_threads, "threads"),
    )
    return min(bounds, key=lambda bound: bound[0])


def _blocks_by_registers(limits: SmLimits, per_warp: int, warps: int, partitions: int) -> int:
    # Whether a block fits is checked as if its warps took all partitions alike; how many fit counts warps one by one.
    if per_warp * _up(warps, partitions) > limits.registers_per_block:
        return 0
    return limits.registers // partitions // per_warp * partitions // warps


def occupancy(arch: str, registers: int, smem_bytes: int, block_threads: int) -> tuple[float, str]:
    """Resident warps over the most there can be (0 to 1), and the limiter as `records.Compiled.limiter` names it.

    >>> occupancy("sm_90", 32, 0, 256)
    (1.0, 'none')
    """
    blocks, limiter = resident_blocks(arch, registers, smem_bytes, block_threads)
    warps = -(-max(block_threads, 1) // WARP_THREADS)
    fraction = min(1.0, blocks * warps / limits_of(arch).warps)
    return fraction, "none" if fraction >= 1.0 else limiter
