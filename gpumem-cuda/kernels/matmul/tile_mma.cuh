// Tiles of a matrix product on tensor cores, for tile.cuh.
//
// 2 x 4 warps, each with TILE_M / 2 x TILE_N / 4 elements of C. Shared memory holds the 16-bit elements unchanged: operand element (e, k) at e *
// K_PITCH + k, or (K_FIRST) at k * (TILE + 8) + e if e is the contiguous axis in memory. Either pitch is an odd multiple of 16 bytes, so that eight
// rows of 16 bytes access every bank once.
//
// No include guard: the tests include it once for each kernel they compile.
#include "mma.cuh"

constexpr int TILE_K = 32;
// Elements that are loaded at once if they are adjacent.
constexpr int VECTOR = 8;
constexpr int K_PITCH = TILE_K + 8;
constexpr int WARP_M = TILE_M / 2, WARP_N = TILE_N / 4;
constexpr int FRAGMENTS_M = WARP_M / 16, FRAGMENTS_N = WARP_N / 8;
// Rows of C that are written at once, one fragment of each warp, and their pitch.
constexpr int STAGE_ROWS = 2 * 16, STAGE_PITCH = TILE_N + 8;

union __align__(16) Tiles {
    struct {
        u16 a[2][TILE_M * K_PITCH];
        u16 b[2][TILE_N * K_PITCH];
    } operands;
    float stage[STAGE_ROWS * STAGE_PITCH];
};

struct Sums {
    Accumulator at[FRAGMENTS_M][FRAGMENTS_N];
};

// Loads TILE x TILE_K elements, one by one. Along k, a thread has two neighbours in k of TILE / 16 places. Otherwise it has eight of one place, and
// stores them in one access; a tile of 32 then occupies half of the threads.
template <int TILE, bool ALONG_K, class Source> struct Single {
    static constexpr bool K_FIRST = false;
    static constexpr int COUNT = ALONG_K ? TILE / 16 : TILE < 64 ? 1 : TILE / 64;
    static constexpr int WORDS = ALONG_K ? 1 : 4;
    Source source;
    typename Source::Place places[ALONG_K ? COUNT : 1];
    u32 held[COUNT][WORDS];
    // The first of the thread's groups of eight k.
    u32 eight;

    static __device__ __forceinline__ bool busy() { return ALONG_K || TILE >= 64 || threadIdx.x < TILE * 4; }
    // The two rows of a warp are four apart, so that its stores access each bank once.
    static __device__ __forceinline__ u32 e(int i) {
        const u32 group = threadIdx.x / 16;
        return ALONG_K ? group / 8 * 8 + group % 2 * 4 + group / 2 % 4 + 16 * i : threadIdx.x % TILE;
    }
    __device__ __forceinline__ u32 k(int i) const {
        return ALONG_K ? threadIdx.x % 16 * 2 : (eight + TILE_THREADS / TILE * i) * 8;
    }

    __device__ __forceinline__ Single(const Source &from, u32 first) : source(from) {
        // This is equal in all lanes. Written as a shuffle, it lets the compiler compute depths once for a warp.
        if constexpr (!ALONG_K) eight = __shfl_sync(FULL_WARP, threadIdx.x / TILE, 0);
#pragma unroll
        for (int i = 0; i < (ALONG_K ? COUNT : 1); i++) places[i] = source.place(first + e(i));
    }
    __device__ __forceinline__ void fetch(u32 first) {
        if (!busy()) return;
        if constexpr (ALONG_K) {
            const typename Source::Depth low = source.depth(first + k(0)), high = source.depth(first + k(0) + 1);
#pragma unroll
            for (int i = 0; i < COUNT; i++)
                held[i][0] = source.at(places[i], low).bits | (u32)source.at(places[i], high).bits << 16;
        } else {
#pragma unroll
            for (int i = 0; i < COUNT; i++)
#pragma unroll
                for (int word = 0; word < WORDS; word++) {
                    const u32 depth = first + k(i) + 2 * word;
                    held[i][word] = source.at(places[0], source.depth(depth)).bits
                                    | (u32)source.at(places[0], source.depth(depth + 1)).bits << 16;
                }
        }
    }
    __device__ __forceinline__ void put(u16 *tile) const {
        if (!busy()) return;
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            u16 *to = tile + e(i) * K_PITCH + k(i);
            if constexpr (ALONG_K) {
                *(u32 *)to = held[i][0];
            } else {
                const uint4 words = {held[i][0], held[i][1], held[i][2], held[i][3]};
                *(uint4 *)to = words;
            }
        }
    }
};

