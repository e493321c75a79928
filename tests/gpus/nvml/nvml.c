/* libnvidia-ml.so.1 for tests: implements the NVML functions that the agent calls, from a scenario file.
 *
 * NVML_SCENARIO names the file. It is read at nvmlInit, and again at the first call of a tick if it has been
 * replaced, so that a test advances time by writing a new file. A line is "KEY VALUE". KEY is global ("driver", "count",
 * "fail.FUNCTION"), or of one GPU ("gpu3.power"), of all GPUs ("gpu.power"), of a MIG device ("gpu0mig1.memory") or
 * of all of these ("mig.memory"); the more specific key wins. A value without a line is not supported. "fail.FUNCTION"
 * holds the return value of that function; it may be global, or of GPUs as above; see `misbehave` for calls that
 * crash or hang.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, TIMEOUT = 10 };
enum { SLOTS = 8192, GPUS = 16, MIGS = 8 };

typedef unsigned int u32;
typedef unsigned long long u64;
typedef struct { int gpu, mig; } Device;
typedef struct { char *key, *value; } Line;

static Line lines[SLOTS];
static struct stat seen;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Device devices[GPUS][MIGS + 1];
static u32 events_given;

static u32 hash(const char *key) {
    u32 h = 2166136261u;
    while (*key) h = (h ^ (unsigned char)*key++) * 16777619u;
    return h % SLOTS;
}

static Line *slot(const char *key) {
    u32 at = hash(key);
    while (lines[at].key && strcmp(lines[at].key, key)) at = (at + 1) % SLOTS;
    return &lines[at];
}

/* Old texts are not freed: another thread may be reading them, and tests are short. */
static void reload(void) {
    const char *path = getenv("NVML_SCENARIO");
    struct stat now;
    char text[4096];
    FILE *file;
    if (!path || stat(path, &now)) return;
    if (now.st_ino == seen.st_ino && now.st_mtim.tv_nsec == seen.st_mtim.tv_nsec && now.st_size == seen.st_size) return;
    pthread_mutex_lock(&lock);
    seen = now;
    memset(lines, 0, sizeof lines);
    file = fopen(path, "r");
    while (file && fgets(text, sizeof text, file)) {
        char *space = strchr(text, ' ');
        text[strcspn(text, "\n")] = 0;
        if (!space) continue;
        *space = 0;
        Line *line = slot(text);
        if (!line->key) line->key = strdup(text);
        line->value = strdup(space + 1);
    }
    if (file) fclose(file);
    pthread_mutex_unlock(&lock);
}

static const char *global(const char *key) {
    pthread_mutex_lock(&lock);
    const char *value = slot(key)->value;
    pthread_mutex_unlock(&lock);
    return value;
}

static const char *of(const Device *device, const char *key) {
    char name[128];
    const char *value;
    if (device->mig < 0) snprintf(name, sizeof name, "gpu%d.%s", device->gpu, key);
    else snprintf(name, sizeof name, "gpu%dmig%d.%s", device->gpu, device->mig, key);
    if ((value = global(name))) return value;
    snprintf(name, sizeof name, "%s.%s", device->mig < 0 ? "gpu" : "mig", key);
    return global(name);
}

/* "crash.FUNCTION": a segmentation fault; "hang.FUNCTION": no return until the line is gone. Both may be of one GPU. */
static int is_set(const Device *device, const char *what, const char *function) {
    char key[128];
    snprintf(key, sizeof key, "%s.%s", what, function);
    return (device && of(device, key)) || global(key);
}
static void misbehave(const Device *device, const char *function) {
    if (is_set(device, "crash", function)) raise(SIGSEGV);
    while (is_set(device, "hang", function)) {
        usleep(20000);
        reload();
    }
}

static int failing(const Device *device, const char *function) {
    char key[128];
    const char *value = NULL;
    snprintf(key, sizeof key, "fail.%s", function);
    if (device) value = of(device, "lost");
    if (value) return atoi(value);
    misbehave(device, function);
    if (device) value = of(device, key);
    if (!value) value = global(key);
    return value ? atoi(value) : OK;
}

