"""How to launch a kernel: from its directive, else a launch in the file, else its body, else defaults.

Each part of the spec keeps where it comes from. What cannot be known for certain becomes a sentence in `unknown`, and
the kernel is then not launched: a guess that is wrong would blame the user's kernel for our mistake.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import PurePath

from attrs import evolve

from dice_lsp.records import (
    BufferSpec,
    Confidence,
    Dim,
    Kernel,
    LaunchCase,
    LaunchSpec,
    Origin,
    Parameter,
    Reference,
    Role,
)
from dice_lsp.source.accesses import INDEX_VALUES, INTEGERS, Accesses, Extent, IndexUse, Launched, Range, extents
from dice_lsp.source.body import read_accesses
from dice_lsp.source.device_code import context_for, files_around, models_around
from dice_lsp.source.directives import Directive, parse_directives
from dice_lsp.source.expressions import SIZEOF, ExpressionError, canonical_type, evaluate, names_in
from dice_lsp.source.geometry import (
    Size,
    index_counts,
    inferred_block,
    inferred_grid,
    inferred_smem,
    launch_bounds,
    reach,
)
from dice_lsp.source.headers import template_defaults
from dice_lsp.source.host_machine import HostLaunch
from dice_lsp.source.host_program import HostProgram, host_program
from dice_lsp.source.kernels import Function, SourceModel, parse
from dice_lsp.source.launch_sites import FLOATING, SiteLaunch, SiteReference, read_launch
from dice_lsp.source.polynomials import ONE, Polynomial
from dice_lsp.source.project import ProjectTexts
from dice_lsp.source.python_calls import PythonCalls, torch_reference, with_given_values
from dice_lsp.source.references import find_reference, matched_parameters, may_hold_reference
from dice_lsp.source.structs import Leaf, lanes, leaves
from dice_lsp.source.tokens import Kind, lex, split_top_level
from dice_lsp.source.unlaunchable import opaque_kind, why_not

BENCHMARK_VALUES = {1: (1 << 20,), 2: (1024, 1024), 3: (256, 256, 256)}
"""Sizes of the benchmark case by the number of free dims; more dims are 32 each."""
CHECK_VALUES = {
    1: ((1,), (31,), (33,), (1000,), (4097,)),
    2: ((1, 1), (31, 33), (100, 65), (257, 129), (7, 500)),
    3: ((1, 1, 1), (31, 33, 17), (65, 40, 33), (100, 50, 70), (16, 128, 31)),
}
"""Sizes that break guards, checked only."""
SMALLER_VALUES = {1: ((4096,),), 2: ((256, 512),), 3: ((128, 128, 128),)}
"""Sizes for a host, of kernels that rely on powers of two: vectors without a rest, whole tiles."""
_MORE = (1, 3, 7, 5)
_ADDING = ("atomicAdd", "atomicSub", "atomicInc", "atomicAdd_block", "atomicAdd_system")
MAX_CASES = 8
"""Launches beside the spec's own that are kept."""
MAX_ELEMENTS = 1 << 28
"""Elements of all buffers together that a size which nobody gave may lead to."""
MAX_LAUNCHES = 40
"""Launches of one kernel that are looked at."""


def launch_spec(
    text: str,
    kernel: Kernel,
    model: SourceModel,
    *,
    directive: Directive | None = None,
    project: ProjectTexts | None = None,
    path: str = "",
    calls: PythonCalls | None = None,
) -> LaunchSpec:
    """How to launch and judge a kernel of `model`, as far as the file says, and with `project` the files around it.

    `directive` takes the place of what the kernel's `//dice:` comments say: an empty one gives what is known without them.
    `path` is where the text lies, which `project` needs to find its neighbours. `calls` is what the Python program says
    in whose strings the text stands.
    """
    if directive is None:
        directive = parse_directives(text, kernel)
    program = host_program(model, path, project, () if calls is None else calls.given)

    def wanted() -> dict[str, SourceModel]:
        return files_around(model, path, project, lambda other: may_hold_reference(kernel, other))

    defines = {} if project is None else project.defines
    return _Builder(
        text,
        kernel,
        model,
        directive,
        program,
        calls,
        models_around(model, path, project),
        wanted,
        defines,
        path,
        project,
    ).build()


