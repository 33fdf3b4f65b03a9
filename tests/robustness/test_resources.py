"""Memory stays bounded: of files that hold more than a program declares, and of functions that come
and go.
"""

import io
import json
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest
from child_process import run_script

import cvm

PROGRAM = 'func @main() {{ %c = const file("{file}", "w") : tensor<3xi32>\nreturn %c }}'
BOUNDED = """
import resource, sys
import cvm

limit = 2 << 30
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    cvm.load(sys.argv[1])
except cvm.Error as e:
    print(e.diagnostics[0].message)
"""
PEAK = """
import resource, sys
import cvm

before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    cvm.load(sys.argv[1])
except cvm.Error as e:
    print(e.diagnostics[0].message)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""
LINKED = """
import gc
from cvm.jit.llvm.native_code import Library, fresh_object_code

def kilobytes():
    gc.collect()
    return int(open("/proc/self/statm").read().split()[1]) * 4

image = fresh_object_code("define i32 @f() {\\n ret i32 7\\n}\\n")
kept = [Library([image], {"f": ()}) for _ in range(20)]
for _ in range(600):
    Library([image], {"f": ()})
before = kilobytes()
for _ in range(2048):
    Library([image], {"f": ()})
assert all(library.functions["f"]() == 7 for library in kept)
print((kilobytes() - before) / 2048)
"""


@pytest.mark.parametrize("extension", ["npz", "npy"])
def test_an_array_of_another_shape_is_not_read(extension, tmp_path):
    with open(tmp_path / "w.npy", "wb") as file:
        np.lib.format.write_array_header_1_0(
            file, {"descr": "<i4", "fortran_order": False, "shape": (3 << 28,)}
        )
        file.write(bytes(12))
    with zipfile.ZipFile(tmp_path / "c.npz", "w") as archive:
        archive.write(tmp_path / "w.npy", "w.npy")
    program = tmp_path / "p.cvm"
    program.write_text(PROGRAM.format(file="c.npz" if extension == "npz" else "w.npy"))
    said = run_script(BOUNDED, str(program))
    assert (
        "the constant is tensor<3xi32>, but the file holds an array of shape (805306368,)" in said
    )


@pytest.mark.parametrize(
    ("member", "version", "shape", "type", "message"),
    [
        (
            "w.npy",
            (1, 0),
            (3,),
            "|S300000000",
            "the constant is tensor<3xi32>, but the file holds an array of shape (3,) of "
            "|S300000000",
        ),
        (
            "w.npy",
            (3, 0),
            (9 << 25,),
            "<i4",
            "the constant is tensor<3xi32>, but the file holds an array of shape "
            "(301989888,) of int32",
        ),
        ("w", (1, 0), (9 << 25,), "<i4", "the file holds an array of shape (301989888,)"),
        ("w", None, (), "", "cannot be read: the magic string is not correct"),
    ],
)
def test_a_member_is_not_read_before_its_header(
    member: str,
    version: tuple[int, int] | None,
    shape: tuple[int, ...],
    type: str,
    message: str,
    tmp_path: Path,
) -> None:
    """A file of 1 MB that inflates to a gigabyte: elements of hundreds of megabytes, a version, a
    name and no header at all.
    """
    header = io.BytesIO()
    if version:
        said = repr({"descr": type, "fortran_order": False, "shape": shape}).encode() + b"\n"
        width = 2 if version[0] == 1 else 4
        header = io.BytesIO(
            b"\x93NUMPY" + bytes(version) + len(said).to_bytes(width, "little") + said
        )
    with zipfile.ZipFile(tmp_path / "c.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("v.npy", header.getvalue())
        with archive.open(member, "w", force_zip64=True) as file:
            file.write(header.getvalue())
            for _ in range(72):
                file.write(bytes(1 << 24))
    (tmp_path / "p.cvm").write_text(PROGRAM.format(file="c.npz"))
    said, megabytes = run_script(PEAK, str(tmp_path / "p.cvm")).rsplit("\n", 2)[:2]
    assert message in said and int(megabytes) < 100


LONG_HEADERS = """
import sys
from pathlib import Path
import numpy as np
import cvm
from cvm.cli import main
folder, sys.stderr = Path(sys.argv[1]), sys.stdout
(folder / "f.cvm").write_text("func @main(%x: tensor<3xi32>) { return %x }")
(folder / "g.cvm").write_text("graph @main { %n = cog.field \\"n\\" init dense<0.0> : !cog.field<[], f32>\\n cog.feedback %n, %n }")
for name in ("c.npz", "w.npy"):
    try:
        cvm.load(folder / f"{name}.cvm")
    except cvm.Error as e:
        print(e)
    main(["run", str(folder / "f.cvm"), "--input", f"x={folder / name}"])
    main(["import", "no.onnx", "--constant", f"x={folder / name}"])
