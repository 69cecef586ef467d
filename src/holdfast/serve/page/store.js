// What the gateway says: a snapshot, asked for once a second while somebody can see it.
import {FIRST, backlog, lasting, parsed, remember, stale} from "./pure.js";

/** @typedef {import("./pure.js").Row} Row */
/** @typedef {import("./pure.js").Snapshot} Snapshot */
/** @typedef {"connecting" | "live" | "token" | "forbidden"} Link */

const TOKEN = "holdfast.token";
/** Milliseconds between two questions. */
const EVERY = 1000;
/** After so many milliseconds without an answer, a question is asked again. */
const PATIENCE = 5000;

/** All that the page knows. */
export class Store {
    constructor() {
        /** @type {Map<string, Row>} */
        this.rows = new Map();
        /** Counts the changes of rows. */
        this.version = 0;
        /** @type {Snapshot | null} */
        this.snapshot = null;
        this.digest = "";
        /** What this page has seen since it was opened. @type {Map<string, import("./pure.js").Memory>} */
        this.memory = new Map();
        /** Of each survey: when, how many locks were held, how many waited, and the longest wait. @type {number[][]} */
        this.points = [];
        /** @type {Link} */
        this.link = "connecting";
        /** Why there is no snapshot. */
        this.why = "";
        /** When the gateway answered last, by its own clock. */
        this.heard = 0;
        /** The gateway's clock less this one. */
        this.skew = 0;
    }

    /** The gateway's time. */
    now() {
        return performance.timeOrigin + performance.now() + this.skew;
    }

    /** What is too old to be trusted. */
    stale() {
        return stale(this.now(), this.heard, this.snapshot);
    }

    /** The moment until which the page knows about locks. */
    known() {
        return this.stale() ? this.snapshot?.complete_at ?? this.heard : this.now();
    }

    /** The moment until which the page knows about nodes. */
    nodesKnown() {
        return this.stale() === "all" ? this.heard : this.now();
    }

    /** @param {Snapshot} snapshot */
    take(snapshot) {
        const before = this.snapshot?.complete_at ?? null;
        this.snapshot = snapshot;
        this.rows = new Map(snapshot.locks.map(it => [it.name, parsed(it)]));
        this.version += 1;
        const at = snapshot.complete_at;
        if (at === null || at === before) return;
        remember(this.memory, this.rows, at, before);
        const {waiting, longest} = backlog(this.rows, at);
        this.points = [...this.points.filter(it => it[0] > at - lasting), [at, this.rows.size, waiting, longest]];
    }
}

/** The headers that say who asks. */
export function identity() {
    const token = sessionStorage.getItem(TOKEN);
    return /** @type {Record<string, string>} */ (token ? {Authorization: `Bearer ${token}`} : {});
}

/** @param {string} token */
export function remembered(token) {
    sessionStorage.setItem(TOKEN, token);
}

/**
 * Asks for the snapshot, for ever.
 * @param {Store} store
 * @param {() => void} changed
 * @param {() => Promise<void>} token ends when there is a new one
 */
export async function follow(store, changed, token) {
    for (;;) {
        if (document.hidden) await new Promise(done => document.addEventListener("visibilitychange", done, {once: true}));
        const began = performance.now();
        try {
            const headers = {...identity(), "If-None-Match": store.digest};
            const answer = await fetch("ui/snapshot", {headers, cache: "no-store", signal: AbortSignal.timeout(PATIENCE)});
            if (answer.status === 401 || answer.status === 403) {
                store.link = answer.status === 401 ? "token" : "forbidden";
                store.why = (await answer.json()).detail;
                changed();
                await token();
                continue;
            }
            if (answer.ok || answer.status === 304) {
                store.skew += Number(answer.headers.get("holdfast-now")) - store.now();
                if (answer.ok) {
                    store.take(await answer.json());
                    store.digest = answer.headers.get("etag") ?? "";
                }
                store.heard = store.now();
                store.link = "live";
            }
        } catch {
            // The page says since when it has heard nothing, and asks again.
        }
        changed();
        const every = store.snapshot?.complete_at ? EVERY : FIRST;
        await new Promise(done => setTimeout(done, Math.max(0, began + every - performance.now())));
    }
}

/**
 * Asks the gateway for something. An answer that is an error throws its problem document.
 * @param {string} path
 * @param {RequestInit} [options]
 */
export async function ask(path, options = {}) {
    const answer = await fetch(path, {...options, headers: {...identity(), ...options.headers}, cache: "no-store"});
    const body = await answer.json();
    if (!answer.ok) throw body;
    return body;
}
