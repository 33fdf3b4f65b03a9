; a * b + c of doubles as words, rounded once.

declare i64 @llvm.ctlz.i64(i64, i1)
declare i64 @significand(i64)
declare i64 @exponent(i64)
declare i64 @rounded(i64, i64, i64)

define internal i64 @fma_of_doubles(i64 %a, i64 %b, i64 %c) noinline nounwind {
entry:
  %signs = xor i64 %a, %b
  %product.sign = and i64 %signs, u0x8000000000000000
  %c.sign = and i64 %c, u0x8000000000000000
  %a.size = shl i64 %a, 1
  %b.size = shl i64 %b, 1
  %c.size = shl i64 %c, 1
  %a.number = bitcast i64 %a to double
  %b.number = bitcast i64 %b to double
  %c.number = bitcast i64 %c to double
  %a.is_zero = icmp eq i64 %a.size, 0
  %b.is_zero = icmp eq i64 %b.size, 0
  %a.is_special = icmp uge i64 %a.size, u0xFFE0000000000000  ; infinite or NaN
  %b.is_special = icmp uge i64 %b.size, u0xFFE0000000000000
  %any_zero = or i1 %a.is_zero, %b.is_zero
  %any_special = or i1 %a.is_special, %b.is_special
  %is_exact = or i1 %any_zero, %any_special
  br i1 %is_exact, label %exact, label %finite

exact:  ; the product is
  %exact.product = fmul double %a.number, %b.number
  %exact.sum = fadd double %exact.product, %c.number
  %exact.word = bitcast double %exact.sum to i64
  ret i64 %exact.word

finite:
  %c.is_special = icmp uge i64 %c.size, u0xFFE0000000000000
  br i1 %c.is_special, label %special, label %summable

special:
  %quiet = fadd double %c.number, %c.number
  %quiet.word = bitcast double %quiet to i64
  ret i64 %quiet.word

summable:
  %c.is_zero = icmp eq i64 %c.size, 0
  br i1 %c.is_zero, label %alone, label %multiply

alone:
  %alone.product = fmul double %a.number, %b.number
  %alone.word = bitcast double %alone.product to i64
  ret i64 %alone.word

multiply:  ; significands, by halves of words
  %x = call i64 @significand(i64 %a)
  %y = call i64 @significand(i64 %b)
  %x.low = and i64 %x, u0xFFFFFFFF
  %y.low = and i64 %y, u0xFFFFFFFF
  %x.high = lshr i64 %x, 32
  %y.high = lshr i64 %y, 32
  %low.low = mul i64 %x.low, %y.low
  %low.high = mul i64 %x.low, %y.high
  %high.low = mul i64 %x.high, %y.low
  %high.high = mul i64 %x.high, %y.high
  %carry = lshr i64 %low.low, 32
  %middle = add i64 %low.high, %carry
  %middle.low = and i64 %middle, u0xFFFFFFFF
  %middle.high = lshr i64 %middle, 32
  %middle2 = add i64 %high.low, %middle.low
  %middle2.high = lshr i64 %middle2, 32
  %upper = add i64 %high.high, %middle.high
  %product.upper = add i64 %upper, %middle2.high
  %product.lower = mul i64 %x, %y
  ; two numbers of 128 bits, times powers of 2: the product has its first bit at 124 or 125
  %shifted = shl i64 %product.upper, 20
  %moved = lshr i64 %product.lower, 44
  %product.high = or i64 %shifted, %moved
  %product.low = shl i64 %product.lower, 20
  %a.e = call i64 @exponent(i64 %a)
  %b.e = call i64 @exponent(i64 %b)
  %c.e = call i64 @exponent(i64 %c)
  %ab.e = add i64 %a.e, %b.e
  %product.e = sub i64 %ab.e, 1095
  %z = call i64 @significand(i64 %c)
  %c.high = shl i64 %z, 8
  ; the first of two numbers, p, has the greater power of 2; the other one, q, is shifted by d
  %difference = sub i64 %product.e, %c.e
  %distance = add i64 %difference, 72
  %c.is_first = icmp slt i64 %distance, 0
  %backward = sub i64 0, %distance
  %e.of_c = add i64 %product.e, %backward
  %e = select i1 %c.is_first, i64 %e.of_c, i64 %product.e
  %d = select i1 %c.is_first, i64 %backward, i64 %distance
  %p.sign = select i1 %c.is_first, i64 %c.sign, i64 %product.sign
  %p.high = select i1 %c.is_first, i64 %c.high, i64 %product.high
  %p.low = select i1 %c.is_first, i64 0, i64 %product.low
  %q.sign = select i1 %c.is_first, i64 %product.sign, i64 %c.sign
  %q.high = select i1 %c.is_first, i64 %product.high, i64 %c.high
  %q.low = select i1 %c.is_first, i64 %product.low, i64 0
  ; the shift by words, then by bits; the last bit is 1 where digits were cut off
  %is_word = icmp sgt i64 %d, 63
  %low.is_lost = icmp ne i64 %q.low, 0
  %low.sticky = zext i1 %low.is_lost to i64
  %word.low = or i64 %q.high, %low.sticky
  %w.high = select i1 %is_word, i64 0, i64 %q.high
  %w.low = select i1 %is_word, i64 %word.low, i64 %q.low
  %less = sub i64 %d, 64
  %is_far = icmp sgt i64 %less, 63
  %least = select i1 %is_far, i64 63, i64 %less
  %bits = select i1 %is_word, i64 %least, i64 %d
  %any_bits = icmp sgt i64 %bits, 0
  br i1 %any_bits, label %shift, label %align

shift:
  %cut = lshr i64 %w.low, %bits
  %back = shl i64 %cut, %bits
  %is_inexact = icmp ne i64 %w.low, %back
  %sticky = zext i1 %is_inexact to i64
  %left = sub i64 64, %bits
  %from_high = shl i64 %w.high, %left
  %together = or i64 %cut, %from_high
  %shift.low = or i64 %together, %sticky
  %shift.high = lshr i64 %w.high, %bits
  br label %align

align:
  %r.high = phi i64 [ %w.high, %multiply ], [ %shift.high, %shift ]
  %r.low = phi i64 [ %w.low, %multiply ], [ %shift.low, %shift ]
  %is_difference = icmp ne i64 %p.sign, %q.sign
  br i1 %is_difference, label %compare, label %sum

compare:
  %high.is_equal = icmp eq i64 %p.high, %r.high
  %low.is_equal = icmp eq i64 %p.low, %r.low
  %is_equal = and i1 %high.is_equal, %low.is_equal
  br i1 %is_equal, label %zero, label %subtract

zero:
  ret i64 0

subtract:  ; the smaller number is negated
  %high.is_greater = icmp ugt i64 %r.high, %p.high
  %low.is_greater = icmp ugt i64 %r.low, %p.low
  %decides_low = and i1 %high.is_equal, %low.is_greater
  %r.is_greater = or i1 %high.is_greater, %decides_low
  %greater.sign = select i1 %r.is_greater, i64 %q.sign, i64 %p.sign
  %greater.high = select i1 %r.is_greater, i64 %r.high, i64 %p.high
  %greater.low = select i1 %r.is_greater, i64 %r.low, i64 %p.low
  %smaller.high = select i1 %r.is_greater, i64 %p.high, i64 %r.high
  %smaller.low = select i1 %r.is_greater, i64 %p.low, i64 %r.low
  %inverted = xor i64 %smaller.high, -1
  %negative.low = sub i64 0, %smaller.low
  %low.is_zero = icmp eq i64 %smaller.low, 0
  %borrow = zext i1 %low.is_zero to i64
  %negative.high = add i64 %inverted, %borrow
  br label %sum

sum:
  %sign = phi i64 [ %p.sign, %align ], [ %greater.sign, %subtract ]
  %s.high = phi i64 [ %p.high, %align ], [ %greater.high, %subtract ]
  %s.low = phi i64 [ %p.low, %align ], [ %greater.low, %subtract ]
  %t.high = phi i64 [ %r.high, %align ], [ %negative.high, %subtract ]
  %t.low = phi i64 [ %r.low, %align ], [ %negative.low, %subtract ]
  %sum.low = add i64 %s.low, %t.low
  %sum.upper = add i64 %s.high, %t.high
  %has_carry = icmp ult i64 %sum.low, %t.low
  %sum.carry = zext i1 %has_carry to i64
  %sum.high = add i64 %sum.upper, %sum.carry
  ; the first bit goes to the first place
  %is_low = icmp eq i64 %sum.high, 0
  %n.high = select i1 %is_low, i64 %sum.low, i64 %sum.high
  %n.low = select i1 %is_low, i64 0, i64 %sum.low
  %e.less = sub i64 %e, 64
  %n.e = select i1 %is_low, i64 %e.less, i64 %e
  %n = call i64 @llvm.ctlz.i64(i64 %n.high, i1 false)
  %any_zeros = icmp sgt i64 %n, 0
  br i1 %any_zeros, label %normalize, label %finish

normalize:
  %upward = shl i64 %n.high, %n
  %down = sub i64 64, %n
  %filled = lshr i64 %n.low, %down
  %normal.high = or i64 %upward, %filled
  %normal.low = shl i64 %n.low, %n
  br label %finish

finish:
  %top.high = phi i64 [ %n.high, %sum ], [ %normal.high, %normalize ]
  %top.low = phi i64 [ %n.low, %sum ], [ %normal.low, %normalize ]
  %rest = icmp ne i64 %top.low, 0
  %rest.sticky = zext i1 %rest to i64
  %top = or i64 %top.high, %rest.sticky
  %e.shifted = sub i64 %n.e, %n
  %e.top = add i64 %e.shifted, 64
  %result = call i64 @rounded(i64 %sign, i64 %top, i64 %e.top)
  ret i64 %result
}
