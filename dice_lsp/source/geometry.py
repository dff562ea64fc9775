"""Grid and block of a kernel that no launch says, read from its body.

Sound or silent: each function answers with what the body leaves no doubt about, or with a phrase that says why not.
"""

import math
import re
from collections.abc import Iterator, Mapping

from dice_lsp.records import Kernel
from dice_lsp.source.accesses import (
    INDEX_VALUES,
    Accesses,
    Launched,
    Range,
    elements_beside,
    index_values,
    shared_extents,
)
from dice_lsp.source.expressions import SIZEOF, ExpressionError, evaluate
from dice_lsp.source.polynomials import ZERO, Polynomial, ceiling, number
from dice_lsp.source.tokens import split_top_level

Size = tuple[str, str, str]
"""Sizes in x, y and z as expressions."""

BLOCK_THREADS = "256"
_BLOCK_NAME = re.compile(
    r"(?:k|n|num|NUM)?_?(?:threads?|THREADS?|Threads?)(?:_?(?:per|PER|Per)_?(?:block|BLOCK|Block))?|num_?threads|NUM_?THREADS"
    r"|(?:k|c)?_?(?:block|BLOCK|Block|cta|CTA)_?(?:size|SIZE|Size|dim|DIM|Dim|threads|THREADS)?(?:_?[xX])?|B|BS|TPB|NT"
)
"""What a template parameter is called that is the number of threads of a block."""
STRIDED_BLOCKS = "64"
"""Blocks of a kernel that covers its data whatever the grid is."""


def launch_bounds(kernel: Kernel, constants: Mapping[str, int]) -> str | None:
    """The first argument of `__launch_bounds__`, if it has a value."""
    if kernel.launch_bounds is None:
        return None
    parts = split_top_level(kernel.launch_bounds)
    first = kernel.launch_bounds[parts[0][0] : parts[0][1]].strip() if parts else ""
    try:
        return str(evaluate(first, constants))
    except ExpressionError:
        return None


def inferred_block(own: Accesses, kernel: Kernel, constants: Mapping[str, int]) -> tuple[Size | None, str]:
    """The block that a body is written for, or why it is not known."""
    axes = {label[-1] for label in own.axes} | own.strided | own.thread_axes
    if not own.understood:
        return None, "the kernel's body cannot be read"
    if own.whole_grid:
        return None, "a grid-wide barrier depends on it"
    if not own.empty and not axes and not own.block_indices and own.accesses:
        return None, "the kernel does not say which thread does what"
    for range_ in own.thread_bounds.values():
        if range_.high is not None and range_.high.constant is None:
            return None, f"a guard compares threadIdx with `{range_.high.spelled()}`"
        if range_.high is not None and (range_.high.constant or 0) > int(BLOCK_THREADS):
            return None, f"a guard compares threadIdx with {range_.high.constant}"
    forced = own.forced_block
    if forced:
        sides = {axis: own.block_steps.get(axis, forced.get(axis)) for axis in axes | forced.keys()}
        if 0 in sides.values():
            return None, "loops step through tiles in rows of different blocks"
        missing = sorted(axis for axis, side in sides.items() if side is None)
        if missing:
            return None, f"its size in {missing[0]} is not built into the kernel"
        x, y, z = (str(sides.get(axis) or 1) for axis in "xyz")
        if not _within(own, (x, y, z), constants):
            return None, "its shared memory is too small for the block that it has built in"
        return (x, y, z), ""
    if own.shared:
        for shape in _candidates(own, axes, kernel, constants):
            if _fits(own, shape, axes, constants):
                return shape, ""
        return None, "the shared memory is made for one size of block"
    bounds = launch_bounds(kernel, constants)
    if axes <= {"x"}:
        return (_named_size(kernel, constants) or bounds or BLOCK_THREADS, "1", "1"), ""
    if own.thread_axes:
        return None, "threads of a block work together in more than one dimension"
    if bounds is not None and int(bounds) < 256:
        return None, "the launch bounds leave its shape open"
    return (("16", "16", "1") if axes <= {"x", "y"} else ("8", "8", "4")), ""


