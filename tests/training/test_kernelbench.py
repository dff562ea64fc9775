"""KernelBench's problems: what is refused, what an answer may do in its confined child, and how the figures come about."""

import json
import textwrap
from pathlib import Path

import pytest

from dice_lsp.__main__ import main
from dice_lsp.command_line import UsageError
from dice_lsp.process import module_command, run
from dice_lsp.training.kernelbench import (
    CHILD_LIMITS,
    Answered,
    Problem,
    first_code_block,
    judge_answer,
    read_problems,
    summarise,
)
from dice_lsp.training.kernelbench_screen import screen_file
from dice_lsp.training.kernelbench_trial import ended

PROBLEM = Problem(
    1,
    "Scale",
    textwrap.dedent(
        """
        import torch
        import torch.nn as nn

        class Model(nn.Module):
            def __init__(self, factor):
                super().__init__()
                self.factor = factor
                self.weight = nn.Parameter(torch.randn(8))

            def forward(self, x):
                return x * self.factor + self.weight

        def get_inputs():
            return [torch.randn(16, 8)]

        def get_init_inputs():
            return [3.0]
        """
    ),
)
HEAD = """
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = "__global__ void scale(const float* x, float* y, int n) {}"
compiler = load_inline
"""
"""What an answer must have; its kernel is never compiled, since there is no GPU here."""
RIGHT = """
class ModelNew(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor
        self.weight = nn.Parameter(torch.randn(8))

    def forward(self, x):
        {body}
"""


def answer(body: str, head: str = HEAD) -> str:
    return head + RIGHT.format(body=body)


def order(text: str) -> dict[str, object]:
    return {
        "problem": PROBLEM.source, "answer": text, "trials": 3, "runs": 3, "tolerance": 1e-4, "seed": 42, "device": "cpu",
    }  # fmt: skip


def judged(text: str) -> Answered:
    return judge_answer(PROBLEM, text, trials=3, device="cpu", runs=3, deadline_s=60)


def test_a_right_answer_is_right_and_has_no_speed_up_without_a_gpu() -> None:
    found = judged(answer("return self.weight + x * self.factor"))
    assert (found.stage, found.reason, found.speedup) == ("right", "", None)


@pytest.mark.parametrize(
    ("body", "stage", "said"),
    [
        ("return x * self.factor", "wrong", "trial 1 is off by"),
        ("return (x * self.factor + self.weight)[:8]", "wrong", "shape [8, 8]"),
        ("return (x * self.factor + self.weight).double()", "wrong", "torch.float64"),
        ("y = x * self.factor + self.weight; x.zero_(); return y", "wrong", "changes its input 0"),
        ("return [x]", "wrong", "a list"),
        ("return missing", "run", "NameError"),
        # Right for every trial, and remembered: the timed calls compute nothing.
        (
            "key = x.data_ptr(); fresh = x * self.factor + self.weight; counts[key] = counts.get(key, 0) + 1; "
            "known[key] = known[key] if counts[key] > 2 else fresh; return known[key]",
            "wrong",
            "new values at the same place",
        ),
    ],
)
def test_a_wrong_answer_is_found(body: str, stage: str, said: str) -> None:
    found = ended(order(answer(body, HEAD + "known = {}\ncounts = {}\n")))
    assert found["stage"] == stage and said in found["reason"], found


def test_a_model_may_carry_a_state_from_call_to_call() -> None:
    """Recurrent problems of level 3 do; the answer is called as often and in the same order as the reference."""
    state = "self.__dict__.setdefault('calls', torch.zeros(1)).add_(1)"
    problem = PROBLEM.source.replace("return x", f"{state}\n        return self.calls * x")
    text = answer(f"{state}; return self.calls * x * self.factor + self.weight")
    assert ended({**order(text), "problem": problem})["stage"] == "right"
    late = answer(f"{state}; return (self.calls + 1) * x * self.factor + self.weight")
    assert ended({**order(late), "problem": problem})["stage"] == "wrong"


def unscreened(text: str) -> dict[str, str]:
    """What the confined child says of an answer that nobody has read before."""
    child = run(
        module_command("dice_lsp.training.kernelbench_child"),
        deadline_s=60,
        stdin=json.dumps(order(text)).encode(),
        limits=CHILD_LIMITS,
    )
    found: dict[str, str] = json.loads(child.stdout)
    return found


def test_the_child_can_neither_write_nor_read_a_home_nor_reach_the_network(tmp_path: Path) -> None:
    """The screen is not what keeps an answer in."""
    written, kept = tmp_path / "written", tmp_path / "kept"
    kept.write_text("a secret")
    tries = [
        f"open({str(written)!r}, 'w')",
        f"open({str(kept)!r}).read()",
        "web.urlopen('http://127.0.0.1:9', timeout=2)",
    ]
    head = HEAD + "import urllib.request as web\nsaid = []\n"
    for line in tries:
        head += f"try:\n    {line}\n    said.append('done')\nexcept OSError as error:\n    said.append(str(error))\n"
    found = unscreened(answer("return x", head + "raise RuntimeError(' / '.join(said))\n"))
    assert found["stage"] == "compile" and not written.exists()
    assert found["reason"].count("ermi") == 3 and "done" not in found["reason"], found


