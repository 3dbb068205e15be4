// NCCL, played by the host: ranks are threads of one process, whose exchanges move the numbers.
//
// An exchange is work of a stream. It comes when somebody waits for the stream, even if other work comes at once: a call of NCCL never waits. The
// thread that runs it waits for the other ranks, and lets them have the card meanwhile. The last of them moves the numbers of all.
//
// Rules of the library: all ranks make the same calls in the same order with equal kinds, counts and formats, or all of them fail. A
// communicator that does not block is in progress until all ranks have come. After an abort, exchanges leave without numbers.
//
// | variable | what goes wrong |
// | --- | --- |
// | GPUMEM_SIMULATED_NCCL_FAILS | `function:rank:call`: that call of a function, counted from 1, fails on that rank |
// | GPUMEM_SIMULATED_NCCL_BREAKS | `rank:exchange`: the communicator of that rank fails before that exchange, counted from 1 |
// | GPUMEM_SIMULATED_NCCL_MIB | the memory that it tells, 64 |
// | GPUMEM_SIMULATED_NCCL_VERSION | its version, 23203 |
#include <atomic>
#include <dlfcn.h>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#define API extern "C" __attribute__((visibility("default"))) int
enum { SUCCESS = 0, UNHANDLED = 1, SYSTEM = 2, INVALID_ARGUMENT = 4, INVALID_USAGE = 5, REMOTE = 6, IN_PROGRESS = 7 };
enum Kind { REDUCE, SCATTER, GATHER };

struct Call {
    Kind kind;
    const char *sent;
    char *received;
    size_t count;
    int format, reduction;

    bool matches(const Call &other) const {
        return kind == other.kind && count == other.count && format == other.format && reduction == other.reduction;
    }
};
typedef std::vector<Call> Group;

struct World;
struct Comm {
    std::shared_ptr<World> world;
    int rank, state;
    std::atomic<bool> aborted;
    bool ends;
    // Exchanges that have run.
    uint64_t exchanged;
};
struct Round {
    std::map<int, const Group *> arrived;
    bool done = false;
    int left = 0;
};
struct World {
    std::mutex mutex;
    std::condition_variable changed;
    int count = 0, joined = 0, ended = 0;
    std::map<int, Comm *> ranks;
    std::map<uint64_t, Round> rounds;
};
struct Id {
    char bytes[128];
};
struct Config {
    size_t size;
    unsigned magic, version;
    int blocking, cga, least, most;
    const char *net;
    int shares, traffic;
};

static std::mutex of_all;
static std::map<std::string, std::shared_ptr<World>> worlds;
static unsigned long long groups, calls[3], made, destroyed, aborted, channels;
static thread_local int own_rank = -1, depth;
static thread_local std::vector<std::pair<Comm *, Call>> grouped;
static thread_local void *grouped_stream;
static thread_local std::string last;

template <class T> static T driver(const char *name) {
    static void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    return (T)dlsym(library, name);
}
static std::string text(const char *name) {
    const char *value = getenv(name);
    return value ? value : "";
}
static std::map<std::string, long> counted;
static bool fails(const char *function) {
    const std::lock_guard<std::mutex> guard(of_all);
    const std::string name = std::string(function) + ":" + std::to_string(own_rank);
    const long call = ++counted[name];
    if (text("GPUMEM_SIMULATED_NCCL_FAILS") != name + ":" + std::to_string(call)) return false;
    return last = "as the test says", true;
}
#define FAILS() if (fails(__func__)) return UNHANDLED

static size_t bytes_of(int format) { return format == 1 ? 1 : format == 6 || format == 9 ? 2 : 4; }

static double number(const char *at, int format) {
    if (format == 7) {
        float value;
        return memcpy(&value, at, 4), value;
    }
    if (format == 3) {
        uint32_t value;
        return memcpy(&value, at, 4), value;
    }
    uint16_t half;
    memcpy(&half, at, 2);
    if (format == 9) {
        const uint32_t bits = (uint32_t)half << 16;
        float value;
        return memcpy(&value, &bits, 4), value;
    }
    const int exponent = half >> 10 & 31, fraction = half & 1023;
    const double size = exponent == 31 ? (fraction ? NAN : INFINITY)
                        : exponent     ? std::ldexp(1.0 + fraction / 1024.0, exponent - 15)
                                       : std::ldexp(fraction / 1024.0, -14);
    return half >> 15 ? -size : size;
}
// Rounds to the nearest number of the format, and to an even one between two.
static void put(char *at, int format, double value) {
    if (format == 3) {
        const uint32_t word = (uint32_t)value;
        memcpy(at, &word, 4);
        return;
    }
    const float single = (float)value;
    if (format == 7) return (void)memcpy(at, &single, 4);
    uint16_t half;
    if (format == 9) {
        uint32_t bits;
        memcpy(&bits, &single, 4);
        half = std::isnan(single) ? 0x7fc0 : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    } else {
        _Float16 rounded = (_Float16)value;
        memcpy(&half, &rounded, 2);
    }
    memcpy(at, &half, 2);
}

