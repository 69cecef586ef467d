/* The lock protocol of holdfast, as a model for Spin. Rule numbers are those of docs/protocol.md.
 *
 * CLIENTS clients want one lock on N nodes, once each. A smaller client number is a lower ticket. Each client has an
 * ordered connection to each node, where commands and answers stay for as long as they like. What can happen, in any
 * order: a client begins; a node executes a command; a client hears an answer or a push; a holder releases the lock.
 * And at most so often in one run:
 *   BREAKS    a connection breaks; the node executes some of the commands under way later, and never the others
 *   RESTARTS  a node restarts and forgets everything, and clients leave it alone until its guard is over
 *   RENEWALS  a client sends its request to all nodes again: a heartbeat, a renewal or an extension
 *   LAPSES    time passes for a holder: every grant that it has not renewed is over
 *   DELETES   the fence record of a node is deleted. Denials tell F (F11), and S2 is asked of those who were told of T
 * Time has no numbers. Each request belongs to a `round` of its client, and `over` is the latest round whose bounds
 * have passed. A node may end a lease at any moment after that, and not before: a bound is before the lease's end (C2).
 * When a guard ends, what the node granted before the restart is over: a guard is longer than every ttl (G1, C19). The
 * clock floor is then not below a fence that was forgotten (F1). docs/proof.md argues these three facts. Nothing else
 * is assumed of time: leases, guards and messages last for as long as they like. A client notices a break or a restart
 * at once. Not here: tries, clients that give up or crash, foreign holders, the gap rule (C12 to C14), clocks (F2 to
 * F7), waiters whose grants lapse. `./task model` and `./task sim` explore those.
 *
 * Checked: V, S1 and S2 in every state; L1 (with faults: L2), which is that all were served when nothing can happen any
 * more, and that no run is endless. WITHOUT=Q9 takes rule Q9 away. spec/check.py has the runs. By hand:
 *   spin -a lock.pml && gcc -O2 -DSAFETY -o pan pan.c && ./pan       (spin -DCLIENTS=3 ...: then give all of them)
 */

#ifndef CLIENTS
#define CLIENTS 2
#define N 3
#define FENCES 1
#define BREAKS 0
#define RESTARTS 0
#define RENEWALS 0
#define LAPSES 0
#define DELETES 0
#define WITHOUT 0
#endif
#define FAULTS (BREAKS + RESTARTS + RENEWALS + LAPSES > 0)
mtype:rule = { C1, C2, C3, C5, C6, F1, F1_floor, F8, F9, F11, G1, K5, Q1, Q3, Q4, Q5, Q7, Q8, Q9, Q10, Q11, Q12, Q16 };
#define RULE(x) (WITHOUT != x)
#define Q (N / 2 + RULE(C1))                                /* C1: a majority */
#define MAX(a, b) ((a) > (b) -> (a) : (b))

/* A token is a number, and a lower number is a lower token. Each client has two: one is for starting over (Q11). */
#define NONE 0
#define TOKEN(c) (2 * (c) + 1 + second[c])
#define OWNER(t) (((t) - 1) / 2)
#define TICKET(t) (FENCES * OWNER(t) + 1)
#define BIT(t) (1 << (t))

/* T1: one ordered connection for each client and node. A command: word, token, proposed fence, round. To a client:
 * word, token, fence, round of the request that is answered, does a lower token wait, is it the answer to a cede. */
#define LINKS (CLIENTS * N)
#define AT(c, i) ((c) * N + (i))
mtype:word = { REQUEST, CEDE, RELEASE, GRANTED, DENIED, PUSH, INQUIRY };
chan to_node[LINKS] = [6] of { mtype:word, byte, byte, byte };
chan to_client[LINKS] = [6] of { mtype:word, byte, byte, byte, bit, bit };
chan late[LINKS] = [6] of { mtype:word, byte, byte, byte }; /* commands whose connection broke */

/* A node keeps the holder's token, the round of its lease, the queue (a bit for each token), deadlines, the fence. */
byte holder[N], lease[N], queue[N], fence[N], deadline[N * (2 * CLIENTS + 1)];
bit guard[N];
#define DEADLINE(i, t) deadline[(i) * (2 * CLIENTS + 1) + (t)]
#define LOWER(i, t) ((queue[i] & (BIT(t) - 1)) != 0)

