// A card that is played by the host: the driver's functions that a session calls, and a compiler that only notes what it is
// given. Kernels are the ones that the tests compiled as C++ and registered here.
//
// What is enqueued on a stream runs as late or as early as the driver's rules allow, by GPUMEM_SIMULATED_ORDER: 0 when somebody
// waits for it, 1 at once, 2 copies at once and kernels late. A session that forgets to wait for something then reads or
// overwrites memory too early in one of them.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#define API extern "C" __attribute__((visibility("default"))) int
enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_HANDLE = 400, NOT_FOUND = 500, NOT_READY = 600, WHILE_CAPTURING = 900 };

#ifdef DRIVER
typedef unsigned long long Address;
typedef void (*Launch)(const unsigned *grid, const unsigned *block, int order, void **arguments);
typedef std::function<void()> Work;

struct Kernel {
    Launch launch;
    int arguments;
};
struct Graph {
    std::vector<Work> nodes;
};
struct Stream {
    std::deque<Work> pending;
    unsigned long long enqueued = 0, done = 0;
    Graph *capturing = nullptr;
};
struct Event {
    Stream *stream = nullptr;
    unsigned long long position = 0;
};
struct Module {
    std::string file, constants;
};

static std::map<std::string, Kernel> kernels;
static std::vector<Stream *> streams;
static std::map<Address, size_t> allocations;
static size_t used, allocated_ever, captures, replays;
static int context;

static long number(const char *name, long otherwise) {
    const char *value = getenv(name);
    return value ? atol(value) : otherwise;
}
static size_t total() { return (size_t)number("GPUMEM_SIMULATED_MIB", 4096) << 20; }
static int order() { return (int)number("GPUMEM_SIMULATED_ORDER", 0); }

static bool step(Stream &stream) {
    if (stream.pending.empty()) return false;
    Work work = std::move(stream.pending.front());
    stream.pending.pop_front();
    work();
    stream.done++;
    return true;
}
static void drain(Stream &stream, unsigned long long position) {
    while (stream.done < position && step(stream)) {}
}
static void drain_all() {
    for (Stream *stream : streams) drain(*stream, stream->enqueued);
}
static bool capturing() {
    for (Stream *stream : streams)
        if (stream->capturing) return true;
    return false;
}
static void enqueue(Stream &stream, bool is_copy, Work work) {
    if (stream.capturing) {
        stream.capturing->nodes.push_back(std::move(work));
        return;
    }
    stream.pending.push_back(std::move(work));
    stream.enqueued++;
    if (order() == 1 || (order() == 2 && is_copy && stream.pending.size() == 1)) drain(stream, stream.enqueued);
}

// For the tests: a kernel by its note (file, entry point, constants).
API simulated_register(const char *note, void *launch, int arguments) {
    kernels[note] = {(Launch)launch, arguments};
    return SUCCESS;
}
// Device and pinned allocations so far, bytes on the card now, graphs captured, graphs replayed.
API simulated_counts(unsigned long long *counts) {
    counts[0] = allocated_ever, counts[1] = used, counts[2] = captures, counts[3] = replays;
    return SUCCESS;
}

// For other libraries of the card: work of theirs on a stream.
API simulated_enqueue(Stream *stream, void (*work)(void *), void *data) {
    return enqueue(*stream, false, [=] { work(data); }), SUCCESS;
}

API cuInit(unsigned) { return SUCCESS; }
API cuDriverGetVersion(int *version) { return *version = 13000, SUCCESS; }
API cuGetErrorName(int code, const char **text) {
    static char name[32];
    snprintf(name, sizeof name, "SIMULATED_ERROR_%d", code);
    return *text = name, SUCCESS;
}
API cuGetErrorString(int code, const char **text) { return cuGetErrorName(code, text); }
API cuDeviceGetCount(int *count) { return *count = 1, SUCCESS; }
API cuDeviceGet(int *device, int ordinal) { return *device = ordinal, SUCCESS; }
API cuDeviceGetName(char *name, int length, int) { return snprintf(name, length, "Simulated card"), SUCCESS; }
API cuDeviceGetAttribute(int *value, int attribute, int) {
    return *value = attribute == 75 ? 8 : attribute == 76 ? 0 : 1, SUCCESS;
}
API cuDeviceGetUuid_v2(char *uuid, int) { return memset(uuid, 7, 16), SUCCESS; }
API cuDevicePrimaryCtxGetState(int, unsigned *flags, int *active) { return *flags = 0, *active = 1, SUCCESS; }
API cuDevicePrimaryCtxRetain(void **made, int) { return *made = &context, SUCCESS; }
API cuDevicePrimaryCtxRelease_v2(int) { return SUCCESS; }
API cuCtxSetCurrent(void *) { return SUCCESS; }
API cuCtxGetCurrent(void **current) { return *current = &context, SUCCESS; }
API cuCtxSynchronize() { return drain_all(), SUCCESS; }

