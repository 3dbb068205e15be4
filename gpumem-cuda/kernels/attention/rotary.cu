// Rotary position embedding: rotates heads by angles that grow with the time step. The constants are those of `rotary.cuh`.
#include "base.cuh"
#include "real.cuh"
#include "pack.cuh"
#include "rotary.cuh"

KERNEL(rotary)(const real *x, real *y) { turn(x, y, 0); }
