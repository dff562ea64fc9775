"""What a confined child can still do, asked of real children; what a kernel lacks is said."""

import json
import os
import shutil
import socket
import sys
from pathlib import Path

import pytest

from dice_lsp import process
from dice_lsp.worker import confine
from dice_lsp.worker.confine import Confinement, Policy, compiler_policy, landlock_abi, runner_policy, seccomp_usable

TRY = """
import ctypes, json, os, signal, socket, subprocess, sys, threading
from dice_lsp.worker.confine import Confinement, runner_policy
listening, folder = sys.argv[1], sys.argv[2]
with Confinement(runner_policy()) as confinement:
    confinement.enter()

def attempt(what):
    try:
        what()
    except OSError as error:
        return error.strerror
    return "done"

def connect(family, address):
    with socket.socket(family) as made:
        made.connect(address)

def write(path):
    with open(path, "w") as file:
        file.write("x")

def number(call):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(call, 0, 0, 0, 0) < 0 and ctypes.get_errno() == 1:
        raise OSError(1, "Operation not permitted")

ATTEMPTS = {
    "internet": lambda: connect(socket.AF_INET, ("127.0.0.1", int(listening))),
    "internet 6": lambda: socket.socket(socket.AF_INET6).close(),
    "netlink": lambda: socket.socket(socket.AF_NETLINK).close(),
    "own sockets": lambda: socket.socket(socket.AF_UNIX).close(),
    "program": lambda: subprocess.run(["true"]),
    "io_uring": lambda: number(425),
    "parent's end": lambda: os.kill(os.getppid(), 0),
    "read a secret": lambda: open(os.path.join(folder, "secret")).close(),
    "list a folder": lambda: os.listdir(folder),
    "write a file": lambda: write(os.path.join(folder, "made")),
    "write here": lambda: write("made"),
    "remove a file": lambda: os.unlink(os.path.join(folder, "secret")),
    "make a link": lambda: os.symlink("/etc/passwd", os.path.join(folder, "link")),
    "read the system": lambda: open("/etc/passwd").close(),
    "write to nowhere": lambda: write("/dev/null"),
    "import": lambda: __import__("wave"),
    "own name": lambda: write(f"/proc/self/task/{threading.get_native_id()}/comm"),
    "parent's name": lambda: os.close(os.open(f"/proc/{os.getppid()}/comm", os.O_WRONLY)),
    "system settings": lambda: os.close(os.open("/proc/sys/kernel/domainname", os.O_WRONLY)),
}

def all_of_it():
    return {name: attempt(what) for name, what in ATTEMPTS.items()}

answers = {"words": confinement.words, "main": all_of_it()}
thread = threading.Thread(target=lambda: answers.update(thread=all_of_it()))
thread.start()
thread.join()
print(json.dumps(answers))
"""
FREE = {"own name", "own sockets", "read the system", "write to nowhere", "import"}
FILES = {
    "read a secret", "list a folder", "write a file", "write here", "remove a file", "make a link", "parent's end",
    "parent's name", "system settings",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("mine")
    return tmp_path


def test_what_a_runner_can_still_do(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        command = [sys.executable, "-c", TRY, str(server.getsockname()[1]), str(folder)]
        env = {**os.environ, "PYTHONPATH": str(Path(confine.__file__).parents[2])}
        done = process.run(command, deadline_s=60, cwd=str(folder), env=env)
    assert done.returncode == 0, done.stderr.decode()
    answers = json.loads(done.stdout)
    assert answers["words"] == confine.words(landlock_abi() > 0, seccomp_usable())
    held = set(answers["main"]) - FREE
    if landlock_abi() < 6:
        held.remove("parent's end")
    if not landlock_abi():
        held -= FILES
    if not seccomp_usable():
        held &= FILES
    for where in ("main", "thread"):
        assert {name: answers[where][name] for name in FREE} == dict.fromkeys(FREE, "done")
        refused = {answers[where][name] for name in held}
        assert refused <= {"Operation not permitted", "Permission denied"}, answers[where]
    if landlock_abi():
        assert (folder / "secret").read_text() == "mine" and {item.name for item in folder.iterdir()} == {"secret"}


@pytest.mark.parametrize(
    ("landlock", "seccomp", "said"),
    [
        (True, True, "landlock, seccomp, limits"),
        (False, True, "seccomp, limits (no landlock in this kernel)"),
        (True, False, "landlock, limits (no seccomp)"),
        (False, False, "limits (no landlock in this kernel, no seccomp)"),
    ],
)
def test_what_holds_is_said(landlock: bool, seccomp: bool, said: str) -> None:
    assert confine.words(landlock, seccomp) == said


def test_a_kernel_without_either_gives_limits_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confine, "landlock_abi", lambda: 0)
    monkeypatch.setattr(confine, "seccomp_usable", lambda: False)
    with Confinement(runner_policy()) as confinement:
        assert confinement.words == "limits (no landlock in this kernel, no seccomp)"
        done = process.run(["cat", "/etc/hostname"], deadline_s=20, confine=confinement.enter)
    assert done.returncode == 0


def needs_landlock() -> None:
    if not landlock_abi():
        pytest.skip("this kernel has no landlock, so files are not confined")


def test_a_compiler_reads_what_it_is_given_and_writes_in_its_folder(folder: Path) -> None:
    needs_landlock()
    cxx = shutil.which("g++") or shutil.which("clang++")
    assert cxx is not None
    given, build = folder / "given", folder / "build"
    given.mkdir()
    build.mkdir()
    (given / "size.h").write_text("#include <vector>\nconstexpr int size = 3;\n")
    (given / "link.h").symlink_to(folder / "secret")

    def compiled(text: str, output: Path) -> process.Finished:
        (build / "a.cpp").write_text(text)
        argv = [cxx, "-c", "-I", str(given), str(build / "a.cpp"), "-o", str(output)]
        env = {"PATH": os.environ["PATH"], "TMPDIR": str(build)}
        with Confinement(compiler_policy(cxx, [str(given)], [str(build)])) as confinement:
            return process.run(argv, deadline_s=60, cwd=str(build), env=env, confine=confinement.enter)

    done = compiled("#include <size.h>\nint f() { return size; }\n", build / "a.o")
    assert done.returncode == 0 and (build / "a.o").stat().st_size, done.stderr.decode()
    for name in (f'"{folder}/secret"', '"../secret"', "<link.h>"):
        done = compiled(f"#include {name}\n", build / "b.o")
        assert done.returncode != 0 and b"mine" not in done.stderr, name
    assert compiled("int f();\n", folder / "c.o").returncode != 0
    assert compiled("int f();\n", given / "c.o").returncode != 0


def test_who_enters_stays_confined_and_the_parent_is_free(folder: Path) -> None:
    needs_landlock()
    with Confinement(Policy(("/bin", "/lib", "/lib64", "/usr"), programs=True)) as confinement:
        done = process.run(["cat", str(folder / "secret")], deadline_s=20, confine=confinement.enter)
    assert done.returncode != 0 and b"denied" in done.stderr
    assert (folder / "secret").read_text() == "mine"


def test_a_child_that_cannot_be_confined_is_not_started(folder: Path) -> None:
    def refuse() -> None:
        raise OSError("no")

    with pytest.raises(OSError, match="could not be limited and confined"):
        process.run([sys.executable, "-c", f"open({str(folder / 'made')!r}, 'w')"], deadline_s=20, confine=refuse)
    assert not (folder / "made").exists()
