"""Target cuda: what it says where there is no GPU, arrays of a device, and PyCUDA over a driver
that emulates.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cvm.jit.cuda.device import missing
from cvm.jit.cuda.device_arrays import device_array, is_on_device, take_device_arguments
from cvm.jit.functions import cuda_function
from emulated_kernels import needs_nvrtc

import cvm

HERE = Path(__file__).parents[2] / "support"
PROGRAM = """
func @main(%x: tensor<?N x 2 x f32>, %y: tensor<?N x f32>) -> tensor<?N x 2 x f32> {
  return %x
}
"""
GPU_PROGRAM = """
func @main(%x: tensor<?N x i32>, %y: tensor<9xi32>) -> (tensor<?N x i32>, tensor<9xi8>) {
  %z = cvm.abs %x
  %small = numpy.elementwise %y {ufunc = "in_range", dtype = i8}
  return %z, %small
}
"""


def on_device(
    shape: tuple[int, ...], typestr: str = "<f4", strides: tuple[int, ...] | None = None
) -> Any:
    return SimpleNamespace(
        __cuda_array_interface__={
            "shape": shape,
            "typestr": typestr,
            "strides": strides,
            "data": (4096, False),
        }
    )


@pytest.mark.skipif(not missing(), reason="there is a GPU")
def test_without_a_gpu_it_is_said_what_is_missing() -> None:
    with pytest.raises(
        cvm.TargetError, match=r"target cuda: .*(not installed|does not start|no CUDA device)"
    ):
        cvm.compile(PROGRAM, target="cuda")


def test_arrays_of_a_device_are_seen_without_copies() -> None:
    array = device_array(on_device((3, 2)))
    assert (array.address, array.shape, array.dtype, array.contiguous, array.nbytes) == (
        4096,
        (3, 2),
        "f4",
        True,
        24,
    )
    assert device_array(on_device((3, 2), strides=(8, 4))).contiguous
    assert not device_array(on_device((3, 2), strides=(4, 12))).contiguous
    assert device_array(on_device((0, 2), strides=(4, 12))).contiguous
    assert is_on_device(on_device((1,))) and not is_on_device(np.zeros(1))
    assert not is_on_device(np.zeros(1).__array_interface__)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (
            (((3, 3), "<f4"), ((3,), "<f4")),
            "argument %x: expected tensor<?N x 2 x f32>, got tensor<3x3xf32>",
        ),
        (
            (((3, 2), "<f8"), ((3,), "<f4")),
            "argument %x: expected tensor<?N x 2 x f32>, got tensor<3x2xf64>",
        ),
        (
            (((3,), "<f4"), ((3,), "<f4")),
            "argument %x: expected tensor<?N x 2 x f32>, got tensor<3xf32>",
        ),
        (
            (((3, 2), "<f4"), ((4,), "<f4")),
            "expected tensor<?N x f32> with ?N = 3, as in %x, got tensor<4xf32>",
        ),
        (
            (((3, 2), "<f4", (4, 12)), ((3,), "<f4")),
            "expected a contiguous tensor<?N x 2 x f32> on the device",
        ),
    ],
)
def test_arrays_of_a_device_are_checked(arrays: tuple[Any, ...], message: str) -> None:
    function = cvm.parse(PROGRAM).functions["main"]
    device: Any = SimpleNamespace(elsewhere=lambda address, size: "")
    with pytest.raises(cvm.CallError) as raised:
        take_device_arguments(function, tuple(on_device(*a) for a in arrays), device)
    assert message in str(raised.value)


def test_kernels_are_launched_with_what_they_declare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pointers first, then sizes, then where a failed check is noted: by the parameters of each
    kernel's text.
    """
    declared: dict[str, str] = {}

    def kernels(source: str, signatures: dict[str, str]) -> dict[str, None]:
        for name, given in re.findall(r"__global__ void .*\b(kernel_\d+)\((.*)\) {", source):
            declared[name] = "".join(
                "P" if "*" in p else "q" if "long long" in p else "?" for p in given.split(", ")
            )
        assert signatures == declared
        return dict.fromkeys(signatures)

    gpu = SimpleNamespace(
        kernels=kernels, allow=lambda kernel, shared: None, active=nullcontext, upload=np.copy
    )
    monkeypatch.setattr(cuda_function, "device", lambda: gpu)
    module = cvm.parse(GPU_PROGRAM)
    cuda_function.CudaFunction(module, module.functions["main"])
    assert sorted(declared.values()) == ["PPP", "PPq"], "one with a size, and one with a check"


def test_an_array_names_its_stream() -> None:
    array = on_device((3,))
    assert device_array(array).stream is None
    array.__cuda_array_interface__["stream"] = 1234
    assert device_array(array).stream == 1234
    array.__cuda_array_interface__["stream"] = 0
    with pytest.raises(cvm.CallError, match="has to name its stream"):
        device_array(array)


def test_dlpack_of_a_host_array_reads_the_same() -> None:
    """The structures are those of DLPack, whatever the device: NumPy's own arrays show it."""
    for array in (np.arange(6, dtype="i2").reshape(2, 3), np.zeros((0, 3)), np.ones(4, bool)):
        seen = device_array(array)
        assert (seen.shape, seen.dtype, seen.contiguous) == (array.shape, array.dtype, True)
        assert not array.size or seen.address == array.ctypes.data
    assert not device_array(np.zeros((4, 4))[:, ::2]).contiguous


@needs_nvrtc
@pytest.mark.skipif(
    not importlib.util.find_spec("pycuda"), reason="PyCUDA is not installed: pip install pycuda"
)
@pytest.mark.skipif(
    not shutil.which("cc"), reason="there is no C compiler to build the stand-in driver with"
)
@pytest.mark.parametrize("script", ["run_on_fake_driver.py", "benchmark_on_fake_driver.py"])
@pytest.mark.slow
def test_pycuda_over_a_driver_that_emulates(script: str) -> None:
    """Target cuda works on an emulated driver, and so does the GPU benchmark."""
    done = subprocess.run(
        [sys.executable, str(HERE / script)], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0 and "launches" in done.stdout, done.stdout + done.stderr
    assert "fails" not in done.stdout and "DIFFERENT" not in done.stdout, done.stdout
