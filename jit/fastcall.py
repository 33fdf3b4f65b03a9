"""An entry point that Python calls directly: a built-in function in LLVM IR that checks its arguments and runs the program.

It serves what is usual: NumPy arrays of exactly the declared types and shapes, contiguous and aligned, `out` given or not.
Whatever else it is given goes to the slow entry in Python, which accepts more and explains what it does not accept. So every
check is still made, and nothing is reported from here.

It knows CPython's and NumPy's object layouts; `usable` looks whether they are as expected, and where they are not, the slow
entry serves all calls. Addresses come in a table, so that the code itself can be kept on disk.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np

from ..dialect.types import Type
from .lines import Lines
from .native import Library
from .within import within_text

DATA, RANK, SHAPE, DESCRIPTOR, FLAGS = 16, 24, 32, 56, 64  # places in a NumPy array object, in bytes
BYTES = 32  # where the bytes of a bytes object begin
CONTIGUOUS, ALIGNED, WRITEABLE = 0x1, 0x100, 0x400
FAST_WITH_KEYWORDS = 0x80 | 0x2
EMPTY = 184  # PyArray_Empty in NumPy's table of functions

TABLE = ("slow", "vectorcall", "array_type", "empty", "incref", "decref", "save_thread", "restore_thread", "out", "tuple_new",
         "tuple_set", "workspace", "busy")  # fmt: skip


@lru_cache(maxsize=1)
def usable() -> bool:
    """Whether objects lie in memory as this file expects."""
    if sys.implementation.name != "cpython" or ctypes.sizeof(ctypes.c_void_p) != 8 or hasattr(sys, "gettotalrefcount"):
        return False
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        return False
    array = np.zeros((3, 5), np.int32)
    at = id(array)
    word, half = ctypes.c_int64.from_address, ctypes.c_int32.from_address
    sample = b"a table of addresses"
    return (
        word(at + 8).value == id(np.ndarray)
        and word(at + DATA).value == array.ctypes.data
        and half(at + RANK).value == 2
        and [word(word(at + SHAPE).value + 8 * n).value for n in range(2)] == [3, 5]
        and word(at + DESCRIPTOR).value == id(np.dtype(np.int32))
        and half(at + FLAGS).value & (CONTIGUOUS | ALIGNED | WRITEABLE) == CONTIGUOUS | ALIGNED | WRITEABLE
        and ctypes.string_at(id(sample) + BYTES, len(sample)) == sample
    )


class _Text(Lines):
    """The entry's text being written."""

    def __init__(self) -> None:
        super().__init__()
        self.slow = "slow"

    def at(self, base: str, offset: int) -> str:
        return self.add(f"getelementptr inbounds i8, ptr {base}, i64 {offset}") if offset else base

    def word(self, base: str, offset: int, type: str = "ptr") -> str:
        return self.add(f"load {type}, ptr {self.at(base, offset)}")

    def table(self, name: str, n: int = 0) -> str:
        position = (TABLE.index(name) if name else len(TABLE)) + n
        return self.word("%self", BYTES + 8 * position)

    def unless(self, condition: str, label: str) -> None:
        """Goes on only where the condition holds."""
        good = self.label()
        self.raw(f"br i1 {condition}, label %{good}, label %{label}")
        self.start(good)

    def want(self, type: str, value: str, expected: str) -> None:
        self.unless(self.add(f"icmp eq {type} {value}, {expected}"), self.slow)

    def check_array(self, array: str, type: Type, descriptor: str, flags: int) -> str:
        """Goes on only with an array of the type; its data's address."""
        self.want("ptr", self.word(array, 8), self.table("array_type"))
        self.want("ptr", self.word(array, DESCRIPTOR), descriptor)
        shape = type.array_shape
        self.want("i32", self.word(array, RANK, "i32"), str(len(shape)))
        sizes = self.word(array, SHAPE) if shape else ""
        for n, d in enumerate(shape):
            self.want("i64", self.word(sizes, 8 * n, "i64"), str(d))
        held = self.add(f"and i32 {self.word(array, FLAGS, 'i32')}, {flags}")
        self.want("i32", held, str(flags))
        return self.word(array, DATA)


