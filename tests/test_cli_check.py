"""`dice-lsp check` in a repository, as a CI runs it: baseline files, formats, folders, settings of a workspace."""

import json
import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

import attrs
import jsonschema
import pytest
import yaml

from dice_lsp import baseline, process
from dice_lsp.check_command import find_files
from dice_lsp.command_line import UsageError
from dice_lsp.json_output import check_schema
from tests.test_report_formats import schema as sarif_schema

ROOT = Path(__file__).parent.parent
SAXPY = ROOT / "tests" / "data" / "saxpy.cu"
BASELINE = "dice-baseline.json"
NO_GPU = f"no GPU here: kernels are held against {BASELINE} by registers, spills and occupancy only"
CROWDED = """\
// Enough live values that a cap on registers makes it spill.
//dice: n = 64 | 33
__global__ void crowded(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float a[48];
#pragma unroll
    for (int k = 0; k < 48; ++k) a[k] = x[(i * 7 + k * 13) % n];
    float s = 0.0f;
#pragma unroll
    for (int k = 0; k < 48; ++k) {
#pragma unroll
        for (int j = 0; j < 48; ++j) s += a[k] * a[j] - a[(k * 5 + j) % 48];
        a[k] = s;
    }
    y[i] = s + a[7] + a[31];
}

void launch(const float* x, float* y, int n) { crowded<<<(n + 255) / 256, 256>>>(x, y, n); }
"""
CAPPED = "--flag=-maxrregcount=24"


def run(*arguments: object, cwd: Path, environment: Mapping[str, str] | None = None) -> process.Finished:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    variables = {**os.environ, "PATH": path, **(environment or {})}
    return process.run([*map(str, arguments)], deadline_s=150, cwd=str(cwd), env=variables, limits=process.Limits())


def check(cwd: Path, *arguments: object, backend: str = "host") -> tuple[int, str]:
    """The exit code and standard output of `dice-lsp check`."""
    done = run(sys.executable, "-m", "dice_lsp", "check", "--backend", backend, *arguments, cwd=cwd)
    assert done.returncode in (0, 1), done.stderr.decode()
    return done.returncode, done.stdout.decode()