/* A client keeps its state, rounds, the fence that it proposes and the fence that it holds. Of each node: the vote. */
#define IDLE 0
#define WAITING 1
#define HELD 2
#define OVER 3
byte state[CLIENTS], round[CLIENTS], over[CLIENTS], propose[CLIENTS], above[CLIENTS], mine[CLIENTS];
bit second[CLIENTS], down[LINKS], granted[LINKS], ceding[LINKS], burnt[LINKS];
byte told[LINKS], bound[LINKS], base[LINKS], wrote[LINKS];
#define LIVE(c) (state[c] == WAITING || state[c] == HELD)
#define COUNTS(c, i) (granted[AT(c, i)] && (bound[AT(c, i)] > over[c] || !RULE(C5)))        /* C5: in time */
byte breaks = BREAKS, restarts = RESTARTS, renewals = RENEWALS, lapses = LAPSES, deletes = DELETES;
byte latest;                                                /* the last holder's fence */
hidden byte V, S1, S2, served;                              /* the properties */
hidden mtype:word word;                                     /* from here on: for use within one step */
hidden byte token, proposed, said, when, head, node, node2, other, client, whose, votes, most, lower, to_cede, fresh;

/* ---- What a node does */
inline look(i) {                                            /* V: a node that counts holds the token */
    V = 1; for (other : 0 .. CLIENTS - 1) {
        V = V && (!LIVE(other) || !COUNTS(other, i) || holder[i] == TOKEN(other) || guard[i]) }; assert(V)
}
inline denied(c, x_fence) {                                 /* F11: T is above every fence that a denial told */
    above[c] = (state[c] == WAITING -> MAX(above[c], x_fence * FENCES) : 0);
    propose[c] = (above[c] > 0 && RULE(F11) -> MAX(propose[c], above[c] + 1) : propose[c])
}
inline say(t, i, x_word, x_fence, x_round, x_lower, x_cede) {   /* not what would change nothing */
    whose = OWNER(t);
    if
    :: down[AT(whose, i)] || state[whose] == IDLE || (x_word == INQUIRY && state[whose] == HELD) -> skip
    :: else ->
        if                                                  /* T7: a grant that is not wanted is given back */
        :: state[whose] == OVER && x_word == PUSH && len(to_node[AT(whose, i)]) == 0 -> send(whose, i, RELEASE, t)
        :: LIVE(whose) && x_word == DENIED && !x_cede && len(to_client[AT(whose, i)]) == 0 && t == TOKEN(whose) &&
           !granted[AT(whose, i)] && !ceding[AT(whose, i)] -> base[AT(whose, i)] = x_round; denied(whose, x_fence)
        :: else -> if :: LIVE(whose) -> to_client[AT(whose, i)]!x_word, t, x_fence, x_round, x_lower, x_cede :: else fi
        fi
    fi
}
inline promote(i, caller, by_caller) {                      /* Q3: a free lock goes to the lowest waiter */
    if
    :: queue[i] != 0 && RULE(Q3) ->
        head = 1;
        do :: !(queue[i] & BIT(head)) -> head++ :: else -> break od;
        if                                                  /* Q1: in the same order on all nodes */
        :: !RULE(Q1) && i == 1 -> head = 2 * CLIENTS; do :: !(queue[i] & BIT(head)) -> head-- :: else -> break od
        :: else fi;
        queue[i] = queue[i] & ~BIT(head);
        most = (head == caller -> by_caller : TICKET(head));
        fence[i] = MAX(fence[i] + (RULE(F1) && FENCES), most);  /* F1: a grant raises the fence */
        holder[i] = head;
        lease[i] = DEADLINE(i, head); DEADLINE(i, head) = 0;
        if :: head != caller && RULE(Q4) -> say(head, i, PUSH, fence[i], 0, 0, 0) :: else fi
    :: else fi
}
inline execute(i, answers) {                                /* word, token, proposed, when */
    to_cede = word == CEDE;
    if
    :: word == RELEASE ->
        queue[i] = queue[i] & ~BIT(token); DEADLINE(i, token) = 0;
        if :: holder[i] == token || !RULE(Q16) -> holder[i] = NONE; lease[i] = 0 :: else fi;    /* Q16: it compares */
        if :: holder[i] == NONE -> promote(i, NONE, 0) :: else fi
    :: word != RELEASE && holder[i] == token && !(to_cede && LOWER(i, token)) ->    /* C7: it extends */
        lease[i] = (RULE(K5) -> MAX(lease[i], when) : when);                        /* K5: never back */
        fence[i] = MAX(fence[i], proposed)
    :: else ->                                              /* Q2: it queues first, and is promoted in its turn */
        fresh = holder[i] != token && !(queue[i] & BIT(token));
        queue[i] = queue[i] | BIT(token);
        DEADLINE(i, token) = (RULE(Q5) -> MAX(DEADLINE(i, token), when) : when);    /* Q5: never earlier */
        if :: holder[i] == token -> holder[i] = NONE; lease[i] = 0 :: else fi;
        if
        :: holder[i] == NONE -> promote(i, token, proposed)
        :: holder[i] > token && fresh && RULE(Q7) -> say(holder[i], i, INQUIRY, 0, 0, 1, 0)     /* Q7: make way */
        :: else fi
    fi;
    if
    :: answers && word != RELEASE && holder[i] == token ->
        say(token, i, GRANTED, fence[i], when, (LOWER(i, token) && RULE(Q7)), to_cede)
    :: answers && word != RELEASE && holder[i] != token -> say(token, i, DENIED, DELETES * fence[i], when, 0, to_cede)
    :: else fi;
    look(i)
}

