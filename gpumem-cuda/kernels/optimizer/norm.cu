// The norm of all gradients of a step, by which they may be clipped:
//
// norm_squares  the root of the mean square of each 1024 elements of gradients: of one parameter, or of many in one launch
// norm_total    the norm, and the factor by which updates multiply gradients, in the state; norm_total_of_ranks if ranks have shards of gradients
//
// The order of all sums depends on shapes only. Gradients are squared in f32 and without the loss scale. The norm is not finite if one of them is
// not.
//
// FIELDS, MOST  see multi_tensor.cuh. A launch has for each gradient, after its first block: its offset from the pointer, in units of UNIT bytes. The bit is
//               set if its elements are f32 rather than REAL. The number for all is the index of its first sum
// LARGEST       given if gradients are clipped: the largest norm that they may have
// SKIPS         given if a step with a norm that is not finite is skipped
// SHARDED       given on several ranks, which may have shards of gradients
#include "base.cuh"
#include "real.cuh"
#include "multi_tensor.cuh"

constexpr float ROOT_OF_BLOCK = 32.0f;
static_assert(ROOT_OF_BLOCK * ROOT_OF_BLOCK == BLOCK, "the root of the elements of a block");

template <u32 LIMIT>
static __device__ __forceinline__ void squares(const char *gradients, float *roots, const u32 *state, const Tensors<LIMIT> &tensors,
                                               float *shared) {
    const Part part = part_of_thread(tensors);
    const char *from = gradients + tensors.words[1][part.tensor] * UNIT;
    const float scale = from_bits(state[STATE_LOSS_SCALE]);
    float values[FOUR] = {};
    if (part.many > 0 && tensors.half(part.tensor) >= BLOCK) {
        load((const float *)from + part.first, part.many, values);
    } else if (part.many > 0) {
        load((const real *)from + part.first, part.many, values);
    }
#pragma unroll
    for (u32 e = 0; e < FOUR; e++) values[e] /= scale;
    // The root of a mean square is finite if the gradients are.
    const float root = block_norm(values, shared, 1.0f / ROOT_OF_BLOCK);
    if (threadIdx.x == 0) roots[tensors.option + blockIdx.x] = root;
}

// Grid: blocks of 256 threads.
KERNEL(__launch_bounds__(1024) norm_squares)(const char *gradients, float *roots, const u32 *state, IN_PLACE Tensors<FEW> tensors) {
    __shared__ float shared[32];
    squares(gradients, roots, state, tensors, shared);
}

KERNEL(__launch_bounds__(1024) norm_squares_many)(const char *gradients, float *roots, const u32 *state, IN_PLACE Tensors<MOST> tensors) {
    __shared__ float shared[32];
    squares(gradients, roots, state, tensors, shared);
}

// Adds up squares in double precision: in f32 the sum would lose digits in a large network, and squares could overflow.
static __device__ __forceinline__ double sum_of_squares(const float *roots, u32 count) {
    double sum = 0.0;
    for (u32 i = threadIdx.x; i < count; i += 1024) sum += (double)roots[i] * (double)roots[i];
    return sum;
}

static __device__ __forceinline__ void total(double sum, u32 *state, double *shared) {
    shared[threadIdx.x] = sum;
    for (u32 step = 512; step > 0; step /= 2) {
        __syncthreads();
        if (threadIdx.x < step) shared[threadIdx.x] += shared[threadIdx.x + step];
    }
    if (threadIdx.x != 0) return;
    const double norm = sqrt(shared[0] * BLOCK);
    state[STATE_NORM] = bits_of((float)norm);
#ifdef SKIPS
    if (!(norm <= 1.7976931348623157e308)) state[STATE_OVERFLOW] = 1;
#endif
#ifdef LARGEST
    // A skipped step keeps the previous factor.
    if (state[STATE_OVERFLOW] != 0) return;
    const double factor = (double)(LARGEST) / (norm + 1e-6);
    // NaN stays NaN.
    state[STATE_CLIP] = bits_of(factor > 1.0 ? 1.0f : (float)factor);
#endif
}

struct Given {
    // Pieces of all gradients.
    u32 count;
};

// Grid: one block of 1024 threads.
KERNEL(__launch_bounds__(1024) norm_total)(const float *roots, u32 *state, IN_PLACE Given given) {
    __shared__ double shared[1024];
    total(sum_of_squares(roots, given.count), state, shared);
}

#ifdef SHARDED
struct Rows {
    // Pieces of gradients that all ranks have, and rows of the others: one of each rank, its pieces, and elements from one row to the next.
    u32 count, rows, own, pitch;
};

// norm_total on several ranks. shards [rows, pitch] has the sums of sharded gradients. Grid: one block of 1024 threads.
KERNEL(__launch_bounds__(1024) norm_total_of_ranks)(const float *roots, const float *shards, u32 *state, IN_PLACE Rows given) {
    __shared__ double shared[1024];
    double sum = sum_of_squares(roots, given.count);
    for (u32 row = 0; row < given.rows; row++) sum += sum_of_squares(shards + (u64)row * given.pitch, given.own);
    total(sum, state, shared);
}
#endif
