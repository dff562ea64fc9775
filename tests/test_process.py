"""Children: limits, deadlines, frames, cancel, death. Real processes throughout."""

import asyncio
import json
import os
import signal
import sys
import textwrap
import threading
import time
from pathlib import Path

import psutil
import pytest

from dice_lsp import process
from dice_lsp.process import Cancelled, ChildDied, ChildError, FramedChild, Limits

CHILD = textwrap.dedent(
    """
    import os, sys, time, subprocess
    from dice_lsp.process import serve
    def echo(params, job):
        job.emit("seen", params)
        print("a library prints to stdout")
        return params
    def sleep(params, job):
        for _ in range(int(params * 100)):
            job.check(); time.sleep(0.01)
        return "slept"
    def stuck(params, job):
        time.sleep(params)
    def grandchild(params, job):
        return subprocess.Popen(["sleep", "60"]).pid
    serve({"echo": echo, "sleep": sleep, "stuck": stuck, "grandchild": grandchild,
           "fail": lambda p, j: 1 // 0, "die": lambda p, j: os._exit(3)})
    """
)


@pytest.fixture
async def child():
    made = FramedChild([sys.executable, "-c", CHILD], name="test child", grace_s=0.5)
    yield made
    await made.close()


def test_a_short_child_returns_what_it_printed():
    done = process.run([sys.executable, "-c", "import sys; print(sys.stdin.read()[::-1])"], deadline_s=20, stdin=b"abc")
    assert (done.returncode, done.stdout, done.timed_out) == (0, b"cba\n", False)


def test_a_child_past_its_deadline_is_killed_with_its_children():
    script = (
        "import subprocess, sys, time; p = subprocess.Popen(['sleep', '60']); print(p.pid, flush=True); time.sleep(60)"
    )
    started = time.monotonic()
    done = process.run([sys.executable, "-c", script], deadline_s=1.0)
    assert done.timed_out and time.monotonic() - started < 250
    deadline = time.monotonic() + 50
    while psutil.pid_exists(int(done.stdout)) and psutil.Process(int(done.stdout)).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "the grandchild lives on"
        time.sleep(0.02)


def test_limits_hold():
    hungry = process.run(
        [sys.executable, "-c", "x = bytearray(2 << 30)"], deadline_s=20, limits=Limits(address_space_bytes=512 << 20)
    )
    assert hungry.returncode != 0 and b"MemoryError" in hungry.stderr
    writer = process.run(
        [sys.executable, "-c", "import tempfile; f = tempfile.TemporaryFile(); f.write(b'x' * 100000); f.flush()"],
        deadline_s=20,
        limits=Limits(file_bytes=1000),
    )
    assert writer.returncode != 0


def test_a_cancel_ends_a_short_child():
    cancelled = threading.Event()
    threading.Timer(0.2, cancelled.set).start()
    started = time.monotonic()
    with pytest.raises(Cancelled):
        process.run(["sleep", "30"], deadline_s=30, cancelled=cancelled)
    assert time.monotonic() - started < 25


def test_a_missing_program_is_an_error():
    with pytest.raises(FileNotFoundError):
        process.run(["no-such-program-anywhere"], deadline_s=1)


async def test_a_call_has_events_and_one_answer(child):
    events = []
    answer = await child.call("echo", {"text": "é\u2028✅"}, on_event=lambda name, data: events.append((name, data)))
    assert answer == {"text": "é\u2028✅"} and events == [("seen", answer)]
    assert await child.call("echo", "x" * 3_000_000) == "x" * 3_000_000


async def test_an_error_and_an_unknown_operation_are_answers(child):
    with pytest.raises(ChildError, match="ZeroDivisionError"):
        await child.call("fail", None)
    with pytest.raises(ChildError, match="unknown operation 'nonsense'"):
        await child.call("nonsense", None)
    assert await child.call("echo", 1) == 1


