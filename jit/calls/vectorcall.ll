; The machine code that Python calls: it checks the arguments, makes or checks the results, and runs
; the program.
;
;   PyObject *call(PyObject *self, PyObject *const *given, size_t count, PyObject *names)
;
; is CPython's vectorcall. The object that is called has a way, and a way leads to the table of a
; program: its words, then a record for each argument and result, then the constants' addresses. An
; argument's sizes are numbers, or the places (as -1 - place) of unknown ones among the sizes of a
; call. An entry holds what follows from those: whether to let other threads run, then the shape and
; the number of bytes of each array. Where all sizes are known there is one entry; else a plan
; computes it: steps, each of which has a value, and the last of which are the words of the entry.
; What does not fit a way is left to the next one, and at last to the slow entry, which reports what
; is wrong, or makes a plan for sizes that compare alike.
;
; vectorcall_ir.py has the names of the fields, and dispatch_table.py fills them. @run, which calls
; the program in the default floating-point environment, is defined by fp_environment_ir,
; @taken_apart in pytree.ll, and the layouts of objects in objects.ll.

%Way = type {
  ptr,  ; table
  i64,  ; positional: arguments
  ptr,  ; form: of arguments in structures, or null
  ptr,  ; slow: the entry in Python
  ptr,  ; next: another way, or null
  ptr   ; build: makes the structure of results from new ones, in Python; or null
}
%Table = type {
  i64,  ; arguments
  i64,  ; results
  i64,  ; constants
  i64,  ; sizes: unknown ones
  i64,  ; room: words for the addresses of arrays, then for sizes
  ptr,  ; program
  ptr,  ; only: the entry, where all sizes are known
  ptr,  ; workspace, or null; 64 bytes before it a word tells whether it is in use
  ptr,  ; plans: the first, or null
  i64,  ; values: that a plan has at most
  ptr   ; report: raises the error of a status, in Python, where results overwrite arguments; or null
}
%Plan = type {
  ptr,  ; next: another plan, or null
  i64,  ; count: of steps
  ptr,  ; steps
  i64   ; entry: the place among values where it begins
}
%Step = type {
  i64,  ; what is done, numbered as STEPS in vectorcall_ir.py
  i64,  ; a: a number, the place of a size, or that of an earlier step
  i64   ; b: the place of an earlier step
}
%Shaped = type {
  ptr,  ; shape
  i64   ; bytes
}

@tuple_type = external global i8
@out = external global i8  ; the string

declare i1 @is_like(ptr, ptr, i32, i32)
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare ptr @empty_array(i32, ptr, ptr, i32)
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @PyTuple_New(i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)
declare void @PyErr_Clear()
declare ptr @PyLong_FromLongLong(i64)
declare ptr @PyErr_Occurred()
declare i1 @taken_apart(ptr, i64, ptr, ptr)
declare i32 @run(ptr, ptr, ptr, ptr)
declare { i64, i1 } @llvm.smul.with.overflow.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)


