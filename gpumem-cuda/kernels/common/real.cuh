// `real`: the number format of activations, weights and their gradients in memory. REAL is a type: float, Bf16 or F16. No include guard: the tests
// include it once for each kernel they compile.
#undef real
#define real REAL
