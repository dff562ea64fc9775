"""Sessions whose workspace folders and options a test chooses itself, as each of two editors would have them."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from pytest_lsp import LanguageClient, make_test_lsp_client

from tests.stdio.editor import Editor
from tests.stdio.raw import SERVER, RawClient

StartEditor = Callable[..., Awaitable[Editor]]


@pytest.fixture
async def client() -> AsyncIterator[RawClient]:
    raw = await RawClient.start()
    yield raw
    await raw.close()


@pytest.fixture
async def start_editor() -> AsyncIterator[StartEditor]:
    """`await start_editor(name, folder, ..., option=value)`; what a test does not end itself is ended after it."""
    open_clients: list[LanguageClient] = []

    async def start(name: str, *folders: Any, **options: Any) -> Editor:
        client: LanguageClient = make_test_lsp_client()
        await client.start_io(*SERVER)
        open_clients.append(client)
        editor = Editor(client, name)
        await editor.start(*folders, **options)
        return editor

    yield start
    for client in open_clients:
        if client._server is not None and client._server.returncode is None:
            await client.shutdown_session()
            await client.stop()
