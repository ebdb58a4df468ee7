// What becomes of a finished sum before it is converted to D's type: a caller's function, as the host traced it.
//
//   EPILOGUE            its body: statements over `sum`, `row` and `col`, which return a value. Without it there is none,
//                       and no code for it
//   EPILOGUE_OPERANDS   how many operands the launch passes: arrays, or numbers
//
// A sum meets it once, after alpha, factors and beta C. Rows and columns are those of D.
#pragma once

#ifdef EPILOGUE
#define IF_EPILOGUE(...) __VA_ARGS__
#else
#define IF_EPILOGUE(...)
#endif

#if defined(EPILOGUE) && EPILOGUE_OPERANDS
#define EPILOGUE_PARAMETER , const __grid_constant__ fused::Operands epilogue_operands
#define EPILOGUE_PASSED &epilogue_operands
#else
#define EPILOGUE_PARAMETER
#define EPILOGUE_PASSED nullptr
#endif

#ifdef EPILOGUE
namespace fused {

// ---- functions, for both types that are reckoned in; NaN is as NumPy has it ----

__device__ __forceinline__ float absolute(float x) { return fabsf(x); }
__device__ __forceinline__ double absolute(double x) { return fabs(x); }
__device__ __forceinline__ float exponential(float x) { return expf(x); }
__device__ __forceinline__ double exponential(double x) { return exp(x); }
__device__ __forceinline__ float logarithm(float x) { return logf(x); }
__device__ __forceinline__ double logarithm(double x) { return log(x); }
__device__ __forceinline__ float hyperbolic(float x) { return tanhf(x); }
__device__ __forceinline__ double hyperbolic(double x) { return tanh(x); }
__device__ __forceinline__ float error_function(float x) { return erff(x); }
__device__ __forceinline__ double error_function(double x) { return erf(x); }
__device__ __forceinline__ float root(float x) { return sqrtf(x); }
__device__ __forceinline__ double root(double x) { return sqrt(x); }
__device__ __forceinline__ float reciprocal_root(float x) { return rsqrtf(x); }
__device__ __forceinline__ double reciprocal_root(double x) { return rsqrt(x); }
__device__ __forceinline__ float down(float x) { return floorf(x); }
__device__ __forceinline__ double down(double x) { return floor(x); }
__device__ __forceinline__ float up(float x) { return ceilf(x); }
__device__ __forceinline__ double up(double x) { return ceil(x); }
__device__ __forceinline__ float cut(float x) { return truncf(x); }
__device__ __forceinline__ double cut(double x) { return trunc(x); }
__device__ __forceinline__ float nearest(float x) { return rintf(x); }
__device__ __forceinline__ double nearest(double x) { return rint(x); }
__device__ __forceinline__ float infinity() { return __int_as_float(0x7f800000); }
__device__ __forceinline__ float not_a_number() { return __int_as_float(0x7fffffff); }

template <typename V>
__device__ __forceinline__ V minimum(V x, V y) {
  return x < y || x != x ? x : y;
}
template <typename V>
__device__ __forceinline__ V maximum(V x, V y) {
  return x > y || x != x ? x : y;
}

// ---- types of operands: what lies in memory, and its value ----

struct Float64 {
  typedef double Stored;
  static __device__ __forceinline__ double value(double stored) { return stored; }
};
struct Float32 {
  typedef float Stored;
  static __device__ __forceinline__ float value(float stored) { return stored; }
};
struct Float16 {
  typedef unsigned short Stored;
  static __device__ __forceinline__ float value(Stored stored) {
    float found;
    asm("cvt.f32.f16 %0, %1;" : "=f"(found) : "h"(stored));
    return found;
  }
};
struct BFloat16 {
  typedef unsigned short Stored;
  static __device__ __forceinline__ float value(Stored stored) {
    return __int_as_float(static_cast<unsigned>(stored) << 16);
  }
};
struct E5M2 {  // the upper half of a half
  typedef unsigned char Stored;
  static __device__ __forceinline__ float value(Stored stored) {
    return Float16::value(static_cast<unsigned short>(stored << 8));
  }
};
struct E4M3 {  // as a half it is 2^8 times too small; all ones are NaN
  typedef unsigned char Stored;
  static __device__ __forceinline__ float value(Stored stored) {
    const unsigned size = stored & 0x7f;
    const float found = 256 * Float16::value(static_cast<unsigned short>((stored & 0x80) << 8 | size << 7));
    return size == 0x7f ? not_a_number() : found;
  }
};
template <typename Whole>
struct Integer {
  typedef Whole Stored;
  static __device__ __forceinline__ Whole value(Whole stored) { return stored; }
};
typedef Integer<long long> Int64;
typedef Integer<int> Int32;
typedef Integer<signed char> Int8;
typedef Integer<unsigned char> UInt8;

// ---- a value rounded to a type on its way ----

template <typename V>
__device__ __forceinline__ V rounded_to_float32(V x) {
  return static_cast<float>(x);
}
__device__ __forceinline__ float rounded_to_float16(float x) {
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return Float16::value(bits);
}
__device__ __forceinline__ double rounded_to_float16(double x) {
  unsigned short bits;
  asm("cvt.rn.f16.f64 %0, %1;" : "=h"(bits) : "d"(x));
  return Float16::value(bits);
}
// To nearest even, by whole numbers: older chips have no instruction.
template <typename V>
__device__ __forceinline__ V rounded_to_bfloat16(V x) {
  const float single = static_cast<float>(x);
  const unsigned bits = __float_as_uint(single), rounded = bits + 0x7fff + (bits >> 16 & 1);
  return single != single ? single : __int_as_float(rounded & 0xffff0000);
}

// ---- operands, and the function ----

// An array's address, or a number's bits; elements to the next row and column, and along the batch.
struct Operand {
  long long at, row, col, inner, outer;
};
struct Operands {
  Operand of[EPILOGUE_OPERANDS > 0 ? EPILOGUE_OPERANDS : 1];
};

// Where operands lie row by row, as D does.
struct InOrder {
  __device__ __forceinline__ static long long c_row(int row) { return row; }
  __device__ __forceinline__ static long long c_col(int col) { return col; }
};

// An element's, in the operands; `pair`: the even column of two neighbours, of which it is number `second`.
struct Spot {
  long long row, col, pair;
  int second;
};

template <typename Stored>
struct alignas(2 * sizeof(Stored)) Two {
  Stored at[2];
};

// Of one matrix of the batch. `Lines` says which row and column of the operands belong to one of the product.
template <typename Lines>
struct Epilogue {
  const Operands* operands;
  long long inner, outer;
  int M, N;
  Lines lines;

