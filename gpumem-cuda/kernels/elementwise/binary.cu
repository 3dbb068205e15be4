// Elementwise functions of two inputs with broadcasting, and their gradients.
//
// FUNCTION    the function: a struct of binary.cuh
// COUNT       elements of the output
// AXES        axes of the output, outermost first
// LENGTHS     their lengths
// LEFT, RIGHT strides of a and b along each of them, in elements; 0 if that input is broadcast
// INPUT       input of the gradient: 0 for a, 1 for b
// ELEMENTS    elements of that input
// LANES       threads of a warp that sum an element of the gradient in binary_rows, a power of two; 0 for a block each
// COLUMNS     elements of the gradient that a block of binary_columns sums, a power of two, at least 32
// ADD         1 if the gradient is added to its tensor (+=), 0 if it overwrites it
//
// multiply:        y = a b of inputs of one size, where y may be either; also the gradient of one, dx = dy * the other
// binary:          y = f(a, b), where y may be an input that is not broadcast
// binary_gradient: dx = dy * f'(a, b) for an input that is not broadcast, where dx may be dy
// binary_rows:     this gradient summed over the repetitions, for an input that is broadcast along the last axis
// binary_columns:  this gradient summed over the repetitions, for an input that has the last axis
//
// The gradient of a sum or a difference reads neither input, that of a product the other one, those of a quotient b, and a for b's own, those of a
// rectified value a, and b for a's own; inputs that are not read may be null. Sums are added in the same order in every run.
#include "base.cuh"
#include "real.cuh"
#include "binary.cuh"

// Division by a constant is cheap in 32 bits only.
#if COUNT < 0x80000000ull
typedef u32 Index;
#else
typedef u64 Index;
#endif

static __device__ constexpr u64 length_of(int axis) {
    constexpr u64 lengths[] = LENGTHS;
    return lengths[axis];
}

// Returns the stride of one of the inputs along an axis.
static __device__ constexpr u64 stride_of(int input, int axis) {
    constexpr u64 left[] = LEFT, right[] = RIGHT;
    return input == 0 ? left[axis] : right[axis];
}

// Repetitions of each element of the input, and elements of a row that a thread works on together.
constexpr u64 REPEATED = COUNT / ELEMENTS;
constexpr int TOGETHER = length_of(AXES - 1) % 4 == 0 ? 4 : 1;

struct alignas(TOGETHER * sizeof(real)) Pack {
    real at[TOGETHER];
};

// Places of an element in the output and in both inputs.
struct Place {
    Index output, left, right;
};

enum Which { ALL, KEPT_ONLY, REPEATED_ONLY };

// Moves a place by `rest` elements along all axes, or only along those that input INPUT has, or is broadcast along.
template <Which WHICH> static __device__ __forceinline__ void walk(Index rest, Place &place) {
    Index distance = 1;
#pragma unroll
    for (int axis = AXES - 1; axis >= 0; axis--) {
        const Index length = (Index)length_of(axis);
        if (WHICH == ALL || (stride_of(INPUT, axis) == 0) == (WHICH == REPEATED_ONLY)) {
            const Index at = rest % length;
            rest /= length;
            place.output += at * distance;
            place.left += at * (Index)stride_of(0, axis);
            place.right += at * (Index)stride_of(1, axis);
        }
        distance *= length;
    }
}

// Loads neighbours along the last axis: adjacent ones, or one element for all of them.
template <int WHOSE> static __device__ __forceinline__ void load(const real *x, Index at, float to[TOGETHER]) {
    if (stride_of(WHOSE, AXES - 1) == 0) {
        const float one = widen(x[at]);
#pragma unroll
        for (int e = 0; e < TOGETHER; e++) to[e] = one;
    } else {
        const Pack pack = *(const Pack *)(x + at);
#pragma unroll
        for (int e = 0; e < TOGETHER; e++) to[e] = widen(pack.at[e]);
    }
}

// Computes terms of the gradient before they are summed.
static __device__ __forceinline__ void
terms(const real *dy, const real *a, const real *b, const Place &place, float to[TOGETHER]) {
    float left[TOGETHER] = {}, right[TOGETHER] = {};
    if (FUNCTION::reads(INPUT, 0)) load<0>(a, place.left, left);
    if (FUNCTION::reads(INPUT, 1)) load<1>(b, place.right, right);
    const Pack gradients = *(const Pack *)(dy + place.output);
#pragma unroll
    for (int e = 0; e < TOGETHER; e++) to[e] = widen(gradients.at[e]) * FUNCTION::slope(INPUT, left[e], right[e]);
}

static __device__ __forceinline__ void put(float sum, real *dx) {
#if ADD
    sum += widen(*dx);
#endif
    narrow(sum, dx);
}

struct alignas(4 * sizeof(real)) Four {
    real at[4];
};

