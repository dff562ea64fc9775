"""Runs one answer to one of KernelBench's problems, in a process that `kernelbench_child` has confined.

Order matters, because the answer is Python in this very process: what is expected for every trial and how long the
reference takes is known before the answer is loaded, and the functions that compare and time are taken before it too.
Afterwards the timed inputs are overwritten in place and must give the new result, so an answer that remembers the last
one for the same pointers fails.

Rules of the harness (KernelBench, src/kernelbench/eval.py and timing.py): weights and inputs by seed, several
trials, the same tolerance relative and absolute, events around single calls with a cold L2 cache, mean of the times.
"""

import linecache
import os
import random
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import torch
from attrs import frozen
from torch import Tensor

COLD_BYTES = 256 << 20
"""Written before each timed call, so that nothing of its data is in the L2 cache."""
WARM_UPS = 5
HELD_SHARE = 0.25
"""Of the host's free memory, for outputs that are expected. Where they do not fit, fewer trials are made."""


class Failed(Exception):
    """How an answer fails: `stage` (`compile`, `load`, `run`, `wrong`) and one sentence."""

    def __init__(self, stage: str, reason: str) -> None:
        super().__init__(reason)
        self.stage = stage


def seeded(seed: int) -> None:
    """Every generator that a problem may draw from."""
    random.seed(seed)
    torch.manual_seed(seed)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(seed)


def namespace(source: str, name: str) -> dict[str, Any]:
    """A module's names after it has run. Its lines are kept, so that tracebacks show them."""
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    found: dict[str, Any] = {"__name__": name.removesuffix(".py"), "__file__": name}
    # Running what a stranger wrote is what this confined process is for.
    exec(compile(source, name, "exec"), found)
    return found


def on_device(values: Any, device: torch.device) -> list[Any]:
    """Inputs on the device; whatever is no tensor stays as it is."""
    return [value.to(device) if isinstance(value, Tensor) else value for value in values]


class Clock:
    """Times single calls. Its functions are those of torch before an answer could change them."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._event = torch.cuda.Event
        self._synchronize: Callable[[], None] = torch.cuda.synchronize if device.type == "cuda" else lambda: None
        self._cold = torch.empty(COLD_BYTES, dtype=torch.int8, device=device) if device.type == "cuda" else None
        self._zero = Tensor.zero_

    def synchronize(self) -> None:
        self._synchronize()

    def times_ms(self, call: Callable[[], Any], runs: int) -> list[float]:
        """Times of `runs` calls; with no GPU by the processor's clock, for tests only."""
        for _ in range(WARM_UPS):
            call()
        self.synchronize()
        found = []
        for _ in range(runs):
            if self._cold is None:
                began = time.perf_counter()
                call()
                found.append((time.perf_counter() - began) * 1e3)
                continue
            self._zero(self._cold)
            begin, end = self._event(enable_timing=True), self._event(enable_timing=True)  # type: ignore[no-untyped-call]
            self.synchronize()
            begin.record()
            call()
            end.record()
            self.synchronize()
            found.append(float(begin.elapsed_time(end)))
        return found


def compared(got: Any, expected: Tensor, tolerance: float, close: Callable[..., bool], what: str) -> None:
    """Raise `Failed` unless an output agrees with what was expected."""
    if type(got) is not Tensor:
        raise Failed("wrong", f"{what} is a {type(got).__name__} and not a tensor")
    if got.shape != expected.shape:
        raise Failed("wrong", f"{what} has the shape {list(got.shape)} and not {list(expected.shape)}")
    if got.dtype != expected.dtype:
        raise Failed("wrong", f"{what} has the type {got.dtype} and not {expected.dtype}")
    if not close(got.cpu(), expected, rtol=tolerance, atol=tolerance, equal_nan=False):
        difference = (got.cpu().double() - expected.double()).abs().max().item()
        raise Failed("wrong", f"{what} is off by {difference:.3g}, more than {tolerance:g} allows")


@frozen
class Known:
    """What is known of a problem before an answer is loaded."""

    arguments: list[Any]
    make_inputs: Callable[[], Any]
    seeds: list[int]
    """Of the trials, then of the timed inputs, then of those that follow them at the same place."""
    expected: list[Tensor]
    """The reference's output for each seed, on the host."""
    zeros_pass: bool
    reference_ms: list[float]


