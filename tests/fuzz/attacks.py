"""The attacks. Each has inputs to begin with, a mutation, and what has to hold of every input: a
result or a `cvm.Error`.
"""

from __future__ import annotations

import importlib.util
import io
import json
import random
import tempfile
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from textwrap import dedent

import numpy as np
from cvm.dialect.ir.module import Module
from cvm.dialect.spec.operator import OPERATORS
from cvm.dialect.types.tensor_types import TensorType
from cvm.jit.cache import disk_cache
from cvm.parser.format import format_text

import cvm
from cvm.importers.cvm_runtime import program_text, read_model
from cvm.terminal.arguments import load, random_arrays
from cvm.terminal.read_program import read_level
from cvm.terminal.usage import Usage

from . import array_graphs, quantized_networks, random_kernels, stablehlo_texts
from .mutate import mutate_bytes, mutate_text
from .mutate_arrays import change_entries, mutate_npy, mutate_npz, mutate_safetensors
from .mutate_models import TFLITE, TOSA, Format, mutate_flatbuffer, mutate_onnx

ROOT = Path(__file__).parents[2]
OPERATIONS = 40  # of a mutated program that is compiled and called
ELEMENTS = 1 << 16  # of an argument it is called with
BY_BYTES = 0.1  # of the mutants of models and arrays, which have a structure to mutate


Mutation = Callable[[bytes, random.Random], bytes]


@dataclass(frozen=True)
class Attack:
    """`run` raises where something does not hold; a `cvm.Error` inside is what users see, and
    holds.
    """

    run: Callable[[bytes], None]
    corpus: Callable[[], Sequence[bytes]]
    mutate: Mutation = mutate_bytes
    size: int = 1  # the number of programs in an input
    needs: str = ""  # packages without which the corpus is empty


@cache
def programs() -> list[bytes]:
    """The programs of the filetests and examples, without their expectations."""
    files = [*(ROOT / "tests" / "filetests").rglob("*.cvm"), *(ROOT / "examples").rglob("*.cvm")]
    texts = [p.read_bytes() for p in sorted(files)]
    return [
        b"".join(x for x in t.splitlines(True) if not x.startswith(b"//"))
        for t in texts
        if len(t) < 8000
    ]


def text(data: bytes) -> None:
    """Text is a module or mistakes with places in it; a module prints as text that parses to the
    same text.
    """
    module = read_level("fuzz.cvm", data)
    if not isinstance(module, Module):  # formulas or kernels
        return
    printed = str(module)
    assert str(cvm.parse(printed)) == printed
    format_text(data)
    for name, function in module.functions.items():
        types = [a.known_type for a in function.arguments]
        sizes = [
            int(np.prod([d for d in t.array_shape if isinstance(d, int)], dtype=object))
            for t in types
        ]
        if len(function.operations) <= OPERATIONS and max(sizes, default=0) <= ELEMENTS:
            cvm.compile(module, name, "reference").lower("formulas")


def mix(data: bytes, chance: random.Random) -> bytes:
    """Mutated tokens, some from another program."""
    return mutate_text(data, chance, chance.choice(programs()))


