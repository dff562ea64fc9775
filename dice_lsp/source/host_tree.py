"""Host code as plain trees, and what stands at file scope: functions, types, globals, enumerators.

The trees are tree-sitter's, copied once into objects that are quick to walk again and again.
"""

import re
from collections.abc import Iterator
from functools import lru_cache

from attrs import field, frozen
from tree_sitter import Node

from dice_lsp.source.expressions import canonical_type
from dice_lsp.source.syntax import whole_tree

MAX_DEPTH = 150
_WORDS = re.compile(
    r"\b(?:const|volatile|static|extern|inline|constexpr|register|typename|struct|class|enum|mutable|thread_local|consteval|constinit)\b"
)


class Tree:
    """One node: its named children without comments, its fields, its text."""

    __slots__ = ("_source", "end", "fields", "kids", "kind", "start")

    def __init__(self, kind: str, start: int, end: int, source: str) -> None:
        self.kind, self.start, self.end, self._source = kind, start, end, source
        self.kids: list[Tree] = []
        self.fields: dict[str, list[Tree]] = {}

    @property
    def text(self) -> str:
        return self._source[self.start : self.end]

    def one(self, name: str) -> "Tree | None":
        found = self.fields.get(name)
        return found[0] if found else None

    def all(self, name: str) -> "list[Tree]":
        return self.fields.get(name, [])

    def walk(self) -> "Iterator[Tree]":
        stack = [self]
        while stack:
            tree = stack.pop()
            yield tree
            stack.extend(reversed(tree.kids))

    def __repr__(self) -> str:
        return f"<{self.kind} {self.text[:40]!r}>"


def copied(node: Node, source: str, depth: int = 0) -> Tree:
    """A node of an ASCII text and all that is under it; what nests absurdly deep is cut off."""
    tree = Tree(node.type, node.start_byte, node.end_byte, source)
    if depth > MAX_DEPTH:
        tree.kind = "ERROR"
        return tree
    for index, child in enumerate(node.children):
        name = node.field_name_for_child(index)
        if child.type == "comment" or (not child.is_named and name is None):
            continue
        inner = copied(child, source, depth + 1)
        if child.is_named:
            tree.kids.append(inner)
        if name is not None:
            tree.fields.setdefault(name, []).append(inner)
    return tree


@frozen
class Kind:
    """A type as declared: `const float*&` is `float` with one pointer, a reference to const."""

    base: str
    pointers: int = 0
    reference: bool = False
    const: bool = False
    sizes: "tuple[Tree | None, ...]" = ()
    """Of an array: its sizes, outermost first."""

    @property
    def text(self) -> str:
        return self.base + "*" * self.pointers


@frozen(eq=False)
class Declared:
    """One name that a declaration declares."""

    name: str
    kind: Kind
    value: Tree | None
    """Its initialiser: an expression, an `argument_list` or an `initializer_list`."""
    start: int
    arguments: "tuple[Tree, ...] | None" = None
    """What reads like a function's parameters but may be an initialiser: `dim3 grid(n);`."""


@frozen(eq=False)
class FunctionDef:
    """A host function with its body."""

    name: str
    record: str | None
    """The class that it is a method of."""
    parameters: tuple[Declared, ...]
    template: "tuple[tuple[str, bool, Tree | None], ...]"
    """Name, whether it is a type, default."""
    node: Node
    source: str
    start: int
    returns: Kind
    static: bool
    _body: list[Tree] = field(factory=list)

    @property
    def body(self) -> Tree:
        if not self._body:
            self._body.append(copied(self.node, self.source))
        return self._body[0]


@frozen(eq=False)
class Record:
    """A struct or class: its data members in order, and what its constants are."""

    name: str
    members: tuple[Declared, ...]
    template: "tuple[tuple[str, bool, Tree | None], ...]" = ()
    plain: bool = True
    """False when it has constructors or bases: then nobody knows what its members hold."""


@frozen(eq=False)
class FileScope:
    """What one text declares outside of functions."""

    source: str
    functions: dict[str, list[FunctionDef]] = field(factory=dict)
    records: dict[str, Record] = field(factory=dict)
    aliases: dict[str, Kind] = field(factory=dict)
    globals: dict[str, Declared] = field(factory=dict)
    enumerators: "dict[str, tuple[Tree | None, str | None]]" = field(factory=dict)
    """Name -> its own value and the name before it."""
    instantiations: "dict[str, list[tuple[str, ...]]]" = field(factory=dict)
    """Function template -> the arguments of its explicit instantiations."""


