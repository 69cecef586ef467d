/* HEAD */
#ifndef CLIENTS
#define CLIENTS 2
#endif
#ifndef N
#define N 3
#endif
#ifndef FENCES
#define FENCES 1
#endif
#ifndef BREAKS
#define BREAKS 0
#endif
#ifndef RESTARTS
#define RESTARTS 0
#endif
#ifndef RENEWALS
#define RENEWALS 0
#endif
#ifndef LAPSES
#define LAPSES 0
#endif
#ifndef WITHOUT
#define WITHOUT 0
#endif
#define FAULTS (BREAKS + RESTARTS + RENEWALS + LAPSES > 0)
mtype:rule = { C1, C2, C3, C5, C6, F1, F1_floor, F8, F9, G1, K5, Q1, Q3, Q4, Q5, Q7, Q8, Q9, Q10, Q11, Q12, Q16, T1 };
#define RULE(x) (WITHOUT != x)

mtype:word = { REQUEST, CEDE, RELEASE, GRANTED, DENIED, PUSH, INQUIRY };
#define IDLE 0
#define WAITING 1
#define HELD 2
#define OVER 3
#define UP 0
#define CUT 1
#define DOWN 2
#define NONE 0
#define TOKEN(c) (2 * (c) + 1 + second[c])
#define OWNER(t) (((t) - 1) / 2)
#define TICKET(t) (FENCES * (OWNER(t) + 1))
#define TOKENS (2 * CLIENTS)
#define BIT(t) (1 << (t))
#define LOWER(i, t) ((queue[i] & (BIT(t) - 1)) != 0)
#define AT(c, i) ((c) * N + (i))
#define LINKS (CLIENTS * N)
#define MAX(a, b) ((a) > (b) -> (a) : (b))
#define Q (N / 2 + RULE(C1))                                            /* C1 */

/* The network: for each client and node an ordered connection (T1). */
chan to_node[LINKS] = [6] of { mtype:word, byte, byte, byte };             /* word, token, proposed fence, round */
chan to_client[LINKS] = [6] of { mtype:word, byte, byte, byte, bit, bit }; /* word, token, fence, round, lower?, to a cede? */
chan late[LINKS] = [6] of { mtype:word, byte, byte, byte };                /* commands that outlive their connection */
byte link[LINKS];

/* What a node keeps. */
byte holder[N], lease[N], queue[N], fence[N], deadline[N * (TOKENS + 1)];
#define DEADLINE(i, t) deadline[(i) * (TOKENS + 1) + (t)]
bit guard[N];

/* What a client keeps: of itself, and of each node. */
byte state[CLIENTS], round[CLIENTS], over[CLIENTS], before[CLIENTS], propose[CLIENTS], mine[CLIENTS];
bit second[CLIENTS];
bit granted[LINKS], ceding[LINKS], burnt[LINKS];
byte told[LINKS], bound[LINKS], base[LINKS], wrote[LINKS];
#define LIVE(c) (state[c] == WAITING || state[c] == HELD)
#define COUNTS(c, i) (granted[AT(c, i)] && (bound[AT(c, i)] > over[c] || !RULE(C5)))
#define CURRENT(t) (LIVE(OWNER(t)) && t == TOKEN(OWNER(t)))
#define UNDER_WAY(c, i) (len(to_node[AT(c, i)]) + len(late[AT(c, i)]) > 0)
#define ENDED(i, t, r) (CURRENT(t) -> over[OWNER(t)] >= (r) : !UNDER_WAY(OWNER(t), i))

byte breaks = BREAKS, restarts = RESTARTS, renewals = RENEWALS, lapses = LAPSES;
byte latest;                                /* the fence of the latest holder */
hidden byte S1 = 1, S2 = 1, V = 1, served = 1;
hidden mtype:word word;
hidden byte token, proposed, said, when, head, node, node2, other, client, whose, votes, most;
hidden byte lower, to_cede, fresh;

