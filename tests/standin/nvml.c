/* Stands in for NVIDIA's driver library, so that its real Python bindings run without a GPU.
 *
 * Time, power and every misbehaviour are set from outside (tests/standin/__init__.py). The energy
 * that was really spent is kept beside what the counter shows, which moves in steps only.
 */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define OK 0
#define INVALID_ARGUMENT 2
#define INSUFFICIENT_SIZE 7
#define DRIVER_NOT_LOADED 9
#define NOT_SUPPORTED 3

struct gpu {
    double now, watts, spent; /* seconds, watts, joules since time 0 */
    double period, jitter;    /* seconds between steps; each is early or late by up to the jitter */
    double next_step;
    uint64_t shown, offset;   /* millijoules; the offset is what the counter began at */
    uint32_t seed;
    int32_t energy_status;    /* what the energy call returns */
    int32_t calls_left;       /* ... after so many good ones; below 0: always good */
    uint32_t temperature, width, most_width, processes, mig, ecc;
    uint64_t reasons, ecc_errors;
    uint32_t replays;
};

struct gpu gpus[2];
int32_t count = 0; /* of GPUs; 0: the driver is not loaded */

static double jittered(struct gpu *gpu)
{
    gpu->seed = gpu->seed * 1664525u + 1013904223u;
    return gpu->period + gpu->jitter * (2.0 * (gpu->seed >> 8) / (1 << 24) - 1.0);
}

/* Let time go on at the present power. */
void standin_advance(int index, double seconds)
{
    struct gpu *gpu = &gpus[index];
    double until = gpu->now + seconds;
    while (gpu->period > 0 && gpu->next_step <= until) {
        gpu->spent += gpu->watts * (gpu->next_step - gpu->now);
        gpu->now = gpu->next_step;
        gpu->shown = gpu->offset + (uint64_t)(gpu->spent * 1e3);
        gpu->next_step += jittered(gpu);
    }
    gpu->spent += gpu->watts * (until - gpu->now);
    gpu->now = until;
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static double began = -1; /* of real time; below 0: time is set from outside */

/* In a process of its own: STANDIN_WATTS makes one sound GPU that takes so much in real time. */
__attribute__((constructor)) static void on_its_own(void)
{
    const char *watts = getenv("STANDIN_WATTS");
    if (!watts)
        return;
    count = 1;
    gpus[0].watts = atof(watts);
    gpus[0].period = gpus[0].next_step = 0.02;
    gpus[0].calls_left = -1;
    gpus[0].temperature = 40;
    gpus[0].width = gpus[0].most_width = 16;
    began = seconds();
}

int nvmlInitWithFlags(unsigned flags) { (void)flags; return count ? OK : DRIVER_NOT_LOADED; }
int nvmlShutdown(void) { return OK; }

const char *nvmlErrorString(int status)
{
    static char said[32];
    snprintf(said, sizeof said, "status %d", status);
    return said;
}

int nvmlDeviceGetCount_v2(unsigned *found) { *found = (unsigned)count; return OK; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct gpu **device)
{
    if (index >= (unsigned)count)
        return INVALID_ARGUMENT;
    *device = &gpus[index];
    return OK;
}

int nvmlDeviceGetIndex(struct gpu *gpu, unsigned *index) { *index = (unsigned)(gpu - gpus); return OK; }

int nvmlDeviceGetName(struct gpu *gpu, char *name, unsigned size)
{
    (void)gpu;
    snprintf(name, size, "Stand-in H100");
    return OK;
}

int nvmlDeviceGetUUID(struct gpu *gpu, char *uuid, unsigned size)
{
    snprintf(uuid, size, "GPU-%d000-stand-in", (int)(gpu - gpus) + 1);
    return OK;
}

int nvmlDeviceGetTotalEnergyConsumption(struct gpu *gpu, unsigned long long *energy)
{
    if (began >= 0)
        standin_advance((int)(gpu - gpus), seconds() - began - gpu->now);
    if (gpu->calls_left == 0)
        return gpu->energy_status;
    if (gpu->calls_left > 0)
        gpu->calls_left--;
    *energy = gpu->shown;
    return OK;
}

struct field {
    uint32_t id, scope;
    int64_t timestamp, latency;
    int32_t type, status;
    union { double d; unsigned ui; unsigned long long ull; } value;
};

int nvmlDeviceGetFieldValues(struct gpu *gpu, int wanted, struct field *fields)
{
    for (int i = 0; i < wanted; i++) {
        fields[i].status = OK;
        fields[i].value.ui = (unsigned)(gpu->watts * 1e3);
    }
    return OK;
}

int nvmlDeviceGetPowerUsage(struct gpu *gpu, unsigned *power)
{
    *power = (unsigned)(gpu->watts * 1e3);
    return OK;
}

int nvmlDeviceGetTemperature(struct gpu *gpu, int sensor, unsigned *degrees)
{
    (void)sensor;
    *degrees = gpu->temperature;
    return OK;
}

int nvmlDeviceGetClockInfo(struct gpu *gpu, int kind, unsigned *clock)
{
    (void)gpu;
    *clock = kind == 1 ? 1980 : 2619;
    return OK;
}

int nvmlDeviceGetCurrentClocksEventReasons(struct gpu *gpu, unsigned long long *reasons)
{
    *reasons = gpu->reasons;
    return OK;
}

int nvmlDeviceGetMaxPcieLinkGeneration(struct gpu *gpu, unsigned *value) { (void)gpu; *value = 5; return OK; }
int nvmlDeviceGetCurrPcieLinkGeneration(struct gpu *gpu, unsigned *value) { (void)gpu; *value = 4; return OK; }
int nvmlDeviceGetMaxPcieLinkWidth(struct gpu *gpu, unsigned *value) { *value = gpu->most_width; return OK; }
int nvmlDeviceGetCurrPcieLinkWidth(struct gpu *gpu, unsigned *value) { *value = gpu->width; return OK; }
int nvmlDeviceGetPcieReplayCounter(struct gpu *gpu, unsigned *value) { *value = gpu->replays; return OK; }

int nvmlDeviceGetEccMode(struct gpu *gpu, int *current, int *pending)
{
    *current = *pending = (int)gpu->ecc;
    return OK;
}

int nvmlDeviceGetTotalEccErrors(struct gpu *gpu, int kind, int counter, unsigned long long *errors)
{
    (void)kind, (void)counter;
    *errors = gpu->ecc_errors;
    return OK;
}

int nvmlDeviceGetMigMode(struct gpu *gpu, unsigned *current, unsigned *pending)
{
    *current = *pending = gpu->mig;
    return OK;
}

int nvmlDeviceGetComputeRunningProcesses_v3(struct gpu *gpu, unsigned *found, char *processes)
{
    unsigned room = *found;
    *found = gpu->processes;
    if (!gpu->processes)
        return OK;
    if (!processes || room < gpu->processes)
        return INSUFFICIENT_SIZE;
    memset(processes, 0, gpu->processes * 24);
    return OK;
}
