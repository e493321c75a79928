/* libcuda.so.1 for tests: the driver functions that the GPU timer reader calls. There is no GPU: a kernel launch reads
 * CLOCK_REALTIME instead of the timer. Environment variables:
 *   CUDA_COUNT     number of GPUs
 *   CUDA_AHEAD_NS  offset of their timers from CLOCK_REALTIME; n times as much for GPU n
 *   CUDA_STEP_NS   resolution of the timers
 *   CUDA_FAIL      CALL=CODE[@GPU], where GPU is the device's number: that call returns that CUresult
 *   CUDA_DIE       a call that kills the process, as a driver bug does
 *   CUDA_LOG       a file to which creation and destruction of each context are written
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { OK = 0, INVALID = 1, NOT_INITIALIZED = 3, INVALID_CONTEXT = 201, INVALID_PTX = 218, NOT_FOUND = 500 };
enum { CONTEXTS = 16 };

typedef struct { int device, alive; } Context;

static int started, current = -1;
static Context contexts[CONTEXTS];
static int context_count;

static long figure(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text && *text ? atol(text) : otherwise;
}

static void tell(const char *what, int device) {
    const char *path = getenv("CUDA_LOG");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (!file) return;
    fprintf(file, "%s %d\n", what, device);
    fclose(file);
}

/* The injected result of a call on a device (-1: on none). */
static int refused(const char *call, int device) {
    const char *fail = getenv("CUDA_FAIL"), *die = getenv("CUDA_DIE"), *at;
    size_t length = strlen(call);
    if (die && !strcmp(die, call)) kill(getpid(), SIGSEGV);
    if (!fail || strncmp(fail, call, length) || fail[length] != '=') return OK;
    at = strchr(fail, '@');
    if (at && atoi(at + 1) != device) return OK;
    return atoi(fail + length + 1);
}

#define MAY(call, device) do { \
    int code = refused(call, device); \
    if (code) return code; \
    if (!started) return NOT_INITIALIZED; \
} while (0)
#define IN_CONTEXT(call) do { \
    MAY(call, current < 0 ? -1 : contexts[current].device); \
    if (current < 0 || !contexts[current].alive) return INVALID_CONTEXT; \
} while (0)

static uint64_t timer(int device) {
    struct timespec now;
    long step = figure("CUDA_STEP_NS", 32);
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    ns += (uint64_t)((device + 1) * figure("CUDA_AHEAD_NS", 0));
    return ns / (uint64_t)step * (uint64_t)step;
}

int cuInit(unsigned flags) {
    int code = refused("cuInit", -1);
    if (code) return code;
    started = flags == 0;
    return flags ? INVALID : OK;
}

int cuGetErrorString(int code, const char **text) {
    *text = code == 2 ? "out of memory" : code == 46 ? "CUDA-capable device(s) is/are busy or unavailable"
          : code == 100 ? "no CUDA-capable device is detected" : NULL;
    return *text ? OK : INVALID;
}

int cuDeviceGetCount(int *count) {
    MAY("cuDeviceGetCount", -1);
    *count = (int)figure("CUDA_COUNT", 1);
    return OK;
}

int cuDeviceGet(int *device, int ordinal) {
    MAY("cuDeviceGet", ordinal);
    *device = ordinal;
    return OK;
}

int cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
    MAY("cuDeviceGetUuid_v2", device);
    memset(uuid, 0xa0, 16);
    uuid[15] = (unsigned char)device;
    return OK;
}

int cuCtxCreate_v2(void **context, unsigned flags, int device) {
    MAY("cuCtxCreate_v2", device);
    if (!(flags & 0x08) || context_count == CONTEXTS) return INVALID;
    current = context_count++;
    contexts[current] = (Context){device, 1};
    *context = &contexts[current];
    tell("born", device);
    return OK;
}

int cuCtxDestroy_v2(Context *context) {
    MAY("cuCtxDestroy_v2", context->device);
    if (!context->alive) return INVALID_CONTEXT;
    context->alive = 0;
    current = -1;
    tell("gone", context->device);
    return OK;
}

int cuModuleLoadData(void **module, const char *image) {
    IN_CONTEXT("cuModuleLoadData");
    if (!strstr(image, ".version") || !strstr(image, "%globaltimer")) return INVALID_PTX;
    *module = (void *)image;
    return OK;
}

int cuModuleGetFunction(void **function, const char *module, const char *name) {
    char entry[64];
    IN_CONTEXT("cuModuleGetFunction");
    snprintf(entry, sizeof entry, ".entry %s(", name);
    if (!strstr(module, entry)) return NOT_FOUND;
    *function = strcmp(name, "read_timer") ? "step" : "read";
    return OK;
}

int cuMemHostAlloc(void **host, size_t size, unsigned flags) {
    IN_CONTEXT("cuMemHostAlloc");
    if (!(flags & 0x02) || size < 16) return INVALID;
    *host = calloc(1, size);
    return OK;
}

int cuMemHostGetDevicePointer_v2(uint64_t *there, void *host, unsigned flags) {
    IN_CONTEXT("cuMemHostGetDevicePointer_v2");
    *there = (uint64_t)(uintptr_t)host;
    return flags ? INVALID : OK;
}

int cuLaunchKernel(const char *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **args, void **extra) {
    IN_CONTEXT("cuLaunchKernel");
    if (gx * gy * gz * bx * by * bz != 1 || shared || stream || extra) return INVALID;
    volatile uint64_t *slot = (uint64_t *)(uintptr_t)*(uint64_t *)args[0];
    int device = contexts[current].device;
    if (*function == 'r') {
        slot[0] = timer(device);
    } else {
        uint64_t before = timer(device), after = before;
        while (after == before) after = timer(device);
        slot[0] = after - before;
    }
    __sync_synchronize();
    slot[1] = *(uint64_t *)args[1];
    return OK;
}

int cuCtxSynchronize(void) {
    IN_CONTEXT("cuCtxSynchronize");
    return OK;
}
