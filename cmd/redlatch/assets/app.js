"use strict";
// The page follows the server by a stream of events. What they say is put into text nodes
// only: names and owners are whatever somebody chose.

const $ = (id) => document.getElementById(id);
const state = { locks: [], total: 0, one: null, open: "", skew: 0, allowUnlock: false, server: "", source: null, first: {} };

const el = (tag, cls, text) => {
  const e = document.createElement(tag);
  if (cls) e.className = cls;
  if (text !== undefined) e.textContent = text;
  return e;
};

const ms = (ns) => ns / 1e6;
const when = (t) => (t && !t.startsWith("0001") ? Date.parse(t) : NaN);
const now = () => Date.now() + state.skew; // the server's clock

const span = (v) => {
  if (!(v > 0)) return "0s";
  const s = v / 1000;
  if (s < 1) return Math.round(v) + "ms";
  if (s < 10) return s.toFixed(1) + "s";
  if (s < 60) return Math.floor(s) + "s";
  const two = (n) => String(Math.floor(n)).padStart(2, "0");
  if (s < 3600) return Math.floor(s / 60) + "m" + two(s % 60) + "s";
  if (s < 172800) return Math.floor(s / 3600) + "h" + two((s % 3600) / 60) + "m";
  return Math.floor(s / 86400) + "d" + two((s % 86400) / 3600) + "h";
};

const clock = (t) => new Date(when(t)).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });

// processesThat is a number of processes and what they do; -1 is not known.
const processesThat = (n, does, doThey) => n === 1 ? "1 process " + does : (n < 0 ? "?" : n) + " processes " + doThey;

// A colour per owner: the same as long as the page is open.
const colours = {};
const colour = (owner) => {
  if (!(owner in colours)) colours[owner] = `hsl(${(Object.keys(colours).length * 137.5 + 210) % 360} 55% 55%)`;
  return colours[owner];
};

// ---- leases run down between two events

const leases = new Map(); // element -> { key, end, full }
const longest = {};       // per lock: the longest lease seen, which is a whole bar
const lease = (key, remainingNs, at) => {
  const bar = el("div", "lease");
  bar.append(el("i"));
  const left = ms(remainingNs);
  if (!(left > 0)) return bar;
  longest[key] = Math.max(longest[key] || 0, left);
  leases.set(bar, { end: when(at) + left, full: longest[key] });
  return bar;
};
const leaseText = (remainingNs, at) => {
  const e = el("b");
  if (remainingNs > 0) leases.set(e, { end: when(at) + ms(remainingNs), text: true });
  else e.textContent = "no end";
  return e;
};
const sinceText = (tag, cls, from, before, after) => {
  const e = el(tag, cls);
  if (Number.isNaN(from)) e.textContent = before ? "" : "not known";
  else leases.set(e, { from, before: before || "", after: after || "", text: true });
  return e;
};
const run = () => {
  for (const [e, l] of leases) {
    if (!e.isConnected) { leases.delete(e); continue; }
    if (l.from !== undefined) { e.textContent = l.before + span(Math.max(now() - l.from, 0)) + l.after; continue; }
    const left = Math.max(l.end - now(), 0);
    if (l.text) { e.textContent = span(left); continue; }
    e.firstChild.style.width = Math.min(left / l.full * 100, 100) + "%";
    e.classList.toggle("low", left < l.full / 3);
  }
};

// What is pressed or marked stays as it is: a click needs its element to the end, and people
// copy owners. What came meanwhile is shown afterwards.
let pressing = false;
const still = (root) => {
  const sel = getSelection();
  return pressing || (!sel.isCollapsed && root.contains(sel.anchorNode));
};
addEventListener("pointerdown", () => { pressing = true; });
for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => setTimeout(() => { pressing = false; showList(); showOne(); }, 0));

// ---- the list

