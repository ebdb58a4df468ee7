// What becomes of a finished sum before it is converted to D's type: a caller's function, as the host traced it.
//
// config.cuh has the function's body, EPILOGUE: statements over `sum` and what was fetched, which return a
// value.
//
// A sum meets it once, after alpha, factors and beta C. Rows and columns are those of D.
#pragma once

#include "config.cuh"

#if FUSED
#define IF_EPILOGUE(...) __VA_ARGS__
#else
#define IF_EPILOGUE(...)
#endif

#if EPILOGUE_OPERANDS
#define EPILOGUE_PARAMETER , const __grid_constant__ fused::Operands epilogue_operands
#define EPILOGUE_PASSED &epilogue_operands
#else
#define EPILOGUE_PARAMETER
#define EPILOGUE_PASSED nullptr
#endif

#if FUSED
#include "epilogue_values.cuh"

namespace fused {

// Where operands lie row by row, as D does.
struct InOrder {
  __device__ __forceinline__ static long long c_row(int row) { return row; }
  __device__ __forceinline__ static long long c_col(int col) { return col; }
};

// Of one matrix of the batch. `Lines` says which row and column of the operands belong to one of the product.
template <typename Lines>
struct Epilogue {
  const Operands* operands;
  long long inner, outer;
  int M, N;
  Lines lines;
  mutable typename AllResults::Kept kept;  // copies may leave theirs besides: the larger one stays

  __device__ __forceinline__ Epilogue(const Operands* operands, long long inner, long long outer, int M,
                                      int N, const Lines& lines)
      : operands(operands), inner(inner), outer(outer), M(M), N(EPILOGUE_PAIRS ? N / 2 : N), lines(lines) {}
#if EPILOGUE_KEEPS
  __device__ __forceinline__ ~Epilogue() { kept.leave(stored()); }
#endif
  __device__ __forceinline__ const Operand* stored() const {
    return operands->of + EPILOGUE_OPERANDS - EPILOGUE_STORED;
  }

  // Both: `col` is even, and its neighbour's come too.
  template <bool Both, int Pairs = 0>
  __device__ __forceinline__ AllFetched fetch(int row, int col) const {
    const int last = Both && N % 2 == 0 ? N - 2 : N - 1, first = col < last ? col : last;
    const Spot spot = {lines.c_row(row < M ? row : M - 1),
                       {lines.c_col(first), lines.c_col(first + 1 < N ? first + 1 : first)}};
    AllFetched found;
    found.template fetch<Both, Pairs>(*operands, spot, inner, outer);
    return found;
  }
  // The function, of a sum and what was fetched for it; or of a pair.
#if EPILOGUE_PAIRS
  template <typename V>
  __device__ __forceinline__ void apply(const V (&sum)[2], const AllFetched& fetched,
                                        AllResults& results) const {
    const int which = 0;
    EPILOGUE
  }
#else
  template <typename V>
  __device__ __forceinline__ V apply(V sum, const AllFetched& fetched, AllResults& results, int which) const {
    EPILOGUE
  }
#endif
  // Likewise; of what does not exist nothing.
  template <bool Both, int Pairs = 0>
  __device__ __forceinline__ void store(int row, int col, const AllResults& results) const {
    if (EPILOGUE_STORED == 0 || row >= M || col >= N) return;
    const bool both = col + 1 < N;
    const Spot spot = {lines.c_row(row), {lines.c_col(col), lines.c_col(both ? col + 1 : col)}};
    results.template store<Both, Pairs>(kept, stored(), spot, both, inner, outer);
  }

  // ---- for two neighbours, the first in an even column ----

  template <int Pairs = 0>
  __device__ __forceinline__ AllFetched fetch_two(int row, int col) const {
    if constexpr (EPILOGUE_PAIRS) return fetch<false, Pairs>(row, col / 2);
    else return fetch<true, Pairs>(row, col);
  }
  template <int Pairs = 0>
  __device__ __forceinline__ void store_two(int row, int col, const AllResults& results) const {
    if constexpr (EPILOGUE_PAIRS) store<false, Pairs>(row, col / 2, results);
    else store<true, Pairs>(row, col, results);
  }
  template <typename V>
  __device__ __forceinline__ void apply_two(V& first, V& second, const AllFetched& fetched,
                                            AllResults& results) const {
#if EPILOGUE_PAIRS
    apply<V>({first, second}, fetched, results);
#else
    first = apply(first, fetched, results, 0);
    second = apply(second, fetched, results, 1);
#endif
  }

#if !EPILOGUE_PAIRS
  template <typename V>
  __device__ __forceinline__ V operator()(V sum, int row, int col) const {
    AllResults results;
    const V found = apply(sum, fetch<false>(row, col), results, 0);
    store<false>(row, col, results);
    return found;
  }
#endif
};

// For a thread's sums, those of rows that exist. Neighbours may have changed places.
template <int Rows, int Cols, typename V, typename Function, typename RowOf, typename ColOf>
__device__ __forceinline__ void finish(V (&sums)[Rows][Cols], const Function& function, RowOf row_of,
                                       ColOf col_of) {
#pragma unroll
  for (int i = 0; i < Rows; ++i) {
    if (row_of(i) >= function.M) continue;
#if EPILOGUE_PAIRS
#pragma unroll
    for (int j = 0; j < Cols; j += 2) {
      const bool swapped = col_of(j) % 2 > 0;
      V first = swapped ? sums[i][j + 1] : sums[i][j], second = swapped ? sums[i][j] : sums[i][j + 1];
      const int col = col_of(j) - swapped;
      AllResults results;
      function.apply_two(first, second, function.fetch_two(row_of(i), col), results);
      function.store_two(row_of(i), col, results);
    }
#else
#pragma unroll
    for (int j = 0; j < Cols; ++j) sums[i][j] = function(sums[i][j], row_of(i), col_of(j));
#endif
  }
}

}  // namespace fused
#else
namespace fused {
struct Operands;  // none are passed
}
#endif
