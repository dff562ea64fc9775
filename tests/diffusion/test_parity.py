"""The recorded outputs of the published loop, and that the check can fail."""

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import Qwen3ForCausalLM

from dice_lsp.diffusion.checkpoint import network_config
from dice_lsp.diffusion.reveal import Schedule
from tests import parity
from tests.bench.stock import StockLoop, stock_config

FOLDER = Path(__file__).parent.parent / "data" / "parity"


def test_every_id_and_every_pass_agrees():
    result = parity.compare(FOLDER)
    assert result.logits_error <= 1e-4 and result.cached_logits_error <= 1e-4
    assert len(result.cases) == 8
    assert [case.differing for case in result.cases] == [0] * 8
    assert [case.forwards for case in result.cases] == [41, 39, 52, 40, 85, 85, 48, 161]
    assert all(case.fused_forwards < case.forwards for case in result.cases)


def one_case(folder, number):
    """A copy of the folder with one of its cases."""
    shutil.copytree(FOLDER, folder)
    cases = json.loads((folder / "cases.json").read_text())
    (folder / "cases.json").write_text(json.dumps([cases[number]]))
    return folder


def test_a_differing_id_fails(tmp_path, capsys):
    folder = one_case(tmp_path / "parity", 3)
    assert parity.main([str(folder)]) == 0
    assert "generate.3" in capsys.readouterr().out
    expected = {name: tensor.clone() for name, tensor in load_file(folder / "expected.safetensors").items()}
    expected["generate.3.output"][-1] += 1
    save_file(expected, folder / "expected.safetensors")
    assert parity.main([str(folder)]) == 1
    assert "DIFFERS" in capsys.readouterr().out


def test_a_wrong_rope_base_fails(tmp_path):
    folder = one_case(tmp_path / "parity", 0)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "rope_theta": 10000}))
    assert parity.compare(folder).logits_error > 1e-3


def test_usage():
    assert parity.main([]) == 2
    assert torch.is_tensor(load_file(FOLDER / "expected.safetensors")["forward.logits"])


def test_the_loop_that_ours_is_measured_against_is_the_published_one():
    config = network_config(json.loads((FOLDER / "config.json").read_text()), "parity")
    model = Qwen3ForCausalLM(stock_config(config))
    model.load_state_dict(load_file(FOLDER / "model.safetensors"))
    expected = load_file(FOLDER / "expected.safetensors")
    for case in json.loads((FOLDER / "cases.json").read_text()):
        prompt, output = (expected[f"{case['name']}.{part}"].flatten().tolist() for part in ("prompt", "output"))
        schedule = Schedule(
            case["strategy"], case["block_length"], case["denoising_steps"], case["threshold"], 0.0, 0, 1.0,
            case["gen_length"],
        )  # fmt: skip
        loop = StockLoop(model, config.mask_token_id)
        assert prompt + loop.run(prompt, schedule, len(output) - len(prompt)) == output
        assert loop.passes == case["forwards"]
