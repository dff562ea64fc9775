"""The generator: its kernels compile, do what their references do, come back by seed, and keep out what is kept for judging."""

import re
from pathlib import Path

import pytest
from cuda.bindings import nvrtc

from dice_lsp.training.examples import kernel_text
from dice_lsp.training.maker import Task
from dice_lsp.training.tasks import EXCLUDED_CLASSES, SHAPES, excluded, make_task
from tests.training.harness import check

DEVICE_PRELUDE = """
#define FLT_MAX 3.402823466e+38f
#define DBL_MAX 1.7976931348623157e+308
#define INFINITY __int_as_float(0x7f800000)
"""


def test_a_seed_always_gives_the_same_task() -> None:
    assert [make_task(seed) for seed in range(40)] == [make_task(seed) for seed in range(40)]
    assert len({make_task(seed).body for seed in range(400)}) > 380


def test_every_shape_is_drawn() -> None:
    drawn = {make_task(seed).shape for seed in range(1500)}
    assert set(SHAPES) <= drawn | {"textbook"}
    assert {"elementwise_1d", "row_reduction", "textbook"} <= drawn


@pytest.mark.parametrize("cooperative", [False, True])
def test_kernels_do_what_their_references_do(tmp_path: Path, cooperative: bool) -> None:
    """Shapes with barriers, shuffles and atomics are run by fibers, so that they mean what they say."""
    tasks = [
        task
        for task in map(make_task, range(70_000, 70_320 if not cooperative else 70_600))
        if bool(re.search("__syncthreads|__shfl", task.body)) == cooperative
    ]
    assert len(tasks) > 50
    wrong = check(tasks, tmp_path)
    assert not wrong, "\n\n".join(f"{what}\n{kernel_text(tasks[at]) if at >= 0 else ''}" for at, what in wrong.items())


def test_the_referee_sees_a_wrong_kernel(tmp_path: Path) -> None:
    """A referee that passes everything would prove nothing: off-by-one guards and lost terms must fail."""
    from attrs import evolve

    tasks = [task for task in map(make_task, range(300)) if task.shape == "elementwise_1d" and " < " in task.body][:12]
    broken = [evolve(task, body=re.sub(r"\[(i|idx)\] = ", r"[\1] = 1 + ", task.body, count=1)) for task in tasks]
    changed = [at for at, (task, other) in enumerate(zip(tasks, broken, strict=True)) if task.body != other.body]
    assert changed
    assert set(check(broken, tmp_path)) >= set(changed)


def _compile_log(tasks: list[Task]) -> str:
    parts = []
    for index, task in enumerate(tasks):
        parts.append(f"namespace t{index} {{\n{task.declarations}{kernel_text(task)}\n}}")
        parts += [f"#undef {name}" for name in re.findall(r"#define (\w+)", task.declarations)]
    return compile_log("\n".join(parts))


def compile_log(kernels: str) -> str:
    """What NVRTC says of kernels; nothing when all compile."""
    source = (DEVICE_PRELUDE + kernels).encode()
    status, program = nvrtc.nvrtcCreateProgram(source, b"tasks.cu", 0, [], [])
    assert status == nvrtc.nvrtcResult.NVRTC_SUCCESS
    (status,) = nvrtc.nvrtcCompileProgram(program, 2, [b"--gpu-architecture=compute_80", b"-w"])
    if status == nvrtc.nvrtcResult.NVRTC_SUCCESS:
        return ""
    _, size = nvrtc.nvrtcGetProgramLogSize(program)
    log = b" " * size
    nvrtc.nvrtcGetProgramLog(program, log)
    return log.decode(errors="replace")


def test_kernels_compile_for_a_gpu() -> None:
    log = _compile_log([make_task(seed) for seed in range(80_000, 80_160)])
    assert not log, log[:3000]


def test_classes_for_judging_are_no_families() -> None:
    names = {word for name in SHAPES for word in name.split("_")} | set(SHAPES)
    assert not names & set(EXCLUDED_CLASSES)
    for seed in range(2000):
        task = make_task(seed)
        assert not excluded(task)
        assert not any(word in task.name.lower() for word in EXCLUDED_CLASSES), task.name


@pytest.mark.parametrize(
    "cpu",
    [
        "for (int i = 0; i < n; i++) { y[i] = logf(1.0f + expf(x[i])); }",
        "for (int i = 0; i < n; i++) { y[i] = x[i] / (1.0f + fabsf(x[i])); }",
        "for (int i = 0; i < n; i++) { y[i] = x[idx[i]]; }",
        "for (int i = 0; i < n; i++) { y[i] = x[n - 1 - i]; }",
        "for (int i = 0; i < n; i++) { y[i] = fmaxf(0.0f, 1.0f - t[i] * p[i]); }",
    ],
)
def test_a_random_task_of_a_kept_class_is_refused(cpu: str) -> None:
    from attrs import evolve

    task = next(task for task in map(make_task, range(100)) if task.shape == "elementwise_1d")
    assert excluded(evolve(task, cpu=cpu))
