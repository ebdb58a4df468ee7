// Slices of lines that lie side by side: a block for each 32 of them, whose lanes have neighbouring lines.
// Slices are exchanged in shared memory, so that stores are of 128 bytes of a line.
#include "config.cuh"
#include "emulated/slices.cuh"

constexpr int LINES = 32, WARPS = THREADS / LINES, STEPS = 128, EACH = STEPS / WARPS;
constexpr int PITCH = STEPS + 16;  // keeps 16-byte alignment, and lines in different banks
static_assert(EACH == 16, "a thread has 16 steps of k, a vector of each slice");

extern "C" __global__ void __launch_bounds__(THREADS)
    slice_columns(const float* A, signed char* D, float* scales, float* spans, i64 k_step, i64 line_step,
                  int lines, int k, int padded, int reversed) {
  __shared__ Extremes of_warp[WARPS][LINES];
  __shared__ alignas(16) signed char tile[SLICES][LINES][PITCH];
  const int lane = threadIdx.x % LINES, warp = threadIdx.x / LINES, first = blockIdx.x * LINES;
  const int line = first + lane < lines ? first + lane : lines - 1;
  const float* const from = A + line * line_step;
  Extremes found;
  for (int i = warp; i < k; i += WARPS) found.take(from[i * k_step]);
  of_warp[warp][lane] = found;
  __syncthreads();
  found = of_warp[0][lane];
#pragma unroll
  for (int other = 1; other < WARPS; ++other) found.join(of_warp[other][lane]);
  const float factor = found.factor();
  if (warp == 0 && first + lane < lines) scales[line] = found.largest / 127.0f, spans[line] = found.span(k);
  for (int begin = 0; begin < padded; begin += STEPS) {
    int words[SLICES][EACH / 4] = {};
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
      const int at = begin + warp * EACH + e;
      const Slices slices(at < k ? from[at * k_step] * factor : 0.0f);
#pragma unroll
      for (int s = 0; s < SLICES; ++s) words[s][e / 4] |= (slices.at[s] & 255) << e % 4 * 8;
    }
    __syncthreads();  // all have stored the tile before
#pragma unroll
    for (int s = 0; s < SLICES; ++s)
      *reinterpret_cast<int4*>(&tile[s][lane][warp * EACH]) =
          int4{words[s][0], words[s][1], words[s][2], words[s][3]};
    __syncthreads();
#pragma unroll
    for (int piece = threadIdx.x; piece < SLICES * LINES * (STEPS / 16); piece += THREADS) {
      const int s = piece / (LINES * (STEPS / 16)), of = piece / (STEPS / 16) % LINES,
                at = piece % (STEPS / 16) * 16;
      if (first + of >= lines || begin + at >= padded) continue;
      signed char* const to = D + (first + of) * static_cast<i64>(SLICES) * padded +
                              (reversed ? SLICES - 1 - s : s) * padded + begin + at;
      *reinterpret_cast<int4*>(to) = *reinterpret_cast<const int4*>(&tile[s][of][at]);
    }
  }
}
