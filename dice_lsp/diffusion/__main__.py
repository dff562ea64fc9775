"""The model process: keeps one checkpoint in memory and fills regions with it. Started by `client.DiffusionClient`.

Operations: `hello`; `load` {model, device, precision}; `fill` {model, device, precision, template, request, decode}. Events of a
fill: `loaded`, `candidate`, `progress`. What a user can mend is answered as `{"refused": sentence}`.
"""

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

# Before anything imports a library of the hub: only `dice-lsp model pull` uses the network.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# Threads that wait by spinning cost a factor of 20 when the worker compiles on the same few cores.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import math

from attrs import evolve, frozen

from dice_lsp.diffusion import registry
from dice_lsp.diffusion.checkpoint import CheckpointError, Loaded, first_line, load
from dice_lsp.diffusion.place import Place, choose_place, rows_that_fit
from dice_lsp.lease import InUse, Lease
from dice_lsp.process import Job, serve
from dice_lsp.records import Candidate, DecodeSettings, DecodeStats, FillRequest, from_wire, to_wire

if TYPE_CHECKING:
    from dice_lsp.diffusion.rows import RowNetwork
    from dice_lsp.diffusion.slots import PromptCache

MAX_THREADS = 8
ROWS_OF_A_BUDGET = 8
EVENTS_PER_S = 10.0
SAMPLING_BOUND = 2
"""Candidates sampled per candidate asked for, at most: many come out the same."""

LEASE_WAIT_S = 180.0
"""How long a fill waits for a GPU that others use; a kernel that hangs may be ended only after some tens of seconds."""
PURPOSE = "a fill"
IDLE_PAUSE_S = 0.05


@frozen
class _Resident:
    key: tuple[str, str, str]
    loaded: Loaded
    device: str
    message: str
    network: "RowNetwork"
    """The loaded network, in its fast form where there is one."""
    prompt_cache: "PromptCache"
    """What the last fill read of its prompt: the next one of the same document mostly begins alike."""
    cold: list[int]
    """Numbers of rows whose kernels are not compiled yet."""


