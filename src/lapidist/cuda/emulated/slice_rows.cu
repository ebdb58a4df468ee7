// Slices of lines whose steps of k are adjacent: a block for each line.
#include "config.cuh"
#include "emulated/slices.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
    slice_rows(const float* A, signed char* D, float* scales, float* spans, i64 line_step, int k, int padded,
               int reversed) {
  __shared__ Extremes of_warp[THREADS / 32];
  const float* const from = A + blockIdx.x * line_step;
  Extremes found;
  for (int i = threadIdx.x; i < k; i += THREADS) found.take(from[i]);
#pragma unroll
  for (int far = 16; far > 0; far /= 2) {
    Extremes other;
    other.largest = __shfl_xor_sync(0xffffffffu, found.largest, far);
    other.sum = __shfl_xor_sync(0xffffffffu, found.sum, far);
    found.join(other);
  }
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = found;
  __syncthreads();
  found = of_warp[0];
#pragma unroll
  for (int warp = 1; warp < THREADS / 32; ++warp) found.join(of_warp[warp]);
  const float factor = found.factor();
  if (threadIdx.x == 0) scales[blockIdx.x] = found.largest / 127.0f, spans[blockIdx.x] = found.span(k);
  int* const to = reinterpret_cast<int*>(D + blockIdx.x * static_cast<i64>(SLICES) * padded);
  for (int i = threadIdx.x * 4; i < padded; i += THREADS * 4) {
    int words[SLICES][4];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const Slices slices(i + e < k ? from[i + e] * factor : 0.0f);
#pragma unroll
      for (int s = 0; s < SLICES; ++s) words[s][e] = slices.at[s];
    }
#pragma unroll
    for (int s = 0; s < SLICES; ++s)
      to[((reversed ? SLICES - 1 - s : s) * padded + i) / 4] =
          packed(words[s][0], words[s][1], words[s][2], words[s][3]);
  }
}
