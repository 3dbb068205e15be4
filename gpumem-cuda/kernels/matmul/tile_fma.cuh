// Tiles of a matrix product without tensor cores, for tile.cuh.
//
// 16 x 16 threads: each holds TILE_M / 16 x TILE_N / 16 elements of C in registers and adds 16 products to each between two
// barriers. Every element of C is summed by one thread, in the order of k.
//
// No include guard: the tests include it once for each kernel they compile.

constexpr int TILE_K = 16;
// Elements that are loaded at once if they are adjacent.
constexpr int VECTOR = 4;
constexpr int REGISTERS_M = TILE_M / 16;
constexpr int REGISTERS_N = TILE_N / 16;
// Elements of C in one register row that are adjacent in memory.
constexpr int RUN = REGISTERS_N < 4 ? REGISTERS_N : 4;

// The pad keeps rows 16-byte aligned, and spreads the writes of a column over the banks.
struct __align__(16) Tiles {
    float a[2][TILE_K][TILE_M + 4];
    float b[2][TILE_K][TILE_N + 4];
};

struct Sums {
    float at[REGISTERS_M][REGISTERS_N];
};

// Loads TILE x TILE_K elements of an operand from a source into shared memory. Neighbouring threads load neighbouring k (ALONG_K) or neighbouring
// places, whichever are adjacent in memory.
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
            for (int i = 0; i < COUNT; i++) held[i] = widen(source.at(places[i], depth));
        } else {
#pragma unroll
            for (int i = 0; i < COUNT; i++)
                held[i] = widen(source.at(places[0], source.depth(k + threadIdx.x / TILE + TILE_THREADS / TILE * i)));
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

// Loads an operand in fours, for a matrix whose stride is a multiple of 4. A tile of 32 occupies half of the threads.
template <int TILE, bool ALONG_K, class Source> struct Vectors {
    static constexpr int COUNT = TILE < 64 ? 1 : TILE / 64;
    Source source;
    typename Source::Place places[ALONG_K ? COUNT : 1];
    float held[COUNT][4];

    static __device__ __forceinline__ bool busy() { return TILE >= 64 || threadIdx.x < TILE * 4; }
    // Return the start of the thread's quad number i.
    static __device__ __forceinline__ u32 e(int i) {
        return ALONG_K ? threadIdx.x / 4 + 64 * i : threadIdx.x % (TILE / 4) * 4;
    }
    static __device__ __forceinline__ u32 k(int i) {
        return ALONG_K ? threadIdx.x % 4 * 4 : threadIdx.x / (TILE / 4) + 1024 / TILE * i;
    }

    __device__ __forceinline__ Vectors(const Source &from, u32 first) : source(from) {
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

// Return the thread's row and column among the 16 x 16. A warp is 4 x 8 of them, so that its reads of A and of B access each bank once.
static __device__ __forceinline__ u32 thread_row() { return threadIdx.x / 64 * 4 + threadIdx.x % 32 / 8; }
static __device__ __forceinline__ u32 thread_column() { return threadIdx.x / 32 % 2 * 8 + threadIdx.x % 8; }

// Returns the row (or column) of the tile that is in register `i` of `COUNT`.
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

static __device__ __forceinline__ void add(Sums &total, const Sums &sums) {
#pragma unroll
    for (int i = 0; i < REGISTERS_M; i++)
#pragma unroll
        for (int j = 0; j < REGISTERS_N; j++) total.at[i][j] += sums.at[i][j];
}

// Adds the products of k from `first`, a multiple of TILE_K, to `last`, a multiple too or the end.
template <class A, class B>
static __device__ __forceinline__ void multiply(A &a, B &b, u32 first, u32 last, Tiles &tiles, Sums &sums) {
    const u32 row = thread_row(), column = thread_column();
    a.fetch(first);
    b.fetch(first);
    // An earlier call may still be reading.
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
        // All threads are done with this buffer since the barrier before last.
        buffer ^= 1;
        a.put(tiles.a[buffer]);
        b.put(tiles.b[buffer]);
        __syncthreads();
    }
}

// Writes the tile whose first element is C[m, n]. FOURS: four columns from a multiple of 4 on are adjacent and aligned.
template <bool FOURS, class Target>
static __device__ __forceinline__ void store(const Target &target, u32 m, u32 n, Tiles &, const Sums &sums) {
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
            auto *to = target.at(place, line);
            if constexpr (FOURS && RUN == 4) {
                put_four(target, line, column, &sums.at[i][j], to);
            } else {
                put_one(target, line, column, sums.at[i][j], to);
            }
        }
    }
}
