"""The pairs of `tests/data/tolerance` on a card, whose own arithmetic rounds otherwise than the host's."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu.support import KINDS
from tests.tolerance_table import PAIRS, members

PARTS = 10
pytestmark = pytest.mark.timeout(240)


def test_every_right_kernel_is_verified_and_every_wrong_one_refused(tmp_path: Path) -> None:
    running = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.tolerance_table", "--backend", KINDS[-1]),
                *("--part", f"{part}/{PARTS}", "--json", str(tmp_path / f"{part}.json")),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for part in range(PARTS)
    ]
    said = [process.communicate()[0] for process in running]
    judged = [row for path in tmp_path.glob("*.json") for row in json.loads(path.read_text())]
    expected = sum(1 for path in PAIRS for member in members(path) if not member.not_on_gpu)
    assert len(judged) == expected, "\n".join(said)
    bad = [f"{row['pair']}: {row['kernel']}: {row['words']}" for row in judged if not row["fine"]]
    assert not bad, "\n".join(bad)
