"""The groups of benchmarks, each a file of cases, and their kept results."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Group:
    title: str
    unit: str = "ms"  # of the table
    threads: int = 1


GROUPS = {
    "elementwise": Group("Elementwise chains and broadcasts, f32, output given"),
    "images": Group("u8 images times f32[3], clamped, as f32"),
    "shifts": Group("i32: a sum, a rounding shift, a clip"),
    "functions": Group("Transcendental functions, 1M elements of f32"),
    "functions64": Group("Transcendental functions, 1M elements of f64"),
    "reductions": Group("Reductions of 4096 x 4096"),
    "movement": Group("Data movement"),
    "contractions": Group("Contractions of int8 values"),
    "runtime_kernels": Group("Against CVM-Runtime's algorithms, written again for numba"),
    "loop_kernels": Group("Python functions with loops, checked, beside numba without checks"),
    "loop_compiling": Group("Python functions with loops, to their first result"),
    "matmul": Group("Products of f32 matrices, and attention"),
    "whole_networks": Group("Networks of int8 values, batch 1, 224 x 224", threads=2),
    "float_networks": Group("Networks and convolutions of f32, batch 1", threads=2),
    "language_model": Group("A step of one token of a decoder, f32, one thread", "µs"),
    "trees": Group("Ensembles of 100 decision trees, 20 features of f32", "µs"),
    "calls": Group("The cost of a call: a * b + c of three small arrays", "µs"),
    "compiling": Group("From a program to its first result", threads=2),
    "threads": Group("One thread and two", threads=2),
    "clocked": Group("Clocked programs, a tick", "µs"),
    "gradients": Group("A training step: loss, gradient and update"),
}

SETS = {
    "products": ("matmul", "contractions", "float_networks", "whole_networks", "threads")
}  # groups under one name


def load() -> dict[str, dict[str, Any]]:
    """The kept results, in the order of the groups."""
    paths = {g: RESULTS / f"{g}.json" for g in GROUPS}
    return {g: json.loads(p.read_text("utf-8")) for g, p in paths.items() if p.exists()}


def is_ours(name: str) -> bool:
    return name.partition(",")[0] == "cvm"
