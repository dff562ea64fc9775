"""How fast fills are decoded, each side in one run: `python -m tests.bench.decode [--device cuda] [--shapes 8B,4B,1.7B]`.

Prints Markdown, each table as soon as it is measured; nothing is asserted, since machines differ.

- **Passes** (`--shapes`, on a GPU): random weights of the published sizes, 1024 tokens in the cache. The floor is what reading
  the weights (of an untied input embedding nothing) and the cache once takes at the copy bandwidth of the same run.
- **Loops**: the published loop on stock modules beside ours, in tokens a second, at the same sizes.
- **Fills**: the shipped checkpoint over real kernel bodies: tokens a pass, what was guessed right, and whether the plain loop
  and the speculating one write the same ids.
- **Waiting**: time to the first text and to the end, with a cold and a warm prompt, one candidate and eight; a cancel; memory.
"""

import argparse
import contextlib
import os
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# As in the model process: threads that wait by spinning cost others their cores.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch

from dice_lsp.diffusion import registry
from dice_lsp.diffusion.checkpoint import Loaded, load
from dice_lsp.diffusion.decode import Decoding, Schedule
from dice_lsp.diffusion.fast import FastNetwork, fast_network
from dice_lsp.diffusion.model import SDAR
from dice_lsp.diffusion.precision import WEIGHT_BYTES, Precision, int8_rows, is_layer_weight
from dice_lsp.diffusion.prompt import layout_for
from dice_lsp.diffusion.rows import RowNetwork, SlotCache
from dice_lsp.diffusion.sizes import SDARConfig
from dice_lsp.diffusion.slots import PromptCache
from dice_lsp.pipeline import fill_request
from dice_lsp.records import DecodeSettings, FillRequest
from dice_lsp.source.kernels import parse
from dice_lsp.source.launches import launch_spec
from tests.bench.stock import StockLoop, stock_config
from tests.diffusion.small import prompt_rows, state_rows
from tests.fill import DATA, emptied_region

