"""Launches that the user's program made, recorded with their memory: cases like any other, and a reference.

A recorded launch is run with the very bytes that the program passed. Its allocations get new places, and every address
among the arguments, in structs too, is moved with the allocation that it leads into; so two arguments may lead into one
allocation, and into the middle of it. What the program left in memory is what must come out.

`with_recordings` decides what recordings mean for a launch spec; `bind_recorded` makes one of them ready to run.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from attrs import evolve, frozen

from dice_lsp.capture import store
from dice_lsp.capture.recording import CaptureError
from dice_lsp.capture.store import Recorded
from dice_lsp.records import (
    BufferSpec,
    CapturedLaunch,
    Compiled,
    Confidence,
    Kernel,
    LaunchCase,
    LaunchSpec,
    Origin,
    Parameter,
    Reference,
    Role,
)
from dice_lsp.source.expressions import ExpressionError, evaluate
from dice_lsp.source.tokens import split_top_level
from dice_lsp.source.unlaunchable import opaque_kind
from dice_lsp.worker.arguments import (
    MEMORY_LIMIT_BYTES,
    BadSpec,
    Bound,
    BoundBuffer,
    BoundScalar,
    BoundValue,
    fields_of,
    pointee,
)
from dice_lsp.worker.elements import Array, Element, Kind, element_of
from dice_lsp.worker.elf import plain_name, variables
from dice_lsp.worker.launch import Pointer
from dice_lsp.worker.reference import decoded, with_inputs

MOST_LAUNCHES = 6
"""How many recorded launches of one kernel are tried."""
_ADDRESS_BYTES = 8
_BYTES = Element("unsigned char", Kind.INT, np.dtype(np.uint8), 1, 1, 0.0)


# What recordings mean for a launch spec


@frozen
class Recordings:
    """A launch spec with the recorded launches of its kernel, and what there is to say about those."""

    spec: LaunchSpec
    notes: tuple[str, ...] = ()


def with_recordings(spec: LaunchSpec, kernel: Kernel, path: str, text_key: str) -> Recordings:
    """The spec with what was recorded of the kernel: by `ref captured` in its directive, else in the workspace's store.

    What a directive says of the launch stays. Where nothing else says it, the recorded launch is the launch.
    """
    if spec.skip:
        return Recordings(spec)
    named = spec.reference if spec.reference is not None and spec.reference.via == "captured" else None
    try:
        found = _named(named, kernel, path, text_key) if named is not None else store.find(path, kernel, text_key)
    except CaptureError as error:
        return Recordings(spec, (str(error),))
    usable, notes = [], []
    for recorded in found:
        label = _label(recorded)
        template = template_of(recorded, kernel)
        if template is None:
            notes.append(f"{label} is not run again: its template arguments are not known ({recorded.kernel})")
        elif (reason := _why_not(recorded, kernel)) is not None:
            notes.append(f"{label} is not run again: {reason}")
        else:
            usable.append((recorded, template))
    if not usable:
        return Recordings(spec, tuple(dict.fromkeys(notes)))
    chosen = _chosen(usable)
    largest = max(chosen, key=lambda pair: _size(pair[0]))
    cases = tuple(
        LaunchCase(
            _label(recorded), *_shape(recorded), template=_spelled(template, spec, kernel), captured=recorded.launch
        )
        for recorded, template in chosen
    )
    if spec.launchable:
        written = Origin.DIRECTIVE in (spec.origins.get("grid"), *(dim.origin for dim in spec.dims))
        own = None if written or not _same_template(largest[1], spec, kernel) else largest[0].launch
        return Recordings(evolve(spec, cases=(*spec.cases, *cases), captured=own), tuple(dict.fromkeys(notes)))
    own_case = next(case for case in cases if case.captured == largest[0].launch)
    alone = _only_recorded(spec, kernel, largest[0], own_case, cases)
    return Recordings(alone, tuple(dict.fromkeys(notes)))


def is_only_recorded(spec: LaunchSpec) -> bool:
    """Nothing but recordings says how the kernel is launched: no data can be made up for it."""
    return spec.captured is not None and spec.origins.get("grid") is Origin.CAPTURED


def own_label(spec: LaunchSpec) -> str:
    """What the recorded launch that is timed is called."""
    return next(
        (case.label for case in spec.cases if case.captured == spec.captured), spec.label or "the recorded launch"
    )


def _named(reference: Reference, kernel: Kernel, path: str, text_key: str) -> tuple[Recorded, ...]:
    """The launches that `ref captured NAME` means. Raises `CaptureError`."""
    if not reference.text:
        found = store.find(path, kernel, text_key)
        if not found:
            raise CaptureError("nothing of this kernel was recorded: run `dice-lsp capture -- ./program`")
        return found
    file = store.resolve(reference.text, path)
    if file is None:
        raise CaptureError(
            f"there is no recording {reference.text}: `dice-lsp capture --list` shows those that there are"
        )
    known = {recorded.launch.digest: recorded for recorded in store.find(path, kernel, text_key)}
    matching = tuple(
        known.get(recorded.launch.digest, evolve(recorded, launch=evolve(recorded.launch, stale=True)))
        for recorded in store.read_file(file)
        if store.matches(recorded, kernel)
    )
    if not matching:
        raise CaptureError(f"{reference.text} holds no launch of {kernel.name}")
    return matching


def _only_recorded(
    spec: LaunchSpec, kernel: Kernel, largest: Recorded, own: LaunchCase, cases: tuple[LaunchCase, ...]
) -> LaunchSpec:
    """What a recorded launch says of a kernel whose launch nothing else tells."""
    bound = {p.name: recorded for p, recorded in zip(kernel.parameters, largest.parameters, strict=True)}
    scalars: dict[str, str] = {}
    buffers: list[BufferSpec] = []
    for parameter in kernel.parameters:
        data = bound[parameter.name].data
        if parameter.pointer:
            place = _allocation_of(largest, int.from_bytes(data, "little"))
            element = pointee(evolve(spec, template=own.template), parameter)
            if place is not None and element is not None:
                nbytes = largest.allocations[place[0]].nbytes - place[1]
                count = nbytes // element.itemsize
                role = Role.IN if parameter.const else Role.IO
                buffers.append(BufferSpec(parameter.name, role, (str(count),), "captured", Origin.CAPTURED))
            continue
        element = element_of(own.template.get(parameter.element, parameter.element))
        if element is not None and element.lanes == 1 and len(data) == element.itemsize:
            scalars[parameter.name] = repr(element.decode(np.frombuffer(data, element.storage))[0].item())
    fields = ("grid", "block", "smem_bytes", "template")
    return evolve(
        spec,
        dims=(),
        buffers=tuple(buffers),
        scalars=scalars,
        grid=own.grid,
        block=own.block,
        smem_bytes=own.smem_bytes,
        template=own.template,
        unknown=(),
        cases=tuple(case for case in cases if case is not own),
        captured=own.captured,
        label=own.label,
        origins={**spec.origins, **dict.fromkeys(fields, Origin.CAPTURED)},
        confidence=dict.fromkeys(fields, Confidence.CERTAIN),
    )


def _label(recorded: Recorded) -> str:
    return f"captured {recorded.order}"


def _shape(recorded: Recorded) -> tuple[tuple[str, str, str], tuple[str, str, str], str]:
    gx, gy, gz = map(str, recorded.grid)
    bx, by, bz = map(str, recorded.block)
    return (gx, gy, gz), (bx, by, bz), str(recorded.smem_bytes)


def _size(recorded: Recorded) -> tuple[int, int]:
    threads = int(np.prod([*recorded.grid, *recorded.block], dtype=object))
    return threads, sum(allocation.nbytes for allocation in recorded.allocations)


def _chosen(usable: "Sequence[tuple[Recorded, dict[str, str]]]") -> "list[tuple[Recorded, dict[str, str]]]":
    """A few launches of many: one of each shape and of each instantiation first, the largest among them."""
    largest = max(usable, key=lambda pair: _size(pair[0]))
    kinds: dict[object, tuple[Recorded, dict[str, str]]] = {}
    for recorded, template in usable:
        kinds.setdefault((_shape(recorded), tuple(template.items())), (recorded, template))
    ordered = [largest, *kinds.values(), *usable]
    distinct: dict[CapturedLaunch, tuple[Recorded, dict[str, str]]] = {}
    for pair in ordered:
        distinct.setdefault(pair[0].launch, pair)
    return sorted(list(distinct.values())[:MOST_LAUNCHES], key=lambda pair: pair[0].order)


def _why_not(recorded: Recorded, kernel: Kernel) -> str | None:
    """Why a launch cannot be run again as it was, in one phrase."""
    if recorded.problems:
        return recorded.problems[0]
    if recorded.cluster != (1, 1, 1):
        return "it has thread block clusters"
    if recorded.cooperative:
        return "it is a cooperative launch, whose blocks wait for each other"
    if len(recorded.parameters) != len(kernel.parameters):
        return f"it has {len(recorded.parameters)} parameters, the kernel has {len(kernel.parameters)}"
    if any(allocation.kind == "array" for allocation in recorded.allocations):
        return "it uses an array of CUDA's, as textures do"
    for parameter in kernel.parameters:
        if (kind := opaque_kind(parameter.element)) is not None:
            return f"`{parameter.name}` is a {kind}, which only the program itself can make"
        if parameter.pointer and parameter.indirections > 1:
            return f"`{parameter.name}` is a pointer to pointers"
    return None


# Template arguments


def template_of(recorded: Recorded, kernel: Kernel) -> dict[str, str] | None:
    """The template arguments of a recorded launch by the kernel's names; None where its name does not tell them."""
    if not kernel.template:
        return {}
    at = re.search(rf"\b{re.escape(kernel.name)}<", recorded.kernel)
    if at is None:
        return None
    text, depth, end = recorded.kernel, 1, at.end()
    while end < len(text) and depth:
        depth += (text[end] in "<(") - (text[end] in ">)")
        end += 1
    inside = text[at.end() : end - 1]
    arguments = [_plain(inside[a:b]) for a, b in split_top_level(inside, angles=True)]
    if depth or len(arguments) != len(kernel.template):
        return None
    return dict(zip(kernel.template, arguments, strict=True))


