/* Modules, functions and launches.
 *
 * A module's image is a shared object for this processor that exports `emulated_kernels`, as the
 * emulation of kernels in the folder beside this one makes them. It is written to a file that has
 * no name and loaded from there, so two modules from one image have their own variables.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "control.h"
#include "fake.h"

typedef struct {
    const char *name;
    size_t argument_size;
    void (*run)(const void *arguments, const unsigned grid[3], const unsigned block[3],
                size_t shared_bytes);
} emulated_kernel;

struct fake_function {
    CUmodule module;
    const emulated_kernel *kernel;
    int dynamic_shared; /* how much a launch may ask for */
    int carveout, cache_config;
    struct fake_function *next;
};

struct fake_module {
    CUcontext context;
    void *library;
    int file; /* open as long as the library, for debuggers and sanitizers that name its lines */
    const void *base; /* its address */
    const emulated_kernel *kernels;
    size_t count;
    CUfunction functions;
    struct global {
        void *address;
        struct global *next;
    } *globals;
    struct fake_module *next;
};

enum { SHARED_BY_DEFAULT = 48 << 10, SHARED_AT_MOST = 227 << 10, MULTIPROCESSOR_THREADS = 2048 };
int fake_block_limit = 1024;

/* -- loading ----------------------------------------------------------------------------------- */

/* Images come without their size; an ELF file ends with its section headers or its last segment. */
static size_t elf_size(const char *image) {
    const Elf64_Ehdr *header = (const Elf64_Ehdr *)image;
    size_t size = header->e_shoff + (size_t)header->e_shentsize * header->e_shnum;
    const Elf64_Phdr *segments = (const Elf64_Phdr *)(image + header->e_phoff);
    for (int i = 0; i < header->e_phnum; i++) {
        size_t end = segments[i].p_offset + segments[i].p_filesz;
        if (end > size) size = end;
    }
    return size;
}

static CUresult check_image(const void *image) {
    static const unsigned char fatbin[4] = {0x50, 0xED, 0x55, 0xBA};
    REQUIRE(image, CUDA_ERROR_INVALID_VALUE);
    if (!memcmp(image, fatbin, 4)) return CUDA_ERROR_NO_BINARY_FOR_GPU;
    REQUIRE(!memcmp(image, ELFMAG, SELFMAG), CUDA_ERROR_INVALID_IMAGE);
    const Elf64_Ehdr *header = image;
    /* A real cubin is an ELF file for another machine. */
    REQUIRE(header->e_machine == EM_X86_64 || header->e_machine == EM_AARCH64,
            CUDA_ERROR_NO_BINARY_FOR_GPU);
    REQUIRE(header->e_type == ET_DYN, CUDA_ERROR_INVALID_IMAGE);
    return CUDA_SUCCESS;
}

/* The path of an open file, spelt in a new way each time: the loader takes two files with one name
 * for the same library, and numbers of files come again. */
static void name_file(char path[128], int file) {
    static unsigned loaded;
    char *end = path + sprintf(path, "/proc/self/fd/");
    unsigned number = loaded++;
    for (int bit = 0; bit < 24; bit++) end += sprintf(end, number >> bit & 1 ? "./" : "/");
    sprintf(end, "%d", file);
}

static CUresult load(CUmodule *out, const void *image, CUcontext context) {
    REQUIRE(out, CUDA_ERROR_INVALID_VALUE);
    CUresult code = check_image(image);
    if (code) return code;
    size_t size = elf_size(image);
    int file = memfd_create("fake_module", MFD_CLOEXEC);
    REQUIRE(file >= 0, CUDA_ERROR_OUT_OF_MEMORY);
    for (size_t written = 0; written < size;) {
        ssize_t step = write(file, (const char *)image + written, size - written);
        if (step <= 0) {
            close(file);
            return CUDA_ERROR_INVALID_IMAGE;
        }
        written += (size_t)step;
    }
    char path[128];
    name_file(path, file);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) fprintf(stderr, "fake CUDA driver: %s\n", dlerror());
    const emulated_kernel *(*list)(size_t *) = NULL;
    if (library) list = dlsym(library, "emulated_kernels");
    if (!list) {
        if (library) dlclose(library);
        close(file);
        return CUDA_ERROR_INVALID_IMAGE;
    }
    CUmodule module = fake_new(sizeof *module);
    module->context = context;
    module->library = library;
    module->file = file;
    Dl_info where;
    if (dladdr(*(void **)&list, &where)) module->base = where.dli_fbase;
    module->kernels = list(&module->count);
    module->next = context->modules;
    context->modules = module;
    fake_handle_add(module, KIND_MODULE);
    fake_count.live_modules++;
    *out = module;
    return CUDA_SUCCESS;
}

