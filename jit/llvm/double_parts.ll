; Doubles as words: their parts, and a rounded number from parts.
;
; A number other than 0 is its significand, from 2^52 up to 2^53, times 2^(exponent - 1075). The
; exponent is that of the format, and below 1 for subnormal numbers, whose significands are shifted.

declare i64 @llvm.ctlz.i64(i64, i1)

define internal i64 @significand(i64 %x) alwaysinline nounwind {
  %fraction = and i64 %x, u0x000FFFFFFFFFFFFF
  %biased = and i64 %x, u0x7FF0000000000000
  %is_normal = icmp ne i64 %biased, 0
  br i1 %is_normal, label %normal, label %subnormal

normal:
  %whole = or i64 %fraction, u0x0010000000000000
  ret i64 %whole

subnormal:
  %zeros = call i64 @llvm.ctlz.i64(i64 %fraction, i1 false)
  %distance = sub i64 %zeros, 11
  %shifted = shl i64 %fraction, %distance
  ret i64 %shifted
}

define internal i64 @exponent(i64 %x) alwaysinline nounwind {
  %biased = and i64 %x, u0x7FF0000000000000
  %is_normal = icmp ne i64 %biased, 0
  br i1 %is_normal, label %normal, label %subnormal

normal:
  %exponent = lshr i64 %biased, 52
  ret i64 %exponent

subnormal:
  %fraction = and i64 %x, u0x000FFFFFFFFFFFFF
  %zeros = call i64 @llvm.ctlz.i64(i64 %fraction, i1 false)
  %below = sub i64 12, %zeros
  ret i64 %below
}

; The double nearest to top * 2^(e - 1075), ties to even. The first of 64 bits is 1; the last is also
; 1 where digits were cut off.
define internal i64 @rounded(i64 %sign, i64 %top, i64 %e) alwaysinline nounwind {
entry:
  %biased = add i64 %e, 11
  %is_large = icmp sgt i64 %biased, 2046
  br i1 %is_large, label %infinite, label %finite

infinite:
  %infinity = or i64 %sign, u0x7FF0000000000000
  ret i64 %infinity

finite:
  %is_small = icmp slt i64 %biased, 1
  br i1 %is_small, label %subnormal, label %round

subnormal:
  %places = sub i64 1, %biased
  %is_far = icmp sgt i64 %places, 63
  %lost = select i1 %is_far, i64 63, i64 %places
  %cut = lshr i64 %top, %lost
  %back = shl i64 %cut, %lost
  %is_inexact = icmp ne i64 %top, %back
  %sticky = zext i1 %is_inexact to i64
  %shifted = or i64 %cut, %sticky
  br label %round

round:
  %digits = phi i64 [ %top, %finite ], [ %shifted, %subnormal ]
  %exponent = phi i64 [ %biased, %finite ], [ 1, %subnormal ]
  %whole = lshr i64 %digits, 11
  %rest = and i64 %digits, 2047
  %nearly = add i64 %rest, 1023
  %is_odd = and i64 %whole, 1
  %tie = add i64 %nearly, %is_odd
  %carry = lshr i64 %tie, 11
  %nearest = add i64 %whole, %carry
  %field = sub i64 %exponent, 1  ; the significand's own first bit adds 1
  %high = shl i64 %field, 52
  %number = add i64 %high, %nearest
  %result = or i64 %sign, %number
  ret i64 %result
}
