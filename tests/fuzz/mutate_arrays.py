"""Files of arrays that are wrong in a few of their fields: .npy, .npz and .safetensors, and entries
of the disk cache.
"""

from __future__ import annotations

import io
import json
import random
import struct
import warnings
import zipfile
from hashlib import sha256
from typing import Any

from .mutate import mutate_bytes

TYPES = (
    "<i4",
    "<f8",
    "|b1",
    "<i4",
    "<f8",
    "|i1",
    ">i4",
    "<f2",
    "<c16",
    "|V2",
    "|O",
    "<U3",
    "|S4",
    "<M8[s]",
    "<i16",
    "i4",
    "",
    "x",
    "<i4,<i4",
    "|V4000000000",
    "|S2000000000",
    "|S0",
    "<U500000000",
    "(2,3)<i4",
    "<f16",
    "<m8",
    "|V0",
    "3i4",
    "a\0",
)
DESCRIPTIONS = (
    "[('a', '<i4'), ('b', '<f8')]",
    "[('a', '<i4', (3,))]",
    "[]",
    "None",
    "3",
    "{}",
    "('<i4', (3,))",
    "[('', '|V0')]",
    "[('a', '|O')]",
    "['<i4']",
    "[[[[]]]]",
    "('|V8', 2000000000)",
)
SHAPES = (
    "(3,)",
    "(3,)",
    "(2, 2)",
    "(2, 2)",
    "()",
    "(0,)",
    "(4,)",
    "(3, 1)",
    "(-3,)",
    "(-1, -3)",
    "(3.0,)",
    "[3]",
    "3",
    "None",
    "(1 << 40,)",
    "(1099511627776,)",
    "(4294967296, 4294967296)",
    "(True,)",
    "(2,) * 99",
    "(3L,)",
    "('3',)",
    f"({'1, ' * 70})",
)
SIZES = (
    3,
    2,
    0,
    1,
    4,
    -1,
    -3,
    2**31,
    2**32,
    2**62,
    2**63,
    2**64,
    1.0,
    3.5,
    "3",
    None,
    True,
    [],
    10**30,
)
ELEMENTS = (
    "I32",
    "F64",
    "BOOL",
    "I8",
    "U8",
    "I64",
    "F16",
    "BF16",
    "F32",
    "F8_E4M3",
    "i32",
    "",
    None,
    3,
    [],
    {},
    "F4",
)
ONE_IN = 3  # fields that are wrong


def npy(chance: random.Random) -> bytes:
    """A .npy file, most of whose fields are right."""

    def wrong() -> bool:
        return chance.randrange(ONE_IN * 4) == 0

    type, shape, bytes_of = chance.choice(
        (("<i4", "(3,)", 12), ("<f8", "(2, 2)", 32), ("|b1", "(3,)", 3))
    )
    body = (
        chance.randbytes(bytes_of) if type != "|b1" else bytes((0, 1, chance.choice((1, 2, 255))))
    )
    described = repr(chance.choice(TYPES)) if chance.random() < 0.3 else repr(type)
    described = chance.choice(DESCRIPTIONS) if wrong() else described
    order = chance.choice(("True", "1", "None", "'no'")) if wrong() else "False"
    shape = chance.choice(SHAPES) if chance.random() < 0.3 else shape
    entries = [f"'descr': {described}", f"'fortran_order': {order}", f"'shape': {shape}"]
    if wrong():
        entries[chance.randrange(3)] = chance.choice(
            ("", "'more': 1", "'descr': '<i4'", "1: 2", "**{}")
        )
    header = "{" + ", ".join(entries) + "}"
    header = mutate_bytes(header.encode(), chance).decode("latin1") if wrong() else header
    header = (
        chance.choice(("(" * 3000, "[" * 90000 + "]" * 90000, "-" * 20000 + "1", "9" * 9000))
        if chance.random() < 0.01
        else header
    )
    version = (
        chance.choice(((2, 0), (3, 0), (0, 0), (9, 9), (1, 1), (255, 255))) if wrong() else (1, 0)
    )
    text = (
        header.encode("utf-8" if version == (3, 0) else "latin1", "replace")
        + b" " * chance.randrange(64)
        + b"\n"
    )
    length = (
        chance.choice((0, 1, len(text) - 1, len(text) + 1, 65535, 2**32 - 1, 2**31))
        if wrong()
        else len(text)
    )
    width = "<H" if version[0] == 1 else "<I"
    stated = struct.pack(width, length % (1 << 8 * struct.calcsize(width)))
    body = chance.choice((b"", body[:-1], body + b"\0", body * 9)) if wrong() else body
    return b"\x93NUMPY" + bytes(version) + stated + text + body


