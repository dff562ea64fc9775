"""The tiny charts: what stands where, and that no value breaks them."""

import base64
import math
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dice_lsp.sparkline import MAX_VALUES, data_uri, svg, text

NAME = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize(
    ("values", "blocks"),
    [
        ([], ""),
        ([12.3], "▅"),
        ([5, 5, 5], "▅▅▅"),
        ([0, 0], "▅▅"),
        ([1, 2, 3, 4, 5, 6, 7, 8], "▁▂▃▄▅▆▇█"),
        ([8, 1], "█▁"),
        ([40, 40, 48], "▁▁█"),
        ([-1.7e308, 1.7e308], "▁█"),
        ([5e-324, 1e-323], "▁█"),
        ([1.0, math.nan, math.inf, 2.0], "▁█"),
    ],
)
def test_blocks_follow_the_values(values, blocks):
    assert text(values) == blocks


def test_noise_does_not_look_like_news():
    assert set(text([12.30, 12.32, 12.31, 12.30])) <= set("▄▅")
    assert text([12.3, 13.9]) == "▁█"


def test_only_the_newest_are_shown():
    values = [1000.0, *range(1, MAX_VALUES + 1)]
    assert len(text(values)) == MAX_VALUES and text(values)[-1] == "█" and text(values)[0] == "▁"
    line = drawn(svg(values)).find(f"{NAME}polyline")
    assert line is not None and len(line.get("points", "").split()) == MAX_VALUES


def drawn(picture):
    return ElementTree.fromstring(picture)


def words_of(picture):
    return [item.text for item in drawn(picture).iter(f"{NAME}text")]


def test_the_chart_marks_the_last_value_and_the_baseline():
    picture = svg([12.0, 13.0, 14.0], baseline=13.0, title="14.0 us now")
    root = drawn(picture)
    points = [tuple(map(float, pair.split(","))) for pair in root.find(f"{NAME}polyline").get("points").split()]
    assert [x for x, _ in points] == sorted(x for x, _ in points)
    # More time stands higher, and y grows downward.
    assert points[0][1] > points[1][1] > points[2][1]
    dot = root.find(f"{NAME}circle")
    assert (float(dot.get("cx")), float(dot.get("cy"))) == points[-1]
    dashed = root.find(f"{NAME}path")
    level = float(re.match(r"M[\d.]+ ([\d.]+)H", dashed.get("d"))[1])
    assert dashed.get("stroke-dasharray") and level == points[1][1]
    assert words_of(picture) == ["14.0 us", "12.0 us"] and root.find(f"{NAME}title").text == "14.0 us now"


def test_the_baseline_is_within_the_scale():
    assert words_of(svg([12.0, 12.1], baseline=20.0)) == ["20.0 us", "12.0 us"]
    assert words_of(svg([12.0, 12.1], baseline=6.0)) == ["12.1 us", "6.00 us"]
    assert drawn(svg([12.0, 12.1])).find(f"{NAME}path") is None


def test_one_value_and_equal_values_have_one_label():
    assert words_of(svg([12.3])) == ["12.3 us"] and drawn(svg([12.3])).find(f"{NAME}polyline") is None
    assert words_of(svg([12.3, 12.3, 12.3])) == ["12.3 us"]
    assert words_of(svg([12.3001, 12.3002])) == ["12.3 us"]


def test_two_labels_never_lie_upon_each_other():
    levels = [float(item.get("y")) for item in drawn(svg([12.0, 12.2])).iter(f"{NAME}text")]
    assert levels[1] - levels[0] >= 10


def test_other_figures_have_their_own_words():
    assert words_of(svg([40, 48], words=lambda value: f"{value:.0f} regs")) == ["48 regs", "40 regs"]


def test_nothing_to_show_is_an_empty_picture():
    for picture in (svg([]), svg([math.nan]), svg([], baseline=3.0)):
        assert [item.tag for item in drawn(picture)] == [f"{NAME}title"]


def test_both_themes_can_be_read():
    picture = svg([1, 2], baseline=1.5)
    assert "<rect" not in picture and "background" not in picture and "style" not in picture

    def luminance(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        red, green, blue = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    colours = set(re.findall(r'(?:fill|stroke)="(#\w+)"', picture))
    assert len(colours) == 3
    for colour in colours:
        # 3:1 is what the accessibility guidelines ask of graphics, here on white and on VS Code's dark background.
        for background in ("#ffffff", "#1f1f1f"):
            light, dark = sorted((luminance(colour), luminance(background)), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 3, (colour, background)


HOSTILE = "</title><script>alert(1)</script>\" onload='x' & \0\x1b\ud800 \ufffe ]]>"


def test_words_cannot_become_markup():
    picture = svg([1.0, 2.0], title=HOSTILE, words=lambda value: f"{HOSTILE}{value}")
    root = drawn(picture)
    assert {item.tag for item in root.iter()} == {
        f"{NAME}{tag}" for tag in ("svg", "title", "polyline", "circle", "text")
    }
    assert "<script" not in picture and "onload" not in root.attrib
    assert "<script>alert(1)</script>" in root.find(f"{NAME}title").text


def test_a_data_uri_gives_the_picture_back():
    picture = svg([1, 2], title="µs")
    head, _, packed = data_uri(picture).partition(",")
    assert head == "data:image/svg+xml;base64" and base64.b64decode(packed).decode() == picture
    assert not set(data_uri(picture)) & set(" ()<>\"'\n")


@given(st.lists(st.floats(), max_size=40), st.none() | st.floats())
def test_no_value_breaks_a_chart(values, baseline):
    finite = [value for value in values if math.isfinite(value)]
    assert len(text(values)) == min(len(finite), MAX_VALUES)
    picture = svg(values, baseline=baseline)
    for number in re.findall(r'(?:c?[xy]|points|d)="([^"]*)"', picture):
        assert "nan" not in number and "inf" not in number
    for item in drawn(picture).iter(f"{NAME}circle"):
        assert 0 <= float(item.get("cx")) <= 240 and 0 <= float(item.get("cy")) <= 48
