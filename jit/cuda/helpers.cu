// Functions that emitted kernels call, each of which may call those above it. A line `//> NAME` begins one.

//> Pack
// elements that are loaded and stored together
template <class T, int N> struct __align__(sizeof(T) * N) Pack { T at[N]; };

//> loaded
// bytes that are loaded together, by words: NVRTC 13 forgets that a sum of bytes which it takes from a vector of
// bytes is one when it compares it
template <class T, int N> static __device__ __forceinline__ Pack<T, N> loaded(const Pack<T, N>& there) {
  const Pack<unsigned, N / 4> words = (const Pack<unsigned, N / 4>&)there;
  Pack<T, N> bytes;
#pragma unroll
  for (int n = 0; n < N; ++n) bytes.at[n] = (T)(unsigned char)(words.at[n / 4] >> n % 4 * 8);
  return bytes;
}

//> copy_async
// 16 bytes to shared memory, which arrive by themselves
static __device__ __forceinline__ void copy_async(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from) : "memory");
}

//> copies_arrive
// waits for this thread's copies but those since the last LATE calls
template <int LATE> static __device__ __forceinline__ void copies_arrive() {
  asm volatile("cp.async.commit_group;" ::: "memory");
  asm volatile("cp.async.wait_group %0;" :: "n"(LATE) : "memory");
}

//> load_matrices
// four matrices of eight rows of 16 bytes in shared memory: each of a warp's threads points to a row
static __device__ __forceinline__ Pack<int, 4> load_matrices(const int* row) {
  Pack<int, 4> words;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words.at[0]), "=r"(words.at[1]), "=r"(words.at[2]), "=r"(words.at[3])
               : "r"((unsigned)__cvta_generic_to_shared(row)) : "memory");
  return words;
}

//> MULTIPLY_PIECES
// 16 x 8 sums of a warp's threads, with the products of 64 terms: four matrices of rows for 32 of them each, and of columns
#define MULTIPLY_PIECES(NAME, TYPES) \
static __device__ __forceinline__ void NAME(int* sums, Pack<int, 4> first, Pack<int, 4> second, Pack<int, 4> column) { \
  _Pragma("unroll") for (int n = 0; n < 4; n += 2) { \
    const Pack<int, 4>& rows = n ? second : first; \
    asm("mma.sync.aligned.m16n8k32.row.col.s32." TYPES ".s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
        : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3]) \
        : "r"(rows.at[0]), "r"(rows.at[1]), "r"(rows.at[2]), "r"(rows.at[3]), "r"(column.at[n]), "r"(column.at[n + 1])); \
  } \
}

//> multiply_pieces
MULTIPLY_PIECES(multiply_pieces, "s8.s8")

//> multiply_pieces_uu
MULTIPLY_PIECES(multiply_pieces_uu, "u8.u8")

//> multiply_pieces_us
MULTIPLY_PIECES(multiply_pieces_us, "u8.s8")

//> multiply_pieces_su
MULTIPLY_PIECES(multiply_pieces_su, "s8.u8")

//> mixed_products
// the sum of the products of unsigned bytes with signed ones
static __device__ __forceinline__ int mixed_products(int positive, int any) {
  int sum;
  asm("dp4a.u32.s32 %0, %1, %2, 0;" : "=r"(sum) : "r"(positive), "r"(any));
  return sum;
}

//> nonzero
// a divisor of 0 counts as 1
template <class T> static __device__ __forceinline__ T nonzero(T b) { return b == 0 ? (T)1 : b; }

//> quotient
// INT_MIN / -1 wraps
template <class T> static __device__ __forceinline__ T quotient(T a, T b) {
  return b == -1 ? (T)(0ull - (unsigned long long)a) : (T)(a / b);
}

//> truncated_remainder
template <class T> static __device__ __forceinline__ T truncated_remainder(T a, T b) {
  return b == -1 ? (T)0 : (T)(a % b);
}

