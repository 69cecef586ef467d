// The nodes, and the line of totals with what it was in the last fifteen minutes.
import {html, useEffect, useLayoutEffect, useRef} from "./vendor/preact.js";
import {ahead, counted, guarded, lasted, reason, shortened, shown, sign, taken} from "./pure.js";
import {theme} from "./theme.js";

/** @typedef {import("./stream.js").Store} Store */

/** @param {{store: Store}} props */
export function Nodes({store}) {
    const nodes = store.nodes?.nodes ?? [];
    const names = shortened(nodes.map(it => it.node));
    const passed = store.known() - store.nodesAt;
    return html`<section id="nodes" class="nodes" aria-label="Nodes" tabindex="0">
        ${!nodes.length && html`<p class="faint">asking the nodes</p>`}
        ${nodes.map((it, at) => html`<${Node} key=${it.node} node=${it} name=${names[at]} passed=${passed} />`)}
    </section>`;
}

/** @param {{node: import("./pure.js").Node, name: string, passed: number}} props */
function Node({node, name, passed}) {
    const since = node.since_ms + passed;
    const state = node.state === "up" ? `up ${lasted((node.uptime_ms ?? node.since_ms) + passed)}`
        : node.state === "down" ? `down ${lasted(since)}` : node.state;
    const why = [...node.warnings.map(shown), ...node.cause && node.state !== "guarded" ? [reason(node.cause)] : []].join(", ");
    return html`<div class="node ${node.state}" title=${shown(node.node)}>
        <span class="sign" aria-hidden="true">${sign(node.state)}</span>
        <span class="name">${node.shard ? `${shown(node.shard)} ` : ""}${shown(name)}</span>
        <span class="state">${state}</span>
        ${node.guard_left_ms !== null ? html`<${Guard} left=${node.guard_left_ms - passed} since=${since} />`
            : node.state === "up" ? html`
                <span class="number trip" title="Mean round trip">${((node.rtt_us ?? 0) / 1000).toFixed(1)} ms</span>
                <span class="number clock" title="The node's clock, compared with the gateway's">${ahead(node.ahead_us)}</span>
                <span class="version ${why ? "trouble" : ""}" title=${why || node.version}>${why || shown(node.version)}</span>`
            : html`<span class="why" title=${why}>${why}</span>`}
    </div>`;
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
    const point = store.points.at(-1);
    const midnight = new Date().setHours(0, 0, 0, 0);
    const held = store.rows.size;
    let waiting = 0, longest = 0;
    if (point) [, , waiting, longest] = point;
    return html`<section class="totals" aria-label="Totals">
        <span><b>${counted(held)}</b> held</span>
        <span><b>${counted(waiting)}</b> waiting</span>
        <span>longest wait <b>${waiting ? lasted(longest) : "–"}</b></span>
        <span><b>${taken(store.audit, midnight)}</b> taken away today</span>
        <span class="sparks"><${Spark} points=${store.points} field=${1} label="held" />
            <${Spark} points=${store.points} field=${2} label="waiting" /></span>
    </section>`;
}

/**
 * One line over fifteen minutes.
 * @param {{points: number[][], field: number, label: string}} props
 */
function Spark({points, field, label}) {
    const place = useRef(/** @type {Element | null} */ (null));
    const plot = useRef(/** @type {uPlot | null} */ (null));
    const now = theme();
    const data = [points.map(it => it[0]), points.map(it => it[field])];
    useLayoutEffect(() => {
        if (!place.current) return;
        const stroke = getComputedStyle(place.current).color;
        plot.current = new uPlot({
            width: 96, height: 20, legend: {show: false}, cursor: {show: false}, axes: [{show: false}, {show: false}],
            padding: [2, 0, 2, 0],
            scales: {
                // A minute at least, so that the first seconds are no thick line.
                x: {range: (/** @type {unknown} */ _, /** @type {number} */ low, /** @type {number} */ high) => [Math.min(low, high - 60), high]},
                y: {range: (/** @type {unknown} */ _, /** @type {number} */ low, /** @type {number} */ high) => [0, Math.max(1, high)]},
            },
            series: [{}, {stroke, width: 1.5, points: {show: false}}],
        }, data, place.current);
        return () => plot.current?.destroy();
    }, [now]);
    useEffect(() => plot.current?.setData(data), [points]);
    return html`<span class="spark" title="The last 15 minutes at most"><span ref=${place} aria-hidden="true"></span> ${label}</span>`;
}
