"""The kernels of the fast network in Triton's interpreter, which computes on the CPU what they say; tests/gpu has the card."""

import os

import pytest
import torch

from dice_lsp.diffusion.fast import GROUPS, ROW_BUCKETS, assemble, fast_network, tiling, unsuitable
from dice_lsp.diffusion.model import SDAR
from dice_lsp.diffusion.rows import SPANS, Rows
from tests.diffusion.small import small_config

PROMPT = 64
SIZES = {
    "vocab_size": 128, "hidden_size": 128, "intermediate_size": 512, "num_attention_heads": 8, "num_key_value_heads": 4,
    "head_dim": 16, "mask_token_id": 127, "num_hidden_layers": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def kernels():
    before = os.environ.get("TRITON_INTERPRET")
    os.environ["TRITON_INTERPRET"] = "1"
    try:
        pytest.importorskip("triton", reason="triton comes with PyTorch's CUDA build; this one is for the CPU alone")
        from dice_lsp.diffusion import kernels

        yield kernels
    finally:
        os.environ.pop("TRITON_INTERPRET")
        if before is not None:
            os.environ["TRITON_INTERPRET"] = before


def network(**changes) -> SDAR:
    plain = SDAR(small_config(**{**SIZES, **changes}))
    plain.init_weights(std=0.15, seed=1)
    return SDAR.from_weights(plain.config, {name: tensor.clone() for name, tensor in plain.qwen3_weights().items()})


def states(count: int, first_slot: int) -> Rows:
    """Blocks of 4 rows that see the prompt and themselves, like states that are checked at once."""
    at = torch.arange(count)
    spans = torch.zeros(count, SPANS, 2, dtype=torch.int32)
    spans[:, 0, 1] = PROMPT
    spans[:, 1, 0] = first_slot + at // 4 * 4
    spans[:, 1, 1] = first_slot + at // 4 * 4 + 4
    ids = torch.randint(0, 127, (count,), generator=torch.Generator().manual_seed(count))
    return Rows(ids, PROMPT + at % 4, first_slot + at, spans, int(spans.max()))


def prompt() -> Rows:
    at = torch.arange(PROMPT)
    spans = torch.zeros(PROMPT, SPANS, 2, dtype=torch.int32)
    spans[:, 0, 1] = (at // 4 + 1) * 4
    return Rows(at, at, at, spans, PROMPT)


@pytest.mark.parametrize("count", [4, 11, 48])
def test_the_kernels_compute_what_the_network_does(kernels, count):
    plain = network()
    fast = assemble(plain, kernels, {}, capture=False)
    caches = plain.slot_cache(300), fast.slot_cache(300)
    for net, cache in zip((plain, fast), caches, strict=True):
        net.forward_rows(prompt(), cache, None)
    wanted = torch.arange(0, count, 3)
    expected = plain.forward_rows(states(count, 100), caches[0], wanted)
    torch.testing.assert_close(fast.forward_rows(states(count, 100), caches[1], wanted), expected, atol=1e-4, rtol=1e-4)
    for ours, theirs in ((caches[1].keys, caches[0].keys), (caches[1].values, caches[0].values)):
        torch.testing.assert_close(ours[:, :, :300], theirs, atol=1e-4, rtol=1e-4)


def test_the_last_share_of_a_cache_may_reach_beyond_it(kernels, monkeypatch):
    monkeypatch.setattr("dice_lsp.diffusion.fast.MAX_SHARES", 3)
    plain = network()
    fast = assemble(plain, kernels, {}, capture=False)
    cache, ours = plain.slot_cache(500), fast.slot_cache(500)
    assert ours.keys.shape[2] == 512, "three shares of whole tiles are 576"
    for net, held in ((plain, cache), (fast, ours)):
        net.forward_rows(prompt(), held, None)
    wanted = torch.arange(4)
    expected = plain.forward_rows(states(4, 480), cache, wanted)
    torch.testing.assert_close(fast.forward_rows(states(4, 480), ours, wanted), expected, atol=1e-4, rtol=1e-4)


def test_a_gpu_that_the_kernels_do_not_fit_is_answered_by_the_network_itself(kernels, monkeypatch, caplog):
    plain = network()
    fast = assemble(plain, kernels, {})

    def refuse(*_):
        raise kernels.OutOfResources(200000, 101376, "shared memory")

    monkeypatch.setattr(type(fast), "_captured", refuse)
    cache, ours, wanted = plain.slot_cache(300), fast.slot_cache(300), torch.arange(4)
    expected = plain.forward_rows(states(4, 100), cache, wanted)
    for _ in range(2):
        torch.testing.assert_close(fast.forward_rows(states(4, 100), ours, wanted), expected)
    assert "fills go on without them" in caplog.text and len(caplog.records) == 1


def test_every_bucket_is_made_of_widths_that_the_kernels_take():
    for rows in ROW_BUCKETS:
        width, more = GROUPS[rows]
        assert width + more >= rows and all(part & (part - 1) == 0 for part in (width, more))


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("outputs, inputs", [(6144, 4096), (4096, 12288), (2560, 9728), (2048, 2048), (512, 384)])
def test_a_layer_is_cut_without_a_rest(outputs, inputs, wide):
    for gated in (False, True):
        # An H200, an A100, and a card of sm_86 or sm_89.
        for smem_bytes in (232448, 166912, 101376):
            cut = tiling(outputs, inputs, gated, wide, 132, smem_bytes)
            assert outputs % cut.weight_rows == 0 and inputs % (cut.shares * cut.inner) == 0
            rows = 64 * (1 + gated) + (96 if wide else 32)
            assert cut.stages >= 2 and 2 * cut.stages * rows * cut.inner < smem_bytes


def test_what_has_no_fast_form_says_why():
    assert fast_network(network()) == "the network is not on a CUDA device"
    assert unsuitable(network().config) is None
    assert "multiples of 64" in str(unsuitable(small_config()))
    assert "power of two" in str(unsuitable(small_config(**{**SIZES, "head_dim": 48})))
