// Sums along an axis: of rows, whose elements are adjacent, and of positions, whose elements are INNER apart.
//
// OUTER     positions before the axis, in all samples
// LENGTH    length of the axis
// INNER     positions after the axis
// WARP_ROWS 1 if a warp works on a row, 0 if a block does; with a block `scratch` has 32 numbers
//
// For positions, neighbouring threads have neighbouring positions; the 8 warps of a block share the elements of 32 of them.
//
// No include guard: the tests include it once for each kernel they compile. A file that includes it ends with `#undef` of its five names.

// Elements in 16 bytes, if rows consist of whole packs of that.
constexpr int WIDE = 16 / sizeof(real), PACK = LENGTH % WIDE == 0 ? WIDE : 1;

struct alignas(sizeof(real) * PACK) Pack {
    real at[PACK];
};

// Number of a row's threads, index of this one among them, and their sum and maximum.
#if WARP_ROWS
#define LANES 32
#define LANE (threadIdx.x & 31)
#define ROW ((u64)blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5))
#define ROW_SUM(x) warp_sum(x)
#define ROW_MAX(x) warp_max(x)
#else
#define LANES blockDim.x
#define LANE threadIdx.x
#define ROW ((u64)blockIdx.x)
#define ROW_SUM(x) block_sum(x, scratch)
#define ROW_MAX(x) block_max(x, scratch)
#endif

constexpr int SLICES = 8;

// Returns the first element of position p, counted over all samples.
static __device__ __forceinline__ u64 first_element(u64 p) { return p / INNER * (LENGTH * INNER) + p % INNER; }

// Returns the sum over the slices of each of 32 positions, in every thread of the position. `scratch` may have been used before.
static __device__ __forceinline__ float slices_sum(float x, float *scratch) {
    __syncthreads();
    scratch[threadIdx.x] = x;
    __syncthreads();
    float sum = 0.0f;
#pragma unroll
    for (int slice = 0; slice < SLICES; slice++) sum += scratch[slice * 32 + (threadIdx.x & 31)];
    return sum;
}
