// Whether slices are accurate enough, decided on the device: one block looks at the spans of all lines. What it
// leaves are the alpha and beta of the product that follows: that of float32 itself if they are not, else one
// that keeps D as it is.
#include "config.cuh"

__device__ __forceinline__ float largest_of(const float* spans, int count) {
  float largest = 0;
  for (int i = threadIdx.x; i < count; i += THREADS) largest = fmaxf(largest, spans[i]);
#pragma unroll
  for (int far = 16; far > 0; far /= 2) largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, far));
  return largest;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    judge(const float* A, const float* B, float* D, int rows, int columns, float limit, float alpha,
          float beta) {
  __shared__ float of_warp[2][THREADS / 32];
  const float a = largest_of(A, rows), b = largest_of(B, columns);
  if (threadIdx.x % 32 == 0) of_warp[0][threadIdx.x / 32] = a, of_warp[1][threadIdx.x / 32] = b;
  __syncthreads();
  if (threadIdx.x > 0) return;
  float of_a = 0, of_b = 0;
#pragma unroll
  for (int warp = 0; warp < THREADS / 32; ++warp)
    of_a = fmaxf(of_a, of_warp[0][warp]), of_b = fmaxf(of_b, of_warp[1][warp]);
  // lines of zeros beside infinite spans: NaN, which no limit holds
  const bool accurate = of_a * of_b <= limit;
  D[0] = accurate ? 0.0f : alpha, D[1] = accurate ? 1.0f : beta, D[2] = accurate;
}
