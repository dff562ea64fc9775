"""One rule for how far an output may be from its reference.

The allowed error of a number is `r * magnitude`. `magnitude` is how large the numbers are that went into it: the
larger of |expected| and of its measured sensitivity, which is how much the reference moves when its inputs move by a
rounding-size step. So a sum that cancels may be off by what its terms round to, while a softmax element of 1e-6 may
only be off by a fraction of 1e-6: zeros are refused and an honest tree sum over +-1e4 is not. `r` grows with the
square root of the accumulation length, as the error of a sum of rounded terms does (Higham, Accuracy and Stability
of Numerical Algorithms, 2nd ed., section 2.8: probabilistic bounds).
"""

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
    """Which rule it broke: `element`, `nan`, `exact`, `unchanged`, `bias`, `precision`."""

    @property
    def agrees(self) -> bool:
        return self.index < 0


def relative_tolerance(element: Element, accumulated: float) -> float:
    """`r` of one element type for sums of `accumulated` terms (1 for elementwise work)."""
    terms = max(1.0, accumulated)
    if element.bfloat16:
        return float(min(3.2e-2, 1.6e-2 * terms**0.125))
    match element.storage.itemsize:
        case 2:
            return float(min(1e-2, 2e-3 * terms**0.25))
        case 4:
            return float(np.clip(8 * 2.0**-24 * np.sqrt(terms), 2e-6, 1e-3))
        case _:
            # A kernel in double may use float constants; its own rounding is far below this.
            return 1e-7


def magnitudes(expected: Array, spread: Array | None) -> Array:
    """The size of the numbers that each expected number was made from (see the module's docstring).

    Args:
        expected: float64, flat.
        spread: absolute change of each number per unit relative change of the inputs, or None where it is unknown.
    """
    size = np.abs(np.where(np.isfinite(expected), expected, 0.0))
    if spread is None:
        # Without a measured sensitivity a cancelled sum cannot be told from a small number; the root mean square of
        # the tensor stands in, so only a number far below its neighbours gets more room.
        rms = float(np.sqrt(np.mean(np.square(size)))) if size.size else 0.0
        return np.maximum(size, rms)
    size = np.maximum(size, np.where(np.isfinite(spread), spread, 0.0))
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
) -> Difference:
    """Compare one output, flat, with its reference.

    Args:
        got: as stored by the kernel.
        expected: float64 for float elements, integers for the rest, same length.
        spread: see `magnitudes`.
        accumulated: number of terms behind each output.
        tolerance: the directive's own, which replaces the rule.
        slack: factor from the accepted kernel's own error, clipped to 1..`MAX_SLACK`; above 1 a common bias is the
            accepted kernel's too and no fault.
    """
    if element.kind is not Kind.FLOAT:
        return _compare_exact(got, expected, element, tolerance)
    values = element.decode(got)
    rounded = element.round(expected)
    if tolerance is not None and tolerance.exact:
        return _report(~_same(values, rounded), values, rounded, element, np.inf, "exact")
    if np.array_equal(values, rounded):
        return Difference(0.0, 0, got.size)
    nan = np.isnan(values) != np.isnan(rounded)
    infinite = np.isinf(values) | np.isinf(rounded)
    nan |= infinite & (values != rounded) & ~np.isnan(values) & ~np.isnan(rounded)
    if nan.any():
        return _report(nan, values, rounded, element, np.inf, "nan")
    finite = np.isfinite(rounded)
    allowed = _allowed(rounded, element, spread, accumulated, tolerance, slack)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        error = np.where(finite, values - expected, 0.0)
        # The reference is rounded too: what the type cannot say is no error.
        error = np.where(np.abs(values - rounded) < np.abs(error), values - rounded, error)
        units = np.where(error == 0, 0.0, error / np.where(allowed > 0, allowed, 1e-300))
        units = np.where(finite, units, 0.0)
    magnitude = np.abs(units)
    worst = float(magnitude.max()) if magnitude.size else 0.0
    wrong = magnitude > 1.0
    if wrong.any():
        return _report(wrong, values, rounded, element, worst, "element")
    if tolerance is None and element.storage == np.float64 and (narrowed := _narrowed(values, rounded)).any():
        return _report(narrowed, values, rounded, element, worst, "precision")
    if tolerance is None and slack <= 1.0 and units.size >= _TENSOR_ELEMENTS:
        # Rounding errors have both signs and are mostly small. A tensor whose every element is off the same way, or
        # nearly at its limit, is a wrong factor that hides below the elementwise rule.
        rms = float(np.sqrt(np.mean(np.square(units))))
        shifted, scaled = abs(float(np.mean(units))), abs(float(np.mean(units * np.sign(rounded))))
        if rms > _RMS_LIMIT or max(shifted, scaled) > _BIAS_LIMIT:
            return _report(magnitude == worst, values, rounded, element, worst, "bias", count=units.size)
    return Difference(worst, 0, got.size)


