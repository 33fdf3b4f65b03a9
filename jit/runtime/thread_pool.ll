; The meeting point of the threads that run parallel loops.
;
;   i32 @parallel(ptr function, ptr context, i64 n, i64 grain)
;
; calls function(context, begin, end) for pieces that make up [0, n).
;
; This file is a module of its own. What depends on the processor is declared here and defined in
; linux_<processor>.ll: @pause, @futex_wait, @futex_wake. fp_environment_ir defines
; @use_default_environment.
;
; Protocol
; ========
;
; One caller at a time owns the pool: the one that changed @busy from 0 to 1. It publishes a job,
; takes pieces of the job itself, closes the job, and waits for the workers that joined. @state
; tells the state of the job:
;
;   idle        open = 0, joined = 0      no job; @busy may be 0, or its owner prepares a job
;   open        open = 1                  workers may join: + 1 to joined, only while open is 1
;   closed      open = 0, joined > 0      all pieces are handed out; workers that joined run some
;   idle        open = 0, joined = 0      the owner returns
;
; A worker is outside, or joined (from its exchange of @state until its subtraction), or asleep on
; @generation. The words, who may change each, and the ordering of accesses:
;
;   @busy        Changed by a caller, 0 -> 1, and by its owner, 1 -> 0. Read by callers.
;                Acquire on entry, release on exit: an owner's stores to the words of a job follow
;                those of the owner before.
;   @function    Changed by the owner before it opens the job. Read by joined workers.
;   @context     Not atomic: stored before the release store of @state, read after the acquiring
;   @count       exchange of @state. They stay until the owner has read joined = 0 (acquire), which
;   @least       follows each worker's last read (its subtraction is a release).
;   @parts
;   @next        Changed by the owner, to 0 before it opens the job, and by whoever takes a piece
;                or stops the job. Read by joined workers and the owner.
;                Monotonic: the exchange is atomic, so that each iteration goes to one thread. The
;                store of 0 is published by @state, as the words above are.
;   @state       Changed by the owner, which opens (store) and closes (and), and by workers, which
;                join (exchange, if open) and leave (sub). Read by workers and the owner.
;                Seq_cst: the opening store releases the words of the job; the subtraction releases
;                a worker's results, which the owner's load acquires. Leaving is a store before the
;                load of @waiting: see "two words" below.
;   @generation  Changed by the owner, + 1 for each job, and by @stop, + 1. Read by workers.
;                Seq_cst: a store before the load of @sleepers (two words). It follows the opening
;                of @state: a worker that reads a new generation finds its job, if it is open.
;   @sleepers    Changed by workers, + 1 before they sleep and - 1 after. Read by the owner.
;                Seq_cst: two words.
;   @waiting     Changed by the owner, to 1 before it sleeps and to 0 after. Read by workers.
;                1: seq_cst, two words. 0: monotonic, since a needless wake is harmless.
;   @stopped     Changed by the owner, to 0 before it opens the job and to 1 when a handler has
;                raised, and by workers, to 1 after they read 1. Read by workers.
;                Monotonic: a hint that ends work early. The owner's result is not read from it.
;   @home        Changed by the owner. Read by workers. Monotonic: a hint.
;   @workers     Changed by Python, to 0 before workers are ended. Read by callers. Monotonic: with
;                0, callers run their loops alone; with another number, workers need not exist.
;   @quit        Changed by @stop, to 1, and by Python, to 0, when all workers have ended. Read by
;                workers. Seq_cst, stored before @generation changes: a worker that reads that
;                generation reads @quit = 1, too.
;   @asked       Of the main thread alone.
;   @main, @place, @allowed    Changed by Python, before threads start.
;
; Two words. A thread that will sleep stores to one word (@sleepers or @waiting) and then reads the
; other (@generation or @state: the kernel compares it with the value that @futex_wait is given, in
; one step with going to sleep). A thread that wakes it stores to the other word first, and then
; reads the one. All four are seq_cst, so at least one of the two threads reads the other's store:
; either the first does not sleep, or the second wakes it. Wake-ups without a cause are harmless:
; after each, the thread reads the word again.
;
; tests/unit/jit/test_thread_pool_protocol.py executes the functions of this file in all
; interleavings of small cases.

