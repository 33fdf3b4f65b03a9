"""The networks that examples/networks writes, narrow and for small images: the CPU gives what the reference says."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import cvm

SCRIPT = Path(__file__).parent.parent / "examples" / "networks" / "networks.py"


@pytest.fixture(scope="module")
def networks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("networks", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["networks"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["resnet18", "mobilenet"])
def test_network(networks: ModuleType, name: str, tmp_path: Path) -> None:
    path = networks.write(networks.NETWORKS[name](size=64, width=1 / 8), tmp_path)
    image = networks.image(64)
    wanted = cvm.compile(path, target="reference")(image)
    assert wanted.shape == (1, 125) and len(np.unique(wanted)) > 100
    f = cvm.compile(path)
    threads = cvm.get_num_threads()
    try:
        for n in (1, 2):
            cvm.set_num_threads(n)
            np.testing.assert_array_equal(f(image), wanted)
    finally:
        cvm.set_num_threads(threads)


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
