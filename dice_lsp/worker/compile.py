"""Compiles the device code of a document: NVRTC in this process, nvcc as the fallback.

NVRTC answers in about 0.1 s where nvcc needs 0.6 s, and its wheel brings the headers, so that a machine without a
CUDA toolkit compiles too. It takes device code only; `source.slice` cuts that out with every line in its place.

An NVRTC call cannot be interrupted safely from outside. It polls a flow callback, which cancels it softly; a call
that does not come back is ended by whoever started this process (`worker.client` kills it at its deadline and says
so), which is why compiling happens in a child of its own.

Protocol facts used here: NVRTC 13.3 and later bundle headers (`nvrtcInstallBundledHeaders`); precompiled headers
belong to one process, need `nvrtcSetPCHHeapSize` before the first one (cooperative groups and cub take 300 MB), are not
made of a text with `#line`, and end at `#pragma nv_hdrstop`; columns in messages are carets under a quoted line, in
bytes.
"""

import contextlib
import ctypes
import functools
import hashlib
import logging
import os
import re
import shutil
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import platformdirs
from attrs import evolve, frozen

from dice_lsp import process
from dice_lsp.records import (
    Build,
    Compiled,
    CompileFailed,
    CompileMessage,
    Kernel,
    NotCompiled,
)
from dice_lsp.source import slice as slices
from dice_lsp.source.nvcc_flags import PTXAS
from dice_lsp.source.slice import IncludeKind
from dice_lsp.source.tokens import split_top_level
from dice_lsp.worker.compiler_log import (
    Places,
    Resources,
    bad_name_expressions,
    explained,
    parse_log,
    smells_of_host,
    with_next_steps,
)
from dice_lsp.worker.confine import Confinement, compiler_policy
from dice_lsp.worker.libraries import library_include_dirs
from dice_lsp.worker.occupancy import limits_of, occupancy
from dice_lsp.worker.prelude import prelude_text
from dice_lsp.worker.program import (
    DOCUMENT,
    DOCUMENT_HEADER,
    Assembler,
    CompileJob,
    Program,
    build_keys,
    include_dirs_of,
)
from dice_lsp.worker.scratch import Scratch, remove_abandoned

log = logging.getLogger(__name__)

PCH_HEAP_BYTES = 768 << 20
PCH_SETS = 3
"""How many precompiled header sets are kept; each is a file of about 300 MB."""
PCH_FREE_DISK_BYTES = 2 << 30
MAX_TEXT_CHARACTERS = 16 << 20
DEFAULT_ARCH = "sm_90"
DEFAULT_BLOCK_THREADS = 256
MAX_MESSAGES = 60
_PRELUDE = "dice_prelude.h"


