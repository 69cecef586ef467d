// What the page computes: no document, no clock, no network. `node --test` runs all of it.

/**
 * A lock of a snapshot, with its times as numbers.
 * @typedef {{name: string, kind: string, group: string | null, slot: number | null, state: string, holder: string | null,
 *   owner: string | null, note: string | null, left_ms: number | null, fence: number | null, waiting: number,
 *   waits_since: number | null, nodes: number, asked: number | null}} Row
 */
/** The same as the gateway says it. @typedef {Omit<Row, "asked" | "waits_since"> & {asked: string | null, waits_since: string | null}} Told */
/**
 * A line of the table: a lock, or all permits of a semaphore. The name of an `odd` one cannot be shown as it is.
 * @typedef {{name: string, label: string, row: Row | null, kind: string, holder: string, note: string, asked: number | null,
 *   left: number | null, queue: number, hot: number, looks: number, state: string, permits: number, depth: number, odd: boolean}} Line
 */
/** @typedef {"name" | "holder" | "age" | "left" | "queue" | "hot"} Column */
/** @typedef {"all" | "waiting" | "long" | "slots" | "leaders"} Filter */
/**
 * What somebody looks at, as the address bar says it.
 * @typedef {{text: string, filter: Filter, column: Column, down: boolean, lock: string | null}} Place
 */
/**
 * @typedef {{node: string, state: string, since_ms: number, uptime_ms: number | null, rtt_us: number | null,
 *   ahead_ms: number | null, guard_left_ms: number | null, version: string, cause: string | null,
 *   warnings: string[], shard: string}} Node
 */
/** Of several shards, the numbers are those of the worst. @typedef {{majority: number, up: number, spare: number, nodes: Node[]}} Nodes */
/** @typedef {{at: string, client: string, name: string, reason: string}} Taken */
/**
 * @typedef {Nodes & {at: number, prefix: string, grafana_url: string | null, locks: Told[], complete_at: number | null,
 *   interval_ms: number, why: string, taken: Taken[]}} Snapshot
 */
/** Who has held a lock. @typedef {{who: string, fence: number | null, first: number, last: number}} Tenure */
/** In how many looks a lock was held and in how many of these somebody waited. @typedef {{looks: number, waited: number, tenures: Tenure[]}} Memory */

/** A lock that was asked for longer ago is long, in milliseconds. */
export const LONG = 5 * 60_000;
/** Milliseconds for which the page remembers what it has seen. */
export const lasting = 15 * 60_000;
/** Milliseconds between two questions, until there is something to show. */
export const FIRST = 250;
/** After so many milliseconds without an answer, nothing on the page can be trusted. */
export const SILENT = 3000;
/** Tenures of one lock. */
export const TENURES = 20;
/** As many events of the audit log the gateway keeps for the page. */
export const AUDIT = 200;
export const FILTERS = /** @type {const} */ (["all", "waiting", "long", "slots", "leaders"]);
/** @type {readonly Column[]} */
export const COLUMNS = ["name", "holder", "age", "left", "queue", "hot"];
/** @type {Column} */
export const SORTED = "queue";
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
 * How safe it is: in a word, a sign and a sentence, and for a bar across the page what that means.
 * @param {Nodes} nodes
 * @returns {{level: "fine" | "bare" | "outage" | "unknown", sign: string, text: string, trouble: string | null}}
 */
export function safety(nodes) {
    const size = nodes.nodes.length;
    const shards = new Set(nodes.nodes.map(it => it.shard)).size;
    const where = shards > 1 ? ` in one of ${shards} shards` : "";
    const up = `${nodes.up} of the ${shards > 1 ? "shard's" : size} nodes ${nodes.up === 1 ? "is" : "are"} up and ${nodes.majority} ${nodes.majority === 1 ? "is" : "are"} needed`;
    if (nodes.spare > 0) {
        const all = shards > 1 ? "in each shard" : `of ${size} nodes`;
        return {level: "fine", sign: "✓", text: `Safe to lose ${nodes.spare} ${all}`, trouble: null};
    }
    const away = nodes.nodes.filter(it => it.state !== "up").length;
    if (nodes.spare === 0) {
        const what = away ? "Bring back the others soon." : "More nodes would make it safe.";
        return {level: "bare", sign: "▲", text: `No spare node${where}`, trouble: `${up}. If one more fails, no lock can be acquired or renewed. ${what}`};
    }
    const asked = nodes.nodes.filter(it => it.state === "connecting").length;
    if (asked + nodes.spare >= 0) return {level: "unknown", sign: "◐", text: "Asking the nodes", trouble: null};
    const guarded = nodes.nodes.filter(it => it.state === "guarded").length;
    const wait = guarded ? `${guarded} ${guarded === 1 ? "is" : "are"} guarded after a restart and will be used again soon.`
        : "Start the nodes that are down, or mend the network.";
    return {
        level: "outage", sign: "✕", text: `Outage: no quorum${where}`,
        trouble: `${up}. No lock can be acquired or renewed, and locks that are held run out. ${wait}`,
    };
}

