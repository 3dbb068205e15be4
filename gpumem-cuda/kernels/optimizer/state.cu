// The end of a step as a separate launch: see advance.cuh.
#include "base.cuh"
#include "real.cuh"
#include "advance.cuh"

KERNEL(advance)(u32 *state) {
    if (threadIdx.x == 0) advance_state(state);
}
