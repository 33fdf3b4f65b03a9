"""A step of one token of the decoder in examples/language_model, on one thread: ours with the cache
as donated arguments, onnxruntime with GroupQueryAttention and a cache bound as input and output,
PyTorch with scaled_dot_product_attention over the tokens so far.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from side_by_side import Case, installed

import cvm

FOLDER = Path(__file__).parents[1] / "examples" / "language_model"


def examples() -> Any:
    """The example's model.py."""
    sys.path.insert(0, str(FOLDER))
    try:
        import model
    finally:
        sys.path.remove(str(FOLDER))
    return model


def onnx_model(sizes: Any, weights: Any, capacity: int, cosines: Any, sines: Any) -> bytes:
    """The decoder by onnxruntime's own operators."""
    onnx: Any = installed("onnx")
    helper, array = onnx.helper, onnx.numpy_helper.from_array
    nodes: list[Any] = []
    constants = [array(cosines, "cos"), array(sines, "sin")]

    def constant(name: str, value: np.ndarray) -> str:
        constants.append(array(value, name))
        return name

    def node(op: str, inputs: list[str], outputs: list[str], domain: str = "", **more: Any) -> str:
        nodes.append(helper.make_node(op, inputs, outputs, domain=domain, **more))
        return outputs[0]

    def norm(x: str, name: str, scale: np.ndarray) -> str:
        inputs = [x, constant(f"{name}.scale", scale)]
        return node("SimplifiedLayerNormalization", inputs, [name], axis=-1, epsilon=1e-5)

    x = node("Gather", [constant("embedding", weights["embedding"]), "tokens"], ["x"])
    kept = []
    for n, w in enumerate(weights["layers"]):
        h = norm(x, f"a{n}", w["attention_norm"])
        h = node("MatMul", [h, constant(f"qkv{n}", w["query_key_value"])], [f"h{n}"])
        cache = [f"keys{n}", f"values{n}"]
        kept += cache
        attended = node(
            "GroupQueryAttention",
            [h, "", "", *cache, "last", "total", "cos", "sin"],
            [f"attended{n}", *(f"new.{c}" for c in cache)],
            "com.microsoft",
            num_heads=sizes.heads,
            kv_num_heads=sizes.groups,
            do_rotary=1,
        )
        o = node("MatMul", [attended, constant(f"output{n}", w["output"])], [f"o{n}"])
        x = node("Add", [x, o], [f"x{n}"])
        h = norm(x, f"f{n}", w["feed_forward_norm"])
        h = node("MatMul", [h, constant(f"gate_up{n}", w["gate_up"])], [f"g{n}"])
        halves = constant(f"halves{n}", np.array([sizes.hidden] * 2))
        node("Split", [h, halves], [f"gate{n}", f"up{n}"], axis=-1)
        s = node("Sigmoid", [f"gate{n}"], [f"s{n}"])
        s = node("Mul", [f"gate{n}", s], [f"silu{n}"])
        s = node("Mul", [s, f"up{n}"], [f"swiglu{n}"])
        d = node("MatMul", [s, constant(f"down{n}", w["down"])], [f"d{n}"])
        x = node("Add", [x, d], [f"y{n}"])
    h = norm(x, "final", weights["norm"])
    node("MatMul", [h, constant("head", weights["head"])], ["logits"])
    value = helper.make_tensor_value_info
    shape = 1, sizes.groups, capacity, sizes.per_head
    inputs = [value("tokens", 7, (1, 1)), value("last", 6, (1,)), value("total", 6, (1,))]
    outputs = [value("logits", 1, (1, 1, sizes.vocabulary))]
    graph = helper.make_graph(
        nodes,
        "decoder",
        [*inputs, *(value(k, 1, shape) for k in kept)],
        [*outputs, *(value(f"new.{k}", 1, shape) for k in kept)],
        constants,
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def on_onnxruntime(sizes: Any, weights: Any, cache: Any, rotation: Any, position: int) -> Any:
    ort: Any = installed("onnxruntime")
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    capacity = cache[0]["keys"].shape[2]
    proto = onnx_model(sizes, weights, capacity, *rotation)
    session = ort.InferenceSession(proto, options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    given = {
        "tokens": np.array([[3]]),
        "last": np.array([position], np.int32),
        "total": np.array([position + 1], np.int32),
    }
    kept = []
    for n, layer in enumerate(cache):
        for name in ("keys", "values"):
            kept.append(ort.OrtValue.ortvalue_from_numpy(layer[name].copy()))
            binding.bind_ortvalue_input(f"{name}{n}", kept[-1])
            binding.bind_ortvalue_output(f"new.{name}{n}", kept[-1])
    for name, array in given.items():
        binding.bind_cpu_input(name, array)
    binding.bind_output("logits")

    def run() -> np.ndarray:
        session.run_with_iobinding(binding)
        return binding.get_outputs()[-1].numpy()  # in the order in which they were bound

    return run


def on_torch(sizes: Any, weights: Any, cache: Any, rotation: Any, position: int) -> Any:
    torch: Any = installed("torch")
    torch.set_num_threads(1)
    f = torch.nn.functional
    model = examples()
    w = model.mapped(torch.from_numpy, weights)
    kept = [{k: torch.from_numpy(a.copy()) for k, a in layer.items()} for layer in cache]
    cos, sin = (torch.from_numpy(a[position]) for a in rotation)
    token = torch.tensor([[3]])

    def rotated(x: Any) -> Any:
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def run() -> Any:
        with torch.inference_mode():
            x = w["embedding"][token]
            for layer, own in zip(w["layers"], kept, strict=True):
                h = f.rms_norm(x, (sizes.width,), layer["attention_norm"], 1e-5)
                h = (h @ layer["query_key_value"]).view(1, 1, -1, sizes.per_head).transpose(1, 2)
                q, k, v = h.split((sizes.heads, sizes.groups, sizes.groups), 1)
                own["keys"][:, :, position] = rotated(k)[:, :, 0]
                own["values"][:, :, position] = v[:, :, 0]
                seen = (own[n][:, :, : position + 1] for n in ("keys", "values"))
                h = f.scaled_dot_product_attention(rotated(q), *seen, enable_gqa=True)
                x = x + h.transpose(1, 2).reshape(1, 1, -1) @ layer["output"]
                h = f.rms_norm(x, (sizes.width,), layer["feed_forward_norm"], 1e-5)
                gate, up = (h @ layer["gate_up"]).chunk(2, -1)
                x = x + (f.silu(gate) * up) @ layer["down"]
            return f.rms_norm(x, (sizes.width,), w["norm"], 1e-5) @ w["head"]

    return run


def step(width: int, layers: int, heads: int, hidden: int, capacity: int, position: int) -> Case:
    """A step at a position, whose token is stored there at each call."""
    model = examples()
    sizes = model.Sizes(96, width, layers, heads, max(1, heads // 2), hidden)
    weights = model.initial_weights(sizes)
    random = np.random.default_rng(0)
    cache = model.mapped(
        lambda a: random.standard_normal(a.shape).astype(np.float32),
        model.empty_cache(sizes, 1, capacity),
    )
    half = sizes.per_head // 2
    angles = np.arange(capacity)[:, None] * 10000.0 ** (-np.arange(half) / half)
    rotation = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    peers = {"onnxruntime": on_onnxruntime, "torch": on_torch}
    found: dict[str, Any] = {}
    f = cvm.compile(model.decoder_of(sizes), donate_argnames="cache")
    own, token, place = model.mapped(np.copy, cache), np.array([[3]]), np.array(position)
    found["cvm"] = lambda: f(weights, token, own, place)[0]
    for name, made in peers.items():
        if installed(name):
            found[name] = made(sizes, weights, cache, rotation, position)
    return Case(found, tolerance=1e-4, before={"cvm": lambda: cvm.set_num_threads(1)})


WORK = {
    f"width {w}, {layers} layers, token {p:,} of {c:,}": (
        lambda w=w, layers=layers, h=h, hidden=hidden, c=c, p=p: step(w, layers, h, hidden, c, p)
    )
    for w, layers, h, hidden in ((128, 4, 4, 352), (512, 4, 8, 1408), (1024, 2, 16, 2816))
    for c, p in ((256, 200), (1024, 1000))
}
