"""What can be read in a directive and does not fit: the launch in the file, the kernel's body, the types, a GPU's limits.

Nothing here keeps a kernel from being launched: the user may know better. What is certain to fail is an error, what
contradicts the program a warning, what only says again what is found without it a hint.
"""

import re
from collections.abc import Iterator, Mapping

from attrs import evolve

from dice_lsp.records import BufferSpec, Confidence, Fix, Kernel, LaunchSpec, Origin, Problem, Role, Weight
from dice_lsp.source.directives import FLOATING, Clause, Directive, Part, without_clause
from dice_lsp.source.expressions import SIZEOF, ExpressionError, canonical_type, evaluate, names_in
from dice_lsp.source.kernels import SourceModel
from dice_lsp.source.tokens import split_top_level

MAX_BLOCK_THREADS = 1024
MAX_BLOCK_Z = 64
MAX_GRID = (2**31 - 1, 65535, 65535)
"""Limits of every GPU since compute capability 3.0 (CUDA C++ programming guide, "Features and Technical Specifications")."""
MAX_CLAUSES = 24
"""More of them are not tried one by one."""
_RANGES = {
    "char": (-128, 127), "signed char": (-128, 127), "unsigned char": (0, 255), "short": (-(2**15), 2**15 - 1),
    "unsigned short": (0, 2**16 - 1), "int": (-(2**31), 2**31 - 1), "unsigned int": (0, 2**32 - 1), "bool": (0, 1),
    "int8_t": (-128, 127), "uint8_t": (0, 255), "int16_t": (-(2**15), 2**15 - 1), "uint16_t": (0, 2**16 - 1),
    "int32_t": (-(2**31), 2**31 - 1), "uint32_t": (0, 2**32 - 1), "size_t": (0, 2**64 - 1), "uint64_t": (0, 2**64 - 1),
    "unsigned long": (0, 2**64 - 1), "unsigned long long": (0, 2**64 - 1),
}  # fmt: skip


def review(
    model: SourceModel, kernel: Kernel, directive: Directive, given: LaunchSpec, bare: LaunchSpec
) -> tuple[Problem, ...]:
    """What does not fit about the directive of a kernel, in the order of the text.

    `given` is the launch spec with the directive, `bare` that without it.
    """
    reviewer = _Reviewer(model, kernel, directive, given, bare)
    found = [*reviewer.limits(), *reviewer.launch_site(), *reviewer.shared_memory(), *reviewer.buffers()]
    return tuple(sorted(found, key=lambda problem: (problem.start, problem.end)))


def may_be_needless(directive: Directive) -> tuple[Clause, ...]:
    """The clauses that may say what is found without them; each is worth a look at the launch spec without it."""
    if directive.problems or len(directive.clauses) > MAX_CLAUSES:
        return ()
    return tuple(clause for clause in directive.clauses if clause.parts or clause.word == "ref")


def needless(
    model: SourceModel, kernel: Kernel, directive: Directive, clause: Clause, given: LaunchSpec, less: LaunchSpec
) -> Problem | None:
    """A hint if the kernel is launched and judged the same without the clause, from what is found and not guessed.

    `less` is the launch spec with all of the directive but the clause.
    """
    reviewer = _Reviewer(model, kernel, directive, given, less)
    if less.unknown or bare_of(less) != bare_of(given) or not reviewer.is_found(clause, less):
        return None
    source = f" at the {less.label}" if less.label and reviewer.from_site(clause, less) else ""
    fixes = (Fix("remove the clause", (without_clause(model.text, clause),)),)
    message = f"this is found without the clause{source}"
    return Problem(message, clause.start, clause.end, None, fixes, Weight.HINT, True)


def cases_of(spec: LaunchSpec, constants: Mapping[str, int]) -> list[dict[str, int]]:
    """The names that have a value in each case of a spec, the benchmark case first."""
    count = max((len(dim.values) for dim in spec.dims), default=1)
    found = []
    for case in range(count):
        names = dict(constants)
        for name, text in spec.template.items():
            _solve(name, text, names)
        for dim in spec.dims:
            if dim.values:
                names[dim.name] = dim.values[min(case, len(dim.values) - 1)]
        for name, text in spec.scalars.items():
            if name.isidentifier():
                _solve(name, text, names)
        found.append(names)
    return found


def _solve(name: str, text: str, names: dict[str, int]) -> None:
    value = value_of(text, names)
    if value is not None:
        names[name] = value


