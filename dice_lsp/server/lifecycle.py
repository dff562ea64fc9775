"""Start, settings and end of a session. The server ends with its client, whatever way that goes."""

import asyncio
import contextlib
import logging
import os
from typing import Any

from lsprotocol import types
from pygls.uris import from_fs_path

from dice_lsp.config import Settings, resolve
from dice_lsp.pipeline import CHILD_SETTINGS
from dice_lsp.server import (
    code_actions,
    code_lens,
    completion,
    diagnostics,
    hover,
    inlay_hints,
    inline_completion,
    watch,
)
from dice_lsp.server.fills import drop
from dice_lsp.server.on_save import start_check
from dice_lsp.server.session import CLIENT_PATIENCE_S, ClientSupport, DiceServer

log = logging.getLogger(__name__)
PARENT_POLL_S = 2.0


def register(server: DiceServer) -> None:
    from_options = defaults = server.settings
    header_watch = watch.register(server)

    @server.feature(types.INITIALIZE)
    def initialize(params: types.InitializeParams) -> None:
        nonlocal from_options
        server.client = ClientSupport.of(params.capabilities)
        from_options, complaints = _resolved(params.initialization_options, defaults)
        _take(from_options)
        server.complaints_waiting = complaints
        # Only what the client can show is registered: this runs before pygls computes our capabilities.
        hover.register(server)
        code_actions.register(server)
        if server.client.completion:
            completion.register(server)
        if server.client.inlay_hints:
            inlay_hints.register(server)
        if server.client.code_lenses:
            code_lens.register(server)
        if server.client.inline_completion:
            inline_completion.register(server)
        named = [folder.uri for folder in params.workspace_folders or ()]
        server.folders.set(named or [uri for uri in (params.root_uri,) if uri])
        if params.process_id is not None:
            _watch_parent(server, params.process_id)

    @server.feature(types.INITIALIZED)
    async def initialized(params: types.InitializedParams) -> None:
        server.initialized = True
        server.tell_status()
        server.complain(server.complaints_waiting)
        if server.client.configuration_registration:
            registration = types.Registration(
                id="dice-configuration",
                method=types.WORKSPACE_DID_CHANGE_CONFIGURATION,
                register_options=types.DidChangeConfigurationRegistrationOptions(section="dice"),
            )
            answer = server.client_register_capability_async(types.RegistrationParams([registration]))
            with contextlib.suppress(Exception):
                await asyncio.wait_for(answer, CLIENT_PATIENCE_S)
        await pull()
        server.ready.set()
        await server.engine.start()
        server.tell_status()

    @server.feature(types.WORKSPACE_DID_CHANGE_CONFIGURATION)
    async def did_change_configuration(params: types.DidChangeConfigurationParams) -> None:
        if server.client.configuration:
            await pull()
            return
        sent = params.settings.get("dice") if isinstance(params.settings, dict) else None
        apply_options(sent)
        await read_folders()

    @server.feature(types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS)
    async def did_change_workspace_folders(params: types.DidChangeWorkspaceFoldersParams) -> None:
        server.folders.set([folder.uri for folder in server.workspace.folders.values()])
        await pull()

    async def pull() -> None:
        """Ask the client for its `dice` section, and for that of each folder; then read what each folder itself says.

        What the client does not set stays as the initialization options have it.
        """
        if server.client.configuration:
            folders = server.folders.paths
            items = [types.ConfigurationItem(section="dice")]
            items += [types.ConfigurationItem(scope_uri=from_fs_path(path), section="dice") for path in folders]
            try:
                answer = await asyncio.wait_for(
                    server.workspace_configuration_async(types.ConfigurationParams(items)), CLIENT_PATIENCE_S
                )
            except Exception as error:
                log.info("the client has no configuration: %r", error)
            else:
                apply_options(answer[0] if answer else None)
                apply_folders(dict(zip(folders, (answer or ())[1:], strict=False)))
        await read_folders()

    def apply_options(sent: Any) -> None:
        settings, complaints = _resolved(sent, from_options)
        server.complain(complaints)
        _take(settings)

    def apply_folders(sent: dict[str, Any]) -> None:
        found = {}
        for path, options in sent.items():
            if _plain(options) is not None:
                found[path], complaints = _resolved(options, server.settings)
                server.complain(complaints)
        server.folders.take_from_client(found)

    async def read_folders() -> None:
        for path in server.folders.paths:
            await server.read_folder(path)

    def _take(settings: Settings) -> None:
        before, server.settings = server.settings, settings
        if settings == before:
            return
        if any(getattr(before, name) != getattr(settings, name) for name in CHILD_SETTINGS):
            old, server.engine = server.engine, server.new_engine()
            with contextlib.suppress(RuntimeError):  # no loop yet: nothing was started either
                server.spawn(old.close(), "close the engine of the old settings")
            server.tell_status()
        for uri in server.documents.uris():
            server.documents.read_again(uri)
        server.refresh()

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    async def did_open(params: types.DidOpenTextDocumentParams) -> None:
        given = params.text_document
        server.documents.put(given.uri, given.version, given.text)
        await server.ready.wait()
        await server.read_folder_settings(given.uri)
        if server.settings_of(given.uri).check_on_open:
            await start_check(server, given.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def did_change(params: types.DidChangeTextDocumentParams) -> None:
        document = server.workspace.get_text_document(params.text_document.uri)
        server.documents.put(document.uri, document.version or 0, document.source)

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def did_close(params: types.DidCloseTextDocumentParams) -> None:
        uri = params.text_document.uri
        server.jobs.cancel(f"fill {uri} ")
        server.cancel_at(f"check {uri}")
        server.documents.close(uri)
        for fill in server.results.fills(uri):
            drop(server, fill.number)
        server.results.forget(uri)
        diagnostics.forget(server, uri)
        server.ledger.close_document(uri)
        header_watch.forget(uri)

    @server.feature(types.SHUTDOWN)
    async def shutdown(params: None) -> None:
        await close()
        await server.protocol.end_requests()

    async def close() -> None:
        """End every job and every child. Called for `shutdown` and again, to no effect, when the process ends."""
        server.closing = True
        header_watch.close()
        await asyncio.gather(server.jobs.close(), server.engine.close(), return_exceptions=True)
        await server.ledger.close()

    server.on_stop = close


def _resolved(options: Any, base: Settings) -> tuple[Settings, tuple[str, ...]]:
    """Settings from what a client sent, whatever its shape: `{"dice": {...}}` is taken for `{...}`."""
    plain = _plain(options)
    if plain is None:
        return base, ()
    if not isinstance(plain, dict):
        return base, (f"the settings must be an object, not {type(plain).__name__}",)
    if set(plain) == {"dice"} and isinstance(plain["dice"], dict):
        plain = plain["dice"]
    return resolve(plain, base)


def _plain(value: Any) -> Any:
    """Undo the nested named tuples that pygls makes of objects without a declared type."""
    if hasattr(value, "_asdict"):
        return {key: _plain(item) for key, item in value._asdict().items()}
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _watch_parent(server: DiceServer, pid: int) -> None:
    """End when the client's process ends, even if it leaves our stdin open."""
    loop = asyncio.get_running_loop()
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        log.info("the client's process %d is not of this machine or container and is not watched", pid)
    except (AttributeError, OSError):
        server.spawn(_poll_parent(server, pid), "watch the client's process")
    else:
        loop.add_reader(descriptor, server.stop)


async def _poll_parent(server: DiceServer, pid: int) -> None:
    while True:
        await asyncio.sleep(PARENT_POLL_S)
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            server.stop()
            return
        except PermissionError:
            pass
