"""Speculation changes how many passes a fill takes, and nothing else."""

from collections import Counter

import attrs
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dice_lsp.diffusion import registry
from dice_lsp.diffusion.checkpoint import load
from dice_lsp.diffusion.decode import Decoding, Schedule
from dice_lsp.diffusion.model import block_mask
from dice_lsp.diffusion.prompt import layout_for
from dice_lsp.diffusion.reveal import Prediction
from dice_lsp.diffusion.slots import Arena, PromptCache
from dice_lsp.diffusion.speculate import Lookup, guess_path, path_to, worth
from dice_lsp.records import DecodeSettings
from tests.diffusion.small import saxpy_request, small_network
from tests.diffusion.test_decode import MASK, STRATEGIES, decode, schedule


def found(results) -> dict[int, tuple]:
    return {number: (item.tokens, item.steps, item.end) for item in results for number in item.candidates}


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    size=st.integers(1, 9),
    steps=st.integers(1, 9),
    prompt=st.lists(st.integers(0, 62), min_size=1, max_size=30),
    strategy=st.sampled_from(STRATEGIES),
    threshold=st.floats(0.02, 1.5),
    temperature=st.sampled_from([0.0, 0.05, 1.0]),
    top_p=st.sampled_from([1.0, 0.9]),
    stops=st.lists(st.integers(0, 62), max_size=6),
    scale=st.sampled_from([0.2, 0.4, 2.0]),
    count=st.integers(1, 4),
)
def test_any_fill_is_the_same_with_and_without(
    seed, size, steps, prompt, strategy, threshold, temperature, top_p, stops, scale, count
):
    network = small_network(seed=seed, scale=scale)
    plan = schedule(
        strategy=strategy, block_size=size, denoising_steps=steps, threshold=threshold, temperature=temperature,
        top_p=top_p, max_new_tokens=3 * size + 1,
    )  # fmt: skip
    options = {"seed": seed, "stop_ids": stops}
    plain, expected = decode(network, prompt, plan, range(count), speculate=False, **options)
    guessing, ours = decode(network, prompt, plan, range(count), speculate=True, **options)
    assert found(ours) == found(expected)
    assert guessing.forwards <= plain.forwards


@pytest.fixture(scope="module")
def shipped():
    return load(registry.resolve("tiny"), "cpu", "tiny")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_shipped_checkpoint_writes_the_same_in_fewer_passes(shipped, strategy):
    info = shipped.info
    changes = {"strategy": strategy, "max_new_tokens": 96}
    if strategy == "entropy_bounded":
        changes["threshold"] = 0.3
    plan = Schedule.of(info.settings(DecodeSettings(**changes)))
    prompt = layout_for(info, shipped.tokenizer, None).prompt(saxpy_request(), 448)
    passes, texts = {}, {}
    for speculate in (False, True):
        decoding = Decoding(
            shipped.network, prompt, plan, stop_ids=info.stop_ids, rows=4, seed=7,
            speculate=speculate,
        )  # fmt: skip
        texts[speculate] = found(decoding.run(range(4)))
        passes[speculate] = decoding.forwards
    assert texts[True] == texts[False]
    assert passes[True] < passes[False]
    if strategy == "sequential":
        assert decoding.acceptance.accepted > decoding.acceptance.guessed / 2
        assert passes[True] <= passes[False] / 2


def test_a_text_that_repeats_itself_is_looked_up():
    """A network that always goes on as the prompt did accepts what is looked up; a wrong guess costs no token."""
    lookup = Lookup([1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3])
    assert lookup.propose([4, 5], 3) == [6, 7, 8]
    assert lookup.propose([], 2) == [4, 5]
    assert lookup.propose([9, 9, 9], 2) == []
    assert lookup.propose([20, 21, 22], 2, others=[[0, 20, 21, 22, 30, 31, 32]]) == [30, 31]
    assert lookup.propose([40, 41, 42, 43, 40, 41, 42], 9) == [43, 40, 41, 42]


def test_guesses_follow_the_schedule():
    left = {0: Prediction(7, 0.2, 0.1), 1: Prediction(8, 0.9, 0.1), 3: Prediction(9, 0.5, 0.1)}
    static = schedule(denoising_steps=4)
    assert guess_path([MASK, MASK, 5, MASK], left, static, 0) == [
        (MASK, 8, 5, MASK),
        (MASK, 8, 5, 9),
        (7, 8, 5, 9),
    ]
    dynamic = schedule(strategy="low_confidence_dynamic", threshold=0.6)
    assert guess_path([MASK, MASK, 5, MASK], left, dynamic, 0)[0] == (MASK, 8, 5, 9)
    block = [MASK, 2, MASK, MASK]
    assert path_to([1, 2, 3, 4], block, MASK, schedule()) == [(1, 2, MASK, MASK), (1, 2, 3, MASK), (1, 2, 3, 4)]
    assert path_to([1, 2, 3, 4], block, MASK, dynamic) == [(1, 2, 3, 4)]


def test_what_a_guess_must_be_worth():
    assert worth(0.5, 8, 28.0) and not worth(0.1, 8, 28.0)
    assert worth(0.05, 8, 1000.0)


