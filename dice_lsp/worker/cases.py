"""Which sizes a kernel is tried with: those of its spec that are small enough, and odd ones that break guards."""

import ast
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest

from attrs import evolve, frozen

from dice_lsp.records import Dim, Kernel, LaunchCase, LaunchSpec, Origin
from dice_lsp.source.expressions import evaluate, names_in
from dice_lsp.worker.arguments import BadSpec, Plan, case_label, plan

MINIMUM_CASES = 5
_SMALL_DIM = 16
"""Dims that are never larger than this are channels, taps or heads, not lengths: they keep their given values."""


@frozen
class Budget:
    """How large a case may be on a back end."""

    elements: int
    products: int
    """Estimated inner steps of all threads together, see `estimated_work`."""
    bytes: int
    given_elements: int | None = None
    """For a case that the spec names, where more is allowed: it is what the user runs."""


HOST_BUDGET = Budget(elements=1 << 20, products=1 << 22, bytes=256 << 20)
DEVICE_BUDGET = Budget(elements=1 << 25, products=1 << 28, bytes=1 << 29, given_elements=1 << 26)
"""A GPU could do more; the reference, which runs on the CPU, could not."""
_DERIVED_BUDGET = Budget(elements=1 << 17, products=1 << 22, bytes=64 << 20)
"""Cases that nobody asked for must cost little."""


@frozen
class Case:
    """The sizes of one try. `given` when the spec names them, otherwise they were derived."""

    dims: Mapping[str, int]
    given: bool
    plan: Plan
    spec: LaunchSpec | None = None
    """For a launch beside the spec's own: how it is launched."""


def choose_cases(spec: LaunchSpec, kernel: Kernel, budget: Budget) -> tuple[Case, ...] | BadSpec:
    """The cases to try, smallest first.

    A given case that launches nothing is a `BadSpec`, since that is what the user would run; a derived one is left
    out. So is a derived case whose sizes do not divide as the spec's extents divide them (`x[n / 4]` of float4).
    """
    given = given_dims(spec)
    cases: dict[tuple[tuple[str, int], ...], Case] = {}
    refused: BadSpec | None = None
    for dims in given:
        planned = plan(spec, kernel, dims)
        if isinstance(planned, BadSpec):
            return planned
        if _fits(planned, evolve(budget, elements=budget.given_elements or budget.elements)):
            cases[tuple(dims.items())] = Case(dims, True, planned)
        else:
            refused = BadSpec(
                f"{case_label(dims)} is too large to check here: add a smaller size, e.g. `{_suggestion(spec)}`",
                too_large=True,
            )
    largest = {dim.name: max(dim.values) for dim in spec.dims}
    for dims in (*_derived(spec, kernel, given[0], largest), *_crossed(spec, kernel, given)):
        key = tuple(dims.items())
        if key in cases or not _divides(spec, dims):
            continue
        planned = plan(spec, kernel, dims)
        if not isinstance(planned, BadSpec) and _fits(planned, _DERIVED_BUDGET):
            cases[key] = Case(dims, False, planned)
    if refused is not None:
        for dims in _stand_ins(spec, kernel, given[0], budget):
            cases.setdefault(tuple(dims.items()), Case(dims, False, _planned(spec, kernel, dims)))
    if len(cases) < MINIMUM_CASES:
        for dims in _halved(spec, kernel, given[0]):
            key = tuple(dims.items())
            planned = plan(spec, kernel, dims)
            if isinstance(planned, BadSpec) or not _divides(spec, dims):
                break
            if key not in cases and _fits(planned, _DERIVED_BUDGET):
                cases[key] = Case(dims, False, planned)
            if len(cases) >= MINIMUM_CASES:
                break
    if not cases:
        return refused or BadSpec("no case of this kernel can be launched")
    return tuple(sorted(cases.values(), key=lambda case: (case.plan.elements, case.plan.threads)))


def other_launches(spec: LaunchSpec, kernel: Kernel, budget: Budget) -> tuple[tuple[Case, ...], tuple[str, ...]]:
    """The kernel's other launches of the same instantiation, and a sentence about each that is not tried.

    Recorded ones are not among them, see `worker.recorded`.
    """
    cases: list[Case] = []
    left_out: list[str] = []
    for launch in spec.cases:
        if launch.captured is not None or not same_template(launch, spec):
            continue
        own = spec_of(spec, launch)
        planned = plan(own, kernel, launch.dims)
        if isinstance(planned, BadSpec):
            left_out.append(f"{launch.label} is not tried: {planned.reason}")
        elif not _fits(planned, evolve(budget, elements=budget.given_elements or budget.elements)):
            left_out.append(f"{launch.label} is too large to check here")
        else:
            cases.append(Case(launch.dims, True, planned, own))
    return tuple(cases), tuple(left_out)


def same_template(launch: LaunchCase, spec: LaunchSpec) -> bool:
    """A launch runs the instantiation that the spec's own does."""
    return all(spec.template.get(name) == value for name, value in launch.template.items())


