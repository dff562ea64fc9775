"""Responses of the policy to places, sampled by the same engine that fills for a user.

On a GPU a bf16 copy of the policy answers, through the fast kernels where they fit; its weights are overwritten in place
after each update, so that what was captured for it stays valid. The card is let go between passes to whoever waits to time
a kernel there. On a CPU the trained network answers itself.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping

import torch
from attrs import frozen
from torch import Tensor

from dice_lsp.diffusion.decode import Decoded, Decoding, End
from dice_lsp.diffusion.fast import fast_network
from dice_lsp.diffusion.model import SDAR, Layer
from dice_lsp.diffusion.reveal import Schedule
from dice_lsp.diffusion.rows import RowNetwork
from dice_lsp.diffusion.slots import PromptCache
from dice_lsp.lease import Lease
from dice_lsp.training.rl_tasks import Place
from dice_lsp.training.traces import Trace
from dice_lsp.training.trainee import Trainee

LEASE_WAIT_S = 600.0
"""How long training waits for its card while kernels are timed there."""
PURPOSE = "training"


@frozen
class Asked:
    """A place as the policy is asked for it."""

    place: Place
    prompt: tuple[int, ...]


@frozen
class Response:
    """One response and those that came out the same."""

    trace: Trace
    count: int
    text: str | None
    """For the place's region; None where the response has no end, or no kernel."""


class Actor:
    """The policy as it samples."""

    def __init__(self, trainee: Trainee, schedule: Schedule, samples: int) -> None:
        self._trainee, self._schedule, self._samples = trainee, schedule, samples
        self._copy: SDAR | None = None
        self._network: RowNetwork = trainee.network
        self._lease: Lease | None = None
        if trainee.network.device.type == "cuda":
            config = trainee.network.config
            weights = {name: weight.to(torch.bfloat16, copy=True) for name, weight in trainee.weights().items()}
            self._copy = SDAR.from_weights(config, weights)
            fast = fast_network(self._copy)
            self._network = self._copy if isinstance(fast, str) else fast
            uuid = getattr(torch.cuda.get_device_properties(trainee.network.device), "uuid", None)
            self._lease = None if uuid is None else Lease(str(uuid))
        self._cache = PromptCache(self._network)

    def refresh(self) -> None:
        """Take over the weights as they are now."""
        self._cache.tokens = []
        if self._copy is not None:
            overwrite(self._copy, self._trainee.weights())

    @contextlib.contextmanager
    def turn(self) -> Iterator[Callable[[], None]]:
        """Hold the card within the block; what it gives is called between passes and lets others have the card."""
        if self._lease is None:
            yield lambda: None
            return
        lease = self._lease
        with lease.hold(PURPOSE, wait_s=LEASE_WAIT_S):
            try:
                yield lambda: lease.give_way(PURPOSE, wait_s=LEASE_WAIT_S, before=torch.cuda.synchronize)
            finally:
                torch.cuda.synchronize()

    def sample(self, asked: Asked, seed: int) -> list[Response]:
        """The responses to one place, all sampled, in one batch."""
        place, layout = asked.place, self._trainee.layout
        with self.turn() as check:
            decoding = Decoding(
                self._network,
                asked.prompt,
                self._schedule,
                stop_ids=self._trainee.info.stop_ids,
                rows=self._samples,
                seed=seed,
                reached_suffix=layout.reached_suffix(place.request),
                check=check,
                prompt_cache=self._cache,
            )
            # Candidate 0 would be greedy, and no sample of the policy.
            decoded = decoding.run(range(1, self._samples + 1))
        # In the order of the candidates, whichever ended first.
        return [self._response(asked, item) for item in sorted(decoded, key=lambda item: item.candidates)]

    def _response(self, asked: Asked, decoded: Decoded) -> Response:
        text = None
        if decoded.end is not End.LENGTH:
            text = asked.place.middle(self._trainee.layout.middle(asked.place.request, decoded.tokens))
        return Response(Trace.of(asked.prompt, decoded), len(decoded.candidates), text)


@torch.no_grad()
def overwrite(network: SDAR, weights: Mapping[str, Tensor]) -> None:
    """Give a network for inference other weights in place, so that whatever holds their addresses stays valid."""
    for name, weight in weights.items():
        network.get_parameter(name).copy_(weight)
    for layer in network.model.layers:
        assert isinstance(layer, Layer)
        attention = layer.self_attn
        assert attention.qk_norm is not None
        # Unlike the matrices, which are views of the joined one, the norms of queries and keys were copied for it.
        attention.qk_norm[: attention.heads] = attention.q_norm.weight
        attention.qk_norm[attention.heads :] = attention.k_norm.weight
