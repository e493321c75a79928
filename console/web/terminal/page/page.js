// Draws the console into the page, and connects it with its process by the websocket beside this page.
"use strict";

/** CSS pixels. Wanted font size; the real one makes a cell a whole number of pixels wide. */
const FONT_SIZE = 14;
/** CSS pixels. A window without a layout yet has at least such a terminal. */
const MIN_COLUMNS = 20, MIN_ROWS = 5;

class Page {
  constructor(terminal, keyboard) {
    this.terminal = terminal;
    this.keyboard = keyboard;
    this.decoder = new TextDecoder();
    this.fits = new Map();
    this.isScheduled = false;
    this.cursorRow = 0;
    this.measure();
    const [width, height] = this.size();
    this.screen = new Screen(width, height, {
      reply: (text) => this.send("stdin", text),
      copy: (text) => navigator.clipboard?.writeText(text).catch(() => undefined),
    });
    this.connect();
    this.listen();
  }

  /** Font and cell size. The cell's height is that of the font, so that box characters join. */
  measure() {
    const family = getComputedStyle(this.terminal).fontFamily;
    this.ink = document.createElement("canvas").getContext("2d");
    this.ink.font = `${FONT_SIZE}px ${family}`;
    const advance = this.ink.measureText("0").width;
    this.cellWidth = Math.max(1, Math.round(advance));
    const fontSize = (FONT_SIZE * this.cellWidth) / advance;
    this.ink.font = `${fontSize}px ${family}`;
    const box = this.ink.measureText("0");
    this.cellHeight = Math.ceil(box.fontBoundingBoxAscent + box.fontBoundingBoxDescent);
    this.terminal.style.fontSize = `${fontSize}px`;
    this.terminal.style.lineHeight = `${this.cellHeight}px`;
  }

  /** Columns and rows that fit into the window. */
  size() {
    const { clientWidth, clientHeight } = document.documentElement;
    return [Math.max(MIN_COLUMNS, Math.floor(clientWidth / this.cellWidth)),
      Math.max(MIN_ROWS, Math.floor(clientHeight / this.cellHeight))];
  }

  connect() {
    const url = new URL("socket", location.href);
    url.protocol = location.protocol.replace("http", "ws");
    url.search = `?width=${this.screen.width}&height=${this.screen.height}`;
    this.socket = new WebSocket(url);
    this.socket.binaryType = "arraybuffer";
    this.socket.addEventListener("open", () => {
      document.body.classList.add("-loaded");
      if (document.activeElement === this.keyboard) this.send("focus");
      else this.keyboard.focus();
    });
    this.socket.addEventListener("close", () => document.body.classList.add("-closed"));
    this.socket.addEventListener("message", ({ data }) => {
      if (typeof data === "string") {
        const [name, values] = JSON.parse(data);
        if (name === "open_url") location.assign(values.url);
      } else {
        document.body.classList.add("-first-byte");
        this.screen.write(this.decoder.decode(data, { stream: true }));
        this.schedule();
      }
    });
  }

