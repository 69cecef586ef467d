// The page as a whole: what is chosen, which keys do what, and the parts.
import {html, render, useEffect, useState} from "./vendor/preact.js";
import {headline, kept_at, lines, moment, shown, transitions} from "./pure.js";
import {Store, ask, follow, query} from "./stream.js";
import {Theme} from "./theme.js";
import {Nodes, Totals} from "./nodes.js";
import {Filters, Table} from "./table.js";
import {Detail} from "./detail.js";
import {Help, Take, Token} from "./dialog.js";

/** @typedef {import("./pure.js").Line} Line */
/** @typedef {import("./table.js").View} View */

/** Whoever does not scroll for so many ms has stopped. The page is drawn each second, so the lines go on then. */
const SCROLLING = 150;

const store = new Store();
/** Ends the wait for a token. @type {() => void} */
let given = () => {};
/** Draws the page. @type {() => void} */
let draw = () => {};
/** Names of the locks in sight. @type {string[]} */
let sighted = [];
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
    const of = `${view.text}\n${view.filter} ${view.column} ${view.down} ${view.filter === "long" ? Math.floor(now / 1000) : ""}`;
    // The lines stand still while somebody scrolls: nothing jumps, and no frame has to sort all of them.
    const stale = made.version !== store.version && performance.now() - scrolled > SCROLLING;
    if (stale || made.of !== of || made.open !== view.open) {
        made = {of, version: store.version, open: view.open, lines: lines(store.rows, {...view, now})};
    }
    return made.lines;
}

function Page() {
    const [, count] = useState(0);
    const [view, see] = useState(/** @type {View} */ ({text: "", filter: "all", column: "name", down: false, open: new Set()}));
    const [cursor, put] = useState(/** @type {{at: number, name: string | null}} */ ({at: 0, name: null}));
    const [chosen, choose] = useState(/** @type {string | null} */ (null));
    const [taking, take] = useState(/** @type {import("./detail.js").Lock | null} */ (null));
    const [help, tellKeys] = useState(false);
    const [lefts, tellLefts] = useState(/** @type {Record<string, number | null>} */ ({}));
    const [leftsAt, tellAt] = useState(0);
    const [said, say] = useState("");
    draw = () => count(it => it + 1);
    const all = linesOf(view);
    const at = kept_at(all, cursor.name, cursor.at);
    const go = (/** @type {number} */ to) => {
        const place = Math.max(0, Math.min(all.length - 1, to));
        put({at: place, name: all[place]?.name ?? null});
    };
    const open = (/** @type {Line} */ line) => {
        if (line.row) {
            choose(line.name);
            return;
        }
        const set = new Set(view.open);
        if (!set.delete(line.name)) set.add(line.name);
        see({...view, open: set});
    };
    const close = () => {
        choose(null);
        document.getElementById("grid")?.focus();
    };
    keys = {all, at, go, open, close, help: () => tellKeys(true), dialog: help || taking !== null};
    useEffect(() => {
        const second = setInterval(changed, 1000);
        const left = setInterval(async () => {
            if (document.hidden || store.link !== "live" || !sighted.length) return;
            try {
                tellLefts(await ask(`ui/left?${query("name", sighted.slice(0, 60))}`));
                tellAt(store.now());
            } catch {
                // The next answer will tell.
            }
        }, 1000);
        return () => {
            clearInterval(second);
            clearInterval(left);
        };
    }, []);
    heard = say;
    useEffect(() => {
        // What had the focus is gone, such as the button of a lock that is free now.
        if (focused && !focused.isConnected && document.activeElement === document.body) {
            document.getElementById(chosen === null ? "grid" : "detail")?.focus({preventScroll: true});
        }
    });
    const passed = store.known() - leftsAt;
    const shownLefts = Object.fromEntries(Object.entries(lefts).map(([name, it]) => [name, it === null ? null : it - passed]));
    const kind = chosen === null ? "" : store.rows.get(chosen)?.[0] ?? "";
    const asks = store.link === "token" || store.link === "forbidden";
    return html`<div class="page ${store.link === "lost" ? "stale" : ""}">
        <${Head} help=${() => tellKeys(true)} />
        <${Nodes} store=${store} />
        <${Totals} store=${store} />
        <main>
            <section class="locks" aria-label="All locks">
                <${Filters} view=${view} change=${(/** @type {Partial<View>} */ it) => see({...view, ...it})} />
                <${Table} store=${store} lines=${all} view=${view} change=${(/** @type {Partial<View>} */ it) => see({...view, ...it})}
                    cursor=${at} chosen=${chosen} put=${go} choose=${open} lefts=${shownLefts}
                    sight=${(/** @type {string[]} */ it) => { sighted = it; }} moved=${() => { scrolled = performance.now(); }} />
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
    const safe = store.nodes ? headline(store.nodes) : null;
    const link = store.link === "live" ? html`<span class="link-live"><i aria-hidden="true">●</i> live</span>`
        : store.link === "lost" ? html`<span class="link-lost"><i aria-hidden="true">○</i> stream lost, as of ${moment(store.asOf - store.skew)}</span>`
        : html`<span class="faint"><i aria-hidden="true">◐</i> connecting</span>`;
    return html`<header class="top">
        <h1>holdfast</h1>
        <span class="prefix faint">${store.hello?.prefix ? `prefix ${shown(store.hello.prefix)}` : ""}</span>
        <span class="safe ${safe?.trouble ? "trouble" : ""}">${safe?.text ?? ""}</span>
        <span class="status">${link}
            <${Theme} changed=${changed} />
            <button class="plain" onClick=${help} title="Keys (?)" aria-label="Keys">?</button></span>
    </header>
    ${safe?.trouble && html`<div class="alarm" role="alert"><b>No quorum.</b> ${safe.trouble}</div>`}`;
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
    const page = Math.max(1, Math.floor((grid?.clientHeight ?? 320) / 32) - 2);
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
    const news = before && store.nodes ? transitions(before, store.nodes.nodes) : [];
    if (news.length) heard(news.join("; "));
    before = store.nodes?.nodes ?? null;
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
