"""The processes of one training run: one alone, or one for each GPU under `accelerate launch`."""

import contextlib
import os
from typing import Any

import torch
from attrs import define
from torch import Tensor, nn

from dice_lsp.training.trainee import TrainingError


@define
class Processes:
    """What a run needs of its fellow processes. Without an `accelerator` it is alone, and nothing is sent anywhere."""

    device: torch.device
    rank: int = 0
    count: int = 1
    accelerator: Any = None

    @classmethod
    def start(cls, device: str) -> "Processes":
        """This process among those of its launcher. Raises `TrainingError` when it is one of several without accelerate."""
        if int(os.environ.get("WORLD_SIZE", "1")) == 1:
            return cls(torch.device(device))
        try:
            import accelerate
        except ImportError:
            raise TrainingError(
                "several processes need the package accelerate: run `pip install 'dice-lsp[train]'`"
            ) from None
        accelerator = accelerate.Accelerator(cpu=device == "cpu")
        return cls(accelerator.device, accelerator.process_index, accelerator.num_processes, accelerator)

    @property
    def first(self) -> bool:
        """Whether this process writes the files and says what happens."""
        return self.rank == 0

    def shared(self, objective: nn.Module) -> nn.Module:
        """The module whose gradients are averaged over all processes."""
        if self.accelerator is None:
            return objective
        prepared: nn.Module = self.accelerator.prepare_model(objective)
        return prepared

    def without_exchange(self, module: nn.Module, quiet: bool) -> contextlib.AbstractContextManager[Any]:
        """While `quiet`, gradients are gathered here and sent to nobody yet."""
        if self.accelerator is None or not quiet:
            return contextlib.nullcontext()
        context: contextlib.AbstractContextManager[Any] = self.accelerator.no_sync(module)
        return context

    def sum(self, value: Tensor) -> Tensor:
        """The sum of a tensor over all processes."""
        if self.accelerator is None:
            return value
        total: Tensor = self.accelerator.reduce(value, "sum")
        return total

    def any(self, here: bool) -> bool:
        """Whether it holds in any process, so that all end at the same step."""
        return here if self.accelerator is None else bool(self.sum(torch.tensor(float(here), device=self.device)) > 0)

    def wait(self) -> None:
        """Until every process has come here."""
        if self.accelerator is not None:
            self.accelerator.wait_for_everyone()
