/* A double of libnvidia-ml.so.1: every function answers from a table that lies beside the library.
 *
 * answers.txt, sorted by its first two words as bytes:    SCOPE CALL CODE OUTPUT...
 * SCOPE is a device's index or -1, CALL is named as bundles name it, CODE is what the function returns, or `hang`
 * or `crash`, or the path of a file system that is asked and whose answer is never passed on; each OUTPUT is, in
 * hexadecimal, the memory that one output argument is filled with. A call that is not there returns NOT_SUPPORTED.
 * Where another file has taken its place, nvmlSystemGetDriverVersion, the first call of a round, reads it.
 *
 * events, a FIFO:    DEVICE TYPE DATA    an event, sent to a set in which the device is registered for its type
 *                    error CODE 0        a wait that ends like this
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7, TIMEOUT = 10, VERSION_MISMATCH = 25 };
enum { SYSTEM = -1, OUTPUTS = 4, DEVICES = 64 };

typedef void *device; /* index + 1, so that none is null */
typedef struct { char *key, *code, *output[OUTPUTS]; } row;
typedef struct { uint32_t field, scope; int64_t timestamp, latency; uint32_t type; int32_t code; char value[8]; } field;

static row *rows;
static size_t count;

static const char *beside(const char *name) {
    static _Thread_local char path[4096];
    Dl_info self;
    dladdr((void *)beside, &self);
    int directory = (int)(strrchr(self.dli_fname, '/') - self.dli_fname);
    snprintf(path, sizeof path, "%.*s/%s", directory, self.dli_fname, name);
    return path;
}

static void forget(void) {
    while (count) {
        row *last = &rows[--count];
        free(last->key);
        free(last->code);
        for (int i = 0; i < OUTPUTS; i++) free(last->output[i]);
    }
}

static void load(void) {
    static ino_t loaded;
    struct stat found;
    FILE *file = fopen(beside("answers.txt"), "r");
    if (!file || fstat(fileno(file), &found)) abort();
    if (found.st_ino == loaded) {
        fclose(file);
        return;
    }
    loaded = found.st_ino;
    forget();
    char *line = NULL, *rest;
    size_t size = 0;
    for (; getline(&line, &size, file) > 0; count++) {
        char *scope = strtok_r(line, " \n", &rest), *call = strtok_r(NULL, " \n", &rest);
        rows = realloc(rows, (count + 1) * sizeof *rows);
        row *new = &rows[count];
        if (asprintf(&new->key, "%s %s", scope, call) < 0) abort();
        new->code = strdup(strtok_r(NULL, " \n", &rest));
        for (int i = 0; i < OUTPUTS; i++) {
            char *word = strtok_r(NULL, " \n", &rest);
            new->output[i] = word ? strdup(word) : NULL;
        }
    }
    free(line);
    fclose(file);
}

static int compare(const void *key, const void *other) { return strcmp(key, ((const row *)other)->key); }

/* A call's name with its arguments; good until the next one. */
static const char *named(const char *format, ...) {
    static char name[128];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(name, sizeof name, format, arguments);
    va_end(arguments);
    return name;
}

/* The row of a call, null where it has none; in `code`, what the call returns. */
static row *find(int scope, const char *call, int *code) {
    char key[160];
    snprintf(key, sizeof key, "%d %s", scope, call);
    row *found = count ? bsearch(key, rows, count, sizeof *rows, compare) : NULL;
    while (found && !strcmp(found->code, "hang")) pause();
    if (found && found->code[0] == '/') {
        struct statvfs asked;
        statvfs(found->code, &asked);
        abort();
    }
    if (found && !strcmp(found->code, "crash")) abort();
    *code = found ? atoi(found->code) : NOT_SUPPORTED;
    return found;
}

static void fill(void *memory, const char *hex) {
    unsigned byte;
    for (char *at = memory; hex && sscanf(hex, "%2x", &byte) == 1; hex += 2) *at++ = (char)byte;
}

static int answer(int scope, const char *call, void *outputs[OUTPUTS]) {
    int code;
    row *found = find(scope, call, &code);
    for (int i = 0; code == SUCCESS && i < OUTPUTS; i++)
        if (outputs[i]) fill(outputs[i], found->output[i]);
    return code;
}

/* What opens something has nothing to fill: without a row it succeeds. */
static int open_up(int scope, const char *call) {
    int code;
    return find(scope, call, &code) ? code : SUCCESS;
}

