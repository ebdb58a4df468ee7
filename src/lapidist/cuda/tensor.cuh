// What the tensor-core kernels share: their types, 16-byte chunks of a row, and the way out through shared
// memory.
//
// T and ElementB are half, __nv_bfloat16, float (multiplied as tf32), double, int8, uint8, __nv_fp8_e4m3 or
// __nv_fp8_e5m2, of one size: B is moved like A and multiplied as what it is.
//
// ALIGNED (here) promises that every row of A, B and C starts on 16 bytes; the extents are free. Borders: a
// row or column that does not exist is filled with zeros on the way to shared memory, for a zero adds nothing
// whatever it meets.
#pragma once

#include "config.cuh"
#include "epilogue.cuh"
#include "modes.cuh"
#include "ptx.cuh"

typedef signed char int8;
typedef unsigned char uint8;

// A result as it is stored: rounded; 8-bit types stop at their largest number (floats do so in the
// constructor).
template <typename Result>
struct Stored {
  static __device__ __forceinline__ Result of(Scalar value) { return Result(value); }
};
template <>
struct Stored<int8> {
  static __device__ __forceinline__ int8 of(Scalar value) {
    return value < -128 ? -128 : value > 127 ? 127 : value;
  }
};
template <>
struct Stored<uint8> {
  static __device__ __forceinline__ uint8 of(Scalar value) {
    return value < 0 ? 0 : value > 255 ? 255 : value;
  }
};

template <typename Element, int Count>
struct alignas(sizeof(Element) * Count < 16 ? sizeof(Element) * Count : 16) Vector {
  Element at[Count];
};

constexpr int CHUNK = 16 / sizeof(T);  // elements of a chunk: what one thread moves at once
typedef Vector<T, CHUNK> Chunk;

__device__ __forceinline__ Chunk& chunk_at(T* place) { return *reinterpret_cast<Chunk*>(place); }
__device__ __forceinline__ const Chunk& chunk_at(const T* place) {
  return *reinterpret_cast<const Chunk*>(place);
}

// A register of an operand as the tensor core wants it: tf32 is float rounded to 10 bits, nothing else
// changes. (The instruction ignores the other bits, which would truncate.)
__device__ __forceinline__ double rounded(double value) { return value; }
__device__ __forceinline__ unsigned rounded(unsigned bits) {
#if __CUDA_ARCH__ >= 900
  if constexpr (sizeof(T) == 4) asm("cvt.rn.tf32.f32 %0, %1;" : "=r"(bits) : "f"(__uint_as_float(bits)));
#else  // halves away from zero; on Hopper this one takes two instructions
  if constexpr (sizeof(T) == 4) asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(__uint_as_float(bits)));
#endif
  return bits;
}

// Rows x Cols elements to shared memory by all threads, one at a time; only m x n of them exist, the rest is
// zero.
template <int Rows, int Cols, int Pitch, int Threads>
__device__ __forceinline__ void copy_elements(T* smem, const T* gmem, i64 pitch, int m, int n) {
#pragma unroll(ALIGNED ? 1 : 16)  // where this is the rare way, registers are dearer than time
  for (int i = threadIdx.x; i < Rows * Cols; i += Threads) {
    const int row = i / Cols, col = i % Cols;
    smem[row * Pitch + col] = row < m && col < n ? gmem[row * pitch + col] : T(0);
  }
}

// A chunk to shared memory, of which `exist` elements (any number, also none or more) are there; the rest
// becomes zero. It does not wait where cp.async can do it. `whole`, a constant, says that all of it is there:
// a length costs eight instructions.
__device__ __forceinline__ void copy_chunk(T* smem, const T* gmem, int exist, bool whole) {
  if (ALIGNED && whole) {
    cp_async<16>(smem, gmem);
  } else if constexpr (ALIGNED) {
    const int bytes = exist * static_cast<int>(sizeof(T));
    cp_async_fill<16>(smem, gmem, bytes < 0 ? 0 : min_of(bytes, 16));
  } else if constexpr (sizeof(T) >= 4) {
#pragma unroll
    for (int i = 0; i < CHUNK; ++i)
      cp_async_fill<sizeof(T) < 4 ? 4 : sizeof(T)>(smem + i, gmem + i, i < exist ? sizeof(T) : 0);
  } else {
    Chunk chunk = {};
#pragma unroll
    for (int i = 0; i < CHUNK; ++i)
      if (i < exist) chunk.at[i] = gmem[i];
    chunk_at(smem) = chunk;
  }
}

