// Tables that scroll sideways can be scrolled with the keyboard, too. The theme wraps tables after the page has loaded.
(() => {
  const mark = () => document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])").forEach((it) => (it.tabIndex = 0))
  new MutationObserver(mark).observe(document.body, { childList: true, subtree: true })
  mark()
})()