def arrays(name: str, data: bytes) -> None:
    """Constants come out of a file as declared, or the program is refused."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / name).write_bytes(data)
        for type, shape, dtype in (
            ("3xi32", (3,), np.int32),
            ("2x2xf64", (2, 2), np.float64),
            ("3xi1", (3,), bool),
        ):
            for key in ('"w"', '"v"', '"b"') if name.endswith("safetensors") else ('"w"',):
                text = (
                    f'func @main() {{ %c = const file("{name}", {key}) : tensor<{type}> return '
                    f"%c }}"
                )
                (Path(folder) / "p.cvm").write_text(text)
                with suppress(cvm.Error):
                    found = cvm.compile(cvm.load(Path(folder) / "p.cvm"), target="reference")()
                    assert (
                        isinstance(found, np.ndarray)
                        and found.shape == shape
                        and found.dtype == dtype
                    )
                    assert type != "3xi1" or found.view(np.uint8).max() <= 1
        with suppress(Usage):
            if name.endswith("npz"):
                load(str(Path(folder) / name))


def by_structure(mutate: Mutation) -> Mutation:
    """A mutation that leaves the structure alone in most mutants, and else one of bytes."""
    return lambda data, chance: (mutate_bytes if chance.random() < BY_BYTES else mutate)(
        data, chance
    )


def archives() -> list[bytes]:
    found = []
    for save in (np.savez, np.savez_compressed):
        for array in (np.arange(3, dtype=np.int32), np.zeros((2, 2)), np.array(["a"])):
            file = io.BytesIO()
            save(file, w=array)
            found.append(file.getvalue())
    return found


def cached(data: bytes) -> None:
    """A changed cache entry is not loaded, and what is compiled instead is right."""
    program = (
        "func @main(%x: tensor<4xi32>) -> tensor<4xi32> {\n  %y = dali.add %x, 1\n  return %y\n}\n"
    )
    folder = disk_cache.folder()
    assert folder is not None and str(folder).startswith(tempfile.gettempdir()), (
        "CVM_CACHE_DIR of the attack is not set"
    )
    cvm.compile(program)
    entries = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    for name, content in change_entries(entries, random.Random(data)).items():
        (folder / name).write_bytes(content)
    x = np.arange(4, dtype=np.int32)
    np.testing.assert_array_equal(cvm.compile(program)(x), x + 1)


def arguments(data: bytes) -> None:
    """Any arguments give the result or a CallError."""
    chance = random.Random(data)
    f = callee()
    given = [argument(chance) for _ in range(chance.choice((1, 2, 2, 2, 3)))]
    out = argument(chance) if chance.random() < 0.3 else None
    found = f(*given) if out is None else f(*given, out=out)
    x, y = (np.asarray(g).astype(np.int32) for g in given)
    np.testing.assert_array_equal(found, x * 2 + y)


@cache
def callee() -> Callable[..., object]:
    return cvm.compile(
        "func @main(%x: tensor<?N x 3 x i32> {range = [-9, 9]}, %y: tensor<?N x 3 x i32>) "
        "-> tensor<?N x 3 x i32> {\n"
        "  %z = dali.expr(%x * 2 + %y)\n  return %z\n}\n"
    )


def argument(chance: random.Random) -> object:
    """An array, most often one that is right but for one thing."""
    shape = chance.choice(((4, 3), (4, 3), (0, 3), (1, 3), (4,), (), (4, 4), (2, 2, 3)))
    array: np.ndarray = np.full(shape, chance.choice((0, 9, -9, 9, 10, -(2**31))), np.int32)
    match chance.randrange(12):
        case 0:
            return array.astype(
                chance.choice(
                    (np.int64, np.int8, np.uint32, np.float32, ">i4", bool, object, "U1", "M8[s]")
                )
            )
        case 1:
            return np.asfortranarray(array)
        case 2:
            return np.broadcast_to(array[:1], array.shape) if array.ndim else array
        case 3:
            return array[::-1] if array.ndim else array
        case 4:
            return (
                np.frombuffer(bytes(1 + array.nbytes), np.uint8)[1:]
                .view(np.int32)
                .reshape(array.shape)
            )
        case 5:
            return np.ma.masked_array(array)
        case 6:
            return chance.choice(
                (None, 3, "x", [[1, 2, 3]], [[1], [2, 3]], array.tolist(), {}, b"abc", float("nan"))
            )
        case 7:
            array.flags.writeable = False
    return array


def read_tflite(data: bytes) -> None:
    whole(cvm.from_tflite(data))


def read_tosa(data: bytes) -> None:
    whole(cvm.from_tosa(data))


def read_onnx(data: bytes) -> None:
    whole(cvm.from_onnx(data))


def read_stablehlo(data: bytes) -> None:
    whole(cvm.from_stablehlo(data))


def whole(module: Module) -> None:
    """A small module prints as text that is the same module, and can be compiled and called."""
    main = module.functions["main"]
    types = [
        v.type
        for f in module.functions.values()
        for v in f.values()
        if isinstance(v.type, TensorType)
    ]
    sizes = [
        int(np.prod([d or 1 for d in t.shape if isinstance(d, int)], dtype=object)) for t in types
    ]
    if len(types) > 4 * OPERATIONS or max(sizes, default=0) > ELEMENTS:
        return
    printed = str(module)
    assert str(cvm.parse(printed)) == printed
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = random_arrays(main, 0)
        cvm.compile(module, target="reference")(*given)
        if len(printed) % 8 == 0:
            cvm.compile(module)(*given)


def read_runtime(data: bytes) -> None:
    """A model of CVM-Runtime: its graph as JSON."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "symbol").write_bytes(data)
        (Path(folder) / "params").write_bytes(b"")
        program_text(read_model(Path(folder)), None)


