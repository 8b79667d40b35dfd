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

  // A decision by key counts only when the person had time to see what it is about, so that a key that is held down or
  // pressed twice never decides about the next proposal.
  const SEEN_MS = 250;
  let shownAt = performance.now();
  let sent = false;
  let shown = 0;
  const seen = () => { shownAt = performance.now(); sent = false; shown += 1; };
  addEventListener("htmx:after:swap", seen);
  addEventListener("pageshow", seen);

  const decide = (id) => {
    const button = find(id);
    if (!button || sent || performance.now() - shownAt < SEEN_MS) return;
    const form = button.form;
    if (button.formNoValidate || form.reportValidity()) {
      sent = true;
      form.requestSubmit(button);
    }
  };
  const follow = (id) => { const link = find(id); if (link) link.click(); };
  const reject = () => {
    const reason = find("reason");
    if (!reason) return;
    // The next Enter in the field rejects.
    reason.dataset.rejects = "1";
    reason.placeholder = "Why? Enter rejects, Escape leaves.";
    reason.focus();
  };
  const KEYS = {
    a: () => decide("approve"), r: reject, e: () => follow("edit"), u: () => decide("undo"),
    j: () => follow("next"), k: () => follow("previous"),
    "/": () => { const field = document.querySelector("input[type=search]"); if (field) field.focus(); else location.href = "/search"; },
    "?": () => { const keys = find("keys"); keys.open = !keys.open; if (keys.open) { keys.scrollIntoView(); keys.querySelector("summary").focus(); } },
  };
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (typing(event.target)) {
      if (event.key === "Escape") { delete event.target.dataset.rejects; event.target.blur(); }
      if (event.key === "Enter" && event.target.dataset.rejects) { event.preventDefault(); if (!event.repeat) decide("reject"); }
      return;
    }
    const act = KEYS[event.key];
    if (act && !event.repeat) { event.preventDefault(); act(); }
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
      const answer = await fetch(location.href, { headers: { accept: "text/html" } });
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
        old.replaceWith(made);
        htmx.process(made);
      }
      document.documentElement.dataset.refreshed = String(Number(document.documentElement.dataset.refreshed || 0) + 1);
    } catch { /* the server is gone; the stream says when it is back */ } finally {
      reading = false;
      if (again && !sent) { again = false; refresh(); }
    }
  };
  addEventListener("DOMContentLoaded", () => {
    const said = find("live");
    const stream = new EventSource("/live");
    const tell = (text) => { if (said && said.textContent !== text) said.textContent = text; };
    stream.addEventListener("hello", () => { tell("Live: changes appear by themselves."); document.documentElement.dataset.live = "1"; });
    stream.addEventListener("change", refresh);
    stream.addEventListener("error", () => tell("The page is not connected; reload it when `evolvable ui` runs again."));
  });
})();
