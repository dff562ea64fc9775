"""Sessions as each of two editors would have them: one of its own for a test, or one that the tests of a module share."""

import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from pytest_lsp import LanguageClient, make_test_lsp_client

from tests.stdio.editor import Editor
from tests.stdio.raw import SERVER, RawClient


@pytest.fixture
async def client() -> AsyncIterator[RawClient]:
    raw = await RawClient.start()
    yield raw
    await raw.close()


@contextlib.asynccontextmanager
async def started(name: str, *folders: Any, **options: Any) -> AsyncIterator[Editor]:
    """A session with these workspace folders and options; what the test does not end itself is ended after it."""
    client: LanguageClient = make_test_lsp_client()
    await client.start_io(*SERVER)
    try:
        editor = Editor(client, name)
        await editor.start(*folders, **options)
        yield editor
    finally:
        if client._server is not None and client._server.returncode is None:
            await client.shutdown_session()
            await client.stop()


@pytest.fixture
def editor(session: Editor) -> Iterator[Editor]:
    """The session that the tests of a module share, without what earlier tests have left in it."""
    session.client.messages.clear()
    session.notifications.clear()
    session.asked_about.clear()
    yield session
    session.take_edits = session.confirms = True
    for uri in list(session.texts):
        session.close(uri)
