// What the kernels of an `operation!` are written with. It comes before the user's file, and after it the dimensions and
// arguments of the layer, as constants under their own names, and `batch`.
//
// real           what x, y, the parameters and all gradients are made of in memory: float, or 16 bits
// widen(a)       a real as a float
// narrow(f, &a)  a float rounded into a real
// u32, u64       unsigned integers
// KERNEL(name)   an entry point
//
// Blocks have 256 threads, and there are at least as many threads as the operation asks for: each looks whether it has work.
// Gradients are added to what is there. A gradient that nobody needs is null.
//
// No include guard: the tests include it once for each kernel they compile.
#include "base.cuh"
#include "real.cuh"
