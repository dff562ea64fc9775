"""What a function does with its pointer parameters: roles, extents, the launch it is written for.

Everything here is sound or silent. A subscript is a polynomial over index variables whose ranges are known from guards,
loops and the launch; the extent is the polynomial's largest value plus one. What is not understood is reported in one
sentence, and nothing is guessed from it. `source.body` reads the body.
"""

import re
from collections.abc import Callable, Iterable, Mapping

from attrs import evolve, frozen

from dice_lsp.records import Parameter, Role
from dice_lsp.source.expressions import ExpressionError, evaluate
from dice_lsp.source.polynomials import ONE, ZERO, Polynomial, at_least, name, number, parsed, product, rebuilt

INTEGERS = {
    "int", "unsigned int", "long", "unsigned long", "long long", "unsigned long long", "short", "unsigned short", "size_t",
    "int32_t", "uint32_t", "int64_t", "uint64_t", "int16_t", "uint16_t", "char", "unsigned char", "signed char", "uint8_t",
    "int8_t", "uint", "ptrdiff_t", "bool",
}  # fmt: skip
BYTE_RANGE = {"unsigned char": 256, "uint8_t": 256, "uchar": 256}


@frozen
class Range:
    """The values of an index variable: `low <= v < high`. `full`: every value is taken by some thread or iteration."""

    low: Polynomial | None
    high: Polynomial | None
    full: bool
    relaxed: Polynomial | None = None
    """`high` without a constant that a guard takes off, as in `x < width - 1`; the hull that the buffer has."""


@frozen
class Guard:
    """`part < bound` or `part >= bound`, where several variables decide together, as in `4 * i + 3 < n`."""

    part: Polynomial
    operator: str
    bound: Polynomial


@frozen
class Access:
    """One read or write of a pointer parameter's memory."""

    buffer: str
    stores: bool
    loads: bool
    atomic: str | None
    subscript: Polynomial | None
    """None when it is not understood."""
    ranges: Mapping[str, Range]
    certain: bool
    """It happens for all values of the ranges: no other condition decides."""
    guards: tuple[Guard, ...] = ()
    """What else is known of the variables here."""


@frozen
class IndexUse:
    """`buffer[value * factor + rest]`, where `value` is an element of the integer buffer `source`."""

    source: str
    buffer: str
    factor: Polynomial
    rest: Polynomial
    ranges: Mapping[str, Range]


SHARED = "%"
"""How the names of shared arrays begin, as buffers of accesses; those of functions that are entered have dots."""


@frozen
class SharedArray:
    """Memory that the threads of a block have in common."""

    element: str
    sizes: tuple[int | None, ...]
    """None where it is not known, as for the only size of a dynamic array."""
    dynamic: bool


@frozen
class Accesses:
    """What one body does. Dictionaries are by parameter name."""

    accesses: tuple[Access, ...]
    unsure: Mapping[str, str]
    """Pointer parameters that escape the analysis, with the reason as a phrase."""
    gathers: Mapping[str, str]
    """Index buffer -> the buffer that its values are indices of."""
    index_uses: tuple[IndexUse, ...]
    """Uses of loaded integers as a part of a subscript."""
    indices: frozenset[str]
    """Integer buffers whose values decide which memory is touched in another way."""
    axes: Mapping[str, Range]
    """`gid.x` and the like -> the range that the guards leave; for a kernel."""
    block_indices: Mapping[str, Range]
    """`blockIdx.x` and the like used by themselves, e.g. one block a row."""
    thread_axes: frozenset[str]
    """Axes of `threadIdx` that are used by themselves, outside of `gid`."""
    divided: frozenset[str]
    """Scalar parameters that are divided by a constant without rounding up: the body may rely on there being no rest."""
    thread_bounds: Mapping[str, Range]
    """`threadIdx.x` and the like -> the range of a guard on it."""
    strided: frozenset[str]
    """Axes that a grid-stride loop covers, whatever the grid is."""
    forced_block: Mapping[str, int]
    """Axis -> block size that the body has built in, as in `blockIdx.x * 16 + threadIdx.x`."""
    shared: Mapping[str, SharedArray]
    """The shared arrays, by the names that their accesses have."""
    dynamic_shared: bool
    whole_grid: bool
    """Uses a grid-wide barrier, so the grid's size matters."""
    block_steps: Mapping[str, int]
    """Axis -> how many rows of a tile a turn of a loop goes further, which is the block's size; 0 where loops differ."""
    flat_ranks: bool
    """A thread's number in its block or grid was taken for its index in x, as in blocks of one dimension it is."""
    understood: bool
    """False when the text does not parse."""
    empty: bool
    used: frozenset[str]
    """Names that occur in the body."""


