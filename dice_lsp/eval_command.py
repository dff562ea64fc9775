"""`dice-lsp eval`: how good a checkpoint is on sets of tasks, or on KernelBench's problems."""

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dice_lsp.command_line import UsageError, add_settings, settings_of, user_settings, write_whole
from dice_lsp.config import Settings
from dice_lsp.records import DecodeSettings

if TYPE_CHECKING:
    from dice_lsp.training.evaluation import TaskScore
    from dice_lsp.training.fill_tasks import FillTask

SETS = ("frozen", "textbook", "heldout", "families")
_SOURCE_SETS = ("frozen", "textbook")


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to those of `dice-lsp`."""
    parser = commands.add_parser("eval", help="how good a checkpoint is: pass@k and speed-up, by family")
    parser.add_argument(
        "sets", nargs="*", metavar="SET", help=f"tasks to take, also as --set SET: {', '.join(SETS)} (default: heldout)"
    )
    parser.add_argument(
        "--tasks",
        type=Path,
        metavar="DIR",
        help="where the folders `frozen` and `textbook` lie, or a folder of .cu files",
    )
    parser.add_argument(
        "--samples",
        type=int,
        metavar="N",
        help="independent samples of each task (default: 8; for KernelBench the likeliest answer)",
    )
    parser.add_argument("--per-family", type=int, default=2, metavar="N", help="tasks of each family")
    parser.add_argument("--limit", type=int, metavar="N", help="take only the first tasks of each set")
    parser.add_argument("--workers", type=int, metavar="N", help="judges at work at once (default: half the cores)")
    parser.add_argument(
        "--twice", action="store_true", help="judge what is verified again with other inputs, and count what fails then"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure and outcome there")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables there")
    bench = parser.add_argument_group(
        "KernelBench", "problems of a clone of KernelBench, for checkpoints that write whole files"
    )
    bench.add_argument(
        "--kernelbench", type=Path, metavar="DIR", help="the clone; its problems lie in KernelBench/level1, ..."
    )
    bench.add_argument("--level", type=int, choices=(1, 2, 3), default=1)
    bench.add_argument("--problems", metavar="1,2,7", help="only these numbers")
    bench.add_argument("--trials", type=int, default=5, metavar="N", help="inputs that each answer must be right for")
    bench.add_argument(
        "--answers", type=Path, metavar="DIR", help="judge files N.py of this folder instead of asking a checkpoint"
    )
    bench.add_argument(
        "--prompt", type=Path, metavar="FILE", help="what the checkpoint is asked, with $architecture in it"
    )
    bench.add_argument(
        "--allow-host-code",
        action="store_true",
        help="agree that Python which a model wrote is run on this machine, confined",
    )
    add_settings(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Evaluate and print; 0 when it came to an end, whatever the figures are."""
    # `--set` names a setting everywhere, with a value; a word without one is a set of tasks.
    arguments.sets += [word for word in arguments.set if "=" not in word]
    arguments.set = [word for word in arguments.set if "=" in word]
    unknown = [name for name in arguments.sets if name not in SETS]
    if unknown:
        raise UsageError(f"there is no set {unknown[0]}; choose from {', '.join(SETS)}")
    settings = settings_of(arguments, user_settings())
    arguments.samples = arguments.samples if arguments.samples is not None else 1 if arguments.kernelbench else 8
    if arguments.samples < 1 or arguments.per_family < 1 or arguments.trials < 1:
        raise UsageError("--samples, --per-family and --trials must be at least 1")
    if arguments.kernelbench is not None:
        from dice_lsp.training.kernelbench import run_command

        return run_command(arguments, settings)
    from dice_lsp.diffusion.checkpoint import CheckpointError

    # Of what was chosen before the model is loaded, everything that can be wrong is told at once.
    sets = {name: tasks_of(name, arguments) for name in dict.fromkeys(arguments.sets or ["heldout"])}
    try:
        about, found, timed = asyncio.run(_evaluate(settings, sets, arguments))
    except CheckpointError as error:
        raise UsageError(str(error)) from error
    from dice_lsp.training.evaluation import as_json, as_markdown

    tables = as_markdown(about, found, timed)
    print(tables)
    if arguments.json is not None:
        write_whole(arguments.json, as_json(about, found, timed).encode())
    if arguments.markdown is not None:
        write_whole(arguments.markdown, tables.encode())
    return 0


def tasks_of(name: str, arguments: argparse.Namespace) -> "list[FillTask]":
    """The tasks of a set. Raises `UsageError` when its folder is not here."""
    from dice_lsp.training.fill_tasks import family_tasks, folder_tasks

    if name in _SOURCE_SETS:
        folder = source_folder(name, arguments.tasks)
        try:
            tasks = folder_tasks(folder)
        except (OSError, ValueError) as error:
            raise UsageError(str(error)) from error
        if not tasks:
            raise UsageError(f"{folder} holds no .cu file; name the folder of the tasks with --tasks")
    else:
        # The tasks stay the same whatever the seed of the sampling is, so that seeds can be compared.
        tasks = family_tasks(arguments.per_family, held_out=name == "heldout")
    return tasks[: arguments.limit] if arguments.limit else tasks


def source_folder(name: str, given: Path | None) -> Path:
    """Where the tasks of a set lie that belongs to the source tree. An installed package does not hold them."""
    beside = Path(__file__).resolve().parent.parent / "tests" / "data"
    for folder in (given / name, given) if given is not None else (beside / name,):
        if folder.is_dir():
            return folder
    raise UsageError(
        f"the set {name} is not part of the installed package: clone the repository and give --tasks CLONE/tests/data"
        if given is None
        else f"{given} is no folder; give the tests/data of a clone with --tasks"
    )


async def _evaluate(
    settings: Settings, sets: "dict[str, list[FillTask]]", arguments: argparse.Namespace
) -> "tuple[dict[str, Any], dict[str, Sequence[TaskScore]], bool]":
    from dice_lsp.training.evaluation import Evaluation
    from dice_lsp.training.judging import judges
    from dice_lsp.training.sampling import Sampler, threads

    cores = len(os.sched_getaffinity(0))
    workers = arguments.workers or max(1, cores // 2)
    threads(max(1, min(8, cores - workers)))
    logging.getLogger("dice_lsp.worker").setLevel(logging.ERROR)
    sampler = Sampler(settings.model, settings.model_device, settings.prompt_template)
    decode = DecodeSettings(
        strategy=None if settings.decode_strategy == "auto" else settings.decode_strategy,
        block_size=settings.decode_block_size,
        threshold=settings.decode_threshold,
        temperature=settings.decode_temperature,
        max_new_tokens=settings.decode_max_new_tokens,
    )
    total, done = sum(map(len, sets.values())), 0

    def tell(result: "TaskScore") -> None:
        nonlocal done
        done += 1
        if sys.stderr.isatty():
            end = "\n" if done == total else "\r"
            print(
                f"{done} of {total}: {result.task} {result.right} of {len(result.samples)}   ", end=end, file=sys.stderr
            )

    async with judges(settings, workers) as pool:
        evaluation = Evaluation(
            sampler, pool, settings, samples=arguments.samples, decode=decode, twice=arguments.twice
        )
        found: dict[str, Sequence[TaskScore]] = {
            name: await evaluation.run(tasks, tell) for name, tasks in sets.items()
        }
        about = {
            "model": sampler.name,
            "parameters": sampler.parameters,
            "samples": arguments.samples,
            "temperature": sampler.loaded.info.settings(decode).temperature,
            "seed": settings.seed,
            "model_device": sampler.device,
            "judged_on": pool.device,
        }
        return about, found, pool.times
