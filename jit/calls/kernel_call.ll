; The machine code that Python calls for a kernel: it checks the arguments, makes arrays, runs the
; program, and gives the results.
;
;   PyObject *call_kernel(PyObject *self, PyObject *const *given, size_t count, PyObject *names)
;
; is CPython's vectorcall. The object that is called has a chain of tables, one for each version.
; Arguments that fit no table are left to the slow entry of the first, which compiles a version for
; them, or reports what is wrong. Once a kernel has run, no other entry does: it may have stored.
;
; A call has objects (the arguments, then the arrays that it makes), the sizes that the program
; wants, and cells, words for numbers, of which the first two are the values that an error names.
; kernel_table.py fills the tables, and objects.ll has the layouts of objects.

%Versioned = type {
  i64,  ; positional: arguments
  ptr,  ; slow: the entry in Python
  ptr,  ; next: the table of another version, or null
  ptr,  ; program
  ptr,  ; sizing: the program that computes the shapes of new arrays, or null
  ptr,  ; report: raises the error of a status, in Python
  i64,  ; overlaps: whether written arguments overlap others, as they then must
  i64,  ; number: of the version
  ptr,  ; latest: where the number of the version that ran last is kept
  i64,  ; cells
  ptr,  ; arguments
  i64,  ; pointers: that the program takes
  ptr,  ; places: where they point
  i64,  ; lengths: that are to be found
  ptr,  ; measures
  i64,  ; arrays: that the call makes
  ptr,  ; made
  i64,  ; sizes: that the program takes
  ptr   ; result
}
%Argument = type {
  ptr,  ; descriptor: of an array, or the type of a number
  i64,  ; rank: -1 of a number
  i64,  ; cell: of a number
  i64,  ; element: as in %Record; of a number 0, or 1 of integers of few bits, or 2 of the others
  i64,  ; mask: of an array's flags
  i64,  ; flags: as they then are
  i64   ; bytes: of an element
}
%Place = type {
  i64,  ; kind: 0 the data of an object, 1 an address, 2 a cell
  i64   ; value
}
%Measure = type {
  i64,  ; object: -1 of a size that is known
  i64,  ; axis: -1 of all elements, or the known size
  i64,  ; shift: -1 of a size, else the bits by which a stride in bytes is shifted
  i64   ; cell: of a number; -1 - place of a size
}
%Made = type {
  ptr,  ; descriptor
  i64,  ; rank
  i64   ; cell: of its first size
}
%Result = type {
  i64,  ; kind: 0 an object, 1 an address of one, 2 int, 3 float, 4 bool, 5 a NumPy scalar, 6 a tuple
  i64,  ; value: the object, a cell, or how many values a tuple has
  ptr   ; detail: the descriptor of a scalar, or the values of a tuple
}
%Range = type {
  i64,  ; begin: of an array in memory
  i64   ; end
}

@int_type = external global i8
@bool_type = external global i8
@true = external global i8

declare i1 @is_like(ptr, ptr, i32, i32)
declare i32 @run(ptr, ptr, ptr, ptr)
declare ptr @zeros(i32, ptr, ptr, i32)
declare ptr @scalar(ptr, ptr, ptr)
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @PyTuple_New(i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)
declare i64 @PyLong_AsLongLongAndOverflow(ptr, ptr)
declare ptr @PyLong_FromLongLong(i64)
declare ptr @PyFloat_FromDouble(double)
declare ptr @PyBool_FromLong(i64)
declare void @PyErr_Clear()
declare ptr @PyErr_Occurred()
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)


