"""The version of a kernel that later ones are held against: what may become one, and what is worse than it.

A stored time is never compared with a new one, because two runs differ by more than two kernels do. A baseline keeps
its machine code instead, and that is timed again beside the new code. So this file compares only what does not depend
on a run: the launch, the compiler's figures, and the verdicts.
"""

import base64
import binascii
import hashlib
import json
import zlib
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, TypeVar

import attrs
from attrs import frozen

from dice_lsp.records import (
    Ambiguous,
    Baseline,
    Cheating,
    Compiled,
    CompileFailed,
    Faster,
    Kernel,
    KernelReport,
    LaunchSpec,
    NotCompared,
    Same,
    Slower,
    Timing,
    Unsafe,
    Unverified,
    Verified,
    Wrong,
    from_wire,
    to_wire,
)
from dice_lsp.source.expressions import ExpressionError, evaluate
from dice_lsp.wording import BEING_CHECKED, day, duration, refusal

T = TypeVar("T")
FORMAT = "dice-lsp baselines"
VERSION = 1
MAX_CUBIN_BYTES = 256 << 20
"""What a cubin of a baseline may unpack to: a file that says more was not written by us."""


class BaselineError(ValueError):
    """A baseline that cannot be read; the text is one sentence for the user."""


@frozen
class Change:
    """One figure of the compiler that differs from the baseline's."""

    what: str
    before: str
    now: str
    worse: bool

    def __str__(self) -> str:
        return f"{self.what} {self.now}, was {self.before}"


# What may become a baseline


def why_not(report: KernelReport, origin: str = "accepted") -> str | None:
    """One sentence if the report cannot become a baseline.

    A user may accept what nothing contradicts, even without a reference; `first`, which nobody asked for, must be
    verified.
    """
    name, build, verdict = report.name, report.build, report.verdict
    if isinstance(build, CompileFailed):
        return f"{name} does not compile: correct it and save to check it again"
    if not isinstance(build, Compiled):
        return f"{name} was not compiled ({build.reason}): a baseline keeps machine code, so check it again first"
    if isinstance(verdict, (Wrong, Unsafe, Cheating)):
        return f"{name} was refused ({refusal(verdict)}): a baseline must not be known to be wrong"
    if isinstance(verdict, Unverified):
        if verdict.reason == BEING_CHECKED:
            return f"{name} is still being checked: accept it when its verdict is there"
        if origin == "first":
            return f"{name} is not verified ({verdict.reason}): accept it as the baseline to use it as one all the same"
    return None


def make(kernel: Kernel, report: KernelReport, build: Compiled, origin: str) -> Baseline:
    """The baseline that a report becomes; `build` is the same code with its `cubin`, `origin` is `accepted` or `first`."""
    assert build.cubin, "a baseline is timed again, so it needs its machine code"
    assert why_not(report, origin) is None, why_not(report, origin)
    return Baseline(
        kernel=kernel,
        origin=origin,
        when=report.evidence.when,
        evidence=report.evidence,
        launch_key=launch_key(report.spec),
        # How long the compile took and what it said belong to that compile: they would only make files differ.
        build=attrs.evolve(build, elapsed_ms=0.0, messages=()),
        verdict=report.verdict,
        timing=report.timing,
    )


def launch_key(spec: LaunchSpec) -> str:
    """Hash of how the kernel is launched for its timing: the benchmark case's values, not how they are written."""
    names: dict[str, int] = dict(spec.constants)
    dims = {dim.name: dim.values[0] for dim in spec.dims if dim.values}
    names.update(dims)
    names.update({name: int(value) for name, value in spec.template.items() if value.isdecimal()})

    def value_of(expression: str) -> int | str:
        try:
            return evaluate(expression, names)
        except ExpressionError:
            return " ".join(expression.split())

    def values_of(expressions: tuple[str, ...] | None) -> list[int | str] | None:
        return None if expressions is None else [value_of(item) for item in expressions]

    launch = {
        "dims": dims,
        "buffers": {b.name: [b.role.value, values_of(b.extents), b.init] for b in spec.buffers},
        "scalars": {name: value_of(text) for name, text in spec.scalars.items()},
        "grid": values_of(spec.grid),
        "block": values_of(spec.block),
        "smem": value_of(spec.smem_bytes),
        "template": {name: " ".join(text.split()) for name, text in spec.template.items()},
        "cache": spec.cache,
    }
    if spec.captured is not None:
        launch["captured"] = [spec.captured.digest, spec.captured.index]
    return hashlib.sha256(json.dumps(launch, sort_keys=True).encode()).hexdigest()[:32]


# What is compared with it