def mutate_npy(_: bytes, chance: random.Random) -> bytes:
    """An .npy file, some of whose fields are wrong."""
    return npy(chance)


def mutate_npz(_: bytes, chance: random.Random) -> bytes:
    """An archive, some of whose members or fields are wrong; or an .npy file where an archive
    should be.
    """
    if chance.random() < 0.2:
        return npy(chance)
    file = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w") as archive:
        warnings.simplefilter("ignore")  # of two members of one name
        for _ in range(chance.choice((1, 1, 1, 2, 3))):
            name = chance.choice(
                (
                    "w.npy",
                    "w.npy",
                    "w.npy",
                    "w.npy",
                    "w",
                    "W.npy",
                    "../w.npy",
                    "w.npy/",
                    "w.npy.npy",
                    "\u2028.npy",
                    ".npy",
                    "file.npy",
                )
            )
            how = chance.choice(
                (
                    zipfile.ZIP_STORED,
                    zipfile.ZIP_DEFLATED,
                    zipfile.ZIP_DEFLATED,
                    zipfile.ZIP_BZIP2,
                    zipfile.ZIP_LZMA,
                )
            )
            archive.writestr(
                name,
                npy(chance) if chance.random() < 0.9 else chance.randbytes(40),
                compress_type=how,
            )
        archive.comment = chance.randbytes(chance.choice((0, 0, 0, 9)))
        members = list(archive.infolist())
    found = bytearray(file.getvalue())
    if chance.random() < 0.5:
        change_zip(found, members, chance)
    return bytes(found)


def change_zip(found: bytearray, members: list[zipfile.ZipInfo], chance: random.Random) -> None:
    """Overwrite a field of an entry, of the directory, or of the end of the directory."""
    member = chance.choice(members)
    directory, end = found.find(b"PK\1\2"), found.rfind(b"PK\5\6")
    at, widths = chance.choice((
        (member.header_offset, (4, 2, 2, 2, 2, 2, 4, 4, 4, 2, 2)),
        (directory, (4, 2, 2, 2, 2, 2, 2, 4, 4, 4, 2, 2, 2, 2, 2, 4, 4)),
        (end, (4, 2, 2, 2, 2, 4, 4, 2)),
    ))  # fmt: skip
    for _ in range(chance.choice((1, 1, 2))):
        field = chance.randrange(len(widths))
        place, width = at + sum(widths[:field]), widths[field]
        now = int.from_bytes(found[place : place + width], "little")
        number = chance.choice(
            (
                0,
                1,
                now - 1,
                now + 1,
                2**15,
                2**16 - 1,
                2**31,
                2**32 - 1,
                3 << 30,
                12,
                14,
                93,
                8,
                chance.randrange(1 << 32),
            )
        )
        found[place : place + width] = (number % (1 << 8 * width)).to_bytes(width, "little")


