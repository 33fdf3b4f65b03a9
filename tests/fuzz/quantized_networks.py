"""Random networks, quantized: the program of integers on each target, and read back of its model."""

from __future__ import annotations

import warnings

import numpy as np
from outcomes import assert_same
from random_networks import random_network

import cvm

TARGETS = "cpu", "cpu", "cuda-sim"  # one for each network, against the reference
FORMATS = {  # of a scheme: the method that writes its models, and the function that reads them
    "tflite": ("to_tflite", cvm.from_tflite),
    "tosa": ("to_tosa", cvm.from_tosa),
    "qdq": ("to_onnx", cvm.from_onnx),
    "cvm": None,
}
SAMPLES = 3


def attack(data: bytes) -> None:
    """Quantize the network of a seed."""
    random = np.random.default_rng(int.from_bytes(data, "little"))
    special = bool(random.integers(4))
    text = random_network(random, special)
    module = cvm.parse(text)
    shape = module.functions["main"].arguments[0].known_type.array_shape
    samples = 2 * random.normal(size=(SAMPLES, *map(int, shape))).astype(np.float32)
    if special:
        match random.integers(6):
            case 0:
                samples *= 0
            case 1:
                samples[:] = samples.flat[0]
            case 2:
                samples *= np.float32(random.choice([1e-30, 1e30]))
            case 3:
                samples[0].flat[0] = random.choice([np.inf, np.nan, -np.inf])
            case 4:
                samples = samples[:0]
    scheme = str(random.choice([*FORMATS]))
    float_io = bool(random.integers(2)) and scheme == "cvm"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = cvm.quantize(module, list(samples), scheme, float_io=float_io)  # type: ignore[arg-type]
        argument = made.functions["main"].arguments[0].known_type.element
        given = (
            samples
            if float_io
            else random.integers(*argument.limits, samples.shape, argument.dtype, endpoint=True)
        )
        if "range" in (attributes := made.functions["main"].arguments[0].attributes):
            given = np.clip(given, *attributes["range"])
        printed = str(made)
        assert str(cvm.parse(printed)) == printed
        programs = [(made, str(random.choice(TARGETS)))]
        if (format := FORMATS[scheme]) is not None:
            programs.append((format[1](getattr(made, format[0])()), "reference"))
        reference = cvm.compile(made, target="reference")
        for program, target in programs:
            f = cvm.compile(program, target=target)
            for x in given:
                found, wanted = (y if isinstance(y, tuple) else (y,) for y in (f(x), reference(x)))
                assert_same([*found], [*wanted], f"{scheme}, {target}\n{text}\n{printed}")
