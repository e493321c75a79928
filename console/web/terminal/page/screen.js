// The screen of a terminal: a grid of cells, and the parser of the control sequences that Textual writes (ECMA-48, xterm).
"use strict";

/** One control sequence, control character or run of text. An incomplete sequence at the end does not match. */
const TOKEN = new RegExp([
  "\\x1b\\[([<=>?]?)([0-9;:]*)([ -/]*)([@-~])",       // CSI: private marker, parameters, intermediates, final
  "\\x1b\\]([^\\x07\\x1b]*)(?:\\x07|\\x1b\\\\)",      // OSC
  "\\x1b[PX^_][^\\x1b]*\\x1b\\\\",                    // DCS, SOS, PM, APC: ignored
  "\\x1b[ -/]*[0-OQ-WYZ`-~=>\\\\]",                   // other escape sequences
  "([\\x00-\\x1a\\x1c-\\x1f\\x7f])",                  // control characters
  "([^\\x00-\\x1f\\x7f]+)",                           // text
].join("|"), "y");
/** Characters. Bound on one incomplete sequence; a clipboard text is the longest. */
const MAX_SEQUENCE = 4 << 20;
const WIDE = new RegExp("^(?:\\p{Emoji_Presentation}|.\\ufe0f|[\\u1100-\\u115f\\u2329\\u232a\\u2e80-\\u303e\\u3041-\\ua4cf"
  + "\\ua960-\\ua97f\\uac00-\\ud7a3\\uf900-\\ufaff\\ufe10-\\ufe19\\ufe30-\\ufe6f\\uff01-\\uff60\\uffe0-\\uffe6"
  + "\\u{17000}-\\u{18cff}\\u{1b000}-\\u{1b2ff}\\u{1f200}-\\u{1f265}\\u{20000}-\\u{3fffd}])", "u");
const ZERO_WIDTH = /^[\p{Mn}\p{Me}\p{Cf}]/u;
const GRAPHEMES = new Intl.Segmenter(undefined, { granularity: "grapheme" });

const DEFAULT_STYLE = Object.freeze({ fg: null, bg: null });
/** SGR parameter → change of the style. Colours are handled by `colour`. */
const SGR = {
  1: { bold: true }, 2: { dim: true }, 3: { italic: true }, 4: { underline: true }, 7: { reverse: true },
  8: { conceal: true }, 9: { strike: true }, 21: { underline: true }, 22: { bold: false, dim: false },
  23: { italic: false }, 24: { underline: false }, 27: { reverse: false }, 28: { conceal: false },
  29: { strike: false }, 39: { fg: null }, 49: { bg: null }, 53: { overline: true }, 55: { overline: false },
};
/** The 16 colours of the palette, as xterm has them by default. */
const PALETTE = [
  "#000000", "#cd3131", "#0dbc79", "#e5e510", "#2472c8", "#bc3fbc", "#11a8cd", "#e5e5e5",
  "#666666", "#f14c4c", "#23d18b", "#f5f543", "#3b8eea", "#d670d6", "#29b8db", "#ffffff",
];

/** CSS colour of one of the 256 colours: the palette, a cube of 6 × 6 × 6, and 24 shades of grey. */
function indexedColour(index) {
  if (index < 16) return PALETTE[index];
  if (index > 231) return `rgb(${Array(3).fill(8 + 10 * (index - 232))})`;
  const level = (part) => (part ? 55 + 40 * part : 0);
  return `rgb(${[Math.floor((index - 16) / 36), Math.floor((index - 16) / 6) % 6, (index - 16) % 6].map(level)})`;
}

/** Columns of one grapheme: 0, 1 or 2. */
function columnsOf(grapheme) {
  return ZERO_WIDTH.test(grapheme) ? 0 : WIDE.test(grapheme) ? 2 : 1;
}

