"""The machine code that Python calls, as LLVM IR: it looks at the arguments of a call, makes or checks its results, and runs
the program that the called object's table names.

    PyObject *call(PyObject *self, PyObject *const *given, size_t count, PyObject *names)      CPython's vectorcall

The table begins with WORDS; then come a record for each argument and result, and the constants' addresses. An argument's sizes
are numbers, or the places (as -1 - place) of unknown ones among the sizes of a call. What follows from those is told by an
entry: the sizes it is for, whether to let other threads run, then the shape and the number of bytes of each array. Where all sizes are known there is one
entry; else it is looked for among SLOTS of them, and what is not there is left to the slow entry, which checks the call and
puts it there.
"""

from __future__ import annotations

from collections.abc import Sequence

DATA, RANK, SHAPE, DESCRIPTOR, FLAGS = 16, 24, 32, 56, 64  # places in a NumPy array object, in bytes
CONTIGUOUS, ALIGNED, WRITEABLE = 0x1, 0x100, 0x400
HEAD = 16  # bytes of an object before what is its own: the code's address, and the table's
WORDS = ("arguments", "results", "constants", "sizes", "program", "within", "only", "slots", "workspace", "slow", "vectorcall",
         "array_type", "empty", "incref", "decref", "save_thread", "restore_thread", "out", "tuple_new", "tuple_set")  # fmt: skip
NUMBERS = WORDS[:4]
RECORD = 32  # bytes of what the table says of an array: its descriptor, its rank, an argument's sizes, and a word more
SHAPED = 16  # bytes of what an entry says of an array: where its shape is, and its number of bytes
BUSY = 64  # bytes before the workspace where it is told whether it is in use
SLOTS = 64
FACTOR = 0x9E3779B97F4A7C15  # odd: what sizes are mixed by


def slot(sizes: Sequence[int]) -> int:
    """Where the entry for these sizes is."""
    mixed = 0
    for n in sizes:
        mixed = (mixed + n) * FACTOR % 2**64
    return mixed >> 58


def _field(name: str, type: str = "i64") -> str:
    """The instructions that load a word of the table."""
    return f"  %{name}.at = getelementptr i8, ptr %table, i64 {8 * WORDS.index(name)}\n  %{name} = load {type}, ptr %{name}.at"


