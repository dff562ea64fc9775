"""Small random networks and checkpoints; everything here runs in milliseconds."""

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from dice_lsp.diffusion.layout_psm import SPECIALS
from dice_lsp.diffusion.model import SDAR, SDARConfig
from dice_lsp.diffusion.rows import Rows
from dice_lsp.records import FillRequest

CHAT_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|MASK|>")


def small_config(**changes) -> SDARConfig:
    sizes = {
        "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 512, "rope_theta": 1e4,
        "tie_word_embeddings": False, "block_size": 4, "mask_token_id": 63,
    }  # fmt: skip
    return SDARConfig(**{**sizes, **changes})


def small_network(seed: int = 0, scale: float = 0.4, **changes) -> SDAR:
    """A random network whose logits differ enough that argmax and order are never a matter of rounding."""
    network = SDAR(small_config(**changes))
    network.init_weights(std=scale, seed=seed)
    weights = {name: tensor.clone() for name, tensor in network.qwen3_weights().items()}
    return SDAR.from_weights(network.config, weights)


def block_rows(ids: Sequence[int], start: int, block_size: int) -> Rows:
    """Tokens at the positions, and in the slots, from `start` on; each sees its own block and all before it."""
    at = range(start, start + len(ids))
    return Rows.of(ids, at, at, [[(0, (slot // block_size + 1) * block_size)] for slot in at])


def prompt_rows(count: int) -> Rows:
    """A prompt of whole blocks of 4, whose tokens are their positions, in the first slots."""
    return block_rows(range(count), 0, 4)


def state_rows(count: int, prompt: int, first_slot: int, vocabulary: int) -> Rows:
    """Blocks of 4 random tokens that see the prompt and themselves, like states that are checked at once."""
    ids = torch.randint(0, vocabulary, (count,), generator=torch.Generator().manual_seed(count)).tolist()
    starts = [first_slot + at // 4 * 4 for at in range(count)]
    return Rows.of(
        ids,
        [prompt + at % 4 for at in range(count)],
        range(first_slot, first_slot + count),
        [[(0, prompt), (start, start + 4)] for start in starts],
    )


def byte_tokenizer() -> Tokenizer:
    """Byte-level, without merges: 256 letters, then the special tokens of both layouts."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: at for at, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token) for token in (*SPECIALS, *CHAT_TOKENS)])
    return tokenizer


def write_checkpoint(
    folder: Path, *, layout: str = "psm", seed: int = 0, config_changes: dict | None = None, **sizes
) -> Path:
    """A random checkpoint with a byte-level tokenizer. A tenth of the vocabulary ends a fill, so that fills do end."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = byte_tokenizer()
    mask = tokenizer.token_to_id("<mask>" if layout == "psm" else "<|MASK|>")
    vocabulary = tokenizer.get_vocab_size()
    config = small_config(vocab_size=vocabulary, mask_token_id=mask, max_position_embeddings=8192, **sizes)
    network = SDAR(config)
    network.init_weights(std=0.05, seed=seed)
    save_file(
        {name: tensor.contiguous() for name, tensor in network.qwen3_weights().items()}, folder / "model.safetensors"
    )
    raw = {name: getattr(config, name) for name in SDARConfig.__annotations__}
    raw |= {"model_type": "sdar", "architectures": ["SDARForCausalLM"], "torch_dtype": "float32", "hidden_act": "silu"}
    end = tokenizer.token_to_id("<eom>" if layout == "psm" else "<|im_end|>")
    raw["eos_token_id"] = [end, *range(100, 126)]
    if layout == "psm":
        raw["dice_lsp"] = {
            "layout": "psm",
            "block_sizes": [4, 8, 16],
            "decode": {"strategy": "sequential", "temperature": 1.0, "top_p": 1.0, "max_new_tokens": 64},
            "special": {"eom": end, "mask": mask},
        }
    raw |= config_changes or {}
    (folder / "config.json").write_text(json.dumps(raw))
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def saxpy_request(**changes) -> FillRequest:
    """A fill of saxpy's body."""
    parts = {
        "kernel_prefix": "__global__ void saxpy(int n, float a, const float* x, float* y) {\n",
        "kernel_suffix": "}",
        "file_prefix": "#include <cuda_runtime.h>\n\nvoid saxpy_cpu(int n, float a, const float* x, float* y) {\n"
        "    for (int i = 0; i < n; i++) y[i] = a * x[i] + y[i];\n}\n\n",
        "file_suffix": "\n",
        "reference_text": "void saxpy_cpu(int n, float a, const float* x, float* y) {\n"
        "    for (int i = 0; i < n; i++) y[i] = a * x[i] + y[i];\n}",
        "torch_expression": None,
        "middle": "    y[0] = 1;\n",
        "indent": "    ",
        "candidates": 4,
        "seed": 1,
    }
    return FillRequest(**{**parts, **changes})
