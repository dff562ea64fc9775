"""Which licence a file is under, as far as it or its project says so in words that leave no doubt."""

from pathlib import Path

from dice_lsp.dataset.cuke import licence_of
from dice_lsp.workspace import workspace_root

_NAMES = ("LICENSE", "LICENSE.txt", "LICENSE.md", "LICENCE", "LICENCE.txt", "LICENCE.md", "COPYING", "COPYING.txt")
_MAX_BYTES = 1 << 16
_WORDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Apache-2.0", ("apache license", "version 2.0, january 2004")),
    ("MPL-2.0", ("mozilla public license", "version 2.0")),
    ("MIT", ("permission is hereby granted, free of charge", "the software is provided \"as is\"", "substantial portions")),
    ("BSD-3-Clause", ("redistribution and use in source and binary forms", "neither the name", "binary form must reproduce")),
    ("BSD-2-Clause", ("redistribution and use in source and binary forms", "binary form must reproduce")),
)  # fmt: skip
"""SPDX name -> words that all stand in its text. The first that fits is taken."""


def project_licence(path: str, text: str) -> str:
    """The SPDX expression for a file: what it declares itself, else the licence of its project; empty if neither is clear.

    Reads files, so never on a loop.
    """
    own = licence_of(text)
    if own:
        return own
    folder = Path(path).parent
    root = workspace_root(folder)
    for above in (folder, *folder.parents):
        for name in _NAMES:
            if (above / name).is_file():
                return _spdx(above / name)
        if above == root:
            break
    return ""


def _spdx(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            words = " ".join(opened.read(_MAX_BYTES).decode("utf-8", "replace").lower().split())
    except OSError:
        return ""
    return next((name for name, said in _WORDS if all(each in words for each in said)), "")
