// The end of a step in a launch of its own: see advance.cuh.
#include "base.cuh"
#include "real.cuh"
#include "advance.cuh"

KERNEL(advance)(u32 *state) {
    if (threadIdx.x == 0) advance_state(state);
}
