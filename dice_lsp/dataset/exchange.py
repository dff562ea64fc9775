"""Records in the shapes of other people's files, and back.

`cuke` is our own, one JSON object a line. `published` is that of DICE's `CuKe_dataset.json`: a JSON list of `prompt` and
`response`, which LLaMA-Factory maps to a turn of the user and one of the model. `infilling` is that of its infilling sets: a
list of `id`, `pytorch_code`, `cuda_code`, `prefix`, `middle`, `suffix`, where the last three together are `cuda_code`.
"""

import json
import string
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs

from dice_lsp.dataset.cuke import (
    CukeError,
    CukeRecord,
    dumped,
    from_line,
    kernel_in,
    licence_of,
    reference_in,
    text_identity,
    training_request,
    unjudged,
    whole_file_record,
)
from dice_lsp.dataset.scrub import scrubbed, scrubbed_prose
from dice_lsp.diffusion.prompt import DICE_TEMPLATE, SOURCE_HEAD, SOURCE_TAIL, architecture
from dice_lsp.source.embedded import cuda_view
from dice_lsp.source.kernels import parse
from dice_lsp.source.slice import device_slice, kernel_slice_key

FORMATS = ("cuke", "published", "infilling")
MAX_IMPORT_BYTES = 1 << 30


def published(record: CukeRecord) -> dict[str, str]:
    """`prompt` and `response`: as they came for a whole file, else DICE's infilling prompt and the whole file around the fill.

    Raises `CukeError` for a record whose kernel cannot be found.
    """
    if record.whole_file:
        return {"prompt": record.prompt, "response": record.middle}
    if record.reference_kind == "pytorch":
        # A Python file already.
        reference, before, after = record.reference, record.prefix, record.suffix
    else:
        request = training_request(record)
        reference = architecture(request)
        before = SOURCE_HEAD + request.file_prefix + request.kernel_prefix
        after = request.kernel_suffix + request.file_suffix.rstrip() + SOURCE_TAIL
    prompt = string.Template(DICE_TEMPLATE).substitute(
        architecture=reference.strip("\n"), prefix=before.rstrip(), suffix=after.strip("\n")
    )
    whole = before + record.middle + after
    return {"prompt": prompt.rstrip(), "response": f"```python\n{whole.rstrip()}\n```"}


def infilling(record: CukeRecord, number: int) -> dict[str, Any]:
    """The fields of the infilling sets; `pytorch_code` is whatever says what the kernel computes. Raises `CukeError`."""
    if record.whole_file:
        raise CukeError("a prompt and its response have no prefix and suffix; export them as `published`")
    return {
        "id": number,
        "pytorch_code": _architecture(record),
        "cuda_code": record.text,
        "prefix": record.prefix,
        "middle": record.middle,
        "suffix": record.suffix,
    }


def exported(records: Sequence[CukeRecord], style: str) -> tuple[bytes, tuple[str, ...]]:
    """A whole file in one of `FORMATS`, and a sentence for each record that cannot be put so."""
    items: list[Any] = []
    problems: list[str] = []
    for number, record in enumerate(records):
        try:
            if style == "cuke":
                items.append(_without_place(record))
            else:
                items.append(published(record) if style == "published" else infilling(record, number))
        except CukeError as error:
            problems.append(f"record {number + 1} is left out: {error}")
    if style == "cuke":
        return dumped(items), tuple(problems)
    text = json.dumps(items, ensure_ascii=False, indent=1)
    return (text + "\n").encode("utf-8", "backslashreplace"), tuple(problems)


def imported(path: Path, licence: str = "") -> Iterator[CukeRecord | str]:
    """The records of a file in any of `FORMATS`, or one sentence for each that is not taken. Raises `CukeError`.

    Records of our own format keep the evidence that they name; `again` finds out whether it holds here.
    """
    data = _read(path)
    name = path.name
    if isinstance(data, list):
        yield from (_item(item, f"{name}#{number}", licence) for number, item in enumerate(data))
        return
    for number, line in enumerate(data.split("\n"), 1):
        if not line.strip():
            continue
        try:
            yield _own(from_line(line), f"{name}#{number}", licence)
        except CukeError as error:
            yield f"{name}: line {number} {error}"


def _read(path: Path) -> list[Any] | str:
    """The items of a JSON list, or a text of JSON lines."""
    try:
        if path.stat().st_size > MAX_IMPORT_BYTES:
            raise CukeError(f"{path} is over {MAX_IMPORT_BYTES >> 20} MiB; split it")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CukeError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if not text.lstrip().startswith("["):
        return text
    try:
        items = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CukeError(f"{path} is not JSON: {error}") from error
    return items if isinstance(items, list) else []


