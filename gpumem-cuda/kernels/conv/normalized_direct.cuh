// Direct channels of a conv norm: channels of y whose variance is small compared with that of the terms of y, so that sums over pixels of products
// of x would lose their digits. For them y is recomputed pixel by pixel, from x less the mean of each of its channels whose mean is far from 0.
// Statistics and gradients are summed from that y, as a separate convolution and normalisation do. Their saved 1 / deviation is negative, and the
// saved mean is that of this y. All of this is rarely needed and slow. It has separate launches, since it would take registers from the others.
//
// X_STRIDES, Y_STRIDES  strides of x, and of y and dy: see layout.cuh. Without them only is_direct is defined
// WIDTH                 width of the maps
//
// No include guard: the tests include it once for each kernel they compile.
#include "layout.cuh"

// A channel is direct if its variance is below this share of the mean squares of the terms that y sums.
constexpr float LEAST_SHARE = SAME<real, float> ? 0.25f : 0.0625f;

static __device__ __forceinline__ bool is_direct(const float *saved, u32 row) { return bits_of(saved[CHANNELS + row]) >> 31 != 0; }

#ifdef X_STRIDES

// Returns the place of the first channel of a pixel, counted over all samples.
static __device__ __forceinline__ u64 place_of(Strides strides, u32 pixel) {
    constexpr u32 area = (u32)(AREA), width = (u32)(WIDTH);
    const u32 own = pixel % area;
    return pixel / area * strides.sample + own / width * strides.row + own % width * strides.column;
}

static __device__ __forceinline__ float element_of(const real *map, Strides strides, u32 pixel, u32 channel) {
    return widen(map[place_of(strides, pixel) + channel * strides.channel]);
}

// Computes the number that is subtracted from each channel of x, by a block: its mean if the square of that is more than four times the variance,
// else 0, since the difference would then only add a rounding.
static __device__ __forceinline__ void find_centers(const float *totals, const float *squares, float *centers) {
    for (u32 c = threadIdx.x; c < INS; c += blockDim.x) {
        const float mean = totals[c] / (float)COUNT;
        centers[c] = mean * mean > 0.8f * (squares[c * (u64)(INS) + c] / (float)COUNT) ? mean : 0.0f;
    }
    __syncthreads();
}

// Returns a row of the weight times such an x.
static __device__ __forceinline__ float y_of_pixel(const real *weight, const real *x, const float *centers, u32 pixel, u32 row) {
    const Strides strides = X_STRIDES;
    const real *from = x + place_of(strides, pixel), *own = weight + row * (u64)(INS);
    float sum = 0.0f;
    // Unrolled no further: all of a row would not fit into registers.
#pragma unroll 4
    for (u32 c = 0; c < INS; c++) sum = fmaf(widen(own[c]), widen(from[c * strides.channel]) - centers[c], sum);
    return sum;
}

// Computes mean and variance of such a channel, by a block.
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

// Numbers of a direct channel for its gradients: the means of dy and y, the factor of dy less its mean, and the factor of y less its mean, which is
// subtracted from that first.
struct Direct {
    float gradient, mean, scale, share;
};

// Returns the gradient at one pixel before the normalisation.
static __device__ __forceinline__ float
direct_gradient(const Direct &own, const real *weight, const real *x, const real *dy, const float *centers, u32 pixel, u32 row) {
    const float gradient = element_of(dy, Strides Y_STRIDES, pixel, row) - own.gradient;
    return own.scale * (gradient - (y_of_pixel(weight, x, centers, pixel, row) - own.mean) * own.share);
}

// Returns the sum of dy (y - mean(y)), by a block.
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

// Computes the gradient of a row of the weight, by a block. `tile` has a place for each of its threads, and `sums` for each channel of x. Pixels of
// a tile are summed by themselves: chains of additions are shorter, and their errors smaller.
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
