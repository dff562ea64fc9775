"""A CuKe record: a fill, what stands around it, what it must compute, and the evidence that it does so, and how fast.

The name and the filter are those of DICE (arXiv 2602.11715): pairs that are verified and at least twice as fast as what they
are held against. A record stands for itself: its text, with its `//dice:` lines, says how the kernel is launched and judged,
so that anybody can have it judged again (see `again`). A file of records holds one JSON object a line.
"""

import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import attrs
from attrs import frozen
from cattrs.errors import BaseValidationError

from dice_lsp.baseline import launch_key
from dice_lsp.command_line import UsageError, write_whole
from dice_lsp.dataset.scrub import scrubbed, scrubbed_prose
from dice_lsp.pipeline import fill_request, splice
from dice_lsp.records import (
    Comparison,
    Document,
    Evidence,
    Faster,
    FillRequest,
    Judged,
    Kernel,
    LaunchSpec,
    NotCompared,
    NotTimed,
    Reference,
    Region,
    TimingResult,
    Unverified,
    Verdict,
    Verified,
    from_wire,
    to_wire,
)
from dice_lsp.source.directives import insertion_point
from dice_lsp.source.embedded import unit
from dice_lsp.source.kernels import SourceModel, parse
from dice_lsp.source.launches import launch_spec
from dice_lsp.source.selection import body_region
from dice_lsp.source.slice import device_slice, kernel_slice_key

VERSION = 1
MIN_SPEEDUP = 2.0
"""What CuKe was filtered by."""
MAX_LINE_BYTES = 4 << 20
_COMMENT = re.compile(r"//[^\r\n]*|/\*.*?\*/", re.DOTALL)
_LICENCE = re.compile(r"SPDX-License-Identifier:[ \t]*([A-Za-z0-9.+() -]+?)[ \t]*(?:\*/|\r|\n|$)")


class CukeError(ValueError):
    """Records that cannot be read or used; the text is one sentence for the user."""


@frozen
class CukeRecord:
    """One fill. `prefix + middle + suffix` is a whole text, `.cu` or for `whole_file` records whatever the model is to answer."""

    kernel: str
    """The kernel's id in the text; empty for a `whole_file` record."""
    prefix: str
    middle: str
    suffix: str
    reference: str
    """What says what the kernel computes, as text: a CPU function, a torch expression, the kernel before, a PyTorch module."""
    reference_kind: str
    """`function`, `torch`, `kernel` (then it is `rival`), `pytorch` (of the published files) or `none`."""
    verdict: Verdict
    comparison: Comparison
    """With what stood there before, or with the kept baseline."""
    timing: TimingResult
    evidence: Evidence | None
    """None for what was imported without any."""
    identity: str
    """Hash of the device code that the kernel needs, insensitive to white space and comments: duplicates have the same."""
    rival: str = ""
    """The middle that it was timed against; empty where only that one's machine code was kept."""
    directive: str = ""
    """`//dice:` lines that its text needs to be judged again, one a line; empty where the text says all itself."""
    prompt: str = ""
    """What the model is asked, of a `whole_file` record."""
    licence: str = ""
    """SPDX expression; empty where nobody has said."""
    origin: str = "editor"
    """`editor` (a fill that a user accepted), `generated` or `imported`."""
    source: str = ""
    """Where it comes from: the file's path, the generator's family and seed, or the imported file and the place in it."""

    @property
    def text(self) -> str:
        return self.prefix + self.middle + self.suffix

    @property
    def before(self) -> str:
        """The text with what it was timed against."""
        return self.prefix + self.rival + self.suffix

    @property
    def whole_file(self) -> bool:
        """An answer to a prompt, of the published files, not a fill."""
        return bool(self.prompt)

    @property
    def verified(self) -> bool:
        return isinstance(self.verdict, Verified)

    @property
    def speedup(self) -> float:
        """The low end of the measured interval, times as fast; 0.0 where it is not known to be faster."""
        return self.comparison.low if isinstance(self.comparison, Faster) else 0.0


def worth_keeping(record: CukeRecord, min_speedup: float = MIN_SPEEDUP) -> bool:
    """Whether a record passes the filter: verified, and certainly at least so many times as fast."""
    return record.verified and record.speedup >= min_speedup


