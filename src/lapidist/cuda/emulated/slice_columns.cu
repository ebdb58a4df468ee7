// Parts of lines that lie side by side: a block for each 32 of them, whose lanes have neighbouring lines.
// Parts are exchanged in shared memory, so that stores are of 128 bytes of a line and more.
#include "config.cuh"
#include "emulated/of_lines.cuh"
#include "emulated/parts.cuh"

constexpr int LINES = 32, WARPS = THREADS / LINES;
constexpr int VECTOR = 16 / BYTES;  // parts in 16 bytes: steps of k of a thread
constexpr int STEPS = WARPS * VECTOR;
constexpr int PITCH = STEPS + VECTOR;  // keeps 16-byte alignment, and lines in different banks

extern "C" __global__ void __launch_bounds__(THREADS)
    slice_columns(const float* A, float* B, const float* C, Part* D, i64 k_step, i64 line_step, int rows,
                  int columns, int k, int padded, int of_b, int guarded, float limit) {
  const OfLines of_lines = {B, rows, columns};
  if (!of_b && blockIdx.x == 0 && threadIdx.x < 32) of_lines.begin();
  if (guarded && *C == 0) return;
  const int lines = of_b ? columns : rows;
  __shared__ Line of_warp[WARPS][LINES];
  __shared__ alignas(16) Part tile[PARTS][LINES][PITCH];
  const int lane = threadIdx.x % LINES, warp = threadIdx.x / LINES, first = blockIdx.x * LINES;
  const int at_line = first + lane < lines ? first + lane : lines - 1;
  const float* const from = A + at_line * line_step;
  Line line;
  // few blocks, so each has many loads under way
#pragma unroll 16
  for (int i = warp; i < k; i += WARPS) line.take(from[i * k_step]);
  of_warp[warp][lane] = line;
  __syncthreads();
  line = of_warp[0][lane];
#pragma unroll
  for (int other = 1; other < WARPS; ++other) line.join(of_warp[other][lane]);
  if (warp == 0) {
    of_lines.scales(of_b)[at_line] = line.scale();  // of the last line, several lanes write the same
    if (!of_b) of_lines.spans()[at_line] = line.span(k);
    if (of_b) of_lines.add_up(line.span(k), limit);
  }
  const Cutter cutter(line);
  for (int begin = 0; begin < padded; begin += STEPS) {
    int words[PARTS][VECTOR / IN_WORD] = {};
#pragma unroll
    for (int e = 0; e < VECTOR; ++e) {
      const int at = begin + warp * VECTOR + e;
      int parts[PARTS];
      cutter.cut(at < k ? from[at * k_step] : 0.0f, parts);
#pragma unroll
      for (int p = 0; p < PARTS; ++p) put(words[p], e, parts[p]);
    }
    __syncthreads();  // all have stored the tile before
#pragma unroll
    for (int p = 0; p < PARTS; ++p)
      *reinterpret_cast<int4*>(&tile[p][lane][warp * VECTOR]) =
          int4{words[p][0], words[p][1], words[p][2], words[p][3]};
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