; The memory between an array's first and last byte, empty of one without elements; or false of an
; axis beyond what index arithmetic takes, of a stride within an element, or where elements of a
; written array are one.
define internal i1 @extent(
  ptr %array, i64 %bytes, i1 %is_written, ptr %range
) alwaysinline nounwind {
entry:
  %data.at = getelementptr %Array, ptr %array, i32 0, i32 2
  %data = load i64, ptr %data.at
  %rank.at = getelementptr %Array, ptr %array, i32 0, i32 3
  %rank = load i32, ptr %rank.at
  %axes = zext i32 %rank to i64
  %shape.at = getelementptr %Array, ptr %array, i32 0, i32 4
  %shape = load ptr, ptr %shape.at
  %strides.at = getelementptr %Array, ptr %array, i32 0, i32 5
  %strides = load ptr, ptr %strides.at
  %odd = sub i64 %bytes, 1
  br label %axis

axis:
  %k = phi i64 [ 0, %entry ], [ %k.next, %reaching ]
  %least = phi i64 [ %data, %entry ], [ %least.next, %reaching ]
  %most = phi i64 [ %data, %entry ], [ %most.next, %reaching ]
  %is_axis = icmp slt i64 %k, %axes
  br i1 %is_axis, label %size, label %whole

size:
  %size.of = getelementptr i64, ptr %shape, i64 %k
  %length = load i64, ptr %size.of
  %is_empty = icmp eq i64 %length, 0
  br i1 %is_empty, label %empty, label %short

short:
  %stride.of = getelementptr i64, ptr %strides, i64 %k
  %stride = load i64, ptr %stride.of
  %part = and i64 %stride, %odd
  %is_whole = icmp eq i64 %part, 0
  %is_short = icmp ule i64 %length, 1099511627776  ; LARGEST
  %is_fit = and i1 %is_whole, %is_short
  %is_moving = icmp ne i64 %stride, 0
  %is_read = xor i1 %is_written, true
  %is_apart = or i1 %is_moving, %is_read
  %is_good = and i1 %is_fit, %is_apart
  br i1 %is_good, label %reaching, label %no

reaching:
  %steps = sub i64 %length, 1
  %reach = mul i64 %steps, %stride
  %below = call i64 @llvm.smin.i64(i64 %reach, i64 0)
  %above = call i64 @llvm.smax.i64(i64 %reach, i64 0)
  %least.next = add i64 %least, %below
  %most.next = add i64 %most, %above
  %k.next = add i64 %k, 1
  br label %axis

whole:
  %after = add i64 %most, %bytes
  br label %yes

empty:
  br label %yes

yes:
  %first = phi i64 [ %least, %whole ], [ 0, %empty ]
  %last = phi i64 [ %after, %whole ], [ 0, %empty ]
  %begin.at = getelementptr %Range, ptr %range, i32 0, i32 0
  store i64 %first, ptr %begin.at
  %end.at = getelementptr %Range, ptr %range, i32 0, i32 1
  store i64 %last, ptr %end.at
  ret i1 true

no:
  ret i1 false
}

