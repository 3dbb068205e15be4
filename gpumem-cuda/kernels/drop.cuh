// Dropout of an element.
//
// THRESHOLD an element is dropped when its random word is below it
// SCALE     what the others are multiplied with
//
// No include guard: the tests include it once for each kernel they compile.

static __device__ __forceinline__ float dropped(u32 word, float x) {
    // Not a product with 0: what is dropped is 0 even if it was NaN.
    return word < THRESHOLD ? 0.0f : x * (float)(SCALE);
}
