"""What a client shows in its status bar: whether the model and the judge are there, and what runs.

It is derived each time from the children and the jobs, never counted along, so that nothing stays "filling" after a
child has died. What is asked for is answered with the same object as what is told.
"""

from typing import Any

from dice_lsp.pipeline import EngineStatus
from dice_lsp.server.session import DiceServer

METHOD = "dice/status"


def register(server: DiceServer) -> None:
    told: dict[str, Any] = {}

    def tell() -> None:
        nonlocal told
        status = status_of(server)
        if status != told and server.initialized:
            told = status
            server.tell(METHOD, status)

    server.on_status = tell

    @server.feature(METHOD)
    def status(params: Any = None) -> dict[str, Any]:
        return status_of(server)


def status_of(server: DiceServer) -> dict[str, Any]:
    """The parameters of `dice/status`."""
    engine = server.engine.status
    model, judge = engine.model_readiness, engine.judge_readiness
    fills, checks = len(server.filling), sum(len(kernels) for kernels in server.checking.values())
    state = _state(server, engine, fills, checks)
    return {
        "state": state,
        "fills": fills,
        "checks": checks,
        "model": {"name": engine.model, "state": model.state, "device": engine.model_device, "reason": model.reason},
        "judge": {
            "state": judge.state,
            "device": engine.device,
            "driver": engine.driver,
            "compiler": engine.compiler,
            "reason": judge.reason,
        },
        "message": _message(state, engine),
    }


def _state(server: DiceServer, engine: EngineStatus, fills: int, checks: int) -> str:
    states = {engine.model_readiness.state, engine.judge_readiness.state}
    if fills:
        return "filling"
    if checks:
        return "checking"
    if "loading" in states or not server.ready.is_set():
        return "starting"
    return "failed" if "failed" in states else "idle"


def _message(state: str, engine: EngineStatus) -> str:
    """One sentence for a person."""
    model, judge = engine.model_readiness, engine.judge_readiness
    if "failed" in (model.state, judge.state):
        return "; ".join(each.reason for each in (model, judge) if each.state == "failed")
    if state == "filling":
        return f"{engine.model} is being loaded" if model.state == "loading" else f"{engine.model} fills"
    if state == "checking":
        return "kernels are being checked"
    if state == "starting":
        what = engine.model if model.state == "loading" else "the judge"
        return f"{what} is being loaded"
    where = "this machine's processor" if engine.device == "host" else engine.device
    return f"{engine.model} is ready" + (f", kernels run on {where}" if where else "")