def _plain(argument: str) -> str:
    """`(int)16` -> `16`, `(bool)1` -> `true`, `16u` -> `16`; a type stays as it is."""
    argument = " ".join(argument.split())
    if (match := re.fullmatch(r"\(bool\)\s*([01])", argument)) is not None:
        return "true" if match[1] == "1" else "false"
    if (match := re.fullmatch(r"(?:\([\w ]+\)\s*)?(-?\d+)[uUlL]*", argument)) is not None:
        return match[1]
    return argument


def _spelled(template: Mapping[str, str], spec: LaunchSpec, kernel: Kernel) -> dict[str, str]:
    """The arguments as the spec writes them, where they are the same."""
    return dict(spec.template) if _same_template(template, spec, kernel) else dict(template)


def _same_template(template: Mapping[str, str], spec: LaunchSpec, kernel: Kernel) -> bool:
    return all(_alike(spec.template.get(name), template.get(name), spec.constants) for name in kernel.template)


def _alike(written: str | None, recorded: str | None, constants: Mapping[str, int]) -> bool:
    if written is None or recorded is None:
        return False
    if " ".join(written.split()) == recorded:
        return True
    mine, theirs = element_of(written), element_of(recorded)
    if mine is not None and theirs is not None:
        return (mine.kind, mine.storage, mine.lanes, mine.bfloat16) == (
            theirs.kind, theirs.storage, theirs.lanes, theirs.bfloat16,
        )  # fmt: skip
    try:
        return evaluate(written, constants) == evaluate({"true": "1", "false": "0"}.get(recorded, recorded), {})
    except ExpressionError:
        return False