; The data of an array that is of a type and shape, or null. Sizes seen first are noted.
define internal ptr @check(
  ptr %array, ptr %record, ptr %asked, ptr %known, i32 %flags
) alwaysinline nounwind {
entry:
  %is_like = call i1 @is_like(ptr %array, ptr %record, i32 %flags, i32 %flags)
  br i1 %is_like, label %shapes, label %no

shapes:
  %shape.at = getelementptr %Array, ptr %array, i32 0, i32 4
  %shape = load ptr, ptr %shape.at
  %rank.at = getelementptr %Record, ptr %record, i32 0, i32 1
  %axes = load i64, ptr %rank.at
  br label %axis

axis:
  %k = phi i64 [ 0, %shapes ], [ %following, %next ]
  %is_axis = icmp slt i64 %k, %axes
  br i1 %is_axis, label %size, label %yes

size:
  %size.at = getelementptr i64, ptr %shape, i64 %k
  %own.size = load i64, ptr %size.at
  %asked.at = getelementptr i64, ptr %asked, i64 %k
  %asked.size = load i64, ptr %asked.at
  %is_size = icmp eq i64 %own.size, %asked.size
  br i1 %is_size, label %next, label %differs

differs:
  %is_number = icmp sge i64 %asked.size, 0
  br i1 %is_number, label %no, label %unknown

unknown:
  %place = xor i64 %asked.size, -1
  %known.at = getelementptr i64, ptr %known, i64 %place
  %known.size = load i64, ptr %known.at
  %is_known = icmp eq i64 %own.size, %known.size
  br i1 %is_known, label %next, label %new

new:
  %is_other = icmp sge i64 %known.size, 0
  br i1 %is_other, label %no, label %note

note:
  store i64 %own.size, ptr %known.at
  br label %next

next:
  %following = add i64 %k, 1
  br label %axis

yes:
  %data.at = getelementptr %Array, ptr %array, i32 0, i32 2
  %data = load ptr, ptr %data.at
  ret ptr %data

no:
  ret ptr null
}

define ptr @call(ptr %self, ptr %given, i64 %count, ptr %names) nounwind {
entry:
  %results = alloca ptr
  %way.at = getelementptr %Object, ptr %self, i32 0, i32 3
  %first = load ptr, ptr %way.at
  %n = and i64 %count, u0x7FFFFFFFFFFFFFFF  ; without PY_VECTORCALL_ARGUMENTS_OFFSET
  %named = getelementptr ptr, ptr %given, i64 %n
  br label %try

try:
  %way = phi ptr [ %first, %entry ], [ %next, %unfit ]
  %positional.at = getelementptr %Way, ptr %way, i32 0, i32 1
  %positional = load i64, ptr %positional.at
  %is_count = icmp eq i64 %n, %positional
  br i1 %is_count, label %serve, label %check

serve:
  %table.at = getelementptr %Way, ptr %way, i32 0, i32 0
  %table = load ptr, ptr %table.at
  %form.at = getelementptr %Way, ptr %way, i32 0, i32 2
  %form = load ptr, ptr %form.at
  %is_plain = icmp eq ptr %form, null
  br i1 %is_plain, label %plain, label %structured

plain:
  %plain.answer = call ptr @served(ptr %table, ptr %given, ptr %named, ptr %names)
  br label %answered

structured:
  %structured.answer = call ptr @served_apart(
    ptr %table, ptr %form, ptr %given, i64 %n, ptr %named, ptr %names
  )
  br label %answered

answered:
  %answer = phi ptr [ %plain.answer, %plain ], [ %structured.answer, %structured ]
  %is_answer = icmp ne ptr %answer, null
  br i1 %is_answer, label %built, label %check

built:
  %build.at = getelementptr %Way, ptr %way, i32 0, i32 5
  %build = load ptr, ptr %build.at
  %has_build = icmp ne ptr %build, null
  %is_new = icmp eq ptr %names, null  ; else they are `out`, as given
  %is_built = and i1 %has_build, %is_new
  br i1 %is_built, label %build.up, label %return

build.up:
  store ptr %answer, ptr %results
  %whole = call ptr @PyObject_Vectorcall(ptr %build, ptr %results, i64 1, ptr null)
  call void @Py_DecRef(ptr %answer)
  ret ptr %whole

return:
  ret ptr %answer

check:
  %exception = call ptr @PyErr_Occurred()
  %is_raised = icmp ne ptr %exception, null
  br i1 %is_raised, label %raise, label %unfit

raise:
  ret ptr null

unfit:
  %slow.at = getelementptr %Way, ptr %way, i32 0, i32 3
  %slow = load ptr, ptr %slow.at
  %next.at = getelementptr %Way, ptr %way, i32 0, i32 4
  %next = load ptr, ptr %next.at
  %is_last = icmp eq ptr %next, null
  br i1 %is_last, label %python, label %try

python:
  %result = tail call ptr @PyObject_Vectorcall(
    ptr %slow, ptr %given, i64 %count, ptr %names
  )
  ret ptr %result
}

