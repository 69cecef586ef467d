/* A forwarder that holds every chunk for a fixed time: `delay SECONDS TARGET_PORT...`.

   Listens on a port of its own for each target, prints those ports in one line, and forwards until its standard input ends. A chunk leaves
   SECONDS after it was read, in either direction, however many are under way: delay is added, throughput is not taken. Linux only (epoll
   waits whole milliseconds; ppoll waits nanoseconds, and a timer slack of 1 us has to be asked for). */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CHUNK 65536
#define MOST 4096

typedef struct Chunk {
    struct Chunk *next;
    double due;
    size_t size, gone;
    char data[];
} Chunk;

/* What is polled: a listener (peer -1, and a target port), or one end of a forwarded connection. Chunks wait at the end that they go to. */
typedef struct {
    int peer, target, ended;
    Chunk *first, **last;
} End;

static End ends[MOST];
static struct pollfd polled[MOST];
static int count = 1; /* 0 is standard input */

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static int add(int fd, int peer, int target) {
    int at = 1;
    while (at < count && polled[at].fd >= 0) at++; /* one that was closed, or a new one */
    if (at == MOST) return fprintf(stderr, "too many connections\n"), exit(1), 0;
    ends[at] = (End){.peer = peer, .target = target};
    ends[at].last = &ends[at].first;
    polled[at] = (struct pollfd){.fd = fd, .events = POLLIN};
    if (at == count) count++;
    return at;
}

static struct sockaddr_in loopback(int port) {
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_port = htons(port)};
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return where;
}

static void prompt(int fd) {
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

static void welcome(int listener) {
    int here = accept4(polled[listener].fd, NULL, NULL, SOCK_NONBLOCK), there;
    if (here < 0) return;
    struct sockaddr_in where = loopback(ends[listener].target);
    there = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(there, (struct sockaddr *)&where, sizeof where)) {
        close(here), close(there);
        return;
    }
    prompt(here), prompt(there);
    int a = add(here, 0, 0), b = add(there, a, 0);
    ends[a].peer = b;
}

static void hang_up(int i) {
    int both[] = {i, ends[i].peer};
    for (int n = 0; n < 2; n++) {
        End *end = &ends[both[n]];
        close(polled[both[n]].fd);
        polled[both[n]].fd = -1;
        for (Chunk *next; end->first; end->first = next) next = end->first->next, free(end->first);
        end->last = &end->first;
    }
}

int main(int argc, char **argv) {
    if (argc < 3) return fprintf(stderr, "delay SECONDS PORT...\n"), 2;
    double hold = atof(argv[1]);
    prctl(PR_SET_TIMERSLACK, 1000UL);
    polled[0] = (struct pollfd){.fd = 0, .events = POLLIN};
    for (int i = 2; i < argc; i++) {
        struct sockaddr_in where = loopback(0);
        socklen_t size = sizeof where;
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        if (bind(fd, (struct sockaddr *)&where, sizeof where) || listen(fd, 128)) return perror("listen"), 1;
        getsockname(fd, (struct sockaddr *)&where, &size);
        add(fd, -1, atoi(argv[i]));
        printf("%d ", ntohs(where.sin_port));
    }
    printf("\n");
    fflush(stdout);
    for (;;) {
        double next = 1e18, t = now();
        for (int i = 1; i < count; i++)
            if (ends[i].first && ends[i].first->due < next) next = ends[i].first->due;
        double pause = next > 1e17 ? 3600 : next > t ? next - t : 0;
        struct timespec wait = {.tv_sec = (time_t)pause, .tv_nsec = (long)((pause - (time_t)pause) * 1e9)};
        if (ppoll(polled, count, &wait, NULL) < 0 && errno != EINTR) return perror("poll"), 1;
        if (polled[0].revents) return 0;
        t = now();
        for (int i = 1, before = count; i < before; i++) {
            if (polled[i].fd < 0 || ends[i].ended || !(polled[i].revents & (POLLIN | POLLHUP | POLLERR))) continue;
            if (ends[i].peer < 0) {
                welcome(i);
                continue;
            }
            Chunk *chunk = malloc(sizeof *chunk + CHUNK);
            ssize_t size = recv(polled[i].fd, chunk->data, CHUNK, MSG_DONTWAIT);
            if (size < 0 && errno == EAGAIN) {
                free(chunk);
                continue;
            }
            /* an end is passed on as a chunk of nothing, after all that came before it */
            End *to = &ends[ends[i].peer];
            chunk->size = size > 0 ? size : 0, chunk->gone = 0, chunk->due = t + hold, chunk->next = NULL;
            if (size <= 0) polled[i].events = 0, ends[i].ended = 1;
            *to->last = chunk, to->last = &chunk->next;
        }
        t = now();
        for (int i = 1; i < count; i++) {
            while (polled[i].fd >= 0 && ends[i].first && ends[i].first->due <= t) {
                Chunk *chunk = ends[i].first;
                if (!chunk->size) {
                    hang_up(i);
                    break;
                }
                ssize_t size = send(polled[i].fd, chunk->data + chunk->gone, chunk->size - chunk->gone, MSG_DONTWAIT | MSG_NOSIGNAL);
                if (size < 0 && errno != EAGAIN) {
                    hang_up(i);
                    break;
                }
                if (size > 0) chunk->gone += size;
                if (chunk->gone < chunk->size) { /* its reader is slow: again in a moment */
                    chunk->due = t + 0.0001;
                    break;
                }
                if (!(ends[i].first = chunk->next)) ends[i].last = &ends[i].first;
                free(chunk);
            }
        }
    }
}
