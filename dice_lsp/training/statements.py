"""Random statements that set an output from what an element can see. `@i`, `@r`, `@c`, `@b` stand for indices."""

import re

from dice_lsp.training.expressions import Node
from dice_lsp.training.maker import COUNT_NAMES, Maker


def _store(maker: Maker, target: str, value: str, accumulates: bool) -> str:
    """`target = value;`, or a compound assignment where the target holds something already."""
    if accumulates:
        operators = ["+=", "-=", "*="] if maker.grammar.floating else ["+=", "-=", "^=", "|=", "&="]
        return f"{target} {maker.rng.choice(operators)} {value};"
    return f"{target} = {value};"


def statements(
    maker: Maker, targets: list[tuple[str, bool]], atoms: list[str], integers: list[str]
) -> tuple[str, Node | None]:
    """Statements that set every target from the atoms, and the expression's tree when they are one plain assignment.

    A target is `(text, accumulates)`; `integers` are index expressions that may be used as values too.
    """
    rng, grammar = maker.rng, maker.grammar
    element = maker.element
    if len(targets) > 1:
        parts: list[str] = []
        own = list(atoms)
        if rng.random() < 0.6:
            name = maker.local()
            parts.append(f"{element} {name} = {maker.expr(own, rng.choice([1, 2, 3]))};")
            own.append(name)
        for target, accumulates in targets:
            parts.append(_store(maker, target, maker.expr(own, rng.choice([2, 2, 3])), accumulates))
        return " ".join(parts), None
    target, accumulates = targets[0]
    form = rng.choices(
        ["plain", "temp", "temps", "ifelse", "guarded", "loop", "while", "bucket", "cases", "early"],
        [30, 14, 12, 10, 8, 10, 6, 4, 4, 2],
    )[0]
    if form == "plain":
        node = grammar.expression(atoms, None, integers if rng.random() < 0.3 else None)
        return _store(maker, target, grammar.text(node), accumulates), (None if accumulates else node)
    if form == "temp":
        name = maker.local()
        const = rng.choice(["", "", "const "])
        value = maker.expr(atoms, rng.choice([1, 2, 3]), integers)
        return f"{const}{element} {name} = {value}; " + _store(
            maker, target, maker.expr([name, *rng.sample(atoms, min(len(atoms), 2))]), accumulates
        ), None
    if form == "temps":
        own = []
        parts = []
        for _ in range(rng.choice([2, 2, 3, 4])):
            name = maker.local()
            source = rng.sample(atoms, min(len(atoms), 2)) + own[-2:]
            simple = rng.random() < 0.4 and not own
            parts.append(f"{element} {name} = {atoms[0] if simple else maker.expr(source, rng.choice([1, 2, 2, 3]))};")
            own.append(name)
        return " ".join(parts) + " " + _store(maker, target, maker.expr(own[-3:]), accumulates), None
    if form == "ifelse":
        condition = maker.cond(atoms) if rng.random() < 0.75 or not integers else _index_condition(maker, integers)
        first = _store(maker, target, maker.expr(atoms), accumulates)
        leaves = rng.random() < 0.12
        second = _store(maker, target, maker.expr(atoms, rng.choice([1, 2, 3])), accumulates)
        if leaves:
            return f"if ({condition}) {{ {first} @continue; }} {second}", None
        if rng.random() < 0.3:
            middle = _store(maker, target, maker.expr(atoms, 2), accumulates)
            return (
                f"if ({condition}) {{ {first} }} else if ({maker.cond(atoms)}) {{ {middle} }} else {{ {second} }}",
                None,
            )
        if rng.random() < 0.35:
            return f"if ({condition}) {first} else {second}", None
        return f"if ({condition}) {{ {first} }} else {{ {second} }}", None
    if form == "guarded":
        name = maker.local()
        parts = [f"{element} {name} = {maker.expr(atoms, rng.choice([1, 2, 3]))};"]
        for _ in range(rng.choice([1, 1, 2, 3])):
            change = _store(maker, name, maker.expr([name, rng.choice(atoms)], rng.choice([1, 2])), rng.random() < 0.3)
            parts.append(
                rng.choice([f"if ({maker.cond([name])}) {change}", f"if ({maker.cond([name])}) {{ {change} }}"])
            )
        parts.append(
            _store(maker, target, name if rng.random() < 0.6 else maker.expr([name, rng.choice(atoms)], 2), accumulates)
        )
        return " ".join(parts), None
    if form == "loop":
        name, counter = maker.local(), rng.choice(["k", "j", "s", "m", "it"])
        if counter in maker.taken:
            counter = maker.local()
        bound = str(rng.choice([2, 3, 4, 5, 8, 10, 16]))
        if rng.random() < 0.3:
            bound = maker.scalar("int", str(rng.randrange(2, 7)), COUNT_NAMES)
        start = maker.zero if rng.random() < 0.4 else rng.choice([atoms[0], grammar.text(grammar.one())])
        index = f"({element}){counter}" if grammar.floating else counter
        inner = [name, rng.choice(atoms), rng.choice(atoms)] + ([index] if rng.random() < 0.5 else [])
        change = f"{name} = {maker.expr(list(dict.fromkeys(inner)))};"
        if rng.random() < 0.4:
            operator = rng.choice(["+=", "*=", "-="]) if grammar.floating else rng.choice(["+=", "^=", "|=", "-="])
            change = f"{name} {operator} {maker.expr(list(dict.fromkeys(inner[1:])), rng.choice([1, 2, 3]))};"
        if rng.random() < 0.25:
            change = f"if ({maker.cond(inner[:2])}) {{ {change} }}" + (
                f" else {{ {name} = {maker.expr(inner[:2], 2)}; }}" if rng.random() < 0.4 else ""
            )
        loop = f"for (int {counter} = {rng.choice([0, 0, 0, 1])}; {counter} < {bound}; {counter}++) {{ {change} }}"
        return f"{element} {name} = {start}; {loop} " + _store(
            maker, target, name if rng.random() < 0.6 else maker.expr([name, rng.choice(atoms)], 2), accumulates
        ), None
    if form == "while":
        return _while_loop(maker, target, atoms, accumulates), None
    if form == "bucket" and grammar.floating:
        name = maker.local()
        high = rng.choice([3, 7, 15, 63, 127, 255])
        value = maker.expr(atoms, rng.choice([1, 2]))
        cast = rng.choice(["(int)floor{f}({v})", "(int)({v})", "(int)round{f}({v})", "(int)ceil{f}({v})"]).format(
            f=maker.f, v=value
        )
        bounds = rng.choice(
            [
                f"if ({name} < 0) {name} = 0; if ({name} > {high}) {name} = {high};",
                f"{name} = max(0, min({name}, {high}));",
                "",
            ]
        )
        return f"int {name} = {cast}; {bounds} " + _store(
            maker, target, maker.expr([f"({element}){name}", rng.choice(atoms)], 3), accumulates
        ), None
    if form == "cases":
        selector = rng.choice(integers) if integers else None
        if selector is not None:
            modulus = rng.choice([2, 3, 4])
            first, second = (_store(maker, target, maker.expr(atoms, 2), accumulates) for _ in range(2))
            return f"if ({selector} % {modulus} == {rng.randrange(modulus)}) {{ {first} }} else {{ {second} }}", None
    if form == "early":
        left, right = maker.expr(atoms[:1], 2), maker.expr(atoms, 2)
        a, b = maker.local(), maker.local()
        return f"{element} {a} = {left}; {element} {b} = {right}; " + _store(
            maker, target, f"{a} {rng.choice('<>')} {b} ? {maker.expr([a, b], 2)} : {rng.choice([a, b])}", accumulates
        ), None
    node = grammar.expression(atoms)
    return _store(maker, target, grammar.text(node), accumulates), (None if accumulates else node)


