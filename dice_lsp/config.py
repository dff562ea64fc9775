"""Options as a client sends them become Settings: resolved, frozen, documented.

The field descriptions are the manual: `dice-lsp settings` and the README's table are made from them.
"""

import re
from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

import attrs
from attrs import frozen


def _field(default: Any, doc: str) -> Any:
    return attrs.field(default=default, metadata={"doc": doc})


Strategy = Literal["auto", "sequential", "low_confidence_static", "low_confidence_dynamic", "entropy_bounded"]
Precision = Literal["auto", "fp32", "bf16", "int8", "int4"]
Backend = Literal["auto", "pycuda", "cuda-core", "host"]


@frozen
class Settings:
    """Every setting there is, with its default. A client sends them under `dice`, in camelCase or snake_case."""

    model: str = _field("tiny", "Checkpoint: `tiny` (shipped), a folder, or the name of one that was pulled")
    candidates: int = _field(8, "Number of candidates of a fill, 1 to 64")
    fill_budget_s: float | None = _field(
        None,
        "Write candidates for this many seconds instead of a number of them; those that are whole by then are judged",
    )
    decode_strategy: Strategy = _field("auto", "Order of unmasking; `auto` is the checkpoint's own")
    decode_threshold: float | None = _field(
        None, "Confidence above which a token is revealed (dynamic strategy), 0 to 1"
    )
    decode_temperature: float | None = _field(None, "Sampling temperature of all candidates but the first, 0 to 2")
    decode_block_size: int | None = _field(
        None, "Tokens denoised together; must be one the checkpoint was trained with"
    )
    decode_max_new_tokens: int | None = _field(None, "Longest fill in tokens")
    prompt_template: str | None = _field(None, "File that replaces the prompt of a DICE checkpoint")
    seed: int = _field(0, "Seed of sampling and of test inputs; the same seed gives the same candidates")
    backend: Backend = _field("auto", "Where kernels run: `auto` takes pycuda, else cuda-core, else the host")
    device: int = _field(0, "Index of the GPU that judges")
    model_device: str = _field("auto", "Where the model runs: `auto`, `cpu`, `cuda`, `cuda:1`")
    model_precision: Precision = _field(
        "auto", "Precision of the weights; `auto` is bf16 on a GPU, int8 where that does not fit, fp32 on the CPU"
    )
    arch: str = _field("auto", "Architecture to compile for, e.g. `sm_90`; `auto` is the GPU's, else sm_90")
    compile_flags: tuple[str, ...] = _field(
        (), "More flags for the device compiler: -D, -I, -std, --use_fast_math, -maxrregcount"
    )
    compile_commands: str = _field(
        "auto",
        "Where the project's flags come from: `auto` looks for `compile_commands.json`, `.clangd`, presets; `off`; or a path",
    )
    nvcc: str | None = _field(None, "Path of nvcc; the default looks on PATH and in CUDA_HOME")
    cxx: str | None = _field(
        None, "Path of the C++ compiler of the host emulation; the default looks for g++ and clang++"
    )
    check_on_save: bool = _field(True, "Check the kernels of a file when it is saved")
    check_on_open: bool = _field(True, "Check the kernels of a file when it is opened")
    check_budget_s: float = _field(
        120.0, "Longest check that a save or an open may start, in seconds; kernels beyond it say so"
    )
    history: bool = _field(True, "Keep measurements and baselines in the workspace's `.dice` folder")
    auto_baseline: bool = _field(
        True, "Take the first verified version of a kernel as its baseline until one is accepted"
    )
    regression_percent: float = _field(
        2.0, "How much slower than its baseline a kernel must be for a diagnostic; the hint tells less too"
    )
    dataset_keep: bool = _field(
        False,
        "Keep fills that you accept, once verified and at least twice as fast, as records for fine-tuning in your own data folder",
    )
    verify: bool = _field(True, "Run kernels to compare them with their reference")
    benchmark: bool = _field(True, "Time kernels on the GPU")
    sanitize: bool = _field(
        True, "In idle time run compute-sanitizer on kernels that were verified on a GPU, where it is installed"
    )
    code_lens: bool = _field(True, "Show code lenses on kernels")
    inlay_hints: bool = _field(True, "Show hints at the end of a kernel's first line")
    compile_deadline_s: float = _field(60.0, "Longest compile, in seconds")
    run_deadline_s: float = _field(10.0, "Longest run of one case of a kernel, in seconds")


_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
RANGES: dict[str, tuple[float, float]] = {
    "candidates": (1, 64), "fill_budget_s": (0.1, 600.0), "decode_threshold": (0.0, 1.0), "decode_temperature": (0.0, 2.0),
    "decode_block_size": (1, 256), "decode_max_new_tokens": (1, 8192), "device": (0, 63), "seed": (0, 2**63 - 1),
    "compile_deadline_s": (1.0, 600.0), "run_deadline_s": (0.1, 600.0),
    "check_budget_s": (1.0, 86400.0), "regression_percent": (0.0, 1000.0),
}  # fmt: skip


def resolve(options: Mapping[str, Any] | None, base: Settings | None = None) -> tuple[Settings, tuple[str, ...]]:
    """Settings from options as sent, and one sentence for each option that was not taken.

    A bad option never stops the server: it keeps its value from `base` and is named.
    """
    settings = base or Settings()
    kinds = get_type_hints(Settings)
    values: dict[str, Any] = {}
    complaints: list[str] = []
    for key, value in _flatten(options or {}):
        name = _CAMEL.sub("_", key).lower().replace(".", "_").replace("-", "_")
        if name not in kinds:
            complaints.append(f"unknown setting dice.{key}: see the README's table of settings")
            continue
        if value is None:
            continue
        taken, problem = _take(name, value, kinds[name])
        if problem:
            complaints.append(f"setting dice.{key} {problem}; {getattr(settings, name)!r} is used")
        else:
            values[name] = taken
    return attrs.evolve(settings, **values), tuple(complaints)


def _flatten(options: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    flat: list[tuple[str, Any]] = []
    for key, value in options.items():
        if isinstance(value, Mapping):
            flat += _flatten(value, f"{prefix}{key}.")
        else:
            flat.append((prefix + key, value))
    return flat


def _take(name: str, value: Any, kind: Any) -> tuple[Any, str | None]:
    alternatives = [k for k in get_args(kind) if k is not type(None)]
    if get_origin(kind) is Literal:
        allowed = get_args(kind)
        return (value, None) if value in allowed else (None, f"must be one of {', '.join(allowed)}, not {value!r}")
    if kind == tuple[str, ...]:
        if isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value):
            return tuple(value), None
        return None, f"must be a list of strings, not {value!r}"
    kind = alternatives[0] if alternatives else kind
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        return None, f"must be of type {kind.__name__}, not {value!r}"
    low, high = RANGES.get(name, (None, None))
    if low is not None and high is not None and not low <= value <= high:
        return None, f"must be between {low} and {high}, not {value}"
    return value, None
