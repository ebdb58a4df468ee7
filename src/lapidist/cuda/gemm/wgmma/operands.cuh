// Loads of A and B to shared memory for gemm/wgmma.cu, and packing of operands before them.
#pragma once

#include "config.cuh"
#include "gemm/wgmma/parts.cuh"
#include "packing/shares.cuh"

constexpr int MN_MAJOR_SLAB = BK * 128;

__device__ constexpr int tile_bytes(bool mn_major, int extent) {
  return mn_major ? (extent + MN_MAJOR_COLS - 1) / MN_MAJOR_COLS * MN_MAJOR_SLAB : extent * 128;
}

// Where a box of `lines` lines begins. A box wholly outside the matrix is moved to the last lines; its sums
// are not stored. Lines outside would all be loaded from one address, a few in a cycle for the whole chip.
// MnMajor boxes start on multiples of 16 bytes.
__device__ __forceinline__ int begin_inside(int begin, int lines, int extent) {
  constexpr int PER_PIECE = 16 / sizeof(T);
  return begin < extent ? begin : extent > lines ? (extent - lines) / PER_PIECE * PER_PIECE : 0;
}

// Load a tile of an operand with `extent` rows or columns to shared memory, in as many boxes as TMA needs.
// Extent 0: other threads load it. Parts blocks of a cluster load a part each, for all blocks whose bits are
// set in `blocks`. `once`: no other tile reads it. `Clipped`: lines of the boxes, from `limit` on, are zeros.
template <bool MnMajor, int Extent, int Parts, bool Clipped>
__device__ __forceinline__ void load_tile(char* tile, const TensorMap* map, int along, int extent, int k,
                                          int inner, int outer, int part, int blocks, Barrier* full,
                                          bool once, int limit) {
  constexpr int Slabs = MnMajor ? tile_bytes(true, Extent) / MN_MAJOR_SLAB : Extent > 0;
#pragma unroll
  for (int slab = 0; slab < Slabs; ++slab) {
    constexpr int Lines = MnMajor ? MN_MAJOR_COLS : Extent / Parts;
    const int first = along + (MnMajor ? slab : part) * Lines,
              begin = Clipped && !MnMajor ? first : begin_inside(first, Lines, extent);
    const int x = MnMajor ? begin : k;
    int y = MnMajor ? k + part * (BK / Parts) : begin;
    if constexpr (Clipped) {
      const ClippedLine at(y, limit);
      y = at.line, inner = at.shift, outer = CLIPPED_SHIFT;
    }
    char* target = tile + slab * MN_MAJOR_SLAB + part * ((MnMajor ? BK : Extent) / Parts * 128);
    if (Parts > 1) tma_load_shared(target, map, x, y, inner, outer, full, blocks);
    else if (once) tma_load_once(target, map, x, y, inner, outer, full);
    else tma_load(target, map, x, y, inner, outer, full);
  }
}

// How the producer's idle warps pack, during products, what later tiles need (parts.cuh). Warps that pack
// need registers. Tiles of 128 rows have few sums, so all threads have equally many registers and none move.
// In tiles of 256 rows packers handle fewer pieces at a time. kernels/wgmma/packing.py
// says which kernels do.
constexpr bool PACKS_EVENLY = PACKS_BESIDE && BM == 128, PACKS_FEWER = PACKS_BESIDE && BM == 256;
constexpr int FIRST_PACKER = GROUPS * 4 + 1, PACKERS = 3;

