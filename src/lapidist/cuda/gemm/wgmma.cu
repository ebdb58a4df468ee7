// Warp-specialised products for Hopper (sm_90a): D = alpha A B + beta C in every type that wgmma multiplies.
//
//   producer   | wait empty | order A, B -> stage s | ...          one thread
//   consumers  | wait full  | wgmma on stage s | free stage s - 1  GROUPS warpgroups, BM / GROUPS rows of the tile each
//   in the end | sums -> swizzled shared memory -> copy engine -> D, while the next tile is multiplied
//
// Blocks are persistent. CLUSTER_M blocks lie below each other and share B, CLUSTER_N lie side by side and
// share A: each loads its part of what they share and sends it to all. A stage is free when all of them have
// read it.
#include "gemm/wgmma/pipeline.cuh"  // first: it says what the others count on
#include "gemm/wgmma/epilogue.cuh"
#include "gemm/wgmma/few_lines.cuh"
#include "gemm/wgmma/held.cuh"

extern "C" __global__ CLUSTERED void __launch_bounds__(THREADS, RESIDENT)
    wgmma(int M, int N, int K, int batch, int batches, Scalar alpha, Scalar beta,
          const __grid_constant__ TensorMap a_map, const __grid_constant__ TensorMap b_map,
          const __grid_constant__ TensorMap d_map, const T* A, const T* B, const Out* C, Out* D, i64 a_line,
          i64 a_inner, i64 a_outer, i64 b_line, i64 b_inner, i64 b_outer, i64 c_row, i64 c_col, i64 c_inner,
          i64 c_outer, i64 d_line, i64 d_inner, i64 d_outer, const __grid_constant__ Schedule schedule,
          Workspace workspace, Scales scales, const __grid_constant__ Order order EPILOGUE_PARAMETER) {
  if (!BATCHED)
    batch = batches = 1, a_inner = a_outer = b_inner = b_outer = c_inner = c_outer = d_inner = d_outer = 0;
  const Extents extents = {M, N, K, batch, batches};
  extern __shared__ __align__(1024) char shared[];
  Pipeline& pipeline = *reinterpret_cast<Pipeline*>(shared);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, rank = CLUSTER > 1 ? cluster_rank() : 0;
  if (threadIdx.x == (PACKS ? THREADS - 32 : 0)) {  // the first warps pack more
    for (int i = 0; i < STAGES; ++i) {
      barrier_init(&pipeline.full[i], FACTORS_ALONG_K ? 1 + BRINGERS : 1);
      barrier_init(&pipeline.empty[i], TILE_GROUPS * 4 * (CLUSTER_M + CLUSTER_N - 1));
    }
    for (int i = 0; i < 2 * PING_PONG; ++i) barrier_init(&pipeline.turn_of[i], TILE_GROUPS * 4);
    IF_TOLD(pipeline.board.init();)
    barrier_init_fence();
  }
  // Nobody uses a barrier before it is initialised. Where blocks pack, all threads come to a barrier when
  // they have.
  if (CLUSTER > 1) cluster_start();
  else if (!PACKS) __syncthreads();
  let_next_launch_start();
  const bool a_once = read_once<BN>(N, batch * batches), b_once = read_once<BM>(M, batch * batches);
  // Tiles that a schedule gives out one after another are left to themselves: its walk would be compiled
  // twice.
  if ((!SCHEDULED || PEERS_IN_CLUSTER) && !PACKS && !A_SKEWED && (a_once || b_once) &&
      threadIdx.x == GROUPS * 128) {
    Tiles first(extents, schedule, order);
    if (K > 0 && first.next(extents, rank)) {
      if (a_once) prefetch_tiles<A_TURNED, BM>(&a_map, first.row, first.begin, first.end);
      if (b_once) prefetch_tiles<B_TURNED, BN>(&b_map, first.col, first.begin, first.end);
    }
  }
  const Batch of_a = {batch, batches, a_inner, a_outer}, of_b = {batch, batches, b_inner, b_outer};
  if (PACKS || !(a_once || b_once)) fetch_small(extents, A, a_line, of_a, B, b_line, of_b);
#if PACK_A || PACK_B
  const Packing packing(extents, A, a_line, of_a, B, b_line, of_b, workspace);
  workspace = packing.pack(extents, workspace);
#else
  wait_for_last_launch();
#endif
  if (PEERS_IN_CLUSTER && blockIdx.x >= schedule.sk_blocks) {  // a cluster that only helped to pack
    if (threadIdx.x == 0) leave_packed(workspace);
    return;
  }

  Tiles tiles(extents, schedule, order);
  int stage = 0;
  if (warp >= GROUPS * 4) {
    // Load: one thread orders tile after tile, as far ahead as stages are empty.
    give_registers_back<REGISTERS_LEFT>();
    if (threadIdx.x == GROUPS * 128) {
      int parity = 1;
      // the part of B, and of A, that is mine to load
      const int below = rank % CLUSTER_M, beside = rank / CLUSTER_M;
      const int column = ((1 << CLUSTER_M) - 1) << beside * CLUSTER_M,
                row = (CLUSTER_N > 1 ? 1 | 1 << CLUSTER_M : 1) << below;
      const int bytes =
          (A_SKEWED ? A_BYTES : loaded_bytes<A_TURNED, A_LOADED>(M)) + loaded_bytes<B_TURNED, BN>(N);
      if (PACKS) tma_prefetch_map(&a_map), tma_prefetch_map(&b_map);
      IF_TOLD(TilesOf<TellingWork> tiles(schedule, pipeline.board);)
      for (bool waits = PACKS; tiles.next(extents, rank);) {
        const int a_in = a_inner ? tiles.inner : 0, a_out = a_outer ? tiles.outer : 0;
        const int b_in = b_inner ? tiles.inner : 0, b_out = b_outer ? tiles.outer : 0;
#pragma unroll 1
        for (int step = tiles.begin; step < tiles.end; ++step) {
          Stage& s = pipeline.stage[stage];
          Barrier* full = &pipeline.full[stage];
          barrier_wait(&pipeline.empty[stage], parity);
          barrier_arrive_expect(full, bytes);
          const int k = (step + (K == 0)) * BK;
          // here, where all else is done that comes before a load
          if (waits) wait_packed(workspace), waits = false;
          load_tile<A_TURNED, A_LOADED, CLUSTER_N>(s.A, &a_map, tiles.row, M, k, a_in, a_out, beside, row,
                                                   full, a_once);
          load_tile<B_TURNED, BN, CLUSTER_M>(s.B, &b_map, tiles.col, N, k, b_in, b_out, below, column, full,
                                             b_once);
          if (++stage == STAGES) stage = 0, parity ^= 1;
        }
      }
      // Nobody leaves while another one may still write to its memory: its stages are full, and all have
      // given them back.
      for (int i = 0; CLUSTER > 1 && i < STAGES; ++i) {
        // the last one's tells of all: stages come back in order
        barrier_wait(&pipeline.empty[stage], parity);
        if (++stage == STAGES) stage = 0, parity ^= 1;
      }
      if (PACKS) leave_packed(workspace);
    } else if (A_SKEWED && lane == 0) {
      bring_skewed(pipeline, tiles, extents, rank, &a_map, &d_map, A, a_line, warp - GROUPS * 4 - 1);
    } else if (FACTORS_ALONG_K && warp == GROUPS * 4 + 1) {
      for (int parity = 1; tiles.next(extents, rank);) {
        FactorSources<BM, BN> sources(scales, tiles.row, tiles.col, tiles.begin, extents.M, extents.N);
        for (int step = tiles.begin; step < tiles.end; ++step) {
          barrier_wait(&pipeline.empty[stage], parity);
          sources.bring(pipeline.factors[stage]);
          __syncwarp();  // lanes that have more to bring arrive with the others
          barrier_arrive_after_copies(&pipeline.full[stage]);
          if (++stage == STAGES) stage = 0, parity ^= 1;
        }
      }
    }
    if (PEERS_IN_CLUSTER) cluster_barrier(), cluster_barrier();  // as the consumers do in their exchange
  } else {
    take_registers<REGISTERS>();
    IF_TOLD(TilesOf<ToldWork> tiles(schedule, pipeline.board);)
    const int tile_warp = warp % (TILE_GROUPS * 4), group = tile_warp / 4;
    // A lane for each block that loads for this one tells it that a stage is read. Who and where is known
    // before the loop, whose instructions are a part of the power.
    const bool beside = lane % CLUSTER_M == rank % CLUSTER_M || lane / CLUSTER_M == rank / CLUSTER_M;
    unsigned tells = CLUSTER == 1 ? lane == 0 : lane < CLUSTER && beside;
    unsigned empty = shared_address(pipeline.empty);
    if (CLUSTER > 1) empty = peer_address(empty, lane);
    opaque(tells), opaque(empty);
    const auto free_stage = [&](int freed) {
      if (FACTORS_ALONG_K || A_IN_REGISTERS) __syncwarp();  // all lanes have read theirs
      if (tells) barrier_arrive_there<(CLUSTER > 1)>(empty + freed * sizeof(Barrier));
    };
    clear_rests<A_TURNED, A_LOADED, B_TURNED, BN>(pipeline.stage, M, N);
    const unsigned first_a = low_word(pipeline.stage[0].A + own_group<TILE_GROUPS>() * ROWS * SLAB);
    const unsigned first_b = low_word(pipeline.stage[0].B);
    const int first_warp = BY_GROUP ? own_group<GROUPS>() * 4 : warp;  // of those that send patches together
    const PlacesOfA<ROWS> places(A, a_line, tile_warp);
    int parity = 0, turn = 0, first_buffer = 0;
    Held<D_COLS, HELD> held;
    const bool few = K <= (HELD - 1) * BK;
    for (; tiles.next(extents, rank); ++turn) {
      if (PING_PONG && turn % 2 != warp / 4) {  // the other one's: its stages pass by
        stage += tiles.end - tiles.begin, parity ^= stage / STAGES & 1, stage %= STAGES;
        continue;
      }
      // Not before the other one has seen all of its stages: a barrier that is further behind than a phase
      // looks complete.
      if (PING_PONG) barrier_wait(&pipeline.turn_of[turn % 2], turn / 2 % 2 ^ (turn % 2 == 0));
      Sum sums[ROWS][BN / 2], products[ROWS][BN / 2];
      if (!ANEW) set_to_zero(sums);
      Sum(&target)[ROWS][BN / 2] = PROMOTED ? products : sums;
      const int warp_row = tiles.row + row_of_warp<ROWS>(group, warp);
      const Addend addend = {
          C + tiles.inner * c_inner + tiles.outer * c_outer, c_row, c_col, M, N, alpha, beta};
      IF_ADDEND(if (!SCHEDULED) addend.begin<D_PATCHES, ALL_PATCHES>(pipeline.C[warp], warp_row, tiles.col);)
      const int first_row = warp_row + lane / 4 * NEXT_GROUP, first_col = tiles.col + lane % 4 * 2;
      int last = stage;
      // products read theirs until they are waited for: after the next ones have begun
      Fragments<ROWS> fragments[TURNS];
#pragma unroll 1
      for (int step = tiles.begin; step < tiles.end;) {
#pragma unroll
        for (int t = 0; t < TURNS && (t == 0 || step < tiles.end); ++t, ++step) {
          barrier_wait(&pipeline.full[stage], parity);
          StepFactors<ROWS, BN> factors;
          if (FACTORS_ALONG_K)
            factors.read(pipeline.factors[stage], first_row - tiles.row, first_col - tiles.col, tiles.col);
          if constexpr (A_IN_REGISTERS)
            places.read(fragments[t], pipeline.stage[stage].A, extents.K - step * BK);
          const unsigned on = stage * further(sizeof(Stage));
          const Descriptor a = descriptor(first_a + on), b = descriptor(first_b + on);
          products_begin();
#pragma unroll
          for (int i = 0; i < STEPS; ++i)
#pragma unroll
            for (int m = 0; m < ROWS; ++m) {
              const Descriptor of_b = b + step_along_k<B_TURNED>(i);
              const int old = i > 0 || (ANEW ? step > tiles.begin : !PROMOTED);
              if constexpr (A_IN_REGISTERS) Wgmma<BN>::multiply(target[m], fragments[t][i][m], of_b, old);
              else
                Wgmma<BN>::multiply(target[m], a + step_along_k<A_TURNED>(i) + further(m * SLAB), of_b, old);
            }
          products_commit();
          if (PROMOTED) {  // meanwhile the other warpgroup's products run
            products_wait<0>();
#pragma unroll
            for (int m = 0; m < ROWS; ++m) sums_arrive(products[m]);
            free_stage(stage);
            factors.add(sums, products);
          } else {  // meanwhile this step's products run
            if (step > tiles.begin) products_wait<1>(), free_stage(last);
            if (held.due(step - tiles.begin)) held.store_one();
          }
          last = stage;
          if (++stage == STAGES) stage = 0, parity ^= 1;
        }
      }
      if (PING_PONG && lane == 0) barrier_arrive(&pipeline.turn_of[1 - turn % 2]);
      products_wait<0>();
#pragma unroll
      for (int m = 0; m < ROWS; ++m) sums_arrive(sums[m]);
      if (tiles.begin < tiles.end && !PROMOTED) free_stage(last);

      // Store: patches of 16 rows, each warp for itself.
      const auto scale = [&](int row, int patch, Sum* mine) {
        scale_in_the_end<D_COLS / 2>(mine, scales, row + first_row - warp_row, first_col + patch * D_COLS,
                                     extents.M, extents.N);
      };
      IF_EPILOGUE(const fused::Fragments of_caller(EPILOGUE_PASSED, tiles.inner, tiles.outer, M, N);)
      Words begins;
      const auto store = [&](int row, int patch, int number, Sum* mine) {
        const int col = tiles.col + patch * D_COLS;
        auto& buffer = pipeline.D[warp][(first_buffer + number) % D_BUFFERS];
        if (!D_COPY_ENGINE) {
          // of a cluster each patch is alone: its neighbours are others'
          const int before = PEERS_IN_CLUSTER ? 0 : patch * D_COLS;
          const int cols = min_of(extents.N - col, PEERS_IN_CLUSTER ? D_COLS : BN - before);
          Out* const d = D + tiles.inner * d_inner + tiles.outer * d_outer;
          return store_by_hand<AMONG, LIVE, PatchRows>(buffer, begins, mine, number, d + row * d_line + col,
                                                       d_line, before, M - row, cols);
        }
        if (lane == 0) tma_store_wait_read<D_BUFFERS - 1>();
        __syncwarp();
        buffer.template lay<AMONG>(mine, number);
        proxy_fence();
        __syncwarp();
        if (lane == 0)
          tma_store(&d_map, D_TURNED ? row : col, D_TURNED ? col : row, tiles.inner, tiles.outer,
                    buffer.bytes);
        if (lane == 0) tma_store_commit();
      };
#if PEERS_IN_CLUSTER
      Exchange<GROUPS * 4, ALL_PATCHES, D_COLS> exchange = {reinterpret_cast<Piece<Sum>*>(shared),
                                                            tiles.unit.peer, warp, lane};
      static_assert(exchange.BYTES <= sizeof(pipeline.stage), "the sums lie where the operands were");
      exchange.send(sums[0]);
      exchange.each([&](int patch, int of, int number, Sum* mine) {
        const int row = tiles.row + row_of_warp<ROWS>(of / 4, of) + patch / D_PATCHES * NEXT_SLAB;
        scale(row, patch % D_PATCHES, mine);
        scale_sums<D_COLS / 2>(mine, alpha);
        IF_ADDEND(addend.add_one(pipeline.C[warp][0], row, tiles.col + patch % D_PATCHES * D_COLS, mine);)
        IF_EPILOGUE(of_caller.finish<D_COLS / 2>(mine, row, tiles.col + patch % D_PATCHES * D_COLS);)
        store(row, patch % D_PATCHES, number, mine);
      });
#else
      if (!tiles.combine<SHARERS>(workspace, shared, sums)) continue;
#pragma unroll
      for (int i = 0; i < ALL_PATCHES; ++i)
        scale(warp_row + i / D_PATCHES * NEXT_SLAB, i % D_PATCHES,
              &sums[i / D_PATCHES][i % D_PATCHES * (D_COLS / 2)]);
      scale_sums<ROWS * BN / 2>(sums[0], alpha);
#if ADDEND
      if (SCHEDULED) addend.begin<D_PATCHES, ALL_PATCHES>(pipeline.C[warp], warp_row, tiles.col);
      addend.each<D_PATCHES, ALL_PATCHES>(
          pipeline.C[warp], warp_row, tiles.col, sums[0], [&](int i, Sum* mine) {
            const int row = warp_row + i / D_PATCHES * NEXT_SLAB;
            IF_EPILOGUE(of_caller.finish<D_COLS / 2>(mine, row, tiles.col + i % D_PATCHES * D_COLS);)
            store(row, i % D_PATCHES, i, mine);
          });
#else
      IF_EPILOGUE(of_caller.finish_all(sums, warp_row, tiles.col);)
      if constexpr (D_COPY_ENGINE) {
        auto* const buffers = reinterpret_cast<typename WayOut<D_COLS>::Buffer*>(pipeline.D[first_warp]);
        const int out_row = BY_GROUP ? tiles.row + first_warp % (TILE_GROUPS * 4) / 4 * ROWS * 64 : warp_row;
        const WayOut<D_COLS> out = {&d_map,      buffers,     out_row,     tiles.col,
                                    tiles.inner, tiles.outer, first_buffer};
        out.store<0, ALL_PATCHES - HELD>(
            [&](int i) { out.buffer(i).lay(sums[i / D_PATCHES] + patch_begin(i % D_PATCHES) / 2); });
        held.take(out, sums[0], tiles.end - tiles.begin);
        if (few || tiles.last()) held.store_all();
      } else {
        // By hand, a patch is some hundred instructions: all of them, written out, took most of a second to
        // compile.
#pragma unroll 1
        for (int i = 0; i < ALL_PATCHES; ++i)
          store(warp_row + i / D_PATCHES * NEXT_SLAB, i % D_PATCHES, i, sums[0]);
      }
#endif
      first_buffer = (first_buffer + ALL_PATCHES) % D_BUFFERS;
#endif
    }
    if (D_COPY_ENGINE && lane == 0) tma_store_wait<0>();
  }
}