async def test_a_cancelled_call_leaves_the_child_alive(child):
    await child.call("echo", 0)
    pid = child.pid
    call = asyncio.create_task(child.call("sleep", 200))
    await asyncio.sleep(0.1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert await asyncio.wait_for(child.call("echo", 2), 60) == 2
    assert child.pid == pid and child.starts == 1


async def test_a_child_that_ignores_a_cancel_is_killed_and_replaced(child):
    await child.call("echo", 0)
    call = asyncio.create_task(child.call("stuck", 600))
    await asyncio.sleep(0.1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await asyncio.sleep(1.0)
    assert await asyncio.wait_for(child.call("echo", 3), 60) == 3
    assert child.starts == 2


async def test_a_queued_call_can_be_cancelled_before_it_runs(child):
    first = asyncio.create_task(child.call("sleep", 0.3))
    second = asyncio.create_task(child.call("sleep", 200))
    await asyncio.sleep(0.05)
    second.cancel()
    assert await first == "slept"
    assert await asyncio.wait_for(child.call("echo", 4), 60) == 4


async def test_death_ends_the_waiting_calls_and_the_next_call_starts_anew(child):
    waiting = asyncio.create_task(child.call("echo", 0))
    await waiting
    with pytest.raises(ChildDied, match="code 3"):
        await child.call("die", None)
    assert await child.call("echo", 5) == 5


async def test_a_deadline_kills_the_child(child):
    await child.call("echo", 0)
    with pytest.raises(TimeoutError, match="did not answer stuck within"):
        await child.call("stuck", 60, deadline_s=0.3)
    assert await child.call("echo", 6) == 6


async def test_close_leaves_nothing(child):
    grandchild = await child.call("grandchild", None)
    pid = child.pid
    await child.close()
    await asyncio.sleep(0.1)
    for gone in (pid, grandchild):
        assert not psutil.pid_exists(gone) or psutil.Process(gone).status() == psutil.STATUS_ZOMBIE


def test_a_child_goes_with_its_parent():
    script = textwrap.dedent(
        f"""
        import asyncio, os, sys
        from dice_lsp.process import FramedChild
        async def main():
            child = FramedChild([sys.executable, "-c", {CHILD!r}], name="orphan")
            await child.call("echo", 0)
            print(child.pid, flush=True)
            os._exit(0)
        asyncio.run(main())
        """
    )
    done = process.run([sys.executable, "-c", script], deadline_s=60, env=dict(os.environ))
    pid = int(done.stdout)
    deadline = time.monotonic() + 50
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "the child outlived its parent"
        time.sleep(0.02)


def test_our_own_children_run_this_copy_of_the_package_installed_or_not(tmp_path):
    """A checkout that nobody installed works from its root, and a folder's own modules are never imported."""
    copy, stranger = tmp_path / "checkout", tmp_path / "stranger"
    (copy / "dice_lsp").mkdir(parents=True)
    stranger.mkdir()
    for name in ("__init__.py", "process.py"):
        (copy / "dice_lsp" / name).write_text((Path(process.__file__).parent / name).read_text())
    (copy / "dice_lsp" / "probe.py").write_text("import sys, json; print(__name__, __file__, sys.argv[1:])")
    (stranger / "json.py").write_text("raise SystemExit('a module of the folder was imported')")
    ask = "import json; from dice_lsp.process import module_command; print(json.dumps(module_command('dice_lsp.probe', 'a')))"
    command = json.loads(process.run([sys.executable, "-c", ask], deadline_s=30, cwd=str(copy)).stdout)
    done = process.run(command, deadline_s=30, cwd=str(stranger))
    assert done.stdout.decode().split() == ["__main__", str(copy / "dice_lsp" / "probe.py"), "['a']"], done.stderr


def test_an_attended_program_gives_its_output_and_its_code():
    heard = bytearray()
    code = process.attended(["sh", "-c", "echo $A; exit 3"], env={"A": "b"}, cwd="/", on_output=heard.extend)
    assert code == 3 and heard == b"b\n"


def test_an_attended_program_ends_at_its_deadline_with_all_that_it_started():
    heard = bytearray()
    started = time.monotonic()
    code = process.attended(
        ["sh", "-c", "sleep 60 & echo $!; sleep 60"],
        env=dict(os.environ),
        cwd="/",
        on_output=heard.extend,
        deadline_s=0.5,
    )
    assert code == -signal.SIGKILL and time.monotonic() - started < 30
    child = int(heard)
    while psutil.pid_exists(child) and psutil.Process(child).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)  # a test that hangs has failed