def _named_size(kernel: Kernel, constants: Mapping[str, int]) -> str | None:
    """The value of a template parameter that is called as the number of threads of a block is."""
    for label in kernel.template:
        value = constants.get(label, 0)
        if _BLOCK_NAME.fullmatch(label) and 32 <= value <= 1024 and value % 32 == 0:
            return str(value)
    return None


def _candidates(own: Accesses, axes: set[str], kernel: Kernel, constants: Mapping[str, int]) -> Iterator[Size]:
    """Blocks that shared memory may be made for, the likeliest first."""
    arrays = [array.sizes for array in own.shared.values() if None not in array.sizes]
    static = [tuple(size or 0 for size in sizes) for sizes in arrays]
    if axes <= {"x"}:
        named = [_named_size(kernel, constants), launch_bounds(kernel, constants)]
        widths = sorted({sizes[0] for sizes in static if 32 <= sizes[0] <= 1024}, reverse=True)
        for width in (*named, *(str(width) for width in widths), BLOCK_THREADS, "128", "64", "32"):
            if width is not None:
                exact = int(width) in widths
                if not exact or width in named or _reaches(own, (width, "1", "1"), constants):
                    yield width, "1", "1"
        return
    if not axes <= {"x", "y"}:
        return
    for sizes in static:
        if len(sizes) == 2:
            rows, columns = sizes
            # A row that is a column longer than the block keeps banks apart.
            for x in sorted((columns, columns - 1, rows), key=lambda side: side % 8 != 0):
                y = own.block_steps.get("y", rows)
                if x > 1 and y > 0 and x * y <= 1024:
                    yield str(x), str(y), "1"


def _reaches(own: Accesses, shape: Size, constants: Mapping[str, int]) -> bool:
    """Whether the block touches the last element of some array."""
    touched = shared_extents(own, shape, constants)
    return any(
        size is not None and len(own.shared[label].sizes) == 1 and size.constant == own.shared[label].sizes[0]
        for label, size in touched.items()
    )


def _within(own: Accesses, shape: Size, constants: Mapping[str, int]) -> bool:
    """Whether a block stays inside of all shared arrays, as far as that is known."""
    for label, size in shared_extents(own, shape, constants).items():
        sides = own.shared[label].sizes if label in own.shared else (None,)
        known = [side for side in sides if side is not None]
        if size is not None and size.constant is not None and len(known) == len(sides):
            if size.constant > math.prod(known):
                return False
    return True


def _fits(own: Accesses, shape: Size, axes: set[str], constants: Mapping[str, int]) -> bool:
    """Whether a block stays within all shared arrays and, in two dimensions, fills them."""
    touched = shared_extents(own, shape, constants)
    for label, array in own.shared.items():
        if array.dynamic:
            continue
        size = touched.get(label, ZERO)
        if label in own.unsure or None in array.sizes or size is None or size.constant is None:
            return False
        total = 1
        for side in array.sizes:
            total *= side or 0
        last = array.sizes[-1] or 1
        if size.constant > total:
            return False
        if len(axes) > 1 and len(array.sizes) > 1:
            column = (size.constant - 1) % last
            # A column more than is used keeps banks apart.
            if size.constant <= total - last or column < last - 2:
                return False
    return True


