"""The stopwatch on a card made of paper: what it cancels, what it still finds, and which outputs it hands back.

The card keeps memory and a clock, and has the faults of real ones: places of buffers and of code, what ran before, a
drift. The stopwatch's own code runs on it, unchanged but for the driver's functions.
"""

import ctypes
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dice_lsp import process
from dice_lsp.records import Ambiguous, Faster, Same, Slower
from dice_lsp.worker import stopwatch
from dice_lsp.worker.benchmark import compare, net
from dice_lsp.worker.gpu_driver import DriverError, Function
from dice_lsp.worker.stopwatch import (
    OUTPUT_POISON,
    Costs,
    Notes,
    Pauses,
    Run,
    Stopwatch,
    block_halves,
    plan_samples,
    seed_of_set,
)

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
        self.graphs: dict[int, Any] = {}
        """Captured graphs, and executable ones, by their handles."""
        self.loaded: list[str] = []
        self.launched: list[tuple[str, int, int]] = []
        """Of every launch: program, load, address of the output."""
        self.sweeps = 0
        self.clock_ghz = 1.98
        self.live: set[int] = set()
        self.driver = self
        self.stream = 1

    # What a `Card` and its `Driver` do

    def attribute(self, name: str) -> int:
        return {"L2_CACHE_SIZE": L2_BYTES, "MULTIPROCESSOR_COUNT": 4}[name]

    def cubin(self, program: Any) -> bytes:
        return program["cubin"]

    def load(self, cubin: bytes, symbol: str, smem_bytes: int) -> Function:
        if cubin == b"foreign":
            raise DriverError(209, "load")
        self.loaded.append(symbol)
        return Function(None, len(self.loaded), cubin, symbol)

    def get_ready(self, function: Function, arguments: Sequence[Any], smem_bytes: int) -> None:
        self.blank = list(arguments)

    def set_variables(self, function: Function, variables: Mapping[str, str]) -> str | None:
        missing = next(iter(variables), None)
        return None if missing is None else f"the variable {missing} of the recorded launch is not in the compiled code"

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
        self.queue(lambda: self.execute(function, arguments))

    # The machine

    def floats(self, address: int) -> np.ndarray:
        return self.memory[address : address + NBYTES].view(np.float32)

    def add(self, program: str, arguments: list[int]) -> None:
        x, z = arguments[-2:]
        self.floats(z)[:] = 2 * self.floats(x)

    def queue(self, action: Callable[[], None]) -> None:
        if self.capturing is None:
            action()
        else:
            self.capturing.append(action)

    def execute(self, function: Function, arguments: Any) -> None:
        self.launched.append((function.symbol, function.kernel, arguments[-1]))
        name = f"{function.symbol}{function.kernel}"
        self.now_us += self.duration(function.symbol, function.kernel, arguments, self.before, self.now_us)
        self.before = name
        self.work(function.symbol, arguments)

    # The driver's functions

    def functions(self) -> SimpleNamespace:
        def ok(*values: Any) -> tuple[Any, ...]:
            return (0, *values)

        def handle(graph: Any) -> int:
            self.graphs[number := len(self.graphs) + 1] = graph
            return number

        def begin(*_: Any) -> tuple[Any, ...]:
            self.capturing = []
            return ok()

        def end(*_: Any) -> tuple[Any, ...]:
            graph, self.capturing = self.capturing, None
            return ok(handle(graph))

        def replay(executable: int, stream: int) -> tuple[Any, ...]:
            for action in self.graphs[executable]:
                action()
            return ok()

        def stamp(event: Any) -> None:
            self.now_us += 1.1
            event[0] = self.now_us

        def record(event: Any, stream: int) -> tuple[Any, ...]:
            stamp(event)
            return ok()

        def filled(address: int, value: int, nbytes: int) -> None:
            self.memory[address : address + nbytes] = value & 255
            self.before = "memset"

        def fill(address: int, value: int, nbytes: int, stream: int) -> tuple[Any, ...]:
            filled(address, value, nbytes)
            return ok()

        def copied(to: int, source: int, nbytes: int) -> None:
            self.memory[to : to + nbytes] = self.memory[source : source + nbytes]

        def copy(to: int, source: int, nbytes: int, stream: int) -> tuple[Any, ...]:
            copied(to, source, nbytes)
            return ok()

        def own(name: str, words: list[int]) -> None:
            self.now_us += 0.5 if name == "dice_empty" else 0.0
            self.before = "empty" if name == "dice_empty" else self.before
            if name == "dice_fill":
                filled(words[0], OUTPUT_POISON, 16 * words[1])
            if name == "dice_copy":
                copied(words[0], words[2], 16 * words[1])
            if name == "dice_sweep":
                self.now_us += 20.0
                self.before = "sweep"
                self.sweeps += 1
            nanoseconds = int(self.now_us * 1000) + 1
            if name == "dice_time":
                self.now_us += 0.6
                self.memory[words[0] : words[0] + 8].view(np.uint64)[0] = nanoseconds
            if name == "dice_clock":
                notes = self.memory[words[0] : words[0] + 64].view(np.uint64).reshape(4, 2)
                notes[:] = nanoseconds, int(nanoseconds * self.clock_ghz)

        def launch_own(function: str, *rest: Any) -> tuple[Any, ...]:
            counts = {"empty": 0, "sweep": 3, "fill": 2, "copy": 3, "time": 1, "clock": 1}
            count, place = counts[function.removeprefix("dice_")], rest[-2]
            pointers = (ctypes.c_void_p * count).from_address(place) if count else []
            words = [ctypes.c_uint64.from_address(pointer).value for pointer in pointers]  # type: ignore[arg-type]
            self.queue(lambda: own(function, words))
            return ok()

        return SimpleNamespace(
            CUresult=SimpleNamespace(CUDA_ERROR_NOT_READY=600),
            cuMemGetInfo=lambda: ok(64 << 20, 64 << 20),
            cuModuleLoadData=lambda image: ok("module"),
            CUlimit=SimpleNamespace(CU_LIMIT_PERSISTING_L2_CACHE_SIZE=6),
            CUstreamCaptureMode=SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED=2),
            cuStreamBeginCapture=begin,
            cuStreamEndCapture=end,
            cuGraphInstantiate=lambda graph, flags: ok(handle(self.graphs[graph])),
            cuGraphDestroy=lambda graph: ok(),
            cuGraphUpload=lambda graph, stream: ok(),
            cuGraphExecDestroy=lambda graph: ok(),
            cuGraphLaunch=replay,
            cuCtxResetPersistingL2Cache=ok,
            cuCtxSetLimit=lambda limit, value: ok(),
            cuModuleGetFunction=lambda module, name: ok(name.decode()),
            cuLaunchKernel=launch_own,
            cuCtxSynchronize=ok,
            cuStreamQuery=lambda stream: ok(),
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
        "checked_programs": 1, "cold": True, "hot": False,
        "most_launches": 64, "target_us": 1000.0, "least_samples": 20, "most_samples": 60,
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
    overhead_us = answer["overhead_us"]
    own, rival = (net(column, overhead_us) for column in answer["samples_us"])
    return compare(own, rival, floor_us=0.5, speeds_mhz=tuple(answer["speeds_mhz"]))


