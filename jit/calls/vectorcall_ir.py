"""The machine code that Python calls, as LLVM IR: it looks at the arguments of a call, makes or checks its results, and runs
the program.

    PyObject *call(PyObject *self, PyObject *const *given, size_t count, PyObject *names)      CPython's vectorcall

The object that is called has a *way*, WAY, and a way leads to the table of a program, TABLE: its words, then a record for each
argument and result, then the constants' addresses. An argument's sizes are numbers, or the places (as -1 - place) of unknown
ones among the sizes of a call. What follows from those is told by an entry: the sizes it is for, whether to let other threads
run, then the shape and the number of bytes of each array. Where all sizes are known there is one entry; else it is looked for
among the slots, of which at least half are empty. What does not fit a way is left to the next one, and at last to the slow entry, which says what is wrong, or
makes an entry for sizes that are new.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..runtime.fp_environment import declarations, in_default_environment, register_of
from .pytree_ir import FORMS, counted, item, load, when

DATA, RANK, SHAPE, DESCRIPTOR, FLAGS = 16, 24, 32, 56, 64  # places in a NumPy array object, in bytes
# the place in a descriptor of what tells the elements' type: its kind, letter, order of bytes, flags and number
ELEMENT = 24
CONTIGUOUS, ALIGNED, WRITEABLE = 0x1, 0x100, 0x400
HEAD = 16  # bytes of an object before what is its own: the code's address, and the way's
WAY = ("table", "positional", "form", "slow", "next")
TABLE = ("arguments", "results", "constants", "sizes", "room", "program", "only", "slots", "workspace")
# bytes of what a table says of an array: its descriptor, its rank, an argument's sizes, and the elements' type
RECORD = 32
SHAPED = 16  # bytes of what an entry says of an array: where its shape is, and its number of bytes
BUSY = 64  # bytes before the workspace where it is told whether it is in use
FACTOR = 0x9E3779B97F4A7C15  # odd: what sizes are mixed by
FUNCTIONS = {
    "PyObject_Vectorcall": "ptr (ptr, ptr, i64, ptr)", "empty_array": "ptr (i32, ptr, ptr, i32)",
    "Py_IncRef": "void (ptr)", "Py_DecRef": "void (ptr)", "PyEval_SaveThread": "ptr ()",
    "PyEval_RestoreThread": "void (ptr)", "PyTuple_New": "ptr (i64)", "PyTuple_SetItem": "i32 (ptr, i64, ptr)",
    "PyErr_Clear": "void ()", "PyErr_Occurred": "ptr ()", "PyDict_Next": "i32 (ptr, ptr, ptr, ptr)",
}  # fmt: skip
OBJECTS = ("array_type", "tuple_type", "list_type", "dict_type", "out")


def slot(sizes: Sequence[int], shift: int) -> int:
    """The slot of the entry for these sizes, or the first to probe if it is taken."""
    mixed = 0
    for n in sizes:
        mixed = (mixed + n) * FACTOR % 2**64
    return mixed >> shift


def _word(name: str, type: str = "i64") -> str:
    """The instructions that load a word of the table, or of the way."""
    base, words = ("way", WAY) if name in WAY else ("table", TABLE)
    return load(name, base, 8 * words.index(name), type)


def call_text() -> str:
    """The IR of `@call`."""
    known = [f"declare {type.replace(' (', f' @{name}(', 1)}" for name, type in FUNCTIONS.items()]
    known += [f"@{name} = external global i8" for name in OBJECTS]
    register = register_of()
    head = "internal i32 @run(ptr %program, ptr %pointers, ptr %sizes, ptr %workspace) alwaysinline nounwind"
    run = in_default_environment(head, "%program", ("ptr %pointers", "ptr %sizes", "ptr %workspace"), register)
    return "\n".join([*known, declarations(register), run, CHECK, FORMS, CALL])


# The data of an array that is of a type and shape, or null. Sizes seen first are noted.
CHECK = f"""
define internal ptr @check(ptr %array, ptr %record, ptr %asked, ptr %known, i32 %flags) alwaysinline nounwind {{
entry:
  {load("type", "array", 8)}
  {when("is_array", "eq ptr %type, @array_type", "typed", "no")}
typed:
  {load("descriptor", "array", DESCRIPTOR)}
  {load("wanted", "record", 0)}
  {when("same", "eq ptr %descriptor, %wanted", "ranked", "copied")}
copied:
  {load("element", "descriptor", ELEMENT, "i64")}
  {load("element_wanted", "record", 24, "i64")}
  {when("alike", "eq i64 %element, %element_wanted", "ranked", "no")}
ranked:
  {load("rank", "array", RANK, "i32")}
  {load("rank_wanted", "record", 8, "i32")}
  {when("same_rank", "eq i32 %rank, %rank_wanted", "flagged", "no")}
flagged:
  {load("has", "array", FLAGS, "i32")}
  %common = and i32 %has, %flags
  {when("all", "eq i32 %common, %flags", "shaped", "no")}
shaped:
  {load("shape", "array", SHAPE)}
  %axes = zext i32 %rank to i64
  br label %axis
axis:
  %k = phi i64 [ 0, %shaped ], [ %next, %size ], [ %next, %look ], [ %next, %first ]
  {when("more", "ult i64 %k, %axes", "size", "yes")}
size:
  {item("one", "shape", "k", "i64")}
  {item("written", "asked", "k", "i64")}
  %next = add i64 %k, 1
  {when("as_written", "eq i64 %one, %written", "axis", "other")}
other:
  {when("unknown", "slt i64 %written, 0", "look", "no")}
look:
  %place = xor i64 %written, -1
  {item("earlier", "known", "place", "i64")}
  %as_before = icmp eq i64 %one, %earlier
  %is_first = icmp slt i64 %earlier, 0
  br i1 %as_before, label %axis, label %new
new:
  br i1 %is_first, label %first, label %no
first:
  store i64 %one, ptr %earlier.at
  br label %axis
yes:
  {load("data", "array", DATA)}
  ret ptr %data
no:
  ret ptr null
}}
"""

CALL = f"""
define ptr @call(ptr %self, ptr %given, i64 %count, ptr %names) nounwind {{
entry:
  {load("first", "self", HEAD + 8)}
  %n = and i64 %count, 9223372036854775807
  %named = getelementptr ptr, ptr %given, i64 %n
  br label %try
try:
  %way = phi ptr [ %first, %entry ], [ %next, %other_way ]
  {_word("positional")}
  {_word("form", "ptr")}
  {_word("table", "ptr")}
  {when("as_many", "eq i64 %n, %positional", "counted", "other")}
counted:
  {when("is_plain", "eq ptr %form, null", "plain", "structured")}
plain:
  %answer = call ptr @served(ptr %table, ptr %given, ptr %named, ptr %names)
  {when("is_served", "ne ptr %answer, null", "return", "other")}
return:
  ret ptr %answer
structured:
  %found = call ptr @served_apart(ptr %table, ptr %form, ptr %given, i64 %n, ptr %named, ptr %names)
  {when("is_found", "ne ptr %found, null", "return_found", "other")}
return_found:
  ret ptr %found
other:
  %error = call ptr @PyErr_Occurred()
  %raised = icmp ne ptr %error, null
  br i1 %raised, label %no_result, label %other_way
no_result:
  ret ptr null
other_way:
  {_word("next", "ptr")}
  {when("any_next", "ne ptr %next, null", "try", "slowly")}
slowly:
  {_word("slow", "ptr")}
  %slow_answer = tail call ptr @PyObject_Vectorcall(ptr %slow, ptr %given, i64 %count, ptr %names)
  ret ptr %slow_answer
}}