def call_text() -> str:
    """The IR of `@call`."""
    held, free = CONTIGUOUS | ALIGNED, CONTIGUOUS | ALIGNED | WRITEABLE
    numbers = "\n".join(_field(name) for name in NUMBERS)
    pointers = "\n".join(_field(name, "ptr") for name in WORDS if name not in NUMBERS)
    return f"""
define internal ptr @check(ptr %array, ptr %record, ptr %wanted_sizes, ptr %known, ptr %array_type, i32 %flags) alwaysinline nounwind {{
entry:
  %type_at = getelementptr i8, ptr %array, i64 8
  %type = load ptr, ptr %type_at
  %is_array = icmp eq ptr %type, %array_type
  br i1 %is_array, label %typed, label %no
typed:
  %descriptor_at = getelementptr i8, ptr %array, i64 {DESCRIPTOR}
  %descriptor = load ptr, ptr %descriptor_at
  %wanted = load ptr, ptr %record
  %same_type = icmp eq ptr %descriptor, %wanted
  br i1 %same_type, label %ranked, label %no
ranked:
  %rank_at = getelementptr i8, ptr %array, i64 {RANK}
  %rank32 = load i32, ptr %rank_at
  %rank = sext i32 %rank32 to i64
  %rank_wanted_at = getelementptr i8, ptr %record, i64 8
  %rank_wanted = load i64, ptr %rank_wanted_at
  %same_rank = icmp eq i64 %rank, %rank_wanted
  br i1 %same_rank, label %flagged, label %no
flagged:
  %flags_at = getelementptr i8, ptr %array, i64 {FLAGS}
  %has = load i32, ptr %flags_at
  %common = and i32 %has, %flags
  %all = icmp eq i32 %common, %flags
  %shape_at = getelementptr i8, ptr %array, i64 {SHAPE}
  %shape = load ptr, ptr %shape_at
  br i1 %all, label %axis, label %no
axis:
  %k = phi i64 [ 0, %flagged ], [ %next, %compare ], [ %next, %first ]
  %more = icmp slt i64 %k, %rank
  br i1 %more, label %size, label %yes
size:
  %one_at = getelementptr i64, ptr %shape, i64 %k
  %one = load i64, ptr %one_at
  %other_at = getelementptr i64, ptr %wanted_sizes, i64 %k
  %written = load i64, ptr %other_at
  %next = add i64 %k, 1
  %unknown = icmp slt i64 %written, 0
  br i1 %unknown, label %look, label %compare
look:
  %place = xor i64 %written, -1
  %known_at = getelementptr i64, ptr %known, i64 %place
  %earlier = load i64, ptr %known_at
  %is_first = icmp slt i64 %earlier, 0
  br i1 %is_first, label %first, label %compare
first:
  store i64 %one, ptr %known_at
  br label %axis
compare:
  %other = phi i64 [ %written, %size ], [ %earlier, %look ]
  %same = icmp eq i64 %one, %other
  br i1 %same, label %axis, label %no
yes:
  %data_at = getelementptr i8, ptr %array, i64 {DATA}
  %data = load ptr, ptr %data_at
  ret ptr %data
no:
  ret ptr null
}}

define ptr @call(ptr %self, ptr %given, i64 %count, ptr %names) nounwind {{
entry:
  %table_at = getelementptr i8, ptr %self, i64 {HEAD + 8}
  %table = load ptr, ptr %table_at
{numbers}
{pointers}
  %busy = getelementptr i8, ptr %workspace, i64 -{BUSY}
  %records = getelementptr i8, ptr %table, i64 {8 * len(WORDS)}
  %n = and i64 %count, 9223372036854775807
  %arrays = add i64 %arguments, %results
  %places = add i64 %arrays, %constants
  %as_many = icmp eq i64 %n, %arguments
  br i1 %as_many, label %begin, label %slow_call
begin:
  %pointers = alloca ptr, i64 %places
  %known = alloca i64, i64 %sizes
  br label %unknown
unknown:
  %u = phi i64 [ 0, %begin ], [ %u_next, %unknown_one ]
  %u_more = icmp slt i64 %u, %sizes
  br i1 %u_more, label %unknown_one, label %argument
unknown_one:
  %u_at = getelementptr i64, ptr %known, i64 %u
  store i64 -1, ptr %u_at
  %u_next = add i64 %u, 1
  br label %unknown
argument:
  %a = phi i64 [ 0, %unknown ], [ %a_next, %argument_good ]
  %a_more = icmp slt i64 %a, %n
  br i1 %a_more, label %argument_check, label %checked
argument_check:
  %a_at = getelementptr ptr, ptr %given, i64 %a
  %a_array = load ptr, ptr %a_at
  %a_offset = mul i64 %a, {RECORD}
  %a_record = getelementptr i8, ptr %records, i64 %a_offset
  %a_sizes_at = getelementptr i8, ptr %a_record, i64 16
  %a_sizes = load ptr, ptr %a_sizes_at
  %a_data = call ptr @check(ptr %a_array, ptr %a_record, ptr %a_sizes, ptr %known, ptr %array_type, i32 {held})
  %a_next = add i64 %a, 1
  %a_fits = icmp ne ptr %a_data, null
  br i1 %a_fits, label %argument_good, label %slow_call
argument_good:
  %a_place = getelementptr ptr, ptr %pointers, i64 %a
  store ptr %a_data, ptr %a_place
  br label %argument
checked:
  %is_only = icmp ne ptr %only, null
  br i1 %is_only, label %entered, label %mix
mix:
  %mixed = phi i64 [ 0, %checked ], [ %mixed_next, %mix_one ]
  %x = phi i64 [ 0, %checked ], [ %x_next, %mix_one ]
  %x_more = icmp slt i64 %x, %sizes
  br i1 %x_more, label %mix_one, label %mixed_all
mix_one:
  %x_at = getelementptr i64, ptr %known, i64 %x
  %x_size = load i64, ptr %x_at
  %mixed_sum = add i64 %mixed, %x_size
  %mixed_next = mul i64 %mixed_sum, {FACTOR - 2**64}
  %x_next = add i64 %x, 1
  br label %mix
mixed_all:
  %slot = lshr i64 %mixed, {64 - SLOTS.bit_length() + 1}
  %slot_at = getelementptr ptr, ptr %slots, i64 %slot
  %candidate = load ptr, ptr %slot_at
  %any_candidate = icmp ne ptr %candidate, null
  br i1 %any_candidate, label %same, label %slow_call
same:
  %s = phi i64 [ 0, %mixed_all ], [ %s_next, %same_one ]
  %s_more = icmp slt i64 %s, %sizes
  br i1 %s_more, label %same_one, label %entered
same_one:
  %s_at = getelementptr i64, ptr %known, i64 %s
  %s_size = load i64, ptr %s_at
  %s_wanted_at = getelementptr i64, ptr %candidate, i64 %s
  %s_wanted = load i64, ptr %s_wanted_at
  %s_next = add i64 %s, 1
  %s_same = icmp eq i64 %s_size, %s_wanted
  br i1 %s_same, label %same, label %slow_call
entered:
  %for_sizes = phi ptr [ %only, %checked ], [ %candidate, %same ]
  %release_at = getelementptr i64, ptr %for_sizes, i64 %sizes
  %release = load i64, ptr %release_at
  %shapes = getelementptr i64, ptr %release_at, i64 1
  %any_within = icmp ne ptr %within, null
  br i1 %any_within, label %look, label %claim
look:
  %is_within = call i1 %within(ptr %pointers)
  br i1 %is_within, label %claim, label %slow_call
claim:
  %has_memory = icmp ne ptr %workspace, null
  br i1 %has_memory, label %take, label %results_begin
take:
  %taken = atomicrmw xchg ptr %busy, i32 1 acquire
  %free = icmp eq i32 %taken, 0
  br i1 %free, label %results_begin, label %slow_call
results_begin:
  %bare = icmp eq ptr %names, null
  br i1 %bare, label %fresh, label %named

named:
  %names_count_at = getelementptr i8, ptr %names, i64 16
  %names_count = load i64, ptr %names_count_at
  %one_name = icmp eq i64 %names_count, 1
  %name_at = getelementptr i8, ptr %names, i64 24
  %name = load ptr, ptr %name_at
  %is_out = icmp eq ptr %name, %out
  %out_only = and i1 %one_name, %is_out
  br i1 %out_only, label %target, label %leave
target:
  %target_at = getelementptr ptr, ptr %given, i64 %n
  %whole = load ptr, ptr %target_at
  %single = icmp eq i64 %results, 1
  br i1 %single, label %outs, label %pack
pack:
  %pack_type_at = getelementptr i8, ptr %whole, i64 8
  %pack_type = load ptr, ptr %pack_type_at
  %names_type_at = getelementptr i8, ptr %names, i64 8
  %names_type = load ptr, ptr %names_type_at
  %is_tuple = icmp eq ptr %pack_type, %names_type
  br i1 %is_tuple, label %pack_size, label %leave
pack_size:
  %pack_count_at = getelementptr i8, ptr %whole, i64 16
  %pack_count = load i64, ptr %pack_count_at
  %pack_fits = icmp eq i64 %pack_count, %results
  %items = getelementptr i8, ptr %whole, i64 24
  br i1 %pack_fits, label %outs, label %leave
outs:
  %out_list = phi ptr [ %target_at, %target ], [ %items, %pack_size ]
  br label %result
result:
  %r = phi i64 [ 0, %outs ], [ %r_next, %result_good ]
  %r_more = icmp slt i64 %r, %results
  br i1 %r_more, label %result_check, label %keep
result_check:
  %r_at = getelementptr ptr, ptr %out_list, i64 %r
  %r_array = load ptr, ptr %r_at
  %r_index = add i64 %arguments, %r
  %r_offset = mul i64 %r_index, {RECORD}
  %r_record = getelementptr i8, ptr %records, i64 %r_offset
  %r_shape_offset = mul i64 %r_index, {SHAPED}
  %r_shape_at = getelementptr i8, ptr %shapes, i64 %r_shape_offset
  %r_shape = load ptr, ptr %r_shape_at
  %r_data = call ptr @check(ptr %r_array, ptr %r_record, ptr %r_shape, ptr %known, ptr %array_type, i32 {free})
  %r_bytes_at = getelementptr i8, ptr %r_shape_at, i64 8
  %r_bytes = load i64, ptr %r_bytes_at
  %r_end = getelementptr i8, ptr %r_data, i64 %r_bytes
  %r_next = add i64 %r, 1
  %r_fits = icmp ne ptr %r_data, null
  br i1 %r_fits, label %other, label %leave
other:
  %o = phi i64 [ 0, %result_check ], [ %o_next, %apart ]
  %o_more = icmp slt i64 %o, %r_index
  br i1 %o_more, label %apart, label %result_good
apart:
  %o_at = getelementptr ptr, ptr %pointers, i64 %o
  %o_data = load ptr, ptr %o_at
  %o_offset = mul i64 %o, {SHAPED}
  %o_shape_at = getelementptr i8, ptr %shapes, i64 %o_offset
  %o_bytes_at = getelementptr i8, ptr %o_shape_at, i64 8
  %o_bytes = load i64, ptr %o_bytes_at
  %o_end = getelementptr i8, ptr %o_data, i64 %o_bytes
  %o_next = add i64 %o, 1
  %before = icmp ule ptr %r_end, %o_data
  %behind = icmp ule ptr %o_end, %r_data
  %is_apart = or i1 %before, %behind
  br i1 %is_apart, label %other, label %leave
result_good:
  %r_place = getelementptr ptr, ptr %pointers, i64 %r_index
  store ptr %r_data, ptr %r_place
  br label %result
keep:
  call void %incref(ptr %whole)
  br label %run

fresh:
  %alone = icmp eq i64 %results, 1
  br i1 %alone, label %make, label %make_tuple
make_tuple:
  %tuple = call ptr %tuple_new(i64 %results)
  %got_tuple = icmp ne ptr %tuple, null
  br i1 %got_tuple, label %make, label %failed
make:
  %made_tuple = phi ptr [ null, %fresh ], [ %tuple, %make_tuple ]
  br label %making
making:
  %m = phi i64 [ 0, %make ], [ %m_next, %put ]
  %m_last = phi ptr [ %made_tuple, %make ], [ %m_whole, %put ]
  %m_more = icmp slt i64 %m, %results
  br i1 %m_more, label %making_one, label %run
making_one:
  %m_index = add i64 %arguments, %m
  %m_offset = mul i64 %m_index, {RECORD}
  %m_record = getelementptr i8, ptr %records, i64 %m_offset
  %m_descriptor = load ptr, ptr %m_record
  %m_rank_at = getelementptr i8, ptr %m_record, i64 8
  %m_rank = load i32, ptr %m_rank_at
  %m_shape_offset = mul i64 %m_index, {SHAPED}
  %m_sizes_at = getelementptr i8, ptr %shapes, i64 %m_shape_offset
  %m_sizes = load ptr, ptr %m_sizes_at
  call void %incref(ptr %m_descriptor)
  %m_array = call ptr %empty(i32 %m_rank, ptr %m_sizes, ptr %m_descriptor, i32 0)
  %m_next = add i64 %m, 1
  %m_got = icmp ne ptr %m_array, null
  br i1 %m_got, label %made, label %not_made
made:
  %m_data_at = getelementptr i8, ptr %m_array, i64 {DATA}
  %m_data = load ptr, ptr %m_data_at
  %m_place = getelementptr ptr, ptr %pointers, i64 %m_index
  store ptr %m_data, ptr %m_place
  br i1 %alone, label %put, label %put_in_tuple
put_in_tuple:
  %ignored = call i32 %tuple_set(ptr %made_tuple, i64 %m, ptr %m_array)
  br label %put
put:
  %m_whole = phi ptr [ %m_array, %made ], [ %made_tuple, %put_in_tuple ]
  br label %making

run:
  %answer = phi ptr [ %whole, %keep ], [ %m_last, %making ]
  %constant_offset = mul i64 %arrays, {RECORD}
  %constant_list = getelementptr i8, ptr %records, i64 %constant_offset
  br label %constant
constant:
  %c = phi i64 [ 0, %run ], [ %c_next, %constant_put ]
  %c_more = icmp slt i64 %c, %constants
  br i1 %c_more, label %constant_put, label %ready
constant_put:
  %c_at = getelementptr ptr, ptr %constant_list, i64 %c
  %c_data = load ptr, ptr %c_at
  %c_index = add i64 %arrays, %c
  %c_place = getelementptr ptr, ptr %pointers, i64 %c_index
  store ptr %c_data, ptr %c_place
  %c_next = add i64 %c, 1
  br label %constant
ready:
  %releases = icmp ne i64 %release, 0
  br i1 %releases, label %run_released, label %run_held
run_released:
  %thread = call ptr %save_thread()
  %released_status = call i32 %program(ptr %pointers, ptr %known, ptr %workspace)
  call void %restore_thread(ptr %thread)
  br label %done
run_held:
  %held_status = call i32 %program(ptr %pointers, ptr %known, ptr %workspace)
  br label %done
done:
  %status = phi i32 [ %released_status, %run_released ], [ %held_status, %run_held ]
  br i1 %has_memory, label %give, label %given_back
give:
  store atomic i32 0, ptr %busy release, align 4
  br label %given_back
given_back:
  %good = icmp eq i32 %status, 0
  br i1 %good, label %return, label %undo
return:
  ret ptr %answer
undo:
  call void %decref(ptr %answer)
  br label %slow_call
leave:
  br i1 %has_memory, label %leave_memory, label %slow_call
leave_memory:
  store atomic i32 0, ptr %busy release, align 4
  br label %slow_call
slow_call:
  %slow_answer = call ptr %vectorcall(ptr %slow, ptr %given, i64 %count, ptr %names)
  ret ptr %slow_answer

not_made:
  %any_tuple = icmp ne ptr %made_tuple, null
  br i1 %any_tuple, label %drop, label %failed
drop:
  call void %decref(ptr %made_tuple)
  br label %failed
failed:
  br i1 %has_memory, label %failed_memory, label %no_memory
failed_memory:
  store atomic i32 0, ptr %busy release, align 4
  br label %no_memory
no_memory:
  ret ptr null
}}
"""
