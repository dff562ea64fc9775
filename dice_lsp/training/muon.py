"""Muon for matrices inside the network: momentum, orthogonalised by a Newton-Schulz iteration (Jordan et al., 2024)."""

from collections.abc import Iterable

import torch
from torch import Tensor


def orthogonalise(matrices: Tensor, steps: int = 5) -> Tensor:
    """Nearest semi-orthogonal matrices of a batch `[N, rows, cols]`, roughly: singular values end near 1.

    The quintic's coefficients are those of the paper; they trade accuracy for few steps in bf16.
    """
    a, b, c = 3.4445, -4.7750, 2.0315
    wide = matrices.shape[-2] <= matrices.shape[-1]
    x = matrices.to(torch.bfloat16 if matrices.is_cuda else torch.float32)
    x = x if wide else x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    result: Tensor = x if wide else x.mT
    return result


class Muon(torch.optim.Optimizer):
    """Muon with Nesterov momentum; matrices of one shape are orthogonalised in one batch."""

    def __init__(
        self, parameters: Iterable[Tensor], lr: float = 0.02, momentum: float = 0.95, weight_decay: float = 0.0
    ):
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[Tensor]] = {}
            for parameter in group["params"]:
                if parameter.grad is not None:
                    by_shape.setdefault(parameter.shape, []).append(parameter)
            for shape, parameters in by_shape.items():
                updates = []
                for parameter in parameters:
                    state = self.state[parameter]
                    if "momentum" not in state:
                        state["momentum"] = torch.zeros_like(parameter)
                    gradient: Tensor = parameter.grad  # type: ignore[assignment]
                    state["momentum"].lerp_(gradient, 1 - group["momentum"])
                    updates.append(gradient.lerp(state["momentum"], group["momentum"]))
                directions = orthogonalise(torch.stack(updates))
                scale = max(1.0, shape[0] / shape[1]) ** 0.5 * group["lr"]
                for parameter, direction in zip(parameters, directions, strict=True):
                    if group["weight_decay"]:
                        parameter.mul_(1 - group["lr"] * group["weight_decay"])
                    parameter.add_(direction.to(parameter.dtype), alpha=-scale)