; of arguments in structures, which are kept until the end: others may take them out of lists meanwhile
define internal ptr @served_apart(ptr %table, ptr %form, ptr %given, i64 %n, ptr %named, ptr %names) nounwind {{
entry:
  {_word("arguments")}
  %objects = alloca ptr, i64 %arguments
  %is_formed = call i1 @taken_apart(ptr %given, i64 %n, ptr %form, ptr %objects)
  br i1 %is_formed, label %hold, label %no
no:
  ret ptr null
hold:
  {counted("h", "entry", "hold_one", "arguments", "hold_one", "held")}
hold_one:
  {item("h_object", "objects", "h")}
  call void @Py_IncRef(ptr %h_object)
  %h_next = add i64 %h, 1
  br label %hold
held:
  %answer = call ptr @served(ptr %table, ptr %objects, ptr %named, ptr %names)
  br label %let
let:
  {counted("l", "held", "let_one", "arguments", "let_one", "end")}
let_one:
  {item("l_object", "objects", "l")}
  call void @Py_DecRef(ptr %l_object)
  %l_next = add i64 %l, 1
  br label %let
end:
  ret ptr %answer
}}

; the result, or null: then nothing was done, and there is no exception
define internal ptr @served(ptr %table, ptr %objects, ptr %named, ptr %names) nounwind {{
entry:
  {_word("room")}
  {_word("arguments")}
  {_word("sizes")}
  %pointers = alloca ptr, i64 %room
  %places = sub i64 %room, %sizes
  %known = getelementptr i64, ptr %pointers, i64 %places
  %records = getelementptr i8, ptr %table, i64 {8 * len(TABLE)}
  br label %unknown
unknown:
  {counted("u", "entry", "unknown_one", "sizes", "unknown_one", "argument")}
unknown_one:
  %u_at = getelementptr i64, ptr %known, i64 %u
  store i64 -1, ptr %u_at
  %u_next = add i64 %u, 1
  br label %unknown
argument:
  {counted("a", "unknown", "argument_good", "arguments", "argument_check", "checked")}
argument_check:
  {item("a_array", "objects", "a")}
  %a_offset = mul i64 %a, {RECORD}
  %a_record = getelementptr i8, ptr %records, i64 %a_offset
  {load("a_sizes", "a_record", 16)}
  %a_data = call ptr @check(ptr %a_array, ptr %a_record, ptr %a_sizes, ptr %known, i32 {CONTIGUOUS | ALIGNED})
  %a_next = add i64 %a, 1
  {when("a_fits", "ne ptr %a_data, null", "argument_good", "leave")}
argument_good:
  %a_place = getelementptr ptr, ptr %pointers, i64 %a
  store ptr %a_data, ptr %a_place
  br label %argument
checked:
  {_word("only", "ptr")}
  {when("is_only", "ne ptr %only, null", "entered", "mix")}
mix:
  %mixed = phi i64 [ 0, %checked ], [ %mixed_next, %mix_one ]
  {counted("x", "checked", "mix_one", "sizes", "mix_one", "mixed_all")}
mix_one:
  {item("x_size", "known", "x", "i64")}
  %mixed_sum = add i64 %mixed, %x_size
  %mixed_next = mul i64 %mixed_sum, {FACTOR - 2**64}
  %x_next = add i64 %x, 1
  br label %mix
mixed_all:
  {_word("slots", "ptr")}
  {load("shift", "slots", 0, "i64")}
  %in_slots = getelementptr i8, ptr %slots, i64 8
  %first_slot = lshr i64 %mixed, %shift
  %last_slot = lshr i64 -1, %shift
  br label %probe
probe:
  %slot = phi i64 [ %first_slot, %mixed_all ], [ %next_slot, %differs ]
  {item("candidate", "in_slots", "slot")}
  {when("any_candidate", "ne ptr %candidate, null", "same", "leave")}
differs:
  %slot_after = add i64 %slot, 1
  %next_slot = and i64 %slot_after, %last_slot
  br label %probe
same:
  {counted("s", "probe", "same_one", "sizes", "same_one", "entered")}
same_one:
  {item("s_size", "known", "s", "i64")}
  {item("s_wanted", "candidate", "s", "i64")}
  %s_next = add i64 %s, 1
  {when("s_same", "eq i64 %s_size, %s_wanted", "same", "differs")}
entered:
  %for_sizes = phi ptr [ %only, %checked ], [ %candidate, %same ]
  {item("release", "for_sizes", "sizes", "i64")}
  %shapes = getelementptr i64, ptr %release.at, i64 1
  {_word("workspace", "ptr")}
  {_word("results")}
  %busy = getelementptr i8, ptr %workspace, i64 -{BUSY}
  %single = icmp eq i64 %results, 1
  {when("has_memory", "ne ptr %workspace, null", "take", "results_begin")}
take:
  %taken = atomicrmw xchg ptr %busy, i32 1 acquire
  {when("free", "eq i32 %taken, 0", "results_begin", "leave")}
results_begin:
  {when("bare", "eq ptr %names, null", "fresh", "asked")}

asked:
  {load("names_count", "names", 16, "i64")}
  {load("name", "names", 24)}
  %one_name = icmp eq i64 %names_count, 1
  %is_out = icmp eq ptr %name, @out
  %out_only = and i1 %one_name, %is_out
  br i1 %out_only, label %target, label %give_up
target:
  %whole = load ptr, ptr %named
  br i1 %single, label %outs, label %pack
pack:
  {load("pack_type", "whole", 8)}
  {when("is_tuple", "eq ptr %pack_type, @tuple_type", "pack_size", "give_up")}
pack_size:
  {load("pack_count", "whole", 16, "i64")}
  %pack_fits = icmp eq i64 %pack_count, %results
  %items = getelementptr i8, ptr %whole, i64 24
  br i1 %pack_fits, label %outs, label %give_up
outs:
  %out_list = phi ptr [ %named, %target ], [ %items, %pack_size ]
  br label %result
result:
  {counted("r", "outs", "result_good", "results", "result_check", "keep")}
result_check:
  {item("r_array", "out_list", "r")}
  %r_index = add i64 %arguments, %r
  %r_offset = mul i64 %r_index, {RECORD}
  %r_record = getelementptr i8, ptr %records, i64 %r_offset
  %r_shape_offset = mul i64 %r_index, {SHAPED}
  %r_shaped = getelementptr i8, ptr %shapes, i64 %r_shape_offset
  {load("r_shape", "r_shaped", 0)}
  {load("r_bytes", "r_shaped", 8, "i64")}
  %r_data = call ptr @check(ptr %r_array, ptr %r_record, ptr %r_shape, ptr %known, i32 {CONTIGUOUS | ALIGNED | WRITEABLE})
  %r_end = getelementptr i8, ptr %r_data, i64 %r_bytes
  %r_next = add i64 %r, 1
  {when("r_fits", "ne ptr %r_data, null", "other", "give_up")}
other:
  {counted("o", "result_check", "apart", "r_index", "apart", "result_good")}
apart:
  {item("o_data", "pointers", "o")}
  %o_offset = mul i64 %o, {SHAPED}
  %o_shaped = getelementptr i8, ptr %shapes, i64 %o_offset
  {load("o_bytes", "o_shaped", 8, "i64")}
  %o_end = getelementptr i8, ptr %o_data, i64 %o_bytes
  %o_next = add i64 %o, 1
  %before = icmp ule ptr %r_end, %o_data
  %behind = icmp ule ptr %o_end, %r_data
  %is_apart = or i1 %before, %behind
  br i1 %is_apart, label %other, label %give_up
result_good:
  %r_place = getelementptr ptr, ptr %pointers, i64 %r_index
  store ptr %r_data, ptr %r_place
  br label %result
keep:
  call void @Py_IncRef(ptr %whole)
  br label %run

fresh:
  br i1 %single, label %making, label %make_tuple
make_tuple:
  %tuple = call ptr @PyTuple_New(i64 %results)
  {when("got_tuple", "ne ptr %tuple, null", "making", "no_memory")}
making:
  %m = phi i64 [ 0, %fresh ], [ 0, %make_tuple ], [ %m_next, %put ]
  %m_last = phi ptr [ null, %fresh ], [ %tuple, %make_tuple ], [ %m_whole, %put ]
  {when("m_more", "slt i64 %m, %results", "making_one", "run")}
making_one:
  %m_index = add i64 %arguments, %m
  %m_offset = mul i64 %m_index, {RECORD}
  %m_record = getelementptr i8, ptr %records, i64 %m_offset
  %m_shape_offset = mul i64 %m_index, {SHAPED}
  %m_shaped = getelementptr i8, ptr %shapes, i64 %m_shape_offset
  {load("m_descriptor", "m_record", 0)}
  {load("m_rank", "m_record", 8, "i32")}
  {load("m_shape", "m_shaped", 0)}
  call void @Py_IncRef(ptr %m_descriptor)
  %m_array = call ptr @empty_array(i32 %m_rank, ptr %m_shape, ptr %m_descriptor, i32 0)
  %m_next = add i64 %m, 1
  {when("m_got", "ne ptr %m_array, null", "made", "not_made")}
made:
  {load("m_data", "m_array", DATA)}
  %m_place = getelementptr ptr, ptr %pointers, i64 %m_index
  store ptr %m_data, ptr %m_place
  br i1 %single, label %put, label %put_in_tuple
put_in_tuple:
  %ignored = call i32 @PyTuple_SetItem(ptr %m_last, i64 %m, ptr %m_array)
  br label %put
put:
  %m_whole = phi ptr [ %m_array, %made ], [ %m_last, %put_in_tuple ]
  br label %making
not_made:
  {when("any_tuple", "ne ptr %m_last, null", "drop", "no_memory")}
drop:
  call void @Py_DecRef(ptr %m_last)
  br label %no_memory
no_memory:
  call void @PyErr_Clear()
  br label %give_up

run:
  %answer = phi ptr [ %whole, %keep ], [ %m_last, %making ]
  {_word("constants")}
  {_word("program", "ptr")}
  %arrays = add i64 %arguments, %results
  %constant_offset = mul i64 %arrays, {RECORD}
  %constant_list = getelementptr i8, ptr %records, i64 %constant_offset
  %constant_places = getelementptr ptr, ptr %pointers, i64 %arrays
  br label %constant
constant:
  {counted("c", "run", "constant_put", "constants", "constant_put", "ready")}
constant_put:
  {item("c_data", "constant_list", "c")}
  %c_place = getelementptr ptr, ptr %constant_places, i64 %c
  store ptr %c_data, ptr %c_place
  %c_next = add i64 %c, 1
  br label %constant
ready:
  {when("releases", "ne i64 %release, 0", "run_released", "run_held")}
run_released:
  %thread = call ptr @PyEval_SaveThread()
  %released_status = call i32 @run(ptr %program, ptr %pointers, ptr %known, ptr %workspace)
  call void @PyEval_RestoreThread(ptr %thread)
  br label %done
run_held:
  %held_status = call i32 @run(ptr %program, ptr %pointers, ptr %known, ptr %workspace)
  br label %done
done:
  %status = phi i32 [ %released_status, %run_released ], [ %held_status, %run_held ]
  br i1 %has_memory, label %give, label %given_back
give:
  store atomic i32 0, ptr %busy release, align 4
  br label %given_back
given_back:
  {when("good", "eq i32 %status, 0", "return", "undo")}
return:
  ret ptr %answer

undo:
  call void @Py_DecRef(ptr %answer)
  br label %leave
give_up:
  br i1 %has_memory, label %give_memory, label %leave
give_memory:
  store atomic i32 0, ptr %busy release, align 4
  br label %leave
leave:
  ret ptr null
}}
"""
