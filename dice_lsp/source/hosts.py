"""What the host code around a launch says: local sizes, `dim3` variables, device allocations."""

import re
from collections.abc import Mapping
from functools import lru_cache

from attrs import frozen
from tree_sitter import Node

from dice_lsp.source.expressions import canonical_type
from dice_lsp.source.syntax import body_tree, named, spell, walk

_ALLOCATORS = {"cudaMalloc", "cudaMallocManaged", "cudaMallocAsync", "hipMalloc"}
_VECTORS = re.compile(r"(?:thrust::)?device_vector\s*<(?P<element>.*)>$")


@frozen
class Allocation:
    """Device memory behind a pointer: a size in bytes, or an element count."""

    bytes: str | None
    count: str | None = None


@frozen
class HostScope:
    """The locals of one host function; a name that gets two different values has none."""

    values: Mapping[str, str]
    """Scalar local -> its one initialiser, as written."""
    sizes: Mapping[str, tuple[str, ...]]
    """`dim3` local -> its sizes."""
    allocations: Mapping[str, Allocation]
    types: Mapping[str, str]
    """Local -> canonical element type, pointers and `const` left out."""
    unknown: frozenset[str]
    """Locals and parameters whose value is decided at run time."""


@lru_cache(maxsize=128)
def host_scope(text: str, parameters: tuple[str, ...]) -> HostScope:
    """The locals of a host function, given its body's text and the names of its parameters."""
    body = body_tree(text)
    values: dict[str, list[str]] = {}
    sizes: dict[str, list[tuple[str, ...]]] = {}
    allocations: dict[str, list[Allocation]] = {}
    types: dict[str, str] = {}
    changed: set[str] = set(parameters)
    for node in walk(body) if body is not None else ():
        match node.type:
            case "declaration":
                _declaration(node, values, sizes, allocations, types)
            case "assignment_expression":
                left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
                label = spell(left)
                if left is not None and left.type == "identifier" and right is not None:
                    parts = _dim3(right)
                    if spell(node.child_by_field_name("operator")) != "=" or _in_loop(node):
                        changed.add(label)
                    elif parts is not None:
                        sizes.setdefault(label, []).append(parts)
                    else:
                        values.setdefault(label, []).append(spell(right))
                elif left is not None and left.type == "field_expression":
                    changed.add(spell(left.child_by_field_name("argument")))
            case "update_expression":
                changed.add(spell(node.child_by_field_name("argument")))
            case "call_expression":
                _call(node, allocations, changed)
            case _:
                continue
    return HostScope(
        {label: found[0] for label, found in values.items() if len(set(found)) == 1 and label not in changed},
        {label: found[0] for label, found in sizes.items() if len(set(found)) == 1 and label not in changed},
        {label: found[0] for label, found in allocations.items() if len(set(found)) == 1},
        types,
        frozenset(changed | {label for label, found in values.items() if len(set(found)) > 1}),
    )


def _declaration(
    node: Node,
    values: dict[str, list[str]],
    sizes: dict[str, list[tuple[str, ...]]],
    allocations: dict[str, list[Allocation]],
    types: dict[str, str],
) -> None:
    kind = spell(node.child_by_field_name("type"))
    vector = _VECTORS.match(kind)
    for declarator in node.children_by_field_name("declarator"):
        value = declarator.child_by_field_name("value") if declarator.type == "init_declarator" else None
        inner: Node | None = (
            declarator.child_by_field_name("declarator") if declarator.type == "init_declarator" else declarator
        )
        arguments: list[str] | None = None
        if inner is not None and inner.type == "function_declarator":
            # `dim3 block(n);` reads like the declaration of a function.
            parameters = inner.child_by_field_name("parameters")
            arguments = [spell(child) for child in named(parameters)] if parameters is not None else []
            inner = inner.child_by_field_name("declarator")
        while inner is not None and inner.type in ("pointer_declarator", "reference_declarator"):
            inner = named(inner)[-1] if named(inner) else None
        label = spell(inner)
        if not label.isidentifier():
            continue
        types.setdefault(label, canonical_type(vector["element"] if vector else kind))
        if value is not None and value.type in ("argument_list", "initializer_list"):
            arguments = [spell(child) for child in named(value)]
        if kind == "dim3":
            parts = _dim3(value) if value is not None and arguments is None else tuple(arguments or ())
            if parts:
                sizes.setdefault(label, []).append(parts)
            elif value is not None:
                sizes.setdefault(label, []).append((spell(value),))
        elif vector and arguments:
            allocations.setdefault(label, []).append(Allocation(None, arguments[0]))
        elif arguments is not None and len(arguments) == 1 and value is not None:
            values.setdefault(label, []).append(arguments[0])
        elif value is not None and arguments is None:
            values.setdefault(label, []).append(spell(value))
        if _in_loop(node) and label in values:
            values[label].append(f"{label} in a loop")


def _dim3(node: Node) -> tuple[str, ...] | None:
    """The sizes of `dim3(x, y)` or `dim3{x, y}`."""
    if node.type == "call_expression" and spell(node.child_by_field_name("function")) == "dim3":
        arguments = node.child_by_field_name("arguments")
        return tuple(spell(child) for child in named(arguments)) if arguments is not None else None
    if node.type == "compound_literal_expression" and spell(node.child_by_field_name("type")) == "dim3":
        value = node.child_by_field_name("value")
        return tuple(spell(child) for child in named(value)) if value is not None else None
    return tuple(spell(child) for child in named(node)) if node.type == "initializer_list" else None


def _in_loop(node: Node) -> bool:
    inner: Node | None = node
    while inner is not None and inner.type != "function_definition":
        if inner.type in ("for_statement", "while_statement", "do_statement", "for_range_loop", "lambda_expression"):
            return True
        inner = inner.parent
    return False


def _call(node: Node, allocations: dict[str, list[Allocation]], changed: set[str]) -> None:
    function = spell(node.child_by_field_name("function")).split("<")[0]
    arguments = node.child_by_field_name("arguments")
    actual = named(arguments) if arguments is not None else []
    for argument in actual:
        inner = argument
        while inner.type == "cast_expression" and (value := inner.child_by_field_name("value")) is not None:
            inner = value
        if inner.type != "pointer_expression" or not spell(inner).startswith("&"):
            continue
        label = spell(inner.child_by_field_name("argument"))
        if function in _ALLOCATORS and argument.id == actual[0].id and len(actual) > 1:
            allocations.setdefault(label, []).append(Allocation(spell(actual[1])))
        else:
            changed.add(label)
