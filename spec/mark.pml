/* A restart guard that is as long as the longest ttl in use, in place of max_ttl: a model for Spin. It is not built.
 *
 * Client 0 uses a ttl of HIGH, which is max_ttl, and wants to hold a lock on three nodes. Clients of a ttl of LOW watch
 * for a moment at which a majority of the nodes that they use is free: one of them would be granted the lock. A node
 * keeps a mark, a bound on the ttls in use; without one it is LOW. Client 0 writes HIGH to a majority, and may then ask
 * for leases for PERMIT. A client that meets a node that has restarted reads the marks of a majority of the others that
 * it uses, and uses the node when it has run for as long as the highest of them, and SLACK. If it can read no majority,
 * it waits for WHOLE. Time is counted in ticks. A command stays under way for as long as it likes, and is gone if its
 * node restarts. A client that begins anew knows what the uptime of the nodes says. Leases are granted at once, which is
 * the worst case. `./task spec --whole --only mark` has the runs.
 *
 * S1 has to hold in every state. WITHOUT=x takes a part away:
 *   WRITES   the mark is written before the ttl is used
 *   MOST     it is written to a majority
 *   READS    a guard reads a majority
 *   RAISES   a write never lowers a mark
 *   LASTS    a mark outlives the last lease for which it was written
 *   PROMPT   an answer counts for the permission only for SLACK after the question
 *   AGAIN    a mark that was read counts only if the guarded node had run for that long, and SLACK, by then
 *   HANDS    the client that ends a guard writes the mark to that node (needed only if PERMIT is longer than WHOLE)
 *   MINE     marks are read on nodes that the reader itself uses
 */
#ifndef WITHOUT
#define WITHOUT 0
#endif
#ifndef RESTARTS
#define RESTARTS 2
#endif
#ifndef PERMIT
#define PERMIT 1
#endif
mtype:part = { WRITES, MOST, READS, RAISES, LASTS, PROMPT, AGAIN, HANDS, MINE };
#define PART(x) (WITHOUT != x)
#define N 3
#define LOW 1
#define HIGH 3
#define SLACK 1
#define WHOLE (HIGH + SLACK)
#define LIFE (SLACK + PERMIT + PART(LASTS) * HIGH)

/* A node: the rest of client 0's lease, its mark, the rest of a high mark, for how long it has run. */
byte lease[N], mark[N], life[N], age[N];
/* Client 0: the rest of its bound at each node; its question under way, for how long the answer counts, the answer. */
byte bound[N], counts[N], permit;
bit sent[N], done[N];
/* The clients of a ttl of LOW: of each node, whether it is guarded (0), gets the mark (1) or is used (2), and what was
 * read of the next node, and of the one after that (0: nothing). */
byte knows[N], first[N], second[N];
byte restarts = RESTARTS;
hidden byte i, value, spare, holds, S1;

#define NEXT(x) (((x) + 1) % N)
#define LAST(x) (((x) + 2) % N)
#define TOP(x) (first[x] > second[x] -> first[x] : second[x])
#define DOWN(x) x = (x > 0 -> x - 1 : 0)
#define READ_ALL(x) (PART(READS) -> first[x] > 0 && second[x] > 0 : first[x] + second[x] > 0)

inline check() {
    spare = 0; holds = 0;
    for (i : 0 .. N - 1) {
        spare = spare + (knows[i] == 2 && lease[i] == 0);
        holds = holds + (bound[i] > 0)
    };
    i = 0; S1 = !(spare >= 2 && holds >= 2); assert(S1); spare = 0; holds = 0
}
inline put(x, what) {
    mark[x] = (PART(RAISES) && mark[x] > what -> mark[x] : what); life[x] = (mark[x] == HIGH -> LIFE : 0)
}
inline tick() {
    for (i : 0 .. N - 1) {
        DOWN(lease[i]); DOWN(bound[i]); DOWN(life[i]); DOWN(counts[i]);
        mark[i] = (life[i] > 0 -> HIGH : LOW);
        age[i] = (age[i] < WHOLE -> age[i] + 1 : WHOLE);
        done[i] = done[i] && (counts[i] > 0 || !PART(PROMPT));
        if :: knows[i] == 0 && age[i] >= WHOLE -> knows[i] = 2; first[i] = 0; second[i] = 0 :: else fi
    };
    i = 0; DOWN(permit); check()
}
inline begin_anew() {
    for (i : 0 .. N - 1) { knows[i] = (age[i] >= WHOLE -> 2 : 0); first[i] = 0; second[i] = 0 };
    i = 0
}
/* A client reads, for the guard of node x, the mark of another node. */
#define READ(x, y, slot) :: d_step { knows[x] == 0 && slot[x] == 0 && (knows[y] == 2 || !PART(MINE)) && \
    (age[x] >= mark[y] + SLACK || !PART(AGAIN)) -> slot[x] = mark[y]; skip }
#define END(x) :: d_step { knows[x] == 0 && READ_ALL(x) && age[x] >= TOP(x) + SLACK -> \
    knows[x] = (PART(HANDS) -> 1 : 2); if :: !PART(HANDS) -> first[x] = 0; second[x] = 0 :: else fi; check(); skip }
#define HAND(x) :: d_step { knows[x] == 1 -> value = TOP(x); put(x, value); value = 0; knows[x] = 2; first[x] = 0; second[x] = 0; check(); skip }
#define SAY(x) :: d_step { PART(WRITES) && age[x] >= WHOLE && !sent[x] && !done[x] -> sent[x] = 1; counts[x] = SLACK + 1; skip }
#define HEAR(x) :: d_step { sent[x] -> sent[x] = 0; put(x, HIGH); done[x] = counts[x] > 0 || !PART(PROMPT); \
    counts[x] = (done[x] -> counts[x] : 0); skip }
#define ASK(x) :: d_step { age[x] >= WHOLE && (permit > 0 || !PART(WRITES)) && bound[x] < HIGH -> \
    lease[x] = HIGH; bound[x] = HIGH; check(); skip }
#define RESTART(x) :: d_step { restarts > 0 -> restarts--; lease[x] = 0; mark[x] = LOW; life[x] = 0; age[x] = 0; \
    sent[x] = 0; knows[x] = 0; first[x] = 0; second[x] = 0; counts[x] = (done[x] -> counts[x] : 0); skip }
#define EACH(x) READ(x, NEXT(x), first) READ(x, LAST(x), second) END(x) HAND(x) SAY(x) HEAR(x) ASK(x) RESTART(x)

init {
    d_step { for (i : 0 .. N - 1) { age[i] = WHOLE; mark[i] = LOW; knows[i] = 2 }; i = 0 }
end:do
    EACH(0) EACH(1) EACH(2)
    :: d_step { PART(WRITES) && permit == 0 && done[0] + done[1] + done[2] >= 1 + PART(MOST) -> permit = PERMIT;
        for (i : 0 .. N - 1) { done[i] = 0; counts[i] = (sent[i] -> counts[i] : 0) }; i = 0; skip }
    :: d_step { begin_anew(); skip }
    :: d_step { tick(); skip }
    od
}
