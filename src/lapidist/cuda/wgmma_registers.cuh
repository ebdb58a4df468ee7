// A with neighbours along m, in types of which wgmma reads k touching only: tf32 and those of 8 bits. It takes A from registers as
// well, where each thread puts its own elements: so they are turned while they are loaded.
//
//   a tile   slabs of 128 bytes of m, a row for each k, in the copy engine's swizzle
//   rows     in place of rows g and g + 8 of 16 a thread (g = lane / 4) has 2 g and 2 g + 1, which touch in a tile. What follows
//            says so to whoever stores the sums
#pragma once

#include "wgmma.cuh"  // first: it brings the element types

#include "pieces.cuh"

// Rows from lane group to lane group, from a thread's first row of 16 to its second, from a product of a warpgroup to its next;
// and from warp to warp, where a warpgroup has Rows products.
constexpr int NEXT_GROUP = A_IN_REGISTERS ? 2 : 1, NEXT_ROW = A_IN_REGISTERS ? 1 : 8, NEXT_SLAB = A_IN_REGISTERS ? 16 : 64;
template <int Rows> constexpr int NEXT_WARP = A_IN_REGISTERS ? 16 * Rows : 16;

// A Fragment has the thread's two rows at the k of its lane, and at those half an instruction further.
// The word at (k, byte) of a slab.
template <typename Word> __device__ __forceinline__ Word word_at(const char* slab, int k, int byte) {
  return *reinterpret_cast<const Word*>(slab + k * 128 + (byte ^ k % 8 << 4));
}

// tf32: one load brings both rows. Of 16 lanes that load at once, 8 elements of m for each of four k lie in half of the banks. So
// half of the lanes load the k four further first, which lies in the other half; then they exchange the two.
__device__ __forceinline__ void read_fragment(Fragment& to, const char* slab, int k, int row, float) {
  const int lane = threadIdx.x % 32, late = lane / 8 % 2;
  const uint2 first = word_at<uint2>(slab, k + lane % 4 + late * 4, row * 4);
  const uint2 second = word_at<uint2>(slab, k + lane % 4 + (1 - late) * 4, row * 4);
  const uint2 near = late ? second : first, far = late ? first : second;
  to[0] = near.x, to[1] = near.y, to[2] = far.x, to[3] = far.y;
}

// 8 bits: neighbouring lane groups load the rows of both, one of them at the near k and one at the far k; each turns 4 x 4 bytes
// and hands on what is the other's. Their four k start at different places, so that 32 lanes find 8 k in all banks.
template <typename Byte> __device__ __forceinline__ void read_fragment(Fragment& to, const char* slab, int k, int row, Byte) {
  const int lane = threadIdx.x % 32, far = lane / 4 % 2, turn = lane % 4 / 2 + far * 2;
  unsigned x[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) x[i] = word_at<unsigned>(slab, k + far * 16 + lane % 4 * 4 + (i + turn) % 4, row / 4 * 4);
  turn_words(x);
  const unsigned back = __funnelshift_l(0x32103210, 0x32103210, turn * 4);  // byte i comes from place i - turn
  unsigned own[2], other[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    own[i] = __byte_perm(far ? x[2 + i] : x[i], 0, back), other[i] = __byte_perm(far ? x[i] : x[2 + i], 0, back);
    other[i] = __shfl_xor_sync(0xffffffff, other[i], 4);
    to[i] = far ? other[i] : own[i], to[2 + i] = far ? own[i] : other[i];
  }
}

// The thread's elements of a step along k: of Rows products of 64 rows. `warp`: among those that share the tile.
template <int Rows> struct Fragments {
  Fragment at[STEPS][Rows];

  __device__ __forceinline__ void read(const char* tile, int warp) {
    const int first = warp * NEXT_WARP<Rows> + threadIdx.x % 32 / 4 * NEXT_GROUP;
#pragma unroll
    for (int m = 0; m < Rows; ++m) {
      const int row = first + m * NEXT_SLAB, wide = 128 / sizeof(T);
#pragma unroll
      for (int i = 0; i < STEPS; ++i)
        read_fragment(at[i][m], tile + row / wide * (BK * 128), i * (BK / STEPS), row % wide, T());
    }
  }
};
