"""What an interpreter of host code asks of libraries whose types and functions it does not know."""

from typing import Protocol

from dice_lsp.source import torch_host
from dice_lsp.source.host_machine import Machine
from dice_lsp.source.host_values import Value


class Library(Protocol):
    """What the interpreter is told of a library's types and functions. Every answer may be None: not mine."""

    def parameter(self, machine: Machine, type_text: str, name: str) -> Value | None:
        """The value of a parameter of an entry function."""
        ...

    def construct(self, machine: Machine, type_text: str, arguments: tuple[Value, ...]) -> Value | None:
        """An object of a type of the library."""
        ...

    def call(
        self, machine: Machine, name: str, template: tuple[str, ...], arguments: tuple[Value, ...]
    ) -> Value | None:
        """A call of a function, its name as written."""
        ...

    def method(
        self, machine: Machine, value: Value, name: str, template: tuple[str, ...], arguments: tuple[Value, ...]
    ) -> Value | None:
        """A call of an object's method."""
        ...


LIBRARIES: tuple[Library, ...] = (torch_host.LIBRARY,)
