"""The network on a card gives what was recorded from the published one: logits to 1e-4 and every id."""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file

from dice_lsp.diffusion.checkpoint import network_config
from dice_lsp.diffusion.model import SDAR, block_mask
from tests.gpu.support import record
from tests.parity import LOGITS_TOLERANCE, _case

FOLDER = Path(__file__).parents[1] / "data" / "parity"


def test_parity_on_the_gpu() -> None:
    config = network_config(json.loads((FOLDER / "config.json").read_text()), FOLDER.name)
    network = SDAR.from_weights(config, load_file(FOLDER / "model.safetensors", device="cuda"))
    expected = load_file(FOLDER / "expected.safetensors")
    ids = expected["forward.input_ids"].cuda()
    with torch.inference_mode():
        mask = block_mask(ids.shape[1], network.config.block_size, "cuda")
        logits = network.forward_train(ids, torch.arange(ids.shape[1], device="cuda"), mask)[0].cpu()
    error = float((logits - expected["forward.logits"]).abs().max())
    cases = [_case(network, case, expected) for case in json.loads((FOLDER / "cases.json").read_text())]
    differing = sum(case.differing for case in cases)
    record("model", "largest difference of a logit", f"{error:.1e}")
    record("model", "ids that differ", f"{differing} of {sum(case.tokens for case in cases)} in {len(cases)} cases")
    assert error <= LOGITS_TOLERANCE
    assert cases and all(case.passed for case in cases), cases
