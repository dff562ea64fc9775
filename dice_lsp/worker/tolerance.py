"""One rule for how far an output may be from its reference.

The formula
-----------
Number `i` of an output may differ from its expected value by

    allowed_i = slack * r(type, K) * magnitude_i + tiny

`magnitude_i` is how large the numbers are that went into it: the larger of |expected_i| and of its measured sensitivity,
which is how much the reference moves when its inputs move by a rounding-size step. So a sum that cancels may be off by
what its terms round to, while a softmax element of 1e-6 may only be off by a fraction of 1e-6: zeros are refused and an
honest tree sum over +-1e4 is not. Half the median of the tensor is a floor, for a random step may happen to leave a number
where it was. Moving the inputs and calling what then comes out right as well is the backward error (Higham, Accuracy
and Stability of Numerical Algorithms, 2nd ed., 1.5).

`r` is the relative error that honest arithmetic in the type makes:

    float     8 * 2^-24 * sqrt(K), at least 2e-6 and at most 1e-3
    half      2e-3: two steps of half a unit in the last place, and a coefficient rounded to half
    bfloat16  1.6e-2: two units in the last place (as torch.testing)
    double    1e-7 (as torch.testing), for a kernel in double may use float constants

`K` is how many terms one output is accumulated from; the error of a sum of rounded terms grows with its square root
(Higham, 2.8; Higham and Mary, A New Approach to Probabilistic Rounding Error Analysis, SIAM J. Sci. Comput. 41, 2019).
A serial sum of N(0,1) terms is off by 0.5 * 2^-24 * sqrt(K) of its sensitivity, so 8 is 15 standard deviations. `K` is
measured, not guessed: one input is changed and the outputs that follow are counted (`reference.fan_in`); elementwise
work has 1 however long it is. Where an expected value comes from a kernel in half or bfloat16 it has errors of that kind
itself, and `r` grows with a small power of K.

`slack` is 1, or twice the error (in units of the rule) that the accepted kernel, or the reference itself in single
precision, makes in this very case, but no more than `MAX_SLACK`: steps that no input shows also round. `tiny` is a
denormal's step; what falls below the normal range beside numbers of ordinary size may be flushed, unless it is about tiny inputs.

Where all expected values are zero and stay zero whatever the inputs do, as the variance of one number does, the size of
the inputs, or its square, is the magnitude.

NaN must meet NaN and an infinity its like. Integers, and floats under `exact`, agree exactly. A `tol` of the directive
replaces `r`, with `atol` the magnitudes too.

What the whole tensor must say
------------------------------
One element may be anything below `allowed_i`; many may not all be. For tensors of at least 64 numbers, in units of
`allowed_i` (the same checks as flashinfer's and KernelBench's reviews ask for: relative L2, mean signed error, count):

    count      no element at all is outside
    rms        the root mean square is at most 0.5
    L2         |got - expected| / |allowed| is at most 0.5; for small errors the cosine says the same, squared
    bias       the mean error, and the mean of error * sign(expected), are at most 0.3
    rounding   halves and bfloat16 are not all cut off towards one side
    constant   all equal, where the expected ones are not
    precision  doubles have more digits than a float, where the expected ones do

At an edge
----------
Where a reference cuts a float down to an integer, compares, or divides by zero, rounding decides which way it goes.
`either` takes, element by element, what the reference gives in another arithmetic of the same standing: in single precision,
with fused multiply-adds, or with inputs moved by a rounding. Integers must be one of those values; floats must jump.
"""

from collections.abc import Sequence

import numpy as np
from attrs import frozen

from dice_lsp.records import Tolerance
from dice_lsp.worker.elements import Array, Element, Kind

