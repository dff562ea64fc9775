"""The settings as VS Code's manifest declares them, made from `Settings` so that the two cannot differ."""

from typing import Any, Literal, get_args, get_origin, get_type_hints

import attrs

from dice_lsp.config import RANGES, Settings

_JSON_TYPES: dict[Any, str] = {bool: "boolean", int: "integer", float: "number", str: "string"}
_LARGEST_INTEGER = 2**53 - 1
"""JavaScript has no larger one that is exact."""
_CHOOSES_A_PROGRAM = {"nvcc", "cxx"}
_OF_THE_USER_ALONE = {"dataset_keep"}
"""A workspace, which may be a stranger's, does not decide what of the user's work is kept."""


def vscode_properties() -> dict[str, dict[str, Any]]:
    """The value of `contributes.configuration.properties` in an extension's package.json."""
    kinds = get_type_hints(Settings)
    fields: tuple[attrs.Attribute[Any], ...] = attrs.fields(Settings)
    return {
        f"dice.{camel_case(field.name)}": _property(field.name, field.default, kinds[field.name], field.metadata["doc"])
        | {"order": order}
        for order, field in enumerate(fields)
    }


def camel_case(name: str) -> str:
    """`check_budget_s` -> `checkBudgetS`, which `resolve` reads back."""
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def _property(name: str, default: Any, kind: Any, doc: str) -> dict[str, Any]:
    described = _schema(kind)
    if name in RANGES:
        low, high = RANGES[name]
        described |= {"minimum": low}
        if high <= _LARGEST_INTEGER:
            described |= {"maximum": high}
    return described | {
        "default": list(default) if isinstance(default, tuple) else default,
        "markdownDescription": doc,
        "scope": _scope(name),
    }


def _scope(name: str) -> str:
    if name in _OF_THE_USER_ALONE:
        return "application"
    # A program path belongs to a machine: it is not carried to others by settings sync.
    return "machine-overridable" if name in _CHOOSES_A_PROGRAM else "window"


def _schema(kind: Any) -> dict[str, Any]:
    if get_origin(kind) is Literal:
        return {"type": "string", "enum": list(get_args(kind))}
    if kind == tuple[str, ...]:
        return {"type": "array", "items": {"type": "string"}}
    alternatives = get_args(kind)
    if alternatives:
        return {"type": [_JSON_TYPES.get(item, "null") for item in alternatives]}
    return {"type": _JSON_TYPES[kind]}