/* The same for a struct whose first word is the version that its caller knows. */
static int versioned(int scope, const char *call, uint32_t *memory) {
    int code;
    row *found = find(scope, call, &code);
    if (code != SUCCESS) return code;
    char first[9] = {0};
    uint32_t version = 0;
    memcpy(first, found->output[0], 8);
    fill(&version, first);
    if (version != *memory) return VERSION_MISMATCH;
    fill(memory, found->output[0]);
    return SUCCESS;
}

/* Lists: the first output is their length, the others are arrays; a caller who has no room gets the length. */
static int list(int scope, const char *call, uint32_t *length, void *first, void *second) {
    int code;
    row *found = find(scope, call, &code);
    if (code != SUCCESS) return code;
    uint32_t room = *length;
    fill(length, found->output[0]);
    if (room < *length) return INSUFFICIENT_SIZE;
    if (first) fill(first, found->output[1]);
    if (second) fill(second, found->output[2]);
    return SUCCESS;
}

static int at(device d) { return (int)(intptr_t)d - 1; }

#define OUT(...) ((void *[OUTPUTS]){__VA_ARGS__})
#define SYSTEM_TEXT(f) int f(char *a, unsigned n) { (void)n; return answer(SYSTEM, #f, OUT(a)); }
#define SYSTEM_ONE(f) int f(void *a) { return answer(SYSTEM, #f, OUT(a)); }
#define TEXT(f) int f(device d, char *a, unsigned n) { (void)n; return answer(at(d), #f, OUT(a)); }
#define ONE(f) int f(device d, void *a) { return answer(at(d), #f, OUT(a)); }
#define TWO(f) int f(device d, void *a, void *b) { return answer(at(d), #f, OUT(a, b)); }
#define FOUR(f) int f(device d, void *a, void *b, void *c, void *e) { return answer(at(d), #f, OUT(a, b, c, e)); }
#define NUMBERED(f) int f(device d, unsigned x, void *a) { return answer(at(d), named(#f "(%u)", x), OUT(a)); }
#define VERSIONED(f) int f(device d, uint32_t *s) { return versioned(at(d), #f, s); }

int nvmlInitWithFlags(unsigned flags) { (void)flags; load(); return open_up(SYSTEM, "nvmlInit"); }
int nvmlShutdown(void) { return SUCCESS; }
int nvmlSystemGetDriverVersion(char *a, unsigned n) {
    (void)n;
    load();
    return answer(SYSTEM, "nvmlSystemGetDriverVersion", OUT(a));
}
SYSTEM_TEXT(nvmlSystemGetNVMLVersion)
SYSTEM_ONE(nvmlSystemGetConfComputeState)
SYSTEM_ONE(nvmlSystemGetConfComputeGpusReadyState)
int nvmlDeviceGetCount_v2(void *a) { return answer(SYSTEM, "nvmlDeviceGetCount", OUT(a)); }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, device *d) {
    *d = (device)(intptr_t)(index + 1);
    return open_up((int)index, "nvmlDeviceGetHandleByIndex");
}

TEXT(nvmlDeviceGetUUID)
TEXT(nvmlDeviceGetName)
TEXT(nvmlDeviceGetSerial)
TEXT(nvmlDeviceGetBoardPartNumber)
TEXT(nvmlDeviceGetVbiosVersion)
ONE(nvmlDeviceGetPciInfo_v3)
ONE(nvmlDeviceGetModuleId)
ONE(nvmlDeviceGetMinorNumber)
TWO(nvmlDeviceGetGspFirmwareMode)
ONE(nvmlDeviceGetMemoryInfo)
NUMBERED(nvmlDeviceGetTemperatureThreshold)
ONE(nvmlDeviceGetMaxPcieLinkGeneration)
ONE(nvmlDeviceGetMaxPcieLinkWidth)
VERSIONED(nvmlDeviceGetPlatformInfo)
ONE(nvmlDeviceGetPersistenceMode)
TWO(nvmlDeviceGetEccMode)
TWO(nvmlDeviceGetMigMode)
FOUR(nvmlDeviceGetRemappedRows)
ONE(nvmlDeviceGetRowRemapperHistogram)
VERSIONED(nvmlDeviceGetSramEccErrorStatus)
ONE(nvmlDeviceGetRetiredPagesPendingStatus)
VERSIONED(nvmlDeviceGetRepairStatus)
VERSIONED(nvmlDeviceGetUnrepairableMemoryFlag_v1)
ONE(nvmlDeviceGetCurrentClocksEventReasons)
ONE(nvmlDeviceGetCurrentClocksThrottleReasons)
ONE(nvmlDeviceGetPerformanceState)
ONE(nvmlDeviceGetUtilizationRates)
NUMBERED(nvmlDeviceGetTemperature)
NUMBERED(nvmlDeviceGetClockInfo)
NUMBERED(nvmlDeviceGetMaxClockInfo)
VERSIONED(nvmlDeviceGetMarginTemperature)
ONE(nvmlDeviceGetCurrPcieLinkGeneration)
ONE(nvmlDeviceGetCurrPcieLinkWidth)
ONE(nvmlDeviceGetPcieReplayCounter)
ONE(nvmlDeviceGetGpuFabricInfo)
VERSIONED(nvmlDeviceGetGpuFabricInfoV)
NUMBERED(nvmlDeviceGetNvLinkState)