// One number of all ranks, added up in their order in the format's own precision, as a ring would.
static void reduce(const std::vector<const char *> &all, char *to, int format, int reduction) {
    double result = number(all[0], format);
    for (size_t rank = 1; rank < all.size(); rank++) {
        const double other = number(all[rank], format);
        result = reduction == 2 ? (other > result ? other : result) : result + other;
        char rounded[4];
        if (reduction == 0) put(rounded, format, result), result = number(rounded, format);
    }
    put(to, format, reduction == 4 ? result / (double)all.size() : result);
}

static void bring(const std::vector<const Call *> &all) {
    const Call &one = *all[0];
    const size_t ranks = all.size(), width = bytes_of(one.format), shard = one.count * width;
    // What is received may lie where it is sent.
    std::vector<std::vector<char>> sent;
    for (const Call *call : all) sent.emplace_back(call->sent, call->sent + (call->kind == SCATTER ? shard * ranks : shard));
    if (one.kind == GATHER) {
        for (const Call *call : all)
            for (size_t rank = 0; rank < ranks; rank++) memcpy(call->received + rank * shard, sent[rank].data(), shard);
        return;
    }
    for (size_t rank = 0; rank < ranks; rank++) {
        const size_t first = one.kind == SCATTER ? rank * shard : 0;
        for (size_t at = 0; at < shard; at += width) {
            std::vector<const char *> numbers;
            for (const std::vector<char> &numbers_of_rank : sent) numbers.push_back(&numbers_of_rank[first + at]);
            reduce(numbers, all[rank]->received + at, one.format, one.reduction);
        }
    }
}

struct Work {
    Comm *comm;
    Group group;
};

// Runs an exchange, as late as the stream does.
static void run(void *data) {
    const Work &work = *(const Work *)data;
    Comm &comm = *work.comm;
    World &world = *comm.world;
    std::unique_lock<std::mutex> guard(world.mutex);
    const uint64_t at = comm.exchanged++;
    if (comm.aborted || comm.state) return;
    if (text("GPUMEM_SIMULATED_NCCL_BREAKS") == std::to_string(comm.rank) + ":" + std::to_string(at + 1)) {
        comm.state = SYSTEM;
        return;
    }
    Round &round = world.rounds[at];
    round.arrived[comm.rank] = &work.group;
    if ((int)round.arrived.size() == world.count) {
        const Group &first = *round.arrived[0];
        bool alike = true;
        for (const auto &[rank, group] : round.arrived) {
            alike = alike && group->size() == first.size();
            for (size_t i = 0; alike && i < first.size(); i++) alike = (*group)[i].matches(first[i]);
        }
        for (size_t i = 0; alike && i < first.size(); i++) {
            std::vector<const Call *> all;
            for (int rank = 0; rank < world.count; rank++) all.push_back(&(*round.arrived[rank])[i]);
            bring(all);
        }
        if (!alike) {
            fprintf(stderr, "simulated NCCL: exchange %llu differs between ranks\n", (unsigned long long)at);
            for (const auto &[rank, other] : world.ranks) other->state = INVALID_USAGE;
        }
        round.done = true;
        world.changed.notify_all();
    } else {
        // Others may need the card meanwhile.
        const int held = driver<int (*)()>("simulated_let_go")();
        world.changed.wait(guard, [&] { return round.done || comm.aborted; });
        guard.unlock();
        driver<int (*)(int)>("simulated_take_back")(held);
        guard.lock();
        // Its memory may be freed from now on.
        if (!round.done) return (void)round.arrived.erase(comm.rank);
    }
    if (++round.left == world.count) world.rounds.erase(at);
}