; Constants, which LLVM folds
@spins = private unnamed_addr constant i32 4000         ; looks before a thread sleeps: some 10 us
@between_asking = private unnamed_addr constant i64 20  ; milliseconds between two looks for signals
@quick = private unnamed_addr constant i64 4            ; milliseconds: below, parts become larger
@slow = private unnamed_addr constant i64 16            ; milliseconds: above, parts become smaller
@most_workers = private unnamed_addr constant i32 256
@timeout = private unnamed_addr constant [2 x i64] [i64 0, i64 20000000]  ; @between_asking, in ns

; Words that Python reads or writes
@generation = global i32 0
@state = global i64 0          ; generation << 32 | open << 16 | workers that joined
@sleepers = global i32 0
@waiting = global i32 0        ; whether the owner sleeps until the workers are done
@home = global i32 -1          ; the owner's processor
@allowed = global [16 x i64] zeroinitializer  ; a bit for each processor that threads may run on
@busy = global i32 0
@quit = global i32 0
@workers = global i64 0
@main = global i64 0           ; the thread that runs signal handlers
@place = global i32 0          ; a thread's own place, which holds something in workers

; Words of the open job
@function = internal global ptr null
@context = internal global ptr null
@count = internal global i64 0        ; its iterations
@least = internal global i64 1        ; the least iterations in a piece
@parts = internal global i64 1        ; the share of a piece of what is left: one in so many
@next = internal global i64 0         ; the first iteration that is not handed out
@stopped = internal global i32 0      ; whether a handler has raised in the job that is open
@asked = internal global i64 0        ; when signal handlers last ran, in milliseconds

declare void @pause()
declare void @futex_wait(ptr, i32, ptr)
declare void @futex_wake(ptr, i32)
declare void @use_default_environment()
declare i64 @pthread_self()
declare i64 @pthread_getspecific(i32)
declare i32 @pthread_setspecific(i32, i64)
declare i32 @clock_gettime(i32, ptr)
declare i32 @PyGILState_Ensure()
declare void @PyGILState_Release(i32)
declare i32 @PyErr_CheckSignals()
declare i32 @sched_getcpu()
declare i32 @sched_setaffinity(i32, i64, ptr)


; Runs signal handlers in the main thread, if some time has passed. Returns whether one has raised,
; which workers read in @stopped.
define internal i32 @ask() noinline nounwind {
entry:
  %place = load i32, ptr @place
  %mark = call i64 @pthread_getspecific(i32 %place)
  %is_worker = icmp ne i64 %mark, 0
  br i1 %is_worker, label %worker, label %caller

worker:
  %stopped = load atomic i32, ptr @stopped monotonic, align 4
  ret i32 %stopped

caller:
  %self = call i64 @pthread_self()
  %main = load i64, ptr @main
  %is_main = icmp eq i64 %self, %main
  br i1 %is_main, label %in_main, label %nothing

in_main:
  %now = call i64 @milliseconds()
  %asked = load i64, ptr @asked
  %passed = sub i64 %now, %asked
  %between = load i64, ptr @between_asking
  %is_soon = icmp slt i64 %passed, %between
  br i1 %is_soon, label %nothing, label %handlers

handlers:
  store i64 %now, ptr @asked
  %lock = call i32 @PyGILState_Ensure()
  %raised = call i32 @PyErr_CheckSignals()
  call void @PyGILState_Release(i32 %lock)
  ret i32 %raised

nothing:
  ret i32 0
}

define internal i64 @milliseconds() nounwind {
  %time = alloca [2 x i64]
  call i32 @clock_gettime(i32 6, ptr %time)  ; CLOCK_MONOTONIC_COARSE: takes some nanoseconds
  %seconds = load i64, ptr %time
  %nanoseconds.at = getelementptr i64, ptr %time, i64 1
  %nanoseconds = load i64, ptr %nanoseconds.at
  %thousands = mul i64 %seconds, 1000
  %rest = udiv i64 %nanoseconds, 1000000
  %now = add i64 %thousands, %rest
  ret i64 %now
}

