// Light or dark: what the reader's system prefers, until the switch says otherwise.
import {html, useState} from "./vendor/preact.js";

const THEME = "holdfast.theme";

/** Which theme is shown. @returns {"light" | "dark"} */
export function theme() {
    const chosen = document.documentElement.dataset.theme;
    if (chosen === "light" || chosen === "dark") return chosen;
    return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

/** @param {string | null} chosen */
export function setTheme(chosen) {
    if (chosen) document.documentElement.dataset.theme = chosen;
}

setTheme(localStorage.getItem(THEME));

/** @param {{changed: () => void}} props */
export function Theme({changed}) {
    const [shown, show] = useState(theme());
    const other = shown === "dark" ? "light" : "dark";
    const turn = () => {
        setTheme(other);
        localStorage.setItem(THEME, other);
        show(other);
        changed();
    };
    return html`<button class="plain" onClick=${turn} title="Switch to the ${other} theme"
        aria-label="Switch to the ${other} theme">${shown === "dark" ? "☀" : "☾"}</button>`;
}
