"""Small questions about the syntax tree of a body."""

from collections.abc import Iterator

from tree_sitter import Node

from dice_lsp.source.syntax import named, spell, walk


def declared_name(declarator: Node) -> str:
    """Of `tile[SIZE][SIZE + 1]` the first identifier is the name, the others are in its sizes."""
    return next((spell(part) for part in walk(declarator) if part.type == "identifier"), "")


def function_name(node: Node | None) -> str:
    """The last part of a callee's name, without namespaces, objects and template arguments."""
    if node is None:
        return ""
    match node.type:
        case "field_expression":
            return function_name(node.child_by_field_name("field"))
        case "qualified_identifier" | "template_function" | "template_method":
            return function_name(node.child_by_field_name("name"))
        case _:
            return spell(node)


def arguments(node: Node) -> list[Node]:
    arguments = node.child_by_field_name("arguments")
    return named(arguments) if arguments is not None else []


def template_arguments(node: Node) -> list[str]:
    """The template arguments of a call, as written."""
    inner = node.child_by_field_name("function")
    while inner is not None and inner.type in ("qualified_identifier", "field_expression"):
        inner = inner.child_by_field_name("name") or inner.child_by_field_name("field")
    arguments = inner.child_by_field_name("arguments") if inner is not None else None
    return [spell(child) for child in named(arguments)] if arguments is not None else []


def assignments(node: Node) -> Iterator[tuple[str, Node]]:
    """The assignments to names within a node."""
    for inner in walk(node):
        target: Node | None = None
        if inner.type == "assignment_expression":
            target = inner.child_by_field_name("left")
        elif inner.type == "update_expression":
            target = inner.child_by_field_name("argument")
        if target is not None and target.type == "identifier":
            yield spell(target), inner


def assigned(node: Node) -> set[str]:
    return {label for label, _ in assignments(node)}


def opaque_names(body: Node) -> set[str]:
    """Locals that are changed through a pointer or by a lambda."""
    found: set[str] = set()
    for node in walk(body):
        if node.type == "pointer_expression" and spell(node).startswith("&"):
            argument = node.child_by_field_name("argument")
            if argument is not None and argument.type == "identifier":
                found.add(spell(argument))
        elif node.type == "lambda_expression":
            found |= assigned(node)
    return found


def jumps(body: Node) -> bool:
    """Whether an iteration may end the loop early."""
    return any(node.type in ("break_statement", "return_statement", "goto_statement") for node in walk(body))
