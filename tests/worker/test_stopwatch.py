"""The stopwatch on a card made of paper: what it cancels, what it still finds, and which outputs it hands back.

The card keeps memory and a clock, and has the faults of real ones: places of buffers and of code, what ran before, a
drift. The stopwatch's own code runs on it, unchanged but for the driver's functions.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dice_lsp import process
from dice_lsp.records import Ambiguous, Faster, Same, Slower
from dice_lsp.worker import stopwatch
from dice_lsp.worker.benchmark import compare, net
from dice_lsp.worker.gpu_driver import DriverError, Function
from dice_lsp.worker.stopwatch import OUTPUT_POISON, Run, Stopwatch, block_halves, plan_samples

ELEMENTS = 1024
NBYTES = 4 * ELEMENTS
L2_BYTES = 4 * NBYTES


class PaperCard:
    """A device whose kernels take `duration(program, arguments, before)` microseconds and do `work(program, arguments)`."""

    bus_id = "none"

    def __init__(self, duration: Callable[..., float], work: Callable[..., None] | None = None) -> None:
        self.memory = np.zeros(64 << 20, np.uint8)
        self.arena = np.zeros(32 << 20, np.uint8)
        self.duration, self.work = duration, work or self.add
        self.top, self.now_us, self.before = 256, 0.0, "nothing"
        self.rng = np.random.default_rng(0)
        self.capturing: list[Callable[[], None]] | None = None
        self.loaded: list[str] = []
        self.replayed: list[list[tuple[str, int, int]]] = []
        """Of every replay of a graph, its launches: program, load, address of the output."""
        self.flushes = 0
        self.live: set[int] = set()
        self.driver = self
        self.stream = 1

    # What a `Card` and its `Driver` do

    def attribute(self, name: str) -> int:
        return {"L2_CACHE_SIZE": L2_BYTES}[name]

    def cubin(self, program: Any) -> bytes:
        return program["cubin"]

    def load(self, cubin: bytes, symbol: str, smem_bytes: int) -> Function:
        if cubin == b"foreign":
            raise DriverError(209, "load")
        self.loaded.append(symbol)
        return Function(None, len(self.loaded), cubin, symbol)

    def allocate(self, nbytes: int) -> int:
        address, self.top = self.top, self.top + -(-nbytes // 256) * 256
        self.live.add(address)
        return address

    def free(self, address: int) -> None:
        self.live.remove(address)

    def upload(self, address: int, data: np.ndarray) -> None:
        self.memory[address : address + data.nbytes] = data

    def download(self, data: np.ndarray, address: int) -> None:
        data[:] = self.memory[address : address + data.nbytes]

    def launch(self, function: Function, grid: Any, block: Any, smem_bytes: int, arguments: Any) -> None:
        self.queue(lambda: self.execute(function, arguments), (function.symbol, function.kernel, arguments[-1]))

    # The machine

    def floats(self, address: int) -> np.ndarray:
        return self.memory[address : address + NBYTES].view(np.float32)

    def add(self, program: str, arguments: list[int]) -> None:
        x, z = arguments[-2:]
        self.floats(z)[:] = 2 * self.floats(x)

    def execute(self, function: Function, arguments: Any) -> None:
        name = f"{function.symbol}{function.kernel}"
        self.now_us += self.duration(function.symbol, function.kernel, arguments, self.before, self.now_us)
        self.before = name
        self.work(function.symbol, arguments)

    def queue(self, action: Callable[[], None], label: Any = None) -> None:
        if self.capturing is None:
            action()
        else:
            self.capturing.append((action, label))  # type: ignore[arg-type]

    # The driver's functions

    def functions(self) -> SimpleNamespace:
        def ok(*values: Any) -> tuple[Any, ...]:
            return (0, *values)

        def begin(*_: Any) -> tuple[Any, ...]:
            self.capturing = []
            return ok()

        def end(*_: Any) -> tuple[Any, ...]:
            graph, self.capturing = self.capturing, None
            return ok(graph)

        def replay(graph: Any, stream: int) -> tuple[Any, ...]:
            self.replayed.append([label for _, label in graph if label is not None])
            for action, _ in graph:
                action()
            return ok()

        def record(event: Any, stream: int) -> tuple[Any, ...]:
            self.now_us += 1.1
            event[0] = self.now_us
            return ok()

        def fill(address: int, value: int, nbytes: int, stream: int) -> tuple[Any, ...]:
            self.memory[address : address + nbytes] = value & 255
            self.flushes += nbytes == 2 * L2_BYTES
            self.before = "memset"
            return ok()

        def copy(to: int, source: int, nbytes: int, stream: int) -> tuple[Any, ...]:
            self.memory[to : to + nbytes] = self.memory[source : source + nbytes]
            return ok()

        def empty() -> None:
            self.now_us += 0.5
            self.before = "empty"

        return SimpleNamespace(
            CUresult=SimpleNamespace(CUDA_ERROR_NOT_READY=600),
            CUstreamCaptureMode=SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED=2),
            cuMemGetInfo=lambda: ok(64 << 20, 64 << 20),
            cuModuleLoadData=lambda image: ok("module"),
            cuModuleGetFunction=lambda module, name: ok("empty"),
            cuLaunchKernel=lambda *_: (self.queue(empty), ok())[1],
            cuCtxSynchronize=ok,
            cuStreamQuery=lambda stream: ok(),
            cuStreamBeginCapture=begin,
            cuStreamEndCapture=end,
            cuGraphInstantiate=lambda graph, flags: ok(graph),
            cuGraphDestroy=lambda graph: ok(),
            cuGraphUpload=lambda graph, stream: ok(),
            cuGraphExecDestroy=lambda graph: ok(),
            cuGraphLaunch=replay,
            cuEventCreate=lambda flags: ok([0.0]),
            cuEventRecord=record,
            cuEventDestroy=lambda event: ok(),
            cuEventElapsedTime=lambda start, end: ok((end[0] - start[0]) / 1000),
            cuMemsetD8Async=fill,
            cuMemcpyDtoDAsync=copy,
        )  # fmt: skip


@pytest.fixture(autouse=True)
def no_nvml(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    class Silent:
        def __init__(self, bus_id: str) -> None: ...

        def busy_reason(self, idle_s: float) -> None: ...

        def busy_since_start(self) -> None: ...

        def reading(self) -> dict[str, Any]:
            return {"clock_mhz": 1980.0, "throttle": 0}

    monkeypatch.setattr(stopwatch, "Monitor", Silent)
    yield


def order(names: list[str], role: str = "out", **more: Any) -> dict[str, Any]:
    sizes = {"x": NBYTES, "z": NBYTES}
    return {
        "programs": [{"cubin": name.encode(), "symbol": name} for name in names],
        "grid": (4, 1, 1), "block": (256, 1, 1), "smem_bytes": 0, "seeds": 2,
        "arguments": [
            {"data": [b"\1\0\0\0".hex()] * 2},
            {"name": "x", "role": "in", "nbytes": sizes["x"], "offsets": [0, NBYTES]},
            {"name": "z", "role": role, "nbytes": sizes["z"], "offsets": [2 * NBYTES, 3 * NBYTES] if role == "io" else []},
        ],
        "checked_programs": 1, "cold": True, "hot": False, "peak_bytes_per_us": 1000.0, "l2_factor": 5,
        "most_sets": 2048, "most_launches": 2048, "target_us": 1000.0, "least_samples": 20, "most_samples": 60,
        "budget_s": 1.0, "most_budget_s": 10.0, "deadline_s": 10.0, "outputs_offset": 4 * NBYTES, "arena_bytes": 32 << 20,
        **more,
    }  # fmt: skip


def measure(monkeypatch: pytest.MonkeyPatch, card: PaperCard, params: dict[str, Any]) -> Any:
    functions = card.functions()
    monkeypatch.setattr(stopwatch, "cu", functions)
    rng = np.random.default_rng(5)
    inputs = rng.standard_normal(4 * ELEMENTS).astype(np.float32)
    card.arena[: 4 * NBYTES] = inputs.view(np.uint8)
    answer = Stopwatch(card, params, process.Job(1, lambda message: None)).measure(0.0)  # type: ignore[arg-type]
    assert not card.live, "memory was not given back"
    return answer


def verdict(answer: Any) -> Any:
    own, rival = (net(column, answer["overhead_us"], answer["launches"]) for column in answer["samples_us"])
    return compare(own, rival, floor_us=0.5)


def noisy(
    base: dict[str, float], bias: Callable[..., float] = lambda *_: 0.0, noise: float = 0.002
) -> Callable[..., float]:
    rng = np.random.default_rng(1)

    def duration(symbol: str, load: int, arguments: list[int], before: str, now_us: float) -> float:
        factor = 1 + bias(symbol, load, arguments, before, now_us)
        return base[symbol] * factor * (1 + noise * rng.standard_normal())

    return duration


# Plans


@pytest.mark.parametrize("short", [False, True])
def test_in_a_block_each_program_meets_each_place_and_each_neighbour_equally_often(short: bool) -> None:
    halves = block_halves(2, short)
    runs = [run for half in halves for run in half]
    assert Counter((run.program, run.copy) for run in runs) == dict.fromkeys(
        itertools.product((0, 1), (0, 1)), 1 if short else 2
    )
    places = [[place for place, run in enumerate(runs) if run.program == program] for program in (0, 1)]
    assert sum(places[0]) == sum(places[1])
    if not short:
        assert Counter(runs) == dict.fromkeys(itertools.starmap(Run, itertools.product((0, 1), (0, 1), (0, 1))), 1)
        assert sum(place**2 for place in places[0]) == sum(place**2 for place in places[1])
        neighbours: dict[int, Counter[Any]] = {0: Counter(), 1: Counter()}
        for half in halves:
            for before, run in zip((None, *half), half, strict=False):
                neighbours[run.program][
                    "empty" if before is None else (before.program == run.program, before.copy == run.copy)
                ] += 1
        assert neighbours[0] == neighbours[1]
        pairs = Counter(tuple(run.program for run in half[i : i + 2]) for half in halves for i in (0, 2))
        assert pairs == {(0, 1): 2, (1, 0): 2}


@pytest.mark.parametrize("short", [False, True])
def test_a_copy_is_left_with_what_its_own_program_wrote(short: bool) -> None:
    runs = [run for half in block_halves(2, short) for run in half]
    for program in (0, 1):
        assert [run for run in runs if run.copy == program][-1].program == program
    assert block_halves(1) == ((Run(0, 0, 0),),)


# Races


def unfair() -> Callable[..., float]:
    """3 % for the upper copy, 2 % after the empty kernels, 0.5 % for each later load of code, and a drift."""
    outputs: set[int] = set()

    def bias(symbol: str, load: int, arguments: list[int], before: str, now_us: float) -> float:
        outputs.add(arguments[-1])
        upper = arguments[-1] > (min(outputs) + max(outputs)) / 2
        return 0.03 * upper + 0.02 * (before == "empty") + 0.005 * load + now_us * 1e-7

    return bias


def test_the_same_is_the_same_wherever_it_lies_and_whatever_ran_before(monkeypatch: pytest.MonkeyPatch) -> None:
    card = PaperCard(noisy({"own": 20.0, "rival": 20.0}, unfair()))
    answer = measure(monkeypatch, card, order(["own", "rival"]))
    said = verdict(answer)
    assert isinstance(said, Same) and abs(said.ratio - 1) < 0.001, said
    assert len({z for _, _, z in itertools.chain(*card.replayed)}) == 2 * answer["sets"]


def test_the_card_is_unfair_enough_to_fool_programs_that_keep_their_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopwatch, "block_halves", lambda programs, short=False: ((Run(0, 0, 0), Run(1, 1, 0)),))
    card = PaperCard(noisy({"own": 20.0, "rival": 20.0}, unfair()))
    said = verdict(measure(monkeypatch, card, order(["own", "rival"])))
    assert isinstance(said, Faster) and said.ratio > 1.02, said


@pytest.mark.parametrize(("own", "rival", "expected"), [(20.0, 20.6, Faster), (20.6, 20.0, Slower)])
@pytest.mark.parametrize("role", ["out", "io", "tmp"])
def test_three_percent_are_still_found(
    monkeypatch: pytest.MonkeyPatch, own: float, rival: float, expected: type, role: str
) -> None:
    def bias(symbol: str, load: int, arguments: list[int], before: str, now_us: float) -> float:
        return 0.03 * (arguments[-1] // 4096 % 2)

    card = PaperCard(noisy({"own": own, "rival": rival}, bias))
    said = verdict(measure(monkeypatch, card, order(["own", "rival"], role)))
    assert isinstance(said, expected) and said.ratio == pytest.approx(rival / own, abs=0.004), said


@pytest.mark.parametrize("base_us", [1.3, 300.0, 4_000.0, 60_000.0, 1_500_000.0])
def test_slow_and_fast_kernels_take_a_bounded_time_and_keep_the_balance(
    monkeypatch: pytest.MonkeyPatch, base_us: float
) -> None:
    def bias(symbol: str, load: int, arguments: list[int], before: str, now_us: float) -> float:
        return 0.03 * (arguments[-1] > 700_000)

    card = PaperCard(noisy({"own": base_us, "rival": base_us}, bias, noise=0.0005))
    answer = measure(monkeypatch, card, order(["own", "rival"], "out"))
    said = verdict(answer)
    assert isinstance(said, Same | Ambiguous) and said.ratio == pytest.approx(1.0, abs=0.002)
    assert card.now_us < max(5e6, 25 * base_us)
    assert all(
        len(column) == len(answer["gap_us"]) == sum(b["count"] for b in answer["batches"])
        for column in answer["samples_us"]
    )


def test_one_program_is_timed_alone_on_one_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    card = PaperCard(noisy({"own": 20.0}))
    answer = measure(monkeypatch, card, order(["own"], hot=True))
    assert card.loaded == ["own"] and len(answer["samples_us"]) == 1 and len(answer["samples_us"][0]) == 60
    assert np.median(answer["samples_us"][0]) == pytest.approx(20.0, rel=0.01)
    assert len({z for _, _, z in itertools.chain(*card.replayed)}) == answer["sets"]
    assert np.median(answer["hot_us"]) == pytest.approx(20.0, rel=0.01)


def test_code_is_loaded_in_both_orders_and_code_that_does_not_load_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    card = PaperCard(noisy({"own": 20.0, "rival": 20.0}))
    measure(monkeypatch, card, order(["own", "rival"]))
    assert card.loaded == ["own", "rival", "rival", "own"]
    answer = measure(monkeypatch, PaperCard(noisy({"own": 20.0})), order(["own", "foreign"]))
    assert answer["unloadable"]["program"] == 1 and answer["unloadable"]["reason"]


def test_chunks_of_a_long_round_find_a_cold_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """With two programs the same few sets are used eight times in a row: each time the cache is flushed before."""
    card = PaperCard(noisy({"own": 900.0, "rival": 900.0}))
    answer = measure(monkeypatch, card, order(["own", "rival"]))
    assert answer["chunks"] > 1 and card.flushes == 8 * len(answer["gap_us"])
    alone = PaperCard(noisy({"own": 900.0}))
    assert measure(monkeypatch, alone, order(["own"]))["chunks"] > 1 and alone.flushes == 0


# Outputs of the timed runs


def outputs(card: PaperCard, answer: Any) -> dict[tuple[int, int, int], np.ndarray]:
    return {
        (kept["program"], kept["seed"], kept["set"]): card.arena[kept["offset"] : kept["offset"] + NBYTES].view(
            np.float32
        )
        for kept in answer["outputs"]
    }


@pytest.mark.parametrize("base_us", [5.0, 900.0, 200_000.0])
@pytest.mark.parametrize("checked", [1, 2])
def test_what_is_handed_back_was_written_by_the_program_itself(
    monkeypatch: pytest.MonkeyPatch, base_us: float, checked: int
) -> None:
    """The two write different things into the same copies; each output is its own program's, of the right inputs."""
    card = PaperCard(noisy({"own": base_us, "rival": base_us}))
    factors = {"own": 2.0, "rival": 3.0}

    def work(program: str, arguments: list[int]) -> None:
        x, z = arguments[-2:]
        card.floats(z)[:] = factors[program] * card.floats(x)

    card.work = work
    answer = measure(monkeypatch, card, order(["own", "rival"], checked_programs=checked))
    found = outputs(card, answer)
    assert {program for program, _, _ in found} == set(range(checked))
    # Of slow kernels the last batch is one launch.
    assert {seed for _, seed, _ in found} == {0, 1} or base_us > 100_000
    x = [card.arena[seed * NBYTES : (seed + 1) * NBYTES].view(np.float32) for seed in (0, 1)]
    for (program, seed, _), data in found.items():
        np.testing.assert_array_equal(data, (2.0 + program) * x[seed])


