// Tiles of a matrix product C = A B with C[M, N], A[M, K], B[K, N], where A and B may be computed from other tensors on the
// way to shared memory (implicit products).
//
// TILE_M, TILE_N rows and columns of C that a block computes: 32, 64 or 128 each
// ADD            whether C is added to what is there
//
// 256 threads, 16 x 16 of them: each holds TILE_M / 16 x TILE_N / 16 elements of C in registers and adds 16 products to each
// between two barriers. Two buffers take turns, so that the next 16 columns of A and rows of B come from memory while these
// are multiplied. Every element of C is summed by one thread, in the order of k.
//
// An operand is a `Source`: `place(e)` and `depth(k)` do once what depends on the row of A (or column of B) alone and on k
// alone, `at(place, depth)` gives the element as f32, and 0 outside.
//
// Kernels say __launch_bounds__(256, 1): left to itself, ptxas aims at more blocks a multiprocessor and spills registers.
//
// No include guard: the tests include it once for each kernel they compile.

constexpr int TILE_K = 16;
constexpr int TILE_THREADS = 256;
constexpr int REGISTERS_M = TILE_M / 16;
constexpr int REGISTERS_N = TILE_N / 16;
// Elements of C in one register row that lie next to each other in memory.
constexpr int RUN = REGISTERS_N < 4 ? REGISTERS_N : 4;

// The pad keeps rows 16-byte aligned, and spreads the writes of a column over the banks.
struct __align__(16) Tiles {
    float a[2][TILE_K][TILE_M + 4];
    float b[2][TILE_K][TILE_N + 4];
};

struct Sums {
    float at[REGISTERS_M][REGISTERS_N];
};

// Four elements at once: 16 bytes of float, 8 of the others, aligned to as much.
static __device__ __forceinline__ void load4(const float *from, float *to) {
    const float4 four = *(const float4 *)from;
    to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
}

template <class Half> static __device__ __forceinline__ void load4(const Half *from, float *to) {
    const uint2 four = *(const uint2 *)from;
    const u32 words[2] = {four.x, four.y};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        Half half;
        half.bits = (u16)(words[i / 2] >> 16 * (i % 2));
        to[i] = widen(half);
    }
}

static __device__ __forceinline__ void store4(const float *from, float *to) {
    *(float4 *)to = make_float4(from[0], from[1], from[2], from[3]);
}

template <class Half> static __device__ __forceinline__ void store4(const float *from, Half *to) {
    Half halves[4];
#pragma unroll
    for (int i = 0; i < 4; i++) narrow(from[i], &halves[i]);
    uint2 four;
    four.x = halves[0].bits | (u32)halves[1].bits << 16;
    four.y = halves[2].bits | (u32)halves[3].bits << 16;
    *(uint2 *)to = four;
}

// A stored matrix with elements (e, k) of an operand at e * stride + k (ALONG_K) or at k * stride + e.
template <bool ALONG_K> struct Matrix {
    const real *data;
    u64 stride;
    u32 extent, length;

    struct Place {
        const real *data;
        bool inside;
    };
    struct Depth {
        u64 offset;
        bool inside;
    };
    __device__ __forceinline__ Place place(u32 e) const { return {data + (ALONG_K ? e * stride : e), e < extent}; }
    __device__ __forceinline__ Depth depth(u32 k) const { return {ALONG_K ? k : k * stride, k < length}; }
    __device__ __forceinline__ float at(const Place &place, const Depth &depth) const {
        return place.inside && depth.inside ? widen(place.data[depth.offset]) : 0.0f;
    }
    __device__ __forceinline__ void four(const Place &place, const Depth &depth, float *to) const {
        if (place.inside && depth.inside) {
            load4(place.data + depth.offset, to);
        } else {
            to[0] = to[1] = to[2] = to[3] = 0.0f;
        }
    }
};

