"""Runs the real VS Code with our extension, away from any user's settings: suites in its extension host, or key presses."""

import json
import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from attrs import evolve, field, frozen

from dice_lsp.worker.__main__ import BACKEND_VARIABLE
from tests.vscode import install
from tests.vscode.install import DRIVER, ROOT

PROGRAM = Path(sys.executable).parent / "dice-lsp"
"""The server of this checkout's environment."""
SETTINGS: Mapping[str, Any] = {
    "dice.server.path": str(PROGRAM),
    "dice.candidates": 4,
    "security.workspace.trust.enabled": False,
    "workbench.startupEditor": "none",
    "workbench.tips.enabled": False,
    "workbench.enableExperiments": False,
    "workbench.activityBar.location": "hidden",
    "workbench.sideBar.location": "right",
    "workbench.layoutControl.enabled": False,
    "workbench.colorTheme": "Default Light Modern",
    "workbench.secondarySideBar.defaultVisibility": "hidden",
    "workbench.editor.empty.hint": "hidden",
    "window.commandCenter": False,
    "window.title": "${activeEditorShort}",
    "window.menuBarVisibility": "hidden",
    "editor.fontFamily": "'DejaVu Sans Mono', monospace",
    "editor.fontSize": 14,
    # The browser draws without a GPU: what moves costs as much as a test.
    "editor.cursorBlinking": "solid",
    "workbench.reduceMotion": "on",
    "editor.minimap.enabled": False,
    "extensions.ignoreRecommendations": True,
    "extensions.autoUpdate": False,
    "extensions.autoCheckUpdates": False,
    "update.mode": "none",
    "telemetry.telemetryLevel": "off",
    "git.enabled": False,
    "git.openRepositoryInParentFolders": "never",
    "json.schemaDownload.enable": False,
    "typescript.disableAutomaticTypeAcquisition": True,
    "files.simpleDialog.enable": True,
}
"""User settings of a test: ours, and whatever keeps the screen empty and the network unused."""
PROCESS_GRACE_S = 20.0
NOISE = re.compile(
    r"%c|native-watchdog|open-vsx|Release/watchdog|ERR_NAME_NOT_RESOLVED|vsda|status of 404|HTTP response code|iframe|Overwriting extension"
)
"""What VS Code says of its missing native modules and of the network, which is not used."""
BORING = re.compile(r"^\s+at |_doActivateExtension|vscode.lock|-> (vscode|ms-vscode)\.")
"""Stacks, and what is said at every start."""


@frozen
class Seen:
    """What a session left behind."""

    steps: Mapping[str, Any]
    """Values that a script noted, by name."""
    tests: Sequence[Mapping[str, Any]]
    """Outcomes of the suites' tests: suite, name, failure, seen, seconds."""
    folder: Path
    """Where its pictures and logs are."""
    orphans: Sequence[str] = field(factory=list)
    """Command lines of processes that were still there some time after the editor had gone."""
    failure: str = ""
    """Why the session did not end well."""
    account: str = ""
    """All that helps to see why."""

    def test(self, name: str) -> Mapping[str, Any]:
        """What a test of the suite noted."""
        found: Mapping[str, Any] = next(test for test in self.tests if test["name"] == name)["seen"]
        return found


def run_suites(folder: Path, suites: Sequence[str], **options: Any) -> Seen:
    """Run suites of `editors/vscode/test/suites` inside one extension host, one after another.

    `folder` takes everything that the session writes; `folder/workspace` is what the editor opens, with a folder in it
    for each suite. With `must_pass=False` what went wrong is only in what is given back.
    """
    return _drive(folder, {"suites": str(DRIVER / "suites/index.js")}, tuple(suites), **options)


def run_script(folder: Path, script: str, **options: Any) -> Seen:
    """Run a script of `editors/vscode/test/ui`, which presses keys and looks at the screen."""
    return _drive(folder, {"script": str(DRIVER / "ui" / f"{script}.mjs")}, (), **options)


