// What was said of B's lines when they were cut, an earlier call maybe, for the product with these lines of A:
// scales move, and one block looks at the spans of both.
#include "config.cuh"
#include "emulated/of_lines.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
    take_columns(float* A, float* B, int rows, int columns, float limit) {
  const OfLines prepared = {A, 0, columns}, of_lines = {B, rows, columns};
  for (int i = blockIdx.x * THREADS + threadIdx.x; i < columns; i += gridDim.x * THREADS)
    of_lines.scales(true)[i] = prepared.scales(true)[i];
  if (blockIdx.x > 0) return;
  __shared__ int of_warp[THREADS / 32];
  int of_rows = 0;  // spans are 0 or more: their bits order as integers do
  for (int i = threadIdx.x; i < rows; i += THREADS)
    of_rows = max(of_rows, __float_as_int(of_lines.spans()[i]));
#pragma unroll
  for (int far = 16; far > 0; far /= 2) of_rows = max(of_rows, __shfl_xor_sync(0xffffffffu, of_rows, far));
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = of_rows;
  __syncthreads();
  if (threadIdx.x > 0) return;
#pragma unroll
  for (int warp = 1; warp < THREADS / 32; ++warp) of_rows = max(of_rows, of_warp[warp]);
  of_lines.decide(of_rows, *prepared.largest(true), limit);
}
