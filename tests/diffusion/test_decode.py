"""Decoding against a second implementation that has no cache, no batch and no tensors where it decides."""

import math

import attrs
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dice_lsp.diffusion.decode import Decoding, End, Schedule
from dice_lsp.diffusion.model import SDAR, block_mask
from dice_lsp.diffusion.reveal import Prediction, choose_positions, sample
from dice_lsp.process import Cancelled
from dice_lsp.records import DecodeSettings
from tests.diffusion.small import small_network

MASK = 63
STRATEGIES = ("sequential", "low_confidence_static", "low_confidence_dynamic", "entropy_bounded")


def schedule(**changes) -> Schedule:
    values = {
        "strategy": "low_confidence_static", "block_size": 4, "denoising_steps": 4, "threshold": 0.3, "temperature": 0.0,
        "top_k": 0, "top_p": 1.0, "max_new_tokens": 24,
    }  # fmt: skip
    return Schedule(**{**values, **changes})


def plain_choice(plan: Schedule, step: int, masked: list[int], confidence: dict, entropy: dict) -> list[int]:
    quota = plan.block_size // plan.denoising_steps + (1 if step < plan.block_size % plan.denoising_steps else 0)
    quota = max(quota, 1)
    if plan.strategy == "sequential":
        return masked[:quota]
    if plan.strategy == "entropy_bounded":
        rising = sorted(masked, key=lambda at: (entropy[at], at))
        kept, total = rising[:1], entropy[rising[0]]
        for at in rising[1:]:
            total += entropy[at]
            if total > plan.threshold:
                break
            kept.append(at)
        return kept
    best = sorted(masked, key=lambda at: (-confidence[at], at))[:quota]
    if plan.strategy == "low_confidence_static":
        return best
    sure = [at for at in masked if confidence[at] > plan.threshold]
    return sure if len(sure) >= min(quota, len(masked)) else best


def brute_force(network: SDAR, prompt: list[int], plan: Schedule, stops: tuple[int, ...] = ()) -> list[int]:
    """Greedy decoding by running the whole sequence anew for every step. An empty prompt would make all masks tie."""
    size, text = plan.block_size, list(prompt)
    while len(text) < len(prompt) + plan.max_new_tokens:
        start = len(text) // size * size
        text += [MASK] * (start + size - len(text))
        step = 0
        while MASK in text:
            ids = torch.tensor([text])
            with torch.inference_mode():
                logits = network.forward_train(ids, torch.arange(len(text)), block_mask(len(text), size))[0].double()
            masked = [at for at in range(start, len(text)) if text[at] == MASK]
            token, confidence, entropy = {}, {}, {}
            for at in masked:
                row = logits[at].tolist()
                peak = max(row)
                total = sum(math.exp(value - peak) for value in row)
                token[at] = max((value, -i) for i, value in enumerate(row) if i != MASK)[1] * -1
                confidence[at] = math.exp(row[token[at]] - peak) / total
                logs = [value - peak - math.log(total) for value in row]
                entropy[at] = -sum(math.exp(value) * value for value in logs)
            for at in plain_choice(plan, step, masked, confidence, entropy):
                text[at] = token[at]
            step += 1
        new = text[len(prompt) :]
        if any(stop in new for stop in stops):
            return new[: min(new.index(stop) for stop in stops if stop in new)]
    return text[len(prompt) :]


def decode(network: SDAR, prompt: list[int], plan: Schedule, numbers=(0,), **options):
    decoding = Decoding(network, prompt, plan, rows=max(len(numbers), 1), **options)
    return decoding, decoding.run(numbers)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("block_size", [1, 2, 4, 7, 8, 16, 32])
@pytest.mark.parametrize("fused, speculate", [(False, False), (True, False), (True, True)])
def test_greedy_equals_brute_force(strategy, block_size, fused, speculate):
    network = small_network(seed=block_size)
    for prompt_length in (1, 3, block_size, block_size + 1):
        prompt = torch.randint(0, 63, (prompt_length,), generator=torch.Generator().manual_seed(prompt_length)).tolist()
        steps = max(1, block_size // 2) if strategy == "low_confidence_static" else block_size
        threshold = 1.5 if strategy == "entropy_bounded" else 0.3
        plan = schedule(
            strategy=strategy, block_size=block_size, denoising_steps=steps, threshold=threshold,
            max_new_tokens=2 * block_size,
        )  # fmt: skip
        _, (ours,) = decode(network, prompt, plan, fused=fused, speculate=speculate)
        assert list(ours.tokens) == brute_force(network, prompt, plan)
        assert ours.end is End.LENGTH


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    size=st.integers(1, 12),
    steps=st.integers(1, 12),
    prompt=st.lists(st.integers(0, 62), min_size=1, max_size=30),
    strategy=st.sampled_from(STRATEGIES),
    threshold=st.floats(0.02, 1.5),
    stops=st.lists(st.integers(0, 62), max_size=12),
)
def test_any_settings_equal_brute_force(seed, size, steps, prompt, strategy, threshold, stops):
    network = small_network(seed=seed)
    plan = schedule(
        strategy=strategy, block_size=size, denoising_steps=steps, threshold=threshold, max_new_tokens=2 * size
    )
    expected = brute_force(network, prompt, plan, tuple(stops))
    for fused in (False, True):
        _, (ours,) = decode(network, prompt, plan, fused=fused, stop_ids=stops)
        assert list(ours.tokens) == expected


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("top_k, top_p", [(0, 1.0), (5, 1.0), (0, 0.8), (9, 0.9)])
def test_a_candidate_is_the_same_alone_and_in_any_company(strategy, top_k, top_p):
    network = small_network(seed=11)
    plan = schedule(strategy=strategy, block_size=8, denoising_steps=8, temperature=1.0, top_k=top_k, top_p=top_p)
    prompt = list(range(13))
    stops = (5, 6, 7)
    _, together = decode(network, prompt, plan, range(8), seed=3, stop_ids=stops)
    found = {number: item.tokens for item in together for number in item.candidates}
    assert sorted(found) == list(range(8))
    assert len(set(found.values())) > 4
    for number in (0, 3, 7):
        _, (alone,) = decode(network, prompt, plan, [number], seed=3, stop_ids=stops)
        assert alone.tokens == found[number]
    _, again = decode(network, prompt, plan, range(8), seed=3, stop_ids=stops)
    assert again == together
    _, other = decode(network, prompt, plan, range(1, 8), seed=4, stop_ids=stops)
    assert {item.tokens for item in other} != {found[number] for number in range(1, 8)}


