// Sums of correlation.cuh that are not matrix products: gather, scatter and weigh if C is 1, sums of channels, and sums of parts. The constants are
// those of correlation.cuh.
//
// No include guard: the tests include it once for each kernel they compile.

template <class Element> static __device__ __forceinline__ void finish(float sum, Element *to) {
#if ADD
    narrow(widen(*to) + sum, to);
#else
    narrow(sum, to);
#endif
}

// Element `i` of a side that is written element by element, in its stored order.
template <class Side> struct Written {
    u32 b, channel, pixel;
    u64 at;
    __device__ __forceinline__ Written(u64 i) {
        constexpr u32 CHANNELS = GROUPS * Side::CHANNELS;
        const u32 outer = (u32)(i / (Side::LAST ? CHANNELS : Side::AREA)), inner = (u32)(i % (Side::LAST ? CHANNELS : Side::AREA));
        b = outer / (Side::LAST ? Side::AREA : CHANNELS);
        channel = Side::LAST ? inner : outer % CHANNELS;
        pixel = Side::LAST ? outer % Side::AREA : inner;
        at = Side::DENSE ? i : b * Side::SAMPLE + channel * Side::CHANNEL + Side::within(pixel);
    }
};

#if PASS == GATHER

static __device__ __forceinline__ void gather(const real *images, const real *weight, const real *bias, real *positions) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= BATCH * (u64)(GROUPS)*POSITION_CHANNELS * POSITION_AREA) return;
    const Written<Positions> element(i);
    const u32 b = element.b, channel = element.channel, position = element.pixel;
    const int top = (int)(position / POSITION_WIDTH) * STRIDE_Y - PADDING_Y;
    const int left = (int)(position % POSITION_WIDTH) * STRIDE_X - PADDING_X;
    const real *image = images + b * IMAGE_SAMPLE + channel / POSITION_CHANNELS * (u64)IMAGE_CHANNEL;
    float sum = 0.0f;
    for (int r = 0; r < KERNEL_HEIGHT; r++) {
        const int y = top + r * DILATION_Y;
        if ((u32)y >= IMAGE_HEIGHT) continue;
#pragma unroll
        for (int s = 0; s < KERNEL_WIDTH; s++) {
            const int x = left + s * DILATION_X;
            if ((u32)x >= IMAGE_WIDTH) continue;
            const float tap = widen(weight[(channel * KERNEL_HEIGHT + r) * KERNEL_WIDTH + s]);
            sum += tap * widen(image[y * IMAGE_ROW + x * IMAGE_COLUMN]);
        }
    }
#if BIAS
    sum += widen(bias[channel]);
#endif
    finish(rectify(sum), &positions[element.at]);
}

#elif PASS == SCATTER

static __device__ __forceinline__ void scatter(const real *positions, const real *weight, const real *bias, real *images) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= BATCH * (u64)(GROUPS)*IMAGE_AREA) return;
    const Written<Images> element(i);
    const u32 b = element.b, group = element.channel, pixel = element.pixel;
    const int bottom = (int)(pixel / IMAGE_WIDTH) + PADDING_Y, right = (int)(pixel % IMAGE_WIDTH) + PADDING_X;
    const real *maps = positions + b * POSITION_SAMPLE + group * (u64)(POSITION_CHANNELS)*POSITION_CHANNEL;
    const real *filters = weight + group * GROUP_WEIGHT;
    float sum = 0.0f;
    for (u32 o = 0; o < POSITION_CHANNELS; o++) {
        for (int r = 0; r < KERNEL_HEIGHT; r++) {
            const int y = bottom - r * DILATION_Y;
            if (y < 0 || y % STRIDE_Y != 0 || y / STRIDE_Y >= POSITION_HEIGHT) continue;
#pragma unroll
            for (int s = 0; s < KERNEL_WIDTH; s++) {
                const int x = right - s * DILATION_X;
                if (x < 0 || x % STRIDE_X != 0 || x / STRIDE_X >= POSITION_WIDTH) continue;
                const float tap = widen(filters[(o * KERNEL_HEIGHT + r) * KERNEL_WIDTH + s]);
                sum += tap * widen(maps[o * POSITION_CHANNEL + y / STRIDE_Y * POSITION_ROW + x / STRIDE_X * POSITION_COLUMN]);
            }
        }
    }
#if BIAS
    sum += widen(bias[group]);