def _index_condition(maker: Maker, integers: list[str]) -> str:
    index = maker.rng.choice(integers)
    return maker.rng.choice(
        [f"{index} % 2 == 0", f"{index} > {maker.rng.randrange(1, 20)}", f"{index} % 3 != 1", f"({index} & 1) == 0"]
    )


def _while_loop(maker: Maker, target: str, atoms: list[str], accumulates: bool) -> str:
    rng, grammar = maker.rng, maker.grammar
    element = maker.element
    states = [maker.local() for _ in range(rng.choice([1, 1, 2, 2]))]
    counter = rng.choice(["it", "iter", "steps", "k"])
    if counter in maker.taken:
        counter = maker.local()
    limit = str(rng.choice([4, 8, 10, 16, 20]))
    if rng.random() < 0.35:
        limit = maker.scalar("int", str(rng.randrange(3, 12)), COUNT_NAMES)
    parts = [f"{element} {name} = {rng.choice([*atoms, maker.zero])};" for name in states]
    if grammar.floating:
        stop = rng.choice(
            [
                f"fabs{maker.f}({states[0]}) < {maker.grammar.number_above_zero()[1]}",
                f"{states[0]} > {grammar.text(grammar.number_above_zero())}",
                f"{states[-1]} * {states[-1]} < {rng.choice(['4.0', '2.0', '10.0'])}{maker.f}",
            ]
        )
    else:
        stop = rng.choice([f"{states[0]} != 0", f"{states[0]} > 1", f"({states[0]} & 1) == 0"])
    updates = []
    if len(states) == 2 and rng.random() < 0.5:
        fresh = maker.local()
        updates.append(f"{element} {fresh} = {maker.expr([*states, rng.choice(atoms)])};")
        updates.append(f"{states[1]} = {maker.expr([*states, rng.choice(atoms)], rng.choice([2, 3]))};")
        updates.append(f"{states[0]} = {fresh};")
    else:
        for name in states:
            updates.append(f"{name} = {maker.expr([name, rng.choice([*states, *atoms])], rng.choice([2, 3]))};")
    updates.append(f"{counter}++;")
    head = f"while ({counter} < {limit} && {stop})" if rng.random() < 0.7 else f"while ({stop} && {counter} < {limit})"
    value = f"({element}){counter}" if grammar.floating else counter
    result = rng.choice([states[0], value, maker.expr([states[0], value], 2)])
    return (
        " ".join(parts)
        + f" int {counter} = 0; {head} {{ {' '.join(updates)} }} "
        + _store(maker, target, result, accumulates)
    )


