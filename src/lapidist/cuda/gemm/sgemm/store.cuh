// The way out of a tile of gemm/sgemm.cu: D = alpha * sums + beta * C, to wherever D's rows and columns are.
//
// A thread holds quads of neighbours in a row, and eight lanes hold 32 of them. Where a quad leaves in one
// move, a warp writes whole lines of the caches. Where rows of D start anywhere it would write every fourth
// element, so a warp lays four of its rows down in shared memory first and takes them up along the row:
//
//   lay    lane 0: [0 .. 3]  lane 2: [4 .. 7]  lane 8: [8 .. 11] ...        take    lane 0: [0]  lane 1: [1]  lane 2: [2] ...
#pragma once

#include "addend.cuh"
#include "epilogue.cuh"
#include "gemm/sgemm/slices.cuh"

constexpr int PATCH_ROWS = 4, PATCH_COLS = 64;
// of a thread's rows that are written out: all of them were a fifth of the time to compile
#define WRITTEN (OWN_ROWS < 4 ? OWN_ROWS : 4)

// Four columns of a row of sums, in which neighbours have changed places.
__device__ __forceinline__ Four<T> quad(const Acc (&row)[TN], int first) {
  return {row[first + 1], row[first], row[first + 3], row[first + 2]};
}

struct Patch {
  T at[PATCH_ROWS][PATCH_COLS + 8];  // rows start 8 banks apart: 8 lanes lay down two quads of each

  // Row `number` of a lane's sums, one of `first`, first + 4, ...: registers have no index, so each is asked.
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

// rows and columns of D lie as they are counted
constexpr bool IN_ORDER = !SCATTER_ROWS && !SCATTER_COLS && !PERMUTED;

// One matrix of D.
struct Output {
  const Modes& modes;
  T* D;
  i64 d_row;
  int M, N;

  __device__ __forceinline__ T* line(int row) const { return D + modes.to_row(row, d_row); }
};

// Two pieces of row `number`, 32 columns apart, where columns have more `rows` than that. No branch: with one
// for each row, behind which its place was made anew, the way out was longer than the main loop.
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

// The columns of D that are a lane's, in rows from `row` on: two pieces, of one element or of four. Fours lie
// in memory as they do in the row, D's rows start on 16 bytes, and N is a whole number of fours.
struct Lane {
  const Output& output;
  int row, col, rows[2];  // how many rows there are: of a column that does not exist none
  T* first;

  __device__ __forceinline__ Lane(const Output& output, int row, int col)
      : output(output), row(row), col(col) {
    for (int i = 0; i < 2; ++i) rows[i] = col + i * 32 < output.N ? output.M - row : 0;
    first = output.D + row * output.d_row + col;
    asm("" : "+l"(first));  // from here on by steps: else each row's place is a product
  }
  // In the row `down` below the first.
  template <typename Piece>
  __device__ __forceinline__ void store(int down, const Piece (&pieces)[2]) const {
    if constexpr (IN_ORDER) return store_two(first + down * output.d_row, pieces, down, rows);
#pragma unroll
    for (int i = 0; i < 2; ++i)
      if (down < rows[i])
        reinterpret_cast<Piece&>(output.line(row + down)[output.modes.to_col(col + i * 32)]) = pieces[i];
  }
};
