// Tiles of shared memory that feed mma.sync, and how a warp reads its Eights from them.
#pragma once
#include "mma_instructions.cuh"

// A tile of Outer rows of A (or columns of B), Deep steps of k, in shared memory as it lies in global memory:
// the touching direction in rows of whole chunks. Chunk c of row r is stored at place c ^ swizzle(r), so that
// the eight chunks which one phase of a read wants lie in eight different groups of four banks.
template <int Outer, bool AlongK, int Deep>
struct Tile {
  static constexpr int ROWS = AlongK ? Outer : Deep;
  static constexpr int ROW_BYTES = (AlongK ? Deep : Outer) * SIZE;
  static constexpr int CHUNKS = ROW_BYTES / 16;
  static constexpr int BYTES = ROWS * ROW_BYTES;
  static_assert(CHUNKS >= 1 && (CHUNKS & (CHUNKS - 1)) == 0,
                "rows of a tile are 16, 32, 64, ... bytes: the swizzle is an XOR");

  static __device__ __forceinline__ int swizzle(int row) {
    int shift;
    // 4 rows, 2 chunks of 8-byte reads
    if constexpr (SIZE == 8 && AlongK) shift = CHUNKS >= 8 ? row % 4 * 2 : row / 2 % 2 * 2;
    // 8 rows, 1 chunk
    else if constexpr (AlongK) shift = CHUNKS >= 8 ? row : row / (8 / CHUNKS);
    // rows 0 1 4 5 8 9 12 13, 1 chunk
    else if constexpr (SIZE == 1) shift = row / 4 * 2 + row % 2;
    // 8 rows, 1 chunk
    else if constexpr (SIZE == 2) shift = row;
    // 4 rows, 2 chunks
    else shift = row % 4 * 2;
    return shift & ((CHUNKS < 8 ? CHUNKS : 8) - 1);
  }
  static __device__ __forceinline__ int offset(int row, int chunk) {
    return row * ROW_BYTES + (chunk ^ swizzle(row)) * 16;
  }
};

// Reads a warp's Eights, Count of them, one DEPTH at a time. The instruction wants the registers of its
// operand side by side: of A top.at[0], bottom.at[0], top.at[1], bottom.at[1], of B at[0], at[1]; ldmatrix
// brings them in that order. Rows and columns are dealt to the Eights as the reads bring them:
//   k touches             Eight e, lane g is row 8 e + g                          ldmatrix; double: 8-byte loads
//   rows touch, 2 bytes   the same                                                ldmatrix, transposed
//   rows touch, 1 byte    16 rows to two Eights in turns: 2 g + e % 2             ldmatrix of pairs, trans.; bytes sorted
//   rows touch, 4, 8      the same as with 2 bytes                                loads of one element, at k = t and 4 + t
template <bool OfA, int Outer, bool AlongK, int Deep, int Count>
struct Reader {
  typedef Tile<Outer, AlongK, Deep> Shape;
  static constexpr bool SINGLE = SIZE == 8 || (!AlongK && SIZE == 4);  // loads of one element
  static constexpr int TURNS = !AlongK && SIZE == 1 ? 2 : 1;
  static constexpr int UNIT = SINGLE ? 1 : 2;  // Eights that come together
  static_assert(Count % UNIT == 0 && (Count & (Count - 1)) == 0,
                "a warp's Eights come in units; their number is 2, 4, 8, ...");
  static_assert(Deep % DEPTH == 0, "a tile is made of whole steps");
  int mine;  // the offset of this lane's first chunk

  __device__ static int outer_of(int e, int g) { return e / TURNS * 8 * TURNS + g * TURNS + e % TURNS; }

  __device__ Reader(int first) {
    // of ldmatrix's tiles: 1 and 3, 2 and 3
    const int lane = thread_now() % 32, second = lane / 8 % 2, third = lane / 16;
    const int outer = OfA ? second : third, deeper = OfA ? third : second;
    if constexpr (AlongK && SIZE == 8) mine = Shape::offset(first + lane / 4, lane % 4 / 2) + lane % 2 * 8;
    else if constexpr (AlongK) mine = Shape::offset(first + lane % 8 + outer * 8, deeper);
    else if constexpr (SIZE == 1)
      mine = Shape::offset(lane % 8 / 2 * 4 + lane % 2 + second * 2 + third * 16, first / 16);
    else if constexpr (SIZE == 2) mine = Shape::offset(lane % 8 + deeper * 8, first / 8 + outer);
    else mine = Shape::offset(lane % 4, first / CHUNK + lane / 4 / CHUNK) + lane / 4 % CHUNK * SIZE;
  }

  // Other chunks of the same row lie an XOR away, other rows of the same swizzle a sum. `part` of `parts`:
  // reads that are spread among the products do not hold them up in the queue of the memory pipeline.
  __device__ void read(Eight (&eights)[Count], const char* tile, int step, int part = 0,
                       int parts = 1) const {
#pragma unroll
    for (int e = 0; e < Count; e += UNIT) {
      if (e * parts / Count != part) continue;
      if constexpr (SINGLE) {
#pragma unroll
        for (int i = 0; i < DEPTH / 4; ++i) {
          const int at = AlongK ? (mine ^ (step * DEPTH / 4 + i) * 32) + e * 8 * Shape::ROW_BYTES
                                : (mine ^ e * 8 * SIZE) + (step * DEPTH + i * 4) * Shape::ROW_BYTES;
          eights[e].at[i] = *reinterpret_cast<const Register*>(tile + at);
        }
      } else {
        unsigned got[4];
        if constexpr (AlongK) ldmatrix<false>(got, tile + (mine ^ step * 32) + e * 8 * Shape::ROW_BYTES);
        else ldmatrix<true>(got, tile + (mine ^ e * 8 * SIZE) + step * DEPTH * Shape::ROW_BYTES);
        // got: k = 4t, 4t + 1 of two columns; the next two k; the same 16 k further
        if constexpr (!AlongK && SIZE == 1) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            eights[e].at[i] = __byte_perm(got[2 * i], got[2 * i + 1], 0x6420);
            eights[e + 1].at[i] = __byte_perm(got[2 * i], got[2 * i + 1], 0x7531);
          }
        } else {
          eights[e].at[0] = got[0], eights[e].at[1] = got[OfA ? 2 : 1];
          eights[e + 1].at[0] = got[OfA ? 1 : 2], eights[e + 1].at[1] = got[3];
        }
      }
    }
  }
};
