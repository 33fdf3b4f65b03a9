; What the thread pool needs of Linux on AArch64: its system call 98 is futex.

declare void @llvm.aarch64.hint(i32)
declare i64 @syscall(i64, ...)

; Tells the processor that the thread spins: YIELD.
define internal void @pause() alwaysinline nounwind {
  call void @llvm.aarch64.hint(i32 1)
  ret void
}

; Sleeps if the word has this value, until it is woken, or for a time.
; 128 is FUTEX_WAIT | FUTEX_PRIVATE_FLAG.
define internal void @futex_wait(ptr %word, i32 %value, ptr %timeout) alwaysinline nounwind {
  %status = call i64 (i64, ...) @syscall(
    i64 98, ptr %word, i32 128, i32 %value, ptr %timeout
  )
  ret void
}

; Wakes at most this number of threads that sleep on the word.
; 129 is FUTEX_WAKE | FUTEX_PRIVATE_FLAG.
define internal void @futex_wake(ptr %word, i32 %count) alwaysinline nounwind {
  %status = call i64 (i64, ...) @syscall(
    i64 98, ptr %word, i32 129, i32 %count
  )
  ret void
}