; Whether an object is of the type of an argument. A number's value goes to its cell.
define internal i1 @takes(ptr %argument, ptr %object, ptr %range, ptr %cells) alwaysinline nounwind {
entry:
  %overflow = alloca i32
  %descriptor.at = getelementptr %Argument, ptr %argument, i32 0, i32 0
  %rank.at = getelementptr %Argument, ptr %argument, i32 0, i32 1
  %rank = load i64, ptr %rank.at
  %is_array = icmp sge i64 %rank, 0
  br i1 %is_array, label %array, label %number

array:
  %mask.at = getelementptr %Argument, ptr %argument, i32 0, i32 4
  %mask.wide = load i64, ptr %mask.at
  %mask = trunc i64 %mask.wide to i32
  %flags.at = getelementptr %Argument, ptr %argument, i32 0, i32 5
  %flags.wide = load i64, ptr %flags.at
  %flags = trunc i64 %flags.wide to i32
  %is_like = call i1 @is_like(ptr %object, ptr %argument, i32 %mask, i32 %flags)
  br i1 %is_like, label %reach, label %no

reach:
  %bytes.at = getelementptr %Argument, ptr %argument, i32 0, i32 6
  %bytes = load i64, ptr %bytes.at
  %write = and i32 %mask, u0x400  ; WRITEABLE
  %is_written = icmp ne i32 %write, 0
  %is_within = call i1 @extent(ptr %object, i64 %bytes, i1 %is_written, ptr %range)
  ret i1 %is_within

number:
  %begin.at = getelementptr %Range, ptr %range, i32 0, i32 0
  store i64 0, ptr %begin.at
  %end.at = getelementptr %Range, ptr %range, i32 0, i32 1
  store i64 0, ptr %end.at
  %type.at = getelementptr %Object, ptr %object, i32 0, i32 1
  %type = load ptr, ptr %type.at
  %wanted = load ptr, ptr %descriptor.at
  %is_type = icmp eq ptr %type, %wanted
  br i1 %is_type, label %kind, label %no

kind:
  %is_int = icmp eq ptr %type, @int_type
  br i1 %is_int, label %int, label %plain

int:
  %of_int = call i64 @PyLong_AsLongLongAndOverflow(ptr %object, ptr %overflow)
  %over = load i32, ptr %overflow
  %is_word = icmp eq i32 %over, 0
  br i1 %is_word, label %found, label %no

plain:
  %is_bool = icmp eq ptr %type, @bool_type
  br i1 %is_bool, label %bool, label %scalar

bool:
  %is_true = icmp eq ptr %object, @true
  %of_bool = zext i1 %is_true to i64
  br label %found

scalar:  ; a float, or a scalar of NumPy, which has its value after the same two words
  %code.at = getelementptr %Object, ptr %object, i32 0, i32 2
  %of_scalar = load i64, ptr %code.at
  br label %found

found:
  %value = phi i64 [ %of_int, %int ], [ %of_bool, %bool ], [ %of_scalar, %scalar ]
  %cell.at = getelementptr %Argument, ptr %argument, i32 0, i32 2
  %cell = load i64, ptr %cell.at
  %cell.of = getelementptr i64, ptr %cells, i64 %cell
  store i64 %value, ptr %cell.of
  %element.at = getelementptr %Argument, ptr %argument, i32 0, i32 3
  %element = load i64, ptr %element.at
  %moved = add i64 %value, 1099511627776  ; LARGEST
  %is_small = icmp ule i64 %moved, 2199023255552
  %own = select i1 %is_small, i64 1, i64 2
  %is_own = icmp eq i64 %element, %own
  %is_any = icmp eq i64 %element, 0
  %is_number = or i1 %is_any, %is_own
  ret i1 %is_number

no:
  ret i1 false
}

; Whether one of two arrays is written, and they share memory.
define internal i1 @meets(ptr %one, ptr %other, ptr %range, ptr %second) alwaysinline nounwind {
  %one.mask.at = getelementptr %Argument, ptr %one, i32 0, i32 4
  %one.mask = load i64, ptr %one.mask.at
  %other.mask.at = getelementptr %Argument, ptr %other, i32 0, i32 4
  %other.mask = load i64, ptr %other.mask.at
  %either = or i64 %one.mask, %other.mask
  %written = and i64 %either, u0x400  ; WRITEABLE
  %is_written = icmp ne i64 %written, 0
  %begin.at = getelementptr %Range, ptr %range, i32 0, i32 0
  %begin = load i64, ptr %begin.at
  %end.at = getelementptr %Range, ptr %range, i32 0, i32 1
  %end = load i64, ptr %end.at
  %second.begin.at = getelementptr %Range, ptr %second, i32 0, i32 0
  %second.begin = load i64, ptr %second.begin.at
  %second.end.at = getelementptr %Range, ptr %second, i32 0, i32 1
  %second.end = load i64, ptr %second.end.at
  %is_before = icmp ult i64 %begin, %second.end
  %is_after = icmp ult i64 %second.begin, %end
  %share = and i1 %is_before, %is_after
  %meet = and i1 %share, %is_written
  ret i1 %meet
}

