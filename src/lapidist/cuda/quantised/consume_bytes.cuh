// Warps of quantised/streamed.cu that multiply x of 8 bits, e4m3 or int8: codes are decoded into its type, each
// exactly. Sums of a group leave the tensor core, and factors multiply them there, in float.
//
// An instruction has 32 steps of k, of which lane 4 g + t has 4 t to 4 t + 3 and 16 behind them. The order of
// quantised/decode.cuh is that of 16 steps. So a lane reads what two lanes of that order have, 2 (t % 2) and the
// next, and takes half of each word: of steps below 8 if t < 2.
#pragma once
#include "config.cuh"
#include "quantised/stages.cuh"

constexpr bool OF_FLOATS = FLOATS_OF_8_BITS;
static_assert(OF_FLOATS ? FORMAT != INT8 && FORMAT != NVFP4 : FORMAT == INT4 || FORMAT == INT8,
              "codes are exact in the type of x, and groups have whole instructions");
// Whole numbers are exact as long as k is below 2^17; sums of floats keep 14 bits in the tensor core.
constexpr bool SUMMED_AT_ONCE = GROUP == 0 && !OF_FLOATS;
// Decoded codes are smaller than what they mean: e4m3 has whole numbers up to 16 by 2^-9, in as many bits.
constexpr float LARGER = !OF_FLOATS        ? (FORMAT == INT4 && !ZEROS ? 0x1p-4f : 1)
                         : FORMAT == INT4  ? 0x1p9f
                         : FORMAT == MXFP4 ? 0x1p6f
                                           : 1;

// Bytes of two words by a selector; bit 3 of a place copies the sign over the byte.
__device__ __forceinline__ unsigned bytes_of(unsigned low, unsigned high, unsigned selector) {
  unsigned result;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(low), "r"(high), "r"(selector));
  return result;
}

// Differences of -16 to 15 as e4m3: `over` has 128 more in each byte.
__device__ __forceinline__ unsigned signs_apart(unsigned over) {
  const unsigned positive = bytes_of(over, over, 0xBA98);
  return (over ^ ~(positive & 0x7F7F7F7Fu)) + (~positive & 0x01010101u);
}
// Of columns g and g + 8, whose codes are the low and the high half of each byte.
__device__ __forceinline__ void decode_int4(unsigned codes, const unsigned (&zeros)[2], unsigned& first,
                                            unsigned& second) {
  if constexpr (ZEROS) {
    const unsigned over[2] = {masked(codes, 0x0F0F0F0Fu, 0x80808080u) - zeros[0],
                              masked(codes >> 4, 0x0F0F0F0Fu, 0x80808080u) - zeros[1]};
    first = OF_FLOATS ? signs_apart(over[0]) : over[0] ^ 0x80808080u;
    second = OF_FLOATS ? signs_apart(over[1]) : over[1] ^ 0x80808080u;
  } else if constexpr (OF_FLOATS) {  // magnitudes are the last 3 bits from 8 on, and 8 less these below
    const unsigned negative[2] = {~bytes_of(codes << 4, 0, 0xBA98), ~bytes_of(codes, 0, 0xBA98)};
    first = ((codes ^ negative[0]) & 0x07070707u) + (negative[0] & 0x81818181u);
    second = ((codes >> 4 ^ negative[1]) & 0x07070707u) + (negative[1] & 0x81818181u);
  } else {  // 16 times as large
    first = (codes << 4 & 0xF0F0F0F0u) ^ 0x80808080u;
    second = (codes & 0xF0F0F0F0u) ^ 0x80808080u;
  }
}
// Of e2m1, exponents and mantissas at bits 2 to 4, signs at bit 7. `one` and `other`: words of neighbours, as
// fragment_order.apart leaves them; `behind`: whether steps from 8 on are meant.
__device__ __forceinline__ void decode_e2m1(unsigned one, unsigned other, bool behind, unsigned& first,
                                            unsigned& second) {
  constexpr unsigned REST = 0x1C1C1C1Cu, SIGN = 0x80808080u;
  const int shift = behind ? 6 : 0;
  const unsigned low = bytes_of(one >> shift, other >> shift, 0x6420), high = bytes_of(one, other, 0x7531);
  first = (low << 2 & REST) | (high << (behind ? 5 : 6) & SIGN);
  second = ((behind ? high : low) >> (behind ? 3 : 1) & REST) | (high << (behind ? 4 : 3) & SIGN);
}

__device__ __forceinline__ unsigned word_of(const uint4& four, int i) {
  return i == 0 ? four.x : i == 1 ? four.y : i == 2 ? four.z : four.w;
}

// What a thread multiplies: the fragments of 64 steps of k.
struct Decoded {
  Fragment at[2];
  __device__ __forceinline__ void read(const char* stage, const Place& place, int block, bool behind) {
    unsigned zeros[GROUPS][2];
    zero_points(stage, place, block, zeros);
    const uint4* const from = reinterpret_cast<const uint4*>(stage + place.codes) + block * (CODES / 16);
    if constexpr (Codes<FORMAT>::VECTORS == 1) {
      const uint4 one = from[0], other = from[1];
      const unsigned half = behind ? 0x7531 : 0x6420;
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        unsigned (&to)[4] = at[step / 2];
        const int next = step % 2 * 2;
        if constexpr (FORMAT == MXFP4)
          decode_e2m1(word_of(one, step), word_of(other, step), behind, to[next], to[next + 1]);
        else
          decode_int4(bytes_of(word_of(one, step), word_of(other, step), half), zeros[step * GROUPS / 4],
                      to[next], to[next + 1]);
      }
    } else {
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        const uint4 one = from[step / 2 * 32], other = from[step / 2 * 32 + 1];
        const int word = step % 2 * 2;
        const unsigned low = behind ? word_of(one, word + 1) : word_of(one, word);
        const unsigned high = behind ? word_of(other, word + 1) : word_of(other, word);
        at[step / 2][word] = bytes_of(low, high, 0x5410);
        at[step / 2][word + 1] = bytes_of(low, high, 0x7632);
      }
    }
  }
  static __device__ __forceinline__ void zero_points(const char* stage, const Place& place, int block,
                                                     unsigned (&zeros)[GROUPS][2]) {
    if constexpr (ZEROS)
#pragma unroll
      for (int i = 0; i < 2 * GROUPS; ++i) {
        const unsigned zero = GROUP ? points_of(stage, place, block).at[i / 2][i % 2] : place.zeros[i % 2];
        zeros[i / 2][i % 2] = zero * 0x01010101u;
      }
  }
};