def lay(folder: Path) -> None:
    (folder / ".git").mkdir()
    (folder / "src").mkdir()
    shutil.copy(SAXPY, folder / "src" / "saxpy.cu")
    (folder / "src" / "crowded.cu").write_text(CROWDED)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    lay(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def saved_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    lay(folder)
    code, text = check(folder, "src", "--save-baseline", BASELINE)
    assert code == 0 and f"2 kernels saved in {BASELINE}" in text
    return folder


@pytest.fixture
def saved(saved_once: Path, tmp_path: Path) -> Path:
    """A repository of its own for each test, with the baselines of both kernels."""
    return Path(shutil.copytree(saved_once, tmp_path / "repository"))


def entries(folder: Path) -> dict[str, dict[str, baseline.Baseline]]:
    return baseline.load((folder / BASELINE).read_text())


def sarif(text: str) -> dict:
    log = json.loads(text)
    jsonschema.Draft4Validator(sarif_schema()).validate(log)
    return log["runs"][0]


def test_what_has_not_changed_passes_and_every_format_says_what_was_not_compared(saved):
    assert entries(saved).keys() == {"src/saxpy.cu", "src/crowded.cu"}
    code, text = check(saved, "src", "--baseline", BASELINE)
    assert code == 0 and text.count("no change") == 2 and NO_GPU in text

    code, text = check(saved, "src", "--baseline", BASELINE, "--format", "json")
    found = json.loads(text)
    jsonschema.validate(found, check_schema())
    assert code == 0 and NO_GPU in found["notes"]
    (kernel,) = next(file for file in found["files"] if file["file"].endswith("saxpy.cu"))["kernels"]
    assert kernel["baseline"]["registers"] == kernel["build"]["registers"] and kernel["baseline"]["device"] == "host"
    assert kernel["regression"] is None and kernel["changes"] == [] and not kernel["failed"]

    code, text = check(saved, "src", "--baseline", BASELINE, "--format", "sarif")
    log = sarif(text)
    assert code == 0 and log["results"] == []
    assert NO_GPU in [item["message"]["text"] for item in log["invocations"][0]["toolExecutionNotifications"]]

    code, text = check(saved, "src", "--baseline", BASELINE, "--format", "junit")
    suites = ElementTree.fromstring(text)
    assert code == 0 and suites.get("tests") == "2" and suites.get("failures") == "0"
    assert all(NO_GPU in suite.find("system-out").text for suite in suites)


def test_more_spills_are_a_failure_that_every_format_places(saved):
    code, text = check(saved, "src", "--baseline", BASELINE, CAPPED)
    assert code == 1
    line = CROWDED.splitlines().index("__global__ void crowded(const float* x, float* y, int n) {") + 1
    assert re.search(rf"^src/crowded.cu:{line}: crowded: spills \d+ B, was 0 B", text, re.MULTILINE), text
    assert not re.search(r"^src/saxpy.cu:\d+: ", text, re.MULTILINE)

    code, text = check(saved, "src", "--baseline", BASELINE, CAPPED, "--format", "sarif", "--output", "out.sarif")
    (result,) = sarif((saved / "out.sarif").read_text())["results"]
    assert code == 1 and result["ruleId"] == "regression" and "spills" in result["message"]["text"]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "src/crowded.cu" and place["region"]["startLine"] == line
    assert "crowded: spills" in text, "with --output the log has the text"

    code, text = check(saved, "src", "--baseline", BASELINE, CAPPED, "--format", "junit")
    (failure,) = ElementTree.fromstring(text).iter("failure")
    assert code == 1 and failure.get("type") == "regression" and "spills" in failure.get("message")


def test_paths_in_sarif_start_at_the_repository_wherever_the_command_runs(saved):
    _, text = check(saved / "src", "crowded.cu", "--baseline", f"../{BASELINE}", CAPPED, "--format", "sarif")
    (result,) = sarif(text)["results"]
    location = result["locations"][0]["physicalLocation"]["artifactLocation"]
    assert location == {"uri": "src/crowded.cu", "uriBaseId": "%SRCROOT%"}


def test_new_and_gone_kernels_are_said_and_do_not_fail(saved):
    source = saved / "src" / "saxpy.cu"
    source.write_text(source.read_text().replace("saxpy", "saxpby"))
    (saved / "src" / "crowded.cu").unlink()
    code, text = check(saved, "src", "--baseline", BASELINE)
    assert code == 0
    assert f"saxpby is new: not in {BASELINE}" in text
    assert f"saxpy is gone from src/saxpy.cu: still in {BASELINE}" in text
    assert f"src/crowded.cu is gone: still in {BASELINE}" in text
    _, text = check(saved, "src", "--baseline", BASELINE, "--json")
    found = json.loads(text)
    assert found["new"] == ["saxpby"] and found["gone"] == ["saxpy"]


def test_another_architecture_or_launch_is_not_compared_and_not_called_unchanged(saved):
    code, text = check(saved, "src/crowded.cu", "--baseline", BASELINE, CAPPED, "--arch", "sm_80")
    assert code == 0 and "crowded: not compared: the baseline was compiled for sm_90" in text and "--arch sm_90" in text
    source = saved / "src" / "crowded.cu"
    source.write_text(CROWDED.replace("255) / 256, 256>>>", "127) / 128, 128>>>"))
    code, text = check(saved, "src/crowded.cu", "--baseline", BASELINE, CAPPED)
    assert code == 0 and "the baseline has another launch" in text and "no change" not in text


def test_saving_keeps_what_was_not_checked_and_says_what_cannot_be_saved(saved):
    (saved / BASELINE).chmod(0o640)
    before = entries(saved)
    source = saved / "src" / "saxpy.cu"
    text = source.read_text()
    at = text.index("z[i] = a", text.index("__global__"))
    source.write_text(text[:at] + "z[i] = a - x[i] * y[i];" + text[text.index("\n", at) :])
    code, text = check(saved, "src/saxpy.cu", "--save-baseline", BASELINE)
    assert code == 1 and f"not saved in {BASELINE}: saxpy was refused" in text and "its earlier entry is kept" in text
    assert entries(saved) == before and (saved / BASELINE).stat().st_mode & 0o777 == 0o640

    source.write_text(SAXPY.read_text().replace("saxpy", "saxpby"))
    code, text = check(saved, "src/saxpy.cu", "--save-baseline", BASELINE)
    assert code == 0 and f"saxpy is no longer in src/saxpy.cu: dropped from {BASELINE}" in text
    after = entries(saved)
    assert after["src/saxpy.cu"].keys() == {"saxpby"} and after["src/crowded.cu"] == before["src/crowded.cu"]
    assert not [name for name in os.listdir(saved) if name.startswith(f".{BASELINE}")]


def test_comparing_and_saving_in_one_run_compares_with_what_was_there(saved):
    code, text = check(saved, "src/crowded.cu", "--baseline", BASELINE, "--save-baseline", BASELINE, CAPPED)
    assert code == 1 and "crowded: spills" in text
    assert check(saved, "src/crowded.cu", "--baseline", BASELINE, CAPPED)[0] == 0


def test_a_report_goes_through_a_link_and_into_a_pipe(repository):
    (repository / "reports").mkdir()
    (repository / "out.json").symlink_to("reports/real.json")
    check(repository, "src/crowded.cu", "--no-benchmark", "--json", "--output", "out.json")
    assert (repository / "out.json").is_symlink()
    jsonschema.validate(json.loads((repository / "reports" / "real.json").read_text()), check_schema())
    _, text = check(repository, "src/crowded.cu", "--format", "junit", "--output", "/dev/stdout")
    report, table = text.split("</testsuites>")
    assert ElementTree.fromstring(report + "</testsuites>").get("tests") == "1" and "crowded" in table


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--baseline", "none.json"], "none.json does not exist; make it with --save-baseline none.json"),
        (["--baseline", "src/saxpy.cu"], "src/saxpy.cu: the file of baselines is not JSON"),
        (["--baseline", "newer.json"], "written by a newer dice-lsp"),
        (["--baseline", "bytes.json"], "bytes.json: "),
        (["--baseline", "src/deep/b.json"], "does not lie below the folder of src/deep/b.json"),
        (["--save-baseline", "none/b.json"], "its folder does not exist"),
        (["--save-baseline", "newer.json"], "deleted or repaired"),
        (["--json", "--format", "sarif"], "contradict each other"),
        (["empty"], "empty holds no .cu or .cuh file"),
        (["src/*.cuh"], "nothing matches src/*.cuh"),
        (["--output", "none/out.txt"], "none/out.txt cannot be written"),
    ],
)
def test_a_usage_error_is_one_sentence_and_exit_code_2(repository, arguments, words):
    (repository / "empty").mkdir()
    (repository / "src" / "deep").mkdir()
    (repository / "src" / "deep" / "b.json").write_text(baseline.dump({}))
    (repository / "newer.json").write_text(baseline.dump({}).replace('"version": 1', '"version": 99'))
    (repository / "bytes.json").write_bytes(b"\xff\xfe\x00")
    done = run(sys.executable, "-m", "dice_lsp", "check", "src/saxpy.cu", *arguments, cwd=repository)
    said = done.stderr.decode()
    assert done.returncode == 2 and done.stdout == b"", done.stdout
    assert words in said and said.count("\n") == 1 and said.startswith("dice-lsp: ")