; Runs the iterations of a piece, some milliseconds of them at a time if the job may stop: then
; signal handlers run in between. The first part has eight grains, but one iteration if that is a
; grain. Returns whether to stop.
define internal i32 @run(
  ptr %function, ptr %context, i64 %first, i64 %end, i64 %grain, i32 %may
) nounwind {
entry:
  %grains = mul i64 %grain, 8
  %at_first = sub i64 %grains, 7
  %size = sub i64 %end, %first
  %is_small = icmp sle i64 %size, %at_first
  br i1 %is_small, label %whole, label %large

large:
  %is_steady = icmp eq i32 %may, 0
  br i1 %is_steady, label %whole, label %timed

whole:
  call void %function(ptr %context, i64 %first, i64 %end)
  ret i32 0

timed:
  %start = call i64 @milliseconds()
  br label %parts

parts:
  %begin = phi i64 [ %first, %timed ], [ %next, %go_on ]
  %most = phi i64 [ %at_first, %timed ], [ %adapted, %go_on ]
  %before = phi i64 [ %start, %timed ], [ %now, %go_on ]
  %left = sub i64 %end, %begin
  %is_more = icmp slt i64 %most, %left
  br i1 %is_more, label %part, label %last

part:
  %next = add i64 %begin, %most
  call void %function(ptr %context, i64 %begin, i64 %next)
  %now = call i64 @milliseconds()
  %took = sub i64 %now, %before
  %quick = load i64, ptr @quick
  %is_quick = icmp slt i64 %took, %quick
  %slow = load i64, ptr @slow
  %is_slow = icmp sgt i64 %took, %slow
  %is_divisible = icmp sgt i64 %most, 1
  %is_less = and i1 %is_slow, %is_divisible
  %double = shl i64 %most, 1
  %half = lshr i64 %most, 1
  %same_or_half = select i1 %is_less, i64 %half, i64 %most
  %adapted = select i1 %is_quick, i64 %double, i64 %same_or_half
  %raised = call i32 @ask()
  %is_raised = icmp ne i32 %raised, 0
  br i1 %is_raised, label %stop, label %go_on

go_on:
  br label %parts

last:
  call void %function(ptr %context, i64 %begin, i64 %end)
  ret i32 0

stop:
  ret i32 1
}

; Takes pieces of the job and runs them until none is left. A piece is a share of what is left, so
; that the last ones are small and threads are done at about the same time. Returns whether to stop,
; which the others then do as well.
define internal i32 @work(i32 %may) nounwind {
entry:
  %n = load i64, ptr @count
  %grain = load i64, ptr @least
  br label %look

look:
  %seen = load atomic i64, ptr @next monotonic, align 8
  br label %take

take:
  %begin = phi i64 [ %seen, %look ], [ %found, %piece ]
  %is_left = icmp slt i64 %begin, %n
  br i1 %is_left, label %piece, label %done

piece:
  %left = sub i64 %n, %begin
  %parts = load i64, ptr @parts
  %share = udiv i64 %left, %parts
  %is_short = icmp slt i64 %share, %grain
  %wanted = select i1 %is_short, i64 %grain, i64 %share
  %fits = icmp slt i64 %wanted, %left
  %size = select i1 %fits, i64 %wanted, i64 %left
  %end = add i64 %begin, %size
  %exchange = cmpxchg ptr @next, i64 %begin, i64 %end monotonic monotonic
  %found = extractvalue { i64, i1 } %exchange, 0
  %is_taken = icmp eq i64 %found, %begin
  br i1 %is_taken, label %execute, label %take

execute:
  %function = load ptr, ptr @function
  %context = load ptr, ptr @context
  %stop = call i32 @run(
    ptr %function, ptr %context, i64 %begin, i64 %end, i64 %grain, i32 %may
  )
  %is_stopped = icmp ne i32 %stop, 0
  br i1 %is_stopped, label %stop_all, label %look

stop_all:
  store atomic i32 1, ptr @stopped monotonic, align 4
  store atomic i64 %n, ptr @next monotonic, align 8
  ret i32 1

done:
  ret i32 0
}

; Runs a loop that may stop for a signal handler that raises: then nonzero is returned, and the
; exception is left for the thread that called. Long loops on one thread ask by n = 0.
define i32 @parallel(ptr %function, ptr %context, i64 %n, i64 %grain) nounwind {
entry:
  %is_some = icmp sgt i64 %n, 0
  br i1 %is_some, label %some, label %several

some:
  %is_small = icmp sle i64 %n, %grain
  br i1 %is_small, label %one, label %several

one:
  call void %function(ptr %context, i64 0, i64 %n)
  ret i32 0

several:
  %raised = call i32 @ask()
  %is_raised = icmp ne i32 %raised, 0
  br i1 %is_raised, label %stop, label %start

start:
  %status = call i32 @job(ptr %function, ptr %context, i64 %n, i64 %grain, i32 1)
  ret i32 %status

stop:
  ret i32 1
}

; Runs a loop that must not stop in the middle.
define i32 @steady(ptr %function, ptr %context, i64 %n, i64 %grain) nounwind {
  %status = call i32 @job(ptr %function, ptr %context, i64 %n, i64 %grain, i32 0)
  ret i32 %status
}

