"""Syntax trees of single functions, by tree-sitter with its CUDA grammar."""

from collections.abc import Iterator
from functools import lru_cache

import tree_sitter_cuda
from tree_sitter import Language, Node, Parser

_PARSER = Parser(Language(tree_sitter_cuda.language()))


@lru_cache(maxsize=512)
def function_tree(text: str) -> Node | None:
    """The `function_definition` node of the text of one function, or None if the grammar finds none.

    Of what stands around its body only the parameters matter here, so a header with macros may hold errors.
    """
    tree = _PARSER.parse(text.encode("utf-8", errors="replace"))
    return next((node for node in walk(tree.root_node) if node.type == "function_definition"), None)


def body_of(text: str) -> Node | None:
    """The `compound_statement` of a function's text."""
    function = function_tree(text)
    return None if function is None else function.child_by_field_name("body")


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
