"""One rule must refuse zeros for a softmax and accept an honest tree sum over +-10 000."""

import numpy as np
import pytest

from dice_lsp.records import Tolerance
from dice_lsp.worker.elements import Element, element_of
from dice_lsp.worker.tolerance import choose, compare, relative_tolerance


def element(name: str) -> Element:
    found = element_of(name)
    assert found is not None
    return found


FLOAT, HALF, BF16, DOUBLE, INT = (element(n) for n in ("float", "__half", "__nv_bfloat16", "double", "int"))
rng = np.random.default_rng(5)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(1, keepdims=True))
    return (e / e.sum(1, keepdims=True)).reshape(-1)


def test_zeros_fail_a_wide_softmax() -> None:
    # KernelBench #165: with a fixed atol of 1e-2 a tensor of zeros passes, its largest element is 4e-6.
    expected = softmax(rng.standard_normal((16, 393_216 // 16)))
    assert expected.max() < 1e-2
    assert compare(expected.astype(np.float32), expected, FLOAT, accumulated=24_576).agrees
    zeros = compare(np.zeros(expected.size, np.float32), expected, FLOAT, accumulated=24_576)
    assert not zeros.agrees and zeros.got == "0" and zeros.wrong_elements > 0.9 * expected.size


@pytest.mark.parametrize("what", [HALF, BF16])
def test_zeros_fail_in_narrow_types(what: Element) -> None:
    expected = softmax(rng.standard_normal((8, 4096)))
    assert compare(what.encode(expected), expected, what, accumulated=4096).agrees
    assert not compare(what.encode(np.zeros(expected.size)), expected, what, accumulated=4096).agrees


def tree_sum(terms: np.ndarray) -> np.ndarray:
    terms = terms.astype(np.float32)
    lanes = np.zeros((terms.shape[0], 32), np.float32)
    for start in range(0, terms.shape[1], 32):
        lanes[:, : min(32, terms.shape[1] - start)] += terms[:, start : start + 32]
    while lanes.shape[1] > 1:
        lanes = lanes[:, : lanes.shape[1] // 2] + lanes[:, lanes.shape[1] // 2 :]
    return lanes[:, 0]


def test_an_honest_gemv_over_large_inputs_passes() -> None:
    # tensara #5: a block of 32 threads per row, a tree sum, inputs of +-10 000.
    a = rng.uniform(-1e4, 1e4, (256, 1000)).astype(np.float32)
    x = rng.uniform(-1e4, 1e4, 1000).astype(np.float32)
    exact = a.astype(np.float64) @ x
    got = tree_sum(a * x)
    moved = (a * (1 + 1e-6 * rng.choice([-1, 1], a.shape))) @ (x * (1 + 1e-6 * rng.choice([-1, 1], x.shape)))
    spread = np.abs(moved - exact) / 1e-6
    worst_relative = np.max(np.abs(got - exact) / np.abs(exact))
    assert worst_relative > 1e-6  # a plain relative rule at this level refuses it
    verdict = compare(got, exact, FLOAT, spread=spread, accumulated=1000)
    assert verdict.agrees and 0 < verdict.max_error < 0.5
    assert not compare(got * np.float32(1.001), exact, FLOAT, spread=spread, accumulated=1000).agrees
    assert not compare(np.zeros_like(got), exact, FLOAT, spread=spread, accumulated=1000).agrees


def test_a_serial_scan_passes_and_a_shifted_one_does_not() -> None:
    x = rng.standard_normal(50_000).astype(np.float32)
    exact = np.cumsum(x.astype(np.float64))
    got = np.cumsum(x, dtype=np.float32)
    moved = np.cumsum(x * (1 + 1e-6 * rng.choice([-1.0, 1.0], x.size)))
    spread = np.abs(moved - exact) / 1e-6
    assert compare(got, exact, FLOAT, spread=spread, accumulated=50_000).agrees
    assert not compare(
        np.concatenate([[0], got[:-1]]).astype(np.float32), exact, FLOAT, spread=spread, accumulated=50_000
    ).agrees


def test_a_wrong_factor_that_hides_below_the_elementwise_rule_is_seen() -> None:
    expected = rng.uniform(1, 2, 4096)
    limit = relative_tolerance(FLOAT, 4096)
    scaled = (expected * (1 + 0.6 * limit)).astype(np.float32)
    verdict = compare(scaled, expected, FLOAT, accumulated=4096)
    assert not verdict.agrees and verdict.rule == "bias"
    assert compare(expected.astype(np.float32), expected, FLOAT, accumulated=4096).agrees


@pytest.mark.parametrize(
    "got, expected, agrees",
    [
        ([np.nan, 1], [np.nan, 1], True), ([0, 1], [np.nan, 1], False), ([np.nan, 1], [0, 1], False),
        ([np.inf, 1], [np.inf, 1], True), ([-np.inf, 1], [np.inf, 1], False), ([3e38, 1], [np.inf, 1], False),
        ([np.inf, 1], [1e300, 1], True), ([-0.0, 1], [0.0, 1], True),
    ],
)  # fmt: skip
def test_nan_and_infinity_are_exact(got: list[float], expected: list[float], agrees: bool) -> None:
    assert compare(np.array(got, np.float32), np.array(expected), FLOAT).agrees is agrees


def test_integers_are_exact_and_wrap_as_in_c() -> None:
    verdict = compare(np.array([1, 2, 4], np.int32), np.array([1, 2, 3]), INT)
    assert (verdict.index, verdict.got, verdict.expected, verdict.wrong_elements) == (2, "4", "3", 1)
    assert compare(np.array([-(2**31)], np.int32), np.array([2**31]), INT).agrees
    big = element("unsigned long long")
    assert not compare(np.array([2**63 + 1], np.uint64), np.array([2**63], np.uint64), big).agrees


def test_the_directives_tolerance_wins() -> None:
    expected = np.array([1.0, 2.0])
    off = np.array([1.001, 2.0], np.float32)
    assert not compare(off, expected, FLOAT).agrees
    assert compare(off, expected, FLOAT, tolerance=Tolerance("", rtol=1e-2)).agrees
    assert compare(off, expected, FLOAT, tolerance=Tolerance("", rtol=0.0, atol=0.01)).agrees
    assert not compare(off, expected, FLOAT, tolerance=Tolerance("", rtol=1e-5, atol=1e-5)).agrees
    next_up = np.nextafter(expected.astype(np.float32), np.float32(9))
    assert not compare(next_up, expected, FLOAT, tolerance=Tolerance("", exact=True)).agrees
    assert compare(next_up, expected, FLOAT, tolerance=Tolerance("", ulp=1)).agrees
    two_up = np.nextafter(next_up, np.float32(9))
    assert not compare(two_up, expected, FLOAT, tolerance=Tolerance("", ulp=1)).agrees


def test_a_buffers_own_tolerance_is_chosen() -> None:
    own, general = Tolerance("z", rtol=1e-2), Tolerance("", exact=True)
    assert choose((general, own), "z") is own
    assert choose((general, own), "y") is general
    assert choose((own,), "y") is None


def test_slack_is_bounded() -> None:
    expected = np.full(8, 1.0)
    off = np.full(8, 1 + 30e-6, np.float32)
    assert not compare(off, expected, FLOAT, slack=1e9).agrees
    assert compare(np.full(8, 1 + 10e-6, np.float32), expected, FLOAT, slack=1e9).agrees


def test_numbers_that_print_alike_are_told_apart() -> None:
    verdict = compare(np.array([1.0], np.float64), np.array([1.0 + 1e-9]), DOUBLE, tolerance=Tolerance("", exact=True))
    assert not verdict.agrees and verdict.got != verdict.expected


@pytest.mark.parametrize("value", [0.0, 1.0, -2.5, 1e-40, 3.0e38, 65504.0, np.inf, -np.inf])
def test_bfloat16_goes_there_and_back(value: float) -> None:
    once = BF16.decode(BF16.encode(np.array([value])))
    assert np.array_equal(BF16.decode(BF16.encode(once)), once)
    if np.isfinite(once[0]) and abs(value) > 1e-37:
        assert once[0] == pytest.approx(value, rel=2**-8)


def test_bfloat16_rounds_to_nearest_even() -> None:
    import torch

    values = np.concatenate(
        [rng.standard_normal(4000) * 10.0 ** rng.integers(-30, 30, 4000), [1 + 2**-8, 1 + 3 * 2**-8]]
    )
    values = values.astype(np.float32)
    theirs = torch.from_numpy(values).bfloat16().view(torch.int16).numpy().view(np.uint16)
    assert np.array_equal(BF16.encode(values), theirs)
    assert np.isnan(BF16.decode(BF16.encode(np.array([np.nan])))[0])


def test_a_double_with_the_digits_of_a_float_is_seen() -> None:
    expected = rng.standard_normal(1000)
    rounded = expected.astype(np.float32).astype(np.float64)
    assert np.max(np.abs(rounded - expected) / np.abs(expected)) < 1e-7  # elementwise it would pass
    verdict = compare(rounded, expected, DOUBLE)
    assert not verdict.agrees and verdict.rule == "precision"
    assert compare(np.nextafter(expected, 9.0), expected, DOUBLE).agrees
    assert compare(rounded, rounded, DOUBLE).agrees
    assert compare(np.arange(1.0, 99.0), np.arange(1.0, 99.0) + 1e-12, DOUBLE).agrees
    assert compare(rounded, expected, DOUBLE, tolerance=Tolerance("", rtol=1e-7)).agrees


@pytest.mark.parametrize("what", [HALF, BF16])
def test_narrow_numbers_that_are_cut_off_are_seen(what: Element) -> None:
    expected = rng.standard_normal(1000)
    nearest = what.round(expected)
    step = np.exp2(np.floor(np.log2(np.abs(expected)))) * what.epsilon
    outward = np.abs(nearest) > np.abs(expected)
    towards_zero = np.where(outward, nearest - np.sign(expected) * step, nearest)
    upward = np.where(nearest < expected, nearest + step, nearest)
    for stored in (towards_zero, upward):
        verdict = compare(what.encode(stored), expected, what, spread=np.abs(expected))
        assert not verdict.agrees and verdict.rule == "bias"
    # A coefficient that was rounded to the type shifts all numbers, but does not put them all to one side.
    factor = 1.0 + 0.3 * what.epsilon
    assert compare(what.encode(expected * factor), expected, what, spread=np.abs(expected)).agrees


def test_a_tensor_of_one_value_is_seen() -> None:
    # Every number is far below the rounding of what it was made from, so zeros are inside of each one's tolerance.
    expected = rng.uniform(0.5, 1.0, 200)
    spread = np.full(200, 1e7)
    verdict = compare(np.zeros(200, np.float32), expected, FLOAT, spread=spread)
    assert not verdict.agrees and verdict.rule == "bias"
    assert compare((expected + rng.standard_normal(200)).astype(np.float32), expected, FLOAT, spread=spread).agrees


def test_errors_of_the_largest_numbers_alone_are_seen() -> None:
    # Most numbers are exact, so the mean square of the shares is small; what is off is what counts.
    expected = np.concatenate([np.ones(900), 1e6 * np.ones(100)])
    got = expected * (1 + np.where(expected > 1, 0.9, 0.0) * relative_tolerance(FLOAT, 1e4) * rng.choice([-1, 1], 1000))
    spread = np.abs(expected)
    verdict = compare(got.astype(np.float32), expected, FLOAT, spread=spread, accumulated=1e4)
    assert not verdict.agrees and verdict.rule == "bias"


def test_halves_of_an_exact_reference_have_no_room_for_a_long_sum() -> None:
    expected = rng.standard_normal(500)
    off = HALF.encode(expected * (1 + 4e-3 * rng.choice([-1, 1], 500)))
    assert not compare(off, expected, HALF, accumulated=1000, spread=np.abs(expected)).agrees
    assert compare(off, expected, HALF, accumulated=1000, spread=np.abs(expected), rounded=True).agrees


def test_where_all_is_zero_the_inputs_tell_the_scale() -> None:
    # The variance of one number, in one pass and with a fused product.
    expected, got = np.zeros(1), np.array([2e-8], np.float32)
    assert not compare(got, expected, FLOAT, spread=np.zeros(1)).agrees
    assert compare(got, expected, FLOAT, spread=np.zeros(1), made_of=1.0).agrees
    assert not compare(np.array([1e-4], np.float32), expected, FLOAT, spread=np.zeros(1), made_of=1.0).agrees
    assert not compare(got, np.array([1e-9]), FLOAT, spread=np.array([1e-9]), made_of=1.0).agrees


def test_denormals_count_where_inputs_are_tiny() -> None:
    expected = np.array([1e-15, 3e-42])
    flushed = np.array([1e-15, 0], np.float32)
    assert compare(flushed, expected, FLOAT, spread=expected).agrees
    assert not compare(flushed, expected, FLOAT, spread=expected, denormals=True).agrees
    assert compare(expected.astype(np.float32), expected, FLOAT, spread=expected, denormals=True).agrees


def test_what_underflows_beside_large_numbers_may_be_zero() -> None:
    expected = np.array([1e8, -3.0, 1e-34])
    assert compare(np.array([1e8, -3, 0], np.float32), expected, FLOAT, spread=np.abs(expected)).agrees
    alone = np.array([1e-34, 2e-34])
    assert not compare(np.zeros(2, np.float32), alone, FLOAT, spread=alone).agrees