def make_record(
    region: Region,
    middle: str,
    judged: Judged,
    spec: LaunchSpec,
    *,
    origin: str,
    source: str = "",
    licence: str = "",
    directive: str = "",
    rival: str = "",
) -> CukeRecord | str:
    """The record of a fill that was judged as `judged` says, launched as `spec` says; or one sentence why there is none.

    `directive` is what the text needs to say of that launch and does not. `rival` is the middle that the fill was timed
    against. What the text alone does not say, such as a launch that was captured, makes no record.
    """
    kernel = region.kernel
    assert kernel is not None, "a region comes from source.selection, which refuses places outside kernels"
    view = unit(region.document, kernel.start)
    region = attrs.evolve(region, document=view)
    text, kernel = splice(region, middle)
    alone, model = _spec_alone(text, kernel, directive)
    if alone.unknown or not alone.launchable:
        why = f" ({alone.unknown[0]})" if alone.unknown else ""
        return f"{kernel.name} is not kept: its text does not say how it is launched{why}; write that as a //dice: line"
    if launch_key(alone) != launch_key(spec):
        return f"{kernel.name} is not kept: its text says another launch than the one that was measured; write that as a //dice: line"
    if _said(alone.reference) != _said(spec.reference):
        return f"{kernel.name} is not kept: its reference is outside of the file; copy it into the file"
    found = _reference(alone.reference, model, rival)
    if found is None:
        return (
            f"{kernel.name} is not kept: its text has nothing to compare it with; add a CPU function or a `ref` clause"
        )
    reference, kind = found
    prefix, suffix = region.prefix, region.suffix
    if region.document.file_text is not None:
        # The view of a Python file is blank where the program stands.
        prefix, suffix = prefix.lstrip(), suffix.rstrip() + "\n"
    clean = scrubbed((prefix, middle, suffix))
    other = clean if isinstance(clean, str) else scrubbed((clean[0], rival, clean[2]))
    said = other if isinstance(other, str) else scrubbed((reference,))
    if isinstance(clean, str) or isinstance(other, str) or isinstance(said, str):
        return f"{kernel.name} is not kept: its file {said}"
    return CukeRecord(
        kernel=kernel.id,
        prefix=clean[0],
        middle=clean[1],
        suffix=clean[2],
        reference=said[0] if kind != "kernel" else other[1],
        reference_kind=kind,
        verdict=judged.verdict,
        comparison=judged.comparison,
        timing=judged.timing,
        evidence=judged.evidence,
        identity=kernel_slice_key(device_slice(text).text, kernel),
        rival=other[1],
        directive=directive,
        licence=licence or licence_of(text),
        origin=origin,
        source=source,
    )


def has_code(text: str) -> bool:
    """Whether a text is more than white space and comments."""
    return bool(_COMMENT.sub("", text).strip())


def licence_of(text: str) -> str:
    """The SPDX expression that a text declares; empty where it declares none."""
    found = _LICENCE.search(text)
    return found.group(1) if found is not None else ""


def with_directive(text: str, kernel: Kernel, directive: str) -> str:
    """The text with `//dice:` lines above a kernel."""
    if not directive:
        return text
    at, lead, indent = insertion_point(text, kernel)
    return text[:at] + lead + "".join(f"{indent}{line}\n" for line in directive.splitlines()) + text[at:]


def kernel_in(model: SourceModel, name: str) -> Kernel | None:
    """The kernel with an id, or with a name where that is enough."""
    return next((kernel for kernel in model.kernels if name in (kernel.id, kernel.name)), None)


def region_of(record: CukeRecord, middle: str | None = None) -> Region:
    """The place of a fill with `middle` in it, by default nothing. Raises `CukeError` where no kernel is around it."""
    middle = "" if middle is None else middle
    text = record.prefix + middle + record.suffix
    kernel = kernel_in(parse(text), record.kernel)
    start, end = len(record.prefix), len(record.prefix) + len(middle)
    if kernel is None or not kernel.start <= start <= end <= kernel.end:
        raise CukeError(
            f"the record of {record.kernel} ({record.source or record.origin}) has no such kernel around its fill"
        )
    document = Document(f"record:{record.identity}.cu", 0, text)
    if (kernel.body_start, kernel.body_end) == (start, end):
        return body_region(document, kernel)
    line = text[text.rfind("\n", 0, start) + 1 : start]
    written = (line + record.middle if not line.strip() else record.middle).lstrip("\r\n").split("\n", 1)[0]
    return Region(document, start, end, kernel, written[: len(written) - len(written.lstrip(" \t"))])


def training_request(record: CukeRecord) -> FillRequest:
    """What a model is asked when it is to write `record.middle`, the same as at inference. Raises `CukeError`.

    The place is empty, as a user would leave it, except where what stood there is the only reference.
    """
    if record.whole_file or record.reference_kind == "pytorch":
        raise CukeError("a record of a Python file is asked for by `exchange.published`")
    region = region_of(record, record.rival if record.reference_kind == "kernel" else None)
    assert region.kernel is not None
    model = parse(region.document.text)
    spec = launch_spec(region.document.text, region.kernel, model)
    return fill_request(region, model, spec, 1, 0)


# Files


def to_line(record: CukeRecord) -> str:
    """One line of a file of records, without its end."""
    return json.dumps({"cuke": VERSION, **to_wire(record)}, ensure_ascii=False, allow_nan=False)


