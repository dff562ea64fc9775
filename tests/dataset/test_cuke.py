"""A record stands for itself: its text, launch, reference and evidence, and nothing else may be needed to judge it again."""

import json
from pathlib import Path

import attrs
import pytest

from dice_lsp.dataset.cuke import (
    CukeError,
    CukeRecord,
    from_line,
    make_record,
    read_records,
    region_of,
    to_line,
    training_request,
    unique,
    with_directive,
    worth_keeping,
    write_records,
)
from dice_lsp.dataset.licence import project_licence
from dice_lsp.records import (
    Ambiguous,
    Document,
    Faster,
    Judged,
    NotCompiled,
    NotTimed,
    Same,
    Slower,
    Unverified,
    Verified,
)
from dice_lsp.source.embedded import document_of
from dice_lsp.source.kernels import parse
from dice_lsp.source.launches import launch_spec
from dice_lsp.source.python_calls import calls_of
from dice_lsp.source.selection import body_region, lines_region
from dice_lsp.workspace import SETTINGS
from tests.dataset.making import BODY, CARD, DIRECTIVE, REFERENCE, RIVAL, VERIFIED, made, record, source


def test_a_record_has_the_text_the_reference_and_the_evidence() -> None:
    found = record(licence="MIT")
    assert found.text == source(BODY) and found.middle == BODY and found.before == source(RIVAL)
    assert (found.kernel, found.reference_kind, found.reference) == ("twice", "function", REFERENCE.strip())
    assert (found.evidence, found.licence, found.origin, found.directive) == (CARD, "MIT", "generated", "")
    assert found.verified and found.speedup == 2.3


