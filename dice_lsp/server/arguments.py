"""What our commands and requests are given. A field that is missing or of another type is answered with -32602."""

from typing import Any

from attrs import frozen
from lsprotocol import types
from pygls.exceptions import JsonRpcInvalidParams


@frozen
class FillArguments:
    """A range of one version of a document, or a kernel whose body is meant."""

    uri: str
    version: int | None = None
    range: types.Range | None = None
    kernel: str | None = None
    candidates: int | None = None
    background: bool = False
    """Answer at once, and go on."""


@frozen
class CandidateArguments:
    """A candidate by its key, or by the label that it has now. `preview` has the user look at the edit first."""

    fill: int
    candidate: str
    key: str | None = None
    preview: bool = False


@frozen
class DiscardArguments:
    """One fill, or every fill of a document."""

    fill: int | None = None
    uri: str | None = None


@frozen
class KernelArguments:
    """One kernel of a document, or all of them."""

    uri: str
    kernel: str | None = None
    background: bool = False


@frozen
class CaptureArguments:
    """A document, the command line that the user has named or seen, and one kernel if only its launches are wanted."""

    uri: str
    kernel: str | None = None
    run: str | None = None
    background: bool = False


@frozen
class CandidatesParams:
    """Parameters of the request `dice/candidates`: one fill, or every fill on offer in a document."""

    fill: int | None = None
    uri: str | None = None


@frozen
class CandidatesRequest:
    id: int | str
    params: CandidatesParams
    method: str = "dice/candidates"
    jsonrpc: str = "2.0"


@frozen
class HistoryParams:
    """Parameters of the request `dice/history`: one kernel of a document."""

    uri: str
    kernel: str


@frozen
class HistoryRequest:
    id: int | str
    params: HistoryParams
    method: str = "dice/history"
    jsonrpc: str = "2.0"


def required(arguments: Any, command: str) -> Any:
    """The argument of a command, which is never left out."""
    if arguments is None:
        raise JsonRpcInvalidParams(f"{command} needs one argument, an object; see docs/protocol.md")
    return arguments