static void unload(CUmodule module) {
    for (CUfunction function = module->functions; function; function = function->next)
        fake_handle_remove(function);
    for (struct global *global = module->globals; global; global = global->next)
        fake_block_forget(global->address);
    module->globals = NULL;
    fake_handle_remove(module);
    fake_count.live_modules--;
    dlclose(module->library);
    close(module->file);
}

API CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    ENTER_CONTEXT();
    return load(module, image, context);
}

API CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count, int *options,
                                void **values) {
    ENTER_CONTEXT();
    REQUIRE(!count || (options && values), CUDA_ERROR_INVALID_VALUE);
    /* There is nothing to say: the logs are empty, and their sizes say so (options 3 to 6). */
    for (unsigned i = 0; i < count; ++i) {
        if ((options[i] == 3 || options[i] == 5) && values[i])
            *(char *)values[i] = 0;
        if (options[i] == 4 || options[i] == 6)
            values[i] = NULL;
    }
    return load(module, image, context);
}

API CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image) {
    ENTER_CONTEXT();
    return load(module, image, context);
}

API CUresult cuModuleLoad(CUmodule *module, const char *path) {
    ENTER_CONTEXT();
    REQUIRE(path, CUDA_ERROR_INVALID_VALUE);
    FILE *file = fopen(path, "rb");
    REQUIRE(file, CUDA_ERROR_FILE_NOT_FOUND);
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    char *image = size > 0 ? calloc(1, (size_t)size + sizeof(Elf64_Ehdr)) : NULL;
    size_t got = image ? fread(image, 1, (size_t)size, file) : 0;
    fclose(file);
    CUresult code = got ? load(module, image, context) : CUDA_ERROR_INVALID_IMAGE;
    free(image);
    return code;
}

API CUresult cuModuleUnload(CUmodule module) {
    ENTER_CONTEXT();
    REQUIRE(fake_handle_is(module, KIND_MODULE), CUDA_ERROR_INVALID_HANDLE);
    fake_force_context(module->context); /* launches that wait need the code */
    unload(module);
    return CUDA_SUCCESS;
}

void fake_modules_end(CUcontext context) {
    for (CUmodule module = context->modules; module; module = module->next)
        if (fake_handle_is(module, KIND_MODULE)) unload(module);
}

API CUresult cuModuleGetLoadingMode(int *mode) {
    ENTER_BEFORE_INIT();
    REQUIRE(mode, CUDA_ERROR_INVALID_VALUE);
    *mode = 1; /* everything immediately */
    return CUDA_SUCCESS;
}