// Prefetch small operands to the L2 before the last launch has ended. The thread's warp has little to pack.
__device__ __forceinline__ void fetch_small(const Extents& e, const T* A, i64 a_line, const Batch& a_batch,
                                            const T* B, i64 b_line, const Batch& b_batch) {
  if (threadIdx.x != blockDim.x - 64) return;
  // bytes of the operand for each block: for larger ones latency matters little
  constexpr i64 MOST = (PACKS ? 48 : 24) * 1024;
  const int extent = A_SKEWED || e.N > e.M ? e.N : e.M;
  if (static_cast<i64>(sizeof(T)) * extent * e.K > MOST * gridDim.x) return;
  if (!A_SKEWED) lines_of<A_M_MAJOR>(static_cast<T*>(nullptr), A, a_line, e.M, e.K, a_batch).fetch_ahead();
  lines_of<B_N_MAJOR>(static_cast<T*>(nullptr), B, b_line, e.N, e.K, b_batch).fetch_ahead();
}

// Packs operands to the addresses of their tensor maps: A first, then B. PACK_B 2 transposes, in code of its
// own.
struct Packing {
  static constexpr int SHARED = (PACK_A == 1) + (PACK_B == 1);
  const Lines<T> of_a, of_b;

  // Constructed before the last launch has ended: nothing is read.
  __device__ __forceinline__ Packing(const Extents& e, const T* A, i64 a_line, const Batch& a_batch,
                                     const T* B, i64 b_line, const Batch& b_batch, const Workspace& workspace)
      : of_a(lines_of<A_M_MAJOR>(static_cast<T*>(workspace.slots), A, a_line, e.M, e.K, a_batch)),
        of_b(lines_of<B_N_MAJOR>(static_cast<T*>(workspace.slots) + (PACK_A ? of_a.elements() : 0), B, b_line,
                                 e.N, e.K, b_batch)) {}

  template <int Most>
  __device__ __forceinline__ void pack_part(const PackedPart& part, int first_warp) const {
    const Lines<T>
        a = of_a.part(A_M_MAJOR, part.rows.begin, part.rows.end).part(!A_M_MAJOR, part.k.begin, part.k.end),
        b = of_b.part(B_N_MAJOR, part.cols.begin, part.cols.end).part(!B_N_MAJOR, part.k.begin, part.k.end);
    Shares<T, SHARED == 2, Most>(PACK_A ? a : b, b, Packers(first_warp)).pack();
  }
  // All warps pack the first part, the producer's idle warps the others: in one instance of this code, or in
  // two.
  template <int Most, int First, int Last>
  __device__ __forceinline__ void pack_in_parts(const PackedParts& parts, const Workspace& workspace) const {
#pragma unroll 1
    for (int number = First; number <= Last; ++number) {
      const PackedPart part = parts[number];
      if (number > 0 && part.left_out) continue;
      pack_part<Most>(part, number > 0 ? FIRST_PACKER : 0);
      if (number > 0) arrive_packed_beside(workspace.flags, number);
      else arrive_packed(workspace.flags);
      if (threadIdx.x < FIRST_PACKER * 32) break;
    }
  }

  // Waits for the last launch; returns the workspace behind the packed copies.
  __device__ __forceinline__ Workspace pack(const Extents& e, const PackedParts& parts,
                                            const Workspace& workspace) const {
    if constexpr (PACKS_BESIDE) {
      pack_in_parts<Lines<T>::MOST, 0, PACKS_EVENLY ? PackedParts::MOST : 0>(parts, workspace);
      return Workspace{workspace.flags + PACKING_FLAGS, of_b.to + (PACK_B ? of_b.elements() : 0)};
    }
    const Shares<T, SHARED == 2> shares(PACK_A ? Lines<T>(of_a) : Lines<T>(of_b), of_b);
    if (SHARED) shares.pack();
    else wait_for_last_launch();
    T* to = of_b.to + (PACK_B == 1 ? of_b.elements() : 0);
    if constexpr (PACK_B == 2) {
      int item = first_item();
      to += ::pack<B_N_MAJOR, true>(of_b.to, of_b.from, of_b.pitch, e.N, e.K, of_b.batch, item);
    }
    arrive_packed(workspace.flags);
    return Workspace{workspace.flags + PACKING_FLAGS, to};
  }
};
