"""Which CPU functions a program calls on the host's copies of what a kernel works on, and compares with what it left.

`layernorm_forward_cpu(out, mean, rstd, inp, weight, bias, B, T, C)` stands beside kernels with the parameters `(..., N, C)`:
no list of parameters tells that they belong together, the program's run does. It uploads `inp` to `d_inp`, calls the
function on `inp` and `out`, launches the kernel on `d_inp` and `d_out`, and compares `d_out` with `out`.

What is claimed here must hold: a function that says something else than the kernel would make a right kernel wrong. So every
array of the one must be one of the other's, and nothing but the kernel may have made the result that is compared.
"""

import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

from attrs import frozen

from dice_lsp.source.host_values import Address, Block, Number, Pointer, Term, Value, constant

Conditions = tuple[tuple[Term, bool], ...]

_COPIES = re.compile(r"(?:cuda|hip)Memcpy(?:Async)?$|cuMemcpy(?:HtoD|DtoH)\w*$")
_FILLS = re.compile(r"(?:cuda|hip|cu)Memset\w*$")
_FREES = re.compile(
    r"(?:cuda|hip|cu)(?:Mem)?Free\w*$|free$|printf$|(?:cuda|hip)(?:FuncSet|Event|Stream|Mem(?:Advise|Prefetch))\w*$"
)
_COMPARES = re.compile(r"(?i).*(?:valid|compar|verify|check|match|equal|diff|assert|close|almost|l2|error|test)")
_MAX_EVENTS = 4000
_START = constant(0)


@frozen(eq=False)
class HostArgument:
    """A parameter of a CPU function, and what the program hands over: an array of the kernel's, or a number."""

    name: str
    place: int | None
    """Which argument of the kernel holds the same array, None for a number."""
    number: Number | None
    uploaded: bool = False
    """The kernel's array is a copy of this one, and no function wrote to it between the copy and the call."""
    before: bool = False
    """The copy was made before the call, which may therefore change the array."""
    compared: bool = False
    """After the launch the program compares the two, and no other code wrote to the kernel's."""
    fresh: bool = False
    """Nothing gives the kernel's array a value before the launch, so that what it starts with cannot matter."""


@frozen(eq=False)
class HostReference:
    """A call of a CPU function that says what a launch computes."""

    function: str
    path: str
    arguments: tuple[HostArgument, ...]


@frozen(eq=False)
class _Event:
    """Something that the program does with memory."""

    kind: str
    """`launch`, `upload`, `download`, `fill`, `compare`, `other` (a library's function), `call` (one of the program's own)."""
    name: str
    memory: tuple[Hashable, ...]
    """What is touched, by place: of `upload` and `download` the target and the source; None is no memory."""
    conditions: Conditions
    path: str = ""
    parameters: tuple[str, ...] = ()
    values: tuple[Value, ...] = ()


