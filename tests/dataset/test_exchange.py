"""Records go out in the shapes of the published files and come in again; what comes in proves nothing."""

import json
from pathlib import Path
from typing import Any

import attrs
import pytest

from dice_lsp.dataset.cuke import CukeError, CukeRecord, Unverified, read_records, worth_keeping, write_records
from dice_lsp.dataset.exchange import exported, imported, published
from tests.dataset.making import BODY, DIRECTIVE, REFERENCE, record, source

PYTHON = """import torch
from torch.utils.cpp_extension import load_inline
"""
MIDDLE = f'source = """\n{source(BODY)}"""'
TAIL = '\n\ncpp_src = """void f();"""\nm = load_inline(name="m", cpp_sources=cpp_src, cuda_sources=source)\n'
PYTORCH = "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return 2 * x\n"


def taken(path: Path, data: Any, licence: str = "") -> list[CukeRecord | str]:
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return list(imported(path, licence))


def test_our_own_format_keeps_everything_but_the_folder(tmp_path: Path) -> None:
    own = attrs.evolve(record(), origin="editor", source="/home/jane/secret-project/a.cu")
    data, problems = exported([own], "cuke")
    assert problems == () and b"secret-project" not in data and b"jane" not in data
    (back,) = taken(tmp_path / "a.jsonl", data.decode())
    assert back == attrs.evolve(own, origin="imported", source="a.jsonl#1"), "nothing lies around it on this machine"
    (made_here,) = taken(tmp_path / "b.jsonl", exported([record()], "cuke")[0].decode())
    assert made_here == record()


def test_what_others_say_of_identity_and_people_is_not_believed(tmp_path: Path) -> None:
    lies = attrs.evolve(record(), identity="0" * 32, prefix="// jane@example.com\n" + record().prefix)
    write_records(tmp_path / "a.jsonl", [lies])
    (back,) = imported(tmp_path / "a.jsonl")
    assert isinstance(back, CukeRecord) and back.identity == record().identity and back.prefix.startswith("// <email>")
    token = "hf_" + "aB3" * 12
    write_records(tmp_path / "a.jsonl", [attrs.evolve(record(), reference=f"// {token}"), record()])
    refused, good = imported(tmp_path / "a.jsonl")
    assert isinstance(refused, str) and "a.jsonl#1 is not taken: it holds a token" in refused and good == record()


def test_a_fill_as_the_infilling_sets_have_it(tmp_path: Path) -> None:
    data, _ = exported([record(directive=f"{DIRECTIVE}; ref torch: 2 * x", reference=""), record()], "infilling")
    first, second = json.loads(data)
    assert set(first) == {"id", "pytorch_code", "cuda_code", "prefix", "middle", "suffix"}
    assert second["cuda_code"] == source(BODY) == second["prefix"] + second["middle"] + second["suffix"]
    assert first["pytorch_code"].startswith("import torch") and "return 2 * x" in first["pytorch_code"]
    assert second["pytorch_code"] == REFERENCE.strip()
    back, again = taken(tmp_path / "a.json", [first, second], "MIT")
    assert isinstance(back, CukeRecord) and isinstance(again, CukeRecord)
    assert (back.reference_kind, back.reference) == ("torch", "2 * x") and again.reference_kind == "function"
    assert (again.text, again.middle, again.kernel) == (source(BODY), BODY, "twice")
    assert again.identity == record().identity and again.licence == "MIT"
    assert isinstance(again.verdict, Unverified) and again.evidence is None and not worth_keeping(again, 0.0)


def test_the_published_infilling_set_is_read(tmp_path: Path) -> None:
    item = {"id": 3, "pytorch_code": PYTORCH, "cuda_code": PYTHON + MIDDLE + TAIL,
            "prefix": PYTHON, "middle": MIDDLE, "suffix": TAIL}  # fmt: skip
    (back,) = taken(tmp_path / "a.json", [item])
    assert isinstance(back, CukeRecord)
    assert (back.reference_kind, back.reference, back.text) == ("pytorch", PYTORCH, item["cuda_code"])
    assert back.kernel == "twice" and back.source == "a.json#0"
    turn = published(back)
    assert turn["response"] == f"```python\n{item['cuda_code'].rstrip()}\n```" and PYTORCH.strip() in turn["prompt"]
    assert json.loads(exported([back], "infilling")[0])[0] == item | {"id": 0}


def test_the_published_pairs_are_read_and_written(tmp_path: Path) -> None:
    pairs = [{"prompt": "Make it fast.", "response": f"```python\n{PYTHON}```"}]
    (back,) = taken(tmp_path / "CuKe_dataset.json", pairs)
    assert isinstance(back, CukeRecord) and back.whole_file and back.evidence is None
    data, problems = exported([back], "published")
    assert json.loads(data) == pairs and problems == ()
    nothing, problems = exported([back], "infilling")
    assert json.loads(nothing) == [] and len(problems) == 1 and "published" in problems[0]


def test_a_fill_as_a_published_pair_is_what_the_model_is_asked_here() -> None:
    turn = published(record())
    assert set(turn) == {"prompt", "response"}
    assert REFERENCE.strip() in turn["prompt"] and BODY.strip() not in turn["prompt"]
    code = turn["response"].removeprefix("```python\n").removesuffix("\n```")
    namespace: dict[str, str] = {}
    exec(code.partition("\n\n")[2], namespace)
    assert namespace["source"].strip() == source(BODY).strip()


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ({"prompt": "a"}, "neither"),
        ({"prompt": "a", "response": 3}, "neither"),
        ({"prompt": " ", "response": "b"}, "empty"),
        ("text", "neither"),
        ({"pytorch_code": "", "prefix": "", "middle": " ", "suffix": ""}, "middle is empty"),
        ({"pytorch_code": "", "prefix": "int x", "middle": "=3;", "suffix": "\n"}, "no kernel"),
        ({"pytorch_code": "", "cuda_code": "else", "prefix": "a", "middle": "b", "suffix": "c"}, "are not its cuda_code"),
    ],
)  # fmt: skip
def test_what_is_no_record_is_named_and_the_rest_is_taken(tmp_path: Path, item: Any, words: str) -> None:
    refused, good = taken(tmp_path / "a.json", [item, {"prompt": "p", "response": "r"}])
    assert isinstance(refused, str) and "a.json#0 is not taken" in refused and words in refused
    assert isinstance(good, CukeRecord)


def test_files_that_are_nothing_are_named(tmp_path: Path) -> None:
    for data in ("[", "[1,", "[" * 100_000):
        with pytest.raises(CukeError, match="is not JSON"):
            taken(tmp_path / "a.json", data)
    with pytest.raises(CukeError, match="cannot be read"):
        list(imported(tmp_path / "none.json"))
    (refused,) = taken(tmp_path / "a.jsonl", '{"x": 1}')
    assert isinstance(refused, str) and "line 1 is no CuKe record" in refused
    assert taken(tmp_path / "a.json", "") == []


def test_what_is_imported_can_be_read_from_the_store(tmp_path: Path) -> None:
    found = taken(tmp_path / "a.json", [{"prompt": "p", "response": "r"}])
    write_records(tmp_path / "b.jsonl", [each for each in found if isinstance(each, CukeRecord)])
    assert list(read_records(tmp_path / "b.jsonl")) == found
