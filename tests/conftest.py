"""Shared by all tests: the gpu marker is decided here, in one place."""

import ctypes

import pytest


def has_gpu() -> bool:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int(0)
    return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without a GPU the gpu tests are left out, and the run's header says so."""
    if has_gpu():
        return
    dropped = [item for item in items if item.get_closest_marker("gpu")]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = [item for item in items if not item.get_closest_marker("gpu")]


def pytest_report_header(config: pytest.Config) -> str:
    return (
        "GPU: found"
        if has_gpu()
        else "GPU: none, so tests marked gpu are deselected (this run proves nothing about the GPU)"
    )
