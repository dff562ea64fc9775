"""A progress bar in the client, where it has one, whose cancel button reaches the job."""

import asyncio
import logging
import uuid
from collections.abc import Callable
from types import TracebackType
from typing import Any

from lsprotocol import types

from dice_lsp.server.session import CLIENT_PATIENCE_S, DiceServer

log = logging.getLogger(__name__)


class WorkDone:
    """`async with WorkDone(...) as bar: bar.report(30, "denoising")`. Never makes the work wait for the client.

    The client must have agreed to the token before it may be used, so what is reported until then is kept, the newest
    only.
    """

    def __init__(self, server: DiceServer, title: str, on_cancel: Callable[[], Any]) -> None:
        self._server = server
        self._title = title
        self._on_cancel = on_cancel
        self._token = str(uuid.uuid4())
        self._open = False
        self._last: types.WorkDoneProgressReport | None = None
        self._end: types.WorkDoneProgressEnd | None = None
        if server.client.work_done_progress:
            server.spawn(self._create(), f"progress of {title}")

    async def __aenter__(self) -> "WorkDone":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end("" if kind is None else "cancelled" if kind.__name__ == "CancelledError" else "failed")

    async def _create(self) -> None:
        progress = self._server.work_done_progress
        try:
            await asyncio.wait_for(progress.create_async(self._token), CLIENT_PATIENCE_S)
        except Exception as error:
            log.info("the client shows no progress: %r", error)
            return
        progress.tokens[self._token].add_done_callback(lambda token: token.cancelled() and self._on_cancel())
        begin = types.WorkDoneProgressBegin(title=self._title, cancellable=True, percentage=0)
        progress.begin(self._token, begin)
        self._open = True
        if self._last is not None:
            progress.report(self._token, self._last)
        if self._end is not None:
            self._finish(self._end)

    def report(self, percentage: int, message: str) -> None:
        self._last = types.WorkDoneProgressReport(
            message=message, percentage=max(0, min(100, percentage)), cancellable=True
        )
        if self._open:
            self._server.work_done_progress.report(self._token, self._last)

    def end(self, message: str) -> None:
        """The last word; only the first one counts."""
        if self._end is None:
            self._end = types.WorkDoneProgressEnd(message=message or None)
            if self._open:
                self._finish(self._end)

    def _finish(self, end: types.WorkDoneProgressEnd) -> None:
        self._open = False
        self._server.work_done_progress.end(self._token, end)
        self._server.work_done_progress.tokens.pop(self._token, None)