// Grid: a thread for each four elements.
KERNEL(__launch_bounds__(1024) multiply)(const real *a, const real *b, real *y) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    const u64 first = i * 4;
    if (first >= COUNT) return;
    if (first + 4 <= COUNT) {
        const Four left = ((const Four *)a)[i], right = ((const Four *)b)[i];
        Four out;
#if ADD
        out = ((const Four *)y)[i];
#endif
#pragma unroll
        for (int e = 0; e < 4; e++) put(widen(left.at[e]) * widen(right.at[e]), &out.at[e]);
        ((Four *)y)[i] = out;
        return;
    }
    for (u64 e = first; e < COUNT; e++) put(widen(a[e]) * widen(b[e]), &y[e]);
}

// Grid: a thread for each TOGETHER elements.
KERNEL(__launch_bounds__(1024) binary)(const real *a, const real *b, real *y) {
    const Index i = (Index)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= COUNT / TOGETHER) return;
    Place place = {};
    walk<ALL>(i * TOGETHER, place);
    float left[TOGETHER], right[TOGETHER];
    load<0>(a, place.left, left);
    load<1>(b, place.right, right);
    Pack pack;
#pragma unroll
    for (int e = 0; e < TOGETHER; e++) narrow(FUNCTION::value(left[e], right[e]), &pack.at[e]);
    ((Pack *)y)[i] = pack;
}

// Grid: a thread for each TOGETHER elements.
KERNEL(__launch_bounds__(1024) binary_gradient)(const real *dy, const real *a, const real *b, real *dx) {
    const Index i = (Index)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= COUNT / TOGETHER) return;
    Place place = {};
    walk<ALL>(i * TOGETHER, place);
    float gradients[TOGETHER];
    terms(dy, a, b, place, gradients);
    Pack pack;
#if ADD
    pack = ((const Pack *)dx)[i];
#endif
#pragma unroll
    for (int e = 0; e < TOGETHER; e++) put(gradients[e], &pack.at[e]);
    ((Pack *)dx)[i] = pack;
}

// Grid: LANES threads, or a block, for each element of the input. Neighbouring threads read adjacent elements.
KERNEL(__launch_bounds__(1024) binary_rows)(const real *dy, const real *a, const real *b, real *dx) {
#if LANES
    const Index element = ((Index)blockIdx.x * blockDim.x + threadIdx.x) / LANES;
    const u32 lane = threadIdx.x % LANES, lanes = LANES;
#else
    __shared__ float scratch[32];
    const Index element = blockIdx.x;
    const u32 lane = threadIdx.x, lanes = blockDim.x;
#endif
    float sum = 0.0f;
    if (element < ELEMENTS) {
        Place first = {};
        walk<KEPT_ONLY>(element, first);
        for (Index r = lane; r < REPEATED / TOGETHER; r += lanes) {
            Place place = first;
            walk<REPEATED_ONLY>(r * TOGETHER, place);
            float gradients[TOGETHER];
            terms(dy, a, b, place, gradients);
#pragma unroll
            for (int e = 0; e < TOGETHER; e++) sum += gradients[e];
        }
    }
#if LANES
#pragma unroll
    for (int offset = LANES / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(FULL_WARP, sum, offset);
#else
    sum = block_sum(sum, scratch);
#endif
    if (lane == 0 && element < ELEMENTS) put(sum, &dx[element]);
}

// Grid: a thread for each column and slice of the repetitions, in blocks of up to 1024 threads, a power of two. The slices are then added in a
// tree.
KERNEL(__launch_bounds__(1024) binary_columns)(const real *dy, const real *a, const real *b, real *dx) {
    __shared__ float sums[1024];
    const u32 slices = blockDim.x / COLUMNS, slice = threadIdx.x / COLUMNS;
    const Index element = (Index)blockIdx.x * COLUMNS + threadIdx.x % COLUMNS;
    float sum = 0.0f;
    if (element < ELEMENTS) {
        Place first = {};
        walk<KEPT_ONLY>(element, first);
#pragma unroll 4
        for (Index r = slice; r < REPEATED; r += slices) {
            Place place = first;
            walk<REPEATED_ONLY>(r, place);
            const float left = FUNCTION::reads(INPUT, 0) ? widen(a[place.left]) : 0.0f;
            const float right = FUNCTION::reads(INPUT, 1) ? widen(b[place.right]) : 0.0f;
            sum += widen(dy[place.output]) * FUNCTION::slope(INPUT, left, right);
        }
    }
    sums[threadIdx.x] = sum;
    for (u32 half = slices / 2; half > 0; half /= 2) {
        __syncthreads();
        if (slice < half) sums[threadIdx.x] += sums[threadIdx.x + half * COLUMNS];
    }
    // This thread has itself written the sum that it reads here.
    if (slice == 0 && element < ELEMENTS) put(sums[threadIdx.x], &dx[element]);
}
