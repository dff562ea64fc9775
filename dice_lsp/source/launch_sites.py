"""One launch of the host program, in the words of its kernel: sizes by the names of the kernel's parameters.

What the host calls `N` and hands over as `n` is `n` here. A size of a function that nobody calls, which the kernel is not
given, becomes a dim of its own name. Where a size enters in a way that no expression says, the dims that may have a part
in it are `fixed`: they keep the value that the program gives them.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

from attrs import field, frozen

from dice_lsp.records import Kernel, Parameter
from dice_lsp.source.accesses import INTEGERS
from dice_lsp.source.expressions import SIZEOF, canonical_type, names_in
from dice_lsp.source.geometry import Size
from dice_lsp.source.headers import template_defaults
from dice_lsp.source.host_machine import HostLaunch
from dice_lsp.source.host_references import resolved
from dice_lsp.source.host_values import (
    Address,
    Number,
    Pointer,
    Struct,
    Term,
    Unspellable,
    Value,
    build,
    constant,
    divided,
    is_size,
    replaced,
    spell,
    spell_plainly,
)

FLOATING = {"float", "double", "__half", "half", "__nv_bfloat16", "nv_bfloat16", "nv_half", "bfloat16"}
_MAX_ROUNDS = 6


@frozen
class SiteReference:
    """A CPU function whose results the program compares with the launch's."""

    function: str
    path: str
    arguments: Mapping[str, str]
    """Parameter of the function -> parameter of the kernel, or an expression of its names and the launch's dims."""
    uploaded: frozenset[str]
    """Parameters of the kernel that are copies of the function's arrays."""
    same_start: frozenset[str]
    """Parameters of the kernel that hold at the launch what the function's arrays hold at its call, or nothing that matters."""
    compared: frozenset[str]
    """Parameters of the kernel that the program compares, when nothing but the kernel has written to them."""


@frozen
class SiteLaunch:
    """What one launch says, in the names of the kernel's parameters and of its own free sizes."""

    grid: Size | None
    block: Size | None
    smem_bytes: str | None
    sizes: Mapping[str, str]
    """Buffer -> element count, of those whose allocation is known."""
    scalars: Mapping[str, str]
    dims: Mapping[str, int | None]
    """Dim -> its value, None where any would do or only the run decides it."""
    free: frozenset[str]
    """Dims whose value nothing decides: any size that meets the conditions is right."""
    fixed: frozenset[str]
    """Dims that cannot change."""
    conditions: tuple[str, ...]
    """Expressions over the dims that are not 0 where the program comes to this launch."""
    template: Mapping[str, str]
    problems: tuple[str, ...]
    certain: bool
    reached: bool
    from_main: bool
    line: int
    place: str
    """`launch at line 210`, `launch at helper.cuh:210`."""
    threads: int = 0
    """Threads of the whole grid, where that is known."""
    block_threads: int = 0
    order: int = 0
    missing: frozenset[str] = field(factory=frozenset)
    """Parameters of which the launch says nothing."""
    references: "tuple[SiteReference, ...]" = ()

    def says_the_same(self, other: "SiteLaunch") -> bool:
        """Whether two launches differ in their sizes alone."""
        mine, theirs = (
            (x.grid, x.block, x.smem_bytes, x.sizes, x.scalars, x.template, x.fixed, x.dims.keys())
            for x in (self, other)
        )
        return mine == theirs and not self.problems and not other.problems


def template_of(kernel: Kernel, launch: HostLaunch) -> dict[str, str]:
    """The template arguments of a launch, given or deduced; those that nobody knows are left out."""
    found: dict[str, str] = {}
    for name, written in zip(kernel.template, launch.template or (), strict=False):
        if not written.startswith("?"):
            found[name] = written
    for parameter, value in zip(kernel.parameters, launch.arguments or (), strict=False):
        name = parameter.element
        if name not in kernel.template or name in found:
            continue
        if parameter.pointer and isinstance(value, (Pointer, Address)) and value.element not in ("void", ""):
            if parameter.indirections <= 1:
                found[name] = value.element
        elif not parameter.pointer and isinstance(value, Number):
            found[name] = value.ctype
        elif not parameter.pointer and isinstance(value, Struct) and value.type:
            found[name] = value.type
    # A name of a template around the launch, of which nothing is known, is no type.
    return {name: value for name, value in found.items() if _is_known_type(name, value, kernel)}