// Loads an operand in eights, for a matrix whose stride is a multiple of 8. A tile of 32 occupies half of the threads.
template <int TILE, bool ALONG_K, class Source> struct Vectors {
    static constexpr bool K_FIRST = !ALONG_K;
    static constexpr int COUNT = TILE < 64 ? 1 : TILE / 64;
    Source source;
    typename Source::Place places[ALONG_K ? COUNT : 1];
    uint4 held[COUNT];

    static __device__ __forceinline__ bool busy() { return TILE >= 64 || threadIdx.x < TILE * 4; }
    // Eight lanes that store at once have eight rows.
    static __device__ __forceinline__ u32 e(int i) {
        return ALONG_K ? threadIdx.x / 32 * 8 + threadIdx.x % 8 + 64 * i : threadIdx.x % (TILE / 8) * 8;
    }
    static __device__ __forceinline__ u32 k(int i) {
        return ALONG_K ? threadIdx.x % 32 / 8 * 8 : threadIdx.x / (TILE / 8) + 2048 / TILE * i;
    }

    __device__ __forceinline__ Vectors(const Source &from, u32 first) : source(from) {
#pragma unroll
        for (int i = 0; i < (ALONG_K ? COUNT : 1); i++) places[i] = source.place(first + e(i));
    }
    __device__ __forceinline__ void fetch(u32 first) {
        if (!busy()) return;
#pragma unroll
        for (int i = 0; i < COUNT; i++) held[i] = source.eight(places[ALONG_K ? i : 0], source.depth(first + k(i)));
    }
    __device__ __forceinline__ void put(u16 *tile) const {
        if (!busy()) return;
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            *(uint4 *)(tile + (K_FIRST ? k(i) * (TILE + 8) + e(i) : e(i) * K_PITCH + k(i))) = held[i];
    }
};

static __device__ __forceinline__ void clear(Sums &sums) {
#pragma unroll
    for (int i = 0; i < FRAGMENTS_M; i++)
#pragma unroll
        for (int j = 0; j < FRAGMENTS_N; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) sums.at[i][j].at[e] = 0.0f;
}

static __device__ __forceinline__ void add(Sums &total, const Sums &sums) {
#pragma unroll
    for (int i = 0; i < FRAGMENTS_M; i++)
#pragma unroll
        for (int j = 0; j < FRAGMENTS_N; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) total.at[i][j].at[e] += sums.at[i][j].at[e];
}

// Return the first row and column of the thread's warp in the tile.
static __device__ __forceinline__ int warp_row() { return threadIdx.x / 128 * WARP_M; }
static __device__ __forceinline__ int warp_column() { return threadIdx.x / 32 % 4 * WARP_N; }

// Returns the place of element (e, k) of an operand.
template <bool K_FIRST, int TILE> static __device__ __forceinline__ const u16 *spot(const u16 *tile, int e, int k) {
    return tile + (K_FIRST ? k * (TILE + 8) + e : e * K_PITCH + k);
}

// Adds the products of one buffer.
template <bool A_K_FIRST, bool B_K_FIRST>
static __device__ __forceinline__ void multiply_tile(const u16 *a, const u16 *b, Sums &sums) {
    constexpr int A_PITCH = A_K_FIRST ? TILE_M + 8 : K_PITCH, B_PITCH = B_K_FIRST ? TILE_N + 8 : K_PITCH;
    const int row = warp_row(), column = warp_column();
#pragma unroll
    for (int k = 0; k < TILE_K; k += 16) {
        Left left[FRAGMENTS_M];
        Right right[FRAGMENTS_N];
#pragma unroll
        for (int i = 0; i < FRAGMENTS_M; i++)
            load_left<A_K_FIRST>(spot<A_K_FIRST, TILE_M>(a, row + 16 * i, k), A_PITCH, left[i]);
        if constexpr (FRAGMENTS_N == 1) {
            load_right<B_K_FIRST>(spot<B_K_FIRST, TILE_N>(b, column, k), B_PITCH, right[0]);
        } else {
#pragma unroll
            for (int j = 0; j < FRAGMENTS_N; j += 2)
                load_rights<B_K_FIRST>(spot<B_K_FIRST, TILE_N>(b, column + 8 * j, k), B_PITCH, right[j], right[j + 1]);
        }
#pragma unroll
        for (int i = 0; i < FRAGMENTS_M; i++)
#pragma unroll
            for (int j = 0; j < FRAGMENTS_N; j++) multiply_add(left[i], right[j], sums.at[i][j]);
    }
}

