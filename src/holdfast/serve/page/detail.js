// One lock: its holder, its queue, its nodes and who had it before. And what was taken away.
import {html, useEffect, useState} from "./vendor/preact.js";
import {lasted, lasting, moment, sentence, shortened, shown, strip} from "./pure.js";
import {ask} from "./store.js";

/** @typedef {import("./store.js").Store} Store */
/** @typedef {{id: string, owner: string | null, asked: string | null, left_ms: number, nodes: number}} Waiting */
/**
 * @typedef {{name: string, state: string, holder: string | null, owner: string | null, note: string | null, asked: string | null,
 *   left_ms: number | null, fence: number | null, queue: Waiting[], readers: Waiting[],
 *   nodes: {node: string, error: string | null, holder: string | null}[]}} Lock
 */
/** @typedef {{lock: Lock, may_force: boolean}} Detail */

/**
 * @param {{store: Store, name: string | null, kind: string, take: (lock: Lock) => void, close: () => void}} props
 */
export function Detail({store, name, kind, take, close}) {
    const [found, tell] = useState(/** @type {{detail: Detail | null, at: number, why: string}} */ ({detail: null, at: 0, why: ""}));
    useEffect(() => {
        if (name === null) return;
        let over = false;
        const look = async () => {
            if (document.hidden) return;
            try {
                const detail = await ask(`ui/lock?name=${encodeURIComponent(name)}`);
                if (!over) tell({detail, at: store.now(), why: ""});
            } catch (problem) {
                const why = /** @type {any} */ (problem).detail ?? "the gateway does not answer";
                if (!over) tell(before => ({...before, why}));
            }
        };
        look();
        const timer = setInterval(look, 1000);
        return () => {
            over = true;
            clearInterval(timer);
        };
    }, [name]);
    const detail = found.detail?.lock.name === name ? found.detail : null;
    return html`<aside id="detail" class="detail ${name === null ? "" : "open"}" aria-label=${name === null ? "Taken away" : "The chosen lock"} tabindex="-1">
        ${name === null ? html`<${Audit} store=${store} />` : html`
            <header><h2>${shown(name)}</h2><span class="faint">${kind}</span>
                <button class="plain" onClick=${close} title="Close (Escape)" aria-label="Close">✕</button></header>
            ${found.why && html`<p class="trouble">${sentence(found.why)}</p>`}
            ${!detail && !found.why && html`<p class="faint">looking…</p>`}
            ${detail && html`<${Whole} detail=${detail} at=${found.at} store=${store} take=${take} />`}`}
    </aside>`;
}

/** @param {{detail: Detail, at: number, store: Store, take: (lock: Lock) => void}} props */
function Whole({detail, at, store, take}) {
    const {lock} = detail;
    const now = store.nodesKnown();
    const votes = lock.nodes.filter(it => it.holder !== null && it.holder === lock.holder).length;
    const left = lock.left_ms === null ? null : Math.max(0, lock.left_ms - (now - at));
    const asked = lock.asked === null ? null : Date.parse(lock.asked);
    return html`
        ${lock.state === "free" && html`<p>Nobody holds it.</p>`}
        ${lock.state === "split" && html`<p class="trouble">No holder has a majority, and the lock is not free. It heals by itself when the votes expire.</p>`}
        ${lock.state === "held" && html`<dl>
            <dt>held by</dt><dd>${lock.holder === "shared" ? `${lock.readers.length} readers` : shown(lock.owner ?? lock.holder ?? "")}</dd>
            ${lock.note && html`<dt>note</dt><dd>${shown(lock.note)}</dd>`}
            ${lock.fence !== null && lock.holder !== "shared" && html`<dt>fence</dt><dd>${lock.fence} <${Copy} text=${String(lock.fence)} /></dd>`}
            ${asked !== null && html`<dt>asked</dt><dd>${moment(asked)} · ${lasted(now - asked)} ago</dd>`}
            <dt>left</dt><dd>${left === null ? "no expiry" : lasted(left)} unless renewed · ${votes} votes</dd>
        </dl>`}
        ${lock.readers.length > 0 && html`<${People} title="Readers" people=${lock.readers} now=${now} />`}
        ${lock.queue.length > 0 && html`<${People} title="In line" people=${lock.queue} now=${now} />`}
        <${Votes} lock=${lock} />
        <${Strip} tenures=${store.memory.get(lock.name)?.tenures ?? []} now=${now} every=${store.snapshot?.interval_ms ?? 1000} />
        ${detail.may_force && lock.state !== "free" && html`
            <button id="take" class="danger" disabled=${store.stale() === "all"} onClick=${() => take(lock)}>Take it away…</button>`}`;
}