; The caller's part. A caller that finds the pool busy, as inside another parallel loop, runs all of
; the loop itself.
define internal i32 @job(ptr %function, ptr %context, i64 %n, i64 %grain, i32 %may) nounwind {
entry:
  %is_some = icmp sgt i64 %n, 0
  br i1 %is_some, label %share, label %empty

empty:
  ret i32 0

share:
  %others = load atomic i64, ptr @workers monotonic, align 8
  %is_single = icmp eq i64 %others, 0
  br i1 %is_single, label %alone, label %several

several:
  %is_small = icmp sle i64 %n, %grain
  br i1 %is_small, label %alone, label %own

own:
  %was_busy = atomicrmw xchg ptr @busy, i32 1 acquire
  %is_busy = icmp ne i32 %was_busy, 0
  br i1 %is_busy, label %alone, label %open

alone:
  %status = call i32 @run(
    ptr %function, ptr %context, i64 0, i64 %n, i64 %grain, i32 %may
  )
  ret i32 %status

open:
  store atomic i32 0, ptr @stopped monotonic, align 4
  %here = call i32 @sched_getcpu()
  store atomic i32 %here, ptr @home monotonic, align 4
  store ptr %function, ptr @function
  store ptr %context, ptr @context
  store i64 %n, ptr @count
  store i64 %grain, ptr @least
  %threads = add i64 %others, 1
  %parts = shl i64 %threads, 1
  store i64 %parts, ptr @parts
  store atomic i64 0, ptr @next monotonic, align 8
  %last = load atomic i32, ptr @generation monotonic, align 4
  %new = add i32 %last, 1
  %new.wide = zext i32 %new to i64
  %new.high = shl i64 %new.wide, 32
  %opened = or i64 %new.high, 65536
  store atomic i64 %opened, ptr @state seq_cst, align 8
  store atomic i32 %new, ptr @generation seq_cst, align 4
  %sleepers = load atomic i32, ptr @sleepers seq_cst, align 4
  %any_sleep = icmp sgt i32 %sleepers, 0
  br i1 %any_sleep, label %wake, label %help

wake:
  %all = load i32, ptr @most_workers
  call void @futex_wake(ptr @generation, i32 %all)
  br label %help

help:
  %worked = call i32 @work(i32 %may)
  %closed = atomicrmw and ptr @state, i64 -65537 seq_cst  ; no worker joins from here on
  br label %wait

wait:
  %raised = phi i32 [ %worked, %help ], [ %raised, %spin ], [ %told, %rest ]
  %spun = phi i32 [ 0, %help ], [ %more, %spin ], [ %spun, %rest ]
  %now = load atomic i64, ptr @state acquire, align 8
  %joined = and i64 %now, 65535
  %is_done = icmp eq i64 %joined, 0
  br i1 %is_done, label %return, label %yet

yet:
  call void @pause()
  %spins = load i32, ptr @spins
  %is_long = icmp sgt i32 %spun, %spins
  br i1 %is_long, label %handle, label %spin

spin:
  %more = add i32 %spun, 1
  br label %wait

handle:
  %may_stop = icmp ne i32 %may, 0
  %is_calm = icmp eq i32 %raised, 0
  %asks = and i1 %may_stop, %is_calm
  br i1 %asks, label %signals, label %sleep

signals:
  %answer = call i32 @ask()
  store atomic i32 %answer, ptr @stopped monotonic, align 4
  br label %sleep

sleep:
  %told = phi i32 [ %raised, %handle ], [ %answer, %signals ]
  store atomic i32 1, ptr @waiting seq_cst, align 4
  %still = load atomic i64, ptr @state seq_cst, align 8
  %held = trunc i64 %still to i32
  %is_held = icmp ne i32 %held, 0
  br i1 %is_held, label %doze, label %rest

doze:
  call void @futex_wait(ptr @state, i32 %held, ptr @timeout)
  br label %rest

rest:
  store atomic i32 0, ptr @waiting monotonic, align 4
  br label %wait

return:
  store atomic i32 0, ptr @busy release, align 4
  ret i32 %raised
}

