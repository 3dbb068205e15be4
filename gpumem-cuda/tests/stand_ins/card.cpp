// A card that is played by the host: the driver's functions that a session calls, and a compiler that only notes what it is
// given. Kernels are the ones that the tests compiled as C++ and registered here.
//
// What is enqueued on a stream runs as late or as early as the driver's rules allow, by GPUMEM_SIMULATED_ORDER: 0 when somebody
// waits for it, 1 at once, 2 copies at once and kernels late. A session that forgets to wait for something then reads or
// overwrites memory too early in one of them. In a graph each node comes behind those that its stream was given before and those of the
// events that it waited for; what streams beside the capture's own were given runs as late as another node needs it in order 0, as it was
// given in order 1, and as early as it can in order 2.
//
// The driver's rules, as its documentation states them:
//
// * A thread has a current context, or its calls fail with INVALID_CONTEXT, here even those whose page lists no such error.
// * cuMemcpyHtoD of pageable memory returns once the bytes are staged. They arrive on the default stream, which a
//   non-blocking stream does not wait for. Copies to the host, and from pinned memory, are done when the call returns.
// * While a thread captures a stream, calls that wait, copy at once, allocate, free or load are refused with
//   STREAM_CAPTURE_UNSUPPORTED and invalidate the capture; what is enqueued then fails, and so does the end of the capture,
//   after which the stream is as before it. A captured stream may not wait for work from outside of the capture.
// * An event that was never recorded stands for no work: waiting for it and asking for it succeed at once.
// * Time between events: of those that were made to be timed, were recorded and have come.
// * A kernel that fails breaks the context: all later calls return its error.
// * Modules may be loaded lazily. A kernel is loaded when it is asked for by name, at the latest.
//
// Threads call it one at a time. Each runs the work of streams that it has given work to; another's may wait for what that one does next.
//
// | variable | what goes wrong |
// | --- | --- |
// | GPUMEM_SIMULATED_MIB | the card's memory, 4096 |
// | GPUMEM_SIMULATED_CAPABILITY | the compute capability, 8.0 |
// | GPUMEM_SIMULATED_FAILS | the entry point of a kernel that reads a wrong address |
// | GPUMEM_SIMULATED_SLOW_KERNEL | the entry point of a kernel that takes twice as long as others |
// | GPUMEM_SIMULATED_WRONG | `entry:argument`: a kernel after which the first word of that tensor is NaN |
// | GPUMEM_SIMULATED_REFUSED | functions that return UNKNOWN, separated by commas |
// | GPUMEM_SIMULATED_TAKES | 1: what is no allocation takes memory too: a context 40 MiB and 64 KiB for each byte of the stack's limit, a handle of a library 16 MiB, a kernel that one loads 4 MiB, a module 2 MiB, a graph 1 MiB |
// | GPUMEM_SIMULATED_NEIGHBOUR | `function:MiB`: what somebody else takes of the card, or gives back, when that function is first called |
// | GPUMEM_SIMULATED_UNMAPPED | 1: the card cannot have memory of the host |
// | GPUMEM_SIMULATED_NOTHING | 1: kernels and libraries compute nothing, memory is not filled, and no kernel has to be made known: for whole networks |
// | GPUMEM_SIMULATED_LEAST | the least bytes that a limit may be given, 0 |
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>
#include <sys/mman.h>
#include <unistd.h>

#define API extern "C" __attribute__((visibility("default"))) int
enum {
    SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_CONTEXT = 201, INVALID_HANDLE = 400, NOT_FOUND = 500, NOT_READY = 600,
    ILLEGAL_ADDRESS = 700, CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901, CAPTURE_UNMATCHED = 903,
    CAPTURE_UNJOINED = 904, CAPTURE_ISOLATION = 905, CAPTURED_EVENT = 907, CAPTURE_WRONG_THREAD = 908, UNKNOWN = 999,
    COOPERATIVE_LAUNCH_TOO_LARGE = 720,
};
// Each runs two blocks at once.
enum { MULTIPROCESSORS = 4 };

#ifdef DRIVER
typedef unsigned long long Address;
typedef void (*Launch)(const unsigned *grid, const unsigned *block, int order, void **arguments);
typedef std::function<void()> Work;