; The sizes and strides of the objects from one to below another; the known sizes are of all.
define internal void @measure(
  ptr %table, ptr %objects, i64 %from, i64 %below, ptr %known, ptr %cells
) nounwind {
entry:
  %lengths.at = getelementptr %Versioned, ptr %table, i32 0, i32 13
  %lengths = load i64, ptr %lengths.at
  %measures.at = getelementptr %Versioned, ptr %table, i32 0, i32 14
  %measures = load ptr, ptr %measures.at
  br label %each

each:
  %m = phi i64 [ 0, %entry ], [ %m.next, %next ]
  %m.is_less = icmp slt i64 %m, %lengths
  br i1 %m.is_less, label %one, label %done

one:
  %measure = getelementptr %Measure, ptr %measures, i64 %m
  %object.at = getelementptr %Measure, ptr %measure, i32 0, i32 0
  %n = load i64, ptr %object.at
  %axis.at = getelementptr %Measure, ptr %measure, i32 0, i32 1
  %axis = load i64, ptr %axis.at
  %is_known = icmp slt i64 %n, 0
  br i1 %is_known, label %put, label %due

due:
  %is_later = icmp sge i64 %n, %from
  %is_before = icmp slt i64 %n, %below
  %is_due = and i1 %is_later, %is_before
  br i1 %is_due, label %object, label %next

object:
  %array.of = getelementptr ptr, ptr %objects, i64 %n
  %array = load ptr, ptr %array.of
  %shape.at = getelementptr %Array, ptr %array, i32 0, i32 4
  %shape = load ptr, ptr %shape.at
  %is_all = icmp slt i64 %axis, 0
  br i1 %is_all, label %all, label %along

all:
  %rank.at = getelementptr %Array, ptr %array, i32 0, i32 3
  %rank = load i32, ptr %rank.at
  %axes = zext i32 %rank to i64
  br label %factor

factor:
  %k = phi i64 [ 0, %all ], [ %k.next, %times ]
  %product = phi i64 [ 1, %all ], [ %product.next, %times ]
  %is_factor = icmp slt i64 %k, %axes
  br i1 %is_factor, label %times, label %put

times:
  %factor.of = getelementptr i64, ptr %shape, i64 %k
  %length = load i64, ptr %factor.of
  %product.next = mul i64 %product, %length
  %k.next = add i64 %k, 1
  br label %factor

along:
  %shift.at = getelementptr %Measure, ptr %measure, i32 0, i32 2
  %shift = load i64, ptr %shift.at
  %is_size = icmp slt i64 %shift, 0
  br i1 %is_size, label %size, label %stride

size:
  %size.of = getelementptr i64, ptr %shape, i64 %axis
  %own.size = load i64, ptr %size.of
  br label %put

stride:
  %strides.at = getelementptr %Array, ptr %array, i32 0, i32 5
  %strides = load ptr, ptr %strides.at
  %stride.of = getelementptr i64, ptr %strides, i64 %axis
  %in_bytes = load i64, ptr %stride.of
  %own.stride = ashr i64 %in_bytes, %shift
  br label %put

put:
  %value = phi i64 [ %axis, %one ], [ %product, %factor ], [ %own.size, %size ], [ %own.stride, %stride ]
  %cell.at = getelementptr %Measure, ptr %measure, i32 0, i32 3
  %cell = load i64, ptr %cell.at
  %is_number = icmp sge i64 %cell, 0
  %place = xor i64 %cell, -1
  %cell.of = getelementptr i64, ptr %cells, i64 %cell
  %known.of = getelementptr i64, ptr %known, i64 %place
  %target = select i1 %is_number, ptr %cell.of, ptr %known.of
  store i64 %value, ptr %target
  br label %next

next:
  %m.next = add i64 %m, 1
  br label %each

done:
  ret void
}