/* ---- What a client does */
inline send(c, i, x_word, t) {
    if :: !down[AT(c, i)] -> to_node[AT(c, i)]!x_word, t, propose[c], round[c] :: else fi
}
inline ask(c) {
    for (node : 0 .. N - 1) { if :: !burnt[AT(c, node)] -> send(c, node, REQUEST, TOKEN(c)) :: else fi }
}
inline drain(c, i) { do :: len(to_client[AT(c, i)]) > 0 -> to_client[AT(c, i)]?_, _, _, _, _, _ :: else -> break od }
inline drop(c, i) { granted[AT(c, i)] = 0; told[AT(c, i)] = 0; bound[AT(c, i)] = 0; wrote[AT(c, i)] = 0 }
inline forget(c, i) { drop(c, i); ceding[AT(c, i)] = 0; burnt[AT(c, i)] = 0; base[AT(c, i)] = 0 }
inline leave(c) {                                           /* C10: the release is the last command about a token */
    for (node : 0 .. N - 1) { forget(c, node); drain(c, node); send(c, node, RELEASE, TOKEN(c)) }
    state[c] = OVER; propose[c] = 0; above[c] = 0; round[c] = 0; over[c] = 0; mine[c] = 0
}
inline count(c) { votes = 0; for (node : 0 .. N - 1) { votes = votes + COUNTS(c, node) } }
inline agree(c) {           /* said: the fence on which Q nodes that count agree (F8); most: the highest fence of all */
    said = 0; most = 0;
    for (node : 0 .. N - 1) {
        votes = 0;
        for (node2 : 0 .. N - 1) {
            votes = votes + (COUNTS(c, node) && COUNTS(c, node2) && told[AT(c, node)] == told[AT(c, node2)]) }
        if :: votes >= Q -> said = told[AT(c, node)] :: else fi;
        most = (COUNTS(c, node) -> MAX(most, told[AT(c, node)]) : most)
    }
    count(c);
    said = (!RULE(F8) && votes >= Q -> most : (said > above[c] || !RULE(F11) -> said : 0))
}
inline decide(c, i) {                                       /* `lower`: a lower token waits on node i */
    agree(c);
    if
    :: state[c] == HELD && votes < Q && RULE(C6) -> leave(c)                        /* C6: lost */
    :: state[c] == HELD && votes >= Q -> S2 = mine[c] == latest; assert(S2)         /* nobody had it in between */
    :: state[c] == WAITING && said > 0 ->                                           /* C5: held */
        S1 = 1;
        for (other : 0 .. CLIENTS - 1) { count(other); S1 = S1 && !(state[other] == HELD && votes >= Q) }
        S2 = !FENCES || said > latest || (deletes < DELETES && above[c] < latest);   /* or nobody could tell it */
        assert(S1); assert(S2);
        state[c] = HELD; mine[c] = said * FENCES; latest = mine[c]; propose[c] = mine[c]; above[c] = 0  /* F10 */
    :: state[c] == WAITING && said == 0 ->
        if                                                                          /* Q8: a waiter makes way */
        :: lower && COUNTS(c, i) && !down[AT(c, i)] && RULE(Q8) ->
            drop(c, i); ceding[AT(c, i)] = 1; send(c, i, CEDE, TOKEN(c)); agree(c)
        :: else fi;
        propose[c] = (votes >= Q && RULE(F9) -> MAX(propose[c], most) : propose[c]);
        for (node : 0 .. N - 1) {                           /* F9: write-back, once for each fence */
            if
            :: votes >= Q && RULE(F9) && COUNTS(c, node) && !down[AT(c, node)] && told[AT(c, node)] < propose[c] &&
               wrote[AT(c, node)] != propose[c] -> wrote[AT(c, node)] = propose[c]; send(c, node, REQUEST, TOKEN(c))
            :: else fi
        }
    :: else fi
}
inline hear(c, i) {                                         /* word, token, said, when, lower, to_cede */
    ceding[AT(c, i)] = ceding[AT(c, i)] && !(to_cede && token == TOKEN(c));
    if
    :: token != TOKEN(c) || burnt[AT(c, i)] ->              /* T7, Q10: a grant that is not wanted is given back */
        if :: word == PUSH || (word == GRANTED && burnt[AT(c, i)]) -> send(c, i, RELEASE, token) :: else fi
    :: token == TOKEN(c) && !burnt[AT(c, i)] && !(ceding[AT(c, i)] && RULE(Q9)) ->  /* Q9: or nothing counts */
        base[AT(c, i)] = (word == GRANTED || word == DENIED -> when : base[AT(c, i)]);
        if
        :: word == GRANTED || (word == PUSH && base[AT(c, i)] > 0) ->
            when = (word == PUSH -> base[AT(c, i)] : when);         /* C3: by the latest answered request */
            when = ((word == PUSH && !RULE(C3)) || (word == GRANTED && !RULE(C2)) -> round[c] : when);
            bound[AT(c, i)] = MAX(bound[AT(c, i)], when);           /* C2: from the sending of the request */
            granted[AT(c, i)] = 1; told[AT(c, i)] = said
        :: word == DENIED -> drop(c, i); denied(c, said)
        :: else fi;
        look(i); decide(c, i)
    :: else fi
}
inline broke(c, i) {                                        /* C11: what the node has granted counts on */
    drain(c, i);
    down[AT(c, i)] = 1; base[AT(c, i)] = 0; wrote[AT(c, i)] = 0;
    if
    :: ceding[AT(c, i)] && state[c] == WAITING && RULE(Q10) && RULE(Q11) ->         /* Q11: a waiter starts over */
        token = TOKEN(c); second[c] = 1;
        for (node : 0 .. N - 1) { forget(c, node); send(c, node, REQUEST, TOKEN(c)); send(c, node, RELEASE, token) }
    :: ceding[AT(c, i)] && (state[c] == HELD || !RULE(Q11)) && RULE(Q10) -> burnt[AT(c, i)] = 1     /* Q10 */
    :: else fi;
    ceding[AT(c, i)] = 0
}
inline join(c, i) {
    down[AT(c, i)] = 0; if
    :: state[c] == OVER || burnt[AT(c, i)] -> send(c, i, RELEASE, TOKEN(c))         /* T6, Q10 */
    :: state[c] == WAITING && !burnt[AT(c, i)] -> send(c, i, REQUEST, TOKEN(c))     /* C16 */
    :: else fi
}