const showList = () => {
  if (still($("locks"))) return;
  const filter = $("filter").value.toLowerCase(), order = $("order").value;
  const rows = state.locks.filter((l) => l.name.toLowerCase().includes(filter));
  rows.sort((a, b) => (order === "name" ? 0 : b[order] - a[order]) || (a.name < b.name ? -1 : 1));
  const list = $("locks"), items = [];
  for (const l of rows.slice(0, 300)) {
    const a = el("a");
    a.href = "#/lock/" + encodeURIComponent(l.name);
    a.dataset.name = l.name;
    if (l.name === state.open) a.className = "open";
    a.append(el("span", "name", l.name));
    const right = el("span", "right");
    if (l.queue_length > 0) right.append(el("span", "waiters", l.queue_length + " waiting"), " ");
    else if (l.processes > 0) right.append(el("span", "waiters", processesThat(l.processes, "waiting", "waiting")), " ");
    right.append(el("span", "badge", l.kind === "read-write" ? (l.mode || "read-write") : l.kind));
    a.append(right);
    a.append(el("span", "who", l.who));
    const facts = el("span", "right dim");
    if (l.held_ms > 0) facts.append("held " + span(l.held_ms));
    if (l.rate >= 0.05) facts.append((facts.textContent ? ", " : "") + "≥" + l.rate.toFixed(1) + " turns/s");
    a.append(facts, lease(l.key, l.remaining, l.at));
    const li = el("li");
    li.append(a);
    items.push(li);
  }
  const focused = document.activeElement && document.activeElement.dataset && document.activeElement.dataset.name;
  list.replaceChildren(...items);
  if (focused !== undefined) for (const a of list.querySelectorAll("a")) if (a.dataset.name === focused) a.focus();
  $("none").hidden = items.length > 0;
  $("none").textContent = state.locks.length ? "No name has that." : "No lock is held.";
  $("count").textContent = (rows.length < state.locks.length ? rows.length + " of " : "") + state.total + (state.total === 1 ? " lock" : " locks") + (rows.length > items.length ? ", " + items.length + " shown" : "");
  run();
};

// ---- one lock in depth

const fact = (label, value) => {
  const d = el("div", "", label);
  d.prepend(value instanceof Node ? value : el("b", "", value));
  return d;
};

// line is a labelled value that people copy.
const line = (label, value) => {
  const e = el("span", "owner");
  e.append(el("span", "label", label), el("span", "", value));
  return e;
};

const strip = (l) => {
  const card = el("div", "card");
  card.append(el("h2", "", "Who held it"));
  if (!l.turns.length) { card.append(el("p", "dim", "Nobody, since this page was opened.")); return card; }
  const to = now(), from = Math.max(to - 120000, Math.min(when(l.first), to - 10000));
  const bar = el("div", "strip");
  bar.setAttribute("role", "img");
  bar.setAttribute("aria-label", "Who held the lock in the last two minutes");
  for (const t of l.turns) {
    const end = t.ended ? when(t.to) : to;
    if (end < from) continue;
    const i = el("i", t.how || "");
    i.style.left = Math.max(when(t.from) - from, 0) / (to - from) * 100 + "%";
    i.style.width = (end - Math.max(when(t.from), from)) / (to - from) * 100 + "%";
    i.style.backgroundColor = colour(t.owner);
    i.title = t.who;
    bar.append(i);
  }
  const scale = el("div", "scale");
  scale.append(el("span", "", span(to - from) + " ago"), el("span", "", "now"));
  const turns = el("ul", "turns");
  for (const t of l.turns.slice().reverse()) {
    const li = el("li"), dot = el("span", "dot");
    dot.style.background = colour(t.owner);
    let how = !t.ended ? "now" : t.looks === 1 && t.how !== "expired" ? "seen once" : "for " + span(when(t.to) - when(t.from));
    if (t.how === "unseen") how += ", then nobody looked";
    if (t.how === "expired") how += ", lost: its lease ran out";
    if (t.how === "forced") how += t.ended ? ", taken away from here" : ", being taken away";
    li.append(dot, el("span", "dim", clock(t.from)), el("span", "", t.who + (t.mode === "lock" ? "" : " (" + t.mode + ")")), el("span", t.how && t.how !== "unseen" ? "bad" : "dim", how));
    turns.append(li);
  }
  card.append(bar, scale, turns);
  return card;
};

