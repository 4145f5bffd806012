"use strict";
// The page follows the server by a stream of events. What they say is put into text nodes
// only: names and owners are whatever somebody chose.

const $ = (id) => document.getElementById(id);
const state = { locks: [], total: 0, one: null, open: "", skew: 0, allowUnlock: false, server: "", share: "", source: null, came: 0, took: 0, interval: 1000, all: false };

// el is an element with texts and elements in it; what is empty or false is left out.
const el = (tag, cls, ...parts) => {
  const e = document.createElement(tag);
  e.className = cls || "";
  e.append(...parts.filter(Boolean));
  return e;
};

const ms = (seconds) => seconds * 1e3;
const when = (t) => (t && !t.startsWith("0001") ? Date.parse(t) : NaN);
const stale = () => document.body.classList.contains("stale");
const now = () => (stale() ? state.came : Date.now()) + state.skew; // the server's clock, which stands still while it is silent

const span = (v) => {
  const s = v / 1000, two = (n) => String(Math.floor(n)).padStart(2, "0");
  if (!(v > 0)) return "0s";
  if (s < 1) return Math.round(v) + "ms";
  if (s < 10) return s.toFixed(1) + "s";
  if (s < 60) return Math.floor(s) + "s";
  if (s < 3600) return Math.floor(s / 60) + "m" + two(s % 60) + "s";
  if (s < 172800) return Math.floor(s / 3600) + "h" + two((s % 3600) / 60) + "m";
  return Math.floor(s / 86400) + "d" + two((s % 86400) / 3600) + "h";
};
const clock = (t) => new Date(when(t)).toLocaleTimeString([], { timeStyle: "medium", hourCycle: "h23" });
const inMode = (who, mode) => who + (mode === "lock" ? "" : " (" + mode + ")");

// A colour per owner: the same as long as the page is open.
const colours = {};
const colour = (owner) => colours[owner] ||= `hsl(${(Object.keys(colours).length * 137.5 + 210) % 360} 55% 55%)`;

// ---- what changes between two events

const ticking = new Map(); // elements, and what brings them up to date
const tick = (e, update) => { ticking.set(e, update); return e; };
const run = () => {
  for (const [e, update] of ticking) if (e.isConnected) update(); else ticking.delete(e);
};
const longest = {}; // per lock: the longest lease seen, which is a whole bar
const lease = (key, remaining, at) => {
  const fill = el("i"), bar = el("div", "lease", fill), left = ms(remaining), end = when(at) + left;
  if (!(left > 0)) return bar;
  const full = longest[key] = Math.max(longest[key] || 0, left);
  return tick(bar, () => {
    const part = Math.max(end - now(), 0) / full;
    fill.style.width = Math.min(part * 100, 100) + "%";
    bar.classList.toggle("low", part < 1 / 3);
  });
};
const leaseText = (remaining, at) => {
  const e = el("b", "", "no end"), end = when(at) + ms(remaining);
  return remaining > 0 ? tick(e, () => { e.textContent = span(end - now()); }) : e;
};
const since = (cls, from, before, after) => {
  const e = el("span", cls);
  return Number.isNaN(from) ? e : tick(e, () => { e.textContent = before + span(now() - from) + after; });
};

// What is pressed or marked stays as it is: a click needs its element to the end, and people
// copy owners. What came meanwhile is shown afterwards.
let pressing = false;
const still = (root) => pressing || (!getSelection().isCollapsed && root.contains(getSelection().anchorNode));
addEventListener("pointerdown", () => { pressing = true; });
for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => setTimeout(() => { pressing = false; showList(); showOne(); }, 0));

// fill replaces what an element contains; what has the focus keeps it.
const fill = (root, ...parts) => {
  const focused = root.contains(document.activeElement) && document.activeElement.dataset.name;
  root.replaceChildren(...parts);
  if (focused) [...root.querySelectorAll("[data-name]")].find((e) => e.dataset.name === focused)?.focus();
  run();
};

// ---- the list