API cuMemGetInfo_v2(size_t *free, size_t *all) { return *all = total(), *free = total() - used, SUCCESS; }
API cuMemAlloc_v2(Address *address, size_t bytes) {
    if (capturing()) return WHILE_CAPTURING;
    if (bytes == 0) return INVALID_VALUE;
    if (bytes > total() - used) return OUT_OF_MEMORY;
    char *memory = (char *)aligned_alloc(256, (bytes + 255) / 256 * 256);
    memset(memory, 0xff, bytes);
    *address = (Address)memory;
    allocations[*address] = bytes;
    used += bytes;
    allocated_ever++;
    return SUCCESS;
}
API cuMemFree_v2(Address address) {
    auto found = allocations.find(address);
    if (found == allocations.end()) return INVALID_VALUE;
    drain_all();
    used -= found->second;
    allocations.erase(found);
    free((void *)address);
    return SUCCESS;
}
API cuMemHostAlloc(void **memory, size_t bytes, unsigned) {
    if (capturing()) return WHILE_CAPTURING;
    allocated_ever++;
    return *memory = malloc(bytes), SUCCESS;
}
API cuMemFreeHost(void *memory) { return drain_all(), free(memory), SUCCESS; }

static bool inside(Address address, size_t bytes) {
    auto after = allocations.upper_bound(address);
    if (after == allocations.begin()) return false;
    --after;
    return address + bytes <= after->first + after->second;
}
// Copies on the default stream wait for no other stream.
API cuMemcpyHtoD_v2(Address to, const void *from, size_t bytes) {
    if (capturing()) return WHILE_CAPTURING;
    return inside(to, bytes) ? (memcpy((void *)to, from, bytes), SUCCESS) : INVALID_VALUE;
}
API cuMemcpyDtoH_v2(void *to, Address from, size_t bytes) {
    if (capturing()) return WHILE_CAPTURING;
    return inside(from, bytes) ? (memcpy(to, (void *)from, bytes), SUCCESS) : INVALID_VALUE;
}
API cuMemcpyHtoDAsync_v2(Address to, const void *from, size_t bytes, Stream *stream) {
    if (!inside(to, bytes)) return INVALID_VALUE;
    return enqueue(*stream, true, [=] { memcpy((void *)to, from, bytes); }), SUCCESS;
}
API cuMemcpyDtoHAsync_v2(void *to, Address from, size_t bytes, Stream *stream) {
    if (!inside(from, bytes)) return INVALID_VALUE;
    return enqueue(*stream, true, [=] { memcpy(to, (void *)from, bytes); }), SUCCESS;
}

API cuStreamCreate(Stream **stream, unsigned) { return streams.push_back(*stream = new Stream), SUCCESS; }
API cuStreamDestroy_v2(Stream *stream) {
    // What is enqueued still runs; the handle stays, since events remember it.
    return drain(*stream, stream->enqueued), SUCCESS;
}
API cuStreamSynchronize(Stream *stream) {
    if (stream->capturing) return WHILE_CAPTURING;
    return drain(*stream, stream->enqueued), SUCCESS;
}
API cuStreamWaitEvent(Stream *stream, Event *event, unsigned) {
    if (!event->stream) return SUCCESS;
    Stream *other = event->stream;
    const unsigned long long position = event->position;
    return enqueue(*stream, false, [=] { drain(*other, position); }), SUCCESS;
}
API cuStreamBeginCapture_v2(Stream *stream, int) {
    if (stream->capturing) return WHILE_CAPTURING;
    return stream->capturing = new Graph, SUCCESS;
}
API cuStreamEndCapture(Stream *stream, Graph **graph) {
    captures++;
    return *graph = stream->capturing, stream->capturing = nullptr, SUCCESS;
}
API cuGraphInstantiateWithFlags(Graph **made, Graph *graph, unsigned long long) {
    return *made = new Graph(*graph), SUCCESS;
}
API cuGraphLaunch(Graph *graph, Stream *stream) {
    replays++;
    return enqueue(*stream, false, [=] { for (const Work &node : graph->nodes) node(); }), SUCCESS;
}
API cuGraphExecDestroy(Graph *graph) { return drain_all(), delete graph, SUCCESS; }
API cuGraphDestroy(Graph *graph) { return delete graph, SUCCESS; }

