// Rows of a table for the current time steps. The state has the number of earlier time steps of the sequence.
//
// ROWS, WIDTH  rows of the table, and elements of a row
// STEPS        current time steps
// PACK         elements that a thread works on; rows consist of whole packs; see pack.cuh
#include "base.cuh"
#include "real.cuh"
#include "pack.cuh"

// Grid: a thread for each pack of the output.
KERNEL(positions)(const real *table, const u32 *state, real *y) {
    const u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x, at = thread * PACK;
    if (at >= (u64)STEPS * WIDTH) return;
    const u64 row = steps_before(state) + at / WIDTH;
    store(load(table, (row < ROWS ? row : ROWS - 1) * WIDTH + at % WIDTH), y, at);
}