#define FAIL(device) do { int code_ = failing(device, __func__); if (code_) return code_; } while (0)
#define ASK(device, key) const char *value = of(device, key); if (!value) return NOT_SUPPORTED

static int number(const Device *device, const char *function, const char *key, u32 *answer) {
    int code = failing(device, function);
    const char *value = code ? NULL : of(device, key);
    if (code) return code;
    if (!value) return NOT_SUPPORTED;
    *answer = strtoul(value, NULL, 0);
    return OK;
}

static int pair(const Device *device, const char *function, const char *key, u32 *first, u32 *second) {
    int code = failing(device, function);
    const char *value = code ? NULL : of(device, key);
    if (code) return code;
    if (!value) return NOT_SUPPORTED;
    return sscanf(value, "%u %u", first, second) == 2 ? OK : INVALID;
}

static int words(const Device *device, const char *function, const char *key, char *answer, u32 size) {
    int code = failing(device, function);
    const char *value = code ? NULL : of(device, key);
    if (code) return code;
    if (!value) return NOT_SUPPORTED;
    snprintf(answer, size, "%s", value);
    return OK;
}

/* -- the library and the system ----------------------------------------------------------------------------------- */

int nvmlInitWithFlags(u32 flags) {
    (void)flags;
    memset(&seen, 0, sizeof seen);
    events_given = 0;
    reload();
    FAIL(NULL);
    return OK;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { FAIL(NULL); return OK; }
const char *nvmlErrorString(int code) { return code == 3 ? "Not Supported" : "an error of the scenario"; }

int nvmlSystemGetDriverVersion(char *answer, u32 size) {
    FAIL(NULL);
    const char *value = global("driver");
    if (!value) return NOT_SUPPORTED;
    snprintf(answer, size, "%s", value);
    return OK;
}
int nvmlSystemGetCudaDriverVersion(int *answer) {
    FAIL(NULL);
    const char *value = global("cuda");
    if (!value) return NOT_SUPPORTED;
    *answer = atoi(value);
    return OK;
}
int nvmlDeviceGetCount_v2(u32 *count) {
    FAIL(NULL);
    const char *value = global("count");
    *count = value ? atoi(value) : 0;
    return OK;
}
int nvmlDeviceGetHandleByIndex_v2(u32 index, Device **device) {
    reload();
    if (index >= GPUS) return INVALID;
    devices[index][MIGS] = (Device){index, -1};
    FAIL(&devices[index][MIGS]);
    *device = &devices[index][MIGS];
    return OK;
}

/* -- identity ----------------------------------------------------------------------------------------------------- */

#define WORDS(function, key) int function(Device *d, char *a, u32 size) { return words(d, #function, key, a, size); }
#define NUMBER(function, key) int function(Device *d, u32 *a) { return number(d, #function, key, a); }
#define PAIR(function, key) int function(Device *d, u32 *a, u32 *b) { return pair(d, #function, key, a, b); }

WORDS(nvmlDeviceGetUUID, "uuid")
WORDS(nvmlDeviceGetName, "name")
WORDS(nvmlDeviceGetSerial, "serial")
WORDS(nvmlDeviceGetVbiosVersion, "vbios")
NUMBER(nvmlDeviceGetEnforcedPowerLimit, "power_limit")
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, "power_default")
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_gen")
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width")
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_gen_max")
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, "pcie_width_max")
NUMBER(nvmlDeviceGetNumaNodeId, "numa")
NUMBER(nvmlDeviceGetPersistenceMode, "persistence")
NUMBER(nvmlDeviceGetComputeMode, "compute_mode")
NUMBER(nvmlDeviceGetMaxMigDeviceCount, "migs")
NUMBER(nvmlDeviceGetGpuInstanceId, "gpu_instance")
NUMBER(nvmlDeviceGetComputeInstanceId, "compute_instance")
PAIR(nvmlDeviceGetPowerManagementLimitConstraints, "power_range")
PAIR(nvmlDeviceGetCudaComputeCapability, "capability")
PAIR(nvmlDeviceGetMigMode, "mig")
PAIR(nvmlDeviceGetEccMode, "ecc_mode")

