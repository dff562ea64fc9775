"""How far the product comes with any tree of CUDA files, and why not further.

`python -m tests.coverage DIR... [--json FILE] [--details FILE] [--jobs N] [--state FILE] [--only PART]
[--nvcc PATH] [--nvcc-cache FOLDER] [--no-nvcc] [--nvcc-known] [--no-compile] [--verify]`

For every kernel of `.cu`, `.cuh` and other headers, and of the strings of Python files: is it found, compiled with NVRTC,
compiled either way, is its launch known without a directive and by what, and with `--verify` what a run on the host
says. The rest comes with reasons, by kind. It prints Markdown. `--no-compile` takes seconds. An ended run goes on where it
was when `--state` names the same file, as long as product and texts are the same. What nvcc itself makes of each file is
asked once and kept (`--nvcc-known`: only what is kept).
"""

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path

import attrs
from platformdirs import user_cache_path

from dice_lsp.config import Settings
from dice_lsp.worker.compile import find_nvcc
from tests.coverage.baseline import Baseline, ByNvcc, by_includers
from tests.coverage.measure import File, Row, includers_of, measure, read_tree
from tests.coverage.page import render


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.coverage", description=__doc__)
    parser.add_argument("trees", nargs="+", type=Path, metavar="DIR")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every row there")
    parser.add_argument("--details", type=Path, metavar="FILE", help="write the report with every place there")
    parser.add_argument("--jobs", type=int, default=1, metavar="N")
    parser.add_argument("--state", type=Path, metavar="FILE", help="rows, written as they come")
    parser.add_argument("--only", action="append", default=[], metavar="PART", help="only files whose path holds this")
    parser.add_argument("--nvcc", metavar="PATH")
    parser.add_argument("--nvcc-cache", type=Path, default=user_cache_path("dice-lsp") / "coverage", metavar="FOLDER")
    parser.add_argument("--no-nvcc", action="store_true", help="do not ask nvcc for whole files")
    parser.add_argument("--nvcc-known", action="store_true", help="take only those answers of nvcc that are kept")
    parser.add_argument("--no-compile", action="store_true", help="only find kernels and infer launches")
    parser.add_argument("--verify", action="store_true", help="run what can be launched on the host")
    arguments = parser.parse_args()
    settings = attrs.evolve(Settings(), backend="host", benchmark=False, nvcc=arguments.nvcc)
    parts, details, data = [], [], []
    for tree in arguments.trees:
        files = read_tree(tree, arguments.only)
        if not files:
            print(f"{tree} holds no file with a kernel", file=sys.stderr)
            return 2
        answers = {} if arguments.no_nvcc or arguments.no_compile else _baseline(tree, files, arguments)
        rows = asyncio.run(
            measure(
                tree, files, settings=settings, compile_kernels=not arguments.no_compile, verify=arguments.verify,
                jobs=arguments.jobs, state=arguments.state, on_row=_tell,
            )
        )  # fmt: skip
        parts.append(render(tree.resolve().name, files, rows, answers, details=False))
        details.append(render(tree.resolve().name, files, rows, answers, details=True))
        data.append(
            {"tree": tree.resolve().name, "files": _files(files, answers), "kernels": [attrs.asdict(r) for r in rows]}
        )
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(data, indent=1))
    if arguments.details is not None:
        arguments.details.write_text("\n".join(details))
    print("\n".join(parts))
    return 0


def _files(files: tuple[File, ...], answers: dict[str, ByNvcc | None]) -> list[dict[str, object]]:
    told = []
    for file in files:
        answer = answers.get(file.path)
        nvcc = None if answer is None else {"ok": answer.ok, "error": answer.error, "entries": len(answer.entries)}
        told.append(
            {"path": file.path, "counted": len(file.counted.kernels), "found": len(file.kernels), "missed": file.missed,
             "macros": file.counted.macros, "nvcc": nvcc}
        )  # fmt: skip
    return told


def _baseline(tree: Path, files: tuple[File, ...], arguments: argparse.Namespace) -> dict[str, ByNvcc | None]:
    nvcc = find_nvcc(arguments.nvcc)
    if nvcc is None:
        print("nvcc is not there, so nothing is held against it", file=sys.stderr)
        return {}
    baseline = Baseline(nvcc, arguments.nvcc_cache)
    includers = includers_of(tree, [file.path for file in files])
    wanted = [file.path for file in files if not file.path.endswith(".py")]
    wanted += [path for paths in includers.values() for path in paths]
    answers: dict[Path, ByNvcc | None] = {}
    for path in dict.fromkeys(wanted):
        text = (tree / path).read_text("utf-8", "replace")
        answers[Path(path)] = answer = baseline.of(tree / path, text, only_known=arguments.nvcc_known)
        if answer is not None and not arguments.nvcc_known:
            print(
                f"nvcc {'takes' if answer.ok else 'refuses'} {path} ({answer.seconds:.1f} s)",
                file=sys.stderr,
                flush=True,
            )
    by_path = {Path(path): tuple(map(Path, others)) for path, others in includers.items()}
    return {file.path: by_includers(answers, by_path, Path(file.path)) for file in files}


def _tell(row: Row) -> None:
    launch = "launch known" if row.launch else "launch unknown"
    print(f"{row.path}:{row.line} {row.kernel}: {row.built} {launch} {row.verdict}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    os.nice(5)
    sys.exit(main())