# One recorded launch, ready to run


@frozen(eq=False)
class RecordedCase:
    """A recorded launch with its data, and what the program left."""

    bound: Bound
    expected: Mapping[str, Array]
    """Buffer -> what it held afterwards, as stored."""
    stale: bool


def bind_recorded(
    launch: CapturedLaunch, label: str, spec: LaunchSpec, kernel: Kernel, compiled: Compiled | None,
    memory_limit_bytes: int = MEMORY_LIMIT_BYTES,
) -> RecordedCase | BadSpec:  # fmt: skip
    """Read a recorded launch and make it ready to run.

    Args:
        launch: which one.
        label: what a verdict calls it.
        spec: for the template arguments and the roles that a directive gives to buffers.
        kernel: with the layouts of its structs, as far as they are known.
        compiled: the judged code: of the program's variables, those that it has are set.
        memory_limit_bytes: most for all buffers together.
    """
    try:
        recorded = next(item for item in store.read_file(launch.path) if item.launch.index == launch.index)
        return _bind(recorded, launch, label, spec, kernel, compiled, memory_limit_bytes)
    except (CaptureError, StopIteration) as error:
        return BadSpec(str(error) or f"{label} is not in {launch.path} any more")
    except _Refused as refusal:
        return BadSpec(f"{label} is not run again: {refusal}", refusal.too_large)


def near(bound: Bound, seed: int, step: float) -> Bound:
    """The same launch with floats that are nearer to zero by up to `step` of themselves.

    So they are in whatever range they were in; integers, which may be indices, stay as they are.
    """
    rng = np.random.default_rng([abs(seed), 13])
    moved = {
        name: values * (1.0 - step * rng.random(values.size)) if values.dtype.kind == "f" else values
        for name, values in decoded(bound).items()
    }
    return with_inputs(bound, moved)


