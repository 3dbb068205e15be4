// Updates of one parameter, or of many in one launch.
//
// MIXED        whether parameters with an f32 master copy have REAL elements and all others are f32, with gradients alike;
//              otherwise all are REAL and there are no copies
// MOMENT_REAL  what moments are made of: a type, as REAL is
// STATES       tensors that the optimizer keeps: 0, 1 (`firsts`) or 2 (and `seconds`)
// OPTIMIZER    the rule: one of the structs below
// VALUES       its numbers, in the order of gpumem_core::optim; those that it has not are 0
// FIELDS, MOST see many.cuh. Of each parameter a launch says, behind its first block, how far behind the pointer of that name its
//              weights, gradients, master copy (where MIXED), first and second state begin, in units of 256 bytes, those that there
//              are; NONE where a parameter has no master copy. Its number for all says whether this is the end of the step
//
// The learning rate, the step and what depends on it come from the state, so that a captured step can be replayed with others.
// Gradients carry the loss scale. Where the state says that one of them is not finite, nothing is updated.
//
// Where there is a master copy, w is that, and the parameter is w rounded.
//
// At the end of the step, the last block that has read the state goes on to the next one: nobody else looks at it any more.
#include "base.cuh"
#include "real.cuh"
#include "advance.cuh"
#include "many.cuh"

typedef MOMENT_REAL Moment;

#if MIXED
constexpr u32 NONE = 0xffffffffu;
#endif

constexpr double values[8] = VALUES;

// What is the same for all elements.
struct Step {
    float lr, scale, corrections[2];
    bool is_first;
};

// A rule changes one element: its weight w, gradient without loss scale, and states.

// g = dw + weight_decay w;  v = momentum v + (1 - dampening) g, in the first step g;  w -= lr (nesterov ? g + momentum v : v)
struct Sgd {
    static constexpr double momentum = values[0], dampening = values[1], weight_decay = values[2], nesterov = values[3];

    static __device__ __forceinline__ void change(float &w, float g, float &v, float &, const Step &step) {
        g += (float)weight_decay * w;
        if (STATES > 0) {
            v = step.is_first ? g : (float)momentum * v + (float)(1.0 - dampening) * g;
            g = nesterov != 0.0 ? g + (float)momentum * v : v;
        }
        w -= step.lr * g;
    }
};

// m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;  w -= lr / (1 - beta1^t) m / (sqrt(v / (1 - beta2^t)) + eps)
struct Moments {
    static constexpr double beta1 = values[0], beta2 = values[1], eps = values[2], weight_decay = values[3];

    static __device__ __forceinline__ void change(float &w, float g, float &m, float &v, const Step &step) {
        m = (float)beta1 * m + (float)(1.0 - beta1) * g;
        v = (float)beta2 * v + (float)(1.0 - beta2) * g * g;
        w -= step.lr / step.corrections[0] * m / (sqrtf(v / step.corrections[1]) + (float)eps);
    }
};

// With g = dw + weight_decay w.
struct Adam : Moments {
    static __device__ __forceinline__ void change(float &w, float g, float &m, float &v, const Step &step) {
        Moments::change(w, g + (float)weight_decay * w, m, v, step);
    }
};

// Before it w *= 1 - lr weight_decay.
struct AdamW : Moments {
    static __device__ __forceinline__ void change(float &w, float g, float &m, float &v, const Step &step) {
        w *= 1.0f - step.lr * (float)weight_decay;
        Moments::change(w, g, m, v, step);
    }
};

// w *= 1 - lr weight_decay;  w -= lr sign(beta1 m + (1 - beta1) g);  m = beta2 m + (1 - beta2) g
struct Lion {
    static constexpr double beta1 = values[0], beta2 = values[1], weight_decay = values[2];

    static __device__ __forceinline__ void change(float &w, float g, float &m, float &, const Step &step) {
        const float towards = (float)beta1 * m + (float)(1.0 - beta1) * g;
        w *= 1.0f - step.lr * (float)weight_decay;
        // Zero has no sign; what is no number stays none.
        w -= step.lr * (towards > 0.0f ? 1.0f : towards < 0.0f ? -1.0f : towards);
        m = (float)beta2 * m + (float)(1.0 - beta2) * g;
    }
};