  send(...message) {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(message));
  }

  // -- drawing ---------------------------------------------------------------------------------------------------------

  /** Draw in the next frame, but not between the beginning and the end of a synchronised update (mode 2026). */
  schedule() {
    if (this.isScheduled || this.screen.modes.has(2026)) return;
    this.isScheduled = true;
    requestAnimationFrame(() => {
      this.isScheduled = false;
      this.draw();
    });
  }

  draw() {
    const { screen, terminal } = this;
    screen.dirty.add(this.cursorRow);
    this.cursorRow = screen.y;
    screen.dirty.add(screen.y);
    while (terminal.childElementCount > screen.height) terminal.lastElementChild.remove();
    while (terminal.childElementCount < screen.height) {
      const row = document.createElement("div");
      row.className = "row";
      row.style.height = `${this.cellHeight}px`;
      terminal.append(row);
    }
    for (const y of screen.dirty) {
      if (y < screen.height) terminal.children[y].replaceChildren(...this.spans(screen.rows[y], this.cursorIn(y)));
    }
    screen.dirty.clear();
    this.keyboard.style.transform = `translate(${screen.x * this.cellWidth}px, ${screen.y * this.cellHeight}px)`;
  }

  /** Column of the cursor in a row, or -1. */
  cursorIn(y) {
    return this.screen.modes.has(25) && y === this.screen.y ? this.screen.x : -1;
  }

  /** One span for each run of cells of one style. A character whose glyph is not as wide as its cell is a run of its own. */
  spans(cells, cursor) {
    const runs = [];
    cells.forEach(({ text, style }, x) => {
      const last = runs.at(-1);
      if (text === "" && last !== undefined) last.columns += 1;
      else if (last?.style === style && last.isOpen && x !== cursor && this.isCellWide(text)) {
        last.text += text;
        last.columns += 1;
      } else runs.push({ text, style, columns: 1, isOpen: x !== cursor && this.isCellWide(text), isCursor: x === cursor });
    });
    return runs.map((run) => this.span(run));
  }

  isCellWide(text) {
    if (text.length === 1 && text >= " " && text <= "~") return true;
    if (this.fits.size > 10000) this.fits.clear();
    if (!this.fits.has(text)) this.fits.set(text, Math.abs(this.ink.measureText(text).width - this.cellWidth) < 0.01);
    return this.fits.get(text);
  }

  span({ text, style, columns, isCursor }) {
    const span = document.createElement("span");
    span.textContent = text;
    let [fg, bg] = [style.fg ?? "var(--text)", style.bg ?? "var(--ground)"];
    if (Boolean(style.reverse) !== isCursor) [fg, bg] = [bg, fg];
    if (style.dim) fg = `color-mix(in srgb, ${fg} 60%, ${bg})`;
    const lines = [style.underline && "underline", style.strike && "line-through", style.overline && "overline"];
    Object.assign(span.style, {
      width: `${columns * this.cellWidth}px`, height: `${this.cellHeight}px`, background: bg,
      color: style.conceal ? bg : fg, fontWeight: style.bold ? "bold" : "", fontStyle: style.italic ? "italic" : "",
      textDecorationLine: lines.filter(Boolean).join(" "),
    });
    return span;
  }

  // -- input -----------------------------------------------------------------------------------------------------------

  listen() {
    const { keyboard } = this;
    keyboard.addEventListener("keydown", (event) => {
      if (event.ctrlKey && event.key === "c" && !getSelection().isCollapsed) return; // the browser copies
      const sequence = keySequence(event);
      if (sequence === null) return;
      event.preventDefault();
      this.send("stdin", sequence);
    });
    const sendText = (event) => {
      if (event.isComposing) return;
      if (keyboard.value) this.send("stdin", keyboard.value);
      keyboard.value = "";
    };
    keyboard.addEventListener("input", sendText);
    keyboard.addEventListener("compositionend", sendText);
    keyboard.addEventListener("paste", (event) => {
      event.preventDefault();
      this.send("stdin", pasteSequence(event.clipboardData.getData("text"), this.screen.modes.has(2004)));
    });
    keyboard.addEventListener("focus", () => this.send("focus"));
    keyboard.addEventListener("blur", () => this.send("blur"));
    addEventListener("resize", () => this.resize());
    this.listenToMouse();
  }

  resize() {
    this.measure();
    this.fits.clear();
    const [width, height] = this.size();
    this.terminal.replaceChildren();
    this.screen.resize(width, height);
    this.send("resize", { width, height });
    this.schedule();
  }

  /** Report the mouse as the application asks for it. With Shift the browser selects text. */
  listenToMouse() {
    const { terminal, screen } = this;
    let last = "", button = null, lines = 0;
    const report = (event, code, isRelease) => {
      const x = Math.max(0, Math.min(screen.width - 1, Math.floor(event.clientX / this.cellWidth)));
      const y = Math.max(0, Math.min(screen.height - 1, Math.floor(event.clientY / this.cellHeight)));
      const isMotion = code >= 32 && code < 64;
      if (isMotion && last === `${code} ${x} ${y}`) return;
      last = `${code} ${x} ${y}`;
      this.send("stdin", mouseSequence(event, code, x, y, isRelease));
    };
    const isReported = (...modes) => modes.some((mode) => screen.modes.has(mode));
    terminal.addEventListener("mousedown", (event) => {
      this.keyboard.focus({ preventScroll: true });
      if (event.shiftKey || event.button > 2 || !isReported(1000, 1002, 1003)) return;
      event.preventDefault();
      button = event.button;
      report(event, button, false);
    });
    addEventListener("mouseup", (event) => {
      if (button === null) return;
      report(event, button, true);
      button = null;
    });
    addEventListener("mousemove", (event) => {
      if (isReported(1003) ? event.shiftKey && button === null : button === null || !isReported(1002)) return;
      report(event, 32 + (button ?? 3), false);
    });
    terminal.addEventListener("wheel", (event) => {
      if (!isReported(1000, 1002, 1003)) return;
      event.preventDefault();
      lines += event.deltaMode === WheelEvent.DOM_DELTA_PIXEL ? event.deltaY / this.cellHeight : event.deltaY;
      if (Math.abs(lines) < 1) return;
      report(event, lines < 0 ? 64 : 65, false);
      lines = 0;
    }, { passive: false });
  }
}

document.addEventListener("DOMContentLoaded", () => {
  new Page(document.getElementById("terminal"), document.getElementById("keyboard"));
});
