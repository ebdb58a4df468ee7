// The main loop of gemm/wgmma.cu's consumers: a warpgroup's part of a tile, step by step along k.
//
//   step   | wait full s | wgmma on s | commit | wait for the step before | free its stage | ...
//
// The next step's products are issued before those of the last step are waited for, so tensor cores do not
// idle. Promoted sums are the exception: CUDA cores add the products of each part of a step, while tensor
// cores run the other warpgroup's products. Everything else is done during products, so little more than
// additions lies between two of them.
//
//   promoted   | wgmma on a part | commit | read its factors | wait full s + 1 | wait | add | ...
#pragma once

#include "config.cuh"
#include "gemm/wgmma/skinny.cuh"
#include "gemm/wgmma/product.cuh"

template <typename Pipeline>
struct Multiplier {
  Pipeline& pipeline;
  Ring ring = {0, 0};
  int K, tile_warp;  // the warp's number among those that share a tile
  // For each block that loads for this one, a lane arrives at the block's "empty" barrier. Lane and address
  // are computed before the loop: instructions in the loop cost power.
  unsigned frees, empty;
  unsigned first_a, first_b;  // low words of the first stage's descriptors
  const OffsetsOfA<ROWS> offsets;

  __device__ __forceinline__ Multiplier(const Product& p, Pipeline& pipeline, int rank)
      : pipeline(pipeline),
        K(p.extents.K),
        tile_warp(threadIdx.x / 32 % (TILE_GROUPS * 4)),
        offsets(p.A, p.a.line, tile_warp) {
    const int lane = threadIdx.x % 32;
    const bool in_line = lane % CLUSTER_M == rank % CLUSTER_M || lane / CLUSTER_M == rank / CLUSTER_M;
    frees = CLUSTER == 1 ? lane == 0 : lane < CLUSTER && in_line;
    empty = shared_address(pipeline.barriers.empty);
    if (CLUSTER > 1) empty = peer_address(empty, lane);
    opaque(frees), opaque(empty);
    clear_rests<A_M_MAJOR, A_LOADED, B_N_MAJOR, BN>(pipeline.stage, p.extents.M, p.extents.N);
    first_a = low_word(pipeline.stage[0].A + own_group<TILE_GROUPS>() * ROWS * SLAB);
    first_b = low_word(pipeline.stage[0].B);
  }

  __device__ __forceinline__ void free_stage(int stage) const {
    if (FACTORS_ALONG_K || A_IN_REGISTERS) __syncwarp();  // all lanes have read the stage
    if (frees) barrier_arrive_there<(CLUSTER > 1)>(empty + stage * sizeof(Barrier));
  }

  // Issue the products of one step. They are added to `sums`, or replace them in a tile's first step.
  __device__ __forceinline__ void begin_step(const Fragments<ROWS>& fragments, Sum (&sums)[ROWS][BN / 2],
                                             bool first) const {
    const unsigned on = ring.stage * further(sizeof(Stage));
    const Descriptor a = descriptor(first_a + on), b = descriptor(first_b + on);
    products_begin();
#pragma unroll
    for (int i = 0; i < STEPS; ++i)
#pragma unroll
      for (int m = 0; m < ROWS; ++m) {
        const Descriptor of_b = b + step_along_k<B_N_MAJOR>(i);
        const int old = i > 0 || !ANEW || !first;
        if constexpr (A_IN_REGISTERS) Wgmma<BN>::multiply(sums[m], fragments[i][m], of_b, old);
        else Wgmma<BN>::multiply(sums[m], a + step_along_k<A_M_MAJOR>(i) + further(m * SLAB), of_b, old);
      }
    products_commit();
  }

  // All steps of a tile. `held`: patches of the last tile, which are stored meanwhile. `finisher` starts its
  // loads before the last products have ended.
  template <typename Tiles, typename Held, typename Finisher>
  __device__ __forceinline__ void multiply(const Tiles& tiles, Sum (&sums)[ROWS][BN / 2], Held& held,
                                           Finisher& finisher) {
    int last = ring.stage;
    Fragments<ROWS> fragments[TURNS];
#pragma unroll 1
    for (int step = tiles.begin; step < tiles.end; ++step) {
      take_step<0>(step, tiles, fragments, sums, held, last);
      if constexpr (TURNS > 1) {
        if (++step == tiles.end) break;
        take_step<TURNS - 1>(step, tiles, fragments, sums, held, last);
      }
    }
    if (PING_PONG) next_may_begin();
    finisher.ask_for_operands();
    wait_for(sums);
    if (tiles.begin < tiles.end) free_stage(last);
  }

