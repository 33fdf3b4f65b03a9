"""`cvm.dask.apply` against calls on whole arrays, bit for bit: chunks, workers and killed workers;
functions on other processes.
"""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from cvm.dialect.types.tensor_types import ELEMENT_TYPES
from hypothesis import given, strategies as st
from tiers import examples

import cvm
from cvm.transforms import traced_function

dask = pytest.importorskip("dask")
pytest.importorskip("distributed")
import dask.array as da  # noqa: E402

import cvm.dask  # noqa: E402
from cvm.dask import graph  # noqa: E402

ROOT = Path(__file__).parents[2]
R = np.random.default_rng(0)
F, W = (
    R.standard_normal((16, 20, 30)).astype(np.float32),
    R.standard_normal((30, 17)).astype(np.float32),
)
I, V = (F * 1000).astype(np.int32), (W * 1000).astype(np.int32)  # noqa: E741
MANY = R.standard_normal((640, 1000)).astype(np.float32)  # enough for sums in blocks
CHUNKS = [(4, 7, 30), (3, 5, 11), (16, 20, 30)]
FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "elementwise": (lambda x: np.abs(x * 2 + 1), (F,)),
    "stencil": (
        lambda x: x[:, 1:-1, 1:-1] * 4 - x[:, :-2, 1:-1] - x[:, 2:, 1:-1] - x[:, 1:-1, :-2],
        (F,),
    ),
    "edges": (
        lambda x: np.pad(x, ((0, 0), (1, 1), (2, 2)))[:, ::2] + np.roll(x, 3, 1)[:, :11, :1],
        (F,),
    ),
    "rows": (lambda x: (x - x.mean((1, 2), keepdims=True)) / x.std((1, 2), keepdims=True), (F,)),
    "columns": (lambda x: x - x.mean(0), (F,)),
    "order": (lambda x: (np.sort(x, -1), np.cumsum(x, 1), np.argmax(x, 1), np.median(x, 0)), (F,)),
    "integers": (lambda x: (x.sum((0, 2)), x.sum(), x.max(1), (x > 0).any(0), x.prod(2)), (I,)),
    "contraction": (lambda x, w: np.einsum("nij,jk->nik", x, w), (F, W)),
    "integer contraction": (lambda x, w: x @ w, (I, V)),
    "shapes": (
        lambda x: (
            x.reshape(16, 600)[::-1],
            np.concatenate([x, x[:, ::-1]], 2),
            x.T,
            np.repeat(x, 2, 1),
        ),
        (F,),
    ),
    "gather": (lambda x: x[:, np.array([3, 1, -1]), 2:9], (F,)),
    "loop": (lambda x: cvm.fori_loop(0, 5, lambda i, v: v * x + 1, x), (F,)),
    "slices": (lambda x: (x[:8] * 2, x[8:] * 2, x[:8, 0].sum(0), x[8:, 0].sum(0)), (F,)),
    "long sum": (lambda x: (x.mean(), np.sqrt((x * x).sum()) + x, x.sum(1)), (MANY,)),
    "long product": (lambda x: (x * 0.01 + 1).prod(), (MANY,)),
    "long maximum": (lambda x: (x.max(), x.min(0)), (np.where(MANY > 3, np.nan, MANY),)),
    "constant": (lambda x: np.arange(40.0) + x[0, 0, 0], (F,)),
}


def digest(found: Any) -> list[tuple[Any, ...]]:
    found = found if isinstance(found, tuple) else (found,)
    return [(np.asarray(x).dtype, np.shape(x), np.asarray(x).tobytes()) for x in found]


def on_chunks(f: Any, arrays: tuple[np.ndarray, ...], chunks: Any) -> Any:
    several = (
        tuple(n if k < len(chunks) else -1 for k, n in zip(range(a.ndim), chunks, strict=False))
        for a in arrays
    )
    return cvm.dask.apply(
        f, *(da.from_array(a, chunks=c) for a, c in zip(arrays, several, strict=True))
    )


def computed(found: Any, **options: Any) -> Any:
    return dask.compute(*found, **options) if isinstance(found, tuple) else found.compute(**options)


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_do_not_depend_on_chunks(name: str) -> None:
    function, arrays = FUNCTIONS[name]
    f = cvm.compile(function, rules="numpy")
    wanted = digest(f(*arrays))
    for chunks in CHUNKS:
        found = on_chunks(
            f, arrays, chunks if arrays[0].ndim == 3 else tuple(c * 20 for c in chunks[:2])
        )
        for array in found if isinstance(found, tuple) else (found,):  # before anything is computed
            assert (array.dtype, array.shape) in [w[:2] for w in wanted]
        assert digest(computed(found, scheduler="sync")) == wanted, chunks


