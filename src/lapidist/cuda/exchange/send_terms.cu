// D = the sum of what all ranks have for this one; or, GATHERED, the rows of all ranks, one rank after the other,
// and their factors. Each block sends its vectors to all ranks' memory, says so to the blocks of the same number
// there, and waits for what those sent:
//
//   | stores its vectors at all peers | says "call c" | waits for the peers' "call c" | adds what is here, or copies |
//
// Flags count calls, modulo 2^32, and what two calls in a row send lies apart. So nobody takes a flag back, and
// nobody says that it has read: the kernels of a rank follow each other, so a peer that says "call c" has read
// call c - 1 to its end, and the same memory is written in call c + 1.
//
// Waits have limits (share/rank_flags.cuh). No block waits for another one of its card.
#include "config.cuh"
#include "exchange/rank_terms.cuh"
#include "overlap.cuh"
#include "share/rank_flags.cuh"

typedef long long i64;

struct Sending {
  const Term* own[RANKS];       // what this rank has for each; GATHERED: its rows, and its factors
  Term* rooms[RANKS];           // at each rank, of two calls, of all senders
  int* flags[RANKS];            // at each rank, of all senders, of each block
  unsigned long long* reports;  // one for each rank: `missed`, if it was waited for in vain
  i64 limit;                    // nanoseconds
  int* calls;                   // of each block: how many this rank has made
  i64 apart, room;              // elements from one call's to the next one's, and from one sender's
  i64 missed;
  i64 rank;
};

constexpr int AT_ONCE = 4;  // loads of a thread that are under way

__device__ __forceinline__ void copy(Term* to, const Term* from, i64 count) {
  const i64 step = gridDim.x * static_cast<i64>(THREADS);
  for (i64 i = blockIdx.x * static_cast<i64>(THREADS) + threadIdx.x; i < count / TOGETHER;
       i += AT_ONCE * step) {
    Vector vectors[AT_ONCE];
#pragma unroll
    for (int j = 0; j < AT_ONCE; ++j)
      if (i + j * step < count / TOGETHER) vectors[j] = reinterpret_cast<const Vector*>(from)[i + j * step];
#pragma unroll
    for (int j = 0; j < AT_ONCE; ++j)
      if (i + j * step < count / TOGETHER) reinterpret_cast<Vector*>(to)[i + j * step] = vectors[j];
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    send_terms(const __grid_constant__ Sending sending, Term* D, i64 count, Term* factors, i64 factor_count) {
  if (OVERLAPS) wait_for_last_launch();
  const int rank = static_cast<int>(sending.rank);
  const unsigned call = sending.calls[blockIdx.x] + 1u;  // goes round, which signed sums do not
  const i64 of_call = (call & 1) * sending.apart;
#pragma unroll
  for (int further = 1; further < RANKS; ++further) {
    const int peer = (rank + further) % RANKS;
    Term* const room = sending.rooms[peer] + of_call + rank * sending.room;
    copy(room, sending.own[GATHERED ? 0 : peer], count);
    if constexpr (GATHERED) copy(room + count, sending.own[1], factor_count);
  }
  __syncthreads();
  if (const int peer = threadIdx.x; peer < RANKS && peer != rank) {
    const int* const from_peer = sending.flags[rank] + peer * gridDim.x + blockIdx.x;
    set_flag(sending.flags[peer] + rank * gridDim.x + blockIdx.x, static_cast<int>(call));
    came_in_time([from_peer, call] { return static_cast<int>(value_of(from_peer) - call) >= 0; },
                 sending.limit, sending.reports + peer, sending.missed);
  }
  __syncthreads();
  if (threadIdx.x == 0) sending.calls[blockIdx.x] = static_cast<int>(call);
  const Term* const here = sending.rooms[rank] + of_call;
  if constexpr (GATHERED) {
    for (int sender = 0; sender < RANKS; ++sender) {
      const Term* const sent = here + sender * sending.room;
      copy(D + sender * count, sender == rank ? sending.own[0] : sent, count);
      copy(factors + sender * factor_count, sender == rank ? sending.own[1] : sent + count, factor_count);
    }
  } else {
    const i64 step = gridDim.x * static_cast<i64>(THREADS);
    for (i64 i = blockIdx.x * static_cast<i64>(THREADS) + threadIdx.x; i < count / TOGETHER; i += step) {
      Vector vectors[RANKS];
#pragma unroll
      for (int sender = 0; sender < RANKS; ++sender) {
        const Term* const from = sender == rank ? sending.own[rank] : here + sender * sending.room;
        vectors[sender] = reinterpret_cast<const Vector*>(from)[i];
      }
      reinterpret_cast<Vector*>(D)[i] = sum_of(vectors);
    }
  }
}