  // Products read fragments until they are waited for, which is after the next ones were issued. The compiler
  // does not know this: it treats the registers as free once products are issued, and merged the two copies
  // of the step into one (NVRTC 13.5). So an empty asm statement uses each turn's fragments after the wait,
  // with a different text for each turn.
  template <int Turn, typename Tiles, typename Held>
  __device__ __forceinline__ void take_step(int step, const Tiles& tiles, Fragments<ROWS> (&fragments)[TURNS],
                                            Sum (&sums)[ROWS][BN / 2], Held& held, int& last) {
    wait_for_stage();
    if constexpr (A_IN_REGISTERS) offsets.read(fragments[Turn], pipeline.stage[ring.stage].A, K - step * BK);
    begin_step(fragments[Turn], sums, step == tiles.begin);
    // This step's products run during what follows.
    if (step > tiles.begin) {
      products_wait<1>();
      if constexpr (A_IN_REGISTERS) fragments_were_read<TURNS - 1 - Turn>(fragments[TURNS - 1 - Turn]);
      free_stage(last);
    }
    held.store_due(step - tiles.begin);
    last = ring.stage;
    ring.go_on();
  }

  __device__ __forceinline__ void wait_for_stage() const {
    barrier_wait(&pipeline.barriers.full[ring.stage], ring.parity);
    if (GATHER_A) proxy_fence();  // cp.async writes as generic stores do
  }

  // ---- promoted sums ----

  static constexpr int ACROSS = BN / PART_COLS, PARTS = ROWS * ACROSS;

  __device__ __forceinline__ void begin_part(int part, const Fragments<ROWS>& fragments,
                                             Sum (&products)[PART_COLS / 2], int stage) const {
    const int m = part / ACROSS, first = part % ACROSS * PART_COLS;
    const unsigned on = stage * further(sizeof(Stage));
    const Descriptor a = descriptor(first_a + on), b = descriptor(first_b + on) + further(first * 128);
    products_begin();
#pragma unroll
    for (int i = 0; i < STEPS; ++i) {
      const Descriptor of_b = b + step_along_k<B_N_MAJOR>(i);
      if constexpr (A_IN_REGISTERS) Wgmma<PART_COLS>::multiply(products, fragments[i][m], of_b, i > 0);
      else
        Wgmma<PART_COLS>::multiply(products, a + step_along_k<A_M_MAJOR>(i) + further(m * SLAB), of_b, i > 0);
    }
    products_commit();
  }

  // `row`, `col`: the place of the thread's first sum in the tile.
  template <typename Tiles, typename Finisher>
  __device__ __forceinline__ void multiply_and_promote(const Tiles& tiles, int row, int col,
                                                       Sum (&sums)[ROWS][BN / 2], Finisher& finisher) {
    if (tiles.begin < tiles.end) wait_for_stage();
#pragma unroll 1
    for (int step = tiles.begin; step < tiles.end; ++step) {
      const int stage = ring.stage;
      Fragments<ROWS> fragments;
      if constexpr (A_IN_REGISTERS) offsets.read(fragments, pipeline.stage[stage].A, K - step * BK);
#pragma unroll
      for (int part = 0; part < PARTS; ++part) {
        const int m = part / ACROSS, first = part % ACROSS * PART_COLS;
        const bool last = part == PARTS - 1;
        Sum products[PART_COLS / 2];
        PartFactors<PART_COLS> factors;
        begin_part(part, fragments, products, stage);
        if (FACTORS_ALONG_K)
          factors.read(pipeline.factors[stage], row + m * NEXT_SLAB, col, first, tiles.col);
        if (last) {
          ring.go_on();
          if (step + 1 < tiles.end) wait_for_stage();
        }
        products_wait<0>();
        sums_arrive(products);
        if (last) free_stage(stage);
        factors.add(sums[m] + first / 2, products);
      }
    }
    finisher.ask_for_operands();
  }

  __device__ __forceinline__ static void wait_for(Sum (&sums)[ROWS][BN / 2]) {
    products_wait<0>();
#pragma unroll
    for (int m = 0; m < ROWS; ++m) sums_arrive(sums[m]);
  }

  // ---- ping-pong: two warpgroups with a tile each; one stores while the other multiplies ----

  int turn = 0;
  __device__ __forceinline__ bool is_mine() const { return !PING_PONG || turn % 2 == threadIdx.x / 128; }
  // Wait until the other warpgroup has used all of its stages. A waiter that is more than a phase ahead of a
  // barrier would find it complete.
  __device__ __forceinline__ void wait_for_turn() const {
    if (PING_PONG) barrier_wait(&pipeline.barriers.turn_of[turn % 2], turn / 2 % 2 ^ (turn % 2 == 0));
  }
  __device__ __forceinline__ void next_may_begin() const {
    if (threadIdx.x % 32 == 0) barrier_arrive(&pipeline.barriers.turn_of[1 - turn % 2]);
  }
};