API cuEventCreate(Event **event, unsigned) { return *event = new Event, SUCCESS; }
API cuEventDestroy_v2(Event *event) { return delete event, SUCCESS; }
API cuEventRecord(Event *event, Stream *stream) {
    if (stream->capturing) return WHILE_CAPTURING;
    return event->stream = stream, event->position = stream->enqueued, SUCCESS;
}
API cuEventSynchronize(Event *event) {
    if (event->stream) drain(*event->stream, event->position);
    return SUCCESS;
}
API cuEventQuery(Event *event) {
    if (!event->stream || event->stream->done >= event->position) return SUCCESS;
    // A little work is done between two questions.
    step(*event->stream);
    return NOT_READY;
}

// The "machine code" is the file's name and the constants, a line each.
API cuModuleLoadData(Module **module, const char *image) {
    if (capturing()) return WHILE_CAPTURING;
    const char *end = strchr(image, '\n');
    if (!end) return INVALID_VALUE;
    return *module = new Module{std::string(image, end), std::string(end + 1)}, SUCCESS;
}
API cuModuleUnload(Module *module) { return drain_all(), delete module, SUCCESS; }
API cuModuleGetFunction(Kernel **function, Module *module, const char *entry) {
    const auto found = kernels.find(module->file + " " + entry + module->constants);
    if (found == kernels.end()) {
        fprintf(stderr, "simulated card: no kernel `%s %s%s`\n", module->file.c_str(), entry, module->constants.c_str());
        return NOT_FOUND;
    }
    return *function = &found->second, SUCCESS;
}
API cuLaunchKernel(Kernel *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned,
                   Stream *stream, void **parameters, void **) {
    if (gx == 0 || gy == 0 || gz == 0 || gy > 65535 || gz > 65535 || bx * by * bz > 1024) return INVALID_VALUE;
    std::vector<void *> arguments;
    for (int i = 0; i < kernel->arguments; i++) arguments.push_back(*(void **)parameters[i]);
    return enqueue(*stream, false, [=]() mutable {
               const unsigned grid[] = {gx, gy, gz}, block[] = {bx, by, bz};
               std::vector<void *> own = arguments;
               kernel->launch(grid, block, 0, own.data());
           }),
           SUCCESS;
}
#endif

#ifdef COMPILER
struct Program {
    std::string image;
};
API nvrtcVersion(int *major, int *minor) { return *major = 13, *minor = 0, SUCCESS; }
API nvrtcGetNumSupportedArchs(int *count) { return *count = 1, SUCCESS; }
API nvrtcGetSupportedArchs(int *list) { return *list = 80, SUCCESS; }
API nvrtcCreateProgram(Program **program, const char *, const char *name, int, const char **, const char **) {
    return *program = new Program{std::string(name) + "\n"}, SUCCESS;
}
API nvrtcDestroyProgram(Program **program) { return delete *program, SUCCESS; }
API nvrtcCompileProgram(Program *program, int count, const char **options) {
    for (int i = 0; i < count; i++)
        if (strncmp(options[i], "-D", 2) == 0) program->image += std::string(" ") + (options[i] + 2);
    return SUCCESS;
}
API nvrtcGetProgramLogSize(Program *, size_t *size) { return *size = 1, SUCCESS; }
API nvrtcGetProgramLog(Program *, char *log) { return *log = 0, SUCCESS; }
API nvrtcGetCUBINSize(Program *program, size_t *size) { return *size = program->image.size() + 1, SUCCESS; }
API nvrtcGetCUBIN(Program *program, char *code) { return memcpy(code, program->image.c_str(), program->image.size() + 1), SUCCESS; }
extern "C" const char *nvrtcGetErrorString(int) { return "simulated"; }
#endif
