// Stores of a tile by TMA, patch by patch. The last patches, as many as registers have room for, may be held
// as elements of D and stored during the next tile's products. Tensor cores then idle between two tiles only
// until these are converted and the other patches are being stored.
#pragma once

#include "config.cuh"
#include "gemm/wgmma/pipeline.cuh"
#include "gemm/wgmma/scattered_d.cuh"

// Registers of held elements. 4 bytes: a word is a sum.
template <typename Element, int Size = sizeof(Element)>
struct Kept {
  typedef Sum Word;
};
template <typename Element>
struct Kept<Element, 2> {
  typedef unsigned Word;
};  // 2 bytes: a word holds two elements

// The buffers through which a tile's patches are stored in turn, and their place in D. Warps store patches by
// themselves. Columns of D, whose lines would have 32 bytes, are stored by whole warpgroups.
template <int Cols>
struct WayOut {
  typedef typename Choose<BY_GROUP, GroupPatch<Cols>, Patch<Cols>>::Type Buffer;
  static constexpr int AT_ONCE = D_BUFFERS > 1 ? D_BUFFERS / 2 : 1;
  Destination to;
  Buffer* buffers;
  int row, col, inner, outer, turn;  // of the first patch; `turn`: patches of earlier tiles
  int limit;                         // where D's lines end, if groups end inside tiles

  __device__ __forceinline__ static bool leads() { return threadIdx.x % (BY_GROUP ? 128 : 32) == 0; }
  __device__ __forceinline__ static void meet() {
    if (BY_GROUP) group_barrier(threadIdx.x / 128);
    else __syncwarp();
  }
  __device__ __forceinline__ Buffer& buffer(int patch) const { return buffers[(turn + patch) % D_BUFFERS]; }

  // Wait until TMA has read the buffers of the next `Patches`. A warpgroup commits its patches in groups.
  template <int Patches>
  __device__ __forceinline__ static void wait() {
    if (leads()) tma_store_wait_read<BY_GROUP ? D_BUFFERS / AT_ONCE - 1 : D_BUFFERS - Patches>();
    meet();
  }
  __device__ __forceinline__ void send(int patch) const {
    if (!SCATTERS && !leads()) return;
    const int down = row + patch / D_PATCHES * NEXT_SLAB, along = col + patch_begin(patch % D_PATCHES);
    store_box(to, D_M_MAJOR ? down : along, D_M_MAJOR ? along : down, inner, outer, limit,
              buffer(patch).bytes);
    if (!BY_GROUP) tma_store_commit();
  }
  // Store patches First to Last. One fence serves half of the buffers; TMA still reads from the other half.
  template <int First, int Last, typename Lay>
  __device__ __forceinline__ void store(Lay lay) const {
#pragma unroll
    for (int begin = First; begin < Last; begin += AT_ONCE) {
      wait<AT_ONCE>();
#pragma unroll
      for (int i = begin; i < begin + AT_ONCE && i < Last; ++i) lay(i);
      proxy_fence();
      meet();
#pragma unroll
      for (int i = begin; i < begin + AT_ONCE && i < Last; ++i) send(i);
      if (BY_GROUP && leads()) tma_store_commit();
    }
  }
};

// The last Count patches of a tile. They are stored one by one over half of the next tile's iterations, so
// that loads, for which products wait, get through between the stores. If there are fewer iterations than
// patches, or no next tile, they are stored at once: where groups cut k during the next tile's first iteration, else
// before it.
constexpr bool HELD_FOR_SHORT = RAGGED == RAGGED_K;
template <int Cols, int Count>
struct Held {
  static constexpr int WORDS = Cols * sizeof(Out) / 8, FIRST = ALL_PATCHES - Count;
  typename Kept<Out>::Word words[Count][WORDS];
  WayOut<Cols> out;
  int sent = Count, next, every;
  bool at_once;

  // What is due during step `step` of the next tile.
  __device__ __forceinline__ void store_due(int step) {
    if (sent == Count || step < next) return;
    if (HELD_FOR_SHORT && at_once) store_all();
    else store_one();
  }

  // Convert and hold the last of a tile's sums. `steps`: iterations of the next tile.
  __device__ __forceinline__ void take(const WayOut<Cols>& way, const Sum* sums, int steps) {
    out = way, sent = 0, next = 0, every = steps / (2 * Count);
    if (HELD_FOR_SHORT) at_once = steps < Count;
    sums += FIRST * (Cols / 2);
#pragma unroll
    for (int i = 0; i < Count * WORDS; ++i) {
      if constexpr (sizeof(Out) == 2) words[i / WORDS][i % WORDS] = Patch<Cols>::pair(sums + 2 * i);
      else words[i / WORDS][i % WORDS] = sums[i];
    }
  }

  __device__ __forceinline__ void store_one() {
    out.template wait<1>();
#pragma unroll
    for (int i = 0; i < Count; ++i) {  // registers cannot be indexed
      if (i != sent) continue;
      lay(FIRST + i);
      proxy_fence();
      out.meet();
      out.send(FIRST + i);
    }
    ++sent, next += every;
  }
  __device__ __forceinline__ void store_all() {
    out.template store<FIRST, ALL_PATCHES>([&](int patch) { lay(patch); });
    sent = Count;
  }
  __device__ __forceinline__ void lay(int patch) const {
    if constexpr (sizeof(Out) == 2) out.buffer(patch).lay_pairs(words[patch - FIRST]);
    else out.buffer(patch).lay(words[patch - FIRST], ROWS * BN <= 128);
  }
};

