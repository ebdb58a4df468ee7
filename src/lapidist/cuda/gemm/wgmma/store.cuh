// Stores of wgmma's sums through patches in shared memory, whole rows at a time.
#pragma once

#include "config.cuh"
#include "gemm/wgmma/a_from_registers.cuh"
#include "unaligned/rows_out.cuh"

// ---- a patch: 16 rows x Cols of one warp in shared memory, in the swizzle of TMA for lines of
// that width ----
//
// Its lines are rows; where D is M-major, columns of 16 elements.

// Registers cannot be indexed, so in a loop over patches the sums of each are selected by comparisons. With
// one patch, `sums` are its own.
template <int Cols, int Patches, typename Use>
__device__ __forceinline__ void at_patch(const Sum* sums, int number, Use use) {
#pragma unroll
  for (int p = 0; p < Patches; ++p)
    if (Patches == 1 || p == number) use(sums + p * (Cols / 2));
}

// Columns of a patch: as wide as the swizzle and the tile's columns allow. For an M-major D, as many lines as
// fill 2 KB. If the tile has eight columns more than a multiple of 16, a last patch of 16 overlaps. `most`:
// bytes of a line, fewer if C takes half of the buffers.
__device__ constexpr int patch_columns(int columns, int most = 128) {
  const int least = D_M_MAJOR || columns % 16 > 0 ? 16 : 32 / sizeof(Out);
  for (int width = most / sizeof(Out); width > least; width /= 2)
    if (columns % width == 0) return width;
  return least;
}

// ByHand (stores by threads): each line is preceded by the end of the patch before, and its length puts eight
// lines in different banks.
template <int Cols, bool ByHand = false>
struct Patch {
  static constexpr int LINES = D_M_MAJOR ? Cols : 16, PITCH = (D_M_MAJOR ? 16 : Cols) * sizeof(Out);
  static constexpr int STEP = ByHand ? SECTOR + PITCH + 16 : PITCH;
  static_assert(PITCH == 128 || PITCH == 64 || PITCH == 32, "TMA swizzles lines of 32, 64 and 128 bytes");
  char bytes[LINES * STEP];

  // TMA's swizzle permutes 16-byte pieces by line, so that eight lines of a column lie in different banks.
  __device__ __forceinline__ unsigned place(int line, int byte) const {
    if (ByHand) return shared_address(bytes) + line * STEP + SECTOR + byte;
    const int offset = line * PITCH + byte;
    return shared_address(bytes) + (offset ^ (offset >> 7 & (PITCH / 16 - 1)) << 4);
  }

  // For 16 columns of 2-byte elements: the line of an 8 x 8 matrix whose address this lane gives to stmatrix.
  __device__ __forceinline__ unsigned matrix_row(int j) const {
    const int lane = threadIdx.x % 32;
    return D_M_MAJOR ? place(j * 16 + lane / 16 * 8 + lane % 8, lane / 8 % 2 * 16)
                     : place(lane % 16, j * 32 + lane / 16 * 16);
  }

  // Write sums converted to 2-byte elements, two in a word: pairs[2 j + h], in wgmma's order.
  __device__ __forceinline__ void lay_pairs(const unsigned* pairs) {
#pragma unroll
    for (int j = 0; j < Cols / 16; ++j, pairs += 4)
      store_matrices<D_M_MAJOR>(matrix_row(j), pairs[0], pairs[1], pairs[2], pairs[3]);
  }