struct Kernel {
    Launch launch;
    int arguments, plain;
    std::string entry;
    bool is_cooperative;
    // Bytes of shared memory that a launch may ask for.
    int shared = 48 << 10;
};
// Bytes of shared memory that a block can have on compute capability 9.0, less than which older cards have.
enum { MOST_SHARED = 227 << 10 };
enum { KERNEL_NODE = 0, MEMCPY_NODE = 1 };
struct Node {
    Work work;
    int kind;
    // Whether a stream beside the capture's own was given it, and the numbers of the nodes that it comes behind.
    bool is_beside;
    std::vector<size_t> behind;
};
struct Graph {
    std::vector<Node> nodes;
    unsigned long long number = 0;
};
struct Executable {
    std::shared_ptr<Graph> graph;
    bool uploaded = false;
};
struct Stream {
    std::deque<Work> pending;
    unsigned long long enqueued = 0, done = 0;
    // Of a capture: what was captured, whether it is lost, its mode and the thread that began it.
    Graph *capturing = nullptr;
    bool invalid = false;
    int mode = 0;
    const void *thread = nullptr;
    // The thread that gave it work.
    const void *owner = nullptr;
    // The stream that began the capture which an event has brought this one into, and the nodes that come before what it is given next.
    Stream *origin = nullptr;
    std::vector<size_t> ends;
};
struct Event {
    Stream *stream = nullptr;
    unsigned long long position = 0;
    // The number of the capture that it was recorded in, and the nodes that it is behind there; 0 outside.
    unsigned long long captured = 0;
    std::vector<size_t> ends;
    bool is_timed = false;
};
struct Module {
    std::string file, constants;
};

static std::map<std::string, Kernel> kernels;
static std::vector<Stream *> streams;
static std::map<Address, size_t> allocations;
static std::map<const char *, size_t> pinned;
static std::map<const char *, void *> mapped;
static Stream default_stream;
static size_t used, allocated_ever, modules, captures, replays, loaded, instantiated, uploaded, made, waits, copies_captured;
static long long taken, neighbour;
static unsigned long long limits[3];
static int context, failed, retained;
static thread_local void *current;
static thread_local char this_thread;

// One thread at a time calls the driver. Work that waits for another thread lets it.
static std::recursive_mutex one_at_a_time;
static thread_local int held;
struct Guard {
    Guard() { one_at_a_time.lock(), held++; }
    ~Guard() { held--, one_at_a_time.unlock(); }
};

static long number(const char *name, long otherwise) {
    const char *value = getenv(name);
    return value ? atol(value) : otherwise;
}
static std::string text(const char *name) {
    const char *value = getenv(name);
    return value ? value : "";
}
static bool computes_nothing() { return number("GPUMEM_SIMULATED_NOTHING", 0); }
static size_t total() { return (size_t)number("GPUMEM_SIMULATED_MIB", 4096) << 20; }
static int order() { return (int)number("GPUMEM_SIMULATED_ORDER", 0); }

static size_t spare() {
    const long long stack = number("GPUMEM_SIMULATED_TAKES", 0) && retained ? (40ll << 20) + (long long)(limits[0] << 16) : 0;
    return (size_t)((long long)(total() - used) - taken - stack - neighbour);
}
// Bytes that are no allocation: a library's handle has this function as well.
API simulated_take(long long bytes) {
    const Guard guard;
    if (!number("GPUMEM_SIMULATED_TAKES", 0)) return SUCCESS;
    if (bytes > (long long)spare()) return OUT_OF_MEMORY;
    return taken += bytes, SUCCESS;
}
// The values of the limits: stack, buffer of printf, heap.
API simulated_limits(unsigned long long *values) { return memcpy(values, limits, sizeof limits), SUCCESS; }

static bool step(Stream &stream) {
    if (stream.pending.empty()) return false;
    Work work = std::move(stream.pending.front());
    stream.pending.pop_front();
    if (!failed) work();
    stream.done++;
    return true;
}
static void drain(Stream &stream, unsigned long long position) {
    while (stream.done < position && step(stream)) {}
}
static void drain_all() {
    drain(default_stream, default_stream.enqueued);
    // Another thread may make streams while work waits for it.
    for (size_t at = 0; at < streams.size(); at++)
        if (streams[at]->owner == &this_thread) drain(*streams[at], streams[at]->enqueued);
}
static int enqueue(Stream &stream, bool is_copy, Work work, bool is_late = false) {
    stream.owner = &this_thread;
    if (stream.capturing) {
        if (stream.invalid) return CAPTURE_INVALIDATED;
        copies_captured += is_copy;
        std::vector<Node> &nodes = stream.capturing->nodes;
        nodes.push_back({std::move(work), is_copy ? MEMCPY_NODE : KERNEL_NODE, stream.origin != nullptr, stream.ends});
        return stream.ends = {nodes.size() - 1}, SUCCESS;
    }
    stream.pending.push_back(std::move(work));
    stream.enqueued++;
    if (is_late) return SUCCESS;
    if (order() == 1 || (order() == 2 && is_copy && stream.pending.size() == 1)) drain(stream, stream.enqueued);
    return SUCCESS;
}

