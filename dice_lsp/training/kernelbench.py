"""KernelBench's problems, answered by a checkpoint that writes whole Python files, or by files that are there already.

The problems come from the user's own clone (https://github.com/ScalingIntelligence/KernelBench); nothing of it is part of
this package. An answer is Python that a model wrote: it is read first (`kernelbench_screen`), then run in a child that
may write into one scratch folder, has no network and a deadline (`kernelbench_child`, `kernelbench_trial`), only after the user agreed.

The confinement protects the machine. It cannot protect the figure as well as the worker does for kernels alone, since the
answer shares its process with the clock; so speed-ups above ten are marked, as KernelBench does.
"""

import argparse
import json
import os
import random
import re
import shutil
import statistics
import string
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
from attrs import frozen

from dice_lsp.command_line import UsageError, write_whole
from dice_lsp.config import Settings
from dice_lsp.process import Limits, module_command, run
from dice_lsp.records import DecodeSettings
from dice_lsp.training.kernelbench_screen import computes, screen_file
from dice_lsp.worker.confine import asked_level, landlock_abi

EXCESSIVE = 10.0
"""A speed-up above this is marked: look at the answer before you believe it."""
TOLERANCE = 1e-4
"""Relative and absolute, for fp32; the harness of 2025 had 1e-2, which zeros pass for some problems."""
RUNS = 100
DEADLINE_S = 300.0
CHILD_LIMITS = Limits(file_bytes=4 << 30, open_files=4096, niceness=5)
"""No limit of address space: a CUDA context reserves terabytes of it."""

PROMPT = """\
Write CUDA kernels that replace the PyTorch operators of an architecture and run faster than them. You decide which \
operators get a kernel, whether several are fused into one, and which algorithm is used.

An example of the form. The architecture:
```
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, a, b):
        return a + b
```
The answer:
```python
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = \"\"\"
#include <torch/extension.h>

__global__ void add_kernel(const float* a, const float* b, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        out[i] = a[i] + b[i];
    }
}

torch::Tensor add_cuda(torch::Tensor a, torch::Tensor b) {
    auto out = torch::empty_like(a);
    int n = a.numel();
    add_kernel<<<(n + 255) / 256, 256>>>(a.data_ptr<float>(), b.data_ptr<float>(), out.data_ptr<float>(), n);
    return out;
}
\"\"\"
cpp_src = "torch::Tensor add_cuda(torch::Tensor a, torch::Tensor b);"
module = load_inline(name="add", cpp_sources=cpp_src, cuda_sources=source, functions=["add_cuda"])

class ModelNew(nn.Module):
    def forward(self, a, b):
        return module.add_cuda(a, b)
```

Now it is your turn. The architecture:
```
$architecture
```
Name the class of your answer ModelNew and give it the same constructor and the same parameters of forward as Model. \
Answer with the whole file in one code block, and with nothing else: no explanation and no test code.
"""


@frozen
class Problem:
    """One problem: its number in its level, its name, its file's text."""

    number: int
    name: str
    source: str


@frozen
class Answered:
    """How one answer to one problem ended."""

    problem: int
    name: str
    stage: str
    """`right`, `wrong`, `run`, `load`, `compile`, `refused`, `no answer`, `timeout`, `died` or `problem`."""
    reason: str = ""
    speedup: float | None = None
    """Mean time of the reference over mean time of the answer, where it is right and a GPU timed it."""
    reference_ms: float | None = None
    answer_ms: float | None = None
    remarks: tuple[str, ...] = ()

    @property
    def compiled(self) -> bool:
        return self.stage in ("right", "wrong", "run", "load")

    @property
    def right(self) -> bool:
        return self.stage == "right"


@frozen
class Summary:
    """Figures of a level, each problem with the same weight; shares between 0 and 1."""

    problems: int
    samples: int
    compiled: float
    right: float
    fast_1: float
    fast_2: float
    excessive: int
    """Right answers with a speed-up above ten: they count, and should be looked at."""
    wrapping: int
    """Right answers that compute a part with torch's own operators, whatever their kernels do."""
    solved: float
    """Share of the problems with a right answer."""


