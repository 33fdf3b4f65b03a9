; Arguments in tuples, lists and dictionaries, taken apart by a form.
;
; A form is a list of words, those of a structure written one after the other: the kind of a part
; (pytree_form.py), what belongs to it, and its parts. What is not exactly of the form is left to
; other code.
;
;   0          LEAF    an array, which is listed
;   1 object   SAME    this object
;   2 n ...    TUPLE   n parts
;   3 n ...    LIST    n parts
;   4 n ...    DICT    n parts, each after its key

%List = type {
  i64,  ; references
  ptr,  ; type
  i64,  ; size, as in a tuple
  ptr   ; items; those of a tuple stand here
}

@tuple_type = external global i8
@list_type = external global i8
@dict_type = external global i8

declare i32 @PyDict_Next(ptr, ptr, ptr, ptr)


; Whether objects are of a form; their arrays are listed.
define internal i1 @taken_apart(ptr %objects, i64 %n, ptr %form, ptr %listed) nounwind {
  %place = alloca ptr  ; of the next array in the list
  store ptr %listed, ptr %place
  %rest = call ptr @parts(ptr %objects, i64 %n, ptr %form, ptr %place)
  %is_of_form = icmp ne ptr %rest, null
  ret i1 %is_of_form
}

; The rest of the form, or null where objects are not of it.
define internal ptr @parts(ptr %objects, i64 %n, ptr %form, ptr %place) nounwind {
entry:
  br label %each

each:
  %k = phi i64 [ 0, %entry ], [ %following, %next ]
  %own = phi ptr [ %form, %entry ], [ %rest, %next ]
  %is_part = icmp slt i64 %k, %n
  br i1 %is_part, label %one, label %done

one:
  %object.at = getelementptr ptr, ptr %objects, i64 %k
  %object = load ptr, ptr %object.at
  %rest = call ptr @part(ptr %object, ptr %own, ptr %place)
  %is_unfit = icmp eq ptr %rest, null
  br i1 %is_unfit, label %no, label %next

next:
  %following = add i64 %k, 1
  br label %each

done:
  ret ptr %own

no:
  ret ptr null
}

; The same for one object.
define internal ptr @part(ptr %object, ptr %form, ptr %place) nounwind {
entry:
  %kind = load i64, ptr %form
  %word.at = getelementptr i64, ptr %form, i64 1
  %word = load i64, ptr %word.at
  %inner = getelementptr i64, ptr %form, i64 2
  %type.at = getelementptr %List, ptr %object, i32 0, i32 1
  %type = load ptr, ptr %type.at
  %size.at = getelementptr %List, ptr %object, i32 0, i32 2
  %items.at = getelementptr %List, ptr %object, i32 0, i32 3
  switch i64 %kind, label %array [
    i64 1, label %same
    i64 2, label %tuple
    i64 3, label %list
    i64 4, label %dict
  ]

array:
  %to = load ptr, ptr %place
  store ptr %object, ptr %to
  %to.next = getelementptr ptr, ptr %to, i64 1
  store ptr %to.next, ptr %place
  ret ptr %word.at

same:
  %address = ptrtoint ptr %object to i64
  %is_same = icmp eq i64 %address, %word
  %same.rest = select i1 %is_same, ptr %inner, ptr null
  ret ptr %same.rest

tuple:
  %is_tuple = icmp eq ptr %type, @tuple_type
  br i1 %is_tuple, label %tuple.count, label %no

tuple.count:
  %tuple.size = load i64, ptr %size.at
  %tuple.fits = icmp eq i64 %tuple.size, %word
  br i1 %tuple.fits, label %tuple.parts, label %no

tuple.parts:
  %tuple.rest = call ptr @parts(ptr %items.at, i64 %word, ptr %inner, ptr %place)
  ret ptr %tuple.rest

list:
  %is_list = icmp eq ptr %type, @list_type
  br i1 %is_list, label %list.count, label %no

list.count:
  %list.size = load i64, ptr %size.at
  %list.fits = icmp eq i64 %list.size, %word
  br i1 %list.fits, label %list.parts, label %no

list.parts:
  %items = load ptr, ptr %items.at
  %list.rest = call ptr @parts(ptr %items, i64 %word, ptr %inner, ptr %place)
  ret ptr %list.rest

dict:
  %is_dict = icmp eq ptr %type, @dict_type
  br i1 %is_dict, label %dict.parts, label %no

dict.parts:
  %dict.rest = call ptr @keyed(ptr %object, i64 %word, ptr %inner, ptr %place)
  ret ptr %dict.rest

no:
  ret ptr null
}

; The same for the values of a dictionary, whose keys stand in its own order.
define internal ptr @keyed(ptr %object, i64 %count, ptr %form, ptr %place) nounwind {
entry:
  %position = alloca i64
  %key = alloca ptr
  %value = alloca ptr
  store i64 0, ptr %position
  br label %each

each:
  %left = phi i64 [ %count, %entry ], [ %less, %next ]
  %own = phi ptr [ %form, %entry ], [ %rest, %next ]
  %is_item = call i32 @PyDict_Next(ptr %object, ptr %position, ptr %key, ptr %value)
  %is_end = icmp eq i32 %is_item, 0
  br i1 %is_end, label %end, label %item

item:
  %is_beyond = icmp eq i64 %left, 0
  br i1 %is_beyond, label %no, label %compare

compare:
  %own.key = load ptr, ptr %key
  %form.key = load ptr, ptr %own
  %is_key = icmp eq ptr %own.key, %form.key
  br i1 %is_key, label %one, label %no

one:
  %object.value = load ptr, ptr %value
  %inner = getelementptr i64, ptr %own, i64 1
  %rest = call ptr @part(ptr %object.value, ptr %inner, ptr %place)
  %is_unfit = icmp eq ptr %rest, null
  br i1 %is_unfit, label %no, label %next

next:
  %less = sub i64 %left, 1
  br label %each

end:
  %is_whole = icmp eq i64 %left, 0
  %whole = select i1 %is_whole, ptr %own, ptr null
  ret ptr %whole

no:
  ret ptr null
}
