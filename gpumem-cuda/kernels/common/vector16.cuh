// Packs (pieces) of 16 bytes of a tensor, one for each thread. The last one may be shorter.
//
// COUNT elements
// EIGHT given: packs of eight elements, which are 32 bytes in f32
//
// No include guard: the tests include it once for each kernel they compile.

#ifdef EIGHT
constexpr int PIECE = 8;
#else
constexpr int PIECE = 16 / sizeof(real);
#endif

struct alignas(16) Piece {
    real at[PIECE];
};

// Returns the first element of this thread's pack.
static __device__ __forceinline__ u64 first_of_piece() { return ((u64)blockIdx.x * blockDim.x + threadIdx.x) * PIECE; }

// True if a pack has all its elements; a compile-time constant if all have.
static __device__ __forceinline__ bool is_whole(u64 first) { return COUNT % PIECE == 0 || first + PIECE <= COUNT; }

// Loads a pack. Missing elements are 0.
static __device__ __forceinline__ Piece load_piece(const real *from, u64 first) {
    if (is_whole(first)) return *(const Piece *)(from + first);
    Piece piece;
#pragma unroll
    for (int e = 0; e < PIECE; e++) piece.at[e] = first + e < COUNT ? from[first + e] : real();
    return piece;
}

static __device__ __forceinline__ void store_piece(const Piece &piece, real *to, u64 first) {
    if (is_whole(first)) {
        *(Piece *)(to + first) = piece;
        return;
    }
#pragma unroll
    for (int e = 0; e < PIECE; e++)
        if (first + e < COUNT) to[first + e] = piece.at[e];
}