class _Refused(Exception):
    def __init__(self, reason: str, too_large: bool = False) -> None:
        super().__init__(reason)
        self.too_large = too_large


@frozen
class _Use:
    """One address among the arguments: whose it is, what it leads to, and where."""

    name: str
    element: Element | None
    """None where the type is not known."""
    const: bool
    whole: bool
    """It is all of a parameter, not a part of a struct."""
    allocation: int
    byte_offset: int


def _bind(
    recorded: Recorded, launch: CapturedLaunch, label: str, spec: LaunchSpec, kernel: Kernel,
    compiled: Compiled | None, memory_limit_bytes: int,
) -> RecordedCase:  # fmt: skip
    if (reason := _why_not(recorded, kernel)) is not None:
        raise _Refused(reason)
    scalars: dict[str, BoundScalar] = {}
    uses: dict[str, list[tuple[int, _Use]]] = {}
    for parameter, given in zip(kernel.parameters, recorded.parameters, strict=True):
        found = list(_uses(recorded, spec, parameter, given.data))
        if found or parameter.pointer:
            uses[parameter.name] = found
            continue
        element = element_of(spec.template.get(parameter.element, parameter.element))
        if element is None or element.lanes > 1:
            if parameter.size_bytes not in (0, len(given.data)):
                raise _Refused(f"`{parameter.name}` had {len(given.data)} bytes, now it has {parameter.size_bytes}")
            uses[parameter.name] = []
            continue
        if element.itemsize != len(given.data):
            raise _Refused(
                f"`{parameter.name}` had {len(given.data)} bytes, `{parameter.element}` has {element.itemsize}"
            )
        value = element.decode(np.frombuffer(given.data, element.storage))[0].item()
        scalars[parameter.name] = BoundScalar(parameter.name, element, value)
    used = sorted({use.allocation for found in uses.values() for _, use in found})
    if (needed := sum(recorded.allocations[index].nbytes for index in used)) > memory_limit_bytes:
        raise _Refused(
            f"its buffers have {needed} bytes, there is room for {max(0, memory_limit_bytes)}", too_large=True
        )
    buffers: dict[str, BoundBuffer] = {}
    expected: dict[str, Array] = {}
    names: dict[int, str] = {}
    for index in used:
        mine = [use for found in uses.values() for _, use in found if use.allocation == index]
        buffer, after = _buffer(recorded, index, mine, spec)
        names[index] = buffer.name
        buffers[buffer.name] = buffer
        if buffer.checked:
            expected[buffer.name] = after
    if not expected:
        raise _Refused("it may write to no memory that was recorded")
    values: dict[str, BoundValue] = {}
    for parameter, given in zip(kernel.parameters, recorded.parameters, strict=True):
        if parameter.name not in uses:
            continue
        found = uses[parameter.name]
        alone = len(found) == 1 and found[0][1].whole and found[0][1].byte_offset == 0
        if alone and names[found[0][1].allocation] == parameter.name:
            continue  # the whole buffer is the argument
        pointers = tuple(Pointer(at, names[use.allocation], use.byte_offset) for at, use in found)
        values[parameter.name] = BoundValue(parameter.name, given.data, pointers)
    integers = {name: int(scalar.value) for name, scalar in scalars.items() if scalar.element.kind is not Kind.FLOAT}
    bound = Bound(
        {}, {**spec.constants, **integers}, recorded.grid, recorded.block, recorded.smem_bytes, buffers, scalars,
        tuple(parameter.name for parameter in kernel.parameters), values=values,
        variables=dict(_variables(recorded, compiled)), name=label,
    )  # fmt: skip
    return RecordedCase(bound, expected, launch.stale)


def _allocation_of(recorded: Recorded, address: int) -> tuple[int, int] | None:
    """The allocation that an address leads into, and how far."""
    inside = None
    for index, allocation in enumerate(recorded.allocations):
        if 0 <= address - allocation.address < allocation.nbytes:
            return index, address - allocation.address
        if address == allocation.address + allocation.nbytes:
            inside = index, allocation.nbytes  # one past the end, unless another begins there
    return inside