const showOne = () => {
  const l = state.one, main = document.querySelector("main");
  main.classList.toggle("with-one", state.open !== "");
  main.classList.toggle("list-only", state.open === "");
  $("one").hidden = state.open === "";
  if (!state.open) return;
  const detail = $("detail");
  if (l && l.name === detail.dataset.name && still(detail)) return;
  detail.dataset.name = l ? l.name : "";
  if (!l || l.name !== state.open) { detail.replaceChildren(el("p", "empty", "Looking at " + state.open)); return; }
  const head = el("div", "card");
  head.append(el("h1", "", l.name));
  if (l.problem) { head.append(el("p", "", l.problem)); detail.replaceChildren(head); return; }
  const held = l.holder_count > 0;
  head.append(el("span", "badge " + (held ? "held" : "free"), held ? (l.mode === "lock" ? "held" : l.mode === "read" ? "held by readers" : "held by a writer") : "free"), " ",
    l.kind ? el("span", "badge", l.kind) : el("span", "dim", "There is no key and no queue of this name."));
  const facts = el("div", "facts");
  if (held) facts.append(fact("lease left", leaseText(l.remaining, l.at)));
  if (l.kind !== "plain" && l.kind) facts.append(fact("in the queue", String(l.queue_length)));
  facts.append(fact(l.processes === 1 ? "process listens" : "processes listen", l.processes < 0 ? "?" : String(l.processes)));
  if (l.token) facts.append(fact("fencing token", String(l.token)));
  head.append(facts);
  if (held) head.append(lease(l.key, l.remaining, l.at));
  const parts = [head];

  if (held) {
    const card = el("div", "card");
    card.append(el("h2", "", l.holder_count > 1 ? "Holders (" + l.holder_count + ")" : "Holder"));
    for (const h of l.holders.slice(0, 50)) {
      const p = el("div", "party");
      const title = el("span", "name", l.names[h.owner]);
      const right = el("span", "right");
      right.append(sinceText("span", "dim", when(h.since), "asked for it ", " ago"));
      if (h.count > 1) right.append(", " + h.count + " holds");
      p.append(title, right);
      p.append(line("owner", h.owner));
      if (h.addr) p.append(line("address", h.addr));
      if (h.trace_id) p.append(line("trace", h.trace_id));
      if (l.holder_count > 1) p.append(lease(l.key + h.owner, h.remaining, l.at));
      if (state.allowUnlock) {
        const b = el("button", "danger", "Take it away");
        b.type = "button";
        b.dataset.owner = h.owner;
        b.addEventListener("click", () => ask(l, h));
        p.append(b);
      }
      card.append(p);
    }
    parts.push(card);
  }
  if (l.queue_length > 0) {
    const card = el("div", "card"), ol = el("ol", "queue");
    card.append(el("h2", "", "Queue (" + l.queue_length + ")"));
    for (const w of l.queue.slice(0, 100)) {
      const li = el("li");
      li.append(el("span", "", l.names[w.owner] + (w.mode === "lock" ? "" : " (" + w.mode + ")")), sinceText("span", "right dim", when(w.since), "waits ", ""), el("span", "owner", w.owner));
      ol.append(li);
    }
    card.append(ol);
    if (l.queue_length > 100) card.append(el("p", "dim", "and " + (l.queue_length - 100) + " more"));
    parts.push(card);
  }
  parts.push(strip(l));
  const busy = document.activeElement && document.activeElement.dataset && document.activeElement.dataset.owner;
  detail.replaceChildren(...parts);
  if (busy) for (const b of detail.querySelectorAll("button")) if (b.dataset.owner === busy) b.focus();
  run();
};