  __device__ __forceinline__ Epilogue(const Operands* operands, long long inner, long long outer, int M,
                                      int N, const Lines& lines)
      : operands(operands), inner(inner), outer(outer), M(M), N(N), lines(lines) {}

  // ByRow, ByCol: whether it changes from row to row, from column to column. ByCol 2: neighbours lie together,
  // so two of them are one load, which the compiler finds to be the same for both.
  template <typename Type, int ByRow, int ByCol>
  __device__ __forceinline__ auto load(int number, const Spot& spot) const {
    typedef typename Type::Stored Stored;
    const Operand& o = operands->of[number];
    const Stored* const line = reinterpret_cast<const Stored*>(o.at) + inner * o.inner + outer * o.outer +
                               (ByRow ? spot.row * o.row : 0);
    if constexpr (ByCol == 2) {
      const Two<Stored> two = *reinterpret_cast<const Two<Stored>*>(line + spot.pair);
      return Type::value(spot.second ? two.at[1] : two.at[0]);
    } else {
      return Type::value(line[ByCol ? spot.col * o.col : 0]);
    }
  }
  __device__ __forceinline__ float number(int number, float) const {
    return __int_as_float(static_cast<int>(operands->of[number].at));
  }
  __device__ __forceinline__ double number(int number, double) const {
    return __longlong_as_double(operands->of[number].at);
  }

  // Of a pair of columns the first, or the second. Where a tile hangs over the edge, the last row or column
  // stands for what is not there: nobody stores it.
  template <typename V>
  __device__ __forceinline__ V of_pair(V sum, int row, int pair, int second) const {
    const int col = pair + second;
    const Spot spot = {lines.c_row(row < M ? row : M - 1), lines.c_col(col < N ? col : N - 1),
                       pair < N ? pair : N - 2, second};
    EPILOGUE
  }
  template <typename V>
  __device__ __forceinline__ V operator()(V sum, int row, int col) const {
    return of_pair(sum, row, col & ~1, col & 1);
  }
};

// For a thread's sums, those of rows that exist.
template <int Rows, int Cols, typename V, typename Function, typename RowOf, typename ColOf>
__device__ __forceinline__ void finish(V (&sums)[Rows][Cols], const Function& function, RowOf row_of,
                                       ColOf col_of) {
#pragma unroll
  for (int i = 0; i < Rows; ++i) {
    if (row_of(i) >= function.M) continue;
#pragma unroll
    for (int j = 0; j < Cols; ++j) sums[i][j] = function(sums[i][j], row_of(i), col_of(j));
  }
}

}  // namespace fused
#endif
