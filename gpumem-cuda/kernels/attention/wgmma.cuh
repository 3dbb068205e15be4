// Hopper's products of a warpgroup (wgmma), which run in the background and read shared memory themselves, and the barriers in shared memory that
// order them.
//
// Only for kernels that are compiled for sm_90a. A warpgroup is four warps, the first of which is a multiple of four; all 128 lanes call the
// functions of products together. PTX has two ways to memory: products read shared memory by the asynchronous proxy, threads write it by the generic
// one. So a thread that has written an operand calls `fence_async` before it tells others.
//
// Operands in shared memory are panels of 64 elements, 128 bytes a row, one row after the other, from an address that is a multiple of 1024 bytes.
// The eight chunks of 16 bytes of a row are permuted, so that products and copies meet no bank twice: see `swizzled`. A descriptor has, in units of
// 16 bytes, the address in bits 0 to 13, the leading byte offset in bits 16 to 29 and the stride byte offset in bits 32 to 45; bits 62 and 63 are 1
// for this permutation, of 128 bytes.
//
// The accumulator of 64 x N has warp w's rows 16 w to 16 w + 15 as N / 8 accumulators of mma.cuh, and so has the left operand, if it is in
// registers.
//
// The tests' emulation, in warpgroups.h, follows the tables of the PTX manual and not this file.
//
// No include guard: the tests include it once for each kernel they compile.

// An object in the shared memory that the launch asks for, at a multiple of 1024 bytes: that may take 1024 bytes more than the object has. A kernel
// has one.
#undef SHARED_OBJECT
#ifdef __CUDA_ARCH__
#define SHARED_OBJECT(TYPE, name)                                                                                             \
    extern __shared__ unsigned char shared_bytes[];                                                                           \
    TYPE &name = *(TYPE *)(shared_bytes + (1024 - shared_address(shared_bytes) % 1024) % 1024)
#else
#define SHARED_OBJECT(TYPE, name)                                                                                             \
    __shared__ TYPE name;                                                                                                     \
    simt::set_shared(&name, sizeof name)
#endif

// Lets each thread of the warpgroup have COUNT registers: fewer than before, or more, once other warpgroups have given them back.
template <int COUNT> static __device__ __forceinline__ void give_registers() {
#ifdef __CUDA_ARCH__
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" : : "n"(COUNT));
#else
    simt::set_registers(COUNT);
#endif
}
template <int COUNT> static __device__ __forceinline__ void take_registers() {
#ifdef __CUDA_ARCH__
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" : : "n"(COUNT));
#else
    simt::set_registers(COUNT);
#endif
}

// A barrier in shared memory (mbarrier). It counts arrivals, and when all have come begins its next phase. Phases have the parities 0, 1, 0, ..
struct Barrier {
    u64 word;
};

// Prepares a barrier for so many arrivals a phase. One thread does, and the block waits for it.
static __device__ __forceinline__ void prepare(Barrier &barrier, u32 arrivals) {
#ifdef __CUDA_ARCH__
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" : : "r"(shared_address(&barrier)), "r"(arrivals) : "memory");
#else
    simt::prepare(&barrier.word, arrivals);
#endif
}

// Arrives: what this thread did before is seen by those who wait for the phase.
static __device__ __forceinline__ void arrive(Barrier &barrier) {
#ifdef __CUDA_ARCH__
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" : : "r"(shared_address(&barrier)) : "memory");
#else
    simt::arrive(&barrier.word);
#endif
}

// True if the phase of this parity has ended. The one before the first counts as ended, with parity 1.
static __device__ __forceinline__ bool has_ended(Barrier &barrier, u32 parity) {
#ifdef __CUDA_ARCH__
    u32 ended;
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(ended)
                 : "r"(shared_address(&barrier)), "r"(parity)
                 : "memory");
    return ended != 0;
#else
    return simt::has_ended(&barrier.word, parity);
#endif
}

