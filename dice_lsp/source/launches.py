"""How to launch a kernel: from its directive, else a launch in the file, else its body, else defaults.

Each part of the spec keeps where it comes from. What cannot be known for certain becomes a sentence in `unknown`, and
the kernel is then not launched: a guess that is wrong would blame the user's kernel for our mistake.
"""

import re
from collections.abc import Iterable, Mapping

from attrs import evolve, frozen

from dice_lsp.records import BufferSpec, Dim, Kernel, LaunchSpec, Origin, Parameter, Reference, Role
from dice_lsp.source.accesses import INTEGERS, Accesses, Extent, IndexUse, Launched, Range, extents
from dice_lsp.source.body import read_accesses
from dice_lsp.source.device_code import context_for
from dice_lsp.source.directives import Directive, parse_directives
from dice_lsp.source.expressions import SIZEOF, ExpressionError, canonical_type, evaluate, names_in
from dice_lsp.source.geometry import Size, inferred_block, inferred_grid, launch_bounds
from dice_lsp.source.headers import template_defaults
from dice_lsp.source.hosts import HostScope, host_scope
from dice_lsp.source.kernels import LaunchSite, SourceModel, fold
from dice_lsp.source.polynomials import Polynomial
from dice_lsp.source.references import find_reference, matched_parameters
from dice_lsp.source.tokens import Kind, lex, split_top_level

BENCHMARK_VALUES = {1: (1 << 20,), 2: (1024, 1024), 3: (256, 256, 256)}
"""Sizes of the benchmark case by the number of free dims; more dims are 32 each."""
CHECK_VALUES = {
    1: ((1,), (31,), (33,), (1000,), (4097,)),
    2: ((1, 1), (31, 33), (100, 65), (257, 129), (7, 500)),
    3: ((1, 1, 1), (31, 33, 17), (65, 40, 33), (100, 50, 70), (16, 128, 31)),
}
"""Sizes that break guards, checked only."""
_MORE = (1, 3, 7, 5)
_ADDING = ("atomicAdd", "atomicSub", "atomicInc", "atomicAdd_block", "atomicAdd_system")
_CEIL_NAMES = re.compile(
    r"\b(?:(?:cuda|std|at|c10)::)?(?:ceil_?div|c?div_?up|idivup|div_?ceil|cdiv|divide_?up|updiv)\s*\(", re.IGNORECASE
)
_CEIL_FLOAT = re.compile(
    r"(?:std::)?ceilf?\s*\(\s*(?:\(\s*(?:float|double)\s*\)|1\.0?f?\s*\*)?\s*(?P<a>\w+|\([^()]*\))\s*/\s*"
    r"(?:\(\s*(?:float|double)\s*\))?\s*(?P<b>\w+)(?:\.0?f?|\.f)?\s*\)"
)
_CAST = re.compile(r"^\(\s*(?:const\s+)?[\w:]+(?:\s+[\w:]+)*\s*\**\s*\)\s*(?=[\w(&*])")
_STATIC_CAST = re.compile(r"^(?:static_cast|reinterpret_cast|const_cast)\s*<[^<>]*>\s*\((?P<inner>.*)\)$", re.DOTALL)
_VECTOR_POINTER = re.compile(
    r"^(?:thrust::)?raw_pointer_cast\s*\(\s*&?(\w+)(?:\.data\(\)|\[0\])\s*\)$|^(\w+)\.data\(\)\.get\(\)$"
)


class _Unresolved(Exception):
    """A host expression that depends on something the file does not say."""


def launch_spec(text: str, kernel: Kernel, model: SourceModel, *, directive: Directive | None = None) -> LaunchSpec:
    """How to launch and judge a kernel of `model`, as far as the file says.

    `directive` takes the place of what the kernel's `//dice:` comments say: an empty one gives what is known without them.
    """
    if directive is None:
        directive = parse_directives(text, kernel)
    return _Builder(text, kernel, model, directive).build()


@frozen
class _Launch:
    """What one launch of the file says, in the names of the kernel's parameters."""

    grid: Size | None
    block: Size | None
    smem_bytes: str | None
    sizes: Mapping[str, str]
    """Buffer -> element count."""
    scalars: Mapping[str, str]
    dims: Mapping[str, int | None]
    """Parameter -> its value, None where only the run decides it."""
    fixed: frozenset[str]
    """Dims that cannot change because the kernel's text has the same constant built in."""
    problems: tuple[str, ...]
    others: tuple[Mapping[str, int | None], ...] = ()
    """Dims of further launches that say the same in everything else."""