class _Builder:
    def __init__(
        self,
        text: str,
        kernel: Kernel,
        model: SourceModel,
        directive: Directive,
        program: HostProgram,
        calls: PythonCalls | None = None,
        around: tuple[SourceModel, ...] = (),
        others: Callable[[], dict[str, SourceModel]] = dict,
        defines: Mapping[str, str] | None = None,
        path: str = "",
        project: ProjectTexts | None = None,
    ) -> None:
        self.text, self.kernel, self.model, self.directive, self.program = text, kernel, model, directive, program
        self.calls, self.around, self.others = calls, around, others
        self.defines = defines or {}
        self.path, self.project = path, project
        self.read_members: dict[str, tuple[Leaf, ...]] = {}
        self.pointers = [p for p in kernel.parameters if p.pointer]
        self.scalars = [p for p in kernel.parameters if not p.pointer]
        self.unknown: list[str] = []
        self.origins: dict[str, Origin] = {}
        self.confidence: dict[str, Confidence] = {}
        self.template: dict[str, str] = {}
        self.known_scalars: dict[str, str] = {}
        self.referenced = False
        """A function says what the kernel computes, which may use what the kernel does not."""
        self.constants = dict(model.values)

    def build(self) -> LaunchSpec:
        launches = self.launches()
        spec = self.spec_of(launches[0] if launches else None, launches[1:])
        if self.directive.grid is not None or spec.unknown or not launches:
            return spec
        return evolve(spec, cases=tuple(self.cases(spec, launches)))

    def cases(self, spec: LaunchSpec, launches: list[SiteLaunch]) -> Iterator[LaunchCase]:
        """The other launches of the kernel, as far as they are known as well as the spec's own."""
        first = {dim.name: dim.values[0] for dim in spec.dims}
        seen = {_said(spec, first)}
        for launch in launches[1 : 2 * MAX_CASES]:
            if len(seen) > MAX_CASES:
                return
            if launch.grid is None or launch.block is None or launch.smem_bytes is None or launch.problems:
                continue
            if launch.free and not launches[0].free:
                continue  # made-up sizes beside those of the program itself would be no launch of its
            builder = _Builder(
                self.text,
                self.kernel,
                self.model,
                self.directive,
                self.program,
                self.calls,
                self.around,
                self.others,
                self.defines,
                self.path,
                self.project,
            )
            other = builder.spec_of(launch, [])
            dims = {dim.name: dim.values[0] for dim in other.dims}
            if other.unknown or other.grid is None or other.block is None or _said(other, dims) in seen:
                continue
            if [buffer.name for buffer in other.buffers] != [buffer.name for buffer in spec.buffers]:
                continue
            seen.add(_said(other, dims))
            scalars = dict(other.scalars)
            for label in spec.scalars.keys() - scalars.keys():
                if label in dims:
                    scalars[label] = str(dims[label])
            yield LaunchCase(
                label=launch.place,
                grid=other.grid,
                block=other.block,
                smem_bytes=other.smem_bytes,
                dims=dims,
                scalars=scalars,
                extents={buffer.name: buffer.extents for buffer in other.buffers},
                template=dict(other.template),
            )

    def spec_of(self, launch: SiteLaunch | None, alike: list[SiteLaunch]) -> LaunchSpec:
        """The spec with this launch as its own; those of `alike` that say the same of other sizes give sizes to check."""
        directive, kernel = self.directive, self.kernel
        self.read_template(launch)
        self.constants |= self.integer_template()
        own = self.accesses_of(kernel.body_start, kernel.body_end, kernel.parameters, is_kernel=True)
        reference = directive.reference or self.found_reference()
        self.origins["reference"] = Origin.DIRECTIVE if directive.reference else Origin.INFERRED
        by_reference = self.reference_accesses(reference)
        self.referenced = reference is not None and reference.via == "function"
        bounds = self.bounds(own, by_reference)
        grid, block, smem_bytes = self.geometry(launch, own, bounds)
        buffers = self.buffers(launch, own, by_reference, grid, block)
        if self.calls is not None:
            buffers = with_given_values(self.calls, kernel, self.program.launches, buffers)
        if reference is None and self.calls is not None:
            reference = torch_reference(self.calls, self.model, kernel, self.program.launches, buffers)
        if launch is not None and (reference is None or directive.reference is not None):
            reference = self.compared_reference(reference, launch, buffers)
        dims, scalars = self.sizes(launch, alike, own, bounds, grid, block, smem_bytes, buffers)
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
            confidence=dict(self.confidence),
            label=launch.place if launch is not None and self.origins.get("grid") is Origin.LAUNCH_SITE else "",
            unknown=(),
        )
        if not self.unknown:
            self.unknown += self.unresolved(spec)
        return evolve(spec, unknown=tuple(dict.fromkeys(self.unknown)))

    # Launches of the program

    def launches(self) -> list[SiteLaunch]:
        """The launches of this kernel, best first: the one of which most is known, the largest of those."""
        kernel = self.kernel
        # Constants of the file that the kernel's text has built in.
        words = _words(self.text[kernel.body_start : kernel.body_end]) & (
            self.program.constants | self.model.values.keys()
        )
        words -= {parameter.name for parameter in kernel.parameters}
        found: list[SiteLaunch] = []
        for order, launch in enumerate(self.program.launches):
            if launch.kernel == kernel.name and len(found) < MAX_LAUNCHES:
                place, line = self.place_of(launch)
                read = read_launch(kernel, launch, words, line, place, order)
                if read is not None:
                    found.append(read)

        def worth(launch: SiteLaunch) -> tuple[bool, bool, int, bool, int, int, int]:
            complete = launch.grid is not None and launch.block is not None and launch.smem_bytes is not None
            templated = set(kernel.template) <= launch.template.keys()
            # Of launches of one size that differ in their blocks, one of a middle size stands for all.
            far = abs(launch.block_threads.bit_length() - 9)
            return complete, templated, -len(launch.problems), launch.from_main, launch.threads, -far, -launch.order

        return sorted(found, key=worth, reverse=True)

    def place_of(self, launch: HostLaunch) -> tuple[str, int]:
        line = launch.line if launch.line is not None else self.model.lines.line_of(launch.offset) + 1
        where = f"line {line}" if launch.line is None else f"{PurePath(launch.path).name}:{line}"
        return f"launch at {where}", line

    # Template arguments

    def read_template(self, launch: SiteLaunch | None) -> None:
        kernel = self.kernel
        defaults = template_defaults(kernel.template_spelling)
        found: Mapping[str, str] = launch.template if launch is not None else {}
        origin = Origin.LAUNCH_SITE
        if not set(kernel.template) <= found.keys():
            for declaration in self.model.declarations:
                if declaration.name == kernel.name and declaration.template_arguments:
                    found = {**self.template_arguments(declaration.template_arguments), **found}
                    break
        if launch is None and not found and kernel.template and set(kernel.template) <= defaults.keys():
            origin = Origin.DEFAULT
        merged = {**defaults, **found, **self.directive.template}
        self.template = {label: merged[label] for label in kernel.template if label in merged}
        missing = [label for label in kernel.template if label not in self.template]
        if missing:
            example = f"with {missing[0]} = {'float' if self.is_type(missing[0]) else '256'}"
            self.unknown.append(f"the template argument {missing[0]} is not known: write `{example}` in a //dice: line")
        if kernel.template:
            self.origins["template"] = Origin.DIRECTIVE if self.directive.template else origin
            if not self.directive.template:
                certain = origin is Origin.LAUNCH_SITE and launch is not None and launch.certain
                self.confidence["template"] = Confidence.CERTAIN if certain else Confidence.LIKELY

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

    def integer_template(self) -> dict[str, int]:
        values = {}
        for label, value in self.template.items():
            try:
                values[label] = evaluate(value, self.model.values)
            except ExpressionError:
                continue
        return values

    # What bodies say

    def accesses_of(
        self,
        start: int,
        end: int,
        parameters: tuple[Parameter, ...],
        *,
        is_kernel: bool,
        model: SourceModel | None = None,
    ) -> Accesses:
        """What the body at `start:end` does, with the template's types in the place of its parameters."""
        model = model or self.model
        body = model.text[start:end]
        typed = tuple(evolve(p, element=self.element(p)) for p in parameters) if is_kernel else parameters
        context = context_for(body, (model, *self.around), self.defines)
        constants = {name: value for header in reversed(self.around) for name, value in header.values.items()}
        constants |= model.values
        constants |= self.constants
        return read_accesses(body, typed, constants, is_kernel=is_kernel, context=context)

    def found_reference(self) -> Reference | None:
        """The CPU function of the kernel, in this text or else in a file around it."""
        own = find_reference(self.kernel, self.model, self.template)
        return own or find_reference(self.kernel, self.model, self.template, self.others())

    def reference_accesses(self, reference: Reference | None) -> Accesses | None:
        """What the CPU function does with its parameters, in the kernel's names."""
        if reference is None or reference.via != "function":
            return None
        model = self.others().get(reference.path, self.model) if reference.path else self.model
        for function in model.functions:
            names = (
                matched_parameters(function, self.kernel, self.template) if function.name == reference.text else None
            )
            if names is None:
                continue
            accesses = self.accesses_of(
                function.body_start, function.body_end, function.parameters, is_kernel=False, model=model
            )
            if accesses.understood:
                return _renamed(accesses, {a: b for a, b in names.items() if a != b})
        return None

    def compared_reference(
        self, named: Reference | None, launch: SiteLaunch, buffers: list[BufferSpec]
    ) -> Reference | None:
        """The CPU function whose results the program itself compares with the kernel's; `named` where there is none.

        A function that a directive names is given what the program gives it, where its parameters are not the kernel's.
        """
        if named is not None and (named.via != "function" or self.reference_fits(named)):
            return named
        roles = {buffer.name: buffer for buffer in buffers}
        found = []
        for site in launch.references:
            path = site.path if site.path and site.path != self.path else ""
            text = self.project.text(path) if path and self.project is not None else None
            model = parse(text) if text is not None else None if path else self.model
            functions = [] if model is None else [f for f in model.functions if f.name == site.function]
            if len(functions) == 1 and self.says(functions[0], site, roles):
                found.append(Reference("function", site.function, Origin.INFERRED, path, site.arguments))
        if named is not None:
            same = [reference for reference in found if reference.text == named.text]
            return evolve(named, path=same[0].path, arguments=same[0].arguments) if len(same) == 1 else named
        return found[0] if len(found) == 1 else None

    def reference_fits(self, reference: Reference) -> bool:
        return any(
            function.name == reference.text and matched_parameters(function, self.kernel, self.template) is not None
            for function in self.model.functions
        )

    def says(self, function: Function, site: SiteReference, roles: Mapping[str, BufferSpec]) -> bool:
        """Whether a function's results must be the kernel's: the same inputs, and every output compared by the program."""
        if not function.is_host or function.template or function.return_type not in ("void", ""):
            return False
        own = {parameter.name: parameter for parameter in self.kernel.parameters}
        if {p.name for p in function.parameters} != site.arguments.keys():
            return False
        for parameter in function.parameters:
            label = site.arguments[parameter.name]
            if not parameter.pointer:
                continue
            mine, buffer = own.get(label), roles.get(label)
            if mine is None or buffer is None or parameter.indirections != 1 or mine.indirections != 1:
                return False
            if canonical_type(parameter.element) != self.element(mine):
                return False
            if buffer.role is Role.IN:
                if not parameter.const or label not in site.uploaded:
                    return False
            elif parameter.const or label not in site.compared:
                return False
            elif buffer.role is not Role.OUT and label not in site.same_start:
                return False  # what it starts with is not the same for both
        return True

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

    # Grid and block

    def geometry(
        self, launch: SiteLaunch | None, own: Accesses, bounds: frozenset[str]
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
            self.sure(launch, "grid", "block", "smem_bytes")
            return launch.grid, launch.block, launch.smem_bytes
        block, block_reason = inferred_block(own, self.kernel, self.constants)
        grid, grid_reason = inferred_grid(own, block)
        smem_bytes = inferred_smem(own, block, self.constants) if own.dynamic_shared else "0"
        if smem_bytes is None:
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
        self.origins["smem_bytes"] = Origin.INFERRED if own.dynamic_shared else Origin.DEFAULT
        self.sure(None, "grid", "block", "smem_bytes")
        if launch is not None:
            # The program launches it, but how is not known: most likely in another way.
            self.confidence |= dict.fromkeys(("grid", "block", "smem_bytes"), Confidence.GUESS)
        return grid, block, smem_bytes or "0"

    def sure(self, launch: SiteLaunch | None, *fields: str) -> None:
        """How sure these fields are: what the program certainly does is certain, everything else likely."""
        certain = launch is not None and launch.certain
        self.confidence |= dict.fromkeys(fields, Confidence.CERTAIN if certain else Confidence.LIKELY)

    # Buffers

    def buffers(
        self,
        launch: SiteLaunch | None,
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
        indices = own.indices | (by_reference.indices if by_reference else frozenset())
        for parameter in self.pointers:
            if parameter.name in given:
                found.append(given[parameter.name])
                continue
            body = from_body.get(parameter.name)
            if not self.referenced and readable and parameter.name not in own.used:
                body = Extent(Role.IN, ONE, "nothing uses it")
            buffer = self.buffer(parameter, launch, body, from_reference.get(parameter.name))
            if buffer is not None:
                found.append(buffer)
        for label, member in self.all_members():
            if not member.pointer or label in self.directive.scalars:
                continue
            behind = given[label] if label in given else self.member_buffer(label, member, launch)
            if behind is not None:
                found.append(behind)
        sizes = {
            buffer.name: " * ".join(_factor(extent) for extent in buffer.extents)
            for buffer in found
            if buffer.origin in (Origin.DIRECTIVE, Origin.LAUNCH_SITE)
        }
        counts = index_counts(own, sizes, launched, self.constants)
        if by_reference is not None:
            counts |= index_counts(by_reference, sizes, None, self.constants)
        for number, buffer in enumerate(found):
            if buffer.origin is Origin.DIRECTIVE or buffer.role not in (Role.IN, Role.IO):
                continue
            if buffer.name in indices or counts.get(buffer.name, "") is None:
                self.unknown.append(
                    f"the values of {buffer.name} decide which memory is used:"
                    f" write `in {buffer.name}[...]: int(0, size)` in a //dice: line"
                )
            elif (count := counts.get(buffer.name)) is not None:
                found[number] = evolve(buffer, init=f"int(0,{count})")
                if count == str(INDEX_VALUES):
                    made_up = {buffer.name, *own.gathers.get(buffer.name, "").split()}
                    made_up |= {use.buffer for use in own.index_uses if use.source == buffer.name}
                    self.confidence |= {f"buffers.{label}": Confidence.GUESS for label in made_up}
        return found

    def buffer(
        self, parameter: Parameter, launch: SiteLaunch | None, body: Extent | None, reference: Extent | None
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
        self.sure(launch if origin is Origin.LAUNCH_SITE else None, f"buffers.{parameter.name}")
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
        launch: SiteLaunch | None,
        alike: list[SiteLaunch],
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
        from_launch = dict(launch.dims) if launch is not None else {}
        free: list[tuple[str, int | None]] = []
        for parameter in integers:
            label = parameter.name
            if label in dims or label in scalars:
                continue
            if (
                launch is not None
                and label in launch.scalars
                and names_in(launch.scalars[label]) <= (dims.keys() | from_launch.keys() | self.constants.keys())
            ):
                scalars[label] = launch.scalars[label]
                self.origins[label] = Origin.LAUNCH_SITE
                self.sure(launch, f"scalars.{label}")
        known = dims.keys() | from_launch.keys() | self.constants.keys()
        structs = {p.name for p in self.scalars if self.members(p)}
        for label, member in self.all_members():
            if member.pointer or label in scalars:
                continue
            if launch is not None and label in launch.scalars and _names(launch.scalars[label]) <= known:
                scalars[label] = launch.scalars[label]
                self.origins[label] = Origin.LAUNCH_SITE
                self.sure(launch, f"scalars.{label}")
            elif not directive.skip:
                self.unknown.append(f"the value of {label} is not known: write `set {label} = ...` in a //dice: line")
        unused = own.understood and not own.empty and not self.referenced
        needed: set[str] = set()
        sizes = (*(grid or ()), *(block or ()), smem_bytes or "0", *(e for b in buffers for e in b.extents))
        for expression in (*sizes, *scalars.values()):
            needed |= _names(expression)
        for parameter in integers:
            label = parameter.name
            if label in dims or label in scalars:
                continue
            if label in from_launch:
                free.append((label, from_launch[label]))
            elif label in needed or label in bounds:
                free.append((label, None))
            elif self.element(parameter) == "bool":
                continue
            elif unused and label not in own.used:
                scalars[label] = "1"
                self.origins[label] = Origin.INFERRED
            elif not directive.skip:
                self.unknown.append(
                    f"the value of {label} is not known: write `{label} = ...` or `set {label} = ...` in a //dice: line"
                )
        given = dims.keys() | scalars.keys() | {p.name for p in integers}
        free += [(label, value) for label, value in from_launch.items() if label in needed and label not in given]
        for parameter in self.scalars:
            label, element = parameter.name, self.element(parameter)
            if parameter in integers or label in scalars or label in dims or label in structs:
                continue
            if launch is not None and label in launch.scalars:
                scalars[label] = launch.scalars[label]
                self.origins[label] = Origin.LAUNCH_SITE
                self.sure(launch, f"scalars.{label}")
            elif element not in FLOATING and opaque_kind(element) is None:
                self.unknown.append(f"{label} is a {element} by value, which a //dice: line cannot describe")
        self.known_scalars = {label: text for label, text in scalars.items() if label not in dims}
        found = self.free_dims(free, launch, alike, own, bounds, needed, bool(dims), grid, block, tuple(buffers))
        return (*dims.values(), *found), scalars

    def members(self, parameter: Parameter) -> tuple[Leaf, ...]:
        """What is in a struct that is passed by value; none for a number, and for a struct that is not plain."""
        element = self.element(parameter)
        if parameter.pointer or element in INTEGERS or element in FLOATING or element == "bool":
            return ()
        if element not in self.read_members:
            texts = (self.text, *(model.text for model in self.around))
            found = lanes(element) or leaves(texts, element, self.constants) or ()
            self.read_members[element] = found
        return self.read_members[element]

    def all_members(self) -> Iterator[tuple[str, Leaf]]:
        """Everything in the kernel's structs, with the name that a spec gives it: `p.n`."""
        for parameter in self.scalars:
            for member in self.members(parameter):
                yield f"{parameter.name}.{member.designator}", member

    def member_buffer(self, label: str, member: Leaf, launch: SiteLaunch | None) -> BufferSpec | None:
        """The buffer behind a pointer in a struct. The body is not read for it, so that only a launch can know its size."""
        if launch is None or label not in launch.sizes:
            self.unknown.append(f"the size of {label} is not known: write `io {label}[...]` in a //dice: line")
            return None
        element = canonical_type(member.element)
        if element not in FLOATING:
            # Integers may be indices, and numbers drawn at random would lead anywhere.
            self.unknown.append(
                f"the values of {label} may decide which memory is used:"
                f" write `{'in' if member.const else 'io'} {label}[...]: int(0, size)` in a //dice: line"
            )
            return None
        role = Role.IN if member.const else Role.IO
        self.sure(launch, f"buffers.{label}")
        return BufferSpec(label, role, (launch.sizes[label],), "normal", Origin.LAUNCH_SITE)

    def element(self, parameter: Parameter) -> str:
        return canonical_type(self.template.get(parameter.element, parameter.element))

    def free_dims(
        self,
        free: list[tuple[str, int | None]],
        launch: SiteLaunch | None,
        alike: list[SiteLaunch],
        own: Accesses,
        bounds: frozenset[str],
        needed: set[str],
        beside_given: bool,
        grid: Size | None,
        block: Size | None,
        buffers: tuple[BufferSpec, ...],
    ) -> list[Dim]:
        """Values of the dims that no directive gives: the launch's own first, then sizes that break guards."""
        if not free:
            return []
        labels = [label for label, _ in free]
        fixed = launch.fixed & set(labels) if launch is not None else frozenset()
        any_size = launch.free if launch is not None else frozenset()
        known = all(value is not None for _, value in free)
        scalable = all(label in bounds or own.empty for label in labels) and not fixed and not own.divided & set(labels)
        for label, value in free:
            if value is None and label not in bounds and not own.empty and label not in any_size:
                self.unknown.append(
                    f"the value of {label} is not known: nothing bounds an index by it; write `{label} = ...` in a //dice: line"
                )
        conditions = launch.conditions if launch is not None else ()

        def holds(row: tuple[int, ...]) -> bool:
            return self.holds(conditions, dict(zip(labels, row, strict=True)))

        rows = [self.first_row(free, conditions, own, grid, block, buffers, beside_given)]
        first = rows[0]
        for other in alike if launch is not None and known else ():
            assert launch is not None
            values = [other.dims.get(label) for label in labels]
            row = tuple(value for value in values if value is not None and value > 0)
            if other.says_the_same(launch) and len(row) == len(labels) and row not in rows:
                rows.append(row)
        if not known and not self.unknown and not self.covers(labels, first, own, grid, block, buffers, beside_given):
            self.unknown.append(
                f"the value of {labels[0]} is not known: the launch does not reach every index for each;"
                f" write `{labels[0]} = ...` in a //dice: line"
            )
        elif not known and not self.unknown and not beside_given and not holds(first):
            self.unknown.append(
                f"the value of {labels[0]} is not known: no size was found that the program would launch;"
                f" write `{labels[0]} = ...` in a //dice: line"
            )
        if scalable and not beside_given:
            checks = CHECK_VALUES.get(
                len(labels), tuple(tuple(_MORE[(i + j) % 4] for i in range(len(labels))) for j in range(4))
            )
            rows += [
                row
                for row in checks
                if row not in rows and holds(row) and self.covers(labels, row, own, grid, block, buffers, guarded=True)
            ]
        if not scalable and not fixed and not beside_given and all(value is None for _, value in free):
            rows += [
                row
                for row in SMALLER_VALUES.get(len(labels), ())
                if holds(row) and self.fits(row, first, labels, own, grid, block, buffers)
            ]
        if any(
            buffer.origin is Origin.LAUNCH_SITE and not any(names_in(extent) & set(labels) for extent in buffer.extents)
            for buffer in buffers
        ):
            # Memory of a fixed size holds no more than the launch's own sizes need.
            rows = [row for row in rows if all(a <= b for a, b in zip(row, first, strict=True))]
        if not known or scalable:
            rows = [
                row
                for row in rows
                if row == first or all(a <= max(b, 1 << 20) for a, b in zip(row, first, strict=True))
            ]
        origin = Origin.LAUNCH_SITE if known else Origin.DEFAULT
        for label, value in free:
            self.sure(launch if value is not None else None, f"dims.{label}")
            if value is None and label not in bounds and not own.empty:
                # Nothing says that the kernel is right at any size.
                self.confidence[f"dims.{label}"] = Confidence.GUESS
        return [Dim(label, tuple(row[place] for row in rows), origin) for place, label in enumerate(labels)]

    def fits(
        self,
        row: tuple[int, ...],
        first: tuple[int, ...],
        labels: list[str],
        own: Accesses,
        grid: Size | None,
        block: Size | None,
        buffers: tuple[BufferSpec, ...],
    ) -> bool:
        """Whether a smaller case than the first is launched as that one is."""
        smaller = all(a <= b for a, b in zip(row, first, strict=True)) and row != first
        return smaller and self.covers(labels, row, own, grid, block, buffers)

    def first_row(
        self,
        free: list[tuple[str, int | None]],
        conditions: tuple[str, ...],
        own: Accesses,
        grid: Size | None,
        block: Size | None,
        buffers: tuple[BufferSpec, ...],
        beside_given: bool,
    ) -> tuple[int, ...]:
        """The benchmark case: the launch's own sizes, and for what it leaves open the first that the launch takes."""
        labels = [label for label, _ in free]
        open_ = [place for place, (_, value) in enumerate(free) if value is None]
        threads = {name for size in block or () for name in names_in(size)}
        blocks = [place for place in open_ if labels[place] in threads]
        others = [place for place in open_ if place not in blocks]
        start = BENCHMARK_VALUES.get(len(others), tuple(32 for _ in others))
        base = [value if value is not None else 0 for _, value in free]
        for place, value in zip(others, start, strict=True):
            base[place] = value
        for place in blocks:
            base[place] = 256 if len(blocks) == 1 else 16
        candidates = [list(base)]
        for value in (512, 1024, 128, 64, 32, 16, 8) if blocks else ():
            candidates.append([value if place in blocks else old for place, old in enumerate(base)])
        for value in (1 << 16, 1 << 14, 4096) if len(others) == 1 else ():
            candidates.append([value if place in others else old for place, old in enumerate(base)])
        for value in (1024, 512, 256, 128, 64, 32, 16) if open_ else ():
            candidates.append([value if place in open_ else old for place, old in enumerate(base)])
        if open_ and not beside_given:
            for row in candidates:
                values = dict(zip(labels, row, strict=True))
                if self.holds(conditions, values) and self.covers(labels, tuple(row), own, grid, block, buffers):
                    return tuple(row)
        return tuple(candidates[0])

    def holds(self, conditions: tuple[str, ...], dims: Mapping[str, int]) -> bool:
        """Whether the program comes to the launch at these sizes."""
        try:
            names = self.with_scalars({**self.constants, **dims})
            return all(evaluate(condition, names) for condition in conditions)
        except ExpressionError:
            return False

    def with_scalars(self, names: Mapping[str, int]) -> dict[str, int]:
        """`names` and the scalars that follow from them."""
        found = dict(names)
        for label, text in self.known_scalars.items():
            try:
                found[label] = evaluate(text, names)
            except ExpressionError:
                continue
        return found

    def covers(
        self,
        labels: list[str],
        row: tuple[int, ...],
        own: Accesses,
        grid: Size | None,
        block: Size | None,
        buffers: Iterable[BufferSpec],
        beside_given: bool = False,
        *,
        guarded: bool = False,
    ) -> bool:
        """Whether the launch can be done at these sizes and reaches every index, and each buffer has elements.

        With `guarded` an index that no guard of the kernel bounds is not taken for reached: the size may be any then.
        """
        if grid is None or block is None:
            return False
        if beside_given:
            # The sizes that a directive gives decide together with these.
            return True
        names = self.with_scalars({**self.constants, **dict(zip(labels, row, strict=True))})
        launched = self.origins.get("grid") is Origin.LAUNCH_SITE and not guarded
        try:
            blocks = [evaluate(size, names) for size in grid]
            threads = [evaluate(size, names) for size in block]
            if min(*blocks, *threads) < 1 or threads[0] * threads[1] * threads[2] > 1024:
                return False
            if max(blocks[1:]) > 65535 or blocks[0] >= 1 << 31:
                return False
            elements = [[evaluate(extent, names) for extent in buffer.extents] for buffer in buffers]
            if any(extent < 1 for extents_ in elements for extent in extents_):
                return False
            if sum(math.prod(extents_) for extents_ in elements) > MAX_ELEMENTS:
                return False
            if own.empty:
                reached = 1
                for count, width in zip(blocks, threads, strict=True):
                    reached *= count * width
                return reached >= max(row)
            for place, axis in enumerate("xyz"):
                range_ = own.axes.get(f"gid.{axis}")
                if range_ is not None and range_.high is None and not launched:
                    return False
                if range_ is not None and range_.high is not None:
                    if reach(own, axis, blocks[place], threads[place]) < evaluate(range_.high.spelled(), names):
                        return False
                for reached, bound in (
                    (blocks[place], own.block_indices.get(f"blockIdx.{axis}")),
                    (threads[place], own.thread_bounds.get(f"threadIdx.{axis}")),
                ):
                    if bound is None:
                        continue
                    # What nothing but the launch bounds, the launch reaches.
                    if bound.high is None and (launched or f"gid.{axis}" in own.axes or axis in own.strided):
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
        self.unknown += why_not(self.kernel, self.model)

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


def _said(spec: LaunchSpec, dims: Mapping[str, int]) -> tuple[object, ...]:
    """What tells one launch from another: the numbers that come out."""
    names = {**spec.constants, **dims}

    def number(expression: str) -> str:
        try:
            return str(evaluate(expression, names))
        except ExpressionError:
            return expression

    sizes = (*(spec.grid or ()), *(spec.block or ()), spec.smem_bytes, *(e for b in spec.buffers for e in b.extents))
    return (
        tuple(number(size) for size in sizes),
        tuple(sorted((label, number(text)) for label, text in spec.scalars.items())),
        tuple(sorted(dims.items())),
        tuple(sorted(spec.template.items())),
    )


@lru_cache(maxsize=256)
def _words(body: str) -> frozenset[str]:
    return frozenset(re.findall(r"[A-Za-z_]\w*", body))


def _all_names(text: str) -> frozenset[str]:
    return frozenset(text[t.start : t.end] for t in lex(text) if t.kind is Kind.NAME)


def _names(expression: str) -> frozenset[str]:
    """Names that an expression needs values for, one with floats too."""
    try:
        return names_in(expression)
    except ExpressionError:
        return _all_names(expression)


def _factor(extent: str) -> str:
    return extent if re.fullmatch(r"\w+", extent) else f"({extent})"


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
