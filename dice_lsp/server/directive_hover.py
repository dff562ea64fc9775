"""What a hover says about a clause of a directive: its meaning, its values in each case, what is known without it."""

from collections.abc import Iterator, Mapping, Sequence

from dice_lsp.hint import launch_table, markdown_table, origin_words
from dice_lsp.records import Kernel, LaunchSpec
from dice_lsp.server.directive_line import reference_text, size_text, values_text
from dice_lsp.source.directive_review import cases_of, value_of, values_of
from dice_lsp.source.directive_words import INITS, MANUAL, SIZES, WORDS
from dice_lsp.source.directives import Clause, Directive, Part
from dice_lsp.source.expressions import SIZEOF, canonical_type

CASES_SHOWN = 8
_BUFFER_WORDS = ("in", "out", "io", "tmp")


def clause_at(directive: Directive, at: int) -> tuple[Clause | None, tuple[int, int]] | None:
    """The clause at an offset and its place; no clause, but the place of the comment, beside them; None elsewhere."""
    for clause in directive.clauses:
        if clause.start <= at <= clause.end:
            return clause, (clause.start, clause.end)
    comment = next(((start, end) for start, end in directive.comments if start <= at <= end), None)
    return None if comment is None else (None, comment)


def directive_text(
    kernel: Kernel, clause: Clause | None, at: int, given: LaunchSpec, bare: LaunchSpec, constants: Mapping[str, int]
) -> str:
    """The hover at the offset `at` of a clause; without one, all of the launch."""
    if clause is None:
        table = launch_table(given)
        return f"**//dice:** how `{kernel.name}` is launched and judged\n\n{table}\n\n{MANUAL}".replace(
            "\n\n\n\n", "\n\n"
        )
    word = WORDS.get(clause.word, SIZES)
    part = next((part for part in clause.parts if part.start <= at <= part.end), None)
    parts = [part] if part is not None and clause.word != "launch" else list(clause.parts)
    said = [f"**{word.form}**", word.meaning]
    cases = cases_of(given, constants)
    table = _values(kernel, clause, parts, given, cases)
    if table:
        said.append(table)
    for each in parts:
        name = each.init.partition("(")[0]
        if clause.word in _BUFFER_WORDS and name in INITS:
            said.append(f"`{each.name}` begins as `{each.init}`: {_lower(INITS[name].meaning)}")
    places: Sequence[Part | None] = parts or [None]
    without = [line for each in places for line in _without(clause, each, bare)]
    if without:
        said.append("Without the clause: " + "; ".join(dict.fromkeys(without)))
    said.append(f"{MANUAL}, {word.section}")
    return "\n\n".join(said)


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def _values(
    kernel: Kernel, clause: Clause, parts: Sequence[Part], given: LaunchSpec, cases: Sequence[Mapping[str, int]]
) -> str:
    """The values of the clause's expressions, one row for each case."""
    head, rows = ["case"], []
    names = [dim.name for dim in given.dims]
    for number, case in enumerate(cases[:CASES_SHOWN]):
        sizes = ", ".join(f"{name} = {case[name]}" for name in names if name in case)
        row = [f"{sizes or 'the only one'}{', timed' if number == 0 else ''}"]
        row += [cell for _, cell in _cells(kernel, clause, parts, given, case)]
        rows.append(row)
    head += [title for title, _ in _cells(kernel, clause, parts, given, cases[0])]
    if len(cases) > CASES_SHOWN:
        rows.append([f"{len(cases) - CASES_SHOWN} more", *[""] * (len(head) - 1)])
    return markdown_table(head, rows) if len(head) > 1 else ""


def _cells(
    kernel: Kernel, clause: Clause, parts: Sequence[Part], given: LaunchSpec, case: Mapping[str, int]
) -> Iterator[tuple[str, str]]:
    """Heading and value of each column."""
    if clause.word == "launch":
        yield from _launch_cells(parts, case)
    elif clause.word in _BUFFER_WORDS:
        for part in parts:
            values = values_of(part.values, case)
            count = None
            if values is not None:
                count = 1
                for value in values:
                    count *= value
            parameter = next((p for p in kernel.parameters if p.name == part.name), None)
            element = "" if parameter is None else given.template.get(parameter.element, parameter.element)
            width = SIZEOF.get(canonical_type(element))
            known = f"{count} x {element}" if count is not None else "not known"
            yield part.name, f"{known}, {bytes_text(count * width)}" if count is not None and width else known
    elif clause.word == "set":
        for part in parts:
            number = value_of(part.values[0], case)
            yield part.name, part.values[0] if number is None else str(number)
    elif clause.word in ("bytes", "flops"):
        text = getattr(given, clause.word)
        number = None if text is None else value_of(text, case)
        yield clause.word, "not known" if number is None else str(number)


def _launch_cells(parts: Sequence[Part], case: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    found = {part.name: values_of(part.values, case) for part in parts}
    for name, values in found.items():
        yield name, "not known" if values is None else " x ".join(map(str, _without_ones(values)))
    grid, block = found.get("grid"), found.get("block")
    if grid is not None and block is not None:
        count = 1
        for value in (*grid, *block):
            count *= value
        yield "threads", str(count)


def _without_ones(values: Sequence[int]) -> Sequence[int]:
    kept = list(values)
    while len(kept) > 1 and kept[-1] == 1:
        kept.pop()
    return kept


def bytes_text(count: int) -> str:
    """A number of bytes as a person reads it: `64 MiB`, `1000 B`."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= scale:
            return f"{count / scale:.4g} {unit}"
    return f"{count} B"


def _without(clause: Clause, part: Part | None, bare: LaunchSpec) -> Iterator[str]:
    """What is known of the same thing without the directive, with its origin."""
    match clause.word:
        case "" if part is not None:
            dim = next((dim for dim in bare.dims if dim.name == part.name), None)
            if dim is not None:
                yield f"`{dim.name} = {values_text(dim.values)}`, {origin_words(bare, f'dims.{dim.name}', dim.origin)}"
            else:
                yield f"`{part.name}` is not known"
        case "in" | "out" | "io" | "tmp" if part is not None:
            buffer = next((buffer for buffer in bare.buffers if buffer.name == part.name), None)
            if buffer is not None:
                said = f"`{buffer.role.value} {buffer.name}[{', '.join(buffer.extents)}]`"
                yield f"{said}, {origin_words(bare, f'buffers.{buffer.name}', buffer.origin)}"
            else:
                yield f"the size of `{part.name}` is not known"
        case "launch" if part is not None and part.name in ("grid", "block"):
            sizes = bare.grid if part.name == "grid" else bare.block
            if sizes is not None:
                yield f"{part.name} `{size_text(sizes)}`, {origin_words(bare, part.name, bare.origins.get(part.name))}"
            else:
                yield f"the {part.name} is not known"
        case "with" if part is not None:
            told = bare.template.get(part.name)
            origin = origin_words(bare, "template", bare.origins.get("template"))
            yield f"`{part.name} = {told}`, {origin}" if told is not None else f"`{part.name}` is not known"
        case "set" if part is not None:
            told = bare.scalars.get(part.name)
            origin = origin_words(bare, f"scalars.{part.name}", bare.origins.get(part.name))
            yield f"`{part.name} = {told}`, {origin}" if told is not None else f"`{part.name}` is not known"
        case "ref":
            reference = bare.reference
            if reference is None:
                yield "there is no reference"
            else:
                yield f"`ref {reference_text(reference)}`, {origin_words(bare, 'reference', reference.origin)}"
        case _:
            return