API simulated_let_go() {
    const int times = held;
    for (held = 0; held < times; held++) one_at_a_time.unlock();
    return held = 0, times;
}
API simulated_take_back(int times) {
    for (held = 0; held < times; held++) one_at_a_time.lock();
    return SUCCESS;
}

static int usable(const char *function) {
    if (!current) return INVALID_CONTEXT;
    if (failed) return failed;
    static bool came = false;
    const std::string other = text("GPUMEM_SIMULATED_NEIGHBOUR"), name = std::string(function) + ":";
    if (!came && other.compare(0, name.size(), name) == 0) came = true, neighbour = atoll(other.c_str() + name.size()) << 20;
    const std::string list = "," + text("GPUMEM_SIMULATED_REFUSED") + ",";
    return list.find("," + std::string(function) + ",") == std::string::npos ? SUCCESS : UNKNOWN;
}
// A global capture (0) is in the way of every thread, one of a thread (1) in the way of that thread only.
static int outside_capture() {
    int code = SUCCESS;
    for (Stream *stream : streams)
        if (stream->capturing && (stream->mode == 0 || (stream->mode == 1 && stream->thread == &this_thread)))
            stream->invalid = true, code = CAPTURE_UNSUPPORTED;
    return code;
}
// Of every function that works on the context; the second of those that are unsafe in a capture.
#define USABLE() const Guard guard; if (const int code = usable(__func__)) return code
#define UNSAFE() USABLE(); if (const int unsafe = outside_capture()) return unsafe

// For the tests: a kernel by its note (file, entry point, constants), with the bytes of its last parameter if that is no pointer.
API simulated_register(const char *note, void *launch, int arguments, int plain) {
    const Guard guard;
    const char *entry = strchr(note, ' ') + 1;
    const bool is_cooperative = strstr(entry, " TOGETHER=1") != nullptr;
    kernels[note] = {(Launch)launch, arguments, plain, std::string(entry, strcspn(entry, " ")), is_cooperative};
    return SUCCESS;
}
// Device and pinned allocations so far, bytes on the card now, graphs captured, graphs replayed.
API simulated_counts(unsigned long long *counts) {
    counts[0] = allocated_ever, counts[1] = used, counts[2] = captures, counts[3] = replays;
    return SUCCESS;
}
// What belongs to the start, so far: allocations, modules and kernels loaded, graphs instantiated and brought to the card,
// streams and events made. And how often the host has waited.
API simulated_start_up(unsigned long long *counts) {
    counts[0] = allocated_ever, counts[1] = loaded, counts[2] = instantiated, counts[3] = uploaded, counts[4] = made;
    counts[5] = waits;
    return SUCCESS;
}
// What is alive: allocations on the card, pinned ones, modules.
API simulated_alive(unsigned long long *counts) {
    return counts[0] = allocations.size(), counts[1] = pinned.size(), counts[2] = modules, SUCCESS;
}
// Copies captured so far, and what is enqueued and has not run.
API simulated_work(unsigned long long *counts) {
    counts[0] = copies_captured, counts[1] = 0;
    for (const Stream *stream : streams) counts[1] += stream->pending.size();
    return SUCCESS;
}

// For other libraries of the card: work of theirs on a stream, a kernel that they load when they first need it, and work that
// reads a wrong address.
API simulated_enqueue(Stream *stream, void (*work)(void *), void *data) {
    USABLE();
    return enqueue(*stream, false, [=] { if (!computes_nothing()) work(data); });
}
// As above, for work that runs when somebody waits for the stream, and not before.
API simulated_enqueue_late(Stream *stream, void (*work)(void *), void *data) {
    USABLE();
    return enqueue(*stream, false, [=] { if (!computes_nothing()) work(data); }, true);
}
API simulated_load() {
    UNSAFE();
    if (const int code = simulated_take(4 << 20)) return code;
    return loaded++, SUCCESS;
}
API simulated_fail() { return failed = ILLEGAL_ADDRESS, SUCCESS; }