inline say(t, i, x_word, x_fence, x_round, x_lower, x_cede) {
    whose = OWNER(t);
    if
    :: link[AT(whose, i)] != UP || state[whose] == IDLE -> skip
    :: link[AT(whose, i)] == UP && LIVE(whose) ->
        if
        :: x_word == INQUIRY && state[whose] == HELD -> skip
        :: x_word == DENIED && !x_cede && len(to_client[AT(whose, i)]) == 0 && !granted[AT(whose, i)] &&
                !ceding[AT(whose, i)] && t == TOKEN(whose) -> base[AT(whose, i)] = x_round
        :: else -> to_client[AT(whose, i)]!x_word, t, x_fence, x_round, x_lower, x_cede
        fi
    :: link[AT(whose, i)] == UP && state[whose] == OVER ->
        if
        :: x_word == PUSH && len(to_node[AT(whose, i)]) == 0 -> to_node[AT(whose, i)]!RELEASE, t, 0, 0      /* T7 */
        :: else
        fi
    fi
}
inline promote(i, caller, by_caller) {
    if
    :: queue[i] != 0 && RULE(Q3) ->
        head = 1;
        do
        :: !(queue[i] & BIT(head)) -> head++
        :: else -> break
        od;
        if
        :: !RULE(Q1) && i == 1 ->
            head = TOKENS;
            do
            :: !(queue[i] & BIT(head)) -> head--
            :: else -> break
            od
        :: else
        fi;
        queue[i] = queue[i] & ~BIT(head);
        most = (head == caller -> by_caller : TICKET(head));
        fence[i] = MAX(fence[i] + (RULE(F1) && FENCES), most);
        holder[i] = head;
        lease[i] = DEADLINE(i, head);
        DEADLINE(i, head) = 0;
        if
        :: head != caller && RULE(Q4) -> say(head, i, PUSH, fence[i], 0, 0, 0)
        :: else
        fi
    :: else
    fi
}
inline execute(i, answers) {                /* word, token, proposed, when */
    if
    :: word == RELEASE ->
        queue[i] = queue[i] & ~BIT(token);
        DEADLINE(i, token) = 0;
        if
        :: holder[i] == token || !RULE(Q16) -> holder[i] = NONE; lease[i] = 0
        :: else
        fi;
        if
        :: holder[i] == NONE -> promote(i, NONE, 0)
        :: else
        fi
    :: else ->
        to_cede = word == CEDE;
        if
        :: holder[i] == token && !(to_cede && LOWER(i, token)) ->
            lease[i] = (RULE(K5) -> MAX(lease[i], when) : when);
            fence[i] = MAX(fence[i], proposed)
        :: else ->
            fresh = holder[i] != token && !(queue[i] & BIT(token));
            queue[i] = queue[i] | BIT(token);
            DEADLINE(i, token) = (RULE(Q5) -> MAX(DEADLINE(i, token), when) : when);
            if
            :: holder[i] == token -> holder[i] = NONE; lease[i] = 0
            :: else
            fi;
            if
            :: holder[i] == NONE -> promote(i, token, proposed)
            :: holder[i] > token && fresh && RULE(Q7) -> say(holder[i], i, INQUIRY, 0, 0, 1, 0)
            :: else
            fi
        fi;
        if
        :: answers && holder[i] == token -> say(token, i, GRANTED, fence[i], when, LOWER(i, token) && RULE(Q7), to_cede)
        :: answers && holder[i] != token -> say(token, i, DENIED, 0, when, 0, to_cede)
        :: else
        fi
    fi;
    look(i)
}
inline look(i) {                            /* V: a node that counts holds the token */
    for (other : 0 .. CLIENTS - 1) {
        V = V && (!LIVE(other) || !COUNTS(other, i) || holder[i] == TOKEN(other) || guard[i])
    }
    assert(V)
}