STEPS: dict[str, Callable[[Any], Any]] = {
    "abs": abs,
    "scale": lambda x: x * 3 + 1,
    "shift": lambda x: x[1:, :-1] - x[:-1, 1:],
    "stencil": lambda x: np.pad(x, 1)[:-2, 1:-1] + x * 2 + np.pad(x, 1)[2:, 1:-1],
    "sum": lambda x: x - x.sum(0),
    "all": lambda x: x + x.sum(),
    "max": lambda x: x - x.max(1, keepdims=True),
    "matmul": lambda x: x @ x.T,
    "roll": lambda x: np.roll(x, 2, 0),
    "transpose": lambda x: x.T,
    "sort": lambda x: np.sort(x, 0),
}


@examples(60, 6)
@given(
    st.lists(st.sampled_from([*STEPS]), min_size=1, max_size=4),
    st.tuples(*[st.integers(5, 40)] * 2),
    st.tuples(*[st.integers(1, 40)] * 2),
    st.sampled_from([np.float32, np.float64, np.int32]),
    st.integers(0, 99),
)
def test_random_programs(
    steps: list[str], shape: tuple[int, int], chunks: tuple[int, int], dtype: Any, seed: int
) -> None:
    def program(x: Any) -> Any:
        for step in steps:
            x = STEPS[step](x)
        return x

    f = cvm.compile(program, rules="numpy")
    x = (np.random.default_rng(seed).standard_normal(shape) * 10).astype(dtype)
    assert digest(on_chunks(f, (x,), chunks).compute(scheduler="sync")) == digest(f(x))


CONVOLUTION = """
func @convolution(%x: tensor<?N x 8 x ?H x 32 x i32> {range = [-127, 127]}, %w: tensor<16x8x3x3xi32>) {
  %sum = cvm.conv2d %x, %w {padding = [1, 1], stride = [2, 2]}
  %y = cvm.cvm_right_shift %sum {precision = 8, shift_bit = 9}
  return %sum, %y
}
"""


def test_a_program_with_declared_ranges() -> None:
    f = cvm.compile(CONVOLUTION, entry="convolution")
    x, w = (
        R.integers(-127, 128, (4, 8, 32, 32), np.int32),
        R.integers(-127, 128, (16, 8, 3, 3), np.int32),
    )
    found = cvm.dask.apply(f, da.from_array(x, chunks=(2, 3, 9, 10)), w=da.from_array(w, chunks=5))
    assert digest(computed(found)) == digest(f(x, w))
    own = [
        name
        for name in found[0].dask.layers
        if "array" not in name and "checked" not in name and "rechunk" not in name
    ]
    assert own and all(
        name.startswith("convolution-") for name in own
    )  # as Dask's dashboard shows them
    x[3, 7, 31, 31] = 128
    with pytest.raises(
        cvm.CallError, match=r"argument %x: expected values from -127 to 127, got 128"
    ):
        computed(cvm.dask.apply(f, da.from_array(x, chunks=(2, 3, 9, 10)), w))


def test_structures_and_numbers_as_arguments() -> None:
    f = cvm.compile(
        lambda a, scale, mode: {"y": a["x"] * scale, "sum": a["x"].sum()}, rules="numpy"
    )
    found = cvm.dask.apply(f, {"x": da.from_array(I, chunks=7)}, 3, mode="fast")
    wanted = f({"x": I}, 3, mode="fast")
    assert {k: digest(v.compute()) for k, v in found.items()} == {
        k: digest(v) for k, v in wanted.items()
    }


def test_halos_are_what_a_stencil_reads() -> None:
    f = cvm.compile(lambda x: x[:, 1:-1] + x[:, 2:] - x[:, :-2], rules="numpy")
    found = on_chunks(f, (F,), (16, 10, 30))
    taken = {key[-1] for key in found.dask if isinstance(key, tuple) and "-halo-" in key[0]}
    rest = "slice(0, 16, None), slice({}, None), slice(0, 30, None)"
    assert taken == {f"({rest.format(row)})" for row in ("0, 1", "9, 10")}  # a row of each neighbor
    assert found.chunks == ((16,), (9, 9), (30,))