API cuInit(unsigned) { return SUCCESS; }
API cuDriverGetVersion(int *version) { return *version = 13000, SUCCESS; }
API cuGetErrorName(int code, const char **text) {
    static thread_local char name[32];
    snprintf(name, sizeof name, "SIMULATED_ERROR_%d", code);
    return *text = name, SUCCESS;
}
API cuGetErrorString(int code, const char **text) { return cuGetErrorName(code, text); }
API cuDeviceGetCount(int *count) { return *count = 1, SUCCESS; }
API cuDeviceGet(int *device, int ordinal) { return *device = ordinal, SUCCESS; }
API cuDeviceGetName(char *name, int length, int) { return snprintf(name, length, "Simulated card"), SUCCESS; }
API cuDeviceGetAttribute(int *value, int attribute, int) {
    if (attribute == 19) return *value = !number("GPUMEM_SIMULATED_UNMAPPED", 0), SUCCESS;
    int major = 8, minor = 0;
    sscanf(text("GPUMEM_SIMULATED_CAPABILITY").c_str(), "%d.%d", &major, &minor);
    return *value = attribute == 75 ? major : attribute == 76 ? minor : attribute == 16 ? MULTIPROCESSORS : 1, SUCCESS;
}
API cuDeviceGetUuid_v2(char *uuid, int) { return memset(uuid, 7, 16), SUCCESS; }
API cuDevicePrimaryCtxGetState(int, unsigned *flags, int *active) {
    const Guard guard;
    return *flags = 0, *active = retained > 0, SUCCESS;
}
API cuDevicePrimaryCtxRetain(void **made, int) {
    const Guard guard;
    if (!retained++) limits[0] = 1024, limits[1] = 1 << 20, limits[2] = 8 << 20;
    return *made = &context, SUCCESS;
}
API cuDevicePrimaryCtxRelease_v2(int) {
    const Guard guard;
    return retained--, SUCCESS;
}
API cuCtxSetLimit(int limit, size_t bytes) {
    UNSAFE();
    if (limit < 0 || limit > 2 || bytes < (size_t)number("GPUMEM_SIMULATED_LEAST", 0)) return INVALID_VALUE;
    return limits[limit] = bytes, SUCCESS;
}
API cuCtxSetCurrent(void *chosen) { return current = chosen, SUCCESS; }
API cuCtxGetCurrent(void **found) { return *found = current, SUCCESS; }
API cuCtxSynchronize() {
    UNSAFE();
    return waits++, drain_all(), failed;
}

API cuMemGetInfo_v2(size_t *free, size_t *all) {
    USABLE();
    return *all = total(), *free = spare(), SUCCESS;
}
API cuMemAlloc_v2(Address *address, size_t bytes) {
    UNSAFE();
    if (bytes == 0) return INVALID_VALUE;
    if (bytes > spare()) return OUT_OF_MEMORY;
    char *memory = (char *)aligned_alloc(256, (bytes + 255) / 256 * 256);
    // Of what is taken to fill the card, which nothing reads, the host needs no pages.
    constexpr size_t MOST_THAT_IS_READ = 64 << 20;
    if (!computes_nothing()) memset(memory, 0xff, bytes < MOST_THAT_IS_READ ? bytes : MOST_THAT_IS_READ);
    *address = (Address)memory;
    allocations[*address] = bytes;
    used += bytes;
    allocated_ever++;
    return SUCCESS;
}
API cuMemFree_v2(Address address) {
    UNSAFE();
    auto found = allocations.find(address);
    if (found == allocations.end()) return INVALID_VALUE;
    drain_all();
    used -= found->second;
    allocations.erase(found);
    free((void *)address);
    return SUCCESS;
}
// What the card has as well (flag 2) lies at another address for it, as on cards without a common address space.
API cuMemHostAlloc(void **memory, size_t bytes, unsigned flags) {
    UNSAFE();
    if (flags > 7 || ((flags & 2) && number("GPUMEM_SIMULATED_UNMAPPED", 0))) return INVALID_VALUE;
    allocated_ever++;
    *memory = nullptr;
    if (flags & 2) {
        const int file = memfd_create("mapped", 0);
        if (file < 0 || ftruncate(file, (off_t)bytes) != 0) return OUT_OF_MEMORY;
        *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        mapped[(const char *)*memory] = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        close(file);
    } else {
        *memory = malloc(bytes);
    }
    memset(*memory, 0xff, bytes);
    return pinned[(const char *)*memory] = bytes, SUCCESS;
}
API cuMemHostGetDevicePointer_v2(Address *address, void *memory, unsigned flags) {
    UNSAFE();
    const auto found = mapped.find((const char *)memory);
    if (flags != 0 || found == mapped.end()) return INVALID_VALUE;
    return *address = (Address)found->second, SUCCESS;
}
API cuMemFreeHost(void *memory) {
    UNSAFE();
    const auto found = pinned.find((const char *)memory);
    if (found == pinned.end()) return INVALID_VALUE;
    drain_all();
    const auto other = mapped.find((const char *)memory);
    if (other == mapped.end()) {
        free(memory);
    } else {
        munmap(other->second, found->second), munmap(memory, found->second);
        mapped.erase(other);
    }
    return pinned.erase(found), SUCCESS;
}