def _uses(recorded: Recorded, spec: LaunchSpec, parameter: Parameter, data: bytes) -> Iterator[tuple[int, _Use]]:
    """The addresses in one argument, each with its place in it."""
    if parameter.pointer:
        address = int.from_bytes(data, "little")
        place = _allocation_of(recorded, address)
        if place is not None:
            yield 0, _Use(parameter.name, pointee(spec, parameter), parameter.const, True, *place)
        elif address:
            raise _Refused(f"`{parameter.name}` leads to memory that was not recorded")
        return
    known = {field.offset: field for field in fields_of(spec, parameter)}
    for at in range(0, len(data) - _ADDRESS_BYTES + 1, _ADDRESS_BYTES):
        address = int.from_bytes(data[at : at + _ADDRESS_BYTES], "little")
        place = _allocation_of(recorded, address) if address else None
        item = known.get(at)
        if item is not None and item.pointer:
            name = f"{parameter.name}.{item.name}"
            if place is not None:
                spelling = spec.template.get(item.element, item.element)
                yield at, _Use(name, element_of(spelling), item.const, False, *place)
            elif address:
                raise _Refused(f"`{name}` leads to memory that was not recorded")
        elif place is not None and (item is None or item.size_bytes == _ADDRESS_BYTES):
            yield at, _Use(f"{parameter.name}+{at}" if at else parameter.name, None, False, False, *place)


def _buffer(recorded: Recorded, index: int, uses: Sequence[_Use], spec: LaunchSpec) -> tuple[BoundBuffer, Array]:
    """An allocation as a buffer, named after the argument that leads to its start, and what it held afterwards."""
    allocation = recorded.allocations[index]
    first = min(uses, key=lambda use: (not use.whole, use.byte_offset))
    if allocation.holds_pointers and any(use.element is None for use in uses):
        raise _Refused(f"the memory of `{first.name}` holds addresses, which cannot be moved")
    before, after = store.before(recorded, index), store.after(recorded, index)
    if after is None:
        raise _Refused("it did not end")
    changed = not np.array_equal(before, after)
    told = {buffer.name: buffer for buffer in spec.buffers}
    roles = [told[use.name].role for use in uses if use.name in told and told[use.name].origin is Origin.DIRECTIVE]
    reads_only = all(use.const for use in uses) or (bool(roles) and all(role is Role.IN for role in roles))
    role = Role.TMP if roles and all(role is Role.TMP for role in roles) else Role.IO
    role = Role.IN if reads_only and not changed else role
    writers = [use for use in uses if not use.const] or list(uses)
    element = _common(writers, allocation.nbytes)
    if element is None:
        if role is Role.IO:
            types = ", ".join(dict.fromkeys("?" if use.element is None else use.element.spelling for use in writers))
            raise _Refused(f"the memory of `{first.name}` cannot be compared as numbers of one type ({types})")
        # Nobody writes there, so that its bytes must stay what they are.
        element = _BYTES
    buffer_spec = BufferSpec(first.name, role, (), "captured", Origin.CAPTURED)
    count = allocation.nbytes // element.itemsize
    return BoundBuffer(buffer_spec, element, (count,), count, before.view(element.storage)), after.view(element.storage)


def _common(uses: Sequence[_Use], nbytes: int) -> Element | None:
    """The element that an allocation holds, if all who write it agree; None where none fits."""
    kinds = {
        (use.element.kind, use.element.storage.str, use.element.bfloat16) for use in uses if use.element is not None
    }
    if len(kinds) != 1 or any(use.element is None for use in uses):
        return None
    found = min((use.element for use in uses if use.element is not None), key=lambda element: element.lanes)
    width = found.storage.itemsize
    if any(use.byte_offset % width for use in uses) or nbytes % width:
        return None
    if nbytes % found.itemsize:
        found = evolve(found, lanes=1, itemsize=width)
    return found


def _variables(recorded: Recorded, compiled: Compiled | None) -> Iterator[tuple[str, bytes]]:
    """What the program's variables held, as far as the judged code has them, under its own names."""
    own = {} if compiled is None else {variable.symbol: variable for variable in variables(compiled.cubin)}
    for index, symbol in enumerate(recorded.symbols):
        same = [v for v in own.values() if v.symbol == symbol.name] or [
            v for v in own.values() if v.name == plain_name(symbol.name)
        ]
        if len(same) != 1 or same[0].size_bytes != symbol.nbytes:
            if same:
                raise _Refused(f"the variable {plain_name(symbol.name)} has another size now")
            continue
        if symbol.holds_pointers:
            raise _Refused(f"the variable {plain_name(symbol.name)} holds addresses, which cannot be moved")
        yield same[0].symbol, store.symbol_before(recorded, index).tobytes()