def inferred_smem(own: Accesses, block: Size | None, constants: Mapping[str, int]) -> str | None:
    """Bytes of dynamic shared memory that the subscripts need; None where they do not say."""
    arrays = {label: array for label, array in own.shared.items() if array.dynamic}
    if block is None or not arrays:
        return None
    touched = shared_extents(own, block, constants)
    sizes = []
    for label, array in arrays.items():
        count, width = touched.get(label), SIZEOF.get(array.element)
        if count is None or width is None or label in own.unsure or any(n.startswith("gridDim") for n in count.names):
            return None
        sizes.append((count, width))
    if len({(count, width) for count, width in sizes}) > 1:
        # Several names for the same memory: the longest counts, where it is known which that is.
        if any(count.constant is None for count, _ in sizes):
            return None
        return str(max((count.constant or 0) * width for count, width in sizes))
    count, width = sizes[0]
    text = count.spelled()
    return f"{text} * {width}" if count.monomial else f"({text}) * {width}"


def inferred_grid(own: Accesses, block: Size | None) -> tuple[Size | None, str]:
    """The grid that reaches every index with this block, or why it is not known."""
    if block is None or not own.understood:
        return None, "" if block is None else "the kernel's body cannot be read"
    if own.empty:
        return None, "the kernel's body is empty"
    if not own.accesses:
        return None, "no subscript of the kernel's own says which thread does what"
    sizes = []
    for axis, width in zip("xyz", block, strict=True):
        global_index, block_index = own.axes.get(f"gid.{axis}"), own.block_indices.get(f"blockIdx.{axis}")
        if global_index is not None and block_index is not None and block_index.high is not None:
            side = own.forced_block.get(axis) or (int(width) if width.isdigit() else 0)
            agree = side and global_index.high is not None and ceiling(_whole(global_index), number(side))
            if not agree or agree != _whole(block_index):
                return None, f"blockIdx.{axis} is used in two ways"
        used = global_index or block_index
        if axis in own.strided and global_index is None and (block_index is None or block_index.high is None):
            used = None
        width = str(own.forced_block.get(axis, width))
        if axis in own.strided and used is None:
            sizes.append(STRIDED_BLOCKS)
        elif used is None:
            sizes.append("1")
        elif used.high is None:
            return (
                None,
                f"nothing bounds {'the index of a thread' if global_index else f'blockIdx.{axis}'} in {axis}",
            )
        elif global_index is not None:
            high = _whole(used)
            sizes.append(high.spelled() if width == "1" else f"cdiv({high.spelled()}, {width})")
        else:
            sizes.append(used.high.spelled())
    x, y, z = sizes
    return (x, y, z), ""


def reach(own: Accesses, axis: str, blocks: int, threads: int) -> int:
    """How many indices along an axis a launch reaches; a block that steps through its tile reaches all of it."""
    tile = own.forced_block.get(axis, threads)
    return blocks * (tile if own.block_steps.get(axis) == threads else threads)


def index_counts(
    own: Accesses, sizes: Mapping[str, str], launched: Launched | None, constants: Mapping[str, int]
) -> dict[str, str | None]:
    """How many values the elements of an integer buffer may have that are used as indices, as an expression.

    `sizes` are the element counts of buffers whose memory is given; any other buffer is as long as its indices need. None
    where uses of the same buffer ask for different counts.
    """
    counts: dict[str, str | None] = {}

    def note(source: str, count: str) -> None:
        counts[source] = count if counts.get(source, count) == count else None

    for source, buffer in own.gathers.items():
        note(source, sizes.get(buffer, str(INDEX_VALUES)))
    values = index_values(own)
    for use in own.index_uses:
        if use.source in values:
            note(use.source, values[use.source].spelled())
            continue
        if use.buffer not in sizes:
            note(use.source, str(INDEX_VALUES))
            continue
        taken = elements_beside(own, use, launched, constants)
        if taken is None:
            counts[use.source] = None
            continue
        note(use.source, f"({sizes[use.buffer]} - ({taken.spelled()})) / ({use.factor.spelled()}) + 1")
    return counts


def _whole(range_: Range) -> Polynomial:
    """The range's end without what an interior guard takes off: threads beyond it do nothing."""
    assert range_.high is not None
    relaxed = range_.relaxed
    return relaxed if relaxed is not None and (relaxed - range_.high).never_negative_for_sizes else range_.high
