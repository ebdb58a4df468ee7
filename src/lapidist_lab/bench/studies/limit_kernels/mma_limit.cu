// The limit of mma.sync: products whose operands never leave registers.
//
// Each warp adds the same product of its own A (WM x DEPTH) and B (WN x DEPTH, k touches) again and again:
// D[warp] = iterations * A B^T. That is the inner part of a warp tile without a load or a barrier; the
// operands of neighbouring instructions differ, as in a kernel, since equal ones would draw less power and
// allow a higher clock.
#include "config.cuh"
#include "mma_instructions.cuh"

constexpr int WARPS = THREADS / 32, REGISTERS = sizeof(Eight) / sizeof(Register);

// Eight rows of DEPTH elements, as a warp holds them.
__device__ __forceinline__ Eight eight_of(const T* rows) {
  const int lane = threadIdx.x % 32;
  const Register* row = reinterpret_cast<const Register*>(rows + lane / 4 * DEPTH);
  Eight eight;
#pragma unroll
  for (int i = 0; i < REGISTERS; ++i) eight.at[i] = row[i * 4 + lane % 4];
  return eight;
}

#if FP8_AS_HALF
// The same registers, which the compiler must take for new ones.
template <int Count>
__device__ __forceinline__ void renew(Eight (&eights)[Count], unsigned zero) {
#pragma unroll
  for (int e = 0; e < Count; ++e)
#pragma unroll
    for (int i = 0; i < REGISTERS; ++i) eights[e].at[i] ^= zero;
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS)
    mma_limit(int iterations, const T* A, const T* B, Scalar* D) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  Eight a[WM / 8], b[WN / 8];
  Sums sums[WM / 16][WN / 8];
#pragma unroll
  for (int e = 0; e < WM / 8; ++e) a[e] = eight_of(A + (warp * WM + e * 8) * DEPTH);
#pragma unroll
  for (int e = 0; e < WN / 8; ++e) b[e] = eight_of(B + (warp * WN + e * 8) * DEPTH);

  auto left = operands_of<T>(a);
  auto right = operands_of<T>(b);
  for (int i = 0; i < iterations; ++i) {
#if FP8_AS_HALF  // halves are made in every round, as a kernel with this warp tile must
    const unsigned zero = iterations < 0;  // which the compiler does not know
    renew(a, zero);
    renew(b, zero);
    left = operands_of<T>(a);
    right = operands_of<T>(b);
#endif
#pragma unroll
    for (int m = 0; m < WM / 16; ++m)
#pragma unroll
      for (int n = 0; n < WN / 8; ++n) sums[m][n].multiply(left.at[2 * m], left.at[2 * m + 1], right.at[n]);
  }

  Scalar* mine = D + (static_cast<long long>(blockIdx.x) * WARPS + warp) * WM * WN;
#pragma unroll
  for (int m = 0; m < WM / 16; ++m)
#pragma unroll
    for (int n = 0; n < WN / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        mine[(m * 16 + i / 2 * 8 + lane / 4) * WN + n * 8 + lane % 4 * 2 + i % 2] = sums[m][n].sum(i);
}