def entry_text(
    arguments: list[Type],
    results: list[Type],
    constants: int,
    workspace: bool,
    release: bool,
    ranges: Mapping[int, tuple[float, float]] = MappingProxyType({}),
) -> str:
    """The IR of `@call`, for types of known sizes. `release` lets other threads run meanwhile; `ranges` are what some
    arguments have to lie in."""
    f = _Text()
    n, m = len(arguments), len(results)
    f.want("i64", f.add("and i64 %count, 9223372036854775807"), str(n))
    given = [f.word("%given", 8 * k) for k in range(n)]
    pointers = [
        f.check_array(a, t, f.table("", k), CONTIGUOUS | ALIGNED)
        for k, (a, t) in enumerate(zip(given, arguments, strict=True))
    ]
    looked = {k: bounds for k, bounds in ranges.items() if arguments[k].size != 0}
    for k in looked:
        f.unless(f.add(f"call i1 @within_{k}(ptr {pointers[k]})"), f.slow)
    if workspace:
        held = f.add(f"atomicrmw xchg ptr {f.table('busy')}, i32 1 acquire")
        f.want("i32", held, "0")
        f.slow = "unbusy"
    bare = f.add("icmp eq ptr %names, null")
    fresh, named, run = f.label(), f.label(), f.label()
    f.raw(f"br i1 {bare}, label %{fresh}, label %{named}")

    f.start(named)  # the one keyword is `out`; a tuple's items begin at 24
    f.want("i64", f.word("%names", 16, "i64"), "1")
    f.want("ptr", f.word("%names", 24), f.table("out"))
    out = f.word("%given", 8 * n)
    outs = [out]
    if m > 1:
        f.want("i64", f.word(out, 16, "i64"), str(m))
        kind = f.word(out, 8)
        f.want("ptr", kind, f.word("%names", 8))  # a tuple, as the keywords' names are
        outs = [f.word(out, 24 + 8 * k) for k in range(m)]
    placed: list[str] = []
    for k, (o, t) in enumerate(zip(outs, results, strict=True)):
        data = f.check_array(o, t, f.table("", n + k), CONTIGUOUS | ALIGNED | WRITEABLE)
        others = [*zip(pointers, arguments, strict=True), *zip(placed, results, strict=False)]
        for other, type in others:
            f.unless(_apart(f, data, _bytes(t), other, _bytes(type)), f.slow)
        placed.append(data)
    keep = f.table("incref")
    f.raw(f"call void {keep}(ptr {out})")
    named_end = f.block
    f.raw(f"br label %{run}")

    f.start(fresh)
    made: list[str] = []
    for k, t in enumerate(results):
        descriptor = f.table("", n + k)
        f.raw(f"call void {f.table('incref')}(ptr {descriptor})")
        array = f.add(f"call ptr {f.table('empty')}(i32 {len(t.array_shape)}, ptr @shape_{k}, ptr {descriptor}, i32 0)")
        f.unless(f.add(f"icmp ne ptr {array}, null"), "failed")
        made.append(array)
    data = [f.word(a, DATA) for a in made]
    whole = made[0]
    if m > 1:
        whole = f.add(f"call ptr {f.table('tuple_new')}(i64 {m})")
        f.unless(f.add(f"icmp ne ptr {whole}, null"), "failed")
        for k, a in enumerate(made):
            f.raw(f"call i32 {f.table('tuple_set')}(ptr {whole}, i64 {k}, ptr {a})")
    fresh_end = f.block
    f.raw(f"br label %{run}")

    f.start(run)
    result = f.add(f"phi ptr [ {out}, %{named_end} ], [ {whole}, %{fresh_end} ]")
    targets = [
        f.add(f"phi ptr [ {p}, %{named_end} ], [ {d}, %{fresh_end} ]") for p, d in zip(placed, data, strict=True)
    ]
    for k, p in enumerate([*pointers, *targets, *(f.table("", n + m + c) for c in range(constants))]):
        f.raw(f"store ptr {p}, ptr {f.at('%pointers', 8 * k)}")
    memory = f.table("workspace") if workspace else "null"
    thread = f.add(f"call ptr {f.table('save_thread')}()") if release else ""
    status = f.add(f"call i32 @entry(ptr %pointers, ptr null, ptr {memory})")
    if release:
        f.raw(f"call void {f.table('restore_thread')}(ptr {thread})")
    f.unless(f.add(f"icmp eq i32 {status}, 0"), "undo")
    _set_free(f, workspace)
    f.raw(f"ret ptr {result}")

    f.start("undo")  # something does not hold: the slow entry runs it again and says what
    f.raw(f"call void {f.table('decref')}(ptr {result})")
    f.raw(f"br label %{'unbusy' if workspace else 'slow'}")
    if workspace:
        f.start("unbusy")
        _set_free(f, workspace)
        f.raw("br label %slow")
    f.start("slow")
    answer = f.add(f"call ptr {f.table('vectorcall')}(ptr {f.table('slow')}, ptr %given, i64 %count, ptr %names)")
    f.raw(f"ret ptr {answer}")
    f.start("failed")  # no memory; Python knows
    _set_free(f, workspace)
    f.raw("ret ptr null")
    shapes = [_constant(f"shape_{k}", t) for k, t in enumerate(results)]
    shapes += [within_text(f"within_{k}", arguments[k], bounds) for k, bounds in looked.items()]
    head = "define ptr @call(ptr %self, ptr %given, i64 %count, ptr %names) nounwind {\nentry:\n"
    return "\n".join([*shapes, f"{head}  %pointers = alloca [{n + m + constants} x ptr]", f.text(), "}", ""])