#endif
    finish(rectify(sum), &images[element.at]);
}

#elif PASS == WEIGH

#ifdef EXCHANGED
// Grid: a thread for each of 32 output channels and of 8 products at a time.
static __device__ __forceinline__ void
weigh(const real *images, const real *positions, float *partial, Total *weight) {
    __shared__ float scratch[8][32];
    const u32 lane = threadIdx.x % 32, line = threadIdx.x / 32, channel = blockIdx.x * 32 + lane, r = blockIdx.y, part = blockIdx.z;
    const bool exists = channel < GROUPS * POSITION_CHANNELS;
    const real *image = images + (exists ? channel / POSITION_CHANNELS : 0) * (u64)IMAGE_CHANNEL;
    const real *map = positions + (exists ? channel : 0) * (u64)POSITION_CHANNEL;
    float sums[KERNEL_WIDTH];
#pragma unroll
    for (int s = 0; s < KERNEL_WIDTH; s++) sums[s] = 0.0f;
#pragma unroll 2
    for (u32 i = begin(part) + line; i < end(part); i += 8) {
        const u32 b = i / POSITION_AREA, position = i % POSITION_AREA;
        const int y = (int)(position / POSITION_WIDTH) * STRIDE_Y - PADDING_Y + (int)r * DILATION_Y;
        if ((u32)y >= IMAGE_HEIGHT) continue;
        const float value = widen(map[Positions::among(i)]);
        const real *row = image + b * IMAGE_SAMPLE + y * IMAGE_ROW;
        const int left = (int)(position % POSITION_WIDTH) * STRIDE_X - PADDING_X;
#pragma unroll
        for (int s = 0; s < KERNEL_WIDTH; s++) {
            const int x = left + s * DILATION_X;
            if ((u32)x < IMAGE_WIDTH) sums[s] += value * widen(row[x * IMAGE_COLUMN]);
        }
    }
#pragma unroll
    for (int s = 0; s < KERNEL_WIDTH; s++) {
        __syncthreads();
        scratch[line][lane] = sums[s];
        __syncthreads();
        if (line != 0 || !exists) continue;
        float sum = 0.0f;
#pragma unroll
        for (int other = 0; other < 8; other++) sum += scratch[other][lane];
        const u64 at = (channel * (u64)(KERNEL_HEIGHT) + r) * KERNEL_WIDTH + s;
#if PARTS > 1
        partial[part * WEIGHTS + at] = sum;
#else
        finish(sum, &weight[at]);
#endif
    }
}
#else
static __device__ __forceinline__ void
weigh(const real *images, const real *positions, float *partial, Total *weight) {
    __shared__ float scratch[32];
    const u32 channel = blockIdx.x, r = blockIdx.y, part = blockIdx.z;
    const real *image = images + channel / POSITION_CHANNELS * (u64)IMAGE_CHANNEL;
    const real *map = positions + channel * (u64)POSITION_CHANNEL;
    float sums[KERNEL_WIDTH];
#pragma unroll
    for (int s = 0; s < KERNEL_WIDTH; s++) sums[s] = 0.0f;
    for (u32 i = begin(part) + threadIdx.x; i < end(part); i += blockDim.x) {
        const u32 b = i / POSITION_AREA, position = i % POSITION_AREA;
        const int y = (int)(position / POSITION_WIDTH) * STRIDE_Y - PADDING_Y + (int)r * DILATION_Y;
        if ((u32)y >= IMAGE_HEIGHT) continue;
        const float value = widen(map[b * POSITION_SAMPLE + Positions::within(position)]);
        const real *row = image + b * IMAGE_SAMPLE + y * IMAGE_ROW;
        const int left = (int)(position % POSITION_WIDTH) * STRIDE_X - PADDING_X;
#pragma unroll
        for (int s = 0; s < KERNEL_WIDTH; s++) {
            const int x = left + s * DILATION_X;
            if ((u32)x < IMAGE_WIDTH) sums[s] += value * widen(row[x * IMAGE_COLUMN]);
        }
    }
#pragma unroll
    for (int s = 0; s < KERNEL_WIDTH; s++) {
        const float sum = block_sum(sums[s], scratch);
        if (threadIdx.x != 0) continue;
        const u64 at = (channel * (u64)(KERNEL_HEIGHT) + r) * KERNEL_WIDTH + s;
#if PARTS > 1
        partial[part * WEIGHTS + at] = sum;
#else
        finish(sum, &weight[at]);
#endif
    }
}
#endif

