// Sums of partial results: a block of 256 threads has 32 sums, with eight threads for each, which take parts in turns.
//
// PARTS  number of parts
//
// No include guard: the tests include it once for each kernel they compile.

constexpr u32 SUMS_OF_BLOCK = 32, THREADS_OF_SUM = 8;

// Returns the index of a thread's sum.
static __device__ __forceinline__ u64 own_sum() { return (u64)blockIdx.x * SUMS_OF_BLOCK + threadIdx.x % SUMS_OF_BLOCK; }

// True if this thread has the result of its sum in the end.
static __device__ __forceinline__ bool has_sum() { return threadIdx.x < SUMS_OF_BLOCK; }

// Returns this thread's sum over the parts, [PARTS, COUNT] in memory, in the same order in every run.
template <u64 COUNT> static __device__ __forceinline__ float sum_of_parts(const float *partial, float *scratch) {
    const u64 i = own_sum();
    float sum = 0.0f;
    if (i < COUNT) {
#pragma unroll 8
        for (u32 part = threadIdx.x / SUMS_OF_BLOCK; part < PARTS; part += THREADS_OF_SUM) sum += partial[part * COUNT + i];
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