class Compiler:
    """Long-lived; not for several threads at once. `close` removes what it put on the disk."""

    def __init__(self, nvcc: str | None = None, cache_dir: Path | None = None) -> None:
        self.cache_dir = Path(cache_dir or platformdirs.user_cache_path("dice-lsp")) / "compile"
        self.nvcc_path = find_nvcc(nvcc)
        self._results: OrderedDict[str, tuple[Build, ...]] = OrderedDict()
        self._nameable: OrderedDict[str, bool] = OrderedDict()
        self._pch_sets: OrderedDict[str, Path] = OrderedDict()
        self._pch_root: Scratch | None = None
        self._nvrtc: Any = None
        self._nvrtc_missing = ""
        self._version = (0, 0)
        self._archs: tuple[int, ...] = ()
        self._bundled: Path | None = None
        self._toolkit = toolkit_include_dirs(self.nvcc_path)
        self._load()

    def close(self) -> None:
        if self._pch_root is not None:
            self._pch_root.close()
            self._pch_root = None
        self._pch_sets.clear()

    @property
    def nvrtc_version(self) -> str | None:
        """`13.5`, or None without NVRTC; `nvrtc_missing` says why."""
        return None if self._nvrtc is None else f"{self._version[0]}.{self._version[1]}"

    @property
    def nvrtc_missing(self) -> str:
        return self._nvrtc_missing

    @functools.cached_property
    def nvcc_version(self) -> str | None:
        """`13.0`, or None without a working nvcc."""
        if self.nvcc_path is None:
            return None
        try:
            done = process.run([self.nvcc_path, "--version"], deadline_s=20)
        except OSError:
            return None
        match = re.search(rb"release (\d+\.\d+)", done.stdout)
        return match[1].decode() if match and done.returncode == 0 else None

    @functools.cached_property
    def archs(self) -> frozenset[int]:
        """Compute capabilities that are compiled for here, NVRTC's and nvcc's; empty where neither says."""
        found = set(self._archs)
        if self.nvcc_path is not None:
            with contextlib.suppress(OSError):
                listed = process.run([self.nvcc_path, "--list-gpu-arch"], deadline_s=20).stdout
                found |= {int(number) for number in re.findall(rb"compute_(\d+)", listed)}
        return frozenset(found)

    @property
    def toolkit(self) -> str:
        """What compiles here, for the evidence: `nvrtc 13.5`, `nvcc 13.0` or `none`."""
        if self.nvrtc_version:
            return f"nvrtc {self.nvrtc_version}"
        return f"nvcc {self.nvcc_version}" if self.nvcc_version else "none"

    def compile(self, job: CompileJob, cancelled: threading.Event | None = None) -> dict[str, Build]:
        """Builds of the job's kernels. Bad code, bad flags and missing compilers are values.

        Raises `process.Cancelled` soon after `cancelled` is set by another thread.
        """
        cancelled = cancelled or threading.Event()
        keys = build_keys(job.kernels)
        problem = self._refusal(job)
        if problem is not None:
            return dict.fromkeys(keys, NotCompiled(problem))
        program = self.program(job)
        if cancelled.is_set():
            raise process.Cancelled
        if program.errors:
            return dict.fromkeys(keys, CompileFailed(self.toolkit, program.errors))
        builds = self._cached(job, program, cancelled)
        if job.includer and not all(isinstance(build, Compiled) for build in builds):
            builds = self._within_includer(job, builds, cancelled)
        if program.guessed:
            builds = tuple(_with_notes(build, program.guessed) for build in builds)
        return dict(zip(keys, builds, strict=True))

    def _within_includer(
        self, job: CompileJob, builds: tuple[Build, ...], cancelled: threading.Event
    ) -> tuple[Build, ...]:
        """The builds of a header, those that alone did not compile within the text of a file that includes it."""
        program = Assembler(self.find_system_header, job, within=True).assemble()
        if program.errors:
            return builds
        note = f"compiled within {os.path.basename(job.includer)}, which includes this file"
        return tuple(
            _with_notes(other, (note,)) if isinstance(other, Compiled) and not isinstance(mine, Compiled) else mine
            for mine, other in zip(builds, self._cached(job, program, cancelled), strict=True)
        )

    def program(self, job: CompileJob) -> Program:
        """The document cut and its headers read, without compiling: what the host emulation takes too."""
        return Assembler(self.find_system_header, job).assemble()

    def document_line(self, job: CompileJob, program: Program, build: Compiled, file: str, line: int) -> int | None:
        """Where a line of a build's line information (file as the compiler names it, one-based) stands in the document.

        For a header of the user's that is the include that leads to it; None for a header of the toolkit.
        """
        prefix_lines = 0 if build.compiler.startswith("nvcc") else self._nvrtc_text(program)[1]
        if os.path.basename(file) == DOCUMENT:
            return line - 1 - prefix_lines if 0 < line - prefix_lines <= job.text.count("\n") + 1 else None
        name = os.path.normpath(file)
        if name in (os.path.normpath(os.path.abspath(job.path)), DOCUMENT_HEADER):
            return line - 1
        included = (header for header in program.headers if name in (header.path, os.path.basename(header.path)))
        return next((max(header.included_at, 0) for header in included), None)

    # What is on this machine

    def _load(self) -> None:
        try:
            from cuda.bindings import nvrtc

            status, major, minor = nvrtc.nvrtcVersion()
            if int(status) != 0:
                raise RuntimeError(f"nvrtcVersion answered {status}")
            _, archs = nvrtc.nvrtcGetSupportedArchs()
        except Exception as error:  # cuda-bindings raises several kinds for a missing library
            self._nvrtc_missing = f"NVRTC could not be loaded: {str(error).splitlines()[0] if str(error) else error!r}"
            log.info("%s", self._nvrtc_missing)
            return
        self._nvrtc, self._version, self._archs = nvrtc, (major, minor), tuple(archs)
        with contextlib.suppress(Exception):
            # Without this, headers as large as cooperative groups' cannot be precompiled and every compile pays for it.
            nvrtc.nvrtcSetPCHHeapSize(PCH_HEAP_BYTES)
        self._bundled = self._install_headers()
        # A killed process leaves 300 MB behind.
        remove_abandoned(self.cache_dir / "pch")

    def _install_headers(self) -> Path | None:
        nvrtc = self._nvrtc
        if not hasattr(nvrtc, "nvrtcInstallBundledHeaders"):
            return None
        target = self.cache_dir / f"headers-{self._version[0]}.{self._version[1]}"
        try:
            _, info, *_ = nvrtc.nvrtcGetBundledHeadersInfo()
            if not info.available:
                return None
            target.parent.mkdir(parents=True, exist_ok=True)
            status, *rest = nvrtc.nvrtcInstallBundledHeaders(os.fsencode(target), 0)
            if int(status) == 0:
                return target
            log.warning("NVRTC's headers could not be unpacked to %s: %s", target, rest)
        except Exception as error:
            log.info("NVRTC %s has no bundled headers: %s", self.nvrtc_version, error)
        return None

    @functools.cached_property
    def include_dirs(self) -> tuple[Path, ...]:
        """Where headers for device code lie: NVRTC's own first, then those of a toolkit."""
        own = [] if self._bundled is None else [self._bundled, self._bundled / "cccl"]
        return tuple(path for path in (*own, *self._toolkit) if path.is_dir())

    def find_system_header(self, name: str) -> Path | None:
        return next((folder / name for folder in self.include_dirs if (folder / name).is_file()), None)

    # Deciding

    def _refusal(self, job: CompileJob) -> str | None:
        if self._nvrtc is None and self.nvcc_path is None:
            return f"no device compiler is there: {self._nvrtc_missing}; `pip install nvidia-cuda-nvrtc cuda-bindings` brings one"
        if len(job.text) > MAX_TEXT_CHARACTERS:
            return f"the text has {len(job.text)} characters, more than the {MAX_TEXT_CHARACTERS} that are compiled"
        arch = self.arch_of(job)
        try:
            limits_of(arch)
        except ValueError as error:
            return f"{error}; set dice.arch"
        _, problem = nvrtc_flags(job.flags)
        if problem is not None:
            return problem
        number = int(re.sub(r"\D", "", arch.split("_")[1]))
        if self._nvrtc is not None and number not in self._archs and self.nvcc_path is None:
            known = ", ".join(f"sm_{a}" for a in self._archs)
            return f"{arch} is not supported by NVRTC {self.nvrtc_version}, which takes {known}; set dice.arch"
        return None

    def arch_of(self, job: CompileJob) -> str:
        """The architecture that is compiled for: the flag's, else the job's, else a default."""
        for flag in reversed(job.flags):
            if (match := re.fullmatch(r"-arch=(?:sm|compute)_(\w+)", flag)) is not None:
                return f"sm_{match[1]}"
        return DEFAULT_ARCH if job.arch == "auto" else job.arch

    def _cached(self, job: CompileJob, program: Program, cancelled: threading.Event) -> tuple[Build, ...]:
        digest = hashlib.sha256()
        for part in (
            program.nvrtc_text, *program.heavy, *program.standard, *(f"{h.path}\0{h.text}" for h in program.headers),
            *program.pre_includes, self.arch_of(job), *job.flags, *(f"{k.start}:{k.name}" for k in job.kernels),
            repr(sorted((key, sorted(value.items())) for key, value in job.templates.items())),
        ):  # fmt: skip
            digest.update(part.encode("utf-8", "surrogatepass") + b"\0")
        key = digest.hexdigest()
        builds = self._results.get(key)
        if builds is None:
            builds = self._compile(job, program, cancelled)
            self._results[key] = builds
            while len(self._results) > 256:
                self._results.popitem(last=False)
        else:
            self._results.move_to_end(key)
        return tuple(
            self._with_occupancy(build, job, name, kernel)
            for build, name, kernel in zip(builds, build_keys(job.kernels), job.kernels, strict=True)
        )

    def _with_occupancy(self, build: Build, job: CompileJob, key: str, kernel: Kernel) -> Build:
        if not isinstance(build, Compiled):
            return build
        threads = job.block_threads.get(key) or _launch_bound(kernel) or DEFAULT_BLOCK_THREADS
        fraction, limiter = occupancy(
            build.arch, build.registers, build.smem_bytes + job.smem_bytes.get(key, 0), threads
        )
        return evolve(build, block_threads=threads, occupancy=fraction, limiter=limiter)

    def _compile(self, job: CompileJob, program: Program, cancelled: threading.Event) -> tuple[Build, ...]:
        arch_number = int(re.sub(r"\D", "", self.arch_of(job).split("_")[1]))
        if self._nvrtc is None or arch_number not in self._archs:
            return self._nvcc(job, program, cancelled)
        builds, hopeless, unnamed = self._nvrtc_compile(job, program, cancelled)
        if self.nvcc_path is None or not (
            unnamed or (not hopeless and any(isinstance(build, CompileFailed) for build in builds))
        ):
            return builds
        fallback = self._nvcc(job, program, cancelled, unnamed)
        if not any(isinstance(build, Compiled) for build in fallback):
            return builds
        return tuple(
            mine if isinstance(mine, Compiled) or (index in unnamed and not isinstance(other, Compiled)) else other
            for index, (mine, other) in enumerate(zip(builds, fallback, strict=True))
        )

    # NVRTC

    def _nvrtc_compile(
        self, job: CompileJob, program: Program, cancelled: threading.Event
    ) -> tuple[tuple[Build, ...], bool, dict[int, str]]:
        """(builds, whether a failure is the text's own fault, so that nvcc would say the same, the unnamed).

        A name that means no kernel (an `#if` leaves it out, its template arguments do not fit) is an error of the whole
        compile for NVRTC; it concerns that kernel alone, so the others are compiled again without it. The unnamed are
        the templates, by their index, for which there are no arguments that mean something, and why.
        """
        keys = build_keys(job.kernels)
        expressions = [self._expression(job, key, kernel) for key, kernel in zip(keys, job.kernels, strict=True)]
        unnamed = {index: reason for index, (reason, expression) in enumerate(expressions) if expression is None}
        builds, own_fault, bad_names = self._nvrtc_once(job, program, expressions, cancelled)
        if not bad_names:
            return builds, own_fault, unnamed
        told: list[tuple[str | Build, str | None]] = []
        for index, (kernel, (reason, expression)) in enumerate(zip(job.kernels, expressions, strict=True)):
            said = None if expression is None else bad_names.get(re.sub(r"\s", "", expression))
            if said is None:
                told.append((reason, expression))
            elif kernel.template and f'"{kernel.name}" is undefined' not in said:
                message = CompileMessage(kernel.line, 0, "error", f"{expression}: {said}")
                told.append((CompileFailed(f"nvrtc {self.nvrtc_version}", (message,)), None))
                unnamed[index] = message.text
            else:
                told.append((NotCompiled(f"{kernel.name} is not in this build: an #if leaves it out"), None))
        builds, own_fault, bad_names = self._nvrtc_once(job, program, told, cancelled)
        return builds, own_fault, unnamed

    def _nvrtc_once(
        self,
        job: CompileJob,
        program: Program,
        expressions: Sequence[tuple[str | Build, str | None]],
        cancelled: threading.Event,
    ) -> tuple[tuple[Build, ...], bool, dict[str, str]]:
        """(builds, whether a failure is the text's own fault, name expressions that mean nothing -> the message)."""
        nvrtc = self._nvrtc
        started = time.monotonic()
        text, prefix_lines, includes = self._nvrtc_text(program)
        flags, _ = nvrtc_flags(job.flags)
        options = [f"-arch={self.arch_of(job)}", "--ptxas-options=-v", *flags]
        if not any(flag.startswith(("-std", "--std")) for flag in flags):
            options.append("-std=c++17")
        # Beside a driver NVRTC keeps its results in the driver's cache and, when it finds one there, leaves out what
        # `ptxas -v` says of registers and spills (NVIDIA/cuda-python#1124). Our own cache keeps both.
        options.append("--no-cache")
        options += [f"-D{name}={value}" for name, value in self._version_macros()]
        cutlass = any(name.startswith(("cute/", "cutlass/")) for name in program.header_names)
        # A release of CUTLASS goes with the headers of its time, which are rather the toolkit's than NVRTC's own.
        bundled = None if cutlass and self._toolkit else self._bundled
        if bundled is not None:
            options.append(f"--use-bundled-headers={bundled}")
        if bundled is None or self._needs_toolkit(program):
            options += [f"-I{path}" for path in self._toolkit]
        options += [f"-I{path}" for path in program.library_dirs]
        if cutlass:
            # CUTLASS leaves the execution space of a few functions to nvcc's relaxed rules.
            options.append("-default-device")
        if program.heavy or program.standard:
            options += self._pch_options(program, options)
        templates = any(
            expression and kernel.template for kernel, (_, expression) in zip(job.kernels, expressions, strict=True)
        )
        if templates and not self._can_name(text, includes, options, cancelled):
            # The errors are said without asking for any name.
            said = "NVRTC does not take the declaration of this kernel"
            expressions = [(reason or said, None) for reason, _ in expressions]
        status, handle = self._nvrtc_program(text, includes)
        if int(status) != 0:
            return (NotCompiled(f"NVRTC refused the program: {status.name}"),) * len(job.kernels), True, {}
        try:
            for _, expression in expressions:
                if expression is not None:
                    nvrtc.nvrtcAddNameExpression(handle, expression.encode("utf-8", "replace"))
            callback = _FLOW_CALLBACK(lambda *_: 1 if cancelled.is_set() else 0)
            if hasattr(nvrtc, "nvrtcSetFlowCallback"):
                nvrtc.nvrtcSetFlowCallback(handle, ctypes.cast(callback, ctypes.c_void_p).value, 0)
            encoded = [option.encode("utf-8", "replace") for option in options]
            (status,) = nvrtc.nvrtcCompileProgram(handle, len(encoded), encoded)
            if cancelled.is_set():
                raise process.Cancelled
            output = self._log(handle)
            elapsed_ms = (time.monotonic() - started) * 1000.0
            compiler = f"nvrtc {self.nvrtc_version}"
            places = Places(job, program, prefix_lines)
            messages, resources = parse_log(output, places)
            if int(status) != 0:
                bad_names = bad_name_expressions(output)
                if bad_names:
                    return (), True, bad_names
                if not any(message.severity == "error" for message in messages):
                    said = next((line.strip() for line in output.splitlines() if line.strip()), status.name)
                    messages = [CompileMessage(places.first_line, 0, "error", said), *messages]
                messages = explained(messages, program)
                hopeless = not smells_of_host(messages, program)
                failed = CompileFailed(compiler, tuple(messages[:MAX_MESSAGES]))
                return tuple(failed if isinstance(r, str) else r for r, _ in expressions), hopeless, {}
            if not any(expression for _, expression in expressions):
                return tuple(_without(reason) for reason, _ in expressions), True, {}
            _, size = nvrtc.nvrtcGetCUBINSize(handle)
            cubin = b" " * size
            nvrtc.nvrtcGetCUBIN(handle, cubin)
            builds: list[Build] = []
            for reason, expression in expressions:
                if expression is None:
                    builds.append(_without(reason))
                    continue
                status, lowered = nvrtc.nvrtcGetLoweredName(handle, expression.encode("utf-8", "replace"))
                symbol = lowered.decode() if int(status) == 0 and lowered else ""
                builds.append(_compiled(self.arch_of(job), compiler, symbol, resources, elapsed_ms, messages, cubin))
            return tuple(builds), True, {}
        finally:
            nvrtc.nvrtcDestroyProgram(handle)

    def _nvrtc_program(self, text: str, includes: Mapping[str, str]) -> tuple[Any, Any]:
        status, handle = self._nvrtc.nvrtcCreateProgram(
            text.encode("utf-8", "replace"),
            DOCUMENT.encode(),
            len(includes),
            [content.encode("utf-8", "replace") for content in includes.values()],
            [name.encode("utf-8", "replace") for name in includes],
        )
        return status, handle

    def _can_name(
        self, text: str, includes: Mapping[str, str], options: Sequence[str], cancelled: threading.Event
    ) -> bool:
        """Whether NVRTC may be asked for an instance of a template of the text.

        NVRTC 13.5 ends the process when it is asked for `k<int>` and a parameter of the kernel `k` has a type that it does
        not know, as in `__global__ void k(Unknown<T> x)`. So what stands outside of the kernels' bodies is compiled alone
        first, once for all that is written in the bodies afterwards.
        """
        outside = [_without_bodies(part) for part in (text, *includes.values())]
        key = hashlib.sha256("\0".join([*outside, *options]).encode("utf-8", "surrogatepass")).hexdigest()
        if key in self._nameable:
            self._nameable.move_to_end(key)
            return self._nameable[key]
        status, handle = self._nvrtc_program(outside[0], dict(zip(includes, outside[1:], strict=True)))
        if int(status) != 0:
            return False
        try:
            encoded = [option.encode("utf-8", "replace") for option in options]
            (status,) = self._nvrtc.nvrtcCompileProgram(handle, len(encoded), encoded)
        finally:
            self._nvrtc.nvrtcDestroyProgram(handle)
        if cancelled.is_set():
            raise process.Cancelled
        self._nameable[key] = int(status) == 0
        while len(self._nameable) > 256:
            self._nameable.popitem(last=False)
        return self._nameable[key]

    def _log(self, handle: Any) -> str:
        _, size = self._nvrtc.nvrtcGetProgramLogSize(handle)
        buffer = b" " * size
        self._nvrtc.nvrtcGetProgramLog(handle, buffer)
        # What the assembler adds stands behind a NUL.
        text: str = buffer.replace(b"\0", b"").decode("utf-8", "replace").rstrip()
        return text

    def _version_macros(self) -> list[tuple[str, int]]:
        number = self._version[0] * 1000 + self._version[1] * 10
        return [("CUDART_VERSION", number), ("CUDA_VERSION", number)]

    def _needs_toolkit(self, program: Program) -> bool:
        """A header that only a toolkit has, such as curand_kernel.h; versions are not mixed without need."""
        if self._bundled is None:
            return True
        own = self.include_dirs[:2]
        names = [i.name for i in program.sliced.includes if i.kind is IncludeKind.DEVICE and i not in program.missing]
        own = (*own, *program.library_dirs)
        return any(not any((folder / name).is_file() for folder in own) for name in names)

    def _nvrtc_text(self, program: Program) -> tuple[str, int, dict[str, str]]:
        """The text for NVRTC, how many lines stand before the document's, and the headers in memory."""
        lines = [f"#include <{name}>" for name in (*program.heavy, *program.standard)]
        if lines:
            lines.append("#pragma nv_hdrstop")
        lines.append(f'#include "{_PRELUDE}"')
        prelude = prelude_text(
            program.standard, program.sliced.names, program.using_std, program.namespaces, program.library
        )
        text = _as_read(program.nvrtc_text)
        lines += [f'#include "{path}"' for path in program.pre_includes]
        includes = {_PRELUDE: prelude, **{header.path: _as_read(header.text) for header in program.headers}}
        return "\n".join([*lines, text]) + "\n", len(lines), includes

    def _expression(self, job: CompileJob, key: str, kernel: Kernel) -> tuple[str, str | None]:
        """(why there is none, the name expression) for one kernel."""
        if kernel.template:
            arguments, missing = template_arguments(kernel, job.templates.get(key, {}))
            if missing:
                example = f"{missing}=float" if _is_type_parameter(kernel, missing) else f"{missing}=1"
                return (
                    f"template arguments of {kernel.name} are unknown; add `with {example}` to its //dice: line",
                    None,
                )
            return "", f"{kernel.qualified_name}<{', '.join(arguments)}>"
        same = [other for other in slices.kernels_of(job.text) if other.qualified_name == kernel.qualified_name]
        if len(same) > 1:
            types = ", ".join(parameter.spelling for parameter in kernel.parameters)
            return "", f"(void(*)({types}))&{kernel.qualified_name}"
        return "", kernel.qualified_name

    def _pch_options(self, program: Program, options: Sequence[str]) -> list[str]:
        """Options for precompiled headers, one folder per set of headers and options: NVRTC refuses to mix those."""
        if self._version < (12, 8):
            return []
        key = hashlib.sha256("\0".join([*program.heavy, *program.standard, *options]).encode()).hexdigest()[:16]
        folder = self._pch_sets.get(key)
        if folder is None:
            try:
                if self._pch_root is None:
                    (self.cache_dir / "pch").mkdir(parents=True, exist_ok=True)
                    self._pch_root = Scratch("pch", self.cache_dir / "pch")
                folder = self._pch_root.path / key
                folder.mkdir(exist_ok=True)
                if shutil.disk_usage(folder).free < PCH_FREE_DISK_BYTES:
                    return []
            except OSError as error:
                log.info("no precompiled headers: %s", error)
                return []
            self._pch_sets[key] = folder
            while len(self._pch_sets) > PCH_SETS:
                shutil.rmtree(self._pch_sets.popitem(last=False)[1], ignore_errors=True)
        else:
            self._pch_sets.move_to_end(key)
        return ["--pch", f"--pch-dir={folder}", "--pch-messages=false"]

    # nvcc

    def _nvcc(
        self, job: CompileJob, program: Program, cancelled: threading.Event, unnamed: Mapping[int, str] | None = None
    ) -> tuple[Build, ...]:
        """The whole file through nvcc, host code included (it is parsed, never assembled or run).

        `unnamed` are the templates without arguments, by their index, and why: of those an instance that the program
        itself makes is taken. None means that this is not known yet.
        """
        assert self.nvcc_path is not None
        assembler = Assembler(self.find_system_header, job)
        refused = assembler.refusals_of_whole_text(program.includer_text)
        compiler = f"nvcc {self.nvcc_version or '?'}"
        if refused:
            return (CompileFailed(compiler, refused),) * len(job.kernels)
        tail, expressions = "", []
        for index, (key, kernel) in enumerate(zip(build_keys(job.kernels), job.kernels, strict=True)):
            reason, expression = self._expression(job, key, kernel)
            if unnamed is not None and index in unnamed:
                reason, expression = unnamed[index], None
            expressions.append((reason, expression))
            if expression is not None and kernel.template:
                # Taking the address of an instance makes the compiler emit it.
                tail += f"static auto* dice_instance_{index} = &{expression};\n"
        ran = self._run_nvcc(job, program, assembler, tail, cancelled)
        if isinstance(ran, NotCompiled):
            return (ran,) * len(job.kernels)
        places = Places(job, program, 0)
        messages, resources = parse_log(ran.log, places)
        if ran.cubin is None:
            if not any(message.severity == "error" for message in messages):
                said = next((line.strip() for line in ran.log.splitlines() if line.strip()), "no message")
                messages = [CompileMessage(places.first_line, 0, "error", f"nvcc failed: {said}"), *messages]
            messages = with_next_steps(messages)
            return (CompileFailed(compiler, tuple(messages[:MAX_MESSAGES])),) * len(job.kernels)
        builds: list[Build] = []
        for kernel, (reason, expression) in zip(job.kernels, expressions, strict=True):
            symbols = find_symbols(resources, kernel, expression or "")
            notes: tuple[str, ...] = ()
            if expression is None and symbols:
                notes = (_instance_note(kernel, symbols, reason),)
                symbols = symbols[:1]
            if len(symbols) != 1:
                found = "not found" if not symbols else "ambiguous"
                said = reason if expression is None else f"{expression} was compiled by nvcc, but its symbol is {found}"
                builds.append(NotCompiled(said))
                continue
            build = _compiled(self.arch_of(job), compiler, symbols[0], resources, ran.elapsed_ms, messages, ran.cubin)
            builds.append(evolve(build, notes=notes) if isinstance(build, Compiled) else build)
        return tuple(builds)

    def _run_nvcc(
        self, job: CompileJob, program: Program, assembler: "Assembler", tail: str, cancelled: threading.Event
    ) -> "_NvccRun | NotCompiled":
        """The text with `tail` behind it through nvcc; once more with relocatable code when that is what is missing."""
        assert self.nvcc_path is not None
        started = time.monotonic()
        deadline_at = started + job.deadline_s
        library = library_include_dirs(program.header_names)
        flags, _ = nvrtc_flags(job.flags)
        folders = (
            *([Path(program.includer).resolve().parent] if program.includer else []),
            Path(job.path).resolve().parent,
            *include_dirs_of(job),
            *program.folders,
            *assembler.usual_dirs,
            *library,
        )
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("NVCC_", "CPATH", "CPLUS_INCLUDE"))}
        read = [*map(str, self._toolkit), *assembler.places(), *map(str, library)]
        with tempfile.TemporaryDirectory(prefix="dice-nvcc-") as folder:
            source, output = Path(folder) / DOCUMENT, Path(folder) / "out.cubin"
            text = _as_read(program.includer_text if program.includer else job.text)
            source.write_bytes((text + ("\n" + tail if tail else "")).encode("utf-8", "replace"))
            if program.includer:
                (Path(folder) / DOCUMENT_HEADER).write_bytes(_as_read(job.text).encode("utf-8", "replace"))
            command = [
                self.nvcc_path, "-cubin", f"-arch={self.arch_of(job)}", "-Xptxas", "-v", *map(_nvcc_flag, flags),
                "--expt-relaxed-constexpr", "--extended-lambda", *dict.fromkeys(f"-I{path}" for path in folders),
                *(word for path in program.pre_includes for word in ("-include", path)),
                "-o", str(output), str(source),
            ]  # fmt: skip
            if (word := shell_word([*flags, *map(str, folders), *program.pre_includes])) is not None:
                return NotCompiled(
                    f"nvcc would have a shell read {word}, so it is not started; do without $, ` and \\ there"
                )
            link = [self.nvcc_path, "-dlink", "-cubin", f"-arch={self.arch_of(job)}", "-o", str(Path(folder) / "linked.cubin"),
                    str(output), "-lcudadevrt"]  # fmt: skip
            try:
                with Confinement(compiler_policy(self.nvcc_path, read, [folder])) as confinement:

                    def run(words: list[str]) -> process.Finished:
                        return process.run(
                            words, deadline_s=max(deadline_at - time.monotonic(), 0.05), cwd=folder,
                            env={**environment, "TMPDIR": folder}, cancelled=cancelled, confine=confinement.enter,
                        )  # fmt: skip

                    done = run(command)
                    said = (done.stdout + b"\n" + done.stderr).decode("utf-8", "replace").replace(folder + "/", "")
                    if done.returncode != 0 and not done.timed_out and _NEEDS_RDC.search(said):
                        done = run([*command, "-rdc=true"])
                        said = (done.stdout + b"\n" + done.stderr).decode("utf-8", "replace").replace(folder + "/", "")
                        # Kernels that launch others can be loaded once the device's runtime is part of them.
                        if done.returncode == 0 and run(link).returncode == 0:
                            output = Path(folder) / "linked.cubin"
            except OSError as error:
                return NotCompiled(f"nvcc could not be started: {error}")
            if done.timed_out:
                return NotCompiled(f"the compiler did not end within {job.deadline_s:g} s")
            cubin = output.read_bytes() if done.returncode == 0 and output.is_file() else None
        return _NvccRun(said, cubin, (time.monotonic() - started) * 1000.0)


