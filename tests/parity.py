"""Compare our decoding with recorded outputs of the published loop: `python -m tests.parity DIR`.

DIR holds `config.json`, `model.safetensors`, `cases.json` and `expected.safetensors`:

- `expected.safetensors`: `forward.input_ids` `[1, T]` and `forward.logits` `[T, V]`, the logits of a whole sequence
  under the block-causal mask; and for each case `NAME.prompt` and `NAME.output`, the ids that went in and came out.
- `cases.json`: a list of cases, each with its `name`, `prompt_length`, `gen_length`, `block_length`,
  `denoising_steps`, `strategy`, `threshold`, and `forwards`, the passes of the published loop: one for the prompt if
  it fills a block, and for each block its denoising passes and one that commits it. Tokens are the argmax, confidences
  their probabilities under the full softmax.

Every case is decoded twice: as the published loop does it, and with the commit fused into the next pass.
"""

import json
import sys
from pathlib import Path

import torch
from attrs import frozen
from rich.console import Console
from rich.table import Table
from safetensors.torch import load_file

from dice_lsp.diffusion.checkpoint import network_config
from dice_lsp.diffusion.decode import Decoding, Schedule
from dice_lsp.diffusion.model import SDAR, block_mask
from dice_lsp.records import DecodeSettings
from tests.diffusion.small import block_rows

LOGITS_TOLERANCE = 1e-4


@frozen
class CaseResult:
    name: str
    settings: str
    tokens: int
    differing: int
    """Ids that differ from the recorded ones in either mode."""
    forwards: int
    expected_forwards: int
    fused_forwards: int

    @property
    def passed(self) -> bool:
        return self.differing == 0 and self.forwards == self.expected_forwards


@frozen
class Result:
    logits_error: float
    cached_logits_error: float
    """The same logits computed block by block against the cache."""
    cases: tuple[CaseResult, ...]

    @property
    def passed(self) -> bool:
        logits = max(self.logits_error, self.cached_logits_error) <= LOGITS_TOLERANCE
        return logits and bool(self.cases) and all(case.passed for case in self.cases)


def compare(folder: Path) -> Result:
    """Run every case of a folder."""
    raw = json.loads((folder / "config.json").read_text())
    network = SDAR.from_weights(network_config(raw, folder.name), load_file(folder / "model.safetensors"))
    expected = load_file(folder / "expected.safetensors")
    ids, logits = expected["forward.input_ids"], expected["forward.logits"]
    size = network.config.block_size
    with torch.inference_mode():
        full = network.forward_train(ids, torch.arange(ids.shape[1]), block_mask(ids.shape[1], size))[0]
    cache = network.slot_cache(ids.shape[1])
    blocks = [
        network.forward_rows(block_rows(ids[0, start : start + size].tolist(), start, size), cache, range(size)).logits
        for start in range(0, ids.shape[1], size)
    ]
    cases = tuple(_case(network, case, expected) for case in json.loads((folder / "cases.json").read_text()))
    return Result(float((full - logits).abs().max()), float((torch.cat(blocks) - logits).abs().max()), cases)


def _case(network: SDAR, case: dict, expected: dict[str, torch.Tensor]) -> CaseResult:
    settings = DecodeSettings(
        strategy=case["strategy"],
        block_size=case["block_length"],
        denoising_steps=case["denoising_steps"],
        threshold=case["threshold"],
        temperature=0.0,
        top_k=0,
        top_p=1.0,
        max_new_tokens=case["gen_length"],
    )
    prompt = expected[case["name"] + ".prompt"].flatten().tolist()
    output = expected[case["name"] + ".output"].flatten().tolist()
    differing, forwards = 0, {}
    for fused in (False, True):
        decoding = Decoding(network, prompt, Schedule.of(settings), fused=fused)
        ours = prompt + list(decoding.run([0])[0].tokens)
        differing += sum(a != b for a, b in zip(ours, output)) + abs(len(ours) - len(output))
        forwards[fused] = decoding.forwards
    words = f"{case['strategy']} B{case['block_length']} S{case['denoising_steps']} > {case['threshold']}"
    return CaseResult(
        case["name"], words, len(output) - len(prompt), differing, forwards[False], case["forwards"], forwards[True]
    )


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m tests.parity DIR", file=sys.stderr)
        return 2
    result = compare(Path(arguments[0]))
    table = Table(title=f"logits: {result.logits_error:.1e} whole, {result.cached_logits_error:.1e} cached")
    for head in ("case", "settings", "tokens", "ids that differ", "passes", "published", "fused", ""):
        table.add_column(head)
    for case in result.cases:
        numbers = (case.tokens, case.differing, case.forwards, case.expected_forwards, case.fused_forwards)
        table.add_row(case.name, case.settings, *map(str, numbers), "ok" if case.passed else "DIFFERS")
    Console(width=130).print(table)
    return 0 if result.passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