; A call with arguments in structures. Arrays are kept until the end: others may take them out of
; lists meanwhile.
define internal ptr @served_apart(
  ptr %table, ptr %form, ptr %given, i64 %n, ptr %named, ptr %names
) nounwind {
entry:
  %arguments.at = getelementptr %Table, ptr %table, i32 0, i32 0
  %arguments = load i64, ptr %arguments.at
  %objects = alloca ptr, i64 %arguments
  %is_of_form = call i1 @taken_apart(ptr %given, i64 %n, ptr %form, ptr %objects)
  br i1 %is_of_form, label %hold, label %no

hold:
  %h = phi i64 [ 0, %entry ], [ %h.next, %held ]
  %h.is_less = icmp slt i64 %h, %arguments
  br i1 %h.is_less, label %held, label %serve

held:
  %held.at = getelementptr ptr, ptr %objects, i64 %h
  %held.object = load ptr, ptr %held.at
  call void @Py_IncRef(ptr %held.object)
  %h.next = add i64 %h, 1
  br label %hold

serve:
  %answer = call ptr @served(ptr %table, ptr %objects, ptr %named, ptr %names)
  br label %release

release:
  %r = phi i64 [ 0, %serve ], [ %r.next, %released ]
  %r.is_less = icmp slt i64 %r, %arguments
  br i1 %r.is_less, label %released, label %return

released:
  %released.at = getelementptr ptr, ptr %objects, i64 %r
  %released.object = load ptr, ptr %released.at
  call void @Py_DecRef(ptr %released.object)
  %r.next = add i64 %r, 1
  br label %release

return:
  ret ptr %answer

no:
  ret ptr null
}

