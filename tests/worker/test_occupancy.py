"""Occupancy: known values, and the whole grid against NVIDIA's own header where it and a C++ compiler are installed."""

import shutil
from pathlib import Path

import pytest

from dice_lsp import process
from dice_lsp.worker import occupancy as module
from dice_lsp.worker.compile import find_nvcc, toolkit_include_dirs
from dice_lsp.worker.occupancy import limits_of, occupancy, resident_blocks

ARCHS = ["sm_50", "sm_52", "sm_60", "sm_61", "sm_70", "sm_75", "sm_80", "sm_86", "sm_87", "sm_89", "sm_90"]
ARCHS += ["sm_100", "sm_101", "sm_103", "sm_110", "sm_120", "sm_121"]


@pytest.mark.parametrize(
    ("arch", "registers", "smem_bytes", "threads", "fraction", "limiter"),
    [
        ("sm_90", 32, 0, 256, 1.0, "none"),
        ("sm_90", 40, 0, 256, 0.75, "registers"),
        ("sm_90", 64, 0, 256, 0.5, "registers"),
        ("sm_90", 255, 0, 256, 0.125, "registers"),
        ("sm_90", 32, 0, 32, 0.5, "blocks"),
        ("sm_90", 16, 0, 768, 0.75, "threads"),
        ("sm_90", 32, 48 * 1024, 256, 0.5, "shared memory"),
        ("sm_90", 32, 227 * 1024, 1024, 0.5, "shared memory"),
        ("sm_90", 32, 228 * 1024, 1024, 0.0, "shared memory"),
        ("sm_90", 128, 0, 1024, 0.0, "registers"),
        ("sm_86", 32, 0, 256, 1.0, "none"),
        ("sm_86", 32, 0, 1024, 2 / 3, "threads"),
        ("sm_86", 32, 48 * 1024, 256, 2 / 6, "shared memory"),
        ("sm_75", 32, 0, 1024, 1.0, "none"),
        ("sm_120", 32, 0, 64, 1.0, "none"),
        ("sm_90", 0, 0, 256, 1.0, "none"),
        ("sm_90", 32, 0, 2048, 0.0, "threads"),
    ],
)
def test_known_values(arch: str, registers: int, smem_bytes: int, threads: int, fraction: float, limiter: str) -> None:
    got, by = occupancy(arch, registers, smem_bytes, threads)
    assert got == pytest.approx(fraction)
    assert by == limiter


def test_h100_limits_are_those_of_the_guide() -> None:
    limits = limits_of("sm_90a")
    assert limits.warps * module.WARP_THREADS == 2048
    assert (limits.warps, limits.blocks, limits.registers) == (64, 32, 65536)
    assert limits.smem_bytes == 228 * 1024 and limits.smem_reserved_bytes == 1024


def test_an_architecture_of_the_future_has_the_limits_of_the_newest_known() -> None:
    assert limits_of("sm_199") == limits_of("sm_121")


@pytest.mark.parametrize("name", ["hopper", "sm_", "90", "sm_9", "sm_90x", ""])
def test_what_is_no_architecture_is_named(name: str) -> None:
    with pytest.raises(ValueError, match="is no architecture"):
        limits_of(name)


ORACLE = r"""
#include <cstdio>
#include <cstdlib>
#include "cuda_occupancy.h"
int main() {
  int major, minor, warps, regs_per_block, partition_free; long smem_sm, smem_block, reserved;
  while (scanf("%d %d %d %d %ld %ld %ld", &major, &minor, &warps, &regs_per_block, &smem_sm, &smem_block, &reserved) == 7) {
    cudaOccDeviceProp p = {};
    p.computeMajor = major; p.computeMinor = minor; p.maxThreadsPerBlock = 1024;
    p.maxThreadsPerMultiprocessor = warps * 32; p.regsPerBlock = regs_per_block; p.regsPerMultiprocessor = 65536;
    p.warpSize = 32; p.sharedMemPerBlock = 48 * 1024; p.sharedMemPerMultiprocessor = smem_sm; p.numSms = 1;
    p.sharedMemPerBlockOptin = smem_block; p.reservedSharedMemPerBlock = reserved;
    cudaOccDeviceState state = {};
    for (int regs = 0; regs <= 256; regs += 5)
      for (int threads = 32; threads <= 1024; threads += 96)
        for (long smem = 0; smem <= smem_block + 2000; smem += 5003) {
          cudaOccFuncAttributes a = {};
          a.maxThreadsPerBlock = 1024; a.numRegs = regs; a.sharedSizeBytes = 0;
          a.partitionedGCConfig = PARTITIONED_GC_OFF; a.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
          a.maxDynamicSharedSizeBytes = smem_block;
          cudaOccResult r = {};
          cudaOccError e = cudaOccMaxActiveBlocksPerMultiprocessor(&r, &p, &a, &state, threads, smem);
          printf("%d %d %ld %d\n", regs, threads, smem, e == CUDA_OCC_SUCCESS ? r.activeBlocksPerMultiprocessor : -1);
        }
    printf("end\n");
  }
}
"""


def test_the_whole_grid_agrees_with_nvidias_header(tmp_path: Path) -> None:
    folders = [f for f in toolkit_include_dirs(find_nvcc()) if (f / "cuda_occupancy.h").is_file()]
    compiler = shutil.which("g++") or shutil.which("clang++")
    if not folders or compiler is None:
        pytest.skip("needs cuda_occupancy.h of a CUDA toolkit and a C++ compiler")
    (tmp_path / "oracle.cpp").write_text(ORACLE)
    built = process.run(
        [compiler, "-O1", "-w", f"-I{folders[0]}", str(tmp_path / "oracle.cpp"), "-o", str(tmp_path / "oracle")],
        deadline_s=60,
    )
    assert built.returncode == 0, built.stderr.decode()
    lines = []
    for arch in ARCHS:
        limits = limits_of(arch)
        number = int(arch[3:])
        lines.append(
            f"{number // 10} {number % 10} {limits.warps} {limits.registers_per_block} {limits.smem_bytes} "
            f"{limits.smem_per_block_bytes} {limits.smem_reserved_bytes}"
        )
    ran = process.run([str(tmp_path / "oracle")], deadline_s=60, stdin="\n".join(lines).encode())
    answers = ran.stdout.decode().split("end\n")
    assert len(answers) == len(ARCHS) + 1
    for arch, answer in zip(ARCHS, answers, strict=False):
        checked = 0
        for line in answer.splitlines():
            registers, threads, smem_bytes, expected = map(int, line.split())
            assert expected >= 0, (arch, line)
            got, _ = resident_blocks(arch, registers, smem_bytes, threads)
            assert got == expected, (arch, registers, threads, smem_bytes)
            checked += 1
        assert checked > 1000