def varies(label: str) -> bool:
    """Whether a name differs from thread to thread or from turn to turn of a loop; all others are sizes."""
    return label.startswith(("@", "gid.", "threadIdx.", "blockIdx."))


def default_range(label: str) -> Range:
    """The range of a variable that no guard has narrowed."""
    return Range(ZERO, None, True) if not label.startswith("@") else Range(None, None, False)


def _launch_end(label: str) -> Polynomial | None:
    """Where the launch ends a built-in variable."""
    kind, _, axis = label.partition(".")
    if kind == "gid":
        return name(f"blockDim.{axis}") * name(f"gridDim.{axis}")
    return {"threadIdx": name(f"blockDim.{axis}"), "blockIdx": name(f"gridDim.{axis}")}.get(kind)


def extreme(
    polynomial: Polynomial, ranges: Mapping[str, Range], *, largest: bool, relaxed: bool = False
) -> Polynomial | None:
    """A bound of a polynomial over its variables' ranges, as a polynomial over parameters, which are never negative.

    Where nothing else bounds a built-in variable, `blockDim.x` and the like stand in the result.
    """
    result = ZERO
    for monomial, coefficient in polynomial.terms.items():
        term = number(coefficient)
        up = (coefficient > 0) == largest
        for factor in monomial:
            if not varies(factor):
                term = term * name(factor)
                continue
            range_ = ranges.get(factor)
            if range_ is None or range_.low is None or not range_.low.never_negative:
                if not (range_ is not None and range_.low is not None and len(monomial) == 1):
                    return None
            high = range_.relaxed if relaxed and range_.relaxed is not None else range_.high
            if high is None:
                high = _launch_end(factor)
            bound = (high - ONE if high is not None else None) if up else range_.low
            if bound is None or any(varies(n) for n in bound.names):
                return None
            term = term * bound
        result = result + term
        if result.too_large:
            return None
    return result


_MAX_SIZES = 6
"""Sizes of one buffer that are told from each other only when they have values."""
_MAX_GUARDS = 2
"""Guards that are used together to bound one subscript."""
INDEX_VALUES = 1024
"""How many values an integer that is used as an index is drawn from, where nothing says how much memory there is."""


@frozen
class Launched:
    """Grid and block of one launch, as expressions over parameters and constants."""

    grid: tuple[str, str, str]
    block: tuple[str, str, str]


_BUILT_IN = re.compile(r"\b(blockDim|gridDim)\.([xyz])\b")


