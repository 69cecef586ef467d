/* A command that shows when it lived: it writes the time and its fence to a file that it has mapped, every 50 us.

   beater FILE [term] [twin] [ends]

   term: ignore SIGTERM. twin: also start a daemon (double fork, setsid, which ignores SIGTERM) that writes to FILE.twin.
   ends: end after 0.2 seconds, by itself (the daemon does not).
   A file has three numbers: the first beat, the last beat (seconds of CLOCK_BOOTTIME), and the fence. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_BOOTTIME, &at);
    return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

static void beat(const char *path, double seconds) {
    char name[4096];
    struct timespec pause = {0, 50000};
    const char *fence = getenv("HOLDFAST_FENCE");
    int file;
    volatile double *page;
    snprintf(name, sizeof name, "%s.new", path);
    file = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (file < 0 || ftruncate(file, 24) != 0) exit(9);
    page = mmap(NULL, 24, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (page == MAP_FAILED) exit(9);
    page[2] = fence ? atof(fence) : 0.0;
    page[0] = page[1] = now();
    rename(name, path);
    while (seconds == 0.0 || page[1] < page[0] + seconds) {
        page[1] = now();
        nanosleep(&pause, NULL);
    }
}

int main(int count, char **words) {
    int twin = 0, ends = 0, i;
    char name[4096];
    if (count < 2) return 9;
    for (i = 2; i < count; i++) {
        if (!strcmp(words[i], "term")) signal(SIGTERM, SIG_IGN);
        if (!strcmp(words[i], "twin")) twin = 1;
        if (!strcmp(words[i], "ends")) ends = 1;
    }
    if (twin && fork() == 0) {
        setsid();
        if (fork() != 0) _exit(0);
        signal(SIGTERM, SIG_IGN);
        snprintf(name, sizeof name, "%s.twin", words[1]);
        beat(name, 0.0);
    }
    beat(words[1], ends ? 0.2 : 0.0);
    return 0;
}
