// Loads and stores of a caller's function in pieces of 16 bytes for each lane. Element by element, a sector
// of 32 bytes would be touched two to eight times.
//
//   a lane computes   two neighbours, or the value of a pair, in each of two rows and of some columns
//   it moves          16 adjacent bytes of one row; four lanes together move a sector of each of the two rows
//
// In between, four lanes exchange words. Each lane gets the words of one row and one half of the columns.
#pragma once

#include "config.cuh"
#include "gemm/wgmma/misaligned_a.cuh"

#include "epilogue.cuh"
#include "modes.cuh"

#if FUSED
namespace fused {

// A transpose: lane q of four gets word q of each lane, in the order of lanes.
__device__ __forceinline__ void trade(unsigned (&words)[4]) {
#pragma unroll
  for (int far = 2; far > 0; far /= 2) {
    const bool upper = threadIdx.x & far;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      unsigned &low = words[far == 2 ? i : 2 * i], &high = words[far == 2 ? i + 2 : 2 * i + 1];
      const unsigned theirs = __shfl_xor_sync(0xffffffffu, upper ? low : high, far);
      low = upper ? theirs : low, high = upper ? high : theirs;
    }
  }
}

// Interleave elements of `Bytes` bytes of the four words, which came from four lanes.
template <int Bytes>
__device__ __forceinline__ void interleave(unsigned (&words)[4]) {
  if constexpr (Bytes == 4) return;
  constexpr unsigned FIRST = Bytes == 2 ? 0x5410 : 0x5140, SECOND = Bytes == 2 ? 0x7632 : 0x7362;
  unsigned a = __byte_perm(words[0], words[1], FIRST), b = __byte_perm(words[2], words[3], FIRST),
           c = __byte_perm(words[0], words[1], SECOND), d = __byte_perm(words[2], words[3], SECOND);
  if constexpr (Bytes == 1) {
    words[0] = __byte_perm(a, b, 0x5410), words[1] = __byte_perm(a, b, 0x7632);
    words[2] = __byte_perm(c, d, 0x5410), words[3] = __byte_perm(c, d, 0x7632);
  } else {
    words[0] = a, words[1] = b, words[2] = c, words[3] = d;
  }
}

// The bits of a lane's values for two columns of a row.
template <int Bytes, typename Held>
__device__ __forceinline__ unsigned bits_of(const Held& held) {
  if constexpr (Bytes == 1) return reinterpret_cast<const unsigned char&>(held);
  else if constexpr (Bytes == 2) return reinterpret_cast<const unsigned short&>(held);
  else return reinterpret_cast<const unsigned&>(held);
}

template <typename Held>
__device__ __forceinline__ unsigned& word_of(Held& held) {
  return reinterpret_cast<unsigned&>(held);
}

// Store a lane's values for as many pairs of columns as a piece takes, with its two rows alternating. `at`:
// the address of its piece, if that exists.
template <int Bytes, typename HeldOf>
__device__ __forceinline__ void store_piece(HeldOf held_of, void* at, bool exists) {
  constexpr int IN_WORD = 4 / Bytes;
  unsigned words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    words[i] = 0;
#pragma unroll
    for (int x = 0; x < IN_WORD; ++x)
      words[i] |= bits_of<Bytes>(held_of(2 * (i % 2 * IN_WORD + x) + i / 2)) << 8 * Bytes * x;
  }
  trade(words);
  interleave<Bytes>(words);
  if (exists) *static_cast<uint4*>(at) = make_uint4(words[0], words[1], words[2], words[3]);
}

// Load a piece into the registers of four pairs of columns; share_piece then exchanges it among the lanes.
template <typename HeldOf>
__device__ __forceinline__ void read_piece(const char* at, HeldOf held_of) {
  const uint4 piece = *reinterpret_cast<const uint4*>(at);
  word_of(held_of(0)) = piece.x, word_of(held_of(2)) = piece.y;
  word_of(held_of(1)) = piece.z, word_of(held_of(3)) = piece.w;
}
template <typename HeldOf>
__device__ __forceinline__ void share_piece(HeldOf held_of) {
  unsigned words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) words[i] = word_of(held_of(2 * (i % 2) + i / 2));
  trade(words);
#pragma unroll
  for (int i = 0; i < 4; ++i) word_of(held_of(2 * (i % 2) + i / 2)) = words[i];
}

constexpr bool EACH = !EPILOGUE_PAIRS;  // each of two neighbouring columns has values of its own

// Rows of operands are those of D.
struct RowsInOrder : InOrder {
  __device__ __forceinline__ explicit RowsInOrder(const Modes&) {}
};
using RowsOfD = Choose<(SCATTER_ROWS > 0), Modes, RowsInOrder>::Type;