static bool inside(Address address, size_t bytes) {
    auto after = allocations.upper_bound(address);
    if (after == allocations.begin()) return false;
    --after;
    return address + bytes <= after->first + after->second;
}
static bool is_pinned(const void *memory, size_t bytes) {
    auto after = pinned.upper_bound((const char *)memory);
    if (after == pinned.begin()) return false;
    --after;
    return (const char *)memory + bytes <= after->first + after->second;
}
API cuMemcpyHtoD_v2(Address to, const void *from, size_t bytes) {
    UNSAFE();
    if (!inside(to, bytes)) return INVALID_VALUE;
    waits++;
    drain(default_stream, default_stream.enqueued);
    if (is_pinned(from, bytes)) return memcpy((void *)to, from, bytes), failed;
    const std::vector<char> staged((const char *)from, (const char *)from + bytes);
    return enqueue(default_stream, true, [=] { memcpy((void *)to, staged.data(), bytes); });
}
API cuMemcpyDtoH_v2(void *to, Address from, size_t bytes) {
    UNSAFE();
    if (!inside(from, bytes)) return INVALID_VALUE;
    waits++;
    drain(default_stream, default_stream.enqueued);
    return memcpy(to, (void *)from, bytes), failed;
}
// Pageable memory may be read or written as late as pinned memory is, and the driver may have to wait for its stream.
static int copy(Stream *stream, const void *host, size_t bytes, Work work) {
    if (!is_pinned(host, bytes))
        if (const int code = outside_capture()) return code;
    return enqueue(*stream, true, work);
}
API cuMemcpyHtoDAsync_v2(Address to, const void *from, size_t bytes, Stream *stream) {
    USABLE();
    return inside(to, bytes) ? copy(stream, from, bytes, [=] { memcpy((void *)to, from, bytes); }) : INVALID_VALUE;
}
API cuMemcpyDtoHAsync_v2(void *to, Address from, size_t bytes, Stream *stream) {
    USABLE();
    return inside(from, bytes) ? copy(stream, to, bytes, [=] { memcpy(to, (void *)from, bytes); }) : INVALID_VALUE;
}
API cuMemcpyDtoDAsync_v2(Address to, Address from, size_t bytes, Stream *stream) {
    USABLE();
    if (!inside(to, bytes) || !inside(from, bytes)) return INVALID_VALUE;
    return enqueue(*stream, true, [=] { memcpy((void *)to, (void *)from, bytes); });
}
API cuMemsetD8Async(Address to, unsigned char byte, size_t bytes, Stream *stream) {
    USABLE();
    return inside(to, bytes) ? enqueue(*stream, true, [=] { memset((void *)to, byte, bytes); }) : INVALID_VALUE;
}
API cuMemsetD32Async(Address to, unsigned word, size_t count, Stream *stream) {
    USABLE();
    if (!inside(to, 4 * count)) return INVALID_VALUE;
    return enqueue(*stream, true, [=] { std::fill_n((unsigned *)to, count, word); });
}