def files(pattern: str) -> list[bytes]:
    return [
        p.read_bytes()
        for p in sorted((ROOT / "tests" / "models").rglob(pattern))
        if p.stat().st_size < 1 << 19
    ]


@cache
def lite_models() -> list[bytes]:
    """Models of one operator each, and small published ones."""
    from tflite_cases import CASES, Draw

    return [*(build(Draw(name)) for name, build in CASES.items()), *files("*.tflite")]


def flatbuffer(format: Format, corpus: Callable[[], list[bytes]]) -> Mutation:
    return by_structure(
        lambda data, chance: mutate_flatbuffer(data, chance, chance.choice(corpus()), format)
    )


def graphs() -> list[bytes]:
    return [
        json.dumps({"nodes": [], "arg_nodes": [], "heads": [], "attrs": {}}).encode(),
        *files("symbol*"),
        *files("*.json"),
    ]


@cache
def nodes() -> list[bytes]:
    """Node tests of ONNX, and nothing where onnx is not installed."""
    try:
        from onnx_node_tests import node_tests
    except ImportError:
        return []
    return [case.model.SerializeToString() for case in node_tests()]


@cache
def tosa_graphs() -> list[bytes]:
    """A random graph of each operator."""
    from tosa_graphs import make

    from cvm.importers.tosa.writer import write

    return [write(make(n)[1].graph) for n in range(60)]


def generated(target: str, data: bytes) -> None:
    """Random programs and graphs: the same on the target, however they are compiled for, as by the
    reference.
    """
    from . import differential

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        numbers = [int.from_bytes(data[n : n + 8], "little") for n in range(0, len(data), 8)]
        differential.compare(numbers or [0], target)


def read_mlir(data: bytes) -> None:
    """MLIR is a module whose text is that of a program, or refused."""
    printed = str(cvm.from_mlir(data))
    assert str(cvm.parse(printed)) == printed


@cache
def linalg() -> list[bytes]:
    """Examples of operators as MLIR, and nothing where xdsl is not installed."""
    if importlib.util.find_spec("xdsl") is None:
        return []
    found = [MLIR]
    for example in [
        op.example for op in OPERATORS.values() if op.example and "func @main" in op.example
    ][::6]:
        with suppress(cvm.TargetError):
            found.append(
                cvm.compile(dedent(example).strip(), target="reference").lower("linalg").encode()
            )
    return found


MLIR = b"""
#ij = affine_map<(i, j) -> (i, j)>
#i = affine_map<(i, j) -> (i)>
#twice = affine_map<(i, j) -> (i * 2 + j)>
func.func @main(%x: tensor<4x6xi32>, %s: tensor<12xf32>, %i: index, %c: i1) -> (tensor<2x3xi32>, tensor<6x7xi32>, i32, tensor<4xf32>, i32) {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %three = arith.constant 3 : index
  %seven = arith.constant 7 : i32
  %y = func.call @twice(%x) : (tensor<4x6xi32>) -> tensor<4x6xi32>
  %part = tensor.extract_slice %y[1, 0][2, 3][2, 2] : tensor<4x6xi32> to tensor<2x3xi32>
  %padded = tensor.pad %x low[1, 1] high[1, 0] {
  ^bb0(%a: index, %b: index):
    tensor.yield %seven : i32
  } : tensor<4x6xi32> to tensor<6x7xi32>
  %sum = scf.for %k = %zero to %three step %one iter_args(%so_far = %seven) -> (i32) {
    %e = tensor.extract %x[%k, %i] : tensor<4x6xi32>
    %n = arith.addi %so_far, %e : i32
    scf.yield %n : i32
  }
  %o = tensor.empty() : tensor<4xf32>
  %z = linalg.generic {indexing_maps = [#twice, #ij, #i], iterator_types = ["parallel", "reduction"]}
      ins(%s, %x : tensor<12xf32>, tensor<4x6xi32>) outs(%o : tensor<4xf32>) {
  ^bb0(%e: f32, %u: i32, %p: f32):
    %f = arith.sitofp %u : i32 to f32
    %g = arith.mulf %e, %f : f32
    %h = arith.addf %g, %p : f32
    linalg.yield %h : f32
  } -> tensor<4xf32>
  %l = scf.if %c -> (i32) {
    scf.yield %sum : i32
  } else {
    %m = math.ctlz %seven : i32
    scf.yield %m : i32
  }
  return %part, %padded, %sum, %z, %l : tensor<2x3xi32>, tensor<6x7xi32>, i32, tensor<4xf32>, i32
}
func.func private @twice(%x: tensor<4x6xi32>) -> tensor<4x6xi32> {
  %y = arith.addi %x, %x : tensor<4x6xi32>
  return %y : tensor<4x6xi32>
}
"""


