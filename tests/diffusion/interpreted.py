"""What the fast network's kernels say, computed by Triton's interpreter: `TRITON_INTERPRET=1 python -m tests.diffusion.interpreted CHECK`.

A process of its own, because Triton decides when it is first imported whether it interprets, and PyTorch imports it.
"""

import logging
import sys
from collections.abc import Sequence

import torch

from dice_lsp.diffusion import fast as fast_module
from dice_lsp.diffusion.fast import FastNetwork, assemble
from dice_lsp.diffusion.model import SDAR
from dice_lsp.diffusion.precision import int8_rows, is_layer_weight
from dice_lsp.diffusion.rows import Rows
from tests.diffusion.small import prompt_rows, small_config, state_rows

PROMPT = 64
SIZES = {
    "vocab_size": 128, "hidden_size": 128, "intermediate_size": 512, "num_attention_heads": 8, "num_key_value_heads": 4,
    "head_dim": 16, "mask_token_id": 127, "num_hidden_layers": 1,
}  # fmt: skip


def network(int8: bool = False, **changes) -> SDAR:
    plain = SDAR(small_config(**{**SIZES, **changes}))
    plain.init_weights(std=0.15, seed=1)
    weights = {name: tensor.clone() for name, tensor in plain.qwen3_weights().items()}
    if int8:
        for name in [name for name in weights if is_layer_weight(name, weights[name].shape)]:
            weights[name], weights[f"{name}_scale"] = int8_rows(weights[name])
    return SDAR.from_weights(plain.config, weights)


def same(plain: SDAR, fast: FastNetwork, slots: int, asked: Rows, wanted: Sequence[int]) -> None:
    """Logits, what is told of them, keys and values of both agree."""
    caches = plain.slot_cache(slots), fast.slot_cache(slots)
    for net, cache in zip((plain, fast), caches, strict=True):
        net.forward_rows(prompt_rows(PROMPT), cache, ())
    expected = plain.forward_rows(asked, caches[0], wanted)
    found = fast.forward_rows(asked, caches[1], wanted)
    torch.testing.assert_close(found.logits, expected.logits, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(found.summary, expected.summary, atol=1e-4, rtol=1e-4)
    assert plain.config.mask_token_id not in found.summary[:, 0].tolist()
    for ours, theirs in ((caches[1].keys, caches[0].keys), (caches[1].values, caches[0].values)):
        torch.testing.assert_close(ours[:, :, :slots], theirs, atol=1e-4, rtol=1e-4)


def few_and_many_rows() -> None:
    from dice_lsp.diffusion import kernels

    fast_module.VOCABULARY_SHARE = 32
    plain = network()
    fast = assemble(plain, kernels, {}, capture=False)
    for count in (4, 11, 48):
        same(plain, fast, 300, state_rows(count, PROMPT, 100, 127), range(0, count, 3))


def int8() -> None:
    from dice_lsp.diffusion import kernels

    plain = network(int8=True)
    assert plain.layers()[0].mlp.gate_up.dtype is torch.int8
    fast = assemble(plain, kernels, {}, capture=False)
    same(plain, fast, 300, state_rows(48, PROMPT, 100, 127), range(48))


def beyond_the_cache() -> None:
    """The last share of the slots may reach beyond them: three shares of whole tiles are 576 of 512."""
    from dice_lsp.diffusion import kernels

    fast_module.MAX_SHARES = 3
    fast_module.SLOTS_OF_MANY = 64
    plain = network()
    fast = assemble(plain, kernels, {}, capture=False)
    assert fast.slot_cache(500).keys.shape[2] == 512
    same(plain, fast, 500, state_rows(4, PROMPT, 480, 127), range(4))


def refused() -> None:
    """A GPU that the kernels do not fit is answered by the network itself, and it is said once."""
    from dice_lsp.diffusion import kernels

    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger(fast_module.__name__).addHandler(handler)

    def captured(*_: object) -> None:
        raise kernels.OutOfResources(200000, 101376, "shared memory")

    FastNetwork._captured = captured  # type: ignore[assignment,method-assign]
    plain = network()
    fast = assemble(plain, kernels, {})
    for _ in range(2):
        same(plain, fast, 300, state_rows(4, PROMPT, 100, 127), range(4))
    assert len(said) == 1 and "fills go on without them" in said[0], said


CHECKS = {check.__name__: check for check in (few_and_many_rows, int8, beyond_the_cache, refused)}

if __name__ == "__main__":
    CHECKS[sys.argv[1]]()
    print("agrees")
