"""What becomes a baseline, what is held against it, and the file that carries it into CI."""

import base64
import json
import zlib

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dice_lsp import baseline as rules
from dice_lsp.baseline import BaselineError, changes, dump, launch_key, load, make, mismatch, regression, why_not
from dice_lsp.hint import BEING_CHECKED
from dice_lsp.records import (
    Ambiguous,
    Cheating,
    CompileFailed,
    CompileMessage,
    Faster,
    NotCompared,
    NotCompiled,
    Origin,
    Same,
    Slower,
    Unsafe,
    Unverified,
    Wrong,
)
from tests.reports import BUILD, CUBIN, EVIDENCE, HOST_EVIDENCE, KERNEL, NO_GPU, ON_HOST, SPEC, TIMING, baseline, report

FAILED = CompileFailed("nvrtc 13.5", (CompileMessage(8, 4, "error", "x"),))
WRONG = Wrong("z", 4096, "0", "1.5", "n=5000", 904, 5000)
UNSAFE = Unsafe("out_of_bounds", "x[1000] of 1000", "n=1000")
CHEATING = Cheating("stateful_result", "answer kept")


# What becomes a baseline


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"build": FAILED}, "does not compile"),
        ({"build": NotCompiled("no compiler is there")}, "no compiler is there"),
        ({"verdict": WRONG}, "z[4096] is 0"),
        ({"verdict": UNSAFE}, "out of bounds"),
        ({"verdict": CHEATING}, "stateful result"),
        ({"verdict": Unverified(BEING_CHECKED)}, "still being checked"),
    ],
)
def test_what_nobody_may_accept_says_why(parts, words):
    reason = why_not(report(**parts))
    assert reason is not None and words in reason and reason.startswith("saxpy ") and not reason.endswith(".")
    assert why_not(report(**parts), "first") is not None


def test_a_kernel_without_a_reference_may_be_accepted_but_not_taken():
    unverified = report(verdict=Unverified("no reference", ("bounds",)))
    assert why_not(unverified) is None and why_not(report()) is None and why_not(report(), "first") is None
    assert "not verified (no reference)" in (why_not(unverified, "first") or "")


def test_a_baseline_keeps_the_code_and_drops_what_differs_from_compile_to_compile():
    made = baseline()
    assert made.build.cubin == CUBIN and made.build.registers == 40
    assert made.build.elapsed_ms == 0.0 and made.build.messages == ()
    assert made.launch_key == launch_key(SPEC) and made.when == EVIDENCE.when and made.kernel == KERNEL
    noisy = attrs.evolve(BUILD, elapsed_ms=812.5, messages=(CompileMessage(1, 1, "warning", "unused"),))
    assert baseline(build=noisy) == made


def test_a_baseline_without_machine_code_is_our_mistake():
    with pytest.raises(AssertionError):
        make(KERNEL, report(), BUILD, "accepted")


# The launch

DIM = SPEC.dims[0]
BUFFER = SPEC.buffers[0]


@pytest.mark.parametrize(
    "same",
    [
        attrs.evolve(SPEC, dims=(attrs.evolve(DIM, values=(1 << 20, 77), origin=Origin.LAUNCH_SITE),)),
        attrs.evolve(SPEC, grid=("4096", "1", "1")),
        attrs.evolve(SPEC, grid=("n / 256", "1", "1")),
        attrs.evolve(SPEC, grid=("(n+T-1)/T", "1", "1"), block=("T", "1", "1"), constants={"T": 256}),
        attrs.evolve(SPEC, constants={"UNUSED": 3}),
        attrs.evolve(SPEC, buffers=(attrs.evolve(BUFFER, extents=("1048576",)),)),
        attrs.evolve(SPEC, origins={"grid": Origin.DIRECTIVE}, bytes="8 * n"),
    ],
)
def test_a_launch_is_its_values_and_not_how_they_are_written(same):
    assert launch_key(same) == launch_key(SPEC)


