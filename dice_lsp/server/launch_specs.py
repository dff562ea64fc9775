"""The launch specs of open documents for those who explain them, read beside the loop and kept while they hold.

A check reads its own: what it says about a kernel is of the text that was checked.
"""

from collections import OrderedDict

from dice_lsp.records import Kernel, LaunchSpec
from dice_lsp.server.documents import Documents, Snapshot
from dice_lsp.source.directives import Directive
from dice_lsp.source.launches import launch_spec
from dice_lsp.source.python_calls import calls_of

KEPT = 512
Key = tuple[str, str, bool, int, int]


class LaunchSpecs:
    """Specs by the texts that decide them."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._known: OrderedDict[Key, LaunchSpec] = OrderedDict()

    def known(self, snapshot: Snapshot, kernel: Kernel, *, bare: bool = False) -> LaunchSpec | None:
        """The spec if it was read before; `bare` is without what the kernel's directive says."""
        key = spec_key(snapshot, kernel, bare=bare)
        found = self._known.get(key)
        if found is not None:
            self._known.move_to_end(key)
        return found

    async def of(self, snapshot: Snapshot, kernel: Kernel, *, bare: bool = False) -> LaunchSpec:
        """The spec of a kernel of this text."""
        found = self.known(snapshot, kernel, bare=bare)
        if found is None:
            directive = Directive() if bare else snapshot.directives.get(kernel.id, Directive())
            found = await self._documents.in_thread(read_spec, snapshot, kernel, directive)
            self._known[spec_key(snapshot, kernel, bare=bare)] = found
            while len(self._known) > KEPT:
                self._known.popitem(last=False)
        return found


def spec_key(snapshot: Snapshot, kernel: Kernel, *, bare: bool) -> Key:
    """Equal where the spec is: for the same text, `bare` without the kernel's directives, and the same project."""
    text, directive = snapshot.model.text, snapshot.directives.get(kernel.id)
    if bare and directive is not None:
        ends = [0, *(at for comment in directive.comments for at in comment), len(text)]
        text = "".join(text[start:end] for start, end in zip(ends[::2], ends[1::2], strict=True))
    generation = 0 if snapshot.project is None else snapshot.project.generation
    # A text remembers its hash, and a digest of a long one at each look would hold the loop up.
    return (snapshot.document.uri, kernel.id, bare, hash(text), generation)


def read_spec(snapshot: Snapshot, kernel: Kernel, directive: Directive) -> LaunchSpec:
    """The launch spec of a kernel with this directive in the place of its own."""
    calls = calls_of(snapshot.document)
    return launch_spec(
        snapshot.model.text,
        kernel,
        snapshot.model,
        directive=directive,
        calls=calls,
        project=snapshot.project,
        path=snapshot.path,
    )