; Moves the thread off a processor, as long as it has no reason to go there again.
define internal void @leave(i32 %here) noinline nounwind {
entry:
  %n = zext i32 %here to i64
  %is_known = icmp slt i64 %n, 1024  ; a bit of @allowed
  br i1 %is_known, label %known, label %done

known:
  %rest = alloca [16 x i64], align 8
  br label %copy

copy:
  %k = phi i64 [ 0, %known ], [ %following, %copy ]
  %from = getelementptr i64, ptr @allowed, i64 %k
  %bits = load i64, ptr %from
  %to = getelementptr i64, ptr %rest, i64 %k
  store i64 %bits, ptr %to
  %following = add i64 %k, 1
  %is_more = icmp slt i64 %following, 16
  br i1 %is_more, label %copy, label %clear

clear:
  %which = lshr i64 %n, 6
  %word.at = getelementptr i64, ptr %rest, i64 %which
  %word = load i64, ptr %word.at
  %bit = and i64 %n, 63
  %mask = shl i64 1, %bit
  %others = xor i64 %mask, -1
  %without = and i64 %word, %others
  store i64 %without, ptr %word.at
  call i32 @sched_setaffinity(i32 0, i64 128, ptr %rest)
  br label %done

done:
  ret void
}

; A worker's thread: spins until the generation changes, then sleeps on it.
define i32 @worker(i32 %first) nounwind {
entry:
  call void @use_default_environment()
  %place = load i32, ptr @place
  call i32 @pthread_setspecific(i32 %place, i64 1)
  %home = load atomic i32, ptr @home monotonic, align 4
  call void @leave(i32 %home)
  br label %look

look:
  %seen = phi i32 [ %first, %entry ], [ %current, %take_part ], [ %seen, %spin ], [ %seen, %sleep ]
  %spun = phi i32 [ 0, %entry ], [ 0, %take_part ], [ %more, %spin ], [ 0, %sleep ]
  %current = load atomic i32, ptr @generation seq_cst, align 4
  %is_new = icmp ne i32 %current, %seen
  br i1 %is_new, label %new, label %idle

new:
  %quit = load atomic i32, ptr @quit seq_cst, align 4
  %is_over = icmp ne i32 %quit, 0
  br i1 %is_over, label %end, label %take_part

take_part:
  call void @join()
  br label %look

idle:
  %spins = load i32, ptr @spins
  %is_long = icmp sgt i32 %spun, %spins
  br i1 %is_long, label %sleep, label %spin

spin:
  call void @pause()
  %more = add i32 %spun, 1
  br label %look

sleep:
  %before = atomicrmw add ptr @sleepers, i32 1 seq_cst
  call void @futex_wait(ptr @generation, i32 %seen, ptr null)
  %after = atomicrmw sub ptr @sleepers, i32 1 seq_cst
  br label %look

end:
  ret i32 0
}

; Takes part in the job, if it is open. A worker that finds itself on its owner's processor leaves
; it for the others: systems wake threads there, though others are idle, and the owner may be done
; before the worker had its turn there.
define internal void @join() nounwind {
entry:
  %there = load atomic i32, ptr @home monotonic, align 4
  %here = call i32 @sched_getcpu()
  %is_same = icmp eq i32 %here, %there
  br i1 %is_same, label %move, label %look

move:
  call void @leave(i32 %there)
  br label %look

look:
  %seen = load atomic i64, ptr @state acquire, align 8
  br label %try

try:
  %have = phi i64 [ %seen, %look ], [ %found, %enter ]
  %open = and i64 %have, 65536
  %is_open = icmp ne i64 %open, 0
  br i1 %is_open, label %enter, label %done

enter:
  %with_me = add i64 %have, 1
  %exchange = cmpxchg ptr @state, i64 %have, i64 %with_me seq_cst acquire
  %found = extractvalue { i64, i1 } %exchange, 0
  %is_in = icmp eq i64 %found, %have
  br i1 %is_in, label %joined, label %try

joined:
  %stop = call i32 @work(i32 1)
  %left = atomicrmw sub ptr @state, i64 1 seq_cst
  %waiting = load atomic i32, ptr @waiting seq_cst, align 4
  %is_waited_for = icmp ne i32 %waiting, 0
  br i1 %is_waited_for, label %wake, label %done

wake:
  call void @futex_wake(ptr @state, i32 1)
  br label %done

done:
  ret void
}

; Ends the workers; the caller then waits for their threads.
define i32 @stop() nounwind {
  store atomic i32 1, ptr @quit seq_cst, align 4
  %last = atomicrmw add ptr @generation, i32 1 seq_cst
  %all = load i32, ptr @most_workers
  call void @futex_wake(ptr @generation, i32 %all)
  ret i32 0
}