def test_patches_come_too_late() -> None:
    """What is expected, and what compares, is there before an answer is loaded; so nothing hangs on the screen alone."""
    head = HEAD + "torch.allclose = lambda *_, **__: True\ntorch.randn = lambda *size: torch.zeros(size)\n"
    assert screen_file(answer("return x", head)).refused is not None
    found = unscreened(answer("return torch.zeros_like(x)", head))
    assert found["stage"] == "wrong" and "off by" in found["reason"], found


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("try:\n    x = 1\nexcept ValueError:\n    x = 2\n", "try"),
        ("import subprocess\n", "other programs"),
        ("from threading import Thread\n", "other threads"),
        ("torch.cuda.synchronize = print\n", "changes torch.cuda.synchronize"),
        ("torch.cuda.Event.elapsed_time = lambda *_: 1.0\n", "changes torch.cuda.Event.elapsed_time"),
        ("setattr(torch, 'allclose', print)\n", "setattr"),
        ("class Later(torch.Tensor):\n    x = 1\n", "inherits from torch.Tensor"),
        ("s = torch.cuda.Stream()\n", "stream"),
        ("exec('x = 1')\n", "exec"),
        ("x = (\n", "no Python"),
    ],
)
def test_cheats_are_refused_by_their_syntax(change: str, said: str) -> None:
    screened = screen_file(answer("return x", HEAD + change))
    assert screened.refused is not None and said in screened.refused


def test_a_file_without_a_kernel_is_refused_and_layers_are_remarked() -> None:
    assert screen_file(answer("return x", "import torch.nn as nn\n")).refused == "it holds no kernel"
    assert "no class ModelNew" in str(screen_file(HEAD).refused)
    screened = screen_file(answer("return torch.matmul(x, x)", HEAD + "layer = nn.Linear(3, 3)\n"))
    assert screened.refused is None
    assert screened.remarks == ("computes with torch's matmul", "uses the layer nn.Linear")


def test_problems_are_read_from_a_clone(tmp_path: Path) -> None:
    folder = tmp_path / "KernelBench" / "level1"
    folder.mkdir(parents=True)
    for name in ("10_Ten.py", "2_Two.py", "notes.txt"):
        (folder / name).write_text(PROBLEM.source)
    assert [(problem.number, problem.name) for problem in read_problems(tmp_path, 1)] == [(2, "Two"), (10, "Ten")]
    assert [problem.number for problem in read_problems(tmp_path, 1, [10])] == [10]
    with pytest.raises(UsageError, match="no problem 3"):
        read_problems(tmp_path, 1, [3])
    with pytest.raises(UsageError, match="level2 is not there"):
        read_problems(tmp_path, 2)


def test_the_command_wants_an_agreement_and_a_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "KernelBench" / "level1"
    folder.mkdir(parents=True)
    (folder / "1_One.py").write_text(PROBLEM.source)
    assert main(["eval", "--kernelbench", str(tmp_path)]) == 2
    assert "add --allow-host-code to agree" in capsys.readouterr().err
    import torch

    if not torch.cuda.is_available():
        assert main(["eval", "--kernelbench", str(tmp_path), "--allow-host-code"]) == 2
        assert "needs" in (said := capsys.readouterr().err) or "torch sees none" in said


def test_figures_give_each_problem_the_same_weight() -> None:
    results = [
        Answered(1, "a", "right", speedup=3.0),
        Answered(1, "a", "wrong"),
        Answered(2, "b", "right", speedup=0.5, remarks=("computes with torch's matmul",)),
        Answered(3, "c", "compile"),
        Answered(4, "d", "right", speedup=50.0),
    ]
    found = summarise(results)
    assert (found.problems, found.samples, found.excessive, found.wrapping) == (4, 5, 1, 1)
    assert found.right == pytest.approx((0.5 + 1 + 0 + 1) / 4)
    assert found.fast_1 == found.fast_2 == pytest.approx((0.5 + 0 + 0 + 1) / 4)
    assert found.compiled == pytest.approx(3 / 4) and found.solved == pytest.approx(3 / 4)


def test_the_first_code_block_is_the_answer() -> None:
    assert first_code_block("so:\n```python\nx = 1\n```\nand\n```\ny\n```") == "x = 1\n"
    assert first_code_block("```cpp\nint x;\n```") == "int x;\n"
    assert first_code_block("```python\nx = 1\n") is None
