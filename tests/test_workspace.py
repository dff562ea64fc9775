"""Which folder a file belongs to, and the few settings that a folder may decide."""

import os
from pathlib import Path

import attrs
import pytest

from dice_lsp.config import Settings
from dice_lsp.workspace import SETTINGS, folder_of, workspace_file, workspace_settings


def test_the_innermost_folder_holds_a_file():
    folders = ["/a", "/a/b", "/a/bc"]
    assert folder_of("/a/b/c.cu", folders) == "/a/b"
    assert folder_of("/a/bcd/c.cu", folders) == "/a"
    assert folder_of("/x/c.cu", folders) is None and folder_of("/a/c.cu", []) is None


def test_a_history_lies_in_the_folder_and_else_with_the_user(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    inside = workspace_file("/a/b/../c.cu", "/a")
    assert (inside.store, inside.name) == (Path("/a/.dice"), "c.cu")
    outside = workspace_file("/x/c.cu", None)
    assert (outside.store, outside.name) == (tmp_path / "dice-lsp/outside", "/x/c.cu")


def write(folder: Path, text: str) -> None:
    (folder / ".dice").mkdir()
    (folder / ".dice/settings.toml").write_text(text)


def test_the_file_decides_what_it_names_and_nothing_else(tmp_path):
    base = Settings(candidates=3, check_on_open=False, model="mine")
    assert workspace_settings(str(tmp_path), base) == (base, ())
    write(tmp_path, "check_on_save = false\nregression_percent = 5\n")
    settings, complaints = workspace_settings(str(tmp_path), base)
    assert settings == attrs.evolve(base, check_on_save=False, regression_percent=5.0) and complaints == ()


@pytest.mark.parametrize("name", sorted(field.name for field in attrs.fields(Settings) if field.name not in SETTINGS))
def test_no_other_setting_is_taken_from_a_workspace(tmp_path, name):
    write(tmp_path, f'{name} = "evil"\n')
    settings, (complaint,) = workspace_settings(str(tmp_path), Settings())
    assert settings == Settings() and f"{name} is not for a workspace to set" in complaint


def test_a_pipe_in_the_place_of_the_file_is_not_waited_for(tmp_path):
    (tmp_path / ".dice").mkdir()
    os.mkfifo(tmp_path / ".dice/settings.toml")
    settings, (complaint,) = workspace_settings(str(tmp_path), Settings())
    assert settings == Settings() and "is not a plain file" in complaint