; The pointers that the program takes. Those to objects that are not there yet are null.
define internal void @point(
  ptr %table, ptr %objects, i64 %there, ptr %cells, ptr %pointers
) nounwind {
entry:
  %pointers.at = getelementptr %Versioned, ptr %table, i32 0, i32 11
  %count = load i64, ptr %pointers.at
  %places.at = getelementptr %Versioned, ptr %table, i32 0, i32 12
  %places = load ptr, ptr %places.at
  br label %each

each:
  %p = phi i64 [ 0, %entry ], [ %p.next, %put ]
  %p.is_less = icmp slt i64 %p, %count
  br i1 %p.is_less, label %one, label %done

one:
  %place = getelementptr %Place, ptr %places, i64 %p
  %kind.at = getelementptr %Place, ptr %place, i32 0, i32 0
  %kind = load i64, ptr %kind.at
  %value.at = getelementptr %Place, ptr %place, i32 0, i32 1
  %value = load i64, ptr %value.at
  switch i64 %kind, label %cell [
    i64 0, label %object
    i64 1, label %address
  ]

object:
  %is_there = icmp slt i64 %value, %there
  br i1 %is_there, label %array, label %put

array:
  %array.of = getelementptr ptr, ptr %objects, i64 %value
  %own = load ptr, ptr %array.of
  %data.at = getelementptr %Array, ptr %own, i32 0, i32 2
  %data = load ptr, ptr %data.at
  br label %put

address:
  %fixed = inttoptr i64 %value to ptr
  br label %put

cell:
  %cell.of = getelementptr i64, ptr %cells, i64 %value
  br label %put

put:
  %pointer = phi ptr [ null, %object ], [ %data, %array ], [ %fixed, %address ], [ %cell.of, %cell ]
  %pointer.of = getelementptr ptr, ptr %pointers, i64 %p
  store ptr %pointer, ptr %pointer.of
  %p.next = add i64 %p, 1
  br label %each

done:
  ret void
}

; A result, or null, with an exception.
define internal ptr @result(ptr %result, ptr %objects, ptr %cells) nounwind {
entry:
  %kind.at = getelementptr %Result, ptr %result, i32 0, i32 0
  %kind = load i64, ptr %kind.at
  %value.at = getelementptr %Result, ptr %result, i32 0, i32 1
  %value = load i64, ptr %value.at
  %detail.at = getelementptr %Result, ptr %result, i32 0, i32 2
  %detail = load ptr, ptr %detail.at
  %cell.of = getelementptr i64, ptr %cells, i64 %value
  switch i64 %kind, label %tuple [
    i64 0, label %object
    i64 1, label %address
    i64 2, label %int
    i64 3, label %float
    i64 4, label %bool
    i64 5, label %scalar
  ]

object:
  %object.of = getelementptr ptr, ptr %objects, i64 %value
  %own = load ptr, ptr %object.of
  br label %hold

address:
  %fixed = inttoptr i64 %value to ptr
  br label %hold

hold:
  %held = phi ptr [ %own, %object ], [ %fixed, %address ]
  call void @Py_IncRef(ptr %held)
  ret ptr %held

int:
  %integer = load i64, ptr %cell.of
  %of_integer = call ptr @PyLong_FromLongLong(i64 %integer)
  ret ptr %of_integer

float:
  %double = load double, ptr %cell.of
  %of_double = call ptr @PyFloat_FromDouble(double %double)
  ret ptr %of_double

bool:
  %byte = load i8, ptr %cell.of
  %word = zext i8 %byte to i64
  %of_byte = call ptr @PyBool_FromLong(i64 %word)
  ret ptr %of_byte

scalar:
  %of_cell = call ptr @scalar(ptr %cell.of, ptr %detail, ptr null)
  ret ptr %of_cell

tuple:
  %whole = call ptr @PyTuple_New(i64 %value)
  %is_failed = icmp eq ptr %whole, null
  br i1 %is_failed, label %no, label %each

each:
  %r = phi i64 [ 0, %tuple ], [ %r.next, %put ]
  %r.is_less = icmp slt i64 %r, %value
  br i1 %r.is_less, label %item, label %yes

item:
  %part = getelementptr %Result, ptr %detail, i64 %r
  %of_part = call ptr @result(ptr %part, ptr %objects, ptr %cells)
  %is_missing = icmp eq ptr %of_part, null
  br i1 %is_missing, label %drop, label %put

put:
  call i32 @PyTuple_SetItem(ptr %whole, i64 %r, ptr %of_part)
  %r.next = add i64 %r, 1
  br label %each

yes:
  ret ptr %whole

drop:
  call void @Py_DecRef(ptr %whole)
  br label %no

no:
  ret ptr null
}