class _Sizes:
    """Puts a launch's own sizes in the place of `blockDim` and `gridDim`."""

    def __init__(self, launched: Launched | None, constants: Mapping[str, int], accesses: Accesses) -> None:
        self.constants = constants
        self.forced = accesses.forced_block
        self.indices = index_values(accesses)
        self.undrawn = accesses.indices
        self.values: dict[str, Polynomial] = {}
        for kind, sizes in (("gridDim", launched.grid), ("blockDim", launched.block)) if launched is not None else ():
            for axis, text in zip("xyz", sizes, strict=True):
                self.values[f"{kind}.{axis}"] = self.read(text)

    def read(self, text: str) -> Polynomial:
        try:
            return number(evaluate(text, self.constants))
        except ExpressionError:
            known = parsed(text, self.constants)
            return known if known is not None else name(f"({' '.join(text.split())})")

    def put(self, polynomial: Polynomial) -> Polynomial:
        return rebuilt(polynomial, self.values) if self.values else polynomial

    def range_(self, label: str, old: Range) -> Range:
        high = old.high
        axis = label[-1]
        built_in = label.startswith("gid.") and axis in self.forced and bool(self.values)
        if high is None:
            end = _launch_end(label)
            if built_in:
                blocks, threads = name(f"gridDim.{axis}"), name(f"blockDim.{axis}")
                end = (blocks - ONE) * number(self.forced[axis]) + threads
            high = self.put(end) if end is not None and self.values else None
        else:
            high = self.put(high)
        if built_in and self.values[f"blockDim.{axis}"].constant != self.forced[axis]:
            old = evolve(old, full=False)
        return evolve(
            old, low=None if old.low is None else self.put(old.low), high=high,
            relaxed=high if old.relaxed is None else self.put(old.relaxed),
        )  # fmt: skip

    def access(self, access: Access) -> Access:
        if access.subscript is None:
            return access
        subscript = self.put(access.subscript)
        guards = tuple(Guard(self.put(g.part), g.operator, self.put(g.bound)) for g in access.guards)
        ranges = {
            label: self.range_(label, old if source_of(label) in self.undrawn else _drawn(label, old, self.indices))
            for label, old in access.ranges.items()
        }
        return evolve(access, subscript=subscript, ranges=ranges, guards=guards)


def source_of(label: str) -> str:
    """The integer buffer that a variable was loaded from; empty for every other variable."""
    return label[1 : label.index("[]")] if "[]" in label else ""


def index_values(accesses: Accesses) -> dict[str, Polynomial]:
    """How many values the elements of an integer buffer may have that are used as indices.

    Where the same place is also reached by a bounded index, `logits[row * n + i]` beside `logits[row * n + label[row]]`,
    the values are as many as that index has; else any number would do.
    """
    found: dict[str, Polynomial] = {}
    for use in accesses.index_uses:
        for access in accesses.accesses:
            if access.buffer != use.buffer or access.subscript is None or use.source in found:
                continue
            left = access.subscript - use.rest
            if len(left.terms) != 1:
                continue
            ((monomial, scale),) = left.terms.items()
            index = [n for n in monomial if varies(n)]
            rest = Polynomial({tuple(n for n in monomial if not varies(n)): scale})
            if len(index) == 1 and not source_of(index[0]) and rest == use.factor:
                high = access.ranges[index[0]].high
                if high is not None and not any(varies(n) for n in high.names):
                    found[use.source] = high
    return found


def elements_beside(
    accesses: Accesses, use: IndexUse, launched: Launched | None, constants: Mapping[str, int]
) -> Polynomial | None:
    """Elements of a buffer that one value of an index needs, `rest` included; None where that is not known."""
    sizes = _Sizes(launched, constants, accesses)
    ranges = {label: sizes.range_(label, old) for label, old in use.ranges.items()}
    top = extreme(sizes.put(use.rest), ranges, largest=True)
    return None if top is None or any(_BUILT_IN.search(label) for label in top.names) else top + ONE


def _drawn(label: str, range_: Range, values: Mapping[str, Polynomial]) -> Range:
    """The range of a loaded integer, whose values are made up."""
    source = source_of(label)
    if not source:
        return range_
    low = ZERO if range_.low is None else range_.low
    high = values.get(source, number(INDEX_VALUES)) if range_.high is None else range_.high
    return evolve(range_, low=low, high=high, relaxed=high if range_.relaxed is None else range_.relaxed)


