// Matrices whose lines do not start on 16 bytes: the copy engine refuses them, so all blocks first copy them into a workspace
// where they do. Reading and writing them once is small beside what cp.async or plain loads would cost in every tile.
//
//   line in memory     ..[e0 e1 e2 | e3 e4 e5 e6 | e7 ..         16-byte pieces that do not start where the line does
//   two pieces, shifted  [e0 e1 e2   e3][e4 e5 e6   e7]...       one piece of the copy: two loads, shifts, one store
//
// Then the blocks wait for each other: all of them must be on the chip at once (a cooperative launch).
#pragma once

#include "hopper.cuh"
#include "pieces.cuh"
#include "sharing.cuh"

constexpr int PACKING_FLAGS = 64;  // ints, of which two are used: what follows in a workspace keeps its alignment

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

  // Whether both pieces that 16 bytes may be in are inside.
  __device__ __forceinline__ bool holds(const void* first) const {
    const char* const piece = static_cast<const char*>(first) - skew_of(first);
    return piece >= begin && piece + 32 <= end;
  }
  // 16 bytes, of which `exist` elements are in the line.
  template <typename Element> __device__ __forceinline__ Words piece(const Element* source, int exist) const {
    if (!holds(source)) return elements(source, exist);
    const Words* const pieces = reinterpret_cast<const Words*>(reinterpret_cast<const char*>(source) - skew_of(source));
    return shifted(pieces[0], pieces[1], skew_of(source));
  }
  // The same of the first and the last pieces of the matrix: each element comes in at the top.
  template <typename Element> __device__ __forceinline__ Words elements(const Element* source, int exist) const {
    Words found = {};
#pragma unroll 4  // all, for each piece of a tile: they took most of a second to compile
    for (int i = 0; i < static_cast<int>(16 / sizeof(Element)); ++i) {
      const Words next = {i < exist ? bits_at(source + i) : 0};
      found = shifted(found, next, sizeof(Element));
    }
    return found;
  }
};

// All warps of the grid take items of work in turn, blocks before their warps: of a small matrix every multiprocessor copies a
// little. Where the items of one matrix end, those of the next one go on.
__device__ __forceinline__ int first_item() { return threadIdx.x / 32 * gridDim.x + blockIdx.x; }

// How an operand steps through a batch of two dimensions; where it does not, there is one matrix for all.
struct Batch {
  int inner, outer;
  i64 inner_step, outer_step;
  __device__ __forceinline__ int inners() const { return inner_step ? inner : 1; }
  __device__ __forceinline__ int matrices() const { return inners() * (outer_step ? outer : 1); }
};

// Elements from line to line of the copy: lines of the L2, sectors where they are short (hopper_operands.py has the same rule).
template <typename Element> __device__ __forceinline__ i64 packed_step(int length) {
  const int chunk = static_cast<int>((length >= static_cast<int>(128 / sizeof(Element)) ? 128 : 32) / sizeof(Element));
  return static_cast<i64>(ceil_div(length, chunk)) * chunk;
}

// 32 bytes, here: compiler and assembler else shift each piece before they load the next one, and there is one on its way.
__device__ __forceinline__ void load_pair_here(const char* place, Words& low, Words& high) {
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%8];\nld.global.v4.u32 {%4, %5, %6, %7}, [%8 + 16];"
               : "=r"(low.at[0]), "=r"(low.at[1]), "=r"(low.at[2]), "=r"(low.at[3]), "=r"(high.at[0]), "=r"(high.at[1]),
                 "=r"(high.at[2]), "=r"(high.at[3]) : "l"(place) : "memory");
}

