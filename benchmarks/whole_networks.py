"""Whole networks of int8 values, batch 1, on one thread and on two: examples/networks beside the
same layers as quantized ONNX.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx_models
from onnx_models import on_onnxruntime, on_openvino
from side_by_side import Case, Contender, strategies

import cvm

INEXACT: dict[str, str] = dict.fromkeys(
    ("onnxruntime", "openvino"), "rounds halves to even, saturates at 255"
)


def network(name: str, threads: int) -> Case:
    described = onnx_models.networks()
    net = described.NETWORKS[name]()
    image = described.image(net.size)
    with tempfile.TemporaryDirectory() as folder:
        f = cvm.compile(described.write(net, Path(folder)))
    out = f(image)
    case = Case({"cvm": lambda: f(image, out=out)}, inexact=INEXACT, strategies=strategies(f))
    model, shifted = onnx_models.network(net), (image + onnx_models.MIDDLE).astype(np.uint8)

    def form(scores: np.ndarray) -> np.ndarray:
        return np.rint(scores).astype(np.int32)

    case.results["cvm"] = case.contenders["cvm"]
    for add in (on_onnxruntime, on_openvino):
        add(case.contenders, model, shifted, threads)
        add(case.results, model, shifted, threads, form)
    case.before = {name: alone(run, threads) for name, run in case.contenders.items()}
    return case


def alone(run: Contender, threads: int) -> Callable[[], None]:
    """Waits until the others' threads, which spin for a while when their work is done, sleep; then
    a call to wake one's own.
    """

    def before() -> None:
        cvm.set_num_threads(threads)
        time.sleep(0.03)
        run()

    return before


WORK = {
    f"{title}, {threads} thread{'s' * (threads > 1)}": lambda name=name, threads=threads: network(
        name, threads
    )
    for title, name in (("ResNet-18", "resnet18"), ("MobileNetV1", "mobilenet"))
    for threads in (1, 2)
}
