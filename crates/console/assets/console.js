// The state of the live connection, and the key that leads to the search field. Everything else works without scripts.
(function () {
  "use strict";
  function link(state, text) {
    var element = document.getElementById("link");
    if (element) { element.dataset.state = state; element.textContent = text; }
  }
  document.addEventListener("htmx:sseOpen", function () { link("live", "live"); });
  document.addEventListener("htmx:sseError", function () { link("lost", "connection lost; this page shows an earlier state"); });
  document.addEventListener("keydown", function (event) {
    var typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
    if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) { return; }
    var field = document.querySelector("form.filters input:not([type=hidden])");
    if (field) { event.preventDefault(); field.focus(); }
  });
  var menu = document.querySelector("details.menu");
  if (menu && window.matchMedia("(max-width: 52rem)").matches) { menu.open = false; }
})();
