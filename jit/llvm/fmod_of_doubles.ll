; The remainder of doubles as words, with the sign of the dividend. It is exact.

declare i64 @llvm.ctlz.i64(i64, i1)
declare i64 @significand(i64)
declare i64 @exponent(i64)
declare i64 @rounded(i64, i64, i64)

define internal i64 @fmod_of_doubles(i64 %a, i64 %b) noinline nounwind {
entry:
  %sign = and i64 %a, u0x8000000000000000
  %x = and i64 %a, u0x7FFFFFFFFFFFFFFF
  %y = and i64 %b, u0x7FFFFFFFFFFFFFFF
  %by_zero = icmp eq i64 %y, 0
  %of_special = icmp uge i64 %x, u0x7FF0000000000000  ; infinite or NaN
  %by_nan = icmp ugt i64 %y, u0x7FF0000000000000
  %is_undefined = or i1 %by_zero, %of_special
  %is_nan = or i1 %is_undefined, %by_nan
  br i1 %is_nan, label %nan, label %defined

nan:
  ret i64 u0x7FF8000000000000

defined:
  %is_less = icmp ult i64 %x, %y
  br i1 %is_less, label %same, label %start

same:
  ret i64 %a

start:
  %a.e = call i64 @exponent(i64 %a)
  %b.e = call i64 @exponent(i64 %b)
  %distance = sub i64 %a.e, %b.e
  %divisor = call i64 @significand(i64 %b)
  %dividend = call i64 @significand(i64 %a)
  %first = urem i64 %dividend, %divisor
  br label %look

look:
  %rest = phi i64 [ %first, %start ], [ %rest.next, %divide ]
  %left = phi i64 [ %distance, %start ], [ %left.next, %divide ]
  %is_more = icmp sgt i64 %left, 0
  br i1 %is_more, label %divide, label %last

divide:  ; at most 11 bits further, for a dividend of 64
  %is_long = icmp sgt i64 %left, 11
  %step = select i1 %is_long, i64 11, i64 %left
  %shifted = shl i64 %rest, %step
  %rest.next = urem i64 %shifted, %divisor
  %left.next = sub i64 %left, %step
  br label %look

last:
  %is_zero = icmp eq i64 %rest, 0
  br i1 %is_zero, label %zero, label %nonzero

zero:
  ret i64 %sign

nonzero:
  %zeros = call i64 @llvm.ctlz.i64(i64 %rest, i1 false)
  %top = shl i64 %rest, %zeros
  %e = sub i64 %b.e, %zeros
  %result = call i64 @rounded(i64 %sign, i64 %top, i64 %e)
  ret i64 %result
}