// ---- taking a lock away

let asked = null;
const ask = (l, h) => {
  asked = { name: l.name, owner: h.owner };
  $("ask-name").textContent = l.name;
  $("ask-owner").textContent = (h.client || h.client_id || "?") + " " + h.owner;
  $("ask-next").textContent = l.kind === "fair" && l.queue.length ? "it goes to " + l.names[l.queue[0].owner] : "those who wait are woken";
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
    const r = await api("unlock", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(asked) });
    if (!r.ok) say("Not done: " + (await r.text()));
    else say((await r.json()).freed ? asked.name + " was taken away." : asked.name + " was free already.");
  } catch (e) { say("Not done: " + e.message); }
});

// ---- following

const trouble = (text) => {
  $("trouble").textContent = text;
  $("trouble").hidden = !text;
  $("state").textContent = text ? "in trouble" : "live";
  $("state").classList.toggle("live", !text);
};
// The token lives in this tab, and goes to this origin only: no other page or port of the host has it.
const TOKEN = "redlatch-token";
const api = (path, options = {}) => {
  const headers = Object.assign({}, options.headers), token = sessionStorage.getItem(TOKEN);
  if (token) headers.Authorization = "Bearer " + token;
  return fetch("api/" + path, Object.assign({}, options, { headers, credentials: "omit" })).then((r) => {
    if (r.status === 401) { sessionStorage.removeItem(TOKEN); login(true); }
    return r;
  });
};
// An address with a token leaves it here, and not in the history.
const keepToken = () => {
  const m = location.hash.match(/^#token=(.+)$/);
  if (!m) return;
  try { sessionStorage.setItem(TOKEN, decodeURIComponent(m[1])); } catch { /* no token of ours */ }
  history.replaceState(null, "", location.pathname);
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
    state.locks = o.locks;
    state.total = o.total;
    if (o.locks.length) state.skew = when(o.at) - Date.now();
    trouble("");
    showList();
  },
  lock: (o) => {
    state.one = o;
    state.skew = when(o.at) > 0 ? when(o.at) - Date.now() : state.skew;
    showOne();
  },
  trouble: (o) => trouble(o.error),
};
// An EventSource can't send the token: the stream is read by hand.
const follow = async () => {
  if (state.source) state.source.abort();
  const source = state.source = new AbortController();
  try {
    const r = await api("events" + (state.open ? "?lock=" + encodeURIComponent(state.open) : ""), { signal: source.signal });
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
  $("state").textContent = "connecting";
  $("state").classList.remove("live");
  setTimeout(() => { if (source === state.source) follow(); }, 2000);
};
// title says which lock and which server: people have several of these pages open.
const title = () => {
  document.title = [state.open, "redlatch", state.server].filter(Boolean).join(" – ");
  $("server").textContent = state.server;
};
const route = () => {
  const m = location.hash.match(/^#\/lock\/(.+)$/);
  let name = "";
  if (/^#token=/.test(location.hash)) { keepToken(); start(); }
  try { name = m ? decodeURIComponent(m[1]) : ""; } catch { name = ""; }
  if (name !== state.open) {
    state.open = name;
    state.one = null;
    if (state.source) follow();
  }
  title();
  showOne();
  showList();
};

const theme = (t) => { if (t) document.documentElement.dataset.theme = t; };
theme(localStorage.getItem("redlatch-theme"));
$("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  theme(dark ? "light" : "dark");
  localStorage.setItem("redlatch-theme", dark ? "light" : "dark");
});
$("filter").addEventListener("input", showList);
$("order").addEventListener("change", showList);
window.addEventListener("hashchange", route);
setInterval(run, 100);
const start = () => {
  login(false);
  api("settings").then((r) => r.json()).then((s) => { state.allowUnlock = s.allow_unlock; state.server = s.server; title(); showOne(); }).catch(() => {});
  follow();
};
keepToken();
route();
start();
