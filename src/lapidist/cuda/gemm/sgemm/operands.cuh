// The operands of gemm/sgemm.cu for TMA: one matrix, a batch, a list of matrices, gathered rows.
//
// All blocks together first pack what TMA cannot load into the workspace (packing/packing.cuh):
//   PACK_A, PACK_B       lines do not start on multiples of 16 bytes, matrices are in a list (ARRAYS), or rows or columns
//                        are gathered (GATHER)
//   PACK_B, B_ALONG_K    B is contiguous along k, and is transposed too
// Packed matrices of a batch or a list follow each other, those of A before those of B. A matrix that a batch
// shares is packed once.
#pragma once

#include "common.cuh"
#include "config.cuh"
#include "modes.cuh"
#include "packing/shares.cuh"
#include "share/clipped_lines.cuh"

// Pack gathered rows of A, or columns of B, `step` apart. It copies element by element: lanes follow the
// contiguous direction of the packed lines, in which the sources may lie anywhere.
template <bool MnMajor>
__device__ __forceinline__ i64 pick(T* to, const T* from, i64 step, i64 k_step, const Index* index,
                                    int extent, int k, int& item) {
  constexpr int EACH = 8, RUN = 32 * EACH;
  const int lines = MnMajor ? k : extent, length = MnMajor ? extent : k, runs = ceil_div(length, RUN);
  const int warps = blockDim.x / 32;
  const i64 to_pitch = packed_step<T>(length);
  for (; item < lines * runs; item += gridDim.x * warps) {
    const int line = item / runs, first = item % runs * RUN + threadIdx.x % 32;
    const T* source = from + (MnMajor ? line * k_step : index[line] * step);
    T* target = to + line * to_pitch;
    T found[EACH];
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
      const int place = first + i * 32;
      if (place < length) found[i] = source[MnMajor ? index[place] * step : place * k_step];
    }
#pragma unroll
    for (int i = 0; i < EACH; ++i)
      if (first + i * 32 < length) target[first + i * 32] = found[i];
  }
  item -= lines * runs;
  return lines * to_pitch;
}

// An operand of `extent` rows (A) or columns (B), `step` apart. Its packed lines run along m or n (MnMajor),
// or along k.
struct Source {
  const T* from;
  i64 step, k_step;
  int extent;
  Batch batch;
  const Index* index;
  const Pointers* list;  // of an array batch

  template <bool MnMajor, bool Transpose, bool Gathered>
  __device__ __forceinline__ i64 copy(T* to, const T* matrix, int extent, int k, int& item) const {
    if constexpr (Gathered) return pick<MnMajor>(to, matrix, step, k_step, index, extent, k, item);
    else
      return pack<MnMajor, Transpose>(to, matrix, MnMajor != Transpose ? k_step : step, extent, k,
                                      Batch{1, 1, 0, 0}, item);
  }

  // `extent`: of the rows or columns, those that are copied. Returns the address for the next operand.
  template <bool MnMajor, bool Transpose, bool Gathered>
  __device__ __forceinline__ T* copy_all(T* to, int extent, int k, int& item) const {
    if constexpr (ARRAYS) {
#pragma unroll 1
      for (int i = 0; i < batch.inner; ++i)
        to += copy<MnMajor, Transpose, Gathered>(to, static_cast<const T*>(list->at[i]), extent, k, item);
    } else {
#pragma unroll 1
      for (int outer = 0; outer == 0 || (batch.outer_step && outer < batch.outer); ++outer)
#pragma unroll 1
        for (int inner = 0; inner == 0 || (batch.inner_step && inner < batch.inner); ++inner)
          to += copy<MnMajor, Transpose, Gathered>(
              to, from + inner * batch.inner_step + outer * batch.outer_step, extent, k, item);
    }
    return to;
  }
};

constexpr bool PACKS = PACK_A || PACK_B;

// Whether lines are copied without gathering or transposing: then one piece of code packs a whole batch.
constexpr bool AS_THEY_LIE = !ARRAYS && !GATHER_A && !GATHER_B && !(PACK_B && B_ALONG_K);

template <bool MnMajor>
__device__ __forceinline__ Lines<T> lines_of(T* to, const Source& source, int k) {
  return lines_of<MnMajor>(to, source.from, MnMajor ? source.k_step : source.step, source.extent, k,
                           source.batch);
}

// The first lines of an operand that groups cut: those behind the last group are not read.
template <bool Cut>
__device__ __forceinline__ Lines<T> up_to(const Lines<T>& lines, int end) {
  if constexpr (Cut) return lines.part(false, 0, end);
  else return lines;
}

// Returns the workspace behind the packed copies.
__device__ __forceinline__ Workspace pack_operands(const Source& a, const Source& b, int k,
                                                   Workspace workspace, const Ragged& ragged) {
  if (!PACKS) return workspace;
  T* room = static_cast<T*>(workspace.slots);
  const int most = RAGGED == RAGGED_K ? k : ragged.total,
            end = RAGGED ? end_of_group(ragged, ragged.groups - 1, most) : 0;
  if constexpr (AS_THEY_LIE) {
    const Lines<T> of_a = lines_of<!A_ALONG_K>(room, a, k);
    if (PACK_A) room += of_a.elements();
    const Lines<T> of_b = lines_of<true>(room, b, k);
    if (PACK_B) room += of_b.elements();
    const Lines<T> first_of_b = up_to<B_CLIPPED>(of_b, end);
    Shares<T, PACK_A && PACK_B>(PACK_A ? up_to<A_CLIPPED>(of_a, end) : first_of_b, first_of_b).pack();
  } else {
    const int extent = RAGGED == RAGGED_ROWS ? end : a.extent, depth = RAGGED == RAGGED_K ? end : k;
    int item = first_item();
    if (PACK_A) {
      T* const behind = a.copy_all<!A_ALONG_K, false, GATHER_A>(room, extent, depth, item);
      room = RAGGED ? room + lines_of<!A_ALONG_K>(room, a, k).elements() : behind;
    }
    if (PACK_B) room = b.copy_all<true, B_ALONG_K, GATHER_B>(room, b.extent, depth, item);
  }
  arrive_packed(workspace.flags);
  return Workspace{workspace.flags + PACKING_FLAGS, room};
}

// The coordinates of a matrix in TMA's map of a batch: zero for an operand that the batch shares.
struct Place {
  int inner, outer;
};
__device__ __forceinline__ Place place_in(const Batch& batch, int number) {
  const int inner = ARRAYS || batch.inner_step ? number % batch.inner : 0;
  return Place{inner, batch.outer_step ? number / batch.inner : 0};
}

// `Clipped`: lines from `end` on are zeros.
template <bool Clipped>
__device__ __forceinline__ void load_tile(T* tile, const TensorMap* map, int along, int line,
                                          const Place& place, int end, Barrier* full) {
  if constexpr (Clipped) {
    const ClippedLine at(line, end);
    tma_load(tile, map, along, at.line, at.shift, CLIPPED_SHIFT, full);
  } else if (BATCHED) tma_load(tile, map, along, line, place.inner, place.outer, full);
  else tma_load(tile, map, along, line, full);
}