MAX_SLACK = 8.0
"""However bad the accepted kernel is, a candidate may be at most this many times beyond the rule."""
_TENSOR_ELEMENTS = 64
_RMS_LIMIT = 0.5
_BIAS_LIMIT = 0.3
_NARROWED_ELEMENTS = 8
_JUMP = 8.0
"""A float that rounding moves by more than so many times what is allowed has gone another way."""
_ORDINARY = 2.0**48
"""A number so many times the smallest normal one has nothing to do with denormals."""
_DENORMAL_STEPS = 4
_EDGE_STEPS = 2
"""Integers that rounding moves by no more than this are steps of a scale, and the ones between are right as well."""


@frozen
class Difference:
    """How an output compares with its reference. `max_error` is in units of the tolerance: 1.0 is at its edge."""

    max_error: float
    wrong_elements: int
    total_elements: int
    index: int = -1
    """The first wrong number, -1 when all agree."""
    got: str = ""
    expected: str = ""
    rule: str = ""
    """Which rule it broke: `element`, `nan`, `exact`, `unchanged`, `bias`, `precision`. `bias` is any of the whole tensor."""

    @property
    def agrees(self) -> bool:
        return self.index < 0


def relative_tolerance(element: Element, accumulated: float, rounded: bool = False) -> float:
    """`r` of one element type for sums of `accumulated` terms (1 for elementwise work).

    With `rounded` the expected values come from a kernel that may have accumulated in the element's own type.
    """
    terms = max(1.0, accumulated)
    if element.bfloat16:
        return float(min(3.2e-2, 1.6e-2 * terms**0.125)) if rounded else 1.6e-2
    match element.storage.itemsize:
        case 2:
            return float(min(1e-2, 2e-3 * terms**0.25)) if rounded else 2e-3
        case 4:
            return float(np.clip(8 * 2.0**-24 * np.sqrt(terms), 2e-6, 1e-3))
        case _:
            return 1e-7


def magnitudes(expected: Array, spread: Array | None, alone: bool = False) -> Array:
    """The size of the numbers that each expected number was made from (see the module's docstring).

    Args:
        expected: float64, flat.
        spread: absolute change of each number per unit relative change of the inputs, or None where it is unknown.
        alone: each number counts for itself, whatever the size of its neighbours.
    """
    size = np.abs(np.where(np.isfinite(expected), expected, 0.0))
    if spread is None:
        # Without a measured sensitivity a cancelled sum cannot be told from a small number; the root mean square of
        # the tensor stands in, so only a number far below its neighbours gets more room.
        rms = float(np.sqrt(np.mean(np.square(size)))) if size.size else 0.0
        return np.maximum(size, rms)
    size = np.maximum(size, np.where(np.isfinite(spread), spread, 0.0))
    if alone:
        return size
    # A random step can happen to leave a number where it was; half of what is usual for the tensor is a safe floor.
    return np.maximum(size, 0.5 * float(np.median(size)) if size.size else 0.0)