def spec_of(spec: LaunchSpec, launch: LaunchCase) -> LaunchSpec:
    """The spec of one of the other launches, alone."""
    return evolve(
        spec,
        dims=tuple(Dim(name, (value,), Origin.LAUNCH_SITE) for name, value in launch.dims.items()),
        buffers=tuple(
            evolve(buffer, extents=launch.extents.get(buffer.name, buffer.extents)) for buffer in spec.buffers
        ),
        scalars={**spec.scalars, **launch.scalars},
        grid=launch.grid,
        block=launch.block,
        smem_bytes=launch.smem_bytes,
        template={**spec.template, **launch.template},
        label=launch.label,
        cases=(),
        captured=launch.captured,
    )


def given_dims(spec: LaunchSpec) -> tuple[dict[str, int], ...]:
    """The cases that the spec names, the benchmark's first: lists of several dims zip, the shorter ones keep their last."""
    if not spec.dims:
        return ({},)
    rows = zip_longest(*(dim.values for dim in spec.dims))
    cases: list[dict[str, int]] = []
    for row in rows:
        before = cases[-1] if cases else {}
        cases.append({d.name: before[d.name] if v is None else v for d, v in zip(spec.dims, row, strict=True)})
    return tuple(cases)


def estimated_work(planned: Plan) -> int:
    """Inner steps of a launch, guessed from sizes alone: M*N*K for three matrices, else elements or threads."""
    counts = sorted((math.prod(shape) for shape, _ in planned.sizes.values()), reverse=True)
    work = max([planned.threads, *counts[:1]])
    square = any(len(shape) > 1 for shape, _ in planned.sizes.values()) or len(planned.dims) > 1
    squared_dim = any(value > 1 and counts and value * value <= counts[0] for value in planned.dims.values())
    if len(counts) >= 3 and (square or squared_dim):
        # sqrt(MK * KN * MN) = MNK.
        work = max(work, math.isqrt(counts[0] * counts[1] * counts[2]))
    return work


def _fits(planned: Plan, budget: Budget) -> bool:
    return (
        planned.elements <= budget.elements
        and planned.bytes <= budget.bytes
        and planned.threads <= 4 * budget.elements
        and estimated_work(planned) <= budget.products
    )


def _fixed(spec: LaunchSpec, kernel: Kernel) -> set[str]:
    """Dims whose values are the spec's alone: they shape the block, were never large, or only one value was found."""
    fixed = {dim.name for dim in spec.dims if max(dim.values) <= _SMALL_DIM}
    # A size read from a launch site comes with others when the launch would cover them; alone, it may be built in.
    fixed |= {dim.name for dim in spec.dims if dim.origin is not Origin.DIRECTIVE and len(set(dim.values)) == 1}
    for expression in (*(spec.block or ()), *spec.template.values()):
        try:
            fixed |= set(names_in(expression))
        except ValueError:
            continue  # a template argument may be a type
    return fixed


_CROSSED = 256
"""How many of the other dims a row length is tried with that shapes the block."""
# 2520 is a multiple of every number up to ten, for what only happens at such a size.
_ONE = (1, 31, 33, 1000, 1009, 2520, 4097)
_TWO = ((1, 1), (3, 33), (31, 31), (33, 7), (64, 65), (101, 47), (17, 129))
_MORE = ((1, 1, 1, 1), (3, 5, 7, 2), (17, 33, 9, 3), (33, 31, 20, 4), (40, 24, 65, 5))


def _derived(
    spec: LaunchSpec, kernel: Kernel, first: Mapping[str, int], largest: Mapping[str, int]
) -> Iterable[dict[str, int]]:
    fixed = _fixed(spec, kernel)
    free = [dim for dim in spec.dims if dim.name not in fixed]
    if not free:
        return
    rows: list[tuple[int, ...]]
    if len(free) == 1:
        threads = _block_threads(spec, kernel, first)
        rows = [(value,) for value in (*_ONE, *(() if threads is None else _around_blocks(threads)))]
    elif len(free) == 2:
        rows = [*_TWO]
    else:
        rows = [tuple(row[i % len(row)] for i in range(len(free))) for row in _MORE]
    for row in rows:
        dims = dict(first)
        for dim, value in zip(free, row, strict=True):
            dims[dim.name] = value
        if all(1 <= dims[dim.name] <= largest[dim.name] for dim in free):
            yield dims


def _around_blocks(threads: int) -> tuple[int, ...]:
    """One block and one element less or more, and the same beyond some whole ones."""
    return threads - 1, threads, threads + 1, 2 * threads + 1, 3 * threads - 1


