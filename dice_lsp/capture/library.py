"""The library that records launches: compiled at its first use, and the CUPTI that it listens with."""

import contextlib
import fcntl
import hashlib
import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from platformdirs import user_cache_path

from dice_lsp import process
from dice_lsp.capture.recording import CaptureError

SOURCE = Path(__file__).with_name("injection.c")
OPTIONS = ("-std=c11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread")
COMPILERS = ("cc", "gcc", "clang")
BUILD_DEADLINE_S = 120.0


def build(cache: Path | None = None, compiler: str | None = None) -> Path:
    """The compiled library, made if it is not there yet. Raises `CaptureError`; blocks for about a second then."""
    source = SOURCE.read_bytes()
    compiler = compiler or find_compiler()
    key = hashlib.sha256(b"\0".join([source, " ".join(OPTIONS).encode(), platform.machine().encode()])).hexdigest()[:24]
    folder = (cache or user_cache_path("dice-lsp")) / "capture"
    library = folder / f"dice_capture-{key}.so"
    if library.exists():
        return library
    if compiler is None:
        raise CaptureError(
            "no C compiler is here, and the library that records is compiled at its first use: apt-get install gcc"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / ".lock", "wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not library.exists():
                _compile(compiler, library)
    except OSError as error:
        raise CaptureError(f"{folder} cannot be written: {(error.strerror or str(error)).lower()}") from error
    return library


def find_compiler() -> str | None:
    """The C compiler: `$CC`, which may be several words, else the first that is on PATH."""
    return os.environ.get("CC") or next(filter(None, map(shutil.which, COMPILERS)), None)


def _compile(compiler: str, library: Path) -> None:
    made = Path(tempfile.mkdtemp(prefix=".build-", dir=library.parent))
    try:
        # Several words, as in CC="ccache gcc".
        command = [*compiler.split(), *OPTIONS, str(SOURCE), "-o", str(made / "library.so"), "-ldl"]
        try:
            done = process.run(command, deadline_s=BUILD_DEADLINE_S)
        except FileNotFoundError:
            raise CaptureError(f"the C compiler {compiler} is not there: set CC to another one") from None
        if done.returncode != 0 or done.timed_out:
            words = done.stderr.decode(errors="replace").strip().splitlines()
            error = next((line for line in words if "error" in line), words[-1] if words else "it said nothing")
            raise CaptureError(
                f"{compiler} could not compile the library that records: {error.strip()[:300].rstrip('.')}"
            )
        os.replace(made / "library.so", library)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def find_cupti(
    driver_cuda: int = 0, environment: Mapping[str, str] | None = None, folders: Iterable[str] | None = None
) -> Path | None:
    """CUPTI's library: of the same major version as the driver's CUDA (13000 and the like) if there is one, else newest.

    Looked for in the toolkit that the environment or PATH names, in /usr/local/cuda and /opt/cuda, in the packages of
    this Python (nvidia-cuda-cupti), and where the system keeps libraries.
    """
    environment = os.environ if environment is None else environment
    found: dict[Path, tuple[int, str]] = {}
    for folder in [*_toolkits(environment), *_packages()] if folders is None else folders:
        with contextlib.suppress(OSError):
            for path in Path(folder).glob("libcupti.so*"):
                there = path.resolve()
                found[there] = max(found.get(there, (0, "")), (_major(path.name), there.name))
    major = driver_cuda // 1000
    return max(found, key=lambda path: (found[path][0] == major, *found[path]), default=None)


def _toolkits(environment: Mapping[str, str]) -> Sequence[str]:
    homes = [environment.get(name, "") for name in ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT")]
    nvcc = shutil.which("nvcc", path=environment.get("PATH"))
    if nvcc is not None:
        homes.append(str(Path(os.path.realpath(nvcc)).parent.parent))
    homes += ["/usr/local/cuda", "/opt/cuda"]
    machine = {"x86_64": "x86_64-linux", "aarch64": "sbsa-linux"}.get(platform.machine(), "x86_64-linux")
    places = ("extras/CUPTI/lib64", "lib64", "lib", f"targets/{machine}/lib")
    named = [f"{home}/{place}" for home in dict.fromkeys(homes) if home for place in places]
    return [*named, f"/usr/lib/{platform.machine()}-linux-gnu", "/usr/lib64"]


def _packages() -> Sequence[str]:
    """Folders of the wheels: `nvidia/cu13/lib`, and `nvidia/cuda_cupti/lib` for CUDA 12."""
    found = []
    for entry in sys.path:
        nvidia = Path(entry or ".") / "nvidia"
        if nvidia.is_dir():
            found += [str(folder) for folder in (*nvidia.glob("cu*/lib"), *nvidia.glob("cu*/lib64"))]
    return found


def _major(name: str) -> int:
    """CUDA's major version by the name of a file: of `libcupti.so.13`, or of `libcupti.so.2025.3.0` by its year."""
    match = re.search(r"\.so\.(\d+)(?:\.(\d+))?", name)
    if match is None:
        return 0
    major, minor = int(match[1]), int(match[2] or 0)
    if major < 2000:
        return major
    # The release 2022.4 came with CUDA 12.0, 2025.3 with 13.0.
    return 13 if (major, minor) >= (2025, 3) else 12 if (major, minor) >= (2022, 4) else 11