def _without_bodies(text: str) -> str:
    """A text with its kernels' bodies empty."""
    if "__global__" not in text:
        return text
    return slices.blank(text, [(kernel.body_start, kernel.body_end) for kernel in slices.kernels_of(text)])


def _as_read(text: str) -> str:
    """A text with the line ends that every compiler counts, and without a mark of its encoding, which NVRTC refuses."""
    return re.sub(r"\r\n|\r", "\n", " " + text[1:] if text.startswith("\ufeff") else text)


def _with_notes(build: Build, notes: Sequence[str]) -> Build:
    return evolve(build, notes=(*build.notes, *notes)) if isinstance(build, Compiled) else build


@frozen
class _NvccRun:
    """What nvcc said and made; `cubin` is None when it failed."""

    log: str
    cubin: bytes | None
    elapsed_ms: float


_NEEDS_RDC = re.compile(r"requires separate compilation mode|Unresolved extern function '(?:__cudaCDP|cuda[A-Z])")


def _instance_note(kernel: Kernel, symbols: Sequence[str], reason: str) -> str:
    """Which instance of a template is shown, and how another one is asked for."""
    several = f", one of {len(symbols)} that this file makes" if len(symbols) > 1 else ""
    names = ", ".join(f"{name}=..." for name in kernel.template)
    return f"{reason.partition('; add')[0]}; shown is {demangled(symbols[0])}{several}; add `with {names}` to its //dice: line"