def noisy(
    base: dict[str, float], bias: Callable[..., float] = lambda *_: 0.0, noise: float = 0.002
) -> Callable[..., float]:
    rng = np.random.default_rng(1)

    def duration(symbol: str, load: int, arguments: list[int], before: str, now_us: float) -> float:
        factor = 1 + bias(symbol, load, arguments, before, now_us)
        return base[symbol] * factor * (1 + noise * rng.standard_normal())

    return duration


def test_a_pointer_in_a_struct_follows_its_buffer_into_every_set(monkeypatch: pytest.MonkeyPatch) -> None:
    found: set[int] = set()

    def work(program: str, arguments: list[Any]) -> None:
        data, z = arguments
        x = int.from_bytes(data[8:], "little") - 4
        assert data[:8] == b"12345678"
        found.add(x)
        card.floats(z)[:] = 2 * card.floats(x)

    card = PaperCard(noisy({"own": 20.0}), work)
    params = order(["own"])
    _, x, z = params["arguments"]
    struct = {"data": [(b"12345678" + bytes(8)).hex()] * 2, "pointers": [[8, "x", 4]]}
    params["arguments"] = [struct, {**x, "passed": False}, {**z, "passed": True}]
    answer = measure(monkeypatch, card, params)
    assert len(found) > 1 and card.blank == [bytes(16), 0] and len(answer["samples_us"][0]) >= 20
    for kept in answer["outputs"]:
        inputs = card.arena[kept["seed"] * NBYTES : (kept["seed"] + 1) * NBYTES].view(np.float32)
        outputs = card.arena[kept["offset"] : kept["offset"] + NBYTES].view(np.float32)
        assert (outputs == 2 * inputs).all()


