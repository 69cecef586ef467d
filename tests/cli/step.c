/* Preloaded: CLOCK_BOOTTIME steps for some processes, as after a suspend, and CLOCK_MONOTONIC does not.

   $STEP_FILE has numbers: by how many seconds, and the ids of up to seven processes that see it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static const volatile double *page;
static int (*real)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("STEP_FILE");
    int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    void *found;
    real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    if (file < 0) return;
    found = mmap(NULL, 64, PROT_READ, MAP_SHARED, file, 0);
    if (found != MAP_FAILED) page = found;
    close(file);
}

int clock_gettime(clockid_t which, struct timespec *at) {
    int code = real(which, at), i;
    if (which == CLOCK_BOOTTIME && page && page[0] != 0.0)
        for (i = 1; i < 8; i++)
            if (page[i] == (double)getpid()) at->tv_sec += (time_t)page[0];
    return code;
}