@pytest.mark.parametrize(
    "other",
    [
        attrs.evolve(SPEC, dims=(attrs.evolve(DIM, values=(1 << 21,)),)),
        attrs.evolve(SPEC, grid=("4095", "1", "1")),
        attrs.evolve(SPEC, grid=None),
        attrs.evolve(SPEC, block=("128", "1", "1")),
        attrs.evolve(SPEC, grid=("(n+T-1)/T", "1", "1"), block=("T", "1", "1"), constants={"T": 128}),
        attrs.evolve(SPEC, smem_bytes="1024"),
        attrs.evolve(SPEC, buffers=(attrs.evolve(BUFFER, init="zeros"),)),
        attrs.evolve(SPEC, buffers=(attrs.evolve(BUFFER, extents=("2 * n",)),)),
        attrs.evolve(SPEC, buffers=()),
        attrs.evolve(SPEC, scalars={"a": "2.5f"}),
        attrs.evolve(SPEC, template={"T": "float"}),
        attrs.evolve(SPEC, cache="hot"),
    ],
)
def test_another_launch_has_another_key(other):
    assert launch_key(other) != launch_key(SPEC)


def test_scalars_that_are_no_integers_count_as_they_are_written():
    def key(text):
        return launch_key(attrs.evolve(SPEC, scalars={"a": text}))

    assert key("2.5f") != key("2.0f") and key("n / 2") == key("524288")


# What is compared


def test_only_the_same_device_driver_and_launch_are_compared():
    kept = baseline()
    assert mismatch(kept, "NVIDIA H200", "580", SPEC) is None
    assert mismatch(attrs.evolve(kept, evidence=attrs.evolve(EVIDENCE, device="NVIDIA A100")), "NVIDIA H200", "580", SPEC) == (
        NotCompared("the baseline was accepted on NVIDIA A100, this is NVIDIA H200; accept again here", "other device")
    )  # fmt: skip
    driver = mismatch(kept, "NVIDIA H200", "590", SPEC)
    assert driver is not None and driver.label == "other driver" and "580" in driver.reason and "590" in driver.reason
    launch = mismatch(kept, "NVIDIA H200", "580", attrs.evolve(SPEC, block=("128", "1", "1")))
    assert launch is not None and launch.label == "other launch"
    host = mismatch(kept, "host", "g++ 12.2", SPEC)
    assert host is not None and host.label == "other device" and "this is the host" in host.reason


def test_another_host_compiler_is_no_other_driver():
    kept = baseline(evidence=HOST_EVIDENCE, verdict=ON_HOST, timing=NO_GPU)
    assert mismatch(kept, "host", "g++ 14.1", SPEC) is None


def figures(**fields):
    return report(build=attrs.evolve(BUILD, **fields))


def test_figures_of_the_compiler_that_changed():
    kept = baseline(build=attrs.evolve(BUILD, registers=32, occupancy=1.0, spill_load_bytes=4))
    found = changes(kept, figures(registers=40, occupancy=0.75, spill_store_bytes=8, smem_bytes=1024))
    assert [str(change) for change in found] == [
        "registers 40, was 32",
        "spills 8 B, was 4 B",
        "shared memory 1024 B, was 0 B",
        "occupancy 75%, was 100%",
    ]
    assert [change.worse for change in found] == [False, True, False, True]
    better = changes(baseline(build=attrs.evolve(BUILD, occupancy=0.5, spill_load_bytes=8)), figures())
    assert [(change.what, change.worse) for change in better] == [("spills", False), ("occupancy", False)]
    assert changes(baseline(), figures(elapsed_ms=3.0)) == ()


def test_figures_of_another_compiler_say_nothing():
    kept = baseline()
    assert changes(kept, figures(registers=99, arch="sm_80")) == ()
    assert changes(kept, figures(registers=99, compiler="nvcc 13.0")) == ()
    assert changes(kept, report(build=FAILED)) == ()


def test_a_lower_occupancy_of_other_blocks_is_a_note():
    (change,) = changes(baseline(), figures(occupancy=0.5, block_threads=768))
    assert change.what == "occupancy" and not change.worse


# Regressions


def timed(comparison, **parts):
    return report(timing=TIMING, comparison=comparison, baseline=baseline(), **parts)


def test_slower_beyond_the_limit_is_a_regression():
    words = regression(timed(Slower(1 / 1.13, 1 / 1.14, 1 / 1.12)), 2.0)
    assert words == (
        "1.13x slower than the baseline of 2026-11-30 (1.12x to 1.14x), 12.3 us now; both were timed in one run"
    )


