"""Spoils the honest kernels in small ways, and counts how many of the spoilt ones are still verified.

`python -m tests.mutants [--count 500] [--seed 0] [--backend host|auto|pycuda|cuda-core] [--jobs N] [--log FILE] [NAME...]`

Mutants are drawn evenly: one of each kernel and kind, then another of each, in an order that only the seed decides. One
that does not compile, or whose machine code is the original's, is no mutant, and the next one takes its place. The rest
is judged as a fill would be: the launch spec and the reference come from the original text. What is verified has
survived; a survivor that computes the same is named in `data/mutants/equivalent.toml` with the reason, any other one is
a gap. With `--log` a run that was ended goes on where it was. Exit code 1 when less than 99 % are caught.
"""

import argparse
import json
import os
import random
import re
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path

import tree_sitter_cuda
from attrs import frozen
from tree_sitter import Language, Node, Parser

from dice_lsp import process
from dice_lsp.records import (
    Cheating,
    Compiled,
    Judged,
    JudgeJob,
    LaunchSpec,
    Unsafe,
    Verdict,
    Verified,
    Wrong,
    from_wire,
    to_wire,
)
from dice_lsp.source.kernels import parse
from dice_lsp.source.launches import launch_spec
from dice_lsp.source.syntax import named, spell, walk
from dice_lsp.worker.__main__ import Worker
from dice_lsp.worker.compile import CompileJob, Compiler, build_keys
from dice_lsp.worker.host import HostBackend
from dice_lsp.worker.launch import Source
from dice_lsp.worker.machine_code import same_machine_code
from dice_lsp.worker.verify import verify
from tests.hostile_table import HONEST, columns, in_words

EQUIVALENT = Path(__file__).parent / "data" / "mutants" / "equivalent.toml"
GOAL = 0.99
_PARSER = Parser(Language(tree_sitter_cuda.language()))


@frozen
class Mutant:
    """One change of one kernel: the bytes `start:end` of the file become `new`."""

    kernel: str
    """The stem of the file's name."""
    kind: str
    start: int
    end: int
    new: str

    @property
    def id(self) -> str:
        return f"{self.kernel}:{self.kind}:{self.start}:{self.end}:{self.new}"

    def apply(self, text: str) -> str:
        data = text.encode()
        return (data[: self.start] + self.new.encode() + data[self.end :]).decode()

    def lines(self, text: str) -> tuple[str, str]:
        """The line that changes, before and after, without its indent."""
        data = text.encode()
        begin = data.rfind(b"\n", 0, self.start) + 1
        close = data.find(b"\n", self.end)
        close = len(data) if close < 0 else close
        before, after = data[begin:close], data[begin : self.start] + self.new.encode() + data[self.end : close]
        return " ".join(before.decode().split()), " ".join(after.decode().split())

    def line(self, text: str) -> int:
        """One-based."""
        return text.encode().count(b"\n", 0, self.start) + 1


Change = tuple[Node, str]
"""A node and what takes its place."""

_SWAPS = {
    "+": "-", "-": "+", "*": "+", "/": "*", "%": "/", "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==",
    "&&": "||", "||": "&&", "<<": ">>", ">>": "<<", "&": "|", "|": "&", "^": "|",
    "+=": "=", "-=": "+=", "*=": "=", "/=": "*=", "|=": "=", "&=": "=", "^=": "=", "<<=": ">>=", ">>=": "<<=",
}  # fmt: skip
_MIN_MAX = {
    "fmaxf": "fminf", "fminf": "fmaxf", "fmax": "fmin", "fmin": "fmax", "max": "min", "min": "max",
    "atomicMax": "atomicMin", "atomicMin": "atomicMax", "__hmax": "__hmin", "__hmin": "__hmax",
    "__reduce_max_sync": "__reduce_min_sync", "__reduce_min_sync": "__reduce_max_sync",
}  # fmt: skip
_PLAIN = {
    "atomicAdd": "{t} + ({v})", "atomicSub": "{t} - ({v})", "atomicMax": "max({t}, {v})", "atomicMin": "min({t}, {v})",
    "atomicExch": "({v})",
    "atomicInc": "{t} >= ({v}) ? 0 : {t} + 1", "atomicOr": "{t} | ({v})", "atomicAnd": "{t} & ({v})", "atomicXor": "{t} ^ ({v})",
}  # fmt: skip
"""What an atomic operation on `t` does when it is none."""
_SHUFFLES = re.compile(r"__(?:shfl\w*|ballot|any|all|match_\w+|reduce_\w+)_sync|\w+\.shfl\w*")
_AXES = ("threadIdx", "blockIdx", "blockDim", "gridDim")
_COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
_LEAVES = ("return_statement", "continue_statement", "break_statement")


