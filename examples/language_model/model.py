"""A decoder: RMSNorm, rotary positions, attention with grouped keys, SwiGLU, and a cache of keys
and values. Everything is plain NumPy, in functions that `cvm.compile` traces.

    logits, cache = decoder(weights, tokens, cache, position)

`tokens` stand at `position` and the places after it; attention goes over the whole capacity of the
cache, and what lies beyond a token's own place is masked. So a token's result has the same bits
whatever else the call computes.
"""

from dataclasses import dataclass

import numpy as np

import cvm

LOG_90, LOG_99 = -0.10536051565782628, -0.01005033585350145  # natural logarithms of 0.9 and 0.99


@dataclass(frozen=True)
class Sizes:
    """The sizes of a decoder. `heads` is a multiple of `groups`, the number of heads of keys."""

    vocabulary: int
    width: int = 128
    layers: int = 4
    heads: int = 4
    groups: int = 2
    hidden: int = 352

    @property
    def per_head(self) -> int:
        """Elements of a head."""
        return self.width // self.heads


def initial_weights(sizes, seed=0):
    """Random weights; a matrix of n rows is uniform between the roots of 3 / n and their negatives,
    a standard deviation of 1 / sqrt(n). NumPy guarantees the numbers of a RandomState.
    """
    random = np.random.RandomState(seed)

    def matrix(rows, columns):
        return (random.uniform(-1, 1, (rows, columns)) * np.sqrt(3 / rows)).astype(np.float32)

    width, keys = sizes.width, sizes.groups * sizes.per_head
    layers = [
        {
            "attention_norm": np.ones(width, np.float32),
            "query_key_value": matrix(width, width + 2 * keys),
            "output": matrix(width, width),
            "feed_forward_norm": np.ones(width, np.float32),
            "gate_up": matrix(width, 2 * sizes.hidden),
            "down": matrix(sizes.hidden, width),
        }
        for _ in range(sizes.layers)
    ]
    return {
        "embedding": matrix(sizes.vocabulary, width),
        "layers": layers,
        "norm": np.ones(width, np.float32),
        "head": matrix(width, sizes.vocabulary),
    }


def empty_cache(sizes, batch, capacity):
    """Keys and values of no token yet, for each layer."""
    shape = batch, sizes.groups, capacity, sizes.per_head
    return [
        {"keys": np.zeros(shape, np.float32), "values": np.zeros(shape, np.float32)}
        for _ in range(sizes.layers)
    ]


def rms_norm(x, scale):
    """Each row divided by the root of its mean square."""
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + np.float32(1e-5)) * scale


def rotary(x, positions):
    """Rotate the pairs (x[i], x[i + half]) of each head by angles that grow with the position, at
    the rates 10000^(-i / half). `half` is a power of two: square roots and products have the same
    bits on every machine, where NumPy's powers need not.
    """
    half = x.shape[-1] // 2
    ratio = 1e-4
    for _ in range(half.bit_length() - 1):
        ratio = np.sqrt(ratio)
    rates = np.cumprod(np.r_[1.0, np.full(half - 1, ratio)]).astype(np.float32)
    angles = positions.astype(np.float32)[:, None] * rates
    cos, sin = np.cos(angles), np.sin(angles)
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def attention(queries, keys, values, positions):
    """Attention of queries (batch, groups, heads of a group, tokens, elements) over all places of
    keys and values (batch, groups, places, elements) up to the query's own.
    """
    batch, groups, heads, tokens, elements = queries.shape
    places = keys.shape[2]
    rows = queries.reshape(batch, groups, heads * tokens, elements)
    scores = rows @ keys.transpose(0, 1, 3, 2) * np.float32(elements**-0.5)
    seen = np.arange(places) <= positions[:, None]
    scores = np.where(
        seen, scores.reshape(batch, groups, heads, tokens, places), np.float32(-np.inf)
    )
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = weights / weights.sum(axis=-1, keepdims=True)
    return (weights.reshape(batch, groups, heads * tokens, places) @ values).reshape(queries.shape)


