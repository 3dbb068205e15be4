// Losses, and the gradient that they start from, which may overwrite the logits.
//
// ROWS     positions: samples times positions of a sample
// CLASSES  classes, or 1
// INNER    positions after the class axis; logits are [ROWS / INNER, CLASSES, INNER]
// PITCH, GRADIENT_PITCH  elements from one row of logits, and of their gradient, to the next; CLASSES where there are no gaps
// COUNT    elements of the output
// GRADIENT whether there is a gradient
// ADD      whether the gradient is added to what is there, which is not where the logits are
// DIVISOR  what the sum of the terms is divided by
// WEIGHT   what loss and gradient are multiplied with
// SUM      whether the loss is added to what is there: the losses before this one
// BETAS    where this is a step of Adam's, its two: the updates' corrections are computed here, once
// CORRECTIONS, VALUES  where the optimizer has others, its rule and numbers: see corrections.cuh
//
// The loss scale of the state multiplies the gradient, not the loss.
//
// cross_entropy: loss = mean over rows of log(sum(exp(x))) - x[target]; dx = (softmax(x) - onehot(target)) / ROWS
// mse:           loss = mean of (x - t)^2;                              dx = 2 (x - t) / COUNT
// mean:          loss = mean of x;                                      dx = 1 / COUNT
// dot:           loss = sum of x t;                                     dx = t
//
// The terms go to the workspace and are added up by one block, in the same order in every run. Where there are few elements, that
// block does all.
//
// ring: if there is one, eight words in the memory of the host, to one of which the last term of a training step sends the loss.
#include "base.cuh"
#include "real.cuh"
#ifdef CORRECTIONS
#include "corrections.cuh"
#endif

// What every gradient is multiplied with.
static __device__ __forceinline__ float factor(const u32 *state) {
    return from_bits(state[STATE_LOSS_SCALE]) * (float)(WEIGHT);
}

static __device__ __forceinline__ void put(float gradient, real *dx) {
#if ADD
    gradient += widen(*dx);
#endif
    narrow(gradient, dx);
}

// Elements of 16 bytes, if all rows begin at a multiple of that and lie in one piece.
constexpr int WIDE = 16 / sizeof(real), PACK = INNER == 1 && PITCH % WIDE == 0 && GRADIENT_PITCH % WIDE == 0 ? WIDE : 1;
// Classes in whole packs.
constexpr u64 WHOLE = CLASSES / PACK * PACK;

struct alignas(sizeof(real) * PACK) Pack {
    real at[PACK];
};

// The largest number that a thread has seen, and the sum of exp(x - largest) over all of them: of -INFINITY alone it is 0, and NaN stays.
struct Sum {
    float largest, sum;

    __device__ __forceinline__ static float below(float x, float largest) {
        return expf(x - (largest == -__int_as_float(0x7f800000) ? 0.0f : largest));
    }
    // MANY numbers, after which the sum refers to the largest so far.
    template <int MANY> __device__ __forceinline__ void add(const real *from) {
        float most = largest;
#pragma unroll
        for (int k = 0; k < MANY; k++) most = fmaxf(most, widen(from[k]));
        sum *= below(largest, most);
#pragma unroll
        for (int k = 0; k < MANY; k++) sum += below(widen(from[k]), most);
        largest = most;
    }
};

// Those who work on a row: a block, or a warp of one.
struct OfBlock {
    u32 thread, threads;
    float *scratch;

    __device__ __forceinline__ float max(float x) const { return block_max(x, scratch); }
    __device__ __forceinline__ float sum(float x) const { return block_sum(x, scratch); }
    __device__ __forceinline__ void wait() const { __syncthreads(); }
};

struct OfWarp {
    u32 thread, threads;

    __device__ __forceinline__ float max(float x) const { return warp_max(x); }
    __device__ __forceinline__ float sum(float x) const { return warp_sum(x); }
    __device__ __forceinline__ void wait() const { __syncwarp(); }
};

