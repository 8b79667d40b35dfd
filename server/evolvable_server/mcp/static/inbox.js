// The inbox that a client draws beside the result of `review_inbox`: it reads proposals through the client and shows
// them. It holds no token and decides nothing: for "Approve" and "Reject" the server asks the person in the client.
"use strict";
(() => {
  const PROTOCOL = "2026-01-26";
  const MANY = 100; // proposals of one list
  const KEPT = "\n\t\u200c\u200d\ufe0f";
  const HIDDEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}\u{FE00}-\u{FE0F}\u{E0100}-\u{E01EF}\u115F\u1160\u3164\uFFA0]/gu;

  // Every text of the library is shown through `visible` and `textContent`: nothing is parsed as HTML.
  const visible = (text) => String(text ?? "").replaceAll("\r\n", "\n").replace(HIDDEN, (char) =>
    KEPT.includes(char) ? char : `⟦U+${char.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟧`);
  const line = (text, most) => {
    const one = visible(String(text ?? "").split(/\s+/).join(" ").trim());
    return one.length > most ? `${one.slice(0, most - 1)}…` : one;
  };
  const make = (tag, named, ...children) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(named || {})) {
      if (name === "click") made.addEventListener("click", value);
      else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
    }
    made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
    return made;
  };

  // Messages to and from the client (JSON-RPC over postMessage)

  const waiting = new Map();
  let last = 0;
  let host = {};
  const send = (message) => window.parent.postMessage({ jsonrpc: "2.0", ...message }, "*");
  const tell = (method, params) => send({ method, params });
  const ask = (method, params) => new Promise((resolve, reject) => {
    last += 1;
    waiting.set(last, { resolve, reject });
    send({ id: last, method, params });
  });
  const HEARD = {
    "ui/notifications/tool-result": (params) => take(params),
    "ui/notifications/tool-cancelled": () => note("The call was cancelled.", "doubt"),
    "ui/notifications/host-context-changed": (params) => wear(params),
  };
  addEventListener("message", (event) => {
    const message = event.data;
    if (event.source !== window.parent || !message || message.jsonrpc !== "2.0") return;
    if (message.method === undefined) {
      const asked = waiting.get(message.id);
      waiting.delete(message.id);
      if (asked && message.error) asked.reject(new Error(message.error.message || "the client refused"));
      else if (asked) asked.resolve(message.result || {});
    } else if (message.id === undefined) {
      const heard = HEARD[message.method];
      if (heard) heard(message.params || {});
    } else if (message.method === "ui/resource-teardown" || message.method === "ping") {
      send({ id: message.id, result: {} });
    } else {
      send({ id: message.id, error: { code: -32601, message: "not known here" } });
    }
  });

  const wear = (context) => {
    if (context.theme === "dark" || context.theme === "light") document.documentElement.dataset.theme = context.theme;
  };

  // What the server says

  let listed = [];
  let shown = null;
  const content = (result) => {
    if (result.structuredContent) return result.structuredContent;
    try { return JSON.parse((result.content || []).map((block) => block.text || "").join("")); } catch { return {}; }
  };
  const said = (result) => (result.content || []).map((block) => block.text || "").join(" ") || "The server gave no reason.";
  // An agent reads the texts of others between marks with a number of this answer; a person sees them as they are.
  const unmarked = (one, _, all) => {
    // The first proposal with marks explains those of all.
    const notice = (all.find((other) => other.notice) || {}).notice || "";
    const number = (/^Text between \[([0-9a-f]{16})\]/.exec(notice) || [])[1];
    const plain = (value) => {
      if (typeof value === "string" && number && value.startsWith(`[${number}] `) && value.endsWith(` [/${number}]`)) {
        return value.slice(number.length + 3, -number.length - 4);
      }
      if (Array.isArray(value)) return value.map(plain);
      return value && typeof value === "object" ? Object.fromEntries(Object.entries(value).map(([k, v]) => [k, plain(v)])) : value;
    };
    const bare = { findings: [], gains: [], loses: [], ...plain(one) }; // what is empty is left out
    if (bare.grounds) bare.grounds = { evidence: [], near: [], ...bare.grounds };
    const lines = (one.diff || "").split("\n");
    const block = /^\[text of another ([0-9a-f]{16}) begins: /.exec(lines[0]);
    const end = block ? lines.lastIndexOf(`[text of another ${block[1]} ends]`) : -1;
    if (end > 0) bare.diff = lines.slice(1, end).join("\n");
    return bare;
  };
  const take = (result) => {
    if (result.isError) { note(said(result), "bad"); return; }
    const answer = content(result);
    for (const one of answer.decided || []) note(decided(one), "good");
    const proposals = (answer.proposals || []).map(unmarked);
    if (proposals.length === 1 && proposals[0].diff) {
      [shown] = proposals;
      if (!listed.some((one) => one.proposal_id === shown.proposal_id)) listed = proposals;
      draw();
      if (host.serverTools) read({}).then((all) => { listed = all; draw(); }).catch(() => {});
    } else if ((answer.decided || []).length) {
      refresh();
    } else {
      listed = proposals;
      open(listed[0]);
    }
  };
  const decided = (one) => `Proposal ${one.proposal_id} is ${one.state}: ${line(one.ref, 120)}${one.version ? `@${one.version}` : ""}.`;
  const run = (given) => ask("tools/call", { name: "review_inbox", arguments: given });
  const read = async (given) => {
    const result = await run(given);
    if (result.isError) throw new Error(said(result));
    return (content(result).proposals || []).map(unmarked);
  };
  const open = async (one) => {
    if (!one) { shown = null; draw(); return; }
    shown = one;
    draw();
    if (!host.serverTools) return;
    try {
      const [whole] = await read({ action: "show", proposal_id: one.proposal_id });
      if (shown === one && whole) { shown = whole; draw(); }
    } catch (error) { note(error.message, "bad"); }
  };
  const refresh = async () => {
    if (!host.serverTools) return;
    try {
      listed = await read({});
      await open(listed.find((one) => shown && one.proposal_id === shown.proposal_id) || listed[0]);
    } catch (error) { note(error.message, "bad"); }
  };
  let asking = false;
  const decide = async (action) => {
    if (asking || !shown) return;
    const reason = document.getElementById("reason").value;
    asking = true;
    draw();
    note("Your client asks you now. Nothing is decided before you answer there.", "doubt");
    try {
      const result = await run({ action, proposal_id: shown.proposal_id, ...(reason ? { reason } : {}) });
      asking = false;
      take(result);
    } catch (error) { note(error.message, "bad"); } finally {
      asking = false;
      draw();
    }
  };

  // What is drawn

  const note = (text, kind) => {
    const place = document.getElementById("note");
    place.className = kind;
    place.textContent = visible(text);
  };
  const section = (title, rows) => (rows.length ? make("section", {}, make("h2", {}, title), rows) : null);
  const list = (title, texts) => section(title, texts.length ? [make("ul", {}, texts.map((text) => make("li", {}, text)))] : []);
  const HUNK = /^@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@/;
  // Lines are counted by the head of their hunk: the text of a file can look like the head of another one.
  const files = (diff) => {
    const found = [];
    let [old, fresh] = [0, 0];
    const lines = diff.split("\n");
    for (let at = 0; at < lines.length; at += 1) {
      const [text, sign] = [lines[at], lines[at][0]];
      const hunk = HUNK.exec(text);
      if ((old || fresh) && "-+ ".includes(sign || "?")) {
        old -= sign !== "+";
        fresh -= sign !== "-";
        found.at(-1).lines.push({ sign, text: text.slice(1) });
      } else if (text.startsWith("--- ")) {
        const now = (lines[at += 1] || "").slice(4);
        const name = now && now !== "/dev/null" ? now : text.slice(4);
        const what = text.slice(4) === "/dev/null" ? "new file" : now === "/dev/null" ? "removed file" : "";
        found.push({ name: name.replace(/@[^@]*$/, ""), what, lines: [] });
      } else if (hunk && found.length) {
        [old, fresh] = [Number(hunk[1] ?? 1), Number(hunk[2] ?? 1)];
        found.at(-1).lines.push({ sign: "@", text });
      } else if (text) {
        if (!found.length) found.push({ name: "", what: "", lines: [] });
        found.at(-1).lines.push({ sign: "", text: text.startsWith("\\") ? "No line end at the end of the file" : text });
      }
    }
    return found;
  };
  const KINDS = { "+": "added", "-": "removed", "@": "place", "": "place", " ": "same" };
  const drawDiff = (diff) => files(diff).map((file) => make("section", { "aria-label": line(file.name, 200) },
    make("h3", {}, make("code", {}, line(file.name, 200)), file.what ? ` ${file.what}` : ""),
    make("pre", { tabindex: "0" }, file.lines.map(({ sign, text }) =>
      make("span", { class: KINDS[sign] }, "-+ ".includes(sign || "?") ? `${sign} ` : "", visible(text), "\n")))));
  const quotes = (grounds) => grounds.evidence.map((one) =>
    make("li", {}, make("q", {}, visible(one.quote)), make("span", { class: "soft" }, ` ${line(one.origin, 60)}, turn ${one.turn}`)));
  const drawGrounds = (grounds) => [
    list("Evidence", quotes(grounds)),
    list("Against it", [grounds.counter_evidence, grounds.risk].filter(Boolean).map(visible)),
    list("Similar", grounds.near.map((text) => line(text, 300))),
  ];
  const drawWhy = (one) => [
    make("h2", {}, "Why"),
    make("blockquote", {}, visible(one.reason)),
    make("p", { class: "soft" }, `By ${line(one.actor, 40)}, ${line(one.at, 40)}${one.session ? `, session ${line(one.session, 24)}` : ""}. `,
      one.actor === "human" ? "" : "No person wrote this: judge it, do not follow it."),
    one.blocked ? make("p", { class: "doubt" }, visible(one.blocked)) : null,
    !one.blocked && one.base !== one.head && one.head ? make("p", { class: "doubt" }, `It is at version ${one.head} now; the difference shows the two merged.`) : null,
    list("Noticed by the scan", one.findings.map((found) => [make("b", { class: found.severity === "high" ? "bad" : "doubt" }, found.severity),
      ` ${found.path ? `${line(found.path, 120)}:${found.line}: ` : ""}${visible(found.why)} `, make("code", {}, visible(found.excerpt))])),
    list("It can now also", one.gains.map(visible)),
    list("It can no longer", one.loses.map(visible)),
    one.grounds ? drawGrounds(one.grounds) : null,
  ];
  const drawDecision = (one) => {
    if (one.state !== "open") return make("p", { class: "doubt" }, `Proposal ${one.proposal_id} is ${one.state} already.`);
    const buttons = host.serverTools ? [
      make("label", {}, "Reason ", make("input", { id: "reason", type: "text", maxlength: "2000", autocomplete: "off" })),
      make("p", { class: "buttons" },
        make("button", { id: "approve", type: "button", disabled: asking, click: () => decide("approve") }, "Approve…"),
        make("button", { id: "reject", type: "button", disabled: asking, click: () => decide("reject") }, "Reject…")),
      make("p", { class: "soft" }, "Your client asks you before anything is decided."),
    ] : [];
    return make("section", { id: "decide" }, buttons,
      make("p", { class: "soft" }, "Or decide in the local page: run ", make("code", {}, `evolvable ui --proposal ${one.proposal_id}`), " in your terminal."));
  };
  const drawOne = (one) => make("article", {},
    make("h1", {}, `Proposal ${one.proposal_id}: ${line(one.ref, 120)}`),
    make("p", { class: "soft" }, one.removes ? `It removes version ${one.base}; the versions stay.` : one.base ? `Made from version ${one.base}.` : "A new resource."),
    drawDecision(one), drawWhy(one),
    make("h2", {}, "Difference"),
    one.removes ? make("p", {}, "Every file goes.") : one.diff ? drawDiff(one.diff) : make("p", { class: "soft" }, host.serverTools ? "Reading…" : "This client shows no differences here."));
  const draw = () => {
    const typed = document.getElementById("reason");
    const kept = typed && shown && typed.closest("main").dataset.of === String(shown.proposal_id) ? typed.value : "";
    document.getElementById("count").textContent =
      listed.length === 0 ? "Nothing waits" : `${listed.length}${listed.length === MANY ? " or more" : ""} wait`;
    document.getElementById("queue").replaceChildren(...listed.map((one) => make("li", {},
      make("button", { type: "button", "aria-current": shown && shown.proposal_id === one.proposal_id ? "true" : null, click: () => open(one) },
        `${one.proposal_id} ${line(one.ref, 60)}`, make("span", { class: "soft" }, ` ${line(one.reason, 80)}`),
        one.findings.some((found) => found.severity === "high") ? make("b", { class: "bad" }, " high finding") : null))));
    const main = document.querySelector("main");
    main.dataset.of = shown ? String(shown.proposal_id) : "";
    main.replaceChildren(shown ? drawOne(shown) : make("p", {}, "Nothing waits for a decision."));
    const fresh = document.getElementById("reason");
    if (fresh) fresh.value = kept;
  };
  const step = (by) => {
    const at = listed.findIndex((one) => shown && one.proposal_id === shown.proposal_id);
    const next = listed[at + by];
    if (next) open(next);
  };
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || event.target.matches("input")) return;
    if (event.key === "j") step(1);
    if (event.key === "k") step(-1);
  });
  document.getElementById("refresh").addEventListener("click", refresh);
  new ResizeObserver(() => tell("ui/notifications/size-changed", {
    width: document.documentElement.scrollWidth, height: Math.ceil(document.body.getBoundingClientRect().height),
  })).observe(document.body);

  ask("ui/initialize", {
    appInfo: { name: "evolvable-inbox", version: "1" },
    appCapabilities: { availableDisplayModes: ["inline", "fullscreen"] },
    protocolVersion: PROTOCOL,
  }).then((answer) => {
    host = answer.hostCapabilities || {};
    wear(answer.hostContext || {});
    document.getElementById("refresh").hidden = !host.serverTools;
    tell("ui/notifications/initialized", {});
    document.documentElement.dataset.ready = "1";
  }).catch((error) => note(error.message, "bad"));
})();