; Raises the error of a status: null, with an exception. A kernel that was stopped has left one.
define internal ptr @raised(ptr %table, i32 %status, ptr %cells) nounwind {
entry:
  %arguments = alloca [3 x ptr]
  %is_error = icmp sgt i32 %status, 0
  br i1 %is_error, label %numbers, label %no

numbers:
  %n = phi i64 [ 0, %entry ], [ %n.next, %number ]
  %n.is_less = icmp slt i64 %n, 3
  br i1 %n.is_less, label %number, label %call

number:
  %is_first = icmp eq i64 %n, 0
  %before = sub i64 %n, 1
  %place = select i1 %is_first, i64 0, i64 %before
  %cell.of = getelementptr i64, ptr %cells, i64 %place
  %value = load i64, ptr %cell.of
  %wide = sext i32 %status to i64
  %word = select i1 %is_first, i64 %wide, i64 %value
  %object = call ptr @PyLong_FromLongLong(i64 %word)
  %argument.of = getelementptr ptr, ptr %arguments, i64 %n
  store ptr %object, ptr %argument.of
  %n.next = add i64 %n, 1
  br label %numbers

call:
  %report.at = getelementptr %Versioned, ptr %table, i32 0, i32 5
  %report = load ptr, ptr %report.at
  %answer = call ptr @PyObject_Vectorcall(ptr %report, ptr %arguments, i64 3, ptr null)
  br label %release

release:
  %r = phi i64 [ 0, %call ], [ %r.next, %released ]
  %r.is_less = icmp slt i64 %r, 3
  br i1 %r.is_less, label %released, label %no

released:
  %released.of = getelementptr ptr, ptr %arguments, i64 %r
  %number.object = load ptr, ptr %released.of
  call void @Py_DecRef(ptr %number.object)
  %r.next = add i64 %r, 1
  br label %release

no:
  ret ptr null
}

; The arrays that a call makes; how many there are then, fewer where memory does not suffice.
define internal i64 @make(ptr %table, ptr %cells, ptr %objects) nounwind {
entry:
  %arrays.at = getelementptr %Versioned, ptr %table, i32 0, i32 15
  %arrays = load i64, ptr %arrays.at
  %made.at = getelementptr %Versioned, ptr %table, i32 0, i32 16
  %made = load ptr, ptr %made.at
  br label %each

each:
  %a = phi i64 [ 0, %entry ], [ %a.next, %put ]
  %a.is_less = icmp slt i64 %a, %arrays
  br i1 %a.is_less, label %one, label %done

one:
  %record = getelementptr %Made, ptr %made, i64 %a
  %descriptor.at = getelementptr %Made, ptr %record, i32 0, i32 0
  %descriptor = load ptr, ptr %descriptor.at
  %rank.at = getelementptr %Made, ptr %record, i32 0, i32 1
  %rank.wide = load i64, ptr %rank.at
  %rank = trunc i64 %rank.wide to i32
  %cell.at = getelementptr %Made, ptr %record, i32 0, i32 2
  %cell = load i64, ptr %cell.at
  %shape = getelementptr i64, ptr %cells, i64 %cell
  br label %axis

axis:
  %k = phi i64 [ 0, %one ], [ %k.next, %size ]
  %is_axis = icmp slt i64 %k, %rank.wide
  br i1 %is_axis, label %size, label %new

size:
  %size.of = getelementptr i64, ptr %shape, i64 %k
  %length = load i64, ptr %size.of
  %k.next = add i64 %k, 1
  %is_short = icmp ule i64 %length, 1099511627776  ; LARGEST
  br i1 %is_short, label %axis, label %done

new:
  call void @Py_IncRef(ptr %descriptor)
  %array = call ptr @zeros(i32 %rank, ptr %shape, ptr %descriptor, i32 0)
  %is_missing = icmp eq ptr %array, null
  br i1 %is_missing, label %clear, label %put

put:
  %object.of = getelementptr ptr, ptr %objects, i64 %a
  store ptr %array, ptr %object.of
  %a.next = add i64 %a, 1
  br label %each

clear:
  call void @PyErr_Clear()
  br label %done

done:
  ret i64 %a
}

