// Matrices whose lines do not start on 16 bytes: the copy engine refuses them, so all blocks first copy them into a workspace
// where they do. Reading and writing them once is small beside what cp.async or plain loads would cost in every tile.
//
//   line in memory     ..[e0 e1 e2 | e3 e4 e5 e6 | e7 ..         16-byte pieces that do not start where the line does
//   two pieces, shifted  [e0 e1 e2   e3][e4 e5 e6   e7]...       one piece of the copy: two loads, shifts, one store
//
// Then the blocks wait for each other: all of them must be on the chip at once (a cooperative launch). `block` is a block's place
// among those that pack: where one matrix leaves blocks without work, the next one begins.
#pragma once

#include "hopper.cuh"
#include "pieces.cuh"
#include "sharing.cuh"

constexpr int PACKING_FLAGS = 64;  // ints, of which two are used: what follows in a workspace keeps its alignment

// 16 bytes of a line, wherever they start: from the one or two pieces of memory that hold them.
template <typename Element> __device__ __forceinline__ Words read_piece(const Element* source) {
  const unsigned skew = skew_of(source);
  const char* piece = reinterpret_cast<const char*>(source) - skew;
  return shifted(*reinterpret_cast<const Words*>(piece), *reinterpret_cast<const Words*>(piece + (skew ? 16 : 0)), skew);
}

template <typename Element> __device__ __forceinline__ unsigned bits_at(const Element* place) {
  if constexpr (sizeof(Element) == 1) return *reinterpret_cast<const unsigned char*>(place);
  if constexpr (sizeof(Element) == 2) return *reinterpret_cast<const unsigned short*>(place);
  return *reinterpret_cast<const unsigned*>(place);
}

// What may be read of a matrix: from its first element to its last one, whatever lies between its lines.
struct Readable {
  const char *begin, *end;
  template <typename Element>
  __device__ __forceinline__ Readable(const Element* from, i64 pitch, int lines, int length)
      : begin(reinterpret_cast<const char*>(from)), end(reinterpret_cast<const char*>(from + (lines - 1) * pitch + length)) {}

  // Whether the pieces of memory under these bytes are all inside.
  __device__ __forceinline__ bool holds(const void* first, i64 bytes) const {
    const char* at = static_cast<const char*>(first);
    return at - skew_of(at) >= begin && at - skew_of(at) + bytes + (skew_of(at) ? 16 : 0) <= end;
  }
  // 16 bytes, of which `exist` elements are in the line.
  template <typename Element> __device__ __forceinline__ Words piece(const Element* source, int exist) const {
    if (holds(source, 16)) return read_piece(source);
    Words found = {};  // the first and the last pieces of the matrix: each element comes in at the top
#pragma unroll 4       // all, for each piece of a tile: they took most of a second to compile
    for (int i = 0; i < static_cast<int>(16 / sizeof(Element)); ++i) {
      const Words next = {i < exist ? bits_at(source + i) : 0};
      found = shifted(found, next, sizeof(Element));
    }
    return found;
  }
};

// The place of a block once so many pieces of work are given out. Blocks come before their warps: of a small matrix every
// multiprocessor copies a little.
__device__ __forceinline__ int behind(int block, int busy) {
  const int blocks = static_cast<int>(gridDim.x);
  return (block + blocks - busy % blocks) % blocks;
}

