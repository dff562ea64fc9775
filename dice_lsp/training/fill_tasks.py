"""Tasks for a model: a file with one kernel whose body it writes, the reference that judges it, and a plain solution."""

from pathlib import Path

from attrs import frozen

from dice_lsp.records import Region
from dice_lsp.source.kernels import parse
from dice_lsp.training.families import HELD_OUT_SEED, family_names, make_pair
from dice_lsp.training.pair import empty_region


@frozen
class FillTask:
    """One task. `text` is the file with an empty body, `plain` a body that is known to be right and not known to be fast."""

    name: str
    family: str
    path: str
    """Where the file lies, or would lie: quoted includes are found from there."""
    text: str
    kernel: str
    plain: str

    def region(self) -> Region:
        """The body to write."""
        return empty_region(self.text, self.kernel, Path(self.path).as_uri())

    def solved(self) -> str:
        """The file with the plain body: what a fill is timed against."""
        region = self.region()
        return self.text[: region.start] + self.plain + self.text[region.end :]


def file_task(path: Path) -> FillTask:
    """The task of a file: the body of its first kernel, taken out. Raises `ValueError` when it has no kernel."""
    text = path.read_text(encoding="utf-8")
    kernels = parse(text).kernels
    if not kernels:
        raise ValueError(f"{path} has no kernel; leave it out of the folder")
    kernel = kernels[0]
    emptied = text[: kernel.body_start] + "\n" + text[kernel.body_end :]
    body = text[kernel.body_start : kernel.body_end]
    return FillTask(path.stem, path.stem, str(path.resolve()), emptied, kernel.name, body)


def folder_tasks(folder: Path) -> list[FillTask]:
    """The tasks of a folder of `.cu` files, by name; each file is a family of its own."""
    return [file_task(path) for path in sorted(folder.glob("*.cu"))]


def family_tasks(per_family: int, *, held_out: bool, seed: int = 0) -> list[FillTask]:
    """Tasks of all families for training, or of those that are kept for judging, with seeds that no training draws."""
    tasks = []
    for number, family in enumerate(family_names(held_out)):
        for place in range(per_family):
            pair = make_pair(HELD_OUT_SEED + seed * 1_000_003 + number * 1009 + place, family=family)
            tasks.append(FillTask(pair.name, family, f"/generated/{pair.name}.cu", pair.text, pair.kernel, pair.plain))
    return tasks
