// Updates of one parameter, or of many in one launch.
//
// BLOCKS, COUNTS  the blocks and elements of each parameter: see many.cuh
// WEIGHTS, MASTERS, GRADIENTS, FIRSTS, SECONDS  how far behind the pointer of that name its tensors begin, in units of 256
//              bytes; NONE where a parameter has no master copy
// MIXED        whether parameters with an f32 master copy have REAL elements and all others are f32, with gradients alike;
//              otherwise all are REAL and there are no copies
// MOMENT_REAL  what moments are made of: a type, as REAL is
// STATES       tensors that the optimizer keeps: 0, 1 (FIRSTS) or 2 (and SECONDS)
// OPTIMIZER    the rule: one of the structs below
// VALUES       its numbers, in the order of gpumem_core::optim; those that it has not are 0
//
// The learning rate and the step come from the state, so that a captured step can be replayed with others. Gradients carry
// the loss scale. Where the state says that one of them is not finite, nothing is updated.
//
// Where there is a master copy, w is that, and the parameter is w rounded.
#include "base.cuh"
#include "real.cuh"
#include "many.cuh"

typedef MOMENT_REAL Moment;

constexpr u32 NONE = 0xffffffffu;

static __constant__ const u32 weights_at[] = WEIGHTS, masters_at[] = MASTERS, gradients_at[] = GRADIENTS,
                              firsts_at[] = FIRSTS, seconds_at[] = SECONDS;

constexpr double values[8] = VALUES;

// What is the same for all elements.
struct Step {
    float lr, scale, factors[2];
    bool is_first;
};

// A rule changes one element: its weight w, gradient without loss scale, and states. Where it has factors, they depend on the
// number of the step, t, alone.

// g = dw + weight_decay w;  v = momentum v + (1 - dampening) g, in the first step g;  w -= lr (nesterov ? g + momentum v : v)
struct Sgd {
    static constexpr double momentum = values[0], dampening = values[1], weight_decay = values[2], nesterov = values[3];
    static constexpr bool has_factors = false;

    static __device__ __forceinline__ float factor(u32, double) { return 1.0f; }

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
    static constexpr bool has_factors = true;

    static __device__ __forceinline__ float factor(u32 which, double t) {
        // Powers of numbers near 1: in f32 the difference to 1 would lose half of its digits.
        return (float)(1.0 - pow(which == 0 ? beta1 : beta2, t));
    }

    static __device__ __forceinline__ void change(float &w, float g, float &m, float &v, const Step &step) {
        m = (float)beta1 * m + (float)(1.0 - beta1) * g;
        v = (float)beta2 * v + (float)(1.0 - beta2) * g * g;
        w -= step.lr / step.factors[0] * m / (sqrtf(v / step.factors[1]) + (float)eps);
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
    static constexpr bool has_factors = false;

    static __device__ __forceinline__ float factor(u32, double) { return 1.0f; }

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

// Blocks of 256 threads.
KERNEL(update)(char *weights, char *masters, const char *gradients, char *firsts, char *seconds, const u32 *state) {
    if (state[STATE_OVERFLOW] != 0) return;
    Step step = {from_bits(state[STATE_LEARNING_RATE]), from_bits(state[STATE_LOSS_SCALE]), {1.0f, 1.0f},
                 state[STATE_STEP] == 0 && state[STATE_STEP + 1] == 0};
    if (OPTIMIZER::has_factors) {
        __shared__ float factors[2];
        if (threadIdx.x < 2) {
            const double t = (double)((u64)state[STATE_STEP + 1] << 32 | state[STATE_STEP]) + 1.0;
            factors[threadIdx.x] = OPTIMIZER::factor(threadIdx.x, t);
        }
        __syncthreads();
        step.factors[0] = factors[0];
        step.factors[1] = factors[1];
    }
    const u32 p = tensor_of_block();
    const u64 i = first_of_thread(p);
    if (i >= counts[p]) return;
    const u32 many = many_of_thread(p, i);
    char *w = weights + weights_at[p] * 256ull;
    const char *dw = gradients + gradients_at[p] * 256ull;
    Moment *first = (Moment *)(firsts + firsts_at[p] * 256ull), *second = (Moment *)(seconds + seconds_at[p] * 256ull);
#if MIXED
    if (masters_at[p] == NONE) {
        change_four(i, many, step, (float *)w, nullptr, (const float *)dw, first, second);
        return;
    }
    float *master = (float *)(masters + masters_at[p] * 256ull);
#else
    float *master = nullptr;
#endif
    change_four(i, many, step, (real *)w, master, (const real *)dw, first, second);
}
