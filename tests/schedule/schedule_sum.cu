// The least kernel that needs a whole schedule: each tile is 64 sums over k of V[tile][k][thread], one a
// thread, of two warps. Partial sums travel as in a product. Launched again on one workspace: the flags must
// have reset themselves.
#include "share/schedule.cuh"

__device__ void hand_on(const Schedule& schedule, const WorkUnit& unit, int* flags, float* slots, float sum) {
  float* slot = slots + unit.slot * 64 + threadIdx.x;
  wait_for_flag(flags + unit.flag, schedule.arrivals_needed(unit));
  if (unit.first() || schedule.reduction == REDUCTION_SEPARATE) *slot = sum;
  else if (schedule.reduction == REDUCTION_ATOMIC) atomicAdd(slot, sum);
  else *slot += sum;
  for (int i = 0; i < (schedule.reduction == REDUCTION_SEPARATE ? schedule.fragments : 1); ++i)
    raise_flag(flags + unit.flag + i);
}

__device__ float take_in(const Schedule& schedule, const WorkUnit& unit, int* flags, const float* slots,
                         float sum) {
  wait_for_flag(flags + unit.flag, schedule.arrivals_needed(unit));
  reset_flag(flags + unit.flag);
  if (unit.fragment < 0) return sum + slots[unit.slot * 64 + threadIdx.x];
  for (int peer = 0; peer < unit.peers; ++peer)
    sum += slots[schedule.peer_slot(unit, peer) * 64 + threadIdx.x];
  return sum;
}

extern "C" __global__ void schedule_sum(Schedule schedule, int* flags, float* slots, const float* V,
                                        float* D) {
  for (int block = blockIdx.x; block < schedule.blocks; block += gridDim.x) {
    Walk walk = schedule.walk(block);
    WorkUnit unit;
    while (schedule.next(walk, unit)) {
      float sum = 0;
      for (int k = unit.k_begin; k < unit.k_end; ++k)
        sum += V[(unit.tile * schedule.iterations + k) * 64 + threadIdx.x];
      const bool finishes = schedule.finishes(unit);
      if (!finishes) hand_on(schedule, unit, flags, slots, sum);
      if (finishes && unit.peers > 1) sum = take_in(schedule, unit, flags, slots, sum);
      const bool mine = unit.fragment < 0 || threadIdx.x % schedule.fragments == unit.fragment;
      if (finishes && mine) D[unit.tile * 64 + threadIdx.x] = sum;
    }
  }
}