def test_a_variable_that_is_not_in_the_code_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    card = PaperCard(noisy({"own": 20.0}))
    answer = measure(monkeypatch, card, order(["own"], variables={"coef": ""}))
    assert "coef of the recorded launch" in answer["declined"]


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
    assert len({z for _, _, z in card.launched}) == 2 * answer["sets"]


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
    assert all(len(column) == sum(b["count"] for b in answer["batches"]) for column in answer["samples_us"])


def test_one_program_is_timed_alone_on_one_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    card = PaperCard(noisy({"own": 20.0}))
    answer = measure(monkeypatch, card, order(["own"], hot=True))
    assert set(card.loaded) == {"own"} and len(answer["samples_us"]) == 1 and len(answer["samples_us"][0]) == 60
    assert np.median(answer["samples_us"][0]) - answer["overhead_us"] == pytest.approx(20.0, rel=0.01)
    assert len({z for _, _, z in card.launched}) == answer["sets"]
    assert np.median(answer["hot_us"]) == pytest.approx(20.0, rel=0.01)


def test_code_is_loaded_in_both_orders_and_code_that_does_not_load_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    card = PaperCard(noisy({"own": 20.0, "rival": 20.0}))
    measure(monkeypatch, card, order(["own", "rival"]))
    assert card.loaded == ["own", "rival", "rival", "own", *["own"] * stopwatch.FRESH_LOADS]
    answer = measure(monkeypatch, PaperCard(noisy({"own": 20.0})), order(["own", "foreign"]))
    assert answer["unloadable"]["program"] == 1 and answer["unloadable"]["reason"]


@pytest.mark.parametrize("role", ["out", "io"])
@pytest.mark.parametrize("base_us", [20.0, 900.0])
def test_every_cold_launch_is_led_in_alike(monkeypatch: pytest.MonkeyPatch, base_us: float, role: str) -> None:
    """It finds its outputs poisoned or restored, then the cache filled with other memory."""
    before: Counter[str] = Counter()
    values: Counter[str] = Counter()
    card = PaperCard(noisy({"own": base_us, "rival": base_us}))
    first = np.random.default_rng(5).standard_normal(4 * ELEMENTS).astype(np.float32).reshape(4, ELEMENTS)

    def work(program: str, arguments: list[int]) -> None:
        x, z = arguments[-2:]
        found = card.memory[z : z + NBYTES]
        fresh = (found == OUTPUT_POISON).all() if role == "out" else (card.floats(z) == first[2:]).all(axis=1).any()
        values["fresh" if fresh else "used"] += 1
        card.floats(z)[:] = 2 * card.floats(x)

    def duration(symbol: str, load: int, arguments: list[int], last: str, now_us: float) -> float:
        before[last] += 1
        return base_us

    card.work, card.duration = work, duration
    answer = measure(monkeypatch, card, order(["own", "rival"], role))
    # The closer look for results that are kept leaves one output of each load as it is.
    assert values["used"] == (stopwatch.FRESH_LOADS if role == "out" else 0) and set(before) == {"sweep"}
    assert (answer["launches"] > 1) == (base_us < 100) and values["fresh"] > 100
    assert answer["sets"] == stopwatch.SETS and answer["cold"]


def test_a_hot_launch_finds_its_data_where_the_last_one_left_it(monkeypatch: pytest.MonkeyPatch) -> None:
    card = PaperCard(noisy({"own": 20.0}))
    answer = measure(monkeypatch, card, order(["own"], cold=False))
    assert card.sweeps == 0 and answer["sets"] == 1 and not answer["cold"] and not answer["hot_us"]


