"""Each check of the checklist catches a kernel that no other one does: refused with it, not refused without it.

What the host can see runs on the host. Where a GPU is needed a back end in numpy stands for it here, which misbehaves as
a GPU would; the same is asked of a real one in `tests/gpu/test_checks.py`.
"""

import re
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from attrs import evolve, frozen

from dice_lsp.pipeline import with_sanitized
from dice_lsp.records import (
    Cheating,
    Compiled,
    Evidence,
    Finding,
    JudgeJob,
    KernelReport,
    NotCompared,
    NotTimed,
    Sanitized,
    Unsafe,
    Unverified,
    Verdict,
    Verified,
    Wrong,
    kind_of,
)
from dice_lsp.source.kernels import parse
from dice_lsp.source.launches import launch_spec
from dice_lsp.source.slice import device_slice
from dice_lsp.worker import roofline
from dice_lsp.worker.arguments import BadSpec, Bound, bind
from dice_lsp.worker.benchmark import changed_output
from dice_lsp.worker.cases import HOST_BUDGET, choose_cases
from dice_lsp.worker.checks import CHECKS, check_of, in_order
from dice_lsp.worker.code_notes import code_notes, narrow_word, own_stream, vector_bytes
from dice_lsp.worker.device import TimedOutput
from dice_lsp.worker.host import HostBackend
from dice_lsp.worker.launch import BlockOrder, BufferArgument, Guard, Launch, Ran, RunResult, ScalarArgument, Source
from dice_lsp.worker.verify import verify

pytestmark = pytest.mark.timeout(180)

COMPILED = Compiled("sm_90", "none", "kernel", 32, 0, 0, 0, 0, 256, 1.0, "none", 0.0)
"""The host asks only whether the device's compiler has taken the text."""
BUILT = frozenset({"sanitizer", "timed_outputs", "physical_limit"})
"""Checks that other parts than `verify` make."""


def kernel(
    body: str, *, launch: str = "in x[n], y[n]; out z[n]", ref: str = "ref torch: x + y", sizes: str = "1000"
) -> str:
    parameters = "const float* x, const float* y, float* z, int n"
    return f"""
//dice: n = {sizes}; {launch}; launch <<<cdiv(n, 256), 256>>>; {ref}
__global__ void add({parameters}) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    {body}
}}
"""


RIGHT = "if (i < n) z[i] = x[i] + y[i];"


@frozen
class Card:
    """A back end in numpy: `z = x + y`, changed as a test wants it. `info` is what a GPU says of itself."""

    change: Callable[[Launch, dict[str, np.ndarray]], np.ndarray] = lambda launch, b: b["x"] + b["y"]
    name: str = "GPU of the test"
    kind: str = "cuda-core"

    @property
    def info(self) -> object:
        return type("Info", (), {"smem_optin_bytes": 227 << 10, "memory_bytes": 64 << 30})

    def prepare(self, source: Source) -> "Card":
        return self

    def run(self, launches: Sequence[Launch]) -> list[RunResult]:
        return [self._one(launch) for launch in launches]

    def _one(self, launch: Launch) -> RunResult:
        windows = max(1, len(launch.windows))
        buffers = {a.name: np.tile(a.initial, windows) for a in launch.arguments if isinstance(a, BufferArgument)}
        buffers["z"] = np.array(self.change(launch, buffers), buffers["z"].dtype)
        return Ran(buffers, 0.1)

    def close(self) -> None:
        pass


def judged(
    host: HostBackend, text: str, without: str = "", *, on: Card | None = None, before: str | None = None,
    baseline: str | None = None,
) -> Verdict:  # fmt: skip
    """The verdict on the last kernel of a text, with a check switched off if `without` names one."""
    model = parse(text)
    job = JudgeJob(text, "/nowhere/text.cu", model.kernels[-1], launch_spec(text, model.kernels[-1], model))
    job = evolve(job, reference_text=before, baseline_text=baseline)
    return verify(
        job, source_of(text), on or host, host, without=frozenset({without} - {""}),
        baseline_source=None if baseline is None else source_of(baseline),
    )  # fmt: skip


def source_of(text: str) -> Source:
    return Source(device_slice(text).text, "/nowhere/text.cu", parse(text).kernels[-1], {}, COMPILED)