@pytest.mark.parametrize(
    ("slowdown", "percent", "called"),
    [
        ((1.03, 1.05), 2.0, True),
        ((1.015, 1.05), 2.0, False),  # the interval begins below the limit
        ((1.015, 1.05), 1.0, True),
        ((1.015, 1.05), 0.0, True),
        ((1.6, 1.7), 100.0, False),
    ],
)
def test_the_whole_interval_must_lie_beyond_the_limit(slowdown, percent, called):
    least, most = slowdown
    found = regression(timed(Slower(2 / (least + most), 1 / most, 1 / least)), percent)
    assert (found is not None) is called


@pytest.mark.parametrize("comparison", [Faster(1.2, 1.1, 1.3), Same(1, 0.99, 1.01), Ambiguous("noisy")])
def test_where_a_time_was_compared_the_figures_do_not_matter(comparison):
    spilling = attrs.evolve(BUILD, spill_store_bytes=64, occupancy=0.25)
    assert regression(timed(comparison, build=spilling), 2.0) is None


def test_no_baseline_no_regression():
    assert regression(report(timing=TIMING, comparison=Slower(0.5, 0.4, 0.6)), 2.0) is None
    assert regression(report(verdict=WRONG), 2.0) is None


@pytest.mark.parametrize("verdict", [WRONG, UNSAFE, CHEATING])
def test_a_kernel_that_was_right_and_is_not_is_a_regression(verdict):
    words = regression(report(verdict=verdict, baseline=baseline()), 2.0)
    assert words is not None and words.endswith("the baseline of 2026-11-30 was verified")
    accepted_unverified = baseline(verdict=Unverified("no reference", ("bounds",)))
    assert regression(report(verdict=verdict, baseline=accepted_unverified), 2.0) is None


SPILLING = attrs.evolve(BUILD, spill_store_bytes=8, spill_load_bytes=8, registers=255, occupancy=0.5)


def test_without_a_time_spills_and_occupancy_count():
    words = regression(report(build=SPILLING, verdict=ON_HOST, evidence=HOST_EVIDENCE, baseline=baseline()), 2.0)
    assert words == "spills 16 B, was 0 B; occupancy 50%, was 100% in the baseline of 2026-11-30; no time was compared"
    only_registers = report(build=attrs.evolve(BUILD, registers=48), baseline=baseline())
    assert regression(only_registers, 2.0) is None


@pytest.mark.parametrize(
    "parts",
    [
        {"verdict": Unverified(BEING_CHECKED)},  # a time may follow
        {"spec": attrs.evolve(SPEC, template={"N": "8"})},
        {"build": attrs.evolve(SPILLING, compiler="nvcc 13.0")},
        {"build": FAILED},
        {"timing": TIMING, "comparison": NotCompared("elsewhere", "other device")},
    ],
)
def test_figures_are_no_regression_where_they_cannot_be_compared_or_a_time_could(parts):
    assert regression(report(**{"build": SPILLING, "baseline": baseline(), **parts}), 2.0) is None


# The file


def many():
    renamed = attrs.evolve(baseline("first"), kernel=attrs.evolve(KERNEL, name="b", distinct_name="ours::b"))
    return {"src/b.cu": {"z": baseline(), "ours::b": renamed}, "a.cu": {"saxpy": baseline(timing=NO_GPU)}}


def test_a_file_gives_back_what_it_was_given():
    text = dump(many())
    assert load(text) == many() and dump(load(text)) == text


def test_the_file_is_the_same_for_the_same_baselines_in_any_order():
    turned = {name: dict(reversed(kernels.items())) for name, kernels in reversed(many().items())}
    text = dump(turned)
    assert text == dump(many()) and text.endswith("}\n") and text.isascii()
    # One kernel accepted anew touches only that kernel's lines.
    changed = many()
    changed["a.cu"]["saxpy"] = baseline(build=attrs.evolve(BUILD, registers=41), timing=NO_GPU)
    differing = [a for a, b in zip(text.splitlines(), dump(changed).splitlines(), strict=True) if a != b]
    assert [line.strip() for line in differing] == ['"registers": 40,']


def test_a_file_without_baselines_is_valid():
    assert load(dump({})) == {} and load(dump({"a.cu": {}})) == {}


def test_the_code_is_packed():
    data = json.loads(dump({"a.cu": {"saxpy": baseline()}}))
    packed = data["files"]["a.cu"]["saxpy"]["build"]["cubin"]
    assert zlib.decompress(base64.b64decode(packed)) == CUBIN and len(packed) < 200


