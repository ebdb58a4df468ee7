// A of tf32 with neighbours along m. wgmma reads such tiles from shared memory with k touching only, but A may also come from
// registers, where each thread puts its own elements: so they are turned while they are loaded.
//
//   a tile   slabs of 32 of m, a row of 128 bytes for each k, in the copy engine's swizzle
//   rows     in place of rows g and g + 8 of 16 a thread (g = lane / 4) has 2 g and 2 g + 1: one load of 8 bytes brings both.
//            What follows says so to whoever stores the sums
//   banks    16 lanes load at once: 8 elements of m for each of four k, which the swizzle leaves in half of the banks. So half
//            of the lanes load the k four further first, which lies in the other half; then they exchange the two
#pragma once

#include "wgmma.cuh"

// Rows from lane group to lane group, from a thread's first row of 16 to its second, from a product of a warpgroup to its next;
// and from warp to warp, where a warpgroup has Rows products.
constexpr int NEXT_GROUP = A_IN_REGISTERS ? 2 : 1, NEXT_ROW = A_IN_REGISTERS ? 1 : 8, NEXT_SLAB = A_IN_REGISTERS ? 16 : 64;
template <int Rows> constexpr int NEXT_WARP = A_IN_REGISTERS ? 16 * Rows : 16;

// The thread's elements of a step along k: of Rows products of 64 rows.
template <int Rows> struct Fragments {
  unsigned at[STEPS][Rows][4];

  // `warp`: among those that share the tile.
  __device__ __forceinline__ void read(const char* tile, int warp) {
    const int lane = threadIdx.x % 32, first = warp * NEXT_WARP<Rows> + lane / 4 * NEXT_GROUP;
    const bool exchanged = lane & 8;
#pragma unroll
    for (int m = 0; m < Rows; ++m) {
      const int row = first + m * NEXT_SLAB;
      const char* slab = tile + row / 32 * (BK * 128);
      uint2 halves[2];
#pragma unroll
      for (int i = 0; i < STEPS; ++i) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int k = lane % 4 + (exchanged == (half == 0)) * 4;
          halves[half] = *reinterpret_cast<const uint2*>(slab + i * 1024 + k * 128 + (row % 32 * 4 ^ k << 4));
        }
        const uint2 near = exchanged ? halves[1] : halves[0], far = exchanged ? halves[0] : halves[1];
        at[i][m][0] = near.x, at[i][m][1] = near.y, at[i][m][2] = far.x, at[i][m][3] = far.y;
      }
    }
  }
};
