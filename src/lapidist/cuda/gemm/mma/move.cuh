// Loads of A and B to shared memory in gemm/mma.cu, in the same layout as in global memory. Elements outside
// the matrix are zero.
#pragma once

#include "config.cuh"
#include "gemm/mma/constants.cuh"

// Moves tiles of BK steps of k to shared memory, each thread a piece of every STRIDE-th row. A piece is a
// chunk, or one element of double if lines start on multiples of 8 bytes: then a warp's lanes load adjacent
// elements, where chunks would touch half lines of twice as many rows. Warps with more sums lack the
// registers for that.
constexpr int MANY_DOUBLES = 1024;  // sums of a warp
template <typename Shape, int CONTIGUOUS, int VECTOR, bool GATHER>
struct Mover {
  static constexpr bool ALONG_K = CONTIGUOUS != 2, HELD = VECTOR * SIZE < 4;  // cp.async has no 2-byte form
  static constexpr bool SHIFTED = HELD && CONTIGUOUS != 0 && !GATHER;
  static constexpr int SINGLES = Shape::CHUNKS * CHUNK / VECTOR;  // if a thread has one vector of a row
  static constexpr bool BY_VECTORS =
      SIZE == 8 && WM * WN <= MANY_DOUBLES && THREADS % SINGLES == 0 && THREADS / SINGLES <= Shape::ROWS;
  static constexpr int PIECE = BY_VECTORS ? VECTOR : CHUNK, PIECES = Shape::CHUNKS * CHUNK / PIECE;
  static constexpr int STRIDE = THREADS / PIECES, MOVES = Shape::ROWS / STRIDE;
  static_assert(THREADS % PIECES == 0 && MOVES * STRIDE == Shape::ROWS,
                "all threads move whole rows, a piece each");
  static_assert(CHUNK % VECTOR == 0, "vectors fill a chunk");
  static_assert(!SHIFTED || STRIDE * SIZE % 4 == 0, "all chunks of a thread lie alike in their words");
  static_assert(!GATHER || ALONG_K, "rows that are gathered lie along k");
  const T* gmem[GATHER ? MOVES : 1];  // the thread's first piece (gathered: each piece) of the next tile
  // between rows of the tile in shared memory; between the elements of a piece
  i64 row_stride, inner_stride;
  // the thread's first row, and its element in a row; elements of k that are left; rows or columns of the
  // matrix from there on
  int row, element, k_left, exist;
  // skew: bytes from a word's start to a chunk's, the same for all chunks of the thread
  unsigned held[HELD ? MOVES : 1][5], skew;

  // `index`: row i of the operand is the matrix's row index[i].
  __device__ Mover(const T* matrix, int first, int extent, int K, i64 outer_stride, i64 k_stride,
                   const Index* index)
      : row_stride(ALONG_K ? outer_stride : k_stride),
        inner_stride(CONTIGUOUS == 0 ? k_stride : 1),
        row(thread_now() / PIECES),
        element(thread_now() % PIECES * PIECE),
        k_left(K) {
    exist = extent - first - (ALONG_K ? row : element);
    matrix += element * inner_stride;
    if constexpr (GATHER) {
#pragma unroll
      for (int i = 0; i < MOVES; ++i)
        gmem[i] = matrix + index[min_of(first + row + i * STRIDE, extent - 1)] * row_stride;
    } else {
      gmem[0] = matrix + first * (ALONG_K ? outer_stride : 1) + row * row_stride;
    }
    skew = reinterpret_cast<unsigned long long>(gmem[0]) % 4;
  }
  __device__ char* place(char* tile, int i) const {
    return tile + Shape::offset(row + i * STRIDE, element / CHUNK) + element % CHUNK * SIZE;
  }

  // Whether each vector lies either wholly inside the matrix or wholly outside. Along k this is checked
  // elsewhere.
  static __device__ __forceinline__ bool by_vectors(int extent) {
    return ALONG_K || VECTOR == 1 || extent % VECTOR == 0;
  }
  // Write zeros in the place of copies that are skipped.
  __device__ __forceinline__ void clear(char* tile) const {
#pragma unroll
    for (int i = 0; i < MOVES; ++i)
#pragma unroll
      for (int e = 0; e < PIECE; ++e) reinterpret_cast<T*>(place(tile, i))[e] = T(0);
  }

