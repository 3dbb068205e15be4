#include "base.cuh"
#include "real.cuh"
