"""What a client sends, in our terms: positions become code points, URIs become paths."""

from lsprotocol import types
from pygls.uris import to_fs_path

from dice_lsp.source.positions import Encoding, LineIndex


def offset(index: LineIndex, position: types.Position, encoding: Encoding) -> int:
    """The code point at a client's position; a position outside the text is clamped into it."""
    return index.offset(position.line, position.character, encoding)


def span(index: LineIndex, given: types.Range, encoding: Encoding) -> tuple[int, int]:
    """The code points of a client's range, in order even when the range is backwards."""
    start, end = offset(index, given.start, encoding), offset(index, given.end, encoding)
    return min(start, end), max(start, end)


def file_path(uri: str) -> str | None:
    """The path behind a URI that names a file, else None."""
    return to_fs_path(uri) if uri.startswith("file:") else None


def path_of(uri: str) -> str:
    """The file behind a URI; for a document that is no file, a name in the present folder, where includes are looked up."""
    return to_fs_path(uri) or "untitled.cu"