def test_a_folder_is_its_cuda_files_without_what_tools_have_made(tmp_path, monkeypatch):
    names = [
        "a.cu", "sub/b.cuh", "sub/c.cpp", "build/d.cu", ".hidden/e.cu", "cmake-build-debug/f.cu", "node_modules/g.cu",
        "out/CMakeCache.txt", "out/h.cu", "cache/CACHEDIR.TAG", "cache/i.cu", "env/pyvenv.cfg", "env/j.cu",
    ]  # fmt: skip
    for name in names:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    monkeypatch.chdir(tmp_path)
    assert [str(path) for path in find_files(["."])] == ["a.cu", "sub/b.cuh"]
    # What is named is taken, and each file once.
    assert [str(path) for path in find_files(["build/d.cu", "sub/../a.cu", "."])] == [
        "build/d.cu", "sub/../a.cu", "sub/b.cuh",
    ]  # fmt: skip
    assert [str(path) for path in find_files(["build", "**/*.cuh"])] == ["build/d.cu", "sub/b.cuh"]
    (tmp_path / "odd[1].cu").write_text("")
    assert [str(path) for path in find_files(["odd[1].cu"])] == ["odd[1].cu"]
    with pytest.raises(UsageError):
        find_files(["sub/*.cu"])


def test_a_workspace_may_say_what_is_checked_and_the_command_line_wins(repository):
    (repository / ".dice").mkdir()
    (repository / ".dice" / "settings.toml").write_text('verify = false\ncompile_flags = ["-DX"]\n')
    _, text = check(repository, "src/saxpy.cu", "--json")
    found = json.loads(text)
    assert found["kernels"][0]["verdict"]["kind"] == "unverified"
    assert any("compile_flags is not for a workspace to set" in note for note in found["notes"])
    _, text = check(repository, "src/saxpy.cu", "--json", "--set", "verify=true")
    assert json.loads(text)["kernels"][0]["verdict"]["kind"] == "verified"