// D = alpha sums + beta C for the sums that a warp laid down in shared memory, Rows x Cols of them, rows
// Pitch apart. Neighbouring lanes store neighbouring vectors: whole sectors, whatever the layout in registers
// was.
template <int Rows, int Cols, int Pitch, typename Laid IF_EPILOGUE(, typename Finish)>
__device__ __forceinline__ void store_patch(const Laid* patch, const Out* C, i64 c_row, i64 c_col, Out* D,
                                            i64 d_row, int row, int col, int M, int N, Scalar alpha,
                                            Scalar beta IF_EPILOGUE(, const Finish& finish),
                                            const Modes& modes = Modes()) {
  static_assert(C_VECTOR == D_VECTOR || C_VECTOR == 1, "C is read as D is written, or one by one");
  static_assert(Rows * Cols % (32 * D_VECTOR) == 0 && Cols % D_VECTOR == 0,
                "a warp stores whole vectors, all lanes alike");
#pragma unroll 4
  for (int i = threadIdx.x % 32 * D_VECTOR; i < Rows * Cols; i += 32 * D_VECTOR) {
    const int m = row + i / Cols, n = col + i % Cols;
    if (m >= M || n >= N) continue;
    const Vector<Laid, D_VECTOR> sums =
        *reinterpret_cast<const Vector<Laid, D_VECTOR>*>(&patch[i / Cols * Pitch + i % Cols]);
    const bool whole = N - n >= D_VECTOR;
    Vector<Out, D_VECTOR> c;
    if (ADDEND && beta != Scalar(0)) {  // beta = 0 never reads C: NaN there must not leak
      if (C_VECTOR > 1 && whole) {
        c = *reinterpret_cast<const Vector<Out, D_VECTOR>*>(C + modes.c_row(m) * c_row + n);
      } else {
#pragma unroll
        for (int e = 0; e < D_VECTOR; ++e)
          if (e < N - n) c.at[e] = C[modes.c_row(m) * c_row + modes.c_col(n + e) * c_col];
      }
    }
#if EPILOGUE_PAIRS
    Scalar two[2];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const Scalar sum = ALPHA ? alpha * Scalar(sums.at[e]) : Scalar(sums.at[e]);
      two[e] = !ADDEND || beta == Scalar(0) ? sum : sum + beta * Scalar(c.at[e]);
    }
    fused::AllResults results;
    finish.apply_two(two[0], two[1], finish.fetch_two(m, n), results);
    finish.store_two(m, n, results);
#else
#pragma unroll
    for (int e = 0; e < D_VECTOR; ++e) {
      const Scalar sum = ALPHA ? alpha * Scalar(sums.at[e]) : Scalar(sums.at[e]);
      c.at[e] = Stored<Out>::of(IF_EPILOGUE(finish)(
          !ADDEND || beta == Scalar(0) ? sum : sum + beta * Scalar(c.at[e]) IF_EPILOGUE(, m, n + e)));
    }
    if (EPILOGUE_STORES) continue;  // the function has stored all
    if constexpr (BOTH_HALVES)      // for the second store
#pragma unroll
      for (int e = 0; e < D_VECTOR; ++e)
        const_cast<Laid*>(patch)[i / Cols * Pitch + i % Cols + e] = Laid(c.at[e]);
    // Above the diagonal another tile's mirror image is stored.
    const int last = BOTH_HALVES ? min_of(N - 1, m) : N - 1;
    Out* const to = D + modes.to_row(m, d_row) + modes.to_col(n);
    if (last - n >= D_VECTOR - 1) {
      *reinterpret_cast<Vector<Out, D_VECTOR>*>(to) = c;
    } else {
#pragma unroll
      for (int e = 0; e < D_VECTOR; ++e)
        if ((!BOTH_HALVES && e == 0) || e <= last - n) to[e] = c.at[e];
    }
#endif
  }
}

// The patch's elements below the diagonal of a symmetric D, as store_patch left them, to their mirror images.
template <int Rows, int Cols, int Pitch, typename Laid>
__device__ __forceinline__ void store_mirrored_patch(const Laid* patch, Out* D, i64 d_row, int row, int col,
                                                     int M) {
  __syncwarp();  // lanes read what others wrote
#pragma unroll 4
  for (int i = threadIdx.x % 32; i < Rows * Cols; i += 32) {
    const int down = i % Rows, across = i / Rows, m = row + down, n = col + across;
    if (m < M && n < m) D[n * d_row + m] = Out(patch[down * Pitch + across]);
  }
}
