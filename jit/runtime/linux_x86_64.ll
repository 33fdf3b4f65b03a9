; What the thread pool needs of Linux on x86-64: its system call 202 is futex.

declare void @llvm.x86.sse2.pause()
declare i64 @syscall(i64, ...)

; Tells the processor that the thread spins.
define internal void @pause() alwaysinline nounwind {
  call void @llvm.x86.sse2.pause()
  ret void
}

; Sleeps if the word has this value, until it is woken, or for a time.
; 128 is FUTEX_WAIT | FUTEX_PRIVATE_FLAG.
define internal void @futex_wait(ptr %word, i32 %value, ptr %timeout) alwaysinline nounwind {
  %status = call i64 (i64, ...) @syscall(
    i64 202, ptr %word, i32 128, i32 %value, ptr %timeout
  )
  ret void
}

; Wakes at most this number of threads that sleep on the word.
; 129 is FUTEX_WAKE | FUTEX_PRIVATE_FLAG.
define internal void @futex_wake(ptr %word, i32 %count) alwaysinline nounwind {
  %status = call i64 (i64, ...) @syscall(
    i64 202, ptr %word, i32 129, i32 %count
  )
  ret void
}
