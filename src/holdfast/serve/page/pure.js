// What the page computes: no document, no clock, no network. `node --test` runs all of it.

/**
 * A lock, as the stream tells it: see `Sight` in scene.py.
 * @typedef {[kind: string, group: string | null, state: string, who: string | null, note: string | null,
 *   fence: number | null, waiting: number, waitsSince: number | null, nodes: number, asked: number | null,
 *   hot: number]} Row
 */
/**
 * A line of the table: a lock, or all permits of a semaphore.
 * @typedef {{name: string, label: string, row: Row | null, kind: string, holder: string, asked: number | null,
 *   queue: number, hot: number, state: string, permits: number, depth: number}} Line
 */
/** @typedef {"name" | "holder" | "age" | "queue" | "hot"} Column */
/** @typedef {"all" | "waiting" | "long" | "slots" | "leaders"} Filter */
/**
 * @typedef {{node: string, state: string, since_ms: number, uptime_ms: number | null, rtt_us: number | null,
 *   ahead_us: number | null, guard_left_ms: number | null, version: string, cause: string | null,
 *   warnings: string[], shard: string}} Node
 */
/** Of several shards, the numbers are those of the worst. @typedef {{majority: number, up: number, spare: number, nodes: Node[]}} Nodes */
/** @typedef {{complete_at: number | null, interval_ms: number, met: number | null, found: number, why: string}} Pass */

export const KIND = 0, GROUP = 1, STATE = 2, WHO = 3, NOTE = 4, FENCE = 5, WAITING = 6, SINCE = 7, VOTES = 8,
    ASKED = 9, HOT = 10;
/** A lock that was asked for longer ago is long, in milliseconds. */
export const LONG = 5 * 60_000;
export const ROW = 32;
/** As many events of the audit log the gateway keeps for the page. */
export const AUDIT = 200;
export const FILTERS = /** @type {const} */ (["all", "waiting", "long", "slots", "leaders"]);
export const ESCAPED = new Map([["\n", "\\n"], ["\r", "\\r"], ["\t", "\\t"], ["\\", "\\"]]);

/**
 * A stranger's text as it is safe to show: control characters, marks that turn the direction of text, and spaces
 * at an end are escapes.
 * @param {string} text
 */
