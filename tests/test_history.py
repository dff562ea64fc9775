"""The store of measurements and baselines: what it keeps, and that nothing on a disk can stop a check."""

import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
from contextlib import closing
from pathlib import Path

import attrs
import pytest

from dice_lsp import history as store
from dice_lsp.baseline import encode
from dice_lsp.hint import BEING_CHECKED
from dice_lsp.history import FILE, KEPT_PER_KERNEL, VERSION, History, measurement_of
from dice_lsp.records import CompileFailed, Faster, NotCompiled, Unverified, Wrong
from tests.reports import BUILD, EVIDENCE, TIMING, baseline, measurement, report

ROOT = Path(__file__).parent.parent


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "workspace" / ".dice"


@pytest.fixture
def opened(folder):
    """Opens stores, and closes them when the test is over."""
    folder.parent.mkdir()
    stores = []

    def open_store(where=folder):
        stores.append(History.open(where))
        return stores[-1]

    yield open_store
    for history in stores:
        history.close()


def moved_aside(folder):
    """The files that were moved aside, without what SQLite keeps beside each."""
    return [path for path in folder.glob(f"{FILE}.broken-*") if not path.name.endswith(("-wal", "-shm", "-journal"))]


def raw(folder):
    return closing(sqlite3.connect(folder / FILE, isolation_level=None))


# What it keeps


def test_measurements_and_baselines_outlive_the_process(opened, folder):
    history = opened()
    assert history.problem is None and history.put("src/a.cu", "saxpy", measurement())
    untimed = measurement(1, median_us=None, q1_us=None, q3_us=None, cold=None, ratio=None, verdict="wrong")
    assert history.put("src/a.cu", "saxpy", untimed)
    assert history.accept("src/a.cu", "saxpy", baseline())
    history.close()
    again = opened()
    assert again.last("src/a.cu", "saxpy") == (measurement(), untimed)
    assert again.baseline("src/a.cu", "saxpy") == baseline()
    assert again.problem is None


def test_git_passes_the_folder_over_and_what_a_user_wrote_there_stays(opened, folder):
    opened().put("a.cu", "k", measurement())
    assert (folder / ".gitignore").read_text() == "*\n"
    (folder / ".gitignore").write_text("*\n!baselines.json\n")
    opened()
    assert (folder / ".gitignore").read_text() == "*\n!baselines.json\n"


def test_the_newest_come_oldest_first(opened):
    history = opened()
    for number in range(40):
        device = "host" if number % 2 else "NVIDIA H200"
        assert history.put("a.cu", "k", measurement(number, device=device))
    history.put("a.cu", "other", measurement(99))
    history.put("b.cu", "k", measurement(98))
    assert [m.key for m in history.last("a.cu", "k")] == [f"key{n}" for n in range(10, 40)]
    assert [m.key for m in history.last("a.cu", "k", limit=2)] == ["key38", "key39"]
    assert [m.key for m in history.last("a.cu", "k", device="host", limit=3)] == ["key35", "key37", "key39"]
    assert history.last("a.cu", "nobody") == ()


def test_baselines_of_a_file(opened):
    history = opened()
    first = baseline("first")
    assert history.accept("a.cu", "k", first) and history.accept("a.cu", "ours::k", baseline())
    assert history.accept("b.cu", "k", baseline())
    assert history.baselines("a.cu") == {"k": first, "ours::k": baseline()}
    assert history.accept("a.cu", "k", baseline())
    assert history.baseline("a.cu", "k") == baseline()
    assert history.forget_baseline("a.cu", "k") and not history.forget_baseline("a.cu", "k")
    assert history.baseline("a.cu", "k") is None and history.baseline("b.cu", "k") == baseline()


def test_a_kernel_keeps_its_newest_500(opened, folder):
    history = opened()
    history.put("a.cu", "other", measurement())
    with raw(folder) as database:
        for number in range(KEPT_PER_KERNEL + 20):
            database.execute(
                f"INSERT INTO measurement (file, kernel, {store._COLUMNS}) SELECT 'a.cu', 'k', {store._COLUMNS}"
                " FROM measurement WHERE kernel = 'other'"
            )
    history.put("a.cu", "k", measurement(7))
    found = history.last("a.cu", "k", limit=10_000)
    assert len(found) == KEPT_PER_KERNEL and found[-1].key == "key7"
    assert len(history.last("a.cu", "other")) == 1