def _item(item: Any, source: str, licence: str) -> CukeRecord | str:
    """The record of one item of a published list."""

    def texts(*names: str) -> tuple[str, ...] | None:
        found = [item.get(name) for name in names] if isinstance(item, dict) else []
        strings = tuple(each for each in found if isinstance(each, str))
        return strings if len(strings) == len(names) else None

    pair = texts("prompt", "response")
    if pair is not None:
        if not pair[0].strip() or not pair[1].strip():
            return f"{source} is not taken: its prompt or its response is empty"
        prompt, response = pair
        return whole_file_record(prompt, response, licence=licence, source=source)
    gap = texts("pytorch_code", "prefix", "middle", "suffix")
    if gap is None:
        return f"{source} is not taken: it has neither `prompt` and `response` nor `pytorch_code`, `prefix`, `middle` and `suffix`"
    whole = item.get("cuda_code")
    if isinstance(whole, str) and whole and whole != "".join(gap[1:]):
        return f"{source} is not taken: its prefix, middle and suffix are not its cuda_code"
    reference, prefix, middle, suffix = gap
    return _gap(reference, prefix, middle, suffix, source=source, licence=licence)


def _gap(reference: str, prefix: str, middle: str, suffix: str, *, source: str, licence: str) -> CukeRecord | str:
    if not middle.strip():
        return f"{source} is not taken: its middle is empty"
    text = prefix + middle + suffix
    is_python = "load_inline" in text or "import torch" in text
    clean = (scrubbed_prose if is_python else scrubbed)((prefix, middle, suffix))
    said = scrubbed_prose((reference,))
    if isinstance(clean, str) or isinstance(said, str):
        return f"{source} is not taken: it {clean if isinstance(clean, str) else said}"
    view = cuda_view(text) if is_python else text
    kernels = parse(view).kernels
    around = (kernel for kernel in kernels if kernel.start < len(prefix) + len(middle) and len(prefix) < kernel.end)
    kernel = next(around, None)
    found = None
    if not is_python:
        if kernel is None:
            return f"{source} is not taken: there is no kernel in or around its middle"
        # A CUDA text may say itself what it computes, and can be judged then.
        found = reference_in(text, kernel)
    kind = found[1] if found is not None else "pytorch" if is_python else "none"
    return CukeRecord(
        kernel=kernel.id if kernel is not None else "",
        prefix=clean[0],
        middle=clean[1],
        suffix=clean[2],
        reference=found[0] if found is not None else said[0],
        reference_kind=kind,
        identity=text_identity(text) if kernel is None else kernel_slice_key(device_slice(view).text, kernel),
        licence=licence or licence_of(text),
        origin="imported",
        source=source,
        **unjudged(source),
    )


def _own(record: CukeRecord, source: str, licence: str) -> CukeRecord | str:
    """A record of our own format that somebody gave us: what it says is looked at as if it were new."""
    pieces = (record.prefix, record.middle, record.suffix)
    if record.whole_file:
        return whole_file_record(record.prompt, record.middle, licence=licence or record.licence, source=source)
    if record.reference_kind == "pytorch":
        return _gap(record.reference, *pieces, source=source, licence=licence or record.licence)
    clean = scrubbed(pieces)
    other = scrubbed((record.prefix, record.rival, record.suffix))
    said = scrubbed_prose((record.reference, record.directive))
    for each in (clean, other, said):
        if isinstance(each, str):
            return f"{source} is not taken: it {each}"
    kernel = kernel_in(parse(record.text), record.kernel)
    if kernel is None:
        return f"{source} is not taken: there is no kernel {record.kernel!r} in its text"
    return attrs.evolve(
        record,
        prefix=clean[0],
        middle=clean[1],
        suffix=clean[2],
        rival=other[1],
        reference=said[0],
        directive=said[1],
        identity=kernel_slice_key(device_slice(record.text).text, kernel),
        licence=licence or record.licence,
        # What lay beside it on its own machine is not here.
        origin="generated" if record.origin == "generated" else "imported",
        source=record.source if record.origin == "generated" else source,
    )


def _without_place(record: CukeRecord) -> CukeRecord:
    """The record without the folder of its file, which is nobody else's business."""
    return attrs.evolve(record, source=Path(record.source).name) if record.origin == "editor" else record


def _architecture(record: CukeRecord) -> str:
    if record.reference_kind != "torch":
        return record.reference
    return architecture(training_request(record))
