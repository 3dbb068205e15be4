// `real`: what activations, weights and their gradients are made of in memory. REAL is 0 for float, 1 for bfloat16, 2 for
// binary16. No include guard: the tests include it once for each kernel they compile.
#undef real
#if REAL == 0
#define real float
#elif REAL == 1
#define real Bf16
#else
#define real F16
#endif