// `lines` lines of `length` touching elements, `pitch` apart, of each matrix of a batch, and where their copies begin. Pieces are
// counted through, line after line, so that short lines leave no lane without one. A warp takes an item at a time: CHUNK pieces
// inside of a matrix, without a question; or 32 of the first and last ones, where memory may end before a load of 16 bytes does.
template <typename Element> struct Lines {
  static constexpr int PER_PIECE = 16 / sizeof(Element), EACH = 8, CHUNK = 32 * EACH;
  const Element* from;
  i64 pitch;
  int lines, length;
  Batch batch;
  Element* to;

  __device__ __forceinline__ i64 elements() const { return packed_step<Element>(length) * lines * batch.matrices(); }

  // From `item` on, all that are the warp's. Elements past a line's end, up to the 16 bytes, become whatever follows it.
  __device__ __forceinline__ void pack(int& item) const {
    const int matrices = batch.matrices();
    const unsigned width = ceil_div(length, PER_PIECE), pieces = lines * width, chunks = (pieces + CHUNK - 1) / CHUNK;
    const int inner = chunks > 3 && pitch >= length ? chunks - 3 : 0, items = inner + (chunks - inner) * EACH;  // all but 1 and 2
    const i64 step = packed_step<Element>(length);
    // The 32nd piece further: some lines down and some pieces along; or where the line ends, one line more.
    const unsigned down = 32 / width, along = 32 - down * width;
    const i64 back = static_cast<i64>(width) * PER_PIECE;
    const i64 on = down * pitch + along * PER_PIECE, wrapped = on + pitch - back;
    const i64 copy_on = down * step + along * PER_PIECE, copy_wrapped = copy_on + step - back;
    for (; item < items * matrices; item += gridDim.x * (blockDim.x / 32)) {
      const Element* source = from;
      Element* target = to;
      int mine = item;
      if (matrices > 1) {
        const int matrix = item / items, outer = matrix / batch.inners();
        mine -= matrix * items;
        source += (matrix - outer * batch.inners()) * batch.inner_step + outer * batch.outer_step;
        target += step * lines * matrix;
      }
      const int edge = mine - inner;
      const int first = edge < 0 ? (mine + 1) * EACH : edge < EACH ? edge : edge + inner * EACH;  // in 32s
      const unsigned number = first * 32 + threadIdx.x % 32, line = number / width;
      unsigned place = number - line * width;
      const Readable readable(source, pitch, lines, length);
      source += line * pitch + place * PER_PIECE, target += line * step + place * PER_PIECE;
      if (edge >= 0) {
        if (number < pieces)
          *reinterpret_cast<Words*>(target) = readable.piece(source, length - static_cast<int>(place) * PER_PIECE);
        continue;
      }
      Words low[EACH], high[EACH], *targets[EACH];
      unsigned skew[EACH];
#pragma unroll
      for (int i = 0; i < EACH; ++i) {
        skew[i] = skew_of(source), targets[i] = reinterpret_cast<Words*>(target);
        load_pair_here(reinterpret_cast<const char*>(source) - skew[i], low[i], high[i]);
        const bool wraps = (place += along) >= width;
        if (wraps) place -= width;
        source += wraps ? wrapped : on, target += wraps ? copy_wrapped : copy_on;
      }
      if (step > 0)  // always, and so is the other; but they part the loads from the shifts
#pragma unroll
        for (int i = 0; i < EACH; ++i)
          if (targets[i]) *targets[i] = shifted(low[i], high[i], skew[i]);
    }
    item -= items * matrices;
  }
};

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
                                            int& item) {
  constexpr int PER_PIECE = 16 / sizeof(Element), PER_WORD = 4 / sizeof(Element), SQUARES = 16 / PER_PIECE;
  constexpr int WIDE = 8 * PER_PIECE, HIGH = 4 * PER_PIECE;
  const Readable readable(from, pitch, lines, length);
  const int lane = threadIdx.x % 32, warps = blockDim.x / 32, across = ceil_div(length, WIDE);
  const int my_line = lane / 8 * PER_PIECE, my_place = lane % 8 * PER_PIECE, tiles = across * ceil_div(lines, SQUARES * HIGH);
  for (; item < tiles; item += gridDim.x * warps) {
    const int line = item / across * (SQUARES * HIGH) + my_line, place = item % across * WIDE + my_place;
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
  item -= tiles;
}

// An operand of `extent` rows (A) or columns (B). Turned: as it lies, and stays, m or n touch. Lines of the copy start on lines
// of the L2, short ones on its sectors.
template <bool Turned, typename Element>
__device__ __forceinline__ Lines<Element> lines_of(Element* to, const Element* from, i64 pitch, int extent, int k,
                                                   const Batch& batch) {
  return Lines<Element>{from, pitch, Turned ? k : extent, Turned ? extent : k, batch, to};
}

// The same, copied; returns how many elements the copy takes. Transpose: as it lies m or n touch, but k shall.
template <bool Turned, bool Transpose, typename Element>
__device__ __forceinline__ i64 pack(Element* to, const Element* from, i64 pitch, int extent, int k, const Batch& batch,
                                    int& item) {
  const Lines<Element> copy = lines_of<Turned>(to, from, pitch, extent, k, batch);
  if constexpr (Transpose) {
    const i64 step = packed_step<Element>(copy.length);
#pragma unroll 1
    for (int matrix = 0; matrix < batch.matrices(); ++matrix) {
      const int outer = matrix / batch.inners(), inner = matrix - outer * batch.inners();
      pack_turned(to + step * copy.lines * matrix, step, from + inner * batch.inner_step + outer * batch.outer_step, pitch,
                  copy.length, copy.lines, item);
    }
  } else {
    copy.pack(item);
  }
  return copy.elements();
}

// ---- all blocks meet: what they wrote before is there for the copy engine after ----
//
// Only who orders copies waits, one thread of a block: all others wait for what it brings. `flags`: two of them, zero before and
// after the launch.

// By all threads, when they have packed. A block without a tile then only leaves.
__device__ __forceinline__ void arrive_packed(int* flags) {
  __syncthreads();
  if (threadIdx.x == 0) asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(flags) : "memory");
}

// `behind` is the workspace that packing left: its flags come after these.
__device__ __forceinline__ void wait_packed(const Workspace& behind) {
  int arrived;
  do asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(arrived) : "l"(behind.flags - PACKING_FLAGS) : "memory");
  while (arrived < static_cast<int>(gridDim.x));
  asm volatile("fence.proxy.async.global;" ::: "memory");  // between what generic stores wrote and what the copy engine reads
}

// By one thread of each block, behind its wait: the last one puts both flags back.
__device__ __forceinline__ void leave_packed(const Workspace& behind) {
  int *const flags = behind.flags - PACKING_FLAGS, left;
  asm volatile("atom.relaxed.gpu.global.add.s32 %0, [%1], 1;" : "=r"(left) : "l"(flags + 1) : "memory");
  if (left == static_cast<int>(gridDim.x) - 1)
    for (int i = 0; i < 2; ++i) asm volatile("st.relaxed.gpu.global.s32 [%0], 0;" ::"l"(flags + i) : "memory");
}
