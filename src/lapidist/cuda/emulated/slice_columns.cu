// Parts of lines that lie side by side: a block for each 32 of them, whose lanes have neighbouring lines.
// Parts are exchanged in shared memory, so that stores are of 128 bytes of a line and more.
#include "config.cuh"
#include "emulated/of_lines.cuh"
#include "emulated/parts.cuh"

constexpr int LINES = 32, WARPS = THREADS / LINES, STEPS = 128, EACH = STEPS / WARPS;
constexpr int VECTOR = 16 / BYTES;     // parts in 16 bytes
constexpr int PITCH = STEPS + VECTOR;  // keeps 16-byte alignment, and lines in different banks
static_assert(EACH == 16, "a thread has 16 steps of k, whole vectors of each part");

extern "C" __global__ void __launch_bounds__(THREADS)
    slice_columns(const float* A, float* B, Part* D, i64 k_step, i64 line_step, int rows, int columns, int k,
                  int padded, int of_b) {
  const int lines = of_b ? columns : rows;
  __shared__ Line of_warp[WARPS][LINES];
  __shared__ alignas(16) Part tile[PARTS][LINES][PITCH];
  const int lane = threadIdx.x % LINES, warp = threadIdx.x / LINES, first = blockIdx.x * LINES;
  const int at_line = first + lane < lines ? first + lane : lines - 1;
  const float* const from = A + at_line * line_step;
  Line line;
  for (int i = warp; i < k; i += WARPS) line.take(from[i * k_step]);
  of_warp[warp][lane] = line;
  __syncthreads();
  line = of_warp[0][lane];
#pragma unroll
  for (int other = 1; other < WARPS; ++other) line.join(of_warp[other][lane]);
  const OfLines of_lines = {B, rows, columns};
  if (warp == 0) {
    of_lines.scales(of_b)[at_line] = line.scale();  // of the last line, several lanes write the same
    if (!of_b) of_lines.spans()[at_line] = line.span(k);
    of_lines.add_up(of_b, line.span(k));
  }
  const Cutter cutter(line);
  for (int begin = 0; begin < padded; begin += STEPS) {
    int words[PARTS][EACH / IN_WORD] = {};
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
      const int at = begin + warp * EACH + e;
      int parts[PARTS];
      cutter.cut(at < k ? from[at * k_step] : 0.0f, parts);
#pragma unroll
      for (int p = 0; p < PARTS; ++p) put(words[p], e, parts[p]);
    }
    __syncthreads();  // all have stored the tile before
#pragma unroll
    for (int p = 0; p < PARTS; ++p)
#pragma unroll
      for (int v = 0; v < EACH / VECTOR; ++v)
        *reinterpret_cast<int4*>(&tile[p][lane][warp * EACH + v * VECTOR]) =
            int4{words[p][v * 4], words[p][v * 4 + 1], words[p][v * 4 + 2], words[p][v * 4 + 3]};
    __syncthreads();
#pragma unroll
    for (int piece = threadIdx.x; piece < PARTS * LINES * (STEPS / VECTOR); piece += THREADS) {
      const int p = piece / (LINES * (STEPS / VECTOR)), of = piece / (STEPS / VECTOR) % LINES,
                at = piece % (STEPS / VECTOR) * VECTOR;
      if (first + of >= lines || begin + at >= padded) continue;
      Part* const to = D + (first + of) * static_cast<i64>(PARTS) * padded +
                       (of_b ? PARTS - 1 - p : p) * padded + begin + at;
      *reinterpret_cast<int4*>(to) = *reinterpret_cast<const int4*>(&tile[p][of][at]);
    }
  }
}