def from_line(line: str) -> CukeRecord:
    """The inverse of `to_line`. Raises `CukeError`, whose text is the rest of a sentence about the line."""
    if len(line) > MAX_LINE_BYTES:
        raise CukeError(f"is longer than {MAX_LINE_BYTES} characters")
    try:
        data: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise CukeError(f"is not JSON ({error})") from error
    version = data.pop("cuke", None) if isinstance(data, dict) else None
    if not isinstance(version, int):
        raise CukeError("is no CuKe record: it has no `cuke` with a version")
    if version > VERSION:
        raise CukeError(
            f"was written by a newer dice-lsp (version {version}, this one reads {VERSION}): update dice-lsp"
        )
    problem = _wrong_type(data)
    if problem is not None:
        raise CukeError(f"is no CuKe record: {problem}")
    try:
        return from_wire(data, CukeRecord)
    except (BaseValidationError, KeyError, TypeError, ValueError) as error:
        raise CukeError(f"is no CuKe record: {_first(error)}") from error


def read_records(path: Path) -> tuple[CukeRecord, ...]:
    """The records of a file. Raises `CukeError` that names the file and the line; blank lines are passed over."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except FileNotFoundError as error:
        raise CukeError(f"{path} does not exist; accept fills with dice.dataset.keep on, or import a file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise CukeError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    found = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                found.append(from_line(line))
            except CukeError as error:
                raise CukeError(f"{path}: line {number} {error}; delete or repair it") from error
    return tuple(found)


def dumped(records: Iterable[CukeRecord]) -> bytes:
    """A whole file of records."""
    return "".join(f"{to_line(record)}\n" for record in records).encode("utf-8", "backslashreplace")


def write_records(path: Path, records: Iterable[CukeRecord]) -> None:
    """Write a file of records at once or not at all. Raises `CukeError`."""
    try:
        write_whole(path, dumped(records))
    except UsageError as error:
        raise CukeError(str(error)) from error


def unique(records: Iterable[CukeRecord]) -> tuple[CukeRecord, ...]:
    """The records without later duplicates of the same device code; of those the certainly fastest stays in the first's place."""
    kept: dict[str, CukeRecord] = {}
    for record in records:
        known = kept.get(record.identity)
        if known is None or (record.verified, record.speedup) > (known.verified, known.speedup):
            kept[record.identity] = record
    return tuple(kept.values())


def whole_file_record(prompt: str, response: str, *, licence: str, source: str) -> CukeRecord | str:
    """The record of a prompt and its answer, of which nothing is known here; or why there is none."""
    clean = scrubbed_prose((prompt, "\n", response))
    if isinstance(clean, str):
        return f"{source} is not taken: it {clean}"
    return CukeRecord(
        kernel="", prefix="", middle=clean[2], suffix="", reference="", reference_kind="none", prompt=clean[0],
        identity=text_identity(clean[2]),
        licence=licence, origin="imported", source=source, **unjudged(source),
    )  # fmt: skip


def text_identity(text: str) -> str:
    """The identity of a text that is not CUDA."""
    return hashlib.sha256(" ".join(text.split()).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def reference_in(text: str, kernel: Kernel) -> tuple[str, str] | None:
    """What a text itself says that a kernel of it computes, and its `reference_kind`."""
    alone, model = _spec_alone(text, kernel, "")
    return _reference(alone.reference, model, "")


def unjudged(source: str) -> dict[str, Any]:
    """The fields of a record about which nobody here has found anything out."""
    reason = f"imported from {source.partition('#')[0]} and not judged here"
    return {
        "verdict": Unverified(reason),
        "comparison": NotCompared(reason),
        "timing": NotTimed(reason),
        "evidence": None,
    }


def _spec_alone(text: str, kernel: Kernel, directive: str) -> tuple[LaunchSpec, SourceModel]:
    """How a kernel is launched as far as its own text says; nothing around the file is looked at."""
    told = with_directive(text, kernel, directive)
    model = parse(told)
    found = kernel_in(model, kernel.id)
    if found is None:
        return LaunchSpec(kernel.id, unknown=("it cannot be found in it",)), model
    return launch_spec(told, found, model), model


def _said(reference: Reference | None) -> tuple[str, str] | None:
    return None if reference is None else (reference.via, "" if reference.path else " ".join(reference.text.split()))


def _reference(reference: Reference | None, model: SourceModel, rival: str) -> tuple[str, str] | None:
    """The text of what says what a kernel computes, and its kind."""
    if reference is None or reference.via == "kernel":
        return (rival, "kernel") if has_code(rival) else None
    if reference.via == "torch":
        return reference.text, "torch"
    function = next((item for item in model.functions if item.name == reference.text), None)
    if reference.via != "function" or reference.path or function is None:
        return None
    return model.text[function.start : function.end], "function"


def _wrong_type(data: dict[str, Any]) -> str | None:
    """What is not as it should be among the texts: the converter would make a string of a number."""
    for field in attrs.fields(CukeRecord):
        if field.type is str and not isinstance(data.get(field.name, ""), str):
            return f"`{field.name}` is not a string"
    return None


def _first(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"it has no {error}" if isinstance(error, KeyError) else str(error) or type(error).__name__
