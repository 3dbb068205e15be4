/* Stand-ins for CUDA's libraries: they answer what macros and environment variables say. One macro chooses the library. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static inline long number(const char *name, long otherwise) {
    const char *value = getenv(name);
    return value ? atol(value) : otherwise;
}

#define MIB (1ull << 20)

#ifdef DRIVER
static int active[16];
int cuInit(unsigned flags) { (void)flags; return (int)number("FAKE_INIT", 0); }
int cuDriverGetVersion(int *version) { *version = (int)number("FAKE_DRIVER", 13000); return 0; }
int cuGetErrorString(int code, const char **text) { (void)code; *text = "as the test says"; return 0; }
int cuGetErrorName(int code, const char **text) { (void)code; *text = "AS_THE_TEST_SAYS"; return 0; }
int cuDeviceGetCount(int *count) { *count = (int)number("FAKE_COUNT", 1); return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuDeviceGetName(char *name, int length, int device) { (void)device; strncpy(name, "Stand-in", (size_t)length); return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    long capability = number("FAKE_CAPABILITY", 90);
    (void)device;
    *value = attribute == 75 ? (int)(capability / 10) : attribute == 76 ? (int)(capability % 10) : 1;
    return 0;
}
int cuDeviceGetUuid_v2(char *uuid, int device) { memset(uuid, 0x10 + device, 16); return 0; }
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *is_active) {
    *flags = 0;
    *is_active = active[device];
    return 0;
}
int cuDevicePrimaryCtxRetain(void **context, int device) {
    int code = (int)number("FAKE_RETAIN", 0);
    *context = &active[device];
    if (code == 0) {
        active[device] = 1;
        setenv("FAKE_CONTEXT", "400", 1);
    }
    return code;
}
int cuDevicePrimaryCtxRelease_v2(int device) { active[device] = 0; return 0; }
/* The stack's limit, lowered, gives back 70 MiB; this driver takes no value below 256. */
int cuCtxSetLimit(int limit, size_t bytes) {
    int code = (int)number("FAKE_LIMIT", 0);
    if (code == 0 && bytes < 256) return 1;
    if (code == 0 && limit == 0) setenv("FAKE_CONTEXT", "330", 1);
    return code;
}
int cuCtxSetCurrent(void *context) { (void)context; return 0; }
int cuCtxGetCurrent(void **context) { *context = NULL; return 0; }
int cuMemGetInfo_v2(size_t *free, size_t *total) {
    *free = (size_t)(3072 * MIB);
    *total = (size_t)(12000 * MIB);
    return 0;
}
#endif

#ifdef COMPILER
int nvrtcVersion(int *major, int *minor) { *major = VERSION / 100; *minor = VERSION % 100; return 0; }
#if VERSION >= 1300
static const int known[] = {75, 80, 90, 100, 120};
#else
static const int known[] = {50, 61, 75, 80, 90};
#endif
int nvrtcGetNumSupportedArchs(int *count) { *count = sizeof known / sizeof *known; return 0; }
int nvrtcGetSupportedArchs(int *list) { memcpy(list, known, sizeof known); return 0; }
/* Nothing compiles: these are looked up and not called. */
int nvrtcCreateProgram(void) { return 11; }
int nvrtcDestroyProgram(void) { return 11; }
int nvrtcCompileProgram(void) { return 11; }
int nvrtcGetProgramLogSize(void) { return 11; }
int nvrtcGetProgramLog(void) { return 11; }
int nvrtcGetCUBINSize(void) { return 11; }
int nvrtcGetCUBIN(void) { return 11; }
const char *nvrtcGetErrorString(int code) { (void)code; return "stand-in"; }
#endif

#ifdef PRODUCTS
size_t cublasLtGetVersion(void) { return VERSION * 100; }
#endif