const showList = () => {
  if (still($("locks"))) return;
  const filter = $("filter").value.toLowerCase(), order = $("order").value;
  const rows = state.locks.filter((l) => l.name.toLowerCase().includes(filter));
  rows.sort((a, b) => (order === "name" ? 0 : b[order] - a[order]) || (a.name < b.name ? -1 : 1));
  const items = rows.slice(0, 300).map((l) => {
    const waiting = l.queue_length || (l.processes === 1 ? "1 process" : l.processes > 0 && l.processes + " processes");
    const facts = [l.held_seconds > 0 && "held " + span(l.held_seconds * 1e3), l.rate >= 0.05 && "≥" + l.rate.toFixed(1) + " turns/s"];
    const a = el("a", l.name === state.open && "open",
      el("span", "name", l.name),
      el("span", "right", waiting && el("span", "waiters", waiting + " waiting"), " ", el("span", "badge", l.kind === "read-write" ? l.mode || l.kind : l.kind)),
      el("span", "who", l.who),
      el("span", "right dim", facts.filter(Boolean).join(", ")),
      lease(l.key, l.remaining_seconds, l.at));
    a.href = "#/lock/" + encodeURIComponent(l.name);
    a.dataset.name = l.name;
    return el("li", "", a);
  });
  fill($("locks"), ...items);
  $("none").hidden = items.length > 0;
  $("none").textContent = !state.came ? "Connecting …" : state.locks.length ? "No name has that." : "No lock is held.";
  $("count").textContent = state.came && (rows.length < state.locks.length ? rows.length + " of " : "") + state.total +
    (state.total === 1 ? " lock" : " locks") + (rows.length > items.length ? ", " + items.length + " shown" : "");
};

// ---- one lock in depth

const card = (title, ...parts) => el("div", "card", el("h2", "", title), ...parts);
const fact = (label, value) => el("div", "", value instanceof Node ? value : el("b", "", String(value)), label);
// line is a labelled value that people copy.
const line = (label, value) => value && el("span", "owner", el("span", "label", label), el("span", "", value));

const strip = (l) => {
  if (!l.turns.length) return card("Who held it", el("p", "dim", "Nobody, since this page was opened."));
  const to = now(), from = Math.max(to - 120000, Math.min(when(l.first), to - 10000));
  const bar = Object.assign(el("div", "strip"), { role: "img", ariaLabel: "Who held the lock in the last two minutes" });
  for (const t of l.turns) {
    const begin = Math.max(when(t.from), from), end = t.ended ? when(t.to) : to;
    if (end < from) continue;
    const i = Object.assign(el("i", t.how), { title: t.who });
    Object.assign(i.style, { left: (begin - from) / (to - from) * 100 + "%", width: (end - begin) / (to - from) * 100 + "%", backgroundColor: colour(t.owner) });
    bar.append(i);
  }
  const turns = l.turns.toReversed().map((t) => {
    const dot = el("span", "dot");
    dot.style.background = colour(t.owner);
    const ended = { unseen: ", then nobody looked", expired: ", lost: its lease ran out", forced: t.ended ? ", taken away from here" : ", being taken away" };
    const how = !t.ended ? "now" : t.looks === 1 && t.how !== "expired" ? "seen once" : "for " + span(when(t.to) - when(t.from));
    return el("li", "", dot, el("span", "dim", clock(t.from)), el("span", "", inMode(t.who, t.mode)),
      el("span", t.how && t.how !== "unseen" ? "bad" : "dim", how + (ended[t.how] || "")));
  });
  return card("Who held it", bar, el("div", "scale", el("span", "", span(to - from) + " ago"), el("span", "", "now")), el("ul", "turns", ...turns));
};

const holder = (l, h) => {
  const b = state.allowUnlock && Object.assign(el("button", "danger", "Take it away"), { type: "button", onclick: () => ask(l, h) });
  if (b) b.dataset.name = h.owner;
  return el("div", "party", el("span", "name", l.names[h.owner]),
    el("span", "right dim", since("", when(h.held_since), "held for ", ""), when(h.held_since) > when(h.asked_since) && ", after waiting " + span(when(h.held_since) - when(h.asked_since)), h.count > 1 && ", " + h.count + " holds"),
    line("owner", h.owner), line("address", h.addr), line("trace", h.trace_id),
    l.holder_count > 1 && lease(l.key + h.owner, h.remaining_seconds, l.at), b);
};

const waiter = (l, w) => el("li", "", el("span", "", inMode(l.names[w.owner], w.mode)), since("right dim", when(w.asked_since), "waits ", ""), el("span", "owner", w.owner));

// some are the first of the parties, or all that came, and a word about the others.
const some = (parties, total, l, show) => {
  const shown = parties.slice(0, state.all ? parties.length : 10), rest = total - shown.length;
  const more = rest > 0 && shown.length < parties.length && Object.assign(el("button", "quiet", "Show " + (parties.length - shown.length) + " more"),
    { type: "button", onclick: () => { state.all = true; showOne(); } });
  if (more) more.dataset.name = "more " + show.name;
  return [...shown.map((p) => show(l, p)), more || (rest > 0 && el("p", "dim", "and " + rest + " more: redlatch show " + l.name))];
};

const waiting = (l, w) => el("li", "", el("span", "", w.client || w.client_id), since("right dim", when(w.asked_since), "waits ", ""), el("span", "owner", w.addr || ""));