def _operator(node: Node) -> Node | None:
    return node.child_by_field_name("operator")


def _field(node: Node, name: str) -> Node:
    found = node.child_by_field_name(name)
    assert found is not None, (node.type, name)
    return found


def _called(node: Node) -> str:
    return spell(node.child_by_field_name("function")) if node.type == "call_expression" else ""


def _arguments(call: Node) -> list[Node]:
    return named(_field(call, "arguments"))


def _statement_call(node: Node) -> str:
    """The function that a statement consists of calling."""
    inner = named(node) if node.type == "expression_statement" else []
    return _called(inner[0]) if len(inner) == 1 else ""


def drop_barrier(node: Node) -> Iterator[Change]:
    if re.fullmatch(r"__syncthreads|__syncwarp|(?:\w+::)*sync|\w+\.sync", _statement_call(node)):
        yield node, ";"


def drop_fence(node: Node) -> Iterator[Change]:
    if re.fullmatch(r"__threadfence(?:_block|_system)?", _statement_call(node)):
        yield node, ";"


def shift_index(node: Node) -> Iterator[Change]:
    if node.type == "subscript_argument_list" and len(named(node)) == 1:
        index = named(node)[0]
        yield index, f"({spell(index)}) + 1"
        yield index, f"({spell(index)}) - 1"


def swap_operator(node: Node) -> Iterator[Change]:
    if node.type in ("binary_expression", "assignment_expression"):
        operator = _operator(node)
        if operator is not None and operator.type in _SWAPS:
            yield operator, _SWAPS[operator.type]


def change_bound(node: Node) -> Iterator[Change]:
    condition = node.child_by_field_name("condition") if node.type in _CONDITIONAL else None
    for inner in walk(condition) if condition is not None else ():
        operator = _operator(inner) if inner.type == "binary_expression" else None
        if operator is not None and operator.type in _COMPARISONS:
            bound = _field(inner, "right")
            yield bound, f"({spell(bound)} - 1)"
            yield bound, f"({spell(bound)} + 1)"


_CONDITIONAL = ("for_statement", "if_statement", "while_statement", "conditional_expression")


def drop_atomic(node: Node) -> Iterator[Change]:
    name = _called(node)
    if name in _PLAIN and len(_arguments(node)) == 2:
        place, value = map(spell, _arguments(node))
        target = place[1:] if place.startswith("&") else f"*({place})"
        plain = _PLAIN[name].format(t=target, v=value)
        assert node.parent is not None
        if node.parent.type == "expression_statement":
            yield node, f"{target} = {plain}"
        else:
            yield node, f"[&] {{ auto old = {target}; {target} = {plain}; return old; }}()"
    elif name == "atomicCAS" and len(_arguments(node)) == 3:
        place, expected, value = map(spell, _arguments(node))
        target = place[1:] if place.startswith("&") else f"*({place})"
        yield node, f"[&] {{ auto old = {target}; if (old == ({expected})) {target} = ({value}); return old; }}()"


