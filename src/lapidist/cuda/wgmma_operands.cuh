// How tiles of A and B come to shared memory for gemm/wgmma.cu, and what is packed before the first one.
#pragma once

#include "wgmma_tiles.cuh"

constexpr int TURNED_COLS = 128 / sizeof(T);  // of m or n in a slab of a turned tile, which has a row of 128 bytes for each k
constexpr int TURNED_SLAB = BK * 128;

__device__ constexpr int tile_bytes(bool turned, int extent) {
  return turned ? (extent + TURNED_COLS - 1) / TURNED_COLS * TURNED_SLAB : extent * 128;
}

// Where a box of `lines` lines begins. One that would lie outside altogether brings the last lines instead, for sums that are not
// stored: what is outside all comes from one place, a few lines a cycle for the whole chip. Turned boxes start on 16 bytes.
__device__ __forceinline__ int begin_inside(int begin, int lines, int extent) {
  constexpr int PER_PIECE = 16 / sizeof(T);
  return begin < extent ? begin : extent > lines ? (extent - lines) / PER_PIECE * PER_PIECE : 0;
}

// One tile of an operand, of which there are `extent` rows or columns, to shared memory, in as many boxes as the copy engine
// needs. Parts blocks load a part each for all of them, those of the bits of `blocks`. `once`: no other tile reads it.
template <bool Turned, int Extent, int Parts>
__device__ __forceinline__ void load_tile(char* tile, const TensorMap* map, int along, int extent, int k, int inner, int outer,
                                          int part, int blocks, Barrier* full, bool once) {
  constexpr int Slabs = Turned ? tile_bytes(true, Extent) / TURNED_SLAB : 1;
#pragma unroll
  for (int slab = 0; slab < Slabs; ++slab) {
    constexpr int Lines = Turned ? TURNED_COLS : Extent / Parts;
    const int begin = begin_inside(along + (Turned ? slab : part) * Lines, Lines, extent);
    const int x = Turned ? begin : k, y = Turned ? k + part * (BK / Parts) : begin;
    char* target = tile + slab * TURNED_SLAB + part * ((Turned ? BK : Extent) / Parts * 128);
    if (Parts > 1)
      tma_load_shared(target, map, x, y, inner, outer, full, blocks);
    else if (once)
      tma_load_once(target, map, x, y, inner, outer, full);
    else
      tma_load(target, map, x, y, inner, outer, full);
  }
}

constexpr bool PACKS = PACK_A || PACK_B;

// To where the maps of packed operands point: A first, then B. Returns the workspace behind them.
__device__ __forceinline__ Workspace pack_operands(const Extents& e, const T* A, i64 a_line, const Batch& of_a, const T* B,
                                                   i64 b_line, const Batch& of_b, const Workspace& workspace) {
  if (!PACKS) return workspace;
  T* to = static_cast<T*>(workspace.slots);
  int item = first_item();
  if constexpr (PACK_A == 1 && PACK_B == 1) {  // once compiled for both
    const auto a = lines_of<A_TURNED>(to, A, a_line, e.M, e.K, of_a);
    const auto b = lines_of<B_TURNED>(to + a.elements(), B, b_line, e.N, e.K, of_b);
#pragma unroll 1
    for (int i = 0; i < 2; ++i) (i == 0 ? a : b).pack(item);
    to = b.to + b.elements();
  } else {
    if (PACK_A) to += pack<A_TURNED, false>(to, A, a_line, e.M, e.K, of_a, item);
    if (PACK_B) to += pack<B_TURNED, PACK_B == 2>(to, B, b_line, e.N, e.K, of_b, item);
  }
  arrive_packed(workspace.flags);
  return Workspace{workspace.flags + PACKING_FLAGS, to};
}