def value_of(text: str, names: Mapping[str, int]) -> int | None:
    """The value of an expression, None where it has none."""
    try:
        return evaluate(text, names)
    except ExpressionError:
        return None


def values_of(texts: tuple[str, ...], names: Mapping[str, int]) -> tuple[int, ...] | None:
    """The values of several, None where one has none."""
    values = [value_of(text, names) for text in texts]
    return None if None in values else tuple(value for value in values if value is not None)


def bare_of(spec: LaunchSpec) -> LaunchSpec:
    """A spec without where its parts come from and how sure they are: what is launched and how it is judged."""
    return evolve(
        spec,
        dims=tuple(sorted((evolve(dim, origin=Origin.DIRECTIVE) for dim in spec.dims), key=lambda dim: dim.name)),
        buffers=tuple(
            sorted((evolve(buffer, origin=Origin.DIRECTIVE) for buffer in spec.buffers), key=lambda item: item.name)
        ),
        reference=None if spec.reference is None else evolve(spec.reference, origin=Origin.DIRECTIVE),
        scalars=dict(sorted(spec.scalars.items())),
        constants={},
        origins={},
        confidence={},
        label="",
    )


class _Reviewer:
    def __init__(
        self, model: SourceModel, kernel: Kernel, directive: Directive, given: LaunchSpec, bare: LaunchSpec
    ) -> None:
        self.model, self.kernel, self.directive, self.given, self.bare = model, kernel, directive, given, bare
        self.cases = cases_of(given, model.values)

    def parts(self, *words: str) -> Iterator[tuple[Clause, Part]]:
        for clause in self.directive.clauses:
            if clause.word in words:
                for part in clause.parts:
                    yield clause, part

    def case(self, names: Mapping[str, int]) -> str:
        """How a case is called: by its sizes."""
        said = ", ".join(f"{dim.name} = {names[dim.name]}" for dim in self.given.dims if dim.name in names)
        return f" for {said}" if said else ""

    # What a GPU cannot launch

    def limits(self) -> Iterator[Problem]:
        for _, part in self.parts("launch"):
            for names in self.cases:
                values = values_of(part.values, names)
                fault = None if values is None else self.fault(part.name, values)
                if fault is not None:
                    yield Problem(f"{fault}{self.case(names)}", part.start, part.end)
                    break

    def fault(self, what: str, sizes: tuple[int, ...]) -> str | None:
        said = " x ".join(map(str, sizes))
        if what == "bytes":
            return None if sizes[0] >= 0 else f"{said} bytes of shared memory is no size"
        if min(sizes) < 1:
            return f"the {what} is {said}: it needs at least 1 in each dimension"
        if what == "grid":
            over = [axis for axis, size, most in zip("xyz", sizes, MAX_GRID, strict=False) if size > most]
            return f"the grid is {said}: more than {MAX_GRID['xyz'.index(over[0])]} in {over[0]}" if over else None
        x, y, z = (*sizes, 1, 1)[:3]
        if x * y * z > MAX_BLOCK_THREADS:
            return f"the block has {x * y * z} threads: a GPU takes {MAX_BLOCK_THREADS} at most"
        if z > MAX_BLOCK_Z:
            return f"the block has {z} threads in z: a GPU takes {MAX_BLOCK_Z} at most"
        bounds = self.kernel.launch_bounds
        first = bounds[slice(*split_top_level(bounds)[0])] if bounds and split_top_level(bounds) else ""
        most = value_of(first, self.cases[0]) if first else None
        if most is not None and x * y * z > most:
            return f"the block has {x * y * z} threads: __launch_bounds__ of {self.kernel.name} allows {most}"
        return None

    # What the program does

    def launch_site(self) -> Iterator[Problem]:
        """A block or grid that no launch of the program has, where those are known for certain."""
        names = self.cases[0]
        for _, part in self.parts("launch"):
            if part.name not in ("grid", "block") or not self.is_certain(part.name):
                continue
            own = values_of(part.values, names)
            sizes = getattr(self.bare, part.name)
            there = None if sizes is None else values_of(sizes, names)
            if part.name == "grid" and not any(names_in(size) for size in sizes or ()) and not self.same_dims():
                # Numbers that follow from the program's own sizes say nothing about others.
                continue
            others = [values_of(getattr(case, part.name), {**names, **case.dims}) for case in self.bare.cases]
            if own is None or there is None or own == there or own in others or None in others:
                continue
            label = self.bare.label or "launch in this file"
            text = _size_text(sizes)
            message = f"the {part.name} is {_size_words(own)} here and {_size_words(there)} at the {label}"
            fixes = (Fix(f"take the {part.name} of the {label}", ((part.start, part.end, text),)),)
            yield Problem(message, part.start, part.end, None, fixes, Weight.WARNING)

    def is_certain(self, field: str) -> bool:
        return (
            self.bare.origins.get(field) is Origin.LAUNCH_SITE
            and self.bare.confidence.get(field, Confidence.CERTAIN) is Confidence.CERTAIN
        )

    def same_dims(self) -> bool:
        there = {dim.name: dim.values[0] for dim in self.bare.dims if dim.values}
        return {dim.name: dim.values[0] for dim in self.given.dims if dim.values} == there

    def shared_memory(self) -> Iterator[Problem]:
        body = self.model.text[self.kernel.body_start : self.kernel.body_end]
        if not re.search(r"\bextern\s+(?:__align__\s*\([^)]*\)\s*)?__shared__\b", body):
            return
        for clause in self.directive.clauses:
            named = {part.name for part in clause.parts}
            if clause.word == "launch" and "block" in named and "bytes" not in named:
                block = next(part for part in clause.parts if part.name == "block")
                found = self.bare.smem_bytes if self.bare.smem_bytes not in ("", "0") else None
                message = f"{self.kernel.name} uses dynamic shared memory and this launch gives it none"
                next_step = f": write `<<<grid, block, {found or 'bytes'}>>>`"
                fix = Fix(f"add {found} bytes of shared memory", ((block.end, block.end, f", {found}"),))
                fixes = (fix,) if found is not None else ()
                yield Problem(message + next_step, clause.start, clause.end, None, fixes, Weight.WARNING)

    # What the body does, and what its types hold

    def buffers(self) -> Iterator[Problem]:
        inferred = {buffer.name: buffer for buffer in self.bare.buffers}
        own = {buffer.name: buffer for buffer in self.directive.buffers}
        for clause, part in self.parts("in", "out", "io", "tmp"):
            buffer = own.get(part.name)
            if buffer is None:
                continue
            yield from self.values_fit(buffer, part)
            found = inferred.get(part.name)
            if found is None or found.origin is not Origin.INFERRED:
                continue
            if buffer.role is Role.IN and found.role in (Role.OUT, Role.IO):
                message = (
                    f"{part.name} is an input here, and {self.kernel.name} writes to it: `{found.role.value}` says so"
                )
                edit = (clause.start, clause.start + len(clause.word), found.role.value)
                fixes = (Fix(f"change to `{found.role.value}`", (edit,)),) if len(clause.parts) == 1 else ()
                yield Problem(message, part.start, part.end, None, fixes, Weight.WARNING)
            yield from self.size_fits(buffer, found, part)

    def size_fits(self, buffer: BufferSpec, found: BufferSpec, part: Part) -> Iterator[Problem]:
        for names in self.cases:
            own, wanted = _product(buffer.extents, names), _product(found.extents, names)
            if own is None or wanted is None or own >= wanted:
                continue
            text = f"[{', '.join(found.extents)}]"
            message = (
                f"{part.name} has {own} elements here, and {self.kernel.name} seems to reach {wanted}, {text}"
                f"{self.case(names)}"
            )
            bracket = self.model.text.find("[", part.start, part.end)
            end = self.model.text.rfind("]", part.start, part.end) + 1
            fixes = (Fix(f"change the size to {text}", ((bracket, end, text),)),) if 0 <= bracket < end else ()
            yield Problem(message, part.start, part.end, None, fixes, Weight.WARNING)
            return

    def values_fit(self, buffer: BufferSpec, part: Part) -> Iterator[Problem]:
        parameter = next((p for p in self.kernel.parameters if p.name == buffer.name), None)
        if parameter is None or not buffer.init:
            return
        element = canonical_type(self.given.template.get(parameter.element, parameter.element))
        word, _, rest = buffer.init.partition("(")
        arguments = [rest.rstrip(")")[a:b].strip() for a, b in split_top_level(rest.rstrip(")"))] if rest else []
        names = self.cases[0]
        message, fix = "", ""
        integral = element in SIZEOF and element not in FLOATING and not re.search(r"\d$|complex", element.lower())
        if word == "uniform" and (integral or element in _RANGES):
            message = (
                f"{part.name} holds {element}: numbers between {' and '.join(arguments)} are rounded to whole ones"
            )
            low, high = (re.sub(r"\..*$|[fF]$", "", text) or "0" for text in (*arguments, "0", "1")[:2])
            fix = f"int({low}, {high})" if low != high else "int(0, 100)"
        elif word == "int" and len(arguments) == 2:
            low_value, high_value = value_of(arguments[0], names), value_of(arguments[1], names)
            limits = _RANGES.get(element)
            if low_value is not None and high_value is not None and low_value >= high_value:
                message = f"int({low_value}, {high_value}) is an empty range: it draws from a to b - 1"
            elif limits and low_value is not None and high_value is not None:
                if low_value < limits[0] or high_value - 1 > limits[1]:
                    message = (
                        f"{element} holds {limits[0]} to {limits[1]}, and int({low_value}, {high_value}) goes beyond"
                    )
                    fix = f"int({max(low_value, limits[0])}, {min(high_value, limits[1] + 1)})"
        elif word == "perm" and arguments:
            whole, count = value_of(arguments[0], names), _product(buffer.extents, names)
            if whole is not None and count is not None and (whole < 1 or count % whole):
                message = f"{count} elements are not whole permutations of {whole}{self.case(names)}"
        if message:
            text = self.model.text[part.start : part.end]
            begin = part.start + text.rfind(":") + 1
            begin += len(self.model.text[begin : part.end]) - len(self.model.text[begin : part.end].lstrip())
            fixes = (Fix(f"change to {fix}", ((begin, part.end, fix),)),) if fix else ()
            yield Problem(message, begin, part.end, None, fixes, Weight.WARNING)

    # What says nothing new

    def fields(self, clause: Clause, spec: LaunchSpec) -> list[tuple[Origin | None, Confidence]]:
        """Where what the clause says comes from in another spec, and how sure that is."""
        dims = {dim.name: dim.origin for dim in spec.dims}
        buffers = {buffer.name: buffer.origin for buffer in spec.buffers}
        found: list[tuple[Origin | None, Confidence]] = []

        def note(origin: Origin | None, *names: str) -> None:
            sure = [spec.confidence[name] for name in names if name in spec.confidence]
            found.append((origin, sure[0] if sure else Confidence.CERTAIN))

        for part in clause.parts:
            if clause.word == "":
                note(dims.get(part.name), f"dims.{part.name}")
            elif clause.word in ("in", "out", "io", "tmp"):
                note(buffers.get(part.name), f"buffers.{part.name}", "buffers")
            elif clause.word == "launch":
                field = {"bytes": "smem_bytes"}.get(part.name, part.name)
                note(spec.origins.get(field), field)
            elif clause.word == "with":
                note(spec.origins.get("template"), "template")
            else:
                origin = spec.origins.get(f"scalars.{part.name}", spec.origins.get(part.name))
                note(origin, f"scalars.{part.name}", part.name)
        if clause.word == "ref" and spec.reference is not None:
            note(spec.reference.origin, "reference")
        return found

    def is_found(self, clause: Clause, less: LaunchSpec) -> bool:
        fields = self.fields(clause, less)
        known = (Origin.LAUNCH_SITE, Origin.INFERRED, Origin.CAPTURED)
        return bool(fields) and all(origin in known and sure is not Confidence.GUESS for origin, sure in fields)

    def from_site(self, clause: Clause, less: LaunchSpec) -> bool:
        return any(origin is Origin.LAUNCH_SITE for origin, _ in self.fields(clause, less))


def _product(extents: tuple[str, ...], names: Mapping[str, int]) -> int | None:
    values = values_of(extents, names)
    if values is None:
        return None
    product = 1
    for value in values:
        product *= value
    return product


def _size_words(sizes: tuple[int, ...]) -> str:
    kept = list(sizes)
    while len(kept) > 1 and kept[-1] == 1:
        kept.pop()
    return " x ".join(map(str, kept))


def _size_text(sizes: tuple[str, ...]) -> str:
    kept = list(sizes)
    while len(kept) > 1 and kept[-1] == "1":
        kept.pop()
    return kept[0] if len(kept) == 1 else f"{{{', '.join(kept)}}}"
