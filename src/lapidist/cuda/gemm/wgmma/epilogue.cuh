// A caller's function (epilogue.cuh) for the sums of wgmma, in the order in which lanes hold them.
#pragma once

#include "gemm/wgmma/skewed.cuh"  // first: it brings the element types

#include "epilogue.cuh"

namespace fused {

#ifdef EPILOGUE
// Sums that are finished at once: with those of the tile they fit into a thread's registers.
constexpr int AT_ONCE = 8;

#define FOR_EACH_OF_EIGHT(first, use)                                                                  \
  use(first) use(first + 1) use(first + 2) use(first + 3) use(first + 4) use(first + 5) use(first + 6) \
      use(first + 7)

struct Fragments : Epilogue<InOrder> {
  __device__ __forceinline__ Fragments(const Operands* operands, long long inner, long long outer, int M,
                                       int N)
      : Epilogue(operands, inner, outer, M, N, InOrder()) {}

  // Of Count sums of this thread, of the 16 rows from `row` on and the columns from `col` on: sums[4 j + 2 h +
  // i] is that of column 8 j + i behind the lane's first, in its row h of two.
  template <int Count>
  __device__ __forceinline__ void fetch_for(AllFetched (&fetched)[Count / 2], int row, int col) const {
    const int group = threadIdx.x % 32 / 4, first_col = col + threadIdx.x % 4 * 2;
#pragma unroll
    for (int pair = 0; pair < Count / 2; ++pair) {
      const int h = pair % 2;
      const int down = A_SKEWED ? PatchRows::of(group + h * 8) : group * NEXT_GROUP + h * NEXT_ROW;
      fetched[pair] = fetch<true>(row + down, first_col + pair / 2 * 8);
    }
  }
  template <int Count>
  __device__ __forceinline__ void apply_to(Sum* sums, const AllFetched (&fetched)[Count / 2]) const {
#pragma unroll
    for (int s = 0; s < Count; ++s) sums[s] = apply(sums[s], fetched[s / 2], s % 2);
  }
  template <int Count>
  __device__ __forceinline__ void finish(Sum* sums, int row, int col) const {
    AllFetched fetched[Count / 2];
    fetch_for<Count>(fetched, row, col);
    apply_to<Count>(sums, fetched);
  }

  // All sums of a thread, in a loop: written out, a function of twenty instructions took 350 KB, which no
  // cache of instructions holds, and up to 20 s to compile. What a turn reads is on its way a turn before.
  template <int Rows, int Half>
  __device__ __forceinline__ void finish_all(Sum (&sums)[Rows][Half], int row, int col) const {
    constexpr int COUNT = Half % AT_ONCE ? 4 : AT_ONCE, PARTS = Half / COUNT;
    AllFetched fetched[2][COUNT / 2];
    fetch_for<COUNT>(fetched[0], row, col);
#pragma unroll 1
    for (int part = 0; part < Rows * PARTS; ++part) {
      const int next = part + 1 < Rows * PARTS ? part + 1 : part;
      fetch_for<COUNT>(fetched[1], row + next / PARTS * NEXT_SLAB, col + next % PARTS * (COUNT * 2));
      Sum mine[COUNT];
      of_part(sums, part, [&](int i, Sum& sum) { mine[i] = sum; });
      apply_to<COUNT>(mine, fetched[0]);
      of_part(sums, part, [&](int i, Sum& sum) { sum = mine[i]; });
#pragma unroll
      for (int i = 0; i < COUNT / 2; ++i) fetched[0][i] = fetched[1][i];
    }
  }

  // use(i, sum) for each sum of a part. Registers have no index, so a jump goes to where they are.
  template <int Rows, int Half, typename Use>
  __device__ __forceinline__ static void of_part(Sum (&sums)[Rows][Half], int part, Use use) {
    constexpr int COUNT = Half % AT_ONCE ? 4 : AT_ONCE;
    static_assert(Rows * Half / COUNT <= 56, "a case for each part");
    switch (part) {
#define USE_PART(p)                                                                             \
  case p:                                                                                       \
    if constexpr ((p) < Rows * Half / COUNT)                                                    \
      for (int i = 0; i < COUNT; ++i) use(i, sums[(p) * COUNT / Half][(p) * COUNT % Half + i]); \
    asm volatile("");                                                                           \
    break;
      FOR_EACH_OF_EIGHT(0, USE_PART)
      FOR_EACH_OF_EIGHT(8, USE_PART)
      FOR_EACH_OF_EIGHT(16, USE_PART)
      FOR_EACH_OF_EIGHT(24, USE_PART)
      FOR_EACH_OF_EIGHT(32, USE_PART)
      FOR_EACH_OF_EIGHT(40, USE_PART)
      FOR_EACH_OF_EIGHT(48, USE_PART)
#undef USE_PART
    }
  }
};
#else
struct Operands;
struct Fragments {  // sums leave as they are
  __device__ __forceinline__ Fragments(const Operands*, long long, long long, int, int) {}
  template <int Count>
  __device__ __forceinline__ void finish(Sum*, int, int) const {}
  template <int Rows, int Half>
  __device__ __forceinline__ void finish_all(Sum (&)[Rows][Half], int, int) const {}
};
#endif

}  // namespace fused
