// What a caller's function reads and stores for each element, 16 bytes a lane: element by element, sectors of 32
// bytes are touched in two to eight parts.
//
//   a lane computes   two neighbours, or what a pair becomes, in each of two rows and of some columns
//   it moves          16 neighbouring bytes of one row; the four lanes of a row move two sectors, one of each row
//
// In between four lanes trade words: the four of each are those of (row, first or second half of the columns).
#pragma once

#include "gemm/wgmma/skewed.cuh"  // first: it brings the element types

#include "epilogue.cuh"

#ifdef EPILOGUE
namespace fused {

// Lane q gets the words number q of all four, in the order of lanes. Twice, it changes nothing.
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

// Of four lanes, in their order: Bytes of each come together.
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

// The bits of what a lane has for two columns of a row.
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

// What a lane has for as many pairs of columns as a piece takes, of its two rows by turns. `at` is where its piece
// goes, if there is one.
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

// A piece, on its way to where four pairs of columns have theirs; then to those lanes that want them.
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

}  // namespace fused
#endif
