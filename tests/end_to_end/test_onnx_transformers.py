"""onnxruntime's operators of language models agree with onnxruntime, over their attributes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import cvm

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
helper, numpy_helper = onnx.helper, onnx.numpy_helper
RANDOM = np.random.default_rng(0)
BOUND = 2e-5  # of the largest output


def floats(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def model_of(
    op: str,
    inputs: Sequence[np.ndarray | None],
    outputs: Sequence[str],
    attributes: dict[str, Any],
    constants: Sequence[int] = (),
    open_axes: dict[int, dict[int, str]] | None = None,
    domain: str = "com.microsoft",
) -> tuple[Any, dict[str, np.ndarray]]:
    """A model of one node, and what it is fed with."""
    names = [f"x{n}" if x is not None else "" for n, x in enumerate(inputs)]
    node = helper.make_node(op, names, outputs, domain=domain, **attributes)
    given, stored, fed = [], [], {}
    for n, (name, x) in enumerate(zip(names, inputs, strict=True)):
        if x is None:
            continue
        if n in constants:
            stored.append(numpy_helper.from_array(x, name))
            continue
        axes = (open_axes or {}).get(n, {})
        shape = [axes.get(a, size) for a, size in enumerate(x.shape)]
        type_ = helper.np_dtype_to_tensor_dtype(x.dtype)
        given.append(helper.make_tensor_value_info(name, type_, shape))
        fed[name] = x
    results = [helper.make_tensor_value_info(o, 1, None) for o in outputs if o]
    graph = helper.make_graph([node], "g", given, results, stored)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9), fed


def check(*args: Any, bound: float = BOUND, **how: Any) -> None:
    model, fed = model_of(*args, **how)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    wanted = session.run(None, fed)
    got = cvm.compile(cvm.from_onnx(model))(*fed.values())
    got = got if isinstance(got, (list, tuple)) else [got]
    for g, w in zip(got, wanted, strict=True):
        assert g.shape == w.shape and g.dtype == w.dtype
        assert np.abs(g - w).max(initial=0) <= bound * np.abs(w).max(initial=1e-30)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shift", [False, True])
@pytest.mark.parametrize("skip", [(2, 3, 8), (1, 3, 8), (3, 8)])
def test_skip_layer_normalization(skip: tuple[int, ...], shift: bool, bias: bool) -> None:
    inputs = [floats(2, 3, 8), floats(*skip), floats(8)]
    more = [floats(8) if shift else None, floats(8) if bias else None]
    check("SkipLayerNormalization", [*inputs, *more], ["y", "", "", "sum"], {"epsilon": 1e-5})
    check(
        "SkipSimplifiedLayerNormalization",
        [*inputs, *more[1:]],
        ["y", "", "", "sum"],
        {"epsilon": 1e-5},
    )


def test_simplified_layer_normalization() -> None:
    for axis in (-1, 1):
        inputs = [floats(2, 3, 8), floats(*((8,) if axis == -1 else (3, 8)))]
        how: Any = {"axis": axis, "epsilon": 1e-6, "stash_type": 1}
        check("SimplifiedLayerNormalization", inputs, ["y"], how, domain="")


@pytest.mark.parametrize("op", ["BiasGelu", "FastGelu", "Gelu", "QuickGelu"])
def test_functions_of_elements(op: str) -> None:
    inputs = [floats(2, 3, 8), *([floats(8)] if op in ("BiasGelu", "FastGelu") else [])]
    check(op, inputs, ["y"], {"alpha": 1.5} if op == "QuickGelu" else {})


@pytest.mark.parametrize("turned", [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_fused_matmul(turned: tuple[int, int]) -> None:
    a, b = floats(2, 4, 5), floats(2, 5, 3)
    inputs = [x.swapaxes(1, 2).copy() if t else x for x, t in zip((a, b), turned, strict=True)]
    how: Any = {"alpha": 0.5, "transA": turned[0], "transB": turned[1]}
    check("FusedMatMul", inputs, ["y"], how)


@pytest.mark.parametrize("zeros", ["none", "packed", "floats"])
@pytest.mark.parametrize("k", [64, 80])
@pytest.mark.parametrize("block", [16, 32])
@pytest.mark.parametrize("bits", [4, 8])
def test_products_by_weights_of_few_bits(bits: int, block: int, k: int, zeros: str) -> None:
    n, blocks = 6, -(-k // block)
    if bits == 8 and zeros == "floats":
        pytest.skip("onnxruntime has no such kernel")
    w = RANDOM.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8)
    scales = np.abs(floats(n * blocks)) / 8
    points = {
        "none": None,
        "packed": RANDOM.integers(0, 256, n * -(-blocks * bits // 8)).astype(np.uint8),
        "floats": RANDOM.integers(0, 16, n * blocks).astype(np.float32),
    }[zeros]
    how: Any = {"K": k, "N": n, "bits": bits, "block_size": block}
    inputs = [floats(3, k), w, scales, points]
    inputs = inputs[:3] if points is None else inputs
    check("MatMulNBits", inputs, ["y"], how, constants=[1, 2, 3])
    rows: Any = {0: {0: "rows"}}
    check("MatMulNBits", inputs, ["y"], how, constants=[1, 2, 3], open_axes=rows)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("form", ["heads", "rows", "part", "offset"])
def test_rotary_embedding(form: str, interleaved: int) -> None:
    half = 2 if form == "part" else 4
    tables = [floats(20, half), floats(20, half)]
    positions = RANDOM.integers(0, 20, (2, 3)).astype(np.int64)
    if form == "offset":
        positions = np.array([5], np.int64)
    x = floats(2, 5, 3, 8) if form == "heads" else floats(2, 3, 40)
    how: Any = {"interleaved": interleaved}
    if form == "part":
        how |= {"num_heads": 5, "rotary_embedding_dim": 4}
    check("RotaryEmbedding", [x, positions, *tables], ["y"], how)


@pytest.mark.parametrize("past", [0, 4])
@pytest.mark.parametrize("padding", ["none", "lengths", "mask"])
@pytest.mark.parametrize("more", [{}, {"unidirectional": 1}, {"scale": 0.3}])
def test_multi_head_attention(more: dict[str, Any], padding: str, past: int) -> None:
    heads, h, s = 3, 4, 5
    t = s + past
    q, k, v = (floats(2, s, heads * h) for _ in range(3))
    mask = {
        "none": None,
        "lengths": None if past else np.array([t, t - 2], np.int32),
        "mask": (RANDOM.random((2, t)) > 0.3).astype(np.int32),
    }[padding]
    added = floats(1, heads, s, t) if padding == "none" else None
    cache = [floats(2, heads, past, h) for _ in range(2)] if past else [None, None]
    inputs = [q, k, v, floats(3 * heads * h), mask, added, *cache]
    outputs = ["y", "k", "v"] if past else ["y"]
    check("MultiHeadAttention", inputs, outputs, {"num_heads": heads, **more})


def grouped(
    past: int, s: int, lengths: Sequence[int], more: dict[str, Any], packed: bool = False
) -> tuple[list[Any], dict[str, Any]]:
    heads, groups, h = 4, 2, 16
    batch = len(lengths)
    q, k, v = (floats(batch, s, n * h) for n in (heads, groups, groups))
    rows = [np.concatenate([q, k, v], 2), None, None] if packed else [q, k, v]
    cache = [floats(batch, groups, past, h) for _ in range(2)]
    ends = np.array([n - 1 for n in lengths], np.int32)
    total = np.array(max(lengths), np.int32)
    tables = [floats(32, 8), floats(32, 8)] if more.get("do_rotary") else [None, None]
    how = {"num_heads": heads, "kv_num_heads": groups, **more}
    return [*rows, *cache, ends, total, *tables], how


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"do_rotary": 1},
        {"do_rotary": 1, "rotary_interleaved": 1},
        {"local_window_size": 3},
        {"softcap": 2.0},
        {"scale": 0.5},
    ],
    ids=lambda more: "-".join(more) or "plain",
)
@pytest.mark.parametrize(
    ("past", "s", "lengths"),
    [(0, 5, (5, 5)), (6, 1, (7, 7)), (6, 1, (7, 4)), (9, 1, (6, 3)), (6, 3, (9,))],
)
def test_group_query_attention(
    past: int, s: int, lengths: tuple[int, ...], more: dict[str, Any], packed: bool
) -> None:
    inputs, how = grouped(past, s, lengths, more, packed)
    open_axes: Any = {} if past else {3: {2: "past"}, 4: {2: "past"}}
    model, fed = model_of("GroupQueryAttention", inputs, ["y", "k", "v"], how, (6, 7, 8), open_axes)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    wanted = session.run(None, fed)
    got = cvm.compile(cvm.from_onnx(model))(*fed.values())
    assert [g.shape for g in got] == [w.shape for w in wanted]
    assert np.abs(got[0] - wanted[0]).max() <= BOUND * np.abs(wanted[0]).max()
    for g, w in zip(got[1:], wanted[1:], strict=True):  # beyond a row's keys nothing is defined
        for row, n in enumerate(lengths):
            np.testing.assert_allclose(g[row, :, :n], w[row, :, :n], rtol=1e-5, atol=1e-5)


def test_steps_of_open_sizes() -> None:
    """A prompt and single tokens by one program, whose lengths come from a mask."""
    text = """<ir_version: 9, opset_import: ["" : 18, "com.microsoft" : 1]>
    g (float[b, s, 64] q, float[b, s, 32] k, float[b, s, 32] v, float[b, 2, p, 16] pk,
       float[b, 2, p, 16] pv, int64[b, t] mask, float[32, 8] cosines, float[32, 8] sines)
      => (float[b, s, 64] y, float[b, 2, t, 16] nk, float[b, 2, t, 16] nv)
      <int64[1] one = {1}> {
      sums = ReduceSum <keepdims = 0> (mask, one)
      less = Sub (sums, one)
      ends = Cast <to = 6> (less)
      sizes = Shape (mask)
      whole = Gather (sizes, one)
      total = Cast <to = 6> (whole)
      y, nk, nv = com.microsoft.GroupQueryAttention <num_heads = 4, kv_num_heads = 2,
        do_rotary = 1> (q, k, v, pk, pv, ends, total, cosines, sines)
    }"""
    model = onnx.parser.parse_model(text)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    f = cvm.compile(cvm.from_onnx(model))
    tables = {"cosines": floats(32, 8), "sines": floats(32, 8)}
    cache = [floats(2, 2, 0, 16), floats(2, 2, 0, 16)]
    for s in (5, 1, 1):
        past = cache[0].shape[2]
        fed = {"q": floats(2, s, 64), "k": floats(2, s, 32), "v": floats(2, s, 32)}
        fed |= {"pk": cache[0], "pv": cache[1], "mask": np.ones((2, past + s), np.int64), **tables}
        wanted, got = session.run(None, fed), f(*fed.values())
        for g, w in zip(got, wanted, strict=True):
            assert g.shape == w.shape
            np.testing.assert_allclose(g, w, rtol=1e-4, atol=1e-5)
        cache = list(got[1:])


@pytest.mark.parametrize(
    ("op", "inputs", "how", "said"),
    [
        ("MatMulNBits", [floats(1, 32), np.zeros((2, 1, 9), np.uint8), floats(2)],
         {"K": 32, "N": 2, "bits": 4, "block_size": 32}, "expected 2 x 1 blocks of 16 bytes"),
        ("MatMulNBits", [floats(1, 32), np.zeros((2, 1, 16), np.uint8), floats(2)],
         {"K": 32, "N": 2, "bits": 3, "block_size": 32}, "3 bits is not supported"),
        ("MultiHeadAttention", [floats(1, 2, 12)] * 3, {"num_heads": 5}, "rows of 12 in 5 heads"),
        ("RotaryEmbedding", [floats(1, 1, 2, 8), np.zeros((1, 2), np.int64), floats(4, 4), floats(4, 4)],
         {"scale": 2.0}, "a scale, or packed batches is not supported"),
    ],
)  # fmt: skip
def test_what_is_refused(op: str, inputs: list[Any], how: dict[str, Any], said: str) -> None:
    model, _ = model_of(op, inputs, ["y"], how, constants=[1, 2] if op == "MatMulNBits" else [])
    with pytest.raises(cvm.ParseError, match=said):
        cvm.from_onnx(model)
