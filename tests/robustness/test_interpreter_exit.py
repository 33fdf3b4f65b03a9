"""The interpreter may end while daemon threads run compiled code."""

import pytest
from child_process import run_script

CODE = """
import sys, threading
import numpy as np
import cvm

programs = {
    "workspace": "func @main(%x: tensor<?N x ?N x i32>) { %h = cvm.dense %x, %x %y = cvm.dense %h, %x return %y }",
    "allocating": "func @main(%x: tensor<300x300xi32>) { %h = cvm.dense %x, %x %y = cvm.dense %h, %x return %y }",
    "small": "func @main(%x: tensor<300x300xi32>) { %y = cvm.elemwise_add %x, %x return %y }",
}
f = cvm.compile(programs[sys.argv[1]]) if sys.argv[1] != "traced" else cvm.compile(lambda x: x @ x + 1)
x = np.ones((300, 300), np.int32)
began = threading.Barrier(4)

def work():
    f(x)
    began.wait()
    while True:
        f(x)

for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
began.wait()
"""


@pytest.mark.sample(1)
@pytest.mark.parametrize("program", ["workspace", "allocating", "small", "traced"])
def test_daemon_threads_may_be_inside_a_call(program):
    for _ in range(4):
        run_script(CODE, program, CVM_NUM_THREADS="2")
