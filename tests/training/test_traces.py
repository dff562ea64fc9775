"""States of decoding rebuilt from ids and steps: what training sees of a token is what the decoder saw when it chose it."""

import math
import random

import pytest
import torch

from dice_lsp.diffusion.decode import Decoding, End
from dice_lsp.diffusion.model import SDAR, tiny_config
from dice_lsp.diffusion.reveal import Schedule
from dice_lsp.training.packing import visible
from dice_lsp.training.traces import (
    BLOCK,
    COPY,
    POSITION,
    RESPONSE,
    TARGET,
    TOKEN,
    Trace,
    advantages,
    batches_of,
    log_probabilities,
    policy_loss,
    rounds_of,
    trace_row,
)

MASK, STOP = 63, 62
STOPS = (60, 61, STOP)


@pytest.fixture(scope="module")
def network() -> SDAR:
    made = SDAR(
        tiny_config(
            vocab_size=64, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=1, head_dim=32, mask_token_id=MASK, max_position_embeddings=256,
        )
    )  # fmt: skip
    # Large weights: a distribution that depends on what is seen, so that a wrong state would show.
    made.init_weights(std=0.3, seed=5)
    return made


def decoded_of(network: SDAR, prompt: list[int], size: int, strategy: str, threshold: float, candidates: int = 16):  # type: ignore[no-untyped-def]
    schedule = Schedule(strategy, size, size, threshold, 1.0, 0, 1.0, 32)
    decoding = Decoding(network, prompt, schedule, stop_ids=STOPS, rows=candidates, seed=3)
    return decoding.run(range(1, candidates + 1))


@pytest.mark.parametrize(
    ("size", "prompt", "strategy", "threshold"),
    [
        (4, 13, "low_confidence_static", 0.9),
        (8, 16, "low_confidence_dynamic", 0.25),
        (8, 21, "low_confidence_dynamic", 0.15),
        (8, 19, "sequential", 0.9),
    ],
)
def test_a_token_has_the_probability_in_training_that_it_had_when_it_was_sampled(
    network: SDAR, size: int, prompt: int, strategy: str, threshold: float
) -> None:
    rng = random.Random(size)
    ids = [rng.randrange(60) for _ in range(prompt)]
    found = decoded_of(network, ids, size, strategy, threshold)
    assert {item.end for item in found} == {End.STOP, End.LENGTH}, "both ends are tried"
    traces = [Trace.of(ids, item) for item in found]
    rows = [trace_row(trace, size, MASK) for trace in traces]
    if strategy == "low_confidence_dynamic":
        assert any((row[COPY].max() < size) and len(set(trace.steps)) < len(trace.steps)
                   for row, trace in zip(rows, traces, strict=True)), "some passes revealed several tokens"  # fmt: skip
    for batch in batches_of(rows, 512, 300):
        with torch.no_grad():
            got, response = log_probabilities(network, batch)
        chosen = batch[TARGET] > 0
        for value, number, position in zip(got, response, batch[POSITION][chosen], strict=True):
            item = found[int(number)]
            at = int(position) - prompt
            if at < len(item.tokens):
                assert float(value) == pytest.approx(math.log(item.confidences[at]), abs=2e-4)


def test_every_token_up_to_the_end_token_is_learned_once(network: SDAR) -> None:
    ids = list(range(1, 20))
    found = decoded_of(network, ids, 8, "low_confidence_dynamic", 0.2)
    for item in found:
        trace = Trace.of(ids, item)
        row = trace_row(trace, 8, MASK)
        learned = row[TARGET] > 0
        assert sorted(row[POSITION][learned]) == list(range(len(ids), len(ids) + trace.learned))
        assert (row[TOKEN][learned] == MASK).all()
        tokens = [*ids, *trace.tokens]
        assert all(tokens[at] == target - 1 for at, target in zip(row[POSITION][learned], row[TARGET][learned]))
        if item.end is End.STOP:
            assert trace.tokens[trace.learned - 1] in STOPS and trace.tokens[: trace.learned - 1] == item.tokens
        else:
            assert trace.learned == len(item.tokens) == len(trace.tokens)


def test_blocks_are_cut_from_the_prompts_first_token() -> None:
    trace = Trace((1, 2, 3, 4, 5, 6), (7, 8, 9, 10, 11, 12), (4, 3, 5, 6, 6, 7), 6)
    row = trace_row(trace, 4, MASK)
    # Block 1 holds two tokens of the prompt, which its copies show.
    first = row[:, (row[COPY] == 1) & (row[BLOCK] == 1)]
    assert first[TOKEN].tolist() == [5, 6, MASK, MASK] and first[TARGET].tolist() == [0, 0, 0, 9]
    second = row[:, (row[COPY] == 2) & (row[BLOCK] == 1)]
    assert second[TOKEN].tolist() == [5, 6, MASK, 8] and second[TARGET].tolist() == [0, 0, 8, 0]
    third = row[:, (row[COPY] == 2) & (row[BLOCK] == 2)]
    assert third[TOKEN].tolist() == [9, MASK, MASK, MASK] and third[TARGET].tolist() == [0, 11, 12, 0]
    with pytest.raises(ValueError, match="not whole blocks of 8"):
        trace_row(trace, 8, MASK)