// Carries TILE x TILE_K elements of an operand from a source to shared memory. Neighbouring threads take neighbouring k
// (ALONG_K) or neighbouring places, whichever lie together in memory.
template <int TILE, bool ALONG_K, class Source> struct Single {
    static constexpr int COUNT = TILE / 16;
    Source source;
    typename Source::Place places[ALONG_K ? COUNT : 1];
    float held[COUNT];

    __device__ __forceinline__ Single(const Source &from, u32 first) : source(from) {
        if constexpr (ALONG_K) {
#pragma unroll
            for (int i = 0; i < COUNT; i++) places[i] = source.place(first + threadIdx.x / 16 + 16 * i);
        } else {
            places[0] = source.place(first + threadIdx.x % TILE);
        }
    }
    __device__ __forceinline__ void fetch(u32 k) {
        if constexpr (ALONG_K) {
            const typename Source::Depth depth = source.depth(k + threadIdx.x % 16);
#pragma unroll
            for (int i = 0; i < COUNT; i++) held[i] = source.at(places[i], depth);
        } else {
#pragma unroll
            for (int i = 0; i < COUNT; i++)
                held[i] = source.at(places[0], source.depth(k + threadIdx.x / TILE + TILE_THREADS / TILE * i));
        }
    }
    __device__ __forceinline__ void put(float (*tile)[TILE + 4]) const {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            if constexpr (ALONG_K) {
                tile[threadIdx.x % 16][threadIdx.x / 16 + 16 * i] = held[i];
            } else {
                tile[threadIdx.x / TILE + TILE_THREADS / TILE * i][threadIdx.x % TILE] = held[i];
            }
        }
    }
};

// The same in fours, for a matrix whose stride is a multiple of 4. A tile of 32 occupies half of the threads.
template <int TILE, bool ALONG_K, class Source> struct Quads {
    static constexpr int COUNT = TILE < 64 ? 1 : TILE / 64;
    Source source;
    typename Source::Place places[ALONG_K ? COUNT : 1];
    float held[COUNT][4];

    static __device__ __forceinline__ bool busy() { return TILE >= 64 || threadIdx.x < TILE * 4; }
    // Where the thread's quad number i starts.
    static __device__ __forceinline__ u32 e(int i) {
        return ALONG_K ? threadIdx.x / 4 + 64 * i : threadIdx.x % (TILE / 4) * 4;
    }
    static __device__ __forceinline__ u32 k(int i) {
        return ALONG_K ? threadIdx.x % 4 * 4 : threadIdx.x / (TILE / 4) + 1024 / TILE * i;
    }

    __device__ __forceinline__ Quads(const Source &from, u32 first) : source(from) {
#pragma unroll
        for (int i = 0; i < (ALONG_K ? COUNT : 1); i++) places[i] = source.place(first + e(i));
    }
    __device__ __forceinline__ void fetch(u32 first) {
        if (!busy()) return;
#pragma unroll
        for (int i = 0; i < COUNT; i++) source.four(places[ALONG_K ? i : 0], source.depth(first + k(i)), held[i]);
    }
    __device__ __forceinline__ void put(float (*tile)[TILE + 4]) const {
        if (!busy()) return;
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            if constexpr (ALONG_K) {
#pragma unroll
                for (int j = 0; j < 4; j++) tile[k(i) + j][e(i)] = held[i][j];
            } else {
                store4(held[i], &tile[k(i)][e(i)]);
            }
        }
    }
};

template <bool FOURS, int TILE, bool ALONG_K, class Source> struct Carrier {
    typedef Single<TILE, ALONG_K, Source> Type;
};
template <int TILE, bool ALONG_K, class Source> struct Carrier<true, TILE, ALONG_K, Source> {
    typedef Quads<TILE, ALONG_K, Source> Type;
};

// The thread's row and column among the 16 x 16. A warp is 4 x 8 of them: what it reads of A and of B in a step is then one
// access to each bank.
static __device__ __forceinline__ u32 thread_row() { return threadIdx.x / 64 * 4 + threadIdx.x % 32 / 8; }
static __device__ __forceinline__ u32 thread_column() { return threadIdx.x / 32 % 2 * 8 + threadIdx.x % 8; }

