"""LLVM is left as it was: what others compile in the same process does not change."""

from __future__ import annotations

import llvmlite.binding as llvm
from cvm.jit import toolchain

LOOP = """
define void @f(ptr %p, ptr %q, i64 %n) {
entry:
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %head ]
  %a = mul nsw i64 %i, 12
  %at = getelementptr i8, ptr %p, i64 %a
  %x = load i32, ptr %at
  %b = mul nsw i64 %i, 20
  %to = getelementptr i8, ptr %q, i64 %b
  store i32 %x, ptr %to
  %next = add nsw i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %head, label %done
done:
  ret void
}
"""


def test_options_of_llvm_come_back():
    machine = toolchain.target_machine()
    before = machine.emit_object(llvm.parse_assembly(LOOP))
    with toolchain.toolchain() as tools:
        ours = tools.object_code(llvm.parse_assembly(LOOP))
        assert machine.emit_object(llvm.parse_assembly(LOOP)) == before
        assert (ours != before) == (llvm.llvm_version_info[0] <= toolchain.LAST_LLVM)
        assert tools.object_code(llvm.parse_assembly(LOOP)) == ours


def test_threads_have_toolchains_of_their_own():
    with toolchain.toolchain() as one:
        with toolchain.toolchain() as other:
            assert one is not other and one.machine is not other.machine
        with toolchain.toolchain() as again:
            assert again is other