def known(order: Mapping[str, Any], device: torch.device, clock: Clock) -> Known:
    """Run the reference of a problem for every seed and time it."""
    seed, tolerance = int(order["seed"]), float(order["tolerance"])
    problem = namespace(order["problem"], "problem.py")
    make_inputs = problem["get_inputs"]
    seeded(seed)
    arguments = on_device(problem["get_init_inputs"](), device)
    seeded(seed)
    reference = problem["Model"](*arguments).to(device)
    generator = random.Random(seed)
    seeds = [generator.randrange(1 << 31) for _ in range(int(order["trials"]) + 2)]
    expected: list[Tensor] = []

    def run(inputs: list[Any]) -> None:
        output = reference(*inputs)
        if not isinstance(output, Tensor):
            raise Failed("problem", "its own model gives no tensor, which this harness cannot compare")
        expected.append(output.cpu())

    # In the order in which the answer will be called: a model may carry a state from call to call.
    while len(expected) < len(seeds) - 2:
        seeded(seeds[len(expected)])
        run(on_device(make_inputs(), device))
        held = max(1, int(HELD_SHARE * _free_bytes() / max(1, expected[0].nbytes)) - 2)
        if len(seeds) - 2 > held and len(expected) == 1:
            seeds = seeds[:held] + seeds[-2:]
    seeded(seeds[-2])
    timed_inputs = on_device(make_inputs(), device)
    run(timed_inputs)
    reference_ms = clock.times_ms(lambda: reference(*timed_inputs), int(order["runs"]))
    seeded(seeds[-1])
    run(on_device(make_inputs(), device))
    zeros_pass = all(torch.allclose(torch.zeros_like(item), item, rtol=tolerance, atol=tolerance) for item in expected)
    return Known(arguments, make_inputs, seeds, expected, zeros_pass, reference_ms)


def overwrite_free_memory(like: Tensor, device: torch.device) -> None:
    """Fill what the allocator hands out next for such an output, so that an output that is never written is no old result."""
    filler = torch.finfo(like.dtype).max if like.dtype.is_floating_point else 77
    if device.type == "cuda" and 8 * like.nbytes > torch.cuda.mem_get_info(device)[0]:
        return
    held = [torch.full(like.shape, filler, dtype=like.dtype, device=device) for _ in range(4)]
    del held


@torch.no_grad()
def judge(order: Mapping[str, Any]) -> dict[str, Any]:
    """Run one answer against its problem and say how it ended. Raises `Failed`."""
    device = torch.device(order["device"])
    tolerance, seed = float(order["tolerance"]), int(order["seed"])
    close, equal, clock = torch.allclose, torch.equal, Clock(device)
    facts = known(order, device, clock)
    seeds, expected = facts.seeds, facts.expected
    try:
        model_class = namespace(order["answer"], "answer.py").get("ModelNew")
        clock.synchronize()
    except BaseException as error:
        raise Failed("compile", _last_line(error)) from error
    if model_class is None:
        raise Failed("compile", "it defines no ModelNew")
    try:
        seeded(seed)
        model = model_class(*facts.arguments).to(device)
        clock.synchronize()
    except BaseException as error:
        raise Failed("load", _last_line(error)) from error

    def run(inputs: list[Any], what: str) -> Any:
        try:
            got = model(*inputs)
            clock.synchronize()
            return got
        except BaseException as error:
            raise Failed("run", f"{what}: {_last_line(error)}") from error

    for number, trial in enumerate(seeds[:-2]):
        seeded(trial)
        inputs = on_device(facts.make_inputs(), device)
        overwrite_free_memory(expected[number], device)
        before = [value.clone() if isinstance(value, Tensor) else value for value in inputs]
        compared(
            run(inputs, f"trial {number + 1}"), expected[number], tolerance, close, f"the output of trial {number + 1}"
        )
        for place, (value, kept) in enumerate(zip(inputs, before, strict=True)):
            if isinstance(value, Tensor) and not equal(value, kept):
                raise Failed("wrong", f"it changes its input {place}")
    seeded(seeds[-2])
    timed_inputs = on_device(facts.make_inputs(), device)
    compared(run(timed_inputs, "the timed inputs"), expected[-2], tolerance, close, "the output for the timed inputs")
    try:
        answer_ms = clock.times_ms(lambda: model(*timed_inputs), int(order["runs"]))
    except BaseException as error:
        raise Failed("run", f"while it was timed: {_last_line(error)}") from error
    seeded(seeds[-1])
    for value, fresh in zip(timed_inputs, on_device(facts.make_inputs(), device), strict=True):
        if isinstance(value, Tensor):
            value.copy_(fresh)
    again = run(timed_inputs, "after the timing")
    compared(again, expected[-1], tolerance, close, "the output for new values at the same place")
    return {
        "stage": "right",
        "reason": "",
        "trials": len(seeds) - 2,
        "reference_ms": facts.reference_ms,
        "answer_ms": answer_ms,
        "zeros_pass": facts.zeros_pass,
        "timed": device.type == "cuda",
    }


def ended(order: Mapping[str, Any]) -> dict[str, Any]:
    """How an answer ended, whatever happened: `{"stage": .., "reason": ..}` and for a right one its times."""
    try:
        return judge(order)
    except Failed as failure:
        return {"stage": failure.stage, "reason": str(failure)}
    except BaseException as error:
        return {"stage": "problem", "reason": _last_line(error)}


def _free_bytes() -> int:
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _last_line(error: BaseException) -> str:
    text = "".join(traceback.format_exception_only(error)).strip()
    # Of a compiler's output the first line with an error says most.
    lines = text.splitlines() or [type(error).__name__]
    return next((line for line in lines if " error" in line or "error:" in line), lines[0])[:400]