def _drive(
    folder: Path,
    what: Mapping[str, Any],
    suites: tuple[str, ...],
    *,
    settings: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    neighbours: Sequence[Path] = (),
    installed: Path | None = None,
    cold: bool = False,
    must_pass: bool = True,
    deadline_s: float = 480.0,
    **specification: Any,
) -> Seen:
    """One session: a server of its own, a browser, and what was asked of them.

    `neighbours` are extensions that run beside ours; `installed` is a `.vsix` to use instead of this checkout. `cold`
    is a machine on which our compilers have never run; else what they keep is shared with the other tests.
    """
    workspace, out, user = folder / "workspace", folder / "out", folder / "user"
    for each in (workspace, out, user / "data/User"):
        each.mkdir(parents=True, exist_ok=True)
    (user / "data/User/settings.json").write_text(json.dumps({**SETTINGS, **(settings or {})}, indent=1))
    beside = [*([] if suites else [DRIVER / "probe"]), *neighbours]
    # VS Code takes one extension from where it is developed; the others are installed, and found at the first start.
    (user / "extensions").mkdir(exist_ok=True)
    for each in beside:
        (user / "extensions" / f"dice-tests.{each.name}-1.0.0").symlink_to(each)
    if installed:
        _install_extension(user, installed)
    browser = install.browser()
    # A socket's path may have 107 characters, and a test's own folder is often deeper than that.
    with tempfile.TemporaryDirectory(prefix="dice-") as short:
        surroundings = {
            **os.environ,
            BACKEND_VARIABLE: "host",
            # As if started in a terminal: else a login shell is asked for the environment, and this one is lost.
            "VSCODE_CLI": "1",
            **({"XDG_CACHE_HOME": str(folder / "cache")} if cold else {}),
            "DICE_TEST_PROGRAM": str(PROGRAM),
            "DICE_TEST_OUT": str(out / "tests.json"),
            "DICE_TEST_SUITES": ",".join(suites),
            "DICE_TEST_PROBE": f"{short}/probe",
            **(environment or {}),
        }
        with _server(user, surroundings) as (authority, gone):
            asked = {
                "authority": authority,
                "extension": None if installed else str(install.extension()),
                "folder": str(workspace),
                "out": str(out),
                "probe": f"{short}/probe",
                "browser": str(browser.program),
                "browser_environment": browser.environment,
                "viewport": {"width": 1100, "height": 640},
                "deadline_s": deadline_s,
                **what,
                **specification,
            }
            (out / "asked.json").write_text(json.dumps(asked, indent=1))
            driven = subprocess.run(
                [str(install.node().program), str(install.driver()), str(out / "asked.json")],
                capture_output=True,
                text=True,
                timeout=deadline_s + 120,
                check=False,
            )
    result = json.loads((out / "result.json").read_text()) if (out / "result.json").exists() else {}
    tests = json.loads((out / "tests.json").read_text()) if suites and (out / "tests.json").exists() else []
    seen = Seen(result.get("steps", {}), tests, out, gone)
    if driven.returncode == 0 and result.get("ok"):
        return seen
    seen = evolve(seen, failure=str(result.get("failure")), account=_account(seen, result, driven.stderr, user))
    assert not must_pass, seen.account
    return seen


def _account(seen: Seen, result: Mapping[str, Any], errors: str, user: Path) -> str:
    """All that helps to see why a session failed."""
    lines = [f"VS Code: {result.get('failure')}", errors[-2000:]]
    for test in seen.tests:
        lines.append(f"- {test['name']} ({test['seconds']:.1f} s): {test['failure'] or 'passed'}")
        if test["failure"]:
            lines.append(f"  saw {json.dumps(test['seen'])[:2000]}")
    if seen.steps:
        lines.append(f"steps: {json.dumps(seen.steps)[:4000]}")
    if (picture := seen.folder / "failure.png").exists():
        lines.append(f"screen: {picture}")
    said = [line[:300] for line in result.get("console", []) if not NOISE.search(line)]
    lines += ["console:", *[f"  {line}" for line in dict.fromkeys(said[-25:])]]
    for log in _logs(user):
        told = log.read_text(errors="replace").splitlines()
        lines += [f"{log.name}:", *[f"  {line[:300]}" for line in told if not BORING.search(line)][-30:]]
    return "\n".join(lines)


