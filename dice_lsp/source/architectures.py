"""For which architecture a project's kernels are compiled, given what it builds for, the GPU, and the compiler.

`sm_90a` runs on compute capability 9.0 alone and `sm_100f` on its family; code for `sm_80` runs on every 8.x that is not
older (CUDA C++ Programming Guide, "Compute Capabilities", "Architecture-Specific Features").
"""

import re
from collections.abc import Collection, Sequence

from attrs import frozen

_NAME = re.compile(r"sm_(\d{2,3})([af]?)$")
_ANY = frozenset({"native", "all", "all-major"})


@frozen
class Choice:
    """An architecture, and one sentence where it is not one that the project asks for."""

    arch: str
    """`auto` leaves it to the compiler's default."""
    note: str = ""


def choose(asked: Sequence[str], device: str, supported: Collection[int], compiler: str) -> Choice:
    """The architecture to compile for.

    `asked` is what the project builds for; `device` the GPU's, `auto` without one; `supported` what the compiler takes,
    by number, empty where that is not known; `compiler` its name, for the sentence.
    """
    names = [match for name in asked if (match := _NAME.match(name)) is not None]
    if not names or any(name in _ANY for name in asked):
        return Choice(device)
    here = _NAME.match(device)
    listed = _listed([match[0] for match in names])
    if here is not None:
        same = [match for match in names if match[1] == here[1]]
        if same:
            # Code for the exact GPU may use what the plain one does not have, so it is taken where it is asked for.
            return Choice(max(same, key=lambda match: "fa".find(match[2]) if match[2] else -1)[0])
        return Choice(
            device, f"the project builds for {listed} and the GPU is {device}: kernels are compiled for {device}"
        )
    known = [match for match in names if not supported or int(match[1]) in supported]
    if known:
        return Choice(max(known, key=lambda match: (int(match[1]), match[2]))[0])
    newest = max(int(match[1]) for match in names)
    above = sorted(number for number in supported if number > newest)
    taken = f"sm_{above[0] if above else max(supported)}"
    why = "no longer takes" if above and above[0] == min(supported) else "does not take"
    return Choice(taken, f"the project builds for {listed}, which {compiler} {why}: kernels are compiled for {taken}")


def _listed(names: Sequence[str]) -> str:
    unique = list(dict.fromkeys(names))
    return unique[0] if len(unique) == 1 else ", ".join(unique[:-1]) + f" and {unique[-1]}"
