"""BiC-RL at a micro size: a policy that knows a right and a hostile kernel unlearns the hostile one; same seed, same losses."""

import asyncio
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs
import pytest
import torch
from tokenizers import Tokenizer

from dice_lsp.config import Settings
from dice_lsp.dataset.cuke import CukeError, write_records
from dice_lsp.diffusion.checkpoint import load
from dice_lsp.diffusion.decode import Decoding
from dice_lsp.diffusion.layout_psm import MASK
from dice_lsp.diffusion.model import SDAR, tiny_config
from dice_lsp.diffusion.registry import shipped_path
from dice_lsp.diffusion.reveal import Schedule
from dice_lsp.records import DecodeSettings
from dice_lsp.training.export import export
from dice_lsp.training.reward import Referee
from dice_lsp.training.rl import Recipe, StepReport, Training, asked_places, main, rollout_schedule, run
from dice_lsp.training.rl_tasks import (
    Curriculum,
    Place,
    RlTask,
    Stage,
    TaskError,
    body_of_reply,
    generated_tasks,
    place_of,
    tasks_from,
)
from dice_lsp.training.rollouts import Actor, Asked, overwrite
from dice_lsp.training.traces import Trace, batches_of, log_probabilities, trace_row
from dice_lsp.training.trainee import Trainee, load_trainee, save_trained
from tests.dataset import making
from tests.diffusion.small import write_checkpoint
from tests.hostile_table import HOSTILE

RIGHT = "\n    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < n) {\n        z[i] = x[i] + y[i];\n    }\n"
HOSTILE_FILE = next(path for path in HOSTILE if path.stem == "writes_zeros")


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Several threads wait for each other by spinning while the workers compile on the same cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def task() -> RlTask:
    """The file of a hostile kernel with a right body instead."""
    text = HOSTILE_FILE.read_text()
    start = text.rindex("{", 0, text.index("int i = blockIdx")) + 1
    return RlTask("add", "add", "add", right := text[:start] + RIGHT + "}\n", right)


@pytest.fixture(scope="module")
def hostile_body() -> str:
    """Counts on what stands in the output already; one token apart from the right body."""
    return RIGHT.replace("= x[i] +", "= z[i] +")


@pytest.fixture(scope="module")
def micro(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an untrained checkpoint of the shipped one's layout."""
    tokenizer = Tokenizer.from_file(str(shipped_path() / "tokenizer.json"))
    config = tiny_config(
        hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=32, mask_token_id=tokenizer.token_to_id(MASK),
    )  # fmt: skip
    network = SDAR(config)
    network.init_weights(seed=2)
    folder = tmp_path_factory.mktemp("micro")
    export(folder, config, network.qwen3_weights(), tokenizer)
    return folder


def schedule_of(trainee: Trainee) -> Schedule:
    return rollout_schedule(trainee.info, DecodeSettings(max_new_tokens=64))


def imitated(folder: Path, item: Asked, bodies: Sequence[str], steps: int) -> Trainee:
    """A policy that answers a place with any of these bodies."""
    torch.manual_seed(0)
    trainee = load_trainee(folder, positions=1024)
    size, mask_id = schedule_of(trainee).block_size, trainee.network.config.mask_token_id
    rows = []
    for body in bodies:
        answer = trainee.layout.answer(item.place.request, body)
        fill = [trainee.layout.fill_id] * (-(len(item.prompt) + len(answer)) % size)
        tokens = (*answer, *fill)
        rows.append(trace_row(Trace(item.prompt, tokens, tuple(range(len(tokens))), len(answer)), size, mask_id))
    (batch,) = batches_of(rows, 4096, 256)
    optimiser = torch.optim.AdamW(trainee.network.parameters(), betas=(0.9, 0.95), weight_decay=0.0)
    for step in range(steps):
        optimiser.param_groups[0]["lr"] = 1e-2 * min(1.0, (step + 1) / 10, 2 * (1 - step / steps))
        loss = -log_probabilities(trainee.network, batch)[0].mean()
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trainee.network.parameters(), 1.0)
        optimiser.step()
    return trainee


@pytest.fixture(scope="module")
def asked(micro: Path, task: RlTask) -> Asked:
    trainee = load_trainee(micro, positions=1024)
    place = place_of(task, Stage.GENERATE, 0)
    assert place is not None
    return Asked(place, tuple(trainee.layout.prompt(place.request, 448)))


