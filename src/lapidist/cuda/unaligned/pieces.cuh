// Pieces of 16 bytes that do not start where the memory's do: two neighbours, shifted.
#pragma once

#include "common.cuh"

struct alignas(16) Words {
  unsigned at[4];
};

// The 16 bytes that start `skew` bytes, less than 16 and whole elements of Size bytes, into `low`; `high`
// follows it.
//
//   [ l0 l1 l2 l3 | h0 h1 h2 h3 ]      skew   8: two words further   4: one more   less: bytes
//         [ found      ] fifth                selp                   selp          shf, of two neighbours
//
// A statement for each half: there are dozens in a kernel, of which the compiler need not know more.
__device__ __forceinline__ void shift_by_words(const Words& low, const Words& high, unsigned skew,
                                               Words& found, unsigned& fifth) {
  asm("{\n.reg .pred eight, four;\n.reg .b32 bits, word<6>;\n"
      "and.b32 bits, %13, 8;\nsetp.ne.b32 eight, bits, 0;\n"
      "and.b32 bits, %13, 4;\nsetp.ne.b32 four, bits, 0;\n"
      "selp.b32 word0, %7, %5, eight;\nselp.b32 word1, %8, %6, eight;\n"
      "selp.b32 word2, %9, %7, eight;\nselp.b32 word3, %10, %8, eight;\n"
      "selp.b32 word4, %11, %9, eight;\nselp.b32 word5, %12, %10, eight;\n"
      "selp.b32 %0, word1, word0, four;\nselp.b32 %1, word2, word1, four;\n"
      "selp.b32 %2, word3, word2, four;\nselp.b32 %3, word4, word3, four;\n"
      "selp.b32 %4, word5, word4, four;\n}"
      : "=&r"(found.at[0]), "=&r"(found.at[1]), "=&r"(found.at[2]), "=&r"(found.at[3]), "=&r"(fifth)
      : "r"(low.at[0]), "r"(low.at[1]), "r"(low.at[2]), "r"(low.at[3]), "r"(high.at[0]), "r"(high.at[1]),
        "r"(high.at[2]), "r"(high.at[3]), "r"(skew));
}
__device__ __forceinline__ void shift_by_bytes(Words& found, unsigned fifth, unsigned skew) {
  asm("{\n.reg .b32 bits;\nand.b32 bits, %5, 3;\nshl.b32 bits, bits, 3;\n"
      "shf.r.wrap.b32 %0, %0, %1, bits;\nshf.r.wrap.b32 %1, %1, %2, bits;\n"
      "shf.r.wrap.b32 %2, %2, %3, bits;\nshf.r.wrap.b32 %3, %3, %4, bits;\n}"
      : "+r"(found.at[0]), "+r"(found.at[1]), "+r"(found.at[2]), "+r"(found.at[3])
      : "r"(fifth), "r"(skew));
}
template <int Size>
__device__ __forceinline__ Words shifted(const Words& low, const Words& high, unsigned skew) {
  Words found;
  unsigned fifth;
  shift_by_words(low, high, skew, found, fifth);
  if constexpr (Size < 4) shift_by_bytes(found, fifth, skew);
  return found;
}

template <typename Element>
__device__ __forceinline__ unsigned skew_of(const Element* place) {
  return reinterpret_cast<unsigned long long>(place) % 16;
}

