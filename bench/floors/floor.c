/* The floor in C: `floor pair|many plain|scripts SECONDS NAMES PORT...`; prints figures as JSON, in microseconds.

   pair   one after the other acquires and releases one name: write to all nodes, then read from one after the other
   many   all NAMES at once, whole batches in one write a node, then their releases

   Linux and macOS. Answers are looked at only as far as a count of yes needs: SET's "+OK", a script's first number. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MOST 16
#define HORIZON 16000ULL
/* sha1 of the scripts: handed over by the environment, so that a change of a script needs no change here */
static const char *request_sha, *release_sha, *unlock_sha;
static int scripts, nodes, ends[MOST];
static char inbox[33];
static unsigned serial;
static unsigned long long last_ticket;

static double clock_of(clockid_t which) {
    struct timespec t;
    clock_gettime(which, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, errno ? strerror(errno) : "unexpected");
    exit(1);
}

static char *bulk(char *at, const char *text) { return at + sprintf(at, "$%zu\r\n%s\r\n", strlen(text), text); }

static char *keys(char *at, const char *name) {
    char text[96];
    at = bulk(bulk(at, "4"), name);
    sprintf(text, "{%s}:fence", name);
    at = bulk(at, text);
    sprintf(text, "{%s}:queue", name);
    at = bulk(at, text);
    sprintf(text, "{%s}:waiters", name);
    return bulk(at, text);
}

static void new_token(char *token) {
    if (scripts) {
        struct timespec t;
        clock_gettime(CLOCK_REALTIME, &t);
        unsigned long long ticket = t.tv_sec * 1000000ULL + t.tv_nsec / 1000;
        last_ticket = ticket > last_ticket ? ticket : last_ticket + 1;
        sprintf(token, "%016llu:%s:%08x", last_ticket, inbox, ++serial);
    } else
        sprintf(token, "%024x%08x", getpid(), ++serial);
}

static char *request(char *at, const char *name, const char *token) {
    char text[32];
    if (!scripts) {
        at = bulk(bulk(bulk(at + sprintf(at, "*6\r\n"), "SET"), name), token);
        return bulk(bulk(bulk(at, "NX"), "PX"), "10000");
    }
    at = keys(bulk(bulk(at + sprintf(at, "*13\r\n"), "EVALSHA"), request_sha), name);
    at = bulk(bulk(bulk(at, token), "10000"), "w");
    unsigned long long ticket = strtoull(token, NULL, 10);
    sprintf(text, "%016llu", ticket);
    at = bulk(at, text);
    sprintf(text, "%llu", HORIZON);
    at = bulk(at, text);
    sprintf(text, "%llu", ticket / 1000 + HORIZON);
    return bulk(at, text);
}

static char *release(char *at, const char *name, const char *token) {
    if (!scripts)
        return bulk(bulk(bulk(bulk(bulk(at + sprintf(at, "*5\r\n"), "EVALSHA"), unlock_sha), "1"), name), token);
    at = keys(bulk(bulk(at + sprintf(at, "*9\r\n"), "EVALSHA"), release_sha), name);
    return bulk(bulk(at, token), "16000");
}

static void say(int node, const char *data, size_t size) {
    while (size) {
        ssize_t count = write(ends[node], data, size);
        if (count < 0) fail("write");
        data += count, size -= count;
    }
}

/* Reads `count` answers of a node: each of one line or two, told by the first one. Returns how many said yes. */
static int hear(int node, int count) {
    static char buffer[1 << 16];
    int yes = 0, left = 0, nested = 0;
    size_t have = 0;
    while (count > 0) {
        ssize_t more = read(ends[node], buffer + have, sizeof buffer - have);
        if (more <= 0) fail("read");
        have += more;
        char *line = buffer, *end;
        while (count > 0 && (end = memchr(line, '\n', buffer + have - line)) != NULL) {
            if (nested == 0) {
                if (*line == '$' && line[1] != '-') nested = left = 1; /* the usual answer: $16, F */
                else if (*line == '*') fail("a lock was taken");
                else if (*line == '-') fail(line);
                yes += *line == '+' || nested || (*line == ':' && line[1] == '1');
            } else
                left--;
            if (left == 0) nested = 0, count--;
            line = end + 1;
        }
        memmove(buffer, line, have -= line - buffer);
    }
    return yes;
}