  // Load part `part` of `parts` of the next tile. `whole` (a constant): all of its k exists, and all of its
  // rows and columns, unless copies outside are skipped (LEAVES_OUT).
  __device__ void load(char* tile, int part, int parts, bool whole) {
#pragma unroll
    for (int i = 0; i < MOVES; ++i) {
      if (i * parts / MOVES != part) continue;
      const T* from = GATHER ? gmem[GATHER ? i : 0] : gmem[0] + i * STRIDE * row_stride;
      const int there = i * STRIDE >= (ALONG_K ? exist : k_left - row) ? 0
                        : ALONG_K                                      ? k_left - element
                                                                       : exist;
      if (SHIFTED && whole) {
        const unsigned* words = reinterpret_cast<const unsigned*>(reinterpret_cast<const char*>(from) - skew);
#pragma unroll
        for (int w = 0; w < 5; ++w)
          if (w < 4 || skew) held[i][w] = words[w];
      } else if constexpr (HELD) {
        Chunk elements;
#pragma unroll
        for (int e = 0; e < CHUNK; ++e) elements.at[e] = e < there ? from[e * inner_stride] : T(0);
#pragma unroll
        for (int w = 0; w < 4; ++w) held[i][w] = reinterpret_cast<const unsigned*>(&elements)[w];
      } else {
#pragma unroll
        for (int e = 0; e < PIECE; e += VECTOR) {
          T* to = reinterpret_cast<T*>(place(tile, i)) + e;
          if constexpr (LEAVES_OUT) {
            if (whole) {
              cp_async_if<VECTOR * SIZE>(ALONG_K ? i * STRIDE < exist : e < exist, to,
                                         from + e * inner_stride);
              continue;
            }
          }
          if (whole) cp_async<VECTOR * SIZE>(to, from + e * inner_stride);
          else
            cp_async_fill<VECTOR * SIZE>(to, from + e * inner_stride,
                                         (there <= e ? 0 : min_of(there - e, VECTOR)) * SIZE);
        }
      }
    }
    if (part < parts - 1) return;
    k_left -= BK;
#pragma unroll
    for (int i = 0; i < (GATHER ? MOVES : 1); ++i) gmem[i] += BK * (ALONG_K ? inner_stride : row_stride);
  }

  __device__ void store(char* tile, bool whole) {
    if constexpr (HELD)
#pragma unroll
      for (int i = 0; i < MOVES; ++i) {
        uint4 words = {held[i][0], held[i][1], held[i][2], held[i][3]};
        if (SHIFTED && whole) {
          words.x = __funnelshift_r(words.x, words.y, skew * 8),
          words.y = __funnelshift_r(words.y, words.z, skew * 8);
          words.z = __funnelshift_r(words.z, words.w, skew * 8),
          words.w = __funnelshift_r(words.w, held[i][4], skew * 8);
        }
        *reinterpret_cast<uint4*>(place(tile, i)) = words;
      }
  }
};

struct MoverOfA : Mover<AReader::Shape, A_CONTIGUOUS, A_VECTOR, (GATHER_A > 0)> {
  __device__ __forceinline__ MoverOfA(const Product& p, const Task& task)
      : Mover(task.A + p.a.to_matrix(task.inner, task.outer) + task.k * p.a.col, task.row, p.M, task.count,
              p.a.row, p.a.col, task.modes.a_rows) {}
};
struct MoverOfB : Mover<BReader::Shape, B_CONTIGUOUS, B_VECTOR, (GATHER_B > 0)> {
  __device__ __forceinline__ MoverOfB(const Product& p, const Task& task)
      : Mover(task.B + p.b.to_matrix(task.inner, task.outer) + task.k * p.b.row, task.col, p.N, task.count,
              p.b.col, p.b.row, task.modes.b_cols) {}
};

// Elements of k that must be left for the next tile to be loaded whole. Words overhang the ends of a line, so
// the first tiles and the last one are loaded element by element.
constexpr int WHOLE = BK + (MoverOfA::SHIFTED || MoverOfB::SHIFTED);

// Start the loads of all stages but one.
__device__ __forceinline__ void fill_stages(MoverOfA& move_a, MoverOfB& move_b, char* shared) {
// A loop for elements of one byte, whose moves were half of the code. Half through registers would then spill
// in the main loop, so it is unrolled.
#pragma unroll(SIZE > 1 || (A_VECTOR == 16 && B_VECTOR == 16) ? STAGES - 1 : 1)
  for (int stage = 0; stage < STAGES - 1; ++stage) {
    if (move_a.k_left > 0) {
      move_a.load(shared + stage * STAGE, 0, 1, false);
      move_b.load(shared + stage * STAGE + A_BYTES, 0, 1, false);
      move_a.store(shared + stage * STAGE, false);
      move_b.store(shared + stage * STAGE + A_BYTES, false);
    }
    cp_async_commit();  // also if no tile is left: waits count groups
  }
}

// Clear the stage that fill_stages did not fill. Copies outside the matrix are skipped later, so its zeros
// remain.
__device__ __forceinline__ void clear_last_stage(const MoverOfA& move_a, const MoverOfB& move_b,
                                                 char* shared) {
  move_a.clear(shared + (STAGES - 1) * STAGE);
  move_b.clear(shared + (STAGES - 1) * STAGE + A_BYTES);
}
