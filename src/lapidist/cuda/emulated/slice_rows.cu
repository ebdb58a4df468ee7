// Parts of lines whose steps of k are adjacent: a block for each line.
#include "config.cuh"
#include "emulated/of_lines.cuh"
#include "emulated/parts.cuh"

constexpr int EACH = 4;  // steps of k of a thread
struct alignas(EACH* BYTES) Together {
  int words[EACH / IN_WORD];
};

extern "C" __global__ void __launch_bounds__(THREADS)
    slice_rows(const float* A, float* B, const float* C, Part* D, i64 line_step, int rows, int columns, int k,
               int padded, int of_b, int guarded, float limit) {
  const OfLines of_lines = {B, rows, columns};
  if (!of_b && blockIdx.x == 0 && threadIdx.x < 32) of_lines.begin();
  if (guarded && *C == 0) return;
  __shared__ Line of_warp[THREADS / 32];
  const float* const from = A + blockIdx.x * line_step;
  Line line;
  for (int i = threadIdx.x; i < k; i += THREADS) line.take(from[i]);
  line = of_all_lanes(line);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = line;
  __syncthreads();
  line = of_warp[0];
#pragma unroll
  for (int warp = 1; warp < THREADS / 32; ++warp) line.join(of_warp[warp]);
  if (threadIdx.x < 32) {
    const float span = line.span(k);
    if (threadIdx.x == 0) {
      of_lines.scales(of_b)[blockIdx.x] = line.scale();
      if (!of_b) of_lines.spans()[blockIdx.x] = span;
    }
    if (of_b) of_lines.add_up(span, limit);
  }
  const Cutter cutter(line);
  Part* const to = D + blockIdx.x * static_cast<i64>(PARTS) * padded;
  for (int i = threadIdx.x * EACH; i < padded; i += THREADS * EACH) {
    Together together[PARTS] = {};
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
      int parts[PARTS];
      cutter.cut(i + e < k ? from[i + e] : 0.0f, parts);
#pragma unroll
      for (int p = 0; p < PARTS; ++p) put(together[p].words, e, parts[p]);
    }
#pragma unroll
    for (int p = 0; p < PARTS; ++p)
      *reinterpret_cast<Together*>(to + (of_b ? PARTS - 1 - p : p) * padded + i) = together[p];
  }
}
