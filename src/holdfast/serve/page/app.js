// The page as a whole: what is chosen, which keys do what, and the parts.
import {html, render, useEffect, useState} from "./vendor/preact.js";
import {address, kept_at, lasted, lines, moment, placed, safety, shown, transitions} from "./pure.js";
import {Store, follow} from "./store.js";
import {Theme} from "./theme.js";
import {Nodes, Totals} from "./nodes.js";
import {Filters, Table, rowHeight} from "./table.js";
import {Detail} from "./detail.js";
import {Help, Take, Token} from "./dialog.js";

/** @typedef {import("./pure.js").Line} Line */
/** @typedef {import("./table.js").View} View */

/** If nobody scrolls for so many ms, it is over. The page is drawn each second, so the lines go on then. */
const SCROLLING = 150;

const store = new Store();
/** Ends the wait for a token. @type {() => void} */
let given = () => {};
/** Draws the page. @type {() => void} */
let draw = () => {};
/** The lines as they were made last, and of what. */
let made = {of: "", version: -1, lines: /** @type {Line[]} */ ([]), open: /** @type {Set<string> | null} */ (null)};
/** When the table was scrolled last. */
let scrolled = -Infinity;
let drawing = false;

/** Draws once, however much has changed. */
function changed() {
    if (drawing) return;
    drawing = true;
    requestAnimationFrame(() => {
        drawing = false;
        draw();
    });
}

/** @param {View} view */
function linesOf(view) {
    const now = store.known();
    // Which locks are long depends on the time.
    const of = `${view.text}\n${view.filter} ${view.column} ${view.down} ${rowHeight()} ${view.filter === "long" ? Math.floor(now / 1000) : ""}`;
    // The lines stand still while somebody scrolls: nothing jumps, and no frame has to sort all of them.
    const stale = made.version !== store.version && performance.now() - scrolled > SCROLLING;
    if (stale || made.of !== of || made.open !== view.open) {
        made = {of, version: store.version, open: view.open, lines: lines(store.rows, store.memory, {...view, now})};
    }
    return made.lines;
}

function Page() {
    const [, count] = useState(0);
    const [view, set] = useState(/** @type {View} */ ({...placed(location.hash), open: new Set()}));
    const [cursor, put] = useState(/** @type {{at: number, name: string | null}} */ ({at: 0, name: null}));
    const [taking, take] = useState(/** @type {import("./detail.js").Lock | null} */ (null));
    const [help, tellKeys] = useState(false);
    const [said, say] = useState("");
    draw = () => count(it => it + 1);
    const see = (/** @type {Partial<View>} */ change) => {
        const now = {...view, ...change};
        set(now);
        const target = location.pathname + address(now);
        // "Back" closes a lock. It does not take back what was typed, letter by letter.
        if (now.lock !== view.lock) history.pushState(null, "", target);
        else history.replaceState(null, "", target);
    };
    const chosen = view.lock;
    const all = linesOf(view);
    const at = kept_at(all, cursor.name, cursor.at);
    const go = (/** @type {number} */ to) => {
        const place = Math.max(0, Math.min(all.length - 1, to));
        put({at: place, name: all[place]?.name ?? null});
    };
    const open = (/** @type {Line} */ line) => {
        if (line.row) {
            see({lock: line.name});
            return;
        }
        const opened = new Set(view.open);
        if (!opened.delete(line.name)) opened.add(line.name);
        see({open: opened});
    };
    const close = () => {
        if (chosen !== null) see({lock: null});
        document.getElementById("grid")?.focus();
    };
    keys = {all, at, go, open, close, help: () => tellKeys(true), dialog: help || taking !== null};
    useEffect(() => {
        const second = setInterval(changed, 1000);
        const moved = () => set(before => ({...before, ...placed(location.hash)}));
        addEventListener("popstate", moved);
        return () => {
            clearInterval(second);
            removeEventListener("popstate", moved);
        };
    }, []);
    heard = say;
    useEffect(() => {
        // What had the focus is gone, such as the button of a lock that is free now.
        if (focused && !focused.isConnected && document.activeElement === document.body) {
            document.getElementById(chosen === null ? "grid" : "detail")?.focus({preventScroll: true});
        }
    });
    const kind = chosen === null ? "" : store.rows.get(chosen)?.kind ?? "";
    const old = store.stale();
    const asks = store.link === "token" || store.link === "forbidden";
    return html`<div class="page ${old && `stale-${old}`}">
        <${Head} help=${() => tellKeys(true)} />
        <${Nodes} store=${store} />
        <${Totals} store=${store} />
        <main>
            <section class="locks" aria-label="All locks">
                <${Filters} view=${view} change=${see} />
                <${Table} store=${store} lines=${all} view=${view} change=${see} cursor=${at} put=${go} choose=${open}
                    moved=${() => { scrolled = performance.now(); }} />
            </section>
            <${Detail} store=${store} name=${chosen} kind=${kind} take=${take} close=${close} />
        </main>
        <div class="unseen" aria-live="polite">${said}</div>
        ${help && html`<${Help} close=${() => tellKeys(false)} />`}
        ${taking && html`<${Take} lock=${taking} close=${() => take(null)} />`}
        ${asks && html`<${Token} why=${store.why} forbidden=${store.link === "forbidden"} done=${() => given()} />`}
    </div>`;
}

