"""The loop's side of the model process. Imports no torch: the server must answer within milliseconds."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from attrs import frozen

from dice_lsp.config import Settings
from dice_lsp.process import ChildDied, ChildError, FramedChild, Limits, Readiness, module_command
from dice_lsp.records import Candidate, DecodeSettings, DecodeStats, FillRequest, from_wire, to_wire

GRACE_S = 15.0
"""Time to end a cancelled call. A step ends in a fraction of a second; reading a checkpoint cannot be interrupted."""

CHECKPOINT_DEFAULTS = DecodeSettings()


class FillUnavailable(Exception):
    """No fill can be had; the message is one sentence with the next step."""


@frozen
class ModelInfo:
    """What is loaded, and where."""

    checkpoint: str
    layout: str
    device: str
    """`cpu`, `cuda:0`, ..."""
    precision: str
    """`fp32`, `bf16`, `int8` or `int4`."""
    parameters: int
    message: str
    """Something to tell the user once, e.g. why the CPU is used; mostly empty."""


@frozen
class DecodeProgress:
    """How far a fill is."""

    done: int
    """Candidates that are whole and differ."""
    total: int
    tokens: int
    """Tokens of the first candidate so far."""
    text: str
    """The first candidate as far as it is known; empty where only the counts changed."""


OnCandidate = Callable[[Candidate], None]
OnProgress = Callable[[DecodeProgress], None]


class DiffusionClient:
    """Asks the model process for candidates. The process starts at first use and again after its death."""

    def __init__(self, settings: Settings, argv: Sequence[str] | None = None) -> None:
        """`argv` replaces the process, for tests."""
        self.settings = settings
        command = list(argv or module_command("dice_lsp.diffusion"))
        # A step of the network uses every core; the server's answers come before it.
        self._child = FramedChild(command, name="model process", limits=Limits(niceness=5), grace_s=GRACE_S)
        self._child.on_exit = self._ended
        self._info: ModelInfo | None = None
        self._readiness = Readiness()
        self.on_readiness: Callable[[], None] | None = None
        """Called on the loop whenever `readiness` changes."""
        self._loading: asyncio.Task[ModelInfo] | None = None
        # One fill at a time: the child would queue them, and a cancelled one must not hold up its successor's events.
        self._turn = asyncio.Lock()

    @property
    def pid(self) -> int | None:
        return self._child.pid

    def info(self) -> ModelInfo | None:
        """What is loaded, or None before the first load."""
        return self._info

    @property
    def readiness(self) -> Readiness:
        """Whether a fill would find the checkpoint loaded; after a failure, why not."""
        return self._readiness

    async def start(self) -> ModelInfo:
        """Start the process and load the checkpoint, so that the first fill finds both warm. Raises `FillUnavailable`.

        Reading a checkpoint cannot be interrupted and may take minutes. Who waits for it may be cancelled; the load
        goes on, for whoever comes next.
        """
        loading = self._loading
        if loading is None or loading.done():
            loading = self._loading = asyncio.create_task(self._load(), name="load the checkpoint")
            loading.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(loading)

    async def close(self) -> None:
        """End the process."""
        if self._loading is not None:
            self._loading.cancel()
        await self._child.close()
        self._become("off")

    async def fill(
        self,
        request: FillRequest,
        decode: DecodeSettings = CHECKPOINT_DEFAULTS,
        on_candidate: OnCandidate | None = None,
        on_progress: OnProgress | None = None,
    ) -> tuple[tuple[Candidate, ...], DecodeStats]:
        """Candidates for a region, all different, the greedy one first; fewer than asked for when the model has no more.

        `on_candidate` gets each as soon as it is whole. Cancelling the call ends the fill between two passes of the
        network and leaves the process running. Raises `FillUnavailable`.
        """

        def on_event(event: str, data: Any) -> None:
            if event == "candidate" and on_candidate is not None:
                on_candidate(from_wire(data, Candidate))
            elif event == "progress" and on_progress is not None:
                on_progress(DecodeProgress(**data))
            elif event == "loaded":
                self._remember(data)

        params = {**self._model(), "request": to_wire(request), "decode": to_wire(decode)}
        async with self._turn:
            if self._child.pid is None or self._readiness.state != "ready":
                await self.start()
            answer = await self._call("fill", params, on_event)
        candidates = tuple(from_wire(item, Candidate) for item in answer["candidates"])
        return candidates, from_wire(answer["stats"], DecodeStats)

    def _model(self) -> dict[str, Any]:
        settings = self.settings
        return {
            "model": settings.model,
            "device": settings.model_device,
            "precision": settings.model_precision,
            "template": settings.prompt_template,
        }

    async def _load(self) -> ModelInfo:
        self._become("loading")
        return self._remember(await self._call("load", self._model(), None))

    def _remember(self, answer: dict[str, Any]) -> ModelInfo:
        self._info = ModelInfo(**{name: answer[name] for name in ModelInfo.__annotations__})
        self._become("ready", self._info.message)
        return self._info

    def _become(self, state: str, reason: str = "") -> None:
        before, self._readiness = self._readiness, Readiness(state, reason)
        if before != self._readiness and self.on_readiness is not None:
            self.on_readiness()

    def _ended(self, how: str) -> None:
        self._become("failed", f"{how}; the next fill starts it again, or run `dice-lsp doctor`")

    async def _call(self, op: str, params: Any, on_event: Callable[[str, Any], None] | None) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = await self._child.call(op, params, on_event=on_event)
        except ChildDied as death:
            reason = f"{death}: run `dice-lsp doctor`, or choose a smaller checkpoint"
            self._become("failed", reason)
            raise FillUnavailable(reason) from death
        except ChildError as error:
            if op == "load":
                self._become("failed", f"the checkpoint could not be loaded: {error}; run `dice-lsp doctor`")
            raise FillUnavailable(f"the model process could not do it: {error}") from error
        if "refused" in answer:
            if op == "load":
                self._become("failed", answer["refused"])
            raise FillUnavailable(answer["refused"])
        return answer
