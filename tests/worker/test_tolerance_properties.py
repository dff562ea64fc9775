"""What holds for the comparison of any tensor with any other."""

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from dice_lsp.worker.elements import Element, element_of
from dice_lsp.worker.tolerance import Difference, at_edges, compare, either, relative_tolerance


def element(name: str) -> Element:
    found = element_of(name)
    assert found is not None
    return found


FLOAT, INT = element("float"), element("int")
FLOATS = st.sampled_from([element(name) for name in ("float", "double", "__half", "__nv_bfloat16")])
calm = settings(deadline=None)
"""A busy machine is no fault of an example."""
TERMS = st.sampled_from([1.0, 33.0, 4096.0, 1e6])
# Far from the ends of every type, where scaling by a power of two would round.
ORDINARY = st.floats(1e-2, 1e2) | st.floats(-1e2, -1e2 / 1e4)
TENSORS = arrays.arrays(np.float64, st.integers(1, 200), elements=ORDINARY)


def noise(expected: np.ndarray, seed: int, step: float) -> np.ndarray:
    """`expected` with a random relative error of at most `step` in each number."""
    return expected * (1.0 + step * np.random.default_rng(seed).uniform(-1.0, 1.0, expected.size))


def judged(
    expected: np.ndarray, seed: int, share: float, terms: float, what: Element = FLOAT
) -> tuple[np.ndarray, Difference]:
    got = what.encode(noise(expected, seed, share * relative_tolerance(what, terms)))
    return got, compare(got, expected, what, spread=np.abs(expected), accumulated=terms)


@calm
@given(TENSORS, st.integers(0, 2**31), st.floats(0.1, 3.0), TERMS)
def test_the_sign_makes_no_difference(expected: np.ndarray, seed: int, share: float, terms: float) -> None:
    got, verdict = judged(expected, seed, share, terms)
    mirrored = compare(-got, -expected, FLOAT, spread=np.abs(expected), accumulated=terms)
    assert (mirrored.agrees, mirrored.max_error, mirrored.index) == (verdict.agrees, verdict.max_error, verdict.index)


@calm
@given(TENSORS, st.integers(0, 2**31), st.floats(0.1, 3.0), TERMS, st.integers(-60, 60))
def test_the_size_makes_no_difference(expected: np.ndarray, seed: int, share: float, terms: float, power: int) -> None:
    got, verdict = judged(expected, seed, share, terms)
    factor = 2.0**power
    scaled = compare(
        got * np.float32(factor), expected * factor, FLOAT, spread=np.abs(expected) * factor, accumulated=terms
    )
    # What may be flushed beside ordinary numbers is a part in 1e15 of these.
    assert np.isclose(scaled.max_error, verdict.max_error, rtol=1e-9)
    assert scaled.agrees == verdict.agrees or np.isclose(verdict.max_error, 1.0, rtol=1e-9)


@calm
@given(TENSORS, st.integers(0, 2**31), st.floats(0.1, 3.0), TERMS)
def test_the_order_makes_no_difference(expected: np.ndarray, seed: int, share: float, terms: float) -> None:
    got, verdict = judged(expected, seed, share, terms)
    order = np.random.default_rng(seed).permutation(expected.size)
    shuffled = compare(got[order], expected[order], FLOAT, spread=np.abs(expected)[order], accumulated=terms)
    assert shuffled.agrees == verdict.agrees and shuffled.max_error == verdict.max_error
    assert shuffled.wrong_elements == verdict.wrong_elements


@calm
@given(
    arrays.arrays(np.float64, st.integers(1, 200), elements=st.floats(-1e30, 1e30, allow_subnormal=False)),
    FLOATS, TERMS, st.booleans(), st.floats(1.0, 8.0),
)  # fmt: skip
def test_zeros_are_refused_for_any_other_tensor(
    expected: np.ndarray, what: Element, terms: float, measured: bool, slack: float
) -> None:
    stored = what.round(expected)
    # Below the normal numbers of a type a step may be all there is.
    assume(np.isfinite(stored).all() and np.abs(stored).max() > 1e-4)
    spread = np.abs(expected) if measured else None
    zeros = np.zeros(expected.size, what.storage)
    assert not compare(zeros, expected, what, spread=spread, accumulated=terms, slack=slack).agrees


