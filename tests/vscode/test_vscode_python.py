"""Kernels in the strings of a Python file, in a real VS Code."""

from pathlib import Path

import pytest

from tests.vscode.editor import ROOT, run_suites, workspace

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_kernels_in_a_python_file(tmp_path: Path) -> None:
    workspace(tmp_path, {"program.py": ROOT / "tests/data/program.py", "plain.py": "import sys\n\nprint(sys.argv)\n"})
    assert len(run_suites(tmp_path, ["python"]).tests) == 3
