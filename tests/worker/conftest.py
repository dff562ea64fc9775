"""A compiler and the host's back end, one of each for a module of tests."""

from collections.abc import Iterator

import pytest

from dice_lsp.worker.compile import Compiler
from dice_lsp.worker.host import HostBackend


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    compiler = Compiler()
    yield compiler
    compiler.close()


@pytest.fixture(scope="module")
def host() -> Iterator[HostBackend]:
    host = HostBackend()
    yield host
    host.close()
