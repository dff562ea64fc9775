"""Training on a CPU at a micro size: the mask rule, a loss that falls, int8 and back; and the shipped files."""

import json
import random
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from dice_lsp.diffusion.layout_psm import EOM, MASK, SPECIALS
from dice_lsp.diffusion.model import SDAR, block_mask, tiny_config
from dice_lsp.diffusion.registry import shipped_path
from dice_lsp.training.export import dequantise, export, load, quantise
from dice_lsp.training.muon import orthogonalise
from dice_lsp.training.packing import Packer, as_tensors, visible
from dice_lsp.training.tiny import HELD_OUT_SEED, Recipe, held_out_accuracy, synthetic, train
from tests.diffusion.small import block_rows


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(shipped_path() / "tokenizer.json"))


def micro(tokenizer: Tokenizer) -> Packer:
    return Packer(tokenizer, 512, prompt_limit=200, middle_limit=100, copies=1)


def micro_config(tokenizer: Tokenizer):  # type: ignore[no-untyped-def]
    return tiny_config(
        vocab_size=2048, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=32, mask_token_id=tokenizer.token_to_id(MASK),
    )  # fmt: skip


def test_a_few_steps_bring_the_loss_down(tokenizer: Tokenizer) -> None:
    torch.manual_seed(0)
    recipe = Recipe(seconds=1e9, rows=2, row_length=512, workers=0, max_steps=60, warmup_steps=5)
    network, losses = train(recipe, micro_config(tokenizer), micro(tokenizer), [], torch.device("cpu"), None)
    assert len(losses) == 3 and losses[2] < losses[0] - 0.8 < torch.tensor(2048.0).log()
    accuracy = held_out_accuracy(network, micro(tokenizer), [], torch.device("cpu"), rows=8)
    assert set(accuracy) == {f"synthetic {size}" for size in (4, 8, 16, 32)}


def test_noisy_blocks_see_earlier_clean_ones_and_themselves() -> None:
    """Two documents of one row: the rule, place by place."""
    document = torch.tensor([[1, 1, 1, 1, 1, 1, 2, 2]])
    copy = torch.tensor([[0, 0, 0, 0, 1, 1, 0, 1]])
    block = torch.tensor([[0, 0, 1, 1, 1, 1, 0, 0]])
    seen = visible(document, copy, block)[0, 0].int().tolist()
    assert seen == [
        [1, 1, 0, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0, 0, 0],
        [1, 1, 1, 1, 0, 0, 0, 0],
        [1, 1, 1, 1, 0, 0, 0, 0],
        [1, 1, 0, 0, 1, 1, 0, 0],
        [1, 1, 0, 0, 1, 1, 0, 0],
        [0, 0, 0, 0, 0, 0, 1, 0],
        [0, 0, 0, 0, 0, 0, 0, 1],
    ]


def test_training_sees_what_decoding_sees(tokenizer: Tokenizer) -> None:
    """Logits of a masked block in a packed row equal those of the block decoded against the cache of what precedes it."""
    packer = Packer(tokenizer, 1024)
    prompt, middle = list(range(10, 33)), list(range(40, 59))
    size = 8
    row = packer.document(prompt, middle, size, random.Random(3), 1.0)
    batch = as_tensors([row])
    config = micro_config(tokenizer)
    network = SDAR(config)
    network.init_weights(seed=4)
    batch[2] = 1
    with torch.no_grad():
        logits = network.forward_train(batch[0], batch[1], visible(batch[2], batch[3], batch[4]))
    tokens = [*prompt, *middle]
    tokens += [tokenizer.token_to_id(EOM)] * (-len(tokens) % size)
    for start in range(len(prompt) // size * size, len(tokens), size):
        cache = network.slot_cache(64)
        if start:
            network.forward_rows(block_rows(tokens[:start], 0, size), cache, ())
        noisy = ((batch[3, 0] == 1) & (batch[1, 0] >= start) & (batch[1, 0] < start + size)).nonzero()[:, 0]
        decoded = network.forward_rows(block_rows(batch[0, 0, noisy].tolist(), start, size), cache, range(size))
        assert torch.allclose(decoded.logits, logits[0, noisy], atol=1e-4)
    assert block_mask(8, 4).shape == (8, 8)


def test_packed_rows_hold_whole_documents(tokenizer: Tokenizer) -> None:
    packer = Packer(tokenizer, 1024)
    rows = packer.rows(synthetic(HELD_OUT_SEED), random.Random(0))
    mask = tokenizer.token_to_id(MASK)
    filled = []
    for _ in range(6):
        row = next(rows)
        used = row[2] > 0
        filled.append(used.mean())
        assert ((row[5] > 0) <= (row[0] == mask)).all(), "a loss only where a mask stands"
        assert (row[0][(row[3] == 0)] != mask).all(), "the clean stream has no masks"
        for document in range(1, row[2].max() + 1):
            own = row[:, row[2] == document]
            clean = own[0][own[3] == 0]
            targets = own[5] > 0
            assert (own[5][targets] - 1 == clean[own[1][targets]]).all(), (
                "the target is the clean token of that position"
            )
    assert sum(filled) / 6 > 0.8


def test_int8_keeps_the_weights(tmp_path: Path, tokenizer: Tokenizer) -> None:
    config = micro_config(tokenizer)
    network = SDAR(config)
    network.init_weights(seed=1)
    weights = network.qwen3_weights()
    packed = quantise(weights)
    assert packed["model.layers.0.self_attn.q_proj.weight"].dtype == torch.int8
    assert packed["model.layers.0.self_attn.q_proj.weight_scale"].shape == (64, 1)
    back = dequantise(packed)
    assert set(back) == set(weights)
    for name, weight in weights.items():
        step = weight.abs().amax(-1, keepdim=True) / 127
        assert ((back[name] - weight).abs() <= step * 0.51 + 1e-6).all(), name
    export(tmp_path, config, weights, tokenizer)
    assert all(torch.equal(tensor, back[name]) for name, tensor in load(tmp_path).items())
    assert set(load(tmp_path)) == set(config.weight_shapes())


def test_muon_steps_are_nearly_orthogonal() -> None:
    torch.manual_seed(0)
    for shape in ((2, 32, 64), (2, 64, 32)):
        values = torch.linalg.svdvals(orthogonalise(torch.randn(shape)))
        assert values.min() > 0.5 and values.max() < 1.5


def test_the_shipped_checkpoint_is_what_its_card_says() -> None:
    folder = shipped_path()
    config = json.loads((folder / "config.json").read_text())
    assert config["model_type"] == "sdar" and config["tie_word_embeddings"] is True
    own = config["dice_lsp"]
    assert own["layout"] == "psm" and own["decode"]["block_size"] in own["block_sizes"]
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert own["special"] == {name.strip("<>"): tokenizer.token_to_id(name) for name in SPECIALS}
    assert (folder / "model.safetensors").stat().st_size <= 16 * 1000 * 1000
    weights = load(folder)
    count = sum(tensor.numel() for tensor in weights.values())
    assert 10_000_000 <= count <= 15_000_000
    card = (folder / "README.md").read_text()
    assert f"{count / 1e6:.1f} million" in card and "MIT" in card and "not DICE" in card
