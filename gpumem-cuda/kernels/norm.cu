// The norm of all gradients of a step, by which they may be clipped:
//
// norm_squares  the root of the mean square of each 1024 elements of gradients: of one parameter, or of many in one launch
// norm_total    the norm, and what updates multiply gradients with, in the state
//
// All sums are made in an order that depends on shapes alone. Gradients are squared in f32 and without the loss scale. The norm is not finite
// where one of them is not.
//
// FIELDS, MOST  see many.cuh. Of each gradient a launch says, behind its first block, how far behind the pointer it begins, in units of
//               256 bytes; the bit is set where its elements are f32 rather than REAL. Its number for all is where its sums begin
// LARGEST       where gradients are clipped, the norm that they have at most
// SKIPS         where a step with a norm that is not finite is skipped
#include "base.cuh"
#include "real.cuh"
#include "many.cuh"

constexpr float ROOT_OF_BLOCK = 32.0f;
static_assert(ROOT_OF_BLOCK * ROOT_OF_BLOCK == BLOCK, "the root of the elements of a block");

template <u32 LIMIT>
static __device__ __forceinline__ void squares(const char *gradients, float *roots, const u32 *state, const Tensors<LIMIT> &tensors,
                                               float *shared) {
    const Part part = part_of_thread(tensors);
    const char *from = gradients + tensors.words[1][part.tensor] * 256ull;
    const float scale = from_bits(state[STATE_LOSS_SCALE]);
    float values[FOUR] = {};
    if (part.many > 0 && tensors.half(part.tensor) >= BLOCK) {
        load((const float *)from + part.first, part.many, values);
    } else if (part.many > 0) {
        load((const real *)from + part.first, part.many, values);
    }
#pragma unroll
    for (u32 e = 0; e < FOUR; e++) values[e] /= scale;
    // Finite wherever gradients are, since it is that of a mean.
    const float root = block_norm(values, shared, 1.0f / ROOT_OF_BLOCK);
    if (threadIdx.x == 0) roots[tensors.option + blockIdx.x] = root;
}

// Blocks of 256 threads.
KERNEL(__launch_bounds__(1024) norm_squares)(const char *gradients, float *roots, const u32 *state, IN_PLACE Tensors<FEW> tensors) {
    __shared__ float shared[32];
    squares(gradients, roots, state, tensors, shared);
}

KERNEL(__launch_bounds__(1024) norm_squares_many)(const char *gradients, float *roots, const u32 *state, IN_PLACE Tensors<MOST> tensors) {
    __shared__ float shared[32];
    squares(gradients, roots, state, tensors, shared);
}

struct Given {
    // Pieces of all gradients.
    u32 count;
};

// One block of 1024 threads. In f32 the sum would lose digits in a large network, and squares could be infinite.
KERNEL(__launch_bounds__(1024) norm_total)(const float *roots, u32 *state, IN_PLACE Given given) {
    __shared__ double shared[1024];
    double sum = 0.0;
    for (u32 i = threadIdx.x; i < given.count; i += 1024) sum += (double)roots[i] * (double)roots[i];
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
    // A step that is skipped leaves what gradients were multiplied with.
    if (state[STATE_OVERFLOW] != 0) return;
    const double factor = (double)(LARGEST) / (norm + 1e-6);
    // What is no number stays none.
    state[STATE_CLIP] = bits_of(factor > 1.0 ? 1.0f : (float)factor);
#endif
}
