// Ways out for the sums of wgmma: C = alpha sums + beta C from a thread's registers, or through patches of shared memory whole
// rows at a time.
#pragma once

#include "wgmma.cuh"

// ---- from the registers: C points to the thread's first element, which is followed by rows x cols of the matrix ----

// sums = alpha sums + beta C. beta = 0 never reads C: NaN there must not leak.
template <int Count>
__device__ __forceinline__ void scale_sums(const Out* C, i64 c_row, i64 c_col, int rows, int cols, Scalar alpha, Sum* sums,
                                           Scalar beta) {
#pragma unroll
  for (int i = 0; i < Count; ++i) sums[i] *= alpha;
  if (beta == Scalar(0)) return;
#pragma unroll
  for (int i = 0; i < Count; ++i) {
    const int m = i / 2 % 2 * 8, n = i / 4 * 8 + i % 2;
    if (m < rows && n < cols) sums[i] += beta * Scalar(C[m * c_row + n * c_col]);
  }
}

template <int Count>
__device__ __forceinline__ void store_sums(Out* C, i64 ldc, int rows, int cols, Scalar alpha, Sum (&sums)[Count], Scalar beta) {
  scale_sums<Count>(C, ldc, 1, rows, cols, alpha, sums, beta);
#pragma unroll
  for (int i = 0; i < Count; ++i) {
    const int m = i / 2 % 2 * 8, n = i / 4 * 8 + i % 2;
    if (m < rows && n < cols) C[m * ldc + n] = Stored<Out>::of(sums[i]);
  }
}

// ---- a patch: 16 rows x Cols of one warp in shared memory, in the swizzle of the copy engine for rows of that width ----

// As wide as the swizzle can be and the tile's columns allow.
__device__ constexpr int patch_columns(int columns) {
  for (int width = 128; width > 32; width /= 2)
    if (columns % (width / sizeof(Out)) == 0) return width / sizeof(Out);
  return 32 / sizeof(Out);
}

template <int Cols> struct Patch {
  static constexpr int PITCH = Cols * sizeof(Out);
  static_assert(PITCH == 128 || PITCH == 64 || PITCH == 32, "the copy engine swizzles rows of 32, 64 and 128 bytes");
  char bytes[16 * PITCH];

  // 16-byte pieces trade places by row, so that eight rows of a column lie in different banks.
  __device__ __forceinline__ unsigned place(int row, int byte) const {
    const int offset = row * PITCH + byte;
    return shared_address(bytes) + (offset ^ (offset >> 7 & (PITCH / 16 - 1)) << 4);
  }

  // The warp's sums of Cols columns; sums[4 j + 2 h + i] as wgmma leaves them.
  __device__ __forceinline__ void lay(const Sum* sums) {
    const int lane = threadIdx.x % 32;
    if constexpr (sizeof(Out) == 2) {
#pragma unroll
      for (int j = 0; j < Cols / 16; ++j)
        store_matrices(place(lane % 16, j * 32 + lane / 16 * 16), pair(sums + 8 * j), pair(sums + 8 * j + 2),
                       pair(sums + 8 * j + 4), pair(sums + 8 * j + 6));
    } else {
#pragma unroll
      for (int i = 0; i < Cols / 2; i += 2)
        *static_cast<Vector<Out, 2>*>(__cvta_shared_to_generic(
            place(lane / 4 + i / 2 % 2 * 8, (i / 4 * 8 + lane % 4 * 2) * sizeof(Out)))) = {Stored<Out>::of(sums[i]), Stored<Out>::of(sums[i + 1])};
    }
  }
  __device__ __forceinline__ static unsigned pair(const Sum* sums) {
    const Vector<Out, 2> two = {Stored<Out>::of(sums[0]), Stored<Out>::of(sums[1])};
    return reinterpret_cast<const unsigned&>(two);
  }

  // To global memory by plain stores, D_VECTOR elements at once: where rows of D do not start on 16 bytes.
  __device__ __forceinline__ void copy_out(Out* D, i64 pitch, int rows, int cols) const {
    constexpr int Width = D_VECTOR;
    typedef Vector<Out, Width> Some;
#pragma unroll 4
    for (int i = threadIdx.x % 32 * Width; i < 16 * Cols; i += 32 * Width) {
      const int row = i / Cols, col = i % Cols;
      if (row >= rows) break;
      const Some some = *static_cast<const Some*>(__cvta_shared_to_generic(place(row, col * sizeof(Out))));
      if (cols - col >= Width) {
        *reinterpret_cast<Some*>(D + row * pitch + col) = some;
      } else {
#pragma unroll
        for (int e = 0; e < Width; ++e)
          if (col + e < cols) D[row * pitch + col + e] = some.at[e];
      }
    }
  }
};
