"""What a text may ask of the project around it. The object that answers reads files; nothing in this room does."""

from collections.abc import Mapping
from typing import Protocol


class ProjectTexts(Protocol):
    """The files around a text. Answers are bounded and cached; a file that cannot be read is None. All paths are absolute."""

    def __hash__(self) -> int: ...

    @property
    def generation(self) -> int:
        """Grows when an answer that was given would be another one now."""
        ...

    @property
    def defines(self) -> Mapping[str, str]:
        """The macros without parameters that the build defines."""
        ...

    def text(self, path: str) -> str | None:
        """The text of a file."""
        ...

    def resolve(self, path: str, name: str, quoted: bool) -> str | None:
        """The project's file that `#include "name"` (or `<name>`) in the file `path` means; None for one of the system."""
        ...

    def includers(self, path: str) -> tuple[str, ...]:
        """The project's source files that include the file `path`, directly or through other files, nearest first."""
        ...

    def siblings(self, path: str) -> tuple[str, ...]:
        """The other C, C++ and CUDA source files of its folder."""
        ...


class OverlaidTexts:
    """A project in which one file has another text than on the disk: the one that is being looked at."""

    def __init__(self, project: ProjectTexts, path: str, text: str) -> None:
        self._project, self._path, self._text = project, path, text

    @property
    def generation(self) -> int:
        return self._project.generation

    @property
    def defines(self) -> Mapping[str, str]:
        return self._project.defines

    def text(self, path: str) -> str | None:
        return self._text if path == self._path else self._project.text(path)

    def resolve(self, path: str, name: str, quoted: bool) -> str | None:
        return self._project.resolve(path, name, quoted)

    def includers(self, path: str) -> tuple[str, ...]:
        return self._project.includers(path)

    def siblings(self, path: str) -> tuple[str, ...]:
        return self._project.siblings(path)
