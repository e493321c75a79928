// Keys, pasted text and mouse events as the bytes that xterm sends for them.
"use strict";

/** Keys whose sequence ends with a letter, and those whose sequence is a number and ~. */
const LETTER_KEYS = {
  ArrowUp: "A", ArrowDown: "B", ArrowRight: "C", ArrowLeft: "D", End: "F", Home: "H", F1: "P", F2: "Q", F3: "R", F4: "S",
};
const NUMBER_KEYS = {
  Insert: 2, Delete: 3, PageUp: 5, PageDown: 6, F5: 15, F6: 17, F7: 18, F8: 19, F9: 20, F10: 21, F11: 23, F12: 24,
};
const PLAIN_KEYS = { Enter: "\r", Tab: "\t", Backspace: "\x7f", Escape: "\x1b" };
/** Characters with Ctrl that are not letters. */
const CTRL_KEYS = {
  " ": "\0", "@": "\0", 2: "\0", "[": "\x1b", "\\": "\x1c", "]": "\x1d", "^": "\x1e", 6: "\x1e", _: "\x1f", "/": "\x1f",
  "-": "\x1f",
};

/** The bytes of a key, or null where the browser handles it: text, and combinations with Meta or Ctrl+Shift. */
function keySequence(event) {
  const { key, ctrlKey, altKey, shiftKey, metaKey } = event;
  if (metaKey || event.isComposing || event.getModifierState("AltGraph")) return null;
  const modifier = 1 + shiftKey + 2 * altKey + 4 * ctrlKey;
  if (key in LETTER_KEYS) {
    if (modifier > 1) return `\x1b[1;${modifier}${LETTER_KEYS[key]}`;
    return (key.startsWith("F") ? "\x1bO" : "\x1b[") + LETTER_KEYS[key];
  }
  if (key in NUMBER_KEYS) return `\x1b[${NUMBER_KEYS[key]}${modifier > 1 ? `;${modifier}` : ""}~`;
  if (key === "Tab" && shiftKey) return "\x1b[Z";
  if (key === "Backspace" && ctrlKey) return "\b";
  if (key in PLAIN_KEYS) return (altKey ? "\x1b" : "") + PLAIN_KEYS[key];
  if ([...key].length !== 1) return null;
  if (ctrlKey && !shiftKey && /[a-z]/i.test(key)) return (altKey ? "\x1b" : "") + String.fromCharCode(key.charCodeAt(0) & 31);
  if (ctrlKey) return CTRL_KEYS[key] ?? null;
  return altKey ? `\x1b${key}` : null;
}

/** Pasted text: lines end with CR; in bracketed paste mode between its markers, which the text itself cannot contain. */
function pasteSequence(text, isBracketed) {
  const lines = text.replace(/\r?\n/g, "\r");
  return isBracketed ? `\x1b[200~${lines.replaceAll("\x1b", "")}\x1b[201~` : lines;
}

/** A mouse event in SGR encoding; `code` is the button, 32 more for motion, 64 and 65 for the wheel; cells from 0. */
function mouseSequence(event, code, x, y, isRelease = false) {
  const modifiers = 4 * event.shiftKey + 8 * event.altKey + 16 * event.ctrlKey;
  return `\x1b[<${code + modifiers};${x + 1};${y + 1}${isRelease ? "m" : "M"}`;
}
