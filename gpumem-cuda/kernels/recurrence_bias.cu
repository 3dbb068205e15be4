// The gradient of a direction's bias of a recurrent layer, after recurrence.cu has gone through the steps: db = sum of ds[t] over samples
// and steps.
//
// The constants are those of recurrence.cuh, and
// DIRECTION  whose bias it is: 0, or 1 for the one from the last step to the first
// ADD        whether it is added to what is there
//
// A block of 1024 threads for 32 elements, along x.
#include "base.cuh"
#include "real.cuh"
#include "recurrence.cuh"

// A lane for each of 32 elements, a warp for every 32nd sample and step; then a warp for each element.
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
