// Packing a matrix that lies across: m or n touch, but k shall. Squares of it are transposed in registers, by
// renaming words and permuting bytes; neither shared memory nor a barrier is needed.
#pragma once

#include "unaligned/pieces.cuh"

// Words of as many lines as a word has elements, transposed: word i then holds the i-th elements of all.
__device__ __forceinline__ void transpose_words(unsigned (&)[1]) {}
__device__ __forceinline__ void transpose_words(unsigned (&x)[2]) {
  const unsigned low = __byte_perm(x[0], x[1], 0x5410);
  x[1] = __byte_perm(x[0], x[1], 0x7632), x[0] = low;
}
__device__ __forceinline__ void transpose_words(unsigned (&x)[4]) {
  const unsigned a = __byte_perm(x[0], x[1], 0x5140), b = __byte_perm(x[2], x[3], 0x5140);
  const unsigned c = __byte_perm(x[0], x[1], 0x7362), d = __byte_perm(x[2], x[3], 0x7362);
  x[0] = __byte_perm(a, b, 0x5410), x[1] = __byte_perm(a, b, 0x7632);
  x[2] = __byte_perm(c, d, 0x5410), x[3] = __byte_perm(c, d, 0x7632);
}

// Lines that a thread turns at a time: eight, a piece of each, are enough bytes on their way. A square of
// them has as many as make 16 bytes of a line of the copy, of bytes eight.
constexpr int TRANSPOSED_LINES = 8;
template <typename Element>
constexpr int SQUARE_LINES = sizeof(Element) == 4 ? 4 : 8;

// The line of its i-th piece, counted from a thread's first one: squares lie four squares apart.
template <typename Element>
__device__ constexpr int transposed_line(int i) {
  return i / SQUARE_LINES<Element> * 4 * SQUARE_LINES<Element> + i % SQUARE_LINES<Element>;
}

// In one store, if there are more columns than `number`: behind a branch the compiler makes one of each word.
__device__ __forceinline__ void store_column(void* place, const unsigned (&column)[4], int number,
                                             int columns) {
  asm volatile(
      "{\n.reg .pred exists;\nsetp.lt.s32 exists, %5, %6;\n@exists st.global.v4.u32 [%0], {%1, %2, %3, "
      "%4};\n}" ::"l"(place),
      "r"(column[0]), "r"(column[1]), "r"(column[2]), "r"(column[3]), "r"(number), "r"(columns)
      : "memory");
}
__device__ __forceinline__ void store_column(void* place, const unsigned (&column)[2], int number,
                                             int columns) {
  asm volatile(
      "{\n.reg .pred exists;\nsetp.lt.s32 exists, %3, %4;\n@exists st.global.v2.u32 [%0], {%1, %2};\n}" ::"l"(
          place),
      "r"(column[0]), "r"(column[1]), "r"(number), "r"(columns)
      : "memory");
}

// All loads are on their way before anything is asked of what they bring. The answer: which pieces are not
// there, since memory may begin or end within their 32 bytes.
template <typename Element>
__device__ __forceinline__ unsigned read_pieces(Words* pieces, const Readable& readable,
                                                const Element* source, i64 pitch, int lines) {
  unsigned apart = 0;
  Words low[TRANSPOSED_LINES], high[TRANSPOSED_LINES];
#pragma unroll
  for (int i = 0; i < TRANSPOSED_LINES; ++i) {
    const Element* const from = source + transposed_line<Element>(i) * pitch;
    const bool whole = readable.holds_pair(from);
    apart |= whole ? 0 : 1u << i;
    load_pair_here(reinterpret_cast<const char*>(from) - skew_of(from), whole, low[i], high[i]);
  }
  if (lines > 0)  // always; but it parts the loads from the shifts
#pragma unroll
    for (int i = 0; i < TRANSPOSED_LINES; ++i)
      pieces[i] =
          shifted<sizeof(Element)>(low[i], high[i], skew_of(source + transposed_line<Element>(i) * pitch));
  return apart;
}

// The same transposed: element i of line j comes to line i, place j. A warp has 8 squares side by side, which
// it reads as whole lines of the caches, and 4 rows of squares, which it writes as 64 bytes, of bytes 32. The
// few pieces that do not come whole leave element by element over what their columns brought.
template <typename Element>
__device__ __forceinline__ void pack_transposed(Element* to, i64 to_pitch, const Element* from, i64 pitch,
                                                int lines, int length, int& item) {
  constexpr int PER_PIECE = 16 / sizeof(Element), PER_WORD = 4 / sizeof(Element),
                OF_SQUARE = SQUARE_LINES<Element>;
  constexpr int SQUARES = TRANSPOSED_LINES / OF_SQUARE, WORDS = OF_SQUARE / PER_WORD, WIDE = 8 * PER_PIECE,
                HIGH = 4 * OF_SQUARE;
  constexpr int AT_ONCE = 4;  // of a piece's elements that come apart
  const Readable readable(from, pitch, lines, length);
  const int lane = threadIdx.x % 32, warps = blockDim.x / 32, across = ceil_div(length, WIDE);
  const int my_line = lane / 8 * OF_SQUARE, my_place = lane % 8 * PER_PIECE,
            tiles = across * ceil_div(lines, SQUARES * HIGH);
  for (; item < tiles; item += gridDim.x * warps) {
    const int line = item / across * (SQUARES * HIGH) + my_line, place = item % across * WIDE + my_place;
    const int exist = length - place;
    const Element* const source = from + line * pitch + place;
    Element* const target = to + place * to_pitch + line;
    Words rows[SQUARES][OF_SQUARE];
    const unsigned apart = read_pieces(rows[0], readable, source, pitch, lines);
#pragma unroll
    for (int square = 0; square < SQUARES; ++square) {
      const int columns = line + square * HIGH < lines ? exist : 0;
      Element* to_column = target + square * HIGH;
#pragma unroll
      for (int word = 0; word < 4; ++word) {
        unsigned words[WORDS][PER_WORD];
#pragma unroll
        for (int i = 0; i < WORDS; ++i) {
#pragma unroll
          for (int j = 0; j < PER_WORD; ++j) words[i][j] = rows[square][i * PER_WORD + j].at[word];
          transpose_words(words[i]);
        }
#pragma unroll
        for (int element = 0; element < PER_WORD; ++element, to_column += to_pitch) {
          unsigned column[WORDS];  // word i holds the element of lines i * PER_WORD ...
#pragma unroll
          for (int i = 0; i < WORDS; ++i) column[i] = words[i][element];
          store_column(to_column, column, word * PER_WORD + element, columns);
        }
      }
    }
#pragma unroll 1
    for (int i = 0; apart >> i; ++i) {
      if (!(apart >> i & 1) || line + transposed_line<Element>(i) >= lines) continue;
#pragma unroll 1
      for (int e = 0; e < exist && e < PER_PIECE; e += AT_ONCE) {  // the loads together
        Element found[AT_ONCE];
#pragma unroll
        for (int j = 0; j < AT_ONCE; ++j)
          if (e + j < exist) found[j] = source[transposed_line<Element>(i) * pitch + e + j];
#pragma unroll
        for (int j = 0; j < AT_ONCE; ++j)
          if (e + j < exist) target[(e + j) * to_pitch + transposed_line<Element>(i)] = found[j];
      }
    }
  }
  item -= tiles;
}