def compare(
    got: Array,
    expected: Array,
    element: Element,
    *,
    spread: Array | None = None,
    accumulated: float = 1.0,
    tolerance: Tolerance | None = None,
    slack: float = 1.0,
    rounded: bool = False,
    denormals: bool = False,
    made_of: float = 0.0,
) -> Difference:
    """Compare one output, flat, with its reference.

    Args:
        got: as stored by the kernel.
        expected: float64 for float elements, integers for the rest, same length.
        spread: see `magnitudes`.
        accumulated: number of terms behind each output.
        tolerance: the directive's own, which replaces the rule.
        slack: factor from the accepted kernel's or the reference's own error, clipped to 1..`MAX_SLACK`.
        rounded: see `relative_tolerance`.
        denormals: they count too, whatever stands beside them.
        made_of: size of the inputs, which is all that tells how large a rounding error is where every expected value and
            every change of one is zero.
    """
    if element.kind is not Kind.FLOAT:
        return _compare_exact(got, expected, element, tolerance)
    values = element.decode(got)
    stored = element.round(expected)
    if tolerance is not None and tolerance.exact:
        return _report(~_same(values, stored), values, stored, element, np.inf, "exact")
    if np.array_equal(values, stored):
        return Difference(0.0, 0, got.size)
    nan = np.isnan(values) != np.isnan(stored)
    infinite = np.isinf(values) | np.isinf(stored)
    nan |= infinite & (values != stored) & ~np.isnan(values) & ~np.isnan(stored)
    if nan.any():
        return _report(nan, values, stored, element, np.inf, "nan")
    finite = np.isfinite(stored)
    allowed = _allowed(stored, element, spread, accumulated, tolerance, slack, rounded, denormals)
    if tolerance is None and not expected.any() and (spread is None or not spread.any()):
        allowed = allowed + relative_tolerance(element, accumulated, rounded) * made_of
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        error = np.where(finite, values - expected, 0.0)
        # The reference is rounded too: what the type cannot say is no error.
        error = np.where(np.abs(values - stored) < np.abs(error), values - stored, error)
        units = np.where(error == 0, 0.0, error / np.where(allowed > 0, allowed, 1e-300))
        units = np.where(finite, units, 0.0)
    magnitude = np.abs(units)
    worst = float(magnitude.max()) if magnitude.size else 0.0
    wrong = magnitude > 1.0
    if wrong.any():
        return _report(wrong, values, stored, element, worst, "element")
    if tolerance is not None:
        return Difference(worst, 0, got.size)
    if element.storage == np.float64 and (narrowed := _narrowed(values, stored)).any():
        return _report(narrowed, values, stored, element, worst, "precision")
    if units.size >= _TENSOR_ELEMENTS and (
        _one_sided(units, allowed, stored) or _constant(values, stored) or _cut_off(values, expected, element)
    ):
        return _report(magnitude == worst, values, stored, element, worst, "bias", count=units.size)
    return Difference(worst, 0, got.size)


def _one_sided(units: Array, allowed: Array, expected: Array) -> bool:
    """Errors that are not those of rounding, which have both signs and are mostly small.

    A tensor whose every element is off the same way, or nearly at its limit, is a wrong factor that hides below the
    elementwise rule.
    """
    shifted, scaled = abs(float(np.mean(units))), abs(float(np.mean(units * np.sign(expected))))
    with np.errstate(over="ignore", invalid="ignore"):
        # Not by linear algebra, whose threads may wait for ever while another thread starts a process.
        share = np.square(allowed / max(float(allowed.max()), 1e-300))
        distance = float(np.sqrt(np.sum(np.square(units) * share) / max(float(np.sum(share)), 1e-300)))
    rms = float(np.sqrt(np.mean(np.square(units))))
    return max(rms, distance) > _RMS_LIMIT or max(shifted, scaled) > _BIAS_LIMIT


def _constant(values: Array, expected: Array) -> bool:
    """All numbers are one, and hardly any of the expected ones is another's equal."""
    return bool((values == values[0]).all()) and np.unique(expected).size > values.size // 2


def _cut_off(values: Array, expected: Array, element: Element) -> bool:
    """Narrow numbers that were stored by dropping bits: up to a step off, half a step on average, all to one side."""
    if element.storage.itemsize != 2:
        return False
    lowest = 2.0**-126 if element.bfloat16 else float(np.finfo(element.storage).tiny)
    size = np.abs(expected)
    seen = np.isfinite(expected) & np.isfinite(values) & (size > 64 * lowest)
    if int(seen.sum()) < _TENSOR_ELEMENTS:
        return False
    steps = np.exp2(np.floor(np.log2(size[seen]))) * element.epsilon
    off = (values[seen] - expected[seen]) / steps
    sides = (off, off * np.sign(expected[seen]))
    return any(
        float(np.mean(way * side)) > 0.25 and float((way * side).min()) > -0.02 and float(np.abs(off).max()) <= 1.02
        for side in sides
        for way in (1.0, -1.0)
    )


