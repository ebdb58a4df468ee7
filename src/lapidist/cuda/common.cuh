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
// ALIGNED (set by the host from pointers, strides and extents) promises that every row starts on a multiple
// of four elements and that N and K are multiples of four: then four elements move in one instruction.
// Without it the same kernel moves them one by one.
#pragma once

#include "config.cuh"

typedef long long i64;

// One of two types.
template <bool First, typename One, typename Other>
struct Choose {
  typedef One Type;
};
template <typename One, typename Other>
struct Choose<false, One, Other> {
  typedef Other Type;
};

// Accumulators: half products are summed in float, the others in their own type.
template <typename Element>
struct Accumulator {
  typedef float type;
};
template <>
struct Accumulator<double> {
  typedef double type;
};
typedef Accumulator<T>::type Acc;

// For blocks that walk from tile to tile in kernels that ask for it (THREAD_ANEW). The thread's number is
// read anew, so that what is derived from it is not carried in registers through the main loop; what comes
// from memory, but is the same in all lanes, goes to uniform registers. Scheduled mma.sync ran 3 to 22 %
// faster, the SIMT family as much faster as slower.
constexpr bool READ_ANEW = SCHEDULED && THREAD_ANEW;
__device__ __forceinline__ unsigned thread_now() {
  if constexpr (!READ_ANEW) return threadIdx.x;
  unsigned number;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(number));
  return number;
}
__device__ __forceinline__ int uniform(int value) {
  return READ_ANEW ? __shfl_sync(0xffffffffu, value, 0) : value;
}

__device__ __forceinline__ int min_of(int a, int b) { return a < b ? a : b; }
__device__ __forceinline__ int max_of(int a, int b) { return a < b ? b : a; }
__device__ __forceinline__ int ceil_div(int a, int b) {
  return static_cast<int>((static_cast<unsigned>(a) + b - 1) / b);
}

// For non-negative numbers: a signed division takes a third longer.
__device__ __forceinline__ int floor_div(int whole, int part) {
  return static_cast<unsigned>(whole) / static_cast<unsigned>(part);
}

// A division takes some hundred cycles, which delay a block's first load. Most first tiles are in the first
// matrix and band, and need none.
__device__ __forceinline__ int quotient(int whole, int part) {
  if (whole < part) return 0;
  return floor_div(whole, part);
}

// Four neighbouring elements of a row: 16 bytes of float (LDG.128), 8 of half, two times 16 of double.
template <typename Element>
struct alignas(sizeof(Element) * 4 < 16 ? sizeof(Element) * 4 : 16) Four {
  Element at[4];
};

// Four elements of shared memory, at a multiple of four elements: one move.
__device__ __forceinline__ Four<T>& four_at(T* smem) { return *reinterpret_cast<Four<T>*>(smem); }

// Where to load the Four at `col` from, so that it stays in its row: done once, before the K loop.
__device__ __forceinline__ int clamp4(int col, int last) { return min_of(col, ALIGNED ? last - 3 : last); }

// from[0 .. 3]. Without ALIGNED, elements past from[last] repeat that one: they only feed results that no one
// stores.
__device__ __forceinline__ Four<T> load4(const T* from, int last) {
  if constexpr (ALIGNED) return *reinterpret_cast<const Four<T>*>(from);
  Four<T> four;
#pragma unroll
  for (int i = 0; i < 4; ++i) four.at[i] = from[min_of(i, last)];
  return four;
}

// C[row, col] = alpha * acc + beta * C[row, col], if the element exists. beta = 0 never reads C: NaN there
// must not leak.
__device__ __forceinline__ void store(T* C, i64 ldc, int row, int col, int M, int N, Acc alpha, Acc acc,
                                      Acc beta) {
  if (row >= M || col >= N) return;
  T* c = C + row * ldc + col;
  acc *= alpha;
  if (beta != Acc(0)) acc += beta * Acc(*c);
  *c = T(acc);
}

