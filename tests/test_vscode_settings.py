"""The VS Code extension declares exactly the settings that there are: the manifest is made from `Settings`."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest

from dice_lsp.config import RANGES, Settings, resolve
from dice_lsp.settings_output import camel_case, vscode_properties

MANIFEST = Path(__file__).parent.parent / "editors" / "vscode" / "package.json"
NAMES = [field.name for field in attrs.fields(Settings)]


@pytest.fixture(scope="module")
def sections() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(MANIFEST.read_text(encoding="utf-8"))["contributes"]["configuration"]
    return found


def test_the_manifest_is_not_stale(sections: list[dict[str, Any]]) -> None:
    assert sections[0]["properties"] == vscode_properties(), "run `npm run settings` in editors/vscode"


def test_what_only_the_client_knows_is_no_setting_of_the_server(sections: list[dict[str, Any]]) -> None:
    own = [name.removeprefix("dice.") for section in sections[1:] for name in section["properties"]]
    assert own and all(name.split(".")[0] in {"server", "trace"} for name in own)
    assert not set(own) & {camel_case(name) for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_the_server_reads_the_declared_name_and_default(name: str) -> None:
    declared = vscode_properties()[f"dice.{camel_case(name)}"]
    settings, complaints = resolve({camel_case(name): declared["default"]})
    assert complaints == ()
    assert settings == Settings()


@pytest.mark.parametrize("name", sorted(RANGES))
def test_the_declared_limits_are_those_of_the_server(name: str) -> None:
    declared = vscode_properties()[f"dice.{camel_case(name)}"]
    assert resolve({name: declared["minimum"]})[1] == ()
    assert resolve({name: declared["minimum"] - 1})[1]
    if name == "seed":
        assert "maximum" not in declared  # it has no exact counterpart in JavaScript
        return
    assert resolve({name: declared["maximum"]})[1] == ()
    assert resolve({name: declared["maximum"] + 1})[1]


def test_paths_of_programs_stay_on_their_machine() -> None:
    properties = vscode_properties()
    assert {name for name, value in properties.items() if value["scope"] == "machine-overridable"} == {
        "dice.nvcc", "dice.cxx",
    }  # fmt: skip


def test_the_command_prints_what_the_manifest_has(sections: list[dict[str, Any]]) -> None:
    printed = subprocess.run(
        [sys.executable, "-m", "dice_lsp", "settings", "--vscode"], capture_output=True, text=True, check=True
    )
    assert json.loads(printed.stdout) == sections[0]["properties"]