/** `width` × `height` cells. `reply` receives answers to queries, `copy` text for the clipboard. */
class Screen {
  constructor(width, height, { reply, copy }) {
    this.reply = reply;
    this.copy = copy;
    this.modes = new Set();
    this.dirty = new Set();
    this.styles = new Map();
    this.rest = "";
    this.resize(width, height);
  }

  /** Change the size. The application draws everything again, so the old content is not kept. */
  resize(width, height) {
    [this.width, this.height] = [width, height];
    this.style = DEFAULT_STYLE;
    [this.x, this.y] = [0, 0];
    this.rows = Array.from({ length: height }, () => this.blankRow());
    this.rows.forEach((_, y) => this.dirty.add(y));
  }

  /** Cells of an empty row: text and style; the second cell of a wide character has the text "". */
  blankRow() {
    return Array.from({ length: this.width }, () => ({ text: " ", style: this.style }));
  }

  /** Parse output of the application. Incomplete sequences are kept until the next call. */
  write(text) {
    const input = this.rest + text;
    let index = 0;
    while (index < input.length) {
      TOKEN.lastIndex = index;
      const match = TOKEN.exec(input);
      if (match === null) {
        if (input.length - index < MAX_SEQUENCE) break;
        index += 1;
        continue;
      }
      index = TOKEN.lastIndex;
      const [, marker, parameters, intermediates, final, osc, control, plain] = match;
      if (plain !== undefined) this.print(plain);
      else if (final !== undefined) this.csi(marker + intermediates, parameters, final);
      else if (control !== undefined) this.control(control);
      else if (osc !== undefined) this.osc(osc);
    }
    this.rest = input.slice(index);
  }

  print(text) {
    const parts = /^[ -~]*$/.test(text) ? text : Array.from(GRAPHEMES.segment(text), (part) => part.segment);
    for (const part of parts) {
      const columns = columnsOf(part);
      if (columns === 0) {
        if (this.x > 0) this.rows[this.y][this.x - 1].text += part;
        continue;
      }
      if (this.x + columns > this.width) this.newLine();
      this.put(this.x, part);
      if (columns === 2) this.put(this.x + 1, "");
      this.x += columns;
    }
  }

  put(x, text) {
    const row = this.rows[this.y];
    if (x >= this.width) return;
    if (text !== "" && row[x].text === "" && x > 0) row[x - 1] = { text: " ", style: row[x - 1].style };
    if (x + 1 < this.width && row[x + 1].text === "") row[x + 1] = { text: " ", style: row[x + 1].style };
    row[x] = { text, style: this.style };
    this.dirty.add(this.y);
  }

  newLine() {
    this.x = 0;
    if (this.y < this.height - 1) {
      this.y += 1;
      return;
    }
    this.rows.shift();
    this.rows.push(this.blankRow());
    this.rows.forEach((_, y) => this.dirty.add(y));
  }

  control(character) {
    if (character === "\r") this.x = 0;
    else if (character === "\b") this.x = Math.max(0, this.x - 1);
    else if (character === "\t") this.x = Math.min(this.width - 1, (this.x & ~7) + 8);
    else if (character === "\n") {
      const x = this.x;
      this.newLine();
      this.x = x;
    }
  }

  csi(prefix, parameters, final) {
    if (prefix === "?" && (final === "h" || final === "l")) {
      parameters.split(";").forEach((mode) => this.setMode(Number(mode), final === "h"));
    } else if (prefix === "?$" && final === "p") {
      const state = parameters === "2026" ? (this.modes.has(2026) ? 1 : 2) : 0;
      this.reply(`\x1b[?${parameters};${state}$y`);
    } else if (prefix === "") {
      if (final === "m") this.setStyle(parameters);
      else this.move(final, ...parameters.split(";").map((text) => parseInt(text, 10) || 0));
    }
  }