typedef struct { char legacy[16]; u32 domain, bus, device, id, subsystem; char bus_id[32]; } Pci;
int nvmlDeviceGetPciInfo_v3(Device *device, Pci *answer) {
    FAIL(device);
    ASK(device, "pci");
    memset(answer, 0, sizeof *answer);
    snprintf(answer->bus_id, sizeof answer->bus_id, "%s", value);
    return OK;
}
int nvmlDeviceGetCpuAffinity(Device *device, u32 size, unsigned long *answer) {
    FAIL(device);
    ASK(device, "affinity");
    memset(answer, 0, size * sizeof *answer);
    answer[0] = strtoul(value, NULL, 0);
    return OK;
}
int nvmlDeviceGetMigDeviceHandleByIndex(Device *device, u32 index, Device **answer) {
    char key[32];
    FAIL(device);
    if (index >= MIGS) return INVALID;
    devices[device->gpu][index] = (Device){device->gpu, index};
    snprintf(key, sizeof key, "uuid");
    if (!of(&devices[device->gpu][index], key)) return NOT_FOUND;
    *answer = &devices[device->gpu][index];
    return OK;
}
typedef struct { u32 version; uint8_t cluster[16]; u32 status, clique; uint8_t state; u32 health; uint8_t summary; } Fabric3;
int nvmlDeviceGetGpuFabricInfoV(Device *device, Fabric3 *answer) {
    u32 state = 0, clique = 0, status = 0, health = 0;
    FAIL(device);
    ASK(device, "fabric");
    if (sscanf(value, "%u %u %u %u", &state, &clique, &status, &health) < 3) return INVALID;
    answer->state = state;
    answer->clique = clique;
    answer->status = status;
    answer->health = health;
    for (int i = 0; i < 16; i++) answer->cluster[i] = i + 1;
    return OK;
}

/* -- metrics ------------------------------------------------------------------------------------------------------ */

NUMBER(nvmlDeviceGetPowerUsage, "power")
NUMBER(nvmlDeviceGetFanSpeed, "fan")
NUMBER(nvmlDeviceGetPerformanceState, "pstate")
PAIR(nvmlDeviceGetEncoderUtilization, "encoder")
PAIR(nvmlDeviceGetDecoderUtilization, "decoder")

typedef struct { u32 gpu, memory; } Utilization;
int nvmlDeviceGetUtilizationRates(Device *device, Utilization *answer) {
    reload();
    return pair(device, __func__, "util", &answer->gpu, &answer->memory);
}
int nvmlDeviceGetTemperature(Device *d, u32 sensor, u32 *a) { (void)sensor; return number(d, __func__, "temp", a); }
typedef struct { u32 version, sensor; int temperature; } Temperature;
int nvmlDeviceGetTemperatureV(Device *d, Temperature *t) { return number(d, __func__, "temp", (u32 *)&t->temperature); }

int nvmlDeviceGetTemperatureThreshold(Device *d, u32 kind, u32 *a) { /* "threshold.KIND" */
    char key[32];
    snprintf(key, sizeof key, "threshold.%u", kind);
    return number(d, __func__, key, a);
}
typedef struct { u32 version; int margin; } Margin;
int nvmlDeviceGetMarginTemperature(Device *d, Margin *m) { return number(d, __func__, "margin", (u32 *)&m->margin); }
typedef struct { u32 version; u64 counts[11]; u32 exceeded; } Sram;
int nvmlDeviceGetSramEccErrorStatus(Device *d, Sram *s) { return number(d, __func__, "sram_exceeded", &s->exceeded); }

static int clock_of(Device *device, const char *function, const char *prefix, u32 type, u32 *answer) {
    char key[32];
    snprintf(key, sizeof key, "%s%u", prefix, type);
    return number(device, function, key, answer);
}
int nvmlDeviceGetClockInfo(Device *d, u32 type, u32 *a) { return clock_of(d, __func__, "clock.", type, a); }
int nvmlDeviceGetApplicationsClock(Device *d, u32 type, u32 *a) { return clock_of(d, __func__, "app_clock.", type, a); }
int nvmlDeviceGetDefaultApplicationsClock(Device *d, u32 type, u32 *a) {
    return clock_of(d, __func__, "app_clock_default.", type, a);
}
int nvmlDeviceGetMaxClockInfo(Device *d, u32 type, u32 *a) { return clock_of(d, __func__, "max_clock.", type, a); }