inline send(c, i, x_word, t) {
    if
    :: link[AT(c, i)] == UP -> to_node[AT(c, i)]!x_word, t, propose[c], round[c]
    :: else
    fi
}
inline ask(c) {
    for (node : 0 .. N - 1) {
        if
        :: !burnt[AT(c, node)] -> send(c, node, REQUEST, TOKEN(c))
        :: else
        fi
    }
}
inline hear_no_more(c, i) {
    do
    :: len(to_client[AT(c, i)]) > 0 -> to_client[AT(c, i)]?_, _, _, _, _, _
    :: else -> break
    od
}
inline drop(c, i) { granted[AT(c, i)] = 0; told[AT(c, i)] = 0; bound[AT(c, i)] = 0; wrote[AT(c, i)] = 0 }
inline forget(c, i) { drop(c, i); ceding[AT(c, i)] = 0; burnt[AT(c, i)] = 0; base[AT(c, i)] = 0 }
inline leave(c) {
    for (node : 0 .. N - 1) {
        forget(c, node);
        hear_no_more(c, node);
        send(c, node, RELEASE, TOKEN(c))
    }
    state[c] = OVER; propose[c] = 0; round[c] = 0; over[c] = 0; mine[c] = 0
}
inline count(c) {
    votes = 0;
    for (node : 0 .. N - 1) { votes = votes + COUNTS(c, node) }
}
inline agree(c) {                           /* said: the fence that q nodes which count have said alike; most: the highest */
    said = 0;
    most = 0;
    for (node : 0 .. N - 1) {
        votes = 0;
        for (node2 : 0 .. N - 1) {
            votes = votes + (COUNTS(c, node) && COUNTS(c, node2) && told[AT(c, node)] == told[AT(c, node2)])
        }
        if
        :: votes >= Q -> said = told[AT(c, node)]
        :: else
        fi;
        if
        :: COUNTS(c, node) && told[AT(c, node)] > most -> most = told[AT(c, node)]
        :: else
        fi
    }
    count(c);
    said = (!RULE(F8) && votes >= Q -> most : said)
}
inline decide(c, i) {
    count(c);
    if
    :: state[c] == HELD && votes < Q && RULE(C6) -> leave(c)
    :: state[c] == HELD && votes >= Q ->
        S2 = !FENCES || mine[c] == latest;
        assert(S2)
    :: state[c] == WAITING ->
        agree(c);
        if
        :: said > 0 ->
            for (other : 0 .. CLIENTS - 1) {
                count(other);
                S1 = S1 && !(state[other] == HELD && votes >= Q)
            }
            assert(S1);
            state[c] = HELD;
            S2 = !FENCES || said > latest;
            assert(S2);
            mine[c] = said * FENCES; latest = mine[c]; propose[c] = mine[c]
        :: said == 0 && lower && COUNTS(c, i) && link[AT(c, i)] == UP && RULE(Q8) ->
            drop(c, i);
            ceding[AT(c, i)] = 1;
            send(c, i, CEDE, TOKEN(c))
        :: else
        fi;
        agree(c);
        if
        :: state[c] == WAITING && votes >= Q && RULE(F9) ->
            propose[c] = MAX(propose[c], most);
            for (node : 0 .. N - 1) {
                if
                :: COUNTS(c, node) && told[AT(c, node)] < propose[c] && wrote[AT(c, node)] != propose[c] &&
                        link[AT(c, node)] == UP ->
                    wrote[AT(c, node)] = propose[c];
                    send(c, node, REQUEST, TOKEN(c))
                :: else
                fi
            }
        :: else
        fi
    :: else
    fi
}
inline hear(c, i) {                         /* word, token, said, when, lower, to_cede */
    if
    :: token != TOKEN(c) || burnt[AT(c, i)] ->
        if
        :: word == PUSH || (word == GRANTED && burnt[AT(c, i)]) -> send(c, i, RELEASE, token)
        :: else
        fi
    :: else ->
        ceding[AT(c, i)] = ceding[AT(c, i)] && !to_cede;
        if
        :: ceding[AT(c, i)] && RULE(Q9) -> skip
        :: else ->
            if
            :: word == GRANTED || word == DENIED -> base[AT(c, i)] = when
            :: else
            fi;
            if
            :: word == GRANTED ->
                when = (RULE(C2) -> when : round[c]);
                bound[AT(c, i)] = (granted[AT(c, i)] -> MAX(bound[AT(c, i)], when) : when);
                granted[AT(c, i)] = 1;
                told[AT(c, i)] = said
            :: word == PUSH && base[AT(c, i)] > 0 ->
                bound[AT(c, i)] = (RULE(C3) -> base[AT(c, i)] : round[c]);
                granted[AT(c, i)] = 1;
                told[AT(c, i)] = said
            :: word == DENIED -> drop(c, i)
            :: else
            fi;
            look(i);
            decide(c, i)
        fi
    fi
}
inline broke(c, i) {
    hear_no_more(c, i);
    link[AT(c, i)] = DOWN;
    base[AT(c, i)] = 0;
    wrote[AT(c, i)] = 0;
    if
    :: ceding[AT(c, i)] && state[c] == WAITING && RULE(Q10) && RULE(Q11) ->
        token = TOKEN(c);
        second[c] = 1;
        for (node : 0 .. N - 1) {
            forget(c, node);
            send(c, node, REQUEST, TOKEN(c));
            send(c, node, RELEASE, token)
        }
    :: ceding[AT(c, i)] && (state[c] == HELD || !RULE(Q11)) && RULE(Q10) -> burnt[AT(c, i)] = 1
    :: else
    fi;
    ceding[AT(c, i)] = 0
}
inline join(c, i) {
    link[AT(c, i)] = UP;
    if
    :: state[c] == OVER || burnt[AT(c, i)] -> send(c, i, RELEASE, TOKEN(c))
    :: state[c] == WAITING && !burnt[AT(c, i)] -> send(c, i, REQUEST, TOKEN(c))
    :: else
    fi
}