def demangled(symbol: str) -> str:
    """A mangled name as it is written in C++, without its parameters; the name itself where the C++ library has no say."""
    try:
        library = ctypes.CDLL("libstdc++.so.6")
        demangle, free = library.__cxa_demangle, ctypes.CDLL(None).free
    except (OSError, AttributeError):
        return symbol
    demangle.restype, free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    status = ctypes.c_int(0)
    made = demangle(symbol.encode(), None, None, ctypes.byref(status))
    if status.value != 0 or not made:
        return symbol
    try:
        name = ctypes.string_at(made).decode("utf-8", "replace")
    finally:
        free(made)
    depth = 0
    for at, character in enumerate(name):
        depth += (character == "<") - (character == ">")
        if character == "(" and depth == 0 and not name.startswith("(anonymous", at):
            name = name[:at]
            break
    return name.removeprefix("void ")


_FLOW_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


def find_nvcc(path: str | None = None) -> str | None:
    """The nvcc to use: the one named, else that of PATH, else of CUDA_HOME, else of /usr/local/cuda."""
    if path is not None:
        return path if os.access(path, os.X_OK) else None
    found = shutil.which("nvcc")
    if found is not None:
        return found
    for root in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"):
        if root and os.access(candidate := os.path.join(root, "bin", "nvcc"), os.X_OK):
            return candidate
    return None