// Streams that wait for the default stream (flags other than 1) are not played.
API cuStreamCreate(Stream **stream, unsigned flags) {
    USABLE();
    if (flags != 1) return INVALID_VALUE;
    return made++, streams.push_back(*stream = new Stream), streams.back()->owner = &this_thread, SUCCESS;
}
API cuStreamDestroy_v2(Stream *stream) {
    USABLE();
    // What is enqueued still runs; the handle stays, since events remember it.
    return drain(*stream, stream->enqueued), SUCCESS;
}
API cuStreamSynchronize(Stream *stream) {
    UNSAFE();
    Stream &all = stream ? *stream : default_stream;
    if (all.capturing) return all.invalid = true, CAPTURE_UNSUPPORTED;
    return waits++, drain(all, all.enqueued), failed;
}
API cuStreamWaitEvent(Stream *stream, Event *event, unsigned) {
    USABLE();
    if (stream->capturing) {
        if (stream->invalid) return CAPTURE_INVALIDATED;
        const bool crosses = event->stream && event->captured != stream->capturing->number;
        if (crosses) return stream->invalid = true, CAPTURE_ISOLATION;
        stream->ends.insert(stream->ends.end(), event->ends.begin(), event->ends.end());
        return SUCCESS;
    }
    if (event->captured) {
        // A stream that waits for what is being captured is captured as well.
        Stream *origin = event->stream->origin ? event->stream->origin : event->stream;
        if (!origin->capturing || origin->capturing->number != event->captured) return CAPTURED_EVENT;
        stream->capturing = origin->capturing, stream->invalid = false, stream->origin = origin, stream->ends = event->ends;
        return stream->mode = origin->mode, stream->thread = origin->thread, SUCCESS;
    }
    if (!event->stream) return SUCCESS;
    Stream *other = event->stream;
    const unsigned long long position = event->position;
    return enqueue(*stream, false, [=] { drain(*other, position); });
}
// Whether the capture's own stream has come behind all nodes: those of other streams are joined to it.
static bool are_joined(const std::vector<Node> &nodes, std::vector<size_t> behind) {
    std::vector<bool> seen(nodes.size());
    while (!behind.empty()) {
        const size_t at = behind.back();
        behind.pop_back();
        if (seen[at]) continue;
        seen[at] = true;
        behind.insert(behind.end(), nodes[at].behind.begin(), nodes[at].behind.end());
    }
    return std::find(seen.begin(), seen.end(), false) == seen.end();
}
// The nodes in one of the orders in which a card may run them.
static std::vector<Node> in_order(const std::vector<Node> &nodes) {
    std::vector<Node> all;
    std::vector<bool> done(nodes.size());
    const auto add = [&](size_t at) { all.push_back(nodes[at]), done[at] = true; };
    const std::function<void(size_t)> add_behind = [&](size_t at) {
        if (done[at]) return;
        for (const size_t before : nodes[at].behind) add_behind(before);
        add(at);
    };
    const auto may_run = [&](size_t at) {
        const std::vector<size_t> &behind = nodes[at].behind;
        return !done[at] && std::all_of(behind.begin(), behind.end(), [&](size_t before) { return done[before]; });
    };
    const int when = order();
    for (size_t at = 0; at < nodes.size(); at++) {
        // A node comes behind those before it only, so that one look finds all that can run.
        for (size_t early = 0; when == 2 && early < nodes.size(); early++)
            if (nodes[early].is_beside && may_run(early)) add(early);
        if (when == 1 || !nodes[at].is_beside) add_behind(at);
    }
    // What only the end of the graph comes behind.
    for (size_t at = 0; at < nodes.size(); at++) add_behind(at);
    return all;
}
API cuStreamBeginCapture_v2(Stream *stream, int mode) {
    USABLE();
    if (!stream || stream->capturing) return CAPTURE_UNSUPPORTED;
    stream->origin = nullptr, stream->ends.clear();
    static unsigned long long begun;
    stream->capturing = new Graph, stream->capturing->number = ++begun, stream->invalid = false, stream->mode = mode, stream->thread = &this_thread;
    return SUCCESS;
}
API cuStreamEndCapture(Stream *stream, Graph **graph) {
    USABLE();
    *graph = nullptr;
    if (!stream->capturing || stream->origin) return CAPTURE_UNMATCHED;
    if (stream->mode != 2 && stream->thread != &this_thread) return CAPTURE_WRONG_THREAD;
    Graph *captured = stream->capturing;
    stream->capturing = nullptr;
    for (Stream *other : streams)
        if (other->origin == stream) other->capturing = nullptr, other->origin = nullptr;
    if (stream->invalid) return delete captured, CAPTURE_INVALIDATED;
    if (!are_joined(captured->nodes, stream->ends)) return delete captured, CAPTURE_UNJOINED;
    captured->nodes = in_order(captured->nodes);
    return captures++, *graph = captured, SUCCESS;
}
API cuGraphInstantiateWithFlags(Executable **made, Graph *graph, unsigned long long) {
    USABLE();
    if (const int code = simulated_take(1 << 20)) return code;
    return instantiated++, *made = new Executable{std::make_shared<Graph>(*graph)}, SUCCESS;
}
API cuGraphUpload(Executable *it, Stream *) {
    USABLE();
    return uploaded += !it->uploaded, it->uploaded = true, SUCCESS;
}
API cuGraphLaunch(Executable *it, Stream *stream) {
    USABLE();
    // Unless it was brought to the card before, it is now.
    if (const int code = cuGraphUpload(it, stream)) return code;
    replays++;
    const std::shared_ptr<Graph> graph = it->graph;
    for (const Node &node : graph->nodes)
        if (const int code = enqueue(*stream, false, [graph, &node] { node.work(); })) return code;
    return SUCCESS;
}
API cuGraphExecDestroy(Executable *it) {
    USABLE();
    simulated_take(-(1 << 20));
    return delete it, SUCCESS;
}
API cuGraphDestroy(Graph *graph) {
    USABLE();
    return delete graph, SUCCESS;
}

