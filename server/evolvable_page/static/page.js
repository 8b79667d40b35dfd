// The keys of the page, and its live parts. Everything works without this file, by links and forms.
"use strict";
(() => {
  // Only documents of this page pass: htmx fetches them from its own origin, and the server escapes every text in them.
  const trusted = window.trustedTypes
    ? trustedTypes.createPolicy("evolvable", { createHTML: (text) => text })
    : { createHTML: (text) => text };
  const refuse = () => () => { throw new Error("attributes run no scripts here"); };
  htmx.registerExtension("evolvable", {
    init: (api) => api.initSecurity({ createHTML: (text) => trusted.createHTML(text), createScript: () => "" }, refuse, refuse),
  });

  const find = (id) => document.getElementById(id);
  const typing = (element) => element && element.matches("input:not([type=hidden]), textarea, select");

  // A decision counts only when the person had time to see what it is about, and a page sends one form: a key that is
  // held down or pressed twice, or a click that comes again, never decides about what came in its place.
  const SEEN_MS = 250;
  let shownAt = performance.now();
  let swappedAt = -Infinity;
  let moved = false;
  let keyAt = 0;
  let sent = false;
  let shown = 0;
  const seen = () => { shownAt = performance.now(); sent = false; shown += 1; };
  const early = (at) => performance.now() - at < SEEN_MS;
  // Focus on the list: on a button or in a field of the next proposal, Enter would decide about it.
  const focusList = () => (find("queue") || find("main")).focus({ preventScroll: true });
  addEventListener("htmx:after:swap", () => { seen(); swappedAt = shownAt; moved = false; if (document.activeElement.type === "search") return; focusList(); if (find("proposal")) scrollTo(0, 0); });
  addEventListener("htmx:error", () => { sent = false; });
  addEventListener("pageshow", seen);
  addEventListener("pointermove", (event) => { if (event.movementX || event.movementY) moved = true; });
  addEventListener("click", (event) => {
    const button = event.target.closest("button");
    // The second click of a double click may meet the next page.
    if (button && button.form && button.form.method === "post" && event.detail > 1) event.preventDefault();
  }, true);
  addEventListener("submit", (event) => {
    const form = event.target;
    if (form.method !== "post") return;
    const part = form.closest("[data-live]");
    // Who did not move the pointer clicks once more where the last button was.
    if (sent || !moved && early(swappedAt) || part && early(part.shownAt ?? -Infinity)) {
      event.preventDefault();
      event.stopImmediatePropagation();
    } else sent = true;
  }, true);

  const press = (id) => {
    const button = find(id);
    if (button && !sent && !early(shownAt)) button.form.requestSubmit(button);
  };
  // After its key, Enter in the field presses the button; after a click into the field Enter does nothing.
  const arm = (field, button, words) => {
    field.dataset.presses = button;
    field.dataset.words = field.placeholder;
    field.placeholder = words;
    field.focus();
  };
  const disarm = (field) => { delete field.dataset.presses; field.placeholder = field.dataset.words; };
  addEventListener("focusout", (event) => { if (event.target.dataset.presses) disarm(event.target); });

  const approve = () => {
    const lock = document.querySelector("#approve-form input[name=passphrase]");
    if (lock && !lock.value) arm(lock, "approve", "Enter approves, Escape leaves.");
    else press("approve");
  };
  const reject = () => {
    const reason = find("reason");
    if (reason) arm(reason, "reject", "Why? Enter rejects, Escape leaves.");
  };
  const follow = (id) => { const link = find(id); if (link) link.click(); };
  const KEYS = {
    a: approve, r: reject, e: () => follow("edit"), u: () => press("undo"),
    j: () => follow("next"), k: () => follow("previous"), m: () => follow("merge"),
    "/": () => { const field = document.querySelector("input[type=search]"); if (field) field.focus(); else location.href = "/search"; },
    "?": () => { const keys = find("keys"); keys.open = !keys.open; if (keys.open) { keys.scrollIntoView(); keys.querySelector("summary").focus(); } },
  };
  addEventListener("keydown", (event) => {
    const last = keyAt;
    if (event.key.length === 1) keyAt = event.timeStamp;
    // 229: Safari's Enter that ends a composition.
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || event.keyCode === 229) return;
    const field = event.target;
    if (typing(field)) {
      if (event.key === "Escape") field.blur();
      if (event.key === "Enter" && field.dataset.presses) { event.preventDefault(); if (!event.repeat) press(field.dataset.presses); }
      return;
    }
    const act = KEYS[event.key];
    if (!act || event.repeat) return;
    event.preventDefault();
    // A letter of a word that was begun in a field which is gone does nothing.
    if (!sent && !("arue".includes(event.key) && keyAt - last < SEEN_MS)) act();
  });

  // Live parts: when the library changed, the page is read again and each part with `data-live` replaced.
  let reading = false;
  let again = false;
  const refresh = async () => {
    if (reading) { again = true; return; }
    reading = true;
    const before = shown;
    try {
      if (!document.querySelector("main [data-live]")) return;
      const answer = await fetch(location.href, { headers: { accept: "text/html", "evolvable-live": "1" } });
      if (!answer.ok) return;
      const text = await answer.text();
      // The person went on meanwhile: what was read is of another page.
      if (sent || shown !== before) { again = true; return; }
      if (answer.redirected) { location.href = answer.url; return; }
      const fresh = new DOMParser().parseFromString(trusted.createHTML(text), "text/html");
      if (fresh.querySelector("main").dataset.of !== document.querySelector("main").dataset.of) return;
      for (const old of document.querySelectorAll("[data-live]")) {
        const part = fresh.getElementById(old.id);
        if (!part || typing(document.activeElement) && old.contains(document.activeElement)) continue;
        if (part.textContent === old.textContent) continue;
        const made = document.adoptNode(part);
        const focused = old.contains(document.activeElement);
        old.replaceWith(made);
        htmx.process(made);
        made.shownAt = performance.now();
        if (focused) made.focus({ preventScroll: true });
      }
      document.documentElement.dataset.refreshed = String(Number(document.documentElement.dataset.refreshed || 0) + 1);
    } catch { /* the server is gone; the stream says when it is back */ } finally {
      reading = false;
      if (again && !sent) { again = false; refresh(); }
    }
  };
  addEventListener("DOMContentLoaded", () => {
    if (find("done")) focusList();
    const said = find("live");
    const stream = new EventSource("/live");
    const tell = (text) => { if (said && said.textContent !== text) said.textContent = text; };
    stream.addEventListener("hello", () => { tell("Live: changes appear by themselves."); document.documentElement.dataset.live = "1"; });
    stream.addEventListener("change", refresh);
    stream.addEventListener("error", () => tell("The page is not connected; reload it when `evolvable ui` runs again."));
  });
})();