// The term of a row, in each of them, and its gradient. Rows of thousands of classes are read by all of them together, twice.
template <class All>
static __device__ __forceinline__ float row_term(const All &all, u64 row, const real *x, const u32 *target, const u32 *state,
                                                 real *dx) {
    const u64 thread = all.thread, threads = all.threads;
    const real *logits = x + row / INNER * (u64)(INNER == 1 ? PITCH : CLASSES * INNER) + row % INNER;
    Sum own = {-__int_as_float(0x7f800000), 0.0f};
    for (u64 c = thread * PACK; c < WHOLE; c += threads * PACK) {
        const Pack pack = *(const Pack *)(logits + c * INNER);
        own.add<PACK>(pack.at);
    }
    if (PACK > 1 && WHOLE + thread < CLASSES) own.add<1>(logits + WHOLE + thread);
    const float largest = all.max(own.largest);
    const float sum = all.sum(own.sum * Sum::below(own.largest, largest));
    const u64 label = target[row];
    // Read before the gradient takes its place.
    const float right = widen(logits[label * INNER]);
    all.wait();
#if GRADIENT
    const float scale = factor(state) / (float)ROWS;
    real *gradient = dx + row / INNER * (u64)(INNER == 1 ? GRADIENT_PITCH : CLASSES * INNER) + row % INNER;
    // That of class c, where the logit x was and `to` is.
    const auto give = [&](u64 c, real x, real *to) {
        const float p = expf(widen(x) - largest) / sum;
        put((p - (c == label ? 1.0f : 0.0f)) * scale, to);
    };
    for (u64 c = thread * PACK; c < WHOLE; c += threads * PACK) {
        const Pack pack = *(const Pack *)(logits + c * INNER);
        Pack out = pack;
#if ADD
        out = *(const Pack *)(gradient + c * INNER);
#endif
#pragma unroll
        for (int k = 0; k < PACK; k++) give(c + k, pack.at[k], &out.at[k]);
        *(Pack *)(gradient + c * INNER) = out;
    }
    if (PACK > 1 && WHOLE + thread < CLASSES) {
        const u64 c = WHOLE + thread;
        give(c, logits[c], &gradient[c]);
    }
#endif
    return logf(sum) + largest - right;
}

// A block for each row.
KERNEL(cross_entropy_rows)(const real *x, const u32 *target, const u32 *state, real *dx, float *row_loss) {
    __shared__ float scratch[32];
    const float term = row_term(OfBlock{threadIdx.x, blockDim.x, scratch}, blockIdx.x, x, target, state, dx);
    if (threadIdx.x == 0) row_loss[blockIdx.x] = term;
}

// The terms of other losses, with their gradients.
struct Mse {
    static __device__ __forceinline__ float term(float x, float t, const u32 *state, real *dx) {
        const float difference = x - t;
#if GRADIENT
        put(2.0f * difference * factor(state) / (float)COUNT, dx);
#endif
        return difference * difference;
    }
};

struct Dot {
    static __device__ __forceinline__ float term(float x, float t, const u32 *state, real *dx) {
#if GRADIENT
        put(t * factor(state), dx);
#endif
        return x * t;
    }
};

// There is no target.
struct Mean {
    static __device__ __forceinline__ float term(float x, float, const u32 *state, real *dx) {
#if GRADIENT
        put(factor(state) / (float)COUNT, dx);
#endif
        return x;
    }
};

// Element i, and its gradient.
template <class Loss>
static __device__ __forceinline__ float term_of(u64 i, const real *x, const real *target, const u32 *state, real *dx) {
    const float t = SAME<Loss, Mean> ? 0.0f : widen(target[i]);
    return Loss::term(widen(x[i]), t, state, GRADIENT ? dx + i : nullptr);
}

// The terms of a block, over elements a stride of all blocks apart.
template <class Loss>
static __device__ __forceinline__ float terms_of_block(const real *x, const real *target, const u32 *state, real *dx, float *scratch) {
    float sum = 0.0f;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < COUNT; i += (u64)gridDim.x * blockDim.x)
        sum += term_of<Loss>(i, x, target, state, dx);
    return block_sum(sum, scratch);
}

// All terms, in one block, of 32 times 256 elements at most: added up in the order in which many blocks of 256 threads do it.
// `scratch` has 288 floats of shared memory.
template <class Loss>
static __device__ __forceinline__ float all_terms(const real *x, const real *target, const u32 *state, real *dx, float *scratch) {
    constexpr u32 BLOCKS = COUNT < 8192 ? (u32)((COUNT + 255) / 256) : 32;
    float *sums = scratch, *sums_of_blocks = scratch + 256;
    const u32 lane = threadIdx.x % 32;
    for (u32 i = threadIdx.x; i < BLOCKS * 256; i += blockDim.x) {
        const float sum = warp_sum(i < COUNT ? term_of<Loss>(i, x, target, state, dx) : 0.0f);
        if (lane == 0) sums[i / 32] = sum;
    }
    __syncthreads();
    for (u32 block = threadIdx.x / 32; block < BLOCKS; block += blockDim.x / 32) {
        const float sum = warp_sum(lane < 8 ? sums[block * 8 + lane] : 0.0f);
        if (lane == 0) sums_of_blocks[block] = sum;
    }
    __syncthreads();
    return warp_sum(lane < BLOCKS ? sums_of_blocks[lane] : 0.0f);
}

