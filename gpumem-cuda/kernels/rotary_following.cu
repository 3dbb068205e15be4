// Heads turned by angles that grow with their step, where the state says how many steps of the sequence went before. Its constants are
// those of `rotary.cuh`.
#include "base.cuh"
#include "real.cuh"
#include "pack.cuh"
#include "rotary.cuh"

KERNEL(rotary_following)(const real *x, const u32 *state, real *y) { turn(x, y, steps_before(state)); }