@pytest.fixture(scope="module")
def torn(micro: Path, asked: Asked, hostile_body: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that writes the right body as often as the hostile one."""
    folder = tmp_path_factory.mktemp("torn")
    save_trained(folder, imitated(micro, asked, [RIGHT, hostile_body], 100), {})
    return folder


async def trained(folder: Path, asked: Asked, recipe: Recipe, out: Path) -> list[StepReport]:
    trainee = load_trainee(folder, positions=1024)
    referee = Referee(Settings(backend="host"), 2)
    try:
        await referee.start()
        return await run(Training(trainee, recipe, schedule_of(trainee), [asked], referee), out, {"base": "micro"})
    finally:
        await referee.close()


def bad(report: StepReport) -> int:
    """Responses that compile and are not right."""
    return report.kinds.get("wrong", 0) + report.kinds.get("unsafe", 0)


RECIPE = Recipe(stage=Stage.GENERATE, steps=8, places=1, samples=24, updates=2, lr=3e-4, save_every=3, seed=3)


def test_a_policy_unlearns_what_the_judge_refuses_and_repeats_itself(torn: Path, asked: Asked, tmp_path: Path) -> None:
    first = asyncio.run(trained(torn, asked, RECIPE, tmp_path / "a"))
    assert 0.1 < first[0].verified < 0.9, "both bodies are sampled to begin with"
    assert first[0].loss is not None and first[0].divergence is not None and first[0].divergence > 0
    assert bad(first[0]) >= 6, "the hostile body among them"
    late = [item.verified for item in first[-3:]]
    assert sum(late) / 3 > first[0].verified + 0.2
    assert all(bad(item) < bad(first[0]) for item in first[-3:])
    again = asyncio.run(trained(torn, asked, attrs.evolve(RECIPE, steps=3), tmp_path / "b"))
    assert [(item.loss, item.reward, item.kinds) for item in first[:3]] == [
        (item.loss, item.reward, item.kinds) for item in again
    ]
    lines = [json.loads(line) for line in (tmp_path / "a" / "log.jsonl").read_text().splitlines()]
    assert [line["loss"] for line in lines] == [item.loss for item in first]
    weights = load(tmp_path / "a").network.qwen3_weights()
    assert json.loads((tmp_path / "a" / "training.json").read_text())["steps"] == 8
    changed = load(torn).network.qwen3_weights()
    assert any(not torch.equal(tensor, weights[name]) for name, tensor in changed.items())


def test_a_task_whose_own_kernel_is_wrong_is_left_out(
    micro: Path, task: RlTask, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = attrs.evolve(task, name="wrong", text=task.text.replace("x[i] + y[i];\n    }", "x[i] - y[i];\n    }"))
    assert wrong.text != task.text
    trainee = load_trainee(micro, positions=1024)
    places = [place for item in (task, wrong) if (place := place_of(item, Stage.GENERATE, 0)) is not None]
    both = [Asked(place, tuple(trainee.layout.prompt(place.request, 448))) for place in places]

    async def steps() -> list[StepReport]:
        referee = Referee(Settings(backend="host"), 1)
        try:
            await referee.start()
            recipe = attrs.evolve(RECIPE, samples=2)
            training = Training(trainee, recipe, schedule_of(trainee), both, referee)
            return [await training.step(0), await training.step(1)]
        finally:
            await referee.close()

    # An untrained policy earns nothing anywhere, so both tasks are looked at: one is to blame itself.
    first, second = asyncio.run(steps())
    assert first.reward == 0.0 and first.asked == 2
    assert capsys.readouterr().out.splitlines().count("wrong is left out: its own kernel is wrong") == 1
    assert second.asked == 1


def test_a_hostile_policy_gains_nothing(micro: Path, asked: Asked, hostile_body: str, tmp_path: Path) -> None:
    """Started from samples of a hostile kernel alone: no reward, so no update, so it does not become better at it."""
    policy = imitated(micro, asked, [hostile_body], 80)
    actor = Actor(policy, schedule_of(policy), 8)
    written = [response.text for response in actor.sample(asked, 1) for _ in range(response.count)]
    assert sum("z[i] + y[i]" in (text or "") for text in written) >= 6, "it is a hostile policy"
    save_trained(tmp_path / "before", policy, {})
    reports = asyncio.run(trained(tmp_path / "before", asked, attrs.evolve(RECIPE, steps=2), tmp_path / "after"))
    assert [report.reward for report in reports] == [0.0, 0.0]
    assert all(report.loss is None and report.groups == 0 for report in reports)
    before, after = (load(tmp_path / name).network.qwen3_weights() for name in ("before", "after"))
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())


def test_the_sampling_copy_follows_the_policy_in_place(micro: Path) -> None:
    def weights(seed: int) -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(seed)
        drawn = load_trainee(micro, positions=256).weights()
        return {name: weight + 0.3 * torch.rand(weight.shape, generator=generator) for name, weight in drawn.items()}

    config = load(micro).network.config
    network, fresh = SDAR.from_weights(config, weights(1)), SDAR.from_weights(config, weights(2))
    held = network.model.layers[0].self_attn.qkv

    def answers(net: SDAR) -> tuple[float, ...]:
        schedule = Schedule("sequential", 8, 8, 0.9, 0.0, 0, 1.0, 8)
        return Decoding(net, range(10, 34), schedule).run([0])[0].confidences

    assert answers(network) != answers(fresh)
    overwrite(network, weights(2))
    assert answers(network) == answers(fresh)
    assert network.model.layers[0].self_attn.qkv is held


def test_places_ask_what_the_server_would_ask(task: RlTask) -> None:
    whole = place_of(task, Stage.GENERATE, 0)
    assert whole is not None and whole.region.middle == RIGHT and whole.request.middle == ""
    assert whole.request.kernel_prefix.endswith("{") and whole.request.kernel_suffix == "}"
    assert "x[i] + y[i]" not in whole.request.kernel_prefix + whole.request.kernel_suffix
    assert whole.request.reference_text is not None and "add_cpu" in whole.request.reference_text
    gaps = [place_of(task, Stage.INFILL, seed) for seed in range(20)]
    regions = {gap.region.middle for gap in gaps if gap is not None}
    assert len(regions) > 3 and RIGHT not in regions
    for gap in gaps:
        if gap is not None:
            request = gap.request
            assert request.middle == "" and gap.region.middle.strip()
            assert request.kernel_prefix + gap.region.middle + request.kernel_suffix in task.text
            assert gap.difficulty <= whole.difficulty
    assert place_of(attrs.evolve(task, kernel="sub"), Stage.INFILL, 0) is None
    assert place_of(attrs.evolve(task, text=task.text.replace(RIGHT, "\n")), Stage.GENERATE, 0) is None


def test_a_layout_that_writes_files_writes_the_signature_too(task: RlTask) -> None:
    place = place_of(task, Stage.GENERATE, 0, "dice")
    assert place is not None and place.whole_kernel
    assert "//dice:" in place.request.kernel_prefix and "__global__" not in place.request.kernel_prefix
    assert place.request.kernel_suffix == ""
    head = "__global__ void add(const float* __restrict__ x, const float *y, float* z, int n)"
    assert place.middle(f"{head} {{{RIGHT}}}\n") == RIGHT
    kernel = place.region.kernel
    assert kernel is not None
    for other in (head.replace("*y", "*w"), head.replace("int n", "long n"), head.replace("add", "sub"), "no kernel"):
        assert body_of_reply(f"{other} {{{RIGHT}}}\n", kernel) is None


def test_a_reply_of_a_layout_that_writes_files_is_read(task: RlTask, tmp_path: Path) -> None:
    trainee = load_trainee(write_checkpoint(tmp_path / "dice", layout="dice"), positions=6000)
    (item,) = asked_places(trainee, schedule_of(trainee), Stage.GENERATE, [str(write(tmp_path, task))], 4, 0, 6000)
    place, layout = item.place, trainee.layout
    prompt = trainee.tokenizer.decode(item.prompt)
    assert "void add_cpu" in prompt and "__global__ void add(" not in prompt.partition("Now it is your turn")[2]
    kernel = place.region.kernel
    assert kernel is not None
    reply = "\n" + task.text[kernel.start : kernel.end] + '\n"""\n\ncpp_src = "void f();"\n'
    tokens = trainee.tokenizer.encode(reply)
    reached = layout.reached_suffix(place.request)
    assert reached is not None and reached(tokens) and not reached(tokens[: len(tokens) // 2])
    assert place.middle(layout.middle(place.request, tokens)) == place.region.middle
    # A random network answers, and what is no kernel has no text.
    responses = Actor(trainee, schedule_of(trainee), 3).sample(item, 1)
    assert sum(response.count for response in responses) == 3
    assert all(response.text is None for response in responses)


def write(folder: Path, task: RlTask) -> Path:
    """A folder with the file of a task."""
    (folder / "tasks").mkdir()
    (folder / "tasks" / f"{task.name}.cu").write_text(task.text)
    return folder / "tasks"


def test_easy_places_come_first_and_solved_ones_no_more(task: RlTask) -> None:
    places = [place for seed in range(40) if (place := place_of(task, Stage.INFILL, seed)) is not None]
    distinct = list({place.key: place for place in places}.values())
    random.Random(1).shuffle(distinct)
    plan = Curriculum(distinct)

    def take(count: int) -> list[Place]:
        return [plan.take() for _ in range(count)]

    order = take(len(distinct))
    assert [place.difficulty for place in order] == sorted(place.difficulty for place in distinct)
    assert take(2) == order[:2], "and again from the beginning"
    assert plan.retire(order[1]) and plan.retire(order[3]) and not plan.retire(order[3])
    assert take(len(distinct)) == [order[2], *order[4:], order[0], order[2], order[4]]
    single = Curriculum(order[:1])
    assert not single.retire(order[0])
    assert single.take() == single.take() == order[0], "the last one stays"


def test_tasks_come_from_seeds_folders_and_nowhere_else(tmp_path: Path, task: RlTask) -> None:
    assert [item.text for item in tasks_from("generated", 3, 7)] == [
        item.text for item in tasks_from("generated", 3, 7)
    ]
    assert tasks_from("generated", 3, 7)[0].text != tasks_from("generated", 3, 8)[0].text
    mixed = list(generated_tasks(range(30)))
    assert {item.text == item.baseline for item in mixed} == {True, False}
    grammar = tasks_from("grammar", 30, 7)
    places = [place_of(item, Stage.GENERATE, 0) for item in grammar]
    launched = [place for place in places if place is not None and place.spec.launchable and place.spec.reference]
    assert len(launched) >= 20 and len({item.family for item in grammar}) > 5
    (tmp_path / "add.cu").write_text(task.text)
    assert tasks_from(str(tmp_path), 5, 0) == [task]
    with pytest.raises(TaskError, match=r"no \.cu file"):
        (tmp_path / "empty").mkdir()
        tasks_from(str(tmp_path / "empty"), 5, 0)
    with pytest.raises(TaskError, match="there are no tasks at nowhere"):
        tasks_from("nowhere", 5, 0)


def test_records_are_tasks_with_their_rival_and_their_directive(tmp_path: Path) -> None:
    told = making.source(making.BODY)
    records = [
        making.record(),
        making.record(rival=""),
        making.record(directive="", extra=making.DIRECTIVE, measured=told),
    ]
    write_records(tmp_path / "mine.jsonl", records)
    found = {item.name: item for item in tasks_from(str(tmp_path / "mine.jsonl"), 9, 0)}
    assert sorted(found) == ["mine-0", "mine-1", "mine-2"] and {item.family for item in found.values()} == {"family"}
    assert found["mine-0"].text == told and found["mine-0"].baseline == making.source(making.RIVAL)
    assert found["mine-1"].baseline == found["mine-1"].text
    for item in found.values():
        place = place_of(item, Stage.GENERATE, 0)
        assert place is not None and place.spec.launchable and place.region.middle == making.BODY
    (tmp_path / "bad.jsonl").write_text("{\n")
    with pytest.raises(CukeError):
        tasks_from(str(tmp_path / "bad.jsonl"), 9, 0)


def test_the_command_says_what_is_wrong_in_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--out", str(tmp_path), "--tasks", "nowhere", "--device", "cpu"]) == 2
    assert capsys.readouterr().err.startswith("dice-lsp train rl: there are no tasks at nowhere: give a folder")
    assert main(["--out", str(tmp_path), "--model", "no such model"]) == 2
    assert main(["--out", str(tmp_path), "--block-size", "5", "--device", "cpu"]) == 2
    assert "block size 5" in capsys.readouterr().err