# What other repositories copy


def git(cwd: Path, *arguments: str) -> None:
    done = run("git", "-c", "user.name=a", "-c", "user.email=a@example.com", *arguments, cwd=cwd)
    assert done.returncode == 0, done.stderr.decode()


def test_the_hook_refuses_a_commit_that_makes_a_kernel_worse(tmp_path):
    """The hook of `.pre-commit-hooks.yaml`, with this installation instead of one that pre-commit would make."""
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    git(tmp_path, "init", "--quiet")
    local = {**hook, "language": "system", "args": ["--backend", "host", "--baseline", BASELINE]}
    config = {"repos": [{"repo": "local", "hooks": [local]}]}
    (tmp_path / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config))
    (tmp_path / "crowded.cu").write_text(CROWDED)
    (tmp_path / "other.cpp").write_text("int main() {}\n")
    assert check(tmp_path, "crowded.cu", "--save-baseline", BASELINE)[0] == 0
    git(tmp_path, "add", ".")

    def hooked() -> tuple[int, str]:
        done = run(sys.executable, "-m", "pre_commit", "run", cwd=tmp_path)
        return done.returncode, done.stdout.decode() + done.stderr.decode()

    code, text = hooked()
    assert code == 0 and "dice-lsp check" in text and "Passed" in text, text
    worse = CROWDED.replace("__global__ void", "__global__ void __launch_bounds__(256, 8)")
    (tmp_path / "crowded.cu").write_text(worse)
    git(tmp_path, "add", ".")
    code, text = hooked()
    assert code == 1 and "crowded.cu:3: crowded: spills" in text and "timing is switched off" in text, text
    git(tmp_path, "rm", "--cached", "--quiet", "crowded.cu")
    code, text = hooked()
    assert code == 0 and "Skipped" in text, text


