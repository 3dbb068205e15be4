// The gradient of the bias of one direction of a recurrent layer, after recurrence.cu has processed all time steps: db = sum of ds[t] over samples
// and time steps.
//
// The constants are those of recurrence.cuh, and
// DIRECTION  0, or 1 for the direction from the last time step to the first
// ADD        1 if it is added to its tensor (+=), 0 if it overwrites it
//
// Grid: along x a block of 1024 threads for 32 elements.
#include "base.cuh"
#include "real.cuh"
#include "recurrence.cuh"

// A lane for each of 32 elements and a warp for every 32nd sample and time step; then a warp for each element.
KERNEL(__launch_bounds__(1024) recurrence_bias)(const real *dp, const float *rows, real *db) {
    __shared__ float partial[32][33];
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, gate = blockIdx.x * 32 + lane;
    float sum = 0.0f;
    if (gate < WIDTH) {
        for (u64 row = warp; row < (u64)BATCH * STEPS; row += 32) {
            sum += slope(dp, rows, DIRECTION, row / STEPS, (u32)(row % STEPS), gate);
        }
    }
    partial[warp][lane] = sum;
    __syncthreads();
    sum = warp_sum(partial[lane][warp]);
    const u32 own = blockIdx.x * 32 + warp;
    if (lane == 0 && own < WIDTH) {
#if ADD
        sum += widen(db[own]);
#endif
        narrow(sum, &db[own]);
    }
}
