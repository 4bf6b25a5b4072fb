// Browsers start no worker from a file:// address. The search of this site wants one, so here it runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super()
      this.waiting = []
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.body.append(this.frame)
      const inside = this.frame.contentWindow
      inside.document.open()
      inside.document.write("<!doctype html><body></body>")
      inside.document.close()
      inside.postMessage = data => {
        const event = new MessageEvent("message", { data })
        if (this.onmessage) this.onmessage(event)
        this.dispatchEvent(event)
      }
      const script = inside.document.createElement("script")
      script.src = address
      script.onload = () => {
        this.ready = true
        this.waiting.splice(0).forEach(data => this.postMessage(data))
      }
      inside.document.body.append(script)
    }
    postMessage(data) {
      if (!this.ready) return void this.waiting.push(data)
      const inside = this.frame.contentWindow
      inside.dispatchEvent(new inside.MessageEvent("message", { data }))
    }
    terminate() {
      this.frame.remove()
    }
  }
}
