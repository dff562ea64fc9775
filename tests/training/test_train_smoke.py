"""`make train-smoke`: the commands of the recipe, each for a moment, on the CPU."""

import json
from pathlib import Path

import pytest

from dice_lsp.__main__ import main
from dice_lsp.diffusion.checkpoint import load
from tests.training.micro import losses_of, write_micro

DEMO = Path(__file__).parent.parent.parent / "dice_lsp" / "demo"


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped checkpoint after two small steps."""
    out = tmp_path_factory.mktemp("tuned") / "out"
    options = ["--steps", "2", "--rows", "1", "--row-length", "512", "--cutoff", "240", "--copies", "1", "--lr", "1e-5"]
    options += ["--muon-lr", "1e-5", "--workers", "0", "--device", "cpu"]
    assert main(["train", "sft", "--model", "tiny", "--out", str(out), *options]) == 0
    return out


def test_fine_tuning_comes_out_the_same_twice(tmp_path: Path) -> None:
    model = write_micro(tmp_path / "micro")
    for name in ("once", "again"):
        options = ["--steps", "3", "--rows", "2", "--row-length", "512", "--workers", "0", "--device", "cpu"]
        assert main(["train", "sft", "--model", str(model), "--out", str(tmp_path / name), *options]) == 0
    losses = losses_of(tmp_path / "once")
    assert len(losses) == 3 and losses == losses_of(tmp_path / "again")


@pytest.mark.slow
def test_a_tuned_checkpoint_fills_a_kernel(tuned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kernel = tmp_path / "saxpy.cu"
    kernel.write_text((DEMO / "saxpy.cu").read_text())
    capsys.readouterr()
    code = main(["infill", str(kernel), "--model", str(tuned), "--backend", "host", "--candidates", "2", "--json"])
    filled = json.loads(capsys.readouterr().out)
    assert code == 0 and filled["candidates"], filled
    assert json.loads((tuned / "training.json").read_text())["steps"] == 2


@pytest.mark.slow
def test_a_step_of_reinforcement(tuned: Path, tmp_path: Path) -> None:
    options = ["--steps", "1", "--places", "2", "--samples", "4", "--updates", "1", "--max-new-tokens", "64"]
    options += ["--workers", "1", "--backend", "host", "--device", "cpu"]
    assert (
        main(["train", "rl", "--stage", "infill", "--model", str(tuned), "--out", str(tmp_path / "rl"), *options]) == 0
    )
    assert load(tmp_path / "rl").info.layout == "psm"