def change_shuffle(node: Node) -> Iterator[Change]:
    name = _called(node)
    if not _SHUFFLES.fullmatch(name):
        return
    arguments = _arguments(node)
    masked = name.endswith("_sync")
    if masked and arguments:
        yield arguments[0], "0x0000ffff"
        yield arguments[0], f"({spell(arguments[0])} >> 1)"
    lane = 2 if masked else 1
    if "shfl" in name and len(arguments) > lane:
        yield arguments[lane], f"({spell(arguments[lane])}) + 1"
        yield arguments[lane], f"({spell(arguments[lane])}) / 2"
    function = _field(node, "function")
    for old, new in (("_down", "_up"), ("_up", "_down"), ("_xor", "_down")):
        if "shfl" in name and old in name:
            yield function, name.replace(old, new)


def swap_axes(node: Node) -> Iterator[Change]:
    if node.type == "field_expression" and spell(_field(node, "argument")) in _AXES:
        axis = _field(node, "field")
        for other in {"x": "yz", "y": "x", "z": "x"}.get(spell(axis), ""):
            yield axis, other


def drop_guard(node: Node) -> Iterator[Change]:
    if node.type == "if_statement":
        then = _field(node, "consequence")
        if then.type == "compound_statement" and len(named(then)) == 1:
            then = named(then)[0]
        yield _field(node, "condition"), "(false)" if then.type in _LEAVES else "(true)"
    elif node.type == "conditional_expression":
        yield _field(node, "condition"), "true"


def change_initial(node: Node) -> Iterator[Change]:
    value = None
    if node.type == "init_declarator":
        value = node.child_by_field_name("value")
    elif node.type == "assignment_expression" and (operator := _operator(node)) is not None and operator.type == "=":
        value = _field(node, "right")
    if value is None:
        return
    if value.type == "number_literal":
        text = spell(value)
        zero = re.fullmatch(r"0+(?:\.0*)?(?:[eE][-+]?\d+)?[fFuUlL]*", text)
        ending = "f" if "." in text and text[-1] in "fF" else ""
        yield value, f"{'1' if zero else '0'}{'.0' + ending if '.' in text else ''}"
    elif re.search(r"INFINITY|_MAX\b|_MIN\b", spell(value)):
        yield value, "0"


def swap_min_max(node: Node) -> Iterator[Change]:
    name = _called(node)
    if name in _MIN_MAX:
        yield _field(node, "function"), _MIN_MAX[name]
    elif node.type == "conditional_expression":
        test = _field(node, "condition")
        operator = _operator(test) if test.type == "binary_expression" else None
        if operator is not None and operator.type in ("<", "<=", ">", ">="):
            then, other = spell(_field(node, "consequence")), spell(_field(node, "alternative"))
            if {then, other} == {spell(_field(test, "left")), spell(_field(test, "right"))}:
                yield node, f"{spell(test)} ? {other} : {then}"


def drop_term(node: Node) -> Iterator[Change]:
    operator = _operator(node) if node.type == "binary_expression" else None
    if operator is not None and operator.type in ("+", "-", "*", "/"):
        yield node, spell(_field(node, "left"))
        if operator.type in ("+", "*"):
            yield node, spell(_field(node, "right"))


def change_stride(node: Node) -> Iterator[Change]:
    update = node.child_by_field_name("update") if node.type == "for_statement" else None
    if update is None:
        return
    if update.type == "update_expression":
        sign = "+" if "++" in spell(update) else "-"
        yield update, f"{spell(_field(update, 'argument'))} {sign}= 2"
    elif update.type == "assignment_expression" and (operator := _operator(update)) is not None:
        step = _field(update, "right")
        if operator.type in ("*=", "/="):
            yield step, f"{spell(step)} * {spell(step)}"
        elif operator.type in (">>=", "<<="):
            yield step, f"{spell(step)} + 1"
        elif operator.type in ("+=", "-="):
            yield step, f"({spell(step)}) * 2"
            yield step, f"({spell(step)} + 1)"


def drop_assignment(node: Node) -> Iterator[Change]:
    inner = named(node) if node.type == "expression_statement" else []
    if len(inner) == 1 and inner[0].type in ("assignment_expression", "update_expression"):
        yield node, ";"