def test_candidates_that_agree_share_one_row():
    network = small_network(seed=2, scale=2.0)
    plan = schedule(temperature=0.05)
    decoding, results = decode(network, [1, 2, 3], plan, range(6))
    assert len(results) == 1 and results[0].candidates == tuple(range(6))
    alone, _ = decode(network, [1, 2, 3], plan)
    assert decoding.forwards == alone.forwards
    assert sum(end - first for first, end in decoding._arena.free) == decoding._arena.end - decoding.prompt_slots - 96


def test_temperature_zero_is_greedy_for_all():
    network = small_network(seed=2)
    _, results = decode(network, [1, 2, 3], schedule(temperature=0.0), range(4))
    assert len(results) == 1


def test_trace_tells_when_and_how_sure():
    network = small_network(seed=5)
    plan = schedule(strategy="low_confidence_static", block_size=4, denoising_steps=4, max_new_tokens=8)
    _, (ours,) = decode(network, [1, 2, 3, 4], plan, fused=False)
    assert len(ours.tokens) == len(ours.confidences) == len(ours.steps) == 8
    # Pass 0 is the prompt, 1 to 4 the first block, 5 its commit, 6 to 9 the second.
    assert sorted(ours.steps[:4]) == [1, 2, 3, 4] and sorted(ours.steps[4:]) == [6, 7, 8, 9]
    assert ours.forwards == 11
    first = ours.steps.index(1)
    with torch.inference_mode():
        logits = network.forward_train(torch.tensor([[1, 2, 3, 4] + [MASK] * 4]), torch.arange(8), block_mask(8, 4))[0]
    assert ours.confidences[first] == pytest.approx(float(logits.softmax(-1)[4 + first, ours.tokens[first]]), rel=1e-4)


def predictions(confidences, entropies=None) -> dict[int, Prediction]:
    entropies = entropies or [0.0] * len(confidences)
    return {at: Prediction(1, *both) for at, both in enumerate(zip(confidences, entropies, strict=True))}


def test_ties_go_to_the_left():
    for strategy in ("low_confidence_static", "low_confidence_dynamic"):
        plan = schedule(strategy=strategy, threshold=0.9)
        assert choose_positions(plan, predictions([0.5, 0.7, 0.7, 0.7]), 2) == [1, 2]
    bounded = schedule(strategy="entropy_bounded", threshold=1.2)
    assert choose_positions(bounded, predictions([0.1] * 4, [0.5] * 4), 1) == [0, 1]


def test_a_constant_network_is_decoded_left_to_right():
    network = small_network()
    weights = {name: torch.zeros_like(tensor) for name, tensor in network.qwen3_weights().items()}
    flat = SDAR.from_weights(network.config, weights)
    _, (ours,) = decode(flat, [1, 2], schedule(strategy="low_confidence_static", max_new_tokens=6), fused=False)
    # All probabilities are equal: the leftmost position and the lowest id win every time.
    assert list(ours.steps) == sorted(ours.steps) and set(ours.tokens) == {0}
    assert ours.confidences[0] == pytest.approx(1 / 64)


def test_quota_is_spread_over_the_first_steps():
    plan = schedule(block_size=8, denoising_steps=3)
    assert [plan.quota(step) for step in range(3)] == [3, 3, 2]
    assert [schedule(block_size=4, denoising_steps=8).quota(step) for step in range(8)] == [1] * 4 + [0] * 4


def test_entropy_bound_reveals_more_when_wider():
    network = small_network(seed=4)
    counts = []
    for threshold in (0.0, 9.0, 100.0):
        plan = schedule(strategy="entropy_bounded", threshold=threshold, block_size=8, denoising_steps=8)
        decoding, _ = decode(network, list(range(8)), plan, fused=False)
        counts.append(decoding.forwards)
    assert counts[0] == 1 + 3 * 9 and counts[2] == 1 + 3 * 2 and counts[0] > counts[1] >= counts[2]