int nvmlDeviceGetMemoryInfo(Device *device, u64 *answer) { /* total, free, used */
    FAIL(device);
    ASK(device, "memory");
    if (sscanf(value, "%llu %llu", &answer[0], &answer[2]) != 2) return INVALID;
    answer[1] = answer[0] - answer[2];
    return OK;
}
typedef struct { u32 version; u64 total, reserved, free, used; } Memory2;
int nvmlDeviceGetMemoryInfo_v2(Device *device, Memory2 *answer) {
    FAIL(device);
    ASK(device, "memory");
    if (answer->version != (sizeof *answer | 2u << 24)) return 25;
    if (sscanf(value, "%llu %llu", &answer->total, &answer->used) != 2) return INVALID;
    answer->free = answer->total - answer->used;
    answer->reserved = 0;
    return OK;
}
int nvmlDeviceGetBAR1MemoryInfo(Device *device, u64 *answer) { /* total, free, used */
    FAIL(device);
    ASK(device, "bar1");
    if (sscanf(value, "%llu %llu", &answer[0], &answer[2]) != 2) return INVALID;
    answer[1] = answer[0] - answer[2];
    return OK;
}
static int reasons(Device *device, const char *function, u64 *answer) {
    u32 low = 0;
    int code = number(device, function, "reasons", &low);
    if (!code) *answer = low;
    return code;
}
int nvmlDeviceGetCurrentClocksEventReasons(Device *device, u64 *answer) { return reasons(device, __func__, answer); }
int nvmlDeviceGetCurrentClocksThrottleReasons(Device *device, u64 *answer) { return reasons(device, __func__, answer); }

int nvmlDeviceGetPcieThroughput(Device *device, u32 counter, u32 *answer) {
    usleep(20000);
    return number(device, __func__, counter ? "pcie_rx" : "pcie_tx", answer);
}
int nvmlDeviceGetNvLinkState(Device *device, u32 link, u32 *active) {
    char key[32];
    snprintf(key, sizeof key, "link_state.%u", link);
    return number(device, __func__, key, active);
}

typedef struct { u32 id, scope; int64_t timestamp, latency; u32 type, code; union { double d; u32 u; u64 ull; } value; } Field;
/* "field.ID" or "field.ID@SCOPE"; a value "u32:N" is of 32 bits, "code:N" is the field's own return value. */
int nvmlDeviceGetFieldValues(Device *device, int count, Field *fields) {
    reload();
    FAIL(device);
    for (int i = 0; i < count; i++) {
        Field *field = &fields[i];
        char key[48];
        const char *value;
        snprintf(key, sizeof key, field->scope == 0xFFFFFFFFu ? "field.%u@all" : "field.%u@%u", field->id, field->scope);
        value = of(device, key);
        if (!value) {
            snprintf(key, sizeof key, "field.%u", field->id);
            value = of(device, key);
        }
        field->value.ull = 0xAAAAAAAAAAAAAAAAull; /* detects reads of half a value, or of an unsupported one */
        field->code = OK;
        if (!value) field->code = NOT_SUPPORTED;
        else if (!strncmp(value, "code:", 5)) field->code = atoi(value + 5);
        else if (!strncmp(value, "u32:", 4)) { field->type = 1; field->value.u = strtoul(value + 4, NULL, 0); }
        else { field->type = 3; field->value.ull = strtoull(value, NULL, 0); }
    }
    return OK;
}

/* -- processes ---------------------------------------------------------------------------------------------------- */