def _crossed(spec: LaunchSpec, kernel: Kernel, given: Sequence[Mapping[str, int]]) -> Iterable[dict[str, int]]:
    """The given values of dims that shape the block, with more of everything else than they were given with.

    A row length that only comes with a single row gives a mistake in one element of it little chance to show.
    """
    fixed = _fixed(spec, kernel)
    for dims in given[1:]:
        crossed = {
            name: value if name in fixed else max(value, min(given[0][name], _CROSSED)) for name, value in dims.items()
        }
        if crossed != dims:
            yield crossed


def _halved(spec: LaunchSpec, kernel: Kernel, first: Mapping[str, int]) -> Iterable[dict[str, int]]:
    """The benchmark case made smaller and smaller, which keeps whatever powers of two the kernel relies on."""
    fixed = _fixed(spec, kernel)
    dims = dict(first)
    for _ in range(40):
        free = [dim.name for dim in spec.dims if dim.name not in fixed and dims[dim.name] % 2 == 0]
        if not free:
            return
        for name in free:
            dims[name] //= 2
        yield dict(dims)


def _stand_ins(spec: LaunchSpec, kernel: Kernel, first: Mapping[str, int], budget: Budget) -> Iterable[dict[str, int]]:
    """Sizes for a benchmark case that is too large to run.

    One is the benchmark's, halved until it fits: the largest that divides as the benchmark does, so the path that a
    kernel keeps for whole tiles or long arrays is run. The other goes beyond what the threads of the launch could do
    with one element each, where their number does not grow with the size: a loop over the grid that is missing shows.
    """
    fitting = (d for d in _halved(spec, kernel, first) if _runs(spec, kernel, d, budget))
    halved = next(fitting, None)
    if halved is None:
        return
    yield halved
    free = [dim.name for dim in spec.dims if dim.name not in _fixed(spec, kernel)]
    threads = _planned(spec, kernel, halved).threads
    beyond = {**halved, free[0]: threads + 33} if len(free) == 1 else {}
    if beyond and halved[free[0]] <= threads < first[free[0]] and _runs(spec, kernel, beyond, budget):
        if _planned(spec, kernel, beyond).threads == threads:
            yield beyond


def _runs(spec: LaunchSpec, kernel: Kernel, dims: Mapping[str, int], budget: Budget) -> bool:
    planned = plan(spec, kernel, dims)
    return not isinstance(planned, BadSpec) and _divides(spec, dims) and _fits(planned, budget)


def _planned(spec: LaunchSpec, kernel: Kernel, dims: Mapping[str, int]) -> Plan:
    planned = plan(spec, kernel, dims)
    assert not isinstance(planned, BadSpec), "its dims were found to run"
    return planned


def _block_threads(spec: LaunchSpec, kernel: Kernel, dims: Mapping[str, int]) -> int | None:
    planned = plan(spec, kernel, dims)
    return None if isinstance(planned, BadSpec) else math.prod(planned.block)


def undivided(spec: LaunchSpec, kernel: Kernel) -> tuple[str, ...]:
    """A sentence where sizes are not tried because the launch divides them with a remainder."""
    given = given_dims(spec)
    largest = {dim.name: max(dim.values) for dim in spec.dims}
    for dims in _derived(spec, kernel, given[0], largest):
        names = {**spec.constants, **dims}
        for expression in _launch_expressions(spec):
            if (found := _uneven(expression, names)) is not None:
                return (f"sizes that {found[1]} does not divide were not tried: the launch has {found[0]}",)
    return ()


def _divides(spec: LaunchSpec, dims: Mapping[str, int]) -> bool:
    """No extent and nothing of the launch divides a size with a remainder, other than to round up."""
    names = {**spec.constants, **dims}
    extents = (extent for buffer in spec.buffers for extent in buffer.extents)
    return all(_uneven(expression, names) is None for expression in (*extents, *_launch_expressions(spec)))


def _launch_expressions(spec: LaunchSpec) -> tuple[str, ...]:
    return (*(spec.grid or ()), *(spec.block or ()), spec.smem_bytes, *spec.scalars.values())


def _uneven(expression: str, names: Mapping[str, int]) -> tuple[str, int] | None:
    """The first division of an expression that leaves a remainder, and by how much it divides; None where none does."""
    try:
        tree = ast.parse(expression.strip(), mode="eval")
    except (SyntaxError, ValueError):
        return None
    for node in ast.walk(tree):
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Div):
            continue
        numerator, denominator = ast.unparse(node.left), ast.unparse(node.right)
        if isinstance(node.left, ast.BinOp) and isinstance(node.left.op, (ast.Add, ast.Sub)):
            continue  # (n + 3) / 4 rounds up on purpose
        try:
            by = evaluate(denominator, names)
            if evaluate(numerator, names) % by:
                return ast.unparse(node), by
        except (ValueError, ArithmeticError):
            continue
    return None


def _suggestion(spec: LaunchSpec) -> str:
    if not spec.dims:
        return "n = 1000"
    dim: Dim = spec.dims[0]
    return f"{dim.name} = {dim.values[0]} | {min(1000, max(1, dim.values[0] // 1024))}"
