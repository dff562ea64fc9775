"""Kernels known twice: their bodies are right, differ, compile for a GPU, and keep to the classes that training may see."""

import asyncio
import re

from dice_lsp.config import Settings
from dice_lsp.diffusion.layout_psm import compose as compose_prompt
from dice_lsp.diffusion.layout_psm import decode_middle, middle_words, spell
from dice_lsp.pipeline import fill_request
from dice_lsp.records import Verified, Wrong
from dice_lsp.source.kernels import parse
from dice_lsp.source.launches import launch_spec
from dice_lsp.training.families import FAMILIES, HELD_OUT_SEED, Pair, family_names, make_pair
from dice_lsp.training.fill_tasks import family_tasks, folder_tasks
from dice_lsp.training.judging import job_of, judges
from dice_lsp.training.tasks import EXCLUDED_CLASSES
from tests.training.test_tasks import compile_log

SETTINGS = Settings(backend="host")


def verdicts(bodies: list[tuple[Pair, str]]) -> list[object]:
    async def all_of_them() -> list[object]:
        async with judges(SETTINGS, 2) as pool:
            jobs = [job_of(pair.file(body), f"/t/{pair.name}.cu", pair.kernel, SETTINGS) for pair, body in bodies]
            return [judged.verdict for judged in await asyncio.gather(*map(pool.judge, jobs))]

    return asyncio.run(all_of_them())


def test_there_are_enough_families_and_a_seed_always_gives_the_same_pair() -> None:
    assert len(family_names()) >= 25 and len(family_names(held_out=True)) >= 12
    assert [make_pair(seed) for seed in range(20)] == [make_pair(seed) for seed in range(20)]
    texts = {make_pair(seed).text for seed in range(300)}
    assert len(texts) > 290


def test_fast_bodies_do_what_their_references_say_and_a_broken_one_does_not() -> None:
    """Families of different making; all of them: `python -m dice_lsp.training.pairs --check 1`."""
    names = ["stencil 1d", "transpose", "row extreme", "histogram", "softmax", "running extreme"]
    pairs = [make_pair(HELD_OUT_SEED + 7, family=name) for name in names]
    bodies = [(pair, pair.fast[-1].body) for pair in pairs]
    # A judge that passes everything would prove nothing.
    pair = make_pair(5, family="row sum")
    broken = re.sub(r"= 0\.0f;", "= 1.0f;", pair.plain, count=1)
    assert broken != pair.plain
    *right, wrong = verdicts([*bodies, (pair, broken)])
    for (pair, body), verdict in zip(bodies, right, strict=True):
        assert isinstance(verdict, Verified), f"{pair.name}: {verdict}\n{pair.file(body)}"
    assert isinstance(wrong, Wrong)


def test_every_body_compiles_for_a_gpu() -> None:
    parts = []
    for number, name in enumerate(FAMILIES):
        pair = make_pair(100 + number, family=name)
        for place, body in enumerate((pair.plain, *(fast.body for fast in pair.fast))):
            kernel = pair.file(body)[parse(pair.file(body)).kernels[0].start :].replace('extern "C" ', "")
            kernel = kernel[: kernel.rindex("}", 0, _end(kernel)) + 1]
            parts.append(f"namespace t{number}_{place} {{\n{kernel}\n}}")
    log = compile_log("\n".join(parts))
    assert not log, log[:3000]


def _end(text: str) -> int:
    depth = 0
    for at, character in enumerate(text):
        depth += {"{": 1, "}": -1}.get(character, 0)
        if character == "}" and depth == 0:
            return at + 1
    return len(text)


def test_plain_and_fast_differ_in_the_body_only() -> None:
    for seed, name in enumerate(FAMILIES):
        pair = make_pair(seed, family=name)
        region = pair.region()
        bodies = {pair.plain, *(fast.body for fast in pair.fast)}
        assert len(bodies) == 1 + len(pair.fast) and pair.fast
        for body in bodies:
            text = pair.file(body)
            assert text.startswith(region.prefix) and text.endswith(region.suffix)
            model = parse(text)
            (kernel,) = model.kernels
            spec = launch_spec(text, kernel, model)
            assert spec.reference is not None and spec.grid and spec.block, (name, spec)


def test_no_family_for_training_is_of_a_class_that_judges() -> None:
    for seed in range(400):
        pair = make_pair(seed)
        assert not FAMILIES[pair.family].held_out
        assert not any(word in pair.kernel.lower() for word in EXCLUDED_CLASSES), pair.kernel
    assert {make_pair(seed, held_out=True).family for seed in range(200)} == set(family_names(held_out=True))


def test_fast_bodies_come_back_from_the_small_models_words() -> None:
    """A body that the layout cannot say could not be learnt."""
    said = 0
    for seed in range(80):
        pair = make_pair(seed)
        region = pair.region()
        assert region.kernel is not None
        model = parse(pair.text)
        request = fill_request(region, model, launch_spec(pair.text, region.kernel, model), 1, 0)
        prompt = compose_prompt(request)
        words = middle_words(pair.fast[-1].body, prompt)
        said += middle_words(decode_middle(spell(words), request), prompt) == words
    assert said > 60


def test_tasks_have_a_body_to_write_and_one_that_is_known() -> None:
    tasks = family_tasks(1, held_out=True)
    assert [task.family for task in tasks] == list(family_names(held_out=True))
    for task in tasks:
        assert task.region().middle.strip() == "" and task.plain.strip()
        assert parse(task.solved()).kernels[0].name == task.kernel


def test_a_folder_of_files_is_a_set_of_tasks() -> None:
    from pathlib import Path

    folder = Path(__file__).parent.parent / "data" / "textbook"
    tasks = folder_tasks(folder)
    assert len(tasks) == 12
    for task in tasks:
        assert task.solved() == (folder / f"{task.name}.cu").read_text()