; The result, or null: then nothing was done, and there is no exception.
define internal ptr @served(ptr %table, ptr %objects, ptr %named, ptr %names) nounwind {
entry:
  %arguments.at = getelementptr %Table, ptr %table, i32 0, i32 0
  %arguments = load i64, ptr %arguments.at
  %results.at = getelementptr %Table, ptr %table, i32 0, i32 1
  %results = load i64, ptr %results.at
  %sizes.at = getelementptr %Table, ptr %table, i32 0, i32 3
  %sizes = load i64, ptr %sizes.at
  %room.at = getelementptr %Table, ptr %table, i32 0, i32 4
  %room = load i64, ptr %room.at
  %pointers = alloca ptr, i64 %room
  %arrays.room = sub i64 %room, %sizes
  %known = getelementptr ptr, ptr %pointers, i64 %arrays.room
  %records = getelementptr %Table, ptr %table, i64 1
  br label %clear

clear:  ; the unknown sizes
  %u = phi i64 [ 0, %entry ], [ %u.next, %cleared ]
  %u.is_less = icmp slt i64 %u, %sizes
  br i1 %u.is_less, label %cleared, label %arrays

cleared:
  %unknown.at = getelementptr i64, ptr %known, i64 %u
  store i64 -1, ptr %unknown.at
  %u.next = add i64 %u, 1
  br label %clear

arrays:
  %a = phi i64 [ 0, %clear ], [ %a.next, %array.fits ]
  %a.is_less = icmp slt i64 %a, %arguments
  br i1 %a.is_less, label %array, label %find

array:
  %object.at = getelementptr ptr, ptr %objects, i64 %a
  %object = load ptr, ptr %object.at
  %record = getelementptr %Record, ptr %records, i64 %a
  %record.sizes.at = getelementptr %Record, ptr %record, i32 0, i32 2
  %asked = load ptr, ptr %record.sizes.at
  %data = call ptr @check(
    ptr %object, ptr %record, ptr %asked, ptr %known, i32 u0x101
  )  ; CONTIGUOUS | ALIGNED
  %is_unfit = icmp eq ptr %data, null
  br i1 %is_unfit, label %no, label %array.fits

array.fits:
  %pointer.at = getelementptr ptr, ptr %pointers, i64 %a
  store ptr %data, ptr %pointer.at
  %a.next = add i64 %a, 1
  br label %arrays

find:
  %only.at = getelementptr %Table, ptr %table, i32 0, i32 6
  %only = load ptr, ptr %only.at
  %is_only = icmp ne ptr %only, null
  br i1 %is_only, label %found, label %plan

plan:
  %plans.at = getelementptr %Table, ptr %table, i32 0, i32 8
  %plans = load ptr, ptr %plans.at
  %values.at = getelementptr %Table, ptr %table, i32 0, i32 9
  %values.count = load i64, ptr %values.at
  %values = alloca i64, i64 %values.count
  %planned = call ptr @planned(ptr %plans, ptr %known, ptr %values)
  %is_unplanned = icmp eq ptr %planned, null
  br i1 %is_unplanned, label %no, label %found

found:
  %case = phi ptr [ %only, %find ], [ %planned, %plan ]
  %shapes = getelementptr i64, ptr %case, i64 1
  %workspace.at = getelementptr %Table, ptr %table, i32 0, i32 7
  %workspace = load ptr, ptr %workspace.at
  %busy = getelementptr i8, ptr %workspace, i64 -64
  %has_workspace = icmp ne ptr %workspace, null
  br i1 %has_workspace, label %lock, label %make

lock:
  %was_busy = atomicrmw xchg ptr %busy, i32 1 acquire
  %is_busy = icmp ne i32 %was_busy, 0
  br i1 %is_busy, label %no, label %make

make:
  %is_unnamed = icmp eq ptr %names, null
  br i1 %is_unnamed, label %new, label %given

new:
  %new.answer = call ptr @new_results(
    i64 %arguments, i64 %results, ptr %records, ptr %shapes, ptr %pointers, ptr %objects
  )
  br label %made

given:
  %given.answer = call ptr @given_results(
    i64 %arguments, i64 %results, ptr %records, ptr %shapes, ptr %pointers, ptr %known,
    ptr %named, ptr %names
  )
  br label %made

made:
  %answer = phi ptr [ %new.answer, %new ], [ %given.answer, %given ]
  %is_failed = icmp eq ptr %answer, null
  br i1 %is_failed, label %forgive, label %constants

forgive:
  call void @PyErr_Clear()
  br label %unlock

constants:
  %constants.at = getelementptr %Table, ptr %table, i32 0, i32 2
  %count = load i64, ptr %constants.at
  %arrays.count = add i64 %arguments, %results
  %addresses = getelementptr %Record, ptr %records, i64 %arrays.count
  br label %each_constant

each_constant:
  %c = phi i64 [ 0, %constants ], [ %c.next, %constant ]
  %c.is_less = icmp slt i64 %c, %count
  br i1 %c.is_less, label %constant, label %start

constant:
  %address.at = getelementptr ptr, ptr %addresses, i64 %c
  %address = load ptr, ptr %address.at
  %constant.place = add i64 %arrays.count, %c
  %constant.at = getelementptr ptr, ptr %pointers, i64 %constant.place
  store ptr %address, ptr %constant.at
  %c.next = add i64 %c, 1
  br label %each_constant

start:
  %program.at = getelementptr %Table, ptr %table, i32 0, i32 5
  %frees = load i64, ptr %case
  %frees_lock = icmp ne i64 %frees, 0
  br i1 %frees_lock, label %free, label %execute

free:  ; the interpreter's lock
  %saved = call ptr @PyEval_SaveThread()
  br label %execute

execute:
  %thread = phi ptr [ null, %start ], [ %saved, %free ]
  %program = load ptr, ptr %program.at
  %run.status = call i32 @run(ptr %program, ptr %pointers, ptr %known, ptr %workspace)
  %is_free = icmp ne ptr %thread, null
  br i1 %is_free, label %restore, label %unlock

restore:
  call void @PyEval_RestoreThread(ptr %thread)
  br label %unlock

unlock:
  %status = phi i32 [ 0, %forgive ], [ %run.status, %execute ], [ %run.status, %restore ]
  br i1 %has_workspace, label %unlocked, label %finish

unlocked:
  store atomic i32 0, ptr %busy release, align 4
  br label %finish

finish:
  %is_wrong = icmp ne i32 %status, 0
  br i1 %is_wrong, label %drop, label %return

drop:
  call void @Py_DecRef(ptr %answer)
  %report.at = getelementptr %Table, ptr %table, i32 0, i32 10
  %report = load ptr, ptr %report.at
  %is_again = icmp eq ptr %report, null
  br i1 %is_again, label %no, label %raise

raise:  ; it cannot run again: arguments may be overwritten
  %status.argument = alloca ptr
  %status.wide = zext i32 %status to i64
  %status.object = call ptr @PyLong_FromLongLong(i64 %status.wide)
  store ptr %status.object, ptr %status.argument
  call ptr @PyObject_Vectorcall(ptr %report, ptr %status.argument, i64 1, ptr null)
  call void @Py_DecRef(ptr %status.object)
  br label %no

return:
  ret ptr %answer

no:
  ret ptr null
}

