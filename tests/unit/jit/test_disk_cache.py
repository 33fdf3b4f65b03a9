"""The disk cache: what it gives back, and what it refuses to. Programs are read before;
`test_recalled` has those that are not.
"""

import multiprocessing
import os
import stat

import numpy as np
import pytest
from cvm.dialect.spec.operator import OPERATORS
from cvm.jit.cache import disk_cache, keys
from cvm.jit.options import DEFAULT
from cvm.lowering import pipeline

import cvm

PROGRAM = """
func @main(%x: tensor<5xi32>) -> tensor<5xi32> {
  %y = cvm.abs %x
  return %y
}
"""


def compiled(text):
    return cvm.compile(cvm.parse(text))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    compiled(PROGRAM)  # and with it what all programs share
    where = tmp_path / "cache"
    monkeypatch.setenv("CVM_CACHE_DIR", str(where))
    return where


def entries(folder):
    return [p for p in folder.iterdir()] if folder.exists() else []


def test_an_entry_comes_back(folder):
    name = disk_cache.key("a", "b")
    assert disk_cache.load(name) is None
    disk_cache.store(name, b"payload")
    assert disk_cache.load(name) == b"payload"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_keys_tell_parts_apart():
    assert disk_cache.key("ab", "c") != disk_cache.key("a", "bc")


def test_a_compiled_function_is_kept_and_used(folder):
    x = np.array([-1, 2, -3, 4, -5], np.int32)
    assert compiled(PROGRAM)(x).tolist() == [1, 2, 3, 4, 5]
    kept = entries(folder)
    assert len(kept) == 1
    before = kept[0].stat().st_ino
    assert compiled(PROGRAM)(x).tolist() == [1, 2, 3, 4, 5]
    assert [p.stat().st_ino for p in entries(folder)] == [before]


@pytest.mark.parametrize(
    "damage",
    [lambda d: d[:-1], lambda d: d[:40] + b"\0" + d[41:], lambda d: b"", lambda d: b"x" * 10],
)
def test_a_damaged_entry_is_ignored_and_replaced(folder, damage):
    x = np.array([-1, 2, -3, 4, -5], np.int32)
    compiled(PROGRAM)
    path = entries(folder)[0]
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    assert compiled(PROGRAM)(x).tolist() == [1, 2, 3, 4, 5]
    assert path.read_bytes() == whole


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="permissions are POSIX")
def test_an_entry_under_the_name_of_another_is_ignored(folder):
    disk_cache.store(disk_cache.key("a"), b"payload")
    (folder / disk_cache.key("a")).rename(folder / disk_cache.key("b"))
    assert disk_cache.load(disk_cache.key("b")) is None


def test_what_others_can_write_is_ignored(folder):
    name = disk_cache.key("a")
    disk_cache.store(name, b"payload")
    os.chmod(folder / name, 0o666)
    assert disk_cache.load(name) is None
    os.chmod(folder / name, 0o600)
    os.chmod(folder, 0o777)
    assert disk_cache.load(name) is None
    disk_cache.store(disk_cache.key("b"), b"payload")
    assert len(entries(folder)) == 1


DIVISION = """
func @main(%a: tensor<?Nx3xi32> {range = [0, 9]}, %b: tensor<?Nx3xi32>) -> tensor<?Nx3xi32> {
  %c = const dense<[5, 6, 7]> : tensor<3xi32>
  %d = dali.floordiv %a, %b
  %s = cvm.sum %d {axes = [0], keepdims = true}
  %y = cvm.broadcast_add %d, %s
  %z = cvm.broadcast_add %y, %c
  return %z
}
"""
IN_PLACE = """
func @main(%x: tensor<6xf32> {inplace}) -> tensor<6xf32> {
  %y = theano.elemwise %x {scalar_op = "neg", inplace_pattern = {0 = 0}}
  return %y
}
"""


@pytest.fixture
def kept_only(monkeypatch):
    """Lowering fails from the call on."""

    def refuse(*_):
        raise AssertionError("nothing is lowered that is kept")

    return lambda: monkeypatch.setattr(pipeline, "nests", refuse)


