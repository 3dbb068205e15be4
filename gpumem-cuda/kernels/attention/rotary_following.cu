// Rotary position embedding for decoding: the state has the number of earlier time steps. The constants are those of `rotary.cuh`.
#include "base.cuh"
#include "real.cuh"
#include "pack.cuh"
#include "rotary.cuh"

KERNEL(rotary_following)(const real *x, const u32 *state, real *y) { turn(x, y, steps_before(state)); }
