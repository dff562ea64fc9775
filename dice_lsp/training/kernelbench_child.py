"""Starts `kernelbench_trial` in confinement: before torch is loaded and its threads begin, which would stay free.

Reads one JSON object from standard input and writes one to what was standard output.
"""

import json
import os
import sys

from dice_lsp.worker.confine import Confinement, asked_level, python_program_policy


def main() -> None:
    """Confine this process for good, then run the answer that standard input brings."""
    order = json.load(sys.stdin)
    # The answer may print; the result has a descriptor of its own.
    result = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    with Confinement(python_program_policy((), (os.getcwd(),)), asked_level()) as confinement:
        confinement.enter()
    from dice_lsp.training.kernelbench_trial import ended

    result.write(json.dumps(ended(order)) + "\n")
    result.flush()
    # Threads and handlers of the answer have no say any more.
    os._exit(0)


if __name__ == "__main__":
    main()
