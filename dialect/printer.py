"""Programs as text."""

from __future__ import annotations

from .program import Module


def print_module(module: Module) -> str:
    raise NotImplementedError