def toolkit_include_dirs(nvcc: str | None) -> tuple[Path, ...]:
    """Include folders of an installed toolkit: CUDA_HOME, nvcc's own, the wheels', /usr/local/cuda; the first that has one."""
    roots: list[Path] = []
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if value := os.environ.get(name):
            roots.append(Path(value) / "include")
    if nvcc is not None:
        roots.append(Path(nvcc).resolve().parent.parent / "include")
    for root in roots:
        if found := _with_headers(root):
            return found
    return wheel_include_dirs() or _with_headers(Path("/usr/local/cuda/include"))


def wheel_include_dirs() -> tuple[Path, ...]:
    """Include folders that came with pip: PyTorch's CUDA build brings NVRTC 13.0, whose headers are not bundled, and these."""
    with contextlib.suppress(Exception):  # an optional helper package
        from cuda.pathfinder import find_nvidia_header_directory

        if found := find_nvidia_header_directory("cudart"):
            return _with_headers(Path(found))
    return ()


def _with_headers(root: Path) -> tuple[Path, ...]:
    if (root / "cuda_runtime.h").is_file() or (root / "cooperative_groups.h").is_file():
        return tuple(path for path in (root, root / "cccl") if path.is_dir())
    return ()


# Flags

_NVRTC_FLAGS = (
    r"-[DU][A-Za-z_]\w*[^\0\r\n]*", r"-std=c\+\+\d\d", r"--use_fast_math", r"-maxrregcount=\d+", r"-lineinfo", r"-G", r"-w",
    r"-(?:ftz|prec-div|prec-sqrt|fmad)=(?:true|false)", r"--extra-device-vectorization", r"-diag-(?:suppress|warn|error)=[\d,]+",
    r"-dopt=on", r"-restrict", r"-jtd=\d{1,3}", r"-device-stack-protector=(?:true|false)", rf"-Xptxas=(?:{PTXAS.pattern})",
)  # fmt: skip
# They concern the host's half, the linking, or what is decided elsewhere.
_NOT_FOR_NVRTC = (
    r"-arch=\w+",
    r"-I[^\0\r\n]*",
    r"--expt-relaxed-constexpr",
    r"--extended-lambda",
    r"-rdc=(?:true|false)",
)


