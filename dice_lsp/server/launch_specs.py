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


class LaunchSpecs:
    """Specs by the key of everything that decides them, see `keys`."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._known: OrderedDict[tuple[str, bool], LaunchSpec] = OrderedDict()

    def known(self, snapshot: Snapshot, kernel: Kernel, *, bare: bool = False) -> LaunchSpec | None:
        """The spec if it was read before; `bare` is without what the kernel's directive says."""
        key = (snapshot.keys.get(kernel.id, ""), bare)
        found = self._known.get(key)
        if found is not None:
            self._known.move_to_end(key)
        return found

    async def of(self, snapshot: Snapshot, kernel: Kernel, *, bare: bool = False) -> LaunchSpec:
        """The spec of a kernel of this text."""
        if bare and kernel.id not in snapshot.directives:
            bare = False
        found = self.known(snapshot, kernel, bare=bare)
        if found is None:
            directive = Directive() if bare else snapshot.directives.get(kernel.id, Directive())
            found = await self._documents.in_thread(read_spec, snapshot, kernel, directive)
            self._known[snapshot.keys.get(kernel.id, ""), bare] = found
            while len(self._known) > KEPT:
                self._known.popitem(last=False)
        return found


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
