// Optimizer updates of one parameter, or of many in one launch.
//
// MIXED        1 if parameters with an f32 master copy have REAL elements and all others are f32, as are their gradients (unless WIDE); if 0, all
//              are REAL and there are no copies
// MOMENT_REAL  number format of optimizer states: a type, as REAL is
// STATES       optimizer states of a parameter: 0, 1 (`firsts`), 2 (and `seconds`) or 3 (and `thirds`)
// RULE         the rule: statements that change the weight w and the states first, second and third of one element, from its gradient g and the
//              numbers of `step`. They come from gpumem_core::train::optim
// VARIABLES    the number of variables t[0], t[1], .. of these statements
// CODES        given if the two states of a parameter are 8-bit codes, or f32 if it has few elements: see codes.cuh. After the states a launch has
//              the offsets of their scales. The bit is set for a parameter whose states are f32
// TURNED       given if some weights with codes have their channels last. A launch has for each, after its scales: channels of a filter, and
//              elements of a filter with the same channel; the latter is 1 if the weight is dense
// GROUPS       given if parameter groups differ. A launch has for each parameter, after everything else: the factor of the learning rate, and the
//              weight decay, as the bits of two f32
// LOG_BETAS    given if the two decay rates of the rule belong to a group: their logarithms, from which 1 - beta^t is computed here
// FIELDS, MOST see multi_tensor.cuh. A launch has for each parameter, after its first block, the offsets of its weights, gradients, master copy (with
//              MIXED), first, second and third state from the pointers of those names, in units of UNIT bytes, as far as they exist; NONE for a
//              missing master copy. Its number for all is 1 if it ends the step
//
// The learning rate, the step and numbers that depend on it are read from the state, so that a captured step can be replayed with other values.
// SCHEDULED, CLIP_NORM, CLIP_VALUE and WIDE are as in descent.cuh. Gradients are multiplied by the loss scale. If the state says that one of them
// is not finite, nothing is updated.
//
// If there is a master copy, w is that copy, and the parameter is w rounded.
//
// At the end of the step, the last block that has read the state advances it to the next step: no other block reads it any more.
#include "base.cuh"
#include "real.cuh"
#include "advance.cuh"
#include "descent.cuh"
#include "multi_tensor.cuh"
#ifdef CODES
#include "codes.cuh"
#endif

typedef MOMENT_REAL Moment;

#if MIXED
constexpr u32 NONE = 0xffffffffu;
#endif

// Numbers that are the same for all elements. `t` is the number of the step, counted from 1.
struct Step {
    float lr;
    Gradients gradient;
    float corrections[2], t;
    bool is_first;
#ifdef GROUPS
    float weight_decay;
#endif
};

// Changes one element: its weight w and its states, from its gradient without loss scale. Operations that are the same for all elements are computed
// once: a division takes as long as everything else.
static __device__ __forceinline__ void change(float &w, float g, float &first, float &second, float &third, const Step &step) {
    float t[VARIABLES];
    RULE
}

// Further parameters and arguments of functions, after the second state: a third state if there is one, or the scales of codes.
#if defined(CODES)
#define WITH_THIRDS , char *first_scales, char *second_scales
#define THIRDS , first_scales, second_scales
#elif STATES > 2
#define WITH_THIRDS , char *thirds
#define THIRDS , thirds
#else
#define WITH_THIRDS
#define THIRDS
#endif

// Changes `many` of four elements from i on. Without a master copy `master` is null.
template <class Weight, class Gradient>
static __device__ __forceinline__ void change_four(u64 i, u32 many, const Step &step, Weight *w, float *master,
                                                   const Gradient *dw, Moment *first, Moment *second, Moment *third) {
    float weights[FOUR], gradients[FOUR], m[FOUR] = {}, v[FOUR] = {}, u[FOUR] = {};
    if (master != nullptr) {
        load(master + i, many, weights);
    } else {
        load(w + i, many, weights);
    }
    load(dw + i, many, gradients);
    if (STATES > 0) load(first + i, many, m);
    if (STATES > 1) load(second + i, many, v);
    if (STATES > 2) load(third + i, many, u);
#pragma unroll
    for (u32 e = 0; e < FOUR; e++) change(weights[e], step.gradient(gradients[e]), m[e], v[e], u[e], step);
    if (STATES > 2) save(u, many, third + i);
    if (STATES > 0) save(m, many, first + i);
    if (STATES > 1) save(v, many, second + i);
    if (master != nullptr) save(weights, many, master + i);
    save(weights, many, w + i);
}