// Waits until the phase of this parity has ended. A tile takes microseconds to arrive. After 2^28 tries, which are seconds, a fault is certain, and
// the kernel ends with an error: a card that waits for ever could not be used again. The loop is one statement, since around a `trap` of C++ ptxas
// keeps accumulators in local memory and lets no products overlap.
static __device__ __forceinline__ void await(Barrier &barrier, u32 parity) {
#ifdef __CUDA_ARCH__
    asm volatile("{ .reg .pred p; .reg .u32 tries; mov.u32 tries, 0; "
                 "again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @p bra ended; "
                 "add.u32 tries, tries, 1; setp.ne.u32 p, tries, 268435456; @p bra again; trap; ended: }"
                 :
                 : "r"(shared_address(&barrier)), "r"(parity)
                 : "memory");
#else
    simt::await(&barrier.word, parity);
#endif
}

// Shows what this thread has written to shared memory to products of any thread that learns of it later.
static __device__ __forceinline__ void fence_async() {
#ifdef __CUDA_ARCH__
    asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
#else
    simt::fence_async();
#endif
}

// Ends a group of this thread's copies of `copy_16`, and waits until all groups but the last COUNT have arrived.
static __device__ __forceinline__ void commit_copies() {
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.commit_group;" : : : "memory");
#else
    simt::commit_copies();
#endif
}
template <int COUNT> static __device__ __forceinline__ void await_copies() {
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.wait_group %0;" : : "n"(COUNT) : "memory");
#else
    simt::wait_copies_but(COUNT);
#endif
}

// Elements of a row of a panel, and bytes of eight rows.
constexpr int PANEL_WIDTH = 64;
constexpr int EIGHT_ROWS = 1024;

// Returns the index of the first element of a chunk of eight in a panel.
static __device__ __forceinline__ int swizzled(int row, int chunk) {
    return row * PANEL_WIDTH + ((chunk ^ row % 8) * 8);
}

// Returns the descriptor of an operand from `from` on, whose next panel, if it has one, is `panel` bytes further.
static __device__ __forceinline__ u64 describe(const u16 *from, int panel) {
#ifdef __CUDA_ARCH__
    const u32 address = shared_address(from);
#else
    const u32 address = simt::shared_address(from);
#endif
    return (u64)((address & 0x3ffff) >> 4) | (u64)(panel >> 4) << 16 | (u64)(EIGHT_ROWS >> 4) << 32 | 1ull << 62;
}

// Returns the descriptor of what is so many bytes further, a multiple of 16.
static __device__ __forceinline__ u64 further(u64 descriptor, int bytes) { return descriptor + (u64)(bytes >> 4); }

// Orders registers before products that begin later: before each group of products.
static __device__ __forceinline__ void fence_products() {
#ifdef __CUDA_ARCH__
    asm volatile("wgmma.fence.sync.aligned;" : : : "memory");
#else
    simt::fence_products();
#endif
}

// Ends a group of products, and waits until all groups but the last COUNT are done. Until then no register of theirs is touched, nor their operands.
static __device__ __forceinline__ void commit_products() {
#ifdef __CUDA_ARCH__
    asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory");
#else
    simt::commit_products();
#endif
}
template <int COUNT> static __device__ __forceinline__ void await_products() {
#ifdef __CUDA_ARCH__
    asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(COUNT) : "memory");
#else
    simt::await_products(COUNT);
#endif
}

// Keeps the compiler from moving uses of these registers across this point, as when a product has just been waited for.
template <int EIGHTS> static __device__ __forceinline__ void settle(Accumulator (&sums)[EIGHTS]) {
#ifdef __CUDA_ARCH__
#pragma unroll
    for (int n = 0; n < EIGHTS; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) asm volatile("" : "+f"(sums[n].at[e]) : : "memory");
#endif
}

