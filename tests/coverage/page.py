"""The report as Markdown: shares, and why the rest is not there, by kind."""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from tests.coverage.baseline import ByNvcc
from tests.coverage.measure import File, Row

_STRENGTH = ("directive", "captured", "launch_site", "inferred", "default")
_SURE = ("certain", "likely", "guess")


def kind_of(sentence: str) -> str:
    """A sentence without what only one kernel has: names, numbers, quoted text and the next step."""
    text = re.sub(r"[;:] (?:write|set|add|use|see) .*", "", sentence)
    text = re.sub(r"^line \d+: ", "", text)
    text = re.sub(r"`[^`]*`|\"[^\"]*\"|'[^']*'", "X", text)
    text = re.sub(r"^the (size|value|values) of (?!the )\w+", r"the \1 of X", text)
    text = re.sub(r"^the template argument \w+", "the template argument X", text)
    text = re.sub(r"^\w+ is an? [\w:<>, ]+? by value", "X is a struct by value", text)
    text = re.sub(r"^\w+ is a pointer to pointers", "X is a pointer to pointers", text)
    text = re.sub(r"^template arguments of \S+ are", "template arguments are", text)
    text = re.sub(r"^\S+ is not in this build", "it is not in this build", text)
    text = re.sub(r"^(?:\w+=\d+(?:, )?)+ is too large", "the only size is too large", text)
    text = re.sub(r"^(\w+): \S+?\[\d+\].*", r"\1: an element", text)
    text = re.sub(r"\b\d+(?:\.\d+)?\b", "N", text)
    return text[:140]


def weakest_origin(row: Row) -> str:
    """The least of the origins of a launch: what it as a whole rests on."""
    parts = [origin for name, origin in row.origins.items() if name not in ("reference", "tolerances")]
    return max(parts, key=_STRENGTH.index, default="launch_site")


def weakest_confidence(row: Row) -> str:
    """The least of the confidences; empty where none is told."""
    return max(row.confidence.values(), key=_SURE.index, default="")


def share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({100 * part / whole:.1f} %)" if whole else "0 of 0"


def nvcc_takes(row: Row, answers: Mapping[str, ByNvcc | None]) -> bool | None:
    """Whether nvcc compiles the kernel's file, and the kernel with it; None where it was not asked.

    A kernel that an `#if` leaves out is in no build of ours; that nvcc has no code for it either proves it right.
    """
    answer = answers.get(row.path)
    if answer is None:
        return None
    name = row.kernel.split("::")[-1].split("@")[0]
    left_out = "not in this build" in row.build_reason and not any(name in entry for entry in answer.entries)
    return answer.ok and not left_out


def summary(files: Sequence[File], rows: Sequence[Row], answers: Mapping[str, ByNvcc | None]) -> list[tuple[str, str]]:
    """`(what, share)` for the table of one tree."""
    counted = sum(len(file.counted.kernels) for file in files)
    missed = sum(len(file.missed) for file in files)
    table = [("files with kernels", str(len(files))), ("kernels counted", str(counted))]
    table.append(("found", share(counted - missed, counted)))
    if any(row.built for row in rows):
        table.append(("compiled with NVRTC", share(sum(row.built == "nvrtc" for row in rows), len(rows))))
        good = [row for row in rows if row.built in ("nvrtc", "nvcc")]
        table.append(("compiled either way", share(len(good), len(rows))))
        can = [row for row in rows if nvcc_takes(row, answers)]
        if can:
            table.append(("nvcc compiles the whole file, and it is in it", share(len(can), len(rows))))
            both = sum(row.built in ("nvrtc", "nvcc") for row in can)
            table.append(("compiled, of what nvcc compiles", share(both, len(can))))
            table.append(("compiled, where nvcc fails on the file", str(len(good) - both)))
    known = [row for row in rows if row.launch]
    table.append(("launch known without a directive", share(len(known), len(rows))))
    for label, weigh in (("origin", weakest_origin), ("confidence", weakest_confidence)):
        counts = Counter(weigh(row) for row in known)
        for name in (*_STRENGTH, *_SURE):
            if counts[name]:
                table.append((f"... weakest {label} `{name}`", str(counts[name])))
    judged = [row for row in rows if row.verdict]
    if judged:
        kinds = Counter(row.verdict for row in judged)
        words = {
            "verified": "verified on the host against a reference",
            "safe": "ran safely on the host, no reference",
            "unverified": "launched, but not judged on the host",
            "wrong": "called wrong",
            "unsafe": "called unsafe",
            "cheating": "called cheating",
        }
        table += [
            (text, share(kinds[name], len(rows))) for name, text in words.items() if kinds[name] or name != "cheating"
        ]
    return table