@calm
@given(
    arrays.arrays(np.float64, st.integers(1, 300), elements=st.floats(width=64)),
    FLOATS, TERMS, st.booleans(), st.booleans(),
)  # fmt: skip
def test_the_exact_result_rounded_to_its_type_is_always_accepted(
    expected: np.ndarray, what: Element, terms: float, rounded: bool, denormals: bool
) -> None:
    with np.errstate(over="ignore"):
        verdict = compare(
            what.encode(expected), expected, what, accumulated=terms, rounded=rounded, denormals=denormals
        )
    assert verdict.agrees and verdict.max_error == 0.0


@calm
@given(TENSORS, FLOATS, st.integers(0, 2**31), st.integers(1, 4))
def test_a_few_roundings_of_float_on_the_way_are_always_accepted(
    expected: np.ndarray, what: Element, seed: int, steps: int
) -> None:
    got = what.encode(noise(expected, seed, min(steps * 2.0**-24, 1e-8 if what.storage == np.float64 else 1.0)))
    assert compare(got, expected, what, spread=np.abs(expected)).agrees


@calm
@given(TENSORS, st.integers(0, 2**31), TERMS, st.data())
def test_one_number_far_off_is_always_found(expected: np.ndarray, seed: int, terms: float, data: st.DataObject) -> None:
    got = FLOAT.encode(noise(expected, seed, 2.0**-24))
    at = data.draw(st.integers(0, expected.size - 1))
    limit = relative_tolerance(FLOAT, terms) * max(abs(expected[at]), 0.5 * float(np.median(np.abs(expected))))
    got[at] += np.float32(np.copysign(2.0 * limit, expected[at]))
    verdict = compare(got, expected, FLOAT, spread=np.abs(expected), accumulated=terms)
    assert not verdict.agrees and verdict.rule == "element" and verdict.index == at


@calm
@given(arrays.arrays(np.int32, st.integers(1, 100), elements=st.integers(-1000, 1000)), st.data())
def test_an_integer_is_excused_at_an_edge_only(expected: np.ndarray, data: st.DataObject) -> None:
    edge = data.draw(st.integers(0, expected.size - 1))
    other = expected.copy()
    other[edge] += 1
    got = expected.copy()
    got[edge] += data.draw(st.sampled_from([0, 1]))
    assert np.array_equal(at_edges(got, expected, [other], INT), got)
    got[edge] = expected[edge] + 2
    assert np.array_equal(at_edges(got, expected, [other], INT), expected)
    if expected.size > 1:
        beside = (edge + 1) % expected.size
        got[beside] += 1
        assert at_edges(got, expected, [other], INT)[beside] == expected[beside]


@calm
@given(TENSORS, st.data())
def test_a_float_is_excused_where_it_jumps_only(expected: np.ndarray, data: st.DataObject) -> None:
    edge = data.draw(st.integers(0, expected.size - 1))
    other = expected * (1.0 + 1e-7)
    other[edge] = expected[edge] + 1.0
    got = FLOAT.encode(expected)
    got[edge] = np.float32(other[edge])
    excused = at_edges(got, expected, [other], FLOAT, spread=np.abs(expected))
    assert compare(got, excused, FLOAT, spread=np.abs(expected)).agrees
    got = FLOAT.encode(expected * 1.001)
    same = at_edges(got, expected, [expected * (1.0 + 5e-6)], FLOAT, spread=np.abs(expected))
    assert np.array_equal(same, expected)


@calm
@given(TENSORS, st.integers(0, 2**31))
def test_single_precision_is_an_alternative_and_no_wildcard(expected: np.ndarray, seed: int) -> None:
    plain = expected * 2.0
    mixed = np.random.default_rng(seed).random(expected.size) < 0.5
    got = FLOAT.encode(np.where(mixed, plain, expected))
    assert compare(got, either(got, expected, plain, FLOAT), FLOAT).agrees
    neither = FLOAT.encode(expected * 1.5)
    assert not compare(neither, either(neither, expected, plain, FLOAT), FLOAT).agrees
