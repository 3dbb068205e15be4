// A warp's rows of attention on tensor cores, for attention_mma.cuh and attention_wgmma.cuh: 16 queries, or 16 keys, in registers.
//
// With g = lane / 4 and t = lane % 4, a lane has rows g and g + 8 of its warp's product, and columns 2t and 2t + 1 of each eight: elements e = 0, 1
// of row g, and 2, 3 of row g + 8.
//
// No include guard: the tests include it once for each kernel they compile.
#include "mma.cuh"

// Parts of 16 elements of a head, and of 8.
constexpr int PARTS = HEAD / 16;
constexpr int EIGHTS = HEAD / 8;
constexpr float LOG2_E = 1.44269504088896341f;
constexpr float LN_2 = 0.693147180559945309f;
constexpr float SCALE_2 = (float)(SCALE)*LOG2_E;
// Factors of scores, and of the logarithms that the forward pass saves, before they are compared. They make both logarithms to the base of 2. With
// a bias both are 1: otherwise a score of the lowest number of a format would become -infinity.
constexpr float SCORE_UNIT = MATRICES ? 1.0f : SCALE_2, LOG_UNIT = MATRICES ? 1.0f : LOG2_E;

// Return the first of the warp's rows in the block, and the lane's row and pair of columns in the warp's product.
static __device__ __forceinline__ int warp_row() { return threadIdx.x / 32 * 16; }
static __device__ __forceinline__ int lane_row() { return threadIdx.x % 32 / 4; }
static __device__ __forceinline__ int lane_pair() { return threadIdx.x % 4 * 2; }

static __device__ __forceinline__ void clear(Accumulator &sum) {
#pragma unroll
    for (int e = 0; e < 4; e++) sum.at[e] = 0.0f;
}

// Converts the result of a product to the left operand of the next one.
static __device__ __forceinline__ Left as_left(const Accumulator values[2]) {
    Left left;
#pragma unroll
    for (int i = 0; i < 4; i++) left.at[i] = pack(values[i / 2].at[i % 2 * 2], values[i / 2].at[i % 2 * 2 + 1]);
    return left;
}

// Reductions over the four lanes that share rows.
static __device__ __forceinline__ float quad_sum(float x) {
    x += __shfl_xor_sync(FULL_WARP, x, 1);
    return x + __shfl_xor_sync(FULL_WARP, x, 2);
}

static __device__ __forceinline__ float quad_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(FULL_WARP, x, 1));
    return fmaxf(x, __shfl_xor_sync(FULL_WARP, x, 2));
}

// Returns 2^x, at most two units in the last place off; numbers below the smallest normal one count as 0.
static __device__ __forceinline__ float power_of_two(float x) {
#ifdef __CUDA_ARCH__
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return exp2f(x);
#endif
}

static __device__ __forceinline__ void unpack(u32 word, float &low, float &high) {
    real first, second;
    first.bits = (u16)word;
    second.bits = (u16)(word >> 16);
    low = widen(first);
    high = widen(second);
}

// Returns the dot product of two pairs of elements.
static __device__ __forceinline__ float dot_pair(u32 a, u32 b) {
    float a_low, a_high, b_low, b_high;
    unpack(a, a_low, a_high);
    unpack(b, b_low, b_high);
    return a_low * b_low + a_high * b_high;
}

// Writes the warp's rows of a head of LENGTH time steps, from time step `step` on. With ADDS, adds them to those in memory.
template <int LENGTH, bool ADDS>
static __device__ __forceinline__ void store_rows(real *head, u64 pitch, int step, const Accumulator sums[2 * PARTS],
                                                  const float factors[2]) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = step + lane_row() + 8 * half;
        if (row >= LENGTH) continue;
        u32 *to = (u32 *)(head + row * pitch + lane_pair());
#pragma unroll
        for (int n = 0; n < 2 * PARTS; n++) {
            float low = sums[n].at[2 * half] * factors[half], high = sums[n].at[2 * half + 1] * factors[half];
            if (ADDS) {
                float old_low, old_high;
                unpack(to[4 * n], old_low, old_high);
                low += old_low;
                high += old_high;
            }
            to[4 * n] = pack(low, high);
        }
    }
}

// A lane's state for rows g and g + 8 during the pass over keys: the score that weights are relative to, and its share of the sum of 2^(score -
// base).
struct Softmax {
    float base[2], total[2];
};

// Returns the power of e for a difference of two numbers in the unit of scores.
static __device__ __forceinline__ float power_of(float difference) {
    return power_of_two(MATRICES ? difference * LOG2_E : difference);
}

// The amount by which a score may exceed the base before the base is moved. It avoids rescaling the sums for every tile. Weights of up to 2^8 are far
// from overflow, unless the factor of kept weights is large.
constexpr float MARGIN = (float)(KEEP) > 64.0f ? 0.0f : MATRICES ? 8.0f * LN_2 : 8.0f;
