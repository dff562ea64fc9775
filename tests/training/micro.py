"""Checkpoints of a size that learns in milliseconds, in both layouts, and records to learn from."""

import json
from pathlib import Path

from tokenizers import Tokenizer

from dice_lsp.diffusion.layout_psm import MASK
from dice_lsp.diffusion.model import SDAR, tiny_config
from dice_lsp.diffusion.registry import shipped_path
from dice_lsp.training.export import export
from tests.diffusion.small import write_checkpoint


def write_micro(folder: Path, seed: int = 0) -> Path:
    """The shipped checkpoint's layout and vocabulary around a random network of 0.2 million weights."""
    tokenizer = Tokenizer.from_file(str(shipped_path() / "tokenizer.json"))
    config = tiny_config(
        hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=32, mask_token_id=tokenizer.token_to_id(MASK),
    )  # fmt: skip
    network = SDAR(config)
    network.init_weights(seed=seed)
    export(folder, config, network.qwen3_weights(), tokenizer)
    return folder


def write_micro_dice(folder: Path, seed: int = 0) -> Path:
    """A random network that is asked as DICE is, byte by byte."""
    return write_checkpoint(folder, layout="dice", seed=seed)


def weights_of(folder: Path) -> dict:
    """The weights of a checkpoint's folder, by name, in fp32."""
    from dice_lsp.diffusion.checkpoint import load

    return {name: tensor.clone() for name, tensor in load(folder).network.qwen3_weights().items()}


def losses_of(folder: Path) -> list[float]:
    """The losses that a run wrote down, a step each."""
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if "loss" in line]
