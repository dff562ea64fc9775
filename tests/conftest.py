"""Shared by all tests: the gpu marker is decided here, in one place."""

import ctypes
import os
import shutil
import tempfile
from typing import Any

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Servers that tests start keep their history elsewhere than the developer's own."""
    os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="dice-lsp-state-")


def pytest_unconfigure(config: pytest.Config) -> None:
    shutil.rmtree(os.environ["XDG_STATE_HOME"], ignore_errors=True)


def has_gpu() -> bool:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int(0)
    return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0


_left_out = 0


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without a GPU the gpu tests are left out, and the end of the run says so."""
    global _left_out
    if has_gpu():
        return
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
