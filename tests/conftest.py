"""Shared by all tests, each decided in one place: the gpu marker, what runs at once, and the end of a test that hangs."""

import ctypes
import faulthandler
import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any, TextIO

import pytest

# A fork waits for the threads of numpy's linear algebra, and they for it where another thread of ours is inside.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

FIRST = (
    "tests/vscode/", "tests/nvim/", "tests/clients/", "tests/stdio/", "tests/test_fill.py", "tests/test_cli_check.py",
    "tests/worker/",
)  # fmt: skip
"""What takes long is begun first, so that where tests run in several processes none of it is the last one for long."""
GRACE_S = 60.0
_stderr = pytest.StashKey[TextIO]()


def pytest_configure(config: pytest.Config) -> None:
    """Servers that tests start keep their history elsewhere than the developer's own."""
    os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="dice-lsp-state-")
    # A copy from before the output of tests is captured.
    config.stash[_stderr] = os.fdopen(os.dup(2), "w")


def pytest_unconfigure(config: pytest.Config) -> None:
    faulthandler.cancel_dump_traceback_later()
    shutil.rmtree(os.environ["XDG_STATE_HOME"], ignore_errors=True)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """End the process of a test that goes on hanging after its timeout, with the stack of each thread.

    pytest-timeout raises an exception in the test, and only once: what catches it, such as a task that ignores its
    cancellation, would hang for ever. With pytest-xdist the process is replaced and the other tests go on.
    """
    _end_later(item)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    # pytest calls it off when a test fails, and the end of a failed test is what may hang.
    _end_later(item)


def _end_later(item: pytest.Item) -> None:
    marker = item.get_closest_marker("timeout")
    seconds = float(marker.args[0] if marker is not None else item.config.getini("timeout") or 0)
    if seconds:
        faulthandler.dump_traceback_later(seconds + GRACE_S, exit=True, file=item.config.stash[_stderr])


def has_gpu() -> bool:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int(0)
    return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0


_left_out = 0


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without a GPU the gpu tests are left out, and the end of the run says so."""
    items.sort(key=lambda item: next((at for at, part in enumerate(FIRST) if item.nodeid.startswith(part)), len(FIRST)))
    if not has_gpu():
        _leave_out_gpu_tests(config, items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    # Imported here because only pytest-xdist asks for it: the tests of a card run without that.
    from tests.scheduling import Scheduling

    return Scheduling(config, log) if config.getvalue("dist") == "loadscope" else None


def _leave_out_gpu_tests(config: pytest.Config, items: list[pytest.Item]) -> None:
    global _left_out
    dropped = [item for item in items if item.get_closest_marker("gpu")]
    if dropped:
        _left_out = len(dropped)
        config.hook.pytest_deselected(items=dropped)
        items[:] = [item for item in items if not item.get_closest_marker("gpu")]
    if hasattr(config, "workeroutput"):
        # Where tests run in several processes, only those collect, and the first one speaks.
        config.workeroutput["left_out"] = _left_out


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    global _left_out
    _left_out = max(_left_out, getattr(node, "workeroutput", {}).get("left_out", 0))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _left_out:
        terminalreporter.write_line(
            f"no GPU here: {_left_out} tests marked gpu were left out, and this run proves nothing about the GPU"
        )