; The result, or null: with an exception, or where nothing was done.
define internal ptr @served(ptr %table, i64 %n, ptr %given) nounwind {
entry:
  %cells.at = getelementptr %Versioned, ptr %table, i32 0, i32 9
  %cells.count = load i64, ptr %cells.at
  %pointers.at = getelementptr %Versioned, ptr %table, i32 0, i32 11
  %pointers.count = load i64, ptr %pointers.at
  %arrays.at = getelementptr %Versioned, ptr %table, i32 0, i32 15
  %arrays = load i64, ptr %arrays.at
  %sizes.at = getelementptr %Versioned, ptr %table, i32 0, i32 17
  %sizes = load i64, ptr %sizes.at
  %all = add i64 %n, %arrays
  %objects = alloca ptr, i64 %all
  %ranges = alloca %Range, i64 %n
  %cells = alloca i64, i64 %cells.count
  %pointers = alloca ptr, i64 %pointers.count
  %known = alloca i64, i64 %sizes
  %arguments.at = getelementptr %Versioned, ptr %table, i32 0, i32 10
  %arguments = load ptr, ptr %arguments.at
  br label %each

each:
  %a = phi i64 [ 0, %entry ], [ %a.next, %others ]
  %meet = phi i1 [ false, %entry ], [ %meeting, %others ]
  %a.is_less = icmp slt i64 %a, %n
  br i1 %a.is_less, label %one, label %ready

one:
  %argument = getelementptr %Argument, ptr %arguments, i64 %a
  %given.of = getelementptr ptr, ptr %given, i64 %a
  %object = load ptr, ptr %given.of
  %object.of = getelementptr ptr, ptr %objects, i64 %a
  store ptr %object, ptr %object.of
  %range = getelementptr %Range, ptr %ranges, i64 %a
  %is_taken = call i1 @takes(ptr %argument, ptr %object, ptr %range, ptr %cells)
  br i1 %is_taken, label %others, label %no

others:
  %o = phi i64 [ 0, %one ], [ %o.next, %other ]
  %meeting = phi i1 [ %meet, %one ], [ %meeting.next, %other ]
  %o.is_less = icmp slt i64 %o, %a
  %a.next = add i64 %a, 1
  br i1 %o.is_less, label %other, label %each

other:
  %second = getelementptr %Range, ptr %ranges, i64 %o
  %other.argument = getelementptr %Argument, ptr %arguments, i64 %o
  %meets = call i1 @meets(ptr %argument, ptr %other.argument, ptr %range, ptr %second)
  %meeting.next = or i1 %meeting, %meets
  %o.next = add i64 %o, 1
  br label %others

ready:
  %overlaps.at = getelementptr %Versioned, ptr %table, i32 0, i32 6
  %overlaps = load i64, ptr %overlaps.at
  %meet.word = zext i1 %meet to i64
  %is_as_wanted = icmp eq i64 %overlaps, %meet.word
  br i1 %is_as_wanted, label %sized, label %no

sized:
  call void @measure(ptr %table, ptr %objects, i64 0, i64 %n, ptr %known, ptr %cells)
  %sizing.at = getelementptr %Versioned, ptr %table, i32 0, i32 4
  %sizing = load ptr, ptr %sizing.at
  %is_plain = icmp eq ptr %sizing, null
  br i1 %is_plain, label %execute, label %shapes

shapes:
  call void @point(ptr %table, ptr %objects, i64 %n, ptr %cells, ptr %pointers)
  call i32 @run(ptr %sizing, ptr %pointers, ptr %known, ptr null)
  %new = getelementptr ptr, ptr %objects, i64 %n
  %made = call i64 @make(ptr %table, ptr %cells, ptr %new)
  %is_made = icmp eq i64 %made, %arrays
  br i1 %is_made, label %new_sizes, label %release

new_sizes:
  call void @measure(ptr %table, ptr %objects, i64 %n, i64 %all, ptr %known, ptr %cells)
  br label %execute

execute:
  %there = phi i64 [ 0, %sized ], [ %made, %new_sizes ]
  call void @point(ptr %table, ptr %objects, i64 %all, ptr %cells, ptr %pointers)
  %latest.at = getelementptr %Versioned, ptr %table, i32 0, i32 8
  %latest = load ptr, ptr %latest.at
  %number.at = getelementptr %Versioned, ptr %table, i32 0, i32 7
  %number = load i64, ptr %number.at
  store i64 %number, ptr %latest
  %program.at = getelementptr %Versioned, ptr %table, i32 0, i32 3
  %program = load ptr, ptr %program.at
  %thread = call ptr @PyEval_SaveThread()
  %status = call i32 @run(ptr %program, ptr %pointers, ptr %known, ptr null)
  call void @PyEval_RestoreThread(ptr %thread)
  %is_done = icmp eq i32 %status, 0
  br i1 %is_done, label %succeed, label %fail

succeed:
  %result.at = getelementptr %Versioned, ptr %table, i32 0, i32 18
  %wanted = load ptr, ptr %result.at
  %result = call ptr @result(ptr %wanted, ptr %objects, ptr %cells)
  br label %release

fail:
  %raised = call ptr @raised(ptr %table, i32 %status, ptr %cells)
  br label %release

release:
  %held = phi i64 [ %made, %shapes ], [ %there, %succeed ], [ %there, %fail ]
  %answer = phi ptr [ null, %shapes ], [ %result, %succeed ], [ %raised, %fail ]
  br label %drop

drop:
  %d = phi i64 [ 0, %release ], [ %d.next, %dropped ]
  %d.is_less = icmp slt i64 %d, %held
  br i1 %d.is_less, label %dropped, label %return

dropped:
  %place = add i64 %n, %d
  %dropped.of = getelementptr ptr, ptr %objects, i64 %place
  %array = load ptr, ptr %dropped.of
  call void @Py_DecRef(ptr %array)
  %d.next = add i64 %d, 1
  br label %drop

return:
  ret ptr %answer

no:
  ret ptr null
}

