"""The language server, wired: one file per feature, and this one puts them together."""

import gc
import logging
import os
import sys
from collections.abc import Callable
from typing import NoReturn

from dice_lsp.config import Settings
from dice_lsp.pipeline import Engine
from dice_lsp.server import baselines, capturing, commands, diagnostics, lifecycle, on_save, sanitizing, status
from dice_lsp.server.session import DiceServer, EngineLike


def build(settings: Settings | None = None, make_engine: Callable[[Settings], EngineLike] = Engine) -> DiceServer:
    """A server with every feature; some are registered only once the client has said what it can show."""
    server = DiceServer(settings or Settings(), make_engine)
    status.register(server)
    lifecycle.register(server)
    on_save.register(server)
    commands.register(server)
    baselines.register(server)
    capturing.register(server)
    diagnostics.register(server)
    sanitizing.register(server)
    return server


def serve_stdio(settings: Settings | None = None, make_engine: Callable[[Settings], EngineLike] = Engine) -> NoReturn:
    """Serve stdin and stdout until the client ends it. `settings` are the user's own defaults.

    `DICE_LSP_LOG` names a log level; the log goes to stderr.
    """
    level = os.environ.get("DICE_LSP_LOG", "WARNING").upper()
    logging.basicConfig(
        stream=sys.stderr,
        level=level if level in logging.getLevelNamesMapping() else "WARNING",
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    # pygls formats every message that it sends for its own log, and logs each refusal as an error of ours.
    logging.getLogger("pygls").setLevel(logging.CRITICAL)
    # The reading thread gives way to the loop after a millisecond, and the collector, which holds every thread up, runs
    # rarely: what is read from a text is large and free of cycles.
    sys.setswitchinterval(0.001)
    gc.freeze()
    gc.set_threshold(200_000, 20, 100)
    build(settings, make_engine).serve_stdio()
