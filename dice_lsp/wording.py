"""Phrases that hints, hovers, diagnostics and the history share, so that a thing has one name wherever it is read."""

from dice_lsp.records import Cheating, Unsafe, Wrong

BEING_CHECKED = "being checked"
"""The reason of a verdict that is still to come."""


def duration(microseconds: float) -> str:
    """`870 ns`, `12.3 us`, `1.53 ms`: three significant digits."""
    for limit, scale, unit in ((1.0, 1e3, "ns"), (1e3, 1.0, "us"), (1e6, 1e-3, "ms")):
        if microseconds < limit:
            return f"{_three_digits(microseconds * scale)} {unit}"
    return f"{_three_digits(microseconds * 1e-6)} s"


def refusal(verdict: Wrong | Unsafe | Cheating) -> str:
    """Why a kernel was refused, in one phrase."""
    if isinstance(verdict, Wrong):
        return f"wrong: {verdict.buffer}[{verdict.index}] is {verdict.got}, expected {verdict.expected}"
    if isinstance(verdict, Unsafe):
        return f"{verdict.hazard.replace('_', ' ')}: {verdict.where}"
    return f"refused: {verdict.trick.replace('_', ' ')}: {verdict.where}"


def count(number: int, noun: str) -> str:
    """`1 check`, `30 checks`."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def day(when: str) -> str:
    """The date of an ISO 8601 time."""
    return when.partition("T")[0]


def _three_digits(value: float) -> str:
    return f"{value:.0f}" if value >= 99.95 else f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"
