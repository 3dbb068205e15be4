// Channels of y whose variance is small beside that of what it sums: sums over pixels of products of x would lose its digits. They are
// *direct*: y is computed again, pixel by pixel from x less the mean of each channel where that is far from 0, and statistics and gradients
// are summed from that, as a convolution and a normalisation apart do. Their 1 / deviation is saved with a minus, and in place of their mean
// that of y from such an x. All of this is seldom needed and slow, and has launches of its own: it would take registers from the others.
//
// X_STRIDES, Y_STRIDES  of x, and of y and dy: see layout.cuh. Without them there is nothing but is_direct
// WIDTH                 of maps
//
// No include guard: the tests include it once for each kernel they compile.
#include "layout.cuh"

// The share of the mean squares of what is summed below which a variance is not taken from sums of products.
constexpr float LEAST_SHARE = SAME<real, float> ? 0.25f : 0.0625f;

static __device__ __forceinline__ bool is_direct(const float *saved, u32 row) { return bits_of(saved[CHANNELS + row]) >> 31 != 0; }

#ifdef X_STRIDES

// Where the first channel of a pixel of all samples is.
static __device__ __forceinline__ u64 place_of(Strides strides, u32 pixel) {
    constexpr u32 area = (u32)(AREA), width = (u32)(WIDTH);
    const u32 own = pixel % area;
    return pixel / area * strides.sample + own / width * strides.row + own % width * strides.column;
}

static __device__ __forceinline__ float element_of(const real *map, Strides strides, u32 pixel, u32 channel) {
    return widen(map[place_of(strides, pixel) + channel * strides.channel]);
}

// Finds what each channel of x is read less, by a block: its mean where the square of that is more than four times the variance, and elsewhere
// 0, where the difference would be rounded for nothing.
static __device__ __forceinline__ void find_centers(const float *totals, const float *squares, float *centers) {
    for (u32 c = threadIdx.x; c < INS; c += blockDim.x) {
        const float mean = totals[c] / (float)COUNT;
        centers[c] = mean * mean > 0.8f * (squares[c * (u64)(INS) + c] / (float)COUNT) ? mean : 0.0f;
    }
    __syncthreads();
}

// A row of the weight times such an x.
static __device__ __forceinline__ float y_of_pixel(const real *weight, const real *x, const float *centers, u32 pixel, u32 row) {
    const Strides strides = X_STRIDES;
    const real *from = x + place_of(strides, pixel), *own = weight + row * (u64)(INS);
    float sum = 0.0f;
    // No more: all of a row would not fit into registers.
#pragma unroll 4
    for (u32 c = 0; c < INS; c++) sum = fmaf(widen(own[c]), widen(from[c * strides.channel]) - centers[c], sum);
    return sum;
}

// Mean and variance of such a channel, by a block.
static __device__ __forceinline__ void
direct_statistics(const real *weight, const real *x, const float *centers, u32 row, float *scratch, float *mean, float *variance) {
    float sum = 0.0f, squares = 0.0f;
#pragma unroll 1
    for (u32 pixel = threadIdx.x; pixel < COUNT; pixel += blockDim.x) sum += y_of_pixel(weight, x, centers, pixel, row);
    const float center = block_sum(sum, scratch) / (float)COUNT;
#pragma unroll 1
    for (u32 pixel = threadIdx.x; pixel < COUNT; pixel += blockDim.x) {
        const float own = y_of_pixel(weight, x, centers, pixel, row) - center;
        squares += own * own;
    }
    *variance = block_sum(squares, scratch) / (float)COUNT;
    *mean = center;
}

// What a direct channel has for its gradients: means of dy and y, what dy less its mean is multiplied with, and before that what y less its
// mean is multiplied with and taken from it.
struct Direct {
    float gradient, mean, scale, share;
};

// The gradient of y of a pixel, before the normalisation.
static __device__ __forceinline__ float
direct_gradient(const Direct &own, const real *weight, const real *x, const real *dy, const float *centers, u32 pixel, u32 row) {
    const float gradient = element_of(dy, Strides Y_STRIDES, pixel, row) - own.gradient;
    return own.scale * (gradient - (y_of_pixel(weight, x, centers, pixel, row) - own.mean) * own.share);
}

// The sum of dy (y - mean(y)), by a block.
static __device__ __forceinline__ float
direct_product(const Direct &own, const real *weight, const real *x, const real *dy, const float *centers, u32 row, float *scratch) {
    float sum = 0.0f;
#pragma unroll 1
    for (u32 pixel = threadIdx.x; pixel < COUNT; pixel += blockDim.x) {
        const float gradient = element_of(dy, Strides Y_STRIDES, pixel, row) - own.gradient;
        sum += gradient * (y_of_pixel(weight, x, centers, pixel, row) - own.mean);
    }
    return block_sum(sum, scratch);
}

// The gradient of a row of the weight, by a block: `tile` has a place for each of its threads, and `sums` for each channel of x. Pixels of a
// tile are summed by themselves: the chains of additions are shorter, and so are their errors.
static __device__ __forceinline__ void direct_weight(const Direct &own, const real *weight, const real *x, const real *dy,
                                            const float *centers, u32 row, float *tile, float *sums) {
    for (u32 c = threadIdx.x; c < INS; c += blockDim.x) sums[c] = 0.0f;
#pragma unroll 1
    for (u32 first = 0; first < COUNT; first += blockDim.x) {
        const u32 pixel = first + threadIdx.x;
        __syncthreads();
        tile[threadIdx.x] = pixel < COUNT ? direct_gradient(own, weight, x, dy, centers, pixel, row) : 0.0f;
        __syncthreads();
        const u32 count = COUNT - first < blockDim.x ? COUNT - first : blockDim.x;
        for (u32 c = threadIdx.x; c < INS; c += blockDim.x) {
            float sum = 0.0f;
#pragma unroll 4
            for (u32 i = 0; i < count; i++) sum = fmaf(tile[i], element_of(x, Strides X_STRIDES, first + i, c) - centers[c], sum);
            sums[c] += sum;
        }
    }
    __syncthreads();
}

#endif