SHAPES = {
    "8B": {"hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36, "num_attention_heads": 32},
    "4B": {"hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36, "num_attention_heads": 32},
    "1.7B": {"hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28, "num_attention_heads": 16},
}
CACHED = 1024
ROWS = (4, 8, 20, 32, 80)
VOCABULARY = 151936
PUBLISHED = {"strategy": "low_confidence_static", "block_size": 4, "denoising_steps": 4, "temperature": 0.0}


def shape(name: str) -> SDARConfig:
    return SDARConfig(vocab_size=VOCABULARY, num_key_value_heads=8, head_dim=128, **SHAPES[name])


def random_network(config: SDARConfig, precision: Precision = "bf16") -> SDAR:
    """Normal weights of bf16 or int8 on the GPU."""
    weights: dict[str, torch.Tensor] = {}
    for name, sizes in config.weight_shapes().items():
        weight = torch.ones(sizes, device="cuda", dtype=torch.bfloat16)
        weights[name] = weight if len(sizes) == 1 else weight.normal_(0, 0.02)
        if precision == "int8" and is_layer_weight(name, sizes):
            weights[name], weights[f"{name}_scale"] = int8_rows(weight)
    return SDAR.from_weights(config, weights)


def floor_bytes(config: SDARConfig, precision: Precision) -> float:
    """What a pass must read: every weight but those of the input embedding, and the cache."""
    read = sum(
        torch.Size(sizes).numel() * (WEIGHT_BYTES[precision] if is_layer_weight(name, sizes) else 2)
        for name, sizes in config.weight_shapes().items()
        if "embed_tokens" not in name
    )
    return read + 2 * 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim * CACHED


def timed(work: Callable[[], Any], repeats: int = 20) -> list[float]:
    """Milliseconds of each repeat on the GPU, after three that are not counted."""
    for _ in range(3):
        work()
    times = []
    for _ in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return times


def spelled(values: list[float], digits: int = 2) -> str:
    """Median and quartiles."""
    if len(values) < 4:
        return f"{statistics.median(values):.{digits}f}"
    low, median, high = statistics.quantiles(values, n=4)
    return f"{median:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def copy_bytes_per_s() -> float:
    source = torch.empty(1 << 29, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.numel() * 4 / (statistics.median(timed(lambda: target.copy_(source), 10)) / 1e3)


def pass_times(network: RowNetwork, cache: SlotCache) -> dict[int, list[float]]:
    network.forward_rows(prompt_rows(CACHED), cache, ())
    found = {}
    for count in ROWS:
        rows, wanted = state_rows(count, CACHED, CACHED, VOCABULARY), range(count)
        found[count] = timed(lambda rows=rows, wanted=wanted: network.forward_rows(rows, cache, wanted))
    return found


def passes(names: list[str]) -> None:
    bandwidth = copy_bytes_per_s()
    print(
        f"\n## Passes\n\nCopy bandwidth {bandwidth / 1e12:.2f} TB/s. Milliseconds of one pass, median and quartiles of 20.\n"
    )
    print(
        "| size | network | floor | "
        + " | ".join(f"{count} rows" for count in ROWS)
        + " | 4 rows, x floor | 32 rows, x 4 rows |"
    )
    print("|---" * (len(ROWS) + 5) + "|", flush=True)
    for name in names:
        config = shape(name)
        network = random_network(config)
        fast = fast_network(network)
        sides: list[tuple[str, Precision, RowNetwork]] = [("eager", "bf16", network)]
        if isinstance(fast, str):
            print(f"no fast network: {fast}", flush=True)
        else:
            sides.append(("fast", "bf16", fast))
            if isinstance(whole := fast_network(random_network(config, "int8")), FastNetwork):
                sides.append(("fast, int8", "int8", whole))
        for label, precision, side in sides:
            floor_ms = floor_bytes(config, precision) / bandwidth * 1e3
            found = pass_times(side, side.slot_cache(CACHED + 256))
            median = {count: statistics.median(times) for count, times in found.items()}
            cells = " | ".join(spelled(times) for times in found.values())
            print(
                f"| {name} | {label} | {floor_ms:.2f} | {cells} | {median[4] / floor_ms:.2f} | {median[32] / median[4]:.2f} |",
                flush=True,
            )
        loops(name, config, network, fast)
        latency(name, config, fast if isinstance(fast, FastNetwork) else network)
        del network, fast, sides, side
        torch.cuda.empty_cache()


def loops(name: str, config: SDARConfig, network: SDAR, fast: Any) -> None:
    """Tokens a second of the published loop on stock modules and of ours, 64 tokens after a prompt of 1024."""
    from transformers import Qwen3ForCausalLM

    schedule = Schedule(**{**PUBLISHED, "threshold": 0.9, "top_k": 0, "top_p": 1.0, "max_new_tokens": 64})
    prompt = torch.randint(0, 150000, (CACHED,), generator=torch.Generator().manual_seed(1)).tolist()
    with torch.device("meta"):
        model = Qwen3ForCausalLM(stock_config(config))
    model = model.to_empty(device="cuda").to(torch.bfloat16)
    model.load_state_dict(network.qwen3_weights(), strict=False, assign=True)
    with torch.device("cuda"):
        model.model.rotary_emb = type(model.model.rotary_emb)(model.config)
    sides: list[tuple[str, Callable[[], tuple[int, int]]]] = []

    def stock() -> tuple[int, int]:
        loop = StockLoop(model, config.mask_token_id)
        return len(loop.run(prompt, schedule, 64)), loop.passes

    def ours(side: RowNetwork, keeper: PromptCache, **options: bool) -> tuple[int, int]:
        decoding = Decoding(side, prompt, schedule, prompt_cache=keeper, **options)
        return len(decoding.run([0])[0].tokens), decoding.forwards - decoding.prompt_forwards

    sides.append(("published loop, stock modules", stock))
    for label, side in [("ours, eager", network), ("ours, fast", fast)]:
        if not isinstance(side, str):
            keeper = PromptCache(side)
            sides.append((f"{label}, plain", lambda side=side, keeper=keeper: ours(side, keeper, speculate=False)))
            sides.append((f"{label}, speculating", lambda side=side, keeper=keeper: ours(side, keeper)))
    print(f"\n{name}, 64 tokens one at a time (random weights: what is guessed here says nothing):\n")
    print("| loop | tokens/s | passes | ms a pass |\n|---|---|---|---|", flush=True)
    for label, work in sides:
        work()
        rates, each = [], []
        for _ in range(3):
            torch.cuda.synchronize()
            began = time.perf_counter()
            tokens, count = work()
            torch.cuda.synchronize()
            elapsed_s = time.perf_counter() - began
            rates.append(tokens / elapsed_s)
            each.append(elapsed_s / count * 1e3)
        print(f"| {label} | {spelled(rates, 1)} | {count} | {spelled(each)} |", flush=True)
    print(flush=True)


def latency(name: str, config: SDARConfig, network: RowNetwork) -> None:
    """What a user waits for at these sizes: the first text and the end of 64 tokens, a cancel."""
    schedule = Schedule(**{**PUBLISHED, "threshold": 0.9, "top_k": 0, "top_p": 1.0, "max_new_tokens": 64})
    prompt = torch.randint(0, 150000, (CACHED,), generator=torch.Generator().manual_seed(2)).tolist()
    found: dict[str, list[float]] = {}
    keeper = PromptCache(network)
    for number in range(6):
        for kind in ("cold", "warm"):
            if kind == "cold":
                keeper.tokens = []
            began, seen = time.perf_counter(), []
            decoding = Decoding(network, prompt, schedule, prompt_cache=keeper)
            decoding.run([0], on_partial=lambda *_, began=began, seen=seen: seen.append(time.perf_counter() - began))
            if number:
                # The first of each makes the graphs.
                found.setdefault(f"{kind} prompt of {CACHED} tokens: first text", []).append(seen[0] * 1e3)
                found.setdefault(f"{kind} prompt: the end", []).append((time.perf_counter() - began) * 1e3)
        watch = Cancel()
        decoding = Decoding(network, prompt, schedule, prompt_cache=keeper, check=watch)
        with contextlib.suppress(InterruptedError):
            decoding.run([0])
        torch.cuda.synchronize()
        found.setdefault("a cancel asked for just before a pass", []).append(watch.since_ms())
    print(f"{name}, 64 tokens of random weights, 4 or more a pass where they were guessed:\n\n| what | ms |\n|---|---|")
    for what, times in found.items():
        print(f"| {what} | {spelled(times, 1)} |")
    print(flush=True)


class Cancel:
    """A `check` that ends a fill at the pass after the third one."""

    def __init__(self) -> None:
        self.passes, self.asked = 0, 0.0

    def __call__(self) -> None:
        if self.asked:
            raise InterruptedError
        self.passes += 1
        if self.passes == 3:
            self.asked = time.perf_counter()

    def since_ms(self) -> float:
        return (time.perf_counter() - self.asked) * 1e3


def requests(limit: int, candidates: int) -> Iterator[FillRequest]:
    """Fills of real kernel bodies: the textbook's, then the frozen set's, each with several seeds until there are enough."""
    files = [path for folder in ("textbook", "frozen") for path in sorted((DATA / folder).glob("*.cu"))]
    for number in range(limit):
        yield request_of(files[number % len(files)], candidates, number // len(files))


def request_of(path: Path, candidates: int, seed: int) -> FillRequest:
    region = emptied_region(path)
    model = parse(region.document.text)
    return fill_request(region, model, launch_spec(region.document.text, model.kernels[0], model), candidates, seed)


def fills(loaded: Loaded, device: str, limit: int) -> None:
    info, network = loaded.info, loaded.network
    layout = layout_for(info, loaded.tokenizer, None)
    print(
        f"\n## Fills of the shipped checkpoint on {device}\n\n{limit} fills each, {torch.get_num_threads()} threads.\n"
    )
    print(
        "| schedule | candidates | loop | tokens | passes | tokens/pass | rows/pass | ms/pass | s/fill, median | right | ids differ |"
    )
    print("|---" * 11 + "|", flush=True)
    schedules = [
        ("its own", {}),
        ("published", PUBLISHED | {"temperature": None}),
        ("left to right", {"strategy": "sequential"}),
    ]
    for label, changes in schedules:
        schedule = Schedule.of(info.settings(DecodeSettings(**changes)))
        for count in (1, 8):
            texts: dict[str, list[Any]] = {}
            options = {"published": {"fused": False}, "plain": {"speculate": False}, "speculating": {}}
            for loop, choice in options.items():
                tokens = passes_done = rows = guessed = right = 0
                times, found = [], []
                for request in requests(limit, count):
                    prompt = layout.prompt(request, info.max_tokens - schedule.max_new_tokens - 2 * schedule.block_size)
                    began = time.perf_counter()
                    decoding = Decoding(
                        network, prompt, schedule, stop_ids=info.stop_ids, rows=count,
                        seed=request.seed, **choice,
                    )  # fmt: skip
                    results = decoding.run(range(count))
                    times.append(time.perf_counter() - began)
                    found.append({number: item.tokens for item in results for number in item.candidates})
                    tokens += decoding.tokens
                    passes_done += decoding.forwards - decoding.prompt_forwards
                    rows += decoding.row_count
                    guessed += decoding.acceptance.guessed
                    right += decoding.acceptance.accepted
                texts[loop] = found
                differ = sum(
                    a[number] != b[number] for a, b in zip(texts["published"], found, strict=True) for number in a
                )
                each = sum(times) / passes_done * 1e3
                print(
                    f"| {label} | {count} | {loop} | {tokens} | {passes_done} | {tokens / passes_done:.2f} | {rows / passes_done:.1f} | "
                    f"{each:.1f} | {spelled(times, 3)} | {right} of {guessed} | {differ} of {limit * count} |",
                    flush=True,
                )


def waiting(loaded: Loaded, device: str) -> None:
    info, network = loaded.info, loaded.network
    layout = layout_for(info, loaded.tokenizer, None)
    schedule = Schedule.of(info.settings(DecodeSettings()))
    print(f"\n## Waiting, shipped checkpoint on {device}\n\n| what | ms |\n|---|---|", flush=True)
    for count in (1, 8):
        for warm in (False, True):
            first, whole, lengths = [], [], []
            keeper = PromptCache(network)
            for request in requests(24, count):
                prompt = layout.prompt(request, info.max_tokens - schedule.max_new_tokens - 2 * schedule.block_size)
                if warm:
                    keeper.prepare(
                        prompt[: len(prompt) // schedule.block_size * schedule.block_size],
                        schedule.block_size,
                        1,
                        lambda: None,
                    )
                began, seen = time.perf_counter(), []
                decoding = Decoding(
                    network, prompt, schedule, stop_ids=info.stop_ids, rows=count, seed=request.seed,
                    prompt_cache=keeper if warm else None,
                )  # fmt: skip
                note = lambda *_: seen.append(time.perf_counter() - began)  # noqa: B023, E731
                results = decoding.run(range(count), lambda item: bool(note()), note)
                whole.append((time.perf_counter() - began) * 1e3)
                first.append(seen[0] * 1e3)
                lengths.append(max(len(item.tokens) for item in results))
            kind = f"{count} candidate{'s' * (count > 1)}, {'warm' if warm else 'cold'} prompt"
            words = f"{kind}, bodies of {statistics.median(lengths):.0f} tokens"
            print(f"| {words}: first text | {spelled(first, 0)} |\n| ... the end | {spelled(whole, 0)} |", flush=True)
    delays: list[float] = []
    for request in requests(10, 8):
        prompt = layout.prompt(request, info.max_tokens - schedule.max_new_tokens - 2 * schedule.block_size)
        watch = Cancel()
        with contextlib.suppress(InterruptedError):
            Decoding(network, prompt, schedule, stop_ids=info.stop_ids, rows=8, check=watch).run(range(8))
        delays.append(watch.since_ms())
    print(f"| a cancel asked for just before a pass ends the fill after | {spelled(delays, 1)} |", flush=True)
    keeper, sizes = PromptCache(network), []
    for number, request in enumerate(requests(500, 4)):
        prompt = layout.prompt(request, info.max_tokens - schedule.max_new_tokens - 2 * schedule.block_size)
        Decoding(
            network,
            prompt,
            schedule,
            stop_ids=info.stop_ids,
            rows=4,
            seed=number,
            prompt_cache=keeper,
        ).run(range(4))
        if number in (99, 299, 499):
            held = (
                torch.cuda.memory_allocated()
                if device != "cpu"
                else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            )
            sizes.append(f"{held / 2**20:.0f} MiB")
    print(
        f"\nMemory after 100, 300 and 500 fills: {', '.join(sizes)} (on the CPU the most that was ever held).",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--shapes", default="", help="comma-separated, of 8B, 4B and 1.7B; needs --device cuda")
    parser.add_argument("--fills", type=int, default=200, help="0 leaves them out")
    parser.add_argument("--no-waiting", action="store_true")
    options = parser.parse_args()
    where = (
        torch.cuda.get_device_name() if options.device == "cuda" else f"{torch.get_num_threads()} threads of the CPU"
    )
    print(f"# Decoding\n\n{where}, torch {torch.__version__}", flush=True)
    if options.shapes:
        passes(options.shapes.split(","))
    # In fp32 on both, so that whether ids differ is not a matter of rounding.
    loaded = load(registry.resolve("tiny"), options.device, "tiny", "fp32")
    if options.fills:
        fills(loaded, options.device, options.fills)
    if not options.no_waiting:
        waiting(loaded, options.device)


if __name__ == "__main__":
    main()
