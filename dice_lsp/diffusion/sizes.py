"""The sizes of an SDAR network, apart from the network so that reading them does not import torch."""

import math
from typing import Any

import attrs
from attrs import frozen


@frozen
class SDARConfig:
    """Sizes of a network, named as in `config.json`."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int = 32768
    rope_theta: float = 1e6
    rms_norm_eps: float = 1e-6
    tie_word_embeddings: bool = False
    block_size: int = 4
    mask_token_id: int = 151669

    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of every weight that a checkpoint of this config must hold."""
        hidden, inner, d = self.hidden_size, self.intermediate_size, self.head_dim
        queries, keys = self.num_attention_heads * d, self.num_key_value_heads * d
        shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (self.vocab_size, hidden)}
        for layer in range(self.num_hidden_layers):
            at = f"model.layers.{layer}."
            shapes[at + "input_layernorm.weight"] = (hidden,)
            shapes[at + "self_attn.q_proj.weight"] = (queries, hidden)
            shapes[at + "self_attn.k_proj.weight"] = (keys, hidden)
            shapes[at + "self_attn.v_proj.weight"] = (keys, hidden)
            shapes[at + "self_attn.o_proj.weight"] = (hidden, queries)
            shapes[at + "self_attn.q_norm.weight"] = (d,)
            shapes[at + "self_attn.k_norm.weight"] = (d,)
            shapes[at + "post_attention_layernorm.weight"] = (hidden,)
            shapes[at + "mlp.gate_proj.weight"] = (inner, hidden)
            shapes[at + "mlp.up_proj.weight"] = (inner, hidden)
            shapes[at + "mlp.down_proj.weight"] = (hidden, inner)
        shapes["model.norm.weight"] = (hidden,)
        if not self.tie_word_embeddings:
            shapes["lm_head.weight"] = (self.vocab_size, hidden)
        return shapes

    @property
    def parameters(self) -> int:
        """Number of weights."""
        return sum(math.prod(shape) for shape in self.weight_shapes().values())


def tiny_config(**changes: Any) -> SDARConfig:
    """The sizes of the shipped checkpoint, 13.4 million weights."""
    sizes = SDARConfig(
        vocab_size=2048, hidden_size=384, intermediate_size=1024, num_hidden_layers=8, num_attention_heads=6,
        num_key_value_heads=2, head_dim=64, max_position_embeddings=2048, rope_theta=1e4, tie_word_embeddings=True,
        block_size=8, mask_token_id=0,
    )  # fmt: skip
    return attrs.evolve(sizes, **changes)