def mismatch(baseline: Baseline, device: str, driver: str, spec: LaunchSpec) -> NotCompared | None:
    """Why a kernel launched like this on this device cannot be held against the baseline; None if it can."""
    evidence, verb = baseline.evidence, _verb(baseline)
    if device != evidence.device:
        reason = f"the baseline was {verb} on {_named(evidence.device)}, this is {_named(device)}"
        return NotCompared(f"{reason}; accept again here", "other device")
    # Nothing is timed on the host, so what its compiler is called there does not matter.
    if driver != evidence.driver and device != "host":
        reason = f"the baseline was {verb} with driver {evidence.driver or 'unknown'}, this is {driver or 'unknown'}"
        return NotCompared(f"{reason}; accept again with this one", "other driver")
    if launch_key(spec) != baseline.launch_key:
        return NotCompared(
            f"the baseline was {verb} with another launch (sizes, buffers, grid or block); accept again with this one",
            "other launch",
        )
    return None


def changes(baseline: Baseline, report: KernelReport) -> tuple[Change, ...]:
    """The compiler's figures that differ from the baseline's; none when another compiler or architecture made them."""
    before, now = baseline.build, report.build
    if not isinstance(now, Compiled) or (before.arch, before.compiler) != (now.arch, now.compiler):
        return ()
    found = []
    if now.registers != before.registers:
        # More registers are often the price of more speed: a note, and never a regression by itself.
        found.append(Change("registers", str(before.registers), str(now.registers), worse=False))
    spills_before, spills_now = _spill_bytes(before), _spill_bytes(now)
    if spills_now != spills_before:
        worse = spills_now > spills_before
        found.append(Change("spills", f"{spills_before} B", f"{spills_now} B", worse=worse))
    if now.smem_bytes != before.smem_bytes:
        found.append(Change("shared memory", f"{before.smem_bytes} B", f"{now.smem_bytes} B", worse=False))
    if round(now.occupancy, 3) != round(before.occupancy, 3):
        # Blocks of another size have another occupancy, which says nothing about the code.
        worse = now.occupancy < before.occupancy and now.block_threads == before.block_threads
        found.append(Change("occupancy", f"{before.occupancy:.0%}", f"{now.occupancy:.0%}", worse=worse))
    return tuple(found)


def regression(report: KernelReport, regression_percent: float) -> str | None:
    """One sentence if the kernel is worse than its baseline, else None.

    A time counts only if its whole interval lies beyond `regression_percent`. Spills and occupancy count only where a
    time is missing: where there is one, it says what they cost.
    """
    baseline, verdict, comparison = report.baseline, report.verdict, report.comparison
    if baseline is None:
        return None
    since = f"the baseline of {day(baseline.when)}"
    if isinstance(verdict, (Wrong, Unsafe, Cheating)):
        return f"{refusal(verdict)}; {since} was verified" if isinstance(baseline.verdict, Verified) else None
    if isinstance(verdict, Unverified) and verdict.reason == BEING_CHECKED:
        return None
    if isinstance(comparison, Slower):
        if 1 / comparison.high < 1 + regression_percent / 100:
            return None
        interval = f"{1 / comparison.high:.2f}x to {1 / comparison.low:.2f}x"
        now = f", {duration(report.timing.median_us)} now" if isinstance(report.timing, Timing) else ""
        return f"{1 / comparison.ratio:.2f}x slower than {since} ({interval}){now}; both were timed in one run"
    if isinstance(comparison, (Faster, Same, Ambiguous)):
        return None
    timed = isinstance(report.timing, Timing) and isinstance(baseline.timing, Timing)
    if timed or launch_key(report.spec) != baseline.launch_key:
        return None
    worse = [str(change) for change in changes(baseline, report) if change.worse]
    return f"{'; '.join(worse)} in {since}; no time was compared" if worse else None


# The file that goes into a repository


def dump(baselines_by_file: Mapping[str, Mapping[str, Baseline]]) -> str:
    """Baselines as the text of a file, which is the same for the same baselines.

    Names of files are relative, with forward slashes. Raises `BaselineError` for one that is not.
    """
    files: dict[str, dict[str, Any]] = {}
    for name, kernels in baselines_by_file.items():
        if not _is_relative(name):
            raise BaselineError(
                f"{name} lies outside of the folder that its baseline is kept for: name a file inside it"
            )
        if kernels:
            files[name] = {kernel: encode(baseline) for kernel, baseline in kernels.items()}
    content = {"format": FORMAT, "version": VERSION, "files": files}
    return json.dumps(content, indent=1, sort_keys=True, allow_nan=False) + "\n"


