"""A checkpoint that can learn: its weights apart from the fused ones of inference, and back into a folder that can fill.

Whole fine-tuning holds fp32 weights, because steps of 1e-5 vanish in the 8 bits of a bf16 mantissa. For the large
sizes low-rank adapters (Hu et al., 2021; by `peft`) learn beside frozen weights in the checkpoint's own dtype.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import torch
from attrs import frozen
from safetensors.torch import save_file
from torch import Tensor

from dice_lsp.diffusion.checkpoint import CheckpointInfo, Tokenizer, load
from dice_lsp.diffusion.model import SDAR
from dice_lsp.diffusion.prompt import Layout, layout_for

ADAPTED = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
"""Every matrix of a layer, which the LoRA authors' later studies found to matter more than the rank."""
SHARD_BYTES = 4 << 30
SMALL = 100_000_000
"""Weights below which a network is kept in fp32."""


class TrainingError(Exception):
    """Training cannot begin or go on; the message is one sentence for the user."""


@frozen
class Trainee:
    """A network in training and what belongs to it."""

    info: CheckpointInfo
    network: SDAR
    tokenizer: Tokenizer
    layout: Layout

    def learned(self) -> dict[str, torch.nn.Parameter]:
        """The parameters that learn, by name."""
        return {name: weight for name, weight in self.network.named_parameters() if weight.requires_grad}

    @torch.no_grad()
    def weights(self) -> dict[str, Tensor]:
        """The weights under Qwen3's names, adapters added to what they adapt."""
        merged: dict[str, Tensor] = {}
        for name in self.network.config.weight_shapes():
            module: Any = self.network.get_submodule(name.rpartition(".")[0])
            base = getattr(module, "base_layer", None)
            if base is None:
                merged[name] = module.weight.detach()
            else:
                merged[name] = base.weight.float() + module.get_delta_weight("default").float()
        return merged


def load_trainee(path: Path, device: str | torch.device = "cpu", lora_rank: int = 0, positions: int = 4096) -> Trainee:
    """Read a checkpoint's folder for training on documents of up to `positions` tokens.

    With a `lora_rank`, only adapters of that rank learn. Raises `CheckpointError`, or `TrainingError` without `peft`.
    """
    loaded = load(path, "cpu")
    config = loaded.network.config
    where = torch.device(device)
    frozen_dtype = torch.bfloat16 if lora_rank and where.type == "cuda" else torch.float32
    with torch.device("meta"):
        network = SDAR(config)
    network.load_state_dict(
        {
            name: tensor.to(where, frozen_dtype, copy=True).contiguous()
            for name, tensor in loaded.network.qwen3_weights().items()
        },
        assign=True,
    )
    # The rotary tables are no part of a state: they are made again, for the longest document.
    network._grow_rope(min(positions, config.max_position_embeddings))
    for weight in network.parameters():
        weight.requires_grad_(not lora_rank)
    if lora_rank:
        _adapt(network, lora_rank)
    return Trainee(loaded.info, network, loaded.tokenizer, layout_for(loaded.info, loaded.tokenizer))


def _adapt(network: SDAR, rank: int) -> None:
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError:
        raise TrainingError("--lora needs the package peft: run `pip install 'dice-lsp[train]'`") from None
    # The second matrix of an adapter begins at zero, so a trainee starts as what it was; twice the rank as alpha is usual.
    inject_adapter_in_model(LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=ADAPTED), network)
    for name, weight in network.named_parameters():
        if "lora_" in name:
            weight.data = weight.data.float()
            weight.requires_grad_(True)
        else:
            weight.requires_grad_(False)


def save_trained(folder: Path, trainee: Trainee, about: Mapping[str, Any]) -> None:
    """Write a checkpoint that `dice-lsp infill --model FOLDER` loads; `about` goes into its `training.json`.

    Weights are fp32, bf16 in large networks, and never int8: weights that were read from int8 lie on its grid, and what
    was learned since, mostly less than half a step of it, would be rounded away. To ship, quantise once (`export`).
    The config goes last and replaces an older one at once, so that a folder half written is never taken for a whole one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    info = trainee.info
    (folder / "config.json").unlink(missing_ok=True)
    for stale in folder.glob("*.safetensors*"):
        stale.unlink()
    dtype = torch.float32 if trainee.network.config.parameters < SMALL else torch.bfloat16
    _save(folder, {name: weight.to("cpu", dtype) for name, weight in trainee.weights().items()})
    for file in info.path.iterdir():
        if file.suffix in (".json", ".txt", ".jinja") and file.name not in ("config.json", "training.json"):
            if not file.name.endswith(".safetensors.index.json") and file.resolve() != (folder / file.name).resolve():
                shutil.copyfile(file, folder / file.name)
    (folder / "training.json").write_text(json.dumps(dict(about), indent=2) + "\n", encoding="utf-8")
    (folder / "README.md").write_text(_card(info, about), encoding="utf-8")
    raw = dict(info.raw) | {
        **attrs.asdict(trainee.network.config),
        "torch_dtype": str(dtype).removeprefix("torch."),
    }
    raw.pop("dtype", None)
    if "dice_lsp" in raw:
        raw["dice_lsp"] = {key: value for key, value in raw["dice_lsp"].items() if key != "quantisation"}
    fresh = folder / "config.json.new"
    fresh.write_text(json.dumps(raw, indent=2) + "\n", encoding="utf-8")
    fresh.replace(folder / "config.json")


def _save(folder: Path, tensors: dict[str, Tensor]) -> None:
    """One safetensors file, or shards with an index when they are many bytes."""
    shards: list[dict[str, Tensor]] = [{}]
    held = 0
    for name, tensor in tensors.items():
        size = tensor.numel() * tensor.element_size()
        if held and held + size > SHARD_BYTES:
            shards.append({})
            held = 0
        # A tensor of a fused matrix shares its storage, which safetensors refuses.
        shards[-1][name] = tensor.detach().cpu().contiguous().clone()
        held += size
    if len(shards) == 1:
        save_file(shards[0], folder / "model.safetensors", metadata={"format": "pt"})
        return
    places: dict[str, str] = {}
    for at, shard in enumerate(shards):
        file = f"model-{at + 1:05}-of-{len(shards):05}.safetensors"
        save_file(shard, folder / file, metadata={"format": "pt"})
        places |= dict.fromkeys(shard, file)
    total = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def _card(info: CheckpointInfo, about: Mapping[str, Any]) -> str:
    lines = [f"# Tuned from {info.name}", "", "Made by `dice-lsp train`; the licence of the base holds for it too.", ""]
    lines += [f"- {name}: {value}" for name, value in about.items() if isinstance(value, (str, int, float, list))]
    return "\n".join(lines) + "\n"