class _Builder:
    def __init__(self, text: str, kernel: Kernel, model: SourceModel, directive: Directive) -> None:
        self.text, self.kernel, self.model, self.directive = text, kernel, model, directive
        self.pointers = [p for p in kernel.parameters if p.pointer]
        self.scalars = [p for p in kernel.parameters if not p.pointer]
        self.unknown: list[str] = []
        self.origins: dict[str, Origin] = {}
        self.template: dict[str, str] = {}
        self.constants = dict(model.values)

    def build(self) -> LaunchSpec:
        directive, kernel = self.directive, self.kernel
        sites = [s for s in self.model.launches if s.name == kernel.name and s.complete and not self.shadowed(s)]
        self.read_template(sites)
        self.constants |= self.integer_template()
        own = self.accesses_of(kernel.body_start, kernel.body_end, kernel.parameters, is_kernel=True)
        reference = directive.reference or find_reference(kernel, self.model, self.template)
        self.origins["reference"] = Origin.DIRECTIVE if directive.reference else Origin.INFERRED
        by_reference = self.reference_accesses(reference)
        launch = self.best_launch(sites, own)
        bounds = self.bounds(own, by_reference)
        grid, block, smem_bytes = self.geometry(launch, own, bounds)
        buffers = self.buffers(launch, own, by_reference, grid, block)
        dims, scalars = self.sizes(launch, own, bounds, grid, block, smem_bytes, buffers)
        self.complain(own)
        used = self.used_constants(grid, block, smem_bytes, buffers, scalars)
        spec = LaunchSpec(
            kernel=kernel.name,
            dims=dims,
            buffers=tuple(buffers),
            scalars=scalars,
            grid=grid,
            block=block,
            smem_bytes=smem_bytes or "0",
            template=dict(self.template),
            reference=reference,
            tolerances=directive.tolerances,
            bytes=directive.bytes,
            flops=directive.flops,
            peak=directive.peak,
            cache=directive.cache,
            skip=directive.skip,
            constants=used,
            origins={field: origin for field, origin in self.origins.items() if field != "reference" or reference},
            unknown=(),
        )
        if not self.unknown:
            self.unknown += self.unresolved(spec)
        return evolve(spec, unknown=tuple(dict.fromkeys(self.unknown)))

    def shadowed(self, site: LaunchSite) -> bool:
        """A launch of another kernel with the same name but other parameters."""
        same = [kernel for kernel in self.model.kernels if kernel.name == site.name]
        return len(same) > 1 and len(site.arguments) != len(self.kernel.parameters)

    # Template arguments

    def read_template(self, sites: list[LaunchSite]) -> None:
        kernel, found = self.kernel, {}
        defaults = template_defaults(kernel.template_spelling)
        for site in sites:
            if site.template_text is not None:
                found = self.template_arguments(site.template_text)
            if found:
                break
            found = self.deduced(site)
            if found:
                break
        origin = Origin.LAUNCH_SITE
        if not found:
            for declaration in self.model.declarations:
                if declaration.name == kernel.name and declaration.template_arguments:
                    found = self.template_arguments(declaration.template_arguments)
                    break
        if not found and kernel.template and set(kernel.template) <= defaults.keys():
            origin = Origin.DEFAULT
        merged = {**defaults, **found, **self.directive.template}
        self.template = {label: merged[label] for label in kernel.template if label in merged}
        missing = [label for label in kernel.template if label not in self.template]
        if missing:
            example = f"with {missing[0]} = {'float' if self.is_type(missing[0]) else '256'}"
            self.unknown.append(f"the template argument {missing[0]} is not known: write `{example}` in a //dice: line")
        if kernel.template:
            self.origins["template"] = Origin.DIRECTIVE if self.directive.template else origin

    def is_type(self, label: str) -> bool:
        return re.search(rf"\b(?:typename|class)\s+{re.escape(label)}\b", self.kernel.template_spelling) is not None

    def template_arguments(self, text: str) -> dict[str, str]:
        parts = [" ".join(text[a:b].split()) for a, b in split_top_level(text, angles=True)]
        found = {}
        for label, value in zip(self.kernel.template, parts, strict=False):
            if not self.is_type(label) and not names_in(value) <= self.model.values.keys():
                continue
            if self.is_type(label) and not re.fullmatch(r"[\w:<>, *]+", value):
                continue
            found[label] = value
        # A name of an enclosing template is no type of its own.
        return {
            k: v
            for k, v in found.items()
            if not (self.is_type(k) and re.fullmatch(r"[A-Z]\w?|\w+_t[a-z]*", v) and v not in SIZEOF)
        }

    def deduced(self, site: LaunchSite) -> dict[str, str]:
        """Types that follow from the pointers of a launch: `T*` given a `float*`."""
        scope = self.scope_of(site)
        if scope is None or len(site.arguments) != len(self.kernel.parameters):
            return {}
        found: dict[str, str] = {}
        for parameter, argument in zip(self.kernel.parameters, site.arguments, strict=True):
            kind = scope.types.get(_bare(argument))
            if parameter.pointer and parameter.element in self.kernel.template and kind is not None:
                if found.setdefault(parameter.element, kind) != kind:
                    return {}
        return found

    def integer_template(self) -> dict[str, int]:
        values = {}
        for label, value in self.template.items():
            try:
                values[label] = evaluate(value, self.model.values)
            except ExpressionError:
                continue
        return values

    # What bodies say

    def accesses_of(self, start: int, end: int, parameters: tuple[Parameter, ...], *, is_kernel: bool) -> Accesses:
        """What the body at `start:end` does, with the template's types in the place of its parameters."""
        body = self.text[start:end]
        typed = tuple(evolve(p, element=self.element(p)) for p in parameters) if is_kernel else parameters
        context = context_for(body, (self.model,))
        return read_accesses(body, typed, self.constants, is_kernel=is_kernel, context=context)

    def reference_accesses(self, reference: Reference | None) -> Accesses | None:
        """What the CPU function does with its parameters, in the kernel's names."""
        if reference is None or reference.via != "function":
            return None
        for function in self.model.functions:
            names = (
                matched_parameters(function, self.kernel, self.template) if function.name == reference.text else None
            )
            if names is None:
                continue
            accesses = self.accesses_of(function.body_start, function.body_end, function.parameters, is_kernel=False)
            if accesses.understood:
                return _renamed(accesses, {a: b for a, b in names.items() if a != b})
        return None

    def bounds(self, own: Accesses, by_reference: Accesses | None) -> frozenset[str]:
        """Parameters that bound an index: those may take other values than the file's."""
        found: set[str] = set()
        for accesses in (own, by_reference):
            if accesses is None:
                continue
            ranges = [*accesses.axes.values(), *accesses.block_indices.values()]
            ranges += [range_ for access in accesses.accesses for range_ in access.ranges.values()]
            for range_ in ranges:
                found |= range_.high.identifiers if range_.high is not None else frozenset()
        return frozenset(found)

    # Launches of the file

    def scope_of(self, site: LaunchSite) -> HostScope | None:
        function = next((f for f in self.model.functions if f.start == site.function_start), None)
        if function is None:
            return None
        names = tuple(p.name for p in function.parameters if p.name)
        return host_scope(self.text[function.body_start : function.body_end], names)

    def best_launch(self, sites: list[LaunchSite], own: Accesses) -> _Launch | None:
        """Of several launches the one that is known best, the largest of those; like ones add their sizes."""
        launches = []
        for site in sites:
            scope = self.scope_of(site)
            if scope is not None and len(site.arguments) == len(self.kernel.parameters):
                launches.append(_SiteReader(self, site, scope, own).read())

        def worth(launch: _Launch) -> tuple[bool, int, int]:
            total = 1
            for value in launch.dims.values():
                total *= max(value or 1, 1)
            return launch.grid is not None and launch.block is not None, -len(launch.problems), total

        if not launches:
            return None
        best = max(launches, key=worth)
        alike = [launch.dims for launch in launches if launch is not best and evolve(launch, dims=best.dims) == best]
        return evolve(best, others=tuple(dims for dims in alike if None not in dims.values()))

    # Grid and block

    def geometry(
        self, launch: _Launch | None, own: Accesses, bounds: frozenset[str]
    ) -> tuple[Size | None, Size | None, str | None]:
        directive = self.directive
        if directive.grid is not None and directive.block is not None:
            self.origins |= dict.fromkeys(("grid", "block", "smem_bytes"), Origin.DIRECTIVE)
            return directive.grid, directive.block, directive.smem_bytes
        if (
            launch is not None
            and launch.grid is not None
            and launch.block is not None
            and launch.smem_bytes is not None
        ):
            self.origins |= dict.fromkeys(("grid", "block", "smem_bytes"), Origin.LAUNCH_SITE)
            return launch.grid, launch.block, launch.smem_bytes
        block, block_reason = inferred_block(own, self.kernel, self.constants)
        grid, grid_reason = inferred_grid(own, block)
        if own.dynamic_shared:
            self.unknown.append(
                "the size of the dynamic shared memory is not known: write `launch <<<grid, block, bytes>>>` in a //dice: line"
            )
        for part, reason in (("block", block_reason), ("grid", grid_reason)):
            if reason:
                hint = f" ({launch.problems[0]})" if launch is not None and launch.problems else ""
                self.unknown.append(
                    f"the {part} is not known: {reason}{hint}; write `launch <<<grid, block>>>` in a //dice: line"
                )
        built_in = launch_bounds(self.kernel, self.constants) or own.forced_block
        self.origins["block"] = Origin.INFERRED if built_in else Origin.DEFAULT
        self.origins["grid"] = Origin.INFERRED
        self.origins["smem_bytes"] = Origin.DEFAULT
        return grid, block, "0"

    # Buffers

    def buffers(
        self,
        launch: _Launch | None,
        own: Accesses,
        by_reference: Accesses | None,
        grid: Size | None,
        block: Size | None,
    ) -> list[BufferSpec]:
        given = {buffer.name: buffer for buffer in self.directive.buffers}
        launched = Launched(grid, block) if grid is not None and block is not None else None
        readable = own.understood and not own.empty
        from_body = extents(own, self.pointers, launched, self.constants) if readable else {}
        from_reference = extents(by_reference, self.pointers) if by_reference is not None else {}
        found: list[BufferSpec] = []
        gathers = {**own.gathers, **(by_reference.gathers if by_reference else {})}
        indices = own.indices | (by_reference.indices if by_reference else frozenset())
        for parameter in self.pointers:
            if parameter.name in given:
                found.append(given[parameter.name])
                continue
            buffer = self.buffer(parameter, launch, from_body.get(parameter.name), from_reference.get(parameter.name))
            if buffer is not None:
                found.append(buffer)
        sizes = {buffer.name: " * ".join(_factor(extent) for extent in buffer.extents) for buffer in found}
        for number, buffer in enumerate(found):
            if buffer.origin is Origin.DIRECTIVE or buffer.role not in (Role.IN, Role.IO):
                continue
            if buffer.name in indices:
                self.unknown.append(
                    f"the values of {buffer.name} decide which memory is used:"
                    f" write `in {buffer.name}[...]: int(0, size)` in a //dice: line"
                )
            elif buffer.name in gathers and gathers[buffer.name] in sizes:
                found[number] = evolve(buffer, init=f"int(0,{sizes[gathers[buffer.name]]})")
        return found

    def buffer(
        self, parameter: Parameter, launch: _Launch | None, body: Extent | None, reference: Extent | None
    ) -> BufferSpec | None:
        if parameter.indirections > 1:
            self.unknown.append(f"{parameter.name} is a pointer to pointers, which a launch from here cannot fill")
            return None
        known = next((e for e in (reference, body) if e is not None and e.size is not None), None)
        some = known or reference or body
        role = Role.IN if parameter.const else some.role if some is not None else Role.IO
        if not parameter.const and some is not None and some.size is None and role is Role.IN and some.reason:
            role = Role.IO
        size: tuple[str, ...] | None = None
        origin = Origin.INFERRED
        if launch is not None and parameter.name in launch.sizes:
            size, origin = (launch.sizes[parameter.name],), Origin.LAUNCH_SITE
            if role is Role.OUT and known is not None and known.size is not None and size[0] != known.size.spelled():
                # The allocation may be larger than what is written; what is not written keeps its value.
                role = Role.OUT if self.same(size[0], known.size.spelled()) else Role.IO
        elif known is not None and known.size is not None:
            size = known.shape or (known.size.spelled(),)
        if size is None:
            reason = some.reason if some is not None and some.reason else "the kernel's body is empty"
            word = "in" if parameter.const else "io"
            self.unknown.append(
                f"the size of {parameter.name} is not known: {reason}; write `{word} {parameter.name}[...]` in a //dice: line"
            )
            return None
        init = "normal"
        how = body.accumulates if body is not None and body.role is Role.IO else None
        if how in _ADDING:
            role, init = Role.IO, "zeros"
        elif how is not None and reference is not None and reference.role is Role.OUT:
            self.unknown.append(
                f"the value that {parameter.name} starts with is not known:"
                f" write `io {parameter.name}[{', '.join(size)}]: zeros` in a //dice: line"
            )
        return BufferSpec(parameter.name, role, size, init, origin)

    def same(self, first: str, second: str) -> bool:
        """Whether two sizes are equal for several values of all their names."""
        names = sorted((names_in(first) | names_in(second)) - self.constants.keys())
        for step in (3, 7, 11):
            values = {**self.constants, **{name: step * (place + 2) for place, name in enumerate(names)}}
            try:
                if evaluate(first, values) != evaluate(second, values):
                    return False
            except ExpressionError:
                return False
        return True

    # Dims and scalars

    def sizes(
        self,
        launch: _Launch | None,
        own: Accesses,
        bounds: frozenset[str],
        grid: Size | None,
        block: Size | None,
        smem_bytes: str | None,
        buffers: Iterable[BufferSpec],
    ) -> tuple[tuple[Dim, ...], dict[str, str]]:
        directive = self.directive
        dims = {dim.name: dim for dim in directive.dims}
        scalars = dict(directive.scalars)
        integers = [p for p in self.scalars if self.element(p) in INTEGERS]
        needed: set[str] = set()
        for expression in (*(grid or ()), *(block or ()), smem_bytes or "0", *(e for b in buffers for e in b.extents)):
            needed |= names_in(expression)
        free: list[tuple[str, int | None]] = []
        for parameter in integers:
            label = parameter.name
            if label in dims or label in scalars:
                continue
            if (
                launch is not None
                and label in launch.scalars
                and names_in(launch.scalars[label]) <= (dims.keys() | launch.dims.keys() | self.constants.keys())
            ):
                scalars[label] = launch.scalars[label]
                self.origins[label] = Origin.LAUNCH_SITE
            elif launch is not None and label in launch.dims:
                free.append((label, launch.dims[label]))
            elif label in needed or label in bounds:
                free.append((label, None))
            elif self.element(parameter) == "bool":
                continue
            elif not directive.skip:
                self.unknown.append(
                    f"the value of {label} is not known: write `{label} = ...` or `set {label} = ...` in a //dice: line"
                )
        for parameter in self.scalars:
            label, element = parameter.name, self.element(parameter)
            if parameter in integers or label in scalars or label in dims:
                continue
            if launch is not None and label in launch.scalars:
                scalars[label] = launch.scalars[label]
                self.origins[label] = Origin.LAUNCH_SITE
            elif element not in _FLOATING:
                self.unknown.append(f"{label} is a {element} by value, which a //dice: line cannot describe")
        found = [*dims.values(), *self.free_dims(free, launch, own, bounds, bool(dims), grid, block, buffers)]
        return tuple(found), scalars

    def element(self, parameter: Parameter) -> str:
        return canonical_type(self.template.get(parameter.element, parameter.element))

    def free_dims(
        self,
        free: list[tuple[str, int | None]],
        launch: _Launch | None,
        own: Accesses,
        bounds: frozenset[str],
        beside_given: bool,
        grid: Size | None,
        block: Size | None,
        buffers: Iterable[BufferSpec],
    ) -> list[Dim]:
        """Values of the dims that no directive gives: the launch's own first, then sizes that break guards."""
        if not free:
            return []
        labels = [label for label, _ in free]
        fixed = launch.fixed if launch is not None else frozenset()
        known = all(value is not None for _, value in free)
        scalable = all(label in bounds or own.empty for label in labels) and not fixed and not own.divided & set(labels)
        for label, value in free:
            if value is None and label not in bounds and not own.empty:
                self.unknown.append(
                    f"the value of {label} is not known: nothing bounds an index by it; write `{label} = ...` in a //dice: line"
                )
        default = BENCHMARK_VALUES.get(len(labels), tuple(32 for _ in labels))
        first = tuple(value if value is not None else default[place] for place, (_, value) in enumerate(free))
        rows = [first]
        for other in launch.others if launch is not None and known else ():
            row = tuple(other.get(label) or 0 for label in labels)
            if row not in rows and min(row) > 0:
                rows.append(row)
        if not known and not self.unknown and not self.covers(labels, first, own, grid, block, buffers, beside_given):
            self.unknown.append(
                f"the value of {labels[0]} is not known: the launch does not reach every index for each;"
                f" write `{labels[0]} = ...` in a //dice: line"
            )
        if scalable and not beside_given:
            checks = CHECK_VALUES.get(
                len(labels), tuple(tuple(_MORE[(i + j) % 4] for i in range(len(labels))) for j in range(4))
            )
            rows += [row for row in checks if row not in rows and self.covers(labels, row, own, grid, block, buffers)]
        if not known or scalable:
            rows = [
                row
                for row in rows
                if row == first or all(a <= max(b, 1 << 20) for a, b in zip(row, first, strict=True))
            ]
        origin = Origin.LAUNCH_SITE if known else Origin.DEFAULT
        return [Dim(label, tuple(row[place] for row in rows), origin) for place, label in enumerate(labels)]

    def covers(
        self,
        labels: list[str],
        row: tuple[int, ...],
        own: Accesses,
        grid: Size | None,
        block: Size | None,
        buffers: Iterable[BufferSpec],
        beside_given: bool = False,
    ) -> bool:
        """Whether the launch reaches every index at these sizes, and each buffer has elements."""
        if grid is None or block is None:
            return False
        if beside_given:
            # The sizes that a directive gives decide together with these.
            return True
        names = {**self.constants, **dict(zip(labels, row, strict=True))}
        try:
            blocks = [evaluate(size, names) for size in grid]
            threads = [evaluate(size, names) for size in block]
            if min(*blocks, *threads) < 1:
                return False
            if any(evaluate(extent, names) < 1 for buffer in buffers for extent in buffer.extents):
                return False
            if own.empty:
                reached = 1
                for count, width in zip(blocks, threads, strict=True):
                    reached *= count * width
                return reached >= max(row)
            for place, axis in enumerate("xyz"):
                range_ = own.axes.get(f"gid.{axis}")
                if range_ is not None and range_.high is None:
                    return False
                if range_ is not None and range_.high is not None:
                    if blocks[place] * threads[place] < evaluate(range_.high.spelled(), names):
                        return False
                for reached, bound in (
                    (blocks[place], own.block_indices.get(f"blockIdx.{axis}")),
                    (threads[place], own.thread_bounds.get(f"threadIdx.{axis}")),
                ):
                    if bound is None:
                        continue
                    if bound.high is None or reached < evaluate(bound.high.spelled(), names):
                        return False
        except ExpressionError:
            return False
        return True

    # The end

    def complain(self, own: Accesses) -> None:
        directive = self.directive
        if directive.problems:
            first = directive.problems[0].message
            self.unknown.insert(0, f"the //dice: line has an error: {first}")

    def used_constants(
        self,
        grid: Size | None,
        block: Size | None,
        smem_bytes: str | None,
        buffers: Iterable[BufferSpec],
        scalars: Mapping[str, str],
    ) -> dict[str, int]:
        """The constants of the file that the spec's expressions use."""
        directive = self.directive
        texts = [*(grid or ()), *(block or ()), smem_bytes or "", directive.bytes or "", directive.flops or ""]
        texts += [extent for buffer in buffers for extent in buffer.extents]
        texts += [*scalars.values(), *self.template.values()]
        for buffer in buffers:
            texts += [buffer.init.partition("(")[2].rstrip(")")]
        used = {name for text in texts if text for part in text.split(",") for name in _all_names(part)}
        return {name: value for name, value in self.model.values.items() if name in used}

    def unresolved(self, spec: LaunchSpec) -> list[str]:
        """Names in the spec that nothing gives a value: a last check, so that no launch fails on them."""
        known = {**self.constants, **{dim.name: max(dim.values[0], 1) for dim in spec.dims}}
        for label, text in spec.scalars.items():
            try:
                known[label] = evaluate(text, known)
            except ExpressionError:
                continue
        sentences = []
        parts = [("grid", e) for e in spec.grid or ()] + [("block", e) for e in spec.block or ()]
        parts += [("dynamic shared memory", spec.smem_bytes)]
        parts += [(f"size of {buffer.name}", extent) for buffer in spec.buffers for extent in buffer.extents]
        for what, expression in parts:
            missing = sorted(names_in(expression) - known.keys())
            if missing:
                sentences.append(
                    f"the {what} needs a value for {missing[0]}: write `{missing[0]} = ...` in a //dice: line"
                )
        return sentences


