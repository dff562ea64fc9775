"""Judges every kernel of `tests/hostile` and `tests/honest` on the host and prints what came out.

`python -m tests.hostile_table [NAME...]` prints the table; exit code 1 when a verdict is not the expected one. A hostile
file says in its first line what it must be refused with, `// expect: unsafe race | wrong`; an honest one must be verified.
"""

import re
import sys
import tempfile
import time
from pathlib import Path

import attrs
from attrs import frozen

from dice_lsp.records import Build, Compiled, JudgeJob, Unsafe, Unverified, Verdict, Verified, Wrong, kind_of
from dice_lsp.source.kernels import parse
from dice_lsp.source.launches import launch_spec
from dice_lsp.worker.compile import CompileJob, Compiler, build_keys
from dice_lsp.worker.host import HostBackend
from dice_lsp.worker.launch import Source
from dice_lsp.worker.verify import verify

HERE = Path(__file__).parent
HOSTILE = tuple(sorted((HERE / "hostile").glob("*.cu")))
HONEST = tuple(sorted((HERE / "honest").glob("*.cu")))


@frozen
class Row:
    """One judged file."""

    path: Path
    expected: tuple[str, ...]
    verdict: Verdict | None
    build: Build
    words: str
    """The verdict in one line."""
    compile_s: float
    verify_s: float

    @property
    def fine(self) -> bool:
        return any(self.words.startswith(expected) for expected in self.expected)


def expectations(path: Path) -> tuple[str, ...]:
    """What the verdict's line must begin with, any one of them."""
    if path.parent.name == "honest":
        return ("verified",)
    match = re.match(r"// expect: (.*)", path.read_text())
    assert match is not None, f"{path} does not say what is expected"
    return tuple(part.strip() for part in match[1].split("|"))


def in_words(verdict: Verdict) -> str:
    """`unsafe race: y[0] depends ... (n=33)`."""
    kind = kind_of(type(verdict))
    match verdict:
        case Unsafe(hazard, where, case):
            return f"{kind} {hazard}: {where} ({case})"
        case Wrong(buffer, index, got, expected, case, wrong, total):
            return f"{kind}: {buffer}[{index}] is {got}, expected {expected}; {wrong} of {total} ({case})"
        case Verified(cases, max_error, _, reference, checks):
            return f"{kind}: {cases} cases, error {max_error:.2g} of the tolerance, {reference}; {', '.join(checks)}"
        case Unverified(reason, checks):
            return f"{kind} {reason}" + (f" [{', '.join(checks)}]" if checks else "")
    return f"{kind} {verdict.trick}: {verdict.where}"


def judge(path: Path, compiler: Compiler, host: HostBackend, *, baseline: str | None = None) -> Row:
    """The last kernel of a file through the real pieces: parse, launch spec, compile, verify."""
    text = path.read_text()
    model = parse(text)
    kernel = model.kernels[-1]
    spec = launch_spec(text, kernel, model)
    started = time.monotonic()
    job = CompileJob(text, str(path), (kernel,), templates={kernel.name: spec.template})
    build = compiler.compile(job)[build_keys((kernel,))[0]]
    compiled = time.monotonic()
    if not isinstance(build, Compiled):
        return Row(path, expectations(path), None, build, f"{kind_of(type(build))}: {build}", compiled - started, 0.0)
    source = Source(compiler.program(job).device_text, str(path), kernel, spec.template, build)
    judged = JudgeJob(text, str(path), kernel, spec)
    baseline_source = None
    if baseline is not None:
        accepted = parse(baseline).kernels[-1]
        old = CompileJob(baseline, str(path), (accepted,), templates={accepted.name: spec.template})
        old_build = compiler.compile(old)[build_keys((accepted,))[0]]
        assert isinstance(old_build, Compiled), old_build
        baseline_source = Source(compiler.program(old).device_text, str(path), accepted, spec.template, old_build)
        judged = attrs.evolve(judged, baseline_text=baseline, baseline_kernel=accepted)
    verdict = verify(judged, source, host, host, baseline_source=baseline_source)
    done = time.monotonic()
    return Row(path, expectations(path), verdict, build, in_words(verdict), compiled - started, done - compiled)


def main(names: list[str]) -> int:
    chosen = [p for p in (*HOSTILE, *HONEST) if not names or any(name in p.stem for name in names)]
    rows = []
    with tempfile.TemporaryDirectory() as cache:
        compiler, host = Compiler(cache_dir=Path(cache)), HostBackend()
        try:
            for path in chosen:
                row = judge(path, compiler, host)
                rows.append(row)
                mark = "ok " if row.fine else "BAD"
                print(
                    f"{mark} {path.parent.name:7} {path.stem:30} {row.compile_s:5.2f} {row.verify_s:5.2f} s  {row.words}"
                )
        finally:
            host.close()
            compiler.close()
    refused = {kind: 0 for kind in ("honest", "hostile")}
    passed = dict(refused)
    for row in rows:
        (passed if isinstance(row.verdict, Verified) else refused)[row.path.parent.name] += 1
    print(f"\n{'':10}{'verified':>10}{'refused':>10}")
    for kind in ("honest", "hostile"):
        print(f"{kind:10}{passed[kind]:>10}{refused[kind]:>10}")
    bad = [row for row in rows if not row.fine]
    print(f"{len(bad)} of {len(rows)} verdicts are not the expected ones")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
