"""How many terms an output is made from, and the second opinions of a reference: at edges, in double, where C is silent."""

from collections.abc import Mapping

import numpy as np
import pytest

from dice_lsp.records import LaunchSpec
from dice_lsp.source.kernels import parse
from dice_lsp.source.launches import launch_spec
from dice_lsp.worker.arguments import Bound, Distribution, bind
from dice_lsp.worker.compile import CompileJob, Compiler, build_keys
from dice_lsp.worker.host import HostBackend
from dice_lsp.worker.launch import Source
from dice_lsp.worker.reference import (
    BadReference,
    Expectation,
    Yardstick,
    by_one_factor,
    longest_sum,
    open_reference,
    whole,
)


def opened(
    host: HostBackend, text: str, dims: Mapping[str, int], baseline: bool = False,
    distribution: Distribution = Distribution.DEFAULT,
) -> tuple[Yardstick, Bound]:  # fmt: skip
    """The reference of a text's last kernel, and one case; with `baseline` the kernel itself is the accepted one."""
    model = parse(text)
    kernel = model.kernels[-1]
    spec: LaunchSpec = launch_spec(text, kernel, model)
    compiler = Compiler()
    job = CompileJob(text, "/nowhere/x.cu", (kernel,), arch="sm_90", templates={kernel.name: spec.template})
    build = compiler.compile(job)[build_keys((kernel,))[0]]
    source = Source(compiler.program(job).device_text, "/nowhere/x.cu", kernel, spec.template, build)
    compiler.close()
    assert spec.reference is not None
    yardstick = open_reference(
        spec.reference, text=text, accepted_text=None, kernel=kernel, buffers=spec.buffers, source=source, backend=host,
        host=host, baseline=source if baseline else None, deadline_s=10.0, seed=3,
    )  # fmt: skip
    assert not isinstance(yardstick, BadReference), yardstick
    bound = bind(spec, kernel, dims, 5, distribution)
    assert isinstance(bound, Bound), bound
    return yardstick, bound


def expected(yardstick: Yardstick, bound: Bound) -> Expectation:
    (answer,) = yardstick.expect([bound])
    assert isinstance(answer, Expectation), answer
    return answer


def file(reference: str, signature: str, directive: str, body: str = "") -> str:
    return f"{reference}\n//dice: {directive}; launch <<<1, 32>>>\n__global__ void f({signature}) {{ {body} }}\n"


