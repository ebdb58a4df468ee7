// The functions of epilogues in float and in double. NaN is as NumPy has it.
#pragma once

#include "epilogue_types.cuh"

namespace fused {

// ---- functions ----

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
__device__ __forceinline__ float infinity() { return __int_as_float(0x7f800000); }

// By a reciprocal that is off by one unit in the last place, where a quotient takes a branch, and a power of
// two, where expf takes six instructions more. Neither has subnormal numbers, which would take four. The power's
// exponent is off by x 2^-24, so the result is where x < 0.
__device__ __forceinline__ float sigmoid(float x) {
  float power, found;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * -1.44269504f));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(found) : "f"(1 + power));
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

// ---- random words ----

// Philox4x32-10: four words from a counter of four and a key of two. philox.py has the same integers.
struct Words {
  unsigned at[4];
};
__device__ __forceinline__ Words philox(Words counter, unsigned key, unsigned second_key) {
  unsigned (&at)[4] = counter.at;
#pragma unroll
  for (int turn = 0; turn < 10; ++turn) {
    // halves of a product by themselves: from one of 64 bits the compiler goes on in 64 bits, with a third more
    // instructions
    const unsigned first = at[0], third = at[2];
    at[0] = __umulhi(0xcd9e8d57u, third) ^ at[1] ^ key;
    at[1] = 0xcd9e8d57u * third;
    at[2] = __umulhi(0xd2511f53u, first) ^ at[3] ^ second_key;
    at[3] = 0xd2511f53u * first;
    key += 0x9e3779b9u;
    second_key += 0xbb67ae85u;
  }
  return counter;
}

// Whether dropout keeps the element of that number: `p` is a constant, and what it drops.
__device__ __forceinline__ bool kept(unsigned long long seed, unsigned long long number, double p) {
  const Words counter = {{static_cast<unsigned>(number), static_cast<unsigned>(number >> 32), 0, 0}};
  const Words found = philox(counter, static_cast<unsigned>(seed), static_cast<unsigned>(seed >> 32));
  return found.at[0] >= static_cast<unsigned>(p * 4294967296.0);
}

// ---- a value rounded to a type on its way ----

template <typename V>
__device__ __forceinline__ V rounded_to_float32(V x) {
  return static_cast<float>(x);
}
template <typename V>
__device__ __forceinline__ V rounded_to_float16(V x) {
  return Float16::value(Float16::stored(x));
}
template <typename V>
__device__ __forceinline__ V rounded_to_bfloat16(V x) {
  const float single = static_cast<float>(x);
  return single != single ? single : BFloat16::value(BFloat16::upper(single));
}

}  // namespace fused