_FLOATING = {"float", "double", "__half", "half", "__nv_bfloat16", "nv_bfloat16", "nv_half", "bfloat16"}


def _all_names(text: str) -> frozenset[str]:
    return frozenset(text[t.start : t.end] for t in lex(text) if t.kind is Kind.NAME)


def _factor(extent: str) -> str:
    return extent if re.fullmatch(r"\w+", extent) else f"({extent})"


def _bare(argument: str) -> str:
    """An argument without casts, an address or a vector's accessor: `(float*)d_x` -> `d_x`."""
    argument = argument.strip()
    while True:
        before = argument
        argument = _CAST.sub("", argument)
        match = _STATIC_CAST.match(argument)
        argument = match["inner"].strip() if match else argument
        vector = _VECTOR_POINTER.match(argument)
        argument = next((g for g in vector.groups() if g), argument) if vector else argument
        if argument == before:
            return argument


def _renamed(accesses: Accesses, names: Mapping[str, str]) -> Accesses:
    """The same accesses in other parameter names."""
    if not names:
        return accesses

    def word(label: str) -> str:
        if label.startswith("@"):
            return label
        return re.sub(r"[A-Za-z_]\w*", lambda m: names.get(m[0], m[0]), label)

    def other(polynomial: Polynomial) -> Polynomial:
        return Polynomial({tuple(sorted(word(n) for n in monomial)): c for monomial, c in polynomial.terms.items()})

    def range_(old: Range) -> Range:
        low, high, relaxed = (None if p is None else other(p) for p in (old.low, old.high, old.relaxed))
        return evolve(old, low=low, high=high, relaxed=relaxed)

    def use(old: IndexUse) -> IndexUse:
        return IndexUse(
            names.get(old.source, old.source), names.get(old.buffer, old.buffer), other(old.factor), other(old.rest),
            {label: range_(r) for label, r in old.ranges.items()},
        )  # fmt: skip

    return evolve(
        accesses,
        accesses=tuple(
            evolve(
                access,
                buffer=names.get(access.buffer, access.buffer),
                subscript=None if access.subscript is None else other(access.subscript),
                ranges={label: range_(old) for label, old in access.ranges.items()},
                guards=tuple(evolve(g, part=other(g.part), bound=other(g.bound)) for g in access.guards),
            )
            for access in accesses.accesses
        ),
        unsure={names.get(label, label): reason for label, reason in accesses.unsure.items()},
        gathers={names.get(a, a): names.get(b, b) for a, b in accesses.gathers.items()},
        indices=frozenset(names.get(label, label) for label in accesses.indices),
        index_uses=tuple(use(old) for old in accesses.index_uses),
    )