#define EXECUTE(c) :: d_step { to_node[AT(c, _pid)]?word, token, proposed, when -> execute(_pid, true); skip }
#define LATE(c) :: d_step { late[AT(c, _pid)]?word, token, proposed, when -> execute(_pid, false); skip }
#define ENDS(t) :: d_step { (queue[_pid] & BIT(t)) && ENDED(_pid, t, DEADLINE(_pid, t)) -> \
                            queue[_pid] = queue[_pid] & ~BIT(t); DEADLINE(_pid, t) = 0 }
active [N] proctype Node() {
end:
    do
    EXECUTE(0)
    EXECUTE(1)
#if CLIENTS > 2
    EXECUTE(2)
#endif
#if BREAKS
    LATE(0)
    LATE(1)
#endif
#if FAULTS
    :: d_step { holder[_pid] != NONE && ENDED(_pid, holder[_pid], lease[_pid]) ->
                holder[_pid] = NONE; lease[_pid] = 0; look(_pid); skip }
    ENDS(1)
    ENDS(2)
    ENDS(3)
    ENDS(4)
#endif
#if RESTARTS
    :: d_step {
        restarts && _pid == 0 ->
        restarts--;
        guard[_pid] = 1;
        holder[_pid] = NONE; lease[_pid] = 0; queue[_pid] = 0;
        fence[_pid] = RULE(F1_floor) * fence[_pid];
        for (client : 0 .. CLIENTS - 1) {
            before[client] = round[client];
            DEADLINE(_pid, 2 * client + 1) = 0;
            DEADLINE(_pid, 2 * client + 2) = 0;
            link[AT(client, _pid)] = (LIVE(client) -> CUT : DOWN);
            do
            :: len(to_node[AT(client, _pid)]) > 0 -> to_node[AT(client, _pid)]?_, _, _, _
            :: len(late[AT(client, _pid)]) > 0 -> late[AT(client, _pid)]?_, _, _, _
            :: else -> break
            od
        };
        skip
    }
    :: d_step {
        guard[_pid] ->
        guard[_pid] = 0;
        lower = 0;
        for (client : 0 .. CLIENTS - 1) {
            if
            :: LIVE(client) && over[client] < before[client] ->
                over[client] = before[client];
                decide(client, 0)
            :: else
            fi;
            before[client] = 0
        };
        look(_pid);
        skip
    }
#endif
    od
}

