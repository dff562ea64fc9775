"""A kernel that the program launches in several instantiations: each is a build of its own, and all must be right.

Only the spec's own instantiation is timed. The others are judged by specs of their own, made here, and what is found out
about each is put together into one verdict.
"""

from collections.abc import Sequence

from attrs import evolve, frozen

from dice_lsp.records import LaunchCase, LaunchSpec, Origin, Unsafe, Unverified, Verdict, Verified, Wrong
from dice_lsp.worker.cases import same_template, spec_of

MOST = 3
"""How many instantiations beside the spec's own are compiled and judged."""


@frozen
class Instantiation:
    """Another instantiation of the kernel, with all of its launches in one spec."""

    words: str
    """What tells it from the spec's own: `T=double, N=4`."""
    spec: LaunchSpec


def others(spec: LaunchSpec) -> tuple[tuple[Instantiation, ...], tuple[str, ...]]:
    """The other instantiations that the program launches, and a sentence where there are more than are judged."""
    groups: dict[tuple[tuple[str, str], ...], list[LaunchCase]] = {}
    for case in spec.cases:
        if not same_template(case, spec):
            named = {**spec.template, **case.template}
            groups.setdefault(tuple(sorted(named.items())), []).append(case)
    found = []
    for template, cases in list(groups.items())[:MOST]:
        words = ", ".join(f"{name}={value}" for name, value in template if spec.template.get(name) != value)
        found.append(Instantiation(words, _spec(spec, cases)))
    left = len(groups) - len(found)
    note = (f"{left} more {'instantiation is' if left == 1 else 'instantiations are'} not checked",) if left > 0 else ()
    return tuple(found), note


def _spec(spec: LaunchSpec, cases: Sequence[LaunchCase]) -> LaunchSpec:
    """A spec of some launches alone; what was not recorded comes first, since it can be drawn anew."""
    first = next((case for case in cases if case.captured is None), cases[0])
    own = evolve(spec_of(spec, first), cases=tuple(case for case in cases if case is not first))
    if first.captured is None:
        return own
    return evolve(own, buffers=(), scalars={}, origins={**spec.origins, "grid": Origin.CAPTURED})


def merged(own: Verdict, judged: Sequence[tuple[Instantiation, Verdict]], notes: Sequence[str] = ()) -> Verdict:
    """One verdict: the first refusal of any instantiation, else the own one's with what the others add."""
    if not isinstance(own, (Verified, Unverified)):
        return own
    told = list(notes)
    for other, verdict in judged:
        if isinstance(verdict, (Wrong, Unsafe)):
            return evolve(verdict, case=f"{verdict.case}, {other.words}")
        if not isinstance(verdict, (Verified, Unverified)):
            return verdict
        if isinstance(verdict, Unverified):
            told.append(f"{other.words} is not verified: {verdict.reason}")
    if not isinstance(own, Verified):
        return own
    right = [verdict for _, verdict in judged if isinstance(verdict, Verified)]
    told += [note for verdict in right for note in verdict.notes]
    return evolve(
        own,
        cases=own.cases + sum(verdict.cases for verdict in right),
        max_error=max([own.max_error, *(verdict.max_error for verdict in right)]),
        notes=tuple(dict.fromkeys((*own.notes, *told))),
    )
