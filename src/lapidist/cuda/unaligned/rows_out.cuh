// The way out for rows of D that start anywhere in memory: TMA does not take them.
//
// A warp lays one patch after another into a buffer whose rows have room for the last sector of 32 bytes of
// the patch before. What leaves are windows as wide as a patch, which start on a sector in memory:
//
//   buffer    |  ...before | p                        |
//   window          | `phase` bytes further left|          pieces of 16 bytes a lane, out of five words, shifted
//
// So all sectors are written whole, but for those that the tile's row shares with its neighbours. There
// pieces are cut: they leave as 8, 4, 2, 1 bytes, as their place in memory allows, both ends of all rows
// together. A store to many rows takes the memory pipe as many cycles, so few of them matter more than what
// they move.
#pragma once

#include "config.cuh"
#include "unaligned/pieces.cuh"

constexpr int SECTOR = 32;

// The last `length` bytes of a piece, or the first ones. It lies on 16 in memory, so each power of two in the
// length has one place.
template <int Bytes>
__device__ __forceinline__ void store_part(char* memory, const Words& piece, int length, bool last) {
  const int at = last ? 16 - (length & (16 - Bytes)) : length & (16 - 2 * Bytes);
  const unsigned low = at & 8 ? piece.at[2] : piece.at[0], high = at & 8 ? piece.at[3] : piece.at[1];
  const unsigned word = (at & 4 ? high : low) >> at % 4 * 8;
  if (!(length & Bytes)) return;
  if constexpr (Bytes == 8) *reinterpret_cast<uint2*>(memory + at) = make_uint2(low, high);
  if constexpr (Bytes == 4) *reinterpret_cast<unsigned*>(memory + at) = word;
  if constexpr (Bytes == 2) *reinterpret_cast<unsigned short*>(memory + at) = word;
  if constexpr (Bytes == 1) memory[at] = word;
}

// 16 bytes of shared memory that start on 4.
__device__ __forceinline__ Words load_words(unsigned place) {
  Words words;
  asm volatile(
      "ld.shared.b32 %0, [%4];\nld.shared.b32 %1, [%4 + 4];\nld.shared.b32 %2, [%4 + 8];\nld.shared.b32 %3, "
      "[%4 + 12];"
      : "=&r"(words.at[0]), "=&r"(words.at[1]), "=&r"(words.at[2]), "=&r"(words.at[3])
      : "r"(place)
      : "memory");
  return words;
}

// Which row of the matrix a patch's line is, from its first one on.
struct Neighbours {
  __device__ __forceinline__ static int of(int line) { return line; }
};

// A patch of 16 rows, PITCH bytes each, after those before it in the tile; Size: of an element. Held: a
// thread's sums meanwhile, beside so many of which there are registers for two pieces.
template <typename Patch, int Size, int Held, typename Rows = Neighbours>
struct RowsOut {
  static constexpr int PITCH = Patch::PITCH, PIECES = PITCH / 16, AT_ONCE = 32 / PIECES, COUNT = 16 / AT_ONCE;
  static constexpr int TOGETHER = Held < 192 || COUNT < 2 ? COUNT : 2;
  const Patch& patch;
  // bytes of the tile's row: before the patch; from there on, more than the patch has where others follow
  int before, exist;
  char* row_start;  // in memory: of the patch's first row
  i64 row_step;
  // the cut piece in which a row of the tile begins: kept until the last patch, where it leaves
  Words& begins;

  // 16 bytes of a row from one that may lie in the patch before. AtEnd: the last ones may lie behind the
  // patch, where nothing is.
  template <bool AtEnd = false>
  __device__ __forceinline__ Words read(int row, int byte) const {
    const unsigned place = patch.place(row, byte & ~3), skew = byte & 3;
    if constexpr (Size == 4 && !AtEnd) return load_words(place);
    unsigned words[5] = {};
#pragma unroll
    for (int i = 0; i < 5; ++i)
      if ((i < 4 || (Size < 4 && skew)) && (!AtEnd || (byte & ~3) + i * 4 < PITCH))
        words[i] = *static_cast<const unsigned*>(__cvta_shared_to_generic(place + i * 4));
    Words found;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      found.at[i] = Size < 4 ? __funnelshift_r(words[i], words[i + 1], skew * 8) : words[i];
    return found;
  }
  __device__ __forceinline__ static int phase_of(const char* start) {
    return reinterpret_cast<unsigned long long>(start) % SECTOR;
  }

  __device__ __forceinline__ void store(int rows) const {
    const int lane = threadIdx.x % 32, least = before ? -SECTOR : 0;
    if (exist <= 0) return;
    if (!before && exist < 16) return store_elements(rows);
    const int line = lane % 16;
    const bool is_there = Rows::of(line) < rows;
    char* const start = row_start + Rows::of(line) * row_step;
    const int phase = phase_of(start), skipped = phase % 16;
    if (!before) begins = read(line, -skipped);
#pragma unroll
    for (int i = 0; i < COUNT; i += TOGETHER) {
      Words pieces[TOGETHER];  // loads come before stores, or each store waits for a load of its own
      int bytes[TOGETHER];
#pragma unroll
      for (int j = 0, row = lane / PIECES + i * AT_ONCE; j < TOGETHER; ++j, row += AT_ONCE) {
        bytes[j] = lane % PIECES * 16 - phase_of(row_start + Rows::of(row) * row_step);
        pieces[j] = read(row, bytes[j]);
      }
#pragma unroll
      for (int j = 0, row = lane / PIECES + i * AT_ONCE; j < TOGETHER; ++j, row += AT_ONCE)
        if (Rows::of(row) < rows && bytes[j] >= least && bytes[j] + 16 <= exist)
          *reinterpret_cast<Words*>(row_start + Rows::of(row) * row_step + bytes[j]) = pieces[j];
    }
    if (exist > PITCH) return;
    // Half of the lanes end the rows, the other half begin them; and a whole piece is left where the window
    // ends before the patch.
    const bool ends = lane >= 16;
    const int cut = (exist + phase) % 16, byte = exist - cut - (ends ? 0 : 16);
    const Words piece = read<true>(line, byte);
    if (is_there && !ends && byte + phase >= PITCH) *reinterpret_cast<Words*>(start + byte) = piece;
    const Words own = ends ? piece : begins;
    char* const to = ends ? start + byte : start - before - skipped;
    const int length = !is_there ? 0 : ends ? cut : -skipped & 15;
    store_part<8>(to, own, length, !ends);
    store_part<4>(to, own, length, !ends);
    if constexpr (Size <= 2) store_part<2>(to, own, length, !ends);
    if constexpr (Size <= 1) store_part<1>(to, own, length, !ends);
  }
  // Of rows that are shorter than a piece.
  __device__ __forceinline__ void store_elements(int rows) const {
    const int row = threadIdx.x % 16;
#pragma unroll 1
    for (int byte = threadIdx.x % 32 / 16 * Size; byte < exist && Rows::of(row) < rows; byte += 2 * Size) {
      const unsigned word =
          *static_cast<const unsigned*>(__cvta_shared_to_generic(patch.place(row, byte & ~3))) >>
          byte % 4 * 8;
      char* const to = row_start + Rows::of(row) * row_step + byte;
      if constexpr (Size == 1) *to = word;
      if constexpr (Size == 2) *reinterpret_cast<unsigned short*>(to) = word;
      if constexpr (Size == 4) *reinterpret_cast<unsigned*>(to) = word;
    }
  }
};