/* ---- What can happen at a node */
#define BUSY(c, i) (len(to_node[AT(c, i)]) + len(late[AT(c, i)]) > 0)
#define CURRENT(t) (LIVE(OWNER(t)) && t == TOKEN(OWNER(t)))
#define ENDED(i) (CURRENT(holder[i]) -> over[OWNER(holder[i])] >= lease[i] : !BUSY(OWNER(holder[i]), i))
#define EXECUTE(c) :: d_step { to_node[AT(c, _pid)]?word, token, proposed, when -> execute(_pid, true); skip }
#define LATE(c) :: d_step { late[AT(c, _pid)]?word, token, proposed, when -> execute(_pid, false); skip }
active [N] proctype Node() {
end:do
    EXECUTE(0) EXECUTE(1) LATE(0) LATE(1)
#if CLIENTS > 2
    EXECUTE(2)
#endif
    :: d_step { FAULTS && holder[_pid] != NONE && ENDED(_pid) ->
        holder[_pid] = NONE; lease[_pid] = 0; look(_pid); skip }
    :: d_step {                                             /* nodes are alike, so it is the first one that restarts */
        restarts && _pid == 0 -> restarts--; guard[0] = 1;
        holder[0] = NONE; lease[0] = 0; queue[0] = 0;
        fence[0] = RULE(F1_floor) * fence[0];               /* F1: after the guard, the clock floor is not below it */
        for (client : 0 .. CLIENTS - 1) {
            DEADLINE(0, 2 * client + 1) = 0; DEADLINE(0, 2 * client + 2) = 0;
            do :: len(to_node[AT(client, 0)]) > 0 -> to_node[AT(client, 0)]?_, _, _, _
               :: len(late[AT(client, 0)]) > 0 -> late[AT(client, 0)]?_, _, _, _ :: else -> break od;
            broke(client, 0)
        }; skip
    }
    :: d_step { deletes && _pid == 0 && fence[0] > 0 -> deletes--; fence[0] = 0; skip }
    :: d_step {                                             /* G1: by now, what it granted before is over */
        _pid == 0 && guard[0] -> guard[0] = 0; lower = 0;
        for (client : 0 .. CLIENTS - 1) {
            if :: LIVE(client) -> drop(client, 0); decide(client, 0) :: else fi };
        look(0); skip
    }
    od
}