def block(sizes, x, w, positions, store):
    """A layer of the decoder; `store` takes the keys and values of the tokens and returns those to
    attend to.
    """
    batch, tokens, width = x.shape
    h = rms_norm(x, w["attention_norm"]) @ w["query_key_value"]
    heads = h.reshape(batch, tokens, sizes.heads + 2 * sizes.groups, sizes.per_head)
    heads = heads.transpose(0, 2, 1, 3)
    split = sizes.heads + sizes.groups
    keys, values = store(rotary(heads[:, sizes.heads : split], positions), heads[:, split:])
    queries = rotary(heads[:, : sizes.heads], positions)
    queries = queries.reshape(batch, sizes.groups, -1, tokens, sizes.per_head)
    found = attention(queries, keys, values, positions)
    found = found.reshape(batch, sizes.heads, tokens, sizes.per_head).transpose(0, 2, 1, 3)
    x = x + found.reshape(batch, tokens, width) @ w["output"]
    h = rms_norm(x, w["feed_forward_norm"]) @ w["gate_up"]
    gate, up = h[..., : sizes.hidden], h[..., sizes.hidden :]
    return x + gate / (1 + np.exp(-gate)) * up @ w["down"]


def decoder_of(sizes):
    """The decoder of these sizes."""

    def decoder(weights, tokens, cache, position):
        """The logits of the token after each of `tokens` (batch, tokens), and the cache with their
        keys and values.
        """
        positions = position + np.arange(tokens.shape[1])
        x = weights["embedding"][tokens]
        updated = []
        for layer, w in zip(cache, weights["layers"], strict=True):

            def store(keys, values, layer=layer):
                updated.append(
                    {
                        "keys": layer["keys"].at[:, :, positions].set(keys),
                        "values": layer["values"].at[:, :, positions].set(values),
                    }
                )
                return updated[-1]["keys"], updated[-1]["values"]

            x = block(sizes, x, w, positions, store)
        return rms_norm(x, weights["norm"]) @ weights["head"], updated

    return decoder


def loss_of(sizes):
    """The mean cross-entropy of a decoder of these sizes."""

    def loss(weights, text):
        """Texts are (batch, tokens + 1): each token is predicted from those before it."""
        tokens, wanted = text[:, :-1], text[:, 1:]
        positions = np.arange(tokens.shape[1])
        x = weights["embedding"][tokens]
        for w in weights["layers"]:
            x = block(sizes, x, w, positions, lambda keys, values: (keys, values))
        logits = rms_norm(x, weights["norm"]) @ weights["head"]
        shifted = logits - logits.max(axis=-1, keepdims=True)
        chosen = np.take_along_axis(shifted, wanted[..., None], axis=-1)[..., 0]
        return (np.log(np.exp(shifted).sum(axis=-1)) - chosen).mean()

    return loss


def chooser_of(sizes):
    """The decoder with the choice of the next token."""
    decoder = decoder_of(sizes)

    def choose(weights, tokens, cache, position, noise, temperature):
        """The token after the last of `tokens`, (batch, 1), and the cache.

        `noise` (batch, vocabulary) is uniform between 0 and 1. A token is drawn with the
        probabilities of softmax(logits / temperature), as the largest of logits plus Gumbel noise;
        temperature 0 takes the most likely one.
        """
        logits, cache = decoder(weights, tokens, cache, position)
        gumbel = -np.log(-np.log(noise))
        return (logits[:, -1] + temperature * gumbel).argmax(axis=-1)[:, None], cache

    return choose


def mapped(function, *trees):
    """A function of the arrays that stand at the same place in nested dictionaries and lists."""
    first = trees[0]
    if isinstance(first, dict):
        return {k: mapped(function, *(t[k] for t in trees)) for k in first}
    if isinstance(first, list):
        return [mapped(function, *parts) for parts in zip(*trees, strict=True)]
    return function(*trees)


def training_step_of(sizes):
    """A step of Adam on the loss, whose moments decay by 0.9 and 0.99."""
    loss_and_gradient = cvm.value_and_grad(loss_of(sizes))

    def step(state, text, rate, count):
        """The loss, and the state after step `count`, counted from 1: weights and moments."""
        loss, gradient = loss_and_gradient(state["weights"], text)
        first = mapped(lambda m, g: m * 0.9 + g * 0.1, state["first"], gradient)
        second = mapped(lambda v, g: v * 0.99 + g * g * 0.01, state["second"], gradient)
        scale = rate * np.sqrt(1 - np.exp(count * LOG_99)) / (1 - np.exp(count * LOG_90))
        weights = mapped(
            lambda w, m, v: w - scale * m / (np.sqrt(v) + 1e-8), state["weights"], first, second
        )
        return loss, {"weights": weights, "first": first, "second": second}

    return step


def initial_state(sizes, seed=0):
    """Weights, and moments that are zero."""
    weights = initial_weights(sizes, seed)
    return {
        "weights": weights,
        "first": mapped(np.zeros_like, weights),
        "second": mapped(np.zeros_like, weights),
    }
