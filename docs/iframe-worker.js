// Pages that are opened from disk may not start workers, which the search needs: run the worker's script in a hidden
// frame instead. Pages from a server use real workers.
(() => {
  if (location.protocol !== "file:") return

  class IFrameWorker extends EventTarget {
    constructor(url) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.documentElement.append(this.frame)
      const inner = this.frame.contentWindow
      inner.postMessage = data => send(data, event => {
        this.dispatchEvent(event)
        this.onmessage?.(event)
      })
      inner.importScripts = async (...urls) => {
        for (const src of urls) await load(inner.document, src)
      }
      this.ready = inner.importScripts(new URL(url, location.href).href)
    }

    postMessage(data) {
      this.ready.then(() => send(data, event => this.frame.contentWindow.dispatchEvent(event)))
    }

    terminate() {
      this.frame.remove()
    }
  }

  // As between a page and a worker: a copy, and later.
  const send = (data, receive) => {
    const event = new MessageEvent("message", { data: structuredClone(data) })
    setTimeout(() => receive(event))
  }

  const load = (page, src) => new Promise((resolve, reject) => {
    const script = page.createElement("script")
    Object.assign(script, { src, onload: resolve, onerror: reject })
    page.head.append(script)
  })

  window.IFrameWorker = window.Worker = IFrameWorker
})()
