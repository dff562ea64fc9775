"""Fills that a user accepts become records, if the user wants that, and only those that deserve it."""

import json
import stat
from pathlib import Path

from dice_lsp.config import Settings
from dice_lsp.dataset.again import job_of
from dice_lsp.records import Faster, Finding, JudgeJob, Sanitized, to_wire
from tests.stdio.dataset_session import PLAIN, A, B, session, text_of


async def test_what_the_user_accepts_is_kept_if_it_deserves_it(tmp_path: Path) -> None:
    async with session(tmp_path, dataset={"keep": True}) as there:
        (tmp_path / "src" / "LICENSE").write_text((Path(__file__).parents[2] / "LICENSE").read_text())
        uri = await there.take("fast")
        await there.client.until(lambda: there.records)
        (kept,) = there.records
        assert there.texts[uri] == kept.text == text_of("fast", A) and (kept.middle, kept.rival) == (A, PLAIN)
        assert (kept.kernel, kept.origin, kept.licence) == ("fast", "editor", "MIT") and kept.source.endswith(
            "/src/fast.cu"
        )
        assert kept.comparison == Faster(2.5, 2.25, 2.75) and kept.verified
        assert kept.evidence is not None and kept.evidence.device == "NVIDIA H200"
        path = tmp_path / "data" / "dice-lsp" / "dataset" / "cuke.jsonl"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        await there.client.until(lambda: any(f"fast is kept as record 1 of {path}" in each for each in there.told))

        # What no record is made of, each for a reason of its own.
        await there.take("slow")
        await there.take("refuted")
        await there.client.until(
            lambda: any("refuted is not kept: the check of the file" in each for each in there.told)
        )
        await there.take("secret", top="// token: " + "hf_" + "aB3" * 12 + "\n")
        await there.client.until(
            lambda: any("secret is not kept: its file holds a token of Hugging Face" in each for each in there.told)
        )
        await there.client.until(lambda: there.checks("slow"))
        assert len(there.records) == 1

        # Another candidate of the same fill takes the first one's place: both were accepted, and both are worth it.
        uri = await there.take("second")
        await there.client.until(lambda: len(there.records) == 2)
        number = next(iter(await there.client.ask("dice/candidates", {"uri": uri})))["fill"]
        assert (await there.command("dice.apply", fill=number, candidate="B"))["applied"]
        await there.client.until(lambda: len(there.records) == 3)
        assert [(each.kernel, each.middle) for each in there.records[1:]] == [("second", A), ("second", B)]
        assert there.records[2].rival == PLAIN, "it was timed beside what stood there before the fill"
        assert await there.client.stop() == 0
        assert {each.kernel for each in there.records} == {"fast", "second"}


async def test_ghost_text_that_is_accepted_counts_too(tmp_path: Path) -> None:
    async with session(tmp_path, datasetKeep=True) as there:
        uri = there.open("ghost", body="\n    \n")
        await there.fill(uri, "ghost")
        position = {"line": 2, "character": 4}
        asked = {"textDocument": {"uri": uri}, "position": position, "context": {"triggerKind": 1}}
        (item,) = (await there.client.ask("textDocument/inlineCompletion", asked))["items"]
        there.change(uri, there.replaced(uri, item["range"], item["insertText"]))
        await there.client.until(lambda: there.records)
        (kept,) = there.records
        assert kept.text == there.texts[uri] and kept.middle.strip() == A.strip() and kept.rival == ""


async def test_what_compute_sanitizer_finds_later_takes_the_record_away(tmp_path: Path) -> None:
    async with session(tmp_path, datasetKeep=True, sanitize=True) as there:
        await there.take("fast")
        await there.client.until(lambda: there.records)
        found = Sanitized(("racecheck",), (Finding("racecheck", "race", "written here and read", 3, "n=33"),))
        (tmp_path / "new").write_text(json.dumps(to_wire(found)))
        (tmp_path / "new").rename(tmp_path / "fast.json")
        await there.client.until(lambda: not there.records)
        dropped = (tmp_path / "data" / "dice-lsp" / "dataset" / "cuke.dropped.jsonl").read_text()
        assert '"dropped": "compute-sanitizer: written here and read"' in dropped


async def test_a_launch_that_only_another_file_tells_is_written_down(tmp_path: Path) -> None:
    async with session(tmp_path, datasetKeep=True) as there:
        uri = await there.take("elsewhere", directive="")
        await there.client.until(lambda: there.records)
        (kept,) = there.records
        assert kept.text == there.texts[uri] and "//dice:" not in kept.text
        assert kept.directive.startswith("//dice: n = 4K | 33; ") and "launch <<<cdiv(n, 64), 64>>>" in kept.directive
        # What it says is all that is needed to judge it again.
        job = job_of(kept, Settings(backend="host"))
        assert isinstance(job, JudgeJob) and job.spec.launchable and job.spec.block == ("64", "1", "1")


async def test_nothing_is_kept_unless_the_user_says_so(tmp_path: Path) -> None:
    (tmp_path / "src" / ".dice").mkdir(parents=True)
    (tmp_path / "src" / ".dice" / "settings.toml").write_text("dataset_keep = true\n")
    (tmp_path / "src").rename(tmp_path / "kept")
    async with session(tmp_path) as there:
        (tmp_path / "kept" / ".dice").rename(tmp_path / "src" / ".dice")
        await there.take("fast")
        await there.client.until(lambda: there.checks("fast"))
        assert any("dataset_keep is not for a workspace to set" in each for each in there.client.messages())
        assert await there.client.stop() == 0
        assert there.records == () and not (tmp_path / "data").exists()