def told(verdict: Verdict) -> str:
    match verdict:
        case Unsafe(hazard, where):
            return f"unsafe {hazard}: {where}"
        case Cheating(trick, where):
            return f"cheating {trick}: {where}"
        case Wrong(buffer, index, got, expected, case):
            return f"wrong: {buffer}[{index}] is {got}, expected {expected} ({case})"
        case Unverified(reason):
            return f"unverified: {reason}"
    return kind_of(type(verdict))


def refused(verdict: Verdict) -> bool:
    return isinstance(verdict, (Unsafe, Cheating, Wrong))


INTEGERS = """
//dice: n = 1000; in k[n]: int(0, 1 << 28); out y[n]; launch <<<cdiv(n, 256), 256>>>; ref torch: k * 2
__global__ void twice(const int* k, int* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = BODY;
}
"""
EVERY_OTHER = """
void every_other_cpu(const float* x, float* z, int n) { for (int i = 0; i < n; i += 2) z[i] += x[i]; }
//dice: n = 1000; in x[n]; io z[n]; launch <<<cdiv(n, 256), 256>>>; ref every_other_cpu
__global__ void every_other(const float* x, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) z[i] += i % 2 ? 1.0f : x[i];
}
"""
CANCELS = """
void variance_cpu(const float* x, float* y, int n) {
    for (int r = 0; r < n; ++r) {
        float sum = 0, squares = 0;
        for (int i = 0; i < 64; ++i) { sum += x[r * 64 + i]; squares += x[r * 64 + i] * x[r * 64 + i]; }
        y[r] = squares / 64 - sum / 64 * (sum / 64);
    }
}
//dice: n = 100; in x[n * 64]: uniform(10000, 10001); out y[n]; launch <<<cdiv(n, 64), 64>>>; ref variance_cpu
__global__ void variance(const float* x, float* y, int n) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n) return;
    float sum = 0, squares = 0;
    for (int i = 0; i < 64; ++i) { sum += x[r * 64 + i]; squares += x[r * 64 + i] * x[r * 64 + i]; }
    y[r] = squares / 64 - sum / 64 * (sum / 64);
}
"""
SUM = """
//dice: n = 4096 | 1000; in x[n]; out y[1]; launch <<<1, 1>>>; ref torch: x.sum()
__global__ void sum(const float* x, float* y, int n) {
    float s = 0;
    for (int i = 0; i < n; ++i) s += x[i];
    y[0] = LAST;
}
"""
BETWEEN_1_AND_2 = "in x[n]: uniform(1, 2), y[n]: uniform(1, 2); out z[n]"
HALF = "if (i < n) z[i] = __half2float(__float2half(x[i])) + y[i];"
NO_REFERENCE = "bytes 12*n"

