"""The networks that examples/networks writes, narrow and for small images: the CPU gives what the
reference says.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import cvm

SCRIPT = Path(__file__).parents[2] / "examples" / "networks" / "networks.py"


@pytest.fixture(scope="module")
def networks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("networks", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["networks"] = module
    spec.loader.exec_module(module)
    return module


def gives_on_one_and_two_threads(f: Any, image: np.ndarray, wanted: np.ndarray) -> None:
    threads = cvm.get_num_threads()
    try:
        for n in (1, 2):
            cvm.set_num_threads(n)
            np.testing.assert_array_equal(f(image), wanted)
    finally:
        cvm.set_num_threads(threads)


@pytest.mark.parametrize("name", ["resnet18", "mobilenet"])
def test_network(networks: ModuleType, name: str, tmp_path: Path) -> None:
    path = networks.write(networks.NETWORKS[name](size=64, width=1 / 8), tmp_path)
    image = networks.image(64)
    wanted = cvm.compile(path, target="reference")(image)
    assert wanted.shape == (1, 125) and len(np.unique(wanted)) > 100
    gives_on_one_and_two_threads(cvm.compile(path), image, wanted)


def test_layers_keep_their_spread(networks: ModuleType, tmp_path: Path) -> None:
    """The shifts leave 8-bit results that neither vanish nor clip much, through all layers."""
    net = networks.resnet18(size=64, width=1 / 4)
    path = networks.write(net, tmp_path)
    last = [layer.name for layer in net.layers.values() if layer.kind == "add"][-1]
    text = path.read_text("utf-8")
    text = text[: text.index("  %average.sum")] + f"  return %{last}\n}}\n"
    (tmp_path / "cut.cvm").write_text(text.replace("-> tensor<1x250xi32>", ""), "utf-8")
    found = cvm.compile(tmp_path / "cut.cvm")(networks.image(64))
    assert found.std() > 10 and (found == 127).mean() < 0.05


def shifted(x: np.ndarray, bits: int) -> np.ndarray:
    """Halved so many times, halves upwards, and clipped to 8 bits."""
    return np.clip(((x >> (bits - 1)) + 1) >> 1, -127, 127)


def windows(x: np.ndarray, layer: Any, fill: int) -> np.ndarray:
    """The windows of a layer's result: (channels, rows, columns, kernel rows, kernel columns)."""
    p, k, s = layer.padding, layer.kernel, layer.stride
    padded = np.pad(x, ((0, 0), (p, p), (p, p)), constant_values=fill)
    return np.lib.stride_tricks.sliding_window_view(padded, (k, k), (1, 2))[:, ::s, ::s]


def evaluated(net: Any, weights: dict[str, np.ndarray], image: np.ndarray) -> np.ndarray:
    """A network layer by layer in NumPy, its products as f64, whose sums are exact below 2 **
    53.
    """
    found = {"image": image[0].astype(np.int64)}
    for layer in list(net.layers.values())[1:]:
        x = found[layer.inputs[0]]
        if layer.kind in ("conv", "dense"):
            w, b = (
                weights[f"{layer.name}.weight"].astype(np.float64),
                weights[f"{layer.name}.bias"].astype(np.int64),
            )
        if layer.kind == "conv":
            seen = windows(x, layer, 0).astype(np.float64)
            groups = seen.reshape(layer.groups, -1, *seen.shape[1:])
            rows = groups.transpose(0, 1, 4, 5, 2, 3).reshape(
                layer.groups, -1, layer.shape[1] * layer.shape[2]
            )
            sums = np.matmul(w.reshape(layer.groups, -1, rows.shape[1]), rows).reshape(layer.shape)
            y = shifted(sums.astype(np.int64) + b[:, None, None], layer.shift)
        elif layer.kind == "pool":
            y = windows(x, layer, -(2**31)).max((3, 4))
        elif layer.kind == "add":
            y = np.clip(x + found[layer.inputs[1]], -127, 127)
        elif layer.kind == "average":
            y = shifted(x.sum((1, 2)), layer.shift)
        else:
            y = np.rint(w @ x.astype(np.float64)).astype(np.int64) + b
        found[layer.name] = np.maximum(y, 0) if layer.relu else y
    return y[None]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet18", "mobilenet"])
def test_network_of_full_size(networks: ModuleType, name: str, tmp_path: Path) -> None:
    """Too large for the reference, so it is held against its layers, computed by other means."""
    net = networks.NETWORKS[name]()
    image = networks.image(net.size)
    wanted = evaluated(net, net.weights(), image)
    assert len(np.unique(wanted)) > 100
    gives_on_one_and_two_threads(cvm.compile(networks.write(net, tmp_path)), image, wanted)


@pytest.mark.parametrize("name", ["resnet18", "mobilenet"])
def test_layers_by_other_means_give_what_the_reference_says(
    networks: ModuleType, name: str, tmp_path: Path
) -> None:
    net = networks.NETWORKS[name](size=64, width=1 / 8)
    wanted = cvm.compile(networks.write(net, tmp_path), target="reference")(networks.image(64))
    np.testing.assert_array_equal(evaluated(net, net.weights(), networks.image(64)), wanted)


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("name", "given", "strategy"),
    [
        ("resnet50", {"size": 64, "width": 1 / 4}, "direct"),
        ("mobilenet_v2", {"size": 64, "width": 1 / 4}, "direct"),
        ("encoder", {"size": 24, "width": 1 / 6}, "fma"),
    ],
)
def test_network_in_f32(name: str, given: dict[str, float], strategy: str, tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location(
        "float_networks", SCRIPT.parent / "float_networks.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    net, result = module.NETWORKS[name](**given)
    path = module.write(net, result, tmp_path)
    image = np.random.default_rng(0).standard_normal(net.shapes["image"]).astype(np.float32)
    wanted = cvm.compile(path, target="reference")(image)
    assert wanted.shape == net.shapes[result] and wanted.std() > 0.1
    compiled = cvm.compile(path)
    np.testing.assert_allclose(compiled(image), wanted, atol=1e-4 * abs(wanted).max())
    assert compiled.lower("strategies").count(f"taken {strategy}") >= 1
