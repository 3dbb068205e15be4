// What the libraries' stand-ins have in common: elements of tensors, by the numbers that a library gives their types, and how long
// algorithms take.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <vector>

template <int F32, int BF16> struct Elements {
    static float load(int type, const void *from, int64_t index) {
        if (type == F32) return ((const float *)from)[index];
        const uint16_t half = ((const uint16_t *)from)[index];
        if (type == BF16) {
            const uint32_t bits = (uint32_t)half << 16;
            float value;
            return memcpy(&value, &bits, 4), value;
        }
        _Float16 value;
        return memcpy(&value, &half, 2), (float)value;
    }

    static void store(int type, void *to, int64_t index, float value) {
        if (type == F32) {
            ((float *)to)[index] = value;
        } else if (type == BF16) {
            uint32_t bits;
            memcpy(&bits, &value, 4);
            ((uint16_t *)to)[index] = value == value ? (bits + 0x7fff + (bits >> 16 & 1)) >> 16 : 0x7fc0;
        } else {
            ((_Float16 *)to)[index] = (_Float16)value;
        }
    }
};

// Things that an algorithm gives the stream before its own work, which the card takes as long for as for that: GPUMEM_SIMULATED_SLOW has
// pairs of algorithms and such numbers, "0:3,2:1".
static inline int delay(int algorithm) {
    const char *list = getenv("GPUMEM_SIMULATED_SLOW");
    while (list && *list) {
        char *rest;
        const long number = strtol(list, &rest, 10), things = *rest == ':' ? strtol(rest + 1, &rest, 10) : 0;
        if (number == algorithm) return (int)things;
        list = *rest ? rest + 1 : rest;
    }
    return 0;
}
static inline void nothing(void *) {}

// Kernels that a library has loaded, by what tells them apart. The threads of several ranks may launch at once.
template <class Part> class Kernels {
    std::mutex mutex;
    std::set<std::vector<Part>> all;

  public:
    bool has(const std::vector<Part> &kernel) {
        const std::lock_guard<std::mutex> guard(mutex);
        return all.count(kernel) > 0;
    }
    void add(const std::vector<Part> &kernel) {
        const std::lock_guard<std::mutex> guard(mutex);
        all.insert(kernel);
    }
};

// A workspace holds nothing before a call and after it. Of a large one, a part of each page shows that as well.
static inline void spoil(void *workspace, size_t bytes) {
    constexpr size_t SMALL = 1 << 20, PAGE = 4096, PART = 64;
    char *memory = (char *)workspace;
    if (bytes <= SMALL) {
        if (bytes) memset(memory, 0xff, bytes);
        return;
    }
    for (size_t at = 0; at + PART <= bytes; at += PAGE) memset(memory + at, 0xff, PART);
    memset(memory + bytes - PART, 0xff, PART);
}