@lru_cache(maxsize=64)
def file_scope(source: str) -> FileScope:
    """Everything at file scope of an ASCII text."""
    scope = FileScope(source)
    _Reader(scope).read(whole_tree(source), None, ())
    return scope


class _Reader:
    def __init__(self, scope: FileScope) -> None:
        self.scope = scope

    def read(self, node: Node, record: str | None, template: "tuple[tuple[str, bool, Tree | None], ...]") -> None:
        for child in node.named_children:
            self.item(child, record, template)

    def item(self, node: Node, record: str | None, template: "tuple[tuple[str, bool, Tree | None], ...]") -> None:
        scope = self.scope
        match node.type:
            case "namespace_definition" | "linkage_specification" | "declaration_list" | "ERROR":
                body = node.child_by_field_name("body") or node
                if body is not node and body.type not in ("declaration_list",):
                    self.item(body, record, template)
                else:
                    self.read(body, record, template)
            case "template_declaration":
                listed = node.child_by_field_name("parameters")
                parameters = _template_parameters(listed, scope.source)
                for child in node.named_children:
                    if listed is None or child.id != listed.id:
                        self.item(child, record, (*template, *parameters))
            case "template_instantiation":
                self.instantiation(node)
            case "function_definition":
                self.function(node, record, template)
            case "struct_specifier" | "class_specifier" | "union_specifier":
                self.record(node, template)
            case "enum_specifier":
                self.enum(node)
            case "type_definition":
                self.nested(node)
                tree = copied(node, scope.source)
                type_ = tree.one("type")
                for declarator in tree.all("declarator"):
                    name, kind = _declarator(declarator, _base(type_), False)
                    if name:
                        if kind.base == "" and type_ is not None and type_.one("body") is not None:
                            kind = Kind(name)
                            self.unnamed(node, name)
                        scope.aliases.setdefault(name, kind)
            case "alias_declaration":
                tree = copied(node, scope.source)
                name_tree, type_tree = tree.one("name"), tree.one("type")
                if name_tree is not None and type_tree is not None:
                    scope.aliases.setdefault(name_tree.text, described(type_tree))
            case "declaration" | "field_declaration":
                self.nested(node)
                tree = copied(node, scope.source)
                outside = any(kid.kind == "storage_class_specifier" and kid.text == "extern" for kid in tree.kids)
                for declared in declarations(tree):
                    if outside and declared.value is None:
                        continue
                    if declared.arguments is None or not _reads_like_prototype(declared):
                        scope.globals.setdefault(declared.name, declared)
            case _:
                pass

    def nested(self, node: Node) -> None:
        """A struct or enum that is defined within a declaration."""
        inner = node.child_by_field_name("type")
        if inner is not None and inner.type in ("struct_specifier", "class_specifier", "enum_specifier"):
            if inner.child_by_field_name("body") is not None:
                self.item(inner, None, ())

    def unnamed(self, node: Node, name: str) -> None:
        inner = node.child_by_field_name("type")
        if inner is not None and inner.type == "struct_specifier":
            self.record(inner, (), name)

    def record(
        self, node: Node, template: "tuple[tuple[str, bool, Tree | None], ...]", name: str | None = None
    ) -> None:
        label, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if body is None:
            return
        name = name or (label.text.decode() if label is not None and label.text else "")
        name = name.split("<")[0].rsplit("::", 1)[-1]
        members: list[Declared] = []
        plain = not any(child.type == "base_class_clause" for child in node.named_children)
        for child in body.named_children:
            if child.type == "field_declaration":
                self.nested(child)
                members += declarations(copied(child, self.scope.source))
            elif child.type == "function_definition":
                self.function(child, name, template)
                plain = plain and not _is_constructor(child, name)
            elif child.type in ("alias_declaration", "type_definition", "enum_specifier"):
                self.item(child, name, ())
            elif child.type == "template_declaration":
                self.item(child, name, template)
            elif child.type == "declaration" and _is_constructor(child, name):
                plain = False
        data = tuple(member for member in members if member.arguments is None)
        if name:
            self.scope.records.setdefault(name, Record(name, data, template, plain))

    def enum(self, node: Node) -> None:
        body = node.child_by_field_name("body")
        before: str | None = None
        label = node.child_by_field_name("name")
        if label is not None and label.text:
            self.scope.aliases.setdefault(label.text.decode(), Kind("int"))
        for child in body.named_children if body is not None else ():
            if child.type == "enumerator":
                tree = copied(child, self.scope.source)
                name = tree.one("name")
                if name is not None:
                    self.scope.enumerators.setdefault(name.text, (tree.one("value"), before))
                    before = name.text

    def function(self, node: Node, record: str | None, template: "tuple[tuple[str, bool, Tree | None], ...]") -> None:
        body = node.child_by_field_name("body")
        if body is None:
            return
        head = Tree("head", node.start_byte, body.start_byte, self.scope.source)
        declarator = node.child_by_field_name("declarator")
        type_node = node.child_by_field_name("type")
        if declarator is None:
            return
        tree = copied(declarator, self.scope.source)
        returned, pointers = _base(copied(type_node, self.scope.source) if type_node is not None else None), 0
        while tree.kind in ("pointer_declarator", "reference_declarator", "parenthesized_declarator") and tree.kids:
            pointers += tree.kind == "pointer_declarator"
            tree = tree.kids[-1]
        if tree.kind != "function_declarator":
            return
        label = tree.one("declarator")
        name = label.text if label is not None else ""
        if label is not None and label.kind == "template_function":
            return
        if "::" in name:
            owner, _, name = name.rpartition("::")
            owner = owner.split("<")[0].rsplit("::", 1)[-1].strip()
            record = owner if owner in self.scope.records else record
        name = name.strip()
        parameters = parameters_of(tree.one("parameters"))
        found = FunctionDef(
            name, record, parameters, template, body, self.scope.source, node.start_byte,
            Kind(returned, pointers), re.search(r"\bstatic\b", head.text) is not None,
        )  # fmt: skip
        self.scope.functions.setdefault(name, []).append(found)

    def instantiation(self, node: Node) -> None:
        for child in copied(node, self.scope.source).walk():
            if child.kind == "template_function":
                name, listed = child.one("name"), child.one("arguments")
                if name is not None and listed is not None:
                    arguments = tuple(argument.text for argument in listed.kids)
                    self.scope.instantiations.setdefault(name.text, []).append(arguments)
                return
            if child.kind == "function_declarator":
                label, parameters = child.one("declarator"), child.one("parameters")
                if label is not None and parameters is not None and label.kind == "identifier":
                    kinds = tuple(p.kind.text for p in parameters_of(parameters))
                    self.scope.instantiations.setdefault(f"{label.text}()", []).append(kinds)
                    return


