"""The user's file of records: several may add to it at once, and nothing of it gets lost."""

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs
import pytest

from dice_lsp.dataset import store
from dice_lsp.dataset.again import Outcome
from dice_lsp.dataset.cuke import CukeError, read_records, to_line
from tests.dataset.making import record

ONE = record()
TWO = attrs.evolve(ONE, identity="two")
THREE = attrs.evolve(ONE, identity="three")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "cuke.jsonl"


def test_it_is_the_users_alone_and_holds_each_once(path: Path) -> None:
    assert store.add([ONE, TWO, ONE], path) == store.Added(2, 1, 2)
    assert store.add([TWO, THREE], path) == store.Added(1, 1, 3)
    assert read_records(path) == (ONE, TWO, THREE)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_many_add_at_once(path: Path) -> None:
    each = [attrs.evolve(ONE, identity=f"{number % 20}") for number in range(60)]
    with ThreadPoolExecutor(8) as threads:
        added = list(threads.map(lambda item: store.add([item], path).new, each))
    assert sum(added) == 20 and len(read_records(path)) == 20


@pytest.mark.parametrize("cut", [1, 40, -1])
def test_a_line_that_was_cut_off_goes_with_the_next_addition(path: Path, cut: int) -> None:
    store.add([ONE], path)
    with path.open("a") as file:
        file.write(to_line(TWO)[:cut])
    store.add([THREE], path)
    assert read_records(path) == (ONE, THREE)


def test_a_last_line_without_its_end_stays(path: Path) -> None:
    path.parent.mkdir()
    path.write_text(to_line(ONE))
    store.add([TWO], path)
    assert read_records(path) == (ONE, TWO)


def test_a_damaged_line_in_the_middle_stops_everything_and_is_named(path: Path) -> None:
    store.add([ONE], path)
    path.write_text("{}\n" + path.read_text())
    before = path.read_bytes()
    for work in (lambda: store.add([TWO], path), lambda: store.settle(path, {ONE: Outcome(ONE, dropped="no")})):
        with pytest.raises(CukeError, match="line 1"):
            work()
    assert path.read_bytes() == before and not store.dropped_file(path).exists()


def test_what_no_longer_holds_goes_aside_with_the_reason_and_news_stays(path: Path) -> None:
    store.add([ONE, TWO, THREE], path)
    late = attrs.evolve(ONE, identity="late")
    better = attrs.evolve(TWO, licence="MIT")
    store.add([late], path)
    store.settle(path, {ONE: Outcome(ONE, dropped="it is wrong"), TWO: Outcome(better), THREE: Outcome(THREE)})
    assert read_records(path) == (better, THREE, late)
    aside = store.dropped_file(path)
    assert read_records(aside) == (ONE,) and '"dropped": "it is wrong"' in aside.read_text()
    store.settle(path, {THREE: Outcome(THREE, dropped="slower")})
    assert read_records(aside) == (ONE, THREE)


def test_what_a_later_check_refutes_goes_aside_too(path: Path) -> None:
    assert ONE.evidence is not None
    other = attrs.evolve(TWO, evidence=attrs.evolve(ONE.evidence, key="other"))
    store.refute("key", "race", path)
    assert not path.parent.exists(), "nothing is made for what is not there"
    store.add([ONE, other], path)
    store.refute("unknown", "race", path)
    assert read_records(path) == (ONE, other) and not store.dropped_file(path).exists()
    store.refute("key", "race", path)
    assert read_records(path) == (other,) and read_records(store.dropped_file(path)) == (ONE,)


def test_a_link_is_not_followed(path: Path) -> None:
    path.parent.mkdir()
    (path.parent / "other").write_text("")
    path.symlink_to(path.parent / "other")
    with pytest.raises(CukeError, match="cannot be written"):
        store.add([ONE], path)
    assert (path.parent / "other").read_text() == ""


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CukeError, match="make its folder writable"):
        store.add([ONE], tmp_path / "file" / "cuke.jsonl")


def test_it_lies_in_the_users_data_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    store.add([ONE])
    assert store.dataset_file() == tmp_path / "dice-lsp" / "dataset" / "cuke.jsonl"
    assert read_records(store.dataset_file()) == (ONE,)
