"""The workspace folders of a session, and the settings of each.

What the client says of a folder and what the folder's own `.dice/settings.toml` says come on top of the session's
settings. The file wins: a client that sends all of its defaults must not undo what a team has agreed on.
"""

from collections.abc import Mapping, Sequence

import attrs

from dice_lsp.config import Settings
from dice_lsp.server import from_lsp
from dice_lsp.workspace import WorkspaceFile, folder_of, workspace_file, workspace_settings


@attrs.define
class _Folder:
    from_client: Settings | None = None
    settings: Settings | None = None
    base: Settings | None = None
    """What `settings` was made from."""


class Folders:
    """Paths of folders; all lookups are by the URI of a document."""

    def __init__(self) -> None:
        self._folders: dict[str, _Folder] = {}

    @property
    def paths(self) -> Sequence[str]:
        return tuple(self._folders)

    def set(self, uris: Sequence[str]) -> None:
        """The folders that the client has open now; what is known of those that stay is kept."""
        paths = [path for uri in uris if (path := from_lsp.file_path(uri)) is not None]
        self._folders = {path: self._folders.get(path, _Folder()) for path in paths}

    def of(self, uri: str) -> str | None:
        """The folder that holds a document."""
        path = from_lsp.file_path(uri)
        return None if path is None else folder_of(path, self._folders)

    def file(self, uri: str) -> WorkspaceFile | None:
        """Where a document's history is kept; None for one that is no file."""
        path = from_lsp.file_path(uri)
        return None if path is None else workspace_file(path, folder_of(path, self._folders))

    def settings(self, uri: str, session: Settings) -> Settings:
        """The settings that hold for a document, as they were last read."""
        path = self.of(uri)
        folder = None if path is None else self._folders[path]
        return session if folder is None else folder.settings or folder.from_client or session

    def take_from_client(self, settings: Mapping[str, Settings]) -> None:
        """What the client says of each folder, by path."""
        for path, folder in self._folders.items():
            folder.from_client = settings.get(path)

    def read(self, path: str, session: Settings) -> tuple[Settings, tuple[str, ...]]:
        """The settings of a folder with what its file says now. Reads that file, so it runs beside the loop."""
        folder = self._folders.get(path)
        return workspace_settings(path, session if folder is None else folder.from_client or session)

    def put(self, path: str, settings: Settings) -> bool:
        """Keep what `read` has found; returns whether that is news."""
        folder = self._folders.get(path)
        if folder is None:
            return False
        before, folder.settings = folder.settings or folder.from_client, settings
        return before != settings
