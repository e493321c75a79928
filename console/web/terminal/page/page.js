// Tells textual.js where its websocket is, beside this very page, and gives the terminal the keys once it is there.
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const socket = new URL("socket", location.href);
  socket.protocol = "ws:";
  document.getElementById("terminal").dataset.sessionWebsocketUrl = socket.href;
  new MutationObserver(() => {
    if (document.body.classList.contains("-loaded")) {
      document.querySelector(".xterm-helper-textarea").focus();
    }
  }).observe(document.body, { attributes: true, attributeFilter: ["class"] });
});
