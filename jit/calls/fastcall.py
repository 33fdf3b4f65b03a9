"""An entry point that Python calls directly: machine code that checks its arguments and runs a
program.

It serves what is usual: NumPy arrays of exactly the declared types and shapes, contiguous and
aligned, `out` given or not; where sizes are unknown, any that compare as some before. Whatever else
it is given goes to the slow entry in Python, which accepts more and explains what it does not
accept. So every check is still made, and nothing is reported from here.

One piece of code serves all programs: an object that is called has a table of what its program
takes (`table`). The code knows CPython's and NumPy's object layouts; `usable` looks whether they
are as expected, and where they are not, the slow entry serves all calls. Objects are called by
CPython's vectorcall protocol, without tuples or dictionaries of arguments.
"""

import ctypes
import sys
from functools import cache, lru_cache
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from . import vectorcall_ir as layout

if TYPE_CHECKING:
    from ..llvm.native_code import Library

# PyArray_Empty and others in NumPy's table of functions
API = {"empty_array": 184, "zeros": 183, "scalar": 60}
HAS_VECTORCALL, DEFAULT_FLAGS, BASE_TYPE = 1 << 11, 1 << 18, 1 << 10  # flags of a type
MEMBERS, CALL = 72, 50  # slots of a type
TYPE_FLAGS = 168  # the place of its flags in a type object


@lru_cache(maxsize=1)
def usable() -> bool:
    """Test whether CPython's and NumPy's object layouts are those that this file assumes."""
    if (
        sys.implementation.name != "cpython"
        or ctypes.sizeof(ctypes.c_void_p) != 8
        or hasattr(sys, "gettotalrefcount")
    ):
        return False
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        return False
    array = np.zeros((3, 5), np.int32)
    at = id(array)
    word, half = ctypes.c_int64.from_address, ctypes.c_int32.from_address
    usual = layout.CONTIGUOUS | layout.ALIGNED | layout.WRITEABLE
    numbers = np.int64(-7), np.float64(0.3), 0.7
    return (
        word(at + 8).value == id(np.ndarray)
        and word(at + layout.DATA).value == array.ctypes.data
        and half(at + layout.RANK).value == 2
        and [word(word(at + layout.SHAPE).value + 8 * n).value for n in range(2)] == [3, 5]
        and word(at + layout.DESCRIPTOR).value == id(np.dtype(np.int32))
        and half(at + layout.FLAGS).value & usual == usual
        and bytes((ctypes.c_char * 8).from_address(id(array.dtype) + layout.ELEMENT))
        == b"ii=\0" + np.int32(array.dtype.num).tobytes()
        and word(id(np.ndarray) + TYPE_FLAGS).value == np.ndarray.__flags__
        and word(id(numbers[0]) + layout.HEAD).value == numbers[0]
        and ctypes.c_double.from_address(id(numbers[1]) + layout.HEAD).value == numbers[1]
        and ctypes.c_double.from_address(id(numbers[2]) + layout.HEAD).value == numbers[2]
    )


@lru_cache(maxsize=1)
def addresses() -> dict[str, int]:
    """The functions of Python and NumPy that the entry calls, and the objects that it knows."""
    api = ctypes.pythonapi
    get = api.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    from numpy._core import _multiarray_umath  # type: ignore[attr-defined]

    functions = (ctypes.c_void_p * 300).from_address(get(_multiarray_umath._ARRAY_API, None))
    python = {
        name: ctypes.cast(getattr(api, name), ctypes.c_void_p).value
        for name in layout.python_functions()
    }
    objects = {
        "array_type": np.ndarray,
        "tuple_type": tuple,
        "list_type": list,
        "dict_type": dict,
        "int_type": int,
        "bool_type": bool,
        "true": True,
        "out": sys.intern("out"),
    }
    found = {
        **python,
        **{name: functions[n] for name, n in API.items()},
        **{name: id(o) for name, o in objects.items()},
    }
    return {name: at for name, at in found.items() if at}


@cache  # an entry that is in use stays loaded
def code(entry: str = "call") -> "tuple[Library, int]":
    """The code that serves all programs, or all kernels of Python functions, and where it is."""
    from ..llvm.native_code import Library  # and with it LLVM, which other targets do without
    from .vectorcall_ir import call_source

    library = Library(call_source(entry), {}, (entry,), addresses())
    return library, library.addresses[entry]


class _Member(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("type", ctypes.c_int),
        ("offset", ctypes.c_ssize_t),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


class _Slot(ctypes.Structure):
    _fields_ = (("slot", ctypes.c_int), ("function", ctypes.c_void_p))


class _Specification(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("size", ctypes.c_int),
        ("item_size", ctypes.c_int),
        ("flags", ctypes.c_uint),
        ("slots", ctypes.POINTER(_Slot)),
    )


Kind = TypeVar("Kind")
_KEPT: list[object] = []  # what types made here refer to


@lru_cache(maxsize=1)
def direct_base() -> type:
    """A type whose objects have room for the code's address and the table's, and are called through
    the first.
    """
    members = (_Member * 2)(_Member(b"__vectorcalloffset__", 19, layout.HEAD, 1, None), _Member())
    call = ctypes.cast(ctypes.pythonapi.PyVectorcall_Call, ctypes.c_void_p)
    slots = (_Slot * 3)(
        _Slot(MEMBERS, ctypes.addressof(members)), _Slot(CALL, call), _Slot(0, None)
    )
    flags = DEFAULT_FLAGS | BASE_TYPE | HAS_VECTORCALL
    specification = _Specification(
        b"cvm.jit.calls.fastcall.Direct", layout.HEAD + 16, 0, flags, slots
    )
    _KEPT.extend((members, slots, specification))
    make = ctypes.pythonapi.PyType_FromSpec
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p]
    return make(ctypes.addressof(specification))


@lru_cache(maxsize=8)
def direct(kind: type[Kind], later: bool = False) -> type[Kind]:
    """The class whose objects are called directly, those of another otherwise. Calls go to
    `__call__` until `take` where that is `later`.
    """
    bases = direct_base(), kind
    named = {"__module__": kind.__module__, "__doc__": kind.__doc__}
    if later:
        named["__call__"] = kind.__call__
    made: type[Kind] = type(kind.__name__, bases, named)  # type: ignore[assignment]
    if not made.__flags__ & HAS_VECTORCALL:  # before Python 3.12 a class does not inherit it
        ctypes.c_uint64.from_address(id(made) + TYPE_FLAGS).value |= HAS_VECTORCALL
    return made


def take(called: object, way: int, entry: str = "call") -> "Library":
    """Lets calls of an object of a direct class go by the way that lies there; gives what has to be
    kept with the object.
    """
    library, start = code(entry)
    (ctypes.c_int64 * 2).from_address(id(called) + layout.HEAD)[:] = start, way
    return library
