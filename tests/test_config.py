"""Options become settings; a bad option never stops anything and is named."""

import attrs
import pytest

from dice_lsp.config import Settings, resolve


def test_defaults_need_no_options():
    assert resolve(None) == (Settings(), ())
    assert resolve({}) == (Settings(), ())


@pytest.mark.parametrize(
    ("options", "name", "value"),
    [
        ({"candidates": 3}, "candidates", 3),
        ({"decodeThreshold": 0.5}, "decode_threshold", 0.5),
        ({"decode": {"threshold": 1}}, "decode_threshold", 1.0),
        ({"check_on_save": False}, "check_on_save", False),
        ({"compileFlags": ["-DN=4"]}, "compile_flags", ("-DN=4",)),
        ({"backend": "host"}, "backend", "host"),
        ({"nvcc": None}, "nvcc", None),
    ],
)
def test_options_are_taken_in_either_spelling(options, name, value):
    settings, complaints = resolve(options)
    assert getattr(settings, name) == value and complaints == ()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"candidates": 0}, "between 1 and 64"),
        ({"candidates": "8"}, "must be of type int"),
        ({"candidates": True}, "must be of type int"),
        ({"backend": "opencl"}, "must be one of auto, pycuda"),
        ({"compileFlags": "-DN"}, "must be a list of strings"),
        ({"colour": "blue"}, "unknown setting dice.colour"),
        ({"decodeThreshold": 1.5}, "between 0.0 and 1.0"),
    ],
)
def test_a_bad_option_is_named_and_the_rest_is_taken(options, words):
    settings, complaints = resolve({**options, "seed": 7})
    assert len(complaints) == 1 and words in complaints[0]
    assert settings == attrs.evolve(Settings(), seed=7)


def test_every_setting_is_documented():
    for field in attrs.fields(Settings):
        assert field.metadata["doc"], field.name
