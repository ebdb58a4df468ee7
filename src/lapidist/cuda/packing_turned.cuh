// Packing a matrix that lies across: m or n touch, but k shall. Squares of it are turned in registers, by renaming words and
// permuting bytes; neither shared memory nor a barrier is needed.
#pragma once

#include "pieces.cuh"

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

// Pieces that a thread turns at a time: squares of as many lines as a piece has elements, and enough bytes on their way.
template <typename Element> constexpr int TURNED_PIECES = sizeof(Element) == 1 ? 16 : 8;

// They come eight at a time: so many loads are on their way before anything is asked of what they bring. Squares lie HIGH lines
// apart. The few pieces where memory ends within one come by a loop: each in the code, they took a second to compile.
template <typename Element, int HIGH>
__device__ __forceinline__ void read_squares(Words* pieces, const Readable& readable, const Element* source, i64 pitch, int lines,
                                             int exist) {
  constexpr int PER_PIECE = 16 / sizeof(Element), ALL = TURNED_PIECES<Element>, AT_ONCE = 8;
  const auto line_of = [](int i) { return i / PER_PIECE * HIGH + i % PER_PIECE; };
  unsigned apart = 0;
#pragma unroll
  for (int first = 0; first < ALL; first += AT_ONCE) {
    Words low[AT_ONCE], high[AT_ONCE];
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) {
      const Element* const from = source + line_of(first + i) * pitch;
      const bool exists = (line_of(first + i) < lines) & (exist > 0), whole = exists & readable.holds(from);
      apart |= (exists & !whole) << (first + i);
      load_pair_if(reinterpret_cast<const char*>(from) - skew_of(from), whole, skew_of(from) > 0, low[i], high[i]);
    }
    if (lines > 0)  // always; but it parts the loads from the shifts
#pragma unroll
      for (int i = 0; i < AT_ONCE; ++i)
        pieces[first + i] = shifted<sizeof(Element)>(low[i], high[i], skew_of(source + line_of(first + i) * pitch));
  }
#pragma unroll 1
  for (int i = 0; apart >> i; ++i) {
    if (!(apart >> i & 1)) continue;
    const Words found = readable.elements(source + line_of(i) * pitch, exist);
#pragma unroll
    for (int p = 0; p < ALL; ++p)  // registers have no index
      if (p == i) pieces[p] = found;
  }
}

// The same turned: element i of line j comes to line i, place j. A warp has 8 squares side by side, which it reads as whole lines
// of the caches, and 4 rows of squares, which it writes as 64 bytes.
template <typename Element>
__device__ __forceinline__ void pack_turned(Element* to, i64 to_pitch, const Element* from, i64 pitch, int lines, int length,
                                            int& item) {
  constexpr int PER_PIECE = 16 / sizeof(Element), PER_WORD = 4 / sizeof(Element), SQUARES = TURNED_PIECES<Element> / PER_PIECE;
  constexpr int WIDE = 8 * PER_PIECE, HIGH = 4 * PER_PIECE;
  const Readable readable(from, pitch, lines, length);
  const int lane = threadIdx.x % 32, warps = blockDim.x / 32, across = ceil_div(length, WIDE);
  const int my_line = lane / 8 * PER_PIECE, my_place = lane % 8 * PER_PIECE, tiles = across * ceil_div(lines, SQUARES * HIGH);
  for (; item < tiles; item += gridDim.x * warps) {
    const int line = item / across * (SQUARES * HIGH) + my_line, place = item % across * WIDE + my_place;
    Words rows[SQUARES][PER_PIECE];
    read_squares<Element, HIGH>(rows[0], readable, from + line * pitch + place, pitch, lines - line, length - place);
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
  item -= tiles;
}