def _is_known_type(name: str, value: str, kernel: Kernel) -> bool:
    is_type = re.search(rf"\b(?:typename|class)\s+{re.escape(name)}\b", kernel.template_spelling) is not None
    if not is_type:
        return re.fullmatch(r"-?\d+|true|false|[A-Za-z_][\w:]*", value) is not None
    base = canonical_type(value.replace("const ", "").rstrip("* "))
    if base in SIZEOF:
        return True
    return re.fullmatch(r"[\w:<>, *]+", value) is not None and not re.fullmatch(r"[A-Z]\w?|\w+_t[a-z]*", value)


class _Unsaid(Exception):
    """A part of a launch that the text does not say; the message is what it depends on."""


class SiteReader:
    """Reads one launch of a kernel."""

    def __init__(
        self, kernel: Kernel, launch: HostLaunch, built_in: Iterable[str], template: Mapping[str, str]
    ) -> None:
        self.kernel, self.launch, self.built_in = kernel, launch, frozenset(built_in)
        self.template = template
        self.arguments = tuple(zip(kernel.parameters, launch.arguments or (), strict=False))
        self.names: dict[Term, Term] = {}
        self.dims: dict[str, int | None] = {}
        self.dim_terms: dict[str, Term] = {}
        self.scalars: dict[str, str] = {}
        self.fixed: set[str] = set()
        self.extra: dict[Term, str] = {}
        self.equal: dict[Term, Term] = {}

    def element(self, parameter: Parameter) -> str:
        return canonical_type(self.template.get(parameter.element, parameter.element))

    def read(self, line: int, place: str, order: int) -> SiteLaunch:
        launch = self.launch
        self.read_equalities()
        self.settle()
        problems: list[str] = []
        grid = self.size(launch.grid, "grid", problems)
        block = self.size(launch.block, "block", problems)
        smem: str | None = None
        if launch.smem is None:
            problems.append("the dynamic shared memory of the launch is not understood")
        else:
            smem = self.text(launch.smem.term, "the dynamic shared memory", problems)
        sizes: dict[str, str] = {}
        missing: set[str] = set()
        for parameter, value in self.arguments:
            if parameter.pointer:
                self.buffer(parameter.name, self.element(parameter), parameter.indirections, value, sizes)
            elif isinstance(value, Struct) and self.element(parameter) not in SIZEOF:
                self.struct(parameter.name, value, sizes, missing)
            elif parameter.name not in self.dims and parameter.name not in self.scalars:
                self.scalar(parameter, value, missing)
        conditions = self.conditions()
        threads, block_threads = self.thread_counts()
        return SiteLaunch(
            grid, block, smem, sizes, dict(self.scalars), dict(self.dims),
            frozenset(name for name, term in self.dim_terms.items() if self.is_free(term)),
            frozenset(self.fixed), conditions, dict(self.template), tuple(problems), launch.certain, launch.reached,
            launch.from_main, line, place, threads, block_threads, order, frozenset(missing), tuple(self.references()),
        )  # fmt: skip

    def references(self) -> Iterator[SiteReference]:
        """The CPU functions that say what the launch computes, as far as the kernel is told what they are given."""
        given = [value.term for _, value in self.arguments if isinstance(value, Number)]
        for reference in self.launch.references:
            numbers = {a.name: a.number for a in reference.arguments if a.number is not None}
            try:
                arguments = resolved(numbers, self.names, self.dim_terms, given, self.spelled)
            except _Unsaid:
                continue
            if arguments is None:
                continue
            labels = {
                argument.name: self.kernel.parameters[argument.place].name
                for argument in reference.arguments
                if argument.place is not None
            }
            yield SiteReference(
                reference.function,
                reference.path,
                {**arguments, **labels},
                frozenset(labels[a.name] for a in reference.arguments if a.uploaded),
                frozenset(labels[a.name] for a in reference.arguments if a.before or a.fresh),
                frozenset(labels[a.name] for a in reference.arguments if a.compared),
            )

    def is_free(self, term: Term) -> bool:
        sources = list(term.sources())
        return (
            bool(sources)
            and all(is_size(source) for source in sources if source.operator == "free")
            and any(source.operator == "free" for source in sources)
        )

    def thread_counts(self) -> tuple[int, int]:
        totals = []
        for size in (self.launch.grid, self.launch.block):
            total = 1
            for number in size or ():
                total *= int(number.value) if number.value is not None else 0
            totals.append(total)
        return totals[0] * totals[1], totals[1]

    # Names

    def read_equalities(self) -> None:
        """`switch (H) { case 64: ...`: within the case, H is 64."""
        for term, answer in self.launch.conditions:
            if answer and term.operator == "==":
                one, other = term.operands
                if one.operator == "free" and other.value is not None:
                    self.equal[one] = constant(int(other.value))
                elif other.operator == "free" and one.value is not None:
                    self.equal[other] = constant(int(one.value))

    def settle(self) -> None:
        """Which terms have which names: until no free size is left over that has none."""
        for _ in range(_MAX_ROUNDS):
            self.assign()
            left = self.leftover()
            if not left:
                return
            taken = {p.name for p in self.kernel.parameters} | set(self.extra.values()) | self.built_in
            for term in left:
                self.extra[term] = _unused(term.label, taken)
                taken.add(self.extra[term])

    def assign(self) -> None:
        self.names = dict(self.equal)
        self.dims, self.dim_terms, self.scalars = {}, {}, {}
        integers = [
            (parameter, value)
            for parameter, value in self.arguments
            if not parameter.pointer and isinstance(value, Number) and self.element(parameter) in INTEGERS
        ]
        compound = []
        for parameter, value in integers:
            term = value.term
            if term in self.names or term.is_constant or self.element(parameter) == "bool":
                continue
            if term.operator in ("var", "free"):
                self.name(term, parameter.name)
                if term.operator == "var" and term.label in self.built_in:
                    # A constant that the kernel's text has built in as well is no free size.
                    self.fixed.add(parameter.name)
            else:
                compound.append((parameter, term))
        for term, label in self.extra.items():
            if term not in self.names:
                self.name(term, label)
        for parameter, term in compound:
            if term in self.names:
                continue
            sources = list(term.sources())
            named = [source for source in sources if source in self.names]
            unnamed = [source for source in sources if source not in self.names and source.operator == "free"]
            if named and not unnamed:
                continue
            if named and all(is_size(source) for source in unnamed):
                continue
            self.name(term, parameter.name)
            if named:
                self.fixed.add(parameter.name)
        for parameter, value in integers:
            if parameter.name in self.dims:
                continue
            try:
                self.scalars[parameter.name] = self.spelled(value.term)
            except _Unsaid:
                continue

    def name(self, term: Term, label: str) -> None:
        self.names[term] = Term("name", label=label)
        self.dims[label] = int(term.value) if term.value is not None else None
        self.dim_terms[label] = term
        while term.operator == "alias":
            term = term.operands[0]
            if not term.is_constant:
                self.names.setdefault(term, Term("name", label=label))
        if term.pinned:
            self.fixed.add(label)

    def leftover(self) -> list[Term]:
        """Free sizes of the launch that have no name yet."""
        terms = [number.term for size in (self.launch.grid, self.launch.block) for number in size or ()]
        if self.launch.smem is not None:
            terms.append(self.launch.smem.term)
        for parameter, value in self.arguments:
            if isinstance(value, Number) and not parameter.pointer and parameter.name not in self.dims:
                if self.element(parameter) in INTEGERS and self.element(parameter) != "bool":
                    terms.append(value.term)
        found: list[Term] = []
        for term in terms:
            for source in replaced(term, self.names).sources():
                if is_size(source) and source not in found and source not in self.extra:
                    found.append(source)
        return found

    # Texts

    def spelled(self, term: Term) -> str:
        """A term in the names of the kernel.

        Raises:
            _Unsaid: it depends on something that is known to the run alone.

        """
        if term.pinned:
            self.fixed |= set(self.dims)
        written = replaced(term, self.names)
        for source in written.sources():
            raise _Unsaid(source.reason or f"`{source.label}`")
        try:
            return spell(written)
        except Unspellable:
            if term.value is None or not float(term.value).is_integer():
                raise _Unsaid(f"`{spell_plainly(term)[:60]}`") from None
            # Its value is right for the program's own sizes alone.
            self.fixed |= set(self.dims)
            return str(int(term.value))

    def text(self, term: Term, what: str, problems: list[str]) -> str | None:
        try:
            return self.spelled(term)
        except _Unsaid as error:
            problems.append(f"{what} of the launch depends on {error}")
            return None

    def size(self, numbers: tuple[Number, Number, Number] | None, what: str, problems: list[str]) -> Size | None:
        if numbers is None:
            problems.append(f"the {what} of the launch is not understood")
            return None
        if any(number.value is not None and number.value < 1 for number in numbers):
            problems.append(f"the {what} of the launch comes out as 0")
            return None
        x, y, z = (self.text(number.term, f"the {what}", problems) for number in numbers)
        return None if x is None or y is None or z is None else (x, y, z)

    # Arguments

    def buffer(self, label: str, element: str, indirections: int, value: Value, sizes: dict[str, str]) -> None:
        width = SIZEOF.get(element)
        if not isinstance(value, Pointer) or value.block is None or indirections > 1 or width is None:
            return
        block = value.block
        try:
            if block.count is not None and value.offset == constant(0) and not element[-1:].isdigit():
                if block.nbytes is None or block.nbytes == build("*", (block.count, constant(width)), "long"):
                    # In the order of the tensor's dimensions: it is the shape that a PyTorch expression sees.
                    parts = [self.spelled(replaced(term, self.names)) for term in block.shape or ()]
                    count = self.spelled(replaced(block.count, self.names))
                    plain = all(re.fullmatch(r"\w+", part) for part in parts)
                    if not parts or not plain or names_in(count) != {part for part in parts if not part.isdigit()}:
                        parts = [count]
                    sizes[label] = " * ".join(parts)
                    return
            if block.nbytes is None:
                return
            left = build("-", (block.nbytes, value.offset), "long")
            sizes[label] = self.spelled(
                divided(replaced(left, self.names), width) if not left.pinned else divided(left, width)
            )
        except _Unsaid:
            return

    def struct(self, label: str, value: Struct, sizes: dict[str, str], missing: set[str], depth: int = 0) -> None:
        """A struct by value: its fields are `p.n`, `p.size.x`."""
        if not value.fields:
            missing.add(label)
        for name, inner in value.fields.items():
            dotted = f"{label}.{name}"
            if isinstance(inner, Struct) and depth < 3:
                self.struct(dotted, inner, sizes, missing, depth + 1)
            elif isinstance(inner, Pointer) and inner.element:
                before = len(sizes)
                self.buffer(dotted, canonical_type(inner.element), 1, inner, sizes)
                if len(sizes) == before:
                    missing.add(dotted)
            elif isinstance(inner, Number):
                try:
                    self.scalars[dotted] = self.spelled(inner.term) if not inner.floating else self.floating(inner)
                except _Unsaid:
                    missing.add(dotted)
            else:
                missing.add(dotted)

    def scalar(self, parameter: Parameter, value: Value, missing: set[str]) -> None:
        element = self.element(parameter)
        if isinstance(value, Number) and (element in FLOATING or element == "bool"):
            try:
                self.scalars[parameter.name] = self.floating(value) if element in FLOATING else self.spelled(value.term)
                return
            except _Unsaid:
                pass
        missing.add(parameter.name)

    def floating(self, value: Number) -> str:
        if value.value is None:
            raise _Unsaid(value.term.reason or f"`{value.term.label}`")
        if any(source in self.names for source in value.term.sources()) or value.term.pinned:
            self.fixed |= {
                label for label, term in self.dim_terms.items() if set(term.sources()) & set(value.term.sources())
            }
        return repr(float(value.value))

    # What must hold

    def conditions(self) -> tuple[str, ...]:
        found = []
        for term, answer in self.launch.conditions:
            concerned = {label for label, own in self.dim_terms.items() if set(own.sources()) & set(term.sources())}
            if not concerned:
                continue
            written = replaced(term, self.names)
            try:
                if term.pinned or any(True for _ in written.sources()):
                    raise Unspellable(term)
                text = spell(written)
            except Unspellable:
                # How it bears on the dims cannot be said, so they stay as they are.
                self.fixed |= {label for label in concerned if label not in self.extra.values()}
                continue
            if re.search(r"[A-Za-z_]", text):
                found.append(text if answer else f"!({text})")
        return tuple(dict.fromkeys(found))


def read_launch(
    kernel: Kernel, launch: HostLaunch, built_in: Iterable[str], line: int, place: str, order: int
) -> SiteLaunch | None:
    """What a launch says; None where its arguments are not those of the kernel."""
    if launch.arguments is None or len(launch.arguments) != len(kernel.parameters):
        return None
    template = template_of(kernel, launch)
    defaults = template_defaults(kernel.template_spelling)
    for name in kernel.template:
        if name not in template and name in defaults:
            template[name] = defaults[name]
    return SiteReader(kernel, launch, built_in, template).read(line, place, order)


def _unused(label: str, taken: set[str]) -> str:
    plain = re.sub(r"\W+", "_", label).strip("_") or "size"
    if plain[0].isdigit():
        plain = f"size_{plain}"
    name, number = plain, 2
    while name in taken:
        name, number = f"{plain}{number}", number + 1
    return name
