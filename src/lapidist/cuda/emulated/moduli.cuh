// Moduli whose remainders fit into int8, and what the Chinese remainder theorem needs of them: all constants.
#pragma once

#include "config.cuh"

typedef long long i64;
constexpr int NO_NUMBER = -(1 << 30);  // the exponent of lines with infinities or NaN

// Words of 32 bits, the lowest first: whole numbers below 2^128.
struct Wide {
  unsigned words[4];
};

struct Moduli {
  int at[MODULI];
};

// The largest numbers up to 256 that share no factor.
__device__ constexpr Moduli moduli() {
  Moduli all = {};
  int count = 0;
  for (int number = 256; count < MODULI; --number) {
    bool shares = false;
    for (int i = 0; i < count; ++i) {
      int a = all.at[i], b = number;
      while (b) {
        const int rest = a % b;
        a = b, b = rest;
      }
      shares |= a > 1;
    }
    if (!shares) all.at[count++] = number;
  }
  return all;
}

// The product of all moduli but one; of all, if `left_out` is none of them.
__device__ constexpr Wide product(int left_out) {
  Wide wide = {{1, 0, 0, 0}};
  for (int i = 0; i < MODULI; ++i) {
    if (i == left_out) continue;
    unsigned long long carry = 0;
    for (int w = 0; w < 4; ++w) {
      carry += static_cast<unsigned long long>(wide.words[w]) * moduli().at[i];
      wide.words[w] = static_cast<unsigned>(carry), carry >>= 32;
    }
  }
  return wide;
}

__device__ constexpr int power_of_two(int exponent, int modulus) {
  int power = 1;
  for (int i = 0; i < exponent; ++i) power = power * 2 % modulus;
  return power;
}

// What the product of the other moduli times this is one of, modulo the modulus.
__device__ constexpr int inverse_of_others(int i) {
  const int modulus = moduli().at[i];
  int others = 1, inverse = 1;
  for (int j = 0; j < MODULI; ++j) others = j == i ? others : others * moduli().at[j] % modulus;
  while (others * inverse % modulus != 1) ++inverse;
  return inverse;
}

__device__ constexpr int centred(int remainder, int modulus) {
  return remainder > modulus / 2 ? remainder - modulus : remainder;
}
