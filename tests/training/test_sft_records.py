"""What fine-tuning learns from: records of verified fills, published exchanges, and kernels that are known twice."""

from pathlib import Path

import pytest

from dice_lsp.dataset.cuke import write_records
from dice_lsp.dataset.exchange import whole_file_record
from dice_lsp.diffusion.checkpoint import load
from dice_lsp.diffusion.prompt import layout_for
from dice_lsp.records import Wrong
from dice_lsp.training.sft import main
from dice_lsp.training.sft_data import (
    PLAIN_SHARE,
    Conversation,
    Exchange,
    PairSource,
    Part,
    parts_of,
    read_exchanges,
    sample_of,
    source_named,
)
from dice_lsp.training.trainee import TrainingError
from tests.dataset.making import BODY, REFERENCE, record
from tests.training.micro import losses_of, write_micro, write_micro_dice


def written(path: Path, *records) -> Path:  # type: ignore[no-untyped-def]
    write_records(path, records)
    return path


def test_a_record_asks_as_at_inference_and_answers_with_its_fill(tmp_path: Path) -> None:
    file = written(tmp_path / "records.jsonl", record())
    (exchange,) = read_exchanges(file)
    assert isinstance(exchange, Exchange) and exchange.middle == BODY
    assert exchange.request.reference_text == REFERENCE.strip() and exchange.request.middle == ""
    asked = exchange.request.file_prefix + exchange.request.kernel_prefix + exchange.request.kernel_suffix
    assert "2.0f" not in asked, "the answer is no part of the question"


def test_what_was_refused_is_never_learned(tmp_path: Path) -> None:
    wrong = record("\n    y[0] = 1;\n", verdict=Wrong("y", 1, "0", "2", "n=1000", 999, 1000))
    file = written(tmp_path / "records.jsonl", record(), wrong)
    assert [exchange.middle for exchange in read_exchanges(file)] == [BODY]  # type: ignore[union-attr]
    alone = written(tmp_path / "wrong.jsonl", wrong)
    with pytest.raises(TrainingError, match="holds no records that were not refused"):
        source_named(str(alone), 1)


def test_published_files_are_learned_as_they_were_published(tmp_path: Path) -> None:
    exchange = whole_file_record("Make it fast.", "```python\nimport torch\n```", licence="", source="a.json#0")
    file = written(tmp_path / "records.jsonl", exchange)
    assert read_exchanges(file) == (Conversation("Make it fast.", "```python\nimport torch\n```"),)


def test_tuning_on_records_ends_after_its_epochs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bodies = [BODY, BODY.replace("if (i < n)", "if (n > i)"), BODY.replace("2.0f * x[i]", "x[i] * 2.0f")]
    file = written(tmp_path / "records.jsonl", *(record(body) for body in bodies))
    model = write_micro(tmp_path / "micro")
    options = ["--model", str(model), "--out", str(tmp_path / "out"), "--data", str(file), "--epochs", "4", "--rows", "1",
               "--row-length", "512", "--copies", "1", "--workers", "0", "--device", "cpu", "--lr", "3e-3"]  # fmt: skip
    assert main(options) == 0
    losses = losses_of(tmp_path / "out")
    # Twelve samples, a few in each row.
    assert 2 <= len(losses) <= 12
    assert "next: dice-lsp infill FILE --model" in capsys.readouterr().out
    file.write_text(file.read_text().replace("2.0f * x[i];", "2.0f * x[i] ;"))
    assert main([*options, "--resume"]) == 2
    assert "was begun with sha256 of" in capsys.readouterr().err


def test_a_damaged_file_of_records_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "records.jsonl"
    file.write_text('{"kernel": 1}\n')
    model = write_micro(tmp_path / "micro")
    assert main(["--model", str(model), "--out", str(tmp_path / "out"), "--data", str(file), "--steps", "1"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("dice-lsp: ") and error.count("\n") == 1 and "1" in error


def test_pairs_are_mostly_fast_and_fit_both_layouts(tmp_path: Path) -> None:
    from dice_lsp.training.families import make_pair

    source = PairSource(3)
    plain = 0
    layouts = []
    for folder in (write_micro(tmp_path / "micro"), write_micro_dice(tmp_path / "dice")):
        loaded = load(folder)
        layouts.append(layout_for(loaded.info, loaded.tokenizer))
    for number in range(24):
        exchange, pair = source.exchange(number), make_pair((3 << 32) + number)
        assert exchange.middle in (pair.plain, *(fast.body for fast in pair.fast))
        plain += exchange.middle == pair.plain
        assert exchange.request.middle == "" and pair.kernel in exchange.request.kernel_prefix
        assert all(sample_of(layout, exchange) is not None for layout in layouts)
    assert plain < 24 * 2 * PLAIN_SHARE


def test_sources_share_a_chunk() -> None:
    parts = parts_of([("generated", 3.0), ("pairs", 1.0)], lambda name: source_named(name, 1), 100)
    assert [part.count for part in parts] == [75, 25] and all(isinstance(part, Part) for part in parts)
    assert len({type(part.source) for part in parts}) == 2
