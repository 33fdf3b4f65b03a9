"""Arrays on a GPU, accessed through `__cuda_array_interface__` or DLPack without copies, and
checked like host arrays.
"""

import ctypes
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...dialect.ir.function import Function, Value
from ...dialect.support.diagnostics import CallError
from ...dialect.types.tensor_types import Type
from ..calls.arguments import array_of, describe, take_arguments
from .cuda_graph import order
from .device import Device

_ON_CUDA = (2, 13)  # DLPack's names of CUDA memory and of CUDA managed memory


@dataclass(frozen=True)
class DeviceArray:
    """The address and type of an array, and the object that keeps it alive."""

    address: int
    shape: tuple[int, ...]
    dtype: np.dtype
    contiguous: bool
    owner: Any
    stream: int | None = None  # whose work has to be done before the array may be used
    kept: Any = None  # the memory, or DLPack's capsule, where the owner does not keep it

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


def is_on_device(value: Any) -> bool:
    if hasattr(value, "__cuda_array_interface__"):
        return True
    return hasattr(value, "__dlpack_device__") and int(value.__dlpack_device__()[0]) in _ON_CUDA


def device_array(value: Any) -> DeviceArray:
    """The array that a value stands for."""
    if (interface := getattr(value, "__cuda_array_interface__", None)) is None:
        return _from_dlpack(value)
    dtype = np.dtype(interface["typestr"])
    shape = tuple(interface["shape"])
    if (stream := interface.get("stream")) == 0:
        raise CallError(
            "an array on the device has to name its stream: 1 or 2 for the default ones, got 0"
        )
    if (
        "stream" not in interface and type(value).__module__.partition(".")[0] == "torch"
    ):  # which names none
        stream = sys.modules["torch"].cuda.current_stream(value.device).cuda_stream or None
    strides = interface.get("strides")
    contiguous = strides is None or 0 in shape or list(strides) == _row_major(shape, dtype.itemsize)
    return DeviceArray(interface["data"][0] or 0, shape, dtype, contiguous, value, stream)


def _row_major(shape: tuple[int, ...], step: int = 1) -> list[int]:
    """The strides of a contiguous array whose neighboring elements are `step` bytes apart."""
    return [step * int(np.prod(shape[n:], dtype=np.int64)) for n in range(1, len(shape) + 1)]


def take_device_arguments(
    function: Function, given: tuple[object, ...], device: Device
) -> list[DeviceArray]:
    """The arguments, those of the host copied to the device, checked against the declared types and
    ranges.
    """
    taken: list[DeviceArray] = []

    def take(value: Any, argument: Value) -> np.ndarray:
        """An array of the host with the argument's type, and its elements where a range is
        declared.
        """
        if not is_on_device(value):
            host = array_of(value, argument.known_type)
            memory = device.upload(host)
            taken.append(DeviceArray(int(memory), host.shape, host.dtype, True, host, kept=memory))
            return host
        taken.append(array := device_array(value))
        if said := disagreement(array, argument.known_type, device):
            raise ValueError(said)
        if argument.range is None and not argument.known_type.element.needs_check:
            return np.broadcast_to(np.zeros((), array.dtype), array.shape)
        order(array.stream or 0, 0)
        device.download(array.address, host := np.empty(array.shape, array.dtype))
        return host

    take_arguments(function, given, take=take)
    return taken


def disagreement(array: DeviceArray, wanted: Type, device: Device) -> str:
    """The reason why an array does not have the wanted type, or is not of the device; empty if it
    has, and is.
    """
    shape = wanted.array_shape
    fits = len(array.shape) == len(shape)
    known = [(d, n) for d, n in zip(shape, array.shape, strict=False) if isinstance(d, int)]
    if not fits or any(d != n for d, n in known) or array.dtype != wanted.element.dtype:
        return (
            f"expected {wanted}, got "
            f"{describe(np.broadcast_to(np.empty((), array.dtype), array.shape))}"
        )
    if not array.contiguous:
        return f"expected a contiguous {wanted} on the device, got a strided one"
    return device.elsewhere(array.address, array.nbytes)


# DLPack's structures, as its header has them


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_KINDS = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}


def _from_dlpack(value: Any) -> DeviceArray:
    capsule = value.__dlpack__(
        **({"stream": 1} if is_on_device(value) else {})
    )  # the launches' comes after its own
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype = ctypes.c_void_p
    pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    tensor = _DLTensor.from_address(pointer(capsule, b"dltensor"))
    if tensor.code not in _KINDS or tensor.lanes != 1:
        raise CallError(
            f"an array of DLPack's type {tensor.code} with {tensor.bits} bits is not taken"
        )
    dtype = np.dtype(f"{_KINDS[tensor.code]}{tensor.bits // 8}")
    shape = tuple(tensor.shape[n] for n in range(tensor.ndim))
    # the capsule frees the tensor when it is dropped, unless someone renames it: nobody does
    strides = [tensor.strides[n] for n in range(tensor.ndim)] if tensor.strides else None
    contiguous = strides is None or 0 in shape or strides == _row_major(shape)
    return DeviceArray(
        (tensor.data or 0) + tensor.byte_offset, shape, dtype, contiguous, value, kept=capsule
    )
