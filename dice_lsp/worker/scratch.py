"""A folder for what a process makes on the way, which does not outlive that process for long.

A worker is ended by a signal that leaves it no moment to tidy up. So each folder holds a file that its owner keeps locked:
the lock ends with the process, however that ends (flock(2)), and whoever makes the next folder removes those that nobody
holds any more.
"""

import fcntl
import logging
import os
import shutil
import stat
import tempfile
import time
from pathlib import Path

log = logging.getLogger(__name__)

PREFIX = "dice-"
HELD = ".held"
YOUNG_S = 60.0
"""A folder this young may have an owner who has not locked it yet."""
MOST_AT_ONCE = 8
"""Somebody waits for the new folder; the next one goes on with what is left."""


class Scratch:
    """A fresh folder of this process, under the system's place for temporary files if no other is named.

    Raises `OSError` without room.
    """

    def __init__(self, purpose: str, root: Path | None = None) -> None:
        """`purpose` is a word for the folder's name, so that a person who finds it knows whose it is."""
        self.path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{purpose}-", dir=root))
        self._held = open(self.path / HELD, "wb")
        fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        remove_abandoned(self.path.parent)

    def close(self) -> None:
        """Remove the folder and all in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._held.close()


def remove_abandoned(root: Path, young_s: float = YOUNG_S, most: int = MOST_AT_ONCE) -> int:
    """Remove folders of this user in `root` whose owner has ended, `most` of them. Returns how many that were."""
    removed = 0
    try:
        found = [Path(entry.path) for entry in os.scandir(root) if entry.name.startswith(PREFIX)]
    except OSError:
        return 0
    for folder in found:
        if removed == most:
            break
        try:
            about = os.lstat(folder)
            if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid():
                continue
            with open(folder / HELD, "rb") as held:
                if time.time() - os.fstat(held.fileno()).st_mtime < young_s:
                    continue
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Held while it goes, so that two who tidy up do not meet inside.
                shutil.rmtree(folder, ignore_errors=True)
                removed += 1
        except OSError:
            continue  # it has an owner, or is none of ours, or is gone already
    if removed:
        log.info("removed %d folders of processes that have ended", removed)
    return removed