const showOne = () => {
  const l = state.one, detail = $("detail");
  document.querySelector("main").className = state.open ? "with-one" : "list-only";
  $("one").hidden = !state.open;
  if (!state.open || (l && l.name === detail.dataset.name && still(detail))) return;
  detail.dataset.name = l ? l.name : "";
  if (!l || l.name !== state.open) { fill(detail, el("p", "empty", "Looking at " + state.open)); return; }
  const title = el("h1", "", l.name);
  if (l.problem) { fill(detail, el("div", "card", title, el("p", "", l.problem))); return; }
  const held = l.holder_count > 0, mode = { lock: "held", read: "held by readers", write: "held by a writer" }[l.mode];
  const parts = [el("div", "card", title,
    el("span", "badge " + (held ? "held" : "free"), held ? mode : "free"), " ",
    l.kind ? el("span", "badge", l.kind) : el("span", "dim", "There is no key and no queue of this name."),
    el("div", "facts",
      held && fact("lease left", leaseText(l.remaining_seconds, l.at)),
      l.kind && l.kind !== "reentrant" && fact("in the queue", l.queue_length),
      fact(l.processes === 1 ? "process listens" : "processes listen", l.processes < 0 ? "?" : l.processes),
      l.token && fact("fencing token", l.token)),
    held && lease(l.key, l.remaining_seconds, l.at))];
  if (held) parts.push(card(l.holder_count > 1 ? "Holders (" + l.holder_count + ")" : "Holder", ...some(l.holders, l.holder_count, l, holder)));
  parts.push(strip(l));
  if (l.waiting) parts.push(card("Waiting processes (" + l.waiting.length + ")", el("ol", "queue", ...some(l.waiting, l.waiting.length, l, waiting))));
  if (l.queue_length > 0) parts.push(card("Queue (" + l.queue_length + ")", el("ol", "queue", ...some(l.queue, l.queue_length, l, waiter))));
  fill(detail, ...parts);
};

// ---- who was evicted: of the open lock, or of all

const showHistory = async () => {
  if (state.refused) return; // for good: asking again would fill the server's log of refusals
  const of = state.open, root = $("history"), r = await api("history?lock=" + encodeURIComponent(of));
  if (of !== state.open || r.status === 401) return;
  const past = r.ok ? await r.json() : [], problem = !r.ok && (await r.text());
  state.refused = r.status === 500;
  (of ? $("one") : $("list")).append(root);
  root.hidden = !past.length && r.ok;
  const items = past.map((e) => el("li", "",
    el("span", "dim", Date.parse(e.at) > 0 ? new Date(e.at).toLocaleString([], { dateStyle: "short", timeStyle: "medium", hourCycle: "h23" }) : "?"),
    el("span", "", !of && el("b", "", e.name + " "), "taken from " + (e.evicted.map((v) => v.process || v.owner).join(", ") || "?"), " by " + (e.by || "?")),
    e.reason && el("span", "reason", e.reason)));
  root.replaceChildren(el("h2", "", "Evictions"), problem ? el("p", "dim", problem) : el("ul", "turns history", ...items));
};

// ---- taking a lock away

let asked = null;
const ask = (l, h) => {
  asked = { name: l.name, owner: h.owner };
  $("ask-name").textContent = l.name;
  $("ask-owner").textContent = (h.client || h.client_id || "?") + " " + h.owner;
  $("ask-next").textContent = l.kind === "fair" && l.queue.length ? "it goes to " + l.names[l.queue[0].owner] : "those who wait are woken";
  $("ask-reason").value = "";
  $("ask").showModal();
};
const say = (text) => {
  $("said").textContent = text;
  $("said").hidden = false;
  clearTimeout(say.timer);
  say.timer = setTimeout(() => { $("said").hidden = true; }, 6000);
};
$("ask-no").addEventListener("click", () => $("ask").close());
$("ask-yes").addEventListener("click", async () => {
  $("ask").close();
  try {
    const r = await api("unlock", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ ...asked, reason: $("ask-reason").value }) });
    if (!r.ok) throw new Error(await r.text());
    const did = await r.json();
    say(asked.name + (did.freed ? " was taken away." : " was free already.") + (did.untold ? " Nobody was woken: " + did.untold : "") +
      (did.unrecorded ? " It is not in the history: " + did.unrecorded : ""));
    showHistory();
  } catch (e) { say("Not done: " + e.message); }
});

// ---- following

