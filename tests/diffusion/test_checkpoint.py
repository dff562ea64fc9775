"""Checkpoint folders: what loads, and one sentence for each that does not."""

import json
import pickle
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

from dice_lsp.diffusion.checkpoint import CheckpointError, load, read
from dice_lsp.records import DecodeSettings
from tests.diffusion.small import block_rows, byte_tokenizer, write_checkpoint


@pytest.fixture
def folder(tmp_path):
    return write_checkpoint(tmp_path / "small", layout="psm")


def change_config(folder, **changes):
    config = json.loads((folder / "config.json").read_text())
    for name, value in changes.items():
        if value is ...:
            config.pop(name)
        else:
            config[name] = value
    (folder / "config.json").write_text(json.dumps(config))


def change_weights(folder, change):
    weights = {name: tensor.clone() for name, tensor in load_file(folder / "model.safetensors").items()}
    change(weights)
    save_file(weights, folder / "model.safetensors")


def logits(folder):
    loaded = load(folder)
    return loaded.network.forward_rows(block_rows(range(8), 0, 8), loaded.network.slot_cache(8), range(8)).logits


def test_what_a_folder_says(folder):
    info = read(folder)
    assert (info.name, info.layout, info.block_sizes) == ("small", "psm", (4, 8, 16))
    assert info.decode == DecodeSettings("sequential", 4, 4, 0.9, 1.0, 0, 1.0, 64)
    assert len(info.stop_ids) == 27 and info.mask_id == 260 and info.special["mask"] == 260
    asked = info.settings(DecodeSettings(block_size=16, threshold=0.5))
    assert (asked.block_size, asked.denoising_steps, asked.threshold, asked.temperature) == (16, 16, 0.5, 1.0)
    assert info.settings(DecodeSettings(block_size=8, denoising_steps=2)).denoising_steps == 2
    change_config(folder, dice_lsp={"layout": "psm", "block_sizes": [16], "decode": {"block_size": 16}})
    assert read(folder).decode.denoising_steps == 16


def test_dice_defaults_and_stop_tokens(tmp_path):
    folder = write_checkpoint(tmp_path / "dice", layout="dice", config_changes={"eos_token_id": 257})
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [258, 257]}))
    info = read(folder)
    assert info.layout == "dice" and info.block_sizes == (4,) and info.stop_ids == (257, 258)
    assert info.decode.strategy == "low_confidence_static" and info.decode.denoising_steps == 4


def test_int8_is_the_same_as_its_dequantised_weights(folder, tmp_path):
    exact = write_checkpoint(tmp_path / "exact", layout="psm")

    def quantise(weights):
        for name in [name for name, tensor in weights.items() if tensor.dim() == 2]:
            scale = (weights[name].abs().amax(1, keepdim=True) / 127).half()
            weights[name] = (weights[name] / scale.float()).round().clamp(-127, 127).to(torch.int8)
            weights[name + "_scale"] = scale

    def dequantise(weights):
        quantise(weights)
        for name in [name for name in weights if name.endswith("_scale")]:
            weights[name.removesuffix("_scale")] = (
                weights[name.removesuffix("_scale")].float() * weights.pop(name).float()
            )

    plain = logits(folder)
    change_weights(folder, quantise)
    change_weights(exact, dequantise)
    assert torch.equal(logits(folder), logits(exact))
    assert not torch.equal(logits(folder), plain)
    torch.testing.assert_close(logits(folder), plain, atol=0.05, rtol=0.05)


def test_shards_equal_one_file(folder, tmp_path):
    expected = logits(folder)
    weights = load_file(folder / "model.safetensors")
    names, places = sorted(weights), {}
    for number, start in enumerate(range(0, len(names), 7), 1):
        part = names[start : start + 7]
        file = f"model-{number:05}-of-00004.safetensors"
        save_file({name: weights[name].clone() for name in part}, folder / file)
        places |= dict.fromkeys(part, file)
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    assert torch.equal(logits(folder), expected)
    (folder / "model-00002-of-00004.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"not complete: its shard model-00002-of-00004.safetensors is missing"):
        read(folder)


def test_a_stored_head_is_used_even_when_the_config_ties(folder):
    expected = logits(folder)
    change_config(folder, tie_word_embeddings=True)
    assert torch.equal(logits(folder), expected)
    change_weights(folder, lambda weights: weights.pop("lm_head.weight"))
    tied = load(folder).network
    assert tied.lm_head is None and not torch.equal(logits(folder), expected)


def test_half_precision_becomes_fp32_on_the_cpu(folder):
    change_weights(folder, lambda weights: weights.update({name: tensor.half() for name, tensor in weights.items()}))
    assert load(folder).network.dtype == torch.float32


def test_rope_theta_of_transformers_5(folder):
    expected = logits(folder)
    change_config(folder, rope_theta=..., rope_parameters={"rope_theta": 10000.0, "rope_type": "default"})
    assert torch.equal(logits(folder), expected)


def test_vocabulary_and_merges_are_read_by_transformers(tmp_path):
    folder = write_checkpoint(tmp_path / "dice", layout="dice")
    tokenizer = byte_tokenizer()
    vocabulary = {token: number for token, number in tokenizer.get_vocab().items() if number < 256}
    added = {token: number for token, number in tokenizer.get_vocab().items() if number >= 256}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    (folder / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "Qwen2Tokenizer",
                "added_tokens_decoder": {
                    str(number): {
                        "content": token,
                        "special": True,
                        "lstrip": False,
                        "rstrip": False,
                        "normalized": False,
                        "single_word": False,
                    }
                    for token, number in added.items()
                },
            }
        )  # fmt: skip
    )
    (folder / "tokenizer.json").unlink()
    ours = load(folder).tokenizer
    text = "<|im_start|>user\n  z[i] = a * x[i];\r\n\t// µ\n<|im_end|>"
    assert ours.encode(text) == tokenizer.encode(text).ids
    assert ours.decode(ours.encode(text)) == text
    assert ours.id("<|im_end|>") == tokenizer.token_to_id("<|im_end|>") and ours.id("nope") is None