template <int Cols>
struct Held<Cols, 0> {
  __device__ __forceinline__ void store_due(int) {}
  __device__ __forceinline__ void take(const WayOut<Cols>&, const Sum*, int) {}
  __device__ __forceinline__ void store_all() {}
};

// The second store of a symmetric D's tile, transposed, to its mirror image across the diagonal.
//
//   a warpgroup's sums, 64 rows x Cols columns   ->   Cols lines of 64 elements, in 4 boxes   ->   D, by TMA
//
// Boxes are those of D's patches, 16 lines of Cols elements: one in each warp's buffer, and that warp sends it.

static_assert(!BOTH_HALVES || TRIANGLE > 0, "what is stored twice is computed once");
static_assert(!BOTH_HALVES || (D_COPY_ENGINE && !D_M_MAJOR && sizeof(Out) > 1 && !A_IN_REGISTERS),
              "lines are made of 2 or 4 bytes an element, and leave by TMA");
static_assert(!BOTH_HALVES || (D_COLS % 16 == 0 && !OVERLAPS), "the mirror image is cut as patches are");

// A template, so that types and tiles without it do not compile it. Cols: of a patch of D.
template <int Cols>
struct MirroredStore {
  static constexpr int ACROSS = BN / Cols, ALL = ROWS * ACROSS;  // turns of a warp's buffers
  static constexpr int BESIDE = 64 / Cols,
                       WARPS = Cols / 16;  // boxes of 64 rows; warps whose rows fill a line
  typedef Patch<Cols, !D_COPY_ENGINE> Box;
  Destination to;
  Box (*buffers)[D_BUFFERS];   // of this warpgroup's four warps
  int row, col, inner, outer;  // of the warpgroup's first sum

  // A warp's sums of 16 rows and 16 columns, transposed: 16 lines, from element `first` on.
  __device__ __forceinline__ static void lay(const Box& box, int first, const Sum* sums) {
    const int lane = threadIdx.x % 32;
    if constexpr (sizeof(Out) == 2) {
      store_matrices<true>(box.place(lane / 16 * 8 + lane % 8, (first + lane / 8 % 2 * 8) * sizeof(Out)),
                           Box::pair(sums), Box::pair(sums + 2), Box::pair(sums + 4), Box::pair(sums + 6));
    } else {  // a warp's 32 words lie in different banks
#pragma unroll
      for (int s = 0; s < 8; ++s)
        box.at(s / 4 * 8 + lane % 4 * 2 + s % 2, first + lane / 4 + s / 2 % 2 * 8) = Stored<Out>::of(sums[s]);
    }
  }

  // `turn`: patches that these warps have stored before, so that buffers are used in turn.
  __device__ __forceinline__ void store(const Sum (&sums)[ROWS][BN / 2], int turn, int limit) const {
    const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < ALL; ++i) {
      const int slab = i / ACROSS, part = i % ACROSS, at = (turn + i) % D_BUFFERS;
      if (lane == 0) tma_store_wait_read<D_BUFFERS - 1>();
      group_barrier(threadIdx.x / 128);
#pragma unroll
      for (int of = 0; of < WARPS; ++of)
        lay(buffers[of * BESIDE + warp / WARPS][at], warp % WARPS * 16,
            sums[slab] + part * Cols / 2 + of * 8);
      proxy_fence();
      group_barrier(threadIdx.x / 128);
      if (lane == 0) {
        store_box(to, row + slab * NEXT_SLAB + warp % BESIDE * Cols, col + part * Cols + warp / BESIDE * 16,
                  inner, outer, limit, buffers[warp][at].bytes);
        tma_store_commit();
      }
    }
    // Patches behind these would use their buffers in another order.
    if (ALL % D_BUFFERS > 0 && lane == 0) tma_store_wait_read<0>();
    if (ALL % D_BUFFERS > 0) __syncwarp();
  }
};

// Elements of a warp's patch that belong to the lower triangle, and their mirror images. `row`, `col`: of the patch.
template <int Cols, bool ByHand>
__device__ __forceinline__ void store_elements(const Patch<Cols, ByHand>& patch, Out* D, i64 line, int row,
                                               int col, int rows) {
  const int lane = threadIdx.x % 32;
#pragma unroll 1
  for (int at = lane; at < 16 * Cols; at += 32) {
    const int m = row + at / Cols, n = col + at % Cols;
    if (m < rows && n <= m) D[m * line + n] = patch.at(at / Cols, at % Cols);
  }
#pragma unroll 1
  for (int at = lane; at < 16 * Cols; at += 32) {
    const int m = row + at % 16, n = col + at / 16;
    if (m < rows && n < m) D[n * line + m] = patch.at(at % 16, at / 16);
  }
}

// A tile on the diagonal, by elements, which pass shared memory: stores from registers would be unrolled.
template <int Cols, bool ByHand>
__device__ __forceinline__ void store_lower_twice(Patch<Cols, ByHand>& patch, Out* D, i64 line, int row,
                                                  int col, int rows, const Sum (&sums)[ROWS][BN / 2]) {
  if (threadIdx.x % 32 == 0) tma_store_wait_read<0>();  // patches behind use their buffers in another order
#pragma unroll
  for (int i = 0; i < ALL_PATCHES; ++i) {
    const int down = row + i / D_PATCHES * NEXT_SLAB, across = col + i % D_PATCHES * Cols;
    if (across >= down + 16) continue;
    __syncwarp();
    patch.lay(sums[i / D_PATCHES] + i % D_PATCHES * (Cols / 2));
    __syncwarp();
    store_elements(patch, D, line, down, across, rows);
  }
}