// The row (or column) of the tile that is in register `i` of `COUNT`.
template <int COUNT> static __device__ __forceinline__ u32 spot(u32 thread, int i) {
    constexpr int RUN_LENGTH = COUNT < 4 ? COUNT : 4;
    return i / RUN_LENGTH * 16 * RUN_LENGTH + thread * RUN_LENGTH + i % RUN_LENGTH;
}

template <int COUNT> static __device__ __forceinline__ void take(const float *row, u32 thread, float *to) {
    if constexpr (COUNT == 2) {
        const float2 two = *(const float2 *)&row[thread * 2];
        to[0] = two.x, to[1] = two.y;
    } else {
#pragma unroll
        for (int i = 0; i < COUNT; i += 4) load4(&row[spot<COUNT>(thread, i)], to + i);
    }
}

static __device__ __forceinline__ void clear(Sums &sums) {
#pragma unroll
    for (int i = 0; i < REGISTERS_M; i++)
#pragma unroll
        for (int j = 0; j < REGISTERS_N; j++) sums.at[i][j] = 0.0f;
}

// Adds the products of k from `first`, a multiple of 16, to `last`.
template <class A, class B>
static __device__ __forceinline__ void multiply(A &a, B &b, u32 first, u32 last, Tiles &tiles, Sums &sums) {
    const u32 row = thread_row(), column = thread_column();
    a.fetch(first);
    b.fetch(first);
    // A call before this one may still be reading.
    __syncthreads();
    a.put(tiles.a[0]);
    b.put(tiles.b[0]);
    __syncthreads();
    int buffer = 0;
    for (;;) {
        first += TILE_K;
        const bool more = first < last;
        if (more) {
            a.fetch(first);
            b.fetch(first);
        }
#pragma unroll
        for (int k = 0; k < TILE_K; k++) {
            float left[REGISTERS_M], right[REGISTERS_N];
            take<REGISTERS_M>(tiles.a[buffer][k], row, left);
            take<REGISTERS_N>(tiles.b[buffer][k], column, right);
#pragma unroll
            for (int i = 0; i < REGISTERS_M; i++)
#pragma unroll
                for (int j = 0; j < REGISTERS_N; j++) sums.at[i][j] += left[i] * right[j];
        }
        if (!more) break;
        // Everyone is done with this buffer since the barrier before last.
        buffer ^= 1;
        a.put(tiles.a[buffer]);
        b.put(tiles.b[buffer]);
        __syncthreads();
    }
}

// Writes the tile whose first element is C[m, n]. A `Target` says where: `column(n)` does what depends on n alone, `at(column,
// m)` is the element's address, `bias(m, n)` what is added to it. FOURS: four columns from a multiple of 4 on lie next to each
// other, aligned.
template <bool FOURS, class Target>
static __device__ __forceinline__ void store(const Target &target, u32 m, u32 n, const Sums &sums) {
    const u32 row = m + spot<REGISTERS_M>(thread_row(), 0), run = FOURS && RUN == 4 ? 4 : 1;
#pragma unroll
    for (int j = 0; j < REGISTERS_N; j += run) {
        const u32 column = n + spot<REGISTERS_N>(thread_column(), j);
        if (column >= target.columns()) continue;
        const typename Target::Column place = target.column(column);
#pragma unroll
        for (int i = 0; i < REGISTERS_M; i++) {
            const u32 line = row + spot<REGISTERS_M>(0, i);
            if (line >= target.rows()) continue;
            real *to = target.at(place, line);
            if constexpr (FOURS && RUN == 4) {
                float four[4];
#if ADD
                load4(to, four);
#endif
#pragma unroll
                for (int l = 0; l < 4; l++) {
                    const float sum = sums.at[i][j + l] + target.bias(line, column + l);
#if ADD
                    four[l] += sum;
#else
                    four[l] = sum;
#endif
                }
                store4(four, to);
            } else {
                const float sum = sums.at[i][j] + target.bias(line, column);
#if ADD
                narrow(widen(*to) + sum, to);
#else
                narrow(sum, to);
#endif
            }
        }
    }
}
