"""Programs of two products and what lies between them, row by row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Program = Callable[..., Any]


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attention(q: Any, k: Any, v: Any) -> Any:
    return np.matmul(softmax(np.matmul(q, np.swapaxes(k, -1, -2)) * np.float32(0.25)), v)


def masked(q: Any, k: Any, v: Any, mask: Any) -> Any:
    return np.matmul(softmax(np.matmul(q, np.swapaxes(k, -1, -2)) + mask), v)


def perceptron(x: Any, u: Any, v: Any) -> Any:
    return np.matmul(np.maximum(np.matmul(x, u), 0), v)


def normalized(x: Any, u: Any, v: Any) -> Any:
    h = np.matmul(x, u)
    return np.matmul(h / np.sqrt((h * h).mean(-1, keepdims=True)), v)


def scores_too(q: Any, k: Any, v: Any) -> Any:
    s = np.matmul(q, np.swapaxes(k, -1, -2))
    return np.matmul(softmax(s), v), s