#define HEAR(i) \
    :: d_step { len(to_client[AT(c, i)]) > 0 -> to_client[AT(c, i)]?word, token, said, when, lower, to_cede; \
                hear(c, i); skip }
#define OVERTAKEN(i) \
    :: d_step { !RULE(T1) && to_client[AT(c, i)]??[PUSH, _, _, _, _, _] -> \
                to_client[AT(c, i)]??PUSH, token, said, when, lower, to_cede; word = PUSH; hear(c, i); skip }
#define REJOIN(i) \
    :: d_step { link[AT(c, i)] == CUT -> broke(c, i); skip } \
    :: d_step { link[AT(c, i)] == DOWN && !(guard[i] && RULE(G1)) -> join(c, i); skip }
#define BREAK(i) \
    :: atomic { \
        breaks && link[AT(c, i)] == UP && state[c] != IDLE -> \
        breaks--; \
        do \
        :: to_node[AT(c, i)]?word, token, proposed, when -> late[AT(c, i)]!word, token, proposed, when \
        :: break \
        od; \
        d_step { \
            do \
            :: len(to_node[AT(c, i)]) > 0 -> to_node[AT(c, i)]?_, _, _, _ \
            :: else -> break \
            od; \
            broke(c, i); \
            join(c, i); \
            skip \
        } \
    }
#define HAS(i) (holder[i] == TOKEN(c) && lease[i] > over[c] && COUNTS(c, i))
#define QUEUES(i) (holder[i] != NONE && (queue[i] & BIT(TOKEN(c))) && DEADLINE(i, TOKEN(c)) > over[c])
#define HEARTBEAT(i) \
    :: d_step { \
        RULE(Q12) && state[c] == WAITING && link[AT(c, i)] == UP && !burnt[AT(c, i)] && !HAS(i) && !QUEUES(i) \
        && len(to_node[AT(c, i)]) + len(to_client[AT(c, i)]) == 0 -> \
        round[c] = MAX(round[c], over[c] + 1); \
        send(c, i, REQUEST, TOKEN(c)) \
    }
active [CLIENTS] proctype Client() {
    byte c = _pid - N;
end:
    do
    :: d_step {
        state[c] == IDLE ->
        state[c] = WAITING;
        round[c] = 1;
        propose[c] = TICKET(TOKEN(c));
        ask(c);
        skip
    }
    :: d_step { state[c] == HELD -> leave(c); skip }
    HEAR(0)
    OVERTAKEN(0)
#if N > 1
    HEAR(1)
    HEAR(2)
#endif
#if RENEWALS
    :: d_step { renewals && LIVE(c) && round[c] == over[c] + 1 -> renewals--; round[c]++; ask(c); skip }
#endif
#if LAPSES
    :: d_step { lapses && LIVE(c) && over[c] < round[c] -> lapses--; over[c]++; lower = 0; decide(c, 0); skip }
#endif
#if RESTARTS
    REJOIN(0)
#endif
#if BREAKS
    BREAK(0)
#if RESTARTS
    BREAK(1)
#endif
#endif
#if FAULTS
    HEARTBEAT(0)
#if N > 1
    HEARTBEAT(1)
    HEARTBEAT(2)
#endif
#endif
    od
}
active proctype End() {
    timeout ->
    for (client : 0 .. CLIENTS - 1) { served = served && state[client] == OVER }
    assert(served)
}