  // Write the warp's sums of Cols columns: sums[4 j + 2 h + i], in wgmma's order. `trades`: avoid bank
  // conflicts, which takes registers.
  __device__ __forceinline__ void lay(const Sum* sums, bool trades = true) {
    const int lane = threadIdx.x % 32;
    if constexpr (sizeof(Out) == 2 && !A_TRANSPOSED) {
      unsigned pairs[Cols / 4];
#pragma unroll
      for (int i = 0; i < Cols / 4; ++i) pairs[i] = pair(sums + 2 * i);
      lay_pairs(pairs);
    } else if constexpr (ByHand && !D_M_MAJOR && sizeof(Out) == 4) {
      lay_words(place(lane / 4 * NEXT_GROUP, lane % 4 * 8), NEXT_ROW * STEP, sums);
    } else {
      const int row = lane / 4 * NEXT_GROUP;
      // Half a warp stores 32 bytes to each of four lines at a time. In the swizzle of 128 bytes, those of
      // neighbouring lines lie in the same banks, so odd lines store the columns 64 bytes further first.
      constexpr bool TRADES = !D_M_MAJOR && !ByHand && PITCH == 128 && sizeof(Out) == 4 && NEXT_GROUP == 1;
      const int aside = TRADES && trades && row % 2 > 0 ? 16 : 0;
#pragma unroll
      for (int i = 0; i < Cols / 2; i += 4) {
        const int col = (i / 4 * 8 + lane % 4 * 2) ^ aside;
        if constexpr (!D_M_MAJOR) {
          Sum mine[4];
#pragma unroll
          for (int s = 0; s < 4; ++s) mine[s] = aside ? sums[(i + s) ^ (TRADES ? 8 : 0)] : sums[i + s];
          two_at(row, col, mine[0], mine[1]), two_at(row + NEXT_ROW, col, mine[2], mine[3]);
        } else if constexpr (NEXT_ROW == 1) {
          two_at(col, row, sums[i], sums[i + 2]), two_at(col + 1, row, sums[i + 1], sums[i + 3]);
        } else {
#pragma unroll
          for (int s = 0; s < 4; ++s) at(col + s % 2, row + s / 2 * NEXT_ROW) = Stored<Out>::of(sums[i + s]);
        }
      }
    }
  }
  // Write sums of 4 bytes, eight columns at a time: a lane has two neighbours in each of its two rows.
  //
  //   row          [ s0 s1 ]  8 columns on [ s4 s5 ] ...
  //   row + next   [ s2 s3 ]               [ s6 s7 ] ...
  __device__ __forceinline__ static void lay_words(unsigned place, int next, const Sum* sums) {
    static_assert(sizeof(Out) == sizeof(Sum), "a word is a sum");
#pragma unroll
    for (int i = 0; i < Cols / 2; i += 4)
      lay_four(place + i / 4 * 32, place + i / 4 * 32 + next, sums[i], sums[i + 1], sums[i + 2], sums[i + 3]);
  }
  // One asm statement in place of two stores: there are dozens, and this saves compile time.
  __device__ __forceinline__ static void lay_four(unsigned upper, unsigned lower, Sum a, Sum b, Sum c,
                                                  Sum d) {
    asm volatile("st.shared.v2.b32 [%0], {%2, %3};\nst.shared.v2.b32 [%1], {%4, %5};" ::"r"(upper),
                 "r"(lower), SUM_REGISTER(a), SUM_REGISTER(b), SUM_REGISTER(c), SUM_REGISTER(d)
                 : "memory");
  }
  template <int Patches>
  __device__ __forceinline__ void lay(const Sum* sums, int number) {
    at_patch<Cols, Patches>(sums, number, [&](const Sum* mine) { lay(mine); });
  }
  // The last sector of each line is kept (`end`, half a sector for each lane) and written in front of the
  // next patch's lines (`begin_with`). All lanes have read the patch before that.
  __device__ __forceinline__ unsigned end_place(int byte) const {
    return place(threadIdx.x % 16, byte + threadIdx.x % 32 / 16 * 16 - SECTOR);
  }
  __device__ __forceinline__ Words end() const {
    return *static_cast<const Words*>(__cvta_shared_to_generic(end_place(PITCH)));
  }
  __device__ __forceinline__ void begin_with(const Words& end) {
    *static_cast<Words*>(__cvta_shared_to_generic(end_place(0))) = end;
  }
  __device__ __forceinline__ Out& at(int line, int element) const {
    return *static_cast<Out*>(__cvta_shared_to_generic(place(line, element * sizeof(Out))));
  }
  __device__ __forceinline__ void two_at(int line, int element, Sum first, Sum second) {
    reinterpret_cast<Vector<Out, 2>&>(at(line, element)) = {Stored<Out>::of(first), Stored<Out>::of(second)};
  }
  __device__ __forceinline__ static unsigned pair(const Sum* sums) {
    const Vector<Out, 2> two = {Stored<Out>::of(sums[0]), Stored<Out>::of(sums[1])};
    return reinterpret_cast<const unsigned&>(two);
  }
};

// Store a patch by threads, if rows of D do not start on multiples of 16 bytes. D points to the patch's first
// element. `before` columns of the tile lie before it; `cols` columns and `rows` rows exist from there on.
// `begins` is kept from a tile's first patch to its last. Live: sums that a thread holds meanwhile.
template <int Patches, int Live, typename Rows = Neighbours, int Cols, bool ByHand>
__device__ __forceinline__ void store_by_hand(Patch<Cols, ByHand>& patch, Words& begins, const Sum* sums,
                                              int number, Out* D, i64 pitch, int before, int rows, int cols) {
  constexpr int SIZE_OUT = sizeof(Out);
  Words end = {};
  if (before > 0) end = patch.end();
  __syncwarp();
  patch.template lay<Patches>(sums, number);
  patch.begin_with(end);  // only now, so that nothing waits for its load
  __syncwarp();
  char* const to = reinterpret_cast<char*>(D);
  using Way = RowsOut<Patch<Cols, ByHand>, SIZE_OUT, Live, Rows>;
  Way{patch, before * SIZE_OUT, cols * SIZE_OUT, to, pitch * SIZE_OUT, begins}.store(rows);
}

// ---- columns of D by four warps: 64 rows of the tile in a line, Cols lines, in TMA's swizzle of
// 128 bytes ----

template <int Cols>
struct GroupPatch {
  char bytes[Cols * 128];

  // Write one warp's 2-byte elements, two in a word, in Patch's order.
  __device__ __forceinline__ void lay_pairs(const unsigned* pairs) {
    const int lane = threadIdx.x % 32, byte = threadIdx.x / 32 % 4 * 32 + lane / 8 % 2 * 16;
#pragma unroll
    for (int j = 0; j < Cols / 16; ++j, pairs += 4) {
      const int line = j * 16 + lane / 16 * 8 + lane % 8;
      store_matrices<true>(shared_address(bytes) + line * 128 + (byte ^ line % 8 << 4), pairs[0], pairs[1],
                           pairs[2], pairs[3]);
    }
  }
  __device__ __forceinline__ void lay(const Sum* sums) {
    unsigned pairs[Cols / 4];
#pragma unroll
    for (int i = 0; i < Cols / 4; ++i) pairs[i] = Patch<Cols>::pair(sums + 2 * i);
    lay_pairs(pairs);
  }
};

// A barrier of the warps of a warpgroup. Barrier 1 is sharers_barrier.
__device__ __forceinline__ void group_barrier(int group) {
  asm volatile("bar.sync %0, 128;" ::"r"(2 + group) : "memory");
}
