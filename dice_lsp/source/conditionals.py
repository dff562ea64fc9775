"""Which lines of a text the preprocessor leaves in: `#if` and its kin (ISO C 6.10.1), as far as names and numbers decide."""

import re
from collections.abc import Callable, Container

CONDITION = re.compile(r"#\s*(ifdef|ifndef|if|elif|else|endif)\b(.*)", re.DOTALL)
"""A conditional line: its word, and the rest."""
_DEFINED = re.compile(r"\bdefined\s*(?:\(\s*(\w+)\s*\)|(\w+))")


def with_defined(condition: str, defined: Container[str]) -> str:
    """The condition with each `defined NAME` replaced by 1 or 0."""
    return _DEFINED.sub(lambda match: str(int((match[1] or match[2]) in defined)), condition)


class Conditionals:
    """The conditionals that are open at one place of a text. An `#else` or `#endif` without an `#if` says nothing."""

    def __init__(self) -> None:
        self._open: list[tuple[bool, bool]] = []
        """Of each: whether this branch is read, whether any branch was."""

    @property
    def is_read(self) -> bool:
        """Whether what stands here is compiled."""
        return all(read for read, _ in self._open)

    def step(self, word: str, rest: str, defined: Container[str], holds: Callable[[str], bool]) -> None:
        """Go on to the next conditional line; `holds` decides about an expression."""
        if word in ("ifdef", "ifndef"):
            name = re.match(r"\s*(\w+)", rest)
            read = (name is not None and name[1] in defined) == (word == "ifdef")
            self._open.append((read, read))
        elif word == "if":
            read = holds(rest)
            self._open.append((read, read))
        elif self._open and word == "endif":
            self._open.pop()
        elif self._open:
            _, before = self._open[-1]
            read = not before and (word == "else" or holds(rest))
            self._open[-1] = read, before or read
