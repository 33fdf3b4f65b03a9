// Functions that emitted kernels call, for a type T of values and the unsigned type U that its arithmetic is done in.
// A line `//> NAME` begins one.

//> max
static inline T max_T(T a, T b) { return a > b ? a : b; }

//> min
static inline T min_T(T a, T b) { return a < b ? a : b; }

//> nonzero
/* a divisor of 0 counts as 1 */
static inline T nonzero_T(T b) { return b == 0 ? 1 : b; }

//> absolute
/* the least number stays */
static inline T absolute_T(T a) { return a < 0 ? (T)(0u - (U)a) : a; }

//> quotient
/* toward zero; the least number by -1 wraps */
static inline T quotient_T(T a, T b) { return b == -1 ? (T)(0u - (U)a) : (T)(a / b); }

//> truncated_remainder
static inline T truncated_remainder_T(T a, T b) { return b == -1 ? 0 : (T)(a % b); }

//> floor_quotient
/* toward minus infinity */
static inline T floor_quotient_T(T a, T b) {
  if (b == -1) return (T)(0u - (U)a);
  return (T)(a / b - (a % b != 0 && (a < 0) != (b < 0)));
}

//> floor_remainder
/* with the sign of the divisor */
static inline T floor_remainder_T(T a, T b) {
  if (b == -1) return 0;
  const T r = (T)(a % b);
  return r != 0 && (r < 0) != (b < 0) ? (T)(r + b) : r;
}

//> power
/* modulo 2^width; the exponent's bits are a natural number */
static inline T power_T(T a, T b) {
  uint64_t product = 1, square = (uint64_t)a, left = (uint64_t)b << (64 - 8 * sizeof(T)) >> (64 - 8 * sizeof(T));
  for (; left != 0; left >>= 1) {
    if (left & 1) product *= square;
    square *= square;
  }
  return (T)product;
}

//> leading_zeros
static inline T leading_zeros_T(T a) {
  const T width = (T)(8 * sizeof(T));
  T zeros = 0;
  for (uint64_t bits = (uint64_t)a << (64 - width); zeros < width && bits >> 63 == 0; bits <<= 1) ++zeros;
  return zeros;
}

//> within
/* whether n numbers lie from low to high */
static inline bool within_T(const T *x, uint32_t n, T low, T high) {
  for (uint32_t i = 0; i < n; ++i) {
    if (x[i] < low || x[i] > high) return false;
  }
  return true;
}