ON_THE_HOST = {
    "cases": (kernel("if (i < n) z[i] = x[i] + y[i] + (n == 31);"), r"wrong: z\[0\]"),
    "distributions": (kernel("if (i < n) z[i] = x[i] < -1000 && x[i] > -1e30f ? 0 : x[i] + y[i];"), "wrong: .*values"),
    "index_ranges": (INTEGERS.replace("BODY", "k[i] == (1 << 28) - 1 ? 0 : 2 * k[i]"), "wrong: .*both ends of the range"),
    "unwritten": (
        kernel("if (i < n && i % 5) z[i] = x[i];", ref=NO_REFERENCE),
        "unsafe unwritten_output: z: 7 of 31 elements",
    ),
    "restored": (EVERY_OTHER, r"wrong: z\[1\] .*the reference leaves it as it was"),
    "addresses": (
        kernel("if (i < n) z[i] = x[i] + y[i] + ((size_t)z % 4096 == 0);"),
        "unsafe address_dependent: .*where the buffers lie",
    ),
    "bounds": (kernel("if (i < n || n == 31) z[i] = x[i] + y[i];"), r"unsafe out_of_bounds: [xyz]\[31\]"),
    "inputs": (
        kernel("if (i < n) z[i] = x[i] + y[i]; if (n == 31) ((float*)x)[0] = 0;"), r"unsafe mutated_input: x\[0\]",
    ),
    "block_order": (kernel("if (i < n) z[i] = x[i] + y[i]; if (n == 31) z[0] = i;"), "unsafe race: z"),
    "state": ("__device__ int calls;\n" + kernel(RIGHT + " if (i == 0) calls = n;"), "unverified: keeps state in `calls` between"),
    "code_notes": (kernel("if (i < n) z[i] = clock64() == 1 ? 0 : x[i] + y[i];"), "unverified: reads the clock"),
    "launched": (kernel("", ref=NO_REFERENCE), "unsafe never_launched: no output is touched"),
    "fp64": (CANCELS, r"wrong: y\[0\]"),
    "nan": (kernel("if (i < n) z[i] = isnan(x[i]) ? y[i] : x[i] + y[i];"), "wrong: .* nan .*NaN in the input"),
    "inf": (kernel("if (i < n) z[i] = (x[i] > 3e38f ? 3e38f : x[i]) + y[i];"), "wrong: .* inf .*Inf in the input"),
    "exact": (INTEGERS.replace("BODY", "2 * k[i] + (k[i] > 1000)"), "wrong: .*integers must agree exactly"),
    "tensor": (kernel("if (i < n) z[i] = (x[i] + y[i]) * 1.0000015f;", sizes="1000 | 999"), "wrong: .*every element is off the same way"),
    "scaling": (kernel("if (i < n) z[i] = (x[i] + y[i]) * (1 + 2e-5f * (i % 2));"), "wrong: .*more than a sum of this length"),
    "precision": (
        "#include <cuda_fp16.h>\n" + kernel(HALF, launch=BETWEEN_1_AND_2),
        "unsafe precision_dropped: .*it computes with `__float2half`",
    ),
}  # fmt: skip
"""Check -> a kernel that it alone refuses, and how."""


@pytest.mark.parametrize("name", ON_THE_HOST)
def test_a_check_catches_what_no_other_does(name: str, host: HostBackend) -> None:
    text, words = ON_THE_HOST[name]
    found = judged(host, text)
    assert re.match(words, told(found)), told(found)
    passed = judged(host, text, without=name)
    assert not refused(passed) and told(passed) != told(found), told(passed)
    assert name not in getattr(passed, "checks", ())


def test_seeds_an_answer_learned_by_heart_is_wrong_for_other_numbers(host: HostBackend) -> None:
    text = SUM.replace("LAST", "s")
    model = parse(text)
    spec = launch_spec(text, model.kernels[0], model)
    cases = choose_cases(spec, model.kernels[0], HOST_BUDGET)
    assert not isinstance(cases, BadSpec)
    seed = next(number for number, case in enumerate(cases) if case.dims["n"] == 1000)
    bound = bind(spec, model.kernels[0], {"n": 1000}, seed)
    assert isinstance(bound, Bound)
    known = float(np.asarray(bound.buffers["x"].data, np.float64).sum())
    cheat = SUM.replace("LAST", f"n == 1000 ? {known:.9g}f : s")
    found = judged(host, cheat)
    assert re.match(r"wrong: y\[0\] .*n=1000, numbers never seen before", told(found)), told(found)
    passed = judged(host, cheat, without="seeds")
    assert isinstance(passed, Verified) and "seeds" not in passed.checks


VECTORS = (
    "int v = 4 * i; if (v + 3 < n) *(float4*)(z + v) = *(const float4*)(x + v); "
    "for (int r = n / 4 * 4; i == 0 && r < n; ++r) z[r] = x[r];"
)


def test_alignment_is_noted_where_vectors_are_read_through_casts(host: HostBackend) -> None:
    text = kernel(VECTORS, ref="ref torch: x")
    found = judged(host, text)
    assert isinstance(found, Verified) and "alignment" in found.checks, told(found)
    assert "assumes pointers aligned to 16 bytes" in found.notes
    passed = judged(host, text, without="alignment")
    assert isinstance(passed, Verified) and not passed.notes and "alignment" not in passed.checks
    plain = judged(host, kernel("if (i < n) z[i] = x[i];", ref="ref torch: x"))
    assert isinstance(plain, Verified) and not plain.notes and "alignment" not in plain.checks
    new = judged(host, text, baseline=kernel("if (i < n) z[i] = x[i];", ref="ref torch: x"))
    assert isinstance(new, Verified) and "assumes pointers aligned to 16 bytes, which is new" in new.notes


