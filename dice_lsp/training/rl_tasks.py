"""What a policy is asked: places of kernels that are known to be right, first a gap inside one, then its whole body.

BiC-RL (DICE, section 5 of its paper) trains in two stages: to fill a gap in a kernel that stands (`infill`), then to write
all of it (`generate`). A task is a file with a right kernel and its reference; a place is the task with one region of it,
and the request that a model gets is the one that the server would send for that region.
"""

import random
import re
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path

import attrs
from attrs import frozen

from dice_lsp.dataset.cuke import read_records, with_directive
from dice_lsp.pipeline import fill_request
from dice_lsp.records import Document, FillRequest, Kernel, LaunchSpec, Region
from dice_lsp.source.kernels import comment_start, parse
from dice_lsp.source.launches import launch_spec
from dice_lsp.source.selection import body_region, region
from dice_lsp.training.examples import choose_span, kernel_text, reference_text
from dice_lsp.training.families import make_pair
from dice_lsp.training.tasks import make_task


class Stage(StrEnum):
    """What of a kernel is taken out."""

    INFILL = "infill"
    """A part of the body: the inside of a block, some statements, the right side of an assignment."""
    GENERATE = "generate"
    """The whole body; for a layout that writes files the signature too."""


class TaskError(Exception):
    """Tasks cannot be had; the message is one sentence for the user."""


@frozen
class RlTask:
    """A file with one kernel that is right, and the plain solution that speed is measured against."""

    name: str
    family: str
    kernel: str
    """The kernel's name."""
    text: str
    """The file, with a kernel that is right."""
    baseline: str
    """The same file with the plain kernel; `text` itself where no other is known."""


@frozen
class Place:
    """A task with the region that is to be written."""

    task: RlTask
    stage: Stage
    region: Region
    spec: LaunchSpec
    request: FillRequest
    whole_kernel: bool = False
    """The reply is the kernel with its signature, of which the body is taken, see `body_of_reply`."""

    @property
    def key(self) -> str:
        """What tells the place from all others."""
        return f"{self.task.name}:{self.region.start}:{self.region.end}"

    @property
    def path(self) -> str:
        """Where the file would lie; nothing is ever read or written there."""
        return f"/generated/{self.task.name}.cu"

    @property
    def difficulty(self) -> int:
        """Words of the solution that is known: short gaps come first."""
        return len(re.findall(r"\w+|[^\w\s]", self.region.middle))

    def middle(self, reply: str) -> str | None:
        """The text for the region, given the reply as the layout reads it; None when the reply holds no such kernel."""
        return body_of_reply(reply, self.region.kernel) if self.whole_kernel and self.region.kernel else reply


def place_of(task: RlTask, stage: Stage, seed: int, layout: str = "psm") -> Place | None:
    """A place of a task, chosen by the seed; None when the file has no kernel of that name or no place of that kind."""
    document = Document(f"file:///generated/{task.name}.cu", 0, task.text)
    model = parse(task.text)
    kernel = next((item for item in model.kernels if item.name == task.kernel), None)
    if kernel is None or not task.text[kernel.body_start : kernel.body_end].strip():
        return None
    if task.kernel not in [item.name for item in parse(task.baseline).kernels]:
        return None
    whole = body_region(document, kernel)
    chosen = whole
    if stage is Stage.INFILL:
        rng = random.Random(f"{seed} {task.name}")
        start, end, _ = choose_span(task.text, kernel.body_start, kernel.body_end, rng, whole=0.0)
        found = region(document, start, end)
        if isinstance(found, str) or not found.middle.strip():
            return None
        chosen = found
    spec = launch_spec(task.text, kernel, model)
    request = attrs.evolve(fill_request(chosen, model, spec, 1, 0), middle="")
    whole_kernel = stage is Stage.GENERATE and layout == "dice"
    if whole_kernel:
        above = task.text[comment_start(task.text, kernel) : kernel.start]
        request = attrs.evolve(request, kernel_prefix=above, kernel_suffix="", indent="")
    return Place(task, stage, chosen, spec, request, whole_kernel)


def body_of_reply(reply: str, kernel: Kernel) -> str | None:
    """The body of the kernel that a reply defines, if it has the name, the types and the names that the launch needs."""
    written = next((item for item in parse(reply).kernels if item.name == kernel.name), None)
    if written is None or written.template != kernel.template:
        return None
    wanted, got = ([(p.name, p.element, p.indirections) for p in item.parameters] for item in (kernel, written))
    return reply[written.body_start : written.body_end] if wanted == got else None


def generated_tasks(seeds: Iterable[int], fast_share: float = 0.7) -> Iterator[RlTask]:
    """Tasks of the families of `families`, endless as the seeds are. Most show a fast kernel, some the plain one."""
    for seed in seeds:
        pair = make_pair(seed)
        rng = random.Random(seed)
        body = rng.choice(pair.fast).body if pair.fast and rng.random() < fast_share else pair.plain
        yield RlTask(pair.name, pair.family, pair.kernel, pair.file(body), pair.file(pair.plain))


