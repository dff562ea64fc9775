"""Checkpoint folders: what they say, and their weights. Where they lie is `registry`'s matter.

A checkpoint is a folder of `config.json`, safetensors (one file, or shards with an index) and a tokenizer. Weights in
any other form are refused, because only safetensors cannot run code; for the same reason no code of a checkpoint is
ever imported. Our own small checkpoint adds an object `dice_lsp` to its config: `layout`, `block_sizes`, `decode`,
`special`.

This module imports neither torch nor transformers before a checkpoint is loaded, so listing is quick.
"""

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import attrs
from attrs import frozen

from dice_lsp.diffusion.precision import Precision, int8_rows, is_layer_weight, to_int4
from dice_lsp.diffusion.sizes import SDARConfig
from dice_lsp.records import DecodeSettings

if TYPE_CHECKING:
    import torch

    from dice_lsp.diffusion.model import SDAR

STRATEGIES = ("sequential", "low_confidence_static", "low_confidence_dynamic", "entropy_bounded")
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


class CheckpointError(Exception):
    """A checkpoint cannot be used; the message is one sentence for the user."""


class Tokenizer(Protocol):
    """What the layouts need of a vocabulary. `encode` reads names of special tokens in the text as these tokens."""

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> str: ...

    def id(self, token: str) -> int | None: ...


