"""In which precision weights are kept, what that needs of memory, and how whole numbers are made of them.

`int8` is one factor for each row of a layer's weight; the fast kernels read it as it is, so that a pass takes about half as
long. `int4` is made and multiplied by torchao, in groups of 128; it is for GPUs that hold no more, and is slower. Embedding,
norms and the head stay as they are in both: they are a small part, and the most sensitive one.
"""

import math
from typing import TYPE_CHECKING, Literal, get_args

from dice_lsp.diffusion.sizes import SDARConfig

if TYPE_CHECKING:
    import torch

    from dice_lsp.diffusion.model import SDAR

Precision = Literal["fp32", "bf16", "int8", "int4"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)

WEIGHT_BYTES: dict[Precision, float] = {"fp32": 4.0, "bf16": 2.0, "int8": 1.0, "int4": 0.5}
INT4_GROUP = 128

CACHE_SLOTS = 4096
"""Slots of the cache that are counted on: a long prompt and one long candidate. More candidates at once take what is free."""

PASS_BYTES = {"cpu": 256 << 20, "cuda": 768 << 20}
"""What passes need beside weights and cache: logits of 96 rows, the buffers of graphs, a prompt's activations."""


def is_layer_weight(name: str, shape: tuple[int, ...]) -> bool:
    """Whether int8 and int4 take this weight."""
    return len(shape) == 2 and ".layers." in name


def needed_bytes(config: SDARConfig, precision: Precision, device_type: str) -> int:
    """Memory that a checkpoint takes on a device of a type (`cpu`, `cuda`), passes and cache included."""
    plain = 4 if precision == "fp32" else 2
    # A factor of 4 bytes a row, or of 2 with an offset of 2 a group.
    inner = INT4_GROUP if precision == "int4" else config.hidden_size
    layer = WEIGHT_BYTES[precision] + (4 / inner if precision in ("int8", "int4") else 0)
    weights = sum(
        math.prod(shape) * (layer if is_layer_weight(name, shape) else plain)
        for name, shape in config.weight_shapes().items()
    )
    slots = min(CACHE_SLOTS, config.max_position_embeddings)
    return int(weights) + slots * slot_bytes(config, plain) + PASS_BYTES[device_type]


def slot_bytes(config: SDARConfig, number_bytes: int) -> int:
    """Keys and values of one token, in numbers of this many bytes."""
    return 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim * number_bytes


def int8_rows(weight: "torch.Tensor") -> tuple["torch.Tensor", "torch.Tensor"]:
    """`[N, K]` as int8 and the factors `[N]` fp32 of its rows, the largest value of a row being 127."""
    import torch

    full = weight.float()
    scale = (full.abs().amax(1) / 127).clamp_min(1e-12)
    return (full / scale[:, None]).round().to(torch.int8), scale


def to_int4(network: "SDAR", device: "torch.device") -> "SDAR":
    """Move a bf16 network from the host to a GPU, its layers' weights as int4. Raises `ImportError` without torchao.

    One layer at a time, so that the GPU never holds more than it will.
    """
    import torch
    from torch import nn
    from torchao.quantization import Int4WeightOnlyConfig, quantize_

    config = Int4WeightOnlyConfig(group_size=INT4_GROUP, int4_packing_format="tile_packed_to_4d")

    def packed(weight: torch.Tensor) -> nn.Parameter:
        with torch.device("meta"):
            holder = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
        holder.weight = nn.Parameter(weight.to(device), requires_grad=False)
        quantize_(holder, config)
        return holder.weight

    nothing = torch.empty(0)
    for layer in network.layers():
        attention, mlp = layer.self_attn, layer.mlp
        assert attention.qkv is not None and mlp.gate_up is not None
        attention.qkv, mlp.gate_up = packed(attention.qkv), packed(mlp.gate_up)
        for joined in (attention.q_proj, attention.k_proj, attention.v_proj, mlp.gate_proj, mlp.up_proj):
            joined.weight = nn.Parameter(nothing, requires_grad=False)
        for single in (attention.o_proj, mlp.down_proj):
            single.weight = packed(single.weight)
        if attention.qk_norm is not None:
            attention.qk_norm = attention.qk_norm.to(device)
    return network.to(device)
