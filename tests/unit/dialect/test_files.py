"""Files are written whole or left as they were."""

from __future__ import annotations

import ast
import os
import re
import resource
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cvm.dialect.support import files
from cvm.dialect.support.files import PIECE, read_pieces, write_file

ROOT = Path(__file__).parents[3]
ROOMS = ("cvm", "dialect", "grammar", "jit", "lowering", "parser")
LONG = b"x" * 100_000
MESSY = (
    f"func @main(%x:tensor<2xi32>)->tensor<2xi32>{{\n// {'c' * 20_000}\n%y=cvm.relu %x\n"
    f"return %y\n}}\n"
)


@contextmanager
def full_disk(room: int = 4096) -> Iterator[None]:
    """No file grows beyond `room` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_leaves_the_old_content(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old" * 2000)
    with full_disk(), pytest.raises(OSError, match="too large"):
        write_file(path, LONG)
    assert path.read_bytes() == b"old" * 2000
    assert os.listdir(tmp_path) == ["a"]


def test_a_full_disk_leaves_no_new_file(tmp_path: Path) -> None:
    with full_disk(), pytest.raises(OSError, match="too large"):
        write_file(tmp_path / "a", LONG)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("in_place", [False, True])
def test_fmt_on_a_full_disk_keeps_the_source(tmp_path: Path, in_place: bool) -> None:
    path = tmp_path / "a.cvm"
    path.write_text(MESSY)
    if in_place:
        os.link(path, tmp_path / "another_name")
    names = sorted(os.listdir(tmp_path))
    done = subprocess.run(
        [sys.executable, "-m", "cvm", "fmt", str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000)),
    )
    assert (done.returncode, done.stderr) == (2, f"cvm: {path} cannot be written: file too large\n")
    assert path.read_text() == MESSY
    assert sorted(os.listdir(tmp_path)) == names


def test_mode_and_links_stay(tmp_path: Path) -> None:
    """A symbolic link stays one, and so does a file with two names; the mode is that of before."""
    folder = tmp_path / "other"
    folder.mkdir()
    target, link, link_to_link = folder / "target", tmp_path / "link", tmp_path / "link_to_link"
    target.write_bytes(b"old")
    target.chmod(0o640)
    link.symlink_to(Path("other", "target"))
    link_to_link.symlink_to(link)
    write_file(link_to_link, b"new")
    assert link_to_link.is_symlink() and link.is_symlink() and target.read_bytes() == b"new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640

    os.link(target, folder / "hard")
    for content in (b"longer than before", b"short"):
        write_file(target, content)
        assert (folder / "hard").read_bytes() == content
    assert sorted(os.listdir(folder)) == ["hard", "target"]


def test_a_link_to_no_file_makes_it(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("target")
    write_file(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "target").read_bytes() == b"new"
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="levels of symbolic links"):
        write_file(tmp_path / "loop", b"new")


def test_a_new_file_has_the_mode_of_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_file(tmp_path / "a", b"new")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640


def test_a_pipe_and_a_device_are_written_to(tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "pipe")
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write_file(pipe, b"through", b" the pipe")
    reader.join()
    assert read == [b"through the pipe"] and stat.S_ISFIFO(pipe.stat().st_mode)
    code = (
        "from cvm.dialect.support.files import write_file; print('a', flush=True); "
        "write_file('/dev/stdout', b'b')"
    )
    with open(tmp_path / "out", "ab") as out:
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, stdout=out, check=True)
    assert (tmp_path / "out").read_bytes() == b"a\nb"


@pytest.mark.parametrize("refusing", ["open", "fchown"])
def test_a_file_that_cannot_be_replaced_is_written_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusing: str
) -> None:
    """A folder that is read-only, and a file of another owner; injected, since root may do
    anything.
    """
    path = tmp_path / "a"
    path.write_bytes(b"old")
    inode = path.stat().st_ino

    def refuse(*_: object) -> int:
        raise PermissionError(13, "refused")

    if refusing == "fchown":
        real = os.fstat

        def of_another(handle: int) -> os.stat_result:
            status = list(real(handle))
            status[4] += 1
            return os.stat_result(status)

        monkeypatch.setattr(files.os, "fstat", of_another)
    monkeypatch.setattr(files.os, refusing, refuse)
    write_file(path, LONG)
    assert path.read_bytes() == LONG and path.stat().st_ino == inode
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write any file")
def test_a_file_that_is_read_only_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    path.chmod(0o444)
    with pytest.raises(PermissionError):
        write_file(path, b"new")
    assert path.read_bytes() == b"old"


def test_an_interrupt_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    (tmp_path / "a").write_bytes(b"old")
    monkeypatch.setattr(files.os, "replace", interrupt)
    for name in ("a", "b"):
        with pytest.raises(KeyboardInterrupt):
            write_file(tmp_path / name, LONG)
    assert os.listdir(tmp_path) == ["a"] and (tmp_path / "a").read_bytes() == b"old"


def test_reading_stops_at_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(bytes(2 * PIECE + 3))
    for limit, count in ((1 << 40, 2 * PIECE + 3), (PIECE + 1, PIECE + 1), (0, 0)):
        with open(path, "rb") as file:
            assert len(read_pieces(file, limit)) == count


def test_all_files_are_written_by_one_function() -> None:
    writing = {"write_text", "write_bytes", "mkstemp", "savefig", "savez"}
    found = []
    for path in (p for room in ROOMS for p in (ROOT / room).rglob("*.py")):
        text = path.read_text("utf-8")
        for node in (
            ast.walk(ast.parse(text)) if re.search(rf"open\(|{'|'.join(writing)}", text) else ()
        ):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                modes = [a.value for a in node.args if isinstance(a, ast.Constant)]
                opens = name == "open" and any(
                    isinstance(m, str) and len(m) < 4 and set(m) & set("wax+") for m in modes
                )
                buffered = name in ("savefig", "savez") and "file" in ast.unparse(node.args[0])
                if (name in writing and not buffered) or opens:
                    found.append(f"{path.relative_to(ROOT)}: {ast.unparse(node)}")
    # /dev/null, a copy of standard output, and a member of an archive in memory
    elsewhere = [f for f in found if not f.startswith("dialect/support/files.py")]
    assert len(elsewhere) < len(found)
    assert [
        f for f in elsewhere if not any(o in f for o in ("devnull", "os.dup", "archive.open"))
    ] == []