/**
 * What of the page is too old to be trusted: all of it, the locks, or nothing.
 * @param {number} now
 * @param {number} heard when the gateway answered last; 0: never
 * @param {{complete_at: number | null, interval_ms: number} | null} snapshot
 * @returns {"all" | "locks" | ""}
 */
export function stale(now, heard, snapshot) {
    if (heard && now - heard > SILENT) return "all";
    const at = snapshot?.complete_at ?? null;
    return snapshot && at !== null && now - at > 3 * snapshot.interval_ms ? "locks" : "";
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

/** How far a clock is ahead, such as "+21 ms". @param {number | null} ms */
export function ahead(ms) {
    return ms === null ? "" : `${ms < 0 ? "−" : "+"}${Math.abs(ms)} ms`;
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
 * @param {{at: string}[]} audit
 * @param {number} midnight
 */
export function taken(audit, midnight) {
    const today = audit.filter(it => Date.parse(it.at) >= midnight).length;
    return today < AUDIT ? counted(today) : `${AUDIT} or more`;
}

/** A lock of a snapshot, with its times as numbers. @param {Told} told @returns {Row} */
export function parsed(told) {
    const [asked, waits_since] = [told.asked, told.waits_since].map(it => it === null ? null : Date.parse(it));
    return {...told, asked, waits_since};
}

/** @param {Row} row */
export function holder(row) {
    return row.state === "split" ? "no majority" : row.kind === "read" ? "readers" : row.owner ?? row.holder ?? "–";
}

/**
 * Compares the locks of a snapshot with what was seen before.
 * @param {Map<string, Memory>} memory is changed
 * @param {Map<string, Row>} rows
 * @param {number} at when they were seen
 * @param {number | null} before when the snapshot before was
 */
export function remember(memory, rows, at, before) {
    for (const [name, row] of rows) {
        const known = memory.get(name) ?? {looks: 0, waited: 0, tenures: []};
        memory.set(name, known);
        known.looks += 1;
        known.waited += row.waiting ? 1 : 0;
        const last = known.tenures.at(-1), who = holder(row);
        if (last && last.last === before && last.fence === row.fence && last.who === who) last.last = at;
        else known.tenures = [...known.tenures, {who, fence: row.fence, first: at, last: at}].slice(-TENURES);
    }
    for (const [name, {tenures}] of memory) if ((tenures.at(-1)?.last ?? 0) < at - lasting) memory.delete(name);
}

/**
 * How many wait, and since when the first of them. Somebody who waits for a semaphore waits for each of its permits.
 * @param {Map<string, Row>} rows
 * @param {number} now
 */
export function backlog(rows, now) {
    const queues = new Map();
    let since = now;
    for (const row of rows.values()) {
        if (!row.waiting) continue;
        const name = row.group ?? row.name;
        queues.set(name, Math.max(queues.get(name) ?? 0, row.waiting));
        since = Math.min(since, row.waits_since ?? now);
    }
    return {waiting: [...queues.values()].reduce((sum, it) => sum + it, 0), longest: now - since};
}

/**
 * A line over the last fifteen minutes, as the points of a polyline.
 * @param {number[][]} points the first of each is its time
 * @param {number} field
 * @param {number} width
 * @param {number} height
 */
export function spark(points, field, width, height) {
    if (!points.length) return "";
    const last = points[points.length - 1][0];
    // A minute at least, so that the first seconds are no steep line.
    const span = Math.max(60_000, last - points[0][0]);
    const most = Math.max(1, ...points.map(it => it[field]));
    return points.map(it => `${(width * (1 - (last - it[0]) / span)).toFixed(1)},${(height * (1 - it[field] / most)).toFixed(1)}`).join(" ");
}

/**
 * The lines of the table: filtered, permits together, sorted. One pass over the locks.
 * @param {Map<string, Row>} rows
 * @param {Map<string, Memory>} memory
 * @param {Omit<Place, "lock"> & {open: Set<string>, now: number}} view
 * @returns {Line[]}
 */
export function lines(rows, memory, view) {
    /** @type {Line[]} */
    const found = [];
    /** @type {Map<string, {line: Line, parts: Line[]}>} */
    const groups = new Map();
    for (const [name, row] of rows) {
        if (!kept(name, row, view)) continue;
        const {looks, waited} = memory.get(name) ?? {looks: 0, waited: 0};
        /** @type {Line} */
        const line = {name, label: name, row, kind: row.kind, holder: holder(row), note: row.note ?? "", asked: row.asked, left: row.left_ms,
            queue: row.waiting, hot: looks ? Math.round(100 * waited / looks) : 0, looks, state: row.state, permits: 0, depth: 0,
            odd: shown(name) !== name};
        const group = row.group;
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
        [it.holder, it.note] = parts.length === 1 ? [parts[0].holder, parts[0].note] : [`${parts.length} holders`, ""];
        if (!view.open.has(it.name)) return [it];
        parts.sort((a, b) => (a.row?.slot ?? 0) - (b.row?.slot ?? 0));
        return [it, ...parts.map(part => ({...part, label: `slot ${part.row?.slot}`, depth: 1}))];
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
 * Whether a lock is in view. A text that ends with `*` is what the name begins with.
 * @param {string} name
 * @param {Row} row
 * @param {{text: string, filter: Filter, now: number}} view
 */
export function kept(name, row, view) {
    if (view.filter === "waiting" && !row.waiting) return false;
    if (view.filter === "long" && (row.asked === null || view.now - row.asked < LONG)) return false;
    if (view.filter === "slots" && row.group === null) return false;
    if (view.filter === "leaders" && row.kind !== "election") return false;
    if (view.text.endsWith("*")) return name.startsWith(view.text.slice(0, -1));
    const text = view.text.toLowerCase();
    return !text || [name, holder(row), row.note ?? ""].some(it => it.toLowerCase().includes(text));
}

/**
 * Compares lines. What is equal is in the order of age, then of names. What has no value, and odd names, are at the end.
 * @param {Column} column
 * @param {boolean} down
 * @returns {(a: Line, b: Line) => number}
 */
export function order(column, down) {
    const sign = down ? -1 : 1;
    /** @param {string} a @param {string} b */
    const text = (a, b) => a < b ? -1 : a > b ? 1 : 0;
    /** @param {number | null} a @param {number | null} b @param {number} sign */
    const number = (a, b, sign) => a === null || b === null ? Number(a === null) - Number(b === null) : sign * (a - b);
    /** @param {Line} a @param {Line} b */
    const byName = (a, b, sign = 1) => Number(a.odd) - Number(b.odd) || sign * text(a.name, b.name);
    if (column === "name") return (a, b) => byName(a, b, sign);
    /** @type {(a: Line, b: Line) => number} */
    const first = column === "holder" ? (a, b) => sign * text(a.holder, b.holder)
        : column === "age" ? (a, b) => number(a.asked, b.asked, -sign) : (a, b) => number(a[column], b[column], sign);
    return (a, b) => first(a, b) || number(a.asked, b.asked, 1) || byName(a, b);
}

/**
 * What somebody looks at, from the part of the address after `#`.
 * @param {string} hash
 * @returns {Place}
 */
export function placed(hash) {
    const found = new URLSearchParams(hash.replace(/^#/, ""));
    const [column, way] = (found.get("sort") ?? "").split(" ");
    const filter = FILTERS.find(it => it === found.get("show")) ?? "all";
    const sorted = COLUMNS.includes(/** @type {Column} */ (column)) ? {column: /** @type {Column} */ (column), down: way === "down"} : {column: SORTED, down: true};
    return {text: found.get("filter") ?? "", filter, ...sorted, lock: found.get("lock")};
}

/** The part of the address for what somebody looks at; the opposite of `placed`. @param {Place} place */
export function address({text, filter, column, down, lock}) {
    const found = new URLSearchParams();
    if (lock !== null) found.set("lock", lock);
    if (text) found.set("filter", text);
    if (filter !== "all") found.set("show", filter);
    if (column !== SORTED || !down) found.set("sort", down ? `${column} down` : column);
    return found.size ? `#${found}` : "";
}

/**
 * Which lines are in the document: those in sight, and some around them. There are never more than `most`, so that a
 * line that comes into sight takes the place of one that leaves it.
 * @param {number} top pixels
 * @param {number} height pixels
 * @param {number} count
 * @param {number} row pixels of a line
 */
export function seen(top, height, count, row) {
    const first = Math.max(0, Math.min(count, Math.floor(top / row)) - 4);
    return {first, last: Math.min(count, Math.ceil((top + height) / row) + 4), most: Math.ceil(height / row) + 9};
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
 * @param {Snapshot | null} snapshot
 * @param {number} inView
 * @param {number} now
 */
export function foot(snapshot, inView, now) {
    if (!snapshot) return "looking";
    const held = snapshot.locks.length;
    const many = inView === held ? counted(held) : `${counted(inView)} of ${counted(held)}`;
    if (snapshot.why) return `${many}, not complete: ${sentence(snapshot.why)}`;
    if (snapshot.complete_at === null) return `still looking: ${counted(held)} so far`;
    return `${many} · complete ${lasted(now - snapshot.complete_at)} ago · every ${lasted(snapshot.interval_ms)}`;
}

/**
 * Tenures as parts of a strip, from 0 to 1 of its width.
 * @param {Tenure[]} tenures
 * @param {number} now
 * @param {number} span ms
 */
export function strip(tenures, now, span) {
    return tenures.filter(it => it.last > now - span).map(it => {
        const from = Math.max(0, 1 - (now - it.first) / span);
        return {...it, from, width: Math.max(0.004, Math.min(1, 1 - (now - it.last) / span) - from)};
    });
}