  /** Cursor movement, erasure and reports. A parameter that is missing or 0 means 1, except in J and K. */
  move(final, first, second = 0) {
    const count = Math.max(1, first);
    const to = (x, y) => {
      this.x = Math.max(0, Math.min(this.width - 1, x));
      this.y = Math.max(0, Math.min(this.height - 1, y));
    };
    switch (final) {
      case "H": case "f": return to(Math.max(1, second) - 1, count - 1);
      case "A": return to(this.x, this.y - count);
      case "B": return to(this.x, this.y + count);
      case "C": return to(this.x + count, this.y);
      case "D": return to(this.x - count, this.y);
      case "E": return to(0, this.y + count);
      case "F": return to(0, this.y - count);
      case "G": return to(count - 1, this.y);
      case "d": return to(this.x, count - 1);
      case "X": return this.erase(this.y, this.x, this.x + count);
      case "K": return this.erase(this.y, first === 0 ? this.x : 0, first === 1 ? this.x + 1 : this.width);
      case "J":
        for (let y = 0; y < this.height; y += 1) {
          if (y === this.y && first < 2) this.erase(y, first === 0 ? this.x : 0, first === 1 ? this.x + 1 : this.width);
          else if (first >= 2 || (first === 0 ? y > this.y : y < this.y)) this.erase(y, 0, this.width);
        }
        return undefined;
      case "n": return first === 6 ? this.reply(`\x1b[${this.y + 1};${this.x + 1}R`) : undefined;
      case "c": return this.reply("\x1b[?1;2c");
      default: return undefined;
    }
  }

  erase(y, from, to) {
    const style = this.intern({ ...DEFAULT_STYLE, bg: this.style.bg });
    for (let x = from; x < Math.min(to, this.width); x += 1) this.rows[y][x] = { text: " ", style };
    this.dirty.add(y);
  }

  setMode(mode, isOn) {
    if (isOn) this.modes.add(mode);
    else this.modes.delete(mode);
    if (mode === 1049) this.resize(this.width, this.height);
    if (mode === 25) this.dirty.add(this.y);
  }

  setStyle(parameters) {
    let style = { ...this.style };
    const values = parameters.split(";");
    for (let index = 0; index < values.length; index += 1) {
      const [value, ...rest] = values[index].split(":").map((text) => Number(text) || 0);
      if (value === 0) style = { ...DEFAULT_STYLE };
      else if (value === 38 || value === 48 || value === 58) {
        const [colour, used] = rest.length ? [this.colour(rest), 0] : this.colourAfter(values, index + 1);
        if (value !== 58) style[value === 38 ? "fg" : "bg"] = colour;
        index += used;
      } else if (value >= 30 && value <= 37) style.fg = PALETTE[value - 30];
      else if (value >= 40 && value <= 47) style.bg = PALETTE[value - 40];
      else if (value >= 90 && value <= 97) style.fg = PALETTE[value - 82];
      else if (value >= 100 && value <= 107) style.bg = PALETTE[value - 92];
      else if (value === 4 && rest[0] === 0) style.underline = false;
      else Object.assign(style, SGR[value]);
    }
    this.style = this.intern(style);
  }

  colourAfter(values, index) {
    const used = values[index] === "2" ? 4 : 2;
    return [this.colour(values.slice(index, index + used).map(Number)), used];
  }

  colour([kind, ...parts]) {
    const bytes = parts.slice(-3).map((part) => Math.min(255, part || 0));
    return kind === 2 ? `rgb(${bytes})` : indexedColour(bytes[0] ?? 0);
  }

  /** The one object for equal styles, so that cells are compared by identity. */
  intern(style) {
    const key = JSON.stringify(Object.entries(style).filter(([, value]) => value).sort());
    if (this.styles.size > 10000) this.styles.clear();
    if (!this.styles.has(key)) this.styles.set(key, Object.freeze(style));
    return this.styles.get(key);
  }

  /** OSC 52 sets the clipboard; a query of it is not answered. Pointer shapes and titles are ignored. */
  osc(text) {
    const match = /^52;[^;]*;([A-Za-z0-9+/=]+)$/.exec(text);
    if (match) this.copy(new TextDecoder().decode(Uint8Array.from(atob(match[1]), (byte) => byte.charCodeAt(0))));
  }
}