def mutate_safetensors(_: bytes, chance: random.Random) -> bytes:
    """A safetensors file with entries that are wrong in types, shapes or places."""
    right = {
        "w": ["I32", [3], [0, 12]],
        "v": ["F64", [2, 2], [12, 44]],
        "b": ["BOOL", [3], [44, 47]],
    }
    size = 47
    entries: dict[str, Any] = {
        n: dict(zip(("dtype", "shape", "data_offsets"), e, strict=True)) for n, e in right.items()
    }
    for _ in range(chance.choice((0, 1, 1, 2, 3))):
        entry = entries[chance.choice([*right])]
        match chance.randrange(9):
            case 0:
                entry["dtype"] = chance.choice(ELEMENTS)
            case 1:
                entry["shape"] = [chance.choice(SIZES) for _ in range(chance.randrange(4))]
            case 2:
                entry["shape"] = chance.choice(
                    (
                        3,
                        None,
                        {},
                        "3",
                        [[3]],
                        [1] * 70,
                        [3, 2**32, 2**32],
                        [0, 2**63],
                        [-3],
                        [-1, -3],
                        [-2, 2],
                    )
                )
            case 3:
                entry["data_offsets"] = [
                    chance.choice((*SIZES, 12, 44, 47, size))
                    for _ in range(chance.choice((2, 2, 2, 1, 3)))
                ]
            case 4:
                begin = chance.randrange(-4, size)
                entry["data_offsets"] = [begin, begin + 12]
            case 5:
                entry["data_offsets"] = chance.choice(
                    (None, 12, "ab", {"a": 1, "b": 2}, [[0, 12]], [0.0, 12.0], [False, 12])
                )
            case 6:
                entry.pop(chance.choice(("dtype", "shape", "data_offsets")), None)
            case 7:
                entry[chance.choice(("more", "dtype ", "Shape"))] = chance.choice((1, None, [1]))
            case _:
                entries[chance.choice(("__metadata__", "w", "", "\ud800"))] = chance.choice(
                    (1, None, [], {}, {"a": "b"}, {"a": 1}, "w")
                )
                entries.setdefault("v", {})
                entries = {
                    n: e if n not in right or isinstance(e, dict) else {}
                    for n, e in entries.items()
                }
    text = json.dumps(entries)
    match chance.randrange(24):
        case 0:
            text = text.replace('"v"', '"w"')
        case 1:
            text = mutate_bytes(text.encode(), chance).decode("latin1")
        case 2:
            text = chance.choice(
                (
                    "[]",
                    "1",
                    "null",
                    '"w"',
                    "",
                    "{}",
                    '{"w": 1}',
                    "[" * 99999,
                    '{"w":' * 5000,
                    "9" * 9999,
                    '{"__metadata__": 1}',
                )
            )
        case 3:
            text = text.replace(
                "12", chance.choice(("NaN", "Infinity", "1e400", "-0", "12.0", "0xc", "9" * 5000))
            )
    head = text.encode("utf-8", "surrogatepass") + b" " * chance.choice((0, 0, 1, 7))
    length = len(head)
    if chance.random() < 0.1:
        length = chance.choice(
            (
                0,
                1,
                length - 1,
                length + 1,
                length + size,
                length + size + 1,
                2**31,
                2**63,
                2**64 - 1,
            )
        )
    body = chance.randbytes(44) + bytes((0, 1, chance.choice((1, 2, 255))))
    body = (
        chance.choice((b"", body[:-1], body + b"\0", body[:11])) if chance.random() < 0.15 else body
    )
    return (length % (1 << 64)).to_bytes(8, "little") + head + body


def change_entries(found: dict[str, bytes], chance: random.Random) -> dict[str, bytes]:
    """Entries of the disk cache with a changed field, exchanged payloads, or digests that are of
    another name.
    """
    made = dict(found)
    names, digest = [*made], sha256().digest_size
    for _ in range(chance.choice((1, 1, 2, 3))):
        name, other = chance.choice(names), chance.choice(names)
        entry, payload = made[name], made[name][digest:]
        edges = [0, 1, digest - 1, digest, digest + 1, digest + 8, len(entry) - 1]
        edges.append(
            digest + 8 + int.from_bytes(payload[:8], "little") % (len(payload) + 1)
        )  # of a header
        at = min(chance.choice(edges), len(entry))
        match chance.randrange(8):
            case 0:
                made[name], made[other] = made[other], made[name]
            case 1:
                made[name] = sha256(bytes(64) + payload).digest() + payload
            case 2:
                made[name] = sha256(payload).digest() + payload
            case 3:
                made[name] = entry[:at]
            case 4:
                made[name] = entry + chance.randbytes(1)
            case 5:
                made[name] = entry[:digest] + made[other][digest:]
            case 6:
                made[name] = entry[:at] + chance.randbytes(chance.choice((1, 4, 8))) + entry[at:]
            case _ if entry:
                at = min(at, len(entry) - 1)
                made[name] = (
                    entry[:at] + bytes((entry[at] ^ 1 << chance.randrange(8),)) + entry[at + 1 :]
                )
    return made