KINDS: Mapping[str, Callable[[Node], Iterator[Change]]] = {
    mutate.__name__: mutate
    for mutate in (
        drop_barrier, drop_fence, drop_atomic, drop_guard, drop_term, drop_assignment, shift_index, swap_operator,
        swap_axes, swap_min_max, change_bound, change_shuffle, change_initial, change_stride,
    )
}  # fmt: skip


def device_bodies(text: str) -> Iterator[Node]:
    """The bodies of the functions of a text that run on the device."""
    for node in walk(_PARSER.parse(text.encode()).root_node):
        if node.type == "function_definition" and (body := node.child_by_field_name("body")) is not None:
            head = text.encode()[node.start_byte : body.start_byte].decode()
            if re.search(r"\b__(?:global|device)__\b", head):
                yield body


def mutants_of(kernel: str, text: str) -> list[Mutant]:
    """Every mutant of a file's device code, in the order of the text."""
    found: dict[str, Mutant] = {}
    for body in device_bodies(text):
        for node in walk(body):
            if node.has_error:
                continue
            for kind, mutate in KINDS.items():
                for place, new in mutate(node):
                    mutant = Mutant(kernel, kind, place.start_byte, place.end_byte, new)
                    found.setdefault(f"{mutant.start}:{mutant.end}:{new}", mutant)
    return list(found.values())


def drawn(texts: Mapping[str, str], seed: int) -> list[Mutant]:
    """All mutants in the order in which they are drawn: one of each kernel and kind, then another of each, and so on."""
    chance = random.Random(seed)
    cells: dict[tuple[str, str], list[Mutant]] = {}
    for kernel in sorted(texts):
        for mutant in mutants_of(kernel, texts[kernel]):
            cells.setdefault((kernel, mutant.kind), []).append(mutant)
    for cell in cells.values():
        chance.shuffle(cell)
    order: list[Mutant] = []
    for turn in range(max(map(len, cells.values()), default=0)):
        this = [cell[turn] for cell in cells.values() if turn < len(cell)]
        chance.shuffle(this)
        order += this
    return order


@frozen
class Outcome:
    """What became of one mutant."""

    mutant: Mutant
    fate: str
    """`caught`, `survived`, `unverified` (neither right nor wrong is known), `broken` (it does not compile), `same` (as
    the original's machine code)."""
    words: str
    """The verdict in one line."""
    seconds: float


