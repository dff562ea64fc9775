"""`dice-lsp dataset` as a user calls it."""

import json
from pathlib import Path

import attrs
import pytest

from dice_lsp.__main__ import main
from dice_lsp.dataset import store
from dice_lsp.dataset.again import WHOLE_FILE
from dice_lsp.dataset.cuke import CukeRecord, read_records, whole_file_record
from dice_lsp.records import Faster
from tests.dataset.making import BODY, record

SLOW = record(BODY.replace("2.0f * x[i]", "x[i] + x[i]"), comparison=Faster(1.5, 1.4, 1.6))


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def dataset(*words: object) -> int:
    return main(["dataset", *map(str, words)])


def test_what_is_there_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert dataset("list") == 2 and "does not exist; accept fills with dice.dataset.keep" in capsys.readouterr().err
    store.add([record(licence="MIT"), SLOW])
    assert dataset("list") == 0
    shown = capsys.readouterr().out
    assert "2.50x (2.30 to 2.70)" in shown and "NVIDIA H200" in shown and "MIT" in shown and "family:7" in shown
    assert "2 records in" in shown and "1 of them verified and at least 2x as fast" in shown
    assert dataset("list", "--json") == 0
    listed = json.loads(capsys.readouterr().out)["records"]
    assert [each["kept_by_filter"] for each in listed] == [True, False]
    assert listed[0]["comparison"] == {"kind": "faster", "ratio": 2.5, "low": 2.3, "high": 2.7}


def test_only_what_passes_the_filter_goes_out(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store.add([record(), SLOW])
    out = home / "out.jsonl"
    for words, kept in (((), 1), (("--min-speedup", "1.4"), 2), (("--min-speedup", "1.41"), 1), (("--all",), 2)):
        assert dataset("export", "--to", out, *words) == 0
        assert len(read_records(out)) == kept
    assert dataset("export", "--to", out, "--min-speedup", "9") == 2
    assert "lower --min-speedup, or give --all" in capsys.readouterr().err
    assert dataset("export", "--to", out, "--min-speedup", "9", "--all") == 2


@pytest.mark.parametrize("style", ["cuke", "published", "infilling"])
def test_what_went_out_comes_in(home: Path, style: str, capsys: pytest.CaptureFixture[str]) -> None:
    store.add([record(), SLOW])
    assert dataset("export", "--to", home / "out", "--format", style, "--all") == 0
    assert dataset("import", home / "out", "--into", home / "in.jsonl", "--licence", "MIT") == 0
    assert "2 records added" in capsys.readouterr().err
    found = read_records(home / "in.jsonl")
    assert [each.licence for each in found] == ["MIT", "MIT"]
    assert [each.verified for each in found] == [style == "cuke"] * 2
    assert dataset("import", home / "out", "--into", home / "in.jsonl") == 0
    assert "0 records added" in capsys.readouterr().err and len(read_records(home / "in.jsonl")) == 2


def test_what_cannot_be_imported_is_said(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "a.json").write_text('[{"prompt": "p", "response": "hf_' + "aB3" * 12 + '"}]')
    assert dataset("import", home / "a.json") == 1
    told = capsys.readouterr().err
    assert "a.json#0 is not taken: it holds a token of Hugging Face" in told and "1 not taken" in told
    (home / "a.json").write_text('[{"prompt": "p"}, 1, {"prompt": "", "response": "r"}]')
    assert dataset("import", home / "a.json") == 1
    neither, empty, *_ = capsys.readouterr().err.splitlines()
    assert "a.json#0 is not taken: it has neither" in neither and neither.endswith("(and 1 more)")
    assert "a.json#2 is not taken: its prompt or its response is empty" in empty and "more)" not in empty
    (home / "a.json").write_text("[]")
    assert dataset("import", home / "a.json") == 2 and "holds no records" in capsys.readouterr().err


def test_what_no_longer_holds_is_moved_aside(capsys: pytest.CaptureFixture[str]) -> None:
    """With records about which the worker need not be asked; what it says is tested beside `judge_again`."""
    gone = attrs.evolve(record(), kernel="thrice")
    pair = whole_file_record("p", "r", licence="", source="a.json#0")
    assert isinstance(pair, CukeRecord)
    store.add([gone, pair])
    path = store.dataset_file()
    assert dataset("verify", "--dry-run") == 1 and read_records(path) == (gone, pair)
    assert "without --dry-run they are moved into" in capsys.readouterr().err
    assert dataset("verify") == 1
    told = capsys.readouterr().err
    assert (
        "record 1, thrice: " in told and "no such kernel" in told and "still hold: 1 of 2 records, 1 no longer" in told
    )
    assert f"1 record: {WHOLE_FILE}" in told
    assert read_records(path) == (pair,) and read_records(store.dropped_file(path)) == (gone,)
    assert dataset("verify") == 0 and "still hold: 1 of 1 record" in capsys.readouterr().err


def test_a_damaged_file_is_a_usage_error(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "a.jsonl").write_text("{}\n")
    assert dataset("verify", home / "a.jsonl") == 2 and "a.jsonl: line 1 is no CuKe record" in capsys.readouterr().err
    assert dataset("verify", home / "a.jsonl", "--jobs", 0) == 2


def test_a_records_words_are_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    store.add([attrs.evolve(record(), source="[red]a[/]", licence="[bold]")])
    assert dataset("list") == 0 and "[red]a[/]" in capsys.readouterr().out
