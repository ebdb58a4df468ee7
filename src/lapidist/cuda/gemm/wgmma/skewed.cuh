// A of 16-bit elements whose rows (k touches) start anywhere inside of 16 bytes, as it lies: nobody packs it.
// wgmma takes A from registers as well, to which a thread's elements are shifted. Every eighth row begins at
// the same place inside of 16 bytes, and such rows are a multiple of 16 bytes apart: those TMA
// takes.
//
//   a box    every eighth row of a tile: of each 144 bytes, from the 16 on in which it begins   [..e0 e1 e2 | .. | .. e63 ..]
//   a warp   has the rows of a box (BM 128), or half of those of two (BM 64); all of its lanes shift alike
//   banks    rows are 36 words apart: 8 rows of 4 words lie in 32 of them
#pragma once

#include "gemm/wgmma/config.cuh"
#include "gemm/wgmma/registers.cuh"
#include "unaligned/pieces.cuh"

constexpr int SKEWED_ROW = 144, SKEWED_BOX = BM / 8 * SKEWED_ROW;
constexpr int HALVES = BM > 64 ? BM / 64 : 1;  // of warps, 8 rows each, that have the rows of a box

// A's part of all steps, by a thread of each of three warps, every third box: to order all of them takes one
// longer than a small tile's products. Nobody packs A, so nobody waits for that. `more`, `fewer`: maps of the
// boxes' rows, of which a matrix that ends inside of eight rows has one more for some boxes. Blocks that
// share A have every other box each, for both: those of `blocks`.
template <typename Pipeline, typename Tiles, typename Extents>
__device__ __forceinline__ void bring_skewed(Pipeline& pipeline, Tiles& tiles, const Extents& e, int rank,
                                             const TensorMap* more, const TensorMap* fewer, const T* A,
                                             i64 line, int third) {
  const int own = rank / CLUSTER_M, blocks = (1 | 1 << CLUSTER_M) << rank % CLUSTER_M,
            first = skew_of(A) / sizeof(T);
  for (int parity = 1, stage = 0; tiles.next(e, rank);)
    for (int step = tiles.begin; step < tiles.end; ++step) {
      barrier_wait(&pipeline.barriers.empty[stage], parity);
      Barrier* const full = &pipeline.barriers.full[stage];
#pragma unroll 1
      for (int i = third * CLUSTER_N + own; i < 8; i += 3 * CLUSTER_N) {
        char* const to = pipeline.stage[stage].A + i * SKEWED_BOX;
        const TensorMap* const map = i < e.M % 8 ? more : fewer;
        const int x = ((first + i * static_cast<int>(line)) & -8) + step * BK, y = tiles.row / 8;
        if (CLUSTER_N > 1) tma_load_shared(to, map, x, y, 0, 0, full, blocks);
        else tma_load(to, map, x, y, 0, 0, full);
      }
      if (++stage == STAGES) stage = 0, parity ^= 1;
    }
}

// A thread's elements of a step along k: where its two rows have their first words in a tile, and by how many
// bits to shift them.
template <int Rows>
struct SkewedOffsets {
  int place[2], shift[2];
  __device__ __forceinline__ SkewedOffsets(const T* A, i64 line, int warp) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int half = 2 * warp + h, begin = skew_of(A + half / HALVES * line) / sizeof(T);
      place[h] = (half * 8 + lane / 4) * SKEWED_ROW + (begin / 2 + lane % 4) * 4, shift[h] = begin % 2 * 16;
    }
  }
  // `left`: of k. What stands behind a row are others' elements, and no zeros: they may be no numbers.
  __device__ __forceinline__ void read(Fragments<Rows>& to, const char* tile, int left) const {
    each([&](int i, int e) {
      const unsigned* const words =
          reinterpret_cast<const unsigned*>(tile + place[e % 2] + i * 32 + e / 2 * 16);
      to[i][0][e] = __funnelshift_r(words[0], words[1], shift[e % 2]);
    });
    if (left >= BK) return;
    each([&](int i, int e) {
      const int beyond = i * 16 + e / 2 * 8 + threadIdx.x % 4 * 2 + 2 - left;  // of the two
      to[i][0][e] = beyond <= 0 ? to[i][0][e] : beyond == 1 ? to[i][0][e] & 0xFFFF : 0;
    });
  }
  template <typename Use>
  __device__ __forceinline__ static void each(Use use) {
#pragma unroll
    for (int i = 0; i < STEPS; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) use(i, e);
  }
};

// Rows of D: from a tile's first to a warp's first, and from that one on by the lines of a patch.
template <int Rows>
__device__ __forceinline__ int row_of_warp(int group, int warp) {
  return A_SKEWED ? 2 * warp / HALVES : group * Rows * 64 + warp % 4 * NEXT_WARP<Rows>;
}
struct PatchRows {
  __device__ __forceinline__ static int of(int line) {
    return A_SKEWED ? line % 8 * 8 + line / 8 * (HALVES > 1 ? 64 : 1) : line;
  }
};

#if A_SKEWED
template <int Rows>
using OffsetsOfA = SkewedOffsets<Rows>;
#else
template <int Rows>
using OffsetsOfA = FragmentOffsets<Rows>;
#endif
