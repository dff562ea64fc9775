"""How long a user of a real Neovim waits: `python -m tests.nvim.latency`."""

import argparse
import shutil
import statistics
import tempfile
from pathlib import Path

from tests.nvim.neovim import ROOT, run_script


def measure_nvim(runs: int = 20) -> dict[str, list[float]]:
    """Milliseconds of each run: from the key press to the menu, from accept to the text, from the save to the first hint.

    The first hint is the first with figures of the saved text; the verdict may come later.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / ".git").mkdir()
        file = folder / "saxpy.cu"
        shutil.copy(ROOT / "tests/data/saxpy.cu", file)
        script = ROOT / "tests/nvim/latency.lua"
        seen = run_script(script, folder, deadline_s=900.0, DICE_TEST_FILE=str(file), DICE_TEST_RUNS=str(runs))
    times: dict[str, list[float]] = seen["times_ms"]
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    times = measure_nvim(parser.parse_args().runs)
    print(f"{'Neovim':<24}{'runs':>6}{'median ms':>11}{'worst ms':>10}")
    for name, values in times.items():
        print(f"{name:<24}{len(values):>6}{statistics.median(values):>11.1f}{max(values):>10.1f}")


if __name__ == "__main__":
    main()
