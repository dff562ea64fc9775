"""What a text may ask of the project around it. The object that answers reads files; nothing in this room does."""

from typing import Protocol


class ProjectTexts(Protocol):
    """The files around a text. Answers are bounded and cached; a path that cannot be read is None. All paths are absolute."""

    def text(self, path: str) -> str | None:
        """The text of a file."""
        ...

    def resolve(self, path: str, name: str, quoted: bool) -> str | None:
        """The project's file that `#include "name"` (or `<name>`) in the file `path` means; None for one of the system."""
        ...

    def includers(self, path: str) -> tuple[str, ...]:
        """The project's files that include the file `path`, directly or through other files."""
        ...

    def siblings(self, path: str) -> tuple[str, ...]:
        """The other C, C++ and CUDA files of its folder."""
        ...
