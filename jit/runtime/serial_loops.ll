; Parallel loops on one thread: on systems without futexes, and in libraries built ahead of time.

define i32 @parallel(ptr %function, ptr %context, i64 %n, i64 %grain) nounwind {
entry:
  %is_some = icmp sgt i64 %n, 0
  br i1 %is_some, label %all, label %done

all:
  call void %function(ptr %context, i64 0, i64 %n)
  br label %done

done:
  ret i32 0
}