class Laboratory:
    """Compiles and judges mutants on one back end."""

    def __init__(self, backend: str, paths: Iterable[Path] = HONEST) -> None:
        self.backend = backend
        self._cache = tempfile.TemporaryDirectory()
        self._compiler = Compiler(cache_dir=Path(self._cache.name))
        self._host = HostBackend()
        self._worker = None
        if backend != "host":
            self._worker = Worker()
            here = self._worker.hello({"settings": {"backend": backend}}, _call())
            if str(here["backend"]) == "host":
                self.close()
                raise SystemExit(f"no GPU to judge on: {here['no_device'] or 'none was found'}")
        self._paths = {path.stem: path for path in paths}
        self._accepted: dict[str, Source] = {}
        self._originals: dict[str, tuple[str, LaunchSpec, Compiled]] = {}

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close()
        self._host.close()
        self._compiler.close()
        self._cache.cleanup()

    def original(self, kernel: str) -> tuple[str, LaunchSpec, Compiled]:
        """An honest kernel's text, launch spec and machine code."""
        if kernel not in self._originals:
            text = self._paths[kernel].read_text()
            model = parse(text)
            spec = launch_spec(text, model.kernels[-1], model)
            build = self._compile(kernel, text, spec)
            assert isinstance(build, Source) and build.compiled is not None, f"{kernel} does not compile"
            self._originals[kernel] = text, spec, build.compiled
            self._accepted[kernel] = build
        return self._originals[kernel]

    def _compile(self, kernel: str, text: str, spec: LaunchSpec) -> Source | None:
        """None where the device's compiler does not take it."""
        function = parse(text).kernels[-1]
        job = CompileJob(text, str(self._paths[kernel]), (function,), templates={function.name: spec.template})
        build = self._compiler.compile(job)[build_keys((function,))[0]]
        if not isinstance(build, Compiled):
            return None
        return Source(self._compiler.program(job).device_text, str(self._paths[kernel]), function, spec.template, build)

    def judge(self, mutant: Mutant) -> Outcome:
        started = time.monotonic()
        text, spec, original = self.original(mutant.kernel)
        changed = mutant.apply(text)
        source = self._compile(mutant.kernel, changed, spec)
        if source is None or source.compiled is None:
            return Outcome(mutant, "broken", "", time.monotonic() - started)
        if same_machine_code(original, source.compiled):
            return Outcome(mutant, "same", "", time.monotonic() - started)
        accepted = self._accepted[mutant.kernel]
        job = JudgeJob(
            changed, str(self._paths[mutant.kernel]), source.kernel, spec, reference_text=text, benchmark=False,
            baseline_text=text, baseline_kernel=accepted.kernel,
        )  # fmt: skip
        verdict = self._verdict(job, source, accepted)
        fate = "unverified"
        if isinstance(verdict, Verified):
            fate = "survived"
        elif isinstance(verdict, (Unsafe, Wrong, Cheating)):
            fate = "caught"
        return Outcome(mutant, fate, in_words(verdict), time.monotonic() - started)

    def _verdict(self, job: JudgeJob, source: Source, accepted: Source) -> Verdict:
        if self._worker is None:
            return verify(job, source, self._host, self._host, baseline_source=accepted)
        answer = self._worker.judge({"settings": {"backend": self.backend}, "job": to_wire(job)}, _call())
        return from_wire(answer, Judged).verdict


def _call() -> process.Job:
    return process.Job(1, lambda message: None)


_laboratory: Laboratory | None = None


def _open(backend: str) -> None:
    global _laboratory
    os.nice(5)
    _laboratory = Laboratory(backend)


def _judge(mutant: Mutant) -> Outcome:
    assert _laboratory is not None
    return _laboratory.judge(mutant)


def _read_log(path: Path | None) -> dict[str, Outcome]:
    done: dict[str, Outcome] = {}
    if path is not None and path.exists():
        for line in path.read_text().splitlines():
            outcome = from_wire(json.loads(line), Outcome)
            done[outcome.mutant.id] = outcome
    return done


def judged(
    order: Sequence[Mutant], count: int, backend: str, jobs: int, log: Path | None
) -> Iterator[tuple[Outcome, bool]]:
    """The outcomes of the first mutants of an order until `count` of them are real ones, and whether each is new."""
    done = _read_log(log)
    with ProcessPoolExecutor(jobs, get_context("spawn"), _open, (backend,)) as pool:
        running: dict[Future[Outcome], Mutant] = {}
        real, at = 0, 0
        while real + len(running) < count and at < len(order) or running:
            # So many as are wanted are on their way; one that turns out to be none makes room for the next.
            while at < len(order) and len(running) < 2 * jobs and real + len(running) < count:
                mutant, at = order[at], at + 1
                if mutant.id in done:
                    real += done[mutant.id].fate not in ("broken", "same")
                    yield done[mutant.id], False
                else:
                    running[pool.submit(_judge, mutant)] = mutant
            finished, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                del running[future]
                outcome = future.result()
                real += outcome.fate not in ("broken", "same")
                if log is not None:
                    with log.open("a") as file:
                        file.write(json.dumps(to_wire(outcome)) + "\n")
                yield outcome, True


def equivalents(survivors: Iterable[Mutant], texts: Mapping[str, str]) -> dict[str, str]:
    """Ids of those survivors that are known to compute the same -> why."""
    with EQUIVALENT.open("rb") as file:
        entries = tomllib.load(file).get("mutant", [])
    found = {}
    for mutant in survivors:
        text = texts[mutant.kernel]
        for entry in entries:
            lines = tuple(" ".join(entry[key].split()) for key in ("before", "after"))
            here = entry.get("line", mutant.line(text)) == mutant.line(text)
            if here and entry["kernel"] == mutant.kernel and lines == mutant.lines(text):
                found[mutant.id] = entry["why"]
    return found


