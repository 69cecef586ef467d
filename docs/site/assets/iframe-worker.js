// A page opened from file:// may not start a worker. There, the search runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.waiting = []
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      this.frame.title = "search"
      document.documentElement.append(this.frame)
      const inside = this.frame.contentWindow
      // What the worker says reaches the page as an event.
      inside.postMessage = (data) => setTimeout(() => this.tell(new MessageEvent("message", { data })))
      const script = this.frame.contentDocument.createElement("script")
      script.src = new URL(url, location.href)
      script.onload = () => {
        const waiting = this.waiting
        this.waiting = null
        waiting.forEach((data) => this.postMessage(data))
      }
      script.onerror = () => this.tell(new ErrorEvent("error", { cancelable: true }))
      this.frame.contentDocument.body.append(script)
    }

    tell(event) {
      const listener = this[`on${event.type}`]
      if (listener) listener.call(this, event)
      this.dispatchEvent(event)
    }

    postMessage(data) {
      if (this.waiting) this.waiting.push(data)
      else this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }))
    }

    terminate() {
      this.frame.remove()
    }
  }
}