/* ---- What can happen at a client */
#define HEAR(i) :: d_step { to_client[AT(c, i)]?word, token, said, when, lower, to_cede -> hear(c, i); skip }
#define JOIN(i) :: d_step { down[AT(c, i)] && !(guard[i] && RULE(G1)) -> join(c, i); skip }
#define BREAK(i) :: atomic { breaks > i && !down[AT(c, i)] && state[c] != IDLE -> breaks--; \
    do :: d_step { to_node[AT(c, i)]?word, token, proposed, when -> late[AT(c, i)]!word, token, proposed, when } \
       :: break od; \
    d_step { do :: len(to_node[AT(c, i)]) > 0 -> to_node[AT(c, i)]?_, _, _, _ :: else -> break od; \
             broke(c, i); join(c, i); skip } }
/* Q12, Q13: a waiter asks again, where that can change something. */
#define SETTLED(i) ((holder[i] == TOKEN(c) && lease[i] > over[c] && COUNTS(c, i)) || \
                    (holder[i] != NONE && (queue[i] & BIT(TOKEN(c)))))
#define HEARTBEAT(i) :: d_step { FAULTS && RULE(Q12) && state[c] == WAITING && !down[AT(c, i)] && \
    !burnt[AT(c, i)] && !SETTLED(i) && len(to_node[AT(c, i)]) + len(to_client[AT(c, i)]) == 0 -> \
    round[c] = MAX(round[c], over[c] + 1); send(c, i, REQUEST, TOKEN(c)) }
active [CLIENTS] proctype Client() {
    byte c = _pid - N;
end:do
    :: d_step { state[c] == IDLE -> state[c] = WAITING; round[c] = 1; propose[c] = TICKET(TOKEN(c)); ask(c); skip }
    :: d_step { state[c] == HELD -> leave(c); skip }
    HEAR(0) JOIN(0) BREAK(0) HEARTBEAT(0)
#if N > 1
    HEAR(1) JOIN(1) BREAK(1) HEARTBEAT(1)
    HEAR(2) HEARTBEAT(2)
#endif
    :: d_step { renewals && LIVE(c) && round[c] == over[c] + 1 -> renewals--; round[c]++; ask(c); skip }        /* C8 */
    :: d_step { lapses && state[c] == HELD && over[c] < round[c] -> lapses--; over[c]++; lower = 0; decide(c, 0); skip }
    od
}
active proctype End() {                                     /* when nothing can happen any more, all have been served */
    timeout;
    d_step { served = 1; for (client : 0 .. CLIENTS - 1) { served = served && state[client] == OVER }; assert(served) }
}