class FastTokenizer:
    """`tokenizer.json`, without transformers: that import alone takes longer than a fill of the shipped checkpoint."""

    def __init__(self, path: Path) -> None:
        import tokenizers

        try:
            self.inner = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises plain Exception for a file that it cannot read
            raise CheckpointError(f"the tokenizer {path} cannot be read: {error}") from error

    def encode(self, text: str) -> list[int]:
        return list(self.inner.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        return str(self.inner.decode(list(ids), skip_special_tokens=False))

    def id(self, token: str) -> int | None:
        found: int | None = self.inner.token_to_id(token)
        return found


class TransformersTokenizer:
    """A folder with `vocab.json` and `merges.txt`, as the SDAR family ships them, read by transformers."""

    def __init__(self, path: Path) -> None:
        from transformers import AutoTokenizer

        try:
            self.inner: Any = AutoTokenizer.from_pretrained(
                str(path), config=_transformers_config(), trust_remote_code=False, local_files_only=True
            )
        except Exception as error:
            raise CheckpointError(f"the tokenizer in {path} cannot be read: {first_line(error)}") from error

    def encode(self, text: str) -> list[int]:
        return list(self.inner.encode(text, add_special_tokens=False))

    def decode(self, ids: Sequence[int]) -> str:
        return str(self.inner.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def id(self, token: str) -> int | None:
        found = self.inner.convert_tokens_to_ids(token)
        return found if isinstance(found, int) and found != self.inner.unk_token_id else None


@frozen
class CheckpointInfo:
    """What a checkpoint's folder says about it; reading it touches no weight."""

    name: str
    path: Path
    layout: str
    """`psm` (prefix, suffix, middle; our own) or `dice` (the published DICE prompt)."""
    block_sizes: tuple[int, ...]
    """Sizes that it was trained with, the default first."""
    decode: DecodeSettings
    """Its own defaults: every field is set."""
    special: Mapping[str, int]
    """Ids of the tokens that the layout places, by the layout's names for them."""
    stop_ids: tuple[int, ...]
    mask_id: int
    max_tokens: int
    """Prompt and fill together."""
    dtype: str
    """Of the floating-point weights, as the config says: `float32`, `bfloat16`, `float16`."""
    raw: Mapping[str, Any]
    """All of `config.json`."""

    def settings(self, asked: DecodeSettings) -> DecodeSettings:
        """What was asked for, completed by the checkpoint's defaults. Raises `CheckpointError` for a value it cannot take."""
        chosen = {
            field.name: getattr(asked, field.name)
            for field in attrs.fields(DecodeSettings)
            if getattr(asked, field.name) is not None
        }
        settings = attrs.evolve(self.decode, **chosen)
        if settings.strategy not in STRATEGIES:
            raise CheckpointError(f"strategy {settings.strategy!r} is unknown: choose one of {', '.join(STRATEGIES)}")
        if settings.block_size not in self.block_sizes:
            known = ", ".join(str(size) for size in sorted(self.block_sizes))
            raise CheckpointError(
                f"block size {settings.block_size} is not one that {self.name} was trained with: choose from {known}"
            )
        if asked.block_size is not None and asked.denoising_steps is None:
            settings = attrs.evolve(settings, denoising_steps=asked.block_size)
        return settings


@frozen
class Loaded:
    """A checkpoint in memory."""

    info: CheckpointInfo
    network: "SDAR"
    tokenizer: Tokenizer
    precision: Precision = "fp32"


def read(path: Path, name: str | None = None) -> CheckpointInfo:
    """What a folder says. Raises `CheckpointError` when it is none of ours or its weights are not safetensors."""
    name = name or path.name
    raw = read_json(path / "config.json", f"{path} is no checkpoint")
    if raw.get("model_type") != "sdar":
        raise CheckpointError(
            f"{name} is a {raw.get('model_type', 'nameless')} model: only SDAR checkpoints (DICE, TraDo, our own) can fill"
        )
    for key, wanted in (("attention_bias", False), ("hidden_act", "silu"), ("rope_scaling", None)):
        if raw.get(key, wanted) != wanted:
            raise CheckpointError(f"{name} has {key} {raw[key]!r} in its config, which is not supported")
    if raw.get("use_sliding_window"):
        raise CheckpointError(f"{name} has use_sliding_window in its config, which is not supported")
    weight_files(path, name)
    config = network_config(raw, name)
    ours = raw.get("dice_lsp")
    if ours is not None and not isinstance(ours, Mapping):
        raise CheckpointError(f"{name} has a dice_lsp entry in its config that is no object")
    ours = ours or {}
    layout = ours.get("layout", "dice")
    if layout not in ("psm", "dice"):
        raise CheckpointError(f"{name} has the unknown layout {layout!r}: this version knows psm and dice")
    blocks = tuple(ours.get("block_sizes", ()))
    if not all(isinstance(size, int) and size > 0 for size in blocks):
        raise CheckpointError(f"{name} has block sizes {blocks} in its config: they must be positive integers")
    default = config.block_size
    return CheckpointInfo(
        name=name,
        path=path,
        layout=layout,
        block_sizes=(default, *(size for size in blocks if size != default)),
        decode=_decode_defaults(layout, default, ours.get("decode", {}), name),
        special=dict(ours.get("special", {})),
        stop_ids=_stop_ids(path, raw, ours),
        mask_id=config.mask_token_id,
        max_tokens=config.max_position_embeddings,
        dtype=str(raw.get("dtype", raw.get("torch_dtype", "bfloat16"))),
        raw=raw,
    )


def load(path: Path, device: str = "cpu", name: str | None = None, precision: Precision | None = None) -> Loaded:
    """Read a checkpoint into memory. Raises `CheckpointError`; lets `torch.OutOfMemoryError` of a GPU pass.

    Without a precision weights are fp32 on the CPU and bf16 on a GPU. Weights that are stored as int8 (`NAME.weight` int8
    with `NAME.weight_scale` per row) become floating-point numbers, unless int8 is asked for.
    """
    import torch

    from dice_lsp.diffusion.model import SDAR

    info = read(path, name)
    where = torch.device(device)
    precision = precision or ("fp32" if where.type == "cpu" else "bf16")
    files = weight_files(path, info.name)
    config, places = _check_weights(network_config(info.raw, info.name), files, info.name)
    if precision != "int4":
        weights = _read_weights(config, places, where, precision)
        return Loaded(info, SDAR.from_weights(config, weights), load_tokenizer(path), precision)
    try:
        network = to_int4(SDAR.from_weights(config, _read_weights(config, places, torch.device("cpu"), "bf16")), where)
    except ImportError as error:
        raise CheckpointError(
            f"int4 needs torchao ({first_line(error)}): `pip install 'dice-lsp[int4]'`, or set dice.modelPrecision to int8"
        ) from error
    return Loaded(info, network, load_tokenizer(path), precision)


def load_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of a checkpoint's folder. Raises `CheckpointError`."""
    if (path / "tokenizer.json").is_file():
        return FastTokenizer(path / "tokenizer.json")
    if (path / "vocab.json").is_file() and (path / "merges.txt").is_file():
        return TransformersTokenizer(path)
    raise CheckpointError(f"{path} has no tokenizer: tokenizer.json, or vocab.json with merges.txt, is needed")


def network_config(raw: Mapping[str, Any], name: str) -> SDARConfig:
    """The network's sizes from `config.json`. Raises `CheckpointError` for one that is missing or impossible."""
    values: dict[str, Any] = {}
    for field in attrs.fields(SDARConfig):
        value = raw.get(field.name, field.default)
        if field.name == "rope_theta":
            # transformers 5 writes it inside rope_parameters.
            value = (raw.get("rope_parameters") or {}).get("rope_theta", value)
        if value is attrs.NOTHING and field.name == "head_dim" and raw.get("num_attention_heads"):
            value = raw.get("hidden_size", 0) // raw["num_attention_heads"]
        if value is attrs.NOTHING or value is None:
            raise CheckpointError(f"{name} has no {field.name} in its config")
        kind = bool if field.type is bool else (int, float) if field.type is float else int
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise CheckpointError(f"{name} has {field.name} {value!r} in its config, which is no {field.type.__name__}")  # type: ignore[union-attr]
        if field.type is not bool and (value < 0 or (value == 0 and field.name != "mask_token_id")):
            raise CheckpointError(f"{name} has {field.name} {value!r} in its config, which is too small")
        values[field.name] = value
    config = SDARConfig(**values)
    if config.mask_token_id >= config.vocab_size:
        raise CheckpointError(f"{name} has no mask_token_id inside its vocabulary of {config.vocab_size}")
    if config.num_attention_heads % config.num_key_value_heads or config.head_dim % 2:
        raise CheckpointError(
            f"{name} has {config.num_attention_heads} query heads, {config.num_key_value_heads} key heads and a head_dim "
            f"of {config.head_dim}, which do not fit each other"
        )
    return config


def weight_files(path: Path, name: str) -> tuple[Path, ...]:
    """The safetensors files of a folder, those of the index where there is one. Raises `CheckpointError`."""
    index = path / "model.safetensors.index.json"
    if index.is_file():
        places = read_json(index, f"the index of {name} cannot be read").get("weight_map")
        if not isinstance(places, Mapping) or not places:
            raise CheckpointError(f"the index of {name} has no weight_map")
        names = sorted(set(map(str, places.values())))
        for file in names:
            if Path(file).name != file or not file.endswith(".safetensors"):
                raise CheckpointError(f"the index of {name} names {file!r}: only safetensors beside it are loaded")
            if not (path / file).is_file():
                raise CheckpointError(f"{name} is not complete: its shard {file} is missing; pull it again")
        return tuple(path / file for file in names)
    files = tuple(sorted(path.glob("*.safetensors")))
    if files:
        return files
    pickled = sorted(file.name for file in path.iterdir() if file.suffix in PICKLES)
    if pickled:
        raise CheckpointError(
            f"{name} holds {pickled[0]}, which can run code when it is read: only safetensors are loaded"
        )
    raise CheckpointError(f"{name} has no weights: a *.safetensors file is needed in {path}")


def _check_weights(
    config: SDARConfig, files: Sequence[Path], name: str
) -> tuple[SDARConfig, dict[str, tuple[Path, str]]]:
    """Where each tensor lies and its dtype, from the headers alone; the config with `tie_word_embeddings` as stored."""
    import safetensors

    places: dict[str, tuple[Path, str]] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for file in files:
        try:
            with safetensors.safe_open(str(file), framework="pt") as tensors:
                for key in tensors.keys():
                    part = tensors.get_slice(key)
                    shapes[key] = tuple(part.get_shape())
                    places[key] = (file, str(part.get_dtype()))
        except (safetensors.SafetensorError, OSError) as error:
            raise CheckpointError(f"{file.name} of {name} is no whole safetensors file: {first_line(error)}") from error
    # SDAR-4B stores a head of its own although its Qwen3 parent is tied: what is stored decides.
    config = attrs.evolve(config, tie_word_embeddings=config.tie_word_embeddings and "lm_head.weight" not in shapes)
    expected = config.weight_shapes()
    missing = [key for key in expected if key not in shapes]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise CheckpointError(f"{name} is not complete: weight {missing[0]}{more} is missing")
    for key, shape in expected.items():
        if shapes[key] != shape:
            raise CheckpointError(
                f"weight {key} of {name} has shape {list(shapes[key])}, but its config asks for {list(shape)}"
            )
        dtype = places[key][1]
        if dtype == "I8":
            scale = shapes.get(f"{key}_scale")
            if scale != (shape[0], 1):
                raise CheckpointError(f"weight {key} of {name} is int8 and has no scale of shape [{shape[0]}, 1]")
        elif dtype not in ("F32", "F16", "BF16"):
            raise CheckpointError(f"weight {key} of {name} is stored as {dtype}: F32, F16, BF16 and I8 are supported")
    known = set(expected) | {f"{key}_scale" for key in expected}
    strange = [key for key in shapes if key not in known]
    if strange:
        raise CheckpointError(f"{name} holds {strange[0]}, which no SDAR network of its config has")
    return config, places


def _read_weights(
    config: SDARConfig, places: Mapping[str, tuple[Path, str]], device: "torch.device", precision: Precision
) -> dict[str, "torch.Tensor"]:
    import safetensors
    import torch

    dtype = torch.float32 if precision == "fp32" else torch.bfloat16
    shapes = config.weight_shapes()
    weights: dict[str, torch.Tensor] = {}
    with contextlib.ExitStack() as open_files:
        files = {
            file: open_files.enter_context(safetensors.safe_open(str(file), framework="pt", device=str(device)))
            for file in {file for file, _ in places.values()}
        }
        for key, shape in shapes.items():
            file, stored = places[key]
            weight = files[file].get_tensor(key)
            whole = precision == "int8" and is_layer_weight(key, shape)
            if stored == "I8":
                scale = files[places[f"{key}_scale"][0]].get_tensor(f"{key}_scale").float()
                if whole:
                    weights[key], weights[f"{key}_scale"] = weight, scale[:, 0]
                    continue
                weight = weight.float() * scale
            if whole:
                weights[key], weights[f"{key}_scale"] = int8_rows(weight)
            else:
                weights[key] = weight.to(dtype)
    return weights


def _decode_defaults(layout: str, block_size: int, given: Any, name: str) -> DecodeSettings:
    # DICE: the sampling of its RL rollouts, in the order that keeps its accuracy (thresholds cost it some).
    base = DecodeSettings("low_confidence_static", block_size, block_size, 0.9, 1.0, 0, 1.0, 2048)
    if layout == "psm":
        base = DecodeSettings("low_confidence_dynamic", block_size, block_size, 0.9, 0.8, 0, 0.95, 256)
    if not isinstance(given, Mapping):
        raise CheckpointError(f"{name} has decode settings in its config that are no object")
    names = {field.name for field in attrs.fields(DecodeSettings)}
    strange = sorted(set(given) - names)
    if strange:
        raise CheckpointError(f"{name} has the unknown decode setting {strange[0]!r} in its config")
    if "block_size" in given and "denoising_steps" not in given:
        # One token a step at least; fewer steps than positions would force doubtful tokens out.
        given = {**given, "denoising_steps": given["block_size"]}
    return attrs.evolve(base, **{key: value for key, value in given.items() if value is not None})


def _stop_ids(path: Path, raw: Mapping[str, Any], ours: Mapping[str, Any]) -> tuple[int, ...]:
    """Every id that ends a fill: SDAR closes a turn with `<|im_end|>` and pads with `<|endoftext|>`, and either may come."""
    ids: list[int] = []
    sources: list[Any] = [raw.get("eos_token_id"), (ours.get("special") or {}).get("eom")]
    if (path / "generation_config.json").is_file():
        sources.append(read_json(path / "generation_config.json", f"{path} is damaged").get("eos_token_id"))
    for source in sources:
        for item in source if isinstance(source, list) else [source]:
            if isinstance(item, int) and item not in ids:
                ids.append(item)
    return tuple(ids)


def _transformers_config() -> Any:
    """A config of the type `sdar`, which we register, so that transformers asks for no code of the folder."""
    import transformers

    class SDARTransformersConfig(transformers.PretrainedConfig):  # type: ignore[misc]
        model_type = "sdar"

    transformers.AutoConfig.register("sdar", SDARTransformersConfig, exist_ok=True)
    return SDARTransformersConfig()


def read_json(path: Path, trouble: str) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{trouble}: {path.name} is missing") from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{trouble}: {path.name}: {first_line(error)}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{trouble}: {path.name} is no JSON object")
    return value


def first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0].rstrip('.')}" if lines else type(error).__name__