// The same for four neighbours; col is a multiple of four.
__device__ __forceinline__ void store4(T* C, i64 ldc, int row, int col, int M, int N, Acc alpha,
                                       const Acc* acc, Acc beta) {
  if constexpr (ALIGNED) {
    if (row >= M || col >= N) return;
    Four<T>* c = reinterpret_cast<Four<T>*>(C + row * ldc + col);
    Four<T> four;
    if (beta != Acc(0)) four = *c;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      four.at[i] = beta == Acc(0) ? T(alpha * acc[i]) : T(alpha * acc[i] + beta * Acc(four.at[i]));
    *c = four;
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) store(C, ldc, row, col + i, M, N, alpha, acc[i], beta);
  }
}

// ---- thread tiles (rung 08 on): Rows x Cols results of one thread ----
//
// A thread owns groups of four rows that lie RowStep apart, the first at `row`, and groups of four columns
// likewise: its element (m, n) is C[row + m / 4 * RowStep + m % 4, col + n / 4 * ColStep + n % 4]. With steps
// of four it is a solid tile. With RowGroup = 1 its rows lie RowStep apart one by one (rung 15 on).

template <int Step, int Group = 4>
__device__ __forceinline__ int spread(int i) {
  return i / Group * Step + i % Group;
}

// A thread's elements of one k: fours of shared memory that lie Step apart.
template <int Step, int Count>
__device__ __forceinline__ void read_fragment(Acc (&fragment)[Count], T* smem) {
#pragma unroll
  for (int i = 0; i < Count; i += 4) {
    const Four<T> four = four_at(smem + i / 4 * Step);
#pragma unroll
    for (int j = 0; j < 4; ++j) fragment[i + j] = Acc(four.at[j]);
  }
}

// acc += a b^T: Rows + Cols elements feed Rows x Cols fmas.
template <int Rows, int Cols>
__device__ __forceinline__ void outer_product(Acc (&acc)[Rows][Cols], const Acc (&a)[Rows],
                                              const Acc (&b)[Cols]) {
#pragma unroll
  for (int m = 0; m < Rows; ++m)
#pragma unroll
    for (int n = 0; n < Cols; ++n) acc[m][n] += a[m] * b[n];
}

// acc += a b^T, of one row of acc.
template <int Cols>
__device__ __forceinline__ void multiply_row(Acc (&acc)[Cols], Acc a, const Acc (&b)[Cols]) {
#pragma unroll
  for (int n = 0; n < Cols; ++n) acc[n] += a * b[n];
}

// The first `count` products of each element, straight from global memory: the K % BK that fill no tile.
template <int RowStep, int ColStep, int RowGroup = 4, int Rows, int Cols>
__device__ __forceinline__ void first_products(Acc (&acc)[Rows][Cols], int count, const T* A, i64 lda,
                                               int row, int M, const T* B, i64 ldb, int col, int N) {
#pragma unroll
  // all rows' addresses at once would take the main loop's registers
  for (int group = 0; group < Rows; group += 4) {
#pragma unroll 1
    for (int k = 0; k < count; ++k) {
      Acc a[4], b[Cols];
#pragma unroll
      for (int m = 0; m < 4; ++m)
        a[m] = Acc(A[min_of(row + spread<RowStep, RowGroup>(group + m), M - 1) * lda + k]);
#pragma unroll
      for (int n = 0; n < Cols; ++n) b[n] = Acc(B[k * ldb + min_of(col + spread<ColStep>(n), N - 1)]);
#pragma unroll
      for (int m = 0; m < 4; ++m)
#pragma unroll
        for (int n = 0; n < Cols; ++n) acc[group + m][n] += a[m] * b[n];
    }
  }
}

template <int RowStep, int ColStep, int RowGroup = 4, int Rows, int Cols>
__device__ __forceinline__ void store_tile(T* C, i64 ldc, int row, int col, int M, int N, Acc alpha,
                                           const Acc (&acc)[Rows][Cols], Acc beta) {
  T* mine = C + row * ldc + col;  // all else below is an offset known to the compiler
#pragma unroll
  for (int m = 0; m < Rows; ++m)
#pragma unroll
    for (int n = 0; n < Cols; n += 4)
      store4(mine, ldc, spread<RowStep, RowGroup>(m), spread<ColStep>(n), M - row, N - col, alpha, &acc[m][n],
             beta);
}
