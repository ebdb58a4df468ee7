// Loads of A and B in gemm/simt.cu, through registers to shared memory, where rows have one k.
#pragma once

#include "config.cuh"
#include "gemm/simt/constants.cuh"

// Moves an OUTER x BK tile (OUTER counts rows of A or columns of B) from global memory through registers to
// shared[k][outer]. Rows outside the matrix repeat the tile's first one; their results are not stored. k
// beyond the matrix is zero, in the last tile only.
template <int OUTER, int CONTIGUOUS, int VECTOR>
struct Mover {
  static constexpr bool ALONG_K = CONTIGUOUS == 1;
  static constexpr int WIDE = ALONG_K ? BK : OUTER;  // extent in the direction of neighbouring threads
  static constexpr int MOVES = OUTER * BK / VECTOR / THREADS;
  static_assert(OUTER * BK % (VECTOR * THREADS) == 0, "every thread moves the same number of vectors");
  static_assert(WIDE % VECTOR == 0, "vectors fill a row of the tile");
  static constexpr bool ALONG_OUTER = CONTIGUOUS == 2;
  const i64 outer_stride, k_stride;
  const int last;  // the last row that exists, counted from this tile's first
  const bool fit;  // no vector begins before it and ends beyond it
  // If a thread's moves are steps along k, one pointer advances from each to the next, and into the next
  // tile. This saves registers.
  static constexpr bool WALKS = !ALONG_K && THREADS * VECTOR % OUTER == 0;
  static constexpr int POINTERS = WALKS ? 1 : MOVES, STEP = WALKS ? THREADS * VECTOR / OUTER : BK;
  const T* gmem[POINTERS];  // the source of each move's first element; advances along k
  Vector<VECTOR> reg[MOVES];

  // `index`: row i of the operand is the matrix's row index[i]; null: its row i.
  __device__ Mover(const T* matrix, int first, int extent, i64 outer_stride, i64 k_stride, const Index* index)
      : outer_stride(ALONG_OUTER ? 1 : outer_stride),
        k_stride(ALONG_K ? 1 : k_stride),
        last(extent - 1 - first),
        fit(VECTOR == 1 || ALONG_K || last >= OUTER - 1 || (last + 1) % VECTOR == 0) {
#pragma unroll
    for (int move = 0; move < POINTERS; ++move) {
      const int outer = first + (outer_of(move) <= last ? outer_of(move) : 0);
      gmem[move] = matrix + (index ? static_cast<i64>(index[outer]) : outer) * this->outer_stride +
                   k_of(move) * this->k_stride;
    }
  }

  __device__ static int index(int move) { return (move * THREADS + threadIdx.x) * VECTOR; }
  __device__ static int outer_of(int move) { return ALONG_K ? index(move) / WIDE : index(move) % WIDE; }
  __device__ static int k_of(int move) { return ALONG_K ? index(move) % WIDE : index(move) / WIDE; }

  __device__ T element(int move, int i) const {
    const int most = last > outer_of(move) ? last - outer_of(move) : 0;
    return gmem[WALKS ? 0 : move][ALONG_K ? i * k_stride : min_of(i, most) * outer_stride];
  }

  // Load the next tile. `whole`: all BK steps exist, so nothing is compared; else `k_left` of them do.
  __device__ void load(bool whole, int k_left) {
    if (whole && fit) {  // one branch for all: with a branch for each load, they would wait for each other
#pragma unroll
      for (int move = 0; move < MOVES; ++move) {
        reg[move] = *reinterpret_cast<const Vector<VECTOR>*>(gmem[WALKS ? 0 : move]);
        gmem[WALKS ? 0 : move] += STEP * k_stride;
      }
      return;
    }
#pragma unroll
    for (int move = 0; move < MOVES; ++move) {
#pragma unroll
      for (int i = 0; i < VECTOR; ++i)
        reg[move].at[i] = k_of(move) + (ALONG_K ? i : 0) < k_left ? element(move, i) : T(0);
      gmem[WALKS ? 0 : move] += STEP * k_stride;
    }
  }

  __device__ void store(T (*shared)[OUTER + PAD]) const {
#pragma unroll
    for (int move = 0; move < MOVES; ++move) {
      if (ALONG_K) {
#pragma unroll
        for (int i = 0; i < VECTOR; ++i) shared[k_of(move) + i][outer_of(move)] = reg[move].at[i];
      } else {
        *reinterpret_cast<Vector<VECTOR>*>(&shared[k_of(move)][outer_of(move)]) = reg[move];
      }
    }
  }
};