GRAMMAR_SIZES = {
    1: ("1M", "1000", "257"), 2: ("2048", "100", "33"), 3: ("128", "20", "7"), 4: ("32", "9", "5"),
}  # fmt: skip
"""Number of size parameters -> the values of each in a directive."""


def grammar_tasks(seeds: Iterable[int]) -> Iterator[RlTask]:
    """Tasks of the random grammar of `tasks`, which has far more kinds of kernels than there are families, all plain.

    Its kernels are right by construction for sizes of its own; some need what a directive here does not say. Training
    finds these by their own solution, which is then not verified.
    """
    for seed in seeds:
        task, rng = make_task(seed), random.Random(seed)
        values = GRAMMAR_SIZES[min(max(len(task.sizes), 1), 4)]
        clauses = [", ".join(f"{name} = {' | '.join(values)}" for name in task.sizes)] if task.sizes else []
        for role in ("in", "out", "io"):
            listed = [
                f"{item.name}[{', '.join(item.extents)}]"
                + (f": int({item.low}, {item.high})" if item.high > item.low else "")
                for item in task.arguments
                if item.role == role and item.extents
            ]
            clauses += [f"{role} {', '.join(listed)}"] if listed else []
        clauses += [f"launch <<<{task.launch}>>>", f"ref {task.name}_cpu"]
        directive = f"//dice: {'; '.join(clauses)}"
        text = f"{task.declarations}{reference_text(task, rng)}\n\n{directive}\n{kernel_text(task, rng)}\n"
        yield RlTask(f"grammar-{seed}", task.shape, task.name, text, text)


def folder_tasks(folder: Path) -> list[RlTask]:
    """One task of each `.cu` file of a folder: its first kernel, which is its own baseline."""
    found = []
    for path in sorted(folder.glob("*.cu")):
        text = path.read_text(encoding="utf-8")
        kernels = parse(text).kernels
        if kernels:
            found.append(RlTask(path.stem, path.stem, kernels[0].name, text, text))
    if not found:
        raise TaskError(
            f"{folder} has no .cu file with a kernel: give another folder, a JSON lines file, or `generated`"
        )
    return found


def record_tasks(path: Path) -> list[RlTask]:
    """One task of each CuKe record that is a `.cu` file; raises what `read_records` raises."""
    found = []
    for number, record in enumerate(read_records(path)):
        kernel = next((item for item in parse(record.text).kernels if item.id == record.kernel), None)
        if record.whole_file or kernel is None:
            continue
        texts = [record.text, record.prefix + record.rival + record.suffix if record.rival else record.text]
        if record.directive:
            # In both the kernel begins at the same place: what differs lies inside it.
            texts = [with_directive(text, kernel, record.directive) for text in texts]
        found.append(RlTask(f"{path.stem}-{number}", record.source.partition(":")[0], kernel.name, *texts))
    if not found:
        raise TaskError(f"{path} has no record of a kernel in a file: look at it with `dice-lsp dataset list {path}`")
    return found


def tasks_from(source: str, count: int, seed: int) -> list[RlTask]:
    """Up to `count` tasks: `generated`, `grammar`, those of a folder of `.cu` files, or of a JSON lines file of records."""
    if source in ("generated", "grammar"):
        # One range of seeds for each run's seed, all below those that judge.
        first = (seed * 1_000_003) % (1 << 39)
        seeds = range(first, first + count)
        return list(generated_tasks(seeds) if source == "generated" else grammar_tasks(seeds))
    path = Path(source)
    if path.is_dir():
        found = folder_tasks(path)
    elif path.is_file():
        found = record_tasks(path)
    else:
        raise TaskError(
            f"there are no tasks at {source}: give a folder of .cu files, a JSON lines file, `generated` or `grammar`"
        )
    random.Random(seed).shuffle(found)
    return found[:count]


class Curriculum:
    """The places of a stage, easy ones first, again and again; those that can teach nothing more are not asked again."""

    def __init__(self, places: Sequence[Place]) -> None:
        self._order = sorted(places, key=lambda place: place.difficulty)
        self._at = 0

    def __len__(self) -> int:
        return len(self._order)

    def take(self) -> Place:
        """The next place; after the last the first one comes again."""
        place = self._order[self._at % len(self._order)]
        self._at += 1
        return place

    def retire(self, place: Place) -> bool:
        """Do not ask this place again; False for the last one, which stays."""
        if len(self._order) == 1 or place not in self._order:
            return False
        index = self._order.index(place)
        self._at %= len(self._order)
        del self._order[index]
        self._at -= index < self._at
        return True