typedef struct { u32 pid; u64 memory; u32 gpu_instance, compute_instance; } Process;
static int processes(Device *device, const char *function, const char *kind, u32 *count, Process *answer) {
    char key[48];
    const char *value;
    u32 found = 0, room = *count;
    int code = failing(device, function);
    if (code) return code;
    for (;; found++) { /* "compute.0 PID BYTES", "compute.1 …" */
        snprintf(key, sizeof key, "%s.%u", kind, found);
        if (!(value = of(device, key))) break;
        if (!answer || found >= room) continue;
        answer[found] = (Process){0, 0, ~0u, ~0u};
        sscanf(value, "%u %llu", &answer[found].pid, &answer[found].memory);
    }
    *count = found;
    return found > room || (found && !answer) ? TOO_SMALL : OK;
}
int nvmlDeviceGetComputeRunningProcesses_v3(Device *d, u32 *n, Process *a) { return processes(d, __func__, "compute", n, a); }
int nvmlDeviceGetGraphicsRunningProcesses_v3(Device *d, u32 *n, Process *a) { return processes(d, __func__, "graphics", n, a); }
int nvmlDeviceGetMPSComputeRunningProcesses_v3(Device *d, u32 *n, Process *a) { return processes(d, __func__, "mps", n, a); }

typedef struct { u32 pid; u64 timestamp; u32 sm, memory, encoder, decoder; } Share;
int nvmlDeviceGetProcessUtilization(Device *device, Share *answer, u32 *count, u64 since) {
    char key[48];
    const char *value;
    u32 found = 0, room = *count;
    (void)since;
    FAIL(device);
    for (;; found++) { /* "share.0 PID SM MEMORY" */
        snprintf(key, sizeof key, "share.%u", found);
        if (!(value = of(device, key))) break;
        if (!answer || found >= room) continue;
        answer[found] = (Share){0};
        answer[found].timestamp = since + 1;
        sscanf(value, "%u %u %u", &answer[found].pid, &answer[found].sm, &answer[found].memory);
    }
    *count = found;
    if (!found) return of(device, "share.none") ? OK : NOT_FOUND; /* some drivers succeed without samples */
    return answer ? OK : TOO_SMALL;
}

/* -- events ------------------------------------------------------------------------------------------------------- */

int nvmlEventSetCreate(void **set) { FAIL(NULL); *set = &events_given; return OK; }
int nvmlEventSetFree(void *set) { (void)set; FAIL(NULL); return OK; }
int nvmlDeviceRegisterEvents(Device *device, u64 types, void *set) { (void)types; (void)set; FAIL(device); return OK; }

typedef struct { Device *device; u64 type, data; u32 gpu_instance, compute_instance; } Event;
int nvmlEventSetWait_v2(void *set, Event *event, u32 timeout_ms) { /* "event.0 GPU TYPE DATA", each given once */
    (void)set;
    for (u32 waited = 0, step = 0;; waited += step) {
        char key[32];
        const char *value;
        u32 gpu;
        reload();
        FAIL(NULL);
        snprintf(key, sizeof key, "event.%u", events_given);
        value = global(key);
        if (value && sscanf(value, "%u %llu %llu", &gpu, &event->type, &event->data) == 3 && gpu < GPUS) {
            event->device = &devices[gpu][MIGS];
            event->gpu_instance = event->compute_instance = ~0u;
            events_given++;
            return OK;
        }
        if (waited >= timeout_ms) return TIMEOUT;
        step = timeout_ms - waited < 500 ? timeout_ms - waited : 500; /* rarely: a driver would not poll at all */
        usleep(step * 1000);
    }
}

/* -- GPU performance monitoring ----------------------------------------------------------------------------------- */

typedef struct { Device *device; u32 taken; } Sample;
typedef struct { u32 id; int code; double value; const char *names[3]; } Metric;
typedef struct { u32 version, count; Sample *first, *second; Metric metrics[]; } Metrics;

