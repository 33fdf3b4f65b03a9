"""The language model of examples/language_model: training has one digest, and tokens depend neither
on the batch, threads, processor nor the division of the prompt.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import cvm

FOLDER = Path(__file__).parents[2] / "examples" / "language_model"
SMALL = {"vocabulary": 20, "width": 32, "layers": 1, "heads": 4, "groups": 2, "hidden": 48}
TRAINED = "7aefcc41a6c46b19"
TRAINED_WHOLE = "e83a256888421aaf"
STEPS = 3
PROMPT = np.array([3, 1, 4, 1, 5, 9, 2, 6])


@pytest.fixture(scope="module")
def parts() -> Iterator[dict[str, ModuleType]]:
    sys.path.insert(0, str(FOLDER))
    try:
        yield {name: import_module(name) for name in ("model", "train", "generate")}
    finally:
        sys.path.remove(str(FOLDER))
        for name in ("model", "train", "generate"):
            sys.modules.pop(name, None)


@pytest.fixture
def threads() -> Iterator[None]:
    before = cvm.get_num_threads()
    yield
    cvm.set_num_threads(before)


def trained(parts: dict[str, ModuleType], sizes: Any, length: int = 12, **options: Any) -> str:
    """The digest of the weights after a few steps on a made-up text."""
    model, train = parts["model"], parts["train"]
    step = cvm.compile(model.training_step_of(sizes), donate_argnames="state", **options)
    text = np.arange(997) ** 2 // 7 % sizes.vocabulary
    state = train.train(step, model.initial_state(sizes), text, STEPS, 4, length)
    return train.digest(state["weights"])[:16]


@pytest.mark.parametrize("cpu", [None, "x86-64-v2"])
def test_training_has_one_digest(parts: dict[str, ModuleType], threads: None, cpu: Any) -> None:
    cvm.set_num_threads(1 if cpu else 2)
    assert trained(parts, parts["model"].Sizes(**SMALL), cpu=cpu) == TRAINED


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{"cpu": "x86-64-v3"}, {"cpu": "x86-64"}, {"target": "cuda-sim"}], ids=str
)
def test_training_has_one_digest_elsewhere(parts: dict[str, ModuleType], options: Any) -> None:
    assert trained(parts, parts["model"].Sizes(**SMALL), **options) == TRAINED


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2, 3])
def test_training_of_the_whole_model(
    parts: dict[str, ModuleType], threads: None, count: int
) -> None:
    cvm.set_num_threads(count)
    assert trained(parts, parts["model"].Sizes(96), length=64) == TRAINED_WHOLE


def test_tokens_do_not_depend_on_batch_threads_processor_and_chunks(
    parts: dict[str, ModuleType], threads: None
) -> None:
    model = parts["model"]
    sizes = model.Sizes(**SMALL)
    weights = model.initial_weights(sizes, seed=5)
    here, elsewhere = (
        cvm.compile(model.chooser_of(sizes), donate_argnames="cache", cpu=cpu)
        for cpu in (None, "x86-64-v2")
    )

    def tokens(prompt: np.ndarray, chunk: int | None = None, choose: Any = here) -> np.ndarray:
        settings = {"capacity": 24, "chunk": chunk, "temperature": 0.7}
        return parts["generate"].generated(choose, sizes, weights, prompt, 12, **settings)

    wanted = tokens(PROMPT[None])
    assert len(set(wanted[0].tolist())) > 4
    prompts = np.stack([PROMPT, PROMPT[::-1], PROMPT, (PROMPT * 3) % 20])
    found = tokens(prompts)
    np.testing.assert_array_equal(found[[0, 2]], wanted[[0, 0]])
    assert not np.array_equal(found[1], found[0])
    for chunk in (4, 1):
        np.testing.assert_array_equal(tokens(PROMPT[None], chunk), wanted)
    np.testing.assert_array_equal(tokens(PROMPT[None], choose=elsewhere), wanted)
    cvm.set_num_threads(1)
    np.testing.assert_array_equal(tokens(prompts, 1), found)


def test_logits_have_the_same_bits_in_chunks(parts: dict[str, ModuleType]) -> None:
    """Even those of a token in the middle, and the cache."""
    model = parts["model"]
    sizes = model.Sizes(**SMALL)
    f = cvm.compile(model.decoder_of(sizes), donate_argnames="cache")
    weights = model.initial_weights(sizes)
    whole, cache = f(weights, PROMPT[None], model.empty_cache(sizes, 1, 40), np.array(0))
    in_chunks, chunked = [], model.empty_cache(sizes, 1, 40)
    for start, end in ((0, 1), (1, 8)):
        tokens = np.ascontiguousarray(PROMPT[None, start:end])
        logits, chunked = f(weights, tokens, chunked, np.array(start))
        in_chunks.append(logits)
    np.testing.assert_array_equal(np.concatenate(in_chunks, axis=1), whole)
    for one, other in zip(chunked, cache, strict=True):
        np.testing.assert_array_equal(one["keys"], other["keys"])
        np.testing.assert_array_equal(one["values"], other["values"])


def test_a_step_does_not_copy_the_cache(parts: dict[str, ModuleType]) -> None:
    """The bytes that a step writes do not grow with the capacity, but for the scores."""
    model = parts["model"]
    sizes = model.Sizes(**SMALL)
    written = []
    for capacity in (64, 128):
        f = cvm.compile(model.decoder_of(sizes), donate_argnames="cache")
        cache = model.empty_cache(sizes, 1, capacity)
        f.trace(model.initial_weights(sizes), PROMPT[None, :1], cache, np.array(0))
        written.append(f.cost().bytes_written)
    of_cache = 64 * 2 * sizes.groups * sizes.per_head * sizes.layers * 4
    assert written[1] - written[0] < of_cache


def test_the_loss_is_that_of_the_decoder(parts: dict[str, ModuleType]) -> None:
    """Training and generation run the same layers: the loss of one token after another."""
    model = parts["model"]
    sizes = model.Sizes(**SMALL)
    weights = model.initial_weights(sizes)
    loss = cvm.compile(model.loss_of(sizes))(weights, PROMPT[None])
    f = cvm.compile(model.decoder_of(sizes))
    logits, _ = f(weights, PROMPT[None, :-1], model.empty_cache(sizes, 1, 20), np.array(0))
    logits = logits[0].astype(np.float64)
    wanted = np.log(np.exp(logits).sum(-1)) - logits[np.arange(7), PROMPT[1:]]
    assert abs(loss - wanted.mean()) < 1e-5


@pytest.mark.slow
def test_the_commands(tmp_path: Path) -> None:
    """Those of the README, for a few steps and characters."""
    weights = f"--weights={tmp_path / 'weights.npz'}"

    def output(name: str, *options: str) -> str:
        command = [sys.executable, str(FOLDER / name), weights, *options]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    assert "digest of the weights" in output("train.py", "--steps=2")
    texts = [
        output("generate.py", "--prompt", "A loop ", "--characters=20", *options)
        for options in ([], ["--chunk=2"], ["--batch=2"])
    ]
    assert all(t.startswith("A loop ") for t in texts)
    assert len({t.rpartition("\n")[0].rpartition("\n")[0] for t in texts}) == 1
