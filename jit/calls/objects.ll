; The layouts of CPython's and NumPy's objects, and the test whether one is an array of some kind.

; Objects of CPython and NumPy. `usable` in fastcall.py compares these layouts with those in use.
%Object = type {
  i64,  ; references
  ptr,  ; type
  ptr,  ; code: of an object that is called, after CPython's own fields
  ptr   ; way
}
%Tuple = type {
  i64,       ; references
  ptr,       ; type
  i64,       ; size
  [0 x ptr]  ; items
}
%Array = type {
  i64,  ; references
  ptr,  ; type
  ptr,  ; data
  i32,  ; rank
  ptr,  ; shape
  ptr,  ; strides
  ptr,  ; base
  ptr,  ; descriptor
  i32   ; flags
}
%Descriptor = type {
  i64,  ; references
  ptr,  ; type
  ptr,  ; scalar
  i64   ; element
}
%Record = type {
  ptr,  ; descriptor
  i64,  ; rank
  ptr,  ; sizes: of an argument
  i64,  ; element: its kind, letter, order of bytes, flags and number
  i64   ; place: of a result in the array of an argument, the argument's number from 1; or 0
}

@array_type = external global i8


; Whether an object is an array of a record's type and rank, with some of its flags as they should be.
define internal i1 @is_like(ptr %array, ptr %record, i32 %mask, i32 %flags) alwaysinline nounwind {
entry:
  %type.at = getelementptr %Array, ptr %array, i32 0, i32 1
  %type = load ptr, ptr %type.at
  %is_array = icmp eq ptr %type, @array_type
  br i1 %is_array, label %descriptors, label %no

descriptors:
  %descriptor.at = getelementptr %Array, ptr %array, i32 0, i32 7
  %descriptor = load ptr, ptr %descriptor.at
  %wanted.descriptor.at = getelementptr %Record, ptr %record, i32 0, i32 0
  %wanted.descriptor = load ptr, ptr %wanted.descriptor.at
  %is_same = icmp eq ptr %descriptor, %wanted.descriptor
  br i1 %is_same, label %ranks, label %elements

elements:
  %element.at = getelementptr %Descriptor, ptr %descriptor, i32 0, i32 3
  %element = load i64, ptr %element.at
  %wanted.element.at = getelementptr %Record, ptr %record, i32 0, i32 3
  %wanted.element = load i64, ptr %wanted.element.at
  %is_equal = icmp eq i64 %element, %wanted.element
  br i1 %is_equal, label %ranks, label %no

ranks:
  %rank.at = getelementptr %Array, ptr %array, i32 0, i32 3
  %rank = load i32, ptr %rank.at
  %wanted.rank.at = getelementptr %Record, ptr %record, i32 0, i32 1
  %wanted.rank.wide = load i64, ptr %wanted.rank.at
  %wanted.rank = trunc i64 %wanted.rank.wide to i32
  %is_rank = icmp eq i32 %rank, %wanted.rank
  br i1 %is_rank, label %flagged, label %no

flagged:
  %flags.at = getelementptr %Array, ptr %array, i32 0, i32 8
  %own.flags = load i32, ptr %flags.at
  %common = and i32 %own.flags, %mask
  %has_flags = icmp eq i32 %common, %flags
  br i1 %has_flags, label %yes, label %no

yes:
  ret i1 true

no:
  ret i1 false
}
