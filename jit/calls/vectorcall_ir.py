"""The machine code that Python calls: it checks the arguments, makes or checks the results, and
runs the program.

    PyObject *call(PyObject *self, PyObject *const *given, size_t count, PyObject *names)      CPython's vectorcall

The object that is called has a *way*, WAY, and a way leads to the table of a program, TABLE: its
words, then a record for each argument and result, then the constants' addresses. An argument's
sizes are numbers, or the places (as -1 - place) of unknown ones among the sizes of a call. What
follows from those is told by an entry: the sizes it is for, whether to let other threads run, then
the shape and the number of bytes of each array. Where all sizes are known there is one entry; else
it is looked for among the slots, of which at least half are empty. What does not fit a way is left
to the next one, and at last to the slow entry, which says what is wrong, or makes an entry for
sizes that are new.
"""

import re
from collections.abc import Sequence

from ..runtime.fp_environment_ir import declarations, in_default_environment, register_of
from .pytree_ir import FORMS

DATA, RANK, SHAPE, DESCRIPTOR, FLAGS = (
    16,
    24,
    32,
    56,
    64,
)  # places in a NumPy array object, in bytes
# the place in a descriptor of what tells the elements' type: its kind, letter, order of bytes,
# flags and number
ELEMENT = 24
CONTIGUOUS, ALIGNED, WRITEABLE = 0x1, 0x100, 0x400
HEAD = 16  # bytes of an object before what is its own: the code's address, and the way's
WAY = ("table", "positional", "form", "slow", "next")
TABLE = (
    "arguments",
    "results",
    "constants",
    "sizes",
    "room",
    "program",
    "only",
    "slots",
    "workspace",
)
# bytes of what a table says of an array: its descriptor, its rank, an argument's sizes, and the
# elements' type
RECORD = 32
SHAPED = 16  # bytes of what an entry says of an array: where its shape is, and its number of bytes
BUSY = 64  # bytes before the workspace where it is told whether it is in use
FACTOR = 0x9E3779B97F4A7C15  # odd: what sizes are mixed by
FUNCTIONS = """
def PyObject_Vectorcall(function: ptr, given: ptr, count: i64, names: ptr) -> ptr: ...
def empty_array(rank: i32, shape: ptr, descriptor: ptr, is_fortran: i32) -> ptr: ...
def Py_IncRef(object: ptr) -> void: ...
def Py_DecRef(object: ptr) -> void: ...
def PyEval_SaveThread() -> ptr: ...
def PyEval_RestoreThread(thread: ptr) -> void: ...
def PyTuple_New(size: i64) -> ptr: ...
def PyTuple_SetItem(tuple: ptr, place: i64, object: ptr) -> i32: ...
def PyErr_Clear() -> void: ...
def PyErr_Occurred() -> ptr: ...
def PyDict_Next(dict: ptr, position: ptr, key: ptr, value: ptr) -> i32: ...
"""
PYTHON = re.findall(r"def (Py\w+)", FUNCTIONS)
OBJECTS = ("array_type", "tuple_type", "list_type", "dict_type", "out")


def slot(sizes: Sequence[int], shift: int) -> int:
    """The slot of the entry for these sizes, or the first to probe if it is taken."""
    mixed = 0
    for n in sizes:
        mixed = (mixed + n) * FACTOR % 2**64
    return mixed >> shift


def _word(name: str, type: str = "i64") -> str:
    """A word of the table, or of the way."""
    base, words = ("way", WAY) if name in WAY else ("table", TABLE)
    return f"{type}[{base} + {8 * words.index(name)}]"


def call_source() -> str:
    """The functions, of which `call` is the one that Python calls."""
    register = register_of()
    head = (
        "internal i32 @run(ptr %program, ptr %pointers, ptr %sizes, ptr %workspace) "
        "alwaysinline nounwind"
    )
    run = in_default_environment(
        head, "%program", ("ptr %pointers", "ptr %sizes", "ptr %workspace"), register
    )
    known = "\n".join(
        [*(f"@{name} = external global i8" for name in OBJECTS), declarations(register), run]
    )
    return "\n".join([repr(known), FUNCTIONS, FORMS, CALL])


