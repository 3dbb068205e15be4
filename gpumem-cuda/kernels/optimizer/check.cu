// Checks that gradients are finite: of one parameter, or of many in one launch.
//
// FIELDS, MOST  see multi_tensor.cuh. A launch has for each gradient, after its first block: its offset from the pointer, in units of UNIT bytes. The bit is
//               set if its elements are f32 rather than REAL
//
// If one is not finite, sets a word of the state, which updates and the end of the step read.
#include "base.cuh"
#include "real.cuh"
#include "multi_tensor.cuh"

template <u32 LIMIT>
static __device__ __forceinline__ void look(const char *gradients, u32 *state, const Tensors<LIMIT> &tensors) {
    const Part part = part_of_thread(tensors);
    if (part.many == 0) return;
    const char *from = gradients + tensors.words[1][part.tensor] * UNIT;
    float values[FOUR];
    if (tensors.half(part.tensor) >= BLOCK) {
        load((const float *)from + part.first, part.many, values);
    } else {
        load((const real *)from + part.first, part.many, values);
    }
    bool is_finite = true;
#pragma unroll
    for (u32 e = 0; e < FOUR; e++) is_finite &= (bits_of(values[e]) & 0x7f800000u) != 0x7f800000u;
    // Any number of threads may write this, as all write the same value.
    if (!is_finite) state[STATE_OVERFLOW] = 1;
}

// Grid: blocks of 256 threads.
KERNEL(check)(const char *gradients, u32 *state, IN_PLACE Tensors<FEW> tensors) { look(gradients, state, tensors); }

KERNEL(check_many)(const char *gradients, u32 *state, IN_PLACE Tensors<MOST> tensors) { look(gradients, state, tensors); }
