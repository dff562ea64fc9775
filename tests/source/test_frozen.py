"""The frozen evaluation set: each task stands on its own and can be launched and judged."""

import re
from math import prod
from pathlib import Path

import pytest

from dice_lsp.records import BufferSpec, Document, LaunchSpec, Origin, Role
from dice_lsp.source.directives import parse_directives
from dice_lsp.source.expressions import evaluate
from dice_lsp.source.kernels import parse
from dice_lsp.source.launches import launch_spec
from dice_lsp.source.screen import screen_fill
from dice_lsp.source.selection import body_region

FOLDER = Path(__file__).parent.parent / "data" / "frozen"
TASKS = sorted(FOLDER.glob("*.cu"))


def cases(spec: LaunchSpec) -> list[dict[str, int]]:
    return [
        dict(zip((d.name for d in spec.dims), row, strict=True))
        for row in zip(*(d.values for d in spec.dims), strict=True)
    ]


def test_the_set_is_large_enough_and_varied() -> None:
    assert len(TASKS) >= 64
    torch = [task for task in TASKS if "ref torch:" in task.read_text()]
    assert len(TASKS) / 6 <= len(torch) <= len(TASKS) / 3


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.stem)
def test_a_task(task: Path) -> None:
    text = task.read_text()
    (kernel,) = parse(text).kernels
    assert parse_directives(text, kernel).problems == ()
    spec = launch_spec(text, kernel, parse(text))
    assert spec.launchable and spec.unknown == ()
    assert spec.reference is not None and spec.reference.via in ("function", "torch")
    assert {b.name for b in spec.buffers} == {p.name for p in kernel.parameters if p.pointer}
    assert all(b.origin is Origin.DIRECTIVE for b in spec.buffers)
    assert any(b.role in (Role.OUT, Role.IO) for b in spec.buffers)
    assert spec.origins["grid"] is Origin.DIRECTIVE
    assert all(d.origin is Origin.DIRECTIVE and len(d.values) >= 2 for d in spec.dims)
    # One case is no whole number of blocks, so that a missing guard shows.
    assert any(value % 32 for d in spec.dims for value in d.values)
    for case in cases(spec):
        names = {**spec.constants, **case}
        names |= {n: evaluate(t, names) for n, t in spec.scalars.items() if t.lstrip("-").isdigit()}
        assert all(evaluate(size, names) >= 1 for size in (*(spec.grid or ()), *(spec.block or ())))
        sizes = [evaluate(extent, names) for buffer in spec.buffers for extent in buffer.extents]
        assert min(sizes) >= 1 and max(sizes) <= 1 << 20


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.stem)
def test_the_natural_body_is_a_fill_that_may_stand(task: Path) -> None:
    text = task.read_text()
    kernel = parse(text).kernels[0]
    body = text[kernel.body_start : kernel.body_end]
    emptied = text[: kernel.body_start] + "\n" + text[kernel.body_end :]
    place = body_region(Document("file:///a.cu", 0, emptied), parse(emptied).kernels[0])
    assert screen_fill(place, body) is None
    # Without its body a task still says everything: nothing of the launch is taken from the answer.
    assert launch_spec(emptied, parse(emptied).kernels[0], parse(emptied)) == launch_spec(text, kernel, parse(text))


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.stem)
def test_a_task_needs_nothing_but_standard_c(task: Path) -> None:
    includes = {include.text for include in parse(task.read_text()).includes}
    assert includes <= {"math.h", "stdint.h"}
    assert not re.search(r"__shared__|<<<(?!.*//dice)", re.sub(r"//dice:.*", "", task.read_text()))


def test_what_is_inferred_without_directives_agrees_with_them() -> None:
    """Bodies alone: a size is never too small, a buffer is `out` only where all of it is written."""
    launchable = 0
    for task in TASKS:
        text = task.read_text()
        given = launch_spec(text, parse(text).kernels[0], parse(text))
        bare = re.sub(r"//dice:[^\n]*", "", text)
        inferred = launch_spec(bare, parse(bare).kernels[0], parse(bare))
        launchable += inferred.launchable
        buffers = {buffer.name: buffer for buffer in given.buffers}
        for case in cases(given):
            names = {**given.constants, **case}
            names |= {n: evaluate(t, names) for n, t in given.scalars.items() if t.lstrip("-").isdigit()}

            def size(buffer: BufferSpec, names: dict[str, int] = names) -> int:
                return prod(evaluate(extent, names) for extent in buffer.extents)

            # What made-up indices point into is as large as they are.
            made_up = any(buffer.init.startswith("int(0,") for buffer in inferred.buffers)
            for buffer in inferred.buffers:
                assert made_up or size(buffer) >= size(buffers[buffer.name]), (task.stem, buffer)
                assert size(buffer) == size(buffers[buffer.name]) or buffer.role is not Role.OUT, (task.stem, buffer)
        for buffer in inferred.buffers:
            wanted = buffers[buffer.name].role
            assert buffer.role is wanted or (buffer.role, wanted) == (Role.IO, Role.OUT), (task.stem, buffer)
    assert launchable >= 60