def read_problems(clone: Path, level: int, wanted: Sequence[int] | None = None) -> list[Problem]:
    """The problems of a level by number. Raises `UsageError` when they are not there."""
    folder = clone / "KernelBench" / f"level{level}"
    if not folder.is_dir():
        raise UsageError(
            f"{folder} is not there: clone https://github.com/ScalingIntelligence/KernelBench and give its folder"
        )
    found = []
    for path in folder.glob("*.py"):
        match = re.match(r"(\d+)_?(.*)\.py\Z", path.name)
        if match is not None:
            found.append(Problem(int(match[1]), match[2], path.read_text(encoding="utf-8")))
    found.sort(key=lambda problem: problem.number)
    numbers = {problem.number for problem in found}
    missing = [number for number in wanted or () if number not in numbers]
    if missing or not found:
        what = f"problem {missing[0]}" if missing else "problem (a file like 1_Name.py)"
        raise UsageError(f"{folder} has no {what}; it has {len(found)} problems")
    return [problem for problem in found if wanted is None or problem.number in wanted]


def first_code_block(reply: str) -> str | None:
    """The code of the first fenced block of a reply; None when none was closed."""
    match = re.search(r"```(?:python|py|cpp)?[ \t]*\n?(.*?)```", reply, re.DOTALL)
    return match[1].strip() + "\n" if match is not None else None


def judge_answer(
    problem: Problem, answer: str, *, trials: int, device: str = "cuda", runs: int = RUNS, tolerance: float = TOLERANCE,
    seed: int = 42, deadline_s: float = DEADLINE_S,
) -> Answered:  # fmt: skip
    """Screen an answer and run it confined. Blocks until it has ended or its deadline has passed."""
    screened = screen_file(answer)
    if screened.refused is not None:
        return Answered(problem.number, problem.name, "refused", screened.refused, remarks=screened.remarks)
    order = {
        "problem": problem.source, "answer": answer, "trials": trials, "runs": runs, "tolerance": tolerance, "seed": seed,
        "device": device,
    }  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="dice-lsp-answer-") as scratch:
        finished = run(
            module_command("dice_lsp.training.kernelbench_child"), deadline_s=deadline_s,
            stdin=json.dumps(order).encode(), limits=CHILD_LIMITS, cwd=scratch, env=_environment(scratch),
        )  # fmt: skip
    ended = Answered(problem.number, problem.name, "died", remarks=screened.remarks)
    if finished.timed_out:
        return attrs.evolve(ended, stage="timeout", reason=f"it did not end within {deadline_s:g} s")
    try:
        found: dict[str, Any] = json.loads(finished.stdout.splitlines()[-1])
        stage, reason = str(found["stage"]), str(found["reason"])
    except (IndexError, ValueError, KeyError, TypeError):
        tail = finished.stderr.decode(errors="replace").strip().splitlines()[-1:]
        return attrs.evolve(ended, reason=f"its process ended with code {finished.returncode}: {''.join(tail)[:300]}")
    if stage != "right":
        return attrs.evolve(ended, stage=stage, reason=reason)
    remarks = list(screened.remarks)
    if found["trials"] < trials:
        remarks.append(f"{found['trials']} trials only: the outputs of more do not fit the memory")
    if found["zeros_pass"]:
        remarks.append("zeros would pass for this problem too")
    ended = attrs.evolve(ended, stage=stage, remarks=tuple(remarks))
    if not found["timed"]:
        return ended
    before, after = statistics.fmean(found["reference_ms"]), statistics.fmean(found["answer_ms"])
    if before / after > EXCESSIVE:
        remarks.append(f"a speed-up above {EXCESSIVE:g} is more than can be expected: look at this answer")
    return attrs.evolve(ended, speedup=before / after, reference_ms=before, answer_ms=after, remarks=tuple(remarks))


