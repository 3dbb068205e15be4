// A row of a table for each step at hand, where the state says how many steps of the sequence went before.
//
// ROWS, WIDTH  of the table
// STEPS        at hand
// PACK         elements that a thread takes, of which a row is a whole number; see pack.cuh
#include "base.cuh"
#include "real.cuh"
#include "pack.cuh"

// A thread for each pack of the output.
KERNEL(positions)(const real *table, const u32 *state, real *y) {
    const u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x, at = thread * PACK;
    if (at >= (u64)STEPS * WIDTH) return;
    const u64 row = steps_before(state) + at / WIDTH;
    store(load(table, (row < ROWS ? row : ROWS - 1) * WIDTH + at % WIDTH), y, at);
}