// Instructions for elements of a format named as in PTX. Zero or one in the place of `adds` says whether the result is added.
#undef FOUR_SUMS
#undef SIXTEEN_SUMS
#undef SUMS_64
#undef SUMS_128
#undef ROWS_BY_ROWS_128
#undef ROWS_BY_COLUMNS_64
#undef ROWS_BY_COLUMNS_128
#define FOUR_SUMS(to, i) "+f"(to[i].at[0]), "+f"(to[i].at[1]), "+f"(to[i].at[2]), "+f"(to[i].at[3])
#define SIXTEEN_SUMS(to, i) FOUR_SUMS(to, i), FOUR_SUMS(to, i + 1), FOUR_SUMS(to, i + 2), FOUR_SUMS(to, i + 3)
#define SUMS_64(to) SIXTEEN_SUMS(to, 0), SIXTEEN_SUMS(to, 4)
#define SUMS_128(to) SUMS_64(to), SIXTEEN_SUMS(to, 8), SIXTEEN_SUMS(to, 12)
#define ROWS_BY_ROWS_128(FORMAT)                                                                              \
    asm volatile(                                                                                             \
        "{ .reg .pred p; setp.ne.b32 p, %66, 0; "                                                             \
        "wgmma.mma_async.sync.aligned.m64n128k16.f32." FORMAT "." FORMAT " "                                  \
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                             \
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "                    \
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                    \
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "                   \
        "%64, %65, p, 1, 1, 0, 0; }"                                                                          \
        : SUMS_128(to)                                                                                        \
        : "l"(a), "l"(b), "r"((int)adds))
#define ROWS_BY_COLUMNS_64(FORMAT)                                                                            \
    asm volatile(                                                                                             \
        "{ .reg .pred p; setp.ne.b32 p, %37, 0; "                                                             \
        "wgmma.mma_async.sync.aligned.m64n64k16.f32." FORMAT "." FORMAT " "                                   \
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                             \
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "                   \
        "{%32, %33, %34, %35}, %36, p, 1, 1, 1; }"                                                            \
        : SUMS_64(to)                                                                                         \
        : "r"(a.at[0]), "r"(a.at[1]), "r"(a.at[2]), "r"(a.at[3]), "l"(b), "r"((int)adds))
#define ROWS_BY_COLUMNS_128(FORMAT)                                                                           \
    asm volatile(                                                                                             \
        "{ .reg .pred p; setp.ne.b32 p, %69, 0; "                                                             \
        "wgmma.mma_async.sync.aligned.m64n128k16.f32." FORMAT "." FORMAT " "                                  \
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                             \
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "                    \
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                    \
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "                   \
        "{%64, %65, %66, %67}, %68, p, 1, 1, 1; }"                                                            \
        : SUMS_128(to)                                                                                        \
        : "r"(a.at[0]), "r"(a.at[1]), "r"(a.at[2]), "r"(a.at[3]), "l"(b), "r"((int)adds))

// to[64, 128] = a[64, 16] b[128, 16]^T, added to it if `adds`: rows of both operands are rows of panels.
static __device__ __forceinline__ void multiply_rows(u64 a, u64 b, bool adds, Accumulator (&to)[16]) {
#if !defined(__CUDA_ARCH__)
    simt::warpgroup_product<SAME<real, Bf16>>({to[0].at, nullptr, a, b, 128, adds, false});
#else
    if constexpr (SAME<real, Bf16>) {
        ROWS_BY_ROWS_128("bf16");
    } else {
        ROWS_BY_ROWS_128("f16");
    }
#endif
}

// to[64, N] = a[64, 16] b[16, N], added to it if `adds`, for N = 64 or 128: rows of b are rows of panels.
template <int EIGHTS>
static __device__ __forceinline__ void multiply_columns(const Left &a, u64 b, bool adds, Accumulator (&to)[EIGHTS]) {
    static_assert(EIGHTS == 8 || EIGHTS == 16);
#if !defined(__CUDA_ARCH__)
    simt::warpgroup_product<SAME<real, Bf16>>({to[0].at, a.at, 0, b, 8 * EIGHTS, adds, true});
#else
    if constexpr (SAME<real, Bf16> && EIGHTS == 8) {
        ROWS_BY_COLUMNS_64("bf16");
    } else if constexpr (SAME<real, Bf16>) {
        ROWS_BY_COLUMNS_128("bf16");
    } else if constexpr (EIGHTS == 8) {
        ROWS_BY_COLUMNS_64("f16");
    } else {
        ROWS_BY_COLUMNS_128("f16");
    }
#endif
}