static int compare(const void *a, const void *b) { return (*(double *)a > *(double *)b) - (*(double *)a < *(double *)b); }

int main(int argc, char **argv) {
    if (argc < 6 || argc - 5 > MOST) return fprintf(stderr, "floor pair|many plain|scripts SECONDS NAMES PORT...\n"), 2;
    int many = !strcmp(argv[1], "many"), names = many ? atoi(argv[4]) : 1;
    scripts = !strcmp(argv[2], "scripts");
    double seconds = atof(argv[3]);
    request_sha = getenv("REQUEST_SHA"), release_sha = getenv("RELEASE_SHA"), unlock_sha = getenv("UNLOCK_SHA");
    if (!request_sha || !release_sha || !unlock_sha) fail("REQUEST_SHA, RELEASE_SHA, UNLOCK_SHA");
    sprintf(inbox, "%032x", getpid());
    for (nodes = 0; nodes < argc - 5; nodes++) {
        struct sockaddr_in where = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[5 + nodes]))};
        where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        int on = 1;
        ends[nodes] = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(ends[nodes], (struct sockaddr *)&where, sizeof where)) fail("connect");
        setsockopt(ends[nodes], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    }
    size_t room = 1 << 20, count = 0;
    double *pairs = malloc(room * sizeof *pairs), *acquires = malloc(room * sizeof *acquires);
    char (*name)[64] = malloc(names * sizeof *name), (*token)[64] = malloc(names * sizeof *token), *data = malloc(names * 640);
    for (int i = 0; i < names; i++) sprintf(name[i], "bench:c:%d", i);
    double start = 0, cpu = 0, warm = clock_of(CLOCK_MONOTONIC) + 0.25;
    for (;;) {
        double began = clock_of(CLOCK_MONOTONIC);
        if (!start && began >= warm) start = began, cpu = clock_of(CLOCK_PROCESS_CPUTIME_ID), count = 0;
        if (start && began >= start + seconds) break;
        char *at = data;
        for (int i = 0; i < names; i++) new_token(token[i]), at = request(at, name[i], token[i]);
        for (int i = 0; i < nodes; i++) say(i, data, at - data);
        int yes = 0;
        for (int i = 0; i < nodes; i++) yes += hear(i, names) == names;
        if (yes <= nodes / 2) fail("not granted");
        double got = clock_of(CLOCK_MONOTONIC);
        at = data;
        for (int i = 0; i < names; i++) at = release(at, name[i], token[i]);
        for (int i = 0; i < nodes; i++) say(i, data, at - data);
        for (int i = 0; i < nodes; i++) hear(i, names);
        if (count < room) pairs[count] = clock_of(CLOCK_MONOTONIC) - began, acquires[count] = got - began, count++;
    }
    cpu = clock_of(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    double took = clock_of(CLOCK_MONOTONIC) - start;
    if (!count) fail("nothing done");
    qsort(pairs, count, sizeof *pairs, compare);
    qsort(acquires, count, sizeof *acquires, compare);
    printf("{\"p50\": %.3f, \"p99\": %.3f, \"acquire\": %.3f, \"acquire_p99\": %.3f, \"cpu\": %.3f, \"count\": %zu, \"rate\": %.1f}\n",
           pairs[count / 2] * 1e6, pairs[count * 99 / 100] * 1e6, acquires[count / 2] * 1e6, acquires[count * 99 / 100] * 1e6,
           cpu / count / names * 1e6, count * names, count * names / took);
    return 0;
}
