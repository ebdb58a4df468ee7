// Matrices whose lines do not start on 16 bytes: the copy engine refuses them, so all blocks first copy them into a workspace
// where they do. Reading and writing them once is small beside what cp.async or plain loads would cost in every tile.
//
//   line in memory     ..[e0 e1 e2 | e3 e4 e5 e6 | e7 ..         16-byte pieces that do not start where the line does
//   two pieces, shifted  [e0 e1 e2   e3][e4 e5 e6   e7]...       one piece of the copy: two loads, shifts, one store
//
// Then the blocks wait for each other: all of them must be on the chip at once (a cooperative launch).
#pragma once

#include "hopper.cuh"
#include "sharing.cuh"

constexpr int PACKING_FLAGS = 64;  // ints, of which two are used: what follows in a workspace keeps its alignment

struct alignas(16) Words { unsigned at[4]; };

// 16 bytes of a line, wherever they start; `exist` elements of them are in the line. Nothing outside begin .. end is read, and
// what lies between may be other than zero past the line's end.
template <typename Element>
__device__ __forceinline__ Words read_piece(const Element* source, int exist, const char* begin, const char* end) {
  const unsigned skew = reinterpret_cast<unsigned long long>(source) % 16;
  const char* piece = reinterpret_cast<const char*>(source) - skew;
  Words found = {};
  if (piece >= begin && piece + (skew ? 32 : 16) <= end) {
    const Words low = *reinterpret_cast<const Words*>(piece);
    const Words high = skew ? *reinterpret_cast<const Words*>(piece + 16) : low;
    unsigned words[8] = {low.at[0], low.at[1], low.at[2], low.at[3], high.at[0], high.at[1], high.at[2], high.at[3]};
#pragma unroll
    for (int i = 0; i < 6; ++i) words[i] = skew & 8 ? words[i + 2] : words[i];
#pragma unroll
    for (int i = 0; i < 5; ++i) words[i] = skew & 4 ? words[i + 1] : words[i];
#pragma unroll
    for (int i = 0; i < 4; ++i) found.at[i] = __funnelshift_r(words[i], words[i + 1], skew % 4 * 8);
  } else {  // the first and the last pieces of the matrix
#pragma unroll
    for (int i = 0; i < static_cast<int>(16 / sizeof(Element)); ++i)
      if (i < exist) reinterpret_cast<Element*>(&found)[i] = source[i];
  }
  return found;
}

template <typename Element>
__device__ __forceinline__ const char* end_of(const Element* from, i64 pitch, int lines, int length) {
  return reinterpret_cast<const char*>(from + (lines - 1) * pitch + length);
}

// `lines` lines of `length` touching elements, `pitch` apart, to lines `to_pitch` apart; all warps of the grid take lines in
// turn. Elements past a line's end, up to the 16 bytes, become whatever follows it.
template <typename Element>
__device__ __forceinline__ void pack_lines(Element* to, i64 to_pitch, const Element* from, i64 pitch, int lines, int length) {
  constexpr int PER_PIECE = 16 / sizeof(Element);
  const int warps = blockDim.x / 32, lane = threadIdx.x % 32;
  const char *begin = reinterpret_cast<const char*>(from), *end = end_of(from, pitch, lines, length);
  for (int line = blockIdx.x * warps + threadIdx.x / 32; line < lines; line += gridDim.x * warps) {
#pragma unroll 4
    for (int at = lane * PER_PIECE; at < length; at += 32 * PER_PIECE)
      *reinterpret_cast<Words*>(to + line * to_pitch + at) = read_piece(from + line * pitch + at, length - at, begin, end);
  }
}

// Words of as many lines as a word has elements, turned: word i then holds the i-th elements of all.
__device__ __forceinline__ void turn_words(unsigned (&)[1]) {}
__device__ __forceinline__ void turn_words(unsigned (&x)[2]) {
  const unsigned low = __byte_perm(x[0], x[1], 0x5410);
  x[1] = __byte_perm(x[0], x[1], 0x7632), x[0] = low;
}
__device__ __forceinline__ void turn_words(unsigned (&x)[4]) {
  const unsigned a = __byte_perm(x[0], x[1], 0x5140), b = __byte_perm(x[2], x[3], 0x5140);
  const unsigned c = __byte_perm(x[0], x[1], 0x7362), d = __byte_perm(x[2], x[3], 0x7362);
  x[0] = __byte_perm(a, b, 0x5410), x[1] = __byte_perm(a, b, 0x7632);
  x[2] = __byte_perm(c, d, 0x5410), x[3] = __byte_perm(c, d, 0x7632);
}

