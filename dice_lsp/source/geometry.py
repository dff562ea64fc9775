"""Grid and block of a kernel that no launch says, read from its body.

Sound or silent: each function answers with what the body leaves no doubt about, or with a phrase that says why not.
"""

from collections.abc import Mapping

from dice_lsp.records import Kernel
from dice_lsp.source.accesses import Accesses, Range
from dice_lsp.source.expressions import ExpressionError, evaluate
from dice_lsp.source.polynomials import Polynomial
from dice_lsp.source.tokens import split_top_level

Size = tuple[str, str, str]
"""Sizes in x, y and z as expressions."""

BLOCK_THREADS = "256"
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
        if own.block_sized_steps:
            return None, "a loop steps through a tile in rows of the block"
        missing = [axis for axis in axes if axis not in forced]
        if missing:
            return None, f"its size in {sorted(missing)[0]} is not built into the kernel"
        x, y, z = (str(forced.get(axis, 1)) for axis in "xyz")
        return (x, y, z), ""
    if own.shared:
        if axes <= {"x"}:
            widths = {sizes[0] for sizes in own.shared if len(sizes) == 1}
            if all(len(sizes) == 1 for sizes in own.shared) and len(widths) == 1 and (width := widths.pop()):
                if own.thread_axes and width <= 1024 and width >= 64:
                    return (str(width), "1", "1"), ""
        return None, "the shared memory is made for one size of block"
    bounds = launch_bounds(kernel, constants)
    if axes <= {"x"}:
        return (bounds or BLOCK_THREADS, "1", "1"), ""
    if own.thread_axes:
        return None, "threads of a block work together in more than one dimension"
    if bounds is not None and int(bounds) < 256:
        return None, "the launch bounds leave its shape open"
    return (("16", "16", "1") if axes <= {"x", "y"} else ("8", "8", "4")), ""


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
        if global_index is not None and block_index is not None:
            return None, f"blockIdx.{axis} is used in two ways"
        used = global_index or block_index
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


def _whole(range_: Range) -> Polynomial:
    """The range's end without what an interior guard takes off: threads beyond it do nothing."""
    assert range_.high is not None
    relaxed = range_.relaxed
    return relaxed if relaxed is not None and (relaxed - range_.high).never_negative_for_sizes else range_.high