// `many` of four numbers.
template <class T> static __device__ __forceinline__ void save(const float from[FOUR], u32 many, T *to) {
    if (many == FOUR) {
        Pack<T> pack;
#pragma unroll
        for (u32 e = 0; e < FOUR; e++) narrow(from[e], &pack.at[e]);
        *(Pack<T> *)to = pack;
        return;
    }
#pragma unroll
    for (u32 e = 0; e < FOUR; e++)
        if (e < many) narrow(from[e], &to[e]);
}

// `many` of four elements from i on. Without a master copy `master` is null.
template <class Weight>
static __device__ __forceinline__ void change_four(u64 i, u32 many, const Step &step, Weight *w, float *master,
                                                   const Weight *dw, Moment *first, Moment *second) {
    float weights[FOUR], gradients[FOUR], m[FOUR] = {}, v[FOUR] = {};
    if (master != nullptr) {
        load(master + i, many, weights);
    } else {
        load(w + i, many, weights);
    }
    load(dw + i, many, gradients);
    if (STATES > 0) load(first + i, many, m);
    if (STATES > 1) load(second + i, many, v);
#pragma unroll
    for (u32 e = 0; e < FOUR; e++) OPTIMIZER::change(weights[e], gradients[e] / step.scale, m[e], v[e], step);
    if (STATES > 0) save(m, many, first + i);
    if (STATES > 1) save(v, many, second + i);
    if (master != nullptr) save(weights, many, master + i);
    save(weights, many, w + i);
}

template <u32 LIMIT>
static __device__ __forceinline__ void update_all(char *weights, char *masters, const char *gradients, char *firsts, char *seconds,
                                                  u32 *state, const Tensors<LIMIT> &tensors) {
    const bool is_skipped = state[STATE_OVERFLOW] != 0;
    const Step step = {from_bits(state[STATE_LEARNING_RATE]),
                       from_bits(state[STATE_LOSS_SCALE]),
                       {from_bits(state[STATE_CORRECTIONS]), from_bits(state[STATE_CORRECTIONS + 1])},
                       state[STATE_STEP] == 0 && state[STATE_STEP + 1] == 0};
    if (tensors.option != 0) {
        // All threads of the block have read it. What others read comes before what the last one writes.
        __syncthreads();
        if (threadIdx.x == 0) {
            __threadfence();
            if (atomicInc(&state[STATE_READERS], gridDim.x - 1) == gridDim.x - 1) {
                __threadfence();
                advance_state(state);
            }
        }
    }
    const Part part = part_of_thread(tensors);
    if (is_skipped || part.many == 0) return;
    const u32 p = part.tensor;
    char *w = weights + tensors.words[1][p] * 256ull;
    const char *dw = gradients + tensors.words[2][p] * 256ull;
    Moment *first = nullptr, *second = nullptr;
#if STATES > 0
    first = (Moment *)(firsts + tensors.words[FIELDS - STATES][p] * 256ull);
#endif
#if STATES > 1
    second = (Moment *)(seconds + tensors.words[FIELDS - 1][p] * 256ull);
#endif
#if MIXED
    const u32 master_at = tensors.words[3][p];
    if (master_at == NONE) {
        change_four(part.first, part.many, step, (float *)w, nullptr, (const float *)dw, first, second);
        return;
    }
    float *master = (float *)(masters + master_at * 256ull);
#else
    float *master = nullptr;
#endif
    change_four(part.first, part.many, step, (real *)w, master, (const real *)dw, first, second);
}

// Blocks of 256 threads.
KERNEL(update)(char *weights, char *masters, const char *gradients, char *firsts, char *seconds, u32 *state,
               IN_PLACE Tensors<FEW> tensors) {
    update_all(weights, masters, gradients, firsts, seconds, state, tensors);
}

KERNEL(update_many)(char *weights, char *masters, const char *gradients, char *firsts, char *seconds, u32 *state,
                    IN_PLACE Tensors<MOST> tensors) {
    update_all(weights, masters, gradients, firsts, seconds, state, tensors);
}
