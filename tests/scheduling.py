"""Which tests run at once where pytest-xdist runs them in several processes: `--dist loadscope --no-loadscope-reorder`."""

from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

EDITORS = ("tests/vscode/", "tests/nvim/", "tests/clients/")
"""Never two of these at once: each is an editor with a server, a model and compilers, and all share what they install."""


def unit_of(nodeid: str) -> str:
    """What one process runs one after the other: all editors, and else a file, whose tests share sessions."""
    file = nodeid.partition("::")[0]
    return "editors" if file.startswith(EDITORS) else file


class Scheduling(LoadScopeScheduling):
    """pytest-xdist 3.8 runs a test again that ended its process, for ever, and waits for ever for a unit of one test."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)

    def remove_node(self, node: WorkerController) -> str | None:
        workload = self.assigned_work.pop(node)
        left = [(scope, test) for scope, tests in workload.items() for test, done in tests.items() if not done]
        if not left:
            return None
        scope, crashed = left[0]
        workload[scope][crashed] = True
        for scope in dict.fromkeys(scope for scope, _ in reversed(left)):
            if not all(workload[scope].values()):
                self.workqueue[scope] = workload[scope]
                self.workqueue.move_to_end(scope, last=False)
        for other in self.assigned_work:
            self._reschedule(other)
        return crashed

    def _reschedule(self, node: WorkerController) -> None:
        super()._reschedule(node)
        if not self.workqueue and not node.shutting_down:
            # A process begins with a test once it knows what comes after it, be it nothing.
            node.shutdown()
