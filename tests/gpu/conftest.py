"""Every test of this folder needs a card. A back end that cannot be opened fails its tests: nothing is skipped."""

import os
from collections.abc import Iterator

import pytest

from tests.gpu.support import KINDS, Bench


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/gpu" in str(item.path).replace("\\", "/"):
            item.add_marker(pytest.mark.gpu)


@pytest.fixture(scope="session", params=KINDS)
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    """Both back ends, each opened once."""
    bench = Bench(request.param)
    yield bench
    pid = bench.backend.runner_pid
    bench.close()
    assert pid is None or not os.path.exists(f"/proc/{pid}"), "the runner outlived its worker"
