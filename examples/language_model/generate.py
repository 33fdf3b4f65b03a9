"""Generates text with the weights that train.py wrote.

python examples/language_model/generate.py [--prompt "A loop"] [--characters 220] [--batch 1]

The cache is an argument of the compiled step that is donated: a step writes the keys and values of
its token there, and copies nothing. The tokens are the same for any batch, number of threads and
machine, and for a prompt given whole, in chunks or character by character (--chunk).
"""

import argparse
import time
from pathlib import Path

import numpy as np
from model import Sizes, chooser_of, empty_cache, initial_weights, mapped

import cvm


def generated(choose, sizes, weights, prompt, count, *, capacity, chunk=None, temperature=0.0):
    """The `count` tokens (batch, count) after a prompt (batch, tokens), which is given to the step
    in chunks of `chunk` tokens, or whole. Each row of the batch draws the same random numbers.
    """
    batch, length = prompt.shape
    cache = empty_cache(sizes, batch, capacity)
    random = np.random.RandomState(0)
    temperature = np.array(temperature, np.float32)
    size = chunk or length

    def chosen(tokens, position, cache):
        row = random.uniform(1e-6, 1 - 1e-6, sizes.vocabulary).astype(np.float32)
        noise = np.ascontiguousarray(np.broadcast_to(row, (batch, sizes.vocabulary)))
        return choose(weights, tokens, cache, np.array(position), noise, temperature)

    for start in range(0, length, size):
        random.seed(0)
        token, cache = chosen(np.ascontiguousarray(prompt[:, start : start + size]), start, cache)
    found = [token]
    for position in range(length, length + count - 1):
        token, cache = chosen(token, position, cache)
        found.append(token)
    return np.concatenate(found, axis=1)


def load(path):
    """The characters, the sizes and the weights that train.py wrote."""
    with np.load(path) as archive:
        characters = str(archive["characters"])
        sizes = Sizes(len(characters))
        arrays = iter([archive[f"w{n}"] for n in range(len(archive.files) - 1)])
        weights = mapped(lambda _: next(arrays), initial_weights(sizes))
    return characters, sizes, weights


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weights", type=Path, default=Path("weights.npz"))
    parser.add_argument("--prompt", default="A compiled function ")
    parser.add_argument("--characters", type=int, default=220)
    parser.add_argument("--temperature", type=float, default=0.6)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--chunk", type=int)
    options = parser.parse_args()

    characters, sizes, weights = load(options.weights)
    tokens = np.array([characters.index(c) for c in options.prompt if c in characters])
    prompt = np.ascontiguousarray(np.broadcast_to(tokens, (options.batch, len(tokens))))
    choose = cvm.compile(chooser_of(sizes), donate_argnames="cache")
    arguments = choose, sizes, weights, prompt
    settings = {
        "capacity": len(tokens) + options.characters,
        "chunk": options.chunk,
        "temperature": options.temperature,
    }
    generated(*arguments, 2, **settings)  # compiles the step for the prompt and for a token
    began = time.perf_counter()
    found = generated(*arguments, options.characters, **settings)
    rate = found.size / (time.perf_counter() - began)
    print(options.prompt + "".join(characters[n] for n in found[0]))
    print(f"{rate:.0f} tokens a second")


if __name__ == "__main__":
    main()
