// How warps with roles learn of a block's units: the thread that orders copies walks through the schedule,
// and publishes each unit in shared memory, a few ahead of the others.
//
//   producer    | walk | wait read, write unit, arrive filled | order its stages | ...
//   consumers          | wait filled, read unit, arrive read  | multiply         | ...
//
// So the walk is compiled once, and who has the sums holds no registers for it.
#pragma once
#include "hopper.cuh"
#include "share/sharing.cuh"

struct UnitQueue {
  static constexpr unsigned SLOTS = 4;  // units of a step or two each leave no stage empty
  struct alignas(16) Entry {
    WorkUnit unit;
    int more;
  } at[SLOTS];
  Barrier filled[SLOTS], read[SLOTS];

  __device__ __forceinline__ void init() {
    for (int i = 0; i < static_cast<int>(SLOTS); ++i)
      barrier_init(&filled[i], 1), barrier_init(&read[i], SHARERS / 32);
  }
};

// Counted on: a register for the place and its parity.
struct Turn {
  unsigned count = 0;
  __device__ __forceinline__ int place() const { return count % UnitQueue::SLOTS; }
  __device__ __forceinline__ int parity() const { return count / UnitQueue::SLOTS % 2; }
};

// By who walks: each unit is published, and behind the last one that there is none.
struct PublishedWork : Work {
  UnitQueue& queue;
  Turn turn;
  __device__ __forceinline__ PublishedWork(const Schedule& schedule, UnitQueue& queue)
      : Work(schedule), queue(queue) {}
  __device__ __forceinline__ bool next() {
    const bool more = Work::next();
    const int place = turn.place();
    barrier_wait(&queue.read[place], turn.parity() ^ 1);  // a fresh place counts as read
    queue.at[place] = {unit, more};
    barrier_arrive(&queue.filled[place]);
    ++turn.count;
    return more;
  }
};

// By those who multiply.
struct ReceivedWork : Work {
  UnitQueue& queue;
  Turn turn;
  __device__ __forceinline__ ReceivedWork(const Schedule& schedule, UnitQueue& queue)
      : Work(schedule), queue(queue) {}
  __device__ __forceinline__ bool next() {
    const int place = turn.place();
    barrier_wait(&queue.filled[place], turn.parity());
    unit = queue.at[place].unit;
    const bool more = queue.at[place].more;
    __syncwarp();  // all lanes have read it
    if (threadIdx.x % 32 == 0) barrier_arrive(&queue.read[place]);
    ++turn.count;
    return more;
  }
};
