// The nodes, and the line of totals with what it was in the last fifteen minutes.
import {html} from "./vendor/preact.js";
import {ahead, counted, guarded, lasted, reason, shortened, shown, sign, spark, taken} from "./pure.js";

/** @typedef {import("./store.js").Store} Store */

/** The heads of the columns, and what each of them means. */
const NODE_COLUMNS = [
    ["name", "Node", "The address of the node"],
    ["state", "State", "Since when it is like this"],
    ["trip", "Round trip", "The mean time from a question of the gateway to the node's answer"],
    ["clock", "Clock", "How far the node's clock is ahead of the gateway's. At a quarter of the restart guard, the node is not used"],
    ["version", "Server", "The node's version, and warnings"],
];

/** @param {{store: Store}} props */
export function Nodes({store}) {
    const nodes = store.snapshot?.nodes ?? [];
    const names = shortened(nodes.map(it => it.node));
    const passed = store.nodesKnown() - (store.snapshot?.at ?? 0);
    return html`<section id="nodes" class="nodes" aria-label="Nodes" tabindex="0">
        ${!nodes.length ? html`<p class="faint">asking the nodes</p>` : html`<table>
            <thead><tr class="node head">${NODE_COLUMNS.map(([name, label, why]) => html`<th class=${name} scope="col" title=${why}>${label}</th>`)}</tr></thead>
            <tbody>${nodes.map((it, at) => html`<${Node} key=${it.node} node=${it} name=${names[at]} passed=${passed} />`)}</tbody>
        </table>`}
    </section>`;
}

/** @param {{node: import("./pure.js").Node, name: string, passed: number}} props */
function Node({node, name, passed}) {
    const since = node.since_ms + passed;
    const state = node.state === "up" ? `up ${lasted((node.uptime_ms ?? node.since_ms) + passed)}`
        : node.state === "down" ? `down ${lasted(since)}` : node.state;
    const why = [...node.warnings.map(shown), ...node.cause && node.state !== "guarded" ? [reason(node.cause)] : []].join(", ");
    return html`<tr class="node ${node.state}" title=${shown(node.node)}>
        <td class="name"><span class="sign" aria-hidden="true">${sign(node.state)}</span>${node.shard ? `${shown(node.shard)} ` : ""}${shown(name)}</td>
        <td class="state">${state}</td>
        ${node.guard_left_ms !== null ? html`<td class="rest" colspan="3"><${Guard} left=${node.guard_left_ms - passed} since=${since} /></td>`
            : node.state === "up" ? html`
                <td class="number trip">${((node.rtt_us ?? 0) / 1000).toFixed(1)} ms</td>
                <td class="number clock">${ahead(node.ahead_ms)}</td>
                <td class="version ${why ? "trouble" : ""}" title=${why || node.version}>${why || shown(node.version)}</td>`
            : html`<td class="rest why" colspan="3" title=${why}>${why}</td>`}
    </tr>`;
}

/** @param {{left: number, since: number}} props */
function Guard({left, since}) {
    const tenths = guarded(left, since);
    const text = `${Math.max(0, Math.ceil(left / 1000))} s left`;
    return html`<span class="guard" title="The node has restarted and may have forgotten locks. It is not used until every lease that it may have forgotten has expired.">
        <svg width="70" height="8" aria-hidden="true">${Array.from({length: 10}, (_, at) => html`
            <rect x=${at * 7} y="0" width="6" height="8" class=${at < tenths ? "full" : "empty"} />`)}</svg>
        <span>${text}</span>
    </span>`;
}

/** @param {{store: Store}} props */
export function Totals({store}) {
    const [, , waiting, longest] = store.points.at(-1) ?? [0, 0, 0, 0];
    const midnight = new Date().setHours(0, 0, 0, 0);
    return html`<section class="totals" aria-label="Totals">
        <span><b>${counted(store.rows.size)}</b> held</span>
        <span><b>${counted(waiting)}</b> waiting</span>
        <span>longest wait <b>${waiting ? lasted(longest) : "–"}</b></span>
        <span><b>${taken(store.snapshot?.taken ?? [], midnight)}</b> taken away today</span>
        <span class="sparks"><${Spark} points=${store.points} field=${1} label="held" />
            <${Spark} points=${store.points} field=${2} label="waiting" /></span>
    </section>`;
}

/**
 * One line over fifteen minutes.
 * @param {{points: number[][], field: number, label: string}} props
 */
function Spark({points, field, label}) {
    return html`<span class="spark" title="Since this page was opened, and the last 15 minutes at most"><svg width="96" height="20" aria-hidden="true">
        <polyline points=${spark(points, field, 96, 16)} transform="translate(0 2)" /></svg> ${label}</span>`;
}
