"""Machine code of NVIDIA's compiler: 16-byte accesses, tensor cores, and no register spills."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from cvm.jit.targets import TARGETS
from emulated_kernels import needs_nvrtc

import cvm

ELEMENTWISE = """
func @main(%x: tensor<1024x1024xf32>, %y: tensor<1024x1024xf32>) -> tensor<1024x1024xf32> {
  %a = dali.mul %x, %y
  %b = dali.add %a, %x
  return %b
}
"""
CHAIN = """
func @main(%x: tensor<1048576xf32>, %y: tensor<1048576xf32>) -> tensor<1048576xf32> {
  %a = dali.mul %x, %y
  %b = dali.exp %a
  %c = dali.clamp %b, 0.0, 1000.0
  return %c
}
"""
IMAGE = """
func @main(%x: tensor<1080x1920x3xui8>, %g: tensor<3xf32>) -> tensor<1080x1920x3xf32> {
  %a = dali.mul %x, %g
  return %a
}
"""
SMALL = "{range = [-128, 127]}"
DENSE = """
func @main(%x: tensor<4096x4096xi32> SMALL, %w: tensor<4096x4096xi32> SMALL) -> tensor<4096x4096xi32> {
  %y = cvm.dense %x, %w
  return %y
}
"""
CONV = """
func @main(%x: tensor<16x64x56x56xi32> SMALL, %w: tensor<64x64x3x3xi32> SMALL) -> tensor<16x64x56x56xi32> {
  %y = cvm.conv2d %x, %w {padding = [1, 1]}
  return %y
}
"""
FLOATS = """
func @main(%x: tensor<2048x2048xf32>, %w: tensor<2048x2048xf32>) -> tensor<2048x2048xf32> {
  %a = theano.dimshuffle %x {new_order = [0, "x", 1]}
  %b = theano.dimshuffle %w {new_order = ["x", 0, 1]}
  %c = theano.elemwise %a, %b {scalar_op = "mul"}
  %y = theano.careduce %c {scalar_op = "add", axis = [2]}
  return %y
}
"""
ROWS = """
func @main(%x: tensor<4096x4096xf32>) -> tensor<4096xf32> {
  %y = theano.sum %x {axis = [1]}
  return %y
}
"""
TURNED = """
func @main(%x: tensor<4096x4096xf32>) -> tensor<4096x4096xf32> {
  %y = theano.dimshuffle %x {new_order = [1, 0]}
  return %y
}
"""
ATTENTION = """
func @main(%q: tensor<24x256x64xf32>, %k: tensor<24x256x64xf32>, %v: tensor<24x256x64xf32>) {
  %kt = cvm.transpose %k {axes = [0, 2, 1]}
  %q4 = theano.dimshuffle %q {new_order = [0, 1, 2, "x"]}
  %k4 = theano.dimshuffle %kt {new_order = [0, "x", 1, 2]}
  %a = theano.elemwise %q4, %k4 {scalar_op = "mul"}
  %s = theano.sum %a {axis = [2], dtype = f32, acc_dtype = f32}
  %t = dali.mul %s, 0.125
  %m = theano.max %t {axis = [2]}
  %m3 = cvm.expand_dims %m {axis = 2}
  %d = dali.sub %t, %m3
  %e = dali.exp %d
  %n = theano.sum %e {axis = [2]}
  %n3 = cvm.expand_dims %n {axis = 2}
  %w = dali.div %e, %n3
  %w4 = theano.dimshuffle %w {new_order = [0, 1, 2, "x"]}
  %v4 = theano.dimshuffle %v {new_order = [0, "x", 1, 2]}
  %b = theano.elemwise %w4, %v4 {scalar_op = "mul"}
  %y = theano.sum %b {axis = [2], dtype = f32, acc_dtype = f32}
  return %y
}
"""
PROGRAMS = {
    "elementwise": ELEMENTWISE,
    "chain": CHAIN,
    "image": IMAGE,
    "dense 8 bits": DENSE.replace("SMALL", SMALL),
    "dense 32 bits": DENSE.replace("SMALL", ""),
    "conv": CONV.replace("SMALL", SMALL),
    "floats": FLOATS,
    "rows": ROWS,
    "transpose": TURNED,
    "attention": ATTENTION,
}
# what stands in the PTX of a program, and how often at least
CONTAINS = {
    "elementwise": {"ld.global.nc.v4": 2, "st.global.v4": 1},
    "chain": {"ld.global.nc.v4": 2, "st.global.v4": 1},
    "image": {"st.global.v4": 1},
    "dense 8 bits": {
        "mma.sync.aligned.m16n8k32": 96,
        "cp.async.cg.shared.global": 12,
        "ldmatrix.sync.aligned.m8n8.x4": 36,
    },
    "conv": {
        "mma.sync.aligned.m16n8k32": 32,
        "cp.async.cg.shared.global": 8,
        "ldmatrix.sync.aligned.m8n8.x4": 24,
    },
    "floats": {"fma.rn.f32": 1024, "ld.shared.v4.f32": 32},
    "attention": {"fma.rn.f32": 1024, "ld.shared.v4.f32": 96, "shfl.sync.bfly": 12, "bar.sync": 10},
}


@needs_nvrtc
@pytest.mark.parametrize("name", CONTAINS)
def test_instructions(name: str) -> None:
    text = cvm.compile(PROGRAMS[name], target="reference").lower("ptx")
    assert "ld.local" not in text and "st.local" not in text
    found = {
        instruction: len(re.findall(re.escape(instruction), text)) for instruction in CONTAINS[name]
    }
    assert all(found[i] >= least for i, least in CONTAINS[name].items()), found


@pytest.mark.sample(4)
@pytest.mark.skipif(
    not shutil.which("nvcc"), reason="nvcc, which says what is spilled, is not installed"
)
@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_is_spilled(name: str, tmp_path: Path) -> None:
    source = tmp_path / "kernels.cu"
    source.write_text(cvm.compile(PROGRAMS[name], target="reference").lower("cuda"))
    command = ["nvcc", "--fmad=false", "-std=c++17", "-cubin", "-arch", "sm_90", "-Xptxas=-v"]
    done = subprocess.run(
        [*command, "-o", str(tmp_path / "kernels.cubin"), str(source)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    spilled = re.findall(
        r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", done.stderr
    )
    assert spilled and all(bytes == ("0", "0", "0") for bytes in spilled), done.stderr


@pytest.mark.gpu
@pytest.mark.skipif(
    bool(TARGETS["cuda"].missing()), reason=TARGETS["cuda"].missing() or "there is a GPU"
)
@pytest.mark.parametrize("name", PROGRAMS)
def test_on_a_gpu(name: str) -> None:
    """The same programs, large, have the bits of a CPU; also when their launches are recorded."""
    f, g = (cvm.compile(PROGRAMS[name], target=t) for t in ("cuda", "cpu"))
    random = np.random.default_rng(0)
    given = []
    for a in f.function.arguments:
        shape, dtype = a.known_type.array_shape, a.known_type.element.dtype
        small = (
            random.integers(-128, 128, shape) if dtype.kind == "i" else random.normal(size=shape)
        )
        given.append(small.astype(dtype))
    wanted = g(*given)
    for _ in range(3):
        np.testing.assert_array_equal(f(*given), wanted, strict=True)