def load(text: str) -> dict[str, dict[str, Baseline]]:
    """The inverse of `dump`. Raises `BaselineError` for anything else."""
    content = _json_of(text)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise BaselineError("the file holds no baselines of dice-lsp: give one that dice-lsp wrote")
    version = content.get("version")
    if isinstance(version, int) and version > VERSION:
        raise BaselineError(
            f"the baselines were written by a newer dice-lsp (format {version}, this one reads {VERSION}): update dice-lsp"
        )
    files = content.get("files")
    if version != VERSION or isinstance(version, bool) or not isinstance(files, dict):
        raise BaselineError("the baselines are not complete: write the file again with --save-baseline")
    found: dict[str, dict[str, Baseline]] = {}
    for name, kernels in files.items():
        if not _is_relative(name) or not isinstance(kernels, dict):
            raise BaselineError(f"the baselines of {name!r} cannot be read: write the file again with --save-baseline")
        found[name] = {}
        for kernel, data in kernels.items():
            try:
                found[name][kernel] = decode(data)
            except BaselineError as error:
                raise BaselineError(
                    f"the baseline of {kernel} in {name} cannot be read ({error}): write the file again with --save-baseline"
                ) from error
    return found


def encode(baseline: Baseline) -> dict[str, Any]:
    """A baseline as JSON-ready data; its machine code is packed, because most of it are zeros."""
    data: dict[str, Any] = to_wire(baseline)
    data["build"]["cubin"] = base64.b64encode(zlib.compress(baseline.build.cubin, 9)).decode("ascii")
    return data


def decode(data: Any) -> Baseline:
    """The inverse of `encode`. Raises `BaselineError` with a few words when the data has another shape."""
    if not isinstance(data, dict) or not isinstance(data.get("build"), dict):
        raise BaselineError("it has no build")
    cubin = _unpacked(data["build"].get("cubin"))
    # The converter has its own spelling of bytes; an empty value has the same in both.
    bare = {**data, "build": {**data["build"], "cubin": ""}}
    baseline = read_back(bare, Baseline)
    if baseline is None:
        raise BaselineError("its fields are not those of a baseline")
    return attrs.evolve(baseline, build=attrs.evolve(baseline.build, cubin=cubin))


def read_back(data: Any, kind: type[T]) -> T | None:
    """A record from stored data, or None unless every value has the record's own type.

    The converter alone would turn a list into a string, and a number with a fraction into one without.
    """
    try:
        record = from_wire(data, kind)
    except Exception:  # whatever a stranger's data makes of the converter
        return None
    return record if _agree(data, to_wire(record)) else None


def _agree(data: Any, wire: Any) -> bool:
    if isinstance(data, dict) and isinstance(wire, dict):
        return all(_agree(data[key], wire[key]) for key in data.keys() & wire.keys())
    if isinstance(data, (list, tuple)) and isinstance(wire, (list, tuple)):
        return len(data) == len(wire) and all(map(_agree, data, wire))
    return data == wire and isinstance(data, bool) == isinstance(wire, bool)


def _unpacked(packed: Any) -> bytes:
    if not isinstance(packed, str):
        raise BaselineError("it has no machine code")
    unpacker = zlib.decompressobj()
    try:
        cubin = unpacker.decompress(base64.b64decode(packed, validate=True), MAX_CUBIN_BYTES)
    except (binascii.Error, ValueError, zlib.error) as error:
        raise BaselineError("its machine code is damaged") from error
    if not cubin or not unpacker.eof or unpacker.unused_data:
        raise BaselineError("its machine code is damaged")
    return cubin


def _json_of(text: str) -> Any:
    def refuse(word: str) -> Any:
        raise ValueError(f"{word} is no number")

    try:
        return json.loads(text, parse_constant=refuse)
    except json.JSONDecodeError as error:
        for number, line in enumerate(text.splitlines(), start=1):
            if line.startswith("<<<<<<< "):
                raise BaselineError(
                    f"the file of baselines has a merge conflict in line {number}: resolve it, or write the file again with --save-baseline"
                ) from error
        raise BaselineError(
            f"the file of baselines is not JSON (line {error.lineno}): write it again with --save-baseline"
        ) from error
    except (ValueError, RecursionError) as error:
        raise BaselineError("the file of baselines is not JSON: write it again with --save-baseline") from error


def _is_relative(name: Any) -> bool:
    if not isinstance(name, str) or not name:
        return False
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and str(path) == name


def _spill_bytes(build: Compiled) -> int:
    return build.spill_store_bytes + build.spill_load_bytes


def _verb(baseline: Baseline) -> str:
    return "accepted" if baseline.origin == "accepted" else "taken"


def _named(device: str) -> str:
    return {"host": "the host", "": "an unknown device"}.get(device, device)
