// The table of locks: a window over all lines, driven by the keyboard or the mouse.
import {html, useEffect, useLayoutEffect, useMemo, useRef, useState} from "./vendor/preact.js";
import {FILTERS, foot, lasted, seen, sentence, shown} from "./pure.js";

/** @typedef {import("./store.js").Store} Store */
/** @typedef {import("./pure.js").Line} Line */
/** @typedef {import("./pure.js").Column} Column */
/** @typedef {import("./pure.js").Place & {open: Set<string>}} View */

/** Where there is little room, the holder stands below the name. */
const narrow = matchMedia("(max-width: 640px)");
/** How high a line is, in pixels. */
export const rowHeight = () => narrow.matches ? 48 : 32;

/** What each filter keeps, for its tooltip. */
export const KEPT = {
    all: "All locks that are held",
    waiting: "Locks that somebody waits for",
    long: "Locks that were asked for more than 5 minutes ago",
    slots: "Permits of semaphores",
    leaders: "Elections",
};
/** @type {[Column, string, string][]} */
const HEADS = [
    ["name", "Name", "The lock's name"],
    ["holder", "Holder", "The client that holds the lock, and its note"],
    ["age", "Age", "Since when the holder has asked for the lock"],
    ["left", "Left", "Until the lease ends, unless it is renewed"],
    ["queue", "Queue", "How many wait for the lock"],
    ["hot", "Waited for", "In which share of the samples of this lock, since this page was opened, somebody waited"],
];

/** @param {{view: View, change: (it: Partial<View>) => void}} props */
export function Filters({view, change}) {
    return html`<div class="filters">
        <label class="search"><span class="unseen">Filter by name, holder or note; with * at its end by what names begin with</span>
            <input id="filter" type="text" placeholder="filter, or prefix* (press /)" autocomplete="off" spellcheck=${false}
                value=${view.text} onInput=${(/** @type {any} */ it) => change({text: it.target.value})} /></label>
        <div class="chips" role="group" aria-label="Which locks">
            ${FILTERS.map(it => html`<button class="chip" aria-pressed=${view.filter === it} title=${KEPT[it]}
                onClick=${() => change(it === "waiting" ? {filter: it, column: "queue", down: true}
                    : it === "long" ? {filter: it, column: "age", down: true} : {filter: it})}>${it}</button>`)}
        </div>
    </div>`;
}

/**
 * @param {{store: Store, lines: Line[], view: View, change: (it: Partial<View>) => void, cursor: number,
 *   put: (at: number) => void, choose: (line: Line) => void, moved: () => void}} props
 */
export function Table({store, lines, view, change, cursor, put, choose, moved}) {
    const box = useRef(/** @type {HTMLElement | null} */ (null));
    const [place, move] = useState({top: 0, height: 800});
    const high = rowHeight();
    const {first, last, most} = seen(place.top, place.height, lines.length, high);
    const inView = lines.slice(first, last);
    useLayoutEffect(() => {
        const element = box.current;
        if (!element) return;
        // The heading stays in view, over the first line.
        const measure = () => move({top: element.scrollTop, height: element.clientHeight - rowHeight()});
        const observer = new ResizeObserver(measure);
        observer.observe(element);
        const scroll = () => {
            moved();
            measure();
        };
        element.addEventListener("scroll", scroll, {passive: true});
        return () => {
            observer.disconnect();
            element.removeEventListener("scroll", scroll);
        };
    }, []);
    useEffect(() => {
        const element = box.current;
        if (!element) return;
        const top = cursor * high;
        if (top < element.scrollTop) element.scrollTop = top;
        else if (top + 2 * high > element.scrollTop + element.clientHeight) element.scrollTop = top + 2 * high - element.clientHeight;
    }, [cursor]);
    const now = store.known();
    const locks = useMemo(() => found(lines), [lines]);
    return html`<div class="table" role="grid" aria-label="Locks" aria-rowcount=${lines.length + 1} aria-colcount=${HEADS.length}
            id="grid" tabindex="0" ref=${box} aria-activedescendant=${cursor >= first && cursor < last ? `row-${cursor}` : null}>
        <div class="heading" role="rowgroup"><div class="row head" role="row" aria-rowindex="1">
            ${HEADS.map(it => html`<${ColumnHead} column=${it} view=${view} change=${change} />`)}
        </div></div>
        <div role="rowgroup">
            <div class="all" role="presentation" style=${{height: `${lines.length * high}px`}}>
                ${inView.map((line, at) => html`<${Row} key=${(first + at) % most} line=${line} at=${first + at} high=${high} now=${now}
                    passed=${now - (store.snapshot?.complete_at ?? now)} put=${put} choose=${choose} current=${first + at === cursor}
                    chosen=${line.name === view.lock && line.row !== null} open=${view.open.has(line.name)} />`)}
            </div>
            ${!lines.length && html`<${Nothing} store=${store} view=${view} />`}
        </div>
    </div>
    <div class="foot">${foot(store.snapshot, locks, store.now())}</div>`;
}