// Without room for nodes they are counted.
API cuGraphGetNodes(Graph *graph, Node **nodes, size_t *count) {
    USABLE();
    if (!nodes) return *count = graph->nodes.size(), SUCCESS;
    for (size_t i = 0; i < *count; i++) nodes[i] = i < graph->nodes.size() ? &graph->nodes[i] : nullptr;
    return *count = std::min(*count, graph->nodes.size()), SUCCESS;
}
API cuGraphNodeGetType(Node *node, int *kind) { return *kind = node->kind, SUCCESS; }

API cuEventCreate(Event **event, unsigned flags) {
    USABLE();
    // CU_EVENT_DISABLE_TIMING is 2.
    return made++, *event = new Event, (*event)->is_timed = !(flags & 2), SUCCESS;
}
// What a stream is given takes 10 microseconds, whatever it is.
API cuEventElapsedTime(float *milliseconds, Event *start, Event *end) {
    USABLE();
    for (const Event *event : {start, end}) {
        if (!event->is_timed || !event->stream || event->captured) return INVALID_HANDLE;
        if (event->stream->done < event->position) return NOT_READY;
    }
    if (start->stream != end->stream) return INVALID_HANDLE;
    return *milliseconds = 0.01f * (float)(long long)(end->position - start->position), SUCCESS;
}
API cuEventDestroy_v2(Event *event) {
    USABLE();
    return delete event, SUCCESS;
}
API cuEventRecord(Event *event, Stream *stream) {
    USABLE();
    if (stream->capturing && stream->invalid) return CAPTURE_INVALIDATED;
    event->ends = stream->capturing ? stream->ends : std::vector<size_t>();
    return event->stream = stream, event->position = stream->enqueued, event->captured = stream->capturing ? stream->capturing->number : 0, SUCCESS;
}
API cuEventSynchronize(Event *event) {
    UNSAFE();
    if (event->captured) return CAPTURED_EVENT;
    if (!event->stream || event->stream->done >= event->position) return SUCCESS;
    return waits++, drain(*event->stream, event->position), failed;
}
API cuEventQuery(Event *event) {
    UNSAFE();
    if (event->captured) return CAPTURED_EVENT;
    if (!event->stream || event->stream->done >= event->position) return SUCCESS;
    // A little work is done between two questions.
    step(*event->stream);
    return failed ? failed : NOT_READY;
}