// Instructions of a block that add up before factors multiply, and groups that are summed before one wait: of 32
// of k a wait takes longer than the products, so both groups of a block have sums where registers hold them.
constexpr int BATCH = GROUP == 32 ? 1 : 2, TOGETHER = GROUP == 32 && BN <= 128 ? 2 : 1;

// Both blocks of a stage are summed before a wait.
constexpr bool LONG = GROUP % 128 == 0;

struct Consumer {
  Decoded decoded[2];
  float sums[BN / 2];
  Sum of_groups[TOGETHER][BN / 2];
  Place place;
  bool behind;

  // Sums of a group, multiplied by the factors of the thread's two columns. Of whole columns they follow later.
  __device__ __forceinline__ void add_group(const Sum (&of_group)[BN / 2], const char* stage, int block,
                                            int group) {
    float factors[2] = {1, 1};
    if constexpr (GROUP != 0) {
      const Scales& of_columns = scales_of(stage, place, block);
      factors[0] = factor_of(of_columns.at[group][0]);
      factors[1] = factor_of(of_columns.at[group][1]);
    }
#pragma unroll
    for (int i = 0; i < BN / 2; ++i) sums[i] += factors[i / 2 % 2] * static_cast<float>(of_group[i]);
  }

  // A block of the stage; behind its first products, `next` decodes what follows. `last`: of the stage.
  template <typename Next>
  __device__ __forceinline__ void multiply(const char* stage, unsigned word, int block, bool last,
                                           Next next) {
    const Descriptor x = descriptor(word + block / 2 * (X_BYTES / 16) + step_along_k<false>(block % 2 * 2));
#pragma unroll
    for (int first = 0; first < 2; first += BATCH * TOGETHER) {
      products_begin();
#pragma unroll
      for (int step = first; step < first + BATCH * TOGETHER; ++step) {
        const int old = SUMMED_AT_ONCE || step % BATCH > 0 || (LONG && block % 2 > 0);
        Wgmma<BN>::multiply(of_groups[step / BATCH % TOGETHER], decoded[block % 2].at[step],
                            x + step_along_k<false>(step), old);
      }
      products_commit();
      if (LONG && block % 2 > 0) products_wait<1>();  // whose fragments `next` replaces
      if (first == 0) next();
      if (LONG && !last) return;
      products_wait<0>();
#pragma unroll
      for (int i = 0; i < TOGETHER; ++i) sums_arrive(of_groups[i]);
      if constexpr (!SUMMED_AT_ONCE)
#pragma unroll
        for (int i = 0; i < TOGETHER; ++i) add_group(of_groups[i], stage, block, (first + i) % GROUPS);
    }
  }

  __device__ __forceinline__ Consumer(int warp, int lane, const char* points, int tile)
      : place(warp, lane, lane / 4 * 4 + lane % 2 * 2), behind(lane % 4 >= 2) {
    if constexpr (ZEROS && GROUP == 0) {
      const Zeros& both = reinterpret_cast<const Zeros*>(points)[tile * 32 + warp % 4 * 8 + lane / 4];
      place.zeros[0] = both.at[0][0];
      place.zeros[1] = both.at[0][1];
    }
  }

  __device__ __forceinline__ void run(char* room, Turn& turn, const Range& range) {
#pragma unroll
    for (int i = 0; i < BN / 2; ++i) sums[i] = of_groups[0][i] = 0;
    if (range.begin < range.end) {
      wait_for_stage(turn);
      decoded[0].read(room + turn.at, place, 0, behind);
    }
    const auto leave = [&](const Turn& here) {
      __syncwarp();
      if (threadIdx.x % 32 == 0) barrier_arrive(here.empty());
    };
    const int whole = range.whole_stages();
    for (int number = range.begin; number < whole; ++number) {
      const Turn here = turn;
      const char* const stage = room + here.at;
      turn.advance();
#pragma unroll
      for (int block = 0; block < BLOCKS; ++block)
        multiply(stage, here.word, block, block % 2 > 0, [&] {
          if (block + 1 < BLOCKS) {
            decoded[(block + 1) % 2].read(stage, place, block + 1, behind);
          } else if (number + 1 < range.end) {
            wait_for_stage(turn);
            decoded[0].read(room + turn.at, place, 0, behind);
          }
        });
      leave(here);
    }
    if (whole < range.end) {
      multiply(room + turn.at, turn.word, 0, true, [] {});
      leave(turn);
      turn.advance();
    }
    if constexpr (SUMMED_AT_ONCE) {
#pragma unroll
      for (int i = 0; i < BN / 2; ++i) sums[i] = static_cast<float>(of_groups[0][i]);
    }
  }
};
