"""Functions that are known by their program's text: they come back without anything being read, and
never for another program.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from cvm.dialect.ir.deferred_size_limits import DeferredChecks
from cvm.dialect.ir.find_deferred_checks import checks_as_in, find_deferred_checks
from cvm.dialect.ir.module import Module
from cvm.dialect.ir.verify import instantiate
from cvm.dialect.types.constant_files import MAX_DIGEST_BYTES
from cvm.dialect.types.sizes import Size
from cvm.dialect.types.tensor_types import as_given
from cvm.jit.cache import disk_cache, keys
from cvm.jit.options import DEFAULT

import cvm

FILES = sorted((Path(__file__).parents[2] / "filetests").rglob("*.cvm"))
PROGRAM = """
func @main(%x: tensor<?Nx3xi32> {range = [-9, 9]}, %w: tensor<?N x ? x i32>) -> tensor<?Nx6xi32> {
  %c = const dense<[5, 6, 7]> : tensor<3xi32>
  %d = cvm.broadcast_add %x, %c
  %y = cvm.concatenate %d, %x {axis = 1}
  return %y
}

func @other(%x: tensor<2xf32>) -> tensor<2xf32> {
  %y = dali.mul %x, 2.0
  return %y
}
"""
WEIGHTS = """
func @main(%x: tensor<?Nx3xi32>) -> tensor<?Nx2xi32> {
  %w = const file("w.npz", "w") : tensor<2x3xi32>
  %y = cvm.dense %x, %w
  return %y
}
"""
X, W = np.arange(-6, 6, dtype=np.int32).reshape(4, 3), np.zeros((4, 2), np.int32)
EXPECTED = np.concatenate([X + np.array([5, 6, 7]), X], 1)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    cvm.compile(PROGRAM, "other")(np.zeros(2, np.float32))  # and with it what all programs share
    where = tmp_path / "cache"
    monkeypatch.setenv("CVM_CACHE_DIR", str(where))
    return where


@contextmanager
def unread() -> Iterator[None]:
    """Nothing is read meanwhile."""
    import cvm.parser

    def refuse(*_: object) -> None:
        raise AssertionError("a program is read")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cvm.parser, "parse", refuse)
        yield


def is_read(program: str | Path, entry: str = "main") -> bool:
    """Test whether compiling parses the program."""
    with unread():
        try:
            cvm.compile(program, entry)
        except AssertionError:
            return True
    return False


def test_a_text_that_was_compiled_is_not_read(folder: Path) -> None:
    first = cvm.compile(PROGRAM)
    with unread():
        f = cvm.compile(PROGRAM)
        for x in (X, X[:1], X[:0]):
            assert np.array_equal(f(x, W[: len(x)]), EXPECTED[: len(x)])
            assert np.array_equal(first(x, W[: len(x)]), EXPECTED[: len(x)])
        assert np.array_equal(f(w=W, x=X.tolist()), EXPECTED)
        out = np.empty((4, 6), np.int32)
        assert f(X, W, out=out) is out and np.array_equal(out, EXPECTED)
        assert repr(f) == repr(first)


def test_what_calls_refuse_is_said_alike(folder: Path) -> None:
    first = cvm.compile(PROGRAM)
    with unread():
        again = cvm.compile(PROGRAM)
        wrong = ((X,), (X, W[1:]), (X + 9, W), (X.astype(float), W), (X[:, 1:], W))
        for arguments in wrong:
            said = []
            for f in (first, again):
                with pytest.raises(cvm.CallError) as e:
                    f(*arguments)
                said.append(str(e.value))
            assert said[0] == said[1] and "<text>:2:" in said[1]
        with pytest.raises(cvm.CallError, match="no %w"):
            again(x=X)
        with pytest.raises(cvm.CallError, match="out: expected a writable array tensor<4x6xi32>"):
            again(X, W, out=np.empty((4, 5), np.int32))


def test_what_is_asked_for_is_read_then(folder: Path) -> None:
    first = cvm.compile(PROGRAM)
    with unread():
        f = cvm.compile(PROGRAM)
    for stage in ("graph", "schedule", "llvm"):
        assert f.lower(stage) == first.lower(stage)
    assert f.function is f.module.functions["main"] and len(f.function.operations) == 3
    assert f.cost() == first.cost()
    assert np.array_equal(pickle.loads(pickle.dumps(f))(X, W), EXPECTED)


def test_levels_of_optimization_are_kept_apart(folder: Path) -> None:
    made = {level: cvm.compile(PROGRAM, optimize=level) for level in (2, 0)}
    assert made[0]._made.images != made[2]._made.images
    with unread():
        for level, first in made.items():
            again = cvm.compile(PROGRAM, optimize=level)
            assert again.options.optimize == level and again._made.images == first._made.images
            assert np.array_equal(again(X, W), EXPECTED)
    again = pickle.loads(pickle.dumps(made[0]))
    assert again.options.optimize == 0 and again.lower("llvm") == made[0].lower("llvm") != made[
        2
    ].lower("llvm")


def test_functions_of_a_text_are_kept_apart(folder: Path) -> None:
    for _ in range(2):
        assert np.array_equal(cvm.compile(PROGRAM)(X, W), EXPECTED)
        assert cvm.compile(PROGRAM, "other")(np.ones(2, np.float32)).tolist() == [2, 2]
    assert not is_read(PROGRAM, "other")
    with pytest.raises(cvm.TargetError, match="no function @third"):
        cvm.compile(PROGRAM, "third")
    assert cvm.compile(PROGRAM, "other", "reference").target == "reference"


def test_another_text_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cvm.compile(PROGRAM)
    changed = PROGRAM.replace("[5, 6, 7]", "[5, 6, 8]")
    assert is_read(changed)
    assert cvm.compile(changed)(X, W)[:, :3].tolist() == (X + np.array([5, 6, 8])).tolist()
    assert is_read(PROGRAM + " ")
    assert not is_read(PROGRAM)
    monkeypatch.setattr(keys, "compiler_digest", lambda: "another")
    assert is_read(PROGRAM)


def test_mistakes_are_told_every_time(folder: Path) -> None:
    for _ in range(2):
        with pytest.raises(cvm.ParseError):
            cvm.compile("func @main( {")
        with pytest.raises(cvm.ParseError, match="surrogate"):
            cvm.compile("func @main() { return } // \ud800")
        with pytest.raises(cvm.VerifyError):
            cvm.compile(PROGRAM.replace("axis = 1", "axis = 2"))
        with pytest.raises(cvm.ParseError, match="cannot be read"):
            cvm.compile(Path("none.cvm"))


def test_rules_that_wait_for_sizes_are_held(folder: Path) -> None:
    text = """
    func @main(%x: tensor<?Nx3xi32>, %y: tensor<?Mx3xi32>) -> tensor<?Nx3xi32> {
      %z = theano.elemwise %x, %y {scalar_op = "add"}
      return %z
    }
    """
    for _ in range(2):
        f = cvm.compile(text)
        assert np.array_equal(f(X, X), 2 * X)
        with pytest.raises(cvm.Error, match=r"theano\.elemwise"):
            f(X, X[:3])


def test_too_large_arrays_are_refused(folder: Path) -> None:
    text = """
    func @main(%x: tensor<?Nx1xi32>) -> tensor<1x1xi32> {
      %c = const dense<2> : tensor<1x524288xi32>
      %a = cvm.broadcast_mul %x, %c
      %z = cvm.sum %a {axes = [0, 1], keepdims = true}
      return %z
    }
    """
    said = []
    for _ in range(2):
        f = cvm.compile(text)
        assert f(np.arange(3, dtype=np.int32).reshape(3, 1)).tolist() == [[6 << 19]]
        with pytest.raises(cvm.VerifyError, match="less than 2\\^40 elements") as e:
            f(np.zeros((1 << 21, 1), np.int32))
        said.append(str(e.value))
    assert said[0] == said[1] and not is_read(text)


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_left_open_is_what_verification_leaves(path: Path) -> None:
    """If only sizes are left to a call, verification for these sizes gives the same types; so it
    does where sizes compare as in another call.
    """
    try:
        module = cvm.load(path)
    except cvm.Error:
        return
    if not isinstance(module, Module):  # kernels, whose sizes are checked as they run
        return
    for function in module.functions.values():
        sizes = [d for t in function.argument_types for d in t.array_shape if isinstance(d, Size)]
        found = find_deferred_checks(function) if sizes else None
        atoms = list(dict.fromkeys(d.terms[0][0] for d in sizes))
        as_there: list[DeferredChecks] = []
        for values in itertools.islice(itertools.product((0, 1, 2, 5), repeat=len(atoms)), 40):
            known = dict(zip(atoms, values, strict=True))
            shapes = [
                tuple(d.evaluate(known) if isinstance(d, Size) else d for d in t.array_shape)
                for t in function.argument_types
            ]
            given = [
                as_given(t, shape) for t, shape in zip(function.argument_types, shapes, strict=True)
            ]
            try:
                types = instantiate(module, function, given)
                wanted = [types.get(r) or r.known_type for r in function.results]
            except cvm.VerifyError:
                wanted = None
            assert found is None or found.result_types(given) == wanted, (function.name, known)
            here = checks_as_in(module, function, given)
            assert wanted is not None or here is None, (function.name, known)
            if here is not None:
                assert here.result_types(given) == wanted, (function.name, known)
                as_there.append(here)
            for checks in as_there:
                assert checks.result_types(given) in (wanted, None), (function.name, known)


# Files


def weights(where: Path, value: int) -> Path:
    where.mkdir(exist_ok=True)
    np.savez(where / "w.npz", w=np.full((2, 3), value, np.int32))
    path = where / "p.cvm"
    path.write_text(WEIGHTS)
    return path


def test_files_are_held_against_what_was_read(folder: Path, tmp_path: Path) -> None:
    path = weights(tmp_path / "a", 2)
    wanted = X @ np.full((3, 2), 2)
    assert np.array_equal(cvm.compile(path)(X), wanted)
    assert not is_read(path)
    assert np.array_equal(cvm.compile(path)(X), wanted)
    about = os.stat(path.parent / "w.npz")
    weights(tmp_path / "a", 3)
    os.utime(
        path.parent / "w.npz", ns=(about.st_atime_ns, about.st_mtime_ns)
    )  # by its content, not its time
    assert is_read(path)
    assert np.array_equal(cvm.compile(path)(X), X @ np.full((3, 2), 3))
    assert not is_read(path)


def test_programs_of_one_text_in_two_folders(folder: Path, tmp_path: Path) -> None:
    first, second = weights(tmp_path / "a", 2), weights(tmp_path / "b", 3)
    for _ in range(2):
        assert np.array_equal(cvm.compile(first)(X), X @ np.full((3, 2), 2))
        assert np.array_equal(cvm.compile(str(second))(X), X @ np.full((3, 2), 3))
    assert not is_read(first) and not is_read(second)
    with pytest.raises(cvm.VerifyError, match="this program is not in a file"):
        cvm.compile(WEIGHTS)


def test_files_that_are_gone_or_elsewhere(folder: Path, tmp_path: Path) -> None:
    path = weights(tmp_path / "a", 2)
    f = cvm.compile(path)
    os.rename(tmp_path / "a" / "w.npz", tmp_path / "w.npz")
    with pytest.raises(cvm.Error, match="no file"):
        cvm.compile(path)
    (tmp_path / "a" / "w.npz").symlink_to(tmp_path / "w.npz")
    with pytest.raises(cvm.Error, match="outside the program's folder"):
        cvm.compile(path)
    assert np.array_equal(f(X[:3]), X[:3] @ np.full((3, 2), 2))


def test_a_file_too_large_to_have_a_digest(folder: Path, tmp_path: Path) -> None:
    """An archive with a hole between its arrays and the list of them."""
    path = weights(tmp_path / "a", 2)
    archive = path.with_name("w.npz")
    data = archive.read_bytes()
    end = data.rindex(
        b"PK\x05\x06"
    )  # the last record, of which four bytes say where the list begins
    begin = int.from_bytes(data[end + 16 : end + 20], "little")
    with archive.open("wb") as file:
        file.write(data[:begin])
        file.seek(MAX_DIGEST_BYTES)
        file.write(
            data[begin : end + 16] + MAX_DIGEST_BYTES.to_bytes(4, "little") + data[end + 20 :]
        )
    for _ in range(2):
        assert np.array_equal(cvm.compile(path)(X), X @ np.full((3, 2), 2))
    assert is_read(path)


# What lies in the folder


def entry(folder: Path) -> Path:
    """The entry of the text."""
    name = keys.name_of_text(PROGRAM.encode(), None, "main", DEFAULT)
    assert name is not None
    return folder / name


@pytest.mark.parametrize(
    "damage", [lambda d: d[:-1], lambda d: d[:40] + b"\0" + d[41:], lambda d: b""]
)
def test_a_damaged_entry_is_replaced(folder: Path, damage) -> None:
    cvm.compile(PROGRAM)
    whole = entry(folder).read_bytes()
    entry(folder).write_bytes(damage(whole))
    assert is_read(PROGRAM)
    assert np.array_equal(cvm.compile(PROGRAM)(X, W), EXPECTED)
    assert entry(folder).read_bytes() == whole


def test_the_code_may_be_gone(folder: Path) -> None:
    cvm.compile(PROGRAM)
    for path in folder.iterdir():
        if path != entry(folder):
            path.unlink()
    assert is_read(PROGRAM)
    assert np.array_equal(cvm.compile(PROGRAM)(X, W), EXPECTED)
    assert not is_read(PROGRAM)


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="permissions are POSIX")
def test_entries_of_others_are_ignored(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cvm.compile(PROGRAM)
    os.chmod(entry(folder), 0o666)
    assert is_read(PROGRAM)
    os.chmod(entry(folder), 0o600)
    assert not is_read(PROGRAM)
    monkeypatch.setattr(os, "getuid", lambda: os.stat(folder).st_uid + 1)
    assert is_read(PROGRAM)


def test_without_a_cache_all_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CVM_CACHE_DIR", "")
    cvm.compile(PROGRAM)
    assert is_read(PROGRAM) and not folder.exists()


def _compile_many(path: Path, value: int) -> None:
    for _ in range(4):
        assert np.array_equal(cvm.compile(PROGRAM)(X, W), EXPECTED)
        assert np.array_equal(cvm.compile(path)(X), X @ np.full((3, 2), value))


@pytest.mark.slow
def test_processes_share_it(folder: Path, tmp_path: Path) -> None:
    paths = [(weights(tmp_path / name, value), value) for name, value in (("a", 2), ("b", 3))]
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_compile_many, args=p) for p in (*paths, *paths)]
    for w in workers:
        w.start()
    for w in workers:
        w.join(60)
    assert [w.exitcode for w in workers] == [0] * 4
    assert not is_read(PROGRAM) and not any(is_read(path) for path, _ in paths)


def test_little_is_loaded(folder: Path) -> None:
    """A process that starts warm has neither a parser nor what lowers programs, and no
    operators.
    """
    code = (
        f"import sys, cvm, numpy; f = cvm.compile({PROGRAM!r}, 'other'); f(numpy.ones(2, "
        "'f4')); print(*sys.modules)"
    )
    again = [
        subprocess.check_output([sys.executable, "-c", code], cwd=Path(__file__).parents[3])
        for _ in range(2)
    ]
    heavy = {
        "cvm.parser",
        "cvm.dialect.spec.operator",
        "cvm.dialect.ir.verify",
        "cvm.jit.llvm.emit",
        "lark",
    }
    loaded = again[1].decode().split()
    assert heavy.isdisjoint(loaded)
    assert [m for m in loaded if m.startswith("cvm.lowering.")] == [
        "cvm.lowering.processor"
    ]  # data that keys hold
    assert disk_cache.folder() == folder