@pytest.mark.parametrize(
    ("comparison", "kept"),
    [
        (Faster(2.5, 2.0, 2.7), True),
        (Faster(2.5, 1.99, 2.7), False),
        (Same(2.5, 2.3, 2.7), False),
        (Slower(2.5, 2.3, 2.7), False),
        (Ambiguous("noise", 2.5), False),
    ],
)
def test_only_what_is_certainly_twice_as_fast_is_kept(comparison, kept) -> None:
    found = record(comparison=comparison)
    assert worth_keeping(found) is kept
    assert worth_keeping(attrs.evolve(found, verdict=Unverified("not run"))) is False
    assert worth_keeping(found, 1.0) is isinstance(comparison, Faster)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    odd = record("\n    // \u2028 \u00e9 \u4e2d\r\n" + BODY)
    for each in (record(), odd, record(rival="")):
        assert from_line(to_line(each)) == each
        assert "\n" not in to_line(each)
    path = tmp_path / "a.jsonl"
    write_records(path, [record(), odd])
    assert read_records(path) == (record(), odd)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "is not JSON"),
        ("[1]", "is no CuKe record"),
        ('{"prefix": ""}', "is no CuKe record"),
        ('{"cuke": 99}', "newer dice-lsp"),
        ('{"cuke": 1, "kernel": 3}', "`kernel` is not a string"),
        ('{"cuke": 1}', "is no CuKe record"),
        ("[" * 100_000, "is not JSON"),
    ],
)
def test_a_line_that_is_no_record_is_named(tmp_path: Path, line: str, words: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(f"{to_line(record())}\n\n{line}\n")
    with pytest.raises(CukeError, match=rf"a\.jsonl: line 3 .*{words}"):
        read_records(path)


def test_a_verdict_of_an_unknown_kind_is_no_record() -> None:
    data = json.loads(to_line(record()))
    data["verdict"]["kind"] = "splendid"
    with pytest.raises(CukeError, match="is no CuKe record"):
        from_line(json.dumps(data))


def test_duplicates_are_told_by_their_device_code() -> None:
    first = record()
    spaced = record(BODY.replace("; ", ";  /* twice */ ").replace("if (i", "if ( i"))
    other = record(BODY.replace("2.0f * x[i]", "x[i] + x[i]"))
    elsewhere = record(top="// another file\nvoid unrelated() {}\n")
    assert first.identity == spaced.identity == elsewhere.identity != other.identity
    assert unique([first, spaced, other, elsewhere]) == (first, other)
    faster = record(comparison=Faster(4.0, 3.9, 4.1))
    assert unique([first, other, faster]) == (faster, other)
    assert unique([faster, attrs.evolve(faster, verdict=Unverified("no"), comparison=Faster(9.0, 9.0, 9.0))]) == (
        faster,
    )


def test_a_launch_that_the_text_does_not_say_is_written_down() -> None:
    full = source(BODY)
    alone = made(directive="", measured=full)
    assert isinstance(alone, str) and "launch" in alone and "//dice:" in alone
    found = record(directive="", measured=full, extra=DIRECTIVE)
    assert found.directive == DIRECTIVE and DIRECTIVE not in found.text
    kernel = parse(found.text).kernels[0]
    assert with_directive(found.text, kernel, found.directive) == full


def test_another_launch_than_the_measured_one_makes_no_record() -> None:
    other = source(BODY, directive=DIRECTIVE.replace("128", "256"))
    refused = made(measured=other)
    assert isinstance(refused, str) and "another launch than the one that was measured" in refused


def test_a_reference_that_is_elsewhere_makes_no_record() -> None:
    refused = made(reference="", measured=source(BODY))
    assert isinstance(refused, str) and "its reference is outside of the file" in refused
    nothing = made(reference="", rival="")
    assert isinstance(nothing, str) and "nothing to compare it with" in nothing


def test_without_a_reference_the_kernel_before_is_one_and_the_model_is_shown_it() -> None:
    found = record(reference="")
    assert (found.reference_kind, found.reference) == ("kernel", RIVAL)
    assert training_request(found).middle == RIVAL
    assert training_request(record()).middle == ""


def test_the_model_is_asked_as_at_inference() -> None:
    request = training_request(record())
    assert request.kernel_prefix + request.kernel_suffix == source("").split("\nvoid")[0].rstrip("\n")
    assert request.reference_text == REFERENCE.strip() and request.file_suffix.strip() == REFERENCE.strip()
    torch = training_request(record(directive=f"{DIRECTIVE}; ref torch: 2 * x", reference=""))
    assert torch.torch_expression == "2 * x" and torch.reference_text is None


def test_a_part_of_a_body_keeps_its_place_and_indent() -> None:
    whole = record()
    document = Document("file:///a.cu", 0, whole.text)
    region = lines_region(document, 4, 4)
    assert not isinstance(region, str)
    part = attrs.evolve(whole, prefix=region.prefix, middle=region.middle, suffix=region.suffix, rival="")
    assert region_of(part, part.middle) == attrs.evolve(region, document=region_of(part, part.middle).document)
    assert region_of(part).indent == "    "


def test_a_record_whose_kernel_is_gone_says_so() -> None:
    with pytest.raises(CukeError, match="no such kernel"):
        region_of(attrs.evolve(record(), kernel="thrice"))


def test_the_fill_of_a_python_file_is_kept_as_the_cuda_in_its_string() -> None:
    program = f'''import torch
from torch.utils.cpp_extension import load_inline
KERNELS = r"""
{source(BODY)}"""
other = r"""
__global__ void other() {{}}
"""
'''
    document = document_of("file:///a.py", 0, program)
    model = parse(document.text)
    spec = launch_spec(document.text, model.kernels[0], model, calls=calls_of(document))
    judged = Judged(NotCompiled(""), VERIFIED, NotTimed(""), Faster(2.5, 2.3, 2.7), CARD)
    found = make_record(body_region(document, model.kernels[0]), BODY, judged, spec, origin="editor", source="/a.py")
    assert isinstance(found, CukeRecord) and found.text == source(BODY) and found.identity == record().identity


def test_the_licence_is_that_of_the_file_else_of_the_project(tmp_path: Path) -> None:
    assert record(top="// SPDX-License-Identifier: BSD-3-Clause\n").licence == "BSD-3-Clause"
    (tmp_path / ".git").mkdir()
    (tmp_path / "src").mkdir()
    path = str(tmp_path / "src" / "a.cu")
    assert project_licence(path, "") == ""
    (tmp_path / "LICENSE").write_text((Path(__file__).parents[2] / "LICENSE").read_text())
    assert project_licence(path, "") == "MIT"
    assert project_licence(path, "/* SPDX-License-Identifier: Apache-2.0 */") == "Apache-2.0"
    (tmp_path / "src" / "COPYING").write_text("Ours. All rights reserved.")
    assert project_licence(path, "") == "", "the nearest one holds, and it is none that is known"


def test_a_workspace_does_not_decide_what_is_kept() -> None:
    assert "dataset_keep" not in SETTINGS


def test_records_are_values() -> None:
    assert record() == record() and hash(record()) == hash(record())
    assert isinstance(record().verdict, Verified) and isinstance(record(), CukeRecord)