def _environment(scratch: str) -> dict[str, str]:
    """What a child needs to find its compilers, and nothing of the user's own: no tokens, no home."""
    kept = ("PATH", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES", "LANG", "LC_ALL", "PYTHONPATH")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    nvcc = shutil.which("nvcc")
    if "CUDA_HOME" not in environment and nvcc is not None:
        environment["CUDA_HOME"] = str(Path(nvcc).resolve().parent.parent)
    return {
        **environment, "HOME": scratch, "TMPDIR": scratch, "TORCH_EXTENSIONS_DIR": scratch, "TRITON_CACHE_DIR": scratch,
        "CUDA_CACHE_PATH": scratch, "MAX_JOBS": "2", "HF_HUB_OFFLINE": "1",
    }  # fmt: skip


def summarise(results: Sequence[Answered]) -> Summary:
    """Figures of all answers; several answers to one problem share its weight."""
    grouped: dict[int, list[Answered]] = {}
    for item in results:
        grouped.setdefault(item.problem, []).append(item)

    def share(holds: Callable[[Answered], bool]) -> float:
        return statistics.fmean(statistics.fmean(map(holds, items)) for items in grouped.values())

    def fast(item: Answered, factor: float) -> bool:
        return item.right and item.speedup is not None and item.speedup > factor

    return Summary(
        problems=len(grouped),
        samples=len(results),
        compiled=share(lambda item: item.compiled),
        right=share(lambda item: item.right),
        fast_1=share(lambda item: fast(item, 1.0)),
        fast_2=share(lambda item: fast(item, 2.0)),
        wrapping=sum(item.right and any(map(computes, item.remarks)) for item in results),
        excessive=sum(fast(item, EXCESSIVE) for item in results),
        solved=statistics.fmean(any(item.right for item in items) for items in grouped.values()),
    )


def run_command(arguments: argparse.Namespace, settings: Settings) -> int:
    """The part of `dice-lsp eval` that runs KernelBench. Everything that forbids it is told before anything runs."""
    if not arguments.allow_host_code:
        raise UsageError(
            "KernelBench's answers are Python files that a model wrote, and judging them runs them on this machine, in a "
            "confined process: add --allow-host-code to agree"
        )
    wanted = _numbers(arguments.problems)
    problems = read_problems(arguments.kernelbench, arguments.level, wanted)
    if arguments.answers is not None and not arguments.answers.is_dir():
        raise UsageError(
            f"{arguments.answers} is no folder; it should hold files named after the problems, 1.py, 2.py, .."
        )
    if asked_level() == "landlock" and landlock_abi() == 0:
        raise UsageError(
            "this kernel has no landlock, so an answer could read and write your files: set DICE_LSP_CONFINE=seccomp to "
            "run it with less, best as another user"
        )
    import torch

    if not torch.cuda.is_available():
        raise UsageError(
            "KernelBench compares times on a GPU and torch sees none here: run this on a machine that has one"
        )
    texts = (
        _from_folder(arguments.answers, problems)
        if arguments.answers
        else _from_checkpoint(arguments, settings, problems)
    )
    results: list[Answered] = []
    device = f"cuda:{settings.device}"
    for problem, answer in texts:
        if answer is None:
            result = Answered(problem.number, problem.name, "no answer", "there is no whole code block")
        else:
            result = judge_answer(problem, answer, trials=arguments.trials, device=device, seed=settings.seed or 42)
        results.append(result)
        said = f"{result.speedup:.2f}x" if result.speedup is not None else result.reason
        print(f"{problem.number} {problem.name}: {result.stage} {said}".rstrip(), file=sys.stderr, flush=True)
    about = {
        "model": "answers" if arguments.answers else settings.model, "level": arguments.level, "trials": arguments.trials,
        "tolerance": TOLERANCE, "runs": RUNS, "seed": settings.seed, "device": torch.cuda.get_device_name(settings.device),
    }  # fmt: skip
    summary = summarise(results)
    tables = as_markdown(about, summary, results)
    print(tables)
    if arguments.json is not None:
        found = {**about, "summary": attrs.asdict(summary), "answers": [attrs.asdict(item) for item in results]}
        write_whole(arguments.json, json.dumps(found, indent=2).encode())
    if arguments.markdown is not None:
        write_whole(arguments.markdown, tables.encode())
    return 0


def as_markdown(about: dict[str, Any], summary: Summary, results: Sequence[Answered]) -> str:
    """The figures of a level, then a line for each answer."""
    lines = [
        f"# KernelBench level {about['level']}",
        "",
        "; ".join(f"{key} {value}" for key, value in about.items()),
        "",
    ]
    lines += [
        "| problems | samples | compiled | right | fast_1 | fast_2 | above 10x | with torch |",
        "| ---: |" + " ---: |" * 7,
    ]
    shares = " | ".join(f"{value:.1%}" for value in (summary.compiled, summary.right, summary.fast_1, summary.fast_2))
    lines += [f"| {summary.problems} | {summary.samples} | {shares} | {summary.excessive} | {summary.wrapping} |", ""]
    lines += ["| problem | ended | speed-up | why, and what to know |", "| --- | --- | ---: | --- |"]
    for item in results:
        speed = "" if item.speedup is None else f"{item.speedup:.2f}"
        said = "; ".join(filter(None, (item.reason, *item.remarks))).replace("|", "\\|")
        lines.append(f"| {item.problem} {item.name} | {item.stage} | {speed} | {said} |")
    return "\n".join(lines) + "\n"


def _numbers(text: str | None) -> list[int] | None:
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() for part in parts):
        raise UsageError(f"--problems {text} is no list of numbers; write for example --problems 1,2,7")
    return [int(part) for part in parts]