def _is_constructor(node: Node, name: str) -> bool:
    declarator = node.child_by_field_name("declarator")
    while declarator is not None and declarator.type != "function_declarator":
        declarator = declarator.child_by_field_name("declarator")
    inner = declarator.child_by_field_name("declarator") if declarator is not None else None
    return inner is not None and inner.text is not None and inner.text.decode() == name


def _template_parameters(node: Node | None, source: str) -> "tuple[tuple[str, bool, Tree | None], ...]":
    found: list[tuple[str, bool, Tree | None]] = []
    for child in copied(node, source).kids if node is not None else ():
        if child.kind in ("type_parameter_declaration", "variadic_type_parameter_declaration"):
            found.append((child.kids[-1].text if child.kids else "", True, None))
        elif child.kind == "optional_type_parameter_declaration":
            label = child.one("name")
            found.append((label.text if label else "", True, child.one("default_type")))
        elif child.kind in ("parameter_declaration", "optional_parameter_declaration"):
            declarator = child.one("declarator")
            name, _ = _declarator(declarator, "", False) if declarator is not None else ("", None)
            found.append((name, False, child.one("default_value")))
        else:
            found.append(("", True, None))
    return tuple(found)


def _base(tree: Tree | None) -> str:
    """A type without qualifiers: `const struct P` -> `P`, `unsigned` -> `unsigned int`."""
    if tree is None:
        return ""
    if tree.kind in ("struct_specifier", "class_specifier", "enum_specifier", "union_specifier"):
        name = tree.one("name")
        return name.text if name is not None else ""
    if tree.kind == "placeholder_type_specifier":
        return "auto"
    words = " ".join(_WORDS.sub(" ", tree.text).split())
    return canonical_type(words)