class _SiteReader:
    """Reads one launch: every host expression is put into the names of the kernel's parameters."""

    def __init__(self, builder: _Builder, site: LaunchSite, scope: HostScope, own: Accesses) -> None:
        self.kernel, self.site, self.scope, self.own = builder.kernel, site, scope, own
        self.model, self.element = builder.model, builder.element
        self.constants = builder.constants
        self.host_values = fold(scope.values, self.constants)
        self.renamed: dict[str, str] = {}
        self.fixed: set[str] = set()

    def read(self) -> _Launch:
        dims: dict[str, int | None] = {}
        for parameter, argument in zip(self.kernel.parameters, self.site.arguments, strict=True):
            label = _bare(argument)
            if parameter.pointer or self.element(parameter) not in INTEGERS or not label.isidentifier():
                continue
            if label in ("true", "false") or label in self.renamed:
                continue
            self.renamed[label] = parameter.name
            dims[parameter.name] = self.host_values.get(label)
            # A constant that the kernel's text has built in as well is no free size.
            if label in self.model.values and label in self.own.used:
                self.fixed.add(parameter.name)
        problems: list[str] = []
        scalars: dict[str, str] = {}
        for parameter, argument in zip(self.kernel.parameters, self.site.arguments, strict=True):
            if parameter.pointer or parameter.name in dims:
                continue
            value = self.scalar(parameter, argument)
            if value is not None:
                scalars[parameter.name] = value
        return _Launch(
            grid=self.size(self.site.grid, "grid", problems),
            block=self.size(self.site.block, "block", problems),
            smem_bytes=self.plain(self.site.smem or "0", "the dynamic shared memory", problems),
            sizes=self.allocations(),
            scalars=scalars,
            dims=dims,
            fixed=frozenset(self.fixed),
            problems=tuple(problems),
        )

    def scalar(self, parameter: Parameter, argument: str) -> str | None:
        label = _bare(argument)
        if self.element(parameter) in INTEGERS:
            try:
                return self.translate(label)
            except _Unresolved:
                return None
        label = self.scope.values.get(label, self.model.constants.get(label, label))
        number = re.fullmatch(r"[-+]?\s*(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?[fF]?", label.strip())
        return label.strip() if number else None

    def size(self, text: str | None, what: str, problems: list[str]) -> Size | None:
        if text is None:
            problems.append(f"the launch has no {what}")
            return None
        text = text.strip()
        parts: tuple[str, ...] = (text,)
        match = re.match(r"^(?:dim3\s*)?([({])(.*)[)}]$", text, re.DOTALL)
        if text in self.scope.sizes:
            parts = self.scope.sizes[text]
        elif match is not None and (text.startswith("dim3") or match[1] == "{"):
            parts = tuple(match[2][a:b].strip() for a, b in split_top_level(match[2]))
        if not 1 <= len(parts) <= 3:
            problems.append(f"the {what} of the launch is not understood")
            return None
        found = [self.plain(part, f"the {what}", problems) for part in parts]
        x, y, z = (*found, "1", "1")[:3]
        return None if x is None or y is None or z is None else (x, y, z)

    def plain(self, text: str, what: str, problems: list[str]) -> str | None:
        try:
            return self.translate(text)
        except _Unresolved as error:
            problems.append(f"{what} of the launch depends on {error}")
            return None

    def allocations(self) -> dict[str, str]:
        """Element counts of the buffers whose allocation is in the same function."""
        found = {}
        for parameter, argument in zip(self.kernel.parameters, self.site.arguments, strict=True):
            allocation = self.scope.allocations.get(_bare(argument).removeprefix("&")) if parameter.pointer else None
            width = SIZEOF.get(self.element(parameter))
            if allocation is None:
                continue
            try:
                if allocation.count is not None:
                    found[parameter.name] = self.translate(allocation.count)
                elif allocation.bytes is not None and width is not None:
                    found[parameter.name] = self.count(allocation.bytes, width)
            except _Unresolved:
                continue
        return found

    def count(self, text: str, width: int) -> str:
        """Elements in a size in bytes: `n * sizeof(float)` -> `n`."""
        expression = self.translate(text)
        inner = expression
        while inner.startswith("(") and _encloses(inner):
            inner = inner[1:-1].strip()
        factors = [inner[a:b].strip() for a, b in split_top_level(inner, "*")]
        if not re.search(r"[-+/%<>?|&^]", re.sub(r"\([^()]*\)", "", inner)):
            for place, factor in enumerate(factors):
                try:
                    if evaluate(factor, {}) == width:
                        rest = [_CAST.sub("", other) for other in factors[:place] + factors[place + 1 :]]
                        return " * ".join(rest) if rest else "1"
                except ExpressionError:
                    continue
        return f"({expression}) / {width}"

    def translate(self, text: str, depth: int = 0) -> str:
        """A host expression in the names of the kernel's parameters and the file's constants."""
        if depth > 12 or len(text) > 2000:
            raise _Unresolved("a long chain of definitions")
        text = _CEIL_FLOAT.sub(lambda m: f"cdiv({m['a']}, {m['b']})", text)
        text = self.expand(text)
        text = _CEIL_NAMES.sub("cdiv(", text)
        text = re.sub(
            r"\b(\w+)\s*\.\s*([xyz])\b", lambda m: self.member(m[1], m[2]) if m[1] in self.scope.sizes else m[0], text
        )
        pieces, at = [], 0
        needed = names_in(text)
        for token in lex(text):
            label = text[token.start : token.end]
            if token.kind is not Kind.NAME or label not in needed:
                continue
            pieces += [text[at : token.start], self.name(label, depth)]
            at = token.end
        result = " ".join("".join([*pieces, text[at:]]).split())
        try:
            evaluate(result, dict.fromkeys(names_in(result), 1))
        except ExpressionError as error:
            if "zero" not in str(error):
                raise _Unresolved(f"`{text.strip()[:60]}`") from None
        return result

    def member(self, label: str, axis: str) -> str:
        parts = self.scope.sizes[label]
        place = "xyz".index(axis)
        return f"({parts[place]})" if place < len(parts) else "1"

    def name(self, label: str, depth: int) -> str:
        if label in self.renamed:
            return self.renamed[label]
        if label in self.scope.values and label not in self.scope.unknown:
            inner = self.translate(self.scope.values[label], depth + 1)
            return inner if re.fullmatch(r"\w+", inner) else f"({inner})"
        if label in self.model.values and label not in self.scope.unknown:
            # A constant whose name a parameter of the kernel also has must not be taken for it.
            if any(parameter.name == label for parameter in self.kernel.parameters):
                return str(self.model.values[label])
            return label
        raise _Unresolved(f"`{label}`")

    def expand(self, text: str) -> str:
        """Calls of the file's own one-line helpers, as in `#define CEIL(a, b) (((a) + (b) - 1) / (b))`, written out."""
        for _ in range(4):
            match = next((m for m in re.finditer(r"\b(\w+)\s*\(", text) if m[1] in _helpers(self.model)), None)
            if match is None:
                break
            parameters, body = _helpers(self.model)[match[1]]
            end = _closing(text, match.end() - 1)
            inner = text[match.end() : end]
            actual = [inner[a:b].strip() for a, b in split_top_level(inner)]
            if end < 0 or len(actual) != len(parameters):
                break
            values = {p: a if re.fullmatch(r"\w+", a) else f"({a})" for p, a in zip(parameters, actual, strict=True)}
            written = "".join(
                values[piece] if token.kind is Kind.NAME and piece in values else piece
                for token in lex(body)
                for piece in [body[token.start : token.end]]
            )
            written = written if written.startswith("(") and _encloses(written) else f"({written})"
            text = f"{text[: match.start()]}{written}{text[end + 1 :]}"
        return text


