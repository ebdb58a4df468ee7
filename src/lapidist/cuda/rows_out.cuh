// The way out for rows of D that start anywhere in memory: the copy engine does not take them.
//
// A warp lays one patch after another into a buffer whose rows have room for the last sector of 32 bytes of the patch before.
// What leaves are windows as wide as a patch, which start on a sector in memory:
//
//   buffer    |  ...before | p                        |
//   window          | `phase` bytes further left|          pieces of 16 bytes a lane, out of five words, shifted
//
// So all sectors are written whole, but for those that the tile's row shares with its neighbours. There pieces are cut: they
// leave as 8, 4, 2, 1 bytes, as their place in memory allows, all rows' together. A store to many rows takes the memory pipe as
// many cycles, so few of them matter more than what they move.
#pragma once

#include "pieces.cuh"

constexpr int SECTOR = 32;

// Bytes of a piece that lies on 16 in memory: those from `from` on, and those before `to`.
template <int Size> __device__ __forceinline__ void store_from(char* memory, const Words& piece, int from) {
  const auto word = [&](int at) { return at & 8 ? (at & 4 ? piece.at[3] : piece.at[2]) : at & 4 ? piece.at[1] : piece.at[0]; };
  if (Size <= 1 && from & 1) memory[from] = word(from) >> from % 4 * 8, ++from;
  if (Size <= 2 && from & 2) *reinterpret_cast<unsigned short*>(memory + from) = word(from) >> 16, from += 2;
  if (from & 4) *reinterpret_cast<unsigned*>(memory + from) = from & 8 ? piece.at[3] : piece.at[1], from += 4;
  if (from & 8) *reinterpret_cast<uint2*>(memory + from) = make_uint2(piece.at[2], piece.at[3]);
}
template <int Size> __device__ __forceinline__ void store_before(char* memory, const Words& piece, int to) {
  const unsigned word = to & 8 ? (to & 4 ? piece.at[3] : piece.at[2]) : to & 4 ? piece.at[1] : piece.at[0];
  if (to & 8) *reinterpret_cast<uint2*>(memory) = make_uint2(piece.at[0], piece.at[1]);
  if (to & 4) *reinterpret_cast<unsigned*>(memory + (to & 8)) = to & 8 ? piece.at[2] : piece.at[0];
  if (Size <= 2 && to & 2) *reinterpret_cast<unsigned short*>(memory + (to & 12)) = word;
  if (Size <= 1 && to & 1) memory[to & 14] = word >> (to & 2) * 8;
}

// A patch of 16 rows, `pitch` bytes each, after those before it in the tile; Size: of an element.
template <typename Patch, int Size> struct RowsOut {
  static constexpr int PITCH = Patch::PITCH, PIECES = PITCH / 16, AT_ONCE = 32 / PIECES;
  const Patch& patch;
  bool first;       // of the tile's row
  int exist;        // bytes of the tile's row from the patch on, more than it has where others follow
  char* row_start;  // in memory: of the patch's first row
  i64 row_step;

  // 16 bytes of a row from one that may lie in the patch before. AtEnd: the last ones may lie behind the patch, where nothing is.
  template <bool AtEnd = false> __device__ __forceinline__ Words read(int row, int byte) const {
    const unsigned place = patch.place(row, byte & ~3), skew = byte & 3;
    unsigned words[5] = {};
#pragma unroll
    for (int i = 0; i < 5; ++i)
      if ((i < 4 || (Size < 4 && skew)) && (!AtEnd || (byte & ~3) + i * 4 < PITCH)) words[i] = *static_cast<const unsigned*>(__cvta_shared_to_generic(place + i * 4));
    Words found;
#pragma unroll
    for (int i = 0; i < 4; ++i) found.at[i] = Size < 4 ? __funnelshift_r(words[i], words[i + 1], skew * 8) : words[i];
    return found;
  }
  __device__ __forceinline__ static int phase_of(const char* start) { return reinterpret_cast<unsigned long long>(start) % SECTOR; }

  __device__ __forceinline__ void store(int rows) const {
    const int lane = threadIdx.x % 32, least = first ? 0 : -SECTOR;
    if (exist <= 0) return;
    if (first && exist < 16) return store_elements(rows);
#pragma unroll
    for (int row = lane / PIECES; row < 16; row += AT_ONCE) {
      char* const start = row_start + row * row_step;
      const int byte = lane % PIECES * 16 - phase_of(start);
      const Words piece = read(row, byte);
      if (row < rows && byte >= least && byte + 16 <= exist) *reinterpret_cast<Words*>(start + byte) = piece;
    }
    const int row = lane % 16;
    char* const start = row_start + row * row_step;
    const int phase = phase_of(start);
    if (first && lane < min_of(rows, 16) && phase % 16)
      store_from<Size>(start - phase % 16, read(row, -(phase % 16)), phase % 16);
    if (exist <= PITCH && row < rows) {  // the last one; a whole piece may be left, where the window ends before the patch
      const int cut = (exist + phase) % 16, byte = exist - cut - lane / 16 * 16;
      if (lane < 16) store_before<Size>(start + byte, read<true>(row, byte), cut);
      else if (byte + phase >= PITCH) *reinterpret_cast<Words*>(start + byte) = read(row, byte);
    }
  }
  // Of a row that is shorter than a piece.
  __device__ __forceinline__ void store_elements(int rows) const {
    const int row = threadIdx.x % 16;
#pragma unroll 1
    for (int byte = threadIdx.x % 32 / 16 * Size; byte < exist && row < rows; byte += 2 * Size) {
      const unsigned word = *static_cast<const unsigned*>(__cvta_shared_to_generic(patch.place(row, byte & ~3))) >> byte % 4 * 8;
      char* const to = row_start + row * row_step + byte;
      if constexpr (Size == 1) *to = word;
      if constexpr (Size == 2) *reinterpret_cast<unsigned short*>(to) = word;
      if constexpr (Size == 4) *reinterpret_cast<unsigned*>(to) = word;
    }
  }
};