; The entry that a plan computes, or null if each has a check that fails or a value of 2^62 or more.
define internal ptr @planned(ptr %first, ptr %known, ptr %values) nounwind {
entry:
  br label %try

try:
  %plan = phi ptr [ %first, %entry ], [ %next, %unfit ]
  %is_none = icmp eq ptr %plan, null
  br i1 %is_none, label %no, label %begin

begin:
  %count.at = getelementptr %Plan, ptr %plan, i32 0, i32 1
  %count = load i64, ptr %count.at
  %steps.at = getelementptr %Plan, ptr %plan, i32 0, i32 2
  %steps = load ptr, ptr %steps.at
  br label %each

each:
  %n = phi i64 [ 0, %begin ], [ %n.next, %store ]
  %is_less = icmp slt i64 %n, %count
  br i1 %is_less, label %step, label %yes

step:
  %op.at = getelementptr %Step, ptr %steps, i64 %n, i32 0
  %op = load i64, ptr %op.at
  %a.at = getelementptr %Step, ptr %steps, i64 %n, i32 1
  %a = load i64, ptr %a.at
  switch i64 %op, label %operands [
    i64 0, label %store
    i64 1, label %size
  ]

size:
  %size.at = getelementptr i64, ptr %known, i64 %a
  %known.size = load i64, ptr %size.at
  br label %store

operands:
  %b.at = getelementptr %Step, ptr %steps, i64 %n, i32 2
  %b = load i64, ptr %b.at
  %x.at = getelementptr i64, ptr %values, i64 %a
  %x = load i64, ptr %x.at
  %y.at = getelementptr i64, ptr %values, i64 %b
  %y = load i64, ptr %y.at
  switch i64 %op, label %address [
    i64 2, label %sum
    i64 3, label %product
    i64 4, label %quotient
    i64 5, label %most
    i64 6, label %least
    i64 7, label %equal
    i64 8, label %unequal
    i64 9, label %less
    i64 10, label %not_less
  ]

address:
  %place = ptrtoint ptr %x.at to i64
  br label %store

sum:
  %sum.value = add i64 %x, %y
  br label %bounded

product:
  %both = call { i64, i1 } @llvm.smul.with.overflow.i64(i64 %x, i64 %y)
  %product.value = extractvalue { i64, i1 } %both, 0
  %overflows = extractvalue { i64, i1 } %both, 1
  br i1 %overflows, label %unfit, label %bounded

quotient:
  %is_zero = icmp eq i64 %y, 0
  br i1 %is_zero, label %bounded, label %divide

divide:
  %toward_zero = sdiv i64 %x, %y
  %rest = srem i64 %x, %y
  %is_inexact = icmp ne i64 %rest, 0
  %signs = xor i64 %x, %y
  %is_below = icmp slt i64 %signs, 0
  %is_less_by_one = and i1 %is_inexact, %is_below
  %by_one = sext i1 %is_less_by_one to i64
  %quotient.value = add i64 %toward_zero, %by_one
  br label %bounded

most:
  %most.value = call i64 @llvm.smax.i64(i64 %x, i64 %y)
  br label %bounded

least:
  %least.value = call i64 @llvm.smin.i64(i64 %x, i64 %y)
  br label %bounded

bounded:
  %value = phi i64 [ %sum.value, %sum ], [ %product.value, %product ], [ 0, %quotient ],
    [ %quotient.value, %divide ], [ %most.value, %most ], [ %least.value, %least ]
  %is_above = icmp sgt i64 %value, -4611686018427387904
  %is_small = icmp slt i64 %value, 4611686018427387904  ; LARGEST
  %is_bounded = and i1 %is_above, %is_small
  br i1 %is_bounded, label %store, label %unfit

equal:
  %is_equal = icmp eq i64 %x, %y
  br i1 %is_equal, label %store, label %unfit

unequal:
  %is_equal.not = icmp ne i64 %x, %y
  br i1 %is_equal.not, label %store, label %unfit

less:
  %is_less.so = icmp slt i64 %x, %y
  br i1 %is_less.so, label %store, label %unfit

not_less:
  %is_less.not = icmp sge i64 %x, %y
  br i1 %is_less.not, label %store, label %unfit

store:
  %stored = phi i64 [ %a, %step ], [ %known.size, %size ], [ %place, %address ],
    [ %value, %bounded ], [ 0, %equal ], [ 0, %unequal ], [ 0, %less ], [ 0, %not_less ]
  %value.at = getelementptr i64, ptr %values, i64 %n
  store i64 %stored, ptr %value.at
  %n.next = add i64 %n, 1
  br label %each

unfit:
  %next.at = getelementptr %Plan, ptr %plan, i32 0, i32 0
  %next = load ptr, ptr %next.at
  br label %try

yes:
  %entry.at = getelementptr %Plan, ptr %plan, i32 0, i32 3
  %begins = load i64, ptr %entry.at
  %found = getelementptr i64, ptr %values, i64 %begins
  ret ptr %found

no:
  ret ptr null
}