def _set_free(f: _Text, workspace: bool) -> None:
    if workspace:
        f.raw(f"store atomic i32 0, ptr {f.table('busy')} release, align 4")


def _apart(f: _Text, a: str, size: int, b: str, other: int) -> str:
    """Whether two stretches of memory do not meet."""
    a_end, b_end = f.at(a, size), f.at(b, other)
    return f.add(f"or i1 {f.add(f'icmp ule ptr {a_end}, {b}')}, {f.add(f'icmp ule ptr {b_end}, {a}')}")


def _bytes(type: Type) -> int:
    size = type.size
    assert isinstance(size, int)
    return size * type.element.bytes


def _constant(name: str, type: Type) -> str:
    sizes = ", ".join(f"i64 {d}" for d in type.array_shape)
    return f"@{name} = internal constant [{len(type.array_shape)} x i64] [{sizes}]"


class _Method(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


@lru_cache(maxsize=1)
def _addresses() -> dict[str, int]:
    """The functions of Python and NumPy that the entry calls, and the objects that it knows."""
    api = ctypes.pythonapi

    def address(name: str) -> int:
        return ctypes.cast(getattr(api, name), ctypes.c_void_p).value or 0

    get = api.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    from numpy._core import _multiarray_umath  # type: ignore[attr-defined]

    functions = (ctypes.c_void_p * 300).from_address(get(_multiarray_umath._ARRAY_API, None))
    return {
        "vectorcall": address("PyObject_Vectorcall"),
        "array_type": id(np.ndarray),
        "empty": functions[EMPTY] or 0,
        "incref": address("Py_IncRef"),
        "decref": address("Py_DecRef"),
        "save_thread": address("PyEval_SaveThread"),
        "restore_thread": address("PyEval_RestoreThread"),
        "out": id(sys.intern("out")),
        "tuple_new": address("PyTuple_New"),
        "tuple_set": address("PyTuple_SetItem"),
    }


def make_builtin(
    library: Library, slow: Callable[..., Any], types: list[Type], constants: list[np.ndarray], workspace: int
) -> Callable[..., Any]:
    """The emitted entry as a Python built-in; it keeps alive what it needs."""
    memory = np.zeros(workspace + 128, np.uint8)
    start = (memory.ctypes.data + 127) // 64 * 64  # the word before it tells whether the workspace is in use
    known = {**_addresses(), "slow": id(slow), "workspace": start, "busy": start - 64}
    descriptors = [t.element.dtype for t in types]
    table = [*(known[name] for name in TABLE), *map(id, descriptors), *(c.ctypes.data for c in constants)]
    itself = b"".join(a.to_bytes(8, "little") for a in table)
    method = _Method(b"call", library.addresses["call"], FAST_WITH_KEYWORDS, None)
    kept = [library, memory, slow, descriptors, constants, method]
    new = ctypes.pythonapi.PyCFunction_NewEx
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object, ctypes.py_object]
    return new(ctypes.addressof(method), itself, kept)
