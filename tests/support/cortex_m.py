"""A program without an operating system on qemu's Cortex-M boards, which prints what `differ()`
finds.
"""

from __future__ import annotations

BARE = """int semihosting(int operation, const void *block);
__asm__(".thumb\\n.thumb_func\\n.global semihosting\\nsemihosting:\\n bkpt 0xab\\n bx lr\\n");
void _start(void);
__attribute__((section(".vectors"), used)) static void *const vectors[2] = {(void *)0x20300000, (void *)_start};
void _start(void) {
  *(volatile unsigned *)0xe000ed88 = 0xf << 20;  /* floating-point registers may be used */
  semihosting(4, differ() ? "differ" : "same");
  semihosting(0x18, (void *)0x20026);
}
"""
LINKED = """SECTIONS {
  . = 0; .vectors : { KEEP(*(.vectors)) } .text : { *(.text*) *(.rodata*) } .ARM.exidx : { *(.ARM.exidx*) }
  . = 0x20000000; .data : { *(.data*) } .bss : { *(.bss*) *(COMMON) }
}
"""
