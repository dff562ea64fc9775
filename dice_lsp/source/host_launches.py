"""How host code starts kernels: with chevrons, or through the CUDA runtime."""

from collections.abc import Sequence

from dice_lsp.source.host_expressions import Expressions
from dice_lsp.source.host_machine import DIM3, HostLaunch
from dice_lsp.source.host_tree import Tree
from dice_lsp.source.host_values import (
    NOTHING,
    Address,
    Array,
    FunctionName,
    Number,
    Pointer,
    Spot,
    Struct,
    Unknown,
    Value,
    whole,
)


class Launches(Expressions):
    """Records launches, each once."""

    def kernel_call(self, tree: Tree, function: Tree, chevrons: Tree, listed: Tree) -> Value:
        name, template = self.callee(function)
        name = name.rsplit("::", 1)[-1]
        given: tuple[str, ...] | None = template or None
        spot = self.frames[-1].names.get(name) if name else None
        target = self.read(spot) if spot is not None else self.evaluate(function) if not name else None
        if isinstance(target, FunctionName):
            name, given = target.name, target.template or given
        elif name in self.frames[-1].types:
            name = self.frames[-1].types[name]
        parts = [self.evaluate(kid) for kid in chevrons.kids]
        arguments = tuple(self.evaluate(kid) for kid in listed.kids)
        if self.state is None or not name:
            return NOTHING
        self.record_launch(name, given, parts, arguments, tree.start)
        return NOTHING

    def record_launch(
        self,
        name: str,
        template: tuple[str, ...] | None,
        parts: Sequence[Value],
        arguments: tuple[Value, ...] | None,
        start: int,
    ) -> None:
        assert self.state is not None
        self.note("launch", name, arguments or ())
        if name not in self.kernels:
            return
        sizes = [self.dim3(part) for part in parts[:2]]
        numbers = [
            tuple(value for axis in DIM3 if isinstance(value := size.fields[axis], Number))
            if size is not None
            else None
            for size in sizes
        ]
        grid = numbers[0] if numbers and numbers[0] is not None and len(numbers[0]) == 3 else None
        block = numbers[1] if len(numbers) > 1 and numbers[1] is not None and len(numbers[1]) == 3 else None
        smem = parts[2] if len(parts) > 2 else whole(0)
        shared = smem if isinstance(smem, Number) else None
        sure = self.state.sure and self.from_main and self.reached
        terms = [number.term for size in (grid, block) for number in size or ()]
        terms += [shared.term] if shared is not None else []
        terms += [value.term for value in arguments or () if isinstance(value, Number)]
        assumed = any(term.assumed for term in terms) or any(term.assumed for term, _ in self.state.conditions)
        place = self.frames[-1].unit.text.place(start)
        known = (name, template, place, tuple(term.key for term in terms), _pointers(arguments))
        if known in self.seen:
            return
        self.seen.add(known)
        self.started.add(name)
        self.launches.append(
            HostLaunch(
                name, template, grid, block, shared, arguments, place.path, place.offset, self.entry,
                sure and not assumed, self.state.conditions, self.reached, self.from_main,
            )
        )  # fmt: skip

    def runtime_launch(self, name: str, values: tuple[Value, ...], tree: Tree | None) -> Value | None:
        """`cudaLaunchKernel(function, grid, block, arguments, smem, stream)` and its relatives."""
        start = tree.start if tree is not None else 0
        if self.state is None:
            return None
        if name in ("cudaLaunchKernel", "cudaLaunchCooperativeKernel") and len(values) >= 4:
            function = self.function_of(values[0])
            if function is not None:
                smem = values[4] if len(values) > 4 else whole(0)
                arguments = self.packed(values[3])
                self.record_launch(
                    function.name, function.template or None, (values[1], values[2], smem), arguments, start
                )
            return whole(0)
        if name == "cudaLaunchKernelEx" and len(values) >= 2:
            function = self.function_of(values[1])
            config = values[0]
            if isinstance(config, Address):
                config = self.read(Spot(config.cell, config.path))
            if function is not None and isinstance(config, Struct):
                parts = tuple(config.fields.get(part, NOTHING) for part in ("gridDim", "blockDim", "dynamicSmemBytes"))
                if isinstance(parts[2], Unknown):
                    parts = (parts[0], parts[1], whole(0))
                self.record_launch(function.name, function.template or None, parts, tuple(values[2:]), start)
            return whole(0)
        return None

    def function_of(self, value: Value) -> FunctionName | None:
        return value if isinstance(value, FunctionName) else None

    def packed(self, value: Value) -> tuple[Value, ...] | None:
        """The values behind an array of addresses."""
        if isinstance(value, Address):
            value = self.read(Spot(value.cell, value.path[:-1] if value.path and value.path[-1] == 0 else value.path))
        if not isinstance(value, Array):
            return None
        found: list[Value] = []
        for item in value.items:
            if isinstance(item, Address):
                found.append(self.read(Spot(item.cell, item.path)))
            elif isinstance(item, Pointer) and item.block is None and item is value.items[-1]:
                break
            else:
                found.append(NOTHING)
        return tuple(found)


def _pointers(arguments: tuple[Value, ...] | None) -> tuple[str, ...]:
    """What tells the buffers of one launch from those of another."""
    found = []
    for value in arguments or ():
        if isinstance(value, Pointer):
            nbytes = value.block.nbytes.key if value.block is not None and value.block.nbytes is not None else ""
            found.append(f"{nbytes}+{value.offset.key}")
    return tuple(found)
