// What becomes of a finished sum before it is converted to D's type: a caller's function, as the host traced it.
//
//   EPILOGUE            its body: statements over `sum` and what was fetched, which return a value. Without it
//                       there is none, and no code for it
//   EPILOGUE_OPERANDS   how many operands the launch passes: arrays, or numbers
//   EPILOGUE_KINDS      what each of them is, behind a comma each
//   EPILOGUE_TILES      how many of them have a value for each element of D
//   EPILOGUE_SHORT      1: it is a few instructions
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

// By a reciprocal that is off by one unit in the last place: a quotient takes a branch.
__device__ __forceinline__ float sigmoid(float x) {
  float found;
  asm("rcp.approx.f32 %0, %1;" : "=f"(found) : "f"(1 + expf(-x)));
  return found;
}
__device__ __forceinline__ double sigmoid(double x) { return 1 / (1 + exp(-x)); }

// |x|, or `most` if that is less; NaN stays.
__device__ __forceinline__ float size_up_to(float x, float most) {
#if __CUDA_ARCH__ >= 800
  float found;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(found) : "f"(fabsf(x)), "f"(most));
  return found;
#else
  return fabsf(x) > most ? most : fabsf(x);
#endif
}

// max(x, 0) - |x| h(|x|), where h(t), the normal numbers' share beyond t, is 2 to the power of a polynomial: half
// the instructions of 0.5 x (1 + erf(x / sqrt 2)), which takes two polynomials. Off by 7 x 2^-24 |x|; beyond 8
// nothing is left of h.
__device__ __forceinline__ float gelu(float x) {
  const float t = size_up_to(x, 8);
  float power = -1.7058115e-06f;
  power = power * t + 2.5302227e-05f;
  power = power * t - 1.1573194e-04f;
  power = power * t - 3.1945314e-04f;
  power = power * t + 7.3265712e-03f;
  power = power * t - 5.2707308e-02f;
  power = power * t - 4.5911929e-01f;
  power = power * t - 1.1511222f;
  power = power * t - 9.9999898e-01f;
  float beyond;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(beyond) : "f"(power));
  return fmaxf(x, 0) - t * beyond;
}
__device__ __forceinline__ double gelu(double x) {
  return x < -40 ? 0 : 0.5 * x * (1 + erf(x * 0.70710678118654752));
}

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

template <typename Stored>
struct alignas(2 * sizeof(Stored)) Two {
  Stored at[2];
};

// Where a sum's operands are: its row, its column, and that of its neighbour. Where a tile hangs over the edge,
// the last row or column stands for what is not there: nobody stores it.
struct Spot {
  long long row, col[2];
};

// An operand that is an array. ByRow, ByCol: whether it changes from row to row, from column to column. ByCol
// 2: neighbours lie together, and the first of two is in an even column.
template <typename Type, int ByRow, int ByCol>
struct Array {
  typedef Two<typename Type::Stored> Held;

  // Of two neighbours, or of the first alone.
  template <bool Both>
  static __device__ __forceinline__ void fetch(Held& to, const Operand& o, const Spot& spot, long long inner,
                                               long long outer) {
    const auto* const line = reinterpret_cast<const typename Type::Stored*>(o.at) + inner * o.inner +
                             outer * o.outer + (ByRow ? spot.row * o.row : 0);
    if constexpr (Both && ByCol == 2) {
      to = *reinterpret_cast<const Held*>(line + spot.col[0]);
    } else {
      to.at[0] = line[ByCol ? spot.col[0] * o.col : 0];
      if constexpr (Both) to.at[1] = ByCol ? line[spot.col[1] * o.col] : to.at[0];
    }
  }
  template <typename V>
  static __device__ __forceinline__ V value(const Held& held, const Operand&, int which) {
    return Type::value(held.at[which]);
  }
};

// One that is a number, passed with the launch.
struct Number {
  struct Held {};
  template <bool Both>
  static __device__ __forceinline__ void fetch(Held&, const Operand&, const Spot&, long long, long long) {}
  template <typename V>
  static __device__ __forceinline__ V value(const Held&, const Operand& o, int) {
    if constexpr (sizeof(V) == 8) return __longlong_as_double(o.at);
    else return __int_as_float(static_cast<int>(o.at));
  }
};

// What was fetched for two neighbours of a row: of each operand, from number First on.
template <int First, typename... Kinds>
struct Fetched {
  template <bool Both>
  __device__ __forceinline__ void fetch(const Operands&, const Spot&, long long, long long) {}
};
template <int First, typename Kind, typename... Kinds>
struct Fetched<First, Kind, Kinds...> {
  typename Kind::Held held;
  Fetched<First + 1, Kinds...> others;

  template <bool Both>
  __device__ __forceinline__ void fetch(const Operands& operands, const Spot& spot, long long inner,
                                        long long outer) {
    Kind::template fetch<Both>(held, operands.of[First], spot, inner, outer);
    others.template fetch<Both>(operands, spot, inner, outer);
  }
  template <typename V, int Which>
  __device__ __forceinline__ V value(const Operands* operands, int which) const {
    if constexpr (Which == First) return Kind::template value<V>(held, operands->of[First], which);
    else return others.template value<V, Which>(operands, which);
  }
};
typedef Fetched<0 EPILOGUE_KINDS> AllFetched;

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

  // Both: `col` is even, and its neighbour's come too.
  template <bool Both>
  __device__ __forceinline__ AllFetched fetch(int row, int col) const {
    const int last = Both && N % 2 == 0 ? N - 2 : N - 1, first = col < last ? col : last;
    const Spot spot = {lines.c_row(row < M ? row : M - 1),
                       {lines.c_col(first), lines.c_col(first + 1 < N ? first + 1 : first)}};
    AllFetched found;
    found.template fetch<Both>(*operands, spot, inner, outer);
    return found;
  }
  // The function, of a sum and what was fetched for it.
  template <typename V>
  __device__ __forceinline__ V apply(V sum, const AllFetched& fetched, int which) const {
    EPILOGUE
  }
  template <typename V>
  __device__ __forceinline__ V operator()(V sum, int row, int col) const {
    return apply(sum, fetch<false>(row, col), 0);
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