def _rewritten(access: Access) -> Access:
    """The access with what its guards bound as variables of their own: `4 * i + j` under `4 * i < n` is `@0 + j`."""
    subscript, ranges = access.subscript, dict(access.ranges)
    if subscript is None:
        return access
    for number_, guard in enumerate(access.guards):
        if guard.operator != "<" or any(varies(n) for n in guard.bound.names):
            continue
        multiple = _multiple(subscript, guard.part)
        low = extreme(guard.part, access.ranges, largest=False)
        if multiple is None or low is None or not low.never_negative:
            continue
        label = f"@guard{number_}"
        subscript = subscript - multiple * guard.part + multiple * name(label)
        ranges[label] = Range(ZERO, guard.bound, False, guard.bound)
    return evolve(access, subscript=subscript, ranges=ranges)


def _multiple(whole: Polynomial, part: Polynomial) -> Polynomial | None:
    """`m` such that `whole - m * part` has none of the variables of `part`."""
    variables = {n for n in part.names if varies(n)}
    if not variables or not variables <= whole.names:
        return None
    multiple = _multiple_of(whole, part, min(variables))
    return multiple if multiple is not None and not variables & (whole - multiple * part).names else None


def _multiple_of(whole: Polynomial, part: Polynomial, chosen: str) -> Polynomial | None:
    """`m`, never negative, such that one variable is in `m * part` as it is in `whole`."""
    own = [monomial for monomial in part.terms if chosen in monomial]
    if len(own) != 1:
        return None
    (monomial,) = own
    scale = part.terms[monomial]
    multiple = ZERO
    for other, coefficient in whole.terms.items():
        if chosen not in other:
            continue
        rest = list(other)
        for factor in monomial:
            if factor not in rest:
                return None
            rest.remove(factor)
        if coefficient % scale or any(varies(n) for n in rest):
            return None
        multiple = multiple + Polynomial({tuple(rest): coefficient // scale})
    return multiple if multiple.terms and multiple.never_negative else None


@frozen
class Extent:
    """The element count of a buffer and what it is used for."""

    role: Role
    size: Polynomial | None
    reason: str = ""
    """Why there is no size, as a phrase."""
    accumulates: str | None = None
    """Name of the atomic that all stores use."""
    shape: tuple[str, ...] = ()
    """Row-major factors of the size, the slowest first, where a subscript shows them."""


def extents(
    accesses: Accesses,
    pointers: Iterable[Parameter],
    launched: Launched | None = None,
    constants: Mapping[str, int] | None = None,
) -> dict[str, Extent]:
    """Role and size of each pointer parameter, as far as they are certain.

    Where the launch is known, it bounds what no guard does; `constants` are values of names in its expressions.
    """
    by_buffer: dict[str, list[Access]] = {}
    flat = launched is None or (launched.block[1:] == ("1", "1") and launched.grid[1:] == ("1", "1"))
    sizes = _Sizes(launched if flat or not accesses.flat_ranks else None, constants or {}, accesses)
    for access in accesses.accesses:
        by_buffer.setdefault(access.buffer, []).append(sizes.access(access))
    clean = {hull for buffer, group in by_buffer.items() if not buffer.startswith(SHARED) for access in group
             if (hull := _size(access, relaxed=True)) is not None and hull.monomial}  # fmt: skip
    found: dict[str, Extent] = {}
    for parameter in pointers:
        group = by_buffer.get(parameter.name, [])
        stores = [access for access in group if access.stores]
        loads = [access for access in group if access.loads]
        if parameter.name in accesses.unsure:
            role = Role.IN if parameter.const else Role.IO
            found[parameter.name] = Extent(role, None, accesses.unsure[parameter.name])
            continue
        if not group:
            found[parameter.name] = Extent(Role.IN if parameter.const else Role.IO, None, "nothing uses it")
            continue
        size, reason = _joint_size(group, clean)
        role = Role.IN
        accumulates = None
        if stores:
            whole = not loads and size is not None and any(_covers(access, size) for access in stores)
            role = Role.OUT if whole else Role.IO
            atomics = {access.atomic for access in stores}
            if len(atomics) == 1:
                accumulates = next(iter(atomics))
        found[parameter.name] = Extent(role, size, reason, accumulates, _shape(group, size))
    return found


def shared_extents(
    accesses: Accesses, block: tuple[str, str, str], constants: Mapping[str, int]
) -> dict[str, Polynomial | None]:
    """Elements of each shared array that a block of this size touches; None where that is not known."""
    launched = Launched(("gridDim.x", "gridDim.y", "gridDim.z"), block)
    sizes = _Sizes(launched, constants, accesses)
    found: dict[str, Polynomial | None] = {}
    for access in accesses.accesses:
        if not access.buffer.startswith(SHARED):
            continue
        size = _size(sizes.access(access), relaxed=False)
        known = found.get(access.buffer, ZERO)
        if size is None or known is None or access.buffer in accesses.unsure:
            found[access.buffer] = None
        elif at_least(known, size) or at_least(size, known):
            found[access.buffer] = known if at_least(known, size) else size
        else:
            found[access.buffer] = None
    return found


def _size(access: Access, *, relaxed: bool) -> Polynomial | None:
    """One more than the largest subscript; of two bounds the one that is the smaller, or else the simpler."""
    best = _plain_size(access, relaxed=relaxed)
    if not access.guards:
        return best
    options = [_plain_size(_rewritten(access), relaxed=relaxed)]
    held = _not_negative(access)
    waiting = [(access, _MAX_GUARDS)]
    while waiting:
        current, depth = waiting.pop()
        for guard in current.guards if depth else ():
            lower = _under(current, guard)
            if lower is not None:
                options.append(_plain_size(lower, relaxed=relaxed, held=held))
                waiting.append((lower, depth - 1))
    for option in options:
        if option is None:
            continue
        # A clean bound is that of the memory, where a smaller one may be that of what is touched.
        simpler = best is not None and option.monomial and not best.monomial
        smaller = best is not None and at_least(best, option) and (option.monomial or not best.monomial)
        if best is None or smaller or (simpler and not at_least(option, best)):
            best = option
    return best


def _under(access: Access, guard: Guard) -> Access | None:
    """The access at the most that one guard leaves of its subscript: with `i < t`, `i + t` is less than `2 * t`."""
    if guard.operator != "<" or access.subscript is None or any(varies(n) for n in guard.bound.names):
        return None
    rising = (m for m, c in guard.part.terms.items() if c > 0)
    chosen = next((n for m in rising for n in m if varies(n) and n in access.subscript.names), None)
    multiple = _multiple_of(access.subscript, guard.part, chosen) if chosen is not None else None
    if multiple is None:
        return None
    top = access.subscript - multiple * guard.part + multiple * (guard.bound - ONE)
    return evolve(access, subscript=top, guards=tuple(other for other in access.guards if other is not guard))


def _not_negative(access: Access) -> bool:
    return access.subscript is not None and never_negative(
        access.subscript, access.guards, lambda label: access.ranges.get(label, default_range(label))
    )


def never_negative(polynomial: Polynomial, guards: Iterable[Guard], range_of: Callable[[str], Range]) -> bool:
    """Whether a polynomial is at least 0, by the ranges of its variables or by a guard such as `i - r >= 0`."""

    def by_ranges(p: Polynomial) -> bool:
        low = extreme(p, {label: range_of(label) for label in p.names if varies(label)}, largest=False)
        return low is not None and low.never_negative_for_sizes

    if by_ranges(polynomial):
        return True
    for guard in guards:
        if guard.operator != ">=" or not guard.bound.never_negative:
            continue
        for chosen in guard.part.names & polynomial.names:
            multiple = _multiple_of(polynomial, guard.part, chosen) if varies(chosen) else None
            if multiple is not None and by_ranges(polynomial - multiple * guard.part):
                return True
    return False


def _plain_size(access: Access, *, relaxed: bool, held: bool = False) -> Polynomial | None:
    """One more than the largest subscript; `held`: it is known not to be negative."""
    if access.subscript is None:
        return None
    top = extreme(access.subscript, access.ranges, largest=True, relaxed=relaxed)
    if top is None or not (held or _not_negative(access)):
        return None
    if any(_BUILT_IN.search(label) for label in top.names):
        return None
    return top + ONE


def _joint_size(group: list[Access], clean: set[Polynomial]) -> tuple[Polynomial | None, str]:
    """The smallest size that is at least that of every access."""
    sizes = []
    for access in group:
        size = _size(access, relaxed=False)
        if size is None:
            return (
                None,
                "a subscript has no known bound" if access.subscript is not None else "a subscript is not understood",
            )
        sizes.append(size)
    sizes = _without_smaller(sizes)
    hulls = [hull for access in group if (hull := _size(access, relaxed=True)) is not None]
    options = [*sizes, *_without_smaller(hulls), *sorted(clean, key=Polynomial.spelled)]
    enough = [option for option in options if all(at_least(option, size) for size in sizes)]
    enough = [o for o in enough if o.monomial] or [o for o in enough if o.never_negative] or enough
    if not enough and len(sizes) <= _MAX_SIZES:
        return name(f"max({', '.join(sorted(size.spelled() for size in sizes))})"), ""
    if not enough:
        return None, "its subscripts have no common bound"
    best = enough[0]
    for option in enough[1:]:
        if at_least(best, option):
            best = option
    return best, ""


def _without_smaller(sizes: list[Polynomial]) -> list[Polynomial]:
    """Of sizes that differ in their constant alone, the largest: unrolled code has hundreds of them."""
    largest: dict[frozenset[tuple[tuple[str, ...], int]], Polynomial] = {}
    for size in sizes:
        rest = frozenset(item for item in size.terms.items() if item[0] != ())
        known = largest.get(rest)
        if known is None or size.terms.get((), 0) > known.terms.get((), 0):
            largest[rest] = size
    return list(largest.values())


def _own_ranges(access: Access) -> dict[str, Range]:
    """The ranges of the variables of the subscript, without those that only guards have."""
    names = access.subscript.names if access.subscript is not None else frozenset()
    return {label: range_ for label, range_ in access.ranges.items() if label in names}


def _shape(group: list[Access], size: Polynomial | None) -> tuple[str, ...]:
    """The sizes whose product is `size`, in the order in which a row-major subscript has them."""
    for access in group:
        if size is None or access.subscript is None:
            continue
        ranges = _own_ranges(access)
        if any(range_.high is None for range_ in ranges.values()):
            continue
        terms = [(m, [n for n in m if n in ranges]) for m in access.subscript.terms]
        indexed = sorted(((len(m), v[0]) for m, v in terms if len(v) == 1), reverse=True)
        highs = [ranges[v].relaxed or ranges[v].high for _, v in indexed]
        if len(highs) > 1 and product(h for h in highs if h is not None) == size:
            return tuple(high.spelled() for high in highs if high is not None)
    return ()


def _covers(access: Access, size: Polynomial) -> bool:
    """Whether the stores of one access write each element of the buffer: a mixed-radix subscript over full ranges."""
    if not access.certain or access.subscript is None or not access.subscript.never_negative:
        return False
    if access.subscript.constant is not None:
        return size == access.subscript + ONE == ONE
    ranges = _own_ranges(access)
    if any(not range_.full or range_.low != ZERO or range_.high is None for range_ in ranges.values()):
        return False
    if any(len([n for n in monomial if n in ranges]) > 1 for monomial in access.subscript.terms):
        return False
    highs = [range_.high for range_ in ranges.values() if range_.high is not None]
    return _size(access, relaxed=False) == size == product(highs)
