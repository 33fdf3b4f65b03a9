; The square root of a double as a word, digit by digit: a root of 53 bits and one more, which alone
; rounds it, since no root lies in the middle of two doubles.

declare i64 @significand(i64)
declare i64 @exponent(i64)

define internal i64 @sqrt_of_doubles(i64 %a) noinline nounwind {
entry:
  %size = shl i64 %a, 1
  %is_zero = icmp eq i64 %size, 0
  %is_infinity = icmp eq i64 %a, u0x7FF0000000000000
  %is_own = or i1 %is_zero, %is_infinity
  br i1 %is_own, label %same, label %other

same:
  ret i64 %a

other:
  %is_invalid = icmp ugt i64 %a, u0x7FF0000000000000  ; negative or NaN
  br i1 %is_invalid, label %nan, label %start

nan:
  ret i64 u0x7FF8000000000000

start:
  %e = call i64 @exponent(i64 %a)
  %x = call i64 @significand(i64 %a)
  %odd = and i64 %e, 1
  %even = xor i64 %odd, 1
  %places = add i64 %even, 10
  %radicand = shl i64 %x, %places
  br label %digit

digit:
  %k = phi i64 [ 0, %start ], [ %following, %digit ]
  %left = phi i64 [ %radicand, %start ], [ %left.next, %digit ]
  %root = phi i64 [ 0, %start ], [ %root.next, %digit ]
  %rest = phi i64 [ 0, %start ], [ %rest.next, %digit ]
  %rest.up = shl i64 %rest, 2
  %two = lshr i64 %left, 62
  %rest.two = or i64 %rest.up, %two
  %left.next = shl i64 %left, 2
  %root.up = shl i64 %root, 1
  %root.four = shl i64 %root, 2
  %trial = or i64 %root.four, 1
  %is_one = icmp ule i64 %trial, %rest.two
  %reduced = sub i64 %rest.two, %trial
  %rest.next = select i1 %is_one, i64 %reduced, i64 %rest.two
  %one = zext i1 %is_one to i64
  %root.next = add i64 %root.up, %one
  %following = add i64 %k, 1
  %is_more = icmp slt i64 %following, 54
  br i1 %is_more, label %digit, label %round

round:
  %e.biased = add i64 %e, 1021
  %e.half = lshr i64 %e.biased, 1
  %field = shl i64 %e.half, 52
  %up = add i64 %root.next, 1
  %significand = lshr i64 %up, 1
  %result = add i64 %field, %significand
  ret i64 %result
}