export function shown(text) {
    return text
        .replace(/[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g, escaped)
        .replace(/^ +| +$/g, it => "\\x20".repeat(it.length));
}

/** @param {string} character */
export function escaped(character) {
    const code = character.charCodeAt(0);
    return ESCAPED.get(character) ?? (code < 256 ? `\\x${code.toString(16).padStart(2, "0")}`
        : `\\u${code.toString(16).padStart(4, "0")}`);
}

/**
 * A length of time in at most five characters, such as "0.2 s", "41 s", "3 m", "3 d".
 * @param {number | null} ms
 */
export function lasted(ms) {
    if (ms === null) return "–";
    const s = Math.max(0, ms) / 1000;
    if (s < 10) return `${(Math.floor(s * 10) / 10).toFixed(1)}\u00a0s`;
    if (s < 60) return `${Math.floor(s)}\u00a0s`;
    if (s < 3600) return `${Math.floor(s / 60)}\u00a0m`;
    if (s < 86_400) return `${Math.floor(s / 3600)}\u00a0h`;
    return `${Math.floor(s / 86_400)}\u00a0d`;
}

/** A time of day, where the reader is. @param {number} at */
export function moment(at) {
    const date = new Date(at);
    return [date.getHours(), date.getMinutes(), date.getSeconds()].map(it => String(it).padStart(2, "0")).join(":");
}

/** A number with a separator each three digits. @param {number} number */
export function counted(number) {
    return String(number).replace(/\B(?=(\d{3})+$)/g, ",");
}

/**
 * Addresses without what they have in common, which would fill the line.
 * @param {string[]} addresses
 */
export function shortened(addresses) {
    const bare = addresses.map(it => it.replace(/^\w+:\/\/([^@/]*@)?/, ""));
    if (bare.length < 2 || !bare.every(it => it.startsWith("/"))) return bare;
    const parts = bare.map(it => it.split("/"));
    const size = Math.min(...parts.map(it => it.length));
    let front = 0, back = 0;
    while (front < size - 1 && parts.every(it => it[front] === parts[0][front])) front += 1;
    while (back < size - front - 1 && parts.every(it => it.at(-1 - back) === parts[0].at(-1 - back))) back += 1;
    return parts.map(it => it.slice(front, it.length - back).join("/"));
}

/**
 * The headline: how many nodes may fail, in words.
 * @param {Nodes} nodes
 * @returns {{text: string, trouble: string | null}}
 */
export function headline(nodes) {
    const size = nodes.nodes.length;
    const up = nodes.nodes.filter(it => it.state === "up").length;
    const shards = new Set(nodes.nodes.map(it => it.shard)).size;
    const where = shards > 1 ? ` in one of ${shards} shards` : "";
    if (nodes.spare >= 0) {
        const all = shards > 1 ? "in each shard" : `of ${size} node${size === 1 ? "" : "s"}`;
        return {text: nodes.spare ? `safe to lose ${nodes.spare} ${all}` : `no node may fail now${where}`, trouble: null};
    }
    const asked = nodes.nodes.filter(it => it.state === "connecting").length;
    if (asked + nodes.spare >= 0) return {text: "asking the nodes", trouble: null};
    const guarded = nodes.nodes.filter(it => it.state === "guarded").length;
    const wait = guarded ? `${guarded} ${guarded === 1 ? "is" : "are"} guarded after a restart and will be used again soon.`
        : "Start the nodes that are down, or mend the network.";
    return {
        text: `no quorum${where}`,
        trouble: `${nodes.up} of the ${shards > 1 ? "shard's" : size} nodes ${nodes.up === 1 ? "is" : "are"} up and ${nodes.majority} are needed. `
            + `No lock can be acquired or renewed, and locks that are held run out. ${wait}`,
    };
}

/**
 * The first sentence of a message: the nodes, which it lists after that, are on the page anyway.
 * @param {string} why
 */
export function sentence(why) {
    return shown(why.split("\n")[0].split(". ")[0]);
}

/**
 * Why a node is down, without what only a program needs.
 * @param {string} cause
 */
export function reason(cause) {
    return /^\[Errno (111|61)\]/.test(cause) ? "connection refused" : shown(cause.replace(/^\[Errno \d+\] /, ""));
}

/**
 * The sign and the word of a node's state: never a colour alone.
 * @param {string} state
 */
export function sign(state) {
    return state === "up" ? "●" : state === "guarded" ? "◐" : "○";
}

/**
 * How much of a restart guard is over, in tenths.
 * @param {number} left ms
 * @param {number} since ms
 */
export function guarded(left, since) {
    return Math.max(0, Math.min(10, Math.round(10 * since / Math.max(left + since, 1))));
}

/** Difference of a clock, such as "+0.1 ms". @param {number | null} us */
export function ahead(us) {
    if (us === null) return "";
    const ms = us / 1000;
    const digits = Math.abs(ms) < 9.95 ? 1 : 0;
    return `${ms < 0 ? "−" : "+"}${Math.abs(ms).toFixed(digits)} ms`;
}

/**
 * What changed between two looks at the nodes, for those who listen.
 * @param {Node[]} before
 * @param {Node[]} after
 */
export function transitions(before, after) {
    const states = new Map(before.map(it => [it.node, it.state]));
    const names = shortened(after.map(it => it.node));
    return after.flatMap((it, at) => {
        const was = states.get(it.node);
        if (was === undefined || was === it.state) return [];
        const now = it.state === "down" ? "went down" : it.state === "guarded" ? "is back and guarded" : `is ${it.state}`;
        return [`node ${shown(names[at])} ${now}`];
    });
}

/**
 * How many locks were taken away since midnight. The gateway tells the last 200 at most.
 * @param {{at: number}[]} audit
 * @param {number} midnight
 */
export function taken(audit, midnight) {
    const today = audit.filter(it => it.at >= midnight).length;
    return today < AUDIT ? counted(today) : `${AUDIT} or more`;
}

/** A permit's number, from its name. @param {string} name */
export function slot(name) {
    return Number(/\[slot (\d+)\]$/.exec(name)?.[1] ?? 0);
}

/** @param {Row} row */
export function holder(row) {
    return row[STATE] === "split" ? "no majority" : row[KIND] === "read" ? "readers" : row[WHO] ?? "–";
}

/**
 * The lines of the table: filtered, permits together, sorted. One pass over the locks.
 * @param {Map<string, Row>} rows
 * @param {{text: string, filter: Filter, column: Column, down: boolean, open: Set<string>, now: number}} view
 * @returns {Line[]}
 */
export function lines(rows, view) {
    const text = view.text.toLowerCase();
    /** @type {Line[]} */
    const found = [];
    /** @type {Map<string, {line: Line, parts: Line[]}>} */
    const groups = new Map();
    for (const [name, row] of rows) {
        if (!kept(name, row, text, view)) continue;
        /** @type {Line} */
        const line = {name, label: name, row, kind: row[KIND], holder: holder(row), asked: row[ASKED], queue: row[WAITING],
            hot: row[HOT], state: row[STATE], permits: 0, depth: 0};
        const group = row[GROUP];
        if (group === null) {
            if (line.kind === "election") line.label = name.replace(/\[election\]$/, "");
            found.push(line);
            continue;
        }
        const known = groups.get(group);
        if (known) {
            known.parts.push(line);
            join(known.line, line);
        } else {
            const whole = {...line, name: group, label: group, row: null, kind: "permits", permits: 1};
            groups.set(group, {line: whole, parts: [line]});
            found.push(whole);
        }
    }
    found.sort(order(view.column, view.down));
    if (!groups.size) return found;
    return found.flatMap(it => {
        const parts = it.permits ? groups.get(it.name)?.parts : undefined;
        if (!parts) return [it];
        it.holder = parts.length === 1 ? parts[0].holder : `${parts.length} holders`;
        if (!view.open.has(it.name)) return [it];
        parts.sort((a, b) => slot(a.name) - slot(b.name));
        return [it, ...parts.map(part => ({...part, label: `slot ${slot(part.name)}`, depth: 1}))];
    });
}

/**
 * Adds a permit to the line of its semaphore.
 * @param {Line} whole
 * @param {Line} line
 */
export function join(whole, line) {
    whole.permits += 1;
    // Somebody who waits for a semaphore waits for each of its permits.
    whole.queue = Math.max(whole.queue, line.queue);
    whole.hot = Math.max(whole.hot, line.hot);
    if (line.asked !== null && (whole.asked === null || line.asked < whole.asked)) whole.asked = line.asked;
    if (line.state === "split") whole.state = "split";
}

/**
 * Whether a lock is in view.
 * @param {string} name
 * @param {Row} row
 * @param {string} text
 * @param {{filter: Filter, now: number}} view
 */
export function kept(name, row, text, view) {
    if (view.filter === "waiting" && !row[WAITING]) return false;
    if (view.filter === "long" && (row[ASKED] === null || view.now - row[ASKED] < LONG)) return false;
    if (view.filter === "slots" && row[GROUP] === null) return false;
    if (view.filter === "leaders" && row[KIND] !== "election") return false;
    return !text || name.toLowerCase().includes(text) || (row[WHO] ?? "").toLowerCase().includes(text)
        || (row[NOTE] ?? "").toLowerCase().includes(text);
}

/**
 * Compares lines. What is equal, and what has no value, is in the order of names.
 * @param {Column} column
 * @param {boolean} down
 * @returns {(a: Line, b: Line) => number}
 */
export function order(column, down) {
    const sign = down ? -1 : 1;
    /** @param {Line} a @param {Line} b */
    const byName = (a, b) => a.name < b.name ? -1 : a.name > b.name ? 1 : 0;
    if (column === "name") return (a, b) => sign * byName(a, b);
    if (column === "holder") return (a, b) => sign * (a.holder < b.holder ? -1 : a.holder > b.holder ? 1 : 0) || byName(a, b);
    if (column === "age") {
        return (a, b) => (a.asked === null ? 1 : 0) - (b.asked === null ? 1 : 0)
            || sign * ((b.asked ?? 0) - (a.asked ?? 0)) || byName(a, b);
    }
    return (a, b) => sign * (a[column] - b[column]) || byName(a, b);
}

/**
 * Which lines are in the document: those in sight, and some around them. There are never more than `most`, so that a
 * line that comes into sight takes the place of one that leaves it.
 * @param {number} top pixels
 * @param {number} height pixels
 * @param {number} count
 */
export function seen(top, height, count) {
    const first = Math.max(0, Math.min(count, Math.floor(top / ROW)) - 4);
    return {first, last: Math.min(count, Math.ceil((top + height) / ROW) + 4), most: Math.ceil(height / ROW) + 9};
}

/**
 * Where the cursor goes when the lines change: it stays on its lock, and else on its place.
 * @param {Line[]} lines
 * @param {string | null} name
 * @param {number} at
 */
export function kept_at(lines, name, at) {
    // It nearly always stays.
    if (name !== null && lines[at]?.name === name) return at;
    const found = name === null ? -1 : lines.findIndex(it => it.name === name);
    return found >= 0 ? found : Math.max(0, Math.min(at, lines.length - 1));
}

/**
 * What the foot of the table says: how complete it is, and how old.
 * @param {Pass | null} pass
 * @param {number} held
 * @param {number} inView
 * @param {number} left rows that the stream has not told yet
 * @param {number} now
 */
export function foot(pass, held, inView, left, now) {
    if (left) return `loading: ${counted(held)} of ${counted(held + left)}`;
    if (!pass) return "looking";
    const many = inView === held ? counted(held) : `${counted(inView)} of ${counted(held)}`;
    if (pass.why) return `${many}, not complete: ${sentence(pass.why)}`;
    if (pass.complete_at === null) return `still looking: ${counted(pass.met ?? 0)} so far`;
    const every = lasted(Math.max(1000, pass.interval_ms));
    return `${many} · complete ${lasted(now - pass.complete_at)} ago · every ${every}`;
}

/**
 * Tenures as parts of a strip, from 0 to 1 of its width.
 * @param {{who: string | null, fence: number | null, first: number, last: number}[]} tenures
 * @param {number} now
 * @param {number} span ms
 */
export function strip(tenures, now, span) {
    return tenures.filter(it => it.last > now - span).map(it => {
        const from = Math.max(0, 1 - (now - it.first) / span);
        return {...it, from, width: Math.max(0.004, Math.min(1, 1 - (now - it.last) / span) - from)};
    });
}

/**
 * Reads server-sent events, as text comes in.
 * @param {(kind: string, data: string) => void} told
 * @returns {(text: string) => void}
 */
export function events(told) {
    let rest = "";
    return text => {
        const blocks = (rest + text).split("\n\n");
        rest = blocks.pop() ?? "";
        for (const block of blocks) {
            let kind = "message", data = "";
            for (const line of block.split("\n")) {
                if (line.startsWith("event: ")) kind = line.slice(7);
                else if (line.startsWith("data: ")) data += line.slice(6);
            }
            if (data) told(kind, data);
        }
    };
}

/** Milliseconds until the stream is asked for again. @param {number} failures */
export function backoff(failures) {
    return Math.min(5000, 250 * 2 ** Math.min(failures, 10));
}
