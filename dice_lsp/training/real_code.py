"""Kernels and device functions out of source packages, for variety beside the generated tasks.

    python -m dice_lsp.training.real_code ARCHIVE... --out functions.jsonl.gz

reads source archives (`pip download --no-deps --no-binary :all: NAME`), takes only files whose own header says nothing
against it, and writes one function a line. The result is read while training and belongs into no repository.
"""

import argparse
import gzip
import json
import random
import re
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from dice_lsp.diffusion.layout_psm import lex
from dice_lsp.records import FillRequest
from dice_lsp.training.examples import Example, choose_span
from dice_lsp.training.tasks import EXCLUDED_CLASSES

_SUFFIXES = (".cu", ".cuh", ".hip.cu")
_PERMISSIVE = re.compile(r"\b(MIT|Apache|BSD|Redistribution and use in source and binary forms)\b")
_RESTRICTED = re.compile(
    r"GPL|General Public License|non-?commercial|proprietary|confidential|license agreement|"
    r"strictly prohibited|without an express license|SLA\b|EULA",
    re.IGNORECASE,
)
_DEFINITION = re.compile(
    r"(?:template\s*<[^;{}]*?>\s*)?(?:(?:static|inline|extern\s+\"C\"|__forceinline__|__launch_bounds__\s*\([^)]*\))\s+)*"
    r"(?:__global__|__device__)[^;{}()=]*\([^;{}]*\)\s*\{"
)


def allowed(text: str) -> bool:
    """Whether a file's header permits its use.

    It holds no word of restriction, and a copyright line only with a permissive licence named beside it.
    """
    header = text[:2500]
    if _RESTRICTED.search(header):
        return False
    return not re.search(r"copyright", header, re.IGNORECASE) or bool(_PERMISSIVE.search(header))


def files_of(archive: Path) -> Iterator[tuple[str, str]]:
    """`(path inside, text)` of every CUDA file of a `.tar.gz`, `.zip` or `.whl`."""
    if archive.suffix in (".zip", ".whl"):
        with zipfile.ZipFile(archive) as zipped:
            for name in zipped.namelist():
                if name.endswith(_SUFFIXES):
                    yield name, zipped.read(name).decode("utf-8", "replace")
        return
    with tarfile.open(archive) as tarred:
        for member in tarred:
            if member.isfile() and member.name.endswith(_SUFFIXES):
                opened = tarred.extractfile(member)
                if opened is not None:
                    yield member.name, opened.read().decode("utf-8", "replace")


def functions_of(text: str) -> Iterator[str]:
    """Kernels and device functions of 100 to 3500 characters, comments removed."""
    plain = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)
    for match in _DEFINITION.finditer(plain):
        depth = 0
        for at in range(match.end() - 1, min(len(plain), match.end() + 3500)):
            depth += {"{": 1, "}": -1}.get(plain[at], 0)
            if depth == 0:
                function = plain[match.start() : at + 1]
                if 100 <= len(function) <= 3500:
                    yield function
                break


def collect(archives: list[Path]) -> list[str]:
    """Distinct functions of all archives, without the classes kept for judging. Order is that of the files."""
    seen: set[str] = set()
    functions = []
    for archive in archives:
        for _, text in files_of(archive):
            if not allowed(text):
                continue
            for function in functions_of(text):
                key = re.sub(r"\d+", "0", "".join(function.split()))
                lowered = function.lower().replace("_", "")
                if key in seen or any(word.replace("_", "") in lowered for word in EXCLUDED_CLASSES):
                    continue
                seen.add(key)
                functions.append(function)
    return functions


def real_example(function: str, rng: random.Random) -> Example | None:
    """A region cut out of a function, or None where it has no body to speak of."""
    brace = function.find("{")
    if brace < 0 or sum(1 for _ in lex(function)) < 20:
        return None
    start, end, kind = choose_span(function, brace + 1, len(function) - 1, rng, whole=0.1)
    request = FillRequest(
        kernel_prefix=function[:start], kernel_suffix=function[end:], file_prefix="", file_suffix="",
        reference_text=None, torch_expression=None, middle="", indent="    ", candidates=1,
    )  # fmt: skip
    return Example(request, function[start:end], kind)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("archives", nargs="+", type=Path)
    parser.add_argument("--out", required=True, type=Path)
    arguments = parser.parse_args()
    functions = collect(arguments.archives)
    with gzip.open(arguments.out, "wt", encoding="utf-8") as out:
        for function in functions:
            out.write(json.dumps(function) + "\n")
    print(f"{len(functions)} functions, {sum(map(len, functions))} characters")


if __name__ == "__main__":
    main()