const showState = (text, trouble = "") => {
  $("trouble").textContent = trouble;
  $("trouble").hidden = !trouble;
  $("state").textContent = text;
  const live = text.startsWith("live");
  $("state").classList.toggle("live", live);
  document.body.classList.toggle("stale", !live && state.came > 0);
  run();
};
const sinceLast = () => state.came ? " since " + clock(new Date(state.came).toISOString()) : "";
// age says when what is shown is old, whoever is silent: the server, the program or the network. Nothing counts on then.
const age = () => {
  if ($("state").classList.contains("live") && Date.now() - state.came > Math.max(2000, state.interval + 2 * state.took)) {
    showState("no answer" + sinceLast());
  }
  if (!stale()) run();
};
// The token lives in this tab, and goes to this origin only: no other page or port of the host has it.
const TOKEN = "redlatch-token";
const api = async (path, options = {}) => {
  const headers = { ...options.headers }, token = sessionStorage.getItem(TOKEN);
  if (token) headers.Authorization = "Bearer " + token;
  const r = await fetch("api/" + path, { ...options, headers, credentials: "omit" });
  if (r.status === 401) { sessionStorage.removeItem(TOKEN); login(true); }
  return r;
};
const login = (needed) => {
  $("login").hidden = !needed;
  document.querySelector("main").hidden = needed;
  if (needed) $("token").focus();
};
$("login").addEventListener("submit", (e) => {
  e.preventDefault();
  sessionStorage.setItem(TOKEN, $("token").value);
  $("token").value = "";
  start();
});

const told = {
  locks: (o) => {
    Object.assign(state, { locks: o.locks, total: o.total, came: Date.now(), took: o.took_seconds * 1000 });
    $("share").textContent = state.share && "Looks take " + state.share + ".";
    if (o.locks.length) state.skew = when(o.at) - Date.now();
    showState(state.took > 1000 ? "live, a look takes " + span(state.took) : "live");
    showList();
  },
  lock: (o) => {
    state.one = o;
    state.skew = when(o.at) > 0 ? when(o.at) - Date.now() : state.skew;
    showOne();
  },
  trouble: (o) => showState("in trouble" + sinceLast(), o.error),
};
// An EventSource can't send the token: the stream is read by hand.
const follow = async () => {
  state.source?.abort();
  const source = state.source = new AbortController();
  try {
    const r = await api("events?lock=" + encodeURIComponent(state.open), { signal: source.signal });
    if (r.status === 401) return;
    if (!r.ok) throw new Error(await r.text());
    const reader = r.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let text = "";;) {
      const { done, value } = await reader.read();
      if (done) break;
      const events = (text + value).split("\n\n");
      text = events.pop();
      for (const e of events) {
        const m = e.match(/^event: (.*)\ndata: (.*)$/);
        if (m && source === state.source) told[m[1]](JSON.parse(m[2]));
      }
    }
  } catch (e) { console.debug(e); }
  if (source !== state.source) return;
  showState("connecting", $("trouble").textContent);
  setTimeout(() => { if (source === state.source) follow(); }, 2000);
};
const decoded = (text) => { try { return decodeURIComponent(text); } catch { return ""; } };
const route = () => {
  const [, kind, rest] = location.hash.match(/^#(token=|\/lock\/)(.+)$/) || [], name = kind === "/lock/" ? decoded(rest) : "";
  if (kind === "token=") { // an address with a token leaves it here, and not in the history
    sessionStorage.setItem(TOKEN, decoded(rest));
    history.replaceState(null, "", location.pathname);
    start();
  }
  if (name !== state.open) {
    Object.assign(state, { open: name, one: null, all: false });
    if (state.source) { follow(); showHistory(); }
  }
  title();
  showOne();
  showList();
};
// title says which lock and which server: people have several of these pages open.
const title = () => {
  document.title = [state.open, "redlatch", state.server].filter(Boolean).join(" – ");
  $("server").textContent = state.server;
};

const root = document.documentElement;
root.dataset.theme = localStorage.getItem("redlatch-theme") || "";
$("theme").addEventListener("click", () => {
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  localStorage.setItem("redlatch-theme", root.dataset.theme = dark ? "light" : "dark");
});
$("filter").addEventListener("input", showList);
$("order").addEventListener("change", showList);
addEventListener("hashchange", route);
setInterval(age, 100);
setInterval(() => { if (!document.hidden && state.source) showHistory(); }, 30000);
const start = async () => {
  login(false);
  follow();
  const r = await api("settings");
  if (!r.ok) return;
  const s = await r.json();
  Object.assign(state, { allowUnlock: s.allow_unlock, server: s.server, interval: s.interval_ms, share: s.share || "" });
  if (s.share && !state.came) $("share").textContent = "Looks take " + s.share + ": among very many keys, the first one takes minutes.";
  state.refused = false;
  title();
  showOne();
  showHistory();
};
route();
if (!state.source) start();
