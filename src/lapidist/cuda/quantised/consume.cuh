// Warps of quantised/streamed.cu that multiply x of 16 bits: codes are decoded into its type.
#pragma once
#include "config.cuh"
#include "quantised/stages.cuh"

// Codes are multiplied by their factors (quantised/decode.cuh). FACTORS_FIRST: so they are by factors of any format,
// and registers hold one set of sums: products of codes and factors then round, as in quantised/decoded.cu.
constexpr bool ROUNDED = FACTORS_FIRST && GROUP != 0 && !FOLDS<T>;
constexpr bool FOLDED = FOLDS<T> || ROUNDED;
template <typename One, typename Other>
constexpr bool SAME = false;
template <typename One>
constexpr bool SAME<One, One> = true;
static_assert(!ROUNDED || SAME<T, Scale>, "factors are not rounded themselves");
constexpr bool SUMMED_AT_ONCE = FOLDED || GROUP == 0;
static_assert(SUMMED_AT_ONCE || BN <= 128, "registers hold two sets of sums");

// Of 64 steps of k, as a stage has them. They are loaded before products begin, which hide how long that takes.
struct Loaded {
  Codes<FORMAT> codes;
  Scales scales;
  __device__ __forceinline__ void load(const char* stage, const Place& place, int block) {
    const uint4* const from = reinterpret_cast<const uint4*>(stage + place.codes);
#pragma unroll
    for (int i = 0; i < codes.VECTORS; ++i) codes.at[i] = from[(block * 4 * codes.VECTORS + i) * 32];
    if constexpr (FOLDED) scales = scales_of(stage, place, block);
  }
};

// What a thread multiplies: the fragments of 64 steps of k, decoded. FOLDED: by their factors too.
struct Decoded {
  Fragment at[4];
  __device__ __forceinline__ void decode(const Loaded& loaded, const char* stage, const Place& place,
                                         int block) {
    unsigned zeros[GROUPS][2], larger[GROUPS][2];
    zero_points(stage, place, block, zeros);
    const bool again = powers_of<T>(loaded.scales, larger);
    decode_by(loaded, zeros, larger);
    if (ROUNDED || again) multiply_again(loaded.scales);
  }
  __device__ __forceinline__ void decode_by(const Loaded& loaded, const unsigned (&zeros)[GROUPS][2],
                                            const unsigned (&larger)[GROUPS][2]) {
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      const int group = step * GROUPS / 4;
      loaded.codes.template decode<T>(step, zeros[group], larger[group], at[step]);
    }
  }
  static __device__ __forceinline__ void zero_points(const char* stage, const Place& place, int block,
                                                     unsigned (&zeros)[GROUPS][2]) {
#pragma unroll
    for (int i = 0; i < 2 * GROUPS; ++i) {
      zeros[i / 2][i % 2] = place.zeros[i % 2];
      if constexpr (ZEROS && GROUP) zeros[i / 2][i % 2] = points_of(stage, place, block).at[i / 2][i % 2];
    }
  }
  __device__ __forceinline__ void multiply_again(const Scales& scales) {
#pragma unroll
    for (int step = 0; step < 4; ++step) multiply_by<T>(scales, step * GROUPS / 4, at[step]);
  }
};

// Sums of a group, multiplied by the factors of the thread's two columns.
__device__ __forceinline__ void add_group(Sum (&sums)[BN / 2], const Sum (&of_group)[BN / 2], Scale first,
                                          Scale second) {
  const float factors[2] = {factor_of(first), factor_of(second)};
#pragma unroll
  for (int i = 0; i < BN / 2; ++i) sums[i] += factors[i / 2 % 2] * of_group[i];
}

// Steps of k that wgmma adds up before factors multiply: of a stage, a block or half of it.
constexpr int BATCH = GROUP == 32 && !FOLDED ? 2 : 4;

// Products of a block are under way while the next one is decoded and begun: at the earliest their wait is there.
constexpr bool ROLLING = SUMMED_AT_ONCE, LONG = !SUMMED_AT_ONCE && GROUP == 128;