def accumulate(maker: Maker, accumulator: str, atoms: list[str], sums: bool = False) -> tuple[str, str]:
    """Start value and update of an associative accumulation over a term of the atoms."""
    rng, element, f = maker.rng, maker.element, maker.f
    term = atoms[0] if rng.random() < 0.4 else maker.expr(atoms, rng.choice([1, 2, 2, 3]))
    if not maker.grammar.floating:
        operator, start = rng.choice([("+", "0"), ("^", "0"), ("|", "0"), ("+", "1")])
        return start + ("u" if element == "unsigned" else ""), f"{accumulator} {operator}= {_wrapped(term, operator)};"
    kind = rng.choices(["sum", "max", "min", "product"], [60, 18 if not sums else 0, 12 if not sums else 0, 10])[0]
    if kind == "sum":
        if rng.random() < 0.15:
            return f"0.0{f}", f"if ({maker.cond(atoms)}) {{ {accumulator} += {term}; }}"
        return f"0.0{f}", rng.choice(
            [
                f"{accumulator} += {term};",
                f"{accumulator} += {term};",
                f"{accumulator} = {accumulator} + {_wrapped(term, '+')};",
            ]
        )
    if kind == "product":
        return f"1.0{f}", f"{accumulator} *= {term};"
    limit = {"float": "FLT_MAX", "double": "DBL_MAX"}.get(element, "FLT_MAX")
    name = f"f{kind}{f}"
    start = (
        rng.choice([f"-{limit}", f"-1e30{f}", "-INFINITY"])
        if kind == "max"
        else rng.choice([limit, f"1e30{f}", "INFINITY"])
    )
    sign = ">" if kind == "max" else "<"
    if rng.random() < 0.3 and re.fullmatch(r"[\w\[\] *+@-]+", term):
        return start, f"if ({term} {sign} {accumulator}) {accumulator} = {term};"
    return start, f"{accumulator} = {name}({accumulator}, {term});"


def _wrapped(term: str, operator: str) -> str:
    return f"({term})" if re.search(r" [?|&^<>=]|<<|>>", term) or (operator == "+" and " ? " in term) else term