def shares(
    outcomes: Sequence[Outcome], key: Callable[[Mutant], str], equivalent: Mapping[str, str]
) -> list[tuple[str, ...]]:
    """A table: what the key says, then caught, unverified, survived, equivalent and the caught share of the rest."""
    table: list[tuple[str, ...]] = [("", "caught", "unverified", "survived", "equivalent", "share")]
    counts: Counter[tuple[str, str]] = Counter()
    for outcome in outcomes:
        fate = "equivalent" if outcome.mutant.id in equivalent else outcome.fate
        for name in (key(outcome.mutant), "all"):
            counts[name, fate] += 1
    names = sorted({name for name, _ in counts} - {"all"})
    for name in [*names, "all"]:
        caught, unverified, survived = (counts[name, fate] for fate in ("caught", "unverified", "survived"))
        of = caught + unverified + survived
        share = f"{100 * caught / of:.1f} %" if of else "-"
        table.append((name, str(caught), str(unverified), str(survived), str(counts[name, "equivalent"]), share))
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backend", default="host", choices=("host", "auto", "pycuda", "cuda-core"))
    parser.add_argument("--jobs", type=int, help="processes, two on the host and one on a GPU unless said otherwise")
    parser.add_argument("--log", type=Path, help="JSON lines of what was judged; what stands there is not judged again")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="kernels whose names hold one of these words; else all"
    )
    options = parser.parse_args(arguments)
    texts = {
        path.stem: path.read_text()
        for path in HONEST
        if not options.names or any(name in path.stem for name in options.names)
    }
    if options.backend != "host":
        # What is missing is told here, and not by a pool of processes that break.
        Laboratory(options.backend).close()
    jobs = options.jobs or (2 if options.backend == "host" else 1)
    order = drawn(texts, options.seed)
    started = time.monotonic()
    outcomes: list[Outcome] = []
    for outcome, new in judged(order, options.count, options.backend, jobs, options.log):
        outcomes.append(outcome)
        if new:
            m = outcome.mutant
            print(f"{outcome.fate:10} {m.kernel:32} {m.kind:15} {outcome.seconds:5.1f} s  {outcome.words}", flush=True)
    real = [outcome for outcome in outcomes if outcome.fate not in ("broken", "same")]
    equivalent = equivalents((outcome.mutant for outcome in real if outcome.fate == "survived"), texts)
    print(f"\n{columns(shares(real, lambda mutant: mutant.kind, equivalent))}")
    print(f"\n{columns(shares(real, lambda mutant: mutant.kernel, equivalent))}")
    rest = [outcome for outcome in real if outcome.fate != "caught"]
    print(f"\n{len(rest)} of {len(real)} are not caught:")
    for outcome in sorted(rest, key=lambda outcome: outcome.mutant.id in equivalent):
        mutant, text = outcome.mutant, texts[outcome.mutant.kernel]
        before, after = mutant.lines(text)
        why = equivalent.get(mutant.id)
        said = f"equivalent: {why}" if why else outcome.words
        print(f"\n{mutant.kernel}.cu:{mutant.line(text)} {mutant.kind}, {said}\n- {before}\n+ {after}")
    counted = len(real) - len(equivalent)
    caught = sum(outcome.fate == "caught" for outcome in real)
    dropped = Counter(outcome.fate for outcome in outcomes)
    print(
        f"\n{caught} of {counted} mutants that are not equivalent are caught, {100 * caught / max(1, counted):.1f} %; "
        f"{len(equivalent)} equivalent; left out: {dropped['same']} with the same machine code, {dropped['broken']} that do not compile; "
        f"{time.monotonic() - started:.0f} s"
    )
    return 0 if caught >= GOAL * counted else 1


if __name__ == "__main__":
    sys.exit(main())
