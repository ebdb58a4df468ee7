// The main loop of gemm/sgemm.cu: a thread's part of a tile, chunk by chunk along k.
//
//   step   | wait full s + 1 | chunks of stage s, the last one reads the first of s + 1 ahead | free s | ...
#pragma once

#include "bank_order.cuh"
#include "config.cuh"
#include "gemm/sgemm/units.cuh"

__device__ __forceinline__ Four<T> read_four(unsigned address) {
  return *static_cast<const Four<T>*>(__cvta_shared_to_generic(address));
}

// A thread's position in a tile: its rows of A are line(i, row), its columns of B two groups of four.
struct Position {
  int warp, lane, row, col;  // the lane's row and column in a warp of 4 by 8
  int slice, of_tile;        // the warp's slice of k, and its number among the warps of that slice
  int warp_row, thread_col;

  __device__ __forceinline__ Position(int warp, int lane)
      : warp(warp),
        lane(lane),
        row(lane % 2 + lane / 4 % 2 * 2),
        col(lane / 2 % 2 + lane / 8 * 2),
        slice(SLICES > 1 ? warp / TILE_WARPS : 0),
        of_tile(SLICES > 1 ? warp % TILE_WARPS : warp),
        warp_row(of_tile / (BN / WN) * WM),
        thread_col(of_tile % (BN / WN) * WN + col * VEC) {}
  __device__ __forceinline__ int line(int i, int r) const {
    return warp_row + (A_ALONG_K ? r + 4 * i : r * 4 + i / 4 * 16 + i % 4);
  }
};

// A thread's registers for a chunk of A and B, and the addresses of the next one.
struct Fragments {
  Four<T> a[ROWS], b[VEC][TN / 4];
  unsigned a_lane, b_lane;             // offsets of the thread's first chunk in a stage
  unsigned base, a_even, a_odd, b_at;  // the stage, and the chunk: even and odd rows with their swizzle

  __device__ __forceinline__ explicit Fragments(const Position& position) {
    // CHUNKS is a power of two, so a slice's first chunk and a chunk's number share no bits: XOR adds them.
    const unsigned skipped = position.slice * CHUNKS;
    a_lane = A_ALONG_K ? (position.line(0, position.row) * 128 + position.row * 16) ^ skipped * 16
                       : sizeof(T) * (position.line(0, position.row) + VEC * skipped * BM);
    b_lane = sizeof(T) * (BM * BK + VEC * skipped * BN + position.thread_col);
  }

  __device__ __forceinline__ void go_to(int chunk) {
    a_even = base + (A_ALONG_K ? a_lane ^ chunk * 16 : a_lane + VEC * chunk * BM * sizeof(T));
    a_odd = a_even ^ 64;
    b_at = base + b_lane + VEC * chunk * BN * sizeof(T);
  }
  // Called after the last use of row i at k. Along k, a row is loaded after its last k. If rows are
  // contiguous, four rows are loaded after the last of them.
  __device__ __forceinline__ void load_a(int i, int k) {
    if (A_ALONG_K && k == VEC - 1) a[i % ROWS] = read_four((i % 2 ? a_odd : a_even) + i * 4 * 128);
    if (!A_ALONG_K && i % 4 == 3) {
      const Four<T> four = read_four(a_even + (k * BM + (i - 3) * 4) * sizeof(T));
#pragma unroll
      for (int e = 0; e < 4; ++e) a[(i - 3) % ROWS + e].at[k] = four.at[e];
    }
  }
  __device__ __forceinline__ void load_b(int k) {
#pragma unroll
    for (int j = 0; j < TN; j += 4) b[k][j / 4] = read_four(b_at + (k * BN + j * 8) * sizeof(T));
  }
  // Load the first chunk of a unit.
  __device__ __forceinline__ void load_all(const Stage& stage) {
    base = shared_address(&stage);
    go_to(0);
#pragma unroll
    for (int i = 0; i < ROWS; ++i)
#pragma unroll
      for (int k = 0; k < VEC; ++k) load_a(i, k);
#pragma unroll
    for (int k = 0; k < VEC; ++k) load_b(k);
  }

  // Multiply a chunk, while the next chunk's fragments replace its own; `then`: the address of the next
  // stage.
  __device__ __forceinline__ void multiply(Acc (&acc)[TM][TN], int chunk, unsigned then) {
    multiply_chunk<A_ALONG_K>(
        acc, a, b,
        [&] {
          const int next = chunk + 1;
          if (next == CHUNKS) base = then;
          go_to(next % CHUNKS);
        },
        [&](int i, int k) { load_a(i, k); }, [&](int k) { load_b(k); });
  }
};

// Chunks of a slice in step `step`. Chunks of zeros in the last stage are skipped, which changes no sum. The
// number is the same for all lanes, which the shuffle tells the compiler. Else the loop counter takes a
// vector register, and in one build operands then met in one bank 31 times a chunk.
__device__ __forceinline__ int chunks_of(int K, int slice, int step) {
  const int skipped = SLICES > 1 ? __shfl_sync(~0u, slice, 0) * CHUNKS : 0;
  return min_of(CHUNKS, ceil_div(K, VEC) - skipped - step * (BK / VEC));
}

// All steps of a unit.
__device__ __forceinline__ void multiply(int K, Pipeline& pipeline, const WorkUnit& unit,
                                         const Position& position, Fragments& fragments, Acc (&acc)[TM][TN],
                                         Ring& ring) {
#pragma unroll
  for (int i = 0; i < TM; ++i)
#pragma unroll
    for (int j = 0; j < TN; ++j) acc[i][j] = 0;
  if (unit.k_begin < unit.k_end) {
    barrier_wait(&pipeline.full[ring.stage], ring.parity);
    fragments.load_all(pipeline.stage[ring.stage]);
  }
  const int last = chunks_of(K, position.slice, unit.k_end - 1);
  const auto release = [&](int stage) {
    __syncwarp();  // all lanes have read the stage
    if (position.lane == 0) barrier_arrive(&pipeline.empty[stage]);
  };
#pragma unroll 1
  for (int step = unit.k_begin; step < unit.k_end; ++step) {
    const int freed = ring.stage;
    ring.go_on();
    unsigned then = fragments.base;  // after the unit's last step: read, but not used
    int chunk = 0, chunks = CHUNKS;
    if (step + 1 < unit.k_end) {
      barrier_wait(&pipeline.full[ring.stage], ring.parity);
      then = shared_address(&pipeline.stage[ring.stage]);
    } else if (last < 1) {
      release(freed);
      break;
    } else {
      chunks = last;
    }
    if (CHUNKS == 1) chunks = unknown(chunks);
#pragma unroll 1
    do fragments.multiply(acc, chunk, then);
    while (++chunk < chunks);  // at least one: a test before the first took 1 % of the time
    release(freed);
  }
}