def _logs(user: Path) -> list[Path]:
    """What our extension wrote to its output channels, and what the extension host said."""
    logs = [path for path in user.glob("data/logs/**/*.log") if path.stat().st_size]
    return sorted(path for path in logs if "dice" in str(path.relative_to(user)).lower() or "exthost" in path.name)


def log_of(folder: Path) -> str:
    """The text of the extension's output channels in a session's folder."""
    return "\n".join(path.read_text(errors="replace") for path in _logs(folder / "user") if "exthost" not in path.name)


def _install_extension(user: Path, vsix: Path) -> None:
    command = [str(install.node().program), "out/server-main.js", "--accept-server-license-terms"]
    done = subprocess.run(
        [*command, "--server-data-dir", str(user), "--install-extension", str(vsix), "--force"],
        cwd=install.editor(),
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0 and "successfully installed" in done.stdout, done.stdout + done.stderr


@contextmanager
def _server(user: Path, environment: Mapping[str, str]) -> Iterator[tuple[str, list[str]]]:
    """VS Code's server on a free port; at the end it is gone with all its children.

    Gives its address, and a list that at the end names children which had to be killed one by one.
    """
    install.extension()
    command = [
        str(install.node().program), str(install.editor() / "out/server-main.js"),
        "--host", "127.0.0.1", "--port", "0", "--without-connection-token", "--accept-server-license-terms",
        "--server-data-dir", str(user), "--user-data-dir", str(user / "data"), "--telemetry-level", "off",
    ]  # fmt: skip
    orphans: list[str] = []
    with (user / "server.log").open("w") as log:
        process = subprocess.Popen(
            command,
            cwd=user,
            env={**environment},
            stdout=subprocess.PIPE,
            stderr=log,
            stdin=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
    try:
        yield f"127.0.0.1:{_port(process, user / 'server.log')}", orphans
    finally:
        family = _family(process.pid)
        # The extension host gets the time that it has when a user closes the window; the rest is for what hangs.
        process.send_signal(signal.SIGTERM)
        _, left = psutil.wait_procs(family, timeout=PROCESS_GRACE_S)
        for each in left:
            try:
                orphans.append(" ".join(each.cmdline()))
                each.kill()
            except psutil.NoSuchProcess:
                pass
        process.wait(timeout=10)


def _family(pid: int) -> list[psutil.Process]:
    try:
        parent = psutil.Process(pid)
        return [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _port(process: subprocess.Popen[str], log: Path, deadline_s: float = 60.0) -> int:
    """The port that the server has taken, as it says on its standard output."""
    assert process.stdout is not None
    said = ""
    end = time.monotonic() + deadline_s
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while time.monotonic() < end and process.poll() is None:
            if selector.select(timeout=1.0):
                said += process.stdout.readline()
                if found := re.search(r"Server bound to [^\s]*:(\d+)|listening on (\d+)", said):
                    return int(found[1] or found[2])
    raise AssertionError(f"VS Code's server did not start:\n{said}\n{log.read_text()[-3000:]}")


def workspace(folder: Path, files: Mapping[str, str | bytes | Path]) -> dict[str, Path]:
    """Write or copy files into the workspace of a session; their paths by name."""
    made = {}
    for name, content in files.items():
        path = folder / "workspace" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Path):
            shutil.copy(content, path)
        else:
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        made[name] = path
    return made


__all__ = ["ROOT", "Seen", "log_of", "run_script", "run_suites", "workspace"]
