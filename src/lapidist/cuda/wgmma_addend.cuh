// alpha and beta C for the sums of wgmma. C comes a patch at a time, through the shared memory that the patch of D takes next.
//
// A thread's own elements of C, each behind a bounds check, loaded into registers without an index: they were half of the kernel's
// code and half of the time to compile it. So a loop brings the patch, line by line, and what is outside arrives as zero.
#pragma once

#include "wgmma_store.cuh"

// Where there is C, alpha comes with it: one instruction for both.
template <int Count> __device__ __forceinline__ void scale_sums(Sum* sums, Scalar alpha) {
  if (ADDEND || !ALPHA || alpha == Scalar(1)) return;
#pragma unroll
  for (int i = 0; i < Count; ++i) sums[i] *= alpha;
}

// C of one matrix: where it starts, the steps between its elements, how many there are.
struct Addend {
  const Out* C;
  i64 row_step, col_step;
  int rows, cols;
  Scalar alpha, beta;

  // The elements at (row, col) and behind, for all lanes of the warp, when what was in the patch has left.
  template <typename Patch> __device__ __forceinline__ void bring(const Patch& patch, int row, int col) const {
    constexpr int PITCH = Patch::PITCH, LINES = Patch::LINES, LENGTH = PITCH / sizeof(Out), PER_PIECE = 16 / sizeof(Out);
    const int lane = threadIdx.x % 32, lines = D_TURNED ? cols - col : rows - row, length = D_TURNED ? rows - row : cols - col;
    const i64 pitch = D_TURNED ? col_step : row_step, step = D_TURNED ? row_step : col_step;
    if (D_COPY_ENGINE && lane == 0) tma_store_wait_read<0>();
    __syncwarp();
    const Out* const from = C + row * row_step + col * col_step;
    const i64 skew = reinterpret_cast<i64>(from) | pitch * static_cast<i64>(sizeof(Out));
    if (step == 1 && skew % 16 == 0) {
#pragma unroll 2
      for (int i = lane; i < LINES * PITCH / 16; i += 32) {
        const int line = i / (PITCH / 16), first = i % (PITCH / 16) * PER_PIECE, left = line < lines ? length - first : 0;
        const int exist = left < 0 ? 0 : min_of(left, PER_PIECE);
        cp_async_fill<16>(&patch.at(line, first), from + line * pitch + first, exist * static_cast<int>(sizeof(Out)));
      }
      cp_async_commit();
      cp_async_wait<0>();
    } else {
      const bool across = pitch == 1;  // neighbouring lanes take neighbours in memory
#pragma unroll 8
      for (int i = lane; i < LINES * LENGTH; i += 32) {
        const int line = across ? i % LINES : i / LENGTH, element = across ? i / LINES : i % LENGTH;
        patch.at(line, element) = line < lines && element < length ? from[line * pitch + element * step] : Out(0);
      }
    }
    __syncwarp();
  }

  // A lane's elements, in the order of its sums: words of one, two or four.
  template <int Cols, bool ByHand>
  __device__ __forceinline__ void read(const Patch<Cols, ByHand>& patch, unsigned (&words)[Cols / 2 * sizeof(Out) / 4]) const {
    if constexpr (sizeof(Out) == 2 && !A_TURNS) {
#pragma unroll
      for (int j = 0; j < Cols / 16; ++j)
        ldmatrix<D_TURNED>(reinterpret_cast<unsigned(&)[4]>(words[4 * j]), static_cast<const char*>(__cvta_shared_to_generic(patch.matrix_row(j))));
    } else {
      const int m = threadIdx.x % 32 / 4 * NEXT_GROUP, n = threadIdx.x % 4 * 2;
#pragma unroll
      for (int i = 0; i < Cols / 2; ++i) {
        const int down = m + i / 2 % 2 * NEXT_ROW, across = n + i / 4 * 8 + i % 2;
        reinterpret_cast<Out(&)[Cols / 2]>(words)[i] = D_TURNED ? patch.at(across, down) : patch.at(down, across);
      }
    }
    __syncwarp();  // all lanes have read C
  }

  // What C has for a lane's sums of a patch. beta = 0 never reads it: NaN there must not leak.
  template <int Cols, bool ByHand>
  __device__ __forceinline__ void find(const Patch<Cols, ByHand>& patch, int row, int col,
                                       unsigned (&words)[Cols / 2 * sizeof(Out) / 4]) const {
#pragma unroll
    for (unsigned& word : words) word = 0;
    if (beta == Scalar(0)) return;
    bring(patch, row, col);
    read(patch, words);
  }
  __device__ __forceinline__ Scalar times_beta(const unsigned* words, int i) const {
    return beta * Scalar(reinterpret_cast<const Out*>(words)[i]);
  }

  // One patch.
  template <int Cols, bool ByHand>
  __device__ __forceinline__ void add(const Patch<Cols, ByHand>& patch, int row, int col, Sum* sums) const {
    if (!ADDEND) return;
    unsigned words[Cols / 2 * sizeof(Out) / 4];
    find(patch, row, col, words);
#pragma unroll
    for (int i = 0; i < Cols / 2; ++i) sums[i] = alpha * sums[i] + times_beta(words, i);
  }

  // All of a warp's patches, the first at (row, col).
  template <int Cols, bool ByHand, int Rows, int Count>
  __device__ __forceinline__ void add_all(const Patch<Cols, ByHand>& patch, int row, int col, Sum (&sums)[Rows][Count]) const {
    if (!ADDEND) return;
    constexpr int EACH = Cols / 2, ACROSS = Count / EACH;
    constexpr bool BEFORE = EACH <= 16;  // products with beta once, not for each patch; for 32 there are no registers
#pragma unroll 1
    for (int number = 0; number < Rows * ACROSS; ++number) {
      unsigned words[EACH * sizeof(Out) / 4];
      find(patch, row + number / ACROSS * NEXT_SLAB, col + number % ACROSS * Cols, words);
      Scalar found[EACH];
#pragma unroll
      for (int i = 0; BEFORE && i < EACH; ++i) found[i] = times_beta(words, i);
      at_patch<Cols, Rows * ACROSS>(sums[0], number, [&](Sum* mine) {
#pragma unroll
        for (int i = 0; i < EACH; ++i) mine[i] = alpha * mine[i] + (BEFORE ? found[i] : times_beta(words, i));
      });
    }
  }
};