// The "machine code" is the file's name and the constants, a line each.
API cuModuleLoadData(Module **module, const char *image) {
    UNSAFE();
    const char *end = strchr(image, '\n');
    if (!end) return INVALID_VALUE;
    if (const int code = simulated_take(2 << 20)) return code;
    return loaded++, modules++, *module = new Module{std::string(image, end), std::string(end + 1)}, SUCCESS;
}
API cuModuleUnload(Module *module) {
    UNSAFE();
    simulated_take(-(2 << 20));
    return drain_all(), modules--, delete module, SUCCESS;
}
API cuModuleGetFunction(Kernel **function, Module *module, const char *entry) {
    UNSAFE();
    const auto found = kernels.find(module->file + " " + entry + module->constants);
    static Kernel nothing = {[](const unsigned *, const unsigned *, int, void **) {}, 0, 0, "nothing", false};
    if (computes_nothing()) return loaded++, *function = &nothing, SUCCESS;
    if (found == kernels.end()) {
        fprintf(stderr, "simulated card: no kernel `%s %s%s`\n", module->file.c_str(), entry, module->constants.c_str());
        return NOT_FOUND;
    }
    return loaded++, *function = &found->second, SUCCESS;
}
// CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES is 8.
API cuFuncSetAttribute(Kernel *kernel, int attribute, int value) {
    UNSAFE();
    if (attribute != 8 || value < 0 || value > MOST_SHARED) return INVALID_VALUE;
    return kernel->shared = value, SUCCESS;
}
static int launch(Kernel *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, Stream *stream,
                  void **parameters) {
    USABLE();
    if (shared > (unsigned)kernel->shared) return INVALID_VALUE;
    if (gx == 0 || gy == 0 || gz == 0 || gy > 65535 || gz > 65535 || bx * by * bz > 1024) return INVALID_VALUE;
    std::vector<void *> arguments;
    const int pointers = kernel->arguments - (kernel->plain > 0);
    for (int i = 0; i < pointers; i++) arguments.push_back(*(void **)parameters[i]);
    // The driver copies parameters before it returns.
    std::vector<char> plain(kernel->plain);
    if (kernel->plain > 0) memcpy(plain.data(), parameters[pointers], kernel->plain);
    if (kernel->entry == text("GPUMEM_SIMULATED_SLOW_KERNEL"))
        if (const int code = enqueue(*stream, false, [] {})) return code;
    const std::string wrong = text("GPUMEM_SIMULATED_WRONG"), own = kernel->entry + ":";
    void *const spoiled = wrong.compare(0, own.size(), own) == 0 ? arguments.at(atoi(wrong.c_str() + own.size())) : nullptr;
    return enqueue(*stream, false, [=]() mutable {
        if (kernel->entry == text("GPUMEM_SIMULATED_FAILS")) return (void)simulated_fail();
        const unsigned grid[] = {gx, gy, gz}, block[] = {bx, by, bz};
        std::vector<void *> own = arguments;
        if (!plain.empty()) own.push_back(plain.data());
        kernel->launch(grid, block, 0, own.data());
        if (spoiled) memset(spoiled, 0xff, 4);
    });
}
API cuLaunchKernel(Kernel *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, Stream *stream, void **parameters, void **) {
    // On a card its blocks might wait for others that do not run.
    if (kernel->is_cooperative) return INVALID_VALUE;
    return launch(kernel, gx, gy, gz, bx, by, bz, shared, stream, parameters);
}
API cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, Kernel *, int, size_t) {
    UNSAFE();
    return *blocks = number("GPUMEM_SIMULATED_RESIDENT", 2), SUCCESS;
}
API cuLaunchCooperativeKernel(Kernel *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                              unsigned shared, Stream *stream, void **parameters) {
    if (gx * gy * gz > 2 * MULTIPROCESSORS) return COOPERATIVE_LAUNCH_TOO_LARGE;
    return launch(kernel, gx, gy, gz, bx, by, bz, shared, stream, parameters);
}
#endif

#ifdef COMPILER
struct Program {
    std::string image;
};
API nvrtcVersion(int *major, int *minor) { return *major = 13, *minor = 0, SUCCESS; }
API nvrtcGetNumSupportedArchs(int *count) { return *count = 3, SUCCESS; }
API nvrtcGetSupportedArchs(int *list) { return list[0] = 80, list[1] = 90, list[2] = 100, SUCCESS; }
API nvrtcCreateProgram(Program **program, const char *, const char *name, int, const char **, const char **) {
    return *program = new Program{std::string(name) + "\n"}, SUCCESS;
}
API nvrtcDestroyProgram(Program **program) { return delete *program, SUCCESS; }
// What is on warpgroup instructions has to be compiled for the one architecture that has them.
API nvrtcCompileProgram(Program *program, int count, const char **options) {
    const auto has = [=](const char *wanted) { return std::any_of(options, options + count, [=](const char *it) { return !strcmp(it, wanted); }); };
    if (has("-DWGMMA=1") && !has("-arch=sm_90a")) return INVALID_VALUE;
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