def nvrtc_flags(flags: Iterable[str]) -> tuple[list[str], str | None]:
    """The flags for NVRTC out of those of `source.flags`, or a sentence about the first that is not of that list.

    Flags can come from a text that a model wrote, so what is not known to be harmless is refused here once more.
    """
    taken: list[str] = []
    for flag in flags:
        flag = re.sub(r"^-std=gnu", "-std=c", flag)
        if any(re.fullmatch(form, flag) for form in _NVRTC_FLAGS):
            taken.append(flag)
        elif not any(re.fullmatch(form, flag) for form in _NOT_FOR_NVRTC):
            return [], f"the flag {flag} is not allowed: see dice.compile_flags for those that are"
    return taken, None


_FOR_A_SHELL = re.compile(r"[$`\\]")


def shell_word(words: Iterable[str]) -> str | None:
    """The first word in which a shell would find something to run.

    nvcc starts its parts through a shell and puts macros and folders between double quotes, where `$(...)` is run. So
    such a word never gets there, wherever it comes from: a folder may be called so too.
    """
    return next((word for word in words if _FOR_A_SHELL.search(word)), None)


def _nvcc_flag(flag: str) -> str:
    """A flag as nvcc takes it, which would take a macro apart at its commas."""
    return flag.replace(",", "\\,") if flag.startswith("-D") else flag


