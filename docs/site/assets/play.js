// Plays recorded histories: a picture with a cursor, the step at the cursor, and what each lane knows then.
// histories.js, which `./task site` writes, sets `histories` and `pictures`.
(() => {
  const place = document.getElementById("play")
  if (!place || !window.histories) return
  const LEFT = 128, RIGHT = 852
  const SLOW = { "slow": 1400, "normal": 700, "fast": 250 }

  const make = (tag, facts = {}, ...children) => {
    const element = document.createElement(tag)
    for (const [name, value] of Object.entries(facts)) {
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value)
      else element.setAttribute(name, value)
    }
    element.append(...children)
    return element
  }

  let history, steps, at, timer = null

  const choice = make("select", { id: "play-history", onchange: () => choose(choice.value) })
  const group = (label, safe) => {
    const found = histories.filter((it) => it.safe === safe)
    return make("optgroup", { label }, ...found.map((it) => make("option", { value: it.name }, it.title)))
  }
  choice.append(group("What holdfast does", true), group("What goes wrong without it", false))
  const pace = make("select", { id: "play-pace", onchange: () => timer && run() })
  pace.append(...Object.keys(SLOW).map((it) => make("option", it === "normal" ? { selected: "" } : {}, it)))
  const about = make("p", { class: "play-about" })
  const picture = make("div", { class: "play-picture", tabindex: "0", role: "region", "aria-label": "Picture of the history" })
  const button = (label, hint, act) => make("button", { type: "button", class: "md-button", title: hint, onclick: act }, label)
  const play = button("Play", "Play or pause", () => (timer ? stop() : run()))
  const slider = make("input", { type: "range", min: "0", step: "1", id: "play-step", oninput: () => { stop(); show(+slider.value) } })
  const told = make("p", { class: "play-told" })
  const verdict = make("p", { class: "play-verdict" })
  const rows = make("tbody")
  const table = make("table", { class: "play-table" },
    make("caption", {}, "What each of them knows at this moment"),
    make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "Who"), make("th", { scope: "col" }, "Knows"))), rows)
  const list = make("ol", { class: "play-list", tabindex: "0", "aria-label": "All steps of the history" })

  place.append(
    make("div", { class: "play-bar" },
      make("label", { for: "play-history" }, "History"), choice,
      make("label", { for: "play-pace" }, "Pace"), pace),
    about, picture,
    make("div", { class: "play-bar" },
      button("First", "Go to the first step", () => { stop(); show(0) }),
      button("Back", "One step back", () => { stop(); show(at - 1) }),
      play,
      button("Next", "One step on", () => { stop(); show(at + 1) }),
      make("label", { for: "play-step", class: "play-hidden" }, "Step"), slider),
    told, verdict,
    make("div", { class: "play-columns" }, table, list))
  place.hidden = false

  const known = (lane, moment) => {
    let found = history.beliefs[lane][0]
    for (const it of history.beliefs[lane]) if (it[0] <= moment) found = it
    return found
  }

  // A cursor at the moment of the step, and a veil over what has not happened yet.
  const mark = (moment) => {
    const svg = picture.querySelector("svg")
    const x = LEFT + ((RIGHT - LEFT) * moment) / history.seconds
    const height = svg.viewBox.baseVal.height - 66
    for (const [kind, facts] of [["rect", { class: "veil", x, y: 76, width: RIGHT + 6 - x, height: height - 78 }],
      ["line", { class: "cursor", x1: x, y1: 76, x2: x, y2: height }]]) {
      let shape = svg.querySelector(`.${facts.class}`)
      if (!shape) svg.append((shape = document.createElementNS("http://www.w3.org/2000/svg", kind)))
      for (const [name, value] of Object.entries(facts)) shape.setAttribute(name, value)
    }
  }

  const show = (wanted) => {
    at = Math.max(0, Math.min(wanted, steps.length - 1))
    const step = steps[at]
    slider.value = at
    const text = `${step.at.toFixed(2)} s: ${step.text}.`
    slider.setAttribute("aria-valuetext", `Step ${at + 1} of ${steps.length}. ${text}`)
    told.textContent = text
    told.className = `play-told is-${step.kind}`
    mark(step.at)
    const faults = history.faults.filter((it) => it.begins <= step.at && step.at < it.ends)
    rows.replaceChildren(...history.lanes.map((lane) => {
      const [, state, words] = known(lane, step.at)
      const wrong = faults.filter((it) => it.lane === lane).map((it) => make("strong", { class: "is-fault" }, `${it.text} · `))
      return make("tr", { class: `is-${state}` }, make("th", { scope: "row" }, lane), make("td", {}, ...wrong, words))
    }))
    const holders = history.lanes.filter((lane) => !/^(node|storage)/.test(lane) && known(lane, step.at)[1] === "held")
    verdict.className = `play-verdict ${holders.length > 1 ? "is-bad" : ""}`
    verdict.textContent = holders.length > 1
      ? `${holders.join(" and ")} both believe that they hold the lock.`
      : holders.length ? `${holders[0]} believes that it holds the lock.` : "No client believes that it holds the lock."
    ;[...list.children].forEach((it, number) => {
      if (number === at) it.setAttribute("aria-current", "step")
      else it.removeAttribute("aria-current")
    })
    const current = list.children[at]
    list.scrollTop = current.offsetTop - list.clientHeight / 2
    if (at === steps.length - 1) stop()
  }

  const stop = () => {
    clearInterval(timer)
    timer = null
    play.textContent = "Play"
    told.setAttribute("aria-live", "polite")
  }

  const run = () => {
    clearInterval(timer)
    // A screen reader would be read every step while they pass: it reads the step where the reader pauses.
    told.setAttribute("aria-live", "off")
    if (at === steps.length - 1) show(0)
    play.textContent = "Pause"
    timer = setInterval(() => show(at + 1), SLOW[pace.value])
  }

  const open = (name) => {
    stop()
    history = histories.find((it) => it.name === name)
    choice.value = history.name
    steps = [{ at: 0, text: "Nothing has happened yet", kind: "state" }, ...history.steps]
    slider.max = steps.length - 1
    about.replaceChildren(`${history.about} `, make("strong", {}, history.shows))
    picture.innerHTML = pictures[history.name]
    list.replaceChildren(...steps.map((it) => make("li", { class: `is-${it.kind}` }, `${it.at.toFixed(2)} s: ${it.text}`)))
    show(0)
  }

  const choose = (name) => {
    open(name)
    window.history.replaceState(null, "", `#${name}`)
  }

  // The page has other anchors, too: only the name of a history leads here.
  const follow = () => {
    const name = location.hash.slice(1)
    if (!histories.some((it) => it.name === name)) return
    open(name)
    place.scrollIntoView()
  }

  window.addEventListener("hashchange", follow)
  open(histories[0].name)
  follow()
})()
