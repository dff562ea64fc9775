"""Syntax trees of single functions, by tree-sitter with its CUDA grammar."""

from collections.abc import Iterator
from functools import lru_cache

import tree_sitter_cuda
from tree_sitter import Language, Node, Parser

_PARSER = Parser(Language(tree_sitter_cuda.language()))


@lru_cache(maxsize=512)
def body_tree(body: str) -> Node | None:
    """The `compound_statement` for the text between a function's braces, or None if the grammar finds none.

    The header is left out: it has been read already, and its macros and attributes are what the grammar fails at.
    """
    tree = _PARSER.parse(f"void body() {{{body}\n}}".encode(errors="replace"))
    function = next((child for child in tree.root_node.children if child.type == "function_definition"), None)
    return None if function is None else function.child_by_field_name("body")


def whole_tree(text: str) -> Node:
    """The `translation_unit` of a text."""
    return _PARSER.parse(text.encode(errors="replace")).root_node


def walk(node: Node) -> Iterator[Node]:
    """The node and everything under it, in the order of the text; iterative, as text may nest deeply."""
    stack = [node]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(node.children))


def spell(node: Node | None) -> str:
    """The text of a node."""
    return "" if node is None or node.text is None else node.text.decode("utf-8", errors="replace")


def named(node: Node) -> list[Node]:
    """Named children without comments."""
    return [child for child in node.named_children if child.type != "comment"]