@pytest.mark.parametrize("array", [MANY, (MANY[:, :999] * 1000).astype(np.int32)])
def test_reductions_are_split(array: np.ndarray) -> None:
    """No task but the last reads more than the chunks that its blocks meet."""
    found = cvm.dask.apply(
        cvm.compile(lambda x: x.sum(), rules="numpy"), da.from_array(array, chunks=(40, -1))
    )
    reads = sorted(
        len(getattr(t, "dependencies", ()))
        for k, t in dict(found.__dask_graph__()).items()
        if "rechunk" not in str(k)
    )
    assert len(reads) > 16 and reads[-1] <= 4


def test_programs_are_few_and_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    f = cvm.compile(FUNCTIONS["stencil"][0], rules="numpy")
    x = np.zeros((40, 50, 60), np.float32)
    found = cvm.dask.apply(f, da.from_array(x, chunks=(4, 10, 15)))
    programs = [k for k in found.dask if isinstance(k, str) and "-program-" in k]
    assert 2 <= len(programs) <= 9  # by the edges that blocks are at
    made: list[str] = []
    compiled = graph.compiled
    monkeypatch.setattr(
        graph, "compiled", lambda plan, options: made.append(plan.name) or compiled(plan, options)
    )
    with ThreadPoolExecutor(4) as pool:
        found.compute(pool=pool)
    assert len(made) == len(programs)


def test_mistakes() -> None:
    f = cvm.compile(CONVOLUTION, entry="convolution")
    x, w = da.zeros((4, 8, 32, 32), dtype=np.int32), da.zeros((16, 8, 3, 3), dtype=np.int32)
    unknown = da.ones(10)[da.ones(10) > 0]
    with pytest.raises(cvm.CallError, match=r"known sizes.*compute_chunk_sizes"):
        cvm.dask.apply(cvm.compile(lambda x: x, rules="numpy"), unknown)
    for arrays, said in (
        ((x,), "takes 2 arguments, got 1"),
        ((x.astype(float), w), "argument %x: expected"),
        ((w, w), "32"),
    ):
        with pytest.raises(cvm.Error, match=said):
            cvm.dask.apply(f, *arrays)
    clocked = (
        'graph @main {\n %n = cog.field "n" init dense<0.0> : !cog.field<[], f32>\n'
        " cog.feedback %n, %n\n}"
    )
    for other in (
        len,
        cvm.compile(clocked),
        cvm.compile(CONVOLUTION, entry="convolution", target="reference"),
    ):
        with pytest.raises(
            cvm.CallError, match="expected a function of a program, compiled for the target cpu"
        ):
            cvm.dask.apply(other, x, w)


@pytest.mark.parametrize(("name", "package"), [("complex<f32>", "numpy"), ("bf16", "ml_dtypes")])
def test_element_types_that_blocks_do_not_have(name: str, package: str) -> None:
    pytest.importorskip(package)
    text = (
        f"func @twice(%x: tensor<4x{name}>) {{\n"
        f'%y = theano.elemwise %x, %x {{scalar_op = "add"}}\nreturn %y\n}}'
    )
    twice = cvm.compile(text, entry="twice")
    x = da.from_array(np.zeros(4, ELEMENT_TYPES[name].dtype), chunks=2)
    said = re.escape(f"blocks hold integers, truth values, f16, f32 and f64; @twice has {name}")
    with pytest.raises(cvm.CallError, match=said):
        cvm.dask.apply(twice, x)


def test_to_zarr(tmp_path: Path) -> None:
    zarr: Any = pytest.importorskip("zarr")
    f = cvm.compile(FUNCTIONS["stencil"][0], rules="numpy")
    found = on_chunks(f, (F,), (4, 9, 30))
    found.rechunk((4, 9, 28)).to_zarr(str(tmp_path / "y.zarr"))
    assert digest(zarr.open(str(tmp_path / "y.zarr"))[:]) == digest(f(F))


def test_a_progress_bar() -> None:
    progress: Any = pytest.importorskip("tqdm.dask")
    f = cvm.compile(lambda x: x + 1, rules="numpy")
    with progress.TqdmCallback(desc="blocks", file=open(os.devnull, "w"), leave=False) as bar:
        on_chunks(f, (F,), (4, 7, 30)).compute(scheduler="sync")
    assert bar.pbar.n == bar.pbar.total > 12


