"""The page about other editors: what can be read by a program is read, and no editor that is tested is missing."""

import json
import re
import tomllib
from typing import Any

import pytest

from dice_lsp.config import resolve
from tests.clients.plain import MANNERS, recorded
from tests.stdio.raw import ROOT

PAGE = (ROOT / "docs/clients.md").read_text()
SNIPPETS = re.findall(r"```(toml|json)\n(.*?)```", PAGE, re.DOTALL)


def ours(value: Any) -> list[dict[str, Any]]:
    """Every group of our settings in a snippet, in whatever form that editor wants them."""
    if not isinstance(value, dict):
        return []
    found = [part for key, part in value.items() if key == "dice" and isinstance(part, dict)]
    dotted = {key.removeprefix("dice."): part for key, part in value.items() if key.startswith("dice.")}
    return found + ([dotted] if dotted else []) + [group for part in value.values() for group in ours(part)]


@pytest.mark.parametrize("kind, text", SNIPPETS)
def test_snippets_can_be_read_and_name_settings_that_exist(kind: str, text: str) -> None:
    for group in ours(tomllib.loads(text) if kind == "toml" else json.loads(text)):
        _, complaints = resolve(group)
        assert group and complaints == ()


def test_the_settings_of_all_snippets_were_looked_at() -> None:
    groups = [group for kind, text in SNIPPETS for group in ours((tomllib if kind == "toml" else json).loads(text))]
    assert len(groups) == 4, "Helix, Sublime, Kate, coc.nvim"


@pytest.mark.parametrize("name", MANNERS)
def test_an_editor_that_is_tested_is_on_the_page(name: str) -> None:
    editor = recorded(name)
    program = editor["client"].split()[0].rstrip(",")
    assert re.search(rf"^## {program}", PAGE, re.MULTILINE)
    assert re.search(r"\b[0-9a-f]{7,10}\b", editor["origin"]), "the revision that its capabilities come from"