#ifdef CONVOLUTIONS
size_t cudnnGetVersion(void) { return VERSION; }
size_t cudnnGetCudartVersion(void) { return BUILT_FOR * 1000; }
/* Nothing is computed: these are looked up and not called. */
#define ABSENT(name) int name(void) { return 1001; }
#ifndef LACKING
ABSENT(cudnnConvolutionBiasActivationForward)
#endif
ABSENT(cudnnAddTensor)
ABSENT(cudnnBackendCreateDescriptor)
ABSENT(cudnnBackendDestroyDescriptor)
ABSENT(cudnnBackendExecute)
ABSENT(cudnnBackendFinalize)
ABSENT(cudnnBackendGetAttribute)
ABSENT(cudnnBackendSetAttribute)
ABSENT(cudnnConvolutionBackwardData)
ABSENT(cudnnConvolutionBackwardFilter)
ABSENT(cudnnConvolutionForward)
ABSENT(cudnnCreate)
ABSENT(cudnnCreateActivationDescriptor)
ABSENT(cudnnCreateConvolutionDescriptor)
ABSENT(cudnnCreateDropoutDescriptor)
ABSENT(cudnnCreateFilterDescriptor)
ABSENT(cudnnCreateRNNDataDescriptor)
ABSENT(cudnnCreateRNNDescriptor)
ABSENT(cudnnCreateTensorDescriptor)
ABSENT(cudnnDestroy)
ABSENT(cudnnDestroyActivationDescriptor)
ABSENT(cudnnDestroyConvolutionDescriptor)
ABSENT(cudnnDestroyDropoutDescriptor)
ABSENT(cudnnDestroyFilterDescriptor)
ABSENT(cudnnDestroyRNNDataDescriptor)
ABSENT(cudnnDestroyRNNDescriptor)
ABSENT(cudnnDestroyTensorDescriptor)
ABSENT(cudnnGetConvolution2dForwardOutputDim)
ABSENT(cudnnGetConvolutionBackwardDataAlgorithm_v7)
ABSENT(cudnnGetConvolutionBackwardDataWorkspaceSize)
ABSENT(cudnnGetConvolutionBackwardFilterAlgorithm_v7)
ABSENT(cudnnGetConvolutionBackwardFilterWorkspaceSize)
ABSENT(cudnnGetConvolutionForwardAlgorithm_v7)
ABSENT(cudnnGetConvolutionForwardWorkspaceSize)
ABSENT(cudnnGetRNNTempSpaceSizes)
ABSENT(cudnnGetRNNWeightParams)
ABSENT(cudnnGetRNNWeightSpaceSize)
ABSENT(cudnnRNNBackwardData_v8)
ABSENT(cudnnRNNBackwardWeights_v8)
ABSENT(cudnnRNNForward)
ABSENT(cudnnSetActivationDescriptor)
ABSENT(cudnnSetConvolution2dDescriptor)
ABSENT(cudnnSetConvolutionGroupCount)
ABSENT(cudnnSetConvolutionMathType)
ABSENT(cudnnSetDropoutDescriptor)
ABSENT(cudnnSetFilter4dDescriptor)
ABSENT(cudnnSetRNNDataDescriptor)
ABSENT(cudnnSetRNNDescriptor_v8)
ABSENT(cudnnSetStream)
ABSENT(cudnnSetTensor4dDescriptor)
ABSENT(cudnnSetTensorNdDescriptor)
#endif

#ifdef EXCHANGES
int ncclGetVersion(int *version) { *version = VERSION; return 0; }
int ncclGetUniqueId(char *id) { memset(id, 7, 128); return 0; }
const char *ncclGetErrorString(int code) { (void)code; return "stand-in"; }
const char *ncclGetLastError(void *comm) { (void)comm; return ""; }
/* Nothing is exchanged: these are looked up and not called. */
#define ABSENT(name) int name(void) { return 1; }
#ifndef LACKING
ABSENT(ncclGroupEnd)
#endif
ABSENT(ncclAllGather)
ABSENT(ncclAllReduce)
ABSENT(ncclCommAbort)
ABSENT(ncclCommDestroy)
ABSENT(ncclCommFinalize)
ABSENT(ncclCommGetAsyncError)
ABSENT(ncclCommInitRankConfig)
ABSENT(ncclGroupStart)
ABSENT(ncclReduceScatter)
#endif

#ifdef MANAGEMENT
struct memory { unsigned long long total, free, used; };
struct process { unsigned id; unsigned long long bytes; unsigned instances[2]; };
/* Above Linux's largest process ID, 4194304: the tests' own process never has the ID of another. */
#define PYTHON 5000001u
#include <stdio.h>
#include <unistd.h>
int nvmlInit_v2(void) { return (int)number("FAKE_NVML", 0); }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
    static int card;
    *handle = &card;
    return strcmp(uuid, "GPU-10101010-1010-1010-1010-101010101010") == 0 ? 0 : 6;
}
int nvmlDeviceGetMemoryInfo(void *handle, struct memory *memory) {
    (void)handle;
    memory->total = 12000 * MIB;
    /* A neighbour takes memory while the context is made. */
    unsigned long long context = (unsigned long long)number("FAKE_CONTEXT", 0);
    memory->used = (8000 + context + (context ? (unsigned long long)number("FAKE_NEIGHBOUR", 0) : 0)) * MIB;
    memory->free = memory->total - memory->used;
    return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v2(void *handle, unsigned *count, struct process *list) {
    /* More than the caller's first list has room for, so that it has to ask twice. */
    unsigned total = (unsigned)number("FAKE_PROCESSES", 2);
    (void)handle;
    if (*count < total) {
        *count = total;
        return 7;
    }
    *count = total;
    for (unsigned index = 0; index < total; index++) {
        /* Without a context this process holds nothing, and is not listed. */
        int own = index == 0 && number("FAKE_CONTEXT", 0);
        list[index].id = own ? (unsigned)getpid() : PYTHON - 1 + (index ? index : 1);
        list[index].bytes = (own ? (unsigned long long)number("FAKE_CONTEXT", 0) : 7168) * MIB;
    }
    return 0;
}
int nvmlDeviceGetGraphicsRunningProcesses_v2(void *handle, unsigned *count, struct process *list) {
    (void)handle;
    *count = 1;
    list[0].id = PYTHON;
    list[0].bytes = ~0ull;
    return 0;
}
int nvmlSystemGetDriverVersion(char *text, unsigned length) {
    snprintf(text, length, "580.95.05");
    return 0;
}
int nvmlSystemGetProcessName(unsigned id, char *name, unsigned length) {
    if (id != PYTHON) return 6;
    snprintf(name, length, "/usr/bin/python3");
    return 0;
}
#endif
