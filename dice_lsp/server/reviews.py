"""Second thoughts about directives: what `source.directive_review` says, a moment after the typing has stopped.

They take several launch specs each, so they are read kernel by kernel on the reading thread, and shown until those of a
newer text are there, as long as the comments have the same words.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from attrs import evolve

from dice_lsp.records import Fix, Kernel, LaunchSpec, Problem
from dice_lsp.server.documents import Documents, Snapshot
from dice_lsp.server.launch_specs import LaunchSpecs, read_spec, spec_key
from dice_lsp.source.directive_review import may_be_needless, needless, review
from dice_lsp.source.directives import Clause, Directive, parse_directives

QUIET_S = 0.3
"""How long a text must stand still."""
KEPT = 512
Key = tuple[object, ...]


class Reviews:
    """`on_news(uri)` is called when there is more to say about a document than before."""

    def __init__(self, documents: Documents, specs: LaunchSpecs) -> None:
        self._documents, self._specs = documents, specs
        self._known: OrderedDict[Key, tuple[object, tuple[Problem, ...]]] = OrderedDict()
        """Comments of a kernel -> the text that they were looked at in, and problems at offsets from the first comment."""
        self._running: dict[str, asyncio.Task[None]] = {}
        self.on_news: Callable[[str], None] = lambda uri: None

    def of(self, snapshot: Snapshot) -> tuple[Problem, ...]:
        """What is known about the directives of this text so far: of the same words, as long as nothing newer is known."""
        found: list[Problem] = []
        for name, directive in snapshot.directives.items():
            _, known = self._known.get(_key(snapshot, name, directive), (None, ()))
            found += [_moved(problem, directive.comments[0][0]) for problem in known]
        return tuple(dict.fromkeys(found))

    def follow(self, snapshot: Snapshot) -> None:
        """Look at the directives of this text once it stands still."""
        uri = snapshot.document.uri
        self.forget(uri)
        names = list(snapshot.directives)
        if names:
            task = asyncio.get_running_loop().create_task(self._read(snapshot, names), name=f"review {uri}")
            self._running[uri] = task
            task.add_done_callback(
                lambda done: self._running.pop(uri, None) if self._running.get(uri) is done else None
            )

    def forget(self, uri: str) -> None:
        """Stop looking at a document."""
        task = self._running.pop(uri, None)
        if task is not None:
            task.cancel()

    async def _read(self, snapshot: Snapshot, names: list[str]) -> None:
        await asyncio.sleep(QUIET_S)
        for name in names:
            kernel = snapshot.kernel(name)
            if kernel is None or not self._documents.is_current(snapshot):
                return
            directive = snapshot.directives[name]
            key, text = _key(snapshot, name, directive), spec_key(snapshot, kernel, bare=False)
            if self._known.get(key, (None, ()))[0] == text:
                continue
            given = await self._specs.of(snapshot, kernel)
            bare = await self._specs.of(snapshot, kernel, bare=True)
            in_thread = self._documents.in_thread
            problems = list(await in_thread(review, snapshot.model, kernel, directive, given, bare))
            # One at a time, so that a text which changes meanwhile is read in between.
            for clause in may_be_needless(directive):
                if not self._documents.is_current(snapshot):
                    return
                hint = await in_thread(_needless, snapshot, kernel, directive, clause, given)
                problems += [] if hint is None else [hint]
            self._known[key] = text, tuple(_moved(problem, -directive.comments[0][0]) for problem in problems)
            self._known.move_to_end(key)
            while len(self._known) > KEPT:
                self._known.popitem(last=False)
        self.on_news(snapshot.document.uri)


def _needless(
    snapshot: Snapshot, kernel: Kernel, directive: Directive, clause: Clause, given: LaunchSpec
) -> Problem | None:
    rest = parse_directives(snapshot.model.text, kernel, without=(clause.start,))
    return needless(snapshot.model, kernel, directive, clause, given, read_spec(snapshot, kernel, rest))


def _key(snapshot: Snapshot, name: str, directive: Directive) -> Key:
    """The words of a kernel's comments, and how the comments lie to each other."""
    first, text = directive.comments[0][0], snapshot.document.text
    comments = ((start - first, text[start:end]) for start, end in directive.comments)
    return (snapshot.document.uri, name, *comments)


def _moved(problem: Problem, by: int) -> Problem:
    fixes = tuple(
        Fix(fix.title, tuple((start + by, end + by, text) for start, end, text in fix.edits)) for fix in problem.fixes
    )
    return evolve(problem, start=problem.start + by, end=problem.end + by, fixes=fixes)