def test_rows_even_out_the_gaps_that_every_place_in_every_graph_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to a tenth of a microsecond, of a kernel of two: singly it would be two percent faster than itself."""
    card = PaperCard(noisy({"own": 2.0, "rival": 2.0}, noise=0.0005))
    gaps: dict[tuple[int, int], float] = {}
    functions = card.functions

    def with_gaps() -> SimpleNamespace:
        made = functions()

        def replay(executable: int, stream: int) -> tuple[Any, ...]:
            for place, action in enumerate(card.graphs[executable]):
                card.now_us += gaps.setdefault((executable, place), 0.1 * card.rng.random())
                action()
            return (0,)

        made.cuGraphLaunch = replay
        return made

    monkeypatch.setattr(card, "functions", with_gaps)
    answer = measure(monkeypatch, card, order(["own", "rival"]))
    assert answer["method"] == "graph" and answer["launches"] >= 150
    ratio = np.median(answer["samples_us"][0]) / np.median(answer["samples_us"][1])
    assert ratio == pytest.approx(1.0, abs=0.002) and isinstance(verdict(answer), Same)


@pytest.mark.parametrize(("base_us", "method", "added_us"), [(5.0, "graph", 0.6), (25.0, "single", 0.6)])
def test_short_kernels_are_timed_in_rows_and_long_ones_singly(
    monkeypatch: pytest.MonkeyPatch, base_us: float, method: str, added_us: float
) -> None:
    answer = measure(monkeypatch, PaperCard(noisy({"own": base_us}, noise=0.0)), order(["own"]))
    assert answer["method"] == method
    per_note = answer["launches"] if method == "graph" else 1
    assert answer["samples_us"][0] == pytest.approx([base_us + added_us / per_note] * len(answer["samples_us"][0]))
    assert answer["overhead_us"] == pytest.approx(added_us / per_note, abs=1e-3)
    assert answer["gap_us"] == pytest.approx([0.5] * 5, abs=0.05)
    hot = measure(monkeypatch, PaperCard(noisy({"own": base_us}, noise=0.0)), order(["own"], cold=False))
    assert hot["method"] == "graph"


def test_the_clock_is_read_around_every_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    card = PaperCard(noisy({"own": 20.0, "rival": 20.0}))
    answer = measure(monkeypatch, card, order(["own", "rival"]))
    assert [len(column) for column in answer["speeds_mhz"]] == [60, 60]
    assert np.asarray(answer["speeds_mhz"]) == pytest.approx(1980.0, rel=1e-3)
    assert answer["pauses"] == 0


def test_a_clock_needs_two_readings_of_one_multiprocessor() -> None:
    raw = np.zeros(stopwatch.NOTES_BYTES, np.uint8)
    before, after = raw[: stopwatch.CLOCK_BYTES].view(np.int64).reshape(2, stopwatch.CLOCK_SLOTS, 2)
    assert Notes(raw).clock_mhz() is None
    before[3] = 1_000_000, 5_000
    assert Notes(raw).clock_mhz() is None
    after[3] = 1_500_000, 5_000 + 990_000
    after[4] = 1_500_000, 77
    assert Notes(raw).clock_mhz() == pytest.approx(1980.0)
    after[3, 0] = 1_000_100
    assert Notes(raw).clock_mhz() is None  # a tenth of a microsecond tells nothing
    raw[stopwatch.CLOCK_BYTES :].view(np.int64)[:4] = 1_000, 3_000, 5_000, 5_500
    assert Notes(raw).times_us(2) == [2.0, 0.5]


def test_a_card_at_its_power_cap_is_left_to_cool_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(stopwatch, "time", SimpleNamespace(sleep=slept.append))
    pauses = Pauses()
    assert (
        pauses.after({"throttle": 0}, 1980.0, 20_000) == 0.0 and pauses.after({"throttle": None}, None, 20_000) == 0.0
    )
    assert pauses.after({"throttle": 0}, 1970.0, 20_000) == 0.0  # flickers
    assert pauses.after({"throttle": 4}, 1980.0, 20_000) == pytest.approx(0.06)
    assert pauses.after({"throttle": 0}, 1800.0, 20_000) == pytest.approx(0.06)
    for _ in range(100):
        pauses.after({"throttle": 4}, 1500.0, 1e6)
    assert sum(slept) == pytest.approx(stopwatch.MOST_PAUSES_S) and pauses.count == len(slept)


# Results that are kept


def keeper(card: PaperCard, key: Callable[[np.ndarray, list[int]], Any], spared_us: float = 90.0) -> None:
    """A kernel that computes for 100 us and keeps what it gave; a load of the code has a memory of its own."""
    memory: dict[int, dict[Any, np.ndarray]] = {}
    hit = False

    def duration(symbol: str, load: int, arguments: list[int], last: str, now_us: float) -> float:
        nonlocal hit
        x = card.floats(arguments[-2])
        kept = memory.setdefault(load, {})
        name = key(x, arguments)
        hit = name in kept
        answer = kept.setdefault(name, 2 * x)
        card.floats(arguments[-1])[:] = answer
        return 100.0 - spared_us * hit

    card.duration, card.work = duration, lambda program, arguments: None


@pytest.mark.parametrize("names", [["own"], ["own", "rival"]])
@pytest.mark.parametrize("hot", [False, True])
def test_results_kept_for_the_numbers_are_found_out(
    monkeypatch: pytest.MonkeyPatch, names: list[str], hot: bool
) -> None:
    card = PaperCard(noisy({}))
    keeper(card, lambda x, arguments: x.tobytes())
    answer = measure(monkeypatch, card, order(names, cold=not hot))
    unknown, known = answer["remembered_us"]
    assert unknown - known == pytest.approx(90.0)
    x = [card.arena[seed * NBYTES : (seed + 1) * NBYTES].view(np.float32) for seed in (0, 1)]
    for (_, seed, _), data in outputs(card, answer).items():
        np.testing.assert_array_equal(data, 2 * x[seed])


def test_results_kept_for_an_address_are_wrong_after_the_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    card = PaperCard(noisy({}))
    keeper(card, lambda x, arguments: arguments[-2])
    answer = measure(monkeypatch, card, order(["own"]))
    x = [card.arena[seed * NBYTES : (seed + 1) * NBYTES].view(np.float32) for seed in (0, 1)]
    found = outputs(card, answer)
    assert {seed for _, seed, _ in found} == {0, 1}
    assert not np.array_equal(next(data for (_, seed, _), data in found.items() if seed == 1), 2 * x[1])


def test_a_kernel_that_leaves_what_is_there_already_is_found_out_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two launches of a row on one set nothing is wiped, so that the closer look does not, either."""
    card = PaperCard(noisy({}))
    looked = False

    def duration(symbol: str, load: int, arguments: list[int], last: str, now_us: float) -> float:
        nonlocal looked
        looked = bool((card.memory[arguments[-1] : arguments[-1] + NBYTES] == OUTPUT_POISON).all())
        return 15.0 if looked else 1.0

    def work(program: str, arguments: list[int]) -> None:
        if looked:
            card.add(program, arguments)

    card.duration, card.work = duration, work
    answer = measure(monkeypatch, card, order(["own"]))
    assert answer["method"] == "graph" and np.median(answer["samples_us"][0]) < 5
    unknown, known = answer["remembered_us"]
    assert unknown > 15 and known < 7