int nvmlDeviceGetTemperatureV(device d, uint32_t *s) {
    return versioned(at(d), named("nvmlDeviceGetTemperatureV(%u)", s[1]), s);
}
int nvmlDeviceGetTotalEccErrors(device d, unsigned kind, unsigned since, void *a) {
    return answer(at(d), named("nvmlDeviceGetTotalEccErrors(%u,%u)", kind, since), OUT(a));
}
int nvmlDeviceGetMemoryErrorCounter(device d, unsigned kind, unsigned since, unsigned place, void *a) {
    return answer(at(d), named("nvmlDeviceGetMemoryErrorCounter(%u,%u,%u)", kind, since, place), OUT(a));
}
int nvmlDeviceGetRetiredPages(device d, unsigned cause, uint32_t *n, void *pages) {
    return list(at(d), named("nvmlDeviceGetRetiredPages(%u)", cause), n, pages, NULL);
}
int nvmlDeviceGetRetiredPages_v2(device d, unsigned cause, uint32_t *n, void *pages, void *times) {
    return list(at(d), named("nvmlDeviceGetRetiredPages_v2(%u)", cause), n, pages, times);
}
int nvmlDeviceGetComputeRunningProcesses_v3(device d, uint32_t *n, void *processes) {
    return list(at(d), "nvmlDeviceGetComputeRunningProcesses_v3", n, processes, NULL);
}
int nvmlDeviceGetFieldValues(device d, int n, field *values) {
    for (field *value = values; value < values + n; value++) {
        row *found = find(at(d), named("nvmlDeviceGetFieldValues(%u,%u)", value->field, value->scope), &value->code);
        if (value->code != SUCCESS) continue;
        fill(&value->type, found->output[0]);
        fill(value->value, found->output[1]);
    }
    return SUCCESS;
}

typedef struct { device d; unsigned long long type, data; uint32_t gi, ci; } event;
typedef struct { int fifo; unsigned long long types[DEVICES]; } event_set;

int nvmlDeviceGetSupportedEventTypes(device d, unsigned long long *types) {
    int code;
    row *found = find(at(d), "nvmlDeviceGetSupportedEventTypes", &code);
    *types = 0xffff;
    if (found && code == SUCCESS) fill(types, found->output[0]);
    return found ? code : SUCCESS;
}
int nvmlEventSetCreate(event_set **set) {
    *set = calloc(1, sizeof **set);
    (*set)->fifo = open(beside("events"), O_RDWR | O_NONBLOCK | O_CLOEXEC);
    return open_up(SYSTEM, "nvmlEventSetCreate");
}
int nvmlDeviceRegisterEvents(device d, unsigned long long types, event_set *set) {
    int code = open_up(at(d), "nvmlDeviceRegisterEvents");
    if (code == SUCCESS) set->types[at(d)] |= types;
    return code;
}
int nvmlEventSetFree(event_set *set) {
    close(set->fifo);
    free(set);
    return SUCCESS;
}
int nvmlEventSetWait_v2(event_set *set, event *occurred, unsigned milliseconds) {
    struct pollfd news = {set->fifo, POLLIN, 0};
    while (poll(&news, 1, (int)milliseconds) > 0) {
        char line[64] = {0}, word[16];
        for (size_t i = 0; i < sizeof line - 1 && read(set->fifo, line + i, 1) == 1 && line[i] != '\n'; i++) {}
        if (sscanf(line, "%15s %llu %llu", word, &occurred->type, &occurred->data) != 3) continue;
        if (!strcmp(word, "error")) return (int)occurred->type;
        int index = atoi(word);
        if (!(set->types[index] & occurred->type)) continue;
        occurred->d = (device)(intptr_t)(index + 1);
        return SUCCESS;
    }
    return TIMEOUT;
}
