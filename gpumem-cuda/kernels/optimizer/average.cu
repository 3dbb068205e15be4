// Exponential moving averages of parameters: of one, or of many in one launch.
//
// DECAY, EVERY  the share of an average that a step keeps, and the steps from one to the next: see gpumem_core::train::Ema
// WARMUP        given if early averages forget faster
// MIXED         1 if there are f32 master copies
// FIELDS, MOST  see multi_tensor.cuh. A launch has for each parameter, after its first block: the offsets of the parameter, its average and, if MIXED, its
//               master copy from the pointers of those names, in units of UNIT bytes; NONE without a copy. The bit is set if its elements are f32
//               rather than REAL
//
// The first average is the parameter itself.
#include "base.cuh"
#include "real.cuh"
#include "multi_tensor.cuh"

constexpr u32 NONE = 0xffffffffu;

// Returns the weight of the parameters in the next averages, given the number of earlier averages.
static __device__ __forceinline__ float share_of(u32 averaged) {
    if (averaged == 0) return 1.0f;
    double decay = DECAY;
#ifdef WARMUP
    const double most = (1.0 + (double)averaged) / (10.0 + (double)averaged);
    if (most < decay) decay = most;
#endif
    return (float)(1.0 - decay);
}

template <u32 LIMIT>
static __device__ __forceinline__ void go_on(const char *weights, const char *masters, char *averages, const u32 *state,
                                             const Tensors<LIMIT> &tensors) {
    if (state[STATE_OVERFLOW] != 0 || (steps_before(state) + 1) % EVERY != 0) return;
    const Part part = part_of_thread(tensors);
    if (part.many == 0) return;
    const char *w = weights + tensors.words[1][part.tensor] * UNIT;
    float *average = (float *)(averages + tensors.words[2][part.tensor] * UNIT) + part.first;
    float parameters[FOUR], values[FOUR];
#if MIXED
    const u32 master_at = tensors.words[3][part.tensor];
    if (master_at != NONE) {
        load((const float *)(masters + master_at * UNIT) + part.first, part.many, parameters);
    } else
#endif
    if (tensors.half(part.tensor) >= BLOCK) {
        load((const float *)w + part.first, part.many, parameters);
    } else {
        load((const real *)w + part.first, part.many, parameters);
    }
    load(average, part.many, values);
    const float share = share_of(state[STATE_AVERAGED]);
#pragma unroll
    for (u32 e = 0; e < FOUR; e++) {
        const float way = parameters[e] - values[e];
        // The first average is the parameter, whatever was in memory before.
        values[e] = share == 1.0f  ? parameters[e]
                    : share < 0.5f ? values[e] + share * way
                                   : parameters[e] - way * (1.0f - share);
    }
    save(values, part.many, average);
}

// Grid: blocks of 256 threads.
KERNEL(average)(const char *weights, const char *masters, char *averages, const u32 *state, IN_PLACE Tensors<FEW> tensors) {
    go_on(weights, masters, averages, state, tensors);
}

KERNEL(average_many)(const char *weights, const char *masters, char *averages, const u32 *state, IN_PLACE Tensors<MOST> tensors) {
    go_on(weights, masters, averages, state, tensors);
}
