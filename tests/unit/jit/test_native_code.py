"""LLVM is left as it was: what others compile in the same process does not change."""

from __future__ import annotations

import llvmlite.binding as llvm
from cvm.jit.llvm import llvm_context

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
    machine = llvm_context.target_machine()
    before = machine.emit_object(llvm.parse_assembly(LOOP))
    with llvm_context.toolchain() as tools:
        ours = tools.object_code(llvm.parse_assembly(LOOP))
        assert machine.emit_object(llvm.parse_assembly(LOOP)) == before
        assert (ours != before) == (llvm.llvm_version_info[0] <= llvm_context.LAST_LLVM)
        assert tools.object_code(llvm.parse_assembly(LOOP)) == ours


def test_threads_have_toolchains_of_their_own():
    with llvm_context.toolchain() as one:
        with llvm_context.toolchain() as other:
            assert one is not other and one.machine is not other.machine
        with llvm_context.toolchain() as again:
            assert again is other


def test_other_libraries_of_llvmlite_are_called_with_its_lock(monkeypatch):
    library = llvm_context.ffi.lib

    class Hidden:
        def __getattr__(self, name: str):
            if name in ("_name", "_handle"):
                raise AttributeError(name)
            return getattr(library, name)

    with llvm_context.toolchain() as tools:
        module = tools.optimised(LOOP)
        expected = tools.object_code(module)
        monkeypatch.setattr(llvm_context.ffi, "lib", Hidden())
        llvm_context._unlocked.cache_clear()
        try:
            assert llvm_context._unlocked("LLVMPY_ParseAssembly") is library.LLVMPY_ParseAssembly
            assert tools.object_code(tools.optimised(LOOP)) == expected
        finally:
            llvm_context._unlocked.cache_clear()