API CUresult cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name) {
    ENTER_CONTEXT();
    REQUIRE(out && name, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(fake_handle_is(module, KIND_MODULE), CUDA_ERROR_INVALID_HANDLE);
    for (CUfunction known = module->functions; known; known = known->next)
        if (!strcmp(known->kernel->name, name)) {
            *out = known;
            return CUDA_SUCCESS;
        }
    for (size_t i = 0; i < module->count; i++) {
        if (strcmp(module->kernels[i].name, name)) continue;
        CUfunction function = fake_new(sizeof *function);
        function->module = module;
        function->kernel = &module->kernels[i];
        function->dynamic_shared = SHARED_BY_DEFAULT;
        function->next = module->functions;
        module->functions = function;
        fake_handle_add(function, KIND_FUNCTION);
        *out = function;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_NOT_FOUND;
}

API CUresult cuModuleGetFunctionCount(unsigned *count, CUmodule module) {
    ENTER();
    REQUIRE(count, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(fake_handle_is(module, KIND_MODULE), CUDA_ERROR_INVALID_HANDLE);
    *count = (unsigned)module->count;
    return CUDA_SUCCESS;
}

API CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *size, CUmodule module,
                                  const char *name) {
    ENTER_CONTEXT();
    REQUIRE(name && (address || size), CUDA_ERROR_INVALID_VALUE);
    REQUIRE(fake_handle_is(module, KIND_MODULE), CUDA_ERROR_INVALID_HANDLE);
    void *found = dlsym(module->library, name);
    REQUIRE(found, CUDA_ERROR_NOT_FOUND);
    Dl_info where;
    const Elf64_Sym *symbol = NULL;
    REQUIRE(dladdr1(found, &where, (void **)&symbol, RTLD_DL_SYMENT), CUDA_ERROR_NOT_FOUND);
    /* Not what the image found in another library, and a variable. */
    REQUIRE(where.dli_fbase == module->base && symbol && symbol->st_size &&
                ELF64_ST_TYPE(symbol->st_info) == STT_OBJECT,
            CUDA_ERROR_NOT_FOUND);
    struct global *global = fake_new(sizeof *global);
    *global = (struct global){found, module->globals};
    module->globals = global;
    fake_block_global(module->context, found, symbol->st_size);
    if (address) *address = (CUdeviceptr)(uintptr_t)found;
    if (size) *size = symbol->st_size;
    return CUDA_SUCCESS;
}

/* -- functions --------------------------------------------------------------------------------- */

#define ENTER_FUNCTION(function)                                                              \
    ENTER();                                                                                  \
    REQUIRE(fake_handle_is(function, KIND_FUNCTION), CUDA_ERROR_INVALID_HANDLE);

API CUresult cuFuncGetAttribute(int *value, int attribute, CUfunction function) {
    ENTER_FUNCTION(function);
    REQUIRE(value && attribute >= 0 && attribute < 16, CUDA_ERROR_INVALID_VALUE);
    switch (attribute) {
        case 0: *value = fake_block_limit; break;
        case 4: *value = 32; break; /* registers */
        case 5: *value = 75; break; /* PTX and binary version */
        case 6: *value = 90; break;
        case 8: *value = function->dynamic_shared; break;
        case 9: *value = function->carveout; break;
        default: *value = 0;
    }
    return CUDA_SUCCESS;
}

API CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value) {
    ENTER_FUNCTION(function);
    if (attribute == 8) {
        REQUIRE(value >= 0 && value <= SHARED_AT_MOST, CUDA_ERROR_INVALID_VALUE);
        function->dynamic_shared = value;
        return CUDA_SUCCESS;
    }
    REQUIRE(attribute == 9 && value >= -1 && value <= 100, CUDA_ERROR_INVALID_VALUE);
    function->carveout = value;
    return CUDA_SUCCESS;
}

API CUresult cuFuncSetCacheConfig(CUfunction function, int config) {
    ENTER_FUNCTION(function);
    function->cache_config = config;
    return CUDA_SUCCESS;
}

API CUresult cuFuncGetModule(CUmodule *module, CUfunction function) {
    ENTER_FUNCTION(function);
    REQUIRE(module, CUDA_ERROR_INVALID_VALUE);
    *module = function->module;
    return CUDA_SUCCESS;
}

API CUresult cuFuncGetName(const char **name, CUfunction function) {
    ENTER_FUNCTION(function);
    REQUIRE(name, CUDA_ERROR_INVALID_VALUE);
    *name = function->kernel->name;
    return CUDA_SUCCESS;
}

/* Old calls that set a launch's shape beforehand; pycuda makes one before launches that name it. */
API CUresult cuFuncSetBlockShape(CUfunction function, int x, int y, int z) {
    ENTER_FUNCTION(function);
    REQUIRE(x > 0 && y > 0 && z > 0 && (int64_t)x * y * z <= 1024, CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

static int blocks_that_fit(CUfunction function, int threads, size_t shared) {
    if (threads < 1 || threads > fake_block_limit) return 0;
    if (shared > (size_t)function->dynamic_shared) return 0;
    int warps = (threads + 31) / 32, fit = MULTIPROCESSOR_THREADS / 32 / warps;
    if (fit > 32) fit = 32;
    if (shared && (int)((228u << 10) / (shared + 1024)) < fit)
        fit = (int)((228u << 10) / (shared + 1024));
    return fit;
}

API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *count, CUfunction function,
                                                         int threads, size_t shared) {
    ENTER_FUNCTION(function);
    REQUIRE(count && threads > 0, CUDA_ERROR_INVALID_VALUE);
    *count = blocks_that_fit(function, threads, shared);
    return CUDA_SUCCESS;
}

API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *count, CUfunction function,
                                                                  int threads, size_t shared,
                                                                  unsigned flags) {
    REQUIRE(flags < 2, CUDA_ERROR_INVALID_VALUE);
    return cuOccupancyMaxActiveBlocksPerMultiprocessor(count, function, threads, shared);
}

/* -- launches ---------------------------------------------------------------------------------- */

struct launch {
    CUfunction function;
    unsigned grid[3], block[3];
    size_t shared;
    max_align_t arguments[];
};

static void run(void *data) {
    struct launch *of = data;
    of->function->kernel->run(of->arguments, of->grid, of->block, of->shared);
}

static CUresult find_arguments(CUfunction function, void **parameters, void **extra,
                               const void **arguments) {
    size_t wanted = function->kernel->argument_size;
    REQUIRE(!parameters || !extra, CUDA_ERROR_INVALID_VALUE);
    *arguments = NULL;
    if (parameters) {
        /* These kernels have one parameter, a struct. */
        *arguments = wanted ? parameters[0] : NULL;
        REQUIRE(!wanted || *arguments, CUDA_ERROR_INVALID_VALUE);
        return CUDA_SUCCESS;
    }
    size_t size = 0;
    for (; extra && *extra; extra += 2) {
        if (*extra == (void *)1) *arguments = extra[1];
        else if (*extra == (void *)2) size = *(size_t *)extra[1];
        else return CUDA_ERROR_INVALID_VALUE;
    }
    REQUIRE(size == wanted && (!wanted || *arguments), CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

static CUresult check_shape(CUfunction function, const struct launch *of) {
    for (int i = 0; i < 3; i++)
        REQUIRE(of->grid[i] && of->block[i], CUDA_ERROR_INVALID_VALUE);
    REQUIRE(of->grid[0] <= 0x7fffffff && of->grid[1] <= 65535 && of->grid[2] <= 65535,
            CUDA_ERROR_INVALID_VALUE);
    REQUIRE(of->block[0] <= 1024 && of->block[1] <= 1024 && of->block[2] <= 64,
            CUDA_ERROR_INVALID_VALUE);
    uint64_t threads = (uint64_t)of->block[0] * of->block[1] * of->block[2];
    REQUIRE(threads <= 1024, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(threads <= (unsigned)fake_block_limit, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    REQUIRE(of->shared <= (size_t)function->dynamic_shared, CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

static CUresult launch(CUcontext context, CUfunction function, const struct launch *of,
                       CUstream handle, void **parameters, void **extra) {
    REQUIRE(fake_handle_is(function, KIND_FUNCTION), CUDA_ERROR_INVALID_HANDLE);
    CUstream stream;
    CUresult code = fake_stream_of(handle, context, &stream);
    if (code) return code;
    REQUIRE(stream->context == context && function->module->context == context,
            CUDA_ERROR_INVALID_HANDLE);
    const void *arguments;
    code = find_arguments(function, parameters, extra, &arguments);
    if (!code) code = check_shape(function, of);
    if (code) return code;
    fake_log_launch(function->kernel->name, of->grid, of->block, of->shared, context->device,
                    stream->number);
    if (!fake_deferred) {
        function->kernel->run(arguments, of->grid, of->block, of->shared);
        stream->queued++;
        stream->done++;
        return CUDA_SUCCESS;
    }
    size_t size = sizeof *of + function->kernel->argument_size;
    struct launch *whole = calloc(1, size);
    REQUIRE(whole, CUDA_ERROR_OUT_OF_MEMORY);
    *whole = *of;
    whole->function = function;
    if (arguments) memcpy(whole->arguments, arguments, function->kernel->argument_size);
    code = fake_queue(stream, run, whole, size);
    free(whole);
    return code;
}

API CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                            unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                            CUstream stream, void **parameters, void **extra) {
    ENTER_CONTEXT();
    struct launch of = {NULL, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared};
    return launch(context, function, &of, stream, parameters, extra);
}

typedef struct {
    unsigned grid[3], block[3], shared;
    CUstream stream;
    void *attributes;
    unsigned attribute_count;
} CUlaunchConfig;

API CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **parameters,
                              void **extra) {
    ENTER_CONTEXT();
    REQUIRE(config, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(!config->attribute_count, CUDA_ERROR_NOT_SUPPORTED);
    struct launch of = {.shared = config->shared};
    memcpy(of.grid, config->grid, sizeof of.grid);
    memcpy(of.block, config->block, sizeof of.block);
    return launch(context, function, &of, config->stream, parameters, extra);
}