CALL = f"""
# The data of an array that is of a type and shape, or null. Sizes seen first are noted.
@alwaysinline
def check(array: ptr, record: ptr, asked: ptr, known: ptr, flags: i32) -> ptr:
    if ptr[array + 8] != array_type:
        return None
    descriptor = ptr[array + {DESCRIPTOR}]
    if descriptor != ptr[record] and i64[descriptor + {ELEMENT}] != i64[record + 24]:
        return None
    rank = i32[array + {RANK}]
    if rank != i32[record + 8] or i32[array + {FLAGS}] & flags != flags:
        return None
    shape = ptr[array + {SHAPE}]
    axes = ir(i64, "zext i32 {{}} to i64", rank)
    for k in range(axes):
        size = i64[shape + 8 * k]
        written = i64[asked + 8 * k]
        if size != written:
            if written >= 0:
                return None
            place = known + 8 * (written ^ -1)
            if size != i64[place]:
                if i64[place] >= 0:
                    return None
                i64[place] = size
    return ptr[array + {DATA}]

@export
def call(self: ptr, given: ptr, count: i64, names: ptr) -> ptr:
    way = ptr[self + {HEAD + 8}]
    n = count & 9223372036854775807
    named = given + 8 * n
    while True:
        if n == {_word("positional")}:
            if {_word("form", "ptr")} == None:
                answer = served({_word("table", "ptr")}, given, named, names)
            else:
                answer = served_apart({_word("table", "ptr")}, {_word("form", "ptr")}, given, n, named, names)
            if answer != None:
                return answer
        if PyErr_Occurred() != None:
            return None
        slow = {_word("slow", "ptr")}
        way = {_word("next", "ptr")}
        if way == None:
            return ir(ptr, "tail call ptr @PyObject_Vectorcall(ptr {{}}, ptr {{}}, i64 {{}}, ptr {{}})", slow, given, count, names)

# of arguments in structures, which are kept until the end: others may take them out of lists meanwhile
def served_apart(table: ptr, form: ptr, given: ptr, n: i64, named: ptr, names: ptr) -> ptr:
    arguments = {_word("arguments")}
    objects = ir(ptr, "alloca ptr, i64 {{}}", arguments)
    if not taken_apart(given, n, form, objects):
        return None
    for h in range(arguments):
        Py_IncRef(ptr[objects + 8 * h])
    answer = served(table, objects, named, names)
    for l in range(arguments):
        Py_DecRef(ptr[objects + 8 * l])
    return answer

# the result, or null: then nothing was done, and there is no exception
def served(table: ptr, objects: ptr, named: ptr, names: ptr) -> ptr:
    arguments = {_word("arguments")}
    results = {_word("results")}
    sizes = {_word("sizes")}
    pointers = ir(ptr, "alloca ptr, i64 {{}}", {_word("room")})
    known = pointers + 8 * ({_word("room")} - sizes)
    records = table + {8 * len(TABLE)}
    for u in range(sizes):
        i64[known + 8 * u] = -1
    for a in range(arguments):
        record = records + {RECORD} * a
        data = check(ptr[objects + 8 * a], record, ptr[record + 16], known, {CONTIGUOUS | ALIGNED})
        if data == None:
            return None
        ptr[pointers + 8 * a] = data
    entry = {_word("only", "ptr")}
    if entry == None:
        entry = entry_of({_word("slots", "ptr")}, known, sizes)
        if entry == None:
            return None
    shapes = entry + 8 * sizes + 8
    workspace = {_word("workspace", "ptr")}
    busy = workspace + -{BUSY}
    if workspace != None and ir(i32, "atomicrmw xchg ptr {{}}, i32 1 acquire", busy) != 0:
        return None
    if names == None:
        answer = new_results(arguments, results, records, shapes, pointers)
    else:
        answer = given_results(arguments, results, records, shapes, pointers, known, named, names)
    if answer == None:
        PyErr_Clear()
    else:
        arrays = arguments + results
        for c in range({_word("constants")}):
            ptr[pointers + 8 * (arrays + c)] = ptr[records + {RECORD} * arrays + 8 * c]
        thread = None
        if i64[entry + 8 * sizes] != 0:
            thread = PyEval_SaveThread()
        status = ir(i32, "call i32 @run(ptr {{}}, ptr {{}}, ptr {{}}, ptr {{}})", {_word("program", "ptr")}, pointers, known, workspace)
        if thread != None:
            PyEval_RestoreThread(thread)
    if workspace != None:
        ir(void, "store atomic i32 0, ptr {{}} release, align 4", busy)
    if answer != None and status != 0:
        Py_DecRef(answer)
        return None
    return answer

@alwaysinline
def entry_of(slots: ptr, known: ptr, sizes: i64) -> ptr:
    mixed = 0
    for x in range(sizes):
        mixed = (mixed + i64[known + 8 * x]) * {FACTOR - 2**64}
    slot = mixed >> i64[slots]
    while True:
        candidate = ptr[slots + 8 + 8 * slot]
        if candidate == None:
            return None
        s = 0
        while s < sizes and i64[known + 8 * s] == i64[candidate + 8 * s]:
            s = s + 1
        if s == sizes:
            return candidate
        slot = slot + 1 & -1 >> i64[slots]

@alwaysinline
def given_results(
    arguments: i64, results: i64, records: ptr, shapes: ptr, pointers: ptr, known: ptr, named: ptr, names: ptr
) -> ptr:
    if i64[names + 16] != 1 or ptr[names + 24] != out:
        return None
    whole = ptr[named]
    if results != 1:
        if ptr[whole + 8] != tuple_type or i64[whole + 16] != results:
            return None
        named = whole + 24
    for r in range(results):
        n = arguments + r
        shaped = shapes + {SHAPED} * n
        data = check(ptr[named + 8 * r], records + {RECORD} * n, ptr[shaped], known, {CONTIGUOUS | ALIGNED | WRITEABLE})
        if data == None:
            return None
        end = data + i64[shaped + 8]
        for o in range(n):
            other = ptr[pointers + 8 * o]
            if ir(i1, "icmp ugt ptr {{}}, {{}}", end, other):
                if ir(i1, "icmp ugt ptr {{}}, {{}}", other + i64[shapes + {SHAPED} * o + 8], data):
                    return None
        ptr[pointers + 8 * n] = data
    Py_IncRef(whole)
    return whole

@alwaysinline
def new_results(arguments: i64, results: i64, records: ptr, shapes: ptr, pointers: ptr) -> ptr:
    whole = None
    if results != 1:
        whole = PyTuple_New(results)
        if whole == None:
            return None
    for m in range(results):
        n = arguments + m
        record = records + {RECORD} * n
        descriptor = ptr[record]
        Py_IncRef(descriptor)
        array = empty_array(i32[record + 8], ptr[shapes + {SHAPED} * n], descriptor, 0)
        if array == None:
            if whole != None:
                Py_DecRef(whole)
            return None
        ptr[pointers + 8 * n] = ptr[array + {DATA}]
        if results == 1:
            whole = array
        else:
            PyTuple_SetItem(whole, m, array)
    return whole
"""