def test_a_kernel_that_looks_where_its_pointers_lie_needs_no_alignment(host: HostBackend) -> None:
    careful = f"if (((size_t)x | (size_t)z) % 16) {{ if (i < n) z[i] = x[i]; return; }} {VECTORS}"
    found = judged(host, kernel(careful, ref="ref torch: x"))
    assert isinstance(found, Verified) and "alignment" in found.checks and not found.notes, found


def test_interface_a_model_may_not_give_its_buffers_fewer_digits(host: HostBackend) -> None:
    before = kernel("")
    after = "#include <cuda_fp16.h>\n" + kernel("if (i < n) z[i] = __float2half(x[i] + y[i]);").replace(
        "float* z", "__half* z"
    )
    found = judged(host, after, before=before)
    assert told(found) == "cheating other_interface: `z` is `__half*`, was `float*`"
    passed = judged(host, after, without="interface", before=before)
    assert isinstance(passed, Verified) and "interface" not in passed.checks
    kept = judged(host, kernel(RIGHT), before=before)
    assert isinstance(kept, Verified) and "interface" in kept.checks


def test_determinism_is_asked_of_every_run(host: HostBackend) -> None:
    calls: list[int] = []

    def by_chance(launch: Launch, b: dict[str, np.ndarray]) -> np.ndarray:
        calls.append(1)
        return b["x"] + b["y"] + np.float32(0 if launch.order is BlockOrder.ASCENDING else len(calls))

    found = judged(host, kernel(RIGHT), on=Card(by_chance))
    assert re.match("unsafe non_deterministic: .*from run to run", told(found)), told(found)
    calls.clear()
    assert not refused(judged(host, kernel(RIGHT), on=Card(by_chance), without="determinism"))


def test_occupancy_a_result_must_not_depend_on_how_many_blocks_run_at_once(host: HostBackend) -> None:
    card = Card(lambda launch, b: b["x"] + b["y"] + np.float32(launch.extra_smem_bytes > 0))
    found = judged(host, kernel(RIGHT), on=card)
    assert re.match("unsafe occupancy_dependent: .*how many blocks are resident", told(found)), told(found)
    passed = judged(host, kernel(RIGHT), on=card, without="occupancy")
    assert isinstance(passed, Verified) and "occupancy" not in passed.checks
    honest = judged(host, kernel(RIGHT), on=Card())
    assert isinstance(honest, Verified) and "occupancy" in honest.checks


def test_stream_work_that_goes_elsewhere_is_refused(host: HostBackend) -> None:
    child = "__global__ void child(float* z) { z[0] = 1; }\n"
    text = child + kernel(RIGHT + " if (i == 0) child<<<1, 1, 0, cudaStreamFireAndForget>>>(z);")
    found = judged(host, text, on=Card())
    assert told(found).startswith("cheating own_stream: `cudaStreamFireAndForget`")
    assert isinstance(judged(host, text, on=Card(), without="stream"), Verified)
    plain = judged(host, text.replace(", 0, cudaStreamFireAndForget", ""), on=Card())
    assert isinstance(plain, Verified) and "launches kernels of its own" in plain.notes


def test_sanitizer_a_finding_takes_the_verdict_back() -> None:
    text = kernel(RIGHT)
    model = parse(text)
    report = KernelReport(
        "add", 1, launch_spec(text, model.kernels[0], model), COMPILED,
        Verified(5, 0.1, "GPU", "torch", ("cases",)), NotTimed(""), NotCompared(""), Evidence("", "", "GPU", "", "", ""),
    )  # fmt: skip
    finding = Finding("racecheck", "race", "two threads write x[0]", 3, "n=31")
    assert isinstance(with_sanitized(report, Sanitized(("racecheck",))).verdict, Verified)
    assert with_sanitized(report, Sanitized(("racecheck",), (finding,))).verdict == Unsafe(
        "race", "line 4: two threads write x[0]", "n=31"
    )
    assert "sanitizer" not in in_order(CHECKS.keys() - BUILT)


