"""Every test of this folder needs a card. A back end that cannot be opened fails its tests: nothing is skipped."""

from collections.abc import Iterator

import pytest

from dice_lsp.worker.device import open_backend
from tests.gpu.support import KINDS, Bench


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/gpu" in str(item.path).replace("\\", "/"):
            item.add_marker(pytest.mark.gpu)


@pytest.fixture(scope="session", params=KINDS)
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    """Both back ends, each opened once."""
    backend = open_backend(request.param)
    assert not isinstance(backend, str), backend
    bench = Bench(backend)
    yield bench
    bench.close()