#ifdef CODES

// Computes the places of four consecutive elements of a weight with channels last. The elements are counted in the order of the shape.
static __device__ __forceinline__ void places(u64 first, u32 channels, u32 taps, u64 at[FOUR]) {
    const u32 filter = channels * taps;
    u64 begin = first / filter * filter;
    u32 within = (u32)(first - begin);
#pragma unroll
    for (u32 e = 0; e < FOUR; e++) {
        at[e] = begin + (u64)(within % taps) * channels + within / taps;
        if (++within == filter) {
            within = 0;
            begin += filter;
        }
    }
}

template <class T> static __device__ __forceinline__ void load_at(const T *from, const u64 at[FOUR], u32 many, float to[FOUR]) {
#pragma unroll
    for (u32 e = 0; e < FOUR; e++) to[e] = e < many ? widen(from[at[e]]) : 0.0f;
}

template <class T> static __device__ __forceinline__ void save_at(const float from[FOUR], const u64 at[FOUR], u32 many, T *to) {
#pragma unroll
    for (u32 e = 0; e < FOUR; e++)
        if (e < many) narrow(from[e], &to[at[e]]);
}

// Changes a thread's elements, if any, together with those of the other threads in the same block of codes. `taps` is 1 if the weight is dense.
template <class Weight, class Gradient>
static __device__ __forceinline__ void change_codes(const Part &part, const Step &step, u32 channels, u32 taps, Weight *w, float *master,
                                                    const Gradient *dw, const Coded (&states)[2], const Maps &maps, Highest &highest) {
    float weights[FOUR], gradients[FOUR], values[2][FOUR];
    u64 at[FOUR] = {};
    if (taps != 1) {
        places(part.first, channels, taps, at);
        load_at(dw, at, part.many, gradients);
        if (master != nullptr) {
            load_at(master, at, part.many, weights);
        } else {
            load_at(w, at, part.many, weights);
        }
    } else {
        load(dw + part.first, part.many, gradients);
        if (master != nullptr) {
            load(master + part.first, part.many, weights);
        } else {
            load(w + part.first, part.many, weights);
        }
    }
#pragma unroll
    for (u32 s = 0; s < 2; s++) decode(states[s], part, maps.entries[s], values[s]);
#pragma unroll
    for (u32 e = 0; e < FOUR; e++) {
        float none = 0.0f;
        change(weights[e], step.gradient(gradients[e]), values[0][e], values[1][e], none, step);
    }
    float scales[2];
    scales_of(values, highest, scales);
#pragma unroll
    for (u32 s = 0; s < 2; s++) encode(values[s], scales[s], part, maps.bounds[s], states[s]);
    if (taps != 1) {
        if (master != nullptr) save_at(weights, at, part.many, master);
        save_at(weights, at, part.many, w);
    } else {
        if (master != nullptr) save(weights, part.many, master + part.first);
        save(weights, part.many, w + part.first);
    }
}

#endif

// Shared memory for codes, declared in the kernel: in a template it would not be separate for each block when kernels are tested on the host.
#ifdef CODES
#define SHARED                                                                                                                        \
    __shared__ Maps maps;                                                                                                             \
    __shared__ Highest highest;
#define WITH_SHARED , Maps &maps, Highest &highest
#define OF_SHARED , maps, highest
#else
#define SHARED
#define WITH_SHARED
#define OF_SHARED
#endif