; `out=`, an array or a tuple of them, if they are of the results' types and shapes and overlap
; neither arguments nor each other; or null.
define internal ptr @given_results(
  i64 %arguments, i64 %results, ptr %records, ptr %shapes, ptr %pointers, ptr %known, ptr %named,
  ptr %names
) alwaysinline nounwind {
entry:
  %names.size.at = getelementptr %Tuple, ptr %names, i32 0, i32 2
  %names.size = load i64, ptr %names.size.at
  %is_one = icmp eq i64 %names.size, 1
  br i1 %is_one, label %name, label %no

name:
  %names.items.at = getelementptr %Tuple, ptr %names, i32 0, i32 3
  %keyword = load ptr, ptr %names.items.at
  %is_out = icmp eq ptr %keyword, @out
  br i1 %is_out, label %value, label %no

value:
  %whole = load ptr, ptr %named
  %is_single = icmp eq i64 %results, 1
  br i1 %is_single, label %list, label %several

several:
  %whole.type.at = getelementptr %Tuple, ptr %whole, i32 0, i32 1
  %whole.type = load ptr, ptr %whole.type.at
  %is_tuple = icmp eq ptr %whole.type, @tuple_type
  br i1 %is_tuple, label %counted, label %no

counted:
  %whole.size.at = getelementptr %Tuple, ptr %whole, i32 0, i32 2
  %whole.size = load i64, ptr %whole.size.at
  %whole.items.at = getelementptr %Tuple, ptr %whole, i32 0, i32 3
  %is_count = icmp eq i64 %whole.size, %results
  br i1 %is_count, label %list, label %no

list:
  %arrays = phi ptr [ %named, %value ], [ %whole.items.at, %counted ]
  br label %each

each:
  %r = phi i64 [ 0, %list ], [ %r.next, %apart ]
  %r.is_less = icmp slt i64 %r, %results
  br i1 %r.is_less, label %result, label %yes

result:
  %n = add i64 %arguments, %r
  %shaped = getelementptr %Shaped, ptr %shapes, i64 %n
  %shape.at = getelementptr %Shaped, ptr %shaped, i32 0, i32 0
  %shape = load ptr, ptr %shape.at
  %array.at = getelementptr ptr, ptr %arrays, i64 %r
  %array = load ptr, ptr %array.at
  %record = getelementptr %Record, ptr %records, i64 %n
  %place.at = getelementptr %Record, ptr %record, i32 0, i32 4
  %place = load i64, ptr %place.at
  %is_elsewhere = icmp ne i64 %place, 0
  br i1 %is_elsewhere, label %no, label %fresh

fresh:
  %data = call ptr @check(
    ptr %array, ptr %record, ptr %shape, ptr %known, i32 u0x501
  )  ; CONTIGUOUS | ALIGNED | WRITEABLE
  %is_unfit = icmp eq ptr %data, null
  br i1 %is_unfit, label %no, label %fits

fits:
  %bytes.at = getelementptr %Shaped, ptr %shaped, i32 0, i32 1
  %bytes = load i64, ptr %bytes.at
  %end = getelementptr i8, ptr %data, i64 %bytes
  br label %overlaps

overlaps:
  %o = phi i64 [ 0, %fits ], [ %o.next, %beside ]
  %o.is_less = icmp slt i64 %o, %n
  br i1 %o.is_less, label %other, label %apart

other:
  %other.at = getelementptr ptr, ptr %pointers, i64 %o
  %other.data = load ptr, ptr %other.at
  %ends_after = icmp ugt ptr %end, %other.data
  br i1 %ends_after, label %near, label %beside

near:
  %other.shaped = getelementptr %Shaped, ptr %shapes, i64 %o
  %other.bytes.at = getelementptr %Shaped, ptr %other.shaped, i32 0, i32 1
  %other.bytes = load i64, ptr %other.bytes.at
  %other.end = getelementptr i8, ptr %other.data, i64 %other.bytes
  %is_overlap = icmp ugt ptr %other.end, %data
  br i1 %is_overlap, label %no, label %beside

beside:
  %o.next = add i64 %o, 1
  br label %overlaps

apart:
  %pointer.at = getelementptr ptr, ptr %pointers, i64 %n
  store ptr %data, ptr %pointer.at
  %r.next = add i64 %r, 1
  br label %each

yes:
  call void @Py_IncRef(ptr %whole)
  ret ptr %whole

no:
  ret ptr null
}