def _from_folder(folder: Path, problems: Sequence[Problem]) -> list[tuple[Problem, str | None]]:
    """Answers that are there: `N.py`, or several of one problem as `N_anything.py`."""
    found: list[tuple[Problem, str | None]] = []
    for problem in problems:
        paths = sorted(path for path in folder.glob("*.py") if re.match(rf"{problem.number}(?:_|\.py)", path.name))
        found += [(problem, path.read_text(encoding="utf-8")) for path in paths] or [(problem, None)]
    return found


def _from_checkpoint(
    arguments: argparse.Namespace, settings: Settings, problems: Sequence[Problem]
) -> list[tuple[Problem, str | None]]:
    """Answers of a checkpoint: the greedy one, or with `--samples` above one as many independent draws."""
    from dice_lsp.diffusion.checkpoint import CheckpointError
    from dice_lsp.diffusion.decode import Schedule
    from dice_lsp.training.sampling import Sampler

    template = string.Template(PROMPT)
    if arguments.prompt is not None:
        template = string.Template(arguments.prompt.read_text(encoding="utf-8"))
        if "$architecture" not in template.template:
            raise UsageError(f"{arguments.prompt} has no $architecture, so the model would not see the problem")
    count = arguments.samples
    try:
        sampler = Sampler(settings.model, settings.model_device)
        if sampler.loaded.info.layout != "dice":
            raise UsageError(
                f"{sampler.name} fills kernels and cannot write whole Python files: choose a DICE checkpoint with --model, "
                "or judge files with --answers"
            )
        asked = DecodeSettings(
            temperature=settings.decode_temperature, block_size=settings.decode_block_size, threshold=settings.decode_threshold,
            max_new_tokens=settings.decode_max_new_tokens or min(4096, sampler.loaded.info.max_tokens // 2),
        )  # fmt: skip
        schedule = Schedule.of(sampler.loaded.info.settings(asked))
    except (CheckpointError, ValueError) as error:
        raise UsageError(str(error)) from error
    found: list[tuple[Problem, str | None]] = []
    for problem in problems:
        user = template.substitute(architecture=problem.source.replace("<|", "< |").strip())
        # The published prompts end with this turn; the reply then begins with its code block.
        text = f"<|im_start|>user\n{user.rstrip()}<|im_end|>\n<|im_start|>assistant\n"
        seed = random.Random(f"{settings.seed} {problem.number}").randrange(1 << 31)
        for reply in sampler.replies(sampler.loaded.tokenizer.encode(text), count, schedule, seed):
            code = None if reply is None else first_code_block(sampler.loaded.tokenizer.decode(reply.tokens))
            found.append((problem, code))
    return found
