"""How the fast network is cut up, and what its kernels compute; tests/gpu has the card."""

import os
import subprocess
import sys
from importlib import util
from pathlib import Path

import pytest

from dice_lsp.diffusion.fast import GROUPS, ROW_BUCKETS, fast_network, tiling, unsuitable
from tests.diffusion.interpreted import CHECKS, SIZES, network
from tests.diffusion.small import small_config

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(
    util.find_spec("triton") is None, reason="triton comes with PyTorch's CUDA build; this one is for the CPU alone"
)
@pytest.mark.parametrize("check", CHECKS)
def test_what_the_kernels_say_is_what_the_network_computes(check):
    command = [sys.executable, "-m", "tests.diffusion.interpreted", check]
    found = subprocess.run(
        command, env={**os.environ, "TRITON_INTERPRET": "1"}, cwd=ROOT, capture_output=True, text=True, timeout=200
    )
    assert found.returncode == 0 and found.stdout.strip() == "agrees", found.stderr[-3000:]


def test_every_bucket_is_made_of_widths_that_the_kernels_take():
    for rows in ROW_BUCKETS:
        width, more = GROUPS[rows]
        assert width + more >= rows and all(part & (part - 1) == 0 for part in (width, more))


@pytest.mark.parametrize("bucket", ROW_BUCKETS)
@pytest.mark.parametrize("outputs, inputs", [(6144, 4096), (4096, 12288), (2560, 9728), (2048, 2048), (512, 384)])
def test_a_layer_is_cut_without_a_rest(outputs, inputs, bucket):
    for layer in ("qkv", "o", "gate_up", "down", "head"):
        # An H200, an A100, and a card of sm_86 or sm_89.
        for smem_bytes in (232448, 166912, 101376):
            cut = tiling(layer, outputs, inputs, bucket, 132, smem_bytes)
            assert outputs % cut.weight_rows == 0 and inputs % (cut.shares * cut.inner) == 0
            rows = 64 * (1 + (layer == "gate_up")) + bucket
            assert cut.stages >= 2 and 2 * cut.stages * rows * cut.inner < smem_bytes


def test_what_has_no_fast_form_says_why():
    assert fast_network(network()) == "the network is not on a CUDA device"
    assert unsuitable(network().config) is None
    assert "multiples of 64" in str(unsuitable(small_config()))
    assert "power of two" in str(unsuitable(small_config(**{**SIZES, "head_dim": 48})))
