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

__device__ __forceinline__ float power_of_two(float exponent) {
  float found;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(found) : "f"(exponent));
  return found;
}

// By a reciprocal that is off by one unit in the last place, where a quotient takes a branch, and a power of
// two, where expf takes six instructions more. Neither has subnormal numbers, which would take four. The power's
// exponent is off by x 2^-24, so the result is where x < 0.
__device__ __forceinline__ float sigmoid(float x) {
  float found;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(found) : "f"(1 + power_of_two(x * -1.44269504f)));
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
// the instructions of 0.5 x (1 + erf(x / sqrt 2)), which takes two polynomials. Off by 6 x 2^-24 |x|; h itself by
// a five-hundredth where t is 4.5, as 1 - erf is there; beyond 8 nothing is left of it.
__device__ __forceinline__ float gelu(float x) {
  const float t = size_up_to(x, 8);
  float power = 2.60729448e-05f;
  power = power * t - 7.01836136e-04f;
  power = power * t + 7.85068795e-03f;
  power = power * t - 5.30585125e-02f;
  power = power * t - 4.59022164e-01f;
  power = power * t - 1.15112734f;
  power = power * t - 9.99999583e-01f;
  return fmaxf(x, 0) - t * power_of_two(power);
}
__device__ __forceinline__ double gelu(double x) {
  return x < -40 ? 0 : 0.5 * x * (1 + erf(x * 0.70710678118654752));
}

// Its derivative: h(t) + t h'(t) left of 0, with t = |x|, and 1 less that on the right. A polynomial times a power
// of two, whose exponent was fitted with it: 14 instructions in place of some forty of erff and expf. Off by
// 4 x 2^-24.
__device__ __forceinline__ float gelu_slope(float x) {
  const float t = size_up_to(x, 8);
  const float power = power_of_two(-t * (6.88901246e-01f * t + 1.30273199f));
  float share = -1.66593425e-04f;
  share = share * t - 5.17856854e-04f;
  share = share * t - 9.30462684e-03f;
  share = share * t - 3.37435342e-02f;
  share = share * t - 1.63324013e-01f;
  share = share * t - 2.77886599e-01f;
  share = share * t - 3.46391529e-01f;
  share = share * t + 0.5f;
  return 0.5f + copysignf(0.5f - share * power, x);
}
__device__ __forceinline__ double gelu_slope(double x) {
  const double bounded = x < -40 ? -40 : x > 40 ? 40 : x;
  return 0.5 * (1 + erf(bounded * 0.70710678118654752)) +
         bounded * exp(-0.5 * bounded * bounded) * 0.39894228040143268;
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
