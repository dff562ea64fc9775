"""Judges every pair of `tests/data/tolerance`: the tolerance rule must accept each right kernel and refuse each wrong one.

`python -m tests.tolerance_table [--backend host|auto|pycuda|cuda-core] [--part 2/8] [--json FILE] [NAME...]` prints a
line per kernel: the verdict, and the largest error in units of the tolerance or by how much it is off. Exit code 1 unless
all are as they should be. `--part 2/8` judges every eighth pair, beginning with the third, for several processes at once.

A pair is one file with one reference and one `//dice:` line. Its kernels have one list of parameters and are named
`right...` or `wrong...`; each is judged as if it stood there alone. A kernel named `accepted` is the version before the
edit: the reference where no other is named, and a yardstick for rounding errors beside one. A right kernel must be
`verified`, a wrong one `wrong` or `unsafe precision_dropped`; a line `// expect NAME: words` says otherwise of one kernel,
and `// not on a GPU: reason` leaves a file to the host.
"""

import argparse
import json
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
from attrs import frozen

from dice_lsp.records import Compiled, JudgeJob, Kernel, Verdict
from dice_lsp.source.kernels import parse
from dice_lsp.source.launches import launch_spec
from dice_lsp.worker.compile import CompileJob, Compiler, build_keys
from dice_lsp.worker.device import open_backend
from dice_lsp.worker.host import HostBackend
from dice_lsp.worker.launch import Backend, Source
from dice_lsp.worker.verify import verify
from tests.hostile_table import in_words

PAIRS = tuple(sorted((Path(__file__).parent / "data" / "tolerance").glob("*.cu")))


@frozen
class Member:
    """One kernel of a pair, as the document that a user would have."""

    path: Path
    role: str
    """The kernel's name in the file: `right`, `wrong_by_a_factor`, ..."""
    text: str
    accepted: str | None
    """The document with the version before the edit."""
    expected: str
    """How the verdict begins, alternatives with a bar between them."""
    not_on_gpu: str

    @property
    def label(self) -> str:
        return f"{self.path.stem}: {self.role}"


def members(path: Path) -> tuple[Member, ...]:
    """The kernels of one file."""
    text = path.read_text()
    kernels = parse(text).kernels
    documents = {kernel.name: _alone(text, kernel, kernels, path.stem) for kernel in kernels}
    accepted = documents.get("accepted")
    skipped = re.search(r"^// not on a GPU: (.+)$", text, re.M)
    found = []
    for name, document in documents.items():
        if name == "accepted":
            continue
        kind = re.match(r"right|wrong", name)
        assert kind is not None, f"{path}: a kernel is named neither right nor wrong: {name}"
        said = re.search(rf"^// expect {name}: (.+)$", text, re.M)
        expected = said[1].strip() if said else "verified" if kind[0] == "right" else "wrong | unsafe precision_dropped"
        found.append(Member(path, name, document, accepted, expected, skipped[1] if skipped else ""))
    return tuple(found)


def _alone(text: str, kernel: Kernel, kernels: tuple[Kernel, ...], name: str) -> str:
    """The document with this kernel in the place of the first, under the file's name, and no other."""
    document = text
    for other in reversed(kernels):
        own = text[kernel.start : kernel.end] if other is kernels[0] else ""
        if own:
            own = re.sub(rf"\b{kernel.name}\b", name, own)
        document = document[: other.start] + own + document[other.end :]
    return document


@frozen
class Row:
    """One judged kernel."""

    member: Member
    verdict: Verdict
    words: str
    took_s: float

    @property
    def fine(self) -> bool:
        return any(self.words.startswith(words.strip()) for words in self.member.expected.split("|"))


class Judge:
    """Judges the members of pairs on one back end; compilers and builds are kept between them."""

    def __init__(self, backend: Backend, host: HostBackend, cache_dir: Path) -> None:
        self.backend = backend
        self.host = host
        self.compiler = Compiler(cache_dir=cache_dir)

    def __call__(self, member: Member) -> Row:
        started = time.monotonic()
        source, job = self._source(member.text, member.path)
        baseline = None
        if member.accepted is not None:
            baseline, accepted = self._source(member.accepted, member.path)
            job = attrs.evolve(job, baseline_text=member.accepted, baseline_kernel=accepted.kernel)
        verdict = verify(job, source, self.backend, self.host, baseline_source=baseline)
        return Row(member, verdict, in_words(verdict), time.monotonic() - started)

    def _source(self, text: str, path: Path) -> tuple[Source, JudgeJob]:
        model = parse(text)
        (kernel,) = model.kernels
        spec = launch_spec(text, kernel, model)
        wanted = CompileJob(text, str(path), (kernel,), arch=self._arch(), templates={kernel.name: spec.template})
        build = self.compiler.compile(wanted)[build_keys((kernel,))[0]]
        assert isinstance(build, Compiled), f"{path}: {build}"
        device_text = self.compiler.program(wanted).device_text
        return Source(device_text, str(path), kernel, spec.template, build), JudgeJob(text, str(path), kernel, spec)

    def _arch(self) -> str:
        info = getattr(self.backend, "info", None)
        return "sm_90" if info is None else str(info.arch)

    def close(self) -> None:
        self.compiler.close()
        self.backend.close()
        self.host.close()


@contextmanager
def open_judge(backend: str) -> Iterator[Judge]:
    """A judge on `host`, or on a GPU through `pycuda`, `cuda-core` or what `auto` finds."""
    with tempfile.TemporaryDirectory() as cache:
        host = HostBackend()
        chosen: Any = host if backend == "host" else open_backend(backend)
        if isinstance(chosen, str):
            raise SystemExit(f"no GPU to judge on: {chosen}")
        judge = Judge(chosen, host, Path(cache))
        try:
            yield judge
        finally:
            judge.close()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.tolerance_table", description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="parts of the names of the pairs to judge, all by default")
    parser.add_argument("--backend", default="host")
    parser.add_argument("--part", default="0/1", help="`2/8`: every eighth pair, beginning with the third")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    part, parts = (int(number) for number in options.part.split("/"))
    chosen = [p for p in PAIRS[part::parts] if not options.names or any(name in p.stem for name in options.names)]
    rows: list[Row] = []
    with open_judge(options.backend) as judge:
        for member in (m for path in chosen for m in members(path)):
            if options.backend != "host" and member.not_on_gpu:
                print(f"--- {member.label:55} not on a GPU: {member.not_on_gpu}")
                continue
            rows.append(row := judge(member))
            print(f"{'ok ' if row.fine else 'BAD'} {member.label:55} {row.took_s:5.2f} s  {row.words}", flush=True)
    bad = [row for row in rows if not row.fine]
    right = sum(1 for row in rows if row.member.expected == "verified")
    print(f"{len(chosen)} pairs, {right} right kernels and {len(rows) - right} wrong ones: {len(bad)} misjudged")
    if options.json is not None:
        answer = [{"pair": r.member.path.stem, "kernel": r.member.role, "fine": r.fine, "words": r.words} for r in rows]
        options.json.write_text(json.dumps(answer, indent=1))
    return 1 if bad or not rows else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
