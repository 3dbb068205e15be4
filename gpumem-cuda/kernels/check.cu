// Whether gradients are finite: of one parameter, or of many in one launch.
//
// BLOCKS, COUNTS the blocks and elements of each gradient: see many.cuh
// GRADIENTS      how far behind the pointer each begins, in units of 256 bytes
// WHOLE          for each whether its elements are f32 rather than REAL
//
// A word of the state tells updates and the end of the step that one is not.
#include "base.cuh"
#include "real.cuh"
#include "many.cuh"

static __constant__ const u32 gradients_at[] = GRADIENTS, whole[] = WHOLE;

// Blocks of 256 threads.
KERNEL(check)(const char *gradients, u32 *state) {
    const u32 tensor = tensor_of_block();
    const u64 i = first_of_thread(tensor);
    if (i >= counts[tensor]) return;
    const u32 many = many_of_thread(tensor, i);
    const char *from = gradients + gradients_at[tensor] * 256ull;
    float values[FOUR];
    if (whole[tensor]) {
        load((const float *)from + i, many, values);
    } else {
        load((const real *)from + i, many, values);
    }
    bool is_finite = true;
#pragma unroll
    for (u32 e = 0; e < FOUR; e++) is_finite &= (bits_of(values[e]) & 0x7f800000u) != 0x7f800000u;
    // Any number of threads write the same.
    if (!is_finite) state[STATE_OVERFLOW] = 1;
}
