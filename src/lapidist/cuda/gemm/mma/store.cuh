// A warp's sums on their way from the registers of mma.sync to D: through its room in shared memory.
#pragma once

#include "mma.cuh"

// Rows patches of 16 lines of D, Cols columns, of each warp, and a warp's share of shared memory, Bytes.
//
// Without C, patch by patch, all written out: one is laid down while stores of the one before are on their
// way. The code that reads C is half of a kernel's instructions if it stands there for each patch, so with C
// it stands there once, in a loop. To it registers have no index: as many patches as fit are laid down first.
// Doubles, which hardly fit, go one by one in a loop always.
template <typename AReader, typename BReader, int Rows, int Cols, int Bytes>
struct LaidDown {
  static constexpr int LINES = 16, PITCH = Cols + 32 / sizeof(Scalar), PATCH = LINES * PITCH;
  static constexpr int FIT = Bytes / (PATCH * static_cast<int>(sizeof(Scalar)));
  static constexpr bool DOUBLES = sizeof(Scalar) == 8, LOOP = ADDEND || DOUBLES;
  static constexpr int LAID = !ADDEND || DOUBLES || FIT < 1 ? 1 : FIT < Rows ? FIT : Rows;
  Scalar* room;
  __device__ LaidDown(char* smem, int warp) : room(reinterpret_cast<Scalar*>(smem) + warp * LAID * PATCH) {}

  // store(row, where its patch lies)
  template <typename Store>
  __device__ __forceinline__ void each(const Scalar (&sums)[Rows][Cols / 2], Store store) const {
    const int lane = thread_now() % 32;
    Scalar* const mine = room + AReader::outer_of(0, lane / 4) * PITCH + BReader::outer_of(0, lane % 4 * 2);
#pragma unroll(LOOP ? 1 : Rows)
    for (int first = 0; first < Rows; first += LAID) {
      if (LAID < Rows) __syncwarp();  // the patches before have been read
#pragma unroll
      for (int row = 0; row < Rows; ++row)
        if (row / LAID * LAID == first)
#pragma unroll
          for (int i = 0; i < Cols / 2; ++i)
            mine[row % LAID * PATCH + AReader::outer_of(i % 4 / 2, 0) * PITCH +
                 BReader::outer_of(i / 4, i % 2)] = sums[row][i];
      __syncwarp();  // lanes read what others wrote
#pragma unroll 1
      for (int row = first; row < min_of(first + LAID, Rows); ++row) store(row, room + (row - first) * PATCH);
    }
  }
};