class Models:
    """The operations, and the checkpoint they share."""

    def __init__(self) -> None:
        self._resident: _Resident | None = None

    def hello(self, params: Any, job: Job) -> dict[str, Any]:
        """Say that the process runs, without loading anything."""
        return {"pid": os.getpid()}

    def load(self, params: Any, job: Job) -> dict[str, Any]:
        """Load a checkpoint unless it is loaded already."""
        try:
            return _description(self._get(params))
        except CheckpointError as error:
            return {"refused": str(error)}

    def fill(self, params: Any, job: Job) -> dict[str, Any]:
        """Decode candidates for a region."""
        import torch

        request = from_wire(params["request"], FillRequest)
        decode = from_wire(params["decode"], DecodeSettings)
        try:
            resident = self._get(params)
            job.check()
            job.emit("loaded", _description(resident))
            # A failed pass holds the network by its frames: it can be let go only where the exception is over.
            with contextlib.suppress(torch.OutOfMemoryError):
                answer = self._decode(resident, request, decode, params.get("template"), job)
                if resident.network.refused:
                    job.emit("loaded", _description(resident))
                return answer
            self._resident = None
            del resident
            torch.cuda.empty_cache()
            resident = self._read_on_host(params)
            job.emit("loaded", _description(resident))
            return self._decode(resident, request, decode, params.get("template"), job)
        except (CheckpointError, InUse) as error:
            return {"refused": str(error)}

    def idle(self) -> bool:
        """Prepare what the next fill would wait for: the fast kernels, for one number of rows at a time."""
        resident = self._resident
        if resident is None or not resident.cold:
            return False
        lease = _lease_of(resident.device)
        try:
            with lease.hold(PURPOSE, wait_s=0) if lease is not None else contextlib.nullcontext():
                resident.network.warm(resident.cold.pop())
                _finish(resident.device)
        except InUse:
            # Nobody waits for this.
            time.sleep(IDLE_PAUSE_S)
        except RuntimeError as error:
            # A fill that meets the same goes on without the kernels, or on the CPU, and says so.
            resident.cold.clear()
            logging.getLogger(__name__).warning("the fast kernels were not prepared: %s", first_line(error))
        return bool(resident.cold)

    def _get(self, params: Any) -> _Resident:
        """The checkpoint, read again only when another model, device or precision is asked for."""
        model, device, precision = params["model"], params["device"], params["precision"]
        if self._resident is not None and self._resident.key == (model, device, precision):
            return self._resident
        registry.resolve(model)  # A name that there is not is refused at once: torch takes seconds to load.
        import torch

        # Given up first: two checkpoints may not fit together.
        self._resident = None
        place = choose_place(model, device, precision)
        try:
            return self._read(params, place)
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            return self._read_on_host(params)

    def _read_on_host(self, params: Any) -> _Resident:
        place = choose_place(params["model"], "cpu", "auto")
        message = f"the GPU has too little free memory: {params['model']} runs on the CPU, which is slower"
        return self._read(params, evolve(place, message=message))

    def _read(self, params: Any, place: Place) -> _Resident:
        import torch

        from dice_lsp.diffusion.slots import PromptCache

        model, message = params["model"], place.message
        torch.set_num_threads(min(len(os.sched_getaffinity(0)), MAX_THREADS))
        loaded = load(registry.resolve(model), place.device, model, place.precision)
        network: RowNetwork = loaded.network
        cold: list[int] = []
        if place.device.startswith("cuda"):
            from dice_lsp.diffusion.fast import ROW_BUCKETS, fast_network

            fast = fast_network(loaded.network)
            if isinstance(fast, str):
                slow = f"{model} runs without its fast kernels on {place.device}: {fast}"
                message = f"{message}; {slow}" if message else slow
            else:
                network = fast
                cold = list(reversed(ROW_BUCKETS))
        key = (model, params["device"], params["precision"])
        self._resident = _Resident(key, loaded, place.device, message, network, PromptCache(network), cold)
        return self._resident

    def _decode(
        self, resident: _Resident, request: FillRequest, decode: DecodeSettings, template: str | None, job: Job
    ) -> dict[str, Any]:
        with _turn_on(resident.device, job) as check:
            return self._decode_in_turn(resident, request, decode, template, job, check)

    def _decode_in_turn(
        self,
        resident: _Resident,
        request: FillRequest,
        decode: DecodeSettings,
        template: str | None,
        job: Job,
        check: Callable[[], None],
    ) -> dict[str, Any]:
        from dice_lsp.diffusion.decode import Decoded, Decoding, End, Schedule
        from dice_lsp.diffusion.prompt import layout_for

        started = time.monotonic()
        loaded, info = resident.loaded, resident.loaded.info
        layout = layout_for(info, loaded.tokenizer, template)
        try:
            schedule = Schedule.of(info.settings(decode))
        except ValueError as error:
            raise CheckpointError(str(error)) from error
        budget = info.max_tokens - schedule.max_new_tokens - 2 * schedule.block_size
        if budget < 1:
            raise CheckpointError(
                f"{schedule.max_new_tokens} new tokens leave no room for a prompt: {info.name} has {info.max_tokens} positions"
            )
        prompt = layout.prompt(request, budget)
        deadline = None if request.budget_s is None else started + request.budget_s
        wanted = request.candidates if schedule.temperature > 0 else 1
        # Those of a time budget come one after another: nobody knows how many there will be.
        together = wanted if deadline is None else min(wanted, ROWS_OF_A_BUDGET)
        network = resident.network
        longest = schedule.max_new_tokens + 2 * schedule.block_size
        rows = rows_that_fit(network.config, network.dtype.itemsize, together, len(prompt), longest, resident.device)
        decoding = Decoding(
            network,
            prompt,
            schedule,
            stop_ids=info.stop_ids,
            rows=rows,
            seed=request.seed,
            reached_suffix=layout.reached_suffix(request),
            check=check,
            prompt_cache=resident.prompt_cache,
        )
        found: dict[str, Candidate] = {}
        cut_short: list[Candidate] = []
        last_event = 0.0

        def on_decoded(decoded: Decoded) -> bool:
            text = layout.middle(request, decoded.tokens)
            candidate = Candidate(text, _mean_logprob(decoded), len(decoded.tokens), decoded.forwards)
            if decoded.end is End.LENGTH:
                cut_short.append(candidate)
            elif text.strip() and text not in found:
                found[text] = candidate
                job.emit("candidate", to_wire(candidate))
                job.emit("progress", {"done": len(found), "total": wanted, "tokens": len(decoded.tokens), "text": ""})
            return len(found) >= wanted

        def on_partial(candidates: tuple[int, ...], tokens: list[int]) -> None:
            nonlocal last_event
            now = time.monotonic()
            if first in candidates and now - last_event >= 1 / EVENTS_PER_S:
                last_event = now
                text = layout.middle(request, tokens)
                job.emit("progress", {"done": len(found), "total": wanted, "tokens": len(tokens), "text": text})

        first = 0
        while (
            len(found) < wanted
            and first < SAMPLING_BOUND * wanted
            and (deadline is None or time.monotonic() < deadline)
        ):
            count = min(wanted, SAMPLING_BOUND * wanted - first)
            if first:
                # Of a later round about half may be new, so twice what is missing is tried at once.
                count = min(count, 2 * (wanted - len(found)))
            decoding.run(range(first, first + count), on_decoded, on_partial, deadline)
            first += count
            if schedule.temperature == 0:
                break
        resident.prompt_cache.give_up_if_large()
        if not found and not cut_short and deadline is not None and time.monotonic() >= deadline:
            raise CheckpointError(
                f"no candidate was whole within {request.budget_s:g} s: raise dice.fillBudgetS, or select less"
            )
        if not found and cut_short:
            # Not whole, but the user sees at least what the model was about to write.
            found[cut_short[0].text] = cut_short[0]
            job.emit("candidate", to_wire(cut_short[0]))
        stats = DecodeStats(
            elapsed_ms=(time.monotonic() - started) * 1e3,
            forwards=decoding.forwards,
            tokens=decoding.tokens,
            checkpoint=info.name,
            device=resident.device,
        )
        return {"candidates": [to_wire(candidate) for candidate in found.values()], "stats": to_wire(stats)}