def test_what_stayed_masked_is_never_shown_and_never_learned() -> None:
    trace = Trace((1, 2), (5, STOP, MASK, 7, MASK, MASK), (3, 4, 0, 2, 0, 0), 2)
    row = trace_row(trace, 4, MASK)
    last = row[:, (row[COPY] == 2) & (row[BLOCK] == 0)]
    assert last[TOKEN].tolist() == [1, 2, 5, MASK] and last[TARGET].tolist() == [0, 0, 0, STOP + 1]
    # The second block of masks and a revealed 7 behind the end: shown where it was there, without a loss.
    behind = row[:, row[BLOCK] == 1]
    assert (behind[TARGET] == 0).all()


def test_merged_rounds_keep_their_order() -> None:
    assert rounds_of([9, 4, 4, 7]) == [2, 0, 0, 1]
    assert rounds_of([1, 2, 3, 4, 5, 6, 7, 8], 4) == [0, 0, 1, 1, 2, 2, 3, 3]
    trace = Trace((1,) * 8, tuple(range(10, 18)), tuple(range(8)), 8)
    whole, merged = trace_row(trace, 8, MASK), trace_row(trace, 8, MASK, rounds=2)
    assert whole[COPY].max() == 8 and merged[COPY].max() == 2
    assert (whole[TARGET] > 0).sum() == (merged[TARGET] > 0).sum() == 8


def test_batches_hold_every_row_once() -> None:
    rows = [
        trace_row(Trace((1,) * 8, tuple(range(10, 10 + 8 * n)), tuple(range(8 * n)), 8 * n), 8, MASK)
        for n in (1, 3, 2, 1)
    ]
    batches = batches_of(rows, 300, 150)
    seen = torch.cat([batch[RESPONSE][batch[TARGET] > 0] for batch in batches])
    assert torch.bincount(seen).tolist() == [0, 8, 24, 16, 8]
    assert all(batch.shape[1] * batch.shape[2] <= max(300, rows[1].shape[1] * 1) for batch in batches)


def test_groups_of_equal_reward_teach_nothing() -> None:
    assert advantages([0.5, 0.5, 0.5]) is None
    assert advantages([1.0, 0.0, 0.0, 1.0]) == pytest.approx([1, -1, -1, 1])
    scores = advantages([0.0, 0.5, 1.0])
    assert scores is not None and sum(scores) == pytest.approx(0) and scores[2] == pytest.approx(1.2247, abs=1e-3)


def test_the_loss_is_clipped_where_the_ratio_has_gone_far_enough() -> None:
    old = torch.zeros(4)
    new = torch.tensor([0.5, -0.5, 0.5, -0.5], requires_grad=True)
    advantage = torch.tensor([1.0, 1.0, -1.0, -1.0])
    weight = torch.full((4,), 0.25)
    loss = policy_loss(new, old, advantage, weight, beta=0.0)
    up, down = math.exp(0.5), math.exp(-0.5)
    assert loss.item() == pytest.approx(-(1.2 + down - up - 0.8) / 4, abs=1e-6)
    loss.backward()
    assert new.grad is not None and new.grad[0] == 0 and new.grad[3] == 0 and new.grad[1] < 0 < new.grad[2]
    # At the old policy the gradient is that of the plain policy gradient, and the penalty vanishes.
    same = torch.zeros(4, requires_grad=True)
    value = policy_loss(same, old, advantage, weight)
    value.backward()
    assert same.grad is not None and torch.allclose(same.grad, -advantage * weight)
    assert value.item() == pytest.approx(0)


def test_the_policy_that_learns_is_the_one_at_the_temperature_of_sampling(network: SDAR) -> None:
    (item, *_) = decoded_of(network, list(range(1, 20)), 8, "low_confidence_dynamic", 0.2)
    (batch,) = batches_of([trace_row(Trace.of(range(1, 20), item), 8, MASK)], 4096)
    chosen = batch[TARGET] > 0
    with torch.no_grad():
        mask = visible(batch[2], batch[COPY], batch[BLOCK])
        logits = network.forward_train(batch[TOKEN], batch[POSITION], mask, chosen)
        wanted = (logits / 1.4).log_softmax(-1).gather(-1, batch[TARGET][chosen][:, None] - 1)[:, 0]
        assert torch.allclose(log_probabilities(network, batch, 1.4)[0], wanted, atol=1e-5)
    # Computing activations again on the way back changes nothing.
    losses = []
    for again in (False, True):
        network.zero_grad()
        log_probabilities(network, batch, 1.4, again)[0].sum().backward()
        losses.append(network.model.layers[0].mlp.up_proj.weight.grad.clone())
    assert torch.allclose(*losses, atol=1e-6) and losses[0].abs().sum() > 0
