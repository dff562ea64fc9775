"""The SDAR network: a dense Qwen3 decoder whose attention is causal across blocks and bidirectional inside one.

Weights carry Qwen3's names, so a published SDAR or DICE checkpoint loads without a change; row i of the logits
predicts token i itself. Three ways in: `prefill` (many blocks, keys and values kept), `forward_block` and
`forward_fused` (one block of every candidate against the cache), `forward_train` (any mask, gradients flow).

Shapes: N rows of a batch, T tokens, H query heads, K key-value heads, G = H // K, D head_dim, C slots of the cache.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from dice_lsp.diffusion.rows import Rows, SlotCache
from dice_lsp.diffusion.sizes import SDARConfig as SDARConfig
from dice_lsp.diffusion.sizes import tiny_config as tiny_config


class KVCache:
    """Keys and values of the committed tokens, `[layers, N, K, C, D]` each, allocated once for the largest batch.

    Slots `[0, length)` are final. A forward writes its own block to the slots behind them; only a forward with
    `store_kv=True` moves `length`, so that the next forward sees them and the one after does not overwrite them.
    The first `rows` rows are in use: candidates that share all tokens so far share one row, `fork` gives one that
    departs a row of its own, `drop` closes the gap that one leaves.
    """

    def __init__(self, config: SDARConfig, rows: int, capacity: int, device: torch.device, dtype: torch.dtype) -> None:
        shape = (config.num_hidden_layers, rows, config.num_key_value_heads, capacity, config.head_dim)
        self.keys = torch.zeros(shape, device=device, dtype=dtype)
        self.values = torch.zeros(shape, device=device, dtype=dtype)
        self.length = 0
        self.rows = rows

    @property
    def max_rows(self) -> int:
        return self.keys.shape[1]

    @property
    def capacity(self) -> int:
        return self.keys.shape[3]

    def fork(self, row: int) -> int:
        """A copy of `row` as a new last row; its number."""
        self.rows += 1
        self._copy(row, self.rows - 1)
        return self.rows - 1

    def drop(self, row: int) -> None:
        """Give up `row`; the last row takes its number."""
        self.rows -= 1
        if row != self.rows:
            self._copy(self.rows, row)

    def _copy(self, source: int, target: int) -> None:
        for tensor in (self.keys, self.values):
            tensor[:, target, :, : self.length] = tensor[:, source, :, : self.length]


class RMSNorm(nn.Module):
    """x / rms(x) * weight, the mean square taken in fp32."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


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
        self.q_proj = nn.Linear(config.hidden_size, queries, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, keys, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, keys, bias=False)
        self.o_proj = nn.Linear(queries, config.hidden_size, bias=False)
        self.q_norm = RMSNorm(self.head_dim, config.rms_norm_eps)
        self.k_norm = RMSNorm(self.head_dim, config.rms_norm_eps)
        self.qkv: Tensor | None = None
        self.qk_norm: Tensor | None = None

    def fuse(self) -> None:
        projections = (self.q_proj, self.k_proj, self.v_proj)
        self.qkv = _fused_rows(projections)
        self.qk_norm = torch.cat(
            [self.q_norm.weight.data.expand(self.heads, -1), self.k_norm.weight.data.expand(self.kv_heads, -1)]
        )

    def project(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries `[N, T, H, D]`, keys and values `[N, T, K, D]`, the first two normed and rotated."""
        rows, tokens, _ = x.shape
        heads, kv_heads = self.heads, self.kv_heads
        if self.qkv is not None and self.qk_norm is not None:
            joint = F.linear(x, self.qkv).view(rows, tokens, heads + 2 * kv_heads, self.head_dim)
            qk, v = torch.split(joint, [heads + kv_heads, kv_heads], 2)
            qk = _rotate(F.rms_norm(qk, (self.head_dim,), None, self.q_norm.eps) * self.qk_norm, cos, sin)
            q, k = torch.split(qk, [heads, kv_heads], 2)
            return q, k, v
        q = self.q_norm(self.q_proj(x).view(rows, tokens, heads, self.head_dim))
        k = self.k_norm(self.k_proj(x).view(rows, tokens, kv_heads, self.head_dim))
        v = self.v_proj(x).view(rows, tokens, kv_heads, self.head_dim)
        return _rotate(q, cos, sin), _rotate(k, cos, sin), v

    def attend(self, q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Attention of all of `q` `[N, T, H, D]` to all of `keys` `[N, K, S, D]`: `[N, T, H * D]`.

        The G query heads of a key head become rows of one query matrix, so no key is repeated and no mask is needed.
        """
        rows, tokens, heads, dim = q.shape
        groups = heads // self.kv_heads
        folded = q.view(rows, tokens, self.kv_heads, groups, dim).permute(0, 2, 3, 1, 4)
        folded = folded.reshape(rows, self.kv_heads, groups * tokens, dim)
        out = F.scaled_dot_product_attention(folded, keys, values)
        out = out.view(rows, self.kv_heads, groups, tokens, dim).permute(0, 3, 1, 2, 4)
        return out.reshape(rows, tokens, heads * dim)

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
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)
        self.gate_up: Tensor | None = None

    def fuse(self) -> None:
        self.gate_up = _fused_rows((self.gate_proj, self.up_proj))

    def forward(self, x: Tensor) -> Tensor:
        if self.gate_up is not None:
            gate, up = F.linear(x, self.gate_up).chunk(2, -1)
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
        for layer in self._layers():
            layer.self_attn.fuse()
            layer.mlp.fuse()

    def _layers(self) -> list[Layer]:
        return list(self.model.layers)  # type: ignore[arg-type]

    def _grow_rope(self, length: int) -> None:
        cos, sin = _rope_tables(self.config, length)
        self.rope_cos = cos.to(self.device, self.dtype)
        self.rope_sin = sin.to(self.device, self.dtype)

    def cache(self, rows: int, capacity: int) -> KVCache:
        """An empty cache for this network; positions up to `capacity` can be used with it."""
        if capacity > self.rope_cos.shape[0]:
            self._grow_rope(capacity)
        return KVCache(self.config, rows, capacity, self.device, self.dtype)

    def logits(self, hidden: Tensor) -> Tensor:
        """`[..., hidden]` after the last norm -> `[..., vocab]`."""
        weight = self.model.embed_tokens.weight if self.lm_head is None else self.lm_head.weight
        return F.linear(hidden, weight)

    @torch.inference_mode()
    def prefill(self, input_ids: Tensor, cache: KVCache, block_size: int) -> None:
        """Commit whole blocks: `input_ids` `[N, T]`, T and `cache.length` multiples of `block_size`.

        A token sees the cache and every token of its own and earlier blocks.
        """
        tokens = input_ids.shape[1]
        if tokens % block_size or cache.length % block_size:
            raise ValueError(f"{tokens} tokens at {cache.length} are not whole blocks of {block_size}")
        start, end = cache.length, cache.length + tokens
        block = torch.arange(start, end, device=self.device) // block_size
        mask = None
        if tokens > block_size:
            every = torch.arange(end, device=self.device) // block_size
            mask = every[None, :] <= block[:, None]
        self._run(input_ids, cache, ((0, tokens),), mask)
        cache.length = end

    @torch.inference_mode()
    def forward_block(self, input_ids: Tensor, cache: KVCache, *, store_kv: bool = False) -> Tensor:
        """Logits `[N, T, V]` of one block `[N, T]` that sees the cache and all of itself; kept if `store_kv`."""
        hidden = self._run(input_ids, cache, ((0, input_ids.shape[1]),), None)
        if store_kv:
            cache.length += input_ids.shape[1]
        return self.logits(self.model.norm(hidden))

    @torch.inference_mode()
    def commit(self, input_ids: Tensor, cache: KVCache) -> None:
        """Keep the keys and values of one fully revealed block `[N, T]`, without the logits."""
        self._run(input_ids, cache, ((0, input_ids.shape[1]),), None)
        cache.length += input_ids.shape[1]

    @torch.inference_mode()
    def forward_fused(self, revealed: Tensor, following: Tensor, cache: KVCache) -> Tensor:
        """`commit(revealed)` and `forward_block(following)` in one pass: the revealed block does not see the other.

        The weights are read once for both, which is what a pass costs at these sizes.
        """
        size = revealed.shape[1]
        both = torch.cat([revealed, following], 1)
        hidden = self._run(both, cache, ((0, size), (size, both.shape[1])), None)
        cache.length += size
        return self.logits(self.model.norm(hidden[:, size:]))

    def slot_cache(self, slots: int, spare: int = 0, multiple: int = 1) -> SlotCache:
        """An empty cache of numbered slots; positions below `slots` can be used with it.

        It holds `spare` more, and again more up to a `multiple`.
        """
        if slots > self.rope_cos.shape[0]:
            self._grow_rope(slots)
        every = -(-(slots + spare) // multiple) * multiple
        return SlotCache(self.config, slots, self.device, self.dtype, every)

    @torch.inference_mode()
    def forward_rows(self, rows: Rows, cache: SlotCache, wanted: Tensor | None) -> Tensor:
        """See `rows.RowNetwork`."""
        cos, sin = self.rope_cos[rows.positions, None], self.rope_sin[rows.positions, None]
        x: Tensor = self.model.embed_tokens(rows.ids)[None]
        visible = rows.visible()
        for index, layer in enumerate(self._layers()):
            attention = layer.self_attn
            q, k, v = attention.project(layer.input_layernorm(x), cos, sin)
            keys, values = cache.keys[index], cache.values[index]
            keys.index_copy_(1, rows.slots, k[0].transpose(0, 1))
            values.index_copy_(1, rows.slots, v[0].transpose(0, 1))
            seen = attention.attend_spans(q[0], keys[:, : rows.end], values[:, : rows.end], visible)
            x = x + attention.o_proj(seen)
            x = x + layer.mlp(layer.post_attention_layernorm(x))
        if wanted is None:
            return x.new_empty(0, self.config.vocab_size)
        return self.logits(self.model.norm(x[0, wanted]))

    def _run(
        self, input_ids: Tensor, cache: KVCache, parts: tuple[tuple[int, int], ...], mask: Tensor | None
    ) -> Tensor:
        """All layers over `input_ids` at the cache's end. Each part `[a, b)` of the tokens sees all slots before its b."""
        rows, tokens = input_ids.shape
        start, end = cache.length, cache.length + tokens
        if rows != cache.rows or end > cache.capacity:
            raise ValueError(
                f"{rows} rows up to {end} do not fit a cache of {cache.rows} rows and {cache.capacity} slots"
            )
        cos, sin = self.rope_cos[start:end, None], self.rope_sin[start:end, None]
        x: Tensor = self.model.embed_tokens(input_ids)
        for index, layer in enumerate(self._layers()):
            attention = layer.self_attn
            q, k, v = attention.project(layer.input_layernorm(x), cos, sin)
            keys, values = cache.keys[index, :rows], cache.values[index, :rows]
            keys[:, :, start:end] = k.transpose(1, 2)
            values[:, :, start:end] = v.transpose(1, 2)
            if mask is not None:
                seen = attention.attend_masked(q, keys[:, :, :end], values[:, :, :end], mask)
            elif len(parts) == 1:
                seen = attention.attend(q, keys[:, :, :end], values[:, :, :end])
            else:
                seen = torch.cat(
                    [attention.attend(q[:, a:b], keys[:, :, : start + b], values[:, :, : start + b]) for a, b in parts],
                    1,
                )
            x = x + attention.o_proj(seen)
            x = x + layer.mlp(layer.post_attention_layernorm(x))
        return x

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
        for layer in self._layers():
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


def _fused_rows(projections: Sequence[nn.Linear]) -> Tensor:
    fused = torch.cat([projection.weight.data for projection in projections])
    at = 0
    for projection in projections:
        rows = projection.weight.shape[0]
        projection.weight = nn.Parameter(fused[at : at + rows], requires_grad=False)
        at += rows
    return fused