// Partial sums of 256 blocks.
KERNEL(mse_partial)(const real *x, const real *target, const u32 *state, real *dx, float *partial) {
    __shared__ float scratch[32];
    const float sum = terms_of_block<Mse>(x, target, state, dx, scratch);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

KERNEL(mean_partial)(const real *x, const real *target, const u32 *state, real *dx, float *partial) {
    __shared__ float scratch[32];
    const float sum = terms_of_block<Mean>(x, target, state, dx, scratch);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

KERNEL(dot_partial)(const real *x, const real *target, const u32 *state, real *dx, float *partial) {
    __shared__ float scratch[32];
    const float sum = terms_of_block<Dot>(x, target, state, dx, scratch);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

// Words of the ring: session/losses.rs.
constexpr u32 RING = 8;

// Sends a loss to the host, by one thread: its bits below the number of the step. Steps are numbered from 1 on by a count of their
// own, since one that is skipped does not count in the state's other. A word of 64 bits is written whole, so the host never sees the
// number of one step beside the loss of another.
static __device__ __forceinline__ void send(float loss, volatile u64 *ring, u32 *state) {
    const u32 number = ++state[STATE_LOSSES];
    ring[number % RING] = (u64)number << 32 | bits_of(loss);
    // The host has it before anything behind this launch begins.
    __threadfence_system();
}

// The end, by one block: the sum of all terms over DIVISOR, times WEIGHT; and what all updates of this step need.
static __device__ __forceinline__ void finish(float sum, float *loss, u32 *state, u64 *ring) {
#ifdef BETAS
    if (threadIdx.x < 2) {
        constexpr double betas[2] = BETAS;
        const double t = (double)((u64)state[STATE_STEP + 1] << 32 | state[STATE_STEP]) + 1.0;
        // Powers of numbers near 1: in f32 the difference to 1 would lose half of its digits.
        state[STATE_CORRECTIONS + threadIdx.x] = bits_of((float)(1.0 - pow(threadIdx.x == 0 ? betas[0] : betas[1], t)));
    }
#endif
#ifdef CORRECTIONS
    if (threadIdx.x < 2) {
        const double t = (double)((u64)state[STATE_STEP + 1] << 32 | state[STATE_STEP]) + 1.0;
        state[STATE_CORRECTIONS + threadIdx.x] = bits_of((float)CORRECTIONS::at(threadIdx.x, t));
    }
#endif
    if (threadIdx.x != 0) return;
    float total = sum / (float)(DIVISOR) * (float)(WEIGHT);
#if SUM
    total += loss[0];
#endif
    loss[0] = total;
    if (ring) send(total, ring, state);
}

// That of ROWS terms, in the same order in every run.
static __device__ __forceinline__ float sum_of_terms(const float *terms, float *scratch) {
    float sum = 0.0f;
    for (u64 i = threadIdx.x; i < ROWS; i += blockDim.x) sum += terms[i];
    return block_sum(sum, scratch);
}

KERNEL(loss_total)(const float *terms, float *loss, u32 *state, u64 *ring) {
    __shared__ float scratch[32];
    finish(sum_of_terms(terms, scratch), loss, state, ring);
}

// All in one block: a warp for each row, one after the other.
KERNEL(__launch_bounds__(1024) cross_entropy)(const real *x, const u32 *target, u32 *state, real *dx, float *terms, float *loss,
                                               u64 *ring) {
    __shared__ float scratch[32];
    for (u64 row = threadIdx.x / 32; row < ROWS; row += blockDim.x / 32) {
        const float term = row_term(OfWarp{threadIdx.x % 32, 32}, row, x, target, state, dx);
        if (threadIdx.x % 32 == 0) terms[row] = term;
    }
    __syncthreads();
    finish(sum_of_terms(terms, scratch), loss, state, ring);
}

KERNEL(__launch_bounds__(1024) mse)(const real *x, const real *target, u32 *state, real *dx, float *, float *loss, u64 *ring) {
    __shared__ float scratch[288];
    finish(all_terms<Mse>(x, target, state, dx, scratch), loss, state, ring);
}

KERNEL(__launch_bounds__(1024) mean)(const real *x, const real *target, u32 *state, real *dx, float *, float *loss, u64 *ring) {
    __shared__ float scratch[288];
    finish(all_terms<Mean>(x, target, state, dx, scratch), loss, state, ring);
}

KERNEL(__launch_bounds__(1024) dot)(const real *x, const real *target, u32 *state, real *dx, float *, float *loss, u64 *ring) {
    __shared__ float scratch[288];
    finish(all_terms<Dot>(x, target, state, dx, scratch), loss, state, ring);
}
