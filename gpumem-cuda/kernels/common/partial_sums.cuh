// Sums of partial results: 256 threads have 32 sums, with eight threads for each, which take parts in turns. A larger block consists of such groups
// of 256 threads, each with sums of its own.
//
// PARTS  number of parts
//
// No include guard: the tests include it once for each kernel they compile.

constexpr u32 SUMS_OF_BLOCK = 32, THREADS_OF_SUM = 8;

// Returns the index of a thread's sum, among those of `group`.
static __device__ __forceinline__ u64 own_sum(u64 group) { return group * SUMS_OF_BLOCK + threadIdx.x % SUMS_OF_BLOCK; }
static __device__ __forceinline__ u64 own_sum() { return own_sum(blockIdx.x); }

// Returns which of the threads of its sum this one is. The first of them has the result in the end.
static __device__ __forceinline__ u32 turn_of_sum() { return threadIdx.x / SUMS_OF_BLOCK % THREADS_OF_SUM; }
static __device__ __forceinline__ bool has_sum() { return turn_of_sum() == 0; }

// Returns this thread's sum over the parts, [PARTS, COUNT] in memory, in the same order in every run. `scratch` has a float for each thread of the
// block, all of which take part.
template <u64 COUNT> static __device__ __forceinline__ float sum_of_parts(const float *partial, float *scratch, u64 i) {
    float sum = 0.0f;
    if (i < COUNT) {
#pragma unroll 8
        for (u32 part = turn_of_sum(); part < PARTS; part += THREADS_OF_SUM) sum += partial[part * COUNT + i];
    }
    __syncthreads();
    scratch[threadIdx.x] = sum;
    __syncthreads();
    if (has_sum()) {
#pragma unroll
        for (u32 other = 1; other < THREADS_OF_SUM; other++) sum += scratch[threadIdx.x + other * SUMS_OF_BLOCK];
    }
    return sum;
}

template <u64 COUNT> static __device__ __forceinline__ float sum_of_parts(const float *partial, float *scratch) {
    return sum_of_parts<COUNT>(partial, scratch, own_sum());
}