main(["run", str(folder / "f.cvm"), "--inputs", str(folder / "c.npz")])
main(["run", str(folder / "g.cvm"), "--load-state", str(folder / "c.npz")])
# the peak of this program's own memory: ru_maxrss counts the process that started it, too
status = Path("/proc/self/status").read_text()
print("megabytes", int(status.partition("VmHWM:")[2].split()[0]) >> 10)
"""


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_long_header_is_not_read(version: int, tmp_path: Path) -> None:
    """A header of 300 MB, or the longest that version 1 has: of constants, inputs, states and
    constants of models.
    """
    width, length = (2, 65535) if version == 1 else (4, 300_000_000)
    head = b"\x93NUMPY" + bytes([version, 0]) + length.to_bytes(width, "little")
    with open(tmp_path / "w.npy", "wb") as file:
        file.write(head)
        file.truncate(length)
    with zipfile.ZipFile(tmp_path / "c.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(tmp_path / "w.npy", "w.npy")
    for name in ("c.npz", "w.npy"):
        (tmp_path / f"{name}.cvm").write_text(PROGRAM.format(file=name))
    said = run_script(LONG_HEADERS, str(tmp_path))
    assert said.count(f"the header of an array has {length} bytes, more than 10000") == 4
    assert int(re.findall(r"megabytes (\d+)", said)[0]) < 300


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (
            '"w": {"dtype": "I32", "shape": [3], "data_offsets": [0, 12]}, "v": {"dtype": '
            '"I32", "shape": [3], "data_offsets": [8, 20]}',
            "entries that share bytes",
        ),
        (
            '"w": {"dtype": "I32", "shape": [3], "data_offsets": [0, 12]}, "w": {"dtype": '
            '"I32", "shape": [3], "data_offsets": [12, 24]}',
            "two entries of one name",
        ),
    ],
)
def test_ambiguous_safetensors_files(entries, message, tmp_path):
    header = f"{{{entries}}}".encode()
    (tmp_path / "c.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(24))
    (tmp_path / "p.cvm").write_text(PROGRAM.format(file="c.safetensors"))
    with pytest.raises(cvm.Error, match=message):
        cvm.load(tmp_path / "p.cvm")


def test_safetensors_files_as_they_should_be(tmp_path):
    entries = {
        n: {"dtype": "I32", "shape": [3], "data_offsets": [12 * k, 12 * k + 12]}
        for k, n in enumerate("vw")
    }
    entries["empty"] = {"dtype": "I32", "shape": [0], "data_offsets": [12, 12]}
    header = json.dumps({"__metadata__": {"a": "b"}, **entries}).encode()
    data = np.arange(6, dtype=np.int32).tobytes()
    (tmp_path / "c.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + data)
    (tmp_path / "p.cvm").write_text(PROGRAM.format(file="c.safetensors"))
    assert cvm.compile(cvm.load(tmp_path / "p.cvm"))().tolist() == [3, 4, 5]


def test_libraries_that_are_dropped_are_freed():
    assert (
        float(run_script(LINKED)) < 2
    )  # KB each; LLVM keeps some of each library as long as their linker