@pytest.mark.slow
def test_workers_and_a_killed_one(tmp_path: Path) -> None:
    from distributed import Client, LocalCluster

    names = ("rows", "order", "integers", "integer contraction", "long sum")
    functions = {n: cvm.compile(FUNCTIONS[n][0], rules="numpy") for n in names}
    wanted = {n: digest(functions[n](*FUNCTIONS[n][1])) for n in names}
    for workers in (2, 8):
        options: dict[str, Any] = {
            "processes": workers == 2,
            "threads_per_worker": 1,
            "dashboard_address": None,
        }
        with LocalCluster(n_workers=workers, **options) as cluster, Client(cluster) as client:
            assert len(cluster.workers) == workers
            for n in names:
                chunks = (3, 5, 11) if n != "long sum" else (60, 170)
                found = on_chunks(functions[n], FUNCTIONS[n][1], chunks)
                answer = client.gather(client.compute(found))
                assert digest(tuple(answer) if isinstance(found, tuple) else answer) == wanted[n]
            if workers == 2:
                killed(client, functions["rows"], wanted["rows"], tmp_path)


def killed(client: Any, f: Any, wanted: Any, folder: Path) -> None:
    """A worker is killed when it has computed some blocks, for which the others wait."""
    x = da.from_array(F, chunks=(2, 5, 10)).map_blocks(held, folder, dtype=F.dtype)
    future = client.compute(cvm.dask.apply(f, x))
    done = lambda dask_scheduler: sum(t.state == "memory" for t in dask_scheduler.tasks.values())  # noqa: E731
    while client.run_on_scheduler(done) < 4:
        assert not future.done()
        time.sleep(0.05)
    pids = client.run(os.getpid)
    os.kill(next(iter(pids.values())), 9)
    (folder / "killed").touch()
    assert digest(future.result()) == wanted
    assert set(client.run(os.getpid).values()) != set(pids.values())


def held(block: np.ndarray, folder: Path) -> np.ndarray:
    """The block; all but the first few wait for the kill."""
    (folder / uuid4().hex).touch()
    while len(os.listdir(folder)) > 8 and not (folder / "killed").exists():
        time.sleep(0.02)
    return block


MAIN = """
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
import joblib
import numpy as np
import cvm

@cvm.compile(rules="numpy")
def scaled(x):
    return x * 2 + OFFSET

OFFSET = 3
text = cvm.compile("func @main(%x: tensor<?N x i64>) { %y = theano.elemwise %x, %x {scalar_op = \\"add\\"} return %y }")

if __name__ == "__main__":
    x = np.arange(3)
    nested = cvm.compile(lambda x: x - 1, rules="numpy")
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        print([pool.submit(f, x).result().tolist() for f in (scaled, text)])
    print([y.tolist() for y in joblib.Parallel(2)(joblib.delayed(f)(x) for f in (scaled, text, nested))])
"""


@pytest.mark.slow
def test_functions_of_the_main_module_on_other_processes(tmp_path: Path) -> None:
    pytest.importorskip("joblib")
    (tmp_path / "main.py").write_text(MAIN, "utf-8")
    where = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        [sys.executable, "main.py"],
        cwd=tmp_path,
        env=where,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.stdout == "[[3, 5, 7], [0, 2, 4]]\n[[3, 5, 7], [0, 2, 4], [-1, 0, 1]]\n", run.stderr


def test_a_pickled_function_of_the_main_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its code where a pickler of code is loaded, and by its name where the main module has
    it.
    """
    cloudpickle: Any = pytest.importorskip("cloudpickle")
    main = sys.modules["__main__"]
    f = cvm.compile(eval("lambda x: x + 1", {"__name__": "__main__"}), rules="numpy")
    f.function.__module__, f.function.__qualname__ = "__main__", "pickled_here"
    monkeypatch.setattr(main, "pickled_here", f, raising=False)
    data = cloudpickle.dumps(f)
    assert pickle.loads(data) is f
    monkeypatch.delattr(main, "pickled_here")
    traced_function._of_main.cache_clear()
    other = pickle.loads(data)
    assert other is not f and other(np.arange(3)).tolist() == [1, 2, 3]


@pytest.mark.slow
def test_the_cluster_of_the_page(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "scale.md").read_text("utf-8")
    _, _, rest = page.partition('```python title="cluster.py"\n')
    (tmp_path / "cluster.py").write_text(rest.partition("```")[0], "utf-8")
    where = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        [sys.executable, "cluster.py"],
        cwd=tmp_path,
        env=where,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.stdout == "320000\n" and "It prints 320000." in rest, run.stderr
