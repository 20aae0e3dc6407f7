// Live update, choices in place, ages, copies, keys. Without it every page works too, as old as its last load.
"use strict";

const SLOWEST = 10000;
const content = () => document.getElementById("content");

// -- theme

function themeButton() {
  const button = document.getElementById("theme");
  if (!button) return;
  button.hidden = false;
  button.textContent = `Theme: ${theme()}`;
  button.addEventListener("click", () => {
    const next = THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length];
    try { localStorage.setItem("haru-theme", next); } catch { /* it lasts as long as the page */ }
    applyTheme(next);
    button.textContent = `Theme: ${next}`;
    document.dispatchEvent(new Event("haru:theme"));
  });
}

// -- ages: "5 min ago", the time itself on hover

const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
function age(seconds) {
  const past = seconds >= 0, amount = Math.abs(seconds);
  if (amount < 2) return "now";
  const at = UNITS.findIndex(([, size]) => amount >= size);
  const [name, size] = UNITS[at], number = Math.floor(amount / size);
  const [lower, smaller] = UNITS[at + 1] || [];
  const rest = smaller && number < 3 ? Math.floor((amount - number * size) / smaller) : 0;
  const text = rest ? `${number} ${name} ${rest} ${lower}` : `${number} ${name}`;
  return past ? `${text} ago` : `in ${text}`;
}
function showAge(each) {
  const at = Date.parse(each.dateTime);
  if (Number.isNaN(at)) return;
  const text = age((Date.now() - at) / 1000);
  if (each.textContent !== text) each.textContent = text;
  if (each.title !== each.dateTime) each.title = each.dateTime;
}
function showAges(root) { root.querySelectorAll("time[datetime]").forEach(showAge); }

// -- what the script adds to what the server sent

function enhance(root) {
  showAges(root);
  root.querySelectorAll("[data-copy]").forEach((button) => { button.hidden = false; });
  oneStop();
  if (window.drawCharts) drawCharts(root);
  document.dispatchEvent(new Event("haru:shown"));
}

// -- exchange: only what differs, so that focus, scroll positions, open details and texts being typed stay

function keeps(old, fresh) {
  if (!(old instanceof Element) || !(fresh instanceof Element)) return true;
  if (old.dataset.exchanged !== undefined) return false;
  if (old.tagName === "TIME" && old.dateTime === fresh.dateTime) return false;
  if (old.tagName === "DETAILS") fresh.open = old.open;
  if (old.tagName === "INPUT" && old === document.activeElement) return false;
  if (old.hasAttribute("data-copy")) fresh.hidden = false;
  if (old.tagName === "A" && old.hasAttribute("tabindex")) fresh.setAttribute("tabindex", old.getAttribute("tabindex"));
  if (old.classList.contains("chart") && fresh.classList.contains("chart")) {
    for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    return false;
  }
  return true;
}
// Nodes of the map, of which there may be thousands, by their ids and looks: only those that differ are touched.
function exchangeTiles(old, fresh) {
  const focused = document.activeElement && document.activeElement.closest(".tiles > *");
  const link = focused ? [...focused.querySelectorAll("a")].indexOf(document.activeElement) : -1;
  const done = [];
  for (const list of fresh.querySelectorAll("[id] > .tiles")) {
    const current = old.querySelector(`#${CSS.escape(list.parentElement.id)} > .tiles`);
    if (!current) continue;
    const before = [...current.children], known = new Map(before.map((each) => [each.id, each]));
    const kept = [...list.children].map((each) => {
      const same = known.get(each.id);
      return same && same.dataset.look === each.dataset.look ? same : each;
    });
    if (kept.length === before.length && kept.every((each, at) => each.id === before[at].id)) {
      kept.forEach((each, at) => { if (each !== before[at]) before[at].replaceWith(each); });
    } else current.replaceChildren(...kept);
    list.replaceChildren();
    current.className = list.className;
    current.dataset.exchanged = list.dataset.exchanged = "";
    done.push(current);
  }
  if (focused && !focused.isConnected) {
    const again = document.getElementById(focused.id), target = again && again.querySelectorAll("a")[link];
    if (target) focusOn(target);
  }
  return done;
}
function exchange(page) {
  const old = content(), fresh = page.getElementById("content");
  if (!old || !fresh) return false;
  if (window.Idiomorph) {
    const tiles = exchangeTiles(old, fresh), focused = document.activeElement;
    Idiomorph.morph(old, fresh, { morphStyle: "outerHTML", ignoreActiveValue: true, restoreFocus: true, callbacks: { beforeNodeMorphed: keeps } });
    for (const each of tiles) delete each.dataset.exchanged;
    if (focused && focused.isConnected && focused !== document.activeElement && focused !== document.body) focused.focus({ preventScroll: true });
  } else {
    old.replaceWith(document.adoptNode(fresh));
  }
  enhance(content());
  return true;
}
async function load(address) {
  const answer = await fetch(address, { credentials: "same-origin" });
  return [answer.status, new DOMParser().parseFromString(await answer.text(), "text/html")];
}

