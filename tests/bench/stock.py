"""The published loop on stock modules: transformers' Qwen3 with its own growing cache, five passes for four tokens.

What an engine that reads nothing but the paper would do, and the side that ours is measured against. A block is predicted
with every position visible inside it, revealed by confidence, and read once more to keep its keys and values.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, Qwen3Config, Qwen3ForCausalLM

from dice_lsp.diffusion.reveal import Prediction, Schedule, choose_positions
from dice_lsp.diffusion.sizes import SDARConfig


def stock_config(config: SDARConfig) -> Qwen3Config:
    return Qwen3Config(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_hidden_layers=config.num_hidden_layers,
        num_attention_heads=config.num_attention_heads,
        num_key_value_heads=config.num_key_value_heads,
        head_dim=config.head_dim,
        max_position_embeddings=config.max_position_embeddings,
        rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
        rms_norm_eps=config.rms_norm_eps,
        tie_word_embeddings=config.tie_word_embeddings,
        attention_bias=False,
    )


class StockLoop:
    """Greedy decoding of one candidate. `passes` counts the network's."""

    def __init__(self, model: Qwen3ForCausalLM, mask_id: int) -> None:
        self.model, self.mask_id, self.passes = model.eval(), mask_id, 0

    def forward(self, ids: Sequence[int], cache: Any, mask: Tensor | None = None) -> Tensor:
        """Logits `[T, V]` of tokens behind the cache, whose keys and values it then holds; `mask` `[T, all]` is additive."""
        device = self.model.device
        start, count = cache.get_seq_length(), len(ids)
        if mask is None:
            mask = torch.zeros(count, start + count, device=device, dtype=self.model.dtype)
        self.passes += 1
        return self.model(
            input_ids=torch.tensor([list(ids)], device=device),
            attention_mask=mask[None, None],
            position_ids=torch.arange(start, start + count, device=device)[None],
            past_key_values=cache,
            use_cache=True,
        ).logits[0]

    def prefill(self, ids: Sequence[int], size: int) -> Any:
        """A cache that holds the whole blocks of a prompt."""
        cache = DynamicCache()
        whole = len(ids) // size * size
        if whole:
            block = torch.arange(whole, device=self.model.device) // size
            mask = torch.zeros(whole, whole, device=self.model.device, dtype=self.model.dtype)
            mask.masked_fill_(block[None, :] > block[:, None], torch.finfo(self.model.dtype).min)
            self.forward(ids[:whole], cache, mask)
        return cache

    @torch.inference_mode()
    def run(self, prompt: Sequence[int], schedule: Schedule, tokens: int) -> list[int]:
        """`tokens` new ids after a prompt."""
        size = schedule.block_size
        cache = self.prefill(prompt, size)
        text = list(prompt)
        while len(text) < len(prompt) + tokens:
            known = cache.get_seq_length()
            block = text[known:] + [self.mask_id] * (size - (len(text) - known))
            step = 0
            while self.mask_id in block:
                logits = self.forward(block, cache).float()
                cache.crop(-len(block))
                total = logits.logsumexp(-1)
                logits[:, self.mask_id] = -torch.inf
                peak, best = logits.max(-1)
                sure = (peak - total).exp().tolist()
                masked = {
                    at: Prediction(token, sure[at], 0.0)
                    for at, token in enumerate(best.tolist())
                    if block[at] == self.mask_id
                }
                for at in choose_positions(schedule, masked, schedule.quota(step)):
                    block[at] = masked[at].token
                step += 1
            self.forward(block, cache)
            text = text[:known] + block
        return text[len(prompt) : len(prompt) + tokens]
