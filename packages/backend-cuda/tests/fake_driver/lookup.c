/* How libraries find entry points at run time. The table is made from entry_points.txt, where the
 * versions of one call are cuMemAlloc_v2, _v3 and so on. */
#include <string.h>

#include "fake.h"

typedef void (*entry_point)(void);

extern const struct {
    const char *name;
    entry_point address;
} fake_entry_points[];
extern const size_t fake_entry_point_count;

static entry_point find(const char *name) {
    size_t low = 0, high = fake_entry_point_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = strcmp(fake_entry_points[middle].name, name);
        if (!order) return fake_entry_points[middle].address;
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    return NULL;
}

enum { FOUND = 0, SYMBOL_NOT_FOUND = 1 };

API CUresult cuGetProcAddress_v2(const char *symbol, void **address, int version, uint64_t flags,
                                 int *status) {
    (void)flags; /* every thread's own default stream, or one for all */
    REQUIRE(symbol && address && *symbol, CUDA_ERROR_INVALID_VALUE);
    char name[128];
    size_t length = strlen(symbol);
    REQUIRE(length < sizeof name - 4, CUDA_ERROR_INVALID_VALUE);
    memcpy(name, symbol, length + 1);
    entry_point found = NULL;
    int is_old = version < 12000 && !strcmp(symbol, "cuGetProcAddress");
    for (char suffix = '9'; suffix >= '2' && !found && !is_old; suffix--) {
        memcpy(name + length, (char[4]){'_', 'v', suffix, 0}, 4);
        found = find(name);
    }
    if (!found) found = find(symbol);
    if (status) *status = found ? FOUND : SYMBOL_NOT_FOUND;
    memcpy(address, &found, sizeof found);
    return found ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

API CUresult cuGetProcAddress(const char *symbol, void **address, int version, uint64_t flags) {
    return cuGetProcAddress_v2(symbol, address, version, flags, NULL);
}