def test_timed_outputs_are_held_against_what_was_verified() -> None:
    text = kernel(RIGHT)
    model = parse(text)
    job = JudgeJob(text, "/nowhere/text.cu", model.kernels[0], launch_spec(text, model.kernels[0], model))
    bound = bind(job.spec, job.kernel, {"n": 1000})
    assert isinstance(bound, Bound)
    z = np.ones(1000, np.float32)
    last = np.where(np.arange(1000) == 999, np.float32(2), z)
    wrong = changed_output(job, [bound], [Ran({"z": z}, 0.1)], [TimedOutput(0, "z", 0, 7, last.view(np.uint8))])
    assert wrong is not None and "z[999] is 2, was 1 when checked" in wrong
    assert changed_output(job, [bound], [Ran({"z": z}, 0.1)], []) is None


def test_physical_limit_no_time_is_shorter_than_the_peaks_allow() -> None:
    assert "skips work" in str(roofline.impossible(5.0, False, {"memory": 10.0}))
    assert roofline.impossible(5.0, False, {}) is None and roofline.impossible(9.5, False, {"memory": 10.0}) is None


LONG = (
    kernel(RIGHT, sizes="1M | 4096")
    .replace("int n)", "long long n)")
    .replace("int i = blockIdx.x", "long long i = blockIdx.x")
)


def far(launch: Launch) -> bool:
    n = next(a for a in launch.arguments if isinstance(a, ScalarArgument))
    return int.from_bytes(n.data, "little") * 4 > 1 << 31


def test_a_size_of_64_bits_is_tried_beyond_2_gb(host: HostBackend) -> None:
    launches: list[Launch] = []

    def overflows(launch: Launch, b: dict[str, np.ndarray]) -> np.ndarray:
        launches.append(launch)
        return b["x"] + (b["x"] if far(launch) else b["y"])

    found = judged(host, LONG, on=Card(overflows))
    assert re.match(r"wrong: z\[\d+\] .*n=\d{9,}, one case over and over again", told(found)), told(found)
    assert not refused(judged(host, LONG, on=Card(overflows), without="cases"))
    launches.clear()
    narrow = judged(host, kernel(RIGHT, sizes="1M | 4096"), on=Card())
    assert isinstance(narrow, Verified) and not narrow.notes
    honest = judged(host, LONG, on=Card())
    assert isinstance(honest, Verified) and "right beyond 2 GB too: samples of n=" in honest.notes[0]


