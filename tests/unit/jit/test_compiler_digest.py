"""The digest that tells versions of the compiler apart goes by what the files hold."""

import os
import shutil
from pathlib import Path

import pytest
from cvm.jit.cache.compiler_digest import ROOMS, STORED, compiler_digest, digest_of_files

import cvm

digest = compiler_digest.__wrapped__


@pytest.fixture
def house(tmp_path):
    for room in ROOMS:
        (tmp_path / room / "inner").mkdir(parents=True)
        (tmp_path / room / "inner" / "part.py").write_text(f"room = '{room}'\n")
    return tmp_path


def changed(file: Path, old: str, new: str) -> None:
    """Changes a file and leaves its times as they are."""
    before = file.stat()
    file.write_text(file.read_text().replace(old, new))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file.stat().st_mtime_ns == before.st_mtime_ns


def test_equal_sizes_and_times_are_not_equal_contents(house):
    before = digest(house)
    changed(house / "jit" / "inner" / "part.py", "jit", "jat")
    assert digest(house) != before


def test_times_and_places_do_not_matter(house, tmp_path_factory):
    other = tmp_path_factory.mktemp("other") / "house"
    shutil.copytree(house, other)
    for file in other.rglob("*.py"):
        os.utime(file, (1, 1))
    assert digest(other) == digest(house)


def test_names_matter(house):
    before = digest(house)
    (house / "jit" / "inner" / "part.py").rename(house / "jit" / "part.py")
    assert digest(house) != before


def test_a_stored_digest_is_taken(house):
    (house / STORED).parent.mkdir(parents=True, exist_ok=True)
    (house / STORED).write_text("stored")
    assert digest(house) == "stored" != digest_of_files(house)


def test_the_rooms_are_those_of_the_compiler():
    assert set(cvm._ROOMS) == set(ROOMS)
    assert len(compiler_digest()) == 64
