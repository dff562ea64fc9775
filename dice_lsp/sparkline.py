"""A row of figures as a tiny chart: block characters for any terminal or hover, SVG where a client shows pictures."""

import base64
import math
from collections.abc import Callable, Sequence
from html import escape

from dice_lsp.wording import duration

MAX_VALUES = 30
LEAST_SPAN = 0.05
"""The least range that fills the height, as a part of the largest value: noise must not look like news."""
_BLOCKS = "▁▂▃▄▅▆▇█"
_MARGIN = 6.0
_LABEL_WIDTH = 52.0
_LINE_HEIGHT = 12.0

# One grey and two colours that can be read on white as well as on near black, since an image does not know the theme.
_GREY = "#808080"
_LAST = "#2f7fd6"
_BASELINE = "#c2701c"


def text(values: Sequence[float]) -> str:
    """The newest 30 values as block characters, the smallest lowest. Equal values stand at half height."""
    shown = _shown(values)
    if not shown:
        return ""
    height, top = _scale(shown), len(_BLOCKS) - 1
    return "".join(_BLOCKS[round(height(value) * top)] for value in shown)


def svg(
    values: Sequence[float],
    *,
    baseline: float | None = None,
    title: str = "",
    words: Callable[[float], str] = duration,
    width: int = 240,
    height: int = 48,
) -> str:
    """The newest 30 values as a chart: a line, a dot at the last value, the baseline dashed, least and most in `words`."""
    shown = _shown(values)
    if baseline is not None and not math.isfinite(baseline):
        baseline = None
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        f' role="img"><title>{_safe(title)}</title>'
    )
    if not shown:
        return head + "</svg>"
    scaled = [*shown, *([] if baseline is None else [baseline])]
    share = _scale(scaled)
    right = width - _LABEL_WIDTH - _MARGIN

    def x(place: int) -> float:
        # A single value stands at the right end, where the newest one always is.
        return right if len(shown) == 1 else _MARGIN + (right - _MARGIN) * place / (len(shown) - 1)

    def y(value: float) -> float:
        return height - _MARGIN - (height - 2 * _MARGIN) * share(value)

    parts = [head]
    if baseline is not None:
        level = y(baseline)
        parts.append(
            f'<path d="M{_MARGIN:.1f} {level:.1f}H{right:.1f}" stroke="{_BASELINE}" stroke-width="1.2"'
            ' stroke-dasharray="4 3" fill="none"/>'
        )
    if len(shown) > 1:
        points = " ".join(f"{x(place):.1f},{y(value):.1f}" for place, value in enumerate(shown))
        parts.append(
            f'<polyline points="{points}" stroke="{_GREY}" stroke-width="1.5" fill="none" stroke-linejoin="round"/>'
        )
    parts.append(f'<circle cx="{right:.1f}" cy="{y(shown[-1]):.1f}" r="3" fill="{_LAST}"/>')
    top, bottom = words(max(scaled)), words(min(scaled))
    middle, apart = (y(max(scaled)) + y(min(scaled))) / 2, max(y(min(scaled)) - y(max(scaled)), _LINE_HEIGHT) / 2
    for label, level in [(top, middle)] if top == bottom else [(top, middle - apart), (bottom, middle + apart)]:
        parts.append(
            f'<text x="{width - _LABEL_WIDTH:.1f}" y="{level + 3.5:.1f}" font-family="sans-serif" font-size="10"'
            f' fill="{_GREY}">{_safe(label)}</text>'
        )
    return "".join(parts) + "</svg>"


def data_uri(picture: str) -> str:
    """An SVG as an address that markdown can show."""
    return "data:image/svg+xml;base64," + base64.b64encode(picture.encode("utf-8")).decode("ascii")


def _shown(values: Sequence[float]) -> list[float]:
    return [value for value in values if math.isfinite(value)][-MAX_VALUES:]


def _scale(values: Sequence[float]) -> Callable[[float], float]:
    """Where a value stands between the bottom, 0, and the top, 1. Values that hardly differ stand around the middle."""
    # Halves, because the distance of two very large values may be no number any more.
    low, high = min(values) / 2, max(values) / 2
    span = max(high - low, LEAST_SPAN * max(abs(low), abs(high)))
    if low == high or not span:
        return lambda value: 0.5
    start = (low + high - span) / 2
    return lambda value: (value / 2 - start) / span


def _safe(words: str) -> str:
    """Text that XML accepts: markup escaped, and without the characters that no XML may hold."""
    kept = "".join(
        c for c in words if c in "\t\n\r" or (c >= " " and not "\ud800" <= c <= "\udfff" and c not in "\ufffe\uffff")
    )
    return escape(kept, quote=True)