//> floor_quotient
// rounded toward minus infinity
template <class T> static __device__ __forceinline__ T floor_quotient(T a, T b) {
  if (b == -1) return (T)(0ull - (unsigned long long)a);
  return (T)(a / b - (a % b != 0 && (a < 0) != (b < 0)));
}

//> floor_remainder
// with the sign of the divisor
template <class T> static __device__ __forceinline__ T floor_remainder(T a, T b) {
  if (b == -1) return (T)0;
  const T r = (T)(a % b);
  return r != 0 && (r < 0) != (b < 0) ? (T)(r + b) : r;
}

//> absolute
template <class T> static __device__ __forceinline__ T absolute(T a) {
  return a < 0 ? (T)(0ull - (unsigned long long)a) : a;
}

//> larger
// NaN if one is; -0.0 is below 0.0
template <class T> static __device__ __forceinline__ T larger(T a, T b) {
  return a != a ? a : b != b ? b : a > b ? a : a < b ? b : a == 0 ? a + b : a;
}

//> smaller
template <class T> static __device__ __forceinline__ T smaller(T a, T b) {
  return a != a ? a : b != b ? b : a < b ? a : a > b ? b : a == 0 ? -(-a - b) : a;
}

//> power
// modulo 2^width; the exponent's bits are a natural number
template <class T> static __device__ __forceinline__ T power(T a, T b) {
  unsigned long long product = 1, square = (unsigned long long)a;
  for (unsigned long long left = (unsigned long long)b << (64 - 8 * (int)sizeof(T)) >> (64 - 8 * (int)sizeof(T)); left; left >>= 1) {
    if (left & 1) product *= square;
    square *= square;
  }
  return (T)product;
}

//> leading_zeros
template <class T> static __device__ __forceinline__ T leading_zeros(T a) {
  const int unused = 64 - 8 * (int)sizeof(T);
  return (T)(a == 0 ? 64 - unused : __clzll((long long)((unsigned long long)a << unused)));
}

//> from_half
static __device__ __forceinline__ float from_half(unsigned short bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}

//> to_half
static __device__ __forceinline__ unsigned short to_half(float value) {
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
static __device__ __forceinline__ unsigned short to_half(double value) {
  unsigned short bits;
  asm("cvt.rn.f16.f64 %0, %1;" : "=h"(bits) : "d"(value));
  return bits;
}

//> half
// rounded to half precision
template <class T> static __device__ __forceinline__ float half(T value) { return from_half(to_half(value)); }

//> fma_half
static __device__ __forceinline__ float fma_half(float a, float b, float c) {
  unsigned short bits;
  asm("fma.rn.f16 %0, %1, %2, %3;" : "=h"(bits) : "h"(to_half(a)), "h"(to_half(b)), "h"(to_half(c)));
  return from_half(bits);
}

//> to_int
// the integer toward zero, the nearest one that the type has; 0 for NaN
static __device__ __forceinline__ int to_int(float value) { return value != value ? 0 : __float2int_rz(value); }
static __device__ __forceinline__ int to_int(double value) { return value != value ? 0 : __double2int_rz(value); }

//> to_unsigned
static __device__ __forceinline__ unsigned to_unsigned(float value) { return value != value ? 0 : __float2uint_rz(value); }
static __device__ __forceinline__ unsigned to_unsigned(double value) { return value != value ? 0 : __double2uint_rz(value); }

//> to_long
static __device__ __forceinline__ long long to_long(float value) { return value != value ? 0 : __float2ll_rz(value); }
static __device__ __forceinline__ long long to_long(double value) { return value != value ? 0 : __double2ll_rz(value); }

//> to_unsigned_long
static __device__ __forceinline__ unsigned long long to_unsigned_long(float value) { return value != value ? 0 : __float2ull_rz(value); }
static __device__ __forceinline__ unsigned long long to_unsigned_long(double value) { return value != value ? 0 : __double2ull_rz(value); }
