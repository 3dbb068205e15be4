// Heads turned by angles that grow with their step: rotary position embedding. Its constants are those of `rotary.cuh`.
#include "base.cuh"
#include "real.cuh"
#include "pack.cuh"
#include "rotary.cuh"

KERNEL(rotary)(const real *x, real *y) { turn(x, y, 0); }
