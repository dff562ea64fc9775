"""Independent samples of a checkpoint, for estimates: what a user gets (the likeliest fill, all different) is no sample."""

from collections.abc import Sequence

import torch
from attrs import frozen

from dice_lsp.diffusion import registry
from dice_lsp.diffusion.checkpoint import CheckpointError, Loaded, load
from dice_lsp.diffusion.decode import Decoded, Decoding, End, Schedule
from dice_lsp.diffusion.fast import fast_network
from dice_lsp.diffusion.place import choose_place
from dice_lsp.diffusion.prompt import layout_for
from dice_lsp.diffusion.rows import RowNetwork
from dice_lsp.records import DecodeSettings, FillRequest

GREEDY = 0
"""The number of the candidate that is not drawn but the likeliest, see `Decoding`."""


@frozen
class Samples:
    """What a checkpoint wrote for one request."""

    greedy: str | None
    """The likeliest fill; None when it did not end within the limit of tokens."""
    drawn: tuple[str | None, ...]
    """Independent draws, equal ones as often as they came; None for one that did not end."""


class Sampler:
    """A checkpoint that writes fills, in this process. Raises `CheckpointError` for one that cannot be loaded."""

    def __init__(self, model: str, device: str = "auto", template: str | None = None) -> None:
        place = choose_place(model, device, "auto")
        chosen, self.message = place.device, place.message
        self.device = chosen
        self.loaded: Loaded = load(registry.resolve(model), chosen, model, place.precision)
        network: RowNetwork = self.loaded.network
        if chosen.startswith("cuda"):
            fast = fast_network(self.loaded.network)
            if isinstance(fast, str):
                self.message = fast
            else:
                network = fast
        self._network = network
        self._template = template

    @property
    def name(self) -> str:
        """The checkpoint's name."""
        return self.loaded.info.name

    @property
    def parameters(self) -> int:
        """How many parameters the network has."""
        return int(self.loaded.network.config.parameters)

    def samples(self, request: FillRequest, count: int, decode: DecodeSettings, seed: int, *, rows: int = 8) -> Samples:
        """The greedy fill and `count` independent draws, `rows` of them decoded at once.

        Raises `CheckpointError` when the request does not fit the checkpoint.
        """
        layout = layout_for(self.loaded.info, self.loaded.tokenizer, self._template)
        info = self.loaded.info
        try:
            schedule = Schedule.of(info.settings(decode))
        except ValueError as error:
            raise CheckpointError(str(error)) from error
        budget = info.max_tokens - schedule.max_new_tokens - 2 * schedule.block_size
        prompt = layout.prompt(request, budget)
        if schedule.temperature == 0 and count:
            raise CheckpointError("independent samples need a temperature above 0: give --temperature 0.8 for example")
        decoding = Decoding(
            self._network, prompt, schedule, stop_ids=info.stop_ids, rows=min(rows, count + 1), seed=seed,
            reached_suffix=layout.reached_suffix(request),
        )  # fmt: skip
        texts: dict[int, str | None] = {}
        for decoded in decoding.run(range(count + 1)):
            text = None if decoded.end is End.LENGTH else layout.middle(request, decoded.tokens)
            texts.update(dict.fromkeys(decoded.candidates, text))
        return Samples(texts.get(GREEDY), tuple(texts.get(number) for number in range(1, count + 1)))

    def replies(
        self, prompt: Sequence[int], count: int, schedule: Schedule, seed: int, *, rows: int = 8
    ) -> tuple[Decoded | None, ...]:
        """What follows any prompt: the likeliest reply for a count of one, else `count` independent draws."""
        decoding = Decoding(
            self._network, prompt, schedule, stop_ids=self.loaded.info.stop_ids, rows=min(rows, count), seed=seed
        )
        numbers = [GREEDY] if count == 1 else list(range(1, count + 1))
        found: dict[int, Decoded] = {}
        for decoded in decoding.run(numbers):
            found.update(dict.fromkeys(decoded.candidates, decoded))
        return tuple(found.get(number) for number in numbers)


def threads(count: int) -> None:
    """How many threads the network may use on a CPU; the workers need the other cores."""
    torch.set_num_threads(max(1, count))