def _helpers(model: SourceModel) -> Mapping[str, tuple[tuple[str, ...], str]]:
    """One-line helpers of a file: function-like macros, and functions that only return an expression."""
    found: dict[str, tuple[tuple[str, ...], str]] = {}
    for span in model.skeleton.directives:
        match = re.match(r"#\s*define\s+(\w+)\(([\w\s,]*)\)\s*(.*)", model.text[span.start : span.end], re.DOTALL)
        if match is not None:
            parameters = tuple(part.strip() for part in match[2].split(",") if part.strip())
            found[match[1]] = parameters, match[3].replace("\\", " ").strip()
    for function in model.functions:
        if function.parameters and function.is_host and all(not p.pointer and p.name for p in function.parameters):
            body = model.text[function.body_start : function.body_end].strip()
            match = re.fullmatch(r"return\s+([^;{}]*);", body)
            if match is not None:
                found[function.name] = tuple(p.name for p in function.parameters), match[1]
    return found


def _closing(text: str, at: int) -> int:
    depth = 0
    for token in lex(text, at):
        piece = text[token.start : token.end]
        depth += (piece == "(") - (piece == ")")
        if depth == 0:
            return token.start
    return -1


def _encloses(text: str) -> bool:
    return _closing(text, 0) == len(text) - 1