// The same turned: element i of line j comes to line i, place j. A thread turns squares of PER_PIECE lines in its registers, as
// many as take 16 loads of a piece: enough bytes on their way. A warp has 8 squares side by side, which it reads as whole lines
// of the caches, and 4 rows of squares, which it writes as 64 bytes; a block has its warps below each other.
template <typename Element>
__device__ __forceinline__ void pack_turned(Element* to, i64 to_pitch, const Element* from, i64 pitch, int lines, int length) {
  constexpr int PER_PIECE = 16 / sizeof(Element), PER_WORD = 4 / sizeof(Element), SQUARES = 16 / PER_PIECE;
  constexpr int WIDE = 8 * PER_PIECE, HIGH = 4 * PER_PIECE;
  const char *begin = reinterpret_cast<const char*>(from), *end = end_of(from, pitch, lines, length);
  const int lane = threadIdx.x % 32, height = blockDim.x / 32 * SQUARES * HIGH, across = ceil_div(length, WIDE);
  const int my_line = threadIdx.x / 32 * SQUARES * HIGH + lane / 8 * PER_PIECE, my_place = lane % 8 * PER_PIECE;
  for (int tile = blockIdx.x; tile < across * ceil_div(lines, height); tile += gridDim.x) {
    const int line = tile / across * height + my_line, place = tile % across * WIDE + my_place;
    Words rows[SQUARES][PER_PIECE];
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const int at = line + i / PER_PIECE * HIGH + i % PER_PIECE;
      if (at < lines && place < length)
        rows[i / PER_PIECE][i % PER_PIECE] = read_piece(from + at * pitch + place, length - place, begin, end);
    }
#pragma unroll
    for (int square = 0; square < SQUARES; ++square)
#pragma unroll
      for (int word = 0; word < 4; ++word)
#pragma unroll
        for (int element = 0; element < PER_WORD; ++element) {
          // Line word * PER_WORD + element of the copy: its i-th word comes out of lines i * PER_WORD ...
          Words column;
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            unsigned words[PER_WORD];
#pragma unroll
            for (int j = 0; j < PER_WORD; ++j) words[j] = rows[square][i * PER_WORD + j].at[word];
            turn_words(words);
            column.at[i] = words[element];
          }
          const int at = line + square * HIGH, to_line = place + word * PER_WORD + element;
          if (at < lines && to_line < length) *reinterpret_cast<Words*>(to + to_line * to_pitch + at) = column;
        }
  }
}

// An operand of `extent` rows (A) or columns (B). Turned: as it lies, and stays, m or n touch. Transpose: as it lies they do, but
// k shall. Lines of the copy are multiples of 16 bytes apart; returns how many elements it takes.
template <bool Turned, bool Transpose, typename Element>
__device__ __forceinline__ i64 pack(Element* to, const Element* from, i64 pitch, int extent, int k) {
  constexpr int CHUNK = 16 / sizeof(Element);
  const int lines = Turned ? k : extent, length = Turned ? extent : k;
  const i64 to_pitch = ceil_div(length, CHUNK) * CHUNK;
  if constexpr (Transpose)
    pack_turned(to, to_pitch, from, pitch, length, lines);
  else
    pack_lines(to, to_pitch, from, pitch, lines, length);
  return lines * to_pitch;
}

// What all blocks wrote before is there for the copy engine after. `flags`: two of them, zero before and after the launch. Of
// blocks that will have roles, the first SHARERS threads look at them.
__device__ __forceinline__ void meet_all_blocks(int* flags) {
  asm volatile("fence.proxy.async;" ::: "memory");
#ifdef SHARERS
  __syncthreads();
  if (threadIdx.x < SHARERS)
#endif
  {
    raise_flag(flags);
    wait_for_flag(flags, gridDim.x);
  }
#ifdef SHARERS
  __syncthreads();
#endif
  asm volatile("fence.proxy.async;" ::: "memory");
  if (threadIdx.x == 0) {  // the last one to leave puts both back
    int left;
    asm volatile("atom.relaxed.gpu.global.add.s32 %0, [%1], 1;" : "=r"(left) : "l"(flags + 1) : "memory");
    if (left == static_cast<int>(gridDim.x) - 1) reset_flag(flags), reset_flag(flags + 1);
  }
}
