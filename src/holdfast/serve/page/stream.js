// What the server tells: one stream, read by `fetch`, so that the token can be sent. It comes back by itself.
import {backoff, events} from "./pure.js";

/** @typedef {import("./pure.js").Row} Row */
/** @typedef {import("./pure.js").Nodes} Nodes */
/** @typedef {import("./pure.js").Pass} Pass */
/** @typedef {{generation: string, at: number, points: number[][], allow_force: boolean, prefix: string, grafana_url: string | null}} Hello */
/** @typedef {{at: number, client: string, name: string, reason: string}} Taken */
/** @typedef {"connecting" | "live" | "lost" | "token" | "forbidden"} Link */

const TOKEN = "holdfast.token";
// The server sends something each second. After such a silence, the stream is lost.
const SILENCE = 5000;

/** All that the page knows. */
export class Store {
    constructor() {
        /** @type {Map<string, Row>} */
        this.rows = new Map();
        /** Rows of a new stream, until it has told all. @type {Map<string, Row> | null} */
        this.incoming = null;
        /** Rows that the stream has not told yet. */
        this.left = 0;
        /** Counts the changes of rows. */
        this.version = 0;
        /** @type {Hello | null} */
        this.hello = null;
        /** @type {Nodes | null} */
        this.nodes = null;
        this.nodesAt = 0;
        /** Each second: when, how many are held, how many wait, the longest wait. @type {number[][]} */
        this.points = [];
        /** @type {Pass | null} */
        this.pass = null;
        /** @type {Taken[]} */
        this.audit = [];
        /** @type {Link} */
        this.link = "connecting";
        /** Why there is no stream. */
        this.why = "";
        /** When the last message came. */
        this.asOf = 0;
        /** The server's clock less this one. */
        this.skew = 0;
    }

    /** The server's time. */
    now() {
        return performance.timeOrigin + performance.now() + this.skew;
    }

    /** The moment until which the page knows what is going on. */
    known() {
        return this.link === "live" || !this.asOf ? this.now() : this.asOf;
    }

    /**
     * @param {string} kind
     * @param {any} data
     */
    told(kind, data) {
        if (kind === "hello") {
            this.hello = data;
            this.skew += data.at - this.now();
            this.points = data.points;
            this.incoming = new Map();
            if (!this.rows.size) this.rows = this.incoming;
        } else if (kind === "snapshot") {
            this.left = data.left;
            this.put(data.rows);
            if (!data.left && this.incoming) {
                this.rows = this.incoming;
                this.incoming = null;
            }
        } else if (kind === "rows") {
            this.put(data);
        } else if (kind === "nodes") {
            this.nodes = data;
            this.nodesAt = this.now();
        } else if (kind === "totals") {
            this.pass = data.pass;
            if (data.point) this.points = [...this.points.filter(it => it[0] < data.point[0]), data.point].slice(-900);
        } else if (kind === "audit") {
            this.audit = data;
        }
        this.asOf = this.now();
    }

    /** @param {Record<string, Row | null>} rows */
    put(rows) {
        const into = this.incoming ?? this.rows;
        for (const [name, row] of Object.entries(rows)) {
            if (row) into.set(name, row);
            else into.delete(name);
        }
        this.version += 1;
    }
}

/** The headers that say who asks. */
export function identity() {
    const token = sessionStorage.getItem(TOKEN);
    return /** @type {Record<string, string>} */ (token ? {Authorization: `Bearer ${token}`} : {});
}

/** @param {string} token */
export function remember(token) {
    sessionStorage.setItem(TOKEN, token);
}

/**
 * Follows the stream, for ever.
 * @param {Store} store
 * @param {() => void} changed
 * @param {() => Promise<void>} token ends when there is a new one
 */
export async function follow(store, changed, token) {
    for (let failures = 0; ; failures += 1) {
        const control = new AbortController();
        let timer = setTimeout(() => control.abort(), SILENCE);
        try {
            const answer = await fetch("ui/stream", {headers: identity(), cache: "no-store", signal: control.signal});
            if (answer.status === 401 || answer.status === 403) {
                clearTimeout(timer);
                store.link = answer.status === 401 ? "token" : "forbidden";
                store.why = (await answer.json()).detail;
                changed();
                await token();
                failures = -1;
                continue;
            }
            if (!answer.ok || !answer.body) throw new Error(`${answer.status}`);
            const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
            const read = events((kind, data) => store.told(kind, JSON.parse(data)));
            for (;;) {
                const {done, value} = await reader.read();
                if (done) break;
                clearTimeout(timer);
                timer = setTimeout(() => control.abort(), SILENCE);
                store.link = "live";
                failures = -1;
                read(value);
                changed();
            }
        } catch {
            // It is lost, for whatever reason: that is what the page says, and it asks again.
        }
        clearTimeout(timer);
        store.link = store.asOf ? "lost" : "connecting";
        changed();
        await new Promise(done => setTimeout(done, backoff(failures + 1)));
    }
}

/**
 * Asks the server for something. An answer that is an error throws its problem document.
 * @param {string} path
 * @param {RequestInit} [options]
 */
export async function ask(path, options = {}) {
    const answer = await fetch(path, {...options, headers: {...identity(), ...options.headers}, cache: "no-store"});
    const body = await answer.json();
    if (!answer.ok) throw body;
    return body;
}

/** @param {string} field @param {string[]} names */
export function query(field, names) {
    return names.map(it => `${field}=${encodeURIComponent(it)}`).join("&");
}