def test_stops_at_the_first_of_several_end_tokens_and_spends_no_more_passes():
    network = small_network(seed=9)
    plan = schedule(strategy="sequential", max_new_tokens=40)
    free, (long,) = decode(network, [1, 2, 3], plan)
    second = long.tokens[10]
    first = min(long.tokens.index(second), 10)
    stopped, (short,) = decode(network, [1, 2, 3], plan, stop_ids=(second, 62))
    assert short.tokens == long.tokens[:first] and short.end is End.STOP
    assert stopped.forwards < free.forwards
    published, (same,) = decode(network, [1, 2, 3], plan, stop_ids=(second, 62), fused=False)
    assert same.tokens == short.tokens and published.forwards > stopped.forwards


def test_stops_where_the_suffix_begins():
    network = small_network(seed=9)
    plan = schedule(max_new_tokens=40)
    _, (ours,) = decode(network, [1, 2, 3], plan, reached_suffix=lambda tokens: len(tokens) >= 9)
    assert ours.end is End.SUFFIX and len(ours.tokens) == 9


def test_results_come_as_they_end_and_enough_is_enough():
    network = small_network(seed=11)
    plan = schedule(temperature=1.0, block_size=8, denoising_steps=8, max_new_tokens=64)
    lengths = []
    decoding = Decoding(network, [1], plan, stop_ids=tuple(range(8)), rows=6)
    decoding.run(range(6), lambda item: lengths.append(item.forwards))
    assert lengths == sorted(lengths) and len(lengths) > 2
    again = decoding.run(range(6), lambda item: True)
    assert len(again) == 1


def test_cancel_between_passes():
    network = small_network()
    passes = 0

    def check():
        nonlocal passes
        passes += 1
        if passes == 5:
            raise Cancelled

    decoding = Decoding(network, [1, 2, 3, 4], schedule(), check=check)
    with pytest.raises(Cancelled):
        decoding.run([0])
    assert decoding.forwards == 4
    # The prompt in the cache is still good.
    decoding._check = lambda: None
    _, fresh = decode(network, [1, 2, 3, 4], schedule())
    assert decoding.run([0])[0].tokens == fresh[0].tokens


def test_partial_text_grows():
    network = small_network(seed=3)
    seen = []
    decoding = Decoding(network, [1], schedule())
    (result,) = decoding.run([0], None, lambda candidates, tokens: seen.append((candidates, list(tokens))))
    assert [len(tokens) for _, tokens in seen] == [3, 7, 11, 15, 19, 23]
    assert all(list(result.tokens[: len(tokens)]) == tokens for _, tokens in seen)


def test_sampling_follows_the_filtered_distribution():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(1, 300, generator=generator) * 3
    uniform = torch.rand(20000, generator=generator)

    def frequencies(plan: Schedule) -> torch.Tensor:
        tokens = sample(logits.expand(20000, -1), uniform, plan)
        return torch.bincount(tokens, minlength=300) / 20000

    plain = (logits / 0.7).softmax(-1)[0]
    assert (frequencies(schedule(temperature=0.7)) - plain).abs().max() < 0.015
    top = frequencies(schedule(temperature=0.7, top_k=3))
    wanted = plain.topk(3)
    assert int((top > 0).sum()) == 3
    torch.testing.assert_close(top[wanted.indices], wanted.values / wanted.values.sum(), atol=0.02, rtol=0)
    nucleus = frequencies(schedule(temperature=0.7, top_p=0.6))
    ordered = plain.sort(descending=True)
    size = int((ordered.values.cumsum(0) < 0.6).sum()) + 1
    assert set(nucleus.nonzero().flatten().tolist()) <= set(ordered.indices[:size].tolist())
    assert frequencies(schedule(temperature=0.7, top_p=1e-6))[plain.argmax()] == 1
    assert frequencies(schedule(temperature=5.0, top_k=1))[plain.argmax()] == 1
    flat = sample(torch.zeros(20000, 300), uniform, schedule(temperature=1.0, top_p=0.99))
    assert len(set(flat.tolist())) > 290


def test_impossible_settings_are_named():
    with pytest.raises(ValueError, match="top_k has no value"):
        Schedule.of(DecodeSettings("sequential", 4, 4, 0.9, 1.0, None, 1.0, 16))
    with pytest.raises(ValueError, match="at least 1"):
        Schedule.of(DecodeSettings("sequential", 4, 0, 0.9, 1.0, 0, 1.0, 16))
    with pytest.raises(ValueError, match="top_p"):
        Schedule.of(DecodeSettings("sequential", 4, 4, 0.9, 1.0, 0, 0.0, 16))
    with pytest.raises(ValueError, match="512 positions"):
        Decoding(small_network(), [1] * 500, schedule())
    with pytest.raises(ValueError, match="unknown strategy"):
        decode(small_network(), [1], attrs.evolve(schedule(), strategy="best"))
