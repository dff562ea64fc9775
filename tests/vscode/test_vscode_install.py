"""What the tests install by themselves: whole or not at all, and never silently left out."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.vscode import install


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(install, "CACHE", tmp_path / "cache")
    return tmp_path / "cache"


def test_an_install_that_was_aborted_is_done_again(cache: Path) -> None:
    def fails(folder: Path) -> None:
        (folder / "half").write_text("")
        raise install.NotInstalled("no network")

    def works(folder: Path) -> None:
        (folder / "whole").write_text("")

    with pytest.raises(install.NotInstalled):
        install._complete("@some/thing@1", fails)
    assert [path.name for path in cache.iterdir()] == ["lock"]
    folder = install._complete("@some/thing@1", works)
    assert [path.name for path in folder.iterdir()] == ["whole"]
    assert install._complete("@some/thing@1", fails) == folder, "what is there is not made again"


def test_packages_are_installed_when_the_lock_file_says_otherwise(tmp_path: Path) -> None:
    def lock(path: Path, **versions: str) -> None:
        path.parent.mkdir(exist_ok=True)
        packages = {f"node_modules/{name}": {"version": version} for name, version in versions.items()}
        path.write_text(json.dumps({"packages": {"": {"name": "root"}, **packages}}))

    lock(tmp_path / "package-lock.json", one="1.0.0", two="2.0.0")
    assert not install._as_locked(tmp_path)
    lock(tmp_path / "node_modules/.package-lock.json", one="1.0.0")
    assert not install._as_locked(tmp_path)
    lock(tmp_path / "node_modules/.package-lock.json", one="1.0.0", two="2.0.1")
    assert not install._as_locked(tmp_path)
    lock(tmp_path / "node_modules/.package-lock.json", one="1.0.0", two="2.0.0")
    assert install._as_locked(tmp_path)


def test_a_command_that_fails_says_what_it_said(tmp_path: Path) -> None:
    with pytest.raises(install.NotInstalled, match=r"ended with 3:\nno such package"):
        install._run([sys.executable, "-c", "print('no such package'); raise SystemExit(3)"], tmp_path)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("required", "outcome"), [("", "skipped"), ("1", "error")])
def test_without_a_browser_it_is_said_and_ci_fails(required: str, outcome: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests/vscode/test_vscode_keys.py"],
        cwd=install.ROOT,
        env={
            "PATH": f"{install.node().program.parent}:/usr/bin:/bin",
            "CHROME": "/nowhere/chromium",
            "DICE_REQUIRE_EDITORS": required,
        },
        capture_output=True,
        text=True,
        timeout=540,
        check=False,
    )
    assert (done.returncode == 0) == (outcome == "skipped"), done.stdout
    assert f"1 {outcome}" in done.stdout
    assert "CHROME is /nowhere/chromium, which is no program" in done.stdout