#elif PASS == SUM_PARTS || PASS == SUM_CHANNEL_PARTS

#include "partial_sums.cuh"

template <u64 COUNT> static __device__ __forceinline__ void sum_parts(const float *partial, Total *sums, float *scratch) {
    const float sum = sum_of_parts<COUNT>(partial, scratch);
    if (has_sum() && own_sum() < COUNT) finish(sum, &sums[own_sum()]);
}

#elif defined(EXCHANGED)

constexpr u32 SUM_THREADS = 512;

// Shared memory for the sums of each thread.
struct ChannelScratch {
    float at[SUM_THREADS * VECTOR];
};

// Computes the sums over samples and pixels of a side with channels last. Grid: a block for each TILE_N channels (x) and part (y).
template <class Side, class Sum>
static __device__ __forceinline__ void channel_sums(const real *map, ChannelScratch &scratch, Sum *sums) {
    constexpr u32 CHANNELS = GROUPS * Side::CHANNELS, RUN_LENGTH = Side::TOGETHER ? VECTOR : 1;
    constexpr u32 ACROSS = TILE_N / RUN_LENGTH, LINES = SUM_THREADS / ACROSS, PIXELS = BATCH * Side::AREA;
    const u32 line = threadIdx.x / ACROSS, channel = blockIdx.x * TILE_N + threadIdx.x % ACROSS * RUN_LENGTH, part = blockIdx.y;
    const u32 end = part + 1 < PARTS ? (part + 1) * PART : PIXELS;
    float sum[RUN_LENGTH];
#pragma unroll
    for (int i = 0; i < RUN_LENGTH; i++) sum[i] = 0.0f;
    if (channel < CHANNELS) {
#pragma unroll 4
        for (u32 pixel = part * PART + line; pixel < end; pixel += LINES) {
            const real *from = map + Side::among(pixel) + channel;
            if constexpr (RUN_LENGTH == 1) {
                sum[0] += widen(*from);
            } else {
#pragma unroll
                for (int i = 0; i < RUN_LENGTH; i += 4) {
                    float four[4];
                    load4(from + i, four);
#pragma unroll
                    for (int j = 0; j < 4; j++) sum[i + j] += four[j];
                }
            }
        }
    }
#pragma unroll
    for (int i = 0; i < RUN_LENGTH; i++) scratch.at[threadIdx.x * RUN_LENGTH + i] = sum[i];
    // Lines have TILE_N numbers each. Halves of them are added until one is left.
#pragma unroll
    for (u32 left = LINES / 2; left > 0; left /= 2) {
        __syncthreads();
        for (u32 i = threadIdx.x; i < left * TILE_N; i += SUM_THREADS) scratch.at[i] += scratch.at[i + left * TILE_N];
    }
    __syncthreads();
    const u32 own = blockIdx.x * TILE_N + threadIdx.x;
    if (threadIdx.x >= TILE_N || own >= CHANNELS) return;
#if PARTS > 1
    sums[part * CHANNELS + own] = scratch.at[threadIdx.x];
#else
    finish(scratch.at[threadIdx.x], &sums[own]);
#endif
}

#else

struct ChannelScratch {
    float at[32];
};

// Computes the sums over samples and pixels of a side. Grid: a block for each channel.
template <class Side> static __device__ __forceinline__ void channel_sums(const real *map, ChannelScratch &scratch, Total *sums) {
    const real *plane = map + blockIdx.x * (u64)Side::CHANNEL;
    constexpr u32 RUN_LENGTH = Side::DENSE && Side::AREA % 4 == 0 ? 4 : 1, RUNS = Side::AREA / RUN_LENGTH;
    float sum = 0.0f;
    for (u32 i = threadIdx.x; i < BATCH * RUNS; i += blockDim.x) {
        const real *from = plane + i / RUNS * Side::SAMPLE + Side::within(i % RUNS * RUN_LENGTH);
        if constexpr (RUN_LENGTH == 4) {
            float four[4];
            load4(from, four);
            sum += (four[0] + four[1]) + (four[2] + four[3]);
        } else {
            sum += widen(*from);
        }
    }
    sum = block_sum(sum, scratch.at);
    if (threadIdx.x == 0) finish(sum, &sums[blockIdx.x]);
}

#endif
