"""Trains a character model on the project's documents; each step is one compiled program.

python examples/language_model/train.py [--steps 1000] [--weights weights.npz] [--threads 2]

It prints a digest of the weights at the end, which is the same on every machine, for any number of
threads.
"""

import argparse
import hashlib
import time
from pathlib import Path

import numpy as np
from model import Sizes, initial_state, mapped, training_step_of

import cvm

DOCUMENTS = Path(__file__).parents[2] / "docs"


def text_of(folder):
    """The characters of a folder's pages, those that are not ASCII left out."""
    pages = sorted(folder.glob("*.md"))
    return "\n".join(p.read_text("utf-8") for p in pages).encode("ascii", "ignore").decode()


def digest(tree):
    """The SHA-256 of all arrays of nested dictionaries and lists, in their order."""
    found = hashlib.sha256()
    mapped(lambda a: found.update(np.ascontiguousarray(a).tobytes()), tree)
    return found.hexdigest()


def train(step, state, tokens, steps, batch, length, rate=0.002, report=None):
    """The state after steps on random stretches of the text; the rate of learning rises for 50
    steps, and falls linearly.
    """
    random = np.random.RandomState(0)
    for n in range(1, steps + 1):
        starts = random.randint(0, len(tokens) - length - 1, batch)
        text = tokens[starts[:, None] + np.arange(length + 1)]
        now = rate * min(n / 50, 1.0, (steps + 1 - n) / steps)
        loss, state = step(state, text, np.array(now, np.float32), np.array(n, np.float32))
        if report is not None:
            report(n, float(loss))
    return state


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--weights", type=Path, default=Path("weights.npz"))
    options = parser.parse_args()
    if options.threads is not None:
        cvm.set_num_threads(options.threads)

    text = text_of(DOCUMENTS)
    characters = "".join(sorted(set(text)))
    tokens = np.array([characters.index(c) for c in text])
    sizes = Sizes(len(characters))
    step = cvm.compile(training_step_of(sizes), donate_argnames="state")
    began = time.perf_counter()

    def report(n, loss):
        if n == 1 or n % 100 == 0:
            print(f"step {n:5}: loss {loss:.3f}, {time.perf_counter() - began:.1f} s", flush=True)

    state = train(
        step, initial_state(sizes), tokens, options.steps, options.batch, options.length,
        report=report,
    )  # fmt: skip
    print(f"{len(text)} characters; digest of the weights {digest(state['weights'])[:16]}")
    arrays = []
    mapped(arrays.append, state["weights"])
    named = {f"w{n}": a for n, a in enumerate(arrays)}
    np.savez(options.weights, characters=np.array(characters), **named)


if __name__ == "__main__":
    main()
