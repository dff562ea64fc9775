"""Weight-only int8: one scale per row, so that 13 million weights fit a package."""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from attrs import asdict
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor

from dice_lsp.diffusion.checkpoint import load as load_checkpoint
from dice_lsp.diffusion.layout_psm import EOM, MASK, MID, PAD, PRE, SUF
from dice_lsp.diffusion.model import SDARConfig

DECODE_DEFAULTS: dict[str, Any] = {
    "strategy": "low_confidence_dynamic",
    "block_size": 8,
    "threshold": 0.9,
    "temperature": 1.0,
    "top_p": 0.95,
    "max_new_tokens": 384,
}


def quantise(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Matrices as `<name>.weight` int8 and `<name>.weight_scale` fp16 `[rows, 1]`; vectors as fp16."""
    packed: dict[str, Tensor] = {}
    for name, weight in weights.items():
        weight = weight.detach().float().cpu()
        if weight.dim() != 2:
            packed[name] = weight.half()
            continue
        # The scale is rounded to fp16 first, so that what is stored is what the integers were made for.
        scale = (weight.abs().amax(1, keepdim=True) / 127).clamp_min(1e-7).half()
        packed[name] = (weight / scale.float()).round().clamp(-127, 127).to(torch.int8)
        packed[name + "_scale"] = scale
    return packed


def dequantise(packed: dict[str, Tensor]) -> dict[str, Tensor]:
    """The inverse of `quantise`, in fp32."""
    weights = {}
    for name, tensor in packed.items():
        if name.endswith("_scale"):
            continue
        scale = packed.get(name + "_scale")
        weights[name] = tensor.float() if scale is None else tensor.float() * scale.float()
    return weights


def config_of(config: SDARConfig, tokenizer: Tokenizer, decode: dict[str, Any] | None = None) -> dict[str, Any]:
    """`config.json` of the checkpoint: Qwen3's names and what the layout and the decoder need."""
    special = {name.strip("<>"): tokenizer.token_to_id(name) for name in (PRE, SUF, MID, EOM, MASK, PAD)}
    return {
        "architectures": ["SDARForCausalLM"],
        "model_type": "sdar",
        **asdict(config),
        "hidden_act": "silu",
        "attention_bias": False,
        "torch_dtype": "float32",
        "bos_token_id": special["pre"],
        "eos_token_id": special["eom"],
        "pad_token_id": special["pad"],
        "dice_lsp": {
            "layout": "psm",
            "block_sizes": [4, 8, 16, 32],
            "decode": decode or DECODE_DEFAULTS,
            "special": special,
            "quantisation": "int8 per row, weight only",
        },
    }


def export(folder: Path, config: SDARConfig, weights: dict[str, Tensor], tokenizer: Tokenizer) -> None:
    """Write `model.safetensors`, `config.json` and `tokenizer.json` into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(quantise(weights), folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config_of(config, tokenizer), indent=2) + "\n")
    tokenizer.save(str(folder / "tokenizer.json"))


def main() -> None:
    """`python -m dice_lsp.training.export FROM TO`: the int8 form, for shipping, of a small checkpoint that was trained."""
    source, target = map(Path, sys.argv[1:])
    loaded = load_checkpoint(source)
    inner: Tokenizer = loaded.tokenizer.inner  # type: ignore[attr-defined]
    export(target, loaded.network.config, loaded.network.qwen3_weights(), inner)


def load(folder: Path) -> dict[str, Tensor]:
    """The fp32 weights of an exported folder."""
    return dequantise(load_file(folder / "model.safetensors"))


if __name__ == "__main__":
    main()
