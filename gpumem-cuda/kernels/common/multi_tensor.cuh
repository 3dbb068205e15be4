// Launches over many tensors, in blocks of 256 threads that each work on 1024 elements of one tensor.
//
// FIELDS words of a launch for each tensor. Word 0 is the first block that works on it.
// MOST   most tensors of a launch: with all pointers, their numbers fit in the 4096 bytes that parameters may have
//
// The tensors are plain numbers among the parameters of a launch, so that a file is compiled once for all tensors.
//
// No include guard: the tests include it once for each kernel they compile.

// Elements of a thread, and of a block; most tensors of a launch with fewer numbers.
constexpr u32 FOUR = 4, BLOCK = 1024, FEW = 24;

// Bytes in which offsets of tensors are counted. A rank's shard of a tensor begins at a multiple of 128 bytes, a tensor at one of 256.
#ifdef SHARDED
constexpr u64 UNIT = 128;
#else
constexpr u64 UNIT = 256;
#endif

// `LIMIT` is even.
template <u32 LIMIT> struct Tensors {
    // Number of tensors, and a number for all of them.
    u32 count, option;
    u32 words[FIELDS][LIMIT];
    // Two half-words in a word, one for each tensor: elements that its last block lacks, and above them one bit.
    u32 halves[LIMIT / 2];

    __device__ __forceinline__ u32 half(u32 tensor) const { return halves[tensor / 2] >> tensor % 2 * 16 & 0xffff; }
};

template <class T> struct alignas(sizeof(T) * FOUR) Pack {
    T at[FOUR];
};

// The work of a thread: the tensor, its first element, and the number of its elements, at most four.
struct Part {
    u32 tensor, many;
    u64 first;
};

// Returns the last tensor whose first block is not beyond this one.
template <u32 LIMIT> static __device__ __forceinline__ u32 tensor_of_block(const Tensors<LIMIT> &tensors) {
    u32 tensor = 0, end = tensors.count;
    while (end - tensor > 1) {
        const u32 middle = (tensor + end) / 2;
        if (tensors.words[0][middle] <= blockIdx.x) {
            tensor = middle;
        } else {
            end = middle;
        }
    }
    return tensor;
}

template <u32 LIMIT> static __device__ __forceinline__ Part part_of_thread(const Tensors<LIMIT> &tensors) {
    const u32 tensor = tensor_of_block(tensors), end = tensor + 1;
    const u32 next = end < tensors.count ? tensors.words[0][end] : gridDim.x, at = threadIdx.x * FOUR;
    // Elements of this block.
    const u32 size = blockIdx.x + 1 == next ? BLOCK - (tensors.half(tensor) & (BLOCK - 1)) : BLOCK;
    const u32 many = at >= size ? 0 : size - at < FOUR ? size - at : FOUR;
    return {tensor, many, (u64)(blockIdx.x - tensors.words[0][tensor]) * BLOCK + at};
}

// Loads `many` of four numbers; the others are 0.
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

// Stores `many` of four numbers.
template <class T> static __device__ __forceinline__ void save(const float from[FOUR], u32 many, T *to) {
    if (many == FOUR) {
        Pack<T> pack;
#pragma unroll
        for (u32 e = 0; e < FOUR; e++) narrow(from[e], &pack.at[e]);
        *(Pack<T> *)to = pack;
        return;
    }
#pragma unroll
    for (u32 e = 0; e < FOUR; e++)
        if (e < many) narrow(from[e], &to[e]);
}
