// The limit of the CUDA cores: fused multiply-adds whose operands never leave registers.
//
// Each thread adds the same TM x TN products of its own a and b again and again: D[thread] = iterations * a
// b^T. That is the inner part of a thread tile without a load, an address or a barrier; what keeps a kernel
// from this speed is all else.
#include "config.cuh"
#include "ptx.cuh"

#define UNROLLED 8  // the loop's own three instructions then stand beside 512 multiply-adds

extern "C" __global__ void __launch_bounds__(THREADS)
    fma_limit(int iterations, const T* A, const T* B, T* D) {
  T a[TM], b[TN], sums[TM][TN] = {};
#pragma unroll
  for (int m = 0; m < TM; ++m) a[m] = A[threadIdx.x * TM + m];
#pragma unroll
  for (int n = 0; n < TN; ++n) b[n] = B[threadIdx.x * TN + n];

#pragma unroll UNROLLED
  for (int i = 0; i < iterations; ++i) {
#pragma unroll
    for (int m = 0; m < TM; ++m) opaque(a[m]);  // else the products are formed once, before the loop
#pragma unroll
    for (int m = 0; m < TM; ++m)
#pragma unroll
      for (int step = 0; step < TN; ++step) {
        // forth and back: neighbours share a or b, which stays in the operand cache
        const int n = m % 2 ? TN - 1 - step : step;
        sums[m][n] += a[m] * b[n];
      }
  }

  T* mine = D + (static_cast<i64>(blockIdx.x) * THREADS + threadIdx.x) * TM * TN;
#pragma unroll
  for (int m = 0; m < TM; ++m)
#pragma unroll
    for (int n = 0; n < TN; ++n) mine[m * TN + n] = sums[m][n];
}