/** @param {{help: () => void}} props */
function Head({help}) {
    const safe = store.snapshot ? safety(store.snapshot) : null;
    const old = store.stale();
    const since = old === "all" ? store.heard : store.known();
    const link = old ? html`<span class="link-lost"><i aria-hidden="true">○</i> ${old === "all" ? "no answer since" : "locks as of"} ${moment(since - store.skew)}, ${lasted(store.now() - since)} ago</span>`
        : store.link === "live" ? html`<span class="link-live faint"><i aria-hidden="true">●</i> live</span>`
        : html`<span class="faint"><i aria-hidden="true">◐</i> connecting</span>`;
    return html`<header class="top">
        <h1>holdfast</h1>
        <span class="prefix faint">${store.snapshot?.prefix ? `prefix ${shown(store.snapshot.prefix)}` : ""}</span>
        ${safe && html`<span class="safe ${safe.level}"><i aria-hidden="true">${safe.sign}</i> ${safe.text}</span>`}
        <span class="status">${link}
            <${Theme} changed=${changed} />
            <button class="plain" onClick=${help} title="Keys (?)" aria-label="Keys">?</button></span>
    </header>
    ${safe?.trouble && html`<div class="alarm ${safe.level}" role=${safe.level === "outage" ? "alert" : "status"}>${safe.trouble}</div>`}`;
}

/**
 * What the keys do, as the page was drawn last.
 * @type {{all: Line[], at: number, go: (to: number) => void, open: (line: Line) => void, close: () => void, help: () => void, dialog: boolean}}
 */
let keys = {all: [], at: 0, go: () => {}, open: () => {}, close: () => {}, help: () => {}, dialog: false};
/** Tells those who listen. @type {(text: string) => void} */
let heard = () => {};
let wentTo = false;
/** What had the focus last. @type {Element | null} */
let focused = null;

/** @param {KeyboardEvent} event */
function pressed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    const grid = document.getElementById("grid");
    const field = event.target instanceof HTMLInputElement;
    if (event.key === "Escape") {
        if (field) grid?.focus();
        else keys.close();
        event.preventDefault();
        return;
    }
    if (field) {
        if (event.key !== "ArrowDown" && event.key !== "Enter") return;
        grid?.focus();
        event.preventDefault();
        return;
    }
    const after = wentTo;
    wentTo = event.key === "g";
    const page = Math.max(1, Math.floor((grid?.clientHeight ?? 320) / rowHeight()) - 2);
    /** @type {Record<string, number>} */
    const moves = {j: keys.at + 1, ArrowDown: keys.at + 1, k: keys.at - 1, ArrowUp: keys.at - 1, Home: 0, End: keys.all.length - 1,
        PageDown: keys.at + page, PageUp: keys.at - page};
    const arrow = event.key.length > 1;
    if (event.key in moves && (!arrow || event.target === grid || event.target === document.body)) {
        grid?.focus({preventScroll: true});
        keys.go(moves[event.key]);
    } else if (event.key === "Enter" && (event.target === grid || event.target === document.body)) {
        const line = keys.all[keys.at];
        if (!line) return;
        keys.go(keys.at);
        keys.open(line);
        if (line.row) requestAnimationFrame(() => document.getElementById("detail")?.focus());
    } else if (event.key === "/") {
        document.getElementById("filter")?.focus();
    } else if (event.key === "n" && after) {
        document.getElementById("nodes")?.focus();
    } else if (event.key === "?") {
        keys.help();
    } else {
        return;
    }
    event.preventDefault();
}

/** Says which node went down: to those who listen, and never a number. */
function told() {
    const news = before && store.snapshot ? transitions(before, store.snapshot.nodes) : [];
    if (news.length) heard(news.join("; "));
    before = store.snapshot?.nodes ?? null;
    changed();
}
/** @type {import("./pure.js").Node[] | null} */
let before = null;

const place = document.getElementById("page");
if (place) {
    render(html`<${Page} />`, place);
    document.addEventListener("keydown", pressed);
    document.addEventListener("focusin", it => { focused = it.target instanceof Element ? it.target : null; });
    document.getElementById("grid")?.focus();
    follow(store, told, () => new Promise(done => {
        given = () => {
            store.link = "connecting";
            changed();
            done();
        };
    }));
}
