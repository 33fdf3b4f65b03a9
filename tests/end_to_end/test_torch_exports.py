"""Networks that torch exports give what torch gives: of both exporters, with a batch of fixed and
of open size.
"""

from __future__ import annotations

import io
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
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
    module = (
        cvm.from_torch(network, (x,), dynamic_shapes=({0: "batch"},) if batch == "open" else None)
        if exporter == "dynamo"
        else cvm.from_onnx(scripted(network, x, batch == "open"))
    )
    again = torch.randn(3, *shape[1:]) if batch == "open" else x
    got, wanted = cvm.compile(module)(again.numpy()), network(again).detach().numpy()
    assert got.shape == wanted.shape and got.dtype == wanted.dtype
    assert np.abs(got - wanted).max() <= BOUND * np.abs(wanted).max()


def scripted(network: Any, x: Any, open: bool) -> bytes:
    """The network as torch's older exporter writes it; what it cannot do itself is no test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            file = io.BytesIO()
            axes = {"dynamic_axes": {"x": {0: "batch"}}} if open else {}
            torch.onnx.export(network, (x,), file, dynamo=False, input_names=["x"], **axes)
            return file.getvalue()
        except Exception as e:
            pytest.skip(f"torch does not export it: {str(e).splitlines()[0][:100]}")


class Scaled(nn.Module):
    """Two results, by name, of an argument and one that may be missing."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.dropout = nn.Linear(8, 4), nn.Dropout(0.5)

    def forward(self, x: Any, scale: Any = None) -> dict[str, Any]:
        y = self.dropout(self.linear(x))
        return {"y": y, "z": y + 1 if scale is None else y * scale}


def test_names_and_open_sizes_are_kept() -> None:
    network, x, scale = Scaled(), torch.randn(2, 8), torch.randn(4)
    module = cvm.from_torch(
        network,
        (x,),
        {"scale": scale},
        dynamic_shapes={"x": {0: torch.export.Dim("rows", min=1)}, "scale": None},
        output_names=["y", "z"],
    )
    text = str(module)
    assert "%x: tensor<?ROWS x 8 x f32>" in text and "%scale: tensor<4xf32>" in text
    assert text.rstrip().endswith("return %y, %z\n}")
    # as in evaluation mode, which is not left on
    assert network.training and network.dropout.training
    wanted = network.eval()(rows := torch.randn(5, 8), scale)
    for got, key in zip(cvm.compile(module)(rows.numpy(), scale.numpy()), "yz", strict=True):
        np.testing.assert_allclose(got, wanted[key].detach().numpy(), rtol=1e-5, atol=1e-6)
    exported = torch.export.export(network, (x,))
    assert "%x: tensor<2x8xf32>" in str(cvm.from_torch(exported))


class Branch(nn.Module):
    def forward(self, x: Any) -> Any:
        if x.sum() > 0:
            return x
        return -x


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: cvm.from_torch(3), "a torch.nn.Module or an ExportedProgram, got int"),
        (
            lambda: cvm.from_torch(Branch(), (torch.ones(3),)),
            r"torch cannot export the module: .*data-dependent.*\(test_torch_exports.py:\d+, forward\)",
        ),
        (
            lambda: cvm.from_torch(Lambda(lambda x: torch.linalg.qr(x)[0]), (torch.ones(3, 3),)),
            "No ONNX function found for .*linalg_qr",
        ),
        (lambda: cvm.from_torch(nn.Linear(8, 4), ()), "missing a required argument"),
        (
            lambda: cvm.from_torch(Scaled(), (torch.ones(1, 8),), dynamic_shapes={"y": {0: "b"}}),
            "dynamic_shapes",
        ),
    ],
    ids=["number", "branch", "operator", "arguments", "shapes"],
)
def test_mistakes(call: Callable[[], object], said: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(cvm.Error, match=said):
        call()
    printed = capfd.readouterr()
    assert not printed.out and not printed.err


def test_the_program_of_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    page = Path(__file__).parents[2] / "docs" / "pytorch.md"
    (block,) = re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    exec(compile(block, str(page), "exec"), {})
    assert capsys.readouterr().out == "(3, 4)\n"


def test_columns_are_folded() -> None:
    fold, x = nn.Fold((8, 7), 3, padding=1, stride=2), torch.randn(2, 18, 16)
    found = cvm.compile(cvm.from_torch(fold, (x,)))(x.numpy())
    np.testing.assert_allclose(found, fold(x).numpy(), rtol=1e-6, atol=1e-6)


def test_what_is_not_imported_is_named() -> None:
    with pytest.raises(cvm.ParseError, match=r"<torch>:1:1: .*\n.*1 x Det"):
        cvm.from_torch(Lambda(torch.linalg.det), (torch.ones(1, 3, 3),))


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(cvm.Error, match="needs the package onnxscript: pip install 'cvm-lang"):
        cvm.from_torch(nn.Linear(2, 2), (torch.ones(1, 2),))
