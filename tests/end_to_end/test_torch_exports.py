"""Networks that torch exports give what torch gives: of both exporters, with a batch of fixed and
of open size.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cvm

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")
nn = torch.nn
BOUND = 1e-5  # of the largest output
BATCH = 2


class Lambda(nn.Module):
    """A function of a tensor and modules as a module."""

    def __init__(self, function: Callable[..., Any], *modules: Any) -> None:
        super().__init__()
        self.modules_ = nn.ModuleList(modules)
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x, *self.modules_)


def block(a: int, b: int, stride: int = 1) -> Any:
    return nn.Sequential(nn.Conv2d(a, b, 3, stride, 1), nn.BatchNorm2d(b), nn.ReLU())


def mixer_layer() -> Any:
    tokens, channels = nn.Linear(16, 16), nn.Linear(8, 8)
    return Lambda(
        lambda x, n, t, c: (
            (y := x + t(n(x).transpose(1, 2)).transpose(1, 2)) + c(nn.functional.gelu(n(y)))
        ),
        nn.LayerNorm(8),
        tokens,
        channels,
    )


def separable(a: int, b: int) -> Any:
    return nn.Sequential(
        nn.Conv2d(a, a, 3, 1, 1, groups=a), nn.Hardswish(), nn.Conv2d(a, b, 1), nn.Hardsigmoid()
    )


def attention(x: Any, q: Any, k: Any, v: Any) -> Any:
    def heads(y: Any) -> Any:
        return y.view(y.shape[0], y.shape[1], 2, 4).transpose(1, 2)

    scores = heads(q(x)) @ heads(k(x)).transpose(-1, -2) / 2
    mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
    y = scores.masked_fill(~mask, float("-inf")).softmax(-1) @ heads(v(x))
    return y.transpose(1, 2).reshape(x.shape[0], x.shape[1], 8)


IMAGE, SEQUENCE, ROW = (BATCH, 3, 16, 16), (BATCH, 16, 8), (BATCH, 8)
# networks by name, with the shape of an input
NETWORKS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "mlp": (
        lambda: nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4), nn.Softmax(-1)),
        ROW,
    ),
    "cnn": (
        lambda: nn.Sequential(
            block(3, 8),
            nn.MaxPool2d(2),
            block(8, 8),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(8, 5),
        ),
        IMAGE,
    ),
    "residual": (
        lambda: Lambda(lambda x, a, b: torch.relu(a(x) + b(a(x))), block(3, 8, 2), block(8, 8)),
        IMAGE,
    ),
    "separable": (lambda: nn.Sequential(separable(3, 8), separable(8, 4), nn.AvgPool2d(2)), IMAGE),
    "squeeze and excitation": (
        lambda: Lambda(
            lambda x, c, e: c(x) * e(c(x).mean((2, 3)))[:, :, None, None],
            block(3, 8),
            nn.Sequential(nn.Linear(8, 8), nn.Sigmoid()),
        ),
        IMAGE,
    ),
    "u-net": (
        lambda: Lambda(
            lambda x, a, b, u, c: c(torch.cat([y := a(x), u(b(y))], 1)),
            block(3, 4),
            block(4, 8, 2),
            nn.ConvTranspose2d(8, 4, 2, 2),
            nn.Conv2d(8, 2, 1),
        ),
        IMAGE,
    ),
    "upsampling": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 3),
            nn.Upsample(scale_factor=2, mode="bilinear"),
            nn.LeakyReLU(),
            nn.Upsample(scale_factor=2),
        ),
        IMAGE,
    ),
    "normalisations": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3),
            nn.GroupNorm(2, 8),
            nn.InstanceNorm2d(8, affine=True),
            nn.SiLU(),
            nn.PReLU(),
        ),
        IMAGE,
    ),
    "transformer": (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), SEQUENCE),
    "causal attention": (lambda: Lambda(attention, *(nn.Linear(8, 8) for _ in range(3))), SEQUENCE),
    "mlp-mixer": (lambda: nn.Sequential(mixer_layer(), mixer_layer()), SEQUENCE),
    "gru": (
        lambda: Lambda(
            lambda x, r, last: last(r(x)[0][:, -1]), nn.GRU(8, 6, batch_first=True), nn.Linear(6, 3)
        ),
        SEQUENCE,
    ),
    "lstm": (
        lambda: Lambda(lambda x, r: r(x)[0], nn.LSTM(8, 6, bidirectional=True, batch_first=True)),
        SEQUENCE,
    ),
    "convolutions of one axis": (
        lambda: Lambda(
            lambda x, a, b: b(torch.relu(a(x.transpose(1, 2)))),
            nn.Conv1d(8, 6, 3, padding=2, dilation=2),
            nn.Conv1d(6, 4, 3, 2),
        ),
        SEQUENCE,
    ),
    "convolutions of three axes": (
        lambda: nn.Sequential(nn.Conv3d(3, 4, 3, padding=1), nn.ReLU(), nn.MaxPool3d(2)),
        (BATCH, 3, 4, 6, 6),
    ),
    "order and choice": (
        lambda: Lambda(
            lambda x: torch.cat(
                [
                    x.topk(3).values,
                    x.cumsum(1),
                    torch.where(x > 0, x, x.exp()),
                    x.sort(1, descending=True).values,
                ],
                1,
            )
        ),
        ROW,
    ),
    "indexing": (
        lambda: Lambda(
            lambda x: x[:, 0] + x[:, -1].clamp(-1, 1) + x[:, ::3].sum(1) + x.flip(1).amax(1)
        ),
        SEQUENCE,
    ),
}


@pytest.mark.parametrize("batch", ["fixed", "open"])
@pytest.mark.parametrize("exporter", ["dynamo", "script"])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_network(name: str, exporter: str, batch: str) -> None:
    make, shape = NETWORKS[name]
    torch.manual_seed(0)
    network, x = make().eval(), torch.randn(shape)
    module = cvm.from_onnx(exported(network, x, exporter == "dynamo", batch == "open"))
    again = torch.randn(3, *shape[1:]) if batch == "open" else x
    got, wanted = cvm.compile(module)(again.numpy()), network(again).detach().numpy()
    assert got.shape == wanted.shape and got.dtype == wanted.dtype
    assert np.abs(got - wanted).max() <= BOUND * np.abs(wanted).max()


def exported(network: Any, x: Any, dynamo: bool, open: bool) -> bytes:
    """The network as torch writes it; what the exporter itself cannot do is no test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            if dynamo:
                sizes = {"dynamic_shapes": ({0: torch.export.Dim("batch")},)} if open else {}
                made = torch.onnx.export(network, (x,), dynamo=True, verbose=False, **sizes)
                return made.model_proto.SerializeToString()
            file = io.BytesIO()
            axes = {"dynamic_axes": {"x": {0: "batch"}}} if open else {}
            torch.onnx.export(network, (x,), file, dynamo=False, input_names=["x"], **axes)
            return file.getvalue()
        except Exception as e:
            pytest.skip(f"torch does not export it: {str(e).splitlines()[0][:100]}")
