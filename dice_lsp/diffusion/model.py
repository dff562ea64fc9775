"""The SDAR network: a dense Qwen3 decoder whose attention is causal across blocks and bidirectional inside one.

Weights carry Qwen3's names, so a published SDAR or DICE checkpoint loads without a change; row i of the logits
predicts token i itself. Two ways in: `forward_rows` (any tokens of a pass against the slots of a cache, for decoding) and
`forward_train` (whole sequences under any mask, gradients flow).

Shapes: N rows of a batch, T tokens, H query heads, K key-value heads, G = H // K, D head_dim, S slots of the cache.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from dice_lsp.diffusion.rows import Rows, Seen, SlotCache, summarize
from dice_lsp.diffusion.sizes import SDARConfig as SDARConfig
from dice_lsp.diffusion.sizes import tiny_config as tiny_config


class RMSNorm(nn.Module):
    """x / rms(x) * weight, the mean square taken in fp32."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


class Linear(nn.Linear):
    """A layer without bias, whose weight may be int8 with a factor for each of its rows (for inference alone)."""

    weight_scale: Tensor | None

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, bias=False)
        self.register_buffer("weight_scale", None)

    def forward(self, x: Tensor) -> Tensor:
        return _linear(x, self.weight, self.weight_scale)


def _linear(x: Tensor, weight: Tensor, scale: Tensor | None) -> Tensor:
    """`x` times a weight `[N, K]`; with `scale` `[N]` fp32 the weight is int8, every value of which is one of bf16 too."""
    if scale is None:
        return F.linear(x, weight)
    return (F.linear(x, weight.to(x.dtype)) * scale).to(x.dtype)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding. `sin` carries the sign of its half, so that half-rotation is a plain roll."""
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)


class Attention(nn.Module):
    def __init__(self, config: SDARConfig) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = (
            config.num_attention_heads,
            config.num_key_value_heads,
            config.head_dim,
        )
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        self.q_proj = Linear(config.hidden_size, queries)
        self.k_proj = Linear(config.hidden_size, keys)
        self.v_proj = Linear(config.hidden_size, keys)
        self.o_proj = Linear(queries, config.hidden_size)
        self.q_norm = RMSNorm(self.head_dim, config.rms_norm_eps)
        self.k_norm = RMSNorm(self.head_dim, config.rms_norm_eps)
        self.qkv: Tensor | None = None
        self.qkv_scale: Tensor | None = None
        self.qk_norm: Tensor | None = None

    def fuse(self) -> None:
        self.qkv, self.qkv_scale = _fused_rows((self.q_proj, self.k_proj, self.v_proj))
        self.qk_norm = torch.cat(
            [self.q_norm.weight.data.expand(self.heads, -1), self.k_norm.weight.data.expand(self.kv_heads, -1)]
        )

    def project(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries `[N, T, H, D]`, keys and values `[N, T, K, D]`, the first two normed and rotated."""
        rows, tokens, _ = x.shape
        heads, kv_heads = self.heads, self.kv_heads
        if self.qkv is not None and self.qk_norm is not None:
            joint = _linear(x, self.qkv, self.qkv_scale).view(rows, tokens, heads + 2 * kv_heads, self.head_dim)
            qk, v = torch.split(joint, [heads + kv_heads, kv_heads], 2)
            qk = _rotate(F.rms_norm(qk, (self.head_dim,), None, self.q_norm.eps) * self.qk_norm, cos, sin)
            q, k = torch.split(qk, [heads, kv_heads], 2)
            return q, k, v
        q = self.q_norm(self.q_proj(x).view(rows, tokens, heads, self.head_dim))
        k = self.k_norm(self.k_proj(x).view(rows, tokens, kv_heads, self.head_dim))
        v = self.v_proj(x).view(rows, tokens, kv_heads, self.head_dim)
        return _rotate(q, cos, sin), _rotate(k, cos, sin), v

    def attend_spans(self, q: Tensor, keys: Tensor, values: Tensor, visible: Tensor) -> Tensor:
        """Attention of `q` `[M, H, D]` to those of `keys` `[K, S, D]` that `visible` `[M, S]` shows: `[1, M, H * D]`."""
        rows, heads, dim = q.shape
        groups = heads // self.kv_heads
        folded = q.view(rows, self.kv_heads, groups, dim).permute(1, 2, 0, 3).reshape(1, self.kv_heads, -1, dim)
        out = F.scaled_dot_product_attention(folded, keys[None], values[None], attn_mask=visible.repeat(groups, 1))
        out = out.view(self.kv_heads, groups, rows, dim).permute(2, 0, 1, 3)
        return out.reshape(1, rows, heads * dim)

    def attend_masked(self, q: Tensor, keys: Tensor, values: Tensor, mask: "Tensor | BlockMask") -> Tensor:
        """The same under a mask: a boolean or additive tensor that broadcasts to `[N, H, T, S]`, or a `BlockMask`."""
        rows, tokens, heads, dim = q.shape
        q = q.transpose(1, 2)
        if isinstance(mask, BlockMask):
            out: Any = flex_attention(q, keys, values, block_mask=mask, enable_gqa=heads != self.kv_heads)
        else:
            # Repeating the keys costs little here and works on every version and device, unlike `enable_gqa`.
            keys = keys.repeat_interleave(heads // self.kv_heads, 1)
            values = values.repeat_interleave(heads // self.kv_heads, 1)
            out = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
        joined: Tensor = out.transpose(1, 2).reshape(rows, tokens, heads * dim)
        return joined


class MLP(nn.Module):
    def __init__(self, config: SDARConfig) -> None:
        super().__init__()
        self.gate_proj = Linear(config.hidden_size, config.intermediate_size)
        self.up_proj = Linear(config.hidden_size, config.intermediate_size)
        self.down_proj = Linear(config.intermediate_size, config.hidden_size)
        self.gate_up: Tensor | None = None
        self.gate_up_scale: Tensor | None = None

    def fuse(self) -> None:
        self.gate_up, self.gate_up_scale = _fused_rows((self.gate_proj, self.up_proj))

    def forward(self, x: Tensor) -> Tensor:
        if self.gate_up is not None:
            gate, up = _linear(x, self.gate_up, self.gate_up_scale).chunk(2, -1)
        else:
            gate, up = self.gate_proj(x), self.up_proj(x)
        out: Tensor = self.down_proj(F.silu(gate) * up)
        return out


class Layer(nn.Module):
    def __init__(self, config: SDARConfig) -> None:
        super().__init__()
        self.self_attn = Attention(config)
        self.mlp = MLP(config)
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)


class Decoder(nn.Module):
    """Embedding, layers and last norm: what carries the prefix `model.` in a checkpoint."""

    def __init__(self, config: SDARConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)


class SDAR(nn.Module):
    """The network. Construct it for training, or with `from_weights` for inference."""

    refused = ""

    rope_cos: Tensor
    rope_sin: Tensor

    def __init__(self, config: SDARConfig) -> None:
        super().__init__()
        self.config = config
        self.model = Decoder(config)
        self.lm_head: nn.Linear | None = None
        if not config.tie_word_embeddings:
            self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        cos, sin = _rope_tables(config, min(config.max_position_embeddings, 4096))
        self.register_buffer("rope_cos", cos, persistent=False)
        self.register_buffer("rope_sin", sin, persistent=False)

    @classmethod
    def from_weights(cls, config: SDARConfig, weights: dict[str, Tensor]) -> "SDAR":
        """A network for inference around `weights` (Qwen3 names, all of one dtype on one device; the dict is emptied).

        A layer's weight may be int8 where the dict has `NAME_scale` `[N]` fp32 beside it.
        Raises `KeyError` or `ValueError` for a missing weight or a wrong shape; `checkpoint.load` says it in words.
        """
        with torch.device("meta"):
            network = cls(config)
        for name, shape in config.weight_shapes().items():
            weight = weights.pop(name)
            if tuple(weight.shape) != shape:
                raise ValueError(f"{name} is {tuple(weight.shape)}, expected {shape}")
            owner, _, leaf = name.rpartition(".")
            setattr(network.get_submodule(owner), leaf, nn.Parameter(weight, requires_grad=False))
            if weight.dtype is torch.int8:
                setattr(network.get_submodule(owner), f"{leaf}_scale", weights.pop(f"{name}_scale"))
        network._grow_rope(min(config.max_position_embeddings, 4096))
        network.eval()
        network.fuse()
        return network

    @property
    def device(self) -> torch.device:
        return self.model.embed_tokens.weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self.model.embed_tokens.weight.dtype

    def init_weights(self, std: float = 0.02, seed: int = 0) -> None:
        """Normal weights, norms of one, and the two projections that write to the residual scaled by the depth."""
        generator = torch.Generator(device=self.device).manual_seed(seed)
        depth = (2 * self.config.num_hidden_layers) ** -0.5
        for name, parameter in self.named_parameters():
            if parameter.dim() < 2:
                nn.init.ones_(parameter)
            else:
                scale = depth if name.endswith(("o_proj.weight", "down_proj.weight")) else 1.0
                with torch.no_grad():
                    parameter.normal_(0.0, std * scale, generator=generator)

    def fuse(self) -> None:
        """Join q/k/v and gate/up into one matrix each; the single weights become views of it, so no memory is added.

        For inference only, after the last move between devices or dtypes: moving a weight breaks the view.
        """
        for layer in self.layers():
            layer.self_attn.fuse()
            layer.mlp.fuse()

    def layers(self) -> list[Layer]:
        return list(self.model.layers)  # type: ignore[arg-type]

    def _grow_rope(self, length: int) -> None:
        cos, sin = _rope_tables(self.config, length)
        self.rope_cos = cos.to(self.device, self.dtype)
        self.rope_sin = sin.to(self.device, self.dtype)

    def warm(self, bucket: int) -> None:
        """Nothing is to be prepared."""

    def logits(self, hidden: Tensor) -> Tensor:
        """`[..., hidden]` after the last norm -> `[..., vocab]`."""
        weight = self.model.embed_tokens.weight if self.lm_head is None else self.lm_head.weight
        return F.linear(hidden, weight)

    def slot_cache(self, slots: int, spare: int = 0, multiple: int = 1) -> SlotCache:
        """An empty cache of numbered slots; positions below `slots` can be used with it.

        It holds `spare` more, and again more up to a `multiple`.
        """
        if slots > self.rope_cos.shape[0]:
            self._grow_rope(slots)
        every = -(-(slots + spare) // multiple) * multiple
        return SlotCache(self.config, slots, self.device, self.dtype, every)

    @torch.inference_mode()
    def forward_rows(self, rows: Rows, cache: SlotCache, wanted: Sequence[int]) -> Seen:
        """See `rows.RowNetwork`."""
        ids, positions, slots = rows.numbers[:3].to(self.device).long()
        cos, sin = self.rope_cos[positions, None], self.rope_sin[positions, None]
        x: Tensor = self.model.embed_tokens(ids)[None]
        visible = rows.visible(self.device)
        for index, layer in enumerate(self.layers()):
            attention = layer.self_attn
            q, k, v = attention.project(layer.input_layernorm(x), cos, sin)
            keys, values = cache.keys[index], cache.values[index]
            keys.index_copy_(1, slots, k[0].transpose(0, 1))
            values.index_copy_(1, slots, v[0].transpose(0, 1))
            seen = attention.attend_spans(q[0], keys[:, : rows.end], values[:, : rows.end], visible)
            x = x + attention.o_proj(seen)
            x = x + layer.mlp(layer.post_attention_layernorm(x))
        logits = self.logits(self.model.norm(x[0, torch.tensor(wanted, dtype=torch.long, device=self.device)]))
        return Seen(logits, summarize(logits, self.config.mask_token_id))

    def forward_train(
        self,
        input_ids: Tensor,
        position_ids: Tensor,
        mask: "Tensor | BlockMask",
        rows: Tensor | None = None,
    ) -> Tensor:
        """Logits of a whole sequence under any mask, with gradients and without a cache.

        `input_ids` `[N, T]`; `position_ids` `[T]` or `[N, T]`, so that a clean and a noisy stream may repeat them;
        `mask` boolean (True = visible) or additive and broadcast to `[N, H, T, T]`, or a flex `BlockMask`.
        Returns `[N, T, V]`, or `[M, V]` for the M tokens where the boolean `rows` `[N, T]` is True.
        """
        hidden = self.hidden_train(input_ids, position_ids, mask)
        return self.logits(hidden if rows is None else hidden[rows])

    def hidden_train(
        self,
        input_ids: Tensor,
        position_ids: Tensor,
        mask: "Tensor | BlockMask",
        run: Callable[..., Tensor] | None = None,
    ) -> Tensor:
        """`forward_train` without the vocabulary: `[N, T, hidden]` after the last norm.

        `run(layer_train, layer, x, cos, sin, mask)` takes the place of each layer's plain call: so training compiles a
        layer, or forgets what it held and computes it again on the way back.
        """
        x: Tensor = self.model.embed_tokens(input_ids)
        # Under autocast x stays fp32 while the projections are bf16; the tables follow the queries' dtype there.
        cos, sin = self.rope_cos[position_ids].unsqueeze(-2), self.rope_sin[position_ids].unsqueeze(-2)
        for layer in self.layers():
            if run is None:
                x = layer_train(layer, x, cos, sin, mask)
            else:
                x = run(layer_train, layer, x, cos, sin, mask)
        normed: Tensor = self.model.norm(x)
        return normed

    def qwen3_weights(self) -> dict[str, Tensor]:
        """The weights to save, under Qwen3's names."""
        return {name: tensor.detach() for name, tensor in self.state_dict().items()}


def layer_train(layer: Layer, x: Tensor, cos: Tensor, sin: Tensor, mask: "Tensor | BlockMask") -> Tensor:
    """One layer over `[N, T, hidden]` under a mask, without a cache."""
    attention = layer.self_attn
    q, k, v = attention.project(layer.input_layernorm(x), cos, sin)
    q, k = q.to(v.dtype), k.to(v.dtype)
    seen = attention.attend_masked(q, k.transpose(1, 2), v.transpose(1, 2), mask)
    x = x + attention.o_proj(seen)
    added: Tensor = layer.mlp(layer.post_attention_layernorm(x))
    return x + added


def block_mask(tokens: int, block_size: int, device: torch.device | str = "cpu") -> Tensor:
    """Boolean `[T, T]`: a query of block b sees every token of the blocks up to b, its own included."""
    block = torch.arange(tokens, device=device) // block_size
    return block[None, :] <= block[:, None]


def _rope_tables(config: SDARConfig, length: int) -> tuple[Tensor, Tensor]:
    """Cosine and signed sine, `[length, D]` in fp32."""
    half = torch.arange(0, config.head_dim, 2, dtype=torch.float32, device="cpu") / config.head_dim
    angles = torch.outer(torch.arange(length, dtype=torch.float32, device="cpu"), config.rope_theta**-half)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1)


def _fused_rows(projections: Sequence[Linear]) -> tuple[Tensor, Tensor | None]:
    """The weights of several layers as one, and their factors where they are int8."""
    fused = torch.cat([projection.weight.data for projection in projections])
    at = 0
    for projection in projections:
        rows = projection.weight.shape[0]
        projection.weight = nn.Parameter(fused[at : at + rows], requires_grad=False)
        at += rows
    scales = [projection.weight_scale for projection in projections if projection.weight_scale is not None]
    return fused, torch.cat(scales) if scales else None