class Traffic:
    """What one entry into the program does with memory, in its order."""

    def __init__(self) -> None:
        self.events: list[_Event] = []
        self.kinds: dict[Hashable, str] = {}
        self.kept: list[Block] = []
        """Blocks are told apart by their identity, which must not be given to another one."""

    def clear(self) -> None:
        self.events.clear()
        self.kinds.clear()
        self.kept.clear()

    def add(
        self, kind: str, name: str, values: Sequence[Value], conditions: Conditions, path: str = "",
        parameters: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        """Note a launch or a call. A program that does more than anyone follows has no references."""
        if len(self.events) > _MAX_EVENTS:
            return
        memory = tuple(self._memory(value) for value in values)
        if kind == "called":
            kind = self._kind_of(name, memory)
        if any(place is not None for place in memory):
            self.events.append(_Event(kind, name, memory, conditions, path, parameters, tuple(values)))

    def _memory(self, value: Value) -> Hashable:
        if isinstance(value, Pointer) and value.block is not None:
            key: Hashable = id(value.block)
            if key not in self.kinds:
                self.kept.append(value.block)
                self.kinds[key] = value.block.kind
            return key if value.offset == _START else (key, "within")
        if isinstance(value, Address):
            key = ("variable", value.cell)
            self.kinds[key] = "host"
            return key if value.path in ((), (0,)) else (key, "within")
        return None

    def on_device(self, memory: Hashable) -> bool:
        """Memory that kernels work on; managed memory would be the same on both sides, and says nothing."""
        return self.kinds.get(memory) == "device"

    def on_host(self, memory: Hashable) -> bool:
        return self.kinds.get(memory) == "host"

    def _kind_of(self, name: str, memory: tuple[Hashable, ...]) -> str:
        if _COPIES.match(name) and len(memory) >= 2:
            if self.on_device(memory[0]) and self.on_host(memory[1]):
                return "upload"
            if self.on_host(memory[0]) and self.on_device(memory[1]):
                return "download"
            return "other"
        if _FILLS.match(name):
            return "fill"
        return "ignored" if _FREES.match(name) else "other"

    def references(
        self, kernel: str, arguments: tuple[Value, ...] | None, conditions: Conditions, launching: frozenset[str]
    ) -> Iterator[HostReference]:
        """The calls that say what a launch computes: each array of the call is one of the launch's and the other way round."""
        mine = [
            (place, self._memory(value)) for place, value in enumerate(arguments or ()) if isinstance(value, Pointer)
        ]
        places = {memory: place for place, memory in mine}
        if len(places) != len(mine) or not mine or not all(self.on_device(memory) for memory in places):
            return
        for number, event in enumerate(self.events):
            if event.kind != "call" or event.name in launching or exclusive(event.conditions, conditions):
                continue
            if len(event.values) != len(event.parameters):
                continue  # a default says nothing of what the kernel is given
            arrays = [memory for memory in event.memory if memory is not None]
            if len(set(arrays)) != len(arrays) or len(arrays) != len(mine) or not all(map(self.on_host, arrays)):
                continue
            others = [e for e in self.events if e.kind == "call" and e.name == event.name and e is not event]
            if any(e.memory != event.memory or not _alike(e.values, event.values) for e in others):
                continue
            bound = self._bound(kernel, conditions, number, places, launching)
            if bound is not None:
                yield HostReference(event.name, event.path, bound)

    def _bound(
        self,
        kernel: str,
        conditions: Conditions,
        number: int,
        places: Mapping[Hashable, int],
        launching: frozenset[str],
    ) -> tuple[HostArgument, ...] | None:
        call = self.events[number]
        found: list[HostArgument] = []
        for name, memory, value in zip(call.parameters, call.memory, call.values, strict=True):
            if memory is None:
                if not isinstance(value, Number):
                    return None
                found.append(HostArgument(name, None, value))
                continue
            uploads = self._uploads(memory, number, conditions)
            compared = self._compared(memory, kernel, conditions, launching)
            partners = (uploads.keys() | compared) & places.keys()
            if len(partners) != 1:
                return None
            (partner,) = partners
            found.append(
                HostArgument(
                    name,
                    places[partner],
                    None,
                    partner in uploads,
                    uploads.get(partner, False),
                    partner in compared,
                    not any(event.kind in ("upload", "fill") and partner in event.memory for event in self.events),
                )
            )
        taken = [argument.place for argument in found if argument.place is not None]
        return tuple(found) if sorted(taken) == sorted(places.values()) else None

    def _uploads(self, host: Hashable, call: int, conditions: Conditions) -> dict[Hashable, bool]:
        """The device arrays that are copies of a host array and of no other, and whether they are made before the call.

        What may write to the host array between the copy and the call makes them two.
        """
        sources: dict[Hashable, set[Hashable]] = {}
        made: dict[Hashable, list[int]] = {}
        for number, event in enumerate(self.events):
            if event.kind == "upload" and not exclusive(event.conditions, conditions):
                sources.setdefault(event.memory[0], set()).add(event.memory[1])
                made.setdefault(event.memory[0], []).append(number)
        found = {}
        for device, hosts in sources.items():
            if hosts != {host}:
                continue
            first, last = min(*made[device], call), max(*made[device], call)
            between = self.events[first + 1 : last]
            if not any(self._may_write(event, host, self.events[call]) for event in between):
                found[device] = made[device][-1] < call
        return found

    def _may_write(self, event: _Event, host: Hashable, call: _Event) -> bool:
        if host not in event.memory or event.name == call.name or event.kind == "upload":
            return False
        return event.kind != "ignored" and not _COMPARES.match(event.name)

    def _compared(
        self, host: Hashable, kernel: str, conditions: Conditions, launching: frozenset[str]
    ) -> set[Hashable]:
        """The device arrays that are compared with a host array when nothing but the kernel has written to them."""
        copies: dict[Hashable, tuple[Hashable, int]] = {}
        found: set[Hashable] = set()
        for number, event in enumerate(self.events):
            if exclusive(event.conditions, conditions):
                continue
            if event.kind == "download":
                copies[event.memory[0]] = event.memory[1], number
            elif host in event.memory and self._is_comparison(event, launching):
                for memory in event.memory:
                    device, at = (memory, number) if self.on_device(memory) else copies.get(memory, (None, 0))
                    if (
                        device is not None
                        and memory != host
                        and self._made_by(device, at, kernel, conditions, launching)
                    ):
                        found.add(device)
        return found

    def _is_comparison(self, event: _Event, launching: frozenset[str]) -> bool:
        return (
            event.kind in ("call", "other")
            and _COMPARES.match(event.name) is not None
            and event.name not in launching
            and len({memory for memory in event.memory if memory is not None}) > 1
        )

    def _made_by(
        self, device: Hashable, before: int, kernel: str, conditions: Conditions, launching: frozenset[str]
    ) -> bool:
        """Whether launches of the kernel are all that wrote to an array since it was filled, uploaded or compared."""
        launched = False
        for event in reversed(self.events[:before]):
            if exclusive(event.conditions, conditions):
                continue
            if (device, "within") in event.memory:
                return False
            if device not in event.memory:
                continue
            if event.kind == "launch":
                if event.name != kernel:
                    return False
                launched = True
            elif event.kind in ("upload", "fill"):
                return launched
            elif self._is_comparison(event, launching):
                return launched
            elif event.kind == "other":
                return False
        return launched


def exclusive(one: Conditions, other: Conditions) -> bool:
    """Whether a run that comes to the one never comes to the other."""
    answers = dict(other)
    for term, answer in one:
        if answers.get(term, answer) != answer:
            return True
        if answer and term.operator == "==":
            for second, yes in other:
                if yes and second.operator == "==" and second.operands[0] == term.operands[0]:
                    left, right = term.operands[1], second.operands[1]
                    if left.is_constant and right.is_constant and left != right:
                        return True
    return False


def _alike(one: Sequence[Value], other: Sequence[Value]) -> bool:
    """Whether two calls hand over the same numbers."""
    return len(one) == len(other) and all(
        not isinstance(a, Number) or (isinstance(b, Number) and a.term == b.term)
        for a, b in zip(one, other, strict=True)
    )


def resolved(
    numbers: Mapping[str, Number],
    names: Mapping[Term, Term],
    dims: Mapping[str, Term],
    given: Sequence[Term],
    spelled: Callable[[Term], str],
) -> dict[str, str] | None:
    """The numbers of a CPU function's call by what the kernel is given; None where that does not say them.

    `N = B * T` of a kernel does not tell B and T. That every run has `N == B * T` does: what the function computes for
    `B = 1` and `T = N`, a kernel that is told N alone must compute for any other two with this product.

    Args:
        numbers: by the function's parameters.
        names: what has a name in the kernel, see `launch_sites`.
        dims: the names of the kernel's sizes, and what they are in the program.
        given: every number that the launch is given.
        spelled: a term as an expression of the kernel's names.
    """
    found: dict[str, str] = {}
    alone = {
        _plain(number.term): name
        for name, number in numbers.items()
        if _plain(number.term).operator in ("var", "free") and not {number.term, _plain(number.term)} & names.keys()
    }
    for label, product in dims.items():
        factors = _factors(product)
        if len(factors) < 2 or len(set(factors)) != len(factors) or not alone.keys() >= set(factors):
            continue
        parts = set(factors)
        if sum(bool(parts & set(term.sources())) for term in given) != 1:
            continue  # the kernel is told more of them than their product
        if any(
            parts & set(number.term.sources()) for name, number in numbers.items() if name not in map(alone.get, parts)
        ):
            continue
        found |= {alone[factor]: "1" for factor in factors[:-1]}
        found[alone[factors[-1]]] = label
    for name, number in numbers.items():
        if name in found:
            continue
        if number.floating:
            if number.value is None or any(number.term.sources()):
                return None
            found[name] = repr(float(number.value))
        elif number.term.pinned or any(_leaves(number.term, names)) or (dims and not _is_named(number.term, names)):
            # A number as written may be a size that the kernel is told under another name.
            return None
        else:
            found[name] = spelled(number.term)
    return found


def _plain(term: Term) -> Term:
    while term.operator == "alias":
        term = term.operands[0]
    return term


def _factors(term: Term) -> tuple[Term, ...]:
    """What a product of names is made of; nothing for anything else."""
    term = _plain(term)
    if term.operator == "*":
        parts = [_factors(operand) for operand in term.operands]
        return tuple(factor for part in parts for factor in part) if all(parts) else ()
    return (term,) if term.operator in ("var", "free") else ()


def _leaves(term: Term, names: Mapping[Term, Term]) -> Iterator[Term]:
    """The names of the program in a term for which the kernel has none."""
    if term in names:
        return
    if term.operator in ("var", "free"):
        yield term
    for operand in term.operands:
        yield from _leaves(operand, names)


def _is_named(term: Term, names: Mapping[Term, Term]) -> bool:
    return any(part in names for part in term.walk())
