"""The network: cache against full recompute, fused against separate passes, gradients, mixed dtypes."""

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask

from dice_lsp.diffusion.model import SDAR, block_mask
from tests.diffusion.small import small_config, small_network


def whole(network: SDAR, ids: torch.Tensor, block_size: int) -> torch.Tensor:
    with torch.inference_mode():
        return network.forward_train(ids, torch.arange(ids.shape[1]), block_mask(ids.shape[1], block_size))


@pytest.mark.parametrize("block_size", [1, 3, 4, 8, 16, 32])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_cached_blocks_equal_the_whole_sequence(block_size, kv_heads):
    network = small_network(num_key_value_heads=kv_heads)
    ids = torch.randint(0, 63, (3, 4 * block_size), generator=torch.Generator().manual_seed(block_size))
    expected = whole(network, ids, block_size)
    cache = network.cache(3, 4 * block_size)
    network.prefill(ids[:, : 2 * block_size], cache, block_size)
    third = network.forward_block(ids[:, 2 * block_size : 3 * block_size], cache, store_kv=True)
    fourth = network.forward_block(ids[:, 3 * block_size :], cache)
    torch.testing.assert_close(torch.cat([third, fourth], 1), expected[:, 2 * block_size :], atol=1e-4, rtol=1e-4)


def test_store_kv_false_leaves_no_trace():
    network = small_network()
    ids = torch.arange(12)[None]
    cache = network.cache(1, 16)
    network.prefill(ids[:, :4], cache, 4)
    before = network.forward_block(ids[:, 4:8], cache)
    network.forward_block(ids[:, 8:12], cache)
    assert cache.length == 4
    torch.testing.assert_close(network.forward_block(ids[:, 4:8], cache), before)


def test_fused_pass_equals_commit_then_forward():
    network = small_network()
    ids = torch.randint(0, 63, (2, 12), generator=torch.Generator().manual_seed(0))
    separate, joint = network.cache(2, 16), network.cache(2, 16)
    for cache in (separate, joint):
        network.prefill(ids[:, :4], cache, 4)
    network.commit(ids[:, 4:8], separate)
    expected = network.forward_block(ids[:, 8:], separate)
    torch.testing.assert_close(network.forward_fused(ids[:, 4:8], ids[:, 8:], joint), expected, atol=1e-5, rtol=1e-5)
    assert joint.length == separate.length == 8
    torch.testing.assert_close(joint.keys[..., :8, :], separate.keys[..., :8, :], atol=1e-5, rtol=1e-5)


def test_prefill_in_pieces_equals_one_piece():
    network = small_network()
    ids = torch.randint(0, 63, (1, 32), generator=torch.Generator().manual_seed(3))
    one, pieces = network.cache(1, 32), network.cache(1, 32)
    network.prefill(ids, one, 4)
    for start in (0, 8, 20):
        network.prefill(ids[:, start : {0: 8, 8: 20, 20: 32}[start]], pieces, 4)
    torch.testing.assert_close(one.keys, pieces.keys, atol=1e-5, rtol=1e-5)


def test_prefill_refuses_broken_blocks_and_full_caches():
    network = small_network()
    with pytest.raises(ValueError, match="not whole blocks"):
        network.prefill(torch.zeros(1, 6, dtype=torch.long), network.cache(1, 16), 4)
    with pytest.raises(ValueError, match="do not fit a cache"):
        network.prefill(torch.zeros(1, 8, dtype=torch.long), network.cache(1, 4), 4)


def test_cache_rows_fork_and_drop():
    network = small_network()
    cache = network.cache(3, 8)
    cache.rows = 1
    network.prefill(torch.arange(4)[None], cache, 4)
    assert cache.fork(0) == 1 and cache.rows == 2
    assert torch.equal(cache.keys[:, 0, :, :4], cache.keys[:, 1, :, :4])
    cache.keys[:, 1] += 1
    cache.drop(0)
    assert cache.rows == 1 and bool((cache.keys[:, 0, :, :4] != cache.keys[:, 2, :, :4]).any())
    torch.testing.assert_close(cache.keys[:, 0, :, :4], cache.keys[:, 1, :, :4])


def test_fusing_keeps_names_values_and_memory():
    network = small_network()
    attention = network._layers()[0].self_attn
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
    cache = inference.cache(2, 8)
    inference.prefill(clean[:, :4], cache, 4)
    decoded = inference.forward_block(noisy[:, 4:], cache)
    torch.testing.assert_close(decoded.reshape(8, 64), logits.detach(), atol=1e-4, rtol=1e-4)


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
    cache = half.cache(1, 8)
    half.prefill(ids[:, :4], cache, 4)
    logits = half.forward_block(ids[:, 4:], cache)
    assert logits.dtype == torch.bfloat16
    torch.testing.assert_close(logits.float(), whole(network, ids, 4)[:, 4:], atol=0.1, rtol=0.1)


def test_positions_beyond_the_first_table():
    network = small_network(max_position_embeddings=8192)
    cache = network.cache(1, 6000)
    cache.length = 5996
    assert network.forward_block(torch.arange(4)[None], cache).isfinite().all()
