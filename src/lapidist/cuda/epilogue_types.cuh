// The types of what epilogues read and store: what lies in memory, its value, and what is stored of a value.
#pragma once

namespace fused {

__device__ __forceinline__ float not_a_number() { return __int_as_float(0x7fffffff); }
__device__ __forceinline__ float nearest(float x) { return rintf(x); }
__device__ __forceinline__ double nearest(double x) { return rint(x); }

struct Float64 {
  typedef double Stored;
  static __device__ __forceinline__ double value(double stored) { return stored; }
  static __device__ __forceinline__ double stored(double value) { return value; }
};
struct Float32 {
  typedef float Stored;
  static __device__ __forceinline__ float value(float stored) { return stored; }
  template <typename V>
  static __device__ __forceinline__ float stored(V value) {
    return static_cast<float>(value);
  }
};
struct Float16 {
  typedef unsigned short Stored;
  static __device__ __forceinline__ float value(Stored stored) {
    float found;
    asm("cvt.f32.f16 %0, %1;" : "=f"(found) : "h"(stored));
    return found;
  }
  static __device__ __forceinline__ Stored stored(float value) {
    Stored bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
  }
  static __device__ __forceinline__ Stored stored(double value) {
    Stored bits;
    asm("cvt.rn.f16.f64 %0, %1;" : "=h"(bits) : "d"(value));
    return bits;
  }
};
struct BFloat16 {
  typedef unsigned short Stored;
  static __device__ __forceinline__ float value(Stored stored) {
    return __int_as_float(static_cast<unsigned>(stored) << 16);
  }
  // Of a number, to nearest even; by whole numbers, where chips have no instruction.
  static __device__ __forceinline__ Stored upper(float number) {
#if __CUDA_ARCH__ >= 800
    Stored found;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(found) : "f"(number));
    return found;
#else
    const unsigned bits = __float_as_uint(number);
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
#endif
  }
  template <typename V>
  static __device__ __forceinline__ Stored stored(V value) {
    const float single = static_cast<float>(value);
#if __CUDA_ARCH__ < 800
    if (single != single) return 0x7fff;
#endif
    return upper(single);
  }
};

// A float of 8 bits: so many of them behind the leading one, the least exponent of a normal number, the largest
// number. To nearest even; what is too large becomes the largest. By whole numbers, where chips have no
// instruction.
template <int Bits, int Least>
__device__ __forceinline__ unsigned char to_8_bits(float value, float largest) {
  const float size = fabsf(value) < largest ? fabsf(value) : largest;
  const unsigned sign = __float_as_uint(value) >> 24 & 0x80, bits = __float_as_uint(size);
  const float smallest = __int_as_float((Least + 127) << 23),
              steps = __int_as_float((Bits - Least + 127) << 23);
  const unsigned rounded = (bits + (1 << (22 - Bits)) - 1 + (bits >> (23 - Bits) & 1)) >> (23 - Bits);
  const unsigned normal = rounded - ((Least + 126) << Bits);
  const unsigned small = static_cast<unsigned>(nearest(size * steps));  // a whole number of the least steps
  return value != value ? 0x7f : sign | (size < smallest ? small : normal);
}
// What both such types have; Of::two converts two at once, where chips do.
template <typename Of, int Bits, int Least, int Largest>
struct EightBits {
  typedef unsigned char Stored;
  static __device__ __forceinline__ Stored stored(float value) {
#if __CUDA_ARCH__ >= 890
    return static_cast<Stored>(Of::two(value, 0));
#else
    return to_8_bits<Bits, Least>(value, Largest);
#endif
  }
};
struct E5M2 : EightBits<E5M2, 2, -14, 57344> {  // the upper half of a half
  static __device__ __forceinline__ float value(Stored stored) {
    return Float16::value(static_cast<unsigned short>(stored << 8));
  }
#if __CUDA_ARCH__ >= 890
  static __device__ __forceinline__ unsigned short two(float first, float second) {
    unsigned short found;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(found) : "f"(second), "f"(first));
    return found;
  }
#endif
};
struct E4M3 : EightBits<E4M3, 3, -6, 448> {  // as a half it is 2^8 times too small; all ones are NaN
  static __device__ __forceinline__ float value(Stored stored) {
    const unsigned size = stored & 0x7f;
    const float found = 256 * Float16::value(static_cast<unsigned short>((stored & 0x80) << 8 | size << 7));
    return size == 0x7f ? not_a_number() : found;
  }
#if __CUDA_ARCH__ >= 890
  static __device__ __forceinline__ unsigned short two(float first, float second) {
    unsigned short found;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(found) : "f"(second), "f"(first));
    return found;
  }
#endif
};

template <typename Whole>
struct Integer {
  typedef Whole Stored;
  static __device__ __forceinline__ Whole value(Whole stored) { return stored; }
};
typedef Integer<long long> Int64;
typedef Integer<int> Int32;
typedef Integer<short> Int16;
typedef Integer<unsigned long long> UInt64;
typedef Integer<unsigned> UInt32;
typedef Integer<unsigned short> UInt16;
// Of 8 bits: the nearest whole number, or the nearer bound; NaN is 0.
template <typename Whole, int Low, int High>
struct Byte : Integer<Whole> {
  template <typename V>
  static __device__ __forceinline__ Whole stored(V value) {
    const V whole = nearest(value);
    return static_cast<Whole>(static_cast<int>(!(whole >= Low) ? value != value ? 0 : Low
                                               : whole > High  ? High
                                                               : whole));
  }
};
typedef Byte<signed char, -128, 127> Int8;
typedef Byte<unsigned char, 0, 255> UInt8;
struct Bool : Integer<unsigned char> {
  template <typename V>
  static __device__ __forceinline__ unsigned char stored(V value) {
    return value != 0;
  }
};

}  // namespace fused
