// A K-major A of 16-bit elements whose rows do not start on multiples of 16 bytes, without packing. wgmma
// also takes A from registers, and loads to registers can shift elements. Every eighth row has the same
// offset from a multiple of 16 bytes, and such rows are a multiple of 16 bytes apart, so TMA can load them in
// one box.
//
//   a box    every eighth row of a tile: 144 bytes of each, from the multiple of 16 before it   [..e0 e1 e2 | .. | .. e63 ..]
//   a warp   has the rows of a box (BM 128), or half of those of two (BM 64); all of its lanes shift alike
//   banks    rows are 36 words apart, so 8 rows of 4 words lie in 32 different banks
#pragma once

#include "config.cuh"
#include "gemm/wgmma/a_from_registers.cuh"
#include "unaligned/pieces.cuh"

constexpr int SKEWED_ROW = 144, SKEWED_BOX = BM / 8 * SKEWED_ROW;
constexpr int HALVES = BM > 64 ? BM / 64 : 1;  // half warps (8 rows each) that share the rows of a box

// Load A for all steps. A thread of each of three warps loads every third box: one thread alone would take
// longer than a small tile's products. `more`, `fewer`: maps for boxes that have a row in A's last,
// incomplete group of eight, and for others. Two blocks that share A load every other box each, for both
// (`blocks`).
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

// For a thread's elements of a step: the offsets of its two rows' first words in a tile, and the bits to
// shift by.
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
  // `left`: elements of k that are left. Behind a row lie other elements, not zeros, which may be NaN.
  __device__ __forceinline__ void read(Fragments<Rows>& to, const char* tile, int left) const {
    each([&](int i, int e) {
      const unsigned* const words =
          reinterpret_cast<const unsigned*>(tile + place[e % 2] + i * 32 + e / 2 * 16);
      to[i][0][e] = __funnelshift_r(words[0], words[1], shift[e % 2]);
    });
    if (left >= BK) return;
    each([&](int i, int e) {
      const int beyond = i * 16 + e / 2 * 8 + threadIdx.x % 4 * 2 + 2 - left;  // of the word's two elements
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

// Rows of D: row_of_warp gives a warp's first row in the tile, PatchRows those of a patch's lines behind it.
template <int Rows>
__device__ __forceinline__ int row_of_warp(int group, int warp) {
  return A_SKEWED ? 2 * warp / HALVES : group * Rows * 64 + warp % 4 * NEXT_WARP<Rows>;
}
struct PatchRows {
  __device__ __forceinline__ static int of(int line) {
    return A_SKEWED ? line % 8 * 8 + line / 8 * (HALVES > 1 ? 64 : 1) : line;
  }
};

template <int Rows>
using OffsetsOfA = typename Choose<A_SKEWED, SkewedOffsets<Rows>, FragmentOffsets<Rows>>::Type;
