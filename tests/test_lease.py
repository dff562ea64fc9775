"""The lock of a card, among real processes: one at a time, in turn, bounded, gone with its holder, and safe in /tmp."""

import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from dice_lsp.lease import InUse, Lease

UUID = "GPU-12345678-aaaa-bbbb-cccc-1234567890ab"
HOLDER = """
import sys, time
from dice_lsp.lease import Lease
lease = Lease(sys.argv[1], sys.argv[2])
with lease.hold("timing saxpy", wait_s=30):
    print("held", flush=True)
    sys.stdin.readline()
print("gone", flush=True)
sys.stdin.readline()
"""
STEPPER = """
import sys, time
from dice_lsp.lease import Lease
lease = Lease(sys.argv[1], sys.argv[2])
steps = open(sys.argv[3], "ab", buffering=0)
end = time.monotonic() + 60
with lease.hold("a fill", wait_s=30):
    while time.monotonic() < end:
        lease.give_way("a fill", wait_s=30, before=lambda: None)
        time.sleep(0.01)
        steps.write(b"%f\\n" % time.monotonic())
"""


class Process:
    def __init__(self, text: str, *arguments: str) -> None:
        self.child = subprocess.Popen(
            [sys.executable, "-c", text, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def says(self) -> str:
        assert self.child.stdout is not None
        return self.child.stdout.readline().strip()

    def go_on(self) -> None:
        assert self.child.stdin is not None
        self.child.stdin.write("\n")
        self.child.stdin.flush()


@pytest.fixture
def start():
    started: list[Process] = []

    def begin(text: str, *arguments: str) -> Process:
        started.append(Process(text, *arguments))
        return started[-1]

    yield begin
    for process in started:
        process.child.kill()
        process.child.communicate()


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "leases")


def test_one_at_a_time_and_the_other_is_told_who(start, folder: str) -> None:
    holder = start(HOLDER, UUID, folder)
    assert holder.says() == "held"
    lease = Lease(UUID, folder)
    told: list[str] = []
    with pytest.raises(InUse) as refused:
        lease.acquire("verifying sum", wait_s=0.6, on_wait=told.append)
    words = f"the GPU is in use by process {holder.child.pid} (dice-lsp, timing saxpy)"
    assert str(refused.value) == f"{words}: try again" and not lease.held
    assert told == [f"waiting for the GPU, which is in use by process {holder.child.pid} (dice-lsp, timing saxpy)"]
    with Lease("GPU-another", folder).hold("timing", wait_s=0):
        pass
    holder.go_on()
    assert holder.says() == "gone"
    with lease.hold("verifying sum", wait_s=10):
        assert lease.held and Lease(UUID.lower().removeprefix("gpu-"), folder).holder().purpose == "verifying sum"
    assert not lease.held and lease.holder() is None


def test_it_ends_with_its_holder(start, folder: str) -> None:
    holder = start(HOLDER, UUID, folder)
    assert holder.says() == "held"
    holder.child.send_signal(signal.SIGKILL)
    holder.child.wait()
    with Lease(UUID, folder).hold("verifying sum", wait_s=5):
        pass


def test_a_wait_can_be_cancelled(start, folder: str) -> None:
    holder = start(HOLDER, UUID, folder)
    assert holder.says() == "held"
    asked = 0

    def check() -> None:
        nonlocal asked
        asked += 1
        if asked == 3:
            raise KeyboardInterrupt

    lease = Lease(UUID, folder)
    with pytest.raises(KeyboardInterrupt):
        lease.acquire("verifying sum", wait_s=60, check=check)
    assert not lease.held
    holder.go_on()
    assert holder.says() == "gone"
    lease.acquire("verifying sum", wait_s=5)


def test_a_model_takes_no_step_while_a_timing_runs_and_goes_on_afterwards(start, folder: str, tmp_path: Path) -> None:
    file = tmp_path / "steps"
    file.touch()

    def steps() -> list[float]:
        return [float(line) for line in file.read_text().splitlines()]

    def wait_for(count: int) -> None:
        end = time.monotonic() + 30
        while len(steps()) < count:
            assert time.monotonic() < end, "the model does not go on"
            time.sleep(0.01)

    start(STEPPER, UUID, folder, str(file))
    wait_for(5)
    lease = Lease(UUID, folder)
    for _ in range(3):
        before = len(steps())
        with lease.hold("timing saxpy", wait_s=30):
            began, waited = time.monotonic(), len(steps()) - before
            time.sleep(0.2)
            ended = time.monotonic()
        wait_for(len(steps()) + 3)
        assert not [step for step in steps() if began < step < ended]
        # One step that had begun, and a few more for a busy machine: not the 6000 of the model's whole time.
        assert waited < 50


def test_two_that_step_and_one_that_times_all_get_on(start, folder: str, tmp_path: Path) -> None:
    files = [tmp_path / "one", tmp_path / "two"]
    for file in files:
        file.touch()
        start(STEPPER, UUID, folder, str(file))
    lease = Lease(UUID, folder)
    for _ in range(5):
        with lease.hold("timing", wait_s=30):
            pass
    end = time.monotonic() + 30
    while not all(len(file.read_bytes().splitlines()) > 5 for file in files):
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_removed_file_is_made_anew_by_who_waited(start, folder: str) -> None:
    holder = start(HOLDER, UUID, folder)
    assert holder.says() == "held"
    lease = Lease(UUID, folder)
    waiter = threading.Thread(target=lambda: lease.acquire("timing", wait_s=30))
    waiter.start()
    time.sleep(0.1)
    (file,) = Path(folder).glob("*.lock")
    file.unlink()
    holder.go_on()
    waiter.join()
    assert lease.held and file.exists()
    with pytest.raises(InUse):
        Lease(UUID, folder).acquire("verifying", wait_s=0)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_folder_and_its_files_are_everybodys(folder: str) -> None:
    before = os.umask(0o077)
    try:
        with Lease(UUID, folder).hold("timing", wait_s=0):
            pass
    finally:
        os.umask(before)
    assert mode(Path(folder)) == 0o1777
    assert {mode(file) for file in Path(folder).iterdir()} == {0o666}


@pytest.mark.parametrize("planted", ["link to a file", "link to nothing", "second name of a file", "pipe", "folder"])
def test_nothing_is_written_through_what_somebody_planted(folder: str, tmp_path: Path, planted: str) -> None:
    with Lease(UUID, folder).hold("timing", wait_s=0):
        pass
    (file,) = Path(folder).glob("*.lock")
    file.unlink()
    precious = tmp_path / "precious"
    precious.write_text("mine")
    precious.chmod(0o666)
    if planted == "link to a file":
        file.symlink_to(precious)
    elif planted == "link to nothing":
        file.symlink_to(tmp_path / "made")
    elif planted == "second name of a file":
        os.link(precious, file)
    elif planted == "pipe":
        os.mkfifo(file, 0o666)
    else:
        file.mkdir()
    with Lease(UUID, folder).hold("timing", wait_s=0):
        assert precious.read_text() == "mine" and not (tmp_path / "made").exists()
    assert precious.read_text() == "mine"


def test_a_folder_that_is_a_link_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    monkeypatch.setenv("DICE_LSP_LEASES", str(link))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with Lease(UUID).hold("timing", wait_s=0):
        assert not list(real.iterdir()) and len(list((tmp_path / "dice-lsp").iterdir())) == 2
        with pytest.raises(InUse):
            Lease(UUID).acquire("verifying", wait_s=0)


def test_what_others_write_there_is_shown_only_as_plain_words(folder: str) -> None:
    lease = Lease(UUID, folder)
    with lease.hold("timing", wait_s=0):
        (file,) = Path(folder).glob("*.lock")
        file.write_text("12\n\x1b[31mroot\n`rm`\x07" + "x" * 500 + "\n")
        holder = lease.holder()
        assert holder is not None and holder.pid == 12 and len(str(holder)) < 250
        assert "\x1b" not in str(holder) and "\x07" not in str(holder) and "`" not in str(holder)
        file.write_text("nonsense")
        assert lease.holder() is None