// -- links and forms with data-swap change the address and the content, not the document

function tools(page) {
  const old = document.querySelector(".heading"), fresh = page.querySelector(".heading");
  if (!old || !fresh || !window.Idiomorph) return;
  Idiomorph.morph(old, fresh, { morphStyle: "outerHTML", ignoreActiveValue: true, callbacks: { beforeNodeMorphed: keeps } });
}
async function swap(address, push) {
  pause();
  try {
    const [status, page] = await load(address);
    if (status !== 200 || !page.getElementById("content")) { location.assign(address); return; }
    if (push) history.pushState(null, "", address);
    document.title = page.title;
    tools(page);
    exchange(page);
    listen();
  } catch { location.assign(address); }
}
window.swap = swap;
function clicked(event) {
  const copy = event.target.closest("[data-copy]");
  if (copy) { copyText(copy); return; }
  const link = event.target.closest("a[data-swap]");
  if (!link || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  swap(link.href, true);
}
function addressOf(form) {
  const query = new URLSearchParams();
  for (const [name, value] of new FormData(form)) if (value !== "") query.append(name, value);
  const text = query.toString();
  return new URL(form.action).pathname + (text ? `?${text}` : "");
}
function submitted(event) {
  if (!event.target.matches("form[data-swap]")) return;
  event.preventDefault();
  swap(addressOf(event.target), true);
}
let typing = 0;
function typed(event) {
  const form = event.target.closest && event.target.closest("form[data-swap]");
  if (!form || event.target.type !== "search") return;
  clearTimeout(typing);
  typing = setTimeout(() => { history.replaceState(null, "", addressOf(form)); swap(location.href, false); }, 200);
}
async function copyText(button) {
  try { await navigator.clipboard.writeText(button.dataset.copy); button.textContent = "Copied"; }
  catch { button.textContent = "Select and copy"; }
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}

// -- keys: / searches, g and a letter goes to a page, arrow keys move between the cells of a map

let went = 0;
function pressed(event) {
  if (event.altKey || event.ctrlKey || event.metaKey) return;
  const inField = event.target.matches && event.target.matches("input, textarea, select");
  if (event.key === "Escape" && inField) { event.target.blur(); return; }
  if (inField) return;
  if (event.key === "/") { const box = document.getElementById("search"); if (box) { box.focus(); event.preventDefault(); } return; }
  if (event.key === "g") { went = Date.now(); return; }
  if (Date.now() - went < 1500) {
    const link = document.querySelector(`[data-go="${CSS.escape(event.key)}"]`);
    if (link && event.key) { went = 0; link.click(); }
    return;
  }
  moveInMap(event);
}
function cells() { return [...document.querySelectorAll("[data-cells] a")].filter((each) => each.getClientRects().length); }
function focusOn(cell) {
  if (!cell) return;
  document.querySelectorAll('[data-cells] a[tabindex="0"]').forEach((other) => { other.tabIndex = -1; });
  cell.tabIndex = 0;
  cell.focus();
}
function moveInMap(event) {
  const here = event.target.closest && event.target.closest("[data-cells] a");
  if (!here || !["ArrowRight", "ArrowLeft", "ArrowUp", "ArrowDown", "Home", "End"].includes(event.key)) return;
  event.preventDefault();
  const all = cells(), at = all.indexOf(here);
  if (event.key === "ArrowRight") return focusOn(all[at + 1]);
  if (event.key === "ArrowLeft") return focusOn(all[at - 1]);
  if (event.key === "Home") return focusOn(all[0]);
  if (event.key === "End") return focusOn(all[all.length - 1]);
  const box = here.getBoundingClientRect(), down = event.key === "ArrowDown", middle = box.left + box.width / 2;
  let best = null, least = Infinity;
  for (const each of all) {
    const there = each.getBoundingClientRect();
    const away = down ? there.top - box.bottom : box.top - there.bottom;
    if (away < -1) continue;
    const distance = away * 4 + Math.abs(there.left + there.width / 2 - middle);
    if (distance < least) { least = distance; best = each; }
  }
  focusOn(best);
}
// One stop of the tab key for the whole map.
function oneStop() {
  const links = [...document.querySelectorAll("[data-cells] a")];
  const stop = links.find((link) => link.getAttribute("tabindex") === "0") || links[0];
  links.forEach((link) => { if (!link.hasAttribute("tabindex")) link.tabIndex = -1; });
  if (stop) stop.tabIndex = 0;
}

// -- live: the server sends the content of this page, and then the lines in which it differs from what it sent before

let source = null, lines = null, drawing = false, latest = null;
function say(text, lost) {
  const state = document.getElementById("live");
  if (!state) return;
  if (state.textContent !== text) state.textContent = text;
  state.classList.toggle("lost", lost);
}
function draw() {
  if (drawing || latest === null || document.hidden) return;
  const began = performance.now(), old = content(), fresh = old.cloneNode(false);
  fresh.dataset.version = latest;
  fresh.innerHTML = lines.join("\n");
  const page = document.implementation.createHTMLDocument("");
  page.body.append(fresh);
  latest = null;
  drawing = true;
  exchange(page);
  // A page that takes the browser long is drawn less often.
  setTimeout(() => { drawing = false; draw(); }, Math.min(SLOWEST, 4 * (performance.now() - began)));
}
// [line, how many, [lines]], or within one line [line, from, how many, characters]
function replaceLines(each) {
  const [at, from, count, text] = each;
  if (each.length === 4) lines[at] = lines[at].slice(0, from) + text + lines[at].slice(from + count);
  else lines.splice(at, from, ...count);
}
function told(event) {
  const news = JSON.parse(event.data);
  if (news.changed) { location.reload(); return; }
  if (news.gone) { say("it does not exist any more", true); return; }
  if (news.content !== undefined) lines = news.content.split("\n");
  else if (lines) news.lines.forEach(replaceLines);
  else return;
  if (news.content === undefined || news.version > Number(content().dataset.version)) latest = news.version;
  draw();
}
function listen() {
  if (source || document.hidden || !content() || !("live" in content().dataset)) return;
  source = new EventSource(`/changes?of=${encodeURIComponent(location.pathname + location.search)}`);
  source.addEventListener("open", () => say("live", false));
  source.addEventListener("message", told);
  source.addEventListener("error", () => say(source && source.readyState === 2 ? "not live: load the page again" : "connection lost, trying again", true));
}
function pause() { if (source) { source.close(); source = null; lines = null; latest = null; } }
function live() {
  // A page that nobody sees holds no connection: a browser has six for one server.
  document.addEventListener("visibilitychange", () => { if (document.hidden) pause(); else listen(); });
  addEventListener("pagehide", pause);
  listen();
}

addEventListener("DOMContentLoaded", () => {
  themeButton();
  enhance(document);
  document.addEventListener("click", clicked);
  document.addEventListener("submit", submitted);
  document.addEventListener("input", typed);
  document.addEventListener("keydown", pressed);
  addEventListener("popstate", () => swap(location.href, false));
  setInterval(() => showAges(document), 1000);
  const here = document.querySelector(".bar nav [aria-current]");
  if (here) here.closest("ul").scrollLeft = here.offsetLeft - here.closest("ul").clientWidth / 2;
  live();
});