@pytest.mark.slow
def test_the_hook_installs_from_a_repository_and_runs(tmp_path):
    """As another repository has it: pre-commit clones this one, builds it and installs it into an environment of its own.

    Only what this package needs is borrowed from the present environment, because PyTorch alone would take minutes.
    """
    ours, theirs = tmp_path / "dice_lsp", tmp_path / "theirs"
    ours.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", ".pre-commit-hooks.yaml"):
        shutil.copy(ROOT / name, ours / name)
    shutil.copytree(ROOT / "dice_lsp", ours / "dice_lsp", ignore=shutil.ignore_patterns("__pycache__"))
    git(ours, "init", "--quiet")
    git(ours, "add", ".")
    git(ours, "commit", "--quiet", "-m", "all")
    git(ours, "tag", "v1")

    theirs.mkdir()
    shutil.copy(SAXPY, theirs / "saxpy.cu")
    git(theirs, "init", "--quiet")
    config = {
        "repos": [{"repo": str(ours), "rev": "v1", "hooks": [{"id": "dice-check", "args": ["--backend", "host"]}]}]
    }
    (theirs / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config))
    git(theirs, "add", ".")
    borrowed = {
        "PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_INDEX": "1",
        "PYTHONPATH": str(Path(attrs.__file__).parent.parent), "PRE_COMMIT_HOME": str(tmp_path / "cache"),
    }  # fmt: skip
    done = run(sys.executable, "-m", "pre_commit", "run", "--verbose", cwd=theirs, environment=borrowed)
    text = done.stdout.decode() + done.stderr.decode()
    assert done.returncode == 0 and "verified on host" in text and "timing is switched off" in text, text
    assert "Installing environment" in text


def test_pre_commit_takes_the_manifest_and_the_example():
    for verb, path in (("manifest", ".pre-commit-hooks.yaml"), ("config", "docs/examples/pre-commit-config.yaml")):
        done = run(sys.executable, "-m", "pre_commit", f"validate-{verb}", path, cwd=ROOT)
        assert done.returncode == 0, done.stdout.decode()
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    example = yaml.safe_load((ROOT / "docs/examples/pre-commit-config.yaml").read_text())
    assert example["repos"][0]["hooks"][0]["id"] == hook["id"]


def workflows() -> list[str]:
    """The example as it stands, and with its commented job taken in."""
    text = (ROOT / "docs" / "examples" / "github-action.yml").read_text()
    start = text.index("  # times:")
    return [text, text[:start] + re.sub(r"^  # ?", "  ", text[start:], flags=re.MULTILINE)]


@pytest.mark.parametrize("text", workflows(), ids=["hosted", "with a GPU"])
def test_the_workflow_is_one_and_its_commands_are_ours(text, tmp_path):
    (tmp_path / "workflow.yml").write_text(text)
    done = run(
        sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", "workflow.yml", cwd=tmp_path
    )  # fmt: skip
    assert done.returncode == 0, done.stdout.decode()
    lines = [step.get("run", "") for job in yaml.safe_load(text)["jobs"].values() for step in job["steps"]]
    ours = [line for line in lines if " check " in line]
    assert len(ours) == len(yaml.safe_load(text)["jobs"])
    for line in ours:
        # Parsed by the command itself: all is well up to the files, which are not there.
        done = run(sys.executable, "-m", "dice_lsp", *line.split()[1:], cwd=tmp_path)
        assert done.returncode == 2 and b"dice-baseline.json does not exist" in done.stderr, done.stderr.decode()


def test_the_page_names_options_and_files_that_exist():
    page = (ROOT / "docs" / "ci.md").read_text()
    assert page.count("\n") <= 120
    done = run(sys.executable, "-m", "dice_lsp", "check", "--help", cwd=ROOT)
    for option in set(re.findall(r"--[a-z][a-z-]+", page)):
        assert option.encode() in done.stdout, option
    for link in re.findall(r"\]\(([^)#:]+)\)", page):
        assert (ROOT / "docs" / link).exists(), link
