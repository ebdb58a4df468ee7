// An M-major A in types that wgmma reads K-major only: tf32 and those of 8 bits. wgmma also takes A from
// registers, where each thread loads its own elements, so the load transposes them.
//
//   a tile   slabs of 128 bytes of m, a row for each k, in TMA's swizzle
//   rows     of 16 rows a thread (g = lane / 4) has rows 2 g and 2 g + 1, which are adjacent in a tile, in place
//            of g and g + 8. The constants below tell this to the code that stores sums
#pragma once

#include "config.cuh"
#include "wgmma_instructions.cuh"

// Distances in rows: between groups of four lanes; between a thread's two rows of 16; between a warpgroup's
// products; and between warps, if a warpgroup has Rows products.
constexpr int NEXT_GROUP = A_TRANSPOSED ? 2 : 1, NEXT_ROW = A_TRANSPOSED ? 1 : 8,
              NEXT_SLAB = A_TRANSPOSED ? 16 : 64;
template <int Rows>
constexpr int NEXT_WARP = A_TRANSPOSED ? 16 * Rows : 16;

// A Fragment has the thread's two rows at its lane's k, and at the k half an instruction further. Their
// places in a tile, for a step's first instruction, are computed before the loop and hidden from the
// compiler. It would move most of that arithmetic back into the loop, before every second step's loads. The
// swizzle is the same for all instructions.
constexpr int LOADS = sizeof(T) == 4 ? 2 : 1, NEXT_K = BK / STEPS * 128;
// The offset in a slab of byte `byte` in the row of one k.
__device__ __forceinline__ unsigned place(int k, int byte) { return k * 128 + (byte ^ k % 8 << 4); }
__device__ __forceinline__ bool late() { return threadIdx.x % 32 / 8 % 2; }

// tf32: one load takes both rows. The 8 elements of m for each of four k, which 16 lanes load at once, lie in
// half of the banks. So half of the lanes first load the k four further, which lies in the other half; then
// they swap the two. `row`: the first of 16.
__device__ __forceinline__ void find_fragment(unsigned (&at)[2], int row, float) {
  const int lane = threadIdx.x % 32, mine = (row + lane / 4 * NEXT_GROUP) * 4;
  at[0] = place(lane % 4 + late() * 4, mine), at[1] = place(lane % 4 + !late() * 4, mine);
}
__device__ __forceinline__ void read_fragment(Fragment& to, const char* tile, const unsigned (&at)[2]) {
  const uint2 first = *reinterpret_cast<const uint2*>(tile + at[0]),
              second = *reinterpret_cast<const uint2*>(tile + at[1]);
  const uint2 near = late() ? second : first, far = late() ? first : second;
  to[0] = near.x, to[1] = near.y, to[2] = far.x, to[3] = far.y;
}

// 8 bits: ldmatrix transposes pairs of rows for two neighbouring k; two such words give the rows' four k
// each. Lines 2t and 2t + 1 of its tiles may be any two k of lane t. Lanes 2 and 3 take theirs in the other
// order, so that a tile's eight k lie in different banks.
template <typename Byte>
__device__ __forceinline__ void find_fragment(unsigned (&at)[1], int row, Byte) {
  const int lane = threadIdx.x % 32, line = lane % 8, swapped = line / 4 ^ lane / 8 % 2;
  at[0] = place(lane / 16 * 16 + line / 2 * 4 + swapped * 2 + line % 2, row);
}
__device__ __forceinline__ void read_fragment(Fragment& to, const char* tile, const unsigned (&at)[1]) {
  unsigned pairs[4];
  ldmatrix<true>(pairs, tile + at[0]);
  const unsigned even = threadIdx.x & 2 ? 0x2064 : 0x6420, odd = threadIdx.x & 2 ? 0x3175 : 0x7531;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    to[i] = __byte_perm(pairs[i], pairs[i + 1], even);
    to[i + 1] = __byte_perm(pairs[i], pairs[i + 1], odd);
  }
}

// A thread's elements of a step along k, of Rows products of 64 rows.
template <int Rows>
using Fragments = Fragment[STEPS][Rows];

// An empty use of the fragments: their registers are not free before this line.
template <int Turn, int Rows>
__device__ __forceinline__ void fragments_were_read(const Fragments<Rows>& those) {
#pragma unroll
  for (int i = 0; i < STEPS * Rows; ++i) {
    const Fragment& one = those[i / Rows][i % Rows];
    asm volatile("// turn %0" ::"n"(Turn), "r"(one[0]), "r"(one[1]), "r"(one[2]), "r"(one[3]) : "memory");
  }
}

// `warp`: its number among those that share the tile.
template <int Rows, bool Used = A_TRANSPOSED>
struct FragmentOffsets {
  unsigned at[Rows][LOADS];

  __device__ __forceinline__ FragmentOffsets(const T*, i64, int warp) {
#pragma unroll
    for (int m = 0; m < Rows; ++m) {
      const int row = warp * NEXT_WARP<Rows> + m * NEXT_SLAB, wide = 128 / sizeof(T);
      find_fragment(at[m], row % wide, T());
#pragma unroll
      for (int i = 0; i < LOADS; ++i) at[m][i] += row / wide * (BK * 128), opaque(at[m][i]);
    }
  }
  __device__ __forceinline__ void read(Fragments<Rows>& to, const char* tile, int) const {
#pragma unroll
    for (int m = 0; m < Rows; ++m)
#pragma unroll
      for (int i = 0; i < STEPS; ++i) read_fragment(to[i][m], tile + i * NEXT_K, at[m]);
  }
};
template <int Rows>
struct FragmentOffsets<Rows, false> {
  __device__ __forceinline__ FragmentOffsets(const T*, i64, int) {}
  __device__ __forceinline__ void read(Fragments<Rows>&, const char*, int) const {}
};
