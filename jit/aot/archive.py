"""Write static libraries: archives in the format of `ar`, with the index of symbols that linkers
read.
"""

from collections.abc import Sequence

MAGIC = b"!<arch>\n"


def archive(objects: Sequence[bytes], symbols: Sequence[Sequence[str]]) -> bytes:
    """The archive of object files, each of which defines these symbols."""
    names = [name.encode() + bytes(1) for found in symbols for name in found]
    index_bytes = 4 + 4 * len(names) + sum(map(len, names))
    members = [_member(f"{n}.o/", image) for n, image in enumerate(objects)]
    at = len(MAGIC) + len(_member("/", bytes(index_bytes)))
    offsets = []
    for member, found in zip(members, symbols, strict=True):
        offsets += [at] * len(found)
        at += len(member)
    index = b"".join([*(n.to_bytes(4, "big") for n in (len(names), *offsets)), *names])
    return b"".join([MAGIC, _member("/", index), *members])


def _member(name: str, data: bytes) -> bytes:
    """A file of an archive: the same bytes whenever and whoever made it."""
    header = f"{name:<16}{0:<12}{0:<6}{0:<6}{'644':<8}{len(data):<10}`\n"
    return header.encode() + data + b"\n" * (len(data) % 2)
