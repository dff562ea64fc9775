"""Where a checkpoint goes: the device and the precision that were asked for, and what memory allows.

Memory is asked for before it is taken; what does not fit says what would.
"""

from attrs import frozen

from dice_lsp.diffusion import registry
from dice_lsp.diffusion.checkpoint import CheckpointError, network_config, read
from dice_lsp.diffusion.precision import PRECISIONS, Precision, needed_bytes, slot_bytes
from dice_lsp.diffusion.sizes import SDARConfig

SMALL_PARAMETERS = 50_000_000
"""Below this the CPU is fast enough, and the GPU stays free for the kernels that are timed there."""


FREE_SHARE = 0.5
"""Of the memory that is free, what the cache of a fill may take: while it grows, the one before is still there."""


@frozen
class Place:
    """Where a checkpoint goes, in which precision, and what the user should know of that."""

    device: str
    precision: Precision
    message: str = ""


def choose_place(model: str, asked: str, precision: str) -> Place:
    """A torch device and a precision for a checkpoint, of those asked for (`auto` for either) and what memory allows.

    `auto` takes a GPU for all but small checkpoints, in bf16 if that fits and else in int8; the CPU in fp32, else in bf16.
    Raises `CheckpointError` for a device that there is not, and where no memory suffices.
    """
    config = network_config(read(registry.resolve(model), model).raw, model)
    device, message = _usable_device(config, asked)
    if device == "cpu":
        return _on_host(model, config, precision, message)
    import torch

    free = torch.cuda.mem_get_info(device)[0]
    choices: tuple[Precision, ...] = ("bf16", "int8") if precision == "auto" else (_known(precision),)
    for choice in choices:
        if needed_bytes(config, choice, "cuda") <= free:
            said = ""
            if choice != choices[0]:
                said = f"{model} runs in {choice} on {device}: {_lack(config, choices[0], 'cuda', free)}"
            return Place(device, choice, said)
    reason = f"{_lack(config, choices[-1], 'cuda', free)}{_what_fits(config, choices[-1], 'cuda', free)}"
    return _on_host(model, config, "auto", f"not on {device}: {reason}")


def _usable_device(config: SDARConfig, asked: str) -> tuple[str, str]:
    """The torch device that was asked for, or the CPU and why."""
    if asked == "cpu" or (asked == "auto" and config.parameters < SMALL_PARAMETERS):
        return "cpu", ""
    import torch

    if asked == "auto":
        return ("cuda:0" if torch.cuda.is_available() else "cpu"), ""
    try:
        device = torch.device(asked)
    except RuntimeError:
        device = torch.device("meta")
    if device.type != "cuda":
        raise CheckpointError(f"the model device {asked!r} is unknown: use auto, cpu, cuda or cuda:N")
    index = device.index or 0
    if not torch.cuda.is_available():
        return "cpu", "no CUDA device can be used by torch"
    if index >= torch.cuda.device_count():
        raise CheckpointError(f"there is no {asked}: torch sees {torch.cuda.device_count()} CUDA devices")
    return f"cuda:{index}", ""


def _on_host(model: str, config: SDARConfig, precision: str, message: str) -> Place:
    if precision == "int4":
        raise CheckpointError("int4 needs a GPU: set dice.modelPrecision to int8, bf16 or auto for the CPU")
    choices: tuple[Precision, ...] = ("fp32", "bf16") if precision == "auto" else (_known(precision),)
    if message:
        message += f": {model} runs on the CPU, which is slower"
    available = _available_bytes()
    if available is None:
        return Place("cpu", choices[0], message)
    for choice in choices:
        if needed_bytes(config, choice, "cpu") <= available:
            return Place("cpu", choice, message)
    raise CheckpointError(
        f"{model} does not fit the memory: {_lack(config, choices[-1], 'cpu', available)}"
        f"{_what_fits(config, choices[-1], 'cpu', available) or '; choose a smaller checkpoint with `dice-lsp model use`'}"
    )


def _known(precision: str) -> Precision:
    for known in PRECISIONS:
        if known == precision:
            return known
    raise CheckpointError(f"the precision {precision!r} is unknown: use auto or one of {', '.join(PRECISIONS)}")


def _lack(config: SDARConfig, precision: Precision, kind: str, free: int) -> str:
    needed = needed_bytes(config, precision, kind)
    return f"{precision} needs {needed / 2**30:.1f} GiB and {free / 2**30:.1f} GiB are free"


def _what_fits(config: SDARConfig, refused: Precision, kind: str, free: int) -> str:
    """Which precision would fit, if one would."""
    lower = PRECISIONS[PRECISIONS.index(refused) + 1 :]
    for choice in lower if kind == "cuda" else tuple(item for item in lower if item != "int4"):
        if needed_bytes(config, choice, kind) <= free:
            return f"; dice.modelPrecision {choice} would fit"
    return ""


def rows_that_fit(config: SDARConfig, number_bytes: int, wanted: int, prompt: int, longest: int, device: str) -> int:
    """How many candidates of up to `longest` tokens are decoded side by side, of those wanted; the others join as these end.

    At least one: `needed_bytes` counted on that.
    """
    free = _free_bytes(device)
    if free is None:
        return wanted
    return max(1, min(wanted, int(FREE_SHARE * free // slot_bytes(config, number_bytes) - prompt) // longest))


def _free_bytes(device: str) -> int | None:
    if device == "cpu":
        return _available_bytes()
    import torch

    # What torch holds without using it is free to us.
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + unused


def _available_bytes() -> int | None:
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        return None
