// The end of a step: the step counter, and in binary16 the loss scale.
//
// A step with a gradient that is not finite is skipped: it updates nothing and does not count. The loss scale is halved after such a step, and
// doubled after GROWTH other steps in a row.
//
// EVERY  given if parameters are averaged: the steps from one average to the next
//
// No include guard: the tests include it once for each kernel they compile.

constexpr u32 GROWTH = 2000;
constexpr float LARGEST_SCALE = 16777216.0f;

// Called by one thread, when no other thread reads the state any more.
static __device__ __forceinline__ void advance_state(u32 *state) {
    const bool is_skipped = state[STATE_OVERFLOW] != 0;
    state[STATE_OVERFLOW] = 0;
#ifdef EVERY
    if (!is_skipped && (steps_before(state) + 1) % EVERY == 0 && state[STATE_AVERAGED] != 0xffffffffu) state[STATE_AVERAGED]++;
#endif
    if (is_skipped) {
        state[STATE_SKIPPED]++;
    } else if (++state[STATE_STEP] == 0) {
        state[STATE_STEP + 1]++;
    }
    if (!SAME<real, F16>) return;
    const float scale = from_bits(state[STATE_LOSS_SCALE]);
    if (is_skipped) {
        state[STATE_LOSS_SCALE] = bits_of(scale > 2.0f ? scale / 2.0f : 1.0f);
        state[STATE_GOOD_STEPS] = 0;
    } else if (++state[STATE_GOOD_STEPS] >= GROWTH) {
        state[STATE_LOSS_SCALE] = bits_of(scale < LARGEST_SCALE / 2.0f ? scale * 2.0f : LARGEST_SCALE);
        state[STATE_GOOD_STEPS] = 0;
    }
}

// Called by every thread of a launch that ends the step, after it has read the state. The last block to call it advances the state to the next
// step.
static __device__ __forceinline__ void leave_step(u32 *state) {
    // All threads of the block have read the state. The fence orders reads of other blocks before the writes of the last one.
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        if (atomicInc(&state[STATE_READERS], gridDim.x - 1) == gridDim.x - 1) {
            __threadfence();
            advance_state(state);
        }
    }
}
