"""Fine-tuning at a micro size: what a row holds, what the loss means, and that a run can be repeated and gone on with."""

import itertools
import os
import random
import signal
import socket
import subprocess
import sys
from pathlib import Path

import attrs
import pytest
import torch
from tokenizers import Tokenizer

from dice_lsp.diffusion import prompt
from dice_lsp.diffusion.checkpoint import load
from dice_lsp.diffusion.prompt import DiceLayout, layout_for
from dice_lsp.training import block_diffusion
from dice_lsp.training.block_diffusion import Batch, Corruption, Noise, Objective, Sample, token_losses
from dice_lsp.training.examples import make_example
from dice_lsp.training.packing import Packer, visible
from dice_lsp.training.sft import Recipe, Run, main, plan_of
from dice_lsp.training.sft_data import (
    HELD_OUT_RUN,
    HELD_OUT_SEED,
    Conversation,
    Exchange,
    GeneratedSource,
    ListSource,
    Place,
    Stream,
    sample_of,
)
from dice_lsp.training.trainee import TrainingError, load_trainee, save_trained
from tests.diffusion.small import block_rows, saxpy_request
from tests.training.micro import losses_of, weights_of, write_micro, write_micro_dice

MICRO = {
    "steps": 3, "rows": 2, "row_length": 512, "cutoff": 250, "chunk": 12, "log_every": 1, "copies": 1, "warmup_steps": 1,
}  # fmt: skip
BODY = "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < n) {\n        y[i] = a * x[i] + y[i];\n    }\n"