def functions(data: bytes) -> None:
    """Random Python functions with second names of what they change: NumPy's results, or a
    refusal.
    """
    from aliasing_functions import judge

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for n in range(0, len(data), 8):
            judge(int.from_bytes(data[n : n + 8], "little"))


def certified(data: bytes) -> None:
    """Compare a random case with the program that its certificate names."""
    from certificates import installed

    seed = int.from_bytes(data, "little")
    references = installed()
    references[seed % len(references)].outcome(seed >> 8)


def certificate_seeds() -> list[bytes]:
    from certificates import installed

    return seeds() if installed() else []


def seeds() -> list[bytes]:
    return [n.to_bytes(8, "little") for n in range(16)]


def reseed(data: bytes, chance: random.Random, size: int = 1) -> bytes:
    return chance.randbytes(8 * size)


def schedules(data: bytes) -> None:
    """Random schedules of kernels keep every bit at three vector widths."""
    from random_schedules import KERNELS, keeps_every_bit

    from .random_kernels import processors

    chance = random.Random(data)
    name = chance.choice([*KERNELS])
    sizes = [(chance.randint(1, 40), chance.randint(1, 70), chance.randint(1, 20))]
    keeps_every_bit(name, chance.getrandbits(32), chance.randint(1, 9), processors(), sizes)


ATTACKS = {
    "text": Attack(text, programs, mix),
    "npz": Attack(partial(arrays, "w.npz"), archives, by_structure(mutate_npz)),
    "npy": Attack(partial(arrays, "w.npy"), archives, by_structure(mutate_npy)),
    "safetensors": Attack(
        partial(arrays, "w.safetensors"), seeds, by_structure(mutate_safetensors)
    ),
    "schedules": Attack(schedules, seeds, reseed),
    "cache": Attack(cached, seeds, reseed),
    "arguments": Attack(arguments, seeds, reseed),
    "onnx": Attack(
        read_onnx, nodes, by_structure(lambda d, c: mutate_onnx(d, c, c.choice(nodes())))
    ),
    "tflite": Attack(read_tflite, lite_models, flatbuffer(TFLITE, lite_models)),
    "tosa": Attack(read_tosa, tosa_graphs, flatbuffer(TOSA, tosa_graphs)),
    "mlir": Attack(read_mlir, linalg, mutate_text),
    "stablehlo": Attack(read_stablehlo, stablehlo_texts.texts, mutate_text, needs="jax"),
    "jax": Attack(
        stablehlo_texts.attack,
        lambda: seeds() if stablehlo_texts.installed() else [],
        reseed,
        needs="jax",
    ),
    "fusion": Attack(array_graphs.attack, seeds, reseed),
    "quantize": Attack(quantized_networks.attack, seeds, reseed),
    "cvm_runtime": Attack(read_runtime, graphs, mutate_text),
    "programs": Attack(partial(generated, "cpu"), seeds, partial(reseed, size=16), 16),
    "functions": Attack(functions, seeds, partial(reseed, size=16), 16),
    "kernels": Attack(random_kernels.attack, seeds, reseed),
    "cuda": Attack(partial(generated, "cuda-sim"), seeds, partial(reseed, size=8), 8),
    "certificates": Attack(
        certified,
        certificate_seeds,
        reseed,
        needs="onnx and onnxruntime, ai-edge-litert or tosa-tools",
    ),
}
