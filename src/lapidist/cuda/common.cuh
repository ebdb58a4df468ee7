// What every kernel shares: element types, groups of four elements, the border rules and the epilogue store.
//
// All matrices are row-major: element (row, col) of A lies at A[row * lda + col].
//
// Borders. A tile may hang over the edge of its matrix.
//  - Rows and columns of C: a thread clamps the index it loads from, once, before the K loop. What it computes from a
//    repeated row or column is never stored. So nothing inside the K loop checks M or N.
//  - K: the K % BK products that fill no tile are done first, straight from global memory (see rung 04), so the tile loop
//    sees whole tiles only.
//
// ALIGNED (set by the host from pointers, strides and extents) promises that every row starts on a multiple of
// four elements and that N and K are multiples of four: then four elements move in one instruction. Without it the same
// kernel moves them one by one.
#pragma once

#ifndef ELEMENT
#define ELEMENT float
#endif
#ifndef ALIGNED
#define ALIGNED 0
#endif

#define ELEMENT_IS_half 1
#define CONCATENATE_(a, b) a##b
#define CONCATENATE(a, b) CONCATENATE_(a, b)
#if CONCATENATE(ELEMENT_IS_, ELEMENT)
#include <cuda_fp16.h>
#endif

typedef ELEMENT T;
typedef long long i64;

// Accumulators: half products are summed in float, the others in their own type.
template <typename Element> struct Accumulator { typedef float type; };
template <> struct Accumulator<double> { typedef double type; };
typedef Accumulator<T>::type Acc;

__device__ __forceinline__ int min_of(int a, int b) { return a < b ? a : b; }
__device__ __forceinline__ int ceil_div(int a, int b) { return (a + b - 1) / b; }

// Four neighbouring elements of a row: 16 bytes of float (LDG.128), 8 of half, two times 16 of double.
template <typename Element> struct alignas(sizeof(Element) * 4 < 16 ? sizeof(Element) * 4 : 16) Four { Element at[4]; };

// row[col .. col + 3]. Without ALIGNED, columns past `last` repeat the last one: they only feed results that no one stores.
__device__ __forceinline__ Four<T> load4(const T* row, int col, int last) {
#if ALIGNED
  return *reinterpret_cast<const Four<T>*>(row + min_of(col, last - 3));
#else
  Four<T> four;
#pragma unroll
  for (int i = 0; i < 4; ++i) four.at[i] = row[min_of(col + i, last)];
  return four;
#endif
}

// C[row, col] = alpha * acc + beta * C[row, col], if the element exists. beta = 0 never reads C: NaN there must not leak.
__device__ __forceinline__ void store(T* C, i64 ldc, int row, int col, int M, int N, Acc alpha, Acc acc, Acc beta) {
  if (row >= M || col >= N) return;
  T* c = C + row * ldc + col;
  *c = beta == Acc(0) ? T(alpha * acc) : T(alpha * acc + beta * Acc(*c));
}

// The same for four neighbours; col is a multiple of four.
__device__ __forceinline__ void store4(T* C, i64 ldc, int row, int col, int M, int N, Acc alpha, const Acc* acc, Acc beta) {
#if ALIGNED
  if (row >= M || col >= N) return;
  Four<T>* c = reinterpret_cast<Four<T>*>(C + row * ldc + col);
  Four<T> four;
  if (beta != Acc(0)) four = *c;
#pragma unroll
  for (int i = 0; i < 4; ++i) four.at[i] = beta == Acc(0) ? T(alpha * acc[i]) : T(alpha * acc[i] + beta * Acc(four.at[i]));
  *c = four;
#else
#pragma unroll
  for (int i = 0; i < 4; ++i) store(C, ldc, row, col + i, M, N, alpha, acc[i], beta);
#endif
}
