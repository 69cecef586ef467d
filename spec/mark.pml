/* A restart guard that is shorter than max_ttl: a model for Spin.
 *
 * Client 0 uses a ttl of HIGH, which is max_ttl, and wants to hold a lock on three nodes. Clients of a ttl of LOW watch
 * for a moment at which a majority of the nodes that they use is free: one of them would be granted the lock. Client 0
 * writes a mark to all nodes. When a majority has answered within SLACK, it may ask for leases for PERMIT. A client that
 * meets a node that has restarted asks two others for the mark, and uses the node after LOW and SLACK if neither has
 * one. Otherwise it waits for WHOLE. Time is counted in ticks. A command stays under way for as long as it likes, and is
 * gone if its node restarts. A client that begins anew knows what the uptime of the nodes says. Leases are granted at
 * once, which is the worst case. `./task model spec --whole --only mark` has the runs.
 *
 * S1 has to hold in every state. WITHOUT=x takes a part away:
 *   WRITES   the mark is written before the ttl is used
 *   MOST     it is written to a majority
 *   PROMPT   an answer counts for the permission only for SLACK after the question
 *   LASTS    a mark outlives the last lease for which it was written
 *   READS    a guard reads a majority
 *   AGAIN    a node is asked for its mark only when the guarded node has run for LOW and SLACK
 *   USED     marks are read on nodes that the reader itself uses
 *   AGED     and whose marks it knows to be whole: their own guard was a short one, or they have run for a mark's LIFE
 */
#ifndef WITHOUT
#define WITHOUT 0
#endif
#ifndef RESTARTS
#define RESTARTS 2
#endif
#ifndef PERMIT
#define PERMIT 2
#endif
mtype:part = { WRITES, MOST, PROMPT, LASTS, READS, AGAIN, USED, AGED };
#define PART(x) (WITHOUT != x)
#define N 3
#define LOW 1
#define HIGH 3
#define SLACK 1
#define SHORT (LOW + SLACK)
#define WHOLE (HIGH + SLACK)
#define LIFE (SLACK + PERMIT + HIGH)

/* A node: the rest of client 0's lease, the rest of its mark, for how long it has run. */
byte lease[N], mark[N], age[N];
/* Client 0: the rest of its bound at each node; the write under way, its answer; for how long answers count. */
byte bound[N], permit, counts;
bit sent[N], done[N];
/* The clients of a ttl of LOW: whether they use each node, whether after a short guard, and whether the next node and
 * the one after that were asked and had no mark. */
bit uses[N], brief[N], first[N], second[N];
byte restarts = RESTARTS;
hidden byte i, spare, holds, S1;

#define NEXT(x) (((x) + 1) % N)
#define LAST(x) (((x) + 2) % N)
#define DOWN(x) x = (x > 0 -> x - 1 : 0)
#define WITNESS(y) ((uses[y] || !PART(USED)) && (brief[y] || age[y] >= LIFE || !PART(AGED) || !PART(USED)))

inline check() {
    spare = 0; holds = 0;
    for (i : 0 .. N - 1) {
        spare = spare + (uses[i] && lease[i] == 0);
        holds = holds + (bound[i] > 0)
    };
    i = 0; S1 = !(spare >= 2 && holds >= 2); assert(S1); spare = 0; holds = 0
}
inline use(x, how) { uses[x] = 1; brief[x] = how; first[x] = 0; second[x] = 0 }
inline tick() {
    for (i : 0 .. N - 1) {
        DOWN(lease[i]); DOWN(bound[i]); DOWN(mark[i]);
        age[i] = (age[i] < LIFE -> age[i] + 1 : LIFE);
        /* When it has run for as long as a mark lasts, it does not matter how its guard ended. */
        brief[i] = brief[i] && age[i] < LIFE;
        if :: !uses[i] && age[i] >= WHOLE -> use(i, 0) :: else fi
    };
    DOWN(counts); DOWN(permit);
    for (i : 0 .. N - 1) { done[i] = done[i] && (counts > 0 || !PART(PROMPT)) };
    i = 0; check()
}
inline begin_anew() {
    for (i : 0 .. N - 1) { uses[i] = age[i] >= WHOLE; brief[i] = 0; first[i] = 0; second[i] = 0 };
    i = 0
}
/* A client asks another node for its mark, for the guard of node x. */
#define READ(x, y, slot) :: d_step { !uses[x] && !slot[x] && mark[y] == 0 && WITNESS(y) && \
    (age[x] >= SHORT || !PART(AGAIN)) -> slot[x] = 1; skip }
#define END(x) :: d_step { !uses[x] && age[x] >= SHORT && (PART(READS) -> first[x] && second[x] : first[x] || second[x]) -> \
    use(x, 1); check(); skip }
#define HEAR(x) :: d_step { sent[x] -> sent[x] = 0; mark[x] = (PART(LASTS) -> LIFE : SLACK + PERMIT); \
    done[x] = counts > 0 || !PART(PROMPT); skip }
#define ASK(x) :: d_step { (age[x] >= WHOLE || uses[x]) && (permit > 0 || !PART(WRITES)) && bound[x] < HIGH -> \
    lease[x] = HIGH; bound[x] = HIGH; check(); skip }
#define RESTART(x) :: d_step { restarts > 0 -> restarts--; lease[x] = 0; mark[x] = 0; age[x] = 0; \
    sent[x] = 0; uses[x] = 0; brief[x] = 0; first[x] = 0; second[x] = 0; skip }
#define EACH(x) READ(x, NEXT(x), first) READ(x, LAST(x), second) END(x) HEAR(x) ASK(x) RESTART(x)

init {
    d_step { for (i : 0 .. N - 1) { age[i] = LIFE; uses[i] = 1 }; i = 0 }
end:do
    EACH(0) EACH(1) EACH(2)
    :: d_step { PART(WRITES) && counts == 0 ->
        for (i : 0 .. N - 1) { done[i] = 0; sent[i] = age[i] >= WHOLE || uses[i] }; i = 0; counts = SLACK + 1; skip }
    :: d_step { PART(WRITES) && done[0] + done[1] + done[2] >= 1 + PART(MOST) -> permit = PERMIT;
        for (i : 0 .. N - 1) { done[i] = 0 }; i = 0; skip }
    :: d_step { begin_anew(); skip }
    :: d_step { tick(); skip }
    od
}