// Loads that stand here, of what is wanted: compiler and assembler else use each before they ask for the next
// one, and behind branches loads wait for each other.
__device__ __forceinline__ void load_here(const void* place, bool wanted, Words& words) {
  asm volatile(
      "{.reg .pred wanted;\nsetp.ne.s32 wanted, %5, 0;\n@wanted ld.global.v4.u32 {%0, %1, %2, %3}, [%4];}"
      : "+r"(words.at[0]), "+r"(words.at[1]), "+r"(words.at[2]), "+r"(words.at[3])
      : "l"(place), "r"(static_cast<int>(wanted))
      : "memory");
}
template <int Size>
__device__ __forceinline__ void load_element_here(const void* place, bool wanted, unsigned& bits) {
#define LOAD_ELEMENT(type)                                                                              \
  asm volatile("{.reg .pred wanted;\nsetp.ne.s32 wanted, %2, 0;\n@wanted ld.global." type " %0, [%1];}" \
               : "+r"(bits)                                                                             \
               : "l"(place), "r"(static_cast<int>(wanted))                                              \
               : "memory")
  if constexpr (Size == 1) LOAD_ELEMENT("u8");
  else if constexpr (Size == 2) LOAD_ELEMENT("u16");
  else LOAD_ELEMENT("u32");
#undef LOAD_ELEMENT
}

// What may be read of a matrix: from its first element to its last one, whatever lies between its lines.
struct Readable {
  const char *begin, *end;
  template <typename Element>
  __device__ __forceinline__ Readable(const Element* from, i64 pitch, int lines, int length)
      : begin(reinterpret_cast<const char*>(from)),
        end(reinterpret_cast<const char*>(from + (lines - 1) * pitch + length)) {}

  // Whether the piece, or both pieces, that 16 bytes are in are inside.
  __device__ __forceinline__ bool holds(const void* first) const {
    const char* const piece = static_cast<const char*>(first) - skew_of(first);
    return (piece >= begin) & (piece + (skew_of(first) ? 32 : 16) <= end);
  }
  // Whether 32 bytes from the piece on are inside.
  __device__ __forceinline__ bool holds_pair(const void* first) const {
    const char* const piece = static_cast<const char*>(first) - skew_of(first);
    return (piece >= begin) & (piece + 32 <= end);
  }
  // 16 bytes, of which `exist` elements are in the line.
  template <typename Element>
  __device__ __forceinline__ Words piece(const Element* source, int exist) const {
    constexpr int COUNT = 16 / sizeof(Element), PER_WORD = 4 / sizeof(Element);
    const bool whole = holds(source);
    const char* const first = reinterpret_cast<const char*>(source) - skew_of(source);
    Words low = {}, high = {}, apart = {};
    unsigned each[COUNT];
    load_here(first, whole, low), load_here(first + 16, whole && skew_of(source) > 0, high);
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
      each[i] = 0, load_element_here<sizeof(Element)>(source + i, !whole && i < exist, each[i]);
#pragma unroll
    for (int i = 0; i < COUNT; ++i) apart.at[i / PER_WORD] |= each[i] << i % PER_WORD * 8 * sizeof(Element);
    const Words found = shifted<sizeof(Element)>(low, high, skew_of(source));
#pragma unroll
    for (int i = 0; i < 4; ++i) apart.at[i] = whole ? found.at[i] : apart.at[i];
    return apart;
  }
};

// 32 bytes, here: compiler and assembler else shift each piece before they load the next one, and there is
// one on its way. Nothing where they are not wanted; no branch, behind which loads would wait for each other.
__device__ __forceinline__ void load_pair_here(const char* place, bool wanted, Words& low, Words& high) {
  asm volatile(
      "{\n"
      ".reg .pred wanted;\n"
      "setp.ne.s32 wanted, %9, 0;\n"
      "@wanted ld.global.v4.u32 {%0, %1, %2, %3}, [%8];\n"
      "@wanted ld.global.v4.u32 {%4, %5, %6, %7}, [%8 + 16];\n"
      "}\n"
      : "=r"(low.at[0]), "=r"(low.at[1]), "=r"(low.at[2]), "=r"(low.at[3]), "=r"(high.at[0]),
        "=r"(high.at[1]), "=r"(high.at[2]), "=r"(high.at[3])
      : "l"(place), "r"(static_cast<int>(wanted))
      : "memory");
}

// In one store: behind a branch the compiler else makes four of it.
__device__ __forceinline__ void store_here(void* place, const Words& words) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(place), "r"(words.at[0]), "r"(words.at[1]),
               "r"(words.at[2]), "r"(words.at[3])
               : "memory");
}
