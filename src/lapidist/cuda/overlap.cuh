// Launches that overlap (sm_90 and newer): blocks of the next one take the places that those of this one leave.
// PTX ISA, "griddepcontrol".
#pragma once

// The next launch may start once all blocks have said so, or ended.
__device__ __forceinline__ void let_next_launch_start() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// Until the launch before has ended and all that it wrote is there. Before this, nothing may be touched that
// a launch touches.
__device__ __forceinline__ void wait_for_last_launch() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// The same, when the arithmetic that leads to a place is done: the assembler else moves it behind the wait.
__device__ __forceinline__ void wait_for_last_launch_behind(const void* place) {
  asm volatile("{.reg .pred known; setp.ne.u64 known, %0, 0; @known griddepcontrol.wait;}" ::"l"(place)
               : "memory");
}