def test_a_benchmark_that_no_reference_is_computed_for_is_run_all_the_same(
    host: HostBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def knows_it(launch: Launch, b: dict[str, np.ndarray]) -> np.ndarray:
        n = next(a for a in launch.arguments if isinstance(a, ScalarArgument))
        return b["x"] + (b["x"] if int.from_bytes(n.data, "little") == 1 << 28 else b["y"])

    monkeypatch.setattr("dice_lsp.worker.verify.DEVICE_BUDGET", HOST_BUDGET)
    text = kernel(RIGHT, sizes="256M | 4096")
    found = judged(host, text, on=Card(knows_it))
    assert re.match(r"wrong: z\[0\] .*n=268435456, one case over and over again", told(found)), told(found)
    assert not refused(judged(host, text, on=Card(knows_it), without="cases"))
    assert isinstance(judged(host, text, on=Card()), Verified)


def test_a_kernel_that_is_not_elementwise_is_not_tried_far_out(host: HostBackend) -> None:
    seen: list[bool] = []

    def shifts(launch: Launch, b: dict[str, np.ndarray]) -> np.ndarray:
        seen.append(far(launch))
        return b["x"] + np.concatenate([b["y"][1:], b["y"][:0], np.zeros(1, np.float32)])

    text = LONG.replace("x + y", "x + torch.cat([y[1:], 0 * y[:1]])")
    found = judged(host, text, on=Card(shifts))
    assert isinstance(found, Verified), told(found)
    assert not found.notes and not any(seen)


def test_precision_an_error_far_above_the_accepted_kernels_is_noted(host: HostBackend) -> None:
    rough = kernel("if (i < n) z[i] = (x[i] + y[i]) * (1 + 6e-7f * (i % 3 - 1));")
    found = judged(host, rough, baseline=kernel("if (i < n) z[i] = y[i] + x[i];"))
    assert isinstance(found, Verified), told(found)
    assert any(re.fullmatch(r"error \d+x the accepted kernel's", note) for note in found.notes), found.notes
    assert isinstance(judged(host, rough), Verified)
    alone = judged(host, rough, without="precision", baseline=kernel("if (i < n) z[i] = y[i] + x[i];"))
    assert isinstance(alone, Verified) and not alone.notes


def test_notes_come_from_code_that_the_kernel_can_reach() -> None:
    text = "__device__ int a; asm(); new int; printf(); child<<<1, 2>>>(); clock64();"
    assert code_notes(text, None) == (
        "uses printf", "allocates memory on the device", "launches kernels of its own", "has inline PTX", "reads the clock",
        "has the device variable `a`",
    )  # fmt: skip
    assert code_notes("__device__ const int a = 1; int asmx; renew(1);", None) == ()


@pytest.mark.parametrize(
    "text, stream",
    [("k<<<g, b>>>(x)", None), ("k<<<g, b, f(1, 2)>>>(x)", None), ("k<<<g, b, 0, s>>>(x)", "k<<<g, b, 0, s>>>"[1:]),
     ("cudaStreamCreateWithFlags(&s, 1)", "cudaStreamCreateWithFlags")],
)  # fmt: skip
def test_a_stream_of_its_own_is_seen(text: str, stream: str | None) -> None:
    assert own_stream(text) == stream


@pytest.mark.parametrize(
    "text, accepted, word",
    [("for (int half = 8; half > 0; half /= 2) s = half * x;", None, None), ("half h = x;", None, "half"),
     ("__half2 h;", "__half2 other;", None), ("__expf(x)", "expf(x)", "__expf"), ("wmma::load(x)", None, "wmma")],
)  # fmt: skip
def test_words_that_give_digits_away(text: str, accepted: str | None, word: str | None) -> None:
    assert narrow_word(text, accepted) == word


@pytest.mark.parametrize(
    "cast, width",
    [("*reinterpret_cast<const float4*>(x)", 16), ("(float2 *)x", 8), ("(const double2*)x", 16), ("(float3*)x", 0),
     ("float4 v = f(x);", 0), ("cp.async", 16), ("*(__half2*)x", 4)],
)  # fmt: skip
def test_vectors_that_are_read_through_casts(cast: str, width: int) -> None:
    plain = parse(kernel(RIGHT)).kernels[0]
    assert vector_bytes(cast, plain, {}) == width


def test_the_table_has_all_27_and_no_hazard_of_two_checks() -> None:
    assert sorted({check.number for check in CHECKS.values()}) == list(range(1, 28))
    assert [check.number for check in CHECKS.values()] == sorted(check.number for check in CHECKS.values())
    hazards = [h for check in CHECKS.values() if check.name != "sanitizer" for h in check.hazards if h != "wrong"]
    assert len(hazards) == len(set(hazards)) and all(check_of(h) != "sanitizer" for h in hazards)
    assert check_of("race") == "block_order" and check_of("something new") == "launched"
    assert all(check.what and not check.what.endswith(".") and check.backends for check in CHECKS.values())
    tested = {*ON_THE_HOST, *BUILT, "seeds", "alignment", "interface", "determinism", "occupancy", "stream"}
    assert tested == set(CHECKS)


def test_a_name_that_is_no_check_is_refused(host: HostBackend) -> None:
    with pytest.raises(AssertionError, match="no such check"):
        judged(host, kernel(RIGHT), without="luck")


def test_a_verdict_names_only_what_it_has_had(host: HostBackend) -> None:
    found = judged(host, kernel(RIGHT))
    assert isinstance(found, Verified)
    assert not {*BUILT, "determinism", "occupancy", "exact", "restored", "interface", "alignment", "index_ranges"} & {
        *found.checks
    }
    assert {"cases", "seeds", "distributions", "nan", "inf", "tensor", "scaling", "fp64", "state"} <= {*found.checks}
    on_card = judged(host, kernel(RIGHT), on=Card())
    assert isinstance(on_card, Verified) and "determinism" in on_card.checks and "block_order" not in on_card.checks
    assert Guard.LEFT in Guard  # one run of each case has its buffers elsewhere