def _narrowed(values: Array, expected: Array) -> Array:
    """Mask of the doubles that say no more than a float does although the reference says more; empty unless all do."""
    with np.errstate(over="ignore", invalid="ignore"):
        wide = np.isfinite(expected) & (np.abs(expected - expected.astype(np.float32)) > 1e-9 * np.abs(expected))
        kept = wide & (values != values.astype(np.float32))
    return wide if wide.sum() >= _NARROWED_ELEMENTS and not kept.any() else np.zeros_like(wide)


def either(
    got: Array, expected: Array, plain: Array, element: Element, *, accumulated: float = 1.0,
    tolerance: Tolerance | None = None, rounded: bool = False,
) -> Array:  # fmt: skip
    """`expected`, but what the reference gives in single precision wherever `got` agrees with that.

    Rounding to an integer, an overflow on the way, or a comparison may go another way in double precision; a kernel
    that does what its reference does in its own precision is right.
    """
    if element.kind is not Kind.FLOAT:
        return np.where(got == element.encode(plain), plain, expected)
    values, stored = element.decode(got), element.round(plain)
    allowed = _allowed(stored, element, None, accumulated, tolerance, 1.0, rounded)
    with np.errstate(invalid="ignore"):
        agrees = (np.abs(values - stored) <= allowed) | _same(values, stored)
    return np.where(agrees, plain, expected)


def at_edges(
    got: Array, expected: Array, others: Sequence[Array], element: Element, *, spread: Array | None = None,
    accumulated: float = 1.0, tolerance: Tolerance | None = None,
) -> Array:  # fmt: skip
    """`expected`, but another answer of the reference wherever rounding makes it jump and `got` has jumped as well.

    Args:
        got: as stored by the kernel.
        expected: the reference's answer.
        others: its answers with fused multiply-adds, or for inputs moved by what one rounding may do.
        element: of the output.
        spread: see `magnitudes`.
        accumulated: number of terms behind each output.
        tolerance: the directive's own.
    """
    result = np.asarray(expected)
    if element.kind is not Kind.FLOAT:
        answers = np.stack([element.encode(other) for other in (expected, *others)])
        lowest, highest = answers.min(axis=0), answers.max(axis=0)
        near = (highest.astype(np.float64) - lowest.astype(np.float64)) <= _EDGE_STEPS
        taken = (answers == got).any(axis=0) | (near & (lowest <= got) & (got <= highest))
        return np.where(taken, got, result)
    values, stored = element.decode(got), element.round(expected)
    allowed = _allowed(stored, element, spread, accumulated, tolerance, 1.0)
    for other in others:
        with np.errstate(invalid="ignore"):
            jumps = ~(np.abs(other - expected) <= _JUMP * allowed) & ~_same(other, result)
            met = (np.abs(values - other) <= 2 * allowed) | _same(values, element.round(other))
        result = np.where(jumps & met, values, result)
    return result


def compare_unchanged(got: Array, before: Array, untouched: Array, element: Element) -> Difference:
    """The numbers that the reference leaves alone (`untouched`, a mask) must still hold their bits from before."""
    wrong = untouched & (_bits(got) != _bits(before))
    if not wrong.any():
        return Difference(0.0, 0, got.size)
    index = int(np.argmax(wrong))
    text = _number(element.decode(got)[index], element)
    return Difference(float("inf"), int(wrong.sum()), got.size, index, text, "left as it was", "unchanged")


def choose(tolerances: tuple[Tolerance, ...], buffer: str) -> Tolerance | None:
    """The directive's tolerance for a buffer: its own, else the one for every output."""
    own = [tolerance for tolerance in tolerances if tolerance.buffer == buffer]
    general = [tolerance for tolerance in tolerances if not tolerance.buffer]
    chosen = own or general
    return chosen[-1] if chosen else None


def same_bits(a: Array, b: Array) -> bool:
    """Both hold the same bytes."""
    return bool(np.array_equal(_bits(a), _bits(b)))


