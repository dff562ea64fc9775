"""The network: cache against full recompute, fused against separate passes, gradients, mixed dtypes."""

from itertools import pairwise

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask

from dice_lsp.diffusion.model import SDAR, block_mask
from dice_lsp.diffusion.rows import SlotCache, summarize
from tests.diffusion.small import block_rows, small_config, small_network


def whole(network: SDAR, ids: torch.Tensor, block_size: int) -> torch.Tensor:
    with torch.inference_mode():
        return network.forward_train(ids, torch.arange(ids.shape[1]), block_mask(ids.shape[1], block_size))


def run_blocks(network: SDAR, ids: list[int], cuts: list[int], block_size: int) -> tuple[torch.Tensor, SlotCache]:
    """Logits of every token, computed in passes that are cut at `cuts`, and the cache."""
    cache = network.slot_cache(len(ids))
    found = []
    for start, end in pairwise([0, *cuts, len(ids)]):
        rows = block_rows(ids[start:end], start, block_size)
        found.append(network.forward_rows(rows, cache, range(end - start)).logits)
    return torch.cat(found), cache


@pytest.mark.parametrize("block_size", [1, 3, 4, 8, 16, 32])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_cached_blocks_equal_the_whole_sequence(block_size, kv_heads):
    network = small_network(num_key_value_heads=kv_heads)
    ids = torch.randint(0, 63, (1, 4 * block_size), generator=torch.Generator().manual_seed(block_size))
    expected = whole(network, ids, block_size)[0]
    cuts = [2 * block_size, 3 * block_size]
    found, _ = run_blocks(network, ids[0].tolist(), cuts, block_size)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_a_block_that_is_not_kept_leaves_no_trace():
    network = small_network()
    cache = network.slot_cache(16)
    network.forward_rows(block_rows(range(4), 0, 4), cache, ())
    before = network.forward_rows(block_rows(range(4, 8), 4, 4), cache, range(4)).logits
    network.forward_rows(block_rows(range(8, 12), 4, 4), cache, range(4))
    torch.testing.assert_close(network.forward_rows(block_rows(range(4, 8), 4, 4), cache, range(4)).logits, before)


def test_one_pass_over_two_blocks_equals_one_after_the_other():
    network = small_network()
    ids = torch.randint(0, 63, (12,), generator=torch.Generator().manual_seed(0)).tolist()
    separate, kept = run_blocks(network, ids, [4, 8], 4)
    joint, joint_kept = run_blocks(network, ids, [4], 4)
    torch.testing.assert_close(joint, separate, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(joint_kept.keys, kept.keys, atol=1e-5, rtol=1e-5)


def test_prompts_in_pieces_equal_one_piece():
    network = small_network()
    ids = torch.randint(0, 63, (32,), generator=torch.Generator().manual_seed(3)).tolist()
    torch.testing.assert_close(
        run_blocks(network, ids, [], 4)[1].keys, run_blocks(network, ids, [8, 20], 4)[1].keys, atol=1e-5, rtol=1e-5
    )


def test_what_is_told_of_logits():
    logits = torch.tensor([[0.0, 1.0, 3.0, 2.0], [5.0, 5.0, 5.0, 5.0]])
    token, confidence, entropy, total = summarize(logits, 2).T
    assert token.tolist() == [3, 0], "the mask is no token, and of equal ones the first is taken"
    odds = logits.softmax(-1)
    torch.testing.assert_close(confidence, torch.stack([odds[0, 3], odds[1, 0]]))
    torch.testing.assert_close(entropy, torch.distributions.Categorical(logits=logits).entropy())
    torch.testing.assert_close(total, logits.logsumexp(-1))


def test_fusing_keeps_names_values_and_memory():
    network = small_network()
    attention = network.layers()[0].self_attn
    assert set(network.qwen3_weights()) == set(network.config.weight_shapes())
    assert attention.q_proj.weight.data_ptr() == attention.qkv.data_ptr()
    assert attention.v_proj.weight.untyped_storage().data_ptr() == attention.qkv.untyped_storage().data_ptr()


def test_gradients_reach_every_weight_and_two_streams_match_decoding():
    config = small_config(tie_word_embeddings=True)
    network = SDAR(config)
    network.init_weights(std=0.3)
    clean = torch.randint(0, 63, (2, 8), generator=torch.Generator().manual_seed(0))
    noisy = clean.clone()
    noisy[:, 4:] = 63
    positions = torch.arange(8).repeat(2)
    block, stream = positions // 4, torch.arange(16) // 8
    own = (block[:, None] == block) & (stream[:, None] == stream)
    mask = own | ((stream[None, :] == 0) & (block[None, :] < block[:, None]))
    wanted = torch.zeros(2, 16, dtype=torch.bool)
    wanted[:, 12:] = True
    logits = network.forward_train(torch.cat([clean, noisy], 1), positions, mask, rows=wanted)
    assert logits.shape == (8, 64)
    torch.nn.functional.cross_entropy(logits, clean[:, 4:].flatten()).backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None and bool(parameter.grad.abs().sum() > 0), name
    # What training saw for the masked block is what decoding will see for it.
    weights = {name: tensor.clone() for name, tensor in network.qwen3_weights().items()}
    inference = SDAR.from_weights(config, weights)
    decoded = [run_blocks(inference, ids, [4], 4)[0][4:] for ids in noisy.tolist()]
    torch.testing.assert_close(torch.cat(decoded), logits.detach(), atol=1e-4, rtol=1e-4)


def test_flex_block_mask_equals_dense_mask():
    network = SDAR(small_config(head_dim=16))
    network.init_weights(std=0.3)
    ids = torch.randint(0, 63, (1, 128), generator=torch.Generator().manual_seed(0))

    def rule(batch, head, query, key):
        return key // 4 <= query // 4

    flex = create_block_mask(rule, None, None, 128, 128, device="cpu")
    with torch.no_grad():
        dense = network.forward_train(ids, torch.arange(128), block_mask(128, 4))
        sparse = network.forward_train(ids, torch.arange(128), flex)
    torch.testing.assert_close(sparse, dense, atol=1e-4, rtol=1e-4)


def test_rows_of_a_batch_do_not_see_each_other():
    network = small_network()
    ids = torch.randint(0, 63, (4, 8), generator=torch.Generator().manual_seed(5))
    together = whole(network, ids, 4)
    for row in range(4):
        torch.testing.assert_close(whole(network, ids[row : row + 1], 4)[0], together[row], atol=1e-5, rtol=1e-5)


def test_bfloat16_runs_and_is_near():
    network = small_network(scale=0.1)
    weights = {name: tensor.clone().bfloat16() for name, tensor in network.qwen3_weights().items()}
    half = SDAR.from_weights(network.config, weights)
    ids = torch.arange(8)[None]
    logits, _ = run_blocks(half, ids[0].tolist(), [4], 4)
    assert logits.dtype == torch.bfloat16
    torch.testing.assert_close(logits.float(), whole(network, ids, 4)[0], atol=0.1, rtol=0.1)


def test_positions_beyond_the_first_table():
    network = small_network(max_position_embeddings=8192)
    cache = network.slot_cache(6000)
    assert network.forward_rows(block_rows(range(4), 5996, 4), cache, range(4)).logits.isfinite().all()
