"""For which architecture is compiled when a project, a GPU and a compiler differ."""

import pytest

from dice_lsp.source.architectures import choose

CUDA_13 = (75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121)


@pytest.mark.parametrize(
    ("asked", "device", "arch", "words"),
    [
        ((), "sm_90", "sm_90", ""),
        ((), "auto", "auto", ""),
        (("sm_90",), "sm_90", "sm_90", ""),
        (("sm_80", "sm_90", "sm_90a"), "sm_90", "sm_90a", ""),
        (("sm_90a",), "sm_90", "sm_90a", ""),
        (("native",), "sm_90", "sm_90", ""),
        (("all-major", "sm_52"), "sm_90", "sm_90", ""),
        (("sm_86",), "sm_90", "sm_90", "builds for sm_86 and the GPU is sm_90: kernels are compiled for sm_90"),
        (("sm_35",), "sm_90", "sm_90", "builds for sm_35 and the GPU is sm_90"),
        (("sm_52", "sm_70"), "sm_90", "sm_90", "builds for sm_52 and sm_70 and the GPU"),
        (("sm_86",), "auto", "sm_86", ""),
        (("sm_52", "sm_80", "sm_86"), "auto", "sm_86", ""),
        (("sm_52",), "auto", "sm_75", "builds for sm_52, which nvrtc 13.0 no longer takes: kernels are compiled for sm_75"),
        (("sm_999",), "auto", "sm_121", "which nvrtc 13.0 does not take: kernels are compiled for sm_121"),
        (("gfx90a",), "auto", "auto", ""),
    ],
)  # fmt: skip
def test_the_choice(asked, device, arch, words):
    found = choose(asked, device, CUDA_13, "nvrtc 13.0")
    assert found.arch == arch
    assert (words in found.note) if words else not found.note


def test_a_compiler_that_does_not_say_what_it_takes_is_asked_for_the_newest():
    assert choose(("sm_52", "sm_70"), "auto", (), "nvcc 11.8").arch == "sm_70"
