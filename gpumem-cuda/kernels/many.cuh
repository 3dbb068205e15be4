// Many tensors in one launch, in blocks of 256 threads that each work on 1024 elements of one tensor.
//
// BLOCKS for each tensor the first block that works on it
// COUNTS its elements
//
// No include guard: the tests include it once for each kernel they compile.

static __constant__ const u32 first_blocks[] = BLOCKS;
static __constant__ const u64 counts[] = COUNTS;
constexpr u32 TENSORS = sizeof(first_blocks) / sizeof(u32);

// Elements of a thread, and of a block.
constexpr u32 FOUR = 4, BLOCK = 1024;

template <class T> struct alignas(sizeof(T) * FOUR) Pack {
    T at[FOUR];
};

// The last tensor whose first block is not beyond this one.
static __device__ __forceinline__ u32 tensor_of_block() {
    u32 tensor = 0;
    for (u32 end = TENSORS; end - tensor > 1;) {
        const u32 middle = (tensor + end) / 2;
        if (first_blocks[middle] <= blockIdx.x) {
            tensor = middle;
        } else {
            end = middle;
        }
    }
    return tensor;
}

// The first element of this thread, and how many it has, at most four, if there are any.
static __device__ __forceinline__ u64 first_of_thread(u32 tensor) {
    return (u64)(blockIdx.x - first_blocks[tensor]) * BLOCK + threadIdx.x * FOUR;
}

static __device__ __forceinline__ u32 many_of_thread(u32 tensor, u64 first) {
    return counts[tensor] - first < FOUR ? (u32)(counts[tensor] - first) : FOUR;
}

// `many` of four numbers; the others are 0.
template <class T> static __device__ __forceinline__ void load(const T *from, u32 many, float to[FOUR]) {
    if (many == FOUR) {
        const Pack<T> pack = *(const Pack<T> *)from;
#pragma unroll
        for (u32 e = 0; e < FOUR; e++) to[e] = widen(pack.at[e]);
        return;
    }
#pragma unroll
    for (u32 e = 0; e < FOUR; e++) to[e] = e < many ? widen(from[e]) : 0.0f;
}