; New arrays, or those of arguments that they overwrite: one, or a tuple of several; or null, then
; maybe with an exception. An array that is overwritten overlaps no other argument.
define internal ptr @new_results(
  i64 %arguments, i64 %results, ptr %records, ptr %shapes, ptr %pointers, ptr %objects
) alwaysinline nounwind {
entry:
  %is_single = icmp eq i64 %results, 1
  br i1 %is_single, label %start, label %several

several:
  %tuple = call ptr @PyTuple_New(i64 %results)
  %is_failed = icmp eq ptr %tuple, null
  br i1 %is_failed, label %no, label %start

start:
  %holder = phi ptr [ null, %entry ], [ %tuple, %several ]
  br label %each

each:
  %m = phi i64 [ 0, %start ], [ %m.next, %placed ]
  %whole = phi ptr [ %holder, %start ], [ %whole.next, %placed ]
  %m.is_less = icmp slt i64 %m, %results
  br i1 %m.is_less, label %result, label %yes

result:
  %n = add i64 %arguments, %m
  %record = getelementptr %Record, ptr %records, i64 %n
  %shaped = getelementptr %Shaped, ptr %shapes, i64 %n
  %place.at = getelementptr %Record, ptr %record, i32 0, i32 4
  %place = load i64, ptr %place.at
  %is_fresh = icmp eq i64 %place, 0
  br i1 %is_fresh, label %fresh, label %own

own:
  %argument = sub i64 %place, 1
  %own.at = getelementptr ptr, ptr %objects, i64 %argument
  %own.array = load ptr, ptr %own.at
  %flags.at = getelementptr %Array, ptr %own.array, i32 0, i32 8
  %flags = load i32, ptr %flags.at
  %writeable = and i32 %flags, u0x400  ; WRITEABLE
  %is_read_only = icmp eq i32 %writeable, 0
  br i1 %is_read_only, label %fail, label %extent

extent:
  %own.pointer.at = getelementptr ptr, ptr %pointers, i64 %argument
  %own.data = load ptr, ptr %own.pointer.at
  %own.bytes.at = getelementptr %Shaped, ptr %shaped, i32 0, i32 1
  %own.bytes = load i64, ptr %own.bytes.at
  %own.end = getelementptr i8, ptr %own.data, i64 %own.bytes
  br label %overlaps

overlaps:
  %o = phi i64 [ 0, %extent ], [ %o.next, %beside ]
  %o.is_less = icmp slt i64 %o, %arguments
  br i1 %o.is_less, label %other, label %take

other:
  %other.at = getelementptr ptr, ptr %pointers, i64 %o
  %other.data = load ptr, ptr %other.at
  %other.bytes.at = getelementptr %Shaped, ptr %shapes, i64 %o, i32 1
  %other.bytes = load i64, ptr %other.bytes.at
  %other.end = getelementptr i8, ptr %other.data, i64 %other.bytes
  %ends_after = icmp ugt ptr %own.end, %other.data
  %begins_before = icmp ult ptr %own.data, %other.end
  %is_other = icmp ne i64 %o, %argument
  %is_near = and i1 %ends_after, %begins_before
  %is_overlap = and i1 %is_near, %is_other
  br i1 %is_overlap, label %fail, label %beside

beside:
  %o.next = add i64 %o, 1
  br label %overlaps

take:
  call void @Py_IncRef(ptr %own.array)
  br label %made

fresh:
  %descriptor.at = getelementptr %Record, ptr %record, i32 0, i32 0
  %descriptor = load ptr, ptr %descriptor.at
  call void @Py_IncRef(ptr %descriptor)
  %rank.at = getelementptr %Record, ptr %record, i32 0, i32 1
  %rank.wide = load i64, ptr %rank.at
  %rank = trunc i64 %rank.wide to i32
  %shape.at = getelementptr %Shaped, ptr %shaped, i32 0, i32 0
  %shape = load ptr, ptr %shape.at
  %new.array = call ptr @empty_array(i32 %rank, ptr %shape, ptr %descriptor, i32 0)
  %is_out_of_memory = icmp eq ptr %new.array, null
  br i1 %is_out_of_memory, label %fail, label %made

made:
  %array = phi ptr [ %own.array, %take ], [ %new.array, %fresh ]
  %data.at = getelementptr %Array, ptr %array, i32 0, i32 2
  %data = load ptr, ptr %data.at
  %pointer.at = getelementptr ptr, ptr %pointers, i64 %n
  store ptr %data, ptr %pointer.at
  br i1 %is_single, label %placed, label %item

item:
  call i32 @PyTuple_SetItem(ptr %whole, i64 %m, ptr %array)
  br label %placed

placed:
  %whole.next = phi ptr [ %array, %made ], [ %whole, %item ]
  %m.next = add i64 %m, 1
  br label %each

yes:
  ret ptr %whole

fail:
  br i1 %is_single, label %no, label %drop

drop:
  call void @Py_DecRef(ptr %whole)
  br label %no

no:
  ret ptr null
}
