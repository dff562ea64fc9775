"""In which precision weights are kept: what that needs, what it changes, and what is said where it does not fit."""

import attrs
import pytest
import torch

from dice_lsp.diffusion import place
from dice_lsp.diffusion.checkpoint import CheckpointError, load, network_config, read
from dice_lsp.diffusion.place import choose_place
from dice_lsp.diffusion.precision import PASS_BYTES, PRECISIONS, int8_rows, needed_bytes
from dice_lsp.diffusion.sizes import SDARConfig
from tests.diffusion.small import block_rows, small_network, write_checkpoint

DICE_8B = SDARConfig(
    vocab_size=151936, hidden_size=4096, intermediate_size=12288, num_hidden_layers=36, num_attention_heads=32,
    num_key_value_heads=8, head_dim=128,
)  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    return write_checkpoint(tmp_path / "small")


def test_what_is_counted_is_what_the_weights_take(folder):
    config = network_config(read(folder).raw, "small")
    for precision in ("fp32", "bf16", "int8"):
        network = load(folder, "cpu", precision=precision).network
        own = {tensor.data_ptr(): tensor for tensor in (*network.parameters(), *network.buffers())}
        tables = {network.rope_cos.data_ptr(), network.rope_sin.data_ptr()}
        held = sum(t.numel() * t.element_size() for pointer, t in own.items() if pointer not in tables)
        cache = 2 * 2 * 2 * 8 * 4096 * (4 if precision == "fp32" else 2)
        counted = needed_bytes(config, precision, "cpu") - cache - PASS_BYTES["cpu"]
        assert held == pytest.approx(counted, rel=0.06), precision


def test_an_8b_checkpoint_needs_what_its_sizes_say():
    gib = [needed_bytes(DICE_8B, precision, "cuda") / 2**30 for precision in PRECISIONS]
    # 6.95 billion weights in layers, 1.25 in embedding and head; the cache is 0.56 GiB in 16 bits.
    assert gib == pytest.approx([32.4, 16.6, 10.1, 7.1], abs=0.3)


def test_int8_is_the_network_of_its_own_weights():
    plain = small_network(scale=0.1)
    weights, rounded = {}, {}
    for name, tensor in plain.qwen3_weights().items():
        weights[name] = rounded[name] = tensor.clone()
        if ".layers." in name and tensor.dim() == 2:
            weights[name], weights[f"{name}_scale"] = int8_rows(tensor)
            rounded[name] = weights[name].float() * weights[f"{name}_scale"][:, None]
            assert (rounded[name] - tensor).abs().max() <= weights[f"{name}_scale"].max() / 2 + 1e-6
    sides = [type(plain).from_weights(plain.config, given) for given in (weights, rounded)]
    found = [side.forward_rows(block_rows(range(8), 0, 4), side.slot_cache(8), range(8)).logits for side in sides]
    torch.testing.assert_close(found[0], found[1], atol=1e-4, rtol=1e-4)


def test_weights_that_are_stored_as_int8_stay_so_where_int8_is_asked_for():
    from dice_lsp.diffusion import registry

    path = registry.resolve("tiny")
    kept, whole = load(path, precision="int8").network, load(path, precision="fp32").network
    attention, full = kept.layers()[0].self_attn, whole.layers()[0].self_attn
    assert attention.o_proj.weight.dtype is torch.int8 and kept.dtype is torch.bfloat16
    torch.testing.assert_close(
        attention.o_proj.weight.float() * attention.o_proj.weight_scale[:, None], full.o_proj.weight
    )
    torch.testing.assert_close(attention.qkv.float() * attention.qkv_scale[:, None], full.qkv)


@attrs.define
class Machine:
    """Memory that there seems to be, in GiB."""

    monkeypatch: pytest.MonkeyPatch

    def has(self, host: float, card: float | None = None) -> None:
        self.monkeypatch.setattr(place, "_available_bytes", lambda: int(host * 2**30))
        self.monkeypatch.setattr(torch.cuda, "is_available", lambda: card is not None)
        self.monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
        self.monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (int((card or 0) * 2**30), 0))
        self.monkeypatch.setattr(place.registry, "resolve", lambda name: name)
        self.monkeypatch.setattr(place, "read", lambda path, name: attrs.make_class("Info", {"raw": attrs.field()})({}))
        self.monkeypatch.setattr(place, "network_config", lambda raw, name: DICE_8B)


@pytest.mark.parametrize(
    ("card", "asked", "device", "precision", "words"),
    [
        (80, "auto", "cuda:0", "bf16", ""),
        (80, "int8", "cuda:0", "int8", ""),
        (80, "fp32", "cuda:0", "fp32", ""),
        (12, "auto", "cuda:0", "int8", "dice-8b runs in int8 on cuda:0: bf16 needs 16.6 GiB and 12.0 GiB are free"),
        (8, "auto", "cpu", "fp32", "int8 needs 10.1 GiB and 8.0 GiB are free; dice.modelPrecision int4 would fit"),
        (12, "bf16", "cpu", "fp32", "bf16 needs 16.6 GiB and 12.0 GiB are free; dice.modelPrecision int8 would fit"),
        (4, "int4", "cpu", "fp32", "not on cuda:0: int4 needs 7.1 GiB and 4.0 GiB are free: dice-8b runs on the CPU"),
        (None, "auto", "cpu", "fp32", ""),
    ],
)
def test_the_precision_that_fits_is_taken_and_what_would_fit_is_said(
    monkeypatch, card, asked, device, precision, words
):
    Machine(monkeypatch).has(64, card)
    found = choose_place("dice-8b", "auto", asked)
    assert (found.device, found.precision) == (device, precision)
    assert words in found.message if words else not found.message


def test_candidates_side_by_side_are_as_many_as_fit(monkeypatch):
    # A token of 8B takes 144 KiB in 16 bits, so 2048 of them 0.28 GiB; half of what is free is taken.
    def rows(free: float) -> int:
        monkeypatch.setattr(place, "_free_bytes", lambda device: int(free * 2**30))
        return place.rows_that_fit(DICE_8B, 2, 8, 1024, 2048, "cuda:0")

    assert [rows(free) for free in (0.1, 1, 2, 4, 8)] == [1, 1, 3, 6, 8]
    monkeypatch.setattr(place, "_free_bytes", lambda device: None)
    assert place.rows_that_fit(DICE_8B, 2, 8, 1024, 2048, "cpu") == 8


def test_memory_of_the_host_that_does_not_suffice(monkeypatch):
    machine = Machine(monkeypatch)
    machine.has(24)
    assert choose_place("dice-8b", "auto", "auto").precision == "bf16"
    machine.has(12)
    with pytest.raises(CheckpointError, match=r"bf16 needs 16\.\d GiB and 12\.0 GiB .*modelPrecision int8 would fit"):
        choose_place("dice-8b", "cpu", "auto")
    machine.has(4)
    with pytest.raises(CheckpointError, match="choose a smaller checkpoint with `dice-lsp model use`"):
        choose_place("dice-8b", "cpu", "int8")
    with pytest.raises(CheckpointError, match="int4 needs a GPU"):
        choose_place("dice-8b", "cpu", "int4")
    with pytest.raises(CheckpointError, match="the precision 'int3' is unknown: use auto or one of fp32"):
        choose_place("dice-8b", "cpu", "int3")