define ptr @call_kernel(ptr %self, ptr %given, i64 %count, ptr %names) nounwind {
entry:
  %way.at = getelementptr %Object, ptr %self, i32 0, i32 3
  %first = load ptr, ptr %way.at
  %n = and i64 %count, u0x7FFFFFFFFFFFFFFF  ; without PY_VECTORCALL_ARGUMENTS_OFFSET
  %is_unnamed = icmp eq ptr %names, null
  br i1 %is_unnamed, label %try, label %python

try:
  %table = phi ptr [ %first, %entry ], [ %next, %unfit ]
  %positional.at = getelementptr %Versioned, ptr %table, i32 0, i32 0
  %positional = load i64, ptr %positional.at
  %is_count = icmp eq i64 %n, %positional
  br i1 %is_count, label %serve, label %unfit

serve:
  %answer = call ptr @served(ptr %table, i64 %n, ptr %given)
  %is_answer = icmp ne ptr %answer, null
  br i1 %is_answer, label %return, label %check

return:
  ret ptr %answer

check:
  %exception = call ptr @PyErr_Occurred()
  %is_raised = icmp ne ptr %exception, null
  br i1 %is_raised, label %raise, label %unfit

raise:
  ret ptr null

unfit:
  %next.at = getelementptr %Versioned, ptr %table, i32 0, i32 2
  %next = load ptr, ptr %next.at
  %is_last = icmp eq ptr %next, null
  br i1 %is_last, label %python, label %try

python:
  %slow.at = getelementptr %Versioned, ptr %first, i32 0, i32 1
  %slow = load ptr, ptr %slow.at
  %result = tail call ptr @PyObject_Vectorcall(
    ptr %slow, ptr %given, i64 %count, ptr %names
  )
  ret ptr %result
}
