// Tensor cores: products of small matrices of 16-bit floats, which the 32 lanes of a warp compute together with sums in f32, and loads of their
// operands from shared memory.
//
// TENSOR_CORES terms that one instruction sums: 16 from compute capability 8.0 on; 8 on 7.5, for binary16 only; 0 if there are no tensor cores for
//              `real`, or a kernel does not use them. It is a constant of the kernel and not derived from __CUDA_ARCH__, so that the tests on the
//              host compile what the card runs.
//
// All 32 lanes of a warp call these functions together. A lane's part of a matrix is a fragment, in the words of PTX. With g = lane / 4 and t =
// lane % 4 it has these elements, two a word, the first in the low half:
//
// Left, A[16, 16]   [g, 2t and 2t + 1], [g + 8, the same], [g, 2t + 8 and 2t + 9], [g + 8, the same]
// Right, B[16, 8]   [2t and 2t + 1, g], [2t + 8 and 2t + 9, g]
// Accumulator, C[16, 8] [g, 2t], [g, 2t + 1], [g + 8, 2t], [g + 8, 2t + 1]
//
// The tests' emulation of the instructions, in simt.h, follows the tables of the PTX manual and not this file.
//
// No include guard: the tests include it once for each kernel they compile.
#if TENSOR_CORES

struct Left {
    u32 at[4];
};
struct Right {
    u32 at[2];
};
struct Accumulator {
    float at[4];
};

// to = a b + c, by instructions for elements of a format named as in PTX. Zeros for c need no registers.
#undef MULTIPLY_ADD
#if TENSOR_CORES == 16
#define MULTIPLY_ADD(FORMAT)                                                                                                  \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." FORMAT "." FORMAT ".f32 "                                           \
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"                                        \
                 : "=f"(to.at[0]), "=f"(to.at[1]), "=f"(to.at[2]), "=f"(to.at[3])                                             \
                 : "r"(a.at[0]), "r"(a.at[1]), "r"(a.at[2]), "r"(a.at[3]), "r"(b.at[0]), "r"(b.at[1]), "f"(c0), "f"(c1),      \
                   "f"(c2), "f"(c3))
#else
#define MULTIPLY_ADD(FORMAT)                                                                                                  \
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32." FORMAT "." FORMAT ".f32 "                                            \
                 "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %9, %10};"                                                       \
                 : "=f"(to.at[0]), "=f"(to.at[1]), "=f"(to.at[2]), "=f"(to.at[3])                                             \
                 : "r"(a.at[0]), "r"(a.at[1]), "r"(b.at[0]), "f"(c0), "f"(c1), "f"(c2), "f"(c3));                             \
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32." FORMAT "." FORMAT ".f32 "                                            \
                 "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"                                                        \
                 : "+f"(to.at[0]), "+f"(to.at[1]), "+f"(to.at[2]), "+f"(to.at[3])                                             \
                 : "r"(a.at[2]), "r"(a.at[3]), "r"(b.at[1]))
#endif

// to = a b + [c0, c1, c2, c3]
static __device__ __forceinline__ void multiply_add(const Left &a, const Right &b, float c0, float c1, float c2, float c3,
                                                    Accumulator &to) {
#if !defined(__CUDA_ARCH__)
    constexpr bool IS_BF16 = SAME<real, Bf16>;
    to.at[0] = c0, to.at[1] = c1, to.at[2] = c2, to.at[3] = c3;
    if (TENSOR_CORES == 16) {
        simt::mma<16, IS_BF16>(a.at, b.at, to.at);
    } else {
        simt::mma<8, IS_BF16>(a.at, b.at, to.at);
        simt::mma<8, IS_BF16>(a.at + 2, b.at + 1, to.at);
    }
#else
    if constexpr (SAME<real, Bf16>) {
        MULTIPLY_ADD("bf16");
    } else {
        MULTIPLY_ADD("f16");
    }
#endif
}

// c += a b
static __device__ __forceinline__ void multiply_add(const Left &a, const Right &b, Accumulator &c) {
    multiply_add(a, b, c.at[0], c.at[1], c.at[2], c.at[3], c);
}

// c = a b
static __device__ __forceinline__ void multiply(const Left &a, const Right &b, Accumulator &c) {
    multiply_add(a, b, 0.0f, 0.0f, 0.0f, 0.0f, c);
}

#ifdef __CUDA_ARCH__
static __device__ __forceinline__ u32 shared_address(const void *pointer) {
    return (u32)__cvta_generic_to_shared(pointer);
}
#endif

