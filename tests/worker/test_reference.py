"""PyTorch expressions as references: every one here gives what torch itself gives on double tensors."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from dice_lsp.worker.torch_expression import FUNCTIONS, ExpressionFailed, evaluate_torch


def tensors() -> dict[str, object]:
    make = torch.Generator().manual_seed(3)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=make, dtype=torch.float64)

    return {
        "x": normal(7, 5), "y": normal(7, 5), "v": normal(5), "w": normal(7), "A": normal(4, 6), "B": normal(6, 3),
        "batch": normal(2, 4, 6), "other": normal(2, 6, 3), "p": torch.sigmoid(normal(7, 5)), "image": normal(2, 4, 9, 8),
        "filters": normal(6, 4, 3, 3), "grouped": normal(6, 2, 3, 3), "signal": normal(2, 4, 20), "taps": normal(5, 4, 3),
        "bias": normal(6), "channels": normal(4), "i": torch.randint(-9, 9, (7, 5), generator=make),
        "labels": torch.randint(0, 5, (7,), generator=make), "counts": torch.randint(0, 6, (40,), generator=make),
        "mask": torch.randint(0, 2, (7, 5), generator=make).bool(), "a": 1.7, "n": 7, "k": 2, "q": normal(2, 3, 8, 4),
        "key": normal(2, 3, 8, 4), "value": normal(2, 3, 8, 4), "idx": torch.randint(0, 5, (7, 3), generator=make),
    }  # fmt: skip


EXPRESSIONS = """
a * x + y
x - y * 2 ** k
-x / (1 + abs(y))
x // 0.3
x % 0.3
i // 3
i % 3
i / 4
(i << 1) & 7 | 1
x > y
(x > 0) * x
~mask
x ** 2
2 ** i.float()
x @ v
A @ B
torch.matmul(batch, other)
torch.bmm(batch, other)
torch.mm(A, B)
torch.mv(x, v)
torch.dot(v, v)
x.T
x.t()
A.mT @ A
torch.outer(w, v)
torch.addmm(x, x, torch.outer(v, v))
torch.einsum('ij,jk->ik', A, B)
torch.einsum('bij,bjk->bik', batch, other)
F.linear(x, y)
torch.relu(x)
F.relu(x) + nn.functional.relu(y)
torch.sigmoid(x * 50)
torch.tanh(x)
F.gelu(x)
F.gelu(x, approximate='tanh')
F.silu(x)
F.softplus(x)
F.softplus(x, beta=2.0)
F.elu(x, 0.5)
F.selu(x)
F.celu(x, 1.3)
F.leaky_relu(x, 0.1)
F.hardtanh(x)
F.hardsigmoid(x * 4)
F.hardswish(x * 4)
F.relu6(x * 6)
F.mish(x)
F.softsign(x)
F.logsigmoid(x)
F.tanhshrink(x)
F.softshrink(x)
F.hardshrink(x)
F.threshold(x, 0.1, 20.0)
F.glu(A, dim=1)
torch.exp(x)
torch.log(p)
torch.log1p(p)
torch.sqrt(p)
torch.rsqrt(p)
torch.erf(x)
torch.erfc(x)
torch.sin(x) * torch.cos(y) + torch.atan2(x, y)
torch.abs(x)
x.abs().sqrt()
torch.sign(i)
torch.floor(x) + torch.ceil(y) + torch.trunc(x) + torch.round(y * 2)
torch.frac(x)
torch.clamp(x, -0.5, 0.5)
x.clamp(min=0)
torch.clamp(x, max=0.25)
torch.where(x > y, x, y)
torch.where(x > 0, x, 0.0)
x.masked_fill(mask, -1.0)
torch.minimum(x, y) + torch.maximum(x, y)
torch.fmod(x, 0.3)
torch.remainder(i, 3)
torch.hypot(x, y)
torch.lerp(x, y, 0.3)
torch.add(x, y, alpha=2)
torch.sub(x, y, alpha=3)
torch.div(x, y, rounding_mode='floor')
torch.div(x, y, rounding_mode='trunc')
torch.addcmul(x, y, y, value=0.5)
torch.sum(x)
x.sum(dim=1)
x.sum(0, keepdim=True)
torch.sum(batch, dim=(0, 2))
torch.sum(x > 0)
x.mean(-1)
torch.mean(batch, (0, 1))
x.prod(1)
torch.max(x)
torch.max(x, dim=1)[0]
torch.max(x, dim=1).values
torch.max(x, 1).indices
x.max(dim=0)[1]
torch.max(x, y)
torch.min(x, 0).values
x.amax(1, keepdim=True)
torch.amin(x, dim=(0, 1))
torch.argmax(x, dim=1)
x.argmin()
torch.var(x)
x.var(1)
x.var(dim=1, unbiased=False, keepdim=True)
torch.std(x, dim=0, correction=0)
torch.std(x, 0)
torch.norm(x)
x.norm(dim=1, keepdim=True)
torch.norm(x, p=1, dim=1)
torch.linalg.norm(v)
torch.linalg.vector_norm(x, 3, 1)
torch.softmax(x, dim=1)
F.softmax(x, dim=-1)
x.softmax(0)
F.log_softmax(x, dim=1)
torch.logsumexp(x, dim=1)
torch.cumsum(x, dim=1)
w.cumsum(0)
torch.cumprod(x, 1)
torch.cummax(x, 1).values
torch.cummin(x, 0)[0]
torch.sort(x, dim=1)[0]
torch.sort(x, dim=0, descending=True).values
torch.argsort(x, dim=1)
torch.argsort(x, dim=1, descending=True)
torch.topk(x, 3, dim=1).values
x.topk(2)[1]
torch.median(w)
torch.median(x, dim=1).values
torch.bincount(counts)
torch.bincount(counts, minlength=10)
torch.histc(x, bins=8, min=-2, max=2)
torch.diff(w)
x.reshape(5, 7)
x.reshape(-1)
x.view(5, 7)
x.flatten()
batch.flatten(1)
batch.transpose(1, 2)
batch.permute(2, 0, 1)
w.unsqueeze(1) * v.unsqueeze(0)
w[:, None] + v[None, :]
x[1:5, ::2]
x[0]
x[..., -1]
x[:, 1] * w
x[labels]
v.expand(7, 5)
v.repeat(2, 3)
v.repeat_interleave(3)
torch.flip(x, dims=[0])
x.flip(0, 1)
torch.flip(w, (0,))
torch.roll(x, 2, 1)
torch.roll(x, shifts=(1, 2), dims=(0, 1))
torch.cat([x, y], dim=1)
torch.cat((v, w))
torch.stack([x, y], dim=-1)
torch.chunk(x, 2, dim=0)[1]
torch.split(w, 3)[2]
torch.gather(x, 1, idx)
torch.index_select(x, 1, labels)
torch.zeros(5).double().index_add(0, labels, w)
torch.zeros(7, 5).scatter_add(1, idx, torch.ones(7, 3) * 2)
torch.permute(batch, dims=(1, 0, 2))
torch.reshape(x, shape=(5, 7))
torch.tril(x)
torch.triu(x, diagonal=1)
torch.diag(v)
torch.diag(x[:5])
torch.trace(x[:5])
torch.eye(7, 5) + x
torch.arange(n) * w
torch.arange(0, 10, 3)
torch.full((7, 5), 2.5) + x
torch.zeros_like(x) + torch.ones_like(y)
x.shape[0] * w
x.size(1) + w
x.numel() * v
torch.cdist(x, y)
torch.kron(v, w)
F.pad(x, (1, 2))
F.pad(x, (1, 2, 3, 0), value=7.0)
F.pad(signal, (2, 2), mode='reflect')
F.pad(signal, (2, 2), mode='replicate')
F.layer_norm(x, (5,))
F.layer_norm(x, (5,), v, v, 1e-3)
F.group_norm(image, 2, channels, channels)
F.batch_norm(image, channels, channels.abs(), channels, channels)
F.normalize(x, dim=1)
F.cosine_similarity(x, y, dim=1)
F.conv1d(signal, taps)
F.conv1d(signal, taps, padding=1, stride=2)
F.conv2d(image, filters, bias, stride=2, padding=1)
F.conv2d(image, filters, dilation=2)
F.conv2d(image, grouped, groups=2, padding='same')
F.avg_pool2d(image, 2)
F.avg_pool2d(image, 3, stride=2, padding=1)
F.max_pool2d(image, 2)
F.max_pool1d(signal, 3, 2, 1)
F.mse_loss(x, y)
F.l1_loss(x, y, reduction='sum')
F.smooth_l1_loss(x, y)
F.huber_loss(x, y, reduction='none')
F.binary_cross_entropy(p, p.flip(0))
F.binary_cross_entropy_with_logits(x, p)
F.cross_entropy(x, labels)
F.nll_loss(F.log_softmax(x, 1), labels)
F.kl_div(x, p, reduction='batchmean')
F.embedding(labels, torch.outer(v, w))
F.one_hot(labels, num_classes=5)
F.scaled_dot_product_attention(q, key, value)
F.scaled_dot_product_attention(q, key, value, is_causal=True)
torch.logaddexp(x, y)
torch.nan_to_num(x / 0)
torch.isnan(x) | torch.isinf(y)
torch.logical_and(x > 0, mask)
torch.any(x > 2, dim=1)
torch.count_nonzero(i, dim=0)
x * i.float()
x.long()
x.int() + 1
torch.pi * x
x.pow(3)
x.square().sum(dim=1).sqrt()
(x - x.mean(1, keepdim=True)) / torch.sqrt(x.var(1, keepdim=True, unbiased=False) + 1e-5)
x if n > 3 else y
""".strip().splitlines()


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_gives_what_torch_gives(expression: str) -> None:
    names = tensors()
    with torch.no_grad():
        theirs = eval(expression, {"torch": torch, "F": F, "nn": nn, **names})
    mine = evaluate_torch(expression, {k: v.numpy() if isinstance(v, torch.Tensor) else v for k, v in names.items()})
    assert len(mine) == 1
    theirs = torch.as_tensor(theirs).numpy()
    assert mine[0].shape == theirs.shape
    np.testing.assert_allclose(mine[0], theirs, rtol=1e-10, atol=1e-12)


def test_a_tuple_gives_several_tensors() -> None:
    first, second = evaluate_torch("(x + 1, x.sum())", {"x": np.arange(3.0)})
    assert first.tolist() == [1, 2, 3] and second == 3


@pytest.mark.parametrize(
    "expression, said",
    [
        ("torch.foo(x)", "torch.foo is not understood here"),
        ("x.foo()", "`.foo()` is not understood"),
        ("x.__class__", "`.__class__` is not understood"),
        ("x.__class__()", "is not understood"),
        ("().__class__.__bases__", "tensor is needed"),
        ("__import__('os').system('true')", "`__import__(...)` is not understood"),
        ("open('/etc/passwd')", "`open(...)` is not understood"),
        ("(lambda: 1)()", "not understood"),
        ("[x for x in (1, 2)]", "not understood"),
        ("f'{x}'", "not understood"),
        ("z + 1", "`z` is not a buffer"),
        ("x +", "no Python expression"),
        ("import os", "no Python expression"),
        ("x.sum(colour=3)", "colour"),
        ("x @ torch.ones(4, 4)", "cannot be evaluated"),
        ("torch.zeros(100000, 100000)", "too large"),
        ("x.expand(100000, 100000, 3)", "too large"),
        ("torch.arange(60000)[:, None] == torch.arange(60000)", "too large"),
        ("torch.where(torch.arange(60000)[:, None] > 0, torch.arange(60000), 0)", "too large"),
        ("torch.kron(torch.arange(60000), torch.arange(60000))", "too large"),
        ("torch.triu(torch.arange(60000))", "a matrix is needed"),
        ("x.tile(10**9, 0)", "too large"),
        ("torch.mul((1, 2), 10**9) + torch.topk(x, 10**12)", "too large"),
        ("torch.norm(x, p=(x, x))", "is not known"),
        ("torch.softmax(x)", "needs dim"),
        ("'text'", "gives str"),
        ("torch.arange(1, 10**12)", "too large"),
        ("torch", "is not a buffer"),
        ("+".join(["x"] * 3000), "characters"),
        ("+".join(["x"] * 600), "parts"),
        ("(" * 300 + "x" + ")" * 300, "no Python expression"),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_said(expression: str, said: str) -> None:
    with pytest.raises(ExpressionFailed) as error:
        evaluate_torch(expression, {"x": np.arange(3.0)})
    assert said in str(error.value) and "\n" not in str(error.value)


def test_a_huge_power_ends_at_once() -> None:
    (value,) = evaluate_torch("9 ** 9 ** 9", {})
    assert np.isinf(value)


def test_no_function_reaches_python() -> None:
    assert not any(name.startswith("_") for name in FUNCTIONS)
