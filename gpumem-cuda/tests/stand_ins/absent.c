/* A driver of CUDA 13 without a card, for cuDNN on a machine that has none: it loads code that never runs, and refuses the rest. */
#define NO_DEVICE 100
#define REFUSED(name) int name(void) { return NO_DEVICE; }
#define UNSUPPORTED(name) int name(void) { return 15; }
#define TAKEN(name) int name(void) { return 0; }

static char handle[64];

int cuDriverGetVersion(int *version) { return *version = 13000, 0; }
int cuInit(unsigned flags) { return (void)flags, NO_DEVICE; }
/* What is looked up this way is not there. */
int cuGetProcAddress_v2(const char *name, void **function, int version, unsigned long flags, void *status) {
    return (void)name, (void)version, (void)flags, (void)status, *function = 0, 500;
}

int cuLibraryLoadData(void **library) { return *library = handle, 0; }
int cuLibraryGetKernel(void **kernel, void *library, const char *name) {
    return (void)library, (void)name, *kernel = handle, 0;
}
int cuKernelGetFunction(void **function, void *kernel) { return (void)kernel, *function = handle, 0; }
int cuModuleGetFunction(void **function, void *module, const char *name) {
    return (void)module, (void)name, *function = handle, 0;
}
TAKEN(cuKernelGetAttribute)
TAKEN(cuKernelSetAttribute)
TAKEN(cuLibraryLoadFromFile)
TAKEN(cuLibraryUnload)
TAKEN(cuModuleLoadData)
TAKEN(cuModuleUnload)
TAKEN(cuOccupancyMaxPotentialClusterSize)

REFUSED(cuCtxGetCurrent)
REFUSED(cuCtxGetLimit)
REFUSED(cuCtxPopCurrent)
REFUSED(cuCtxPushCurrent)
REFUSED(cuDeviceGet)
REFUSED(cuDeviceGetCount)
REFUSED(cuGetErrorName)
REFUSED(cuGetErrorString)
REFUSED(cuLaunchCooperativeKernel)
REFUSED(cuLaunchKernel)
REFUSED(cuLaunchKernelEx)
REFUSED(cuLinkAddData)
REFUSED(cuLinkComplete)
REFUSED(cuLinkCreate)
REFUSED(cuLinkDestroy)
REFUSED(cuStreamGetCtx)
REFUSED(cuTensorMapEncodeIm2col)
REFUSED(cuTensorMapEncodeTiled)

/* As libcublasLt.so.13, which cuDNN looks these up in: not one engine that is a product of cuBLASLt's is supported. */
unsigned long cublasLtGetVersion(void) { return 130100; }
UNSUPPORTED(cublasLtCreate)
TAKEN(cublasLtDestroy)
UNSUPPORTED(cublasLtGetProperty)
UNSUPPORTED(cublasLtGroupedMatrixLayoutCreate)
UNSUPPORTED(cublasLtMatmul)
UNSUPPORTED(cublasLtMatmulAlgoGetHeuristic)
UNSUPPORTED(cublasLtMatmulDescCreate)
TAKEN(cublasLtMatmulDescDestroy)
UNSUPPORTED(cublasLtMatmulDescGetAttribute)
UNSUPPORTED(cublasLtMatmulDescSetAttribute)
UNSUPPORTED(cublasLtMatmulPreferenceCreate)
TAKEN(cublasLtMatmulPreferenceDestroy)
UNSUPPORTED(cublasLtMatmulPreferenceSetAttribute)
UNSUPPORTED(cublasLtMatrixLayoutCreate)
TAKEN(cublasLtMatrixLayoutDestroy)
UNSUPPORTED(cublasLtMatrixLayoutGetAttribute)
UNSUPPORTED(cublasLtMatrixLayoutSetAttribute)
UNSUPPORTED(cublasLtMatrixTransform)
UNSUPPORTED(cublasLtMatrixTransformDescCreate)
TAKEN(cublasLtMatrixTransformDescDestroy)
UNSUPPORTED(cublasLtMatrixTransformDescGetAttribute)
UNSUPPORTED(cublasLtMatrixTransformDescSetAttribute)