int nvmlGpmQueryDeviceSupport(Device *device, u32 *answer) { /* version, supported */
    FAIL(device);
    answer[1] = of(device, "gpm.2") != NULL;
    return OK;
}
int nvmlGpmSampleAlloc(Sample **sample) { FAIL(NULL); *sample = calloc(1, sizeof **sample); return OK; }
int nvmlGpmSampleFree(Sample *sample) { FAIL(NULL); free(sample); return OK; }
int nvmlGpmSampleGet(Device *device, Sample *sample) {
    FAIL(device);
    *sample = (Sample){device, sample->taken + 1};
    return OK;
}
int nvmlGpmMigSampleGet(Device *device, u32 gpu_instance, Sample *sample) {
    FAIL(device);
    for (int i = 0; i < MIGS; i++) {
        const char *value = devices[device->gpu][i].mig == i ? of(&devices[device->gpu][i], "gpu_instance") : NULL;
        if (!value || strtoul(value, NULL, 0) != gpu_instance) continue;
        *sample = (Sample){&devices[device->gpu][i], sample->taken + 1};
        return OK;
    }
    return NOT_FOUND;
}
int nvmlGpmMetricsGet(Metrics *metrics) {
    if (!metrics->first || !metrics->second || !metrics->first->taken || !metrics->second->taken) return INVALID;
    FAIL(metrics->second->device);
    for (u32 i = 0; i < metrics->count; i++) {
        char key[32];
        snprintf(key, sizeof key, "gpm.%u", metrics->metrics[i].id);
        const char *value = of(metrics->second->device, key);
        metrics->metrics[i].code = value ? OK : NOT_SUPPORTED;
        metrics->metrics[i].value = value ? atof(value) : -1.0;
    }
    return OK;
}

/* -- topology ----------------------------------------------------------------------------------------------------- */

/* "ancestor" or, for two GPUs, "ancestor.1" of the lower one and so on; "p2p", "p2p.CAPS", "p2p.OTHER.CAPS" alike */
static int between(Device *one, Device *other, const char *function, const char *key, u32 *answer) {
    Device *low = one->gpu < other->gpu ? one : other, *high = low == one ? other : one;
    char name[48];
    int code = failing(one, function);
    if (!code) code = failing(other, function);
    if (code) return code;
    snprintf(name, sizeof name, "%s.%d", key, high->gpu);
    return number(low, function, of(low, name) ? name : key, answer);
}
int nvmlDeviceGetTopologyCommonAncestor(Device *one, Device *other, u32 *level) {
    return between(one, other, __func__, "ancestor", level);
}
int nvmlDeviceGetP2PStatus(Device *one, Device *other, u32 caps, u32 *status) {
    char key[32];
    snprintf(key, sizeof key, "p2p.%u", caps);
    return between(one, other, __func__, of(one, key) ? key : "p2p", status);
}
/* "remote_type", "remote_pci" of all links, or "remote_type.LINK", "remote_pci.LINK" of one */
int nvmlDeviceGetNvLinkRemoteDeviceType(Device *device, u32 link, u32 *type) {
    char key[32];
    snprintf(key, sizeof key, "remote_type.%u", link);
    return number(device, __func__, of(device, key) ? key : "remote_type", type);
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(Device *device, u32 link, Pci *answer) {
    char key[32];
    FAIL(device);
    snprintf(key, sizeof key, "remote_pci.%u", link);
    ASK(device, of(device, key) ? key : "remote_pci");
    memset(answer, 0, sizeof *answer);
    snprintf(answer->bus_id, sizeof answer->bus_id, "%s", value);
    return OK;
}
int nvmlDeviceGetNvLinkVersion(Device *device, u32 link, u32 *version) {
    (void)link;
    return number(device, __func__, "link_version", version);
}

/* -- older functions for the same metrics ------------------------------------------------------------------------- */

int nvmlDeviceGetTotalEccErrors(Device *device, u32 type, u32 counter, u64 *answer) { /* "ecc.TYPE.COUNTER" */
    char key[32];
    u32 low = 0;
    snprintf(key, sizeof key, "ecc.%u.%u", type, counter);
    int code = number(device, __func__, key, &low);
    if (!code) *answer = low;
    return code;
}
int nvmlDeviceGetRemappedRows(Device *device, u32 *corrected, u32 *uncorrected, u32 *pending, u32 *failed) {
    FAIL(device);
    ASK(device, "remapped");
    return sscanf(value, "%u %u %u %u", corrected, uncorrected, pending, failed) == 4 ? OK : INVALID;
}
int nvmlDeviceGetTotalEnergyConsumption(Device *device, u64 *answer) {
    FAIL(device);
    ASK(device, "energy");
    *answer = strtoull(value, NULL, 0);
    return OK;
}
NUMBER(nvmlDeviceGetPcieReplayCounter, "replays")
