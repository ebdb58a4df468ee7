// Stores of a tile of gemm/sgemm.cu to D, whose rows and columns may be scattered.
//
// A thread holds quads of neighbours in a row, and eight lanes hold 32 neighbours. If a quad is stored at
// once, a warp writes whole cache lines. If rows of D start anywhere, it would write every fourth element. So
// a warp first writes four of its rows to shared memory, and reads them along the row:
//
//   write  lane 0: [0 .. 3]  lane 2: [4 .. 7]  lane 8: [8 .. 11] ...        read    lane 0: [0]  lane 1: [1]  lane 2: [2] ...
#pragma once

#include "addend.cuh"
#include "config.cuh"
#include "epilogue.cuh"
#include "gemm/slices.cuh"

constexpr int PATCH_ROWS = 4, PATCH_COLS = 64;
// rows of a thread whose stores are unrolled: for all rows they took a fifth of the compile time
constexpr int WRITTEN = OWN_ROWS < 4 ? OWN_ROWS : 4;

// Four columns of a row of sums, where neighbouring columns are swapped.
__device__ __forceinline__ Four<T> quad(const Acc (&row)[TN], int first) {
  return {row[first + 1], row[first], row[first + 3], row[first + 2]};
}

struct Patch {
  T at[PATCH_ROWS][PATCH_COLS + 8];  // 8 banks from row to row: 8 lanes write two quads each, no conflicts

  // Write row `number` of a lane's sums, one of `first`, first + 4, ... Registers cannot be indexed, so
  // `number` is compared with each.
  template <int Rows>
  __device__ __forceinline__ void lay(int lane_row, int lane_col, const Acc (&sums)[Rows][TN], int first,
                                      int number) {
#pragma unroll
    for (int i = first; i < Rows; i += WRITTEN)
      if (i == number)
#pragma unroll
        for (int j = 0; j < 2; ++j)
          reinterpret_cast<Four<T>&>(at[lane_row][lane_col * 4 + j * 32]) = quad(sums[i], j * 4);
  }
};

// D is neither scattered nor permuted
constexpr bool IN_ORDER = !SCATTER_ROWS && !SCATTER_COLS && !PERMUTED;

// One matrix of D.
struct Output {
  const Modes& modes;
  T* D;
  i64 d_row;
  int M, N;

  __device__ __forceinline__ T* line(int row) const { return D + modes.to_row(row, d_row); }
};

// Store two pieces of row `number`, 32 columns apart, if the row is below their `rows`. Predicated, without a
// branch: with a branch for each row the address was computed again, and the epilogue's code was longer than
// the main loop.
__device__ __forceinline__ void store_two(T* place, const T (&value)[2], int number, const int (&rows)[2]) {
  asm volatile(
      "{\n.reg .pred one, two;\nsetp.lt.s32 one, %3, %4;\nsetp.lt.s32 two, %3, %5;\n"
      "@one st.global.f32 [%0], %1;\n@two st.global.f32 [%0 + 128], %2;\n}" ::"l"(place),
      "f"(value[0]), "f"(value[1]), "r"(number), "r"(rows[0]), "r"(rows[1])
      : "memory");
}
__device__ __forceinline__ void store_two(T* place, const Four<T> (&value)[2], int number,
                                          const int (&rows)[2]) {
  const T(&a)[4] = value[0].at, (&b)[4] = value[1].at;
  asm volatile(
      "{\n.reg .pred one, two;\nsetp.lt.s32 one, %9, %10;\nsetp.lt.s32 two, %9, %11;\n"
      "@one st.global.v4.f32 [%0], {%1, %2, %3, %4};\n@two st.global.v4.f32 [%0 + 128], {%5, %6, %7, "
      "%8};\n}" ::"l"(place),
      "f"(a[0]), "f"(a[1]), "f"(a[2]), "f"(a[3]), "f"(b[0]), "f"(b[1]), "f"(b[2]), "f"(b[3]), "r"(number),
      "r"(rows[0]), "r"(rows[1])
      : "memory");
}

// A lane's columns of D, in rows from `row` on: two pieces of one element or of four. Pieces of four need
// contiguous columns, rows of D that start on multiples of 16 bytes, and an N that is a multiple of 4.
struct Lane {
  const Output& output;
  int row, col, rows[2];  // rows that exist for each piece; none if its columns do not exist
  T* first;

  __device__ __forceinline__ Lane(const Output& output, int row, int col)
      : output(output), row(row), col(col) {
    for (int i = 0; i < 2; ++i) rows[i] = col + i * 32 < output.N ? output.M - row : 0;
    first = output.D + row * output.d_row + col;
    asm("" : "+l"(first));  // opaque, so that each row's address is an addition, not a new product
  }
  // Store to the row `down` below the first.
  template <typename Piece>
  __device__ __forceinline__ void store(int down, const Piece (&pieces)[2]) const {
    if constexpr (IN_ORDER) return store_two(first + down * output.d_row, pieces, down, rows);
#pragma unroll
    for (int i = 0; i < 2; ++i)
      if (down < rows[i])
        reinterpret_cast<Piece&>(output.line(row + down)[output.modes.to_col(col + i * 32)]) = pieces[i];
  }
};
