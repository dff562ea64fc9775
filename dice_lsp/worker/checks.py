"""The checks that a kernel must pass before it is called right: one record each, in the order of the notes they come from.

A verdict names the checks that it has really had; a refusal belongs to exactly one of them. `verify` takes names in
`without` to switch checks off, which is how a test shows that a kernel is caught by one check alone.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from attrs import frozen

HOST, GPU = "host", "gpu"
_BOTH = (HOST, GPU)


@frozen
class Check:
    """One thing that a kernel must stand."""

    number: int
    """Its place in the checklist; two checks may share one."""
    name: str
    what: str
    """What is done, in a few words for a person."""
    hazards: tuple[str, ...]
    """What a kernel that fails it is refused with: `Unsafe.hazard`, `Cheating.trick` or `wrong`; empty for one that only
    adds a note, makes the verdict `Unverified` or refuses a time."""
    backends: tuple[str, ...]
    """Where it is made: `host`, `gpu`."""


_TABLE = (
    Check(1, "seeds", "given sizes run once more with numbers that were never seen before", ("wrong",), _BOTH),
    Check(2, "cases", "every size agrees with the reference", ("wrong",), _BOTH),
    Check(
        3, "distributions",
        "large, tiny, negative, equal, cancelling, integer and zero inputs agree with the reference", ("wrong",), _BOTH,
    ),
    Check(4, "alignment", "run with buffers that begin four bytes off, where vectors are read through casts", (), _BOTH),
    Check(5, "index_ranges", "inputs of a declared range hold both of its ends", ("wrong",), _BOTH),
    Check(
        6, "unwritten", "outputs poisoned twice with different patterns, every element written",
        ("unwritten_output", "uninitialized"), _BOTH,
    ),
    Check(7, "restored", "what the reference leaves alone in a buffer is as it was before the run", ("wrong",), _BOTH),
    Check(8, "addresses", "the same results wherever the buffers lie", ("address_dependent",), _BOTH),
    Check(9, "interface", "sizes and types of all buffers are the launch's, not the kernel's", ("other_interface",), _BOTH),
    Check(10, "bounds", "guards on both sides of every buffer, one side at a time", ("out_of_bounds", "shared_memory"), _BOTH),
    Check(11, "inputs", "inputs hold the same bytes after the run", ("mutated_input",), _BOTH),
    Check(
        12, "sanitizer", "compute-sanitizer finds nothing in the small cases",
        ("out_of_bounds", "race", "uninitialized", "divergent_barrier"), (GPU,),
    ),
    Check(13, "determinism", "the same results when run again", ("non_deterministic",), (GPU,)),
    Check(14, "occupancy", "the same results with fewer blocks resident", ("occupancy_dependent",), (GPU,)),
    Check(
        15, "block_order", "the same results with threads and blocks in ascending, descending and random order",
        ("race", "divergent_barrier", "deadlock"), (HOST,),
    ),
    Check(16, "stream", "nothing runs in another stream than the tool's own", ("own_stream",), _BOTH),
    Check(
        17, "timed_outputs", "every output of the timed launches is as it was when verified",
        ("its outputs differ when it is timed",), (GPU,),
    ),
    Check(
        18, "state", "device variables hold the same after the launch as before it",
        ("stale_result",), _BOTH,
    ),
    Check(19, "code_notes", "the code is read for what a run does not show", (), _BOTH),
    Check(20, "physical_limit", "no time is shorter than the device's peaks allow", (), (GPU,)),
    Check(21, "launched", "the launch happened, ended in time and without an error", ("never_launched", "fault", "timeout"), _BOTH),
    Check(22, "fp64", "the reference is computed in double precision", ("wrong",), _BOTH),
    Check(23, "nan", "NaN goes through where the reference lets it, and comes from nowhere else", ("wrong",), _BOTH),
    Check(23, "inf", "infinities go through where the reference lets them", ("wrong",), _BOTH),
    Check(24, "exact", "integers agree to the last digit", ("wrong",), _BOTH),
    Check(25, "tensor", "the errors of all elements together have no common direction", ("wrong",), _BOTH),
    Check(26, "scaling", "no more error is allowed than sums of this length round to", ("wrong",), _BOTH),
    Check(27, "precision", "no less precise than the types of its parameters", ("precision_dropped",), _BOTH),
)  # fmt: skip

CHECKS: Mapping[str, Check] = MappingProxyType({check.name: check for check in _TABLE})
"""Every check by its name, in the order of the checklist."""

_BY_HAZARD = {hazard: check.name for check in reversed(_TABLE) for hazard in check.hazards if check.name != "sanitizer"}


def check_of(hazard: str) -> str:
    """The name of the check that a hazard belongs to; a hazard that no check names is a failed launch."""
    return _BY_HAZARD.get(hazard, "launched")


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """The names in the order of the checklist, each once."""
    wanted = set(names)
    assert wanted <= set(CHECKS), f"no such check: {sorted(wanted - set(CHECKS))}"
    return tuple(name for name in CHECKS if name in wanted)