def described(tree: Tree) -> Kind:
    """The type of a `type_descriptor`: of a cast, of a template argument, of an alias."""
    if tree.kind != "type_descriptor":
        return Kind(_base(tree))
    pointers = 0
    declarator = tree.one("declarator")
    while declarator is not None:
        pointers += declarator.kind == "abstract_pointer_declarator"
        declarator = declarator.one("declarator") or next(
            (kid for kid in declarator.kids if kid.kind.startswith("abstract_")), None
        )
    return Kind(_base(tree.one("type")), pointers, const=tree.text.startswith("const"))


def _declarator(tree: Tree, base: str, const: bool) -> tuple[str, Kind]:
    """The name that a declarator declares, and its type."""
    pointers, reference, sizes = 0, False, []
    while True:
        if tree.kind == "pointer_declarator":
            pointers += 1
        elif tree.kind == "reference_declarator":
            reference = True
        elif tree.kind == "array_declarator":
            sizes.append(tree.one("size"))
        elif tree.kind == "function_declarator":
            # A pointer to a function.
            pointers += 1
        elif tree.kind not in ("parenthesized_declarator", "attributed_declarator"):
            break
        inner = tree.one("declarator") or (tree.kids[-1] if tree.kids else None)
        if inner is None:
            return "", Kind(base, pointers, reference, const, tuple(reversed(sizes)))
        tree = inner
    named = tree.kind in ("identifier", "field_identifier", "type_identifier", "qualified_identifier")
    return tree.text if named else "", Kind(base, pointers, reference, const, tuple(reversed(sizes)))


def declarations(tree: Tree) -> list[Declared]:
    """The names of a `declaration` or `field_declaration`."""
    base = _base(tree.one("type"))
    const = any(kid.kind == "type_qualifier" and kid.text in ("const", "constexpr") for kid in tree.kids)
    found = []
    default = tree.one("default_value")
    for declarator in tree.all("declarator"):
        value, arguments, inner = default, None, declarator
        if declarator.kind == "init_declarator":
            value = declarator.one("value")
            inner = declarator.one("declarator") or declarator
        if inner.kind == "function_declarator":
            listed, label = inner.one("parameters"), inner.one("declarator")
            if label is not None and label.kind in ("identifier", "field_identifier") and listed is not None:
                found.append(Declared(label.text, Kind(base, const=const), value, inner.start, tuple(listed.kids)))
                continue
        name, kind = _declarator(inner, base, const)
        if name:
            found.append(Declared(name, kind, value, inner.start, arguments))
    return found


def _reads_like_prototype(declared: Declared) -> bool:
    return declared.arguments is not None and (
        not declared.arguments or any(len(argument.kids) > 1 for argument in declared.arguments)
    )


def parameters_of(tree: Tree | None) -> tuple[Declared, ...]:
    """The parameters of a `parameter_list`."""
    found = []
    for child in tree.kids if tree is not None else ():
        if child.kind not in ("parameter_declaration", "optional_parameter_declaration"):
            if child.kind == "variadic_parameter_declaration":
                found.append(Declared("...", Kind("..."), None, child.start))
            continue
        base = _base(child.one("type"))
        const = any(kid.kind == "type_qualifier" and kid.text == "const" for kid in child.kids)
        declarator = child.one("declarator")
        if declarator is None:
            if base != "void":
                found.append(Declared("", Kind(base), child.one("default_value"), child.start))
            continue
        if declarator.kind.startswith("abstract_"):
            reference = declarator.kind == "abstract_reference_declarator"
            kind = Kind(base, int(not reference), reference, const)
            found.append(Declared("", kind, child.one("default_value"), child.start))
            continue
        name, kind = _declarator(declarator, base, const)
        if kind.sizes:
            kind = Kind(kind.base, kind.pointers + 1, kind.reference, kind.const)
        found.append(Declared(name, kind, child.one("default_value"), child.start))
    return tuple(found)