@pytest.mark.parametrize("name", ["/abs/a.cu", "../a.cu", "a/../b.cu", "", "./a.cu", "a//b.cu"])
def test_names_of_files_are_relative(name):
    with pytest.raises(BaselineError):
        dump({name: {"saxpy": baseline()}})
    content = json.loads(dump({"a.cu": {"saxpy": baseline()}}))
    content["files"] = {name: content["files"]["a.cu"]}
    with pytest.raises(BaselineError):
        load(json.dumps(content))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not JSON (line 1)"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("NaN", "not JSON"),
        ("[]", "holds no baselines"),
        ("3", "holds no baselines"),
        ('{"version": 1, "files": {}}', "holds no baselines"),
        ('{"format": "dice-lsp baselines", "version": 2, "files": {}}', "newer dice-lsp (format 2, this one reads 1)"),
        ('{"format": "dice-lsp baselines", "version": "1", "files": {}}', "not complete"),
        ('{"format": "dice-lsp baselines", "version": true, "files": {}}', "not complete"),
        ('{"format": "dice-lsp baselines", "version": 1}', "not complete"),
        ('{"format": "dice-lsp baselines", "version": 1, "files": {"a.cu": []}}', "'a.cu' cannot be read"),
        ('{"format": "dice-lsp baselines", "version": 1, "files": {"a.cu": {"k": {}}}}', "of k in a.cu cannot be read"),
    ],
)
def test_a_file_of_another_kind_is_refused_in_one_sentence(text, words):
    with pytest.raises(BaselineError) as refused:
        load(text)
    assert words in str(refused.value) and "\n" not in str(refused.value)


def test_a_merge_conflict_is_named_with_its_line():
    lines = dump({"a.cu": {"saxpy": baseline()}}).splitlines()
    lines.insert(4, "<<<<<<< HEAD")
    with pytest.raises(BaselineError, match="merge conflict in line 5"):
        load("\n".join(lines))


def edited(*path, value):
    """The file of one baseline with one value replaced."""
    content = json.loads(dump({"a.cu": {"saxpy": baseline()}}))
    place = content["files"]["a.cu"]["saxpy"]
    for step in path[:-1]:
        place = place[step]
    assert path[-1] in place
    place[path[-1]] = value
    return json.dumps(content)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("origin",), 3),
        (("kernel",), "saxpy"),
        (("kernel", "line"), 7.5),
        (("kernel", "line"), "7"),
        (("kernel", "extern_c"), "no"),
        (("kernel", "extern_c"), 0),
        (("kernel", "parameters"), "none"),
        (("kernel", "parameters", 0, "pointer"), 1),
        (("build", "registers"), None),
        (("build", "symbol"), ["saxpy"]),
        (("build", "cubin"), ""),
        (("build", "cubin"), "not base64!"),
        (("build", "cubin"), base64.b64encode(b"not packed").decode()),
        (("build", "cubin"), base64.b64encode(zlib.compress(CUBIN)[:-3]).decode()),
        (("build", "cubin"), base64.b64encode(zlib.compress(b"")).decode()),
        (("build", "cubin"), 5),
        (("timing", "kind"), "timings"),
        (("timing", "median_us"), "12.3"),
        (("verdict", "kind"), "compiled"),
        (("verdict",), None),
        (("evidence",), []),
    ],
)
def test_a_value_of_another_type_is_refused(path, value):
    with pytest.raises(BaselineError, match="the baseline of saxpy in a.cu cannot be read"):
        load(edited(*path, value=value))


def test_what_unpacks_to_too_much_is_refused(monkeypatch):
    monkeypatch.setattr(rules, "MAX_CUBIN_BYTES", 1000)
    with pytest.raises(BaselineError, match="damaged"):
        load(dump({"a.cu": {"saxpy": baseline()}}))


def test_a_field_that_a_later_version_adds_is_passed_over():
    content = json.loads(dump({"a.cu": {"saxpy": baseline()}}))
    content["files"]["a.cu"]["saxpy"]["note"] = "new"
    assert load(json.dumps(content)) == {"a.cu": {"saxpy": baseline()}}


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(sorted(json.loads(dump({"a.cu": {"k": baseline()}}))["files"]["a.cu"]["k"])), _JSON)
def test_any_value_in_any_place_is_read_or_refused(field, value):
    content = json.loads(dump({"a.cu": {"k": baseline()}}))
    content["files"]["a.cu"]["k"][field] = value
    try:
        load(json.dumps(content))
    except BaselineError as error:
        assert "\n" not in str(error)
