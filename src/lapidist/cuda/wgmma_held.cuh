// A tile that leaves while the next one's products run: its last patches wait as the elements of D that they become, as many as
// registers have room for. Tensor cores idle between two tiles only until these are taken, and the others on their way.
#pragma once

#include "wgmma_store.cuh"  // first: it brings the element types

template <typename Element> struct Kept { typedef Sum Word; };  // 4 bytes: a word is a sum
template <> struct Kept<half> { typedef unsigned Word; };       // 2 bytes: of two
template <> struct Kept<__nv_bfloat16> { typedef unsigned Word; };

// The last Count of a warp's patches. They leave one by one over half of the next tile's steps: stores take their time of the copy
// engine and of the L2, and the loads that products wait for come in between.
template <int Cols, int Count> struct Held {
  static constexpr int WORDS = Cols * sizeof(Out) / 8, FIRST = ALL_PATCHES - Count;
  typename Kept<Out>::Word words[Count][WORDS];
  int row, col, inner, outer, buffer, sent = Count, next, every;

  __device__ __forceinline__ bool has() const { return sent < Count; }
  __device__ __forceinline__ bool due(int step) const { return has() && step >= next; }

  // The last of a warp's sums. Where its tile begins, and in which matrix; how many steps the next one has.
  __device__ __forceinline__ void take(const Sum* sums, int first_row, int first_col, int inner_matrix, int outer_matrix,
                                       int first_buffer, int steps) {
    next = 0, every = steps / (2 * Count);
    row = first_row, col = first_col, inner = inner_matrix, outer = outer_matrix, buffer = first_buffer + FIRST, sent = 0;
    sums += FIRST * (Cols / 2);
#pragma unroll
    for (int i = 0; i < Count * WORDS; ++i) {
      if constexpr (sizeof(Out) == 2) words[i / WORDS][i % WORDS] = Patch<Cols>::pair(sums + 2 * i);
      else words[i / WORDS][i % WORDS] = sums[i];
    }
  }

  template <typename Buffer, int Buffers> __device__ __forceinline__ void store_one(const TensorMap* map, Buffer (&buffers)[Buffers]) {
    const int lane = threadIdx.x % 32;
    if (lane == 0) tma_store_wait_read<Buffers - 1>();
    __syncwarp();
#pragma unroll
    for (int i = 0; i < Count; ++i) {  // registers have no index
      if (i != sent) continue;
      Buffer& patch = buffers[(buffer + i) % Buffers];
      if constexpr (sizeof(Out) == 2) patch.lay_pairs(words[i]);
      else patch.lay(words[i], ROWS * BN <= 128);
      proxy_fence();
      __syncwarp();
      if (lane != 0) continue;
      const int down = row + (FIRST + i) / D_PATCHES * NEXT_SLAB, along = col + (FIRST + i) % D_PATCHES * Cols;
      tma_store(map, D_TURNED ? down : along, D_TURNED ? along : down, inner, outer, patch.bytes);
      tma_store_commit();
    }
    ++sent, next += every;
  }
};

template <int Cols> struct Held<Cols, 0> {
  __device__ __forceinline__ bool has() const { return false; }
  __device__ __forceinline__ bool due(int) const { return false; }
  __device__ __forceinline__ void take(const Sum*, int, int, int, int, int, int) {}
  template <typename Buffers> __device__ __forceinline__ void store_one(const TensorMap*, Buffers&) {}
};