# Names


def template_arguments(kernel: Kernel, known: Mapping[str, str]) -> tuple[list[str], str]:
    """The arguments in order as far as they are needed, and the first parameter that is unknown and has no default."""
    parameters = _split(kernel.template_spelling)
    defaults = {
        name: any(re.search(rf"\b{re.escape(name)}\s*=", parameter) for parameter in parameters)
        or any(re.search(rf"\.\.\.\s*{re.escape(name)}\b", parameter) for parameter in parameters)
        for name in kernel.template
    }
    arguments: list[str] = []
    for index, name in enumerate(kernel.template):
        if name in known:
            arguments.append(known[name])
        elif not defaults[name]:
            return arguments, name
        elif any(later in known for later in kernel.template[index + 1 :]):
            return arguments, name
        else:
            break
    return arguments, ""


def _is_type_parameter(kernel: Kernel, name: str) -> bool:
    return any(
        re.match(r"\s*(?:typename|class)\b", parameter) and re.search(rf"\b{re.escape(name)}\b", parameter)
        for parameter in _split(kernel.template_spelling)
    )


def _split(parameters: str) -> list[str]:
    """A template parameter or argument list at its outer commas."""
    return [parameters[start:end] for start, end in split_top_level(parameters, angles=True)]


def _launch_bound(kernel: Kernel) -> int | None:
    match = re.match(r"\s*(\d+)\s*(?:,|$)", kernel.launch_bounds or "")
    return int(match[1]) if match and 0 < int(match[1]) <= 1024 else None