BROKEN = {
    "no config": (lambda f: (f / "config.json").unlink(), "is no checkpoint: config.json is missing"),
    "no json": (lambda f: (f / "config.json").write_text("{"), "is no checkpoint: config.json: JSONDecodeError"),
    "a list": (lambda f: (f / "config.json").write_text("[]"), "config.json is no JSON object"),
    "another model": (lambda f: change_config(f, model_type="llama"), "small is a llama model: only SDAR"),
    "bias": (lambda f: change_config(f, attention_bias=True), "attention_bias True in its config, which is not supported"),
    "scaling": (lambda f: change_config(f, rope_scaling={"type": "yarn"}), "rope_scaling .* not supported"),
    "window": (lambda f: change_config(f, use_sliding_window=True), "use_sliding_window in its config"),
    "no size": (lambda f: change_config(f, hidden_size=...), "small has no hidden_size in its config"),
    "word as size": (lambda f: change_config(f, hidden_size="big"), "hidden_size 'big' in its config, which is no int"),
    "zero layers": (lambda f: change_config(f, num_hidden_layers=0), "num_hidden_layers 0 .* too small"),
    "mask outside": (lambda f: change_config(f, mask_token_id=9999), "no mask_token_id inside its vocabulary"),
    "heads": (lambda f: change_config(f, num_key_value_heads=3), "4 query heads, 3 key heads .* do not fit"),
    "layout": (lambda f: change_config(f, dice_lsp={"layout": "fim"}), "unknown layout 'fim': .* psm and dice"),
    "decode": (lambda f: change_config(f, dice_lsp={"decode": {"speed": 9}}), "unknown decode setting 'speed'"),
    "blocks": (lambda f: change_config(f, dice_lsp={"block_sizes": [0]}), "block sizes .* positive integers"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), r"has no weights: a \*.safetensors file is needed"),
    "cut file": (
        lambda f: (f / "model.safetensors").write_bytes((f / "model.safetensors").read_bytes()[:5000]),
        "model.safetensors of small is no whole safetensors file",
    ),
    "missing weight": (
        lambda f: change_weights(f, lambda w: (w.pop("model.norm.weight"), w.pop("lm_head.weight"))),
        "not complete: weight model.norm.weight and 1 more is missing",
    ),
    "wrong shape": (
        lambda f: change_weights(f, lambda w: w.update({"model.norm.weight": torch.ones(7)})),
        r"weight model.norm.weight of small has shape \[7\], but its config asks for \[32\]",
    ),
    "strange weight": (
        lambda f: change_weights(f, lambda w: w.update({"model.layers.9.extra": torch.ones(2)})),
        "small holds model.layers.9.extra, which no SDAR network",
    ),
    "no scale": (
        lambda f: change_weights(f, lambda w: w.update({"lm_head.weight": w["lm_head.weight"].to(torch.int8)})),
        "lm_head.weight of small is int8 and has no scale of shape",
    ),
    "dtype": (
        lambda f: change_weights(f, lambda w: w.update({"model.norm.weight": torch.ones(32, dtype=torch.int64)})),
        "model.norm.weight of small is stored as I64",
    ),
    "no tokenizer": (lambda f: (f / "tokenizer.json").unlink(), "has no tokenizer: tokenizer.json, or vocab.json"),
    "broken tokenizer": (lambda f: (f / "tokenizer.json").write_text("{}"), "tokenizer .* cannot be read"),
    "escaping index": (
        lambda f: (f / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../../x.safetensors"}}'),
        "names '../../x.safetensors': only safetensors beside it",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_each_broken_folder_has_its_sentence(folder, case):
    spoil, sentence = BROKEN[case]
    spoil(folder)
    with pytest.raises(CheckpointError, match=sentence) as caught:
        load(folder)
    assert "\n" not in str(caught.value) and not str(caught.value).endswith(".")


class _Bomb:
    def __reduce__(self):
        return (exec, ("raise SystemExit('a pickle was run')",))


def test_a_pickle_is_refused_and_never_run(folder):
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(_Bomb()))
    with pytest.raises(CheckpointError, match=r"holds pytorch_model.bin, which can run code .* only safetensors"):
        load(folder)


def test_code_in_a_folder_is_never_imported(folder):
    (folder / "modeling_sdar.py").write_text("raise SystemExit('code of a checkpoint was run')")
    change_config(folder, auto_map={"AutoModelForCausalLM": "modeling_sdar.SDARForCausalLM"})
    assert load(folder).network.config.hidden_size == 32


def test_reading_and_listing_import_no_torch(folder):
    code = (
        "import sys; from pathlib import Path; from dice_lsp.diffusion import checkpoint, registry; "
        f"checkpoint.read(Path({str(folder)!r})); registry.list_checkpoints(); "
        "print([m for m in ('torch', 'transformers', 'huggingface_hub') if m in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"
