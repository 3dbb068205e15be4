// A stand-in for NVML: one card with two processes, of which the test names the first.
#include <stdlib.h>
#include <string.h>

typedef int Status;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } Memory;
typedef struct { unsigned gpu, memory; } Rates;
typedef struct { unsigned pid; unsigned long long used; unsigned instance, compute; } Process;

static int card;

Status nvmlInit_v2(void) { return getenv("STAND_IN_NO_DRIVER") ? 9 : 0; }
Status nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(Status status) { (void)status; return "stand-in"; }
Status nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return 0; }
Status nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = &card; return index ? 2 : 0; }
Status nvmlDeviceGetName(void *device, char *name, unsigned length) {
    (void)device;
    strncpy(name, "NVIDIA GeForce RTX 3060", length);
    return 0;
}
Status nvmlDeviceGetUUID(void *device, char *uuid, unsigned length) { (void)device; strncpy(uuid, "GPU-1", length); return 0; }
Status nvmlDeviceGetMemoryInfo_v2(void *device, Memory *memory) {
    (void)device;
    memory->total = 12ull << 30; memory->reserved = 1 << 20; memory->used = 3ull << 30; memory->free = 9ull << 30;
    return 0;
}
Status nvmlDeviceGetUtilizationRates(void *device, Rates *rates) { (void)device; rates->gpu = 97; rates->memory = 40; return 0; }
Status nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) { (void)device; *milliwatts = 168000; return 0; }
Status nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *milliwatts) { (void)device; *milliwatts = 170000; return 0; }
// This card has no sensor.
Status nvmlDeviceGetTemperature(void *device, int sensor, unsigned *degrees) { (void)device; (void)sensor; (void)degrees; return 3; }
Status nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, Process *processes) {
    (void)device;
    unsigned room = *count;
    *count = 2;
    if (room < 2 || !processes) return 7;
    const char *pid = getenv("STAND_IN_PID");
    processes[0] = (Process){ pid ? (unsigned)atoi(pid) : 1, 300ull << 20, ~0u, ~0u };
    // A process of another container, of which the driver does not know the memory.
    processes[1] = (Process){ 4194305, ~0ull, ~0u, ~0u };
    return 0;
}