API ncclGetVersion(int *version) {
    const std::string value = text("GPUMEM_SIMULATED_NCCL_VERSION");
    return *version = value.empty() ? 23203 : atoi(value.c_str()), SUCCESS;
}
API ncclGetUniqueId(Id *id) {
    const std::lock_guard<std::mutex> guard(of_all);
    static int number;
    memset(id->bytes, 0, sizeof id->bytes);
    snprintf(id->bytes, sizeof id->bytes, "simulated %d", ++number);
    return SUCCESS;
}
API ncclCommInitRankConfig(Comm **comm, int count, Id id, int rank, Config *config) {
    own_rank = rank;
    FAILS();
    if (config->magic != 0xcafebeef || config->blocking != 0 || config->most < 1 || rank < 0 || rank >= count) return INVALID_ARGUMENT;
    const std::lock_guard<std::mutex> guard(of_all);
    std::shared_ptr<World> &world = worlds[std::string(id.bytes, sizeof id.bytes)];
    if (!world) world = std::make_shared<World>();
    const std::lock_guard<std::mutex> own(world->mutex);
    if (world->ranks.count(rank) || (world->count && world->count != count)) return INVALID_ARGUMENT;
    world->count = count, world->joined++;
    made++, channels = (unsigned long long)config->most;
    return world->ranks[rank] = *comm = new Comm{world, rank, SUCCESS, false, false, 0}, IN_PROGRESS;
}
API ncclCommGetAsyncError(Comm *comm, int *state) {
    // The watch is no rank, so that its calls never fail.
    FAILS();
    const std::lock_guard<std::mutex> guard(comm->world->mutex);
    const World &world = *comm->world;
    const bool is_there = world.joined == world.count && (!comm->ends || world.ended == world.count);
    return *state = comm->state ? comm->state : is_there ? SUCCESS : IN_PROGRESS, SUCCESS;
}
API ncclCommFinalize(Comm *comm) {
    FAILS();
    const std::lock_guard<std::mutex> guard(comm->world->mutex);
    return comm->ends = true, comm->world->ended++, IN_PROGRESS;
}
// Handles stay, since work may remember them.
API ncclCommDestroy(Comm *comm) {
    FAILS();
    const std::lock_guard<std::mutex> guard(of_all);
    return destroyed++, comm->aborted = true, SUCCESS;
}
API ncclCommAbort(Comm *comm) {
    {
        const std::lock_guard<std::mutex> guard(comm->world->mutex);
        comm->aborted = true;
    }
    comm->world->changed.notify_all();
    const std::lock_guard<std::mutex> guard(of_all);
    return aborted++, SUCCESS;
}
API ncclCommMemStats(Comm *, int kind, uint64_t *bytes) {
    FAILS();
    const std::string value = text("GPUMEM_SIMULATED_NCCL_MIB");
    return *bytes = kind == 3 ? (value.empty() ? 64ull : strtoull(value.c_str(), nullptr, 10)) << 20 : 0, SUCCESS;
}
API ncclGroupStart() {
    FAILS();
    return depth++, SUCCESS;
}
API ncclGroupEnd() {
    if (depth != 1) return INVALID_USAGE;
    depth = 0;
    std::vector<std::pair<Comm *, Call>> all;
    all.swap(grouped);
    FAILS();
    if (all.empty()) return SUCCESS;
    Work *work = new Work{all[0].first, {}};
    for (const auto &[comm, call] : all) work->group.push_back(call);
    {
        const std::lock_guard<std::mutex> guard(of_all);
        groups++;
    }
    const auto enqueue = driver<int (*)(void *, void (*)(void *), void *)>("simulated_enqueue_late");
    return enqueue(grouped_stream, run, work) == 0 ? IN_PROGRESS : UNHANDLED;
}
static int add(Comm *comm, void *stream, Call call) {
    if (depth != 1 || comm->aborted || (!grouped.empty() && stream != grouped_stream)) return INVALID_USAGE;
    grouped_stream = stream;
    grouped.emplace_back(comm, call);
    const std::lock_guard<std::mutex> guard(of_all);
    return calls[call.kind]++, SUCCESS;
}
API ncclAllReduce(const char *sent, char *received, size_t count, int format, int reduction, Comm *comm, void *stream) {
    FAILS();
    return add(comm, stream, {REDUCE, sent, received, count, format, reduction});
}
API ncclReduceScatter(const char *sent, char *received, size_t count, int format, int reduction, Comm *comm, void *stream) {
    FAILS();
    return add(comm, stream, {SCATTER, sent, received, count, format, reduction});
}
API ncclAllGather(const char *sent, char *received, size_t count, int format, Comm *comm, void *stream) {
    FAILS();
    return add(comm, stream, {GATHER, sent, received, count, format, 0});
}
extern "C" const char *ncclGetErrorString(int code) {
    return code == SYSTEM ? "unhandled system error" : code == INVALID_USAGE ? "invalid usage" : "simulated error";
}
extern "C" const char *ncclGetLastError(Comm *) { return last.c_str(); }

// For the tests: groups enqueued, calls of each kind, communicators made, destroyed and aborted, and channels of the last one.
API simulated_exchanges(unsigned long long *counts) {
    const std::lock_guard<std::mutex> guard(of_all);
    counts[0] = groups, counts[1] = calls[0], counts[2] = calls[1], counts[3] = calls[2];
    return counts[4] = made, counts[5] = destroyed, counts[6] = aborted, counts[7] = channels, SUCCESS;
}
// Counts calls of functions from 1 again.
API simulated_forget() {
    const std::lock_guard<std::mutex> guard(of_all);
    return counted.clear(), SUCCESS;
}