// Adds the products of k from `first`, a multiple of TILE_K, to `last`, a multiple too or the end. Calls `each` with each buffer of A.
template <class A, class B, class Each>
static __device__ __forceinline__ void multiply_each(A &a, B &b, u32 first, u32 last, Tiles &tiles, Sums &sums, Each each) {
    a.fetch(first);
    b.fetch(first);
    // An earlier call may still be reading.
    __syncthreads();
    a.put(tiles.operands.a[0]);
    b.put(tiles.operands.b[0]);
    __syncthreads();
    int buffer = 0;
    for (;;) {
        first += TILE_K;
        const bool more = first < last;
        if (more) {
            a.fetch(first);
            b.fetch(first);
        }
        multiply_tile<A::K_FIRST, B::K_FIRST>(tiles.operands.a[buffer], tiles.operands.b[buffer], sums);
        each(tiles.operands.a[buffer]);
        if (!more) break;
        // All threads are done with this buffer since the barrier before last.
        buffer ^= 1;
        a.put(tiles.operands.a[buffer]);
        b.put(tiles.operands.b[buffer]);
        __syncthreads();
    }
}

template <class A, class B>
static __device__ __forceinline__ void multiply(A &a, B &b, u32 first, u32 last, Tiles &tiles, Sums &sums) {
    multiply_each(a, b, first, last, tiles, sums, [](const u16 *) {});
}

// Stores one row of fragments of each warp where all threads can read them.
static __device__ __forceinline__ void stage_rows(Tiles &tiles, const Sums &sums, int fragment) {
    const int row = threadIdx.x / 128 * 16 + threadIdx.x % 32 / 4;
    const int column = warp_column() + threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < FRAGMENTS_M; i++) {
        // Registers cannot be indexed, so the loop is unrolled and one of its iterations does the work.
        if (i != fragment) continue;
#pragma unroll
        for (int j = 0; j < FRAGMENTS_N; j++) {
            const Accumulator &sum = sums.at[i][j];
            float *to = &tiles.stage[row * STAGE_PITCH + column + 8 * j];
            *(float2 *)to = make_float2(sum.at[0], sum.at[1]);
            *(float2 *)(to + 8 * STAGE_PITCH) = make_float2(sum.at[2], sum.at[3]);
        }
    }
}

// Writes the tile whose first element is C[m, n], through shared memory, so that neighbouring threads write neighbours. FOURS: four columns from a
// multiple of 4 on are adjacent and aligned.
template <bool FOURS, class Target>
static __device__ __forceinline__ void store(const Target &target, u32 m, u32 n, Tiles &tiles, const Sums &sums) {
    static_assert(sizeof(tiles.stage) <= sizeof(tiles.operands), "fragments are staged in the memory of the operands");
    constexpr int RUN = FOURS ? 4 : 1, LINE = TILE_N / RUN;
    const int place = threadIdx.x % LINE * RUN;
    const u32 column = n + place;
    const bool inside = column < target.columns();
    const typename Target::Column to = target.column(inside ? column : 0);
#pragma unroll
    for (int fragment = 0; fragment < FRAGMENTS_M; fragment++) {
        __syncthreads();
        stage_rows(tiles, sums, fragment);
        __syncthreads();
        if (!inside) continue;
#pragma unroll 4
        for (int row = threadIdx.x / LINE; row < STAGE_ROWS; row += TILE_THREADS / LINE) {
            const u32 line = m + row / 16 * WARP_M + fragment * 16 + row % 16;
            if (line >= target.rows()) break;
            const float *from = &tiles.stage[row * STAGE_PITCH + place];
            if constexpr (FOURS) {
                put_four(target, line, column, from, target.at(to, line));
            } else {
                put_one(target, line, column, *from, target.at(to, line));
            }
        }
    }
}