/** How many locks these lines are. @param {Line[]} lines */
export function found(lines) {
    return lines.reduce((sum, it) => sum + (it.depth ? 0 : it.permits || 1), 0);
}

/** @param {{column: typeof HEADS[number], view: View, change: (it: Partial<View>) => void}} props */
function ColumnHead({column: [name, label, why], view, change}) {
    const sorted = view.column === name;
    const turn = () => change({column: name, down: sorted ? !view.down : ["age", "queue", "hot"].includes(name)});
    return html`<span class=${name} role="columnheader" aria-sort=${sorted ? (view.down ? "descending" : "ascending") : "none"}>
        <button class="sort" title=${why} onClick=${turn}>${label}<i aria-hidden="true">${sorted ? (view.down ? " ▴" : " ▾") : ""}</i></button></span>`;
}

/**
 * @param {{line: Line, at: number, high: number, now: number, passed: number, current: boolean, chosen: boolean, open: boolean,
 *   put: (at: number) => void, choose: (line: Line) => void}} props
 */
function Row({line, at, high, now, passed, current, chosen, open, put, choose}) {
    const click = () => {
        put(at);
        choose(line);
    };
    const kind = line.kind === "exclusive" || line.depth ? "" : line.permits ? `${line.permits} held` : line.kind === "election" ? "leader" : line.kind;
    const opens = line.permits > 0;
    return html`<div class="row line ${current ? "current" : ""} ${chosen ? "chosen" : ""} ${line.depth ? "part" : ""}" role="row" id=${`row-${at}`}
            aria-rowindex=${at + 2} aria-selected=${chosen} onClick=${click}
            style=${{transform: `translateY(${at * high}px)`}}>
        <span class="name" role="gridcell" aria-expanded=${opens ? open : null} title=${shown(line.name)}><b>${opens && (open ? "▾ " : "▸ ")}${shown(line.label)}</b>
            ${kind && html`<em>${kind}</em>`}${line.state === "split" && html`<em class="trouble">split</em>`}</span>
        <span class="holder" role="gridcell" title=${`${shown(line.holder)}${line.note && ` · ${shown(line.note)}`}`}><b>${shown(line.holder)}</b>${line.note && ` · ${shown(line.note)}`}</span>
        <span class="age number" role="gridcell">${line.asked === null ? "–" : lasted(now - line.asked)}</span>
        <span class="left number" role="gridcell">${opens ? "" : lasted(line.left === null || line.left < passed ? null : line.left - passed)}</span>
        <span class="queue number ${line.queue ? "some" : ""}" role="gridcell">${line.queue}</span>
        <span class="hot number" role="gridcell">${line.hot ? `${line.hot} % of samples` : ""}</span>
    </div>`;
}

/** What to do where there is nothing. @param {{store: Store, view: View}} props */
function Nothing({store, view}) {
    if (store.rows.size) {
        return html`<div class="nothing" role="row"><div role="gridcell"><p>No lock ${view.text ? view.text.endsWith("*") ? html`has a name that begins with <code>${shown(view.text.slice(0, -1))}</code>` : html`has <code>${shown(view.text)}</code> in its name, holder or note` : `is in “${view.filter}”`}.</p></div></div>`;
    }
    if (!store.snapshot || store.snapshot.complete_at === null) {
        return html`<div class="nothing" role="row"><div role="gridcell"><p class="faint">${store.snapshot?.why ? sentence(store.snapshot.why) : "looking…"}</p></div></div>`;
    }
    return html`<div class="nothing" role="row"><div role="gridcell">
        <p>No lock is held. This one appears here while it is:</p>
        <pre>with Holdfast() as locks:
    with locks.lock("deploy", wait=5):
        ...</pre>
        <p>In a shell:</p>
        <pre>holdfast run deploy -- ./deploy.sh</pre>
    </div></div>`;
}
