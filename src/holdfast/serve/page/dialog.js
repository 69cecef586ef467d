// Dialogs: taking a lock away, the token, and the keys.
import {html, useEffect, useRef, useState} from "./vendor/preact.js";
import {shown} from "./pure.js";
import {ask, remembered} from "./store.js";

/** @typedef {import("./detail.js").Lock} Lock */

export const KEYS = [
    ["/", "Filter by name, holder or note"],
    ["j k, arrows", "Next and previous line"],
    ["Home End, PgUp PgDn", "Far lines"],
    ["Enter", "Show the lock, or open a semaphore"],
    ["Escape", "Back to the table"],
    ["g n", "Go to the nodes"],
    ["?", "Show these keys"],
];

/**
 * @param {{title: string, close: (() => void) | null, children?: unknown}} props
 */
function Dialog({title, close, children}) {
    const element = useRef(/** @type {HTMLDialogElement | null} */ (null));
    useEffect(() => {
        const before = document.activeElement;
        const dialog = element.current;
        dialog?.showModal();
        return () => {
            // While it is open, nothing else can have the focus.
            dialog?.close();
            if (before instanceof HTMLElement && before.isConnected) before.focus();
            else document.getElementById("grid")?.focus();
        };
    }, []);
    const cancelled = (/** @type {Event} */ it) => {
        it.preventDefault();
        close?.();
    };
    return html`<dialog ref=${element} aria-labelledby="dialog-title" onCancel=${cancelled}>
        <h2 id="dialog-title">${title}</h2>${children}</dialog>`;
}

/** @param {{close: () => void}} props */
export function Help({close}) {
    return html`<${Dialog} title="Keys" close=${close}>
        <dl class="keys">${KEYS.map(([key, what]) => html`<dt><kbd>${key}</kbd></dt><dd>${what}</dd>`)}</dl>
        <div class="actions"><button onClick=${close}>Close</button></div>
    <//>`;
}

/** @param {{why: string, forbidden: boolean, done: () => void}} props */
export function Token({why, forbidden, done}) {
    const [token, type] = useState("");
    const send = (/** @type {Event} */ it) => {
        it.preventDefault();
        if (!token.trim()) return;
        remembered(token.trim());
        done();
    };
    return html`<${Dialog} title=${forbidden ? "This token may not look" : "Token"} close=${null}>
        <form onSubmit=${send}>
            <p>${shown(why)}</p>
            <label>Token <input id="token" type="password" autocomplete="off" value=${token}
                onInput=${(/** @type {any} */ it) => type(it.target.value)} /></label>
            <p class="faint">It is kept until this tab is closed. The scope <code>look:*</code> is needed.</p>
            <div class="actions"><button class="primary" disabled=${!token.trim()}>Look</button></div>
        </form>
    <//>`;
}

/** @param {{lock: Lock, close: () => void}} props */
export function Take({lock, close}) {
    const [reason, give] = useState("");
    const [typed, type] = useState("");
    const [problem, tell] = useState(/** @type {any} */ (null));
    const [busy, wait] = useState(false);
    const next = lock.queue[0];
    // A name with characters that cannot be typed is typed as it is shown.
    const ready = reason.trim() !== "" && (typed === lock.name || typed === shown(lock.name)) && !busy;
    const send = async (/** @type {Event} */ it) => {
        it.preventDefault();
        if (!ready) return;
        wait(true);
        try {
            await ask(`v1/locks/${encodeURIComponent(lock.name)}`, {
                method: "DELETE",
                headers: {"Content-Type": "application/json", "If-Match": `"${lock.holder ?? ""}"`},
                body: JSON.stringify({reason: reason.trim(), name: lock.name}),
            });
            close();
        } catch (found) {
            tell(found);
            wait(false);
        }
    };
    return html`<${Dialog} title="Take it away" close=${close}>
        <form onSubmit=${send}>
            <dl>
                <dt>lock</dt><dd><code id="take-name">${shown(lock.name)}</code></dd>
                <dt>held by</dt><dd>${shown(lock.owner ?? lock.holder ?? "nobody for certain")}</dd>
                ${lock.note && html`<dt>note</dt><dd>${shown(lock.note)}</dd>`}
                <dt>fence</dt><dd>${lock.fence ?? "–"}</dd>
                <dt>next</dt><dd>${next ? shown(next.owner ?? next.id) : "nobody waits"}</dd>
            </dl>
            <p class="caution">What it protected may still be going on: the holder learns of it at its next renewal.</p>
            <label>Reason <input id="reason" type="text" maxlength="1024" autocomplete="off" value=${reason}
                onInput=${(/** @type {any} */ it) => give(it.target.value)} /></label>
            <label>Type the lock’s name <input id="typed" type="text" autocomplete="off" spellcheck=${false} value=${typed}
                onInput=${(/** @type {any} */ it) => type(it.target.value)} /></label>
            <p class="trouble" role="alert">${problem && wrong(problem)}</p>
            <div class="actions"><button type="button" onClick=${close}>Cancel</button>
                <button class="danger" disabled=${!ready}>Take it away</button></div>
        </form>
    <//>`;
}

/** Why a lock was not taken away, and what to do. @param {any} problem */
export function wrong(problem) {
    if (problem.status === 412) {
        const who = problem.holder?.owner ?? "Another client";
        return `${shown(who)} holds it now. Nothing was taken away: close this and look again.`;
    }
    return shown(problem.detail ?? "The gateway does not answer. It may or may not be taken away: close this and look.");
}
