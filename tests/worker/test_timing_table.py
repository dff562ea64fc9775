"""The table of the timing benchmark: how Nsight Compute's output is read, and what the one constant leaves."""

from collections import Counter

import pytest

from tests.bench.timing import durations_us, race_tables, table
from tests.gpu.oracle import LAUNCHES, TABLE


def listing(times_us: dict[str, float], unit: str = "ns") -> str:
    scale = {"ns": 1000, "us": 1}[unit]
    lines = ["==PROF== Connected", '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"']
    for row in TABLE:
        for number in range(LAUNCHES):
            value = times_us[row[0]] * scale * (3 if number == 0 else 1)
            lines.append(f'"{len(lines)}","{row[1]}","gpu__time_duration.sum","{unit}","{value:,.3f}"')
    return "\n".join(lines)


def known(constant: float = 0.0) -> dict[str, float]:
    return {row[0]: 10.0 * (i + 1) + constant if i else 0.5 + constant for i, row in enumerate(TABLE)}


@pytest.mark.parametrize("unit", ["ns", "us"])
def test_durations_are_means_without_the_first_in_microseconds(unit: str) -> None:
    assert durations_us(listing(known(), unit)) == pytest.approx(known())


def test_an_incomplete_listing_gives_nothing() -> None:
    assert durations_us("\n".join(listing(known()).splitlines()[:-1])) == {}
    assert durations_us("==ERROR== no permission") == {}


def test_one_constant_is_taken_off_and_what_is_left_is_judged() -> None:
    ours = {
        label: [time_us, 0.99 * time_us, 1.01 * time_us, "graph" if time_us < 45 else "single"]
        for label, time_us in known().items()
    }
    other = {label: [1.005 * time_us, *rest] for label, (time_us, *rest) in ours.items()}
    rotated, swept = known(0.75), known(0.75)
    rotated["spin 8k"] += 0.5
    rotated["saxpy 8M"] += 7.0  # timed singly, so that the other one counts
    lines = table([ours, other, ours], {"rotated": rotated, "swept": swept}, {"saxpy 1M": {"cupti": 4.0}})
    assert "ours less (ncu less 0.750 us)" in lines[0]
    cells = {line.split(" | ")[0].strip("| "): line for line in lines[2:] if line}
    assert "2.00%" in cells["spin 3k"] and "0.50%" in cells["spin 3k"] and "+0.000 us" in cells["spin 3k"]
    assert "-0.500 us" in cells["spin 8k"] and "(!)" in cells["spin 8k"]
    assert [label for label, line in cells.items() if "(!)" in line] == ["spin 8k"]
    assert "| 4.00 |" in cells["saxpy 1M"] and "| single |" in cells["saxpy 8M"]
    alone = table([ours], {}, {})
    assert "(!)" not in "".join(alone) and len(alone) == len(lines)


def test_verdicts_are_counted() -> None:
    rows = {
        "itself": [["spin", Counter(same=9, ambiguous=1), [0.999, 1.001]]],
        "planted": [["together", Counter(found=7), []]],
    }
    lines = race_tables(rows)
    assert "| spin | ambiguous 1, same 9 | 0.9990 to 1.0010 |" in lines and "| together | found 7 |  |" in lines