@pytest.fixture(scope="module")
def micro(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_micro(tmp_path_factory.mktemp("micro"))


@pytest.fixture
def short_template(monkeypatch: pytest.MonkeyPatch) -> None:
    """The published prompt is 2000 bytes long before a kernel is in it, and a byte is a token here."""
    monkeypatch.setattr(prompt, "DICE_TEMPLATE", "Compute $architecture\nbetween $prefix\nand $suffix")


@pytest.fixture(scope="module")
def micro_dice(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_micro_dice(tmp_path_factory.mktemp("dice"))


def tune(model: Path, out: Path, resume: bool = False, **changes) -> Run:  # type: ignore[no-untyped-def]
    run = Run.begin(Recipe(str(model), **{**MICRO, **changes}), out, "cpu", resume, lambda line: None)
    run.train()
    return run


@pytest.mark.parametrize("noise", list(Noise))
def test_every_token_counts_one_in_the_mean_however_many_are_masked_with_it(noise: Noise) -> None:
    """Both forms of the noise: the share of the loss that a token has in blocks with k masked tokens is 1/n for each k."""
    rng = random.Random(1)
    corruption = Corruption((4,), 99, 98, noise=noise)
    draws, size = 24000, 4
    shares = torch.zeros(size, size)
    for _ in range(draws):
        masked, worth = corruption._masked(list(range(size)), rng)
        for place in masked:
            shares[place, len(masked) - 1] += worth / draws
    assert (shares - 1 / size).abs().max() < 0.05, shares
    assert (shares.sum(1) - 1).abs().max() < 0.1


def test_the_counted_noise_never_counts_a_token_more_than_a_block() -> None:
    rng = random.Random(2)
    corruption = Corruption((8,), 99, 98)
    assert max(corruption._masked(list(range(8)), rng)[1] for _ in range(500)) == 8


def test_a_document_is_clean_and_then_noisy_where_the_answer_is() -> None:
    corruption = Corruption((4,), 99, 98, copies=2, fill_weight=0.25)
    sample = Sample(tuple(range(10, 16)), (20, 21, 22, 23, 24, 25, 97))
    fields, counted = corruption.document(sample, 4, random.Random(0))
    assert fields.shape[1] == corruption.length(sample, 4) == 16 + 2 * 12
    assert fields[0, :16].tolist() == [*range(10, 16), *range(20, 26), 97, 98, 98, 98]
    assert not fields[5, :16].any() and not counted[:16].any()
    for copy, begin in ((1, 16), (2, 28)):
        part = fields[:, begin : begin + 12]
        assert (
            (part[3] == copy).all()
            and part[1].tolist() == list(range(4, 16))
            and part[4].tolist() == [1] * 4 + [2] * 4 + [3] * 4
        )
        assert part[0, :2].tolist() == [14, 15] and not part[5, :2].any(), "the prompt's end stays as it is"
        hidden = part[0] == 99
        assert (hidden == (part[5] > 0)).all() and hidden.any()
        assert (part[5][hidden] - 1 == fields[0, part[1][hidden]]).all()
        assert all((part[4] == block)[hidden].any() for block in (1, 2, 3)), "each block has something to learn"
    assert corruption.weight(sample, 4) == 2 * (7 + 3 * 0.25)


@pytest.mark.parametrize("whole_files", [False, True])
def test_a_noisy_block_sees_in_training_what_it_sees_in_decoding(
    whole_files: bool, micro: Path, micro_dice: Path
) -> None:
    """In a row with other documents: logits of each masked block equal those against a cache of the clean blocks before it."""
    trainee = load_trainee(micro_dice if whole_files else micro, positions=6000)
    network, size = trainee.network, 4 if whole_files else 8
    exchange = Exchange(saxpy_request(middle=""), BODY)
    sample = sample_of(trainee.layout, exchange)
    assert sample is not None and len(sample.prompt) % size, "a prompt that ends inside a block"
    corruption = Corruption((size,), trainee.info.mask_id, trainee.layout.fill_id)
    row = corruption.row([(Sample((5, 6, 7), (8, 9, 10)), size), (sample, size)], 6000, random.Random(4))
    batch = Batch.of([row], torch.device("cpu"))
    end = row.filled
    fields = batch.fields[:, :, :end]
    with torch.no_grad():
        logits = network.forward_train(fields[0], fields[1], visible(fields[2], fields[3], fields[4]))[0]
    own = fields[:, 0, fields[2, 0] == 2]
    logits = logits[fields[2, 0] == 2]
    clean = own[0, own[3] == 0]
    judged = load(micro_dice if whole_files else micro).network
    first = len(sample.prompt) // size * size
    for start in (first, first + size, len(clean) - size):
        cache = judged.slot_cache(len(clean))
        judged.forward_rows(block_rows(clean[:start].tolist(), 0, size), cache, ())
        noisy = (own[3] == 1) & (own[1] >= start) & (own[1] < start + size)
        rows = block_rows(own[0, noisy].tolist(), start, size)
        found = judged.forward_rows(rows, cache, range(rows.count)).logits
        assert torch.allclose(found, logits[noisy], atol=1e-4)


def test_the_loss_is_the_weighted_mean_and_forgetting_changes_nothing(
    micro: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainee = load_trainee(micro)
    corruption = Corruption((8,), trainee.info.mask_id, trainee.layout.fill_id)
    row = corruption.row([(Sample(tuple(range(20, 41)), tuple(range(50, 80))), 8)], 128, random.Random(1))
    batch = Batch.of([row], torch.device("cpu"))
    mask = visible(batch.fields[2], batch.fields[3], batch.fields[4])
    plain, thrifty = Objective(trainee.network), Objective(trainee.network, checkpointing=True)
    loss = plain(batch, mask)
    loss.backward()
    gradients = {name: weight.grad.clone() for name, weight in trainee.learned().items()}
    trainee.network.zero_grad()
    # As at a vocabulary of 151,936: layers and logits are computed again on the way back, the logits in pieces.
    monkeypatch.setattr(block_diffusion, "LARGE_VOCABULARY", 1)
    monkeypatch.setattr(block_diffusion, "LOGITS_AT_ONCE", 3)
    again = thrifty(batch, mask)
    again.backward()
    assert torch.allclose(loss, again, rtol=1e-5)
    for name, weight in trainee.learned().items():
        assert torch.allclose(weight.grad, gradients[name], atol=2e-4), name
    with torch.no_grad():
        logits = trainee.network.forward_train(batch.fields[0], batch.fields[1], mask)[0].log_softmax(-1)
    by_hand = sum(
        -float(row.counted[at]) * float(logits[at, row.fields[5, at] - 1]) for at in range(128) if row.fields[5, at]
    )
    assert by_hand == pytest.approx(float(loss.detach()), rel=1e-4)


@pytest.mark.parametrize("middle", [BODY, "\n" + BODY])
def test_what_is_learned_reads_back_as_the_region(middle: str, micro_dice: Path) -> None:
    """The answer that is trained on, read as a reply: the text of the region, up to where the suffix begins."""
    loaded = load(micro_dice)
    layout = layout_for(loaded.info, loaded.tokenizer)
    request = saxpy_request(middle="", file_suffix="\nint main() { return 0; }\n")
    tokens = layout.answer(request, middle)
    assert tokens[-1] == loaded.tokenizer.id("<|im_end|>")
    reached = layout.reached_suffix(request)
    assert reached is not None and reached(tokens)
    text = loaded.tokenizer.decode(tokens)
    assert text.endswith('"""\n```<|im_end|>') and "int main()" in text
    assert layout.middle(request, tokens).split() == middle.split()
    # What is asked and what is answered are one file: nothing lies between them.
    whole = loaded.tokenizer.decode([*layout.prompt(request, 1 << 20), *tokens]).rpartition("```python\n")[2]
    assert request.file_prefix + request.kernel_prefix + middle.rstrip() in whole


def test_the_small_layout_is_asked_and_answers_as_it_was_trained_from_nothing(micro: Path) -> None:
    loaded = load(micro)
    layout = layout_for(loaded.info, loaded.tokenizer)
    packer = Packer(Tokenizer.from_file(str(micro / "tokenizer.json")))
    compared = 0
    for seed in range(HELD_OUT_SEED, HELD_OUT_SEED + 12):
        example = make_example(seed)
        ids = packer.ids(example)
        if ids is not None:
            compared += 1
            sample = sample_of(layout, Exchange(example.request, example.middle))
            assert sample is not None
            assert (list(sample.prompt), list(sample.answer)) == (ids[0], [*ids[1], layout.fill_id])
    assert compared > 6
    tokens = layout.answer(saxpy_request(middle=""), BODY)
    assert layout.middle(saxpy_request(middle=""), tokens).split() == BODY.split()


def test_a_whole_exchange_is_for_checkpoints_that_write_whole_files(micro: Path, micro_dice: Path) -> None:
    talk = Conversation("Write <|im_end|> a kernel.", "```python\nimport torch\n```")
    assert sample_of(_layout(micro), talk) is None
    sample = sample_of(_layout(micro_dice), talk)
    loaded = load(micro_dice)
    assert sample is not None
    assert loaded.tokenizer.decode(sample.prompt) == (
        "<|im_start|>user\nWrite < |im_end|> a kernel.<|im_end|>\n<|im_start|>assistant\n\n"
    )
    assert sample.prompt.count(loaded.tokenizer.id("<|im_end|>")) == 1, "a record cannot end the user's turn"
    assert loaded.tokenizer.decode(sample.answer) == "```python\nimport torch\n```<|im_end|>"


def _layout(folder: Path):  # type: ignore[no-untyped-def]
    loaded = load(folder)
    return layout_for(loaded.info, loaded.tokenizer)


def _rows(run: Run, place: Place, count: int, workers: int = 0) -> list[tuple[list, float]]:
    stream = iter(Stream(plan_of(run.recipe, run.trainee), place, workers))
    return [(row.fields.tolist(), row.weight, place) for row, place in itertools.islice(stream, count)]


def test_the_order_is_the_seeds_and_nobody_elses(micro: Path, tmp_path: Path) -> None:
    run = Run.begin(Recipe(str(micro), **{**MICRO, "chunk": 6}), tmp_path, "cpu", say=lambda line: None)
    alone = _rows(run, Place(), 7)
    assert _rows(run, Place(), 7, workers=2) == alone, "as many processes as one likes"
    assert alone[2][2].chunk >= 1, "more than one chunk was read"
    assert _rows(run, alone[2][2], 4) == alone[3:], "from any place on"
    other = attrs.evolve(run.recipe, seed=2)
    assert next(iter(Stream(plan_of(other, run.trainee), Place())))[0].fields.tolist() != alone[0][0]


def test_each_epoch_takes_every_record_once_and_ends(micro: Path, tmp_path: Path) -> None:
    exchanges = tuple(GeneratedSource(3).exchange(number) for number in range(7))
    source = ListSource(exchanges, 5)
    taken = [source.exchange(number) for number in range(21)]
    for epoch in range(3):
        assert {id(exchange) for exchange in taken[7 * epoch : 7 * epoch + 7]} == {id(item) for item in exchanges}
    assert taken[:7] != taken[7:14]
    run = Run.begin(Recipe(str(micro), **MICRO), tmp_path, "cpu", say=lambda line: None)
    plan = plan_of(run.recipe, run.trainee)
    plan = attrs.evolve(plan, parts=(attrs.evolve(plan.parts[0], source=source, count=4),), epochs=2, cutoff=4000)
    documents = sum(int(row.fields[2].max()) for row, _ in Stream(attrs.evolve(plan, row_length=8000), Place()))
    assert documents == 14


def test_held_out_rows_come_from_seeds_that_no_run_draws() -> None:
    drawn = {make_example(HELD_OUT_SEED + 4).request.kernel_prefix}
    assert {GeneratedSource(HELD_OUT_RUN).exchange(4).request.kernel_prefix} == drawn
    for run in (1, 7, HELD_OUT_RUN + 3):
        assert GeneratedSource(run).exchange(4).request.kernel_prefix not in drawn


def test_the_same_seed_gives_the_same_losses_and_another_gives_others(micro: Path, tmp_path: Path) -> None:
    first, second = tune(micro, tmp_path / "a"), tune(micro, tmp_path / "b")
    assert losses_of(tmp_path / "a") == losses_of(tmp_path / "b") and len(losses_of(tmp_path / "a")) == 3
    for name, weight in first.trainee.learned().items():
        assert torch.equal(weight, second.trainee.learned()[name]), name
    tune(micro, tmp_path / "c", seed=2)
    assert losses_of(tmp_path / "c") != losses_of(tmp_path / "a")


@pytest.mark.parametrize("optimiser", ["adamw", "muon"])
def test_a_run_that_was_stopped_goes_on_as_if_it_had_not_been(micro: Path, tmp_path: Path, optimiser: str) -> None:
    recipe = {"optimiser": optimiser, "warmup_steps": 3}
    whole = tune(micro, tmp_path / "whole", steps=4, **recipe)
    tune(micro, tmp_path / "parts", steps=2, **recipe)
    resumed = tune(micro, tmp_path / "parts", resume=True, steps=4, **recipe)
    assert resumed.step == 4 and resumed.place == whole.place
    assert losses_of(tmp_path / "parts") == losses_of(tmp_path / "whole")
    for name, weight in whole.trainee.learned().items():
        assert torch.equal(weight, resumed.trainee.learned()[name]), name


def test_an_interrupt_ends_after_the_step_with_everything_saved(micro: Path, tmp_path: Path) -> None:
    def interrupted(line: str) -> None:
        if line.startswith("step 2 "):
            os.kill(os.getpid(), signal.SIGINT)

    # Whatever runs the tests may have the signal ignored.
    before = signal.getsignal(signal.SIGINT)
    whole = tune(micro, tmp_path / "whole", steps=4)
    run = Run.begin(Recipe(str(micro), **{**MICRO, "steps": 4}), tmp_path / "cut", "cpu", say=interrupted)
    result = run.train()
    assert result.interrupted and result.steps == 2
    assert signal.getsignal(signal.SIGINT) is before
    resumed = tune(micro, tmp_path / "cut", resume=True, steps=4)
    assert resumed.step == 4 and losses_of(tmp_path / "cut") == losses_of(tmp_path / "whole")
    again = resumed.trainee.weights()
    assert all(torch.equal(weight, again[name]) for name, weight in whole.trainee.weights().items())


def test_gradients_of_several_passes_are_those_of_one(micro: Path, tmp_path: Path) -> None:
    one, several = tune(micro, tmp_path / "one", rows=4), tune(micro, tmp_path / "several", rows=4, micro_rows=1)
    assert losses_of(tmp_path / "one") == pytest.approx(losses_of(tmp_path / "several"), rel=1e-4)
    assert one.place == several.place


def test_a_tuned_checkpoint_has_learned_and_can_be_loaded(micro: Path, tmp_path: Path) -> None:
    run = tune(micro, tmp_path / "out", steps=24, validate_every=12, muon_lr=0.02, lr=3e-3)
    losses = losses_of(tmp_path / "out")
    assert sum(losses[-4:]) < 0.8 * sum(losses[:4])
    lines = (tmp_path / "out" / "log.jsonl").read_text()
    assert lines.count("validation") == 2
    info, learned = load(tmp_path / "out").info, run.trainee.weights()
    assert info.layout == "psm" and info.block_sizes == load(micro).info.block_sizes
    assert info.decode == load(micro).info.decode
    before = weights_of(micro)
    for name, weight in weights_of(tmp_path / "out").items():
        assert torch.equal(weight, learned[name]), name
        assert not torch.equal(weight, before[name])


@pytest.mark.usefixtures("short_template")
def test_a_checkpoint_of_whole_files_is_tuned_too(micro_dice: Path, tmp_path: Path) -> None:
    run = tune(micro_dice, tmp_path / "out", row_length=2048, cutoff=1200, steps=2, rows=1, copies=None)
    assert run.recipe.block_sizes == (4,) and run.recipe.optimiser == "adamw" and run.recipe.copies == 1
    assert isinstance(run.trainee.layout, DiceLayout) and len(losses_of(tmp_path / "out")) == 2
    learned = run.trainee.weights()
    assert set(learned) == set(weights_of(tmp_path / "out"))
    for name, weight in weights_of(tmp_path / "out").items():
        assert torch.equal(weight, learned[name]), name


def test_shards_load_as_one(micro_dice: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dice_lsp.training import trainee as module

    monkeypatch.setattr(module, "SHARD_BYTES", 20_000)
    trainee = load_trainee(micro_dice)
    save_trained(tmp_path / "out", trainee, {})
    assert len(list((tmp_path / "out").glob("*.safetensors"))) > 1
    weights = trainee.weights()
    assert all(torch.equal(weight, weights[name]) for name, weight in weights_of(tmp_path / "out").items())
    monkeypatch.setattr(module, "SHARD_BYTES", 1 << 30)
    save_trained(tmp_path / "out", trainee, {})
    assert [file.name for file in (tmp_path / "out").glob("*.safetensors*")] == ["model.safetensors"]


@pytest.mark.usefixtures("short_template")
def test_adapters_learn_and_are_merged(micro_dice: Path, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    before = weights_of(micro_dice)
    begun = load_trainee(micro_dice, lora_rank=4)
    assert all(torch.allclose(weight, before[name]) for name, weight in begun.weights().items()), (
        "it begins as what it was"
    )
    recipe = {"row_length": 2048, "cutoff": 1200, "rows": 1, "steps": 2, "lora_rank": 4, "lr": 1e-2, "copies": None}
    run = tune(micro_dice, tmp_path / "out", **recipe)
    assert all("lora_" in name for name in run.trainee.learned())
    merged = run.trainee.weights()
    for name, weight in merged.items():
        adapted = "_proj" in name
        assert torch.equal(weight, before[name]) != adapted, name
    plain = load_trainee(tmp_path / "out").network
    ids, at = torch.arange(24)[None], torch.arange(24)
    mask = torch.ones(1, 1, 24, 24, dtype=torch.bool)
    with torch.no_grad():
        assert torch.allclose(
            run.trainee.network.forward_train(ids, at, mask), plain.forward_train(ids, at, mask), atol=2e-2
        )
    resumed = tune(micro_dice, tmp_path / "out", resume=True, **{**recipe, "steps": 3})
    assert resumed.step == 3


@pytest.mark.slow
def test_two_processes_make_the_steps_of_one(micro: Path, tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    options = ["--model", str(micro), "--steps", "2", "--rows", "2", "--row-length", "512", "--cutoff", "200"]
    options += ["--log-every", "1", "--workers", "0", "--device", "cpu", "--warmup-steps", "1", "--optimiser", "adamw"]
    options += ["--validate-every", "1"]
    assert main([*options, "--out", str(tmp_path / "one")]) == 0
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = {**os.environ, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
              "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}  # fmt: skip
    command = [sys.executable, "-m", "dice_lsp", "train", "sft", *options, "--out", str(tmp_path / "two")]
    running = [
        subprocess.Popen(command, env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}, stdout=subprocess.DEVNULL)
        for rank in range(2)
    ]
    try:
        assert [process.wait(timeout=200) for process in running] == [0, 0]
    finally:
        for process in running:
            process.kill()
    assert losses_of(tmp_path / "two") == pytest.approx(losses_of(tmp_path / "one"), rel=1e-4)
    one, two = weights_of(tmp_path / "one"), weights_of(tmp_path / "two")
    assert all(torch.allclose(one[name], two[name], atol=2e-3) for name in one)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "nothing says when to end: give --steps, --minutes or --epochs"),
        (["--steps", "1", "--rows", "3", "--micro-rows", "2"], "3 rows are no multiple of 2 rows of a pass"),
        (["--steps", "1", "--block-sizes", "5"], "block size 5 is not one of"),
        (["--steps", "1", "--resume"], "there is no run to go on with: leave out --resume"),
        (["--steps", "1", "--data", "missing.jsonl"], "there is no file missing.jsonl"),
        (["--steps", "1", "--cutoff", "9000"], "longer than the 2048 positions of"),
    ],
)
def test_a_run_that_cannot_begin_says_why_in_a_sentence(
    options: list[str], said: str, micro: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["--model", str(micro), "--out", str(tmp_path / "out"), "--workers", "0", "--device", "cpu", *options])
    error = capsys.readouterr().err
    assert code == 2 and error.startswith("dice-lsp: ") and said in error and error.count("\n") == 1


def test_a_run_of_which_no_sample_fits_says_so(micro: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="no step was made: 2 rows of at most 20 tokens a sample"):
        tune(micro, tmp_path / "out", cutoff=20)


def test_a_run_is_neither_overwritten_nor_gone_on_with_as_another(micro: Path, tmp_path: Path) -> None:
    tune(micro, tmp_path / "out", steps=1)
    with pytest.raises(TrainingError, match="holds a run already: add --resume"):
        tune(micro, tmp_path / "out", steps=1)
    with pytest.raises(TrainingError, match="was begun with seed 1, not 2"):
        tune(micro, tmp_path / "out", resume=True, steps=2, seed=2)
    (tmp_path / "out" / "state.pt").write_bytes(b"no state")
    with pytest.raises(TrainingError, match="cannot be read"):
        tune(micro, tmp_path / "out", resume=True, steps=2)


def test_token_losses_in_pieces(micro: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = load_trainee(micro).network
    hidden, targets = torch.randn(7, 64), torch.arange(7)
    whole = token_losses(network, hidden, targets)
    monkeypatch.setattr(block_diffusion, "LARGE_VOCABULARY", 1)
    monkeypatch.setattr(block_diffusion, "LOGITS_AT_ONCE", 2)
    assert torch.allclose(token_losses(network, hidden, targets), whole)


def test_curves_for_tensorboard(micro: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    tune(micro, tmp_path / "out", steps=1, tensorboard=True)
    assert [file for file in (tmp_path / "out" / "tensorboard").iterdir() if file.stat().st_size > 0]
