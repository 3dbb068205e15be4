// Triplet loss with hard mining in the batch: the positive of an anchor is the farthest vector of its class, the negative the nearest of another
// class.
//
// SAMPLES  vectors x[SAMPLES, LENGTH], each with a class number
// LENGTH   elements of a vector
// MARGIN   amount by which a positive must be nearer than a negative
// MEAN     1 if the sum is divided by the number of anchors that have both, 0 if it is not divided
// ADD      1 if the gradient is added to its tensor (+=), 0 if it overwrites it
// WEIGHT   factor of loss and gradient
//
// d[i, j] = |x[i] - x[j]|; loss = sum of max(0, d[i, p[i]] - d[i, n[i]] + MARGIN) over anchors that have both
// dx[r]   = u[r, p[r]] - u[r, n[r]] + sum over i with p[i] = r of u[r, i] - sum over i with n[i] = r of u[r, i], over anchors whose term is
//           above 0, with u[i, j] = (x[i] - x[j]) / d[i, j], and 0 if that is 0
//
// `found` has four words a sample: the numbers of positive and negative, or NOBODY, and their distances. `terms` has SAMPLES terms, and
// after them a 1 for each anchor that has both. Of equal distances the first counts.
#include "base.cuh"
#include "real.cuh"
#include "loss.cuh"

constexpr u32 NOBODY = 0xffffffffu;

// The best candidate of one kind so far.
struct Best {
    float distance;
    u32 sample;

    // FAR: true to look for the largest distance. A NaN distance is always taken, so that it reaches the loss.
    template <bool FAR> __device__ __forceinline__ void take(float other, u32 number) {
        if (number == NOBODY) return;
        const bool is_better = FAR ? other > distance : other < distance;
        const bool is_first = other == distance && number < sample;
        if (sample == NOBODY || is_better || is_first || other != other) distance = other, sample = number;
    }
};

// Grid: a block for each anchor, whose warps process one sample after the other.
KERNEL(mined_terms)(const real *x, const u32 *ids, u32 *found, float *terms) {
    __shared__ Best best[2][32];
    const u32 anchor = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32, own = ids[anchor];
    const real *row = x + (u64)anchor * LENGTH;
    Best positive = {0.0f, NOBODY}, negative = {0.0f, NOBODY};
    for (u32 other = warp; other < SAMPLES; other += warps) {
        if (other == anchor) continue;
        const real *column = x + (u64)other * LENGTH;
        float sum = 0.0f;
        for (u64 i = lane; i < LENGTH; i += 32) {
            const float d = widen(row[i]) - widen(column[i]);
            sum += d * d;
        }
        const float distance = sqrtf(warp_sum(sum));
        if (ids[other] == own) {
            positive.take<true>(distance, other);
        } else {
            negative.take<false>(distance, other);
        }
    }
    if (lane == 0) best[0][warp] = positive, best[1][warp] = negative;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (u32 i = 1; i < warps; i++) {
        positive.take<true>(best[0][i].distance, best[0][i].sample);
        negative.take<false>(best[1][i].distance, best[1][i].sample);
    }
    u32 *to = found + 4 * (u64)anchor;
    to[0] = positive.sample, to[1] = negative.sample;
    to[2] = bits_of(positive.distance), to[3] = bits_of(negative.distance);
    const bool has_both = positive.sample != NOBODY && negative.sample != NOBODY;
    const float term = positive.distance - negative.distance + (float)(MARGIN);
    terms[anchor] = has_both ? at_least(0.0f, term) : 0.0f;
    terms[SAMPLES + anchor] = has_both ? 1.0f : 0.0f;
}

#if MEAN
// Counts the anchors that have both, in one block.
KERNEL(mined_anchors)(const float *terms, float *divisor) {
    __shared__ float scratch[32];
    float sum = 0.0f;
    for (u32 i = threadIdx.x; i < SAMPLES; i += blockDim.x) sum += terms[SAMPLES + i];
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) divisor[0] = sum;
}
#endif

// Computes the gradient of a vector. Grid: a block for each.
KERNEL(mined_gradients)(const real *x, const u32 *found, const u32 *state, const float *divisor, real *dx) {
    const u32 sample = blockIdx.x;
    const float share = factor(state) / (MEAN ? divisor[0] : 1.0f);
    const u64 first = (u64)sample * LENGTH;
    for (u64 i = threadIdx.x; i < LENGTH; i += blockDim.x) {
        const float own = widen(x[first + i]);
        float sum = 0.0f;
        for (u32 anchor = 0; anchor < SAMPLES; anchor++) {
            const u32 *of = found + 4 * (u64)anchor;
            const u32 samples[2] = {of[0], of[1]};
            const float distances[2] = {from_bits(of[2]), from_bits(of[3])};
            if (samples[0] == NOBODY || samples[1] == NOBODY || distances[0] - distances[1] + (float)(MARGIN) <= 0.0f) continue;
#pragma unroll
            for (int side = 0; side < 2; side++) {
                const u32 other = anchor == sample ? samples[side] : samples[side] == sample ? anchor : NOBODY;
                if (other == NOBODY || distances[side] == 0.0f) continue;
                const float unit = (own - widen(x[(u64)other * LENGTH + i])) / distances[side];
                sum += side == 0 ? unit : -unit;
            }
        }
        give<ADD>(sum * share, &dx[first + i]);
    }
}