template <u32 LIMIT>
static __device__ __forceinline__ void update_all(char *weights, char *masters, const char *gradients, char *firsts, char *seconds
                                                  WITH_THIRDS, u32 *state, const Tensors<LIMIT> &tensors WITH_SHARED) {
    const bool is_skipped = state[STATE_OVERFLOW] != 0;
    Step step = {rate_of(state),
                       gradients_of(state),
                       {from_bits(state[STATE_CORRECTIONS]), from_bits(state[STATE_CORRECTIONS + 1])},
                       (float)((u64)state[STATE_STEP + 1] << 32 | state[STATE_STEP]) + 1.0f,
                       state[STATE_STEP] == 0 && state[STATE_STEP + 1] == 0};
#ifdef LOG_BETAS
    constexpr double logarithms[2] = LOG_BETAS;
#pragma unroll
    for (u32 which = 0; which < 2; which++) step.corrections[which] = -expm1f(step.t * (float)logarithms[which]);
#endif
    if (tensors.option != 0) leave_step(state);
    const Part part = part_of_thread(tensors);
    const u32 p = part.tensor;
#ifdef CODES
    // All threads of a block work on one parameter, so none of them leaves before a barrier that others reach.
    const bool has_codes = tensors.half(p) < BLOCK;
    if (is_skipped || !has_codes && part.many == 0) return;
    if (has_codes) {
        fill(maps);
        __syncthreads();
    }
#ifdef TURNED
    constexpr u32 KEPT = 6;
#else
    constexpr u32 KEPT = 4;
#endif
#else
    if (is_skipped || part.many == 0) return;
    constexpr u32 KEPT = STATES;
#endif
    char *w = weights + tensors.words[1][p] * UNIT;
    const char *dw = gradients + tensors.words[2][p] * UNIT;
#ifdef GROUPS
    constexpr u32 OF_STATES = FIELDS - 2 - KEPT;
    step.lr *= from_bits(tensors.words[FIELDS - 2][p]);
    step.weight_decay = from_bits(tensors.words[FIELDS - 1][p]);
#else
    constexpr u32 OF_STATES = FIELDS - KEPT;
#endif
    Moment *first = nullptr, *second = nullptr, *third = nullptr;
#if STATES > 0
    first = (Moment *)(firsts + tensors.words[OF_STATES][p] * UNIT);
#endif
#if STATES > 1
    second = (Moment *)(seconds + tensors.words[OF_STATES + 1][p] * UNIT);
#endif
#if STATES > 2
    third = (Moment *)(thirds + tensors.words[OF_STATES + 2][p] * UNIT);
#endif
#ifdef CODES
    const Coded states[2] = {{(u8 *)first, (float *)(first_scales + tensors.words[OF_STATES + 2][p] * UNIT)},
                             {(u8 *)second, (float *)(second_scales + tensors.words[OF_STATES + 3][p] * UNIT)}};
#ifdef TURNED
    const u32 channels = tensors.words[OF_STATES + 4][p], taps = tensors.words[OF_STATES + 5][p];
#else
    const u32 channels = 1, taps = 1;
#endif
#endif
#if MIXED
    const u32 master_at = tensors.words[3][p];
    if (master_at == NONE) {
#ifdef CODES
        if (has_codes) {
            change_codes(part, step, channels, taps, (float *)w, nullptr, (const float *)dw, states, maps, highest);
            return;
        }
#endif
        change_four(part.first, part.many, step, (float *)w, nullptr, (const float *)dw, first, second, third);
        return;
    }
    float *master = (float *)(masters + master_at * UNIT);
#else
    float *master = nullptr;
#endif
#ifdef CODES
    if (has_codes) {
        change_codes(part, step, channels, taps, (real *)w, master, (const Slope *)dw, states, maps, highest);
        return;
    }
#endif
    change_four(part.first, part.many, step, (real *)w, master, (const Slope *)dw, first, second, third);
}

// Grid: blocks of 256 threads.
KERNEL(update)(char *weights, char *masters, const char *gradients, char *firsts, char *seconds WITH_THIRDS, u32 *state,
               IN_PLACE Tensors<FEW> tensors) {
    SHARED
    update_all(weights, masters, gradients, firsts, seconds THIRDS, state, tensors OF_SHARED);
}

KERNEL(update_many)(char *weights, char *masters, const char *gradients, char *firsts, char *seconds WITH_THIRDS, u32 *state,
                    IN_PLACE Tensors<MOST> tensors) {
    SHARED
    update_all(weights, masters, gradients, firsts, seconds THIRDS, state, tensors OF_SHARED);
}
