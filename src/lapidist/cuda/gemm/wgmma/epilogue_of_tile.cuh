// A caller's function (epilogue.cuh) for the sums of wgmma, in the order in which lanes hold them.
#pragma once

#include "config.cuh"
#include "gemm/wgmma/reduce_in_epilogue.cuh"

namespace fused {

#if FUSED
constexpr bool JOINS = any_joined<AllResults>;
constexpr int LEAST_SUMS = any_along_row<AllResults> ? 8 : 4;  // a thread's sums of 16 columns, or of eight
constexpr int PIECE_SUMS = 2 * most_of(AllFetched::PAIRS<EACH>, AllResults::PAIRS<EACH>);

// How many sums of a thread are finished at once: there must be registers for them and for operands beside
// all sums. Operands that move in pieces of 16 bytes need whole pieces.
__device__ constexpr int finished_at_once(int rows, int half) {
  const bool large = rows * half > 128;
  const int of_pieces = (large ? 16 : 32) / (EPILOGUE_TILES > 1 || (large && EPILOGUE_TILES) ? 2 : 1);
  for (int count = of_pieces; PIECE_SUMS > 2 && count >= PIECE_SUMS; count -= 4)
    if (half % count == 0 && count % PIECE_SUMS == 0) return count;
  int count = (large ? 12 : 32) / (EPILOGUE_TILES ? 2 : 1);
  while (half % count || count % LEAST_SUMS) --count;
  return count;
}

#define FOR_EACH_OF_EIGHT(first, use)                                                                  \
  use(first) use(first + 1) use(first + 2) use(first + 3) use(first + 4) use(first + 5) use(first + 6) \
      use(first + 7)

struct Fragments : Groups {
  using Groups::Groups;

  template <int Count>
  __device__ __forceinline__ void apply_to(Sum* sums, AllFetched (&fetched)[Count / 2], int row,
                                           int col) const {
    constexpr int PAIRS = Count / 2, TOGETHER = PIECE_SUMS > 2 && PAIRS % 16 == 0 ? 16
                                                : JOINS && PAIRS % 8 == 0         ? 8
                                                : PIECE_SUMS > 2 || JOINS         ? PAIRS
                                                                                  : 1;
    const int first_col = col + threadIdx.x % 4 * 2;
    AllFetched::each_in_pieces<EACH, PAIRS>(Sharing<PAIRS>{fetched});
#pragma unroll
    for (int begin = 0; begin < PAIRS; begin += TOGETHER) {
      AllResults results[TOGETHER];
#pragma unroll
      for (int i = 0; i < TOGETHER; ++i) {
        const int pair = begin + i;
        Sum* const two = sums + 2 * pair;
        apply_two(two[0], two[1], fetched[pair], results[i]);
        if constexpr (QUANTISES) keep(two, results[i]);
        store_two<TOGETHER>(row + row_of(pair % 2), first_col + pair / 2 * 8, results[i]);
      }
      AllResults::each_in_pieces<EACH, TOGETHER>(Storing<TOGETHER>{*this, results, row, col + begin * 4});
      AllResults::each_joined(Joining<TOGETHER>{*this, results, row, col + begin * 4});
    }
  }
  template <int Count>
  __device__ __forceinline__ void finish(Sum* sums, int row, int col) const {
    AllFetched fetched[Count / 2];
    fetch_for<Count>(fetched, row, col);
    apply_to<Count>(sums, fetched, row, col);
  }

  // All sums of a thread. Short functions are unrolled, some 60 KB for 200 sums. Others are in a loop:
  // unrolled they would take 350 KB, more than the instruction cache holds, and up to 20 s to compile.
  // Operands of a pass of the loop are loaded one pass earlier; `begin` loads the first ones before the last
  // products end.
  template <int Rows, int Half>
  struct Turns {
    static constexpr int MOST =
        D_COPY_ENGINE && !EPILOGUE_STORED && !QUANTISES ? SUMS_AT_ONCE : SUMS_IN_PIECES;
    static constexpr bool AT_ONCE = EPILOGUE_SHORT && !EPILOGUE_TILES && Rows * Half <= MOST;
    static constexpr int COUNT = AT_ONCE ? Half : finished_at_once(Rows, Half), PARTS = Half / COUNT,
                         ALL = Rows * PARTS;
    AllFetched ahead[AT_ONCE ? Rows : 1][COUNT / 2];
  };
  template <int Rows, int Half>
  __device__ __forceinline__ void begin(Turns<Rows, Half>& turns, int row, int col) const {
    typedef Turns<Rows, Half> These;
#pragma unroll
    for (int m = 0; m < (These::AT_ONCE ? Rows : 1); ++m)
      fetch_for<These::COUNT>(turns.ahead[m], row + m * NEXT_SLAB, col);
  }
  template <int Rows, int Half>
  __device__ __forceinline__ void finish_all(Turns<Rows, Half>& turns, Sum (&sums)[Rows][Half], int row,
                                             int col) const {
    typedef Turns<Rows, Half> These;
    constexpr int COUNT = These::COUNT, PARTS = These::PARTS, ALL = These::ALL;
    if constexpr (These::AT_ONCE) {
#pragma unroll
      for (int m = 0; m < Rows; ++m) apply_to<COUNT>(sums[m], turns.ahead[m], row + m * NEXT_SLAB, col);
    } else {
#pragma unroll 1
      for (int part = 0; part < ALL; ++part) {
        const int next = part + 1 < ALL ? part + 1 : part;
        AllFetched fetched[COUNT / 2];
        fetch_for<COUNT>(fetched, row + next / PARTS * NEXT_SLAB, col + next % PARTS * (COUNT * 2));
        Sum mine[COUNT];
        of_part<COUNT>(sums, part, [&](int i, Sum& sum) { mine[i] = sum; });
        apply_to<COUNT>(mine, turns.ahead[0], row + part / PARTS * NEXT_SLAB,
                        col + part % PARTS * (COUNT * 2));
        if (!EPILOGUE_STORES || QUANTISES)
          of_part<COUNT>(sums, part, [&](int i, Sum& sum) { sum = mine[i]; });
#pragma unroll
        for (int i = 0; i < COUNT / 2; ++i) turns.ahead[0][i] = fetched[i];
      }
    }
    if constexpr (QUANTISES) quantise(sums, row, col);
  }

  // Call use(i, sum) for each sum of a part. Registers cannot be indexed, so a switch jumps to code for each
  // part.
  template <int COUNT, int Rows, int Half, typename Use>
  __device__ __forceinline__ static void of_part(Sum (&sums)[Rows][Half], int part, Use use) {
    static_assert(Rows * Half / COUNT <= 56, "a case for each part");
    switch (part) {
#define USE_PART(p)                                                 \
  case p:                                                           \
    if constexpr ((p) < Rows * Half / COUNT)                        \
      _Pragma("unroll") for (int i = 0; i < COUNT; ++i)             \
          use(i, sums[(p) * COUNT / Half][(p) * COUNT % Half + i]); \
    asm volatile("");                                               \
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
struct Fragments {  // without a function
  template <int Rows, int Half>
  struct Turns {};
  __device__ __forceinline__ Fragments(const Operands*, long long, long long, int, int, const Modes&) {}
  template <int Rows, int Half>
  __device__ __forceinline__ void begin(Turns<Rows, Half>&, int, int) const {}
  template <int Count>
  __device__ __forceinline__ void finish(Sum*, int, int) const {}
  template <int Rows, int Half>
  __device__ __forceinline__ void finish_all(Turns<Rows, Half>&, Sum (&)[Rows][Half], int, int) const {}
};
#endif

}  // namespace fused