@pytest.mark.parametrize("base_us", [0.8, 3.0, 15.0, 30.0])
def test_no_honest_kernel_is_accused_in_either_method(monkeypatch: pytest.MonkeyPatch, base_us: float) -> None:
    for cold in (True, False):
        card = PaperCard(noisy({"own": base_us, "rival": base_us}))
        assert measure(monkeypatch, card, order(["own", "rival"], cold=cold))["remembered_us"] is None


@pytest.mark.parametrize("spared_us", [0.0, 1.5])
def test_an_honest_kernel_and_a_spared_microsecond_are_not_accused(
    monkeypatch: pytest.MonkeyPatch, spared_us: float
) -> None:
    card = PaperCard(noisy({}))
    keeper(card, lambda x, arguments: x.tobytes(), spared_us)
    assert measure(monkeypatch, card, order(["own", "rival"]))["remembered_us"] is None


def test_one_slow_launch_makes_suspicious_but_not_guilty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hiccup just after the exchange leads to a closer look, which finds nothing."""
    card = PaperCard(lambda *_: 20.0)
    exchanged = False
    bring = Stopwatch._exchange

    def exchange(self: Stopwatch, held: int) -> None:
        nonlocal exchanged
        bring(self, held)
        exchanged = True

    def duration(*_: Any) -> float:
        nonlocal exchanged
        exchanged, hiccup = False, exchanged
        return 500.0 if hiccup else 20.0

    monkeypatch.setattr(Stopwatch, "_exchange", exchange)
    card.duration = duration
    answer = measure(monkeypatch, card, order(["own"]))
    assert answer["remembered_us"] is None
    assert len(card.loaded) == 1 + stopwatch.FRESH_LOADS


def test_every_exchange_brings_numbers_that_were_not_there() -> None:
    for seeds in (2, 3, 4):
        before = {seed_of_set(index, seeds, False) for index in range(6)}
        after = [seed_of_set(index, seeds, True) for index in range(6)]
        assert seeds - 1 not in before and set(after) == set(range(seeds)) and after[0] == seeds - 1
        if seeds > 2:
            assert all(after[index] != seed_of_set(index, seeds, False) for index in range(6))
    assert {seed_of_set(index, 1, False) for index in range(6)} == {0}


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
    fast, slow, slowest = (plan_samples(1, Costs(us, us, 0.0), 2, params) for us in (10.0, 50_000.0, 2_000_000.0))
    assert [sum(len(half) for half in plan.halves) for plan in (fast, slow, slowest)] == [8, 4, 4]
    assert [plan.samples for plan in (fast, slow, slowest)] == [60, 10, 3]