struct Consumer {
  Loaded loaded;
  Decoded decoded[2];
  Sum sums[BN / 2], of_group[BN / 2];
  Place place;

  __device__ __forceinline__ void begin(unsigned word, int block, int first) {
    const Descriptor x = descriptor(word + block * X_BYTES / 16);
    products_begin();
#pragma unroll
    for (int step = first; step < first + BATCH; ++step) {
      const Descriptor steps = x + step_along_k<false>(step);
      if constexpr (SUMMED_AT_ONCE) {
        Wgmma<BN>::multiply(sums, decoded[block % 2].at[step], steps);
      } else {
        const int old = step > first || (LONG && block % 2 > 0);
        Wgmma<BN>::multiply(of_group, decoded[block % 2].at[step], steps, old);
      }
    }
    products_commit();
  }

  // A block of the stage. What follows is loaded before its first products, and decoded behind them. `last`: of the
  // stage.
  template <typename Load, typename Decode>
  __device__ __forceinline__ void multiply(const char* stage, unsigned word, int block, bool last,
                                           Load load_next, Decode decode_next) {
    load_next();
#pragma unroll
    for (int first = 0; first < 4; first += BATCH) {
      begin(word, block, first);
      if (ROLLING || (LONG && block % 2 > 0)) products_wait<1>();  // whose fragments are replaced
      if (first == 0) decode_next();
      if (ROLLING || (LONG && !last)) continue;
      const Scales of_columns = scales_of(stage, place, block);  // loaded while products are under way
      products_wait<0>();
      sums_arrive(of_group);
      const int group = first / 2 % GROUPS;
      add_group(sums, of_group, of_columns.at[group][0], of_columns.at[group][1]);
    }
  }

  __device__ __forceinline__ Consumer(int warp, int lane, const char* points, int tile)
      : place(warp, lane, lane) {
    if constexpr (ZEROS && GROUP == 0) {
      const Zeros& both = reinterpret_cast<const Zeros*>(points)[tile * 32 + warp % 4 * 8 + lane / 4];
      place.zeros[0] = both.at[0][0];
      place.zeros[1] = both.at[0][1];
    }
  }

  __device__ __forceinline__ void run(char* room, Turn& turn, const Range& range) {
#pragma unroll
    for (int i = 0; i < BN / 2; ++i) sums[i] = of_group[i] = 0;
    if (range.begin < range.end) {
      wait_for_stage(turn);
      loaded.load(room + turn.at, place, 0);
      decoded[0].decode(loaded, room + turn.at, place, 0);
    }
    const auto leave = [&](unsigned empty) {
      __syncwarp();
      if (threadIdx.x % 32 == 0) barrier_arrive(empty);
    };
    const int whole = range.whole_stages();
    for (int number = range.begin; number < whole; ++number) {
      const Turn here = turn;
      const char* const stage = room + here.at;
      turn.advance();
      const auto load_stage = [&] {
        if (number + 1 == range.end) return;
        wait_for_stage(turn);
        loaded.load(room + turn.at, place, 0);
      };
#pragma unroll
      for (int block = 0; block < BLOCKS; ++block) {
        const bool last = block + 1 == BLOCKS;
        const auto load_next = [&] {
          if (last) load_stage();
          else loaded.load(stage, place, block + 1);
        };
        // Behind the last stage what was loaded before is decoded once more, which no branch is worth.
        multiply(stage, here.word, block, block % 2 > 0, load_next, [&] {
          if (ROLLING && block == 0 && number > range.begin)
            leave(here.empty() - 8 + (here.slot == 0 ? STAGES * 8 : 0));
          if (last) decoded[0].decode(loaded, room + turn.at, place, 0);
          else decoded[(block + 1) % 2].decode(loaded, stage, place, block + 1);
        });
      }
      if (!ROLLING) leave(here.empty());
    }
    if (whole < range.end) multiply(room + turn.at, turn.word, 0, true, [] {}, [] {});
    if constexpr (ROLLING) {
      products_wait<0>();
      sums_arrive(sums);
    }
  }
};