def test_waiting_candidates_join_and_are_the_same_as_in_one_go():
    network = small_network(seed=11)
    plan = schedule(temperature=1.0, block_size=8, denoising_steps=8, max_new_tokens=40)
    options = {"stop_ids": (5, 6, 7), "seed": 3}
    whole = found(Decoding(network, [1, 2, 3], plan, rows=7, **options).run(range(7)))
    few = Decoding(network, [1, 2, 3], plan, rows=2, **options)
    assert found(few.run(range(7))) == whole
    assert sum(end - first for first, end in few._arena.free) == few._arena.end - few._arena.free[0][0]


def test_no_pass_begins_after_the_deadline():
    network = small_network(seed=11)
    decoding = Decoding(network, [1, 2, 3, 4], schedule())
    assert decoding.run([0], deadline=0.0) == []
    assert decoding.forwards == decoding.prompt_forwards == 1
    (whole,) = decoding.run([0], deadline=float("inf"))
    assert len(whole.tokens) == 24


def test_a_prompt_that_begins_as_the_last_one_is_read_on_from_there():
    network = small_network(seed=4)
    keeper = PromptCache(network)
    plan = schedule(max_new_tokens=12)
    first = list(range(40))
    for prompt, passes in [
        (first, 1),
        (first, 0),
        ([*first[:22], *range(50, 60)], 1),
        (first[:20], 0),
        ([60, *first], 1),
        ([1, 2], 0),
    ]:
        cold, (expected,) = decode(network, prompt, plan)
        warm, (ours,) = decode(network, prompt, plan, prompt_cache=keeper)
        assert ours.tokens == expected.tokens
        torch.testing.assert_close(torch.tensor(ours.confidences), torch.tensor(expected.confidences))
        assert warm.prompt_forwards == passes
    # Another block size cuts the prompt elsewhere: its tokens saw others.
    other = attrs.evolve(plan, block_size=8, denoising_steps=8)
    _, (expected,) = decode(network, first, other)
    warm, (ours,) = decode(network, first, other, prompt_cache=keeper)
    assert ours.tokens == expected.tokens and warm.prompt_forwards == 1


def test_a_cancelled_prompt_keeps_what_was_read():
    network = small_network(seed=4)
    keeper = PromptCache(network)
    calls = 0

    def check():
        nonlocal calls
        calls += 1
        if calls == 2:
            raise InterruptedError

    prompt = [at % 60 for at in range(300)]
    with pytest.raises(InterruptedError):
        Decoding(network, prompt, schedule(), check=check, prompt_cache=keeper)
    assert keeper.tokens == prompt[:256]
    warm, (ours,) = decode(network, prompt, schedule(), prompt_cache=keeper)
    _, (expected,) = decode(network, prompt, schedule())
    assert warm.prompt_forwards == 1 and ours.tokens == expected.tokens


def test_slots_are_handed_out_from_below_and_joined_again():
    arena = Arena(10, 30)
    first, second, third = arena.take(4), arena.take(6), arena.take(4)
    assert (first, second, third) == (10, 14, 20)
    arena.give(first, 4)
    assert arena.take(5) == 24
    with pytest.raises(MemoryError):
        arena.take(5)
    arena.give(second, 6)
    assert arena.free == [(10, 20), (29, 30)]
    arena.give(third, 4)
    assert arena.free == [(10, 24), (29, 30)]


def test_sampled_pairs_are_distributed_as_the_network_says():
    """The joint distribution of two tokens, the second of which is checked as a guess in the pass of the first."""
    network = small_network(seed=21, scale=0.3)
    plan = schedule(strategy="sequential", block_size=2, denoising_steps=2, temperature=1.0, max_new_tokens=2)
    count = 3000
    decoding, results = decode(network, [1, 2, 3, 4], plan, range(1, count + 1))
    assert decoding.acceptance.guessed == 0, "nothing can be guessed before the first pass"
    pairs = Counter({item.tokens: len(item.candidates) for item in results})
    assert pairs.total() == count

    def distribution(block: list[int], at: int) -> torch.Tensor:
        ids = torch.tensor([[1, 2, 3, 4, *block]])
        with torch.no_grad():
            logits = network.forward_train(ids, torch.arange(6), block_mask(6, 2))[0, 4 + at].clone()
        logits[MASK] = -torch.inf
        return logits.softmax(-1).double()

    first = distribution([MASK, MASK], 0)
    joint = {(a, b): float(first[a] * p) for a in range(63) for b, p in enumerate(distribution([a, MASK], 1).tolist())}
    common = {pair: count * chance for pair, chance in joint.items() if count * chance >= 5}
    rest = count - sum(common.values())
    cells = [(pairs[pair], expected) for pair, expected in common.items()]
    cells.append((count - sum(pairs[pair] for pair in common), rest))
    assert len(cells) > 20
    chi_square = sum((seen - expected) ** 2 / expected for seen, expected in cells)
    freedom = len(cells) - 1
    # Five standard deviations of the distribution of chi-square; the draws are fixed, so this is no game of chance.
    assert chi_square < freedom + 5 * (2 * freedom) ** 0.5
