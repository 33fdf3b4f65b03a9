"""Arguments in tuples, lists and dictionaries, taken apart by machine code: LLVM IR that follows a form.

A form is a list of words, FORM_WORDS of a structure written one after the other: what a part is, and what belongs to it, then
its parts. Whatever is not exactly of the form is left to others.
"""

from __future__ import annotations

from typing import Any

# an array; the object that follows; so many parts; the same; so many, after keys
LEAF, SAME, TUPLE, LIST, DICT = range(5)


def load(name: str, base: str, place: int, type: str = "ptr") -> str:
    """The instructions that load what lies so many bytes after a pointer."""
    return f"%{name}.at = getelementptr i8, ptr %{base}, i64 {place}\n  %{name} = load {type}, ptr %{name}.at"


def item(name: str, base: str, index: str, type: str = "ptr") -> str:
    """The same for an item of an array."""
    return f"%{name}.at = getelementptr {type}, ptr %{base}, i64 %{index}\n  %{name} = load {type}, ptr %{name}.at"


def when(name: str, test: str, then: str, otherwise: str) -> str:
    """The instructions that go on at one of two blocks, by a comparison."""
    return f"%{name} = icmp {test}\n  br i1 %{name}, label %{then}, label %{otherwise}"


def counted(k: str, before: str, last: str, count: str, body: str, after: str) -> str:
    """The head of a loop over so many numbers, which its last block raises by 1."""
    number = f"%{k} = phi i64 [ 0, %{before} ], [ %{k}_next, %{last} ]\n  "
    return number + when(f"{k}_more", f"slt i64 %{k}, %{count}", body, after)


def form_words(structure: Any) -> list[int]:
    """The form of a structure: ("array",), ("static", value), ("tuple", parts), ("list", parts) or ("dict", keys, parts).
    Values and keys are told by their addresses, so the structure has to be kept."""
    match structure:
        case ("array",):
            return [LEAF]
        case ("static", value):
            return [SAME, id(value)]
        case ("dict", keys, parts):
            words = [DICT, len(keys)]
            for key, part in zip(keys, parts, strict=True):
                words += [id(key), *form_words(part)]
            return words
        case (kind, parts):
            return [TUPLE if kind == "tuple" else LIST, len(parts), *(w for p in parts for w in form_words(p))]
    raise TypeError(structure)


FORMS = f"""
; whether objects are of a form; their arrays are listed
define internal i1 @taken_apart(ptr %objects, i64 %n, ptr %form, ptr %listed) nounwind {{
entry:
  %place = alloca ptr
  store ptr %listed, ptr %place
  %rest = call ptr @parts(ptr %objects, i64 %n, ptr %form, ptr %place)
  %fits = icmp ne ptr %rest, null
  ret i1 %fits
}}

; the rest of the form, or null where objects are not of it
define internal ptr @parts(ptr %objects, i64 %n, ptr %form, ptr %place) nounwind {{
entry:
  br label %head
head:
  %k = phi i64 [ 0, %entry ], [ %k_next, %one ]
  %left = phi ptr [ %form, %entry ], [ %rest, %one ]
  {when("more", "slt i64 %k, %n", "one", "end")}
one:
  {item("object", "objects", "k")}
  %rest = call ptr @part(ptr %object, ptr %left, ptr %place)
  %k_next = add i64 %k, 1
  {when("fits", "ne ptr %rest, null", "head", "end")}
end:
  %answer = phi ptr [ %left, %head ], [ null, %one ]
  ret ptr %answer
}}

define internal ptr @part(ptr %object, ptr %form, ptr %place) nounwind {{
entry:
  {load("kind", "form", 0, "i64")}
  {load("word", "form", 8, "i64")}
  {load("type", "object", 8)}
  %second = getelementptr i8, ptr %form, i64 8
  %third = getelementptr i8, ptr %form, i64 16
  switch i64 %kind, label %leaf [ i64 {SAME}, label %same i64 {TUPLE}, label %tuple i64 {LIST}, label %list i64 {DICT}, label %dict ]
leaf:
  %to = load ptr, ptr %place
  store ptr %object, ptr %to
  %after = getelementptr ptr, ptr %to, i64 1
  store ptr %after, ptr %place
  ret ptr %second
same:
  %address = ptrtoint ptr %object to i64
  {when("is_same", "eq i64 %address, %word", "good", "bad")}
good:
  ret ptr %third
tuple:
  %is_tuple = icmp eq ptr %type, @tuple_type
  %inside = getelementptr i8, ptr %object, i64 24
  br i1 %is_tuple, label %sized, label %bad
list:
  {when("is_list", "eq ptr %type, @list_type", "listed", "bad")}
listed:
  {load("outside", "object", 24)}
  br label %sized
sized:
  %items = phi ptr [ %inside, %tuple ], [ %outside, %listed ]
  {load("size", "object", 16, "i64")}
  {when("has_size", "eq i64 %size, %word", "each", "bad")}
each:
  %rest = tail call ptr @parts(ptr %items, i64 %word, ptr %third, ptr %place)
  ret ptr %rest
dict:
  %is_dict = icmp eq ptr %type, @dict_type
  %position = alloca i64
  %key_at = alloca ptr
  %value_at = alloca ptr
  store i64 0, ptr %position
  br i1 %is_dict, label %next, label %bad
next:
  %d = phi i64 [ 0, %dict ], [ %d_next, %keyed ]
  %now = phi ptr [ %third, %dict ], [ %d_rest, %keyed ]
  %any = call i32 @PyDict_Next(ptr %object, ptr %position, ptr %key_at, ptr %value_at)
  %is_any = icmp ne i32 %any, 0
  %is_wanted = icmp slt i64 %d, %word
  {when("as_long", "eq i1 %is_any, %is_wanted", "either", "bad")}
either:
  br i1 %is_any, label %one, label %through
one:
  %key = load ptr, ptr %key_at
  %wanted = load ptr, ptr %now
  {when("is_key", "eq ptr %key, %wanted", "keyed", "bad")}
keyed:
  %value = load ptr, ptr %value_at
  %value_form = getelementptr i8, ptr %now, i64 8
  %d_rest = call ptr @part(ptr %value, ptr %value_form, ptr %place)
  %d_next = add i64 %d, 1
  {when("d_fits", "ne ptr %d_rest, null", "next", "bad")}
through:
  ret ptr %now
bad:
  ret ptr null
}}
"""