// `lines` lines of `length` touching elements, `pitch` apart, to lines `to_pitch` apart; all warps of the grid take runs in
// turn, whose loads are on their way together. Elements past a line's end, up to the 16 bytes, become whatever follows it.
template <typename Element>
__device__ __forceinline__ void pack_lines(Element* to, i64 to_pitch, const Element* from, i64 pitch, int lines, int length,
                                           int& block) {
  constexpr int PER_PIECE = 16 / sizeof(Element), EACH = 4, RUN = 32 * EACH * PER_PIECE;
  const int warps = blockDim.x / 32, lane = threadIdx.x % 32, runs = ceil_div(length, RUN);
  const Readable readable(from, pitch, lines, length);
  for (int run = threadIdx.x / 32 * gridDim.x + block; run < lines * runs; run += gridDim.x * warps) {
    const int line = run / runs, first = run % runs * RUN, at = first + lane * PER_PIECE;
    const Element* source = from + line * pitch;
    Element* target = to + line * to_pitch;
    Words pieces[EACH];
    if (readable.holds(source + first, RUN * sizeof(Element))) {
#pragma unroll
      for (int i = 0; i < EACH; ++i) pieces[i] = read_piece(source + at + i * 32 * PER_PIECE);
    } else {
#pragma unroll
      for (int i = 0; i < EACH; ++i) {
        const int exist = length - at - i * 32 * PER_PIECE;
        if (exist > 0) pieces[i] = readable.piece(source + at + i * 32 * PER_PIECE, exist);
      }
    }
#pragma unroll
    for (int i = 0; i < EACH; ++i)
      if (at + i * 32 * PER_PIECE < length) *reinterpret_cast<Words*>(target + at + i * 32 * PER_PIECE) = pieces[i];
  }
  block = behind(block, lines * runs);
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
// of the caches, and 4 rows of squares, which it writes as 64 bytes.
template <typename Element>
__device__ __forceinline__ void pack_turned(Element* to, i64 to_pitch, const Element* from, i64 pitch, int lines, int length,
                                            int& block) {
  constexpr int PER_PIECE = 16 / sizeof(Element), PER_WORD = 4 / sizeof(Element), SQUARES = 16 / PER_PIECE;
  constexpr int WIDE = 8 * PER_PIECE, HIGH = 4 * PER_PIECE;
  const Readable readable(from, pitch, lines, length);
  const int lane = threadIdx.x % 32, warps = blockDim.x / 32, across = ceil_div(length, WIDE);
  const int my_line = lane / 8 * PER_PIECE, my_place = lane % 8 * PER_PIECE, tiles = across * ceil_div(lines, SQUARES * HIGH);
  for (int tile = threadIdx.x / 32 * gridDim.x + block; tile < tiles; tile += gridDim.x * warps) {
    const int line = tile / across * (SQUARES * HIGH) + my_line, place = tile % across * WIDE + my_place;
    Words rows[SQUARES][PER_PIECE];
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const int at = line + i / PER_PIECE * HIGH + i % PER_PIECE;
      if (at < lines && place < length)
        rows[i / PER_PIECE][i % PER_PIECE] = readable.piece(from + at * pitch + place, length - place);
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
  block = behind(block, tiles);
}

// Elements from line to line of the copy: lines of the L2, where that adds little (hopper_operands.py has the same rule).
template <typename Element> __device__ __forceinline__ i64 packed_step(int length) {
  const int chunk = static_cast<int>((length >= static_cast<int>(512 / sizeof(Element)) ? 128 : 16) / sizeof(Element));
  return static_cast<i64>(ceil_div(length, chunk)) * chunk;
}

// An operand of `extent` rows (A) or columns (B). Turned: as it lies, and stays, m or n touch. Transpose: as it lies they do, but
// k shall. Lines of the copy are multiples of 128 bytes apart, short ones of 16; returns how many elements it takes.
template <bool Turned, bool Transpose, typename Element>
__device__ __forceinline__ i64 pack(Element* to, const Element* from, i64 pitch, int extent, int k, int& block) {
  const int lines = Turned ? k : extent, length = Turned ? extent : k;
  const i64 to_pitch = packed_step<Element>(length);
  if constexpr (Transpose)
    pack_turned(to, to_pitch, from, pitch, length, lines, block);
  else
    pack_lines(to, to_pitch, from, pitch, lines, length, block);
  return lines * to_pitch;
}

// How an operand steps through a batch of two dimensions; where it does not, there is one matrix for all.
struct Batch { int inner, outer; i64 inner_step, outer_step; };

// All matrices of a batch, one behind the other.
template <bool Turned, bool Transpose, typename Element>
__device__ __forceinline__ i64 pack(Element* to, const Element* from, i64 pitch, int extent, int k, const Batch& batch, int& block) {
  Element* const start = to;
#pragma unroll 1
  for (int outer = 0; outer == 0 || (batch.outer_step && outer < batch.outer); ++outer)
#pragma unroll 1
    for (int inner = 0; inner == 0 || (batch.inner_step && inner < batch.inner); ++inner)
      to += pack<Turned, Transpose>(to, from + inner * batch.inner_step + outer * batch.outer_step, pitch, extent, k, block);
  return to - start;
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