def test_what_is_kept_is_not_lowered(folder, kept_only):
    a, b = np.array([[1, 7, 9], [4, 5, 6]], np.int32), np.array([[1, 2, 2], [3, 4, 5]], np.int32)
    before = compiled(DIVISION)
    expected = a // b + (a // b).sum(0) + np.array([5, 6, 7])
    compiled(IN_PLACE)
    kept_only()
    after = compiled(DIVISION)
    for f in (before, after):
        assert np.array_equal(f(a, b), expected)
        assert np.array_equal(f(a[:1], b[:1]), a[:1] // b[:1] * 2 + np.array([5, 6, 7]))
    messages = []
    for f in (before, after):
        with pytest.raises(cvm.CallError) as e:
            f(a, b * 0)
        messages.append(str(e.value))
        with pytest.raises(cvm.CallError, match="from 0 to 9"):
            f(a - 5, b)
    assert messages[0] == messages[1] and "<text>:4" in messages[1]
    x = np.arange(6, dtype=np.float32)
    assert compiled(IN_PLACE)(x) is x
    assert x.tolist() == [0, -1, -2, -3, -4, -5]


def test_programs_that_differ_in_a_number_are_kept_apart(folder):
    a, b = np.ones((1, 3), np.int32), np.ones((1, 3), np.int32)
    assert compiled(DIVISION)(a, b).tolist() == [[7, 8, 9]]
    assert compiled(DIVISION.replace("[5, 6, 7]", "[5, 6, 8]"))(a, b).tolist() == [[7, 8, 10]]
    assert compiled(DIVISION.replace("floordiv", "mul"))(a, b * 3).tolist() == [[11, 12, 13]]
    assert len(entries(folder)) == 3


def test_graphs_are_kept_apart(folder):
    text = """
graph @main {
  %s = cog.field "s" init dense<1.0> : !cog.field<[], f32>
  %t = cog.add %s, 1
  cog.feedback %s, %t
  %p = cog.mul %s, 3
  cog.probe "p" %p
}
"""
    for program, wanted in ((text, 6.0), (text.replace("cog.mul", "cog.add"), 5.0), (text, 6.0)):
        graph = cvm.compile(program)
        graph.step()
        assert graph.read("p") == wanted


def test_another_compiler_keeps_its_own(folder, monkeypatch):
    compiled(PROGRAM)
    monkeypatch.setattr(keys, "compiler_digest", lambda: "another")
    compiled(PROGRAM)
    assert len(entries(folder)) == 2


def test_what_other_packages_compute_is_not_kept(folder, monkeypatch):
    text = (
        f"{PROGRAM}func @other(%x: tensor<5xi32>) -> tensor<5xi32> {{\n  %y = call @main(%x)\n"
        f"  return %y\n}}\n"
    )
    module = cvm.parse(text)
    names = [keys.name_of(module, f, DEFAULT) for f in module.functions.values()]
    assert None not in names and len(set(names)) == 2
    with monkeypatch.context() as patch:
        patch.setitem(OPERATORS.modules, "cvm", "of_another_package")
        assert [keys.name_of(module, f, DEFAULT) for f in module.functions.values()] == [None, None]
    monkeypatch.setattr(keys, "PLACED", ["a_pass"])
    assert keys.name_of_text(text.encode(), None, "main", DEFAULT) is None
    assert [keys.name_of(module, f, DEFAULT) for f in module.functions.values()] == [None, None]


def test_an_unusable_folder_is_no_error(tmp_path, monkeypatch):
    file = tmp_path / "file"
    file.write_text("in the way")
    monkeypatch.setenv("CVM_CACHE_DIR", str(file / "cache"))
    assert compiled(PROGRAM)(np.ones(5, np.int32)).tolist() == [1] * 5


def test_the_cache_can_be_off(monkeypatch):
    monkeypatch.setenv("CVM_CACHE_DIR", "")
    assert disk_cache.folder() is None
    assert compiled(PROGRAM)(np.ones(5, np.int32)).tolist() == [1] * 5


def _compile_many(n):
    for _ in range(n):
        assert compiled(PROGRAM)(np.ones(5, np.int32)).tolist() == [1] * 5


def test_processes_share_it(folder):
    workers = [
        multiprocessing.get_context("spawn").Process(target=_compile_many, args=(3,))
        for _ in range(3)
    ]
    for w in workers:
        w.start()
    for w in workers:
        w.join(60)
    assert [w.exitcode for w in workers] == [0, 0, 0]
    assert len(entries(folder)) == 2  # the program, and the code that calls programs
