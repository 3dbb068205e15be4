// Positions of time steps in their segments, from 0 on.
//
// SAMPLES  samples
// STEPS    T, time steps of each sample
//
// segment, y [SAMPLES, T] of u32; segment does not fall along a sample
// y[b, t] = t - (the first time step of b whose number is segment[b, t])
#include "base.cuh"

// Grid: a thread for each time step.
KERNEL(segment_positions)(const u32 *segment, u32 *y) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= SAMPLES * STEPS) return;
    const u32 step = (u32)(i % STEPS), number = segment[i];
    const u32 *all = segment + (i - step);
    u32 first = 0, end = step;
    while (first < end) {
        const u32 middle = (first + end) / 2;
        const bool below = all[middle] < number;
        first = below ? middle + 1 : first;
        end = below ? end : middle;
    }
    y[i] = step - first;
}
