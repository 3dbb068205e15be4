// Definitions for the kernels of a user's `operation!`. The source of a layer has this file, then the dimensions and arguments of the layer as
// constants under their own names and `batch`, then the user's file.
//
// real           number format of x, y, the parameters and all gradients in memory: float, or 16 bits
// widen(a)       a real as a float
// narrow(f, &a)  a float rounded into a real
// u32, u64       unsigned integers
// KERNEL(name)   an entry point
//
// Blocks have 256 threads, and there are at least as many threads as the operation requests, so each must check that it has work. Gradients must be
// added to their tensors (+=). A gradient that is not wanted is null.
//
// No include guard: the tests include it once for each kernel they compile.
#include "base.cuh"
#include "real.cuh"
