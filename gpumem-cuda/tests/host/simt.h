// Runs CUDA kernels on the host, to find what is wrong with them before a device does.
//
// The threads of a block are fibers on one thread. Each warp runs on until all of its lanes wait for a barrier or for the
// warp, before the next warp runs at all: a kernel that forgets a barrier then reads what another warp has not written yet.
// Shared memory is filled with 0xFF bytes (NaN) for every block, so that reading what nobody wrote shows too. Three orders
// of warps and lanes are tried. Barriers that not all threads reach stop the program with a message.
//
// Instructions that the lanes of a warp execute together (mma, ldmatrix) are emulated from the tables of the PTX manual; a lane
// that does not take part stops the program. Copies in the background (cp.async) happen at once in the first order, and not
// before they are waited for in the others.
//
// Products of a warpgroup (wgmma) happen at once in the first order, and not before they are waited for in the others, with NaN in
// their registers until then. `warpgroups.h` says what else is checked of them and of barriers in shared memory.
//
// Where blocks wait for each other, each has run up to there before any goes on, in another order.
//
// Not covered: the memory model of a GPU, races between blocks, inline PTX.
//
// What kernels see is here; `simt.cpp` runs them.
#pragma once
#include <cstdint>
// Bessel functions and the like are a third of what a compiler would read for each library.
#undef _GLIBCXX_USE_STD_SPEC_FUNCS
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#define __device__
#define __constant__
#define __host__
#define __forceinline__ inline
#define __restrict__ __restrict
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
// Each compiled kernel has shared memory of its own: SIMT_SECTION names it. The address sanitizer watches no variables in sections
// that are named: for it they are ordinary ones, which are not filled for each block.
#ifdef __SANITIZE_ADDRESS__
#define __shared__ static
#else
#define __shared__ static __attribute__((section(SIMT_SECTION)))
#endif
#define KERNEL(name) static void name
#define warpSize 32

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }

// A library's own, like its shared memory: libraries run beside each other, each one launch at a time.
#pragma GCC visibility push(hidden)
namespace simt {

// Of the thread that runs, and of its block and grid.
extern uint3 thread_index;
extern int lane_in_block;
extern uint3 block_index;
extern dim3 block_size, grid_size;

[[noreturn]] void fail(const char *what);

// Each gives way to other threads: until all of its block have come here, those of its warp, and all blocks.
void wait_for_block();
void wait_for_warp();
void wait_for_grid(unsigned *word);

// Up to eight bytes of another lane of the warp, for those of this one.
uint64_t exchange(uint64_t own, int from);

// mma.sync.aligned.m16n8k16 and .m16n8k8 .row.col.f32 of bf16 or f16.
template <int K, bool IS_BF16> void mma(const unsigned *a, const unsigned *b, float *c);

// ldmatrix.sync.aligned.m8n8.x2 and .x4, with and without .trans.
template <int COUNT, bool TRANSPOSED> void ldmatrix(const void *row, unsigned *to);

// cp.async of `bytes`, of which all but the first `given` are zeros.
void copy_async(void *to, const void *from, int bytes, int given);

// cp.async.wait_all
void wait_copies();

// cp.async.commit_group, and cp.async.wait_group for all groups but the last ones.
void commit_copies();
void wait_copies_but(int groups);

// The object that addresses of shared memory of 32 bits count from, and such an address.
void set_shared(void *object, size_t bytes);
unsigned shared_address(const void *object);

// mbarrier.init, .arrive, .try_wait.parity, and waiting until that is true.
void prepare(unsigned long long *barrier, unsigned arrivals);
void arrive(unsigned long long *barrier);
bool has_ended(const unsigned long long *barrier, unsigned parity);
void await(const unsigned long long *barrier, unsigned parity);

// fence.proxy.async.shared::cta
void fence_async();

// setmaxnreg.sync.aligned
void set_registers(int count);

// wgmma.mma_async.sync.aligned.m64nNk16.f32 of bf16 or f16: its accumulator, its left operand in registers, or null where that is in shared memory
// as well, the operands' descriptors, N, and whether the right operand's rows are terms of the sum.
struct Product {
    float *to;
    const unsigned *left;
    unsigned long long left_rows, right;
    int columns;
    bool adds, is_transposed;
};
template <bool IS_BF16> void warpgroup_product(const Product &own);

// wgmma.fence, wgmma.commit_group, and wgmma.wait_group for all groups but the last ones.
void fence_products();
void commit_products();
void await_products(int groups);

// Runs all blocks of a grid, each thread through `body`, in an order of warps and lanes. Shared memory is from `shared` to `shared_end`.
void launch(
    const unsigned *grid, const unsigned *block, int order, void (*body)(void **), void **arguments, char *shared, char *shared_end);

inline int lane() { return lane_in_block & 31; }

template <class T> inline T exchanged(T value, int from) {
    static_assert(sizeof(T) <= 8);
    uint64_t own = 0;
    memcpy(&own, &value, sizeof value);
    const uint64_t other = exchange(own, from);
    memcpy(&value, &other, sizeof value);
    return value;
}

template <class... A> constexpr int arity(void (*)(A...)) { return sizeof...(A); }

// Bytes of a parameter that is no pointer.
template <class A> constexpr int plain_bytes() { return std::is_pointer<A>::value ? 0 : (int)sizeof(A); }
// Those of the last one: others are pointers.
template <class... A> constexpr int plain(void (*)(A...)) {
    constexpr int bytes[] = {plain_bytes<A>()...};
    for (size_t i = 0; i + 1 < sizeof...(A); i++)
        if (bytes[i] != 0) return -1;
    return bytes[sizeof...(A) - 1];
}

template <class A> A given(void *argument) {
    if constexpr (std::is_pointer<A>::value) {
        return (A)argument;
    } else {
        A numbers;
        memcpy(&numbers, argument, sizeof numbers);
        return numbers;
    }
}

// Calls a kernel with pointers, the last of which may be to plain numbers.
template <class... A, size_t... I> void call(void (*kernel)(A...), void **arguments, std::index_sequence<I...>) {
    kernel(given<A>(arguments[I])...);
}
template <class... A> void call(void (*kernel)(A...), void **arguments) {
    call(kernel, arguments, std::index_sequence_for<A...>());
}

} // namespace simt
#pragma GCC visibility pop

#define threadIdx (simt::thread_index)
#define blockIdx (simt::block_index)
#define blockDim (simt::block_size)
#define gridDim (simt::grid_size)

inline void __syncthreads() { simt::wait_for_block(); }
inline void __syncwarp(unsigned = ~0u) { simt::wait_for_warp(); }
inline void __threadfence() {}
inline void __threadfence_system() {}
template <class T> T __shfl_xor_sync(unsigned, T v, int mask, int = 32) { return simt::exchanged(v, simt::lane() ^ mask); }
template <class T> T __shfl_sync(unsigned, T v, int from, int = 32) { return simt::exchanged(v, from); }
template <class T> T __shfl_down_sync(unsigned, T v, int by, int = 32) {
    const int from = simt::lane() + by;
    return simt::exchanged(v, from < 32 ? from : simt::lane());
}
template <class T> T atomicAdd(T *p, T v) {
    const T old = *p;
    *p = old + v;
    return old;
}
inline unsigned atomicInc(unsigned *p, unsigned last) {
    const unsigned old = *p;
    *p = old >= last ? 0 : old + 1;
    return old;
}
template <class T> T __ldg(const T *p) { return *p; }
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline void sincospif(float x, float *sine, float *cosine) {
    *sine = (float)sin(3.141592653589793 * x);
    *cosine = (float)cos(3.141592653589793 * x);
}
inline float __int_as_float(int bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}
inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