/** @param {{text: string}} props */
function Copy({text}) {
    const [done, tell] = useState(false);
    const copy = async () => {
        try {
            await navigator.clipboard.writeText(text);
            tell(true);
            setTimeout(() => tell(false), 2000);
        } catch {
            // Without a secure context there is no clipboard: the number can be marked.
        }
    };
    return html`<button class="link" onClick=${copy} aria-label="Copy the fence">${done ? "copied" : "copy"}</button>`;
}

/** @param {{title: string, people: Waiting[], now: number}} props */
function People({title, people, now}) {
    return html`<h3>${title}</h3><ol class="people">${people.map(it => html`<li key=${it.id}>
        <span>${shown(it.owner ?? it.id)}</span><span class="number faint">${it.asked === null ? "" : lasted(now - Date.parse(it.asked))}</span></li>`)}</ol>`;
}

/** @param {{lock: Lock}} props */
function Votes({lock}) {
    const names = shortened(lock.nodes.map(it => it.node));
    return html`<h3>Nodes</h3><ul class="votes">${lock.nodes.map((it, at) => {
        const [sign, word] = it.error !== null ? ["○", "no answer"] : it.holder === null ? ["–", "free"]
            : it.holder === lock.holder ? ["●", "votes for the holder"] : ["◐", "somebody else"];
        return html`<li key=${it.node} title=${`${shown(it.node)}: ${it.error === null ? word : shown(it.error)}`}>${shown(names[at])} <span aria-hidden="true">${sign}</span><span class="unseen">${word}</span></li>`;
    })}</ul>`;
}

/** @param {{tenures: import("./pure.js").Tenure[], now: number, every: number}} props */
function Strip({tenures, now, every}) {
    const parts = strip(tenures, now, lasting);
    if (!parts.length) return null;
    return html`<h3>Holders in the last 15 minutes</h3>
        <svg class="strip" viewBox="0 0 1000 20" preserveAspectRatio="none" role="img"
            aria-label=${parts.map(it => `${shown(it.who)} from ${moment(it.first)} to ${moment(it.last)}`).join("; ")}>
            ${parts.map((it, at) => html`<rect key=${`${it.fence} ${it.first}`} class=${at === parts.length - 1 ? "last" : "earlier"} x=${it.from * 1000} y="2"
                width=${it.width * 1000} height="16"><title>${shown(it.who)}, ${moment(it.first)} to ${moment(it.last)}</title></rect>`)}
        </svg>
        <p class="faint small">As this page has seen it, every ${lasted(every)}. A shorter hold is not seen.</p>`;
}

/** @param {{store: Store}} props */
function Audit({store}) {
    const lines = [...store.snapshot?.taken ?? []].reverse();
    return html`<header><h2>Taken away</h2></header>
        ${!lines.length && html`<p class="faint">Nothing was taken away since this gateway started.</p>`}
        <ul class="audit">${lines.map(it => html`<li key=${`${it.at} ${it.name}`}>
            <span class="number faint">${moment(Date.parse(it.at))}</span> <b>${shown(it.name)}</b> by ${shown(it.client)}: ${shown(it.reason)}</li>`)}</ul>
        <p class="faint">Choose a lock to see its holder, its queue and its nodes: <kbd>j</kbd> <kbd>k</kbd> and <kbd>Enter</kbd>.</p>
        ${store.snapshot?.grafana_url && html`<p class="faint"><a href=${store.snapshot.grafana_url} rel="noreferrer">Grafana</a> has what processes count themselves.</p>`}`;
}