def differing(a: Array, b: Array) -> Array:
    """Mask of the numbers whose bits differ."""
    return np.asarray(_bits(a) != _bits(b))


def _bits(values: Array) -> Array:
    return np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}")


def _same(a: Array, b: Array) -> Array:
    return np.asarray((a == b) | (np.isnan(a) & np.isnan(b)))


def _allowed(
    expected: Array, element: Element, spread: Array | None, accumulated: float, tolerance: Tolerance | None,
    slack: float, rounded: bool = False, denormals: bool = False,
) -> Array:  # fmt: skip
    size = np.abs(np.where(np.isfinite(expected), expected, 0.0))
    if tolerance is None:
        scale = relative_tolerance(element, accumulated, rounded) * float(np.clip(slack, 1.0, MAX_SLACK))
        # Where a number is made from one input, no random step leaves it where it was.
        alone = denormals and accumulated <= 1.0
        return magnitudes(expected, spread, alone) * scale + _tiny(element, size, denormals)
    if tolerance.ulp is not None:
        lowest = 2.0**-126 if element.bfloat16 else float(np.finfo(element.storage).tiny)
        with np.errstate(divide="ignore"):
            exponent = np.floor(np.log2(np.maximum(size, lowest)))
        return np.asarray(tolerance.ulp * np.exp2(exponent) * element.epsilon)
    if tolerance.atol is not None:
        return tolerance.atol + (tolerance.rtol or 0.0) * size
    return (tolerance.rtol or 0.0) * magnitudes(expected, spread) + _tiny(element, size)


def _tiny(element: Element, size: Array, denormals: bool = False) -> float:
    """What no rule can ask for: a step among the denormals of a type, in units of the largest number of the tensor.

    `exp(-x)` overflows or falls below the normal range long before the product that it is a factor of does, so a value
    1e38 times smaller than its neighbours may as well be zero. Beside numbers of ordinary size all denormals may.
    Narrow types are computed in float.
    """
    if element.storage.itemsize == 2:
        return 2.0**-133 if element.bfloat16 else float(np.finfo(element.storage).smallest_subnormal)
    limits = np.finfo(element.storage)
    if denormals:
        return _DENORMAL_STEPS * float(limits.smallest_subnormal)
    largest = float(size.max(initial=0.0))
    ordinary = largest > float(limits.tiny) * _ORDINARY
    return max(float(limits.smallest_subnormal), float(limits.tiny) * (max(1.0, largest) if ordinary else largest))


def _compare_exact(got: Array, expected: Array, element: Element, tolerance: Tolerance | None) -> Difference:
    stored = element.encode(expected)
    if element.kind is Kind.BOOL:
        got, stored = got != 0, stored != 0
    wrong = got != stored
    if tolerance is not None and not tolerance.exact and wrong.any():
        # Quantised outputs may be allowed to be one step off.
        a, b = got.astype(np.float64), stored.astype(np.float64)
        wrong = np.abs(a - b) > (tolerance.atol or 0.0) + (tolerance.rtol or 0.0) * np.abs(b)
    return _report(wrong, got, stored, element, np.inf, "exact")


def _report(
    wrong: Array, got: Array, expected: Array, element: Element, worst: float, rule: str, count: int | None = None
) -> Difference:
    if not wrong.any():
        return Difference(0.0, 0, got.size)
    index = int(np.argmax(wrong))
    texts = _number(got[index], element), _number(expected[index], element)
    if texts[0] == texts[1]:
        texts = _number(got[index], element, 17), _number(expected[index], element, 17)
    return Difference(worst, int(wrong.sum()) if count is None else count, got.size, index, *texts, rule)


def _number(value: object, element: Element, digits: int = 7) -> str:
    if element.kind is Kind.FLOAT:
        return f"{float(value):.{digits}g}"  # type: ignore[arg-type]
    if element.kind is Kind.BOOL:
        return "true" if value else "false"
    return str(int(value))  # type: ignore[call-overload]