@contextlib.contextmanager
def _turn_on(device: str, job: Job) -> Iterator[Callable[[], None]]:
    """Hold the model's GPU while a fill is decoded, and give what to call between its passes.

    That ends a cancelled fill, and lets whoever waits to time a kernel there have the GPU first. Raises `InUse`.
    """
    lease = _lease_of(device)
    if lease is None:
        yield job.check
        return

    def check() -> None:
        job.check()
        lease.give_way(PURPOSE, wait_s=LEASE_WAIT_S, before=lambda: _finish(device), check=job.check)

    with lease.hold(PURPOSE, wait_s=LEASE_WAIT_S, check=job.check):
        try:
            yield check
        finally:
            _finish(device)


def _lease_of(device: str) -> Lease | None:
    """The lock of a torch device; None for the CPU, which nobody waits for."""
    if not device.startswith("cuda"):
        return None
    import torch

    # Torch tells it from 2.5 on; a card of no name is nobody else's.
    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    return None if uuid is None else Lease(str(uuid))


def _finish(device: str) -> None:
    """Wait until nothing runs on the device any more, so that it can be let go."""
    import torch

    # What went wrong on a device is told by the pass that it went wrong in.
    with contextlib.suppress(RuntimeError):
        if device.startswith("cuda"):
            torch.cuda.synchronize(device)


def _description(resident: _Resident) -> dict[str, Any]:
    info = resident.loaded.info
    return {
        "checkpoint": info.name,
        "layout": info.layout,
        "device": resident.device,
        "precision": resident.loaded.precision,
        "parameters": resident.loaded.network.config.parameters,
        "message": resident.message or _without_kernels(resident),
    }


def _without_kernels(resident: _Resident) -> str:
    refused = resident.network.refused
    return (
        f"{resident.loaded.info.name} runs without its fast kernels on {resident.device}: {refused}" if refused else ""
    )


def _mean_logprob(decoded: Any) -> float:
    values = [math.log(max(confidence, 1e-30)) for confidence in decoded.confidences]
    return sum(values) / len(values) if values else 0.0


def main() -> None:
    models = Models()
    serve({"hello": models.hello, "load": models.load, "fill": models.fill}, idle=models.idle)


if __name__ == "__main__":
    main()