def test_names_that_are_no_text_and_names_that_are_sql(opened):
    history = opened()
    for file, kernel in (("a\udce9.cu", "k"), ("核/😀.cu", "kernel'; DROP TABLE measurement; --"), ("a\0b.cu", "k")):
        assert history.put(file, kernel, measurement(case="n=\udce9"))
        assert len(history.last(file, kernel)) == 1
        assert history.accept(file, kernel, baseline()) and history.baseline(file, kernel) == baseline()
        assert history.forget_baseline(file, kernel)
    assert history.problem is None


def test_any_thread_may_call(opened):
    history = opened()

    def work(number):
        for step in range(5):
            history.put("a.cu", f"k{number}", measurement(step))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(len(history.last("a.cu", f"k{number}")) == 5 for number in range(4)) and history.problem is None


# Several processes

WRITER = """
import sys
from pathlib import Path
from dice_lsp.history import History
from tests.reports import baseline, measurement
print("ready", flush=True)
sys.stdin.readline()
history = History.open(Path(sys.argv[1]))
for number in range(int(sys.argv[3])):
    assert history.put("a.cu", sys.argv[2], measurement(number)), history.problem
    assert history.put("a.cu", "both", measurement(number)), history.problem
    assert history.accept("a.cu", sys.argv[2], baseline()), history.problem
assert history.problem is None, history.problem
history.close()
"""


def writer(folder, kernel, times):
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder), kernel, str(times)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def run_together(*children):
    """Let all begin at the same moment, when each has imported what it needs."""
    for child in children:
        assert child.stdout.readline() == "ready\n", child.stderr.read()
    for child in children:
        child.stdin.write("go\n")
        child.stdin.flush()
    ends = [child.communicate(timeout=120) for child in children]
    assert [child.returncode for child in children] == [0] * len(children), ends


def test_two_processes_write_at_once_and_lose_nothing(opened, folder):
    # Both make the new file, and both write the same kernel's rows beside their own.
    run_together(writer(folder, "left", 40), writer(folder, "right", 40))
    history = opened()
    assert len(history.last("a.cu", "left", limit=999)) == len(history.last("a.cu", "right", limit=999)) == 40
    assert len(history.last("a.cu", "both", limit=999)) == 80
    assert set(history.baselines("a.cu")) == {"left", "right"} and history.problem is None


def test_two_processes_find_the_same_broken_file(opened, folder):
    folder.mkdir()
    (folder / FILE).write_bytes(b"this is no database" * 1000)
    run_together(writer(folder, "left", 5), writer(folder, "right", 5))
    assert len(opened().last("a.cu", "both")) == 10
    (aside,) = moved_aside(folder)
    assert aside.read_bytes() == b"this is no database" * 1000


def test_a_process_that_dies_while_it_writes_harms_nothing(opened, folder):
    history = opened()
    history.put("a.cu", "k", measurement())
    child = writer(folder, "k", 100_000)
    assert child.stdin is not None
    child.stdin.write("go\n")
    child.stdin.flush()
    while len(history.last("a.cu", "k", limit=5)) < 5:
        assert child.poll() is None, child.communicate()
    child.kill()
    child.communicate()
    assert history.put("a.cu", "k", measurement(7)) and history.last("a.cu", "k")[-1].key == "key7"
    assert opened().problem is None and not list(folder.glob("*.broken-*"))


def test_a_writer_that_is_in_the_way_too_long_is_a_sentence(opened, folder, monkeypatch):
    monkeypatch.setattr(store, "BUSY_S", 0.05)
    history = opened()
    with raw(folder) as other:
        other.execute("BEGIN IMMEDIATE")
        assert not history.put("a.cu", "k", measurement())
        assert history.problem == "a measurement was not kept: database is locked"
        assert history.last("a.cu", "k") == ()  # reading goes on beside a writer
    assert history.put("a.cu", "k", measurement()) and history.problem is None


