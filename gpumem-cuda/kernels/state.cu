// The step counter, incremented at the end of a step.
#include "base.cuh"

KERNEL(advance)(u32 *state) {
    if (threadIdx.x != 0) return;
    state[STATE_STEP]++;
    if (state[STATE_STEP] == 0) state[STATE_STEP + 1]++;
}