// Loads four matrices of 8 x 8 elements from shared memory, one word of each. Lane 8 i + r passes the address of row r of matrix i: 16 bytes,
// aligned. A lane receives elements [g, 2t] and [g, 2t + 1], or with TRANSPOSED [2t, g] and [2t + 1, g].
template <bool TRANSPOSED> static __device__ __forceinline__ void load_matrices(const u16 *row, u32 to[4]) {
#if !defined(__CUDA_ARCH__)
    simt::ldmatrix<4, TRANSPOSED>(row, to);
#else
    if constexpr (TRANSPOSED) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(shared_address(row))
                     : "memory");
    } else {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(shared_address(row))
                     : "memory");
    }
#endif
}

// Loads two such matrices, whose addresses lanes 0 to 15 pass.
template <bool TRANSPOSED> static __device__ __forceinline__ void load_two_matrices(const u16 *row, u32 to[2]) {
#if !defined(__CUDA_ARCH__)
    simt::ldmatrix<2, TRANSPOSED>(row, to);
#else
    if constexpr (TRANSPOSED) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                     : "=r"(to[0]), "=r"(to[1])
                     : "r"(shared_address(row))
                     : "memory");
    } else {
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                     : "=r"(to[0]), "=r"(to[1])
                     : "r"(shared_address(row))
                     : "memory");
    }
#endif
}

// Loads 16 x 16 elements [e, k] of an operand from shared memory, e being rows of A or columns of B. They are at e * pitch + k, or with K_FIRST at
// k * pitch + e, counted from `from`. `pitch` is a multiple of 8, and an odd one if 8 rows are to be read at once. The instructions require the
// four words in neighbouring registers, so each kind of operand has its own order of 8 x 8 matrices; otherwise registers would be copied.
template <bool K_FIRST> static __device__ __forceinline__ void load_left(const u16 *from, int pitch, Left &to) {
    const int lane = threadIdx.x % 32;
    // e 0-7 and 8-15 with k 0-7, then with k 8-15.
    if constexpr (K_FIRST) {
        load_matrices<true>(from + (lane / 16 * 8 + lane % 8) * pitch + lane / 8 % 2 * 8, to.at);
    } else {
        load_matrices<false>(from + lane % 16 * pitch + lane / 16 * 8, to.at);
    }
}

// Loads columns 0-7 and 8-15.
template <bool K_FIRST>
static __device__ __forceinline__ void load_rights(const u16 *from, int pitch, Right &first, Right &second) {
    const int lane = threadIdx.x % 32;
    u32 words[4];
    // k 0-7 and 8-15 with e 0-7, then with e 8-15.
    if constexpr (K_FIRST) {
        load_matrices<true>(from + lane % 16 * pitch + lane / 16 * 8, words);
    } else {
        load_matrices<false>(from + (lane / 16 * 8 + lane % 8) * pitch + lane / 8 % 2 * 8, words);
    }
    first.at[0] = words[0], first.at[1] = words[1];
    second.at[0] = words[2], second.at[1] = words[3];
}

// Loads eight columns only.
template <bool K_FIRST> static __device__ __forceinline__ void load_right(const u16 *from, int pitch, Right &to) {
    const int lane = threadIdx.x % 16;
    if constexpr (K_FIRST) {
        load_two_matrices<true>(from + lane * pitch, to.at);
    } else {
        load_two_matrices<false>(from + lane % 8 * pitch + lane / 8 * 8, to.at);
    }
}

// Returns two numbers as a word of `real`, the first in the low half; rounded as `narrow` does.
static __device__ __forceinline__ u32 pack(float low, float high) {
#if defined(__CUDA_ARCH__) && TENSOR_CORES == 16
    u32 word;
    if constexpr (SAME<real, Bf16>) {
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    } else {
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    }
    return word;
#else
    real first, second;
    narrow(low, &first);
    narrow(high, &second);
    return first.bits | (u32)second.bits << 16;
#endif
}

// Copies 16 bytes to shared memory, or zeros if not `inside`; both addresses are aligned to 16 bytes. If the card supports it, the copy is
// asynchronous: the thread itself sees the bytes after `copies_done`, the others after a barrier too.
static __device__ __forceinline__ void copy_16(u16 *to, const real *from, bool inside) {
#if TENSOR_CORES == 16 && defined(__CUDA_ARCH__)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(shared_address(to)), "l"(__cvta_generic_to_global(from)), "r"(inside ? 16 : 0)
                 : "memory");
#elif TENSOR_CORES == 16
    simt::copy_async(to, from, 16, inside ? 16 : 0);
#else
    uint4 words = {0, 0, 0, 0};
    if (inside) words = *(const uint4 *)from;
    *(uint4 *)to = words;
#endif
}

static __device__ __forceinline__ void copies_done() {
#if TENSOR_CORES == 16 && defined(__CUDA_ARCH__)
    asm volatile("cp.async.wait_all;" : : : "memory");
#elif TENSOR_CORES == 16
    simt::wait_copies();
#endif
}

#endif
