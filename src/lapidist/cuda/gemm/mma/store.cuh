// A warp's sums from mma.sync's registers to D, through the warp's part of shared memory.
#pragma once

#include "config.cuh"
#include "mma_tile.cuh"

// Each warp has Rows patches of 16 lines and Cols columns, and Bytes of shared memory.
//
// Without C, the code is unrolled over patches: one is written while the last one's stores are in flight.
// Code that reads C, unrolled for each patch, would be half of a kernel's instructions, so with C it is a
// loop. Registers cannot be indexed in a loop, so as many patches as fit are written to shared memory first.
// Doubles hardly fit, so they always go one by one in a loop.
template <typename AReader, typename BReader, int Rows, int Cols, int Bytes>
struct LaidDown {
  static constexpr int LINES = 16, PITCH = Cols + 32 / sizeof(Scalar), PATCH = LINES * PITCH;
  static constexpr int FIT = Bytes / (PATCH * static_cast<int>(sizeof(Scalar)));
  static constexpr bool DOUBLES = sizeof(Scalar) == 8, LOOP = ADDEND || DOUBLES;
  static constexpr int LAID = !ADDEND || DOUBLES || FIT < 1 ? 1 : FIT < Rows ? FIT : Rows;
  Scalar* room;
  __device__ LaidDown(char* smem, int warp) : room(reinterpret_cast<Scalar*>(smem) + warp * LAID * PATCH) {}

  // Call store(row, its patch) for each row of patches.
  template <typename Store>
  __device__ __forceinline__ void each(const Scalar (&sums)[Rows][Cols / 2], Store store) const {
    const int lane = thread_now() % 32;
    Scalar* const mine = room + AReader::outer_of(0, lane / 4) * PITCH + BReader::outer_of(0, lane % 4 * 2);
#pragma unroll(LOOP ? 1 : Rows)
    for (int first = 0; first < Rows; first += LAID) {
      if (LAID < Rows) __syncwarp();  // all lanes have read the patches before
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