def test_a_program_that_stops_writing_does_not_hide_behind_its_rival(monkeypatch: pytest.MonkeyPatch) -> None:
    launches: Counter[str] = Counter()
    card = PaperCard(noisy({"own": 20.0, "rival": 20.0}))

    def work(program: str, arguments: list[int]) -> None:
        launches[program] += 1
        if program == "rival" or launches[program] < 500:
            card.add(program, arguments)

    card.work = work
    answer = measure(monkeypatch, card, order(["own", "rival"]))
    assert launches["own"] > 1000
    found = outputs(card, answer)
    assert found and all((data.view(np.uint8) == OUTPUT_POISON).all() for data in found.values())


@pytest.mark.parametrize("names", [["own"], ["own", "rival"]])
def test_restored_buffers_hold_one_launch_of_the_own_program(monkeypatch: pytest.MonkeyPatch, names: list[str]) -> None:
    card = PaperCard(noisy({"own": 20.0, "rival": 20.0}))

    def work(program: str, arguments: list[int]) -> None:
        x, z = arguments[-2:]
        card.floats(z)[:] += (1.0 if program == "own" else 100.0) * card.floats(x)

    card.work = work
    answer = measure(monkeypatch, card, order(names, "io"))
    first = card.arena[: 4 * NBYTES].view(np.float32).reshape(4, ELEMENTS)
    found = outputs(card, answer)
    assert found
    for (_, seed, _), data in found.items():
        np.testing.assert_allclose(data, first[2 + seed] + first[seed], rtol=1e-6)


def test_sizes_of_blocks() -> None:
    params = order(["own", "rival"])
    fast, slow, slowest = (plan_samples(1, us, us, False, 2, params) for us in (10.0, 50_000.0, 2_000_000.0))
    assert [sum(len(half) for half in plan.halves) for plan in (fast, slow, slowest)] == [8, 4, 4]
    assert [plan.samples for plan in (fast, slow, slowest)] == [60, 10, 3]