def find_symbols(resources: "Mapping[str, Resources]", kernel: Kernel, expression: str) -> list[str]:
    """Symbols of a cubin that can be this kernel, by the rules of the Itanium C++ ABI for nested names and simple arguments."""
    if kernel.extern_c:
        return [symbol for symbol in resources if symbol == kernel.name]
    parts = [part for part in kernel.qualified_name.split("::") if part]
    mangled = "".join(f"{len(part)}{part}" for part in parts)
    found = [symbol for symbol in resources if mangled in symbol or f"{len(kernel.name)}{kernel.name}" in symbol]
    if kernel.template and len(found) > 1:
        arguments = _split(expression.partition("<")[2].rpartition(">")[0])
        encoded = "".join(_mangled_argument(argument.strip()) for argument in arguments)
        narrowed = [symbol for symbol in found if f"{kernel.name}I{encoded}" in symbol]
        return narrowed or found
    if not kernel.template and len(found) > 1:
        return [symbol for symbol in found if f"{len(kernel.name)}{kernel.name}I" not in symbol]
    return found


_MANGLED_TYPES = {
    "float": "f", "double": "d", "int": "i", "unsigned": "j", "unsigned int": "j", "char": "c", "signed char": "a",
    "unsigned char": "h", "short": "s", "unsigned short": "t", "long": "l", "unsigned long": "m", "long long": "x",
    "unsigned long long": "y", "bool": "b", "half": "6__half", "__half": "6__half", "__nv_bfloat16": "13__nv_bfloat16",
}  # fmt: skip


def _mangled_argument(argument: str) -> str:
    if re.fullmatch(r"\d+", argument):
        return f"Li{argument}E"
    if argument in ("true", "false"):
        return f"Lb{int(argument == 'true')}E"
    return _MANGLED_TYPES.get(argument, f"{len(argument)}{argument}")


# What compilers made


def _without(reason: str | Build) -> Build:
    return NotCompiled(reason) if isinstance(reason, str) else reason


def _compiled(
    arch: str, compiler: str, symbol: str, resources: Mapping[str, Resources], elapsed_ms: float,
    messages: Sequence[CompileMessage], cubin: bytes,
) -> Build:  # fmt: skip
    used = resources.get(symbol)
    if used is None:
        return NotCompiled(f"{compiler} compiled the text but said nothing about {symbol or 'the kernel'}")
    warnings = tuple(message for message in messages if message.severity != "error")
    return Compiled(
        arch, compiler, symbol, used.registers, used.spill_store_bytes, used.spill_load_bytes, used.stack_bytes,
        used.smem_bytes, 0, 0.0, "none", elapsed_ms, warnings[:MAX_MESSAGES], cubin,
    )  # fmt: skip
