// Matrices whose lines do not start on 16 bytes: the copy engine refuses them, so all blocks first copy them into a workspace
// where they do. Reading and writing them once is small beside what cp.async or plain loads would cost in every tile.
//
//   line in memory     ..[e0 e1 e2 | e3 e4 e5 e6 | e7 ..         16-byte pieces that do not start where the line does
//   two pieces, shifted  [e0 e1 e2   e3][e4 e5 e6   e7]...       one piece of the copy: two loads, shifts, one store
//
// Then the blocks wait for each other: all of them must be on the chip at once (a cooperative launch).
#pragma once

#include "hopper.cuh"
#include "sharing.cuh"

constexpr int PACKING_FLAGS = 64;  // ints, of which two are used: what follows in a workspace keeps its alignment

struct alignas(16) Words { unsigned at[4]; };

// `lines` lines of `length` touching elements, `pitch` apart, to lines `to_pitch` apart; all warps of the grid take lines in
// turn. Elements past a line's end, up to the 16 bytes, become whatever follows it.
template <typename Element>
__device__ __forceinline__ void pack_lines(Element* to, i64 to_pitch, const Element* from, i64 pitch, int lines, int length) {
  constexpr int PER_PIECE = 16 / sizeof(Element);
  const int warps = blockDim.x / 32, lane = threadIdx.x % 32;
  const char* begin = reinterpret_cast<const char*>(from);
  const char* end = reinterpret_cast<const char*>(from + (lines - 1) * pitch + length);
  for (int line = blockIdx.x * warps + threadIdx.x / 32; line < lines; line += gridDim.x * warps) {
    const Element* source = from + line * pitch;
    Element* target = to + line * to_pitch;
    const unsigned skew = reinterpret_cast<unsigned long long>(source) % 16;
    const char* pieces = reinterpret_cast<const char*>(source) - skew;
#pragma unroll 4
    for (int at = lane * PER_PIECE; at < length; at += 32 * PER_PIECE) {
      const char* piece = pieces + at * sizeof(Element);
      if (piece >= begin && piece + 32 <= end) {
        const Words low = *reinterpret_cast<const Words*>(piece), high = *reinterpret_cast<const Words*>(piece + 16);
        unsigned words[8] = {low.at[0], low.at[1], low.at[2], low.at[3], high.at[0], high.at[1], high.at[2], high.at[3]};
#pragma unroll
        for (int i = 0; i < 6; ++i) words[i] = skew & 8 ? words[i + 2] : words[i];
#pragma unroll
        for (int i = 0; i < 5; ++i) words[i] = skew & 4 ? words[i + 1] : words[i];
        Words packed;
#pragma unroll
        for (int i = 0; i < 4; ++i) packed.at[i] = __funnelshift_r(words[i], words[i + 1], skew % 4 * 8);
        *reinterpret_cast<Words*>(target + at) = packed;
      } else {  // the first and the last pieces of the matrix: nothing outside it is read
        for (int i = 0; i < PER_PIECE && at + i < length; ++i) target[at + i] = source[at + i];
      }
    }
  }
}

// The same turned: element i of line j comes to line i, place j. Squares of SIDE x SIDE go through `shared`.
template <typename Element>
__device__ __forceinline__ void pack_turned(Element* to, i64 to_pitch, const Element* from, i64 pitch, int lines, int length,
                                            Element* shared) {
  constexpr int SIDE = 64, PITCH = SIDE + 4 / sizeof(Element);  // columns of a square lie in different banks
  const int across = ceil_div(length, SIDE), squares = across * ceil_div(lines, SIDE);
  for (int square = blockIdx.x; square < squares; square += gridDim.x) {
    const int line = square / across * SIDE, place = square % across * SIDE;
#pragma unroll 8
    for (int i = threadIdx.x; i < SIDE * SIDE; i += blockDim.x) {
      const int y = line + i / SIDE, x = place + i % SIDE;
      if (y < lines && x < length) shared[i / SIDE * PITCH + i % SIDE] = from[y * pitch + x];
    }
    __syncthreads();
#pragma unroll 8
    for (int i = threadIdx.x; i < SIDE * SIDE; i += blockDim.x) {
      const int y = place + i / SIDE, x = line + i % SIDE;
      if (y < length && x < lines) to[y * to_pitch + x] = shared[i % SIDE * PITCH + i / SIDE];
    }
    __syncthreads();
  }
}

// An operand of `extent` rows (A) or columns (B). Turned: as it lies, and stays, m or n touch. Transpose: as it lies they do, but
// k shall. Lines of the copy are multiples of 16 bytes apart; returns how many elements it takes.
template <bool Turned, bool Transpose, typename Element>
__device__ __forceinline__ i64 pack(Element* to, const Element* from, i64 pitch, int extent, int k, char* shared) {
  constexpr int CHUNK = 16 / sizeof(Element);
  const int lines = Turned ? k : extent, length = Turned ? extent : k;
  const i64 to_pitch = ceil_div(length, CHUNK) * CHUNK;
  if constexpr (Transpose)
    pack_turned(to, to_pitch, from, pitch, length, lines, reinterpret_cast<Element*>(shared));
  else
    pack_lines(to, to_pitch, from, pitch, lines, length);
  return lines * to_pitch;
}

// What all blocks wrote before is there for the copy engine after. `flags`: two of them, zero before and after the launch. Of
// blocks that will have roles, the first SHARERS threads look at them.
__device__ __forceinline__ void meet_all_blocks(int* flags) {
  asm volatile("fence.proxy.async;" ::: "memory");
#ifdef SHARERS
  __syncthreads();
  if (threadIdx.x < SHARERS)
#endif
  {
    raise_flag(flags);
    wait_for_flag(flags, gridDim.x);
  }
#ifdef SHARERS
  __syncthreads();
#endif
  asm volatile("fence.proxy.async;" ::: "memory");
  if (threadIdx.x == 0) {  // the last one to leave puts both back
    int left;
    asm volatile("atom.relaxed.gpu.global.add.s32 %0, [%1], 1;" : "=r"(left) : "l"(flags + 1) : "memory");
    if (left == static_cast<int>(gridDim.x) - 1) reset_flag(flags), reset_flag(flags + 1);
  }
}