# Places that cannot be used


def works_in_memory(history):
    assert history.put("a.cu", "k", measurement()) and history.last("a.cu", "k") == (measurement(),)
    assert history.accept("a.cu", "k", baseline()) and history.baseline("a.cu", "k") == baseline()
    assert history.problem is not None and not history.problem.endswith(".") and "\n" not in history.problem
    return history.problem


def test_without_a_folder_it_lives_in_memory(opened):
    assert "no folder is open" in works_in_memory(opened(None))


def test_a_folder_that_cannot_be_made(opened, tmp_path):
    # The kernel's own file systems refuse new folders even to root.
    assert "cannot be written" in works_in_memory(opened(Path("/proc/.dice")))
    (tmp_path / "file").write_text("")
    assert "cannot be written" in works_in_memory(opened(tmp_path / "file"))
    assert "cannot be written" in works_in_memory(opened(tmp_path / "file" / ".dice"))
    assert (tmp_path / "file").read_text() == ""


@pytest.fixture
def nobody():
    """Makes the test an ordinary user, since root may write everywhere."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    yield
    os.seteuid(before)


@pytest.fixture
def open_to_all():
    """A workspace that every user may enter, with a measurement by its owner."""
    # TMPDIR may lie in a folder that only its owner may enter.
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        workspace = Path(name)
        workspace.chmod(0o755)
        history = History.open(workspace / ".dice")
        assert history.put("a.cu", "k", measurement(7))
        history.close()
        yield workspace
        (workspace / ".dice").chmod(0o755)


def test_a_folder_that_may_only_be_read(open_to_all, opened, request):
    (open_to_all / ".dice").chmod(0o555)
    request.getfixturevalue("nobody")
    assert "cannot be written (permission denied)" in works_in_memory(opened(open_to_all / ".dice"))


def test_a_file_that_may_only_be_read(open_to_all, opened, request):
    (open_to_all / ".dice" / FILE).chmod(0o444)
    (open_to_all / ".dice").chmod(0o777)
    request.getfixturevalue("nobody")
    assert "cannot be written (permission denied)" in works_in_memory(opened(open_to_all / ".dice"))
    assert not list((open_to_all / ".dice").glob("*.broken-*"))


def test_a_full_disk_is_a_sentence_and_what_is_there_can_be_read(opened):
    history = opened()
    assert history.put("a.cu", "k", measurement())
    pages = history._database.execute("PRAGMA page_count").fetchone()[0]
    history._database.execute(f"PRAGMA max_page_count = {pages}")
    large = attrs.evolve(baseline(), build=attrs.evolve(BUILD, cubin=os.urandom(200_000)))
    assert not history.accept("a.cu", "k", large)
    assert history.problem == "the baseline was not kept: database or disk is full"
    assert history.last("a.cu", "k") == (measurement(),) and history.problem is None
    assert history.baseline("a.cu", "k") is None
    history._database.execute("PRAGMA max_page_count = 1000000")
    assert history.accept("a.cu", "k", large) and history.baseline("a.cu", "k") == large


def test_a_link_that_leads_out_of_the_workspace_is_not_followed(opened, folder, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    folder.symlink_to(elsewhere)
    assert "leads out of the workspace" in works_in_memory(opened())
    folder.unlink()
    folder.symlink_to(tmp_path / "not there yet")
    assert "leads out of the workspace" in works_in_memory(opened())
    assert not list(elsewhere.iterdir()) and not (tmp_path / "not there yet").exists()


def test_a_link_within_the_workspace_is_the_users_choice(opened, folder):
    (folder.parent / "state").mkdir()
    folder.symlink_to("state")
    history = opened()
    assert history.problem is None and history.put("a.cu", "k", measurement())
    assert (folder.parent / "state" / FILE).is_file()


@pytest.mark.parametrize("name", [FILE, f"{FILE}-wal", f"{FILE}-journal"])
def test_files_that_are_links_are_left_alone(opened, folder, tmp_path, name):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    folder.mkdir()
    (folder / name).symlink_to(victim)
    assert "not a plain file" in works_in_memory(opened())
    assert victim.read_text() == "precious" and (folder / name).is_symlink()


def test_links_of_the_other_names_are_not_followed_either(opened, folder, tmp_path):
    victim = tmp_path / "victim"
    folder.mkdir()
    (folder / ".gitignore").symlink_to(victim)
    first = opened()
    assert first.problem is None and not victim.exists()
    first.close()
    victim.write_text("precious")
    (folder / "history.lock").symlink_to(victim)
    (folder / FILE).write_bytes(b"broken" * 1000)
    works_in_memory(opened())
    assert victim.read_text() == "precious"


def test_a_pipe_in_the_place_of_the_file_blocks_nobody(opened, folder):
    folder.mkdir()
    os.mkfifo(folder / FILE)
    assert "not a plain file" in works_in_memory(opened())


# Files that cannot be used


def test_a_broken_file_is_moved_aside_and_a_new_one_begun(opened, folder):
    folder.mkdir()
    for content in (b"not a database" * 500, b"SQLite format 3\0" + b"\xff" * 5000):
        (folder / FILE).write_bytes(content)
        history = opened()
        assert history.problem is None and history.put("a.cu", "k", measurement())
        history.close()
        assert content in [path.read_bytes() for path in folder.glob(f"{FILE}.broken-*")]
        assert opened().last("a.cu", "k") == (measurement(),)
    assert len(moved_aside(folder)) == 2


def test_an_empty_file_is_a_new_one(opened, folder):
    folder.mkdir()
    (folder / FILE).touch()
    assert opened().put("a.cu", "k", measurement()) and not list(folder.glob("*.broken-*"))


def test_a_file_that_breaks_while_it_is_open(opened, folder):
    history = opened()
    history.put("a.cu", "k", measurement())
    history._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with open(folder / FILE, "r+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        file.write(b"\xff" * size)
    other = opened()  # as another process would find it
    assert other.problem is None and other.put("a.cu", "k", measurement(1))
    assert history.put("a.cu", "k", measurement(2)), history.problem
    assert [m.key for m in history.last("a.cu", "k")] == ["key1", "key2"] == [m.key for m in other.last("a.cu", "k")]
    assert len(moved_aside(folder)) == 1


@pytest.mark.parametrize(
    "script",
    [
        "CREATE TABLE recipes (name TEXT)",
        f"PRAGMA application_id = {store._APPLICATION_ID}; PRAGMA user_version = 1; CREATE TABLE baseline (file TEXT)",
    ],
)
def test_a_database_of_somebody_else_is_moved_aside(opened, folder, script):
    folder.mkdir()
    with raw(folder) as database:
        database.executescript(script)
    assert opened().put("a.cu", "k", measurement())
    (aside,) = moved_aside(folder)
    with closing(sqlite3.connect(aside)) as database:
        assert database.execute("SELECT count(*) FROM sqlite_schema").fetchone() == (1,)


def test_a_trigger_that_came_with_a_workspace_never_runs(opened, folder):
    first = opened()
    first.put("a.cu", "k", measurement())
    first.close()
    with raw(folder) as database:
        database.execute("CREATE TRIGGER t AFTER INSERT ON measurement BEGIN DELETE FROM baseline; END")
    history = opened()
    assert history.accept("a.cu", "k", baseline()) and history.put("a.cu", "k", measurement())
    assert history.baseline("a.cu", "k") == baseline()
    assert len(moved_aside(folder)) == 1


def test_a_file_of_a_newer_version_is_left_alone(opened, folder):
    first = opened()
    first.put("a.cu", "k", measurement())
    first.close()
    with raw(folder) as database:
        database.execute("PRAGMA journal_mode = DELETE")
        database.execute(f"PRAGMA user_version = {VERSION + 1}")
    before = (folder / FILE).read_bytes()
    assert f"newer dice-lsp (version {VERSION + 1}, this one reads {VERSION})" in works_in_memory(opened())
    assert (folder / FILE).read_bytes() == before and not list(folder.glob("*.broken-*"))


def test_a_file_that_becomes_newer_while_it_is_open_is_left_alone(opened, folder):
    history = opened()
    history.put("a.cu", "k", measurement())
    with raw(folder) as database:
        database.execute(f"PRAGMA user_version = {VERSION + 1}")
    assert history.put("a.cu", "k", measurement(1)) and "newer dice-lsp" in (history.problem or "")
    with raw(folder) as database:
        assert database.execute("SELECT count(*) FROM measurement").fetchone() == (1,)


def test_a_folder_that_is_removed_is_made_again(opened, folder):
    history = opened()
    history.put("a.cu", "k", measurement())
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    assert history.put("a.cu", "k", measurement(1)) and history.problem is None
    assert [m.key for m in opened().last("a.cu", "k")] == ["key1"]


# Rows that cannot be used


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("registers", "many"), ("registers", 1.5), ("registers", None), ("occupancy", "full"), ("cold", 2), ("cold", "yes"),
        ("verdict", 3), ('"when"', b"bytes"), ("median_us", "12"), ("device", None),
    ],
)  # fmt: skip
def test_a_measurement_that_cannot_be_read_is_left_out(opened, folder, caplog, column, value):
    history = opened()
    for number in range(3):
        history.put("a.cu", "k", measurement(number))
    with raw(folder) as database:
        database.execute(f"UPDATE measurement SET {column} = ? WHERE \"key\" = 'key1'", (value,))
    assert [m.key for m in history.last("a.cu", "k")] == ["key0", "key2"] and history.problem is None
    assert "a measurement of k in a.cu is left out" in caplog.text


@pytest.mark.parametrize("record", ["", "{}", "[]", "not json", b"\xff\xfe", 7, "[" * 100_000])
def test_a_baseline_that_cannot_be_read_is_left_out(opened, folder, caplog, record):
    history = opened()
    history.accept("a.cu", "good", baseline())
    history.accept("a.cu", "k", baseline())
    with raw(folder) as database:
        database.execute("UPDATE baseline SET record = ? WHERE kernel = 'k'", (record,))
    assert history.baselines("a.cu") == {"good": baseline()} and history.baseline("a.cu", "k") is None
    assert "the baseline of k in a.cu is left out" in caplog.text
    assert history.accept("a.cu", "k", baseline()) and history.baseline("a.cu", "k") == baseline()


def test_a_baseline_with_a_wrong_field_is_left_out(opened, folder):
    history = opened()
    history.accept("a.cu", "k", baseline())
    data = encode(baseline())
    data["build"]["registers"] = "40"
    with raw(folder) as database:
        database.execute("UPDATE baseline SET record = ?", (json.dumps(data),))
    assert history.baseline("a.cu", "k") is None


def test_after_closing_it_says_so(opened):
    history = opened()
    history.close()
    history.close()
    assert not history.put("a.cu", "k", measurement()) and history.last("a.cu", "k") == ()
    assert history.problem == "the history was not read: the history is closed"


# What becomes a measurement


def test_a_report_becomes_a_measurement():
    made = measurement_of(report(timing=TIMING, comparison=Faster(1.42, 1.41, 1.43)))
    assert made is not None
    assert (made.median_us, made.q1_us, made.q3_us, made.cold, made.case) == (12.3, 12.2, 12.4, True, "n=1048576")
    assert (made.comparison, made.ratio, made.verdict, made.registers) == ("faster", 1.42, "verified", 40)
    assert (made.device, made.key, made.launch_key) == ("NVIDIA H200", "key", baseline().launch_key)
    wrong = measurement_of(report(verdict=Wrong("z", 1, "0", "1", "n=1", 1, 1)))
    assert wrong is not None and wrong.verdict == "wrong" and wrong.median_us is None and wrong.ratio is None


@pytest.mark.parametrize(
    "parts",
    [
        {"build": CompileFailed("nvrtc", ())},
        {"build": NotCompiled("no compiler is there")},
        {"verdict": Unverified(BEING_CHECKED)},
        {"evidence": attrs.evolve(EVIDENCE, key="")},
    ],
)
def test_what_was_not_measured_is_no_measurement(parts):
    assert measurement_of(report(**parts)) is None