// The epilogue of one matrix of the batch, with what moves in pieces; the rest as in any kernel.
struct Pieces : Epilogue<RowsOfD> {
  __device__ __forceinline__ Pieces(const Operands* operands, long long inner, long long outer, int M, int N,
                                    const Modes& modes)
      : Epilogue(operands, inner, outer, M, N, RowsOfD(modes)) {}

  // Load operands for Count sums of this thread, in the 16 rows from `row` on and the columns from `col` on.
  // sums[4 j + 2 h + i] is that of column 8 j + i behind the lane's first, in the lane's row h of two.
  template <int Count>
  __device__ __forceinline__ void fetch_for(AllFetched (&fetched)[Count / 2], int row, int col) const {
    constexpr int PAIRS = Count / 2;
    const int first_col = col + threadIdx.x % 4 * 2;
#pragma unroll
    for (int pair = 0; pair < PAIRS; ++pair)
      fetched[pair] = fetch_two<PAIRS>(row + row_of(pair % 2), first_col + pair / 2 * 8);
    AllFetched::each_in_pieces<EACH, PAIRS>(Reading<PAIRS>{*this, fetched, row, col});
  }
  __device__ __forceinline__ static int row_of(int h) {
    const int group = threadIdx.x % 32 / 4;
    return A_SKEWED ? PatchRows::of(group + h * 8) : group * NEXT_GROUP + h * NEXT_ROW;
  }
  // The address of this lane's piece of an array, for these rows and from this column of the product on.
  template <typename Numbered>
  struct At {
    typedef typename Numbered::Kind Kind;
    static constexpr int BYTES = Kind::template BYTES<EACH>, PAIRS = 16 / BYTES;
    const Pieces& of;
    const Operand& array;
    int row, pair, pairs;
    __device__ __forceinline__ At(const Pieces& of, const Operand& array, int row, int col)
        : of(of),
          array(array),
          row(row + row_of(threadIdx.x % 4 / 2)),
          pair(col / 2 + threadIdx.x % 2 * PAIRS),
          pairs(EPILOGUE_PAIRS ? of.N : of.N / 2) {}
    __device__ __forceinline__ bool exists() const { return row < of.M && pair < pairs; }
    __device__ __forceinline__ char* at(int row, int pair) const {
      return reinterpret_cast<char*>(Kind::start(array, {of.lines.c_row(row), {}}, of.inner, of.outer)) +
             i64(pair) * BYTES;
    }
    __device__ __forceinline__ char* here() const { return at(row, pair); }
    // An address that is always valid: for pieces outside, that of the last one.
    __device__ __forceinline__ const char* inside() const {
      return at(row < of.M ? row : of.M - 1, pair < pairs ? pair : pairs - PAIRS);
    }
  };

  // Reading loads an operand for several pairs of columns in pieces; Sharing waits for them and exchanges
  // them. (The compiler does not accept generic lambdas as device code, so these are structs.)
  template <int Pairs>
  struct Reading {
    const Pieces& of;
    AllFetched (&fetched)[Pairs];
    int row, col;
    template <typename It>
    __device__ __forceinline__ void operator()(It) const {
#pragma unroll
      for (int begin = 0; begin < Pairs; begin += 4)
        read_piece(At<It>(of, of.operands->of[It::NUMBER], row, col + begin * 4).inside(),
                   [&](int i) -> auto& { return fetched[begin + i].template at<It::NUMBER>(); });
    }
  };
  template <int Pairs>
  struct Sharing {
    AllFetched (&fetched)[Pairs];
    template <typename It>
    __device__ __forceinline__ void operator()(It) const {
#pragma unroll
      for (int begin = 0; begin < Pairs; begin += 4)
        share_piece([&](int i) -> auto& { return fetched[begin + i].template at<It::NUMBER>(); });
    }
  };
  template <int Pairs>
  struct Storing {
    const Pieces& of;
    const AllResults (&results)[Pairs];
    int row, col;
    template <typename It>
    __device__ __forceinline__ void operator()(It) const {
      typedef At<It> Piece;
#pragma unroll
      for (int begin = 0; begin < Pairs; begin += Piece::PAIRS) {
        const Piece piece(of, of.stored()[It::NUMBER], row, col + begin * 4);
        store_piece<Piece::BYTES>(
            [&](int i) -> const auto& { return results[begin + i].template at<It::NUMBER>(); }, piece.here(),
            piece.exists());
      }
    }
  };
};

}  // namespace fused
#endif