def _narrowed(values: Array, expected: Array) -> Array:
    """Mask of the doubles that say no more than a float does although the reference says more; empty unless all do."""
    with np.errstate(over="ignore", invalid="ignore"):
        wide = np.isfinite(expected) & (np.abs(expected - expected.astype(np.float32)) > 1e-9 * np.abs(expected))
        kept = wide & (values != values.astype(np.float32))
    return wide if wide.sum() >= _NARROWED_ELEMENTS and not kept.any() else np.zeros_like(wide)


def either(
    got: Array, expected: Array, plain: Array, element: Element, *, accumulated: float = 1.0,
    tolerance: Tolerance | None = None,
) -> Array:  # fmt: skip
    """`expected`, but what the reference gives in single precision wherever `got` agrees with that.

    Rounding to an integer, an overflow on the way, or a comparison may go another way in double precision; a kernel
    that does what its reference does in its own precision is right.
    """
    if element.kind is not Kind.FLOAT:
        return np.where(got == element.encode(plain), plain, expected)
    values, rounded = element.decode(got), element.round(plain)
    allowed = _allowed(rounded, element, None, accumulated, tolerance, 1.0)
    with np.errstate(invalid="ignore"):
        agrees = (np.abs(values - rounded) <= allowed) | _same(values, rounded)
    return np.where(agrees, plain, expected)


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
    slack: float,
) -> Array:  # fmt: skip
    size = np.abs(np.where(np.isfinite(expected), expected, 0.0))
    if tolerance is None:
        scale = relative_tolerance(element, accumulated) * float(np.clip(slack, 1.0, MAX_SLACK))
        return magnitudes(expected, spread) * scale + _tiny(element, size)
    if tolerance.ulp is not None:
        lowest = 2.0**-126 if element.bfloat16 else float(np.finfo(element.storage).tiny)
        with np.errstate(divide="ignore"):
            exponent = np.floor(np.log2(np.maximum(size, lowest)))
        return np.asarray(tolerance.ulp * np.exp2(exponent) * element.epsilon)
    if tolerance.atol is not None:
        return tolerance.atol + (tolerance.rtol or 0.0) * size
    return (tolerance.rtol or 0.0) * magnitudes(expected, spread) + _tiny(element, size)


def _tiny(element: Element, size: Array) -> float:
    """What no rule can ask for: a step among the denormals of a type, in units of the largest number of the tensor.

    `exp(-x)` overflows or falls below the normal range long before the product that it is a factor of does, so a value
    1e38 times smaller than its neighbours may as well be zero. Narrow types are computed in float.
    """
    if element.storage.itemsize == 2:
        return 2.0**-133 if element.bfloat16 else float(np.finfo(element.storage).smallest_subnormal)
    limits = np.finfo(element.storage)
    return max(float(limits.smallest_subnormal), float(limits.tiny) * float(size.max(initial=0.0)))


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
