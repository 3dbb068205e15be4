// Random words of the elements of a pack (piece).
//
// Needs vector16.cuh. No include guard: the tests include it once for each kernel they compile.

// Returns the word of one draw.
static __device__ __forceinline__ u32 drop_word(const Draws &draws, u64 index) {
    u32 words[4];
    drop_words(draws, index / 4, words);
    const u32 low = index & 1 ? words[1] : words[0], high = index & 1 ? words[3] : words[2];
    return index & 2 ? high : low;
}

// Computes the words of the elements from `first` on. `shared` neighbours, a constant, have one word.
template <class Index>
static __device__ __forceinline__ void piece_words(const Draws &draws, u64 shared, Index first, u32 words[PIECE]) {
    if (shared == 1) {
        // A draw is four words.
#pragma unroll
        for (int draw = 0; draw < PIECE / 4; draw++) drop_words(draws, first / 4 + draw, words + 4 * draw);
        return;
    }
    const Index share = (Index)shared;
    u32 word = drop_word(draws, first / share);
#pragma unroll
    for (int e = 0; e < PIECE; e++) {
        // If `shared` is a multiple of PIECE, the pack has one draw.
        if (shared % PIECE != 0 && e > 0 && (first + e) % share == 0) word = drop_word(draws, (first + e) / share);
        words[e] = word;
    }
}