ROWS = "const float* x, float* y, int n, int d"
COUNTED = {
    "an elementwise function": (
        file(
            "void f_cpu(const float* x, float* y, int n) { for (int i = 0; i < n; ++i) y[i] = x[i] * x[i] + 1; }",
            "const float* x, float* y, int n", "n = 900; in x[n]; out y[n]; ref f_cpu",
        ), {"n": 900}, 1.0,
    ),
    "row sums": (
        file(
            f"void f_cpu({ROWS}) {{ for (int r = 0; r < n; ++r) {{ y[r] = 0; for (int c = 0; c < d; ++c) y[r] += x[r * d + c]; }} }}",
            ROWS, "n = 20, d = 50; in x[n, d]; out y[n]; ref f_cpu",
        ), {"n": 20, "d": 50}, 50.0,
    ),
    "prefix sums": (
        file("", "const float* x, float* y, int n", "n = 400; in x[n]; out y[n]; ref torch: torch.cumsum(x, 0)"),
        {"n": 400}, 400.0,
    ),
    "a matrix product": (
        file(
            "", "const float* A, const float* B, float* C, int m, int n, int k",
            "m = 20, n = 24, k = 30; in A[m, k], B[k, n]; out C[m, n]; ref torch: A @ B",
        ), {"m": 20, "n": 24, "k": 30}, 30.0,
    ),
    "a row and a bias": (
        file(
            "", "const float* x, const float* b, float* y, int n, int d",
            "n = 20, d = 50; in x[n, d], b[d]; out y[n, d]; ref torch: x * 2 + b",
        ), {"n": 20, "d": 50}, 1.0,
    ),
    "a softmax": (
        file("", ROWS, "n = 20, d = 50; in x[n, d]; out y[n, d]; ref torch: torch.softmax(x, dim=1)"),
        {"n": 20, "d": 50}, 50.0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", COUNTED)
def test_the_terms_of_a_sum_are_counted(host: HostBackend, what: str) -> None:
    text, dims, terms = COUNTED[what]
    yardstick, bound = opened(host, text, dims)
    (output,) = bound.checked
    assert expected(yardstick, bound).terms(output.name, bound) == pytest.approx(terms, rel=0.01)


def test_the_terms_of_a_large_case_follow_from_a_small_one(host: HostBackend) -> None:
    text, dims, _ = COUNTED["row sums"]
    yardstick, small = opened(host, text, dims)
    _, large = opened(host, text, {"n": 100, "d": 400})
    answers = yardstick.expect([small, large])
    assert all(isinstance(answer, Expectation) for answer in answers)
    assert answers[1].terms("y", large) == pytest.approx(400.0, rel=0.01)  # type: ignore[union-attr]
    alone = expected(yardstick, large)
    assert alone.terms("y", large) == longest_sum(large)


def test_no_count_where_integers_are_all_there_is(host: HostBackend) -> None:
    text = file(
        "void f_cpu(const int* x, float* y, int n) { y[0] = 0; for (int i = 0; i < n; ++i) y[0] += x[i]; }",
        "const int* x, float* y, int n", "n = 300; in x[n]; out y[1]; ref f_cpu",
    )  # fmt: skip
    yardstick, bound = opened(host, text, {"n": 300})
    assert expected(yardstick, bound).terms("y", bound) == 300.0


TRUNCATED = file(
    "void f_cpu(const float* x, int* y, int n) { for (int i = 0; i < n; ++i) y[i] = (int)(x[i] * 317.13f + 0.37f); }",
    "const float* x, int* y, int n", "n = 50000; in x[n]: uniform(0, 100); out y[n]; ref f_cpu",
)  # fmt: skip


def test_what_is_cut_down_has_two_answers_at_an_edge_and_nowhere_else(host: HostBackend) -> None:
    yardstick, bound = opened(host, TRUNCATED, {"n": 50000})
    exact = expected(yardstick, bound).values["y"]
    answers = [answer["y"] for answer in yardstick.at_edges(bound, 1.0)]
    assert len(answers) == 9  # with fused multiply-adds, and moved eight times
    lowest, highest = np.min(answers, axis=0), np.max(answers, axis=0)
    assert np.max(highest - lowest) == 1
    assert 10 < np.count_nonzero(highest != lowest) < 2000
    assert np.all((lowest <= exact) & (exact <= highest))
    x = bound.buffers["x"].data
    assert x is not None
    factor, offset = np.float32(317.13), np.float32(0.37)
    # 64 bits hold the product and the sum of floats of this size whole.
    fused = np.trunc(np.float32(x.astype(np.longdouble) * factor + offset)).astype(np.int64)
    assert np.array_equal(answers[0], fused)
    assert np.all((lowest <= fused) & (fused <= highest))
    plain = yardstick.plain(bound)
    assert plain is not None
    twice = np.trunc(x * factor + offset).astype(np.int64)
    assert np.array_equal(plain["y"], twice) and not np.array_equal(plain["y"], fused)


def test_small_whole_numbers_round_nothing(host: HostBackend) -> None:
    _, bound = opened(host, TRUNCATED, {"n": 5000})
    assert not whole(bound)
    _, bound = opened(host, TRUNCATED.replace("uniform(0, 100)", "int(0, 100)"), {"n": 5000})
    assert whole(bound)


SUMS = "void f_cpu(const int* x, long long* y, int n) { int s = 0; for (int i = 0; i < n; ++i) s += x[i]; y[0] = s; }"


def test_a_reference_that_overflows_says_nothing(host: HostBackend) -> None:
    text = file(SUMS, "const int* x, long long* y, int n", "n = 500; in x[n]; out y[1]; ref f_cpu")
    yardstick, bound = opened(host, text, {"n": 500})
    assert yardstick.undefined(bound) is None
    yardstick, bound = opened(host, text, {"n": 500}, distribution=Distribution.LARGE)
    assert isinstance(yardstick.expect([bound])[0], Expectation)
    reason = yardstick.undefined(bound)
    assert reason is not None and "at line 1 for n=500, large values, which C leaves undefined" in reason


def test_unsigned_integers_may_wrap(host: HostBackend) -> None:
    text = file(
        "void f_cpu(const unsigned* x, unsigned* y, int n) { for (int i = 0; i < n; ++i) y[i] = x[i] * 2654435761u << 3; }",
        "const unsigned* x, unsigned* y, int n", "n = 500; in x[n]; out y[n]; ref f_cpu",
    )  # fmt: skip
    yardstick, bound = opened(host, text, {"n": 500}, distribution=Distribution.LARGE)
    assert yardstick.undefined(bound) is None


SERIAL = "if (threadIdx.x) return; float s = 0; for (int i = 0; i < n; ++i) s += x[i]; y[0] = s;"


def test_the_accepted_kernel_is_run_in_double_precision(host: HostBackend) -> None:
    text = file("", "const float* x, float* y, int n", "n = 20000; in x[n]; out y[1]; ref accepted", SERIAL)
    yardstick, bound = opened(host, text, {"n": 20000}, baseline=True)
    own = expected(yardstick, bound)
    exact = yardstick.exactly(bound)
    assert exact is not None and own.rounded and not exact.rounded
    x = bound.buffers["x"].data
    assert x is not None
    assert exact.values["y"][0] == pytest.approx(float(np.sum(x.astype(np.float64))), rel=1e-12)
    assert own.values["y"][0] != exact.values["y"][0]
    assert own.values["y"][0] == pytest.approx(exact.values["y"][0], abs=1e-2)


def test_halves_are_not_run_in_double_precision(host: HostBackend) -> None:
    text = "#include <cuda_fp16.h>\n" + file(
        "", "const __half* x, __half* y, int n", "n = 64; in x[n]; out y[n]; ref accepted",
        "for (int i = threadIdx.x; i < n; i += 32) y[i] = __hadd(x[i], x[i]);",
    )  # fmt: skip
    yardstick, bound = opened(host, text, {"n": 64}, baseline=True)
    expected(yardstick, bound)
    assert yardstick.exactly(bound) is None


@pytest.mark.parametrize("header", ["cuda_fp16.h", "cuda_bf16.h", "cuComplex.h"])
def test_an_included_header_does_not_cost_the_double_precision(host: HostBackend, header: str) -> None:
    yardstick, bound = opened(host, f"#include <{header}>\n" + COUNTED["row sums"][0], {"n": 20, "d": 50})
    assert yardstick.precise
    x = bound.buffers["x"].data
    assert x is not None
    sums = x.astype(np.float64).reshape(20, 50).sum(axis=1)
    np.testing.assert_allclose(expected(yardstick, bound).values["y"], sums, rtol=1e-13, atol=1e-13)


def test_a_function_that_reads_before_a_buffer_is_not_made_for_that_size(host: HostBackend) -> None:
    text = file(
        f"void f_cpu({ROWS}) {{ for (int r = 0; r < n; ++r) y[r] = x[r * d + d - 1] - x[r * d + d - 2]; }}",
        ROWS, "n = 5, d = 9; in x[n, d]; out y[n]; ref f_cpu",
    )  # fmt: skip
    yardstick, bound = opened(host, text, {"n": 5, "d": 9})
    expected(yardstick, bound)
    _, short = opened(host, text, {"n": 5, "d": 1})
    (answer,) = yardstick.expect([short])
    assert isinstance(answer, BadReference) and "x[-1]" in answer.reason


@pytest.mark.parametrize(
    "expression, free",
    [("2.5 * x", True), ("torch.relu(x)", True), ("x * x", True), ("torch.sqrt(x * x)", True), ("x.abs().sqrt()", True),
     ("torch.tanh(x)", False), ("x + 1e-3", False), ("torch.sigmoid(x)", False), ("x / (x.abs() + 1e-6)", False)],
)  # fmt: skip
def test_only_what_has_no_scale_of_its_own_can_be_judged_by_tiny_numbers(
    host: HostBackend, expression: str, free: bool
) -> None:
    text = file("", "const float* x, float* y, int n", f"n = 300; in x[n]; out y[n]; ref torch: {expression}")
    yardstick, bound = opened(host, text, {"n": 300}, distribution=Distribution.TINY)
    assert yardstick.scale_free(bound, "y") is free


def test_one_factor_is_one_for_all_numbers() -> None:
    values = np.array([1.0, -2.0, 0.0, np.inf])
    assert by_one_factor(values, values * 64.0, 8.0)
    assert not by_one_factor(values, values * np.array([64.0, 64.1, 1.0, 1.0]), 8.0)