def render(
    tree: str, files: Sequence[File], rows: Sequence[Row], answers: Mapping[str, ByNvcc | None], *, details: bool
) -> str:
    """The report of one tree."""
    out = [f"## {tree}", "", "| | |", "|---|---|"]
    out += [f"| {what} | {figure} |" for what, figure in summary(files, rows, answers)]
    missed = [(f"{file.path}", "not found", name) for file in files for name in file.missed]
    out += _section("Counted but not found", missed, details)
    failed = [row for row in rows if row.built in ("failed", "none")]
    for title, chosen in (
        ("Not compiled, though nvcc compiles the file", [row for row in failed if nvcc_takes(row, answers)]),
        ("Not compiled, nor does nvcc compile the file", [row for row in failed if nvcc_takes(row, answers) is False]),
        ("Not compiled, nvcc not asked", [row for row in failed if nvcc_takes(row, answers) is None]),
    ):
        out += _section(title, [(_place(row), kind_of(row.build_reason), row.build_reason) for row in chosen], details)
    by_nvcc = [row for row in rows if row.built == "nvcc"]
    out += _section("Compiled by nvcc only", [(_place(row), "nvcc", "") for row in by_nvcc], details)
    if any(not answer.ok for answer in answers.values() if answer is not None):
        bad = [
            (path, kind_of(a.error.split("error:")[-1].strip()), a.error)
            for path, a in answers.items()
            if a and not a.ok
        ]
        out += _section("Files that nvcc does not compile", bad, details)
    unknown = [row for row in rows if not row.launch]
    sites = Counter(row.site for row in unknown)
    out += _section(
        "Launch not known, by first reason",
        [
            (_place(row), kind_of(row.launch_reasons[0] if row.launch_reasons else "no reason"), _reasons(row))
            for row in unknown
        ],
        details,
    )
    if unknown:
        out += [
            "",
            "Where the tree launches them: " + ", ".join(f"{name} {n}" for name, n in sites.most_common()) + ".",
        ]
    for verdict in ("wrong", "unsafe", "unverified", "cheating"):
        chosen = [row for row in rows if row.verdict == verdict]
        told = [(_place(row), kind_of(row.verdict_reason), f"{row.verdict_reason} [{_basis(row)}]") for row in chosen]
        out += _section(f"Verdict `{verdict}`", told, details)
    return "\n".join(out) + "\n"


def _place(row: Row) -> str:
    return f"{row.path}:{row.line} {row.kernel}"


def _reasons(row: Row) -> str:
    return f"[launched: {row.site}] " + " | ".join(row.launch_reasons)


def _basis(row: Row) -> str:
    return ", ".join(f"{name} {origin}" for name, origin in row.origins.items())


def _section(title: str, items: Sequence[tuple[str, str, str]], details: bool) -> list[str]:
    if not items:
        return []
    kinds: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for place, kind, told in items:
        kinds[kind].append((place, told))
    out = ["", f"### {title}: {len(items)}", "", "| kernels | kind | example |", "|---|---|---|"]
    ordered = sorted(kinds.items(), key=lambda item: -len(item[1]))
    out += [f"| {len(places)} | {_cell(kind)} | `{places[0][0]}` |" for kind, places in ordered]
    if details:
        for kind, places in ordered:
            out += ["", f"#### {kind} ({len(places)})", ""]
            out += [f"- {place}: {told}" if told else f"- {place}" for place, told in places]
    return out


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
